"""The tables of a TOML file that a person writes, as values of declared types.

The types are structs or dataclasses; msgspec says what does not fit, and here that becomes one sentence with the file,
the key, what it has to be and what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import inspect

from envkit.errors import UsageError, nearest, one_line
from envkit.patterns import pattern

Made = TypeVar("Made")

# The types of TOML and of JSON as msgspec names them, as a person would, with how one is written.
_WORDS = {
    "str": ("text", '"..."'),
    "int": ("a whole number", "8"),
    "float": ("a number", "8"),
    "bool": ("true or false", "true"),
    "array": ("a list of texts", '["...", "..."]'),
    "object": ("a table", "{ key = ... }"),
    **dict.fromkeys(("datetime", "date", "time"), ("a date", "")),
}
_MISFIT = pattern(r"Expected `([a-z]+)(?: \| [a-z]+)*`, got `([a-z]+)`(?: - at `\$\.?(.*)`)?")
_MISSING = pattern(r"Object missing required field `(.+?)`.*")
_ITEM = pattern(r"\[([0-9]+)\]")
_LONGEST = 10**18  # Python prints no number of many thousand digits


def fit(table: object, kind: type[Made], where: str) -> Made:
    """The value of type ``kind`` that ``table`` says; ``where`` names the file, and its table, in messages.

    Raises UsageError for a key that ``kind`` does not have, at any depth, for one that it lacks, and for a value of
    another type: a misspelt line is refused, for it would else say nothing.
    """
    _refuse_unknown(table, inspect.type_info(kind), where, "")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _refusal(table, str(error), where) from error


def _refuse_unknown(table: object, kind: inspect.Type, where: str, above: str) -> None:
    if not isinstance(kind, (inspect.StructType, inspect.DataclassType)) or not isinstance(table, Mapping):
        return
    inner = {field.encode_name: field.type for field in kind.fields}
    for key, value in table.items():
        if key not in inner:
            near = nearest(key, list(inner))
            raise UsageError(f"{where}: unknown key `{above}{one_line(key)}`{near}", f"known: {', '.join(inner)}")
        _refuse_unknown(value, inner[key], where, f"{above}{key}.")


def _refusal(table: object, said: str, where: str) -> UsageError:
    """The sentence for what msgspec said of ``table``."""
    if missing := _MISSING.fullmatch(said):
        return UsageError(f"{where} has no `{missing[1]}`", f'add a line `{missing[1]} = "..."`')
    found = _MISFIT.fullmatch(said)
    if found is None:
        return UsageError(f"{where}: {one_line(said)}", "change what the message names")
    (expected, write), path = _WORDS[found[1]], found[3] or ""
    if path.endswith("[...]"):  # a value of a table whose keys are anybody's
        held, key = _WORDS[found[2]][0], path.removesuffix("[...]")
        said = f"{where}: `{key}` holds {held}, and each value of it must be {expected}"
        return UsageError(said, f"write {key}.NAME = {write}")
    is_number = found[2] in ("int", "float")
    number = _number(table, path) if is_number else ""
    got, key = number or _WORDS[found[2]][0], _ITEM.sub("", path)
    if not key:
        return UsageError(f"{where} must be {expected}, not {got}", f"write {expected}")
    name = key.rpartition(".")[2]
    if key != path:
        return UsageError(f"{where}: `{key}` must be a list of texts, and holds {got}", f"write {name} = [{write}]")
    if found[1] == "str" and is_number:
        number = number or "..."
        return UsageError(f"{where}: `{key}` is the number {number}; it must be text", f'write {name} = "{number}"')
    return UsageError(f"{where}: `{key}` must be {expected}, not {got}", f"write {name} = {write}")


def _number(table: object, path: str) -> str:
    """The number at ``path`` ("key.key[0]") as it was written; "" for one too long to be shown."""
    value: object = table
    for part in _ITEM.sub(r".\1", path).split("."):
        if isinstance(value, Mapping):
            value = value[part]
        elif isinstance(value, list):
            value = value[int(part)]
    whole = isinstance(value, int) and abs(value) >= _LONGEST
    return "" if whole else str(value)
