"""Trees in a saved image: the headers are read by seeking from one to the next, the contents stay where they lie.

What `docker save` writes is read in both its layouts, and any tar of an OCI layout.  What is packed is unpacked into a
file without a name, which is gone when envkit is, whatever ends it.
"""

from __future__ import annotations

import io
import mmap
import os
import posixpath
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from envkit.engine import Say
from envkit.errors import Undecided, UsageError
from envkit.image.tar import DOCUMENT, DOCUMENTS, Broken, Documents, Source, gunzipped, is_tar, members, shown
from envkit.image.tree.parts import Budget, Entry, Layer, LayerInfo, Merged, merge, sha256_of, why
from envkit.records import dataclass
from envkit.system import proc
from envkit.system.files import is_full

_AHEAD = 32 << 10  # bytes read with a header: the next ones lie near in what small files make; 16 to 64 KiB are alike
_PIECE = 1 << 20
_SPARE = 1 << 30  # bytes that unpacking leaves free on the disk
_LAYERS = 500  # far beyond what engines stack: overlayfs takes 500 lower directories, Docker 128 layers
_HOPS = 40  # MAXSYMLINKS of linux/namei.h
_ZSTD_S = 900.0  # for one layer; 5 GB took 19 s
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def scratch() -> Path:
    """The folder for large temporary files: TMPDIR where that is set, else /var/tmp, which lies on a disk where /tmp
    may lie in memory (file-hierarchy(7))."""
    for named in (os.environ.get("TMPDIR", ""), "/var/tmp"):
        if named and os.access(named, os.W_OK | os.X_OK):
            return Path(named)
    return Path(tempfile.gettempdir())


