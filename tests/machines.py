"""Healthy machines, whole, and the same with something changed: the words in which pages and tests plant a fault.

A machine lies in ``data/machine/<name>/``, in files that each hold some fields of Host.  A change is a path and a
value: ``"nvml.gpus.0.remap.failed": true``.  A path walks through observed values without naming them; ``*`` stands
for every item of a list, ``+`` puts one behind it.  ``null`` takes a value away, as if it had not been observed.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from envkit.model import Observed, is_observation
from envkit.subjects import Audit, Host, Launch
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.declared import Job

DATA = Path(__file__).parent / "data" / "machine"
LAUNCHES = Path(__file__).parent / "data" / "launch"
LAUNCH_NAMES = tuple(sorted(path.name for path in LAUNCHES.iterdir()))
NAMES = tuple(sorted(path.name for path in DATA.iterdir()))
TAKEN = "taken away"


@cache
def _fields(name: str) -> Mapping[str, bytes]:
    """The machine ``name`` as pickled plain data by field, which is copied faster than it is read."""
    return {field: pickle.dumps(value) for field, value in _read(name).items()}


def plain(name: str) -> dict[str, Any]:
    """The machine ``name`` as plain data of the caller's own."""
    return {field: pickle.loads(value) for field, value in _fields(name).items()}


@cache
def _healthy(name: str) -> Host:
    made = plain(name)
    read = from_plain(Host, made)
    _kept(made, to_plain(read), name)
    return read


def _read(name: str) -> dict[str, Any]:
    """The machine ``name`` as plain data; a field that two of its files hold is an error."""
    found: dict[str, Any] = {"name": name}
    for file in sorted((DATA / name).glob("*.json")):
        for field, value in json.loads(file.read_text(encoding="utf-8")).items():
            assert field not in found, f"{file} holds {field} a second time"
            found[field] = value
    return found


def changed(machine: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The machine with ``changes`` made to it."""
    made: dict[str, Any] = pickle.loads(pickle.dumps(dict(machine)))
    for path, value in changes.items():
        _change(made, path.split("."), copy.deepcopy(value), path)
    return made


def _is_observed(item: object) -> bool:
    return is_observation(item)


def _change(item: Any, path: list[str], value: Any, whole: str) -> None:
    if _is_observed(item):
        assert item["value"] is not None, f"{whole}: walks through a value that was not observed"
        item = item["value"]
    here, rest = path[0], path[1:]
    if here == "*":
        for index in range(len(item)):
            _change(item, [str(index), *rest], value, whole)
        return
    if here == "+":
        assert not rest, f"{whole}: + comes last"
        item.append(value)
        return
    key: Any = int(here) if isinstance(item, list) else here
    if rest:
        assert isinstance(item, list) or key in item, f"{whole}: the machine has no {here}"
        _change(item[key], rest, value, whole)
        return
    old = item[key] if isinstance(item, list) or key in item else None
    observed = _is_observed(old) or (old is None and len(path) == len(whole.split(".")))
    if value is None:
        item[key] = {"value": None, "via": "", "missing": TAKEN}
    elif observed and not (isinstance(value, dict) and "missing" in value):
        item[key] = {"value": value, "via": (old or {}).get("via") or "stated", "missing": ""}
    else:
        item[key] = value


def _kept(said: Any, read: Any, where: str) -> None:
    """Fails if a key of ``said`` is none of the type's, which would have been left out without a word."""
    if isinstance(said, dict) and isinstance(read, dict):
        for key, value in said.items():
            assert key in read, f"{where}.{key} is no such field"
            _kept(value, read[key], f"{where}.{key}")
    elif isinstance(said, list) and isinstance(read, list):
        for index, (one, other) in enumerate(zip(said, read, strict=True)):
            _kept(one, other, f"{where}.{index}")


def host(name: str, changes: Mapping[str, Any] | None = None) -> Host:
    """The machine ``name`` with ``changes`` made to it; only the fields that they touch are read again."""
    healthy, wanted = _healthy(name), dict(changes or {})
    if not wanted:
        return healthy
    fields = {path.split(".", 1)[0] for path in wanted}
    part = {field: pickle.loads(value) for field, value in _fields(name).items() if field in fields}
    made = changed({"name": name} | part, wanted)
    read = from_plain(Host, made)
    _kept(made, to_plain(read), name)
    touched: dict[str, Any] = {field: getattr(read, field) for field in made}
    return replace(healthy, **touched)


def launch(name: str, changes: Mapping[str, Any] | None = None) -> Launch:
    """The healthy launch ``name`` on the machine of that name, with ``changes`` made to it.

    Paths begin with "host", "image" or "job", or name another field of Launch.
    """
    whole: dict[str, Any] = {"name": f"trainer:1 on {name}", "host": plain(name)}
    for file in sorted((LAUNCHES / name).glob("*.json")):
        whole |= json.loads(file.read_text(encoding="utf-8"))
    whole["job"] = to_plain(Job()) | whole["job"]
    whole["image"]["value"] = to_plain(Audit("")) | whole["image"]["value"]
    made = changed(whole, changes or {})
    read = from_plain(Launch, made)
    _kept(made, to_plain(read), name)
    return read


def without(subject: Any, *fields: str) -> Any:
    """The subject as if these of its observed fields had not been observed."""
    taken: dict[str, Any] = {name: Observed.lost(TAKEN) for name in fields}
    return replace(subject, **taken)
