"""From a subject to the end of a verb: judged, printed, and the exit code."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO

from typer import Exit

from envkit.cli.ending import say
from envkit.cli.options import severity

if TYPE_CHECKING:
    from envkit.model import Report
    from envkit.report import Bar, Detail, Table
    from envkit.subjects import SmokeRun


class Printing(NamedTuple):
    """How a report is printed, as the options of a verb say; ``fail_on`` makes the exit code 1."""

    format: str
    fail_on: str
    observed: bool
    detail: Detail


def judged_report(
    kind: str, seen: Any, started: float, tables: tuple[Table, ...] = (), require_gpu: bool = False
) -> tuple[Report, tuple[Table, ...]]:
    """The report on one subject, all of its checks run."""
    from envkit import facts
    from envkit.judging import judge, required
    from envkit.model import Report, Subject
    from envkit.subjects import codec

    results = judge.judge(seen, facts.load()) + (required.without_gpu(seen) if require_gpu else ())
    elapsed = round(time.monotonic() - started, 3)
    return Report(Subject(kind, seen.name), results, elapsed, codec.to_plain(seen), required.covered(seen)), tables


def finish(
    report: Report,
    tables: tuple[Table, ...],
    printing: Printing,
    *,
    bars: tuple[Bar, ...] = (),
    style: str = "envkit",
    out: TextIO | None = None,
    next_step: str = "",
) -> NoReturn:
    """Prints the report, below it what a person does next, and exits by it."""
    from dataclasses import replace

    from envkit.report import render
    from envkit.report.exit_codes import styled
    from envkit.system.terminal import columns, wants_color

    least = severity(printing.fail_on)
    shown = report if printing.observed else replace(report, observed={})
    stream = out or sys.stdout
    color, width = wants_color(stream, os.environ), columns(stream)
    filled = tuple(table for table in tables if table.rows)
    form, _, _, detail = printing
    try:
        stream.write(
            render(shown, form, fail_on=least, tables=filled, bars=bars, color=color, width=width, detail=detail)
        )
        stream.flush()
    except OSError:
        if stream is not sys.stderr:  # whoever reads that has the exit code all the same
            raise
    if next_step:
        say(next_step)
    raise Exit(styled(report, least, style))


def finish_smoke(run: SmokeRun, started: float, require_gpu: bool, printing: Printing) -> NoReturn:
    """Judges a smoke run, prints it with its speeds, and exits by it."""
    from envkit import facts
    from envkit.report import summary

    known = facts.load()
    judged = judged_report("smoke", run, started, (*summary.smoke(run), *summary.speeds(run, known)), require_gpu)
    finish(*judged, printing, bars=summary.bars(run, known))
