"""The changes between two things, as text for a person and as JSON for a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envkit import __version__
from envkit.diff.compare import Change, Weight
from envkit.report.json import text
from envkit.report.text import visible

SCHEMA = "envkit.diff/1"

_MANY = 6  # plain changes of one kind that a text still lists one by one
_NAMED = 3  # of more than that, so many are named


def render_text(changes: Sequence[Change], old: str, new: str) -> str:
    """The changes for a person, under their weights; many plain ones of a kind become a count and the first names.

    ``old`` and ``new`` name what was compared.
    """
    if not changes:
        return f"{visible(old)} -> {visible(new)}: no change\n"
    counts = {weight: sum(1 for change in changes if change.weight is weight) for weight in reversed(Weight)}
    summary = ", ".join(f"{count} {weight.name.lower()}" for weight, count in counts.items() if count)
    lines = [f"{visible(old)} -> {visible(new)}: {summary}"]
    for weight, count in counts.items():
        if count:
            lines += ["", weight.name.lower()]
            lines += [f"  {visible(text)}" for text in _told([change for change in changes if change.weight is weight])]
    return "\n".join(lines) + "\n"


_GROUPED = {
    "wheel-added": ("adds", "wheels"),
    "wheel-removed": ("removes", "wheels"),
    "wheel-changed": ("changes", "wheels"),
    "deb-added": ("adds", "Debian packages"),
    "deb-removed": ("removes", "Debian packages"),
    "deb-changed": ("changes", "Debian packages"),
}


def _told(changes: Sequence[Change]) -> Iterator[str]:
    """The texts, those of a grouped kind that are too many as one line at the place of the first."""
    by_kind: dict[str, list[Change]] = {}
    for change in changes:
        by_kind.setdefault(change.kind, []).append(change)
    for change in changes:
        same = by_kind[change.kind]
        if change.kind not in _GROUPED or len(same) <= _MANY:
            yield change.text
        elif change is same[0]:
            verb, things = _GROUPED[change.kind]
            some = ", ".join(one.text.removeprefix(f"{verb} ") for one in same[:_NAMED])
            yield f"{verb} {len(same)} {things}: {some} and {len(same) - _NAMED} more"


def to_json(changes: Sequence[Change], kind: str, old: str, new: str) -> str:
    """The changes as one JSON document (ASCII), every one of them by itself.

    ``kind`` is what was compared ("lock", "spec", "image"), ``old`` and ``new`` name the two.
    """
    document = {
        "schema": SCHEMA,
        "tool": {"name": "envkit", "version": __version__},
        "subject": {"kind": kind, "old": old, "new": new},
        "same": not changes,
        "changes": [
            {"kind": one.kind, "weight": one.weight.name.lower(), "text": one.text, "old": one.old, "new": one.new}
            for one in changes
        ],
    }
    return text(document)
