"""Every program with a planted fault through `envkit debug`, on a machine with a GPU: what was named, and how fast.

``python tests/debug/on_gpu.py --out evidence.json`` with a Python that holds torch and what envkit needs.  It writes
its file after each program, so that whatever stops it costs only what was not yet run.  Programs whose kernels fault
run alone; those whose faults are silent, and the clean twins, run side by side.
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
KERNELS = {
    "oob": "scale_rows",
    "misaligned": "add_quads",
    "tuner": "add_quads",
    "missing_barrier": "reverse_block",
    "uninitialized": "add_into",
    "no_atomic": "count_bins",
}
LOUD = ("oob", "misaligned", "tuner")  # the device raises an error, which other processes on it may feel
SOURCES = {"tuner": "misaligned"}
EACH_S = 118.0  # the limit is 120 s for a fault
_LOG = 6000  # characters of a tool's log that are kept as evidence


def environment() -> dict[str, str]:
    """This environment, with envkit in reach and no colour."""
    found = dict(os.environ, NO_COLOR="1", PYTHONUNBUFFERED="1")
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return found


def debugged(argv: list[str], folder: Path, *options: str, limit_s: float = EACH_S) -> dict[str, Any]:
    """The report of `envkit debug` on a command, with the exit code, the time and the logs of its tools."""
    words = [sys.executable, "-m", "envkit", "debug", "--format", "json", "--out", str(folder)]
    words += ["--budget", f"{limit_s:.0f}", "--stage-timeout", f"{limit_s * 0.6:.0f}", *options, "--", *argv]
    started = time.monotonic()
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(), timeout=limit_s + 60
        )
    except subprocess.TimeoutExpired as late:
        return {"seconds": limit_s + 60, "trouble": f"envkit debug did not end: {str(late.stderr)[-_LOG:]}"}
    told: dict[str, Any] = {"seconds": round(time.monotonic() - started, 1), "code": done.returncode}
    try:
        told["report"] = json.loads(done.stdout)
    except ValueError:
        told["trouble"] = (done.stdout + done.stderr)[-_LOG:]
    told["progress"] = done.stderr[-3000:]
    logs = sorted([*folder.glob("*/sanitizer.log"), *folder.glob("*/opened/output.txt"), folder / "as-is/output.txt"])
    told["logs"] = {
        str(path.relative_to(folder)): path.read_text("utf-8", "replace")[:_LOG] for path in logs if path.exists()
    }
    events = folder / "launches" / "events.jsonl"
    if events.exists():
        told["launch_events"] = events.read_text("utf-8", "replace")[-_LOG:]
    return told


def marked(path: Path, mark: str) -> list[int]:
    """The numbers of the lines that carry a mark."""
    return [number for number, line in enumerate(path.read_text().splitlines(), 1) if mark in line]


def judged(name: str, told: dict[str, Any]) -> dict[str, Any]:
    """Whether the kernel, its line and the line of Python that launches it were named."""
    report = told.get("report") or {}
    kernel = report.get("kernel") or {}
    source = SOURCES.get(name, name) + ".cu"
    lines = marked(HERE / "kernels" / source, "// here")
    launched = marked(HERE / f"{name}.py", "# launched here")
    frames = [(Path(str(frame["file"])).name, frame["line"]) for frame in report.get("python") or ()]
    return {
        "verdict": report.get("verdict"),
        "category": report.get("category"),
        "problem": kernel.get("problem"),
        "kernel_named": KERNELS[name] in str(kernel.get("name", "")),
        "line_named": str(kernel.get("file", "")).endswith(source) and kernel.get("line") in lines,
        "python_named": any(file == f"{name}.py" and line in launched for file, line in frames),
        "in_time": told["seconds"] <= 120.0,
        "seconds": told["seconds"],
        "stages": {step["stage"]: step["seconds"] for step in report.get("steps", ()) if step["ran"]},
        "cause": report.get("cause"),
    }


class Evidence:
    """The one document, written again whenever something is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.known: dict[str, Any] = {"faults": {}, "clean": {}, "packages": {}, "also": {}, "raw": {}}

    def put(self, part: str, name: str, value: Any, raw: Any = None) -> None:
        """Adds one result."""
        with self.lock:
            self.known[part][name] = value
            if raw is not None:
                self.known["raw"][f"{part}/{name}"] = raw
            self.path.write_text(json.dumps(self.known, indent=1))
            print(f"{part}/{name}: {json.dumps(value)[:600]}", flush=True)


def fault(evidence: Evidence, scratch: Path, name: str) -> None:
    """One program with its fault."""
    told = debugged([sys.executable, str(HERE / f"{name}.py"), "fault"], scratch / f"{name}-fault")
    evidence.put("faults", name, judged(name, told), told)


def clean(evidence: Evidence, scratch: Path, name: str, end: float) -> None:
    """Its clean twin, in which nothing may be found; ``end`` is when all must be over."""
    argv = [sys.executable, str(HERE / f"{name}.py"), "clean"]
    limit_s = max(60.0, min(200.0, end - time.monotonic()))
    told = debugged(argv, scratch / f"{name}-clean", limit_s=limit_s)
    report = told.get("report") or {}
    stages = {step["stage"]: step["seconds"] for step in report.get("steps", ()) if step["ran"]}
    brief = {key: report.get(key) for key in ("verdict", "cause")}
    evidence.put("clean", name, {**brief, "seconds": told["seconds"], "stages": stages}, told)


