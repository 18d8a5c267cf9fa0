"""What is asked of the machine itself: memory, disks, limits, and what its environment tells CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.checks._host import AGAIN, loaded_driver, need_driver, nvml_answers, wsl
from envkit.facts import Facts
from envkit.model import Finding, Severity, Unknown
from envkit.subjects import Host
from envkit.subjects.host import CudaDirectory, Disk, Gpu, Limit
from envkit.versions import Driver, Glibc

_GIB = 1024**3
_MIB = 1024**2

# /dev/shm: Primus' node smoke test asks for 8 GiB; below 512 MiB DeepSpeed's ds_report warns of failing data loaders
_SHM_WANTED = 8 * _GIB
_SHM_LEAST = 512 * _MIB
# an image with one torch for CUDA and numpy measured 5.9 GB, and its build and export hold it twice for a while
_IMAGES_LEAST = 6 * _GIB
_IMAGES_WANTED = 20 * _GIB
_TEMPORARY_WANTED = 2 * _GIB  # a torch wheel for CUDA is up to 0.9 GB and is unpacked beside itself
# PyTorch's data loader keeps a descriptor for each tensor on its way between processes; a proposal, not a measurement
_NOFILE_WANTED = 4096
_STACK_WANTED = 8 * _MIB  # the kernel's default; below it deep C++ recursion in compilers ends in SIGSEGV
_MEMLOCK_RDMA = 32 * _GIB  # Primus' node smoke test, where RDMA registers GPU buffers


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def host_shm_size(host: Host) -> Iterator[Finding]:
    """/dev/shm is large enough.

    In bytes; the thresholds are _SHM_WANTED and _SHM_LEAST.
    """
    size = host.shm.need("the size of /dev/shm")
    if size < _SHM_WANTED:
        yield Finding(
            f"/dev/shm has {_gib(size)}, less than {_gib(_SHM_WANTED)}",
            Severity.ERROR if size < _SHM_LEAST else Severity.WARNING,
            "/dev/shm",
            {f"{size} bytes": host.shm.via},
            "data loaders and NCCL share memory there: `mount -o remount,size=16G /dev/shm`, and give "
            "containers `--shm-size` or `--ipc=host`; check it with `df -h /dev/shm`",
        )


def host_disk_free(host: Host) -> Iterator[Finding]:
    """There is room for images and temporary files.

    In bytes; a file system that could not be asked is unknown.
    """
    findings: list[Finding] = []
    doubts: list[str] = []
    disks = host.disks.need("the room on disks")
    if {disk.use for disk in disks} != {"images", "temporary"}:
        doubts.append(f"only {', '.join(disk.use for disk in disks) or 'nothing'} was looked at")
    for disk in disks:
        if disk.free.value is None or disk.total.value is None:
            doubts.append(f"the room at {disk.path} was not observed: {disk.free.missing or disk.total.missing}")
        else:
            findings += _room(disk, disk.free.value, disk.total.value)
    if not findings and doubts:
        raise Unknown("; ".join(doubts))
    yield from findings


def _room(disk: Disk, free: int, total: int) -> Iterator[Finding]:
    images = disk.use == "images"
    least, wanted = (_IMAGES_LEAST, _IMAGES_WANTED) if images else (0, _TEMPORARY_WANTED)
    if free >= wanted:
        return
    how = (
        "make room with `docker system prune` and `docker buildx prune`, or move the directory to a larger disk"
        if images
        else "make room there, or set TMPDIR to a directory on a larger disk"
    )
    yield Finding(
        f"{disk.path} ({disk.use}) has {_gib(free)} free ({_percent(free, total)}), less than {_gib(wanted)}",
        Severity.ERROR if free < least else Severity.WARNING,
        disk.path,
        {f"{free} bytes": disk.free.via},
        f"{how}; check it with `df -h {disk.path}`",
    )


def host_limits(host: Host) -> Iterator[Finding]:
    """Resource limits allow open files, stack and locked memory.

    Locked memory matters where there are RDMA devices alone.
    """
    limits = host.limits.need("this process's limits")
    infiniband = host.infiniband.need("whether there are RDMA devices")
    files, stack, memlock = (limits.get(name) for name in ("nofile", "stack", "memlock"))
    if files is None or stack is None or memlock is None:
        raise Unknown("not all of nofile, stack and memlock were observed")
    if 0 <= files.soft < _NOFILE_WANTED:
        yield _few_files(files, host.limits.via)
    if 0 <= stack.soft < _STACK_WANTED:
        yield Finding(
            f"the stack is limited to {stack.soft // 1024} KiB, less than {_STACK_WANTED // 1024} KiB",
            Severity.WARNING,
            "RLIMIT_STACK",
            {str(stack.soft): host.limits.via},
            "raise it with `ulimit -s`, and `--ulimit stack=67108864` for containers; check it with `ulimit -s`",
        )
    if infiniband and 0 <= memlock.soft < _MEMLOCK_RDMA:
        yield Finding(
            f"{', '.join(infiniband)} need locked memory and only {memlock.soft // 1024} KiB may be locked",
            Severity.WARNING,
            "RLIMIT_MEMLOCK",
            {str(memlock.soft): host.limits.via, ", ".join(infiniband): host.infiniband.via},
            "set memlock to unlimited in /etc/security/limits.conf and in the service that starts jobs, and "
            "`--ulimit memlock=-1` for containers; check it with `ulimit -l`",
        )


def _few_files(files: Limit, via: str) -> Finding:
    raisable = files.hard < 0 or files.hard >= _NOFILE_WANTED
    return Finding(
        f"this process may open {files.soft} files, {files.hard if files.hard >= 0 else 'unlimited'} if it asks, "
        f"and {_NOFILE_WANTED} are wanted",
        Severity.NOTE if raisable else Severity.WARNING,
        "RLIMIT_NOFILE",
        {str(files.soft): via},
        f"set nofile in /etc/security/limits.conf, and `--ulimit nofile={_NOFILE_WANTED}` for containers; "
        "check it with `ulimit -n`",
    )


def host_glibc_runs_wheels(host: Host, facts: Facts) -> Iterator[Finding]:
    """The C library is new enough for the newest torch wheels.

    It concerns ``--engine local`` alone, and is a warning.
    """
    here = Glibc(host.glibc.need("the C library"))
    tagged = [row for row in facts.torches if row.glibc is not None]
    if not tagged:
        raise Unknown("the facts name no torch build's glibc")
    newest = max(tagged, key=lambda row: row.torch)
    if newest.glibc is not None and here < newest.glibc:
        yield Finding(
            f"glibc is {here}, and the wheels of torch {newest.torch} need {newest.glibc}",
            Severity.WARNING,
            evidence={str(here): host.glibc.via, str(newest.glibc): newest.source},
            fix="this concerns `--engine local` alone: containers bring their own; update the distribution or use "
            "one; check it with `ldd --version`",
        )


def host_cgroup_v2(host: Host) -> Iterator[Finding]:
    """Control groups are version 2.

    A note.
    """
    version = host.cgroup.need("the cgroup version")
    if version != "v2":
        yield Finding(
            f"control groups are {version}",
            Severity.NOTE,
            "/sys/fs/cgroup",
            {version: host.cgroup.via},
            "systemd and Kubernetes are leaving version 1: boot with `systemd.unified_cgroup_hierarchy=1`; "
            "check it with `stat -fc %T /sys/fs/cgroup`",
        )


def host_visible_devices_valid(host: Host) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES names GPUs that exist, each once.

    CUDA's rule: an invalid name hides itself and all that follow (CUDA C++ Programming Guide).
    """
    need_driver(host)
    text = host.environment.need("the environment").get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return
    gpus = nvml_answers(host).gpus
    complaint = _unfit(text, gpus)
    if complaint:
        yield Finding(
            complaint,
            evidence={
                f"CUDA_VISIBLE_DEVICES={text}": host.environment.via,
                f"{len(gpus)} GPUs": "nvmlDeviceGetCount",
            },
            fix="name GPUs by index or full UUID as `nvidia-smi -L` lists them, or unset the variable",
        )


