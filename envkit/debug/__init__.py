"""`envkit debug`: runs a failing command up a ladder of tools, and stops where the cause is named."""

from __future__ import annotations

import math
import os
import shutil
import signal
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from envkit.debug import cores, job, packages, ranks, repro, rungs, sanitizer, stacks, told
from envkit.debug.job import Ground, Ran
from envkit.debug.records import DebugReport, Fault, PythonFrame, Step, Verdict, Waiting
from envkit.debug.render import document
from envkit.debug.rungs import Pass, Plan, State
from envkit.engine import Say
from envkit.errors import Undecided, UsageError
from envkit.facts import Facts
from envkit.logs.records import Explanation
from envkit.system import files

BUDGET_S = 1800.0
RUNG_S = 600.0
QUIET_S = 120.0
_LEAST_S = 5.0  # a rung above the first with less time than this is not begun
_MOST_CHILDREN = 200  # in the report, those that crashed first
_TAIL_BYTES = 8 << 20  # of an output that are explained: what the keeper left out lies before it
_READ_S = 120.0  # for cuda-gdb to open a core dump, and for nsys to count


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be debugged.

    ``budget_s`` is for all rungs, ``rung_s`` for each; a command that prints nothing for ``quiet_s`` and whose Python
    stacks do not move hangs (0: only its budget tells).  ``only`` and ``skip`` name rungs; ``kernels`` narrows what
    compute-sanitizer checks.  ``hang_after_s`` above 0 says that the command is several ranks, which hang when none has
    taken a step of its own for so long.  ``folder`` is where the files go; None: the first free envkit-debug-N.
    """

    command: tuple[str, ...]
    budget_s: float = BUDGET_S
    rung_s: float = RUNG_S
    quiet_s: float = QUIET_S
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    hang_after_s: float = 0.0
    folder: Path | None = None


@dataclass
class _Climb:
    """A climb under way."""

    wish: Wish
    ground: Ground
    facts: Facts
    here: Path
    folder: Path
    say: Say
    state: State
    started: float
    steps: list[Step] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    last: tuple[Sequence[str], Mapping[str, str | None], str] | None = None


def run(wish: Wish, ground: Ground, facts: Facts, say: Say) -> DebugReport:
    """Climbs the ladder with ``wish.command``, writes the folder, and reports.

    Raises UsageError for a command that does not exist, a rung that does not, or a folder that may not be made, and
    Undecided where nothing can be run, or what came of it cannot be kept.
    """
    _check(wish)
    started = time.monotonic()
    here = _here()
    there = wish.folder is not None and wish.folder.exists()
    folder = _folder(wish.folder)
    ground = ground.at(folder)
    found = job.tools(ground, wish.command, rungs.TOOLS, folder)
    if not found.program:
        if not there:
            folder.rmdir()
        where = f" in {ground.image}" if ground.image else ""
        fix = "name one that is on PATH, or its path; a file must be executable"
        raise UsageError(f"there is no program `{wish.command[0]}`{where}", fix)
    state = State(wish.command, found, wish.kernels)
    climb = _Climb(wish, ground, facts, here, folder, say, state, started)
    try:
        for rung in rungs.LADDER:
            _climb(climb, rung)
        return _report(climb)
    finally:
        if ground.image:
            _closed(folder)


def _closed(folder: Path) -> None:
    """Takes back what a container's user needed, to write there; whatever lies in the folder's place now stays."""
    with suppress(OSError):
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(place, 0o700)
        finally:
            os.close(place)


def _check(wish: Wish) -> None:
    if not wish.command:
        raise UsageError("there is no command after --", "envkit debug -- python train.py")
    for name in (*wish.only, *wish.skip):
        if name not in rungs.NAMES:
            raise UsageError(f"there is no rung `{name}`", f"one of: {', '.join(rungs.NAMES)}")
    if rungs.NAMES[0] in wish.skip:
        raise UsageError(f"`{rungs.NAMES[0]}` cannot be skipped: the other rungs go by what it shows", "skip others")
    if not all(each.strip() for each in wish.kernels):
        raise UsageError("the name of a kernel is empty", "give --kernel a part of its name")
    for name, seconds, least in (
        ("--budget", wish.budget_s, "above 0"),
        ("--rung-budget", wish.rung_s, "above 0"),
        ("--quiet-for", wish.quiet_s, "0 or more"),
        ("--hang-after", wish.hang_after_s, "0 or more"),
    ):
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and least == "above 0"):
            raise UsageError(f"{name} {seconds:g} is no time", f"give it seconds, {least}")


def _here() -> Path:
    """The folder that envkit was started in."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the folder that envkit was started in is gone", "change into one that is there") from error


