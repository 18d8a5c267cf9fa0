"""What `envkit debug` found as one HTML page: the cause, the kernel, who waits where side by side, and the stages.

No script and nothing loaded from elsewhere; its size is bounded whatever the command did.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from envkit.credentials import redacted_text
from envkit.debug import stacks
from envkit.debug.records import Child, DebugReport, Fault, PythonFrame, RankRow, Verdict, Waiting
from envkit.explain import as_html, as_text
from envkit.logs import knowledge
from envkit.records import dataclass
from envkit.report.page import filled
from envkit.system import proc

_MOST_FRAMES = 40  # of one stack, the innermost
_MOST_THREADS = 16  # of one process, the main one included
_MOST_PANELS = 48
_MOST_ROWS = 64
_MOST_CHILDREN = 16
_MOST_FILES = 200
_NATIVE = 8000  # characters of a native stack, its end
_SAID = 4000  # characters of any other text
_LOOKS = {Verdict.FOUND: "known", Verdict.CLEAN: "clean", Verdict.UNDECIDED: "open"}
_SILENT = {
    "race": "threads race for shared memory",
    "uninitialized": "a kernel reads memory that nobody wrote",
    "barrier": "not every thread of a block reaches its barrier",
}
_FAULTY = ("raised", "ended", "silent")  # states of a rank that keeps the others waiting


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame of a stack: ``short`` is its file's name and line, ``own`` whether it is the program's."""

    place: str
    short: str
    function: str
    own: bool


@dataclass(frozen=True, slots=True)
class _Panel:
    """One process, or ranks that stand in the same place."""

    name: str
    says: str
    main: tuple[_Frame, ...]
    others: tuple[tuple[_Frame, ...], ...] = ()
    native: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    """Ranks that say the same."""

    ranks: str
    cells: tuple[str, ...]
    odd: bool


def render(report: DebugReport) -> str:
    """The page."""
    said = as_text.safe(report.explanation) if report.explanation else None
    ranks = _rows(report.ranks)
    panels = _panels(report)
    return filled(
        "debugged.html.j2",
        {
            "verdict": report.verdict.value,
            "look": _LOOKS[report.verdict],
            "title": _title(report),
            "category": report.category,
            "cause_class": report.cause_class,
            "cause": _safe(report.cause),
            "command": _safe(shlex.join(report.command)),
            "image": _safe(report.image),
            "ending": _exit(report.exit) if report.exit is not None else "was ended by envkit",
            "elapsed_s": report.elapsed_s,
            "kernel": _kernel(report.fault) if report.fault else [],
            "python": _frames(report.python),
            "children": [_child(each) for each in report.children[:_MOST_CHILDREN]],
            "children_left_out": max(0, len(report.children) - _MOST_CHILDREN),
            "fix": _safe(report.fix),
            "next": [_safe(line) for line in report.next],
            "unseen": _safe(report.unseen),
            "page": as_text.page(report.category) if report.category else "",
            "ranks": ranks[:_MOST_ROWS],
            "ranks_left_out": sum(row.ranks.count(",") + 1 for row in ranks[_MOST_ROWS:]),
            "stacks": panels[:_MOST_PANELS],
            "stacks_left_out": max(0, len(panels) - _MOST_PANELS),
            "said": f"{said.because} ({as_text.sureness(said.confidence)}, {said.confidence:.2f})" if said else "",
            "evidence": as_html.evidence(said) if said else [],
            "stages": _stages(report),
            "passed": [(step.stage, _safe(step.why), _safe(step.get)) for step in report.steps if not step.ran],
            "folder": _safe(report.folder),
            "files": [_safe(name) for name in report.files[:_MOST_FILES]],
            "files_left_out": max(0, len(report.files) - _MOST_FILES),
            "versions": {_safe(name): _safe(value) for name, value in report.versions.items()},
        },
    )


