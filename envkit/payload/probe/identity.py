"""Whether what lies here is what was installed, may be read, and is what an import finds: the fields of that."""

from __future__ import annotations

import os
import sys

from envkit.payload.probe import closed, content, paths, preloaded, present, process, wheels
from envkit.payload.probe.report import Pipe, lost, observed


def report(
    pipe: Pipe,
    dists: list[wheels.Dist],
    names: frozenset[str],
    folder: str | None,
    budget_s: float = content.BUDGET_S,
) -> None:
    """Tells the fields; ``names`` is what torch needs, ``folder`` the job's, None where it has none.

    ``budget_s`` is what the comparison of contents may take, infinity for all of it.
    """
    pipe.doing("looking for modules that hide others")
    pipe.field("search", observed(_search(dists, folder), "sys.path, PATH"))
    search = paths.places(folder)
    pipe.field("modules", observed(wheels.first_modules(dists, names, paths.finder(search)), "RECORD, sys.path"))
    pipe.doing("asking what this user may read")
    pipe.field("closed", observed(closed.closed(dists, names), "access"))
    try:
        pipe.field("preloads", observed(preloaded.preloads(), "/etc/ld.so.preload, LD_PRELOAD, /proc/self/maps"))
    except OSError as error:
        pipe.field("preloads", lost(f"reading what is preloaded: {error}"))
    pipe.doing("comparing libraries with Debian's md5sums")
    owned = {os.path.realpath(entry.path) for dist in dists for entry in wheels.entries(dist, content.is_library)}
    others = [str(row["path"]) for row in present.libraries(owned) if row.get("owner")]
    try:
        differing, left = preloaded.changed(preloaded.of_system(others))
        pipe.field("debian", observed(differing, "md5sums of /var/lib/dpkg/info"))
    except OSError as error:
        left = []
        pipe.field("debian", lost(f"comparing libraries with Debian's md5sums: {error}"))
    pipe.doing("comparing files with RECORD")
    try:
        seen = content.compared(dists, budget_s)
    except OSError as error:
        for field in ("overwritten", "content"):
            pipe.field(field, lost(f"comparing files with RECORD: {error}"))
        return
    pipe.field("overwritten", observed(seen.differing, content.COMPARED))
    row = {"read": seen.read, "read_bytes": seen.read_bytes, "left": [*seen.left, *left], "left_bytes": seen.left_bytes}
    pipe.field("content", observed(row, "sha256"))


def _search(dists: list[wheels.Dist], folder: str | None) -> dict[str, object]:
    files = process.at_start()
    owner = {path: _owner(path, dists) for path in files}
    debs = present.debian_owners([path for path in files if not owner[path]]) if not all(owner.values()) else {}
    started = [{"path": path, "owner": owner[path] or debs.get(path, ("", ""))[0]} for path in files]
    return {
        "python": sys.executable,
        "shadows": paths.shadows(folder),
        "dangling": paths.dangling(),
        "started": started,
    }


def _owner(path: str, dists: list[wheels.Dist]) -> str:
    """The distribution that brought a file beside its packages, "" where none lists it."""
    name = os.path.basename(path)
    owners = (
        dist.name for dist in dists if path == os.path.join(dist.base, name) and f"\n{name}," in f"\n{dist.record}"
    )
    return next(owners, "")
