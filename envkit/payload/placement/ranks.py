"""Which GPU each rank of a distributed job works on, exchanged through files in a folder that all ranks share."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

_TICK_S = 0.05


def mine(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """What this rank says of itself: its numbers, and each GPU that holds its parameters, or its current one.

    A GPU is named by its UUID, or by its PCI address where torch does not tell that.  Numbers are None where the
    launcher's variables (RANK, LOCAL_RANK, WORLD_SIZE) are not set.
    """
    import torch

    used = sorted({entry["device"] for entry in groups if entry["what"] == "parameters" and "cuda" in entry["device"]})
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not used and seen:
        used = [f"cuda:{torch.cuda.current_device()}"]
    return {
        "rank": number("RANK"),
        "local_rank": number("LOCAL_RANK"),
        "world": number("WORLD_SIZE"),
        "host": socket.gethostname(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "seen": seen,
        "gpus": [{"device": device, "id": _identity(device, seen)} for device in used],
    }


def number(name: str) -> int | None:
    """An environment variable as a number, None where it is not set or is none."""
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


def _identity(device: str, seen: int) -> str:
    import torch

    index = int(device.partition(":")[2] or 0)
    if index >= seen:
        return ""  # pretended
    properties = torch.cuda.get_device_properties(index)
    if getattr(properties, "uuid", None) is not None:
        return str(properties.uuid)
    if hasattr(properties, "pci_bus_id"):
        return f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}"
    return ""


def exchange(own: dict[str, Any], folder: str, budget_s: float) -> list[dict[str, Any]]:
    """Leaves ``own`` in ``folder`` and gives what every rank left, sorted; within ``budget_s`` seconds.

    A rank that did not come in time is missing.  The folder must be this job's alone: a file of an earlier run would
    be read.  Raises OSError where the folder cannot be written.
    """
    rank, world = own["rank"] or 0, own["world"] or 1
    target = os.path.join(folder, f"rank-{rank}.json")
    with open(target + ".part", "w", encoding="utf-8") as file:
        json.dump(own, file)
    os.replace(target + ".part", target)
    deadline = time.monotonic() + budget_s
    while True:
        told = []
        for each in range(world):
            try:
                with open(os.path.join(folder, f"rank-{each}.json"), encoding="utf-8") as file:
                    told.append(json.load(file))
            except (FileNotFoundError, ValueError):
                continue
        if len(told) == world or time.monotonic() >= deadline:
            return told
        time.sleep(_TICK_S)
