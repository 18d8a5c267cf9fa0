"""Requirements: pip's files of them, single ones with pins, addresses and markers, and what an index address tells.

The grammar is pip's (requirements file format) over PEP 508 (requirements and markers), PEP 440 (versions), PEP 427
(the names of wheels) and PEP 503 (canonical names).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from envkit.dockerfile.files import Files, FromOthers
from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Install, Unread

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

LONGEST = 4_000  # characters; a longer line is no requirement that a person or a tool wrote
MOST = 20_000  # requirements of one command
DEEPEST = 20  # files that name one another

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NAMED = pattern(rf"({_NAME})\s*(?:\[([^\]]*)\])?\s*(.*)\Z", re.DOTALL)
_SPECIFIER = pattern(r"(===|==|~=|!=|<=|>=|<|>|=)")
_UNKNOWN_REST = pattern(r"\$(?:\w+|\{.*\}|\(.*\))\Z", re.DOTALL)
_OPEN_BUILD = pattern(r"([0-9]+(?:\.[0-9]+)+)\+([\w.]*\$\{?\w+\}?)\Z")
_VERSION = pattern(
    r"v?((?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[-_.]?[0-9]*)*)"
    r"(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?\Z",
    re.IGNORECASE,
)
_WHEEL = pattern(r"([A-Za-z0-9][A-Za-z0-9._]*)-([0-9][^-/]*)(?:-[0-9][^-/]*)?-[^-/]+-[^-/]+-[^-/]+\.whl\Z")
_SDIST = pattern(rf"({_NAME})-([0-9][^/]*?)\.(?:tar\.gz|tar\.bz2|tar\.xz|tgz|zip)\Z")
_ARCHIVE = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz")
_SCHEME = pattern(r"(?:(git|hg|svn|bzr)(?:\+|@|://)|[A-Za-z][A-Za-z0-9+.-]*://|file:)")
_COMMENT = pattern(r"(?:^|\s)#.*\Z", re.DOTALL)
_PER_REQUIREMENT = pattern(
    # pip reads options of its own behind a requirement too, and takes no notice of them
    r"\s--?(?:hash|global-option|config-settings?|install-option|(?:extra-)?index-url|find-links|trusted-host)\b.*\Z"
    r"|\s-[Cif]\s.*\Z",
    re.DOTALL,
)
_VARIABLE = pattern(r"\$\{([A-Z0-9_]+)\}")
_BUILD = pattern(r"(?:^|[/_.-])(cu[0-9]{2,3}(?:_full)?|cpu(?:-cxx11-abi)?|rocm[0-9][0-9.]*|xpu)(?=/|\Z|[?#])")
_DEFAULT_INDEX = pattern(r"pypi(?:\.python)?\.org(?:/simple|/pypi)?\Z")
_GLOB = pattern(rf"({_NAME})-\*.*\.whl\Z")


@cache
def _packages() -> dict[str, str]:
    """Repositories whose package has another name than they have."""
    return msgspec.json.decode(Path(__file__).with_name("repositories.json").read_bytes(), type=dict[str, str])


_CLONED = pattern(r"clones it from (?:https://|git@)github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?\Z")


@cache
def _free_of_torch() -> dict[str, str]:
    """Repositories of which an installation asks for no release of torch, each with what its own file asks for."""
    return msgspec.json.decode(Path(__file__).with_name("free_of_torch.json").read_bytes(), type=dict[str, str])


@cache
def _bring_torch() -> dict[str, str]:
    """Repositories of which an installation asks for a torch, whichever, each with what its own file asks for."""
    return msgspec.json.decode(Path(__file__).with_name("bring_torch.json").read_bytes(), type=dict[str, str])


_NEWEST_OF = pattern(
    r"(?:git\+)?(?:https|ssh)://(?:git@)?github\.com/([\w.-]+/[\w.-]+?)"
    r"(?:(?:\.git)?/?(?:@(?:main|master|HEAD))?|/(?:archive|zipball|tarball)/(?:refs/heads/)?(?:main|master)"
    r"(?:\.(?:zip|tar\.gz))?)(?:#egg=[\w.-]+)?"
)


def requires_torch(url: str) -> bool:
    """Whether an address is the newest state of a repository whose package surely asks for a torch, whichever."""
    found = _NEWEST_OF.fullmatch(url) if "github.com" in url else None
    return found is not None and found[1].lower() in _bring_torch()


@cache
def _git_torch() -> dict[str, tuple[str, str]]:
    """Repositories whose newest state asks for certain releases of torch: where that stands, and which."""
    there = Path(__file__).with_name("git_torch.json").read_bytes()
    return msgspec.json.decode(there, type=dict[str, tuple[str, str]])


def torch_of(url: str) -> str:
    """Which torch the newest state of a repository asks for, "" where that is not known."""
    found = _NEWEST_OF.fullmatch(url) if "github.com" in url else None
    return _git_torch().get(found[1].lower(), ("", ""))[1] if found is not None else ""


class _Lists(msgspec.Struct, frozen=True):
    """What the lists of one repository ask for of torch and its kin, by path, and where that was read, and when."""

    source: str
    lists: dict[str, str]


@cache
def _public_lists() -> dict[str, _Lists]:
    """The lists of much used repositories, at the newest state that was read of each."""
    there = Path(__file__).with_name("public_lists.json").read_bytes()
    return msgspec.json.decode(there, type=dict[str, _Lists])


def lists_of(url: str) -> dict[str, str]:
    """The known lists of a repository of GitHub's, by path; none of another one."""
    found = re.search(r"github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?\Z", url) if "github.com" in url else None
    known = _public_lists().get(found[1].lower()) if found else None
    return known.lists if known is not None else {}


