"""Checks that are made: of a judge of one part of a machine, or of a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from envkit.model import Finding

Made = TypeVar("Made", bound=Callable[..., Iterator[Finding]])


def named(check: Made, name: str, module: str) -> Made:
    """``check`` under the name by which it is found, as if the module had defined it."""
    check.__name__ = check.__qualname__ = name
    check.__module__ = module
    return check
