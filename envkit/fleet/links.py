"""Which trials of links come next, and what all of them show: pure functions of the trials' ends.

Two rounds of disjoint pairs first, near one another and far apart, all in parallel; then only what is still open: a
third partner for a suspect, the same pair again, another pair across a boundary.  With groups, each domain follows as
one group and then all healthy nodes; a group that fails is halved, and where both halves pass, mixed halves are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from envkit.fleet import hostlist
from envkit.fleet.evidence import FEW, Crossing, Domain, Evidence, Fleet, How, Side, Tried, commonest
from envkit.records import dataclass

PAIRS: Literal["pairs"] = "pairs"
GROUPS: Literal["groups"] = "groups"
MOST_ROUNDS = 80  # a bound alone: the worst of ten thousand simulated fleets with ten thousand nodes took fewer
_MOST_QUESTIONS = 12  # rounds of pairs; what is open then stays unknown
_SET_TRIALS = 2  # of a group before it is halved: one, and one that confirms it
_CROSSED = 4  # bad trials across two domains, after which no other pair is needed
_SCALE_TRIALS = 4  # of a group all parts of which pass


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """What the trials show.

    ``bad`` and ``unknown`` are nodes with their sentences; ``crossings`` are links and boundaries that fail or are
    unsteady; ``open`` is what else was not decided.  ``over`` is False where more trials are wanted.
    """

    bad: dict[str, tuple[How, str]]
    unknown: dict[str, str]
    crossings: tuple[Crossing, ...]
    open: tuple[str, ...]
    rounds: int
    trials: int
    over: bool


def plan(fleet: Fleet, tried: Sequence[Tried], kind: str = PAIRS) -> tuple[Side, ...]:
    """The trials of the next round, disjoint sets of nodes; none where everything is decided that trials can decide."""
    evidence = Evidence(fleet, tried)
    return _wanted(evidence, kind) if evidence.rounds < MOST_ROUNDS else ()


def _wanted(evidence: Evidence, kind: str) -> tuple[Side, ...]:
    fleet = evidence.fleet
    if len(fleet.nodes) < 2:
        return ()
    if evidence.rounds < 2:
        made = _near(fleet) if evidence.rounds == 0 else _far(fleet)
        if made:
            return made
    if asked := _pairs(evidence):
        return asked
    return _groups(evidence) if kind == GROUPS else ()


def _ordered(fleet: Fleet) -> list[str]:
    place = {name: number for number, name in enumerate(fleet.nodes)}
    return sorted(fleet.nodes, key=lambda name: (fleet.domain(name), place[name]))


def _near(fleet: Fleet) -> tuple[Side, ...]:
    """Neighbours inside the narrowest domain; what is left over meets the next domain's."""
    pairs: list[Side] = []
    waiting: dict[tuple[str, ...], str] = {}
    for name in _ordered(fleet):
        other = waiting.pop(fleet.domain(name), None)
        if other is None:
            waiting[fleet.domain(name)] = name
        else:
            pairs.append((other, name))
    left = list(waiting.values())
    return (*pairs, *((left[at], left[at + 1]) for at in range(0, len(left) - 1, 2)))


def _far(fleet: Fleet) -> tuple[Side, ...]:
    """Each node with the one half a fleet away.  Of an odd number another is left out than in the first round."""
    order = _ordered(fleet)
    if len(order) == 2:
        return ()
    if len(order) % 2:
        near = {name for pair in _near(fleet) for name in pair}
        first = next(name for name in order if name in near)
        order.remove(first)
    half = len(order) // 2
    return tuple((order[at], order[at + half]) for at in range(half))


