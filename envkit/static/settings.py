"""``[check]`` of an envkit.toml: which severities count, what an image nobody knows holds, and what to leave out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from envkit.dockerfile.files import toml
from envkit.errors import UsageError
from envkit.model import Observed, Severity, Span
from envkit.subjects.dockerfile import Base
from envkit.system import files

KEYS = ("fail-on", "gpus", "driver", "exclude", "severity", "base")
_FLAVORS = ("base", "runtime", "devel")
HELD = ("cuda", "cudnn", "flavor", "os", "python", "torch", "torch-cuda")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the table says.

    ``severity`` maps a check to the severity of its findings, None to turn it off; ``bases`` are by reference;
    ``exclude`` are globs of paths that a walk leaves out; ``path`` is the file, "" where there is none.
    """

    path: str = ""
    fail_on: str = ""
    gpus: tuple[str, ...] = ()
    driver: str = ""
    exclude: tuple[str, ...] = ()
    severity: Mapping[str, Severity | None] = field(default_factory=dict)
    bases: Mapping[str, Base] = field(default_factory=dict)

    def excludes(self, path: Path) -> bool:
        """Whether a glob of ``exclude`` matches the path or a folder above it, as seen from the settings' folder."""
        if not self.exclude:
            return False
        seen = Path(os.path.relpath(path, Path(self.path).absolute().parent))
        names = [each.as_posix() for each in (seen, *seen.parents)]
        return any(fnmatch(name, pattern.rstrip("/")) for pattern in self.exclude for name in names)


def is_there(path: Path) -> bool:
    """Whether the file may hold the table; one that cannot be read, or is a spec alone, is nobody's settings."""
    try:
        return b"[check" in files.content(path)
    except OSError:
        return False


def load(path: Path, known: Callable[[], frozenset[str]]) -> Settings:
    """The table of the file at ``path``; ``known`` gives the checks that exist, where the table names any.

    Raises UsageError, naming the key and what would be right, for anything that is not as it should be.
    """
    try:
        table = toml(files.text(path, "check the file and its permissions")).get("check", {})
    except (ValueError, RecursionError) as error:  # no TOML, or nested past what Python reads
        raise UsageError(f"{path} cannot be read: {error}", "mend the file") from error
    where = f"{path} [check]"
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table", "write [check] on a line of its own")
    for key in table:
        if key not in KEYS:
            raise UsageError(f"{where} has no key `{key}`", f"one of: {', '.join(KEYS)}")
    fail_on = _text(table, "fail-on", where)
    if fail_on and fail_on.upper() not in Severity.__members__:
        raise UsageError(f"{where}: fail-on = {fail_on!r} is no severity", "one of: note, warning, error")
    return Settings(
        str(path),
        fail_on,
        _texts(table, "gpus", where),
        _text(table, "driver", where),
        _texts(table, "exclude", where),
        _severities(table.get("severity", {}), where, known),
        _bases(table.get("base", {}), where, path),
    )


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"{where}: `{key}` is no text", f'write {key} = "..."')
    return value


def _texts(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{where}: `{key}` is no list of texts", f'write {key} = ["..."]')
    return tuple(value)


def _severities(table: object, where: str, known: Callable[[], frozenset[str]]) -> dict[str, Severity | None]:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: `severity` is no table", 'write severity = { check-id = "note" }')
    found: dict[str, Severity | None] = {}
    for check, word in table.items():
        if check not in known():
            near = get_close_matches(check, known(), 1)
            raise UsageError(
                f"{where}: there is no check `{check}`", f"nearest: {near[0]}" if near else "see `envkit check --list`"
            )
        if word != "off" and (not isinstance(word, str) or word.upper() not in Severity.__members__):
            raise UsageError(f"{where}: {check} = {word!r} is no severity", "one of: off, note, warning, error")
        found[check] = None if word == "off" else Severity[word.upper()]
    return found


def _bases(table: object, where: str, path: Path) -> dict[str, Base]:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: `base` is no table", 'write [check.base."IMAGE:TAG"]')
    found: dict[str, Base] = {}
    for reference, held in table.items():
        if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
            raise UsageError(
                f"{where}: base {reference!r} is no table of texts", 'write cuda = "..." and the like below it'
            )
        for key in held:
            if key not in HELD:
                raise UsageError(f"{where}: base {reference!r} has no key `{key}`", f"one of: {', '.join(HELD)}")
        if held.get("flavor", "base") not in _FLAVORS:
            raise UsageError(
                f"{where}: base {reference!r}: flavor {held['flavor']!r} is none", f"one of: {', '.join(_FLAVORS)}"
            )
        found[reference] = _base(reference, held, str(path))
    return found


def _base(reference: str, held: Mapping[str, str], path: str) -> Base:
    def said(key: str) -> Observed[str]:
        return Observed.of(held[key], path) if key in held else Observed.lost(f"{path} does not say", path)

    flavor = held.get("flavor", "")
    nvcc: Observed[bool] = (
        Observed.of(flavor == "devel", path) if flavor else Observed.lost(f"{path} does not say", path)
    )
    repository, _, tag = (
        reference.partition("@")[0].rpartition(":") if ":" in reference.rsplit("/", 1)[-1] else (reference, "", "")
    )
    return Base(
        reference,
        repository,
        tag,
        reference.partition("@")[2],
        Span(path, 1),
        family="other",
        cuda=said("cuda"),
        cudnn=said("cudnn"),
        flavor=said("flavor"),
        os=said("os"),
        python=said("python"),
        torch=said("torch"),
        torch_cuda=said("torch-cuda"),
        nvcc=nvcc,
    )
