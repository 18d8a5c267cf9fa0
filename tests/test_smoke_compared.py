"""What each test of the suite compares on the CPU: nothing of it is lost, and each part of it turns its test red."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torches

from envkit import payload
from envkit.judging.checks._smoke import of_one
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import GENERIC
from envkit.subjects.smoke import SmokeTest

ROOT = Path(payload.__file__).parents[2]
PROGRAM = Path(__file__).with_name("compared.py")
# What PROGRAM said with the torch that it names there; where a test compares more or less on purpose, what it says now
# is to be put there (the fields "torch" and, of each test, "calls" and "asked").
RECORDED = json.loads((Path(__file__).parent / "data" / "smoke_compared.json").read_text())
# Tests that compute in one process; ranks and fresh interpreters have benches of their own.
CASES = [case for case in TESTS if case.cpu and case.start == "fork" and not (case.several or case.builds)]
CASES = [case for case in CASES if case.group != "errors"]
# By day the first of each group; all of them take five minutes of a processor, and that of the operators alone one.
BY_DAY = {case.group: case.name for case in reversed(CASES) if case.name != "operators"}.values()


def fault_of(faults: tuple[str, ...]) -> str:
    """The smallest fault that a test promises to see."""
    return next((kind for kind in GENERIC if kind in faults), faults[0])


@cache
def said(fault: str, by_day: bool) -> Any:
    """The program's document for the tests that have this as their smallest fault, or for all without one."""
    chosen = [case for case in CASES if (case.name in BY_DAY) == by_day]
    names = [case.name for case in chosen if fault in ("", fault_of(case.faults))]
    done = subprocess.run(
        [torches.PYTHON, str(PROGRAM), fault, *names],
        capture_output=True,
        text=True,
        timeout=1200,
        cwd="/",
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            # How a convolution's result in half precision lies in memory hangs on the kernels that a processor has.
            # Without those of VNNI, which are below this, products of int8 overflow.
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
        },
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def red(name: str, measures: dict[str, float | str]) -> list[str]:
    return [finding.message for finding in of_one(SmokeTest(name, "cpu", "ran", measures=measures))]


each_case: Callable[[Any], Any] = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in BY_DAY else pytest.mark.nightly, id=case.name) for case in CASES],
)


def test_what_computes_on_the_cpu_is_what_was_recorded() -> None:
    assert {case.name for case in CASES} == set(RECORDED["tests"]) == set(RECORDED["asked"])


@torches.needs_torch
@each_case
def test_a_test_compares_all_that_it_did_when_it_was_recorded(case: Any) -> None:
    now = said("", case.name in BY_DAY)
    if now["torch"] != RECORDED["torch"]:
        pytest.skip(f"it was recorded with torch {RECORDED['torch']}, and this one is {now['torch']}")
    one = now["tests"][case.name]
    assert one.get("calls") == RECORDED["tests"][case.name]
    if case.name in ("conv-variants", "operators") and "avx512vl" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("without AVX-512 results of convolutions lie in memory in another way")
    # Sizes, strides, types and options are what finds a kernel that is wrong for some of them alone.
    assert one.get("asked") == RECORDED["asked"][case.name]


@torches.needs_torch
@each_case
def test_a_sound_torch_passes_and_every_comparison_sees_the_smallest_fault(case: Any) -> None:
    sound, faulty = (said(fault, case.name in BY_DAY)["tests"][case.name] for fault in ("", fault_of(case.faults)))
    if "measures" not in sound:
        pytest.skip(sound["not applicable"])
    assert red(case.name, sound["measures"]) == []
    messages = red(case.name, faulty["measures"])
    assert messages
    if fault_of(case.faults) in GENERIC:
        missed = [name for name in faulty["disturbed"] if not any(f": {name} is " in each for each in messages)]
        assert missed == []
