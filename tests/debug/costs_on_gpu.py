"""Every program with a planted cost through `envkit debug --memory` and `--slow`, on a machine with GPUs.

``python tests/debug/costs_on_gpu.py --out evidence.json`` with a Python that holds torch and what envkit needs; with
two GPUs the ranks run too.  It writes its file after each program, so that whatever stops it costs only what was not
yet run.  The records of the processes are kept with the reports, so that they can be judged again.
"""

from __future__ import annotations

import argparse
import base64
import gzip
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

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOGETHER = (
    "graph",
    "total",
    "tensors",
    "drip",
    "lengths",
    "fragments",
    "large",
)  # small, so that they run side by side
ALONE = ("oom", "jax")
SLOW = ("item", "small", "copies", "loader", "single")
_MOST_RAW = 900_000  # bytes of one packed record
_MOST_ALL = 13_000_000


class Evidence:
    """The one document, written again whenever something is known."""

    def __init__(self, path: Path, end: float) -> None:
        self.path, self.end = path, end
        self.lock = threading.Lock()
        self.size = 0
        self.known: dict[str, Any] = {"memory": {}, "slow": {}, "machine": {}}

    def put(self, part: str, name: str, value: Any) -> None:
        """Adds one result; its raw records only as far as there is room."""
        with self.lock:
            raw = value.pop("raw", {}) if isinstance(value, dict) else {}
            for file, packed in sorted(raw.items(), key=lambda each: len(each[1])):
                if len(packed) < _MOST_RAW and self.size + len(packed) < _MOST_ALL:
                    value.setdefault("raw", {})[file] = packed
                    self.size += len(packed)
                else:
                    value.setdefault("raw_left_out", {})[file] = len(packed)
            self.known[part][name] = value
            self.path.write_text(json.dumps(self.known, indent=1))
            brief = (
                {key: value.get(key) for key in ("code", "seconds", "trouble")} if isinstance(value, dict) else value
            )
            cause = value.get("report", {}).get("cause", "") if isinstance(value, dict) else ""
            print(f"{part}/{name}: {json.dumps(brief)[:500]} {cause[:400]}", flush=True)


def packed(path: Path) -> str:
    """A file as gzip in base64."""
    return base64.b64encode(gzip.compress(path.read_bytes(), 6)).decode()


def measured(question: str, argv: list[str], folder: Path, gpu: str, limit_s: float = 75.0) -> dict[str, Any]:
    """The report of one run, with the records of its processes."""
    environ = dict(os.environ, NO_COLOR="1", PYTHONUNBUFFERED="1", CUDA_VISIBLE_DEVICES=gpu)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    words = [sys.executable, "-m", "envkit", "debug", f"--{question}", "--format", "json", "--out", str(folder)]
    words += ["--budget", f"{limit_s:.0f}", "--", *argv]
    started = time.monotonic()
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, timeout=limit_s + 30
        )
    except subprocess.TimeoutExpired as late:
        return {"seconds": limit_s + 30, "trouble": f"it did not end: {str(late.stderr)[-3000:]}"}
    told: dict[str, Any] = {"seconds": round(time.monotonic() - started, 1), "code": done.returncode}
    try:
        told["report"] = json.loads(done.stdout)
    except ValueError:
        told["trouble"] = (done.stdout + done.stderr)[-4000:]
    told["said"] = done.stderr[-1500:]
    output = folder / question / "output.txt"
    if output.exists():
        told["output"] = output.read_text("utf-8", "replace")[-3000:]
    names = [*folder.glob(f"{question}/{question}-*.json"), *folder.glob(f"{question}/trace-*.json")]
    names += folder.glob(f"{question}/*.pickle")
    told["raw"] = {path.name: packed(path) for path in names}
    return told


def program(kind: str, name: str, how: str, *more: str) -> list[str]:
    """The command line of a planted program."""
    return [sys.executable, str(HERE / f"{kind}_programs.py"), name, how, *more]


def memory(evidence: Evidence, scratch: Path, name: str, how: str, gpu: str) -> None:
    """One program through --memory."""
    if time.monotonic() < evidence.end:
        told = measured("memory", program("memory", name, how), scratch / f"m-{name}-{how}", gpu)
        evidence.put("memory", f"{name}-{how}", told)


def slow(evidence: Evidence, scratch: Path, name: str, how: str, gpu: str) -> None:
    """One program through --slow."""
    if time.monotonic() < evidence.end:
        told = measured("slow", program("slow", name, how, "cuda"), scratch / f"s-{name}-{how}", gpu)
        evidence.put("slow", f"{name}-{how}", told)


def beside(evidence: Evidence, scratch: Path, gpu: str) -> None:
    """The program that finds most of its GPU taken, and again when it is free."""
    environ = dict(os.environ, CUDA_VISIBLE_DEVICES=gpu)
    with subprocess.Popen(
        program("memory", "hold", "fault"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        memory(evidence, scratch, "others", "fault", gpu)
        holder.stdin.close()
        holder.wait(30)
    memory(evidence, scratch, "others", "clean", gpu)


def ranks(evidence: Evidence, scratch: Path, how: str) -> None:
    """Two ranks, each on a GPU."""
    if time.monotonic() < evidence.end:
        argv = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        argv += program("slow", "ranks", how, "cuda")[1:]
        evidence.put("slow", f"ranks-{how}", measured("slow", argv, scratch / f"s-ranks-{how}", "0,1"))


def machine() -> dict[str, Any]:
    """What the machine is."""
    code = "import torch, json; print(json.dumps([torch.__version__, torch.cuda.device_count()]))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    torch, gpus = json.loads(said.stdout) if said.returncode == 0 else (said.stderr[-500:], 0)
    try:
        words = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        smi = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
    except OSError as error:
        smi = str(error)
    return {"torch": torch, "gpus": gpus, "smi": smi.splitlines(), "python": sys.version}


def main() -> None:
    """All of it, within the time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=440.0)
    parser.add_argument(
        "--part", choices=("all", "steps"), default="all", help="steps: without those that need a whole GPU"
    )
    arguments = parser.parse_args()
    evidence = Evidence(arguments.out, time.monotonic() + arguments.seconds)
    evidence.put("machine", "is", found := machine())
    two = found["gpus"] >= 2
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with ThreadPoolExecutor(5) as pool:
            jobs = [
                pool.submit(memory, evidence, scratch, name, how, "0")
                for name in TOGETHER
                for how in ("fault", "clean")
            ]
            for each in jobs:
                each.result()

        def alone() -> None:
            for name in ALONE:
                for how in ("fault", "clean"):
                    memory(evidence, scratch, name, how, "0")
            beside(evidence, scratch, "0")

        def slowly(gpu: str, names: tuple[str, ...]) -> None:
            for name in names:
                for how in ("fault", "clean"):
                    slow(evidence, scratch, name, how, gpu)

        if two and arguments.part == "steps":
            with ThreadPoolExecutor(2) as pool:
                halves = [pool.submit(slowly, "0", SLOW[::2]), pool.submit(slowly, "1", SLOW[1::2])]
                for half in halves:
                    half.result()
        elif two:  # what takes a whole GPU's memory on one, what is timed on the other
            with ThreadPoolExecutor(2) as pool:
                halves = [pool.submit(alone), pool.submit(slowly, "1", SLOW)]
                for half in halves:
                    half.result()
            for how in ("fault", "clean"):
                ranks(evidence, scratch, how)
        else:
            slowly("0", SLOW)
            if arguments.part == "all":
                alone()


if __name__ == "__main__":
    main()
