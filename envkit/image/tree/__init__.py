"""What a container of an image would see, read without running anything and without copying what it holds."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from envkit.engine import Engine, Say, StoredImage
from envkit.errors import Undecided, UsageError
from envkit.image.config import DEFAULT_PATH, variables
from envkit.image.tar import Broken, Documents, shown
from envkit.image.tree import folder, saved
from envkit.image.tree.parts import Budget, Entry, Layer, LayerInfo, Unreadable, merge, why
from envkit.records import dataclass

__all__ = ["DEFAULT_PATH", "Entry", "LayerInfo", "Tree", "Unreadable", "open_tree", "variables"]

_HOPS = 40  # MAXSYMLINKS of linux/namei.h: the links that the kernel follows for one path
_NAME = "name a directory, a file that `docker save` wrote, or an image of the engine"


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of an image or a directory, as a container would see them.

    ``name`` is what the person typed, ``digest`` the image's id (empty for a directory).  ``config`` is "config" of the
    OCI image configuration with "architecture" and "os", empty for a directory.  ``layers`` are lowest first; a
    directory has one.  ``hidden`` is the bytes of files that a later layer replaced or removed, ``removed`` these files
    by path, the topmost layer's first.  ``entries`` are by absolute, normalised path and sorted, "/" among them;
    names that are no UTF-8 hold surrogates, as ``os.fsdecode`` makes them.  ``unread`` are the directories that could
    not be listed, with the reason.  ``content`` and ``hashed`` give the content of a file and the sha256 of that.
    """

    name: str
    digest: str
    config: Mapping[str, Any]
    layers: tuple[LayerInfo, ...]
    hidden: int
    removed: tuple[tuple[str, Entry], ...]
    entries: Mapping[str, Entry]
    unread: Mapping[str, str]
    content: Callable[[str, Entry], memoryview] = field(repr=False)
    hashed: Callable[[str, Entry], str] = field(repr=False)

    def real(self, path: str) -> str:
        """``path`` with all links followed within the tree, "" if it leads nowhere or in a circle."""
        entry = self.entries.get(path)
        if entry is not None and entry.kind != "link":
            return path  # all above an entry are directories
        hops, here, names = 0, "", path.split("/")[::-1]
        while names:
            name = names.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = here[: here.rfind("/")] if here else ""
                continue
            step = f"{here}/{name}"
            entry = self.entries.get(step)
            if entry is None:
                return ""
            if entry.kind == "link":
                hops += 1
                if hops > _HOPS or not entry.link:
                    return ""
                here = "" if entry.link.startswith("/") else here
                names.extend(entry.link.split("/")[::-1])
                continue
            if names and entry.kind != "directory":
                return ""
            here = step
        return here or "/"

    def data(self, path: str) -> memoryview:
        """The content of the regular file that ``path`` leads to; raises Unreadable if there is none."""
        return self.removed_data(*self._file(path))

    def sha256(self, path: str) -> str:
        """The sha256 (hex) of what ``data`` gives, read without being kept in memory; raises Unreadable as that."""
        return self.hashed(*self._file(path))

    def _file(self, path: str) -> tuple[str, Entry]:
        real = self.real(path)
        if not real:
            raise Unreadable(path, "it leads nowhere")
        entry = self.entries[real]
        if entry.kind != "file":
            kind = "a special file" if entry.kind == "other" else f"a {entry.kind}"
            raise Unreadable(path, self.unread.get(real) or f"it is {kind}")
        return real, entry

    def removed_data(self, path: str, entry: Entry) -> memoryview:
        """The content of one of ``removed``; raises Unreadable if it cannot be read."""
        return self.content(path, entry) if entry.size or entry.place < 0 else memoryview(b"")


@contextmanager
def open_tree(target: str, engine: Callable[[], Engine], say: Say) -> Iterator[Tree]:
    """The tree of ``target``: an existing directory, else an existing file (a saved image, plain, gzip or zstd), else
    an image of what ``engine`` gives, which is called for nothing else.

    An image is read in the engine's own store where that can be read, else from a copy that the engine saves, which is
    gone at the end.  Of a directory nothing is followed out of it; proc, sys and their like are left out.  What
    ``data`` gave stays valid after the end.  Raises UsageError for a target that is missing or damaged, Undecided
    where the engine or the disk does not serve.
    """
    try:
        about = os.stat(target)
    except FileNotFoundError:
        about = None
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown(target)} cannot be read: {why(error)}", _NAME) from error
    if about is None:
        with _image(target, engine, say) as tree:
            yield tree
        return
    if stat.S_ISDIR(about.st_mode):
        if _may_be_image(target):
            say(f"{target} is a directory here: that is read, and no image of this name")
        yield _directory(target, "", Path(target))
    elif stat.S_ISREG(about.st_mode):
        if _may_be_image(target):
            say(f"{target} is a file here: that is read, and no image of this name")
        with saved.opened(Path(target), say) as image:
            yield _saved(target, image.digest, image)
    else:
        raise UsageError(f"{shown(target)} is neither a directory nor a file", _NAME)


