"""Find the fastest way to launch the kernel, each candidate in a child of its own.

An error of CUDA ends all work of the process it happens in, so a tuner without children would end at its first.
A child that dies or takes too long is reported, and the next candidate starts with a clean state.
``--columns 4095`` shows the mistake of this example: such rows are not aligned as some candidates promise.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from kernel import row_sums


class Candidate(NamedTuple):
    """One way to launch the kernel."""

    block: int
    warps: int
    aligned: bool


def measure(candidate: Candidate, rows: int, columns: int, answer: Connection) -> None:
    """What a child does: microseconds for one launch, after a comparison with torch's own sum."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, out = torch.randn(rows, columns, device=device), torch.empty(rows, device=device)
    row_sums(x, out, *candidate)
    torch.testing.assert_close(out, x.sum(1), rtol=1e-3, atol=1e-2)
    rounds = 20 if device == "cuda" else 1
    started = time.perf_counter()
    for _ in range(rounds):
        row_sums(x, out, *candidate)
    if device == "cuda":
        torch.cuda.synchronize()
    answer.send((time.perf_counter() - started) / rounds * 1e6)


def tried(candidate: Candidate, rows: int, columns: int, limit_s: float) -> float | str:
    """Microseconds, or what became of the child."""
    fork = multiprocessing.get_context("fork")  # torch is imported once; CUDA starts in the child
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=measure, args=(candidate, rows, columns, theirs))
    child.start()
    theirs.close()
    try:
        if ours.poll(limit_s):
            return float(ours.recv())
    except EOFError:
        child.join()
        return f"its child ended with {child.exitcode}"
    finally:
        child.kill()
        child.join()
    return f"no answer within {limit_s:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--blocks", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--warps", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a candidate")
    options = parser.parse_args()
    measured = {}
    for candidate in itertools.starmap(Candidate, itertools.product(options.blocks, options.warps, (False, True))):
        found = tried(candidate, options.rows, options.columns, options.limit)
        print(f"{candidate}: {f'{found:.1f} us' if isinstance(found, float) else found}", flush=True)
        if isinstance(found, float):
            measured[candidate] = found
    if not measured:
        print("no candidate works")
        return 1
    best = min(measured, key=lambda each: measured[each])
    print(f"best: {best}, {measured[best]:.1f} us")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
