"""Runs on many nodes as they lie in a folder: healthy answers, and the same with something changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import machines
import msgspec

from envkit.fleet import gather, verdict
from envkit.fleet.documents import Beat, Body, Document, Ended, Found, Head, Run, encoded
from envkit.fleet.fingerprint import fingerprint, hardware
from envkit.fleet.verdict import FleetVerdict, NodeVerdict, Rules

NONCE = "5" * 32
BEGAN = 1_800_000_000.0  # by the clocks of all nodes
BUDGET_S = 60.0
LATER = BEGAN + 3600.0  # when the run is over
HOSTS = tuple(f"n{number}" for number in range(1, 9))


def run(hosts: tuple[str, ...] = HOSTS, **changes: Any) -> Run:
    return replace(Run("envkit.run/1", "slurm-17.0", NONCE, hosts, BUDGET_S, BEGAN, "quick", "slurm"), **changes)


def body(changes: Mapping[str, Any] | None = None, machine: str = "h100", **more: Any) -> Body:
    """The body of a healthy machine with ``changes`` as in `machines`; ``more`` replaces fields of it."""
    observed = {"host": machines.changed(machines.plain(machine), changes or {})}
    made = Body((), ("host-gpu-lost", "host-no-gpu"), 3, hardware(observed), fingerprint(observed))
    return replace(made, **more)


def prints(given: Body, **values: str | None) -> Body:
    """The body with other values in its fingerprint."""
    return replace(given, fingerprint={**given.fingerprint, **values})


def fault(check: str = "host-gpu-lost", message: str = "GPU 3 is gone", severity: Any = "error") -> Found:
    return Found(check, "fail", findings=((severity, message, "reset it"),))


def document(node: str, given: Body | None = None, **changes: Any) -> Document:
    """The answer of ``node`` in `run`; ``changes`` are those of its head."""
    attempt = f"{HOSTS.index(node) if node in HOSTS else 15:016x}"
    head = Head(
        "envkit.node/1", "slurm-17.0", NONCE, node, attempt, Ended.FINISHED, BEGAN, BEGAN + 20, "quick", "0" * 64, node,
        clock_ahead_s=0.0,
    )  # fmt: skip
    return Document(replace(head, **changes), body() if given is None else given)


def beat(node: str, level: str = "probe", **changes: Any) -> Beat:
    made = Beat("envkit.beat/1", "slurm-17.0", NONCE, node, f"{HOSTS.index(node):016x}", BEGAN, BEGAN + 5, level)
    return replace(made, **changes)


def lay(place: Path, *documents: Document, run: Run | None = None, beats: tuple[Beat, ...] = ()) -> Path:
    """A run's folder with these documents in it."""
    for inner in ("nodes", "beats"):
        (place / inner).mkdir(parents=True, exist_ok=True)
    (place / "run.json").write_bytes(msgspec.json.encode(run or globals()["run"]()))
    for one in documents:
        (place / "nodes" / f"{one.head.node}.{one.head.attempt}.json").write_bytes(encoded(one))
    for each in beats:
        (place / "beats" / f"{each.node}.{each.attempt}.json").write_bytes(msgspec.json.encode(each))
    return place


def healthy(**others: Document | None) -> list[Document]:
    """The answers of eight equal nodes, where ``others`` has none of its own for a node, or None."""
    made = [others[name] if name in others else document(name) for name in HOSTS]
    return [one for one in made if one is not None]


def judged(place: Path, rules: Rules | None = None, now: float = LATER) -> FleetVerdict:
    return verdict.judge(gather.gather(place, (), ()), now, rules)


def node_of(given: FleetVerdict, name: str) -> NodeVerdict:
    return next(one for one in given.nodes if one.node == name)
