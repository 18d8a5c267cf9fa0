"""What the code answered to the questions of tests, in full: a digest each, in ``data/answers/``.

A test asserts what matters to it. Where its helper calls ``same``, all else in the answer must be as it was too; a
question that has no line there is a new one. Run this file, with test files or without, to write what they get now.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from envkit import facts as tables
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Result

T = TypeVar("T")
TESTS = Path(__file__).parent
GOLDEN = TESTS / "data" / "answers"
WRITES = "python tests/answers.py writes what the tests get now"
# By the name of a file in GOLDEN: what was answered, by question. Filled where this file is run.
given: dict[str, dict[str, str]] | None = None


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
    own = type(value).__repr__ is object.__repr__  # which names an address
    return f"{type(value).__name__}({_plain(vars(value))})" if own else repr(value)


def same(name: str, asked: object, answer: T) -> T:
    """The answer, which must hold all that it held when ``name`` was written."""
    question, now = digest(asked), digest(answer)
    if given is not None:
        given.setdefault(name, {})[question] = now
    else:
        assert now == stored(name).get(question, now), f"{WRITES}: {_plain(answer)[:4_000]}"
    return answer


def judged(check: str, subject: object, facts: Facts | None = None) -> Result:
    """What one check says of a subject."""
    return judge.run(judge.checks()[check], subject, facts or tables.load())


@cache
def stored(name: str) -> dict[str, str]:
    """The answers of a file, by question."""
    path = GOLDEN / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(line.split(" ", 1) for line in lines)


class _Drawn:
    """A plugin of pytest that leaves out the tests whose questions hypothesis draws."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not getattr(getattr(item, "obj", None), "is_hypothesis_test", False)]


def rewrite(files: Sequence[str]) -> int:
    """Runs the tests and writes what they were answered; what only others ask is forgotten where all are run."""
    import answers  # the module that the tests import, and not this one, which is run

    answers.given = {}
    marks = ("import answers", "from hosts import", "from logs import")
    every = [str(path) for path in sorted(TESTS.glob("test_*.py")) if any(mark in path.read_text() for mark in marks)]
    code = int(pytest.main(["-q", "-m", "not engine and not slow", *(files or every)], plugins=[_Drawn()]))
    if not files or any(Path(file).name == "test_pages.py" for file in files):
        import test_pages

        test_pages.rewrite()  # its own test is slow
    for name, found in answers.given.items() if code == 0 else ():
        kept = {**stored(name), **found} if files else found
        text = "".join(f"{question} {now}\n" for question, now in sorted(kept.items()))
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(rewrite(sys.argv[1:]))
