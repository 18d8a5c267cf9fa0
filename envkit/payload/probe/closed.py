"""Which files of torch and of what it needs the user of this process may not read, and which folders not enter.

Root may read all, so a container that starts as root says nothing of another user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from envkit.payload.probe import wheels

_MOST = 50  # rows: a folder that is closed hides what lies in it


def _row(path: str) -> dict[str, object]:
    status = os.stat(path)
    mode, folder = f"{status.st_mode & 0o7777:04o}", os.path.isdir(path)
    return {"path": path, "mode": mode, "uid": status.st_uid, "gid": status.st_gid, "folder": folder}


def _behind(path: str) -> str:
    """The first folder on the way to ``path`` that may not be entered, else ``path`` itself."""
    parts = path.split("/")
    for at in range(2, len(parts)):
        folder = "/".join(parts[:at])
        if not os.access(folder, os.X_OK):
            return folder
    return path


def _asked(dists: Iterable[wheels.Dist], needed: frozenset[str]) -> Iterable[str]:
    """The files that a job reads: all of the CUDA stack's, and of what torch needs the packages' first files."""
    for dist in dists:
        if wheels.is_cuda(dist.name):
            yield from (entry.path for entry in wheels.entries(dist, bool))
        elif dist.name in needed:
            wanted = wheels.entries(dist, lambda name: name.endswith("__init__.py") or ".so" in name or "/" not in name)
            yield from (entry.path for entry in wanted)


def closed(dists: list[wheels.Dist], needed: frozenset[str]) -> list[dict[str, object]]:
    """The files and folders that are there and that this process may not read or enter, 50 at most.

    ``needed`` are the distributions that torch requires.  The search path's own folders are asked as well.
    """
    if os.geteuid() == 0:
        return []
    found: dict[str, dict[str, object]] = {}
    for path in [*map(os.path.abspath, filter(None, sys.path)), *_asked(dists, needed)]:
        if len(found) == _MOST:
            break
        if os.access(path, os.R_OK):
            continue
        place = _behind(path)
        try:
            if place not in found and not os.access(place, os.X_OK if place != path else os.R_OK):
                found[place] = _row(place)
        except OSError:
            continue  # it is not there, which another field tells
    return list(found.values())
