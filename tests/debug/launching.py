"""Kernels from files beside this one, compiled by NVRTC with line numbers and launched on torch's tensors.

It stands for what a person's own extension does: nothing in it knows that it is debugged.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from envkit.payload.smoke import nvrtc

KERNELS = Path(__file__).parent / "kernels"


class Kernel:
    """One kernel of a file, loaded for the current device."""

    def __init__(self, file: str, name: str) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cuda.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # makes the device's context current
        major, minor = torch.cuda.get_device_capability()
        compiler = nvrtc.Compiler()
        machine, virtual = nvrtc.targets_for(compiler.targets(), 10 * major + minor)
        path = KERNELS / file
        form = ("CUBIN", machine) if machine else ("PTX", virtual)
        code = compiler.compile(path.read_text(), str(path), form[1], form[0], ["--generate-line-info"])
        self.module = ctypes.c_void_p()
        self.function = ctypes.c_void_p()
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(self.module), code))
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, name.encode()))

    def check(self, code: int) -> None:
        """Raises RuntimeError for what is no success."""
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA error: {(text.value or b'unknown').decode()} ({code})")

    def launch(self, blocks: int, threads: int, *arguments: torch.Tensor | int) -> None:
        """Launches it on torch's current stream."""
        held: list[Any] = []
        for each in arguments:
            held.append(ctypes.c_uint64(each.data_ptr()) if isinstance(each, torch.Tensor) else ctypes.c_int(each))
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = [ctypes.c_uint(number) for number in (blocks, 1, 1, threads, 1, 1, 0)]
        self.check(self.cuda.cuLaunchKernel(self.function, *shape, stream, pointers, None))
