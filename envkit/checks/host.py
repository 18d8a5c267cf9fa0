"""What is asked of a machine before GPU containers run on it.

Order of doubt: without a GPU every question about the driver is skipped; without a driver every question
about its parts is skipped, for the missing driver is one finding and not twelve.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from envkit.facts import Facts
from envkit.model import Finding, Observed, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import CdiSpec, Docker, Gpu, Nvml, RowRemap
from envkit.versions import Cuda, Driver, Glibc

T = TypeVar("T")

_GIB = 1024**3
_MIB = 1024**2
_AGAIN = "check it with `envkit doctor`"

# /dev/shm: Primus' node smoke test asks for 8 GiB; below 512 MiB DeepSpeed's ds_report warns of failing data
# loaders
_SHM_WANTED = 8 * _GIB
_SHM_LEAST = 512 * _MIB
# an image with one torch for CUDA and numpy measured 5.9 GB, and its build and export hold it twice for a
# while
_IMAGES_LEAST = 6 * _GIB
_IMAGES_WANTED = 20 * _GIB
# a torch wheel for CUDA is up to 0.9 GB and is unpacked beside itself
_TEMPORARY_WANTED = 2 * _GIB
# PyTorch's data loader keeps a descriptor for each tensor on its way between processes; a proposal, not a
# measurement
_NOFILE_WANTED = 4096
_STACK_WANTED = 8 * _MIB  # the kernel's default; below it deep C++ recursion in compilers ends in SIGSEGV
_MEMLOCK_RDMA = 32 * _GIB  # Primus' node smoke test, where RDMA registers GPU buffers
_REMAPPED_ROWS_MOST = 512  # NVIDIA DCGM, common/DcgmGPUHardwareLimits.h

# NVIDIA's Xid catalogue names the application as the first suspect, or says that the driver has dealt with it
_XID_MILD = frozenset({8, 11, 13, 25, 31, 32, 37, 43, 44, 45, 63, 66, 68, 69, 80, 92, 93, 94, 154})
_TROUBLE = (
    (
        re.compile(r"RmInitAdapter failed|rm_init_adapter failed", re.IGNORECASE),
        "the driver could not start a GPU",
        "power the machine off and on, check power cables and that Above 4G Decoding is on, then replace the GPU",
    ),
    (
        re.compile(r"fallen off the bus", re.IGNORECASE),
        "a GPU no longer answers on the PCI bus",
        "reboot; if it comes back, check power, risers and cooling, then replace the GPU",
    ),
    (
        re.compile(r"API mismatch"),
        "a program brought driver libraries of another version than the kernel module",
        "reboot after a driver update; in a container, take libcuda out of the image",
    ),
    (
        re.compile(r"requires use of the NVIDIA open kernel modules", re.IGNORECASE),
        "the GPU needs the open kernel modules and the proprietary ones are installed",
        "install the driver packages whose names say `open`, and reboot",
    ),
    (
        re.compile(r"Key was rejected by service|Required key not available", re.IGNORECASE),
        "Secure Boot refused the kernel module's signature",
        "enroll the module's key with `mokutil --import` and reboot, or install the signed packages",
    ),
    (
        re.compile(r"can't assign|BAR0 is 0M", re.IGNORECASE),
        "the firmware gave a GPU no address space",
        "turn Above 4G Decoding on in the firmware, or boot with `pci=realloc`",
    ),
)


def _gpu_signs(host: Host) -> tuple[dict[str, str], list[str]]:
    """What shows a GPU, as evidence, and which of the three sources were silent."""
    signs: dict[str, str] = {}
    silent: list[str] = []
    if host.pci_gpus.value:
        signs[f"{len(host.pci_gpus.value)} on the PCI bus"] = host.pci_gpus.via
    elif host.pci_gpus.value is None:
        silent.append(f"the PCI bus: {host.pci_gpus.missing}")
    if host.device_nodes.value is None:
        silent.append(f"the device nodes: {host.device_nodes.missing}")
    elif nodes := _gpu_nodes(host):
        signs[", ".join(nodes)] = "listing of /dev"
    nvml = host.nvml.value
    if nvml is not None and nvml.gpus:
        signs[f"{len(nvml.gpus)} in NVML"] = "nvmlDeviceGetCount"
    elif nvml is None:
        silent.append(f"NVML: {host.nvml.missing}")
    elif nvml.ended in ("hung", "killed"):
        silent.append(f"NVML: {nvml.detail}")
    return signs, silent


def _gpu_nodes(host: Host) -> list[str]:
    nodes = host.device_nodes.value or ()
    return [node.path for node in nodes if re.fullmatch(r"/dev/(nvidia[0-9]+|dxg)", node.path)]


def _wsl(host: Host) -> bool:
    """Whether the GPU comes from Windows: its driver is outside, and /dev/dxg is all there is of it."""
    return "/dev/dxg" in _gpu_nodes(host)


def _need_gpu(host: Host) -> None:
    signs, silent = _gpu_signs(host)
    if signs:
        return
    if silent:
        raise Unknown(f"whether this machine has a GPU is open: {'; '.join(silent)}")
    raise Skip("no NVIDIA GPU on this machine")


def _loaded(host: Host) -> bool:
    """Whether the kernel driver is loaded; raises Unknown if nothing says so and nothing denies it."""
    nvml = host.nvml.value
    answered = nvml is not None and nvml.ended == "answered"
    if host.module.value is not None or answered:
        return True
    return "nvidia" in host.modules.need("the list of loaded kernel modules")


def _need_driver(host: Host) -> None:
    _need_gpu(host)
    if not _loaded(host):
        raise Skip("the NVIDIA driver is not loaded")


def _driver(host: Host) -> tuple[Driver, str]:
    """The loaded driver and how it was found; raises Unknown if neither the module nor NVML said."""
    if host.module.value is not None:
        return Driver(host.module.value.version), host.module.via
    nvml = host.nvml.value
    if nvml is not None and nvml.driver:
        return Driver(nvml.driver), "nvmlSystemGetDriverVersion"
    raise Unknown(f"the loaded driver was not observed: {host.module.missing or 'no value'}")


def _nvml(host: Host) -> Nvml:
    """NVML's answers; raises Unknown if it gave none."""
    nvml = host.nvml.need("NVML")
    if nvml.ended != "answered":
        raise Unknown(f"NVML gave no answers: {nvml.detail or nvml.ended}")
    return nvml


