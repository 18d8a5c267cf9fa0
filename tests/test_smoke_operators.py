"""The table of operators: what can be said of its answers, its rows and its limits without torch."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from envkit.judging import judge
from envkit.judging.checks._smoke import asked, limits, of_one
from envkit.model import Observed, Skip, Unknown
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.case import SUITE, chosen
from envkit.payload.smoke.operators import along, attention, convolutions, copies, losses, operators, pictures, plain
from envkit.subjects.smoke import SmokeRun, SmokeTest

QUICK = {name for limit in limits()["operators"] if not limit.when for name in limit.measures}
FULL = {name for limit in limits()["operators"] for name in limit.measures}


def test_every_row_has_a_limit_and_every_limit_a_row() -> None:
    assert {name.rpartition(".")[0] for name in FULL} == set(operators.ROWS)
    assert {name.rpartition(".")[0] for name in QUICK} == set(operators.ROWS) - set(operators.LONG)
    assert {name.rpartition(".")[2] for name in FULL} == {"wrong", "units", "half-units", "errors"}


@pytest.mark.parametrize("whole", [0.0, 1.0])
def test_a_row_that_was_not_measured_is_a_fault(whole: float) -> None:
    names = FULL if whole else QUICK
    good: dict[str, float | str] = {**dict.fromkeys(names, 0.0), "whole": whole}
    assert list(of_one(SmokeTest("operators", "cpu", "ran", measures=good))) == []
    for name in names:
        lost = {measure: value for measure, value in good.items() if measure != name}
        (found,) = of_one(SmokeTest("operators", "cpu", "ran", measures=lost))
        assert found.message == f"operators did not measure {name}"


def test_a_run_of_an_earlier_suite_was_not_asked_for_a_test_that_is_younger() -> None:
    run = SmokeRun("x", gpus=Observed.of((), "cuDeviceGetName"), tests=Observed.of((), "the smoke suite"))
    check = judge.checks()["smoke-operators"]
    assert "operators" not in {case.name for case in asked(run)}
    with pytest.raises(Skip, match="not asked for"):
        list(check.judge(run))
    with pytest.raises(Unknown, match="did not finish on cpu"):
        list(check.judge(replace(run, suite=SUITE)))
    assert "operators" in {case.name for case in chosen(TESTS, "quick", ("operators",), suite=1)}


@pytest.mark.parametrize("change", [0.0, 1.0, -1.0, 0.5, math.nan, math.inf])
def test_freivalds_in_integers_of_python_sees_one_element(change: float) -> None:
    source = random.Random(1)
    count, inner, columns = 9, 40, 7
    left, right = (source.choices(range(-9, 10), k=size) for size in (count * inner, inner * columns))
    down = plain.turned(right, (inner, columns), (1, 0))
    product = [float(plain.dot(a, b)) for a in plain.rows(left, inner) for b in plain.rows(down, inner)]
    product[17] += change
    wrong = 0 if not change else 1 if change in (1.0, -1.0) else columns
    assert plain.wrong_columns(left, right, product, inner, source) == wrong
    product[17] -= change
    product[:columns], product[columns : 2 * columns] = product[columns : 2 * columns], product[:columns]
    if math.isfinite(change):
        assert plain.wrong_columns(left, right, product, inner, source) == columns


def test_distances_are_in_rounding_units_and_what_is_not_finite_must_be_where_it_is_wanted() -> None:
    def far(seen: list[float] | None, want: list[float], eps: float = plain.EPS["float32"]) -> dict[str, float]:
        desk = plain.Desk(Bench("cpu"))
        desk.begin("row")
        desk.distance(seen, want, eps)
        return desk.bench.measures

    assert far([1.0, 1.0], [1.0, 1.0]) == {"row.units": 0.0}
    assert far([1.0, 1.0 + 2.0**-21], [1.0, 1.0])["row.units"] == pytest.approx(2.0)
    assert far([1.0, 1.0 + 2.0**-5], [1.0, 1.0], plain.EPS["bfloat16"]) == {"row.half-units": pytest.approx(2.0)}
    assert far([math.nan, math.inf, 3.0], [math.nan, math.inf, 3.0]) == {"row.units": 0.0}
    for seen in ([0.0, math.inf], [math.nan, 0.0], [math.nan], None, [math.nan, -math.inf]):
        assert not far(seen, [math.nan, math.inf])["row.units"] < 256
    assert not far([1.0, math.nan], [1.0, 1.0])["row.units"] < 256
    assert far([1e-9], [0.0])["row.units"] == math.inf


def test_a_softmax_of_one_hot_and_of_nothing_allowed() -> None:
    assert along.softmax([0.0, 0.0]) == [0.5, 0.5]
    assert along.softmax([1000.0, -math.inf]) == [1.0, 0.0]
    assert all(value != value for value in along.softmax([-math.inf] * 3))
    assert along.along([1, 2, 3, 4, 5, 6], (2, 3), 0, lambda line: [sum(line)] * 2) == [5, 7, 9, 5, 7, 9]


def test_a_convolution_by_its_taps() -> None:
    kind = convolutions.Kind((1, 1, 3, 3), (1, 1, 2, 2), stride=(2, 2), padding=(1, 1), dilation=(2, 2))
    shape, found = convolutions.forward(kind, list(range(1, 10)), [1, 10, 100, 1000], [5])
    assert (shape, found) == ((1, 1, 2, 2), [5005 + 0, 0, 0, 0][:1] + found[1:])
    assert found[0] == 5 + 1000 * 5
    of_image, of_weight, of_bias = convolutions.backward(kind, list(range(1, 10)), [1, 10, 100, 1000], [1, 0, 0, 0])
    assert (of_image[4], of_weight, of_bias) == (1000, [0, 0, 0, 5], [1])


def test_attention_of_equal_keys_is_the_mean_and_a_mask_takes_keys_away() -> None:
    size = attention.Size(1, 2, 2, 1)
    given = [[1.0, 1.0], [3.0, 3.0], [2.0, 4.0]]
    assert attention.attended(size, given, None)[0] == [3.0, 3.0]
    assert attention.attended(size, given, [0.0, -math.inf, 0.0, 0.0])[0] == [2.0, 3.0]


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (1 + 2.0**-8, "bfloat16", 1.0),
        (1 + 3 * 2.0**-8, "bfloat16", 1 + 2.0**-6),
        (65_519.0, "float16", 65_504.0),
        (65_520.0, "float16", math.inf),
        (-1e39, "float32", -math.inf),
        (2.0**-25, "float16", 0.0),
        (0.1, "float64", 0.1),
    ],
)
def test_rounding_goes_to_the_nearest_and_to_even(value: float, dtype: str, want: float) -> None:
    assert copies._rounded(value, dtype) == want


def test_windows_that_begin_in_the_padding_behind_are_dropped() -> None:
    window = pictures.Window((2, 2), (2, 2), ceil=True)
    assert [places[0] for places in pictures.windows(5, window, 0)] == [0, 2, 4]
    assert [places[0] for places in pictures.windows(4, window._replace(padding=(1, 1)), 0)] == [-1, 1, 3]
    assert pictures.taken(4, 2, "bilinear", False) == [[(0, 0.5), (1, 0.5)], [(2, 0.5), (3, 0.5)]]
    assert pictures.taken(3, 5, "bilinear", True)[1] == [(0, 0.5), (1, 0.5)]


def test_weight_decay_is_apart_from_the_gradient_in_adamw_alone() -> None:
    assert losses._adamw([2.0], [[0.0]], 0.5, 0.25) == [1.75]
    assert losses._adam([2.0], [[0.0]], 0.5, 0.25) != [1.75]
    assert losses._sgd([1.0], [[1.0], [1.0]], 0.5, 0.0) == [1.0 - 0.5 * 1.5 - 0.5 * 1.75]
