"""Every program of ``common_programs.py`` through ``envkit debug`` on a machine with GPUs.

``python tests/debug/common_on_gpu.py --out evidence.json`` with a Python that holds torch, Triton and what envkit
needs, beside the CUDA toolkit.  What wants two GPUs is left out where there is one.  It writes its file after each
program.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from served_on_gpu import HERE, asked, marked, recorded

PROGRAM = HERE / "common_programs.py"
NAMES = (
    "fused", "early", "pooled", "leading", "blanked", "handed", "inplaced", "overwritten", "refed", "hosted", "tiled",
    "arched", "attended", "threaded", "uneven", "narrow", "spinning",
)  # fmt: skip
PAIRED = ("threaded", "uneven")
INSIDE = {"forward": "fused", "_sends": "handed", "works": "threaded"}
OPTIONS = {
    "uneven": ["--ranks", "--only", "as-is"],
    "spinning": ["--stall-timeout", "8", "--stage-timeout", "40"],
}


def lines() -> dict[str, list[int]]:
    """By program, the lines that are marked in its source."""
    return marked(PROGRAM, INSIDE)


def command(name: str, kind: str, place: str) -> list[str]:
    """How a program is run on the GPUs of the given numbers."""
    if name == "uneven":
        launched = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return [sys.executable, *launched, str(PROGRAM), name, kind]
    visible = [] if name in PAIRED else ["env", f"CUDA_VISIBLE_DEVICES={place}"]
    return [*visible, sys.executable, str(PROGRAM), name, kind]


def main() -> int:
    """Runs them all within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--each", type=float, default=150.0)
    parser.add_argument("--width", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    began = time.monotonic()
    said = {"python": ".".join(map(str, sys.version_info[:2])), "where": "the machine's own Python"}
    query = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    gpus = max(1, query.count("GPU "))
    known: dict[str, Any] = {"kind": "debug", "schema": "envkit.evidence/1", "recorded": {**recorded(), **said}}
    known |= {"gpus": gpus, "lines": lines(), "runs": {}}
    lock = threading.Lock()
    places = itertools.cycle(map(str, range(gpus)))

    def wanted(run: tuple[str, str]) -> bool:
        name, kind = run
        chosen = not given.only or name in given.only or f"{name}/{kind}" in given.only
        return chosen and (gpus > 1 or name not in PAIRED)

    def one(run: tuple[str, str]) -> None:
        name = "/".join(run)
        left = given.seconds - (time.monotonic() - began)
        if left < 20:
            return
        with lock:
            place = next(places)
        told = asked(
            OPTIONS.get(run[0], []), command(*run, place), Path(scratch) / "-".join(run), min(given.each, left - 5)
        )
        with lock:
            known["runs"][name] = told
            given.out.write_text(json.dumps(known, indent=1))
        report = told.get("report", {})
        steps = [f"{step['stage']} {step['seconds']:.0f}" for step in report.get("steps", ()) if step["ran"]]
        print(f"[{time.monotonic() - began:.0f}]", name, told.get("code"), told["seconds"], *steps,
              report.get("verdict"), str(report.get("cause"))[:420], told.get("trouble", "")[-400:])  # fmt: skip
        sys.stdout.flush()

    runs = [run for run in ((name, kind) for kind in ("fault", "clean") for name in NAMES) if wanted(run)]
    with tempfile.TemporaryDirectory() as scratch:
        builds = {
            name: subprocess.Popen([sys.executable, str(PROGRAM), name, "clean"], stdout=subprocess.DEVNULL)
            for name in sorted({"arched", "narrow"} & {name for name, _ in runs})
        }
        with ThreadPoolExecutor(given.width) as pool:
            list(pool.map(one, [run for run in runs if run[0] not in ("narrow", "spinning")]))
        for name, build in builds.items():
            print(f"[{time.monotonic() - began:.0f}] built", name, build.wait(150), flush=True)
        with ThreadPoolExecutor(given.width) as pool:
            list(pool.map(one, [run for run in runs if run[0] in ("narrow", "spinning")]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
