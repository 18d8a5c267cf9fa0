"""Keeps one command: runs it, keeps its output within bounds, looks at its stacks when it hangs, leaves nothing behind.

``python3 envkit_supervisor.py JOB`` reads a JSON document and prints one.  The supervisor adopts whatever the command
forks and loses (PR_SET_CHILD_SUBREAPER), so it can end all of it, however often it forked and whatever signals it
ignores. It needs the standard library alone, and runs in an image as on a machine.

A job: ``argv``, ``folder`` (for its files), ``environ`` (added to this one; null takes a name away),
``companion`` (a folder that goes first into PYTHONPATH), ``budget_s``, ``quiet_s`` (how long it may be silent
before its stacks are compared; 0 for ever), ``hang_after_s`` (how long its ranks may write down no step of their own
before they are suspected, and what each of them does goes to ``suspicions.txt``; 0 for ever; with ``hang_ends`` the job
is ended then, else only where its stacks say that it cannot go on), ``most_bytes`` of output that are kept, half of its
beginning and half of its end, ``tools`` (py-spy, gdb) for stacks by their paths; or ``find``: names of tools to look
for, with ``argv`` to look beside.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import glob
import importlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any, NamedTuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # -I leaves it out
sys.dont_write_bytecode = True  # where a limit cuts files short, half a module would stay for every later run
doings: Any = importlib.import_module("envkit_doing")

SIGNAL = int(signal.SIGRTMAX) - 3  # as in envkit_companion
MOST_PROCESSES = 4096  # of one command; the workers of eight ranks, their compilers' included, are some hundreds
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)  # what ends the supervisor, and all below it
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_TICK_S = 0.05
_LOOK_S = 0.25  # between looks at what processes there are
_GRACE_S = 3.0  # after SIGTERM
_HUNG_GRACE_S = 0.5  # for a command that waits for ever
_TIDY_S = 1.0  # then, for shared memory to be taken away
_TIDIES = re.compile(r"multiprocessing.resource_tracker|torch_shm_manager")
_SWEEP_S = 10.0  # for all to be gone after SIGKILL; one in an uninterruptible driver call outlives it
_SAMPLES, _APART_S = 3, 3.0  # of the stacks, before a silent command is called hung
_IDLE = 0.1  # processors in use by what waits; Python's own threads wake now and then
# processors that are used or waited for by what computes; on a busy machine a thread that wakes waits too
_WORKING = 0.5
# The innermost frame of a main thread that waits, though it may spin: what torch waits in for the GPU and for peers.
_WAITS = re.compile(
    r"  File \"[^\"\n]*/torch/(?:cuda|distributed)/[^\"\n]*\", line \d+ in (?:synchronize|wait\w*|\w*barrier|recv\w*"
    r"|all_\w+|broadcast\w*|reduce\w*|scatter\w*|gather\w*|send\w*)\n"
)
_DUMP_S = 2.0  # for faulthandler to write
_TOOL_S = 20.0  # for py-spy or gdb on one process
_NATIVE = 8  # processes whose native stacks are read; each costs up to seconds
_PATIENCE = 6  # times as long for ranks of which one's Python still moves: it may be slow, not stuck
_AFAR = 3  # times as long where no rank is on this machine, so that nobody can be looked at
_OF_GPUS = 3  # times as long where all ranks wait and one has a GPU: it spins, and a long kernel looks the same
_OFTEN = 10  # looks in the time that ranks stand still, so that hours of it fill no disk


class Process(NamedTuple):
    """A process below the supervisor, as /proc tells."""

    pid: int
    parent: int
    state: str
    ticks: int  # of processor time
    waited: float = 0.0  # ticks in which its threads were ready to run and others had the processor


class Stopped(BaseException):
    """Somebody asked the supervisor to end."""


def _stop(number: int, frame: Any) -> None:
    for each in _ENDING:  # a second one would cut the sweeping short
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


def _dropped(lost: Any) -> None:
    """A stop that fell into code whose exceptions Python drops (a callback of a fork, a destructor) comes once more."""
    stop = lost.exc_value
    if not isinstance(stop, Stopped):
        sys.__unraisablehook__(lost)
        return

    def once_more(number: int, frame: Any) -> None:
        raise stop

    signal.signal(signal.SIGALRM, once_more)
    signal.setitimer(signal.ITIMER_REAL, 0.01)


def below(root: int) -> dict[int, Process]:
    """All descendants of ``root`` by pid, the dead that nobody has waited for left out."""
    found: dict[int, Process] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        each = Process(int(name), int(fields[1]), fields[0], int(fields[11]) + int(fields[12]))
        found[each.pid] = each
        children.setdefault(each.parent, []).append(each.pid)
    kin: dict[int, Process] = {}
    ahead = [root]
    while ahead:
        for pid in children.get(ahead.pop(), []):
            if pid not in kin:
                kin[pid] = found[pid]._replace(waited=_waited(pid))
                ahead.append(pid)
    return {pid: each for pid, each in kin.items() if each.state not in "ZX"}


def _waited(pid: int) -> float:
    """The second number of a thread's schedstat, in nanoseconds, of all threads of a process; 0 where none is told."""
    told = map(_text, glob.glob(f"/proc/{pid}/task/*/schedstat"))
    return sum(int(text.split()[1]) for text in told if text) / 1e9 * os.sysconf("SC_CLK_TCK")


