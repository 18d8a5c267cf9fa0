"""What git ignores and what it tracks, read from the files of a repository as data: git itself is not run.

Source: gitignore(5), gitrepository-layout(5) and gitformat-index(5).  A repository may be a stranger's: every file is
read with a bound, links among them are not followed (nor does git follow a .gitignore), and no pattern takes more steps
than its length times the path's.  The well-kept library for such patterns, pathspec 1.1, makes regular expressions of
them that take minutes for ``*a*a*a*a*a*a*b`` and a name of 120 letters.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import field
from fnmatch import translate
from pathlib import Path

from envkit.dockerfile.context import MOST_PATTERNS, MOST_WILDCARDS, matches, parts
from envkit.records import dataclass

_LARGEST = 1 << 20  # bytes of a file of patterns; the largest public ones have some ten thousand
_LARGEST_INDEX = 1 << 28  # bytes; a repository of a million files has an index of 100 MB
# An entry of the index up to its flags, where objects are named by SHA-1 and by SHA-256.
_ENTRY, _WIDE_ENTRY = struct.Struct(">24xI12x20xH"), struct.Struct(">24xI12x32xH")
_EXTENDED, _GITLINK = 0x4000, 0o160000


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of a file of patterns, seen from the folder that the file lies in.

    ``keeps`` is a line that begins with "!", ``folders`` one that ends with "/".  ``name`` matches a file's name in any
    folder; without it ``path`` are the parts of a whole path.
    """

    keeps: bool
    folders: bool
    name: re.Pattern[str] | None
    path: tuple[str, ...]

    def matches(self, path: str, folder: bool) -> bool:
        """Whether it means exactly ``path``, not one in a folder that it means: nobody enters that."""
        if self.folders and not folder:
            return False
        if self.name is not None:
            return self.name.match(path.rpartition("/")[2]) is not None
        return matches(self.path, path, above=False)


@dataclass(slots=True)
class Ignored:
    """The rules of the repository whose work tree is at ``root``; paths are relative to it, with "/"."""

    root: Path
    _rules: dict[str, tuple[Pattern, ...]] = field(default_factory=dict)

    def enter(self, path: str) -> bool:
        """Whether git would come to the folder ``path`` (the root is "")."""
        steps = path.split("/") if path else []
        return all(not self.is_ignored("/".join(steps[: at + 1]), folder=True) for at in range(len(steps)))

    def walks(self, path: str) -> bool:
        """Whether git goes into the folder ``path`` from the one above: not .git, an ignored one, nor a repository."""
        at = self.root / path
        return path.rpartition("/")[2] != ".git" and not _is_repository(at) and not self.is_ignored(path, folder=True)

    def is_ignored(self, path: str, *, folder: bool) -> bool:
        """Whether the last pattern that matches says so; those of the nearest folder come last, the user's first."""
        above = path
        while above:
            above = above.rpartition("/")[0]
            seen = path[len(above) :].lstrip("/")
            for pattern in self._of(above):
                if pattern.matches(seen, folder):
                    return not pattern.keeps
        return next((not one.keeps for one in self._general() if one.matches(path, folder)), False)

    def tracked(self, start: str) -> Iterator[str]:
        """The files below ``start`` that the index lists; none where it cannot be read (a split or damaged one)."""
        own = git_folder(self.root)
        wide = re.search(rb"(?i)^\s*objectformat\s*=\s*sha256", plain(common_folder(own) / "config"), re.MULTILINE)
        inside = f"{start}/" if start else ""
        for name in _listed(plain(own / "index", _LARGEST_INDEX), _WIDE_ENTRY if wide else _ENTRY):
            # Names that git itself refuses: a stranger wrote the file.
            if name.startswith(inside) and not {"", ".", "..", ".git"} & set(name.split("/")):
                yield name

    def _of(self, folder: str) -> tuple[Pattern, ...]:
        if folder not in self._rules:
            self._rules[folder] = patterns(plain(self.root / folder / ".gitignore"))
        return self._rules[folder]

    def _general(self) -> tuple[Pattern, ...]:
        """The patterns of info/exclude, then the user's own for all repositories, where git looks by default."""
        if ".git" not in self._rules:
            home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
            own = plain(common_folder(git_folder(self.root)) / "info" / "exclude")
            self._rules[".git"] = (*patterns(own), *patterns(plain(Path(home, "git", "ignore"))))
        return self._rules[".git"]


