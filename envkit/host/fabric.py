"""NVSwitches and what serves them, by /sys, /proc and the daemons' own files.

The vital product data of a network card is read through its firmware, 4 bytes at a time: that source is slow, may
hang, and has a group of its own.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

from envkit.host.pci import BUS, driver_of, functions, kind_of
from envkit.host.root import HostRoot, Source, by_name, short
from envkit.model import Observed
from envkit.subjects.host.fabric import CardKind, FabricCard, FabricDaemons, FabricLog, Imex

_NVIDIA = "0x10de"
_AMAZON = "0x1d0f"

# /proc/PID/comm holds the first 15 letters of a program's name (TASK_COMM_LEN, linux/sched.h)
_COMM = 15
_DAEMONS = ("nv-fabricmanager", "nvlsm", "nvidia-imex", "opensm")

_MANAGES = b"SMDL=SW_MNG"  # what nvidia-fabricmanager-start.sh looks for in the data of each RDMA device
_VPD_MOST = 4096

_TAIL = 256 << 10  # bytes at the end of the fabric manager's log that are read
LINES_MOST = 20
_LINE_MOST = 400
_MANAGER_CONFIG = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
_MANAGER_LOG = "/var/log/fabricmanager.log"
_STARTED = re.compile(r"log initializing at", re.IGNORECASE)
_COMPLAINT = re.compile(r"\[(ERROR|CRITICAL|FATAL)\]|detected NVSwitch (non-)?fatal error", re.IGNORECASE)

_IMEX_CONFIG = "etc/nvidia-imex/config.cfg"
_IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
_IMEX_CHANNELS = "nvidia-caps-imex-channels"


def _kind(vendor: str, device: str, code: str) -> CardKind | None:
    if vendor == _NVIDIA and code.startswith("0x0680"):  # "other bridge"
        return "nvswitch"
    if code.startswith("0x0207"):
        return "infiniband"
    # Amazon gives its Elastic Fabric Adapters 0xefa0, 0xefa1, ... (linux, drivers/infiniband/hw/efa/efa_main.c)
    return "efa" if vendor == _AMAZON and device.startswith("0xefa") else None


def fabric_cards(place: HostRoot) -> Observed[tuple[FabricCard, ...]]:
    """NVSwitches, InfiniBand cards and Elastic Fabric Adapters on the PCI bus."""
    found = []
    try:
        for address, vendor, code in functions(place):
            device = place.word(f"{BUS}/{address}/device")
            if kind := _kind(vendor, device, code):
                path = f"{BUS}/{address}"
                virtual = place.exists(f"{path}/physfn")
                found.append(FabricCard(address, kind, device, driver_of(place, path), virtual))
    except OSError as error:
        return Observed.lost(f"/{BUS}: {short(error)}", f"/{BUS}")
    return Observed.of(tuple(found), f"/{BUS}")


def _vital_data(place: HostRoot, address: str) -> bytes:
    """The large resources of a function's vital product data (PCI Local Bus Specification, appendix I)."""
    data = b""
    try:
        with (place.path(f"{BUS}/{address}/vpd")).open("rb", buffering=0) as file:
            while len(data) < _VPD_MOST:
                head = file.read(3)
                if len(head) < 3 or not head[0] & 0x80:  # the end tag is a small resource
                    break
                data += file.read(min(int.from_bytes(head[1:], "little"), _VPD_MOST))
    except FileNotFoundError:
        pass  # a card without such data manages nothing
    return data


def switch_managers(place: HostRoot) -> Observed[tuple[str, ...]]:
    """The addresses of network cards that manage NVSwitches; root alone may read what tells them.

    Without an NVIDIA GPU, and where NVSwitches are on the bus themselves, no card is asked.
    """
    via = f"/{BUS}/*/vpd"
    cards = fabric_cards(place)
    if cards.value is None:
        return cards.absence(via)
    cabled = [card.address for card in cards.value if card.kind == "infiniband" and not card.virtual]
    gpus = any(kind_of(vendor, code) == "gpu" for _, vendor, code in functions(place))
    if not gpus or not cabled or any(card.kind == "nvswitch" for card in cards.value):
        return Observed.of((), via)
    try:
        with ThreadPoolExecutor(min(len(cabled), 32)) as pool:
            said = list(pool.map(lambda address: _vital_data(place, address), cabled))
    except OSError as error:
        return Observed.lost(f"vital product data: {short(error)}", via)
    return Observed.of(tuple(card for card, data in zip(cabled, said, strict=True) if _MANAGES in data), via)


def fabric_daemons(place: HostRoot) -> Observed[FabricDaemons]:
    """Which of the fabric's daemons are among the processes; kthreadd shows whether these are the machine's."""
    names = {name[:_COMM]: name for name in _DAEMONS}
    running = set()
    whole = False
    for pid in place.names("proc"):
        if pid.isdecimal():
            try:
                comm = place.word(f"proc/{pid}/comm")
            except OSError:  # it ended, or hidepid keeps it from us: then kthreadd is hidden too
                continue
            whole = whole or (pid == "2" and comm == "kthreadd")
            running |= {names[comm]} if comm in names else set()
    return Observed.of(FabricDaemons(tuple(sorted(running)), whole), "/proc/*/comm")


def settings(text: str) -> dict[str, str]:
    """The NAME=VALUE lines of a configuration file."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def _configured(place: HostRoot, name: str) -> dict[str, str]:
    try:
        return settings(place.word(name))
    except (FileNotFoundError, NotADirectoryError):
        return {}


def parse_log(text: str) -> FabricLog:
    """The complaints in the fabric manager's log since it last started.

    Its lines are "[Feb 25 2025 13:59:45] [ERROR] [tid 1803] ...".
    """
    found: list[str] = []
    for line in text.splitlines():
        if _STARTED.search(line):
            found = []
        elif _COMPLAINT.search(line):
            found.append(line.strip()[:_LINE_MOST])
    return FabricLog(True, tuple(found[-LINES_MOST:]), len(found))


def fabric_log(place: HostRoot) -> Observed[FabricLog]:
    """The last part of the fabric manager's log; lost where it writes to syslog."""
    config = _configured(place, _MANAGER_CONFIG)
    if config.get("LOG_USE_SYSLOG") == "1":
        return Observed.lost("the fabric manager writes to syslog", f"/{_MANAGER_CONFIG}")
    path = config.get("LOG_FILE_NAME") or _MANAGER_LOG
    try:
        with place.path(path.lstrip("/")).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            text = file.read(_TAIL).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return Observed.of(FabricLog(False), path)
    except OSError as error:
        return Observed.lost(f"{path}: {short(error)}", path)
    return Observed.of(parse_log(text), path)


def imex(place: HostRoot) -> Observed[Imex]:
    """The list of nodes and the channels of nvidia-imex."""
    path = _configured(place, _IMEX_CONFIG).get("IMEX_NODE_CONFIG_FILE") or _IMEX_NODES
    listed = place.exists(path.lstrip("/"))
    lines = place.word(path.lstrip("/")).splitlines() if listed else []
    nodes = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    made = place.exists(f"dev/{_IMEX_CHANNELS}")
    channels = tuple(f"/dev/{_IMEX_CHANNELS}/{name}" for name in place.names(f"dev/{_IMEX_CHANNELS}")) if made else ()
    return Observed.of(Imex(path, listed, nodes, channels), path)


SOURCES = by_name(fabric_cards, imex, fabric_log, fabric_daemons)
VITAL: dict[str, Source] = {"switch_managers": switch_managers}
