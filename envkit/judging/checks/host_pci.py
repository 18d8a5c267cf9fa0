"""What is asked of the PCI bus under GPUs and network adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from envkit.judging.checks._host import AGAIN
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.judging.checks._pci import above, bridges, judge_devices, kinds, named, need_bare_metal, rdma, sockets
from envkit.model import Finding, Severity, Skip
from envkit.subjects import Host
from envkit.subjects.host import PciDevice, PciLink, PciPayload

_X86 = ("0x8086", "0x1022", "0x1d94")  # makers of x86 root ports: Intel, AMD, Hygon
_CORRECTABLE_MOST = 1000  # proposal: a link that trains makes a handful, a sick one makes thousands an hour
_READ_LEAST = 512  # what PCI Express devices ask for by default (PCI Express Base Specification, Device Control)
_FAST = 8.0  # GT/s; slower adapters are no matter for a job, and some of them train below what they can
_RESEAT = "reseat board, riser and cables; look at the slot's setting in the firmware"


def _short_of(link: PciLink, other: PciLink) -> str:
    """What a link lacks of what both its ends can do, in words; empty if nothing."""
    speed, width = min(link.most_speed, other.most_speed), min(link.most_width, other.most_width)
    if link.width >= width and link.speed >= speed:
        return ""
    return f"runs at {link.speed:g} GT/s x{link.width} where both ends can do {speed:g} GT/s x{width}"


def _check(address: str) -> str:
    return f"check it with `lspci -vv -s {address} | grep Lnk`"


def host_pci_upstream_link_degraded(host: Host) -> Iterator[Finding]:
    """Every link above a GPU's own runs at what both its ends can do.

    Links between switches and root ports do not slow down when idle; the GPU's own link does, and is NVML's matter.
    """
    need_bare_metal(host)
    seen: set[str] = set()
    doubts: list[str] = []
    judged = False
    for gpu in kinds(host, "gpu"):
        path = above(host, gpu)
        # links lie between a switch's upper port and the port above it: the second bridge and the third, and so on
        for lower, upper in list(pairwise(path[1:]))[::2]:
            if lower.address in seen:
                continue
            seen.add(lower.address)
            if lower.link.is_unsupported or upper.link.is_unsupported:
                continue
            if lower.link.value is None or upper.link.value is None:
                doubts.append(f"the link of bridge {lower.address}: {lower.link.missing or upper.link.missing}")
                continue
            judged = True
            if short := _short_of(lower.link.value, upper.link.value):
                yield warning(
                    f"the link of bridge {lower.address} above {named(gpu)} {short}",
                    lower.address,
                    {short: lower.link.via},
                    f"{_RESEAT}; {_check(lower.address)}",
                )
    unknown_if(doubts, "; ".join(doubts))
    skip_if(not judged, "no GPU here is behind a PCI Express switch")


def host_gpu_slot_too_narrow(host: Host) -> Iterator[Finding]:
    """Every GPU's slot has as many lanes as the GPU."""
    need_bare_metal(host)
    gpus = kinds(host, "gpu")
    ports = {gpu.address: path[0] for gpu in gpus if (path := above(host, gpu))}

    def judge(gpu: PciDevice, link: PciLink) -> Iterator[Finding]:
        if gpu.address not in ports or ports[gpu.address].link.is_unsupported:
            return
        slot = ports[gpu.address].link.need(f"the link of bridge {ports[gpu.address].address}")
        if slot.most_width < link.most_width:
            yield note(
                f"{named(gpu)} can use {link.most_width} lanes and its slot has {slot.most_width}",
                evidence={f"x{slot.most_width}": ports[gpu.address].link.via},
                fix=f"put it into a wider slot; {_check(gpu.address)}",
            )

    yield from judge_devices(gpus, "the link", lambda gpu: gpu.link, judge)


def host_nic_pcie_link_degraded(host: Host) -> Iterator[Finding]:
    """Every fast network adapter's link runs at what adapter and slot can do."""
    need_bare_metal(host)
    nics = [nic for nic in kinds(host, "nic", "ib") if nic.link.value is None or nic.link.value.most_speed >= _FAST]
    ports = {nic.address: path[0] for nic in nics if (path := above(host, nic))}

    def judge(nic: PciDevice, link: PciLink) -> Iterator[Finding]:
        other = link
        if nic.address in ports and not ports[nic.address].link.is_unsupported:
            other = ports[nic.address].link.need(f"the link of bridge {ports[nic.address].address}")
        if short := _short_of(link, other):
            yield warning(
                f"{named(nic)} {short}", evidence={short: nic.link.via}, fix=f"{_RESEAT}; {_check(nic.address)}"
            )

    yield from judge_devices(nics, "the link", lambda nic: nic.link, judge)


