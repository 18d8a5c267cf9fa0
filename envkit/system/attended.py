"""Runs a program for the person who waits for it: its output is shown as it comes, and its ends are kept.

The program has envkit's own stdin and stdout in all but name.  Where both are a terminal it gets a terminal of its own,
whose other side is copied to and fro, so that it has colours, a bar that moves, a debugger's prompt and Ctrl-C, and
what it prints can be kept all the same.  Signals that envkit gets are the program's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from envkit.records import dataclass
from envkit.system.proc import ENDS_GROUP, Ends, outlived_by

# What somebody sends to steer a job or to end it; schedulers warn with the two of the user.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PIECE = 1 << 16  # bytes
_GRACE_S = 10.0  # from the program's end to that of what it left behind, and for the last of its output
_LOOKED_EVERY_S = 0.1  # whether it has ended, of one whose terminal others still have open


@dataclass(frozen=True, slots=True)
class Attended:
    """How a program ended: ``exit`` is negative for a signal; ``text`` is what it printed, stdout and stderr as they
    came, of which the first and the last MiB are kept.  ``stopped``: a signal was passed on to it."""

    exit: int
    text: str
    stopped: bool = False


def attended(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, interactive: bool = True
) -> Attended:
    """Runs ``argv`` to its end, however long that takes; ``env`` replaces the environment when given.

    The program is the leader of a process group of its own, whose rest is ended after it, and all of which is when
    envkit is killed.  Its stdin is envkit's, but for a terminal without ``interactive`` or with stdout elsewhere, from
    which a background process cannot read: it is empty then.  Raises OSError if the program cannot be started, and
    BrokenPipeError, once the program has ended, if nobody reads envkit's stdout any more.
    """
    if interactive and os.isatty(0) and os.isatty(1):
        return _on_a_terminal(argv, env, cwd)
    return _through_pipes(argv, env, cwd)


@contextmanager
def _passing_on(group: int) -> Iterator[list[int]]:
    """While it holds, signals that envkit gets go to the process group, and are listed; in another thread than the main
    one nothing changes, for Python lets only that one set a handler."""
    passed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield passed
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        passed.append(number)
        with suppress(ProcessLookupError):
            os.killpg(group, number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield passed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _through_pipes(argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None) -> Attended:
    with outlived_by(ENDS_GROUP) as tell:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if os.isatty(0) else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            process_group=0,
        )
        assert process.stdout is not None and process.stderr is not None
        copied = _Copied({process.stdout.fileno(): 1, process.stderr.fileno(): 2}, process.pid)
        try:
            tell(str(process.pid))
            sys.stdout.flush()
            with _passing_on(process.pid) as passed:
                while process.poll() is None and copied.sources:
                    copied.more(_LOOKED_EVERY_S)
                process.wait()
        finally:
            _end_rest(process.pid, process.poll)
        deadline = time.monotonic() + _GRACE_S  # for what somebody who left the group still has open
        while copied.sources and time.monotonic() < deadline:
            copied.more(_LOOKED_EVERY_S)
    if copied.broken is not None:
        raise copied.broken
    return Attended(process.returncode, copied.kept.text(), bool(passed))


class _Copied:
    """What comes from pipes, by the stream of envkit's that each is copied to; stdout goes first where both have
    something, for what is printed to stderr last is mostly the end."""

    def __init__(self, sources: dict[int, int], group: int) -> None:
        self.sources = sources
        self.kept = Ends()
        self.broken: OSError | None = None
        self._group = group

    def more(self, wait_s: float) -> None:
        """Copies what comes within ``wait_s``."""
        ready, _, _ = select.select(list(self.sources), [], [], wait_s)
        for source in ready:
            piece = os.read(source, _PIECE)
            if not piece:
                del self.sources[source]
                continue
            self.kept.add(piece)
            if self.broken is not None and self.sources[source] == 1:
                continue
            try:
                _write(self.sources[source], piece)
            except OSError as error:
                if self.sources[source] == 1:  # it is ended, as a program that writes for nobody is
                    self.broken = error
                    error.filename = "<stdout>"
                    with suppress(ProcessLookupError):
                        os.killpg(self._group, signal.SIGTERM)


def _end_rest(group: int, reap: Callable[[], object]) -> None:
    """Ends what is left of a process group, with a chance to clear up; of most there is nothing.  ``reap`` takes the
    leader's exit status, should that still be there."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline, told = time.monotonic() + _GRACE_S, int(number)
        while time.monotonic() < deadline:
            reap()
            try:
                os.killpg(group, told)
            except (ProcessLookupError, PermissionError):  # the latter: somebody else has the number by now
                return
            told = 0
            time.sleep(0.02)


