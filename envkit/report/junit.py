"""A report as JUnit XML, which CI systems show beside their other tests.

The file is red exactly when the exit code is not 0: findings below the threshold leave a case green and go to
its output, and a report in which nothing was judged has one case more, which says so.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from envkit.model import Finding, Outcome, Report, Result, Severity, Verdict
from envkit.report.covered import behind, left, plain
from envkit.report.text import visible


def render(report: Report, fail_on: Severity = Severity.ERROR) -> str:
    """One ``testcase`` a check: ``failure`` for fail, ``error`` for unknown and crashed, else ``skipped``.

    One that is unknown and could not have reached ``fail_on`` is skipped.
    """
    suite = ET.Element("testsuite", name=visible(f"envkit {report.subject.kind} {report.subject.name}"))
    _properties(suite, report, fail_on)
    for result in report.results:
        _case(suite, report.subject.kind, result, fail_on)
    if report.verdict(fail_on) is Verdict.UNDECIDED and suite.find("testcase/error") is None:
        case = ET.SubElement(suite, "testcase", classname=_class(report.subject.kind), name="verdict")
        ET.SubElement(case, "error", type="undecided", message="nothing was judged")
    suite.attrib |= {
        "tests": str(len(suite.findall("testcase"))),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": str(len(suite.findall("testcase/error"))),
        "skipped": str(len(suite.findall("testcase/skipped"))),
        "time": f"{report.elapsed_s:.3f}",
    }
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _properties(suite: ET.Element, report: Report, fail_on: Severity) -> None:
    properties = ET.SubElement(suite, "properties")
    words = "; ".join(filter(None, (behind(report.verdict(fail_on).name, report.coverage), left(report.coverage))))
    told = {"verdict": words} | {f"coverage.{name}": value for name, value in plain(report.coverage).items()}
    for name, value in told.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        text = text.lower() if isinstance(value, bool) else text  # true and false, as in JSON
        ET.SubElement(properties, "property", name=name, value=visible(text))


def _class(kind: str) -> str:
    return visible(f"envkit.{kind}")


def _case(suite: ET.Element, kind: str, result: Result, fail_on: Severity) -> None:
    case = ET.SubElement(suite, "testcase", classname=_class(kind), name=visible(result.check))
    if result.outcome is Outcome.SKIP or (result.outcome is Outcome.UNKNOWN and not result.is_open(fail_on)):
        ET.SubElement(case, "skipped", message=visible(result.reason))
    elif result.outcome in (Outcome.UNKNOWN, Outcome.CRASHED):
        ET.SubElement(case, "error", type=result.outcome.value, message=visible(result.reason))
    elif result.outcome is Outcome.FAIL:
        worst = max((finding.severity for finding in result.findings), default=Severity.NOTE)
        text = visible("\n\n".join(map(_finding, result.findings)))
        if worst >= fail_on:
            message = "; ".join(finding.message for finding in result.findings if finding.severity >= fail_on)
            failure = ET.SubElement(case, "failure", type=worst.name.lower(), message=visible(message))
            failure.text = text
        else:
            ET.SubElement(case, "system-out").text = text


def _finding(finding: Finding) -> str:
    lines = [f"{finding.severity.name.lower()}: {finding.message}"]
    lines += [f"where: {finding.where}"] if finding.where else []
    lines += [f"found: {value} ({how})" for value, how in finding.evidence.items()]
    lines += [f"fix: {finding.fix}"] if finding.fix else []
    return "\n".join(lines)
