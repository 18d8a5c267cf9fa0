"""What is asked of the ports of RDMA devices, InfiniBand and RoCE: by what their peers show and what they count.

How many ports there must be only the machine's owner knows; a port without a cable is normal.  So a card is compared
with its equals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from envkit.judging.checks import _fabric as fabric
from envkit.judging.checks._host import AGAIN
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host.fabric import NetInterface, RdmaDevice, RdmaPort

_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S

# of a cable or its transceiver: how many an hour, on average since boot, are too many.  NVIDIA NVSentinel, NIC health
# monitor, default counters: symbol_error_fatal 120 an hour (the bit error rate that InfiniBand allows),
# link_error_recovery 5 a minute, port_rcv_errors 10 a second
_PHYSICAL_AN_HOUR = {"symbol_error": 120, "link_error_recovery": 300, "port_rcv_errors": 36_000}
# the same source calls one of these fatal
_PHYSICAL_NEVER = ("local_link_integrity_errors", "excessive_buffer_overrun_errors")
# of the way through the network: local_ack_timeout_err 1 a second, port_xmit_discards 100 a second, roce_slow_restart
# 10 a second
_TRANSPORT_AN_HOUR = {"local_ack_timeout_err": 3_600, "port_xmit_discards": 360_000, "roce_slow_restart": 36_000}
# a proposal: a switch that is replaced takes a link down once or twice
_DOWNED_MOST = 2
_SET = 3  # a proposal: so many whole cards show that the machine was built with all of them cabled


def host_infiniband_port_down(host: Host) -> Iterator[Finding]:
    """Every InfiniBand card has as many active ports as its equals."""
    yield from fabric.judge_devices(host, lambda devices: _active_by_peers(host, devices, "InfiniBand", Severity.ERROR))


def host_roce_port_down(host: Host) -> Iterator[Finding]:
    """Every RDMA card on Ethernet has as many active ports as its equals."""
    yield from fabric.judge_devices(host, lambda devices: _active_by_peers(host, devices, "Ethernet", Severity.WARNING))


def _active_by_peers(host: Host, devices: list[RdmaDevice], layer: str, worst: Severity) -> list[Finding]:
    """A card is a PCI device: the two functions of a card with two ports are one."""
    boards: dict[str, dict[str, list[tuple[fabric.Port, bool]]]] = defaultdict(lambda: defaultdict(list))
    doubts: list[str] = []
    findings: list[Finding] = []
    for device in devices:
        try:
            for port in device.ports.need(f"the ports of {device.name}"):
                if fabric.link_layer(device, port) == layer:
                    kind, linked = fabric.board(device), _linked(device, port)
                    boards[kind][device.pci.rsplit(".", 1)[0]].append(((device, port), linked))
        except Unknown as doubt:
            doubts.append(str(doubt))
    skip_if(not boards and not doubts, f"no RDMA device here speaks {layer}")
    if all(len(cards) == 1 for cards in boards.values()) and not doubts:
        raise Skip(f"no two equal {layer} cards are here to compare")
    for kind, cards in boards.items():
        up = {card: sum(linked for _, linked in ports) for card, ports in cards.items()}
        most = max(up.values())
        whole = sum(count == most for count in up.values())
        if not most and len(cards) > 1:
            findings.append(_none_linked(host, kind, layer))
        for card, count in up.items():
            if count < most:
                severity = worst if whole >= _SET and whole * 2 > len(cards) else Severity.WARNING
                first = next(one for one, linked in cards[card] if not linked)
                findings.append(_unlinked(host, first, whole, severity))
    unknown_if(doubts and not findings, "; ".join(doubts))
    return findings


def _linked(device: RdmaDevice, port: RdmaPort) -> bool:
    """LinkUp and not ACTIVE is the subnet manager's business, and another check's."""
    state = port.state.need(f"the state of {fabric.port_name(device, port)}")
    return state == "ACTIVE" or port.physical.need(f"the link of {fabric.port_name(device, port)}") == "LinkUp"


def _unlinked(host: Host, of: fabric.Port, whole: int, severity: Severity) -> Finding:
    device, port = of
    physical = port.physical.value or "no physical state"
    hint = (
        "it was disabled: `ibportstate -D 0 1 enable` or `ip link set up` brings it back"
        if physical == "Disabled"
        else "reseat or replace the cable and the transceiver, and look at the switch's side"
    )
    return Finding(
        f"{fabric.port_name(*of)} is {port.state.value} ({physical}), and {whole} equal cards have all their links",
        severity,
        device.name,
        {f"{port.state.value}, {physical}": port.state.via, f"{whole} whole cards": host.infiniband.via},
        f"{hint}; NCCL leaves a port without a link out and the job has less network; check it with `ibstat "
        f"{device.name}`",
    )


def _none_linked(host: Host, kind: str, layer: str) -> Finding:
    return note(
        f"none of the {layer} cards of board {kind} has a link",
        "/sys/class/infiniband",
        {f"no link of {kind}": host.infiniband.via},
        "if this machine is meant to have such a network, look at the switch and its cables; check it with `ibstat`",
    )


@fabric.of_each_port("an InfiniBand link")
def host_infiniband_no_subnet_manager(device: RdmaDevice, port: RdmaPort) -> Iterator[Finding]:
    """Every InfiniBand port with a link was made ACTIVE by a subnet manager."""
    name = fabric.port_name(device, port)
    if fabric.link_layer(device, port) != "InfiniBand" or port.physical.need(f"the link of {name}") != "LinkUp":
        raise Skip("no InfiniBand link")
    state = port.state.need(f"the state of {name}")
    if state != "ACTIVE":
        yield error(
            f"{name} has a link and is {state}: no subnet manager has set it up",
            device.name,
            {state: port.state.via, "LinkUp": port.physical.via},
            "start the subnet manager of this network (on a managed switch, UFM, or `systemctl start opensm` on "
            "one machine); check it with `sminfo` and `ibstat`",
        )


@fabric.of_each_port("counters of an InfiniBand link")
def host_infiniband_link_errors(device: RdmaDevice, port: RdmaPort) -> Iterator[Finding]:
    """Cables and transceivers of InfiniBand ports make few errors."""
    skip_if(fabric.link_layer(device, port) != "InfiniBand", "not InfiniBand")
    yield from _frequent(device, port, _PHYSICAL_AN_HOUR, "clean or replace the cable and the transceiver")
    for name in _PHYSICAL_NEVER:
        if count := _counters(device, port).get(name, 0):
            yield warning(
                f"{fabric.port_name(device, port)} counts {count} {name}",
                device.name,
                {f"{name} {count}": port.counters.via},
                "clean or replace the cable and the transceiver, then reset the counters with `perfquery -R`; "
                "check it with `perfquery`",
            )


@fabric.of_each_port("counters")
def host_rdma_transport_errors(device: RdmaDevice, port: RdmaPort) -> Iterator[Finding]:
    """RDMA packets reach the other side without many timeouts and discards."""
    hint = "look for congestion: on Ethernet the switches need flow control (PFC, ECN) for this traffic class"
    yield from _frequent(device, port, _TRANSPORT_AN_HOUR, hint)


def _counters(device: RdmaDevice, port: RdmaPort) -> dict[str, int]:
    skip_if(port.counters.is_unsupported, "no counters")
    return dict(port.counters.need(f"the counters of {fabric.port_name(device, port)}"))


def _frequent(device: RdmaDevice, port: RdmaPort, limits: dict[str, int], hint: str) -> Iterator[Finding]:
    """Counters that grew faster than ``limits`` say, in an hour on average since boot; a first hour counts whole."""
    counters = _counters(device, port)
    skip_if(not limits.keys() & counters.keys(), "none of these counters")
    hours = max(1.0, device.counting_s.need("the time since boot") / _HOUR_S)
    for name, limit in limits.items():
        count = counters.get(name, 0)
        if count / hours > limit:
            yield warning(
                f"{fabric.port_name(device, port)} counts {count} {name} in {hours:.1f} h, more than {limit} an hour",
                device.name,
                {f"{name} {count}": port.counters.via, f"{hours:.1f} h": device.counting_s.via},
                f"{hint}; check it with `perfquery` or in /sys/class/infiniband/{device.name}/ports/{port.number}",
            )


@fabric.of_each_port("a counter of lost links")
def host_rdma_link_flapping(device: RdmaDevice, port: RdmaPort) -> Iterator[Finding]:
    """No RDMA port lost its link again and again since boot."""
    counters = _counters(device, port)
    skip_if("link_downed" not in counters, "it does not count that")
    count = counters["link_downed"]
    days = device.counting_s.need("the time since boot") / _DAY_S
    if count > max(_DOWNED_MOST, days):
        yield warning(
            f"{fabric.port_name(device, port)} lost its link {count} times in {days:.1f} days",
            device.name,
            {f"link_downed {count}": port.counters.via, f"{days:.1f} days": device.counting_s.via},
            "a lost link ends the job or stalls it: clean or replace the cable and the transceiver, or try another "
            "port of the switch; check it with `perfquery` after a day",
        )


@fabric.of_data_devices
def host_rdma_rates_differ(host: Host, devices: list[RdmaDevice]) -> Iterator[Finding]:
    """The active ports of equal cards run at one rate."""
    compared = 0
    for group in fabric.alike(fabric.active_ports(devices)):
        compared += 1
        rates = [
            (device, port, port.rate.need(f"the rate of {fabric.port_name(device, port)}")) for device, port in group
        ]
        best = max(rate for _, _, rate in rates)
        for device, port, rate in rates:
            if rate < best:
                yield warning(
                    f"{fabric.port_name(device, port)} runs at {rate:g} Gb/s and an equal port at {best:g} Gb/s",
                    device.name,
                    {f"{rate:g} Gb/s": port.rate.via, f"{best:g} Gb/s": host.infiniband.via},
                    "the slowest port sets the pace of a collective: reseat the cable and the transceiver, and compare "
                    f"the port's settings; check it with `ibstat {device.name}` or `mlxlink -d {device.pci}`",
                )
    skip_if(not compared, "no two equal ports are active")


@fabric.of_data_devices
def host_rdma_firmware_differs(host: Host, devices: list[RdmaDevice]) -> Iterator[Finding]:
    """Equal RDMA cards run the same firmware."""
    boards: dict[str, dict[str, str]] = defaultdict(dict)
    for device in devices:
        if not device.board.is_unsupported and not device.firmware.is_unsupported:
            boards[fabric.board(device)][device.name] = device.firmware.need(f"the firmware of {device.name}")
    skip_if(all(len(found) < 2 for found in boards.values()), "no two RDMA cards of one board are here")
    for kind, found in boards.items():
        if len(set(found.values())) > 1:
            usual = Counter(found.values()).most_common(1)[0][0]
            others = {name: version for name, version in found.items() if version != usual}
            words = ", ".join(f"{name} has {version}" for name, version in others.items())
            yield warning(
                f"cards of board {kind} run different firmware: {words}, and the others {usual}",
                ", ".join(others),
                {words: host.infiniband.via, usual: host.infiniband.via},
                "flash all of them to one version (`mlxfwmanager`, or the server vendor's tool) and reset them; check "
                "it with `cat /sys/class/infiniband/*/fw_ver`",
            )


@fabric.of_data_devices
def host_rdma_link_layers_differ(host: Host, devices: list[RdmaDevice]) -> Iterator[Finding]:
    """Equal RDMA cards speak the same link layers."""
    boards: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for device in devices:
        for port in device.ports.need(f"the ports of {device.name}"):
            boards[fabric.board(device)][device.pci.rsplit(".", 1)[0]].append(fabric.link_layer(device, port))
    skip_if(all(len(cards) < 3 for cards in boards.values()), "fewer than three RDMA cards of one board are here")
    for cards in boards.values():
        said = {card: " and ".join(sorted(layers)) for card, layers in cards.items()}
        usual, count = Counter(said.values()).most_common(1)[0]
        if len(said) < 3 or count * 2 <= len(said):
            continue
        for card, layers in said.items():
            if layers != usual:
                yield warning(
                    f"the card {card} speaks {layers}, and {count} equal cards speak {usual}",
                    card,
                    {layers: host.infiniband.via, usual: host.infiniband.via},
                    f"set LINK_TYPE_P1 with `mlxconfig -d {card}.0 set LINK_TYPE_P1=IB(1)` (or ETH(2)) and reset the "
                    f"card; {AGAIN}",
                )


@fabric.of_data_devices
def host_rdma_mtu_differs(host: Host, devices: list[RdmaDevice]) -> Iterator[Finding]:
    """The network interfaces of equal active RDMA ports have one MTU."""
    interfaces: dict[str, NetInterface] = {}
    compared = 0
    for group in fabric.alike(fabric.active_ports(devices)):
        if not interfaces:
            interfaces = {item.name: item for item in host.network.need("the network interfaces")}
        nets = [interfaces[net] for device, _ in group for net in device.nets if net in interfaces]
        up = [net for net in nets if net.state == "up"]
        if len(up) < 2:
            continue
        compared += 1
        usual = Counter(net.mtu for net in up).most_common(1)[0][0]
        for net in up:
            if net.mtu != usual:
                yield warning(
                    f"{net.name} has an MTU of {net.mtu}, and its equals have {usual}",
                    net.name,
                    {str(net.mtu): host.network.via, str(usual): host.network.via},
                    "RDMA over Ethernet takes the largest packet that fits the MTU, and unequal ends may drop it: set "
                    f"all alike with `ip link set {net.name} mtu {usual}` and where the system keeps it; check it with "
                    "`ip link`",
                )
    skip_if(not compared, "no two equal RDMA ports have network interfaces that are up")


@fabric.of_each_port("RDMA over Ethernet")
def host_roce_v2_gid_missing(device: RdmaDevice, port: RdmaPort) -> Iterator[Finding]:
    """Every active RDMA port on Ethernet has an address of RoCE version 2."""
    name = fabric.port_name(device, port)
    if fabric.link_layer(device, port) != "Ethernet" or port.state.need(f"the state of {name}") != "ACTIVE":
        raise Skip("no active port on Ethernet")
    unknown_if(port.gids.is_unsupported, "its GID table was not observed")
    kinds = [gid.kind for gid in port.gids.need(f"the GIDs of {name}")]
    if "RoCE v2" not in kinds:
        said = ", ".join(sorted(set(kinds))) or "no GID at all"
        yield warning(
            f"{name} has {said} and none of RoCE v2",
            device.name,
            {said: port.gids.via},
            "give its network interface an address, bring it up, and let the card speak RoCE v2 "
            f"(`cma_roce_mode -d {device.name} -p {port.number} -m 2`); check it with `show_gids`",
        )
