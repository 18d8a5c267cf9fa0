"""Torch's operators in the regimes that jobs reach, against plain Python: a table of rows in one process.

A library is not held against itself: what two of its types do wrong alike would be right.  Integers are exact, products
of matrices are checked by Freivalds, and functions are held against the same function of Python's doubles.  The level
quick tries each regime in few types, full in all of them.
"""

from __future__ import annotations

import sys

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.operators import (
    along,
    attention,
    convolutions,
    copies,
    draws,
    losses,
    pictures,
    places,
    pointwise,
    products,
    reductions,
)  # fmt: skip
from envkit.payload.smoke.operators.plain import Desk, Row

_TABLES = (
    products, convolutions, attention, along, pointwise, reductions, places, copies, draws, pictures, losses,
)  # fmt: skip
ROWS: dict[str, Row] = {name: row for table in _TABLES for name, row in table.ROWS.items()}
LONG = ("step.optimizers",)  # at the level full alone: the first optimizer imports the compiler, for seconds


def ready(bench: Bench) -> None:
    """Undoes what a program may have asked of torch beforehand: these settings are no fault of an operator."""
    bench.plain_math()
    torch.set_flush_denormal(False)
    if torch.are_deterministic_algorithms_enabled():  # to ask for them imports the compiler, for seconds
        torch.use_deterministic_algorithms(False)


def one(desk: Desk, name: str) -> None:
    """Works one row; what it raises is preceded on stderr by its name and place."""
    desk.begin(name)
    try:
        with torch.enable_grad():
            ROWS[name](desk)
    except Exception:
        sys.stderr.write(f"in the row {name}{', ' * bool(desk.part)}{desk.part}:\n")
        raise


def run(bench: Bench) -> None:
    """Measures ``<operator>.<regime>.wrong`` (elements), ``.units`` (the largest distance, in rounding units) and, of
    random numbers, ``.errors`` (standard errors)."""
    ready(bench)
    desk = Desk(bench)
    bench.note("whole", int(desk.full))
    for name in ROWS:
        if desk.full or name not in LONG:
            one(desk, name)
    bench.detail = desk.detail()
