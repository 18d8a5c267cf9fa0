"""What a tree is made of, and how layers become one: without a file in sight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from hashlib import sha256

from envkit.errors import Undecided
from envkit.image.tar import Broken, shown
from envkit.records import dataclass

_PIECE = 1 << 20
_WEIGHT = 450  # bytes of memory that one entry takes beside its texts: 370 measured with a million, and a reserve
_MEMORY = 1 << 30  # bytes that all entries of an image may take: 2.2 million files, 70 times those of a torch image
_LONGEST = 4096  # PATH_MAX of linux/limits.h: no engine could unpack a longer path


class Unreadable(Undecided):
    """The content of one path cannot be read: it leads nowhere, is no file, vanished, or is forbidden."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{shown(path)} cannot be read: {why}")
        self.path = path
        self.why = why


def why(error: OSError | ValueError) -> str:
    """What the system says of ``error``, without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def sha256_of(read: Callable[[int], bytes]) -> str:
    """The sha256 (hex) of all that ``read`` gives: what is read piece by piece leaves no pages of a map in memory."""
    found = sha256()
    while piece := read(_PIECE):
        found.update(piece)
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a tree.

    ``kind`` is "file", "directory", "link" or "other" (devices, pipes, sockets); ``size`` is in bytes and 0 for all but
    files; ``mode`` are the permission bits; ``link`` is where a link leads, as written; ``layer`` counts from 0, the
    lowest.  Hard links of one file are the same object.  ``place`` is where the content begins in what holds the layer,
    -1 where a file of the file system holds it.
    """

    kind: str
    size: int
    mode: int
    uid: int
    gid: int
    link: str
    layer: int
    place: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One layer: ``id`` is the digest of its content ("sha256:...", empty for a directory), ``size`` the bytes of its
    files, ``command`` in one line what made it, empty where nobody says."""

    id: str
    size: int
    command: str


@dataclass(slots=True)
class Layer:
    """One layer as read: ``entries`` by absolute path, each below directories that are entries too.

    ``gone`` are the paths of lower layers that it takes away, ``opaque`` the directories whose content in lower layers
    it hides, ``implied`` the directories that it names only within longer paths, ``shared`` the ids of the entries that
    have several paths.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)
    implied: set[str] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)

    def size(self) -> int:
        """The bytes of its files, those of several paths once."""
        files = [entry for entry in self.entries.values() if entry.kind == "file"]
        if self.shared:
            files = list({id(entry): entry for entry in files}.values())
        return sum(entry.size for entry in files)


class Budget:
    """The memory that an image's entries may take, counted before they are made."""

    def __init__(self, left: int = _MEMORY) -> None:
        self._all = left
        self._left = left

    def spend(self, path: str, link: str = "") -> None:
        """Counts one entry; raises Broken where it is one too many, or has a path that no system holds."""
        if len(path) > _LONGEST:
            raise Broken(f"{shown(path)} is a path of {len(path)} characters, and Linux takes {_LONGEST - 1}")
        self._left -= _WEIGHT + len(path) + len(link)
        if self._left < 0:
            raise Broken(f"it has so many paths that listing them takes more than {self._all >> 20} MiB of memory")


@dataclass(frozen=True, slots=True)
class Merged:
    """Layers on top of one another: what is seen, sorted; the files not seen any more, the topmost layer's first; the
    bytes of these; and the bytes of each layer, lowest first."""

    entries: dict[str, Entry]
    removed: tuple[tuple[str, Entry], ...]
    hidden: int
    sizes: tuple[int, ...]


def parent(path: str) -> str:
    """The directory that the absolute ``path`` lies in."""
    return path[: path.rfind("/")] or "/"


def merge(layers: Sequence[Callable[[], Layer]]) -> Merged:
    """The layers, lowest first, as the OCI image specification and the kernel's overlay stack them.

    They are read from the top down, so that each path is looked at once and one layer at a time is in memory.
    """
    # The root's owner and mode are the engine's and in no layer for certain.
    seen: dict[str, Entry] = {"/": Entry("directory", 0, 0o755, 0, 0, "", 0)}
    implied: set[str] = set()
    gone: set[str] = set()  # here and below, lower layers do not show
    shut: set[str] = set()  # below here they do not
    removed: list[tuple[str, Entry]] = []
    hidden = 0
    sizes = []
    for read in reversed(layers):
        layer = read()
        sizes.append(layer.size())
        shows: dict[str, bool] = {"/": "/" not in shut}
        stops: set[str] = set()
        lost: list[tuple[str, Entry]] = []
        kept: set[int] = set()
        for path, entry in layer.entries.items():
            known = seen.get(path)
            free = (known is None or path in implied) and path not in gone
            if free and _shows(parent(path), seen, gone, shut, shows):
                if known is None:
                    seen[path] = entry
                    if path in layer.implied:
                        implied.add(path)
                    if id(entry) in layer.shared:
                        kept.add(id(entry))
                    continue
                if entry.kind == "directory" and path not in shut:
                    if path not in layer.implied:
                        seen[path] = entry  # it says what the upper layer left open
                        implied.discard(path)
                    continue
            if entry.kind == "file":
                lost.append((path, entry))
            if entry.kind != "directory" and known is not None:
                stops.add(path)
        removed += sorted(lost, key=lambda pair: pair[0])
        hidden += sum({id(entry): entry.size for _, entry in lost if id(entry) not in kept}.values())
        gone |= layer.gone
        shut |= layer.opaque | stops
    return Merged(dict(sorted(seen.items())), tuple(removed), hidden, tuple(reversed(sizes)))


def _shows(folder: str, seen: dict[str, Entry], gone: set[str], shut: set[str], shows: dict[str, bool]) -> bool:
    """Whether what the next lower layer has in ``folder`` can be seen at all; ``shows`` keeps the answers."""
    way = []
    while folder not in shows:
        way.append(folder)
        folder = parent(folder)
    answer = shows[folder]
    for one in reversed(way):
        above = seen.get(one)
        answer = answer and one not in gone and one not in shut and (above is None or above.kind == "directory")
        shows[one] = answer
    return answer
