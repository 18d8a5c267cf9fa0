"""The time that a process waits for a processor counts for no budget; what hangs is ended all the same."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from envkit.payload import isolate, waits, watchdog
from envkit.payload.isolate import Ending, Task
from envkit.payload.probe.ask import ask
from envkit.system import proc

pytestmark = pytest.mark.slow  # whoever shall wait for a processor does so for seconds
_HOGS = 7


@pytest.fixture
def crowded() -> Iterator[None]:
    """This process and its children have one processor, which others compute on as well."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    hogs = []
    try:
        for _ in range(_HOGS):
            pid = os.fork()
            if pid == 0:
                signal.alarm(300)  # should this be killed
                while True:
                    pass
            hogs.append(pid)
        yield
    finally:
        for pid in hogs:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.sched_setaffinity(0, before)


def computes(seconds: float) -> Callable[..., str]:
    """Computes until so much time has passed, of which it has only a part."""

    def work(*_: object) -> str:
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            pass
        return "done"

    return work


def sleeps(*_: object) -> None:
    time.sleep(600)


def spins(*_: object) -> None:
    while True:
        pass


def ending(work: Callable[[Callable[[Any], None]], Any], budget_s: float, run_s: float = 600.0) -> Ending:
    ends: list[Ending] = []
    isolate.run([[Task("one", "cpu", budget_s, work)]], run_s, lambda _, end: ends.append(end))
    (end,) = ends
    return end


def waited(work: Callable[[], Any]) -> tuple[float, float]:
    """What a child that does ``work`` waited for a processor, and how long it took."""
    clock, started, total = waits.Waits(), time.monotonic(), 0.0
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    while not os.waitpid(pid, os.WNOHANG)[0]:
        total += clock.since([pid]).get(pid, 0.0)
        time.sleep(0.02)
    return total, time.monotonic() - started


@pytest.mark.usefixtures("crowded")
def test_waiting_for_a_processor_is_seen() -> None:
    total, took = waited(computes(3.0))
    assert total > took / 2


@pytest.mark.usefixtures("crowded")
def test_what_a_grandchild_waits_counts_too() -> None:
    def parent() -> None:
        pid = os.fork()
        if pid == 0:
            computes(3.0)()
            os._exit(0)
        os.waitpid(pid, 0)

    total, took = waited(parent)
    assert total > took / 2


@pytest.mark.usefixtures("crowded")
def test_sleeping_is_no_waiting() -> None:
    total, took = waited(lambda: time.sleep(3.0))
    assert total < took / 4


def test_it_is_not_looked_more_often_than_it_pays() -> None:
    clock = waits.Waits()
    assert clock.since([os.getpid()]) == {}


def test_a_process_that_is_gone_waits_for_nothing() -> None:
    clock = waits.Waits()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    time.sleep(0.6)
    assert clock.since([pid]) == {pid: 0.0}


@pytest.mark.usefixtures("crowded")
def test_a_task_on_a_busy_machine_is_not_taken_for_a_hang() -> None:
    assert ending(computes(3.0), budget_s=2.0).ended == "ran"


@pytest.mark.usefixtures("crowded")
def test_nor_is_a_run_of_tasks() -> None:
    assert ending(computes(3.0), budget_s=60.0, run_s=2.0).ended == "ran"


@pytest.mark.usefixtures("crowded")
def test_a_task_that_sleeps_is_a_hang_on_a_busy_machine_too() -> None:
    assert ending(sleeps, budget_s=1.0).ended == "hung"


@pytest.mark.usefixtures("crowded")
def test_a_task_that_spins_is_a_hang_and_the_waiting_is_reported() -> None:
    hung = ending(spins, budget_s=1.0)
    assert hung.ended == "hung"
    assert "no answer within 1 s and " in hung.detail and "more in which it waited for a processor" in hung.detail
    assert hung.seconds >= 2


@pytest.mark.usefixtures("crowded")
def test_a_question_on_a_busy_machine_is_answered() -> None:
    assert ask(computes(3.0), budget_s=2.0) == ("done", "")


@pytest.mark.usefixtures("crowded")
def test_a_question_that_hangs_is_not() -> None:
    assert ask(sleeps, budget_s=1.0) == (None, "did not end within 1 s")


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize(("work", "code"), [(computes(3.0), 7), (sleeps, 137)])
def test_a_guarded_run_has_its_budget_without_its_waiting(work: Callable[[], Any], code: int) -> None:
    def whole() -> int:
        work()
        return 7

    pid = os.fork()
    if pid == 0:
        os._exit(watchdog.guard(whole, False, 2.0))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code


@pytest.mark.usefixtures("crowded")
def test_a_program_on_a_busy_machine_has_its_budget_without_its_waiting() -> None:
    computing = "import time; end = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
    assert proc.run([sys.executable, "-S", "-c", computing], timeout_s=2.0).timed_out is False
    assert proc.run(["sleep", "600"], timeout_s=2.0).timed_out is True


def test_the_next_look_waits_by_what_the_last_one_cost() -> None:
    clock, roots, spent = waits.Waits(), [os.getpid()] * 20_000, 0.0  # a machine with many processes
    found: dict[int, float] = {}
    while not found:
        before = time.thread_time()
        found = clock.since(roots)
        spent = time.thread_time() - before
        time.sleep(0.02)
    assert spent > 0.05
    assert clock._next - clock._looked > 10 * spent
