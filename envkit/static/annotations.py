"""Findings for the review pages of code hosts: GitHub's workflow commands, GitLab's code quality report."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from envkit.credentials import redacted_text
from envkit.model import Finding, Outcome, Severity
from envkit.report.text import visible
from envkit.static import READ, JudgedFile

_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_GITLAB = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.NOTE: "info"}


def github(judged: Sequence[JudgedFile]) -> str:
    """A workflow command a line, as GitHub Actions reads them from a job's output ("Workflow commands for GitHub
    Actions"): a finding each, a warning for what stayed undecided, an error for a file that could not be read.
    """
    return "".join(f"{line}\n" for each in judged for line in _commands(each))


def _commands(judged: JudgedFile) -> Iterator[str]:
    if judged.unreadable:
        yield f"::error file={_value(judged.path)},title={READ}::{_text(judged.unreadable)}"
    for result in judged.results:
        for finding in result.findings:
            where = ",".join([*_place(finding, judged), f"title={_value(result.check)}"])
            said = finding.message + (f"\nfix: {finding.fix}" if finding.fix else "")
            yield f"::{_GITHUB[finding.severity]} {where}::{_text(said)}"
    # A host shows a few commands of a step: one for each reason, however many checks it leaves open.
    open_ = [result for result in judged.results if result.outcome in (Outcome.UNKNOWN, Outcome.CRASHED)]
    for reason in dict.fromkeys(result.reason for result in open_):
        names = ", ".join(result.check for result in open_ if result.reason == reason)
        where = f"file={_value(judged.path)},title=undecided"
        worst = max(result.at_most for result in open_ if result.reason == reason)
        word = _GITHUB[Severity.WARNING if worst is Severity.ERROR else Severity.NOTE]
        yield f"::{word} {where}::{_text(f'{reason} ({names})')}"


def _place(finding: Finding, judged: JudgedFile) -> Iterator[str]:
    span = finding.span
    yield f"file={_value(span.path if span else judged.path)}"
    if span is None:
        return
    yield f"line={span.line}"
    if span.end_line not in (0, span.line):  # columns are for places on one line
        yield f"endLine={span.end_line}"
        return
    yield f"col={span.column}"
    if span.end_column:
        yield f"endLine={span.line}"
        yield f"endColumn={span.end_column}"


def gitlab(judged: Sequence[JudgedFile]) -> str:
    """The JSON array that GitLab takes as a codequality report ("Code Quality report format")."""
    seen: Counter[str] = Counter()
    found = [each for one in judged for each in _issues(one, seen)]
    return json.dumps(found, indent=2) + "\n"


def _issues(judged: JudgedFile, seen: Counter[str]) -> Iterator[dict[str, Any]]:
    if judged.unreadable:
        yield _issue(READ, judged.unreadable, "blocker", judged.path, 1, seen)
    for result in judged.results:
        for finding in result.findings:
            path, line = (finding.span.path, finding.span.line) if finding.span else (judged.path, 1)
            yield _issue(result.check, finding.message, _GITLAB[finding.severity], path, line, seen)


def _issue(check: str, message: str, severity: str, path: str, line: int, seen: Counter[str]) -> dict[str, Any]:
    path = visible(path.removeprefix("./"))
    text = visible(redacted_text(message))
    known = f"{check}\0{path}\0{text}"
    seen[known] += 1  # GitLab drops what has the fingerprint of another
    return {
        "description": text,
        "check_name": check,
        "fingerprint": hashlib.sha256(f"{known}\0{seen[known]}".encode()).hexdigest(),
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }


def _text(text: str) -> str:
    safe = visible(redacted_text(text))
    return safe.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
