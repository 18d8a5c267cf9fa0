"""Random numbers: a seed repeats them bit for bit, another one does not, and their moments, in standard errors, are
those of their kind."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED, Bench
from envkit.payload.smoke.libraries._compare import stale

_ON_GPU, _ON_CPU = 10_000_000, 500_000
_FEWER = 500_000  # where a smaller sample is enough on any device
_BINS = 64
_WORDS = 1 << 18  # integers of 62 bits: that two of them are equal has a chance of 1e-8
_SHUFFLED = 100_003
_KEPT = 0.25  # so that what dropout keeps is made four times as large, exactly


def errors_off(values: Any, mean: float, variance: float, fourth: float) -> tuple[float, float]:
    """How many standard errors the mean and the variance of a sample are away from those of its distribution.

    ``fourth`` is the distribution's fourth central moment.
    """
    count = values.numel()
    plain = values.double()
    center = float(plain.mean())
    spread = float((plain - mean).square().mean())
    error = math.sqrt((fourth - variance * variance) / count)
    return abs(center - mean) / math.sqrt(variance / count), abs(spread - variance) / error


def uneven(values: Any) -> float:
    """Chi-square of numbers in [0, 1) over equal bins, in standard deviations from its mean."""
    found = torch.histc(values.double(), _BINS, 0.0, 1.0)
    expected = values.numel() / _BINS
    chi = float((found - expected).square().sum()) / expected
    return float(abs(chi - (_BINS - 1)) / math.sqrt(2 * (_BINS - 1)))


def run(bench: Bench) -> None:
    """Measures ``<kind>.mean`` and ``.variance`` in standard errors, ``uniform.bins``, and counts of what is wrong."""
    count = _ON_GPU if bench.on_gpu else _ON_CPU
    source = torch.Generator(device=bench.device)
    many = partial(torch.empty, count, device=bench.device)
    here = partial(torch.empty, _FEWER, device=bench.device)
    words = partial(torch.randint, 0, 1 << 62, (_WORDS,), generator=source, device=bench.device)
    stale(bench)

    def moments(name: str, drawn: Any, mean: float, variance: float, fourth: float) -> Any:
        seen = bench.disturb(drawn.cpu().float(), exact=False)
        off = errors_off(seen, mean, variance, fourth)
        bench.note(name + ".mean", off[0])
        bench.note(name + ".variance", off[1])
        return seen

    def bits(tensor: Any) -> Any:
        return tensor.view(torch.int32)

    source.manual_seed(SEED)
    normal = many().normal_(generator=source)
    saved = source.get_state()
    later = here().normal_(generator=source)
    source.manual_seed(SEED)
    bench.exact("repeat.wrong", bits(many().normal_(generator=source)), bits(normal).cpu())
    source.set_state(saved)
    bench.exact("restored.wrong", bits(here().normal_(generator=source)), bits(later).cpu())
    moments("normal", normal, 0.0, 1.0, 3.0)

    # two draws of one generator and one of another seed: no word may occur twice among them
    source.manual_seed(SEED)
    one, two = words(), words()
    source.manual_seed(SEED + 1)
    together = torch.cat([one, two, words()]).cpu()
    bench.count("words.equal", together.numel() - together.unique().numel())

    uniform = moments("uniform", many().uniform_(generator=source), 0.5, 1 / 12, 1 / 80)
    bench.note("uniform.bins", uneven(uniform[:_FEWER]))
    bench.count("uniform.outside", int((~((uniform >= 0) & (uniform < 1))).sum()))
    moments("exponential", here().exponential_(generator=source), 1.0, 1.0, 9.0)
    moments("bernoulli", here().bernoulli_(0.25, generator=source), 0.25, 3 / 16, 21 / 256)

    torch.manual_seed(SEED)  # dropout takes the device's own generator
    given = torch.arange(1, _FEWER + 1, device=bench.device, dtype=torch.float32).requires_grad_()
    kept = torch.nn.functional.dropout(given, 1 - _KEPT)
    kept.backward(torch.ones_like(kept))
    mask = kept.detach() != 0
    moments("dropout", mask.float(), _KEPT, 3 / 16, 21 / 256)
    bench.exact("dropout.wrong", kept, (given.detach() * 4 * mask).cpu())
    bench.exact("dropout.wrong", given.grad, (mask * 4).float().cpu())

    order = torch.randperm(_SHUFFLED, device=bench.device, generator=source)
    bench.exact("permutation.wrong", order.cpu().sort().values, torch.arange(_SHUFFLED))
    bench.note("permutation.kept", int((order.cpu() == torch.arange(_SHUFFLED)).sum()))
