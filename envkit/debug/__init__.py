"""`envkit debug`: runs a failing command again with one more tool at each stage, until the cause is named."""

from __future__ import annotations

import csv
import math
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from envkit.debug import (
    cores,
    job,
    kernels,
    native,
    numbers,
    packages,
    placed,
    ranks,
    repro,
    sanitizer,
    stacks,
    stages,
    told,
    tracked,
)
from envkit.debug.job import CommandRun, CommandTarget
from envkit.debug.records import DebugReport, Fault, PythonFrame, Step, Verdict, Waiting, unkept
from envkit.debug.render import document
from envkit.debug.stages import SkippedStage, StagePlan, State
from envkit.engine import Say
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.facts import Facts
from envkit.logs.records import Explanation
from envkit.system import files, proc

BUDGET_S = 1800.0
STAGE_S = 600.0
QUIET_S = 120.0
_LEAST_S = 5.0  # a stage after the first with less time than this is not begun
_MOST_CHILDREN = 200  # in the report, those that crashed first
_MOST_COPIES = 4  # lines that are named
_TAIL_BYTES = 8 << 20  # of an output that are explained: what the supervisor left out lies before it
_UNCAPTURED = (
    "a CUDA graph cannot be captured without torch's cache of memory, so that this run tells nothing of the command"
)
_PARTLY = "it fails where torch's cache of memory is on for captures alone, and is run again with the cache"
_READ_S = 120.0  # for cuda-gdb to open a core dump, and for nsys to count


@dataclass(frozen=True, slots=True)
class DebugRequest:
    """What is to be debugged.

    ``budget_s`` is for all stages, ``stage_s`` for each; a command that prints nothing for ``quiet_s`` and whose Python
    stacks do not move hangs (0: only its budget tells).  ``only`` and ``skip`` name stages; ``kernels`` narrows what
    compute-sanitizer checks.  ``hang_after_s`` above 0 says that the command is several ranks, which are suspected when
    none has made a step for so long; ``hang_ends`` that they are ended then, else only where none can go on.
    ``folder`` is where the files go; None: the first free envkit-debug-N.
    """

    command: tuple[str, ...]
    budget_s: float = BUDGET_S
    stage_s: float = STAGE_S
    quiet_s: float = QUIET_S
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    hang_after_s: float = 0.0
    hang_ends: bool = False
    folder: Path | None = None


@dataclass
class _Session:
    """The stages that have run, and what is needed for the next."""

    request: DebugRequest
    ground: CommandTarget
    facts: Facts
    here: Path
    folder: Path
    say: Say
    state: State
    started: float
    steps: list[Step] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    last: tuple[Sequence[str], Mapping[str, str | None], str] | None = None


def run(request: DebugRequest, ground: CommandTarget, facts: Facts, say: Say) -> DebugReport:
    """Runs the stages with ``request.command``, writes the folder, and reports.

    Raises UsageError for a command that does not exist, a stage that does not, or a folder that may not be made, and
    Undecided where nothing can be run, or what came of it cannot be kept.
    """
    started = time.monotonic()
    ground, folder, found, here = prepared(request, ground)
    state = State(request.command, found, request.kernels, request.stage_s)
    session = _Session(request, ground, facts, here, folder, say, state, started)
    try:
        for stage in stages.STAGES:
            _run_stage(session, stage)
        return _report(session)
    finally:
        if ground.image:
            closed(folder)


def prepared(request: DebugRequest, ground: CommandTarget) -> tuple[CommandTarget, Path, job.Tools, Path]:
    """What a run needs: where the command runs, the new folder for its files, the tools there, and the folder that
    envkit was started in.  Raises UsageError for a request that cannot be run, and leaves nothing behind then."""
    _check(request)
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the folder that envkit was started in is gone", "change into one that is there") from error
    there = request.folder is not None and request.folder.exists()
    folder = _folder(request.folder)
    ground = ground.at(folder)
    found = job.tools(ground, request.command, stages.TOOLS, folder)
    if not found.program:
        if not there:
            folder.rmdir()
        where = f" in {ground.image}" if ground.image else ""
        fix = "name one that is on PATH, or its path; a file must be executable"
        raise UsageError(f"there is no program `{request.command[0]}`{where}", fix)
    return ground, folder, found, here


def closed(folder: Path) -> None:
    """Takes back what a container's user needed, to write there; whatever lies in the folder's place now stays."""
    with suppress(OSError):
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(place, 0o700)
        finally:
            os.close(place)


