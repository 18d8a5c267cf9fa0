"""The files that a build's commands name, as far as they can be known before it runs."""

from __future__ import annotations

import re
from posixpath import join, normpath
from typing import Any, Protocol

from envkit.records import dataclass

NOWHERE = "nothing in the Dockerfile puts it there"
MISSING = "it is not in the build context"


class ByBuild(str):
    """Why the text of a file is not known that surely is there: the build itself puts it there."""


class FromOthers(ByBuild):
    """Why the text of a file is not known that other people wrote: it is cloned, downloaded or of another image."""


LARGEST = 4 * 1024 * 1024  # bytes; no file that people write to say what to install is larger

# tomllib takes the square of a key's parts, and nobody writes a hundred.
_DOTTED = re.compile(r"""(?:\.[ \t]*(?:"[^"\n]{0,64}"|'[^'\n]{0,64}'|[\w-]{1,64})[ \t]*){100}""")


def toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; raises TOMLDecodeError, or RecursionError for what is nested too deeply."""
    import tomllib

    if _DOTTED.search(text):
        raise tomllib.TOMLDecodeError("a key has more than 100 parts")
    return tomllib.loads(text)


@dataclass(frozen=True, slots=True)
class FileText:
    """A file's text; ``path`` is what a person calls it, for the places of findings."""

    path: str
    text: str


class Files(Protocol):
    """What the container would see at one moment of the build."""

    def read(self, path: str, cwd: str) -> FileText | str:
        """The file at ``path`` (relative to ``cwd``), or a clause that says why it cannot be known
        ("no build context was given", "the build downloads it").
        """


def absolute(path: str, cwd: str) -> str:
    """A path of the image without "." and "..", a relative one from ``cwd`` or, where that is not known, the root."""
    return normpath(join(cwd or "/", path))
