"""A report for a person at a terminal or reading a build log; colour repeats what the words already say."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from enum import Enum, auto

from envkit.model import Finding, Outcome, Report, Severity, Verdict
from envkit.records import dataclass
from envkit.report.covered import behind, left
from envkit.report.text import visible, wrapped

_VERDICTS = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.UNDECIDED: "bold yellow"}
_SEVERITIES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_WORDS = {
    Outcome.FAIL: "failed", Outcome.UNKNOWN: "unknown", Outcome.CRASHED: "crashed", Outcome.PASS: "passed",
    Outcome.SKIP: "skipped",
}  # fmt: skip
_NAMED = 3  # checks named of those skipped for one reason; what leaves the verdict open is named in full
_NARROWEST = 40  # columns; below it nothing is readable, so that lines run over instead
_GAP = "  "


class Detail(Enum):
    """How much of a report is printed: the verdict, its findings, and what leaves it open; also what stayed open
    beside a verdict, and tables; also the checks that were skipped or passed."""

    QUIET = auto()
    NORMAL = auto()
    VERBOSE = auto()


@dataclass(frozen=True, slots=True)
class Table:
    """Something observed that a person wants to see beside the verdict, as "libraries as loaded".

    ``rows`` have as many cells as there are ``columns``, else ValueError is raised.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"`{self.title}` has {len(self.columns)} columns, a row of it {len(row)}")


@dataclass(frozen=True, slots=True)
class _Line:
    """One printed line; the first ``marked`` characters of it are shown in ``style``."""

    text: str
    marked: int = 0
    style: str = ""


def render(
    report: Report,
    fail_on: Severity = Severity.ERROR,
    tables: tuple[Table, ...] = (),
    color: bool = False,
    width: int = 80,
    detail: Detail = Detail.NORMAL,
) -> str:
    """Verdict, findings by severity, what was not proven, tables, and all that ``detail`` asks for; lines of at most
    ``width`` columns.

    A word longer than a line (a path, a digest) runs over it unbroken, so that it can be copied.
    """
    width = max(width, _NARROWEST)
    blocks = [_verdict(report, fail_on, width), *_failures(report, width)]
    if detail is not Detail.QUIET or report.verdict(fail_on) is Verdict.UNDECIDED:
        blocks.append(_unproven(report, width, detail))
    if detail is not Detail.QUIET:
        blocks += [_table(table, width) for table in tables]
    if detail is Detail.VERBOSE:
        blocks.append(_passes(report, width))
    lines = [line for block in blocks if block for line in (*block, _Line(""))][:-1]
    return _styled(lines) if color else "".join(f"{line.text}\n" for line in lines)


def _styled(lines: list[_Line]) -> str:
    # Imported here: half of the start-up time of a command that prints JSON would go into it.
    from rich.console import Console
    from rich.text import Text

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="standard", no_color=False)
    for line in lines:
        text = Text(line.text)
        text.stylize(line.style, 0, line.marked)
        console.print(text, soft_wrap=True)
    return stream.getvalue()


def _marked(lines: list[str], marked: int, style: str) -> list[_Line]:
    return [_Line(lines[0], marked, style), *map(_Line, lines[1:])]


def _verdict(report: Report, fail_on: Severity, width: int) -> list[_Line]:
    verdict = report.verdict(fail_on)
    said = Counter(result.outcome for result in report.results)
    found = Counter(finding.severity for result in report.results for finding in result.findings)
    counts = [f"{said[outcome]} {word}" for outcome, word in _WORDS.items() if said[outcome]]
    if not said[Outcome.PASS] + said[Outcome.FAIL]:
        counts.insert(0, "nothing was judged")
    findings = [f"{found[one]} {one.name.lower()}{'s' if found[one] > 1 else ''}" for one in _SEVERITIES if found[one]]
    counted = "; ".join(filter(None, (", ".join(findings), ", ".join(counts), left(report.coverage))))
    word = verdict.value.upper()
    name = f"{report.subject.kind} {report.subject.name}".strip()
    line = f"{behind(word, report.coverage)}: {name}: {counted} ({report.elapsed_s:.1f} s)"
    return _marked(wrapped(line, width, rest=_GAP), len(word), _VERDICTS[verdict])


def _failures(report: Report, width: int) -> Iterator[list[_Line]]:
    failures = [(result.check, finding) for result in report.results for finding in result.findings]
    for check, finding in sorted(failures, key=lambda failure: -failure[1].severity):
        yield _failure(check, finding, width)


def _failure(check: str, finding: Finding, width: int) -> list[_Line]:
    severity = finding.severity.name.lower()
    lines = wrapped(f"{severity}: {check}: {finding.message}", width, rest=_GAP)
    details = [("where", finding.where)] if finding.where else []
    details += [("found", f"{value} ({how})" if how else value) for value, how in finding.evidence.items()]
    details += [("fix", finding.fix)] if finding.fix else []
    for label, text in details:
        lines += wrapped(text, width, first=f"{_GAP}{label + ':':<7}", rest=_GAP + " " * 7)
    return _marked(lines, len(severity), _SEVERITIES[finding.severity])


def _unproven(report: Report, width: int, detail: Detail) -> list[_Line]:
    lines: list[_Line] = []
    shown_too = (Outcome.SKIP,) if detail is Detail.VERBOSE else ()
    for outcome in (Outcome.CRASHED, Outcome.UNKNOWN, *shown_too):
        groups: dict[str, list[str]] = {}
        for result in report.results:
            if result.outcome is outcome:
                groups.setdefault(result.reason, []).append(result.check)
        for reason, names in groups.items():
            shown = _NAMED if outcome is Outcome.SKIP and len(names) > _NAMED + 1 else len(names)
            more = f" and {len(names) - shown} more" if shown < len(names) else ""
            word = _WORDS[outcome]
            text = f"{word}: {', '.join(names[:shown])}{more}: {reason or 'no reason given'}"
            style = "" if outcome is Outcome.SKIP else "yellow"
            lines += _marked(wrapped(text, width, _GAP, _GAP * 2), len(_GAP + word), style)
    return [_Line("not proven here"), *lines] if lines else []


def _passes(report: Report, width: int) -> list[_Line]:
    names = [result.check for result in report.results if result.outcome is Outcome.PASS]
    if not names:
        return []
    return _marked(wrapped(f"passed: {', '.join(names)}", width, rest=_GAP), len("passed"), "green")


def _table(table: Table, width: int) -> list[_Line]:
    """Columns that do not fit, the widest first, go to lines of their own below each row."""
    rows = [tuple(" ".join(visible(cell).split()) for cell in row) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.columns, *rows, strict=True)]
    beside = list(range(len(widths)))
    while len(beside) > 1 and sum(widths[at] + len(_GAP) for at in beside) > width:
        beside.remove(max(beside, key=lambda at: widths[at]))
    below = [at for at in range(len(widths)) if at not in beside]

    def line(cells: tuple[str, ...]) -> str:
        return (_GAP + _GAP.join(f"{cells[at]:<{widths[at]}}" for at in beside)).rstrip()

    lines = [_Line(visible(table.title)), _Line(line(table.columns))]
    for row in rows:
        lines.append(_Line(line(row)))
        for at in below:
            label = f"{_GAP * 2}{table.columns[at]}: "
            lines += map(_Line, wrapped(row[at], width, label, _GAP * 3))
    return lines
