"""Runs other programs; the only module that does.

A child is the leader of its own process group, dies with envkit, has a budget, and is never left behind: on a timeout,
an error or Ctrl-C its whole group gets SIGTERM, then SIGKILL.  What it prints is bounded.

That a child dies with an envkit that is killed is the work of a shell beside it, which reads a pipe that only envkit
holds open.  The kernel's own way, PR_SET_PDEATHSIG, has to be asked for in the child between fork and exec: Python code
there (``preexec_fn``) can deadlock once envkit has threads, a wrapper that asks (``setpriv``) is not on every machine
and hides why a program does not start, and a Python as the wrapper takes 20 ms.  That signal would also reach the child
alone, and comes when the thread ends that started it.  The shell takes 1 ms of a processor, and a start without
``preexec_fn`` saves 3 ms of copying page tables (measured: 3.2 ms a child in place of 5.5).
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

from envkit.errors import EnvkitError, Interrupted, Undecided
from envkit.payload import waits
from envkit.records import dataclass
from envkit.system import files

Result = TypeVar("Result")

_FINDING = threading.Lock()  # sysconfig, which is asked there, gives None to a thread that asks while another fills it
# Should this process be killed, and a child of it before it can clear up: removes the folder $0 once both are gone.
_REMOVES = (
    "/bin/sh",
    "-c",
    'read line && exit 0; PATH="$PATH:/usr/bin:/bin"; for round in 1 2 3 4 5 6; do sleep 0.5; rm -rf -- "$0"; done',
)
# Reads a process group. Should this process be killed before it takes that back: ends the group, as `stop_group` would.
ENDS_GROUP = (
    "/bin/sh",
    "-c",
    'read group && [ "$group" ] || exit 0; read line && exit 0; PATH="$PATH:/usr/bin:/bin"; kill -s TERM -- "-$group"; '
    'round=0; while [ $round -lt 50 ] && kill -s 0 -- "-$group"; do sleep 0.1; round=$((round + 1)); done; '
    'kill -s KILL -- "-$group"',
)
_ASKED_EVERY_S = 0.2  # whether it shall stop
_GRACE_S = 5.0  # between SIGTERM and SIGKILL; mmdebstrap and buildx need under two seconds to clean up
MOST_BYTES = 64 << 20  # of a child's stdout; the longest known is a smoke run's document, with some MiB
_HEAD_BYTES = _TAIL_BYTES = 1 << 20  # of a child's stderr; who reads it looks for the first or the last words
_LINE_BYTES = 1 << 16  # of one line; a longer one comes in pieces


@dataclass(frozen=True, slots=True)
class Completed:
    """How a program ended; ``exit`` is negative for a signal, ``timed_out`` true when its budget ran out."""

    argv: tuple[str, ...]
    exit: int
    stdout: str
    stderr: str
    timed_out: bool = False


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """While it holds, SIGTERM raises Interrupted in the main thread, so that ``finally`` clauses run.

    It does nothing where somebody handles SIGTERM already, as the command line does, and in any other thread, for
    Python lets only the main one set a handler.  At the end SIGTERM kills again.
    """
    handled = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    if handled or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would cut the cleaning up short
        raise Interrupted("SIGTERM")

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# For uv: each sentence is one line, however narrow the terminal is for which the user's shell exports COLUMNS.
ONE_LINE = {"NO_COLOR": "1", "COLUMNS": "2000"}
# For what asks a package index, where the caller's environment does not say otherwise: uv asks the name service many
# times at once, a small one loses some of the questions, and those are asked again after one second, not five
# (resolv.conf(5)).
FOR_INDEX = {"RES_OPTIONS": "timeout:1 attempts:5"}


def uv_path() -> str:
    """The uv that came with envkit, else the one on PATH; raises Undecided if there is none."""
    from uv import find_uv_bin  # costs 3 ms, and most verbs never need it

    try:
        with _FINDING:
            return str(find_uv_bin())
    except FileNotFoundError:
        found = shutil.which("uv")
    if not found:
        raise Undecided("uv was not found beside this Python nor on PATH", "install it: pip install uv")
    return found


def stop_group(pid: int, wait: Callable[[float], bool], grace_s: float = _GRACE_S) -> None:
    """Ends the process group ``pid``: SIGTERM, ``wait(grace_s)`` for the leader, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return
        if wait(grace_s) and number is signal.SIGKILL:
            return


