"""Where the memory of a GPU went, as what ``payload/companion/envkit_memory.py`` wrote says: pure functions of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from envkit.debug import growth, snapshot, stacks
from envkit.debug.measures import Finding, Judged, size
from envkit.debug.memory_records import Growth, Look, OutOfMemory, Process, Usage, process
from envkit.debug.records import PythonFrame
from envkit.report import Table

__all__ = ["judge", "process"]
_LASTS_STEPS = 1_000_000  # of what grows so slowly that free memory lasts longer, a note is made and no finding
_OTHERS = 0.2  # of a GPU's memory: what others hold below this is not why it ran out
_MOST_ROWS = 12
_ALIKE, _MOST_ALIKE = 0.5, 3  # lines with at least so much of what the first of them holds are named with it


def judge(processes: Sequence[Process], failed: bool) -> Judged:
    """Findings and tables of a run; ``failed`` says whether the command did, so that an allocation that failed may be
    why."""
    findings: list[Finding] = []
    tables: list[Table] = []
    notes: list[str] = []
    doubts: list[str] = []
    mine = {each.pid for each in processes}
    for each in processes:
        name = f"rank {each.rank}: " if each.rank else ""
        grown = growth.grown(each) or growth.crept(each)
        found, noted = _findings(each, grown, failed, mine)
        on_host, noted_host = _on_host(each)
        found += on_host
        findings += [replace(one, said=name + one.said) for one in found]
        notes += [name + note for note in (*noted, *noted_host, *_which_steps(each), *each.trouble)]
        doubts += [name + doubt for doubt in _doubts(each, grown, noted_host)]
        tables += _tables(each, name)
    if findings:
        findings.sort(key=lambda each: -each.weight)
        return Judged(tuple(findings), tuple(tables), tuple(notes))
    return Judged((), tuple(tables), tuple(notes), _open(processes, doubts))


def _open(processes: Sequence[Process], doubts: Sequence[str]) -> str:
    """Why a run without a finding is not clean; empty if it is."""
    if doubts:
        return doubts[0]
    on_gpu = [each for each in processes if each.on_gpu]
    if not on_gpu:
        return "no process of the command used a GPU through torch's allocator"
    short = [each for each in on_gpu if not growth.was_watched(each)]
    if not short:
        return ""
    what = "too few steps were seen" if any(each.series for each in short) else "no step was seen"
    return f"{what} to say whether memory grows (an optimizer's step, a batch, a round of a loop)"


def _which_steps(process: Process) -> list[str]:
    file, line = process.loop
    return [f"a step is a round of the loop at {file}:{line}"] if file else []


def _doubts(process: Process, grown: Growth | None, noted: Sequence[str]) -> list[str]:
    """What grew over the whole run and is named by no finding: it is never called clean."""
    doubts = []
    if not grown and (gain := growth.gained(process)):
        doubts.append(
            f"the tensors on the GPU grew by {size(gain)} while the command ran, and the looks at its steps do not "
            "tell at which line"
        )
    if not noted and (gain := growth.host_gained(process)):
        doubts.append(
            f"the CPU's memory grew by {size(gain)} while the command ran, and no variable of the program that envkit "
            "can see keeps it"
        )
    return doubts


def _on_host(process: Process) -> tuple[list[Finding], list[str]]:
    """What grows in the CPU's memory, as a finding, or as a note where there is room for a million steps more."""
    found = growth.host(process)
    if found is None:
        return [], []
    holder = found.holder
    places = tuple(PythonFrame(holder.file, number, holder.path) for number, _ in holder.lines[:1])
    where = f"`{holder.path}` in {places[0].place}" if places else f"`{holder.path}` of {holder.file}"
    rate = f"{size(found.a_step)} more each {'step' if process.kind else 'second'}"
    what, held = f"{holder.tensors} tensors and arrays in the CPU's memory: {size(holder.host)}", holder.host
    if found.graph:
        count = holder.length if holder.length > 1 else found.steps
        what = f"the graph of {count} steps in the CPU's memory, of which the process has {size(found.size)}"
        held = found.size
    said = f"{where} keeps {what}, {rate}"
    if process.ram and process.ram - found.size > _LASTS_STEPS * found.a_step:
        return [], [said]
    fix = f"empty `{holder.path}`, bound its length, or keep of each what is needed later: a number, an index, a file"
    if found.graph:
        fix = f"keep no graph: .detach() or .item() before it goes into `{holder.path}`, or torch.no_grad()"
    return [Finding("leak-host", said, fix, places, held / max(process.ram, held, 1))], []


