"""Scaled dot product attention: long keys, masks of each kind, fewer queries than keys, many batches, gradients."""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.along import softmax
from envkit.payload.smoke.operators.plain import Desk, Numbers, Row, dot, rows, turned

Mask = Any  # a number for each query and key that is added to the score, in a list; None for none


class Size(NamedTuple):
    """Batches times heads, queries, keys, and the width."""

    heads: int
    queries: int
    keys: int
    width: int


def attended(
    size: Size, given: Sequence[Numbers], mask: Mask, scale: float = 0.0
) -> tuple[list[float], list[list[float]]]:
    """The result for ``given``, query, key and value, and the weight of every key for every query."""
    query, key, value = given
    by = scale or 1 / math.sqrt(size.width)
    out: list[float] = []
    shares = []
    for head in range(size.heads):
        keys = rows(key[head * size.keys * size.width :][: size.keys * size.width], size.width)
        values = value[head * size.keys * size.width :][: size.keys * size.width]
        down = rows(turned(values, (size.keys, size.width), (1, 0)), size.keys)
        first = head * size.queries
        for place, row in enumerate(rows(query[first * size.width :][: size.queries * size.width], size.width)):
            scores = [dot(row, other) * by for other in keys]
            if mask is not None:
                scores = list(map(lambda a, b: a + b, scores, rows(mask, size.keys)[place]))
            share = softmax(scores)
            shares.append(share)
            out += [dot(share, column) for column in down]
    return out, shares


def _causal(size: Size, offset: int = 0) -> list[float]:
    return [
        0.0 if key <= query + offset else -math.inf for query in range(size.queries) for key in range(size.keys)
    ]  # fmt: skip


def _call(desk: Desk, size: Size, given: list[Numbers], dtype: str, layout: str, batch: int = 1, **how: Any) -> Any:
    """Torch's attention of lists; ``layout`` "turned" has the heads inside the words, as a projection leaves them."""
    heads = size.heads // batch
    tensors = []
    for values, length in zip(given, (size.queries, size.keys, size.keys)):
        shape = (batch, heads, length, size.width)
        if layout == "turned":
            inside = desk.tensor(turned(values, shape, (0, 2, 1, 3)), (batch, length, heads, size.width), dtype)
            tensors.append(inside.transpose(1, 2))
        else:
            tensors.append(desk.tensor(values, shape, dtype))
    return torch.nn.functional.scaled_dot_product_attention(*tensors, **how)


def _drawn(desk: Desk, size: Size) -> list[Numbers]:
    counts = (size.queries, size.keys, size.keys)
    return [desk.parts(size.heads * count * size.width) for count in counts]


def _types(desk: Desk) -> list[str]:
    return ["float32", "float16", "bfloat16"] if desk.full else ["float32", "bfloat16"]


def _long_keys(desk: Desk) -> None:
    size = Size(2, 5, 1300, 16)
    for dtype in _types(desk):
        given = _drawn(desk, size)
        for layout in ("plain", "turned"):
            desk.at(f"{size.keys} keys, {dtype}, {layout}")
            want, _ = attended(size, given, None)
            desk.near(_call(desk, size, given, dtype, layout), want, (1, *size[:2], size.width))
        if desk.full:
            longer = Size(1, 3, 4100, 64)
            given = _drawn(desk, longer)
            desk.at(f"{longer.keys} keys, {dtype}")
            desk.near(_call(desk, longer, given, dtype, "plain"), attended(longer, given, None)[0])


