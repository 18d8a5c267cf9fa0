"""Thousands of networks of a model, planned and judged by the product's own code: every bad node and link is found, no
innocent one accused, and what fails now and then is unknown."""

from __future__ import annotations

import os

import fleet_links_model as model
import pytest
from fleet_links_model import Fault, Network

from envkit.fleet import links

FUZZ = int(os.environ.get("ENVKIT_FUZZ", "1") or 1)  # the nightly tests draw a hundred times as many


@pytest.mark.parametrize(("nodes", "kind", "fleets"), [(64, "pairs", 40), (64, "groups", 20), (16, "groups", 40)])
def test_faults_of_a_network_are_found_and_nobody_else_accused(nodes: int, kind: str, fleets: int) -> None:
    for seed in range(fleets * FUZZ):
        made = model.drawn(seed, nodes, groups=kind == links.GROUPS)
        wrong = model.wrongly(made, made.run(kind), kind == links.GROUPS)
        assert wrong == [], (seed, made.faults, wrong)


def test_a_bad_node_is_found_beside_one_that_fails_now_and_then() -> None:
    """Whose trials fail with the same partners, so that these look as bad."""
    made = model.drawn(20114, 64, groups=False)
    assert [each.firm for each in made.faults] == [False, True, True]
    assert model.wrongly(made, made.run("pairs"), False) == []


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
        assert found.rounds <= 4 + nodes % 2  # of an odd number one sits out in each of the first two rounds
    for one, two in links.plan(model.fleet_of(nodes, 0), ()):
        found = planted(nodes, Fault(frozenset({one}), frozenset({two}))).run("pairs")
        assert (found.bad, found.unknown, found.over) == ({}, {}, True)
        assert [(each.one, each.two, each.sure) for each in found.crossings] == [((one,), (two,), True)]


def test_of_two_nodes_nobody_knows_which_is_bad() -> None:
    found = planted(2, Fault(frozenset({"n1"}))).run("pairs")
    assert (found.bad, list(found.unknown)) == ({}, ["n1", "n2"])


@pytest.mark.parametrize(("least", "most"), [(2, 12), (13, 24)])
def test_faults_that_meet_at_a_healthy_node_of_a_small_fleet_do_not_accuse_it(least: int, most: int) -> None:
    """Where trials cannot tell it stays unknown, which is no pass; a bad node is never ok."""
    for seed in range((200 if most < 13 else 60) * FUZZ):
        kind, made = model.small(seed, least, most)
        found = made.run(kind)
        wrong = [each for each in model.wrongly(made, found, kind == links.GROUPS) if each.startswith("innocent")]
        assert wrong == [], (seed, kind, made.faults, wrong)
        bad = {name for each in made.faults if each.firm and not each.two for name in each.one}
        assert bad <= {*found.bad, *found.unknown}, (seed, kind, made.faults)


def between(one: str, two: str) -> Fault:
    return Fault(frozenset(one.split()), frozenset(two.split()))


# Each with the domains of its nodes, and one who was accused of what its partners, links and boundaries have.
MET: dict[str, tuple[tuple[int, ...], str, tuple[Fault, ...]]] = {
    "a link at home and two boundaries": (
        (2, 1, 1, 1), "n2", (between("n1", "n2"), between("n1 n2", "n5"), between("n4", "n1 n2")),
    ),
    "a link abroad and a bad node": (
        (3, 2), "n4", (between("n1", "n4"), between("n1", "n5"), between("n4", "n5"), Fault(frozenset({"n2"}))),
    ),
    "two of three partners": ((2, 1, 1, 1), "n4", (between("n3", "n4"), between("n4", "n2"), Fault(frozenset({"n5"})))),
    "a bad node at home and a boundary": (
        (3, 3, 2), "n2", (Fault(frozenset({"n1"})), between("n1 n2 n3", "n4 n5 n6 n7 n8"), between("n6", "n8")),
    ),
    "two healthy nodes that nobody else reaches": (
        (2, 2, 2), "n1", (between("n3 n4", "n1 n2 n5 n6"), Fault(frozenset({"n2"})), between("n5", "n6")),
    ),
    "two links of a domain of four": (
        (4, 4, 4, 3), "n12", (Fault(frozenset({"n5"})), between("n9", "n12"), between("n11", "n12")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MET)
@pytest.mark.parametrize("kind", [links.PAIRS, links.GROUPS])
def test_a_healthy_node_that_was_once_accused(name: str, kind: str) -> None:
    sizes, innocent, faults = MET[name]
    leaves = [f"leaf{at}" for at, size in enumerate(sizes) for _ in range(size)]
    names = tuple(f"n{number}" for number in range(1, len(leaves) + 1))
    made = Network(model.Fleet(names, {each: (leaf,) for each, leaf in zip(names, leaves, strict=True)}), [*faults],
                   model.random.Random(1))  # fmt: skip
    found = made.run(kind)
    assert innocent not in found.bad, found.bad
    assert [each for each in model.wrongly(made, found, kind == links.GROUPS) if each.startswith("innocent")] == []
