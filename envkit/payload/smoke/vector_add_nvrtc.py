"""A kernel compiled by NVRTC and launched through the driver, with no framework between: exact.

Compiled twice, to machine code for this GPU and to PTX that the driver compiles.  The kernels add unsigned integers,
one by one and four by four, from bases that are aligned to 4 bytes only, and must leave what lies around the result.
"""

from __future__ import annotations

import array
import ctypes
import ctypes.util
import glob
import os
import sys
from typing import TYPE_CHECKING, Any

from envkit.payload.isolate import Unfit
from envkit.payload.smoke.driver import Driver

if TYPE_CHECKING:
    from envkit.payload.smoke.bench import Bench

_PTX_TOO_NEW = 222  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION, cuda.h
_SIZE = (1 << 17) + 13
_GUARD = 64
_POISON = 0xA5A5A5A5
_SOURCE = b"""
extern "C" __global__ void add_one(const unsigned* a, const unsigned* b, unsigned* c, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void add_four(const unsigned* a, const unsigned* b, unsigned* c, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned head = (unsigned)((16ull - ((unsigned long long)a & 15ull)) & 15ull) / 4u;
    if (head > n) head = n;
    unsigned quads = (n - head) / 4u;
    unsigned tail = head + quads * 4u;
    if (i < head) c[i] = a[i] + b[i];
    if (i < quads) {
        uint4 x = *(const uint4*)(a + head + 4u * i);
        uint4 y = *(const uint4*)(b + head + 4u * i);
        *(uint4*)(c + head + 4u * i) = make_uint4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
    if (tail + i < n) c[tail + i] = a[tail + i] + b[tail + i];
}
"""


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
        raise Unfit("there is no libnvrtc among the wheels, in a CUDA toolkit or in the linker's cache")
    return found


class _Compiler:
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
        code = getattr(self.library, function)(*arguments)
        if code:
            raise RuntimeError(f"{function} returned {code} ({self.library.nvrtcGetErrorString(code).decode()})")

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def targets(self) -> list[int]:
        number = ctypes.c_int()
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(number))
        known = (ctypes.c_int * number.value)()
        self.call("nvrtcGetSupportedArchs", known)
        return sorted(known)

    def compile(self, target: str, form: str) -> bytes:
        """The code for ``target`` as "PTX" or "CUBIN"."""
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), _SOURCE, b"add.cu", 0, None, None)
        options = (ctypes.c_char_p * 1)(f"--gpu-architecture={target}".encode())
        code = self.library.nvrtcCompileProgram(program, 1, options)
        if code:
            size = ctypes.c_size_t()
            self.call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            self.call("nvrtcGetProgramLog", program, log)
            said = self.library.nvrtcGetErrorString(code).decode()
            raise RuntimeError(f"nvrtcCompileProgram for {target} returned {code} ({said}): {log.value.decode()}")
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{form}Size", program, ctypes.byref(size))
        out = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{form}", program, out)
        return out.raw


def _numbers(seed: int) -> array.array[int]:
    state, out = seed, array.array("I")
    for _ in range(_SIZE):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state)
    return out


def _wrong(driver: Driver, kernel: Any, operands: list[Any], want: Any, shift: int, sabotage: str) -> int:
    """Elements that differ after one launch from bases moved by ``shift`` elements, the guards included."""
    room = 4 * (_SIZE + 2 * _GUARD)
    bases = []
    for values in (*operands, None):
        base = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(base), ctypes.c_size_t(room))
        image = array.array("I", [_POISON]) * (_SIZE + 2 * _GUARD)
        if values is not None:
            image[_GUARD + shift : _GUARD + shift + _SIZE] = values
        driver.call("cuMemcpyHtoD_v2", base, ctypes.c_char_p(image.tobytes()), ctypes.c_size_t(room))
        bases.append(base)
    pointers = [ctypes.c_uint64(base.value + 4 * (_GUARD + shift)) for base in bases]
    arguments = [*pointers, ctypes.c_uint(_SIZE)]
    packed = (ctypes.c_void_p * 4)(*[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in arguments])
    blocks = (_SIZE + 255) // 256
    driver.call("cuLaunchKernel", kernel, blocks, 1, 1, 256, 1, 1, 0, None, packed, None)
    driver.call("cuCtxSynchronize")
    raw = ctypes.create_string_buffer(room)
    driver.call("cuMemcpyDtoH_v2", raw, bases[2], ctypes.c_size_t(room))
    for base in bases:
        driver.call("cuMemFree_v2", base)
    got = array.array("I")
    got.frombytes(raw.raw)
    if sabotage:
        got[_GUARD + shift + _SIZE // 2] ^= 1
    expected = array.array("I", [_POISON]) * (_SIZE + 2 * _GUARD)
    expected[_GUARD + shift : _GUARD + shift + _SIZE] = want
    return 0 if got == expected else sum(got[place] != expected[place] for place in range(len(got)))


def run(bench: Bench) -> None:
    """Measures ``cubin.wrong`` and ``ptx.wrong``, and by ``.offered`` whether either form can be used here.

    Machine code is not offered where this NVRTC does not know the GPU; PTX is not offered where it is newer than the
    driver can compile.
    """
    index = int(bench.device.rpartition(":")[2])
    driver, compiler = Driver(), _Compiler()
    capability = driver.capability(index)
    context = ctypes.c_void_p()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), driver.device(index))
    driver.call("cuCtxSetCurrent", context)
    older = [target for target in compiler.targets() if target <= capability]
    same = [target for target in older if target // 10 == capability // 10]
    bench.detail = f"nvrtc {compiler.version()} from {compiler.path}"
    one, two = _numbers(1), _numbers(2)
    want = array.array("I", [(one[place] + two[place]) & 0xFFFFFFFF for place in range(_SIZE)])
    for form, prefix, known in (("cubin", "sm_", same), ("ptx", "compute_", older)):
        bench.note(form + ".offered", int(bool(known)))
        if not known:
            continue
        code = compiler.compile(f"{prefix}{known[-1]}", form.upper())
        module = ctypes.c_void_p()
        loaded = driver.library.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(code))
        if form == "ptx" and loaded == _PTX_TOO_NEW:
            bench.measures[form + ".offered"] = 0.0
            continue
        driver.check(f"cuModuleLoadData of {form} for {prefix}{known[-1]}", loaded)
        for name in (b"add_one", b"add_four"):
            kernel = ctypes.c_void_p()
            driver.call("cuModuleGetFunction", ctypes.byref(kernel), module, name)
            for shift in range(4):
                wrong = _wrong(driver, kernel, [one, two], want, shift, bench.sabotage)
                bench.count(form + ".wrong", wrong)
