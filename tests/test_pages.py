"""Every check has a page, and the page's examples are its tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machines
import pytest

import envkit
from envkit import facts as tables
from envkit.judge import checks, run
from envkit.model import Outcome, Result
from envkit.subjects import KINDS
from envkit.subjects.codec import from_plain

PAGES = {path.stem: path for path in sorted((Path(envkit.__file__).parent / "kb").glob("*.md"))}
OUTCOMES = {
    "fails": Outcome.FAIL,
    "passes": Outcome.PASS,
    "skips": Outcome.SKIP,
    "unknown": Outcome.UNKNOWN,
}
HEADINGS = ["## Why", "## Fix", "## Source"]


@dataclass(frozen=True, slots=True)
class Block:
    """One example: ``info`` is what stands behind the fence, ``line`` where."""

    page: str
    line: int
    info: str
    text: str


def blocks(page: str, text: str) -> Iterator[Block]:
    """The fenced json blocks of a page; a fence left open is an error."""
    start, info, body = 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not start and line.startswith("```"):
            start, info, body = number, line.removeprefix("```"), []
        elif start and line.rstrip() == "```":
            if info.split()[:1] == ["json"]:
                yield Block(page, start, info, "\n".join(body))
            start = 0
        else:
            body.append(line)
    assert not start, f"{page}.md:{start} opens a block and does not close it"


BLOCKS = [block for page, path in PAGES.items() for block in blocks(page, path.read_text(encoding="utf-8"))]


def judged(block: Block) -> Result:
    """What the page's check says of the block's subject."""
    kind = block.info.split()[1]
    check = checks()[block.page]
    assert KINDS[kind] in check.subjects
    return run(check, subject_of(kind, json.loads(block.text)), tables.load())


def subject_of(kind: str, data: dict[str, Any]) -> object:
    """What a block shows: a whole subject, or a healthy machine (``on``) and what is changed in it."""
    if kind == "host" and "on" in data:
        return machines.host(data.pop("on"), data)
    return from_plain(KINDS[kind], data)


def test_every_check_has_a_page_and_every_page_a_check() -> None:
    assert set(checks()) == set(PAGES)
    assert PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_parts(page: str) -> None:
    lines = PAGES[page].read_text(encoding="utf-8").splitlines()
    assert re.match(r"# \S", lines[0])
    assert [line for line in lines if line.startswith("## ")] == HEADINGS
    prose = re.sub(r"```.*?```", "", "\n".join(lines), flags=re.DOTALL)
    assert all(part.strip() for part in re.split(r"^## .*$", prose, flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_fault_and_its_absence(page: str) -> None:
    shown = [block.info.split()[2] for block in BLOCKS if block.page == page]
    assert {"fails", "passes"} <= set(shown) <= set(OUTCOMES)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_block_gives_what_it_says(block: Block) -> None:
    result = judged(block)
    assert result.outcome is OUTCOMES[block.info.split()[2]], (result.reason, result.findings)
    assert bool(result.reason) == (result.outcome in (Outcome.SKIP, Outcome.UNKNOWN))
    for finding in result.findings:
        assert re.fullmatch(r"\S(.*\S)?", finding.message), "a message is one line"
        # What another program said is quoted with its period.
        quoted = finding.message.rsplit(": ", 1)[-1] in block.text
        assert quoted or not finding.message.endswith("."), "a message has no final period"


def test_a_wrong_block_is_seen() -> None:
    page = next(block for block in BLOCKS if block.info.endswith(" fails"))
    assert judged(page).outcome is not OUTCOMES["passes"]


def test_an_open_block_is_seen() -> None:
    with pytest.raises(AssertionError, match=r"x\.md:2 opens"):
        list(blocks("x", "# x\n```json host fails\n{}\n"))
