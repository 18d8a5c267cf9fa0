"""A build context on disk: the files that a build could see, and why it could not see the others."""

from __future__ import annotations

import codecs
import errno
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path

from envkit.dockerfile.files import LARGEST, MISSING, FileText, Project
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.system import files

MOST_NAMES = 10_000  # of one folder
MOST_PATTERNS = 5_000  # of one .dockerignore
MOST_WILDCARDS = 2_000  # of one .dockerignore; what a match costs is their number times the path's length
LONGEST_PATH = 4_096  # characters; Linux opens no longer one

_OUTSIDE = "it lies outside the build context"
_IGNORED = "the .dockerignore keeps it out of the build context"


@dataclass(slots=True)
class Context:
    """The folder ``root`` as ``docker build`` would send it.

    ``dockerfile`` is the Dockerfile, for a NAME.dockerignore beside it goes before the .dockerignore of the folder
    (Docker docs, "Build context").  Nothing outside of ``root`` is opened, and nothing that is no plain file; only
    where the build clones the very repository that ``root`` lies in is that one's checkout read.  ``repository`` is its
    address and its folder where the caller knows them, else what git's configuration says.  ``around`` finds the names
    of the whole project, where the caller knows how.
    """

    root: Path
    dockerfile: Path | None = None
    repository: tuple[str, Path] | None = None
    around: Callable[[Context], Project | None] | None = None
    _rules: tuple[Rule, ...] | None = field(default=None, init=False)

    def read(self, path: str) -> FileText | str:
        """The file at ``path`` below the root, or a clause that says why it cannot be known.

        UTF-8 and, by its mark, UTF-16 (which PowerShell writes) are read; bytes that are neither become U+FFFD.
        """
        placed = self._place(path)
        if isinstance(placed, str):
            return placed
        below, real = placed
        data = content(real)
        if isinstance(data, str):
            return data
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            text = data.decode("utf-16", errors="replace")
        elif b"\0" in data:
            return "it is no text"
        else:
            text = data.decode("utf-8-sig", errors="replace")
        return FileText(posixpath.normpath(posixpath.join(str(self.root), below)), text)

    def names(self, path: str) -> tuple[str, ...]:
        """The names in a folder that the build could see, sorted, at most ``MOST_NAMES``; none without it."""
        placed = self._place(path, folder=True)
        if isinstance(placed, str):
            return ()
        below, real = placed
        found: list[str] = []
        reopens = any(rule.keeps for rule in self.rules())
        try:
            with os.scandir(real) as entries:
                for entry in entries:
                    name = posixpath.normpath(posixpath.join(below, entry.name))
                    if ignored(name, self.rules()) and not (reopens and entry.is_dir(follow_symlinks=False)):
                        continue
                    found.append(entry.name)
                    if len(found) >= MOST_NAMES:
                        break
        except OSError:
            return ()
        return tuple(sorted(found))

    def clone_of(self, url: str) -> Context | None:
        """The checkout that the context belongs to, where ``url`` is the address it was cloned from."""
        known = self.repository or checkout(self.root)
        if known is None or not named_alike(known[0], url):
            return None
        return Context(known[1]).whole()

    def whole(self) -> Context:
        """The same folder without a .dockerignore, which only a build heeds."""
        self._rules = ()
        return self

    def project(self) -> Project | None:
        """The project that the context belongs to, None where it is not known."""
        return self.around(self) if self.around is not None else None

    def has(self, name: str) -> bool:
        """Whether the folder has it, or a link of that name."""
        return os.path.lexists(self.root / name)

    def keeps_out(self, name: str) -> bool:
        """Whether the .dockerignore keeps a path out; a folder of which a line lets something in is there."""
        let_in = any(rule.keeps and (rule.parts or rule.plain.startswith(f"{name}/")) for rule in self.rules())
        return ignored(name, self.rules()) and not (let_in and (self.root / name).is_dir())

    def rules(self) -> tuple[Rule, ...]:
        """The rules of the .dockerignore in force, read once."""
        if self._rules is None:
            places = [self.root / ".dockerignore"]
            if self.dockerfile is not None:
                places.insert(0, self.dockerfile.with_name(f"{self.dockerfile.name}.dockerignore"))
            texts = (content(str(place)) for place in places)
            data = next((data for data in texts if isinstance(data, bytes)), b"")
            self._rules = rules(data.decode("utf-8-sig", errors="replace"))
        return self._rules

    def _place(self, path: str, *, folder: bool = False) -> tuple[str, str] | str:
        """The path below the root, and where it really lies; or why not."""
        below = posixpath.normpath(path or ".")
        if path.startswith("/") or below == ".." or below.startswith("../"):
            return _OUTSIDE
        if len(path) > LONGEST_PATH or "\0" in path:
            return MISSING
        if not folder and ignored(below, self.rules()):
            return _IGNORED
        try:
            top = os.path.realpath(self.root, strict=True)
            real = os.path.realpath(os.path.join(top, below), strict=True)
        except OSError as error:
            return "it is a link that leads in a circle" if error.errno == errno.ELOOP else MISSING
        except ValueError:  # a name that the file system cannot have
            return MISSING
        inside = os.path.relpath(real, top)
        if inside == ".." or inside.startswith("../"):
            return "it is a link that leaves the build context"
        if not folder and ignored(inside, self.rules()):
            return _IGNORED
        return below, real


