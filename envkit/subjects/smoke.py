"""A run of the smoke suite, as observed: numbers and deaths, no opinion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envkit.model import Observed


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """One test in its own process.

    ``ended`` is "ran" (it returned its measures), "raised" (a Python exception), "killed" (by a signal),
    "hung" (its budget ran out), "unfit" (this machine lacks what it needs; ``detail`` says what) or "garbled"
    (it ended without its document).  ``device`` is "cpu" or "cuda:N".  ``measures`` are its numbers by name; a
    measure that is not a finite number travels as the text "nan", "inf" or "-inf".
    """

    name: str
    device: str
    ended: str
    detail: str = ""
    signal: str = ""
    measures: Mapping[str, float | str] = field(default_factory=dict)
    seconds: float = 0.0
    stderr_tail: str = ""


@dataclass(frozen=True, slots=True)
class SmokeRun:
    """All tests of one run; ``tests`` is lost, with the reason, when not even the runner came up.

    ``cuda_before_fork`` says whether importing torch alone had initialised CUDA.  ``sabotage`` names the saboteur
    that disturbed the results on purpose; it is empty in every run that says something about an image.

    Known outside the image: ``only`` are the tests that were asked for, empty for all; ``gpus_given`` the GPUs that the
    run was given ("all" or one name each), empty where it got none; ``torch_promised`` the torch that the image was
    built to hold, empty where it promises none; ``gpus_promised`` the architectures, as "sm_90", of the GPUs that it
    was built for.
    """

    name: str
    digest: str = ""
    python: Observed[str] = field(default_factory=Observed)
    torch: Observed[str] = field(default_factory=Observed)
    gpus: Observed[tuple[str, ...]] = field(default_factory=Observed)
    cuda_before_fork: Observed[bool] = field(default_factory=Observed)
    tests: Observed[tuple[SmokeTest, ...]] = field(default_factory=Observed)
    sabotage: str = ""
    seconds: float = 0.0
    only: tuple[str, ...] = ()
    gpus_given: tuple[str, ...] = ()
    torch_promised: str = ""
    gpus_promised: tuple[str, ...] = ()