def _check(request: DebugRequest) -> None:
    if not request.command:
        raise UsageError("there is no command after --", "envkit debug -- python train.py")
    for name in (*request.only, *request.skip):
        if name not in stages.NAMES:
            raise UsageError(f"there is no stage `{name}`", f"one of: {', '.join(stages.NAMES)}")
    if stages.NAMES[0] in request.skip:
        raise UsageError(f"`{stages.NAMES[0]}` cannot be skipped: the other stages go by what it shows", "skip others")
    if not all(each.strip() for each in request.kernels):
        raise UsageError("the name of a kernel is empty", "give --kernel a part of its name")
    for name, seconds, least in (
        ("--budget", request.budget_s, "above 0"),
        ("--stage-timeout", request.stage_s, "above 0"),
        ("--stall-timeout", request.quiet_s, "0 or more"),
        ("--hang-timeout", request.hang_after_s, "0 or more"),
    ):
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and least == "above 0"):
            raise UsageError(f"{name} {seconds:g} is no time", f"give it seconds, {least}")


def _folder(request: Path | None) -> Path:
    """The folder for this session's files: the one asked for, new or empty, or the first free envkit-debug-N, made now,
    so that another envkit that starts beside this one takes the next."""
    number = 0
    while True:
        number += 1
        folder = request or Path(f"envkit-debug-{number}")
        try:
            folder.mkdir(0o700, parents=request is not None, exist_ok=request is not None)  # logs may hold secrets
            if any(folder.iterdir()):
                raise UsageError(f"{folder} is there already and is not empty", "name a new folder")
            return folder.resolve()
        except FileExistsError as error:
            if request is not None:
                raise UsageError(f"{folder} is there already and is no folder", "name a new folder") from error
        except OSError as error:
            if files.is_full(error):
                raise Undecided(f"the disk is full: {folder} was not made", "name a folder elsewhere: --out") from error
            fix = "name a folder that may be written to: --out"
            raise UsageError(f"the folder {folder} cannot be made: {error.strerror}", fix) from error


def _run_stage(session: _Session, stage: stages.Stage) -> None:
    request = session.request
    if stage.name != "as-is" and (stage.name in request.skip or (request.only and stage.name not in request.only)):
        session.steps.append(Step(stage.name, False, "it was not asked for"))
        return
    plan = stage.decide(session.state)
    if isinstance(plan, SkippedStage):
        get = stages.how_to_get(plan.missing, session.facts) if plan.missing else ""
        session.steps.append(Step(stage.name, False, plan.why, missing=plan.missing, get=get))
        session.open += [plan.why] if plan.open and plan.why not in session.open else []
        return
    left = request.budget_s - (time.monotonic() - session.started)
    if left < _LEAST_S and stage.name != "as-is":
        why = f"the budget of {request.budget_s:g} s was spent"
        session.steps.append(Step(stage.name, False, why))
        session.open += [why] if why not in session.open else []
        return
    session.say(f"{stage.name}: {plan.why}")
    ran = _run(session, stage.name, plan, min(max(left, 0.0), request.stage_s))
    # Names of files of the folder, so that a report can be read elsewhere.
    kept = tuple(sorted(path.relative_to(session.folder).as_posix() for path in ran.folder.iterdir()))
    step = Step(stage.name, True, plan.why, round(ran.seconds, 3), ran.exit, ran.ended, files=kept)
    if broke := _capture_broke(session, stage.name, ran):
        session.state = replace(session.state, cached=True)
        session.steps.append(replace(step, found=broke))
        session.say(f"{stage.name}: {broke}")
        if stage.name in sanitizer.TOOLS:
            _run_stage(session, stage)
        return
    session.state = replace(session.state, runs={**session.state.runs, stage.name: ran})
    step = replace(step, found=_learn(session, stage.name, ran))
    session.steps.append(step)
    session.say(f"{stage.name}: {_ending(ran)}" + (f"; {step.found}" if step.found else ""))


def _capture_broke(session: _Session, name: str, ran: CommandRun) -> str:
    """Why a run without torch's cache, or with it for captures alone, tells nothing of a command that captures CUDA
    graphs; "" for one that does."""
    state = session.state
    if name not in (*sanitizer.TOOLS, "no-cache") or state.cached or state.broken_capture:
        return ""
    if ran.ended != "exited" or ran.exit == 0 or sanitizer.worst(sanitizer.faults(_log(ran), name)):
        return ""
    if stages.captures_fail(told.read(_texts(session, name, ran))):
        return _UNCAPTURED
    return _PARTLY if state.captures and state.first.succeeded else ""