def says_nothing(unread: Unread) -> bool:
    """Whether a project that was not read is a clone of one that decides nothing about torch."""
    cloned = _CLONED.search(unread.why)
    return cloned is not None and cloned[1].lower() in _free_of_torch()


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement.

    ``name`` is canonical and "" where the text does not tell it (a path); ``specifier`` as written;
    ``version`` and ``local`` as in Install; ``index`` where this one package is tied to an index; ``hashed`` where the
    line holds the artifacts' hashes; ``sure`` False where it may not be asked for at all.
    """

    name: str
    span: Span
    specifier: str = ""
    version: str = ""
    local: str = ""
    extras: tuple[str, ...] = ()
    url: str = ""
    editable: bool = False
    marker: str = ""
    index: str = ""
    hashed: bool = False
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Option:
    """An option line of a requirements file: the usual long name ("--requirement", "--index-url") and its value."""

    name: str
    value: str
    span: Span


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """PEP 503's form of a package's name: lower case, one dash for each run of dashes, dots and underscores."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pin(specifier: str) -> tuple[str, str]:
    """The exact public version and local version that a specifier pins, ("", "") where it pins none (PEP 440).

    A local version that a variable gives ("+cu$NAME") is as written.
    """
    for clause in specifier.split(","):
        clause = clause.strip()
        if clause.startswith("=="):
            found = _VERSION.match(clause.lstrip("=").strip().strip("'\""))
            if found:
                return found[1], (found[2] or "").lower()
            found = _OPEN_BUILD.match(clause.lstrip("=").strip().strip("'\""))
            if found:
                return found[1], found[2]
    return "", ""


@lru_cache(maxsize=256)
def _specifiers(text: str) -> SpecifierSet | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # costs 6 ms, and few files need it

    try:
        return SpecifierSet(",".join(map(_of_poetry, text.split(","))) if _POETRYS.search(text) else text)
    except InvalidSpecifier:
        return None


_POETRYS = pattern(r"\^|~(?!=)|\s*\*\s*\Z")
_POETRY_CLAUSE = pattern(r"\s*([\^~])\s*(\d+(?:\.\d+)*)\s*")


def _of_poetry(clause: str) -> str:
    """A clause of poetry's own in PEP 440's words: a caret leaves the first number as it is that is no zero, a tilde
    the second.  Source: poetry, "Dependency specification"."""
    found = _POETRY_CLAUSE.fullmatch(clause)
    if found is None:
        return "" if clause.strip() == "*" else clause
    numbers = [int(number) for number in found[2].split(".")]
    kept = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
    kept = kept if found[1] == "^" else min(1, len(numbers) - 1)
    return f">={found[2]},<{'.'.join(map(str, (*numbers[:kept], numbers[kept] + 1)))}"


def allows(specifier: str, version: str) -> bool | None:
    """Whether a specifier lets a version in, pre-releases too (PEP 440); None where one of them cannot be read."""
    from packaging.version import InvalidVersion

    wanted = _specifiers(specifier)
    try:
        return None if wanted is None else wanted.contains(version, prereleases=True)
    except InvalidVersion:
        return None