class _Round:
    """A round while it is filled: each node takes part once."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.trials: list[Side] = []

    def add(self, nodes: Side) -> bool:
        if self.taken.intersection(nodes):
            return False
        self.taken.update(nodes)
        self.trials.append(nodes)
        return True


def _pairs(evidence: Evidence) -> tuple[Side, ...]:
    """Pairs that decide what is open: untested and suspect nodes first, then links and boundaries."""
    if evidence.rounds >= _MOST_QUESTIONS and not any(len(one) > 2 for one in evidence.sets):
        return ()
    made = _Round()
    healthy = [name for name in evidence.fleet.nodes if evidence.good[name]]
    for name in evidence.fleet.nodes:
        if name not in evidence.accused and not evidence.good[name]:
            _ask(evidence, made, name, healthy)
    for pair, found in evidence.unexplained().items():
        one, two = sorted(pair, key=evidence.place.__getitem__)
        if not (evidence.good[one] and evidence.good[two]) or found.passed:
            continue
        for name in evidence.lacks(pair):
            _ask(evidence, made, name, healthy)
        if len(found.bad) < 2 and not evidence.confirmed(pair):
            made.add((one, two))
        if len(found.bad) < 4 and evidence.fleet.domain(one) != evidence.fleet.domain(two):
            _cross(evidence, made, (one, two))
    for domains in evidence.boundaries:
        _elsewhere(evidence, made, domains)
    return tuple(made.trials)


def _elsewhere(evidence: Evidence, made: _Round, domains: frozenset[Domain]) -> None:
    """For each side of a bad boundary that passed with no other domain: a pair with one, so that a domain which none
    reaches is told from two that do not reach one another."""
    for domain in domains if len(domains) == 2 else ():
        towards = {other: found for key, found in evidence.across.items() if domain in key for other in key - {domain}}
        if any(found.passed for found in towards.values()):
            continue
        others = [other for other in evidence.members if other not in domains and other not in towards]
        for other in others[:1]:
            _cross_domains(evidence, made, domain, other)


def _ask(evidence: Evidence, made: _Round, name: str, healthy: Sequence[str]) -> None:
    """Another partner for a node: a healthy one, new to it, of its own domain if there is one, since no boundary lies
    between."""
    if name in made.taken:
        return
    fleet, met = evidence.fleet, evidence.partners[name]
    own = fleet.domain(name)
    # Each suspect begins elsewhere in the list, so that two of them seldom want the same partner.
    start = evidence.place[name] % max(len(healthy), 1)
    others = [*healthy[start:], *healthy[:start]]
    # At home even those that passed with nobody yet, which behind a bad boundary have only one another; in a small
    # fleet all of them.
    near = fleet.nodes if len(fleet.nodes) <= FEW else evidence.members[own] if own else ()
    others += [other for other in near if not evidence.good[other]]
    others = [other for other in others or fleet.nodes if other not in evidence.accused]
    most = 2 if len(evidence.bad[name]) < 6 else 1  # no end is needed where nobody is healthy

    def cost(other: str) -> tuple[int, bool, bool]:
        return met.count(other), fleet.domain(other) != own, bool(evidence.bad[other])

    free = [other for other in others if other != name and other not in made.taken and met.count(other) < most]
    if free:
        made.add((name, min(free, key=cost)))


def _cross(evidence: Evidence, made: _Round, pair: Side) -> None:
    """Another pair across the same two domains, of nodes that are healthy at home, unless enough were tried."""
    domain = evidence.fleet.domain
    sides = (domain(pair[0]), domain(pair[1]))
    found = evidence.across.get(frozenset(sides))
    if () in sides or found is None or found.passed or len(found.bad) >= _CROSSED:
        return

    _cross_domains(evidence, made, *sides, pair)


def _cross_domains(evidence: Evidence, made: _Round, one: Domain, two: Domain, but: Side = ()) -> None:
    free = [
        next((name for name in evidence.members[side] if evidence.good[name] and name not in (*but, *made.taken)), None)
        for side in (one, two)
    ]
    if free[0] is not None and free[1] is not None:
        made.add((free[0], free[1]))


def _groups(evidence: Evidence) -> tuple[Side, ...]:
    """Groups that are still to be tried: the domains, then all of them, and the parts of those that failed."""
    for level in _searches(evidence):
        made = _Round()
        for search in level:
            for wanted in search.wanted:
                made.add(wanted)
        if made.trials:
            return tuple(made.trials)
    return ()


def _searches(evidence: Evidence) -> Iterator[list[_Search]]:
    """The searches of both levels: in each domain, or among neighbours where there are none, and in all healthy nodes
    but one side of each crossing.  Where one found a boundary, the next leaves one side of it out."""
    fleet, found = evidence.fleet, list(_crossings(evidence))
    bad = set(evidence.accused) | evidence.unsteady() | {name for name in fleet.nodes if not evidence.good[name]}
    order = _ordered(fleet)
    size = max(math.isqrt(max(len(order) - 1, 0)) + 1, 2)
    domains: dict[Domain, list[str]] = {}
    for number, name in enumerate(order):
        domains.setdefault(fleet.domain(name) or (str(number // size),), []).append(name)
    for level in ([*domains.values()], [order]):
        made: list[_Search] = []
        for group in level:
            while True:
                gone = left_out(fleet, bad, found)
                left = tuple(name for name in group if name not in gone)
                if len(left) < 3 or (level != [order] and len(left) == len(order)):
                    break
                made.append(_Search(evidence, left))
                if not made[-1].found:
                    break
                found += made[-1].found
        yield made


def left_out(fleet: Fleet, bad: set[str], crossings: Sequence[Crossing]) -> set[str]:
    """``bad`` and, of each crossing, one side: of a link the end with most of them, of a boundary the smaller side."""
    gone = set(bad)
    counts: dict[str, int] = {}
    links = [one for one in crossings if one.is_link]
    for one in links:
        for name in (*one.one, *one.two):
            counts[name] = counts.get(name, 0) + 1
    place = {name: number for number, name in enumerate(fleet.nodes)}
    for one in sorted(links, key=lambda one: -max(counts[one.one[0]], counts[one.two[0]])):
        ends = (*one.one, *one.two)
        if not gone.intersection(ends):
            gone.add(max(ends, key=lambda name: (counts[name], place[name])))
    boundaries = [one for one in crossings if not one.is_link]
    sides: dict[Side, int] = {}
    for one in boundaries:
        for side in (one.one, one.two):
            sides[side] = sides.get(side, 0) + 1
    for one in sorted(boundaries, key=lambda one: -max(sides[one.one], sides[one.two])):
        first, second = ([name for name in side if name not in gone] for side in (one.one, one.two))
        if first and second:
            gone.update(min((-sides[one.one], len(first), first), (-sides[one.two], len(second), second))[2])
    return gone


class _Search:
    """What is known of a group and its parts: ``wanted`` are sets to be tried next, ``found`` the crossings in it."""

    def __init__(self, evidence: Evidence, group: Side) -> None:
        self.evidence = evidence
        self.wanted: list[Side] = []
        self.found: list[Crossing] = []
        passed, bad = evidence.of(group)
        if not passed and bad < _SET_TRIALS:
            self.wanted.append(group)
        elif not passed:
            self._part(group)

    def _part(self, group: Side) -> None:
        """A group that failed: the halves, then the mixed halves; each part of it that failed in its turn."""
        if len(group) == 2:  # a pair like any other, whose evidence the questions about pairs complete
            return
        one, two = _halves(self.evidence.fleet, group)
        if self._ask([one, two]):
            return
        if bad := [half for half in (one, two) if self._failed(half)]:
            for half in bad:
                self._part(half)
            return
        mixed = [
            tuple(name for name in group if name in {*first, *second})
            for first in _quarters(self.evidence.fleet, one)
            for second in _quarters(self.evidence.fleet, two)
        ]
        mixed = [each for each in mixed if len(each) < len(group)]
        if self._ask(mixed):
            return
        bad = [each for each in mixed if self._failed(each)]
        if bad and (len(bad) < len(mixed) or min(len(one), len(two)) < 2):
            for each in bad:
                self._part(each)
            return
        self._boundary(group, one, two, bool(bad))

    def _boundary(self, group: Side, one: Side, two: Side, every_part: bool) -> None:
        passed, failed = self.evidence.of(group)
        again = [half for half in (one, two) if len(half) > 1 and len(self.evidence.sets.get(frozenset(half), ())) < 2]
        trials = self.evidence.sets[frozenset(group)]
        worst = commonest([each for each in trials if not each.passed])
        if passed:
            return
        if not every_part and (failed < _SCALE_TRIALS or again):  # one that fails now and then looks alike
            self.wanted += again or [group]
        else:
            parts = "each part of one side with each of the other" if every_part else "only all of them together"
            why = f"{worst.why}; both sides pass alone, and what fails is {parts}"
            self.found.append(Crossing(one, two, True, worst.how, why))

    def _ask(self, sets: Sequence[Side]) -> bool:
        """Whether one of these was not tried yet; those are then wanted."""
        fresh = [each for each in sets if self.evidence.of(each) == (0, 0)]
        self.wanted += fresh
        return bool(fresh)

    def _failed(self, nodes: Side) -> bool:
        passed, bad = self.evidence.of(nodes)
        return bad > 0 and not passed


def _halves(fleet: Fleet, group: Side) -> tuple[Side, Side]:
    """A group in two, at the border of two domains if it has several, else in the middle."""
    borders = [at for at in range(1, len(group)) if fleet.domain(group[at - 1]) != fleet.domain(group[at])]
    at = min(borders or [len(group) // 2], key=lambda one: abs(one - len(group) / 2))
    return group[:at], group[at:]


def _quarters(fleet: Fleet, half: Side) -> list[Side]:
    return [half] if len(half) < 2 else list(_halves(fleet, half))


def _shown(nodes: Sequence[str]) -> str:
    text = hostlist.compressed(nodes)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(nodes)} nodes)"


def _times(many: int) -> str:
    return "once" if many == 1 else "twice" if many == 2 else f"{many} times"


def _crossings(evidence: Evidence) -> tuple[Crossing, ...]:
    """The links and boundaries between domains that pairs show."""
    made = [_between(evidence, domains, trials) for domains, trials in evidence.boundaries.items()]
    unsteady = evidence.unsteady()
    for pair, found in evidence.unexplained().items():
        one, two = sorted(pair, key=evidence.place.__getitem__)
        worst = commonest(found.bad)
        sure = evidence.confirmed(pair) and not unsteady & pair
        passed = f" and passed {_times(found.passed)}" if found.passed else ""
        why = f"{worst.why}; they failed {_times(len(found.bad))}{passed}, and both pass with others"
        if not all(evidence.good[name] for name in pair):
            continue  # an end that passed with nobody is unknown by itself
        made.append(Crossing((one,), (two,), sure, worst.how, why))
    return tuple(made)


def _between(evidence: Evidence, domains: frozenset[Domain], trials: Sequence[Tried]) -> Crossing:
    first, *others = sorted(domains)
    second = others[0] if others else None
    names = ("/".join(first), "/".join(second) if second else "all others")
    rest = [name for name in evidence.fleet.nodes if evidence.fleet.domain(name) != first]
    other = evidence.members[second] if second else rest
    worst = commonest(trials)
    why = f"{worst.why}; all {len(trials)} trials across failed, and their nodes pass on their own side"
    return Crossing(tuple(evidence.members[first]), tuple(other), True, worst.how, why, names)


def judge(fleet: Fleet, tried: Sequence[Tried], kind: str = PAIRS) -> LinkVerdict:
    """What the trials show of each node, link and boundary."""
    evidence = Evidence(fleet, tried)
    over = not _wanted(evidence, kind)
    bad = {name: _guilty(evidence, name) for name in evidence.accused}
    unknown: dict[str, str] = {}
    for name in fleet.nodes:
        if name not in bad and not evidence.good[name]:
            unknown[name] = _untested(evidence, name)
    for name in evidence.unsteady():
        many, all_ = len(evidence.bad[name]), len(evidence.partners[name])
        others = hostlist.compressed(evidence.failed_with(name))
        unknown[name] = f"it is unsteady: {many} of its {all_} trials failed, with {others}, and the others passed"
    crossings = list(_crossings(evidence))
    open_: list[str] = []
    searches = [search for level in _searches(evidence) for search in level] if kind == GROUPS else []
    for search in searches:  # a group that failed before one of its links was left out is explained by that link
        crossings += search.found
    open_ += _unexplained(evidence, left_out(fleet, {*bad, *unknown}, crossings), crossings)
    if not over:
        open_.append("more trials are wanted than were made")
    elif kind == GROUPS and len(fleet.nodes) > 2 and not searches:
        open_.append("too few healthy nodes are left for a group")
    return LinkVerdict(
        bad, unknown, tuple(crossings), tuple(dict.fromkeys(open_)), evidence.rounds, evidence.trials, over
    )


def _unexplained(evidence: Evidence, gone: set[str], crossings: Sequence[Crossing]) -> Iterator[str]:
    """The groups that failed and in which there is neither one of ``gone`` nor both sides of a crossing."""
    for together, trials in evidence.sets.items():
        bad = sum(not one.passed for one in trials)
        if len(together) < 3 or not bad or not together.isdisjoint(gone):
            continue
        if not any(together.intersection(one.one) and together.intersection(one.two) for one in crossings):
            passed = f" and passed {_times(len(trials) - bad)}" if len(trials) > bad else ""
            yield f"{_shown(trials[0].nodes)} failed together {_times(bad)}{passed}, and no trial of its parts says why"


def _guilty(evidence: Evidence, name: str) -> tuple[How, str]:
    worst = commonest(evidence.bad[name])
    others = evidence.failed_with(name)
    why = (
        f"its links: {worst.why}; it failed with {len(others)} healthy partners ({_shown(others)}) and passed with none"
    )
    return worst.how, why


def _untested(evidence: Evidence, name: str) -> str:
    if not evidence.bad[name]:
        return "its links were not tested: no trial with it came to its end"
    others = dict.fromkeys(other for one in evidence.bad[name] for other in one.nodes if other != name)
    said = f"its {len(evidence.bad[name])} trials failed, with {_shown(list(others))}"
    return f"{said}: which of them is bad is not known, for too few passed with others"


__all__ = ["GROUPS", "MOST_ROUNDS", "PAIRS", "LinkVerdict", "judge", "left_out", "plan"]
