"""Sends the payload into an image and reads back what it saw."""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, Protocol

from envkit.engine import CannotStart, DeclaredStart, Engine, Say, where_they_lie
from envkit.engine import Start as CommandLine
from envkit.errors import Undecided, UsageError, nearest, one_line
from envkit.image import aoti as aoti_document
from envkit.image import placement as placement_document
from envkit.image import precision as precision_document
from envkit.image import probe as probe_document
from envkit.image import smoke as smoke_document
from envkit.image.audit import observe as observe_files
from envkit.image.tree import open_tree
from envkit.model import Observed, Reason
from envkit.payload.abilities import FULL_S
from envkit.payload.begin import BEGAN, OLDEST
from envkit.payload.placement import WAYS
from envkit.payload.precision.work import DTYPES
from envkit.payload.probe.environ import steers
from envkit.payload.probe.frameworks import FRAMEWORKS
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import FAULT_KINDS, LEVELS, SUITE, chosen
from envkit.payload.smoke.sanitize import TOOLS
from envkit.payload.waits import LONGEST
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock
from envkit.records import dataclass
from envkit.runner import pack
from envkit.runner import start as starts
from envkit.runner.asked import FLAVOR_LABEL as FLAVOR_LABEL
from envkit.runner.asked import LOCK_LABEL as LOCK_LABEL
from envkit.runner.asked import are_here as are_here
from envkit.runner.asked import default_gpus as default_gpus
from envkit.runner.document import Answer, find
from envkit.subjects import Audit, Image, SmokeRun
from envkit.subjects.aoti import AotiRun
from envkit.subjects.image import NO_PROMISE, ExpectedContents, Start, StartReached, Variable, Wheel
from envkit.subjects.imported import NO_FRAMEWORK, TORCH
from envkit.subjects.placement import Placement
from envkit.subjects.precision import Precision
from envkit.system import files, proc
from envkit.system.proc import Completed
from envkit.versions import Sm

START_S = 90.0  # for an image's own start to reach the job's Python; entry points take well under a second
# What a container meets only because a probe limits it: then its end says nothing of the image.
_OF_THE_SANDBOX = re.compile(
    r"read-only file ?system|operation not permitted|permission denied|name resolution|name or service not known|"
    r"could not resolve|network is unreachable|\bE(?:ROFS|PERM|ACCES)\b|stdin ended",
    re.IGNORECASE,
)
PROBE_S = 300.0  # importing torch from a cold disk takes up to a minute, mapping its libraries a few seconds
PRECISION_S = 600.0  # four steps, each operation of two of them beside its wide twin
PLACEMENT_S = 300.0  # torch is imported up to twice, and the model is the user's
AOTI_S = 900.0  # a package is loaded up to three times, each time behind an import of torch
# Far above what a level takes (about 15 s and 2 minutes on a GPU): each test has a budget of its own.
SMOKE_S = {"quick": 600.0, "full": 1200.0, "stress": 600.0}
_SLOWER = 3.0  # each test under each of its injected faults, or under compute-sanitizer
_SMOKE_MARGIN_S = 10.0
_EXTRA_DIR = "/envkit-extra"  # where a container sees the user's own tests

_LABEL_LIMIT = 1 << 20  # characters; the lock of a whole image has twenty thousand
_CODE_DIR = "/envkit-code"  # where a container sees the user's folder
_GRACE_S = 10.0  # beyond the payload's own budget, in which it ends itself and says so
_TALK = 300  # lines of a run's stderr that are passed on as they come; the smoke suite says one a test
_TAIL = 15  # lines of a flood's end that are passed on as well
_LINE = 1000  # characters of one line that are passed on
_PYTHON_S = 60.0  # for a Python to say one word; it takes 20 ms, but for a cold disk or a machine under load
_WORDS = 300  # characters of a dead payload's last words that stand in the message


@cache
def _payload() -> bytes:
    """The payload as this process sends it, packed once."""
    return pack.pack()


