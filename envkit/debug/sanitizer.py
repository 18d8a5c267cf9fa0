"""compute-sanitizer: its command line, and its log as records.

The form of the log is that of NVIDIA's Compute Sanitizer documentation, whose releases differ in small things: a place
is "at kernel(int *)+0x60 in file.cu:6" or, in older ones, "at 0x60 in file.cu:6:kernel(int *)"; an address is "Address
0x.. is", "Access at 0x.. is" or "Access to 0x.. is"; sizes have separators of thousands or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from envkit.debug.records import Allocation, CodeLocation, Fault, PythonFrame

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
MOST = 200  # different faults that are kept
_PRINT = 200  # errors that the tool prints; the first is the one that counts
_PADDING = 64  # bytes behind each allocation, so that one beyond its end is in nobody's
_LONGEST = 20000  # characters of a line that are read: a template's name can have thousands

_PREFIX = re.compile(r"^={5,} ?")
_NEWER = re.compile(r"^(?P<function>\S.{0,8000}?)\+0x[0-9a-f]+(?: in (?P<file>\S.{0,4000}?):(?P<line>\d+))?$")
_OLDER = re.compile(r"^0x[0-9a-f]+ in (?:(?P<file>[^:\s][^:]{0,4000}):(?P<line>\d+):)?(?P<function>\S.{0,8000})$")
_INVALID = re.compile(r"^Invalid (?P<space>\S+) (?P<access>\w+)(?: of size (?P<size>[\d,]+))?")
_UNSET = re.compile(r"^Uninitialized (?P<space>\S+) (?:memory )?(?P<access>read|write)(?: of size (?P<size>[\d,]+))?")
_RACE = re.compile(r"^(?P<level>Error|Warning): Race reported between (?P<access>\w+) access at (?P<at>.+)$", re.I)
_AND = re.compile(r"^and (?P<access>\w+) access at (?P<at>.+?)(?: \[(?P<count>[\d,]+) hazards?\])?$")
_HAZARD = re.compile(r"^(?P<level>Error|Warning|ERROR|WARNING): Potential (?P<what>W..) hazard detected")
_BARRIER = re.compile(r"^(?:Barrier error detected|Divergent thread|Cuda::barrier|Invalid arguments)", re.I)
_THREAD = re.compile(r"\bthread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
_ADDRESS = re.compile(r"^(?:Address|Access (?:at|to)) 0x(?P<address>[0-9a-f]+)(?: is (?P<problem>.+?))?\.?$")
_NEAR = re.compile(
    r"^and is (?:(?P<distance>[\d,]+) bytes? (?P<side>before|after)|(?P<inside>inside)) the nearest allocation at "
    r"0x(?P<address>[0-9a-f]+)(?: of size (?P<size>[\d,]+))?"
)
_DEVICE = re.compile(r"^Device Frame: ?(?P<at>.+)$")
_HOST = re.compile(r"^Host Frame: ?(?P<text>.+)$")
_PYTHON = re.compile(r"^(?P<function>\S.{0,300}?) in (?P<file>\S.{0,2000}?\.py):(?P<line>\d+)\b")
_SUMMARY = re.compile(
    r"^(?:ERROR SUMMARY: ([\d,]+) error|RACECHECK SUMMARY: [\d,]+ hazards? displayed \(([\d,]+) error)"
)
_OWN = re.compile(r"^(?:Internal Sanitizer Error|(?:Error|ERROR): (?!Race |Potential )|Device not supported)")
# Headers of CUDA where the toolkit and NVIDIA's wheels install them.
_TOOLKIT = re.compile(r"/targets/[^/]+/include/|/nvidia/\w+/include/|/usr/include/crt/")
# Kernels of frameworks and libraries: initcheck and racecheck tell of them what their authors know to be harmless.
_LIBRARY = re.compile(
    r"\bat::|\bc10::|\bcub::|\bCUB_\d+|\bthrust::|\bTHRUST_\d+|\bcutlass|\bcudnn|\bcublas|\bcusparse|\bcufft|\bcusolver"
    r"|\bnccl|\bgemm|\bsplitK|\bdistribution_|^(?:sm\d+_|ampere_|hopper_|volta_|nvjet_)"
)


def command(path: str, tool: str, argv: Sequence[str], log: str, kernels: Sequence[str] = ()) -> tuple[str, ...]:
    """``argv`` under a tool of the compute-sanitizer at ``path``, whose report goes to ``log``.

    The command's exit code is kept.  ``kernels`` narrows what is checked to kernels whose mangled names hold one of
    these texts.
    """
    words = [path, "--tool", tool, "--target-processes", "all", "--launch-timeout", "0", "--log-file", log]
    words += ["--strip-paths", "no", "--print-limit", str(_PRINT), "--require-cuda-init", "no"]
    if tool == "memcheck":
        # Libraries ask for what a GPU may not have; a call that matters shows in the program itself.
        words += ["--report-api-errors", "no", "--padding", str(_PADDING)]
    for kernel in kernels:
        words += ["--kernel-name", f"kernel_substring={kernel}"]
    return (*words, *argv)


def trouble(text: str) -> str:
    """Why a log says nothing about the program: the tool's own failure, or that it came to no end; empty if it does."""
    lines = list(_lines(text))
    own = [line.strip() for line in lines if _OWN.match(line)]
    counted = [match for match in map(_SUMMARY.match, lines) if match]
    telling = [line for line in own if "Target application terminated before" not in line]
    if any("Target application terminated before" in line for line in own):
        return "the command ended before its first CUDA call"
    if not counted:
        return own[0] if own else "compute-sanitizer came to no summary"
    if not sum(_number(match[1] or match[2]) for match in counted) and telling:
        return telling[0]
    return ""