def build_of(address: str) -> str:
    """The build that an index of torch or a page of its wheels offers: "cuNNN", "cpu", "rocmN.N", "" where the address
    does not tell (a page of all builds, an index of everything).

    The last such part of the path counts, so that mirrors of download.pytorch.org/whl/BUILD are understood too.
    """
    found = _BUILD.findall(unquote(address).rstrip("/"))
    return str(found[-1]).removesuffix("_full").removesuffix("-cxx11-abi") if found else ""


def address(text: str) -> str:
    """An index as Install names it: the default one, whatever its spelling, is ""."""
    bare = re.sub(r"\Ahttps?://", "", text).rstrip("/").lower()
    return "" if _DEFAULT_INDEX.match(bare) else text


def archive(url: str) -> tuple[str, str, str] | None:
    """Name, public version and local version that the file name of a wheel or source archive tells, else None."""
    file = unquote(url.partition("#")[0].partition("?")[0]).rsplit("/", 1)[-1]
    found = _WHEEL.match(file) or _SDIST.match(file)
    if not found:
        return None
    return canonical(found[1]), *pin("==" + found[2])


def requirement(text: str, span: Span, *, editable: bool = False) -> Requirement | None:
    """One requirement as pip takes it on its command line or in a file, None where the text is none."""
    text = text.strip()
    if text[:1] in ("'", '"') and text.endswith(text[0]):  # a marker may end in a quote of its own
        text = text[1:-1].strip()
    hashed = False
    options = _PER_REQUIREMENT.search(text[:LONGEST])  # a hundred hashes may follow a name
    if not text or (len(text) > LONGEST and options is None):
        return None
    if options:
        hashed = "--hash" in text[options.start() :]
        text = text[: options.start()].rstrip()
    if _SCHEME.match(text) or _is_path(text) or (editable and not re.match(rf"{_NAME}\s*(\[[^\]]*\])?\s*@", text)):
        # What is editable is a folder, also without a slash.
        place, marker = _cut_marker(text, spaced=True)
        found = _of_address(place, span, editable)
        return replace(found, marker=marker, hashed=hashed) if found else None
    body, marker = _cut_marker(text, spaced=False)
    named = _NAMED.match(body.rstrip(","))
    if not named or not re.search("[A-Za-z]", named[1]):
        return None
    name, extras, rest = canonical(named[1]), _extras(named[2]), named[3].strip()
    if rest.startswith("@"):
        place, marker = _cut_marker(text.partition("@")[2].strip(), spaced=True)
        found = _of_address(place, span, editable)
        if not found:
            return None
        return replace(found, name=name, extras=extras, marker=marker, hashed=hashed)
    if rest.startswith("(") and rest.endswith(")"):
        rest = rest[1:-1].strip()
    if rest and not _SPECIFIER.match(rest) and not _UNKNOWN_REST.match(rest):
        return None
    version, local = pin(rest)
    return Requirement(name, span, rest, version, local, extras, "", editable, marker, "", hashed)


def parse(text: str, path: str, env: Mapping[str, str] | None = None) -> tuple[Requirement | Option | Unread, ...]:
    """The lines of a requirements file in order.

    Continuations are joined, comments go, ``${NAME}`` is replaced as pip does where ``env`` knows it.  A line that is
    nothing of the kind is said as Unread, so that no text is lost in silence.
    """
    found: list[Requirement | Option | Unread] = []
    lines = text.removeprefix("\ufeff").splitlines()
    at = 0
    while at < len(lines):
        first = at
        pieces = [lines[at]]
        while pieces[-1].endswith("\\") and not pieces[-1].lstrip().startswith("#") and at + 1 < len(lines):
            pieces[-1] = pieces[-1][:-1]
            at += 1
            pieces.append(lines[at])
        at += 1
        line = _COMMENT.sub("", "".join(pieces)) if any("#" in piece for piece in pieces) else "".join(pieces)
        stripped = line.strip()
        if not stripped:
            continue
        if len(found) >= MOST:
            found.append(Unread(path, f"it has more than {MOST} lines of requirements", Span(path, first + 1)))
            break
        column = len(lines[first]) - len(lines[first].lstrip()) + 1
        end = len(pieces[0].rstrip()) if len(pieces) > 1 else len(line.rstrip())
        span = Span(path, first + 1, column, first + 1, max(end, column) + 1)
        if env is not None and "${" in stripped:
            stripped = _VARIABLE.sub(lambda match: env.get(match[1], match[0]), stripped)
        found.extend(_line(stripped, span))
    return tuple(found)