class ExecTarget(Protocol):
    """Somewhere the payload can run: an image in an engine, or a Python of this machine."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    @property
    def digest(self) -> str:
        """Its content's name, empty if it has none."""
        ...

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that a run there is given: "all", or one name each."""
        ...

    @property
    def where(self) -> str:
        """The engine that it is an image of, empty if it is none."""
        ...

    def promise(self) -> Observed[ExpectedContents]:
        """What it was built to hold."""
        ...

    def run(self, argv: list[str], timeout_s: float, say: Say, mounts: Mapping[str, Path] | None = None) -> Completed:
        """Runs the payload with ``argv`` there; ``mounts`` is what it may read here, by the path it sees."""
        ...


@dataclass(frozen=True, slots=True)
class InEngine:
    """An image of an engine, shown the GPUs in ``gpus``; what runs there ends early once ``stop`` says True."""

    engine: Engine
    name: str
    digest: str
    gpus: tuple[str, ...]
    stop: Callable[[], bool] | None = None
    start: CommandLine | None = None  # by which command line the payload starts; None: past the image's own start
    placed: DeclaredStart | None = None  # what counts in the place of the image's variables, user and folder
    bound: Mapping[str, Path] | None = None  # what is mounted beside what a run needs

    @property
    def where(self) -> str:
        """What the engine calls itself."""
        return self.engine.where

    def promise(self) -> Observed[ExpectedContents]:
        """The lock in the image's label, if envkit built it."""
        return promised(self.engine.labels(self.name), self.name)

    def run(self, argv: list[str], timeout_s: float, say: Say, mounts: Mapping[str, Path] | None = None) -> Completed:
        """Runs the payload in a container of its own."""
        return self.engine.run(
            self.name,
            argv,
            payload=_payload(),
            gpus=self.gpus,
            # Of envkit's own entry point, which would end a run without the GPUs that it was promised.
            env={"ENVKIT_GPUS": "0"} if self.start and not self.gpus else None,
            start=self.start,
            placed=self.placed,
            mounts={**(self.bound or {}), **(mounts or {})},
            timeout_s=timeout_s,
            say=say,
            stop=self.stop,
        )


