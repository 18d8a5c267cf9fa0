"""A trace of torch's profiler, as it exports it for Chrome, reduced to what the time of a few steps went to.

The kinds of events are Kineto's (libkineto/src/output_json.cpp): "cpu_op", "user_annotation", "cuda_runtime",
"cuda_driver", "kernel", "gpu_memcpy", "gpu_memset".  Times there are microseconds; here they are seconds.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from envkit.records import dataclass

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")
_SYNC = re.compile(r"Synchronize$|^cudaMemcpy$|^cuMemcpyDtoH_v2$|^hipMemcpyWithStream$")
_NCCL = re.compile(r"^nccl(?:Dev)?Kernel|^rccl")
_LEAST_GAP_S = 10e-6  # between two kernels: what a launch costs the device itself
_OWN_WORK_S = 1e-3  # outside of torch between two of its operations: what Python itself takes there is much less
_SHORT_S = 60e-6  # of an operation on the CPU: most of it is what torch does around the computation
_MOST_SUMS = 40
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: ``lane`` is its thread or its stream."""

    kind: str
    name: str
    start: float
    end: float
    lane: str
    args: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Product:
    """Matrix products of one number type: floating point operations, seconds of their kernels, and how many."""

    dtype: str
    operations: float
    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Reduced:
    """What a trace holds: seconds of the whole, of the GPU at work, of its gaps by why it had nothing to do.

    ``gaps`` are "loader", "sync" (the CPU had waited for the GPU and had nothing queued), "host" (the CPU launches too
    slowly); ``copies`` are seconds of copies from or to pageable memory during which no kernel ran, with the bytes of
    all of them and of those that came back from the GPU.
    ``short`` is the share of short operations in the main thread's, ``short_count`` their number, ``calls`` counts all,
    ``kernels`` are (name, seconds, count), ``joined`` are the collectives' seconds, ``joins`` those of each, in order.
    """

    seconds: float
    gpu: bool
    busy: float
    gaps: Mapping[str, float]
    syncs: int
    copies: float
    copied: int
    fetched: int
    short: float
    short_count: int
    items: int
    calls: Mapping[str, int]
    operations: tuple[tuple[str, float, int], ...]
    kernels: tuple[tuple[str, float, int], ...]
    products: tuple[Product, ...]
    joined: float
    joins: tuple[float, ...]
    events: tuple[Event, ...]


def read(plain: Mapping[str, Any], pid: int) -> Reduced:
    """A trace reduced; raises ValueError where the document is none."""
    raw = plain.get("traceEvents")
    if not isinstance(raw, list):
        raise ValueError("it is no trace: it has no traceEvents")
    events = sorted(_events(raw), key=lambda each: each.start)
    if not events:
        raise ValueError("the trace holds no events")
    return _reduced(events, str(pid))


def _events(raw: Iterable[Any]) -> Iterable[Event]:
    for each in raw:
        if not isinstance(each, dict) or each.get("ph") != "X" or "cat" not in each:
            continue
        try:
            start, took = float(each["ts"]) / 1e6, float(each.get("dur", 0.0)) / 1e6
        except (KeyError, TypeError, ValueError):
            continue
        args = each.get("args")
        kind = str(each["cat"])
        if math.isfinite(start) and took >= 0 and kind in (*_ON_GPU, *_CALLS, "cpu_op", "user_annotation"):
            args = args if isinstance(args, dict) else {}
            lane = str(args.get("stream", each.get("tid"))) if kind in _ON_GPU else str(each.get("tid"))
            yield Event(kind, str(each.get("name", "")), start, start + took, lane, args)


