"""What an installer would change in an environment, asked of the package index by uv: nothing is installed, and no code
of a package runs.

uv reads what is installed from a folder (its option --target), so that a folder with METADATA alone stands for any
environment, with the local versions and NVIDIA's own builds that no index has.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envkit.errors import EnvkitError, Undecided, Unsatisfiable, UsageError
from envkit.plan import indexes, sdist
from envkit.plan.indexes import Access, Indexes
from envkit.plan.uv_failure import REFUSED, failure
from envkit.plan.wheels import Package, TargetPlatform, Uv, fits, for_target, ranks_of, uv_cache
from envkit.records import dataclass, replace
from envkit.subjects.resolved import FAMILY, Dist, Environment
from envkit.system import files, proc

_ROUNDS = 12  # packages that are left out one after the other before it is said that there is no answer
_READERS = 12  # connections to the index at once
# uv's words for a release without a wheel, whose source it was told not to run.
_SOURCE_ALONE = re.compile(r"Wheels are required for `([A-Za-z0-9._-]+)` because building from source is disabled")
_NOT_THERE = re.compile(r"(?:Because |because |^)([A-Za-z0-9._-]+) was not found in the (?:package registry|provided)")
_MOST_SOURCE = 24 << 20  # bytes of an archive that is read
SOURCE_ALONE = "its index has source alone"
NOT_THERE = "the index does not have it"


@dataclass(slots=True)
class Budget:
    """The seconds that all questions together may take, from when it is made."""

    seconds: float
    end: float = 0.0

    def left(self) -> float:
        """The seconds that are left; raises Undecided where there are none."""
        self.end = self.end or time.monotonic() + self.seconds
        left = self.end - time.monotonic()
        if left <= 0:
            raise Undecided(
                f"the package index did not answer everything within {self.seconds:.0f} s",
                "check the network, or give it more time: --resolve-budget",
            )
        return left


@dataclass(frozen=True, slots=True)
class Question:
    """One command: its requirements, what is there before, and how the installer is to choose.

    ``flags`` are uv's options, ``before`` a day, or a moment, whose index is meant ("" for now), and ``excluded`` the
    distributions that are looked at by nobody: what is there of them stays as it is.  ``wheels_alone``: the installer
    itself passes over what has no wheel.
    """

    requirements: tuple[str, ...]
    place: TargetPlatform
    held: Environment = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()
    before: str = ""
    wheels_alone: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A release of which the index has the source alone, and the address of its archive."""

    version: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """``comes`` are the releases that the command puts there, by name; ``left_out`` what was not followed, each with
    the reason, ``sources`` the releases of it whose source alone the index has."""

    comes: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)


def flags_of(manager: str, options: frozenset[str], names: Iterable[str]) -> tuple[str, ...]:
    """uv's options for the options of a command of pip or uv.

    pip takes the best release of all its indexes and with --upgrade renews what is named alone, unless it is told to be
    eager; with --force-reinstall it looks at nothing that is there (pip's documentation, "pip install").
    """
    found: list[str] = ["--no-deps"] if "--no-deps" in options else []
    if manager == "pip":
        found += ["--index-strategy", "unsafe-best-match"]
    else:
        told = next((one.partition("=")[2] for one in options if one.startswith("--index-strategy=")), "")
        found += ["--index-strategy", told] if told else []
    eager = manager == "uv" or "--upgrade-strategy=eager" in options
    if options & {"--force-reinstall", "--reinstall", "--ignore-installed"}:
        found.append("--reinstall")
    if "--upgrade" in options:
        found += ["--upgrade"] if eager else [word for name in names for word in ("--upgrade-package", name)]
    found += ["--prerelease", "allow"] if "--pre" in options else []
    found += ["--no-index"] if "--no-index" in options else []
    return tuple(found)


def access(url: str) -> Access:
    """An index that a file names, with the credential of its address or of this machine's netrc and keyring.

    Raises UsageError for what is no address of a server, and for one that holds a variable: what is set on this machine
    is not for a host that somebody's file names.
    """
    parts = urlsplit(url)
    if "$" in url or "`" in url or parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("its address is not known here", "")
    port = f":{parts.port}" if parts.port else ""
    bare = f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/') or '/'}"
    if parts.username is not None:
        return Access(bare, unquote(parts.username), unquote(parts.password or ""), "the file")
    found = indexes.of("", (indexes.address("index", bare),))
    return found.extra[0]