def _findings(process: Process, grown: Growth | None, failed: bool, mine: set[int]) -> tuple[list[Finding], list[str]]:
    found: list[Finding] = []
    notes: list[str] = []
    last = process.ooms[-1] if process.ooms and failed else None
    if grown:
        usage = last.usage if last else process.looks[-1].usage
        lasts = usage.free / grown.a_step if grown.a_step > 0 else float("inf")
        if last or lasts < _LASTS_STEPS:
            found.append(_leak(process, grown, usage, last))
        else:
            frame = grown.lines[0][0]
            notes.append(
                f"memory allocated at {_at(frame)} grows by {size(grown.a_step)} a step, of which "
                f"{lasts:,.0f} more fit into what is free"
            )
    if last:
        found += [_too_much(process, last, mine)] if not grown else []
        notes += _about(last, process, mine)
    elif process.ooms:
        said = process.ooms[-1]
        notes.append(f"an allocation of {size(said.asked)} failed at {_where(said)}, and the program went on")
    found += _flushed(process) if not last else []
    return found, notes


def _leak(process: Process, grown: Growth, usage: Usage, last: OutOfMemory | None) -> Finding:
    frame = grown.lines[0][0]
    holder = grown.holder
    unit = "step" if process.kind else "second"
    held = grown.size
    if last and last.shot:
        names = {each[0] for each in grown.lines}
        held = sum(block.size for block in last.shot.live if block.own in names)
    rate = f"{size(grown.a_step)} more each {unit}"
    ran_out = "; then memory ran out" if last else f"; {size(usage.free)} are free"
    places = [frame]
    if holder is None:
        said = (
            f"memory allocated at {_at(frame)} stays: {size(held)} after {grown.steps} {unit}s, {rate}{ran_out}; "
            "no variable of the program that envkit can see keeps it"
        )
        fix = "look at who keeps what that line makes: a closure, a callback, a C++ extension or a cache of a library"
        return Finding("leak", said, fix, (frame,), held / max(usage.total, 1))
    if holder.lines:
        places.insert(0, PythonFrame(holder.file, holder.lines[0][0], holder.path))
    where = f"`{holder.path}` in {places[0].place}" if holder.lines else f"`{holder.path}` of {holder.file}"
    alike = [frame]
    graph = (holder.graphs and holder.size < 0.5 * grown.size) or (holder.graphs and holder.length == 1)
    if graph:
        count = holder.length if holder.length > 1 else grown.steps
        what = f"keeps the graph of {count} {unit}s"
        fix = f"keep the number and not the graph: .detach() or .item() before it goes into `{holder.path}`"
        fix += ", or compute it under torch.no_grad()"
    else:
        alike = [line for line, size_, _ in grown.lines[:_MOST_ALIKE] if size_ >= _ALIKE * grown.lines[0][1]]
        places += alike[1:]
        what = f"keeps {holder.tensors} tensors"
        fix = f"empty `{holder.path}`, bound its length, or move what it keeps to the CPU: .detach().cpu()"
    said = f"{where} {what}: {size(held)}, allocated at {' and '.join(map(_at, alike))}, {rate}{ran_out}"
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
    looks = process.looks
    if looks and not process.on_gpu:
        rows = (("of the CPU's memory", size(looks[-1].host)),)
        return [Table(f"{name}after step {looks[-1].step}", ("what", "bytes"), rows)]
    return [*_by_line(process, name), *([_after(looks[-1], name)] if looks else [])]


def _by_line(process: Process, name: str) -> list[Table]:
    """The program's lines by the bytes of their tensors, when memory ran out or else when most were held."""
    moments = [(oom.shot, f"when {size(oom.asked)} were asked for in vain") for oom in process.ooms[-1:]]
    moments = moments or [(look.shot, f"at the peak before step {look.step}'s end") for look in process.looks[-1:]]
    tables = []
    for shot, when in moments:
        blocks = (shot.live if process.ooms else shot.peak) if shot else ()
        rows = snapshot.by_line(blocks)[:_MOST_ROWS]
        whole = max(1, sum(block.size for block in blocks))
        lines = tuple(
            (_at(frame), frame.function if frame.line else "", size(bytes_), f"{bytes_ / whole:.0%}", str(count))
            for frame, bytes_, count in rows
        )
        tables.append(Table(f"{name}tensors {when}", ("line", "in", "bytes", "share", "tensors"), lines))
    return tables


def _after(last: Look, name: str) -> Table:
    """What was held after a step."""
    rows = [("allocated", size(last.usage.allocated)), ("reserved by torch", size(last.usage.reserved))]
    rows += [("allocated at most", size(last.usage.allocated_peak))]
    rows += [
        (f"of the optimizer's {key}" if key != "optimizer" else "state of the optimizer", size(value))
        for key, value in last.kept.items()
    ]
    rows += [("free on the GPU", size(last.usage.free)), ("the GPU has", size(last.usage.total))]
    rows += [(f"process {pid} {text}", size(bytes_)) for pid, bytes_, text in (last.usage.processes or ())[:8]]
    rows += [("the process in the CPU's memory", size(last.host))] if last.host else []
    return Table(f"{name}after step {last.step}", ("what", "bytes"), tuple(rows))


def _at(frame: PythonFrame) -> str:
    return frame.place if frame.line else frame.function


def _where(oom: OutOfMemory) -> str:
    own = stacks.own_line(oom.frames)
    place = f"{own.place} in {own.function}" if own else "a line that was not seen"
    return f"the backward pass called at {place}" if oom.backward else place
