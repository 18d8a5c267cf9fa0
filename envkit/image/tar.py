"""An image's layers, file by file, read from what ``docker save`` writes, and the first file where two layers differ.

The stream is read once and from front to back, nothing lands on disk, and what stays in memory is one record a file.
(``envkit.image.tree``, which can seek, has ``Source`` pass over the contents.)
The tar archives are taken apart here and not by the standard library, whose reader ends in silence at a damaged header
where this one must say so, and which keeps no header's bytes, by which two equal files can still make unequal layers.
"""

from __future__ import annotations

import json
import posixpath
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import zip_longest
from typing import Any, BinaryIO

from envkit.errors import UsageError
from envkit.records import dataclass

_BLOCK = 512
_CHUNK = 1 << 20
_BEHIND = 8  # chunks that may wait for the hash of a whole layer
DOCUMENT = 8 << 20  # bytes of one manifest or configuration
DOCUMENTS = 64 << 20  # bytes of all of them together
_EXTENSION = 1 << 20  # bytes of one extended header, as Go's archive/tar limits it
_LONGEST = 200  # characters of a path in a message
_NANO = 1_000_000_000

Read = Callable[[int], bytes]  # at most so many bytes; none only at the end


class Broken(Exception):
    """The bytes are no tar archive, or no image; the text says why and fits behind a colon."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of a layer's archive.

    ``kind`` is "file", "hard link", "link", "directory", "character device", "block device" or "fifo"; ``mtime`` is in
    nanoseconds since 1970, ``size`` in bytes; ``link`` is where a link leads, or a device's numbers; ``sha256`` (hex)
    is of a file's content and empty for all else; ``xattrs`` are (name, value) in the archive's order; ``header`` is
    the sha256 (hex) of the header's own bytes, which hold more than these fields (names of owners, spellings).
    """

    kind: str
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int
    link: str
    sha256: str
    xattrs: tuple[tuple[str, bytes], ...]
    header: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: ``diff_id`` names its uncompressed bytes ("sha256:..."), ``size`` is how many they are.

    ``entries`` are in the archive's order, of a path that comes twice the last, as an engine unpacks it; whiteouts are
    entries like others.  ``unread`` says why there are none to compare, and is empty for a layer that was read.
    """

    diff_id: str
    size: int
    entries: Mapping[str, Entry] = field(default_factory=dict)
    unread: str = ""


@dataclass(frozen=True, slots=True)
class LayerDiff:
    """A place at which two images have different layers.

    ``number`` counts from 1, the lowest layer; ``old`` and ``new`` are diff_ids, empty where an image has no such
    layer; ``paths`` is how many paths differ, 0 where that is not known; ``what`` names the first difference.
    """

    number: int
    old: str
    new: str
    paths: int
    what: str


def read(stream: BinaryIO, wanted: Container[str] | None = None) -> tuple[Layer, ...]:
    """The layers of the one image in ``stream``, lowest first, to the end of the stream.

    Both layouts are read, the one with manifest.json (docker image save before engine 25) and the OCI image layout.
    With ``wanted`` only the layers of these diff_ids get entries, and the others are skipped unhashed where their
    name says which they are.  Every layer that is read is checked against the diff_id that the image's configuration
    gives it.  A layer packed by a means that the standard library does not unpack comes back with ``unread``.

    Raises UsageError for anything else that is not one whole image.
    """
    try:
        with ThreadPoolExecutor(1) as hasher:
            return _Archive(hasher, wanted).layers(Source(stream.read))
    except Broken as broken:
        raise UsageError(
            f"this is no image as `docker save` writes one: {broken}", "save one image again with `docker save`"
        ) from broken


def first_difference(a: Layer, b: Layer) -> str | None:
    """The first path, in sorted order, at which two layers differ and what differs there; None for equal layers.

    Layers of different diff_ids never give None: where all entries agree the text names their order, a header, or says
    that what differs is outside all entries.
    """
    if a.diff_id == b.diff_id:
        return None
    unread = a.unread or b.unread
    if unread:
        return f"what differs is not known: {unread}"
    for path in sorted(a.entries.keys() | b.entries.keys()):
        what = _differs(a.entries.get(path), b.entries.get(path))
        if what:
            return f"{shown(path)}: {what}"
    for number, (mine, theirs) in enumerate(zip(a.entries, b.entries, strict=True), 1):
        if mine != theirs:
            return f"the same entries in another order, from entry {number} on: {shown(mine)} / {shown(theirs)}"
    for path, entry in a.entries.items():
        if entry.header != b.entries[path].header:
            return f"{shown(path)}: only the tar header differs"
    return "all entries agree, and the archives differ outside of them (padding, or a path that comes twice)"


def compare(a: Sequence[Layer], b: Sequence[Layer]) -> tuple[LayerDiff, ...]:
    """The places, lowest first, at which two images have different layers; none for the same layers in one order."""
    found = []
    for number, (old, new) in enumerate(zip_longest(a, b), 1):
        if old is None or new is None:
            ids, which = (old.diff_id if old else "", new.diff_id if new else ""), "first" if new is None else "second"
            found.append(LayerDiff(number, *ids, 0, f"only in the {which}"))
        elif what := first_difference(old, new):
            every = () if old.unread or new.unread else old.entries.keys() | new.entries.keys()
            paths = sum(1 for path in every if _differs(old.entries.get(path), new.entries.get(path)))
            found.append(LayerDiff(number, old.diff_id, new.diff_id, paths, what))
    return tuple(found)


def _differs(a: Entry | None, b: Entry | None) -> str:
    """All in which two entries of one path differ, the weightiest first; empty where only the header does."""
    if a is None or b is None:
        return "only in the first" if b is None else "only in the second"
    if a.kind != b.kind:
        return f"{a.kind} / {b.kind}"
    found = []
    if a.sha256 != b.sha256 or a.size != b.size:
        sizes = f", {a.size} / {b.size} bytes" if a.size != b.size else ""
        found.append(f"content sha256 {a.sha256[:12]} / {b.sha256[:12]}{sizes}")
    if a.link != b.link:
        found.append(f"leads to {shown(a.link)} / {shown(b.link)}")
    if a.mode != b.mode:
        found.append(f"mode {a.mode:04o} / {b.mode:04o}")
    if (a.uid, a.gid) != (b.uid, b.gid):
        found.append(f"owner {a.uid}:{a.gid} / {b.uid}:{b.gid}")
    if a.mtime != b.mtime:
        found.append(f"mtime {_day(a.mtime)} / {_day(b.mtime)}")
    if sorted(a.xattrs) != sorted(b.xattrs):
        names = sorted({name for name, _ in set(a.xattrs) ^ set(b.xattrs)})
        found.append(f"extended attributes ({', '.join(shown(name) for name in names)})")
    return ", ".join(found)


def _day(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, _NANO)
    try:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a time that no calendar of Python's reaches
        return f"{nanoseconds} ns"
    return f"{text}{f'.{rest:09d}'.rstrip('0') if rest else ''}Z"


def shown(text: str) -> str:
    """``text`` fit for one line of a message."""
    seen = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return seen if len(seen) <= _LONGEST else seen[:_LONGEST] + "..."


class Source:
    """Bytes in order, taken in pieces of any length; ``at`` is how many were taken or passed over.

    ``seen`` is called with every chunk of ``chunk`` bytes as it comes in.  ``skip``, for what can be sought in, passes
    over so many bytes that ``read`` would give next, and is False where the end comes sooner; without it they are read.
    """

    def __init__(
        self,
        read: Read,
        seen: Callable[[bytes], None] | None = None,
        skip: Callable[[int], bool] | None = None,
        chunk: int = _CHUNK,
    ) -> None:
        self._read = read
        self._seen = seen
        self._skip = skip
        self._size = chunk
        self._chunk = memoryview(b"")
        self.at = 0

    def take(self, most: int) -> memoryview:
        """At least one and at most ``most`` bytes; none at the end."""
        if not self._chunk:
            chunk = self._read(self._size)
            if self._seen and chunk:
                self._seen(chunk)
            self._chunk = memoryview(chunk)
        piece, self._chunk = self._chunk[:most], self._chunk[most:]
        self.at += len(piece)
        return piece

    def skip(self, count: int) -> bool:
        """Passes over ``count`` bytes; False where the end comes sooner."""
        while count:
            if not self._chunk and self._skip is not None:
                self.at += count
                return self._skip(count)
            piece = self.take(min(count, len(self._chunk) or count))
            if not piece:
                return False
            count -= len(piece)
        return True

    def exactly(self, count: int, what: str) -> bytes:
        """``count`` bytes; raises Broken where the end comes sooner."""
        pieces: list[bytes] = []
        while count:
            piece = self.take(count)
            if not piece:
                raise Broken(f"it ends within {what}")
            pieces.append(bytes(piece))
            count -= len(piece)
        return b"".join(pieces)

    def block(self) -> bytes:
        """The next header's bytes, or none where the archive has no more; two blocks of zeros or the end close it."""
        first = bytes(self.take(_BLOCK))
        if not first:
            return b""
        if len(first) < _BLOCK:
            first += self.exactly(_BLOCK - len(first), "a header")
        if first.strip(b"\0"):
            return first
        if self.exactly(_BLOCK, "the end mark").strip(b"\0"):
            raise Broken("a header is missing: there are zeros in its place")
        return b""

    def drain(self) -> None:
        """Reads on to the end."""
        while self.take(_CHUNK):
            pass


