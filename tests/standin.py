"""NVML without a GPU: the stand-in library of ``faults/nvml.c``, asked by the real reader in a process of its own.

Run as a program it writes what the reader finds on the healthy machines into ``data/machine``.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machines import DATA

FAULTS = Path(__file__).parent / "faults"
PROFILES = FAULTS / "nvml"
MACHINES = {"h100": "h100", "desk": "rtx4090", "bare": None}  # the profile of each, None for a machine without NVML
_ROOT = Path(__file__).parent.parent
_CHILD = """
import json, os, sys
from pathlib import Path
from envkit.host import nvml
from envkit.host.observe import Group, read_groups
from envkit.host.root import HostRoot
from envkit.subjects.codec import to_plain

for line in sys.stdin:
    root, profiles, limit = json.loads(line)
    os.environ["STANDIN_NVML_PROFILE"] = profiles
    group = Group("NVML", lambda place: nvml.SOURCES, limit, None, nvml.join)
    found = read_groups((group,), HostRoot(Path(root), {}), 60.0)
    print(json.dumps(to_plain(found["nvml"])), flush=True)
"""


@functools.cache
def _built() -> tempfile.TemporaryDirectory[str] | None:
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder = tempfile.TemporaryDirectory(prefix="nvml-")
    library = str(Path(folder.name) / "libnvidia-ml.so.1")
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", library, str(FAULTS / "nvml.c")], check=True)
    return folder


def library() -> Path | None:
    """The folder of the stand-in, built once; None where there is no C compiler."""
    folder = _built()
    return None if folder is None else Path(folder.name)


@functools.cache
def _asker(folder: Path) -> subprocess.Popen[str]:
    """A process that finds the library in ``folder``; each conversation is in a fork of it, as the product's are."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.communicate)
    return process


def ask(folder: Path, profiles: Sequence[Path], root: Path = Path("/"), limit_s: float = 20.0) -> Any:
    """What the reader makes of the library in ``folder`` with ``profiles``, as plain data of Observed[Nvml].

    ``root`` is where /proc is taken from.
    """
    process = _asker(folder)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([str(root), ":".join(str(path) for path in profiles), limit_s]) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def machine(name: str, folder: Path, scratch: Path) -> str:
    """The text of ``data/machine/<name>/nvml.json``."""
    profile = MACHINES[name]
    comm = scratch / "proc/2101/comm"  # the only process that a healthy machine's GPUs have
    comm.parent.mkdir(parents=True, exist_ok=True)
    comm.write_text("Xorg\n")
    if profile is None:
        folder = scratch / "no library"
        folder.mkdir(exist_ok=True)
        (folder / "libnvidia-ml.so.1").write_text("no ELF file")
    seen = ask(folder, [PROFILES / f"{profile}.profile"] if profile else [], scratch)
    return json.dumps({"nvml": seen}, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    built = library()
    if built is None:
        sys.exit("there is no C compiler")
    with tempfile.TemporaryDirectory() as scratch:
        for name in MACHINES:
            (DATA / name / "nvml.json").write_text(machine(name, built, Path(scratch)), encoding="utf-8")
