"""What is asked of equal things: that each tells what the others tell, and that they differ only where they may.

What a difference means is told field by field in ``twins.jsonl``.  GPUs are twins within a product, and only if all of
them are divided into MIG instances, or none is: in MIG mode the driver does not tell the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from envkit.judging.checks import _pci
from envkit.judging.checks._host import AGAIN, SET_ASIDE, is_workstation, need_driver, nvml_answers
from envkit.judging.checks._outcomes import found, skip_if
from envkit.judging.checks._twins import Difference, Row, compare, severity
from envkit.model import Finding
from envkit.subjects import Host
from envkit.subjects.host import Gpu, PciDevice
from envkit.subjects.host.fabric import RdmaDevice

_SHOWN = 6  # fields or things that a message names

Group = tuple[
    str, str, Mapping[str, object], bool
]  # the kind, what the things are, the things by name, and their boards
Groups = Callable[[Host], Iterable[Group]]


def _products(host: Host) -> dict[str, list[Gpu]]:
    """The GPUs that answer, by product; one without a name is another check's."""
    products: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in nvml_answers(host).gpus:
        if gpu.name.value is not None and gpu.state.value in (None, "answers"):
            products[gpu.name.value].append(gpu)
    return products


def _of_gpus(host: Host) -> Iterator[Group]:
    need_driver(host)
    for product, gpus in _products(host).items():
        boards = not is_workstation(gpus[0])
        divided = [gpu for gpu in gpus if gpu.mig.value == "on"]
        whole = [gpu for gpu in gpus if gpu not in divided]
        for own in (whole, divided):
            yield "gpu", product, {f"GPU {gpu.index}": gpu for gpu in own}, boards
        links = {
            f"NVLink {link.link} of GPU {gpu.index}": link
            for gpu in whole
            for link in gpu.links.value or ()
            if link.active
        }
        yield "link", f"NVLinks of {product}", links, True
        if divided and whole:  # of which only the modes can be compared
            yield "gpu", product, {f"GPU {gpu.index}": Gpu(gpu.index, mig=gpu.mig) for gpu in gpus}, boards


def _of_cards(host: Host) -> Iterator[Group]:
    functions: dict[tuple[object, ...], dict[str, Any]] = defaultdict(dict)
    for device in _pci.bus(host).values():
        depth = len(device.above) if device.kind == "bridge" else 0
        if device.driver not in SET_ASIDE:
            functions[device.kind, device.vendor, device.device, depth][_pci.named(device)] = device
    for (kind, vendor, device_id, _), own in functions.items():
        words = f"PCI functions {vendor}:{device_id}"
        yield "bridge" if kind == "bridge" else "function", words, own, True
    yield from _of_rdma(host.infiniband.need("the RDMA devices"), _pci.bus(host))


def _of_rdma(devices: Iterable[RdmaDevice], bus: Mapping[str, PciDevice]) -> Iterator[Group]:
    chips: dict[tuple[str, str], list[RdmaDevice]] = defaultdict(list)
    for device in devices:
        if device.pci and not device.virtual:
            chip = bus[device.pci].device if device.pci in bus else ""
            chips[device.driver, chip].append(device)
    for (driver, chip), alike in chips.items():
        usual = Counter(one.board.value for one in alike if one.board.value).most_common(1)
        boards: dict[str, list[RdmaDevice]] = defaultdict(list)
        for device in alike:  # one that does not tell its board is held to be of the usual one
            boards[device.board.value or (usual[0][0] if usual else "")].append(device)
        for board, own in boards.items():
            words = f"RDMA devices {driver} {chip} {board}".rstrip()
            yield "rdma device", words, {device.name: device for device in own}, True
            layers: dict[str, dict[str, Any]] = defaultdict(dict)
            for device in own:
                for port in device.ports.value or ():
                    layers[port.layer.value or "InfiniBand"][f"{device.name} port {port.number}"] = port
            yield from (("port", f"ports of {words}", ports, True) for ports in layers.values())


def _twins(host: Host, groups: Groups) -> list[Group]:
    """The groups in which there is something to compare; skips if there is none."""
    several = [group for group in groups(host) if len(group[2]) > 1]
    skip_if(not several, "nothing here is there twice")
    return several


def _silent(host: Host, groups: Groups) -> Iterator[Finding]:
    for kind, words, things, boards in _twins(host, groups):
        lacks, _ = compare(kind, things, boards)
        for name, missing in lacks.items():
            yield _untold(name, words, len(things), missing)


def _untold(name: str, words: str, count: int, missing: Mapping[str, tuple[Row, str]]) -> Finding:
    more = len(missing) - _SHOWN
    shown = ", ".join(f"{at} ({why})" for at, (_, why) in list(missing.items())[:_SHOWN])
    worst = max(severity(row.silent) for row, _ in missing.values())
    return found(
        f"{name} of {count} equal {words} does not tell what another one tells: {shown}"
        + (f", and {more} more" if more > 0 else ""),
        name,
        worst,
        f"what is not told was not examined: read `dmesg`, reset or reseat it, and let it be replaced if it stays "
        f"silent; {AGAIN}",
        {at: why for at, (_, why) in missing.items()},
    )


def _differing(host: Host, groups: Groups) -> Iterator[Finding]:
    for kind, words, things, boards in _twins(host, groups):
        _, differences = compare(kind, things, boards)
        for difference in differences:
            yield _unlike(words, difference)


def _unlike(words: str, difference: Difference) -> Finding:
    row, values = difference.row, difference.values
    usual = max(values, key=lambda value: len(values[value]))
    rare = {value: names for value, names in values.items() if value != usual}
    named = "; ".join(f"{value} at {_names(names)}" for value, names in rare.items())
    return found(
        f"{difference.path} of equal {words} differs: {named}, and {usual} at {_names(values[usual])}",
        next(iter(chain.from_iterable(rare.values()))),
        severity(row.severity),
        f"{row.reason}: bring all to one state, or know why one differs; {AGAIN}",
        {f"{value} at {_names(names)}": difference.path for value, names in values.items()},
    )


def _names(names: Iterable[str]) -> str:
    own = list(names)
    more = len(own) - _SHOWN
    return ", ".join(own[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def host_gpu_silent_beside_twins(host: Host) -> Iterator[Finding]:
    """Every GPU and NVLink tells whatever an equal one tells."""
    yield from _silent(host, _of_gpus)


def host_gpu_twins_differ(host: Host) -> Iterator[Finding]:
    """Equal GPUs and NVLinks differ only in what may differ."""
    yield from _differing(host, _of_gpus)


def host_card_silent_beside_twins(host: Host) -> Iterator[Finding]:
    """Every network adapter, NVSwitch, PCI function of a GPU and bridge tells whatever an equal one tells."""
    yield from _silent(host, _of_cards)


def host_card_twins_differ(host: Host) -> Iterator[Finding]:
    """Equal network adapters, NVSwitches and PCI functions of GPUs differ only in what may differ."""
    yield from _differing(host, _of_cards)
