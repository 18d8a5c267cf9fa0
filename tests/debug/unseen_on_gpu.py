"""Every program of ``unseen_programs.py`` through ``envkit debug``, on a machine with a GPU.

``python tests/debug/unseen_on_gpu.py --out evidence.json`` with a Python that holds torch, CuPy, numba and what envkit
needs.  It writes its file after each program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from served_on_gpu import marked

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MEMORY = ("features", "hooks", "errors", "evaluation", "optimizers")
SLOW = ("collate", "emptied", "metrics", "samples", "saves")
KERNELS = ("raw", "jitted", "masked", "windowed", "blas")
TWINS = ("features", "hooks", "evaluation", "collate", "metrics", "raw", "masked", "blas")


def question(name: str) -> list[str]:
    """The option with which a program is asked about."""
    return ["--memory"] if name in MEMORY else ["--slow"] if name in SLOW else []


def asked(name: str, how: str, folder: Path, limit_s: float) -> dict[str, Any]:
    """The report of one run."""
    environ = dict(os.environ, NO_COLOR="1", PYTHONUNBUFFERED="1")
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    words = [sys.executable, "-m", "envkit", "debug", *question(name), "--format", "json", "--out", str(folder)]
    words += ["--budget", f"{limit_s:.0f}", "--", sys.executable, str(HERE / "unseen_programs.py"), name, how]
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
        if path.is_file() and path.suffix in {".txt", ".log"} and path.stat().st_size < 2_000_000:
            told.setdefault("files", {})[str(path.relative_to(folder))] = path.read_text("utf-8", "replace")[-3000:]
    return told


def lines() -> dict[str, list[int]]:
    """By program, the lines that are marked in its source."""
    inside = {"_checked": "errors", "_augmented": "collate", "forward": "windowed", "keep": "hooks"}
    return marked(HERE / "unseen_programs.py", inside)


def main() -> int:
    """Runs them all within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    import torch

    machine = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout
    known: dict[str, Any] = {
        "machine": {
            "gpu": machine.strip(),
            "torch": torch.__version__,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        },
        "lines": lines(),
        "runs": {},
    }
    runs = [(name, "fault") for name in (*KERNELS, *MEMORY, *SLOW)] + [(name, "clean") for name in TWINS]
    runs = [(name, how) for name, how in runs if not given.only or name in given.only]
    with tempfile.TemporaryDirectory() as scratch:

        def one(run: tuple[str, str]) -> None:
            left = end - time.monotonic()
            if left < 25:
                return
            told = asked(*run, Path(scratch) / "-".join(run), min(100.0 if run[0] in KERNELS else 60.0, left - 5))
            known["runs"]["/".join(run)] = told
            given.out.write_text(json.dumps(known, indent=1))
            report = told.get("report", {})
            brief = {key: report.get(key) for key in ("cause", "where", "verdict") if report.get(key)}
            print(
                *run,
                told.get("code"),
                told["seconds"],
                json.dumps(brief)[:600],
                told.get("trouble", "")[-300:],
                flush=True,
            )

        together = [run for run in runs if run[0] not in SLOW]
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(one, together))
        for run in runs:
            if run[0] in SLOW:
                one(run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
