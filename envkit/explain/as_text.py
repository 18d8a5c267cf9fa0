"""An explanation for a person at a terminal, and as one JSON document of the shape ``explain-1.schema.json``.

Both show it after credentials were taken out; what a log says cannot steer the terminal.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from envkit import __version__
from envkit.credentials import redacted_text
from envkit.doctor import anonymize
from envkit.logs.records import Explanation, Line, Mark, RankState, Role
from envkit.records import dataclass
from envkit.report.json import text as json_text
from envkit.report.text import visible, wrapped

SCHEMA = "envkit.explain/1"
TIMELINE = 12  # lines of it that a terminal shows unless more are asked for

_NARROWEST = 40  # columns; below it nothing is readable, so that lines run over instead
_QUOTED = 3  # rows of a terminal that one line of a log may take
_LONGEST = 2000  # characters of it that are shown where no terminal says how wide it is
_LABEL = 11  # columns of "decide by: "
_MOST_ROWS = 64  # of the hang table
_COLORS = {Role.ROOT: "1;31", Role.CASCADE: "33", Role.DIAGNOSTIC: "36", Role.ADVICE: "2"}
_WORDS = ((0.9, "almost certain"), (0.7, "likely"), (0.5, "possible"), (0.0, "a guess"))
# words of envkit's own, which are no credential whatever they look like
_OWN = ("category", "cause", "role", "source", "clock", "strength")


def safe(found: Explanation) -> Explanation:
    """The explanation without the passwords, tokens and keys that its texts show."""
    plain = anonymize.changed(msgspec.to_builtins(found), lru_cache(maxsize=None)(redacted_text), _OWN)
    return msgspec.convert(plain, Explanation)


def is_known(found: Explanation) -> bool:
    """Whether it names a cause; a log that tells of no failure is no proof that there was none."""
    return found.category != "insufficient-evidence" and found.cause not in ("unknown", "unknown-cut-log")


def sureness(confidence: float) -> str:
    """The confidence in words."""
    return next(word for least, word in _WORDS if confidence >= least)


def page(category: str) -> str:
    """The command that prints the page of a kind of failure."""
    return f"envkit explain {shlex.quote(category)}"


def quoted(line: Line) -> str:
    """The line as it was written."""
    return line.raw or line.text


def shortened(timeline: Sequence[Mark], most: int) -> tuple[Mark, ...]:
    """At most so many marks in their order: roots first, then consequences, of each the earliest."""
    rank = {role: index for index, role in enumerate((Role.ROOT, Role.CASCADE, Role.DIAGNOSTIC, Role.ADVICE))}
    if len(timeline) <= most:
        return tuple(timeline)
    kept = sorted(range(len(timeline)), key=lambda at: (rank[timeline[at].role], at))[: max(most, 0)]
    return tuple(timeline[at] for at in sorted(kept))


# JSON.


def document(found: Explanation, most: int | None = None) -> str:
    """The explanation as one JSON document in ASCII; ``most`` bounds the timeline, None keeps all of it."""
    if most is not None:
        found = replace(found, timeline=shortened(found.timeline, most))
    found = safe(found)
    rival = found.runner_up
    plain = {
        "schema": SCHEMA,
        "tool": {"name": "envkit", "version": __version__},
        "category": found.category,
        "cause_class": found.cause,
        "confidence": found.confidence,
        "because": found.because,
        "evidence": [_mark(mark) for mark in found.evidence],
        "runner_up": rival and {"category": rival.category, "cause_class": rival.cause, "because": rival.because},
        "decide_by": found.decide_by,
        "next": list(found.next),
        "fix": found.fix,
        "page": page(found.category),
        "timeline": [_moment(mark) for mark in found.timeline],
        "ranks": [msgspec.to_builtins(each) for each in found.ranks],
        "files": [
            {"name": seen.name, "lines": seen.lines, "bytes": seen.bytes, "binary": seen.binary, "cut": seen.cut}
            for seen in found.files
        ],
        "versions": dict(found.versions),
    }
    return json_text(plain)


def _mark(mark: Mark) -> dict[str, Any]:
    line = mark.line
    return {"file": line.file, "line": line.number, "text": quoted(line), "role": mark.role.value}


def _moment(mark: Mark) -> dict[str, Any]:
    line = mark.line
    more = {"what": mark.what, "source": line.source, "rank": line.rank, "host": line.host, "times": line.times}
    return {**_mark(mark), **more, "time_s": line.time_s, "clock": line.clock}


# The terminal.


def render(found: Explanation, color: bool = False, width: int = 100, most: int = TIMELINE) -> str:
    """Verdict, evidence, ranks, the runner-up with what would decide, fix, next steps; lines of at most ``width``
    columns but for words that are longer.  ``most`` bounds the lines of the timeline, 0 leaves it out."""
    shown = shortened(found.timeline, most)
    left_out = len(found.timeline) - len(shown)
    found = safe(replace(found, timeline=shown))
    width = max(width, _NARROWEST)
    blocks = (
        _verdict(found, color, width),
        _evidence(found, color, width),
        _ranks(found.ranks, color, width),
        _answers(found, width),
        _timeline(found, left_out, color, width),
    )
    return "\n".join("".join(f"{line}\n" for line in lines) for block in blocks if (lines := list(block)))


def _painted(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color and text else text


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())


def _verdict(found: Explanation, color: bool, width: int) -> Iterator[str]:
    known = is_known(found)
    word = "FOUND" if known else "UNDECIDED"
    sure = f"{sureness(found.confidence)}, {found.confidence:.2f}"
    cause = "" if found.cause == "unknown" else f"; cause: {found.cause}"
    lines = wrapped(_one_line(f"{word}: {found.title}{cause} ({sure})"), width, rest="  ")
    yield _painted(word, "1;31" if known else "1;33", color) + lines[0].removeprefix(word)
    yield from lines[1:]
    yield from wrapped(_one_line(found.because), width, "  ", "  ")


def _evidence(found: Explanation, color: bool, width: int) -> Iterator[str]:
    if found.evidence:
        yield "evidence"
    for mark in found.evidence:
        yield from _quote(mark, color, width)


def _quote(mark: Mark, color: bool, width: int) -> Iterator[str]:
    """Its place and part, and below it the line, cut where the message ends or the room does."""
    times = f", {mark.line.times} times" if mark.line.times > 1 else ""
    role = _painted(mark.role.value, _COLORS[mark.role], color)
    yield f"  {_one_line(mark.line.place)}: {role}{times}"
    yield from (f"    | {row}" for row in _rows(mark.line, width - 6))


def _rows(line: Line, width: int) -> list[str]:
    text = visible(quoted(line)).expandtabs(4).replace("\n", " ").rstrip()
    room = min(width * _QUOTED, _LONGEST)
    said = visible(line.text).strip()
    if len(text) > room and said and (at := text.find(said[:80])) > 0:
        text = f"...{text[at:]}"
    return textwrap.wrap(_cut(text, room), width, break_on_hyphens=False) or [""]


def _cut(text: str, room: int) -> str:
    """At most ``room`` characters of the text, between two words unless one is longer than half of that."""
    if len(text) <= room:
        return text
    kept = text[: room - 3]
    blank = kept.rfind(" ")
    return f"{kept[:blank] if blank > room // 2 else kept} ..."[:room]


def _ranks(ranks: Sequence[RankState], color: bool, width: int) -> Iterator[str]:
    """The hang table."""
    if not ranks:
        return
    yield f"ranks ({len({state.rank for state in ranks})})"
    found, left_out = rows(ranks)
    shown = [(row.ranks, *row.cells, "silent" if row.silent else "") for row in found]
    heads = ("rank", "group", "enqueued", "completed", "operation", "")
    columns = [at for at in range(len(heads)) if any(cells[at] for cells in shown)]
    widths = {at: max(len(heads[at]), *(len(cells[at]) for cells in shown)) for at in columns}
    for row, cells in zip((None, *found), (heads, *shown), strict=True):
        text = "  " + "  ".join(f"{cells[at]:<{widths[at]}}" for at in columns).rstrip()
        yield _painted(text, "1;31", color) if row and row.silent else text
        if row and row.where:
            yield from wrapped(_one_line(row.where), width, "    in ", "       ")
    if left_out:
        yield f"  and {left_out} more"


@dataclass(frozen=True, slots=True)
class RankRow:
    """Ranks of which the logs say the same: ``ranks`` as "0-4, 6"; ``cells`` are group, last enqueued, last completed
    and operation, each empty where it is not known."""

    ranks: str
    cells: tuple[str, ...]
    where: str
    silent: bool


def rows(ranks: Sequence[RankState]) -> tuple[tuple[RankRow, ...], int]:
    """The hang table, ranks that say the same in one row, and how many states it leaves out.

    Of very many rows those of the silent and of the fewest ranks are kept.
    """
    alike: dict[tuple[str, int | None, int | None, str, str, bool], set[int]] = {}
    for state in ranks:
        said = (state.group, state.enqueued, state.completed, state.operation, state.where, state.silent)
        alike.setdefault(said, set()).add(state.rank)
    order = sorted(alike, key=lambda said: (not said[-1], len(alike[said])))[:_MOST_ROWS]
    found = tuple(
        RankRow(
            ranges(alike[said]),
            (_one_line(said[0]), *("" if number is None else str(number) for number in said[1:3]), _one_line(said[3])),
            said[4],
            said[5],
        )
        for said in sorted(order, key=lambda said: min(alike[said]))
    )
    return found, sum(len(many) for said, many in alike.items() if said not in order)


def ranges(numbers: set[int]) -> str:
    """The numbers in order, runs as "0-4"."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _answers(found: Explanation, width: int) -> Iterator[str]:
    told: list[tuple[str, Iterable[str]]] = []
    if rival := found.runner_up:
        told.append(("or else", [f"{rival.category}, {rival.cause}: {rival.because}"]))
    told.append(("decide by", [found.decide_by] if found.decide_by else []))
    told.append(("fix", [found.fix] if found.fix else []))
    told.append(("next", found.next))
    told.append(("versions", [", ".join(f"{name} {value}" for name, value in found.versions.items())]))
    told.append(("page", [page(found.category)]))
    for label, texts in told:
        for at, text in enumerate(each for each in texts if each):
            head = f"{label}:" if at == 0 else ""
            yield from wrapped(_one_line(text), width, f"{head:<{_LABEL}}", " " * _LABEL)


def _timeline(found: Explanation, left_out: int, color: bool, width: int) -> Iterator[str]:
    if len(found.timeline) < 2:  # one line is no story
        return
    of = f" of {len(found.timeline) + left_out}" if left_out else ""
    yield f"timeline ({len(found.timeline)}{of} lines)"
    for mark in found.timeline:
        line = mark.line
        who = f" rank {line.rank}" if line.rank is not None else ""
        from_ = f" {line.source}" if line.source != "program" else ""
        head = f"  {mark.role.value:<10}  {_one_line(line.place)}{who}{from_}: "
        text = _cut(head + _one_line(line.text), min(width, _LONGEST)).rstrip()
        yield text.replace(mark.role.value, _painted(mark.role.value, _COLORS[mark.role], color), 1)
