"""Jobs of two ranks with a planted fault through `envkit debug --ranks`: what was named, and how fast.

``python tests/debug/on_two_gpus.py --out evidence.json`` with a Python that holds torch and what envkit needs, on a
machine with two GPUs (NCCL); on one without it runs over gloo.  It writes its file after each case.  The first cases
run alone, for their time counts; the others two at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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
PROGRAM = HERE / "hang_ranks.py"
LIMIT_S = 30.0  # from the start of the command to its cause
EACH_S = 75.0
_RECORD = 20_000  # characters of a file that are kept
_FROZEN = ("rank 1 gave no gradient", "branch.weight", "requires_grad is False")
_UNUSED = ("rank 1 gave no gradient", "branch.weight", "not used there")
# What the cause must hold, case by case; a case of None is clean.
CASES: dict[str, tuple[str, ...] | None] = {
    "frozen-apart": _FROZEN,
    "frozen": _FROZEN,
    "clean": None,
    "branch-apart": _UNUSED,
    "branch": _UNUSED,
    "order": ("their operations differ", "all_reduce", "broadcast", "rank 1"),
    "shapes": ("their sizes differ", "[1048576]", "rank 1"),
    "loader": ("rank 1", "in batch"),
    "leaves": ("rank 1 came to its end",),
    "absent": ("rank 1 is at",),  # over gloo the other waits in init_process_group, over NCCL in DDP's first step
    "message": ("recv", "rank 0", "rank 1"),
    "skips-apart": ("rank 0", "rank 1", "all_reduce"),
}
ALONE = ("frozen-apart", "frozen", "clean")


def words(case: str) -> list[str]:
    """The command of a case."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PROGRAM), case]


def environment() -> dict[str, str]:
    """This environment, with envkit in reach and no colour."""
    found = dict(os.environ, NO_COLOR="1", OMP_NUM_THREADS="1")
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return found


def steps(text: str) -> list[str]:
    """What the program itself printed."""
    return [line for line in text.splitlines() if line.startswith("step ")]


def debugged(case: str, root: Path) -> dict[str, Any]:
    """One case: the report of `envkit debug --ranks`, its time, and whether it names what was planted."""
    folder = root / case
    argv = [sys.executable, "-m", "envkit", "debug", "--ranks", "--only", "as-is", "--format", "json"]
    argv += ["--budget", f"{EACH_S:.0f}", "--out", str(folder), "--", *words(case)]
    started = time.monotonic()
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(), timeout=EACH_S + 30
        )
    except subprocess.TimeoutExpired:
        return {"case": case, "named": False, "trouble": "envkit debug did not end"}
    seconds = round(time.monotonic() - started, 1)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {"case": case, "named": False, "seconds": seconds, "trouble": done.stderr[-2000:]}
    wanted, cause = CASES[case], report["cause"]
    output = (folder / "as-is" / "output.txt").read_text(errors="replace")
    said: dict[str, Any] = {
        "case": case,
        "seconds": seconds,
        "code": done.returncode,
        "ended": report["steps"][0]["ended"],
        "cause": cause,
        "category": report["category"],
        "cause_class": report["cause_class"],
        "fix": report["fix"],
        "ranks": [{key: row[key] for key in row if key not in ("host", "pid", "stack")} for row in report["ranks"]],
        "printed": steps(output),
        "flight": sorted(path.name for path in folder.rglob("flight-*.pkl")),
    }
    if wanted is None:
        plain = subprocess.run(
            words(case), stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(), timeout=EACH_S
        )
        said["unwatched"] = steps(plain.stdout)
        said["named"] = done.returncode == 0 and not cause and said["unwatched"] == said["printed"] != []
    else:
        said["named"] = done.returncode == 1 and all(word in cause for word in wanted)
        said["in_time"] = seconds <= LIMIT_S
        said["output"] = output[-3000:]
        said["records"] = {path.name: path.read_text()[:_RECORD] for path in sorted(folder.rglob("ranks-*.jsonl"))}
        said["stacks"] = {path.name: path.read_text()[:_RECORD] for path in sorted(folder.rglob("still-*.json"))}
    return said


def main() -> int:
    """Runs the cases and writes the evidence; 0 where each was named."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--only", action="append", choices=sorted(CASES))
    chosen = options.parse_args()
    cases = [case for case in CASES if not chosen.only or case in chosen.only]
    root = Path(tempfile.mkdtemp(prefix="envkit-ranks-"))
    asked = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__, torch.cuda.device_count())"],
        capture_output=True,
        text=True,
    )

    def keep(case: str) -> None:
        """NCCL's own dumps, which only a GPU makes, beside the evidence."""
        for path in (root / case).rglob("flight-*.pkl"):
            shutil.copy(path, chosen.out.with_name(f"{case}-{path.name}"))

    told: dict[str, Any] = {"torch and gpus": asked.stdout.strip(), "cases": []}
    lock = threading.Lock()

    def one(case: str) -> None:
        said = debugged(case, root)
        keep(case)
        with lock:
            told["cases"].append(said)
            chosen.out.write_text(json.dumps(told, indent=2) + "\n")
            print(f"{case}: {'named' if said['named'] else 'NOT NAMED'} in {said.get('seconds')} s", flush=True)

    for case in cases:
        if case in ALONE:
            one(case)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, [case for case in cases if case not in ALONE]))
    shutil.rmtree(root, ignore_errors=True)
    return 0 if all(case["named"] for case in told["cases"]) else 1


if __name__ == "__main__":
    sys.exit(main())
