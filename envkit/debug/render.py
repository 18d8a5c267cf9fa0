"""The report of `envkit debug` as text and as JSON of the shape ``debug-1.schema.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from envkit import __version__
from envkit.credentials import redacted_text
from envkit.debug import ranks, stacks
from envkit.debug.records import DebugReport, Fault, PythonFrame, RankRow, Verdict, Waiting
from envkit.logs.records import Explanation
from envkit.report.text import visible

SCHEMA = "envkit.debug/1"
_MOST_FRAMES = 12
_MOST_TEXT = 4000


def document(report: DebugReport) -> str:
    """The report as one JSON document, indented, in ASCII; what looks like a credential is hidden."""
    fault = report.fault
    plain: dict[str, Any] = {
        "schema": SCHEMA,
        "tool": {"name": "envkit", "version": __version__},
        "command": list(report.command),
        "image": report.image or None,
        "verdict": report.verdict.value,
        "exit": report.exit,
        "cause": report.cause,
        "category": report.category,
        "cause_class": report.cause_class,
        "kernel": _fault(fault) if fault else None,
        "first_wrong": report.first_wrong,
        "python": list(map(_frame, report.python)),
        "launched_at": _frame(stacks.own_line(report.python)),
        "children": [asdict(each) for each in report.children],
        "hang": [_waiting(each) for each in report.hang],
        "ranks": [_rank(row) for row in report.ranks],
        "steps": [asdict(step) for step in report.steps],
        "explanation": _explanation(report.explanation) if report.explanation else None,
        "fix": report.fix,
        "next": list(report.next),
        "unseen": report.unseen,
        "folder": report.folder,
        "files": list(report.files),
        "versions": dict(report.versions),
        "elapsed_s": report.elapsed_s,
    }
    return json.dumps(cleaned(plain), indent=2, allow_nan=False) + "\n"


def cleaned(value: Any) -> Any:
    """Plain data whose texts can be encoded and hold nothing that looks like a credential."""
    if isinstance(value, str):
        return redacted_text(value.encode("utf-8", "backslashreplace").decode("utf-8"))
    if isinstance(value, dict):
        return {str(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def _frame(frame: PythonFrame | None) -> dict[str, Any] | None:
    return asdict(frame) if frame else None


def _fault(fault: Fault) -> dict[str, Any]:
    near, other = fault.near, fault.other
    lies = near and {**asdict(near), "address": f"0x{near.address:x}", "size": near.size or None}
    return {
        "tool": fault.tool,
        "kind": fault.kind,
        "problem": fault.problem,
        "name": fault.kernel,
        "function": fault.place.function,
        "file": fault.place.file,
        "line": fault.place.line or None,
        "thread": fault.thread,
        "block": fault.block,
        "access": fault.access,
        "size": fault.size or None,
        "address": f"0x{fault.address:x}" if fault.address is not None else None,
        "nearest_allocation": lies,
        "other": {"function": other.function, "file": other.file, "line": other.line or None} if other else None,
        "host_frames": list(fault.host),
        "count": fault.count,
    }


def _rank(row: RankRow) -> dict[str, Any]:
    return {
        "rank": row.rank,
        "host": row.host,
        "pid": row.pid,
        "state": row.state,
        "operation": row.operation,
        "group": row.group,
        "seq": row.seq or None,
        "called_at": _frame(row.called),
        "device": row.device,
        "stack": list(map(_frame, row.main)),
        "stands_at": _frame(stacks.own_line(row.main)),
        "backwards": row.backwards,
        "without_gradient": list(row.missing),
        "raised": row.raised,
    }


def _waiting(each: Waiting) -> dict[str, Any]:
    return {
        "pid": each.pid,
        "command": each.command,
        "rank": each.rank,
        "cuda": each.cuda,
        "state": each.state,
        "waits_in": each.waits_in,
        "says": stacks.waits(each),
        "threads": [list(map(_frame, thread)) for thread in each.threads],
        "native": each.native[-_MOST_TEXT:],
    }


def _explanation(told: Explanation) -> dict[str, Any]:
    return {
        "category": told.category,
        "cause_class": told.cause,
        "confidence": told.confidence,
        "because": told.because,
        "evidence": [
            {"file": mark.line.file, "line": mark.line.number, "text": mark.line.text, "role": mark.role.value}
            for mark in told.evidence
        ],
        "fix": told.fix,
        "page": f"envkit explain {told.category}",
    }


def text(report: DebugReport, quiet: bool = False) -> str:
    """The report for a person: the verdict first, then what was seen, then each stage, which ``quiet`` leaves out."""
    return "".join(f"{visible(redacted_text(line))}\n" for line in _lines(report, quiet))


def _lines(report: DebugReport, quiet: bool) -> Iterator[str]:
    head = {
        Verdict.FOUND: "FOUND",
        Verdict.CLEAN: "CLEAN: the command succeeded and no stage found a fault",
        Verdict.UNDECIDED: "UNDECIDED",
    }[report.verdict]
    yield head + (f": {report.cause}" if report.cause else "")
    if report.category:
        yield f"  category: {report.category}" + (f" ({report.cause_class})" if report.cause_class else "")
    if report.fix:
        yield f"  fix: {report.fix}"
    if report.fault:
        yield from _fault_lines(report.fault)
    if report.python:
        yield "  Python, the innermost last:"
        for frame in report.python[-_MOST_FRAMES:]:
            yield f"    {frame.place} in {frame.function}"
    for child in report.children[:8]:
        yield f"  process {child.pid} below the command ended with {child.exit}"
    if len(report.children) > 8:
        yield f"  and {len(report.children) - 8} more"
    if report.ranks:
        yield "  ranks side by side:"
        for line in ranks.lines(report.ranks)[:32]:
            yield f"    {line}"
    for each in [each for each in report.hang if each.rank or not report.ranks][:16]:
        yield f"  {stacks.waits(each)}"
        for frame in (each.threads[-1] if each.threads else ())[-_MOST_FRAMES:]:
            yield f"    {frame.place} in {frame.function}"
    if report.explanation and report.explanation.evidence:
        yield "  from the command's own output:"
        for mark in report.explanation.evidence:
            yield f"    {mark.line.place}: {mark.line.text[:200]}"
    if not quiet:
        yield "  stages:"
    for step in () if quiet else report.steps:
        if not step.ran:
            yield f"    {step.stage}: not run, {step.why}"
            if step.get:
                yield f"      get it: {step.get}"
            continue
        ended = f"exited with status {step.exit}" if step.ended == "exited" else step.ended
        yield f"    {step.stage}: {ended} in {step.seconds:.1f} s" + (f"; {step.found}" if step.found else "")
    if report.unseen:
        yield f"  not seen: {report.unseen}"
    for line in report.next:
        yield f"  next: {line}"
    yield f"  files: {report.folder} (repro.sh runs it again)"


def _fault_lines(fault: Fault) -> Iterator[str]:
    yield f"  kernel: {fault.kernel}"
    if fault.place.where:
        inlined = f" in {fault.place.function}" if fault.place.function != fault.kernel else ""
        yield f"  line: {fault.place.where}{inlined}"
    if fault.other and fault.other.where:
        yield f"  races with: {fault.other.where}"
    if fault.thread:
        yield f"  thread {fault.thread}" + (f" of block {fault.block}" if fault.block else "")
    if fault.near:
        near = fault.near
        yield f"  nearest allocation: 0x{near.address:x}, {near.size:,} bytes; {near.distance:,} bytes {near.side}"
