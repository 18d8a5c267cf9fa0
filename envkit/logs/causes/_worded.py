"""Hypotheses whose words are rows (``hypotheses/*.jsonl``): the code sees what is there, the row says what it means."""

from __future__ import annotations

from collections.abc import Iterable

from envkit.logs.knowledge import wordings
from envkit.logs.records import Event, Hypothesis, Line, Strength, Wording


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
        _strength(row, strength),
        tuple(dict.fromkeys(lines)),
        row.because.format_map(values),
        row.decide_by.format_map(values),
        row.fix.format_map(values),
        row.next,
        over=explained if row.category else tuple(each for each in explained if each != category),
    )


def _strength(row: Wording, given: Strength | None) -> Strength:
    """The row's unless one is given; more than the usual reading a row of that kind never is."""
    own = Strength[row.strength.upper()]
    if given is None:
        return own
    return min(given, own) if own is Strength.USUAL else given
