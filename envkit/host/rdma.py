"""RDMA devices and what lets GPUs use them, by /sys, /dev and configuration files.

Counters are asked of the cards' firmware, and a home directory may be on the network: both can hang.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

from envkit.host.cpu import parse_uptime
from envkit.host.fabric import settings
from envkit.host.pci import ADDRESS, driver_of
from envkit.host.root import HostRoot, Source, by_name, short
from envkit.model import Observed
from envkit.subjects.host.fabric import Cufile, Gid, LinkLayer, PortState, RdmaDevice, RdmaPort

T = TypeVar("T")

_CLASS = "sys/class/infiniband"
_GIDS_MOST = 64  # entries in use stand at the beginning: two for each address of the interface
_MODULES = (
    *("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem", "gdrdrv", "nvidia_fs"),
    *("ib_core", "ib_uverbs", "ib_umad", "mlx5_core", "mlx5_ib", "mlx4_core", "mlx4_ib", "efa", "bnxt_re", "irdma"),
)
_COMMENTED = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def parse_word(text: str) -> str:
    """The word of "4: ACTIVE"; raises ValueError on anything else."""
    found = re.fullmatch(r"[0-9]+: ([A-Za-z_ ]{1,40})", text)
    if not found:
        raise ValueError(f"`{text[:40]}` is no number and word")
    return found[1]


_LAYERS: Mapping[str, LinkLayer] = {layer: layer for layer in get_args(LinkLayer)}
_STATES: Mapping[str, PortState] = {state: state for state in get_args(PortState)}


def parse_layer(text: str) -> LinkLayer:
    """A link layer; raises ValueError on what the kernel does not write."""
    if text not in _LAYERS:
        raise ValueError(f"`{text[:40]}` is no link layer")
    return _LAYERS[text]


def parse_state(text: str) -> PortState:
    """The state of "4: ACTIVE"; raises ValueError on anything else."""
    word = parse_word(text)
    if word not in _STATES:
        raise ValueError(f"`{word}` is no state of a port")
    return _STATES[word]


def parse_rate(text: str) -> float:
    """The Gb/s of "400 Gb/sec (4X NDR)"; raises ValueError on anything else."""
    found = re.match(r"([0-9]{1,5}(?:\.[0-9]{1,2})?) Gb/sec", text)
    if not found:
        raise ValueError(f"`{text[:40]}` is no rate")
    return float(found[1])


def _read(place: HostRoot, name: str, parse: Callable[[str], T]) -> Observed[T]:
    try:
        return Observed.of(parse(place.word(name)), f"/{name}")
    except OSError as error:
        return Observed.lost(f"/{name}: {short(error)}", f"/{name}")
    except (ValueError, IndexError) as error:
        return Observed.lost(f"/{name}: {error}", f"/{name}")


def _told(place: HostRoot, name: str) -> Observed[str]:
    """A word that not every driver tells: unsupported where there is none."""
    try:
        word = place.word(name)
    except FileNotFoundError:
        word = ""
    except OSError as error:
        return Observed.lost(f"/{name}: {short(error)}", f"/{name}")
    return Observed.of(word[:80], f"/{name}") if word else Observed.unsupported(f"/{name}")


def _counters(place: HostRoot, port: str) -> Observed[Mapping[str, int]]:
    """Both tables of counters; what a driver does not count it calls "N/A" or answers with EINVAL."""
    found: dict[str, int] = {}
    tables = [table for table in ("counters", "hw_counters") if place.exists(f"{port}/{table}")]
    via = ", ".join(f"/{port}/{table}" for table in tables) or f"/{port}"
    if not tables:
        return Observed.unsupported(via)
    for table in tables:
        for name in place.names(f"{port}/{table}"):
            try:
                word = place.word(f"{port}/{table}/{name}")
            except OSError:
                continue
            if word.isdecimal() and len(word) <= 20:
                found[name] = int(word)
    return Observed.of(found, via) if found else Observed.lost("no counter could be read", via)


def _gids(place: HostRoot, port: str) -> Observed[tuple[Gid, ...]]:
    """The entries of the GID table in use; an empty one has no type, and reading that is EINVAL."""
    found = []
    listing = f"{port}/gid_attrs/types"
    try:
        names = [name for name in place.names(listing) if name.isdecimal()]
    except OSError as error:
        return Observed.lost(f"/{listing}: {short(error)}", f"/{listing}")
    for name in sorted(names, key=int)[:_GIDS_MOST]:
        try:
            kind, address = place.word(f"{listing}/{name}"), place.word(f"{port}/gids/{name}")
        except OSError:
            continue
        if address.strip("0:"):
            found.append(Gid(int(name), kind[:20], address[:45]))
    return Observed.of(tuple(found), f"/{listing}")


def _port(place: HostRoot, device: str, number: int, umads: Observed[tuple[tuple[str, int], ...]]) -> RdmaPort:
    path = f"{_CLASS}/{device}/ports/{number}"
    layer = _read(place, f"{path}/link_layer", parse_layer)
    return RdmaPort(
        number,
        layer,
        _read(place, f"{path}/state", parse_state),
        _read(place, f"{path}/phys_state", parse_word),
        _read(place, f"{path}/rate", parse_rate),
        _counters(place, path),
        _gids(place, path) if layer.value == "Ethernet" else Observed.unsupported(f"/{path}/link_layer"),
        umads.absence() if umads.value is None else Observed.of((device, number) in umads.value, umads.via),
    )


def _umads(place: HostRoot) -> Observed[tuple[tuple[str, int], ...]]:
    """The ports that have a device for management datagrams; without the module there is no such class."""
    listing = "sys/class/infiniband_mad"
    try:
        if not place.exists(listing):
            return Observed.of((), f"/{listing}")
        names = [name for name in place.names(listing) if name.startswith("umad")]
        ports = ((place.word(f"{listing}/{name}/ibdev"), int(place.word(f"{listing}/{name}/port"))) for name in names)
        return Observed.of(tuple(ports), f"/{listing}")
    except (OSError, ValueError) as error:
        return Observed.lost(f"/{listing}: {short(error)}", f"/{listing}")


def node(place: HostRoot, name: str) -> str:
    """Whether this process may use the device node /dev/``name``: "usable", "absent" or why it may not."""
    if not place.exists(f"dev/{name}"):
        return "absent"
    return "usable" if os.access(place.path(f"dev/{name}"), os.R_OK | os.W_OK) else "permission denied"


def _verbs(place: HostRoot) -> Observed[Mapping[str, str]]:
    """How each RDMA device's node for programs stands."""
    listing = "sys/class/infiniband_verbs"
    found: dict[str, str] = {}
    try:
        for name in place.names(listing) if place.exists(listing) else ():
            if name.startswith("uverbs"):
                stands = node(place, f"infiniband/{name}")
                found[place.word(f"{listing}/{name}/ibdev")] = "no node" if stands == "absent" else stands
    except OSError as error:
        return Observed.lost(f"/{listing}: {short(error)}", f"/{listing}")
    return Observed.of(found, f"/{listing}")


