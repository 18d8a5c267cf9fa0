"""Findings beside their lines: what a person sees, and what a hostile file cannot make them see."""

from __future__ import annotations

from envkit.model import Finding, Outcome, Result, Severity, Span
from envkit.report.text import wrapped
from envkit.static import JudgedFile
from envkit.static.lines import render
from envkit.static.run import merged

TEXT = "FROM ubuntu\nRUN pip install torch && \\\n    echo done\n"


def finding(
    line: int, column: int, end: int, severity: Severity = Severity.WARNING, path: str = "Dockerfile"
) -> Finding:
    span = Span(path, line, column, line, end)
    return Finding("ubuntu has no tag", severity, f"{path}:{line}", {"latest": "implied"}, "write ubuntu:24.04", span)


def shown(*judged: JudgedFile, least: Severity = Severity.ERROR, color: bool = False, width: int = 100) -> str:
    return render(judged, merged(judged, 0.1), least, color, width)


def failed(*findings: Finding, text: str = TEXT, path: str = "Dockerfile", check: str = "unpinned-base") -> JudgedFile:
    return JudgedFile(path, "dockerfile", text, (Result(check, Outcome.FAIL, findings),))


def test_a_finding_is_shown_as_compilers_do() -> None:
    assert shown(failed(finding(1, 6, 12))) == (
        "warning[unpinned-base]: ubuntu has no tag\n"
        "  --> Dockerfile:1:6\n"
        "  |\n"
        "1 | FROM ubuntu\n"
        "  |      ^^^^^^\n"
        "  = because: latest: implied\n"
        "  = fix: write ubuntu:24.04\n"
        "\n"
        "PASS: 1 file: 1 warning\n"
    )


def test_a_place_at_the_beginning_of_its_line_is_marked_from_there() -> None:
    assert "1 | FROM ubuntu\n  | ^^^^\n" in shown(failed(finding(1, 1, 5)))


def test_the_verdict_goes_by_what_the_exit_code_goes_by() -> None:
    judged = failed(finding(1, 6, 12))
    for least, word in ((Severity.NOTE, "FAIL"), (Severity.WARNING, "FAIL"), (Severity.ERROR, "PASS")):
        assert shown(judged, least=least).splitlines()[-1] == f"{word}: 1 file: 1 warning"


def test_findings_come_in_the_order_of_their_lines() -> None:
    later, first = finding(2, 5, 8), finding(1, 6, 12, Severity.ERROR)
    lines = shown(failed(later, first)).splitlines()
    assert [line for line in lines if line.startswith("  -->")] == ["  --> Dockerfile:1:6", "  --> Dockerfile:2:5"]
    assert lines[-1] == "FAIL: 1 file: 1 error, 1 warning"


def test_a_place_over_several_lines_is_marked_to_the_end_of_its_first() -> None:
    place = Finding("x", span=Span("Dockerfile", 2, 5, 3, 14))
    assert "2 | RUN pip install torch && \\\n  |     ^^^^^^^^^^^^^^^^^^^^^^\n" in shown(failed(place))


def test_a_place_in_another_file_says_by_way_of_which() -> None:
    said = shown(failed(finding(7, 1, 6, path="requirements.txt")))
    assert "  --> requirements.txt:7:1, by way of Dockerfile\n" in said
    assert "FROM ubuntu" not in said


def test_a_finding_without_a_place_names_the_file() -> None:
    assert "error[unpinned-base]: x\n  --> Dockerfile\n" in shown(failed(Finding("x")))


def test_a_place_beyond_the_file_is_no_crash() -> None:
    assert "Dockerfile:99:1" in shown(failed(finding(99, 1, 5)))
    assert "1 | FROM ubuntu\n" in shown(failed(finding(1, 80, 90)))


def test_a_long_line_is_cut_around_what_is_marked() -> None:
    text = "RUN " + "a " * 500 + "TORCH " + "b " * 500
    column = text.index("TORCH") + 1
    lines = shown(failed(finding(1, column, column + 5), text=text)).splitlines()
    source, mark = lines[3], lines[4]
    assert len(source) < 200
    assert source[mark.index("^") : mark.rindex("^") + 1] == "TORCH"


def test_the_mark_stands_below_its_words_where_tabs_and_escapes_are() -> None:
    text = "\t\x1b[31mRUN\tpip\n"
    lines = shown(failed(finding(1, 11, 14), text=text)).splitlines()
    assert "\x1b" not in lines[3]
    assert lines[3][lines[4].index("^") : lines[4].rindex("^") + 1] == "pip"


