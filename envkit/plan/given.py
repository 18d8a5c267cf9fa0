"""Wheels that a spec names by their file or address, and not by an index.

Each stands in `packages` by the release that its name says, so that all else treats it as any other; the solver is
given the very file.  A lock holds its name and hash as of any wheel, and a build gets the file beside its context.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from envkit.errors import Undecided, UsageError, one_line
from envkit.records import dataclass
from envkit.system import files

_MOST = 2 << 30  # bytes of a wheel behind an address; the largest of the well-known ones has 900 MB
_BUDGET_S = 1800.0
_LONGEST = 1000  # characters
_DIRECT = re.compile(r"(?:(?P<name>[A-Za-z0-9][^@/:;]*)@\s*)?(?P<where>(?:[a-z+]+://|\.{0,2}/|file:)\S*|\S+\.whl\S*)")
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class GivenWheel:
    """One of them: ``requirement`` as an index would have it, ``where`` the address or the path as written, ``sha256``
    "" for a path until `hashed` has read it."""

    name: str
    requirement: str
    file: str
    where: str
    sha256: str = ""

    @property
    def remote(self) -> bool:
        """Whether it lies behind an address."""
        return "://" in self.where

    @property
    def said(self) -> str:
        """What a lock's wish holds of it: no address."""
        return f"{self.file} {self.sha256}"


def read(text: str, key: str) -> GivenWheel | None:
    """The wheel that an entry of a spec names directly, None for a requirement by name.

    Raises UsageError for what is no wheel, holds a credential or could change behind its address.
    """
    found = _DIRECT.fullmatch(text.strip())
    if found is None:
        return None
    written, _, fragment = found["where"].partition("#")
    shown = one_line(re.sub(r"//[^/@]*@", "//", written))[:120]
    if len(text) > _LONGEST or not text.isprintable():
        raise UsageError(f"`{key}` holds `{shown}`", f"at most {_LONGEST} printable characters, in one line")
    remote = re.match(r"https?://", written)
    if "://" in written and not remote:
        raise UsageError(f"`{key}` holds `{shown}`, which cannot be pinned", "name a wheel: https://.../NAME.whl")
    if remote and ("@" in (urlsplit(written).netloc) or urlsplit(written).query):
        raise UsageError(
            f"`{key}` holds a credential in the address of {urlsplit(written).hostname}",
            "take it out, revoke it, and keep it in netrc",
        )
    file = unquote(written.rpartition("/")[2])
    try:
        name, version, _, _ = parse_wheel_filename(file)
        one = Requirement(found["name"].strip() if found["name"] else name)
    except (InvalidWheelFilename, InvalidRequirement) as error:
        raise UsageError(f"`{key}` holds `{shown}`, which is no wheel", "name a file NAME-VERSION-TAGS.whl") from error
    if canonicalize_name(one.name) != name or one.specifier:
        raise UsageError(f"`{key}` says {one_line(str(one))} of {file}", f"write {name}, or another file")
    if name == "torch":
        raise UsageError(f"`{key}` names a wheel of torch", "only the key `torch` selects it")
    digest = _SHA256.fullmatch(fragment)
    if fragment and digest is None:
        raise UsageError(f"`{key}` has `#{one_line(fragment)[:80]}` behind {file}", "write #sha256= and 64 hex digits")
    if remote and digest is None:
        command = f"curl -fsSL {shlex.quote(written)} | sha256sum"
        raise UsageError(
            f"`{key}` has no hash of {file}, which can change", f"add #sha256= and what this says: {command}"
        )
    extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
    return GivenWheel(name, f"{one.name}{extras}=={version}", file, written, digest[1] if digest else "")


def hashed(wheel: GivenWheel, folder: Path) -> GivenWheel:
    """The wheel with its path from ``folder`` on, and the hash of what lies there; raises UsageError where that is
    nothing, or another than was written."""
    if wheel.remote:
        return wheel
    path = folder / wheel.where
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {files.why(error)}", "name a wheel, from the folder of the spec"
        ) from error
    if wheel.sha256 not in ("", digest):
        raise UsageError(f"{path} has sha256 {digest}, not the one that the spec says", "correct one of them")
    return replace(wheel, where=os.path.abspath(path), sha256=digest)


def here(wheels: Iterable[GivenWheel]) -> Mapping[str, Path]:
    """By distribution the files on this machine; what lies behind an address is fetched once and kept by its hash.

    Raises Undecided where it cannot be had and UsageError where it is another one.
    """
    return {wheel.name: _fetched(wheel) if wheel.remote else Path(wheel.where) for wheel in wheels}


def _fetched(wheel: GivenWheel) -> Path:
    kept = files.cache_dir() / "given" / wheel.sha256 / wheel.file
    if kept.is_file():
        return kept
    from envkit.system.index import Index, IndexFile  # it costs 40 ms

    parts = urlsplit(wheel.where)
    content = Index(f"{parts.scheme}://{parts.netloc}/", _BUDGET_S).whole(IndexFile(wheel.file, wheel.where), _MOST)
    digest = hashlib.sha256(content).hexdigest()
    if digest != wheel.sha256:
        said = f"{wheel.file} at {parts.hostname} has sha256 {digest}, not the one that the spec says"
        raise UsageError(said, "find out why it changed before you write the new one")
    files.folder(kept.parent)
    with files.scratch("given", kept.parent) as folder:
        (folder / wheel.file).write_bytes(content)
        (folder / wheel.file).replace(kept)
    return kept


def gather(wheels: Iterable[GivenWheel], target: Path) -> None:
    """Puts the files into the folder ``target``; raises UsageError for one that is not the locked one any more."""
    files.folder(target)
    for wheel in wheels:
        found = here([wheel])[wheel.name]
        try:
            shutil.copyfile(found, target / wheel.file)
        except OSError as error:
            if files.is_full(error):
                raise Undecided(f"the disk is full: {target} was not filled", "free some space") from error
            raise UsageError(f"{found} cannot be read: {files.why(error)}", "put it back, or lock again") from error
        hashed(replace(wheel, where=wheel.file), target)


def solved(lines: Iterable[str], found: Mapping[str, Path]) -> tuple[str, ...]:
    """Requirements for the solver, which takes these files for what they are the release of."""
    return tuple(_solved(line, found) for line in lines)


def _solved(line: str, found: Mapping[str, Path]) -> str:
    one = Requirement(line)
    path = found.get(canonicalize_name(one.name))
    if path is None:
        return line
    extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
    return f"{one.name}{extras} @ {path.absolute().as_uri()}" + (f" ; {one.marker}" if one.marker else "")
