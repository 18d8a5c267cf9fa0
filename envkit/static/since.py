"""What differs from a commit, read from a repository's objects as data: git itself is not run.

Source: gitrepository-layout(5), gitformat-pack(5), gitrevisions(7).  A repository may be a stranger's: sizes and depths
are bounded, and whatever is not as it should be ends in one sentence.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path

from envkit.dockerfile.files import LARGEST
from envkit.errors import UsageError, one_line
from envkit.records import dataclass
from envkit.static.ignored import common_folder, git_folder, plain
from envkit.static.kinds import by_name
from envkit.system import files

_LARGEST_OBJECT = 1 << 26  # bytes of a tree or a commit; those of a million files have less
_LARGEST_INDEX = 1 << 29  # bytes of a pack's index, which has 32 for an object
_DEEPEST = 4096  # deltas on deltas; git makes 50 of them, and never more than this
_WORD = re.compile(r"(?<![\w./-])[\w.-][\w./-]*\.[\w-]+|(?<![\w./-])(?:Makefile|Pipfile)\b")  # what may name a file
_MOST_WORDS = 1000
_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# What makes a project's packages without being named where it is installed.
_PROJECT = frozenset({"pyproject.toml", "setup.py", "setup.cfg", "uv.lock", "poetry.lock", ".dockerignore"})


class _Broken(Exception):
    """An object that is not there, or not as it should be."""


def changed(paths: Sequence[tuple[Path, str]], commit: str) -> tuple[tuple[Path, str], ...]:
    """Those of ``paths``, with their kinds, that a commit has not or has otherwise, and those that name such a file.

    Raises UsageError where they lie in no repository, and for a commit that is not there.
    """
    found: dict[Path, _Commit] = {}
    roots: dict[Path, Path] = {}
    for path, _ in paths:
        root = _root(path)
        if root is None:
            raise UsageError(f"{path} lies in no git repository", "leave out --since, or name files of one")
        roots[path] = root
        if root not in found:
            found[root] = _Commit.of(root, commit)
    moved = {path for path, _ in paths if _differs(path, roots[path], found[roots[path]])}
    return tuple(
        (path, kind)
        for path, kind in paths
        if path in moved or _hangs_on(path, kind, moved, roots[path], found[roots[path]])
    )


def _root(path: Path) -> Path | None:
    """The folder of the work tree that a file lies in."""
    place = Path(os.path.abspath(path)).parent
    return next((folder for folder in (place, *place.parents) if os.path.lexists(folder / ".git")), None)


def _differs(path: Path, root: Path, commit: _Commit) -> bool:
    """Whether a file is another than the commit's; also one that is gone, and one that the commit has not."""
    known = commit.blob(Path(os.path.abspath(path)).relative_to(root).as_posix())
    try:
        return known != commit.objects.name("blob", files.content(path, LARGEST))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return bool(known)
    except OSError:
        return True  # what cannot be read is told by the check


def _hangs_on(path: Path, kind: str, moved: Iterable[Path], root: Path, commit: _Commit) -> bool:
    """Whether an unchanged file names a changed one, whatever that is, or is the Dockerfile of a changed project."""
    try:
        text = files.content(path, LARGEST).decode("utf-8", "replace")
    except OSError:
        return False
    words = set(_WORD.findall(text))
    names = {word.rpartition("/")[2] for word in words}
    if any(other.name in names for other in moved):
        return True
    near = [other.parent for other in moved if other.name in _PROJECT]
    dockerfile = "dockerfile" in (kind, by_name(path.name))
    if dockerfile and any(at == path.parent or at in path.parents or path.parent in at.parents for at in near):
        return True
    for word in sorted(words)[:_MOST_WORDS]:
        for folder in {Path(os.path.abspath(path)).parent, root}:
            place = Path(os.path.normpath(folder / word))
            if place.is_relative_to(root) and place != root and _differs(place, root, commit):
                return True
    return False


