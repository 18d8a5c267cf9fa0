"""Which files of the CUDA stack are not what their wheel brought, by size and by content.

Every listed file is compared by size.  By content what two wheels list and what was modified after its RECORD was
written, however much that is; and what was changed after it, if that is little: a time of modification can be set back,
that of the inode cannot, but a copied environment has new inodes throughout, and the inode of a file with several names
(uv links what it installs into its cache) changes with each name that comes or goes.  Then, within a budget, every
shared library, small ones before large ones, so that the budget serves as many as it can.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from envkit.payload.probe import wheels
from envkit.payload.probe.wheels import Dist, Entry

NO_RECORD = "no RECORD"  # said in place of what was found, where there is nothing to compare with
COMPARED = "RECORD: sizes, and sha256 as far as the budget goes"
# Seconds of a processor.  The import of torch, beside which this runs, takes two.
BUDGET_S = 0.5
_FEW = 1 << 30  # bytes of files that were changed after their RECORD, up to which all of them are read
_FIRST, _LAST = (
    64 << 20,
    2,
)  # bytes of small libraries that are read first; libraries changed last that are, and 100 times as many others
_SLOWEST = 400e6  # bytes a second and thread of sha256 without instructions of its own, before any was measured
_THREADS = 4  # hashlib releases the GIL
# An installer writes RECORD last.  A file that is newer by more than a file system's coarsest clock was written later.
_SLACK_NS = 2_000_000_000


class Compared(NamedTuple):
    """The files that differ, as fields of an Overwritten; the libraries and bytes read, and those that were not."""

    differing: list[dict[str, object]]
    read: int
    read_bytes: int
    left: list[str]
    left_bytes: int


class _Written(NamedTuple):
    """When a RECORD was written, in ns: by its own times and by that of its inode, if no link to it can change that."""

    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, record: os.stat_result) -> _Written:
        return cls(record.st_mtime_ns, record.st_mtime_ns if record.st_nlink > 1 else record.st_ctime_ns)


class _Listed:
    """What the RECORDs say of the files of the CUDA stack, and the status of each, None for what is not there."""

    def __init__(self, dists: Iterable[Dist]) -> None:
        self.by_path: dict[str, list[Entry]] = {}
        self.bare: list[Dist] = []
        self.apart: list[str] = []  # conda writes other search paths into libraries after RECORD was written
        self.written: dict[str, _Written] = {}
        self.status: dict[str, os.stat_result | None] = {}
        for dist in dists:
            if not wheels.is_cuda(dist.name):
                continue
            lines = wheels.entries(dist, bool)
            if not lines:
                self.bare.append(dist)
                continue
            if dist.installer == "conda":
                self.apart += [entry.path for entry in lines if is_library(entry.path)]
                continue
            recorded = _Written.of(os.stat(os.path.join(dist.info, "RECORD")))
            for entry in lines:
                self.by_path.setdefault(entry.path, []).append(entry)
                self.written[entry.path] = min(recorded, self.written.get(entry.path, recorded))
        for path in self.by_path:
            try:
                self.status[path] = os.stat(path)
            except PermissionError:  # which another field tells
                continue
            except OSError:
                self.status[path] = None

    def suspects(self) -> list[str]:
        """What is compared by content whatever it takes."""
        found: list[str] = []
        changed: list[str] = []
        for path, status in self.status.items():
            if status is None:
                continue
            recorded = self.written[path]
            if status.st_mtime_ns > recorded.mtime_ns + _SLACK_NS or len({e.sha256 for e in self.by_path[path]}) > 1:
                found.append(path)
            elif status.st_ctime_ns > recorded.ctime_ns + _SLACK_NS:
                changed.append(path)
        for few in (changed, [path for path in changed if self._of_one_name(path)]):
            if sum(self.size(path) for path in few) <= _FEW:
                return found + few
        return found

    def size(self, path: str) -> int:
        """The bytes of a file, -1 for one that is not there."""
        status = self.status[path]
        return -1 if status is None else status.st_size

    def libraries(self) -> list[str]:
        """The shared libraries that are there, small ones first."""
        return sorted((path for path in self.status if is_library(path) and self.size(path) >= 0), key=self.size)

    def order(self) -> list[str]:
        """The files on which the budget is spent: small libraries, what was changed last, all other libraries.

        What differs in size needs no look at its content.
        An environment that was copied has new inodes throughout, and what was changed in it has the newest; one that
        was made of links has several names for each inode, and what was changed in it has one.
        """
        every = self.libraries()
        when = {path: (self._of_one_name(path), self._changed(path)) for path in self.status}
        later = sorted((path for path in when if when[path][1]), key=lambda path: when[path], reverse=True)
        changed = [path for path in later if not is_library(path)][: _LAST * 100]
        changed += [path for path in later if is_library(path)][:_LAST]
        first, total = 0, 0
        while first < len(every) and total < _FIRST:
            total += self.size(every[first])
            first += 1
        wanted = dict.fromkeys((*every[:first], *changed, *every[first:]))
        return [path for path in wanted if any(entry.size in (-1, self.size(path)) for entry in self.by_path[path])]

    def _changed(self, path: str) -> int:
        """When the inode of a file was changed, in ns; 0 where that was before its RECORD was written."""
        status = self.status[path]
        if status is None or status.st_ctime_ns <= self.written[path].ctime_ns:
            return 0
        return status.st_ctime_ns

    def _of_one_name(self, path: str) -> bool:
        status = self.status[path]
        return status is not None and status.st_nlink == 1


def is_library(path: str) -> bool:
    """Whether a file is a shared library by its name."""
    return ".so" in os.path.basename(path)


def _threads() -> int:
    """One processor is the import's."""
    return max(1, min(_THREADS, len(os.sched_getaffinity(0)) - 1))