def _folder(wish: Path | None) -> Path:
    """The folder for this climb's files: the one wished for, new or empty, or the first free envkit-debug-N, made now,
    so that another envkit that starts beside this one takes the next."""
    number = 0
    while True:
        number += 1
        folder = wish or Path(f"envkit-debug-{number}")
        try:
            folder.mkdir(0o700, parents=wish is not None, exist_ok=wish is not None)  # logs may hold secrets
            if any(folder.iterdir()):
                raise UsageError(f"{folder} is there already and is not empty", "name a new folder")
            return folder.resolve()
        except FileExistsError as error:
            if wish is not None:
                raise UsageError(f"{folder} is there already and is no folder", "name a new folder") from error
        except OSError as error:
            if files.is_full(error):
                raise Undecided(f"the disk is full: {folder} was not made", "name a folder elsewhere: --out") from error
            fix = "name a folder that may be written to: --out"
            raise UsageError(f"the folder {folder} cannot be made: {error.strerror}", fix) from error


def _climb(climb: _Climb, rung: rungs.Rung) -> None:
    wish = climb.wish
    if rung.name != "as-is" and (rung.name in wish.skip or (wish.only and rung.name not in wish.only)):
        climb.steps.append(Step(rung.name, False, "it was not asked for"))
        return
    plan = rung.decide(climb.state)
    if isinstance(plan, Pass):
        get = rungs.how_to_get(plan.missing, climb.facts) if plan.missing else ""
        climb.steps.append(Step(rung.name, False, plan.why, missing=plan.missing, get=get))
        climb.open += [plan.why] if plan.open and plan.why not in climb.open else []
        return
    left = wish.budget_s - (time.monotonic() - climb.started)
    if left < _LEAST_S and rung.name != "as-is":
        why = f"the budget of {wish.budget_s:g} s was spent"
        climb.steps.append(Step(rung.name, False, why))
        climb.open += [why] if why not in climb.open else []
        return
    climb.say(f"{rung.name}: {plan.why}")
    ran = _run(climb, rung.name, plan, min(max(left, 0.0), wish.rung_s))
    # Names of files of the folder, so that a report can be read elsewhere.
    step = Step(rung.name, True, plan.why, round(ran.seconds, 3), ran.exit, ran.ended, files=_kept(climb.folder, ran))
    climb.state = replace(climb.state, runs={**climb.state.runs, rung.name: ran})
    step = replace(step, found=_learn(climb, rung.name, ran))
    climb.steps.append(step)
    climb.say(f"{rung.name}: {_ending(ran)}" + (f"; {step.found}" if step.found else ""))


def _run(climb: _Climb, name: str, plan: Plan, budget_s: float) -> Ran:
    folder = climb.folder / name
    inside = climb.ground.seen(folder)
    argv = plan.around(climb.wish.command, inside) if plan.around else climb.wish.command
    first = name == "as-is"
    after = climb.wish.hang_after_s if first else 0.0
    ran = job.run(
        climb.ground,
        argv,
        folder,
        budget_s=budget_s,
        quiet_s=climb.wish.quiet_s if first or name == "blocking" else 0.0,
        hang_after_s=after,
        environ=plan.environ,
        launches=plan.launches,
        tools={tool: path for tool, path in climb.state.tools.paths.items() if tool in ("py-spy", "gdb")},
    )
    climb.last = (argv, plan.environ, name)
    return ran


