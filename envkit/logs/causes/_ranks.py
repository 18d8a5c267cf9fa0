"""What the readers of many ranks' lines share."""

from __future__ import annotations

from collections.abc import Iterable

from envkit.logs.records import Event, Line, Role
from envkit.logs.story import Story

_LETTERS = "bcdefghijk"


def stem(event: Event) -> str:
    """The id of the event's signature without the letter that tells wordings of the same thing apart."""
    name = event.signature.id
    return name[:-2] if name[-2:-1] == "-" and name[-1] in _LETTERS else name


def family(story: Story, *stems: str, roots: bool = True) -> tuple[Event, ...]:
    """The events of these signatures in all their wordings; with ``roots`` only those that can be the cause."""
    wanted = set(stems)
    return tuple(event for event in (story.roots if roots else story.events) if stem(event) in wanted)


def quoted(events: Iterable[Event], most: int = 2) -> tuple[Line, ...]:
    """The lines to quote: the first event's, then those of other processes that say the same."""
    chosen: list[Line] = []
    for event in events:
        if all(event.line.process != line.process for line in chosen):
            chosen.append(event.line)
        if len(chosen) == most:
            break
    return tuple(chosen)


def independent(story: Story) -> tuple[Event, ...]:
    """The events that began by themselves: no reports of a failure elsewhere, nothing the program survived."""
    return tuple(
        event
        for event in story.events
        if event.role is Role.ROOT and event.category and not event.has("late") and not event.has("warning")
    )