_LINE_OPTION = pattern(r"(-[A-Za-z]|--[a-z][a-z0-9-]*)\s*=?\s*(.*)\Z", re.DOTALL)
_LONG = {
    "-r": "--requirement",
    "-c": "--constraint",
    "-e": "--editable",
    "-i": "--index-url",
    "-f": "--find-links",
    "--pypi-url": "--index-url",
}
_ALONE = frozenset({"--no-index", "--pre", "--prefer-binary", "--require-hashes", "--always-unzip"})


def _line(text: str, span: Span) -> list[Requirement | Option | Unread]:
    shown = text if len(text) <= 60 else text[:60] + "..."
    if not text.startswith("-"):
        wanted = requirement(text, span)
        return [wanted or Unread(span.path, f"line {span.line} is no requirement (`{shown}`)", span)]
    found: list[Requirement | Option | Unread] = []
    while text.startswith("-") and len(found) < 50:  # pip takes several options on one line
        option = _LINE_OPTION.match(text) if len(text) <= LONGEST else None
        if not option:
            return [*found, Unread(span.path, f"line {span.line} is no option of pip's (`{shown}`)", span)]
        name, value = _LONG.get(option[1], option[1]), option[2].strip()
        if name == "--editable":
            wanted = requirement(value, span, editable=True)
            why = f"line {span.line} is no editable requirement (`{shown}`)"
            return [*found, wanted or Unread(span.path, why, span)]
        if name in _ALONE:
            value, text = "", value
        else:
            value, _, text = value.partition(" ")
            text = text.strip()
        found.append(Option(name, value.strip("'\""), span))
    return found


def _extras(text: str | None) -> tuple[str, ...]:
    return tuple(canonical(extra.strip()) for extra in (text or "").split(",") if extra.strip())


def _cut_marker(text: str, *, spaced: bool) -> tuple[str, str]:
    if spaced:
        place, separator, marker = text.partition(" ;")
        if not separator:
            place, _, marker = text.partition("; ")
    else:
        place, _, marker = text.partition(";")
    return place.strip(), marker.strip()


def _is_path(text: str) -> bool:
    head = text.partition(";")[0].strip()
    if re.match(rf"{_NAME}\s*(\[[^\]]*\])?\s*@\s", head):
        return False
    return head.startswith((".", "/", "~")) or head.endswith(_ARCHIVE) or ("/" in head and not _SPECIFIER.search(head))


def _of_address(text: str, span: Span, editable: bool) -> Requirement | None:
    url = text
    extras: tuple[str, ...] = ()
    tail = re.search(r"\[([^\]/]*)\]\Z", text)
    if tail:
        url, extras = text[: tail.start()], _extras(tail[1])
    fragment = url.partition("#")[2]
    egg = re.search(r"(?:^|&)egg=([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?", fragment)
    if egg and egg[2]:
        extras = _extras(egg[2])
    told = archive(url)
    if told:
        return Requirement(told[0], span, "", told[1], told[2], extras, url, editable)
    scheme = _SCHEME.match(url)
    if scheme and scheme[1]:
        name, version = _of_repository(url)
        return Requirement(canonical(egg[1]) if egg else name, span, "", version, "", extras, url, editable)
    glob = _GLOB.match(unquote(url).rsplit("/", 1)[-1])
    name = canonical(egg[1]) if egg else canonical(glob[1]) if glob else ""
    if not name and scheme:
        # https://github.com/OWNER/NAME/archive/refs/tags/v1.2.zip
        found = re.search(r"github\.com/([^/]+)/([^/]+)/(?:archive|zipball|tarball)/(?:refs/(?:tags|heads)/)?(.*)", url)
        if found:
            reference = re.sub(r"\.(zip|tar\.gz|tgz)\Z", "", found[3])
            name, version = _of_repository(f"git+https://github.com/{found[1]}/{found[2]}@{reference}")
            return Requirement(name, span, "", version, "", extras, url, editable)
    return Requirement(name, span, "", "", "", extras, url, editable)


