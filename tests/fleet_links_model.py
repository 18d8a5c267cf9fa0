"""Networks of a model: bad and slow nodes, links and boundaries, some of them unsteady, and how a trial on them ends.

The planning and judging are the product's; only the trial is the model's.  A bad element makes each trial fail that
uses it, an unsteady one some of them.  ``wrongly`` compares the verdict with what was planted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from envkit.fleet import links
from envkit.fleet.evidence import Crossing, Fleet, How, Tried
from envkit.fleet.links import LinkVerdict

KINDS = (How.FAILED, How.WRONG, How.SLOW, How.TRANSPORT)


@dataclass(frozen=True)
class Fault:
    """Something that is planted: a node alone, a link with two sides of one node, or a boundary between two sides.

    ``share`` is the part of the trials that fail, 1 where all do; only trials of ``least`` nodes or more are touched.
    """

    one: frozenset[str]
    two: frozenset[str] = frozenset()
    how: How = How.FAILED
    share: float = 1.0
    least: int = 2

    def touches(self, nodes: frozenset[str]) -> bool:
        return len(nodes) >= self.least and bool(nodes & self.one) and (not self.two or bool(nodes & self.two))

    @property
    def firm(self) -> bool:
        return self.share == 1.0


@dataclass
class Network:
    """A fleet, its faults, and all trials of it so far."""

    fleet: Fleet
    faults: list[Fault]
    random_: random.Random
    tried: list[Tried] = field(default_factory=list)
    failed: list[tuple[int, frozenset[str]]] = field(default_factory=list)

    def trial(self, number: int, nodes: tuple[str, ...]) -> Tried:
        inside = frozenset(nodes)
        touching = [each for each in self.faults if each.touches(inside)]
        for fault in touching:
            if fault.firm or self.random_.random() < fault.share:
                if len(touching) == 1:  # what also fails for another reason shows nothing of this one
                    self.failed.append((self.faults.index(fault), inside))
                return Tried(number, nodes, fault.how, f"it ended as {fault.how.value}")
        return Tried(number, nodes, How.PASSED)

    def run(self, kind: str) -> LinkVerdict:
        """Round after round, until nothing more is wanted."""
        number = 0
        while wanted := links.plan(self.fleet, self.tried, kind):
            number += 1
            taken = [name for nodes in wanted for name in nodes]
            assert len(taken) == len(set(taken)), "a node is in two trials of a round"
            self.tried += [self.trial(number, nodes) for nodes in wanted]
        return links.judge(self.fleet, self.tried, kind)


def fleet_of(many: int, domains: int) -> Fleet:
    """So many nodes in domains of one size, none with 0 domains; a domain's nodes lie beside one another."""
    names = tuple(f"n{number}" for number in range(1, many + 1))
    if not domains:
        return Fleet(names)
    return Fleet(names, {name: (f"leaf{at * domains // many}",) for at, name in enumerate(names)})


