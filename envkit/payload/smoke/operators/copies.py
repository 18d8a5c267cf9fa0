"""Copies: between layouts, types, memories; joining, cutting, turning, padding and filling.  Every answer is exact."""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.plain import FLOATS, Desk, Numbers, Row, rows, turned

_NAN, _INF = math.nan, math.inf
_KINDS = ("plain", "turned", "spaced", "shifted")
_TYPES = ("float32", "int64", "bfloat16", "uint8", "float64", "float16", "int32", "int8", "bool")


def _small(desk: Desk, dtype: str, count: int) -> list[int]:
    """Integers that the type holds."""
    return desk.below(count, 2 if dtype == "bool" else 120)


def _layouts(desk: Desk) -> None:
    for dtype in desk.types("float32", "bfloat16", "uint8", full=_TYPES):
        for shape in ((33, 5, 13), (65, 67)):
            values = _small(desk, dtype, math.prod(shape))
            given = {kind: desk.tensor(values, shape, dtype, kind) for kind in _KINDS}
            for one, other in itertools.product(_KINDS, _KINDS):
                desk.at(f"copy_ of {one} into {other}, {shape}, {dtype}")
                into = desk.tensor([1] * len(values), shape, dtype, other)
                desk.same(into.copy_(given[one]), values, shape)
            for kind in _KINDS:
                desk.at(f"clone and contiguous of {kind}, {shape}, {dtype}")
                desk.same(given[kind].clone(), values, shape)
                desk.same(given[kind].clone(memory_format=torch.contiguous_format), values, shape)
                desk.same(given[kind].contiguous(), values, shape)
                desk.same(given[kind].reshape(-1), values, (len(values),))
                last = tuple(range(len(shape)))[::-1]
                desk.same(given[kind].permute(last).contiguous(), turned(values, shape, last), shape[::-1])
                desk.same(given[kind].transpose(0, 1).clone(), turned(values, shape, (1, 0, *range(2, len(shape)))))
    pictures = (3, 5, 7, 11)
    values = desk.below(math.prod(pictures), 1000)
    desk.at("channels_last")
    channels = desk.tensor(values, pictures).contiguous(memory_format=torch.channels_last)
    desk.same(channels, values, pictures)
    desk.same(channels.contiguous(), values, pictures)
    desk.same(channels.permute(0, 2, 3, 1).reshape(-1), turned(values, pictures, (0, 2, 3, 1)))


def _large(desk: Desk) -> None:
    """More than a million elements, of a pattern, so that a block left out or moved is seen."""
    period, times = 4093, 300
    for dtype in desk.types("float32", full=("float32", "uint8", "int64", "bfloat16")):
        values = _small(desk, dtype, period)
        line = desk.tensor(values, (1, period), dtype)
        desk.at(f"{period * times} elements expanded, {dtype}")
        many = line.expand(times, period).contiguous()
        desk.same(many, values * times)
        if desk.full:
            desk.at(f"{period * times} elements copied, {dtype}")
            desk.same(torch.empty_like(many).copy_(many), values * times)
            desk.at(f"{period * times} elements transposed, {dtype}")
            desk.same(many.t().contiguous(), [value for value in values for _ in range(times)])
        desk.at(f"{period * times} elements to and from the device, {dtype}")
        desk.same(many.to("cpu").to(desk.bench.device), values * times)
        if desk.bench.on_gpu:
            desk.at(f"{period * times} elements through pinned memory, {dtype}")
            pinned = many.cpu().pin_memory()
            there = pinned.to(desk.bench.device, non_blocking=True)
            back = torch.empty_like(pinned, pin_memory=True).copy_(there, non_blocking=True)
            torch.cuda.synchronize()
            desk.same(back, values * times)


def _rounded(value: float, dtype: str) -> float:
    """To the nearest number of a type, of two to the even one."""
    if not math.isfinite(value):
        return value
    if dtype == "float64":
        return value
    if dtype == "bfloat16":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        bits += 0x7FFF + ((bits >> 16) & 1)
        return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0])
    try:
        code = "<e" if dtype == "float16" else "<f"
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(_INF, value)