def room(where: Path) -> int:
    """The bytes that may be written to ``where``, beside what stays free there."""
    return max(0, shutil.disk_usage(where).free - _SPARE)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of an open file: from ``start`` on ``size`` of them."""

    file: BinaryIO
    start: int
    size: int

    def first(self, count: int) -> bytes:
        """The first ``count`` bytes, or all where there are fewer."""
        return os.pread(self.file.fileno(), min(count, self.size), self.start)

    def reader(self) -> Callable[[int], bytes]:
        """A function that gives one run of bytes after another."""
        return self._moving()[0]

    def source(self) -> Source:
        """The bytes for a tar reader, which passes over contents."""
        read, skip = self._moving()
        return Source(read, skip=skip, chunk=_AHEAD)

    def _moving(self) -> tuple[Callable[[int], bytes], Callable[[int], bool]]:
        place, end = self.start, self.start + self.size

        def read(most: int) -> bytes:
            nonlocal place
            found = os.pread(self.file.fileno(), min(most, end - place), place)
            place += len(found)
            return found

        def skip(count: int) -> bool:
            nonlocal place
            place = min(end + 1, place + count)
            return place <= end

        return read, skip


class Spill:
    """A file without a name, in the folder ``where``, that takes all that is unpacked, one piece behind the other, up
    to what ``spare`` says that the folder's disk has for it in bytes."""

    def __init__(self, file: BinaryIO, where: Path, spare: Callable[[Path], int] = room) -> None:
        self.file = file
        self._where = where
        self._spare = spare

    def take(self, read: Callable[[int], bytes], what: str) -> Piece:
        """Writes all that ``read`` gives; raises UsageError before the disk is full."""
        start = size = self.file.seek(0, io.SEEK_END)
        limit = start + self._spare(self._where)
        try:
            while chunk := read(_PIECE):
                size += len(chunk)
                if size > limit:
                    raise self.full(what, limit - start)
                self.file.write(chunk)
            self.file.flush()
        except OSError as error:
            if not is_full(error):
                raise
            raise self.full(what, limit - start) from error
        return Piece(self.file, start, size - start)

    def full(self, what: str, limit: int) -> UsageError:
        """The error for what unpacks to more than ``limit`` bytes."""
        said = f"{what} unpacks to more than the {limit / 1e9:.1f} GB that {self._where} has to spare"
        return UsageError(said, "make room there, or point TMPDIR at a folder on a larger disk")

    def zstd(self, piece: Piece, what: str) -> Piece:
        """Unpacks ``piece`` with the zstd program, for Python has none before 3.14."""
        program = shutil.which("zstd")
        if program is None:
            raise UsageError(f"{what} is packed with zstd, and there is no zstd program here", "install zstd")
        start = self.file.seek(0, io.SEEK_END)
        limit = self._spare(self._where)
        # The shell bounds the file that zstd writes to; POSIX counts it in blocks of 512 bytes.
        script = 'ulimit -f "$1" && tail -c +"$2" "$3" | head -c "$4" | "$5" -d -q -c >> "$6"'
        source, target = (f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (piece.file, self.file))
        words = ((start + limit) // 512, piece.start + 1, source, piece.size, program, target)
        done = proc.run(["sh", "-c", script, "sh", *map(str, words)], timeout_s=_ZSTD_S)
        if done.timed_out:
            raise Undecided(f"zstd did not unpack {what} within {_ZSTD_S:.0f} s", "check the speed of the disk")
        if done.exit == 128 + signal.SIGXFSZ or "too large" in done.stderr or "No space left" in done.stderr:
            raise self.full(what, limit)
        if done.exit:
            told = (done.stderr.strip().splitlines() or [f"zstd ended with exit code {done.exit}"])[-1]
            raise Broken(f"{what} does not unpack: {shown(told)}")
        return Piece(self.file, start, os.fstat(self.file.fileno()).st_size - start)


@dataclass(frozen=True, slots=True)
class Image:
    """What a saved image says of itself, its layers as one, and the content of its files with the hash of
    that; the hashes can be made for as long as the file is open."""

    digest: str
    config: Mapping[str, Any]
    layers: tuple[LayerInfo, ...]
    merged: Merged
    content: Callable[[str, Entry], memoryview]
    hashed: Callable[[str, Entry], str]


@contextmanager
def opened(path: Path, say: Say) -> Iterator[Image]:
    """The one image saved in ``path``; raises UsageError for anything else, one sentence.

    The layers' digests are not checked, for that takes reading all of them; the configuration's is.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{shown(str(path))} cannot be read: {why(error)}", "check who may read it") from error
    with os.fdopen(handle, "rb") as file, ExitStack() as read:
        try:
            image = read.enter_context(image_in(file, shown(str(path)), say))
        except OSError as error:
            raise UsageError(
                f"{shown(str(path))} cannot be read: {why(error)}", "name a file that `docker save` wrote"
            ) from error
        yield image


@contextmanager
def image_in(file: BinaryIO, name: str, say: Say) -> Iterator[Image]:
    """The one image saved in the open ``file``, called ``name`` in messages; as ``opened``."""
    where = scratch()
    with tempfile.TemporaryFile(dir=where, prefix="envkit-unpacked-") as spilled:
        try:
            image = _image(file, Spill(spilled, where), say)
        except Broken as broken:
            raise UsageError(
                f"{name} is no saved image that can be read: {broken}", "save one image again with `docker save`"
            ) from broken
        yield image


def _image(file: BinaryIO, spill: Spill, say: Say) -> Image:
    whole = _unpacked(Piece(file, 0, os.fstat(file.fileno()).st_size), spill, "the file", say)
    budget = Budget()
    pieces, links, documents = _index(whole, budget)
    told = Documents(documents)
    names, config_name = told.image()
    config, diff_ids = told.table(config_name), told.diff_ids(config_name)
    if len(names) != len(diff_ids):
        raise Broken(f"its manifest names {len(names)} layers and its configuration {len(diff_ids)}")
    if len(names) > _LAYERS:
        raise Broken(f"it has {len(names)} layers, and no engine stacks more than {_LAYERS}")
    digest = sha256(documents[config_name]).hexdigest()
    if config_name.startswith("blobs/sha256/") and config_name != f"blobs/sha256/{digest}":
        raise Broken(f"its configuration is not the one that its name says, {shown(config_name)}")
    settings = settings_of(config)
    plain: dict[str, Piece] = {}
    stack = []
    for number, name in enumerate(names, 1):
        name = links.get(name, name)
        what = f"layer {number} of {len(names)}"
        if name not in pieces:
            raise Broken(f"{what}, {shown(name)}, is not in it")
        if name not in plain:
            plain[name] = _unpacked(pieces[name], spill, what, say)
        if not is_tar(plain[name].first(512)):
            raise Broken(f"{what}, {shown(name)}, is no tar archive")
        stack.append(plain[name])
    merged = merge([_reading(piece, number, budget) for number, piece in enumerate(stack)])
    layers = tuple(map(LayerInfo, diff_ids, merged.sizes, commands_of(config, len(names))))
    maps = {one: _mapped(one) for one in {piece.file for piece in stack}}

    def content(path: str, entry: Entry) -> memoryview:
        return maps[stack[entry.layer].file][entry.place : entry.place + entry.size]

    def hashed(path: str, entry: Entry) -> str:
        return sha256_of(Piece(stack[entry.layer].file, entry.place, entry.size).reader())

    return Image(f"sha256:{digest}", settings, layers, merged, content, hashed)


def settings_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an OCI image configuration says of running it, with the platform; raises Broken for what is none."""
    settings = config.get("config") or {}
    if not isinstance(settings, dict):
        raise Broken("config in its configuration is no table")
    return {**settings, "architecture": str(config.get("architecture", "")), "os": str(config.get("os", ""))}


def commands_of(config: Mapping[str, Any], layers: int) -> list[str]:
    """What made each layer, in one line, by the configuration's history; empty texts where that tells of another number
    of layers."""
    history = config.get("history")
    steps = [step for step in history if isinstance(step, dict)] if isinstance(history, list) else []
    made = [step for step in steps if not step.get("empty_layer")]
    if len(made) != layers:
        return [""] * layers
    return [" ".join(str(step.get("created_by") or "").split()) for step in made]


def _mapped(file: BinaryIO) -> memoryview:
    size = os.fstat(file.fileno()).st_size
    mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    return memoryview(mapped)


def _unpacked(piece: Piece, spill: Spill, what: str, say: Say) -> Piece:
    first = piece.first(4)
    if first[:2] == _GZIP:
        say(f"unpacking {what} ({piece.size / 1e6:.0f} MB of gzip)")
        return spill.take(gunzipped(piece.reader()), what)
    if first == _ZSTD:
        say(f"unpacking {what} ({piece.size / 1e6:.0f} MB of zstd)")
        return spill.zstd(piece, what)
    return piece


def _index(whole: Piece, budget: Budget) -> tuple[dict[str, Piece], dict[str, str], dict[str, bytes]]:
    """The files of the outer archive, where its links lead, and the content of what may be JSON."""
    pieces: dict[str, Piece] = {}
    links: dict[str, str] = {}
    documents: dict[str, bytes] = {}
    held = 0
    for head, body in members(whole.source()):
        budget.spend(head.path, head.link)
        if head.kind == "link":
            links[head.path] = posixpath.normpath(posixpath.join(posixpath.dirname(head.path), head.link))
        elif head.kind == "hard link":
            links[head.path] = posixpath.normpath(head.link)
        elif head.kind == "file":
            piece = pieces[head.path] = Piece(whole.file, whole.start + body.start, head.size)
            if head.size <= DOCUMENT and piece.first(512).lstrip()[:1] in (b"{", b"["):
                held += head.size
                if held > DOCUMENTS:
                    raise Broken(f"its manifests have more than {DOCUMENTS} bytes together")
                documents[head.path] = piece.first(head.size)
    return pieces, links, documents


def _reading(piece: Piece, number: int, budget: Budget) -> Callable[[], Layer]:
    def read() -> Layer:
        try:
            return _Unpacking(number, budget).layer(piece)
        except Broken as broken:
            raise Broken(f"layer {number + 1}: {broken}") from broken

    return read


class _Unpacking:
    """One layer's archive, its members put where an engine would unpack them."""

    def __init__(self, number: int, budget: Budget) -> None:
        self._number = number
        self._budget = budget
        self._layer = Layer()
        self._folders = {"": ""}  # of a member's directory as written, and where it is

    def layer(self, piece: Piece) -> Layer:
        """Reads all headers; raises Broken for what no engine would unpack."""
        found, number = self._layer, self._number
        for head, body in members(piece.source()):
            path = head.path
            if path == ".":
                continue
            if path == ".." or path.startswith("../"):
                raise Broken(f"{shown(path)} leads out of the image")
            if "\0" in path:
                raise Broken(f"{shown(path)} is no path")
            self._budget.spend(path, head.link)
            folder, _, name = path.rpartition("/")
            if name.startswith(".wh."):
                self._whiteout(path, folder, name)
                continue
            place = f"{self._folders[folder] if folder in self._folders else self._folder(folder)}/{name}"
            if head.kind == "hard link":
                entry = self._twin(path, head.link)
                found.shared.add(id(entry))
            else:
                kind = head.kind if head.kind in ("file", "directory", "link") else "other"
                link, mode = (head.link, 0o777) if kind == "link" else ("", head.mode)  # Linux has no other for links
                begins = piece.start + body.start if kind == "file" else -1
                entry = Entry(kind, head.size, mode, head.uid, head.gid, link, number, begins)
            old = found.entries.get(place)
            if old is not None:
                if old.kind == "directory" and entry.kind != "directory":
                    raise Broken(f"{shown(path)} is a directory and a {entry.kind} in one layer")
                if old.kind == "link":
                    self._folders = {"": ""}
                found.implied.discard(place)
            found.entries[place] = entry
        return found

    def _whiteout(self, path: str, folder: str, name: str) -> None:
        # OCI image specification, layer.md, "Whiteouts"; the other names with two marks are notes that aufs left.
        if name == ".wh..wh..opq":
            self._layer.opaque.add(f"/{folder}")
        elif not name.startswith(".wh..wh."):
            taken = name.removeprefix(".wh.")
            if taken in ("", ".", ".."):
                raise Broken(f"{shown(path)} takes away no file, but a directory that holds it")
            self._layer.gone.add(f"/{folder}/{taken}" if folder else f"/{taken}")

    def _twin(self, path: str, link: str) -> Entry:
        target = posixpath.normpath(link.lstrip("/") or ".")
        folder, _, name = target.rpartition("/")
        entry = None if target.startswith("..") else self._layer.entries.get(f"{self._folder(folder)}/{name}")
        if entry is None or entry.kind == "directory":
            raise Broken(f"{shown(path)} is a hard link to {shown(link)}, which is no file before it")
        return entry

    def _folder(self, folder: str) -> str:
        """Where the directory ``folder`` of a member is: made with its parents where the layer has not named it, and
        through links that the layer has made."""
        known = self._folders.get(folder)
        if known is not None:
            return known
        entries, hops = self._layer.entries, 0
        self._budget.spend(folder)
        here, names = "", folder.split("/")[::-1]
        while names:
            name = names.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = here[: here.rfind("/")] if here else ""
                continue
            step = f"{here}/{name}"
            entry = entries.get(step)
            if entry is None:
                self._budget.spend(step)
                entry = entries[step] = Entry("directory", 0, 0o755, 0, 0, "", self._number)
                self._layer.implied.add(step)
            if entry.kind == "link":
                hops += 1
                if hops > _HOPS:
                    raise Broken(f"{shown(folder)} goes through more than {_HOPS} links")
                here = "" if entry.link.startswith("/") else here
                names.extend(entry.link.split("/")[::-1])
            elif entry.kind == "directory":
                here = step
            else:
                raise Broken(f"{shown(folder)} is a directory and a file in one layer")
        self._folders[folder] = here
        return here
