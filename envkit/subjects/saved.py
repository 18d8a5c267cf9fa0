"""Reads back what --save wrote, from any machine and from anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from envkit.credentials import redacted_plain
from envkit.errors import UsageError
from envkit.subjects import KINDS, codec
from envkit.system import files

T = TypeVar("T")

SCHEMA = "envkit.subject/1"
MOST_BYTES = 64 << 20  # the longest one, a probe of a large image, has 2 MB
_MOST_DEPTH = 100  # of a document; a subject has ten levels, and a parser of Python's ends near a thousand


def document(path: str | Path) -> tuple[str, Any]:
    """The kind and the plain subject in a file.  Raises UsageError where it is none that --save wrote."""
    try:
        found = json.loads(files.text(path, "name a file that --save wrote", MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}", "name a file that --save wrote") from error
    name = found.get("kind") if isinstance(found, dict) else None
    if not isinstance(name, str) or name not in KINDS or found.get("schema") != SCHEMA:
        raise UsageError(f"{path} is no saved observation", "name a file that --save wrote")
    if _deeper(found, _MOST_DEPTH):
        raise UsageError(f"{path} is nested deeper than any observation", "name a file that --save wrote")
    return name, found.get("subject")


def _deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def kind(path: str | Path) -> str:
    """What kind of subject a file holds; raises UsageError as ``document`` does."""
    return document(path)[0]


def of_kind(path: str | Path, wanted: type[T]) -> T:
    """The subject of type ``wanted`` in a file; raises UsageError for another one."""
    name, plain = document(path)
    if KINDS[name] is not wanted:
        raise UsageError(f"{path} holds a saved {name}, not a {wanted.__name__.lower()}", "name another file")
    return codec.recorded(wanted, plain)


def text(name: str, subject: object) -> str:
    """A subject as the text of a file, what looks like a credential hidden as reports hide it."""
    found = {"schema": SCHEMA, "kind": name, "subject": redacted_plain(subject)}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"
