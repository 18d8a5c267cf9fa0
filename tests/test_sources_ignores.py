"""`# envkit ignore=`: for which lines a comment holds, and what is left of a result."""

from __future__ import annotations

import pytest

from envkit.model import Finding, Outcome, Result, Severity, Span
from envkit.static.ignores import Ignored, applied, read, unknown, weighed

NONE: tuple[Ignored, ...] = ()
TEXT = """\
FROM ubuntu
# envkit ignore=curl-pipe-sh, unpinned-torch
# why: the vendor has no other way

RUN curl -fsS https://example.com/i.sh | sh \\
    && pip install torch
RUN pip install torch \\
    # envkit ignore=unpinned-torch
    && pip install torch \\
    && pip install torch
RUN pip install torch # envkit ignore=unpinned-torch
"""


def at(*lines: int, check: str = "unpinned-torch", path: str = "Dockerfile") -> Result:
    return Result(check, Outcome.FAIL, tuple(Finding(f"{n}", span=Span(path, n)) for n in lines))


def left(result: Result, text: str = TEXT, kind: str = "dockerfile") -> list[str]:
    (found,) = applied((result,), "Dockerfile", read(text, kind), lambda path: NONE)
    return [finding.message for finding in found.findings]


def test_a_comment_of_its_own_holds_for_the_whole_statement_below() -> None:
    assert left(at(5, 6, 7)) == ["7"]
    assert left(at(5, 6, check="curl-pipe-sh")) == []


def test_a_comment_inside_a_statement_holds_for_the_line_below() -> None:
    assert left(at(7, 8, 9, 10)) == ["7", "10"]


def test_a_comment_behind_code_holds_for_its_line() -> None:
    assert left(at(10, 11)) == ["10"]


def test_other_checks_are_not_meant() -> None:
    assert left(at(5, 11, check="apt-lists-left")) == ["5", "11"]


def test_what_is_accepted_says_by_which_line() -> None:
    (found,) = applied((at(11),), "Dockerfile", read(TEXT, "dockerfile"), lambda path: NONE)
    assert (found.outcome, found.reason) == (Outcome.SKIP, "ignored by line 11")


def test_a_file_comment_holds_for_the_file_and_for_doubt() -> None:
    ignored = read("FROM a\n# envkit ignore-file=unpinned-base\n", "dockerfile")
    doubt = Result("unpinned-base", Outcome.UNKNOWN, reason="who knows")
    crashed = Result("unpinned-base", Outcome.CRASHED, reason="a fault of envkit")
    passed = Result("unpinned-base", Outcome.PASS)
    found = applied((at(1, check="unpinned-base"), doubt, crashed, passed), "Dockerfile", ignored, lambda path: NONE)
    assert [each.outcome for each in found] == [Outcome.SKIP, Outcome.SKIP, Outcome.CRASHED, Outcome.PASS]


def test_a_line_comment_takes_no_doubt_away() -> None:
    doubt = Result("unpinned-torch", Outcome.UNKNOWN, reason="who knows")
    assert applied((doubt,), "Dockerfile", read(TEXT, "dockerfile"), lambda path: NONE) == (doubt,)


def test_a_finding_in_another_file_is_for_the_comments_there() -> None:
    result = at(11, path="requirements.txt")
    assert left(result) == ["11"], "line 11 of the Dockerfile says nothing of line 11 of another file"
    there = read("torch\n" * 10 + "torch  # envkit ignore=unpinned-torch\n", "requirements")
    (found,) = applied((result,), "Dockerfile", NONE, {"requirements.txt": there}.__getitem__)
    assert (found.outcome, found.reason) == (Outcome.SKIP, "ignored by line 11 of requirements.txt")


def test_a_finding_without_a_place_needs_a_file_comment() -> None:
    result = Result("unpinned-torch", Outcome.FAIL, (Finding("x"),))
    assert left(result) == ["x"]
    assert left(result, "# envkit ignore-file=unpinned-torch\nFROM a\n") == []


@pytest.mark.parametrize("text", ["#envkit ignore=a-b", "  #  ENVKIT  IGNORE = A-B , c", "x # envkit ignore=a-b: why"])
def test_spellings(text: str) -> None:
    assert "a-b" in read(text + "\n", "requirements")[0].checks


@pytest.mark.parametrize("text", ["# envkit ignore", "# envkit ignore=", "# ignore=a-b", "envkit ignore=a-b"])
def test_what_is_no_such_comment(text: str) -> None:
    assert read(text + "\n", "requirements") == ()


def test_a_comment_at_the_end_covers_itself_alone() -> None:
    assert read("FROM a\n# envkit ignore=a-b", "dockerfile") == (Ignored(frozenset({"a-b"}), 2, 2),)


def test_a_check_that_does_not_exist_is_named_with_its_line() -> None:
    ignored = read("FROM a\nRUN x # envkit ignore=nosuch,unpinned-base\n", "dockerfile")
    assert list(unknown(ignored, frozenset({"unpinned-base"}))) == [(2, "nosuch")]


def test_severities_are_those_of_the_settings() -> None:
    results = (at(1), at(2, check="curl-pipe-sh"), Result("apt-lists-left", Outcome.PASS))
    found = weighed(results, {"unpinned-torch": Severity.NOTE, "curl-pipe-sh": None}, "envkit.toml")
    assert found[0].findings[0].severity is Severity.NOTE
    assert (found[1].outcome, found[1].reason) == (Outcome.SKIP, "turned off in envkit.toml")
    assert found[2] is results[2]
    assert weighed(results[::-1], {"unpinned-torch": Severity.NOTE, "curl-pipe-sh": None}, "envkit.toml") == found[::-1]
    assert weighed(results, {}, "") is results
