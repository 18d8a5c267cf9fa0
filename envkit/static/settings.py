"""``[check]`` of an envkit.toml: which severities count, what an image nobody knows holds, and what to leave out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import msgspec

from envkit.dockerfile.bases import split
from envkit.dockerfile.files import toml
from envkit.errors import UsageError, nearest
from envkit.model import Observed, Severity, Span
from envkit.records import dataclass
from envkit.subjects.dockerfile import Base
from envkit.system import files
from envkit.system.typed_toml import fit

_FLAVORS = ("base", "runtime", "devel")


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


class RawSettings(msgspec.Struct, rename="kebab"):
    """The table as a person writes it."""

    fail_on: str = ""
    gpus: tuple[str, ...] = ()
    driver: str = ""
    exclude: tuple[str, ...] = ()
    severity: dict[str, object] = {}
    base: dict[str, object] = {}


class KnownBase(msgspec.Struct, rename="kebab"):
    """What a base holds that nobody else knows, each None where the table does not say."""

    cuda: str | None = None
    cudnn: str | None = None
    flavor: str | None = None
    os: str | None = None
    python: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None


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
        raise UsageError(f"{path} cannot be read: {error}", "fix the file") from error
    where = f"{path} [check]"
    written = fit(table, RawSettings, where)
    if written.fail_on and written.fail_on.upper() not in Severity.__members__:
        raise UsageError(f"{where}: fail-on = {written.fail_on!r} is no severity", "one of: note, warning, error")
    found = Settings(str(path), written.fail_on, written.gpus, written.driver, written.exclude)
    severity, bases = _severities(written.severity, where, known), _bases(written.base, where, path)
    return replace(found, severity=severity, bases=bases)


def _severities(
    table: Mapping[str, object], where: str, known: Callable[[], frozenset[str]]
) -> dict[str, Severity | None]:
    found: dict[str, Severity | None] = {}
    for check, word in table.items():
        if check not in known():
            raise UsageError(
                f"{where}: there is no check `{check}`{nearest(check, sorted(known()))}", "see `envkit check --list`"
            )
        if word != "off" and (not isinstance(word, str) or word.upper() not in Severity.__members__):
            raise UsageError(f"{where}: {check} = {word!r} is no severity", "one of: off, note, warning, error")
        found[check] = None if word == "off" else Severity[word.upper()]
    return found


def _bases(table: Mapping[str, object], where: str, path: Path) -> dict[str, Base]:
    found: dict[str, Base] = {}
    for reference, value in table.items():
        held = fit(value, KnownBase, f"{where}: base {reference!r}")
        if held.flavor not in (None, *_FLAVORS):
            raise UsageError(
                f"{where}: base {reference!r}: flavor {held.flavor!r} is none", f"one of: {', '.join(_FLAVORS)}"
            )
        found[reference] = _base(reference, held, str(path))
    return found


def _base(reference: str, held: KnownBase, path: str) -> Base:
    unsaid = f"{path} does not say"
    told: dict[str, Any] = {
        name: Observed.of(value, path) if (value := getattr(held, name)) is not None else Observed.lost(unsaid, path)
        for name in ("cuda", "cudnn", "flavor", "os", "python", "torch", "torch_cuda")
    }
    nvcc: Observed[bool] = Observed.of(held.flavor == "devel", path) if held.flavor else Observed.lost(unsaid, path)
    parts = split(reference)
    base = Base(reference, parts.repository, parts.tag, parts.digest, Span(path, 1), family="other", nvcc=nvcc)
    return replace(base, **told)