class Body:
    """The content of one member, which begins at ``start`` in its source; what nobody took of it is passed over before
    the next header."""

    def __init__(self, source: Source, size: int, name: str) -> None:
        self._source = source
        self._name = name
        self._padding = -size % _BLOCK
        self.start = source.at
        self.left = size

    def read(self, most: int = _CHUNK) -> memoryview:
        """At most ``most`` bytes; none at the content's end.  Raises Broken where the archive ends before that."""
        if not self.left:
            return memoryview(b"")
        piece = self._source.take(min(most, self.left))
        if not piece:
            raise Broken(f"it ends within {shown(self._name)}")
        self.left -= len(piece)
        return piece

    def close(self) -> None:
        """To the next header."""
        if not self._source.skip(self.left + self._padding):
            raise Broken(f"it ends within {shown(self._name)}")
        self.left = 0


_KINDS = {
    b"0": "file", b"\0": "file", b"1": "hard link", b"2": "link", b"3": "character device", b"4": "block device",
    b"5": "directory", b"6": "fifo", b"7": "file",  # "contiguous", which no system makes
}  # fmt: skip
_XATTRS = ("SCHILY.xattr.", "LIBARCHIVE.xattr.")


@dataclass(frozen=True, slots=True)
class Head:
    """A member's header with its extensions applied, as ``Entry`` names the fields."""

    path: str
    kind: str
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int
    link: str
    xattrs: tuple[tuple[str, bytes], ...]
    raw: bytes


