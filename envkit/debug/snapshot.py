"""A snapshot of torch's allocator, as ``torch.cuda.memory._snapshot`` gives it and torch pickles it, read and counted.

A snapshot holds dicts, lists, tuples, text and numbers alone, so its pickle needs no class: one that asks for any is
refused.  torch, torch/cuda/memory.py (the shape of a snapshot) and torch/csrc/cuda/memory_snapshot.cpp.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envkit.debug import stacks
from envkit.debug.records import PythonFrame
from envkit.records import dataclass

MOST_BYTES = 256 << 20  # of a pickle
_LARGE = 1 << 20  # bytes above which the allocator takes a block from its pool of large ones (kSmallSize)
# what a pickle that is cut off or made up makes of Python's own types
_BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError,
    RecursionError, struct.error,
)  # fmt: skip
_BACKWARD = PythonFrame("", 0, "the backward pass")


@dataclass(frozen=True, slots=True)
class Block:
    """Memory that a tensor has, or had last: bytes, the place where it was allocated (the innermost frame first)."""

    address: int
    size: int
    frames: tuple[PythonFrame, ...]

    @property
    def own(self) -> PythonFrame:
        """The program's own line that allocated it; autograd's threads have no Python, and what they allocate is of the
        backward pass."""
        if not self.frames:
            return _BACKWARD
        return next(filter(stacks.is_own, self.frames), self.frames[0])


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece that torch took from the driver: its bytes, and the sizes of what lies in it unused."""

    size: int
    large: bool
    pool: tuple[int, int]
    unused: tuple[int, ...]
    expandable: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the allocator held on one device: the blocks of tensors, and the segments around them.

    ``peak`` are the blocks that were alive together when most bytes were, as far back as the history goes."""

    live: tuple[Block, ...]
    segments: tuple[Segment, ...]
    peak: tuple[Block, ...]

    @property
    def allocated(self) -> int:
        """Bytes of tensors."""
        return sum(block.size for block in self.live)

    @property
    def reserved(self) -> int:
        """Bytes taken from the driver."""
        return sum(segment.size for segment in self.segments)

    def unused(self, asked: int) -> tuple[int, int, int]:
        """Of the pool that a tensor of ``asked`` bytes comes from: unused bytes, in how many pieces, the largest."""
        pieces = [
            size
            for segment in self.segments
            if segment.large == (asked > _LARGE) and segment.pool == (0, 0)
            for size in segment.unused
        ]
        return sum(pieces), len(pieces), max(pieces, default=0)


class _Plain(pickle.Unpickler):
    """Makes no object but Python's plain ones."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuses."""
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """Refuses."""
        raise pickle.UnpicklingError("it asks for an object from elsewhere")


def unpickled(data: bytes) -> dict[str, Any]:
    """The dict of a snapshot; raises ValueError with the reason where the bytes are none, or ask for a class."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has {len(data)} bytes")
    try:
        plain = _Plain(io.BytesIO(data)).load()
    except _BROKEN as error:
        raise ValueError(f"it is no snapshot: {type(error).__name__}: {error}") from error
    if not isinstance(plain, dict) or not isinstance(plain.get("segments"), list):
        raise ValueError("it is no snapshot: it has no segments")
    return plain


def read(plain: Mapping[str, Any], device: int) -> Snapshot:
    """What a snapshot's dict says of one device; raises ValueError where its shape is another."""
    try:
        return _read(plain, device)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"it is no snapshot: {type(error).__name__}: {error}") from error


def _read(plain: Mapping[str, Any], device: int) -> Snapshot:
    names = _Frames()
    live, segments = [], []
    for raw in plain["segments"]:
        if int(raw["device"]) != device:
            continue
        unused = []
        for block in raw["blocks"]:
            if block["state"] == "active_allocated":
                live.append(Block(int(block["address"]), int(block["size"]), names.all(block.get("frames") or ())))
            elif block["state"] == "inactive":
                unused.append(int(block["size"]))
        pool = tuple(map(int, raw.get("segment_pool_id") or (0, 0)))
        large = raw.get("segment_type") == "large"
        expandable = bool(raw.get("is_expandable"))
        segments.append(Segment(int(raw["total_size"]), large, (pool[0], pool[1]), tuple(unused), expandable))
    traces = plain.get("device_traces") or []
    events = traces[device] if device < len(traces) else []
    return Snapshot(tuple(live), tuple(segments), _peak(live, events, names))


class _Frames:
    """Frames of a pickle, which holds each dict once however many stacks it is in."""

    def __init__(self) -> None:
        self.known: dict[int, PythonFrame] = {}

    def all(self, raw: Sequence[Mapping[str, Any]]) -> tuple[PythonFrame, ...]:
        """The frames of one stack, the innermost first."""
        return tuple(self.one(each) for each in raw)

    def one(self, raw: Mapping[str, Any]) -> PythonFrame:
        """One frame."""
        found = self.known.get(id(raw))
        if found is None:
            found = PythonFrame(str(raw["filename"]), int(raw["line"]), str(raw["name"]))
            self.known[id(raw)] = found
        return found


def _peak(live: Sequence[Block], events: Sequence[Mapping[str, Any]], names: _Frames) -> tuple[Block, ...]:
    """The blocks that were alive at the moment with the most bytes: the history is undone from its end."""
    alive = {block.address: block.size for block in live}
    total = most = sum(alive.values())
    at = len(events)
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        if event["action"] == "alloc":
            total -= alive.pop(int(event["addr"]), 0)
        elif event["action"] in ("free_completed", "free"):
            alive[int(event["addr"])] = int(event["size"])
            total += int(event["size"])
        if total > most:
            most, at = total, number
    if at == len(events):
        return tuple(live)
    return tuple(_alive_at(live, events, names, at))


def _alive_at(live: Sequence[Block], events: Sequence[Mapping[str, Any]], names: _Frames, at: int) -> Iterator[Block]:
    """The blocks that were alive before the event number ``at``."""
    alive = {block.address: block for block in live}
    for event in reversed(events[at:]):
        address = int(event.get("addr", 0))  # "oom" has none
        if event["action"] == "alloc":
            alive.pop(address, None)
        elif event["action"] in ("free_completed", "free"):
            alive[address] = Block(address, int(event["size"]), ())
    # A free has the stack of its own, if any: where its block was allocated is told by the allocation before it.
    made = {int(event["addr"]): event for event in events[:at] if event["action"] == "alloc"}
    for address, block in alive.items():
        event = made.get(address) if not block.frames else None
        yield block if event is None else Block(address, block.size, names.all(event.get("frames") or ()))


def by_line(blocks: Sequence[Block]) -> list[tuple[PythonFrame, int, int]]:
    """The program's own lines by the bytes they allocated: line, bytes and how many blocks, the most bytes first."""
    size: Counter[PythonFrame] = Counter()
    count: Counter[PythonFrame] = Counter()
    for block in blocks:
        size[block.own] += block.size
        count[block.own] += 1
    return [(frame, size[frame], count[frame]) for frame, _ in size.most_common()]