def build(path: Path, compiler: str) -> dict[str, Any]:
    """Builds the package of tests/debug/package.py with a compiler; how long it took and what went wrong."""
    started = time.monotonic()
    environ = environment()
    if compiler:
        environ["CXX"] = compiler
    environ["TORCHINDUCTOR_CACHE_DIR"] = str(path) + ".cache"
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "package.py"), "build", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environ,
            timeout=200,
        )
    except subprocess.TimeoutExpired:
        return {"seconds": 200, "trouble": "the build took more than 200 s"}
    told: dict[str, Any] = {"seconds": round(time.monotonic() - started, 1), "exit": done.returncode}
    if done.returncode:
        told["trouble"] = done.stderr[-2000:]
    return told


def packages(evidence: Evidence, scratch: Path) -> None:
    """A package as this environment makes it, and one of a plain compiler, loaded and given tensors of the CPU."""
    paths = {"as-made-here": (scratch / "here.pt2", ""), "plain-compiler": (scratch / "plain.pt2", "/usr/bin/g++")}
    with ThreadPoolExecutor(2) as pool:
        ways = {name: pool.submit(build, path, compiler) for name, (path, compiler) in paths.items()}
        for name, way in ways.items():
            evidence.put("packages", f"build {name}", way.result())

    def load(name: str, what: str) -> None:
        path = paths[name][0]
        if not path.exists():
            return
        argv = [sys.executable, str(HERE / "package.py"), what, str(path)]
        # The memory's tools say nothing of a library that dies at load, and cost minutes.
        words = [word for tool in ("memcheck", "initcheck", "racecheck", "synccheck") for word in ("--skip", tool)]
        told = debugged(argv, scratch / f"package-{name}-{what}", *words, limit_s=150)
        report = told.get("report") or {}
        brief = {key: report.get(key) for key in ("verdict", "category", "cause_class", "cause", "fix", "exit")}
        evidence.put("packages", f"{what} {name}", {**brief, "seconds": told["seconds"]}, told)

    with ThreadPoolExecutor(3) as pool:
        for name, what in (("as-made-here", "load"), ("plain-compiler", "load"), ("plain-compiler", "cpu")):
            pool.submit(load, name, what)


def also(evidence: Evidence, scratch: Path, left_s: float) -> None:
    """The core dump alone, and what compute-sanitizer makes of Python's stack when it is asked to."""
    argv = [sys.executable, str(HERE / "misaligned.py"), "fault"]
    told = debugged(argv, scratch / "core", "--only", "core-dump", limit_s=min(90.0, left_s))
    evidence.put("also", "core dump alone", judged("misaligned", told), told)
    sanitizer = shutil.which("compute-sanitizer") or next(
        (str(path) for path in sorted(Path("/usr/local").glob("cuda*/bin/compute-sanitizer"))), ""
    )
    if sanitizer:
        environ = {**environment(), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "SANITIZER_HOST_STACKTRACE_PYTHON": "1"}
        try:
            done = subprocess.run(
                [sanitizer, "--tool", "memcheck", "--print-limit", "1", "--strip-paths", "no", *argv],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environ,
                timeout=60,
            )
            evidence.put("also", "python frames of compute-sanitizer", done.stdout[-_LOG:])
        except subprocess.TimeoutExpired:
            evidence.put("also", "python frames of compute-sanitizer", "it took more than 60 s")


def main() -> int:
    """Runs all within a budget; 0 where every fault was named and no clean twin was blamed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("debug-evidence.json"))
    parser.add_argument("--budget", type=float, default=470.0, help="seconds for all")
    parser.add_argument("--side-by-side", type=int, default=4)
    parser.add_argument("--only", action="append", help="a program; may be given again")
    parser.add_argument("--no-packages", action="store_true")
    given = parser.parse_args()
    end = time.monotonic() + given.budget
    names = [name for name in KERNELS if not given.only or name in given.only]
    evidence = Evidence(given.out)
    scratch = Path(tempfile.mkdtemp(prefix="envkit-on-gpu-"))
    beside = threading.Thread(target=packages, args=(evidence, scratch), daemon=True)
    if not given.no_packages:
        beside.start()
    for name in (each for each in names if each in LOUD):
        fault(evidence, scratch, name)
    with ThreadPoolExecutor(given.side_by_side) as pool:
        for name in (each for each in names if each not in LOUD):
            pool.submit(fault, evidence, scratch, name)
        for name in names:
            pool.submit(clean, evidence, scratch, name, end)
    if end - time.monotonic() > 40:
        also(evidence, scratch, end - time.monotonic())
    if not given.no_packages:
        beside.join(max(1.0, end - time.monotonic()))
    faults = evidence.known["faults"].values()
    named = all(each["kernel_named"] and each["line_named"] and each["in_time"] for each in faults)
    blamed = any(each["verdict"] == "found" for each in evidence.known["clean"].values())
    evidence.put("also", "seconds in all", round(given.budget - (end - time.monotonic()), 1))
    print(f"every fault named: {named}; a clean twin blamed: {blamed}", flush=True)
    return 0 if named and not blamed else 1


if __name__ == "__main__":
    os._exit(main())  # a thread that waits for a build that hangs is not waited for
