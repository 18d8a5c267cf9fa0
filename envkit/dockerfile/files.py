"""The files that a build's commands name, as far as they can be known before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from posixpath import dirname, join, normpath
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


@dataclass(frozen=True, slots=True)
class Project:
    """All names of a project: ``context`` and ``own`` are the folders of the build context and of the Dockerfile below
    its root, "" for the root itself.

    ``paths`` are the files and folders, ``links`` those of them that are symbolic links.  ``text`` gives the text of a
    file, "" for none; ``ignored`` says whether git ignores a path, ``kept_out`` whether the .dockerignore keeps a name
    of the context out of it, ``executable`` whether git keeps a file as one that may be executed, None where it does
    not say.
    """

    context: str
    own: str
    paths: frozenset[str]
    links: frozenset[str]
    text: Callable[[str], str]
    ignored: Callable[[str], bool]
    kept_out: Callable[[str], bool]
    executable: Callable[[str], bool | None] = lambda path: None

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder, or may be behind a link."""
        return path in self.paths or any(folder in self.links for folder in above(path))


def folders(files: Iterable[str]) -> frozenset[str]:
    """Files with all folders above them, the root's "" among them."""
    return frozenset(path for file in files for path in (file, *above(file))) | {""}


def above(path: str) -> Iterator[str]:
    """The folders above a path, the nearest first, the root's "" last."""
    while path:
        path = dirname(path)
        yield path


class Files(Protocol):
    """What the container would see at one moment of the build."""

    def read(self, path: str, cwd: str) -> FileText | str:
        """The file at ``path`` (relative to ``cwd``), or a clause that says why it cannot be known
        ("no build context was given", "the build downloads it").
        """


def absolute(path: str, cwd: str) -> str:
    """A path of the image without "." and "..", a relative one from ``cwd`` or, where that is not known, the root."""
    return normpath(join(cwd or "/", path))
