"""Runs pieces of work in processes of their own and tells how each ended.

A GPU fault is sticky: after one illegal access every later call of the same process fails.  So each piece of work
gets a child, and a death costs one piece.  A child leads its own process group, is killed when its parent goes,
speaks through a pipe of its own (its stdout is joined to its stderr, so noise cannot reach the document), and has a
budget: time in which it, or what it started, waited for a processor does not count, up to a limit.  Its end is one of
six, never merged:

ran       it sent its value and exited with status 0
not-applicable  it said that this machine lacks what it needs
raised    a Python exception ended it
killed    a signal ended it
hung      its budget, or the budget of the whole run, was spent
garbled   it left without its document, or with something that is none

One process and one thread drive everything, because a process with threads must not fork.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from envkit.payload import cuda_error, waits, watchdog

TAIL_BYTES = 16384  # of a child's last words: a whole stack as faulthandler writes it, newest first, 100 frames at most
_TICK_S = 0.02  # how often a child's end is looked for when its pipes are silent
_ENDING_S = 0.002  # and when it has said all: what is left of it is its own exit
_DEATH_S = 5.0  # a process in an uninterruptible driver call outlives SIGKILL; do not wait for it for ever


class NotApplicable(Exception):
    """Raised by work that this machine cannot do; the text says what is lacking."""


class Task(NamedTuple):
    """One piece of work and its budget in seconds.

    Either ``work`` is called in a fork of this process with a function that sends an intermediate document, or
    ``argv`` is executed with the number of the pipe as its last argument (see ``perform``).  ``heard`` gets the
    intermediate documents; a task that was heard once may use the rest of the whole run's budget, unless it is
    ``strict``.  ``label`` is the caller's own.
    """

    name: str
    device: str
    budget_s: float
    work: Callable[[Callable[[Any], None]], Any] | None = None
    argv: tuple[str, ...] = ()
    heard: Callable[[Any], None] | None = None
    label: str = ""
    strict: bool = False


class Ending(NamedTuple):
    """How a task ended; ``value`` is what it returned when it ran, ``seconds`` its wall time.

    ``cuda`` is the CUDA error behind an exception, as "700 cudaErrorIllegalAddress".
    """

    ended: str
    detail: str = ""
    signal: str = ""
    value: Any = None
    seconds: float = 0.0
    stderr_tail: str = ""
    cuda: str = ""


class _Running:
    """A child and what came out of it so far."""

    def __init__(self, tasks: Sequence[Task], pid: int, out: int, err: int, budget_s: float) -> None:
        self.pid = pid
        self.out = out
        self.err = err
        self.open = {out, err}
        self.stopped = 0.0  # when its time was up and it was first told to die
        self.over: list[tuple[Task, Ending]] = []
        self._begin(tasks, budget_s)
        self.pending = b""
        self.noise = ""
        self.tail = b""

    def _begin(self, tasks: Sequence[Task], budget_s: float) -> None:
        """The first of ``tasks`` begins now; the rest follow in the same process."""
        self.task, *self.rest = tasks
        self.started = time.monotonic()
        self.deadline = self.started + budget_s
        self.waited = 0.0  # seconds for a processor, which its deadline does not count
        self.most_s = (waits.LONGEST - 1) * budget_s
        self.final: dict[str, Any] | None = None

    def read(self, fd: int, run_deadline: float) -> None:
        """Takes what waits in one pipe, at most 4 MiB, so that a child that floods it cannot keep us here."""
        for _ in range(64):
            if fd not in self.open:
                return
            try:
                piece = os.read(fd, 65536)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                self.open.discard(fd)
            elif fd == self.err:
                self.tail = (self.tail + piece)[-TAIL_BYTES:]
            else:
                self.pending += piece
                self._take_lines(run_deadline)

    def _take_lines(self, run_deadline: float) -> None:
        *lines, self.pending = self.pending.split(b"\n")
        for line in lines:
            try:
                document = json.loads(line.decode("utf-8"))
            except ValueError:
                document = None
            if not isinstance(document, dict) or not document or self.final is not None:
                self.noise = self.noise or line[:80].decode("utf-8", "replace")
            elif "said" in document:
                if not self.task.strict:
                    self.deadline = run_deadline
                if self.task.heard is not None:
                    self.task.heard(document["said"])
            elif self.rest and "value" in document and not (self.noise or self.stopped):
                seconds = round(time.monotonic() - self.started, 3)
                self.over.append((self.task, Ending("ran", "", "", document["value"], seconds)))
                self._begin(self.rest, min(self.rest[0].budget_s, run_deadline - time.monotonic()))
            else:
                self.final = document

    def ending(self, status: int) -> Ending:
        """What a wait status and the documents amount to."""
        seconds = round(time.monotonic() - self.started, 3)
        tail = self.tail.decode("utf-8", "replace")
        if os.WIFSIGNALED(status):
            return Ending("killed", "", _signal_name(os.WTERMSIG(status)), None, seconds, tail)
        code = os.WEXITSTATUS(status)
        final = self.final or {}
        if self.noise or self.pending:
            noise = self.noise or self.pending[:80].decode("utf-8", "replace")
            detail = f"its pipe holds something that is no document: {noise!r}"
            return Ending("garbled", detail, "", None, seconds, tail)
        if "raised" in final:
            return Ending("raised", str(final["raised"]), "", None, seconds, tail, str(final.get("cuda", "")))
        if "not-applicable" in final:
            return Ending("not-applicable", str(final["not-applicable"]), "", None, seconds, tail)
        if "value" in final and code == 0:
            return Ending("ran", "", "", final["value"], seconds, tail)
        return Ending("garbled", f"it exited with status {code} and without its document", "", None, seconds, tail)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _send(fd: int, document: dict[str, Any]) -> None:
    data = json.dumps(document).encode("utf-8") + b"\n"
    while data:
        data = data[os.write(fd, data) :]


def perform(
    work: Callable[[Callable[[Any], None]], Any],
    fd: int,
    budget_s: float,
    *more: Callable[[Callable[[Any], None]], Any],
) -> None:
    """Does ``work`` in this process, sends its end to ``fd``, and leaves; it never returns.

    What is in ``more`` comes after it, one after another, while each goes well.

    A fatal signal and a budget that is nearly spent both write the Python stack to stderr, the latter again and again,
    for the budget may be longer on a busy machine.
    """
    try:
        sys.stdout = os.fdopen(1, "w", errors="backslashreplace", closefd=False)
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
        faulthandler.enable(file=2)
        faulthandler.dump_traceback_later(max(0.05, min(budget_s * 0.9, budget_s - 0.3)), repeat=True, file=2)
        try:
            document = {"value": work(lambda said: _send(fd, {"said": said}))}
            for another in more:
                _send(fd, document)
                document = {"value": another(lambda said: _send(fd, {"said": said}))}
        except NotApplicable as lacking:
            document = {"not-applicable": str(lacking)}
        except BaseException as error:  # whatever ends a test is its result
            traceback.print_exc()
            text = str(error).strip()
            document = {"raised": type(error).__name__ + (f": {text[:2000]}" if text else "")}
            code, name = cuda_error.code_of(error)
            if code:
                document["cuda"] = f"{code} {name}".strip()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _send(fd, document)
        os._exit(0)
    finally:
        os._exit(70)  # the document could not be sent; no handler of the parent's may run in this copy of it


def _start(tasks: Sequence[Task], budget_s: float) -> _Running:
    """A child that performs ``tasks`` one after another, ``budget_s`` seconds for the first of them."""
    task = tasks[0]
    out, out_child = os.pipe()
    err, err_child = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            watchdog.die_with_parent(parent)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for fd, place in ((nothing, 0), (err_child, 1), (err_child, 2)):
                os.dup2(fd, place)
            if task.argv:
                os.set_inheritable(out_child, True)
                os.execv(task.argv[0], [*task.argv, str(out_child)])
            works = [one.work for one in tasks if one.work is not None]
            perform(works[0], out_child, budget_s, *works[1:])
        finally:
            os._exit(70)
    with contextlib.suppress(OSError):  # both sides do it, so that the group exists whoever comes first
        os.setpgid(pid, pid)
    os.close(out_child)
    os.close(err_child)
    for fd in (out, err):
        os.set_blocking(fd, False)
    return _Running(tasks, pid, out, err, budget_s)


def _kill(child: _Running) -> None:
    with contextlib.suppress(OSError):  # nobody may be left in the group
        os.killpg(child.pid, signal.SIGKILL)


def _sweep(child: _Running) -> None:
    """Kills what the dead child left in its group, and closes its pipes."""
    _kill(child)
    os.close(child.out)
    os.close(child.err)


def _finished(child: _Running, run_deadline: float, end: float, looked: bool) -> Ending | None:
    """How the child ended, or None while it goes on or dies: several that do not die are waited for side by side.

    ``looked``: what it waited for a processor is known up to now, so that its time can be found to be up.
    """
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if not pid:
        now = time.monotonic()
        if not child.stopped and not (looked and now > min(end, child.deadline + min(child.waited, child.most_s))):
            return None
        child.stopped = child.stopped or now
        _kill(child)
        if now <= child.stopped + _DEATH_S:
            return None
    for fd in (child.out, child.err):
        child.read(fd, run_deadline)  # a grandchild may hold the pipe open, so its end is not waited for
    if not child.stopped:
        return child.ending(status)
    seconds = round(time.monotonic() - child.started, 3)
    detail = f"no answer within {child.deadline - child.started:.0f} s"
    if child.waited >= 1:
        detail += f" and {child.waited:.0f} s more in which it waited for a processor"
    if not pid:
        detail += f"; process {child.pid} did not die of SIGKILL"
    return Ending("hung", detail, "", None, seconds, child.tail.decode("utf-8", "replace"))


def run(
    lanes: Sequence[Sequence[Task]],
    budget_s: float,
    done: Callable[[Task, Ending], None],
    before: Callable[[Task], None] | None = None,
    meanwhile: Callable[[], object] | None = None,
    shared: bool = False,
) -> None:
    """Runs the tasks of each lane one after another and the lanes side by side; all of it within ``budget_s``.

    Each task has a child of its own or, where they are ``shared``, that of the one before it in its lane, if that ran.

    Of that budget, as of each task's, what was spent waiting for a processor does not count; ``waits.LONGEST`` times
    the budget is its end in any case.
    ``done`` is called with every task exactly once; a task that the budget left no time for is "hung".  ``before``
    is called just before each fork, ``meanwhile`` once, when the first task of every lane runs; the time that it takes
    does not count.
    """
    faulthandler.cancel_dump_traceback_later()  # a forked child would wait for its thread, which it does not have
    end = time.monotonic() + budget_s * waits.LONGEST
    deadline = time.monotonic() + budget_s
    clock = waits.Waits()
    waiting = [list(lane) for lane in lanes]
    running: dict[int, _Running] = {}
    try:
        while running or any(waiting):
            for number, lane in enumerate(waiting):
                while lane and number not in running:
                    task = lane.pop(0)
                    left = deadline - time.monotonic()
                    if left <= 0:
                        done(task, Ending("hung", f"not started: the run's budget of {budget_s:.0f} s was spent"))
                        continue
                    if before is not None:
                        before(task)
                    try:
                        running[number] = _start([task, *(lane if shared else ())], min(task.budget_s, left))
                    except OSError as error:  # a limit on processes or descriptors
                        done(task, Ending("raised", f"no process could be started for it: {error}"))
                    else:
                        del lane[: len(running[number].rest)]
            if meanwhile is not None:
                began, work, meanwhile = time.monotonic(), meanwhile, None
                work()
                unheard = time.monotonic() - began  # who waits to be heard has not hung
                end, deadline = end + unheard, deadline + unheard
                for child in running.values():
                    child.deadline += unheard
            _listen(list(running.values()), deadline)
            waited = clock.since([child.pid for child in running.values()])
            deadline = min(end, deadline + max(waited.values(), default=0.0))
            for child in running.values():
                child.waited += waited.get(child.pid, 0.0)
            for number, child in list(running.items()):
                ending = _finished(child, deadline, end, child.pid in waited)
                if ending is not None:
                    del running[number]
                    _sweep(child)
                    child.over.append((child.task, ending))
                    waiting[number][:0] = child.rest  # which its end has left undone
                while child.over:
                    done(*child.over.pop(0))
    finally:
        for child in running.values():
            _kill(child)
        limit = time.monotonic() + _DEATH_S
        for child in running.values():
            while not os.waitpid(child.pid, os.WNOHANG)[0] and time.monotonic() < limit:
                time.sleep(_TICK_S)
            _sweep(child)


def run_one(task: Task) -> Ending:
    """How one task ends that is run by itself, within its budget."""
    ended: list[Ending] = []
    run([[task]], task.budget_s, lambda _, ending: ended.append(ending))
    return ended[0]


def _listen(children: list[_Running], run_deadline: float) -> None:
    poll = select.poll()
    owner = {fd: child for child in children for fd in child.open}
    for fd in owner:
        poll.register(fd, select.POLLIN)
    ending = any(child.final is not None or not child.open for child in children)
    for fd, _ in poll.poll((_ENDING_S if ending else _TICK_S) * 1000):
        owner[fd].read(fd, run_deadline)
