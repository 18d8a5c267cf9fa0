"""Sums, products, extremes and running ones, along each axis, of many and of few, of nothing and of NaN."""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.along import along
from envkit.payload.smoke.operators.plain import FLOATS, HALVES, Desk, Numbers, Row, dot, rows, turned

_NAN, _INF = math.nan, math.inf


def lines(values: Numbers, shape: tuple[int, ...], axis: int) -> list[Numbers]:
    """The lines along ``axis``, in the order of the other axes."""
    axis %= len(shape)
    order = [place for place in range(len(shape)) if place != axis] + [axis]
    return rows(turned(values, shape, order), shape[axis])


def without(shape: tuple[int, ...], axis: int, keep: bool = False) -> tuple[int, ...]:
    """The shape after a reduction."""
    axis %= len(shape)
    return (*shape[:axis], *((1,) if keep else ()), *shape[axis + 1 :])


def _layouts(desk: Desk, count: int) -> tuple[str, ...]:
    """Layouts to try for so many elements."""
    if count > 20_000:
        return ("plain", "turned") if desk.full else ("plain",)
    return ("plain", "turned", "spaced") if desk.full else ("plain", "turned")


def _sums(desk: Desk) -> None:
    shapes: tuple[tuple[int, ...], ...] = ((5, 33, 7), (3, 4133), (4133, 3), (70_001, 2), (1, 131_075), (131,))
    for dtype in desk.types("float32", "bfloat16", full=(*FLOATS, "int32", "bool")):
        for shape in shapes:
            few = dtype not in ("float32", "int32")
            if few and math.prod(shape) > 20_000:
                continue
            count = math.prod(shape)
            values = desk.rare(count, 6) if dtype in HALVES else desk.whole(count)
            values = [int(value > 0) for value in values] if dtype == "bool" else values
            result = dtype if dtype in FLOATS else "int64"
            for layout in _layouts(desk, count):
                given = desk.tensor(values, shape, dtype, layout)
                for axis in range(len(shape)):
                    desk.at(f"sum of {shape} along {axis}, {dtype}, {layout}")
                    want = [sum(line) for line in lines(values, shape, axis)]
                    desk.same(given.sum(axis), want, without(shape, axis))
                    if layout == "plain":
                        out = desk.empty(without(shape, axis, True), result)
                        desk.same(torch.sum(given, axis, keepdim=True, out=out), want, without(shape, axis, True))
                desk.at(f"sum of all {shape}, {dtype}, {layout}")
                if dtype != "bfloat16":
                    desk.same(given.sum(), [sum(values)], ())
        if dtype == "float32":
            shape = (5, 33, 7)
            values = desk.whole(math.prod(shape))
            for dim, order in (((0, 2), (1, 0, 2)), ((1, 2), (0, 1, 2)), ((0, 1), (2, 0, 1))):
                desk.at(f"sum of {shape} along {dim}")
                width = math.prod(shape[axis] for axis in dim)
                want = [sum(row) for row in rows(turned(values, shape, order), width)]
                desk.same(desk.tensor(values, shape).sum(dim), want)
                desk.near(desk.tensor(values, shape).mean(dim), [value / width for value in want])
                desk.same(
                    desk.tensor(values, shape).amax(dim),
                    [max(row) for row in rows(turned(values, shape, order), width)],
                )


def _moments(desk: Desk) -> None:
    for dtype in desk.types("float32", "bfloat16"):
        for shape in ((9, 5, 11), (3, 1999), (2053, 3)):
            values = [value + 1.5 for value in desk.parts(math.prod(shape), 1)]  # a mean near 0 has lost its precision
            for layout in ("plain", "turned"):
                given = desk.tensor(values, shape, dtype, layout)
                for axis in range(len(shape)):
                    desk.at(f"{shape} along {axis}, {dtype}, {layout}")
                    each = lines(values, shape, axis)
                    count = shape[axis]
                    middle = [math.fsum(line) / count for line in each]
                    spread = [math.fsum((x - mean) ** 2 for x in line) for line, mean in zip(each, middle)]
                    desk.near(given.mean(axis), middle)
                    desk.near(given.var(axis), [value / (count - 1) for value in spread])
                    desk.near(given.std(axis, unbiased=False), [math.sqrt(value / count) for value in spread])
                    desk.near(given.norm(dim=axis), [math.sqrt(dot(line, line)) for line in each])
                    desk.near(given.logsumexp(axis), [math.log(math.fsum(map(math.exp, line))) for line in each])
                    desk.near(given.norm(p=1, dim=axis), [math.fsum(map(abs, line)) for line in each])
                desk.at(f"all of {shape}, {dtype}, {layout}")
                mean = math.fsum(values) / len(values)
                spread_all = math.fsum((x - mean) ** 2 for x in values)
                desk.near(given.mean(), [mean])
                desk.near(given.std(), [math.sqrt(spread_all / (len(values) - 1))])
                both = torch.var_mean(given, unbiased=False)
                desk.near(both[0], [spread_all / len(values)])
                desk.near(both[1], [mean])
                desk.near(torch.linalg.vector_norm(given), [math.sqrt(dot(values, values))])


