"""Thousands of fleets of a model, judged by the product's own code: every fault is found, no innocent node accused."""

from __future__ import annotations

import os

import fleet
import fleet_model
import pytest
from fleet_model import Fleet

from envkit.fleet import start
from envkit.fleet.verdict import FleetVerdict, State, judge

FLEETS = 100 * int(os.environ.get("ENVKIT_FUZZ", "1") or 1)  # the nightly tests draw fifty times as many
SIZES = (9, 64)


def wrongly(made: Fleet) -> tuple[FleetVerdict, dict[str, tuple[State, State, str]]]:
    """The verdict, and the nodes for which it is not the truth."""
    found = judge(made.found, fleet.LATER)
    told = {one.node: one for one in found.nodes}
    assert told.keys() == made.truth.keys()
    return found, {
        name: (state, told[name].state, told[name].sentence)
        for name, state in made.truth.items()
        if told[name].state is not state
    }


def exit_code(truth: dict[str, State]) -> int:
    states = set(truth.values())
    return 1 if State.FAIL in states else 3 if State.UNKNOWN in states else 0


@pytest.mark.parametrize("nodes", SIZES)
def test_every_fault_of_a_fleet_is_found_and_nobody_else_accused(nodes: int) -> None:
    for seed in range(FLEETS):
        made = fleet_model.drawn(seed, nodes, 0.3)
        found, wrong = wrongly(made)
        assert wrong == {}, (seed, nodes, wrong)
        assert found.exit_code == exit_code(made.truth)


def test_a_fleet_in_two_halves_is_unknown_as_a_whole() -> None:
    for seed in range(FLEETS):
        _, wrong = wrongly(fleet_model.tied(seed, 2 + seed % 63))
        assert wrong == {}, (seed, wrong)


@pytest.mark.parametrize("nodes", [1000, pytest.param(10_000, marks=pytest.mark.slow)])  # seconds of a processor
def test_a_large_fleet(nodes: int) -> None:
    _, wrong = wrongly(fleet_model.drawn(nodes, nodes, 0.3))
    assert wrong == {}


def test_a_job_starts_on_healthy_nodes_alone_or_not_at_all() -> None:
    """Whatever the faults and the spares: never on a node that is not ok, and whenever enough of them are."""
    started = 0
    for seed in range(FLEETS):
        made = fleet_model.drawn(seed, 16, 0.3)
        spares = seed % 8
        made.found.run = fleet.run(made.found.run.hosts, spares=spares)
        decision = start.chosen(judge(made.found, fleet.LATER))
        ok = [name for name in made.found.run.hosts if made.truth[name] is State.OK]
        assert list(decision.nodes) == (ok[: 16 - spares] if len(ok) >= 16 - spares else [])
        assert (decision.exit_code == 0) == bool(decision.nodes)
        started += bool(decision.nodes)
    assert 0 < started < FLEETS
