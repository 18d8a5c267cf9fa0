"""A report as one HTML page for a browser or a build's artifacts: no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections import Counter

from envkit.model import Outcome, Report, Result, Severity
from envkit.records import dataclass
from envkit.report.covered import grounds, left
from envkit.report.page import filled

_ORDER = (Outcome.FAIL, Outcome.CRASHED, Outcome.UNKNOWN, Outcome.PASS, Outcome.SKIP)
_MARGIN = 1.05  # so that a mark at the right end is seen


@dataclass(frozen=True, slots=True)
class Bar:
    """One measured figure beside its limits: ``limit`` is what the hardware can do, ``good`` what a healthy one
    reached, both in ``unit`` and each None where it is not known."""

    label: str
    value: float
    unit: str
    limit: float | None = None
    good: float | None = None


def render(report: Report, fail_on: Severity = Severity.ERROR, bars: tuple[Bar, ...] = ()) -> str:
    """The page: the verdict, the bars, then one line a check, what failed first.  The verdict is the exit code's."""
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
            "lines": [_line(result) for result in sorted(report.results, key=_first)],
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


def _worst(result: Result) -> int:
    return max((finding.severity for finding in result.findings), default=0)


def _first(result: Result) -> tuple[int, int, str]:
    return _ORDER.index(result.outcome), -_worst(result), result.check


def _line(result: Result) -> dict[str, object]:
    """One check in one line, and what it found."""
    severity = Severity(_worst(result)).name.lower() if result.findings else ""
    found = {"severity": severity, "findings": sorted(result.findings, key=lambda finding: -finding.severity)}
    return {"outcome": result.outcome.value, "check": result.check, "reason": result.reason, **found}
