"""How many random examples a property is tried with; ENVKIT_FUZZ times as many at night."""

from __future__ import annotations

import os

from hypothesis import settings

TIMES = int(os.environ.get("ENVKIT_FUZZ") or 1)
USUAL = 50 * TIMES  # where a test does not say


def examples(number: int) -> settings:
    """For ``@given``; how long an example takes is the machine's matter."""
    return settings(max_examples=number * TIMES, deadline=None)