def _log(ran: CommandRun) -> str:
    return _tail(ran.folder / "sanitizer.log").decode("utf-8", "replace")


def _run(session: _Session, name: str, plan: StagePlan, budget_s: float) -> CommandRun:
    folder = session.folder / name
    if folder.exists():  # it is run again with torch's cache
        folder = session.folder / f"{name}-cached"
    inside = session.ground.seen(folder)
    argv = plan.around(session.request.command, inside) if plan.around else session.request.command
    ran = job.run(
        session.ground,
        argv,
        folder,
        budget_s=budget_s,
        quiet_s=session.request.quiet_s if name in ("as-is", "blocking") else 0.0,
        hang_after_s=session.request.hang_after_s if name == "as-is" else 0.0,
        hang_ends=session.request.hang_ends,
        say=lambda line: session.say(f"{name}: {line}"),
        environ=plan.environ,
        launches=plan.launches,
        tools={tool: path for tool, path in session.state.tools.paths.items() if tool in ("py-spy", "gdb")},
    )
    session.last = (argv, plan.environ, name)
    return ran


def _ending(ran: CommandRun) -> str:
    if ran.ended == "not-started":
        return f"was not started: {ran.error}"
    said = {"hung": "hung", "timed-out": "did not end in its time", "forks": "forked without end"}
    told = f"{said.get(ran.ended, ran.ended)} and was ended after {ran.seconds:.1f} s"
    if ran.ended == "exited":
        told = f"exited with status {ran.exit} after {ran.seconds:.1f} s"
        told += f"; what it left behind was ended ({ran.left})" if ran.left else ""
    return told + (f"; SIGKILL did not end all ({ran.undying})" if ran.undying else "")


def _tail(path: Path) -> bytes:
    """The end of a file, from the beginning of a line."""
    try:
        with job.plain_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read()
    except OSError:
        return b""
    return text if size <= _TAIL_BYTES else text.partition(b"\n")[2]


def _learn(session: _Session, name: str, ran: CommandRun) -> str:
    """Takes in what a stage brought; what of it belongs into its step."""
    if name in sanitizer.TOOLS:
        return _learn_sanitizer(session, name, ran)
    others = {
        "copies": _learn_copies,
        "core-dump": _learn_core,
        "launches": _learn_launches,
        "native": _learn_native,
        "profile": _learn_profile,
    }
    if learn := others.get(name):
        return learn(session, ran)
    state = session.state
    texts = _texts(session, name, ran)
    if name == "as-is":
        story, explanation = told.explained(texts, session.facts)
        session.state = replace(state, stories={**state.stories, name: story}, explanation=explanation)
        if session.request.hang_after_s and not ran.succeeded:
            known = ranks.read(ran)
            goes_on = _goes_on(session, ran, known)
            by_ranks = ranks.told(known, ranks.dumps(ran.folder), session.state.hangs and not goes_on)
            session.state = replace(session.state, told=by_ranks, goes_on="" if by_ranks else goes_on)
            if by_ranks:
                return by_ranks.cause
        if session.request.hang_after_s and ran.succeeded:
            session.state = replace(session.state, told=ranks.corrupted(ranks.read(ran)))
            if session.state.told:
                return session.state.told.cause
            if stood := ran.suspicions():
                return f"it went on after it stood still: {stood[0]}"
        crashed = ran.crashed()
        return told.deaths(crashed, ran.exit) if crashed else ""
    session.state = replace(state, stories={**state.stories, name: told.read(texts)})
    if name == "no-cache" and session.state.device and not state.device and not ran.succeeded:
        explanation = told.explained(texts, session.facts)[1]
        session.state = replace(session.state, explanation=explanation, hidden=True)
    if name == "package-checks":
        return _learn_package(session, ran, texts)
    if name == "placement":
        found = placed.read(ran.events)
        session.state = replace(session.state, placed=found)
        return placed.sentence(found) if found else "no tensor that the failing line names was seen on another device"
    if name == "numbers":
        origin = numbers.read(ran.events)
        session.state = replace(session.state, origin=origin)
        return origin.said if origin else "no call of torch was seen that began it"
    python = _raised(ran)
    if python and not ran.succeeded:
        session.state = replace(session.state, python=python)
    if name == "device-assertions" and (said := tracked.sentence(ran.text())):
        session.state = replace(_joined(session, texts), tracked=said)
        return said
    if python and not ran.succeeded:
        return stacks.at("the call that fails is at", python)
    return ""


