"""What the time of a step goes to, as what ``payload/companion/envkit_slow.py`` wrote says: pure functions of that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from envkit.debug import trace
from envkit.debug.measures import Finding, Judged, Span, size, span
from envkit.debug.records import PythonFrame
from envkit.debug.trace import Reduced
from envkit.facts import Facts
from envkit.facts.rows import PeakRow
from envkit.records import dataclass
from envkit.report import Table

_SHARE = 0.2  # of a step's time: what costs less is no finding
_LEAST_ITEMS = 20  # values fetched one by one in a step, below which a fetch costs no CPU time that matters
_LEAST_SHORT = 200  # short operations in a step
_WASTED = 0.5  # of a step's time on the CPU in short operations
_SYNCS = re.compile(r"\.(?:item|tolist|cpu|numpy|nonzero)\(|\b(?:float|int|bool|print)\(|synchronize\(")
_WAITS = re.compile(r"\.(?:item|tolist|cpu|numpy)\(|synchronize\(")
_COPIES = re.compile(r"\.(?:to|cuda|copy_)\(")
_FETCHES = re.compile(r"\.(?:to|cpu|copy_|numpy|tolist)\(")
_MOSTLY = 0.75  # of the collectives, in which the same rank is the last
_MOST_SPANS = 4000
_MOST_ROWS = 12


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the program that the main thread was seen at: for how many seconds, and in which part of a step.

    ``caller`` is the own line that called it, ``called`` the function of torch or another library below it."""

    frame: PythonFrame
    caller: PythonFrame
    called: str
    part: str
    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Process:
    """One process that took steps: their seconds, waits for batches, lines, and the trace of a few steps more.

    ``alone`` are the seconds of steps beside which nothing looked at lines either.
    ``queued`` are the seconds of ``steps`` in which its main thread could run and no processor was free."""

    pid: int
    rank: str
    kind: str
    steps: tuple[float, ...]
    traced: tuple[float, ...]
    loaded: tuple[float, ...]
    looked: float
    lines: tuple[Line, ...]
    gpu: str
    threads: int
    tf32: bool | None
    reduced: Reduced | None
    queued: float = 0.0
    loop: tuple[str, int] = ("", 0)
    trouble: tuple[str, ...] = ()
    alone: tuple[float, ...] = ()

    @property
    def step(self) -> float:
        """The mean seconds of a step without a profiler; looking at lines makes one of few milliseconds longer, too."""
        return min((sum(each) / len(each) for each in (self.alone, self.steps) if each), default=0.0)


def process(raw: Mapping[str, Any], traced: Mapping[str, Any] | None) -> Process:
    """What one process wrote, with its trace if it left one; raises ValueError where it is not that."""
    try:
        pid = int(raw["pid"])
        devices = raw["devices"]
        tf32 = raw["tf32"]
        return Process(
            pid=pid,
            rank=str(raw["rank"]),
            kind=str(raw["kind"]),
            steps=tuple(map(float, raw["steps"])),
            traced=tuple(map(float, raw["traced"])),
            loaded=tuple(map(float, raw["loaded"])),
            looked=float(raw["looked"]),
            lines=tuple(_line(each) for each in raw["lines"]),
            gpu=str(devices[int(raw["device"] or 0)]) if devices else "",
            threads=int(raw["threads"]),
            tf32=None if tf32 is None else bool(tf32),
            reduced=trace.read(traced, pid) if traced is not None else None,
            queued=float(raw.get("queued", 0.0)),
            loop=(str(raw.get("loop", [""])[0]), int(raw.get("loop", ["", 0])[1])),
            trouble=tuple(map(str, raw["trouble"])),
            alone=tuple(map(float, raw.get("alone", ()))),
        )
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"it is no record of a process's steps: {type(error).__name__}: {error}") from error


def _line(raw: Sequence[Any]) -> Line:
    file, number, function, outer, outer_number, called, part, seconds, text = raw
    frame = PythonFrame(str(file), int(number), str(function))
    caller = PythonFrame(str(outer), int(outer_number), "")
    return Line(frame, caller, str(called), str(part), float(seconds), str(text))


