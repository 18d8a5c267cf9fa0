"""An explanation as one HTML page: the answer, the evidence, who waited for whom, and the marks of all ranks in lanes.

No script and nothing loaded from elsewhere; its size is bounded whatever was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from envkit.explain import as_text
from envkit.logs.records import Explanation, Line, Mark, Role
from envkit.records import dataclass
from envkit.report.page import filled

MOST_MARKS = 10_000  # that are drawn
_MOST_LISTED = 400  # lines below the drawing
_MOST_LANES = 80
_COLUMNS = 120  # of the drawing; marks that fall into one column of a lane are one cell
_WIDEST = 1.0  # percent; a mark is a moment, not a duration
_QUOTED = 2000  # characters of a line
_TOLD = 160  # characters of a line in a cell's tip
_ORDER = (Role.ROOT, Role.CASCADE, Role.DIAGNOSTIC, Role.ADVICE)


@dataclass(frozen=True, slots=True)
class _Cell:
    """Marks of one lane that stand at one place; ``left`` and ``width`` in percent, ``link`` the row that lists it."""

    role: str
    left: float
    width: float
    tip: str
    link: str
    chosen: bool


def render(found: Explanation) -> str:
    """The page."""
    marks = as_text.shortened(found.timeline, MOST_MARKS)
    left_out = len(found.timeline) - len(marks)
    found = as_text.safe(replace(found, timeline=marks))
    places = {(mark.line.file, mark.line.number) for mark in found.evidence}
    listed = _listed(found.timeline, places)
    lanes, hidden = _lanes(found.timeline, places, listed)
    ranks, ranks_left_out = as_text.rows(found.ranks)
    return filled(
        "explained.html.j2",
        {
            "found": found,
            "known": as_text.is_known(found),
            "sure": as_text.sureness(found.confidence),
            "page": as_text.page(found.category),
            "evidence": evidence(found),
            "ranks": ranks,
            "ranks_left_out": ranks_left_out,
            "lanes": lanes,
            "lanes_hidden": hidden,
            "clock": _clock(found.timeline),
            "rows": [_row(at, found.timeline[at]) for at in listed],
            "marks": len(found.timeline),
            "left_out": left_out,
        },
    )


def evidence(found: Explanation) -> list[tuple[Mark, str]]:
    """The evidence, each mark with its line as far as a page quotes it; ``found`` went through `as_text.safe`."""
    return [(mark, _cut(as_text.quoted(mark.line), _QUOTED)) for mark in found.evidence]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _lane_of(line: Line) -> str:
    """Whose line it is: the rank's with its machine if that is known, else the file's; a kernel is no rank."""
    if line.source == "kernel":
        return f"kernel {line.host}".rstrip()
    if line.rank is not None:
        return f"rank {line.rank} {line.host}".rstrip()
    return f"{line.file} ({line.source})" if line.source != "program" else line.file


def _lane_order(name: str) -> tuple[bool, int, str]:
    """Ranks by their numbers, then the others by name."""
    kind, _, rest = name.partition(" ")
    number = rest.split(" ")[0]
    is_rank = kind == "rank" and number.isdigit()
    return (not is_rank, int(number) if is_rank else 0, name)


def _listed(timeline: Sequence[Mark], evidence: set[tuple[str, int]]) -> list[int]:
    """The marks that get a row: the evidence, then by their part, of each the earliest."""
    if len(timeline) <= _MOST_LISTED:
        return list(range(len(timeline)))

    def key(at: int) -> tuple[bool, int, int]:
        mark = timeline[at]
        return ((mark.line.file, mark.line.number) not in evidence, _ORDER.index(mark.role), at)

    return sorted(sorted(range(len(timeline)), key=key)[:_MOST_LISTED])


def _lanes(
    timeline: Sequence[Mark], evidence: set[tuple[str, int]], listed: Sequence[int]
) -> tuple[list[dict[str, object]], list[str]]:
    """The lanes that are drawn, one a process (a rank, or a file of a source), and the names of those that are not."""
    columns = min(_COLUMNS, max(len(timeline), 1))
    rows = set(listed)
    cells: dict[str, dict[int, list[int]]] = {}
    for at, mark in enumerate(timeline):
        cells.setdefault(_lane_of(mark.line), {}).setdefault(at * columns // len(timeline), []).append(at)

    def best(name: str) -> int:
        return min(_ORDER.index(timeline[at].role) for many in cells[name].values() for at in many)

    told = sorted(cells, key=lambda name: (best(name), _lane_order(name)))[:_MOST_LANES]
    drawn: list[dict[str, object]] = []
    for name in sorted(told, key=_lane_order):
        shown = [_cell(timeline, many, column, columns, evidence, rows) for column, many in cells[name].items()]
        drawn.append({"name": name, "cells": shown})
    return drawn, sorted(set(cells) - set(told), key=_lane_order)


def _cell(
    timeline: Sequence[Mark], many: list[int], column: int, columns: int, evidence: set[tuple[str, int]], rows: set[int]
) -> _Cell:
    first = min(many, key=lambda at: (_ORDER.index(timeline[at].role), at))
    mark = timeline[first]
    more = f" (and {len(many) - 1} more here)" if len(many) > 1 else ""
    tip = f"{mark.role.value} {mark.line.place}: {_cut(mark.line.text, _TOLD)}{more}"
    chosen = any((timeline[at].line.file, timeline[at].line.number) in evidence for at in many)
    link = f"#m{first}" if first in rows else ""
    left, width = round(100 * column / columns, 3), round(min(100 / columns, _WIDEST), 3)
    return _Cell(mark.role.value, left, width, tip, link, chosen)


def _clock(timeline: Sequence[Mark]) -> str:
    """In what order the marks stand, and from when to when."""
    times = [mark.line.time_s for mark in timeline if mark.line.clock == "wall" and mark.line.time_s is not None]
    if timeline and len(times) == len(timeline):
        span = f"from {_wall(min(times))} to {_wall(max(times))}"
        return f"in the order of time, {span}; the spaces between are not to scale"
    return "in the order of the files and of their lines, for not every line bears a time"


def _wall(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a number that is no date
        return f"{seconds:.0f} s"


def _row(at: int, mark: Mark) -> dict[str, str]:
    """One listed line."""
    line, when = mark.line, ""
    if line.time_s is not None:
        when = _wall(line.time_s) if line.clock == "wall" else f"{line.time_s:.3f} s after boot"
    text = _cut(line.text, _QUOTED) + (f" ({line.times} times)" if line.times > 1 else "")
    said = {"when": when, "lane": _lane_of(line), "place": line.place, "text": text, "what": mark.what}
    return {"anchor": f"m{at}", "role": mark.role.value, **said}
