"""Each way in which a child can end is told apart, and none of them can hold the run up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes
import pytest
from clocks import comes, ends

from envkit.payload import isolate
from envkit.payload.isolate import Ending, Task

Work = Callable[[Callable[[Any], None]], Any]
ROOT = str(Path(isolate.__file__).parents[2])


def run_one(task: Task, budget_s: float = 30.0) -> Ending:
    ends: list[Ending] = []
    isolate.run([[task]], budget_s, lambda _, ending: ends.append(ending))
    assert len(ends) == 1
    return ends[0]


def forked(work: Work, budget_s: float = 60.0) -> Ending:
    return run_one(Task("one", "cpu", budget_s, work))


def gone(pid: int) -> bool:
    """Whether a process has ended, given a moment; a zombie has."""
    return comes(lambda: processes.gone(pid))


def test_what_ran_gives_its_value_and_its_last_words() -> None:
    def work(_: object) -> object:
        sys.stderr.write("a warning\n")
        return {"a": 1.5}

    ending = forked(work)
    assert (ending.ended, ending.value, ending.stderr_tail) == ("ran", {"a": 1.5}, "a warning\n")


def test_noise_on_stdout_does_not_reach_the_document() -> None:
    def work(_: object) -> object:
        print("noise")
        os.write(1, b'{"value": "forged"}\n')
        return "real"

    ending = forked(work)
    assert (ending.ended, ending.value) == ("ran", "real")
    assert "forged" in ending.stderr_tail and "noise" in ending.stderr_tail


def test_an_exception_is_told_with_its_traceback() -> None:
    ending = forked(lambda _: 1 / 0)
    assert (ending.ended, ending.detail) == ("raised", "ZeroDivisionError: division by zero")
    assert "Traceback" in ending.stderr_tail


def test_leaving_by_sys_exit_is_an_exception() -> None:
    assert forked(lambda _: sys.exit(0)).ended == "raised"


def test_not_applicable_is_no_fault() -> None:
    def work(_: object) -> object:
        raise isolate.NotApplicable("there is no GPU")

    ending = forked(work)
    assert (ending.ended, ending.detail) == ("not-applicable", "there is no GPU")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_signal_is_named(name: str) -> None:
    def work(_: object) -> object:
        os.kill(os.getpid(), signal.Signals[name])
        threading.Event().wait(60)  # another thread may take the signal, and this one would go on meanwhile
        return None

    ending = forked(work)
    assert (ending.ended, ending.signal) == ("killed", name)


def test_a_segmentation_fault_leaves_its_stack() -> None:
    def work(_: object) -> object:
        os.kill(os.getpid(), signal.SIGSEGV)
        return None

    assert "test_isolate.py" in forked(work).stderr_tail


@pytest.mark.parametrize("status", [0, 3])
def test_leaving_without_a_document_is_garbled(status: int) -> None:
    ending = forked(lambda _: os._exit(status))
    assert (ending.ended, ending.detail) == ("garbled", f"it exited with status {status} and without its document")


def test_a_value_that_json_cannot_hold_is_garbled() -> None:
    ending = forked(lambda _: object())
    assert ending.ended == "garbled"
    assert "status 70" in ending.detail


def test_junk_in_the_pipe_is_garbled() -> None:
    ours = set(os.listdir("/proc/self/fd"))

    def work(_: object) -> object:
        for fd in sorted(set(os.listdir("/proc/self/fd")) - ours):  # whichever of them the pipe is
            with contextlib.suppress(OSError):
                os.write(int(fd), b"junk\n")
        return 1

    assert forked(work).ended == "garbled"


def test_a_hang_costs_its_budget_and_tells_where_it_stood() -> None:
    def stuck_here(_: object) -> object:
        time.sleep(600)
        return None

    with ends():
        ending = forked(stuck_here, budget_s=2.0)
        assert ending.ended == "hung"
        assert "no answer within 2 s" in ending.detail
        assert "stuck_here" in ending.stderr_tail


def test_a_child_that_ignores_every_signal_it_can_is_ended() -> None:
    said: list[Any] = []

    def work(say: Callable[[Any], None]) -> object:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        say(os.getpid())
        while True:
            time.sleep(1)

    ending = run_one(Task("one", "cpu", 3.0, work, heard=said.append), budget_s=5.0)
    assert ending.ended == "hung"
    assert gone(said[0])


def test_a_grandchild_that_keeps_the_pipes_is_not_waited_for_and_ends() -> None:
    def work(_: object) -> object:
        grandchild = os.fork()
        if grandchild == 0:
            time.sleep(600)
            os._exit(0)
        return grandchild

    with ends():
        ending = forked(work)
        assert ending.ended == "ran"
    assert gone(ending.value)


def test_a_grandchild_of_a_hang_ends_with_it() -> None:
    said: list[Any] = []

    def work(say: Callable[[Any], None]) -> object:
        grandchild = os.fork()
        if grandchild == 0:
            time.sleep(600)
            os._exit(0)
        say(grandchild)
        time.sleep(600)
        return None

    assert run_one(Task("one", "cpu", 60.0, work, heard=said.append), budget_s=3.0).ended == "hung"
    assert gone(said[0])


def test_a_flood_on_stderr_neither_blocks_nor_grows() -> None:
    def work(_: object) -> object:
        for _number in range(2000):
            os.write(2, b"x" * 1024)
        os.write(2, b"the end")
        return 1

    ending = forked(work)
    assert ending.ended == "ran"
    assert len(ending.stderr_tail) == isolate.TAIL_BYTES
    assert ending.stderr_tail.endswith("the end")


def test_an_endless_flood_is_a_hang() -> None:
    def work(_: object) -> object:
        while True:
            os.write(2, b"x" * 65536)

    assert forked(work, budget_s=0.5).ended == "hung"


def test_lanes_run_side_by_side_and_their_tasks_in_order(tmp_path: Path) -> None:
    came: list[tuple[str, str]] = []
    devices = ("cuda:0", "cuda:1", "cuda:2")

    def meet(number: int, device: str) -> Work:
        def work(_: object) -> object:
            """No lane's task ends before the other lanes have come as far."""
            (tmp_path / f"{number}-{device}").touch()
            return comes(lambda: len(list(tmp_path.glob(f"{number}-*"))) == len(devices))

        return work

    lanes = [[Task(str(number), device, 60.0, meet(number, device)) for number in range(2)] for device in devices]
    isolate.run(lanes, 120.0, lambda task, ending: came.append((task.device, task.name + ending.ended)))
    assert sorted(came) == [(device, f"{number}ran") for device in devices for number in (0, 1)]
    assert [name for device, name in came if device == "cuda:1"] == ["0ran", "1ran"]


