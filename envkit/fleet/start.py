"""Where a command follows the check: one decision for all nodes, made once, on which of them the job starts.

There is no leader that could be the bad node.  Whoever sees that all have answered, or that the time is over, judges
and writes the decision; the first one that is there counts for all.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from envkit.errors import Undecided
from envkit.fleet import folder, gather, hostlist, rounds
from envkit.fleet.documents import Hex, Launch, Name, Refused, Run, Text, belongs, read_as
from envkit.fleet.folder import GRACE_S, Place
from envkit.fleet.verdict import FleetVerdict, Rules, State, judge
from envkit.records import dataclass
from envkit.system import files

_DECISION = "start.json"
_LATE_S = 2.0  # between the end of the time of an eager node and that of another


@dataclass(frozen=True, slots=True)
class Start:
    """The decision: ``nodes`` are those on which the job starts, none where it does not; ``why`` is one sentence."""

    schema: Literal["envkit.start/1"]
    run: Launch
    nonce: Hex
    nodes: tuple[Name, ...]
    why: Text
    failed: tuple[Name, ...] = ()
    unknown: tuple[Name, ...] = ()

    @property
    def exit_code(self) -> int:
        """That of a node on which the job does not start: 0 where it starts on others."""
        return 0 if self.nodes else 1 if self.failed else 3


def chosen(verdict: FleetVerdict) -> Start:
    """The nodes on which the job starts: the first healthy ones in the order of the launch, as many as it needs."""
    run = verdict.run
    needed = len(run.hosts) - run.spares
    failed, unknown = verdict.named(State.FAIL), verdict.named(State.UNKNOWN)
    gone = set(verdict.left_out())
    ok = tuple(name for name in run.hosts if name not in gone)
    left_out = "; ".join(f"{one.node}: {one.sentence}" for one in verdict.nodes if one.state is not State.OK)
    if verdict.links is not None and verdict.links.crossings:
        shown = "; ".join(one.why for one in verdict.links.crossings)
        left_out = f"{left_out}; {shown}" if left_out else shown
    if len(ok) >= needed:
        why = f"{len(ok)} of {len(run.hosts)} nodes are ok and {needed} are needed"
        return Start("envkit.start/1", run.run, run.nonce, ok[:needed], _text(why, left_out), failed, unknown)
    why = f"{len(ok)} of {len(run.hosts)} nodes are ok, and {needed} are needed"
    return Start("envkit.start/1", run.run, run.nonce, (), _text(why, left_out), failed, unknown)


def _text(why: str, left_out: str) -> str:
    return f"{why}; {left_out}"[:4000] if left_out else why


def decision(place: Place, node: str, started: float, rules: Rules) -> Start:
    """Waits for the decision of this run, or makes it; ``GRACE_S`` after this node's budget at the latest, which
    began at ``started`` (time.monotonic).

    Raises Undecided where the shared folder does not answer, or holds a decision that is none.
    """
    eager = place.run.hosts.index(node) < folder.EAGER
    tested = rounds.longest_s(place.run.trial_s) + GRACE_S if place.run.links else 0.0
    limit = started + place.run.budget_s + GRACE_S + tested + (0.0 if eager else _LATE_S)
    path = place.folder / _DECISION
    found: gather.Gathered | None = None

    def read() -> Start | None:
        return folder.in_time(lambda: _read(path, place.run), folder.WRITING_S)

    def attempt(over: bool) -> Start | None:
        nonlocal found
        if (made := read()) is not None or not (eager or over):
            return made
        found = folder.in_time(partial(_seen, place, found), folder.WRITING_S)
        if not over and (len(found.documents) != len(place.run.hosts) or _links_open(found)):
            return None
        _decide(path, found, over, rules)
        return read()

    return folder.awaited(place.folder, "the decision", eager, limit, attempt)


def _links_open(found: gather.Gathered) -> bool:
    return bool(found.run.links) and not found.record.ended


def _seen(place: Place, found: gather.Gathered | None) -> gather.Gathered:
    return gather.gather(place.folder, (), ()) if found is None else gather.again(found, place.folder)


def _decide(path: Path, found: gather.Gathered, over: bool, rules: Rules) -> None:
    # Once the time is over, a node that has only begun counts as silent.
    now = time.time() if not over else float("inf")
    folder.create(path, msgspec.json.encode(chosen(judge(found, now, rules))))


def recorded(place: Path, run: Run) -> Start | None:
    """The decision in a run's folder, None where nobody decided; raises Undecided for one of another run."""
    return _read(place / _DECISION, run)


def _read(path: Path, run: Run) -> Start | None:
    try:
        made = read_as(Start, files.content(path))
        belongs(run.run, run.nonce, made.run, made.nonce)
    except FileNotFoundError:
        return None
    except (OSError, Refused) as error:
        why = files.why(error) if isinstance(error, OSError) else error.why
        raise Undecided(f"{path} is no decision of this run: {why}", "give each launch a folder of its own") from error
    return made


def environment(start: Start, run: Run, node: str, local: int, here: int) -> dict[str, str]:
    """Variables for the job on a node of the decision: which nodes it has, and its place among them.

    With spares the launcher's own variables count nodes that are left out.  What torchrun takes in place of --nnodes,
    --node-rank and --master-addr (torch.distributed.argparse_util: PET_ and the option's name) is then set as well.
    With several processes a node, ``here`` of which this is number ``local``, ENVKIT_RANK counts those of all nodes.
    """
    rank = start.nodes.index(node)
    made = {
        "ENVKIT_NODES": str(len(start.nodes)),
        "ENVKIT_NODE_RANK": str(rank),
        "ENVKIT_NODELIST": hostlist.compressed(start.nodes),
        "ENVKIT_RANK": str(rank * here + local),
        "ENVKIT_WORLD_SIZE": str(len(start.nodes) * here),
    }
    if run.spares:
        made |= {"PET_NNODES": str(len(start.nodes)), "PET_NODE_RANK": str(rank)}
        if not start.nodes[0].isdigit():  # where nodes are numbers, their addresses are the launcher's matter
            made |= {"PET_MASTER_ADDR": start.nodes[0], "MASTER_ADDR": start.nodes[0]}
    return made


__all__ = ["GRACE_S", "Start", "chosen", "decision", "environment", "recorded"]
