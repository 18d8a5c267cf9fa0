"""``envkit preflight``: will this image, with this job's settings, run on this machine?  One verdict before the launch.

The levels follow one another, the cheap ones first, and a level that finds an error ends the run: ``passive`` looks at
files and at the driver's answers, ``probe`` starts the image and asks a process in it what it binds, ``quick`` and
``full`` run the smoke suite there.  In an image the last two start together, in a container each, for most of both is
waiting for imports; a fault that the probe finds ends the suite.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envkit import facts
from envkit.doctor import contracts
from envkit.engine import Engine, Say
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.facts import Facts
from envkit.host.observe import observe_host
from envkit.host.root import HostRoot
from envkit.judging import judge, required
from envkit.launch import launch
from envkit.model import Coverage, Finding, NoGpu, Observed, Outcome, Report, Result, Severity, Subject
from envkit.records import dataclass
from envkit.subjects import Host, Launch, codec, saved
from envkit.subjects.declared import Job
from envkit.subjects.host.expected import Expected, ExpectedChecks
from envkit.system import proc

if TYPE_CHECKING:
    from envkit.runner import runner
    from envkit.subjects import SmokeRun

LEVELS = ("passive", "probe", "quick", "full")

PASSIVE_S = 8.0
_LEAST_S = 5.0  # a container is not started for less
_NEED_GPU = {"host-no-gpu": Outcome.FAIL, "required-host-driver": Outcome.UNKNOWN}  # of a job without a GPU
# what hands GPUs to containers, for which a launch without an image has no use
_ENGINE_CHECKS = tuple(f"envkit.judging.checks.host_{part}" for part in ("container", "cdi", "cri", "toolkit"))
# whose finding is told as the cause among equally severe ones: what does not fit together, then what the process met,
# then the machine alone
_BLAMED = ("launch-", "image-", "smoke-", "host-")


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """What shall be launched, and how far it is looked at.

    ``image`` is empty for a Python of this machine (``python``, or the one envkit runs under).  ``host`` is a saved
    machine to judge for, with which nothing can be started.  ``budget_s`` is for all levels together, 0 for what they
    need.  ``may_be_unknown`` are checks whose question may stay open here.  ``require_gpu``: undecided where a GPU had
    no part; beyond the level passive that holds anyway, unless the job gets none.  ``frameworks`` as in Image, ``kept``
    as for `launch.observe`.  ``here`` is this machine as ``machine`` has just seen it.
    """

    image: str
    job: Job
    level: str = "quick"
    host: Path | None = None
    python: Path | None = None
    expect: Path | None = None
    budget_s: float = 0.0
    may_be_unknown: tuple[str, ...] = ()
    require_gpu: bool = False
    frameworks: tuple[str, ...] = ()
    kept: Path | None = None
    here: Host | None = None

    def check(self) -> None:
        """Raises UsageError for a level or a check that does not exist, and for no sense."""
        if self.level not in LEVELS:
            raise UsageError(f"there is no level `{self.level}`", f"one of: {', '.join(LEVELS)}")
        if self.host is not None and self.level != "passive":
            raise UsageError("a saved machine can start nothing", "add `--level passive`")
        if self.image and self.python:
            raise UsageError("an image and --python were both given", "name one of them")
        if not 0 <= self.budget_s < inf:
            raise UsageError(f"a budget of {self.budget_s:g} s leaves no time", "name seconds, such as 30")
        if self.python:
            from envkit.runner import runner

            runner.interpreter(self.python)
        if self.require_gpu and self.job.gpus.value == ():
            raise UsageError("a GPU is required and the job gets none", "take out --require-gpu or --gpus none")
        for name in self.may_be_unknown:
            if name not in judge.checks():  # all of them, which takes as long as the rest
                raise UsageError(f"there is no check `{name}`", "`envkit doctor --list` names those of a machine")


class _EarlySmokeRun:
    """The suite's run, started before its turn; at the end of the block it is waited for, or ended."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._wait: Callable[[], SmokeRun] | None = None

    def start(self, work: Callable[[], SmokeRun]) -> None:
        """Starts ``work``, which must end soon after ``stop`` is set."""
        self._wait = proc.beside(work)

    def result(self) -> SmokeRun | None:
        """What it gave, None if it was never started; raises what it raised."""
        wait, self._wait = self._wait, None
        return wait() if wait else None

    def end(self) -> None:
        """Ends what nobody has asked for."""
        self.stop.set()
        with suppress(EnvkitError, OSError):
            self.result()


