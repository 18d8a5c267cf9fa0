"""The C++ compilers here, and what each makes of libstdc++ in a library that it links.

A compiler can be a wrapper that adds ``-static-libstdc++``: then every library that it links has a C++ runtime of its
own.  Whether it does so is asked by linking one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import Any

from envkit.payload import programs
from envkit.payload.aoti import package
from envkit.payload.probe.report import observed

_LINK_S = 60.0
_OTHERS = 3
_SAID = 300
# Uses what no header defines, so the linker must take it from libstdc++.so or libstdc++.a.
_SOURCE = """#include <locale>
extern "C" __attribute__((visibility("default"))) int plain(void) { return std::locale() == std::locale::classic(); }
"""


def _told(command: list[str], timeout_s: float) -> tuple[int, str]:
    """The exit code and all that a command prints; 127 and the reason where it does not run or does not end."""
    try:
        return programs.told(command, timeout_s)
    except (OSError, subprocess.SubprocessError) as error:
        return 127, str(error)


def _linked(path: str) -> tuple[str, str]:
    """Where libstdc++ is in a library linked by the compiler: "shared", "inside" or "", and why it made none."""
    try:
        with tempfile.TemporaryDirectory(prefix="envkit-aoti-") as folder:
            source, target = os.path.join(folder, "plain.cpp"), os.path.join(folder, "plain.so")
            with open(source, "w", encoding="ascii") as file:
                file.write(_SOURCE)
            # The words that inductor links with, as far as they choose what is linked (torch/_inductor/cpp_builder.py).
            code, said = _told([path, source, "-shared", "-fPIC", "-o", target], _LINK_S)
            if code:
                lines = said.splitlines() or [f"exit {code}"]
                return "", next((line for line in lines if "error" in line), lines[-1])[:_SAID]
            with open(target, "rb") as file:
                made = package.library("plain.so", memoryview(file.read()))
    except OSError as error:
        return "", f"a library cannot be linked: {error}"
    if made["error"]:
        return "", f"it links a library that is none: {made['error']}"
    if made["carries"]:
        return "inside", ""
    return ("shared" if any(name.startswith("libstdc++.so") for name in made["needed"]) else ""), ""


def _one(path: str) -> dict[str, Any]:
    """What is to say of the compiler at ``path``."""
    try:
        with open(path, "rb") as file:
            script = file.read(2) == b"#!"
    except OSError:
        script = False
    code, said = _told([path, "--version"], 20)
    version = said.splitlines()[0][:_SAID] if said and not code else ""
    links, error = _linked(path)
    return {"path": path, "version": version, "script": script, "links": links, "error": error}


def _others(first: str) -> list[str]:
    """Other compilers where one would look for them, each once."""
    known = {os.path.realpath(first)}
    found = []
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), "/usr/bin"]:
        for name in ("g++", "c++"):
            path = shutil.which(name, path=folder) if folder else None
            if path and os.path.realpath(path) not in known:
                known.add(os.path.realpath(path))
                found.append(path)
    return found[:_OTHERS]


def observe() -> dict[str, Any]:
    """The compiler that inductor would take ($CXX, else g++: torch/_inductor/config.py, ``cpp.cxx``) and others.

    The others are looked at only where the first does not link libstdc++ shared.
    """
    name = os.environ.get("CXX") or "g++"
    first = shutil.which(name)
    if not first:
        return observed([], f"{name} is not in PATH")
    seen = [_one(first)]
    if seen[0]["links"] != "shared":
        seen.extend(_one(path) for path in _others(first))
    return observed(seen, f"$CXX is {name}" if os.environ.get("CXX") else "g++ in PATH, for $CXX is not set")