def _may_be_image(target: str) -> bool:
    return not target.startswith(("/", "./", "../")) and target not in (".", "..")


@contextmanager
def _image(target: str, engine: Callable[[], Engine], say: Say) -> Iterator[Tree]:
    if not target or not _may_be_image(target):
        raise UsageError(f"there is no file or directory {shown(target)}".rstrip(), _NAME)
    try:
        held = engine()
        stored = held.stored(target)
    except (UsageError, Undecided) as error:
        kind = UsageError if isinstance(error, UsageError) else Undecided
        raise kind(f"there is no directory and no file {shown(target)} here, and {error.message}", error.fix) from error
    if stored.roots and not stored.config:
        yield _directory(target, stored.id, stored.roots[0])
    elif stored.roots:
        yield _layered(target, stored)
    else:
        with _copy(target, held, stored, say) as tree:
            yield tree


def _directory(name: str, digest: str, path: Path) -> Tree:
    if all(os.path.isfile(path / name) for name in ("oci-layout", "index.json")):  # False too where it may not look
        said = f"{shown(name)} is the OCI layout of an image and no file system"
        raise UsageError(said, f"pack it (tar -C {shown(name)} -cf image.tar .) and name the tar")
    root = os.path.realpath(path)
    unread: dict[str, str] = {}
    try:
        merged = merge([lambda: folder.walk(root, 0, Budget(), unread)])
    except Broken as broken:
        raise UsageError(f"{shown(name)} cannot be listed: {broken}", "name a smaller directory") from broken
    layers = (LayerInfo("", merged.sizes[0], ""),)
    return Tree(
        name, digest, MappingProxyType({}), layers, 0, (), merged.entries, unread,
        lambda path, _: folder.content(root, path), lambda path, _: folder.digest(root, path),
    )  # fmt: skip


def _layered(name: str, stored: StoredImage) -> Tree:
    """An image in the engine's own store, a folder a layer."""
    roots = [os.path.realpath(path) for path in stored.roots]
    unread: dict[str, str] = {}
    budget = Budget()

    def reading(number: int) -> Callable[[], Layer]:
        return lambda: folder.walk(roots[number], number, budget, unread, overlay=True)

    try:
        told = Documents({"its configuration": stored.config})
        config, diff_ids = told.table("its configuration"), told.diff_ids("its configuration")
        if len(diff_ids) != len(roots):
            raise Broken(f"its configuration names {len(diff_ids)} layers, and the engine holds {len(roots)}")
        merged = merge([reading(number) for number in range(len(roots))])
        layers = tuple(map(LayerInfo, diff_ids, merged.sizes, saved.commands_of(config, len(roots))))
        settings = saved.settings_of(config)
    except Broken as broken:
        raise UsageError(f"the image {shown(name)} cannot be read: {broken}", "build or pull it again") from broken
    return Tree(
        name, stored.id, settings, layers, merged.hidden, merged.removed, merged.entries, unread,
        lambda path, entry: folder.content(roots[entry.layer], path),
        lambda path, entry: folder.digest(roots[entry.layer], path),
    )  # fmt: skip


@contextmanager
def _copy(name: str, engine: Engine, stored: StoredImage, say: Say) -> Iterator[Tree]:
    """An image as the engine saves it, into a file without a name: nothing of it is left, whatever ends envkit."""
    where = saved.scratch()
    room = saved.room(where)
    if stored.size > room:
        said = f"{shown(name)} has {stored.size / 1e9:.1f} GB to save, and {where} has {room / 1e9:.1f} GB to spare"
        raise Undecided(said, "make room there, or point TMPDIR at a folder on a larger disk")
    say(f"saving {name} from the engine ({stored.size / 1e9:.1f} GB), for its store cannot be read from here")
    with tempfile.TemporaryFile(dir=where, prefix="envkit-saved-") as file:
        engine.save(name, Path(f"/proc/self/fd/{file.fileno()}"))
        with saved.image_in(file, f"what the engine saved of {shown(name)}", say) as image:
            yield _saved(name, stored.id, image)


def _saved(name: str, digest: str, image: saved.Image) -> Tree:
    merged = image.merged
    return Tree(
        name, digest, image.config, image.layers, merged.hidden, merged.removed, merged.entries, {},
        image.content, image.hashed,
    )  # fmt: skip
