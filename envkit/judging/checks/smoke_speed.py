"""Speed beside the limit of the hardware.

What was computed while the time was taken must be right; that is judged as in every other test.  A figure above the
datasheet's peak is wrong itself.  A slow one is a warning: it says nothing about the image alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from envkit.facts import Facts
from envkit.judging.checks._outcomes import error, note, skip_if, warning
from envkit.judging.checks._smoke import cases, judged
from envkit.judging.throughput import Figure, gpu_of, of_test
from envkit.model import Finding
from envkit.payload.smoke.case import Case
from envkit.subjects.smoke import SmokeRun, SmokeTest

# The peaks of tensor cores stand for the boost clock (H100: 1830 MHz), and the clock may rise to 1980 MHz, 8 % more,
# but products reach 0.90 of the peak at best, on zeros.  A factor of two forgotten in a count is far beyond.
_TOO_FAST = 1.05
# Healthy GPUs of one model differ by 4 % (H200, bf16: 769 to 798 TFLOP/s on several machines); half the lanes of a
# link, a neighbour on the GPU or a clock that is held down costs more than 15 %.
_OF_GOOD = 0.85


def _shares(figure: Figure) -> str:
    words = [
        f"{figure.value / limit:.0%} of {label}"
        for limit, label in ((figure.peak, "the peak"), (figure.good, "a healthy one"))
        if limit
    ]
    return ", ".join(words)


def _judged(figure: Figure, test: SmokeTest) -> Finding | None:
    """What is to be said of one figure: too fast to be true, slow, or nothing."""
    evidence = {f"{figure.value:g}": f"{figure.what} of smoke test {figure.test} on {figure.gpu}"}
    if figure.peak:
        evidence[f"{figure.peak:g}"] = "the datasheet's peak, facts table peak"
    if figure.good:
        evidence[f"{figure.good:g}"] = "what a healthy one reached, facts table good"
    if test.detail:
        evidence[test.detail] = "NVML while it ran"
    said = f"{figure.test}: {figure.what} is {figure.value:.4g} {figure.unit}"
    if figure.peak and figure.bounded and figure.value > _TOO_FAST * figure.peak:
        message = f"{said}, above the {figure.peak:g} of the hardware, so the time or the work cannot be real"
        fix = "look for NVIDIA_TF32_OVERRIDE, which turns fp32 into tf32, and for a clock that stopped (in a VM)"
        return error(message, test.device, evidence, fix)
    slow = (figure.good and figure.value < _OF_GOOD * figure.good) or (
        not figure.good and figure.peak and figure.band and figure.value < figure.band * figure.peak
    )
    if not slow:
        return None
    clocks = f"; {test.detail}" if test.detail else ""
    fix = (
        "look for other processes on the GPU, a power cap or heat (`nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE`),"
        " and for a link of fewer lanes (`nvidia-smi -q`, Link Width)"
    )
    return warning(f"{said}, slow: {_shares(figure)}{clocks}", test.device, evidence, fix)


def _with_speeds(case: Case) -> Callable[[SmokeRun, Facts], Iterator[Finding]]:
    """The check of one test: what is wrong with its results, then with its speeds."""

    def check(run: SmokeRun, facts: Facts) -> Iterator[Finding]:
        yield from judged(case.name, run)
        if run.injected_fault:
            return
        for test in run.tests.value or ():
            if test.name == case.name:
                yield from filter(None, (_judged(figure, test) for figure in of_test(test, run, facts)))

    check.__name__ = "smoke_" + case.name.replace("-", "_")
    return check


CHECKS = tuple(_with_speeds(case) for case in cases().values() if case.group == "speed")


def smoke_speed_allreduce(run: SmokeRun, facts: Facts) -> Iterator[Finding]:
    """Sums over all GPUs run as fast as the link between them."""
    tests = [test for test in run.tests.need("the run of the smoke suite") if test.name == "nccl-allreduce"]
    ran = [test for test in tests if test.ended == "ran"]
    skip_if(run.injected_fault or "nccl-allreduce" not in cases() or not ran, "no all-reduce was timed")
    for test in ran:
        speeds = list(of_test(test, run, facts))
        skip_if(not speeds, "nccl-allreduce gives no bus bandwidth")
        yield from filter(None, (_judged(figure, test) for figure in speeds))


def smoke_speed_peak_known(run: SmokeRun, facts: Facts) -> Iterator[Finding]:
    """Speeds can be set beside the datasheet of the GPU."""
    tests = run.tests.need("the run of the smoke suite")
    timed = {gpu_of(test, run) for test in tests if any(of_test(test, run, facts))}
    skip_if(run.injected_fault or not timed, "no speed was measured")
    for name in sorted(timed):
        if name and facts.peak(name) is None:
            fix = "the speeds are shown and not judged; a row in envkit/facts/peak.jsonl changes that"
            yield note(f"no peak is known for this GPU: {name}", fix=fix)
