"""The project around a build context: all its names, and what git ignores there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from envkit.dockerfile.context import Context, content
from envkit.dockerfile.files import Project, folders
from envkit.static.ignored import Ignored, common_folder, git_folder, repository
from envkit.static.walk import made

MOST_PATHS = 50_000  # of one project; what a larger one lacks is not asked


class _Checkout(NamedTuple):
    files: frozenset[str]
    links: frozenset[str]
    text: Callable[[str], str]
    ignored: Callable[[str], bool]
    executable: Callable[[str], bool | None]


@lru_cache(1)
def _checkout(top: Path) -> _Checkout | None:
    files: list[str] = []
    links: set[str] = set()
    for place, within, names in os.walk(top):
        within[:] = [name for name in within if not made(os.path.join(place, name))]
        here = os.path.relpath(place, top)
        for name in (*within, *names):
            path = os.path.normpath(os.path.join(here, name))
            files.append(path)
            if os.path.islink(os.path.join(place, name)):
                links.add(path)
        if len(files) > MOST_PATHS:
            return None
    rules = Ignored(top)
    return _Checkout(
        folders(files),
        frozenset(links),
        cache(lambda path: "" if path in links else text(top / path)),  # asked for each name that is not there
        lambda path: rules.is_ignored(path, folder=False) or rules.is_ignored(path, folder=True),
        lambda path: _executable(top, path),
    )


def _executable(top: Path, path: str) -> bool | None:
    """Whether a file of a checkout may be executed; None where git says that the file system keeps no modes."""
    config = text(common_folder(git_folder(top)) / "config")
    if not re.search(r"(?im)^\s*filemode\s*=\s*true\s*$", config):
        return None
    try:
        return bool(os.stat(top / path).st_mode & 0o111)
    except OSError:
        return None


def forget() -> None:
    """Has the next file's checkout walked anew; before, that of the file before it is taken to be as it was."""
    _checkout.cache_clear()


def project(context: Context) -> Project | None:
    """The checkout that a context lies in; None outside of one, and for one of more than MOST_PATHS names."""
    top = repository(context.root)
    found = _checkout(top) if top is not None else None
    if top is None or found is None:
        return None
    return Project(
        below(context.root, top),
        below(context.dockerfile.parent if context.dockerfile is not None else context.root, top),
        found.files,
        found.links,
        found.text,
        found.ignored,
        context.keeps_out,
        found.executable,
    )


def below(folder: Path, top: Path) -> str:
    """A folder as named from the one at the top, "" for that itself."""
    named = os.path.relpath(os.path.realpath(folder), os.path.realpath(top))
    return "" if named == "." else named


def text(path: Path) -> str:
    """The text of a plain file, "" of any other."""
    data = content(str(path))
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