def _of_repository(url: str) -> tuple[str, str]:
    """The package and the version, as far as a repository's address and a tag in it tell."""
    place = url.partition("#")[0].partition("?")[0]
    head, at, reference = place.rpartition("@")
    if not at or "/" not in head or "://" not in head:
        head, reference = place, ""
    parts = head.rstrip("/").removesuffix(".git").replace(":", "/").split("/")
    owned = "/".join(parts[-2:]).lower()
    inside = re.search(r"subdirectory=(?:[^&]*/)?([A-Za-z0-9][A-Za-z0-9._-]*)", url)
    own = inside[1] if inside and inside[1].lower() not in ("python", "py", "torch", "src") else parts[-1]
    name = _packages().get(owned, canonical(own))
    tag = re.match(
        r"(?:v(?=[0-9]+\.)|(?=[0-9]+\.[0-9]+\.))([0-9]+(?:\.[0-9]+)+(?:[-.]?(?:post|rc|dev|a|b)[0-9]+)?)\Z", reference
    )
    return name if re.match(rf"{_NAME}\Z", name) else "", tag[1] if tag else ""


# ---- markers


PYTHONS = tuple(f"3.{minor}" for minor in range(6, 15))  # what a marker is tried with where the Python is not known
_PLATFORM = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
_EXTRA = pattern(r"""\bextra\s*([!=]=)\s*["']([^"']*)["']|["']([^"']*)["']\s*([!=]=)\s*extra\b""")
_UNKNOWN = pattern(r"\b(?:platform[._](?:release|version)|implementation_version|extras?|dependency_groups)\b")
_PATCH = pattern(r"[0-9]+\.[0-9]+\.([0-9]{1,4})")


def holds(
    marker: str, python: str = "", machine: str = "x86_64", extras: frozenset[str] = frozenset(), requires: str = ""
) -> bool | None:
    """Whether an environment marker (PEP 508) holds on Linux, None where that depends on what is not known.

    ``python`` is "3.11" or "3.11.4", "" for not known: then the marker is decided if every Python in use agrees, of
    those that ``requires`` (a requires-python) lets in.
    """
    if not marker:
        return True
    return None if len(marker) > LONGEST else _holds(marker, python, machine, extras, requires)


@lru_cache(maxsize=8192)
def _holds(marker: str, python: str, machine: str, extras: frozenset[str], requires: str) -> bool | None:
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison
    from packaging.version import InvalidVersion

    def of_extra(found: re.Match[str]) -> str:
        name, operator = (found[2], found[1]) if found[1] else (found[3], found[4])
        true = (name in extras or canonical(name) in extras) == (operator == "==")
        return f"os_name {'==' if true else '!='} 'posix'"

    text = _EXTRA.sub(of_extra, marker)
    if _UNKNOWN.search(text):
        return None
    answers: set[bool] = set()
    try:
        parsed = Marker(text)
        for one in (python,) if python else [each for each in PYTHONS if admits(requires, each) is not False]:
            for full in _releases(one, text):
                minor = ".".join(one.split(".")[:2])
                env = {**_PLATFORM, "platform_machine": machine, "python_version": minor, "python_full_version": full}
                answers.add(parsed.evaluate(env))
                if len(answers) > 1:
                    return None
    except (InvalidMarker, InvalidVersion, UndefinedComparison, RecursionError):
        return None
    return answers.pop() if answers else None


def _releases(python: str, text: str) -> list[str]:
    """A Python with its patch; one without gets each that tells apart what ``text`` compares it with."""
    if python.count(".") > 1:
        return [python]
    named = {int(patch) for patch in _PATCH.findall(text)}
    return [f"{python}.{patch}" for patch in sorted({0, *named, *(patch + 1 for patch in named)})]


