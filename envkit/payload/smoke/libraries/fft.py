"""Fourier transforms: against the transform's own definition in fp64, and there and back again at a real size."""

from __future__ import annotations

import math
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_SMALL = (256, 210, 251)  # a power of two, a product of small primes, a prime: three kinds of plan


def _definition(signal: Any) -> Any:
    size = signal.shape[-1]
    # the exponent is reduced in integers, so that the angles are exact to the last bit
    turns = (torch.arange(size)[:, None] * torch.arange(size)[None, :]) % size
    angles = turns.double() * (-2 * math.pi / size)
    return signal @ torch.complex(angles.cos(), angles.sin())


def run(bench: Bench) -> None:
    """Measures the distances ``<dtype>.definition``, ``<dtype>.round-trip`` and ``<dtype>.real``."""
    random = bench.random()
    kinds = (("fp32", torch.float32, torch.complex64), ("fp64", torch.float64, torch.complex128))
    for name, real, complex_ in kinds:
        for size in _SMALL:
            signal = torch.randn(16, size, generator=random, dtype=complex_)
            want = _definition(signal.to(torch.complex128))
            bench.close(name + ".definition", torch.fft.fft(signal.to(bench.device)), want)
            flat = torch.randn(16, size, generator=random, dtype=real)
            half = _definition(flat.to(torch.complex128))[:, : size // 2 + 1].contiguous()
            bench.close(name + ".real", torch.fft.rfft(flat.to(bench.device)), half)
        for shape in ((1 << 18,), (512, 384)):
            signal = torch.randn(*shape, generator=random, dtype=complex_)
            there = torch.fft.fftn(signal.to(bench.device))
            bench.close(name + ".round-trip", torch.fft.ifftn(there), signal.to(torch.complex128))
