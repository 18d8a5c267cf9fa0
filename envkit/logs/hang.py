"""The hang table: what each rank had done in its collectives when a group stood still, and who never came.

Read from what torch's watchdog writes (ProcessGroupNCCL.cpp) and from flight-recorder files (``flight``).
"""

from __future__ import annotations

from collections.abc import Iterable

from envkit.logs.records import Event, RankState, Traceback
from envkit.logs.story import Story
from envkit.records import dataclass, replace

_WAITS = ("c10d-watchdog-timeout", "c10d-watchdog-wrapped", "c10d-collective-timeout-state")
_STATES = ("c10d-watchdog-state", "c10d-dump-signal", "c10d-last-work", "flight-state")
_MOST_RANKS = 4096  # a larger world is not spelled out: a log that claims one is more likely wrong than right


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank's report that a collective did not end; None and "" where its line does not say."""

    event: Event
    rank: int | None
    group: str
    seq: int | None
    op: str
    numel_in: int | None
    numel_out: int | None
    timeout_ms: int | None

    @property
    def work(self) -> tuple[int | None, str, int | None, int | None]:
        """What is to be equal on all ranks of a group that wait for the same collective."""
        return (self.seq, self.op, self.numel_in, self.numel_out)


def waits(story: Story) -> tuple[Wait, ...]:
    """The watchdog's time-outs in the order of the story, each rank's first for each collective."""
    groups = _groups(story)
    found: dict[tuple[int | None, int | None, str], Wait] = {}
    for event in story.of(*_WAITS):
        rank = rank_of(event)
        seq = _int(event, "seq")
        sizes = (_int(event, "numel_in"), _int(event, "numel_out"))
        op, group = event.values.get("op") or "", groups.get((rank, seq), "")
        wait = Wait(event, rank, group, seq, op, *sizes, _int(event, "timeout"))
        key = (rank, seq, wait.op)
        if key not in found or (found[key].numel_in is None and wait.numel_in is not None):
            found[key] = wait
    whole = [wait for wait in found.values() if wait.seq is not None or wait.op]
    return tuple(whole or found.values())


def first_waits(story: Story) -> tuple[Wait, ...]:
    """Of each rank and group only the earliest collective that did not end: the later ones queue behind it."""
    best: dict[tuple[int | None, str], Wait] = {}
    for wait in waits(story):
        key = (wait.rank, wait.group)
        if key not in best or (wait.seq or 0) < (best[key].seq or 0):
            best[key] = wait
    return tuple(best.values())


def differing(found: Iterable[Wait]) -> tuple[Wait, ...]:
    """One wait for each different collective among the ranks of the first group whose ranks differ, else nothing.

    Two ranks differ by the number of the work, the operation or the sizes (the watchdog's SeqNum, OpType, NumelIn and
    NumelOut).  A value that a line does not give differs from nothing.
    """
    groups: dict[str, list[Wait]] = {}
    waits = tuple(found)
    named = {wait.group for wait in waits if wait.group}
    only = next(iter(named)) if len(named) == 1 else ""  # what gives no group is of it
    for wait in waits:
        groups.setdefault(wait.group or only, []).append(wait)
    for members in groups.values():
        different: list[Wait] = []
        for wait in members:
            others = [other for other in different if other.rank != wait.rank]
            if not different or (others and all(_differ(wait, other) for other in different)):
                different.append(wait)
        if len(different) > 1:
            return tuple(different)
    return ()


def world(story: Story) -> int | None:
    """How many ranks the job has, as the largest communicator or the launcher says it; None where no line does."""
    sizes = [int(value) for value in story.values("world") if value.isdigit()]
    return max(sizes) if sizes and 0 < max(sizes) <= _MOST_RANKS else None


def silent(story: Story) -> tuple[int, ...]:
    """The ranks that are known to be there and did not report that they waited, where others did."""
    reported = {rank for event in story.of(*_WAITS, *_STATES) if (rank := rank_of(event)) is not None}
    if not reported:
        return ()
    there = set(range(world(story) or 0)) | {rank for rank in story.ranks if rank < _MOST_RANKS}
    there |= {int(value) for value in story.values("rank") if value.isdigit() and int(value) < _MOST_RANKS}
    return tuple(sorted(there - reported))


def table(story: Story) -> tuple[RankState, ...]:
    """One row for each rank and group that the log tells of, and one for each silent rank; empty where nothing hung."""
    rows: dict[tuple[int, str], RankState] = {}
    for event in story.of(*_STATES):
        rank = rank_of(event)
        if rank is None:
            continue
        group = _group(event)
        known = rows.get((rank, group), RankState(rank, group))
        enqueued, completed = _int(event, "enqueued"), _int(event, "completed")
        rows[rank, group] = replace(
            known,
            enqueued=enqueued if enqueued is not None else known.enqueued,
            completed=completed if completed is not None else known.completed,
            operation=known.operation or event.values.get("op") or "",
            where=known.where or event.values.get("where") or "",
        )
    for wait in first_waits(story):
        if wait.rank is not None:
            size = f" of {wait.numel_in} elements" if wait.numel_in is not None else ""
            number = f", work {wait.seq}" if wait.seq is not None else ""
            known = rows.get((wait.rank, wait.group), RankState(wait.rank, wait.group))
            rows[wait.rank, wait.group] = replace(known, operation=f"{wait.op or 'a collective'}{size}{number}")
    if not rows:
        return ()
    places = _places(story)
    told = [replace(row, where=row.where or places.get(row.rank, "")) for row in rows.values()]
    absent = [RankState(rank, where=places.get(rank, ""), silent=True) for rank in silent(story)]
    return tuple(sorted(told + absent, key=lambda row: (row.group, row.rank)))


def rank_of(event: Event) -> int | None:
    """The rank that a line speaks for: its label is the rank in the job, its own words may be the rank in a group."""
    return event.line.rank if event.line.rank is not None else _int(event, "rank")


def _groups(story: Story) -> dict[tuple[int | None, int | None], str]:
    """The group of each rank's work, by number: only the second of the watchdog's two lines names it."""
    return {
        (rank_of(event), seq): _group(event)
        for event in story.of("c10d-watchdog-state")
        if (seq := _int(event, "seq")) is not None
    }


def _group(event: Event) -> str:
    return event.values.get("guid") or event.values.get("group") or ""


def _int(event: Event, name: str) -> int | None:
    text = event.values.get(name) or ""
    return int(text) if text.lstrip("-").isdigit() and len(text) < 19 else None


def _differ(one: Wait, other: Wait) -> bool:
    return any(a != b for a, b in zip(one.work, other.work, strict=True) if a not in (None, "") and b not in (None, ""))


def _places(story: Story) -> dict[int, str]:
    """Where each rank's first traceback stood: the innermost frame that is the user's own, else the innermost."""
    found: dict[int, str] = {}
    for trace in story.tracebacks:
        if trace.line.rank is not None and trace.frames:
            found.setdefault(trace.line.rank, _place(trace))
    return found


def _place(trace: Traceback) -> str:
    own = [frame for frame in trace.frames if "site-packages" not in frame.file and "dist-packages" not in frame.file]
    frame = (own or list(trace.frames))[-1]
    return f"{frame.file}:{frame.line} in {frame.function}"
