"""Runs other programs; the only module that does.

A child is the leader of its own process group, dies with envkit (the kernel signals it when its parent goes), has a
budget, and is never left behind: on a timeout, an error or Ctrl-C its whole group gets SIGTERM, then SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

from envkit.errors import EnvkitError, Interrupted, Undecided

Result = TypeVar("Result")

_FINDING = threading.Lock()  # sysconfig, which is asked there, gives None to a thread that asks while another fills it
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True)
# Should this process be killed, and a child of it before it can clear up: removes the folder $0 once both are gone.
_REMOVES = ("sh", "-c", 'read line || for round in 1 2 3 4 5 6; do sleep 0.5; rm -rf -- "$0"; done')
_ASKED_EVERY_S = 0.2  # whether it shall stop
_GRACE_S = 5.0  # between SIGTERM and SIGKILL; mmdebstrap and buildx need under two seconds to clean up


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


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def stop_group(pid: int, wait: Callable[[float], bool], grace_s: float = _GRACE_S) -> None:
    """Ends the process group ``pid``: SIGTERM, ``wait(grace_s)`` for the leader, SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return
        if wait(grace_s) and number is signal.SIGKILL:
            return


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
) -> Completed:
    """Runs ``argv`` to its end or to its budget of ``timeout_s`` seconds.

    ``env`` replaces the environment when given.  Without ``stdin`` the child reads an empty one; with ``hold_stdin``
    its stdin stays open, and silent, for as long as envkit lives: a child that watches it dies with envkit even
    where the kernel's signal does not reach.  ``on_line`` is called with each line of stderr as it comes, for
    progress.  Where ``stop`` says True, which is asked five times a second, the child ends as at the budget's end.
    Raises FileNotFoundError if the program does not exist.  Output is decoded as UTF-8, bad bytes
    replaced.
    """
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE if stdin is not None or hold_stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env) if env is not None else None,
        cwd=cwd,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )
    out: list[str] = []
    err: list[str] = []

    def drain_stdout() -> None:
        assert process.stdout is not None
        out.append(process.stdout.read().decode("utf-8", "replace"))

    def drain_stderr() -> None:
        assert process.stderr is not None
        for raw in process.stderr:
            line = raw.decode("utf-8", "replace")
            err.append(line)
            if on_line is not None:
                on_line(line.rstrip("\n"))

    readers = [threading.Thread(target=work, daemon=True) for work in (drain_stdout, drain_stderr)]

    gone = partial(_gone, process)
    timed_out = False
    try:
        for reader in readers:
            reader.start()
        if stdin is not None:
            assert process.stdin is not None
            try:
                process.stdin.write(stdin.encode())
                process.stdin.flush() if hold_stdin else process.stdin.close()
            except BrokenPipeError:
                pass  # the program ended without reading; its exit code tells
        timed_out = not _ended(gone, timeout_s, stop)
    finally:
        if process.poll() is None or timed_out:
            stop_group(process.pid, gone, grace_s)
        if process.stdin is not None:
            with suppress(BrokenPipeError):  # what was not read in time is lost with its reader
                process.stdin.close()
    for reader in readers:
        reader.join(grace_s)  # a grandchild that escaped the group may hold the pipe; do not wait for it for ever
    return Completed(tuple(argv), process.returncode, "".join(out), "".join(err), timed_out)


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


def _ended(gone: Callable[[float], bool], timeout_s: float, stop: Callable[[], bool] | None) -> bool:
    """Whether it was ``gone`` before the time was up or somebody wanted it stopped."""
    if stop is None:
        return gone(timeout_s)
    deadline = time.monotonic() + timeout_s
    while not gone(max(0.0, min(_ASKED_EVERY_S, deadline - time.monotonic()))):
        if stop() or time.monotonic() >= deadline:
            return False
    return True


@contextmanager
def outlived_by(argv: Sequence[str]) -> Iterator[None]:
    """While it holds, ``argv`` runs in a session of its own and reads stdin: a line comes if this block is left, and
    nothing but the end if envkit is killed in it, whatever kills it.  What it prints goes nowhere."""
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        with suppress(BrokenPipeError):  # somebody ended it
            process.stdin.write(b"\n")
            process.stdin.close()
        process.wait()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder of this run alone, in the place for temporary files, that goes with the block or with envkit."""
    folder = Path(tempfile.gettempdir(), f"envkit-run-{secrets.token_hex(8)}")
    with outlived_by([*_REMOVES, str(folder)]):
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


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
        thread.join()
        if failed:
            raise failed[0]
        if not done:
            raise RuntimeError("a thread ended without a result")
        return done[0]

    return wait