def _kept(folder: Path, ran: Ran) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(folder).as_posix() for path in ran.folder.iterdir()))


def _ending(ran: Ran) -> str:
    if ran.ended == "not-started":
        return f"was not started: {ran.error}"
    said = {"hung": "hung", "timed-out": "did not end in its time", "forks": "forked without end"}
    told = f"{said.get(ran.ended, ran.ended)} and was ended after {ran.seconds:.1f} s"
    if ran.ended == "exited":
        told = f"left with {ran.exit} after {ran.seconds:.1f} s"
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


def _learn(climb: _Climb, name: str, ran: Ran) -> str:
    """Takes in what a rung brought; what of it belongs into its step."""
    if name in sanitizer.TOOLS:
        return _learn_sanitizer(climb, name, ran)
    if name == "core-dump":
        return _learn_core(climb, ran)
    if name == "launches":
        return _learn_launches(climb, ran)
    if name == "profile":
        return _learn_profile(climb, ran)
    state = climb.state
    texts = _texts(climb, name, ran)
    if name == "as-is":
        story, explanation = told.explained(texts, climb.facts)
        climb.state = replace(state, stories={**state.stories, name: story}, explanation=explanation)
        if climb.wish.hang_after_s and not ran.succeeded:
            by_ranks = ranks.told(ranks.read(ran), ranks.dumps(ran.folder), climb.state.hangs)
            climb.state = replace(climb.state, told=by_ranks)
            if by_ranks:
                return by_ranks.cause
        crashed = ran.crashed()
        return told.deaths(crashed, ran.exit) if crashed else ""
    climb.state = replace(state, stories={**state.stories, name: told.read(texts)})
    if name == "package-checks":
        return _learn_package(climb, ran, texts)
    python = _raised(ran)
    if python and not ran.succeeded:
        climb.state = replace(climb.state, python=python)
        own = stacks.own_line(python)
        return f"the call that fails is at {own.place} in {own.function}" if own else ""
    return ""


def _learn_package(climb: _Climb, ran: Ran, texts: Mapping[str, bytes]) -> str:
    lines = [line.strip() for line in ran.text().splitlines() if "unmatched" in line]
    if not lines:
        return "the package's checks name no input"
    climb.state = replace(_joined(climb, texts), mixed=lines[0][:300] if "device type" in lines[0] else "")
    return lines[0][:300]


def _texts(climb: _Climb, name: str, ran: Ran) -> dict[str, bytes]:
    """What a run printed and what faulthandler wrote of its deaths, by the names of the files."""
    texts = {f"{name}/output.txt": _tail(ran.output)}
    for pid, text in ran.dumps.items():
        if stacks.died(text)[0]:
            texts[f"{name}/python-{pid}.txt"] = text.encode()
    return texts


def _raised(ran: Ran) -> tuple[PythonFrame, ...]:
    """Where the Python of a run was when it failed: its first exception, else where a process of it died."""
    frames = told.main_frames(ran.events)
    died = [frames for text in ran.dumps.values() if (frames := stacks.died(text)[1])]
    return frames or (died[0] if died else ())


def _learn_sanitizer(climb: _Climb, name: str, ran: Ran) -> str:
    log = ran.folder / "sanitizer.log"
    text = _tail(log).decode("utf-8", "replace")
    found = sanitizer.faults(text, name)
    state = climb.state
    climb.state = replace(state, faults={**state.faults, name: found})
    worst = sanitizer.worst(found)
    if worst:
        if worst.python:
            climb.state = replace(climb.state, python=worst.python)
        climb.state = _joined(climb, {f"{name}/sanitizer.log": _tail(log)})
        return told.sentence(worst, ())
    trouble = sanitizer.trouble(text)
    if ran.ended != "exited":
        trouble = f"it did not end within its budget ({ran.ended})"
    if trouble:
        climb.open.append(f"{name} did not look at the whole command: {trouble}")
        return trouble
    if found:
        return f"nothing that is sure; {len(found)} reports of what libraries or a warp's own threads do"
    return "nothing"