@dataclass(frozen=True, slots=True)
class LocalPython:
    """A Python of this machine, in this machine's own environment.

    ``gpus`` are the GPUs that it must see; names of single ones narrow what it can see.
    """

    python: Path
    gpus: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The path of the interpreter."""
        return str(self.python)

    @property
    def digest(self) -> str:
        """Nothing: a live environment has no name for its content."""
        return ""

    @property
    def where(self) -> str:
        """Nothing: it is in no engine."""
        return ""

    def promise(self) -> Observed[ExpectedContents]:
        """Nothing was promised of it."""
        return Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE)

    def run(self, argv: list[str], timeout_s: float, say: Say, mounts: Mapping[str, Path] | None = None) -> Completed:
        """Runs the payload as a child of this process."""
        with proc.scratch_folder() as scratch:
            file = scratch / "envkit.pyz"
            file.write_bytes(_payload())
            words = [*where_they_lie(argv, mounts or {}), "--watch-stdin", "--scratch", str(scratch)]
            environment = dict(os.environ)
            if self.gpus and self.gpus != ("all",):
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
            command = [str(self.python), str(file), *words]
            try:
                return proc.run(command, timeout_s=timeout_s, env=environment, hold_stdin=True, on_line=say)
            except FileNotFoundError:
                raise UsageError(f"there is no {self.python}", "name a Python interpreter") from None
            except OSError as error:
                raise UsageError(
                    f"{self.python} cannot be run: {files.why(error)}", "name a Python interpreter"
                ) from error


def promised(labels: Mapping[str, str], name: str) -> Observed[ExpectedContents]:
    """What the labels of the image ``name`` promise, if envkit built it; raises UsageError for one that is no lock."""
    text = labels.get(LOCK_LABEL, "")
    if not text:
        return Observed.lost(NO_PROMISE, reason=Reason.NO_PROMISE)
    if len(text) > _LABEL_LIMIT:
        said = f"the label {LOCK_LABEL} of {name} has {len(text)} characters, which no lock has"
        raise UsageError(said, "build the image with `envkit build`")
    flavor = labels.get(FLAVOR_LABEL, "")
    if flavor not in locks.FLAVORS:
        said = f"the label {FLAVOR_LABEL} of {name} is {one_line(repr(flavor))}, which is no flavor"
        raise UsageError(said, "build the image with `envkit build`")
    return Observed.of(promise_of(locks.parse(text, f"the label {LOCK_LABEL} of {name}"), flavor), LOCK_LABEL)


def promise_of(lock: Lock, flavor: str) -> ExpectedContents:
    """What an image of ``flavor`` built from ``lock`` must hold."""
    wheels, _ = locks.upto(lock, flavor)
    return ExpectedContents(
        torch=str(lock.torch),
        cuda=str(lock.cuda or ""),
        wheels=tuple(Wheel(pin.name, pin.version) for pin in wheels),
        gpus=tuple(Sm.parse(capability) for _, capability, _ in lock.gpus),
        lock_sha256=sha256(locks.dump(lock).encode()).hexdigest(),
        whole=not lock.preinstalled,
        unpinned=tuple(locks.unpinned(lock).values()),
        project=lock.project.name if lock.project else "",
    )


def interpreter(python: Path) -> Path:
    """``python`` if it is one; asked before any work, in 20 ms.

    Raises UsageError for a name that leads to no program, or to one that is no Python, and Undecided for one that does
    not answer.  A Python that fails passes: the payload's run says more about it.
    """
    fix = "name the program itself, such as .venv/bin/python"
    word = secrets.token_hex(8)
    try:
        done = proc.run([str(python), "-I", "-S", "-c", f"print({word!r})"], timeout_s=_PYTHON_S, most_bytes=1 << 20)
    except FileNotFoundError:
        there = (
            f"the interpreter in the first line of {python} does not exist"
            if os.path.exists(python)
            else f"there is no Python {python}"
        )
        raise UsageError(there, fix) from None
    except (OSError, ValueError) as error:
        said = "it is a folder" if os.path.isdir(python) else str(getattr(error, "strerror", None) or error).lower()
        raise UsageError(f"{one_line(str(python))} cannot be run: {said}", fix) from error
    except Undecided as error:
        raise UsageError(
            f"{python} is not a Python: asked to print one word, it printed more than 1 MiB", fix
        ) from error
    if done.timed_out:
        raise Undecided(f"{python} did not answer within {_PYTHON_S:g} s", "run it by itself to see what it waits for")
    if done.stdout.split()[-1:] == [word]:
        return python
    if done.exit and re.search("python", done.stderr.replace(str(python), ""), re.IGNORECASE):
        return python
    said = one_line(_last_words(done.stderr.strip() or done.stdout.strip())[:_WORDS])
    how = f" and printed `{said}`" if said else ""
    raise UsageError(
        f"{python} is not a Python: asked to print one word, it ended with exit code {done.exit}{how}", fix
    )


def _ask(
    place: ExecTarget,
    what: str,
    kind: str,
    words: list[str],
    timeout_s: float,
    say: Say,
    mounts: Mapping[str, Path] | None = None,
) -> Mapping[str, Any]:
    """Runs the payload in ``place`` and gives its document.

    A document counts only if the run ended well and if exactly one repeats this run's nonce and the sha256 of the
    payload that was sent: what the image's own code printed at Python's start or end, or left over from elsewhere, is
    none.  An image that forges on purpose can read the nonce and print in the payload's place; the seal is against
    accidents and cheap lies.  Raises Undecided without a document.
    """
    return _sent(place, kind, words, timeout_s, say, mounts).document(place.name, what)


@dataclass(frozen=True, slots=True)
class _Sent:
    """What came back of a run: how it ended, what it answered, and the budget that it went past, 0 if it did not."""

    done: Completed
    answer: Answer
    late_s: float

    def document(self, name: str, what: str) -> Mapping[str, Any]:
        """The document; raises Undecided where there is none that counts."""
        if self.answer.document is not None and self.done.exit == 0 and not self.late_s:
            return self.answer.document
        raise _no_answer(name, what, self.done, self.answer, self.late_s)


def _sent(
    place: ExecTarget,
    kind: str,
    words: list[str],
    timeout_s: float,
    say: Say,
    mounts: Mapping[str, Path] | None = None,
) -> _Sent:
    seal = {"nonce": secrets.token_hex(16), "payload_sha256": sha256(_payload()).hexdigest()}
    argv = [kind, "--budget", f"{timeout_s:.0f}", *words, "--nonce", seal["nonce"]]
    started = time.monotonic()
    talk = _Progress(kind, say)
    # inside, what waits for a processor is given more time, up to this
    done = place.run(argv, timeout_s * LONGEST + _GRACE_S, talk.hear, mounts)
    talk.end()
    late = done.timed_out or (done.exit != 0 and time.monotonic() - started >= timeout_s)
    return _Sent(done, find(done.stdout, seal), timeout_s if late else 0.0)


class _Progress:
    """Passes on what a run says on stderr, of a flood its beginning and its end."""

    def __init__(self, kind: str, say: Say) -> None:
        self._kind, self._say = kind, say
        self._told = 0
        self._held: deque[str] = deque(maxlen=_TAIL)
        self._silent = 0

    def hear(self, line: str) -> None:
        """Takes one line."""
        if not line.strip():
            return
        line = line if len(line) <= _LINE else line[:_LINE] + "..."
        if self._told < _TALK:
            self._told += 1
            self._say(f"{self._kind}: {line}")
            return
        self._silent += len(self._held) == _TAIL
        self._held.append(line)

    def end(self) -> None:
        """Tells what was held back."""
        if self._silent:
            self._say(f"{self._kind}: ({self._silent} lines are left out)")
        for line in self._held:
            self._say(f"{self._kind}: {line}")


def _no_answer(name: str, what: str, done: Completed, answer: Answer, late_s: float) -> Undecided:
    """Why a run has no document that counts; ``late_s`` is the budget that it went past, 0 if it did not."""
    if late_s:
        how = f"did not end within {late_s:g} s"
    elif done.exit < 0:
        how = f"was killed by {proc.signal_name(-done.exit)}"
    else:
        how = f"ended with exit code {done.exit}"
    words = _last_words(done.stderr.strip() or ("" if answer.began else done.stdout[-_LINE:]))
    because = f": {words}" if words else ""
    began = answer.began
    if answer.forged:
        return Undecided(
            f"the {what} in {name} {how} and {answer.missing}",
            "something in the image prints output in place of the payload: check what its Python runs at startup "
            "and exit (sitecustomize, usercustomize, .pth files)",
        )
    if answer.document is not None:
        said = f"the {what} in {name} printed its result and then {how}{because}"
        return Undecided(said, "run it again; if that does not help, check what the image's Python runs at exit")
    if began is None:
        return Undecided(
            f"the Python of {name} {how} before it ran a line of the payload{because}",
            "run it by itself, as in `docker run --rm IMAGE python3 -c pass`, and fix that: PYTHONHOME, sitecustomize "
            "and .pth files take effect before any program, and a Python for another machine or C library runs none",
        )
    if began.get("libc") == "musl":
        return Undecided(
            f"the Python of {name} uses musl, but torch, CUDA and the payload need glibc",
            "build the image on a distribution with glibc, such as Debian, Ubuntu or Rocky Linux, in place of Alpine",
        )
    oldest = ".".join(map(str, OLDEST))
    version = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.\d{1,3}", began.get("python", ""))
    if version and (int(version[1]), int(version[2])) < OLDEST:
        said = f"the Python of {name} is {one_line(began.get('python', ''))}, but the payload needs {oldest} or newer"
        return Undecided(said, f"put a Python of {oldest} or newer first on the image's PATH as python3")
    budget = "; if it needs longer than that, something in the image hangs" if late_s else ""
    memory = "; an unexpected SIGKILL is usually the kernel's, because memory ran out" if done.exit == -9 else ""
    said = f"the {what} in {name} {how} and {answer.missing}{because}"
    return Undecided(said, f"see what the image's Python printed on stderr, shown above{memory}{budget}")


def _last_words(stderr: str) -> str:
    """The line that says most of why a program ended: the last that names an error, else the last one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("envkit payload:")]
    telling = [line for line in lines if re.search(r"error|fault|fatal|abort|exception|cannot|killed", line, re.I)]
    last = (telling or lines or [""])[-1]
    return one_line(last[:_WORDS].rstrip(".") + ("..." if len(last) > _WORDS else ""))


