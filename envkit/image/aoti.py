"""Reads the document that the payload printed about an AOTInductor package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from envkit.errors import Undecided, UsageError
from envkit.image.probe import SCHEMA
from envkit.subjects import codec
from envkit.subjects.aoti import AotiRun

_OURS = {"name", "digest", "runner", "factory", "gpus_given", "engine", "newer_fields"}  # never taken from within


def _garbled(why: str) -> Undecided:
    said = f"the document about the package is malformed: {why}"
    return Undecided(said, "run it again; if it stays, something in the image rewrites the payload's output")


def read(document: Mapping[str, Any], asked: AotiRun, path: str) -> AotiRun:
    """The run that ``document`` describes; what is known outside is taken from ``asked`` alone.

    ``path`` is what the user calls the package, which lies elsewhere inside a container.

    Raises Undecided for a document that lacks a field or does not fit.
    """
    if document.get("schema") != SCHEMA or document.get("kind") != "aoti":
        raise _garbled(f"expected schema {SCHEMA} and kind aoti")
    said = document.get("aoti")
    expected = {field.name for field in fields(AotiRun)} - _OURS
    if not isinstance(said, Mapping) or set(said) != expected:
        odd = sorted(str(key) for key in expected ^ set(said if isinstance(said, Mapping) else ()))
        raise _garbled(f"fields missing or unknown: {', '.join(odd)}")
    for key, value in said.items():
        if not isinstance(value, Mapping) or (value.get("value") is None) != bool(value.get("missing")):
            raise _garbled(f"{key} must have either a value or a reason for its absence")
    try:
        run = codec.from_plain(AotiRun, {**said, "name": asked.name})
    except UsageError as error:
        raise _garbled(error.message) from error
    package = run.package
    if package.value is not None:
        package = replace(package, value=replace(package.value, path=path))
    return replace(run, package=package, **{name: getattr(asked, name) for name in _OURS})
