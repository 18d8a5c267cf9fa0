"""Reads what a person names within bounds, writes files whole or not at all, makes every temporary folder, and says
where those files go that can be made again."""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import re
import shutil
import stat
import time
from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from envkit.errors import Undecided, UsageError

MOST_BYTES = 16 << 20  # of a file that a tool of a person's wrote; the longest lock has 1 MiB
MOST_BY_HAND = 1 << 20  # of a file that a person writes: a spec, a contract, settings
ENDLESS = "it is a device of the kernel that never ends, not a plain file"
_SCRATCH = re.compile(r"\.?envkit-[a-z]+-[0-9a-f]{16}")  # what `scratch` names its folders, and nothing else
_in_use: set[Path] = set()  # the scratch folders of this process, not those of one that forked it
_making = allocate_lock()  # held while one is made, or the end of the run forbids it
_over = False


def _forget() -> None:
    global _making
    _in_use.clear()
    _making = allocate_lock()  # a thread of the parent may have held it


os.register_at_fork(after_in_child=_forget)
_KINDS = {
    stat.S_IFDIR: "it is a folder",
    stat.S_IFIFO: "it is a pipe, not a plain file",
    stat.S_IFSOCK: "it is a socket, not a plain file",
    stat.S_IFCHR: "it is a device, not a plain file",
    stat.S_IFBLK: "it is a device, not a plain file",
}


