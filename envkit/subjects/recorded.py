"""What every subject has that can be saved and read back by another version."""

from __future__ import annotations

from dataclasses import field

from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class Recorded:
    """``newer_fields`` are those of the document it was read from that this version does not know ("nvml.gpus[].x").

    What they say may matter, so such a subject is undecided at best; a newer version can judge it.
    """

    newer_fields: tuple[str, ...] = field(default=(), kw_only=True)
