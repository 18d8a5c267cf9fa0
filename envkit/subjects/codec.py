"""Subjects to JSON and back, by their types; versions travel as text.

An observation has the keys ``value``, ``via`` and ``missing``, and ``reason`` only where it has one.  Documents of
before there were reasons said them in ``missing``: here those sentences become reasons, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from envkit.errors import UsageError
from envkit.model import Observed, Reason, is_observation
from envkit.subjects.imported import ImportEnd
from envkit.versions import Cuda, Cudnn, Driver, Glibc, Nccl, Python, Sm, Torch

T = TypeVar("T")

_VERSIONS: tuple[type, ...] = (Cuda, Cudnn, Driver, Glibc, Nccl, Python, Torch)


def _encode(value: object) -> str:
    if isinstance(value, (*_VERSIONS, Sm, ImportEnd)):
        return str(value)
    raise NotImplementedError(f"a subject holds a {type(value).__name__}, which has no JSON form")


def _decode(kind: type, value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"expected text for a {kind.__name__}")
    return Sm.parse(value) if kind is Sm else kind(value)


# The sentences that documents without reasons hold; they stay as they are whatever envkit says today.
_SENTENCES = {
    "not supported": Reason.UNSUPPORTED,
    "there is no torch here": Reason.NO_TORCH,
    "the tree holds no C library: its programs run on that of another system": Reason.NO_LIBC,
    "the image carries no promise of what it holds": Reason.NO_PROMISE,
    "torch was not imported": Reason.NOT_IMPORTED,
}
_BEGINNINGS = (
    (re.compile(r"unfit\b"), Reason.NO_TORCH),
    (re.compile(r"the reader of .+? (hung: |was killed by )"), Reason.READER_DIED),
)
_REASONS = frozenset(Reason)


def _reason(missing: object) -> Reason | None:
    if not isinstance(missing, str) or not missing:
        return None
    begun = (reason for words, reason in _BEGINNINGS if words.match(missing))
    return _SENTENCES.get(missing) or next(begun, None)


def _reasoned(plain: Any) -> Any:
    """The data, where an observation's reason is a word of this version, or none at all.

    A reason that only a newer version knows is dropped, so that the value is missing and no more.
    """
    if isinstance(plain, Mapping):
        made = {key: _reasoned(item) if isinstance(item, _NESTED) else item for key, item in plain.items()}
        if is_observation(made):
            given = made.pop("reason", None)
            reason = _reason(made["missing"]) if given is None else given
            if made["missing"] and isinstance(reason, str) and reason in _REASONS:
                made["reason"] = reason
        return made
    if isinstance(plain, (list, tuple)):
        return [_reasoned(item) if isinstance(item, _NESTED) else item for item in plain]
    return plain


_NESTED = (Mapping, list, tuple)
_OBSERVED = {"value", "via", "missing", "reason"}


def _without_empty(plain: Any) -> Any:
    if isinstance(plain, dict):
        if "reason" in plain and plain["reason"] is None and is_observation(plain):
            del plain["reason"]
        if not plain.get("newer_fields", True):
            del plain["newer_fields"]
        for item in plain.values():
            _without_empty(item)
    elif isinstance(plain, (list, tuple)):
        for item in plain:
            _without_empty(item)
    return plain


def to_plain(subject: object) -> Any:
    """The subject as dicts, lists, text and numbers."""
    return _without_empty(msgspec.to_builtins(subject, enc_hook=_encode))


class _Unfit(Exception):
    """A word or a number that is none of those which its field may hold, and what that means for the observation."""

    def __init__(self, said: object, reason: Reason) -> None:
        shown = repr(said)[:_SHOWN]
        means = "this version does not know" if reason is Reason.NEWER else "cannot be"
        super().__init__(f"it says {shown}, which {means}")
        self.reason = reason


_SHOWN = 60  # characters of a value that cannot be


@cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _fits(kind: Any, plain: object) -> bool:
    try:
        msgspec.convert(plain, kind)
    except msgspec.ValidationError:
        return False
    return True


def _known(kind: Any, plain: Any) -> Any:
    """The data of a ``kind``, where the innermost observation that holds what its field cannot is a missing one.

    Raises _Unfit where no observation holds it.  What does not fit for another reason stays as it is.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        if isinstance(plain, type(parts[0])) and plain not in parts:
            raise _Unfit(plain, Reason.NEWER if isinstance(plain, str) else Reason.NONSENSE)
        return plain
    if origin is Annotated:
        if not _fits(kind, plain) and _fits(parts[0], plain):
            raise _Unfit(plain, Reason.NONSENSE)
        return plain
    if kind is ImportEnd and isinstance(plain, str):
        try:
            return ImportEnd(plain)
        except ValueError:
            raise _Unfit(plain, Reason.NEWER) from None
    if origin is Observed and is_observation(plain):
        if plain["value"] is None:
            return plain
        try:
            return {**plain, "value": _known(parts[0], plain["value"])}
        except _Unfit as unfit:
            return to_plain(Observed.lost(str(unfit), plain["via"], unfit.reason))
    if origin in (Union, UnionType):
        inner = [part for part in parts if part is not NoneType]
        return plain if plain is None or len(inner) != 1 else _known(inner[0], plain)
    if origin is tuple and isinstance(plain, (list, tuple)):
        return [_known(parts[0], item) for item in plain]
    if origin is Mapping and isinstance(plain, Mapping):
        return {key: _known(parts[1], item) for key, item in plain.items()}
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(plain, Mapping):
        hints = _hints(kind)
        return {key: _known(hints[key], item) if key in hints else item for key, item in plain.items()}
    return plain


