"""Made-up logs through the whole chain, for tests.

What is read out of each log that a test makes up, and how it is explained, stands in ``golden/logs.jsonl``; a log that
has a line there must give it again, whatever else its test asks. Run this file to rewrite them.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from canonical import digest

from envkit import facts
from envkit.logs.reader import Input, read
from envkit.logs.records import Explanation, Mark, Reading
from envkit.logs.story import Story, tell
from envkit.logs.verdict import explain

GOLDEN = Path(__file__).parent / "golden" / "logs.jsonl"
TEXT = str | bytes
_LARGEST = 100_000  # of a log that is stored; the tests of floods ask what matters
_GZIP = b"\x1f\x8b"  # holds the time at which it was packed


def reading(*texts: TEXT, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Reading:
    """What the reader makes of ``texts``, called ``names`` or log0, log1, ...; those of the indices ``kernel`` are
    the kernel's."""
    inputs = []
    for index, text in enumerate(texts):
        name = names[index] if index < len(names) else f"log{index}"
        raw = text if isinstance(text, bytes) else text.encode()
        inputs.append(Input(name, io.BytesIO(raw), kernel=index in kernel))
    found = read(inputs)
    _compare("read", texts, names, kernel, digest(found))
    return found


def story(*texts: TEXT, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Story:
    """The story of ``texts``."""
    return tell([reading(*texts, names=names, kernel=kernel)])


def told(*texts: TEXT, names: Sequence[str] = (), kernel: Sequence[int] = ()) -> Explanation:
    """The explanation of ``texts``."""
    found = explain(story(*texts, names=names, kernel=kernel), facts.load())
    _compare("explained", texts, names, kernel, in_words(found))
    return found


def in_words(found: Explanation) -> dict[str, Any]:
    """What an explanation says; of the lines it quotes the places."""
    other = found.runner_up
    said = {
        "cause": f"{found.category} {found.cause} {found.confidence}",
        "because": found.because,
        "evidence": [_mark(mark) for mark in found.evidence],
        "timeline": [_mark(mark) for mark in found.timeline],
        "or else": f"{other.category} {other.cause} {other.strength.name}: {other.because}" if other else "",
        "decide by": found.decide_by,
        "all": digest(found),
    }
    return {name: value for name, value in said.items() if value}


def _mark(mark: Mark) -> str:
    return f"{mark.role.value} {mark.line.place}: {mark.what}"


# How a log gave it, by what was asked and by the log; filled where this file is run, else what is stored.
gave: dict[str, Any] | None = None


@cache
def _stored() -> dict[str, Any]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return {key: value for line in lines for key, value in json.loads(line).items()}


def _compare(
    what: str, texts: Sequence[TEXT], names: Sequence[str], kernel: Sequence[int], now: dict[str, Any] | str
) -> None:
    log = repr((texts, tuple(names), tuple(kernel))).encode()
    if len(log) > _LARGEST or any(isinstance(text, bytes) and text.startswith(_GZIP) for text in texts):
        return
    key = f"{what} {hashlib.sha256(log).hexdigest()[:12]}"
    if gave is not None:
        gave[key] = now
    else:
        was = _stored().get(key, now)
        assert now == was, "python tests/logs.py writes what the logs of the tests give now"


class _Recorder:
    """A plugin of pytest that leaves out what hypothesis draws."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not getattr(getattr(item, "obj", None), "is_hypothesis_test", False)]


def _rewrite() -> int:
    import logs  # the module that the tests import, and not this one, which is run

    logs.gave = {}
    files = sorted(path for path in Path(__file__).parent.glob("test_*.py") if "from logs import" in path.read_text())
    code = int(pytest.main(["-q", "-m", "not engine and not slow", *map(str, files)], plugins=[_Recorder()]))
    if code == 0:
        lines = [json.dumps({key: value}, ensure_ascii=False) for key, value in sorted(logs.gave.items())]
        GOLDEN.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(_rewrite())
