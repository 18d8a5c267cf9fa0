"""A kernel that writes where nothing is: the error has its number and name, and ends CUDA for its process alone."""

from __future__ import annotations

from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_STORE = """
extern "C" __global__ void plant(char* base, long long shift)
{
    *((volatile unsigned*)(base + shift) + threadIdx.x) = 7;
}
"""
_LOAD = """
extern "C" __global__ void plant(char* base, long long shift)
{
    ((volatile unsigned*)base)[threadIdx.x] = *((volatile unsigned*)(base + shift) + threadIdx.x);
}
"""


def run(bench: Bench) -> None:
    """Measures ``reported.wrong``, ``sticky.wrong`` and ``after.wrong`` for a store and a load."""

    def shift(base: int) -> int:
        return provoke.NOWHERE - base

    codes = (provoke.ILLEGAL_ADDRESS,)
    sources = {"store": _STORE, "load": _LOAD}
    provoke.driver_faults(bench, {name: provoke.KernelFault(text, shift, codes) for name, text in sources.items()})
