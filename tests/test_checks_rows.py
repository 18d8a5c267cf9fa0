"""Checks that are rows: what a row may say, and that it is a check of its module like any other."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from envkit.judging.checks import _rows
from envkit.judging.judge import checks


@dataclass(frozen=True)
class Link:
    width: int
    most_width: int
    state: str = "up"


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("width < most_width", True),
        ("width * 4 <= most_width", True),
        ("width * 5 <= most_width", False),
        ("width >= most_width * 0.25", True),
        ("state == 'up'", True),
        ("state != 'up'", False),
        ("width > 0 and state == 'down'", False),
        ("width > 0 and state == 'up'", True),
    ],
)
def test_a_condition_compares_values_with_one_another_and_with_constants(condition: str, holds: bool) -> None:
    assert _rows._holds(condition, Link(4, 16)) is holds


def test_a_condition_may_ask_about_the_value_itself() -> None:
    assert _rows._holds("it >= 512", 512)
    assert not _rows._holds("it >= 512", 511)


@pytest.mark.parametrize("condition", ["", "width", "width ~ 3", "width < most_width or width > 2", "width < a.b"])
def test_what_is_no_condition_is_an_error(condition: str) -> None:
    with pytest.raises(ValueError, match="is no condition"):
        _rows._holds(condition, Link(4, 16))


def test_a_row_with_an_unknown_column_is_an_error() -> None:
    row = {"by": "xids", "check": "host-x", "categories": ["bus"], "severity": "error"}
    with pytest.raises(msgspec.ValidationError, match="severity"):
        msgspec.json.decode(msgspec.json.encode(row), type=_rows.Row)


def test_a_row_is_a_check_of_its_module() -> None:
    check = checks()["host-pcie-width-reduced"].judge
    assert (check.__name__, check.__module__) == ("host_pcie_width_reduced", "envkit.judging.checks.host_gpu_link")


def test_units_are_written_as_people_write_them() -> None:
    words = _rows._Words().vformat("{it:GiB}, {it:W}, {it:x}", (), {"it": 8 * 1024**3})
    assert words == "8.0 GiB, 8.58993e+06 W, 200000000"