def test_a_secret_in_the_line_is_hidden_and_the_line_still_marked() -> None:
    token = "ghp_" + "a1B2" * 9
    said = shown(failed(finding(1, 5, 20), text=f"ENV GITHUB_TOKEN={token}\n"))
    assert token not in said
    assert "1 | ENV GITHUB_TOKEN=[hidden]\n" in said
    assert "^" in said


def test_no_text_of_a_file_steers_the_terminal() -> None:
    hostile = Finding("says \x1b]0;owned\x07", evidence={"\x1b[2J": "\x9b1m"}, fix="\u202egnp", span=Span("D\x1b", 1))
    said = shown(failed(hostile, text="\x1b[1mFROM\n", path="D\x1b"))
    assert not set(said) & set("\x1b\x07\x9b\u202e")


def test_color_only_where_it_was_asked_for() -> None:
    judged = failed(finding(1, 6, 12))
    assert "\x1b[1;33mwarning[unpinned-base]\x1b[0m" in shown(judged, color=True)
    assert "\x1b" not in shown(judged)


def test_long_words_about_a_finding_are_wrapped_below_their_beginning() -> None:
    place = Finding("x", fix="word " * 40, span=Span("Dockerfile", 1))
    lines = [line for line in shown(failed(place), width=70).splitlines() if "word" in line]
    assert len(lines) > 2
    assert all(len(line) <= 70 for line in lines)
    assert {line.index("word") for line in lines} == {lines[0].index("word")}


def test_what_stayed_open_is_told_once_a_reason() -> None:
    results = tuple(Result(f"check-{n}", Outcome.UNKNOWN, reason="a.txt was not read") for n in range(5))
    judged = JudgedFile("Dockerfile", "dockerfile", TEXT, results)
    said = shown(judged)
    assert said.count("a.txt was not read") == 1
    assert "undecided[check-0, check-1, check-2 and 2 more]:\n    a.txt was not read\n  --> Dockerfile\n" in said
    assert said.endswith("UNDECIDED: 1 file: 5 undecided\n")


def test_many_reasons_are_counted() -> None:
    results = tuple(Result(f"check-{n}", Outcome.UNKNOWN, reason=f"why {n}") for n in range(5))
    said = shown(JudgedFile("Dockerfile", "dockerfile", TEXT, results))
    assert "2 more reasons left checks of Dockerfile open" in said
    assert "why 4" not in said


def test_nothing_found_nothing_judged_and_nothing_read_are_three_words() -> None:
    passed = JudgedFile("a", "dockerfile", TEXT, (Result("c", Outcome.PASS),))
    skipped = JudgedFile("b", "dockerfile", TEXT, (Result("c", Outcome.SKIP, reason="no torch"),))
    unread = JudgedFile("d", "dockerfile", unreadable="it is no text")
    assert shown(passed) == "PASS: 1 file: nothing found\n"
    assert shown(skipped) == "UNDECIDED: 1 file: no check applies\n"
    assert shown(unread) == "UNDECIDED: 1 file: 1 unreadable\n"
    assert shown(passed, skipped) == "PASS: 2 files: nothing found\n"
    assert shown(passed, unread) == "UNDECIDED: 2 files: 1 unreadable\n"


def test_no_line_begins_like_a_workflow_command() -> None:
    long = "a " * 60 + "::add-mask::x " + "b-" * 60 + "::stop-commands::x"
    bad = Finding(f"{long}\n::error::x", Severity.ERROR, "", {long: "::debug::x"}, f"{long}\n::error::y")
    undecided = Result("b-check", Outcome.UNKNOWN, reason=long)
    path = "x\n::error::z"
    for width in range(60, 140, 7):
        judged = JudgedFile(path, "dockerfile", TEXT, (Result("a-check", Outcome.FAIL, (bad,)), undecided))
        lines = shown(judged, width=width).splitlines()
        assert not [line for line in lines if line.lstrip().startswith("::")]


def test_a_word_longer_than_a_line_runs_over_it_unbroken() -> None:
    digest, words = "sha256:" + "0" * 64, "of the base image"
    assert wrapped(f"{words} {digest} {words}", 20, "  ", "    ") == [
        f"  {words}",
        f"    {digest}",
        "    of the base",
        "    image",
    ]
    assert wrapped("one-two-three", 5) == ["one-two-three"]
    assert wrapped("", 20, "  ") == [""]


def test_without_being_asked_for_no_color_is_used() -> None:
    judged = [failed(finding(1, 6, 12))]
    assert render(judged, merged(judged, 0.1), Severity.ERROR) == shown(*judged)


def test_the_same_of_other_lines_is_said_once_with_their_numbers() -> None:
    said = shown(failed(*(finding(line, 1, 4) for line in (3, 1, 2, 2))))
    assert (said.count("ubuntu has no tag"), said.count("  = also: lines 2, 3\n")) == (1, 1)
