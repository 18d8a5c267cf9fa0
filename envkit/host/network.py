"""Network interfaces by /sys/class/net; a driver that holds the kernel's network lock makes them hang."""

from __future__ import annotations

import os

from envkit.host.pci import driver_of
from envkit.host.root import HostRoot, Source, short
from envkit.model import Observed
from envkit.subjects.host.fabric import NetInterface

_CLASS = "sys/class/net"
_MOST = 512  # a busy Kubernetes node has one interface for each pod
_LOOPBACK = 0x8  # IFF_LOOPBACK, linux/if.h
_UP = 0x1  # RTF_UP, linux/route.h
_REJECT = 0x200  # RTF_REJECT, by which the kernel marks its own fallback route


def parse_routes(v4: str, v6: str) -> frozenset[str]:
    """The interfaces of default routes out of /proc/net/route and /proc/net/ipv6_route.

    Raises ValueError or IndexError if a line has another form.
    """
    found = set()
    for line in v4.splitlines()[1:]:
        words = line.split()
        if words and words[1] == words[7] == "00000000" and int(words[3], 16) & _UP:
            found.add(words[0])
    for line in v6.splitlines():
        words = line.split()
        if words and words[0].strip("0") == "" and words[1] == "00":
            flags = int(words[8], 16)
            if flags & _UP and not flags & _REJECT and words[9] != "lo":
                found.add(words[9])
    return frozenset(found)


def _speed(place: HostRoot, path: str) -> Observed[int]:
    """In Mb/s; the kernel answers -1 or EINVAL for an interface that has none, or no link."""
    try:
        speed = int(place.word(f"{path}/speed"))
    except OSError as error:
        if error.errno in (22, 2, 95):
            return Observed.unsupported(f"/{path}/speed")
        return Observed.lost(f"/{path}/speed: {short(error)}", f"/{path}/speed")
    return Observed.of(speed, f"/{path}/speed") if speed > 0 else Observed.unsupported(f"/{path}/speed")


def _interface(place: HostRoot, name: str, defaults: frozenset[str]) -> NetInterface:
    path = f"{_CLASS}/{name}"
    members: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    if place.exists(f"{path}/bonding"):
        members = tuple(place.word(f"{path}/bonding/slaves").split())
        status = {member: place.word(f"{_CLASS}/{member}/bonding_slave/mii_status") for member in members}
        down = tuple(member for member, word in status.items() if word != "up")
    address = os.path.realpath(place.path(f"{path}/device")).rsplit("/", 1)[-1]
    on_bus = place.exists(f"{path}/device") and ":" in address
    return NetInterface(
        name,
        place.word(f"{path}/operstate"),
        int(place.word(f"{path}/mtu")),
        address if on_bus else "",
        driver_of(place, f"{path}/device") if on_bus else "",
        name in defaults,
        bool(int(place.word(f"{path}/flags"), 16) & _LOOPBACK),
        members,
        down,
        _speed(place, path),
    )


def network(place: HostRoot) -> Observed[tuple[NetInterface, ...]]:
    """The network interfaces of this process's network namespace."""
    routes = [place.word(name) if place.exists(name) else "" for name in ("proc/net/route", "proc/net/ipv6_route")]
    defaults = parse_routes(routes[0], routes[1])
    if not place.exists(_CLASS):
        return Observed.lost(f"/{_CLASS} is not there")
    found = []
    for name in place.names(_CLASS)[:_MOST]:
        if place.exists(f"{_CLASS}/{name}/operstate"):  # bonding_masters is a file
            try:
                found.append(_interface(place, name, defaults))
            except FileNotFoundError:
                continue  # a container's interface that went while it was read
    return Observed.of(tuple(found), f"/{_CLASS}")


SOURCES: dict[str, Source] = {"network": network}