def members(source: Source) -> Iterator[tuple[Head, Body]]:
    """The members of a tar archive (POSIX ustar and pax, and GNU's long names), in order."""
    common: dict[str, bytes] = {}
    own: dict[str, bytes] = {}
    raw = b""
    while block := source.block():
        raw += block
        kind = block[156:157]
        if kind in (b"x", b"g", b"L", b"K"):
            text = _extension(source, block)
            raw += text
            if kind == b"x":
                own |= _records(text)
            elif kind == b"g":
                common |= _records(text)
            else:
                own["path" if kind == b"L" else "linkpath"] = text.rstrip(b"\0")
            if len(raw) > 4 * _EXTENSION:
                raise Broken("a header has more extensions than any file needs")
            continue
        head = _head(block, common | own, raw)
        body = Body(source, head.size, head.path)
        yield head, body
        body.close()
        own, raw = {}, b""
    if raw:
        raise Broken("it ends after a header's extension")


def _extension(source: Source, block: bytes) -> bytes:
    _summed(block)
    size = _number(block[124:136])
    if not 0 <= size <= _EXTENSION:
        raise Broken(f"a header's extension says that it has {size} bytes")
    text = source.exactly(size, "a header's extension")
    source.exactly(-size % _BLOCK, "a header's extension")
    return text