def _reduced(events: Sequence[Event], main: str) -> Reduced:
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_kind[event.kind].append(event)
    on_gpu = sorted((event for kind in _ON_GPU for event in by_kind[kind]), key=lambda each: each.start)
    work = [event for event in on_gpu if not _NCCL.match(event.name)]
    nccl = [event for event in on_gpu if _NCCL.match(event.name)]
    calls = [event for kind in _CALLS for event in by_kind[kind]]
    syncs = [event for event in calls if _SYNC.search(event.name)]
    loads = [event for event in by_kind["user_annotation"] if event.name.startswith("enumerate(DataLoader)")]
    gloo = [event for event in by_kind["user_annotation"] if event.name.startswith("gloo:")]
    start, end = events[0].start, max(event.end for event in events)
    ops = [event for event in by_kind["cpu_op"] if event.lane == main]
    tops = _outermost(ops)
    pageable = [event for event in by_kind["gpu_memcpy"] if "Pageable" in event.name]
    back = [event for event in pageable if "DtoH" in event.name]
    kernels = merged((event.start, event.end) for event in by_kind["kernel"])
    copies = total(merged((event.start, event.end) for event in pageable)) - overlap(
        merged((event.start, event.end) for event in pageable), kernels
    )
    short, count = _short(tops)
    joined = nccl or gloo
    return Reduced(
        seconds=end - start,
        gpu=bool(on_gpu),
        busy=total(merged((event.start, event.end) for event in work)),
        gaps=_gaps(on_gpu, syncs, loads, [*ops, *calls], start, end) if on_gpu else {},
        syncs=len(syncs),
        copies=copies,
        copied=_bytes(pageable),
        fetched=_bytes(back),
        short=short,
        short_count=count,
        items=sum(event.name == "aten::_local_scalar_dense" for event in by_kind["cpu_op"]),
        calls={"operations": len(tops), "kernels": len(by_kind["kernel"])},
        operations=_sums(tops),
        kernels=_sums(by_kind["kernel"]),
        products=_products(by_kind["cpu_op"], by_kind["kernel"]),
        joined=total(merged((event.start, event.end) for event in joined)),
        joins=tuple(event.seconds for event in sorted(joined, key=lambda each: each.start)),
        events=tuple(_picture(events, tops, main)),
    )


def _bytes(copies: Iterable[Event]) -> int:
    return sum(int(event.args.get("bytes", 0) or 0) for event in copies)


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of spans of time, in order."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def total(spans: Sequence[tuple[float, float]]) -> float:
    """The seconds of spans that do not overlap."""
    return sum(end - start for start, end in spans)


