"""What trials of links show: which nodes, links and boundaries are bad, a pure function of the trials' ends.

A trial is a short process group on some of the nodes.  A node that failed with three healthy partners, or with all
there are, and passed with none is bad itself.  Two nodes that fail together and pass with others have a bad link.  Two
sets of nodes of which each works alone and no pair across works have a bad boundary.  Nothing is accused before one
more trial confirmed it; what failed and passed again is unsteady, which is unknown and no pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from envkit.records import dataclass

Pair = frozenset[str]
Side = tuple[str, ...]
Domain = tuple[str, ...]

_HEALTHY_PARTNERS = 2  # with which a node has to fail
FEW = 12  # nodes of a fleet in which faults of several links and boundaries easily meet at one innocent node
_SMALL_PARTNERS = 4  # with which a node of such a fleet has to fail, or with all there are
_MANY = 5  # partners with which a node fails that is the reason of it, steady or not
_WAYS = 3  # home partners and other domains, where fewer than two healthy nodes are at home
_BAD_TRIALS = 3  # of a node: two, and one that confirms them; each with another partner as far as there are some
_LINK_TRIALS = 2  # of a link: one, and one that confirms it
_OTHERS = 2  # partners with which both ends of a bad link have to pass
_CROSSINGS = 3  # bad trials across a boundary, of nodes that differ


class How(StrEnum):
    """How a trial ended; all but the first are bad."""

    PASSED = "passed"
    FAILED = "failed"
    WRONG = "wrong"
    SLOW = "slow"
    TRANSPORT = "transport"


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial that is over, of the round that counts from 1; ``why`` is one sentence where it is bad."""

    round: int
    nodes: tuple[str, ...]
    how: How
    why: str = ""

    @property
    def passed(self) -> bool:
        return self.how is How.PASSED


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes whose links are tested, and where each is: the labels of a node from the widest domain to the narrowest
    ("spine1", "leaf3"), none where nobody says."""

    nodes: tuple[str, ...]
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def domain(self, node: str) -> Domain:
        """The narrowest domain of a node, () without labels."""
        return self.labels.get(node, ())


@dataclass(frozen=True, slots=True)
class Crossing:
    """Two nodes, or two sets of nodes, that do not work together; ``sure`` is False where trials disagree or are too
    few.  ``names`` are the domains on both sides, "" where they have none."""

    one: Side
    two: Side
    sure: bool
    how: How
    why: str
    names: tuple[str, str] = ("", "")

    @property
    def is_link(self) -> bool:
        """Whether it is a pair of nodes, and no boundary."""
        return len(self.one) == len(self.two) == 1


@dataclass(slots=True)
class _Pairs:
    """The trials of one pair."""

    passed: int = 0
    bad: list[Tried] = field(default_factory=list)


class Evidence:
    """The trials of a run, by node, pair and set.

    ``accused`` are bad nodes with the trials that show it, ``boundaries`` the bad ones between domains, by both, and
    ``across`` all trials of pairs between two domains.
    """

    def __init__(self, fleet: Fleet, tried: Iterable[Tried]) -> None:
        """Counts ``tried``; nodes that are not in ``fleet`` count for nothing."""
        self.fleet = fleet
        self.pairs: dict[Pair, _Pairs] = {}
        self.sets: dict[frozenset[str], list[Tried]] = {}
        self.partners: dict[str, list[str]] = {name: [] for name in fleet.nodes}
        self.good: dict[str, set[str]] = {name: set() for name in fleet.nodes}
        self.bad: dict[str, list[Tried]] = {name: [] for name in fleet.nodes}
        self.place = {name: number for number, name in enumerate(fleet.nodes)}
        self.members: dict[Domain, list[str]] = {}
        for name in fleet.nodes:
            self.members.setdefault(fleet.domain(name), []).append(name)
        self.across: dict[frozenset[Domain], _Pairs] = {}
        self.rounds = 0
        self.trials = 0
        for one in tried:
            self._add(one)
        # Whether each trial that failed had a node in it that never passed: then nothing but such nodes need be bad.
        self.calm = all(
            pair.passed == 0 and any(not self.good[name] for name in key)
            for key, pair in self.pairs.items()
            if pair.bad
        )
        self.accused: dict[str, list[Tried]] = {}
        for _ in fleet.nodes:
            found = {name: self.bad[name] for name in fleet.nodes if name in self.accused or self._is_bad(name)}
            more, self.accused = len(found) > len(self.accused), found
            if not more or len(fleet.nodes) > FEW:  # in a small fleet, a node need not be tried with accused ones
                break
        self.boundaries = self._boundaries()

    def _add(self, one: Tried) -> None:
        self.rounds = max(self.rounds, one.round)
        self.trials += 1
        together = frozenset(one.nodes)
        self.sets.setdefault(together, []).append(one)
        if len(one.nodes) != 2:
            if one.passed:
                for name in one.nodes:
                    self.good[name].add("")
            return
        domains = frozenset(map(self.fleet.domain, one.nodes))
        held = [self.pairs.setdefault(together, _Pairs())]
        if len(domains) == 2:
            held.append(self.across.setdefault(domains, _Pairs()))
        for each in held:
            each.passed += one.passed
            each.bad += [] if one.passed else [one]
        for name, other in (one.nodes, one.nodes[::-1]):
            self.partners[name].append(other)
            if one.passed:
                self.good[name].add(other)
            else:
                self.bad[name].append(one)

    def healthy(self, name: str, but: str = "") -> bool:
        """Whether a node passed a trial with anybody but ``but``."""
        return bool(self.good[name] - {but})

    def failed_with(self, name: str) -> list[str]:
        """The healthy partners with which a node failed, each once."""
        others = dict.fromkeys(other for one in self.bad[name] for other in one.nodes if other != name)
        return [other for other in others if self.healthy(other, name)]

    def _is_bad(self, name: str) -> bool:
        """Whether a node passed with nobody, failed often enough, and nothing else explains it: it failed with three
        healthy partners, or with all there are; two of them, three where other healthy nodes fail as well, of its own
        domain, so that no bad boundary can be why, as far as healthy nodes are there."""
        if self.good[name] or len(self.bad[name]) < _BAD_TRIALS:
            return False
        others = self.failed_with(name)
        own = self.fleet.domain(name)
        if len(self.fleet.nodes) <= FEW:
            return self._is_bad_of_few(name, others)
        home = [other for other in others if self.fleet.domain(other) == own]
        there = sum(self.healthy(each, name) for each in self.members[own] if each != name)
        needed = _HEALTHY_PARTNERS + (not self.calm)
        if len(others) >= _BAD_TRIALS and sum(not self._doubtful(other, name) for other in home) >= needed:
            return True
        if len(home) < there:
            return False
        abroad = {self.fleet.domain(other) for other in others} - {own}
        elsewhere = [
            domain for domain, names in self.members.items() if domain != own and any(map(self.healthy, names))
        ]
        # Without two at home, each way out could have a fault of its own.
        ways = min(_WAYS, there + len(elsewhere))
        return len(others) >= _HEALTHY_PARTNERS and len(home) + len(abroad) >= max(ways, _HEALTHY_PARTNERS)

    def _is_bad_of_few(self, name: str, others: Sequence[str]) -> bool:
        """The same in a small fleet, where each partner at home may have a bad link of its own to this node, and each
        other domain a bad boundary: it failed on four such ways, five where healthy nodes fail as well, or with every
        node that is not accused itself."""
        if len(others) < _HEALTHY_PARTNERS:
            return False
        own, met, needed = self.fleet.domain(name), set(self.partners[name]), _SMALL_PARTNERS + (not self.calm)
        home = [other for other in others if self.fleet.domain(other) == own and not self._doubtful(other, name)]
        if len(home) >= needed:
            return True
        if not met.issuperset(other for other in self.members[own] if other not in (name, *self.accused)):
            return False
        abroad = {self.fleet.domain(other) for other in others} - {own}
        if len(home) + len(abroad) >= needed:
            return True
        return met.issuperset(other for other in self.fleet.nodes if other not in (name, *self.accused))

    def _doubtful(self, other: str, name: str) -> bool:
        """Whether a partner also failed with a healthy node that is not ``name``, at home, and may be bad itself; one
        that fails with many is the reason by itself, though it passed now and then."""
        for one in self.bad[other]:
            third = one.nodes[one.nodes[0] == other]
            at_home = self.fleet.domain(third) == self.fleet.domain(other)
            if third != name and self.good[third] and at_home and len(self.failed_with(third)) <= _MANY:
                return True
        return False

    def _boundaries(self) -> dict[frozenset[Domain], list[Tried]]:
        """The pairs of domains of which no pair of nodes passed, and enough failed whose nodes are healthy; a domain
        alone where that holds towards all others, of which there are two or more."""
        made: dict[frozenset[Domain], list[Tried]] = {}
        ways: dict[Domain, dict[Domain, _Pairs]] = {}
        for domains, found in self.across.items():
            if () in domains:
                continue
            for domain in domains:
                ways.setdefault(domain, {}).update(dict.fromkeys(domains - {domain}, found))
            if not found.passed and self._is_boundary(trials := self._of_others(found)):
                made[domains] = trials
        reached = {domain for domain, towards in ways.items() if any(found.passed for found in towards.values())}
        for domain, towards in ways.items():
            trials = [one for found in towards.values() for one in self._of_others(found)]
            # Towards one or two others that nobody reaches it may be theirs.
            enough = len(towards) == len(self.members) - 1 or len(reached.intersection(towards)) > 1
            if len(towards) > 1 and enough and domain not in reached and self._is_boundary(trials):
                made = {domains: held for domains, held in made.items() if domain not in domains}
                made[frozenset((domain,))] = trials
        return made

    def _of_others(self, found: _Pairs) -> list[Tried]:
        """The bad trials of nodes that are not bad themselves."""
        return [one for one in found.bad if not any(name in self.accused for name in one.nodes)]

    def _is_boundary(self, trials: Sequence[Tried]) -> bool:
        pairs = {frozenset(one.nodes) for one in trials}
        # Two pairs that share a node could be that node's own two links.
        apart = any(not first & second for first in pairs for second in pairs)
        healthy = all(self.good[name] for one in trials for name in one.nodes)
        return len(trials) >= _CROSSINGS and apart and healthy and len({one.round for one in trials}) > 1

    def in_boundary(self, pair: Pair) -> bool:
        """Whether a bad boundary between domains explains that a pair fails."""
        domains = frozenset(map(self.fleet.domain, pair))
        return len(domains) > 1 and (
            domains in self.boundaries or any(frozenset((each,)) in self.boundaries for each in domains)
        )

    def unexplained(self) -> dict[Pair, _Pairs]:
        """The pairs that failed for no reason of a bad node or a bad boundary."""
        return {
            pair: found
            for pair, found in self.pairs.items()
            if found.bad and not any(name in self.accused for name in pair) and not self.in_boundary(pair)
        }

    def lacks(self, pair: Pair) -> list[str]:
        """The ends of a failed pair that have not passed with enough others, as far as there are others."""
        enough = min(_OTHERS, len(self.fleet.nodes) - len(self.accused) - 2)
        return [name for name in sorted(pair) if len(self.good[name] - pair) < max(enough, 1)]

    def confirmed(self, pair: Pair) -> bool:
        """Whether a pair failed again and again, and both its nodes pass with others."""
        found = self.pairs[pair]
        return not found.passed and len(found.bad) >= _LINK_TRIALS and not self.lacks(pair)

    def unsteady(self) -> set[str]:
        """Nodes that failed with two healthy partners or more, passed with others, and not always in the same way."""
        open_: dict[str, int] = {}
        firm: dict[str, int] = {}
        for pair in self.unexplained():
            for name in pair if all(self.good[name] for name in pair) else ():
                kind = firm if self.confirmed(pair) else open_
                kind[name] = kind.get(name, 0) + 1
        return {name for name, many in open_.items() if self.good[name] and many + firm.get(name, 0) > 1}

    def of(self, nodes: Iterable[str]) -> tuple[int, int]:
        """How often exactly these nodes passed together, and how often they failed.  What a larger set passed counts as
        passed where they were never tried themselves."""
        wanted = frozenset(nodes)
        held = self.sets.get(wanted, ())
        if held:
            passed = sum(one.passed for one in held)
            return passed, len(held) - passed
        if len(wanted) < 2 or any(
            wanted < larger and all(one.passed for one in trials)
            for larger, trials in self.sets.items()
            if len(larger) > 2
        ):
            return 1, 0
        return 0, 0


def commonest(trials: Sequence[Tried]) -> Tried:
    """A trial that stands for ``trials``: the first of those that ended as most of them did."""
    counts: dict[How, int] = {}
    for one in trials:
        counts[one.how] = counts.get(one.how, 0) + 1
    return next(one for one in trials if counts[one.how] == max(counts.values()))
