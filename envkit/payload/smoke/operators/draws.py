"""Random numbers: moments in standard errors, streams that differ, seeds that repeat, rates, what is never drawn."""

# ruff: noqa: B905, RUF007 - Python 3.8 has no strict

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED
from envkit.payload.smoke.operators.plain import Desk, Numbers, Row

_MANY = 1 << 16
_BINS = 64


def _moments(desk: Desk, part: str, values: Numbers, mean: float, variance: float, fourth: float) -> None:
    """Notes how far mean, variance, the fourths of the sample and its neighbours are from the distribution's."""
    desk.at(part)
    count = len(values)
    if not count:
        desk.note("errors", math.inf)
        return
    centered = [value - mean for value in values]
    desk.note("errors", abs(math.fsum(centered)) / math.sqrt(variance * count))
    if fourth > variance * variance:  # of two values in equal parts the spread is none of chance
        spread = math.fsum(value * value for value in centered)
        desk.note("errors", abs(spread - variance * count) / math.sqrt((fourth - variance * variance) * count))
    together = math.fsum(a * b for a, b in zip(centered, centered[1:]))
    desk.note("errors", abs(together) / (variance * math.sqrt(count)))
    quarter = count // 4
    for first in range(4):
        some = math.fsum(centered[first * quarter : (first + 1) * quarter])
        desk.note("errors", abs(some) / math.sqrt(variance * quarter))


def _even(desk: Desk, part: str, values: Numbers, bins: int = _BINS) -> None:
    """Notes chi-square of numbers in [0, 1) over equal bins, in standard deviations from its mean."""
    desk.at(part)
    found = [0] * bins
    for value in values:
        if 0 <= value < 1:
            found[int(value * bins)] += 1
    expected = len(values) / bins
    chi = math.fsum((one - expected) ** 2 for one in found) / expected
    desk.note("errors", abs(chi - (bins - 1)) / math.sqrt(2 * (bins - 1)))


def _seen(desk: Desk, drawn: Any) -> list[Any]:
    return desk.values(drawn, None, exact=False) or []


def _distributions(desk: Desk) -> None:
    where = desk.bench.device
    torch.manual_seed(SEED)
    for dtype in desk.types("float32", full=("float32", "float64", "bfloat16", "float16")):
        kind = getattr(torch, dtype)
        normal = torch.randn(_MANY, device=where, dtype=kind)
        _moments(desk, f"randn, {dtype}", _seen(desk, normal), 0, 1, 3)
        uniform = _seen(desk, torch.rand(_MANY, device=where, dtype=kind))
        if dtype in ("float32", "float64"):  # a type of 16 bits has few numbers below 1
            _moments(desk, f"rand, {dtype}", uniform, 0.5, 1 / 12, 1 / 80)
            _even(desk, f"rand, {dtype}", uniform)
            desk.at(f"rand outside of [0, 1), {dtype}")
            desk.count(sum(not 0 <= value < 1 for value in uniform), len(uniform))
        given = torch.empty(257, 255, device=where, dtype=kind)
        _moments(desk, f"normal_ of 3 and 2, {dtype}", _seen(desk, given.normal_(3, 2)), 3, 4, 48)
        if dtype in ("float32", "float64"):
            shifted = _seen(desk, given.t().uniform_(-1, 5))
            _moments(desk, f"uniform_ from -1 to 5, {dtype}", shifted, 2, 3, 16.2)
            _moments(desk, f"exponential_, {dtype}", _seen(desk, given.exponential_(2)), 0.5, 0.25, 9 / 16)
        _moments(desk, f"bernoulli_, {dtype}", _seen(desk, given.bernoulli_(0.25)), 0.25, 3 / 16, 21 / 256)
    chances = torch.full((_MANY,), 0.125, device=where, dtype=torch.float32)
    _moments(desk, "bernoulli", _seen(desk, torch.bernoulli(chances)), 0.125, 7 / 64, 0.875 * 0.125 * 43 / 64)
    means = desk.tensor([0.0, 4.0], (2, 1)).expand(2, _MANY).contiguous()
    two = _seen(desk, torch.normal(means, means / 4 + 1))
    _moments(desk, "normal of tensors", two[:_MANY], 0, 1, 3)
    _moments(desk, "normal of tensors", two[_MANY:], 4, 4, 48)
    if desk.full:
        poisson = torch.poisson(torch.full((_MANY,), 4.0, device=where, dtype=torch.float32))
        _moments(desk, "poisson", _seen(desk, poisson), 4, 4, 52)
        geometric = torch.empty(_MANY, device=where, dtype=torch.float32).geometric_(0.5)
        _moments(desk, "geometric", _seen(desk, geometric), 2, 2, 38)