class _Clock:
    """How much of the budget is left; without a budget each level has its own."""

    def __init__(self, budget_s: float) -> None:
        self.started = time.monotonic()
        self.budget_s = budget_s

    def left(self, own_s: float) -> float:
        """Seconds for the next level; raises Undecided where the budget leaves too few."""
        if not self.budget_s:
            return own_s
        left = self.budget_s - (time.monotonic() - self.started)
        if left < _LEAST_S:
            raise Undecided(f"the budget of {self.budget_s:g} s was spent before it", "give a larger --budget")
        return min(own_s, left)


def run(request: PreflightRequest, connect: Callable[[], Engine], gpus: tuple[str, ...], say: Say) -> Report:
    """The one report of all levels; ``gpus`` are those that a started process is given.

    Raises UsageError for options that make no sense or an image that does not exist.
    """
    request.check()
    known = facts.load()
    clock = _Clock(request.budget_s)
    contract = contracts.load(request.expect, judge.checks()) if request.expect else None
    results: tuple[Result, ...] = ()
    observed: dict[str, Any] = {}
    parts: list[object] = []
    name = request.image or str(request.python or "this Python")
    ahead = _EarlySmokeRun()
    try:
        for stage, work in _levels(request, connect, gpus, say, clock, contract, known, ahead):
            say(f"level {stage}")
            try:
                for kind, subject, said in work():
                    results += _held(said, contract, request.may_be_unknown)
                    observed[kind] = codec.to_plain(subject)
                    parts.append(subject)
            except (Undecided, UsageError) as error:
                if isinstance(error, UsageError) and stage == "passive":
                    raise
                # an image that the level before has seen and that is gone now is no wrong input
                results += (Result(f"preflight-{stage}", Outcome.UNKNOWN, reason=error.message),)
            if Report(Subject("preflight", name), results).exit_code() == 1:
                break
    finally:
        ahead.end()
    if parts and _needs_gpu(request, contract):
        results += required.without_gpu(*parts)
    elapsed = round(time.monotonic() - clock.started, 3)
    results = tuple(sorted(results, key=lambda one: one.check))
    return Report(Subject("preflight", name), results, elapsed, observed, _covered(request.job, parts))


def _needs_gpu(request: PreflightRequest, contract: Expected | None) -> bool:
    """Whether a GPU must have had a part in each level that ran."""
    if request.require_gpu or (contract is not None and "gpu" in contract.require):
        return True
    if request.job.gpus.value == ():
        return False
    none_here = contract is not None and contract.gpus.count == 0
    return request.level != "passive" and not (none_here and request.job.gpus.value is None)


def _covered(job: Job, parts: list[object]) -> Coverage:
    """On what the verdict stands; the machine's GPUs are none of a job that gets none."""
    on = required.covered(*parts)
    return replace(on, gpus=(), computed=False, no_gpu=NoGpu.JOB) if job.gpus.value == () else on


Work = Callable[[], Iterator[tuple[str, Any, tuple[Result, ...]]]]