_LONGEST_ADDRESS = 500  # characters
_ADDRESS = pattern(r"(?:[a-z+]+://)?(?:[^@/]*@)?([^/:]+)(?::\d+(?=/))?[/:](.+)")


def checkout(folder: Path) -> tuple[str, Path] | None:
    """The address that the checkout around ``folder`` was cloned from ("" for none), its root; None outside of one."""
    top = Path(os.path.realpath(folder))
    for root in (top, *top.parents):
        if (root / ".git").is_dir():
            data = content(str(root / ".git" / "config"))
            address = _origin(data.decode("utf-8", "replace")) if isinstance(data, bytes) else ""
            return (address, root)
    return None


def _origin(config: str) -> str:
    """The address of the remote "origin" in git's configuration, "" without one."""
    section = ""
    for line in map(str.strip, config.splitlines()):
        section = line if line.startswith("[") else section
        key, equals, value = line.partition("=")
        if section == '[remote "origin"]' and equals and key.strip() == "url":
            return value.strip()
    return ""


def named_alike(one: str, other: str) -> bool:
    """Whether two addresses are of one repository, whichever way it is asked."""
    found = [_ADDRESS.fullmatch(each.strip()) for each in (one, other) if len(each) <= _LONGEST_ADDRESS]
    told = {(each[1], each[2].rstrip("/").removesuffix(".git")) for each in found if each is not None}
    return len(found) == 2 and None not in found and len({(host.lower(), path.lower()) for host, path in told}) == 1


# ---------------------------------------------------------------- which folder is the context

_BUILD = pattern(r"^[ \t]*#.*?\bdocker\s+(?:buildx\s+|image\s+)?build\s+([^&|;`\n]{0,2000})", re.MULTILINE)
# Options that take the next word.
_VALUED = pattern(
    r"-[fto]|--(?:file|tag|build-arg|target|platform|label|secret|ssh|network|progress|cache-from|cache-to|shm-size|output"
    r"|builder|build-context)"
)
_COPIED = pattern(r"^[ \t]*(?:COPY|ADD)[ \t](.+)$", re.MULTILINE | re.IGNORECASE)
_MOST_ABOVE = 6  # folders


def folder_of(dockerfile: Path, text: str, top: Path | None = None) -> Path:
    """The folder that a Dockerfile is written for: its own, or one above it.

    It is one above where a comment shows `docker build -f FOLDER/NAME .`, or where that has more of what the file
    copies; no folder is tried above ``top``, which is the root of the checkout where it is not given.
    """
    own = dockerfile.parent
    wanted, told = list(dict.fromkeys(_sources(text))), _BUILD.search(text)
    most = _count(own, wanted)
    if most == len(wanted) and told is None:
        return own
    around = checkout(own) if top is None else None
    top = Path(os.path.realpath(around[1] if around is not None else top or own))
    here, chosen = Path(os.path.realpath(own)), own
    places = [above for above in here.parents[:_MOST_ABOVE] if above.is_relative_to(top)]
    shown = _told(here, text) if told is not None else None
    if shown is not None and shown in (here, *places):
        return own if shown == here else shown
    for above in places:
        if _count(above, wanted) > most:
            most, chosen = _count(above, wanted), above
    return chosen


def _count(folder: Path, names: Sequence[str]) -> int:
    return sum(os.path.lexists(folder / name) for name in names)


def _sources(text: str) -> Iterator[str]:
    """What COPY and ADD take out of the context by a plain name."""
    for found in _COPIED.finditer(text):
        if any(sign in found[1] for sign in ("--from", "<<", "[")):
            continue
        words = [word for word in found[1].split() if not word.startswith("--")]
        last = () if words[-1:] == ["\\"] else words[-1:]
        for word in words[: len(words) - len(last)]:
            # Docker takes a source as if the context were the root: ".." does not lead out of it.
            name = posixpath.normpath("/" + word.strip("\"'").lstrip("/")).lstrip("/")
            if name and not re.search(r"[$*?\[\\]|:/", name):
                yield name


def _told(here: Path, text: str) -> Path | None:
    """The folder that a comment names as the context, by how it names a Dockerfile in ``here``."""
    for found in _BUILD.finditer(text):
        named, places, words = "", [], found[1].split()
        while words:
            word = words.pop(0)
            key, _, value = word.partition("=")
            if _VALUED.fullmatch(word) and words:
                value = words.pop(0)
            elif not word.startswith("-"):
                places.append(word)
            named = value if key in ("-f", "--file") else named
        folder = posixpath.normpath(posixpath.dirname(named) or ".")
        if len(places) == 1 and not folder.startswith(("/", ".")) and here.match(folder):
            return Path(os.path.normpath(here.parents[folder.count("/")] / places[0]))
    return None


