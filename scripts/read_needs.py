"""Reads which torch and numpy the packages of the field require, from what their own repositories say of each release.

    python scripts/read_needs.py FOLDER ...                  prints the rows of facts/wide_need.jsonl
    python scripts/read_needs.py --newest TSV FOLDER ...     the same, knowing which release of each package is newest
    python scripts/read_needs.py --newest TSV --write FOLDER ...    writes that table anew
    python scripts/read_needs.py --newest TSV --add FOLDER ...      writes the rows of these alone among the others

A FOLDER is a git repository, or holds wheels, whose METADATA is read.  Where a repository's tags are releases of one
package, its requirements are read at each tag: pyproject.toml, setup.cfg or setup.py, and the lists that these name.
Its locks (poetry.lock, pdm.lock, uv.lock, pixi.lock) hold what the METADATA of other packages says; the versions of
such a file are read through its history.  Extras are no requirement.  What cannot be read is left out, and said on
stderr.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envkit.facts import load
from envkit.facts.derived import environment
from envkit.system import files

WANTED = ("torch", "numpy")
_PYTHONS = ("3.10", "3.12")  # what both of them ask for is what a requirement says
_MOST_LOCKS = 12  # versions of one lock that are read, spread over its history
_AT_ONCE = 4
_LOCK = re.compile(r"(?:.*/)?(?:poetry|pdm|uv|pixi)\.lock")

Needs = dict[str, str]  # the specifier of each wanted package that is required; "" for any
Read = dict[str, dict[str, tuple[Needs, frozenset[str]]]]  # by package and release, with all that is required


class Unread(Exception):
    """Why the requirements of a release cannot be read."""


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, check=False, encoding="utf-8", errors="replace"
    ).stdout


# ---------------------------------------------------------------- requirements


def needed(lines: Iterable[str]) -> tuple[Needs, frozenset[str]]:
    """What lines of requirements ask of the wanted packages, and the names of all that they require, on x86_64 Linux
    whichever Python; raises Unread where the Python decides."""
    answers = []
    parsed = []
    for line in lines:
        try:
            parsed.append(Requirement(line))
        except InvalidRequirement:
            if re.match(r"(torch|numpy)\b(?![-_.])", line.strip(), re.I):
                raise Unread(f"`{line}` is no requirement") from None
    for python in _PYTHONS:
        place = {**environment("x86_64", python), "extra": ""}
        here = [one for one in parsed if one.marker is None or one.marker.evaluate(place)]
        wanted: dict[str, list[str]] = {}
        for one in here:
            if (name := canonicalize_name(one.name)) in WANTED:
                wanted.setdefault(name, []).extend([str(one.specifier)] if one.specifier else [])
        names = frozenset(canonicalize_name(one.name) for one in here)
        answers.append(({name: _sorted(",".join(found)) for name, found in wanted.items()}, names))
    first, second = answers
    if first[0].get("torch") != second[0].get("torch"):
        raise Unread("the torch that it asks for depends on the Python")
    return second[0], first[1] & second[1]


def _sorted(specifier: str) -> str:
    return ",".join(sorted(filter(None, map(str.strip, specifier.split(",")))))


def poetrys(name: str, asked: object) -> list[str]:
    """Lines of requirements for one entry of Poetry's tables, none for an optional one."""
    entries = asked if isinstance(asked, list) else [asked]
    lines = []
    for entry in entries:
        table = entry if isinstance(entry, Mapping) else {"version": entry}
        if table.get("optional") or not isinstance(version := table.get("version", "*"), str):
            continue
        clauses = [_clause(part.strip()) for part in re.split(r"[,]", version)] if "||" not in version else [""]
        specifier = ",".join(filter(None, clauses))
        markers = table.get("markers", "")
        python = table.get("python", "")
        if isinstance(python, str) and python and "||" not in python:
            bounds = [_clause(part.strip()) for part in python.split(",")]
            found = [re.fullmatch(r"(>=|<=|<|>|==|!=)\s*([\d.]+)(\.\*)?", part) for part in bounds if part]
            more = " and ".join(f'python_version {one[1]} "{one[2]}"' for one in found if one)
            markers = f"({markers}) and {more}" if markers and more else markers or more
        lines.append(f"{name} {specifier}" + (f"; {markers}" if markers else ""))
    return lines


