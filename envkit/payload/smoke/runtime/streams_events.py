"""Two streams and events on one GPU, and copies from and to pinned memory that do not block: exact.

A sleep comes before every write, so that a consumer that did not wait reads what was there before.
"""

from __future__ import annotations

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_ROUNDS = 50
_SIZE = 1 << 20
_SLEEP_CYCLES = 2_000_000  # about a millisecond


def run(bench: Bench) -> None:
    """Measures ``order.wrong`` (elements read too early), ``copies.wrong``, and ``elapsed.wrong`` (event times)."""
    torch.cuda.set_device(bench.device)
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    buffer = torch.zeros(_SIZE, dtype=torch.int32, device=bench.device)
    seen = torch.full((_ROUNDS, 1024), -1, dtype=torch.int32, device=bench.device)
    torch.cuda.synchronize()
    written, read = torch.cuda.Event(), torch.cuda.Event()
    for number in range(_ROUNDS):
        with torch.cuda.stream(producer):
            if number:
                producer.wait_event(read)
            torch.cuda._sleep(_SLEEP_CYCLES)
            buffer.fill_(number + 1)
            written.record(producer)
        with torch.cuda.stream(consumer):
            if bench.injected_fault != "order":
                consumer.wait_event(written)
            seen[number].copy_(buffer[-1024:])
            read.record(consumer)
    torch.cuda.synchronize()
    rounds = torch.arange(1, _ROUNDS + 1, dtype=torch.int32)
    bench.exact("order.wrong", seen, rounds[:, None].expand(_ROUNDS, 1024))

    random = bench.random()
    source = torch.randint(-(2**30), 2**30, (_SIZE + 3,), generator=random, dtype=torch.int32)
    there = source.pin_memory()
    back = torch.full_like(source, -1).pin_memory()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(producer):
        start.record(producer)
        torch.cuda._sleep(_SLEEP_CYCLES)
        inside = there.to(bench.device, non_blocking=True)
        written.record(producer)
    with torch.cuda.stream(consumer):
        consumer.wait_event(written)
        doubled = inside[3:] * 2  # a base that is not aligned to 16 bytes
        back[3:].copy_(doubled, non_blocking=True)
        end.record(consumer)
    end.synchronize()
    bench.exact("copies.wrong", back[3:], source[3:] * 2)
    bench.count("elapsed.wrong", int(not start.elapsed_time(end) > 0.0))
