"""What is asked of how a workload gets its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._outcomes import error, found, skip_if, warning
from envkit.judging.checks._workload import (
    evident,
    gpu_count,
    need_containers,
    number,
    option,
    requests,
    visible,
    words,
)
from envkit.model import Finding, Severity, Skip
from envkit.subjects.workload import Container, GpuRequest, Workload

_COMPOSE = """deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}"""
_FIXES = {
    "compose": f"reserve them: `{_COMPOSE}`",
    "kubernetes": "set `resources: {limits: {nvidia.com/gpu: 1}}`",
    "devcontainer": 'add `"runArgs": ["--gpus", "all"]`, or `"hostRequirements": {"gpu": true}`',
    "workflow": "write `options: --gpus all`",
    "slurm": "give `apptainer exec` the option --nv, or `docker run` the option --gpus",
    "makefile": "add `--gpus all` to `docker run`",
    "helm": "set `resources: {limits: {nvidia.com/gpu: 1}}`",
}
_NO_DEVICES = ("void", "none", "")  # NVIDIA Container Toolkit, environment variables
_HOOKED = {"option": "--gpus", "devices": "a device request", "gpus": "`gpus`", "runtime": "runtime nvidia"}
_TENSOR = ("--tensor-parallel-size", "--tensor_parallel_size", "-tp", "--tp-size", "--tp")
# What an NVIDIA driver capability may be called in a device request (moby, daemon/nvidia_linux.go).
_DRIVER_CAPABILITIES = ("compute", "compat32", "graphics", "utility", "video", "display")


def workload_gpu_not_requested(workload: Workload) -> Iterator[Finding]:
    """A container made for NVIDIA GPUs asks for one."""
    asked = 0
    for one in need_containers(workload):
        signs = list(evident(one))
        if not signs or one.initial:
            continue
        asked += 1
        runtime = one.runtime is not None and ("nvidia" in one.runtime.value or not one.runtime.sure)
        if workload.overlays:
            raise Skip(f"{workload.overlays[0]} beside it may ask for GPUs")
        mighty = workload.kind == "kubernetes" and one.privileged is not None and one.privileged.value == "true"
        # the default runtime may be nvidia's
        handed = workload.kind == "compose" and "NVIDIA_VISIBLE_DEVICES" in one.env
        if one.gpus or runtime or mighty or handed:
            continue
        what, span = signs[0]
        yield warning(
            f"`{one.name}` is made for GPUs ({what}) and asks for none", span, {what: span.place}, _FIXES[workload.kind]
        )
    skip_if(not asked, "no container is clearly made for NVIDIA GPUs")


def _need_requests(workload: Workload) -> list[tuple[Container, GpuRequest]]:
    pairs = [(one, request) for one in need_containers(workload) for request in one.gpus]
    skip_if(not pairs, "no container asks for a GPU")
    return pairs


def workload_gpu_request_invalid(workload: Workload) -> Iterator[Finding]:
    """A request for GPUs is one that Docker Compose or Kubernetes takes."""
    for container, one in _need_requests(workload):
        if not one.sure:
            continue
        if one.form in ("devices", "gpus"):
            yield from _compose_request(container, one)
        elif one.form in ("limit", "request"):
            yield from _kubernetes_request(container, one)


def _compose_request(container: Container, one: GpuRequest) -> Iterator[Finding]:
    if one.form == "devices" and not one.capabilities:
        yield error(
            f"the device request of `{container.name}` names no capabilities, which compose refuses",
            one.span,
            fix="add `capabilities: [gpu]`",
        )
    if one.count is not None and one.ids is not None:
        yield error(
            f"the device request of `{container.name}` has both count {one.count.value} and device_ids "
            f"{', '.join(one.ids)}, which compose refuses",
            one.count.span,
            fix="keep one of the two",
        )
    elif one.count is not None and one.count.sure and _parts_of_one(one.count.value):
        yield error(
            f"`{container.name}` asks for {one.count.value} GPUs, which is no whole number and not `all`",
            one.count.span,
            fix="write a whole number, or `all`",
        )


def _parts_of_one(text: str) -> bool:
    """Whether a text is a number that is not whole, or below none; other texts are placeholders of some template."""
    found = re.fullmatch(r"(-?)([0-9]*)(?:\.([0-9]+))?(m?)", text)
    if not found or not (found[2] or found[3]):
        return False
    if found[4]:
        return int(found[2] or 0) % 1000 != 0
    below = bool(found[1]) and text != "-1"
    return below or bool((found[3] or "").strip("0"))


def _kubernetes_request(container: Container, one: GpuRequest) -> Iterator[Finding]:
    said = one.count
    if said is None:
        return
    if _parts_of_one(said.value):
        yield error(
            f"`{container.name}` asks for {said.value} of {one.resource}, which must be a whole number",
            one.span,
            fix="ask for whole GPUs; parts of one come from MIG or from time slicing of the device plugin",
        )
        return
    if one.form != "request":
        return
    limit = container.resources.get(f"limits/{one.resource}")
    if limit is None:
        yield error(
            f"`{container.name}` requests {said.value} of {one.resource} and sets no limit, which Kubernetes refuses",
            one.span,
            fix=f"set `limits: {{{one.resource}: {said.value}}}`; the request follows it",
        )
    elif limit.sure and limit.value != said.value:
        yield error(
            f"`{container.name}` requests {said.value} of {one.resource} and limits it to {limit.value}, which must be "
            "equal",
            one.span,
            {f"limit {limit.value}": limit.span.place},
            "drop the request; it follows the limit",
        )


def workload_driver_capabilities_incomplete(workload: Workload) -> Iterator[Finding]:
    """The driver's CUDA library is mounted: the driver capabilities contain `compute`."""
    asked = 0
    for one in need_containers(workload):
        if not list(evident(one)):  # a monitor needs utility alone, a desktop graphics
            continue
        said = one.env.get("NVIDIA_DRIVER_CAPABILITIES")
        if said is not None and said.sure:
            asked += 1
            words = [word.strip() for word in said.value.split(",")]
            if words != [""] and not {"all", "compute"} & set(words):
                yield warning(
                    f"NVIDIA_DRIVER_CAPABILITIES={said.value} of `{one.name}` lacks compute, so that libcuda.so.1 is "
                    "not there",
                    said.span,
                    fix=f"write `{said.value},compute`",
                )
            continue
        for request in one.gpus:
            if request.capabilities is None or not request.sure:
                continue
            asked += 1
            named = [word for word in request.capabilities if word in _DRIVER_CAPABILITIES]
            if named and "compute" not in named:
                yield warning(
                    f"the device request of `{one.name}` names {', '.join(named)} and not compute, so that "
                    "libcuda.so.1 is not there",
                    request.span,
                    fix="write `capabilities: [gpu]`, or add compute",
                )
    skip_if(not asked, "no container made for CUDA names driver capabilities")


