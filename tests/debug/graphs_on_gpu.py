"""Every program of ``graph_programs.py`` through ``envkit debug`` on a machine with a GPU.

``python tests/debug/graphs_on_gpu.py --out evidence.json`` with a Python that holds torch, Triton and what envkit
needs, beside compute-sanitizer.  It writes its file after each program.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from served_on_gpu import HERE, asked, recorded

PROGRAM = HERE / "graph_programs.py"


def labels() -> dict[str, Any]:
    """What the programs say of themselves."""
    return next(
        ast.literal_eval(each.value)
        for each in ast.parse(PROGRAM.read_text()).body
        if isinstance(each, ast.AnnAssign) and each.value and ast.unparse(each.target) == "LABELS"
    )


def lines() -> dict[str, list[int]]:
    """By program, the lines that are marked in its source."""
    found: dict[str, list[int]] = {}
    name = ""
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1):
        if defined := re.match(r"def (\w+)", line):
            name = defined[1]
        if line.endswith("# here"):
            found.setdefault(name, []).append(number)
    return found


def main() -> int:
    """Runs them all within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--width", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    began = time.monotonic()
    said = {"python": ".".join(map(str, sys.version_info[:2])), "where": "the machine's own Python"}
    known: dict[str, Any] = {"kind": "debug", "schema": "envkit.evidence/1", "recorded": {**recorded(), **said}}
    known |= {"lines": lines(), "runs": {}}
    lock = threading.Lock()

    def one(name: str) -> None:
        left = given.seconds - (time.monotonic() - began)
        if left < 20 or (given.only and name not in given.only):
            return
        command = [sys.executable, str(PROGRAM), *name.split("/")]
        told = asked([], command, Path(scratch) / name.replace("/", "-"), left - 5)
        with lock:
            known["runs"][name] = told
            given.out.write_text(json.dumps(known, indent=1))
        report = told.get("report", {})
        steps = [f"{step['stage']} {step['seconds']:.0f}" for step in report.get("steps", ()) if step["ran"]]
        print(f"[{time.monotonic() - began:.0f}]", name, told.get("code"), told["seconds"], *steps,
              report.get("verdict"), str(report.get("cause"))[:420], told.get("trouble", "")[-400:])  # fmt: skip
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.width) as pool:
        list(pool.map(one, labels()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
