"""Which GPUs a run is given, and by which labels an image says what it is of: all that `envkit run` asks of this room,
apart from what examines an image, whose imports take as long as the rest of a run."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from envkit.engine import Engine
from envkit.errors import UsageError, one_line

LOCK_LABEL = "io.envkit.lock"
FLAVOR_LABEL = "io.envkit.flavor"

_GPU = re.compile(r"0|[1-9][0-9]{0,3}|(GPU|MIG)-[0-9A-Za-z/-]+")


def default_gpus(request: str) -> tuple[str, ...]:
    """The GPUs to show: "all", "none", indexes (or UUIDs) with commas, or "auto": all if this machine has the driver's
    node.  Raises UsageError for anything else."""
    if request == "auto":
        return ("all",) if os.path.exists("/dev/nvidiactl") else ()
    if request in ("all", "none"):
        return ("all",) if request == "all" else ()
    names = tuple(part.strip() for part in request.split(",") if part.strip())
    for name in names or (request,):
        if not _GPU.fullmatch(name):
            raise UsageError(f"`{one_line(name)}` is not a GPU", "--gpus takes auto, all, none, or indexes such as 0,1")
        if names.count(name) > 1:
            raise UsageError(f"GPU {name} is named twice", "name each GPU once")
    return names


def are_here(gpus: tuple[str, ...], engine: Engine | None = None) -> None:
    """Raises UsageError where this machine does not have the GPUs that ``default_gpus`` gave.

    What an ``engine`` on another machine can give is not known here.  Without an engine, "all" may be none: the checks
    say what a process that must see GPUs does not see.
    """
    count = _gpus_here()
    if not gpus or count is None or (engine is not None and engine.elsewhere()):
        return
    if count == 0 and (engine is not None or gpus != ("all",)):
        named = "GPUs" if gpus == ("all",) else f"GPU {', '.join(gpus)}"
        raise UsageError(
            f"{named} cannot be used: this machine has no NVIDIA GPU",
            "leave --gpus out to run without one; if there should be one, `envkit doctor` says what is wrong",
        )
    for name in gpus:
        if name.isdecimal() and int(name) >= count:
            has = "1 GPU, numbered 0" if count == 1 else f"{count} GPUs, numbered 0 to {count - 1}"
            raise UsageError(f"there is no GPU {name}: this machine has {has}", "name one of those, or `--gpus all`")


def _gpus_here() -> int | None:
    """How many GPUs the driver shows here, None where it shows them in another way (WSL's /dev/dxg)."""
    nodes = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia[0-9]+", name)]
    with suppress(OSError):
        return max(len(nodes), len(os.listdir("/proc/driver/nvidia/gpus")))
    return None if not nodes and os.path.exists("/dev/dxg") else len(nodes)
