"""Made-up logs through the whole chain, for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TypeVar

import answers

from envkit import facts
from envkit.logs.reader import Input, read
from envkit.logs.records import Explanation, Reading
from envkit.logs.story import Story, tell
from envkit.logs.verdict import explain

T = TypeVar("T")
TEXT = str | bytes
_LARGEST = 100_000  # of a log whose answer is stored: of a flood the tests ask what matters
_GZIP = b"\x1f\x8b"  # holds the time at which it was packed


def reading(*texts: TEXT, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Reading:
    """What the reader makes of ``texts``, called ``names`` or log0, log1, ...; those of the indices ``kernel`` are
    the kernel's."""
    inputs = []
    for index, text in enumerate(texts):
        name = names[index] if index < len(names) else f"log{index}"
        raw = text if isinstance(text, bytes) else text.encode()
        inputs.append(Input(name, io.BytesIO(raw), kernel=index in kernel))
    return _same("read", texts, names, kernel, read(inputs))


def story(*texts: TEXT, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Story:
    """The story of ``texts``."""
    return tell([reading(*texts, names=names, kernel=kernel)])


def told(*texts: TEXT, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Explanation:
    """The explanation of ``texts``."""
    found = explain(story(*texts, names=names, kernel=kernel), facts.load())
    return _same("explained", texts, names, kernel, found)


def _same(what: str, texts: Sequence[TEXT], names: Sequence[str], kernel: Sequence[int], answer: T) -> T:
    if sum(map(len, texts)) > _LARGEST or any(isinstance(text, bytes) and text[:2] == _GZIP for text in texts):
        return answer
    return answers.same("logs", (what, texts, names, kernel), answer)
