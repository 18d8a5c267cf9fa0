"""The exit code: what was found is certain, what is not known is never green."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.model import Finding, Observed, Outcome, Report, Result, Severity, Subject, Unknown, Verdict

PASS = Result("a", Outcome.PASS)
SKIP = Result("b", Outcome.SKIP, reason="no GPU")
UNKNOWN = Result("c", Outcome.UNKNOWN, reason="lost")
CRASHED = Result("d", Outcome.CRASHED, reason="KeyError: 'x'")


def failed(*severities: Severity) -> Result:
    return Result("e", Outcome.FAIL, tuple(Finding("x is 1", severity) for severity in severities))


def report(*results: Result) -> Report:
    return Report(Subject("image", "train"), results)


ANY = st.lists(
    st.one_of(
        st.sampled_from([PASS, SKIP, UNKNOWN, CRASHED]),
        st.lists(st.sampled_from(Severity), min_size=1, max_size=3).map(lambda found: failed(*found)),
    ),
    max_size=6,
).map(lambda results: report(*results))


@pytest.mark.parametrize(
    ("results", "code", "verdict"),
    [
        ((), 3, Verdict.UNDECIDED),
        ((SKIP,), 3, Verdict.UNDECIDED),
        ((SKIP, SKIP), 3, Verdict.UNDECIDED),
        ((PASS,), 0, Verdict.PASS),
        ((PASS, SKIP), 0, Verdict.PASS),
        ((PASS, UNKNOWN), 3, Verdict.UNDECIDED),
        ((PASS, CRASHED), 3, Verdict.UNDECIDED),
        ((PASS, failed(Severity.ERROR)), 1, Verdict.FAIL),
        ((UNKNOWN, CRASHED, failed(Severity.ERROR)), 1, Verdict.FAIL),
        ((failed(Severity.WARNING),), 0, Verdict.PASS),
        ((failed(Severity.WARNING), UNKNOWN), 3, Verdict.UNDECIDED),
        ((failed(Severity.NOTE, Severity.ERROR),), 1, Verdict.FAIL),
    ],
)
def test_the_exit_code(results: tuple[Result, ...], code: int, verdict: Verdict) -> None:
    assert report(*results).exit_code() == code
    assert report(*results).verdict() is verdict


@pytest.mark.parametrize(("fail_on", "code"), [(Severity.NOTE, 1), (Severity.WARNING, 1), (Severity.ERROR, 0)])
def test_the_threshold(fail_on: Severity, code: int) -> None:
    assert report(failed(Severity.WARNING)).exit_code(fail_on) == code


@given(ANY, st.sampled_from(Severity))
def test_green_means_judged_and_nothing_open(made: Report, fail_on: Severity) -> None:
    if made.exit_code(fail_on) == 0:
        said = [result.outcome for result in made.results]
        assert Outcome.PASS in said or Outcome.FAIL in said
        assert Outcome.UNKNOWN not in said
        assert Outcome.CRASHED not in said
        assert all(finding.severity < fail_on for result in made.results for finding in result.findings)


@given(ANY, st.sampled_from([UNKNOWN, CRASHED, failed(Severity.ERROR)]))
def test_no_trouble_makes_a_report_greener(made: Report, trouble: Result) -> None:
    more = dataclasses.replace(made, results=(*made.results, trouble))
    assert more.exit_code() != 0


@given(ANY)
def test_the_order_of_results_changes_nothing(made: Report) -> None:
    assert dataclasses.replace(made, results=made.results[::-1]).exit_code() == made.exit_code()


@pytest.mark.parametrize("value", [0, "", (), False])
def test_an_observed_value_may_be_empty(value: object) -> None:
    assert Observed.of(value, "here").need("it") == value


def test_a_lost_value_says_why() -> None:
    lost: Observed[int] = Observed.lost("no such file", "/proc/x")
    with pytest.raises(Unknown, match=r"^the driver was not observed: no such file$"):
        lost.need("the driver")


def test_nothing_is_observed_by_default() -> None:
    nothing: Observed[int] = Observed()
    with pytest.raises(Unknown, match="not observed"):
        nothing.need("x")


def test_no_value_is_not_a_value() -> None:
    nothing: Observed[int] = Observed(None, "here", "")
    with pytest.raises(Unknown, match="no value"):
        nothing.need("x")


def test_a_doubt_reads_as_its_reason_alone_whatever_it_is_worth() -> None:
    doubt = Unknown("the driver was not observed", Severity.NOTE, "Dockerfile")
    assert (str(doubt), doubt.at_most, doubt.about) == ("the driver was not observed", Severity.NOTE, "Dockerfile")


def test_the_nouns_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(PASS, "outcome", Outcome.FAIL)  # noqa: B010  an assignment would not get past mypy