def ask(question: Question, budget: Budget) -> Answer:
    """What the command brings.  Raises Unsatisfiable where it cannot be done and Undecided where nobody answers."""
    left_out: dict[str, str] = {}
    newest: dict[str, str] = {}
    sources: dict[str, Source] = {}
    with files.scratch("dry-run") as folder:
        _lay(folder / "env", question)
        if not question.wheels_alone:
            newest, sources = _newest(folder, question, budget)
            left_out = dict.fromkeys(sources, SOURCE_ALONE)
        for _ in range(_ROUNDS):
            asked = replace(question, excluded=question.excluded | left_out.keys())
            try:
                comes = _dry_run(folder, asked, budget)
                new = _passed_over(folder, asked, comes, newest, budget)
            except Unsatisfiable as error:
                new = _not_followed(error, asked)
                if not new:
                    raise
            if not new:
                return Answer(comes, left_out, sources)
            left_out |= new
    raise Undecided(f"more than {_ROUNDS} packages have no wheel", "see which packages are built from source")


def _not_followed(error: Unsatisfiable, asked: Question) -> dict[str, str]:
    """What an answer fails for that is no contradiction: packages without a wheel, or that the index does not have."""
    said = " ".join(error.chain)
    found: dict[str, str] = {canonicalize_name(name): SOURCE_ALONE for name in _SOURCE_ALONE.findall(said)}
    found.update((canonicalize_name(name), NOT_THERE) for name in _NOT_THERE.findall(said))
    return {name: why for name, why in found.items() if name not in asked.excluded}


def _passed_over(
    folder: Path, asked: Question, comes: Mapping[str, str], newest: Mapping[str, str], budget: Budget
) -> dict[str, str]:
    """The packages without a wheel for whose sake an older release of a requirement was taken: pip builds them."""
    public = {name: version.partition("+")[0] for name, version in comes.items()}
    older = {name for name, version in newest.items() if public.get(name, version) != version.partition("+")[0]}
    if not older:
        return {}
    lines = []
    for line in asked.requirements:
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
        lines.append(f"{name}{extras}=={newest[name]}" if name in older else line)
    try:
        _dry_run(folder, replace(asked, requirements=tuple(lines)), budget)
    except Unsatisfiable as error:
        return {name: why for name, why in _not_followed(error, asked).items() if why is SOURCE_ALONE}
    return {}


