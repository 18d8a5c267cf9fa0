"""What every reporter owes: the verdict of the exit code, nothing lost, nothing hostile printed raw."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st

import envkit.report
from envkit.errors import UsageError
from envkit.model import Finding, Outcome, Report, Result, Severity, Subject
from envkit.report import FORMATS, Detail, Table, render
from envkit.system.terminal import UNBROKEN, columns, wants_color

SCHEMA: dict[str, Any] = json.loads(
    (Path(envkit.report.__file__).parent / "report-1.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HOSTILE = "a\x1b[2Jb]]>&<c\x00\x9b31m\ud800\u202e\ufffe\rd"


def report(*results: Result, observed: dict[str, Any] | None = None) -> Report:
    return Report(Subject("image", "train"), results, 1.5, observed or {})


def failed(severity: Severity, message: str = "x is 1") -> Result:
    return Result("x-is-two", Outcome.FAIL, (Finding(message, severity),))


def document(made: Report, fail_on: Severity = Severity.ERROR) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(render(made, "json", fail_on=fail_on))
    VALIDATOR.validate(loaded)
    return loaded


def suite(made: Report, fail_on: Severity = Severity.ERROR) -> ET.Element:
    found = ET.fromstring(render(made, "junit", fail_on=fail_on)).find("testsuite")
    assert found is not None
    return found


LATIN = st.characters(max_codepoint=0x9F)
TEXT = st.one_of(st.text(max_size=30), st.text(LATIN, max_size=30), st.just(HOSTILE))
FINDINGS = st.builds(
    Finding,
    message=TEXT.filter(bool),
    severity=st.sampled_from(Severity),
    where=TEXT,
    evidence=st.dictionaries(TEXT, TEXT, max_size=2),
    fix=TEXT,
)
RESULTS = st.one_of(
    st.builds(
        Result,
        check=st.from_regex(r"[a-z]+(-[a-z]+)?", fullmatch=True),
        outcome=st.just(Outcome.FAIL),
        findings=st.lists(FINDINGS, min_size=1, max_size=2).map(tuple),
    ),
    st.builds(
        Result,
        check=st.from_regex(r"[a-z]+(-[a-z]+)?", fullmatch=True),
        outcome=st.sampled_from([Outcome.PASS, Outcome.SKIP, Outcome.UNKNOWN, Outcome.CRASHED]),
        reason=TEXT,
    ),
)
REPORTS = st.builds(
    Report,
    subject=st.builds(Subject, kind=st.just("image"), name=TEXT),
    results=st.lists(RESULTS, max_size=4).map(tuple),
    elapsed_s=st.floats(0, 1e5),
)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made: made.pop("verdict"),
        lambda made: made.update(schema="envkit.report/2"),
        lambda made: made.update(extra=1),
        lambda made: made["results"][0].update(outcome="pass"),
        lambda made: made["results"][0]["findings"].clear(),
        lambda made: made["results"][0]["findings"][0].update(severity="fatal"),
        lambda made: made["results"][0]["findings"][0].pop("fix"),
    ],
)
def test_the_schema_refuses(spoil: Any) -> None:
    made = document(report(failed(Severity.ERROR)))
    spoil(made)
    assert not VALIDATOR.is_valid(made)


@examples(25)
@given(REPORTS, st.sampled_from(Severity))
def test_every_document_fits_the_schema_and_tells_all(made: Report, fail_on: Severity) -> None:
    found = document(made, fail_on)
    assert found["verdict"] == made.verdict(fail_on).value
    assert [each["check"] for each in found["results"]] == [each.check for each in made.results]
    assert [each["outcome"] for each in found["results"]] == [each.outcome.value for each in made.results]
    counts = [len(each["findings"]) for each in found["results"]]
    assert counts == [len(each.findings) for each in made.results]


@examples(25)
@given(REPORTS, st.sampled_from(Severity))
def test_junit_is_well_formed_and_red_exactly_when_the_exit_code_is_not_zero(made: Report, fail_on: Severity) -> None:
    found = suite(made, fail_on)
    red = found.findall("testcase/failure") + found.findall("testcase/error")
    assert bool(red) == (made.exit_code(fail_on) != 0)
    assert int(found.attrib["failures"]) + int(found.attrib["errors"]) == len(red)
    names = [case.attrib["name"] for case in found.findall("testcase")]
    assert names[: len(made.results)] == [each.check for each in made.results]


@examples(25)
@given(REPORTS, st.sampled_from(Severity), st.integers(20, 120))
def test_the_console_prints_nothing_a_terminal_obeys(made: Report, fail_on: Severity, width: int) -> None:
    text = render(made, fail_on=fail_on, width=width, detail=Detail.VERBOSE)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e]", text)
    assert text.startswith(made.verdict(fail_on).value.upper() + ": ")
    for result in made.results:
        assert result.check in text or result.outcome is Outcome.SKIP


@examples(25)
@given(REPORTS)
def test_colour_changes_no_word(made: Report) -> None:
    assert re.sub("\x1b\\[[0-9;]*m", "", render(made, color=True)) == render(made)


def test_colour_is_there_when_wanted() -> None:
    assert "\x1b[1;31mFAIL\x1b[0m" in render(report(failed(Severity.ERROR)), color=True)


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "color"),
    [
        (Screen(), {"TERM": "xterm"}, True),
        (Screen(), {"NO_COLOR": ""}, True),
        (Screen(), {"NO_COLOR": "1"}, False),
        (Screen(), {"CI": "true"}, False),
        (Screen(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_terminals(stream: io.StringIO, environ: dict[str, str], color: bool) -> None:
    assert wants_color(stream, environ) is color


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "terminal", "pipe"),
    [
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1", "CI": "1", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": ""}, True, False),
        ({"NO_COLOR": ""}, True, False),
    ],
)
def test_colour_can_be_forced_and_refused(environ: dict[str, str], terminal: bool, pipe: bool) -> None:
    assert (wants_color(Terminal(), environ), wants_color(io.StringIO(), environ)) == (terminal, pipe)


def test_lines_are_broken_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    assert (columns(Terminal()), columns(io.StringIO())) == (57, UNBROKEN)
    made = report(failed(Severity.ERROR, "word " * 500 + "end"))
    assert [len(line) <= 57 for line in render(made, width=57).splitlines()].count(False) == 0
    assert len(render(made, width=UNBROKEN).splitlines()) == 3  # verdict, a blank line, one sentence


def test_how_much_of_a_report_is_printed() -> None:
    made = report(
        failed(Severity.NOTE),
        Result("lost-one", Outcome.UNKNOWN, reason="no answer"),
        Result("left-out", Outcome.SKIP, reason="no GPU"),
        Result("held", Outcome.PASS),
    )
    table = Table("libraries", ("name",), (("libcudart",),))
    words = ("x is 1", "lost-one", "libcudart", "left-out", "held")
    shown = {each: [word in render(made, tables=(table,), detail=each) for word in words] for each in Detail}
    assert shown == {
        Detail.QUIET: [True, True, False, False, False],  # it is the reason of the verdict, which is undecided
        Detail.NORMAL: [True, True, True, False, False],
        Detail.VERBOSE: [True] * 5,
    }
    assert len({render(made, detail=each).splitlines()[0] for each in Detail}) == 1  # the verdict and its counts
    decided = report(failed(Severity.ERROR), Result("lost-one", Outcome.UNKNOWN, reason="no answer"))
    assert "lost-one" not in render(decided, detail=Detail.QUIET)


def test_findings_come_by_severity() -> None:
    findings = (Finding("third", Severity.NOTE), Finding("first"), Finding("second", Severity.WARNING))
    text = render(report(Result("a", Outcome.FAIL, findings)))
    assert text.index("error: a: first") < text.index("warning: a: second") < text.index("note: a: third")


def test_twenty_checks_skipped_for_one_reason_take_one_paragraph() -> None:
    skipped = [Result(f"gpu-{number}", Outcome.SKIP, reason="no GPU here") for number in range(20)]
    text = render(report(Result("a", Outcome.PASS), *skipped), detail=Detail.VERBOSE)
    assert "  skipped: gpu-0, gpu-1, gpu-2 and 17 more: no GPU here\n" in text
    assert text.count("no GPU here") == 1


def test_what_leaves_the_verdict_open_is_named_in_full() -> None:
    names = [f"gpu-{number}" for number in range(20)]
    text = render(report(*(Result(name, Outcome.UNKNOWN, reason="lost") for name in names)))
    assert all(re.search(rf"\b{name}\b", text) for name in names)


@pytest.mark.parametrize("results", [(), (Result("a", Outcome.SKIP, reason="no GPU"),)])
def test_nothing_judged_is_said(results: tuple[Result, ...]) -> None:
    made = report(*results)
    assert "UNDECIDED: image train: nothing was judged" in render(made)
    assert document(made)["verdict"] == "undecided"
    errors = suite(made).findall("testcase/error")
    assert [error.attrib["message"] for error in errors] == ["nothing was judged"]


def test_the_outcomes_stay_apart_in_junit() -> None:
    cases = suite(report(*(Result(outcome.value, outcome) for outcome in Outcome if outcome != "fail")))
    marks = {case.attrib["name"]: [child.tag for child in case] for case in cases.findall("testcase")}
    assert marks == {"pass": [], "skip": ["skipped"], "unknown": ["error"], "crashed": ["error"]}


def test_a_finding_below_the_threshold_is_printed_and_green() -> None:
    made = report(failed(Severity.WARNING))
    assert suite(made).findtext("testcase/system-out") == "warning: x is 1"
    assert suite(made, Severity.WARNING).findtext("testcase/failure") == "warning: x is 1"
    assert render(made).startswith("PASS: image train: 1 warning; 1 failed (1.5 s)\n")


def test_observed_is_there_only_when_given() -> None:
    assert "observed" not in document(report())
    observed = {"ratio": float("nan"), "paths": ("a\ud800",), "gpus": 2, "none": None}
    assert document(report(observed=observed))["observed"] == {
        "ratio": "nan",
        "paths": ["a\\ud800"],
        "gpus": 2,
        "none": None,
    }


def test_an_unknown_format_is_the_users_mistake() -> None:
    with pytest.raises(UsageError, match="no format `yaml`"):
        render(report(), "yaml")


def test_tables_fit_eighty_columns_and_keep_every_cell_whole() -> None:
    path = "/usr/local/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9"
    rows = (("cudnn", "9", "rpath", path), ("cudart", "12", "ld_library_path", "\x1b[31m/opt/lib"))
    table = Table("libraries as loaded", ("library", "version", "by", "path"), rows)
    text = render(report(), tables=(table,))
    assert max(map(len, text.splitlines())) <= 80
    assert all(cell in text for cell in rows[0])
    assert "\\x1b[31m/opt/lib" in text


def test_a_table_must_be_a_table() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        Table("t", ("a", "b"), (("1",),))


@pytest.mark.parametrize("format", FORMATS)
def test_no_reporter_prints_a_credential(format: str) -> None:
    secret = "hunter2"
    finding = Finding(
        f"pulled from https://bob:{secret}@host/simple",
        where=f"ENV HF_TOKEN={secret}",
        evidence={f"TOKEN={secret}": f"PASSWORD={secret}"},
        fix=f"drop --password {secret}",
    )
    made = Report(
        Subject("image", f"https://{secret}@host/i"),
        (
            Result("a", Outcome.FAIL, (finding,)),
            Result("b", Outcome.UNKNOWN, reason=f"Authorization: Bearer {secret}"),
        ),
        observed={"env": {"API_KEY": secret, "SHELL": "/bin/sh"}},
    )
    table = Table("environment", ("value",), ((f"API_KEY={secret}",),))
    assert secret not in render(made, format, tables=(table,))


def test_rich_is_loaded_only_for_colour() -> None:
    code = "import sys, envkit.report; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
