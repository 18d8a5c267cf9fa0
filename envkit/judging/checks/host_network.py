"""What is asked of network interfaces."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._outcomes import skip_if, warning
from envkit.model import Finding, Severity
from envkit.subjects import Host

# a proposal: images and checkpoints of tens of GB take a quarter of an hour and more below it, and every server
# interface made in twenty years can do it, so that less is a cable or a port that fell back
_MBIT_LEAST = 1000


def host_bond_member_link_down(host: Host) -> Iterator[Finding]:
    """Every member of a bond has its link."""
    bonds = [item for item in host.network.need("the network interfaces") if item.members]
    skip_if(not bonds, "no bond on this machine")
    for bond in bonds:
        if bond.down:
            names = ", ".join(bond.down)
            all_of_it = len(bond.down) == len(bond.members)
            yield Finding(
                f"{bond.name} has lost {len(bond.down)} of its {len(bond.members)} members: {names}",
                Severity.ERROR if all_of_it and bond.default else Severity.WARNING,
                bond.name,
                {f"{names} down": host.network.via},
                f"reseat or replace the cable of {names} and look at the switch's side; what is left has less "
                f"bandwidth and no reserve; check it with `cat /proc/net/bonding/{bond.name}`",
            )


def host_default_interface_slow(host: Host) -> Iterator[Finding]:
    """The interface of the default route runs at 1 Gb/s or more."""
    interfaces = host.network.need("the network interfaces")
    told = [item for item in interfaces if item.default and not item.speed.is_unsupported]
    skip_if(not told, "no interface of a default route tells its speed")
    for item in told:
        speed = item.speed.need(f"the speed of {item.name}")
        if speed < _MBIT_LEAST:
            yield warning(
                f"{item.name}, the interface of the default route, runs at {speed} Mb/s",
                item.name,
                {f"{speed} Mb/s": item.speed.via},
                "replace the cable, or let both ends negotiate the speed; check it with `ethtool " + item.name + "`",
            )
