"""Trials of links as a run's folder holds them: what each ends as, what they show together, and how nodes go through
the rounds.  The trial itself is played here by a small program; `test_fleet_trials.py` has the real one."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fleet
import msgspec
import pytest
from fleet import HOSTS, healthy, judged, lay, node_of

from envkit.fleet import answers, floors, gather, links, node, rounds, start, trials
from envkit.fleet.evidence import Fleet, How, Tried
from envkit.fleet.folder import Place
from envkit.fleet.trials import Answer, Plan, Record, Wanted
from envkit.fleet.verdict import Cause, FleetVerdict, Rules, State, judge

RUN = fleet.run(links="pairs", trial_s=60.0)
LABELS = {name: ("s1" if at < 4 else "s2",) for at, name in enumerate(HOSTS)}


def answer(number: int, trial: int, name: str, **changes: Any) -> Answer:
    made = Answer(
        "envkit.trial/1", RUN.run, RUN.nonce, number, trial, name, "0" * 16, "passed", "done", backend="nccl",
        elements=1000, gbps=45.0, across={"NET/IB": 8},
    )  # fmt: skip
    return replace(made, **changes)


def record(*given: tuple[tuple[str, ...], Mapping[str, Any]]) -> Record:
    """One round of pairs, in which each of ``given`` is the nodes and what the second of them says otherwise; a node
    whose changes are None leaves no answer."""
    made = Record({1: Plan("envkit.links/1", RUN.run, RUN.nonce, 1, tuple(nodes for nodes, _ in given), HOSTS)})
    for at, (nodes, changes) in enumerate(given):
        for name in nodes:
            own = changes.get(name, {})
            if own is not None:
                made.add(answer(1, at, name, **own))
    return made


PAIRS = tuple((f"a{at}", f"b{at}") for at in range(8))
FLEET = Fleet(tuple(name for pair in PAIRS for name in pair))


def ended(**changes: Mapping[str, Any] | None) -> tuple[dict[tuple[str, ...], Tried], tuple[str, ...]]:
    """How each of eight pairs ended where some nodes said something else, and what is wrong with all."""
    made = record(*((pair, {name: changes[name] for name in pair if name in changes}) for pair in PAIRS))
    tried, network = trials.judged(FLEET, made, Wanted(10.0))
    return {one.nodes: one for one in tried}, network


def test_trials_that_pass() -> None:
    tried, network = ended()
    assert {one.how for one in tried.values()} == {How.PASSED} and network == ()


@pytest.mark.parametrize(
    ("changes", "how", "words"),
    [
        (None, How.FAILED, "no answer came from b3"),
        ({"outcome": "unable", "detail": "torch cannot be imported: no"}, How.FAILED, "on b3 torch cannot be imported"),
        ({"outcome": "wrong", "wrong": 3}, How.WRONG, "3 of 1000 elements of an exact sum are wrong"),
        ({"outcome": "failed", "stage": "answer", "detail": "closed"}, How.FAILED, "on b3 at the stage answer: closed"),
        ({"gbps": 20.0}, How.SLOW, "20 GB/s, and the median of 8 such trials is 45 GB/s"),
        ({"gbps": 9.0}, How.SLOW, "9 GB/s, and 10 GB/s are asked for"),
        ({"across": {"NET/Socket": 8}}, How.TRANSPORT, "a faster way in 7 of 8 trials"),
    ],
)
def test_a_trial_that_is_bad_alone(changes: Mapping[str, Any] | None, how: How, words: str) -> None:
    both = {"a3": changes} if changes and "across" in changes else {}
    tried, network = ended(b3=changes, **both)
    assert (tried["a3", "b3"].how, network) == (how, ())
    assert words in tried["a3", "b3"].why, tried["a3", "b3"].why
    assert {one.how for nodes, one in tried.items() if nodes != ("a3", "b3")} == {How.PASSED}


def test_a_little_slower_is_no_finding() -> None:
    tried, _ = ended(b3={"gbps": 40.0}, b4={"gbps": 47.0}, b5={"gbps": 43.0})
    assert {one.how for one in tried.values()} == {How.PASSED}


def test_who_was_killed_is_named_before_whose_partner_left() -> None:
    gone = {"outcome": "failed", "stage": "answer", "detail": "RuntimeError: connection closed by peer"}
    died = {"outcome": "failed", "stage": "answer", "detail": "it was killed by SIGKILL"}
    assert "on b3 at the stage answer: it was killed" in ended(a3=gone, b3=died)[0]["a3", "b3"].why


FLOORS = floors.floors(fleet.body())  # of H100 with ports of 400 Gb/s


def few(*speeds: float, way: str = "NET/IB/0/GDRDMA", floor: float = 0.0) -> tuple[list[Tried], tuple[str, ...]]:
    """How trials of these speeds ended, too few for a spread of their own, and what is wrong with all."""
    said = {"gbps": 0.0, "across": {way: 4, f"{way}/Shared": 4}}
    made = record(*(
        (pair, {name: {**said, "gbps": speed} for name in pair}) for pair, speed in zip(PAIRS, speeds, strict=False)
    ))  # fmt: skip
    tried, network = trials.judged(FLEET, made, Wanted(floor, floors=dict.fromkeys(FLEET.nodes, FLOORS)))
    return list(tried), network


def test_the_facts_say_how_slow_a_link_may_be() -> None:
    tried, network = few(26.0, 24.0, 300.0)
    assert ([one.how for one in tried], network) == ([How.PASSED, How.SLOW, How.PASSED], ())
    assert (
        "a1 with b1 reached 24 GB/s over NET/IB" in tried[1].why and "0.5 of what one port of 400 Gb/s" in tried[1].why
    )
    tried, _ = few(100.0, 120.0, 130.0, way="P2P/MNNVL")
    assert [one.how for one in tried] == [How.SLOW, How.PASSED, How.PASSED] and "NVLink of H100" in tried[0].why


def test_a_slow_network_is_nobodys_own_fault() -> None:
    tried, network = few(3.0, 2.9, 300.0)
    assert {one.how for one in tried} == {How.PASSED}
    assert len(network) == 1 and "2 of 3 trials were slow, such as a0 with b0 reached 3 GB/s" in network[0]


def test_where_the_facts_ask_for_nothing() -> None:
    """A floor that was named, a way without a floor, GPUs without NVLink, ports that nobody could read."""
    assert {one.how for one in few(3.0, 4.0, 4.0, floor=2.0)[0]} == {How.PASSED}
    assert few(3.0, 4.0, 4.0, way="NET/Socket") == few(300.0, 300.0, 300.0, way="NET/Socket")
    assert floors.floors(fleet.body(hardware="NVIDIA L40S, x86_64")) == ()
    assert floors.floors(fleet.body(hardware="NVIDIA H100 80GB HBM3 + NVIDIA H200, x86_64")) == ()
    unread = floors.floors(fleet.prints(fleet.body(), **{"network rate": None}))
    mixed = floors.floors(fleet.prints(fleet.body(), **{"network rate": "200, 400"}))
    assert [one.way for one in unread] == ["P2P"] and min(one.gbs for one in mixed) == 12.5


def test_sockets_everywhere_are_a_finding_only_where_nodes_have_faster_cards() -> None:
    sockets = {name: {"across": {"NET/Socket": 2}} for name in FLEET.nodes}
    made = record(*((pair, sockets) for pair in PAIRS))
    assert trials.judged(FLEET, made, Wanted())[1] == ()
    tried, network = trials.judged(FLEET, made, Wanted(cards=frozenset(("a1", "b1"))))
    assert {one.how for one in tried} == {How.PASSED}
    assert "used NET/Socket in 8 of 8 trials, and 2 nodes have cards" in network[0]


def run_of(place: Path, *bad: tuple[str, ...]) -> FleetVerdict:
    """A run of healthy nodes whose trials were made as planned; those that hold all names of one of ``bad`` failed."""
    lay(place, *healthy(), run=RUN)
    made = Fleet(HOSTS)
    done: list[Tried] = []
    number = 0
    while True:
        number += 1
        wanted = links.plan(made, done)
        plan = Plan("envkit.links/1", RUN.run, RUN.nonce, number, wanted, HOSTS if number == 1 else ())
        gather.round_folder(place, number).mkdir(parents=True)
        gather.plan_file(place, number).write_bytes(msgspec.json.encode(plan))
        if not wanted:
            return judged(place)
        for at, nodes in enumerate(wanted):
            failed = any(set(each) <= set(nodes) for each in bad)
            done.append(Tried(number, nodes, How.FAILED if failed else How.PASSED))
            for name in nodes:
                said = answer(number, at, name, **({"outcome": "failed", "detail": "timed out"} if failed else {}))
                path = gather.round_folder(place, number) / f"{at}.{name}.json"
                path.write_bytes(msgspec.json.encode(said))


def test_healthy_links_pass(tmp_path: Path) -> None:
    found = run_of(tmp_path)
    assert (found.exit_code, found.named(State.OK)) == (0, HOSTS)
    assert "8 trials of links in 2 rounds" in answers.line(found)


def test_a_bad_node_is_named_and_its_partners_are_not(tmp_path: Path) -> None:
    found = run_of(tmp_path, ("n3",))
    assert (found.exit_code, found.named(State.FAIL), found.named(State.UNKNOWN)) == (1, ("n3",), ())
    assert node_of(found, "n3").cause is Cause.LINKS
    assert (
        "it failed with 4 healthy partners" in node_of(found, "n3").sentence
        and "timed out" in node_of(found, "n3").sentence
    )
    assert answers.excluded(found) == "n3"


def test_two_bad_nodes_in_one_pair(tmp_path: Path) -> None:
    found = run_of(tmp_path, ("n3",), ("n4",))
    assert (found.named(State.FAIL), found.named(State.UNKNOWN)) == (("n3", "n4"), ())


def test_a_bad_link_is_a_pair_and_no_node(tmp_path: Path) -> None:
    found = run_of(tmp_path, ("n3", "n4"))
    assert (found.exit_code, found.named(State.OK)) == (1, HOSTS)
    assert found.links is not None and [(one.one, one.two) for one in found.links.crossings] == [(("n3",), ("n4",))]
    assert "1 bad link (n3 with n4)" in answers.line(found)
    assert answers.excluded(found) == "n4"
    assert start.chosen(found).nodes == ()
    spare = replace(found, run=replace(found.run, spares=1))
    assert start.chosen(spare).nodes == ("n1", "n2", "n3", "n5", "n6", "n7", "n8")


@pytest.mark.parametrize("form", ["console", "json", "junit", "prometheus", "html", "nagios"])
def test_a_bad_link_is_in_every_format(tmp_path: Path, form: str) -> None:
    text = answers.render(run_of(tmp_path, ("n3", "n4")), form, 200)
    assert "n3 with n4" in text or ('"n3"' in text and '"n4"' in text) or "links" in text
    if form == "json":
        (only,) = json.loads(text)["links"]["found"]
        assert (only["kind"], only["state"], only["one"], only["two"]) == ("link", "fail", ["n3"], ["n4"])


def test_the_page_shows_each_pair_that_was_tried(tmp_path: Path) -> None:
    text = answers.render(run_of(tmp_path, ("n3", "n4")), "html")
    table = text.partition("Pairs that were tried")[2].partition("</table>")[0]
    assert table.count('<td class="fail">0/2</td>') == 2 and '<td class="ok">1/1</td>' in table
    assert table.count("<tr>") == 1 + len(HOSTS)
    (tmp_path / "alone").mkdir()
    assert "Pairs that were tried" not in answers.render(judged(lay(tmp_path / "alone", *healthy())), "html")


def test_trials_that_did_not_come_to_their_end_are_no_pass(tmp_path: Path) -> None:
    """A bad node, and nobody planned the round that would show it; then no round at all."""
    found = run_of(tmp_path / "a")
    assert found.exit_code == 0
    gather.plan_file(tmp_path / "a", 3).unlink()
    gather.plan_file(tmp_path / "a", 2).unlink()
    found = judged(tmp_path / "a")
    assert (found.exit_code, found.links and found.links.open) == (3, ("more trials are wanted than were made",))
    lay(tmp_path / "b", *healthy(), run=RUN)
    none = judged(tmp_path / "b")
    assert (none.exit_code, none.named(State.UNKNOWN)) == (3, HOSTS)
    assert "were not tested" in none.nodes[0].sentence


def test_plans_and_answers_of_other_runs_count_for_nothing(tmp_path: Path) -> None:
    run_of(tmp_path, ("n3",))
    path = gather.round_folder(tmp_path, 1) / "0.n1.json"
    path.write_bytes(msgspec.json.encode(replace(msgspec.json.decode(path.read_bytes(), type=Answer), nonce="6" * 32)))
    (gather.round_folder(tmp_path, 1) / "0.n2.json").write_text("{")
    found = judged(tmp_path)
    assert {one.source for one in found.rejected} == {"links/001/0.n1.json", "links/001/0.n2.json"}
    plan = gather.plan_file(tmp_path, 1)
    plan.write_bytes(plan.read_bytes().replace(b'"n1"', b'"elsewhere"'))
    found = judged(tmp_path)
    assert found.exit_code == 3 and any("no plan of round 1" in one.why for one in found.rejected)


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (1, {"nodes": (*HOSTS, "n1")}),
        (1, {"nodes": ("n1", "n2", "stranger")}),
        (1, {"nodes": HOSTS[:4]}),  # and trials of all eight
        (2, {"trials": (("n1", "n2"), ("n2", "n3"))}),
        (2, {"trials": (("n1", "n1"),)}),
        (2, {"trials": (("n1", "stranger"),)}),
        (2, {"round": 3}),
    ],
)
def test_a_plan_that_does_not_fit_the_run_is_refused(tmp_path: Path, number: int, change: Mapping[str, Any]) -> None:
    run_of(tmp_path, ("n3",))
    path = gather.plan_file(tmp_path, number)
    made = msgspec.json.decode(path.read_bytes(), type=Plan)
    path.write_bytes(msgspec.json.encode(replace(made, **change)))
    found = judged(tmp_path)
    assert found.exit_code == 3 and [one.source for one in found.rejected] == [f"links/{path.name}"]


# What the real trial prints, by the names of its nodes: n2 never answers rightly, n5 with n6 fails.
PLAYED = """#!{python}
import json, os, sys, time
asked = json.loads(sys.argv[2])
nodes = os.environ["ENVKIT_TRIAL_NODES"].split(",")
bad = "n2" in nodes or {{"n5", "n6"}} <= set(nodes)
print(json.dumps({{"nonce": asked["nonce"], "outcome": "failed" if bad else "passed", "stage": "answer", "gbps": 1.0,
                  "detail": "played" if bad else ""}}))