def audit(
    target: str,
    engine: Callable[[], Engine],
    say: Say,
    *,
    gpus: tuple[Sm, ...] = (),
    hash_all: bool = False,
    frameworks: tuple[str, ...] = (),
) -> Audit:
    """What the files of ``target`` show: a directory, a saved image, or an image of what ``engine`` gives.

    ``gpus`` are those it must run on besides the ones it was declared for.  ``hash_all`` compares every file of torch
    and CUDA with its wheel's hash.  ``frameworks`` as in Audit, by ``asked_frameworks``.  Raises what ``open_tree``
    raises.
    """
    held: list[Engine] = []

    def asked() -> Engine:
        held.append(engine())
        return held[0]

    say(f"reading {target}")
    with open_tree(target, asked, say) as tree:
        labels = tree.config.get("Labels")
        texts = {str(key): str(text) for key, text in labels.items()} if isinstance(labels, dict) else {}
        promise = promised(texts, target)
        seen = observe_files(tree, gpus=gpus, promise=promise, hash_all=hash_all, say=say)
    return replace(seen, frameworks_asked=frameworks, engine=held[0].where if held else "")


def asked_frameworks(names: Sequence[str]) -> tuple[str, ...]:
    """The packages whose import shall be proven; raises UsageError for one that the probe does not import."""
    known = (TORCH, *FRAMEWORKS, NO_FRAMEWORK)
    for name in names:
        if name not in known:
            said = f"there is no known framework `{one_line(name)}`{nearest(name, list(known))}"
            raise UsageError(said, f"one of: {', '.join(known)}")
    if NO_FRAMEWORK in names and len(set(names)) > 1:
        raise UsageError(f"--framework {' and '.join(names)} cannot be used together", "name frameworks, or none")
    return tuple(dict.fromkeys(names))