def judge(processes: Sequence[Process], facts: Facts) -> Judged:
    """Findings, tables and the picture of a run's processes; those that took no step are left out."""
    stepped = [each for each in processes if each.steps]
    if not stepped:
        return _unjudged(processes)
    findings = _ranks(stepped)
    tables: list[Table] = []
    notes: list[str] = []
    for each in stepped[:8]:
        name = f"rank {each.rank}: " if each.rank else ""
        findings += [replace(one, said=name + one.said) for one in _findings(each)]
        tables += _tables(each, name)
        notes += [name + note for note in (*_which(each), *_should(each, facts), *_crowded(each), *each.trouble)]
    findings.sort(key=lambda each: -each.weight)
    untraced = [each for each in stepped if each.reduced is None]
    why = "torch's profiler recorded no step: the command ended too early" if untraced and not findings else ""
    first = max(stepped, key=lambda each: each.reduced is not None)
    return Judged(tuple(findings), tuple(tables), tuple(dict.fromkeys(notes)), why, _spans(first))


def _unjudged(processes: Sequence[Process]) -> Judged:
    if not processes:
        return Judged(open="no Python process of the command imported torch")
    if any(each.kind for each in processes):
        return Judged(
            open="the command ended before enough steps were seen: let it run ten steps and five seconds more"
        )
    return Judged(
        open="no step was seen: no optimizer stepped, no DataLoader gave a batch, no backward pass ended, and no loop "
        "came round four times within a minute"
    )


def _which(process: Process) -> list[str]:
    """What a step is, where nothing of torch marks it."""
    file, line = process.loop
    return [f"a step is a round of the loop at {file}:{line}"] if file else []


def _findings(process: Process) -> list[Finding]:
    found = [_loader(process)]
    reduced = process.reduced
    if reduced is not None and reduced.gpu:
        found += [_synced(process, reduced), _launched(process, reduced), _copied(process, reduced)]
    elif reduced is not None:
        found += [_items(process, reduced), _small(process, reduced)]
    return [each for each in found if each is not None]


def _loader(process: Process) -> Finding | None:
    """The share of the time in which the main thread waited for a batch; on a GPU that has work queued meanwhile, the
    share in which the GPU had none."""
    share = sum(process.loaded) / sum(process.steps)
    reduced = process.reduced
    if reduced is not None and reduced.gpu:
        share = min(share, reduced.gaps["loader"] / reduced.seconds)
    if share < _SHARE:
        return None
    lines = [line for line in process.lines if line.part == "loader"]
    places = [line.frame for line in lines[:1]] + [line.caller for line in lines[:1] if line.caller != line.frame]
    each = sum(process.loaded) / len(process.steps)
    said = f"a step of {span(process.step)} waits {span(each)} for its batch ({share:.0%})"
    said += f", at {places[0].place} in {places[0].function}" if places else ""
    inside = bool(lines) and lines[0].frame != lines[0].caller
    fix = "load in other processes: DataLoader(num_workers=..., pin_memory=True, persistent_workers=True)"
    if not inside:
        fix = "its workers are too slow for a step: more of them (num_workers), or less work for each item"
    return Finding("data-loader", said, fix, tuple(places), share)


def _best(process: Process, pattern: re.Pattern[str] | None, parts: tuple[str, ...] = ("",)) -> tuple[Line, ...]:
    """The lines of a part of the step that were seen most, those first whose text matches."""
    lines = [line for line in process.lines if line.part in parts]
    named = [line for line in lines if pattern is not None and pattern.search(line.text)]
    return tuple(named or ([] if pattern else lines))


def _seen(lines: Sequence[Line], process: Process) -> float:
    return sum(line.seconds for line in lines) / max(process.looked, 1e-9)


def _items(process: Process, reduced: Reduced) -> Finding | None:
    """Values fetched one by one, on a CPU: the share of the lines that do."""
    each = reduced.items / max(len(process.traced), 1)
    lines = _best(process, _SYNCS)
    share = _seen(lines, process)
    if each < _LEAST_ITEMS or share < _SHARE or not lines:
        return None
    said = (
        f"{each:,.0f} values are fetched one by one in each step (.item() and its kin), most at "
        f"{lines[0].frame.place}: `{lines[0].text}`, {share:.0%} of the time"
    )
    fix = "compute on the whole tensor, and fetch one result a step with one .tolist() or .item()"
    return Finding("item", said, fix, (lines[0].frame,), share)


