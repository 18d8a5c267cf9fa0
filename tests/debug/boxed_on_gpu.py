"""The programs of ``boxed_programs.py`` and ``fused_programs.py`` through `envkit debug --image` on a machine with a
GPU, several containers at a time.

``python tests/debug/boxed_on_gpu.py --image NAME --out evidence.json --made FOLDER`` with a Python that holds what
envkit needs, under Podman or Docker Engine.  What the image lacks of torch and the CUDA toolkit is mounted (``--mount
SOURCE:TARGET``); FOLDER holds the AOTInductor package and what nvcc and g++ compile of the programs.  It writes its
file after each program.
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

from served_on_gpu import HERE, ROOT, asked, marked, recorded

PROGRAM = HERE / "boxed_programs.py"
FUSED = HERE / "fused_programs.py"
COMPILED = {"forward": "looked", "smoothed": "unchecked", "scaled": "sized", "shifted": "promised", "stepped": "shrunk",
            "pruned": "declared"}  # fmt: skip
OTHER = {"fused": HERE / "common_programs.py", **dict.fromkeys(COMPILED.values(), FUSED)}
INSIDE = {"given": "typed", "__getitem__": "loading"}
WAITS = "import torch, threading; torch.ones(1).to('{}'); threading.Event().wait()"
OPTIONS: dict[str, list[str]] = {
    "early/fault": [],
    "early/clean": ["--only", "copies"],
    "spinning/fault": ["--stage-timeout", "30"],
    "waiting/fault": ["--stall-timeout", "6", "--stage-timeout", "40"],
    "isolated/fault": ["--stage-timeout", "14"],
    "isolated/user": ["--stage-timeout", "14", "--user", "1000:1000"],
    "bounded/fault": [],
    "refused/fault": [],
    "fused/fault": ["--only", "memcheck", "--kernel", "add_bias"],
    "logged/fault": [],
    "rooted/fault": [],
    "replaced/fault": [],
    "typed/fault": [],
    "shaped/fault": [],
    "strided/fault": [],
    "hosted/fault": [],
    "asserted/fault": [],
    "mixed/fault": [],
    "crashed/fault": [],
    **{f"{name}/{kind}": [] for kind in ("fault", "clean") for name in COMPILED.values()},
    "bounded/clean": ["--only", "memcheck"],
    "logged/clean": ["--only", "numbers"],
    "replaced/clean": ["--only", "numbers"],
    "refused/clean": ["--only", "launches"],
    "typed/clean": ["--only", "package-checks"],
    "fetching/fault": ["--slow"],
    "fetching/clean": ["--slow"],
    "loading/fault": ["--slow"],
}


def lines() -> dict[str, list[int]]:
    """By program, the lines that are marked in its source."""
    return {**marked(PROGRAM, INSIDE), **marked(FUSED, COMPILED)}


def main() -> int:
    """Runs them all within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--made", required=True)
    parser.add_argument("--mount", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--engine", default="podman", choices=("podman", "docker"))
    parser.add_argument("--gpus", default="all")
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one program")
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    field = "{{.Server.Version}}" if given.engine == "docker" else "{{.Version}}"
    version = subprocess.run([given.engine, "version", "--format", field], capture_output=True, text=True).stdout
    kind = "Docker Engine" if given.engine == "docker" else "rootless Podman" if os.getuid() else "Podman"
    said = {"python": ".".join(map(str, sys.version_info[:2]))}
    said["where"] = f"a container of {kind} {version.split()[-1]} with CDI, {given.width} at a time"
    known: dict[str, Any] = {"kind": "debug", "schema": "envkit.evidence/1", "recorded": {**recorded(), **said}}
    known |= {"lines": lines(), "runs": {}}
    lock, began = threading.Lock(), time.monotonic()
    where = ["--image", given.image, "--engine", given.engine, "--gpus", given.gpus, "--network", "none"]
    for mount in [*given.mount, f"{ROOT}:{ROOT}:ro", f"{given.made}:/made"]:
        where += ["--volume", mount]
    for word in [f"PYTHONPATH={ROOT}", "TMPDIR=/made", "BOXED_PACKAGES=/made", *given.env]:
        where += ["--env", word]

    def one(run: str) -> None:
        left = end - time.monotonic()
        if left < 25 or (given.only and run not in given.only):
            return
        name, _, fault = run.partition("/")
        command = ["python3", str(OTHER.get(name, PROGRAM)), name, fault]
        if name == "isolated":  # a Python without the companion: py-spy alone has its stack
            command = ["python3", "-I", "-c", WAITS.format("cpu" if given.gpus == "none" else "cuda")]
        place = Path(scratch) / run.replace("/", "-")
        told = asked([*OPTIONS[run], *where], command, place, min(given.limit, left - 10))
        with lock:
            known["runs"][run] = told
            given.out.write_text(json.dumps(known, indent=1))
        report = told.get("report", {})
        stages = [step["stage"] for step in report.get("steps", ()) if step["ran"]]
        print(f"[{time.monotonic() - began:.0f}]", run, told.get("code"), told["seconds"], *stages,
              report.get("verdict"), str(report.get("cause"))[:500], told.get("trouble", "")[-600:])  # fmt: skip
        sys.stdout.flush()

    measured = [run for run, options in OPTIONS.items() if "--slow" in options]
    with tempfile.TemporaryDirectory(dir=os.environ.get("BOXED_SCRATCH")) as scratch:
        with ThreadPoolExecutor(given.width) as pool:
            list(pool.map(one, [run for run in OPTIONS if run not in measured]))
        with ThreadPoolExecutor(2) as pool:  # what is measured in time runs later, with less beside it
            list(pool.map(one, measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
