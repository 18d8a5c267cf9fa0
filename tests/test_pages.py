"""Every check has a page, and the page's examples are its tests; ``answers.py`` writes what each gives in full,
``data/answers/pages.jsonl``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import machines
import pytest
import written
from gathered import gathered

import envkit
from envkit import facts as tables
from envkit.errors import UsageError
from envkit.judging import pages, required
from envkit.judging.judge import checks, run, unanswered
from envkit.judging.pages import Example
from envkit.model import Finding, Observed, Outcome, Result, Severity, Span
from envkit.subjects import KINDS, Host
from envkit.subjects.codec import from_plain
from envkit.subjects.host import Gpu

PAGES = {path.stem: path for path in sorted((Path(envkit.__file__).parent / "kb").glob("*.md"))}
OUTCOMES = {
    "fails": Outcome.FAIL,
    "passes": Outcome.PASS,
    "skips": Outcome.SKIP,
    "unknown": Outcome.UNKNOWN,
}
HEADINGS = ["## Why", "## Fix", "## Source"]
READ = {page: pages.load(page) for page in PAGES}
BLOCKS = [
    pytest.param(page, block, id=f"{page}:{block.line}") for page, read in READ.items() for block in read.examples
]
CHECKS = checks()
FACTS = tables.load()
GOLDEN = Path(__file__).parent / "data" / "answers" / "pages.jsonl"
GAVE = GOLDEN.read_text(encoding="utf-8").splitlines()


def judged(page: str, block: Example) -> Result:
    """What the page's check says of the block's subject; a required question that has its answer says nothing."""
    if page in required.ids():
        subject = subject_of(block)
        said = required.without_gpu(subject) if page == required.GPU else unanswered(subject)
        return next((one for one in said if one.check == page), Result(page, Outcome.PASS))
    check = CHECKS[page]
    if block.kind in written.KINDS:
        return written.judged(page, block.kind, block.text, FACTS)
    assert KINDS[block.kind] in check.subjects
    return run(check, subject_of(block), FACTS)


def subject_of(block: Example) -> Any:
    """What a block shows: a whole subject, or a healthy machine (``on``) and what is changed in it."""
    data = json.loads(block.text)
    if block.kind == "host" and "on" in data:
        return machines.host(data.pop("on"), data)
    if block.kind == "launch" and "on" in data:
        return machines.launch(data.pop("on"), data)
    return from_plain(KINDS[block.kind], data)


def place(span: Span | None) -> str:
    """Where a span begins and ends."""
    return f"{span.path}:{span.line}:{span.column}-{span.end_line}:{span.end_column}" if span else ""


def in_words(finding: Finding) -> dict[str, Any]:
    """All that a finding says; an error does not say that it is one."""
    severity = "" if finding.severity is Severity.ERROR else finding.severity.name.lower()
    edits = [[place(edit.span), edit.text] for edit in finding.edits]
    said = {**asdict(finding), "severity": severity, "span": place(finding.span), "edits": edits}
    return {key: value for key, value in said.items() if value}


def header(page: str, block: Example) -> dict[str, Any]:
    """Which block it is."""
    return {"page": page, "shown": " ".join(filter(None, (block.kind, block.outcome, block.fault)))}


def in_full(page: str, block: Example, result: Result) -> str:
    """All that the check says of the block's subject, on one line; of a file also which other checks do not pass."""
    said = header(page, block)
    if result.reason:
        said["reason"] = [result.reason, result.at_most.name.lower(), result.about]
    if result.findings:
        said["findings"] = [in_words(finding) for finding in result.findings]
    if block.kind in written.KINDS:
        for outcome in (Outcome.FAIL, Outcome.UNKNOWN):
            others = written.ended(block.kind, block.text, FACTS, outcome) - {page}
            said |= {f"others {outcome.value}": sorted(others)} if others else {}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def rewrite() -> None:
    """Writes what every block gives today."""
    lines = [in_full(*block.values, judged(*block.values)) for block in BLOCKS]
    GOLDEN.write_text("\n".join([*lines, ""]), encoding="utf-8")


def test_every_check_has_a_page_and_every_page_a_check() -> None:
    assert set(checks()) | required.ids() == set(PAGES)
    assert not set(checks()) & required.ids()


@gathered(PAGES)
def test_a_page_has_its_parts_and_shows_the_fault_and_its_absence(page: str) -> None:
    lines = PAGES[page].read_text(encoding="utf-8").splitlines()
    assert re.match(r"# \S", lines[0])
    assert [line for line in lines if line.startswith("## ")] == HEADINGS
    assert all(READ[page].sections.values())
    shown = {block.outcome for block in READ[page].examples}
    assert {"unknown" if page in required.ids() else "fails", "passes"} <= shown <= set(OUTCOMES)


@pytest.mark.slow  # thousands of examples, each judged
@gathered(pytest.param(*block.values, line, id=block.id) for block, line in zip(BLOCKS, GAVE, strict=False))
def test_a_block_gives_what_it_says(page: str, block: Example, line: str) -> None:
    result = judged(page, block)
    assert result.outcome is OUTCOMES[block.outcome], (result.reason, result.findings)
    assert bool(result.reason) == (result.outcome in (Outcome.SKIP, Outcome.UNKNOWN))
    for finding in result.findings:
        assert re.fullmatch(r"\S(.*\S)?", finding.message), "a message is one line"
        # What another program said is quoted with its period.
        quoted = finding.message.rsplit(": ", 1)[-1] in block.text
        assert quoted or not finding.message.endswith("."), "a message has no final period"
    assert in_full(page, block, result) == line, "python tests/answers.py writes what it gives now"


