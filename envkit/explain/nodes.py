"""On which node of a run the rank was with which a failure began, and what the run knows of that node.

A log names ranks, a run names nodes.  Ranks fill the nodes one by one, in the order in which the job started on them,
as srun, torchrun and mpirun number them by default; how many a node has follows from the number of all ranks in the
logs, or from the GPUs of the nodes' own documents if the logs have one rank for each of them.  The number that `srun
--label` puts before a line counts the tasks of all nodes of the step, spares as well; srun itself says of tasks that
ended with an error on which node they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from envkit.logs import hang
from envkit.logs.records import Explanation, Line, Role
from envkit.logs.story import Story
from envkit.records import dataclass

_NAMED = 3  # other nodes that are not ok
_LABEL = re.compile(r"\s{0,9}(\d{1,5}): ")  # of srun --label
_MOST_TASKS = 100_000


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
    ``why`` says why it started nowhere, where it did not; ``step`` are all nodes in the order of srun's tasks, none
    where another launcher started them."""

    name: str
    nodes: tuple[RanNode, ...]
    others: tuple[RanNode, ...] = ()
    why: str = ""
    step: tuple[RanNode, ...] = ()


def placed(found: Explanation, told: Story, ran: Ran) -> Explanation:
    """The explanation with the node of the rank where the failure began, and with nodes that are not ok."""
    said = [ran.why] if ran.why else []
    accused = _accused(found, told, ran)
    word = "task" if _is_labelled(found) else "rank"
    for node, ranks in accused.items():
        shown = ", ".join(map(str, ranks))
        who = f"{word} {shown}" if len(ranks) == 1 else f"{word}s {shown}" if ranks else "this"
        said.append(f"{who} ran on {node.shown}, {_of_check(node)}")
    if not accused and (rank := _ranks(found)):
        said.append(f"the run does not say on which node {word} {rank[0]} was")
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
    ended, only = _ended_tasks(told, by_name)
    if not ranks and only is not None:
        return {only: []}
    labelled = _is_labelled(found)
    for rank in ranks:
        if labelled:
            node = ended.get(rank) or _of_task(rank, told, ran, each)
        else:
            node = ran.nodes[rank // each] if each and rank // each < len(ran.nodes) else None
        if node in ran.nodes:
            made.setdefault(node, []).append(rank)
    return made


def _is_labelled(found: Explanation) -> bool:
    """Whether the line where it began has the number of its task before it, as `srun --label` writes it."""
    return any(mark.role is Role.ROOT and _label(mark.line) is not None for mark in found.evidence)


def _label(line: Line) -> int | None:
    found = _LABEL.match(line.raw)
    return line.rank if found and line.rank == int(found[1]) else None


def _ended_tasks(told: Story, by_name: Mapping[str, RanNode]) -> tuple[dict[int, RanNode], RanNode | None]:
    """The nodes of tasks that ended with an error, by what srun says of each node alone; and the node where that is one
    for all of them."""
    tasks: dict[int, RanNode] = {}
    events = told.of("srun-exit", "srun-exit-bare")
    for event in events:
        if node := by_name.get(event.values.get("device", "")):
            tasks.update(dict.fromkeys(_numbers(event.values.get("ranks", "")), node))
    nodes = {by_name.get(event.values.get("device", "")) for event in events}
    return tasks, nodes.pop() if len(nodes) == 1 else None


def _numbers(text: str) -> Iterator[int]:
    """The numbers of a list such as `2-4,7`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first), min(int(last or first) + 1, _MOST_TASKS))


def _of_task(task: int, told: Story, ran: Ran, each: int | None) -> RanNode | None:
    """The node of a task by its number among those of the step; None where it is not known how many a node has: below
    torchrun, which has many ranks, it is one."""
    many = 1 if each == 1 else each if each and any(rank >= len(ran.step) for rank in told.ranks) else None
    return ran.step[task // many] if many and task // many < len(ran.step) else None


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
