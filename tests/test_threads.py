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


ORDER = (
    "known",
    "unseen",
    "beyond",
    "varied",
    "pinned",
    "novel",
    "fresh",
    "last",
    "recent",
    "sight",
    "newest",
    "strange",
    "foreign",
)
PARTS = {name: threads("threads" if name == "known" else f"threads-{name}") for name in ORDER}
KNOWN = PARTS["known"]
THREADS = {address: thread for part in PARTS.values() for address, thread in part.items()}
OPEN = {address: thread for name in ORDER[:4] for address, thread in PARTS[name].items()}
CLOSED = ("last", "recent", "sight", "foreign")  # nobody who writes rules has read them, nor does from a failing test
WANTED, WANTED_OF_OPEN = 0.85, 0.9


def told(thread: dict[str, Any]) -> bool:
    """Whether the check that has the thread's reason finds something in its input."""
    return thread["check"] in written.fired(thread["input"], facts.load(), thread.get("kind", "dockerfile"))


def wrong(address: str, thread: dict[str, Any]) -> str:
    """What is wrong with the row of a thread; empty if all is right."""
    if not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+", address):
        return "this is no address of a thread"
    if thread["check"] not in judge.checks() and (thread["check"] or not thread["why"]):
        return "a check that there is not"
    return (
        "a thread that is told needs no reason, and one that is not needs one"
        if told(thread) == ("why" in thread)
        else ""
    )


@gathered([address for name in ORDER if name not in CLOSED for address in PARTS[name]])
def test_a_thread_is_told_by_its_check_unless_it_says_why_not(address: str) -> None:
    assert not wrong(address, THREADS[address])


def test_the_threads_that_nobody_has_read_are_told_or_not_as_they_say() -> None:
    found = {name: sum(map(bool, (wrong(*row) for row in PARTS[name].items()))) for name in CLOSED}
    assert found == dict.fromkeys(CLOSED, 0)


def test_enough_threads_and_enough_told() -> None:
    told_ones = [thread for thread in KNOWN.values() if "why" not in thread]
    assert len(KNOWN) >= 80
    assert len(told_ones) >= WANTED * len(KNOWN), f"{len(told_ones)} of {len(KNOWN)}"
    told_ones = [thread for thread in OPEN.values() if "why" not in thread]
    assert len(told_ones) >= WANTED_OF_OPEN * len(OPEN), f"{len(told_ones)} of {len(OPEN)}"


def test_unseen_threads_are_others() -> None:
    least = {
        "unseen": 12,
        "beyond": 50,
        "varied": 40,
        "pinned": 31,
        "novel": 40,
        "fresh": 24,
        "last": 29,
        "recent": 20,
        "sight": 29,
        "newest": 20,
        "strange": 20,
        "foreign": 20,
    }
    assert {name: len(part) for name, part in PARTS.items() if len(part) < least.get(name, 0)} == {}
    assert sum(map(len, PARTS.values())) == len(THREADS)