def _clause(text: str) -> str:
    """One clause of Poetry's as PEP 440 has it."""
    if text in ("", "*"):
        return ""
    if text[0] in "^~" and not text.startswith("~="):
        bare = text[1:].strip()
        parts = [int(part) for part in re.findall(r"\d+", bare.partition("+")[0])[:3]]
        if text[0] == "^":
            at = next((n for n, part in enumerate(parts) if part), len(parts) - 1)
        else:
            at = min(1, len(parts) - 1)
        upper = ".".join(map(str, [*parts[:at], parts[at] + 1]))
        return f">={bare},<{upper}"
    return text if text[0] in "<>=!~" else f"=={text}"


# ---------------------------------------------------------------- one release of a project


def of_tree(folder: Path, commit: str, tree: frozenset[str]) -> tuple[str, list[str]]:
    """The name of the package that a commit holds, and the lines of its requirements; raises Unread."""

    def text(path: str) -> str:
        return _git(folder, "show", f"{commit}:{path}") if path in tree else ""

    name, lines = "", None
    if "pyproject.toml" in tree:
        try:
            held = tomllib.loads(text("pyproject.toml"))
        except tomllib.TOMLDecodeError as error:
            raise Unread(f"pyproject.toml: {error}") from error
        project, poetry = held.get("project", {}), held.get("tool", {}).get("poetry", {})
        name = project.get("name", "") or poetry.get("name", "")
        dynamic = held.get("tool", {}).get("setuptools", {}).get("dynamic", {}).get("dependencies", {})
        if "dependencies" in project:
            lines = list(map(str, project["dependencies"]))
        elif isinstance(dynamic, Mapping) and "file" in dynamic:
            paths = [dynamic["file"]] if isinstance(dynamic["file"], str) else list(dynamic["file"])
            lines = [line for path in paths for line in listed(text(path))]
        elif "dependencies" in poetry:
            entries = {key: value for key, value in poetry["dependencies"].items() if key.lower() != "python"}
            lines = [line for key, value in entries.items() for line in poetrys(key, value)]
        elif project and "dependencies" not in project.get("dynamic", ()):
            if any(path.endswith("/pyproject.toml") for path in tree):
                raise Unread("pyproject.toml is one of several")
            lines = []
    if lines is None and "setup.cfg" in tree:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(text("setup.cfg"))
        except configparser.Error:
            parser = configparser.RawConfigParser()
        name = name or parser.get("metadata", "name", fallback="")
        if parser.has_option("options", "install_requires"):
            asked = parser.get("options", "install_requires").strip()
            lines = listed(text(asked[5:].strip()) if asked.startswith("file:") else asked)
    if lines is None and "setup.py" in tree:
        found, lines = of_setup(text("setup.py"), lambda path: text(path) if path in tree else None)
        name = name or found
    if not name and "setup.py" in tree and lines is not None:
        name = of_setup(text("setup.py"), lambda _: None)[0]
    if lines is None or not name:
        raise Unread("it says nowhere what it requires" if name else "it says nowhere what it is called")
    return str(canonicalize_name(name)), lines


def _adds_neither(node: ast.expr) -> bool:
    """Whether what setup.py adds to a list are literals, none of them about a wanted package."""
    try:
        added = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return False
    lines = [added] if isinstance(added, str) else added
    return all(isinstance(line, str) and not re.match(r"(?:torch|numpy)\b(?![-_])", line) for line in lines)


def listed(text: str) -> list[str]:
    """The requirements in a list."""
    bare = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    return [line for line in bare if line and not line.startswith("-")]


