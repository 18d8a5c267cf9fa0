"""What the readers of many ranks' lines share."""

from __future__ import annotations

from collections.abc import Iterable

from envkit.logs.codes import signal_of
from envkit.logs.records import Event, Line, Role
from envkit.logs.story import Story

_LETTERS = "bcdefghijk"
_EXITS = ("elastic-exit", "elastic-report-exit", "lightning-child", "deepspeed-exit", "spawn-exited", "srun-exit")
_WATCHDOGS_END = (0, 1, -6, 134, -15, 143)  # a watchdog aborts its process and the launcher terminates the others


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


def ended_otherwise(story: Story) -> tuple[Line, str] | None:
    """The first process that ended by a signal which no watchdog and no launcher sends."""
    for event in story.events:
        if stem(event) in _EXITS:
            text = event.values.get("exit") or ""
            code = int(text) if text.lstrip("-").isdigit() else 0
            name = event.values.get("signal") or signal_of(code)
            if name and code not in _WATCHDOGS_END and name not in ("SIGABRT", "SIGTERM"):
                return event.line, name
    return None