def workload_visible_devices_set_in_pod(workload: Workload) -> Iterator[Finding]:
    """A pod leaves NVIDIA_VISIBLE_DEVICES to the device plugin."""
    skip_if(workload.kind not in ("kubernetes", "helm"), "only Kubernetes' device plugin hands out GPUs")
    for one in need_containers(workload):
        said = one.env.get("NVIDIA_VISIBLE_DEVICES")
        if said is None or not said.sure or said.value in ("", "none", "void"):
            continue
        if workload.kind == "helm" and not one.gpus:
            continue  # a chart may give GPUs by the runtime class alone, which only its templates show
        yield warning(
            f"`{one.name}` sets NVIDIA_VISIBLE_DEVICES={said.value}, which overrides the GPUs that the device "
            "plugin assigns",
            said.span,
            fix="drop it and ask for nvidia.com/gpu; to hide all GPUs from a container write `void`",
        )


def workload_runtime_without_devices(workload: Workload) -> Iterator[Finding]:
    """With `runtime: nvidia` something says which GPUs: NVIDIA_VISIBLE_DEVICES of the file or of the image."""
    asked = 0
    for one in need_containers(workload):
        if not any(request.form == "runtime" for request in one.gpus) or one.runtime is None:
            continue
        if len(one.gpus) > 1 or one.env_files:
            continue
        asked += 1
        said = one.env.get("NVIDIA_VISIBLE_DEVICES")
        if said is not None and said.sure and said.value in _NO_DEVICES:
            yield warning(
                f"`{one.name}` has runtime nvidia and NVIDIA_VISIBLE_DEVICES={said.value}, which gives it no GPU",
                said.span,
                {"runtime nvidia": one.runtime.span.place},
                "write `all`, or name a CDI device (nvidia.com/gpu=all), for which `void` keeps the runtime out",
            )
            continue
        base = one.base
        if base is None and one.built is not None and one.built.stages:
            base = one.built.base
        if visible(one) or base is None or not base.sure or base.family not in ("os", "python"):
            continue  # other images may set it
        name = one.image.value if one.image is not None else base.reference
        yield warning(
            f"`{one.name}` has runtime nvidia, and neither the file nor {name} sets NVIDIA_VISIBLE_DEVICES, so that it "
            "gets no GPU",
            one.runtime.span,
            fix="set NVIDIA_VISIBLE_DEVICES: all (and NVIDIA_DRIVER_CAPABILITIES: compute,utility)",
        )
    skip_if(not asked, "no container is started by the nvidia runtime alone")