def test_every_block_has_its_line_in_the_stored_file() -> None:
    stored = [json.loads(line) for line in GAVE]
    shown = [{"page": line["page"], "shown": line["shown"]} for line in stored]
    assert shown == [header(*block.values) for block in BLOCKS], "python tests/answers.py writes it again"


MACHINE_PAGES = [page for page, check in CHECKS.items() if set(check.subjects) & {Host, KINDS.get("launch")}]


@pytest.mark.slow  # judges every machine once for each field
@gathered(MACHINE_PAGES)
def test_a_page_of_a_machine_says_what_is_read_and_from_where_its_threshold_comes(page: str) -> None:
    told = READ[page]
    assert set(told.told) == {"reads", "threshold", "severity"}
    assert "origin:" in told.told["threshold"]
    fails = [block for block in told.examples if block.outcome == "fails"]
    assert all(block.fault for block in fails), "the words after `fails` name the planted fault"
    given = {finding.severity.name.lower() for block in fails for finding in judged(page, block).findings}
    assert set(told.told["severity"].split(", ")) == given


FILE_PAGES = [page for page in PAGES if any(block.kind in written.KINDS for block in pages.load(page).examples)]


@gathered(FILE_PAGES)
def test_a_page_of_a_file_shows_every_severity_that_it_names(page: str) -> None:
    told = READ[page]
    fails = [block for block in told.examples if block.outcome == "fails"]
    assert all(block.fault for block in fails), "the words after `fails` name the planted fault"
    given = {finding.severity.name.lower() for block in fails for finding in judged(page, block).findings}
    assert set(told.told["severity"].split(", ")) == given


class Watched:
    """A subject that writes down which of its fields are read."""

    def __init__(self, subject: object, read: set[str]) -> None:
        self._subject = subject
        self._read = read

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._subject, name)
        if isinstance(value, Observed):
            self._read.add(name)
        return Watched(value, self._read) if isinstance(value, Host) else value


class Iterated(tuple[Gpu, ...]):
    """GPUs that tell when they are looked at one by one; a check that only asks whether there are any does not."""

    looked: list[str]

    def __iter__(self) -> Iterator[Gpu]:
        self.looked.append("nvml")
        return super().__iter__()


def watched_gpus(host: Host) -> tuple[Host, list[str]]:
    """The host with such GPUs, and the list that is not empty once they were looked at."""
    looked: list[str] = []
    if host.nvml.value is None:
        return host, looked
    gpus = Iterated(host.nvml.value.gpus)
    gpus.looked = looked
    return replace(host, nvml=replace(host.nvml, value=replace(host.nvml.value, gpus=gpus))), looked


# Each of these shows by itself that there is a GPU, or a driver, to ask about.
_GATES = {"pci_gpus", "device_nodes", "module", "modules"}
_DECLARED = {"wanted_cuda", "expected"}


@gathered(
    one
    for one in BLOCKS
    if one.values[1].outcome == "passes" and one.values[1].kind == "host" and one.values[0] in CHECKS
)
def test_nothing_passes_on_what_was_taken_away(page: str, block: Example) -> None:
    host, looked = watched_gpus(subject_of(block))
    read: set[str] = set()
    run(CHECKS[page], Watched(host, read), FACTS)
    fields = read - _DECLARED
    gpus_judged = bool(looked)
    taken: set[str] = set()
    while (read - _DECLARED) - taken:  # without its first source a check may ask another one
        taken |= read - _DECLARED
        dark = machines.without(host, *taken)
        outcome = run(CHECKS[page], Watched(dark, read), FACTS).outcome
    assert outcome is not Outcome.PASS
    needed = fields - _GATES
    if not gpus_judged and fields != {"nvml"}:  # NVML is then one of several signs of a GPU or a driver
        needed -= {"nvml"}
    for name in sorted(needed):
        assert run(CHECKS[page], machines.without(host, name), FACTS).outcome is not Outcome.PASS, name


def test_a_wrong_block_is_seen() -> None:
    page, block = next(one.values for one in BLOCKS if one.values[1].outcome == "fails")
    assert judged(page, block).outcome is not OUTCOMES["passes"]


def test_an_open_block_is_seen() -> None:
    with pytest.raises(ValueError, match=r"x\.md:2 opens"):
        pages.parse("x", "# x\n```json host fails\n{}\n")


def test_a_block_without_its_outcome_is_seen() -> None:
    with pytest.raises(ValueError, match=r"x\.md:2 does not say"):
        pages.parse("x", "# x\n```json host\n{}\n```\n")


def test_a_page_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(UsageError) as error:
        pages.load("host-shm-sizes")
    assert "host-shm-too-small" in error.value.fix


@pytest.mark.parametrize("machine", machines.NAMES)
def test_a_healthy_machine_passes(machine: str) -> None:
    subject = machines.host(machine)
    results = [run(check, subject, FACTS) for check in CHECKS.values() if Host in check.subjects]
    found = {
        result.check: result.reason or result.findings[0].message
        for result in results
        if result.outcome not in (Outcome.PASS, Outcome.SKIP)
    }
    assert set(found) == ({"host-no-gpu"} if machine == "bare" else set()), found
