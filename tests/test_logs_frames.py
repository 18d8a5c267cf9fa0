"""What services, tests, builds and workflows print around a failure or in place of one.

The texts are ours, whole: ``data/frames.txt``; what GPU libraries and tools print, ``data/libraries.txt``; errors
after which a run goes on, each beside one that ends by the same error, ``data/healthy.txt``; and several causes of
which one weighs more, with twins, ``data/weighed.txt``. Each has a name, the kinds that are right, the causes and what
is to be quoted (each behind ``%%% ``), then the text.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gathered import gathered
from logs import told

_HEAD = re.compile(r"^%%% (.+)\n%%% (.+)\n%%% (.+)\n%%% (.*)\n", re.M)
_DATA = Path(__file__).parent / "data"
_TEXTS = "".join(
    (_DATA / name).read_text("utf-8") for name in ("frames.txt", "libraries.txt", "healthy.txt", "weighed.txt")
)


def cases() -> list[tuple[str, str, str, str, str]]:
    """Name, kinds, causes, what is quoted, and text of each case."""
    parts = _HEAD.split(_TEXTS)[1:]
    return [(parts[n], parts[n + 1], parts[n + 2], parts[n + 3], parts[n + 4]) for n in range(0, len(parts), 5)]


@gathered(cases())
def test_the_kind_the_cause_and_the_line_are_told(name: str, kinds: str, causes: str, quoted: str, text: str) -> None:
    answer = told(text)
    assert answer.category in kinds.split("|"), (answer.category, answer.because)
    assert answer.cause in causes.split("|"), (answer.cause, answer.because)
    lines = [mark.line.raw for mark in answer.evidence]
    assert not quoted or any(word in line for word in quoted.split("|") for line in lines), lines


@pytest.mark.parametrize("name", ["retry-inner-then-ok-chain", "compose-abort-good"])
def test_what_ends_well_is_not_sure_of_a_failure(name: str) -> None:
    text = next(each[4] for each in cases() if each[0] == name)
    assert told(text).cause == "unknown"
