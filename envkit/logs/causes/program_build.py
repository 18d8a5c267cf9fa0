"""Packages, compilers and tests that have no GPU in them, and crashes of the process itself."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, OPEN, Says, gpu_roots, stated
from envkit.logs.records import Hypothesis, Strength
from envkit.logs.story import Story

TABLE = {
    "program-pip-no-match": Says(
        "version-mismatch", "the index has no release of {name} for this Python and this machine", Strength.LIKELY
    ),
    "program-pip-python": Says("version-mismatch", "{name} wants another Python than the one here"),
    "program-pip-conflict": Says("version-mismatch", "no set of releases satisfies all that is asked for: {name}"),
    "program-pip-managed": Says("container-config", "this Python is the distribution's, and pip may not change it"),
    "program-conda-missing": Says("launch-config", "the channels have no such package: {text}"),
    "program-header-missing": Says("container-config", "the header {path} is not installed here"),
    "program-linker-missing": Says("container-config", "the library {lib} is not installed here"),
    "program-linker-undefined": Says("program-bug", "no library that is linked has {symbol}"),
    "program-compiler-crashed": Says("program-bug", "the compiler itself broke ({what})"),
    "program-pytest": Says("program-bug", "a test failed: {text}", Strength.POSSIBLE),
    "program-pytest-error": Says("program-bug", "a test module broke: {text}", Strength.POSSIBLE),
    "program-unittest": Says("program-bug", "a test failed: {text}", Strength.POSSIBLE),
    "program-openmp-twice": Says(
        "library-path-clash",
        "two OpenMP runtimes meet in one process: {other} was there, and {lib} came with another package",
        decide_by="which packages bring each of them (pip, conda)?",
        fix="take the packages from one source, so that one OpenMP runtime is loaded",
    ),
    "program-npm": Says("program-bug", "npm failed ({what})", Strength.POSSIBLE),
    "program-segmentation-library": Says("program-bug", "process {pid} ({name}) crashed inside {lib}"),
    "program-loader-crashed": Says("program-bug", "worker {pid} of the DataLoader died of: {signal}"),
    "program-fault-interpreter": Says("container-config", "Python could not start or go on ({what})"),
}
_DRIVER = ("libcuda", "libnvidia", "libnccl", "libcud", "libcublas")


def builds_and_tests(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Package indexes, compilers and tests whose lines name nothing of the GPU stack."""
    yield from stated(story, TABLE)


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
