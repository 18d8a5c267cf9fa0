"""A gated linear recurrence, the heart of RWKV-like models: a Triton kernel for each direction, and its plain twin.

    h[t] = w * h[t-1] + k[t] * v[t]        y[t] = r[t] * h[t]

``r``, ``k`` and ``v`` are (batch, time, channels), ``w`` one decay for each channel, expanded to the same shape.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


def plain(r: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """The recurrence in plain PyTorch, step by step: slow, and what the kernels are compared with."""
    h, out = torch.zeros_like(k[:, 0]), []
    for t in range(k.shape[1]):
        h = w[:, t] * h + k[:, t] * v[:, t]
        out.append(r[:, t] * h)
    return torch.stack(out, 1)


@triton.jit
def wkv_forward(r, k, v, w, y, states, time, channels, w_batch, w_time, BLOCK: tl.constexpr):
    """One program for each row of the batch and BLOCK of its channels; time is walked through in order."""
    batch, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < channels
    h = tl.zeros((BLOCK,), tl.float32)
    for t in range(time):
        at = (batch * time + t) * channels + column
        decay = tl.load(w + batch * w_batch + t * w_time + column, inside, 0.0)
        h = decay * h + tl.load(k + at, inside, 0.0) * tl.load(v + at, inside, 0.0)
        tl.store(states + at, h, inside)
        tl.store(y + at, tl.load(r + at, inside, 0.0) * h, inside)


@triton.jit
def wkv_backward(
    r, k, v, w, states, dy, dr, dk, dv, dw, time, channels, w_batch, w_time, WANTS_DW: tl.constexpr, BLOCK: tl.constexpr
):
    """Back through time: ``dh`` is what every later output asks of the state at ``t``."""
    batch, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < channels
    dh = tl.zeros((BLOCK,), tl.float32)
    for back in range(time):
        t = time - 1 - back
        at = (batch * time + t) * channels + column
        given = tl.load(dy + at, inside, 0.0)
        dh += tl.load(r + at, inside, 0.0) * given
        tl.store(dr + at, tl.load(states + at, inside, 0.0) * given, inside)
        tl.store(dk + at, tl.load(v + at, inside, 0.0) * dh, inside)
        tl.store(dv + at, tl.load(k + at, inside, 0.0) * dh, inside)
        if WANTS_DW:
            before = tl.load(states + at - channels, inside & (at >= (batch * time + 1) * channels), 0.0)
            tl.store(dw + at, before * dh, inside)
        dh *= tl.load(w + batch * w_batch + t * w_time + column, inside, 0.0)


class _Wkv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, r: Tensor, k: Tensor, v: Tensor, w: Tensor, gradient_like_w: bool) -> Tensor:
        _, time, channels = k.shape
        r, k, v = r.contiguous(), k.contiguous(), v.contiguous()
        y, states = torch.empty_like(k), torch.empty_like(k)
        wkv_forward[_grid(k)](r, k, v, w, y, states, time, channels, *w.stride()[:2], BLOCK=_BLOCK)
        ctx.save_for_backward(r, k, v, w, states)
        ctx.gradient_like_w = gradient_like_w
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        r, k, v, w, states = ctx.saved_tensors
        _, time, channels = k.shape
        dr, dk, dv = torch.empty_like(r), torch.empty_like(k), torch.empty_like(v)
        wants_dw = ctx.needs_input_grad[3]
        # The kernel writes a gradient for each step; w is one row, expanded, and so is a tensor with its strides.
        dw = torch.empty_strided(w.shape, w.stride(), device=w.device) if ctx.gradient_like_w else torch.empty_like(k)
        wkv_backward[_grid(k)](
            r, k, v, w, states, dy.contiguous(), dr, dk, dv, dw, time, channels, *w.stride()[:2],
            WANTS_DW=wants_dw, BLOCK=_BLOCK,
        )  # fmt: skip
        return dr, dk, dv, dw if wants_dw else None, None


_BLOCK = 64


def _grid(k: Tensor) -> tuple[int, int]:
    return k.shape[0], triton.cdiv(k.shape[2], _BLOCK)


def wkv(r: Tensor, k: Tensor, v: Tensor, w: Tensor, gradient_like_w: bool = False) -> Tensor:
    """The recurrence by the kernels, in float32.

    ``gradient_like_w`` is the mistake of this example: the gradient of ``w`` gets the strides of ``w``.
    """
    if not r.shape == k.shape == v.shape == w.shape:
        raise ValueError(f"r, k, v and w differ in shape: {[tuple(each.shape) for each in (r, k, v, w)]}")
    if w.stride(2) != 1:
        raise ValueError(f"the channels of w lie {w.stride(2)} elements apart, and the kernel reads them side by side")
    out: Tensor = _Wkv.apply(r.float(), k.float(), v.float(), w.float(), gradient_like_w)
    return out
