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
from packaging.version import Version

from envkit.checks._given import FIX, must_see
from envkit.model import Finding, Severity, Skip, Unknown
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
    except (ValueError, OverflowError):
        return math.nan


def _beyond(limit: Limit, test: SmokeTest) -> Finding | None:
    if limit.when and _number(test, limit.when) == 0.0:
        return None  # the test itself says that this device does not offer it
    where, severity = test.device, Severity[limit.severity.upper()]
    if limit.measure not in test.measures:
        return Finding(f"{test.name} did not measure {limit.measure}", severity, where, fix=limit.fix)
    value = _number(test, limit.measure)
    if not math.isfinite(value):
        said = "not a finite number"
    elif value < 0.0:
        said = "below zero, where no count and no distance lies"
    elif limit.most is not None and value > limit.most:
        said = f"above its limit of {limit.most:g}"
    elif limit.least is not None and value < limit.least:
        said = f"below its limit of {limit.least:g}"
    else:
        return None
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


def _of_one(test: SmokeTest) -> Iterator[Finding]:
    if test.ended == "unfit":
        return
    if test.ended != "ran":
        yield _death(test)
        return
    rows = [limit for limit in limits() if limit.test == test.name and limit.device == test.device.partition(":")[0]]
    if not rows:
        yield Finding(f"{test.name} has no limit for the device {test.device}", where=test.device)
    yield from filter(None, (_beyond(limit, test) for limit in rows))


def _not_reached(name: str, run: SmokeRun, ended: set[str]) -> str:
    """The devices on which a test should have an end and has none, empty if it has them all."""
    kinds = {limit.device for limit in limits() if limit.test == name}
    wanted = {"cpu"} & kinds
    if "cuda" in kinds:
        wanted |= {f"cuda:{index}" for index in range(len(run.gpus.need("the GPUs that the run saw")))}
    lacking = sorted(wanted - ended)
    if lacking:
        return " and ".join(lacking)
    return "" if ended else "any device"


def _judge(name: str, run: SmokeRun) -> Iterator[Finding]:
    if run.only and name not in run.only:
        raise Skip("not asked for")
    mine = [test for test in run.tests.need("the run of the smoke suite") if test.name == name]
    findings = [finding for test in mine for finding in _of_one(test)]
    if not any(finding.severity is Severity.ERROR for finding in findings):  # a fault is certain, whatever is open
        where = _not_reached(name, run, {test.device for test in mine})
        if where:
            raise Unknown(f"{name} has no end on {where}")
        if all(test.ended == "unfit" for test in mine):
            raise Skip("; ".join(dict.fromkeys(test.detail for test in mine)))
        if run.sabotage:
            raise Unknown(f"the saboteur {run.sabotage!r} was at work and changed nothing")
    yield from findings


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


def smoke_torch_compile(run: SmokeRun) -> Iterator[Finding]:
    """torch.compile makes machine code with the image's C++ compiler, uses it, and it computes right."""
    yield from _judge("torch-compile", run)


def smoke_aoti_cpu(run: SmokeRun) -> Iterator[Finding]:
    """An AOTInductor package is built, loaded, computes right, and refuses inputs it was not compiled for."""
    yield from _judge("aoti-cpu", run)


def _target_lost(test: SmokeTest, target: str, kernel: str, severity: Severity) -> Finding | None:
    offered = _number(test, f"{target}.{kernel}.offered")
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
    """Triton makes machine code for every GPU that the image was built for, whatever GPU is here.

    A GPU that was promised and gets none is an error, one that only torch holds kernels for a note; a promised GPU that
    gets additions and no matrix product is a warning, because compiled models take theirs from cuBLAS as a rule.
    """
    yield from _judge("triton-targets", run)
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
    if run.cuda_before_fork.missing == "torch was not imported" and run.only and run.tests.value is not None:
        raise Skip("no test that forks from an imported torch was run")
    if run.cuda_before_fork.need("whether importing torch initialises CUDA"):
        yield Finding(
            "importing torch initialised CUDA before any test had started",
            evidence={"true": run.cuda_before_fork.via},
            fix="look for a sitecustomize, a .pth file or a plugin that calls torch.cuda when torch is imported",
        )


def smoke_gpu_not_seen(run: SmokeRun) -> Iterator[Finding]:
    """A run that was given GPUs sees them; otherwise each GPU test is skipped and the CPU's results look like a pass.

    Source: cuInit and cuDeviceGetCount in the run, against what envkit gave to it.
    """
    least = must_see(run.gpus_given)
    seen = run.gpus.need("the GPUs that the run saw")
    given = " and ".join(run.gpus_given)
    if len(seen) < least:
        unfit = (test.detail for test in run.tests.value or () if test.ended == "unfit" and test.device == "cuda")
        why = next(unfit, "")
        yield Finding(
            f"the run was given GPU {given} and sees {len(seen) or 'none'}" + (f": {why}" if why else ""),
            evidence={", ".join(seen) or "none": run.gpus.via, given: "given by envkit"},
            fix=FIX,
        )


def smoke_torch_not_promised(run: SmokeRun) -> Iterator[Finding]:
    """The torch under test is the promised release; a promised torch that is absent is no reason to skip its tests.

    Source: the promise in the image's label, against torch.__version__.
    """
    if not run.torch_promised:
        raise Skip("no torch was promised")
    if run.only and run.torch.missing == "torch was not imported":
        raise Skip("no test that imports torch in common was asked for")
    promised = run.torch_promised
    if run.torch.missing.startswith("unfit"):
        yield Finding(
            f"torch {promised} was promised and there is none",
            where="torch",
            evidence={run.torch.missing: "import torch", promised: "the image's label"},
            fix="install what the lock names into a fresh environment: `envkit build`",
        )
        return
    has = run.torch.need("the version of torch")
    if Version(has.partition("+")[0]) != Version(promised.partition("+")[0]):
        yield Finding(
            f"torch {promised} was promised and torch {has} was tested",
            where="torch",
            evidence={has: run.torch.via, promised: "the image's label"},
            fix="install what the lock names into a fresh environment: `envkit build`",
        )
