"""NVRTC through ctypes: compiles a kernel's source for the driver to load, with no framework and no headers."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from envkit.payload.isolate import NotApplicable

if TYPE_CHECKING:
    from envkit.payload.smoke.driver import Driver


class Refused(RuntimeError):
    """The compiler does not take a source; the text holds its log."""


def _library() -> str:
    """The NVRTC that a process here would use: of the wheels, of the toolkit, then as the linker finds it."""
    folders = []
    for entry in sys.path:
        folders += sorted(glob.glob(os.path.join(glob.escape(entry or "."), "nvidia", "*", "lib")), reverse=True)
    roots = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    folders += [os.path.join(root, "lib64") for root in roots if root]
    folders += sorted(glob.glob("/usr/local/cuda-*/lib64"), reverse=True)
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "libnvrtc.so*")), reverse=True):
            if ".alt." not in path:
                return path
    found = ctypes.util.find_library("nvrtc")
    if not found:
        raise NotApplicable("there is no libnvrtc among the wheels, in a CUDA toolkit or in the linker's cache")
    return found


class Compiler:
    """The NVRTC of this place.  Raises NotApplicable where there is none, RuntimeError where it cannot be used."""

    def __init__(self) -> None:
        self.path = _library()
        # NVRTC opens its built-in functions by name alone, and some wheels give it no path to the folder they share;
        # torch opens them first for the same reason.
        for builtins in glob.glob(os.path.join(glob.escape(os.path.dirname(self.path)), "libnvrtc-builtins.so*")):
            if ".alt." not in builtins:
                ctypes.CDLL(builtins)
        self.library: Any = ctypes.CDLL(self.path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function of NVRTC; raises RuntimeError with its own name for what went wrong."""
        code = getattr(self.library, function)(*arguments)
        if code:
            raise RuntimeError(f"{function} returned {code} ({self.library.nvrtcGetErrorString(code).decode()})")

    def version(self) -> str:
        """Its release, as "MAJOR.MINOR"."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def targets(self) -> list[int]:
        """The compute capabilities that it knows, ten times the major number plus the minor one, in order."""
        number = ctypes.c_int()
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(number))
        known = (ctypes.c_int * number.value)()
        self.call("nvrtcGetSupportedArchs", known)
        return sorted(known)

    def compile(self, source: str, name: str, target: str, form: str, options: Sequence[str] = ()) -> bytes:
        """The code of ``source`` for ``target`` ("sm_NN" or "compute_NN") as ``form`` "PTX" or "CUBIN".

        ``name`` is what the log calls the source.  Raises Refused with the log where it does not compile.
        """
        program = ctypes.c_void_p()
        text, title = ctypes.c_char_p(source.encode()), ctypes.c_char_p(name.encode())
        self.call("nvrtcCreateProgram", ctypes.byref(program), text, title, 0, None, None)
        try:
            words = [f"--gpu-architecture={target}".encode(), *(option.encode() for option in options)]
            code = self.library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
            if code:
                log = self._get("nvrtcGetProgramLog", program).rstrip(b"\0").decode("utf-8", "replace").strip()
                said = self.library.nvrtcGetErrorString(code).decode()
                raise Refused(f"nvrtcCompileProgram for {target} returned {code} ({said}): {log}")
            return self._get(f"nvrtcGet{form}", program)
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))

    def _get(self, function: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self.call(function + "Size", program, ctypes.byref(size))
        out = ctypes.create_string_buffer(size.value)
        self.call(function, program, out)
        return out.raw


def targets_for(known: Sequence[int], capability: int) -> tuple[str, str]:
    """The newest targets that fit a GPU: for machine code ("sm_NN") and for PTX ("compute_NN"); empty for none.

    Machine code runs on later GPUs of its major number alone (CUDA programming guide, binary compatibility).
    """
    older = [target for target in sorted(known) if target <= capability]
    same = [target for target in older if target // 10 == capability // 10]
    return (f"sm_{same[-1]}" if same else "", f"compute_{older[-1]}" if older else "")


def build(
    driver: Driver, index: int, source: str, names: Sequence[str], options: Sequence[str] = (), compiler: Any = None
) -> tuple[ctypes.c_void_p, dict[str, ctypes.c_void_p]]:
    """Compiles ``source`` for the device, whose context must be current: the loaded module and its kernels by name.

    Machine code where this NVRTC knows the GPU, else PTX.  Raises NotApplicable where it knows neither.
    """
    compiler = compiler or Compiler()
    capability = driver.capability(index)
    machine, virtual = targets_for(compiler.targets(), capability)
    if not virtual:
        what = f"NVRTC {compiler.version()} at {compiler.path}"
        raise NotApplicable(f"{what} knows no target for compute capability {capability}")
    code = compiler.compile(source, f"{names[0]}.cu", machine or virtual, "CUBIN" if machine else "PTX", options)
    module = driver.module(code, f"{names[0]} for {machine or virtual}")
    return module, {name: driver.kernel(module, name) for name in names}
