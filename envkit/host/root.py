"""Where a machine is looked at: its root directory and its environment.

The root is "/", or the place where another view of it lies: a recorded tree, or the machine's own root mounted into
a container.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from envkit.model import Observed
from envkit.records import dataclass

T = TypeVar("T")

MOST_BYTES = 1 << 20  # of a file of /proc, /sys or /etc
_MOST_LINKS = 40  # what Linux follows before it says ELOOP
# where programs lie; the last two are NixOS's and snap's
_PROGRAMS = (
    *("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "usr/local/nvidia/toolkit"),
    *("run/current-system/sw/bin", "snap/bin"),
)


@dataclass(frozen=True, slots=True)
class HostRoot:
    """A root and an environment; ``live`` says whether the root is this machine's own."""

    root: Path
    environ: Mapping[str, str]

    @property
    def live(self) -> bool:
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        """The file ``name`` ("etc/os-release") under the root, its links followed as if the root were "/".

        Raises OSError (ELOOP) for links that run in a circle.
        """
        if self.live:
            return self.root / name
        todo, at, links = [part for part in name.split("/") if part], self.root, 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                at = at if at == self.root else at.parent
            elif part != ".":
                step = at / part
                if step.is_symlink():
                    links += 1
                    if links > _MOST_LINKS:
                        raise OSError(40, os.strerror(40), name)
                    target = os.readlink(step)
                    at = self.root if target.startswith("/") else at
                    todo = [piece for piece in target.split("/") if piece] + todo
                else:
                    at = step
        return at

    def exists(self, name: str) -> bool:
        """Whether ``name`` is there; what may not be looked at is not known to be absent and raises OSError."""
        try:
            self.path(name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def program(self, *names: str) -> str:
        """The path of the first of these programs in the usual directories, empty if none is there.

        Raises OSError if one may not be looked at.
        """
        paths = (f"/{directory}/{name}" for name in names for directory in _PROGRAMS)
        return next((path for path in paths if self.exists(path)), "")

    def text(self, name: str, most: int = MOST_BYTES) -> Observed[str]:
        """The text of ``name``, bad bytes replaced; lost if it is not there, not readable, or beyond ``most`` bytes."""
        try:
            with self.path(name).open("rb") as file:
                data = file.read(most + 1)
        except OSError as error:
            return Observed.lost(f"/{name}: {short(error)}", f"/{name}")
        if len(data) > most:
            return Observed.lost(f"/{name} has more than {most >> 20} MiB", f"/{name}")
        return Observed.of(data.decode("utf-8", "replace"), f"/{name}")

    def word(self, name: str) -> str:
        """The text of a small file without the space around it; raises OSError if it cannot be read."""
        with self.path(name).open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace").strip()

    def names(self, name: str) -> tuple[str, ...]:
        """The sorted names in the directory ``name``; raises OSError if it cannot be listed."""
        return tuple(sorted(os.listdir(self.path(name))))


Source = Callable[[HostRoot], Observed[Any]]


def by_name(*sources: Source) -> dict[str, Source]:
    """Sources by the fields of Host that they fill, whose names they bear."""
    return {source.__name__: source for source in sources}


def short(error: Exception) -> str:
    """An error in a few words, without the path that the reader already has."""
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)


def nearest(place: HostRoot, name: str) -> Path:
    """``name``, or the nearest directory above it that is there; raises OSError where that may not be looked at."""
    while name.strip("/") and not place.exists(name):
        name = name.rstrip("/").rpartition("/")[0]
    return place.path(name)


def parsed(place: HostRoot, name: str, parse: Callable[[str], T], most: int = MOST_BYTES) -> Observed[T]:
    """What a parser makes of a file's text; lost with the reason where there is no text or the parser refuses it."""
    text = place.text(name, most)
    if text.value is None:
        return text.absence()
    try:
        return Observed.of(parse(text.value), text.via)
    except ValueError as error:
        return Observed.lost(f"/{name}: {error}", text.via)
