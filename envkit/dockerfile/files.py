"""The files that a build's commands name, as far as they can be known before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

LARGEST = 4 * 1024 * 1024  # bytes; no file that people write to say what to install is larger


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
        ...