def repository(folder: Path) -> Path | None:
    """The work tree that ``folder`` lies in, None if it lies in none."""
    start = Path(os.path.realpath(folder))
    return next((each for each in (start, *start.parents) if _is_repository(each)), None)


def patterns(data: bytes) -> tuple[Pattern, ...]:
    """The patterns of a file, the last one first; no more than MOST_PATTERNS, nor than MOST_WILDCARDS stars."""
    found: list[Pattern] = []
    stars = 0
    for line in data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")[:MOST_PATTERNS]:
        line = line.removesuffix("\r")
        stars += line.count("*")
        if stars > MOST_WILDCARDS:
            break
        pattern = _pattern(line)
        if pattern is not None:
            found.append(pattern)
    return tuple(reversed(found))


def _pattern(line: str) -> Pattern | None:
    if line.startswith("#"):
        return None
    text = re.sub(r"(?<!\\) +\Z", "", line)
    keeps = text.startswith("!")
    text = text[1:] if keeps else text
    folders = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    text = re.sub(r"(?<!\\)\[!", "[^", text)
    if "/" not in text:
        if "\\" not in text and not re.search(r"\[\^?\]", text):
            return Pattern(keeps, folders, re.compile(translate(text.replace("[^", "[!"))), ())
        text = f"**/{text}"
    # Two stars mean folders only where they stand alone between slashes.
    steps = [step if step == "**" else re.sub(r"\*\*+", "*", step) for step in text.removeprefix("/").split("/")]
    return Pattern(keeps, folders, None, parts("/".join(steps)))


def _is_repository(folder: Path) -> bool:
    """Whether git takes ``folder`` for a work tree: its .git is a file that leads elsewhere, or has a HEAD."""
    own = folder / ".git"
    return own.is_file() or (own / "HEAD").is_file() or (own / "HEAD").is_symlink()


def git_folder(root: Path) -> Path:
    """The folder of the repository, which a file in its place names for a linked work tree and a submodule."""
    own = root / ".git"
    said = plain(own, 1 << 16).decode("utf-8", "surrogateescape").strip()
    return root / said.removeprefix("gitdir:").strip() if said.startswith("gitdir:") and "\0" not in said else own


def common_folder(folder: Path) -> Path:
    said = plain(folder / "commondir", 1 << 16).decode("utf-8", "surrogateescape").strip()
    return folder / said if said and "\0" not in said else folder


def plain(path: Path, most: int = _LARGEST) -> bytes:
    """The content of a plain file, no link; nothing of any other, of one that may not be read, and of a larger one."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
        with open(opened, "rb") as file:
            data = file.read(most + 1) if stat.S_ISREG(os.fstat(opened).st_mode) else b""
    except (OSError, ValueError):
        return b""
    return data if len(data) <= most else b""


def _listed(data: bytes, entry: struct.Struct) -> Iterator[str]:
    """The paths of the files in an index of version 2, 3 or 4; it ends where the index is not as it should be."""
    if data[:4] != b"DIRC" or len(data) < 12:
        return
    version, count = struct.unpack(">II", data[4:12])
    at, name = 12, b""
    for _ in range(count if version in (2, 3, 4) else 0):
        if at + entry.size > len(data):
            return
        mode, flags = entry.unpack_from(data, at)
        begin = at + entry.size + (2 if flags & _EXTENDED else 0)
        kept = b""
        if version == 4:  # the name goes on from the one before it, less so many bytes
            dropped, begin = _varint(data, begin)
            kept = name[: max(0, len(name) - dropped)]
        end = data.find(b"\0", begin)
        if end < 0:
            return
        name = kept + data[begin:end]
        at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8
        if mode != _GITLINK:
            yield name.decode("utf-8", "surrogateescape")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of the index's version 4 and where it ends (the encoding of OFS_DELTA in gitformat-pack(5))."""
    value = -1
    while at < len(data):
        value = (value + 1) << 7 | (data[at] & 0x7F)
        at += 1
        if not data[at - 1] & 0x80:
            break
    return max(0, value), at
