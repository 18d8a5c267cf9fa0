"""Matrix products, of integers alone: long sums, many rows and batches, layouts and forms, and their gradients."""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import itertools
import math
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.plain import FLOATS, HALVES, Desk, Numbers, Row, dot, rows, turned, wrong_columns

_EVERY = (*FLOATS, "int32")


def _types(desk: Desk, *quick: str) -> list[str]:
    """GPUs have no products of integers of 32 bits."""
    every = FLOATS if desk.bench.on_gpu else _EVERY
    return list(every if desk.full else quick)


def _drawn(desk: Desk, dtype: str, count: int) -> list[int]:
    """Integers whose sums every type holds; bf16 holds those up to 256, fp16 up to 2048."""
    return desk.rare(count, 6 if dtype in HALVES else 2) if dtype in HALVES else desk.whole(count)


def _check(desk: Desk, got: Any, left: Numbers, right: Numbers, inner: int) -> None:
    """Counts the columns of a product that are wrong; ``got`` may have more than two axes."""
    columns = len(right) // inner
    values = desk.values(got, None)
    if values is None or len(values) != len(left) // inner * columns:
        desk.count(columns, columns)
    else:
        desk.count(wrong_columns(left, right, values, inner, desk.source), columns)


def _times(left: Numbers, right: Numbers, inner: int) -> list[Any]:
    """The product, row by row."""
    down = turned(right, (inner, len(right) // inner), (1, 0))
    return [dot(row, column) for row in rows(left, inner) for column in rows(down, inner)]


def _one(desk: Desk, dtype: str, size: tuple[int, int, int], layouts: tuple[str, str] = ("plain", "plain")) -> None:
    count, inner, columns = size
    desk.at(f"{dtype} {count} x {inner} x {columns}, {' by '.join(layouts)}")
    left, right = _drawn(desk, dtype, count * inner), _drawn(desk, dtype, inner * columns)
    one = desk.tensor(left, (count, inner), dtype, layouts[0])
    other = desk.tensor(right, (inner, columns), dtype, layouts[1])
    _check(desk, one @ other, left, right, inner)


def _long_sums(desk: Desk) -> None:
    depths = (2049, 16_387) if desk.full else (4100,)
    for dtype in _types(desk, "float32", "bfloat16"):
        for inner in depths:
            _one(desk, dtype, (20, inner, 24), ("plain", "turned" if inner == depths[0] else "plain"))
        desk.at(f"{dtype} vectors of {depths[-1]}")
        left, right = _drawn(desk, dtype, depths[-1]), _drawn(desk, dtype, depths[-1])
        one, other = (desk.tensor(values, (depths[-1],), dtype) for values in (left, right))
        desk.same(torch.dot(one, other), [dot(left, right)], ())


def _many_rows(desk: Desk) -> None:
    count = 70_001
    for dtype in [each for each in _types(desk, "float32") if each not in ("float64", "float16")]:
        _one(desk, dtype, (count, 3, 2))
        if desk.full:
            _one(desk, dtype, (2, 3, count))
        desk.at(f"{dtype}, a matrix of {count} rows by a vector")
        left, right = _drawn(desk, dtype, 3 * count), _drawn(desk, dtype, 3)
        matrix, vector = desk.tensor(left, (count, 3), dtype), desk.tensor(right, (3,), dtype)
        desk.same(torch.mv(matrix, vector), [dot(row, right) for row in rows(left, 3)], (count,))


def _layouts(desk: Desk) -> None:
    kinds = ("plain", "turned", "spaced", "shifted")
    count, inner, columns = 67, 70, 97
    for dtype in _types(desk, "float32"):
        left, right = _drawn(desk, dtype, count * inner), _drawn(desk, dtype, inner * columns)
        ones = {kind: desk.tensor(left, (count, inner), dtype, kind) for kind in kinds}
        others = {kind: desk.tensor(right, (inner, columns), dtype, kind) for kind in kinds}
        for one, other in itertools.product(kinds, kinds):
            desk.at(f"{dtype}, {one} by {other}")
            _check(desk, ones[one] @ others[other], left, right, inner)


def _batches(desk: Desk) -> None:
    for dtype in _types(desk, "float32"):
        for count, inner, columns, batch in ((9, 17, 5, 131), (65, 40, 66, 3)):
            desk.at(f"{dtype}, {batch} products of {count} x {inner} x {columns}")
            left = _drawn(desk, dtype, batch * count * inner)
            right = _drawn(desk, dtype, batch * inner * columns)
            one = desk.tensor(left, (batch, count, inner), dtype)
            pairs = list(zip(rows(left, count * inner), rows(right, inner * columns)))
            want = [value for pair in pairs for value in _times(*pair, inner)]
            for layout in ("plain", "turned"):
                other = desk.tensor(right, (batch, inner, columns), dtype, layout)
                desk.same(torch.bmm(one, other), want, (batch, count, columns))
                if desk.full:
                    got = torch.einsum("bik,bkj->jbi", one, other)
                    desk.same(got, turned(want, (batch, count, columns), (2, 0, 1)), (columns, batch, count))
            desk.at(f"{dtype}, one matrix for {batch} others")
            shared = right[: inner * columns]
            got = one @ desk.tensor(shared, (1, inner, columns), dtype)
            desk.same(got, _times(left, shared, inner), (batch, count, columns))
            spread = desk.tensor(shared, (1, inner, columns), dtype).expand(batch, -1, -1)
            desk.same(torch.bmm(one, spread), _times(left, shared, inner), (batch, count, columns))


def _forms(desk: Desk) -> None:
    count, inner, columns = 33, 35, 67
    for dtype in _types(desk, "float32"):
        left, right = _drawn(desk, dtype, count * inner), _drawn(desk, dtype, inner * columns)
        added = _drawn(desk, dtype, count * columns)
        product = _times(left, right, inner)
        one, other = desk.tensor(left, (count, inner), dtype), desk.tensor(right, (inner, columns), dtype)
        plus = desk.tensor(added, (count, columns), dtype)
        shape = (count, columns)
        desk.at(f"{dtype} mm, out=")
        desk.same(torch.mm(one, other, out=desk.empty(shape, dtype)), product, shape)
        desk.at(f"{dtype} addmm")
        desk.same(torch.addmm(plus, one, other), [a + b for a, b in zip(added, product)], shape)
        desk.at(f"{dtype} addmm with alpha and beta")
        scaled = [2 * a - b for a, b in zip(added, product)]
        desk.same(torch.addmm(plus, one, other, beta=2, alpha=-1), scaled, shape)
        got = torch.addmm(plus, one, other, beta=2, alpha=-1, out=desk.empty(shape, dtype))
        desk.same(got, scaled, shape)
        desk.same(plus.clone().addmm_(one, other, beta=2, alpha=-1), scaled, shape)
        desk.at(f"{dtype} addmm of beta 0, which ignores NaN")
        if dtype in FLOATS:
            nothing = torch.full_like(plus, math.nan)
            desk.same(torch.addmm(nothing, one, other, beta=0), product, shape)
        desk.at(f"{dtype} baddbmm")
        got = torch.baddbmm(plus[None], one[None], other[None], beta=2, alpha=-1)
        desk.same(got, scaled, (1, *shape))
        desk.at(f"{dtype} addmv")
        column = right[::columns]
        got = torch.addmv(desk.tensor(added[:count], (count,), dtype), one, other[:, 0], beta=2, alpha=-1)
        want = [2 * a - b for a, b in zip(added, _times(left, column, inner))]
        desk.same(got, want, (count,))
        desk.at(f"{dtype} outer")
        got = torch.outer(other[0], one[0])
        desk.same(got, [a * b for a in right[:columns] for b in left[:inner]], (columns, inner))
        if dtype in FLOATS:
            desk.at(f"{dtype} linear")
            bias = added[:columns]
            turn = desk.tensor(turned(right, (inner, columns), (1, 0)), (columns, inner), dtype)
            want = [a + b for row in rows(product, columns) for a, b in zip(row, bias)]
            got = torch.nn.functional.linear(one, turn, desk.tensor(bias, (columns,), dtype))
            desk.same(got, want, shape)
            got = torch.nn.functional.linear(one[:, None], turn)
            desk.same(got, product, (count, 1, columns))


def _specials(desk: Desk) -> None:
    for dtype in desk.types("float32"):
        for place, what in ((3, math.nan), (130, math.inf)):
            desk.at(f"{dtype} with {what}")
            left = [1.0] * (7 * 133)
            left[133 * 2 + place] = what
            right = _drawn(desk, dtype, 133 * 5)
            right[place * 5 : place * 5 + 5] = [1, 2, 1, 3, 1]
            want = _times(left, right, 133)
            got = desk.tensor(left, (7, 133), dtype) @ desk.tensor(right, (133, 5), dtype)
            desk.same(got, want, (7, 5))
        desk.at(f"{dtype}, sums of nothing")
        nothing = desk.tensor([], (4, 0), dtype) @ desk.tensor([], (0, 3), dtype)
        desk.same(nothing, [0] * 12, (4, 3))
        desk.same(desk.tensor([], (0, 3), dtype) @ desk.tensor([1] * 6, (3, 2), dtype), [], (0, 2))


def _gradients(desk: Desk) -> None:
    count, inner, columns = 41, 67, 35
    for dtype in desk.types("float32"):
        left, right, bias, seed = (
            _drawn(desk, dtype, size) for size in (count * inner, columns * inner, columns, count * columns)
        )
        given = desk.leaf(left, (count, inner), dtype)
        weight = desk.leaf(right, (columns, inner), dtype)
        plus = desk.leaf(bias, (columns,), dtype)
        out = torch.nn.functional.linear(given, weight, plus)
        (out * desk.tensor(seed, (count, columns), dtype)).sum().backward()
        across = turned(seed, (count, columns), (1, 0))
        desk.at(f"{dtype}, of the operands")
        desk.same(given.grad, _times(seed, right, columns), (count, inner))
        desk.same(weight.grad, _times(across, left, count), (columns, inner))
        desk.at(f"{dtype}, of the bias")
        desk.same(plus.grad, [sum(row) for row in rows(across, count)], (columns,))


ROWS: dict[str, Row] = {
    "matmul.long-sums": _long_sums,
    "matmul.many-rows": _many_rows,
    "matmul.layouts": _layouts,
    "matmul.batches": _batches,
    "matmul.forms": _forms,
    "matmul.specials": _specials,
    "matmul.gradients": _gradients,
}
