"""Reads what a person expects of each hardware class of a fleet."""

from __future__ import annotations

import tomllib
from dataclasses import field
from pathlib import Path
from typing import Any

from envkit.errors import UsageError
from envkit.fleet.verdict import ClassContract
from envkit.records import dataclass
from envkit.system import files
from envkit.system.typed_toml import fit

_FIX = 'write `[[class]]`, `name = "h100"`, `hardware = "*H100*"`, and under `[class.values]` lines like `gpus = "8"`'


@dataclass(frozen=True, slots=True)
class _Class:
    """One table `[[class]]`."""

    name: str
    hardware: str
    values: dict[str, Any] = field(default_factory=dict)


def load(path: Path) -> tuple[ClassContract, ...]:
    """The classes in ``path``, in its order; the first whose pattern fits a node counts.

    Raises UsageError for a file that cannot be read or says something that means nothing here.
    """
    try:
        data = tomllib.loads(files.text(path, _FIX))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}", _FIX) from error
    tables = data.pop("class", None)
    if data or not isinstance(tables, list) or not tables:
        said = f"has the key `{next(iter(data))}`" if data else "has no `[[class]]`"
        raise UsageError(f"{path} {said}", _FIX)
    made = [fit(table, _Class, f"{path}, class {number}") for number, table in enumerate(tables, 1)]
    names = [one.name for one in made]
    if len(set(names)) < len(names):
        raise UsageError(f"{path} has two classes of one name", "give each class a name of its own")
    return tuple(ClassContract(one.name, one.hardware, _values(one, path)) for one in made)


def _values(one: _Class, path: Path) -> dict[str, str]:
    """What a property must be, as text; a whole number may stand without quotes."""
    for key, value in one.values.items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise UsageError(f"`{key}` of the class {one.name} in {path} is neither text nor a whole number", _FIX)
    return {key: str(value) for key, value in one.values.items()}
