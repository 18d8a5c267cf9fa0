"""The source of the recurrent kernel, compiled for the CPU: against its definition, and its derivatives."""

from __future__ import annotations

import ctypes
import math
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from envkit.payload.smoke.training import wkv

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")

BEFORE = """
#include <cmath>
#include <cstring>
#define __global__
#define __device__ static inline
struct Place { int x; };
static Place blockIdx, blockDim, threadIdx;
static inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
"""
AFTER = """
#define EVERY(call) \\
    blockDim.x = 4; \\
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) \\
        for (threadIdx.x = 0; threadIdx.x < 4; threadIdx.x++) call
extern "C" void forward(int blocks, int b, int t, int c, const real* w, const real* u, const number* k,
                        const number* v, number* y)
{ EVERY(wkv_forward(b, t, c, w, u, k, v, y);) }
extern "C" void backward(int blocks, int b, int t, int c, const real* w, const real* u, const number* k,
                         const number* v, const number* g, real* o, real* s, real* gw, real* gu, number* gk, number* gv)
{ EVERY(wkv_backward(b, t, c, w, u, k, v, g, o, s, gw, gu, gk, gv);) }
extern "C" number rounded(float x) { return store(x); }
"""
B, T, C = 2, 19, 3  # steps beyond a chunk, and channels that share a block with the next batch
Numbers = list[float]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], ctypes.CDLL]:
    folder: Path = tmp_path_factory.mktemp("wkv")

    def of(kind: int) -> ctypes.CDLL:
        file, library = folder / f"{kind}.cpp", folder / f"{kind}.so"
        file.write_text(f"#define KIND {kind}\n{BEFORE}{wkv.SOURCE}{AFTER}")
        subprocess.run(["g++", "-O1", "-w", "-shared", "-fPIC", "-o", library, file], check=True, timeout=60)
        return ctypes.CDLL(str(library))

    return of


def inputs(far: float = 0.0) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
    """Decay, bonus, keys, values and a gradient; the keys of channel 1 are moved by ``far``."""
    draw = random.Random(5)

    def some(count: int) -> Numbers:
        return [draw.gauss(0, 1) for _ in range(count)]

    keys = [key + (far if at % C == 1 else 0.0) for at, key in enumerate(some(B * T * C))]
    return [-1.5, -0.3, -0.01], some(C), keys, some(B * T * C), some(B * T * C)


def definition(w: Numbers, u: Numbers, k: Numbers, v: Numbers) -> Numbers:
    out = [0.0] * (B * T * C)
    for b in range(B):
        for c in range(C):
            for t in range(T):

                def at(i: int, b: int = b, c: int = c) -> int:
                    return (b * T + i) * C + c

                weights = [math.exp(k[at(i)] + (t - 1 - i) * w[c]) for i in range(t)] + [math.exp(u[c] + k[at(t)])]
                total = math.fsum(weight * v[at(i)] for i, weight in enumerate(weights))
                out[at(t)] = total / math.fsum(weights)
    return out


def array(numbers: Numbers) -> ctypes.Array[ctypes.c_double]:
    return (ctypes.c_double * len(numbers))(*numbers)


def singles(numbers: Numbers) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * len(numbers))(*numbers)


def test_the_forward_kernel_is_the_definition(compiled: Callable[[int], ctypes.CDLL]) -> None:
    w, u, k, v, _ = inputs()
    out = array([math.nan] * len(k))
    compiled(64).forward(2, B, T, C, *map(array, (w, u, k, v)), out)
    assert list(out) == pytest.approx(definition(w, u, k, v), rel=1e-12)


@pytest.mark.parametrize("far", [96.0, -110.0])
def test_keys_beyond_fp32_come_out_in_fp32(compiled: Callable[[int], ctypes.CDLL], far: float) -> None:
    w, u, k, v, _ = inputs(far)
    out = singles([math.nan] * len(k))
    compiled(32).forward(2, B, T, C, *map(singles, (w, u, k, v)), out)
    assert list(out) == pytest.approx(definition(w, u, k, v), rel=1e-3, abs=1e-4)


def test_a_block_fewer_leaves_its_channels_unwritten(compiled: Callable[[int], ctypes.CDLL]) -> None:
    w, u, k, v, _ = inputs()
    out = array([math.nan] * len(k))
    compiled(64).forward(1, B, T, C, *map(array, (w, u, k, v)), out)
    assert sum(math.isnan(one) for one in out) == 2 * T


def test_the_backward_kernel_is_the_derivative(compiled: Callable[[int], ctypes.CDLL]) -> None:
    given = inputs()
    w, u, k, v, g = given
    kept = [array([math.nan] * size) for size in (len(k), len(k), B * C, B * C, len(k), len(k))]
    compiled(64).backward(2, B, T, C, *map(array, given), *kept)
    assert list(kept[0]) == pytest.approx(definition(w, u, k, v), rel=1e-12)
    sums = [[sum(kept[place][b * C + c] for b in range(B)) for c in range(C)] for place in (2, 3)]

    def loss(which: int, place: int, step: float) -> float:
        moved = [list(numbers) for numbers in (w, u, k, v)]
        moved[which][place] += step
        return math.fsum(out * grad for out, grad in zip(definition(*moved), g, strict=True))

    for which, got in enumerate((*sums, list(kept[4]), list(kept[5]))):
        for place in range(0, len(got), 1 if which < 2 else 7):
            difference = (loss(which, place, 1e-5) - loss(which, place, -1e-5)) / 2e-5
            assert got[place] == pytest.approx(difference, rel=1e-6, abs=1e-8)


def test_bf16_is_rounded_to_nearest_even(compiled: Callable[[int], ctypes.CDLL]) -> None:
    rounded = compiled(16).rounded
    rounded.argtypes, rounded.restype = [ctypes.c_float], ctypes.c_ushort
    told = [rounded(number) for number in (1.0, 1.00390625, 1.01171875, -2.0, 3.4e38, math.inf, math.nan)]
    assert told == [0x3F80, 0x3F80, 0x3F82, 0xC000, 0x7F80, 0x7F80, 0x7FC0]
