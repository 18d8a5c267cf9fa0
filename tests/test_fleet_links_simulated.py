"""Thousands of networks of a model, planned and judged by the product's own code: every bad node and link is found, no
innocent one accused, and what fails now and then is unknown."""

from __future__ import annotations

import os

import fleet_links_model as model
import pytest
from fleet_links_model import Fault, Network

from envkit.fleet import links

FUZZ = int(os.environ.get("ENVKIT_FUZZ", "1") or 1)  # the nightly tests draw a hundred times as many


@pytest.mark.parametrize(("nodes", "kind", "fleets"), [(64, "pairs", 50), (64, "groups", 30), (16, "groups", 40)])
def test_faults_of_a_network_are_found_and_nobody_else_accused(nodes: int, kind: str, fleets: int) -> None:
    for seed in range(fleets * FUZZ):
        made = model.drawn(seed, nodes, groups=kind == links.GROUPS)
        wrong = model.wrongly(made, made.run(kind), kind == links.GROUPS)
        assert wrong == [], (seed, made.faults, wrong)


def planted(many: int, *faults: Fault, domains: int = 0) -> Network:
    return Network(model.fleet_of(many, domains), list(faults), model.random.Random(1))


NODE = Fault(frozenset({"n7"}))


def test_one_bad_node_costs_three_rounds_and_one_trial_more_than_a_healthy_fleet() -> None:
    healthy, bad = planted(232), planted(232, NODE)
    assert (healthy.run("pairs").rounds, healthy.run("pairs").trials) == (2, 232)
    found = bad.run("pairs")
    assert (found.rounds, found.trials, list(found.bad)) == (3, 233, ["n7"])


def test_a_bad_node_of_a_labelled_fleet_costs_three_rounds_too() -> None:
    found = planted(232, NODE, domains=29).run("pairs")
    assert (found.rounds, list(found.bad), found.unknown, found.crossings) == (3, ["n7"], {}, ())


@pytest.mark.parametrize("nodes", [1024, pytest.param(10_000, marks=pytest.mark.slow)])  # seconds of a processor
def test_a_large_fleet(nodes: int) -> None:
    made = model.drawn(nodes, nodes, groups=False, most=20)
    assert made.faults
    found = made.run("pairs")
    assert model.wrongly(made, found, False) == []
    assert found.trials < 1.2 * nodes + 500


def test_a_fault_of_all_nodes_together_is_a_boundary_and_no_node_is_blamed() -> None:
    """Two halves of which each works, in which every pair and every mixed half works, and not the whole."""
    one, two = (frozenset(f"n{at}" for at in half) for half in (range(1, 9), range(9, 17)))
    made = planted(16, Fault(one, two, least=16), domains=2)
    found = made.run("groups")
    assert (found.bad, found.unknown, len(found.crossings)) == ({}, {}, 1)
    (only,) = found.crossings
    assert {frozenset(only.one), frozenset(only.two)} == {one, two} and only.sure
    assert "only all of them together" in only.why


@pytest.mark.parametrize("nodes", range(3, 10))
def test_every_bad_node_and_every_tried_link_of_a_small_fleet(nodes: int) -> None:
    """Where each is one of few partners."""
    for number in range(1, nodes + 1):
        found = planted(nodes, Fault(frozenset({f"n{number}"}))).run("pairs")
        assert (list(found.bad), found.unknown, found.crossings, found.over) == ([f"n{number}"], {}, (), True)
        assert found.rounds <= 4
    for one, two in links.plan(model.fleet_of(nodes, 0), ()):
        found = planted(nodes, Fault(frozenset({one}), frozenset({two}))).run("pairs")
        assert (found.bad, found.unknown, found.over) == ({}, {}, True)
        assert [(each.one, each.two, each.sure) for each in found.crossings] == [((one,), (two,), True)]


def test_of_two_nodes_nobody_knows_which_is_bad() -> None:
    found = planted(2, Fault(frozenset({"n1"}))).run("pairs")
    assert (found.bad, list(found.unknown)) == ({}, ["n1", "n2"])