"""


@pytest.mark.slow
def test_nodes_go_through_the_rounds_without_a_leader(tmp_path: Path) -> None:
    """Each node a thread; n8 did not pass and takes no part."""
    run = fleet.run(links="pairs", trial_s=30.0, created=time.time())
    failed = fleet.document("n8", fleet.body(found=(fleet.fault(),)))
    lay(tmp_path, *healthy(n8=failed), run=run)
    played = tmp_path / "played"
    played.write_text(PLAYED.format(python=sys.executable))
    played.chmod(0o755)
    place = Place(tmp_path, run, 0.0)
    nodes = [
        threading.Thread(
            target=rounds.take_part,
            args=(place, node.identity(run.run, run.nonce, name), rounds.Trying(str(played)), time.monotonic(), Rules(),
                  lambda line: None),
            daemon=True,
        )
        for name in HOSTS
    ]  # fmt: skip
    for each in nodes:
        each.start()
    for each in nodes:
        each.join(120)
        assert not each.is_alive()
    found = judge(gather.gather(tmp_path, (), ()), time.time())
    assert found.named(State.FAIL) == ("n2", "n8")
    assert found.links is not None and [(one.one, one.two, one.sure) for one in found.links.crossings] == [
        (("n5",), ("n6",), True)
    ]
    assert found.links.over and not found.links.open
    assert "n8" not in (name for plan in gather.gather(tmp_path, (), ()).record.plans.values() for name in plan.nodes)


def test_a_python_that_cannot_run_the_trial_is_the_nodes_own_matter(tmp_path: Path) -> None:
    asked = rounds.trial.Asked("5" * 32, 0, 2, str(tmp_path / "meet"), 5.0)
    lacking = rounds.run_trial(str(tmp_path / "none"), asked, ("n1", "n2"))
    assert lacking["outcome"] == "unable" and "cannot be run" in lacking["detail"]
    other = rounds.run_trial("/bin/echo", asked, ("n1", "n2"))
    assert (other["outcome"], "exit code 0" in other["detail"]) == ("failed", True)
