"""CUDA core dumps: the environment that has the driver write them, and what cuda-gdb says of one.

NVIDIA, CUDA-GDB documentation, "GPU core dump support".  The driver writes the dump when a kernel faults and then ends
the process with SIGABRT.  Without the memory it is small: 3 MB in the place of 2.2 GB beside a tensor of 2 GiB, by
driver 580, which takes what to leave out by name, and nothing of the older variable for that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from envkit.debug.records import CodeLocation, Fault

# Behind a kernel's name come its parameters' types, its launch in <<< >>>, and then the values, which are not there.
_FUNCTION = re.compile(
    r"^#0\s+(?:0x[0-9a-f]+ in )?(?P<function>[^\n]{1,8000}?)"
    r"(?:\s*<<<[^\n]*?>>>\s*\([^\n]*?\)|\s*\((?:(?!<<<)[^\n])*?\))"
    r"(?: at (?P<file>[^\n]+?):(?P<line>\d+))?\s*$",
    re.M,
)
_EXCEPTION = re.compile(r"^CUDA Exception: (?P<kind>[^\n]{1,200})$", re.M)
_ASSERTION = re.compile(r"^Assertion failed\.$", re.M)  # in the place of the line for an exception
_PC = re.compile(
    r"^The exception was triggered at PC 0x[0-9a-f]+[^\n]*?(?:\((?P<file>[^()\n]+):(?P<line>\d+)\))?\s*$", re.M
)
_FOCUS = re.compile(
    r"\[(?:Current focus set to|Switching focus to) CUDA kernel \d+, grid \d+, block \((\d+),(\d+),(\d+)\), "
    r"thread \((\d+),(\d+),(\d+)\)"
)
_LEFT_OUT = ("nonrelocated_elf_images", "global_memory", "shared_memory", "local_memory", "constbank_memory", "abort")
_PROBLEMS = {
    "misaligned": "misaligned",
    "illegal address": "out of bounds",
    "out-of-range": "out of bounds",
    "assert": "assert",
}


def environ(stem: str) -> Mapping[str, str]:
    """What has the driver write a small dump to ``stem`` followed by the process's number."""
    return {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1",
        "CUDA_COREDUMP_GENERATION_FLAGS": ",".join(f"skip_{part}" for part in _LEFT_OUT),
        "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION": "0",
        "CUDA_COREDUMP_SHOW_PROGRESS": "1",
        "CUDA_COREDUMP_FILE": f"{stem}%p",
    }


def at_a_look(stem: str, pipe: str, after_s: float, argv: Sequence[str]) -> tuple[str, ...]:
    """A command line that has the driver write a dump of what the GPU is in after some seconds, by a pipe that the
    driver makes and reads."""
    asked = {**environ(stem), "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1", "CUDA_COREDUMP_PIPE": pipe}
    looks = '(sleep "$2"; [ -p "$1" ] && echo > "$1") & shift 2; exec "$@"'
    named = (f"{name}={value}" for name, value in asked.items())
    return ("env", *named, "sh", "-c", looks, "sh", pipe, f"{after_s:.0f}", *argv)


def command(path: str, core: str) -> tuple[str, ...]:
    """The cuda-gdb at ``path`` on a dump: it prints the exception, the kernels and the stack, and ends."""
    asked = ("set pagination off", f"target cudacore {core}", "info cuda kernels", "bt 8")
    return (path, "-nx", "--batch", *(word for line in asked for word in ("-ex", line)))


def read(text: str) -> Fault | None:
    """The fault that cuda-gdb's words tell; None if they tell of no kernel."""
    focus, frame, exception = _FOCUS.search(text), _FUNCTION.search(text), _EXCEPTION.search(text)
    if not frame or not (focus or exception):
        return None
    at = _PC.search(text)
    kind = "Warp Assert" if _ASSERTION.search(text) else "CUDA exception"
    kind = exception["kind"].strip() if exception else kind
    problem = next((name for word, name in _PROBLEMS.items() if word in kind.lower()), "other")
    file, line = (at["file"], at["line"]) if at and at["file"] else (frame["file"], frame["line"])
    if (frame["file"] or "").endswith(f"/{file}"):  # the exception's line comes with the last part of its path alone
        file = frame["file"]
    kernel = frame["function"].strip()
    fault = Fault("core", kind, problem, kernel, CodeLocation(kernel, file or "", int(line or 0)))
    if not focus:
        return fault
    u, v, w, x, y, z = (int(each) for each in focus.groups())
    return Fault(fault.tool, kind, problem, fault.kernel, fault.place, thread=(x, y, z), block=(u, v, w))
