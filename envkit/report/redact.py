"""Takes what looks like a credential out of a report before it is printed."""

from __future__ import annotations

from dataclasses import replace

from envkit.credentials import redacted_plain, redacted_text
from envkit.model import Finding, Report, Result, Subject


def redacted(report: Report) -> Report:
    """The report with every text in it passed through ``redacted_text``, and its ``observed`` through
    ``redacted_plain``."""
    return replace(
        report,
        subject=Subject(report.subject.kind, redacted_text(report.subject.name)),
        results=tuple(map(_result, report.results)),
        observed=redacted_plain(report.observed),
        coverage=replace(report.coverage, gpus=tuple(map(redacted_text, report.coverage.gpus))),
    )


def _result(result: Result) -> Result:
    findings = tuple(map(_finding, result.findings))
    return replace(result, reason=redacted_text(result.reason), findings=findings)


def _finding(finding: Finding) -> Finding:
    evidence: dict[str, str] = {}
    for value, how in finding.evidence.items():
        key, via = redacted_text(value), redacted_text(how)
        # Two values may read the same once their secrets are gone; neither source may get lost.
        evidence[key] = f"{evidence[key]}; {via}" if key in evidence else via
    message, where, fix = map(redacted_text, (finding.message, finding.where, finding.fix))
    return replace(finding, message=message, where=where, evidence=evidence, fix=fix)