def _records(text: bytes) -> dict[str, bytes]:
    """The records of a pax header, each "length key=value" and a line's end."""
    found: dict[str, bytes] = {}
    while text:
        digits, _, _ = text[:20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = text[len(digits) + 1 : length]
        key, equals, value = record.partition(b"=")
        if not equals or len(text) < length or not record.endswith(b"\n"):
            raise Broken("a header's extension does not parse")
        name = key.decode("utf-8", "surrogateescape")
        if name.startswith("GNU.sparse."):
            raise Broken("it holds a sparse file, which images do not")
        found[name] = value[:-1]
        text = text[length:]
    return found


def _summed(block: bytes) -> None:
    """Raises Broken for a header whose checksum does not fit: anything else than a header of a tar archive."""
    # The checksum's own place counts as blanks.
    if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 0x20:
        raise Broken("a header's checksum does not fit")


def _number(text: bytes) -> int:
    """Octal digits, or GNU's binary form for what has more digits than room."""
    if text[:1] >= b"\x80":
        value = int.from_bytes(bytes([text[0] & 0x7F]) + text[1:], "big")
        return value - (1 << (8 * len(text) - 1)) if text[0] & 0x40 else value
    digits = text.strip(b" \0")
    try:
        return int(digits, 8) if digits else 0
    except ValueError:
        raise Broken(f"a header holds {digits!r} for a number") from None


def _decimal(text: bytes) -> int:
    """A pax number of seconds, or a count, in billionths: exact, where a float would lose the last digits."""
    whole, _, rest = text.partition(b".")
    negative = whole.startswith(b"-")
    digits = whole[1:] if negative else whole
    if not digits.isdigit() or (rest and not rest.isdigit()) or len(text) > 40:
        raise Broken(f"a header's extension holds {text[:40]!r} for a number")
    value = int(digits) * _NANO + int(rest[:9].ljust(9, b"0"))
    return -value if negative else value


def _head(block: bytes, more: Mapping[str, bytes], raw: bytes) -> Head:
    _summed(block)
    letter = block[156:157]
    kind = _KINDS.get(letter)
    if kind is None:
        raise Broken(f"it holds a member of the unknown type {letter!r}")
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0":
        prefix = block[345:500].partition(b"\0")[0]
        name = prefix + b"/" + name if prefix else name
    name = more.get("path", name)
    if letter == b"\0" and name.endswith(b"/"):
        kind = "directory"  # as archives older than POSIX write one
    path = posixpath.normpath(name.decode("utf-8", "surrogateescape").lstrip("/") or ".")
    link = more.get("linkpath", block[157:257].partition(b"\0")[0]).decode("utf-8", "surrogateescape")
    if kind.endswith("device"):
        link = f"{_number(block[329:337])}:{_number(block[337:345])}"

    def count(key: str, start: int, end: int) -> int:
        return _decimal(more[key]) // _NANO if key in more else _number(block[start:end])

    size = count("size", 124, 136)
    if size < 0:
        raise Broken(f"{shown(path)} has {size} bytes")
    xattrs = [(key, value) for key, value in more.items() if key.startswith(_XATTRS)]
    return Head(
        path=path,
        kind=kind,
        mode=_number(block[100:108]) & 0o7777,
        uid=count("uid", 108, 116),
        gid=count("gid", 116, 124),
        mtime=_decimal(more["mtime"]) if "mtime" in more else _number(block[136:148]) * _NANO,
        size=size if kind == "file" else 0,  # the others carry no content, whatever number stands there
        link=link if kind in ("link", "hard link") or kind.endswith("device") else "",
        xattrs=tuple((key.split(".xattr.", 1)[1], value) for key, value in xattrs),
        raw=raw,
    )


def _entries(source: Source) -> dict[str, Entry]:
    """Every entry of a layer's archive, the contents hashed as they pass."""
    entries: dict[str, Entry] = {}
    for head, body in members(source):
        content = ""
        if head.kind == "file":
            digest = sha256()
            while piece := body.read():
                digest.update(piece)
            content = digest.hexdigest()
        entries.pop(head.path, None)  # the last of a path that comes twice stands where it came
        about = (head.kind, head.mode, head.uid, head.gid, head.mtime, head.size, head.link)
        entries[head.path] = Entry(*about, content, head.xattrs, sha256(head.raw).hexdigest())
    return entries


class _Digest:
    """The sha256 and the length of a layer's whole bytes, made in another thread beside the hashes of its files."""

    def __init__(self, hasher: ThreadPoolExecutor) -> None:
        self._hasher = hasher
        self._digest = sha256()
        self._waiting: list[Future[None]] = []
        self.size = 0

    def add(self, chunk: bytes) -> None:
        """Hashes ``chunk`` soon; waits where the other thread is too far behind, so that memory stays bounded."""
        self.size += len(chunk)
        if len(self._waiting) >= _BEHIND:
            self._waiting.pop(0).result()
        self._waiting.append(self._hasher.submit(self._digest.update, chunk))

    def diff_id(self) -> str:
        """The digest of all that was added."""
        for waiting in self._waiting:
            waiting.result()
        self._waiting.clear()
        return f"sha256:{self._digest.hexdigest()}"


def gunzipped(read: Read) -> Read:
    """What ``read`` gives, unpacked; raises Broken where it is damaged or cut off."""
    unpack = zlib.decompressobj(31)
    rest = b""

    def more(most: int) -> bytes:
        nonlocal unpack, rest
        while True:
            if unpack.eof:
                rest = unpack.unused_data or read(_CHUNK)
                if not rest.strip(b"\0"):  # padding, or nothing: the last stream has ended
                    return b""
                unpack = zlib.decompressobj(31)  # one stream after another is one content, says RFC 1952
            packed = rest or unpack.unconsumed_tail or read(_CHUNK)
            rest = b""
            try:
                chunk = unpack.decompress(packed, most)
            except zlib.error as error:
                raise Broken(f"a layer does not unpack: {error}") from error
            if chunk:
                return chunk
            if not packed and not unpack.eof:
                raise Broken("a packed layer ends too soon")

    return more


class _Archive:
    """What was found in the saved archive, by name, until the manifest, which comes last, says what is what."""

    def __init__(self, hasher: ThreadPoolExecutor, wanted: Container[str] | None) -> None:
        self._hasher = hasher
        self._wanted = wanted
        self._documents: dict[str, bytes] = {}
        self._layers: dict[str, Layer] = {}
        self._broken: dict[str, str] = {}
        self._links: dict[str, str] = {}

    def layers(self, source: Source) -> tuple[Layer, ...]:
        """The image's layers, lowest first, once the whole of ``source`` was read."""
        for head, body in members(source):
            if head.kind == "link":
                self._links[head.path] = posixpath.normpath(posixpath.join(posixpath.dirname(head.path), head.link))
            elif head.kind == "hard link":
                self._links[head.path] = posixpath.normpath(head.link)
            elif head.kind == "file":
                self._file(head.path, body)
        source.drain()
        documents = Documents(self._documents)
        names, config = documents.image()
        diff_ids = documents.diff_ids(config)
        if len(names) != len(diff_ids):
            raise Broken(f"its manifest names {len(names)} layers and its configuration {len(diff_ids)}")
        return tuple(
            self._layer(number, name, diff_id)
            for number, (name, diff_id) in enumerate(zip(names, diff_ids, strict=True), 1)
        )

    def _file(self, name: str, body: Body) -> None:
        size = body.left
        first = b""
        while len(first) < _BLOCK and body.left:
            first += bytes(body.read(_BLOCK - len(first)))

        def content(most: int) -> bytes:
            nonlocal first
            if first:
                piece, first = first[:most], first[most:]
                return piece
            return bytes(body.read(most))

        if first[:2] == b"\x1f\x8b":
            self._archive(name, gunzipped(content))
        elif first[:4] == b"\x28\xb5\x2f\xfd":
            self._layers[name] = Layer("", size, unread="it is packed with zstd")
        elif is_tar(first):
            if self._wanted is not None and _blob(name) and _blob(name) not in self._wanted:
                self._layers[name] = Layer(_blob(name), size, unread="it was not asked for")
            else:
                self._archive(name, content)
        elif first.lstrip()[:1] in (b"{", b"["):
            if size > DOCUMENT or sum(map(len, self._documents.values())) + size > DOCUMENTS:
                raise Broken(f"{shown(name)} has {size} bytes, too many for a manifest")
            self._documents[name] = b"".join(iter(lambda: content(_CHUNK), b""))

    def _archive(self, name: str, read: Read) -> None:
        digest = _Digest(self._hasher)
        source = Source(read, digest.add)
        try:
            entries = _entries(source)
            source.drain()
        except Broken as broken:
            # Said only if the manifest names it: the archive holds other files whose first bytes may look like these.
            self._broken[name] = str(broken)
            return
        self._layers[name] = Layer(digest.diff_id(), digest.size, entries)

    def _layer(self, number: int, name: str, diff_id: str) -> Layer:
        name = self._links.get(name, name)
        if name in self._broken:
            raise Broken(f"layer {number}, {shown(name)}: {self._broken[name]}")
        layer = self._layers.get(name)
        if layer is None:
            raise Broken(f"layer {number}, {shown(name)}, is not in it or no tar archive")
        if layer.diff_id and layer.diff_id != diff_id:
            raise Broken(f"layer {number} is {layer.diff_id}, its configuration names {shown(diff_id)}")
        if self._wanted is not None and diff_id not in self._wanted:
            return Layer(diff_id, layer.size, unread="it was not asked for")
        return Layer(diff_id, layer.size, layer.entries, layer.unread)


class Documents:
    """The JSON files of a saved image, by name, and which of the other files they say is what.

    What is missing or malformed is told as Broken.
    """

    def __init__(self, held: Mapping[str, bytes]) -> None:
        self._held = held
        self._read: set[str] = set()  # the indexes that were gone through, for many may name one

    def image(self) -> tuple[list[str], str]:
        """The names of the one image's layers, lowest first, and of its configuration, by the one or the other
        layout."""
        if "manifest.json" in self._held:
            images = _each(self._json("manifest.json"), "manifest.json")
            if len(images) != 1:
                raise _several(str(image.get("RepoTags") or "no name") for image in images)
            (image,) = images
            names = [posixpath.normpath(_text(name, "a layer")) for name in _each(image.get("Layers"), "Layers", str)]
            return names, posixpath.normpath(_text(image.get("Config"), "Config"))
        if "index.json" not in self._held:
            raise Broken("it has neither manifest.json nor index.json")
        found = dict(self._images("index.json", 0))
        if len(found) != 1:
            raise _several(found.values())
        manifest = self.table(next(iter(found)))
        layers = _each(manifest.get("layers"), "layers")
        return [_place(layer) for layer in layers], _place(_mapping(manifest.get("config"), "config"))

    def _images(self, name: str, depth: int) -> Iterator[tuple[str, str]]:
        """The manifests of images that an index names, through indexes in it, each with what it is called; what
        attests to an image is none.

        A platform of which the saved archive has no manifest was not saved, as with an engine that pulled one of many.
        """
        if depth > 4:
            raise Broken("its indexes name one another")
        for one in _each(self.table(name).get("manifests"), "manifests"):
            place = _place(one)
            notes = one.get("annotations")
            attests = isinstance(notes, dict) and "vnd.docker.reference.type" in notes
            if attests or place not in self._held or place in self._read:
                continue
            if "manifests" in self.table(place):
                yield from self._images(place, depth + 1)
                self._read.add(place)
            else:
                yield place, _called(one)

    def diff_ids(self, config: str) -> list[str]:
        """The digests of the layers' content that the configuration of this name gives, lowest first."""
        rootfs = _mapping(self.table(config).get("rootfs"), "rootfs")
        return [_text(one, "a diff_id") for one in _each(rootfs.get("diff_ids"), "diff_ids", str)]

    def table(self, name: str) -> dict[str, Any]:
        """The file of this name, which holds one JSON object."""
        return _mapping(self._json(name), shown(name))

    def _json(self, name: str) -> object:
        if name not in self._held:
            raise Broken(f"{shown(name)} is not in it")
        try:
            return json.loads(self._held[name])
        except (ValueError, RecursionError) as error:
            raise Broken(f"{shown(name)} is not JSON: {shown(str(error))}") from error


def _several(names: Iterable[str]) -> Broken:
    """The error for a saved archive of another number of images than one."""
    found = list(names)
    listed = f" ({shown(', '.join(found))})" if found else ""
    return Broken(f"it holds {len(found)} images{listed}, expected one")


def _called(descriptor: Mapping[str, Any]) -> str:
    """What an index calls an image: its name or else its platform, as those who save images write them."""
    notes, platform = descriptor.get("annotations"), descriptor.get("platform")
    notes = notes if isinstance(notes, dict) else {}
    platform = platform if isinstance(platform, dict) else {}
    name = notes.get("io.containerd.image.name") or notes.get("org.opencontainers.image.ref.name")
    machine = "/".join(str(platform[key]) for key in ("os", "architecture", "variant") if key in platform)
    return str(name or machine or descriptor.get("digest"))


def is_tar(first: bytes) -> bool:
    """Whether a file that begins so is a tar archive, the empty one of nothing but zeros included."""
    if len(first) < _BLOCK:
        return False
    try:
        _summed(first)
    except Broken:
        return not first.strip(b"\0")
    return True


def _blob(name: str) -> str:
    """The digest by which the OCI layout names a file, empty for any other name."""
    kind, _, digest = name.removeprefix("blobs/").partition("/")
    return f"{kind}:{digest}" if name.startswith("blobs/") and digest else ""


def _place(descriptor: Mapping[str, Any]) -> str:
    kind, _, digest = _text(descriptor.get("digest"), "a digest").partition(":")
    return posixpath.normpath(f"blobs/{kind}/{digest}")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise Broken(f"{what} in its manifest is not text")
    return value


def _mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Broken(f"{what} in its manifest is no table")
    return value


def _each(value: object, what: str, kind: type = dict) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(one, kind) for one in value):
        raise Broken(f"{what} in its manifest is no list of what it should be")
    return value


def differing(a: Iterable[str], b: Iterable[str]) -> frozenset[str]:
    """The diff_ids that only one of two images has: what ``read`` needs to look into, where an engine lists them."""
    return frozenset({*a} ^ {*b})