def _joined(climb: _Climb, more: Mapping[str, bytes]) -> State:
    """The state with an explanation of the command's own output and of ``more``."""
    texts = {**_texts(climb, "as-is", climb.state.first), **more}
    return replace(climb.state, explanation=told.explained(texts, climb.facts)[1])


def _learn_core(climb: _Climb, ran: Ran) -> str:
    path = rungs.first_file(ran.folder, "gpu-core-*")
    if path is None:
        climb.open.append("the driver wrote no core dump of the GPU")
        return "the driver wrote no core dump"
    opened = job.run(
        climb.ground,
        cores.command(climb.state.tools.paths["cuda-gdb"], climb.ground.seen(path)),
        ran.folder / "opened",
        budget_s=_READ_S,
    )
    fault = cores.read(opened.text())
    if fault is None:
        return "cuda-gdb named no kernel in the core dump"
    climb.state = replace(climb.state, faults={**climb.state.faults, "core-dump": (fault,)})
    return told.sentence(fault, ())


def _learn_launches(climb: _Climb, ran: Ran) -> str:
    launches = [event for event in ran.events if event.get("event") == "launch"]
    if not launches:
        trouble = [str(event["trouble"]) for event in ran.events if event.get("trouble")]
        return trouble[0] if trouble else "the kernel was not seen being launched"
    places = [python for each in launches if (python := stacks.frames(each.get("frames", ())))]
    if not places:
        return "it is launched by a thread without Python, such as autograd's"
    # Of a kernel that is launched in several places, the call that failed tells which; a lone place needs no telling.
    failed = {frame.place for frame in climb.state.python}
    met = [python for python in places if (own := stacks.own_line(python)) and own.place in failed]
    if met or len(places) == 1 or not failed:
        climb.state = replace(climb.state, python=(met or places)[0])
    own = stacks.own_line(climb.state.python)
    more = f", and {len(places) - 1} other places" if len(places) > 1 else ""
    return f"launched at {own.place} in {own.function}{more}" if own else ""


def _learn_profile(climb: _Climb, ran: Ran) -> str:
    path = rungs.first_file(ran.folder, "*.nsys-rep")
    if path is None:
        return "nsys left no report"
    words = ("stats", "--force-export=true", "--report", "cuda_gpu_kern_sum,cuda_api_sum", "--format", "csv")
    argv = (climb.state.tools.paths["nsys"], *words, climb.ground.seen(path))
    counted = job.run(climb.ground, argv, ran.folder / "counted", budget_s=_READ_S)
    rows = [line for line in counted.text().splitlines() if line[:1].isdigit()]
    return f"most of the GPU's time by nsys: {rows[0][:200]}" if rows else "nsys counted no kernel"


