"""A resource limit, of the machine or of a job."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from envkit.records import dataclass

Told = Annotated[int, Meta(ge=-1)]  # a count, -1 where there is none (or no limit)


@dataclass(frozen=True, slots=True)
class Limit:
    """A resource limit, -1 for unlimited; bytes for memlock and stack, files for nofile."""

    soft: Told
    hard: Told
