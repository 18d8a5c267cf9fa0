"""The tests of kernels that NVRTC compiles, as far as they can be tried without a GPU: references, targets, limits."""

from __future__ import annotations

import array
import ctypes
import struct
from collections.abc import Sequence

import pytest

from envkit.judging import judge
from envkit.judging.checks._smoke import limits
from envkit.model import Finding, Observed
from envkit.payload.smoke import TESTS, raw
from envkit.payload.smoke.driver import Driver
from envkit.payload.smoke.kernels import nvrtc_timer
from envkit.payload.smoke.kernels.nvrtc_alignment import encoded
from envkit.payload.smoke.kernels.nvrtc_grid_stride import mapped
from envkit.payload.smoke.kernels.nvrtc_reduction import reduced
from envkit.payload.smoke.nvrtc import Compiler, build, targets_for
from envkit.subjects.smoke import SmokeRun, SmokeTest

HEALTHY: dict[str, dict[str, float]] = {
    "vector-add-nvrtc": {"cubin.offered": 1, "cubin.wrong": 0, "ptx.offered": 1, "ptx.wrong": 0},
    "nvrtc-reduction": {"sum.wrong": 0, "xor.wrong": 0, "min.wrong": 0, "max.wrong": 0},
    "nvrtc-grid-stride": {"values.wrong": 0, "visits.wrong": 0},
    "nvrtc-alignment": {
        "fp32.offered": 1,
        "fp16.offered": 1,
        "bf16.offered": 1,
        "fp32.wrong": 0,
        "fp16.wrong": 0,
        "bf16.wrong": 0,
        "askew.wrong": 0,
    },
    "nvrtc-timer": {
        "results.wrong": 0,
        "elapsed.wrong": 0,
        "refused.missed": 0,
        "variants.done": 18,
        "after.wrong": 0,
    },
}


def found(name: str, measures: dict[str, float]) -> list[Finding]:
    test = SmokeTest(name, "cuda:0", "ran", measures=measures)
    run = SmokeRun("x", gpus=Observed.of(("H100",), "driver"), tests=Observed.of((test,), "suite"), level="full")
    return list(judge.checks(SmokeRun)["smoke-" + name].judge(run))


def test_every_test_of_the_group_has_a_healthy_example() -> None:
    assert set(HEALTHY) == {case.name for case in TESTS if case.group == "kernels"}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_passes_and_one_step_beyond_each_limit_does_not(name: str) -> None:
    assert found(name, HEALTHY[name]) == []
    for limit in limits()[name]:
        for measure in limit.measures:
            beyond = limit.most + 1 if limit.most is not None else (limit.least or 0) - 1
            (finding,) = found(name, {**HEALTHY[name], measure: beyond})
            assert f"{name}: {measure} is" in finding.message
            (finding, *_) = found(name, {key: value for key, value in HEALTHY[name].items() if key != measure})
            assert f"did not measure {measure}" in finding.message


def test_a_type_that_the_gpu_does_not_add_is_not_asked_for() -> None:
    old = {key: value for key, value in HEALTHY["nvrtc-alignment"].items() if key != "bf16.wrong"}
    assert found("nvrtc-alignment", {**old, "bf16.offered": 0.0}) == []


@pytest.mark.parametrize(
    ("known", "capability", "machine", "virtual"),
    [
        ([75, 80, 86, 90], 90, "sm_90", "compute_90"),
        ([75, 80, 86, 90], 89, "sm_86", "compute_86"),
        ([75, 80, 86, 90], 100, "", "compute_90"),
        ([120, 100, 90], 121, "sm_120", "compute_120"),
        ([75, 80], 70, "", ""),
    ],
)
def test_machine_code_stays_within_its_major_number_and_ptx_goes_on(
    known: list[int], capability: int, machine: str, virtual: str
) -> None:
    assert targets_for(known, capability) == (machine, virtual)


def test_references_wrap_at_32_bits_and_sums_at_64() -> None:
    data = array.array("I", [0xFFFFFFFF, 0xFFFFFFFF, 3]).tobytes()
    assert struct.unpack("<4Q", reduced(data)) == (2 * 0xFFFFFFFF + 3, 3, 3, 0xFFFFFFFF)
    assert list(raw.words(mapped(data))) == [(each * 2654435761 + i) % 2**32 for i, each in enumerate(raw.words(data))]


@pytest.mark.parametrize(("kind", "width", "most"), [("fp32", 4, 1 << 22), ("fp16", 2, 1000), ("bf16", 2, 100)])
def test_the_doubles_of_all_numbers_are_exact_in_their_type(kind: str, width: int, most: int) -> None:
    numbers = [-most, -most + 1, -1, 1, 77, most - 1, most]
    for values in (numbers, [2 * each for each in numbers]):
        data = encoded(kind, values)
        assert len(data) == width * len(values)
        if kind == "bf16":
            floats = b"".join(b"\0\0" + data[place : place + 2] for place in range(0, len(data), 2))
            assert list(struct.unpack(f"<{len(values)}f", floats)) == values
        else:
            form = {"fp32": "f", "fp16": "e"}[kind]
            assert list(struct.unpack(f"<{len(values)}{form}", data)) == values


def test_a_tune_has_eighteen_variants_that_fit_and_two_that_do_not() -> None:
    tune = nvrtc_timer.variants()
    assert len(tune) == 20
    assert sorted(each.refuse for each in tune if each.refuse) == ["compile", "launch"]
    assert tune[-1].refuse == ""  # something must be computed after each refusal
    for each in tune:
        assert nvrtc_timer._SIZE % (each.threads * each.each) == 0
        assert each.threads * each.each * 4 <= 16384


def test_a_tile_is_turned_round() -> None:
    data = array.array("I", [10, 20, 30, 40]).tobytes()
    assert list(raw.words(nvrtc_timer.tuned(data, 2))) == [60, 31, 122, 93]


class Kept(Driver):
    """A driver of one GPU that keeps what it is given to load."""

    def __init__(self, capability: int) -> None:
        self.has = capability
        self.loaded: list[tuple[str, bytes]] = []

    def capability(self, index: int) -> int:
        return self.has

    def module(self, code: bytes, what: str = "a module") -> ctypes.c_void_p:
        self.loaded.append((what, code))
        return ctypes.c_void_p(1)

    def kernel(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(2)


class Knows(Compiler):
    """A compiler of these targets, whose code is what it was asked for."""

    def __init__(self, *targets: int) -> None:
        self.known = list(targets)

    def targets(self) -> list[int]:
        return self.known

    def compile(self, source: str, name: str, target: str, form: str, options: Sequence[str] = ()) -> bytes:
        return f"{form} of {source} in {name} for {target}".encode()


@pytest.mark.parametrize(
    ("capability", "form", "target"), [(89, "CUBIN", "sm_80"), (80, "CUBIN", "sm_80"), (90, "PTX", "compute_80")]
)
def test_a_gpu_gets_machine_code_where_the_compiler_knows_it_and_else_ptx(
    capability: int, form: str, target: str
) -> None:
    driver = Kept(capability)
    build(driver, 0, "a source", ["add", "half"], compiler=Knows(75, 80))
    assert driver.loaded == [(f"add for {target}", f"{form} of a source in add.cu for {target}".encode())]
