"""Compares equal things of a machine by a table, ``twins.jsonl``, that says of every field what a difference means.

A thing is a record of the subject: a GPU, an NVLink, a PCI function, an RDMA device, ...  Of a value that is a record
itself the table has the fields ("power.most"), of a mapping the whole ("throttled_us").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

from envkit.model import Observed, Reason, Severity
from envkit.records import dataclass

Kind = Literal["gpu", "link", "function", "bridge", "rdma device", "port"]


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field of one kind of thing.

    ``how`` equal things are compared by it: "same", "near" (numbers within the share ``by`` of the largest), "count"
    (tuples, by their lengths), "free" (it may differ), "own" (it must differ, and another check says so).  Where
    ``check`` is given that check compares it.  ``untold`` are values that stand for none.  ``severity`` is that of a
    difference, ``silent`` that of a thing that does not tell what its twins tell, empty where it need not.
    ``board`` marks what each maker of boards decides, which is not compared where a product has many makers.
    """

    of: Kind
    field: str
    how: Literal["same", "near", "count", "free", "own"]
    reason: str
    by: float = 0.0
    check: str = ""
    untold: tuple[int | str, ...] = ()
    severity: str = "warning"
    silent: str = "error"
    board: bool = False


@cache
def table() -> Mapping[tuple[str, str], Row]:
    """The rows by kind and field."""
    text = resources.files("envkit.judging.checks").joinpath("twins.jsonl").read_text("utf-8")
    rows = [msgspec.json.decode(line, type=Row, strict=True) for line in text.splitlines() if line]
    return {(row.of, row.field): row for row in rows}


@dataclass(frozen=True, slots=True)
class Silent:
    """In place of a value that a thing does not tell; ``at`` is the observation that is missing."""

    at: str
    why: str
    elsewhere: bool = False  # another check reports the reason


@dataclass(frozen=True, slots=True)
class Difference:
    """Values of one field, each with the things that have it."""

    row: Row
    path: str
    values: Mapping[str, Sequence[str]]


_ELSEWHERE = (Reason.NONSENSE, Reason.NEWER)


def _paths(kind: str, at: str, value: Any) -> Iterator[tuple[str, Row, Any]]:
    """Each value in the field ``at``, with its path and row; Silent for one that is missing.

    Raises KeyError for a field that the table does not have.
    """
    if isinstance(value, Observed):
        if value.value is None:
            yield from _missing(kind, at, Silent(at, value.missing or "no value", value.reason in _ELSEWHERE))
            return
        value = value.value
    if is_dataclass(value) and (kind, at) not in table():
        for item in fields(value):
            yield from _paths(kind, f"{at}.{item.name}" if at else item.name, getattr(value, item.name))
        return
    row = table()[kind, at]
    if isinstance(value, Mapping) and row.how != "own":
        yield from ((f"{at} {key}", row, inner) for key, inner in value.items())
    elif isinstance(value, (int, str)) and value in row.untold:
        yield at, row, Silent(at, f"it says {value!r}")
    else:
        yield at, row, value


def _missing(kind: str, at: str, silent: Silent) -> Iterator[tuple[str, Row, Any]]:
    for (of, name), row in table().items():
        if of == kind and (name == at or name.startswith(f"{at}.")):
            yield name, row, silent


def compare(
    kind: str, things: Mapping[str, Any], boards: bool = True
) -> tuple[dict[str, dict[str, tuple[Row, str]]], list[Difference]]:
    """What each of these equal things, by their names, does not tell and another does; and in what they differ.

    The first maps a thing's name to the observations that it lacks, each with its row and the reason.  Without
    ``boards`` nothing is asked that the makers of boards decide.
    """
    found: dict[str, dict[str, tuple[Row, Any]]] = {name: {} for name in things}
    for item in fields(next(iter(things.values()))):
        own = {name: getattr(thing, item.name) for name, thing in things.items()}
        first = next(iter(own.values()))
        if any(value != first for value in own.values()):  # where all say the same there is nothing to compare
            for name, value in own.items():
                found[name] |= {path: (row, inner) for path, row, inner in _paths(kind, item.name, value)}
    told: dict[str, Row] = {}
    for values in found.values():
        told |= {path: row for path, (row, value) in values.items() if not isinstance(value, Silent)}
    lacks: dict[str, dict[str, tuple[Row, str]]] = {}
    differences = []
    for path, row in told.items():
        if row.board and not boards:
            continue
        seen: dict[str, list[str]] = {}
        numbers = []
        for name, values in found.items():
            value = _told(values, path, row)
            if isinstance(value, Silent):
                if row.silent and not value.elsewhere:
                    lacks.setdefault(name, {})[value.at] = (row, value.why)
                continue
            value = len(value) if row.how == "count" else value
            numbers.append(value)
            seen.setdefault(_shown(value), []).append(name)
        if len(seen) > 1 and row.how in ("same", "near", "count") and not row.check and not _near(row, numbers):
            differences.append(Difference(row, path, seen))
    return lacks, differences


def _told(values: Mapping[str, tuple[Row, Any]], path: str, row: Row) -> Any:
    if path in values:
        return values[path][1]
    whole = values.get(row.field)  # of a mapping that was not observed at all
    return whole[1] if whole and isinstance(whole[1], Silent) else Silent(path, "it is not among what it tells")


def _near(row: Row, numbers: Sequence[Any]) -> bool:
    return row.how == "near" and max(numbers) - min(numbers) <= row.by * max(numbers)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def severity(word: str) -> Severity:
    """A severity of the table."""
    return Severity[word.upper()]
