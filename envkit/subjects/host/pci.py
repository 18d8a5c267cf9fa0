"""The PCI bus as the kernel shows it: GPUs, NVSwitches, network adapters, and the bridges above them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from envkit.model import Observed

PciKind = Literal["gpu", "nvswitch", "nic", "ib", "bridge"]


@dataclass(frozen=True, slots=True)
class PciLink:
    """Speeds in GT/s and lanes of the link towards the root: in force now, and the most the device can do."""

    speed: float
    width: int
    most_speed: float
    most_width: int


@dataclass(frozen=True, slots=True)
class PciPayload:
    """Bytes: the largest packet in force, the largest that the device can take, the largest it asks a read for."""

    payload: int
    most_payload: int
    read_request: int


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One function of the bus.

    ``kind`` is "gpu", "nvswitch", "nic" (Ethernet), "ib" (InfiniBand) or "bridge"; ``vendor`` and ``device`` are ids
    ("0x10de"); ``driver`` is empty if none is bound; ``above`` are the addresses of the bridges towards the root, the
    nearest first.  ``numa`` is -1 where the firmware names no node.  ``aer`` maps "fatal", "nonfatal" and
    "correctable" to errors since boot; ``power`` is the runtime state ("active", "suspended", "error", "unsupported");
    ``iommu`` the type of the IOMMU group ("identity", "DMA", "DMA-FQ", ...), empty without a group; ``unassigned`` the
    numbers of the BARs that got no address; ``answers`` says whether the configuration space is anything but ones;
    ``redirects`` names the ACS redirections in force ("request", "completion").  Unsupported marks what a device does
    not have.
    """

    address: str
    kind: PciKind
    vendor: str = ""
    device: str = ""
    driver: str = ""
    above: tuple[str, ...] = ()
    numa: Observed[int] = field(default_factory=Observed)
    link: Observed[PciLink] = field(default_factory=Observed)
    aer: Observed[Mapping[str, int]] = field(default_factory=Observed)
    power: Observed[str] = field(default_factory=Observed)
    iommu: Observed[str] = field(default_factory=Observed)
    unassigned: Observed[tuple[int, ...]] = field(default_factory=Observed)
    answers: Observed[bool] = field(default_factory=Observed)
    payload: Observed[PciPayload] = field(default_factory=Observed)
    redirects: Observed[tuple[str, ...]] = field(default_factory=Observed)
