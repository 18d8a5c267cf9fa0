"""Reads the two things that `envkit diff` was given, whatever they are, and asks what their difference means."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from envkit.build import up
from envkit.diff import compare, hosts
from envkit.diff.compare import Change, Weight
from envkit.engine import Engine, Say
from envkit.engine.choice import connect
from envkit.errors import UsageError
from envkit.facts import Facts
from envkit.host.observe import observe_host
from envkit.plan import lockfile, spec
from envkit.plan.spec import Spec
from envkit.runner import runner
from envkit.subjects import Host, Image, saved
from envkit.system import files

_THIS_MACHINE = "@host"


def changes(old: str, new: str, facts: Facts, engine: str, probe: bool, say: Say) -> tuple[str, tuple[Change, ...]]:
    """The kind of thing that ``old`` and ``new`` are, and what changes between them.

    A name is looked for on this machine first: a folder or .toml file is a spec, a .lock file a lock, any other file a
    saved probe or a saved host, and ``@host`` is this machine; any other name is an image of ``engine``.  Of two images
    the locks inside and the layers are compared, and with ``probe``, or without a lock in both, what runs in them.
    Raises UsageError for two kinds.
    """
    kinds = (_kind(old), _kind(new))
    if kinds[0] != kinds[1]:
        if "image" in kinds:
            what = f"there is no file {(old, new)[kinds.index('image')]} here"
            fix = "check the name, or name two of the same kind"
            raise UsageError(f"{what}, and an image cannot be compared with anything else", fix)
        raise UsageError(f"{old} is a {kinds[0]}, {new} a {kinds[1]}", "name two of the same kind")
    kind = kinds[0]
    if kind == "lock":
        return kind, compare.locks(_lock(old), _lock(new), facts)
    if kind == "spec":
        return kind, compare.specs(_spec(old), _spec(new), facts)
    if kind == "probe":
        return kind, compare.images(saved.of_kind(old, Image), saved.of_kind(new, Image), facts)
    if kind == "host":
        return kind, hosts.changes(_host(old), _host(new), facts)
    return kind, _images(old, new, facts, connect(engine, say), probe, say)


def _host(name: str) -> Host:
    return observe_host() if name == _THIS_MACHINE else saved.of_kind(name, Host)


def _kind(name: str) -> str:
    if name == _THIS_MACHINE:
        return "host"
    path = Path(name)
    if os.path.isdir(path) or path.suffix == ".toml":
        return "spec"
    if path.suffix == ".lock":
        return "lock"
    if path.suffix == ".json" or os.path.isfile(path):
        return "host" if saved.kind(name) == "host" else "probe"
    return "image"


def _spec(path: str) -> Spec:
    """The spec, with the Python of its lock where it leaves that open."""
    found = spec.load(Path(path))
    held = lockfile.load(found) if found.any_python else None
    return replace(found, python=held.python) if held else found


def _lock(name: str) -> lockfile.Lock:
    return lockfile.parse(files.text(name, "check the name and the file's permissions", files.MOST_BYTES), name)


def _images(old: str, new: str, facts: Facts, engine: Engine, probe: bool, say: Say) -> tuple[Change, ...]:
    groups: list[tuple[Change, ...]] = []
    held = [engine.labels(name).get(runner.LOCK_LABEL, "") for name in (old, new)]
    if all(held):
        groups.append(compare.locks(lockfile.parse(held[0], old), lockfile.parse(held[1], new), facts))
    if probe or not all(held):
        seen = [runner.probe(runner.InEngine(engine, name, "", ()), say, abilities="none") for name in (old, new)]
        groups.append(compare.images(seen[0], seen[1], facts))
    if engine.layers(old) != engine.layers(new):
        say("reading the layers that differ")
        differing = up.compare_images(engine, old, new)
        groups.append(tuple(Change("layer", text, "", "", Weight.PLAIN) for text in differing))
    return compare.together(*groups)