@dataclass(slots=True)
class _Commit:
    """A commit's tree, folders of which are read when a file in them is asked for."""

    objects: _Objects
    folders: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, commit: str) -> _Commit:
        """The commit that a word means; raises UsageError where there is none."""
        own = git_folder(root)
        objects = _Objects.of(common_folder(own))
        try:
            name = _resolved(own, commit, objects)
            kind, data = objects.read(name)
            while kind == "tag":
                kind, data = objects.read(_field(data, b"object"))
            made = cls(objects)
            made.folders[""] = made._entries(_field(data, b"tree"))
        except (_Broken, zlib.error, struct.error, IndexError) as error:
            raise UsageError(
                f"the repository at {root} has no commit `{one_line(commit)}`: {error}",
                "name a branch, a tag or a whole commit that was fetched, as `git fetch origin main` does",
            ) from error
        return made

    def blob(self, path: str) -> str:
        """The name of the content of a file, "" where the commit has none of that path."""
        folder, _, name = path.rpartition("/")
        try:
            return self._folder(folder).get(name, "")
        except (_Broken, zlib.error, struct.error, IndexError):
            return ""

    def _folder(self, path: str) -> dict[str, str]:
        if path not in self.folders:
            above, _, name = path.rpartition("/")
            entry = self._folder(above).get(name, "")
            self.folders[path] = self._entries(entry) if entry else {}
        return self.folders[path]

    def _entries(self, name: str) -> dict[str, str]:
        kind, data = self.objects.read(name)
        if kind != "tree":
            return {}
        found, at, width = {}, 0, len(name) // 2
        while at < len(data):
            end = data.index(b"\0", at)
            entry = data[at:end].partition(b" ")[2].decode("utf-8", "surrogateescape")
            found[entry] = data[end + 1 : end + 1 + width].hex()
            at = end + 1 + width
        return found


def _field(data: bytes, key: bytes) -> str:
    found = re.search(rb"^" + key + rb" ([0-9a-f]{40,64})$", data[:4096], re.MULTILINE)
    if found is None:
        raise _Broken("an object of it is damaged")
    return found[1].decode()


def _resolved(own: Path, word: str, objects: _Objects) -> str:
    """The name of the object that a word means: a whole name, HEAD, a branch here or of a remote, a tag."""
    if _NAME.fullmatch(word):
        return word
    if not re.fullmatch(r"[\w][\w./+@-]{0,200}", word) or ".." in word:
        raise _Broken("it is no name of a branch, a tag or a commit")
    common = objects.folder.parent
    packed = plain(common / "packed-refs", 1 << 26).decode("utf-8", "replace")
    for form in ("{}", "refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/origin/{}"):
        name = form.format(word)
        for _ in range(5):  # a reference may name another one
            said = (plain(own / name, 1 << 12) or plain(common / name, 1 << 12)).decode("utf-8", "replace").strip()
            if not said:
                row = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(name)}$", packed, re.MULTILINE)
                said = row[1] if row else ""
            if _NAME.fullmatch(said):
                return said
            if not said.startswith("ref: refs/") or ".." in said:
                break
            name = said.removeprefix("ref: ")
    raise _Broken("nothing here has that name")


# ---------------------------------------------------------------- objects


