"""envkit.pushed.toml: the digests that registries gave to images of the spec beside it, one line an image.

It is a file of its own, for the digest cannot stand in the lock: the image holds the lock, so that the image's digest
would change by being written there, and a lock is the same for the same spec wherever it is made, while a digest is
what one registry holds of one build.  Each line names the lock it is for by its sha256; lines of other locks stay until
their name is pushed again, so that the file can be merged line by line and two machines write the same.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec

from envkit.dockerfile.files import toml
from envkit.errors import UsageError
from envkit.plan.lockfile import Lock, dump
from envkit.plan.spec import Spec
from envkit.records import dataclass
from envkit.system import files
from envkit.system.typed_toml import fit

_HEAD = "# Written by `envkit push`: which image a registry holds under each name.  Keep it beside the lock.\n"
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"^(?:sha256:)?[0-9a-f]{64}\Z")]
_Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9/]{1,40}\Z")]
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}")


class Pushed(msgspec.Struct, frozen=True):
    """What a registry holds under a name: its digest ("sha256:..."), the flavor, the platform, and the sha256 (hex) of
    the lock that the image holds."""

    digest: _Sha256
    flavor: _Word
    platform: _Word
    lock: _Sha256


class _File(msgspec.Struct):
    pushed: dict[str, Pushed] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """An image in a registry by its digest: what FROM, a Pod and `docker pull` take."""

    ref: str
    digest: str

    @property
    def pinned(self) -> str:
        """The name without its tag, and the digest."""
        head, slash, last = self.ref.rpartition("/")
        return f"{head}{slash}{last.partition(':')[0]}@{self.digest}"


def path_of(spec: Spec) -> Path:
    """Where the file lies: beside the spec."""
    return spec.path.with_name("envkit.pushed.toml")


def read(spec: Spec) -> dict[str, Pushed]:
    """What was pushed, by name; nothing where there is no file.  Raises UsageError for one that cannot be read."""
    path, fix = path_of(spec), "restore it, or remove it and push again"
    try:
        held = fit(toml(files.text(path, fix)), _File, str(path)).pushed
    except UsageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}", fix) from error
    if stray := next((ref for ref in held if not _REF.fullmatch(ref)), None):
        raise UsageError(f"{path} has {stray!r}, which is no name of an image", fix)
    return held


def text(held: dict[str, Pushed]) -> str:
    """The file's text: the same for the same images."""
    lines = [_HEAD, "[pushed]\n"]
    for ref, one in sorted(held.items()):
        row = ", ".join(f'{key} = "{getattr(one, key)}"' for key in ("digest", "flavor", "platform", "lock"))
        lines.append(f"{json.dumps(ref)} = {{ {row} }}\n")
    return "".join(lines)


def record(spec: Spec, ref: str, one: Pushed) -> Path:
    """Writes what was pushed as ``ref`` into the file beside the spec, and returns its path."""
    path = files.beside(path_of(spec).parent, path_of(spec).name)
    files.write(path, text({**read(spec), ref: one}))
    return path


def of_lock(lock: Lock) -> str:
    """The sha256 (hex) by which a lock is named."""
    return sha256(dump(lock).encode()).hexdigest()


def places(spec: Spec, lock: Lock, flavor: str) -> tuple[Place, ...]:
    """Where images of this very lock and flavor are, by name."""
    wanted = (flavor, of_lock(lock))
    return tuple(Place(ref, one.digest) for ref, one in sorted(read(spec).items()) if (one.flavor, one.lock) == wanted)
