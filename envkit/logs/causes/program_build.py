"""Packages, compilers and tests that have no GPU in them, and crashes of the process itself."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, OPEN, gpu_roots, stated
from envkit.logs.records import Hypothesis, Strength
from envkit.logs.story import Story

_DRIVER = ("libcuda", "libnvidia", "libnccl", "libcud", "libcublas")


def builds_and_tests(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Package indexes, compilers and tests whose lines name nothing of the GPU stack."""
    yield from stated(story, "build")


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
