"""The specs that come with envkit, each with its lock and Dockerfile: what `envkit up NAME` means."""

from __future__ import annotations

import os
from pathlib import Path

from envkit.system import files

_FILES = ("envkit.toml", "envkit.lock", "Dockerfile")


def names() -> tuple[str, ...]:
    """The images that come with envkit, by name."""
    return tuple(sorted(path.parent.name for path in files.shipped("images").glob("*/envkit.toml")))


def is_name(path: Path) -> bool:
    """Whether ``path`` is the name of such an image and of nothing in the working folder."""
    return path.name == str(path) and not os.path.lexists(path) and path.name in names()


def copied(name: str, folder: Path) -> Path:
    """Copies the files of the image ``name`` into ``folder`` / ``name``, which is made, and gives that.

    Whatever is locked, rendered and built goes there: the installed package is never written to.  Raises UsageError
    where the folder cannot be made or written to.
    """
    made = folder / name
    texts = {file: files.shipped("images").joinpath(name, file).read_text(encoding="utf-8") for file in _FILES}
    files.folder(made, "go to a folder that may be written to")
    for file, text in texts.items():
        files.write(made / file, text)
    return made
