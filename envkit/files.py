"""Writes files whole or not at all, and says where those go that can be made again."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from envkit.errors import Undecided, UsageError


def is_full(error: OSError) -> bool:
    """Whether the disk, or what this user may hold of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def folder(path: Path) -> Path:
    """``path`` as a folder, made with its parents if it is not there.

    Raises Undecided on a full disk and UsageError where it may not be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if is_full(error):
            raise Undecided(f"the disk is full: {path} was not made", "free some space there") from error
        raise UsageError(
            f"the folder {path} cannot be made: {error.strerror}",
            "point XDG_CACHE_HOME at a folder that may be written to",
        ) from error
    return path


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
            path.write_text(text, encoding="utf-8")
            return
        # Named before it is there, so that no signal comes between the file and the knowledge of it.
        temporary = str(path.parent / f".{path.name}.{secrets.token_hex(8)}")
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
        raise UsageError(f"{path} cannot be written: {error.strerror}", f"check the folder {path.parent}") from error
    finally:
        if temporary:
            with suppress(OSError):  # it was never made, and why is told already
                os.unlink(temporary)


def cache_dir() -> Path:
    """Where envkit keeps what it can make again: XDG_CACHE_HOME/envkit, by default ~/.cache/envkit."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "envkit")
