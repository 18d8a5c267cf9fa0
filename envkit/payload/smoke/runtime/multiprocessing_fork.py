"""Processes started in each of Python's three ways compute right on the device, and so does their parent.

The fork comes before the parent uses CUDA; spawned workers and those of a fork server after it.
"""

from __future__ import annotations

import io
import multiprocessing
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.runtime.products import count_wrong, operands

_WORKERS, _SIZE = 2, 96
_WAIT_S = 600.0  # far above what it takes: the budget of the whole test, which knows of a busy machine, ends a hang


def worker(connection: Any, device: str, seed: int) -> None:
    """One worker: an exact product on the device, sent as bytes."""
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    left, right, _ = operands(_SIZE, torch.Generator().manual_seed(seed))
    product = left.to(device) @ right.to(device)
    held = io.BytesIO()
    torch.save(product.cpu(), held)
    connection.send_bytes(held.getvalue())


def _workers(bench: Bench, way: str) -> None:
    context: Any = multiprocessing.get_context(way)
    running = []
    for seed in range(_WORKERS):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=worker, args=(theirs, bench.device, seed), daemon=True)
        process.start()
        theirs.close()
        running.append((ours, process, seed))
    for ours, process, seed in running:
        if not ours.poll(_WAIT_S):
            raise AssertionError(f"a worker started by {way} said nothing within {_WAIT_S:.0f} s")
        try:
            answer = ours.recv_bytes()
        except EOFError:
            process.join(_WAIT_S)
            raise AssertionError(f"a worker started by {way} exited with status {process.exitcode}") from None
        process.join(_WAIT_S)
        _, _, want = operands(_SIZE, torch.Generator().manual_seed(seed))
        bench.exact(way + ".wrong", torch.load(io.BytesIO(answer), weights_only=True), want)
        bench.count("status.wrong", int(process.exitcode != 0))


def run(bench: Bench) -> None:
    """Measures ``fork.wrong``, ``spawn.wrong``, ``forkserver.wrong`` and ``parent.wrong`` (elements of products), and
    ``status.wrong`` (workers that did not leave with status 0)."""
    bench.plain_math()
    _workers(bench, "fork")
    count_wrong(bench, "parent.wrong")
    for way in ("spawn", "forkserver"):
        _workers(bench, way)
    count_wrong(bench, "parent.wrong")