def _unfit(text: str, gpus: tuple[Gpu, ...]) -> str:
    """What is wrong with CUDA_VISIBLE_DEVICES, empty if nothing is."""
    names = [token.strip() for token in text.split(",")]
    if not text.strip():
        return "CUDA_VISIBLE_DEVICES is empty and hides every GPU"
    if any(name.startswith("MIG-") for name in names):
        raise Unknown("CUDA_VISIBLE_DEVICES names MIG devices, which were not listed")
    met: list[Gpu] = []
    for place, name in enumerate(names):
        gpu = _named_gpu(name, gpus)
        if gpu is None:
            return (
                f"CUDA_VISIBLE_DEVICES names `{name}`, which is none of the {len(gpus)} GPUs here: CUDA hides it "
                f"and all that follow, so that {place} stay visible"
            )
        if gpu in met:
            # measured on an H100: cuInit returns CUDA_ERROR_INVALID_DEVICE and no GPU is visible
            return f"CUDA_VISIBLE_DEVICES names GPU {gpu.index} twice, and CUDA then refuses to start"
        met.append(gpu)
    return ""


def _named_gpu(name: str, gpus: tuple[Gpu, ...]) -> Gpu | None:
    """The GPU that CUDA takes the word for: an index, or a UUID cut at any unambiguous place."""
    if name.isdecimal():
        return next((gpu for gpu in gpus if gpu.index == int(name)), None)
    if not name.startswith("GPU-"):
        return None
    uuids = [gpu for gpu in gpus if gpu.uuid.need(f"the UUID of GPU {gpu.index}").startswith(name)]
    return uuids[0] if len(uuids) == 1 else None


