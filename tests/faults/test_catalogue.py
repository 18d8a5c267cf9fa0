"""The catalogue is whole: 57 probes and those of later modules, each with checks and a recipe, or with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from catalogue import CATALOGUE, FAULTS, TITLES, UNPLANTED
from fault import Fault

from envkit.judging.judge import checks

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
GROUPS = {"A": 12, "B": 17, "C": 5, "D": 9, "E": 6, "F": 8}
FIRST = [f"{group}{number:02}" for group, count in GROUPS.items() for number in range(1, count + 1)]
IDS = list(CATALOGUE)


def test_all_probes_are_there() -> None:
    assert len(FIRST) == 57
    assert set(FIRST) <= set(IDS)
    assert list(TITLES) == IDS == sorted(IDS)
    assert [probe for probe in IDS if not re.fullmatch(r"[A-Z]\d\d", probe)] == []
    assert all(TITLES.values())


@pytest.mark.parametrize("probe", IDS)
def test_a_probe_is_implemented_or_declined(probe: str) -> None:
    told = CATALOGUE[probe]
    recipes = [fault for fault in FAULTS if fault.probe == probe]
    if isinstance(told, str):
        assert re.fullmatch(r"declined: \w.{20,}", told)
        assert recipes == []
        return
    assert set(told) - set(checks()) == set()
    assert {fault.check for fault in recipes} == set(told) - set(UNPLANTED)
    assert recipes, f"no recipe makes {probe} fire"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_recipe_names_a_probe_and_checks_that_exist(fault: Fault) -> None:
    assert fault.check in CATALOGUE[fault.probe]
    assert (fault.also | fault.twin_also) - set(checks()) == set()
    assert fault.check not in fault.also | fault.twin_also
    assert fault.severity in ("note", "warning", "error")
    assert fault.words and fault.twin_words != fault.words


def test_no_two_recipes_have_one_name() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) == len({name.lower() for name in names})


def test_the_page_lists_the_recipes_of_the_code() -> None:
    text = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| ([A-Z]\d\d) \| `([\w-]+)` \| (.*?) \| \w+ \| .*? \| (.*?) \|", text, re.MULTILINE)
    assert rows == [(fault.probe, fault.check, fault.words, fault.twin_words) for fault in FAULTS]
    assert re.findall(r"^\| ([A-Z]\d\d) \| [^`|]+ \|", text, re.MULTILINE) == IDS
