"""A recurrent kernel of one's own inside a model: the weighted sum of RWKV, forward and backward, against fp64.

For decay w, bonus u, keys k and values v the output of step t is the mean of all v so far, weighted with
exp(k_i + (t - 1 - i) w), and with exp(u + k_t) for v_t itself (RWKV, section 3.1, arXiv:2305.13048).  Sums keep
their largest exponent apart, so that keys whose exponential no fp32 holds are right too.  One thread walks one
channel; neither the number of steps nor that of channels divides by what a thread or a block takes at once.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded
from envkit.payload.smoke.driver import Driver, number_of
from envkit.payload.smoke.nvrtc import build
from envkit.payload.smoke.sources import text_of

_THREADS = 64
_BATCH, _STEPS, _CHANNELS = 4, 509, 765
_FAR = 96.0  # exp of it is beyond fp32, and exp of its negative is below it
NAMES = ("wkv_forward", "wkv_backward")
SOURCE = text_of("training/wkv.cu")


class _Kernels(NamedTuple):
    """The loaded kernels of one type, and how to launch one over ``batch`` times ``channels`` threads."""

    driver: Driver
    loaded: dict[str, ctypes.c_void_p]
    bench: Bench

    def launch(self, name: str, shape: Any, tensors: Any) -> None:
        """Launches on torch's current stream; the injected fault "block" leaves out the last of several blocks."""
        batch, steps, channels = shape
        blocks = (batch * channels + _THREADS - 1) // _THREADS
        if self.bench.injected_fault == "block" and blocks > 1:
            blocks -= 1
        numbers = [ctypes.c_int(number) for number in (batch, steps, channels)]
        addresses = [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors]
        stream = ctypes.c_void_p(torch.cuda.current_stream(tensors[0].device).cuda_stream)
        self.driver.launch(self.loaded[name], blocks, _THREADS, [*numbers, *addresses], stream)


def _function(kernels: _Kernels) -> Any:
    """The kernels as one function that autograd knows: (decay, bonus, keys, values) to outputs."""

    class Wkv(torch.autograd.Function):  # type: ignore[misc]  # torch is not there when this is type-checked
        @staticmethod
        def forward(context: Any, w: Any, u: Any, k: Any, v: Any) -> Any:
            context.save_for_backward(w, u, k, v)
            out = torch.full_like(k, torch.nan)
            kernels.launch(NAMES[0], k.shape, (w, u, k, v, out))
            return out

        @staticmethod
        def backward(context: Any, grad: Any) -> Any:
            w, u, k, v = context.saved_tensors
            kept = torch.full((2, *k.shape), torch.nan, dtype=w.dtype, device=w.device)
            sums = torch.full((2, k.shape[0], k.shape[2]), torch.nan, dtype=w.dtype, device=w.device)
            gk, gv = torch.full_like(k, torch.nan), torch.full_like(v, torch.nan)
            tensors = (w, u, k, v, grad.contiguous(), kept[0], kept[1], sums[0], sums[1], gk, gv)
            kernels.launch(NAMES[1], k.shape, tensors)
            return sums[0].sum(0), sums[1].sum(0), gk, gv

    return Wkv.apply


def plain(w: Any, u: Any, k: Any, v: Any) -> Any:
    """The same by its definition, step by step, for a type whose exponentials do not overflow: fp64."""
    a, b = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0])
    outs = []
    keys, values = k.unbind(1), v.unbind(1)
    for step in range(len(keys)):
        key, value = keys[step], values[step]
        own = torch.exp(u + key)
        outs.append((a + own * value) / (b + own))
        now = torch.exp(key)
        a, b = torch.exp(w) * a + now * value, torch.exp(w) * b + now
    return torch.stack(outs, 1)


def problem(batch: int, steps: int, channels: int, random: Any) -> list[Any]:
    """Decay, bonus, keys, values, and a gradient for the outputs, in fp64; two channels of sixteen have far keys."""
    decay = -torch.exp(torch.linspace(-5, 1, channels, dtype=torch.float64))
    bonus = torch.randn(channels, generator=random, dtype=torch.float64) / 2
    keys, values, grad = (torch.randn(batch, steps, channels, generator=random, dtype=torch.float64) for _ in range(3))
    keys[:, :, 3::16] += _FAR
    keys[:, :, 11::16] -= _FAR
    return [decay, bonus, keys, values, grad]


def _compare(bench: Bench, name: str, dtype: Any, work: Any) -> None:
    decay, bonus, *rest = problem(_BATCH, _STEPS, _CHANNELS, bench.random())
    inputs = [*rounded([decay, bonus], torch.float32), *rounded(rest, dtype)]
    wide = [tensor.double().requires_grad_() for tensor in inputs[:4]]
    want = plain(*wide)
    want.backward(inputs[4].double())
    there = [tensor.to(bench.device).requires_grad_() for tensor in inputs[:4]]
    got = work(*there)
    got.backward(inputs[4].to(bench.device))
    bench.close(name + ".out", got, want)
    for place, letter in enumerate("wukv"):
        bench.close(f"{name}.{letter}", there[place].grad, wide[place].grad)


def run(bench: Bench) -> None:
    """Measures for fp32 and bf16 the distances ``<dtype>.out`` and those of the gradients, ``.w``, ``.u``, ``.k`` and
    ``.v``; and ``gradcheck.wrong``, 1 if torch's own check of derivatives refuses the kernel in fp64."""
    bench.plain_math()
    torch.cuda.set_device(bench.device)
    torch.cuda.synchronize()  # makes the context, which the driver's calls below are to share
    driver, index = Driver(), number_of(bench.device)
    driver.context(index)

    def made(kind: int) -> Any:
        kernels = build(driver, index, f"#define KIND {kind}\n{SOURCE}", NAMES)[1]
        return _function(_Kernels(driver, kernels, bench))

    tiny = [tensor.to(bench.device).requires_grad_() for tensor in problem(2, 7, 3, bench.random())[:4]]
    bench.count("gradcheck.wrong", int(not torch.autograd.gradcheck(made(64), tiny, raise_exception=False)))
    for name, kind, dtype in (("fp32", 32, torch.float32), ("bf16", 16, torch.bfloat16)):
        bench.attempt(name, partial(_compare, bench, name, dtype, made(kind)))