def _called(module: ast.Module, node: ast.expr) -> list[ast.stmt]:
    """The body of the file's own function that is called without arguments: by custom it reads one list."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args or node.keywords:
        return []
    own = [each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == node.func.id]
    return own[-1].body if own else []


def of_setup(text: str, read: Callable[[str], str | None]) -> tuple[str, list[str]]:
    """The name and install_requires of a setup.py, as its literals and the list that it reads tell them."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise Unread(f"setup.py: {error}") from error
    values: dict[str, ast.expr] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, node.value)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values.setdefault(node.target.id, node.value)
    grown: dict[str, list[ast.expr]] = {}  # what is added to a list, under whichever condition
    for node in ast.walk(module):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            grown.setdefault(node.target.id, []).append(node.value)
        call_of = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if call_of is not None and call_of.attr in ("append", "extend") and isinstance(call_of.value, ast.Name):
            grown.setdefault(call_of.value.id, []).extend(node.args if isinstance(node, ast.Call) else ())
    call = next(
        (
            node
            for node in ast.walk(module)
            if isinstance(node, ast.Call)
            and (getattr(node.func, "id", "") == "setup" or getattr(node.func, "attr", "") == "setup")
        ),
        None,
    )
    if call is None:
        raise Unread("setup.py has no call of setup")
    given = {key.arg: key.value for key in call.keywords if key.arg}

    def plain(node: ast.expr | None, depth: int = 0) -> Any:
        if node is None or depth > 5:
            raise Unread("setup.py computes what it requires")
        if isinstance(node, ast.Name) and node.id in values:
            if any(not _adds_neither(each) for each in grown.get(node.id, ())):
                raise Unread("setup.py adds to what it requires")
            return plain(values[node.id], depth + 1)
        paths = {
            str(one.value)
            for each in (node, *_called(module, node))
            for one in ast.walk(each)
            if isinstance(one, ast.Constant) and str(one.value).endswith(".txt")
        }
        if isinstance(node, ast.Call | ast.ListComp) and len(paths) == 1:
            held = read(paths.pop().removeprefix("./"))
            if held is not None:
                return listed(held)
        if isinstance(node, ast.Subscript):
            try:
                return plain(node.value, depth + 1)[plain(node.slice, depth + 1)]
            except (LookupError, TypeError) as error:
                raise Unread("setup.py computes what it requires") from error
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return plain(node.left, depth + 1) + plain(node.right, depth + 1)
        if isinstance(node, ast.List | ast.Tuple):
            return [plain(each, depth + 1) for each in node.elts]
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, LookupError) as error:
            raise Unread("setup.py computes what it requires") from error

    name = plain(given.get("name"))
    if "install_requires" not in given:
        return name, []
    try:
        lines = plain(given["install_requires"])
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise Unread("setup.py computes what it requires")
        return name, lines
    except Unread:
        # By custom it reads one list then; with several it is not known which.
        texts = [node.value for node in ast.walk(module) if isinstance(node, ast.Constant)]
        named = [one for one in texts if isinstance(one, str) and re.fullmatch(r"[\w./-]*require\w*\.txt", one)]
        lists = {path.removeprefix("./") for path in named}
        adds = any(re.search("require|depend|install", name, re.I) for name in grown)
        held = read(lists.pop()) if len(lists) == 1 and not adds else None
        if held is None:
            raise
        return name, listed(held)


_TAG = re.compile(r"(?:refs/tags/)?(?:release[-/_]?|rel[-/_]?|[\w.-]*?-)?v?\.?(\d+(?:\.\d+)+(?:\.?post\d+)?|\d{8})")


def release(tag: str) -> Version | None:
    """The final release that a tag names, None for another."""
    found = _TAG.fullmatch(tag)
    try:
        version = Version(found[1]) if found else None
    except InvalidVersion:
        return None
    return version if version is not None and not version.is_prerelease else None


UNREAD = {"": ""}  # stands for what a release asks for that could not be read
Release = tuple[str, str, Needs, frozenset[str]]  # a package, its version, what of WANTED it asks for, all it requires


