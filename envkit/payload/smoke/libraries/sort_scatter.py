"""Sorting, searching, and writing to computed places, all with integers, so that every answer is exact."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.libraries._compare import stale

_SHAPES = ((257, 33), (33, 2049), (1, 40_009))  # the sizes at which other sorting kernels are taken
_MANY, _PLACES, _WIDTH = 1 << 16, 509, 3


def _sorting(bench: Bench, random: Any) -> None:
    for shape in _SHAPES:
        repeated = torch.randint(-99, 100, shape, generator=random)
        distinct = torch.randperm(shape[0] * shape[1], generator=random).reshape(shape)
        ordered = [(falling, repeated.sort(stable=True, descending=falling)) for falling in (False, True)]
        largest = distinct.sort(descending=True)
        stale(bench)
        for dtype in (torch.float32, torch.int64):
            for falling, want in ordered:
                got = repeated.to(dtype).to(bench.device).sort(stable=True, descending=falling)
                bench.exact("sort.wrong", got.values, want.values.to(dtype))
                bench.exact("sort.wrong", got.indices, want.indices)
            most = distinct.to(dtype).to(bench.device).topk(17)
            bench.exact("topk.wrong", most.values, largest.values[..., :17].to(dtype))
            bench.exact("topk.wrong", most.indices, largest.indices[..., :17])
        values, inverse, counts = repeated.to(bench.device).unique(return_inverse=True, return_counts=True)
        here = torch.bincount(repeated.reshape(-1) + 99, minlength=199)
        bench.exact("unique.wrong", values, torch.arange(-99, 100)[here > 0])
        bench.exact("unique.wrong", counts, here[here > 0])
        bench.exact("unique.wrong", values.cpu()[inverse.cpu()], repeated)
        edges = torch.arange(-90, 100, 5)
        for right in (False, True):
            found = torch.searchsorted(edges.to(bench.device), repeated.to(bench.device), right=right)
            below = edges <= repeated[..., None] if right else edges < repeated[..., None]
            bench.exact("search.wrong", found, below.sum(-1))


def _places(bench: Bench, random: Any) -> None:
    where = torch.randint(0, _PLACES, (_MANY,), generator=random)
    added = torch.randint(-1, 2, (_MANY, _WIDTH), generator=random)
    rows = where[:, None].expand(_MANY, _WIDTH)
    total = torch.stack([torch.bincount(where, added[:, column], _PLACES) for column in range(_WIDTH)], 1).long()
    stale(bench)
    index, spread = where.to(bench.device), rows.contiguous().to(bench.device)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        start = torch.zeros(_PLACES, _WIDTH, dtype=dtype, device=bench.device)
        more = added.to(dtype).to(bench.device)
        bench.exact("scatter-add.wrong", start.scatter_add(0, spread, more), total.to(dtype))
        bench.exact("index-add.wrong", start.index_add(0, index, more), total.to(dtype))
        bench.exact("index-put.wrong", start.index_put((index,), more, accumulate=True), total.to(dtype))
    first: dict[int, int] = {}
    times = [0] * _PLACES
    for number, place in enumerate(where.tolist()):
        first.setdefault(place, number)
        times[place] += 1
    empty = torch.full((_PLACES,), _MANY, device=bench.device)
    lowest = empty.scatter_reduce(0, index, torch.arange(_MANY, device=bench.device), "amin")
    bench.exact("scatter-reduce.wrong", lowest, torch.tensor([first.get(place, _MANY) for place in range(_PLACES)]))
    bench.exact("bincount.wrong", index.bincount(minlength=_PLACES), torch.tensor(times))


def _picking(bench: Bench, random: Any) -> None:
    table = torch.randint(-(1 << 20), 1 << 20, (1021, 67), generator=random)
    rows = torch.randint(0, 1021, (2000,), generator=random)
    columns = torch.randint(0, 67, (1021, 9), generator=random)
    flat = table.reshape(-1)
    stale(bench)
    here = table.to(bench.device)
    picked = flat[torch.arange(1021)[:, None] * 67 + columns]
    bench.exact("gather.wrong", here.gather(1, columns.to(bench.device)), picked)
    bench.exact("gather.wrong", here.index_select(0, rows.to(bench.device)), table[rows])
    bench.exact("gather.wrong", here.take(rows.to(bench.device) * 31), flat[rows * 31])
    held = table % 3 == 0
    places = [place for place, holds in enumerate(held.reshape(-1).tolist()) if holds]
    bench.exact("select.wrong", here.masked_select(held.to(bench.device)), flat[places])
    bench.exact("select.wrong", held.to(bench.device).reshape(-1).nonzero()[:, 0], torch.tensor(places))
    bench.exact("select.wrong", here.masked_fill(held.to(bench.device), 7), table * ~held + 7 * held)
    # products of odd numbers never vanish: wrapped at 64 bits, each tells of every factor before it
    odd = (table[:, :5] * 2 + 1).contiguous()
    running = [odd[0]]
    for row in odd[1:]:
        running.append(running[-1] * row)
    bench.exact("cumprod.wrong", odd.to(bench.device).cumprod(0), torch.stack(running))


def run(bench: Bench) -> None:
    """Measures ``<kind>.wrong``: elements that differ from the answer of plain arithmetic on the CPU."""
    random = bench.random()
    _sorting(bench, random)
    _places(bench, random)
    _picking(bench, random)
