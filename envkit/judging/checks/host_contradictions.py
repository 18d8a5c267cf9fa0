"""What is asked of sources that tell the same in two ways: that they agree.

Where two disagree, one of them is wrong or something changed under way, and no verdict can stand on either.  What one
source legitimately sees less of (a container, WSL, a guest) is not held against it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from envkit.judging.checks import _host
from envkit.judging.checks._gpus import is_coherent, is_laptop, where
from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.judging.checks._pci import bus, need_bare_metal
from envkit.model import Finding
from envkit.subjects import Host
from envkit.subjects.host import DriverGpu, Gpu, PciDevice, PciGpu
from envkit.subjects.host.fabric import RdmaDevice

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # PCI Express Base Specification, GT/s a lane
# CUDA C++ Programming Guide, "Compute Capabilities"
_ARCHITECTURES = {
    "Kepler": r"sm_3.", "Maxwell": r"sm_5.", "Pascal": r"sm_6.", "Volta": r"sm_7[02]", "Turing": r"sm_75",
    "Ampere": r"sm_8[0-8]", "Ada": r"sm_89", "Hopper": r"sm_9.", "Blackwell": r"sm_1[012].",
}  # fmt: skip
# A product's name says its memory in GB; ECC and the driver take up to a tenth of it, GiB are 7 percent more.
_NAMED_MEMORY = re.compile(r"\b([0-9]{1,3}) ?GB\b")
_MEMORY_LEAST, _MEMORY_MOST = 0.85, 1.15
_ABOVE = 1.1  # what a reading may be above its own limit, for both are not read at the same moment

_NVIDIA = "0x10de"  # by which both kinds are found

_TRUST = "find out which of them is right before trusting either: ask again, then read `dmesg`, reset or reboot"
_FIX = f"{_TRUST}; {_host.AGAIN}"


def _against(message: str, place: str, *told: tuple[str, str]) -> Finding:
    """Two sources that disagree; ``told`` is what each says and how it was asked."""
    return error(message, place, dict(told), _FIX)


def _doubles(what: str, of: Iterable[tuple[str, object]], via: str) -> Iterator[Finding]:
    """Findings where several things have one value that tells them apart; those without one (None, "") are left out."""
    seen: dict[object, list[str]] = defaultdict(list)
    for name, value in of:
        if value not in (None, ""):
            seen[value].append(name)
    for value, names in seen.items():
        if len(names) > 1:
            yield _against(f"{' and '.join(names)} have one {what}: {value}", names[-1], (f"{what} {value}", via))


def host_gpu_lists_contradict(host: Host) -> Iterator[Finding]:
    """NVML, /proc/driver/nvidia/gpus, /dev and the PCI bus say the same of each GPU, and no two GPUs are one."""
    _host.need_driver(host)
    gpus = _host.nvml_answers(host).gpus
    nodes = host.device_nodes.need("the device nodes")
    driver = host.driver_gpus.need("the driver's list of GPUs")
    on_bus = host.pci_gpus.need("the PCI bus")
    skip_if(not gpus, "NVML lists no GPU")
    for what, of in (
        ("UUID", [(where(gpu), gpu.uuid.value) for gpu in gpus]),
        ("PCI address", [(where(gpu), gpu.pci.value) for gpu in gpus]),
        ("minor number", [(where(gpu), gpu.minor.value) for gpu in gpus]),
        ("index", [(_host.gpu_name(gpu), gpu.index) for gpu in gpus]),
    ):
        yield from _doubles(what, of, "NVML")
    yield from _doubles("minor number", [(f"GPU {gpu.address}", gpu.minor) for gpu in driver], host.driver_gpus.via)
    if _host.wsl(host):
        return
    minors = {int(number[1]) for node in nodes if (number := re.fullmatch("/dev/nvidia([0-9]+)", node.path))}
    for gpu in gpus:
        yield from _by_driver(gpu, driver, host.driver_gpus.via)
        yield from _by_bus(gpu, on_bus, host.pci_gpus.via)
        if gpu.minor.value is not None and len(minors) >= len(gpus) and gpu.minor.value not in minors:
            yield _against(
                f"NVML says that {_host.gpu_name(gpu)} is /dev/nvidia{gpu.minor.value}, which does not exist",
                where(gpu),
                (f"minor {gpu.minor.value}", gpu.minor.via),
                (f"nodes {', '.join(map(str, sorted(minors)))}", "listing of /dev"),
            )


def _by_driver(gpu: Gpu, driver: tuple[DriverGpu, ...], via: str) -> Iterator[Finding]:
    """What NVML and the driver's own list, where there is one, say differently of a GPU."""
    if not driver or gpu.pci.value is None:
        return
    own = next((one for one in driver if one.address == gpu.pci.value), None)
    if own is None:
        yield _against(
            f"NVML lists {_host.gpu_name(gpu)}, and /proc/driver/nvidia/gpus has no GPU at that address",
            where(gpu),
            (f"NVML: {gpu.pci.value}", gpu.pci.via),
            (f"the driver: {', '.join(one.address for one in driver)}", via),
        )
        return
    gsp = gpu.gsp.value
    told = (
        ("UUID", gpu.uuid.value, "" if "?" in own.uuid else own.uuid),  # a GPU that was never used shows "GPU-????"
        ("minor number", gpu.minor.value, own.minor),
        ("GSP firmware", gsp, own.firmware),
    )
    for what, nvml, proc in told:
        if nvml is not None and proc != "" and nvml != proc:
            yield _against(
                f"the {what} of {_host.gpu_name(gpu)} is {nvml} by NVML and {proc} by /proc/driver/nvidia/gpus",
                where(gpu),
                (f"NVML: {nvml}", "NVML"),
                (f"the driver: {proc}", via),
            )