def _safe(text: str) -> str:
    """Foreign text without what looks like a credential, of bounded length and encodable."""
    text = redacted_text(text.encode("utf-8", "backslashreplace").decode("utf-8"))
    return text if len(text) <= _SAID else f"{text[: _SAID - 3]}..."


def _title(report: DebugReport) -> str:
    """The kind of failure in a few words."""
    if report.verdict is Verdict.CLEAN:
        return "the command succeeded and no stage found a fault"
    known = knowledge.failures().get(report.category)
    if report.fault and report.fault.problem in _SILENT:  # which raise no error, so that the catalogue has none of them
        return _SILENT[report.fault.problem]
    if known and not report.ranks:
        return known.title
    return "a hang" if report.hang and report.verdict is Verdict.FOUND else report.category


def _exit(code: int) -> str:
    """An exit code in words, a signal by its name."""
    return f"exited with status {code}" if code >= 0 else f"died of {proc.signal_name(-code)} ({code})"


def _frames(frames: Sequence[PythonFrame]) -> tuple[_Frame, ...]:
    found = []
    for each in frames[-_MOST_FRAMES:]:
        short = f"{_safe(each.file.rpartition('/')[2])}:{each.line}"
        found.append(_Frame(_safe(each.place), short, _safe(each.function), stacks.is_own(each)))
    return tuple(found)


def _child(child: Child) -> dict[str, object]:
    """A process below the command that ended badly."""
    ended, stack, waiter = _exit(child.exit), _frames(child.stack), _frames(child.waiter)
    return {"pid": child.pid, "ended": ended, "stack": stack, "waiter": waiter}


def _kernel(fault: Fault) -> list[tuple[str, str]]:
    """What is known of the fault, name by name."""
    rows = [("kernel", fault.kernel)]
    if fault.place.where:
        inlined = f", in {fault.place.function}" if fault.place.function != fault.kernel else ""
        rows.append(("line", fault.place.where + inlined))
    else:
        rows.append(("line", "not known: the kernel was built without line numbers"))
    if fault.other and fault.other.where:
        rows.append(("races with", fault.other.where))
    if fault.thread:
        block = f" of block {fault.block}" if fault.block else ""
        rows.append(("thread", f"{fault.thread}{block}"))
    if fault.access:
        size = f" of {fault.size} bytes" if fault.size else ""
        address = f" at 0x{fault.address:x}" if fault.address is not None else ""
        rows.append(("access", f"{fault.access}{size}{address}"))
    if near := fault.near:
        size = f"of {near.size:,} bytes" if near.size else "of unknown size"
        lies = "the address is inside it" if near.side == "inside" else f"{near.distance:,} bytes {near.side} it"
        rows.append(("nearest allocation", f"0x{near.address:x} {size}; {lies}"))
    rows.append((fault.tool, fault.kind + (f" ({fault.count:,} times)" if fault.count > 1 else "")))
    return [(name, _safe(value)) for name, value in rows]


# Stages.


def _telling(report: DebugReport) -> str:
    """The stage that named the cause; empty where none did."""
    if report.verdict is not Verdict.FOUND:
        return ""
    if report.fault:
        return "core-dump" if report.fault.tool == "core" else report.fault.tool
    found = [step.stage for step in report.steps if step.ran and step.found not in ("", "nothing")]
    return found[-1] if found else "as-is"


def _stages(report: DebugReport) -> list[dict[str, object]]:
    """The stages that ran; "left" and "width" are in percent of the time of all."""
    ran = [step for step in report.steps if step.ran]
    whole = sum(step.seconds for step in ran) or 1.0
    telling = _telling(report)
    drawn: list[dict[str, object]] = []
    begun = 0.0
    for step in ran:
        role = "root" if step.stage == telling else "cascade" if step.ended != "exited" else "diagnostic"
        ended = _exit(step.exit) if step.ended == "exited" and step.exit is not None else step.ended
        place = {"left": round(100 * begun / whole, 3), "width": round(100 * step.seconds / whole, 3)}
        said = {"name": step.stage, "why": _safe(step.why), "found": _safe(step.found), "ended": ended}
        drawn.append({"role": role, "seconds": f"{step.seconds:.1f}", **place, **said})
        begun += step.seconds
    return drawn


