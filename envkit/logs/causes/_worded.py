"""Hypotheses whose words are rows (``hypotheses/*.jsonl``): the code sees what is there, the row says what it means."""

from __future__ import annotations

from collections.abc import Iterable

from envkit.logs.knowledge import wordings
from envkit.logs.records import Event, Hypothesis, Line, Strength


def worded(
    id: str,
    /,
    *evidence: Event | Line | None,
    strength: Strength | None = None,
    cause: str = "",
    over: Iterable[str] | None = None,
    **values: object,
) -> Hypothesis:
    """The hypothesis of a row, resting on these lines, each once, with ``values`` in its sentence.

    A row without a category is told as the first event's.  ``strength``, ``cause`` and ``over`` replace the row's.
    """
    row = wordings()[id]
    first = evidence[0]
    category = row.category or (first.category if isinstance(first, Event) else "")
    lines = (each.line if isinstance(each, Event) else each for each in evidence if each is not None)
    explained = row.over if over is None else tuple(over)
    return Hypothesis(
        category,
        cause or row.cause,
        Strength[row.strength.upper()] if strength is None else strength,
        tuple(dict.fromkeys(lines)),
        row.because.format_map(values),
        row.decide_by.format_map(values),
        row.fix.format_map(values),
        row.next,
        over=explained if row.category else tuple(each for each in explained if each != category),
    )