def _by_bus(gpu: Gpu, on_bus: tuple[PciGpu, ...], via: str) -> Iterator[Finding]:
    if on_bus and gpu.pci.value is not None and gpu.pci.value not in {one.address for one in on_bus}:
        yield _against(
            f"NVML lists {_host.gpu_name(gpu)}, and the PCI bus has no GPU at that address",
            where(gpu),
            (f"NVML: {gpu.pci.value}", gpu.pci.via),
            (f"the bus: {', '.join(one.address for one in on_bus)}", via),
        )


def host_driver_versions_contradict(host: Host) -> Iterator[Finding]:
    """The module, NVML, its library, the GSP's firmware and the running kernel agree on the versions that run."""
    _host.need_driver(host)
    skip_if(_host.wsl(host), "under WSL the driver is that of Windows")
    nvml = _host.nvml_answers(host)
    module = "" if host.module.is_unsupported else host.module.need("the loaded module").version
    driver = module or nvml.driver
    skip_if(not driver, "neither the module nor NVML tells the driver's version")
    told = [("NVML", nvml.driver, "nvmlSystemGetDriverVersion")]
    # the library's own version is the driver's behind a CUDA's major number
    if nvml.library and not f".{nvml.library}".endswith(f".{driver}"):
        told.append(("libnvidia-ml", nvml.library, "nvmlSystemGetNVMLVersion"))
    told += [(f"the GSP of {_host.gpu_name(gpu)}", gpu.gsp.value or "", gpu.gsp.via) for gpu in nvml.gpus]
    for what, version, via in told:
        if version and version not in ("off", driver):
            yield _against(
                f"the loaded driver is {driver}, and {what} says {version}",
                what,
                (f"driver {driver}", host.module.via or "NVML"),
                (f"{what} {version}", via),
            )
    running = [one.release for one in host.kernels.need("the kernels on this machine") if one.running]
    kernel = host.kernel.need("the running kernel")
    if running and kernel not in running:
        yield _against(
            f"the running kernel is {kernel}, and {running[0]} is marked as the one that runs",
            "uname",
            (kernel, host.kernel.via),
            (running[0], host.kernels.via),
        )


def host_gpu_values_contradict(host: Host) -> Iterator[Finding]:
    """What NVML says of one GPU fits together, and with what it says of the others."""
    _host.need_driver(host)
    gpus = _host.nvml_answers(host).gpus
    skip_if(not gpus, "NVML lists no GPU")
    for gpu in gpus:
        for words in _unfit(gpu):
            yield _against(f"{_host.gpu_name(gpu)}: {words}", where(gpu), (words, "NVML"))
    if all(gpu.state.value == "answers" for gpu in gpus):
        yield from _peers(gpus)
    yield from _banks(gpus)


