"""Subjects to JSON and back, by their types; versions travel as text."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from envkit.errors import UsageError
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


def to_plain(subject: object) -> Any:
    """The subject as dicts, lists, text and numbers."""
    return msgspec.to_builtins(subject, enc_hook=_encode)


def from_plain(kind: type[T], data: object) -> T:
    """The subject of type ``kind`` out of plain data; raises UsageError naming the first field that does not fit."""
    try:
        return msgspec.convert(data, kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
        raise UsageError(
            f"this is not a recorded {words}: {error}", "record it anew with --save of this version"
        ) from error
