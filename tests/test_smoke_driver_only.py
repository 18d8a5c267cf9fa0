"""The tests of the driver alone, as far as they can be tried without one: their numbers, their texts, their limits."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envkit.judging import judge
from envkit.judging.checks._smoke import limits
from envkit.model import Finding, Observed, Unknown
from envkit.payload import cuda_error
from envkit.payload.smoke import TESTS, driver, raw
from envkit.payload.smoke.driver_only import driver_launches, driver_memory, ptx
from envkit.payload.smoke.driver_only.driver_context import insane
from envkit.payload.smoke.driver_only.driver_events import untrue
from envkit.payload.smoke.driver_only.driver_ptx import added
from envkit.subjects.smoke import SmokeRun, SmokeTest

HEALTHY: dict[str, dict[str, float]] = {
    "driver-context": {"attributes.wrong": 0, "ends.wrong": 0, "leak.bytes": 0, "leak.offered": 1, "context.ms": 200},
    "driver-ptx": {"plain.wrong": 0, "stride.wrong": 0},
    "driver-copies": {
        "pageable.wrong": 0,
        "pinned.wrong": 0,
        "pageable-within.wrong": 0,
        "pinned-within.wrong": 0,
    },
    "driver-launches": {"order.wrong": 0, "value.wrong": 0, "launch.us": 5},
    "driver-events": {"elapsed.wrong": 0, "after.wrong": 0, "kernel.ms": 0.25},
    "driver-memory": {
        "address.wrong": 0,
        "bit.wrong": 0,
        "random.wrong": 0,
        "covered.share": 0.9,
        "covered.offered": 1,
        "tested.gb": 75,
        "sweep.gbs": 2600,
    },
}
SANE = {
    "threads a block": 1024,
    "shared bytes a block": 49152,
    "threads a warp": 32,
    "multiprocessors": 132,
    "compute mode": 0,
    "total bytes": 1 << 36,
    "free bytes": 1 << 35,
}


def found(name: str, measures: dict[str, float]) -> list[Finding]:
    test = SmokeTest(name, "cuda:0", "ran", measures=measures)
    run = SmokeRun("x", gpus=Observed.of(("H100",), "driver"), tests=Observed.of((test,), "suite"), level="full")
    return list(judge.checks(SmokeRun)["smoke-" + name].judge(run))


def test_every_test_of_the_group_has_a_healthy_example() -> None:
    assert set(HEALTHY) == {case.name for case in TESTS if case.group == "driver_only"}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_passes_and_one_step_beyond_each_limit_does_not(name: str) -> None:
    assert found(name, HEALTHY[name]) == []
    for limit in limits()[name]:
        for measure in limit.measures:
            beyond = limit.most + 1 if limit.most is not None else (limit.least or 0) / 2
            (finding,) = found(name, {**HEALTHY[name], measure: beyond})
            assert f"{name}: {measure} is" in finding.message
            (finding,) = found(name, {key: value for key, value in HEALTHY[name].items() if key != measure})
            assert f"did not measure {measure}" in finding.message


def test_what_a_shared_memory_cannot_keep_is_not_asked_of_it() -> None:
    shared = {**HEALTHY["driver-context"], "leak.offered": 0.0, "leak.bytes": 4096.0}
    assert found("driver-context", shared) == []
    assert found("driver-memory", {**HEALTHY["driver-memory"], "covered.offered": 0.0, "covered.share": 0.25}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads a warp", 64),
        ("threads a block", 16),
        ("shared bytes a block", 0),
        ("multiprocessors", 0),
        ("compute mode", 2),
        ("free bytes", (1 << 36) + 1),
        ("total bytes", 0),
    ],
)
def test_an_attribute_that_no_gpu_has_is_named(name: str, value: int) -> None:
    assert insane(SANE) == []
    assert f"{name} is {value}" in insane({**SANE, name: value})


def test_bytes_are_the_same_in_every_run_and_a_injected_fault_changes_one() -> None:
    data = raw.fresh(1000)
    assert data == raw.fresh(1000) != raw.fresh(1000, 1)
    assert raw.disturbed(data, "") == raw.disturbed(data, "block") == data
    for kind in ("ulp", "one"):
        assert raw.differing(raw.disturbed(data, kind), data) == 1
    assert raw.disturbed(b"\xff", "one") == b"\x00"
    assert raw.differing(b"abc", b"abcd") == 1
    assert raw.differing(b"", b"\xa5\xa5") == 2


def test_sums_wrap_as_the_device_wraps_them() -> None:
    one, two = (0xFFFFFFFF).to_bytes(4, "little"), (2).to_bytes(4, "little")
    assert added(one + two, two + two) == (1).to_bytes(4, "little") + (4).to_bytes(4, "little")


def test_launches_in_another_order_leave_another_number() -> None:
    def run_of(order: list[int]) -> int:
        value = 1
        for lane in order:
            factor, summand = driver_launches._STEPS[lane]
            for _ in range(3):
                value = (value * factor + summand) & raw.WORD
        return value

    assert driver_launches.stepped(1, 4, 3) == run_of([0, 1, 0, 1])
    assert len({run_of(order) for order in ([0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1])}) == 4


@pytest.mark.parametrize(
    ("elapsed", "wall", "wrong"),
    [(0.25, 0.3, False), (0.0, 0.3, True), (-1.0, 0.3, True), (0.9, 0.3, True), (float("nan"), 0.3, True)],
)
def test_a_time_that_cannot_be_is_seen(elapsed: float, wall: float, wrong: bool) -> None:
    assert untrue(elapsed, wall, 0.25) is wrong


def test_every_bit_is_walked_and_every_pattern_is_complemented() -> None:
    passes = driver_memory.passes()
    assert {seed for kind, seed, _ in passes if kind == "bit"} == set(range(32))
    assert {(kind, flip) for kind, _, flip in passes if kind != "bit"} == {
        (kind, flip) for kind in ("address", "random") for flip in (0, raw.WORD)
    }
    kernels = set(re.findall(r"\.entry (\w+)\(", driver_memory.text().decode()))
    assert kernels == {f"{verb}_{kind}" for kind, _, _ in passes for verb in ("fill", "read")}


@pytest.mark.skipif(not shutil.which("ptxas"), reason="there is no ptxas here")
@pytest.mark.parametrize("text", [ptx.ADD, ptx.STEPS, driver_memory.text()], ids=["add", "steps", "memory"])
def test_the_assembler_takes_the_text(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "text.ptx").write_bytes(text)
    words = ["ptxas", "-arch=sm_90", str(tmp_path / "text.ptx"), "-o", str(tmp_path / "text.cubin")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def in_new_process(code: str) -> str:
    """What a small program prints: a fork of the test runner itself would carry its threads."""
    head = "import os\nfrom envkit.payload.isolate import NotApplicable\n"
    head += "from envkit.payload.smoke.driver import CudaFault, in_child\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("lambda: 6 * 7", "42"),
        ("lambda: 1 / 0", "RuntimeError in a child process: raised ZeroDivisionError: division by zero"),
        ("lambda: os.kill(os.getpid(), 9)", "RuntimeError in a child process: killed SIGKILL"),
        ("lambda: lost()", "CudaFault in a child process: raised CudaFault: boom"),
        ("lambda: lacking()", "NotApplicable no such thing"),
    ],
)
def test_a_child_s_end_is_its_parent_s(work: str, said: str) -> None:
    code = f"""