def _report(climb: _Climb) -> DebugReport:
    state, first = climb.state, climb.state.first
    fault = state.fault
    python = (fault.python if fault else ()) or state.python
    hang = stacks.waiting(first.samples) if state.hangs else ()
    table = ranks.rows(ranks.read(first)) if climb.wish.hang_after_s else ()
    verdict, cause, category, cause_class, fix = _verdict(climb, fault, python, hang)
    # What a hanging command printed is not why its ranks wait for one another.
    explanation = state.explanation if (state.failed or fault) and not (state.told and state.hangs) else None
    if explanation and explanation.category == "insufficient-evidence" and category not in ("", explanation.category):
        explanation = None  # the answer comes from elsewhere, and beside it "the log does not tell" would mislead
    # Of a command that did not end by itself envkit ended the rest.
    ended = [each for each in first.children() if first.ended == "exited" or each.exit not in (-15, -9)]
    own = stacks.own_line(python)
    wrong = f"{python[-1].function} at {python[-1].place}" if python else ""
    made = DebugReport(
        command=tuple(repro.redacted_words(climb.wish.command)),
        image=climb.ground.image,
        verdict=verdict,
        cause=cause,
        category=category,
        cause_class=cause_class,
        exit=first.exit,
        steps=tuple(climb.steps),
        fault=fault,
        first_wrong=wrong if own else "",
        python=python,
        children=tuple(sorted(ended, key=lambda each: each.exit not in job.CRASHES)[:_MOST_CHILDREN]),
        hang=hang,
        explanation=explanation,
        fix=fix,
        next=_next(climb, verdict, _follow(state, explanation if not fault else None, category)),
        folder=str(climb.folder),
        files=(),
        elapsed_s=round(time.monotonic() - climb.started, 3),
        versions=state.tools.versions,
        ranks=table,
    )
    return _written(climb, made)


def _verdict(
    climb: _Climb, fault: Fault | None, python: Sequence[PythonFrame], hang: Sequence[Waiting]
) -> tuple[Verdict, str, str, str, str]:
    """The verdict, the cause, its category and class, and the fix."""
    state, first, said = climb.state, climb.state.first, climb.state.explanation
    if fault:
        category = told.category(fault) or (said.category if said and said.cause == "gpu-kernel-bug" else "")
        return Verdict.FOUND, told.sentence(fault, python), category, "gpu-kernel-bug", told.fix(fault)
    if state.mixed:
        cause = f"an AOTInductor package was given an input on another device than it was made for: {state.mixed}"
        fix = "move the inputs to the device of the package, such as x.to('cuda'), before it is called"
        return Verdict.FOUND, cause, "invalid-argument-device-mismatch", "device-mixup", fix
    died = _raised(first) if first.crashed() or (first.exit or 0) < 0 else ()
    if packages.loading(died) and not climb.ground.image:
        deadly = packages.deadly(climb.wish.command, climb.here)
        if deadly:
            own = stacks.own_line(died)
            cause = deadly.cause + (f"; loaded at {own.place} in {own.function}" if own else "")
            return Verdict.FOUND, cause, "undefined-symbol-abi-mismatch", "wrong-build-installed", deadly.fix
    if state.told:
        by_ranks = state.told
        return Verdict.FOUND, by_ranks.cause, by_ranks.category, by_ranks.cause_class, by_ranks.fix
    if state.failed and first.text().rstrip().endswith("EOFError: EOF when reading a line"):
        cause = "the command asks for input, and its stdin is empty under envkit debug"
        return Verdict.UNDECIDED, cause, "", "", "give it a file: -- sh -c 'exec python train.py < answers'"
    return _of_the_first_run(climb, python, hang)


def _of_the_first_run(
    climb: _Climb, python: Sequence[PythonFrame], hang: Sequence[Waiting]
) -> tuple[Verdict, str, str, str, str]:
    """The same by how the command ended as it is, and what its output says."""
    state, first, said = climb.state, climb.state.first, climb.state.explanation
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
        cause = told.deaths(crashed, first.exit) + f"; {said.because}" if crashed else said.because
        own = stacks.own_line(python)
        cause += f"; the call that fails is at {own.place} in {own.function}" if own else ""
        return Verdict.FOUND, cause, said.category, said.cause, said.fix
    if crashed:
        return Verdict.FOUND, told.deaths(crashed, first.exit), said.category if said else "", "", ""
    return _without_words(climb)


