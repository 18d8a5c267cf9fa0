"""What is asked of the variables that a job sets: what bends the linker, the allocator and the compilers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envkit.judging.checks import _launch as job
from envkit.judging.checks._outcomes import note, skip_if, unknown_if, warning
from envkit.judging.checks._variables import LEFT_ON
from envkit.model import Finding, Severity, Unknown
from envkit.subjects.launch import Launch
from envkit.versions import Sm

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# PyTorch, CUDA semantics, memory management, and the parser of its allocator's options; torch refuses another word
_KEYS = {
    "backend", "max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions",
    "roundup_bypass_threshold_mb", "garbage_collection_threshold", "expandable_segments",
    "release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "pinned_num_register_threads",
    "pinned_use_background_threads", "pinned_reserve_segment_size_mb", "graph_capture_record_stream_reuse",
    "per_process_memory_fraction", "throw_on_cudamalloc_oom",
}  # fmt: skip
_BOOLEANS = {"expandable_segments", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register"}
_SPLIT_LEAST = 20  # MiB: kLargeBuffer of the caching allocator, which max_split_size_mb must exceed


def launch_allocator_settings_invalid(launch: Launch) -> Iterator[Finding]:
    """The options of torch's allocator are such as torch takes."""
    env = job.variables(launch)
    found = {name: env[name] for name in _ALLOCATOR if env.get(name)}
    skip_if(not found, f"neither {' nor '.join(_ALLOCATOR)} is set")
    skip_if(job.torch_of(launch) is None, "there is no torch in the image")
    for name, text in found.items():
        for option in re.split(r",(?![^\[]*\])", text):
            fault, severity = _refused(option.strip())
            if fault:
                yield Finding(
                    f"{name} holds `{option.strip()}`: {fault}", severity, name, job.said(launch, name),
                    f"fix or drop it: PyTorch's page on CUDA semantics lists the options; {job.AGAIN}",
                )  # fmt: skip


def _refused(option: str) -> tuple[str, Severity]:
    """What is wrong with one option, empty if nothing is."""
    key, colon, value = (part.strip() for part in option.partition(":"))
    if not option:
        return "", Severity.NOTE
    if not colon:
        return "it is not of the form key:value", Severity.ERROR
    if key not in _KEYS:
        return "torch knows no such option", Severity.WARNING
    if key in _BOOLEANS and value not in ("True", "False"):
        return "it takes True or False", Severity.ERROR
    if key == "backend" and value not in ("native", "cudaMallocAsync"):
        return "it takes native or cudaMallocAsync", Severity.ERROR
    if key == "max_split_size_mb" and (not value.isdecimal() or int(value) <= _SPLIT_LEAST):
        return f"it takes a number above {_SPLIT_LEAST}", Severity.ERROR
    if key == "garbage_collection_threshold" and not re.fullmatch(r"0?\.[0-9]*[1-9][0-9]*", value):
        return "it takes a number between 0 and 1", Severity.ERROR
    return "", Severity.NOTE


def launch_debug_variables_left_on(launch: Launch) -> Iterator[Finding]:
    """No variable that serves to find faults is on in the job."""
    env = job.variables(launch)
    for name, left in LEFT_ON.items():
        # what turns NCCL's transports off is launch-nccl-transport-disabled's
        if name in env and left.on(env[name]) and not name.startswith("NCCL_"):
            yield warning(
                f"{name} is `{env[name]}`: {left.costs}",
                name,
                job.said(launch, name),
                f"unset {name} unless this run is meant to find a fault; {job.AGAIN}",
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