def probe(
    place: ExecTarget,
    say: Say,
    timeout_s: float = PROBE_S,
    static: bool = False,
    frameworks: tuple[str, ...] = (),
    command: tuple[str, ...] = (),
    direct: bool = False,
    override: starts.Override | None = None,
    abilities: str = "quick",
) -> Image:
    """What the process in ``place`` really maps, binds and can do; raises Undecided if it cannot be learned.

    With ``static`` nothing is imported there, and only what needs no torch is seen.  ``frameworks`` as in Image, by
    ``asked_frameworks``.  In an image the process is started as its job would be, with ``command`` in the place of CMD
    if that is given; with ``direct``, and where that start does not reach the job's Python, it is the first python3.
    ``override`` is what a file says of the start, in the place of what the image says.
    ``abilities`` is the level of what is tried: "none", "quick" or "full", which takes minutes.
    """
    promise = place.promise()
    say(f"probing {place.name}")
    words = ["--static"] if static else ["--abilities", abilities]
    if promise.value and promise.value.gpus and not static:
        words += ["--sm", ",".join(dict.fromkeys(f"{sm.major}{sm.minor}" for sm in promise.value.gpus))]
    timeout_s += FULL_S if abilities == "full" else 0.0
    start: Observed[Start] = Observed.unsupported("it was examined past its own start")
    document = None
    if isinstance(place, InEngine) and place.engine.containers:
        declared = place.engine.declared(place.name)
        if override is not None:
            declared = override.declared(declared)
            place = replace(place, placed=declared, bound=override.mounts)
        if not direct:
            by = (override.name, override.unknown) if override else ("", ())
            start, document = _as_its_job(place, declared, words, timeout_s, say, command, *by)
    try:
        document = document or _ask(place, "probe", "probe", words, timeout_s, say)
        seen = probe_document.read(document, place.name, place.digest, promise, place.gpus)
    except Undecided as error:
        if start.value is None or not _never_starts(start.value):
            raise
        say(f"nothing more can be learned: {error.message}")
        seen = probe_document.unlearned(place.name, place.digest, promise, place.gpus, error.message)
    return replace(seen, frameworks_asked=frameworks, engine=place.where, start=start)


def _never_starts(start: Start) -> bool:
    """Whether it is the image's own doing, wherever it runs, that its job never starts: that is found, though no Python
    of it tells more.  Time is this machine's, and a program for another machine may start there."""
    named = start.job != (starts.DEFAULT,)
    return named and start.reached is StartReached.FAILED and "exec format error" not in start.how.lower()