def of_tags(folder: Path, say: Callable[[str], None]) -> list[Release]:
    """What the package of a repository required at each of its releases, and at its newest state where that is one;
    releases under an earlier name are left out."""
    found: dict[str, Release] = {}
    for tag in (*_git(folder, "tag").split(), "HEAD"):
        version = release(tag)
        if tag != "HEAD" and (version is None or str(version) in found):
            continue
        tree = frozenset(_git(folder, "ls-tree", "-r", "--name-only", tag).splitlines())
        version = _version_of(folder, tree) if tag == "HEAD" else version
        try:
            name, lines = of_tree(folder, tag, tree)
            if version is not None:
                found.setdefault(str(version), (name, str(version), *needed(lines)))
        except Unread as error:
            say(f"{folder.parent.name} {tag}: {error}")
            if version is not None:
                found.setdefault(str(version), ("", str(version), dict(UNREAD), frozenset()))
    named = {version: row for version, row in found.items() if row[0]}
    last = named[max(named, key=Version)][0] if named else ""
    return [(last, *row[1:]) for row in found.values() if row[0] in (last, "")] if last else []


def _version_of(folder: Path, tree: frozenset[str]) -> Version | None:
    """The release that the newest state says to be."""
    own = [path for path in sorted(tree) if path.count("/") < 3 and path.endswith(_NAMES_VERSION)]
    for path in [path for path in ("pyproject.toml", "setup.cfg", "setup.py", *own) if path in tree]:
        if found := _VERSION.search(_git(folder, "show", f"HEAD:{path}")):
            return Version(found[1])
    return None


_NAMES_VERSION = ("__init__.py", "version.py", "_version.py", "__about__.py")
_VERSION = re.compile(r"""(?im)^\s*(?:__)?version(?:__)?\s*=\s*["'](\d+(?:\.\d+)+)["']""")


# ---------------------------------------------------------------- locks


def of_lock(path: str, text: str) -> Iterator[Release]:
    """What a lock says of the packages in it."""
    name = path.rpartition("/")[2]
    found: Iterator[tuple[str, str, list[str]]]
    if name == "pixi.lock":
        found = _pixi(text)
    else:
        try:
            held = tomllib.loads(text).get("package", [])
        except tomllib.TOMLDecodeError:
            return
        found = {"poetry.lock": _poetry, "pdm.lock": _pdm, "uv.lock": _uv}[name](held)
    for package, version, lines in found:
        try:
            if Version(version).is_prerelease or Version(version).local:
                continue
            needs, names = needed(lines)
        except (Unread, InvalidVersion, InvalidMarker, UndefinedEnvironmentName):
            continue
        yield str(canonicalize_name(package)), str(Version(version)), needs, names


def _poetry(held: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, list[str]]]:
    for one in held:
        asked = one.get("dependencies", {})
        if isinstance(asked, Mapping) and not one.get("source"):
            yield one["name"], one["version"], [line for key, value in asked.items() for line in poetrys(key, value)]


def _pdm(held: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, list[str]]]:
    for one in held:
        if not one.get("extras") and not one.get("git") and not one.get("path"):
            yield one["name"], one.get("version", ""), list(one.get("dependencies", ()))


def _uv(held: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, list[str]]]:
    """Without bounds, which such a lock does not keep; what forks of the lock decide is left out."""
    for one in held:
        asked = [(each["name"], each.get("marker", "")) for each in one.get("dependencies", ())]
        if "registry" not in one.get("source", {}) or any("extra ==" in marker for _, marker in asked):
            continue
        lines = [name + (f"; {marker}" if marker else "") for name, marker in asked]
        yield one["name"], one.get("version", ""), [line for line in lines if not line.startswith("numpy")]


def _pixi(text: str) -> Iterator[tuple[str, str, list[str]]]:
    for part in re.split(r"(?m)^- (?=pypi: )", text)[1:]:
        part = re.split(r"(?m)^- ", part)[0]
        name, version = re.search(r"(?m)^  name: (\S+)", part), re.search(r"(?m)^  version: (\S+)", part)
        wanted = re.search(r"(?m)^  requires_dist:\n((?:  - .*\n)*)", part)
        if name and version:
            lines = [line[4:].strip().strip("'\"") for line in wanted[1].splitlines()] if wanted else []
            yield name[1], version[1].strip("'\""), lines