def _levels(
    request: PreflightRequest,
    connect: Callable[[], Engine],
    gpus: tuple[str, ...],
    say: Say,
    clock: _Clock,
    contract: Expected | None,
    known: Facts,
    ahead: _EarlySmokeRun,
) -> Iterator[tuple[str, Work]]:
    """Each level that was asked for and its work: what it observed, of which kind, and what the checks say of it."""

    shared = False

    def passive() -> Iterator[tuple[str, Any, tuple[Result, ...]]]:
        nonlocal shared
        host = _host(request, clock, contract)
        shared = request.job.gpus.value == () or _shared(host)
        said = tuple(_for_job(one, request.job) for one in judge.judge(host, known))
        if not request.image:
            yield "host", host, tuple(one for one in said if not _of_engine(one.check))
            return
        yield "host", host, said
        place = None if request.host else HostRoot(Path("/"), {})
        seen: Launch = launch.observe(request.image, host, request.job, connect, say, place, request.kept)
        yield "launch", replace(seen, host=Host(host.name)), judge.judge(seen, known)

    yield "passive", passive
    if request.level == "passive":
        return

    from envkit.runner import runner

    def inside() -> runner.ExecTarget:
        if request.image:
            return runner.InEngine(connect(), request.image, "", gpus)
        return runner.LocalPython(request.python, gpus) if request.python else runner.this_python(gpus)

    def suite(level: str) -> SmokeRun:
        place = replace(at, stop=ahead.stop.is_set) if isinstance(at := inside(), runner.InEngine) else at
        return runner.smoke(place, say, runner.SmokeRequest(level), clock.left(runner.SMOKE_S[level]))

    def probe() -> Iterator[tuple[str, Any, tuple[Result, ...]]]:
        if request.image and shared and request.level in runner.SMOKE_S:
            ahead.start(lambda: suite(request.level))
        job = request.job.command.value or ()
        seen = runner.probe(inside(), say, clock.left(runner.PROBE_S), frameworks=request.frameworks, command=job)
        yield "image", seen, judge.judge(seen, known)

    def smoke(level: str) -> Iterator[tuple[str, Any, tuple[Result, ...]]]:
        seen = ahead.result() or suite(level)
        yield "smoke", seen, judge.judge(seen, known)

    yield "probe", probe
    if request.level in runner.SMOKE_S:
        yield request.level, lambda: smoke(request.level)


def _shared(host: Host) -> bool:
    """Whether every GPU is known to let several processes compute."""
    if host.nvml.value is None:
        return False
    return all(gpu.compute_mode.value == "default" for gpu in host.nvml.value.gpus)


def _of_engine(check: str) -> bool:
    found = judge.checks(Host).get(check)
    return found is not None and found.judge.__module__.startswith(_ENGINE_CHECKS)


def _for_job(result: Result, job: Job) -> Result:
    """The result of a machine for this job: one that is declared to get no GPU needs none there."""
    if job.gpus.value == () and _NEED_GPU.get(result.check) is result.outcome:
        return Result(result.check, Outcome.SKIP, reason="the job gets no GPU")
    return result


def _host(request: PreflightRequest, clock: _Clock, contract: Expected | None) -> Host:
    if request.host is not None:
        seen = saved.of_kind(request.host, Host)
        return replace(seen, expected=Observed.of(contract, "declared")) if contract else seen
    return request.here or machine(clock.left(PASSIVE_S), contract)


def machine(budget_s: float = PASSIVE_S, contract: Expected | None = None) -> Host:
    """This machine within ``budget_s`` seconds, held to ``contract``.  While other processes look at it, this one reads
    what will judge it."""
    return observe_host(budget_s=budget_s, expected=contract, meanwhile=read_judges)


def read_judges() -> None:
    """Imports what judges a machine and a launch, and reads the facts."""
    for kind in (Host, Launch):
        judge.checks(kind)
    facts.load()


def _held(
    results: tuple[Result, ...], contract: Expected | None, may_be_unknown: tuple[str, ...]
) -> tuple[Result, ...]:
    allowed = Expected(checks=ExpectedChecks(may_be_unknown=may_be_unknown))
    return contracts.hold(contracts.hold(results, contract), allowed)


def cause(report: Report, fail_on: Severity) -> Finding | None:
    """The one finding that is told as the cause, None where nothing at or above ``fail_on`` was found."""
    found = [
        (-finding.severity, rank, finding)
        for result in report.results
        for rank, prefix in enumerate(_BLAMED)
        if result.check.startswith(prefix)
        for finding in result.findings
        if finding.severity >= fail_on
    ]
    return min(found, key=lambda one: one[:2])[2] if found else None


def doubt(report: Report) -> str:
    """The first thing that stayed open, empty if nothing did."""
    for result in report.results:
        if result.outcome in (Outcome.UNKNOWN, Outcome.CRASHED):
            return f"{result.check}: {result.reason}"
    return ""