def _as_its_job(
    place: InEngine,
    declared: DeclaredStart,
    words: list[str],
    timeout_s: float,
    say: Say,
    command: tuple[str, ...],
    named_by: str,
    unset: tuple[str, ...],
) -> tuple[Observed[Start], Mapping[str, Any] | None]:
    """How a container of the image starts its job, and the document of a probe that was started so; None without one.

    ``named_by`` is the file that says how, if one does, and ``unset`` are its variables that nobody knows here.

    Raises Undecided where the payload was reached and left no document.
    """
    try:
        job, at = starts.planned(declared, command, _reader(place))
    except starts.Unclear as error:
        say(f"the job's own start is not known: {error}")
        return Observed.lost(f"{error}; name the job with --command, or use --direct"), None
    steering = {name: value for name, value in declared.environment.items() if steers(name)}
    start = Start(
        job,
        at.python,
        StartReached.REACHED,
        variables=tuple(Variable(name, value) for name, value in sorted(steering.items())),
        path=declared.environment.get("PATH", ""),
        user=declared.user,
        workdir=declared.workdir,
        named_by=named_by,
        unset=unset,
        through=at.through,
    )
    began: list[float] = []
    deadline = time.monotonic() + START_S

    def hear(line: str) -> None:
        if line.endswith(BEGAN):
            began.append(time.monotonic())
        else:
            say(line)

    def stop() -> bool:
        return bool(place.stop and place.stop()) or (not began and time.monotonic() >= deadline)

    words = [*words, "--announce", *(("--folder", at.folder) if at.folder is not None else ())]
    via = "a container that starts as the image says, with the payload in the place of its Python"
    try:
        sent = _sent(replace(place, start=at.words, stop=stop), "probe", words, timeout_s, hear)
    except CannotStart as error:
        if not declared.entrypoint and at.python == starts.DEFAULT:
            raise
        return Observed.of(replace(start, reached=StartReached.FAILED, how=error.message), via), None
    answer = sent.answer
    if began or answer.began is not None or answer.document is not None or answer.forged:
        return Observed.of(start, via), sent.document(place.name, "probe")
    return _unreached(start, sent.done, via), None


def _unreached(start: Start, done: Completed, via: str) -> Observed[Start]:
    """The start of a container that did not come as far as the payload."""
    said = _last_words(done.stderr.strip() or done.stdout[-_LINE:]).removeprefix(starts.SAYS)
    because = f": {said}" if said else ""
    if done.timed_out:
        return Observed.of(replace(start, reached=StartReached.HUNG, how=f"within {START_S:g} s{because}"), via)
    if done.exit == 0:
        return Observed.of(replace(start, reached=StartReached.DROPPED, how=said), via)
    ended = f"was killed by {proc.signal_name(-done.exit)}" if done.exit < 0 else f"ended with exit code {done.exit}"
    if done.exit == starts.NO_PYTHON or _OF_THE_SANDBOX.search(done.stderr):
        return Observed.lost(
            f"the container {ended} before it reached the job's Python{because} (a probe gives it no network, no "
            "capabilities and a read-only file system); name the job's Python with --command, or use --direct"
        )
    return Observed.of(replace(start, reached=StartReached.FAILED, how=f"{ended}{because}"), via)


def _reader(place: InEngine) -> starts.Read:
    def read(path: str) -> bytes | None:
        try:
            return place.engine.file(place.name, path)
        except UsageError:
            return None

    return read


@dataclass(frozen=True, slots=True)
class SmokeRequest:
    """Which tests of the smoke suite to run, and how.

    ``level`` is "quick", "full" or "stress", the last for ``minutes``; ``only`` names tests of any level, ``exclude``
    takes some away.  ``extra`` are files whose functions smoke_* are tests too.  ``injected_fault`` ("all" or one kind)
    disturbs each result on purpose, to show that the checks go red; ``sanitize`` names a tool of compute-sanitizer.
    """

    level: str = "quick"
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    extra: tuple[Path, ...] = ()
    injected_fault: str = ""
    sanitize: str = ""
    minutes: float = 0.0

    def check(self) -> None:
        """Raises UsageError for a level, test, injected fault, tool or file that does not exist, and for no sense."""
        names = [test.name for test in TESTS]
        for given, kind, known in (
            ((self.level,), "level", list(LEVELS)),
            (self.only, "smoke test", names),
            (self.exclude, "smoke test", names),
            ((self.injected_fault,) if self.injected_fault else (), "kind of injected fault", ["all", *FAULT_KINDS]),
            ((self.sanitize,) if self.sanitize else (), "tool of compute-sanitizer", list(TOOLS)),
        ):
            for word in given:
                if word not in known:
                    near = get_close_matches(word, known, 4, 0.4) if kind == "smoke test" else known
                    named = f"one of: {', '.join(near)}" if near else "`envkit smoke --list --level full` names all"
                    raise UsageError(f"there is no {kind} `{word}`", named)
        for file in self.extra:
            fix = "name a Python file with functions smoke_*(bench)"
            if not os.path.lexists(file):
                raise UsageError(f"there is no file {file}", fix)
            files.text(file, fix)
        if not 0 <= self.minutes < inf:
            raise UsageError(f"--minutes {self.minutes:g} is not above 0", "give --minutes a number above 0")
        if (self.level == "stress") != (self.minutes > 0.0):
            raise UsageError(
                "--level stress and --minutes must be used together", "as in `envkit smoke --level stress --minutes 10`"
            )
        if self.injected_fault and self.sanitize:
            raise UsageError("--inject-fault and --sanitize cannot be used together", "use only one of them")
        if not chosen(TESTS, self.level, self.only, self.exclude) and not self.extra:
            raise UsageError("no smoke test is left to run", "exclude fewer, or name another level")


