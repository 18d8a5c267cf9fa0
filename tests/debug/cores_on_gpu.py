"""Core dumps of a GPU and of the CPU, written without envkit and opened by `envkit debug --core`, and two stages.

``python tests/debug/cores_on_gpu.py --out evidence.json`` with a Python that holds torch and what envkit needs, and the
CUDA toolkit; with ``--image`` the dumps are written in a container of the image and opened in another.  Without it the
``native`` stage runs, with the debuggers that are on the PATH, and the ``profile`` stage with ``--nsys FOLDER``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from served_on_gpu import HERE, ROOT, asked, recorded

from envkit.debug import cores

LATER, SERVED = str(HERE / "later_programs.py"), str(HERE / "served_programs.py")
LIGHT = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1", "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1"}
WHOLE = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1"}
BOTH = {**LIGHT, "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION": "1"}  # the driver's default: the CPU's core beside it
ENDS = {"CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION": "0"}
SMALL = {**WHOLE, **ENDS, "CUDA_COREDUMP_GENERATION_FLAGS": cores.environ("")["CUDA_COREDUMP_GENERATION_FLAGS"]}
# The same beside 2 GiB of memory.
LADEN = f"""import runpy, sys, torch
held = torch.ones(1 << 29, device="cuda")
sys.argv = ["oob.py", "fault"]
sys.path.insert(0, {str(HERE)!r})
runpy.run_path({str(HERE / "oob.py")!r})"""
GPU: dict[str, tuple[list[str], dict[str, str]]] = {
    "oob": ([str(HERE / "oob.py"), "fault"], {**LIGHT, **ENDS}),
    "whole": ([str(HERE / "oob.py"), "fault"], {**WHOLE, **ENDS}),
    "both": ([str(HERE / "oob.py"), "fault"], BOTH),
    "laden": (["-c", LADEN], SMALL),
    "laden-older": (["-c", LADEN], {**LIGHT, **ENDS}),
    "misaligned": ([str(HERE / "misaligned.py"), "fault"], {**LIGHT, **ENDS}),
    "tritoned": ([LATER, "tritoned", "fault"], {**LIGHT, **ENDS}),
    "halves": ([LATER, "halves", "fault"], {**LIGHT, **ENDS}),
    "labels": ([SERVED, "labels", "fault"], {**LIGHT, **ENDS}),
    "race": ([str(HERE / "missing_barrier.py"), "fault"], {**LIGHT, **ENDS}),  # fails, and no kernel does
    "clean": ([str(HERE / "oob.py"), "clean"], {**LIGHT, **ENDS}),
}
CPU = ("pooled", "refused")
BUILT = "/opt/later"  # where their extension is built, by the first that runs
NATIVE = ("pooled", "staged", "refused", "flushed")
LOOPS = "import torch\nx = torch.ones(4096, 4096).cuda()\nwhile True: float((x @ x).sum())"


def _no_limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def written(words: list[str], environ: dict[str, str], folder: Path, around: list[str]) -> dict[str, Any]:
    """What a program without envkit left in ``folder``, in a container if ``around`` begins one."""
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    names = {
        **environ,
        "PYTHONPATH": path,
        "CUDA_COREDUMP_FILE": f"{folder}/gpu.%p",
        "CUDA_COREDUMP_SHOW_PROGRESS": "1",
    }
    if around:
        at = around.index("IMAGE")
        each = [word for name, value in names.items() for word in ("--env", f"{name}={value}")]
        argv = [*around[:at], *each, "--volume", f"{folder}:{folder}", *around[at + 1 :], "python3", *words]
    else:
        argv = [sys.executable, *words]
    started = time.monotonic()
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150, preexec_fn=_no_limit,
        env={**os.environ, **({} if around else names)}, cwd=folder,
    )  # fmt: skip
    left = {path.name: {"size": path.stat().st_size} for path in sorted(folder.iterdir())}
    return {
        "exit": done.returncode, "seconds": round(time.monotonic() - started, 1), "left": left,
        "printed": (done.stdout + done.stderr)[-1500:],
    }  # fmt: skip


def opened(path: Path, options: list[str], out: Path) -> dict[str, Any]:
    """What `envkit debug --core` says of a dump."""
    environ = dict(os.environ, NO_COLOR="1", PYTHONPATH=f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    words = [sys.executable, "-m", "envkit", "debug", "--core", str(path), "--format", "json", "--out", str(out)]
    started = time.monotonic()
    done = subprocess.run(
        [*words, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, env=environ
    )
    told: dict[str, Any] = {"seconds": round(time.monotonic() - started, 1), "code": done.returncode}
    try:
        told["report"] = json.loads(done.stdout)
    except ValueError:
        told["trouble"] = (done.stdout + done.stderr)[-3000:]
    text = out / "opened" / "output.txt"
    told["text"] = text.read_text("utf-8", "replace")[-12000:] if text.exists() else ""
    return told


def main() -> int:
    """Writes the dumps, opens them, and runs the two stages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--image", default="")
    parser.add_argument("--engine", default="docker", choices=("podman", "docker"))
    parser.add_argument("--mount", action="append", default=[])
    parser.add_argument("--nsys", default="")
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    known: dict[str, Any] = {"kind": "debug", "schema": "envkit.evidence/1"}
    known["recorded"] = {**recorded(), "python": ".".join(map(str, sys.version_info[:2])), "image": given.image}
    known["dumps"] = {}
    mounts = [word for each in [*given.mount, f"{ROOT}:{ROOT}:ro"] for word in ("--volume", each)]
    place = ["--image", given.image, "--engine", given.engine, *mounts]
    around = [given.engine, "run", "--rm", "--network", "none", "--device", "nvidia.com/gpu=all", "--ulimit", "core=-1",
              *mounts, "IMAGE", given.image]  # fmt: skip
    wanted = [*GPU, *CPU, "native", "profile"]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        top = Path(scratch)
        top.chmod(0o755)

        def case(name: str, words: list[str], environ: dict[str, str], inside: bool) -> None:
            if end - time.monotonic() < 40:
                return
            key = f"{name}/image" if inside else name
            folder = top / key.replace("/", "-")
            try:
                told = written(words, environ, folder, around if inside else [])
                for number, path in enumerate(sorted(folder.iterdir())):
                    told[path.name.partition(".")[0]] = opened(
                        path, place if inside else [], top / f"{folder.name}-{number}-out"
                    )
                    if inside and name == "oob":  # and where the kernel's sources are not
                        told["bare"] = opened(path, [], top / f"{folder.name}-bare-out")
            except (OSError, subprocess.SubprocessError) as error:
                told = {"trouble": repr(error)[-2000:]}
            known["dumps"][key] = told
            given.out.write_text(json.dumps(known, indent=1))
            said = [(k, v.get("code"), v.get("report", {}).get("cause", v.get("trouble", "")))
                    for k, v in told.items() if isinstance(v, dict) and "code" in v]  # fmt: skip
            print(
                key, told.get("exit"), told.get("seconds"), told.get("left"), said, told.get("trouble", ""), flush=True
            )

        inside = bool(given.image)
        for name in (each for each in wanted if not given.only or each in given.only):
            if name in GPU:
                case(name, *GPU[name], inside)
            elif name in CPU:
                where = top / f"{name}{'-image' if inside else ''}"
                Path("/proc/sys/kernel/core_pattern").write_text(f"{where}/core.%P")
                case(name, [LATER, name, "fault"], {"TMPDIR": BUILT}, inside)
            elif name == "native" and not inside:
                for each in NATIVE:
                    told = asked([], [sys.executable, LATER, each, "fault"], top / f"native-{each}", 60.0)
                    known.setdefault("native", {})[each] = told
                    print(each, told.get("code"), told["seconds"], told.get("report", {}).get("cause"), flush=True)
            elif given.nsys and name == "profile":
                os.environ["PATH"] = f"{given.nsys}:{os.environ['PATH']}"
                known["profile"] = told = asked(
                    ["--stage-timeout", "30"], [sys.executable, "-c", LOOPS], top / "profile", 150.0
                )
                steps = [(each["stage"], each.get("found")) for each in told.get("report", {}).get("steps", ())]
                print("profile", told.get("code"), told["seconds"], steps, flush=True)
            given.out.write_text(json.dumps(known, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
