"""Packages, compilers and tests that have no GPU in them, and crashes of the process itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, OPEN, gpu_roots, shortened, stated
from envkit.logs.records import Hypothesis, Line, Strength
from envkit.logs.story import Story

_SHARED = re.compile(r"/dev/shm|shared_memory|SharedMemory|\bshm\b")
_SHM = "dataloader-shm-bus-error"
_SMALL_SHM = re.compile(r"^(?:tmpfs|shm|none)\s+(?P<size>[\d.]{1,12}[KM])\s.{0,80}\s/dev/shm$")  # of df -h
_BUS = re.compile(r"^Fatal Python error: Bus error")
_PASSES = re.compile(r"multiprocessing[\\/](?:resource_sharer|reduction|reductions|queues)\.py")
_CUT_OFF = re.compile(r"(?i)\btruncat(?:ed?|ing)\b|\b(?:cut off|shorter than|re-?wr(?:ote|itten)|shr(?:a|u)nk)\b")
_OF_TESTS = ("the test ", "a test failed: ", "the hook ", "a checker of sources ")
_AT = re.compile(
    r".{0,100}\bpanicked at \S{1,200}:\d{1,7}|\s{0,8}[\w./-]{1,200}\.\w{1,5}(?::\d{1,7}|\(\d{1,7}\))(?::\d{1,5})?: "
)
_XPASSED = "[XPASS(strict)]"
_INDENTED = "the lines that are indented below it"
_OTHER_RELEASE = re.compile(
    r"\bor (?:higher|newer|later|above|greater)\b.{0,40}\brequired\b|\brequires? .{0,80}\bversion\b"
)
_DRIVER = ("libcuda", "libnvidia", "libnccl", "libcud", "libcublas")


def builds_and_tests(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Package indexes, compilers and tests whose lines name nothing of the GPU stack."""
    for found in stated(story, "build"):
        below = _below(found.evidence[0], story) if found.decide_by == _INDENTED else None
        if below is not None:
            cause = "version-mismatch" if _OTHER_RELEASE.search(below.text) else found.cause
            why = f"{found.because}: {shortened(below.text)}"
            found = replace(found, cause=cause, because=why, evidence=(*found.evidence[:1], below))
        if found.because.startswith(_OF_TESTS) and (place := _place(found.evidence[0], story)) is not None:
            found = replace(found, evidence=(*found.evidence[:1], place))
        yield found