def _extremes(desk: Desk) -> None:
    for dtype in desk.types("float32", full=("float32", "float64", "int64", "int32")):
        for shape in ((5, 33, 7), (2, 4133), (4133, 2), (70_001,)):
            values = desk.shuffled(math.prod(shape))
            for layout in _layouts(desk, len(values)):
                given = desk.tensor(values, shape, dtype, layout)
                for axis in range(len(shape)):
                    desk.at(f"{shape} along {axis}, {dtype}, {layout}")
                    each = lines(values, shape, axis)
                    most, least = [max(line) for line in each], [min(line) for line in each]
                    top = [line.index(value) for line, value in zip(each, most)]
                    low = [line.index(value) for line, value in zip(each, least)]
                    for got, want in (
                        (given.max(axis).values, most),
                        (given.max(axis).indices, top),
                        (given.min(axis).values, least),
                        (given.min(axis).indices, low),
                        (given.amax(axis), most),
                        (given.amin(axis), least),
                        (given.argmax(axis), top),
                        (given.argmin(axis), low),
                    ):
                        desk.same(got, want, without(shape, axis))
                desk.at(f"all of {shape}, {dtype}, {layout}")
                desk.same(given.max(), [max(values)], ())
                desk.same(given.min(), [min(values)], ())
                desk.same(given.argmax(), [values.index(max(values))], ())
                desk.same(torch.stack(torch.aminmax(given)), [0, len(values) - 1])
        desk.at(f"with NaN, {dtype}")
        if dtype in FLOATS:
            for place in (0, 700, 1299):
                row = [float(value) for value in desk.shuffled(1300)]
                row[place] = _NAN
                given = desk.tensor(row * 2, (2, 1300), dtype)
                for got in (given.max(1).values, given.min(1).values, given.amax(1), given.amin(1), given.sum(1)):
                    desk.same(got, [_NAN] * 2)
                for got in (given.max(), given.min(), given.sum(), given.mean(), given.prod(), given.norm()):
                    desk.same(got, [_NAN])
                for got in (given.max(1).indices, given.argmax(1), given.argmin(1)):
                    desk.same(got, [place] * 2)
                desk.same(given.nansum(1), [math.fsum(value for value in row if value == value)] * 2)
                row[place] = _INF
                given = desk.tensor(row * 2, (2, 1300), dtype)
                desk.same(given.max(1).values, [_INF] * 2)
                desk.same(given.sum(1), [_INF] * 2)
                desk.same(given.cumsum(1)[:, place:].isinf(), [1] * 2 * (1300 - place))


def _running(desk: Desk) -> None:
    def summed(line: Numbers) -> list[Any]:
        return list(itertools.accumulate(line))

    def most(line: Numbers) -> list[Any]:
        return list(itertools.accumulate(line, max))

    def least(line: Numbers) -> list[Any]:
        return list(itertools.accumulate(line, min))

    for dtype in desk.types("float32", full=("float32", "float64", "int64", "bfloat16")):
        for shape in ((3, 35, 5), (2, 5003), (2051, 2), (1, 70_001)):
            if dtype == "bfloat16" and math.prod(shape) > 20_000:
                continue
            count = math.prod(shape)
            values = desk.rare(count, 6) if dtype == "bfloat16" else desk.whole(count)
            for layout in _layouts(desk, count):
                given = desk.tensor(values, shape, dtype, layout)
                for axis in range(len(shape)):
                    desk.at(f"{shape} along {axis}, {dtype}, {layout}")
                    want = along(values, shape, axis, summed)
                    desk.same(given.cumsum(axis), want, shape)
                    desk.same(given.cummax(axis).values, along(values, shape, axis, most), shape)
                    desk.same(given.cummin(axis).values, along(values, shape, axis, least), shape)
                    if layout == "plain":
                        out = desk.empty(shape, dtype)
                        desk.same(torch.cumsum(given, axis, out=out), want, shape)
                        desk.same(given.clone().cumsum_(axis), want, shape)
        desk.at(f"products, {dtype}")
        signs = [value or 1 for value in desk.rare(3 * 1300, 0)]
        given = desk.tensor(signs, (3, 1300), dtype)

        def multiplied(line: Numbers) -> list[Any]:
            return list(itertools.accumulate(line, lambda a, b: a * b))

        desk.same(given.cumprod(1), along(signs, (3, 1300), 1, multiplied), (3, 1300))
        desk.same(given.prod(1), [math.prod(row) for row in rows(signs, 1300)], (3,))
        desk.same(given.prod(), [math.prod(signs)], ())
        if dtype in FLOATS:
            desk.at(f"logcumsumexp, {dtype}")
            some = desk.parts(130)
            want = [math.log(total) for total in itertools.accumulate(map(math.exp, some))]
            desk.near(desk.tensor(some, (130,), dtype).logcumsumexp(0), want)