def host_gpu_slots_differ(host: Host) -> Iterator[Finding]:
    """GPUs of one product sit in slots of one speed and width."""
    need_bare_metal(host)
    found: dict[str, dict[str, list[str]]] = {}
    for gpu in kinds(host, "gpu"):
        path = above(host, gpu)
        if not path or path[0].link.is_unsupported:
            continue
        slot = path[0].link.need(f"the link of bridge {path[0].address}")
        words = f"{slot.most_speed:g} GT/s x{slot.most_width}"
        found.setdefault(gpu.device, {}).setdefault(words, []).append(gpu.address)
    if not any(sum(map(len, slots.values())) > 1 for slots in found.values()):
        raise Skip("no two GPUs of one product have slots that tell their speed")
    for slots in found.values():
        if len(slots) > 1:
            listed = "; ".join(f"{words}: {', '.join(gpus)}" for words, gpus in sorted(slots.items()))
            yield note(
                f"GPUs of one product sit in different slots: {listed}",
                "/sys/bus/pci/devices",
                dict.fromkeys(slots, "max_link_speed and max_link_width of the port above"),
                "use GPUs of like slots together, or move a board; check it with `nvidia-smi topo -m`",
            )


def host_pci_uncorrected_errors(host: Host) -> Iterator[Finding]:
    """No uncorrected PCI Express error since boot on the paths to GPUs and network adapters.

    A fatal one is an error, another one a warning: some are made while the bus is looked through.
    """
    ends = kinds(host, "gpu", "nvswitch", "nic", "ib")

    def judge(device: PciDevice, errors: Mapping[str, int]) -> Iterator[Finding]:
        for kind, severity in (("fatal", Severity.ERROR), ("nonfatal", Severity.WARNING)):
            if errors.get(kind, 0):
                yield Finding(
                    f"{named(device)} met {errors[kind]} uncorrected PCI Express errors ({kind}) since boot",
                    severity,
                    evidence={str(errors[kind]): device.aer.via.replace("fatal", kind)},
                    fix=f"{_RESEAT}; if they come back, replace the board; {AGAIN} after a reboot",
                )

    yield from judge_devices(ends + bridges(host, ends), "PCI Express errors", lambda device: device.aer, judge)


def host_pci_many_corrected_errors(host: Host) -> Iterator[Finding]:
    """Few corrected PCI Express errors since boot on the paths to GPUs and network adapters."""
    ends = kinds(host, "gpu", "nvswitch", "nic", "ib")

    def judge(device: PciDevice, errors: Mapping[str, int]) -> Iterator[Finding]:
        if errors.get("correctable", 0) > _CORRECTABLE_MOST:
            yield warning(
                f"{named(device)} met {errors['correctable']} corrected PCI Express errors since boot, more than "
                f"{_CORRECTABLE_MOST}",
                evidence={str(errors["correctable"]): device.aer.via.replace("fatal", "correctable")},
                fix=f"{_RESEAT}; the link repeats what was spoiled, which costs speed; {AGAIN} after a reboot",
            )

    yield from judge_devices(ends + bridges(host, ends), "PCI Express errors", lambda device: device.aer, judge)


def _peers(host: Host) -> list[PciDevice]:
    """GPUs and RDMA adapters on bare metal that could talk past the processor; skips if there is but one."""
    need_bare_metal(host)
    ends = kinds(host, "gpu") + rdma(host)
    skip_if(len(ends) < 2, "there is one GPU and no adapter for RDMA: no device talks to another")
    return ends


def host_acs_redirect_on(host: Host) -> Iterator[Finding]:
    """No bridge above GPUs sends what devices say to each other up to the processor (ACS redirection)."""
    ends = _peers(host)
    found = bridges(host, ends)
    skip_if(not found, "no bridge is above the GPUs")

    def judge(bridge: PciDevice, redirects: tuple[str, ...]) -> Iterator[Finding]:
        if redirects:
            yield warning(
                f"bridge {bridge.address} above GPUs or their adapters redirects every peer-to-peer "
                f"{' and '.join(redirects)} to the root (ACS)",
                evidence={" and ".join(redirects): bridge.redirects.via},
                fix=f"turn ACS off in the firmware, or at each boot with `setpci -s {bridge.address} "
                f"ECAP_ACS+6.w=0000`; check it with `lspci -vvv -s {bridge.address} | grep ACSCtl`",
            )

    yield from judge_devices(found, "ACS", lambda bridge: bridge.redirects, judge)