@lru_cache(maxsize=1024)
def admits(specifier: str, python: str) -> bool | None:
    """Whether a specifier of Pythons (">=3.9,<3.12", "^3.10", "3.11.*") lets in ``python`` ("3.11" or with its patch),
    None where that depends on the patch or the specifier says nothing that is understood.
    """
    clauses: list[str] = []
    for clause in specifier.split(","):
        clause = clause.strip()
        if not clause or clause == "*":
            continue
        found = re.match(r"(\^|~=|~|===|==|!=|<=|>=|<|>|=)?\s*v?([0-9]+(?:\.[0-9]+)*(?:\.\*)?)", clause)
        if not found:
            return None
        operator, wanted = found[1] or "==", found[2]
        if operator in ("^", "~"):  # poetry's: the same major, the same minor
            clauses += [f">={wanted}", f"=={'.'.join(wanted.split('.')[: 1 if operator == '^' else 2])}.*"]
        else:
            clauses.append(f"{'==' if operator == '=' else operator}{wanted}")
    answers = {allows(",".join(clauses), release) for release in _releases(python, specifier)}
    return answers.pop() if len(answers) == 1 else None


# ---- what one command asks for, with all its files


@dataclass(slots=True)
class RequestedPackages:
    """What one command's words and the files they name ask for.  ``indexes`` are in the order pip asks them."""

    requirements: list[Requirement] = field(default_factory=list)
    constraints: list[Requirement] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    index: str = ""
    extra_indexes: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    options: set[str] = field(default_factory=set)
    seen: set[tuple[str, bool]] = field(default_factory=set)


def follow(
    asked: RequestedPackages,
    path: str,
    span: Span,
    files: Files,
    cwd: str,
    env: Mapping[str, str],
    *,
    constraint: bool = False,
    within: tuple[str, ...] = (),
) -> None:
    """Adds what a requirements (or constraints) file asks for, and the files it names; a file counts once."""
    if re.match(r"[a-z][a-z0-9+.-]*://", path):
        asked.unread.append(Unread(path, FromOthers("the build downloads it"), span))
        return
    if path in within:
        asked.unread.append(Unread(path, f"it includes itself ({' -> '.join((*within, path))})", span))
        return
    if (path, constraint) in asked.seen:
        return
    if len(within) >= DEEPEST:
        asked.unread.append(Unread(path, f"it is the end of a chain of more than {DEEPEST} files", span))
        return
    asked.seen.add((path, constraint))
    file = files.read(path, cwd)
    if isinstance(file, str):
        asked.unread.append(Unread(path, file, span))
        return
    add_text(asked, file.text, file.path, files, cwd, env, constraint=constraint, within=(*within, path))


def add_text(
    asked: RequestedPackages,
    text: str,
    path: str,
    files: Files,
    cwd: str,
    env: Mapping[str, str],
    *,
    constraint: bool = False,
    within: tuple[str, ...] = (),
) -> None:
    """Adds what the text of a requirements file asks for; ``within`` are the files that led to it."""
    if "\x00" in text[:4096]:
        asked.unread.append(Unread(path, "it is no text", Span(path, 1)))
        return
    for line in parse(text, path, env):
        if len(asked.requirements) + len(asked.constraints) >= MOST:
            asked.unread.append(Unread(path, f"one command asks for more than {MOST} packages", line.span))
            return
        if isinstance(line, Unread):
            asked.unread.append(line)
        elif isinstance(line, Requirement):
            (asked.constraints if constraint else asked.requirements).append(line)
        elif line.name in ("--requirement", "--constraint"):
            inner = line.value
            if within and "://" not in inner:
                inner = posixpath.normpath(posixpath.join(posixpath.dirname(within[-1]), inner))
            pins = constraint or line.name == "--constraint"
            follow(asked, inner, line.span, files, cwd, env, constraint=pins, within=within)
        elif line.name == "--index-url":
            # pip starts its list of indexes again here, also those of the command line.
            asked.index, asked.extra_indexes = address(line.value), []
        elif line.name == "--extra-index-url":
            asked.extra_indexes.append(line.value)
        elif line.name == "--find-links":
            asked.find_links.append(line.value)
        else:
            asked.options.add(line.name)


def install(
    wanted: Requirement, asked: RequestedPackages, manager: str, target: str, *, sure: bool, constraint: bool = False
) -> Install:
    """A requirement as what its command does."""
    return Install(
        manager,
        wanted.name or ".",
        wanted.span,
        wanted.specifier,
        wanted.version,
        wanted.local,
        wanted.extras,
        wanted.url,
        wanted.editable,
        index=wanted.index or asked.index,
        extra_indexes=tuple(asked.extra_indexes),
        find_links=tuple(asked.find_links),
        options=frozenset(asked.options),
        target=target,
        constraint=constraint,
        marker=wanted.marker,
        sure=sure and wanted.sure,
    )
