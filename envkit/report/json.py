"""A report as one JSON document of the shape ``report-1.schema.json``, which is frozen with its number: what is added
later is not required."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from envkit import __version__
from envkit.model import Finding, Report, Result, Severity
from envkit.report.covered import plain

SCHEMA = "envkit.report/1"


def render(report: Report, fail_on: Severity = Severity.ERROR) -> str:
    """The document, indented, in ASCII so that any locale can print it.

    Raises TypeError if ``observed`` holds something that has no JSON form.
    """
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "tool": {"name": "envkit", "version": __version__},
        "subject": {"kind": report.subject.kind, "name": report.subject.name},
        "verdict": report.verdict(fail_on).value,
        "coverage": plain(report.coverage),
        "elapsed_s": round(report.elapsed_s, 3),
        "results": [_result(result) for result in report.results],
    }
    if report.observed:
        document["observed"] = report.observed
    return text(document)


def text(document: Mapping[str, Any]) -> str:
    """Plain data as an indented document.  Raises TypeError for what has no JSON form."""
    # Python's own encoder is ten times as slow as soon as it has to indent.
    return msgspec.json.format(json.dumps(strict(document), allow_nan=False), indent=2) + "\n"


def _result(result: Result) -> dict[str, Any]:
    return {
        "check": result.check,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "findings": [_finding(finding) for finding in result.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity.name.lower(),
        "message": finding.message,
        "where": finding.where,
        "evidence": finding.evidence,
        "fix": finding.fix,
    }


def strict(value: Any) -> Any:
    """Plain data as strict readers take it: a lone surrogate, from a file name that is no UTF-8, they refuse."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # "nan", "inf", "-inf": JSON has no such numbers
    if isinstance(value, Mapping):
        return {strict(str(key)): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value
