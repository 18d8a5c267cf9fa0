"""Every way a check can end is an outcome of its own, and every check is found without a list."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import envkit.judging.checks
from envkit import facts as tables
from envkit.facts import Facts
from envkit.judging import required
from envkit.judging.judge import Check, checks, judge, run, unanswered
from envkit.model import Finding, Observed, Outcome, Severity, Skip, Unknown
from envkit.payload.smoke import TESTS
from envkit.subjects import KINDS, Audit, Host, Image, SmokeRun
from envkit.subjects.aoti import AotiRun
from envkit.subjects.dockerfile import Dockerfile
from envkit.subjects.packages import Packages
from envkit.subjects.placement import Placement
from envkit.subjects.start import JobStart
from envkit.subjects.workload import Workload

FACTS: Facts = tables.load()
HOST = Host("node")


def silent(host: Host) -> Iterator[Finding]:
    yield from ()


def finding(host: Host) -> Iterator[Finding]:
    yield Finding(f"{host.name} is down", Severity.NOTE)


def skipping(host: Host) -> Iterator[Finding]:
    raise Skip("no GPU")
    yield


def doubting(host: Host) -> Iterator[Finding]:
    lost: Observed[str] = Observed.lost("no such file")
    yield Finding("found before the doubt", Severity.WARNING)
    lost.need("the driver")


def certain(host: Host) -> Iterator[Finding]:
    lost: Observed[str] = Observed.lost("no such file")
    yield Finding("certain whatever the driver is")
    lost.need("the driver")


def dying(host: Host) -> Iterator[Finding]:
    yield Finding("found before the end")
    raise KeyError("gpu")


def backing_out(host: Host) -> Iterator[Finding]:
    yield Finding("found before the skip")
    raise Skip("no GPU")


def informed(host: Host, facts: Facts) -> Iterator[Finding]:
    if facts is FACTS:
        yield Finding("the facts came")


@pytest.mark.parametrize(
    ("function", "outcome", "messages", "reason"),
    [
        (silent, Outcome.PASS, [], ""),
        (finding, Outcome.FAIL, ["node is down"], ""),
        (skipping, Outcome.SKIP, [], "no GPU"),
        (doubting, Outcome.UNKNOWN, [], "the driver was not observed: no such file"),
        (certain, Outcome.FAIL, ["certain whatever the driver is"], "the driver was not observed: no such file"),
        (dying, Outcome.CRASHED, [], "KeyError: 'gpu'"),
        (backing_out, Outcome.CRASHED, [], "skipped (no GPU) after a finding: found before the skip"),
        (informed, Outcome.FAIL, ["the facts came"], ""),
    ],
)
def test_a_check_ends_in_one_of_five_ways(
    function: Callable[..., Iterator[Finding]], outcome: Outcome, messages: list[str], reason: str
) -> None:
    result = run(Check("a-check", Host, function, function is informed), HOST, FACTS)
    assert (result.check, result.outcome, result.reason) == ("a-check", outcome, reason)
    assert [each.message for each in result.findings] == messages


def interrupted(host: Host) -> Iterator[Finding]:
    raise KeyboardInterrupt
    yield


def test_ctrl_c_is_no_outcome() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Check("a-check", Host, interrupted, False), HOST, FACTS)


def public_generators(source: str) -> set[str]:
    """The names of the top-level functions that the source says yield findings."""
    return {
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.returns is not None
        and ast.unparse(node.returns) == "Iterator[Finding]"
    }


@pytest.mark.slow  # starts a Python
def test_every_check_is_found() -> None:
    written: set[str] = set()
    for folder in envkit.judging.checks.__path__:
        for path in Path(folder).glob("[!_]*.py"):
            written |= public_generators(path.read_text(encoding="utf-8"))
    assert written
    made = {f"smoke-{case.name}" for case in TESTS}  # out of the suite's tests, but for those with a function
    files = [path for folder in envkit.judging.checks.__path__ for path in Path(folder).glob("host_rows/*.jsonl")]
    rows = [json.loads(line)["check"] for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows
    assert not set(rows) & {name.replace("_", "-") for name in written}
    made |= set(rows)
    assert set(checks()) == {name.replace("_", "-") for name in written} | made


def test_a_check_is_named_by_its_subject() -> None:
    prefixes = {subject: f"{word}-" for word, subject in KINDS.items()}
    # The ids of the checks of Dockerfiles are public names of faults, and say by themselves what they are about.
    prefixes |= {Dockerfile: "", Packages: "packages-", Workload: "workload-", JobStart: "start-"}
    for name, check in checks().items():
        assert name.startswith(prefixes[check.subjects[0]])


@pytest.mark.parametrize(
    "subject",
    [HOST, Image("i"), SmokeRun("s"), AotiRun("a"), Audit("d"), Placement("p")],
    ids=lambda each: type(each).__name__,
)
def test_a_subject_of_which_nothing_was_observed_is_never_green(subject: Any) -> None:
    results = judge(subject, FACTS)
    assert [result.check for result in results] == sorted(
        name for name, check in checks().items() if type(subject) in check.subjects
    ) + [result.check for result in unanswered(subject)]
    assert results[-1].check in required.ids()
    wrong = (Outcome.PASS, Outcome.CRASHED)
    assert [result for result in results if result.outcome in wrong] == []


def test_only_some_checks_run_when_named() -> None:
    one = sorted(name for name, check in checks().items() if Host in check.subjects)[0]
    assert [result.check for result in judge(HOST, FACTS, frozenset({one, "image-x"}))] == [one]


def test_judging_twice_says_the_same() -> None:
    assert judge(HOST, FACTS) == judge(HOST, FACTS)


def test_an_unknown_is_no_error_of_python() -> None:
    """A check that catches its own ValueErrors must not swallow a doubt."""
    assert not issubclass(Unknown, (ValueError, LookupError, TypeError, OSError))


@pytest.mark.parametrize("kind", KINDS)
def test_the_checks_of_one_subject_are_all_of_its_checks(kind: str) -> None:
    """Only some modules are imported for a subject; no check of it may lie in another one."""
    subject = KINDS[kind]
    assert set(checks(subject)) == {name for name, check in checks().items() if subject in check.subjects}
