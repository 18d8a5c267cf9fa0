"""What runs along an axis and is normalised: softmax in every direction, and the layers that normalise."""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.plain import HALVES, Desk, Numbers, Row, dot, rows, turned

_NORMAL = 1e-5


def softmax(row: Numbers, logarithm: bool = False) -> list[float]:
    """Softmax of one row; of minus infinity alone it is NaN."""
    most = max(row)
    if not math.isfinite(most) or any(value != value for value in row):
        return [math.nan] * len(row)
    grown = [math.exp(value - most) for value in row]
    total = math.fsum(grown)
    if logarithm:
        return [value - most - math.log(total) for value in row]
    return [value / total for value in grown]


def along(values: Numbers, shape: tuple[int, ...], axis: int, work: Callable[[Numbers], Sequence[Any]]) -> list[Any]:
    """What ``work`` makes of every line along ``axis``, in the order of the values; the lines keep their length."""
    axis %= len(shape)
    order = [place for place in range(len(shape)) if place != axis] + [axis]
    lines = rows(turned(values, shape, order), shape[axis])
    back = [order.index(place) for place in range(len(shape))]
    return turned([value for line in lines for value in work(line)], tuple(shape[place] for place in order), back)


def _both(desk: Desk, part: str, values: Numbers, shape: tuple[int, ...], axis: int, dtype: str, layout: str) -> None:
    given = desk.tensor(values, shape, dtype, layout)
    desk.at(f"softmax {part}, {dtype}, {layout}")
    desk.near(given.softmax(axis), along(values, shape, axis, softmax), shape)
    desk.at(f"log_softmax {part}, {dtype}, {layout}")
    desk.near(given.log_softmax(axis), along(values, shape, axis, lambda row: softmax(row, True)), shape)


def _softmax_axes(desk: Desk) -> None:
    shape = (5, 37, 6, 7)
    for dtype in desk.types("float32", "bfloat16"):
        values = desk.parts(math.prod(shape), 4)
        for axis in (0, 1, 2, 3):
            for layout in ("plain", "turned", "spaced") if desk.full else ("plain", "turned"):
                _both(desk, f"along {axis} of {shape}", values, shape, axis, dtype, layout)


def _softmax_sizes(desk: Desk) -> None:
    for dtype in desk.types("float32", "bfloat16"):
        for shape in ((3, 1025), (2, 5003), (1, 40_009), (70_001, 2), (3, 1), (6, 129)):
            if math.prod(shape) > 4000 and dtype != "float32":
                continue
            _both(desk, f"of {shape[0]} rows of {shape[1]}", desk.parts(math.prod(shape), 4), shape, -1, dtype, "plain")


def _softmax_specials(desk: Desk) -> None:
    low, high = -math.inf, 1000.0
    cases = [[high, high, 0.0, low], [-high, -high + 8, low, low], [low] * 4, [0.0, math.nan, 1.0, 2.0]]
    cases += [[65_000.0, 64_999.0, -65_000.0, 0.0], [low, low, low, 3.0]]
    for dtype in desk.types("float32", "bfloat16"):
        for width in (4, 1300):
            values = [value for case in cases for value in [*case, *[low] * (width - 4)]]
            if dtype in HALVES:  # which do not have these, or not their difference
                values = [0.0 if math.isfinite(value) and abs(value) > high else value for value in values]
            _both(desk, f"{width} wide", values, (len(cases), width), 1, dtype, "plain")


def _softmax_gradients(desk: Desk) -> None:
    shape = (5, 67, 6)
    for dtype in desk.types("float32", full=("float32", "float64")):
        values, seed = desk.parts(math.prod(shape), 4), desk.parts(math.prod(shape))
        for axis in (0, 1, 2):
            for logarithm in (False, True):
                leaf = desk.leaf(values, shape, dtype)
                out = leaf.log_softmax(axis) if logarithm else leaf.softmax(axis)
                (out * desk.tensor(seed, shape, dtype)).sum().backward()
                pairs = list(zip(values, seed))

                def work(line: Numbers, logarithm: bool = logarithm) -> list[float]:
                    shares = softmax([pair[0] for pair in line])
                    seeds = [pair[1] for pair in line]
                    if logarithm:
                        total = math.fsum(seeds)
                        return [one - share * total for one, share in zip(seeds, shares)]
                    total = dot(shares, seeds)
                    return [share * (one - total) for one, share in zip(seeds, shares)]

                desk.at(f"{'log_' * logarithm}softmax along {axis}, {dtype}")
                desk.near(leaf.grad, along(pairs, shape, axis, work), shape)


