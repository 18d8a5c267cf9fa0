"""What the runner must know of a test before it runs: where, when, beside what, and what it must go red under."""

from __future__ import annotations

from typing import NamedTuple

LEVELS = ("quick", "full", "stress")
GENERIC = ("ulp", "one", "nan", "scale", "block")  # done to any result that is compared, by the bench
CLOSE = ("ulp", "nan", "scale", "block")  # those of them for a result that is near the right one
OWN = ("order", "device", "fault")  # done by the test itself
FAULT_KINDS = (*GENERIC, *OWN)
SUITE = 2  # what a test that joins a level is ``since``: a run of an earlier suite was not asked for it
GPUS = "gpus"  # the device that a test of several GPUs names


class Case(NamedTuple):
    """One test.

    ``cpu``: it means something without a GPU.  ``gpu``: it runs on each GPU.  ``several``: it runs once over at least
    that many GPUs.  ``start``: "fork" from the parent with torch, "fresh" (a new interpreter), "bare" (forked from a
    parent without torch).  ``level``: the lowest level that has it.  ``builds``: it waits for compilers more than it
    computes, so it runs beside the other tests of its device.  ``beside``: it too, for it computes on the processor
    rather than there, but never while a test has its device alone.  ``alone``: nothing else runs on its device then.
    ``faults``: under each of these it must go red.  ``needs``: tests whose fault explains its own.  ``seconds``:
    its budget.  ``sanitize``: the tools of compute-sanitizer that it is fit to run under.  ``stress``: it loads a GPU,
    and is repeated at the level "stress" whatever its own.  ``since``: the first suite that has it at its level.
    """

    name: str
    cpu: bool = True
    gpu: bool = True
    several: int = 0
    start: str = "fork"
    level: str = "quick"
    builds: bool = False
    beside: bool = False
    alone: bool = False
    faults: tuple[str, ...] = ("ulp", "nan")
    needs: tuple[str, ...] = ()
    seconds: float = 60.0
    sanitize: tuple[str, ...] = ()
    stress: bool = False
    group: str = ""
    since: int = 1

    @property
    def module(self) -> str:
        """The module that holds its ``run``."""
        return f"envkit.payload.smoke.{self.group}.{self.name.replace('-', '_')}"


def devices(case: Case, gpus: int) -> tuple[str, ...]:
    """Where ``case`` must come to an end on a machine with ``gpus`` GPUs.

    Where there is a GPU, what can run on it runs there and nowhere else.  "cuda" and "gpus" stand for GPUs that are
    not there: such a test ends as not applicable.
    """
    if case.several:
        return (GPUS,)
    if case.gpu and gpus:
        return tuple(f"cuda:{index}" for index in range(gpus))
    return ("cpu",) if case.cpu else ("cuda",)


def chosen(
    cases: tuple[Case, ...],
    level: str,
    only: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    suite: int = SUITE,
) -> tuple[Case, ...]:
    """The tests of a run: those of ``level`` that ``suite`` has, or the named ones, less the excluded.

    The level "full" holds "quick"; "stress" holds what loads a GPU, of any level.
    """
    levels = LEVELS[: LEVELS.index(level) + 1]
    if only:
        taken = [case for case in cases if case.name in only]
    elif level == "stress":
        taken = [case for case in cases if case.stress or case.level == "stress"]
    else:
        taken = [case for case in cases if case.level in levels]
    known = (case for case in taken if case.since <= suite or only)
    return tuple(case for case in known if case.name not in exclude)
