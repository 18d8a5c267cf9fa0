"""What is asked of a machine's GPUs: that they are there, all of them, and well."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.checks._host import (
    gpu_name,
    gpu_nodes,
    gpu_signs,
    is_workstation,
    judge_gpus,
    kernel_log,
    need_driver,
    need_gpu,
    nvml_answers,
    withheld_nodes,
    wsl,
)
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import Gpu, RowRemap

_REMAPPED_ROWS_MOST = 512  # NVIDIA DCGM, common/DcgmGPUHardwareLimits.h

# NVIDIA's Xid catalogue names the application as the first suspect, or says that the driver has dealt with it
_XID_MILD = frozenset({8, 11, 13, 25, 31, 32, 37, 43, 44, 45, 63, 66, 68, 69, 80, 92, 93, 94, 154})


def host_gpu_present(host: Host) -> Iterator[Finding]:
    """An NVIDIA GPU is on this machine.

    Three places are asked: the PCI bus, /dev and NVML; one of them is enough.
    """
    signs, silent = gpu_signs(host)
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


def host_gpu_counts_agree(host: Host) -> Iterator[Finding]:
    """NVML, /dev and the PCI bus show the same number of GPUs.

    GPUs set aside for virtual machines do not count, nor nodes that a control group withholds.  Where NVML has all
    that may be opened, the bus may simply be that of a machine which hands only some to this container or job.
    """
    need_driver(host)
    if wsl(host):
        raise Skip("under WSL all GPUs are behind /dev/dxg")
    shown = len(nvml_answers(host).gpus)
    host.device_nodes.need("the device nodes")
    nodes = len(gpu_nodes(host)) - len(withheld_nodes(host))
    bus = host.pci_gpus.need("the PCI bus")
    meant = [gpu for gpu in bus if gpu.driver not in ("vfio-pci", "pci-stub")]
    if shown == nodes == len(meant):
        return
    yield Finding(
        f"NVML shows {shown} GPUs, /dev has nodes for {nodes} and the PCI bus has {len(meant)}",
        Severity.WARNING if 0 < shown == nodes < len(meant) else Severity.ERROR,
        "/dev/nvidia*",
        {
            f"{shown} in NVML": "nvmlDeviceGetCount",
            f"{nodes} device nodes": "listing of /dev",
            f"{len(meant)} on the PCI bus": host.pci_gpus.via,
        },
        "a GPU that NVML leaves out failed to start or fell off the bus: `dmesg | grep NVRM` names it; missing nodes "
        "come back with `nvidia-modprobe -c 0`; inside a container or a scheduler's job only the GPUs handed to it "
        "count; check it with `nvidia-smi -L`",
    )


def host_persistence_on(host: Host) -> Iterator[Finding]:
    """Persistence mode is on.

    A warning: it costs time, not results; a note on workstation GPUs, where a laptop wants to let the GPU sleep.
    """
    need_driver(host)

    def judge(gpu: Gpu, mode: str) -> Iterator[Finding]:
        if mode != "on":
            yield Finding(
                f"persistence mode of {gpu_name(gpu)} is {mode}",
                Severity.NOTE if is_workstation(gpu) else Severity.WARNING,
                f"GPU {gpu.index}",
                {mode: gpu.persistence.via},
                "without it every first CUDA call starts the GPU anew and its state is lost between jobs: "
                "run `systemctl enable --now nvidia-persistenced`; check it with `nvidia-smi -q | grep Persistence`",
            )

    yield from judge_gpus(
        host, "persistence mode", lambda gpu: gpu.persistence, judge, lambda mode: mode == "unsupported"
    )


def host_ecc_on(host: Host) -> Iterator[Finding]:
    """ECC is on where the GPU has it.

    Now and after the next reset; GPUs without ECC are skipped.
    """
    need_driver(host)

    def judge(gpu: Gpu, mode: str) -> Iterator[Finding]:
        pending = gpu.ecc_pending.need("the pending ECC mode") if mode == "on" else mode
        if mode == "on" and pending == "on":
            return
        yield Finding(
            f"ECC of {gpu_name(gpu)} is {mode}" + ("" if pending == mode else f" and will be {pending} after a reset"),
            Severity.NOTE if is_workstation(gpu) else Severity.WARNING,
            f"GPU {gpu.index}",
            {f"now {mode}": gpu.ecc.via, f"pending {pending}": gpu.ecc_pending.via or gpu.ecc.via},
            "without it a flipped bit changes results silently: run `nvidia-smi -e 1` and reset the GPU; "
            "check it with `nvidia-smi -q -d ECC`",
        )

    yield from judge_gpus(host, "an ECC mode", lambda gpu: gpu.ecc, judge, lambda mode: mode == "unsupported")


def host_ecc_no_uncorrected(host: Host) -> Iterator[Finding]:
    """No uncorrected memory error since the driver was loaded.

    GPUs without ECC are skipped.
    """
    need_driver(host)

    def judge(gpu: Gpu, count: int) -> Iterator[Finding]:
        if count:
            yield Finding(
                f"{gpu_name(gpu)} met {count} uncorrected memory errors since the driver was loaded",
                Severity.ERROR,
                f"GPU {gpu.index}",
                {str(count): gpu.ecc_uncorrected.via},
                "drain the machine and reset the GPU; if they return, replace it; check it with `nvidia-smi -q -d ECC`",
            )

    yield from judge_gpus(
        host, "uncorrected memory errors", lambda gpu: gpu.ecc_uncorrected, judge, lambda count: count < 0
    )


def host_row_remap_healthy(host: Host) -> Iterator[Finding]:
    """No GPU memory row waits for a remap or failed to be remapped.

    The limit of remapped rows is DCGM's.
    """
    need_driver(host)
    yield from judge_gpus(host, "row remapping", lambda gpu: gpu.remap, _rows, lambda rows: not rows.supported)


def _rows(gpu: Gpu, rows: RowRemap) -> Iterator[Finding]:
    where, via, name = f"GPU {gpu.index}", gpu.remap.via, gpu_name(gpu)
    check = "check it with `nvidia-smi -q -d ROW_REMAPPER`"
    if rows.failed:
        yield Finding(
            f"{name} could not remap a faulty memory row",
            Severity.ERROR,
            where,
            {"remapping failed": via},
            f"its memory is worn out: replace the GPU; {check}",
        )
    if rows.uncorrectable > _REMAPPED_ROWS_MOST:
        yield Finding(
            f"{name} has {rows.uncorrectable} rows remapped after uncorrectable errors, more than "
            f"{_REMAPPED_ROWS_MOST}",
            Severity.ERROR,
            where,
            {str(rows.uncorrectable): via},
            f"replace the GPU; {check}",
        )
    if rows.pending:
        yield Finding(
            f"{name} waits for a reset to remap a faulty memory row",
            Severity.WARNING,
            where,
            {"remapping pending": via},
            f"reset the GPU between two jobs with `nvidia-smi --gpu-reset -i {gpu.index}`; {check}",
        )


def host_no_recovery_action(host: Host) -> Iterator[Finding]:
    """The driver asks for no recovery of a GPU.

    GPUs and drivers that do not know the question are skipped.
    """
    need_driver(host)

    def judge(gpu: Gpu, action: str) -> Iterator[Finding]:
        if action != "none":
            yield Finding(
                f"the driver asks for a recovery of {gpu_name(gpu)}: {action}",
                Severity.ERROR,
                f"GPU {gpu.index}",
                {action: gpu.recovery.via},
                f"drain the machine and do what the driver asks for ({action}); "
                "check it with `nvidia-smi -q | grep -i recovery`",
            )

    yield from judge_gpus(
        host, "a recovery action", lambda gpu: gpu.recovery, judge, lambda action: action == "unsupported"
    )


def host_xid_free(host: Host) -> Iterator[Finding]:
    """The kernel log shows no Xid since boot.

    Codes that NVIDIA lays at the program's door are warnings; an unreadable log is unknown.
    """
    need_gpu(host)
    seen: dict[tuple[int, str], list[str]] = {}
    for line in kernel_log(host):
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
