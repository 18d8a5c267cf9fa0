"""Where a model's tensors live, asked at the top of a training script.

    from envkit import placement

    checked = placement.check(model, batch)
    if not checked.ok:
        raise SystemExit(str(checked))

The model runs once, forward only, on the devices that it and its inputs are on.  torch must be installed beside envkit.
"""

from __future__ import annotations

import time
from typing import Any

from envkit import facts
from envkit.image import placement as document
from envkit.image.probe import SCHEMA
from envkit.judging import judge, required
from envkit.model import Finding, Outcome, Report, Severity, Subject
from envkit.payload.placement import work
from envkit.records import dataclass
from envkit.subjects.codec import to_plain
from envkit.subjects.placement import Placement

_CHECKS = frozenset(
    f"placement-{name}"
    for name in (
        "two-devices",
        "dtype-mix",
        "state-split",
        "frozen-split",
        "host-copies",
        "host-waits-for-gpu",
        "factory-failed",
        "forward-failed",
    )
)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of a model said; ``str`` gives it as text, one finding or doubt a line."""

    report: Report
    observed: Placement

    @property
    def ok(self) -> bool:
        """Whether the run was seen to its end and nothing found is an error."""
        return self.report.exit_code() == 0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that was found, the gravest first."""
        found = [finding for result in self.report.results for finding in result.findings]
        return tuple(sorted(found, key=lambda finding: -finding.severity))

    def __str__(self) -> str:
        lines = []
        for finding in self.findings:
            where = f"{finding.where}: " if finding.where else ""
            lines.append(f"{finding.severity.name.lower()}: {where}{finding.message}")
            if finding.fix:
                lines.append(f"  fix: {finding.fix}")
        doubts = {result.reason for result in self.report.results if result.outcome in _OPEN and result.reason}
        if not any(finding.severity is Severity.ERROR for finding in self.findings):
            lines += [f"unknown: {reason}" for reason in sorted(doubts)]
        return "\n".join(lines) or "every operation of the model has its tensors on one device and in one dtype"


_OPEN = (Outcome.UNKNOWN, Outcome.CRASHED)


def check(model: Any, inputs: Any, optimizer: Any = None) -> Checked:
    """Runs ``model`` once with ``inputs`` and tells what lies where, what mixes, what crosses, with the lines.

    ``inputs`` are a tensor, a tuple of positional arguments, a dict of keyword arguments, or (args, kwargs).  The run
    is forward only and without gradients; buffers, random numbers, train or eval modes and gradients are as before
    when it returns, and what the model's own code keeps in attributes is not.  A failure of the model is a finding:
    nothing is raised but KeyboardInterrupt and its like.  Raises ImportError where there is no torch.
    """
    started = time.monotonic()
    target = type(model).__name__
    told = {"schema": SCHEMA, "kind": "placement", "target": target, **work.follow_here(model, inputs, optimizer)}
    observed = document.read(told, Placement(target, target=target))
    results = judge.judge(observed, facts.load(), _CHECKS) + judge.unanswered(observed)
    return Checked(
        Report(
            Subject("placement", target),
            results,
            time.monotonic() - started,
            to_plain(observed),
            required.covered(observed),
        ),
        observed,
    )
