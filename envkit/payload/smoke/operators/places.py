"""Reading and writing at computed places, and putting in order; every answer is exact."""

# ruff: noqa: B905 - Python 3.8 has no strict

from __future__ import annotations

import bisect
import math
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.plain import FLOATS, Desk, Row, rows, turned
from envkit.payload.smoke.operators.reductions import lines

_NAN = math.nan


def _picked(desk: Desk) -> None:
    """Gathers, of tables with more rows than 16 bits count."""
    high, width = 70_001, 2
    table = desk.below(high * width, 1 << 20)
    for dtype in desk.types("float32", full=("float32", "int64", "bfloat16", "bool")):
        held = [value % 2 if dtype == "bool" else value % 255 if dtype == "bfloat16" else value for value in table]
        for layout in ("plain", "turned"):
            desk.at(f"{dtype}, {layout}")
            given = desk.tensor(held, (high, width), dtype, layout)
            at = [*desk.below(500, high), high - 1, 0, 32_768, 65_536]
            index = desk.tensor(at, (len(at),), "int64")
            want = [value for place in at for value in held[place * width :][:width]]
            shape = (len(at), width)
            desk.same(given.index_select(0, index), want, shape)
            desk.same(torch.index_select(given, 0, index, out=desk.empty(shape, dtype)), want, shape)
            desk.same(given[index], want, shape)
            desk.same(given[index - high], want, shape)
            desk.same(given[index.reshape(4, -1)], want, (4, len(at) // 4, width))
            desk.same(given[index, 1], want[1::2], (len(at),))
            desk.same(given[:, desk.tensor([1, 0, 1], (3,), "int64")][7], [held[14 + place] for place in (1, 0, 1)])
            columns = [place % 2 for place in at]
            over = desk.tensor([place for place in at for _ in range(width)], shape, "int64")
            desk.same(given.gather(0, over), want, shape)
            desk.same(torch.gather(given, 0, over, out=desk.empty(shape, dtype)), want, shape)
            across = desk.tensor(columns * 3, (3, len(at)), "int64")[:, :width]
            desk.same(given[:3].gather(1, across), [held[2 * row + columns[k]] for row in range(3) for k in range(2)])
            desk.same(given.take(index * 2), [held[2 * place] for place in at], (len(at),))
            desk.same(torch.take_along_dim(given, over, 0), want, shape)
            if dtype in FLOATS:
                desk.same(torch.nn.functional.embedding(index, given), want, shape)
            chosen = [value % 3 == 0 for value in table[:2053]]
            mask = desk.tensor(chosen, (2053,), "bool")
            line = given.reshape(-1)[:2053]
            desk.same(line[mask], [value for value, keep in zip(held, chosen) if keep])
            desk.same(line.masked_select(mask), [value for value, keep in zip(held, chosen) if keep])
            desk.same(mask.nonzero()[:, 0], [place for place, keep in enumerate(chosen) if keep])
    desk.at("nonzero of two axes")
    chosen = [draw < 20 for draw in desk.below(33 * 71, 100)]
    want = [value for place, keep in enumerate(chosen) if keep for value in divmod(place, 71)]
    for layout in ("plain", "turned"):
        desk.same(desk.tensor(chosen, (33, 71), "bool", layout).nonzero(), want)


def _written(desk: Desk) -> None:
    """Writing to places, where none occurs twice: by index, scatter, mask and copy; with the functional forms too."""
    high, width, count = 2053, 3, 700
    for dtype in desk.types("float32", full=("float32", "int64", "bfloat16", "bool")):
        top = 2 if dtype == "bool" else 200
        base, new = desk.below(high * width, top), desk.below(count * width, top)
        at = desk.shuffled(high)[:count]
        index = desk.tensor(at, (count,), "int64")
        spread = desk.tensor([place for place in at for _ in range(width)], (count, width), "int64")
        want = list(base)
        for number, place in enumerate(at):
            want[place * width : (place + 1) * width] = new[number * width : (number + 1) * width]
        filled = list(base)
        for place in at:
            filled[place * width : (place + 1) * width] = [1] * width
        shape = (high, width)
        for layout in ("plain", "turned"):
            given = desk.tensor(base, shape, dtype, layout)
            more = desk.tensor(new, (count, width), dtype, layout)
            desk.at(f"index_copy and index_put, {dtype}, {layout}")
            desk.same(given.index_copy(0, index, more), want, shape)
            desk.same(given.index_put((index,), more), want, shape)
            own = desk.tensor(base, shape, dtype, layout)
            own[index] = more
            desk.same(own, want, shape)
            desk.same(desk.tensor(base, shape, dtype, layout).index_copy_(0, index, more), want, shape)
            desk.at(f"scatter, {dtype}, {layout}")
            desk.same(given.scatter(0, spread, more), want, shape)
            desk.same(desk.tensor(base, shape, dtype, layout).scatter_(0, spread, more), want, shape)
            desk.same(torch.scatter(given, 0, spread, more, out=desk.empty(shape, dtype)), want, shape)
            desk.same(given.scatter(0, spread, 1), filled, shape)
            desk.at(f"index_fill, {dtype}, {layout}")
            desk.same(given.index_fill(0, index, 1), filled, shape)
            desk.same(desk.tensor(base, shape, dtype, layout).index_fill_(0, index, 1), filled, shape)
            desk.at(f"by a mask, {dtype}, {layout}")
            mask = [draw == 0 for draw in desk.below(high * width, 5)]
            where = desk.tensor(mask, shape, "bool", layout)
            source = iter(new * 9)
            poured = [next(source) if keep else value for value, keep in zip(base, mask)]
            desk.same(given.masked_scatter(where, desk.tensor(new * 9, (len(new) * 9,), dtype)), poured, shape)
            own = desk.tensor(base, shape, dtype, layout)
            own[where] = 1
            desk.same(own, [1 if keep else value for value, keep in zip(base, mask)], shape)
            own = desk.tensor(base, shape, dtype, layout)
            own.put_(index * width, more[:, 0])
            want_put = list(base)
            for number, place in enumerate(at):
                want_put[place * width] = new[number * width]
            desk.same(own, want_put, shape)


def _added(desk: Desk) -> None:
    """Adding at places, most of which occur more than once."""
    places, width, count = 97, 3, 5003
    for dtype in desk.types("float32", full=(*FLOATS, "int64", "int32")):
        at, more = desk.below(count, places), desk.rare(count * width, 6)
        start = desk.rare(places * width)
        total = list(start)
        for number, place in enumerate(at):
            for column in range(width):
                total[place * width + column] += more[number * width + column]
        index = desk.tensor(at, (count,), "int64")
        shape = (places, width)
        spread = desk.tensor([place for place in at for _ in range(width)], (count, width), "int64")
        for layout in ("plain", "turned"):
            base = desk.tensor(start, shape, dtype, layout)
            given = desk.tensor(more, (count, width), dtype, layout)
            for name, got in (
                ("index_add", base.index_add(0, index, given)),
                ("index_add_", base.clone().index_add_(0, index, given)),
                ("scatter_add", base.scatter_add(0, spread, given)),
                ("scatter_add_", base.clone().scatter_add_(0, spread, given)),
                ("index_put accumulating", base.index_put((index,), given, accumulate=True)),
                ("scatter_reduce of sums", base.scatter_reduce(0, spread, given, "sum")),
            ):
                desk.at(f"{name}, {dtype}, {layout}")
                desk.same(got, total, shape)
            desk.at(f"index_add of alpha, {dtype}, {layout}")
            want = [2 * after - before for before, after in zip(start, total)]
            desk.same(base.index_add(0, index, given, alpha=2), want, shape)
        for how, work in (("amax", max), ("amin", min)):
            desk.at(f"scatter_reduce {how}, {dtype}")
            value = desk.below(count, 200)
            reduced = [[1000 if how == "amin" else -1000] for _ in range(places)]
            for place, one in zip(at, value):
                reduced[place].append(one)
            given = desk.tensor([row[0] for row in reduced], (places,), "int64" if dtype == "bfloat16" else dtype)
            got = given.scatter_reduce(0, index, desk.tensor(value, (count,), str(given.dtype)[6:]), how)
            desk.same(got, [work(row) for row in reduced], (places,))
        desk.at(f"a gradient of a lookup, {dtype}")
        if dtype in FLOATS:
            table = desk.leaf(start, shape, dtype)
            out = torch.nn.functional.embedding(index, table, padding_idx=3)
            (out * desk.tensor(more, (count, width), dtype)).sum().backward()
            want = [
                0 if place // width == 3 else after - before for place, (before, after) in enumerate(zip(start, total))
            ]
            desk.same(table.grad, want, shape)
            table = desk.leaf(start, shape, dtype)
            (table[index] * desk.tensor(more, (count, width), dtype)).sum().backward()
            desk.same(table.grad, [after - before for before, after in zip(start, total)], shape)
    desk.at("bincount")
    desk.same(index.bincount(minlength=100), [at.count(place) for place in range(100)])
    desk.same(index.bincount(desk.tensor(more[:count], (count,))), [
        sum(one for place, one in zip(at, more) if place == own) for own in range(max(at) + 1)
    ])  # fmt: skip


def _ordered(desk: Desk) -> None:
    for dtype in desk.types("float32", full=("float32", "int64", "int32", "float64")):
        for shape in ((7, 33, 5), (3, 1500), (2, 4133), (1, 70_001), (1500, 2)):
            values = [value - 99 for value in desk.below(math.prod(shape), 200)]
            for layout in ("plain", "turned") if len(values) < 20_000 else ("plain",):
                given = desk.tensor(values, shape, dtype, layout)
                for axis in range(len(shape)) if math.prod(shape) < 10_000 else (1,):
                    each = lines(values, shape, axis)
                    order = [place for place in range(len(shape)) if place != axis] + [axis]
                    back = [order.index(place) for place in range(len(shape))]
                    mixed = tuple(shape[place] for place in order)
                    for falling in (False, True):
                        desk.at(f"sort of {shape} along {axis}, {'falling, ' * falling}{dtype}, {layout}")
                        got = given.sort(dim=axis, stable=True, descending=falling)
                        sorted_ = [sorted(range(len(line)), key=line.__getitem__, reverse=falling) for line in each]
                        want = [at for row in sorted_ for at in row]
                        desk.same(got.indices, turned(want, mixed, back), shape)
                        ranked = [line[at] for line, row in zip(each, sorted_) for at in row]
                        desk.same(got.values, turned(ranked, mixed, back), shape)
        for shape, count in (((5, 67), 9), ((2, 5003), 33), ((67, 5), 3)):
            distinct = desk.shuffled(math.prod(shape))
            for layout in ("plain", "turned"):
                given = desk.tensor(distinct, shape, dtype, layout)
                for largest in (True, False):
                    desk.at(f"topk of {shape}, {'largest' if largest else 'smallest'}, {dtype}, {layout}")
                    ranked = [sorted(line, reverse=largest)[:count] for line in rows(distinct, shape[1])]
                    got = given.topk(count, largest=largest)
                    desk.same(got.values, [value for line in ranked for value in line], (shape[0], count))
                    places = [line.index(v) for line, r in zip(rows(distinct, shape[1]), ranked) for v in r]
                    desk.same(got.indices, places, (shape[0], count))
                desk.at(f"kthvalue, median and argsort of {shape}, {dtype}, {layout}")
                lines_ = rows(distinct, shape[1])
                desk.same(given.kthvalue(count, 1).values, [sorted(line)[count - 1] for line in lines_])
                desk.same(given.median(1).values, [sorted(line)[(len(line) - 1) // 2] for line in lines_])
                want = [at for line in lines_ for at in sorted(range(len(line)), key=line.__getitem__)]
                desk.same(given.argsort(1), want, shape)
            desk.at(f"topk of {shape} along 0, {dtype}")
            tops = [sorted(line, reverse=True)[:2] for line in lines(distinct, shape, 0)]
            desk.same(desk.tensor(distinct, shape, dtype).topk(2, 0).values, [row[k] for k in range(2) for row in tops])
    desk.at("NaN is the largest")
    given = desk.tensor([3.0, _NAN, -math.inf, 1.0, math.inf, _NAN], (6,))
    desk.same(given.sort(stable=True).values, [-math.inf, 1.0, 3.0, math.inf, _NAN, _NAN])
    desk.same(given.sort(stable=True).indices, [2, 3, 0, 4, 1, 5])
    desk.same(given.topk(3).values, [_NAN, _NAN, math.inf])
    desk.at("sort of bool")
    bits = desk.below(300, 2)
    desk.same(desk.tensor(bits, (300,), "bool").sort(stable=True).values, sorted(bits))


def _searched(desk: Desk) -> None:
    for dtype in desk.types("float32", full=("float32", "int64", "float64")):
        edges = sorted(desk.below(301, 1000))
        asked = desk.below(2053, 1100)
        sorted_, given = desk.tensor(edges, (301,), dtype), desk.tensor(asked, (2053,), dtype)
        desk.at(f"searchsorted, {dtype}")
        desk.same(torch.searchsorted(sorted_, given), [bisect.bisect_left(edges, one) for one in asked])
        desk.same(torch.searchsorted(sorted_, given, right=True), [bisect.bisect_right(edges, one) for one in asked])
        desk.same(torch.bucketize(given, sorted_), [bisect.bisect_left(edges, one) for one in asked])
        desk.at(f"unique, {dtype}")
        values, inverse, counts = given.unique(return_inverse=True, return_counts=True)
        kinds = sorted(set(asked))
        place = {value: at for at, value in enumerate(kinds)}
        desk.same(values, kinds)
        desk.same(inverse, [place[one] for one in asked])
        desk.same(counts, [asked.count(one) for one in kinds])
        runs = desk.below(700, 3)
        heads = [value for at, value in enumerate(runs) if not at or runs[at - 1] != value]
        desk.same(torch.unique_consecutive(desk.tensor(runs, (700,), dtype)), heads)
    desk.at("histc")
    desk.same(desk.tensor(asked, (2053,)).histc(11, 0, 1100), [sum(v // 100 == k for v in asked) for k in range(11)])
    desk.at("one_hot")
    kinds = desk.below(67, 9)
    got = torch.nn.functional.one_hot(desk.tensor(kinds, (67,), "int64"), 9)
    desk.same(got, [int(kind == at) for kind in kinds for at in range(9)], (67, 9))
    desk.at("isin")
    got = torch.isin(desk.tensor(asked, (2053,), "int64"), desk.tensor(edges, (301,), "int64"))
    known = set(edges)
    desk.same(got, [int(one in known) for one in asked])


def _bags(desk: Desk) -> None:
    high, width = 61, 5
    table = desk.whole(high * width, 9)
    at = desk.below(203, high)
    starts = [0, 3, 3, 4, 67, 100, 202]
    bags = [at[first:last] for first, last in zip(starts, [*starts[1:], len(at)])]
    rows_ = rows(table, width)
    for dtype in desk.types("float32", full=("float32", "float64")):
        given = desk.tensor(table, (high, width), dtype)
        index, offsets = desk.tensor(at, (len(at),), "int64"), desk.tensor(starts, (len(starts),), "int64")
        for mode in ("sum", "mean", "max"):
            desk.at(f"{mode}, {dtype}")
            want: list[Any] = []
            for bag in bags:
                columns = list(zip(*(rows_[place] for place in bag))) or [(0,)] * width
                by = max(1, len(bag)) if mode == "mean" else 1
                want += [max(column) if mode == "max" else sum(column) / by for column in columns]
            desk.near(torch.nn.functional.embedding_bag(index, given, offsets, mode=mode), want, (len(bags), width))


ROWS: dict[str, Row] = {
    "index.read": _picked,
    "index.written": _written,
    "index.added": _added,
    "index.bags": _bags,
    "sort.orders": _ordered,
    "sort.searches": _searched,
}
