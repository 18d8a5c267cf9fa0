"""A report as a Prometheus textfile, for the textfile collector of node_exporter.

Every check is one sample with the value 1 and its outcome as a label, so that an alert can ask for what is not "pass"
or "skip"; a check that is gone from the file is told by ``absent``.
"""

from __future__ import annotations

from collections import Counter

from envkit.model import Report, Severity, Verdict
from envkit.report.text import visible


def render(report: Report, fail_on: Severity = Severity.ERROR) -> str:
    """The text format, version 0.0.4: metrics of checks, findings, verdict and time."""
    kind, name = _quoted(report.subject.kind), _quoted(report.subject.name)
    of = f"kind={kind},subject={name}"
    counted = Counter(finding.severity for result in report.results for finding in result.findings)
    verdict = report.verdict(fail_on)
    on = {"files": report.coverage.files, "cpu": report.coverage.cpu, "gpu": report.coverage.computed}
    lines = [
        "# HELP envkit_check How each check ended; the value is always 1.",
        "# TYPE envkit_check gauge",
        *(f'envkit_check{{{of},check={_quoted(one.check)},outcome="{one.outcome}"}} 1' for one in report.results),
        "# HELP envkit_findings How many findings of each severity.",
        "# TYPE envkit_findings gauge",
        *(f'envkit_findings{{{of},severity="{one.name.lower()}"}} {counted[one]}' for one in Severity),
        "# HELP envkit_verdict The verdict has the value 1, the others 0.",
        "# TYPE envkit_verdict gauge",
        *(f'envkit_verdict{{{of},verdict="{one}"}} {int(one is verdict)}' for one in Verdict),
        "# HELP envkit_coverage Whether the verdict stands on files, on what ran on the CPU, on what a GPU computed.",
        "# TYPE envkit_coverage gauge",
        *(f'envkit_coverage{{{of},on="{name}"}} {int(is_so)}' for name, is_so in on.items()),
        "# HELP envkit_gpus How many GPUs answered for it, whether or not anything was computed on them.",
        "# TYPE envkit_gpus gauge",
        f"envkit_gpus{{{of}}} {len(report.coverage.gpus)}",
        "# HELP envkit_gpu_tests_not_run How many tests were asked for and ran on no GPU.",
        "# TYPE envkit_gpu_tests_not_run gauge",
        f"envkit_gpu_tests_not_run{{{of}}} {report.coverage.left}",
        "# HELP envkit_elapsed_seconds How long the report took.",
        "# TYPE envkit_elapsed_seconds gauge",
        f"envkit_elapsed_seconds{{{of}}} {report.elapsed_s:.3f}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A label's value: backslash, quote and line feed are escaped."""
    escaped = visible(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