def _gpu_name(gpu: Gpu) -> str:
    name = gpu.name.value or "an unnamed product"
    return f"GPU {gpu.index} ({name}, {gpu.pci.value or gpu.uuid.value or 'no address'})"


def _judge_gpus(
    host: Host,
    what: str,
    of: Callable[[Gpu], Observed[T]],
    judge: Callable[[Gpu, T], Iterator[Finding]],
    lacks: Callable[[T], bool],
) -> Iterator[Finding]:
    """Judges one value of every GPU.  A fault of one GPU outranks a doubt about another.

    Raises Unknown if nothing is wrong and a value is missing, Skip if no GPU has such a thing (``lacks``).
    """
    findings: list[Finding] = []
    doubts: list[str] = []
    judged = 0
    gpus = _nvml(host).gpus
    if not gpus:
        raise Unknown("NVML lists no GPU")
    for gpu in gpus:
        seen = of(gpu)
        if seen.missing or seen.value is None:
            doubts.append(f"{what} of {_gpu_name(gpu)} was not observed: {seen.missing or 'no value'}")
        elif not lacks(seen.value):
            judged += 1
            findings += judge(gpu, seen.value)
    if not findings and doubts:
        raise Unknown("; ".join(doubts))
    if not judged and not findings:
        raise Skip(f"no GPU here tells {what}")
    yield from findings


def _engine(host: Host) -> Docker:
    """The engine's answers; skips if there is none, which is a finding of its own."""
    docker = host.docker.need("the Docker Engine")
    if docker.ended != "answered":
        raise Skip(f"no Docker Engine answers: {docker.detail or docker.ended}")
    return docker


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


# ---- the GPU and its driver


def host_gpu_present(host: Host) -> Iterator[Finding]:
    """An NVIDIA GPU is on this machine.

    Three places are asked: the PCI bus, /dev and NVML; one of them is enough.
    """
    signs, silent = _gpu_signs(host)
    if signs:
        return
    if silent:
        raise Unknown(f"no GPU was seen, and not every place could be looked at: {'; '.join(silent)}")
    nvml = host.nvml.need("NVML")
    yield Finding(
        "no NVIDIA GPU on this machine: none on the PCI bus, no device node, none in NVML",
        where="/sys/bus/pci/devices",
        evidence={
            "no display device of vendor 0x10de": host.pci_gpus.via,
            "no /dev/nvidia0": "listing of /dev",
            f"NVML: {nvml.detail or 'answered, 0 GPUs'}": host.nvml.via,
        },
        fix="run on a machine with an NVIDIA GPU, or hand one to this virtual machine; check it with `lspci -d 10de:`",
    )


def host_driver_loaded(host: Host) -> Iterator[Finding]:
    """The NVIDIA kernel module is loaded.

    Skipped without a GPU.
    """
    _need_gpu(host)
    if _loaded(host):
        return
    modules = host.modules.value or ()
    beside = f", and {', '.join(modules)} is" if modules else ""
    yield Finding(
        f"the nvidia kernel module is not loaded{beside}",
        where="/sys/module/nvidia",
        evidence={
            f"modules: {', '.join(modules) or 'none of interest'}": host.modules.via,
            "no module version": host.module.missing or host.module.via,
        },
        fix="install the driver and run `modprobe nvidia`; if that fails, `dkms status` and `dmesg | grep -i "
        "nvidia` say why; check it with `cat /proc/driver/nvidia/version`",
    )


def host_nouveau_absent(host: Host) -> Iterator[Finding]:
    """The nouveau module is not loaded.

    An error where nouveau holds a GPU or the NVIDIA driver is not there, else a warning.
    """
    _need_gpu(host)
    if "nouveau" not in host.modules.need("the list of loaded kernel modules"):
        return
    bound = [gpu.address for gpu in host.pci_gpus.value or () if gpu.driver == "nouveau"]
    yield Finding(
        f"nouveau is loaded and drives {', '.join(bound)}" if bound else "nouveau is loaded beside the NVIDIA driver",
        Severity.ERROR if bound or not _loaded(host) else Severity.WARNING,
        "/sys/module/nouveau",
        {"nouveau is loaded": host.modules.via},
        "write `blacklist nouveau` and `options nouveau modeset=0` to /etc/modprobe.d/nouveau.conf, rebuild "
        "the initramfs and reboot; check it with `lsmod | grep nouveau`",
    )


