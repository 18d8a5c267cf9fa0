"""Finds the files to check: below a folder those that a person wrote and git keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from envkit import proc
from envkit.sources.kinds import by_name

# What tools make and nobody writes; git usually ignores it, and where there is no git nobody else does.
_MADE = frozenset(
    (
        ".git",
        ".hg",
        ".svn",
        ".tox",
        ".nox",
        "node_modules",
        "__pycache__",
        "site-packages",
        ".mypy_cache",
        ".ruff_cache",
    )
)
_GIT_S = 20.0  # listing the files of a large repository takes under a second


def below(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files below ``folder`` that may concern envkit, with the kind their names promise, sorted by path.

    What git ignores is left out, unless the folder itself is ignored and was asked for by name; where git cannot tell,
    what tools make is left out.  Links to folders are not followed.
    """
    listed = _by_git(folder)
    for name in sorted(set(_by_hand(folder) if listed is None else listed)):
        kind = by_name(name.rsplit("/", 1)[-1])
        path = folder / name
        if kind and path.is_file():
            yield path, kind


def _by_git(folder: Path) -> list[str] | None:
    """The paths below ``folder`` that git tracks or would add, None where git cannot tell or ignores all of it."""
    if not any((parent / ".git").exists() for parent in (folder.absolute(), *folder.absolute().parents)):
        return None
    git = ["git", "-C", str(folder)]
    try:
        done = proc.run([*git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"], timeout_s=_GIT_S)
        if done.exit != 0 or done.timed_out:
            return None
        names = [name for name in done.stdout.split("\0") if name]
        if not names and proc.run([*git, "check-ignore", "--quiet", "."], timeout_s=_GIT_S).exit == 0:
            return None
    except (FileNotFoundError, PermissionError):
        return None
    return names


def _by_hand(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _MADE and not _is_venv(os.path.join(place, name))]
        for name in names:
            yield os.path.relpath(os.path.join(place, name), folder)


def _is_venv(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))  # PEP 405
