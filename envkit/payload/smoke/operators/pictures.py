"""Pooling and interpolation, forward and backward, with every option that changes where a window or a sample lies."""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.plain import Desk, Numbers, Row, rows

_NAN = math.nan


class Window(NamedTuple):
    """A pooling window; ``ceil`` rounds the number of windows up."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil: bool = False


WINDOWS = (
    Window((2, 2), (2, 2)),
    Window((3, 3), (2, 2), (1, 1)),
    Window((3, 2), (3, 1), (1, 0)),
    Window((3, 3), (2, 3), (1, 1), ceil=True),
    Window((3, 3), (1, 1), (1, 1), (2, 2)),
    Window((2, 3), (2, 2), (0, 1), (3, 2)),
)


def windows(size: int, window: Window, axis: int) -> list[list[int]]:
    """The places of each window along one axis, those of the padding too."""
    kernel, stride, pad, spread = window.kernel[axis], window.stride[axis], window.padding[axis], window.dilation[axis]
    room = size + 2 * pad - spread * (kernel - 1) - 1
    count = (-(-room // stride) if window.ceil else room // stride) + 1
    if window.ceil and (count - 1) * stride >= size + pad:  # a window that begins in the padding behind is dropped
        count -= 1
    return [[at * stride - pad + spread * tap for tap in range(kernel)] for at in range(count)]


def _max_pool(desk: Desk) -> None:
    shape = (3, 5, 17, 14)
    high, wide = shape[2:]
    for dtype in desk.types("float32", full=("float32", "float64", "bfloat16")):
        values = desk.whole(math.prod(shape), 100) if dtype == "bfloat16" else desk.shuffled(math.prod(shape))
        for window in WINDOWS:
            lines, columns = windows(high, window, 0), windows(wide, window, 1)
            want, index = [], []
            for plane in rows(values, high * wide):
                for ys, xs in itertools.product(lines, columns):
                    own = [y * wide + x for y in ys for x in xs if 0 <= y < high and 0 <= x < wide]
                    best = max(own, key=plane.__getitem__)
                    want.append(plane[best])
                    index.append(best)
            size = (3, 5, len(lines), len(columns))
            for layout in ("plain", "turned", "last"):
                desk.at(f"{window}, {dtype}, {layout}")
                given = desk.tensor(values, shape, dtype, "turned" if layout == "turned" else "plain")
                given = given.contiguous(memory_format=torch.channels_last) if layout == "last" else given
                given = given.requires_grad_()
                out, places = torch.nn.functional.max_pool2d(given, *window, return_indices=True)
                desk.same(out, want, size)
                if dtype == "bfloat16":
                    continue
                desk.same(places, index, size)
                seed = desk.rare(len(want), 1)
                (out * desk.tensor(seed, size, dtype)).sum().backward()
                back = [0] * len(values)
                for at, (place, one) in enumerate(zip(index, seed)):
                    back[at // (size[2] * size[3]) * high * wide + place] += one
                desk.same(given.grad, back, shape)
        desk.at(f"NaN, {dtype}")
        line = [float(value) for value in desk.whole(66, 100)]
        line[17] = _NAN
        parts = rows(line, 3)
        want = [_NAN if any(v != v for v in part) else max(part) for part in parts]
        given = desk.tensor(line, (1, 1, 66), dtype)
        desk.same(torch.nn.functional.max_pool1d(given, 3), want, (1, 1, 22))
        desk.same(torch.nn.functional.max_pool2d(given[None], (1, 3)), want, (1, 1, 1, 22))
        desk.same(torch.nn.functional.adaptive_max_pool2d(given[None], (1, 22)), want, (1, 1, 1, 22))
    cube = desk.shuffled(2 * 5 * 6 * 7)
    desk.at("three axes")
    want = [
        max(cube[((c * 5 + z + dz) * 6 + y + dy) * 7 + x + dx] for dz in (0, 1) for dy in (0, 1) for dx in (0, 1))
        for c in range(2) for z in range(0, 4, 2) for y in range(0, 6, 2) for x in range(0, 6, 2)
    ]  # fmt: skip
    desk.same(torch.nn.functional.max_pool3d(desk.tensor(cube, (1, 2, 5, 6, 7)), 2), want, (1, 2, 2, 3, 3))


def _mean_pool(desk: Desk) -> None:
    shape = (3, 5, 17, 14)
    high, wide = shape[2:]
    functional = torch.nn.functional
    for dtype in desk.types("float32", full=("float32", "float64", "bfloat16")):
        values = desk.parts(math.prod(shape))
        given = desk.leaf(values, shape, dtype)
        for window, counted in itertools.product(WINDOWS[:4], (True, False)):
            desk.at(f"{window}, padding {'counted' if counted else 'not counted'}, {dtype}")
            lines, columns = windows(high, window, 0), windows(wide, window, 1)
            want, of = [], []
            for plane in rows(values, high * wide):
                for ys, xs in itertools.product(lines, columns):
                    own = [y * wide + x for y in ys for x in xs if 0 <= y < high and 0 <= x < wide]
                    room = [
                        sum(at < size + pad for at in places)
                        for places, size, pad in zip((ys, xs), (high, wide), window.padding)
                    ]
                    by = room[0] * room[1] if counted else len(own)
                    want.append(math.fsum(plane[at] for at in own) / by)
                    of.append((own, by))
            size = (3, 5, len(lines), len(columns))
            out = functional.avg_pool2d(given, window.kernel, window.stride, window.padding, window.ceil, counted)
            desk.near(out, want, size)
            if dtype == "bfloat16":
                continue
            seed = desk.whole(len(want))
            given.grad = None
            (out * desk.tensor(seed, size, dtype)).sum().backward()
            back = [0.0] * len(values)
            for at, ((own, by), one) in enumerate(zip(of, seed)):
                for place in own:
                    back[at // (size[2] * size[3]) * high * wide + place] += one / by
            desk.near(given.grad, back, shape)
        for tall, broad in ((1, 1), (4, 5), (17, 3), (20, 16)):
            desk.at(f"adaptive to {tall} x {broad}, {dtype}")
            spans = [
                [range(at * size // count, -(-(at + 1) * size // count)) for at in range(count)]
                for size, count in ((high, tall), (wide, broad))
            ]
            planes = rows(values, high * wide)
            cells = [
                [plane[y * wide + x] for y in ys for x in xs]
                for plane in planes for ys, xs in itertools.product(*spans)
            ]  # fmt: skip
            got = functional.adaptive_avg_pool2d(given, (tall, broad))
            desk.near(got, [math.fsum(cell) / len(cell) for cell in cells], (3, 5, tall, broad))
            desk.same(functional.adaptive_max_pool2d(given, (tall, broad)), list(map(max, cells)))
        desk.at(f"a line, {dtype}")
        line = desk.parts(66)
        want = [math.fsum(part) / 3 for part in rows(line, 3)]
        desk.near(functional.avg_pool1d(desk.tensor(line, (1, 1, 66), dtype), 3), want)


def _cubic(at: float) -> tuple[float, float, float, float]:
    """The weights of four neighbours, at ``at`` behind the second (R. Keys, 1981, with a = -0.75)."""
    a = -0.75

    def near(x: float) -> float:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: float) -> float:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return far(at + 1), near(at), near(1 - at), far(2 - at)


def taken(size: int, count: int, mode: str, corners: bool) -> list[list[tuple[int, float]]]:
    """For each of ``count`` samples of ``size`` places: which places it takes, and how much of each."""
    found: list[list[tuple[int, float]]] = []
    for at in range(count):
        if mode == "nearest":
            found.append([(min(at * size // count, size - 1), 1.0)])
            continue
        if mode == "nearest-exact":
            found.append([(min(int((at + 0.5) * size / count), size - 1), 1.0)])
            continue
        source = at * (size - 1) / max(1, count - 1) if corners else (at + 0.5) * size / count - 0.5
        if mode == "bicubic":
            first = math.floor(source)
            parts = _cubic(source - first)
            found.append([(min(max(first - 1 + k, 0), size - 1), part) for k, part in enumerate(parts)])
            continue
        source = max(source, 0.0)
        first = min(int(source), size - 1)
        found.append([(first, 1 - (source - first)), (min(first + 1, size - 1), source - first)])
    return found


def _interpolated(desk: Desk) -> None:
    shape = (2, 3, 8, 6)
    high, wide = shape[2:]
    for dtype in desk.types("float32", full=("float32", "float64")):
        values = desk.parts(math.prod(shape))
        for mode, corners in (
            ("nearest", False),
            ("nearest-exact", False),
            ("bilinear", False),
            ("bilinear", True),
            ("bicubic", False),
            ("bicubic", True),
        ):
            # Halfway between two places, CUDA may send the gradient to the one that its output does not come from.
            sizes = ((16, 12), (16, 4), (32, 20)) if mode == "nearest-exact" else ((16, 12), (4, 3), (13, 9), (1, 1))
            for tall, broad in sizes:
                desk.at(f"{mode}, {'aligned, ' * corners}{tall} x {broad}, {dtype}")
                down, across = taken(high, tall, mode, corners), taken(wide, broad, mode, corners)
                want = [
                    math.fsum(plane[y * wide + x] * p * q for y, p in ys for x, q in xs)
                    for plane in rows(values, high * wide) for ys, xs in itertools.product(down, across)
                ]  # fmt: skip
                leaf = desk.leaf(values, shape, dtype)
                how = {} if "nearest" in mode else {"align_corners": corners}
                out = torch.nn.functional.interpolate(leaf, (tall, broad), mode=mode, **how)
                desk.near(out, want, (2, 3, tall, broad))
                seed = desk.whole(len(want))
                (out * desk.tensor(seed, (2, 3, tall, broad), dtype)).sum().backward()
                back = [0.0] * len(values)
                for at, one in enumerate(seed):
                    plane, place = divmod(at, tall * broad)
                    for y, p in down[place // broad]:
                        for x, q in across[place % broad]:
                            back[plane * high * wide + y * wide + x] += one * p * q
                desk.near(leaf.grad, back, shape)
        line = desk.parts(2 * 11)
        desk.at(f"linear, {dtype}")
        spots = taken(11, 25, "linear", False)
        want = [math.fsum(row[x] * part for x, part in spot) for row in rows(line, 11) for spot in spots]
        got = torch.nn.functional.interpolate(desk.tensor(line, (1, 2, 11), dtype), 25, mode="linear")
        desk.near(got, want)
        desk.at(f"area, {dtype}")
        want = [
            math.fsum(row[at] for at in range(k * 11 // 4, -(-(k + 1) * 11 // 4)))
            for row in rows(line, 11)
            for k in range(4)
        ]
        counts = [-(-(k + 1) * 11 // 4) - k * 11 // 4 for k in range(4)] * 2
        got = torch.nn.functional.interpolate(desk.tensor(line, (1, 2, 11), dtype), 4, mode="area")
        desk.near(got, [value / size for value, size in zip(want, counts)])


def _sampled(desk: Desk) -> None:
    shape, count = (2, 3, 7, 6), 40
    high, wide = shape[2:]
    values = desk.parts(math.prod(shape))
    # 256ths plus an odd one, so that no sample lies on the edge between two places
    spots = [value * 0.5 + 1 / 1024 for value in desk.parts(2 * count * 2, 2.5)]
    planes = rows(values, high * wide)
    for mode, padding, corners in itertools.product(("bilinear", "nearest"), ("zeros", "border"), (True, False)):
        desk.at(f"grid_sample, {mode}, {padding}{', aligned' * corners}")
        want = []
        for image, channel in itertools.product(range(2), range(3)):
            plane = planes[image * 3 + channel]
            for x, y in rows(spots[image * 2 * count : (image + 1) * 2 * count], 2):
                at = [
                    (one + 1) / 2 * (size - 1) if corners else ((one + 1) * size - 1) / 2
                    for one, size in ((x, wide), (y, high))
                ]
                if padding == "border":
                    at = [min(max(one, 0.0), size - 1.0) for one, size in zip(at, (wide, high))]
                want.append(_sample(plane, wide, high, at[0], at[1], mode))
        got = torch.nn.functional.grid_sample(
            desk.tensor(values, shape), desk.tensor(spots, (2, 5, 8, 2)), mode, padding, align_corners=corners
        )
        desk.near(got, want, (2, 3, 5, 8))


def _sample(plane: Numbers, wide: int, high: int, x: float, y: float, mode: str) -> Any:
    """One sample; what lies outside is 0."""
    if mode == "nearest":
        near_x, near_y = round(x), round(y)
        return plane[near_y * wide + near_x] if 0 <= near_x < wide and 0 <= near_y < high else 0.0
    left, top = math.floor(x), math.floor(y)
    total = 0.0
    for row, share in ((top, top + 1 - y), (top + 1, y - top)):
        for column, part in ((left, left + 1 - x), (left + 1, x - left)):
            if 0 <= column < wide and 0 <= row < high:
                total += plane[row * wide + column] * share * part
    return total


ROWS: dict[str, Row] = {
    "pool.largest": _max_pool,
    "pool.means": _mean_pool,
    "interpolate.modes": _interpolated,
    "interpolate.grids": _sampled,
}