def _truths(desk: Desk) -> None:
    for shape in ((5, 33, 7), (3, 2053), (2053, 3)):
        count = math.prod(shape)
        for share in (0, 2, 400):
            values = [int(draw < share) for draw in desk.below(count, 3000)]
            flipped = [1 - value for value in values]
            for layout in ("plain", "turned"):
                given, other = desk.tensor(values, shape, "bool", layout), desk.tensor(flipped, shape, "bool", layout)
                desk.at(f"{shape}, {share} of 3000 true, {layout}")
                for axis in range(len(shape)):
                    each = lines(values, shape, axis)
                    desk.same(given.any(axis), [int(any(line)) for line in each], without(shape, axis))
                    desk.same(other.all(axis), [int(not any(line)) for line in each], without(shape, axis))
                    desk.same(torch.count_nonzero(given, axis), [sum(line) for line in each], without(shape, axis))
                desk.same(given.any(), [int(any(values))], ())
                desk.same(other.all(), [int(not any(values))], ())
                desk.same(given.count_nonzero(), [sum(values)], ())


def _empty(desk: Desk) -> None:
    nothing = desk.tensor([], (3, 0))
    for got, want in (
        (nothing.sum(1), [0] * 3),
        (nothing.prod(1), [1] * 3),
        (nothing.mean(1), [_NAN] * 3),
        (nothing.sum(), [0]),
        (nothing.all(1), [1] * 3),
        (nothing.any(1), [0] * 3),
        (nothing.cumsum(1).sum(1), [0] * 3),
        (desk.tensor([4], ()).sum(), [4]),
        (desk.tensor([4], ()).max(), [4]),
        (desk.tensor([4], ()).cumsum(0), [4]),
        (desk.tensor([4], ()).softmax(0), [1]),
        (desk.tensor([4], ()).argmax(), [0]),
    ):
        desk.same(got, want)


def _gradients(desk: Desk) -> None:
    shape = (5, 33, 7)
    count = math.prod(shape)
    for dtype in desk.types("float32", full=("float32", "float64")):
        values = desk.shuffled(count)

        def of(work: Callable[[Any, int], Any], axis: int, values: Sequence[Any] = values, dtype: str = dtype) -> Any:
            leaf = desk.leaf(values, shape, dtype)
            out = work(leaf, axis)
            seed = desk.whole(out.numel())
            (out * desk.tensor(seed, tuple(out.shape), dtype)).sum().backward()
            return seed, leaf.grad

        for axis in range(3):
            desk.at(f"along {axis}, {dtype}")
            order = [place for place in range(3) if place != axis] + [axis]
            back = [order.index(place) for place in range(3)]
            mixed = tuple(shape[place] for place in order)
            each = lines(values, shape, axis)
            seed, got = of(lambda leaf, axis: leaf.sum(axis), axis)
            desk.same(got, turned([one for one in seed for _ in range(shape[axis])], mixed, back), shape)
            seed, got = of(lambda leaf, axis: leaf.max(axis).values, axis)
            want = [one * (value == max(line)) for one, line in zip(seed, each) for value in line]
            desk.same(got, turned(want, mixed, back), shape)
            seed, got = of(lambda leaf, axis: leaf.cumsum(axis), axis)
            want = along(seed, shape, axis, lambda line: list(itertools.accumulate(reversed(line)))[::-1])
            desk.same(got, want, shape)


ROWS: dict[str, Row] = {
    "reduce.sums": _sums,
    "reduce.moments": _moments,
    "reduce.extremes": _extremes,
    "reduce.running": _running,
    "reduce.truths": _truths,
    "reduce.empty": _empty,
    "reduce.gradients": _gradients,
}