def infiniband(place: HostRoot) -> Observed[tuple[RdmaDevice, ...]]:
    """The RDMA devices; without the directory the kernel has none."""
    if not place.exists("sys/class"):
        return Observed.lost("/sys/class is not there")
    if not place.exists(_CLASS):
        return Observed.of((), f"/{_CLASS}")
    umads, verbs = _umads(place), _verbs(place)
    uptime = _read(place, "proc/uptime", parse_uptime)
    return Observed.of(tuple(_device(place, name, umads, verbs, uptime) for name in place.names(_CLASS)), f"/{_CLASS}")


def _device(
    place: HostRoot,
    name: str,
    umads: Observed[tuple[tuple[str, int], ...]],
    verbs: Observed[Mapping[str, str]],
    uptime: Observed[float],
) -> RdmaDevice:
    path = f"{_CLASS}/{name}"
    address = os.path.realpath(place.path(f"{path}/device")).rsplit("/", 1)[-1]
    on_bus = ADDRESS.fullmatch(address) is not None
    ports: Observed[tuple[RdmaPort, ...]]
    try:
        numbers = sorted(int(number) for number in place.names(f"{path}/ports") if number.isdecimal())
        ports = Observed.of(tuple(_port(place, name, number, umads) for number in numbers), f"/{path}/ports")
    except OSError as error:
        ports = Observed.lost(f"/{path}/ports: {short(error)}", f"/{path}/ports")
    return RdmaDevice(
        name,
        address if on_bus else "",
        driver_of(place, f"{path}/device") if on_bus else "",
        on_bus and place.exists(f"{path}/device/physfn"),
        place.names(f"{path}/device/net") if on_bus and place.exists(f"{path}/device/net") else (),
        _told(place, f"{path}/board_id"),
        _told(place, f"{path}/fw_ver"),
        verbs.absence() if verbs.value is None else Observed.of(verbs.value.get(name, "no class device"), verbs.via),
        uptime,
        ports,
    )