def _lay(folder: Path, question: Question) -> None:
    """Writes what is installed as pip would have it there, METADATA alone."""
    folder.mkdir()
    for dist in question.held.values():
        if not dist.version or dist.name in question.excluded:
            continue
        info = folder / f"{dist.name.replace('-', '_')}-{dist.version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {dist.name}", f"Version: {dist.version}"]
        lines += [f"Requires-Dist: {line}" for line in dist.requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (info / "INSTALLER").write_text("pip\n", encoding="utf-8")
        (info / "RECORD").write_text("", encoding="utf-8")


def _dry_run(folder: Path, question: Question, budget: Budget) -> dict[str, str]:
    written = {
        "wish": question.requirements,
        "bounds": (*question.constraints, *question.place.constraints),
        "excluded": sorted(question.excluded),
    }
    for name, lines in written.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    argv = [
        proc.uv_path(), "pip", "install", "--dry-run", "--quiet", "--no-config", "--output-format", "json",
        "--no-build", "--python", sys.executable, "--python-version", str(question.place.python),
        *for_target(question.place), "--target", str(folder / "env"),
        "--constraints", str(folder / "bounds"), "--excludes", str(folder / "excluded"),
        *_at(question), *question.flags, "--requirements", str(folder / "wish"),
    ]  # fmt: skip
    env = {**question.place.indexes.environment(), **proc.ONE_LINE}
    done = proc.run(argv, timeout_s=budget.left(), env=env)
    if done.timed_out:
        budget.left()  # says what it says
        raise Undecided("the package index did not answer in time", "check the network, and try again")
    if done.exit != 0:
        if REFUSED.search(done.stderr) and (error := question.place.indexes.refused(done.stderr)):
            raise Undecided(error.message, error.fix)
        raise failure(done, (str(folder), os.environ.get("TMPDIR", ""), uv_cache()))
    return _changes(done.stdout)


def _at(question: Question) -> tuple[str, ...]:
    return ("--exclude-newer", question.before) if question.before else ()


def _changes(stdout: str) -> dict[str, str]:
    try:
        listed: Any = json.loads(stdout)["changes"]
        return {
            canonicalize_name(str(one["name"])): str(one["version"])
            for one in listed
            if one["action"] in ("installed", "reinstalled")
        }
    except (ValueError, KeyError, TypeError) as error:
        raise Undecided("uv does not say what it would change", "install the uv that envkit asks for") from error


def _newest(folder: Path, question: Question, budget: Budget) -> tuple[dict[str, str], dict[str, Source]]:
    """The release of each requirement that an installer tries first, and those of them that have no wheel.

    Without their METADATA, which for a source would mean to run it.  uv that may not build takes an older release with
    a wheel in silence, which pip does not.
    """
    names = {}
    for line in question.requirements:
        name = canonicalize_name(Requirement(line).name)
        there = question.held.get(name)
        if name not in question.excluded and there is None:
            names[name] = line
    if not names:
        return {}, {}
    flags = (
        *for_target(question.place),
        *_at(question),
        *(flag for flag in question.flags if flag not in ("--reinstall", "--no-deps")),
    )
    constraints = tuple(line for line in question.constraints if canonicalize_name(Requirement(line).name) in names)
    try:
        packages = Uv(folder, question.place, budget_s=budget.left()).once(
            "alone", tuple(names.values()), *flags, constraints=constraints, alone=True
        )
    except Unsatisfiable:
        return {}, {}  # for the whole question to say
    found = {canonicalize_name(str(one.get("name"))): one for one in packages}
    newest: dict[str, str] = {name: str(one.get("version")) for name, one in found.items()}
    return newest, {name: Source(newest[name], _archive(one)) for name, one in found.items() if not one.get("wheels")}


def _archive(package: Package) -> str:
    held = package.get("sdist")
    return str(held.get("url", "")) if isinstance(held, dict) else ""


def source_requires(source: Source, question: Question, budget: Budget) -> tuple[str, ...] | None:
    """What a source archive says that it needs; None where it does not say, is too large or cannot be read."""
    from envkit.system.index import Index, IndexFile  # it costs 40 ms

    if not source.url.startswith("http") or not source.url.endswith(".tar.gz"):
        return None
    try:
        asked = Index(_root(source.url, question.place.indexes), budget.left())
        return sdist.requires(asked.whole(IndexFile(source.url.rsplit("/", 1)[-1], source.url), _MOST_SOURCE))
    except (EnvkitError, OSError):
        return None


# ---------------------------------------------------------------- METADATA


class Library:
    """The METADATA of releases, each read once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], tuple[str, ...]] = {}

    def put(self, dist: Dist) -> None:
        """Adds one that is known without the index."""
        self.known[dist.name, dist.version] = dist.requires

    def of(self, name: str, version: str, question: Question, budget: Budget) -> tuple[str, ...]:
        """What one release on the index asks for; empty where that cannot be read."""
        if (name, version) not in self.known:
            self._fetch({name: version}, question, budget)
        return self.known.setdefault((name, version), ())

    def read(self, comes: Mapping[str, str], question: Question, budget: Budget) -> dict[str, tuple[str, ...]]:
        """What each of these releases asks for; one that cannot be read is not in the answer."""
        missing = {name: version for name, version in comes.items() if (name, version) not in self.known}
        if missing and (near := self._asking(missing, comes, question, budget)):
            self._fetch({name: version for name, version in missing.items() if name in near}, question, budget)
        return {name: self.known[name, version] for name, version in comes.items() if (name, version) in self.known}

    def _asking(
        self, missing: Mapping[str, str], comes: Mapping[str, str], question: Question, budget: Budget
    ) -> set[str]:
        """Those whose METADATA says how torch and its kin are asked for: they themselves, and all on the way from the
        command to who asks for them.  uv's annotations name them, from its cache; a hundred others ask for none."""
        named = {canonicalize_name(Requirement(line).name) for line in question.requirements}
        exact = tuple(f"{name}=={version}" for name, version in comes.items())
        by: Mapping[str, tuple[str, ...]] = {}
        with files.scratch("dry-run") as folder:
            (folder / "excluded").write_text("".join(f"{name}\n" for name in question.excluded - set(FAMILY)))
            place = replace(question.place, constraints=exact)
            flags = (*for_target(place), "--index-strategy", "unsafe-best-match", "--excludes", f"{folder}/excluded")
            lines = tuple(line for line in question.requirements if "--no-deps" not in question.flags)
            with suppress(EnvkitError):  # what is kept may be on no index: what the command names is read all the same
                by = Uv(folder, place, budget_s=budget.left()).requirers(lines, *flags) if lines else {}
        near, queue = named | set(FAMILY), list(FAMILY)
        while queue:
            new = set(by.get(queue.pop(), ())) - near
            near |= new
            queue += new
        return near & missing.keys()

    def _fetch(self, missing: Mapping[str, str], question: Question, budget: Budget) -> None:
        from envkit.system.index import Index, IndexFile  # it costs 40 ms

        exact = tuple(f"{name}=={version}" for name, version in missing.items())
        with files.scratch("dry-run") as folder:
            try:
                flags = (*for_target(question.place), "--index-strategy", "unsafe-best-match")
                packages = Uv(folder, question.place, budget_s=budget.left()).once("files", exact, *flags, alone=True)
            except EnvkitError:
                return
        ranks = ranks_of(question.place.python, question.place.machine, question.place.glibc)
        wanted = [(one, url) for one in packages if (url := _wheel(one, ranks)).startswith("http")]
        limit = budget.left()

        def some(number: int) -> list[tuple[str, str, tuple[str, ...]]]:
            found: list[tuple[str, str, tuple[str, ...]]] = []
            for package, url in wanted[number::_READERS]:
                file = IndexFile(url.rsplit("/", 1)[-1], url)
                try:
                    text = Index(_root(url, question.place.indexes), limit).metadata(file)
                except (EnvkitError, OSError):
                    continue
                found.append(
                    (canonicalize_name(str(package.get("name"))), str(package.get("version")), sdist.of_metadata(text))
                )
            return found

        for wait in [proc.beside(partial(some, number)) for number in range(min(_READERS, len(wanted)))]:
            for name, version, lines in wait():
                self.known[name, version] = lines
                if name in missing:  # with the local part, which a pylock may leave out
                    self.known[name, missing[name]] = lines


def _wheel(package: Package, ranks: Mapping[Any, int]) -> str:
    listed = package.get("wheels")
    for wheel in listed if isinstance(listed, list) else []:
        url = str(wheel.get("url", ""))
        name = str(wheel.get("name") or url.rsplit("/", 1)[-1]).replace("%2B", "+")
        try:
            if fits(ranks, name):
                return url
        except ValueError:
            continue
    return ""


def _root(url: str, known: Indexes) -> str:
    """The address under which a file is asked for, with the credential of the index on the same host."""
    host = urlsplit(url).netloc
    return next((one.full for one in known.every if one.host == host), f"{urlsplit(url).scheme}://{host}/")


# ---------------------------------------------------------------- who asks for what


def asks(lines: Sequence[str], place: TargetPlatform, extras: Iterable[str] = ()) -> list[Requirement]:
    """The requirements of METADATA that hold on a target, with these extras."""
    python = f"{place.python.major}.{place.python.minor}"
    environment = {
        "implementation_name": "cpython", "implementation_version": f"{python}.0", "os_name": "posix",
        "platform_machine": place.machine, "platform_release": "", "platform_system": "Linux",
        "platform_version": "", "python_full_version": f"{python}.0", "platform_python_implementation": "CPython",
        "python_version": python, "sys_platform": "linux",
    }  # fmt: skip
    found = []
    for line in lines:
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        marker = wanted.marker
        if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)):
            found.append(wanted)
    return found


def met(wanted: Requirement, version: str) -> bool:
    """Whether an installed release is enough for a requirement, as pip sees it: one before a release counts too."""
    try:
        Version(version)
    except InvalidVersion:
        return True
    return wanted.url is not None or wanted.specifier.contains(version, prereleases=True)
