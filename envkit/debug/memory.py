"""Where the memory of a GPU went, as what ``payload/companion/envkit_memory.py`` wrote says: pure functions of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from envkit.debug import snapshot, stacks
from envkit.debug.measures import Finding, Judged, size
from envkit.debug.records import PythonFrame
from envkit.debug.snapshot import Snapshot
from envkit.records import dataclass
from envkit.report import Table

_LEAST_STEPS = 4  # between the first and the last of three looks that show a growth
_LASTS_STEPS = 1_000_000  # of what grows so slowly that free memory lasts longer, a note is made and no finding
_LEVELS_OFF = 0.5  # growth a step that falls below this share of what it was levels off, as a cache that fills does
_OTHERS = 0.2  # of a GPU's memory: what others hold below this is not why it ran out
_MOST_ROWS = 12


@dataclass(frozen=True, slots=True)
class Holder:
    """A variable of the program that keeps tensors: how many entries, tensors, bytes on GPUs, tensors with a graph,
    nodes of their graphs; and the lines in which it gets more, as number and text."""

    path: str
    file: str
    length: int
    tensors: int
    size: int
    graphs: int
    nodes: int
    lines: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """A device at one moment, in bytes; ``processes`` are (pid, bytes, name) as NVML tells, None where it does not."""

    device: int = 0
    allocated: int = 0
    reserved: int = 0
    allocated_peak: int = 0
    reserved_peak: int = 0
    retries: int = 0
    free: int = 0
    total: int = 0
    frameworks: tuple[str, ...] = ()
    processes: tuple[tuple[int, int, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen after a step: the device, the allocator's blocks (if kept) and the program's holders.

    ``kept`` are bytes of the optimizer's parameters, their gradients and its state."""

    step: int
    usage: Usage
    shot: Snapshot | None
    holders: tuple[Holder, ...]
    kept: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """An allocation that failed: bytes asked for, bytes free on the device, and where Python was."""

    asked: int
    free: int
    total: int
    frames: tuple[PythonFrame, ...]
    backward: bool
    usage: Usage
    shot: Snapshot | None
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """One process that used a GPU through torch; ``series`` are (step, allocated, reserved) at the ends of steps."""

    pid: int
    rank: str
    gpus: tuple[str, ...]
    torch: str
    settings: str
    kind: str
    series: tuple[tuple[int, int, int], ...]
    looks: tuple[Look, ...]
    ooms: tuple[OutOfMemory, ...]
    end: Usage | None
    fraction: float = 0.0
    fraction_at: str = ""
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory that grows from step to step: by how many bytes a step, which lines allocated it, and who keeps it."""

    a_step: float
    steps: int
    size: int
    lines: tuple[tuple[PythonFrame, int, int], ...]
    holder: Holder | None


def process(raw: Mapping[str, Any], shots: Mapping[str, Mapping[str, Any]]) -> Process:
    """What one process wrote; ``shots`` are its snapshots by their names.  Raises ValueError where it is not that."""
    try:
        return _process(raw, shots)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"it is no record of a process's memory: {type(error).__name__}: {error}") from error


def _process(raw: Mapping[str, Any], shots: Mapping[str, Mapping[str, Any]]) -> Process:
    fraction = raw.get("fraction") or {}
    place = fraction.get("place")
    return Process(
        pid=int(raw["pid"]),
        rank=str(raw["rank"]),
        gpus=tuple(str(each["name"]) for each in raw.get("devices", ())),
        torch=str(raw.get("torch", "")),
        settings=str(raw.get("settings", "")),
        kind=str(raw.get("steps", [""])[0]),
        series=tuple((int(step), int(allocated), int(reserved)) for step, allocated, reserved in raw["series"]),
        looks=tuple(_look(each, shots) for each in raw["looks"]),
        ooms=tuple(_oom(each, shots) for each in raw["ooms"]),
        end=_usage(raw["end"]) if raw.get("end") else None,
        fraction=float(fraction.get("value", 0.0)),
        fraction_at=f"{place[0]}:{place[1]}" if place else "",
        trouble=tuple(map(str, raw.get("trouble", ()))),
    )


def _look(raw: Mapping[str, Any], shots: Mapping[str, Mapping[str, Any]]) -> Look:
    usage = _usage(raw)
    return Look(int(raw["step"]), usage, _shot(raw, usage, shots), _holders(raw), dict(raw.get("kept") or {}))


def _oom(raw: Mapping[str, Any], shots: Mapping[str, Mapping[str, Any]]) -> OutOfMemory:
    usage = _usage(raw["usage"])
    shot = shots.get(str(raw["snapshot"]))
    return OutOfMemory(
        int(raw["asked"]),
        int(raw["free"]),
        max(int(raw["total"]), usage.total),  # torch tells of the limit that a process has set itself, if it has
        stacks.frames(raw["frames"]),
        bool(raw["backward"]),
        usage,
        snapshot.read(shot, int(raw["device"])) if shot else None,
        _holders(raw),
    )


def _shot(raw: Mapping[str, Any], usage: Usage, shots: Mapping[str, Mapping[str, Any]]) -> Snapshot | None:
    found = shots.get(str(raw["snapshot"]))
    return snapshot.read(found, usage.device) if found else None


def _usage(raw: Mapping[str, Any]) -> Usage:
    names = ("device", "allocated", "reserved", "allocated_peak", "reserved_peak", "retries", "free", "total")
    told = raw.get("processes")
    rows = None if told is None else tuple((int(each["pid"]), int(each["bytes"]), str(each["name"])) for each in told)
    frameworks = tuple(map(str, raw.get("frameworks", ())))
    return Usage(**{name: int(raw[name]) for name in names}, frameworks=frameworks, processes=rows)


def _holders(raw: Mapping[str, Any]) -> tuple[Holder, ...]:
    return tuple(
        Holder(
            str(each["path"]),
            str(each["file"]),
            int(each["length"]),
            int(each["tensors"]),
            int(each["bytes"]),
            int(each["graphs"]),
            int(each["nodes"]),
            tuple((int(number), str(text)) for number, text in each.get("lines", ())),
        )
        for each in raw["holders"]
    )


def judge(processes: Sequence[Process], failed: bool) -> Judged:
    """Findings and tables of a run; ``failed`` says whether the command did, so that an allocation that failed may be
    why."""
    findings: list[Finding] = []
    tables: list[Table] = []
    notes: list[str] = []
    mine = {each.pid for each in processes}
    for each in processes:
        name = f"rank {each.rank}: " if each.rank else ""
        growth = grown(each)
        found, noted = _findings(each, growth, failed, mine)
        findings += [replace(one, said=name + one.said) for one in found]
        notes += [name + note for note in (*noted, *each.trouble)]
        tables += _tables(each, name)
    if not processes:
        return Judged(open="no process of the command used a GPU through torch's allocator")
    short = [each for each in processes if not growth_was_watched(each)]
    if not findings and short:
        what = "too few steps were seen" if any(each.series for each in short) else "no step was seen"
        return Judged(
            (), tuple(tables), tuple(notes), f"{what} to say whether memory grows (an optimizer's step, a batch)"
        )
    findings.sort(key=lambda each: -each.weight)
    return Judged(tuple(findings), tuple(tables), tuple(notes))


def growth_was_watched(process: Process) -> bool:
    """Whether three snapshots lie far enough apart to tell growth from none."""
    shots = [look for look in process.looks if look.shot is not None]
    return len(shots) >= 3 and shots[-1].step - shots[-3].step >= _LEAST_STEPS


def grown(process: Process) -> Growth | None:
    """What grows from step to step, by three looks at the ends of steps; None where nothing does.

    A line grows that has more bytes at each look, and not by less and less: a cache that fills levels off, the state
    of an optimizer comes in one step.
    """
    if not growth_was_watched(process):
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


def _falls(process: Process, since: int) -> bool:
    """Whether the bytes at the ends of steps fall back below half of what they had gained: then they do not stay."""
    values = [allocated for step, allocated, _ in process.series if step >= since]
    if len(values) < 3:
        return False
    most, base = max(values), values[0]
    return most > base and values[-1] < base + (most - base) / 2


def _keeper(early: Look, middle: Look, late: Look, told: int) -> Holder | None:
    """The variable that gets more at each look: tensors, or nodes of graphs; that which has most of the bytes, or else
    most of the graphs."""
    looks = [{(each.file, each.path): each for each in look.holders} for look in (early, middle, late)]
    grows = []
    for key, now in looks[2].items():
        then, between = looks[0].get(key), looks[1].get(key)
        if between is None or then is None:
            continue
        by_length = then.length < between.length < now.length
        by_nodes = then.nodes < between.nodes < now.nodes
        if (by_length and now.tensors > then.tensors) or (now.length == then.length == 1 and by_nodes):
            grows.append((now.size - then.size >= 0.5 * told, now.nodes - then.nodes, now.tensors - then.tensors, now))
    return max(grows, key=lambda each: each[:3])[3] if grows else None


def _findings(process: Process, growth: Growth | None, failed: bool, mine: set[int]) -> tuple[list[Finding], list[str]]:
    found: list[Finding] = []
    notes: list[str] = []
    last = process.ooms[-1] if process.ooms and failed else None
    if growth:
        usage = last.usage if last else process.looks[-1].usage
        lasts = usage.free / growth.a_step if growth.a_step > 0 else float("inf")
        if last or lasts < _LASTS_STEPS:
            found.append(_leak(process, growth, usage, last))
        else:
            frame = growth.lines[0][0]
            notes.append(
                f"memory allocated at {_at(frame)} grows by {size(growth.a_step)} a step, of which "
                f"{lasts:,.0f} more fit into what is free"
            )
    if last:
        found += [_too_much(process, last, mine)] if not growth else []
        notes += _about(last, process, mine)
    elif process.ooms:
        said = process.ooms[-1]
        notes.append(f"an allocation of {size(said.asked)} failed at {_where(said)}, and the program went on")
    found += _flushed(process) if not last else []
    return found, notes


def _leak(process: Process, growth: Growth, usage: Usage, last: OutOfMemory | None) -> Finding:
    frame = growth.lines[0][0]
    holder = growth.holder
    unit = "step" if process.kind else "second"
    held = growth.size
    if last and last.shot:
        names = {each[0] for each in growth.lines}
        held = sum(block.size for block in last.shot.live if block.own in names)
    rate = f"{size(growth.a_step)} more each {unit}"
    ran_out = "; then memory ran out" if last else f"; {size(usage.free)} are free"
    places = [frame]
    if holder is None:
        said = (
            f"memory allocated at {_at(frame)} stays: {size(held)} after {growth.steps} {unit}s, {rate}{ran_out}; "
            "no variable of the program that envkit can see keeps it"
        )
        fix = "look at who keeps what that line makes: a closure, a callback, a C++ extension or a cache of a library"
        return Finding("leak", said, fix, (frame,), held / max(usage.total, 1))
    if holder.lines:
        places.insert(0, PythonFrame(holder.file, holder.lines[0][0], holder.path))
    where = f"`{holder.path}` in {places[0].place}" if holder.lines else f"`{holder.path}` of {holder.file}"
    graph = (holder.graphs and holder.size < 0.5 * growth.size) or (holder.graphs and holder.length == 1)
    if graph:
        count = holder.length if holder.length > 1 else growth.steps
        what = f"keeps the graph of {count} {unit}s"
        fix = f"keep the number and not the graph: .detach() or .item() before it goes into `{holder.path}`"
        fix += ", or compute it under torch.no_grad()"
    else:
        what = f"keeps {holder.tensors} tensors"
        fix = f"empty `{holder.path}`, bound its length, or move what it keeps to the CPU: .detach().cpu()"
    said = f"{where} {what}: {size(held)}, allocated at {_at(frame)}, {rate}{ran_out}"
    return Finding("leak-graph" if graph else "leak-tensors", said, fix, tuple(places), held / max(usage.total, 1))


def _too_much(process: Process, oom: OutOfMemory, mine: set[int]) -> Finding:
    """Why an allocation failed where nothing grows."""
    own = stacks.own_line(oom.frames)
    places = (own,) if own else ()
    asks = f"{_where(oom)} asks for {size(oom.asked)}"
    if oom.asked > oom.total:
        fix = "make the tensor smaller: it fits on no GPU of this kind, whatever else is freed"
        said = f"{asks} in one piece, and the GPU has {size(oom.total)} in all"
        return Finding("tensor-too-large", said, fix, places, 1.0)
    others = _others(process, oom.usage, mine)
    held = sum(each[1] for each in others)
    share = held / max(oom.total, 1)
    if oom.free < oom.asked <= held + oom.free and share >= _OTHERS:
        names = ", ".join(f"{pid} ({name or 'unknown'}): {size(bytes_)}" for pid, bytes_, name in others[:4])
        said = f"{asks} where {size(oom.free)} are free: other processes hold {size(held)} of the GPU ({names})"
        return Finding("other-processes", said, "end them, or take another GPU: CUDA_VISIBLE_DEVICES", places, share)
    unused, pieces, largest = oom.shot.unused(oom.asked) if oom.shot else (0, 0, 0)
    if unused >= oom.asked > largest:
        between = snapshot.by_line(oom.shot.live)[0][0] if oom.shot and oom.shot.live else None
        said = (
            f"{asks}; torch has {size(unused)} reserved and unused, but in {pieces} pieces of at most {size(largest)}"
            + (f", between tensors of {_at(between)}" if between else "")
        )
        fix = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; or pad to a few lengths, largest first"
        return Finding("fragmentation", said, fix, places, unused / max(oom.total, 1))
    beside = _beside(process, oom.usage)
    if oom.free < oom.asked and beside >= _OTHERS * oom.total:
        loaded = ", ".join(oom.usage.frameworks) or "another library"
        said = (
            f"{asks} where {size(oom.free)} are free: {size(beside)} are held in this process outside torch ({loaded})"
        )
        fix = "give the other library less: XLA_PYTHON_CLIENT_PREALLOCATE=false for JAX, memory growth for TensorFlow"
        return Finding("other-frameworks", said, fix, places, beside / max(oom.total, 1))
    if process.fraction and oom.free >= oom.asked:
        said = (
            f"{asks} and {size(oom.free)} are free on the GPU, but this process may take {process.fraction:.0%} of it: "
            f"set_per_process_memory_fraction at {process.fraction_at or 'an unknown place'}"
        )
        return Finding("fraction", said, "raise the fraction, or make the step smaller", places, process.fraction)
    return _step_too_large(oom, asks, places)


def _step_too_large(oom: OutOfMemory, asks: str, places: tuple[PythonFrame, ...]) -> Finding:
    rows = snapshot.by_line(oom.shot.live) if oom.shot else []
    said = f"the step needs more than the GPU has: {asks} where {size(oom.free)} of {size(oom.total)} are free"
    if rows:
        frame, bytes_, count = rows[0]
        said += f"; most is of {_at(frame)}: {size(bytes_)} in {count} tensors"
        places = (*places, frame) if frame.line else places
    fix = "a smaller batch, activation checkpointing (torch.utils.checkpoint) around that line, or a narrower dtype"
    return Finding("step-too-large", said, fix, places, 1.0)


def _about(oom: OutOfMemory, process: Process, mine: set[int]) -> list[str]:
    notes = []
    others = _others(process, oom.usage, mine)
    if others:
        notes.append(f"other processes hold {size(sum(each[1] for each in others))} of the GPU")
    if oom.usage.frameworks:
        notes.append(f"the process has {', '.join(oom.usage.frameworks)} loaded beside torch")
    return notes


def _flushed(process: Process) -> list[Finding]:
    """A run that did not fail, and whose allocator had to give back its cache to the driver to go on."""
    usage = process.end or (process.looks[-1].usage if process.looks else None)
    shots = [look.shot for look in process.looks if look.shot]
    if usage is None or not usage.retries or not shots:
        return []
    between = shots[-1].reserved - shots[-1].allocated
    said = (
        f"torch's allocator ran into the end of the GPU's memory {usage.retries} times and gave back its cache to go "
        f"on, which waits for the GPU; at most {size(usage.allocated_peak)} were in tensors, "
        f"{size(usage.reserved_peak)} reserved"
    )
    fix = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a smaller batch"
    return [Finding("fragmentation", said, fix, (), between / max(usage.total, 1))]


def _others(process: Process, usage: Usage, mine: set[int]) -> list[tuple[int, int, str]]:
    """Who else holds memory of the device; nobody where this process is not among those that NVML tells, for then
    their numbers are of another PID namespace."""
    rows = usage.processes or ()
    if process.pid not in {pid for pid, _, _ in rows}:
        # One NVML row that is not this process's number may still be this process: what others hold is the rest.
        outside = usage.total - usage.free - usage.reserved
        return [(0, outside, "not visible from here")] if outside >= _OTHERS * usage.total else []
    return sorted(((pid, bytes_, name) for pid, bytes_, name in rows if pid not in mine), key=lambda row: -row[1])


def _beside(process: Process, usage: Usage) -> int:
    """Bytes that this process holds outside torch's allocator; 0 where NVML does not tell."""
    own = [bytes_ for pid, bytes_, _ in usage.processes or () if pid == process.pid]
    return max(0, own[0] - usage.reserved) if own else 0


