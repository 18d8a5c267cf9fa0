"""All-reduce of integers that each type holds exactly, in every size and type, in place and off its alignment: exact.

The values are multiples of the number of ranks, so that the mean is exact as well, and so small that no partial sum
leaves the range in which the type holds every such multiple.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.ranks import Rank

_BYTES = (8, 40_000, 1 << 20, 1 << 25)
_LARGE = 1 << 28
_ROUNDS = 11
_LATE_S = 0.4


def values(rank: int, size: int, count: int, salt: int, device: str) -> Any:
    """What ``rank`` of ``size`` brings, as int32: multiples of ``size`` between -3 and 3 times it (-1 and 1 for many
    ranks, so that their sum stays below 256 times the power of two in it)."""
    top = 3 if size <= 8 else 1
    place = torch.arange(count, dtype=torch.int32, device=device)
    mixed = place * 5 + torch.div(place, 64, rounding_mode="floor") * 3 + rank * 11 + salt
    return (mixed.remainder(2 * top + 1) - top) * size


def expected(op: str, size: int, count: int, salt: int, device: str) -> Any:
    """The result of ``op`` over what all ranks bring, as int32."""
    total = values(0, size, count, salt, device)
    for rank in range(1, size):
        more = values(rank, size, count, salt, device)
        if op in ("sum", "avg"):
            total += more
        else:
            total = torch.minimum(total, more) if op == "min" else torch.maximum(total, more)
    return torch.div(total, size, rounding_mode="trunc") if op == "avg" else total


def _reduce(rank: Rank, name: str, dtype: Any, op: str, size_bytes: int, shift: int) -> None:
    import torch.distributed as dist

    ops = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX, "avg": dist.ReduceOp.AVG}
    count = max(1, size_bytes // torch.empty((), dtype=dtype).element_size())
    salt = count % 7
    whole = torch.full((count + 2,), 77, dtype=dtype, device=rank.device)
    whole[shift : shift + count] = values(rank.rank, rank.size, count, salt, rank.device).to(dtype)
    with rank.step("all_reduce", f"{op} of {count} {name}, shifted by {shift}"):
        dist.all_reduce(whole[shift : shift + count], ops[op])
    want = torch.full((count + 2,), 77, dtype=dtype, device=rank.device)
    want[shift : shift + count] = expected(op, rank.size, count, salt, rank.device).to(dtype)
    rank.bench.exact(f"{name}.wrong", whole, want)


def _early(rank: Rank) -> None:
    """What is read behind an asynchronous all-reduce that waits for a late rank; "order" drops the wait."""
    import torch.distributed as dist

    data = values(rank.rank, rank.size, 4096, 5, rank.device)
    want = expected("sum", rank.size, 4096, 5, rank.device)
    if rank.device != "cpu":
        torch.cuda.synchronize()
    with rank.step("all_reduce", "asynchronous"):
        if rank.rank == rank.size - 1:
            time.sleep(_LATE_S)
        work = dist.all_reduce(data, async_op=True)
        if rank.bench.injected_fault != "order":
            work.wait()
        seen = data.clone()
        work.wait()
    rank.bench.exact("async.wrong", seen, want)


def _rates(rank: Rank) -> None:
    import torch.distributed as dist

    data = torch.ones(_LARGE // 4, dtype=torch.float32, device=rank.device)
    with rank.step("all_reduce", "timed"):
        times = []
        for _ in range(_ROUNDS):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            dist.all_reduce(data)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
    if rank.rank == 0:
        rate = _LARGE / statistics.median(times[1:]) / 1e6
        rank.bench.note("algbw.gbs", rate)
        rank.bench.note("busbw.gbs", rate * 2 * (rank.size - 1) / rank.size)


def _work(rank: Rank) -> None:
    on_gpu = rank.backend == "nccl"
    kinds = (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16), ("int32", torch.int32))
    for name, dtype in kinds:
        for op in ("sum", "min", "max", "avg") if on_gpu else ("sum", "min", "max"):  # gloo knows no mean
            for size_bytes in _BYTES if on_gpu else _BYTES[:3]:
                for shift in (0, 1):
                    _reduce(rank, name, dtype, op, size_bytes, shift)
    _early(rank)
    if on_gpu:
        for name, dtype in kinds[:2]:
            _reduce(rank, name, dtype, "sum", _LARGE, 1)
        _rates(rank)


def run(bench: Bench) -> None:
    """Measures ``<backend>.<type>.wrong`` and ``<backend>.async.wrong`` in elements, what lies around the result
    included; with NCCL ``nccl.algbw.gbs`` and ``nccl.busbw.gbs`` in GB/s, the median at 256 MiB in fp32.

    busbw is algbw times 2(n-1)/n for n ranks, as nccl-tests defines it: what a ring moves over each link.
    """
    ranks.together(bench, _work, 80.0)