def normal(line: Numbers, eps: float = _NORMAL) -> tuple[list[float], float, float]:
    """The line less its mean by its deviation, its mean and its (biased) variance."""
    mean = math.fsum(line) / len(line)
    variance = math.fsum((value - mean) ** 2 for value in line) / len(line)
    by = 1 / math.sqrt(variance + eps)
    return [(value - mean) * by for value in line], mean, variance


def _normal_back(line: Numbers, seed: Numbers, eps: float = _NORMAL) -> list[float]:
    """The gradient of ``normal`` for the gradient ``seed`` of its result."""
    out, _, variance = normal(line, eps)
    by = 1 / math.sqrt(variance + eps)
    mean, along_out = math.fsum(seed) / len(line), dot(seed, out) / len(line)
    return [(one - mean - value * along_out) * by for one, value in zip(seed, out)]


def _layer_norm(desk: Desk) -> None:
    functional = torch.nn.functional
    for dtype in desk.types("float32", "bfloat16"):
        for shape, layout in (((9, 770), "plain"), ((7, 64), "turned"), ((3, 4099), "spaced"), ((70_001, 3), "plain")):
            if shape[0] > 9 and dtype != "float32":
                continue
            width = shape[1]
            values, scale, shift = desk.parts(math.prod(shape)), desk.parts(width), desk.parts(width)
            if width == 3:  # three that are nearly equal are normalised to noise
                values = [value / 4 + 2 * (place % 3 - 1) for place, value in enumerate(values)]
            given = desk.tensor(values, shape, dtype, layout)
            plus = [desk.tensor(each, (width,), dtype) for each in (scale, shift)]
            lines = [normal(line)[0] for line in rows(values, width)]
            desk.at(f"{shape[0]} rows of {width}, {dtype}, {layout}")
            desk.near(functional.layer_norm(given, (width,)), [value for line in lines for value in line], shape)
            want = [value * a + b for line in lines for value, a, b in zip(line, scale, shift)]
            desk.near(functional.layer_norm(given, (width,), *plus), want, shape)
        desk.at(f"{dtype}, eps 0.5")
        few = desk.parts(33 * 12)
        want = [value for line in rows(few, 12) for value in normal(line, 0.5)[0]]
        got = functional.layer_norm(desk.tensor(few, (33, 3, 4), dtype), (3, 4), eps=0.5)
        desk.near(got, want, (33, 3, 4))


def _rms_norm(desk: Desk) -> None:
    for dtype in desk.types("float32", "bfloat16"):
        for shape, layout in (((5, 770), "plain"), ((7, 65), "turned")):
            width = shape[1]
            values, scale = desk.parts(math.prod(shape)), desk.parts(width)
            want = []
            for line in rows(values, width):
                by = 1 / math.sqrt(dot(line, line) / width + 0.25)
                want += [value * by * a for value, a in zip(line, scale)]
            given = desk.tensor(values, shape, dtype, layout)
            desk.at(f"{shape[0]} rows of {width}, {dtype}, {layout}")
            got = torch.nn.functional.rms_norm(given, (width,), desk.tensor(scale, (width,), dtype), eps=0.25)
            desk.near(got, want, shape)


