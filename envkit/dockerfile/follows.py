"""What tells the reader of a Dockerfile what a command of pip or uv really does: somebody who asks a package index."""

from __future__ import annotations

from typing import Protocol

from envkit.records import dataclass
from envkit.subjects.dockerfile import Base, Install
from envkit.subjects.resolved import Environment, Resolved


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of one command: its ``installs`` with the releases that they got, without those that changed nothing;
    ``brought`` are torch and its kin that came along, each with the install that asks for it; ``environment`` what is
    there afterwards, and ``record`` what is to be said of it."""

    installs: list[Install]
    brought: tuple[tuple[Install, Install], ...]
    environment: Environment
    record: Resolved | None = None

    @property
    def open(self) -> bool:
        """Whether nobody said what comes of the command."""
        return self.record is None or bool(self.record.unanswered or self.record.refused)


class Follower(Protocol):
    """Follows the installs of a build, one command after the other."""

    def begins(self, base: Base) -> Environment:
        """What the Python of a base holds, as far as the facts know."""
        ...

    def took(self, installs: list[Install], before: Environment, base: Base) -> Taken:
        """What one command makes of an environment; its installs all go into that one."""
        ...


def follow(follower: Follower, installs: list[Install], held: dict[str, Environment], base: Base) -> Taken | None:
    """What one command makes of the environments in ``held``, by folder, which then hold it; None for one that is not
    of pip or uv alone into one folder."""
    prefixes = {one.prefix for one in installs if one.manager in ("pip", "uv", "conda", "poetry", "source")}
    if len(prefixes) != 1:
        return None
    (prefix,) = prefixes
    below = held.get(prefix)
    if below is None:  # a user's own folder lies on top of what the Python has; others begin empty
        below = next(iter(held.values()), {}) if prefix.endswith("/.local") or not prefix else {}
    taken = follower.took(installs, below, base)
    held[prefix] = taken.environment
    return taken
