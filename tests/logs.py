"""Made-up logs through the whole chain, for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence

from envkit import facts
from envkit.logs.reader import Input, read
from envkit.logs.records import Explanation, Reading
from envkit.logs.story import Story, tell
from envkit.logs.verdict import explain


def reading(*texts: str | bytes, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Reading:
    """What the reader makes of ``texts``, called ``names`` or log0, log1, ...; those of the indices ``kernel`` are
    the kernel's."""
    inputs = []
    for index, text in enumerate(texts):
        name = names[index] if index < len(names) else f"log{index}"
        raw = text if isinstance(text, bytes) else text.encode()
        inputs.append(Input(name, io.BytesIO(raw), kernel=index in kernel))
    return read(inputs)


def story(*texts: str | bytes, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Story:
    """The story of ``texts``."""
    return tell([reading(*texts, names=names, kernel=kernel)])


def told(*texts: str | bytes, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Explanation:
    """The explanation of ``texts``."""
    return explain(story(*texts, names=names, kernel=kernel), facts.load())
