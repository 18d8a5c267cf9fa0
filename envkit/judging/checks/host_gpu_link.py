"""What is asked of the way from the machine to its GPUs: lanes, generation and repeats of their PCIe link."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._gpus import is_busy, of_each_gpu, told
from envkit.judging.checks._host import gpu_name
from envkit.judging.checks._outcomes import skip_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding
from envkit.subjects.host import Gpu

_LINK = "check it with `nvidia-smi --query-gpu=pci.bus_id,pcie.link.gen.current,pcie.link.width.current --format=csv`"
_SEAT = "power off, seat the GPU and its riser again, look at the slot's setting in the firmware"


@of_each_gpu
def host_pcie_generation_reduced(gpu: Gpu) -> Iterator[Finding]:
    """A busy GPU's PCIe link runs at the generation that it and its slot can do together."""
    skip_if(not is_busy(gpu), "no GPU is busy, and at rest a link is slow to save power")
    link = told(gpu.pcie, "its PCIe link")
    if 0 < link.generation < link.most_generation:
        yield warning(
            f"the PCIe link of {gpu_name(gpu)} runs at generation {link.generation} of {link.most_generation} "
            "while it is busy",
            evidence={
                f"generation {link.generation} of {link.most_generation}": gpu.pcie.via,
                f"{gpu.utilization.value} percent busy": gpu.utilization.via,
            },
            fix=f"each generation halves the speed of copies: {_SEAT}; {_LINK}",
        )


CHECKS = rows(__name__)