def _goes_on(session: _Session, ran: CommandRun, known: Sequence[ranks.Rank]) -> str:
    """Why a job of ranks whose time was up may go on all the same; "" for any other."""
    if ran.ended != "timed-out" or not known:
        return ""
    return ranks.unended(known, ran.seconds, ran.stood_s, session.request.hang_after_s)


def _learn_package(session: _Session, ran: CommandRun, texts: Mapping[str, bytes]) -> str:
    lines = [line.strip() for line in ran.text().splitlines() if "unmatched" in line]
    if not lines:
        return "the package's checks name no input"
    state = replace(_joined(session, texts), mixed=lines[0][:300] if packages.unlike(lines[0])[0] else "")
    # without its checks the package fails at whatever waits for the GPU next; with them at the call itself
    session.state = replace(state, python=_raised(ran) or state.python) if state.mixed else state
    return lines[0][:300]


def _texts(session: _Session, name: str, ran: CommandRun) -> dict[str, bytes]:
    """What a run printed and what faulthandler wrote of its deaths, by the names of the files."""
    texts = {f"{name}/output.txt": _tail(ran.output)}
    for pid, text in ran.dumps.items():
        if stacks.died(text)[0]:
            texts[f"{name}/python-{pid}.txt"] = text.encode()
    return texts


def _raised(ran: CommandRun) -> tuple[PythonFrame, ...]:
    """Where the Python of a run was when it failed: its first exception, else where a process of it died."""
    died = (stacks.died(text)[1] for text in ran.dumps.values())
    return told.main_frames(ran.events) or next(filter(None, died), ())


def _learn_sanitizer(session: _Session, name: str, ran: CommandRun) -> str:
    text = _log(ran)
    state = session.state
    events = (*state.first.events, *ran.events)  # the first run compiled what later ones have from torch's cache
    found = tuple(kernels.original(each, events) for each in sanitizer.faults(text, name))
    session.state = replace(state, faults={**state.faults, name: found})
    worst = sanitizer.worst(found)
    if worst:
        if worst.python:
            session.state = replace(session.state, python=worst.python)
        session.state = _joined(session, {f"{name}/sanitizer.log": text.encode()})
        return told.sentence(worst, (), kernels.sources(ran))
    trouble = sanitizer.trouble(text)
    if ran.ended != "exited":
        trouble = f"it did not end within its budget ({ran.ended})"
    if trouble:
        session.open.append(f"{name} did not look at the whole command: {trouble}")
        return trouble
    if found:
        return f"nothing that is sure; {len(found)} reports of what libraries or a warp's own threads do"
    return "nothing"


def _joined(session: _Session, more: Mapping[str, bytes]) -> State:
    """The state with an explanation of the command's own output and of ``more``."""
    texts = {**_texts(session, "as-is", session.state.first), **more}
    return replace(session.state, explanation=told.explained(texts, session.facts)[1])


def _learn_core(session: _Session, ran: CommandRun) -> str:
    path = stages.first_file(ran.folder, "gpu-core-*")
    if path is None and session.state.stands:
        return "the driver wrote no core dump when it was asked for one"
    if path is None:
        session.open.append("the driver wrote no core dump of the GPU")
        return "the driver wrote no core dump"
    argv = cores.command(session.state.tools.paths["cuda-gdb"], session.ground.seen(path))
    opened = job.run(session.ground, argv, ran.folder / "opened", budget_s=_READ_S)
    fault = cores.read(opened.text())
    if fault is None:
        return "cuda-gdb named no kernel in the core dump"
    fault = kernels.original(fault, ran.events)
    if session.state.stands:
        where = told.at(fault, (), kernels.sources(ran))
        said = f"the GPU was in kernel `{fault.kernel}`{where} when it was looked at in another run"
        session.state = replace(session.state, standing=said)
        return said
    session.state = replace(session.state, faults={**session.state.faults, "core-dump": (fault,)})
    return told.sentence(fault, (), kernels.sources(ran))


def _learn_copies(session: _Session, ran: CommandRun) -> str:
    if not ran.succeeded:
        return "it fails as before where each copy is waited for"
    lines: dict[str, str] = {}
    for event in ran.events:
        own = stacks.own_line(stacks.frames(event.get("frames", ()))) if event["event"] == "copy" else None
        if own and len(lines) < _MOST_COPIES:
            lines.setdefault(own.place, f"{own.place} in {own.function}")
    if not lines:
        return "it is well this time, though it asks for no copy that it does not wait for"
    what = "the copy" if len(lines) == 1 else "each copy between GPU and CPU"
    said = f"it is well once {what} that it asks for with non_blocking is waited for, at {', '.join(lines.values())}"
    session.state = replace(session.state, waited=said)
    return said


