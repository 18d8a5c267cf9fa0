"""The smoke suite on real releases of torch, without a GPU: green as they are, red under every injected fault, and gone
when it is killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest
import stacks

from envkit import facts
from envkit.judging import judge
from envkit.model import Outcome
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import chosen
from envkit.runner.runner import LocalPython, SmokeRequest, smoke
from envkit.subjects import SmokeRun

pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]
# Every stack has the whole suite in the nightly run.
RELEASES = ("t24", "t26", "t211", "t215")
KILLS, PARTS = 20, 5
# Inductor wants setuptools, which not every torch brings along; what builds is tried in the image, under every injected
# fault in its recorded run.
BUILDS = tuple(case.name for case in TESTS if case.builds)


def quiet(line: str) -> None:
    """Tells nobody."""


def outcomes(run: SmokeRun) -> dict[str, Outcome]:
    """What each check of a test says of the run."""
    results = {result.check.removeprefix("smoke-"): result for result in judge.judge(run, facts.load())}
    names = {test.name for test in run.tests.need("the tests")}
    return {name: result.outcome for name, result in results.items() if name in names}


# Each of these takes as long as all the rest under its injected faults, for it starts interpreters that import torch
# again.
FRESH = tuple(case.name for case in chosen(TESTS, "full") if case.start == "fresh" and case.cpu and not case.builds)


@pytest.mark.nightly
@pytest.mark.parametrize("release", RELEASES)
def test_a_sound_torch_passes_every_test_that_means_something_without_a_gpu(release: str) -> None:
    exclude = () if (stacks.pristine(release).site / "setuptools").exists() else BUILDS
    run = smoke(LocalPython(stacks.pristine(release).python), quiet, SmokeRequest("full", exclude=exclude))
    judged = judge.judge(run, facts.load())
    bad = {result.check: result for result in judged if result.outcome not in (Outcome.PASS, Outcome.SKIP)}
    assert bad == {}
    ran = {test.name for test in run.tests.need("the tests") if test.ended == "ran"}
    assert len(ran) >= 40
    assert run.cuda_before_fork.value is False


# By day the smallest of those that compare is seen in tests/test_smoke_compared.py.
@pytest.mark.nightly
@pytest.mark.parametrize("apart", [*FRESH, ""])
def test_every_test_sees_each_of_its_saboteurs(apart: str) -> None:
    """``apart`` is the one test of a run, or empty for all but those."""
    request = (
        SmokeRequest(only=(apart,), injected_fault="all")
        if apart
        else SmokeRequest("full", exclude=(*BUILDS, *FRESH), injected_fault="all")
    )
    run = smoke(LocalPython(stacks.pristine("t26").python), quiet, request)
    ran = {test.name for test in run.tests.need("the tests") if test.ended != "not-applicable"}
    assert ran == {apart} if apart else len(ran) >= 40 - len(FRESH)
    said = outcomes(run)
    assert {name for name in ran if said[name] is not Outcome.FAIL} == set()


# The shapes that a run's processes take: an interpreter without torch with children of its own, fresh interpreters with
# workers and shared memory, ranks in sockets and files, threads, and one that only computes, as all others do.
SHAPES = ("error-crash", "dataloader", "ipc", "nccl-allreduce", "host-threads", "gemm-int8")


_UNNAMED = re.compile(r"sem\.\w{6}")


def left(mark: bytes, *folders: Path) -> list[str]:
    """Processes of the run that bears ``mark``, and files in ``folders``, that are still there.

    A semaphore that glibc is about to name ("sem.XXXXXX", sem_open(3)) is nobody's to remove: who is killed between its
    making and its naming has told no name to anybody.
    """
    found = [str(path) for folder in folders for path in folder.iterdir() if not _UNNAMED.fullmatch(path.name)]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if mark in Path("/proc", pid, "environ").read_bytes():
                found.append(f"{pid} {words[:200]}")
        except OSError:
            continue
    return found


def killed_after(lines: int, seconds: float) -> list[str]:
    """What is left of a run that is killed ``seconds`` after the line ``lines`` of its stderr, 0 being its start.

    It has a folder for temporary files and a /dev/shm of its own, which must be empty in the end.
    """
    mark = f"ENVKIT_TEST_KILLED={uuid.uuid4().hex}"
    words = [word for name in SHAPES for word in ("--only", name)]
    python = str(stacks.pristine("t26").python)
    run = [sys.executable, "-m", "envkit", "smoke", "--python", python, "--gpus", "none", *words]
    with (
        tempfile.TemporaryDirectory(prefix="killed-") as tmp,  # with a short name, for sockets lie in it
        tempfile.TemporaryDirectory(prefix="killed-", dir="/dev/shm") as shared,
    ):
        alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        setup = 'mount --bind "$1" /dev/shm; shift; exec "$@"'
        process = subprocess.Popen(
            [*alone, "sh", "-euc", setup, "sh", shared, "env", mark, f"TMPDIR={tmp}", *run],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stderr is not None
        with process.stderr:
            heard = [process.stderr.readline() for _ in range(lines)]
            assert all(heard), f"the run ended by itself: {heard}"
            time.sleep(seconds)
            early = process.poll()
            process.send_signal(signal.SIGKILL)
            process.wait(120)
        assert early is None or lines > len(SHAPES) // 2, f"the run had ended by itself with {early}"
        deadline = time.monotonic() + 120  # a busy machine takes its time
        while (found := left(mark.encode(), Path(tmp), Path(shared))) and time.monotonic() < deadline:
            time.sleep(0.1)
    return found


@pytest.mark.parametrize("part", [0, *(pytest.param(each, marks=pytest.mark.nightly) for each in range(1, PARTS))])
def test_a_run_that_is_killed_leaves_nothing(part: int) -> None:
    """SIGKILL at twenty moments of a run, four of them by day, spread over the lines that it says; the parts are for
    several workers."""
    dice = random.Random(20261121 + part)
    for number in range(part, KILLS, PARTS):
        line, seconds = number * len(SHAPES) // KILLS, dice.uniform(0.1, 2.5)
        assert killed_after(line, seconds) == [], f"killed {seconds:.1f} s after line {line}"


@pytest.mark.nightly  # half a minute; tests/test_payload_smoke.py asks nearly the same
def test_a_test_of_ones_own_is_run_beside_the_suite(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "def smoke_right(bench):\n    bench.count('sum.wrong', 0)\n\n\n"
        "def smoke_close(bench):\n    bench.limit('far', 0.5)\n    bench.note('far', 0.7)\n\n\n"
        "def smoke_empty(bench):\n    bench.note('seen', 3)\n"
    )
    run = smoke(LocalPython(stacks.pristine("t26").python), quiet, SmokeRequest(only=("gemm-exact",), extra=(file,)))
    (result,) = [one for one in judge.judge(run, facts.load()) if one.check == "smoke-extra"]
    assert result.outcome is Outcome.FAIL
    told = json.dumps([finding.message for finding in result.findings])
    assert "extra-smoke_close: far is 0.7" in told and "extra-smoke_empty" in told and "smoke_right" not in told