def _text(path: str, most: int = 65536, start: int = 0) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            if start:
                file.seek(start)
            return file.read(most)
    except OSError:
        return ""


class Output:
    """What the command prints, both streams in one: the beginning in a file, the end in memory until the end."""

    def __init__(self, path: str, most: int) -> None:
        self.file = open(path, "wb")  # noqa: SIM115 - closed by ``end``
        self.half = max(1024, most // 2)
        self.bytes = 0
        self.lost = 0
        self.tail: collections.deque[bytearray] = collections.deque()
        self.held = 0  # bytes in the tail
        self.deaf = False
        self.spoke = time.monotonic()

    def take(self, piece: bytes) -> None:
        """Keeps what belongs to the beginning or the end."""
        if self.deaf:
            return
        self.bytes += len(piece)
        self.spoke = time.monotonic()
        room = self.half - self.file.tell()
        if room > 0:
            self.file.write(piece[:room])
            self.file.flush()
            piece = piece[room:]
        if piece:
            # In pieces of some size: a program that writes byte by byte would cost fifty times what it prints.
            if not self.tail or len(self.tail[-1]) >= 65536:
                self.tail.append(bytearray())
            self.tail[-1] += piece
            self.held += len(piece)
            while self.held - len(self.tail[0]) >= self.half:
                dropped = len(self.tail.popleft())
                self.held -= dropped
                self.lost += dropped

    def end(self) -> None:
        """Writes the end behind the beginning, and how much is missing between them."""
        if self.lost:
            self.file.write(f"\n[envkit left out {self.lost} bytes of output here]\n".encode())
        self.file.write(b"".join(self.tail))
        self.file.close()


class Supervisor:
    """One command and everything that comes of it."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.folder = str(job["folder"])
        self.output = Output(os.path.join(self.folder, "output.txt"), int(job.get("most_bytes", 32 << 20)))
        self.pipe = -1
        self.main = 0
        self.status: int | None = None
        self.adopted: list[dict[str, int]] = []
        self.sweeping = False
        self.seen: set[int] = set()
        self.cuda: set[int] = set()
        self.looked = 0.0
        self.samples: list[dict[str, Any]] = []
        self.ticks: list[tuple[float, float]] = []
        self.steps: list[tuple[str, int, int]] = []  # the files of the ranks as they were seen last
        self.stepped = self.listed = time.monotonic()
        self.suspected, self.suspicion = 0.0, ""  # after which time of standing still it was said last, and what

    # -- the command

    def start(self) -> str:
        """Starts it; why it cannot be started, or empty."""
        env = dict(os.environ)
        for name, value in dict(self.job.get("environ") or {}).items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = str(value)
        if self.job.get("companion"):
            path = [str(self.job["companion"]), env.get("PYTHONPATH", "")]
            env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        argv, here = self.job["argv"], os.getpid()

        def before() -> None:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            for number in _ENDING:
                signal.signal(number, signal.SIG_DFL)
            if os.getppid() != here:
                os._exit(70)

        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                argv, stdin=DEVNULL, stdout=writing, stderr=writing, env=env, start_new_session=True, preexec_fn=before
            )
        except OSError as error:
            os.close(reading)
            return f"{error.strerror}: {error.filename or argv[0]}"
        finally:
            os.close(writing)
        process.returncode = 0  # waited for below, with all that was adopted
        os.set_blocking(reading, False)
        self.pipe, self.main = reading, process.pid
        return ""

    def read(self, wait_s: float) -> None:
        """Takes what the command has printed, at most some megabytes a call."""
        if self.pipe < 0:
            time.sleep(wait_s)
            return
        if not select.select([self.pipe], [], [], wait_s)[0]:
            return
        for _ in range(64):
            try:
                piece = os.read(self.pipe, 65536)
            except BlockingIOError:
                return
            if not piece:
                os.close(self.pipe)
                self.pipe = -1
                return
            self.output.take(piece)

    def reap(self) -> None:
        """Waits for whatever has died: the command, and what it left to the supervisor."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if pid == self.main:
                self.status = code
            elif not self.sweeping and len(self.adopted) < 1000:  # what the sweep ends tells nothing
                self.adopted.append({"pid": pid, "exit": code})

    def look(self) -> dict[int, Process]:
        """Looks at what processes there are and which of them use CUDA."""
        self.looked = time.monotonic()
        there = below(os.getpid())
        self.seen.update(there)
        for pid in there:
            if pid not in self.cuda and "/libcuda.so" in _text(f"/proc/{pid}/maps", -1):
                self.cuda.add(pid)
        self.ticks = [*self.ticks[-240:], (self.looked, sum(each.ticks + each.waited for each in there.values()))]
        return there

    def attend(self) -> str:
        """Waits for the end: "exited", "timed-out", "hung" or "forks"."""
        started = time.monotonic()
        deadline = started + float(self.job["budget_s"])
        quiet = float(self.job.get("quiet_s") or 0.0)
        after = float(self.job.get("hang_after_s") or 0.0)
        asked = 0.0
        while self.status is None:
            self.read(_TICK_S)
            self.reap()
            now = time.monotonic()
            if self.status is None and now - self.looked >= _LOOK_S and len(self.look()) > MOST_PROCESSES:
                return "forks"
            if self.status is None and now >= deadline:
                self.sample(native=True)
                return "timed-out"
            if after and self.status is None and self.stand_still(after):
                return "hung"
            # Silent for long: hung if nobody's stack moves; else asked again later.
            since = max(self.output.spoke, asked)
            if quiet and self.status is None and now - since >= quiet and self.still(deadline):
                return "hung"
            asked = now if quiet and now - since >= quiet else asked
        return "exited"

    # -- ranks

    def stand_still(self, after: float) -> bool:
        """Whether ranks that stand still are to be ended; says what they do once they have for ``after`` seconds.

        They stand still while none makes a step and nothing is printed.  With ``hang_ends`` that time is the end, of
        which ranks get more of which one still works.  Else only stacks end a job, by which nobody can go on.
        """
        now = time.monotonic()
        if now - self.listed < _LOOK_S:
            return False
        self.listed = now
        steps = []
        for path in glob.glob(os.path.join(glob.escape(self.folder), "ranks-*.jsonl")):
            with contextlib.suppress(OSError):
                seen = os.stat(path)
                steps.append((path, seen.st_size, seen.st_mtime_ns))
        if sorted(steps) != self.steps:
            self.steps, self.stepped = sorted(steps), now
        stood = self.stood()
        if not steps or stood < after / 2:
            self.samples = []
            self.go_on()
            return False
        if self.samples and now - self.samples[-1]["after_s"] < max(after / 6, stood / _OFTEN):
            return False
        self.sample(native=False)
        if stood < after or len(self.samples) < 2:
            return False
        last = self.samples[-1]["processes"]
        local = [name for name in last if any(f"-{name}." in path for path, _, _ in steps)]
        works = any(self.works(name) for name in local)
        if self.job.get("hang_ends"):
            over = stood >= after * (_AFAR if not local else _PATIENCE if works else 1)
        else:
            gpus = any(int(name) in self.cuda for name in local)
            over = not works and self.stuck(local, last) and stood >= after * (_OF_GPUS if gpus else 1)
        if not over:
            self.suspect(stood, local, last)
        return over

    def stood(self) -> float:
        """For how many seconds no rank has made a step, and nothing was printed."""
        return time.monotonic() - max(self.stepped, self.output.spoke)

    def works(self, name: str) -> bool:
        """Whether a process worked between the looks: its main thread moved, or waited for a disk (D, proc(5)), as for
        the pages of a library; or it used a processor or wanted one that others had.  Whoever waits for a GPU uses one
        all along, so that the last says of a process without CUDA alone that it works."""
        pictures = [one["processes"].get(name) for one in self.samples]
        if len({_main_thread(picture) for picture in pictures}) > 1:
            return True
        if any(picture and picture["state"] == "D" for picture in pictures):
            return True
        first, last = self.samples[0], self.samples[-1]
        seconds = max(0.1, last["after_s"] - first["after_s"])
        return int(name) not in self.cuda and _computes(first["processes"].get(name), last["processes"][name], seconds)

    def stuck(self, local: list[str], last: dict[str, Any]) -> bool:
        """Whether nobody can go on: every rank of the job is known, runs here and waits for others, or has ended.

        A rank that has not begun, or runs elsewhere, may come yet.  Neither the launcher above a rank nor what a rank
        started, a loader's workers, is one.
        """
        world = max((int(each["world"]) for each in last.values() if each["world"].isdigit()), default=0)
        known = [path for path, _, _ in self.steps if not path.endswith(".old.jsonl")]
        if not local or len(known) < world or any(last[name]["doing"] != doings.WAITS for name in local):
            return False
        families = set(local)
        for name in local:
            while (name := str(last[name]["parent"])) in last:
                families.add(name)
        for name, each in last.items():
            above = name
            while above in last and above not in families:
                above = str(last[above]["parent"])
            if above not in families and each["rank"] and each["python"]:
                return False
        return True

    def suspect(self, stood: float, local: list[str], last: dict[str, Any]) -> None:
        """Says that the ranks stand still, and what each of them does, whenever that is another or the time doubled."""
        says: dict[str, list[str]] = {}
        for name in local:
            doing = doings.of(_main_thread(last[name]), last[name]["cuda"])
            says.setdefault(str(doing), []).append(last[name]["rank"] or name)
        does = " ".join(f"{last[name]['rank']} {last[name]['doing']}" for name in local)
        told = "; ".join(
            f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks[:8])} {said}"
            for said, ranks in list(says.items())[:8]
        )
        if does == self.suspicion and stood < 2 * self.suspected:
            return
        self.suspected, self.suspicion = stood, does
        self.remark(f"no rank made a step and nothing was printed for {stood:.0f} s: {told or 'no rank is here'}")

    def go_on(self) -> None:
        """Says that ranks that were suspected have gone on."""
        if self.suspected:
            self.remark(f"the ranks go on, after they stood still for {self.suspected:.0f} s or more")
        self.suspected, self.suspicion = 0.0, ""

    def remark(self, text: str) -> None:
        """Adds a line to what is passed on while the command runs."""
        with open(
            os.path.join(self.folder, "suspicions.txt"), "a", encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write("".join(each if each.isprintable() else "?" for each in text) + "\n")

    # -- stacks

    def still(self, deadline: float) -> bool:
        """Whether the command waits for ever: nothing is printed, no Python's stack moves over some samples, and each
        of its processes uses no processor or waits by name.  One long call of C, or a loop in one line, has the same
        stack all along and does not wait."""
        self.samples = []
        spoke = self.output.spoke
        for number in range(_SAMPLES):
            end = min(deadline, time.monotonic() + (_APART_S if number else 0.0))
            while time.monotonic() < end:
                self.read(_TICK_S)
                self.reap()
            if self.status is not None or self.output.spoke != spoke:
                return False
            self.sample(native=False)
        pictures = [{pid: each["python"] for pid, each in one["processes"].items()} for one in self.samples]
        same = all(each == pictures[0] for each in pictures) and any(pictures[0].values())
        if not same:
            return False
        first, last = self.samples[0], self.samples[-1]
        seconds = max(0.1, last["after_s"] - first["after_s"])
        for pid, each in last["processes"].items():
            main = each["python"].rpartition("(most recent call first):\n")[2]
            if _computes(first["processes"].get(pid), each, seconds) and not _WAITS.match(main):
                return False
        self.sample(native=True)
        return True

    def sample(self, native: bool) -> None:
        """Writes down where every process is: Python's stacks by the companion, else what the kernel knows."""
        there = self.look()
        before = {pid: self.size(pid) for pid in there if self.catches(pid)}
        for pid in before:
            with contextlib.suppress(OSError):
                os.kill(pid, SIGNAL)
        end = time.monotonic() + _DUMP_S
        while time.monotonic() < end and any(self.size(pid) == size for pid, size in before.items()):
            self.read(_TICK_S)
        time.sleep(_TICK_S if before else 0.0)  # the last one is still writing
        processes = {str(pid): self.picture(pid, before.get(pid, -1), each) for pid, each in there.items()}
        if native:
            self.native(processes)
        self.samples = [*self.samples[-_SAMPLES:], {"after_s": round(time.monotonic(), 1), "processes": processes}]

    def dump(self, pid: int) -> str:
        """The file that the companion of a process writes stacks to."""
        return os.path.join(self.folder, f"python-{pid}.txt")

    def size(self, pid: int) -> int:
        """How much of it there is."""
        try:
            return os.stat(self.dump(pid)).st_size
        except OSError:
            return -1

    def catches(self, pid: int) -> bool:
        """Whether a process has a handler for the companion's signal, which would end it otherwise."""
        for line in _text(f"/proc/{pid}/status").splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1) and self.size(pid) >= 0
        return False

    def picture(self, pid: int, since: int, each: Process) -> dict[str, Any]:
        """What is known of where one process is."""
        command = _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
        environ = dict(part.partition("=")[::2] for part in _text(f"/proc/{pid}/environ").split("\0"))
        python = _text(self.dump(pid), 200000, since) if since >= 0 else ""
        return {
            "parent": each.parent,
            "state": each.state,
            "command": command[:300],
            "rank": environ.get("RANK", environ.get("SLURM_PROCID", "")),
            "world": environ.get("WORLD_SIZE", environ.get("SLURM_NTASKS", "")),
            "cuda": pid in self.cuda,
            "ticks": each.ticks,
            "waited": each.waited,
            "waits_in": _text(f"/proc/{pid}/wchan").strip("\0\n "),
            "kernel": _text(f"/proc/{pid}/stack")[:2000],
            "python": python,
            "doing": doings.of(_thread_of(python), pid in self.cuda).what,
            "native": "",
        }

    def native(self, processes: dict[str, dict[str, Any]]) -> None:
        """Adds py-spy's or gdb's stacks, of the processes that use CUDA first."""
        tools = dict(self.job.get("tools") or {})
        order = sorted(processes, key=lambda pid: (not processes[pid]["cuda"], int(pid)))
        for pid in order[:_NATIVE]:
            each = processes[pid]
            said = ""
            if tools.get("py-spy") and not each["python"]:
                said = self.ask([tools["py-spy"], "dump", "--pid", pid])
            if tools.get("gdb"):
                words = ["-nx", "--batch", "-iex", "set debuginfod enabled off", "-ex", "thread apply all bt 40"]
                said += self.ask([tools["gdb"], *words, "-p", pid])
            each["native"] = said

    def ask(self, argv: list[str]) -> str:
        """What a tool prints; its complaint, or that it took too long."""
        try:
            done = subprocess.run(argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, timeout=_TOOL_S)
        except subprocess.TimeoutExpired:
            return f"{argv[0]} took more than {_TOOL_S:.0f} s\n"
        except OSError as error:
            return f"{argv[0]}: {error.strerror}\n"
        return done.stdout.decode("utf-8", "replace")[-200000:]

    # -- the end

    def sweep(self, grace_s: float) -> int:
        """Ends everything below the supervisor, after ``grace_s`` seconds in which it may end itself; how many
        processes did not die."""
        self.sweeping = True
        if grace_s and below(os.getpid()):
            self.send(signal.SIGTERM)
            self.wait(grace_s)
            self.send(signal.SIGKILL, spare=True)
            self.wait(_TIDY_S)
        end = time.monotonic() + _SWEEP_S
        while time.monotonic() < end:
            self.reap()
            # Whoever forks faster than he is killed is stopped first: what is stopped does not fork.
            known: set[int] = set()
            for _ in range(50):
                there = set(below(os.getpid()))
                if there <= known:
                    break
                known |= there
                self.send(signal.SIGSTOP)
            if not known:
                return 0
            self.send(signal.SIGKILL)
            time.sleep(0.02)
            self.reap()
        return len(below(os.getpid()))

    def wait(self, most_s: float) -> None:
        """Waits until nothing is left below the supervisor, ``most_s`` seconds at the longest."""
        end = time.monotonic() + most_s
        while below(os.getpid()) and time.monotonic() < end:
            self.read(_TICK_S)
            self.reap()

    def send(self, number: int, spare: bool = False) -> None:
        """Sends a signal to everything below the supervisor; with ``spare`` not to those that tidy up once all others
        are gone, and then end."""
        for pid in below(os.getpid()):
            if spare and _TIDIES.search(_text(f"/proc/{pid}/cmdline")):
                continue
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def busy(self) -> float:
        """The processors that the command used or waited for of late, on average; 0 where it was not looked at twice.

        On a busy machine a command that computes gets a part of one only, and is no hang for that.
        """
        late = [each for each in self.ticks if each[0] >= self.looked - 10.0]
        if len(late) < 2 or late[-1][0] == late[0][0]:
            return 0.0
        hertz = os.sysconf("SC_CLK_TCK")
        return max(0.0, round((late[-1][1] - late[0][1]) / hertz / (late[-1][0] - late[0][0]), 2))

    def run(self) -> dict[str, Any]:
        """Runs the command to its end, or ends it; what is to be known of it."""
        started = time.monotonic()
        ended, left, stood = "stopped", 0, 0.0
        try:
            trouble = self.start()
            if trouble:
                self.output.end()
                return {"ended": "not-started", "error": trouble, "exit": None, "seconds": 0.0}
            ended = self.attend()
            seconds, stood = time.monotonic() - started, self.stood()
            if ended == "exited":
                end = time.monotonic() + 1.0  # what it left behind may still be writing its last words
                while self.pipe >= 0 and time.monotonic() < end:
                    self.read(_TICK_S)
                self.wait(_LOOK_S)  # multiprocessing's trackers end a moment after it
                left = len(below(os.getpid()))
            # what it prints when the supervisor ends it tells nothing of the cause
            self.output.deaf = ended != "exited"
            undying = self.sweep({"forks": 0.0, "hung": _HUNG_GRACE_S}.get(ended, _GRACE_S))
        except Stopped:
            # Gently: who is asked to end takes his shared memory and his temporary files with him.
            ended, seconds = "stopped", time.monotonic() - started
            undying = self.sweep(_GRACE_S)
        except BaseException:  # a full disk, a folder that is gone: the supervisor fails, and still leaves nothing
            self.output.deaf = True
            self.sweep(_GRACE_S)
            raise
        while self.pipe >= 0 and select.select([self.pipe], [], [], 0)[0]:
            self.read(0.0)
        self.output.end()
        self.prune()
        return {
            "ended": ended,
            "main": self.main,
            "exit": self.status if ended == "exited" else None,
            "seconds": round(seconds, 3),
            "output_bytes": self.output.bytes,
            "lost_bytes": self.output.lost,
            "processes": len(self.seen),
            "cuda": sorted(self.cuda),
            "adopted": self.adopted,
            "left": left,
            "undying": undying,
            "busy": self.busy(),
            "samples": self.samples,
            "stood_s": round(stood, 1),
        }

    def prune(self) -> None:
        """Takes away the stack files of processes that had nothing to say."""
        for path in glob.glob(os.path.join(glob.escape(self.folder), "python-*.txt")):
            with contextlib.suppress(OSError):
                if not os.path.getsize(path):
                    os.unlink(path)