def host_gpus_bound_to_nvidia(host: Host) -> Iterator[Finding]:
    """Every GPU on the bus is bound to the NVIDIA driver.

    A GPU set aside for a virtual machine (vfio-pci) is a warning.
    """
    _need_gpu(host)
    gpus = host.pci_gpus.need("the PCI bus")
    if not gpus:
        raise Skip("the PCI bus shows no GPU; it reaches this machine another way")
    for gpu in gpus:
        if gpu.driver == "nvidia":
            continue
        passed_on = gpu.driver in ("vfio-pci", "pci-stub")
        yield Finding(
            f"GPU {gpu.address} is bound to {gpu.driver}" if gpu.driver else f"no driver is bound to GPU {gpu.address}",
            Severity.WARNING if passed_on else Severity.ERROR,
            f"/sys/bus/pci/devices/{gpu.address}",
            {f"driver: {gpu.driver or 'none'}": host.pci_gpus.via},
            "it is set aside for a virtual machine; give it back with `driverctl unset-override` if it shall run here"
            if passed_on
            else "load the driver with `modprobe nvidia`; `dmesg | grep NVRM` says why it left this GPU out; "
            f"check it with `lspci -k -s {gpu.address}`",
        )


def host_driver_libraries_present(host: Host) -> Iterator[Finding]:
    """The driver's user-space libraries are installed and whole.

    Unknown if NVML answers and its library is in none of the usual directories.
    """
    _need_gpu(host)
    libraries = host.driver_libraries.need("the driver's libraries")
    nvml = host.nvml.value
    findings: list[Finding] = []
    doubt = ""
    for name in ("libcuda", "libnvidia-ml"):
        copies = [library for library in libraries if library.name == name]
        if not copies and nvml is not None and nvml.ended == "answered":
            doubt = f"{name}.so.1 is in none of the usual directories, and yet NVML answered: it lies elsewhere"
        elif not copies:
            findings.append(
                Finding(
                    f"{name}.so.1 is not installed",
                    evidence={f"no {name}.so.1": host.driver_libraries.via},
                    fix="install the driver's user-space package of the same version as the kernel module "
                    "and run "
                    f"`ldconfig`; check it with `ldconfig -p | grep {name}`",
                )
            )
        findings += [
            Finding(
                f"{copy.path} cannot be loaded: {copy.error}",
                where=copy.path,
                evidence={copy.error: host.driver_libraries.via},
                fix=f"install the driver's user-space package again; check it with `file -L {copy.path}`",
            )
            for copy in copies
            if copy.error
        ]
    if doubt and not findings:
        raise Unknown(doubt)
    yield from findings


def host_driver_libraries_match_module(host: Host) -> Iterator[Finding]:
    """The driver's libraries on disk are of the loaded kernel module's version.

    Skipped without a driver; unknown if no library's name has a version.
    """
    _need_driver(host)
    if _wsl(host):
        raise Skip("under WSL the kernel driver is that of Windows")
    libraries = host.driver_libraries.need("the driver's libraries")
    driver, via = _driver(host)
    versioned = [library for library in libraries if library.version]
    if not versioned:
        raise Unknown("no driver library on disk has the driver's version in its name")
    for library in versioned:
        if Driver(library.version) != driver:
            yield Finding(
                f"{library.name} on disk is {library.version} and the loaded kernel module is {driver}",
                where=library.path,
                evidence={library.version: f"file name behind {library.path}", str(driver): via},
                fix="the driver was updated under a running module: reboot, or stop all GPU programs and "
                "reload the "
                "module with `modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia`; "
                "hold the "
                "driver's packages; check it with `nvidia-smi`",
            )


def host_nvml_answers(host: Host) -> Iterator[Finding]:
    """NVML answers.

    An error, a hang and a death are findings; a reader that could not run is unknown.
    """
    _need_driver(host)
    nvml = host.nvml.need("NVML")
    if nvml.ended == "answered":
        for gpu in nvml.gpus:
            if gpu.uuid.value is None:
                yield Finding(
                    f"NVML lists GPU {gpu.index} and cannot say which it is: {gpu.uuid.missing}",
                    where=f"GPU {gpu.index}",
                    evidence={gpu.uuid.missing: gpu.uuid.via or host.nvml.via},
                    fix="read `dmesg | grep NVRM` for this GPU, then reset it or reboot; check it with `nvidia-smi -L`",
                )
        return
    fixes = {
        "no library": "install the driver's user-space package (libnvidia-ml.so.1) and run `ldconfig`",
        "hung": "a GPU does not answer: read `dmesg | grep -E 'NVRM|Xid'`, stop GPU programs, reboot; "
        "without persistence mode many GPUs start slowly, so turn that on and ask again",
        "killed": "the driver's libraries are damaged: install the driver's user-space package again",
    }
    by_code = {
        4: "the device nodes may not be opened by this user: check the modes of /dev/nvidia*",
        9: "load the kernel module with `modprobe nvidia`",
        18: "library and kernel module are of two versions: reboot, or reload the module",
    }
    fix = fixes.get(nvml.ended) or by_code.get(nvml.code) or "read `dmesg | grep NVRM` for the driver's own words"
    yield Finding(
        f"NVML does not answer: {nvml.detail or nvml.ended}",
        where="libnvidia-ml.so.1",
        evidence={nvml.detail or nvml.ended: host.nvml.via},
        fix=f"{fix}; check it with `nvidia-smi -L`",
    )


