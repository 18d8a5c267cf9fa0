"""What the checks of a machine share: whether there is a GPU, a driver, an engine to ask about at all.

Order of doubt: without a GPU every question about the driver is skipped; without a driver every question
about its parts is skipped, for the missing driver is one finding and not twelve.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from envkit.judging.checks._outcomes import or_unknown, skip_if, unknown_if
from envkit.model import Finding, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import CdiSpec, Docker, Gpu, Nvml
from envkit.versions import Driver

T = TypeVar("T")

AGAIN = "check it with `envkit doctor`"
GPU_NODE = re.compile(r"/dev/(nvidia[0-9]+|dxg)")
SET_ASIDE = ("vfio-pci", "pci-stub")  # drivers by which a PCI device is handed to a virtual machine


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
    return [node.path for node in nodes if GPU_NODE.fullmatch(node.path)]


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
    unknown_if(silent, f"whether this machine has a GPU is not known: {'; '.join(silent)}")
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
    skip_if(not is_loaded(host), "the NVIDIA driver is not loaded")


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
    unknown_if(nvml.ended != "answered", f"NVML gave no answers: {nvml.detail or nvml.ended}")
    return nvml


def gpu_name(gpu: Gpu) -> str:
    """A GPU by index, product and address."""
    name = gpu.name.value or "an unnamed product"
    return f"GPU {gpu.index} ({name}, {gpu.pci.value or gpu.uuid.value or 'no address'})"


def is_workstation(gpu: Gpu) -> bool:
    """Whether the product is of a line sold for desks, with ECC and persistence mode off."""
    return re.search(r"GeForce|RTX|TITAN|Quadro", gpu.name.value or "") is not None


def gib(size: int) -> str:
    """A number of bytes in GiB."""
    return f"{size / 1024**3:.1f} GiB"


def switch(host: Host, name: str) -> tuple[str, str]:
    """A switch of the kernel and how it was read; raises Skip on a kernel without it."""
    seen = or_unknown(host.settings.need("the kernel's switches").get(name), f"{name} was not observed")
    skip_if(seen.is_unsupported, f"this kernel has no {name}")
    return seen.need(name), seen.via


def setting(host: Host, name: str) -> tuple[int, str]:
    """A numeric switch of the kernel and how it was read; raises Skip on a kernel without it."""
    text, via = switch(host, name)
    try:
        return int(text), via
    except ValueError as error:
        raise Unknown(f"{name} is `{text[:40]}`, which is no number") from error


def gathered(
    things: Sequence[T], judge: Callable[[T], Iterator[Finding]], name: Callable[[T], str], doubt: str = ""
) -> Iterator[Finding]:
    """The findings about every one of ``things``; ``judge`` raises Skip where it has none, Unknown for a doubt.

    An error of one outranks a doubt about another, and a doubt outranks everything else.  Raises Skip if every one was
    skipped.
    """
    doubts = [doubt] if doubt else []
    spared: list[str] = []
    besides: list[str] = []
    for thing in things:
        try:
            for finding in judge(thing):
                besides.append(finding.message)
                yield finding
        except Unknown as unknown:
            doubts.append(f"{name(thing)}: {unknown}")
        except Skip as skip:
            spared.append(str(skip))
    if doubts:  # which hides all but errors, and so names what else was found
        raise Unknown("; ".join(doubts) + (f"; found besides: {'; '.join(besides)}" if besides else ""))
    skip_if(len(spared) == len(things), "; ".join(dict.fromkeys(spared)))


def docker_engine(host: Host) -> Docker:
    """The engine's answers; skips if there is none, which is a finding of its own."""
    docker = host.docker.need("the Docker Engine")
    skip_if(docker.ended != "answered", f"no Docker Engine answers: {docker.detail or docker.ended}")
    return docker


def need_docker_installed(host: Host) -> None:
    """Skips without Docker."""
    docker = host.docker.need("the Docker Engine")
    skip_if(docker.ended == "no socket" and not docker.installed, "Docker is not installed")


def nvidia_devices(spec: CdiSpec) -> list[str]:
    """The GPUs that a CDI specification defines, by their full names."""
    return [device for device in spec.devices if device.startswith("nvidia.com/gpu=")]