def _learn_refused(session: _Session, ran: CommandRun) -> str:
    """The first launch that CUDA refused, where another line told of it."""
    places = [stacks.frames(event.get("frames", ())) for event in ran.events if event["event"] == "refused"]
    own = stacks.own_line(places[0]) if places else None
    if own is None:
        return "no launch of this process's own Python was seen being refused"
    failed = {frame.place for frame in session.state.python or _raised(session.state.first)}
    if own.place not in failed:
        session.state = replace(session.state, launched=f"{own.place} in {own.function}")
    return f"the launch at {own.place} in {own.function} is refused"


def _learn_launches(session: _Session, ran: CommandRun) -> str:
    if session.state.fault is None and session.state.refused:
        return _learn_refused(session, ran)
    launches = [event for event in ran.events if event.get("event") == "launch"]
    if not launches:
        trouble = [str(event["trouble"]) for event in ran.events if event.get("trouble")]
        return trouble[0] if trouble else "the kernel was not seen being launched"
    if session.state.fault and stacks.replays(session.state.fault.python):
        launches = [each for each in launches if each.get("captured")] or launches
    places = [python for each in launches if (python := stacks.frames(each.get("frames", ())))]
    if not places:
        return "it is launched by a thread without Python, such as autograd's"
    # Of a kernel that is launched in several places, the call that failed tells which; a lone place needs no telling.
    failed = {frame.place for frame in session.state.python}
    met = [python for python in places if (own := stacks.own_line(python)) and own.place in failed]
    if met or len(places) == 1 or not failed:
        lines = dict.fromkeys(own.place for python in met or places if (own := stacks.own_line(python)))
        others = () if met else tuple(lines)[1:4]
        session.state = replace(session.state, python=(met or places)[0], elsewhere=others)
    own = stacks.own_line(session.state.python)
    more = f", and {len(places) - 1} other places" if len(places) > 1 else ""
    return f"launched at {own.place} in {own.function}{more}" if own else ""


def _learn_native(session: _Session, ran: CommandRun) -> str:
    text = _tail(ran.folder / "gdb.log").decode("utf-8", "replace")
    stack = native.frames(text, proc.signal_name(-(session.state.first.exit or 0)))
    said = native.sentence(stack)
    inside, carries = any(frame.own for frame in stack), native.runtime_inside(stack)
    session.state = replace(session.state, native=said, inside=inside, carries=carries)
    if not said and ran.exit == 127:  # of what a shell or the loader of libraries cannot start
        return f"gdb does not run: {job.last_line(ran)}"
    return f"it died {said}" if said else "under gdb it did not die of that"


def _learn_profile(session: _Session, ran: CommandRun) -> str:
    path = stages.first_file(ran.folder, "*.nsys-rep")
    if path is None:
        if ran.ended == "timed-out":
            return "nsys had not written its report when the stage's time was up: give it more, --stage-timeout SECONDS"
        said = job.last_line(ran)
        return f"nsys left no report: {said}" if said else "nsys left no report"
    words = ("stats", "--force-export=true", "--report", "cuda_gpu_kern_sum,cuda_api_sum", "--format", "csv")
    argv = (session.state.tools.paths["nsys"], *words, session.ground.seen(path))
    counted = job.run(session.ground, argv, ran.folder / "counted", budget_s=_READ_S)
    rows = [line for line in counted.text().splitlines() if line[:1].isdigit()]
    if not rows:
        return "nsys counted no kernel"
    share, *_, kernel = next(csv.reader(rows))
    return f"most of the GPU's time by nsys: {share}% in `{kernel[:200]}`"


