"""Under which licence each wheel of a lock is, in the words of its METADATA on the package index."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from envkit.errors import EnvkitError, one_line
from envkit.plan.lockfile import Pin

if TYPE_CHECKING:
    from envkit.system.index import Index

_AT_ONCE = 8
_LONGEST = 120  # characters of a name; some METADATA hold the whole licence
_CLASSIFIER = "License :: "


def stated(metadata: str) -> tuple[str, ...]:
    """What METADATA says of the licence: its License-Expression, a text of SPDX (PEP 639), else the last words of its
    classifiers, else the first line of its License; empty where it says nothing."""
    heads = HeaderParser().parsestr(metadata)
    if expression := str(heads.get("License-Expression") or "").strip():
        return (one_line(expression),)
    said = [str(line) for line in heads.get_all("Classifier") or ()]
    names = [line.rpartition(" :: ")[2].strip() for line in said if line.startswith(_CLASSIFIER)]
    if names := [name for name in names if name != "OSI Approved"]:
        return tuple(dict.fromkeys(map(one_line, names)))
    lines = str(heads.get("License") or "").strip().splitlines()
    first = one_line(lines[0].strip()) if lines else ""
    return (first,) if first and len(first) <= _LONGEST and first != "UNKNOWN" else ()


def of_index(pins: Sequence[Pin], index: Index) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """What the METADATA of each wheel says, by name, and why that was not read of the others."""

    def read(pin: Pin) -> tuple[str, ...] | str:
        try:
            file = next((one for one in index.files(pin.name) if one.name == pin.file), None)
            if file is None or (file.sha256 and file.sha256 != pin.sha256):
                return "the package index does not have this wheel"
            return stated(index.metadata(file))
        except EnvkitError as error:
            return error.message
        except OSError as error:
            return str(error)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        said = dict(zip((pin.name for pin in pins), pool.map(read, pins), strict=True))
    known = {name: value for name, value in said.items() if isinstance(value, tuple)}
    return known, {name: value for name, value in said.items() if isinstance(value, str)}
