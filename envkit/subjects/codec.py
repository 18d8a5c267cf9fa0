"""Subjects to JSON and back, by their types; versions travel as text.

An observation has the keys ``value``, ``via`` and ``missing``, and ``reason`` only where it has one.  Documents of
before there were reasons said them in ``missing``: here those sentences become reasons, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from envkit.errors import UsageError
from envkit.model import Reason, is_observation
from envkit.versions import Cuda, Cudnn, Driver, Glibc, Nccl, Python, Sm, Torch

T = TypeVar("T")

_VERSIONS: tuple[type, ...] = (Cuda, Cudnn, Driver, Glibc, Nccl, Python, Torch)


def _encode(value: object) -> str:
    if isinstance(value, (*_VERSIONS, Sm)):
        return str(value)
    raise NotImplementedError(f"a subject holds a {type(value).__name__}, which has no JSON form")


def _decode(kind: type, value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"expected text for a {kind.__name__} version")
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


def _without_empty_reasons(plain: Any) -> Any:
    if isinstance(plain, dict):
        if "reason" in plain and plain["reason"] is None and is_observation(plain):
            del plain["reason"]
        for item in plain.values():
            _without_empty_reasons(item)
    elif isinstance(plain, (list, tuple)):
        for item in plain:
            _without_empty_reasons(item)
    return plain


def to_plain(subject: object) -> Any:
    """The subject as dicts, lists, text and numbers."""
    return _without_empty_reasons(msgspec.to_builtins(subject, enc_hook=_encode))


def converted(kind: type[T], data: object) -> T:
    """The subject of type ``kind`` out of plain data; raises ValueError naming the first field that does not fit."""
    return msgspec.convert(_reasoned(data), kind, dec_hook=_decode)


def from_plain(kind: type[T], data: object) -> T:
    """The subject of type ``kind`` out of what was recorded; raises UsageError naming the first wrong field."""
    try:
        return converted(kind, data)
    except msgspec.ValidationError as error:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
        raise UsageError(
            f"this is not a recorded {words}: {error}", "record it anew with --save of this version"
        ) from error
