"""Vector loads from every base: four floats, two halves or two bfloat16 at once, and words that lie at odd bytes.

Bases at all offsets of 0 to 15 bytes take a scalar head, vectors and a scalar tail; bases at odd bytes are read as two
aligned words.  The numbers are small integers, so every result is exact, and what lies around it must stay.
"""

from __future__ import annotations

import array
import ctypes
import random
import struct
from collections.abc import Sequence
from typing import Any

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import SEED, Bench
from envkit.payload.smoke.driver import Driver, number_of
from envkit.payload.smoke.nvrtc import load

_SIZES = (1, 2, 5, 4099)  # elements: less than a head, and with every rest
_GUARD = 64  # bytes around each result
_THREADS = 128
# bytes, the largest number whose double is exact, and the first compute capability with arithmetic on two of them
_TYPES = {"fp32": (4, 1 << 22, 0), "fp16": (2, 1000, 53), "bf16": (2, 100, 80)}
# No header is used, so that no image lacks one: halves and bfloat16 are added as the PTX instruction does.
_SOURCE = """
typedef unsigned short u16;
typedef unsigned long long u64;

struct Fp32 {
    typedef float Element;
    typedef float4 Vector;
    static __device__ float one(float a) { return a + a; }
    static __device__ float4 all(float4 a) { return make_float4(a.x + a.x, a.y + a.y, a.z + a.z, a.w + a.w); }
};

struct Fp16 {
    typedef u16 Element;
    typedef unsigned Vector;
    static __device__ unsigned all(unsigned a)
    {
        unsigned r = 0;
#if __CUDA_ARCH__ >= 530
        asm("add.f16x2 %0, %1, %1;" : "=r"(r) : "r"(a));
#endif
        return r;
    }
    static __device__ u16 one(u16 a) { return (u16)all(a); }
};

struct Bf16 {
    typedef u16 Element;
    typedef unsigned Vector;
    static __device__ unsigned all(unsigned a)
    {
        unsigned r = 0;
#if __CUDA_ARCH__ >= 800
        asm("fma.rn.bf16x2 %0, %1, %2, %1;" : "=r"(r) : "r"(a), "r"(0x3F803F80u));
#endif
        return r;
    }
    static __device__ u16 one(u16 a) { return (u16)all(a); }
};

template <class T> __device__ void twice(const typename T::Element* x, typename T::Element* y, unsigned n)
{
    const unsigned wide = sizeof(typename T::Vector) / sizeof(typename T::Element);
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned head = (unsigned)((0ull - (u64)x) % sizeof(typename T::Vector)) / sizeof(typename T::Element);
    if (head > n) head = n;
    unsigned vectors = (n - head) / wide, tail = head + vectors * wide;
    if (i < head) y[i] = T::one(x[i]);
    if (i < vectors)
        ((typename T::Vector*)(y + head))[i] = T::all(((const typename T::Vector*)(x + head))[i]);
#ifndef SKIPPED
    if (i < n - tail) y[tail + i] = T::one(x[tail + i]);
#endif
}

extern "C" __global__ void twice_fp32(const float* x, float* y, unsigned n) { twice<Fp32>(x, y, n); }
extern "C" __global__ void twice_fp16(const u16* x, u16* y, unsigned n) { twice<Fp16>(x, y, n); }
extern "C" __global__ void twice_bf16(const u16* x, u16* y, unsigned n) { twice<Bf16>(x, y, n); }

extern "C" __global__ void straighten(const unsigned char* x, unsigned* y, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef SKIPPED
    if (i == n - 1) return;
#endif
    if (i >= n) return;
    unsigned askew = (unsigned)((u64)x & 3u) * 8u;
    const unsigned* words = (const unsigned*)(x - askew / 8u);
    y[i] = askew ? (words[i] >> askew) | (words[i + 1] << (32u - askew)) : words[i];
}
"""


def encoded(kind: str, numbers: Sequence[int]) -> bytes:
    """Small integers as the device holds them; bfloat16 is the upper half of a float, which holds them exactly."""
    if kind == "fp16":
        return struct.pack(f"<{len(numbers)}e", *numbers)
    floats = array.array("f", numbers).tobytes()
    if kind == "fp32":
        return floats
    halves = bytearray(len(floats) // 2)
    halves[0::2], halves[1::2] = floats[2::4], floats[3::4]
    return bytes(halves)


def _check(
    bench: Bench, driver: Driver, kernel: Any, name: str, shifts: tuple[int, int], words: tuple[bytes, bytes, int]
) -> None:
    """One launch from bases moved by ``shifts`` bytes; ``words``: the input, the result and the number of elements."""
    data, want, count = words
    place, back = _GUARD + shifts[0], _GUARD + shifts[1]
    room = len(data) + 2 * _GUARD + 16
    with driver.room(room, room) as (x, y):
        driver.fill(x, raw.POISON, room)
        driver.fill(y, raw.POISON, room)
        driver.write(x + place, data)
        pointers = [ctypes.c_uint64(x + place), ctypes.c_uint64(y + back)]
        blocks = (count + _THREADS - 1) // _THREADS
        driver.launch(kernel, blocks, _THREADS, [*pointers, ctypes.c_uint(count)])
        driver.synchronize()
        got = driver.read(y, room)
    poison = bytes([raw.POISON])
    raw.compare(bench, name, got, poison * back + want + poison * (room - back - len(want)))


def run(bench: Bench) -> None:
    """Measures in bytes ``fp32.wrong``, ``fp16.wrong``, ``bf16.wrong`` (where ``.offered``) and ``askew.wrong``.

    Injected faults: "ulp", "one", and "block", kernels that leave out the tail.
    """
    driver, index = Driver(), number_of(bench.device)
    driver.context(index)
    names = [f"twice_{kind}" for kind in _TYPES]
    options = ["-DSKIPPED"] if bench.injected_fault == "block" else []
    kernels = load(driver, index, _SOURCE, [*names, "straighten"], options)
    here = driver.capability(index)
    for kind, (_, _, least) in _TYPES.items():
        bench.note(f"{kind}.offered", int(here >= least))
    draw = random.Random(SEED)
    for size in _SIZES:
        for kind, (width, most, least) in _TYPES.items():
            if here < least:
                continue
            numbers = [draw.randint(-most, most) or 1 for _ in range(size)]
            words = (encoded(kind, numbers), encoded(kind, [2 * number for number in numbers]), size)
            for shift in range(0, 16, width):
                _check(bench, driver, kernels[f"twice_{kind}"], f"{kind}.wrong", (shift, shift), words)
        data = raw.fresh(4 * size, size)
        for shift in range(16):
            _check(bench, driver, kernels["straighten"], "askew.wrong", (shift, 0), (data, data, size))