def host_gpu_counts_agree(host: Host) -> Iterator[Finding]:
    """NVML, /dev and the PCI bus show the same number of GPUs.

    GPUs set aside for virtual machines do not count.
    """
    _need_driver(host)
    if _wsl(host):
        raise Skip("under WSL all GPUs are behind /dev/dxg")
    shown = len(_nvml(host).gpus)
    host.device_nodes.need("the device nodes")
    nodes = len(_gpu_nodes(host))
    bus = host.pci_gpus.need("the PCI bus")
    meant = [gpu for gpu in bus if gpu.driver not in ("vfio-pci", "pci-stub")]
    evidence = {
        f"{shown} in NVML": "nvmlDeviceGetCount",
        f"{nodes} device nodes": "listing of /dev",
        f"{len(meant)} on the PCI bus": host.pci_gpus.via,
    }
    if shown == nodes == len(meant):
        return
    yield Finding(
        f"NVML shows {shown} GPUs, /dev has nodes for {nodes} and the PCI bus has {len(meant)}",
        Severity.ERROR,
        "/dev/nvidia*",
        evidence,
        "a GPU that NVML leaves out failed to start or fell off the bus: `dmesg | grep NVRM` names it; "
        "missing nodes "
        "come back with `nvidia-modprobe -c 0`; inside a container only the GPUs handed to it count; "
        "check it with `nvidia-smi -L`",
    )


def host_device_nodes_open(host: Host) -> Iterator[Finding]:
    """The driver's device nodes exist and can be opened.

    nvidia-modeset serves displays: that it does not open is a warning.
    """
    _need_driver(host)
    nodes = {node.path: node for node in host.device_nodes.need("the device nodes")}
    if not _wsl(host):
        wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
        if not _gpu_nodes(host):
            wanted.append("/dev/nvidia0")
        for path in wanted:
            if path not in nodes:
                yield Finding(
                    f"{path} does not exist",
                    where=path,
                    evidence={f"no {path}": host.device_nodes.via},
                    fix="create it with `nvidia-modprobe -c 0 -u` (nvidia-uvm needs `modprobe nvidia_uvm`); "
                    f"check it with `ls -l {path}`",
                )
    for node in nodes.values():
        if node.error:
            yield Finding(
                f"{node.path} cannot be opened: {node.error}",
                # display programs need nvidia-modeset, CUDA does not
                Severity.WARNING if node.path == "/dev/nvidia-modeset" else Severity.ERROR,
                node.path,
                {node.error: host.device_nodes.via},
                "give this user access (the driver's default mode is 0666; NVreg_DeviceFileMode sets it); "
                f"in a container, hand the device in; check it with `ls -l {node.path}`",
            )


def host_driver_meets_cuda(host: Host, facts: Facts) -> Iterator[Finding]:
    """The driver is new enough for the CUDA that shall run here.

    Skipped if no CUDA was declared; the floors come from the facts.
    """
    _need_driver(host)
    if host.wanted_cuda.value is None:
        raise Skip("no CUDA version was declared for this machine")
    wanted = Cuda(host.wanted_cuda.value)
    driver, via = _driver(host)
    floor = facts.driver_min(wanted)
    evidence = {str(driver): via, f"CUDA {wanted}": host.wanted_cuda.via}
    upgrade = f"install driver {floor.own or floor.compat} or newer, or use an image for an older CUDA; {_AGAIN}"
    if floor.own is not None and driver >= floor.own:
        return
    if floor.compat is not None and driver < floor.compat:
        yield Finding(
            f"driver {driver} is too old for CUDA {wanted}: it needs {floor.compat} at the least",
            evidence={**evidence, str(floor.compat): floor.compat_source},
            fix=f"{upgrade}; on a data-center GPU the image's cuda-compat package may bridge the gap",
        )
    elif floor.own is None or floor.compat is None:
        raise Unknown(f"the facts name no driver that is surely new enough for CUDA {wanted}")
    else:
        yield Finding(
            f"driver {driver} runs CUDA {wanted} by minor-version compatibility only: {floor.own} is its own",
            Severity.WARNING,
            evidence={**evidence, str(floor.own): floor.own_source},
            fix=f"{upgrade}; until then code that the driver must compile from PTX fails",
        )


def host_persistence_on(host: Host) -> Iterator[Finding]:
    """Persistence mode is on.

    A warning: it costs time, not results.
    """
    _need_driver(host)

    def judge(gpu: Gpu, mode: str) -> Iterator[Finding]:
        if mode != "on":
            yield Finding(
                f"persistence mode of {_gpu_name(gpu)} is {mode}",
                Severity.WARNING,
                f"GPU {gpu.index}",
                {mode: gpu.persistence.via},
                "without it every first CUDA call starts the GPU anew and its state is lost between jobs: "
                "run `systemctl enable --now nvidia-persistenced`; check it with `nvidia-smi -q | grep "
                "Persistence`",
            )

    yield from _judge_gpus(
        host, "persistence mode", lambda gpu: gpu.persistence, judge, lambda mode: mode == "unsupported"
    )


