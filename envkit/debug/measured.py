"""`envkit debug --memory` and `--slow`: runs the command once and judges what its processes wrote down."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envkit import debug
from envkit.debug import job, measured_text, memory, repro, slow, snapshot
from envkit.debug.job import CommandRun, CommandTarget
from envkit.debug.measures import Judged, Measured
from envkit.debug.records import Verdict
from envkit.engine import Say
from envkit.facts import Facts

_MOST_BYTES = 512 << 20  # of one trace
_MOST_PROCESSES = 64


def run(request: debug.DebugRequest, ground: CommandTarget, facts: Facts, question: str, say: Say) -> Measured:
    """Runs the command with the companion that answers ``question``, "memory" or "slow", and judges.

    Raises UsageError as `envkit debug` does.
    """
    started = time.monotonic()
    ground, folder, _, _ = debug.prepared(request, ground)
    try:
        say(f"{question}: the command runs once, and its processes write down what they cost")
        added: dict[str, str | None] = {"ENVKIT_DEBUG_MEASURE": question, "KINETO_LOG_LEVEL": "5"}
        ran = job.run(
            ground, request.command, folder / question, budget_s=min(request.budget_s, request.stage_s), environ=added
        )
        judged = _judged(ran, facts, question)
        made = _report(request, ground, ran, question, judged, time.monotonic() - started, folder)
        return measured_text.written(made, folder)
    finally:
        if ground.image:
            debug.closed(folder)


def _judged(ran: CommandRun, facts: Facts, question: str) -> Judged:
    records = [raw for path in sorted(ran.folder.glob(f"{question}-*.json")) if (raw := _document(path)) is not None]
    try:
        if question == "memory":
            processes = [memory.process(raw, _snapshots(ran.folder, raw)) for raw in records[:_MOST_PROCESSES]]
            return memory.judge(processes, not ran.succeeded)
        return slow.judge([slow.process(raw, _trace(ran.folder, raw)) for raw in records[:_MOST_PROCESSES]], facts)
    except ValueError as error:
        said = f"what a process wrote down cannot be read: {error}"
        return Judged(notes=(said,), open=said)


def _document(path: Path) -> dict[str, Any] | None:
    """A JSON object of the folder, which the command can write to as well; None for what is none."""
    try:
        with job.plain_file(path) as file:
            plain = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None


def _trace(folder: Path, raw: Mapping[str, Any]) -> dict[str, Any] | None:
    name = str(raw.get("trace", ""))
    return _document(folder / name) if name and "/" not in name else None


def _snapshots(folder: Path, raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The snapshots that a record names, by their names; one that cannot be read is left out."""
    found = {}
    for each in [*raw.get("looks", ()), *raw.get("ooms", ())]:
        name = str(each.get("snapshot", ""))
        if name and "/" not in name:
            try:
                with job.plain_file(folder / name) as file:
                    found[name] = snapshot.unpickled(file.read(snapshot.MOST_BYTES + 1))
            except (OSError, ValueError):
                continue
    return found


def _report(
    request: debug.DebugRequest,
    ground: CommandTarget,
    ran: CommandRun,
    question: str,
    judged: Judged,
    elapsed_s: float,
    folder: Path,
) -> Measured:
    verdict, cause, fix = _verdict(ran, question, judged)
    kept = tuple(sorted(path.relative_to(folder).as_posix() for path in ran.folder.iterdir()))
    return Measured(
        question=question,
        command=tuple(repro.redacted_words(request.command)),
        image=ground.image,
        verdict=verdict,
        cause=cause,
        fix=fix,
        judged=judged,
        exit=ran.exit,
        ended=ran.ended,
        folder=str(folder),
        elapsed_s=round(elapsed_s, 3),
        files=kept,
    )


def _verdict(ran: CommandRun, question: str, judged: Judged) -> tuple[Verdict, str, str]:
    """The verdict, its cause and its fix; a command that failed is never clean, nor one that was not looked at."""
    if judged.findings:
        first = judged.findings[0]
        return Verdict.FOUND, first.said, first.fix
    if ran.ended == "not-started":
        return Verdict.UNDECIDED, f"the command was not started: {ran.error}", ""
    if not ran.succeeded and ran.ended == "exited":
        cause = f"the command exited with status {ran.exit}, and what it cost does not tell why"
        return Verdict.UNDECIDED, cause, f"envkit debug without --{question} looks for the cause"
    if judged.open:
        return Verdict.UNDECIDED, judged.open, ""
    return Verdict.CLEAN, "", ""
