"""A lock to the text of a Dockerfile."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import jinja2

from envkit import __version__
from envkit.lock import Lock, dump, requirements


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the template needs beside the lock."""

    installer: str
    requirements: str
    programs: tuple[tuple[str, str], ...]
    lock_sha256: str


def templates_dir() -> Path:
    """The templates: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).with_name("templates")
    return inside if inside.is_dir() else Path(__file__).parent.with_name("templates")


def _label(text: str) -> str:
    """A text as the double-quoted value of a Dockerfile LABEL: quote, backslash and dollar are escaped."""
    if "\n" in text or "\r" in text:
        raise ValueError("a label's value has one line")
    return '"' + re.sub(r'(["\\$])', r"\\\1", text) + '"'


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # this writes Dockerfiles; each value is held to a grammar and quoted for where it lands
    )
    environment.filters["label"] = _label
    environment.filters["shell"] = shlex.quote
    return environment


def template(name: str, values: Mapping[str, object]) -> str:
    """The template ``name`` filled with ``values``."""
    return _environment().get_template(name).render(values)


def dockerfile(lock: Lock) -> str:
    """The Dockerfile for ``lock``: the same text for the same lock and envkit."""
    plan = _Plan(
        installer=requirements([lock.installer]),
        requirements=lock.requirements,
        programs=tuple((name, path) for name, path in lock.tools if path.startswith("nvidia/")),
        lock_sha256=sha256(dump(lock).encode()).hexdigest(),
    )
    return template("Dockerfile.j2", {"lock": lock, "plan": plan, "version": __version__})