def _report(session: _Session) -> DebugReport:
    state, first = session.state, session.state.first
    fault = state.fault
    # Of a kernel that a graph replays, the line that launched it into the graph tells more.
    replayed = fault is not None and stacks.replays(fault.python)
    python = (fault.python if fault and not replayed else ()) or state.python
    hang = stacks.waiting(first.samples) if state.hangs else ()
    table = ranks.rows(ranks.read(first)) if session.request.hang_after_s else ()
    verdict, cause, category, cause_class, fix = _verdict(session, fault, python, hang)
    cause += f"; it died {state.native}" if state.native and cause else ""
    # What a hanging command printed is not why its ranks wait for one another.
    explanation = state.explanation if (state.failed or fault) and not (state.told and state.hangs) else None
    if explanation and not _category(explanation) and (category or verdict is Verdict.FOUND):
        explanation = None  # the answer comes from elsewhere, and beside it "the log does not tell" would mislead
    # Of a command that did not end by itself envkit ended the rest.
    ended = [each for each in first.children() if first.ended == "exited" or each.exit not in (-15, -9)]
    own = stacks.own_line(python)
    wrong = f"{python[-1].function} at {python[-1].place}" if python else ""
    made = DebugReport(
        command=tuple(repro.redacted_words(session.request.command)),
        image=session.ground.image,
        verdict=verdict,
        cause=cause,
        category=category,
        cause_class=cause_class,
        exit=first.exit,
        steps=tuple(session.steps),
        fault=fault,
        first_wrong=wrong if own else "",
        python=python,
        children=tuple(sorted(ended, key=lambda each: each.exit not in job.CRASHES)[:_MOST_CHILDREN]),
        hang=hang,
        explanation=explanation,
        fix=fix,
        next=_next(session, verdict, explanation if not fault else None, category),
        folder=str(session.folder),
        files=(),
        elapsed_s=round(time.monotonic() - session.started, 3),
        versions=state.tools.versions,
        ranks=table,
        unseen=stages.unseen(state),
    )
    return _written(session, made)


def _verdict(
    session: _Session, fault: Fault | None, python: Sequence[PythonFrame], hang: Sequence[Waiting]
) -> tuple[Verdict, str, str, str, str]:
    """The verdict, the cause, its category and class, and the fix."""
    state, first, said = session.state, session.state.first, session.state.explanation
    if fault:
        sources = [each for ran in state.runs.values() for each in kernels.sources(ran)]
        category = told.category(fault) or (said.category if said and said.cause == "gpu-kernel-bug" else "")
        return (
            Verdict.FOUND,
            told.sentence(fault, python, sources)
            + "".join(f"; it is launched at {place}, too" for place in state.elsewhere),
            category,
            told.blamed(fault, python),
            told.fix(fault, python, sources),
        )
    if state.mixed:
        how, category, cause_class, fix = packages.unlike(state.mixed)
        cause = f"an AOTInductor package was given an input {how} than it was made for: {state.mixed}"
        return Verdict.FOUND, cause + stacks.at("; called at", state.python), category, cause_class, fix
    if state.tracked:
        cause = state.tracked + stacks.at("; called at", state.python)
        return Verdict.FOUND, cause, "device-side-assert", "bad-index-or-label", tracked.FIX
    died = _raised(first) if first.crashed() or (first.exit or 0) < 0 else ()
    loading = packages.loading(died) and not session.ground.image
    if deadly := packages.deadly(session.request.command, session.here) if loading else None:
        cause, fix = deadly
        cause += stacks.at("; loaded at", died)
        return Verdict.FOUND, cause, "undefined-symbol-abi-mismatch", "wrong-build-installed", fix
    if state.carries:
        cause = native.own_runtime(state.carries) + stacks.at(" at", died)
        return Verdict.FOUND, cause, "undefined-symbol-abi-mismatch", "wrong-build-installed", packages.SHARED
    if state.told:
        by_ranks = state.told
        return Verdict.FOUND, by_ranks.cause, by_ranks.category, by_ranks.cause_class, by_ranks.fix
    if state.goes_on:
        return Verdict.UNDECIDED, state.goes_on, "", "", "give it more time: --stage-timeout SECONDS, and --budget"
    if state.failed and first.text().rstrip().endswith("EOFError: EOF when reading a line"):
        cause = "the command asks for input, and its stdin is empty under envkit debug"
        return Verdict.UNDECIDED, cause, "", "", "give it a file: -- sh -c 'exec python train.py < answers'"
    return _of_the_first_run(session, python, hang)