def faults(text: str, tool: str) -> tuple[Fault, ...]:
    """What a log tells of kernels, in its order, equal places counted once; harmless habits of libraries left out of
    what is ``sure``."""
    found: dict[tuple[str, str, str, str], Fault] = {}
    for head, rest in _blocks(text):
        fault = _fault(head, rest, tool)
        if fault is None:
            continue
        key = (fault.problem, fault.kernel, fault.place.where, fault.other.where if fault.other else "")
        if key in found:
            found[key] = replace(found[key], count=found[key].count + fault.count)
        elif len(found) < MOST:
            found[key] = fault
    return tuple(found.values())


def worst(found: Sequence[Fault]) -> Fault | None:
    """The fault that counts: the first that is sure, of these one with a source line before one without."""
    sure = [fault for fault in found if fault.sure]
    return next((fault for fault in sure if fault.place.file), sure[0] if sure else None)


def _number(text: str | None) -> int:
    return int((text or "0").replace(",", ""))


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        match = _PREFIX.match(line[:_LONGEST])
        if match:
            yield line[match.end() : _LONGEST].rstrip()


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each line that stands at the margin, with the indented ones below it."""
    head, rest = "", list[str]()
    for line in _lines(text):
        if line.startswith(" "):
            rest.append(line.strip())
            continue
        if head:
            yield head, rest
        head, rest = line, []
    if head:
        yield head, rest


def _place(text: str) -> CodeLocation | None:
    found = _OLDER.match(text) or _NEWER.match(text)
    if not found:
        return None
    return CodeLocation(found["function"].strip(), found["file"] or "", int(found["line"] or 0))


def _fault(head: str, rest: list[str], tool: str) -> Fault | None:
    invalid, unset = _INVALID.match(head), _UNSET.match(head)
    race, hazard = _RACE.match(head), _HAZARD.match(head)
    if race:
        return _race(head, rest, race)
    if hazard:
        return _hazard(head, rest, hazard)
    what = invalid or unset
    if not what and not _BARRIER.match(head):
        return None
    places = [place for line in rest if line.startswith("at ") and (place := _place(line[3:]))]
    if not places:
        return None
    problem = "uninitialized" if unset else "barrier" if not invalid else "other"
    fault = Fault(tool, head, problem, "", places[0])
    if what:
        fault = replace(fault, access=what["access"], size=_number(what["size"]))
    for line in rest:
        address, near, thread = _ADDRESS.match(line), _NEAR.match(line), _THREAD.search(line)
        if thread and line.startswith("by "):
            x, y, z, u, v, w = (int(each) for each in thread.groups())
            fault = replace(fault, thread=(x, y, z), block=(u, v, w))
        elif address:
            fault = replace(fault, address=int(address["address"], 16))
            if invalid:
                said = address["problem"] or ""
                kind = "misaligned" if "misaligned" in said else "out of bounds" if "out of bounds" in said else "other"
                fault = replace(fault, problem=kind)
        elif near:
            side = near["side"] or "inside"
            lies = Allocation(int(near["address"], 16), _number(near["size"]), side, _number(near["distance"]))
            fault = replace(fault, near=lies)
    return _framed(fault, rest)


def _framed(fault: Fault, rest: list[str]) -> Fault:
    """The fault with what the frames tell: the outermost function of the device is the kernel, and the line is the
    innermost outside of CUDA's own headers, whose atomics are inlined into the line that calls them."""
    device = [place for line in rest if (frame := _DEVICE.match(line)) and (place := _place(frame["at"]))]
    host = [frame["text"] for line in rest if (frame := _HOST.match(line))]
    python = [
        PythonFrame(found["file"], int(found["line"]), found["function"])
        for text in host
        if (found := _PYTHON.match(text))
    ]
    own = next((place for place in (fault.place, *device) if place.file and not _TOOLKIT.search(place.file)), None)
    kernel = device[-1].function if device else fault.place.function
    sure = fault.sure and not (fault.tool in ("initcheck", "racecheck") and bool(_LIBRARY.search(kernel)))
    fault = replace(fault, place=own or fault.place, kernel=kernel, sure=sure)
    return replace(fault, python=tuple(python[::-1]), host=tuple(host[:40]))


def _race(head: str, rest: list[str], race: re.Match[str]) -> Fault | None:
    place = _place(race["at"])
    if not place:
        return None
    others = [(found, _place(found["at"])) for line in rest if (found := _AND.match(line))]
    # A statement that reads and writes is told as a race with itself, beside those with other statements.
    second = next(((found, other) for found, other in others if other), None)
    fault = Fault("racecheck", head.partition(" at ")[0], "race", "", place, access=race["access"].lower())
    fault = replace(fault, sure=race["level"].lower() == "error")
    if second:
        found, other = second
        kind = f"{head.partition(' access at ')[0]} access and {found['access']} access"
        fault = replace(fault, kind=kind, other=other, count=max(1, _number(found["count"])))
    return _framed(fault, rest)


def _hazard(head: str, rest: list[str], hazard: re.Match[str]) -> Fault | None:
    """A hazard as the mode "hazard" and older releases print it: one line for each of the two threads."""
    places = []
    for line in rest:
        found = re.match(r"^(Read|Write) Thread \((\d+),(\d+),(\d+)\) at (.+)$", line)
        place = _place(found[5]) if found else None
        if found and place:
            places.append((found[1].lower(), (int(found[2]), int(found[3]), int(found[4])), place))
    if not places:
        return None
    access, thread, place = places[0]
    other = places[1][2] if len(places) > 1 else None
    sure = hazard["level"].lower() == "error"
    fault = Fault("racecheck", head, "race", "", place, access=access, thread=thread, other=other, sure=sure)
    return _framed(fault, rest)
