"""Lock files made of ``[[package]]`` tables: uv.lock, poetry.lock.

They are large, and of their hundreds of packages few matter: the file is cut at the tables' headings, and a table is
read when it is asked for.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from envkit.dockerfile.files import FileText
from envkit.dockerfile.files import toml as toml_of
from envkit.dockerfile.requirements import MOST, canonical, pin
from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import dataclass

_HEAD = pattern(r'^\[\[package\]\][ \t]*\r?\nname = "([^"\n]+)".*', re.MULTILINE)
_TAIL = pattern(r"^\[(?:metadata|extras)", re.MULTILINE)
_ARTIFACTS = pattern(r"^(?:wheels|files) = \[\r?\n(?:[ \t].*\n)*\][ \t]*\r?\n|^sdist = .*\n", re.MULTILINE)
_LOCAL = pattern(r"[-/][^-/\"]+(?:%2B|\+)([A-Za-z0-9.]+)-[^\"]*(?:linux_x86_64|manylinux[^\"]*x86_64)[^\"]*\.whl")


@dataclass(frozen=True, slots=True)
class Package:
    """One table: its canonical name, its text, and the line that names it."""

    name: str
    text: str
    span: Span

    def data(self) -> dict[str, Any]:
        """The table's values without its artifacts, empty where it is no TOML."""
        return _data(self.text)

    def version(self) -> tuple[str, str]:
        """Public and local version; the local one from the wheels for Linux where the version does not hold it."""
        found = re.search(r'^version = "([^"\n]+)"', self.text, re.MULTILINE)
        version, local = pin("==" + found[1]) if found else ("", "")
        if version and not local:
            locals_ = set(_LOCAL.findall(unquote(self.text)))
            if len(locals_) == 1:
                local = locals_.pop().lower()
        return version, local


@lru_cache(maxsize=4096)
def _data(text: str) -> dict[str, Any]:
    try:
        found = toml_of(_ARTIFACTS.sub("", text))
    except (ValueError, RecursionError):
        return {}
    listed = found.get("package")
    return listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}


@lru_cache(maxsize=8)
def packages(file: FileText) -> tuple[Package, ...]:
    """The packages of a lock file in order, at most as many as one command may ask for."""
    heads = []
    for found in _HEAD.finditer(file.text):
        heads.append(found)
        if len(heads) > MOST:
            break
    ends = [found.start() for found in heads[1:]]
    if heads:
        tail = _TAIL.search(file.text, heads[-1].end())
        ends.append(tail.start() if tail else len(file.text))
    line, counted, listed = 1, 0, []
    for found, end in zip(heads, ends, strict=True):
        line += file.text.count("\n", counted, found.start())
        counted = found.start()
        length = len(found[0].rstrip()) - found[0].index("\n") - 1
        span = Span(file.path, line + 1, 1, line + 1, length + 1)
        listed.append(Package(canonical(found[1]), file.text[found.start() : end], span))
    return tuple(listed)