def _of_the_first_run(
    session: _Session, python: Sequence[PythonFrame], hang: Sequence[Waiting]
) -> tuple[Verdict, str, str, str, str]:
    """The same by how the command ended as it is, and what its output says."""
    state, first, said = session.state, session.state.first, session.state.explanation
    known = said is not None and said.category != "insufficient-evidence" and said.confidence >= 0.5
    if first.ended == "forks":
        cause = f"the command forks without end: {first.processes} processes were seen in {first.seconds:.0f} s"
        fix = "see what starts the command again from within itself"
        return Verdict.FOUND, cause, "not-gpu-env", "program-bug", fix
    if first.ended == "not-started":
        return Verdict.UNDECIDED, f"the command was not started: {first.error}", "", "", ""
    if state.hangs and (first.ended == "hung" or (any(each.threads for each in hang) and first.busy < 0.5)):
        where = said if known and said is not None else None
        cause = told.hanging(hang, first.seconds, first.ended)
        fix = where.fix if where else "look at what the innermost frames wait for, and at who should have answered them"
        return Verdict.FOUND, cause, where.category if where else "", where.cause if where else "", fix
    crashed = first.crashed()
    if state.failed and known and said is not None:
        raised = _raised(first)
        if said.cause == "device-mixup":  # raised before any kernel, so that the line is the one that failed
            python = python or raised
        cause = told.deaths(crashed, first.exit) + f"; {said.because}" if crashed else said.because
        cause += "; torch's cache of memory hid it" if state.hidden else ""
        if state.launched:
            cause += f"; it is the launch at {state.launched} that was refused, whose answer nobody looked at"
        lead = "; the next call that looks for errors is at" if state.launched else "; the call that fails is at"
        cause += stacks.at(lead, python)
        own = stacks.own_line(raised)
        if own and not python and not crashed and f"{own.file.rpartition('/')[2]}:{own.line}" not in cause:
            cause += stacks.at("; raised at", raised)
        messages = [message for _, message in filter(None, map(_exception, state.runs.values()))]
        if state.numbers and not state.device and (varied := told.varied(messages)):
            if state.waited:
                return Verdict.FOUND, f"{cause}; {varied}; {state.waited}", said.category, said.cause, told.WAITED
            return Verdict.FOUND, f"{cause}; {varied}", said.category, said.cause, told.ORDERED
        if state.origin:
            return Verdict.FOUND, f"{cause}; {state.origin.said}", said.category, said.cause, state.origin.fix
        if state.placed:
            return (
                Verdict.FOUND,
                f"{cause}; {placed.sentence(state.placed)}",
                said.category,
                said.cause,
                state.placed.fix,
            )
        return Verdict.FOUND, cause, said.category, said.cause, said.fix
    if crashed:
        return Verdict.FOUND, told.deaths(crashed, first.exit), _category(said), "", ""
    return _without_words(session)


def _exception(ran: CommandRun) -> tuple[str, str] | None:
    """The kind and the message of the first exception that ended a Python of a run; None where none did."""
    event = next((each for each in ran.events if each["event"] == "exception"), None)
    return None if event is None else (str(event.get("kind", "")), str(event.get("message", "")))


def _category(said: Explanation | None) -> str:
    """The kind of failure that an explanation tells; "" for one that tells of none."""
    return "" if said is None or said.category == "insufficient-evidence" else said.category


def _without_words(session: _Session) -> tuple[Verdict, str, str, str, str]:
    """The same where neither an output nor a crash tells of a cause."""
    state, first = session.state, session.state.first
    if first.ended == "timed-out":
        cause = f"the command had not ended after {first.seconds:.0f} s"
        cause += f", and used or waited for {first.busy:g} processors"
        if first.samples and not stacks.moved(first.samples):
            stood = [each for each in stacks.waiting(first.samples) if each.threads]
            cause += "".join(f"; {stacks.waits(each)} each time it was looked at" for each in stood[:1])
        fix = "give it more time: --stage-timeout SECONDS"
        if state.standing:
            cause += f"; {state.standing}"
            fix += "; if it takes no longer by itself, see what that kernel waits for"
        return Verdict.UNDECIDED, cause, "", "", fix
    if state.failed:
        return _unexplained(first, state.explanation, state.inside)
    for name, ran in state.runs.items():
        raised = _exception(ran)
        if ran.ended == "exited" and ran.exit and raised:  # of what came after it no tool has seen anything
            kind, message = raised
            said = f"{kind}: {message}".partition("\n")[0][:300]
            cause = f"the command succeeded as it is, and failed in the stage {name}: {said}"
            fix = told.ORDERED if stages.of_numbers(kind, message) else f"see why it fails there: {name}/output.txt"
            return Verdict.UNDECIDED, cause + stacks.at("; raised at", _raised(ran)), "", "", fix
    if session.open:
        return Verdict.UNDECIDED, f"the command succeeded, but {session.open[0]}", "", "", ""
    return Verdict.CLEAN, "", "", "", ""


