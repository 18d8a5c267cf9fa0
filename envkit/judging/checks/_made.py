"""Checks that are made: of a judge of one part of a machine, or of a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from envkit.model import Finding
from envkit.subjects import Host

Judge = TypeVar("Judge", bound=Callable[..., Iterable[Finding]])

Made = TypeVar("Made", bound=Callable[..., Iterator[Finding]])


def named(check: Made, name: str, module: str) -> Made:
    """``check`` under the name by which it is found, as if the module had defined it."""
    check.__name__ = check.__qualname__ = name
    check.__module__ = module
    return check


def check_by(ask: Callable[[Host, Judge], Iterable[Finding]]) -> Callable[[Judge], Callable[[Host], Iterator[Finding]]]:
    """A decorator that makes a judge of one part the check of a machine: ``ask`` asks it about every such part."""

    def of(judge: Judge) -> Callable[[Host], Iterator[Finding]]:
        def check(host: Host) -> Iterator[Finding]:
            yield from ask(host, judge)

        return named(check, judge.__name__, judge.__module__)

    return of