def _without_words(climb: _Climb) -> tuple[Verdict, str, str, str, str]:
    """The same where neither an output nor a crash tells of a cause."""
    state, first = climb.state, climb.state.first
    if first.ended == "timed-out":
        cause = (
            f"the command had not ended after {first.seconds:.0f} s, and used or waited for {first.busy:g} processors"
        )
        return Verdict.UNDECIDED, cause, "", "", "give it more time: --rung-budget SECONDS"
    if state.failed:
        return _unexplained(first, state.explanation)
    if climb.open:
        return Verdict.UNDECIDED, f"the command succeeded, but {climb.open[0]}", "", "", ""
    return Verdict.CLEAN, "", "", "", ""


def _unexplained(first: Ran, said: Explanation | None) -> tuple[Verdict, str, str, str, str]:
    """The same of a command that failed and whose output does not tell why."""
    own = stacks.own_line(_raised(first))
    at = f"; it was at {own.place} in {own.function}" if own else ""
    if first.exit is None:
        return Verdict.UNDECIDED, "the command had its keeper ended, which ends the command", "", "", ""
    if first.exit < 0:
        name = told.signal_name(-first.exit)
        if own and first.exit in job.CRASHES:
            cause = f"the command died of {name} ({first.exit}) at {own.place} in {own.function}"
            return Verdict.FOUND, cause, said.category if said else "", "", ""
        cause = f"the command died of {name}, and its output does not tell why{at}"
        look = "look in the kernel's log for the OOM killer (dmesg), or for who else ended it"
        return Verdict.UNDECIDED, cause, "", "", look if first.exit == -signal.SIGKILL else ""
    cause = f"the command left with {first.exit} and its output does not tell why{at}"
    return Verdict.UNDECIDED, cause, "", "", ""


def _follow(state: State, explanation: Explanation | None, category: str) -> tuple[str, ...]:
    """What to do next, by the ranks where they tell the cause, else by what the output says of the same failure."""
    if state.told:
        return state.told.next
    return explanation.next if explanation and category in ("", explanation.category) else ()


def _next(climb: _Climb, verdict: Verdict, more: Sequence[str]) -> tuple[str, ...]:
    if verdict is Verdict.CLEAN:
        return ()
    got = [f"get {step.missing}: {step.get}" for step in climb.steps if step.missing]
    useful = [] if climb.state.fault or climb.state.settled or climb.state.told else list(dict.fromkeys(got))
    return (*more, *useful)


def _written(climb: _Climb, made: DebugReport) -> DebugReport:
    """The report, with its files in the folder: the reproducer, the lock if there is one, and itself."""
    folder = climb.folder
    telling = next((step for step in reversed(climb.steps) if step.ran and step.found not in ("", "nothing")), None)
    argv, added, name = climb.last or (climb.wish.command, {}, "as-is")
    if telling and telling.rung != name:
        argv, added, name = climb.wish.command, {}, "as-is"
    why = f"runs the command as the rung `{name}` of envkit debug ran it"
    if not climb.ground.image:
        # The rung's own files went to its folder; the reproducer's go where it is run.
        words = [word.replace(f"{climb.folder / name}/", "") for word in argv]
        text = repro.script(words, os.environ, added, cwd=str(climb.here), image="", versions=made.versions, why=why)
    else:
        text = repro.script(argv, {}, added, cwd="/", image=climb.ground.image, versions=made.versions, why=why)
    _new(folder / "repro.sh", text, mode=0o700)
    for lock in ("envkit.lock", "uv.lock", "requirements.txt"):
        if climb.ground.image:
            continue
        with suppress(OSError):  # there is none, or it is none
            _new(folder / lock, files.content(climb.here / lock).decode("utf-8", "replace"))
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names |= {"report.json", "report.html"}
    made = replace(made, files=tuple(sorted(names)[:500]))
    _new(folder / "report.json", document(made))
    # Imported here: the templates take longer to import than all else, and the page's module imports this package.
    from envkit.debug import as_html

    _new(folder / "report.html", as_html.render(made))
    return made


def _new(path: Path, text: str, mode: int = 0o600) -> None:
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