def _unfit(gpu: Gpu) -> Iterator[str]:
    """What cannot be true at once of one GPU."""
    window = gpu.bar1.value
    if gpu.memory.value is not None and (gpu.memory_used.value or 0) > gpu.memory.value:
        yield f"{gpu.memory_used.value} bytes of memory are in use, and it has {gpu.memory.value}"
    if window and window.used > window.total:
        yield f"{window.used} bytes of the BAR1 window are in use, and it has {window.total}"
    yield from _product(gpu)
    clocks, power = gpu.clocks.value, gpu.power.value
    if clocks and clocks.most_sm and max(clocks.sm, clocks.application_sm) > clocks.most_sm * _ABOVE:
        yield f"its SM clock is {max(clocks.sm, clocks.application_sm)} MHz and the most it can do is {clocks.most_sm}"
    if power and power.most and not is_laptop(gpu) and not is_coherent(gpu):
        for value, what in ((power.least, "least"), (power.default, "default"), (power.limit, "present")):
            if value > power.most * _ABOVE:
                yield f"its {what} power limit is {value} mW and the most that may be set is {power.most}"
        if 0 < power.default < power.least:
            yield f"its default power limit is {power.default} mW and the least that may be set is {power.least}"
    links = Counter(link.link for link in gpu.links.value or ())
    if twice := [str(link) for link, times in links.items() if times > 1]:
        yield f"NVLink {', '.join(twice)} is listed twice"
    if gpu.mig_instances.value and gpu.mig.value in ("off", "unsupported"):
        yield f"MIG is {gpu.mig.value} and there are {gpu.mig_instances.value} instances"
    if gpu.ecc.value == "unsupported" and gpu.ecc_corrected.value:
        yield "ECC is unsupported and its errors are counted"
    if gpu.remap.value and not gpu.remap.value.supported and gpu.spare_rows.value and gpu.spare_rows.value.full:
        yield "remapping rows is unsupported and spare rows are counted"


def _product(gpu: Gpu) -> Iterator[str]:
    """What does not fit the name and the architecture."""
    family, sm = _ARCHITECTURES.get(gpu.architecture.value or ""), gpu.sm.value
    if family and sm and not re.match(family, sm):
        yield f"its architecture is {gpu.architecture.value} and its compute capability {sm}"
    sizes = _NAMED_MEMORY.findall(gpu.name.value or "")
    if len(sizes) == 1 and gpu.memory.value and not is_coherent(gpu):
        share = gpu.memory.value / (int(sizes[0]) * 1e9)
        if not _MEMORY_LEAST <= share <= _MEMORY_MOST and (gpu.virtual.value or "none") in ("none", "passthrough"):
            yield f"its name says {sizes[0]} GB and it has {_host.gib(gpu.memory.value)}"