def _casts(desk: Desk) -> None:
    single = [_rounded(value / 1000, "float32") for value in desk.whole(1031, 200_000)]
    edges = [0.0, -0.0, 65_504.0, 65_519.0, 65_520.0, 1e30, -1e30, 2.0**-24, 2.0**-25, 3 * 2.0**-26, 2.0**-140]
    edges += [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 2049.0, 2051.0, 257.0, 259.0]
    edges = [_rounded(value, "float32") for value in (*edges, _INF, -_INF, _NAN, 3.38e38)]
    for given in (single, edges * 3):
        for layout in ("plain", "spaced"):
            tensor = desk.tensor(given, (len(given),), "float32", layout)
            for dtype in FLOATS:
                want = [_rounded(value, dtype) for value in given]
                desk.at(f"float32 to {dtype}, {layout}")
                narrow = tensor.to(getattr(torch, dtype))
                desk.same(narrow, want)
                desk.same(torch.empty_like(narrow).copy_(tensor), want)
                desk.at(f"{dtype} to float32 and float64, {layout}")
                desk.same(narrow.to(torch.float32), want)
                desk.same(narrow.to(torch.float64), want)
    tensor = desk.tensor(single, (len(single),))
    for dtype in ("int32", "int64", "int16"):
        desk.at(f"float32 to {dtype}, towards zero")
        desk.same(tensor.to(getattr(torch, dtype)), [math.trunc(value) for value in single])
    desk.at("float32 to bool")
    desk.same(desk.tensor([0.0, -0.0, 0.25, _NAN, -3.0], (5,)).to(torch.bool), [0, 0, 1, 1, 1])
    wide = [value * 3**20 for value in desk.whole(1031, 2**10)]
    desk.at("int64 to int32, int8 and float")
    long = desk.tensor(wide, (len(wide),), "int64")
    desk.same(long.to(torch.int32), [(value + 2**31) % 2**32 - 2**31 for value in wide])
    desk.same(long.to(torch.int8), [(value + 128) % 256 - 128 for value in wide])
    desk.same(long.to(torch.uint8), [value % 256 for value in wide])
    desk.same(long.to(torch.float64), wide)
    desk.same(long.to(torch.float32), [_rounded(float(value), "float32") for value in wide])
    for dtype in FLOATS:
        desk.at(f"bool and uint8 to {dtype}")
        bits, bytes_ = desk.below(2053, 2), desk.below(2053, 256)
        desk.same(desk.tensor(bits, (2053,), "bool").to(getattr(torch, dtype)), bits)
        desk.same(desk.tensor(bytes_, (2053,), "uint8").to(getattr(torch, dtype)), bytes_)


def _joined(desk: Desk) -> None:
    for dtype in desk.types("float32", full=("float32", "bfloat16", "int64", "bool")):
        for count in (2, 3, 9, 35, 150):
            sizes = [1 + place % 5 for place in range(count)]
            pieces = [_small(desk, dtype, 7 * size) for size in sizes]
            for layout in ("plain", "turned"):
                tensors = [desk.tensor(piece, (7, size), dtype, layout) for piece, size in zip(pieces, sizes)]
                desk.at(f"cat of {count} along 1, {dtype}, {layout}")
                want = [
                    value for row in range(7) for piece, size in zip(pieces, sizes) for value in rows(piece, size)[row]
                ]
                shape = (7, sum(sizes))
                joined = torch.cat(tensors, 1)
                desk.same(joined, want, shape)
                desk.same(torch.cat(tensors, 1, out=desk.empty(shape, dtype)), want, shape)
                desk.at(f"split into {count}, {dtype}, {layout}")
                for part, piece in zip(joined.split(sizes, 1), pieces):
                    desk.same(part.contiguous(), piece)
                desk.at(f"cat of {count} along 0, {dtype}, {layout}")
                down = torch.cat([tensor.t() for tensor in tensors])
                desk.same(down, turned(want, shape, (1, 0)), shape[::-1])
            desk.at(f"stack of {count}, {dtype}")
            even = [_small(desk, dtype, 15) for _ in range(count)]
            tensors = [desk.tensor(piece, (3, 5), dtype) for piece in even]
            desk.same(torch.stack(tensors), [value for piece in even for value in piece], (count, 3, 5))
            crossed = turned([value for piece in even for value in piece], (count, 3, 5), (1, 2, 0))
            desk.same(torch.stack(tensors, 2), crossed, (3, 5, count))
        desk.at(f"cat with nothing, {dtype}")
        few = _small(desk, dtype, 6)
        desk.same(torch.cat([desk.tensor([], (0, 3), dtype), desk.tensor(few, (2, 3), dtype)]), few, (2, 3))
    desk.at("cat of several types")
    got = torch.cat([desk.tensor([1, 2], (2,), "int64"), desk.tensor([0.5], (1,))])
    desk.same(got, [1, 2, 0.5])