def _tables(process: Process, name: str) -> list[Table]:
    tables = []
    moments = [(oom.shot, f"when {size(oom.asked)} were asked for in vain") for oom in process.ooms[-1:]]
    moments = moments or [(look.shot, f"at the peak before step {look.step}'s end") for look in process.looks[-1:]]
    for shot, when in moments:
        blocks = (shot.live if process.ooms else shot.peak) if shot else ()
        rows = snapshot.by_line(blocks)[:_MOST_ROWS]
        whole = max(1, sum(block.size for block in blocks))
        lines = tuple(
            (_at(frame), frame.function if frame.line else "", size(bytes_), f"{bytes_ / whole:.0%}", str(count))
            for frame, bytes_, count in rows
        )
        tables.append(Table(f"{name}tensors {when}", ("line", "in", "bytes", "share", "tensors"), lines))
    looks = process.looks
    if looks:
        last = looks[-1]
        rows_ = [("allocated", size(last.usage.allocated)), ("reserved by torch", size(last.usage.reserved))]
        rows_ += [("allocated at most", size(last.usage.allocated_peak))]
        rows_ += [
            (f"of the optimizer's {key}" if key != "optimizer" else "state of the optimizer", size(value))
            for key, value in last.kept.items()
        ]
        rows_ += [("free on the GPU", size(last.usage.free)), ("the GPU has", size(last.usage.total))]
        rows_ += [(f"process {pid} {text}", size(bytes_)) for pid, bytes_, text in (last.usage.processes or ())[:8]]
        tables.append(Table(f"{name}after step {last.step}", ("what", "bytes"), tuple(rows_)))
    return tables


def _at(frame: PythonFrame) -> str:
    return frame.place if frame.line else frame.function


def _where(oom: OutOfMemory) -> str:
    own = stacks.own_line(oom.frames)
    place = f"{own.place} in {own.function}" if own else "a line that was not seen"
    return f"the backward pass called at {place}" if oom.backward else place
