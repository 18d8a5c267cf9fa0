"""Who asks for which torch beyond the packages that are read from the index: single lines of a wide table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

from envkit.facts.rows import TorchNeedRow, WideNeedRow, read_line, read_table_once

# What the note of a row without a specifier says.
ANY_TORCH, NO_TORCH = "asks for any torch", "asks for no torch"


class _OfPackage(Protocol):
    @property
    def package(self) -> str: ...


OfPackage = TypeVar("OfPackage", bound=_OfPackage)


def by_package(rows: Iterable[OfPackage]) -> Mapping[str, tuple[OfPackage, ...]]:
    """Rows by their package, in their order."""
    found: dict[str, list[OfPackage]] = {}
    for row in rows:
        found.setdefault(row.package, []).append(row)
    return {name: tuple(of) for name, of in found.items()}


class Wide:
    """The table at ``path``, of which only the lines are read that are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def row(self, name: str) -> WideNeedRow | None:
        """The row of one package."""
        _, begin, rest = self._text.partition(f'\n{{"package": "{name}", ')
        return read_line(WideNeedRow, (begin + rest.partition("\n")[0]).lstrip("\n")) if begin else None

    def rows(self) -> tuple[WideNeedRow, ...]:
        """All rows, by package."""
        return read_table_once(WideNeedRow, self._path)

    @cached_property
    def _text(self) -> str:
        return "\n" + self._path.read_text("utf-8")


class Needs(Mapping[str, tuple[TorchNeedRow, ...]]):
    """Who asks for which torch: the rows of one table, and for other packages those of the wide one, when asked."""

    def __init__(self, near: Mapping[str, tuple[TorchNeedRow, ...]], wide: Wide) -> None:
        self._near, self._wide = near, wide
        self._far: dict[str, tuple[TorchNeedRow, ...]] = {}

    def __getitem__(self, name: str) -> tuple[TorchNeedRow, ...]:
        if name in self._near:
            return self._near[name]
        if name not in self._far:
            row = self._wide.row(name)
            self._far[name] = () if row is None else tuple(_needs_of(row))
        if not self._far[name]:
            raise KeyError(name)
        return self._far[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._near, *(row.package for row in self._wide.rows() if row.torch)}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _needs_of(row: WideNeedRow) -> Iterator[TorchNeedRow]:
    for since, until, asked in row.torch:
        through = asked[1:] if asked and asked.startswith("*") else ""
        yield TorchNeedRow(
            package=row.package,
            since=since,
            until=until,
            torch="" if through else asked or "",
            note=NO_TORCH if asked is None else "" if asked and not through else ANY_TORCH,
            source=f"{row.source}; through {through}" if through else row.source,
            seen=row.seen,
        )
