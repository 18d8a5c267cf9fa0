"""Ranks that stand still: what each of them does is said while they are observed further, and who is ended by what."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torches
from clocks import ends
from nightly import at_night

from envkit import debug, facts
from envkit.debug import job
from envkit.debug.records import DebugReport, Verdict
from envkit.payload.companion import envkit_doing as doing

LAUNCHER = """
import os, subprocess, sys, tempfile
folder = tempfile.mkdtemp(dir=os.path.dirname(__file__))  # the ranks meet in a file: a free port may be taken by then
given = {"WORLD_SIZE": "2", "MEET": os.path.join(folder, "ranks")}
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, **given, "RANK": str(n)})
         for n in range(2)]
sys.exit(max(abs(each.wait()) for each in ranks))
"""
PROGRAM = Path(__file__).parent / "debug" / "waiting_ranks.py"
Debugged = Callable[..., tuple[DebugReport, list[str]]]


@pytest.fixture
def debugged(tmp_path: Path) -> Debugged:
    """Runs ``envkit debug --ranks`` on two ranks that are suspected after 3 seconds; the report, and what was said.

    The ranks go on ``until`` that was said.
    """
    launcher = tmp_path / "launcher.py"
    launcher.write_text(LAUNCHER)

    def run(
        case: str, seconds: float, stage_s: float = 90.0, until: str = "", **more: bool
    ) -> tuple[DebugReport, list[str]]:
        said: list[str] = []
        seen = tmp_path / "seen"

        def hear(line: str) -> None:
            said.append(line)
            if until and until in line:
                seen.touch()

        command = (torches.PYTHON, str(launcher), str(PROGRAM), case, str(seconds), *([str(seen)] if until else ()))
        request = debug.DebugRequest(command, 200.0, stage_s, 0.0, hang_after_s=3.0, folder=tmp_path / "out", **more)
        with ends():
            return debug.run(request, job.LocalMachine(), facts.load(), hear), said

    return run


@pytest.mark.slow  # ranks stand still for longer than a suspicion takes
@torches.needs_torch
@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("sleeps", "sleeps"),
        ("saves", "writes a checkpoint"),
        *at_night(("loads", "loads"), ("compiles", "compiles"), ("prepares", "prepares data")),
    ],
)
def test_a_rank_that_will_come_is_suspected_live_and_observed_to_its_end(
    debugged: Debugged, case: str, word: str
) -> None:
    made, said = debugged(case, 14.0 if case == "sleeps" else 8.0, 300.0, "the ranks go on, after they stood still")
    assert (made.verdict, made.cause, made.exit) == (Verdict.CLEAN, "", 0), (made.cause, said)
    waits = r"rank 0 waits for other ranks at \S*waiting_ranks\.py:\d+ in main"
    does = rf"rank 1 {word} at \S*waiting_ranks\.py:\d+ in \w+"
    assert any(re.search(rf"no rank made a step .*{waits}.*; {does}", line) for line in said), said
    assert any("the ranks go on, after they stood still" in line for line in said), said


@pytest.mark.slow  # imports torch twice
@torches.needs_torch
def test_two_that_wait_for_each_other_are_ended_by_their_stacks_and_their_twin_is_not(debugged: Debugged) -> None:
    made, said = debugged("deadlock", 0.0)
    assert made.verdict is Verdict.FOUND and made.steps[0].ended == "hung", (made, said)
    assert "rank 0 waits in recv from rank 1" in made.cause and "waiting_ranks.py" in made.cause
    assert made.elapsed_s < 60.0  # and not at its budget


@pytest.mark.slow  # imports torch twice
@torches.needs_torch
def test_messages_that_meet_raise_no_suspicion(debugged: Debugged) -> None:
    made, said = debugged("messages", 0.0)
    assert (made.verdict, made.cause, made.exit) == (Verdict.CLEAN, "", 0), (made.cause, said)
    assert not any("waits for other ranks" in line and "recv" in line for line in said), said


@pytest.mark.slow  # lets its time run out
@torches.needs_torch
@pytest.mark.parametrize("case", ["loads", "sleeps"])
def test_at_the_end_of_its_time_a_job_that_loads_is_undecided_and_one_that_sleeps_is_not(
    debugged: Debugged, case: str
) -> None:
    made, _ = debugged(case, 600.0, stage_s=25.0)
    assert made.steps[0].ended == "timed-out"
    if case == "loads":
        assert made.verdict is Verdict.UNDECIDED and "its ranks may go on: rank 1 loads at" in made.cause
    else:
        assert made.verdict is Verdict.FOUND and "rank 1 has not come there: rank 1 sleeps at" in made.cause


@pytest.mark.slow  # waits for the time that was given
@torches.needs_torch
def test_hang_timeout_ends_a_job_whatever_its_ranks_do(debugged: Debugged) -> None:
    made, _ = debugged("sleeps", 600.0, hang_ends=True)
    assert made.verdict is Verdict.FOUND and made.steps[0].ended == "hung"


# -- what a stack says

SITE = "/opt/lib/python3.11/site-packages"


def stack(*frames: str) -> str:
    """As faulthandler writes it, the innermost frame first; a frame is file, line and function."""
    return "".join('  File "{}", line {} in {}\n'.format(*frame.rsplit(" ", 2)) for frame in frames)


@pytest.mark.parametrize(
    ("what", "frames"),
    [
        (doing.WAITS, (f"{SITE}/torch/distributed/distributed_c10d.py 2806 all_reduce", "/w/train.py 9 step")),
        (doing.WAITS, (f"{SITE}/torch/autograd/graph.py 823 _engine_run_backward", "/w/train.py 9 step")),
        (doing.COMPILES, (f"{SITE}/torch/_inductor/codecache.py 9 load_by_key_path", "/w/train.py 9 step")),
        (doing.COMPILES, ("/lib/python3.11/subprocess.py 9 communicate", f"{SITE}/triton/runtime/build.py 9 _build")),
        (doing.LOADS, (f"{SITE}/torch/serialization.py 9 _load", "/w/train.py 9 step")),
        (doing.LOADS, ("<frozen importlib._bootstrap_external> 1 get_code", "/w/train.py 9 step")),
        (doing.LOADS, ("/w/io.py 3 read", "/w/io.py 9 load_sharded_weights", "/w/train.py 9 step")),
        (doing.SAVES, (f"{SITE}/torch/serialization.py 9 save", "/w/train.py 9 step")),
        (doing.SAVES, (f"{SITE}/torch/distributed/checkpoint/filesystem.py 9 _write_item", "/w/train.py 9 step")),
        (doing.WAITS, (f"{SITE}/torch/distributed/distributed_c10d.py 9 _object_to_tensor",
                       f"{SITE}/torch/distributed/checkpoint/state_dict_saver.py 9 save", "/w/train.py 9 step")),
        (doing.PREPARES, (f"{SITE}/torch/utils/data/dataloader.py 9 _try_get_data", "/w/train.py 9 step")),
        (doing.PREPARES, ("/w/text.py 9 tokenize_shard", "/w/train.py 9 main")),
        (doing.PREPARES, ("/w/text.py 9 row", f"{SITE}/torch/utils/data/_utils/fetch.py 9 fetch", "/w/a.py 9 main")),
        ("", ("/w/a.py 9 main", "<frozen importlib._bootstrap> 9 _load_unlocked", "/w/train.py 9 <module>")),
        ("", ("/w/train.py 9 step", "/w/train.py 20 <module>")),
        ("", (f"{SITE}/torch/nn/modules/linear.py 9 forward", "/w/train.py 9 step")),
        ("", (f"{SITE}/torch/_inductor/utils.py 9 run", "/w/train.py 9 step")),
        ("", ()),
    ],
)  # fmt: skip
def test_what_a_stack_says(what: str, frames: tuple[str, ...]) -> None:
    assert doing.of(stack(*frames)).what == what


def test_a_process_with_a_gpu_waits_where_one_without_computes() -> None:
    text = stack("/w/train.py 9 item", "/w/train.py 20 <module>")
    assert (doing.of(text, cuda=True).what, doing.of(text).what) == (doing.GPU, "")


def test_the_line_that_a_thread_stands_at_says_that_it_sleeps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(9)\nsleepy = 3\n")
    there, beside = (doing.of(stack(f"{tmp_path}/train.py {line} main")) for line in (2, 3))
    assert (there.what, beside.what) == (doing.SLEEPS, "")
    assert str(there) == f"sleeps at {tmp_path}/train.py:2 in main"


def test_what_is_said_of_ranks_cannot_steer_a_terminal_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / job.SUSPICIONS).symlink_to("/etc/hostname")
    assert job.CommandRun(tmp_path, "exited", 0, 1.0).suspicions() == ()