def _small(process: Process, reduced: Reduced) -> Finding | None:
    """Many short operations, on a CPU: what lies between the computations takes the time."""
    count = reduced.short_count / max(len(process.traced), 1)
    share = reduced.short
    fetched = reduced.items * 3 > reduced.short_count  # then the fetching of values is the finding
    if count < _LEAST_SHORT or share < _WASTED or fetched:
        return None
    lines = _best(process, None, ("", "backward"))
    own = [line for line in lines if line.part == ""] or list(lines)
    said = f"{count:,.0f} short operations in each step of {span(process.step)} take {share:.0%} of its time"
    said += f", most at {own[0].frame.place}: `{own[0].text}`" if own else ""
    fix = "one operation over a whole tensor in place of a loop; or torch.compile, which joins them"
    return Finding("small-operations", said, fix, tuple(line.frame for line in own[:1]), share)


def _idle(process: Process, reduced: Reduced, why: str) -> float:
    """The share of a step in which the GPU has nothing to do for one reason.

    The profiler slows the CPU and not the GPU: what a step without it leaves beside the GPU's work is the most that all
    reasons can have together."""
    whole = sum(reduced.gaps.values())
    if not whole or not process.traced:
        return 0.0
    at_work = min(reduced.busy + reduced.joined, reduced.seconds - whole) / len(process.traced)
    left = max(0.0, 1 - at_work / process.step)
    return min(reduced.gaps[why] / reduced.seconds, left * reduced.gaps[why] / whole)


def _synced(process: Process, reduced: Reduced) -> Finding | None:
    """The GPU ran out of work while the CPU waited for it, and had to wait for new work."""
    share = _idle(process, reduced, "sync")
    if share < _SHARE:
        return None
    lines = _best(process, _SYNCS) or _best(process, None)
    each = reduced.syncs / max(len(process.traced), 1)
    said = (
        f"the GPU has nothing to do in {share:.0%} of a step of {span(process.step)} because the CPU waits for it "
        f"{each:,.0f} times a step and has nothing queued then"
    )
    said += f", most at {lines[0].frame.place}: `{lines[0].text}`" if lines else ""
    fix = "fetch values from the GPU less often: sum them there, and call .item() once in many steps"
    return Finding("sync", said, fix, tuple(line.frame for line in lines[:1]), share)


def _launched(process: Process, reduced: Reduced) -> Finding | None:
    """The GPU waits for the CPU, which launches too slowly or does other work."""
    share = _idle(process, reduced, "host")
    if share < _SHARE:
        return None
    kernels = reduced.calls["kernels"] / max(len(process.traced), 1)
    seconds = [took / count for _, took, count in reduced.kernels]
    seen = _best(process, None) or _best(process, None, ("backward", "optimizer"))
    lines = [line for line in seen if not _WAITS.search(line.text)] or seen  # there the CPU waits for the GPU
    where = f", most at {lines[0].frame.place}: `{lines[0].text}`" if lines else ""
    places = tuple(line.frame for line in lines[:1])
    if kernels >= _LEAST_SHORT and seconds and median(seconds) < 50e-6:
        said = (
            f"the GPU has nothing to do in {share:.0%} of a step of {span(process.step)} because its {kernels:,.0f} "
            f"kernels, of {span(reduced.busy / max(reduced.calls['kernels'], 1))} each, are launched too slowly{where}"
        )
        fix = "fewer and larger operations, torch.compile(mode='reduce-overhead'), or CUDA graphs"
        return Finding("small-kernels", said, fix, places, share)
    said = f"the GPU has nothing to do in {share:.0%} of a step of {span(process.step)} while the CPU works{where}"
    return Finding("host", said, "move that work into the loader's processes or to the GPU", places, share)


