"""The smoke suite on real releases of torch, without a GPU: green as they are, red under every saboteur, and gone when
it is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stacks

from envkit import facts, judge
from envkit.model import Outcome
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import chosen
from envkit.prove import Here, SmokeWish, smoke
from envkit.subjects import SmokeRun

pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]
RELEASES = ("t24", "t26", "t211", "t215")
KILLS = 20
# Inductor wants setuptools, which not every torch brings along; what builds is tried in the image, under every saboteur
# in its recorded run.
BUILDS = tuple(case.name for case in TESTS if case.builds)


def quiet(line: str) -> None:
    """Tells nobody."""


def outcomes(run: SmokeRun) -> dict[str, Outcome]:
    """What each check of a test says of the run."""
    results = {result.check.removeprefix("smoke-"): result for result in judge.judge(run, facts.load())}
    names = {test.name for test in run.tests.need("the tests")}
    return {name: result.outcome for name, result in results.items() if name in names}


@pytest.mark.parametrize("release", RELEASES)
def test_a_sound_torch_passes_every_test_that_means_something_without_a_gpu(release: str) -> None:
    exclude = () if (stacks.pristine(release).site / "setuptools").exists() else BUILDS
    run = smoke(Here(stacks.pristine(release).python), quiet, SmokeWish("full", exclude=exclude))
    judged = judge.judge(run, facts.load())
    bad = {result.check: result for result in judged if result.outcome not in (Outcome.PASS, Outcome.SKIP)}
    assert bad == {}
    ran = {test.name for test in run.tests.need("the tests") if test.ended == "ran"}
    assert len(ran) >= 40
    assert run.cuda_before_fork.value is False


def test_every_test_sees_each_of_its_saboteurs() -> None:
    run = smoke(Here(stacks.pristine("t26").python), quiet, SmokeWish("full", exclude=BUILDS, sabotage="all"))
    ran = {test.name for test in run.tests.need("the tests") if test.ended != "unfit"}
    assert len(ran) >= 40
    said = outcomes(run)
    assert {name for name in ran if said[name] is not Outcome.FAIL} == set()


def left() -> list[str]:
    """Processes, shared memory and folders of a smoke run that are still there."""
    found = [name for name in os.listdir("/dev/shm") if name.startswith(("nccl-", "torch_", "psm_", "sem."))]
    found += [name for name in os.listdir("/tmp") if name.startswith(("envkit-", "torch_"))]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if MARK in Path("/proc", pid, "environ").read_bytes():
                found.append(f"{pid} {words[:200]}")
        except OSError:
            continue
    return found


MARK = f"ENVKIT_TEST_KILLED={os.getpid()}".encode()


def test_a_run_that_is_killed_leaves_nothing() -> None:
    """SIGKILL at twenty random moments of a run that takes about ten seconds."""
    before = set(left())
    dice = random.Random(20261121)
    names = [case.name for case in chosen(TESTS, "full") if case.cpu and not case.builds]
    words = [word for name in names for word in ("--only", name)]
    for _ in range(KILLS):
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "envkit",
                "smoke",
                "--python",
                str(stacks.pristine("t26").python),
                "--gpus",
                "none",
                *words,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, MARK.decode().partition("=")[0]: MARK.decode().partition("=")[2]},
        )
        time.sleep(dice.uniform(0.2, 9.0))
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        deadline = time.monotonic() + 10
        while set(left()) - before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert set(left()) - before == set()


def test_a_test_of_ones_own_is_run_beside_the_suite(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "def smoke_right(bench):\n    bench.count('sum.wrong', 0)\n\n\n"
        "def smoke_close(bench):\n    bench.limit('far', 0.5)\n    bench.note('far', 0.7)\n\n\n"
        "def smoke_empty(bench):\n    bench.note('seen', 3)\n"
    )
    run = smoke(Here(stacks.pristine("t26").python), quiet, SmokeWish(only=("gemm-exact",), extra=(file,)))
    (result,) = [one for one in judge.judge(run, facts.load()) if one.check == "smoke-extra"]
    assert result.outcome is Outcome.FAIL
    told = json.dumps([finding.message for finding in result.findings])
    assert "extra-smoke_close: far is 0.7" in told and "extra-smoke_empty" in told and "smoke_right" not in told
