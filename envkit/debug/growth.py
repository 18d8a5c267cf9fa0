"""Whether memory grows from step to step, whatever the steps are: pure functions of what was noted of it."""

from __future__ import annotations

from collections.abc import Sequence

from envkit.debug import snapshot
from envkit.debug.memory_records import Growth, Holder, HostGrowth, Look, Process

_LEAST_STEPS = 4  # between the first and the last of three looks that show a growth
_LEVELS_OFF = 0.5  # growth a step that falls below this share of what it was levels off, as a cache that fills does
_LEAST_NOTES = 12  # of the bytes, below which their course says nothing
_LEAST_GPU = 2 << 20  # bytes that the allocator's own rounding does not bring about
_LEAST_HOST = 32 << 20  # bytes that arenas, caches of libraries and envkit's own records do not bring about
_OF_HOLDER = 0.3  # of what the CPU's memory gained, in the variable that is named for it


def was_watched(process: Process) -> bool:
    """Whether three snapshots lie far enough apart to tell growth from none."""
    shots = [look for look in process.looks if look.shot is not None]
    return len(shots) >= 3 and shots[-1].step - shots[-3].step >= _LEAST_STEPS


def grown(process: Process) -> Growth | None:
    """What grows from step to step, by three looks at the ends of steps; None where nothing does.

    A line grows that has more bytes at each look, and not by less and less: a cache that fills levels off, the state
    of an optimizer comes in one step.
    """
    if not was_watched(process):
        return None
    early, middle, late = [look for look in process.looks if look.shot is not None][-3:]
    if not early.shot or not middle.shot or not late.shot:
        return None
    lines = [
        {frame: (count, size_) for frame, size_, count in snapshot.by_line(x.shot.live)}
        for x in (early, middle, late)
        if x.shot
    ]
    first, second = middle.step - early.step, late.step - middle.step
    growing = []
    for frame, (count, bytes_) in lines[2].items():
        before, between = lines[0].get(frame, (0, 0))[1], lines[1].get(frame, (0, 0))[1]
        slow, late_rate = (between - before) / max(first, 1), (bytes_ - between) / max(second, 1)
        if slow > 0 and late_rate >= _LEVELS_OFF * slow:
            growing.append((frame, bytes_ - before, bytes_, count, late_rate))
    more = late.shot.allocated - early.shot.allocated
    told = sum(each[1] for each in growing)
    # What only changes places, as with batches of other lengths, grows in some lines and shrinks in others.
    if not growing or more < 0.5 * told or _falls(process, early.step):
        return None
    growing.sort(key=lambda each: -each[1])
    rate = sum(each[4] for each in growing)
    return Growth(
        rate,
        late.step,
        sum(each[2] for each in growing),
        tuple((frame, bytes_, count) for frame, _, bytes_, count, _ in growing),
        _keeper(early, middle, late, told),
    )


def crept(process: Process) -> Growth | None:
    """What grows by jumps, which three looks may miss: the lines with more tensors in the last snapshot than in an
    early one, where the bytes grew over the whole time."""
    looks = [look for look in process.looks if look.shot is not None]
    if len(looks) < 2 or not gained(process):
        return None
    early, late = looks[1 if len(looks) > 2 else 0], looks[-1]
    before = {frame: (size_, count) for frame, size_, count in snapshot.by_line(early.shot.live if early.shot else ())}
    growing = []
    for frame, bytes_, count in snapshot.by_line(late.shot.live if late.shot else ()):
        was, many = before.get(frame, (0, 0))
        if bytes_ > was and count > many:
            growing.append((bytes_ - was, frame, bytes_, count))
    more = late.usage.allocated - early.usage.allocated
    told = sum(each[0] for each in growing)
    steps = late.step - early.step
    if not growing or steps <= 0 or not 0.5 * told <= more <= 2 * told:
        return None
    growing.sort(key=lambda each: -each[0])
    held = sum(each[2] for each in growing)
    lines = tuple((frame, bytes_, count) for _, frame, bytes_, count in growing)
    return Growth(told / steps, late.step, held, lines, _keeper(early, None, late, told))


