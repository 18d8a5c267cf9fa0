"""What of the tests of training steps can be tried without torch: their formulas, plans and limits."""

from __future__ import annotations

import math

import pytest

from envkit.judging import judge
from envkit.judging.checks._smoke import limits
from envkit.model import Observed, Severity
from envkit.payload.smoke.training import grad_scaler, optimizers
from envkit.subjects.smoke import SmokeRun, SmokeTest

OFFERED = {"bf16.offered": 1.0, "fp16.offered": 1.0}
NAMES = ("freeze-unfreeze", "autocast-training", "grad-scaler", "checkpointing", "accumulate", "deterministic")


def run_of(name: str, measures: dict[str, float], device: str = "cpu") -> SmokeRun:
    test = SmokeTest(name, device, "ran", measures=dict(measures))
    gpus: Observed[tuple[str, ...]] = Observed.of(
        ("NVIDIA H100 80GB HBM3",) if device != "cpu" else (), "cuDeviceGetName"
    )
    return SmokeRun("x", level="full", gpus=gpus, tests=Observed.of((test,), "the smoke suite"))


def healthy(name: str, kind: str) -> dict[str, float]:
    """Measures that lie on every bound of the test's limits."""
    found: dict[str, float] = {}
    for limit in limits()[name]:
        for measure in limit.measures:
            if kind in limit.devices:
                bound = limit.most if limit.most is not None else limit.least
                assert bound is not None
                found[measure] = bound
            if limit.when.startswith("*."):
                found[measure.partition(".")[0] + ".offered"] = 1.0
    return found


def test_the_scale_is_halved_by_a_bad_step_and_doubled_by_the_third_good_one() -> None:
    assert grad_scaler.scales(("good", "good", "good", "inf", "good", "good", "nan", "good", "good", "good")) == [
        *(1024.0, 1024.0, 2048.0),
        *(1024.0, 1024.0, 1024.0, 512.0),
        *(512.0, 512.0, 1024.0),
    ]


def test_sgd_is_its_formula_by_hand() -> None:
    # two steps with a gradient of one from zero: no decay on zero, then on what the first step left
    first = -optimizers._RATE * (1 + optimizers._MOMENTUM)
    second = 1 + optimizers._DECAY * first
    moving = optimizers._MOMENTUM * 1 + second
    want = first - optimizers._RATE * (second + optimizers._MOMENTUM * moving)
    assert optimizers.sgd(0.0, [1.0]) == pytest.approx(first, rel=1e-12)
    assert optimizers.sgd(0.0, [1.0, 1.0]) == pytest.approx(want, rel=1e-12)


def test_adamw_moves_by_its_rate_whatever_a_constant_gradient_is() -> None:
    # with both means corrected, a constant gradient is divided by its own size, the sign is left
    for grad in (1e-3, -7.0, 300.0):
        moved = optimizers.adamw(0.0, [grad])
        assert moved == pytest.approx(-math.copysign(optimizers._RATE, grad), rel=1e-4)
    # a gradient of zero leaves the decay alone
    assert optimizers.adamw(2.0, [0.0]) == pytest.approx(2.0 * (1 - optimizers._RATE * optimizers._DECAY), rel=1e-12)


@pytest.mark.parametrize("name", [*NAMES, "optimizers"])
@pytest.mark.parametrize(("kind", "device"), [("cpu", "cpu"), ("cuda", "cuda:0")])
def test_every_measure_is_bounded_and_each_bound_can_be_broken(name: str, kind: str, device: str) -> None:
    check = judge.checks(SmokeRun)["smoke-" + name].judge
    whole = healthy(name, kind)
    assert list(check(run_of(name, whole, device))) == []
    for limit in limits()[name]:
        for measure in limit.measures if kind in limit.devices else ():
            beyond = limit.most * 1.01 + 1e-9 if limit.most is not None else 0.0
            for value in (beyond, float("nan")):
                found = list(check(run_of(name, {**whole, measure: value}, device)))
                assert [finding.severity for finding in found] == [Severity.ERROR], (measure, value)
                assert measure in found[0].message


def test_half_precision_is_asked_of_a_gpu_and_offered_by_a_cpu() -> None:
    for kind, device, wrong in (("cpu", "cpu", 0), ("cuda", "cuda:0", 1)):
        measures = {name: value for name, value in healthy("autocast-training", kind).items() if name[:4] != "fp16"}
        found = list(
            judge.checks(SmokeRun)["smoke-autocast-training"].judge(
                run_of("autocast-training", {**measures, "fp16.offered": 0.0}, device)
            )
        )
        assert len(found) == wrong


def test_bf16_in_the_place_of_fp16_is_seen() -> None:
    # the distances that bf16 had on a CPU
    measures = {**healthy("autocast-training", "cpu"), **OFFERED}
    measures.update({"fp16.loss.frobenius": 1.12e-3, "fp16.moved.frobenius": 5.49e-3})
    found = list(judge.checks(SmokeRun)["smoke-autocast-training"].judge(run_of("autocast-training", measures)))
    assert len(found) == 2
