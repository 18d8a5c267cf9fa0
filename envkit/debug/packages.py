"""AOTInductor packages that a command was loading when it died: what their files tell of why.

A library with a C++ runtime of its own beside the process's (a compiler that adds -static-libstdc++) ends its process
when it is loaded, before torch can say anything; ``envkit probe --aoti`` and the check aoti-cxx-runtime-inside know the
same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from envkit.debug.records import PythonFrame
from envkit.payload.aoti import package

SHARED = (
    "package it again with a C++ compiler that links libstdc++ shared (CXX=/usr/bin/g++); a wrapper of the compiler "
    "may add -static-libstdc++ to each link"
)
_MARKS = ("_inductor/package", "aoti_load_package", "aot_load", "pt2_archive")

# What a package's own check finds unlike (torch, inductor's wrappers): its word, in words, category, cause and fix.
_UNLIKE = {
    "device": (
        "on another device", "invalid-argument-device-mismatch", "device-mixup",
        "move the inputs to the device of the package, such as x.to('cuda'), before it is called",
    ),
    "dtype": (
        "of another number type", "", "program-bug",
        "cast the inputs to the types that the package was exported with, or export it with these",
    ),
    "dim": (
        "of another shape", "", "program-bug",
        "give it the shapes that it was exported with, or export it with dynamic_shapes",
    ),
    "stride": (
        "of other strides", "", "program-bug", "give it contiguous inputs, or export it with such strides",
    ),
}  # fmt: skip


def unlike(line: str) -> tuple[str, str, str, str]:
    """Of what a package's check says of an input: how it is unlike, the category, the cause class and the fix; empty
    words for a line of no such check."""
    found = re.search(r"unmatched (device|dtype|dim|stride)", line)
    return _UNLIKE[found[1]] if found else ("", "", "", "")


def loading(frames: Sequence[PythonFrame]) -> bool:
    """Whether a stack is in torch's loading of a package."""
    return any(mark in frame.file or mark in frame.function for frame in frames for mark in _MARKS)


def deadly(command: Sequence[str], cwd: Path) -> tuple[str, str] | None:
    """Why loading a package that the command names ends its process, and what to do; None where no file of one tells.

    A command that names none may load one of the folder it runs in.
    """
    words = [word.rpartition("=")[2] for word in command]
    named = [path for word in words if word.endswith((".pt2", ".so")) and (path := cwd / word).is_file()]
    for path in named or sorted(cwd.glob("*.pt2"))[:8]:
        said, _ = package.read(str(path))  # of what is no package torch says itself what is wrong
        for library in said["libraries"]:
            if library["carries"]:
                return (
                    f"loading {path} ends the process: {library['name']} in it brings a C++ runtime of its own beside "
                    "the process's (it was linked with -static-libstdc++)",
                    SHARED,
                )
    return None
