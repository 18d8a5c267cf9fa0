"""GPUs, NVSwitches, network adapters and the bridges above them, out of /sys/bus/pci.

The files are those of the kernel's ABI/testing/sysfs-bus-pci and sysfs-bus-pci-devices-aer_stats.
The configuration space of a function that sleeps is left alone: reading it would wake the device up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

from envkit.host.root import HostRoot, Source, short
from envkit.model import Observed
from envkit.subjects.host.pci import PciDevice, PciKind, PciLink, PciPayload, PciPower
from envkit.subjects.host.values import Lanes, PacketBytes

T = TypeVar("T")

BUS = "sys/bus/pci/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s")
_MOST_DEVICES = 512  # the largest machines have some 200 of these kinds
_AER = {"fatal": "TOTAL_ERR_FATAL", "nonfatal": "TOTAL_ERR_NONFATAL", "correctable": "TOTAL_ERR_COR"}
_UNSET = 0x20000000  # IORESOURCE_UNSET, include/linux/ioport.h: no address was assigned
_BARS = 6
# PCI Express Base Specification, "Capability structures"
_CAPABILITIES, _PCIE, _EXTENDED, _ACS = 0x34, 0x10, 0x100, 0x000D
_REDIRECTS = {0x04: "request", 0x08: "completion"}  # ACS Control: P2P Request and P2P Completion Redirect
_WHOLE, _PLAIN, _HEADER = 4096, 256, 64  # sizes of the space: PCI Express, PCI, and what a user may read


_ADAPTERS: Mapping[str, PciKind] = {"0x0200": "nic", "0x0207": "ib"}


def kind_of(vendor: str, code: str) -> PciKind | None:
    """What a function is by its vendor and class code ("0x030200"), None if it is of no interest here."""
    if code.startswith("0x0604"):
        return "bridge"
    if vendor == "0x10de" and code.startswith("0x03"):
        return "gpu"
    if vendor == "0x10de" and code.startswith("0x0680"):
        return "nvswitch"
    return _ADAPTERS.get(code[:6])


def functions(place: HostRoot) -> Iterator[tuple[str, str, str]]:
    """Address, vendor and class of each function; none where the kernel has no PCI bus.

    Raises OSError, of a tree without /sys too.
    """
    if place.exists(BUS) or not place.exists("sys/bus"):
        for address in place.names(BUS):
            yield address, place.word(f"{BUS}/{address}/vendor"), place.word(f"{BUS}/{address}/class")


def driver_of(place: HostRoot, device: str) -> str:
    """The kernel driver bound to the function in the directory ``device``, empty if none is."""
    try:
        return os.path.basename(os.readlink(place.path(device) / "driver"))
    except FileNotFoundError:
        return ""


def parse_link(texts: Mapping[str, str]) -> PciLink:
    """The link of the four files by their names; raises ValueError for a link that tells no speed or width."""
    speeds = [_SPEED.match(texts[name]) for name in ("current_link_speed", "max_link_speed")]
    if not speeds[0] or not speeds[1]:
        raise ValueError(f"the link's speed is `{texts['current_link_speed']}` of `{texts['max_link_speed']}`")
    widths = [int(texts[name]) for name in ("current_link_width", "max_link_width")]
    if not all(0 < width <= 32 for width in widths):
        raise ValueError(f"the link's width is {widths[0]} of {widths[1]}")
    now, most = (cast(Lanes, width) for width in widths)  # another one is refused when the value is read back
    return PciLink(float(speeds[0][1]), now, float(speeds[1][1]), most)


def parse_aer(text: str, total: str) -> int:
    """The total of one file of AER counters; raises ValueError if it is not there."""
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == total:
            return int(count)
    raise ValueError(f"no {total}")


def parse_resource(text: str) -> tuple[int, ...]:
    """The BARs without an address; raises ValueError on lines that are no resources."""
    found = []
    lines = text.splitlines()[:_BARS]
    if not lines:
        raise ValueError("no resource is listed")
    for number, line in enumerate(lines):
        _, _, flags = (int(word, 16) for word in line.split())
        if flags & _UNSET:
            found.append(number)
    return tuple(found)


def _word(config: bytes, at: int, size: int) -> int:
    return int.from_bytes(config[at : at + size], "little")


def parse_payload(config: bytes) -> PciPayload:
    """Packet sizes out of the PCI Express capability; raises LookupError if it has none, ValueError if it is broken."""
    at = config[_CAPABILITIES] & 0xFC
    for _ in range(48):  # more capabilities do not fit
        if at < _HEADER:
            break
        if at + 10 > len(config):
            raise ValueError(f"a capability lies at 0x{at:x}")
        if config[at] == _PCIE:
            can, control = _word(config, at + 4, 4), _word(config, at + 8, 2)
            coded = (control >> 5 & 7, can & 7, control >> 12 & 7)
            return PciPayload(*(cast(PacketBytes, 128 << size) for size in coded))  # as of links
        at = config[at + 1] & 0xFC
    raise LookupError("no PCI Express capability")


def parse_redirects(config: bytes) -> tuple[str, ...]:
    """The ACS redirections in force; raises LookupError if the function has no ACS, ValueError if it is broken."""
    at = _EXTENDED
    for _ in range(960):  # more extended capabilities do not fit
        header = _word(config, at, 4)
        if header in (0, 0xFFFFFFFF):
            break
        if header & 0xFFFF == _ACS:
            control = _word(config, at + 6, 2)
            return tuple(name for bit, name in _REDIRECTS.items() if control & bit)
        at = header >> 20 & 0xFFC
        if at < _EXTENDED:
            break
        if at + 8 > _WHOLE:
            raise ValueError(f"an extended capability lies at 0x{at:x}")
    raise LookupError("no ACS capability")


def _seen(path: str, read: Callable[[], T]) -> Observed[T]:
    """What ``read`` gives; unsupported without the file, lost with the reason if it cannot be read or understood."""
    via = f"/{path}"
    try:
        return Observed.of(read(), via)
    except (FileNotFoundError, LookupError):
        return Observed.unsupported(via)
    except (OSError, ValueError) as error:
        return Observed.lost(short(error), via)


def _config(place: HostRoot, path: str, power: Observed[PciPower], wanted: int) -> bytes:
    """``wanted`` bytes of the configuration space; raises PermissionError if less is shown, OSError if it sleeps."""
    if power.value == "suspended":
        raise OSError(11, "the device sleeps, and reading would wake it up")
    with place.path(f"{path}/config").open("rb") as file:
        found = file.read(wanted)
    if len(found) < _HEADER:
        raise ValueError(f"{len(found)} bytes")
    if len(found) < wanted and len(found) == _HEADER:
        raise PermissionError(13, f"{_HEADER} bytes of {wanted} are shown; root may read all")
    return found


def _group(place: HostRoot, path: str) -> str:
    if not place.exists(f"{path}/iommu_group"):
        return ""
    return place.word(f"{path}/iommu_group/type")


def _links(place: HostRoot, path: str) -> PciLink:
    names = ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width")
    return parse_link({name: place.word(f"{path}/{name}") for name in names})


def _redirects(place: HostRoot, path: str, power: Observed[PciPower]) -> tuple[str, ...]:
    config = _config(place, path, power, _WHOLE)
    if len(config) <= _PLAIN:  # a device without the extended space
        raise LookupError("no extended capabilities")
    return parse_redirects(config)


def _device(place: HostRoot, address: str, kind: PciKind, vendor: str) -> PciDevice:
    path = f"{BUS}/{address}"
    real = place.path(path).resolve().parts
    power = _seen(f"{path}/power/runtime_status", lambda: cast(PciPower, place.word(f"{path}/power/runtime_status")))
    return PciDevice(
        address,
        kind,
        vendor,
        place.word(f"{path}/device"),
        driver_of(place, path),
        tuple(part for part in reversed(real[:-1]) if ADDRESS.fullmatch(part)),
        _seen(f"{path}/numa_node", lambda: int(place.word(f"{path}/numa_node"))),
        _seen(f"{path}/current_link_speed", lambda: _links(place, path)),
        _seen(
            f"{path}/aer_dev_fatal",
            lambda: {name: parse_aer(place.word(f"{path}/aer_dev_{name}"), total) for name, total in _AER.items()},
        ),
        power,
        _seen(f"{path}/iommu_group/type", lambda: _group(place, path)),
        _seen(f"{path}/resource", lambda: parse_resource(place.word(f"{path}/resource"))),
        _seen(f"{path}/config", lambda: set(_config(place, path, power, _HEADER)[:4]) != {0xFF}),
        _seen(f"{path}/config", lambda: parse_payload(_config(place, path, power, _PLAIN))),
        _seen(f"{path}/config", lambda: _redirects(place, path, power))
        if kind == "bridge"
        else Observed.unsupported(f"/{path}/config"),
    )


def devices(place: HostRoot) -> Observed[tuple[PciDevice, ...]]:
    """GPUs, NVSwitches and physical network adapters, and the bridges above any of them, by address.

    Virtual functions of an adapter are left out.  Without the listing the machine has no PCI bus.
    """
    if not place.exists("sys/bus"):
        return Observed.lost("/sys/bus is not there", f"/{BUS}")
    kinds: dict[str, tuple[PciKind, str]] = {}
    for name, vendor, code in functions(place):
        kind = kind_of(vendor, code)
        if kind and not (kind in ("nic", "ib") and place.exists(f"{BUS}/{name}/physfn")):
            kinds[name] = (kind, vendor)
    ends = [_device(place, name, *told) for name, told in kinds.items() if told[0] != "bridge"]
    wanted = sorted({bridge for end in ends for bridge in end.above if bridge in kinds})
    if len(ends) + len(wanted) > _MOST_DEVICES:
        return Observed.lost(f"{len(ends) + len(wanted)} devices are more than {_MOST_DEVICES}", f"/{BUS}")
    found = ends + [_device(place, name, *kinds[name]) for name in wanted]
    return Observed.of(tuple(sorted(found, key=lambda device: device.address)), f"/{BUS}")


SOURCES: dict[str, Source] = {"pci": devices}
