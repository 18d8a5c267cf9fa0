"""The rows that explanations rest on.

Wordings (``signatures/*.jsonl``), kinds of failure (``failures/*.jsonl``), what a line says of its cause by itself
(``rules/*.jsonl``, and ``statements/*.jsonl`` where it is one signature, one cause), and the words of what code decides
(``hypotheses/*.jsonl``).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from envkit import facts
from envkit.logs import names
from envkit.logs.records import CAUSES, Failure, Rule, Signature, Statement, Wording
from envkit.logs.xid import xid_signatures

Row = TypeVar("Row", Signature, Failure, Rule, Statement, Wording)

_HERE = Path(__file__).parent
_VALUE = re.compile(r"\{(\w+)\}")


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


@cache
def before_unspecific() -> int:
    """How many of the signatures tell what failed; those behind them only that something did."""
    return len(signatures()) - len(_rows(_HERE / "signatures" / "unspecific.jsonl", Signature))


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


@cache
def rules(category: str = "") -> tuple[Rule, ...]:
    """The rules of one failure, or all, in the order of files and lines; raises ValueError where a row does not fit."""
    if category:
        return tuple(rule for rule in rules() if rule.category == category)
    return read_rules(_HERE / "rules")


@cache
def statements(table: str) -> Mapping[str, Statement]:
    """The statements of a file of ``statements/`` by their signatures; raises ValueError where a row does not fit."""
    return {row.signature: row for row in _rows(_HERE / "statements" / f"{table}.jsonl", Statement)}


@cache
def wordings() -> Mapping[str, Wording]:
    """The words of hypotheses that code decides on, by id; raises ValueError where a row does not fit."""
    found = {row.id: row for path in sorted((_HERE / "hypotheses").glob("*.jsonl")) for row in _rows(path, Wording)}
    for row in found.values():
        if {row.category, *row.over} - {"", *failures()} or row.cause not in ("", *CAUSES):
            raise ValueError(f"hypothesis {row.id}: its category, its cause or what it explains is not known")
    return found


def read_rules(folder: Path) -> tuple[Rule, ...]:
    """The rules of the files in a folder; raises ValueError where a row does not fit the other tables."""
    found = tuple(row for path in sorted(folder.glob("*.jsonl")) for row in _rows(path, Rule))
    for row in found:
        for wrong in _wrong(row):
            raise ValueError(f"a rule of `{row.category}`: {wrong}")
    return found


@cache
def _patterns() -> dict[str, str]:
    """The patterns of the signatures by their ids."""
    return {each.id: each.pattern for each in (*signatures(), *names.kinds())}


def _named(name: str) -> list[str]:
    """The ids of the signatures that a rule calls by this name, which may hold wildcards."""
    if not set("*?[") & set(name):
        return [name] if name in _patterns() else []
    return fnmatch.filter(_patterns(), name)


def _wrong(row: Rule) -> Iterator[str]:
    """What keeps a rule from fitting the other tables."""
    if row.category not in failures():
        yield "there is no such failure"
    known: dict[str, str] = {}
    for name in (*row.signatures, *row.beside):
        here = {one: _patterns()[one] for one in _named(name)}
        if not here:
            yield f"there is no signature `{name}`"
        known |= here if name in row.signatures else {}
    for says in row.says:
        if says.cause not in CAUSES:
            yield f"there is no cause class `{says.cause}`"
        always = {"text", "code"} if row.status else {"text"}
        for value in set(_VALUE.findall(says.because + says.fix)) - always:
            if not known or not all(f"(?P<{value}>" in pattern for pattern in known.values()):
                yield f"not every line of it has the value `{value}`"
    try:
        re.compile(row.status)
    except re.error as error:
        yield f"its status is no regular expression: {error}"


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
