"""Plain values as YAML that every reader takes alike, of YAML 1.1 and 1.2.

Each text is double-quoted, with everything escaped that a reader might fold, refuse or take for something else, so that
no text becomes a number, a boolean or a key.  A text of several plain lines (a program) is a literal block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{2,}")  # long enough to be none of YAML's words for a boolean
_WORDS = frozenset(("yes", "off", "true", "false", "null"))
# Of a double-quoted text: what YAML does not print or folds (its chapter 5), and what is no character.
_ESCAPED = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_BLOCK = re.compile(r"[!-~](?:[ -~]*[!-~])?\n(?:(?:[ -~]*[!-~])?\n)*[ -~]*[!-~]\n")


def quoted(text: str) -> str:
    """``text`` in double quotes; what JSON escapes YAML does too."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def text(value: Mapping[str, Any]) -> str:
    """``value``, of mappings, lists, texts, whole numbers, booleans and None, as one document."""
    return "".join(f"{line}\n" for line in _lines(value, ""))


def _lines(value: Any, pad: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS
            yield from _entry(f"{pad}{key if plain else quoted(key)}:", item, pad)
    else:
        for item in value:
            if isinstance(item, (Mapping, list, tuple)) and item:
                first, *rest = _lines(item, pad + "  ")
                yield f"{pad}- {first.removeprefix(pad + '  ')}"
                yield from rest
            else:
                yield from _entry(f"{pad}-", item, pad)


def _entry(head: str, item: Any, pad: str) -> Iterator[str]:
    """A line that begins with ``head`` and holds ``item``, or the lines below it that do."""
    if isinstance(item, str) and _BLOCK.fullmatch(item):
        yield f"{head} |"
        yield from (f"{pad}  {line}" if line else "" for line in item.removesuffix("\n").split("\n"))
    elif isinstance(item, (Mapping, Sequence)) and not isinstance(item, str) and item:
        yield head
        yield from _lines(item, pad + "  ")
    else:
        yield f"{head} {_scalar(item)}"


def _scalar(item: Any) -> str:
    if isinstance(item, str):
        return quoted(item)
    return json.dumps(item)  # a number, true, false, null, {} and []
