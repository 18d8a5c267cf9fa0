"""Opens the driver's device files, one after the other, for an open can hang in the driver."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envkit.host.root import HostRoot, Source, short
from envkit.model import Observed
from envkit.payload.isolate import Ending
from envkit.subjects.host import DeviceNode

# /dev/nvidia0 ...; nvidiactl and nvidia-uvm are what CUDA opens besides, nvidia-uvm-tools what debuggers and profilers
# do; /dev/dxg is the GPU of WSL
_NODE = re.compile(r"nvidia[0-9]+|nvidiactl|nvidia-uvm(-tools)?|nvidia-modeset|dxg")


def paths(place: HostRoot) -> list[str]:
    """The driver's device files, as in the listing of /dev."""
    return [f"/dev/{name}" for name in place.names("dev") if _NODE.fullmatch(name)]


def try_open(path: Path) -> str:
    """Why the file cannot be opened as a device for reading and writing; empty if it can."""
    try:
        if not stat.S_ISCHR(path.stat().st_mode):
            return "it is not a character device"
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return short(error)
    return ""


def numbers(path: Path) -> tuple[int, int]:
    """Major and minor number of a character device, -1 and -1 for anything else."""
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else (-1, -1)


KIND = Observed[DeviceNode]


def sources(place: HostRoot) -> dict[str, Source]:
    """One source a device file, so that a hang names its file."""
    try:
        found = paths(place)
    except OSError as error:
        why = f"/dev: {short(error)}"
        return {"": lambda place: Observed.lost(why)}
    return {path: _opener(path) for path in found}


def _opener(shown: str) -> Source:
    def opened(place: HostRoot) -> Observed[DeviceNode]:
        path = place.path(shown)
        return Observed.of(DeviceNode(shown, try_open(path), *numbers(path)), "open")

    return opened


def join(found: Mapping[str, Observed[Any]], ending: Ending | None) -> dict[str, Observed[Any]]:
    """The nodes in one; the first without a result is the one whose open hung or killed the child."""
    if "" in found:
        return {"device_nodes": found[""]}
    nodes: list[DeviceNode] = []
    blamed = False
    for path, seen in found.items():
        if seen.value is not None:
            nodes.append(seen.value)
        elif blamed:
            nodes.append(DeviceNode(path, "it was not tried, for another one's opening ended the try"))
        else:
            nodes.append(DeviceNode(path, f"its opening did not end: {seen.missing}"))
            blamed = True
    return {"device_nodes": Observed.of(tuple(nodes), "open")}
