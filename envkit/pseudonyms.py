"""Takes out of a recorded machine what would tell whose it is: names, serial numbers, UUIDs and addresses.

Each gets a stand-in of the same form, the same one wherever it occurs, so that what belonged together still does and
a check says of the stand-ins what it said of the originals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_HEX = "[0-9a-fA-F]"
_UUID = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"\b{_UUID}\b"), "00000000-0000-0000-0000-{:012x}"),
    # a GUID or GID of InfiniBand, then MAC addresses: the longer form first
    (re.compile(rf"\b{_HEX}{{4}}(?::{_HEX}{{4}}){{7}}\b"), "0000:0000:0000:0000:0000:0000:0000:{:04x}"),
    (re.compile(rf"\b{_HEX}{{4}}(?::{_HEX}{{4}}){{3}}\b"), "0000:0000:0000:{:04x}"),
    (re.compile(rf"\b{_HEX}{{2}}(?::{_HEX}{{2}}){{5}}\b"), "02:00:00:00:00:{:02x}"),  # locally administered
    (re.compile(r"(?<![\d.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"), "192.0.2.{}"),  # RFC 5737
)
_LEAST_NAME = 3  # characters: a shorter host name occurs by chance in other words
_NAMED = ("serial", "board_serial", "hostname")


def machine(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The machine, as plain data, under stand-ins; names of users in paths under /home go too."""
    known: dict[str, str] = {}
    name = str(plain.get("name", ""))
    made = _walk(dict(plain), "", name, known)
    assert isinstance(made, dict)
    return made


def _walk(value: Any, key: str, name: str, known: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _text(value, key, name, known)
    if isinstance(value, Mapping):
        observed = set(value) == {"value", "via", "missing"}
        return {
            _text(str(inner), "", name, known): _walk(
                item, key if observed and inner == "value" else str(inner), name, known
            )
            for inner, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_walk(item, key, name, known) for item in value]
    return value


def _stand_in(found: str, form: str, known: dict[str, str]) -> str:
    if found.lower() not in known:
        number = 1 + sum(other.startswith(f"{form} ") for other in known.values())
        known[found.lower()] = f"{form} {form.format(number)}"
    return known[found.lower()].removeprefix(f"{form} ")


def _text(text: str, key: str, name: str, known: dict[str, str]) -> str:
    if key in _NAMED and text:
        return _stand_in(text, "serial-{}", known)
    if len(name) >= _LEAST_NAME:
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "machine", text)
    for pattern, form in _RULES:
        text = pattern.sub(lambda found, form=form: _stand_in(found[0], form, known), text)  # type: ignore[misc]
    return re.sub(r"/home/[^/:\s]+", "/home/user", text)
