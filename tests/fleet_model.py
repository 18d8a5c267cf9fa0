"""Fleets of a model: nodes in hardware classes with faults drawn from a seed, what each would leave, and the truth.

The truth is what was planted, not what the judge says: a node with a fault fails or is unknown as its fault says, and
a node without one is ok.  Faults of several kinds fall on one fleet at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import fleet

from envkit.fleet.documents import Beat, Body, Ended, Found, Refused
from envkit.fleet.gather import Gathered
from envkit.fleet.verdict import State

PRODUCTS = ("NVIDIA H100 80GB HBM3, x86_64", "NVIDIA H200, x86_64", "NVIDIA GB200, aarch64")
KEYS = ("driver", "kernel", "nccl", "image", "network firmware", "limit memlock", "variable NCCL_IB_HCA", "gpus")


@cache
def healthy(product: str) -> Body:
    """The body of each healthy node of a class, whose values are another class's too but for one."""
    values: dict[str, str | None] = {key: f"common {key}" for key in KEYS}
    return Body((), ("host-gpu-lost",), 0, product, {**values, "vbios": product})


@dataclass
class Fleet:
    """What the nodes of a run left, and what each of them is."""

    found: Gathered
    truth: dict[str, State]


def _attempt(random_: random.Random) -> str:
    return f"{random_.getrandbits(64):016x}"


Planted = Callable[[Fleet, str, Body, random.Random], State]


def _answer(made: Fleet, name: str, given: Body, random_: random.Random, **head: object) -> None:
    began = fleet.BEGAN + random_.random() * 5
    values = {"attempt": _attempt(random_), "started": began, "ended": began + random_.random() * 50, **head}
    made.found.add(fleet.document(name, given, **values), f"nodes/{name}")


def _missing(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    return State.FAIL


def _silent(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    level = random_.choice(("start", "passive", "probe", "quick", "writing"))
    made.found.beats[name] = Beat(
        "envkit.beat/1", "slurm-17.0", fleet.NONCE, name, _attempt(random_), fleet.BEGAN, fleet.BEGAN + 3, level
    )
    return State.FAIL


def _ends(ended: Ended) -> Planted:
    def plant(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
        _answer(made, name, Body(), random_, ended_as=ended, level="probe", detail="its last line")
        return State.FAIL

    return plant


def _bad(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    _answer(made, name, replace(given, found=(fleet.fault(),)), random_)
    return State.FAIL


def _open(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    _answer(made, name, replace(given, found=(Found("host-no-gpu", "unknown", "no answer"),)), random_)
    return State.UNKNOWN


def _warned(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    _answer(made, name, replace(given, found=(fleet.fault(severity="warning"),)), random_)
    return State.OK


def _damaged(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    made.found.reject(f"nodes/{name}", name, Refused("it is cut off", damaged=True))
    return State.UNKNOWN


def _foreign(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    _answer(made, name, given, random_, nonce="6" * 32)
    return State.FAIL


def _twice(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    for _ in range(2):
        _answer(made, name, given, random_)
    return State.UNKNOWN


def _flapping(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    """It passed and failed: what one process found is there."""
    _answer(made, name, given, random_)
    return _bad(made, name, given, random_)


def _clock(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    _answer(made, name, given, random_, clock_ahead_s=random_.choice((-1, 1)) * random_.uniform(31, 1e6))
    return State.FAIL


def _drifts(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    key = random_.choice(KEYS)
    _answer(made, name, fleet.prints(given, **{key: f"another {random_.randrange(3)}"}), random_)
    return State.FAIL


def _unread(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    _answer(made, name, fleet.prints(given, **{random_.choice(KEYS[:5]): None}), random_)
    return State.UNKNOWN


def _undelivered(made: Fleet, name: str, given: Body, random_: random.Random) -> State:
    _answer(made, name, given, random_, trouble="the disk is full")
    return State.UNKNOWN


FAULTS: tuple[Planted, ...] = (
    _missing, _silent, _ends(Ended.HUNG), _ends(Ended.DIED), _bad, _open, _warned, _damaged, _foreign, _twice,
    _flapping, _clock, _drifts, _unread, _undelivered,
)  # fmt: skip


def drawn(seed: int, nodes: int, share: float) -> Fleet:
    """A fleet of so many nodes in one to three classes, in which up to ``share`` of each class has a fault.

    With a share below a third more than half of those that answer are as they should be, so that each fault has one
    true answer.
    """
    random_ = random.Random(seed)
    hosts = tuple(f"n{number}" for number in range(1, nodes + 1))
    made = Fleet(Gathered(fleet.run(hosts)), {})
    classes = random_.sample(PRODUCTS, random_.randint(1, len(PRODUCTS)))
    mixed = list(hosts)
    random_.shuffle(mixed)
    for number, product in enumerate(classes):
        members = mixed[number :: len(classes)]
        faulty = set(members[: random_.randint(0, int(share * len(members)))])
        for name in members:
            if name in faulty:
                made.truth[name] = random_.choice(FAULTS)(made, name, healthy(product), random_)
            else:
                _answer(made, name, healthy(product), random_)
                made.truth[name] = State.OK
    return made


def tied(seed: int, nodes: int) -> Fleet:
    """A fleet of one class that is halved by one property: nobody knows which half is right."""
    random_ = random.Random(seed)
    hosts = tuple(f"n{number}" for number in range(1, 2 * (nodes // 2) + 1))
    made = Fleet(Gathered(fleet.run(hosts)), dict.fromkeys(hosts, State.UNKNOWN))
    half = set(random_.sample(hosts, len(hosts) // 2))
    key = random_.choice(KEYS)
    for name in hosts:
        given = healthy(PRODUCTS[0])
        _answer(made, name, fleet.prints(given, **{key: "another"}) if name in half else given, random_)
    return made
