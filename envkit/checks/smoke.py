"""Judges the numbers of the smoke suite: one check for each test, its limits as rows of ``smoke_limits.jsonl``.

A row bounds one measure on one kind of device, from above (``most``) or from below (``least``), and says how the
bound was bracketed.  A measure that is missing, or is no finite number, is a finding; with ``when`` the row counts
only where that other measure is 1, so that a test must say that it cannot measure something.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

from envkit.model import Finding, Severity, Skip
from envkit.subjects.smoke import SmokeRun, SmokeTest

_FIXES = {
    "killed": "rerun this test alone and look for the device's Xid in the kernel log of the host",
    "hung": "the stack in the evidence shows where it stood; look for the device's Xid in the kernel log of the host",
    "raised": "the library named in the message is the place to start; compare it with what the probe says is bound",
    "garbled": "rerun this test alone; something in the process leaves without an error",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on one measure of one test; ``device`` is "cpu" or "cuda"."""

    test: str
    measure: str
    device: str
    why: str
    most: float | None = None
    least: float | None = None
    when: str = ""
    severity: str = "error"
    fix: str = ""


@cache
def limits() -> tuple[Limit, ...]:
    """All rows of the table."""
    text = resources.files("envkit.checks").joinpath("smoke_limits.jsonl").read_text("utf-8")
    return tuple(msgspec.json.decode(line, type=Limit) for line in text.splitlines() if line.strip())


def _number(test: SmokeTest, measure: str) -> float:
    """The measure; NaN when it is missing or is no number."""
    try:
        return float(test.measures.get(measure, math.nan))
    except ValueError:
        return math.nan


def _beyond(limit: Limit, test: SmokeTest) -> Finding | None:
    if limit.when and _number(test, limit.when) == 0.0:
        return None  # the test itself says that this device does not offer it
    where, severity = test.device, Severity[limit.severity.upper()]
    if limit.measure not in test.measures:
        return Finding(f"{test.name} did not measure {limit.measure}", severity, where, fix=limit.fix)
    value = _number(test, limit.measure)
    if limit.most is not None and not value <= limit.most:
        said = f"above its limit of {limit.most:g}"
    elif limit.least is not None and not value >= limit.least:
        said = f"below its limit of {limit.least:g}"
    else:
        return None
    if not math.isfinite(value):
        said = "not a finite number"
    evidence = {f"{value:g}": f"{limit.measure} of smoke test {test.name}", limit.why: "the limit's reason"}
    message = f"{test.name}: {limit.measure} is {value:.4g}, {said}"
    return Finding(message, severity, where, evidence, limit.fix)


def _death(test: SmokeTest) -> Finding:
    how = f"was killed by {test.signal}" if test.ended == "killed" else test.ended
    detail = test.detail.strip().replace("\n", "; ")
    message = f"{test.name} {how}" + (f": {detail}" if detail else "")
    last = "\n".join(test.stderr_tail.strip().splitlines()[-30:])
    evidence = {last: "its last words on stderr"} if last else {}
    return Finding(message, where=test.device, evidence=evidence, fix=_FIXES[test.ended])


def _judge(name: str, run: SmokeRun) -> Iterator[Finding]:
    mine = [test for test in run.tests.need("the run of the smoke suite") if test.name == name]
    if not mine:
        raise Skip("not run")
    if all(test.ended == "unfit" for test in mine):
        raise Skip("; ".join(dict.fromkeys(test.detail for test in mine)))
    for test in mine:
        if test.ended not in ("ran", "unfit"):
            yield _death(test)
        elif test.ended == "ran":
            kind = test.device.partition(":")[0]
            rows = [limit for limit in limits() if limit.test == name and limit.device == kind]
            if not rows:
                yield Finding(f"{name} has no limit for the device {test.device}", where=test.device)
            yield from filter(None, (_beyond(limit, test) for limit in rows))


def smoke_gemm_exact(run: SmokeRun) -> Iterator[Finding]:
    """Products of small integers have not one wrong element."""
    yield from _judge("gemm-exact", run)


def smoke_gemm_random(run: SmokeRun) -> Iterator[Finding]:
    """Products of random numbers are as precise as their type."""
    yield from _judge("gemm-random", run)


def smoke_conv(run: SmokeRun) -> Iterator[Finding]:
    """Convolutions and their gradients are as precise as their type in both layouts."""
    yield from _judge("conv", run)


def smoke_attention(run: SmokeRun) -> Iterator[Finding]:
    """Attention and its gradients are as precise as their type, whichever kernel is chosen."""
    yield from _judge("attention", run)


def smoke_fft(run: SmokeRun) -> Iterator[Finding]:
    """Fourier transforms agree with their definition and invert."""
    yield from _judge("fft", run)


def smoke_solve(run: SmokeRun) -> Iterator[Finding]:
    """LU, Cholesky and SVD leave residuals of the size that rounding explains."""
    yield from _judge("solve", run)


def smoke_sparse(run: SmokeRun) -> Iterator[Finding]:
    """Sparse products of integers have not one wrong element."""
    yield from _judge("sparse", run)


def smoke_freeze_unfreeze(run: SmokeRun) -> Iterator[Finding]:
    """Every gradient is right after part of a model was frozen and unfrozen."""
    yield from _judge("freeze-unfreeze", run)


def smoke_streams_events(run: SmokeRun) -> Iterator[Finding]:
    """Streams keep the order that events impose, and copies that do not block are right."""
    yield from _judge("streams-events", run)


def smoke_triton_add(run: SmokeRun) -> Iterator[Finding]:
    """Triton compiles a kernel here and it computes right."""
    yield from _judge("triton-add", run)


def smoke_dataloader(run: SmokeRun) -> Iterator[Finding]:
    """Forked and spawned workers deliver exactly the right batches."""
    yield from _judge("dataloader", run)


def smoke_vector_add_nvrtc(run: SmokeRun) -> Iterator[Finding]:
    """NVRTC compiles a kernel for this GPU, the driver loads it, and it computes right."""
    yield from _judge("vector-add-nvrtc", run)


def smoke_import_leaves_cuda_alone(run: SmokeRun) -> Iterator[Finding]:
    """Importing torch does not initialise CUDA, so that a process can still fork its workers."""
    if run.torch.value is None and run.torch.missing.startswith("unfit"):
        raise Skip("there is no torch in this Python")
    if run.cuda_before_fork.missing == "torch was not imported" and run.tests.value is not None:
        raise Skip("no test that forks from an imported torch was run")
    if run.cuda_before_fork.need("whether importing torch initialises CUDA"):
        yield Finding(
            "importing torch initialised CUDA before any test had started",
            evidence={"true": run.cuda_before_fork.via},
            fix="look for a sitecustomize, a .pth file or a plugin that calls torch.cuda when torch is imported",
        )
