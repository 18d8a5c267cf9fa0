"""Versions are totally ordered within a kind and refuse every other kind."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st

from envkit.versions import Cuda, Cudnn, Driver, Glibc, Nccl, Python, Sm, Torch

DOTTED: tuple[type[Any], ...] = (Cuda, Cudnn, Driver, Glibc, Nccl, Python, Torch)
COMPARISONS: tuple[Callable[[Any, Any], bool], ...] = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)

TEXTS = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
SMS = st.builds(Sm, st.integers(1, 13), st.integers(0, 9), st.sampled_from(["", "a", "f"]))


@given(TEXTS, TEXTS, TEXTS)
def test_versions_of_a_kind_are_totally_ordered(one: str, two: str, three: str) -> None:
    a, b, c = Cuda(one), Cuda(two), Cuda(three)
    assert (a < b) + (a == b) + (a > b) == 1
    assert (a <= b) == (a < b or a == b)
    assert not (a < b and b < c) or a < c
    assert a != b or hash(a) == hash(b)


@given(TEXTS)
def test_trailing_zeros_do_not_count(text: str) -> None:
    assert Torch(text) == Torch(text + ".0")
    assert hash(Torch(text)) == hash(Torch(text + ".0"))
    assert Torch(text) < Torch(text + ".1")


@given(TEXTS)
def test_a_version_prints_as_written(text: str) -> None:
    assert str(Driver(text)) == text


@given(SMS, SMS, SMS)
def test_capabilities_are_totally_ordered(a: Sm, b: Sm, c: Sm) -> None:
    assert (a < b) + (a == b) + (a > b) == 1
    assert not (a < b and b < c) or a < c
    assert a != b or hash(a) == hash(b)


@given(SMS)
def test_a_capability_reads_back(sm: Sm) -> None:
    assert Sm.parse(str(sm)) == sm
    assert Sm.parse(str(sm).replace("sm_", "compute_")) == sm
    assert Sm.parse(f"{sm.major}.{sm.minor}{sm.suffix}") == sm


@gathered(product(DOTTED, COMPARISONS))
def test_kinds_do_not_mix(one: type[Any], compare: Callable[[Any, Any], bool]) -> None:
    strangers = [other("12.4") for other in DOTTED if other is not one] + [Sm(12, 4), "12.4", 12, (12, 4)]
    for stranger in strangers:
        with pytest.raises(TypeError, match="cannot be compared"):
            compare(one("12.4"), stranger)


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("stranger", ["sm_86", (8, 6), 86])
def test_a_capability_is_no_text(compare: Callable[[Any, Any], bool], stranger: object) -> None:
    with pytest.raises(TypeError, match="compute capability"):
        compare(Sm(8, 6), stranger)


def test_no_version_is_none() -> None:
    assert [version for version in (Cuda("12"), Sm(8, 6)) if version == None] == []  # noqa: E711  it is the point


@pytest.mark.parametrize("text", ["", "12.", ".4", "12.4+cu1", "v12", "12.4\n", " 12", "12..4", "-1", "١٢"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Cuda version"):
        Cuda(text)


@pytest.mark.parametrize("text", ["", "sm_", "sm_8", "sm_90b", "sm_1234", "90A", "8.66", "compute-90"])
def test_what_is_no_capability_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a compute capability"):
        Sm.parse(text)


def test_numbers_compare_as_numbers() -> None:
    assert Cuda("12.10") > Cuda("12.9")
    assert Driver("535.54.03") < Driver("535.104.05")
    assert Sm.parse("sm_100") > Sm.parse("sm_90a") > Sm.parse("sm_90")


@pytest.mark.parametrize("version", [Cuda("12.4"), Sm(9, 0, "a")])
def test_a_version_does_not_change_and_can_be_copied(version: Any) -> None:
    with pytest.raises(AttributeError, match="does not change"):
        setattr(version, "major", 1)  # noqa: B010  an assignment would not get past mypy
    assert pickle.loads(pickle.dumps(version)) == copy.deepcopy(version) == version


def test_the_parts_of_a_version() -> None:
    assert (Driver("550.54.15").major, Driver("550.54.15").minor, Driver("550").minor) == (550, 54, 0)
    assert str(Driver("550.54.15").upto(2)) == "550.54"
    assert str(Driver("550").upto(2)) == "550"


# The integers are those the libraries of these releases return.
@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Cuda.from_int(12040), "12.4"),
        (Cuda.from_int(11080), "11.8"),
        (Cuda.from_int(13000), "13.0"),
        (Cudnn.from_int(90100), "9.1.0"),
        (Cudnn.from_int(91002), "9.10.2"),
        (Cudnn.from_int(8907), "8.9.7"),
        (Nccl.from_int(22105), "2.21.5"),
        (Nccl.from_int(2708), "2.7.8"),
    ],
)
def test_integers_of_the_libraries(made: Any, text: str) -> None:
    assert str(made) == text


@pytest.mark.parametrize(
    ("gpu", "cubin", "tegra", "runs"),
    [
        ("sm_86", "sm_86", False, True),
        ("sm_86", "sm_80", False, True),
        ("sm_89", "sm_86", False, True),
        ("sm_80", "sm_86", False, False),
        ("sm_90", "sm_89", False, False),
        ("sm_120", "sm_100", False, False),
        ("sm_90", "sm_90a", False, True),
        ("sm_103", "sm_100a", False, False),
        ("sm_103", "sm_100f", False, False),
        ("sm_87", "sm_87", True, True),
        ("sm_87", "sm_80", True, False),
    ],
)
def test_which_machine_code_runs(gpu: str, cubin: str, tegra: bool, runs: bool) -> None:
    assert Sm.parse(gpu).runs(Sm.parse(cubin), tegra) is runs


@pytest.mark.parametrize(
    ("gpu", "ptx", "compiles"),
    [
        ("sm_90", "compute_80", True),
        ("sm_120", "compute_90", True),
        ("sm_80", "compute_86", False),
        ("sm_90", "compute_90a", True),
        ("sm_100", "compute_90a", False),
        ("sm_103", "compute_100f", False),
    ],
)
def test_which_ptx_compiles(gpu: str, ptx: str, compiles: bool) -> None:
    assert Sm.parse(gpu).compiles(Sm.parse(ptx)) is compiles