@dataclass(slots=True)
class Ends:
    """The beginning and the end of what comes in lines; what is between them is counted."""

    head: list[bytes] = field(default_factory=list)
    tail: deque[bytes] = field(default_factory=deque)
    head_bytes: int = 0
    tail_bytes: int = 0
    lost: int = 0

    def add(self, line: bytes) -> None:
        if self.head_bytes < _HEAD_BYTES:
            self.head.append(line)
            self.head_bytes += len(line)
            return
        self.tail.append(line)
        self.tail_bytes += len(line)
        while self.tail_bytes > _TAIL_BYTES:
            gone = len(self.tail.popleft())
            self.tail_bytes -= gone
            self.lost += gone

    def text(self) -> str:
        between = [b"\n(%d bytes are left out)\n" % self.lost] if self.lost else []
        return b"".join([*self.head, *between, *self.tail]).decode("utf-8", "replace")


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    hold_stdin: bool = False,
    on_line: Callable[[str], None] | None = None,
    grace_s: float = _GRACE_S,
    stop: Callable[[], bool] | None = None,
    most_bytes: int = MOST_BYTES,
    on_start: Callable[[], None] = lambda: None,
) -> Completed:
    """Runs ``argv`` to its end or to its budget of ``timeout_s`` seconds, in which the time does not count that it or a
    process below it waited for a processor; ``waits.LONGEST`` times the budget is the end in any case.

    ``env`` replaces the environment when given.  Without ``stdin`` the child reads an empty one; with ``hold_stdin``
    its stdin stays open, and silent, for as long as envkit lives.  ``on_line`` is called with each line of stderr as
    it comes, for progress; if it raises, the child is ended at once and the error raised here.  Where ``stop`` says
    True, which is asked five times a second, the child ends as at the budget's end.  Output is decoded as UTF-8, bad
    bytes replaced; of stderr, the first and the last MiB are kept.  ``on_start`` is called once it runs.

    Raises OSError if the program cannot be started (FileNotFoundError if it does not exist), and Undecided, after the
    child was ended, if its stdout has more than ``most_bytes``: an answer that was cut is none.
    """
    with outlived_by(ENDS_GROUP) as tell:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin is not None or hold_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=True,
        )
        try:
            tell(str(process.pid))
            on_start()
        except BaseException:
            stop_group(process.pid, partial(_gone, process), grace_s)
            raise
        return _followed(process, tuple(argv), timeout_s, stdin, hold_stdin, on_line, grace_s, stop, most_bytes)


def _followed(
    process: subprocess.Popen[bytes],
    argv: tuple[str, ...],
    timeout_s: float,
    stdin: str | None,
    hold_stdin: bool,
    on_line: Callable[[str], None] | None,
    grace_s: float,
    stop: Callable[[], bool] | None,
    most_bytes: int,
) -> Completed:
    """Reads and feeds a child until it has ended or has to; the arguments are those of ``run``."""
    out: list[bytes] = []
    err = Ends()
    failed: list[Exception] = []

    # Both read on after a failure, so that the child does not wait for a reader while it clears up.
    def drain_stdout() -> None:
        assert process.stdout is not None
        size = 0
        while piece := os.read(process.stdout.fileno(), _LINE_BYTES):
            size += len(piece)
            if size <= most_bytes:
                out.append(piece)
            elif not failed:
                failed.append(
                    Undecided(
                        f"{argv[0]} printed more than {most_bytes >> 20} MiB", "run it alone to see what it prints"
                    )
                )

    def drain_stderr() -> None:
        assert process.stderr is not None
        while raw := process.stderr.readline(_LINE_BYTES):
            err.add(raw)
            if on_line is None or failed:
                continue
            try:
                on_line(raw.decode("utf-8", "replace").rstrip("\n"))
            except Exception as error:  # a reader of progress that has gone; whose call it is shall hear of it
                failed.append(error)

    def feed() -> None:
        assert process.stdin is not None and stdin is not None
        rest = memoryview(stdin.encode())
        with suppress(OSError):  # the program ended without reading, its exit code tells; or its time was up
            while rest:
                rest = rest[os.write(process.stdin.fileno(), rest) :]
            if not hold_stdin:
                process.stdin.close()

    readers = [threading.Thread(target=work, daemon=True) for work in (drain_stdout, drain_stderr)]
    gone = partial(_gone, process)
    timed_out = False
    try:
        for reader in readers:
            reader.start()
        if stdin is not None:  # in a thread too: a child that does not read must not outlast its budget
            threading.Thread(target=feed, daemon=True).start()
        timed_out = not _ended(process.pid, gone, timeout_s, lambda: bool(failed) or (stop is not None and stop()))
    finally:
        if process.poll() is None or timed_out:
            stop_group(process.pid, gone, grace_s)
        if process.stdin is not None:
            with suppress(OSError):  # what was not read in time is lost with its reader
                process.stdin.close()
    for reader in readers:
        reader.join(grace_s)  # a grandchild that escaped the group may hold the pipe; do not wait for it for ever
    if failed:
        raise failed[0]
    return Completed(argv, process.returncode, b"".join(list(out)).decode("utf-8", "replace"), err.text(), timed_out)


