"""Finds what the payload answered in all that a run printed, and reads it strictly.

The payload prints two lines of JSON that repeat the run's nonce: one before anything else, with the Python and the C
library it met, and at its end the document, with the payload's own sha256.  Whatever else is on stdout is the image's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from envkit.records import dataclass

_DIGITS = 20  # of the largest number that 64 bits hold
_DEPTH = 64  # of lists and mappings in one another; the deepest document of the payload has nine


@dataclass(frozen=True, slots=True)
class Answer:
    """What one run answered.

    ``began`` is what the payload's first line says, None if it never came.  ``document`` is None where there is none to
    trust, and ``missing`` then says why, as the end of a sentence ("printed no result").  ``forged`` is whether
    something that could be taken for an answer was printed by somebody else.
    """

    began: Mapping[str, str] | None
    document: Mapping[str, Any] | None
    missing: str = ""
    forged: bool = False


def _whole(text: str) -> int:
    if len(text) > _DIGITS + 1:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number that is not finite")
    return value


def _never(text: str) -> float:
    raise ValueError(f"{text}, which is not a JSON number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a duplicate key in a mapping")
    return found


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def parse(text: str) -> Any:
    """The JSON value ``text``; ValueError for what is none, and for what no honest payload writes.

    That is a key that comes twice, a number that is not finite or beyond 64 bits, and nesting too deep.
    """
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_int=_whole, parse_float=_finite, parse_constant=_never)
    except RecursionError:
        raise ValueError("nesting too deep to read") from None
    if _is_deep(value):
        raise ValueError(f"nesting more than {_DEPTH} deep")
    return value


def find(stdout: str, seal: Mapping[str, str]) -> Answer:
    """The answer to the run that ``seal`` ("nonce", "payload_sha256") was made for; raises nothing.

    Exactly one document may bear the seal.  An image that forges on purpose can read the nonce and print a document in
    the payload's place; one printed beside the payload's own is noticed, and then neither counts.
    """
    began: Mapping[str, str] | None = None
    sealed: list[Mapping[str, Any]] = []
    unread = ""
    # Not every line with the nonce: the image may log the words that it was called with.
    for found in re.finditer(rf'^\{{[^\n]*"nonce": ?"{re.escape(seal["nonce"])}"[^\n]*', stdout, re.M):
        try:
            value = parse(found[0].strip())
        except ValueError as error:
            unread = unread or str(error)
            continue
        if not isinstance(value, dict) or value.get("nonce") != seal["nonce"]:
            continue  # some mapping within another
        if isinstance(value.get("began"), dict):
            began = began or {str(key): str(one) for key, one in value["began"].items()}
        else:
            sealed.append(value)
    if len(sealed) > 1:
        return Answer(began, None, f"printed {len(sealed)} results for one run", forged=True)
    if sealed:
        wrong = [key for key, value in seal.items() if sealed[0].get(key) != value]
        if wrong or unread:
            whose = f"printed a result with the wrong {' and '.join(wrong)}"
            why = whose if wrong else f"printed two results, one of which cannot be read: {unread}"
            return Answer(began, None, why, forged=True)
        return Answer(began, sealed[0])
    if unread:
        return Answer(began, None, f"printed a result that cannot be read: {unread}", forged=True)
    return _stranger(began, stdout, seal)


def _stranger(began: Mapping[str, str] | None, stdout: str, seal: Mapping[str, str]) -> Answer:
    """The answer where nothing bears the nonce; a document as the last line is told for what it is."""
    last = stdout.rstrip().rpartition("\n")[2].strip()
    try:
        value = parse(last) if last.startswith("{") else None
    except ValueError:
        value = None
    if not isinstance(value, dict) or "began" in value:
        return Answer(began, None, "printed no result")
    wrong = [key for key, one in seal.items() if value.get(key) != one]
    return Answer(began, None, f"printed a result with the wrong {' and '.join(wrong)}", forged=True)
