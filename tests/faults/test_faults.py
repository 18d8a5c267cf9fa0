"""Every recipe fires its check on a real stack, its twin does not, and a clean stack has no finding at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from catalogue import FAULTS
from fault import ABILITIES, Fault, failed, report, shared, worst
from scenes import CLEAN
from stacks import Bench

pytestmark = pytest.mark.faults
# By day each check sees the first of its faults, at night all of them.
FIRST = {fault.check: fault for fault in reversed(FAULTS) if not fault.nightly}
EVERY = [
    pytest.param(fault, id=fault.name, marks=() if FIRST.get(fault.check) is fault else pytest.mark.nightly)
    for fault in FAULTS
]


def told(results: dict[str, object]) -> str:
    """What was found, for a person who must see why."""
    lines = [f"{name}: {message}" for name, said in failed(results).items() for message in said[:3]]
    return "\n".join(lines)


@pytest.mark.parametrize("fault", EVERY)
def test_it_fires(fault: Fault, bench: Bench, record_property: Callable[[str, object], None]) -> None:
    case = fault.plant(bench)
    assert case.traces, "the recipe does not say what its finding must name"
    code, results = report(case, fault.tries)
    result = results[fault.check]
    assert result["outcome"] == "fail", f"{result['outcome']} {result['reason']}\n{told(results)}"
    said = str(result["findings"])
    assert [trace for trace in case.traces if trace not in said] == [], said
    assert worst(result) == fault.severity, said
    if not fault.of_machine:
        beside = set(failed(results, "warning")) - {fault.check}
        record_property("also", sorted(beside))
        assert fault.also <= beside, told(results)
        # What a plant breaks is also met where it is tried, which not every run does.
        assert beside - ABILITIES <= fault.also, told(results)
    assert [name for name, one in results.items() if one["outcome"] == "crashed"] == []
    assert (code == 1) == bool(failed(results, "error"))


@pytest.mark.parametrize("fault", EVERY)
def test_its_twin_is_quiet(fault: Fault, record_property: Callable[[str, object], None]) -> None:
    _, results = shared(fault.twin, fault.tries)
    result = results[fault.check]
    allowed = ("pass", "skip") if fault.twin_skips else ("pass",)
    assert result["outcome"] in allowed, f"{result['outcome']} {result['reason']}\n{told(results)}"
    if not fault.of_machine:
        record_property("also", sorted(failed(results, "warning")))
        assert set(failed(results, "warning")) == fault.twin_also, told(results)
    assert [name for name, one in results.items() if one["outcome"] == "crashed"] == []


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_stack_has_no_finding(name: str) -> None:
    code, results = shared(CLEAN[name])
    assert failed(results, "warning") == {}, told(results)
    undecided = {name: one["reason"] for name, one in results.items() if one["outcome"] in ("unknown", "crashed")}
    assert undecided == {}
    assert code == 0
    assert [name for name, one in results.items() if one["outcome"] == "pass"] != []