def _gone(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether ``process`` ends within so many seconds, known the moment it does: Popen.wait looks 20 times a second."""
    if process.poll() is not None:
        return True
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # a kernel before 5.3, a Python that was built for one, or a sandbox
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.returncode is not None
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        waiting.poll(seconds * 1000)
    finally:
        os.close(handle)
    return process.poll() is not None


def _ended(pid: int, gone: Callable[[float], bool], timeout_s: float, stop: Callable[[], bool]) -> bool:
    """Whether it was ``gone`` before its time was up or somebody wanted it stopped."""
    clock, waited_s = waits.Waits(), 0.0
    started = time.monotonic()
    while not gone(_ASKED_EVERY_S):
        looked = clock.since([pid])
        waited_s += looked.get(pid, 0.0)
        late_s = time.monotonic() - started - timeout_s
        if stop() or (looked and late_s >= min(waited_s, (waits.LONGEST - 1) * timeout_s)):
            return False
    return True


def signal_name(number: int) -> str:
    """SIGKILL of 9; of a number that is no signal here, "signal 99"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def outlived_by(argv: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """While it holds, ``argv`` runs in a session of its own and reads stdin: a line comes if this block is left, and
    nothing but the end if envkit is killed in it, whatever kills it.  What it prints goes nowhere.  Gives what tells it
    a line before."""
    process = subprocess.Popen(
        list(argv), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdin is not None
    words = process.stdin.fileno()

    def tell(line: str) -> None:
        with suppress(BrokenPipeError):  # somebody ended it
            os.write(words, f"{line}\n".encode())

    try:
        yield tell
    finally:
        tell("")
        process.stdin.close()
        process.wait()


@contextmanager
def scratch_folder(where: Path | None = None) -> Iterator[Path]:
    """A folder for what a child runs and writes, which goes with the block, or with envkit whatever ends that; in
    ``where``, by default the place for temporary files."""
    with files.scratch("run", where) as folder, outlived_by([*_REMOVES, str(folder)]):
        yield folder


def beside(work: Callable[[], Result]) -> Callable[[], Result]:
    """Starts ``work`` in a thread; what is returned waits for it and gives its result, or raises what it raised.

    The thread keeps nobody alive: when envkit goes, it goes, and the programs it runs with it.  A fault of envkit's own
    in it is shown by Python as it happens, and is a RuntimeError to who waits.
    """
    done: list[Result] = []
    failed: list[EnvkitError | OSError] = []

    def begin() -> None:
        try:
            done.append(work())
        except (EnvkitError, OSError) as error:
            failed.append(error)

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()

    def wait() -> Result:
        # Python's handler of a signal that comes between its last look and the wait itself runs after the wait alone.
        while thread.is_alive():
            thread.join(_ASKED_EVERY_S)
        if failed:
            raise failed[0]
        if not done:
            raise RuntimeError("a thread ended without a result")
        return done[0]

    return wait
