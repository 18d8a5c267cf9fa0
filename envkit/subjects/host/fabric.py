"""What joins GPUs to one another and to other machines: NVSwitches, RDMA devices, network interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.host.values import Amount, Count, PciAddress, PciId, PortNumber, Text

CardKind = Literal["nvswitch", "infiniband", "efa"]
# drivers/infiniband/core/sysfs.c, link_layer_show and state_show
LinkLayer = Literal["InfiniBand", "Ethernet", "Unknown", "Unspecified"]
PortState = Literal["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"]


@dataclass(frozen=True, slots=True)
class Gid:
    """An entry in use of a port's GID table: "RoCE v2" or "IB/RoCE v1", and the address as the kernel has it."""

    index: Count
    kind: str
    address: str


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of an RDMA device, in the kernel's words.

    ``layer`` is "InfiniBand" or "Ethernet", ``state`` "DOWN", "INIT", "ARMED" or "ACTIVE", ``physical`` "LinkUp",
    "Polling", "Disabled", ...; ``rate`` is in Gb/s; ``counters`` maps the names of counters/ and hw_counters/ to what
    they count.  ``umad`` says whether the port has a device for management datagrams.
    """

    number: PortNumber
    layer: Observed[LinkLayer] = field(default_factory=Observed)
    state: Observed[PortState] = field(default_factory=Observed)
    physical: Observed[Text] = field(default_factory=Observed)
    rate: Observed[Amount] = field(default_factory=Observed)
    counters: Observed[Mapping[str, Count]] = field(default_factory=Observed)
    gids: Observed[tuple[Gid, ...]] = field(default_factory=Observed)
    umad: Observed[bool] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """An RDMA device ("mlx5_0").

    ``pci`` is its address, empty for one made of software; ``driver`` the driver of that PCI function ("mlx5_core",
    "efa"); ``board`` the vendor's board id and ``firmware`` the version, both unsupported where the driver
    does not show them; ``nets`` its network interfaces; ``virtual`` marks a virtual function whose physical one is
    here too.  ``verbs`` is "usable", "no class device" (ib_uverbs made none), "no node" (none in /dev) or why the node
    may not be opened.  ``counting_s`` bounds the seconds for which its counters have run: those since boot.
    """

    name: Text
    pci: str = ""
    driver: str = ""
    virtual: bool = False
    nets: tuple[str, ...] = ()
    board: Observed[str] = field(default_factory=Observed)
    firmware: Observed[str] = field(default_factory=Observed)
    verbs: Observed[str] = field(default_factory=Observed)
    counting_s: Observed[Amount] = field(default_factory=Observed)
    ports: Observed[tuple[RdmaPort, ...]] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class FabricCard:
    """A PCI function of the fabric: "nvswitch", "infiniband" or "efa"; ``driver`` is empty if none is bound,
    ``virtual`` marks a virtual function whose physical one is here too.
    """

    address: PciAddress
    kind: CardKind
    device: PciId = ""
    driver: str = ""
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class FabricDaemons:
    """Which daemons of the fabric run, by the names of their programs; ``whole`` is false where only the processes of
    a container can be seen.
    """

    running: tuple[str, ...] = ()
    whole: bool = True


@dataclass(frozen=True, slots=True)
class FabricLog:
    """The fabric manager's complaints since it last started, the last of them, oldest first, as far as they are in
    the last part of its log; ``count`` is how many there were.
    """

    present: bool = True
    lines: tuple[str, ...] = ()
    count: Count = 0


@dataclass(frozen=True, slots=True)
class Imex:
    """The export of memory between machines: the path of its list of nodes, whether that file is there, the addresses
    in it, and the channels in /dev.
    """

    path: str
    listed: bool = False
    nodes: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cufile:
    """cuFile's configuration; ``error`` is empty if it is absent or parses, ``compatible`` and ``p2pdma`` what it says
    of the compatibility mode and of PCI peer-to-peer memory, None if nothing.
    """

    path: str
    present: bool = True
    error: str = ""
    compatible: bool | None = None
    p2pdma: bool | None = None


@dataclass(frozen=True, slots=True)
class NetInterface:
    """A network interface: ``state`` is the kernel's operstate ("up", "down", "unknown", ...), ``speed`` in Mb/s, lost
    unsupported where it has none; ``default`` says whether a default route leaves by it, ``members`` are the
    interfaces of a bond and ``down`` those of them without a link.  ``pci`` is empty for one made of software.
    """

    name: str
    state: str = ""
    mtu: Count = 0
    pci: str = ""
    driver: str = ""
    default: bool = False
    loopback: bool = False
    members: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    speed: Observed[Count] = field(default_factory=Observed)