def of_wheels(folder: Path) -> Iterator[Release]:
    """What the METADATA of the wheels in a folder says."""
    for path in sorted(folder.glob("*.whl")):
        try:
            name, version, *_ = parse_wheel_filename(path.name)
            with zipfile.ZipFile(path) as archive:
                inner = next(each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
                text = archive.read(inner).decode("utf-8", "replace")
            if not version.is_prerelease and not version.local:
                lines = HeaderParser().parsestr(text).get_all("Requires-Dist", [])
                yield str(name), str(version), *needed(map(str, lines))
        except (ValueError, StopIteration, zipfile.BadZipFile, Unread):
            continue


def of_locks(folder: Path) -> Iterator[tuple[Release, bool]]:
    """What all locks of a repository say, through its history; the last says whether bounds are known."""
    for path in _git(folder, "ls-tree", "-r", "--name-only", "HEAD").splitlines():
        if not _LOCK.fullmatch(path):
            continue
        commits = _git(folder, "log", "--format=%H", "--", path).split()
        step = max(1, len(commits) // _MOST_LOCKS)
        for commit in commits[::step]:
            for row in of_lock(path, _git(folder, "show", f"{commit}:{path}")):
                yield row, not path.endswith("uv.lock")


# ---------------------------------------------------------------- the table


class Gathered:
    """What was read of each release, from its own repository before anybody's lock."""

    def __init__(self) -> None:
        self.releases: dict[str, dict[str, tuple[int, Needs, frozenset[str]]]] = {}
        self.sources: dict[str, tuple[int, str, str]] = {}

    def add(self, row: Release, rank: int, source: str, seen: str) -> None:
        """Keeps what was read where nothing better is known of the release."""
        name, version, needs, names = row
        mine = self.releases.setdefault(name, {})
        if needs == UNREAD and version in mine:
            return
        if version not in mine or rank < mine[version][0] or mine[version][1] == UNREAD:
            mine[version] = (rank, needs, names)
        self.sources[name] = min(self.sources.get(name, (rank, source, seen)), (rank, source, seen))

    def of(self, name: str, *, unread: bool = False) -> list[tuple[str, Needs, frozenset[str]]]:
        """The releases of a package, oldest first; with those that could not be read, or without."""
        mine = self.releases.get(name, {})
        found = [(version, *mine[version][1:]) for version in sorted(mine, key=Version)]
        return [row for row in found if unread or row[1] != UNREAD]

    def always(self) -> set[str]:
        """What asks for torch itself in each release that was read."""
        read = {name: self.of(name) for name in self.releases}
        return {name for name, rows in read.items() if rows and all("torch" in needs for _, needs, _ in rows)}


def through(held: Gathered, known: Iterable[str], deep: int = 2) -> dict[str, set[str]]:
    """By package, what of its requirements surely brings torch: which itself asks for torch in all releases read."""
    bring = held.always() | set(known)
    ways: dict[str, set[str]] = {}
    for _ in range(deep):
        more = set()
        for name in held.releases:
            if name not in bring and held.of(name) and all(names & bring for _, _, names in held.of(name)):
                ways[name] = set.intersection(*({*names} for _, _, names in held.of(name))) & bring
                more.add(name)
        bring |= more
    return ways


def rows(
    held: Gathered, known: Iterable[str], without: Iterable[str], newest: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The table: packages of which some release brings torch, or asks for numpy 2, in runs of releases that agree.

    Where a release is newer than what was read, lower bounds are taken to hold for it, and others are not.
    """
    known, without = set(known), set(without)
    surely = held.always() | known
    bring = surely | through(held, known).keys()
    # Since some release, which is no answer for what takes an older one.
    now = bring | {name for name in held.releases if held.of(name) and "torch" in held.of(name)[-1][1]}
    table = []
    for name in sorted(held.releases):
        if name in without:
            continue
        runs: list[list[str | None]] = []
        numpys: list[list[str | None]] = []
        last = newest.get(name, "")
        if newest and not last:
            continue  # its own name for something that no index has
        gap = False
        for version, needs, names in held.of(name, unread=True):
            gap = gap or needs == UNREAD
            if needs == UNREAD:
                continue
            if last and Version(version) > Version(last):
                continue  # not released, or another's name
            torch = needs.get("torch")
            through_ = names & (now if version == held.of(name)[-1][0] else bring) - {name}
            if torch is None and through_:
                torch = "*" + min(through_)
            numpy = needs.get("numpy")
            _run(runs, version, torch, gap)
            _run(numpys, version, numpy if numpy and two_alone(numpy) else None, gap)
            gap = False
        if runs and last and Version(last) > Version(str(runs[-1][1])) and (asked := runs[-1][2]) is not None:
            lower = asked if asked[:1] == "*" else ",".join(part for part in asked.split(",") if part[:1] == ">")
            _run(runs, last, lower, gap)
        torches = runs if any(run[2] is not None for run in runs) else []
        asks = [run for run in numpys if run[2] is not None]
        if torches or asks:
            _, source, seen = held.sources[name]
            table.append({"package": name, "torch": torches, "numpy": asks, "note": "", "source": source, "seen": seen})
    return table


def beside(fresh: Iterable[dict[str, Any]], table: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A table with fresh rows in the place of those of the same packages."""
    found = {row["package"]: row for row in (*table, *fresh)}
    return [found[name] for name in sorted(found)]


def _run(runs: list[list[str | None]], version: str, asked: str | None, gap: bool) -> None:
    if runs and not gap and runs[-1][2] == asked:
        runs[-1][1] = version
    else:
        runs.append([version, version, asked])


def two_alone(specifier: str) -> bool:
    """Whether numpy 2 alone fits."""
    return re.search(r"(?:>=?|==|~=)\s*(?:[2-9]|\d\d)(?:\.|,|$)", specifier) is not None


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def gather(folders: Sequence[Path], say: Callable[[str], None]) -> Gathered:
    """Reads all the repositories."""
    held = Gathered()

    def read(folder: Path) -> None:
        seen = _git(folder, "log", "-1", "--format=%cs").strip()
        whose = folder.parent.name.replace("+", "/", 1)
        for row in of_tags(folder, say):
            held.add(row, 0, f"what {whose} says of its releases", seen)
        for release, bounded in of_locks(folder):
            if bounded or "torch" in release[2]:
                held.add(release, 1 if bounded else 2, "METADATA as locks of public projects keep it", seen)
        for release in of_wheels(folder):
            held.add(release, 1, "METADATA of wheels", today())
        say(f"{whose}: {len(held.releases)} packages")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(read, folders))
    return held


def newest_of(path: Path) -> dict[str, str]:
    """The newest final release of each package that a table names."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        name, version = line.split("\t")[:2]
        if re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?", version):
            found[str(canonicalize_name(name))] = str(Version(version))
    return found


def main(arguments: Sequence[str]) -> int:
    """Prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--newest", type=Path, help="names and their newest releases, with a tab between them")
    parser.add_argument("--write", action="store_true", help="write facts/wide_need.jsonl")
    parser.add_argument("--add", action="store_true", help="the same, and leave the packages in it that were not read")
    options = parser.parse_args(arguments)
    facts = load()
    held = gather(options.folders, lambda line: print(line, file=sys.stderr, flush=True))
    exact = {row.package for row in facts.torch_needs}
    bring = {row.package for row in facts.torch_needs if row.torch or row.note == "asks for any torch"}
    lack = {row.package for row in facts.torch_needs if row.note == "asks for no torch"}
    table = rows(held, bring - lack, exact | {"torch"}, newest_of(options.newest) if options.newest else {})
    there = facts.directory / "wide_need.jsonl"
    if options.add:
        table = beside(table, map(json.loads, there.read_text("utf-8").splitlines()))
    lines = [json.dumps(row, ensure_ascii=False) for row in table]
    if options.write or options.add:
        files.write(there, "".join(f"{line}\n" for line in lines))
    else:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
