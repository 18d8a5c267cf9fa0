"""Findings beside the lines that cause them, as compilers show them; for a person at a terminal or reading a log."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import lru_cache

from envkit.credentials import HIDDEN, SECRET, redacted_text, surely_names_secret
from envkit.model import Finding, Outcome, Report, Severity, Verdict
from envkit.report import Detail
from envkit.report.text import visible
from envkit.static import JudgedFile

_COLORS = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.NOTE: "1;36"}
_WIDEST = 160  # characters of a source line that are shown; longer ones are cut around what is marked
_NAMED = 3  # reasons named of what was left open in a file


def render(
    judged: Sequence[JudgedFile],
    report: Report,
    least: Severity,
    color: bool = False,
    width: int = 100,
    detail: Detail = Detail.NORMAL,
) -> str:
    """The findings of all files in the order of their lines, what was left open unless ``detail`` is QUIET, and a last
    line with the verdict.

    ``report`` is the one of all files, ``least`` what its verdict goes by; findings below it are shown too.
    """
    parts: list[str] = []
    for each in judged:
        found = [(result.check, finding) for result in each.results for finding in result.findings]
        for check, finding, also in _once(sorted(found, key=lambda one: _place(one[1]))):
            said = [*_finding(check, finding, each, color, width)]
            said += _noted(" " * len(str(finding.span.line)), "also", also, width) if also and finding.span else ()
            parts.append("\n".join(said) + "\n")
        if detail is not Detail.QUIET:
            parts += list(_open(each, least, color, width))
    return "\n".join([*parts, _summary(judged, report.verdict(least), least, color)])


def _once(found: Sequence[tuple[str, Finding]]) -> Iterator[tuple[str, Finding, str]]:
    """Each finding with the other lines of its file of which the same is true; those are left out."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for check, finding in found:
        path = finding.span.path if finding.span else id(finding)
        alike.setdefault((check, finding.severity, finding.message, finding.fix, path), []).append(finding)
    for key, same in alike.items():
        numbers = sorted({one.span.line for one in same if one.span})[1:]
        lines = f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}" if numbers else ""
        yield str(key[0]), same[0], lines


def _place(finding: Finding) -> tuple[int, int, int]:
    return (finding.span.line, finding.span.column, -finding.severity) if finding.span else (0, 0, 0)


