"""All-gather, reduce-scatter, broadcast, all-to-all, gather, scatter, send and receive, and the barrier: exact.

Every receiving buffer is filled with a pattern before, and every element's value tells which rank sent it and where it
lay there.
"""

from __future__ import annotations

import time
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.ranks import Rank

_POISON = -77
_ODD = 13  # so that blocks are not aligned to 16 bytes
_LATE_S = 0.4


def block(source: int, part: int, count: int, device: str) -> Any:
    """What rank ``source`` holds as its ``part``-th block, as int32."""
    place = torch.arange(count, dtype=torch.int32, device=device)
    return place * 1001 + source * 37 + part * 7 + 1


def _empty(count: int, rank: Rank) -> Any:
    return torch.full((count,), _POISON, dtype=torch.int32, device=rank.device)


def _whole(rank: Rank, count: int) -> Any:
    """This rank's blocks for all ranks, one behind another."""
    return torch.cat([block(rank.rank, part, count, rank.device) for part in range(rank.size)])


def _moves(rank: Rank, count: int) -> None:
    import torch.distributed as dist

    me, size, device = rank.rank, rank.size, rank.device
    parts = range(size)

    out = _empty(count * size, rank)
    with rank.step("all_gather", str(count)):
        dist.all_gather_into_tensor(out, block(me, 0, count, device))
    rank.bench.exact("all_gather.wrong", out, torch.cat([block(part, 0, count, device) for part in parts]))

    out = _empty(count * size, rank)
    with rank.step("all_to_all", str(count)):
        dist.all_to_all_single(out, _whole(rank, count))
    rank.bench.exact("all_to_all.wrong", out, torch.cat([block(part, me, count, device) for part in parts]))

    for root in parts:
        data = block(root, 3, count, device) if me == root else _empty(count, rank)
        with rank.step("broadcast", f"{count} from {root}"):
            dist.broadcast(data, root)
        rank.bench.exact("broadcast.wrong", data, block(root, 3, count, device))

        slots = [_empty(count, rank) for _ in parts] if me == root else None
        with rank.step("gather", f"{count} to {root}"):
            dist.gather(block(me, root, count, device), slots, root)
        if slots is not None:
            want = torch.cat([block(part, root, count, device) for part in parts])
            rank.bench.exact("gather.wrong", torch.cat(slots), want)

        out = _empty(count, rank)
        given = [block(root, part, count, device) for part in parts] if me == root else None
        with rank.step("scatter", f"{count} from {root}"):
            dist.scatter(out, given, root)
        rank.bench.exact("scatter.wrong", out, block(root, me, count, device))

    after, before = (me + 1) % size, (me - 1) % size
    out = _empty(count, rank)
    with rank.step("send and recv", f"{count} around the ring"):
        pair = [dist.P2POp(dist.isend, block(me, after, count, device), after), dist.P2POp(dist.irecv, out, before)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
    rank.bench.exact("send_recv.wrong", out, block(before, me, count, device))


def _reduce_scatter(rank: Rank, count: int) -> None:
    import torch.distributed as dist

    out = _empty(count, rank)
    with rank.step("reduce_scatter", str(count)):
        dist.reduce_scatter_tensor(out, _whole(rank, count))
    want = torch.stack([block(part, rank.rank, count, rank.device) for part in range(rank.size)]).sum(0)
    rank.bench.exact("reduce_scatter.wrong", out, want.to(torch.int32))


def _barrier(rank: Rank) -> tuple[float, float]:
    """When this rank came to the barrier and when it was behind it, in seconds; the last rank comes late."""
    import torch.distributed as dist

    with rank.step("barrier"):
        if rank.rank == rank.size - 1:
            time.sleep(_LATE_S)
        came = time.monotonic()  # one clock for all processes of a machine
        if rank.bench.injected_fault != "order":
            dist.barrier()
        if rank.backend == "nccl":
            torch.cuda.synchronize()
        return came, time.monotonic()


def _work(rank: Rank) -> tuple[float, float]:
    counts = ((1 << 21) + _ODD, _ODD) if rank.backend == "nccl" else ((1 << 16) + _ODD, _ODD)
    offered = 1
    for count in counts:
        _moves(rank, count)
        try:
            _reduce_scatter(rank, count)
        except RuntimeError as error:
            if rank.backend == "nccl" or "upport" not in str(error):  # gloo has it in some releases
                raise
            offered = 0
    rank.bench.note("reduce_scatter.offered", offered)
    return _barrier(rank)


def too_early(times: list[tuple[float, float]]) -> int:
    """How many ranks were behind the barrier before the last had come to it."""
    last = max(came for came, _ in times)
    return sum(not behind >= last for _, behind in times)


def run(bench: Bench) -> None:
    """Measures ``<backend>.<collective>.wrong`` in elements and ``<backend>.barrier.wrong`` in ranks, and by
    ``<backend>.reduce_scatter.offered`` whether the backend has it."""
    backend, said = ranks.together(bench, _work)
    times = [(float(came), float(behind)) for came, behind in said]
    bench.count(f"{backend}.barrier.wrong", too_early(times))
    if backend == "nccl":
        bench.note("gloo.reduce_scatter.offered", 0)
