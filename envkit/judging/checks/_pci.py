"""What the checks of the PCI bus share: its devices by kind, the paths above them, and when a question is idle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from envkit.judging.checks._host import SET_ASIDE, gathered
from envkit.judging.checks._log import same_slot
from envkit.judging.checks._outcomes import skip_if
from envkit.model import Finding, Observed, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import LogLine, PciDevice

T = TypeVar("T")

MELLANOX = "0x15b3"


def bus(host: Host) -> dict[str, PciDevice]:
    """The devices by address; raises Unknown if the bus was not observed."""
    return {device.address: device for device in host.pci.need("the PCI bus")}


def kinds(host: Host, *wanted: str) -> list[PciDevice]:
    """The devices of these kinds that were not handed to a guest; skips if there is none."""
    found = [device for device in bus(host).values() if device.kind in wanted and device.driver not in SET_ASIDE]
    if not found:
        names = {"gpu": "GPU", "nvswitch": "NVSwitch", "nic": "network adapter", "ib": "InfiniBand adapter"}
        raise Skip(f"no {' or '.join(names[kind] for kind in wanted)} on the PCI bus")
    return found


def rdma(host: Host) -> list[PciDevice]:
    """Adapters that can read GPU memory themselves: InfiniBand, and Ethernet of the same maker's."""
    return [
        device
        for device in bus(host).values()
        if device.driver not in SET_ASIDE and (device.kind == "ib" or (device.kind, device.vendor) == ("nic", MELLANOX))
    ]


def need_bare_metal(host: Host) -> None:
    """Skips in a guest, whose bus is the hypervisor's picture of one."""
    if host.processors.need("whether this is a virtual machine").hypervisor:
        raise Skip("in a virtual machine the bus is the hypervisor's")


def sockets(host: Host) -> int:
    """How many NUMA nodes have processors."""
    return sum(node.processors > 0 for node in host.numa.need("the NUMA nodes"))


def named(device: PciDevice) -> str:
    """A device by kind and address."""
    words = {"gpu": "GPU", "nvswitch": "NVSwitch", "nic": "network adapter", "ib": "InfiniBand adapter"}
    return f"{words.get(device.kind, device.kind)} {device.address}"


def above(host: Host, device: PciDevice) -> list[PciDevice]:
    """The bridges above a device, the nearest first; raises Unknown if one of them was not observed."""
    devices = bus(host)
    missing = [address for address in device.above if address not in devices]
    if missing:
        raise Unknown(f"the bridge {missing[0]} above {named(device)} was not observed")
    return [devices[address] for address in device.above]


def bridges(host: Host, ends: Iterable[PciDevice]) -> list[PciDevice]:
    """All bridges above ``ends``, each once."""
    return list({bridge.address: bridge for end in ends for bridge in above(host, end)}.values())


def judge_devices(
    devices: list[PciDevice],
    what: str,
    of: Callable[[PciDevice], Observed[T]],
    judge: Callable[[PciDevice, T], Iterator[Finding]],
) -> Iterator[Finding]:
    """Judges one value of every device; ``gathered`` says what outranks what, and a device without it is skipped.

    A finding that names no place is at its device.
    """
    skip_if(not devices, f"no device here tells {what}")

    def one(device: PciDevice) -> Iterator[Finding]:
        seen = of(device)
        skip_if(seen.is_unsupported, f"no device here tells {what}")
        findings = judge(device, seen.need(what))
        yield from (replace(finding, where=finding.where or device.address) for finding in findings)

    yield from gathered(devices, one, named)


def on_paths(host: Host, lines: list[LogLine]) -> list[LogLine]:
    """The lines that speak of a GPU, NVSwitch or network adapter, or of a bridge above one.

    Raises Unknown if there are lines and the bus was not observed.
    """
    known = bus(host) if lines else {}
    return [line for line in lines if any(same_slot(line.pci, address) for address in known)]
