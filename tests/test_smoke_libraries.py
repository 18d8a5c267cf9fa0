"""The tests of libraries: what can be said of them without torch and without a GPU."""

from __future__ import annotations

import math

import pytest

from envkit.judging.checks._smoke import limits, of_one
from envkit.model import Severity
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import Case
from envkit.payload.smoke.libraries import attention_kernels, conv_variants, einsum, elementwise, indexing_large
from envkit.subjects.smoke import SmokeTest

CASES = [case for case in TESTS if case.group == "libraries"]


def healthy(case: Case, device: str) -> dict[str, float | str]:
    """Measures at the very limits of a test: a pass that nothing may be added to."""
    kind = device.partition(":")[0]
    found: dict[str, float | str] = {}
    for limit in limits()[case.name]:
        for measure in limit.measures if kind in limit.devices else ():
            bound = limit.most if limit.most is not None else max(limit.least or 0.0, 1.0)
            earlier = found.get(measure, math.inf if limit.most is not None else 0.0)
            assert not isinstance(earlier, str)
            found[measure] = min(bound, earlier) if limit.most is not None else max(bound, earlier)
    return found


def ran(case: Case, device: str, measures: dict[str, float | str]) -> SmokeTest:
    return SmokeTest(name=case.name, device=device, ended="ran", measures=measures)


PLACES = [(case, device) for case in CASES for device in (["cpu", "cuda:0"] if case.cpu else ["cuda:0"])]
IDS = [f"{case.name}-{device}" for case, device in PLACES]


@pytest.mark.parametrize(("case", "device"), PLACES, ids=IDS)
def test_what_is_at_its_limits_passes(case: Case, device: str) -> None:
    assert healthy(case, device)
    assert list(of_one(ran(case, device, healthy(case, device)))) == []


@pytest.mark.parametrize(("case", "device"), PLACES, ids=IDS)
def test_each_measure_by_itself_turns_the_test_red(case: Case, device: str) -> None:
    good = healthy(case, device)
    for name in good:
        lost = {measure: value for measure, value in good.items() if measure != name}
        for bad in (lost, {**good, name: "nan"}, {**good, name: "inf"}):
            found = list(of_one(ran(case, device, bad)))
            assert any(one.severity is Severity.ERROR and name in one.message for one in found), name


def test_a_device_that_offers_nothing_forced_is_no_fault() -> None:
    case = next(case for case in CASES if case.name == "attention-kernels")
    measures = healthy(case, "cuda:0")
    for name in list(measures):
        if name.startswith("cudnn-"):
            del measures[name]
            measures[name.partition(".")[0] + ".offered"] = 0.0
    assert list(of_one(ran(case, "cuda:0", measures))) == []


def test_a_flash_kernel_that_is_lost_is_a_fault() -> None:
    case = next(case for case in CASES if case.name == "attention-kernels")
    found = list(of_one(ran(case, "cuda:0", {**healthy(case, "cuda:0"), "flash.lost": 1.0})))
    assert [one.message for one in found] == ["attention-kernels: flash.lost is 1, above its limit of 0"]


@pytest.mark.parametrize(
    ("nodes", "kernel", "expected"),
    [
        (["ScaledDotProductFlashAttentionBackward0"], "FlashAttention", True),
        (["ScaledDotProductFlashAttentionForCpuBackward0"], "FlashAttention", True),
        (["SliceBackward0", "ScaledDotProductCudnnAttentionBackward0"], "CudnnAttention", True),
        (["ScaledDotProductEfficientAttentionBackward0"], "FlashAttention", False),
        (["UnsafeViewBackward0", "BmmBackward0"], "FlashAttention", False),
        (["UnsafeViewBackward0", "BmmBackward0"], "", True),
        (["ScaledDotProductFlashAttentionBackward0"], "", False),
        ([], "EfficientAttention", False),
    ],
)
def test_the_kernel_that_ran_is_read_from_the_graph(nodes: list[str], kernel: str, expected: bool) -> None:
    assert attention_kernels.ran(nodes, kernel) is expected


def test_the_kinds_of_convolution_fit_their_weights() -> None:
    for kind in conv_variants.KINDS:
        inputs = kind.weight[0] if kind.transposed else kind.weight[1] * kind.groups
        assert kind.image[1] == inputs, kind.name
        assert len(kind.image) == len(kind.weight), kind.name


def test_each_label_of_an_equation_has_a_size() -> None:
    for equation in einsum.EQUATIONS:
        given, kept = equation.split("->")
        assert set(kept) <= set(given)
        assert {name for name in given if name != ","} <= set(einsum.SIZES)


def test_special_values_name_functions_of_one_or_two_numbers() -> None:
    assert {len(arguments) for _, arguments, _ in elementwise.SPECIAL} == {1, 2}
    assert any(math.isnan(result) for _, _, result in elementwise.SPECIAL)
    assert any(0.0 < abs(result) < 2.0**-126 for _, _, result in elementwise.SPECIAL)  # a subnormal number


def test_the_large_tensor_is_beyond_32_bits() -> None:
    assert 1 << 31 < indexing_large.ROWS * indexing_large.COLUMNS < 2_300_000_000
