"""The pages of the checks: what each asks, why, what to do, and the examples that prove it; and those of failures.

A page is ``kb/<check id>.md``.  Pages of machines and launches say under Source, in a list, what the check reads, its
threshold with the threshold's origin, and the severities that it gives; their examples name the fault they plant.
The page of a kind of failure is its row of ``logs/failures/*.jsonl``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from envkit.errors import UsageError
from envkit.logs.knowledge import failures
from envkit.logs.records import Failure
from envkit.records import dataclass

_FOLDER = Path(__file__).parents[1] / "kb"
_OUTCOMES = ("fails", "passes", "skips", "unknown")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TOLD = re.compile(r"- (reads|threshold|severity): (.+)")


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced block that proves a check: the subject's kind, "fails", "passes", "skips" or "unknown", and the planted
    fault.

    ``text`` is a subject as JSON (```` ```json host fails words ````) or a file that people write, of the kind that the
    fence names (```` ```dockerfile fails words ````).
    """

    kind: str
    outcome: str
    fault: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page; ``sections`` are its headings with their text, ``told`` what Source says of reads, threshold and
    severity, each empty if it does not."""

    check: str
    title: str
    sections: Mapping[str, str]
    told: Mapping[str, str]
    examples: tuple[Example, ...]


def names() -> tuple[str, ...]:
    """The checks that have a page."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.md")))


def load(check: str) -> Page:
    """The page of a check; raises UsageError, naming the nearest, if there is none."""
    path = _FOLDER / f"{check}.md"
    if not _NAME.fullmatch(check) or not path.is_file():
        from difflib import get_close_matches

        near = get_close_matches(check.lower(), names(), 3, 0.5)
        raise UsageError(
            f"there is no check `{check}`",
            f"nearest: {', '.join(near)}" if near else "`envkit doctor --list` lists those of a machine",
        )
    return parse(check, path.read_text(encoding="utf-8"))


def parse(check: str, text: str) -> Page:
    """A page out of its text; raises ValueError where a block is left open or its fence does not say what it is."""
    examples = tuple(_examples(check, text))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    title, *parts = re.split(r"^## ", prose, flags=re.MULTILINE)
    sections = {name.strip(): body.strip() for name, _, body in (part.partition("\n") for part in parts)}
    source = re.sub(r"\n  +", " ", sections.get("Source", ""))  # an item of the list may go on in indented lines
    told = {key: value.strip() for key, value in _TOLD.findall(source)}
    return Page(check, title.strip().removeprefix("# "), sections, told, examples)


def _examples(check: str, text: str) -> Iterator[Example]:
    start, info, body = 0, "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not start and line.startswith("```"):
            start, info, body = number, line.removeprefix("```"), []
        elif start and line.rstrip() == "```":
            if info.split()[:1] == ["json"]:
                words = info.split(maxsplit=3)
                if len(words) < 3:
                    raise ValueError(f"{check}.md:{start} does not say of what it is an example")
                yield Example(words[1], words[2], words[3] if len(words) > 3 else "", "\n".join(body), start)
            elif info.split()[1:2] and info.split()[1] in _OUTCOMES:
                kind, outcome, *fault = info.split(maxsplit=2)
                yield Example(kind, outcome, fault[0] if fault else "", "\n".join(body) + "\n", start)
            start = 0
        else:
            body.append(line)
    if start:
        raise ValueError(f"{check}.md:{start} opens a block and does not close it")


def told(page: Page) -> str:
    """The page for a person: title, why, fix, source, and the faults that prove it."""
    parts = [page.check, "", page.title, ""]
    for name, body in page.sections.items():
        parts += [f"{name}:", *(f"  {line}" for line in body.splitlines()), ""]
    faults = [example.fault for example in page.examples if example.outcome == "fails" and example.fault]
    if faults:
        parts += ["Proven by these faults:", *(f"  - {fault}" for fault in faults), ""]
    return "\n".join(parts).rstrip() + "\n"


def failure(word: str) -> Failure | None:
    """The kind of failure of this id, or that has it among several ("xid-64" of "xid-63/64"); None if there is none."""
    wanted = word.casefold()
    for name, found in failures().items():
        first, *more = name.casefold().split("/")
        stem = first.rpartition("-")[0]
        if wanted in (name.casefold(), first, *(f"{stem}-{each.split()[0]}" for each in more)):
            return found
    return None


def nearest(word: str) -> tuple[str, ...]:
    """The ids of checks and failures that are most like ``word``, the most like first; at most three."""
    from difflib import get_close_matches

    return tuple(get_close_matches(word.lower(), (*names(), *failures()), 3, 0.6))


def told_failure(found: Failure) -> str:
    """A kind of failure for a person: its causes, what tells them apart, commands, fixes, source."""
    width = max(map(len, found.causes), default=0)
    fixes = [f"  {f'{cause}: ' if cause else ''}{text}" for cause, text in found.fix.items()]
    parts = [
        ("Causes, the most usual first", [f"  {cause:<{width}}  {text}" for cause, text in found.causes.items()]),
        ("What tells them apart", [f"  - {text}" for text in found.decide]),
        ("Next", [f"  {text}" for text in found.next]),
        ("Fix", fixes),
        ("Source", [f"  {found.source} (seen {found.seen})"]),
    ]
    lines = [found.id, "", found.title, ""]
    for name, body in parts:
        lines += [f"{name}:", *body, ""] if body else []
    return "\n".join(lines).rstrip() + "\n"
