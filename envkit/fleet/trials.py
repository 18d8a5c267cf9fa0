"""Trials of links as files: the plan of each round, each node's answer, and what the answers of a trial come to.

RUN/links/plan-003.json     the trials of round 3; made by whoever sees that round 2 is over, and never changed
RUN/links/003/7.meet        where the first node of trial 7 is reached
RUN/links/003/7.NODE.json   what a node says of it
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal

from msgspec import Meta

from envkit.errors import one_line
from envkit.fleet import hostlist
from envkit.fleet.documents import Hex, Key, Launch, Name, Seconds, Text
from envkit.fleet.evidence import Fleet, How, Tried
from envkit.fleet.floors import LinkFloor
from envkit.fleet.hostlist import MOST_NODES
from envkit.fleet.links import MOST_ROUNDS
from envkit.records import dataclass

_POOL = 6  # trials of one kind before their spread says what is slow
_SHARE = 0.75  # of the median: a node that lost one of four network cards has so much
_SPREADS = 4.0  # standard deviations, as the median deviation estimates them
_NORMAL = 1.4826  # a median deviation as a standard deviation, of normal values
_SOCKETS = "Socket"
_SAID = 300  # characters of what a node says

Round = Annotated[int, Meta(ge=1, le=MOST_ROUNDS + 1)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]


@dataclass(frozen=True, slots=True)
class Plan:
    """The trials of one round.  The first has the ``nodes`` that take part; one without trials is the last."""

    schema: Literal["envkit.links/1"]
    run: Launch
    nonce: Hex
    round: Round
    trials: Annotated[tuple[Annotated[tuple[Name, ...], Meta(min_length=2)], ...], Meta(max_length=MOST_NODES)] = ()
    nodes: Annotated[tuple[Name, ...], Meta(max_length=MOST_NODES)] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node says of a trial; most fields are those of `payload.trial.run`.  ``trial`` counts the round's trials
    from 0, ``gbps`` is the bus bandwidth in GB/s."""

    schema: Literal["envkit.trial/1"]
    run: Launch
    nonce: Hex
    round: Round
    trial: Count
    node: Name
    attempt: Hex
    outcome: Literal["passed", "wrong", "failed", "unable"]
    stage: Annotated[str, Meta(max_length=40)] = ""
    detail: Text = ""
    backend: Annotated[str, Meta(max_length=20)] = ""
    wrong: Count = 0
    elements: Count = 0
    gbps: Annotated[float, Meta(ge=0.0, le=1e9)] = 0.0
    seconds: Seconds = 0.0
    across: dict[Key, Count] = field(default_factory=dict)
    inside: dict[Key, Count] = field(default_factory=dict)
    network: Annotated[str, Meta(max_length=200)] = ""
    nccl: Annotated[str, Meta(max_length=40)] = ""


