"""Triton kernels compiled for GPUs that need not be here: PTX and machine code by Triton and the assembler it brings.

The targets are the architectures that the run was told, or those that this torch holds kernels for; each has a process
of its own, because LLVM ends the process over a target that it cannot serve.  What came out is read, and compiled again
the same bytes must come from Triton's cache.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import resource
import struct
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from envkit.payload import isolate
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers.triton_kernels import module_of

KERNELS = {
    "add": {"left": "*fp32", "right": "*fp32", "out": "*fp32", "size": "i32"},
    "dot": {"left": "*fp16", "right": "*fp16", "out": "*fp32", "size": "i32"},
}
_SIZE = 64
_BUDGET_S = 40.0  # the slowest, a product without tensor cores, takes 2 s
_WARP = 32
_ELF64 = struct.Struct("<4s5B7x2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_EM_CUDA = 190
_PROGBITS = 1


def architecture(cubin: bytes, kernel: str) -> str:
    """The architecture, as "sm_90", whose machine code for ``kernel`` the ELF file holds.

    The flags hold it in the lowest byte in version 7 of NVIDIA's ABI and in the second one in version 8 (EF_CUDA_SM of
    LLVM's BinaryFormat/ELF.h; seen in what ptxas writes).  Raises ValueError for what is no such file.
    """
    if len(cubin) < _ELF64.size or cubin[:5] != b"\x7fELF\x02":
        raise ValueError(f"it is no 64-bit ELF file: it begins with {cubin[:5]!r}")
    head = _ELF64.unpack_from(cubin)
    abi, machine, at, flags, count, names = head[5], head[7], head[11], head[12], head[17], head[18]
    if machine != _EM_CUDA:
        raise ValueError(f"its machine is {machine}, not {_EM_CUDA} for CUDA")
    if abi not in (7, 8):
        raise ValueError(f"its ABI version {abi} is not known")
    if count == 0 or at + count * _SECTION.size > len(cubin) or names >= count:
        raise ValueError("its table of sections is not whole")
    sections = [_SECTION.unpack_from(cubin, at + place * _SECTION.size) for place in range(count)]
    text = sections[names][4]
    wanted = b".text." + kernel.encode("ascii") + b"\0"
    for name, kind, _, _, start, size, *_ in sections:
        if cubin[text + name :].startswith(wanted) and kind == _PROGBITS:
            if not size or start + size > len(cubin) or not any(cubin[start : start + size]):
                raise ValueError(f"its code for the kernel {kernel} is empty")
            return f"sm_{(flags >> 8 if abi == 8 else flags) & 0xFF}"
    raise ValueError(f"it holds no code for the kernel {kernel}")


def named_target(ptx: str) -> str:
    """The architecture that a PTX file names, without the suffix of what runs on no other: "sm_90" for sm_90a."""
    found = re.search(r"^\.target\s+(sm_\d+)[af]?\b", ptx, re.MULTILINE)
    return found[1] if found else ""


def _can_be_told_a_gpu() -> bool:
    try:
        return hasattr(importlib.import_module("triton.backends.compiler"), "GPUTarget")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("triton.backends"):
            raise
        return False


def _compile(kernel: Any, types: dict[str, str], target: str) -> Any:
    triton: Any = importlib.import_module("triton")
    compiler: Any = importlib.import_module("triton.compiler")
    gpu: Any = importlib.import_module("triton.backends.compiler").GPUTarget
    signature = dict(types)
    if "constexprs" in inspect.signature(compiler.ASTSource.__init__).parameters:  # since then it names them too
        signature["SIZE"] = "constexpr"
    source = compiler.ASTSource(kernel, signature, {"SIZE": _SIZE})
    return triton.compile(source, target=gpu("cuda", int(target.partition("_")[2]), _WARP)).asm


def _make(bench: Bench, module: Any, name: str, target: str) -> dict[str, Any]:
    """Compiles one kernel for one target: its counts of what is wrong, and what that is."""
    kernel = getattr(module, name)
    made = _compile(kernel, KERNELS[name], target)
    cubin, told = bytes(made["cubin"]), []
    named = named_target(made["ptx"])
    if named != target:
        told.append(f"its ptx names the target {named or 'none'}")
    bench.count("ptx.wrong", int(named != target))
    try:
        holds, why = architecture(cubin, name), ""
    except ValueError as error:
        holds, why = "", str(error)
    if holds != target:
        told.append(why or f"its machine code is for {holds}")
    bench.count("cubin.wrong", int(holds != target))
    again = bytes(_compile(kernel, KERNELS[name], target)["cubin"])
    first, second = (torch.tensor(list(piece), dtype=torch.uint8) for piece in (cubin, again))
    bench.exact("cache.wrong", first, second)
    return {"measures": bench.measures, "told": told}


def _targets(bench: Bench) -> list[str]:
    if bench.targets:
        return sorted(set(bench.targets))
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()  # torch.cuda.get_arch_list() asks for a GPU first
    return [word for word in (flags or "").split() if re.fullmatch(r"sm_\d+", word)]


def _reason(words: str, stderr: str = "") -> str:
    """One line on why a kernel was not made: what ptxas or LLVM says, rather than what wraps it."""
    found = re.search(r"ptxas\S*\s+fatal\s*:.*|LLVM ERROR:.*", f"{words}\n{stderr}")
    first = words.strip().partition("\n")[0]
    return (f"{first.partition(':')[0]}: {found[0].strip()}" if found else first)[:300]


def _make_all(injected_fault: str, module: Any, target: str, say: Callable[[Any], None]) -> None:
    """Compiles every kernel for one target and says of each what came of it, as it comes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a target that ends this process is told and leaves no file
    for name in KERNELS:
        try:
            say({name: _make(Bench("cpu", injected_fault), module, name, target)})
        except Exception as error:  # which one a target that is not known raises differs between releases
            traceback.print_exc()
            say({name: {"told": [_reason(f"{type(error).__name__}: {error}")]}})


