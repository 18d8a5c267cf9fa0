"""Convolutions of small integers and their gradients, tap by tap in plain Python."""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.plain import Desk, Numbers, Row, dot, rows

Taps = list[list[int]]  # for each place of the result, where each place of the kernel lies in the image; -1 is padding


class Kind(NamedTuple):
    """One convolution: ``image`` (batch, channels, sizes), ``weight`` as torch lays it out, and the steps of each
    axis."""

    image: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1


def taps(sizes: tuple[int, ...], kernel: tuple[int, ...], kind: Kind) -> tuple[tuple[int, ...], Taps]:
    """The sizes of the result, and what each of its places takes from the image."""
    lines = []
    for size, width, step, pad, spread in zip(sizes, kernel, kind.stride, kind.padding, kind.dilation):
        count = (size + 2 * pad - spread * (width - 1) - 1) // step + 1
        lines.append([[place * step - pad + spread * tap for tap in range(width)] for place in range(count)])
    found = []
    for places in itertools.product(*lines):
        taken = []
        for at in itertools.product(*places):
            flat = 0
            for place, size in zip(at, sizes):
                flat = flat * size + place if 0 <= place < size and flat >= 0 else -1
            taken.append(flat)
        found.append(taken)
    return tuple(len(line) for line in lines), found


def forward(kind: Kind, image: Numbers, weight: Numbers, bias: Numbers) -> tuple[tuple[int, ...], list[Any]]:
    """The shape and the values of the result."""
    batch, channels, *sizes = kind.image
    outputs, share = kind.weight[0], kind.weight[1]
    out_sizes, places = taps(tuple(sizes), kind.weight[2:], kind)
    spatial = math.prod(sizes)
    filters = rows(weight, share * math.prod(kind.weight[2:]))
    each = outputs // kind.groups
    result: list[Any] = []
    for one in range(batch):
        planes = [[*image[(one * channels + c) * spatial :][:spatial], 0] for c in range(channels)]  # -1 is the padding
        for group in range(kind.groups):
            mine = planes[group * share : (group + 1) * share]
            columns = [[plane[at] for plane in mine for at in taken] for taken in places]
            for output in range(group * each, (group + 1) * each):
                result += [dot(column, filters[output]) + bias[output] for column in columns]
    return (batch, outputs, *out_sizes), result


def backward(kind: Kind, image: Numbers, weight: Numbers, seed: Numbers) -> tuple[list[Any], list[Any], list[Any]]:
    """The gradients of image, weight and bias for the gradient ``seed`` of the result."""
    batch, channels, *sizes = kind.image
    outputs, share = kind.weight[0], kind.weight[1]
    _, places = taps(tuple(sizes), kind.weight[2:], kind)
    spatial, width, each = math.prod(sizes), math.prod(kind.weight[2:]), outputs // kind.groups
    of_image, of_weight = [0.0] * len(image), [0.0] * len(weight)
    seeds = rows(seed, len(places))
    for one, output in itertools.product(range(batch), range(outputs)):
        own = seeds[one * outputs + output]
        for part in range(share):
            plane = (one * channels + output // each * share + part) * spatial
            filter_ = (output * share + part) * width
            for value, taken in zip(own, places):
                for tap, at in enumerate(taken):
                    if at >= 0:
                        of_image[plane + at] += value * weight[filter_ + tap]
                        of_weight[filter_ + tap] += value * image[plane + at]
    of_bias = [sum(sum(seeds[one * outputs + output]) for one in range(batch)) for output in range(outputs)]
    return of_image, of_weight, of_bias


def _convolved(kind: Kind, image: Any, weight: Any, bias: Any, transposed: bool = False) -> Any:
    steps = [list(kind.stride), list(kind.padding), list(kind.dilation), transposed, [0] * len(kind.stride)]
    return torch.convolution(image, weight, bias, *steps, kind.groups)


def _forward(desk: Desk, part: str, kind: Kind, dtype: str = "float32") -> None:
    image, weight = desk.whole(math.prod(kind.image), 2), desk.rare(math.prod(kind.weight), 1)
    bias = desk.whole(kind.weight[0])
    shape, want = forward(kind, image, weight, bias)
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(kind.image))
    for layout in ("plain", "turned", "last"):
        if layout == "turned" and not desk.full:
            continue
        desk.at(f"{part}, {dtype}, {layout}")
        given = desk.tensor(image, kind.image, dtype, "turned" if layout == "turned" else "plain")
        filters = desk.tensor(weight, kind.weight, dtype)
        if layout == "last":
            if last is None:
                continue
            given, filters = given.contiguous(memory_format=last), filters.contiguous(memory_format=last)
        desk.rounds_to(_convolved(kind, given, filters, desk.tensor(bias, (len(bias),), dtype)), want, shape)