def passed_unexpectedly(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A test that passed and was to fail, which pytest tells as a failure by the reason why it was to (skipping.py)."""
    kept = {line.number: line for seen in story.files for line in seen.kept if line.text.startswith(_XPASSED)}
    if kept and not story.roots and not story.tracebacks:
        line = kept[min(kept)]
        why = f"a test passed that was to fail: {shortened(line.text)}"
        yield Hypothesis(INNOCENT, "program-bug", Strength.LIKELY, (line,), why, "what was mended since", over=(OPEN,))


def _place(line: Line, story: Story) -> Line | None:
    """The nearest line that names the place of a mistake in a file, as compilers and checkers write it."""
    kept = {each for seen in story.files if seen.name == line.file for each in (*seen.head, *seen.loud, *seen.tail)}
    places = [each for each in kept if _AT.match(each.text)]
    return min(places, key=lambda each: (abs(each.number - line.number), each.number), default=None)


def _below(line: Line, story: Story) -> Line | None:
    """The first line that is indented below one, where it is kept."""
    lines = {each.number: each for seen in story.files if seen.name == line.file for each in (*seen.head, *seen.tail)}
    after = lines.get(line.number + 1)
    return after if after is not None and after.body.startswith("  ") and after.text.strip() else None


def bus_error(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The shell's word for signal 7: most often a page of /dev/shm, or of a file that was cut off, that is not there.

    Source: mmap(2), SIGBUS; shm_overview(7).
    """
    for event in [each for each in story.roots if each.signature.id == "program-bus-shell"][:1]:
        lines = (line for seen in story.files for line in (*seen.head, *seen.loud, *seen.tail))
        shared = next((line for line in lines if _SHARED.search(line.text)), None)
        decide = "df -h /dev/shm while it runs, and whether a library or a file that it maps is cut off (ls -l, cmp)"
        if shared is not None:
            why = "the process met a bus error (signal 7) while it used shared memory, which is full"
            fix = "give the container more shared memory (docker run --shm-size=8g; an emptyDir of medium Memory)"
            yield Hypothesis(_SHM, "container-config", Strength.LIKELY, (event.line, shared), why, decide, fix)
            return
        cut = next((line for line in _before(event.line, story) if _CUT_OFF.search(line.text)), None)
        if cut is not None:
            why = f"the process met a bus error (signal 7), and a file that it maps was cut off: {shortened(cut.text)}"
            yield Hypothesis(INNOCENT, "corrupt-data", Strength.LIKELY, (event.line, cut), why, decide, over=(OPEN,))
            return
        why = "the process met a bus error (signal 7), which a full /dev/shm or a file that was cut off causes"
        yield Hypothesis(OPEN, "unknown-cut-log", Strength.POSSIBLE, (event.line,), why, decide)
        yield Hypothesis(INNOCENT, "container-config", Strength.FALLBACK, (event.line,), why, decide)


def _before(line: Line, story: Story) -> list[Line]:
    """The lines of the same file that are kept before one."""
    kept = {each.number: each for seen in story.files if seen.name == line.file for each in (*seen.head, *seen.tail)}
    return [kept[number] for number in sorted(kept) if number < line.number]


def peer_of_small_shared_memory(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A process that handed over tensors went away, and df shows a /dev/shm of kilobytes or megabytes.

    torch.multiprocessing keeps shared tensors there; who finds it full dies by a bus error (shm_overview(7)).
    """
    lines = (line for seen in story.files for line in (*seen.head, *seen.loud, *seen.tail))
    small = next((line for line in lines if _SMALL_SHM.match(line.text)), None)
    gone = [trace for trace in story.tracebacks if any(_PASSES.search(frame.file) for frame in trace.frames)]
    if small is None or not gone:
        return
    size = (_SMALL_SHM.match(small.text) or {"size": "few bytes"})["size"]
    why = f"a process that shares tensors went away, and /dev/shm has {size}"
    fix = "give the container more shared memory (docker run --shm-size=8g; an emptyDir of medium Memory)"
    decide = "df -h /dev/shm while it runs"
    died = next((event.line for event in story.events if _BUS.search(event.line.text)), gone[-1].line)
    yield Hypothesis(_SHM, "container-config", Strength.LIKELY, (died, small), why, decide, fix, over=(OPEN,))


def crash_without_a_word(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A segmentation fault of which only the shell or Python's fault handler speaks.

    faulthandler prints where Python was: that call entered the native code that crashed, which is worth quoting, but
    does not name the fault.
    """
    if gpu_roots(story) or story.of("program-segmentation-library"):
        return
    faults = story.of("program-fault-python")
    shell = [event for event in story.roots if event.signature.id == "program-segmentation-shell"]
    text = " ".join(line.text for seen in story.files for line in seen.loud)
    if any(name in text for name in _DRIVER):
        return
    decide = "the native stack of the crash (a core dump in gdb, or catchsegv), or the same with PYTHONFAULTHANDLER=1"
    if faults:
        where = next((trace for trace in story.tracebacks if trace.frames), None)
        at = f" while Python was in {where.frames[-1].function}" if where else ""
        why = f"Python's fault handler saw {faults[0].values['what'].lower()}{at}"
        yield Hypothesis(INNOCENT, "program-bug", Strength.FALLBACK, (faults[0].line,), why, decide)
        yield Hypothesis(OPEN, "unknown", Strength.FALLBACK, (faults[0].line,), why, decide)
    elif shell:
        why = "the process crashed in native code, and nothing says in which"
        yield Hypothesis(OPEN, "unknown-cut-log", Strength.POSSIBLE, (shell[0].line,), why, decide)
