"""A report as one HTML page for a browser or a build's artifacts: no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from envkit.model import Outcome, Report, Result, Severity
from envkit.records import dataclass
from envkit.report.console import Table
from envkit.report.covered import grounds, left
from envkit.report.page import filled

_ORDER = (Outcome.FAIL, Outcome.CRASHED, Outcome.UNKNOWN, Outcome.PASS, Outcome.SKIP)
_MARGIN = 1.05  # so that a mark at the right end is seen
_TIMED = "seconds"  # the column of a table whose numbers are drawn


@dataclass(frozen=True, slots=True)
class Bar:
    """One measured figure beside its limits: ``limit`` is what the hardware can do, ``good`` what a healthy one
    reached, both in ``unit`` and each None where it is not known."""

    label: str
    value: float
    unit: str
    limit: float | None = None
    good: float | None = None


def render(
    report: Report, fail_on: Severity = Severity.ERROR, bars: tuple[Bar, ...] = (), tables: tuple[Table, ...] = ()
) -> str:
    """The page: the verdict, one line a check, what failed first and what was skipped folded by its reason, then the
    bars and the tables.  The verdict is the exit code's."""
    said = Counter(result.outcome for result in report.results)
    counts = [f"{said[outcome]} {outcome.value}" for outcome in _ORDER if said[outcome]]
    if not said[Outcome.PASS] + said[Outcome.FAIL]:
        counts.insert(0, "nothing was judged")
    return filled(
        "report.html.j2",
        {
            "title": f"{report.subject.kind} {report.subject.name}".strip(),
            "verdict": report.verdict(fail_on).value,
            "grounds": grounds(report.coverage),
            "counts": "; ".join(filter(None, (", ".join(counts), left(report.coverage)))),
            "seconds": f"{report.elapsed_s:.1f}",
            "bars": [_drawn(bar) for bar in bars],
            "tables": [_table(one) for one in tables if one.rows],
            "lines": [_line(one) for one in sorted(report.results, key=_first) if one.outcome is not Outcome.SKIP],
            "skipped": _skipped(report),
        },
    )


def _drawn(bar: Bar) -> dict[str, object]:
    """A bar in percent of its width; a figure with nothing to be compared with is a number without a bar."""
    limits = [limit for limit in (bar.limit, bar.good) if limit]
    whole = max(bar.value, *limits) * _MARGIN if limits else None
    named = (("the peak", bar.limit), ("a healthy one", bar.good))
    shares = ", ".join(f"{bar.value / limit:.0%} of {name}" for name, limit in named if limit)

    def percent(value: float | None) -> float | None:
        return round(100.0 * max(value, 0.0) / whole, 2) if value is not None and whole else None

    drawn = {"filled": percent(bar.value), "limit": percent(bar.limit or None), "good": percent(bar.good or None)}
    return {"label": bar.label, "text": f"{bar.value:.4g} {bar.unit}", "shares": shares, **drawn}


def _table(table: Table) -> dict[str, object]:
    """A table whose seconds, if it has such a column, are drawn to the scale of the longest."""
    at = table.columns.index(_TIMED) if _TIMED in table.columns else None
    times = [_seconds(row[at]) if at is not None else None for row in table.rows]
    longest = max((time for time in times if time), default=0.0)
    drawn = [round(100.0 * time / longest, 2) if time and longest else None for time in times]
    named = any(table.columns)
    rows = list(zip(table.rows, drawn, strict=True))
    return {"title": table.title, "columns": table.columns if named else (), "rows": rows, "timed": any(drawn)}


def _seconds(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _skipped(report: Report) -> list[dict[str, object]]:
    """The checks that did not apply, by why, the most frequent reason first."""
    skipped = sorted((one for one in report.results if one.outcome is Outcome.SKIP), key=lambda one: one.reason)
    folded = [(reason, [one.check for one in several]) for reason, several in groupby(skipped, lambda one: one.reason)]
    folded.sort(key=lambda fold: -len(fold[1]))
    return [{"reason": reason, "checks": sorted(names)} for reason, names in folded]


def _worst(result: Result) -> int:
    return max((finding.severity for finding in result.findings), default=0)


def _first(result: Result) -> tuple[int, int, str]:
    return _ORDER.index(result.outcome), -_worst(result), result.check


def _line(result: Result) -> dict[str, object]:
    """One check in one line, and what it found."""
    severity = Severity(_worst(result)).name.lower() if result.findings else ""
    found = {"severity": severity, "findings": sorted(result.findings, key=lambda finding: -finding.severity)}
    return {"outcome": result.outcome.value, "check": result.check, "reason": result.reason, **found}