def _peers(gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Each GPU names each other one as a peer, and both say the same of their way."""
    for gpu in gpus:
        named = gpu.p2p.value
        left = [str(other.index) for other in gpus if other is not gpu]
        if named is not None and sorted(named) != sorted(left):
            words = (
                f"its peers are {', '.join(sorted(named)) or 'none'} and the other GPUs are {', '.join(left) or 'none'}"
            )
            yield _against(f"{_host.gpu_name(gpu)}: {words}", where(gpu), (words, gpu.p2p.via))
    for one, other in combinations(gpus, 2):
        way, back = (one.p2p.value or {}).get(str(other.index)), (other.p2p.value or {}).get(str(one.index))
        if way is not None and back is not None and way != back:
            words = f"peer access of GPU {one.index} to GPU {other.index} is `{way}` and the other way `{back}`"
            yield _against(words, where(one), (words, one.p2p.via))


def _banks(gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """GPUs of one product have one number of memory banks."""
    products: dict[str, dict[str, int]] = defaultdict(dict)
    for gpu in gpus:
        if (rows := gpu.spare_rows.value) is not None and gpu.name.value:
            products[gpu.name.value][where(gpu)] = rows.full + rows.high + rows.partial + rows.low + rows.none
    for product, banks in products.items():
        usual, count = Counter(banks.values()).most_common(1)[0]
        for place, number in banks.items():
            if number != usual:
                words = f"{number} memory banks are counted, and {count} equal {product} have {usual}"
                yield warning(f"{place}: {words}", place, {words: "nvmlDeviceGetRowRemapperHistogram"}, _FIX)


def host_gpu_link_contradicts_bus(host: Host) -> Iterator[Finding]:
    """NVML and the PCI bus say the same of the lanes of each GPU and of what they can do."""
    _host.need_driver(host)
    need_bare_metal(host)
    devices = {device.address: device for device in bus(host).values() if device.kind == "gpu"}
    skip_if(not devices, "the PCI bus shows no GPU; it reaches this machine another way")
    for gpu in _host.nvml_answers(host).gpus:
        link, device = gpu.pcie.value, devices.get(gpu.pci.value or "")
        if link is None or device is None or device.link.value is None or is_coherent(gpu):
            continue
        seen = device.link.value
        most = _GENERATIONS.get(seen.most_speed, 0)
        for wrong, words in (
            (link.width != seen.width and not _host.is_workstation(gpu), f"x{link.width} by NVML and x{seen.width}"),
            (link.most_width > seen.most_width, f"at most x{link.most_width} by NVML and x{seen.most_width}"),
            (most and link.most_generation > most, f"at most generation {link.most_generation} by NVML and {most}"),
        ):
            if wrong:
                yield _against(
                    f"the PCIe link of {_host.gpu_name(gpu)} is {words} by the bus",
                    where(gpu),
                    (words, f"{gpu.pcie.via}, {device.link.via}"),
                )


def host_pci_lists_contradict(host: Host) -> Iterator[Finding]:
    """All sources that read the PCI bus found the same cards there, with the same drivers, each once."""
    functions = host.pci.need("the PCI bus")
    by_address = {device.address: device for device in functions}
    gpus = host.pci_gpus.need("the GPUs on the PCI bus")
    cards = host.fabric_cards.need("the fabric's cards on the PCI bus")
    devices = host.infiniband.need("the RDMA devices")
    interfaces = host.network.need("the network interfaces")
    skip_if(not functions, "there is no card on the PCI bus")
    twice = [(f"function {number}", one.address) for number, one in enumerate(functions)]
    yield from _doubles("PCI address", twice, host.pci.via)
    whole = [card for card in cards if not card.virtual]
    own: dict[str, Mapping[str, tuple[str, str]]] = {
        "gpu": {gpu.address: (gpu.device, gpu.driver) for gpu in gpus},
        "nvswitch": {card.address: (card.device, card.driver) for card in whole if card.kind == "nvswitch"},
        "ib": {card.address: (card.device, card.driver) for card in whole if card.kind == "infiniband"},
    }
    for kind, listed in own.items():
        seen = {one.address: (one.device, one.driver) for one in functions if one.kind == kind}
        for address in sorted(seen.keys() | listed.keys()):
            if seen.get(address) != listed.get(address):
                both = [_card(found.get(address)) for found in (seen, listed)]
                yield _against(
                    f"two readings of the PCI bus disagree on {kind} {address}: {both[0]}, and {both[1]}",
                    address,
                    (both[0], host.pci.via),
                    (both[1], f"{host.pci.via}, read again"),
                )
    yield from _users(devices, by_address, host.infiniband.via)
    for interface in interfaces:
        function = by_address.get(interface.pci)
        if function and interface.driver != function.driver:
            words = f"{interface.driver or 'none'} by {interface.name} and {function.driver or 'none'} by the bus"
            yield _against(f"the driver of {interface.pci} is {words}", interface.name, (words, host.network.via))
    for device in functions:
        if device.kind in ("gpu", "nvswitch") and device.vendor != _NVIDIA:
            words = f"{device.kind} of vendor {device.vendor or 'none'}"
            yield _against(f"{device.address} is a {words}", device.address, (words, host.pci.via))
    yield from _near(functions, by_address)


def _card(found: tuple[str, str] | None) -> str:
    return f"device {found[0]} with driver {found[1] or 'none'}" if found else "it is not there"


def _users(devices: Iterable[RdmaDevice], functions: Mapping[str, PciDevice], via: str) -> Iterator[Finding]:
    """An RDMA device names a function of the bus, and the driver that the bus names; its ports fit together."""
    there = {device.driver for device in devices if device.pci in functions}
    for device in devices:
        function = functions.get(device.pci)
        for wrong, words in (
            (
                function and device.driver != function.driver,
                f"its driver is {device.driver or 'none'}, and {(function and function.driver) or 'none'} by the bus",
            ),
            # a card whose driver has others on the bus is of a class that is listed there
            (
                device.pci and not function and not device.virtual and device.driver in there,
                f"it is at {device.pci}, where the PCI bus has no network adapter",
            ),
            (function and device.virtual, f"it is a virtual function, and {device.pci} is a whole one"),
            *_ports(device),
        ):
            if wrong:
                yield _against(f"{device.name}: {words}", device.name, (words, via))
    yield from _doubles("name", [(device.pci or device.name, device.name) for device in devices], via)


def _ports(device: RdmaDevice) -> Iterator[tuple[bool, str]]:
    ports = device.ports.value or ()
    numbers = [port.number for port in ports]
    yield numbers != list(range(1, len(ports) + 1)), f"its {len(ports)} ports have the numbers {numbers}"
    for port in ports:
        state, physical = port.state.value, port.physical.value
        odd = bool(device.pci) and state == "ACTIVE" and physical not in (None, "LinkUp")
        yield odd, f"port {port.number} is ACTIVE, and its link is {physical}"


def _near(functions: Iterable[PciDevice], by_address: Mapping[str, PciDevice]) -> Iterator[Finding]:
    """A function belongs to the NUMA node of the bridge above it."""
    for device in functions:
        bridge = by_address.get(device.above[0]) if device.above else None
        if bridge is None or device.numa.value is None or bridge.numa.value is None:
            continue
        if min(device.numa.value, bridge.numa.value) >= 0 and device.numa.value != bridge.numa.value:
            words = f"node {device.numa.value}, and the bridge {bridge.address} above it to node {bridge.numa.value}"
            message = f"{device.address} says that it belongs to NUMA {words}"
            yield warning(message, device.address, {words: device.numa.via}, _FIX)


def host_amounts_contradict(host: Host) -> Iterator[Finding]:
    """No part of a machine's memory, disks and processors is larger than the whole."""
    memory, processors = host.memory.need("the memory"), host.processors.need("the processors")
    told: list[tuple[str, float | None, float | None, str]] = [
        ("available memory", memory.available, memory.total, host.memory.via),
        ("swap in use", memory.swap_used, memory.swap, host.memory.via),
        ("free huge pages", memory.huge_free, memory.huge, host.memory.via),
        ("memory set aside for huge pages", memory.huge, memory.total, host.memory.via),
        ("online processors", processors.online, processors.present, host.processors.via),
        ("usable processors", processors.usable, processors.online, host.processors.via),
        ("free bytes of /dev/shm", host.shm_free.value, host.shm.need("the size of /dev/shm"), host.shm_free.via),
    ]
    host.shm_free.need("what is free in /dev/shm")
    for disk in host.disks.need("the disks"):
        told.append((f"free bytes of {disk.path}", disk.free.value, disk.total.value, disk.free.via))
        told.append((f"free inodes of {disk.path}", disk.inodes_free.value, disk.inodes.value, disk.inodes_free.via))
    for node in host.numa.need("the NUMA nodes"):
        told.append((f"free memory of NUMA node {node.number}", node.free, node.memory, host.numa.via))
        told.append((f"free large blocks of NUMA node {node.number}", node.free_large, node.free, host.numa.via))
    for what, part, whole, via in told:
        if part is not None and whole is not None and part > max(whole, 0):
            yield _against(f"{part} {what} are more than all there are, {whole}", what, (f"{part} of {whole}", via))
