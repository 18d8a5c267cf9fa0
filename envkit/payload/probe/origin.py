"""Derives how a mapped library came in, from the spelling that the linker gave it and from what others ask for.

ld.so names an object after the directory entry it was found under, so the directory part equals one entry of a
search list letter by letter.  Order of search: RPATH of the loader (unless it has a RUNPATH), LD_LIBRARY_PATH, RUNPATH
of the loader, the cache, the default directories (ld.so(8)).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from envkit.payload import elf

CACHE = "/etc/ld.so.cache"
_DEFAULT = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")


class Searches(NamedTuple):
    """What one mapped object asks for and where."""

    name: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


def searches(path: str) -> Searches | None:
    """The search lists of the object at ``path``, expanded; None if it cannot be read."""
    try:
        dynamic = elf.read(elf.mapped(path))
    except (OSError, ValueError):
        return None
    rpath = () if dynamic.runpath else elf.expand(dynamic.rpath, path)
    return Searches(os.path.basename(path), dynamic.needed, rpath, elf.expand(dynamic.runpath, path))


def library_path() -> tuple[str, ...]:
    """The entries of LD_LIBRARY_PATH."""
    value = os.environ.get("LD_LIBRARY_PATH", "")
    return tuple(entry.rstrip("/") for entry in value.replace(";", ":").split(":") if entry)


def cached(cache: str = CACHE) -> list[str]:
    """The paths that the linker's cache names, in its order; none where there is no cache."""
    try:
        with open(cache, "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0") if word.startswith(b"/")]
    except OSError:
        return []


def _through(path: str, objects: list[Searches], entries: tuple[str, ...]) -> str:
    directory, _, soname = path.rpartition("/")
    asking = [one for one in objects if soname in one.needed]
    for one in asking:
        if directory in one.rpath:
            return f"rpath of {one.name}"
    if directory in entries:
        return "LD_LIBRARY_PATH"
    for one in asking:
        if directory in one.runpath:
            return f"runpath of {one.name}"
    if not asking:
        for kind, names in (
            ("runpath", [one.name for one in objects if directory in one.runpath]),
            ("rpath", [one.name for one in objects if directory in one.rpath]),
        ):
            if names:
                more = f" or {len(names) - 1} others in reach" if len(names) > 1 else ""
                return f"dlopen, {kind} of {names[0]}{more}"
    return ""


def derive(
    path: str, earlier: list[Searches], before: set[str], opened: dict[str, str], entries: tuple[str, ...]
) -> str:
    """How ``path``, spelled as the linker spells it, came in; "unknown" if nothing explains it.

    ``earlier`` are the objects mapped before this one, among which is the one that asked for it; ``before`` are those
    mapped before torch was imported, ``opened`` says who opened which path by its full name, ``entries`` is the
    LD_LIBRARY_PATH the process started with.
    """
    if path in before:
        preloads = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
        return "LD_PRELOAD" if path in preloads else "mapped before torch"
    if path in opened:
        return opened[path]
    through = _through(path, earlier, entries)
    if through:
        return through
    if path in cached():
        return "ld.so.cache"
    return "default directory" if path.rpartition("/")[0] in _DEFAULT else "unknown"
