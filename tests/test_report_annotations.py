"""The forms of code hosts, held to their documented fields.

GitHub: "Workflow commands for GitHub Actions".  GitLab: "Code Quality", "Code Quality report format".
"""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from envkit.model import Finding, Outcome, Result, Severity, Span
from envkit.static import JudgedFile
from envkit.static.annotations import github, gitlab

COMMAND = re.compile(r"::(error|warning|notice) (\w+=[^,:]*(?:,\w+=[^,:]*)*)::(.*)")
UNESCAPED = {"%25": "%", "%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}


def judged(*findings: Finding, path: str = "docker/Dockerfile", check: str = "unpinned-base") -> JudgedFile:
    return JudgedFile(path, "dockerfile", "FROM ubuntu\n", (Result(check, Outcome.FAIL, findings),))


def at(message: str = "no tag", severity: Severity = Severity.WARNING, path: str = "docker/Dockerfile") -> Finding:
    return Finding(message, severity, fix="write a tag", span=Span(path, 1, 6, 1, 12))


def test_github_gets_a_command_a_finding() -> None:
    assert github([judged(at())]) == (
        "::warning file=docker/Dockerfile,line=1,col=6,endLine=1,endColumn=12,title=unpinned-base"
        "::no tag%0Afix: write a tag\n"
    )


def test_github_knows_three_levels() -> None:
    words = [github([judged(at(severity=severity))]).split(" ")[0] for severity in Severity]
    assert words == ["::notice", "::warning", "::error"]


def test_github_leaves_columns_out_that_span_lines() -> None:
    """ "endColumn" and "col" are only for places on one line."""
    place = Finding("x", span=Span("Dockerfile", 1, 6, 3, 4))
    assert github([judged(place)]) == "::error file=Dockerfile,line=1,endLine=3,title=unpinned-base::x\n"


def test_github_hears_of_a_file_that_could_not_be_read_and_of_what_stayed_open() -> None:
    unread = JudgedFile("b", "dockerfile", unreadable="it is no text")
    why = [("x", "a.txt was not read"), ("y", "a.txt was not read"), ("z", "no tag")]
    open_ = JudgedFile("c", "dockerfile", "", tuple(Result(name, Outcome.UNKNOWN, reason=said) for name, said in why))
    assert github([unread, open_]) == (
        "::error file=b,title=file-read::it is no text\n"
        "::warning file=c,title=undecided::a.txt was not read (x, y)\n"
        "::warning file=c,title=undecided::no tag (z)\n"
    )


@given(st.text(max_size=60), st.text(min_size=1, max_size=20))
def test_github_commands_cannot_be_forged(message: str, path: str) -> None:
    said = github([judged(Finding(message, span=Span(path, 1)), path=path)])
    assert said.count("\n") == 1
    found = COMMAND.fullmatch(said.rstrip("\n"))
    assert found, said
    assert "\r" not in said


def test_gitlab_has_the_documented_fields() -> None:
    found = json.loads(gitlab([judged(at(), at("other", Severity.ERROR), at("third", Severity.NOTE))]))
    assert [set(each) for each in found] == [{"description", "check_name", "fingerprint", "severity", "location"}] * 3
    assert [each["severity"] for each in found] == ["minor", "critical", "info"]
    assert found[0]["check_name"] == "unpinned-base"
    assert found[0]["location"] == {"path": "docker/Dockerfile", "lines": {"begin": 1}}


def test_gitlab_paths_do_not_begin_with_a_dot() -> None:
    found = json.loads(gitlab([judged(at(path="./Dockerfile"), path="./Dockerfile")]))
    assert found[0]["location"]["path"] == "Dockerfile"


def test_gitlab_fingerprints_are_of_one_finding_each_and_stay_when_lines_move() -> None:
    marks = [each["fingerprint"] for each in json.loads(gitlab([judged(at(), at(), at("other"))]))]
    assert len(set(marks)) == 3
    moved = JudgedFile(
        "docker/Dockerfile",
        "dockerfile",
        "# a comment above\nFROM ubuntu\n",
        (Result("unpinned-base", Outcome.FAIL, (Finding("no tag", span=Span("docker/Dockerfile", 2, 6, 2, 12)),)),),
    )
    assert json.loads(gitlab([moved]))[0]["fingerprint"] == marks[0]


def test_gitlab_hears_of_what_could_not_be_read() -> None:
    found = json.loads(gitlab([JudgedFile("b", "dockerfile", unreadable="it is no text")]))
    assert [(each["check_name"], each["severity"], each["description"]) for each in found] == [
        ("file-read", "blocker", "it is no text")
    ]


def test_an_empty_report_is_an_empty_list() -> None:
    assert json.loads(gitlab([judged_nothing()])) == []
    assert github([judged_nothing()]) == ""


def judged_nothing() -> JudgedFile:
    return JudgedFile("a", "dockerfile", "FROM a:1\n", (Result("x", Outcome.PASS),))


def test_secrets_reach_no_host() -> None:
    token = "ghp_" + "a1B2" * 9
    found = [judged(at(f"the token {token} is there"))]
    assert token not in github(found) + gitlab(found)