def gained(process: Process) -> int:
    """The bytes of the GPU by which the run went up and did not come down again; 0 where it did not."""
    clock = [allocated for _, allocated, _ in process.clock]
    series = [allocated for _, allocated, _ in process.series]
    return max(_gain(clock, _LEAST_GPU), _gain(series, _LEAST_GPU))


def _gain(values: Sequence[int], least: int) -> int:
    """By how much values rise over three stretches, the warm-up left out, by the lowest of each, what comes and goes
    being above that; 0 where they do not, or where they rise less and less."""
    if len(values) < _LEAST_NOTES:
        return 0
    values = values[len(values) // 4 :]
    size = len(values) // 3
    first, second, third = (min(values[at : at + size]) for at in (0, size, len(values) - size))
    rises = first < second < third and third - second >= _LEVELS_OFF * (second - first)
    return third - first if rises and third - first >= least else 0


def host(process: Process) -> HostGrowth | None:
    """What grows in the CPU's memory, with the variable that keeps most of it; None where nothing is sure to."""
    looks = [look for look in process.looks if look.host]
    if len(looks) < 3 or looks[-1].step - looks[-3].step < _LEAST_STEPS:
        return None
    early, middle, late = looks[-3:]
    slow = (middle.host - early.host) / max(middle.step - early.step, 1)
    rate = (late.host - middle.host) / max(late.step - middle.step, 1)
    more = late.host - early.host
    if slow <= 0 or rate < _LEVELS_OFF * slow or more < _LEAST_HOST:
        return None
    then = {(each.file, each.path): each for each in early.holders}
    between = {(each.file, each.path): each for each in middle.holders}
    grows, graphs = [], []
    for now in late.holders:
        was, half = then.get((now.file, now.path)), between.get((now.file, now.path))
        if was is None or half is None:
            continue
        if was.host < half.host < now.host and now.host - was.host >= _OF_HOLDER * more:
            grows.append((now.host - was.host, now))
        if now.graphs and was.nodes < half.nodes < now.nodes:
            graphs.append((now.nodes - was.nodes, now))
    steps = late.step - early.step
    if grows:
        gain, holder = max(grows, key=lambda each: each[0])
        return HostGrowth(gain / steps, late.step, late.host, holder)
    # What the nodes of a graph keep belongs to no variable; on a GPU it is the GPU's memory.
    if graphs and not process.on_gpu:
        return HostGrowth(more / steps, late.step, late.host, max(graphs, key=lambda each: each[0])[1], graph=True)
    return None


def host_gained(process: Process) -> int:
    """The bytes of the CPU's memory by which the run went up and did not come down again; 0 where it did not."""
    return _gain([resident for _, _, resident in process.clock], 8 * _LEAST_HOST)


def _falls(process: Process, since: int) -> bool:
    """Whether the bytes at the ends of steps fall back below half of what they had gained: then they do not stay."""
    values = [allocated for step, allocated, _ in process.series if step >= since]
    if len(values) < 3:
        return False
    most, base = max(values), values[0]
    return most > base and values[-1] < base + (most - base) / 2


def _keeper(early: Look, middle: Look | None, late: Look, told: int) -> Holder | None:
    """The variable that gets more at each look: tensors, or nodes of graphs; that which has most of the bytes, or else
    most of the graphs."""
    then, between, now_ = (
        {(each.file, each.path): each for each in look.holders} if look else None for look in (early, middle, late)
    )
    grows = []
    for key, now in (now_ or {}).items():
        was = (then or {}).get(key)
        half = between.get(key) if between is not None else now
        if was is None or half is None:
            continue
        by_length = was.length < half.length <= now.length and (between is None or half.length < now.length)
        by_nodes = was.nodes < half.nodes <= now.nodes and (between is None or half.nodes < now.nodes)
        if (by_length and now.tensors > was.tensors) or (now.length == was.length == 1 and by_nodes):
            grows.append((now.size - was.size >= 0.5 * told, now.nodes - was.nodes, now.tensors - was.tensors, now))
    return max(grows, key=lambda each: each[:3])[3] if grows else None
