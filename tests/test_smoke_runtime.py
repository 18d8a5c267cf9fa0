"""What of the tests of streams, memory and processes can be tried without torch."""

from __future__ import annotations

import pytest

from envkit.judging import judge
from envkit.judging.checks._smoke import limits
from envkit.model import Observed, Severity, Skip, Unknown
from envkit.payload.smoke.runtime import CASES
from envkit.payload.smoke.runtime.allocator import inconsistent
from envkit.payload.smoke.runtime.oom_recovery import names_size
from envkit.subjects.smoke import SmokeRun, SmokeTest

GIB = 1 << 30
GPU = ("NVIDIA H100 80GB HBM3",)


def figures(**changed: int) -> dict[str, int]:
    whole = {
        "allocated_bytes.all.current": 3000,
        "allocated_bytes.small_pool.current": 1000,
        "allocated_bytes.large_pool.current": 2000,
        "allocated_bytes.all.peak": 3500,
        "allocated_bytes.all.allocated": 9000,
        "allocated_bytes.all.freed": 6000,
        "reserved_bytes.all.current": 5000,
        "reserved_bytes.small_pool.current": 2000,
        "reserved_bytes.large_pool.current": 3000,
    }
    return {**whole, **{name.replace("__", "."): value for name, value in changed.items()}}


def run_of(name: str, device: str, measures: dict[str, float], injected_fault: str = "") -> SmokeRun:
    test = SmokeTest(name, device, "ran", measures=dict(measures), injected_fault=injected_fault)
    gpus: Observed[tuple[str, ...]] = Observed.of(GPU if device.startswith("cuda") else (), "cuDeviceGetName")
    return SmokeRun(
        "x", level="full", gpus=gpus, tests=Observed.of((test,), "the smoke suite"), injected_fault=injected_fault
    )


def healthy(name: str, kind: str) -> dict[str, float]:
    """Measures that lie on every bound of the test's limits."""
    found: dict[str, float] = {}
    for limit in limits()[name]:
        if kind in limit.devices:
            for measure in limit.measures:
                bound = limit.most if limit.most is not None else limit.least
                assert bound is not None
                found[measure] = bound
    for limit in limits()[name]:
        if limit.when.startswith("*."):
            found.update({measure.partition(".")[0] + ".offered": 1.0 for measure in limit.measures})
    return found


def test_figures_that_agree_are_consistent() -> None:
    assert inconsistent(figures().__getitem__, 3000) == 0


@pytest.mark.parametrize(
    ("changed", "wanted", "broken"),
    [
        ({}, 3001, 1),
        ({"allocated_bytes__all__peak": 2999}, 3000, 1),
        ({"allocated_bytes__all__freed": 5999}, 3000, 1),
        ({"allocated_bytes__small_pool__current": 999}, 3000, 1),
        ({"reserved_bytes__large_pool__current": 3001}, 3000, 1),
        ({"reserved_bytes__all__current": 2000, "reserved_bytes__large_pool__current": 0}, 3000, 1),
    ],
)
def test_each_figure_that_does_not_agree_is_counted(changed: dict[str, int], wanted: int, broken: int) -> None:
    assert inconsistent(figures(**changed).__getitem__, wanted) == broken


@pytest.mark.parametrize(
    ("text", "size", "named"),
    [
        ("CUDA out of memory. Tried to allocate 81.00 GiB. GPU 0 has a total capacity of 79.18 GiB", 81 * GIB, True),
        ("CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity", GIB // 4, True),
        ("Allocation on device 0 would exceed allowed memory. (out of memory)\nRequested : 1.00 GiB", GIB, True),
        ("CUDA out of memory. Tried to allocate 181.00 GiB.", 81 * GIB, False),
        ("CUDA out of memory. Tried to allocate 2.81.00 GiB.", 81 * GIB, False),
        ("CUDA error: out of memory", GIB, False),
        ("", GIB, False),
    ],
)
def test_a_refusal_must_name_the_size_that_was_asked(text: str, size: int, named: bool) -> None:
    assert names_size(text, size) is named


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_measure_is_bounded_and_each_bound_can_be_broken(case: object) -> None:
    name, cpu = str(getattr(case, "name", "")), bool(getattr(case, "cpu", False))
    check = judge.checks(SmokeRun)["smoke-" + name].judge
    for kind, device in (("cuda", "cuda:0"), *([("cpu", "cpu")] if cpu else [])):
        whole = healthy(name, kind)
        assert whole, kind
        assert list(check(run_of(name, device, whole))) == []
        for limit in limits()[name]:
            for measure in limit.measures if kind in limit.devices else ():
                beyond = limit.most + 1 if limit.most is not None else (limit.least or 0) - 1
                for value in (beyond, float("nan")):
                    found = list(check(run_of(name, device, {**whole, measure: value})))
                    assert [finding.severity for finding in found] == [Severity.ERROR], (measure, value)
                    assert measure in found[0].message


def test_an_allocator_that_the_device_does_not_offer_is_not_judged() -> None:
    measures = {**healthy("allocator-backends", "cuda"), "async.offered": 0.0}
    del measures["async.wrong"]
    assert (
        list(judge.checks(SmokeRun)["smoke-allocator-backends"].judge(run_of("allocator-backends", "cuda:0", measures)))
        == []
    )
    measures["native.offered"] = 0.0
    (finding,) = judge.checks(SmokeRun)["smoke-allocator-backends"].judge(
        run_of("allocator-backends", "cuda:0", measures)
    )
    assert "native.offered" in finding.message


def test_a_injected_fault_that_changed_nothing_is_no_proof() -> None:
    whole = healthy("ipc", "cuda")
    with pytest.raises(Unknown, match="does not see the injected fault order"):
        list(judge.checks(SmokeRun)["smoke-ipc"].judge(run_of("ipc", "cuda:0", whole, "order")))
    assert list(
        judge.checks(SmokeRun)["smoke-ipc"].judge(run_of("ipc", "cuda:0", {**whole, "written.wrong": 4.0}, "order"))
    )


def test_a_full_test_is_skipped_by_a_quick_run() -> None:
    run = SmokeRun("x", gpus=Observed.of(GPU, "cuDeviceGetName"), tests=Observed.of((), "the smoke suite"))
    with pytest.raises(Skip, match="not asked for"):
        list(judge.checks(SmokeRun)["smoke-oom-recovery"].judge(run))
    with pytest.raises(Unknown, match="did not finish on cuda:0"):
        list(judge.checks(SmokeRun)["smoke-pinned-copies"].judge(run))
