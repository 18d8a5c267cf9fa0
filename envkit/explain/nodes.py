"""On which node of a run the rank was with which a failure began, and what the run knows of that node.

A log names ranks, a run names nodes.  Ranks fill the nodes one by one, in the order in which the job started on them,
as srun, torchrun and mpirun number them by default; how many a node has follows from the number of all ranks in the
logs, or from the GPUs of the nodes' own documents if the logs have one rank for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from envkit.logs import hang
from envkit.logs.records import Explanation, Role
from envkit.logs.story import Story
from envkit.records import dataclass

_NAMED = 3  # other nodes that are not ok


@dataclass(frozen=True, slots=True)
class RanNode:
    """A node of a run: its name, the name that its machine or Pod has for itself, the machine behind a Pod.

    ``state`` is "ok", "fail" or "unknown", ``sentence`` what is wrong or open, ``gpus`` its number of GPUs, None where
    its document does not say.
    """

    name: str
    host: str
    machine: str
    state: str
    sentence: str
    gpus: int | None

    @property
    def shown(self) -> str:
        """Its name, with that of the machine where it is another one."""
        return f"{self.name} ({self.machine})" if self.machine not in ("", self.name) else self.name


@dataclass(frozen=True, slots=True)
class Ran:
    """A run: ``nodes`` are those on which its command started, in the order of their ranks; ``others`` its other nodes;
    ``why`` says why it started nowhere, where it did not."""

    name: str
    nodes: tuple[RanNode, ...]
    others: tuple[RanNode, ...] = ()
    why: str = ""


def placed(found: Explanation, told: Story, ran: Ran) -> Explanation:
    """The explanation with the node of the rank where the failure began, and with nodes that are not ok."""
    said = [ran.why] if ran.why else []
    accused = _accused(found, told, ran)
    for node, ranks in accused.items():
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}" if ranks else "this"
        said.append(f"{who} ran on {node.shown}, {_of_check(node)}")
    if not accused and (rank := _ranks(found)):
        said.append(f"the run does not say on which node rank {rank[0]} was")
    bad = [node for node in (*ran.nodes, *ran.others) if node.state != "ok" and node not in accused]
    said += [f"{node.shown} {_of_check(node)}" for node in bad[:_NAMED]]
    if len(bad) > _NAMED:
        said.append(f"{len(bad) - _NAMED} more nodes did not pass")
    if not said:
        return found
    steps = tuple(dict.fromkeys((*found.next, f"envkit judge {ran.name}")))
    return replace(found, because=f"{found.because}; {'; '.join(said)}", next=steps)


def _of_check(node: RanNode) -> str:
    if node.state == "ok":
        return "which passed the check before the job"
    return f"{'failed' if node.state == 'fail' else 'is open in'} the check before the job: {node.sentence}"


def _ranks(found: Explanation) -> list[int]:
    """The ranks with which it began: those that never came to where the others waited, else those of the root lines."""
    silent = sorted({state.rank for state in found.ranks if state.silent})
    roots = [mark.line for mark in found.evidence if mark.role is Role.ROOT] or [mark.line for mark in found.evidence]
    return silent or list(dict.fromkeys(line.rank for line in roots[:1] if line.rank is not None))


def _accused(found: Explanation, told: Story, ran: Ran) -> dict[RanNode, list[int]]:
    """The nodes with which it began, and their ranks, as far as lines name ranks."""
    ranks = _ranks(found)
    lines = [mark.line for mark in found.evidence[:1]]
    by_name = {name: node for node in ran.nodes for name in (node.machine, node.host, node.name) if name}
    made: dict[RanNode, list[int]] = {}
    if not any(state.silent for state in found.ranks):
        for line in lines:  # a line that names its machine needs no counting
            if node := by_name.get(line.host) or by_name.get(line.host.partition(".")[0]):
                return {node: ranks}
    each = _ranks_of_a_node(told, ran.nodes)
    for rank in ranks:
        if each and rank // each < len(ran.nodes):
            made.setdefault(ran.nodes[rank // each], []).append(rank)
    return made


def _ranks_of_a_node(told: Story, nodes: Sequence[RanNode]) -> int | None:
    """How many ranks a node has, None where that is not known: to guess would accuse the wrong node."""
    if not nodes:
        return None
    world = hang.world(told)
    if world is None:
        gpus = {node.gpus for node in nodes}
        (only,) = gpus if len(gpus) == 1 else (None,)
        seen = {line.rank for file in told.files for line in (*file.head, *file.tail) if line.rank is not None}
        highest = max(seen.union(told.ranks), default=-1)  # of one rank a GPU, where the last one has a log too
        return only if only and highest + 1 == only * len(nodes) else None
    return world // len(nodes) if world % len(nodes) == 0 else None
