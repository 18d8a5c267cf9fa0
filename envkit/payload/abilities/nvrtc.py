"""NVRTC, with which torch compiles some kernels when they are used: the copy that torch opens, and what it compiles."""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from envkit.payload import elf
from envkit.payload.abilities import Attempt
from envkit.payload.probe import libs

_KERNEL = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] = 2.0f * __expf(x[threadIdx.x]); }\n'


def of(torch: str) -> tuple[str, str]:
    """The NVRTC that torch's own shim links: its soname, and its path where the shim's RPATH finds it.

    Both are empty where this torch has no shim, as one for the CPU alone.
    """
    shim = os.path.join(torch, "lib", "libcaffe2_nvrtc.so")
    try:
        file = elf.read(elf.mapped(shim))
    except (OSError, ValueError):
        return "", ""
    soname = next((one for one in file.needed if libs.family(one) == "nvrtc"), "")
    for folder in [*elf.expand((*file.rpath, *file.runpath), shim), os.path.dirname(shim)]:
        path = os.path.realpath(os.path.join(folder, soname))
        if soname and os.path.exists(path):
            return soname, path
    return soname, ""


class _Nvrtc:
    """NVRTC through ctypes; ``path`` may be a soname, which the linker finds."""

    def __init__(self, path: str) -> None:
        folder = glob.escape(os.path.dirname(path))
        for builtins in glob.glob(os.path.join(folder, "libnvrtc-builtins.so*")) if folder else ():
            if ".alt." not in builtins:
                ctypes.CDLL(builtins)  # as torch does: the wheels of CUDA 13 give NVRTC no path to them
        self.library: Any = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, function: str, *arguments: Any) -> None:
        code = getattr(self.library, function)(*arguments)
        if code:
            raise RuntimeError(f"{function} returned {code} ({self.library.nvrtcGetErrorString(code).decode()})")

    def targets(self) -> list[int]:
        number = ctypes.c_int()
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(number))
        known = (ctypes.c_int * number.value)()
        self.call("nvrtcGetSupportedArchs", known)
        return sorted(known)

    def compile(self, target: str) -> None:
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), _KERNEL.encode(), b"twice.cu", 0, None, None)
        options = (ctypes.c_char_p * 1)(f"--gpu-architecture={target}".encode())
        self.call("nvrtcCompileProgram", program, 1, options)


def _compile(path: str, capability: int) -> str:
    """Compiles for a GPU as torch does: for the newest target that is not above it (0: for the newest of all)."""
    compiler = _Nvrtc(path)
    known = [target for target in compiler.targets() if not capability or target <= capability]
    if not known:
        raise RuntimeError(f"it knows no target for compute capability {capability}")
    target = f"compute_{known[-1]}"
    compiler.compile(target)
    return target


def attempts(torch: str, mapped: Sequence[str], capabilities: Sequence[int]) -> Iterator[Attempt]:
    """A compilation for each GPU, or one for the newest target; none where this torch has no part that uses NVRTC.

    ``torch`` is its folder, ``mapped`` what its import mapped, ``capabilities`` as NVRTC counts them.
    """
    soname, path = of(torch)
    if soname:
        path = next((one for one in mapped if os.path.basename(one) == soname), path or soname)
        for capability in capabilities or (0,):
            what = f"sm_{capability}" if capability else "its newest target"
            yield Attempt("nvrtc", what, partial(_compile, path, capability), path)
