"""What is asked of the variables that a job sets: what bends the linker, the allocator and the compilers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.judging import variables as judgement
from envkit.judging.checks import _launch as job
from envkit.judging.checks._outcomes import note, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Unknown
from envkit.subjects.launch import Launch
from envkit.versions import Sm

# each of them has a check of its own in launch_gpus or launch_limits
_ELSEWHERE = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NCCL_SOCKET_IFNAME"),
        *("NCCL_IB_HCA", "GLOO_SOCKET_IFNAME"),
    }
)


def _known(launch: Launch) -> judgement.Known:
    def lies(name: str, path: str) -> str | None:
        mounted = (*(one.target for one in launch.job.mounts.value or ()), *(launch.job.tmpfs.value or ()))
        if any(job.below(posixpath.normpath(path), target) for target in mounted):
            return None  # what a mount brings is not looked into
        there = launch.paths.need("what lies at the paths that the job names").get(posixpath.normpath(path))
        if there is None:
            return ""
        return "program" if there.kind == "file" and there.mode & 0o111 else there.kind

    def release(program: str) -> str:
        wheels = job.image(launch).wheels.need("the installed packages")
        return judgement.release_of(program, ((one.name, one.version) for one in wheels))

    return judgement.Known(launch.job.environment.via, release, lies, _ELSEWHERE)


def launch_variable_invalid(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """Every variable of the job that the table of variables knows has a value that its program takes."""
    findings, doubts = judgement.invalid(job.variables(launch), _known(launch), facts)
    yield from _again(findings)
    unknown_if(doubts, "; ".join(doubts))


def launch_variables_contradict(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """No two variables of the job contradict one another."""
    yield from _again(judgement.contradictions(job.variables(launch), launch.job.environment.via, facts))


def _again(findings: Iterable[Finding]) -> Iterator[Finding]:
    return (replace(finding, fix=f"{finding.fix}; {job.AGAIN}") for finding in findings)


def launch_debug_variables_left_on(launch: Launch, facts: Facts) -> Iterator[Finding]:
    """No variable that serves to find faults, or bends the precision, is on in the job."""
    env = job.variables(launch)
    for row in judgement.debugging(env, facts):
        # what turns NCCL's transports off is launch-nccl-transport-disabled's
        if not row.name.startswith("NCCL_"):
            yield Finding(
                f"{row.name} is `{env[row.name]}`: {row.costs}",
                Severity[(row.weighs or "warning").upper()],
                row.name,
                job.said(launch, row.name),
                f"unset {row.name} unless this run is meant to find a fault; {job.AGAIN}",
            )


def launch_library_path_replaced(launch: Launch) -> Iterator[Finding]:
    """The job's LD_LIBRARY_PATH keeps what the image's had, and names directories that are there."""
    env = job.variables(launch)
    before = launch.job.replaced.need("what the job replaces").get("LD_LIBRARY_PATH", "")
    now = job.library_path(launch)
    skip_if(not now and not before, "LD_LIBRARY_PATH is not set")
    paths = launch.paths.need("what lies at the paths that the job names")
    kept = {one for one, _ in now}
    audit = job.image(launch)
    held = {posixpath.dirname(one.path) for one in audit.copies.need("the CUDA libraries on disk")}
    real = {one: paths[one].real if one in paths else one for one in job.entries(before)}
    lost = [
        one
        for one in job.entries(before)
        if one not in kept and (real[one] in held or one.startswith("/usr/local/nvidia"))
    ]
    if lost:
        yield warning(
            f"LD_LIBRARY_PATH of the job is `{env.get('LD_LIBRARY_PATH', '')}` and drops the image's {', '.join(lost)}",
            "LD_LIBRARY_PATH",
            {**job.said(launch, "LD_LIBRARY_PATH"), before: launch.job.replaced.via},
            f"append the image's value, or leave the variable alone; {job.AGAIN}",
        )
    mounted = [one.target for one in launch.job.mounts.value or ()]
    of_image = {one.name: one.value for one in audit.variables.need("the image's variables")}
    known = job.entries(of_image.get("LD_LIBRARY_PATH", ""))
    for one in sorted(kept - set(known)):
        absent = one in paths and paths[one].kind == "absent"
        driver = one.startswith("/usr/local/nvidia")  # where the toolkit once put it
        if absent and not driver and not any(job.below(one, target) for target in mounted):
            yield note(
                f"LD_LIBRARY_PATH names {one}, which is in neither the image nor a mount",
                "LD_LIBRARY_PATH",
                job.said(launch, "LD_LIBRARY_PATH"),
                f"take it out; {job.AGAIN}",
            )


def launch_preload_library_missing(launch: Launch) -> Iterator[Finding]:
    """Every library of LD_PRELOAD is in the image or under a mount."""
    words = [posixpath.normpath(one) for one in re.split("[: ]+", job.variables(launch).get("LD_PRELOAD", "")) if one]
    skip_if(not words, "LD_PRELOAD is not set")
    paths = launch.paths.need("what lies at the paths that the job names")
    mounted = [one.target for one in launch.job.mounts.value or ()]
    doubts = [one for one in words if not one.startswith("/")]
    for one in words:
        if one.startswith("/") and (one not in paths or paths[one].kind != "file"):
            if any(job.below(one, target) for target in mounted):
                doubts.append(one)
                continue
            yield warning(
                f"LD_PRELOAD names {one}, which the image does not have: it will be left out",
                "LD_PRELOAD",
                job.said(launch, "LD_PRELOAD"),
                f"fix the path, mount the library, or unset LD_PRELOAD; {job.AGAIN}",
            )
    unknown_if(doubts, f"where {', '.join(doubts)} of LD_PRELOAD comes from is not known")


def launch_arch_list_misses_gpu(launch: Launch) -> Iterator[Finding]:
    """TORCH_CUDA_ARCH_LIST, where it is set, names the GPUs that the job gets."""
    text = job.variables(launch).get("TORCH_CUDA_ARCH_LIST", "").strip()
    skip_if(not text, "TORCH_CUDA_ARCH_LIST is not set")
    gpus = job.some_given(launch)
    sass, ptx = [], []
    for word in re.split(r"[ ;]+", text):
        plain = word.removesuffix("+PTX")
        if not re.fullmatch(r"[0-9]{1,2}\.[0-9][af]?", plain):
            raise Unknown(
                f"`{word}` of TORCH_CUDA_ARCH_LIST is one of torch's names, whose capability is not known here"
            )
        sass.append(Sm.parse(plain))
        if word != plain:
            ptx.append(Sm.parse(plain))

    found, doubt = job.sms_of(gpus)
    unknown_if(doubt, doubt)
    for sm in found:
        if not any(sm.runs(one) for one in sass) and not any(sm.compiles(one) for one in ptx):
            yield warning(
                f"TORCH_CUDA_ARCH_LIST is `{text}` and the job gets {sm}: what is built in the job has no code for it",
                "TORCH_CUDA_ARCH_LIST",
                {**job.said(launch, "TORCH_CUDA_ARCH_LIST"), str(sm): "nvmlDeviceGetCudaComputeCapability"},
                "unset it: torch then compiles for the GPU it finds; it does not change torch's own kernels; "
                + job.AGAIN,
            )
