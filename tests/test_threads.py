"""Public threads about environments that do not fit: check tells most of them beforehand, each with its own reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import written
from gathered import gathered

from envkit import facts
from envkit.judging import judge


def threads(name: str) -> dict[str, dict[str, Any]]:
    """The threads of a file by address."""
    text = (Path(__file__).parent / "corpus" / f"{name}.toml").read_text(encoding="utf-8")
    return {each["address"]: each for each in tomllib.loads(text)["thread"]}


KNOWN, UNSEEN, BEYOND = threads("threads"), threads("threads-unseen"), threads("threads-beyond")
VARIED, NOVEL, FRESH = threads("threads-varied"), threads("threads-novel"), threads("threads-fresh")
LAST, RECENT, SIGHT = threads("threads-last"), threads("threads-recent"), threads("threads-sight")
THREADS = KNOWN | UNSEEN | BEYOND | VARIED | NOVEL | FRESH | LAST | RECENT | SIGHT
OPEN = KNOWN | UNSEEN | BEYOND | VARIED
WANTED, WANTED_OF_OPEN = 0.85, 0.9


def told(thread: dict[str, Any]) -> bool:
    """Whether the check that has the thread's reason finds something in its input."""
    return thread["check"] in written.fired(thread["input"], facts.load(), thread.get("kind", "dockerfile"))


@gathered(THREADS)
def test_a_thread_is_told_by_its_check_unless_it_says_why_not(address: str) -> None:
    thread = THREADS[address]
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+", address)
    assert thread["check"] in judge.checks() or (not thread["check"] and thread["why"])
    assert told(thread) != ("why" in thread), "a thread that is told needs no reason, and one that is not needs one"


def test_enough_threads_and_enough_told() -> None:
    told_ones = [thread for thread in KNOWN.values() if "why" not in thread]
    assert len(KNOWN) >= 80
    assert len(told_ones) >= WANTED * len(KNOWN), f"{len(told_ones)} of {len(KNOWN)}"
    told_ones = [thread for thread in OPEN.values() if "why" not in thread]
    assert len(told_ones) >= WANTED_OF_OPEN * len(OPEN), f"{len(told_ones)} of {len(OPEN)}"


def test_unseen_threads_are_others() -> None:
    assert len(UNSEEN) >= 12
    assert len(BEYOND) >= 50
    assert len(NOVEL) >= 40
    assert not KNOWN.keys() & UNSEEN.keys()
    assert len(VARIED) >= 40
    assert not BEYOND.keys() & (KNOWN.keys() | UNSEEN.keys())
    assert not VARIED.keys() & (KNOWN.keys() | UNSEEN.keys() | BEYOND.keys())
    assert len(FRESH) >= 24
    assert not FRESH.keys() & (KNOWN.keys() | UNSEEN.keys() | BEYOND.keys() | VARIED.keys() | NOVEL.keys())
    assert len(LAST) >= 29
    assert not LAST.keys() & (
        KNOWN.keys() | UNSEEN.keys() | BEYOND.keys() | VARIED.keys() | NOVEL.keys() | FRESH.keys()
    )
    assert len(RECENT) >= 20
    assert not RECENT.keys() & (
        KNOWN.keys() | UNSEEN.keys() | BEYOND.keys() | VARIED.keys() | NOVEL.keys() | FRESH.keys() | LAST.keys()
    )
    assert len(SIGHT) >= 29
    assert not SIGHT.keys() & (
        KNOWN.keys()
        | UNSEEN.keys()
        | BEYOND.keys()
        | VARIED.keys()
        | NOVEL.keys()
        | FRESH.keys()
        | LAST.keys()
        | RECENT.keys()
    )
    assert not NOVEL.keys() & (KNOWN.keys() | UNSEEN.keys() | BEYOND.keys() | VARIED.keys())
