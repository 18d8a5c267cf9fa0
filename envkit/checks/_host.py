"""What the checks of a machine share: whether there is a GPU, a driver, an engine to ask about at all.

Order of doubt: without a GPU every question about the driver is skipped; without a driver every question
about its parts is skipped, for the missing driver is one finding and not twelve.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from envkit.model import UNSUPPORTED, Finding, Observed, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import CdiSpec, Docker, Gpu, LogLine, Nvml
from envkit.versions import Driver

T = TypeVar("T")

AGAIN = "check it with `envkit doctor`"
DRIVER_WORDS = re.compile(r"NVRM|nvidia|nouveau", re.IGNORECASE)


def gpu_signs(host: Host) -> tuple[dict[str, str], list[str]]:
    """What shows a GPU, as evidence, and which of the three sources were silent."""
    signs: dict[str, str] = {}
    silent: list[str] = []
    if host.pci_gpus.value:
        signs[f"{len(host.pci_gpus.value)} on the PCI bus"] = host.pci_gpus.via
    elif host.pci_gpus.value is None:
        silent.append(f"the PCI bus: {host.pci_gpus.missing}")
    if host.device_nodes.value is None:
        silent.append(f"the device nodes: {host.device_nodes.missing}")
    elif nodes := gpu_nodes(host):
        if nodes != ["/dev/dxg"] or host.driver_libraries.value:
            signs[", ".join(nodes)] = "listing of /dev"
        elif host.driver_libraries.value is None:  # WSL has that node for a GPU of any make
            silent.append(f"whether /dev/dxg is NVIDIA's: {host.driver_libraries.missing}")
    nvml = host.nvml.value
    if nvml is not None and nvml.gpus:
        signs[f"{len(nvml.gpus)} in NVML"] = "nvmlDeviceGetCount"
    elif nvml is None:
        silent.append(f"NVML: {host.nvml.missing}")
    elif nvml.ended in ("hung", "killed"):
        silent.append(f"NVML: {nvml.detail}")
    return signs, silent


def gpu_nodes(host: Host) -> list[str]:
    """The device nodes of GPUs; under WSL /dev/dxg stands for all of them."""
    nodes = host.device_nodes.value or ()
    return [node.path for node in nodes if re.fullmatch(r"/dev/(nvidia[0-9]+|dxg)", node.path)]


def withheld_nodes(host: Host) -> list[str]:
    """GPU nodes that the device control group keeps from this process.

    It answers EPERM, as the scheduler of a cluster does for the GPUs of other jobs; a file's mode answers EACCES.
    """
    nodes = host.device_nodes.value or ()
    gpus = gpu_nodes(host)
    return [node.path for node in nodes if node.path in gpus and node.error == "operation not permitted"]


def wsl(host: Host) -> bool:
    """Whether the GPU comes from Windows: its driver is outside, and /dev/dxg is all there is of it."""
    return "/dev/dxg" in gpu_nodes(host)


def need_gpu(host: Host) -> None:
    """Skips without a GPU; raises Unknown if that is open."""
    signs, silent = gpu_signs(host)
    if signs:
        return
    if silent:
        raise Unknown(f"whether this machine has a GPU is open: {'; '.join(silent)}")
    raise Skip("no NVIDIA GPU on this machine")


def is_loaded(host: Host) -> bool:
    """Whether the kernel driver is loaded; raises Unknown if nothing says so and nothing denies it."""
    nvml = host.nvml.value
    answered = nvml is not None and nvml.ended == "answered"
    if host.module.value is not None or answered:
        return True
    return "nvidia" in host.modules.need("the list of loaded kernel modules")


def need_driver(host: Host) -> None:
    """Skips without a GPU or a loaded driver."""
    need_gpu(host)
    if not is_loaded(host):
        raise Skip("the NVIDIA driver is not loaded")


def loaded_driver(host: Host) -> tuple[Driver, str]:
    """The loaded driver and how it was found; raises Unknown if neither the module nor NVML said."""
    if host.module.value is not None:
        return Driver(host.module.value.version), host.module.via
    nvml = host.nvml.value
    if nvml is not None and nvml.driver:
        return Driver(nvml.driver), "nvmlSystemGetDriverVersion"
    raise Unknown(f"the loaded driver was not observed: {host.module.missing or 'no value'}")


def nvml_answers(host: Host) -> Nvml:
    """NVML's answers; raises Unknown if it gave none."""
    nvml = host.nvml.need("NVML")
    if nvml.ended != "answered":
        raise Unknown(f"NVML gave no answers: {nvml.detail or nvml.ended}")
    return nvml


def gpu_name(gpu: Gpu) -> str:
    """A GPU by index, product and address."""
    name = gpu.name.value or "an unnamed product"
    return f"GPU {gpu.index} ({name}, {gpu.pci.value or gpu.uuid.value or 'no address'})"


def is_workstation(gpu: Gpu) -> bool:
    """Whether the product is of a line sold for desks, with ECC and persistence mode off."""
    return re.search(r"GeForce|RTX|TITAN|Quadro", gpu.name.value or "") is not None


def judge_gpus(
    host: Host,
    what: str,
    of: Callable[[Gpu], Observed[T]],
    judge: Callable[[Gpu, T], Iterator[Finding]],
    lacks: Callable[[T], bool] = lambda value: False,
) -> list[Finding]:
    """Judges one value of every GPU.  A fault of one GPU outranks a doubt about another.

    Raises Unknown if nothing is wrong and a value is missing, Skip if no GPU has such a thing (``lacks``, or a value
    that is missing as UNSUPPORTED).
    """
    findings: list[Finding] = []
    doubts: list[str] = []
    judged = 0
    gpus = nvml_answers(host).gpus
    if not gpus:
        raise Unknown("NVML lists no GPU")
    for gpu in gpus:
        seen = of(gpu)
        if seen.missing == UNSUPPORTED:
            continue
        if seen.missing or seen.value is None:
            doubts.append(f"{what} of {gpu_name(gpu)} was not observed: {seen.missing or 'no value'}")
        elif not lacks(seen.value):
            judged += 1
            try:
                findings += judge(gpu, seen.value)
            except Unknown as doubt:
                doubts.append(f"{gpu_name(gpu)}: {doubt}")
    if not findings and doubts:
        raise Unknown("; ".join(doubts))
    if not judged and not findings:
        raise Skip(f"no GPU here tells {what}")
    return findings


def kernel_log(host: Host) -> tuple[LogLine, ...]:
    """The driver's lines of the kernel log; raises Unknown, with who may read it, if it was not read."""
    if host.log.value is None:
        raise Unknown(
            f"the kernel log was not observed: {host.log.missing or 'no value'}; "
            "root may read it, and members of the group systemd-journal"
        )
    return tuple(line for line in host.log.value if DRIVER_WORDS.search(line.text))


def docker_engine(host: Host) -> Docker:
    """The engine's answers; skips if there is none, which is a finding of its own."""
    docker = host.docker.need("the Docker Engine")
    if docker.ended != "answered":
        raise Skip(f"no Docker Engine answers: {docker.detail or docker.ended}")
    return docker


def need_docker_installed(host: Host) -> None:
    """Skips without Docker."""
    docker = host.docker.need("the Docker Engine")
    if docker.ended == "no socket" and not docker.installed:
        raise Skip("Docker is not installed")


def nvidia_devices(spec: CdiSpec) -> list[str]:
    """The GPUs that a CDI specification defines, by their full names."""
    return [device for device in spec.devices if device.startswith("nvidia.com/gpu=")]
