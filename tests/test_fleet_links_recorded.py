"""Trials that ran on two H200, each GPU a node, with NCCL's variables to play the link: what NCCL's log says, and what
a fleet of such trials is judged as.

P2P and shared memory off leave the network alone, which there are sockets; "slow network" has one channel and small
buffers beside that; faults were planted in one of the two processes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from envkit.fleet import links, node, rounds, trials
from envkit.fleet.evidence import Fleet, How
from envkit.fleet.trials import Answer, Plan, Record, Wanted
from envkit.payload import trial

RECORDED = Path(__file__).parent / "data" / "gpu" / "h200x2-torch-2.11-cu130-links.json"
NONCE = "5" * 32
FLEET = Fleet(tuple(f"n{at}" for at in range(1, 17)))


@cache
def recorded() -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(RECORDED.read_text())["trials"]}


@pytest.mark.parametrize(
    ("name", "across"),
    [
        ("default", {"P2P/CUMEM": 24}),
        ("shared memory", {"SHM/direct/direct": 4}),
        ("network", {"NET/Socket": 4}),
        ("two hosts by name", {"NET/Socket": 4}),
        ("slow network", {"NET/Socket": 2}),
    ],
)
def test_the_way_that_nccl_went_is_read_from_its_log(name: str, across: dict[str, int]) -> None:
    for each in recorded()[name]["nodes"]:
        assert trial.transports(each["log"], 1) == (across, {}, "Socket")
        assert (each["answer"]["outcome"], each["answer"]["wrong"], each["answer"]["across"]) == ("passed", 0, across)
        assert trial.transports(each["log"], 2)[0] == {}  # two ranks of one node


def answers(name: str, which: tuple[int, int], nodes: tuple[str, ...]) -> list[Answer]:
    """What the two GPUs said in a recorded trial, as the answers of two nodes."""
    made: list[Answer] = []
    for who, each in zip(nodes, recorded()[name]["nodes"], strict=False):
        said = node.Identity("run", NONCE, who, "0" * 16, 0.0)
        made.append(rounds.answer_of(each["answer"], "run", NONCE, which, said))
    return made


def play(clean: str, fault: str, *bad: str) -> links.LinkVerdict:
    """Sixteen nodes whose trials are the recorded one ``clean``, or ``fault`` where both or the only one of ``bad`` are
    in it, planned round by round."""
    record = Record()
    while True:
        number = len(record.plans) + 1
        tried, _ = trials.judged(FLEET, record, Wanted())
        wanted = links.plan(FLEET, tried)
        if not wanted:
            return links.judge(FLEET, tried)
        record.plans[number] = Plan("envkit.links/1", "run", NONCE, number, wanted, FLEET.nodes)
        for at, nodes in enumerate(wanted):
            for one in answers(fault if set(bad) <= set(nodes) else clean, (number, at), nodes):
                record.add(one)


FAULTS = [
    ("network", "slow network", How.SLOW),
    ("network", "wrong element", How.WRONG),
    ("network", "raises", How.FAILED),
    ("network", "dies", How.FAILED),
    ("network", "hangs", How.FAILED),
    ("network", "partner missing", How.FAILED),
    ("default", "network", How.TRANSPORT),
]


@pytest.mark.parametrize(("clean", "fault", "how"), FAULTS)
def test_a_node_and_a_link_with_a_recorded_fault_are_named(clean: str, fault: str, how: How) -> None:
    node_ = play(clean, fault, "n6")
    assert {name: kind for name, (kind, _) in node_.bad.items()} == {"n6": how} and not node_.crossings
    link = play(clean, fault, "n5", "n6")
    assert [(one.one, one.two, one.how, one.sure) for one in link.crossings] == [(("n5",), ("n6",), how, True)]
    assert not link.bad and not link.unknown


@pytest.mark.parametrize("clean", ["default", "network", "two hosts by name"])
def test_the_spread_of_clean_trials_is_no_fault(clean: str) -> None:
    found = play(clean, f"{clean} again" if f"{clean} again" in recorded() else "network a third time", "n6")
    assert (found.bad, found.unknown, found.crossings, found.rounds) == ({}, {}, (), 2)


def test_an_answer_that_is_none_is_a_failure() -> None:
    who = node.Identity("run", NONCE, "n1", "0" * 16, 0.0)
    given = {**recorded()["network"]["nodes"][0]["answer"], "gbps": "fast"}
    made = rounds.answer_of(given, "run", NONCE, (1, 0), who)
    assert made.outcome == "failed" and "cannot be read" in made.detail
    assert replace(made, outcome="passed") != made
