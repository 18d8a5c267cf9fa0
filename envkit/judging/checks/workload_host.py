"""What is asked of a workload's share of the host: shared and locked memory, privileges, mounts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._outcomes import found, skip_if, warning
from envkit.judging.checks._workload import GIB, MIB, amount, evident, gpu_count, need_containers, requests, size
from envkit.model import Finding, Severity, Span
from envkit.subjects.workload import Container, Workload

_DEFAULT_SHM = 64 * MIB  # what Docker and containerd give a container
_NCCL_SHM = GIB  # NVIDIA's NCCL documentation gives containers --shm-size=1g
_DRIVER_FILE = re.compile(
    r"lib(?:cuda|nvidia-[a-z0-9-]+|nvcuvid)\.so|/nvidia-smi\Z|/usr/lib(?:64)?/nvidia(?:-[0-9]+)?(?:/|\Z)"
)
_TOOLKIT = re.compile(r"/usr/local/cuda(?:-[0-9.]+)?/?\Z")
_LAUNCHER = re.compile(r"\b(?:torchrun|accelerate|deepspeed|torch\.distributed|vllm|sglang)\b|--tensor-parallel-size")
_SERVER = re.compile(r"(?:^|/)(?:vllm|sglang|text-generation-inference|lmdeploy|tritonserver)(?:[-/:@]|\Z)")
_RDMA_DEVICE = re.compile(r"/dev/infiniband|rdma", re.IGNORECASE)


def workload_shm_too_small(workload: Workload) -> Iterator[Finding]:
    """/dev/shm is large enough for NCCL among several GPUs and for data loaders."""
    asked = 0
    for one in need_containers(workload):
        count = gpu_count(one)
        if one.initial or not requests(one) or not _shares(one) or (count is not None and count < 1):
            continue
        if one.ipc is not None and (
            one.ipc.value in ("host", "shareable") or one.ipc.value.startswith(("service:", "container:"))
        ):
            asked += 1
            if one.ipc.value != "shareable":
                continue
        room, span = _room(one)
        if room is None:
            continue
        asked += 1
        several = count is not None and count > 1
        if room >= (_NCCL_SHM if several else _DEFAULT_SHM + 1):
            continue
        gpus = f"{count} GPUs" if several else "1 GPU" if count == 1 else "its GPUs"
        yield found(
            f"/dev/shm of `{one.name}` has {amount(room)} for {gpus}"
            + (", while NCCL needs 1 GiB" if several else ", while data loaders with workers soon need more"),
            span,
            Severity.WARNING if several else Severity.NOTE,
            _FIXES[workload.kind],
            {gpus: requests(one)[0].span.place},
        )
    skip_if(not asked, "no container with GPUs has a /dev/shm of a known size")


_FIXES = {
    "compose": "set `shm_size: 8gb`, or `ipc: host`",
    "kubernetes": "mount an emptyDir with `medium: Memory` and a sizeLimit at /dev/shm",
    "devcontainer": 'add "--shm-size=8g" to runArgs',
    **dict.fromkeys(
        ("workflow", "slurm", "makefile"), "add `--shm-size=8g` or `--ipc=host` to the options of `docker run`"
    ),
    "helm": "mount an emptyDir with `medium: Memory` and a sizeLimit at /dev/shm",
}


def _shares(one: Container) -> bool:
    """Whether the container's programs use /dev/shm between processes: CUDA images, torch, launchers of ranks."""
    if list(evident(one)):
        return True
    base, torch = one.base, one.built.torch if one.built is not None else None
    if torch is not None and torch.cuda.value != "cpu":
        return True  # also where nothing but the request says that it is for GPUs
    if base is not None and (base.torch.value or (base.torch_cuda.value and not base.torch_cuda.missing)):
        return True
    return any(_LAUNCHER.search(word.value) for word in one.command) or (
        one.image is not None and _SERVER.search(one.image.value) is not None
    )


def _room(one: Container) -> tuple[int | None, Span]:
    """Bytes of /dev/shm, None where nobody knows, and the place that decides them."""
    for mount in one.mounts:
        if mount.target.rstrip("/") != "/dev/shm":
            continue
        if mount.kind in ("memory", "tmpfs") and mount.size is not None:
            return size(mount.size), mount.span
        return None, mount.span  # the host's, a disk's, or half of the machine's memory
    if one.shm is not None:
        return size(one.shm), one.shm.span
    return _DEFAULT_SHM, one.span


def workload_memlock_too_low_for_rdma(workload: Workload) -> Iterator[Finding]:
    """A container with RDMA devices may lock memory."""
    asked = 0
    for one in need_containers(workload):
        device = next((said.span for said in one.devices if _RDMA_DEVICE.search(said.value)), None)
        named = next(
            (said.span for name, said in one.resources.items() if name.startswith("limits/") and "rdma/" in name), None
        )
        span = device or named
        if span is None:
            continue
        asked += 1
        if "IPC_LOCK" in {name.removeprefix("CAP_") for name in one.capabilities} or "ALL" in one.capabilities:
            continue
        if one.privileged is not None and (one.privileged.value in ("true", "--privileged") or not one.privileged.sure):
            continue
        limit = one.ulimits.get("memlock")
        if limit is not None and (not limit.sure or limit.value in ("-1", "unlimited") or _int(limit.value) >= GIB):
            continue
        yield warning(
            f"`{one.name}` has RDMA devices and may lock "
            + (f"{limit.value} bytes" if limit is not None else "only what the engine's default lets it")
            + " of memory",
            limit.span if limit is not None else span,
            fix="set `ulimits: {memlock: -1}`"
            if workload.kind != "kubernetes"
            else "add `securityContext: {capabilities: {add: [IPC_LOCK]}}`",
        )
    skip_if(not asked, "no container has RDMA devices")


def _int(text: str) -> int:
    """The number in a text, 0 where it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


def workload_privileged_for_gpu(workload: Workload) -> Iterator[Finding]:
    """A container with GPUs is not privileged: it would see every GPU and device of the machine."""
    asked = 0
    for one in need_containers(workload):
        if not one.gpus:
            continue
        asked += 1
        said = one.privileged
        if said is None or not said.sure or said.value.lower() not in ("true", "yes", "--privileged"):
            continue
        yield found(
            f"`{one.name}` is privileged, which its GPUs do not need, and sees all GPUs of the machine",
            said.span,
            Severity.WARNING if workload.kind == "kubernetes" else Severity.NOTE,
            "drop it; a profiler's counters need CAP_SYS_ADMIN or the driver's option, RDMA needs IPC_LOCK",
        )
    skip_if(not asked, "no container asks for a GPU")


def workload_driver_mounted_by_hand(workload: Workload) -> Iterator[Finding]:
    """No driver library is mounted from the host by hand: the container toolkit mounts those that belong together."""
    for one in need_containers(workload):
        for mount in one.mounts:
            if mount.kind != "bind":
                continue
            if _DRIVER_FILE.search(mount.source):
                yield warning(
                    f"`{one.name}` mounts {mount.source} of the host's driver manually, which the next driver "
                    "update breaks",
                    mount.span,
                    fix="drop the mount and ask for a GPU; the container toolkit mounts what the driver needs",
                )
            elif _TOOLKIT.match(mount.source):
                yield warning(
                    f"`{one.name}` mounts {mount.source} of the host, so that its CUDA is whatever the machine has",
                    mount.span,
                    fix="take an image that has the toolkit",
                )