def _main_thread(picture: dict[str, Any] | None) -> str:
    """The main thread's part of what faulthandler wrote, which it writes last."""
    return _thread_of(str(picture["python"])) if picture else ""


def _thread_of(python: str) -> str:
    return re.split(r"(?m)^(?:Current thread|Thread) 0x", python)[-1]


def _computes(first: dict[str, Any] | None, last: dict[str, Any], seconds: float) -> bool:
    """Whether a process used a processor between two pictures of it, or wanted one that others had: who wants a whole
    processor gets some of it, if late."""
    begun = first or last
    used = (last["ticks"] - begun["ticks"]) / os.sysconf("SC_CLK_TCK") / seconds
    wanted = used + (last["waited"] - begun["waited"]) / os.sysconf("SC_CLK_TCK") / seconds
    return bool(used > _IDLE or wanted > _WORKING)


def find(names: list[str], argv: list[str]) -> dict[str, str]:
    """The paths of tools: in PATH, beside the command's Python and among its wheels, in CUDA toolkits."""
    folders: list[str] = []
    program = shutil.which(argv[0]) if argv else ""
    for python in (program or "", sys.executable):
        for path in (python, os.path.realpath(python)) if python else ():
            root = os.path.dirname(os.path.dirname(path))
            folders.append(os.path.join(root, "bin"))
            sites = os.path.join(glob.escape(root), "lib", "python3*", "*-packages", "nvidia", "*")
            folders += sorted(glob.glob(os.path.join(sites, "bin")), reverse=True)
            folders += sorted(glob.glob(os.path.join(sites, "compute-sanitizer")), reverse=True)
    roots = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    for root in [*filter(None, roots), *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]:
        folders += [os.path.join(root, "bin"), os.path.join(root, "compute-sanitizer")]
    folders += sorted(glob.glob("/opt/nvidia/nsight-*/*"), reverse=True)
    folders += sorted(glob.glob("/opt/nvidia/nsight-*/*/bin"), reverse=True)
    folders += ["/usr/lib/nvidia-cuda-toolkit/compute-sanitizer"]
    path = os.pathsep.join(folders)
    return {name: shutil.which(name) or shutil.which(name, path=path) or "" for name in names}