def _painted(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def _finding(check: str, finding: Finding, judged: JudgedFile, color: bool, width: int) -> Iterator[str]:
    word = finding.severity.name.lower()
    head = _painted(f"{word}[{check}]", _COLORS[finding.severity], color)
    yield f"{head}: {_one_line(_safe(finding.message))}"
    span = finding.span
    lines = judged.lines
    margin = "     "
    if span is None:
        yield f"  --> {_one_line(visible(judged.path))}"
    elif span.path == judged.path and 0 < span.line <= len(lines):
        yield f"  --> {_one_line(visible(str(span)))}"
        margin = " " * len(str(span.line))
        line = _without_marked(judged, span.line).rstrip("\r")
        if line == lines[span.line - 1].rstrip("\r"):
            source, start, length = _cut(line, span.column, _length(finding, lines))
        else:  # the columns no longer fit: mark the whole line
            source, start, length = _cut(line, 1, len(line))
        yield f"{margin} |"
        yield f"{span.line} | {source}".rstrip()
        yield f"{margin} | {' ' * start}{_painted('^' * max(1, length), _COLORS[finding.severity], color)}"
    else:  # the place is in a file beside it, which a requirements option or a COPY led to
        yield f"  --> {_one_line(visible(str(span)))}, by way of {_one_line(visible(judged.path))}"
    for value, how in finding.evidence.items():
        yield from _noted(margin, "because", f"{value}: {how}" if how else value, width)
    if finding.fix:
        yield from _noted(margin, "fix", finding.fix, width)


@lru_cache(4096)  # many findings of many files say the same
def _safe(text: str) -> str:
    """The text without credentials and without anything that a terminal obeys."""
    return visible(redacted_text(text))


def _one_line(text: str) -> str:
    """A text out of a file, or a file's name, that cannot begin a line of its own."""
    return text.replace("\n", "\\n")


def _noted(margin: str, word: str, text: str, width: int) -> Iterator[str]:
    first = f"{margin} = {word}: "
    safe = _safe(text)
    if len(first) + len(safe) <= max(width, 60) and "\n" not in safe:
        yield first + safe
        return
    yield from _wrapped(safe, width, first, " " * len(first))


def _wrapped(text: str, width: int, first: str, indent: str) -> Iterator[str]:
    """The text in lines, none of which begins like one of GitHub's workflow commands, which its runner would obey."""
    held = ""
    lines = textwrap.wrap(text, max(width, 60), initial_indent=first, subsequent_indent=indent, break_long_words=False)
    for line in lines:
        if held and line.lstrip().startswith("::"):
            held += " " + line.lstrip()
            continue
        if held:
            yield held
        held = line
    if held:
        yield held


def _without_marked(judged: JudgedFile, number: int) -> str:
    """A line of the file without what a finding of it marks as a secret, which no shape or name may tell."""
    line = judged.lines[number - 1]
    marked = {
        (finding.span.column, finding.span.end_column)
        for result in judged.results
        for finding in result.findings
        if SECRET in finding.evidence and finding.span is not None and finding.span.path == judged.path
        if finding.span.line == number and finding.span.end_line in (0, number)
    }
    for begin, end in sorted(marked, reverse=True):
        text = line[begin - 1 : end - 1]
        if text and not re.search(r"[\s$]", text) and not surely_names_secret(text):
            line = f"{line[: begin - 1]}{HIDDEN}{line[end - 1 :]}"
    return line


def _length(finding: Finding, lines: Sequence[str]) -> int:
    span = finding.span
    if span is None:
        return 1
    if span.end_line in (0, span.line):
        return max(1, span.end_column - span.column)
    return max(1, len(lines[span.line - 1].rstrip()) - span.column + 1)


_redacted = lru_cache(1024)(redacted_text)  # several findings often stand on one line


def _cut(line: str, column: int, length: int) -> tuple[str, int, int]:
    """The line as shown, where its mark begins, and the mark's length; tabs become a blank, secrets are hidden."""
    hidden = _redacted(line)
    if hidden != line:  # the columns no longer fit: mark the whole line
        line, column, length = hidden, 1, len(hidden)
    start = min(max(0, column - 1), len(line))
    length = max(1, min(length, len(line) - start))
    if len(line) > _WIDEST:
        begin = max(0, min(start - 20, len(line) - _WIDEST))
        line, start = line[begin : begin + _WIDEST], start - begin
        length = min(length, len(line) - start)
    before, marked = visible(line[:start].replace("\t", " ")), visible(line[start : start + length].replace("\t", " "))
    return before + marked + visible(line[start + length :].replace("\t", " ")), len(before), max(1, len(marked))


def _open(judged: JudgedFile, least: Severity, color: bool, width: int) -> Iterator[str]:
    """What stayed undecided, a block a reason: several checks often lack the same; first what decides the verdict."""
    reasons: dict[str, list[str]] = {}
    decisive = {result.reason for result in judged.results if result.is_open(least)}
    for result in judged.results:
        if result.outcome in (Outcome.UNKNOWN, Outcome.CRASHED):
            reasons.setdefault(result.reason, []).append(result.check)
    path = _one_line(visible(judged.path))
    ordered = sorted(reasons.items(), key=lambda one: one[0] not in decisive)
    for reason, checks in ordered[:_NAMED]:
        more = f" and {len(checks) - _NAMED} more" if len(checks) > _NAMED else ""
        head = _painted("undecided", "1;35", color) if reason in decisive else _painted("open", "1;36", color)
        head += f"[{', '.join(checks[:_NAMED])}{more}]"
        yield "\n".join([f"{head}:", *_wrapped(_safe(reason), width, "    ", "    "), f"  --> {path}"]) + "\n"
    if len(reasons) > _NAMED:
        yield f"{len(reasons) - _NAMED} more reasons left checks of {path} open; --format json has all\n"


def _summary(judged: Sequence[JudgedFile], verdict: Verdict, least: Severity, color: bool) -> str:
    counts = dict.fromkeys(sorted(Severity, reverse=True), 0)
    undecided = open_ = 0
    for each in judged:
        for result in each.results:
            undecided += result.is_open(least)
            open_ += result.outcome is Outcome.UNKNOWN and not result.is_open(least)
            for finding in result.findings:
                counts[finding.severity] += 1
    said = [f"{n} {severity.name.lower()}{'s' if n != 1 else ''}" for severity, n in counts.items() if n]
    unread = sum(bool(each.unreadable) for each in judged)
    said += [f"{n} {word}" for n, word in ((undecided, "undecided"), (unread, "unreadable")) if n]
    said += [f"{'' if said else 'nothing found, '}{open_} open"] if open_ else []
    if not said:
        said = ["nothing found"] if verdict is Verdict.PASS else ["no check applies"]
    files = f"{len(judged)} file{'s' if len(judged) != 1 else ''}"
    code = {Verdict.FAIL: "1;31", Verdict.UNDECIDED: "1;35", Verdict.PASS: "1;32"}[verdict]
    return f"{_painted(verdict.name, code, color)}: {files}: {', '.join(said)}\n"
