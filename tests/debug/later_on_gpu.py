"""Every program of ``later_programs.py`` through ``envkit debug`` on a machine with a GPU, and core files of before.

``python tests/debug/later_on_gpu.py --out evidence.json`` with a Python that holds torch, CuPy, JAX and what envkit
needs, and gdb beside the CUDA toolkit.  It writes its file after each program.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from served_on_gpu import HERE, asked, recorded

PROGRAM = HERE / "later_programs.py"
KERNELS = (
    "forked", "packaged", "unfrozen", "halves", "compiled", "tritoned", "cupied", "streams", "pinned", "numbaed",
    "overflow", "launched",
)  # fmt: skip
NATIVE = ("pooled", "staged", "refused", "flushed")
SEVERAL = ("beyond_and_race", "unset_and_race")
MEMORY, ALONE = ("smoothed", "cached"), ("holes", "crowded", "beside_jax")
SLOW = ("cropped", "checked", "uploads", "averaged", "decoded")
TWINS = (
    "forked", "packaged", "unfrozen", "compiled", "tritoned", "streams", "overflow", "pooled", "beyond_and_race",
    "smoothed", "cached", "holes", "crowded", "beside_jax", "checked", "uploads", "decoded",
)  # fmt: skip
LAST_S = 60.0  # that are left for the core files


def lines() -> dict[str, list[int]]:
    """By program, the lines that are marked in its source."""
    inside = {
        "update": "averaged", "__getitem__": "decoded", "positions": "cached", "_trial": "forked",
        "backward": "unfrozen", "forward": "compiled", "doubled": "numbaed",
    }  # fmt: skip
    found: dict[str, list[int]] = {}
    name = part = ""
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1):
        if made := re.match(r"class (\w+)", line):
            part = made[1]
        if defined := re.match(r" *def (\w+)", line):
            name = "smoothed" if part == "Meter" and defined[1] == "update" else defined[1]
            name = inside.get(name, name)
        if line.endswith("# here"):
            found.setdefault(name, []).append(number)
    return found


def question(name: str) -> list[str]:
    """The option with which a program is asked about."""
    return ["--memory"] if name in MEMORY + ALONE else ["--slow"] if name in SLOW else []


def cores(folder: Path) -> dict[str, Any]:
    """Core files of a kernel and of the CPU, written by runs without envkit, and what the debuggers say of them."""
    from envkit.debug import cores, native

    Path("/proc/sys/kernel/core_pattern").write_text(f"{folder}/core.%p")
    whole = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    told: dict[str, Any] = {}

    def ran(name: str, **more: str) -> None:
        words = [sys.executable, str(PROGRAM), name, "fault"]
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, **more}, timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, whole),
        )  # fmt: skip
        told[name] = {"exit": done.returncode, "printed": (done.stdout + done.stderr)[-1500:]}

    def said(name: str, words: tuple[str, ...]) -> None:
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)
        told[name] = {"words": list(words), "text": (done.stdout + done.stderr)[-12000:]}

    ran("tritoned", **cores.environ(f"{folder}/gpu-core-"))
    ran("pooled")
    ran("refused")
    for path in sorted(folder.iterdir()):
        told[path.name] = {"head": path.read_bytes()[:64].hex(), "size": path.stat().st_size}
        if path.name.startswith("gpu"):
            said("gpu", cores.command(shutil.which("cuda-gdb") or "cuda-gdb", str(path)))
            continue
        for gdb in ("gdb", "cuda-gdb"):
            found = shutil.which(gdb)
            if found:
                said(f"{gdb} {path.name}", (found, "-nx", "--batch", "-iex", "set debuginfod enabled off",
                     "-iex", "set auto-load off", "-ex", "bt 40", sys.executable, str(path)))  # fmt: skip
    assert native
    return told


def main() -> int:
    """Runs them all within the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=520.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    known: dict[str, Any] = {"kind": "debug", "schema": "envkit.evidence/1", "recorded": recorded(), "lines": lines()}
    known["runs"] = {}
    lock = threading.Lock()
    began = time.monotonic()

    def keep(name: str, told: dict[str, Any]) -> None:
        with lock:
            known["runs"][name] = told
            given.out.write_text(json.dumps(known, indent=1))
        report = told.get("report", {})
        brief = {key: report.get(key) for key in ("verdict", "cause") if report.get(key)}
        stages = [step["stage"] for step in report.get("steps", ()) if step["ran"]]
        print(f"[{time.monotonic() - began:.0f}]", name, told.get("code"), told.get("seconds"), *stages,
              json.dumps(brief)[:420], told.get("trouble", "")[-400:])  # fmt: skip
        sys.stdout.flush()

    def one(run: tuple[str, str]) -> None:
        left = end - LAST_S - time.monotonic()
        if left < 20 or (given.only and run[0] not in given.only and "/".join(run) not in given.only):
            return
        command = [sys.executable, str(PROGRAM), *run]
        limit = min(70.0 if question(run[0]) else 150.0, left)
        keep("/".join(run), asked(question(run[0]), command, Path(scratch) / "-".join(run), limit))

    def together(runs: list[tuple[str, str]], width: int) -> None:
        with ThreadPoolExecutor(width) as pool:
            list(pool.map(one, runs))

    def runs(names: tuple[str, ...]) -> list[tuple[str, str]]:
        return [(name, "fault") for name in names] + [(name, "clean") for name in names if name in TWINS]

    with tempfile.TemporaryDirectory() as scratch:
        builds = {  # what others only load
            name: subprocess.Popen([sys.executable, str(PROGRAM), name, "clean"], stdout=subprocess.DEVNULL)
            for name in ("pooled", "packaged")
            if not given.only or any(each.startswith(name) for each in given.only)
        }
        if "pooled" in builds:
            builds["pooled"].wait(100)
        print(f"[{time.monotonic() - began:.0f}] built", flush=True)
        packaged = [("packaged", "fault"), ("packaged", "clean")]
        first = [run for run in runs(KERNELS + NATIVE + SEVERAL + MEMORY) if run not in packaged]
        together(first, 8)
        if "packaged" in builds:
            builds["packaged"].wait(150)
        together(packaged, 2)
        for run in runs(ALONE):
            if run == ("crowded", "fault"):
                words = [sys.executable, str(PROGRAM), "holder", "fault"]
                with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
                    assert other.stdout is not None and other.stdin is not None
                    other.stdout.readline()
                    one(run)
                    other.stdin.close()
            else:
                one(run)
        together(runs(SLOW), 1)
        with_cuda = os.environ["PATH"]
        os.environ["PATH"] = os.pathsep.join(each for each in with_cuda.split(os.pathsep) if "/gdb" not in each)
        for name in (
            ("pooled", "refused") if not given.only or "cuda-gdb" in given.only else ()
        ):  # as in an image that has cuda-gdb alone
            if end - LAST_S - time.monotonic() > 20:
                command = [sys.executable, str(PROGRAM), name, "fault"]
                keep(f"{name}/cuda-gdb", asked([], command, Path(scratch) / f"{name}-cuda", 60.0))
        os.environ["PATH"] = with_cuda
        folder = Path(scratch) / "cores"
        folder.mkdir()
        try:
            if not given.only:
                known["cores"] = cores(folder)
        except (OSError, subprocess.SubprocessError) as error:
            known["cores"] = {"trouble": repr(error)[-2000:]}
        given.out.write_text(json.dumps(known, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