def drawn(seed: int, many: int, *, groups: bool, most: int = 4, unsteady: bool = True) -> Network:
    """A network with up to ``most`` faults of any kind at once, and none in some."""
    random_ = random.Random(seed)
    made = fleet_of(many, random_.choice((0, 4, 8, max(many // 16, 2))))
    faults: list[Fault] = []
    wanted = random_.randint(0, most)
    while len(faults) < wanted:
        fault = _one(random_, made, groups)
        if unsteady and random_.random() < 0.25:
            fault = replace(fault, share=random_.choice((0.3, 0.5, 0.8)))
        faults.append(fault)
    return Network(made, faults, random_)


def small(seed: int, least: int, most: int) -> tuple[str, Network]:
    """A network of few nodes in few domains, and pairs or groups: up to four faults easily meet at one node."""
    random_ = random.Random(seed)
    many, domains = random_.randint(least, most), random_.choice((0, 0, 1, 2, 3, 4))
    made = fleet_of(many, domains if domains <= many else 0)
    kind = random_.choice((links.PAIRS, links.GROUPS))
    faults: list[Fault] = []
    unsteady = random_.random() < 0.5
    for _ in range(random_.randint(0, 4)):
        fault = _one(random_, made, True)
        if unsteady and random_.random() < 0.25:
            fault = replace(fault, share=random_.choice((0.3, 0.5, 0.8)))
        if kind == links.GROUPS and fault.two and random_.random() < 0.1:
            fault = replace(fault, least=random_.choice((3, 4, many)))
        faults.append(fault)
    return kind, Network(made, faults, random_)


def _one(random_: random.Random, made: Fleet, groups: bool) -> Fault:
    how = random_.choice(KINDS)
    if random_.random() < 0.4:
        return Fault(frozenset({random_.choice(made.nodes)}), how=how)
    domains = sorted({made.domain(name) for name in made.nodes})
    if len(domains) > 1 and random_.random() < 0.4:
        one, two = random_.sample(domains, 2)
        inside = [frozenset(name for name in made.nodes if made.domain(name) == each) for each in (one, two)]
        if random_.random() < 0.3:  # the way up of one domain
            inside[1] = frozenset(made.nodes) - inside[0]
        return Fault(inside[0], inside[1], how)
    ends = random_.sample(made.nodes, 2)
    if not groups or random_.random() < 0.3:  # a pair that the rounds of pairs try in any case
        ends = list(random_.choice(links.plan(made, ())))
    return Fault(frozenset(ends[:1]), frozenset(ends[1:]), how)


def _covers(found: Crossing, fault: Fault) -> bool:
    """Whether a crossing lies between the two sides of a fault."""
    one, two = set(found.one), set(found.two)
    return any(one & a and two & b for a, b in ((fault.one, fault.two), (fault.two, fault.one)))


def _accusation_is_true(found: Crossing, faults: Sequence[Fault]) -> bool:
    """Whether a fault lies between the sides; one that is unsteady may lie at a side, where trials could not tell, and
    one that only many nodes show lies anywhere among both sides where neither has enough of them."""
    one, two = frozenset(found.one), frozenset(found.two)
    return any(
        each.touches(one | two) and not (each.touches(one) or each.touches(two))
        if each.firm and each.least > 2
        else _covers(found, each)
        if each.firm and each.two
        else each.touches(one | two) and not each.firm
        for each in faults
    )


def wrongly(network: Network, found: LinkVerdict, groups: bool) -> list[str]:
    """What the verdict says that is not so, and what it does not say that is."""
    wrong: list[str] = []
    firm = {name for each in network.faults if each.firm and not each.two for name in each.one}
    loose = {name for each in network.faults if not each.firm and not each.two for name in each.one}
    lost = {name for name in found.bad if name not in firm | loose and not _alone(network, name)}
    wrong += [f"innocent {name} is accused: {found.bad[name][1]}" for name in lost]
    wrong += [f"bad {name} is not accused: {found.unknown.get(name, 'ok')}" for name in firm if name not in found.bad]
    for each in found.crossings:
        if each.sure and not _accusation_is_true(each, network.faults):
            wrong.append(f"innocent {each.one[:3]} - {each.two[:3]} is accused: {each.why}")
    gone = links.left_out(network.fleet, set(found.bad) | set(found.unknown), found.crossings)
    left = frozenset(network.fleet.nodes) - gone
    for at, fault in enumerate(network.faults if found.over else ()):
        failed = [nodes for number, nodes in network.failed if number == at]
        seen = groups or bool(failed)
        if fault.firm and fault.two and seen and len(left) > 1 and fault.touches(left):
            named = any(_covers(each, fault) for each in found.crossings)
            if groups or not named:  # pairs show the pairs that were tried
                wrong.append(f"{sorted(fault.one)[:3]} - {sorted(fault.two)[:3]} is left in (named: {named})")
        if not fault.firm and any(nodes <= left for nodes in failed) and not _named(found, fault):
            wrong.append(f"the unsteady {sorted(fault.one)[:3]} - {sorted(fault.two)[:3]} is not named")
    if all(each.firm for each in network.faults) and (found.unknown or found.open):
        wrong.append(f"unknown without need: {found.unknown} {found.open}")
    return wrong


def _alone(network: Network, name: str) -> bool:
    """Whether faults leave a node nobody that it works with, so that it looks like a bad one."""
    return all(
        any(each.touches(frozenset((name, other))) for each in network.faults)
        for other in network.fleet.nodes
        if other != name
    )


def _named(found: LinkVerdict, fault: Fault) -> bool:
    names = fault.one if not fault.two else fault.one | fault.two
    told = set(found.bad) | set(found.unknown) | {name for each in found.crossings for name in (*each.one, *each.two)}
    return bool(names & told) or bool(found.open)
