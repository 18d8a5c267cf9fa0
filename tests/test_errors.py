"""What an error carries to its reader: its sentence, its fix, its exit code, and nothing that a terminal obeys."""

from __future__ import annotations

import pytest

from envkit.errors import (
    FAULT,
    READER_GONE,
    EnvkitError,
    Interrupted,
    Undecided,
    Unsatisfiable,
    UsageError,
    nearest,
    one_line,
)


def test_the_exit_codes_are_those_that_the_pages_promise() -> None:
    assert (UsageError.code, Unsatisfiable.code, Undecided.code, EnvkitError.code) == (2, 2, 3, 3)
    assert (FAULT, READER_GONE, Interrupted.code) == (70, 141, 130)
    assert not issubclass(Interrupted, Exception)  # or what handles errors would swallow it


@pytest.mark.parametrize("kind", [UsageError, Undecided])
def test_an_error_is_its_sentence_with_the_fix_apart(kind: type[EnvkitError]) -> None:
    error = kind("it is not there", "make it")
    assert (str(error), error.message, error.fix) == ("it is not there", "it is not there", "make it")
    assert kind("it is not there").fix == ""


def test_what_cannot_be_met_says_why_and_what_comes_closest() -> None:
    error = Unsatisfiable("no torch fits", ("a row",), ("another torch",), "take it")
    assert (str(error), error.chain, error.nearest, error.fix) == (
        "no torch fits",
        ("a row",),
        ("another torch",),
        "take it",
    )
    assert Unsatisfiable("no torch fits", (), ()).fix == ""


def test_the_closest_word_alone_is_offered() -> None:
    assert nearest("devl", ["runtime", "develop", "devel"]) == "; did you mean `devel`?"
    assert nearest("xyz", ["runtime", "devel"]) == nearest("devel", []) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with an ä", "plain, with an ä"),
        ("two\nlines\t\x1b[2J", "two\\nlines\\t\\x1b[2J"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200 + "..."),
        ("\n" * 101, "\\n" * 100 + "..."),
    ],
)
def test_a_value_is_shown_on_one_line_of_a_message(text: str, shown: str) -> None:
    assert one_line(text) == shown
