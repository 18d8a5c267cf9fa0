"""What is asked of the way from the machine to its GPUs: lanes, generation and repeats of their PCIe link."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._gpus import is_busy, is_laptop, of_each_gpu, told, where
from envkit.judging.checks._host import gpu_name, is_workstation
from envkit.model import Finding, Severity, Skip
from envkit.subjects.host import Gpu

# Proposal: NVIDIA's DCGM long allowed 8 repeats a minute (DCGM_LIMIT_MAX_PCIREPLAY_RATE); this is two hours at that
# rate, and a healthy link shows some tens over weeks.
_REPLAYS = 1_000
_LINK = "check it with `nvidia-smi --query-gpu=pci.bus_id,pcie.link.gen.current,pcie.link.width.current --format=csv`"
_SEAT = "power off, seat the GPU and its riser anew, look at the slot's setting in the firmware"


@of_each_gpu
def host_pcie_width_full(gpu: Gpu) -> Iterator[Finding]:
    """Every GPU has all PCIe lanes that it and its slot can use together.

    A quarter of them or less is an error: that is a bad contact, no choice.
    """
    if is_laptop(gpu):
        raise Skip("the GPU of a laptop lowers its lanes at rest")
    link = told(gpu.pcie, "its PCIe link")
    if link.width <= 0 or link.most_width <= 0:
        raise Skip("no GPU here has PCIe lanes")
    if link.width < link.most_width:
        yield Finding(
            f"{gpu_name(gpu)} has {link.width} of {link.most_width} PCIe lanes",
            Severity.ERROR if link.width * 4 <= link.most_width else Severity.WARNING,
            where(gpu),
            {f"x{link.width} of x{link.most_width}": gpu.pcie.via},
            f"copies to and from the GPU are as much slower: {_SEAT}; {_LINK}",
        )


@of_each_gpu
def host_pcie_generation_full(gpu: Gpu) -> Iterator[Finding]:
    """A busy GPU's PCIe link runs at the generation that it and its slot can do together."""
    if not is_busy(gpu):
        raise Skip("no GPU is busy, and at rest a link is slow to save power")
    link = told(gpu.pcie, "its PCIe link")
    if 0 < link.generation < link.most_generation:
        yield Finding(
            f"the PCIe link of {gpu_name(gpu)} runs at generation {link.generation} of {link.most_generation} "
            "while it is busy",
            Severity.WARNING,
            where(gpu),
            {
                f"generation {link.generation} of {link.most_generation}": gpu.pcie.via,
                f"{gpu.utilization.value} percent busy": gpu.utilization.via,
            },
            f"each generation halves the speed of copies: {_SEAT}; {_LINK}",
        )


@of_each_gpu
def host_pcie_few_replays(gpu: Gpu) -> Iterator[Finding]:
    """A GPU's PCIe link had to repeat fewer than 1000 packets since the driver was loaded."""
    if is_workstation(gpu):
        raise Skip("workstation GPUs repeat packets when their links change speed")
    link = told(gpu.pcie, "its PCIe link")
    if link.replays < 0:
        raise Skip("no GPU here counts repeated PCIe packets")
    if link.replays >= _REPLAYS:
        yield Finding(
            f"the PCIe link of {gpu_name(gpu)} repeated {link.replays} packets since the driver was loaded",
            Severity.WARNING,
            where(gpu),
            {f"{link.replays} replays": gpu.pcie.via},
            f"a contact is bad: {_SEAT}; check it with `nvidia-smi -q | grep -i replay`",
        )
