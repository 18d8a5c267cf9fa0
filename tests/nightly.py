"""Rows of a parametrized test that `make nightly` alone runs."""

from __future__ import annotations

from typing import Any

import pytest


def at_night(*rows: tuple[Any, ...]) -> list[Any]:
    """The rows, marked as nightly; a row is a tuple of the arguments."""
    return [pytest.param(*row, marks=pytest.mark.nightly) for row in rows]
