"""Debugger and profilers, where the image has them: each must see one kernel of a program without a framework.

That a tool is refused what it needs (performance counters, ptrace) is noted and is no fault of the image.
"""

from __future__ import annotations

import ctypes
import os
import re
from functools import partial

from envkit.payload import programs
from envkit.payload.smoke import nvrtc, provoke, sanitize
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers.stages import own_folder

TOOLS = ("cuda-gdb", "ncu", "nsys")
_KERNEL = "envkit_watched"  # stands in no command line, so that a tool that prints it has seen the kernel
_SOURCE = """
extern "C" __global__ void envkit_watched(volatile unsigned* out)
{
    out[threadIdx.x] = threadIdx.x;
}
"""
_TOOL_S = 90.0
_COUNTER = "sm__cycles_elapsed.max"
_READ = re.compile(re.escape(_COUNTER) + r"\s+\S+\s+([\d.,]+)")
# A debugger that cannot turn off the address space's randomization says so and goes on: that is no refusal.
_REFUSED = re.compile(
    r"^(?!.*address space randomization).*(?:ERR_NVGPUCTRPERM|ptrace|[Oo]peration not permitted).*$", re.M
)


def launch(device: str, planted: str) -> None:
    """What the watched program does: one kernel, or none."""
    gpu = provoke.begin(device)
    driver = gpu.driver
    _, kernels = nvrtc.build(driver, gpu.number, _SOURCE, [_KERNEL], ["--generate-line-info"])
    out = driver.take(128)
    if planted == "1":
        driver.launch(kernels[_KERNEL], 1, 32, [ctypes.c_uint64(out)])
    driver.synchronize()


def commands(tool: str, path: str, argv: tuple[str, ...], stem: str) -> list[tuple[str, ...]]:
    """What is run one after another to have the tool at ``path`` watch ``argv`` and tell what it saw."""
    if tool == "cuda-gdb":
        asked = ("set pagination off", "set cuda break_on_launch application", "run", "info cuda kernels", "kill")
        words = [word for line in asked for word in ("-ex", line)]
        return [(path, "-nx", "--batch", *words, "--args", *argv)]
    if tool == "ncu":
        return [(path, "--target-processes", "all", "--metrics", _COUNTER, *argv)]
    profile = ("profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true", "--output")
    stats = ("stats", "--force-export=true", "--report", "cuda_gpu_kern_sum", "--format", "csv", stem + ".nsys-rep")
    return [(path, *profile, stem, *argv), (path, *stats)]


def saw(tool: str, said: str) -> bool:
    """Whether what the tool printed shows that it saw the kernel, and read the counter if it reads one."""
    if _KERNEL not in said:
        return False
    read = _READ.search(said)
    return tool != "ncu" or (read is not None and float(read.group(1).replace(",", "")) > 0)


def refusal(said: str) -> str:
    """The line that says that the tool was refused what it needs; empty if there is none."""
    found = _REFUSED.search(said)
    return found.group(0).strip()[:300] if found else ""


def _used(tool: str, argv: tuple[str, ...], stem: str) -> str:
    said = ""
    for command in commands(tool, sanitize.found(tool), argv, stem):
        said += programs.told(command, _TOOL_S)[1] + "\n"
    return said[-20000:]


def _last(said: str) -> str:
    return " / ".join(line.strip() for line in said.strip().splitlines()[-4:])[:400]


def run(bench: Bench) -> None:
    """Measures for each tool ``TOOL.offered``, ``TOOL.refused`` and ``TOOL.wrong``, then ``after.wrong``."""
    here = [tool for tool in TOOLS if sanitize.found(tool)]
    if not here:
        bench.not_applicable(f"there is none of {', '.join(TOOLS)} in PATH or in a CUDA toolkit")
    nvrtc.Compiler()  # which says that there is none before anything is started
    folder = own_folder(bench, "error-debugger")
    argv = programs.interpreter(__name__, "launch", [bench.device, str(int(provoke.planted(bench)))])
    for tool in TOOLS:
        bench.note(f"{tool}.offered", int(tool in here))
        if tool not in here:
            continue
        work = partial(_used, tool, argv, os.path.join(folder, tool))
        ending = provoke.ends({tool: work}, 2 * _TOOL_S + 10.0)[tool]
        said = str(ending.value) if ending.ended == "ran" else ""
        seen = saw(tool, said)
        refused = "" if seen else refusal(said)
        bench.note(f"{tool}.refused", int(bool(refused)))
        why = refused or _last(said) or provoke.words(ending)
        provoke.tell(bench, f"{tool}.wrong", seen or bool(refused), f"{tool}: {'saw the kernel' if seen else why}")
    if all(bench.measures[f"{tool}.refused"] for tool in here):
        bench.not_applicable(f"each tool here is refused what it needs: {bench.detail}")
    provoke.after_driver(bench)
