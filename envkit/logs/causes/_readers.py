"""Makes readers of stories of functions that read one event: the one that a failure is told by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps

from envkit.facts import Facts
from envkit.logs.causes._cuda import first
from envkit.logs.causes._setup import roots_of
from envkit.logs.records import Event, Hypothesis
from envkit.logs.story import Story

EventReader = Callable[[Story, Facts, Event], Iterator[Hypothesis]]
Reader = Callable[[Story, Facts], Iterator[Hypothesis]]


def of_category(category: str) -> Callable[[EventReader], Reader]:
    """Reads the first root of a category that stopped something, else the first that only warned."""
    return _of(lambda story: first(story.in_category(category)))


def of_root(category: str, *preferred: str) -> Callable[[EventReader], Reader]:
    """Reads the first root of a category, those of the signatures in ``preferred`` first."""
    return _of(lambda story: next(iter(roots_of(story, category, *preferred)), None))


def _of(find: Callable[[Story], Event | None]) -> Callable[[EventReader], Reader]:
    def made(read: EventReader) -> Reader:
        @wraps(read)
        def reader(story: Story, facts: Facts) -> Iterator[Hypothesis]:
            if (event := find(story)) is not None:
                yield from read(story, facts, event)

        return reader

    return made