def host_ecc_on(host: Host) -> Iterator[Finding]:
    """ECC is on where the GPU has it.

    Now and after the next reset; GPUs without ECC are skipped.
    """
    _need_driver(host)

    def judge(gpu: Gpu, mode: str) -> Iterator[Finding]:
        pending = gpu.ecc_pending.need("the pending ECC mode") if mode == "on" else mode
        if mode == "on" and pending == "on":
            return
        workstation = re.search(r"GeForce|RTX|TITAN|Quadro", gpu.name.value or "")
        yield Finding(
            f"ECC of {_gpu_name(gpu)} is {mode}" + ("" if pending == mode else f" and will be {pending} after a reset"),
            Severity.NOTE if workstation else Severity.WARNING,  # these are sold with ECC off
            f"GPU {gpu.index}",
            {f"now {mode}": gpu.ecc.via, f"pending {pending}": gpu.ecc_pending.via or gpu.ecc.via},
            "without it a flipped bit changes results silently: run `nvidia-smi -e 1` and reset the GPU; "
            "check it with `nvidia-smi -q -d ECC`",
        )

    yield from _judge_gpus(host, "an ECC mode", lambda gpu: gpu.ecc, judge, lambda mode: mode == "unsupported")


def host_ecc_no_uncorrected(host: Host) -> Iterator[Finding]:
    """No uncorrected memory error since the driver was loaded.

    GPUs without ECC are skipped.
    """
    _need_driver(host)

    def judge(gpu: Gpu, count: int) -> Iterator[Finding]:
        if count:
            yield Finding(
                f"{_gpu_name(gpu)} met {count} uncorrected memory errors since the driver was loaded",
                Severity.ERROR,
                f"GPU {gpu.index}",
                {str(count): gpu.ecc_uncorrected.via},
                "drain the machine and reset the GPU; if they return, replace it; check it with `nvidia-smi -q -d ECC`",
            )

    yield from _judge_gpus(
        host, "uncorrected memory errors", lambda gpu: gpu.ecc_uncorrected, judge, lambda count: count < 0
    )


def host_row_remap_healthy(host: Host) -> Iterator[Finding]:
    """No GPU memory row waits for a remap or failed to be remapped.

    The limit of remapped rows is DCGM's.
    """
    _need_driver(host)

    def judge(gpu: Gpu, rows: RowRemap) -> Iterator[Finding]:
        where, via = f"GPU {gpu.index}", gpu.remap.via
        check = "check it with `nvidia-smi -q -d ROW_REMAPPER`"
        if rows.failed:
            yield Finding(
                f"{_gpu_name(gpu)} could not remap a faulty memory row",
                Severity.ERROR,
                where,
                {"remapping failed": via},
                f"its memory is worn out: replace the GPU; {check}",
            )
        if rows.uncorrectable > _REMAPPED_ROWS_MOST:
            yield Finding(
                f"{_gpu_name(gpu)} has {rows.uncorrectable} rows remapped after uncorrectable errors, "
                f"more than {_REMAPPED_ROWS_MOST}",
                Severity.ERROR,
                where,
                {str(rows.uncorrectable): via},
                f"replace the GPU; {check}",
            )
        if rows.pending:
            yield Finding(
                f"{_gpu_name(gpu)} waits for a reset to remap a faulty memory row",
                Severity.WARNING,
                where,
                {"remapping pending": via},
                f"reset the GPU between two jobs with `nvidia-smi --gpu-reset -i {gpu.index}`; {check}",
            )

    yield from _judge_gpus(host, "row remapping", lambda gpu: gpu.remap, judge, lambda rows: not rows.supported)


def host_no_recovery_action(host: Host) -> Iterator[Finding]:
    """The driver asks for no recovery of a GPU.

    GPUs and drivers that do not know the question are skipped.
    """
    _need_driver(host)

    def judge(gpu: Gpu, action: str) -> Iterator[Finding]:
        if action != "none":
            yield Finding(
                f"the driver asks for a recovery of {_gpu_name(gpu)}: {action}",
                Severity.ERROR,
                f"GPU {gpu.index}",
                {action: gpu.recovery.via},
                f"drain the machine and do what the driver asks for ({action}); "
                "check it with `nvidia-smi -q | grep -i recovery`",
            )

    yield from _judge_gpus(
        host, "a recovery action", lambda gpu: gpu.recovery, judge, lambda action: action == "unsupported"
    )


