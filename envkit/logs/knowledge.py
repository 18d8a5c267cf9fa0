"""The rows that explanations rest on: wordings (``signatures/*.jsonl``) and kinds of failure (``failures/*.jsonl``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from envkit import facts
from envkit.logs.records import CAUSES, Failure, Signature
from envkit.logs.xid import xid_signatures

Row = TypeVar("Row", Signature, Failure)

_HERE = Path(__file__).parent


@cache
def signatures() -> tuple[Signature, ...]:
    """Every wording, in the order of the files' names and lines: of two that match one line, the earlier one counts.

    The wordings of Xids, made of the facts, stand before the kernel's others.

    Raises ValueError, with file and line, on a row that does not fit.  Patterns are compiled by who uses them: all of
    them would take half a second.
    """
    found = tuple(_signatures())
    known = failures()
    for row in found:
        if row.category and row.category not in known:
            raise ValueError(f"signature {row.id}: there is no failure `{row.category}`")
        if row.anchor != row.anchor.lower() or not row.anchor:
            raise ValueError(f"signature {row.id}: its anchor is empty or not in small letters")
    if len({row.id for row in found}) != len(found):
        raise ValueError("two signatures share an id")
    return found


def _signatures() -> Iterator[Signature]:
    for path in sorted((_HERE / "signatures").glob("*.jsonl")):
        if path.stem == "kernel":
            yield from xid_signatures(facts.load())
        yield from _rows(path, Signature)


@cache
def failures() -> Mapping[str, Failure]:
    """Every kind of failure by its id; raises ValueError, with file and line, on a row that does not fit."""
    found = {row.id: row for path in sorted((_HERE / "failures").glob("*.jsonl")) for row in _rows(path, Failure)}
    for row in found.values():
        strange = (set(row.causes) | set(row.fix) - {""}) - set(CAUSES)
        if strange:
            raise ValueError(f"failure {row.id}: there is no cause class {', '.join(sorted(strange))}")
    return found


def _rows(path: Path, kind: type[Row]) -> list[Row]:
    known = {field.name for field in fields(kind)}
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            plain = msgspec.json.decode(line, type=dict[str, object])
            rows.append(msgspec.convert(plain, kind))
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path.name}:{number}: {error}") from error
        if strange := set(plain) - known:
            raise ValueError(f"{path.name}:{number}: there is no field `{', '.join(sorted(strange))}`")
    return rows