def lost(): raise CudaFault("boom", "700 CUDA_ERROR_ILLEGAL_ADDRESS")
def lacking(): raise NotApplicable("no such thing")
try:
    print(in_child({work}, 60.0))
except (RuntimeError, NotApplicable) as error:
    print(type(error).__name__, error)
    assert not isinstance(error, CudaFault) or (error.cuda_code, error.cuda_name) == (700, "CUDA_ERROR_ILLEGAL_ADDRESS")
"""
    assert in_new_process(code) == said


def test_a_hung_child_of_a_watched_process_is_ended_and_told() -> None:
    code = """
import faulthandler, time
faulthandler.dump_traceback_later(600, file=open(os.devnull, "w"))
try:
    in_child(lambda: time.sleep(600), 0.5)
except RuntimeError as error:
    print(error)
"""
    said = in_new_process(code)
    assert said.startswith("in a child process: hung no answer within")


def test_a_fault_of_the_driver_is_named_by_number() -> None:
    fault = driver.CudaFault("cuCtxSynchronize returned 719", "719 CUDA_ERROR_LAUNCH_FAILED")
    assert cuda_error.code_of(fault) == (719, "CUDA_ERROR_LAUNCH_FAILED")
    assert driver.number_of("cuda:3") == 3


def test_what_would_order_streams_is_dropped_in_a_process_that_tests_order() -> None:
    code = """
from envkit.payload.smoke import driver
os.environ.update(CUDA_LAUNCH_BLOCKING="1", CUDA_DEVICE_MAX_CONNECTIONS="1", CUDA_VISIBLE_DEVICES="0")
driver.plain_order()
print(sorted(name for name in os.environ if name.startswith("CUDA_")))
"""
    assert in_new_process(code) == "['CUDA_VISIBLE_DEVICES']"


def test_a_disturbed_run_that_nothing_shows_in_is_no_pass() -> None:
    test = SmokeTest("driver-ptx", "cuda:0", "ran", measures=HEALTHY["driver-ptx"], injected_fault="block")
    run = SmokeRun(
        "x", gpus=Observed.of(("H100",), "driver"), tests=Observed.of((test,), "suite"), injected_fault="block"
    )
    with pytest.raises(Unknown, match="block"):
        list(judge.checks(SmokeRun)["smoke-driver-ptx"].judge(run))
    red: dict[str, Any] = {"plain.wrong": 52.0, "stride.wrong": 1024.0}
    seen = replace(run, tests=Observed.of((replace(test, measures=red),), "suite"))
    assert len(list(judge.checks(SmokeRun)["smoke-driver-ptx"].judge(seen))) == 2
