"""One short word for all that a value holds, the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


def digest(value: object) -> str:
    """The beginning of the SHA-256 of the value's parts, down to texts and numbers; of a set the order is no part."""
    return hashlib.sha256(_plain(value).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _plain(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if is_dataclass(value):
        parts = (f"{each.name}={_plain(getattr(value, each.name))}" for each in fields(value))
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_plain(key)}: {_plain(held)}' for key, held in value.items()))}}}"
    if isinstance(value, AbstractSet):
        return f"{{{', '.join(sorted(map(_plain, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return repr(value)
