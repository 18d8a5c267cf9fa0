"""Eight host threads at once, each with a stream and a handle of its own, multiply matrices and add them up: exact."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED, Bench
from envkit.payload.smoke.runtime.products import operands

_THREADS, _ROUNDS = 8, 40
_SIZE, _STEP = 96, 17  # each thread has a size of its own: another kernel, another workspace
_WAIT_S = 600.0  # far above what it takes: the budget of the whole test, which knows of a busy machine, ends a hang


def run(bench: Bench) -> None:
    """Measures ``products.wrong`` (elements) and, on a GPU, ``handles.wrong`` (threads that share cuBLAS's handle)."""
    bench.plain_math()
    together = threading.Barrier(_THREADS, timeout=_WAIT_S)

    def work(number: int) -> Any:
        try:
            return multiply(number)
        except BaseException:
            together.abort()  # nobody waits for a thread that failed
            raise

    def multiply(number: int) -> Any:
        left, right, want = operands(_SIZE + _STEP * number, torch.Generator().manual_seed(SEED + number))
        stream: Any = contextlib.nullcontext()
        handle = 0
        if bench.on_gpu:
            torch.cuda.set_device(bench.device)  # of this thread
            own = torch.cuda.Stream()
            stream = torch.cuda.stream(own)
        with stream:
            if bench.on_gpu:
                handle = torch.cuda.current_blas_handle()
            one, two = left.to(bench.device), right.to(bench.device)
            total = torch.zeros_like(one)
            out = torch.empty_like(one)
            together.wait()
            for _ in range(_ROUNDS):
                out.fill_(torch.nan)
                torch.mm(one, two, out=out)
                total += out
            got = total.cpu()
        together.wait()  # nobody gives a handle back before everybody has one
        return handle, got, want * _ROUNDS

    with ThreadPoolExecutor(_THREADS) as pool:
        futures = [pool.submit(work, number) for number in range(_THREADS)]
        errors = [error for error in (future.exception() for future in futures) if error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error  # the cause before those who only waited for it
    done = [future.result() for future in futures]
    if bench.on_gpu:
        bench.count("handles.wrong", _THREADS - len({handle for handle, _, _ in done}))
    for _, got, want in done:
        bench.exact("products.wrong", got, want)
