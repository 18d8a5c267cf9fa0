"""The PCI bus as the kernel shows it: GPUs, NVSwitches, network adapters, and the bridges above them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.host.values import Count, GigatransfersPerSecond, Lanes, PacketBytes, PciAddress, PciId, Told

PciKind = Literal["gpu", "nvswitch", "nic", "ib", "bridge"]
# drivers/base/power/sysfs.c, runtime_status
PciPower = Literal["active", "suspended", "suspending", "resuming", "error", "unsupported"]


@dataclass(frozen=True, slots=True)
class PciLink:
    """Speeds in GT/s and lanes of the link towards the root: in force now, and the most the device can do."""

    speed: GigatransfersPerSecond
    width: Lanes
    most_speed: GigatransfersPerSecond
    most_width: Lanes


@dataclass(frozen=True, slots=True)
class PciPayload:
    """Bytes: the largest packet in force, the largest that the device can take, the largest it asks a read for."""

    payload: PacketBytes
    most_payload: PacketBytes
    read_request: PacketBytes


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

    address: PciAddress
    kind: PciKind
    vendor: PciId = ""
    device: PciId = ""
    driver: str = ""
    above: tuple[PciAddress, ...] = ()
    numa: Observed[Told] = field(default_factory=Observed)
    link: Observed[PciLink] = field(default_factory=Observed)
    aer: Observed[Mapping[str, Count]] = field(default_factory=Observed)
    power: Observed[PciPower] = field(default_factory=Observed)
    iommu: Observed[str] = field(default_factory=Observed)
    unassigned: Observed[tuple[Count, ...]] = field(default_factory=Observed)
    answers: Observed[bool] = field(default_factory=Observed)
    payload: Observed[PciPayload] = field(default_factory=Observed)
    redirects: Observed[tuple[str, ...]] = field(default_factory=Observed)
