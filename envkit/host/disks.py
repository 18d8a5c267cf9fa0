"""Room on file systems; runs as a child, for statvfs hangs on a network file system whose server is gone.

Prints one value a line, so that a hang costs only what comes after it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from envkit.model import Observed
from envkit.subjects.codec import to_plain
from envkit.subjects.host import Disk


def shm(root: Path) -> Observed[int]:
    """The size of /dev/shm in bytes."""
    try:
        seen = os.statvfs(root / "dev/shm")
    except OSError as error:
        return Observed.lost(f"/dev/shm: {(error.strerror or str(error)).lower()}", "statvfs")
    return Observed.of(seen.f_blocks * seen.f_frsize, "statvfs")


def room(use: str, path: str, root: Path) -> Disk:
    """The bytes an ordinary process may still write where ``path`` is or, until it exists, its nearest
    parent.
    """
    place = root / path.lstrip("/")
    while not place.exists() and place != root:
        place = place.parent
    try:
        seen = os.statvfs(place)
    except OSError as error:
        lost: Observed[int] = Observed.lost((error.strerror or str(error)).lower(), "statvfs")
        return Disk(use, path, lost, lost)
    free, total = seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize
    return Disk(use, path, Observed.of(free, "statvfs"), Observed.of(total, "statvfs"))


if __name__ == "__main__":
    base = Path(sys.argv[1])
    print(json.dumps({"shm": to_plain(shm(base))}), flush=True)
    for wish in sys.argv[2:]:
        purpose, _, where = wish.partition("=")
        print(json.dumps({purpose: to_plain(room(purpose, where, base))}), flush=True)