def _copied(process: Process, reduced: Reduced) -> Finding | None:
    """Copies from memory that is not pinned, or into it, which nothing overlaps."""
    share = reduced.copies / reduced.seconds
    if share < _SHARE:
        return None
    back = 2 * reduced.fetched > reduced.copied
    lines = _best(process, _FETCHES if back else _COPIES, ("", "loader"))
    steps = max(len(process.traced), 1)
    rate = reduced.copied / max(reduced.copies, 1e-9) / 1e9
    said = (
        f"copies {'to' if back else 'from'} pageable memory take {share:.0%} of a step of {span(process.step)}: "
        f"{size(reduced.copied / steps)} a step at {rate:.1f} GB/s"
    )
    said += f", at {lines[0].frame.place}: `{lines[0].text}`" if lines else ""
    fix = "pin it (DataLoader(pin_memory=True) or tensor.pin_memory()) and copy with non_blocking=True ahead of its use"
    if back:
        fix = "keep it on the GPU, or copy_ it into a pinned tensor with non_blocking=True and wait for an event later"
    return Finding("pageable-copies", said, fix, tuple(line.frame for line in lines[:1]), share)


def _ranks(processes: Sequence[Process]) -> list[Finding]:
    """Which rank the others wait for: the last to come into a collective waits least in it.  It is the same one in most
    of them; who is late in turn, or because no processor was free for it, is not blamed."""
    ranks = [each for each in processes if each.rank and each.reduced is not None and each.reduced.joins]
    ranks = [each for each in ranks if each.kind != "loop"]  # whose records begin when each has found its loop
    joins = {each.rank: each.reduced.joins for each in ranks if each.reduced}
    if len(ranks) < 2 or len({len(each) for each in joins.values()}) > 1:
        return []
    last = [min(joins, key=lambda rank: joins[rank][at]) for at in range(len(joins[ranks[0].rank]))]
    name = max(set(last), key=last.count)
    waits = {each.rank: each.reduced.joined / max(len(each.traced), 1) for each in ranks if each.reduced}
    late = next(each for each in ranks if each.rank == name)
    others = [each for each in ranks if each is not late]
    step = median(each.step for each in ranks)
    each_waits = median(waits[each.rank] for each in others) - waits[late.rank]
    slowed = _queued(late) - min(map(_queued, others))
    if last.count(name) < _MOSTLY * len(last) or each_waits / step < max(_SHARE, 2 * slowed):
        return []
    line = _unlike(late, others)
    where = f"; it is then at {line.frame.place}: `{line.text}`" if line else ""
    names = ", ".join(each.rank for each in others[:8]) + (" and others" if len(others) > 8 else "")
    verb = "rank" if len(others) == 1 else "ranks"
    said = (
        f"{verb} {names} {'waits' if len(others) == 1 else 'wait'} {span(each_waits)} in each step of {span(step)} for "
        f"rank {late.rank}{where}"
    )
    fix = "give all ranks the same work: batches of one size, the same number of items, no work for one rank alone"
    return [Finding("rank-waits", said, fix, (line.frame,) if line else (), each_waits / step)]


def _queued(process: Process) -> float:
    """The share of its steps in which a process waited for a processor."""
    return process.queued / max(sum(process.steps), 1e-9)


def _unlike(late: Process, others: Sequence[Process]) -> Line | None:
    """The line that the late rank is at more often than the others."""
    usual: dict[tuple[PythonFrame, str], float] = {}
    for each in others:
        for line in each.lines:
            key = (line.frame, line.part)
            usual[key] = usual.get(key, 0.0) + line.seconds / max(each.looked, 1e-9) / len(others)
    return max(
        late.lines,
        key=lambda line: line.seconds / max(late.looked, 1e-9) - usual.get((line.frame, line.part), 0.0),
        default=None,
    )


def _should(process: Process, facts: Facts) -> list[str]:
    """What the datasheet of the GPU says of the matrix products and copies that a step does."""
    reduced = process.reduced
    if reduced is None or not process.gpu:
        return []
    peak = facts.peak(process.gpu)
    if peak is None:
        return [f"the facts have no peaks of {process.gpu}"]
    notes = []
    steps = max(len(process.traced), 1)
    for each in reduced.products:
        most = _peak(peak, each.dtype, process.tf32)
        if most and each.seconds > 0:
            reached = each.operations / each.seconds / 1e12
            notes.append(
                f"matrix products of {each.dtype}: {each.operations / steps / 1e12:.2f} TFLOP a step at {reached:,.0f} "
                f"TFLOP/s, {reached / most:.0%} of the {most:,.0f} that the datasheet of {peak.gpu} names; at that "
                f"rate they would take {span(each.operations / steps / most / 1e12)} of a step of {span(process.step)}"
            )
        if each.dtype == "float" and process.tf32 is False and peak.tf32 and each.seconds >= _SHARE * reduced.busy:
            notes.append(
                f"they are computed in single precision: with torch.backends.cuda.matmul.allow_tf32 = True the "
                f"datasheet names {peak.tf32:,.0f} TFLOP/s"
            )
    return notes


