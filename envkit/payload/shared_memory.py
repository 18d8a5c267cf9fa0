"""Removes what killed processes left in shared memory, which outlives them: a file in /dev/shm is no process's own."""

from __future__ import annotations

import os

_FOLDER = "/dev/shm"
# NCCL's transport, torch's shared tensors, Python's multiprocessing (semaphores and blocks), CUDA's IPC
_NAMES = ("nccl-", "torch_", "sem.mp-", "sem.loky-", "psm_", "cuda.shm.")
_SLACK_S = 1.0  # the clock that stamps files lags behind by up to a tick


def _in_use() -> set[tuple[int, int]]:
    """Device and inode of every file that a living process, as far as it can be seen, has mapped or open."""
    used = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
                for line in file:
                    if _FOLDER in line:
                        fields = line.split(None, 5)
                        major, minor = (int(part, 16) for part in fields[3].split(":"))
                        used.add((os.makedev(major, minor), int(fields[4])))
            for number in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{number}").startswith(_FOLDER):
                    found = os.stat(f"/proc/{pid}/fd/{number}")
                    used.add((found.st_dev, found.st_ino))
        except OSError:  # it ended meanwhile, or is another user's, whose files are not touched either
            continue
    return used


def sweep(since: float) -> list[str]:
    """Removes this user's files of the known names that appeared after ``since`` and that nobody uses; their names.

    ``since`` is in seconds of ``time.time``.  Whoever makes such a file maps it at once, so that one in nobody's maps
    has lost its owner.  Raises nothing.
    """
    try:
        names = [name for name in os.listdir(_FOLDER) if name.startswith(_NAMES)]
    except OSError:
        return []
    used = _in_use() if names else set()
    removed = []
    for name in names:
        path = os.path.join(_FOLDER, name)
        try:
            found = os.lstat(path)
            mine = found.st_uid == os.geteuid() and found.st_ctime >= since - _SLACK_S
            if mine and (found.st_dev, found.st_ino) not in used:
                os.unlink(path)
                removed.append(name)
        except OSError:
            continue
    return removed