def test_what_the_budget_leaves_no_time_for_is_told() -> None:
    ends: list[tuple[str, str]] = []
    tasks = [Task(str(number), "cpu", 60.0, lambda _: time.sleep(600)) for number in range(3)]
    isolate.run([tasks], 0.5, lambda task, ending: ends.append((task.name, ending.detail)))
    assert [name for name, _ in ends] == ["0", "1", "2"]
    assert "not started" in ends[2][1]


def test_one_death_costs_one_task() -> None:
    ends: list[str] = []
    works: list[Work] = [lambda _: os.abort(), lambda _: 1]
    isolate.run([[Task("", "", 60.0, work) for work in works]], 120.0, lambda _, ending: ends.append(ending.ended))
    assert ends == ["killed", "ran"]


def shared(*tasks: Task) -> list[tuple[str, str, Any]]:
    """How the tasks of one lane ended that share a child: name, end and value."""
    ends: list[tuple[str, str, Any]] = []
    isolate.run([tasks], 120.0, lambda task, ending: ends.append((task.name, ending.ended, ending.value)), shared=True)
    return ends


def test_tasks_that_share_a_child_run_in_one_process_one_after_another() -> None:
    ends = shared(*(Task(name, "", 60.0, lambda _: os.getpid(), strict=True) for name in "abc"))
    assert [(name, ended) for name, ended, _ in ends] == [("a", "ran"), ("b", "ran"), ("c", "ran")]
    assert len({pid for *_, pid in ends}) == 1 and ends[0][2] != os.getpid()


@pytest.mark.parametrize(
    ("work", "end"),
    [
        (lambda _: os.abort(), "killed"),
        (lambda _: time.sleep(600), "hung"),
        (lambda _: 1 / 0, "raised"),
        (lambda _: os._exit(0), "garbled"),
    ],
)
def test_an_end_costs_the_one_task_and_another_child_goes_on(work: Work, end: str) -> None:
    """The time of each task is its own: those before the one that hangs have taken nothing of it."""
    middle = Task("b", "", 0.5 if end == "hung" else 60.0, work, strict=True)
    around = [Task(name, "", 60.0, lambda _: os.getpid(), strict=True) for name in "acd"]
    ends = shared(around[0], middle, *around[1:])
    assert [(name, ended) for name, ended, _ in ends] == [("a", "ran"), ("b", end), ("c", "ran"), ("d", "ran")]
    first, last, same = (ends[number][2] for number in (0, 2, 3))
    assert first != last == same


@pytest.mark.slow  # a budget that a loaded machine keeps, and more than that of silence
def test_what_is_done_meanwhile_is_no_time_of_a_child_that_waits_to_be_heard() -> None:
    """It says more than a pipe holds, so that it cannot end before it is read."""
    ends: list[str] = []
    task = Task("", "", 3.0, lambda _: "x" * (1 << 18), strict=True)
    isolate.run([[task]], 60.0, lambda _, ending: ends.append(ending.ended), meanwhile=lambda: time.sleep(3.5))
    assert ends == ["ran"]


def test_intermediate_documents_come_as_they_are_sent() -> None:
    said: list[Any] = []

    def work(say: Callable[[Any], None]) -> object:
        say({"one": 1})
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    assert run_one(Task("", "", 60.0, work, heard=said.append)).ended == "killed"
    assert said == [{"one": 1}]


def test_a_fresh_interpreter_sends_its_end_the_same_way() -> None:
    code = f"""
import sys
sys.path.insert(0, {ROOT!r})
from envkit.payload import isolate
print("noise")
isolate.perform(lambda _: sys.argv[1], int(sys.argv[2]), 60.0)
"""
    ending = run_one(Task("", "", 60.0, argv=(sys.executable, "-c", code, "word")))
    assert (ending.ended, ending.value) == ("ran", "word")


def test_a_program_that_does_not_exist_is_garbled(tmp_path: Path) -> None:
    assert run_one(Task("", "", 60.0, argv=(str(tmp_path / "missing"),))).ended == "garbled"


def test_children_die_with_a_killed_parent() -> None:
    code = f"""
import os, sys, time
sys.path.insert(0, {ROOT!r})
from envkit.payload import isolate

def work(say):
    say(os.getpid())
    time.sleep(600)

def heard(pid):
    print(pid, flush=True)
    os.kill(os.getpid(), 9)

isolate.run([[isolate.Task("", "", 60.0, work, heard=heard)]], 60.0, print)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert gone(json.loads(done.stdout))


def test_no_descriptor_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        forked(lambda _: 1)
    assert len(os.listdir("/proc/self/fd")) == before
