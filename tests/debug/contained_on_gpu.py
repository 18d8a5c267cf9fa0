"""`envkit debug --image` on a machine with a GPU: each rung in containers of its own, one container at a time.

``python tests/debug/contained_on_gpu.py --image NAME --out evidence.json`` with a Python that holds what envkit needs,
under Podman or, with ``--engine docker``, under Docker Engine; ``--width 3`` runs three rungs side by side.
The image has Python 3 and the tools; what it lacks of torch and the CUDA toolkit is mounted (``--mount
SOURCE:TARGET``).  It writes its file after each rung.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from served_on_gpu import HERE, PROGRAM, ROOT, asked, recorded

CRASHES = "import ctypes, torch; torch.ones(1).cuda(); ctypes.string_at(0)"
HANGS = "import torch, threading; torch.ones(1).cuda(); threading.Event().wait()"
BUSY = "import torch\nx = torch.ones(4096, 4096).cuda()\nwhile True: float((x @ x).sum())"
_HUNG = ["--stall-timeout", "6", "--stage-timeout", "40"]


def own(name: str, kind: str) -> list[str]:
    """A program of this folder."""
    return [str(HERE / f"{name}.py"), kind]


RUNGS: dict[str, tuple[list[str], list[str]]] = {  # options, and what Python is given
    "ladder": ([], own("oob", "fault")),
    "core": (["--only", "core-dump", "--only", "launches"], own("oob", "fault")),
    "assertion": ([], [str(PROGRAM), "labels", "fault"]),
    "isolated": (
        ["--stage-timeout", "12"],
        ["-I", "-c", HANGS],
    ),  # a Python without the companion: py-spy alone has its stack
    "hang": (_HUNG, ["-c", HANGS]),
    "clean": ([], own("oob", "clean")),
    "shared": ([], own("missing_barrier", "fault")),
    "unwritten": ([], own("uninitialized", "fault")),
    "placement": ([], [str(PROGRAM), "positions", "fault"]),
    "crash": ([], ["-c", CRASHES]),
    "memory": (["--memory"], [str(PROGRAM), "requests", "fault"]),
    "slow": (["--slow"], [str(PROGRAM), "noise", "fault"]),
    "misaligned": (["--only", "core-dump", "--only", "launches"], own("misaligned", "fault")),
    "busy": (["--stage-timeout", "12"], ["-c", BUSY]),
    "profiled": (["--stage-timeout", "50"], ["-c", BUSY]),  # as long as nsys takes to write its report
    # the packages and libraries of the next are mounted, and what is uncached is for an image without compute-sanitizer
    "package": ([], [str(HERE / "package.py"), "cpu", "/made/layer.pt2"]),
    "package-clean": (["--only", "as-is"], [str(HERE / "package.py"), "load", "/made/layer.pt2"]),
    "tracked": ([], [str(HERE / "tracked.py"), "/made/tracked.so", "fault"]),
    "tracked-clean": (["--only", "as-is"], [str(HERE / "tracked.py"), "/made/tracked.so", "clean"]),
    "uncached": ([], own("uncached", "fault")),
    "uncached-clean": ([], own("uncached", "clean")),
}


def contained(engine: str, image: str, mounts: list[str], name: str, folder: Path, limit_s: float) -> dict[str, Any]:
    """One rung in containers of an image."""
    options, what = RUNGS[name]
    where = ["--image", image, "--engine", engine, "--gpus", "all", "--network", "none"]
    for mount in [*mounts, f"{ROOT}:{ROOT}:ro"]:
        where += ["--volume", mount]
    return asked([*options, *where, "--env", f"PYTHONPATH={ROOT}"], ["python3", *what], folder, limit_s)


def main() -> int:
    """Runs the rungs in their order within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--mount", action="append", default=[])
    parser.add_argument("--engine", default="podman", choices=("podman", "docker"))
    parser.add_argument("--how", default="CDI", help="how GPUs enter")
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    asks = {
        "podman": ["podman", "version", "--format", "{{.Version}}"],
        "docker": ["docker", "version", "--format", "{{.Server.Version}}"],
    }
    version = subprocess.run(asks[given.engine], capture_output=True, text=True).stdout.split()[-1]
    kind = "Docker Engine" if given.engine == "docker" else "rootless Podman" if os.getuid() else "Podman"
    said = {
        "python": ".".join(map(str, sys.version_info[:2])),
        "where": f"a container of {kind} {version} with {given.how}",
    }
    said["where"] += ", one at a time" if given.width == 1 else f", {given.width} at a time"
    known: dict[str, Any] = {"kind": "debug", "schema": "envkit.evidence/1", "recorded": {**recorded(), **said}}
    known["rungs"] = {}
    lock = threading.Lock()

    def one(name: str) -> None:
        left = end - time.monotonic()
        if left < 20 or (given.only and name not in given.only):
            return
        told = contained(
            given.engine,
            given.image,
            given.mount,
            name,
            Path(scratch) / name,
            min(150.0 if name == "profiled" else 90.0, left - 5),
        )
        with lock:
            known["rungs"][name] = told
            given.out.write_text(json.dumps(known, indent=1))
        report = told.get("report", {})
        print(name, told.get("code"), told["seconds"], report.get("cause", "")[:300], told.get("trouble", "")[-600:])
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.width) as pool:
        list(pool.map(one, RUNGS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
