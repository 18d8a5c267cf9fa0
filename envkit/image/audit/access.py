"""Which files the image's user may not read, by modes and owners alone."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from envkit.image.audit import environment, search
from envkit.image.audit.linker import is_file, text
from envkit.image.tree import Entry, Tree
from envkit.model import Observed
from envkit.payload.probe import wheels
from envkit.subjects.image import ClosedFile

_MOST = 50  # rows, as the probe tells
_READ, _EXECUTE = 4, 1
_UNKNOWN = -1


def _ids(tree: Tree, user: str) -> tuple[int, frozenset[int]]:
    """The number of a user as a container would have it, and those of its groups; -1 for a name that nobody has."""
    name, _, group = user.partition(":")
    accounts = _rows(tree, "/etc/passwd")
    row = next((one for one in accounts if name in (one[0], one[2])), None)
    uid = int(row[2]) if row else 0 if name == "root" else int(name) if name.isdigit() else _UNKNOWN
    groups = _rows(tree, "/etc/group")
    named = next((one[2] for one in groups if group and one[0] == group), group)
    gid = int(named) if named.isdigit() else int(row[3]) if row and row[3].isdigit() else 0
    more = {int(one[2]) for one in groups if row and row[0] in one[3].split(",")} if not group else set()
    return uid, frozenset({gid, *more})


def _rows(tree: Tree, path: str) -> list[list[str]]:
    if not is_file(tree, path):
        return []
    rows = (line.split(":") for line in text(tree, path, 1 << 20).splitlines())
    return [row for row in rows if len(row) >= 4 and row[2].isdigit()]


def _may(entry: Entry, uid: int, gids: frozenset[int], what: int) -> bool:
    """Whether the permission bits give ``uid`` what it asks for: by the bits of owner, group or others."""
    shift = 6 if entry.uid == uid else 3 if entry.gid in gids else 0
    return bool(entry.mode >> shift & what)


def may_execute(tree: Tree, path: str) -> bool:
    """Whether the image's user may execute the file at ``path``; root may where anybody may."""
    entry = tree.entries[tree.real(path)]
    uid, gids = _ids(tree, str(tree.config.get("User") or "root"))
    return bool(entry.mode & 0o111) if uid in (0, _UNKNOWN) else _may(entry, uid, gids, _EXECUTE)


def closed(tree: Tree, python: environment.Pythons, dists: list[environment.Dist]) -> Observed[tuple[ClosedFile, ...]]:
    """The files of torch, CUDA and what torch needs that the image's user may not read, and folders on the way."""
    if not tree.config:
        return Observed.unsupported("a directory names no user")
    user = str(tree.config.get("User") or "root")
    uid, gids = _ids(tree, user)
    if uid == _UNKNOWN:
        return Observed.lost(f"the image's user {user} is in no /etc/passwd")
    found = {} if uid == 0 else dict(_closed(tree, python, dists, uid, gids))
    return Observed.of(tuple(found.values()), "modes and owners of the image's files")


def _closed(
    tree: Tree, python: environment.Pythons, dists: list[environment.Dist], uid: int, gids: frozenset[int]
) -> Iterator[tuple[str, ClosedFile]]:
    needed = search.needed(dists)
    wanted = [*python.found.site, python.found.path]
    wanted += [
        entry.path
        for dist in dists
        if wheels.is_cuda(dist.name) or dist.name in needed
        for entry in environment.listed_by(dist)
    ]
    known: dict[str, str] = {"/": ""}
    told: set[str] = set()

    def behind(folder: str) -> str:
        """The first folder on the way into ``folder``, itself among them, that may not be entered."""
        if folder not in known:
            entry = tree.entries.get(folder)
            above = behind(posixpath.dirname(folder))
            shut = entry is not None and entry.kind == "directory" and not _may(entry, uid, gids, _EXECUTE)
            known[folder] = above or (folder if shut else "")
        return known[folder]

    for path in wanted:
        real = tree.real(path)
        entry = tree.entries.get(real)
        if entry is None or len(told) == _MOST:
            continue
        place = behind(posixpath.dirname(real))
        if not place and entry.kind == "directory":
            place = behind(real)
        if not place and not _may(entry, uid, gids, _READ):
            place = real
        if place and place not in told:
            told.add(place)
            one = tree.entries[place]
            mode = f"{one.mode & 0o7777:04o}"
            yield place, ClosedFile(place, mode, one.uid, one.gid, one.kind == "directory")
