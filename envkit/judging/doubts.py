"""What a doubt of a check is worth: the severity of the worst finding that its answer could be.

A doubt makes a verdict undecided only where its answer could have changed it: under ``--fail-on error`` nothing that
is a warning at most can, for the exit code is the same whichever way it goes.  The doubt is shown all the same.  A
check that is not here may end in an error; one whose severity depends on the file says so where it raises Unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from envkit.model import Outcome, Result, Severity
from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst finding of a check, and why silence about its doubt harms nobody whom an error would stop."""

    severity: Severity
    why: str


WORST: Mapping[str, Worst] = {
    "cpu-torch-in-cuda-image": Worst(
        Severity.WARNING, "the image works without GPUs, and torch.cuda.is_available() says so at its first use"
    ),
    "duplicate-cuda": Worst(Severity.WARNING, "a second CUDA costs room, and each of the two is whole"),
    "missing-nvidia-env": Worst(
        Severity.WARNING, "what lacks is a request to the container toolkit, which the command line of a run can make"
    ),
    "runtime-cannot-jit": Worst(
        Severity.WARNING, "only a use that compiles needs the compiler, and its error names what lacks"
    ),
    "torch-cuda-vs-base-mismatch-minor": Worst(
        Severity.WARNING, "releases of one major are compatible, and torch brings its own libraries"
    ),
    "torch-installed-twice": Worst(
        Severity.WARNING, "the torch of the last install is whole; what is lost is the room and time of the first"
    ),
    "unpinned-torch": Worst(
        Severity.WARNING, "today's build is whole; what is open is whether the next one gets the same torch"
    ),
}


def worst(check: str) -> Severity:
    """The severity of the worst finding of a check, as far as its id tells."""
    row = WORST.get(check)
    return row.severity if row else Severity.ERROR


def once(results: Sequence[Result]) -> tuple[Result, ...]:
    """The results with one doubt for each file that was not read: that of the check which could find the worst.

    The other checks are skipped, and name it.
    """
    kept: dict[str, Result] = {}
    for result in results:
        if result.outcome is Outcome.UNKNOWN and result.about:
            kept[result.about] = max(kept.get(result.about, result), result, key=lambda one: one.at_most)
    return tuple(_under(result, kept.get(result.about)) for result in results)


def _under(result: Result, first: Result | None) -> Result:
    if first is None or result is first or result.outcome is not Outcome.UNKNOWN:
        return result
    return Result(result.check, Outcome.SKIP, reason=f"{result.about} was not read: {first.check} has the doubt")


def every(results: Sequence[Result]) -> tuple[Result, ...]:
    """The results with each doubt worth an error, as ``--strict`` asks."""
    return tuple(replace(one, at_most=Severity.ERROR) if one.outcome is Outcome.UNKNOWN else one for one in results)
