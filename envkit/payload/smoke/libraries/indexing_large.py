"""A tensor of more than 2^31 elements: an offset that is kept in 32 bits writes and reads elsewhere.

Each element is the sum of a number of its row and one of its column, modulo 256; sums of rows and columns see every
element.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.libraries._compare import stale

ROWS, COLUMNS = 67141, 32771  # two primes whose product is 2.2e9
_FREE = 8_000_000_000  # bytes: the tensor, its copy, and what comparing them takes
_EDGE = 1 << 31
_PICKED = 100_000


def places(elements: int, random: Any) -> Any:
    """Distinct flat places: random ones, the first and last, and those around multiples of 2^31."""
    near = [edge + step for edge in range(0, elements + 1, _EDGE) for step in range(-3, 4)]
    near += [elements - 1 - step for step in range(4)]
    known = torch.tensor(sorted({place for place in near if 0 <= place < elements}))
    drawn = torch.randint(0, elements, (_PICKED,), generator=random)
    return torch.cat([known, drawn]).unique()


def measure(bench: Bench, rows: int, columns: int) -> None:
    """The measures of ``run`` on a tensor of ``rows`` times ``columns`` elements."""
    random = bench.random()
    down = torch.randint(-128, 128, (rows,), generator=random)
    across = torch.randint(-128, 128, (columns,), generator=random)

    def small(tensor: Any) -> Any:
        return ((tensor + 128) % 256 - 128).to(torch.int8)

    def check(name: str, table: Any, down_more: Any, across_more: Any) -> None:
        # the sums stay in int8 and wrap, so that no wider copy of the tensor is made
        by_row = table.sum(1, dtype=torch.int8)
        bench.exact(name, by_row, small(down * columns + across.sum() + down_more))
        by_column = table.sum(0, dtype=torch.int8)
        bench.exact(name, by_column, small(across * rows + down.sum() + across_more))

    stale(bench)
    table = torch.full((rows, columns), 77, dtype=torch.int8, device=bench.device)
    bench.exact("fill.wrong", table.sum(0, dtype=torch.int8), small(torch.full((columns,), 77 * rows)))
    torch.add(small(down).to(bench.device)[:, None], small(across).to(bench.device), out=table)
    check("sum.wrong", table, 0, 0)

    flat = table.view(-1)
    chosen = places(flat.numel(), random)
    here = chosen.to(bench.device)
    want = small(down[chosen // columns] + across[chosen % columns])
    bench.exact("read.wrong", flat[here], want)
    bench.exact("read.wrong", flat.take(here), want)

    copy = table.clone()
    bench.count("copy.wrong", int((copy != table).any()))
    check("copy.wrong", copy, 0, 0)
    del copy

    step = torch.randint(1, 256, chosen.shape, generator=random)
    flat[here] = small(want.long() + step).to(bench.device)
    bench.exact("write.wrong", flat[here], small(want.long() + step))
    down_more = torch.zeros(rows, dtype=torch.int64).index_add(0, chosen // columns, step)
    across_more = torch.zeros(columns, dtype=torch.int64).index_add(0, chosen % columns, step)
    check("write.wrong", table, down_more, across_more)
    tail = flat[-4099:].cpu()
    last = torch.arange(flat.numel() - 4099, flat.numel())
    change = torch.zeros(flat.numel() - int(last[0]), dtype=torch.int64)
    late = chosen >= last[0]
    change[chosen[late] - last[0]] = step[late]
    bench.exact("write.wrong", tail, small(down[last // columns] + across[last % columns] + change))


def run(bench: Bench) -> None:
    """Measures ``fill.wrong``, ``sum.wrong``, ``read.wrong``, ``copy.wrong`` and ``write.wrong``."""
    free, _ = torch.cuda.mem_get_info(bench.device)
    if free < _FREE:
        bench.not_applicable(f"the GPU has {free / 1e9:.1f} GB free, and this test takes {_FREE / 1e9:.0f} GB")
    measure(bench, ROWS, COLUMNS)
