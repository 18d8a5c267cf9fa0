"""Causes that a single line states where the GPU is not to blame: rows (``statements/*.jsonl``) become hypotheses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.logs.knowledge import statements
from envkit.logs.records import Event, Hypothesis, Line, Strength
from envkit.logs.story import Story

INNOCENT = "not-gpu-env"
OPEN = "insufficient-evidence"
_LONGEST = 160
_MOST = 2
_OF_CTEST = re.compile(r"\s*(?:Start {1,4}\d|\d{1,6}/\d{1,6} Test )")
_COMPILER = re.compile(r":\d{1,7}: (?:fatal )?error: ")


def stated(story: Story, table: str) -> Iterator[Hypothesis]:
    """One hypothesis for each statement of ``statements/<table>.jsonl`` that a root of the story makes, resting on its
    first line."""
    known = statements(table)
    doubt = bool(gpu_roots(story))
    told: set[str] = set()
    for event in story.roots:
        says = known.get(event.signature.id)
        if says is None or event.signature.id in told:
            continue
        told.add(event.signature.id)
        strength = Strength[says.strength.upper()]
        if doubt and not says.proof:
            strength = min(strength, Strength.POSSIBLE)
        lines, because = _lines(event, story), filled(says.because, event)
        yield Hypothesis(INNOCENT, says.cause, strength, lines, because, says.decide_by, says.fix, says.next)


def _lines(event: Event, story: Story) -> tuple[Line, ...]:
    """The event's line, and the exception that says the same where a logger or a notice said it first."""
    raised = {(trace.line.file, trace.line.number) for trace in story.tracebacks}
    same = [each.line for each in story.roots if each.signature.id == event.signature.id]
    same = [line for line in same if (line.file, line.number) in raised and line != event.line]
    return (event.line, *_below(event.line, story), *_said_by_test(event, story), *same)[:_MOST]


def _said_by_test(event: Event, story: Story) -> list[Line]:
    """What a test that CTest tells as failed says of it, below the line of its verdict (--output-on-failure)."""
    if event.signature.id != "program-ctest-failed":
        return []
    name, number = re.escape(event.values["name"]), event.line.text.split()[0]
    verdict = re.compile(rf"\s*\d{{1,6}}/\d{{1,6}} Test {{1,4}}#{number}: {name} .{{0,300}}\*\*\*")
    numbered = re.compile(rf"(?:.{{1,80}}[Z|] )?{number}: (?!Test (?:command|timeout)|Working Directory|Environment)\S")
    kept = {each.number: each for seen in story.files if seen.name == event.line.file for each in seen.kept}
    if own := [n for n in sorted(kept) if numbered.match(kept[n].raw)]:  # ctest -V
        return [kept[own[-1]]]
    failed = next((n for n in sorted(kept) if verdict.match(kept[n].text)), None)
    said = kept.get(failed + 1) if failed is not None else None
    return [said] if said is not None and re.search(r"\w", said.text) and not _OF_CTEST.match(said.text) else []


def _below(line: Line, story: Story) -> list[Line]:
    """The next line of a file where it says more: behind a colon, or as a compiler's error."""
    kept = (each for seen in story.files if seen.name == line.file for each in (*seen.head, *seen.loud, *seen.tail))
    more = next((each for each in kept if each.number == line.number + 1), None)
    tells = more is not None and (line.text.endswith(":") or _COMPILER.search(more.text) is not None)
    return [more] if more is not None and tells else []


def filled(sentence: str, event: Event) -> str:
    """The sentence with the event's values in it, and with its line as ``{text}``."""
    return sentence.format_map({"text": shortened(event.line.text), **event.values})


def shortened(text: str) -> str:
    """The text in one line that fits a sentence."""
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."


_NAMES = re.compile(
    r"'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|`[^`'\n]{1,200}[`']|\u2018[^\u2019\n]{1,200}\u2019"
    r"|(?:[\w.~-]{0,80}/){1,20}[\w.-]{0,80}|\b[\w-]{1,80}\.(?:\w{1,4}|service|socket|timer|target)\b"
)


def unquoted(text: str) -> str:
    """The text without what it only names: quoted words, paths and files, which may be called after the GPU."""
    return _NAMES.sub(" ", text)


def gpu_roots(story: Story) -> tuple[Event, ...]:
    """The roots that tell of the GPU environment and that the program did not survive."""
    return tuple(
        event for event in story.roots if event.category not in ("", INNOCENT, OPEN) and not event.has("warning")
    )