def content(path: str) -> bytes | str:
    """The content of a plain file of bearable size (LARGEST bytes), or a clause that says why it cannot be had."""
    try:
        return files.content(path, LARGEST)
    except OSError as error:
        said = files.why(error)
        return said if said.startswith("it ") else f"it cannot be read ({said})"


# ---------------------------------------------------------------- .dockerignore


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of a .dockerignore: ``keeps`` with a !, ``plain`` without wildcards, else ``parts`` as ``parts`` gives."""

    keeps: bool
    plain: str
    parts: tuple[str, ...] = ()

    def matches(self, path: str) -> bool:
        """Whether the pattern matches the path or a folder above it."""
        if not self.parts:
            return path == self.plain or path.startswith(f"{self.plain}/")
        return matches(self.parts, path)


def rules(text: str) -> tuple[Rule, ...]:
    """The lines of a .dockerignore (Docker docs, "Build context": Go's filepath.Match and ``**``).

    It ends at ``MOST_PATTERNS`` lines or ``MOST_WILDCARDS`` stars; nobody writes so many.
    """
    found: list[Rule] = []
    stars = 0
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        pattern = line.strip()
        keeps = pattern.startswith("!")
        pattern = pattern.removeprefix("!").strip() if keeps else pattern
        if not pattern or len(pattern) > LONGEST_PATH:
            continue
        pattern = posixpath.normpath(pattern).lstrip("/")
        if pattern in ("", "."):
            continue
        wild = any(sign in pattern for sign in "*?[\\")
        rule = Rule(keeps, pattern, parts(pattern) if wild else ())
        stars += sum(part[0] == "*" for part in rule.parts)
        if stars > MOST_WILDCARDS or len(found) >= MOST_PATTERNS:
            break
        found.append(rule)
    return tuple(found)


def ignored(path: str, lines: tuple[Rule, ...]) -> bool:
    """Whether the last rule that matches ``path`` or a folder above it keeps it out."""
    if path in ("", "."):
        return False
    return next((not rule.keeps for rule in reversed(lines) if rule.matches(path)), False)


def parts(pattern: str) -> tuple[str, ...]:
    """A pattern's characters; "**/" is any folders or none, "**" anything, "*" and "?" stop at a slash, "[" a class."""
    found: list[str] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        if pattern.startswith("**", at):
            while at < len(pattern) and pattern[at] == "*":
                at += 1
            if pattern[at : at + 1] == "/":
                if found[-1:] != ["**/"]:
                    found.append("**/")
                at += 1
            else:
                found.append("**")
            continue
        end = pattern.find("]", at + 2) if sign == "[" else -1
        if end > 0:
            found.append(pattern[at : end + 1])
            at = end + 1
            continue
        if sign == "\\" and at + 1 < len(pattern):
            at += 1
            sign = f"\\{pattern[at]}"
        found.append(sign)
        at += 1
    return tuple(found)


def matches(parts: tuple[str, ...], path: str, *, above: bool = True) -> bool:
    """Whether a pattern matches the path, or, unless ``above`` is False, a folder above it.

    All states of the pattern at once, so that no pattern takes longer than its length times the path's.
    """
    states = _open({0}, parts, fresh=True)
    for place, sign in enumerate(path):
        if above and sign == "/" and len(parts) in states:
            return True  # a folder above
        following: set[int] = set()
        for state in states:
            if state == len(parts):
                continue
            part = parts[state]
            if part == "**" or part == "**/" or (part == "*" and sign != "/"):
                following.add(state)
            elif part != "*" and _takes(part, sign):
                following.add(state + 1)
        if not following:
            return False
        states = _open(following, parts, fresh=path[place] == "/")
    return len(parts) in states


def _open(states: set[int], parts: tuple[str, ...], *, fresh: bool) -> set[int]:
    """With the states that are reached without a character; "**/" may end only where a name begins (``fresh``)."""
    found: set[int] = set()
    for state in states:
        at = state
        while at not in found:
            found.add(at)
            if at < len(parts) and (parts[at] in ("*", "**") or (parts[at] == "**/" and fresh)):
                at += 1
    return found


def _takes(part: str, sign: str) -> bool:
    """Whether one part that stands for one character takes ``sign``."""
    if part == "?":
        return sign != "/"
    if part[0] == "\\" and len(part) == 2:
        return part[1] == sign
    if part[0] == "[" and len(part) > 2:
        inside = part[1:-1]
        negated = inside.startswith("^")
        inside = inside.removeprefix("^")
        within = at = 0
        while at < len(inside):
            if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
                within |= inside[at] <= sign <= inside[at + 2]
                at += 3
            else:
                within |= inside[at] == sign
                at += 1
        return bool(within) != negated and sign != "/"
    return part == sign