def smoke(place: ExecTarget, say: Say, request: SmokeRequest | None = None, timeout_s: float = 0.0) -> SmokeRun:
    """The smoke suite in ``place``, as far as ``request`` asks for it (by default the quick tests).

    Raises UsageError for options that make no sense, Undecided if the suite leaves no document.
    """
    request = request or SmokeRequest()
    request.check()
    promise = place.promise().value
    asked = SmokeRun(
        place.name,
        place.digest,
        **{name: getattr(request, name) for name in ("injected_fault", "sanitize", "level", "only", "exclude")},
        gpus_given=place.gpus,
        torch_promised=promise.torch if promise else "",
        gpus_promised=tuple(dict.fromkeys(f"sm_{sm.major}{sm.minor}" for sm in promise.gpus)) if promise else (),
        suite=SUITE,
        engine=place.where,
    )
    say(f"running the smoke suite in {place.name}")
    slower = _SLOWER if request.injected_fault or request.sanitize else 1.0
    budget_s = timeout_s or SMOKE_S[request.level] * slower + 60 * request.minutes
    words = ["--level", request.level, "--seconds", f"{budget_s - _SMOKE_MARGIN_S:.0f}"]
    words += [word for name in request.only for word in ("--only", name)]
    words += [word for name in request.exclude for word in ("--exclude", name)]
    for option, value in (("--inject-fault", request.injected_fault), ("--sanitize", request.sanitize)):
        words += [option, value] if value else []
    words += ["--stress-seconds", f"{60 * request.minutes:g}"] if request.minutes else []
    words += [] if place.gpus else ["--device", "cpu"]
    words += [word for sm in asked.gpus_promised for word in ("--sm", sm.removeprefix("sm_"))]
    inside = {f"{_EXTRA_DIR}/{number}-{file.name}": file for number, file in enumerate(request.extra)}
    words += [word for at in inside for word in ("--test-file", at)]
    document = _ask(place, "smoke suite", "smoke", words, budget_s, say, inside or None)
    return smoke_document.read(document, asked)


def aoti(
    place: ExecTarget,
    say: Say,
    package: Path,
    *,
    inputs: str = "",
    code: Path | None = None,
    model: str = "",
    runner: str = "",
    timeout_s: float = AOTI_S,
) -> AotiRun:
    """What the AOTInductor package or library at ``package`` was made for, and how it loads and runs in ``place``.

    ``inputs`` ("module:function") makes the arguments, with ``code`` put before sys.path; without it they are made from
    the package's own description.  ``model`` names one of its models, ``runner`` ("cpu" or "cuda") the runner class
    that is meant to load it.  Raises UsageError for a file or folder that is not there, Undecided without a document.
    """
    if not os.path.isfile(package):
        raise UsageError(f"there is no package {package}", "name a .pt2 file, or the library that torch compiled")
    if code is not None and not os.path.isdir(code):
        raise UsageError(f"there is no folder {code}", "name the folder that holds the module of --inputs")
    if inputs and not re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", inputs):
        raise UsageError(f"`{inputs}` names no function", "write it as module:function")
    if runner not in ("", "cpu", "cuda"):
        raise UsageError(f"there is no runner `{runner}`", "cpu or cuda")
    inside = "/envkit-aoti/package" + (package.suffix if package.suffix in (".pt2", ".so") else ".pt2")
    mounts = {inside: package}
    words = [inside, "--seconds", f"{max(2.0, timeout_s / 3 - 5):.0f}"]
    if code is not None:
        mounts["/envkit-code"] = code
        words += ["--code", "/envkit-code"]
    for option, value in (("--inputs", inputs), ("--model", model), ("--runner", runner)):
        words += [option, value] if value else []
    say(f"loading {package} in {place.name}")
    document = _ask(place, "package's run", "aoti", words, timeout_s, say, mounts)
    asked = AotiRun(place.name, place.digest, runner, inputs, place.gpus, engine=place.where)
    return aoti_document.read(document, asked, str(package))