def host_xid_free(host: Host) -> Iterator[Finding]:
    """The kernel log shows no Xid since boot.

    Codes that NVIDIA lays at the program's door are warnings; an unreadable log is unknown.
    """
    _need_gpu(host)
    seen: dict[tuple[int, str], list[str]] = {}
    for line in host.log.need("the kernel log"):
        if line.xid:
            seen.setdefault((line.xid, line.pci), []).append(line.text)
    for (xid, pci), texts in sorted(seen.items()):
        mild = xid in _XID_MILD
        times = f" in {len(texts)} lines, the last of them" if len(texts) > 1 else ""
        yield Finding(
            f"the kernel log shows Xid {xid} of GPU {pci}{times}: `{texts[-1]}`",
            Severity.WARNING if mild else Severity.ERROR,
            f"GPU {pci}",
            {f"Xid {xid}": host.log.via},
            "most often a program's own fault: run it under compute-sanitizer"
            if mild
            else f"look Xid {xid} up in NVIDIA's Xid catalogue, drain the machine, reset the GPU or reboot; "
            "check it with `dmesg | grep Xid` after the reboot",
        )


def host_driver_log_clean(host: Host) -> Iterator[Finding]:
    """The kernel log shows no failed start of the driver or a GPU.

    An unreadable log is unknown.
    """
    _need_gpu(host)
    lines = host.log.need("the kernel log")
    for pattern, meaning, fix in _TROUBLE:
        found = [line.text for line in lines if pattern.search(line.text)]
        if found:
            yield Finding(
                f"the kernel log says that {meaning}: `{found[-1]}`",
                evidence={found[-1]: host.log.via},
                fix=f"{fix}; check it with `dmesg | grep NVRM` after the reboot",
            )


# ---- containers


def host_docker_reachable(host: Host) -> Iterator[Finding]:
    """The Docker Engine answers.

    A machine without any Docker is warned, for envkit can do without.
    """
    docker = host.docker.need("the Docker Engine")
    if docker.ended == "answered":
        return
    if docker.ended == "no socket" and not docker.installed:
        yield Finding(
            "Docker is not installed",
            Severity.WARNING,
            docker.endpoint,
            {docker.detail: host.docker.via},
            f"install Docker Engine, or let envkit work with `--engine local`; {_AGAIN}",
        )
        return
    fixes = {
        "no socket": "start it with `systemctl start docker`",
        "refused": "start it with `systemctl start docker`",
        "permission denied": "join the docker group with `usermod -aG docker $USER` and log in again",
        "hung": "restart it with `systemctl restart docker` and read `journalctl -u docker`",
        "unsupported": "point DOCKER_HOST at a Unix socket",
    }
    yield Finding(
        f"the Docker Engine does not answer at {docker.endpoint}: {docker.detail or docker.ended}",
        where=docker.endpoint,
        evidence={docker.detail or docker.ended: host.docker.via},
        fix=f"{fixes.get(docker.ended, 'read `journalctl -u docker`')}; check it with `docker version`",
    )


def host_docker_config_valid(host: Host) -> Iterator[Finding]:
    """Docker's daemon.json can be used.

    Skipped without Docker.
    """
    _engine_installed(host)
    config = host.daemon_config.need("Docker's configuration")
    if config.error:
        yield Finding(
            f"{config.path} cannot be used: {config.error}",
            where=config.path,
            evidence={config.error: host.daemon_config.via},
            fix="mend the JSON: the engine will not start again with it; check it with `dockerd --validate`",
        )
    for program in config.missing:
        names = sorted(name for name, path in config.runtimes.items() if path == program)
        yield Finding(
            f"{config.path} names the runtime {', '.join(names)} and its program {program} does not exist",
            where=config.path,
            evidence={program: host.daemon_config.via},
            fix="install nvidia-container-toolkit or take the runtime out of the file, and restart Docker; "
            f"check it with `ls -l {program}`",
        )


def _engine_installed(host: Host) -> None:
    docker = host.docker.need("the Docker Engine")
    if docker.ended == "no socket" and not docker.installed:
        raise Skip("Docker is not installed")


def _nvidia_devices(spec: CdiSpec) -> list[str]:
    return [device for device in spec.devices if device.startswith("nvidia.com/gpu=")]


def host_toolkit_installed(host: Host) -> Iterator[Finding]:
    """The NVIDIA Container Toolkit is installed.

    A warning where a CDI specification is there without it.
    """
    _need_gpu(host)
    _engine_installed(host)
    if host.toolkit.need("the container toolkit").programs:
        return
    written = any(_nvidia_devices(spec) for spec in host.cdi.need("the CDI specifications"))
    yield Finding(
        "the NVIDIA Container Toolkit is not installed"
        + (": only the CDI specification that is there brings GPUs into containers" if written else ""),
        Severity.WARNING if written else Severity.ERROR,
        "/usr/bin/nvidia-ctk",
        {"none of its programs": host.toolkit.via},
        "install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker` and restart "
        "Docker; check it with `nvidia-ctk --version`",
    )


