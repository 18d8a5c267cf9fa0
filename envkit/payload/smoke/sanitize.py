"""compute-sanitizer around a program: its command line, and what its log amounts to.

The log's form is that of the tool's manual (NVIDIA, Compute Sanitizer User Manual): lines that begin with "=========",
one line for what was found, below it the place, at the end a summary.  Two spellings of a place are in use:
"at kernel(int *)+0x60 in file.cu:6" and, in older releases, "at 0x60 in file.cu:6:kernel(int*)".
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
from typing import NamedTuple

from envkit.payload.isolate import NotApplicable

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_LINE = re.compile(r"^={5,} ?(.*)$")
_SUMMARY = re.compile(r"^ERROR SUMMARY: (\d+) errors?|^RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?")
# the tool's own
_OWN = re.compile(r"^(?:Internal Sanitizer Error|(?:Error|ERROR): (?!Race |Potential )|Device not supported)")
_SILENT = re.compile(
    r"^(?:COMPUTE-SANITIZER|Variable environment |[A-Z]+ SUMMARY:|Target application returned|Program hit )"
)
_NEWER = re.compile(r"\bat ([A-Za-z_][^+]*)\+0x[0-9a-f]+(?: in (\S.*?:\d+))?(?= |$)")
_OLDER = re.compile(r"\bat 0x[0-9a-f]+ in (?:(\S+?:\d+):)?([A-Za-z_][^\[]*)")


class Report(NamedTuple):
    """What the tool found: how many errors, and of the first "kind: kernel at file:line"; ``raw`` is the log."""

    errors: int
    first: str
    raw: str


def found(name: str) -> str:
    """The path of a CUDA tool in PATH, a toolkit, the folders of NVIDIA's own packages or the wheels; empty if none."""
    folders = []
    roots = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    for root in [*filter(None, roots), *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]:
        folders += [os.path.join(root, "bin"), os.path.join(root, "compute-sanitizer")]
    folders += sorted(glob.glob("/opt/nvidia/nsight-*/*"), reverse=True)
    folders += sorted(glob.glob("/opt/nvidia/nsight-*/*/bin"), reverse=True)
    for entry in sys.path:
        for below in ("bin", "compute-sanitizer"):
            folders += sorted(glob.glob(os.path.join(glob.escape(entry or "."), "nvidia", "*", below)), reverse=True)
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders)) or ""


def command(tool: str, argv: tuple[str, ...], log: str) -> tuple[str, ...]:
    """``argv`` under one of TOOLS, whose findings go to the file ``log``; the program's exit code is kept.

    Raises NotApplicable where compute-sanitizer is not found.
    """
    path = found("compute-sanitizer")
    if not path:
        raise NotApplicable("there is no compute-sanitizer in PATH, in a CUDA toolkit or among the wheels")
    words = ["--tool", tool, "--target-processes", "all", "--launch-timeout", "0", "--log-file", log]
    if tool == "memcheck":  # libraries ask for what a GPU may not have; a call that matters shows in the program itself
        words += ["--report-api-errors", "no"]
    return (path, *words, *argv)


def _place(text: str) -> str:
    """The kernel and the line in "... at ...", empty where there is none."""
    newer = _NEWER.search(text)
    if newer:
        kernel, where = newer.group(1), newer.group(2)
    else:
        older = _OLDER.search(text)
        if not older:
            return ""
        where, kernel = older.group(1), older.group(2)
    return kernel.strip() + (f" at {where}" if where else "")


def _first(lines: list[str]) -> str:
    for at, line in enumerate(lines):
        if not line or line[0] == " " or _SILENT.match(line) or _OWN.match(line):
            continue
        kind = re.split(r" at (?=0x|[A-Za-z_][^+]*\+0x)", line)[0].strip()
        kind = re.sub(r"^(?:Error|ERROR): ", "", kind)
        block = [line]
        for below in lines[at + 1 :]:
            if not below.startswith(" "):
                break
            block.append(below)
        place = next(filter(None, map(_place, block)), "")
        return kind + (f": {place}" if place else "")
    return ""


def read(text: str) -> Report:
    """What a log says.

    Raises ValueError, with the tool's own words, for a log without a summary, and for one that counts no error because
    the tool itself failed: neither says that a program is clean.
    """
    lines = [match.group(1).rstrip() for match in map(_LINE.match, text.splitlines()) if match]
    counts = [int(match.group(1) or match.group(2) or 0) for match in map(_SUMMARY.match, lines) if match]
    own = [line for line in lines if _OWN.match(line)]
    if not counts:
        said = own or [line.strip() for line in lines if line.strip()] or text.strip().splitlines()
        raise ValueError(f"compute-sanitizer came to no summary: {said[-1] if said else 'its log is empty'}")
    if not sum(counts) and own:
        raise ValueError(f"compute-sanitizer did not watch the program: {own[0]}")
    return Report(sum(counts), _first(lines) if sum(counts) else "", text)