def overlap(some: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> float:
    """The seconds that two unions have in common."""
    at = 0
    common = 0.0
    for start, end in some:
        while at < len(others) and others[at][1] <= start:
            at += 1
        number = at
        while number < len(others) and others[number][0] < end:
            common += min(end, others[number][1]) - max(start, others[number][0])
            number += 1
    return common


def _gaps(
    on_gpu: Sequence[Event],
    syncs: Sequence[Event],
    loads: Sequence[Event],
    torch: Sequence[Event],
    start: float,
    end: float,
) -> dict[str, float]:
    """The seconds without work on the GPU, by what the CPU did at the time.

    A part in which a batch was waited for is the loader's.  The rest of a gap that begins while the CPU waits for the
    GPU is of that wait: the queue was empty when it returned; but not where the CPU then works for long outside of
    ``torch``, its operations and calls.  What remains is the CPU's own work."""
    loading = merged((event.start, event.end) for event in loads)
    theirs = merged((event.start, event.end) for event in (*torch, *loads))
    waits = sorted((event.start, event.end) for event in syncs)
    gaps: dict[str, float] = {"loader": 0.0, "sync": 0.0, "host": 0.0}
    before = start
    at = 0
    for first, last in [*merged((event.start, event.end) for event in on_gpu), (end, end)]:
        if first - before > _LEAST_GAP_S:
            of_loader = overlap([(before, first)], loading)
            gaps["loader"] += of_loader
            while at < len(waits) and waits[at][1] < before - _LEAST_GAP_S:
                at += 1
            waited = at < len(waits) and waits[at][0] <= before + _LEAST_GAP_S
            rest = first - before - of_loader
            own = min(rest, _apart(theirs, before, first)) if waited else rest
            gaps["host"] += own
            gaps["sync"] += rest - own
        before = last
    return gaps


def _apart(spans: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """The seconds between two times that lie in none of some spans, long stretches alone."""
    at = bisect_left(spans, start, key=lambda each: each[1])
    found = 0.0
    while start < end:
        begin, over = spans[at] if at < len(spans) else (end, end)
        if min(begin, end) - start >= _OWN_WORK_S:
            found += min(begin, end) - start
        start, at = max(start, over), at + 1
    return found


def _outermost(ops: Sequence[Event]) -> list[Event]:
    """The operations of one thread that lie in no other."""
    found: list[Event] = []
    end = -math.inf
    for event in ops:
        if event.start >= end:
            found.append(event)
            end = event.end
    return found


def _short(tops: Sequence[Event]) -> tuple[float, int]:
    """The share of short operations in the time of all, with what lies between them, and how many they are.

    Each operation counts with the median of its name, so that a few which lost the processor to others weigh nothing.
    """
    took: dict[str, list[float]] = defaultdict(list)
    apart: dict[str, list[float]] = defaultdict(list)
    for event, following in pairwise(tops):
        took[event.name].append(event.seconds)
        apart[event.name].append(max(0.0, following.start - event.end))
    short, whole, count = 0.0, 0.0, 0
    for name, each in took.items():
        usual = median(each)
        seconds = len(each) * (usual + min(median(apart[name]), _SHORT_S))
        whole += seconds
        if usual < _SHORT_S:
            short, count = short + seconds, count + len(each)
    return short / whole if whole else 0.0, count


def _sums(events: Iterable[Event]) -> tuple[tuple[str, float, int], ...]:
    seconds: dict[str, float] = defaultdict(float)
    count: Counter[str] = Counter()
    for event in events:
        seconds[event.name] += event.seconds
        count[event.name] += 1
    most = sorted(seconds.items(), key=lambda each: -each[1])[:_MOST_SUMS]
    return tuple((name, took, count[name]) for name, took in most)


def _products(ops: Sequence[Event], kernels: Sequence[Event]) -> tuple[Product, ...]:
    """Matrix products by number type: the operations from their recorded shapes, the seconds from their kernels."""
    took: dict[Any, float] = defaultdict(float)
    for kernel in kernels:
        took[kernel.args.get("External id")] += kernel.seconds
    found: dict[str, list[float]] = {}
    for op in ops:
        work = _work(op) if op.name in _PRODUCTS else None
        if work is None:
            continue
        dtype = str((op.args.get("Input type") or [""])[-1 if op.name == "aten::mm" else 1])
        seconds = took.get(op.args.get("External id"), 0.0)
        row = found.setdefault(dtype, [0.0, 0.0, 0])
        row[0], row[1], row[2] = row[0] + work, row[1] + seconds, row[2] + 1
    return tuple(Product(dtype, row[0], row[1], int(row[2])) for dtype, row in found.items())


def _work(op: Event) -> float | None:
    """Two floating point operations for each of m x n x k, by the two matrices that an operation multiplies."""
    shapes = [each for each in op.args.get("Input Dims") or () if isinstance(each, list) and len(each) in (2, 3)]
    if op.name in ("aten::addmm", "aten::baddbmm"):
        shapes = shapes[-2:]
    if len(shapes) < 2 or not all(isinstance(size, int) for shape in shapes[:2] for size in shape):
        return None
    return 2.0 * float(math.prod(shapes[0])) * float(shapes[1][-1])


def _picture(events: Sequence[Event], tops: Sequence[Event], main: str) -> Iterable[Event]:
    """The events that a picture shows: the outermost of the main thread, ranges, calls that wait, all of the GPU."""
    yield from tops
    for event in events:
        wait = event.kind in _CALLS and _SYNC.search(event.name)
        if event.kind in _ON_GPU or event.kind == "user_annotation" or wait:
            yield event
