"""Reads the two things that `envkit diff` was given, whatever they are, and asks what their difference means."""

from __future__ import annotations

import json
from pathlib import Path

from envkit import diff, lock, prove, spec, up
from envkit.diff import Change, Weight
from envkit.engine import Engine, Say
from envkit.errors import UsageError
from envkit.facts import Facts
from envkit.subjects import Image, codec


def changes(old: str, new: str, facts: Facts, engine: str, probe: bool, say: Say) -> tuple[str, tuple[Change, ...]]:
    """The kind of thing that ``old`` and ``new`` are, and what changes between them.

    A name is looked for on this machine first: a folder or .toml file is a spec, a .lock file a lock, a .json file a
    saved probe; any other name is an image of ``engine``.  Of two images the locks inside and the layers are
    compared, and with ``probe``, or without a lock in both, what runs in them.  Raises UsageError for two kinds.
    """
    kinds = (_kind(old), _kind(new))
    if kinds[0] != kinds[1]:
        raise UsageError(f"{old} is a {kinds[0]}, {new} a {kinds[1]}", "name two of the same kind")
    kind = kinds[0]
    if kind == "lock":
        return kind, diff.locks(_lock(old), _lock(new), facts)
    if kind == "spec":
        return kind, diff.specs(spec.load(Path(old)), spec.load(Path(new)), facts)
    if kind == "probe":
        return kind, diff.images(_probe(old), _probe(new), facts)
    return kind, _images(old, new, facts, up.connect(engine, say), probe, say)


def _kind(name: str) -> str:
    path = Path(name)
    if path.is_dir() or path.suffix == ".toml":
        return "spec"
    return {".lock": "lock", ".json": "probe"}.get(path.suffix, "image")


def _lock(name: str) -> lock.Lock:
    return lock.parse(_text(name), name)


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}", "check the name and the file's permissions") from error


def _probe(name: str) -> Image:
    try:
        document = json.loads(_text(name))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no JSON: {error}", "name a file that `envkit probe --save` wrote") from error
    if not isinstance(document, dict) or (document.get("schema"), document.get("kind")) != (
        "envkit.subject/1",
        "image",
    ):
        raise UsageError(f"{name} is no saved probe", "name a file that `envkit probe --save` wrote")
    return codec.from_plain(Image, document.get("subject"))


def _images(old: str, new: str, facts: Facts, engine: Engine, probe: bool, say: Say) -> tuple[Change, ...]:
    groups: list[tuple[Change, ...]] = []
    held = [engine.labels(name).get(prove.LOCK_LABEL, "") for name in (old, new)]
    if all(held):
        groups.append(diff.locks(lock.parse(held[0], old), lock.parse(held[1], new), facts))
    if probe or not all(held):
        seen = [prove.probe(prove.InEngine(engine, name, "", ()), say) for name in (old, new)]
        groups.append(diff.images(seen[0], seen[1], facts))
    if engine.layers(old) != engine.layers(new):
        say("reading the layers that differ")
        differing = up.compare_images(engine, old, new)
        groups.append(tuple(Change("layer", text, "", "", Weight.PLAIN) for text in differing))
    return diff.together(*groups)
