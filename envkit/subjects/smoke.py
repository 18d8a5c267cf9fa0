"""A run of the smoke suite, as observed: numbers and deaths, no opinion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.payload.smoke.case import LEVELS
from envkit.payload.smoke.sanitize import TOOLS
from envkit.records import dataclass
from envkit.subjects.recorded import Recorded

# How a piece of work in a process of its own ended; SmokeTest says what each means.
Ended = Literal["ran", "raised", "cuda", "memory", "killed", "hung", "not-applicable", "garbled"]


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """One test in its own process, on one device, under at most one injected fault.

    ``ended`` is "ran" (it returned its measures), "raised" (a Python exception), "cuda" (a CUDA error; ``cuda`` is its
    number and name, as "700 cudaErrorIllegalAddress"), "memory" (the GPU's memory did not suffice), "killed" (by a
    signal), "hung" (its budget ran out), "not-applicable" (this machine lacks what it needs; ``detail`` says what) or
    "garbled" (it ended without its document).  ``device`` is "cpu", "cuda:N" or "gpus" (several at once).
    ``measures`` are its numbers by name; a measure that is not a finite number travels as the text "nan", "inf" or
    "-inf".  ``limits`` are those of a test from outside the suite.  ``rounds``: how often it ran; ``measures`` are then
    the worst of all rounds.
    """

    name: str
    device: str
    ended: Ended
    detail: str = ""
    signal: str = ""
    cuda: str = ""
    injected_fault: str = ""
    rounds: int = 1
    limits: Mapping[str, float] = field(default_factory=dict)
    measures: Mapping[str, float | str] = field(default_factory=dict)
    seconds: float = 0.0
    stderr_tail: str = ""


@dataclass(frozen=True, slots=True)
class SmokeRun(Recorded):
    """All tests of one run; ``tests`` is lost, with the reason, when not even the runner came up.

    ``cuda_before_fork`` says whether importing torch alone had initialised CUDA; ``import_s`` how long the import took;
    ``parent_kb`` the most memory that the process held from which the tests are forked.

    Known outside the image: ``injected_fault`` names the fault that was injected on purpose ("all" for every
    test's own), and is empty in every run that says something about an image; ``sanitize`` the tool of
    compute-sanitizer that the tests ran under.  ``level`` and ``only``, the tests that were asked for (empty for all
    of the level), less ``exclude``; ``gpus_given`` the GPUs that the
    run was given ("all" or one name each), empty where it got none; ``torch_promised`` the torch that the image was
    built to hold, empty where it promises none; ``gpus_promised`` the architectures, as "sm_90", of the GPUs that it
    was built for.  ``suite`` says which tests the suite had (``SUITE`` of the payload): the first ones where a document
    does not say it.  ``engine`` is the engine that ran it, empty without one.
    """

    name: str
    digest: str = ""
    python: Observed[str] = field(default_factory=Observed)
    torch: Observed[str] = field(default_factory=Observed)
    gpus: Observed[tuple[str, ...]] = field(default_factory=Observed)
    cuda_before_fork: Observed[bool] = field(default_factory=Observed)
    tests: Observed[tuple[SmokeTest, ...]] = field(default_factory=Observed)
    import_s: Observed[float] = field(default_factory=Observed)
    parent_kb: Observed[int] = field(default_factory=Observed)
    injected_fault: str = ""
    seconds: float = 0.0
    level: str = "quick"
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sanitize: str = ""
    gpus_given: tuple[str, ...] = ()
    torch_promised: str = ""
    gpus_promised: tuple[str, ...] = ()
    suite: int = 1
    engine: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a level or a tool that does not exist: which tests were asked for is then not known."""
        tools = ("", *TOOLS)
        for what, name, known in (("level", self.level, LEVELS), ("tool of compute-sanitizer", self.sanitize, tools)):
            if name not in known:
                raise ValueError(f"there is no {what} `{name[:40]}`")
