"""Two chains of products on two streams at once, each with a workspace of its own, and one that takes over the other.

Every link multiplies by a permutation with signs, so that where the integers must end is known.  The shape has few
rows, so that the library needs a workspace.  One stream sleeps first: a product that does not wait for it reads NaN.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import plain_order

_ROWS, _WIDTH = 64, 2048
_LINKS = 32
_SLEEP_CYCLES = 100_000_000  # 50 ms and more: far longer than both chains


class Chain:
    """Numbers, the signed permutation that moves them, and where they are after every link."""

    def __init__(self, bench: Bench, dtype: Any, random: Any) -> None:
        self.places = torch.randperm(_WIDTH, generator=random)
        self.signs = torch.randint(0, 2, (_WIDTH,), generator=random) * 2 - 1
        self.start = torch.randint(-128, 129, (_ROWS, _WIDTH), generator=random)
        matrix = torch.zeros(_WIDTH, _WIDTH, dtype=torch.int64)
        matrix[self.places, torch.arange(_WIDTH)] = self.signs
        self.matrix = matrix.to(bench.device, dtype)
        self.links = torch.empty(_LINKS + 1, _ROWS, _WIDTH, dtype=dtype, device=bench.device)

    def poison(self) -> None:
        """Makes NaN of all but the beginning."""
        self.links.fill_(torch.nan)
        self.links[0].copy_(self.start)

    def moved(self, numbers: Any) -> Any:
        """What one link makes of ``numbers``."""
        return numbers[:, self.places] * self.signs

    def end(self) -> Any:
        """What the last link holds."""
        numbers = self.start
        for _ in range(_LINKS):
            numbers = self.moved(numbers)
        return numbers

    def forge(self, link: int) -> None:
        """Does one product, on the current stream."""
        torch.mm(self.links[link], self.matrix, out=self.links[link + 1])


def run(bench: Bench) -> None:
    """Measures ``fp16.wrong`` and ``bf16.wrong`` (ends of chains), ``handed.wrong`` (what was taken over)."""
    plain_order()
    bench.plain_math()
    torch.cuda.set_device(bench.device)
    random = bench.random()
    slow, quick = Chain(bench, torch.bfloat16, random), Chain(bench, torch.bfloat16, random)
    other = Chain(bench, torch.float16, random)
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    done = torch.cuda.Event()
    handed = torch.empty(_ROWS, _WIDTH, dtype=torch.bfloat16, device=bench.device)
    for cycles in (0, _SLEEP_CYCLES):  # the first round loads the kernels, so that the second waits for nothing else
        for chain in (slow, quick, other):
            chain.poison()
        handed.fill_(torch.nan)
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[0]):
            if cycles:
                torch.cuda._sleep(cycles)
        for link in range(_LINKS):
            with torch.cuda.stream(streams[0]):
                slow.forge(link)
            with torch.cuda.stream(streams[1]):
                other.forge(link)
                quick.forge(link)
        with torch.cuda.stream(streams[0]):
            done.record()
        with torch.cuda.stream(streams[1]):
            if bench.injected_fault != "order":
                streams[1].wait_event(done)
            torch.mm(slow.links[_LINKS], quick.matrix, out=handed)
        torch.cuda.synchronize()
        bench.exact("bf16.wrong", slow.links[_LINKS], slow.end())
        bench.exact("bf16.wrong", quick.links[_LINKS], quick.end())
        bench.exact("fp16.wrong", other.links[_LINKS], other.end())
        bench.exact("handed.wrong", handed, quick.moved(slow.end()))