def placement(
    place: ExecTarget,
    target: str,
    say: Say,
    code: Path | None = None,
    how: str = "auto",
    rank_folder: Path | None = None,
    timeout_s: float = PLACEMENT_S,
) -> Placement:
    """Where the tensors of the model that ``target`` ("module:factory") makes live, followed through one run.

    ``code`` is the folder of this machine that the module lies in; without it the module is the image's own, found from
    its working directory.  ``how`` is "auto", "run", "fake" or "trace" (envkit.payload.placement).  ``rank_folder`` is
    a folder that all ranks of a distributed job write to; it is for a Python of this machine, for a container writes
    nowhere.  Raises UsageError for options that make no sense, Undecided if the run leaves no document.
    """
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", target):
        raise UsageError(f"{one_line(repr(target))} is not of the form module:factory", "as in train.model:example")
    if how not in WAYS:
        raise UsageError(f"there is no mode {one_line(repr(how))} for a model", f"one of: {', '.join(WAYS)}")
    if code is not None and not os.path.isdir(code):
        raise UsageError(f"there is no folder {code}", "name the folder that the module lies in")
    if rank_folder is not None and isinstance(place, InEngine):
        said = "ranks cannot be compared from a container, because it cannot write anywhere"
        raise UsageError(said, "start envkit in the job's own container, once for each rank")
    if rank_folder is not None and not os.path.isdir(rank_folder):
        raise UsageError(f"there is no folder {rank_folder}", "make one that all ranks of the job can write to")
    ranks = rank_folder is not None
    asked = Placement(place.name, place.digest, target, gpus_given=place.gpus, ranks_asked=ranks, engine=place.where)
    words = [target, "--mode", how, "--seconds", f"{max(1.0, timeout_s - 5):.0f}"]
    words += ["--code", _CODE_DIR] if code is not None else []
    words += ["--rank-folder", str(rank_folder.resolve())] if rank_folder is not None else []
    say(f"following {target} in {place.name}")
    mounts = {_CODE_DIR: code} if code is not None else None
    return placement_document.read(_ask(place, "placement", "placement", words, timeout_s, say, mounts), asked)


def precision(
    place: ExecTarget,
    target: str,
    say: Say,
    *,
    dtype: str = "bfloat16",
    autocast: bool = False,
    code: Path | None = None,
    timeout_s: float = PRECISION_S,
) -> Precision:
    """What ``dtype`` does to one step of the model that ``target`` ("module:factory") makes, operation by operation.

    The model and its inputs are cast to ``dtype``, or run under torch.autocast with ``autocast``.  ``code`` is the
    folder of this machine that the module lies in; without it the module is found from the working directory.  Raises
    UsageError for options that make no sense, Undecided if the run leaves no document.
    """
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", target):
        raise UsageError(f"{one_line(repr(target))} is not of the form module:factory", "as in train.model:example")
    full = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32"}.get(dtype, dtype)
    if full not in DTYPES:
        raise UsageError(f"there is no dtype `{one_line(dtype)}` here", f"one of: {', '.join(DTYPES)}")
    if autocast and full == "float32":
        raise UsageError("autocast to float32 changes nothing", "name bfloat16 or float16, or leave --autocast out")
    if code is not None and not os.path.isdir(code):
        raise UsageError(f"there is no folder {code}", "name the folder that the module lies in")
    if not 0 < timeout_s < inf:
        raise UsageError("the budget is not above 0 seconds", "give --budget seconds above 0")
    asked = Precision(place.name, place.digest, target, full, autocast, gpus_given=place.gpus, engine=place.where)
    words = [target, "--dtype", full, "--seconds", f"{max(1.0, timeout_s - 5):.0f}"]
    words += ["--autocast"] if autocast else []
    words += ["--code", _CODE_DIR] if code is not None else []
    say(f"running the steps of {target} in {place.name}")
    mounts = {_CODE_DIR: code} if code is not None else None
    return precision_document.read(_ask(place, "precision run", "precision", words, timeout_s, say, mounts), asked)


def this_python(gpus: tuple[str, ...] = ()) -> LocalPython:
    """The Python that envkit itself runs under, which must see the GPUs in ``gpus``."""
    return LocalPython(Path(sys.executable), gpus)