def host_iommu_not_in_passthrough(host: Host) -> Iterator[Finding]:
    """On x86 bare metal the IOMMU does not translate what GPUs and RDMA adapters send to each other."""
    ends = _peers(host)
    ends = [end for end in ends if (path := above(host, end)) and path[-1].vendor in _X86]
    skip_if(not ends, "no GPU here is below a root port of an x86 processor")

    def judge(end: PciDevice, kind: str) -> Iterator[Finding]:
        if kind.startswith("DMA"):
            yield warning(
                f"the IOMMU translates what {named(end)} sends (its group is of type {kind})",
                evidence={kind: end.iommu.via},
                fix="boot with `iommu=pt`, or turn the IOMMU off in the firmware; "
                "check it with `cat /sys/kernel/iommu_groups/*/type`",
            )

    yield from judge_devices(ends, "the IOMMU group", lambda end: end.iommu, judge)


def host_gpu_pcie_payload_too_small(host: Host) -> Iterator[Finding]:
    """Every GPU sends PCI Express packets as large as GPU and slot can take.

    Sizes above 256 bytes are not asked for, as few root ports take them.
    """
    _peers(host)
    gpus = kinds(host, "gpu")
    paths = {gpu.address: above(host, gpu) for gpu in gpus}

    def judge(gpu: PciDevice, sizes: PciPayload) -> Iterator[Finding]:
        can = min([256, sizes.most_payload, *(_most_payload(bridge) for bridge in paths[gpu.address])])
        if sizes.payload < can:
            yield note(
                f"{named(gpu)} sends packets of {sizes.payload} bytes where its path takes {can}",
                evidence={f"MaxPayload {sizes.payload}": gpu.payload.via},
                fix="set the maximum payload in the firmware to its largest or to automatic, or boot with "
                f"`pci=pcie_bus_perf`; check it with `lspci -vv -s {gpu.address} | grep MaxPayload`",
            )

    yield from judge_devices(gpus, "the packet size", lambda gpu: gpu.payload, judge)


def _most_payload(bridge: PciDevice) -> int:
    if bridge.payload.is_unsupported:
        return 128
    return bridge.payload.need(f"the packet size of bridge {bridge.address}").most_payload


def host_nic_max_read_request_too_small(host: Host) -> Iterator[Finding]:
    """Every adapter for RDMA asks for at least 512 bytes in one read."""
    need_bare_metal(host)
    nics = rdma(host)
    skip_if(not nics, "no adapter for RDMA on the PCI bus")

    def judge(nic: PciDevice, sizes: PciPayload) -> Iterator[Finding]:
        if sizes.read_request < _READ_LEAST:
            yield warning(
                f"{named(nic)} asks for {sizes.read_request} bytes in one read, less than {_READ_LEAST}",
                evidence={f"MaxReadReq {sizes.read_request}": nic.payload.via},
                fix="set it in the firmware or with setpci; check it with "
                f"`lspci -vv -s {nic.address} | grep MaxReadReq`",
            )

    yield from judge_devices(nics, "the size of its reads", lambda nic: nic.payload, judge)


def host_gpu_numa_node_unknown(host: Host) -> Iterator[Finding]:
    """On a machine with several NUMA nodes the firmware says to which one each GPU belongs."""
    need_bare_metal(host)
    gpus = kinds(host, "gpu")
    nodes = sockets(host)
    skip_if(nodes < 2, "this machine has one NUMA node")

    def judge(gpu: PciDevice, node: int) -> Iterator[Finding]:
        if node < 0:
            yield warning(
                f"no NUMA node is named for {named(gpu)}, and this machine has {nodes}",
                evidence={str(node): gpu.numa.via},
                fix="update the firmware, or set its NUMA options to their defaults: without it processes are bound to "
                "far processors; check it with `nvidia-smi topo -m`",
            )

    yield from judge_devices(gpus, "the NUMA node", lambda gpu: gpu.numa, judge)


def _nodes(devices: list[PciDevice]) -> Counter[int]:
    return Counter(device.numa.need(f"the NUMA node of {named(device)}") for device in devices)


def host_gpus_unbalanced_across_numa(host: Host) -> Iterator[Finding]:
    """The NUMA nodes that have GPUs have as many each, give or take one."""
    need_bare_metal(host)
    gpus = kinds(host, "gpu")
    skip_if(sockets(host) < 2 or len(gpus) < 4, "fewer than two NUMA nodes or four GPUs")
    found = _nodes(gpus)
    skip_if(-1 in found, "the NUMA node of a GPU is not named")
    if max(found.values()) - min(found.values()) > 1:
        listed = ", ".join(f"node {node} has {number}" for node, number in sorted(found.items()))
        yield note(
            f"the GPUs are spread unevenly over the NUMA nodes: {listed}",
            "/sys/bus/pci/devices/*/numa_node",
            {listed: "numa_node"},
            "look whether a GPU is missing (`lspci -d 10de:`) or sits in the wrong slot; "
            "check it with `nvidia-smi topo -m`",
        )


