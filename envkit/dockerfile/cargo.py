"""What `cargo build --features` turns on in the crates that a project depends on, by its manifests.

Source: The Cargo Book, "Features" ("dep:NAME", "NAME/FEATURE", "NAME?/FEATURE"), "Workspaces", "Renaming dependencies".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envkit.dockerfile.files import Files, FileText
from envkit.dockerfile.project import table, texts, toml
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Install

_CUDA = pattern(r"(?:cuda|cublas|cudnn|flash-attn(?:-v\d)?|candle-cuda)\Z")
_VERBS = frozenset({"build", "b", "install", "run", "r", "test", "t", "chef", "check", "c"})
_TABLES = ("dependencies", "build-dependencies")
_Crates = dict[str, tuple[bool, set[str]]]  # by name, whether a feature turns it on, and its own features
_MOST_WALKED = 40  # manifests that are followed by their paths
_MOST_MEMBERS = 40


def features(args: Sequence[str]) -> tuple[str, ...]:
    """The features that a command of cargo turns on."""
    given = [args[at + 1] for at, word in enumerate(args[:-1]) if word in ("--features", "-F")]
    given += [word.partition("=")[2] for word in args if word.startswith("--features=")]
    return tuple(part for text in given for part in re.split(r"[,\s]+", text) if part)


def read(command: Command, files: Files) -> Iterator[Install]:
    """The crates that a command's features for CUDA turn on, each with its own features as ``options``; nothing where
    the manifests do not tell all of them.  Where a feature turns no crate on, it is read by the project's own sources,
    for which any of its crates may do the work: these are not sure."""
    if command.program != "cargo" or not _VERBS & set(command.args[:2]):
        return
    wanted = [name for name in features(command.args) if _CUDA.match(name.rpartition("/")[2])]
    if not wanted:
        return
    found = _crates(_manifest(command.args), command.cwd, wanted, files)
    for name, (turned_on, options) in (found or {}).items():
        yield Install("cargo", name, command.span, options=frozenset(options), sure=command.sure and turned_on)


def _manifest(args: Sequence[str]) -> str:
    for at, word in enumerate(args[:-1]):
        if word == "--manifest-path":
            return args[at + 1]
        if word == "--path":
            return posixpath.join(args[at + 1], "Cargo.toml")
    return "Cargo.toml"


def _crates(path: str, cwd: str, wanted: Sequence[str], files: Files) -> _Crates | None:
    """Crates and their features, None where a manifest was not read or none knows a feature."""
    folder = posixpath.dirname(path)
    root = _read(folder, cwd, files)
    if root is None:
        return None
    members = texts(table(root, "workspace").get("members"))
    if len(members) > _MOST_MEMBERS or re.search(r"[*?\[]", "".join(members)):
        return None
    manifests = [(folder, root)]
    for member in members:
        inner = _read(posixpath.join(folder, member), cwd, files)
        if inner is None:
            return None
        manifests.append((posixpath.join(folder, member), inner))
    found: _Crates = {}
    known = False
    for where, manifest in manifests:
        name = str(table(manifest, "package").get("name", ""))
        mine = [each.rpartition("/")[2] for each in wanted if each.partition("/")[0] in (name, each)]
        if any(each in table(manifest, "features") for each in mine):
            known = True
            if not _turn_on(where, manifest, mine, cwd, files, found, []):
                return None
    return found if known else None


def _read(folder: str, cwd: str, files: Files) -> Mapping[str, Any] | None:
    file = files.read(posixpath.join(folder, "Cargo.toml"), cwd)
    data = toml(file) if isinstance(file, FileText) else ""
    return data if isinstance(data, dict) else None


def _turn_on(
    where: str,
    manifest: Mapping[str, Any],
    names: Sequence[str],
    cwd: str,
    files: Files,
    found: _Crates,
    walked: list[tuple[str, list[str]]],
) -> bool:
    """Puts what the features of one manifest turn on into ``found``; False where a manifest was not read.

    ``walked`` are the manifests that were followed by their paths, each with the features.
    """
    offered = table(manifest, "features")
    depends = {key: value for each in _TABLES for key, value in table(manifest, each).items()}
    pending, seen = list(names), set[str]()
    inner: dict[str, list[str]] = {}
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        crate, slash, feature = name.removeprefix("dep:").partition("/")
        if slash or name.startswith("dep:") or (name not in offered and name in depends):
            inner.setdefault(crate.rstrip("?"), []).extend([feature] if feature else [])
        else:
            pending += texts(offered.get(name))
    for crate in inner or depends:
        given = depends.get(crate)
        detail = given if isinstance(given, Mapping) else {}
        options = {*texts(detail.get("features")), *inner.get(crate, [])}
        if "path" in detail and inner:
            step = (posixpath.normpath(posixpath.join(where, str(detail["path"]))), sorted(options))
            if step in walked:
                continue
            walked.append(step)
            below = _read(step[0], cwd, files) if len(walked) <= _MOST_WALKED else None
            if below is None or not _turn_on(step[0], below, step[1], cwd, files, found, walked):
                return False
        elif detail.get("workspace") and inner:
            return False
        else:
            name = str(detail.get("package", crate))
            before = found.get(name, (False, set()))
            found[name] = (before[0] or bool(inner), before[1] | options)
    return True
