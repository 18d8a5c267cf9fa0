"""Products in tf32 of integers that tf32 holds exactly: not one bit may differ from the product in fp32.

tf32 keeps 11 bits of each operand and sums in fp32, so integers up to 1024 times -1, 0 and 1 are exact at any depth
below 16384.  That tf32 was used at all is seen by 2049, which it cannot hold.
"""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.freivalds import operand, wrong_in_product

_TOP = 1 << 10
_BEYOND = float((1 << 11) + 1)


def run(bench: Bench) -> None:
    """Measures ``tf32.wrong``, and by ``tf32.used`` which part of a product shows that tf32 was used."""
    bench.plain_math()
    if torch.cuda.get_device_capability(bench.device) < (8, 0):
        bench.not_applicable("tf32 begins with compute capability 8.0")
    torch.set_float32_matmul_precision("high")
    random = bench.random_here()
    for rows, depth, columns in ((4096, 4096, 4096), (132, 1028, 68)):
        left, right = operand(rows, depth, _TOP, random), operand(depth, columns, 1, random)
        out = torch.full((rows, columns), torch.nan, device=bench.device)
        torch.mm(left.float(), right.float(), out=out)
        bench.count("tf32.wrong", wrong_in_product(left, right, bench.disturb(out, exact=True), random))
    beyond = torch.full((1024, 1024), _BEYOND, device=bench.device)
    kept = beyond @ torch.eye(1024, device=bench.device)
    bench.note("tf32.used", float((kept != beyond).double().mean()))