def _on_a_terminal(argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None) -> Attended:
    """``argv`` on a terminal of its own, the leader of a session that has it for its controlling one."""
    kept = Ends()
    with outlived_by(ENDS_GROUP) as tell:
        child = _Child(*_forked(argv, env, cwd))
        try:
            tell(str(child.pid))
            sys.stdout.flush()
            with _passing_on(child.pid) as passed, _as_large(child.side), _raw():
                _copied(child, kept.add)
        finally:
            os.close(child.side)  # the kernel hangs up what still has it
            _end_rest(child.pid, child.ended)
    return Attended(child.exit or 0, kept.text(), bool(passed))


@dataclass(slots=True)
class _Child:
    """A process, envkit's side of its terminal, and how it ended, None before."""

    pid: int
    side: int
    exit: int | None = None

    def ended(self) -> bool:
        """Whether it has ended by now."""
        if self.exit is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.exit = os.waitstatus_to_exitcode(status) if pid else None
        return self.exit is not None


def _forked(argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None) -> tuple[int, int]:
    """The process that runs ``argv`` and the side of its terminal that is envkit's.

    Only fork makes a terminal the controlling one without a program between; what happens in the child before exec is
    short, and a failure of exec comes back through a pipe.  Raises OSError for that.
    """
    reading, writing = os.pipe()
    size = _size(0)
    pid, side = os.forkpty()
    if pid == 0:
        try:
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                signal.signal(number, signal.SIG_DFL)
            if size:
                fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            if cwd:
                os.chdir(cwd)
            os.execvpe(argv[0], list(argv), dict(os.environ if env is None else env))
        except OSError as error:
            os.write(writing, struct.pack("i", error.errno or errno.ENOEXEC))
        finally:
            os._exit(127)
    os.close(writing)
    failed = os.read(reading, struct.calcsize("i"))
    os.close(reading)
    if failed:
        os.close(side)
        os.waitpid(pid, 0)
        (number,) = struct.unpack("i", failed)
        raise OSError(number, os.strerror(number), argv[0])
    return pid, side


def _size(terminal: int) -> bytes:
    """The rows and columns as the kernel has them, nothing where it is no terminal."""
    with suppress(OSError):
        return fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
    return b""


@contextmanager
def _as_large(side: int) -> Iterator[None]:
    """While it holds, the program's terminal is as large as envkit's, whenever that changes."""

    def changed(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            fcntl.ioctl(side, termios.TIOCSWINSZ, _size(0))

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGWINCH, changed)
    changed(signal.SIGWINCH, None)  # it may have changed since the program was started
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


@contextmanager
def _raw() -> Iterator[None]:
    """envkit's own terminal hands every key on, Ctrl-C among them, and is as it was afterwards."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _copied(child: _Child, keep: Callable[[bytes], None]) -> None:
    """Copies keys to the program's terminal and what it prints to envkit's, until the program has ended and nothing
    more comes.  Keys wait for a program that does not read them, and what it prints does not wait for that."""
    os.set_blocking(child.side, False)
    keys, typing = b"", True
    while True:
        reading = [child.side, *([0] if typing and len(keys) < _PIECE else [])]
        wait_s = 0.0 if child.ended() else _LOOKED_EVERY_S
        ready, taking, _ = select.select(reading, [child.side] if keys else [], [], wait_s)
        if child.side in ready:
            with suppress(OSError):  # EIO: the last process that had it open is gone
                piece = os.read(child.side, _PIECE)
                keep(piece)
                with suppress(OSError):  # envkit's own terminal is gone: SIGHUP is on its way
                    _write(1, piece)
                continue
            time.sleep(wait_s)
        if child.ended():
            return
        if 0 in ready:
            more = os.read(0, _PIECE)
            keys, typing = keys + more, bool(more)
        if taking:
            keys = keys[os.write(child.side, keys) :]


def _write(target: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(target, left) :]
