"""Twenty thousand small kernels in a row on two streams, far more than the queue holds: every one runs, in order.

Now and then one stream, which sleeps first, hands the other a value; what the two do to it does not commute.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_LAUNCHES, _HANDOVER = 20_000, 1000  # the second divides the first
_ELEMENTS = 1024
_SLEEP_CYCLES = 4_000_000  # about two milliseconds
_MODULUS = 1_000_003


def mixed(value: Any, factor: int, added: int) -> Any:
    """One step of the value that is handed over; two of them with other factors do not commute."""
    return value.mul_(factor).add_(added).remainder_(_MODULUS)


def run(bench: Bench) -> None:
    """Measures ``counters.wrong`` (elements that missed a launch) and ``handed.wrong`` (elements out of order)."""
    torch.cuda.set_device(bench.device)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    start = torch.randint(0, _MODULUS, (_ELEMENTS,), generator=bench.random())
    counters = [torch.zeros(_ELEMENTS, dtype=torch.int64, device=bench.device) for _ in range(2)]
    value, want = start.to(bench.device), start.clone()
    given, taken = torch.cuda.Event(), torch.cuda.Event()
    torch.cuda.synchronize()
    for number in range(_LAUNCHES):
        with torch.cuda.stream(second if number % 2 else first):
            counters[number % 2].add_(1)
        if number % _HANDOVER == 0:
            with torch.cuda.stream(first):
                if number:
                    first.wait_event(taken)
                torch.cuda._sleep(_SLEEP_CYCLES)
                mixed(value, 3, number + 1)
                given.record(first)
            with torch.cuda.stream(second):
                if bench.injected_fault != "order":
                    second.wait_event(given)
                mixed(value, 5, number + 2)
                taken.record(second)
            mixed(mixed(want, 3, number + 1), 5, number + 2)
    torch.cuda.synchronize()
    bench.exact("counters.wrong", torch.stack(counters), torch.full((2, _ELEMENTS), _LAUNCHES // 2))
    bench.exact("handed.wrong", value, want)
