"""What uv's own files say of a project: the versions in uv.lock, and the indexes and sources in [tool.uv].

The formats are uv's (its documentation: "Locking and syncing", "Package indexes", "Managing dependencies").  What would
give another result than uv has and cannot be followed is refused in one sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envkit.dockerfile.files import toml
from envkit.errors import UsageError, one_line
from envkit.plan import indexes
from envkit.system import files

NAME = "uv.lock"
_FORMAT = 1
KIN = ("torch", "torchvision", "torchaudio")
# What follows from torch's own METADATA once its release and build are chosen: `cuda` chooses the build.
_OF_TORCH = ("nvidia-", "cuda-", "triton", "pytorch-triton")
# Settings of [tool.uv] that change what is chosen, and the value under which they do not.
_AS_USUAL: Mapping[str, tuple[object, ...]] = {
    "resolution": ("highest",),
    "prerelease": ("disallow", "if-necessary", "explicit", "if-necessary-or-explicit"),
    "index-strategy": ("first-index",),
    "no-index": (False,),
    "find-links": ([],),
}
_SOURCES = {
    "git": "a repository",
    "url": "an address",
    "path": "a path",
    "directory": "a folder",
    "editable": "a folder",
    "virtual": "a folder",
    "workspace": "its workspace",
}


def named_indexes(path: Path, uv: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The index that [tool.uv] names in place of the default one, "" for none, and those that are extra.

    The index of torch's builds is left out, for `cuda` chooses the build.
    """
    for key, usual in _AS_USUAL.items():
        if key in uv and uv[key] not in usual:
            raise UsageError(
                f"{path}: [tool.uv] has {key} = {one_line(repr(uv[key]))}, which is not followed", "drop it"
            )
    from envkit.dockerfile.requirements import build_of  # as in inputs.py

    own, extra = str(uv.get("index-url", "")), [str(each) for each in uv.get("extra-index-url", [])]
    rows = uv.get("index", [])
    for row in rows if isinstance(rows, list) else []:
        url, name = str(row.get("url", "")), str(row.get("name", ""))
        if build_of(url):
            continue
        if row.get("explicit"):
            raise UsageError(
                f"{path}: the index {one_line(name)} of [tool.uv] is explicit, which is not followed",
                "drop `explicit`: a package that an extra index has is taken from there",
            )
        text = f"{name}={url}" if name else url
        own, extra = (text, extra) if row.get("default") else (own, [*extra, text])
    where = f"{path}: [tool.uv] index"
    return indexes.address(where, own) if own else "", tuple(indexes.address(where, each) for each in extra)


def sources(path: Path, uv: Mapping[str, Any], wanted: Collection[str], given: Collection[str]) -> None:
    """Refuses what [tool.uv.sources] takes from elsewhere than a named index.

    ``wanted`` are the distributions that the project asks for, ``given`` those whose wheel the spec names itself.
    """
    named = {str(row.get("name")) for row in uv.get("index", []) if isinstance(row, Mapping)}
    table = uv.get("sources", {})
    for name, source in table.items() if isinstance(table, Mapping) else ():
        key = canonicalize_name(name)
        if key not in wanted or key in given:
            continue
        for row in source if isinstance(source, list) else [source]:
            index = row.get("index") if isinstance(row, Mapping) else None
            if index is not None and (key in KIN or index in named):
                continue
            raise _elsewhere(f"{path}: [tool.uv.sources]", name, row)


def _elsewhere(where: str, name: str, source: Collection[str]) -> UsageError:
    what = next((words for key, words in _SOURCES.items() if key in source), "an index that it does not name")
    return UsageError(
        f"{where} takes {name} from {what}, not from an index",
        f'build a wheel of it and name that: packages = ["./{name}-VERSION-py3-none-any.whl"]',
    )


def held(
    folder: Path, project: str, extras: Sequence[str], groups: Sequence[str], given: Collection[str]
) -> Iterator[str]:
    """The versions in the uv.lock of ``folder`` as constraints, nothing where there is none.

    A package with several releases has each under its markers.  Raises UsageError for a lock that cannot be read and
    for what it takes from elsewhere than an index and the project needs.
    """
    path = folder / NAME
    if not path.exists():
        return
    try:
        table = toml(files.text(path, "check the file and its permissions", files.MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {one_line(str(error))}", "write it again with `uv lock`") from error
    bad = UsageError(f"{path} is no lock of format {_FORMAT}", "write it again with `uv lock`")
    if table.get("version") != _FORMAT:
        raise bad
    try:
        yield from list(_held(path, table["package"], project, extras, groups, given))
    except (AttributeError, KeyError, TypeError) as error:  # a value of another kind than uv writes
        raise bad from error


def _held(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    project: str,
    extras: Sequence[str],
    groups: Sequence[str],
    given: Collection[str],
) -> Iterator[str]:
    needed = _needed(rows, project, extras, groups)
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(canonicalize_name(str(row["name"])), []).append(row)
    for name in sorted(needed - {project, *given}):
        if not name.startswith(_OF_TORCH):
            yield from _constraints(path, name, by_name.get(name, []))


def _constraints(path: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        source = row.get("source", {})
        if "registry" not in source:
            raise _elsewhere(str(path), name, source)
    try:
        versions = [Version(str(row.get("version"))) for row in rows]
    except InvalidVersion as error:
        raise UsageError(f"{path} has no version of {name}", "write it again with `uv lock`") from error
    texts = [each.public if name in KIN else str(each) for each in versions]
    for text, row in zip(texts, rows, strict=True):
        markers = " or ".join(f"({marker})" for marker in row.get("resolution-markers", []))
        if len(set(texts)) > 1 and (not markers or "extra" in markers):
            raise UsageError(
                f"{path} has {name} {' and '.join(texts)} for extras that exclude one another",
                f'pin it in the spec: constraints = ["{name}=={texts[0]}"]',
            )
        yield f"{name}=={text}" + (f"; {markers}" if len(set(texts)) > 1 else "")


def _needed(rows: Sequence[Mapping[str, Any]], project: str, extras: Sequence[str], groups: Sequence[str]) -> set[str]:
    """What the project comes to with these extras and groups, whatever the markers say."""
    edges: dict[tuple[str, str], set[tuple[str, str]]] = {}

    def ends(listed: Any) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for row in listed if isinstance(listed, list) else []:
            name = canonicalize_name(str(row.get("name")))
            found |= {(name, ""), *((name, canonicalize_name(str(extra))) for extra in row.get("extra", []))}
        return found

    for row in rows:
        name = canonicalize_name(str(row["name"]))
        edges.setdefault((name, ""), set()).update(ends(row.get("dependencies")))
        for kind in ("optional-dependencies", "dev-dependencies"):
            for extra, listed in row.get(kind, {}).items():
                edges.setdefault((name, canonicalize_name(extra)), set()).update(ends(listed))
    left = [(project, ""), *((project, canonicalize_name(extra)) for extra in (*extras, *groups))]
    seen: set[tuple[str, str]] = set()
    while left:
        at = left.pop()
        if at not in seen:
            seen.add(at)
            left += edges.get(at, ())
    return {name for name, _ in seen}
