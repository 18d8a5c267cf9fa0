"""Where there is no room: a full disk, a quota, a limit on the size or number of files or a read-only folder, as one
sentence that names the place.

What failed may be a write of envkit's own (an OSError) or another program, whose words, signal and surroundings tell.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from envkit.errors import Undecided
from envkit.system.files import cache_dir
from envkit.system.proc import Completed

_SPACE = r"no space left on device|os error 28\b|don't have enough free space in"
_ROOM = "make room there, or point TMPDIR and XDG_CACHE_HOME at folders with room"
_LIMIT, _RAISE = "the limit on a file's size is reached", "raise the limit (ulimit -f unlimited)"
_WRITABLE = "point TMPDIR and XDG_CACHE_HOME at folders that may be written to"
# errno -> the cause, what other programs print of it (strerror, Rust's "os error N", apt's "N: ..."), and what to do
_CAUSES = {
    errno.ENOSPC: ("the disk is full", _SPACE, _ROOM),
    errno.EDQUOT: ("the disk quota is used up", r"disk quota exceeded|os error 122\b", _ROOM),
    errno.EFBIG: (_LIMIT, r"file too large|os error 27\b|file size limit exceeded", _RAISE),
    errno.EROFS: ("the file system is read-only", r"read-only file system|os error 30\b", _WRITABLE),
}
_PATH = re.compile(r"(?:^|[\s`'\"(])(/[^\s`'\":;,()]+)")
_LEAST = 64 << 10  # bytes; where fewer are free, hardly any program can do its work


class NoRoom(Undecided):
    """A place did not take what was to be written."""


def refusal(error: OSError, places: Iterable[str | Path] = ()) -> NoRoom | None:
    """The sentence for a write of envkit's own that found no room; None for an error of another kind.

    ``places`` are where it may have written, where the error names no file; by default those of ``usual``.
    """
    if error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return NoRoom(f"this process may have {most} files open, and needs more", "raise the limit (ulimit -n 1024)")
    if error.errno not in _CAUSES:
        return None
    named = [str(name) for name in (error.filename,) if isinstance(name, (str, bytes)) and name]
    return _sentence(error.errno, "nothing more could be written", named, places)


def refused(done: Completed, who: str, places: Iterable[str | Path] = ()) -> NoRoom | None:
    """The sentence for a program ``who`` that ended for want of room; None where nothing says that it did."""
    if done.exit == 0 and not done.timed_out:
        return None
    if done.exit == -signal.SIGXFSZ:
        return _sentence(errno.EFBIG, f"{who} could not write", [], places)
    for number, (_, words, _) in _CAUSES.items():
        for line in reversed([*done.stdout.splitlines(), *done.stderr.splitlines()]):
            if re.search(words, line, re.IGNORECASE):
                return _sentence(number, f"{who} could not write", _PATH.findall(line)[:1], places)
    return None


def usual() -> tuple[str, ...]:
    """The folders that envkit and its children write to: TMPDIR as a child sees it, this process's own place for
    temporary files, the caches of envkit and uv, and the working folder."""
    found = [os.environ.get("TMPDIR", ""), _temporary(), str(cache_dir()), os.environ.get("UV_CACHE_DIR", "")]
    return tuple(dict.fromkeys(path for path in (*found, os.path.abspath(os.curdir)) if path))


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # there is none, or all are full
        return ""


def _full(places: Iterable[str | Path]) -> list[str]:
    """Those of ``places`` on whose file system this user may write hardly any byte or make no file."""
    found = []
    for place in places:
        path = os.path.abspath(place)
        while not os.path.exists(path) and path != "/":
            path = os.path.dirname(path)
        try:
            seen = os.statvfs(path)
        except OSError:
            continue
        if seen.f_bavail * seen.f_frsize < _LEAST or (seen.f_files and not seen.f_favail):
            found.append(str(place))
    return found


def _sentence(number: int, what: str, named: list[str], places: Iterable[str | Path]) -> NoRoom:
    cause, _, fix = _CAUSES[number]
    if number == errno.EFBIG:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        cause += "" if most == resource.RLIM_INFINITY else f", {most} bytes"
    wanted = tuple(str(place) for place in places if str(place)) or usual()
    where = named or (_full(wanted) if number in (errno.ENOSPC, errno.EDQUOT) else []) or list(wanted)
    return NoRoom(f"{cause}: {what} to {' or '.join(where)}", fix)


@contextmanager
def into(*places: str | Path) -> Iterator[None]:
    """Inside, a write that finds no room and names no file is told as one to ``places``."""
    try:
        yield
    except OSError as error:
        if found := refusal(error, places):
            raise found from error
        raise