def _each(desk: Desk, kinds: dict[str, Kind]) -> None:
    for dtype in desk.types("float32", full=("float32", "float64", "bfloat16")):
        for part, kind in kinds.items():
            _forward(desk, part, kind, dtype)


def _strides(desk: Desk) -> None:
    _each(
        desk,
        {
            "3 by 3": Kind((2, 5, 11, 13), (4, 5, 3, 3), padding=(1, 1)),
            "stride 3": Kind((2, 4, 17, 14), (6, 4, 3, 3), stride=(3, 3), padding=(1, 1)),
            "strides 3 and 2": Kind((2, 4, 17, 14), (6, 4, 3, 5), stride=(3, 2), padding=(0, 2)),
            "stride 4, kernel 7": Kind((1, 3, 27, 26), (5, 3, 7, 7), stride=(4, 4), padding=(3, 3)),
            "kernel 1, stride 2": Kind((2, 8, 9, 9), (6, 8, 1, 1), stride=(2, 2)),
        },
    )


def _dilations(desk: Desk) -> None:
    _each(
        desk,
        {
            "dilation 2": Kind((2, 4, 13, 12), (5, 4, 3, 3), padding=(2, 2), dilation=(2, 2)),
            "dilation 3": Kind((2, 4, 15, 16), (5, 4, 3, 3), padding=(3, 3), dilation=(3, 3)),
            "dilations 4 and 1": Kind((1, 4, 17, 9), (5, 4, 3, 3), padding=(0, 1), dilation=(4, 1)),
            "dilation 3, stride 3": Kind((1, 4, 19, 19), (5, 4, 3, 3), stride=(3, 3), dilation=(3, 3)),
        },
    )


def _groups(desk: Desk) -> None:
    _each(
        desk,
        {
            "4 groups": Kind((2, 16, 9, 8), (12, 4, 3, 3), padding=(1, 1), groups=4),
            "32 groups": Kind((1, 64, 7, 7), (64, 2, 3, 3), padding=(1, 1), groups=32),
            "depthwise": Kind((2, 40, 9, 9), (40, 1, 3, 3), stride=(2, 2), padding=(1, 1), groups=40),
            "depthwise, two each": Kind((1, 16, 10, 9), (32, 1, 5, 5), padding=(2, 2), dilation=(1, 1), groups=16),
        },
    )


def _batches(desk: Desk) -> None:
    _each(
        desk,
        {
            "batch of 131": Kind((131, 3, 6, 5), (4, 3, 3, 3), padding=(1, 1)),
            "300 channels": Kind((1, 300, 5, 5), (7, 300, 3, 3)),
            "130 outputs": Kind((1, 7, 5, 6), (130, 7, 3, 3), padding=(1, 1)),
            "a wide picture": Kind((1, 2, 5, 1100), (2, 2, 3, 3), padding=(1, 1)),
        },
    )


def _dimensions(desk: Desk) -> None:
    _each(
        desk,
        {
            "a line": Kind((2, 5, 301), (4, 5, 7), (2,), (3,), (3,)),
            "a line in groups": Kind((2, 6, 77), (6, 1, 4), (1,), (3,), (1,), 6),
            "a volume": Kind((1, 3, 6, 7, 8), (4, 3, 3, 3, 3), (1, 2, 3), (1, 1, 1), (2, 1, 1)),
        },
    )