def _unexplained(first: CommandRun, said: Explanation | None, inside: bool) -> tuple[Verdict, str, str, str, str]:
    """The same of a command that failed and whose output does not tell why."""
    own = stacks.own_line(_raised(first))
    at = f"; it was at {own.place} in {own.function}" if own else ""
    if first.exit is None:
        return Verdict.UNDECIDED, "the command had its supervisor ended, which ends the command", "", "", ""
    if first.exit < 0:
        name = proc.signal_name(-first.exit)
        if (own or inside) and first.exit in job.CRASHES:
            where = f" at {own.place} in {own.function}" if own else ""
            return Verdict.FOUND, f"the command died of {name} ({first.exit}){where}", _category(said), "", ""
        cause = f"the command died of {name}, and its output does not tell why{at}"
        look = "look in the kernel's log for the OOM killer (dmesg), or for who else ended it"
        return Verdict.UNDECIDED, cause, "", "", look if first.exit == -signal.SIGKILL else ""
    cause = f"the command exited with status {first.exit} and its output does not tell why{at}"
    return Verdict.UNDECIDED, cause, "", "", ""


def _next(session: _Session, verdict: Verdict, said: Explanation | None, category: str) -> tuple[str, ...]:
    """What to do next, by the ranks where they tell the cause, else by what the output says of the same failure."""
    if verdict is Verdict.CLEAN:
        return ()
    if session.state.told:
        return session.state.told.next
    more = said.next if said and category in ("", said.category) else ()
    got = dict.fromkeys(f"get {step.missing}: {step.get}" for step in session.steps if step.missing)
    if category == "tensors-on-different-devices" and not session.state.placed:
        place = "`envkit probe --placement MODULE:FACTORY` names each tensor of a model on another device and its line"
        more = (place, *more)
    return more if session.state.fault or session.state.settled else (*more, *got)


def _written(session: _Session, made: DebugReport) -> DebugReport:
    """The report, with its files in the folder: itself, the reproducer, the lock if there is one, and its page."""
    folder = session.folder
    telling = next((step for step in reversed(session.steps) if step.ran and step.found not in ("", "nothing")), None)
    argv, added, name = session.last or (session.request.command, {}, "as-is")
    if telling and telling.stage != name:
        argv, added, name = session.request.command, {}, "as-is"
    why = f"runs the command as the stage `{name}` of envkit debug ran it"
    image, locks = session.ground.image, ("envkit.lock", "uv.lock", "requirements.txt")
    if image:
        text = repro.script(argv, {}, added, cwd="/", image=image, versions=made.versions, why=why)
    else:
        # The stage's own files went to its folder; the reproducer's go where it is run.
        words = [word.replace(f"{session.folder / name}/", "") for word in argv]
        text = repro.script(words, os.environ, added, cwd=str(session.here), image="", versions=made.versions, why=why)
    more = {"repro.sh": text}
    for lock in () if image else locks:
        with suppress(OSError):  # there is none, or it is none
            more[lock] = files.content(session.here / lock).decode("utf-8", "replace")
    return kept(folder, made, more)


def kept(folder: Path, made: DebugReport, more: Mapping[str, str]) -> DebugReport:
    """The report with the names of all files of its folder, where it is written to before ``more`` files by name and
    its page: what of these cannot be written is one sentence of the report, whose verdict it does not change."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} | {"report.json"}
    made = replace(made, files=tuple(sorted(names)[:500]))
    try:
        new_file(folder / "report.json", document(made))
    except EnvkitError as error:
        raise unkept(error, made.verdict, made.cause) from error
    # Imported here: the templates take longer to import than all else, and the page's module imports this package.
    from envkit.debug import as_html
    from envkit.report import page

    for name in (*more, "report.html"):
        whole = replace(made, files=tuple(sorted({*made.files, name})[:500]))
        make = partial(str, more[name]) if name in more else partial(as_html.render, whole)
        mode = 0o700 if name == "repro.sh" else 0o600
        trouble = page.attempted(name, partial(_made, folder / name, make, mode))
        made = replace(made, next=(*made.next, trouble)) if trouble else whole
    with suppress(EnvkitError):  # there is no room for these names: what was written before stays
        files.write(folder / "report.json", document(made), 0o600)
    return made


def _made(path: Path, make: Callable[[], str], mode: int) -> None:
    new_file(path, make(), mode)


def new_file(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file of the folder.  The command could write there, too: what it put in this place goes, for a link of
    a container's would lead envkit to a file of this machine."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass
    files.write(path, text, mode)
