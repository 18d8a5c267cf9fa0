"""Finds the files to check: below a folder those that a person wrote and git keeps.

No git is asked.  Whatever it does in a repository, it does by that repository's own configuration, which names programs
to run (core.fsmonitor, filters, hooks), and the repository may be a stranger's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from envkit.static.ignored import Ignored, repository
from envkit.static.kinds import BY_TEXT, by_name

OUTSIDE = "outside"  # in place of a kind: a link that leads out of the tree, which is not followed

# What tools make and nobody writes; git usually ignores it, and where there is no git nobody else does.
_CACHES = {"node_modules", "__pycache__", "site-packages", ".mypy_cache", ".ruff_cache", ".tox", ".nox"}
_MADE = {".git", ".hg", ".svn", *_CACHES}


def below(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files below ``folder`` that may concern envkit, with the kind their names promise, sorted by path.

    What git ignores and does not track is left out, unless the folder itself is ignored and was asked for by name;
    outside of a repository what tools make is left out.  Links to folders are not followed, and a file that is a link
    out of the repository, or out of the folder where there is none, has the kind OUTSIDE: what a stranger's tree points
    at on this machine is not shown as if it were the tree's.
    """
    root = repository(folder)
    names = _by_hand(folder) if root is None else _kept(folder, root)
    top = os.path.realpath(root or folder)
    for name in sorted(set(names)):
        kind = by_name(name.rsplit("/", 1)[-1])
        path = folder / name
        # A pipe, a device or a link to nowhere is named as what cannot be read; most YAML and scripts are none of ours.
        odd = kind not in BY_TEXT and os.path.lexists(path) and not path.is_dir()
        if kind and (odd or path.is_file()):
            inside = os.path.commonpath((top, os.path.realpath(path))) == top
            if inside or kind not in BY_TEXT:
                yield path, kind if inside else OUTSIDE


def _kept(folder: Path, root: Path) -> Iterator[str]:
    """The paths below ``folder`` that the repository at ``root`` tracks or does not ignore; all if it ignores all."""
    start = os.path.relpath(os.path.realpath(folder), os.path.realpath(root))
    start = "" if start == "." else start
    ignored = Ignored(root)
    tracked = [os.path.relpath(name, start or ".") for name in ignored.tracked(start)]
    yield from tracked
    if not ignored.enter(start):
        if not tracked:
            yield from _by_hand(folder)
        return
    for place, folders, names in os.walk(folder):
        here = os.path.normpath(os.path.join(start, os.path.relpath(place, folder)))
        here = "" if here == "." else here
        folders[:] = [name for name in folders if ignored.walks(f"{here}/{name}".lstrip("/"))]
        for name in names:
            if by_name(name) and not ignored.is_ignored(f"{here}/{name}".lstrip("/"), folder=False):
                yield os.path.relpath(os.path.join(place, name), folder)


def _by_hand(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not made(os.path.join(place, name))]
        for name in names:
            yield os.path.relpath(os.path.join(place, name), folder)


def made(folder: str) -> bool:
    """Whether tools made a folder: git's own, a cache, a virtual environment."""
    return os.path.basename(folder) in _MADE or os.path.exists(os.path.join(folder, "pyvenv.cfg"))  # PEP 405