def host_docker_reaches_gpu(host: Host) -> Iterator[Finding]:
    """Docker has a way to a GPU.

    By the nvidia runtime, by the hook of --gpus, or by CDI; one of them is enough.
    """
    _need_gpu(host)
    docker = _engine(host)
    if "nvidia" in docker.runtimes:
        return
    dirs = docker.cdi_dirs.need("whether the engine reads CDI specifications")
    doubt = ""
    if docker.cdi_devices.value is not None:
        by_cdi = any(device.startswith("nvidia.com/gpu=") for device in docker.cdi_devices.value)
    else:
        specs = host.cdi.need("the CDI specifications") if dirs else ()
        usual = {"/etc/cdi", "/var/run/cdi", "/run/cdi"}
        read = {directory.rstrip("/").removeprefix("/var") for directory in dirs}  # /var/run is /run
        places = {spec.path.rpartition("/")[0].removeprefix("/var") for spec in specs if _nvidia_devices(spec)}
        by_cdi = bool(places & read)
        others = [directory for directory in dirs if directory.rstrip("/") not in usual]
        doubt = f"the engine also reads CDI specifications in {', '.join(others)}" if others else ""
    hook = "nvidia-container-runtime-hook" in host.toolkit.need("the container toolkit").programs
    if by_cdi or hook:
        return
    if doubt:
        raise Unknown(doubt)
    yield Finding(
        "Docker has no way to a GPU: no nvidia runtime, no hook for --gpus and no CDI device",
        where=docker.endpoint,
        evidence={
            f"runtimes {', '.join(docker.runtimes) or 'none'}": "/info Runtimes",
            f"CDI directories {', '.join(dirs) or 'none'}": docker.cdi_dirs.via,
            "no nvidia-container-runtime-hook": host.toolkit.via,
        },
        fix="install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker "
        "--cdi.enabled` and "
        "restart Docker; check it with `docker info | grep -i -A3 runtimes`",
    )


def host_cdi_present(host: Host) -> Iterator[Finding]:
    """There is a CDI specification of the GPUs.

    A warning where the nvidia runtime is there.
    """
    _need_gpu(host)
    _engine_installed(host)
    specs = host.cdi.need("the CDI specifications")
    if any(_nvidia_devices(spec) for spec in specs):
        return
    docker = host.docker.value
    other_way = docker is not None and "nvidia" in docker.runtimes
    yield Finding(
        "there is no CDI specification of this machine's GPUs",
        Severity.WARNING if other_way else Severity.ERROR,
        "/etc/cdi",
        {"no device nvidia.com/gpu": host.cdi.via},
        "write one with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; check it with `nvidia-ctk cdi list`",
    )


def host_cdi_enabled(host: Host) -> Iterator[Finding]:
    """Docker reads the CDI specifications that are there.

    Skipped if there is no specification to read.
    """
    _need_gpu(host)
    docker = _engine(host)
    if not any(_nvidia_devices(spec) for spec in host.cdi.need("the CDI specifications")):
        raise Skip("there is no CDI specification of a GPU")
    if docker.cdi_dirs.need("whether the engine reads CDI specifications"):
        return
    yield Finding(
        f"Docker {docker.version} does not read the CDI specifications that are there",
        Severity.WARNING if "nvidia" in docker.runtimes else Severity.ERROR,
        docker.endpoint,
        {"no CDI directory": docker.cdi_dirs.via},
        'set {"features": {"cdi": true}} in /etc/docker/daemon.json and restart Docker; '
        "check it with `docker info | grep -i cdi`",
    )


def host_cdi_fresh(host: Host) -> Iterator[Finding]:
    """The CDI specification fits the driver that is loaded.

    Its library names hold the driver's version, its files exist, each device has one definition.
    """
    _need_gpu(host)
    specs = host.cdi.need("the CDI specifications")
    if not specs:
        raise Skip("there is no CDI specification")
    again = "write it anew with `nvidia-ctk cdi generate --output="
    owners: dict[str, str] = {}
    findings: list[Finding] = []
    stale_check: list[tuple[CdiSpec, str]] = []
    for spec in specs:
        fix = f"{again}{spec.path}`; {_AGAIN}"
        if spec.error:
            findings.append(Finding(f"{spec.path} cannot be read: {spec.error}", where=spec.path, fix=fix))
        if spec.missing:
            findings.append(
                Finding(
                    f"{spec.path} names {len(spec.missing)} of {spec.files} files that do not exist, "
                    f"the first is {spec.missing[0]}",
                    where=spec.path,
                    evidence=dict.fromkeys(spec.missing[:5], "not on disk"),
                    fix=fix,
                )
            )
        for device in spec.devices:
            if device in owners:
                findings.append(
                    Finding(
                        f"{device} is defined by {owners[device]} and by {spec.path}",
                        where=spec.path,
                        evidence={device: f"{owners[device]}, {spec.path}"},
                        fix=f"engines refuse a device with two definitions: delete the older file; {_AGAIN}",
                    )
                )
            owners.setdefault(device, spec.path)
        stale_check += [(spec, version) for version in spec.versions]
    if stale_check and (findings == [] or host.module.value is not None):
        driver, via = _driver(host)
        for spec, version in stale_check:
            if Driver(version) != driver:
                findings.append(
                    Finding(
                        f"{spec.path} was written for driver {version} and {driver} is loaded",
                        where=spec.path,
                        evidence={version: f"library paths in {spec.path}", str(driver): via},
                        fix=f"{again}{spec.path}`, and enable nvidia-cdi-refresh to have it done by itself; {_AGAIN}",
                    )
                )
    yield from findings


