"""Every program of ``fresh_programs.py`` through ``envkit debug`` on a machine with a GPU.

``python tests/debug/fresh_on_gpu.py --out evidence.json`` with a Python that holds torch, Triton and what envkit
needs, beside the CUDA toolkit.  It writes its file after each program.
"""

from __future__ import annotations

import argparse
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

PROGRAM = HERE / "fresh_programs.py"
KERNELS = (
    "packed", "thawed", "strided", "stale", "worker", "captured", "misread", "mixed", "bounds", "race", "unset",
)  # fmt: skip
RANKS = ("crossed", "grouped")
SLOW = ("itemed", "paged")
CLEAN = ("thawed", "stale", "worker", "captured", "misread", "mixed", "bounds", "race", "unset", "strided")


def lines() -> dict[str, list[int]]:
    """By program, the lines that are marked in its source."""
    return marked(PROGRAM, {"_embeds": "worker", "backward": "thawed", "update": "mixed"})


def main() -> int:
    """Runs them all within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    known: dict[str, Any] = {"kind": "debug", "schema": "envkit.evidence/1"}
    said = {"python": ".".join(map(str, sys.version_info[:2])), "where": "the machine's own Python"}
    known |= {"recorded": {**recorded(), **said}, "lines": lines(), "runs": {}}
    lock = threading.Lock()
    began = time.monotonic()

    def one(run: tuple[str, str]) -> None:
        name = "/".join(run)
        left = end - time.monotonic()
        if left < 20 or (given.only and run[0] not in given.only and name not in given.only):
            return
        options = ["--slow"] if run[0] in SLOW else ["--memory"] if run[0] == "retained" else []
        command = [sys.executable, str(PROGRAM), *run]
        if run[0] in RANKS:
            options = ["--ranks", "--only", "as-is"]
            command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        told = asked(options, command, Path(scratch) / "-".join(run), min(150.0, left - 5))
        with lock:
            known["runs"][name] = told
            given.out.write_text(json.dumps(known, indent=1))
        report = told.get("report", {})
        stages = [step["stage"] for step in report.get("steps", ()) if step["ran"]]
        print(f"[{time.monotonic() - began:.0f}]", name, told.get("code"), told["seconds"], *stages,
              report.get("verdict"), str(report.get("cause"))[:420], told.get("trouble", "")[-400:])  # fmt: skip
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as scratch:
        builds = {
            name: subprocess.Popen([sys.executable, str(PROGRAM), name, "clean"], stdout=subprocess.DEVNULL)
            for name in ("bounds", "packed")
        }
        builds["bounds"].wait(100)
        print(f"[{time.monotonic() - began:.0f}] built", flush=True)
        runs = [(name, "fault") for name in KERNELS if name != "packed"] + [
            (name, kind) for kind in ("fault", "clean") for name in RANKS
        ]
        runs += [(name, "clean") for name in CLEAN]
        with ThreadPoolExecutor(9) as pool:
            list(pool.map(one, runs))
        builds["packed"].wait(150)
        print(f"[{time.monotonic() - began:.0f}] package", builds["packed"].returncode, flush=True)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(one, [("packed", "fault"), ("itemed", "fault"), ("paged", "fault")]))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, [("itemed", "clean"), ("paged", "clean")]))
        one(("retained", "fault"))  # fills the GPU
        one(("retained", "clean"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
