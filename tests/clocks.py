"""Costs and waits that hold on a machine with other things to do: processor time, the order of events, patience."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 120.0  # only what hangs takes so long, whatever else the machine does


def spent() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


@contextmanager
def costs_less(seconds: float) -> Iterator[None]:
    """The block takes less than so many seconds of processor time, its children's included."""
    begun = spent()
    yield
    took = spent() - begun
    assert took < seconds, f"it took {took:.2f} s of processor time, and {seconds:g} s are its bound"


@contextmanager
def ends() -> Iterator[None]:
    """The block does not wait for what hangs in it, which must hang for longer than ``PATIENCE_S``."""
    begun = time.monotonic()
    yield
    took = time.monotonic() - begun
    assert took < PATIENCE_S, f"it took {took:.0f} s: something was waited for that hangs"


def comes(condition: Callable[[], object], pause_s: float = 0.02) -> bool:
    """Whether this comes true, however long a loaded machine takes for it."""
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(pause_s)
    return True
