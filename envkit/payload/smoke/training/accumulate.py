"""Gradients of four micro batches add up to those of the whole batch, and are clipped to exactly the norm asked for.

All numbers are integers that fp32 holds, so that not one bit may differ from fp64 on the CPU.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_BATCH, _MICRO = 64, 16
_WIDTHS = (48, 64, 64, 8)
_CLIPPED = ((16, 16, 48.0), (32, 32, 32.0))  # rows, columns, value: norms of 768 and 1024, 1280 together
_NORM, _MOST = 1280.0, 320.0  # the 1e-6 that torch adds to the norm vanishes in fp32


def _forward(weights: Any, given: Any) -> Any:
    value = given
    for weight in weights[:-1]:
        value = (value @ weight).relu()
    return value @ weights[-1]


def _accumulate(bench: Bench) -> None:
    random = bench.random()
    shapes = [_WIDTHS[place : place + 2] for place in range(len(_WIDTHS) - 1)]
    start = [torch.randint(-1, 2, shape, generator=random).double() for shape in shapes]
    given = torch.randint(-1, 2, (_BATCH, _WIDTHS[0]), generator=random).double()
    signs = torch.randint(0, 2, (_BATCH, _WIDTHS[-1]), generator=random).double() * 2 - 1
    wide = [one.clone().requires_grad_(True) for one in start]
    (_forward(wide, given) * signs).sum().backward()
    want = torch.cat([one.grad.flatten() for one in wide])
    weights = [one.float().to(bench.device).requires_grad_(True) for one in start]
    for place in range(0, _BATCH, _MICRO):
        if bench.injected_fault == "order" and place == _BATCH // 2:
            for one in weights:
                one.grad = None  # what was accumulated is dropped half way
        part = slice(place, place + _MICRO)
        inputs, factors = (tensor[part].float().to(bench.device) for tensor in (given, signs))
        (_forward(weights, inputs) * factors).sum().backward()
    bench.exact("accumulated.wrong", torch.cat([one.grad.flatten() for one in weights]), want)


def _clip(bench: Bench, foreach: bool) -> None:
    random = bench.random()
    parameters, wanted = [], []
    for rows, columns, value in _CLIPPED:
        grad = (torch.randint(0, 2, (rows, columns), generator=random) * 2.0 - 1.0) * value
        parameter = torch.nn.Parameter(torch.zeros(rows, columns, device=bench.device))
        parameter.grad = grad.to(bench.device)
        parameters.append(parameter)
        wanted.append(grad.double().flatten() * (_MOST / _NORM))
    for most, want in ((2 * _NORM, _NORM / _MOST), (_MOST, 1.0)):  # the first is larger than the norm: nothing changes
        norm = torch.nn.utils.clip_grad_norm_(parameters, most, error_if_nonfinite=True, foreach=foreach)
        got: Any = torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])
        bench.exact("norm.wrong", norm.reshape(1), torch.tensor([_NORM]))
        bench.exact("clipped.wrong", got, torch.cat(wanted) * want)


def run(bench: Bench) -> None:
    """Measures ``accumulated.wrong`` and ``clipped.wrong`` (elements of gradients) and ``norm.wrong`` (norms)."""
    bench.plain_math()
    _accumulate(bench)
    for foreach in (False, True):
        _clip(bench, foreach)