def _crowded(process: Process) -> list[str]:
    share = _queued(process)
    if share < _SHARE:
        return []
    return [
        f"its main thread waited for a processor in {share:.0%} of the time: more runs here than there are processors"
    ]


def _peak(peak: PeakRow, dtype: str, tf32: bool | None) -> float | None:
    """The datasheet's TFLOP/s for a number type as torch's traces name it; None where it names none."""
    known = {"c10::BFloat16": peak.bf16, "c10::Half": peak.fp16, "double": peak.fp64}
    known["float"] = peak.tf32 if tf32 else peak.fp32
    return known.get(dtype, peak.fp8 if "Float8" in dtype else None)


def _tables(process: Process, name: str) -> list[Table]:
    steps = max(len(process.traced), 1)
    rows = [
        ("a step", span(process.step), ""),
        ("waiting for its batch", *_cell(sum(process.loaded) / len(process.steps), process.step)),
    ]
    reduced = process.reduced
    if reduced is not None:
        per = reduced.seconds / steps
        if reduced.gpu:
            rows += [("GPU at work", *_cell(reduced.busy / steps, per))]
            words = {
                "loader": "waits for a batch",
                "sync": "ran dry while the CPU waited for it",
                "host": "waits for the CPU",
            }
            rows += [(f"GPU {words[key]}", *_cell(value / steps, per)) for key, value in reduced.gaps.items()]
            rows += [("copies from or to pageable memory", *_cell(reduced.copies / steps, per))]
        if reduced.joins:
            rows += [("in collectives", *_cell(reduced.joined / steps, per))]
        rows += [(f"operations of the main thread: {reduced.calls['operations'] // steps:,}", "", "")]
    tables = [Table(f"{name}where a step's time goes", ("what", "time", "share"), tuple(rows))]
    if process.lines:
        lines = tuple(
            (line.frame.place, line.part, f"{line.seconds / max(process.looked, 1e-9):.0%}", line.text)
            for line in process.lines[:_MOST_ROWS]
        )
        tables.append(Table(f"{name}where Python was", ("line", "part", "share", "text"), lines))
    if reduced is not None:
        sums = reduced.kernels if reduced.gpu else reduced.operations
        what = "kernels" if reduced.gpu else "operations"
        rows_ = tuple(
            (text[:90], *_cell(took / steps, reduced.seconds / steps), f"{count / steps:,.0f}")
            for text, took, count in sums[:_MOST_ROWS]
        )
        tables.append(Table(f"{name}{what} of a step", ("name", "time", "share", "times"), rows_))
    return tables


def _cell(seconds: float, whole: float) -> tuple[str, str]:
    return span(seconds), f"{seconds / whole:.0%}" if whole else ""


def _spans(process: Process) -> tuple[Span, ...]:
    """The picture of the last whole step of the trace."""
    reduced = process.reduced
    if reduced is None or not reduced.events or not process.traced:
        return ()
    begin = min(event.start for event in reduced.events)
    start = begin + sum(process.traced[:-1])
    end = start + process.traced[-1]
    found = []
    for event in reduced.events:
        if event.end > start and event.start < end:
            on_gpu = event.kind in ("kernel", "gpu_memcpy", "gpu_memset")
            lane = f"GPU stream {event.lane}" if on_gpu else f"thread {event.lane}"
            low, high = max(event.start, start) - start, min(event.end, end) - start
            found.append(Span(lane, event.name[:120], event.kind, low * 1000, high * 1000))
    found.sort(key=lambda each: each.start - each.end)  # the longest first, which a picture can show
    return tuple(sorted(found[:_MOST_SPANS], key=lambda each: (each.lane, each.start)))
