"""Clocks by a made-up NVML, the helpers that need no torch, and speeds judged beside peaks and healthy figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from envkit import facts as tables
from envkit.judging import judge
from envkit.judging.throughput import Figure, figures
from envkit.model import Finding, Observed, Severity, Skip
from envkit.payload.smoke import clocks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.speed import CASES, speed_host_copies, speed_sustained, timing
from envkit.subjects.smoke import SmokeRun, SmokeTest

FACTS = tables.load()
H100 = "NVIDIA H100 80GB HBM3"


# NVML


class Nvml:
    """libnvidia-ml with its real signatures: a code is returned, the answer goes into the last argument."""

    def __init__(self, known: str, answers: dict[str, int], codes: dict[str, int]) -> None:
        self._known, self._answers, self._codes = known, answers, codes

    def nvmlInit_v2(self) -> int:
        return self._codes.get("nvmlInit_v2", 0)

    def nvmlDeviceGetHandleByPciBusId_v2(self, pci: bytes, handle: Any) -> int:
        handle._obj.value = 7
        return 0 if pci.decode() == self._known else 6  # NVML_ERROR_NOT_FOUND

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in self._answers and name not in self._codes:
            raise AttributeError(name)

        def ask(handle: Any, *arguments: Any) -> int:
            assert handle.value == 7
            *kind, number = arguments
            number._obj.value = self._answers.get(name, 0) + sum(kind)
            return self._codes.get(name, 0)

        return ask


ANSWERS = {
    "nvmlDeviceGetClockInfo": 1979,
    "nvmlDeviceGetMaxClockInfo": 1979,
    "nvmlDeviceGetPowerUsage": 512_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTemperature": 48,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x25,
}
PCI = "0000:1b:00.0"


def test_a_reading_has_units_and_words() -> None:
    watch = clocks.Clocks(PCI, Nvml(PCI, ANSWERS, {}))
    reading = watch.read()
    assert reading["sm.mhz"] == 1980.0
    assert reading["memory.mhz"] == 1981.0
    assert reading["power.w"] == 512.0
    assert reading["power-limit.w"] == 700.0
    assert reading["throttle.bits"] == 37.0
    assert clocks.told(reading) == (
        "SM 1980 of 1980 MHz, memory 1981 of 1981 MHz, 512 of 700 W, 48 C,"
        " held down by software power cap and software thermal slowdown"
    )


@pytest.mark.parametrize("code", [3, 4, 13])
def test_what_a_gpu_does_not_offer_is_left_out(code: int) -> None:
    reading = clocks.Clocks(PCI, Nvml(PCI, ANSWERS, {"nvmlDeviceGetPowerUsage": code})).read()
    assert "power.w" not in reading
    assert reading["temperature.c"] == 48.0


def test_an_older_nvml_calls_the_reasons_by_another_name() -> None:
    answers = {**ANSWERS, "nvmlDeviceGetCurrentClocksThrottleReasons": 4}
    del answers["nvmlDeviceGetCurrentClocksEventReasons"]
    assert clocks.Clocks(PCI, Nvml(PCI, answers, {})).read()["throttle.bits"] == 4.0
    del answers["nvmlDeviceGetCurrentClocksThrottleReasons"]
    assert "throttle.bits" not in clocks.Clocks(PCI, Nvml(PCI, answers, {})).read()


def test_a_gpu_that_is_lost_is_no_missing_feature() -> None:
    with pytest.raises(RuntimeError, match="nvmlDeviceGetTemperature returned 15"):
        clocks.Clocks(PCI, Nvml(PCI, ANSWERS, {"nvmlDeviceGetTemperature": 15})).read()


def test_an_nvml_that_does_not_answer_is_said() -> None:
    for watch, word in (
        (clocks.Clocks(PCI, Nvml(PCI, ANSWERS, {"nvmlInit_v2": 9})), "error 9"),
        (clocks.Clocks("0000:99:00.0", Nvml(PCI, ANSWERS, {})), "error 6"),
    ):
        assert watch.read() == {}
        assert word in watch.missing
        bench = Bench("cuda:0")
        clocks.record(bench, watch.read(), watch.missing)
        assert bench.detail == f"clocks not read: {watch.missing}"
        assert bench.measures == {}


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ()),
        (1, ("gpu idle",)),
        (0xC, ("software power cap", "hardware slowdown")),
        (0x240, ("hardware thermal slowdown", "0x200")),
    ],
)
def test_reasons_by_bit(bits: int, names: tuple[str, ...]) -> None:
    assert clocks.reasons(bits) == names
    assert clocks.slowing(bits) == tuple(name for name in names if name != "gpu idle")


def test_many_readings_become_one() -> None:
    readings = [
        {"sm.mhz": 1980.0, "temperature.c": 50.0, "throttle.bits": 4.0},
        {},
        {"sm.mhz": 1410.0, "temperature.c": 61.0, "throttle.bits": 32.0},
    ]
    assert speed_sustained.summary(readings) == {
        "sm.mhz": 1695.0,
        "sm-least.mhz": 1410.0,
        "temperature.c": 61.0,
        "throttle.bits": 36.0,
    }
    assert speed_sustained.summary([{}]) == {}


# Helpers


@pytest.mark.parametrize(("values", "middle"), [([3.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5), ([7.0], 7.0)])
def test_the_median(values: list[float], middle: float) -> None:
    assert timing.median(values) == middle


def test_a_list_of_cores() -> None:
    assert speed_host_copies.cores("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert speed_host_copies.cores("\n") == frozenset()
    with pytest.raises(ValueError, match="invalid literal"):
        speed_host_copies.cores("all")


def test_each_test_has_its_gpu_alone_and_says_nothing_of_a_cpu() -> None:
    assert all(case.alone and case.gpu and not case.cpu for case in CASES)
    assert [case.name for case in CASES if case.level == "quick"] == ["speed-copy", "speed-gemm"]
    assert [case.name for case in CASES if case.level == "stress"] == ["speed-sustained"]


# Figures and verdicts


def copied(gbs: Any, gpu: str = H100, device: str = "cuda:0", wrong: int = 0) -> SmokeRun:
    test = SmokeTest("speed-copy", device, "ran", "held down by heat", measures={"copy.wrong": wrong, "copy.gbs": gbs})
    return SmokeRun(
        "example",
        gpus=Observed.of((gpu,), "cuDeviceGetName"),
        tests=Observed.of((test,), "the smoke suite"),
        only=("speed-copy",),
    )


def found(run: SmokeRun) -> list[Finding]:
    return list(judge.checks(SmokeRun)["smoke-speed-copy"].judge(run, FACTS))


def test_a_figure_stands_beside_its_limits() -> None:
    (figure,) = figures(copied(2990.0), FACTS)
    assert figure == Figure("speed-copy", "cuda:0", H100, "copy", 2990.0, "GB/s", 3350.0, 2987.0, 0.8)


@pytest.mark.parametrize("value", ["nan", "inf", -1.0, 0, "2990"])
def test_what_is_no_speed_is_no_figure(value: Any) -> None:
    assert figures(copied(value), FACTS) == ()


def test_each_gpu_is_judged_by_its_own_name() -> None:
    run = copied(2990.0, device="cuda:1")
    assert figures(run, FACTS)[0].peak is None  # one GPU was seen, and this is no figure of it
    two = SmokeRun("two", gpus=Observed.of(("NVIDIA L4", H100), "cuDeviceGetName"), tests=run.tests)
    assert figures(two, FACTS)[0].peak == 3350.0


def test_a_run_that_was_disturbed_has_no_figures() -> None:
    run = copied(2990.0)
    assert figures(SmokeRun("x", gpus=run.gpus, tests=run.tests, injected_fault="ulp"), FACTS) == ()


@pytest.mark.parametrize(
    ("gbs", "severity"),
    [
        (2990.0, None),
        (0.86 * 2987.0, None),
        (0.84 * 2987.0, Severity.WARNING),
        (1.04 * 3350.0, None),
        (1.06 * 3350.0, Severity.ERROR),
    ],
)
def test_the_bands_of_a_gpu_with_a_recorded_figure(gbs: float, severity: Severity | None) -> None:
    assert [finding.severity for finding in found(copied(gbs))] == ([severity] if severity else [])


@pytest.mark.parametrize(("share", "slow"), [(0.81, False), (0.79, True)])
def test_without_a_recorded_figure_the_peak_counts(share: float, slow: bool) -> None:
    findings = found(copied(share * 300.0, "NVIDIA L4"))
    assert [finding.severity for finding in findings] == ([Severity.WARNING] if slow else [])


def test_a_slow_one_says_figure_shares_and_clocks() -> None:
    (finding,) = found(copied(1500.0))
    assert finding.message == (
        "speed-copy: copy is 1500 GB/s, slow: 45% of the peak, 50% of a healthy one; held down by heat"
    )
    assert finding.fix


def test_wrong_words_are_an_error_at_any_speed() -> None:
    findings = found(copied(2990.0, wrong=1))
    assert [finding.severity for finding in findings] == [Severity.ERROR]


def test_a_speed_that_is_missing_or_no_number_is_an_error() -> None:
    for value in (math.nan, "nan", "inf"):
        assert [finding.severity for finding in found(copied(value))] == [Severity.ERROR]


def test_an_unknown_gpu_is_shown_unjudged_with_a_note() -> None:
    run = copied(100.0, "NVIDIA Next")
    assert found(run) == []
    (note,) = judge.checks(SmokeRun)["smoke-speed-peak-known"].judge(run, FACTS)
    assert note.severity is Severity.NOTE
    assert note.message == "no peak is known for this GPU: NVIDIA Next"


def allreduce(busbw: float, *gpus: str, ended: str = "ran") -> SmokeRun:
    test = SmokeTest("nccl-allreduce", "gpus", ended, measures={"nccl.busbw.gbs": busbw, "ranks": 8.0})
    return SmokeRun("x", gpus=Observed.of(gpus, "cuDeviceGetName"), tests=Observed.of((test,), "the smoke suite"))


@pytest.mark.parametrize(("busbw", "count"), [(482.3, 0), (367.6, 0), (300.0, 1), (900.0, 0)])
def test_an_allreduce_may_exceed_the_link(busbw: float, count: int) -> None:
    findings = list(
        judge.checks(SmokeRun)["smoke-speed-allreduce"].judge(allreduce(busbw, "NVIDIA H200", "NVIDIA H200"), FACTS)
    )
    assert [finding.severity for finding in findings] == [Severity.WARNING] * count


def test_an_allreduce_over_unlike_gpus_has_no_peak() -> None:
    assert list(judge.checks(SmokeRun)["smoke-speed-allreduce"].judge(allreduce(1.0, "NVIDIA H200", H100), FACTS)) == []


def test_no_allreduce_is_no_pass() -> None:
    with pytest.raises(Skip):
        list(
            judge.checks(SmokeRun)["smoke-speed-allreduce"].judge(
                allreduce(1.0, "NVIDIA H200", ended="not-applicable"), FACTS
            )
        )


def test_every_case_has_a_check() -> None:
    assert {f"smoke-{case.name}" for case in CASES} <= set(judge.checks(SmokeRun))