def workload_cdi_beside_hook(workload: Workload) -> Iterator[Finding]:
    """A container gets its GPUs by CDI or by the container toolkit's hook, not by both."""
    asked = 0
    for one in need_containers(workload):
        cdi = next((request for request in one.gpus if request.form == "cdi"), None)
        if cdi is None:
            continue
        asked += 1
        hook = next((request for request in one.gpus if request.form in _HOOKED), None)
        said = one.env.get("NVIDIA_VISIBLE_DEVICES")
        if hook is None or (hook.form == "runtime" and said is not None and said.value in ("void", "none")):
            continue
        device = f"{cdi.resource}={', '.join(cdi.ids or ())}"
        yield warning(
            f"`{one.name}` is given GPUs twice, by the CDI device {device} and by {_HOOKED[hook.form]}",
            hook.span,
            {device: cdi.span.place},
            "keep one of the two; where the nvidia runtime has to stay, set NVIDIA_VISIBLE_DEVICES=void",
        )
    skip_if(not asked, "no container names a CDI device")


def workload_cuda_visible_devices_invalid(workload: Workload) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES counts the GPUs inside of the container, from 0."""
    asked = 0
    for one in need_containers(workload):
        said, count = one.env.get("CUDA_VISIBLE_DEVICES"), gpu_count(one)
        if said is not None and said.sure and said.value.strip() == "all" and (wanted := requests(one)):
            asked += 1
            yield error(
                f"`{one.name}` has CUDA_VISIBLE_DEVICES=all, which is the name of no GPU, so CUDA finds none",
                said.span,
                {"a GPU is asked for": wanted[0].span.place},
                "drop it: the container sees only the GPUs that it gets; `all` is a value of NVIDIA_VISIBLE_DEVICES",
            )
            continue
        if said is None or not said.sure or not count:
            continue
        words = [word.strip() for word in said.value.split(",")]
        if not all(re.fullmatch(r"[0-9]{1,3}", word) for word in words):
            continue
        asked += 1
        beyond = [word for word in words if int(word) >= count]
        if not beyond:
            continue
        have = f"{count} GPUs, 0 to {count - 1}" if count > 1 else "1 GPU, which is 0"
        none = words[0] in beyond  # CUDA stops at the first number that is not there
        yield found(
            f"`{one.name}` has CUDA_VISIBLE_DEVICES={said.value} and gets {have} inside"
            + (", so CUDA finds none" if none else f", so that CUDA finds {words.index(beyond[0])}"),
            said.span,
            Severity.ERROR if none else Severity.WARNING,
            "drop it: the container sees only the GPUs that it gets",
            {f"{count}": requests(one)[0].span.place},
        )
    skip_if(not asked, "no container has both CUDA_VISIBLE_DEVICES and a known number of GPUs")


def workload_ranks_exceed_gpus(workload: Workload) -> Iterator[Finding]:
    """A command starts no more processes with a GPU each than the container gets GPUs."""
    asked = 0
    for one in need_containers(workload):
        count = gpu_count(one)
        if not count:
            continue
        each = option(one, "--nproc_per_node", "--nproc-per-node")
        all_of_them = [option(one, "--num_processes"), option(one, "--num-shard"), option(one, *_TENSOR)]
        machines = option(one, "--nnodes", "--num_machines")
        ray = any(word.value.rsplit("/", 1)[-1] == "ray" for word in words(one))
        if ray or (machines is not None and number(machines) != 1):
            all_of_them = []  # other machines bring their GPUs too
        for said in (each, *all_of_them):
            wanted = number(said)
            if said is None or wanted is None:
                continue
            asked += 1
            if wanted > count:
                yield error(
                    f"the command of `{one.name}` uses {wanted} GPUs and the container gets {count}",
                    said.span,
                    {f"{count} GPU{'s' if count > 1 else ''}": requests(one)[0].span.place},
                    "give it as many GPUs, or start fewer processes",
                )
    skip_if(not asked, "no command names a number of processes beside a known number of GPUs")


def workload_replicas_share_gpus(workload: Workload) -> Iterator[Finding]:
    """Copies of one service do not all get the same GPUs by name.  Source: Compose deploy specification, replicas."""
    asked = 0
    for one in need_containers(workload):
        fixed = next((request for request in one.gpus if request.ids and request.form in ("devices", "gpus")), None)
        if fixed is None or fixed.ids is None:
            continue
        asked += 1
        if one.replicas is not None and one.replicas > 1:
            yield warning(
                f"all {one.replicas} replicas of `{one.name}` get the same GPUs {', '.join(fixed.ids)}",
                fixed.span,
                fix="make a service for each GPU, or one replica",
            )
    skip_if(not asked, "no service names its GPUs")