_ASK = """
import json
from importlib import metadata
found = {}
for one in metadata.distributions():
    name = str(one.metadata["Name"]).lower()
    if name.startswith(("torch", "triton", "nvidia-", "jax", "cupy", "numpy", "numba", "vllm", "flash", "xformers")):
        found[name] = one.version
print(json.dumps(found))
"""


def versions(program: str) -> dict[str, str]:
    """The releases of what bears on CUDA: of the command's Python, if it is one, and of the driver."""
    found: dict[str, str] = {}
    if re.match(r"python[\d.]*t?$", os.path.basename(program)):  # and no program that is only called so
        try:
            done = subprocess.run([program, "-c", _ASK], stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, timeout=_TOOL_S)
            found.update(json.loads(done.stdout.decode()))
        except (OSError, ValueError, subprocess.TimeoutExpired):
            pass  # the command itself will tell what is wrong with its Python
    driver = re.search(r"Kernel Module.*?\s(\d{3}\.[\d.]+)", _text("/proc/driver/nvidia/version"))
    if driver:
        found["driver"] = driver.group(1)
    return found


def main(argv: list[str]) -> int:
    """Does the job in the file ``argv[0]`` and prints its outcome as one line of JSON."""
    with open(argv[0], encoding="utf-8") as file:
        job = json.load(file)
    if "find" in job:
        program = shutil.which(job["argv"][0]) if job.get("argv") else ""
        answer: dict[str, Any] = {
            "program": program or "",
            "tools": find(job["find"], job.get("argv") or []),
            "versions": versions(program or ""),
        }
    else:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        sys.unraisablehook = _dropped
        for number in _ENDING:
            signal.signal(number, _stop)
        try:
            whole = Supervisor(job).run()
            with open(os.path.join(job["folder"], "ending.json"), "w", encoding="utf-8") as file:
                json.dump(whole, file)
            answer = {"ended": whole["ended"]}
        except OSError as error:
            answer = {"unkept": f"{error.strerror}: {error.filename or job['folder']}"}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
