"""A report as the one line that Nagios and its kin read, with performance data behind the bar."""

from __future__ import annotations

from collections import Counter

from envkit.model import Outcome, Report, Severity
from envkit.report.covered import grounds, left
from envkit.report.exit_codes import NAGIOS, styled
from envkit.report.text import visible

_MOST = 200  # characters of the message; consoles cut longer ones off


def render(report: Report, fail_on: Severity = Severity.ERROR) -> str:
    """``ENVKIT CRITICAL - on files and CPU: 2 errors: first message | pass=190 ...``.

    The word agrees with ``--exit-style nagios``.
    """
    word = NAGIOS[styled(report, fail_on, "nagios")]
    outcomes = Counter(result.outcome for result in report.results)
    findings = sorted((one for result in report.results for one in result.findings), key=lambda one: -one.severity)
    counted = Counter(finding.severity for finding in findings)
    numbers = ((counted[one], one.name.lower()) for one in reversed(Severity) if counted[one])
    said = ", ".join(f"{number} {name}{'s' if number > 1 else ''}" for number, name in numbers)
    open_ones = [one for one in report.results if one.outcome in (Outcome.UNKNOWN, Outcome.CRASHED)]
    if findings:
        text = f"{said}: {findings[0].message}"
    elif open_ones:
        checks = "1 check" if len(open_ones) == 1 else f"{len(open_ones)} checks"
        text = f"{checks} undecided: {open_ones[0].check}: {open_ones[0].reason}"
    else:
        text = f"{outcomes[Outcome.PASS]} checks passed"
    on = ", ".join(filter(None, (grounds(report.coverage), left(report.coverage))))
    text = f"on {on}: {text}" if on else text  # first, for what follows may be cut off
    line = " ".join(visible(text).replace("|", "/").split())
    data = " ".join(f"{outcome}={outcomes[outcome]}" for outcome in Outcome)
    gpus = f"gpus={len(report.coverage.gpus)} gpu_tests_not_run={report.coverage.left}"
    return f"ENVKIT {word} - {line[:_MOST]} | {data} {gpus} time={report.elapsed_s:.3f}s\n"