# ---- the machine


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
    needs = {"images": (_IMAGES_LEAST, _IMAGES_WANTED), "temporary": (0, _TEMPORARY_WANTED)}
    findings: list[Finding] = []
    doubts: list[str] = []
    disks = host.disks.need("the room on disks")
    if {disk.use for disk in disks} != set(needs):
        doubts.append(f"only {', '.join(disk.use for disk in disks) or 'nothing'} was looked at")
    for disk in disks:
        least, wanted = needs.get(disk.use, (0, 0))
        free, total = disk.free.value, disk.total.value
        if free is None or total is None:
            doubts.append(f"the room at {disk.path} was not observed: {disk.free.missing or disk.total.missing}")
        elif free < wanted:
            findings.append(
                Finding(
                    f"{disk.path} ({disk.use}) has {_gib(free)} free ({_percent(free, total)}), "
                    f"less than {_gib(wanted)}",
                    Severity.ERROR if free < least else Severity.WARNING,
                    disk.path,
                    {f"{free} bytes": disk.free.via},
                    "make room with `docker system prune` and `docker buildx prune`, or move the directory "
                    "to a "
                    f"larger disk; check it with `df -h {disk.path}`",
                )
            )
    if not findings and doubts:
        raise Unknown("; ".join(doubts))
    yield from findings


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
        raisable = files.hard < 0 or files.hard >= _NOFILE_WANTED
        yield Finding(
            f"this process may open {files.soft} files, {files.hard if files.hard >= 0 else 'unlimited'} if "
            "it asks, "
            f"and {_NOFILE_WANTED} are wanted",
            Severity.NOTE if raisable else Severity.WARNING,
            "RLIMIT_NOFILE",
            {str(files.soft): host.limits.via},
            f"set nofile in /etc/security/limits.conf, and `--ulimit nofile={_NOFILE_WANTED}` for "
            "containers; check it with `ulimit -n`",
        )
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
            fix="this concerns `--engine local` alone: containers bring their own; update the distribution "
            "or use one; "
            "check it with `ldd --version`",
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
    _need_driver(host)
    environment = host.environment.need("the environment")
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return
    nvml = _nvml(host)
    evidence = {
        f"CUDA_VISIBLE_DEVICES={text}": host.environment.via,
        f"{len(nvml.gpus)} GPUs": "nvmlDeviceGetCount",
    }
    fix = "name GPUs by index or full UUID as `nvidia-smi -L` lists them, or unset the variable"
    names = [token.strip() for token in text.split(",")]
    if not text.strip():
        yield Finding("CUDA_VISIBLE_DEVICES is empty and hides every GPU", evidence=evidence, fix=fix)
        return
    if any(name.startswith("MIG-") for name in names):
        raise Unknown("CUDA_VISIBLE_DEVICES names MIG devices, which were not listed")
    met: list[Gpu] = []
    for place, name in enumerate(names):
        gpu = _named_gpu(name, nvml.gpus)
        if gpu is None:
            yield Finding(
                f"CUDA_VISIBLE_DEVICES names `{name}`, which is none of the {len(nvml.gpus)} GPUs here: CUDA "
                "hides it "
                f"and all that follow, so that {place} stay visible",
                evidence=evidence,
                fix=fix,
            )
            return
        if gpu in met:
            # measured on an H100: cuInit returns CUDA_ERROR_INVALID_DEVICE and no GPU is visible
            yield Finding(
                f"CUDA_VISIBLE_DEVICES names GPU {gpu.index} twice, and CUDA then refuses to start",
                evidence=evidence,
                fix=fix,
            )
            return
        met.append(gpu)


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
    _need_driver(host)
    findings: list[Finding] = []
    doubt = ""
    versioned: list[tuple[str, str, str]] = []
    for directory in host.cuda_on_path.need("the libraries on LD_LIBRARY_PATH"):
        for name, real in directory.files.items():
            version = re.search(r"\.so\.([0-9]{3}(?:\.[0-9]+)+)\Z", real)
            if "stubs" in real.split("/") or "stubs" in directory.path.split("/"):
                findings.append(
                    Finding(
                        f"LD_LIBRARY_PATH leads to a stub of libcuda, {directory.path}/{name}",
                        # programs load libcuda.so.1; some load libcuda.so first
                        Severity.ERROR if name == "libcuda.so.1" else Severity.WARNING,
                        directory.path,
                        {real: f"{directory.path}/{name}"},
                        f"a stub is for linking only and finds no GPU: take {directory.path} out of "
                        f"LD_LIBRARY_PATH; {_AGAIN}",
                    )
                )
            elif not version:
                doubt = "" if _wsl(host) else f"{real} does not say its driver version"
            else:
                versioned.append((directory.path, real, version[1]))
    if versioned and (not findings or host.module.value is not None):
        driver, via = _driver(host)
        for path, real, version_there in versioned:
            if Driver(version_there) != driver:
                findings.append(
                    Finding(
                        f"LD_LIBRARY_PATH leads to libcuda {version_there} and driver {driver} is loaded",
                        Severity.ERROR if Driver(version_there) < driver else Severity.WARNING,
                        path,
                        {real: path, str(driver): via},
                        f"take {path} out of LD_LIBRARY_PATH; {_AGAIN}; a newer libcuda (cuda-compat) works "
                        "on data-center GPUs alone, an older one nowhere",
                    )
                )
    if not findings and doubt:
        raise Unknown(doubt)
    yield from findings
