"""Accesses wider than their address is aligned: four bytes at an odd address, sixteen at a multiple of four."""

from __future__ import annotations

from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_FOUR = """
extern "C" __global__ void plant(char* base, long long shift)
{
    *((volatile unsigned*)(base + shift) + threadIdx.x) = 7;
}
"""
_SIXTEEN = """
extern "C" __global__ void plant(char* base, long long shift)
{
    uint4 read = *((const uint4*)(base + shift) + threadIdx.x);
    *((uint4*)(base + 2048) + threadIdx.x) = make_uint4(read.y, read.z, read.w, read.x);
}
"""


def run(bench: Bench) -> None:
    """Measures ``reported.wrong``, ``sticky.wrong`` and ``after.wrong`` for a store and a vector load."""
    codes = (provoke.MISALIGNED_ADDRESS,)
    store = provoke.KernelFault(_FOUR, lambda base: 1, codes)
    load = provoke.KernelFault(_SIXTEEN, lambda base: 4, codes)
    provoke.driver_faults(bench, {"4-byte store at base + 1": store, "16-byte load at base + 4": load})