def _whole(desk: Desk) -> None:
    where = desk.bench.device
    torch.manual_seed(SEED)
    for low, high in ((0, 10), (-3, 4), (0, 2), (0, 1000)):
        desk.at(f"randint from {low} to {high}")
        drawn = _seen(desk, torch.randint(low, high, (_MANY,), device=where))
        desk.count(sum(not low <= value < high for value in drawn), _MANY)
        desk.count(sum(value not in set(drawn) for value in (low, high - 1)), 2)
        _even(
            desk, f"randint from {low} to {high}", [(v - low + 0.5) / (high - low) for v in drawn], min(high - low, 50)
        )
    desk.at("randperm")
    for count in (9, 1031, 40_009):
        order = torch.randperm(count, device=where).tolist()
        desk.count(int(sorted(order) != list(range(count))) + int(order == list(range(count))), 2)
    desk.at("multinomial")
    weights = [1.0, 2.0, 0.0, 5.0]
    drawn = torch.multinomial(desk.tensor(weights, (4,)), _MANY, replacement=True).tolist()
    for place, weight in enumerate(weights):
        share = weight / 8
        error = math.sqrt(max(share * (1 - share), 1 / _MANY) * _MANY)
        desk.note("errors", abs(drawn.count(place) - share * _MANY) / error)
    once = torch.multinomial(desk.tensor([1.0] * 40, (2, 20)), 20).tolist()
    desk.count(sum(sorted(row) != list(range(20)) for row in once), 2)


def _streams(desk: Desk) -> None:
    """Seeds repeat, two draws differ, and generators do not disturb one another."""
    where = desk.bench.device
    draws: dict[str, Callable[[Any], Any]] = {
        "randn": lambda source: torch.randn(2053, device=where, generator=source, dtype=torch.float32),
        "rand": lambda source: torch.rand(2053, device=where, generator=source, dtype=torch.float32),
        "randint": lambda source: torch.randint(0, 1 << 40, (2053,), device=where, generator=source),
        "normal_": lambda source: torch.empty(2053, device=where, dtype=torch.float32).normal_(generator=source),
        "uniform_": lambda source: torch.empty(2053, device=where, dtype=torch.float32).uniform_(generator=source),
        "randperm": lambda source: torch.randperm(2053, device=where, generator=source),
    }
    for name, draw in draws.items():
        source, other = torch.Generator(where), torch.Generator(where)
        one, two, three = (draw(source.manual_seed(SEED)), draw(source), draw(other.manual_seed(SEED + 1)))
        again, state = draw(source.manual_seed(SEED)), source.get_state()
        second = draw(source)
        source.set_state(state)
        lists = [tensor.tolist() for tensor in (one, two, three)]
        desk.at(f"{name} repeats")
        desk.same(again, lists[0])
        desk.same(second, lists[1])
        desk.same(draw(source), lists[1])
        desk.at(f"{name} draws anew")
        equal = sum(a == b for pair in ((0, 1), (0, 2), (1, 2)) for a, b in zip(lists[pair[0]], lists[pair[1]]))
        desk.count(equal if equal > 40 else 0, 3 * 2053)  # some are equal by chance in fp32
        half = len(lists[0]) // 2
        desk.count(int(lists[0][:half] == lists[0][half : 2 * half]), 1)
    desk.at("the device's own generator repeats")
    torch.manual_seed(SEED)
    first, second = torch.rand(1031, device=where), torch.rand(1031, device=where)
    torch.manual_seed(SEED)
    desk.same(torch.rand(1031, device=where), first.tolist())
    desk.count(int(first.tolist() == second.tolist()), 1)


def _dropout(desk: Desk) -> None:
    functional = torch.nn.functional
    torch.manual_seed(SEED)
    for rate in (0.25, 0.5):
        for part, work, shape in (
            ("dropout", functional.dropout, (_MANY,)),
            ("dropout of rows", functional.dropout, (257, 255)),
            ("dropout1d", functional.dropout1d, (4096, 16, 2)),
        ):
            desk.at(f"{part} of {rate}")
            leaf = torch.ones(shape, device=desk.bench.device, dtype=torch.float32).requires_grad_()
            out = work(leaf, rate)
            out.sum().backward()
            kept = out.detach().reshape(-1).tolist()
            scaled = 1 / (1 - rate)
            desk.same(leaf.grad, kept)
            desk.count(sum(not (value == 0 or abs(value - scaled) < 1e-6) for value in kept), len(kept))
            one = kept[::2] if part == "dropout1d" else kept
            keep = 1 - rate
            _moments(
                desk, f"{part} of {rate}", [float(value != 0) for value in one],
                keep, keep * rate, keep * rate * (1 - 3 * keep * rate),
            )  # fmt: skip
    desk.at("dropout in evaluation")
    desk.same(functional.dropout(desk.tensor([1.0, 2.0] * 40, (80,)), 0.5, training=False), [1.0, 2.0] * 40)
    desk.at("dropout in place")
    given = torch.ones(_MANY, device=desk.bench.device, dtype=torch.float32)
    functional.dropout(given, 0.5, inplace=True)
    desk.note("errors", abs(given.tolist().count(0.0) - _MANY / 2) / math.sqrt(_MANY / 4))


ROWS: dict[str, Row] = {
    "random.distributions": _distributions,
    "random.integers": _whole,
    "random.streams": _streams,
    "random.dropout": _dropout,
}