def _turned(desk: Desk) -> None:
    shape = (5, 7, 66)
    for dtype in desk.types("float32", full=("float32", "bfloat16", "int64", "bool")):
        values = _small(desk, dtype, math.prod(shape))
        cube = [rows(plane, 66) for plane in rows(values, 7 * 66)]
        for layout in ("plain", "turned"):
            given = desk.tensor(values, shape, dtype, layout)
            for name, got, want in (
                ("flip of 2", given.flip(2), [v for plane in cube for row in plane for v in row[::-1]]),
                ("flip of 0 and 1", given.flip(0, 1), [v for plane in cube[::-1] for row in plane[::-1] for v in row]),
                ("roll of 2", given.roll(3, 2), [v for plane in cube for row in plane for v in row[-3:] + row[:-3]]),
                ("roll of 1", given.roll(-2, 1), [v for plane in cube for row in plane[2:] + plane[:2] for v in row]),
                ("roll of all", given.roll(5), values[-5:] + values[:-5]),
                ("repeat", given.repeat(2, 1, 1), values * 2),
                ("repeat inside", given.repeat(1, 1, 2), [v for plane in cube for row in plane for v in row * 2]),
                (
                    "repeat_interleave",
                    given.repeat_interleave(3, 0),
                    [v for plane in cube for _ in range(3) for row in plane for v in row],
                ),
                (
                    "tril",
                    given.tril(-1),
                    [
                        v if k <= i - 1 else 0
                        for plane in cube
                        for i, row in enumerate(plane)
                        for k, v in enumerate(row)
                    ],
                ),
                (
                    "triu",
                    given.triu(2),
                    [
                        v if k >= i + 2 else 0
                        for plane in cube
                        for i, row in enumerate(plane)
                        for k, v in enumerate(row)
                    ],
                ),
                (
                    "diagonal",
                    given.diagonal(1, 1, 2).contiguous(),
                    [plane[i][i + 1] for plane in cube for i in range(7)],
                ),
                (
                    "narrow",
                    given[1:4, ::2, 3:60:7].contiguous(),
                    [v for plane in cube[1:4] for row in plane[::2] for v in row[3:60:7]],
                ),
                (
                    "unfold",
                    given.unfold(2, 8, 5).contiguous(),
                    [v for plane in cube for row in plane for at in range(0, 59, 5) for v in row[at : at + 8]],
                ),
                (
                    "rot90",
                    torch.rot90(given, 1, (0, 1)),
                    [v for j in range(6, -1, -1) for i in range(5) for v in cube[i][j]],
                ),
            ):
                desk.at(f"{name}, {dtype}, {layout}")
                desk.same(got, want)


def _padded(desk: Desk) -> None:
    shape = (2, 3, 7, 9)
    pad = torch.nn.functional.pad
    left, right, top, low = 2, 3, 1, 2
    for dtype in desk.types("float32", full=("float32", "bfloat16", "float64")):
        values = _small(desk, dtype, math.prod(shape))
        planes = [rows(plane, 9) for plane in rows(values, 63)]

        def placed(at: int, size: int, how: str) -> int:
            if 0 <= at < size:
                return at
            if how == "replicate":
                return min(max(at, 0), size - 1)
            if how == "circular":
                return at % size
            return -at if at < 0 else 2 * (size - 1) - at

        for layout in ("plain", "turned"):
            given = desk.tensor(values, shape, dtype, layout)
            for how in ("constant", "reflect", "replicate", "circular"):
                desk.at(f"pad, {how}, {dtype}, {layout}")
                want: list[Any] = []
                for plane in planes:
                    for y in range(-top, 7 + low):
                        for x in range(-left, 9 + right):
                            inside = 0 <= y < 7 and 0 <= x < 9
                            if how == "constant":
                                want.append(plane[y][x] if inside else 5)
                            else:
                                want.append(plane[placed(y, 7, how)][placed(x, 9, how)])
                more = {"value": 5.0} if how == "constant" else {}
                desk.same(pad(given, (left, right, top, low), mode=how, **more), want, (2, 3, 10, 14))
            desk.at(f"pad of one axis, {dtype}, {layout}")
            line = given.reshape(6, 7, 9)
            for how in ("reflect", "replicate"):
                want = [row[placed(x, 9, how)] for plane in planes for row in plane for x in range(-2, 12)]
                desk.same(pad(line, (2, 3), mode=how), want)
            desk.at(f"pad that cuts, {dtype}, {layout}")
            desk.same(pad(given, (-2, -1)), [v for plane in planes for row in plane for v in row[2:8]])