# Ranks and processes.


def _rows(table: Sequence[RankRow]) -> list[_Row]:
    """A row for each different thing that ranks say, the odd ones marked."""
    waiting = any(row.state == "waits" for row in table)
    blamed = any(row.missing or row.state in _FAULTY for row in table)
    alike: dict[tuple[tuple[str, ...], bool], set[int]] = {}
    for row in table:
        odd = bool(row.missing or row.state in _FAULTY or (row.state == "elsewhere" and waiting and not blamed))
        alike.setdefault((_cells(row), odd), set()).add(row.rank)
    order = sorted(alike, key=lambda said: (not said[1], len(alike[said]), min(alike[said])))
    shown, rest = order[:_MOST_ROWS], order[_MOST_ROWS:]
    ordered = sorted(shown, key=lambda said: min(alike[said])) + rest
    return [_Row(as_text.ranges(alike[said]), said[0], said[1]) for said in ordered]


def _cells(row: RankRow) -> tuple[str, ...]:
    own = stacks.own_line(row.main)
    number = f" ({row.seq} of group {row.group})" if row.seq else ""
    without = f", without {', '.join(row.missing[:8])}" if row.missing else ""
    without += f" and {len(row.missing) - 8} more" if len(row.missing) > 8 else ""
    cells = (
        f"ended with {row.raised}" if row.raised else row.state,
        f"{'in' if row.state == 'waits' else 'last'} {row.operation}{number}" if row.operation else "",
        _short(row.called),
        _short(own),
        f"{row.backwards}{without}" if row.backwards else "",
    )
    return tuple(_safe(cell) for cell in cells)


def _short(frame: PythonFrame | None) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line} in {frame.function}" if frame else ""


def _panels(report: DebugReport) -> list[_Panel]:
    """The stacks of ranks and of hanging processes, ranks that stand in the same place in one panel."""
    states = {str(row.rank): row for row in report.ranks}
    hanging = [each for each in report.hang if each.rank or not report.ranks]
    seen = {each.rank for each in hanging if each.threads}
    alike: dict[object, list[Waiting | RankRow]] = {}
    for each in hanging:
        if each.threads or not each.rank:
            state = states[each.rank].state if each.rank in states else ""
            alike.setdefault((state, each.threads, each.native) if each.rank else each.pid, []).append(each)
    for row in report.ranks:
        if row.main and str(row.rank) not in seen:
            alike.setdefault((row.main,), []).append(row)
    return [_panel(many, states) for many in alike.values()]


def _panel(many: Sequence[Waiting | RankRow], states: dict[str, RankRow]) -> _Panel:
    first = many[0]
    numbers = {int(str(each.rank)) for each in many if str(each.rank).isdigit()}
    name = f"rank{'s' if len(numbers) > 1 else ''} {as_text.ranges(numbers)}" if numbers else f"process {first.pid}"
    if isinstance(first, RankRow):
        return _Panel(name, _safe(first.state), _frames(first.main))
    row = states.get(first.rank)
    says = [first.command[:200]] if not row else [row.state]
    if first.waits_in not in ("", "0"):
        says.append(f"Linux has it in {first.waits_in}")
    if not first.threads:
        says.append("it has no stack of Python")
    main = _frames(first.threads[-1]) if first.threads else ()
    others = tuple(_frames(thread) for thread in first.threads[:-1][: _MOST_THREADS - 1])
    native = redacted_text(first.native[-_NATIVE:].encode("utf-8", "backslashreplace").decode("utf-8"))
    return _Panel(name, _safe(", ".join(says)), main, others, native)
