"""What a verdict stands on, in the words that every format uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envkit.model import Coverage
from envkit.report.text import visible


def grounds(on: Coverage) -> str:
    """``files, CPU and 2 GPUs (NVIDIA H100 80GB HBM3)``; empty where nothing is known of it."""
    said = ["files"] if on.files else []
    said += ["CPU"] if on.cpu else []
    if on.gpus:
        names = ", ".join(dict.fromkeys(" ".join(visible(name).split()) for name in on.gpus))
        said.append(f"{len(on.gpus)} GPU{'s' if len(on.gpus) > 1 else ''} ({names})")
    return " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))


def behind(word: str, on: Coverage) -> str:
    """The verdict's word with its grounds: ``PASS on files and CPU``."""
    said = grounds(on)
    return f"{word} on {said}" if said else word


def left(on: Coverage) -> str:
    """What no GPU had a part in: ``no GPU was here, 23 GPU tests were not run``; empty where nothing is left."""
    said = [on.no_gpu.value] if on.no_gpu else []
    if on.gpus and not on.computed:
        said.append("nothing was computed on a GPU")
    if on.left:
        said.append("1 GPU test was not run" if on.left == 1 else f"{on.left} GPU tests were not run")
    return ", ".join(said)


def plain(on: Coverage) -> Mapping[str, Any]:
    """The coverage as JSON; ``gpu`` is "computed", "seen" or "none", ``no_gpu`` why it is none, if that is told."""
    return {
        "files": on.files,
        "cpu": on.cpu,
        "gpu": "computed" if on.computed else "seen" if on.gpus else "none",
        "gpus": list(on.gpus),
        "gpu_tests_not_run": on.left,
        "no_gpu": on.no_gpu.value if on.no_gpu else "",
    }