def host_gpu_numa_node_without_nic(host: Host) -> Iterator[Finding]:
    """Every NUMA node that has GPUs has an adapter for RDMA too, where there are enough of them."""
    need_bare_metal(host)
    gpus, nics = kinds(host, "gpu"), rdma(host)
    skip_if(sockets(host) < 2, "this machine has one NUMA node")
    near, served = _nodes(gpus), _nodes(nics) if nics else Counter[int]()
    if len(nics) < len(near) or -1 in near or -1 in served:
        raise Skip(f"{len(nics)} adapters for RDMA with known nodes are too few to serve {len(near)} nodes with GPUs")
    for node, number in sorted(near.items()):
        if node not in served:
            yield warning(
                f"NUMA node {node} has {number} GPUs and none of the {len(nics)} adapters for RDMA",
                f"NUMA node {node}",
                {", ".join(f"{nic.address} on {nic.numa.value}" for nic in nics): "numa_node"},
                "move an adapter to a slot of this processor, or look which one is missing; "
                "check it with `nvidia-smi topo -m`",
            )


def host_gpu_without_nic_on_pcie_switch(host: Host) -> Iterator[Finding]:
    """If some GPUs share a PCI Express switch with an adapter for RDMA, all do."""
    need_bare_metal(host)
    gpus, nics = kinds(host, "gpu"), rdma(host)
    reach = {bridge.address for nic in nics for bridge in above(host, nic)}
    paired = [gpu for gpu in gpus if any(bridge.address in reach for bridge in above(host, gpu))]
    skip_if(not paired, "no GPU shares a PCI Express switch with an adapter for RDMA")
    for gpu in gpus:
        if gpu not in paired:
            yield warning(
                f"{named(gpu)} shares no PCI Express switch with an adapter for RDMA, and {len(paired)} of {len(gpus)} "
                "GPUs do",
                gpu.address,
                {f"below {gpu.above[-1] if gpu.above else 'no bridge'}": "the path of /sys/bus/pci/devices"},
                "look which adapter is missing (`lspci | grep -i infiniband`), and reseat it; "
                "check it with `nvidia-smi topo -m`",
            )


def host_gpu_bar_not_assigned(host: Host) -> Iterator[Finding]:
    """Every window through which the processor sees a GPU or NVSwitch got an address (flag IORESOURCE_UNSET)."""

    def judge(device: PciDevice, without: tuple[int, ...]) -> Iterator[Finding]:
        if without:
            yield error(
                f"{named(device)} got no address for BAR {', '.join(map(str, without))}",
                evidence={f"BAR {', '.join(map(str, without))}": device.unassigned.via},
                fix="turn Above 4G Decoding on in the firmware, or boot with `pci=realloc`; "
                f"check it with `lspci -v -s {device.address} | grep Memory`",
            )

    devices = kinds(host, "gpu", "nvswitch")
    yield from judge_devices(devices, "the windows", lambda device: device.unassigned, judge)


def host_pci_device_not_responding(host: Host) -> Iterator[Finding]:
    """The configuration space of every GPU, NVSwitch and network adapter answers with more than ones."""
    devices = kinds(host, "gpu", "nvswitch", "nic", "ib")
    awake = [device for device in devices if device.power.value != "suspended"]
    skip_if(not awake, "every device sleeps")

    def judge(device: PciDevice, answers: bool) -> Iterator[Finding]:
        if not answers:
            yield error(
                f"{named(device)} does not answer on the PCI bus",
                evidence={"0xffffffff": device.answers.via},
                fix="drain the machine and power it off and on; if it comes back, look at power, slot and cooling; "
                f"check it with `lspci -s {device.address}`",
            )

    yield from judge_devices(awake, "the configuration space", lambda device: device.answers, judge)


def host_gpu_suspended_or_failed_to_wake(host: Host) -> Iterator[Finding]:
    """No GPU failed to go to sleep or to wake up (runtime power management)."""
    gpus = kinds(host, "gpu")

    def judge(gpu: PciDevice, state: str) -> Iterator[Finding]:
        if state == "error" or (state == "suspended" and len(gpus) > 1):
            yield Finding(
                f"the power state of {named(gpu)} is {state}",
                Severity.ERROR if state == "error" else Severity.NOTE,
                evidence={state: gpu.power.via},
                fix="reboot, and turn the GPU's sleep off with `echo on > power/control` in its folder"
                if state == "error"
                else "keep it awake with nvidia-persistenced; "
                f"check it with `cat /sys/bus/pci/devices/{gpu.address}/power/runtime_status`",
            )

    yield from judge_devices(gpus, "the power state", lambda gpu: gpu.power, judge)