def unknown_fields(kind: Any, plain: Any, at: str = "") -> Iterator[str]:
    """The fields in the data of a ``kind`` that this version does not know, with what holds them ("nvml.gpus[].x")."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Observed and isinstance(plain, Mapping):
        yield from (f"{at}.{key}" for key in plain if key not in _OBSERVED)
        yield from unknown_fields(parts[0], plain.get("value"), at)
    elif origin in (Union, UnionType):
        for part in parts:
            if is_dataclass(part):
                yield from unknown_fields(part, plain, at)
    elif origin is tuple and isinstance(plain, (list, tuple)):
        for item in plain:
            yield from unknown_fields(parts[0], item, f"{at}[]")
    elif origin is Mapping and isinstance(plain, Mapping):
        for item in plain.values():
            yield from unknown_fields(parts[1], item, f"{at}[]")
    elif is_dataclass(kind) and isinstance(kind, type) and isinstance(plain, Mapping):
        hints = _hints(kind)
        for key, item in plain.items():
            inner = f"{at}.{key}" if at else str(key)
            if key in hints:
                yield from unknown_fields(hints[key], item, inner)
            else:
                yield inner


def converted(kind: type[T], data: object) -> T:
    """The subject of type ``kind`` out of plain data; raises ValueError naming the first field that does not fit.

    A word that a newer version may know makes the observation that holds it a missing one, as does what cannot be.
    """
    plain = _reasoned(data)
    try:
        return msgspec.convert(plain, kind, dec_hook=_decode)
    except msgspec.ValidationError:
        with suppress(_Unfit):  # the field itself is then named by the error
            plain = _known(kind, plain)
        return msgspec.convert(plain, kind, dec_hook=_decode)


def from_plain(kind: type[T], data: object) -> T:
    """The subject of type ``kind`` out of what was recorded; raises UsageError naming the first wrong field."""
    try:
        return converted(kind, data)
    except msgspec.ValidationError as error:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
        raise UsageError(
            f"this is not a recorded {words}: {error}", "record it again with --save of this version"
        ) from error


def recorded(kind: type[T], data: object) -> T:
    """The subject of type ``kind`` out of a saved document, with the fields that only a newer version knows.

    Raises UsageError as ``from_plain`` does.
    """
    made: Any = from_plain(kind, data)
    newer = tuple(dict.fromkeys([*made.newer_fields, *unknown_fields(kind, data)]))
    found: T = replace(made, newer_fields=newer) if newer else made
    return found
