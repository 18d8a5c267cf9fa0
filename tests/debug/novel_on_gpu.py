"""Every program of ``novel_programs.py`` through ``envkit debug`` on a machine with a GPU.

``python tests/debug/novel_on_gpu.py --out evidence.json`` with a Python that holds torch, Triton and what envkit needs,
beside the CUDA toolkit.  It runs ``captured`` of ``fresh_programs.py`` as well, and writes its file after each program.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from served_on_gpu import HERE, asked, marked, recorded

PROGRAM = HERE / "novel_programs.py"
OTHER = {"captured": HERE / "fresh_programs.py"}
NAMES = (
    "wrapped", "thawed", "compiled", "refilled", "workspace", "halved", "bounded", "forked", "custom", "dangling",
)  # fmt: skip
INSIDE = {"product": "workspace", "scale": "thawed", "__getitem__": "forked", "backward": "custom"}


def lines() -> dict[str, list[int]]:
    """By program, the lines that are marked in its source."""
    return marked(PROGRAM, INSIDE)


def main() -> int:
    """Runs them all within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--each", type=float, default=150.0)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    said = {"python": ".".join(map(str, sys.version_info[:2])), "where": "the machine's own Python"}
    known: dict[str, Any] = {"kind": "debug", "schema": "envkit.evidence/1", "recorded": {**recorded(), **said}}
    known |= {"lines": lines(), "runs": {}}
    lock = threading.Lock()
    began = time.monotonic()

    def one(run: tuple[str, str]) -> None:
        name = "/".join(run)
        left = end - time.monotonic()
        if left < 20 or (given.only and run[0] not in given.only and name not in given.only):
            return
        command = [sys.executable, str(OTHER.get(run[0], PROGRAM)), *run]
        told = asked([], command, Path(scratch) / "-".join(run), min(given.each, left - 5))
        with lock:
            known["runs"][name] = told
            given.out.write_text(json.dumps(known, indent=1))
        report = told.get("report", {})
        stages = [step["stage"] for step in report.get("steps", ()) if step["ran"]]
        print(f"[{time.monotonic() - began:.0f}]", name, told.get("code"), told["seconds"], *stages,
              report.get("verdict"), str(report.get("cause"))[:420], told.get("trouble", "")[-400:])  # fmt: skip
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.width) as pool:
        list(pool.map(one, [(name, kind) for kind in ("fault", "clean") for name in (*NAMES, *OTHER)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