@dataclass(slots=True)
class _Objects:
    """The objects of a repository: loose ones and those in packs, its own and those that it borrows."""

    folder: Path
    width: int  # bytes of a name
    packs: list[tuple[Path, bytes]] = field(default_factory=list)
    borrowed: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, common: Path) -> _Objects:
        """Those of the repository whose common folder it is."""
        config = plain(common / "config", 1 << 20).decode("utf-8", "replace")
        wide = re.search(r"^\s*objectformat\s*=\s*sha256\s*$", config, re.MULTILINE | re.IGNORECASE)
        made = cls(common / "objects", 32 if wide else 20)
        listed = plain(common / "objects/info/alternates", 1 << 16).decode("utf-8", "surrogateescape")
        made.borrowed = [made.folder / line for line in listed.splitlines()[:20] if line and "\0" not in line]
        for folder in (made.folder, *made.borrowed):
            for index in sorted(folder.glob("pack/*.idx"))[:1000]:
                made.packs.append((index.with_suffix(".pack"), plain(index, _LARGEST_INDEX)))
        return made

    def name(self, kind: str, data: bytes) -> str:
        """What an object of that content is called."""
        made = hashlib.sha256() if self.width == 32 else hashlib.sha1(usedforsecurity=False)
        made.update(b"%s %d\0" % (kind.encode(), len(data)) + data)
        return made.hexdigest()

    def read(self, name: str) -> tuple[str, bytes]:
        """The kind and the content of an object; raises _Broken where it is not there."""
        for folder in (self.folder, *self.borrowed):
            loose = plain(folder / name[:2] / name[2:], _LARGEST_OBJECT)
            if loose:
                head, _, body = _inflated(loose).partition(b"\0")
                return head.partition(b" ")[0].decode("ascii", "replace"), body
        for pack, index in self.packs:
            at = _offset(index, bytes.fromhex(name), self.width)
            if at is not None:
                return self._packed(pack, at)
        raise _Broken(f"the object {name[:12]} is not here")

    def _packed(self, pack: Path, at: int) -> tuple[str, bytes]:
        """The object at a place of a pack: of deltas the whole chain, from the last one down to what it changes."""
        deltas: list[bytes] = []
        try:
            opened = os.open(pack, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise _Broken(f"a pack cannot be read: {files.why(error)}") from error
        with open(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise _Broken("a pack is no plain file")
            for _ in range(_DEEPEST):
                file.seek(at)
                head = file.read(64)
                kind, used = (head[0] >> 4) & 7, 1
                while head[used - 1] & 0x80:
                    used += 1
                base, base_name = at, ""
                if kind == 6:
                    back, used = _back(head, used)
                    base = at - back
                elif kind == 7:
                    base_name, used = head[used : used + self.width].hex(), used + self.width
                file.seek(at + used)
                data = _inflated_from(iter(lambda: file.read(1 << 16), b""))
                if kind in _KINDS:
                    for delta in reversed(deltas):
                        data = _applied(data, delta)
                    return _KINDS[kind], data
                deltas.append(data)
                if base_name:
                    found, data = self.read(base_name)
                    for delta in reversed(deltas):
                        data = _applied(data, delta)
                    return found, data
                at = base
        raise _Broken("a chain of deltas has no end")


def _inflated(data: bytes) -> bytes:
    return _inflated_from(iter((data,)))


def _inflated_from(pieces: Iterator[bytes]) -> bytes:
    """What was deflated, within the limit."""
    engine, out = zlib.decompressobj(), b""
    for piece in pieces:
        out += engine.decompress(piece, _LARGEST_OBJECT - len(out) + 1)
        if len(out) > _LARGEST_OBJECT:
            raise _Broken("an object of it is too large")
        if engine.eof:
            break
    return out


def _offset(index: bytes, name: bytes, width: int) -> int | None:
    """Where a pack has an object, by its index of version 2; None where it has not."""
    if index[:8] != b"\xfftOc\0\0\0\2":
        return None
    fan = struct.unpack_from(">256I", index, 8)
    low, high, names = (fan[name[0] - 1] if name[0] else 0), fan[name[0]], 8 + 1024
    while low < high:
        middle = (low + high) // 2
        seen = index[names + middle * width : names + (middle + 1) * width]
        if seen == name:
            count = fan[255]
            near = names + count * (width + 4)
            (at,) = struct.unpack_from(">I", index, near + middle * 4)
            if at & 0x80000000:
                (at,) = struct.unpack_from(">Q", index, near + count * 4 + (at & 0x7FFFFFFF) * 8)
            return int(at)
        low, high = (middle + 1, high) if seen < name else (low, middle)
    return None


def _back(head: bytes, at: int) -> tuple[int, int]:
    """How far before a delta its base begins, and where that number ends."""
    value = head[at] & 0x7F
    while head[at] & 0x80:
        at += 1
        value = (value + 1) << 7 | (head[at] & 0x7F)
    return value, at + 1


def _applied(base: bytes, delta: bytes) -> bytes:
    """What a delta makes of its base."""
    size, at = _size(delta, 0)
    whole, at = _size(delta, at)
    if size != len(base) or whole > _LARGEST_OBJECT:
        raise _Broken("a delta does not fit its base")
    out = bytearray()
    while at < len(delta) and len(out) <= whole:
        code, at = delta[at], at + 1
        if not code & 0x80:
            out += delta[at : at + code]
            at += code
            continue
        begin = length = 0
        for bit in range(4):
            if code & 1 << bit:
                begin |= delta[at] << 8 * bit
                at += 1
        for bit in range(3):
            if code & 0x10 << bit:
                length |= delta[at] << 8 * bit
                at += 1
        out += base[begin : begin + (length or 0x10000)]
    if len(out) != whole:
        raise _Broken("a delta is damaged")
    return bytes(out)


def _size(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at
