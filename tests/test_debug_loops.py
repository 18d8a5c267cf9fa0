"""The loop of a program that marks no steps is found by its rounds, on whichever Python the tests run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torches

from envkit.debug.job import COMPANION

# Seconds of the companion are hundredths here; the program goes on until its loop has come round often enough.
WATCHED = """\
import json, os, sys, time
sys.path.insert(0, {companion!r})
import envkit_loops as loops
loops._SETTLE_S, loops._EVERY_S, loops._GONE_S = 0.06, 0.01, 0.1
told, trouble = [], []
def again():
    told.append(loops.place()[1])
    if len(told) == 8 and {stops}:
        loops.stop()
{before}
loops.watch(again, lambda: 9.0, lambda file: file == __file__, trouble.append, os.getpid())
end = time.monotonic() + 20
def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
{program}
print(json.dumps([told, trouble, sys.gettrace() is None]))
"""
NESTED = """\
def work():
    return [busy(0.0004) for _ in range(3)]
def main():
    for epoch in range(100000):
        for batch in range(1000000):  # here
            work()
            if len(told) >= 8 or time.monotonic() > end:
                return
main()
"""
LOADS = """\
def load():
    for part in range(3):  # what is loaded first, and ends in fewer rounds than tell a loop, however long they take
        busy(0.001)
def deeper():
    time.sleep(0.5)  # an import, in which the program is when it is looked at first
    load()
    while True:
        busy(0.001)  # here
        if len(told) >= 8 or time.monotonic() > end:
            return
deeper()
"""
LATER = """\
def first():
    while not told and time.monotonic() < end:  # a loop that ends
        busy(0.002)
def second():
    while told[0] == told[-1] and time.monotonic() < end:
        busy(0.002)
first()
second()
"""


def seen(folder: Path, program: str, before: str = "", *, stops: bool = True) -> tuple[list[int], list[str], bool, str]:
    """The lines of the loops that were told, trouble, whether nothing traces in the end, and the program's text."""
    text = WATCHED.format(companion=str(COMPANION), program=program, before=before, stops=stops)
    (folder / "train.py").write_text(text)
    done = subprocess.run([sys.executable, "-I", str(folder / "train.py")], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    told, trouble, untraced = json.loads(done.stdout)
    return told, trouble, untraced, text


def near(text: str, mark: str) -> set[int]:
    """The line of a mark and the one after: a loop that is asked at its end begins with its body."""
    number = next(number for number, line in enumerate(text.splitlines(), 1) if mark in line)
    return {number, number + 1}


def test_the_outermost_loop_that_comes_round_is_a_step(tmp_path: Path) -> None:
    told, trouble, untraced, text = seen(tmp_path, NESTED)
    assert len(told) == 8 and set(told) <= near(text, "# here") and trouble == [] and untraced


def test_a_loop_that_was_entered_later_is_found_and_one_that_has_ended_is_not(tmp_path: Path) -> None:
    told, trouble, _, text = seen(tmp_path, LOADS)
    assert len(told) == 8 and set(told) <= {line - 1 for line in near(text, "# here")}
    assert trouble == []


def test_a_loop_that_ended_gives_way_to_the_next(tmp_path: Path) -> None:
    told, trouble, _, text = seen(tmp_path, LATER, stops=False)
    assert told[0] in near(text, "# a loop that ends") and told[-1] != told[0] and trouble == []


def test_a_program_that_is_traced_by_another_is_left_alone(tmp_path: Path) -> None:
    if sys.version_info >= (3, 12):
        before = "[sys.monitoring.use_tool_id(number, 'other') for number in (3, 4)]"
    else:
        before = "sys.settrace(lambda *_: None)"
    program = NESTED.replace("len(told) >= 8", "trouble")
    told, trouble, untraced, _ = seen(tmp_path, program, before)
    assert told == [] and "its loops are not seen" in trouble[0]
    assert untraced is (sys.version_info >= (3, 12))


SERVES = """\
import sys, time
import torch
torch.set_num_threads(1)
net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
kept = []
def answer(batch):
    rows = [net(row) for row in batch]  # slow here
    kept.append(torch.zeros(1 << 18).add_(rows[0][0]))  # kept here
with torch.no_grad():
    end = time.monotonic() + 13
    while time.monotonic() < end:
        answer(torch.randn(300, 64))
"""


@torches.needs_torch
@pytest.mark.nightly  # half a minute
@pytest.mark.parametrize(("question", "mark"), [("--slow", "# slow here"), ("--memory", "# kept here")])
def test_a_program_that_only_evaluates_is_told_its_line(question: str, mark: str, tmp_path: Path) -> None:
    program = tmp_path / "serve.py"
    program.write_text(SERVES)
    argv = [sys.executable, "-m", "envkit", "debug", question, "--format", "json", "--out", str(tmp_path / "out")]
    done = subprocess.run([*argv, "--", torches.PYTHON, str(program)], capture_output=True, text=True, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["verdict"] == "found" and found["findings"][0]["places"][0]["line"] in near(SERVES, mark), found
    assert any("a step is a round of the loop at" in note for note in found["notes"])