def _hashes(paths: list[tuple[str, int]], budget_s: float) -> dict[str, str]:
    """The sha256 of the real files behind ``paths``, of those that could be read within ``budget_s``.

    The budget is a processor's time; ten times as much may pass, for a cold disk or a busy machine.
    A file that this user may not read is left out; another field tells of it.  Raises OSError for any other error.
    """
    if not paths:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    started, threads = time.monotonic(), _threads()
    spent = [0, 0.0]  # bytes, and seconds of all threads

    def one(path: str, size: int) -> str:
        speed = spent[0] / spent[1] if spent[0] and spent[1] > 0.02 else _SLOWEST
        if spent[1] + size / speed > budget_s * threads or time.monotonic() - started > 10 * budget_s:
            return ""
        begun = time.thread_time()
        try:
            found = wheels.digest(path, started + 10 * budget_s)
        except PermissionError:
            return ""
        spent[0] += size
        spent[1] += time.thread_time() - begun
        return found

    real: dict[str, tuple[str, int]] = {path: (os.path.realpath(path), size) for path, size in paths}
    with ThreadPoolExecutor(threads) as pool:
        waiting = {file: pool.submit(one, *file) for file in dict.fromkeys(real.values())}
    return {path: waiting[file].result() for path, file in real.items() if waiting[file].result()}


def compared(dists: list[Dist], budget_s: float = BUDGET_S) -> Compared:
    """The comparison of all files of the CUDA stack; a distribution whose RECORD lists no file with a hash is told.

    Shared libraries that are gone count; other missing files do not, because images are slimmed by removing headers
    and tests.  Raises OSError if a file cannot be read for another reason than its mode.
    """
    listed = _Listed(dists)
    found: list[dict[str, object]] = [
        {"path": dist.base, "owners": [f"{dist.name}=={dist.version}"], "found": NO_RECORD} for dist in listed.bare
    ]
    known = _hashes([(path, listed.size(path)) for path in listed.suspects()], float("inf"))
    libraries = listed.libraries()
    known.update(_hashes([(path, listed.size(path)) for path in listed.order() if path not in known], budget_s))
    for path in sorted(listed.status):
        who, size = listed.by_path[path], listed.size(path)
        has = _is_of(who, size, known.get(path, "")) if size >= 0 or is_library(path) else ""
        if has:
            found.append({"path": path, "owners": [f"{e.owner}=={e.version}" for e in who], "found": has})
    read, left = ([path for path in libraries if (path in known) is was] for was in (True, False))
    left_bytes = sum(map(listed.size, left))
    return Compared(found, len(read), sum(map(listed.size, read)), sorted((*left, *listed.apart)), left_bytes)


def _is_of(who: list[Entry], size: int, sha256: str) -> str:
    """Whose the file is, in words, empty if it is what all of ``who`` list; ``size`` is -1 where it is missing."""
    if size < 0:
        return "the file is missing"
    if sha256:
        if all(entry.sha256 == sha256 for entry in who):
            return ""
        fitting = [f"{entry.owner}=={entry.version}" for entry in who if entry.sha256 == sha256]
        return fitting[0] if fitting else "none of their hashes"
    if all(entry.size in (-1, size) for entry in who):
        return ""
    fitting = [f"{entry.owner}=={entry.version}" for entry in who if entry.size == size]
    return fitting[0] + " by size" if fitting else f"{size} bytes, none of their sizes"
