"""What is asked of a machine's GPUs: that they are there, all of them, and well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from envkit.judging.checks import _host
from envkit.judging.checks._gpus import is_laptop, known, of_each_gpu, of_each_product, told
from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import Gpu

_MEMORY_ALIKE = 0.9  # variants differ by a quarter or more; ECC in GDDR memory takes 1/16

_SILENT_FIX = "drain the machine, reset the GPU, and reboot if that does not help; `dmesg | grep NVRM` says more"
_SILENT = {
    "lost": (
        "fell off the bus",
        "drain the machine and power it off and on; if it comes back, check risers, power and cooling, then replace "
        "the GPU; `dmesg | grep Xid` says when it went",
    ),
    "needs reset": (
        "answers nothing until it is reset",
        "stop all GPU programs and run `nvidia-smi --gpu-reset`, or reboot",
    ),
}
_RECOVERY = {
    "gpu reset": "drain the machine and run `nvidia-smi --gpu-reset`",
    "node reboot": "drain the machine and reboot it",
    "system reboot": "drain the machine and reboot it",
    "drain peer-to-peer traffic": "stop the jobs whose GPUs talk to this one, and start them again",
    "drain and reset": "drain the machine, let all jobs end, and run `nvidia-smi --gpu-reset`",
    "recover imex domain": "restart nvidia-imex on all nodes of the domain",
    "bus reset": "drain the machine and reset the GPU, or reboot",
}


def host_no_gpu(host: Host) -> Iterator[Finding]:
    """An NVIDIA GPU is on this machine."""
    if host.expected.value is not None and host.expected.value.gpus.count == 0:
        raise Skip("the contract says that no GPU is here")
    signs, silent = _host.gpu_signs(host)
    if signs:
        return
    unknown_if(silent, f"no GPU was seen, and not every place could be looked at: {'; '.join(silent)}")
    nvml = host.nvml.need("NVML")
    yield error(
        "no NVIDIA GPU on this machine: none on the PCI bus, no device node, none in NVML",
        "/sys/bus/pci/devices",
        {
            "no display device of vendor 0x10de": host.pci_gpus.via,
            "no /dev/nvidia0": "listing of /dev",
            f"NVML: {nvml.detail or 'answered, 0 GPUs'}": host.nvml.via,
        },
        "run on a machine with an NVIDIA GPU, or hand one to this virtual machine; check it with `lspci -d 10de:`",
    )


def host_gpu_counts_differ(host: Host) -> Iterator[Finding]:
    """NVML, /dev and the PCI bus show the same number of GPUs."""
    _host.need_driver(host)
    skip_if(_host.wsl(host), "under WSL all GPUs are behind /dev/dxg")
    shown = len(_host.nvml_answers(host).gpus)
    host.device_nodes.need("the device nodes")
    withheld = len(_host.withheld_nodes(host))
    nodes = len(_host.gpu_nodes(host)) - withheld
    bus = host.pci_gpus.need("the PCI bus")
    meant = [gpu for gpu in bus if gpu.driver not in _host.SET_ASIDE]
    if shown == nodes and len(meant) - nodes in (0, withheld):
        return
    handed = 0 < shown == nodes < len(meant)
    if handed and host.container.need("whether this is a container") != "none":
        raise Skip(f"this container was handed {shown} of the {len(meant)} GPUs on the bus")
    yield Finding(
        f"NVML shows {shown} GPUs, /dev has nodes for {nodes} and the PCI bus has {len(meant)}",
        Severity.WARNING if handed else Severity.ERROR,
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


@of_each_gpu
def host_gpu_not_responding(gpu: Gpu) -> Iterator[Finding]:
    """Every GPU that NVML lists answers its questions."""
    state = gpu.state.need("whether it answers")
    if state == "answers":
        return
    words, fix = _SILENT.get(state, (f"does not answer queries: {state}", _SILENT_FIX))
    if "power" in state.lower():
        fix = "its power cables are not plugged in, or the supply is too weak: check them with the power off"
    yield error(
        f"{_host.gpu_name(gpu)} {words}", evidence={state: gpu.state.via}, fix=f"{fix}; check it with `nvidia-smi -L`"
    )


def host_gpu_models_mixed(host: Host) -> Iterator[Finding]:
    """The GPUs of the machine are of one product and one memory size."""
    _host.need_driver(host)
    gpus = _host.nvml_answers(host).gpus
    if len(gpus) < 2:
        raise Skip("there is one GPU") if gpus else Unknown("NVML lists no GPU")
    named = [(gpu, gpu.name.need(f"the name of GPU {gpu.index}")) for gpu in gpus]
    names = Counter(name for _, name in named)
    if len(names) > 1:
        shown = ", ".join(f"{count} x {name}" for name, count in names.most_common())
        mild = any(_host.is_workstation(gpu) or gpu.display.value == "on" for gpu in gpus)
        yield Finding(
            f"the GPUs are not of one product: {shown}",
            Severity.NOTE if mild else Severity.WARNING,
            "NVML",
            {shown: gpus[0].name.via},
            "a job over all of them waits for the slowest and has the memory of the smallest: choose GPUs of one kind "
            "with CUDA_VISIBLE_DEVICES; check it with `nvidia-smi -L`",
        )
    for name in names:
        sizes = {gpu.index: gpu.memory.need(f"the memory of GPU {gpu.index}") for gpu, own in named if own == name}
        most = max(sizes.values())
        small = [f"GPU {index} has {size >> 20} MiB" for index, size in sizes.items() if size < most * _MEMORY_ALIKE]
        if small:
            yield warning(
                f"of {len(sizes)} x {name} with {most >> 20} MiB of memory {', '.join(small)}",
                "NVML",
                dict.fromkeys(small, "nvmlDeviceGetMemoryInfo"),
                "it is another variant, or a part of its memory is given away (vGPU); "
                "check it with `nvidia-smi -q -d MEMORY`",
            )


@of_each_product
def host_vbios_versions_differ(product: str, gpus: list[Gpu]) -> Iterator[Finding]:
    """GPUs of one board have one VBIOS.

    Workstation GPUs come from many makers, each with its own, and are skipped; boards are told apart by part number.
    """
    skip_if(_host.is_workstation(gpus[0]), "workstation GPUs have their makers' VBIOS")
    boards: dict[str, dict[str, list[int]]] = {}
    for gpu in gpus:
        version = told(gpu.vbios, "its VBIOS")
        part = known(gpu.part_number, "the part number", "")
        boards.setdefault(part, {}).setdefault(version, []).append(gpu.index)
    for part, versions in boards.items():
        if len(versions) > 1:
            shown = "; ".join(f"{one} on GPU {', '.join(map(str, own))}" for one, own in sorted(versions.items()))
            yield warning(
                f"{product}{f' of part {part}' if part else ''} has {len(versions)} VBIOS versions: {shown}",
                "NVML",
                dict.fromkeys(versions, gpus[0].vbios.via),
                "their limits of power and clocks may differ: bring all to the version that the machine's vendor "
                "released; check it with `nvidia-smi --query-gpu=index,vbios_version --format=csv`",
            )


@of_each_gpu
def host_persistence_mode_off(gpu: Gpu) -> Iterator[Finding]:
    """Persistence mode is on."""
    mode = told(gpu.persistence, "persistence mode")
    skip_if(mode == "unsupported", "no GPU here reports its persistence mode")
    if mode == "on":
        return
    if _host.is_workstation(gpu) and (is_laptop(gpu) or gpu.display.value == "on"):
        raise Skip("the GPU of a laptop or a screen needs no persistence mode")
    yield Finding(
        f"persistence mode of {_host.gpu_name(gpu)} is {mode}",
        Severity.NOTE if _host.is_workstation(gpu) else Severity.WARNING,
        evidence={mode: gpu.persistence.via},
        fix="without it every first CUDA call starts the GPU again and its state is lost between jobs: "
        "run `systemctl enable --now nvidia-persistenced`; check it with `nvidia-smi -q | grep Persistence`",
    )


@of_each_gpu
def host_gpu_recovery_action_pending(gpu: Gpu) -> Iterator[Finding]:
    """The driver asks for no recovery of a GPU."""
    action = told(gpu.recovery, "a recovery action")
    skip_if(action == "unsupported", "no GPU here reports a recovery action")
    if action != "none":
        yield Finding(
            f"the driver asks for a recovery of {_host.gpu_name(gpu)}: {action}",
            Severity.WARNING if action.startswith("drain peer") else Severity.ERROR,
            evidence={action: gpu.recovery.via},
            fix=f"{_RECOVERY.get(action, f'drain the machine and do what the driver asks for ({action})')}; "
            "check it with `nvidia-smi -q | grep -i recovery`",
        )


CHECKS = rows(__name__)