def rdma_modules(place: HostRoot) -> Observed[tuple[str, ...]]:
    """Which kernel modules of RDMA and GPUDirect are loaded; one that is built in counts as loaded."""
    names = set(place.names("sys/module"))
    return Observed.of(tuple(name for name in _MODULES if name in names), "/sys/module")


def parse_cufile(path: str, text: str) -> Cufile:
    """What cuFile's configuration says; it is JSON with comments."""
    try:
        data: Any = json.loads(_COMMENTED.sub(lambda found: found[1] or "", text))
    except (ValueError, RecursionError) as error:
        return Cufile(path, error=str(error))
    properties = data.get("properties") if isinstance(data, dict) else None
    if not isinstance(properties, dict):
        return Cufile(path, error="it has no object `properties`")
    said = [properties.get(name) for name in ("allow_compat_mode", "use_pci_p2pdma")]
    compatible, p2pdma = (value if isinstance(value, bool) else None for value in said)
    return Cufile(path, compatible=compatible, p2pdma=p2pdma)


def cufile(place: HostRoot) -> Observed[Cufile]:
    """cuFile's configuration file, where CUFILE_ENV_PATH_JSON or the default says it is."""
    path = place.environ.get("CUFILE_ENV_PATH_JSON") or "/etc/cufile.json"
    if not place.exists(path.lstrip("/")):
        return Observed.of(Cufile(path, present=False), path)
    seen = place.text(path.lstrip("/"))
    if seen.value is None:
        return seen.absence(path)
    return Observed.of(parse_cufile(path, seen.value), path)


def nccl_conf(place: HostRoot) -> Observed[Mapping[str, str]]:
    """What NCCL's files set, the user's over the machine's (NCCL documentation, "Environment Variables")."""
    user = place.environ.get("NCCL_CONF_FILE")
    if not user and place.environ.get("HOME"):
        user = f"{place.environ['HOME']}/.nccl.conf"
    paths = ["/etc/nccl.conf", *([user] if user else [])]
    found: dict[str, str] = {}
    for path in paths:
        if place.exists(path.lstrip("/")):
            seen = place.text(path.lstrip("/"))
            if seen.value is None:
                return seen.absence(path)
            found |= {name: value for name, value in settings(seen.value).items() if name.startswith("NCCL_")}
    return Observed.of(found, ", ".join(paths))


SOURCES = by_name(rdma_modules, infiniband)
CONFIGURED: dict[str, Source] = {
    "gdrdrv": lambda place: Observed.of(node(place, "gdrdrv"), "/dev/gdrdrv"),
    **by_name(cufile, nccl_conf),
}
