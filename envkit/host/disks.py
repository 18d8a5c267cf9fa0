"""Room on file systems: statvfs hangs on a network file system whose server is gone."""

from __future__ import annotations

import json
import os
from pathlib import Path

from envkit.host.place import Place, Source
from envkit.model import Observed
from envkit.subjects.host import Disk

_DOCKER_ROOT = "/var/lib/docker"


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


def docker_root(place: Place) -> str:
    """Where Docker keeps its images: daemon.json's data-root or the default."""
    try:
        root = json.loads(place.word("etc/docker/daemon.json")).get("data-root")
    except (OSError, ValueError, AttributeError):  # what is wrong with that file is another source's to say
        root = None
    return root if isinstance(root, str) and root else _DOCKER_ROOT


SOURCES: dict[str, Source] = {
    "shm": lambda place: shm(place.root),
    "disks": lambda place: Observed.of(
        (
            room("temporary", place.environ.get("TMPDIR") or "/tmp", place.root),
            room("images", docker_root(place), place.root),
        ),
        "statvfs",
    ),
}
