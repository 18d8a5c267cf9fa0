"""CDI specifications: what they promise of the driver's files, and which of these exist.

nvidia-ctk writes specifications as YAML, people write them as YAML or JSON.  Of YAML what such files do not need
(anchors, aliases, tags, a key that comes twice) is refused, so that nothing is taken for something it is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envkit.host.driver import DRIVER_VERSION
from envkit.host.root import HostRoot, short
from envkit.model import Observed
from envkit.subjects.host import CdiSpec

_DIRECTORIES = ("etc/cdi", "var/run/cdi", "run/cdi")
_MOST_WORDS = 300  # of an error, which may show a line of any length
_DEEPEST = 60  # levels; a specification has seven


def parse_yaml(text: str) -> Any:
    """The document as dicts, lists and text, every scalar as text; raises ValueError on YAML not read here."""
    import yaml  # costs 30 ms, and most machines have no such file

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

    class Strict(loader):  # type: ignore[misc, valid-type]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                raise ValueError(f"the mapping that begins in line {node.start_mark.line + 1} has a key twice")
            return found

    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
                raise ValueError("it has an anchor, an alias or a tag")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise ValueError(f"it has more than {_DEEPEST} levels")
        return yaml.load(text, Loader=Strict)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{where}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if value and not isinstance(value, list):
        raise ValueError(f"`{str(value)[:40]}` stands for a list")
    for item in value if isinstance(value, list) else []:
        if not isinstance(item, dict):
            raise ValueError("a list holds something that is no mapping")
        yield item


def _host_paths(edits: object) -> Iterator[str]:
    """The host paths of one containerEdits (CDI specification: deviceNodes, mounts, hooks)."""
    if not edits:
        return
    if not isinstance(edits, dict):
        raise ValueError("containerEdits is no mapping")
    for node in _dicts(edits.get("deviceNodes")):
        yield str(node.get("hostPath") or node.get("path"))
    for mount in _dicts(edits.get("mounts")):
        yield str(mount.get("hostPath"))
    for hook in _dicts(edits.get("hooks")):
        yield str(hook.get("path"))


def parse_spec(text: str, path: str, place: HostRoot) -> CdiSpec | None:
    """A specification and which of its files exist; None if its kind is not NVIDIA's.

    A text that cannot be read is NVIDIA's if it names nvidia.com, and its CdiSpec says the error.
    """
    try:
        data = json.loads(text) if text.lstrip().startswith("{") else parse_yaml(text)
        if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
            raise ValueError("it names no kind")
        if not data["kind"].startswith("nvidia.com/"):
            return None
        devices = list(_dicts(data.get("devices")))
        names = tuple(f"{data['kind']}={device.get('name')}" for device in devices)
        edits = [data.get("containerEdits"), *(device.get("containerEdits") for device in devices)]
        files = sorted({file for edit in edits for file in _host_paths(edit)})
    except (ValueError, RecursionError) as error:
        return CdiSpec(path, error=str(error)[:_MOST_WORDS]) if "nvidia.com" in text else None
    missing, unseen = [], []
    for file in files:
        try:
            if not place.exists(file):
                missing.append(file)
        except OSError:
            unseen.append(file)
    found = {match[1] for file in files if (match := re.search(rf"\.so\.({DRIVER_VERSION.pattern})\Z", file))}
    return CdiSpec(path, "", names, len(files), tuple(missing), tuple(sorted(found)), tuple(unseen))


def specs(place: HostRoot) -> Observed[tuple[CdiSpec, ...]]:
    """NVIDIA's specifications in the standard directories; a file reached by two paths counts once.

    Raises OSError for a directory that is there and cannot be listed.
    """
    found: dict[Path, CdiSpec] = {}
    for directory in _DIRECTORIES:
        if not place.exists(directory):
            continue
        for name in place.names(directory):
            shown = f"/{directory}/{name}"
            if not name.endswith((".yaml", ".yml", ".json")):
                continue
            try:
                file = place.path(shown).resolve()
                spec = _read(place, shown) if file not in found and file.is_file() else None
            except OSError as error:  # it costs this file alone
                file = Path(shown)
                spec = CdiSpec(shown, error=short(error)) if "nvidia" in name else None
            if spec is not None:
                found[file] = spec
    return Observed.of(tuple(found.values()), "/etc/cdi, /var/run/cdi")


def _read(place: HostRoot, shown: str) -> CdiSpec | None:
    text = place.text(shown[1:])
    if text.value is not None:
        return parse_spec(text.value, shown, place)
    return CdiSpec(shown, error=text.missing.removeprefix(f"{shown}: ")) if "nvidia" in shown else None