def content(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """All bytes of a plain file, at most ``most`` of them; links are followed.

    Returns at once whatever the name leads to: a pipe is not waited for, and a device or a file without end is not
    read.  Raises OSError whose strerror is a clause that says why ("it is a pipe, not a plain file").
    """
    handle = opened(path)
    seen = os.fstat(handle)
    with open(handle, "rb", buffering=0) as file:
        pieces, left = [], 0 if seen.st_size > most else most + 1  # a file of /proc has a size of 0
        while left and (piece := file.read(left)) != b"":
            if piece is None:  # a file of the kernel that has nothing yet
                raise OSError(errno.EAGAIN, ENDLESS)
            pieces.append(piece)
            left -= len(piece)
    if not left:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB")
    return b"".join(pieces)


def opened(path: str | os.PathLike[str]) -> int:
    """A handle of a plain file to be read, which the caller closes; raises OSError as ``content`` does."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for its other end; O_NOCTTY: a terminal must not become envkit's.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # what opening a socket says
            raise OSError(error.errno, _KINDS[stat.S_IFSOCK]) from error
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "it is a link that leads in a circle") from error
        raise
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, "no file can have this name") from error
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind) and not has_no_end(handle):
        return handle
    os.close(handle)
    if stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, ENDLESS)
    raise OSError(errno.EINVAL, _KINDS.get(stat.S_IFMT(kind), "it is no plain file"))


def has_no_end(handle: int) -> bool:
    """Whether the open file is one of those plain files of /proc and /sys that wait for what the kernel says next; what
    is read from them is gone for their other readers."""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        return False
    name = os.readlink(f"/proc/self/fd/{handle}")
    return name.startswith(("/proc/", "/sys/")) and name.rpartition("/")[2] in ("kmsg", "trace_pipe", "trace_pipe_raw")


def text(path: str | os.PathLike[str], fix: str, most: int = MOST_BY_HAND) -> str:
    """The UTF-8 text of a plain file, read by ``content``; raises UsageError with ``fix`` where there is none.

    The cause of that is a FileNotFoundError where the name leads nowhere.
    """
    try:
        return content(path, most).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {why(error)}", fix) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} cannot be read: it is no UTF-8 at byte {error.start}", fix) from error


def why(error: OSError) -> str:
    """An OSError in a few words, without the path that the reader already has."""
    words = error.strerror or "unknown error"
    return words if error.strerror and error.strerror.startswith("it ") else words[:1].lower() + words[1:]


@contextmanager
def scratch(kind: str, where: Path | None = None) -> Iterator[Path]:
    """A folder of this run alone (mode 0700) in ``where``, by default the place for temporary files; it goes with the
    block.  Its name is ``envkit-KIND-`` and sixteen digits; in a given place it begins with a dot.

    A killed run cannot remove its own, so the first call of each run removes those in the same place that have no owner
    any more.  The owner of a folder holds a lock (flock) on it, which the kernel takes back however the owner ends, and
    which counts across PID namespaces that share the place, as a process's number would not.
    """
    if where is None:
        import tempfile

        place = Path(tempfile.gettempdir())
    else:
        place = where
    _clear(str(place))
    folder, held = _owned(f"{place}/{'.' if where else ''}envkit-{kind}-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # before the lock goes, so that nobody else begins with it
        os.close(held)
        _in_use.discard(folder)


@atexit.register
def _leave() -> None:
    """Removes the folders of threads that a stop has left in the middle; these make no further ones."""
    global _over
    with _making:
        _over = True
    for folder in tuple(_in_use):
        for _ in range(100):  # the thread, or its program, which ends within 0.1 s, may be writing into it
            shutil.rmtree(folder, ignore_errors=True)
            if not os.path.lexists(folder):
                break
            time.sleep(0.01)


def _owned(prefix: str) -> tuple[Path, int]:
    """A new folder and the handle that holds its lock.

    Between making and locking it another run may take it for one without an owner; then the next name is tried.
    """
    while True:
        folder = Path(prefix + os.urandom(8).hex())
        with _making:
            if _over:
                raise OSError(errno.ECANCELED, "it is too late for a temporary folder: the run has ended")
            _in_use.add(folder)
            folder.mkdir(mode=0o700)
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            continue
        except OSError:  # a file system without locks on folders: nobody can lock it there, so nobody removes it
            return folder, held
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(folder, follow_symlinks=False), os.fstat(held)):
                return folder, held
        os.close(held)


@cache
def _clear(place: str) -> None:
    """Removes the scratch folders in ``place`` whose owner is gone; once a run, for it lists the place."""
    try:
        top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # whoever makes a folder there says so
        return
    try:
        for name in os.listdir(top):
            if _SCRATCH.fullmatch(name):
                with suppress(OSError):  # it is being removed, or is not ours to remove
                    _remove_abandoned(top, place, name)
    finally:
        os.close(top)


def _remove_abandoned(top: int, place: str, name: str) -> None:
    """Removes the folder ``name`` if it is this user's and nobody holds it; raises OSError where it may not.

    What is locked is what is emptied: no name is looked up twice, so that nothing put in its place is followed.
    """
    held = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        seen = os.fstat(held)
        if seen.st_uid != os.geteuid() or seen.st_mode & 0o022:  # somebody else's, or one that others write to
            return
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if f" {os.path.realpath(place)}/{name}/" in Path("/proc/self/mountinfo").read_text():
            return  # something of another place is mounted in it
        for entry in os.listdir(held):
            if stat.S_ISDIR(os.stat(entry, dir_fd=held, follow_symlinks=False).st_mode):
                shutil.rmtree(entry, ignore_errors=True, dir_fd=held)
            else:
                os.unlink(entry, dir_fd=held)
        os.rmdir(name, dir_fd=top)
    finally:
        os.close(held)


def is_full(error: OSError) -> bool:
    """Whether the disk, or what this user may hold of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def folder(path: Path, fix: str = "point XDG_CACHE_HOME at a folder that may be written to") -> Path:
    """``path`` as a folder, made with its parents if it is not there.

    Raises Undecided on a full disk and UsageError where it may not be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if is_full(error):
            raise Undecided(f"the disk is full: {path} was not made", "free some space there") from error
        raise UsageError(f"the folder {path} cannot be made: {error.strerror}", fix) from error
    return path


def can_be_written(path: Path) -> None:
    """Raises UsageError, before the work rather than after it, where ``write`` could not write."""
    fix = "name a file in a folder that exists and may be written to"
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        kind = 0
    except (OSError, ValueError) as error:  # the last: a NUL in the name
        said = why(error) if isinstance(error, OSError) else "no file can have this name"
        raise UsageError(f"{path} cannot be written: {said}", fix) from error
    if stat.S_ISDIR(kind) or stat.S_ISSOCK(kind):
        raise UsageError(f"{path} cannot be written: {_KINDS[stat.S_IFMT(kind)]}", fix)
    if stat.S_ISFIFO(kind):
        try:  # never closed: whoever reads it would take that for the end
            os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            said = "nobody reads from it" if error.errno == errno.ENXIO else why(error)
            raise UsageError(f"{path} cannot be written: {said}", fix) from error
    if stat.S_ISREG(kind) or not kind:
        parent = Path(os.path.realpath(path)).parent
        if not os.access(parent, os.W_OK | os.X_OK):
            said = "may not be written to" if parent.is_dir() else "is no folder"
            raise UsageError(f"{path} cannot be written: {parent} {said}", fix)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replaces ``path`` by ``text`` in one step: a temporary file beside it, synced, then renamed over it.

    Whatever happens on the way, ``path`` holds the old text or the new one.  A link stays one, what it leads to is
    replaced; a device or pipe ("/dev/stdout") is written to, for a file in its place would take it away.  Raises
    Undecided on a full disk and UsageError where the folder is missing or may not be written.
    """
    temporary = ""
    try:
        path = Path(os.path.realpath(path))
        if path.exists() and not path.is_file() and not path.is_dir():
            # Without O_NONBLOCK, opening a pipe that nobody reads waits for a reader.
            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            os.set_blocking(handle, True)
            with open(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            return
        # Named before it is there, so that no signal comes between the file and the knowledge of it.
        temporary = str(path.parent / f".{path.name}.{os.urandom(8).hex()}")
        private = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(private, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)  # a temporary file is private; what it becomes is a file like any other
        os.replace(temporary, path)
        temporary = ""
    except OSError as error:
        if is_full(error):
            raise Undecided(f"the disk is full: {path} was not written", f"free some space on {path.parent}") from error
        if error.errno == errno.ENXIO:
            raise UsageError(f"{path} cannot be written: nobody reads from it", "name a file") from error
        fix = "raise the limit (ulimit -f)" if error.errno == errno.EFBIG else f"check the folder {path.parent}"
        raise UsageError(f"{path} cannot be written: {error.strerror}", fix) from error
    finally:
        if temporary:
            with suppress(OSError):  # it was never made, and why is told already
                os.unlink(temporary)


def beside(folder: Path, name: str) -> Path:
    """The path of ``name`` in ``folder``, which envkit is about to write because the spec lies there and not because
    somebody named it.

    The folder may be a stranger's: raises UsageError where links lead out of the repository (out of the folder, where
    there is none), or where something is there that is no file.
    """
    path = folder / name
    real, folder = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    if not real.is_relative_to(top):
        raise UsageError(f"{path} leads by a link out of {top}, to {real}", "remove the link, then run again")
    if real.exists() and not real.is_file():
        raise UsageError(f"{path} is no file", "remove it, then run again")
    return path


def cache_dir() -> Path:
    """Where envkit keeps what it can make again: XDG_CACHE_HOME/envkit, by default ~/.cache/envkit."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "envkit")


def shipped(folder: str) -> Path:
    """``templates`` or ``images``: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / folder
    return inside if inside.is_dir() else package.with_name(folder)
