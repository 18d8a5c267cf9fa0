"""What the checks of NVSwitches, RDMA devices and NCCL share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from envkit.judging.checks._host import SET_ASIDE
from envkit.judging.checks._made import check_by
from envkit.judging.checks._outcomes import skip_if, unknown_if
from envkit.model import Finding, Skip, Unknown
from envkit.records import dataclass
from envkit.subjects import Host
from envkit.subjects.host import Gpu
from envkit.subjects.host.fabric import FabricCard, RdmaDevice, RdmaPort

Port = tuple[RdmaDevice, RdmaPort]
PortJudge = Callable[[RdmaDevice, RdmaPort], Iterator[Finding]]
DevicesJudge = Callable[[Host, list[RdmaDevice]], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class NameFilter:
    """A list of names as NCCL takes it: "^" leaves them out, "=" wants the whole name, else a beginning is enough."""

    names: tuple[str, ...]
    negated: bool
    exact: bool

    def hits(self, name: str, of: str) -> bool:
        return of == name if self.exact else of.startswith(name)

    def takes(self, of: str) -> bool:
        return any(self.hits(name, of) for name in self.names) != self.negated

    def without_ports(self) -> NameFilter:
        """The names of devices alone: "mlx5_0" of "mlx5_0:1"."""
        return replace(self, names=tuple(name.partition(":")[0] for name in self.names))


def name_filter(text: str) -> NameFilter:
    """The filter that a variable of NCCL's holds."""
    rest = text.removeprefix("^")
    names = tuple(name for name in rest.removeprefix("=").split(",") if name)
    return NameFilter(names, text.startswith("^"), rest.startswith("="))


def own_cards(host: Host, kind: str) -> list[FabricCard]:
    """The cards of one kind that are this machine's to use: no virtual functions, none handed to a guest."""
    cards = host.fabric_cards.need("the fabric's cards on the PCI bus")
    return [card for card in cards if card.kind == kind and not card.virtual and card.driver not in SET_ASIDE]


def bridges(host: Host) -> tuple[str, ...]:
    """The addresses of network cards that manage NVSwitches; none where no GPU knows a fabric."""
    if host.switch_managers.value is None and _no_fabric(host):
        return ()
    found = host.switch_managers.need("which network cards manage NVSwitches, which root may read,")
    if not found:
        return ()
    away = [card.address for card in host.fabric_cards.need("the cards on the PCI bus") if card.driver in SET_ASIDE]
    return tuple(address for address in found if address not in away)


def _no_fabric(host: Host) -> bool:
    nvml = host.nvml.value
    return nvml is not None and nvml.ended == "answered" and not any(has_fabric(gpu) for gpu in nvml.gpus)


def has_fabric(gpu: Gpu) -> bool:
    """Whether the GPU may belong to an NVLink fabric: it says so, or does not say."""
    fabric = gpu.fabric
    return not fabric.is_unsupported and (fabric.value is None or fabric.value.state != "not supported")


def need_nvswitches(host: Host) -> None:
    """Skips where this machine manages no NVSwitch."""
    skip_if(not own_cards(host, "nvswitch") and not bridges(host), "this machine manages no NVSwitch")


def rdma_devices(host: Host) -> list[RdmaDevice]:
    """The RDMA devices on the bus, less those virtual beside their own physical function; skips without any."""
    devices = [device for device in host.infiniband.need("the RDMA devices") if device.pci and not device.virtual]
    skip_if(not devices, "no RDMA device on this machine")
    return devices


def data_devices(host: Host) -> list[RdmaDevice]:
    """The RDMA devices that carry data, and do not manage NVSwitches; skips if there are none."""
    devices = rdma_devices(host)
    managing = bridges(host)
    devices = [device for device in devices if device.pci not in managing]
    skip_if(not devices, "every RDMA device here manages NVSwitches")
    return devices


