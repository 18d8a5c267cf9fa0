"""Runs a command under the supervisor, on this machine or in a container, and reads back what became of it.

The supervisor (``envkit/payload/companion/envkit_supervisor.py``) is a process of its own: it adopts what the command
forks, bounds what it prints, and ends all of it when its budget is spent or when envkit goes.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Required, TypedDict

import msgspec

from envkit import payload
from envkit.debug import stacks
from envkit.debug.records import Child
from envkit.errors import Undecided
from envkit.records import dataclass
from envkit.system import proc
from envkit.system.proc import Completed

COMPANION = Path(payload.__file__).parent / "companion"
MOST_BYTES = 32 << 20  # of output that are kept of one stage
SUSPICIONS = "suspicions.txt"  # of a run's folder: what its ranks did when they stood still
_FOLLOW_S, _JOIN_S, _MOST_FOLLOWED = 0.25, 5.0, 64 << 10
_MARGIN_S = 180.0  # beyond the budget: stacks of eight processes by a debugger that may take 20 s each, and the end
CRASHES = (-4, -5, -6, -7, -8, -11, -31)  # SIGILL TRAP ABRT BUS FPE SEGV SYS: nobody sends these to end a process


Frame = tuple[str, int | None, str]  # file, line, function


class PlacedTensor(TypedDict):
    """A tensor that a line which failed names, and where it was made, if that was seen."""

    name: str
    device: str
    shape: list[int]
    made: Frame | None


class Earlier(TypedDict):
    """An exception that another was raised out of."""

    kind: str
    message: str
    frames: list[Frame]


class Event(TypedDict, total=False):
    """What the companion writes down: a process that starts, a child that ended, an exception, a launch (``captured``:
    into a graph), one that CUDA refused (``how``: its answer), a copy that nobody waits for (``how``: "back" to the
    CPU or "there"), a CUDA graph that is made (``how``: what torch's cache is on for), a kernel's source (``file`` in
    the run's folder), one that torch.compile copied (``lines``: of the copy and of ``file``) or
    made ("fused", ``frames``: of what), the tensors of a line
    that failed, a call of torch whose numbers are not finite."""

    event: Required[str]
    pid: int
    how: str
    child: int
    exit: int
    waiter: list[Frame]
    kind: str
    message: str
    frames: list[Frame]
    before: list[Earlier]
    kernel: str
    captured: bool
    trouble: str
    library: str
    file: str
    line: int
    tensors: list[PlacedTensor]
    operation: str
    given: bool
    lines: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One run of the command.

    ``ended`` is "exited", "timed-out", "hung", "forks", "stopped" or "not-started" (``error`` says why).  ``exit``
    is negative for a signal, None where the supervisor ended it; ``main`` is the command's own process, ``cuda`` are
    those that mapped the driver's library.  ``events`` are the companion's, ``dumps`` the texts that faulthandler
    wrote by process, ``samples`` the supervisor's looks at a command that did not end.  ``busy`` is how many processors
    it used or waited for in the last seconds, ``left`` how many processes it left behind, ``undying`` how many of all
    that were to end did not, ``stood_s`` for how long no rank had made a step and nothing had been printed.
    """

    folder: Path
    ended: str
    exit: int | None
    seconds: float
    main: int = 0
    error: str = ""
    output_bytes: int = 0
    lost_bytes: int = 0
    processes: int = 0
    cuda: tuple[int, ...] = ()
    busy: float = 0.0
    left: int = 0
    undying: int = 0
    stood_s: float = 0.0
    adopted: tuple[Mapping[str, int], ...] = ()
    events: tuple[Event, ...] = ()
    dumps: Mapping[int, str] = field(default_factory=dict)
    samples: tuple[Mapping[str, Any], ...] = ()

    @property
    def output(self) -> Path:
        """Where its output lies."""
        return self.folder / "output.txt"

    @property
    def succeeded(self) -> bool:
        """Whether it exited with status 0 by itself."""
        return self.ended == "exited" and self.exit == 0

    def suspicions(self) -> tuple[str, ...]:
        """What its ranks did whenever they stood still for long."""
        try:
            with plain_file(self.folder / SUSPICIONS) as file:
                return tuple(file.read(_MOST_FOLLOWED).decode("utf-8", "replace").splitlines())
        except OSError:
            return ()

    def text(self) -> str:
        """What it printed, as far as it was kept."""
        try:
            with plain_file(self.output) as file:
                return file.read(2 * MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def children(self) -> tuple[Child, ...]:
        """The processes that ended otherwise than with 0, by what their parents' Pythons, the supervisor and
        faulthandler learned, in the order of their ends."""
        found: dict[int, Child] = {}
        for event in self.events:
            if event["event"] == "child" and "child" in event and "exit" in event:
                pid = event["child"]
                found[pid] = Child(pid, event["exit"], stacks.frames(event.get("waiter", ())))
        for each in self.adopted:
            if each["exit"]:
                found.setdefault(each["pid"], Child(each["pid"], each["exit"]))
        for pid, text in self.dumps.items():
            words, frames = stacks.died(text)
            known = found.get(pid)
            if words and known:
                found[pid] = Child(pid, known.exit, known.waiter, frames)
            elif words and pid != self.main:
                found[pid] = Child(pid, _SIGNALS.get(words, -6), (), frames)
        return tuple(found.values())

    def crashed(self) -> tuple[Child, ...]:
        """The processes below the command that died of a fault of their own: a signal that nobody sends to end one."""
        return tuple(child for child in self.children() if child.exit in CRASHES)


# faulthandler's words for the signals that it handles (Python, Modules/faulthandler.c)
_SIGNALS = {
    "Segmentation fault": -11, "Aborted": -6, "Bus error": -7, "Floating point exception": -8,
    "Floating-point exception": -8, "Illegal instruction": -4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tools:
    """What there is where the command runs: the command's own path, tools by name ("" for none), versions."""

    program: str
    paths: Mapping[str, str]
    versions: Mapping[str, str]


class CommandTarget(Protocol):
    """Where the command runs."""

    @property
    def image(self) -> str:
        """The image, empty for this machine."""

    def at(self, folder: Path) -> CommandTarget:
        """The same with ``folder`` for the files of all its runs."""

    def seen(self, path: Path) -> str:
        """``path``, which lies in the folder of this debugging or is the companion, as the command sees it."""

    def keep(self, job: Path, timeout_s: float) -> Completed:
        """Runs the supervisor on the job in ``job``."""


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """This machine, with the environment that envkit was started with."""

    image: str = ""

    def at(self, folder: Path) -> LocalMachine:
        """Itself: this machine sees every folder."""
        return self

    def seen(self, path: Path) -> str:
        """The path itself."""
        return str(path)

    def keep(self, job: Path, timeout_s: float) -> Completed:
        """Runs the supervisor as a child of this process, which ends with it."""
        argv = [sys.executable, "-I", str(COMPANION / "envkit_supervisor.py"), str(job)]
        with proc.sigterm_raises():
            return proc.run(argv, timeout_s=timeout_s, grace_s=15.0)


def tools(ground: CommandTarget, argv: Sequence[str], names: Sequence[str], folder: Path) -> Tools:
    """Looks for tools where the command runs; raises Undecided where nothing can be started there."""
    job = folder / "tools.json"
    job.write_text(json.dumps({"find": list(names), "argv": list(argv)}), encoding="utf-8")
    said = _answer(ground.keep(job, 60.0), "look for tools")
    job.unlink()
    return Tools(str(said["program"]), dict(said["tools"]), dict(said["versions"]))


def run(
    ground: CommandTarget,
    argv: Sequence[str],
    folder: Path,
    *,
    budget_s: float,
    quiet_s: float = 0.0,
    hang_after_s: float = 0.0,
    hang_ends: bool = False,
    environ: Mapping[str, str | None] | None = None,
    launches: Sequence[str] = (),
    tools: Mapping[str, str] | None = None,
    most_bytes: int = MOST_BYTES,
    say: Callable[[str], None] | None = None,
) -> CommandRun:
    """Runs ``argv`` with the companion in its Pythons; its files go to ``folder``, which must be new.

    ``launches`` are names of kernels whose launches the companion is to find.  With ``hang_after_s`` the companion
    writes down what each rank does; what ranks do that stand still for so long goes to ``say``, and they are observed
    further: with ``hang_ends`` they are ended then, else only where nobody can go on.  Raises Undecided where the
    supervisor itself fails.
    """
    try:
        folder.mkdir()
    except OSError as error:
        raise _unkept(argv[0], f"{error.strerror}: {folder}") from error
    if ground.image:
        folder.chmod(0o777)  # the image's user is anybody
    inside = ground.seen(folder)
    added: dict[str, str | None] = {
        "ENVKIT_DEBUG_FOLDER": inside,
        "ENVKIT_DEBUG_LAUNCHES": ",".join(launches) or None,
        "ENVKIT_DEBUG_RANKS": "1" if hang_after_s else None,
        "PYTHONUNBUFFERED": "1",  # or what it printed last is lost with it
        **(environ or {}),
    }
    job = folder / "job.json"
    words = {
        "argv": list(argv),
        "folder": inside,
        "companion": ground.seen(COMPANION),
        "environ": added,
        "budget_s": budget_s,
        "quiet_s": quiet_s,
        "hang_after_s": hang_after_s,
        "hang_ends": hang_ends,
        "most_bytes": most_bytes,
        "tools": dict(tools or {}),
    }
    job.write_text(json.dumps(words), encoding="utf-8")
    with _passed_on(folder / SUSPICIONS, say):
        answer = _answer(ground.keep(job, budget_s + _MARGIN_S), f"run {argv[0]}")
    if "unkept" in answer:
        raise _unkept(argv[0], str(answer["unkept"]))
    if folder.is_symlink():
        raise _unkept(argv[0], f"there is a link in the place of {folder}")
    # The whole answer is in a file: the stacks of many processes are too much for a container's output.
    ending = folder / "ending.json"
    try:
        with plain_file(ending) as file:
            said = json.loads(file.read())
        job.unlink()
        ending.unlink()  # with the command lines of all processes, as they were
        return _ran(folder, said)
    except OSError as error:
        raise _unkept(argv[0], f"{error.strerror or error}: {error.filename or ending}") from error


@contextmanager
def _passed_on(path: Path, say: Callable[[str], None] | None) -> Iterator[None]:
    """Passes on each line that comes to a file meanwhile."""
    over = threading.Event()

    def follow(say: Callable[[str], None]) -> None:
        at, ending = 0, False
        while not ending:
            ending = over.wait(_FOLLOW_S)
            with suppress(OSError), plain_file(path) as file:
                file.seek(at)
                text = file.read(_MOST_FOLLOWED)
                whole = text[: text.rfind(b"\n") + 1]
                at += len(whole)
                for line in whole.decode("utf-8", "replace").splitlines():
                    say(line)

    if say is None:
        yield
        return
    thread = threading.Thread(target=follow, args=(say,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_JOIN_S)


def _unkept(program: str, why: str) -> Undecided:
    fix = "see that there is room in the folder of --out, and that the command leaves it alone"
    return Undecided(f"what came of running {program} was not kept: {why}", fix)


def plain_file(path: Path) -> BinaryIO:
    """Opens a file of a run for reading.

    The command owns its folder: a link there may lead to what only envkit may read, and a pipe never ends.  Raises
    OSError for both, as for a file that is not there.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is no file")
    return file


def last_line(ran: CommandRun) -> str:
    """The last line that a run printed, without its blanks; "" for none."""
    return next((line.strip()[:300] for line in reversed(ran.text().splitlines()) if line.strip()), "")


def _answer(done: Completed, what: str) -> dict[str, Any]:
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        how = "did not end in time" if done.timed_out else f"ended with {done.exit}"
        fix = "run it again; if it stays, report it with the files in its folder"
        raise Undecided(f"the supervisor that was to {what} {how}: {last[:300]}", fix)
    return answer


def _ran(folder: Path, said: Mapping[str, Any]) -> CommandRun:
    dumps = {}
    for path in sorted(folder.glob("python-*.txt")):
        number = path.stem.partition("-")[2]
        if number.isdecimal():
            with suppress(OSError), plain_file(path) as file:
                dumps[int(number)] = file.read(1 << 20).decode("utf-8", "replace")
    names = ("main", "error", "output_bytes", "lost_bytes", "processes", "busy", "left", "undying", "stood_s")
    plain: dict[str, Any] = {name: said[name] for name in names if name in said}
    plain |= {name: tuple(said.get(name, ())) for name in ("cuda", "adopted", "samples")}
    events = _events(folder / "events.jsonl")
    ended, seconds = str(said["ended"]), float(said["seconds"])
    return CommandRun(folder, ended, said["exit"], seconds, events=events, dumps=dumps, **plain)


def _events(path: Path) -> tuple[Event, ...]:
    """The companion's events; a line that is none is left out: of a process that was killed while it wrote, or of a
    command that writes there itself."""
    found = []
    try:
        with plain_file(path) as file:
            lines = file.read(16 << 20).splitlines()
    except OSError:
        return ()
    for line in lines:
        with suppress(ValueError, RecursionError):  # json's errors are ValueErrors, as msgspec's are
            found.append(msgspec.convert(json.loads(line), Event))
    return tuple(found)
