"""Compilers that run in the image."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged, number
from envkit.model import Finding, Severity
from envkit.subjects.smoke import SmokeRun, SmokeTest


def smoke_torch_compile(run: SmokeRun) -> Iterator[Finding]:
    """torch.compile makes machine code with the image's C++ compiler, uses it, and it computes right."""
    yield from judged("torch-compile", run)


def smoke_aoti_cpu(run: SmokeRun) -> Iterator[Finding]:
    """An AOTInductor package is built, loaded, computes right, and refuses inputs it was not compiled for."""
    yield from judged("aoti-cpu", run)


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
    """Triton makes machine code for every GPU that the image was built for, whatever GPU is here.

    A GPU that was promised and gets none is an error, one that only torch holds kernels for a note; a promised GPU that
    gets additions and no matrix product is a warning, because compiled models take theirs from cuBLAS as a rule.
    """
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


def smoke_triton_add(run: SmokeRun) -> Iterator[Finding]:
    """Triton compiles a kernel here and it computes right."""
    yield from judged("triton-add", run)


def smoke_triton_dot(run: SmokeRun) -> Iterator[Finding]:
    """Matrix products that Triton compiles here are right in every type, and write nothing beside their result."""
    yield from judged("triton-dot", run)


def smoke_triton_reduce(run: SmokeRun) -> Iterator[Finding]:
    """Reductions, scans and atomics that Triton compiles here are right."""
    yield from judged("triton-reduce", run)


def smoke_triton_autotune(run: SmokeRun) -> Iterator[Finding]:
    """A tune goes on past a configuration that asks for too much and one that crashes, and ends with a right one."""
    yield from judged("triton-autotune", run)


def smoke_compile_gpu(run: SmokeRun) -> Iterator[Finding]:
    """torch.compile makes machine code for this GPU, uses it, and it computes right, forward and backward."""
    yield from judged("compile-gpu", run)


def smoke_aoti_gpu(run: SmokeRun) -> Iterator[Finding]:
    """An AOTInductor package for this GPU is built, loaded, computes right, and refuses inputs that are not its own."""
    yield from judged("aoti-gpu", run)


def smoke_aoti_moved(run: SmokeRun) -> Iterator[Finding]:
    """An AOTInductor package computes right where there is no compiler and nothing of the folder it was made in."""
    yield from judged("aoti-moved", run)


def smoke_aoti_runner_cpp(run: SmokeRun) -> Iterator[Finding]:
    """A C++ program that is built here loads an AOTInductor package without Python, and it computes right."""
    yield from judged("aoti-runner-cpp", run)


def smoke_cpp_extension(run: SmokeRun) -> Iterator[Finding]:
    """A C++ extension of torch is built and loaded here, shares torch's C++ ABI, and computes right."""
    yield from judged("cpp-extension", run)


def smoke_nvcc_extension(run: SmokeRun) -> Iterator[Finding]:
    """A CUDA extension of torch is built and loaded here, and computes right on the current stream and device."""
    yield from judged("nvcc-extension", run)


def smoke_nvcc_axpy(run: SmokeRun) -> Iterator[Finding]:
    """A CUDA program that nvcc compiles here runs on this GPU and computes right, with cuBLAS where that is there."""
    yield from judged("nvcc-axpy", run)
