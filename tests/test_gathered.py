"""A test over many cases names every one that fails, and holds none to be right that was not tried."""

from __future__ import annotations

import pytest
from gathered import gathered


def test_every_case_that_fails_is_named_with_what_it_says() -> None:
    tried = []

    @gathered([pytest.param(1, 1, id="one"), pytest.param(1, 2, id="two"), (3, 3), (3, 4), (5, "x")])
    def check(left: int, right: int) -> None:
        tried.append(left)
        assert left + right > 0 and left == right, f"{left} is not {right}"

    with pytest.raises(pytest.fail.Exception) as caught:
        check()
    assert tried == [1, 1, 3, 3, 5]
    said = str(caught.value).splitlines()
    assert said[0] == "3 of 5 cases:"
    assert [line.partition(": ")[0] for line in said if "Error at" in line] == ["two", "3-4", "5-x"]
    assert "1 is not 2" in said[1]


def test_many_that_fail_are_all_named() -> None:
    @gathered(range(100))
    def check(number: int) -> None:
        assert number == 50, "wrong"

    with pytest.raises(pytest.fail.Exception, match="99 of 100 cases") as caught:
        check()
    assert {str(number) for number in range(100) if number != 50} <= set(
        str(caught.value).replace(":", " ").replace(",", " ").split()
    )


def test_no_case_is_a_failure_and_a_fault_of_the_test_is_one() -> None:
    def broken(number: int) -> None:
        raise OSError("no case says this")

    with pytest.raises(AssertionError, match="there is no case"):
        gathered([])(broken)()
    with pytest.raises(OSError, match="no case"):
        gathered([1])(broken)()


@gathered([1, 2, 3])
def test_it_stands_in_the_place_of_parametrize(number: int) -> None:
    """Found by pytest, which sees no argument."""
    assert number in (1, 2, 3)
