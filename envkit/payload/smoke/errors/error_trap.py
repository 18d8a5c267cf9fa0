"""A kernel that stops itself by the trap instruction, as assertions of libraries written in PTX do."""

from __future__ import annotations

from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_SOURCE = """
extern "C" __global__ void plant(char* base, long long shift)
{
    if (shift) asm volatile("trap;");
    ((volatile unsigned*)base)[threadIdx.x] = 7;
}
"""


def run(bench: Bench) -> None:
    """Measures ``reported.wrong``, ``sticky.wrong`` and ``after.wrong``.

    The driver tells a trap as a failed launch or as an illegal instruction, by the GPU's generation.
    """
    codes = (provoke.LAUNCH_FAILED, provoke.ILLEGAL_INSTRUCTION)
    provoke.driver_faults(bench, {"trap": provoke.KernelFault(_SOURCE, lambda base: 1, codes)})
