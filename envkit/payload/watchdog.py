"""Keeps a run inside a container from outliving its client or its budget.

The work happens in a forked worker, so that the watch goes on while the worker hangs inside C code; and the watcher,
not the worker, is the container's first process, whose end takes every other process with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable

from envkit.payload import shared_memory, waits

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_TICK_S = 0.05
_DEATH_S = 5.0  # a process in an uninterruptible call of a driver outlives SIGKILL
_KILLED = 128 + signal.SIGKILL


def die_with_parent(parent: int = 0) -> None:
    """Has the kernel kill this process when its parent ends; leaves at once where that is not ``parent`` any more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:  # it went before the kernel was asked
        os._exit(70)


def kill_session(leader: int) -> None:
    """Kills every process of the session ``leader`` and every child of this process: as it takes over all orphans below
    it, neither process groups nor sessions made within it escape.

    The leader first, and then again and again until nobody is left: a process that is not listed yet may have been
    forked by one that is just being killed.  One that does not die of SIGKILL is given up after some seconds.
    """
    with contextlib.suppress(OSError):  # it ended by itself
        os.kill(leader, signal.SIGKILL)
    limit = time.monotonic() + _DEATH_S
    while time.monotonic() < limit:
        alive = {pid: fields for pid, fields in waits.processes().items() if fields[0] != b"Z"}
        left = [pid for pid, fields in alive.items() if leader == int(fields[3]) or int(fields[1]) == os.getpid()]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_TICK_S / 10)


def _worker(work: Callable[[], int], guard: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    die_with_parent(guard)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = work()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def guard(work: Callable[[], int], watch_stdin: bool, budget_s: float | None, scratch: str = "") -> int:
    """The exit code of ``work``, run in a session of its own; nothing of it is left behind.

    Temporary files go into the folder ``scratch``, if one is given, which is removed at the end with all in it; so is
    the shared memory of processes that died before they could give it back.

    Everything is killed when ``budget_s`` seconds have passed, not counting those in which something of it waited for a
    processor, or ``waits.LONGEST`` times as many in all, on SIGTERM and SIGINT, or, with ``watch_stdin``, when
    stdin ends: the client went away.  A killed worker gives 128 plus the signal's number, as a shell would.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    started = time.time()
    if scratch:
        os.environ["TMPDIR"] = scratch
    try:
        return _attended(work, watch_stdin, budget_s)
    finally:
        shared_memory.sweep(started)
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _spent(seconds: float, waited: float, budget_s: float) -> bool:
    return seconds - waited >= budget_s or seconds >= budget_s * waits.LONGEST


def _attended(work: Callable[[], int], watch_stdin: bool, budget_s: float | None) -> int:
    asked: list[int] = []  # a container's first process has no default for these signals
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda said, frame: asked.append(said))
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        try:
            _worker(work, guard)
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)
        except BaseException:  # the fork must never return into the caller's code
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    clock, waited = waits.Waits(), 0.0
    started = time.monotonic()
    while True:
        # As a container's first process this inherits every orphan; whoever ends is reaped, one a turn.
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == worker:
            kill_session(worker)  # whatever the worker left behind
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        looked = clock.since([guard]) if budget_s is not None else {}  # as a subreaper it is above all of them
        waited += looked.get(guard, 0.0)
        why = ""
        if asked:
            why = f"{signal.Signals(asked[0]).name} came"
        elif budget_s is not None and looked and _spent(time.monotonic() - started, waited, budget_s):
            why = f"the budget of {budget_s:g} s ran out"
        elif not watch_stdin:
            time.sleep(_TICK_S)
        elif select.select([0], [], [], _TICK_S)[0] and not os.read(0, 65536):
            why = "stdin ended, the client is gone"
        if why:
            kill_session(worker)
            with contextlib.suppress(OSError):  # who would read it may have gone, and the pipe with it
                os.write(2, (f"envkit payload: {why}, the run was killed\n").encode())
            os.waitpid(worker, 0)
            return 128 + asked[0] if asked else _KILLED