def run(bench: Bench) -> None:
    """Measures ``<target>.<kernel>.offered``, how many were ``made``, and ``ptx``, ``cubin``, ``cache`` ``.wrong``."""
    if importlib.util.find_spec("triton") is None:
        bench.not_applicable("triton is not installed")
    if not _can_be_told_a_gpu():
        lacks = "cannot be told a GPU that is not here (triton.backends.compiler.GPUTarget)"
        bench.not_applicable(f"this release of triton {lacks}")
    targets = _targets(bench)
    if not targets:
        bench.not_applicable("no architecture was named and this torch holds kernels for none")
    folder = bench.folder()
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton-targets")
    os.environ.pop("TRITON_ALWAYS_COMPILE", None)  # with it the cache gives nothing back
    module = module_of(folder, "triton-targets")
    bench.note("made", 0)
    for name in ("ptx.wrong", "cubin.wrong", "cache.wrong"):
        bench.count(name, 0)
    lost: list[str] = []
    ended: dict[str, set[str]] = {target: set() for target in targets}

    def heard(target: str, said: dict[str, Any]) -> None:
        for name, made in said.items():
            ended[target].add(name)
            bench.note(f"{target}.{name}.offered", "measures" in made)
            bench.count("made", "measures" in made)
            for measure, value in made.get("measures", {}).items():
                bench.count(measure, value)
            lost.extend(f"{target} {name}: {words}" for words in made["told"])

    def done(task: isolate.Task, ending: isolate.Ending) -> None:
        words = _reason(" ".join(filter(None, (ending.ended, ending.signal, ending.detail))), ending.stderr_tail)
        for name in sorted(set(KERNELS) - ended[task.device]):
            heard(task.device, {name: {"told": [words]}})

    tasks = []
    for target in targets:
        work = partial(_make_all, bench.injected_fault, module, target)
        tasks.append(isolate.Task("", target, _BUDGET_S, work, heard=partial(heard, target)))
    isolate.run([tasks[::2], tasks[1::2]], _BUDGET_S * len(tasks), done)
    bench.detail = "\n".join(sorted(lost))