@dataclass(slots=True)
class Record:
    """All that lies there of the trials of a run: the plans by round, and the answers by round, trial and node."""

    plans: dict[int, Plan] = field(default_factory=dict)
    answers: dict[tuple[int, int], dict[str, Answer]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that take part, none before the first plan."""
        return self.plans[1].nodes if 1 in self.plans else ()

    @property
    def ended(self) -> bool:
        """Whether the last plan says that no trial follows."""
        return bool(self.plans) and not self.plans[max(self.plans)].trials

    def add(self, answer: Answer) -> None:
        """Takes an answer to a trial that was planned, of a node that is in it; others count for nothing."""
        plan = self.plans.get(answer.round)
        if plan and answer.trial < len(plan.trials) and answer.node in plan.trials[answer.trial]:
            self.answers.setdefault((answer.round, answer.trial), {})[answer.node] = answer

    def answered(self, number: int) -> bool:
        """Whether every node of every trial of a round has answered."""
        trials = self.plans[number].trials
        return all(len(self.answers.get((number, at), ())) == len(nodes) for at, nodes in enumerate(trials))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of trials that pass: at least ``floor`` GB/s, or with 0 what ``floors`` say of the nodes.
    ``cards`` are the nodes with cards of a fast network and no variable that turns it off."""

    floor: float = 0.0
    cards: frozenset[str] = frozenset()
    floors: Mapping[str, tuple[LinkFloor, ...]] = field(default_factory=dict)

    def of(self, nodes: Sequence[str], way: str) -> LinkFloor | None:
        """The floor of a trial of these nodes that went this way; None where one of them has none."""
        parts = way.split(", ")
        held = [
            next((one for one in self.floors.get(name, ()) if all(part.startswith(one.way) for part in parts)), None)
            for name in nodes
        ]
        known = [one for one in held if one is not None]
        return min(known, key=lambda one: one.gbs) if known and len(known) == len(held) else None


def judged(fleet: Fleet, record: Record, wanted: Wanted) -> tuple[tuple[Tried, ...], tuple[str, ...]]:
    """Each trial of the record as it ended, and what all trials have in common that should not be."""
    made: list[Tried] = []
    passed: dict[int, dict[str, Answer]] = {}
    for number in sorted(record.plans):
        for at, nodes in enumerate(record.plans[number].trials):
            answers = record.answers.get((number, at), {})
            made.append(_ended(number, nodes, answers))
            if made[-1].passed:
                passed[len(made) - 1] = answers
    ways = {at: way for at, answers in passed.items() if (way := _ways(answers))}
    fast = sum(_SOCKETS not in way for way in ways.values())
    below = {} if wanted.floor else _below(made, passed, ways, wanted)
    floored = sum(wanted.of(made[at].nodes, way) is not None for at, way in ways.items())
    slower = _slow(fleet, made, passed, wanted.floor)
    if 2 * len(below) <= floored:  # else it is all of the network, and no node's fault
        slower = {**below, **slower}
    for at in passed:
        one = made[at]
        if _SOCKETS in ways.get(at, "") and 2 * fast > len(ways):
            why = f"NCCL used {ways[at]} between {_shown(one.nodes)}, and a faster way in {fast} of {len(ways)} trials"
            made[at] = Tried(one.round, one.nodes, How.TRANSPORT, why)
        elif at in slower:
            made[at] = Tried(one.round, one.nodes, How.SLOW, slower[at])
    common = _in_common(fleet, list(ways.values()), fast, wanted)
    if 2 * len(below) > floored:
        common.append(f"{len(below)} of {floored} trials were slow, such as {next(iter(below.values()))}")
    return tuple(made), tuple(common)


def _below(
    tried: Sequence[Tried], passed: Mapping[int, Mapping[str, Answer]], ways: Mapping[int, str], wanted: Wanted
) -> dict[int, str]:
    """The trials that were slower than the facts say of the way that they went, and why."""
    made: dict[int, str] = {}
    for at, way in ways.items():
        floor = wanted.of(tried[at].nodes, way)
        speed = min(each.gbps for each in passed[at].values())
        if floor is not None and speed < floor.gbs:
            said = f"{_shown(tried[at].nodes)} reached {speed:.3g} GB/s over {way}"
            made[at] = f"{said}, and {floor.gbs:.3g} GB/s is {floor.why}"
    return made


def _in_common(fleet: Fleet, ways: Sequence[str], fast: int, wanted: Wanted) -> list[str]:
    sockets = [way for way in ways if _SOCKETS in way]
    having = wanted.cards.intersection(fleet.nodes)
    if not sockets or 2 * fast > len(ways) or not having:
        return []
    said = f"NCCL used {', '.join(sorted(set(sockets)))} in {len(sockets)} of {len(ways)} trials"
    return [f"{said}, and {len(having)} nodes have cards of a faster network that it did not use"]


def _ways(answers: Mapping[str, Answer]) -> str:
    """How NCCL went from node to node, "" where it did not say."""
    return ", ".join(sorted({way for one in answers.values() for way in one.across}))


def _ended(number: int, nodes: Sequence[str], answers: Mapping[str, Answer]) -> Tried:
    """A trial by the answers of its nodes.  What one of them says of itself ("unable", wrong elements) comes first, and
    then whoever left no answer."""
    together = tuple(nodes)
    bad = [one for one in answers.values() if one.outcome != "passed"]
    for outcome, how in (("unable", How.FAILED), ("wrong", How.WRONG)):
        for one in (each for each in bad if each.outcome == outcome):
            said = f"{one.wrong} of {one.elements} elements of an exact sum are wrong" if one.wrong else one.detail
            return Tried(number, together, how, f"{_shown(nodes)}: on {one.node} {_words(said)}")
    if missing := [name for name in nodes if name not in answers]:
        return Tried(number, together, How.FAILED, f"{_shown(nodes)}: no answer came from {_shown(missing)}")
    if bad:
        one = min(bad, key=lambda each: (not each.detail.startswith("it was killed"), "ended when" in each.detail))
        at = f" at the stage {one.stage}" if one.stage else ""
        return Tried(number, together, How.FAILED, f"{_shown(nodes)}: on {one.node}{at}: {_words(one.detail)}")
    return Tried(number, together, How.PASSED)


def _words(text: str) -> str:
    found = one_line(text)
    return found if len(found) <= _SAID else f"{found[:_SAID]}..."


def _slow(
    fleet: Fleet, tried: Sequence[Tried], passed: Mapping[int, Mapping[str, Answer]], floor: float
) -> dict[int, str]:
    """The trials that were slow, and why: below ``floor``, or far below the median of trials of their kind, which are
    those of as many nodes, inside a domain or across."""
    pools: dict[tuple[int, bool], dict[int, float]] = {}
    for at, answers in passed.items():
        inside = len({fleet.domain(name) for name in tried[at].nodes}) == 1
        pools.setdefault((len(answers), inside), {})[at] = min(each.gbps for each in answers.values())
    made: dict[int, str] = {}
    for pool in pools.values():
        middle = statistics.median(pool.values())
        spread = _NORMAL * statistics.median(abs(speed - middle) for speed in pool.values())
        for at, speed in pool.items():
            told = f"{_shown(tried[at].nodes)} reached {speed:.3g} GB/s"
            if speed < floor:
                made[at] = f"{told}, and {floor:g} GB/s are asked for"
            elif len(pool) >= _POOL and speed < min(_SHARE * middle, middle - _SPREADS * spread):
                made[at] = f"{told}, and the median of {len(pool)} such trials is {middle:.3g} GB/s"
    return made


def _shown(nodes: Sequence[str]) -> str:
    if len(nodes) == 2:
        return f"{nodes[0]} with {nodes[1]}"
    text = hostlist.compressed(nodes)
    return text if len(text) <= 100 else f"{text[:100]}..."