def _masks(desk: Desk) -> None:
    size = Size(3, 9, 40, 16)
    count = size.queries * size.keys
    for dtype in _types(desk):
        given = _drawn(desk, size)
        kept = [place % size.keys == place // size.keys or draw > 0 for place, draw in enumerate(desk.below(count, 3))]
        added = desk.parts(count, 4)
        barred = [value if keeps else -math.inf for value, keeps in zip(added, kept)]
        shape = (size.queries, size.keys)
        for name, tensor, mask in (
            ("a boolean mask", desk.tensor(kept, shape, "bool"), [0.0 if keeps else -math.inf for keeps in kept]),
            ("an additive mask", desk.tensor(added, shape, dtype), added),
            ("a mask of minus infinity", desk.tensor(barred, shape, dtype), barred),
            ("a turned mask", desk.tensor(added, shape, dtype, "turned"), added),
        ):
            desk.at(f"{name}, {dtype}")
            want, _ = attended(size, given, mask)
            desk.near(_call(desk, size, given, dtype, "plain", attn_mask=tensor), want)
        desk.at(f"a mask for all queries, {dtype}")
        want, _ = attended(size, given, added[: size.keys] * size.queries)
        got = _call(desk, size, given, dtype, "plain", attn_mask=desk.tensor(added[: size.keys], (1, size.keys), dtype))
        desk.near(got, want)


def _causals(desk: Desk) -> None:
    for dtype in _types(desk):
        size = Size(2, 70, 70, 16)
        given = _drawn(desk, size)
        desk.at(f"causal, {dtype}")
        want, _ = attended(size, given, _causal(size))
        for layout in ("plain", "turned"):
            desk.near(_call(desk, size, given, dtype, layout, is_causal=True), want)
        short = Size(2, 7, 71, 16)
        given = _drawn(desk, short)
        desk.at(f"the last {short.queries} queries of {short.keys}, {dtype}")
        mask = _causal(short, short.keys - short.queries)
        kept = desk.tensor([value == 0 for value in mask], (short.queries, short.keys), "bool")
        want, _ = attended(short, given, mask)
        desk.near(_call(desk, short, given, dtype, "plain", attn_mask=kept), want)
        desk.at(f"causal, {short.queries} queries at the first of {short.keys} keys, {dtype}")
        want, _ = attended(short, given, _causal(short))
        desk.near(_call(desk, short, given, dtype, "plain", is_causal=True), want)


def _batches(desk: Desk) -> None:
    for dtype in _types(desk):
        size = Size(67 * 3, 3, 5, 8)
        given = _drawn(desk, size)
        desk.at(f"67 batches of 3 heads, {dtype}")
        desk.near(_call(desk, size, given, dtype, "plain", batch=67), attended(size, given, None)[0])
        for width in (7, 24, 64, 128):
            size = Size(2, 17, 19, width)
            given = _drawn(desk, size)
            desk.at(f"width {width}, {dtype}")
            desk.near(_call(desk, size, given, dtype, "turned"), attended(size, given, None)[0])
        desk.at(f"a scale of 0.75, {dtype}")
        desk.near(_call(desk, size, given, dtype, "plain", scale=0.75), attended(size, given, None, 0.75)[0])


def _gradients(desk: Desk) -> None:
    size = Size(2, 33, 70, 16)
    by = 1 / math.sqrt(size.width)
    for dtype in ("float32",):
        for name in ("no mask", "causal", "an additive mask"):
            given = _drawn(desk, size)
            seed = desk.parts(size.heads * size.queries * size.width)
            mask = _causal(size) if name == "causal" else None
            how: dict[str, Any] = {"is_causal": name == "causal"}
            if name == "an additive mask":
                mask = desk.parts(size.queries * size.keys)
                how = {"attn_mask": desk.tensor(mask, (size.queries, size.keys), dtype)}
            shapes = [(1, size.heads, length, size.width) for length in (size.queries, size.keys, size.keys)]
            leaves = [desk.leaf(values, shape, dtype) for values, shape in zip(given, shapes)]
            out = torch.nn.functional.scaled_dot_product_attention(*leaves, **how)
            (out * desk.tensor(seed, shapes[0], dtype)).sum().backward()
            wanted = _backward(size, given, seed, mask, by)
            for of, leaf, want in zip(("query", "key", "value"), leaves, wanted):
                desk.at(f"of the {of}, {name}, {dtype}")
                desk.near(leaf.grad, want, tuple(leaf.shape))


def _backward(size: Size, given: list[Numbers], seed: Numbers, mask: Mask, by: float) -> list[list[float]]:
    """The gradients of query, key and value for the gradient ``seed`` of the result."""
    query, key, value = (rows(values, size.width) for values in given)
    out, shares = attended(size, given, mask)
    of_key = [[0.0] * size.width for _ in key]
    of_value = [[0.0] * size.width for _ in value]
    of_query = []
    for place, (sown, made) in enumerate(zip(rows(seed, size.width), rows(out, size.width))):
        first = place // size.queries * size.keys
        along, total = [0.0] * size.width, dot(sown, made)
        for at, share in enumerate(shares[place], first):
            pull = share * (dot(sown, value[at]) - total) * by
            along = [a + pull * b for a, b in zip(along, key[at])]
            of_key[at] = [a + pull * b for a, b in zip(of_key[at], query[place])]
            of_value[at] = [a + share * b for a, b in zip(of_value[at], sown)]
        of_query += along
    return [of_query, [v for row in of_key for v in row], [v for row in of_value for v in row]]


ROWS: dict[str, Row] = {
    "attention.long-keys": _long_keys,
    "attention.masks": _masks,
    "attention.causal": _causals,
    "attention.batches": _batches,
    "attention.gradients": _gradients,
}
