"""CDI specifications: what they promise of the driver's files, and which of these exist.

nvidia-ctk writes specifications as YAML, people write them as YAML or JSON.  Only the YAML that such files
need is read here: block and one-line flow collections with plain or quoted scalars.  Anything else (anchors,
tags, block scalars, a scalar over several lines) is refused, so that nothing is taken for something it is
not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envkit.host.driver import DRIVER_VERSION
from envkit.host.root import HostRoot, short
from envkit.model import Observed
from envkit.subjects.host import CdiSpec

_DIRECTORIES = ("etc/cdi", "var/run/cdi", "run/cdi")
_MOST_WORDS = 300  # of an error, which may show a line of any length
_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s:\[\]{},"'#&*!|>%@`-][^:]*?)\s*:(?:\s+(.*)|\Z)""")
_QUOTED = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'(?:[^']|'')*'""")
_PLAIN = re.compile(r"(?:[^\[\]{},:]|:(?![\s\[\]{},]|\Z))+")


@dataclass
class _Lines:
    """Lines of text with their indentation, and how far they are read."""

    rows: list[tuple[int, str]]
    at: int = 0

    def now(self) -> tuple[int, str] | None:
        return self.rows[self.at] if self.at < len(self.rows) else None


def parse_yaml(text: str) -> Any:
    """The document as dicts, lists and text, every scalar as text; raises ValueError on YAML not read here."""
    rows = []
    for raw in text.splitlines():
        line = raw.rstrip()
        if line.lstrip().startswith("#") or line.strip() in ("", "---"):
            continue
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise ValueError("a tab indents a line")
        rows.append((len(line) - len(line.lstrip(" ")), line.lstrip(" ")))
    lines = _Lines(rows)
    tree = _node(lines, 0) if rows else None
    if lines.now() is not None:
        raise ValueError(f"unexpected line `{lines.rows[lines.at][1]}`")
    return tree


def _node(lines: _Lines, indent: int) -> Any:
    row = lines.now()
    if row is None or row[0] < indent:
        return None
    indent, text = row
    if text == "-" or text.startswith("- "):
        return _list(lines, indent)
    if _KEY.match(text):
        return _map(lines, indent)
    lines.at += 1
    return _scalar(text)


def _list(lines: _Lines, indent: int) -> list[Any]:
    items: list[Any] = []
    while (row := lines.now()) is not None and row[0] == indent and (row[1] == "-" or row[1].startswith("- ")):
        rest = row[1][1:].lstrip(" ")
        if rest:
            lines.rows[lines.at] = (indent + len(row[1]) - len(rest), rest)
        else:
            lines.at += 1
        items.append(_node(lines, indent + 1))
    return items


def _map(lines: _Lines, indent: int) -> dict[str, Any]:
    items: dict[str, Any] = {}
    while (row := lines.now()) is not None and row[0] == indent and (found := _KEY.match(row[1])):
        lines.at += 1
        key, rest = found[1].strip("\"'"), (found[2] or "").strip()
        if key in items:
            raise ValueError(f"key `{key}` comes twice")
        below = lines.now()
        if rest and not rest.startswith("#"):
            items[key] = _scalar(rest)
        elif below is not None and (below[0] > indent or (below[0] == indent and below[1].startswith("-"))):
            items[key] = _node(lines, below[0])
        else:
            items[key] = None
    return items


def _scalar(text: str) -> Any:
    if text[0] in "[{":
        value, end = _flow(text, 0)
        if text[end:].strip() and not text[end:].lstrip().startswith("#"):
            raise ValueError(f"unexpected text after `{text[:end]}`")
        return value
    if text[0] == '"':
        value, end = json.JSONDecoder().raw_decode(text)
        if text[end:].strip() and not text[end:].lstrip().startswith("#"):
            raise ValueError(f"unexpected text after `{text[:end]}`")
        return value
    if text[0] == "'":
        if not re.fullmatch(r"'(?:[^']|'')*'", text):
            raise ValueError(f"`{text}` is not closed")
        return text[1:-1].replace("''", "'")
    if text[0] in "|>&*!%@`":
        raise ValueError(f"`{text}` is YAML that is not read here")
    plain = text.split(" #", 1)[0].rstrip()
    return None if plain in ("null", "~") else plain


def _token(text: str, at: int) -> tuple[str, int]:
    """The next mark, quoted or plain scalar of a flow collection, and where it ends."""
    while text[at : at + 1].isspace():
        at += 1
    if text[at : at + 1] in ("[", "]", "{", "}", ",", ":"):
        return text[at], at + 1
    found = _QUOTED.match(text, at) or _PLAIN.match(text, at)
    if not found:
        raise ValueError(f"`{text}` does not end")
    return found[0].rstrip(), found.end()


def _flow(text: str, at: int) -> tuple[Any, int]:
    token, at = _token(text, at)
    if token not in ("[", "{"):
        if token in ("]", "}", ",", ":"):
            raise ValueError(f"`{text}` is not a flow collection")
        return _scalar(token), at
    pairs: dict[str, Any] = {}
    items: list[Any] = []
    close = "]" if token == "[" else "}"
    while True:
        ahead, after = _token(text, at)
        if ahead == close:
            return (items if close == "]" else pairs), after
        if close == "]":
            item, at = _flow(text, at)
            items.append(item)
        else:
            colon, at = _token(text, after)
            if colon != ":":
                raise ValueError(f"`{text}` lacks a colon")
            pairs[ahead.strip("\"'")], at = _flow(text, at)
        ahead, after = _token(text, at)
        if ahead == ",":
            at = after
        elif ahead != close:
            raise ValueError(f"`{text}` is not a flow collection")


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    for item in value if isinstance(value, list) else []:
        if not isinstance(item, dict):
            raise ValueError("a list holds something that is no mapping")
        yield item


def _host_paths(edits: object) -> Iterator[str]:
    """The host paths of one containerEdits (CDI specification: deviceNodes, mounts, hooks)."""
    if edits is None:
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