def _group_norm(desk: Desk) -> None:
    shape, groups = (3, 12, 5, 7), 4
    plane = 35
    for dtype in desk.types("float32", "bfloat16"):
        values, scale, shift = desk.parts(math.prod(shape)), desk.parts(12), desk.parts(12)
        want = [value for line in rows(values, 3 * plane) for value in normal(line)[0]]
        want = [value * scale[at // plane % 12] + shift[at // plane % 12] for at, value in enumerate(want)]
        plus = [desk.tensor(each, (12,), dtype) for each in (scale, shift)]
        for layout in ("plain", "turned"):
            desk.at(f"{groups} groups, {dtype}, {layout}")
            given = desk.tensor(values, shape, dtype, layout)
            desk.near(torch.nn.functional.group_norm(given, groups, *plus), want, shape)
        desk.at(f"instance_norm, {dtype}")
        want = [value for line in rows(values, plane) for value in normal(line)[0]]
        desk.near(torch.nn.functional.instance_norm(desk.tensor(values, shape, dtype)), want, shape)


def _batch_norm(desk: Desk) -> None:
    functional = torch.nn.functional
    for dtype in desk.types("float32", full=("float32", "float64")):
        for shape in ((6, 7, 5, 4), (131, 5), (67, 3, 9)):
            channels, batch = shape[1], shape[0]
            plane = math.prod(shape[2:])
            values, scale, shift = desk.parts(math.prod(shape)), desk.parts(channels), desk.parts(channels)
            means, spreads = desk.parts(channels), [abs(value) + 0.5 for value in desk.parts(channels)]
            lines = rows(turned(values, (batch, channels, plane), (1, 0, 2)), batch * plane)
            for training in (True, False):
                for layout in ("plain", "turned"):
                    desk.at(f"{shape}, {dtype}, {'training' if training else 'evaluation'}, {layout}")
                    mean, spread, a, b = (
                        desk.tensor(each, (channels,), dtype) for each in (means, spreads, scale, shift)
                    )
                    given = desk.tensor(values, shape, dtype, layout)
                    got = functional.batch_norm(given, mean, spread, a, b, training=training, momentum=0.25)
                    made: list[float] = []
                    count = batch * plane
                    kept: tuple[list[float], list[float]] = ([], [])
                    for at, line in enumerate(lines):
                        out, middle, variance = normal(line)
                        if not training:
                            by = 1 / math.sqrt(spreads[at] + _NORMAL)
                            out = [(value - means[at]) * by for value in line]
                        made += [value * scale[at] + shift[at] for value in out]
                        kept[0].append(0.75 * means[at] + 0.25 * middle if training else means[at])
                        unbiased = variance * count / (count - 1)
                        kept[1].append(0.75 * spreads[at] + 0.25 * unbiased if training else spreads[at])
                    desk.near(got, turned(made, (channels, batch, plane), (1, 0, 2)), shape)
                    desk.near(mean, kept[0], (channels,))
                    desk.near(spread, kept[1], (channels,))


def _gradients(desk: Desk) -> None:
    functional = torch.nn.functional
    shape, plane, channels = (9, 6, 20), 20, 6
    for dtype in desk.types("float32", full=("float32", "float64")):
        values, seed = desk.parts(math.prod(shape)), desk.parts(math.prod(shape))
        scale, shift = desk.parts(plane), desk.parts(plane)
        leaves = [
            desk.leaf(values, shape, dtype), desk.leaf(scale, (plane,), dtype), desk.leaf(shift, (plane,), dtype)
        ]  # fmt: skip
        sown = desk.tensor(seed, shape, dtype)
        (functional.layer_norm(leaves[0], (plane,), *leaves[1:]) * sown).sum().backward()
        lines, seeds = rows(values, plane), rows(seed, plane)
        desk.at(f"layer_norm, {dtype}")
        want = [g for line, one in zip(lines, seeds) for g in _normal_back(line, [a * b for a, b in zip(one, scale)])]
        desk.near(leaves[0].grad, want, shape)
        outs = [normal(line)[0] for line in lines]
        desk.near(leaves[1].grad, [math.fsum(map(lambda o, s: o * s, a, b)) for a, b in zip(zip(*outs), zip(*seeds))])
        desk.near(leaves[2].grad, [math.fsum(column) for column in zip(*seeds)])

        desk.at(f"batch_norm, {dtype}")
        leaf = desk.leaf(values, shape, dtype)
        (functional.batch_norm(leaf, None, None, training=True) * sown).sum().backward()
        across = (1, 0, 2)
        pairs = zip(rows(turned(values, shape, across), 180), rows(turned(seed, shape, across), 180))
        want = [g for line, one in pairs for g in _normal_back(line, one)]
        desk.near(leaf.grad, turned(want, (channels, 9, plane), across), shape)

        desk.at(f"group_norm, {dtype}")
        leaf = desk.leaf(values, shape, dtype)
        (functional.group_norm(leaf, 3) * sown).sum().backward()
        want = [g for line, one in zip(rows(values, 40), rows(seed, 40)) for g in _normal_back(line, one)]
        desk.near(leaf.grad, want, shape)


ROWS: dict[str, Row] = {
    "softmax.axes": _softmax_axes,
    "softmax.sizes": _softmax_sizes,
    "softmax.specials": _softmax_specials,
    "softmax.gradients": _softmax_gradients,
    "normalization.layer": _layer_norm,
    "normalization.rms": _rms_norm,
    "normalization.group": _group_norm,
    "normalization.batch": _batch_norm,
    "normalization.gradients": _gradients,
}
