"""Answers that are compared in full with what they were: each pair of what was recorded, and every form of a report."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import answers
import explained
import machines
import pytest
import test_report_golden as reported
from gathered import gathered

from envkit import facts
from envkit.diff import compare, hosts, render
from envkit.explain import as_html, as_text
from envkit.judging import judge
from envkit.model import Report, Severity, Subject
from envkit.plan import lockfile
from envkit.report import FORMATS, Detail
from envkit.report import render as render_report
from envkit.subjects import codec
from envkit.subjects.image import Image

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data" / "image"
FACTS = facts.load()
IMAGES = {
    path.stem: codec.from_plain(Image, document.get("subject", document))
    for path in sorted(DATA.glob("torch-*.json"))
    for document in [json.loads(path.read_text(encoding="utf-8"))]
}
LOCKS = {path.parent.name: path for path in sorted((ROOT / "images").glob("*/envkit.lock"))}
HOSTS = {name: machines.host(name) for name in machines.NAMES}


def as_shown(found: tuple[compare.Change, ...], old: str, new: str) -> tuple[object, ...]:
    changes = compare.together(found)
    weights = [change.weight for change in changes]
    assert weights == sorted(weights, reverse=True)
    return found, render.render_text(changes, old, new), render.to_json(changes, "image", old, new)


@gathered(itertools.permutations(IMAGES, 2))
def test_two_recorded_images_differ_as_they_did(old: str, new: str) -> None:
    changes = compare.images(IMAGES[old], IMAGES[new], FACTS)
    assert changes
    answers.same("diffs", ("images", old, new), as_shown(changes, old, new))


@gathered(itertools.pairwise([*LOCKS, *reversed(LOCKS)]))
def test_two_locks_differ_as_they_did(old: str, new: str) -> None:
    before, after = (lockfile.parse(LOCKS[name].read_text(encoding="utf-8"), str(LOCKS[name])) for name in (old, new))
    changes = compare.locks(before, after, FACTS)
    assert bool(changes) == (old != new)
    answers.same("diffs", ("locks", old, new), as_shown(changes, old, new))


@gathered(itertools.permutations(HOSTS, 2))
def test_two_machines_differ_as_they_did(old: str, new: str) -> None:
    changes = hosts.changes(HOSTS[old], HOSTS[new], FACTS)
    assert changes
    answers.same("diffs", ("hosts", old, new), as_shown(changes, old, new))


WHOLE = explained.explanation()
EXPLANATIONS = {
    "whole": WHOLE,
    "no runner-up": replace(WHOLE, runner_up=None),
    "nothing to do": replace(WHOLE, fix="", decide_by="", next=(), versions={}),
    "no ranks": replace(WHOLE, ranks=()),
    "one line": replace(WHOLE, timeline=WHOLE.timeline[:1], evidence=()),
    "two lines": replace(WHOLE, timeline=WHOLE.timeline[:2], evidence=WHOLE.evidence[:1]),
    "nothing quoted": replace(WHOLE, timeline=(), evidence=(), files=()),
    **{f"sure {sure}": replace(WHOLE, confidence=sure) for sure in (0.0, 0.49, 0.5, 0.69, 0.7, 0.89, 0.9, 1.0)},
    "unknown": replace(WHOLE, category="insufficient-evidence", cause="unknown-cut-log", confidence=0.3),
    "many": explained.many(70, 700),
    "few of many": explained.many(3, 50),
}


@gathered(EXPLANATIONS)
def test_an_explanation_reads_as_it_did(name: str) -> None:
    found = EXPLANATIONS[name]
    for color, width in itertools.product((False, True), (30, 40, 41, 80, 200)):
        for most in (1, 2, 12):
            text = as_text.render(found, color, width, most)
            assert found.because.split()[0] in text
            answers.same("reports", ("explained", name, color, width, most), text)
    answers.same("reports", ("document", name), [as_text.document(found, most) for most in (None, 0, 1, 5, 100)])
    answers.same("reports", ("page", name), as_html.render(found))


def reports() -> dict[str, Report]:
    """The report that every format is shown by, and those of recorded machines and images."""
    found = {"made": reported.REPORT, "no results": replace(reported.REPORT, results=())}
    for name in (*list(IMAGES)[:3], "torch-2.6-cudnn-mixed"):
        found[name] = Report(Subject("image", name), tuple(judge.judge(IMAGES[name], FACTS)), elapsed_s=1.25)
    for name, host in HOSTS.items():
        found[name] = Report(Subject("host", name), tuple(judge.judge(host, FACTS)), elapsed_s=61.0)
    return found


REPORTS = reports()


@gathered(itertools.product(REPORTS, FORMATS, Severity))
def test_a_report_reads_as_it_did(name: str, format: str, fail_on: Severity) -> None:
    text = render_report(REPORTS[name], format, fail_on=fail_on, tables=reported.TABLES, bars=reported.BARS)
    assert text.endswith("\n")
    answers.same("reports", (name, format, fail_on), text.replace(reported.__version__, "VERSION"))


@gathered(itertools.product(REPORTS, Detail, (False, True), (40, 80, 200)))
def test_a_report_at_a_terminal_reads_as_it_did(name: str, detail: Detail, color: bool, width: int) -> None:
    text = render_report(REPORTS[name], color=color, width=width, detail=detail, tables=reported.TABLES)
    answers.same("reports", (name, detail, color, width), text)


def test_another_answer_to_a_stored_question_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "given", None)
    monkeypatch.setattr(answers, "stored", lambda name: {answers.digest("asked"): answers.digest({"b", "a"})})
    assert answers.same("x", "asked", {"a", "b"}) == {"a", "b"}
    assert answers.same("x", "a new question", 1) == 1
    with pytest.raises(AssertionError, match=r"answers\.py writes"):
        answers.same("x", "asked", {"a"})
