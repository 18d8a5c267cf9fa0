"""What a saved subject of an earlier version lacks is read as the field's default, which so is part of the format:
``data/answers/defaults.txt`` has them all; run this file to rewrite it."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from envkit.subjects import KINDS
from envkit.subjects.dockerfile import Dockerfile
from envkit.subjects.packages import Packages
from envkit.subjects.start import JobStart
from envkit.subjects.workload import Workload

GOLDEN = Path(__file__).parent / "data" / "answers" / "defaults.txt"
TYPES = (*(KINDS[kind] for kind in KINDS), Dockerfile, Packages, JobStart, Workload)


def within(kind: Any, seen: set[type[Any]]) -> Iterator[type[Any]]:
    """The records of which a type is made, itself among them."""
    for part in typing.get_args(kind):
        yield from within(part, seen)
    kind = typing.get_origin(kind) or kind
    if isinstance(kind, type) and is_dataclass(kind) and kind not in seen:
        seen.add(kind)
        yield kind
        for hint in typing.get_type_hints(kind).values():
            yield from within(hint, seen)


def defaults() -> str:
    """Each field that has a default, with it."""
    seen: set[type[Any]] = set()
    lines = set()
    for kind in TYPES:
        for record in within(kind, seen):
            for one in fields(record):
                value = one.default if one.default_factory is MISSING else one.default_factory()
                if value is not MISSING:
                    lines.add(f"{record.__module__}.{record.__qualname__}.{one.name} = {value!r}\n")
    return "".join(sorted(lines))


def test_what_a_field_is_read_as_where_it_is_not_saved() -> None:
    assert defaults() == GOLDEN.read_text(encoding="utf-8"), "python tests/test_subject_defaults.py writes it again"


if __name__ == "__main__":
    GOLDEN.write_text(defaults(), encoding="utf-8")
