"""The same work on every GPU while the current device is the first: a product, a gradient and a kernel compiled at run
time, each equal to the CPU's result."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_SIZE = 513
_KERNEL = "template <typename T> T mixed(T x, T y, T scale) { return x * scale + (x > y ? y : x - y); }"


def _inputs(bench: Bench) -> tuple[Any, Any, Any]:
    random = bench.random()
    left = torch.randint(-8, 9, (_SIZE, _SIZE), generator=random)
    right = torch.randint(-8, 9, (_SIZE, _SIZE), generator=random)
    rows = torch.randint(0, _SIZE, (4 * _SIZE,), generator=random)
    return left, right, rows


def _gathered(table: Any, rows: Any) -> Any:
    """The gradient of a gather: how often each row was taken, as the sum of integers in fp32."""
    table = table.detach().clone().requires_grad_()
    (table[rows] * 3).sum().backward()
    return table.grad


def run(bench: Bench) -> None:
    """Measures ``product.wrong``, ``gradient.wrong``, ``compiled.wrong`` and ``current.wrong`` (the current device
    changed), in elements over all GPUs, and ``devices``."""
    if bench.gpus < 2:
        bench.not_applicable("fewer than two GPUs are here")
    bench.plain_math()
    torch.cuda.set_device(0)
    left, right, rows = _inputs(bench)
    compiled = torch.cuda.jiterator._create_jit_fn(_KERNEL, scale=5.0)
    product = (left @ right).float()
    gradient = _gathered(left.float(), rows)
    mixed = left * 5 + torch.where(left > right, right, left - right)
    for index in range(bench.gpus):
        device = f"cuda:{index}"
        one = left.to(device).float()
        other = right.to(f"cuda:{(index + 1) % bench.gpus}" if bench.injected_fault == "device" else device).float()
        bench.exact("product.wrong", one @ other, product)
        bench.exact("gradient.wrong", _gathered(one, rows.to(device)), gradient)
        bench.exact("compiled.wrong", compiled(one, other), mixed.float())
        bench.count("current.wrong", int(torch.cuda.current_device() != 0))
    bench.note("devices", bench.gpus)