def judge_devices(host: Host, judge: Callable[[list[RdmaDevice]], Iterable[Finding]]) -> list[Finding]:
    """Judges the devices that carry data.

    Which those are root alone can tell on some machines.  It does not matter where nothing is wrong with any device,
    and is asked for only where something is, or is open.
    """
    try:
        if not list(judge(rdma_devices(host))):
            return []
    except Unknown:
        pass
    return list(judge(data_devices(host)))


def port_name(device: RdmaDevice, port: RdmaPort) -> str:
    """A port by device, number and address."""
    return f"{device.name} port {port.number} ({device.pci})"


def link_layer(device: RdmaDevice, port: RdmaPort) -> str:
    """ "InfiniBand" or "Ethernet"; raises Unknown if it was not observed."""
    return port.layer.need(f"the link layer of {port_name(device, port)}")


def board(device: RdmaDevice) -> str:
    """What makes two devices equal: the board, or the driver where it tells no board."""
    if device.board.missing and not device.board.is_unsupported:
        raise Unknown(f"the board of {device.name} was not observed: {device.board.missing}")
    return device.board.value or device.driver


def judge_ports(host: Host, what: str, judge: PortJudge) -> list[Finding]:
    """Judges every data port; ``judge`` skips one to which the question does not apply."""
    return judge_devices(host, lambda devices: _ports(devices, what, judge))


def of_each_port(what: str) -> Callable[[PortJudge], Callable[[Host], Iterator[Finding]]]:
    """The check of a machine that asks about each of its data ports, by the rules of ``judge_ports``."""
    return check_by(lambda host, judge: judge_ports(host, what, judge))


def of_data_devices(judge: DevicesJudge) -> Callable[[Host], Iterator[Finding]]:
    """The check of a machine that asks about the RDMA devices that carry data, by the rules of ``judge_devices``."""
    made: Callable[[DevicesJudge], Callable[[Host], Iterator[Finding]]]
    made = check_by(lambda host, judge: judge_devices(host, lambda devices: judge(host, devices)))
    return made(judge)


def _ports(devices: list[RdmaDevice], what: str, judge: PortJudge) -> list[Finding]:
    """Judges every port of the devices.

    A fault outranks a doubt.  Raises Unknown if nothing is wrong and a value is missing, Skip if no port was judged.
    """
    findings: list[Finding] = []
    doubts: list[str] = []
    judged = 0
    for device in devices:
        if device.ports.value is None:
            doubts.append(f"the ports of {device.name} were not observed: {device.ports.missing}")
        for port in device.ports.value or ():
            try:
                findings += judge(device, port)
                judged += 1
            except Skip:
                continue
            except Unknown as doubt:
                doubts.append(f"{port_name(device, port)}: {doubt}")
    unknown_if(not findings and doubts, "; ".join(doubts))
    skip_if(not findings and not judged, f"no port here has {what}")
    return findings


def active_ports(devices: Iterable[RdmaDevice]) -> list[Port]:
    """The ports that are ACTIVE; raises Unknown if a state is missing."""
    found: list[Port] = []
    for device in devices:
        for port in device.ports.need(f"the ports of {device.name}"):
            if port.state.need(f"the state of {port_name(device, port)}") == "ACTIVE":
                found.append((device, port))
    return found


def alike(ports: Iterable[Port]) -> Iterator[list[Port]]:
    """The ports in groups of equal board and link layer, those groups alone in which there is something to compare."""
    groups: dict[tuple[str, str], list[Port]] = defaultdict(list)
    for device, port in ports:
        layer = link_layer(device, port)
        groups[board(device), layer].append((device, port))
    yield from (group for group in groups.values() if len(group) > 1)


def nccl_settings(host: Host) -> Mapping[str, tuple[str, str]]:
    """NCCL's settings and where each comes from: the environment wins over the files."""
    files = host.nccl_conf.need("NCCL's configuration files")
    environment = host.environment.need("the environment")
    found = {name: (value, host.nccl_conf.via) for name, value in files.items()}
    via = host.environment.via
    return found | {name: (value, via) for name, value in environment.items() if name.startswith("NCCL_")}