def _transposed(desk: Desk) -> None:
    """A transposed convolution is the gradient of the image of the plain one."""
    kinds = {
        "stride 2": Kind((2, 5, 13, 11), (6, 5, 3, 3), stride=(2, 2), padding=(1, 1)),
        "stride 3, dilation 2": Kind((1, 4, 18, 17), (5, 4, 3, 4), stride=(3, 3), dilation=(2, 2), padding=(1, 1)),
        "3 groups": Kind((2, 9, 13, 11), (6, 3, 3, 3), stride=(2, 2), padding=(1, 1), groups=3),
    }
    for dtype in desk.types("float32", full=("float32", "float64", "bfloat16")):
        for part, kind in kinds.items():
            desk.at(f"{part}, {dtype}")
            sizes, _ = taps(kind.image[2:], kind.weight[2:], kind)
            shape = (kind.image[0], kind.weight[0], *sizes)
            given, weight = desk.whole(math.prod(shape), 2), desk.rare(math.prod(kind.weight), 1)
            want, _, _ = backward(kind, [0] * math.prod(kind.image), weight, given)
            got = _convolved(
                kind, desk.tensor(given, shape, dtype), desk.tensor(weight, kind.weight, dtype), None, transposed=True
            )
            desk.rounds_to(got, want, kind.image)


def _gradients(desk: Desk) -> None:
    kinds = {
        "3 by 3": Kind((3, 4, 9, 8), (5, 4, 3, 3), padding=(1, 1)),
        "stride 3, dilation 2": Kind((2, 4, 15, 14), (6, 4, 3, 3), (3, 3), (2, 2), (2, 2)),
        "4 groups": Kind((2, 8, 8, 7), (8, 2, 3, 3), padding=(1, 1), groups=4),
        "depthwise": Kind((2, 9, 8, 8), (9, 1, 3, 3), padding=(1, 1), groups=9),
        "batch of 70": Kind((70, 2, 5, 4), (3, 2, 3, 3), padding=(1, 1)),
        "a line": Kind((2, 3, 41), (4, 3, 5), (2,), (2,), (3,)),
    }
    for dtype in desk.types("float32", full=("float32", "float64")):
        for part, kind in kinds.items():
            image, weight = desk.whole(math.prod(kind.image), 2), desk.rare(math.prod(kind.weight), 1)
            bias = desk.whole(kind.weight[0])
            leaves = [
                desk.leaf(image, kind.image, dtype),
                desk.leaf(weight, kind.weight, dtype),
                desk.leaf(bias, (len(bias),), dtype),
            ]
            out = _convolved(kind, *leaves)
            seed = desk.rare(out.numel(), 1)
            (out * desk.tensor(seed, tuple(out.shape), dtype)).sum().backward()
            wanted = backward(kind, image, weight, seed)
            for of, leaf, want in zip(("image", "weight", "bias"), leaves, wanted):
                desk.at(f"{part}, {dtype}, of the {of}")
                desk.rounds_to(leaf.grad, want, tuple(leaf.shape))


def _specials(desk: Desk) -> None:
    """NaN and infinity reach every place whose kernel covers them, and no other picture.

    An algorithm that transforms tiles makes NaN of infinity, and may spread it over its tile.
    """
    kind = Kind((2, 3, 9, 10), (4, 3, 3, 3), padding=(1, 1))
    for what in (math.nan, math.inf):
        desk.at(f"{what} in the image")
        image = [float(value) for value in desk.whole(math.prod(kind.image), 2)]
        image[123] = what
        shape, want = forward(kind, image, [1.0] * math.prod(kind.weight), [0] * 4)
        got = _convolved(
            kind, desk.tensor(image, kind.image), desk.tensor([1.0] * math.prod(kind.weight), kind.weight), None
        )
        seen = desk.values(got, shape, exact=False) or [0.0] * len(want)
        swallowed = [
            place for place, value in enumerate(want) if not math.isfinite(value) and math.isfinite(seen[place])
        ]
        other = len(want) // 2
        spread = [place for place in range(other, 2 * other) if not math.isfinite(seen[place])]
        desk.count(len(swallowed) + len(spread), len(want))


ROWS: dict[str, Row] = {
    "conv.strides": _strides,
    "conv.dilations": _dilations,
    "conv.groups": _groups,
    "conv.batches": _batches,
    "conv.dimensions": _dimensions,
    "conv.transposed": _transposed,
    "conv.gradients": _gradients,
    "conv.specials": _specials,
}