def _filled(desk: Desk) -> None:
    where = desk.bench.device
    for dtype in desk.types("float32", "int64", full=("float32", "int64", "bfloat16", "bool", "uint8")):
        kind = getattr(torch, dtype)
        count = 5003
        for layout in ("plain", "turned", "spaced"):
            desk.at(f"fill_ and zero_, {dtype}, {layout}")
            given = desk.tensor([1] * count, (count, 1), dtype, layout)
            desk.same(given.fill_(0), [0] * count)
            desk.same(given.fill_(1), [1] * count)
            desk.same(given.zero_(), [0] * count)
        desk.at(f"zeros, ones, full and eye, {dtype}")
        desk.same(torch.zeros(count, dtype=kind, device=where), [0] * count)
        desk.same(torch.ones(count, dtype=kind, device=where), [1] * count)
        desk.same(torch.full((count,), 1, dtype=kind, device=where), [1] * count)
        desk.same(torch.zeros_like(given), [0] * count)
        desk.same(torch.ones_like(given), [1] * count)
        desk.same(torch.eye(37, 41, dtype=kind, device=where), [int(i == j) for i in range(37) for j in range(41)])
        if dtype in ("float32", "int64"):
            desk.at(f"arange, {dtype}")
            desk.same(torch.arange(-3, 20_011, 7, dtype=kind, device=where), list(range(-3, 20_011, 7)))
    desk.at("linspace")
    desk.near(torch.linspace(-2, 5, 1031, device=where, dtype=torch.float32), [-2 + 7 * k / 1030 for k in range(1031)])
    desk.at("one number")
    given = desk.tensor([2.5], (), "float32")
    desk.same(given.clone(), [2.5], ())
    desk.count(int(given.item() != 2.5))
    desk.count(int(desk.tensor([7, 2**40 + 1], (2,), "int64")[1].item() != 2**40 + 1))
    desk.at("nothing")
    desk.same(desk.tensor([], (0, 5)).clone(), [], (0, 5))
    desk.same(desk.tensor([], (3, 0)).t().contiguous(), [], (0, 3))
    desk.at("complex numbers")
    pairs = desk.parts(2 * 131)
    both = torch.view_as_complex(desk.tensor(pairs, (131, 2)))
    desk.same(torch.view_as_real(both.conj().resolve_conj()), [v if k % 2 == 0 else -v for k, v in enumerate(pairs)])
    one = [complex(*pair) for pair in zip(pairs[::2], pairs[1::2])]
    squared = torch.view_as_real(both * both)
    desk.near(squared, [part for z in one for part in ((z * z).real, (z * z).imag)])


def _woven(desk: Desk) -> None:
    """im2col and its way back, shuffled pixels and channels, grids."""
    functional = torch.nn.functional
    values = desk.whole(2 * 8 * 6 * 6, 9)
    for dtype in desk.types("float32", full=("float32", "float64")):
        given = desk.tensor(values, (2, 8, 6, 6), dtype)
        desk.at(f"pixel_shuffle, {dtype}")
        want = [
            values[((n * 8 + c * 4 + (y % 2) * 2 + x % 2) * 6 + y // 2) * 6 + x // 2]
            for n in range(2) for c in range(2) for y in range(12) for x in range(12)
        ]  # fmt: skip
        desk.same(functional.pixel_shuffle(given, 2), want, (2, 2, 12, 12))
        desk.same(functional.pixel_unshuffle(functional.pixel_shuffle(given, 2), 2), values)
        desk.at(f"channel_shuffle, {dtype}")
        desk.same(functional.channel_shuffle(given, 4), _channels(values), (2, 8, 6, 6))
        desk.at(f"unfold and fold, {dtype}")
        columns = functional.unfold(given, (3, 2), dilation=(1, 2), padding=1, stride=(2, 1))
        places = [
            (y * 2 - 1 + dy, x - 1 + dx * 2) for dy in range(3) for dx in range(2) for y in range(3) for x in range(6)
        ]
        want = []
        for plane in rows(values, 36):
            want += [plane[y * 6 + x] if 0 <= y < 6 and 0 <= x < 6 else 0 for y, x in places]
        desk.same(columns, want, (2, 48, 18))
        back: list[Any] = []
        for plane in rows(want, len(places)):
            own = [0] * 36
            for (y, x), value in zip(places, plane):
                if 0 <= y < 6 and 0 <= x < 6:
                    own[y * 6 + x] += value
            back += own
        got = functional.fold(columns, (6, 6), (3, 2), dilation=(1, 2), padding=1, stride=(2, 1))
        desk.same(got, back, (2, 8, 6, 6))


def _channels(values: Numbers) -> list[Any]:
    """The values with their 8 channels shuffled in 4 groups."""
    planes = rows(values, 36)
    return [v for n in range(2) for part in range(2) for group in range(4) for v in planes[n * 8 + group * 2 + part]]


ROWS: dict[str, Row] = {
    "copy.layouts": _layouts,
    "copy.large": _large,
    "copy.casts": _casts,
    "copy.joined": _joined,
    "copy.turned": _turned,
    "copy.padded": _padded,
    "copy.filled": _filled,
    "copy.woven": _woven,
}
