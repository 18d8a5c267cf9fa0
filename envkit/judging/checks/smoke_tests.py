"""The checks of the suite's tests: each judges its test's measures by their limits, so they are made from the cases.

Only a test that needs more than its limits has a function here or, for speeds, in ``smoke_speed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from envkit.judging.checks._smoke import cases, judged, number
from envkit.model import Finding, Severity
from envkit.payload.smoke.case import Case
from envkit.subjects.smoke import SmokeRun, SmokeTest


def _target_lost(test: SmokeTest, target: str, kernel: str, severity: Severity) -> Finding | None:
    offered = number(test, f"{target}.{kernel}.offered")
    if offered == 1.0:
        return None
    said = next((line for line in test.detail.splitlines() if line.startswith(f"{target} {kernel}: ")), "")
    why = f": {said.partition(': ')[2]}" if said else "" if offered == 0.0 else ": it was not tried"
    what = "a matrix product" if kernel == "dot" else "an addition"
    return Finding(
        f"triton made no machine code of {what} for {target}{why}",
        severity,
        target,
        {f"{offered:g}": f"{target}.{kernel}.offered of smoke test {test.name}"},
        "take a torch whose triton knows this GPU, or leave the GPU out of `gpus`",
    )


def smoke_triton_targets(run: SmokeRun) -> Iterator[Finding]:
    """Triton makes machine code for every GPU that the image was built for, whatever GPU is here."""
    yield from judged("triton-targets", run)
    for test in run.tests.value or ():
        if test.name != "triton-targets" or test.ended != "ran":
            continue
        told = sorted({name.partition(".")[0] for name in test.measures if name.endswith(".add.offered")})
        for target in run.gpus_promised or told:
            missing = _target_lost(test, target, "add", Severity.ERROR if run.gpus_promised else Severity.NOTE)
            if missing is None and run.gpus_promised:
                missing = _target_lost(test, target, "dot", Severity.WARNING)
            if missing is not None:
                yield missing


def _by_limits(case: Case) -> Callable[[SmokeRun], Iterator[Finding]]:
    def check(run: SmokeRun) -> Iterator[Finding]:
        yield from judged(case.name, run)

    check.__name__ = "smoke_" + case.name.replace("-", "_")
    return check


_MORE = ("triton-targets",)  # these have a function above
# Tests of the group "speed" are judged beside the GPU's peak, in ``smoke_speed``.
CHECKS = tuple(_by_limits(case) for case in cases().values() if case.group != "speed" and case.name not in _MORE)
