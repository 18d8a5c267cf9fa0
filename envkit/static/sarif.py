"""Findings as SARIF 2.1.0, which code hosts show beside the lines (OASIS, Static Analysis Results Interchange
Format).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from envkit import __version__
from envkit.credentials import redacted_text
from envkit.judging import pages
from envkit.model import Edit, Finding, Outcome, Severity, Span
from envkit.report.text import visible
from envkit.static import JudgedFile

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LONGEST = 1024  # characters of a description that GitHub takes ("SARIF support for code scanning")
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def render(judged: Sequence[JudgedFile]) -> str:
    """The document: one run, a rule for each check that said something, a result a finding.

    What stayed undecided or could not be read is a notification of the run, which then did not end successfully.
    """
    names = sorted({result.check for each in judged for result in each.results if result.findings})
    index = {name: number for number, name in enumerate(names)}
    seen: Counter[str] = Counter()
    results = [
        _result(result.check, index[result.check], finding, each, seen)
        for each in judged
        for result in each.results
        for finding in result.findings
    ]
    notes = [note for each in judged for note in _notifications(each)]
    run = {
        "tool": {
            "driver": {
                "name": "envkit",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(name) for name in names],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": not any(each.unreadable for each in judged), "toolExecutionNotifications": notes}
        ],
        "artifacts": [{"location": {"uri": _uri(each.path)}} for each in judged],
        "results": results,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str) -> dict[str, Any]:
    page = pages.load(name)
    return {
        "id": name,
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.sections["Why"][:_LONGEST]},
        "help": {"text": page.sections["Fix"]},
    }


def _result(check: str, index: int, finding: Finding, judged: JudgedFile, seen: Counter[str]) -> dict[str, Any]:
    text = redacted_text(finding.message)
    if finding.fix:
        text += f"; fix: {redacted_text(finding.fix)}"
    span = finding.span or Span(judged.path, 1)
    found: dict[str, Any] = {
        "ruleId": check,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": visible(text)},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(span.path)}, "region": _region(span)}}],
        "partialFingerprints": {"envkit/v1": _fingerprint(check, finding, judged, seen)},
    }
    if finding.evidence:
        said = "; ".join(f"{value}: {how}" for value, how in finding.evidence.items())
        found["properties"] = {"evidence": visible(redacted_text(said))}
    if finding.edits:
        found["fixes"] = [_fix(finding.edits, finding.fix)]
    return found


def _fix(edits: Sequence[Edit], words: str) -> dict[str, Any]:
    changes: dict[str, list[dict[str, Any]]] = {}
    for edit in edits:
        change = {"deletedRegion": _region(edit.span, exact=True), "insertedContent": {"text": edit.text}}
        changes.setdefault(edit.span.path, []).append(change)
    return {
        "description": {"text": redacted_text(words) or "fix it"},
        "artifactChanges": [
            {"artifactLocation": {"uri": _uri(path)}, "replacements": each} for path, each in changes.items()
        ],
    }


def _region(span: Span, *, exact: bool = False) -> dict[str, int]:
    line, column = max(1, span.line), max(1, span.column)
    region = {"startLine": line, "startColumn": column}
    if span.end_line or span.end_column:
        last = max(line, span.end_line)
        region["endLine"] = last
        region["endColumn"] = max(column if last == line else 1, span.end_column)
    elif exact:  # without an end a region goes on to the end of its line
        region["endColumn"] = column
    return region


def _notifications(judged: JudgedFile) -> list[dict[str, Any]]:
    where = [{"physicalLocation": {"artifactLocation": {"uri": _uri(judged.path)}}}]
    if judged.unreadable:
        text = visible(f"{judged.path}: {judged.unreadable}")
        return [{"level": "error", "message": {"text": text}, "locations": where}]
    return [
        {
            "level": "warning" if result.is_open(Severity.ERROR) else "note",
            "message": {"text": visible(redacted_text(f"{result.check}: {result.reason}"))},
            "locations": where,
        }
        for result in judged.results
        if result.outcome in (Outcome.UNKNOWN, Outcome.CRASHED)
    ]


def _fingerprint(check: str, finding: Finding, judged: JudgedFile, seen: Counter[str]) -> str:
    """What hosts know a finding by from one run to the next, whatever its line's number; equal ones are counted."""
    known = f"{check}\0{judged.path}\0{judged.line_of(finding) or finding.message}"
    seen[known] += 1
    return hashlib.sha256(f"{known}\0{seen[known]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _uri(path: str) -> str:
    """A path as the reference that SARIF wants: slashes, percent signs, relative to where the run began."""
    return quote(path.removeprefix("./").replace("\\", "/").encode("utf-8", "surrogateescape"), safe="/@:+,=~")