def host_library_path_clean(host: Host) -> Iterator[Finding]:
    """LD_LIBRARY_PATH leads to no foreign libcuda.

    Stubs are for linking; a newer libcuda needs a data-center GPU, an older one never works.
    """
    need_driver(host)
    findings: list[Finding] = []
    doubt = ""
    versioned: list[tuple[str, str, str]] = []
    for directory in host.cuda_on_path.need("the libraries on LD_LIBRARY_PATH"):
        for name, real in directory.files.items():
            version = re.search(r"\.so\.([0-9]{3}(?:\.[0-9]+)+)\Z", real)
            if "stubs" in real.split("/") or "stubs" in directory.path.split("/"):
                findings.append(_stub(directory, name, real))
            elif version:
                versioned.append((directory.path, real, version[1]))
            elif not wsl(host):
                doubt = f"{real} does not say its driver version"
    if versioned and (not findings or host.module.value is not None):
        driver, via = loaded_driver(host)
        findings += [
            _foreign(path, real, Driver(version_there), driver, via)
            for path, real, version_there in versioned
            if Driver(version_there) != driver
        ]
    if not findings and doubt:
        raise Unknown(doubt)
    yield from findings


def _stub(directory: CudaDirectory, name: str, real: str) -> Finding:
    return Finding(
        f"LD_LIBRARY_PATH leads to a stub of libcuda, {directory.path}/{name}",
        # programs load libcuda.so.1; some load libcuda.so first
        Severity.ERROR if name == "libcuda.so.1" else Severity.WARNING,
        directory.path,
        {real: f"{directory.path}/{name}"},
        f"a stub is for linking only and finds no GPU: take {directory.path} out of LD_LIBRARY_PATH; {AGAIN}",
    )


def _foreign(path: str, real: str, there: Driver, driver: Driver, via: str) -> Finding:
    return Finding(
        f"LD_LIBRARY_PATH leads to libcuda {there} and driver {driver} is loaded",
        Severity.ERROR if there < driver else Severity.WARNING,
        path,
        {real: path, str(driver): via},
        f"take {path} out of LD_LIBRARY_PATH; {AGAIN}; a newer libcuda (cuda-compat) works on data-center GPUs "
        "alone, an older one nowhere",
    )
