"""What a killed envkit leaves in an engine: how it is known, so that the next one takes it away."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

DRAFT = "envkit-draft"  # what an image is named while it is built, with the time, its process and a number of its own
_DRAFT_S = 24 * 3600.0  # far beyond any build's budget


def new_draft() -> str:
    """A name for an image that is being built by this process."""
    return f"{DRAFT}:{int(time.time())}-{pid_space()}-{os.getpid()}-{uuid.uuid4().hex}"


def abandoned(listed: Sequence[Mapping[str, Any]], own: str) -> list[str]:
    """The containers in the engine's list that were made and never started, a minute and more before ``own``: their
    envkit was killed in the tenth of a second between the two, and with it what should have removed them."""
    made = {str(entry["Id"]): int(entry["Created"]) for entry in listed}
    never_started = [str(entry["Id"]) for entry in listed if entry["State"] == "created"]
    return [one for one in never_started if made[one] < made.get(own, 0) - 60]


def stale_drafts(tags: Iterable[str], now: float) -> list[str]:
    """The drafts whose envkit was killed on this machine, and all that are older than a day; ``now`` is in seconds
    since 1970.

    A younger one of a process that lives, or of another machine, may be built now.
    """
    begun = [(tag, re.fullmatch(rf"{DRAFT}:([0-9]+)-([0-9a-f]+)-([0-9]+)-[0-9a-f]+(?:-ahead)?", tag)) for tag in tags]
    here = pid_space()
    return [
        tag
        for tag, of in begun
        if of and (now - int(of[1]) > _DRAFT_S or (of[2] == here and not Path("/proc", of[3]).exists()))
    ]


def pid_space() -> str:
    """A name of what process numbers mean anything in: this start of this machine and the namespace of processes."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux: no other process's drafts are told from this one's
        start = uuid.uuid4().hex
    return sha256(start.encode()).hexdigest()[:12]
