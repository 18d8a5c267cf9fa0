"""Every program of ``served_programs.py`` through ``envkit debug`` on a machine with a GPU.

``python tests/debug/served_on_gpu.py --out evidence.json`` with a Python that holds torch, CuPy and what envkit needs.
It writes its file after each program.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAM = HERE / "served_programs.py"
MEMORY = ("requests", "callbacks", "schedules", "predictions", "recurrent", "biases", "function")
SLOW = ("decode", "records", "frames", "boxes", "noise", "tokens")
KERNELS = ("written", "joined", "gather", "positions", "weights", "labels", "masks")
TWINS = ("requests", "schedules", "predictions", "recurrent", "records", "tokens", "written", "joined")


def question(name: str) -> list[str]:
    """The option with which a program is asked about."""
    return ["--memory"] if name in MEMORY else ["--slow"] if name in SLOW else []


def asked(options: list[str], command: list[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """The report of one run, with the ends of its logs and what the companion kept of sources."""
    environ = dict(os.environ, NO_COLOR="1", PYTHONUNBUFFERED="1")
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    words = [sys.executable, "-m", "envkit", "debug", "--format", "json", "--out", str(folder), *options]
    words += ["--budget", f"{limit_s:.0f}", "--", *command]
    started = time.monotonic()
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, timeout=limit_s + 30
        )
    except subprocess.TimeoutExpired as late:
        return {"seconds": limit_s + 30, "trouble": str(late.stderr)[-2000:]}
    told: dict[str, Any] = {"seconds": round(time.monotonic() - started, 1), "code": done.returncode}
    try:
        told["report"] = json.loads(done.stdout)
    except ValueError:
        told["trouble"] = (done.stdout + done.stderr)[-3000:]
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in {".txt", ".log", ".cu", ".jsonl"} and path.stat().st_size < 2_000_000:
            told.setdefault("files", {})[str(path.relative_to(folder))] = path.read_text("utf-8", "replace")[-4000:]
        elif path.is_file() and re.match(r"(?:slow|memory)-\d+\.json$", path.name) and path.stat().st_size < 200_000:
            told.setdefault("files", {})[str(path.relative_to(folder))] = path.read_text("utf-8", "replace")
    return told


def lines() -> dict[str, list[int]]:
    """By program, the lines that are marked in its source."""
    found: dict[str, list[int]] = {}
    inside = {"answer": "requests", "bias": "biases", "forward": "function", "backward": "function"}
    name = part = ""
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1):
        if made := re.match(r"class (\w+)", line):
            part = made[1]
        if defined := re.match(r" *def (\w+)", line):
            name = "positions" if part == "Positions" and defined[1] in ("forward", "__init__") else defined[1]
            name = inside.get(name, name)
        if line.endswith("# here"):
            found.setdefault(name, []).append(number)
    return found


def marked(program: Path, inside: dict[str, str]) -> dict[str, list[int]]:
    """By program, the lines that are marked in its source; ``inside`` names the program of a function within it."""
    found: dict[str, list[int]] = {}
    name = ""
    for number, line in enumerate(program.read_text().splitlines(), 1):
        if defined := re.match(r" *def (\w+)", line):
            name = inside.get(defined[1], defined[1])
        if line.endswith("# here"):
            found.setdefault(name, []).append(number)
    return found


def recorded() -> dict[str, str]:
    """The GPU, its driver, torch, and the day."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, _, driver = subprocess.run(query, capture_output=True, text=True).stdout.partition("\n")[0].partition(", ")
    version = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True)
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return {"gpu": gpu, "driver": driver, "torch": version.stdout.decode().strip(), "date": date}


def main() -> int:
    """Runs them all within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=450.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    known: dict[str, Any] = {"recorded": recorded(), "lines": lines(), "runs": {}}
    lock = threading.Lock()

    def keep(name: str, told: dict[str, Any]) -> None:
        with lock:
            known["runs"][name] = told
            given.out.write_text(json.dumps(known, indent=1))
        report = told.get("report", {})
        brief = {key: report.get(key) for key in ("verdict", "cause") if report.get(key)}
        print(name, told.get("code"), told["seconds"], json.dumps(brief)[:500], told.get("trouble", "")[-400:])
        sys.stdout.flush()

    def one(run: tuple[str, str]) -> None:
        left = end - time.monotonic()
        if left < 20:
            return
        command = [sys.executable, str(PROGRAM), *run]
        limit = min(110.0 if run[0] in KERNELS else 60.0, left - 5)
        keep("/".join(run), asked(question(run[0]), command, Path(scratch) / "-".join(run), limit))

    runs = [(name, "fault") for name in (*KERNELS, *MEMORY, *SLOW)] + [(name, "clean") for name in TWINS]
    runs = [run for run in runs if not given.only or run[0] in given.only or "/".join(run) in given.only]
    with tempfile.TemporaryDirectory() as scratch:
        with ThreadPoolExecutor(7) as pool:  # what is measured in time runs later, with less beside it
            list(pool.map(one, [run for run in runs if run[0] not in SLOW]))
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(one, [run for run in runs if run[0] in SLOW]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
