"""Packages that the index has as source alone, built to wheels of plain Python.

A wheel is always preferred: source counts only where the solver fails for want of a wheel, and then only releases newer
than all that have one, or those that somebody asks for by a version that none of these meets.  Each such release is
offered to the solver as an empty wheel, so that the solver chooses among them without running any; the one it takes is
built, and the solver asked again with what came out.

The build is PEP 517's, in a folder and an environment of its own, with no network, no compiler, no variable and no home
of the user's, within a budget.  What it installs is pinned by hash.  The wheel is packed anew, so that its bytes follow
from its files alone; they are the same on another day and machine.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import stat
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from envkit.errors import EnvkitError, Undecided, Unsatisfiable, one_line
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Lock, Pin, Source, requirements
from envkit.records import dataclass
from envkit.system import files, proc
from envkit.system.terminal import Live
from envkit.versions import Python

if TYPE_CHECKING:  # with the readers of archives it costs 25 ms, and most locks build nothing
    import tarfile

    from envkit.system.index import Index, IndexFile

Say = Callable[[str], None]
# The pins that requirements of a build come to for a Python of this machine, of releases before a day ("" for today).
Resolve = Callable[[Python, Sequence[str], str], tuple[Pin, ...]]

BUDGET_S = 300.0  # for each hook of one build; the longest known of plain Python takes some 20 s
INSTALL_S = 300.0  # for the download of a source, or of what its build needs
_MOST_ARCHIVE = 256 << 20  # bytes
_MOST_UNPACKED = 1 << 30  # bytes
_MOST_FILES = 100_000
_SHOWN = 8  # lines of a failed build
_MOST_OLDER = 6  # releases of one package that are built, each for what keeps the one after it out; half a minute each
_TALKS_EVERY_S = 0.1  # a live line
EPOCH = 315532800  # 1980-01-01, the oldest day that a zip file can hold
_DEFAULT = (("setuptools>=40.8.0",), "setuptools.build_meta:__legacy__")  # PEP 517 and PEP 518, where nothing is said
_COMPILERS = (
    "cc", "gcc", "g++", "c++", "clang", "clang++", "ld", "nvcc", "hipcc", "gfortran", "rustc", "cargo", "cmake",
    "ninja", "make", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++",
)  # fmt: skip
_NATIVE = (".so", ".pyd", ".dylib", ".dll", ".a", ".o")
_NEEDS_COMPILER = (".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".rs", ".f", ".f90")

# uv's own words: the names of what it would have to build, and who asks for which versions of them.
_WANTS_WHEEL = re.compile(r"Wheels are required for `([A-Za-z0-9._-]+)`")


@dataclass(frozen=True, slots=True)
class Archive:
    """A source release on the index; ``file`` names it and says when it was uploaded."""

    name: str
    version: Version
    file: IndexFile


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel that was built: its content, and how."""

    file: str
    data: bytes
    source: Source
    uploaded: str = ""


class Unbuilt(Unsatisfiable):
    """A release that the index has as source alone does not become a wheel: no other torch or Python mends that."""


class Failed(Exception):
    """A build came to nothing: a clause that says how, and the last lines it printed; ``compiled`` where it asked for a
    compiler, ``fix`` what helps, "" where that is another release."""

    def __init__(self, why: str, lines: Sequence[str] = (), *, compiled: bool = False, fix: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.lines = tuple(lines)
        self.compiled = compiled
        self.fix = fix


@dataclass(slots=True)
class Sources:
    """The source releases of one lock; its methods may be called from several threads.

    ``fits`` says whether a wheel's file name is one for the target.  Wheels are kept under ``cache``.  ``held`` are the
    sources of the lock before, whose build requirements are taken again.  ``state`` changes with what is offered.
    """

    python: Python
    before: str
    fits: Callable[[str], bool]
    resolve: Resolve
    cache: Path
    say: Say
    held: tuple[Source, ...] = ()
    indexes: Indexes = field(default_factory=Indexes)
    budget_s: float = BUDGET_S
    state: int = 0
    _pages: dict[str, tuple[IndexFile, ...]] = field(default_factory=dict)
    _stubs: dict[tuple[str, Version], Archive] = field(default_factory=dict)
    _built: dict[tuple[str, Version], Built] = field(default_factory=dict)
    _failed: dict[tuple[str, Version], EnvkitError] = field(default_factory=dict)
    _settled: dict[tuple[str, Version], Unsatisfiable] = field(default_factory=dict)
    _places: tuple[Index, ...] = ()
    _guard: threading.RLock = field(default_factory=threading.RLock)

    def links(self, folder: Path) -> tuple[str, ...]:
        """What tells uv of the releases that are offered, and of the wheels: they are written to a folder in
        ``folder``, a new one for each state, for uv may still read the one before."""
        with self._guard:
            place = folder / f"links{self.state}"
            if self.state and not place.exists():
                place.mkdir()
                for built in self._built.values():
                    (place / built.file).write_bytes(built.data)
                for one in (one for key, one in self._stubs.items() if key not in self._built):
                    file, data = stub(one.name, str(one.version), one.file.requires)
                    (place / file).write_bytes(data)
            return ("--find-links", str(place)) if self.state else ()

    def offer(self, said: Iterable[str], asked: Iterable[str]) -> bool:
        """Whether there are source releases that could mend the failure that the solver explains in ``said``; they are
        offered to it from now on.  ``asked`` are the requirements that it was given.
        """
        text = "\n".join(said)
        with self._guard:
            names = {canonicalize_name(name) for name in _WANTS_WHEEL.findall(text)}
            if unread := sorted(names - set(self._pages)):
                try:
                    self._pages |= {name: files_of(name, self._asked())[1] for name in unread}
                except Undecided:  # a folder, say; the solver's own words stand
                    return False
            found = [
                one for name in sorted(names) for one in self._useful(name, [*_asks(name, asked), *_told(name, text)])
            ]
            known = len(self._stubs)
            self._stubs |= {(one.name, one.version): one for one in found}
            self.state += len(self._stubs) > known
            return len(self._stubs) > known

    def _asked(self) -> tuple[Index, ...]:
        """The indexes; that of this machine is known after two calls of uv."""
        if not self._places:
            self._places = self.indexes.places(INSTALL_S)
        return self._places

    def _useful(self, name: str, bounds: Sequence[SpecifierSet]) -> list[Archive]:
        """The source releases of ``name`` that are newer than all with a wheel, or that a bound admits which no release
        with a wheel meets."""
        wheels: set[Version] = set()
        archives: dict[Version, IndexFile] = {}
        for file in self._pages[name]:
            try:
                if self.before and not (file.uploaded and file.uploaded < self.before):
                    continue
                if not SpecifierSet(file.requires).contains(str(self.python)):
                    continue
                if file.name.endswith(".whl"):
                    wheels |= set() if file.yanked or not self.fits(file.name) else {parse_wheel_filename(file.name)[1]}
                else:
                    archives.setdefault(parse_sdist_filename(file.name)[1], file)
            except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion, InvalidSpecifier):
                continue
        newest = max(wheels, default=None)
        unmet = [bound for bound in bounds if not any(bound.contains(one, prereleases=True) for one in wheels)]

        def useful(version: Version, file: IndexFile) -> bool:
            met = [bound for bound in unmet if bound.contains(version, prereleases=True)]
            if file.yanked:  # PEP 592: only for who asks for this very release
                return any(each.operator == "==" for bound in met for each in bound)
            return bool(met) or newest is None or version > newest

        return [
            Archive(name, version, file)
            for version, file in archives.items()
            if version not in wheels and useful(version, file)
        ]

    def build(self, packages: Iterable[MutableMapping[str, object]]) -> bool:
        """Whether a release that the solver chose had to be built, so that it has to be asked again; where none had,
        the answer's ``packages`` are told the days of those that were.

        Raises Unsatisfiable for one that cannot be built to a wheel for all platforms.
        """
        anew = False
        for package in packages:
            key = (canonicalize_name(str(package.get("name"))), Version(str(package.get("version"))))
            with self._guard:
                if key in self._failed:
                    raise self._failed[key]
                if key not in self._stubs:
                    continue
                if key not in self._built:
                    try:
                        self._built[key] = self._make(self._stubs[key])
                    except Unsatisfiable as error:
                        self._failed[key] = error
                        raise
                    self.state += 1
                    anew = True
                built = self._built[key]
                if not anew:
                    _dated(package, built)
        return anew

    def passed_over(self, packages: Iterable[Mapping[str, object]]) -> str:
        """The pin of a built wheel of which the solver took an older release that nobody has built; "" if none.

        Of that one it knows no need, so it takes it whatever keeps the newer one out: also where that is only a need of
        which no wheel is on the index either, and which it would name, and be offered, were there no older one.
        """
        with self._guard:
            for package in packages:
                name, version = canonicalize_name(str(package.get("name"))), Version(str(package.get("version")))
                newer = [each for one, each in self._built if one == name and each > version]
                newer = [each for each in newer if (name, each) not in self._settled]
                if newer and (name, version) in self._stubs and (name, version) not in self._built:
                    return f"{name}=={max(newer)}"
        return ""

    def settle(self, pin: str, why: Unsatisfiable) -> None:
        """A release older than ``pin`` may be taken, for ``why``; raises the reason of the newest where ``_MOST_OLDER``
        came to nothing."""
        name, _, version = pin.partition("==")
        with self._guard:
            self._settled[name, Version(version)] = why
            reasons = {each: why for (of, each), why in self._settled.items() if of == name}
            if len(reasons) >= _MOST_OLDER:
                raise reasons[max(reasons)]

    def rows(self, pins: Iterable[Pin]) -> tuple[Source, ...]:
        """The sources of those wheels that were built, in their order."""
        every = {built.file: built.source for built in self._built.values()}
        return tuple(every[pin.file] for pin in pins if pin.file in every)

    def _make(self, one: Archive) -> Built:
        """The wheel of a release: as kept, or built today."""
        data = fetch(files_of(one.name, self._asked())[0], one.file)
        digest = hashlib.sha256(data).hexdigest()
        before = next((row for row in self.held if row.sha256 == digest and not row.compiled), None)
        day = self.before or datetime.now(UTC).date().isoformat()
        said = json.dumps([_hook().decode(), digest, str(self.python), day if before is None else before.requires])
        answer = files.folder(self.cache / "built") / (hashlib.sha256(said.encode()).hexdigest()[:32] + ".json")
        if kept := _kept(answer, self.cache):
            return Built(kept.file, kept.data, kept.source, one.file.uploaded)
        self.say(
            f"building {one.name} {one.version} from its source: the index has no wheel of it for Python {self.python}"
        )
        began = time.monotonic()
        built = self._first_that_builds(one, data, before)
        self.say(f"built {built.file} in {time.monotonic() - began:.0f} s")
        _keep(built, self.cache, answer)
        return built

    def _first_that_builds(self, one: Archive, data: bytes, before: Source | None) -> Built:
        """With the build requirements that the lock held, with today's, or else with those of the day of the release:
        what an old setup.py imports may have left setuptools since."""
        first: Failed | None = None
        days: list[str] = [self.before]
        if one.file.uploaded:
            days.append((datetime.fromisoformat(one.file.uploaded) + timedelta(days=1)).date().isoformat())
        ways: list[tuple[Source | None, str]] = [(before, "")] if before else []
        for held, day in [*ways, *((None, day) for day in days)]:
            try:
                row, file, wheel = make(
                    one.name, str(one.version), one.file.name, data, self.python, held,
                    partial(self._resolved, day), self.say, self.indexes, self.budget_s,
                )  # fmt: skip
                if not self.fits(file):
                    raise Failed(f"it makes {file}, which is not for Python {self.python}")
                return Built(file, wheel, row, one.file.uploaded)
            except Failed as error:
                first = first or error
                if error.compiled:
                    break
            except Unsatisfiable as error:
                why = f"what it needs to be built is not to be had: {error.message}"
                first = first or Failed(why, error.chain)
        assert first is not None
        raise _refusal(one, self.python, first)

    def _resolved(self, day: str, python: Python, lines: Sequence[str]) -> tuple[Pin, ...]:
        return self.resolve(python, lines, day) if lines else ()


def _asks(name: str, lines: Iterable[str]) -> list[SpecifierSet]:
    """What the requirements say of the versions of ``name``."""
    found = []
    for line in lines:
        try:
            one = Requirement(line)
        except InvalidRequirement:
            continue
        if canonicalize_name(one.name) == name and one.specifier:
            found.append(one.specifier)
    return found


def _told(name: str, text: str) -> list[SpecifierSet]:
    """What other packages say of the versions of ``name``, as uv tells it: "a==1 depends on b==2.*"."""
    pattern = rf"depends? on {re.escape(name)}(?:\[[^\]]*\])?([<>=!~]\S*)"
    found = []
    for words in re.findall(pattern, text):
        try:
            found.append(SpecifierSet(words.rstrip(",.")))
        except InvalidSpecifier:
            continue
    return found


def stub(name: str, version: str, pythons: str, needs: Iterable[str] = ()) -> tuple[str, bytes]:
    """An empty wheel in the place of a release for ``pythons`` ("" for all), with the requirements that are known."""
    stem = name.replace("-", "_")
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    text += f"Requires-Python: {pythons}\n" if pythons else ""
    text += "".join(f"Requires-Dist: {each}\n" for each in needs)
    wheel = "Wheel-Version: 1.0\nGenerator: envkit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    info = f"{stem}-{version}.dist-info"
    content = {f"{info}/METADATA": (text.encode(), False), f"{info}/WHEEL": (wheel.encode(), False)}
    return f"{stem}-{version}-py3-none-any.whl", packed_wheel(content, info)


def _dated(package: MutableMapping[str, object], built: Built) -> None:
    """Tells an answer of uv the day and the size of a wheel that was built: those of its source, and its own."""
    wheels = package.get("wheels")
    for wheel in wheels if isinstance(wheels, list) else []:
        wheel["size"] = len(built.data)
        if built.uploaded:
            wheel["upload-time"] = datetime.fromisoformat(built.uploaded).replace(tzinfo=UTC)


def _refusal(one: Archive, python: Python, failed: Failed) -> Unbuilt:
    what = f"the index has {one.name} {one.version} as source alone (for Python {python})"
    if failed.compiled:
        return Unbuilt(
            f"{what}, and it has to be compiled: {failed.why}",
            failed.lines,
            (f'build = ["{one.name}=={one.version}"]',),
            "have it compiled by the key `build`, or choose a release of it that has a wheel",
        )
    known = explained(failed.lines)
    return Unbuilt(
        f"{what}, and its build failed: {failed.why}{f' ({known})' if known else ''}",
        failed.lines,
        (),
        f"choose another release of {one.name}, or put a wheel of it on your index",
    )


def explained(lines: Sequence[str]) -> str:
    """What the causes of `envkit explain` make of a build's last lines, "" where they know nothing."""
    if not lines:
        return ""
    from envkit import facts
    from envkit.logs import reader, story, verdict

    stream = io.BytesIO("\n".join(lines).encode())
    found = verdict.explain(story.tell([reader.read([reader.Input("build", stream)])]), facts.load())
    told_by_the_line = found.category in ("insufficient-evidence", "not-gpu-env")
    known = not told_by_the_line and not found.cause.startswith("unknown")
    return found.title if known else ""


# The archive.


def files_of(name: str, places: Iterable[Index]) -> tuple[Index, tuple[IndexFile, ...]]:
    """The files of a project on the first index that has it, and that index, which is the last where none has."""
    for pages in places:
        if found := pages.files(name):
            break
    return pages, found


def fetch(pages: Index, file: IndexFile) -> bytes:
    """The content of a source archive; raises Undecided where it is not the one that the index's page tells of."""
    data = pages.whole(file, _MOST_ARCHIVE)
    if file.sha256 and hashlib.sha256(data).hexdigest() != file.sha256:
        raise Undecided(f"{file.name} on the package index has another sha256 than its page says", "try again")
    return data


def unpack(file: str, data: bytes, place: Path) -> Path:
    """Unpacks a source archive below ``place`` and gives the one folder in it; raises Failed for what is none."""
    import tarfile
    import zipfile

    place.mkdir()
    try:
        if file.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(data)) as packed:
                _bounded((one.file_size for one in packed.infolist()), file)
                packed.extractall(place)  # takes ".." and a leading slash out of names
        else:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as packed_tar:
                _bounded((one.size for one in packed_tar), file)
                _untar(packed_tar, place, file)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and files.is_full(error):
            raise
        raise Failed(f"{file} cannot be unpacked: {one_line(str(error))}") from error
    inside = [each for each in place.iterdir() if each.is_dir()]
    if len(inside) != 1:
        raise Failed(f"{file} does not hold one folder")
    return inside[0]


def _untar(packed: tarfile.TarFile, place: Path, file: str) -> None:
    """Unpacks plain files alone; a link becomes a copy of what it names in the archive.

    tarfile's own filter "data" is not in every Python 3.11: Debian 12's, 3.11.2, is without it.
    """
    room = _MOST_UNPACKED
    for one in packed:
        path = PurePosixPath(one.name)
        if path.is_absolute() or ".." in path.parts:
            raise Failed(f"{file} holds {one_line(one.name)}, which leads out of it")
        if one.isdir():
            (place / path).mkdir(parents=True, exist_ok=True)
            continue
        try:
            opened = packed.extractfile(one)  # of a link the file that it names
        except (KeyError, RecursionError):
            opened = None
        if opened is None:
            raise Failed(f"{file} holds {one_line(one.name)}, which is no file")
        with opened:
            content = opened.read(room + 1)
        room -= len(content)
        if room < 0:
            raise Failed(f"{file} unpacks to more than {_MOST_UNPACKED >> 20} MB")
        (place / path.parent).mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
        (place / path).chmod(0o755 if one.mode & 0o100 else 0o644)


def _bounded(sizes: Iterable[int], file: str, most: int = _MOST_UNPACKED) -> None:
    total = 0
    for count, size in enumerate(sizes, 1):
        total += size
        if count > _MOST_FILES or total > most:
            raise Failed(f"{file} unpacks to more than {most >> 20} MB or {_MOST_FILES} files")


def declared(folder: Path) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """The build requirements, the backend and where that is, as pyproject.toml says; raises Failed for one that does
    not say it right."""
    path = folder / "pyproject.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise Failed(f"its pyproject.toml cannot be read: {one_line(str(error))}") from error
    system = table.get("build-system")
    if not isinstance(system, dict):
        if not (folder / "setup.py").is_file() and not path.is_file():
            raise Failed("it has neither a pyproject.toml nor a setup.py")
        return *_DEFAULT, ()
    requires, backend, inside = (
        system.get("requires", list(_DEFAULT[0])),
        system.get("build-backend", _DEFAULT[1]),
        system.get("backend-path", []),
    )
    parts = [*requires, backend, *inside] if isinstance(requires, list) and isinstance(inside, list) else [None]
    if not all(isinstance(part, str) for part in parts):
        raise Failed("the [build-system] of its pyproject.toml is none")
    root = folder.resolve()
    if any(not (folder / part).resolve().is_relative_to(root) for part in inside):
        raise Failed("the backend-path of its pyproject.toml leads out of it")
    if backend.partition(".")[0] == "wheel_stub":  # NVIDIA's: the archive is empty, and a build has no network
        raise Failed(f"it is a stub of a wheel that another index has{_stub_of(table)}; name that in `extra-index`")
    return tuple(requires), backend, tuple(inside)


def _stub_of(table: Mapping[str, object]) -> str:
    """The address of the index that a stub of NVIDIA's names, as a clause."""
    tool = table.get("tool")
    stub = tool.get("wheel_stub") if isinstance(tool, dict) else None
    address = str(stub.get("index_url")) if isinstance(stub, dict) else ""
    return f", {address.rstrip('/')}" if re.fullmatch(r"https://[A-Za-z0-9.-]+(?:/[A-Za-z0-9._-]*)*", address) else ""


# The build.


@cache
def _hook() -> bytes:
    """The program that runs in a build's own environment."""
    return (files.shipped("templates") / "steps/hook.py").read_bytes()


def interpreter(python: Python) -> tuple[str, Python]:
    """The Python that builds, and its version: the target's if this machine has one, else that which runs envkit."""
    own = Python("{}.{}".format(*sys.version_info))
    if own != python:
        argv = [proc.uv_path(), "python", "find", "--no-config", "--no-project", "--system", "--no-python-downloads"]
        done = proc.run([*argv, str(python)], timeout_s=30)
        if done.exit == 0 and done.stdout.strip():
            return done.stdout.strip(), python
    return sys.executable, own


def make(
    name: str,
    version: str,
    file: str,
    data: bytes,
    python: Python,
    held: Source | None,
    resolve: Callable[[Python, Sequence[str]], tuple[Pin, ...]],
    say: Say,
    indexes: Indexes,
    budget_s: float = BUDGET_S,
) -> tuple[Source, str, bytes]:
    """The row of a lock, the file name and the content of the wheel that the source archive ``data`` makes.

    What the build needs is what ``held`` says, or else what ``resolve`` makes of its requirements.  Raises Failed, and
    Unsatisfiable and Undecided as ``resolve`` does.
    """
    with proc.scratch_folder() as room:
        folder = unpack(file, data, room / "source")
        pins = held.requires if held is not None else None
        wheel, own, pins = built_in(room, folder, python, pins, resolve, say, indexes, budget_s)
        made = normalised(wheel, name, version)
        row = Source(name, file, hashlib.sha256(data).hexdigest(), len(data), str(own), pins)
        return row, wheel.name, made


def built_in(
    room: Path,
    folder: Path,
    python: Python,
    held: tuple[str, ...] | None,
    resolve: Callable[[Python, Sequence[str]], tuple[Pin, ...]],
    say: Say,
    indexes: Indexes,
    budget_s: float = BUDGET_S,
) -> tuple[Path, Python, tuple[str, ...]]:
    """The wheel of the source in ``folder``, which lies in the empty scratch folder ``room``, the Python that built it,
    and what was installed for that: ``held``, or else what ``resolve`` makes of its requirements.  Raises as ``make``.
    """
    asks, backend, inside = declared(folder)
    _asks_no_torch(asks)
    tools = room / "tools"
    tools.mkdir()
    (room / "out").mkdir()
    (room / "hook.py").write_bytes(_hook())
    for each in _COMPILERS:
        decoy = tools / each
        decoy.write_text('#!/bin/sh\necho "no compiler here: $0" >&2\n: > "$0.called"\nexit 1\n')
        decoy.chmod(0o755)
    runs, own = interpreter(python)
    uv(indexes, "venv", "--quiet", "--no-config", "--no-project", "--python", runs, str(room / "env"))

    def call(hook: str) -> object:
        return _call(room, folder, backend, inside, hook, say, budget_s)

    if held is not None:
        pins = held
        _install(room, pins, indexes)
    else:
        pins = pinned_lines(_without_torch(resolve(own, asks)))
        _install(room, pins, indexes)
        more = call("get_requires_for_build_wheel")
        if isinstance(more, list) and more:
            pins = pinned_lines(_without_torch(resolve(own, [*asks, *map(str, more)])))
            _install(room, pins, indexes)
    call("build_wheel")
    wheels = sorted((room / "out").glob("*.whl"))
    if len(wheels) != 1:
        raise Failed(f"it makes {len(wheels)} wheels")
    return wheels[0], own, pins


def _asks_no_torch(asks: Sequence[str]) -> None:
    if any(re.match(r"torch\s*(?:$|[^\w.\s-])", each) for each in asks):
        raise Failed("its build needs torch", compiled=True)


def pinned_for(
    folder: Path, python: Python, resolve: Callable[[Python, Sequence[str]], tuple[Pin, ...]]
) -> tuple[Python, tuple[str, ...]]:
    """The Python that will build the source in ``folder`` and the pins of what that takes, as its pyproject.toml says:
    nothing of the source runs.  Raises Failed where it says nothing that can be built."""
    asks, backend, _ = declared(folder)
    _asks_no_torch(asks)
    own = interpreter(python)[1]
    # Before 70.1, setuptools asks for this only once it runs.
    more = ("wheel",) if backend.partition(".")[0] == "setuptools" else ()
    return own, pinned_lines(_without_torch(resolve(own, [*asks, *more])))


def _without_torch(pins: Sequence[Pin]) -> Sequence[Pin]:
    """The same pins; raises Failed where torch is one: what is built against it is for that torch alone, and it would
    be gigabytes to find out."""
    if any(pin.name == "torch" for pin in pins):
        raise Failed("its build needs torch", compiled=True)
    return pins


def pinned_lines(pins: Sequence[Pin]) -> tuple[str, ...]:
    return tuple(requirements(sorted(pins, key=lambda pin: pin.name)).splitlines())


def uv(indexes: Indexes, *words: str) -> None:
    done = proc.run([proc.uv_path(), *words], timeout_s=INSTALL_S, env={**indexes.environment(), **proc.ONE_LINE})
    if done.timed_out or done.exit != 0:
        last = [line.strip() for line in done.stderr.splitlines() if line.strip()][-1:]
        why = "it did not end in time" if done.timed_out else one_line(last[0]) if last else f"exit code {done.exit}"
        raise Undecided(f"the environment of a build could not be made: {why}", "check the network, and try again")


def _install(room: Path, pins: Sequence[str], indexes: Indexes) -> None:
    """Exactly the pins into the environment of the build."""
    wanted = room / "requires.txt"
    wanted.write_text("".join(f"{line}\n" for line in pins), encoding="utf-8")
    if pins:
        uv(indexes, "pip", "install", "--quiet", "--no-config", "--require-hashes", "--no-deps", "--only-binary=:all:",
            "--python", str(room / "env/bin/python"), "-r", str(wanted))  # fmt: skip


def _call(
    room: Path, folder: Path, backend: str, inside: tuple[str, ...], hook: str, say: Say, budget_s: float
) -> object:
    """The answer of one hook; raises Failed with the last lines it printed."""
    asked = room / f"{hook}.json"
    answer = Path(f"{asked}.answer")
    asked.write_text(
        json.dumps({"folder": str(folder), "backend": backend, "path": inside, "hook": hook, "out": str(room / "out")})
    )
    tools = room / "tools"
    home = files.folder(room / "home")
    env = {
        "PATH": f"{tools}:{room}/env/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(files.folder(room / "tmp")),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "PIP_NO_INDEX": "1",
        "CC": "cc",
        "CXX": "c++",
    }
    last = [time.monotonic()]

    def progress(line: str) -> None:
        if line.strip() and time.monotonic() - last[0] > _TALKS_EVERY_S:
            last[0] = time.monotonic()
            say(Live(f"build: {one_line(line.strip())}"))

    argv = [str(room / "env/bin/python"), str(room / "hook.py"), str(asked)]
    done = proc.run(argv, timeout_s=budget_s, env=env, cwd=room, on_line=progress)
    said = [line.strip() for line in done.stderr.replace(str(room), "").splitlines()]
    lines = [one_line(line) for line in said if line][-_SHOWN:]
    called = sorted(each.stem for each in tools.glob("*.called"))
    if done.timed_out:
        raise Failed(f"it did not end within {budget_s:.0f} s", lines)
    if done.exit != 0 or not answer.is_file():
        if called or not lines:
            raise Failed(
                f"its build calls {called[0]}" if called else "it ends without an answer", lines, compiled=bool(called)
            )
        native = next((each for each in folder.rglob("*") if each.suffix in _NEEDS_COMPILER), None)
        raise Failed(lines[-1], lines, compiled=native is not None)
    given = json.loads(answer.read_text())
    if not given["closed"]:
        say("this machine does not let envkit close the network for a build, so it was open")
    return given["result"]


# The wheel.


def normalised(path: Path, name: str, version: str) -> bytes:
    """A wheel packed anew; raises Failed for one that is not of this release, or not of plain Python.  A ``version`` of
    "" is any."""
    if {(tag.abi, tag.platform) for tag in tags_of(path, name, version)} != {("none", "any")}:
        raise Failed(f"it makes {path.name}, which is for one platform", compiled=True)
    content, info = opened(path)
    for inside, (data, _) in sorted(content.items()):
        if inside.endswith(_NATIVE) or ".so." in inside or data[:4] == b"\x7fELF":
            raise Failed(f"{path.name} has {one_line(inside)} in it, which is for one platform", compiled=True)
    return packed_wheel(content, info)


def tags_of(path: Path, name: str, version: str) -> frozenset[Tag]:
    """What a wheel is for; raises Failed where it is not of this release, but for a local part of the version."""
    try:
        of, release, _, tags = parse_wheel_filename(path.name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise Failed(f"it makes {one_line(path.name)}, which is no name of a wheel") from error
    if of != name or (version and release.public != Version(version).public):
        raise Failed(f"it makes {path.name}, another release")
    return tags


def opened(path: Path, most: int = _MOST_UNPACKED) -> tuple[dict[str, tuple[bytes, bool]], str]:
    """The files of a wheel, each with whether it may be executed, and the name of its .dist-info; raises Failed for
    what is none, or has more than ``most`` bytes."""
    import zipfile

    try:
        with zipfile.ZipFile(path) as packed:
            _bounded((one.file_size for one in packed.infolist()), path.name, most)
            content = {
                one.filename: (packed.read(one), bool(one.external_attr >> 16 & 0o100))
                for one in packed.infolist()
                if not one.is_dir()
            }
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError) as error:
        raise Failed(f"{path.name} is no wheel: {one_line(str(error))}") from error
    infos = {each.split("/")[0] for each in content if each.split("/")[0].endswith(".dist-info")}
    if len(infos) != 1 or f"{(info := infos.pop())}/METADATA" not in content:
        raise Failed(f"{path.name} is no wheel: it has no METADATA")
    return content, info


def packed_wheel(content: Mapping[str, tuple[bytes, bool]], info: str) -> bytes:
    """A wheel of these files (content, whether it may be executed) with a RECORD: sorted, dated and not compressed, for
    two zlibs need not give the same."""
    import zipfile

    record = f"{info}/RECORD"
    kept = {name: one for name, one in content.items() if name not in (record, f"{record}.jws", f"{record}.p7s")}
    order = sorted(kept, key=lambda name: (name.startswith(f"{info}/"), name))
    rows = io.StringIO()
    out = csv.writer(rows, lineterminator="\n")
    for name in order:
        digest = base64.urlsafe_b64encode(hashlib.sha256(kept[name][0]).digest()).rstrip(b"=").decode()
        out.writerow([name, f"sha256={digest}", len(kept[name][0])])
    out.writerow([record, "", ""])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for name, (data, runs) in [
            *((name, kept[name]) for name in order),
            (record, (rows.getvalue().encode(), False)),
        ]:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = (stat.S_IFREG | (0o755 if runs else 0o644)) << 16
            packed.writestr(entry, data)
    return made.getvalue()


# What is kept, and what a build of the image takes.


def _keep(built: Built, cache: Path, answer: Path) -> None:
    digest = hashlib.sha256(built.data).hexdigest()
    keep_wheel(cache / "built" / f"{digest}.whl", built.data)
    source = built.source
    row = [built.file, digest, source.name, source.file, source.sha256, source.size, source.python, source.requires]
    files.write(answer, json.dumps(row), 0o600)


def keep_wheel(path: Path, data: bytes) -> None:
    with files.scratch("built", files.folder(path.parent)) as folder:
        (folder / "wheel").write_bytes(data)
        (folder / "wheel").replace(path)


def _kept(answer: Path, cache: Path) -> Built | None:
    """A build of before, if it is whole."""
    try:
        file, digest, name, archive, sha256, size, python, requires = json.loads(answer.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    data = kept_wheel(cache, digest)
    return Built(file, data, Source(name, archive, sha256, size, python, tuple(requires))) if data else None


def kept_wheel(cache: Path, digest: str) -> bytes:
    """The wheel of this sha256, empty where it is not kept."""
    try:
        data = (cache / "built" / f"{digest}.whl").read_bytes()
    except OSError:
        return b""
    return data if hashlib.sha256(data).hexdigest() == digest else b""


def not_here(source: Source, pin: Pin) -> bytes:
    """Raises Undecided for a compiled wheel that this machine does not have."""
    raise Undecided(
        f"{pin.file} was compiled on another machine, and this one does not have it",
        f"build from what `envkit vendor` saves there, or compile it here: envkit lock --upgrade-package {pin.name}",
    )


def stand_in(source: Source, pin: Pin) -> bytes:
    """An empty wheel that requires what a compiled one does."""
    return stub(source.name, pin.version, "", source.needs)[1]


def gather(
    lock: Lock,
    target: Path,
    cache: Path,
    say: Say,
    indexes: Indexes | None = None,
    *,
    anew: bool = False,
    again: Callable[[Source, Pin], bytes] = not_here,
) -> None:
    """Puts the wheels of ``lock`` that were built from source into ``target``: as kept under ``cache``, or built again
    from what the lock pins (all of them ``anew``), and held to its hashes.  Of one that was compiled, ``again`` gives
    the wheel where it is not kept.

    Raises Undecided where a source, or what it is built with, is not to be had, or makes another wheel here.
    """
    by_name = {pin.name: pin for pin in lock.wheels}
    for source in lock.sources:
        pin = by_name[source.name]
        data = b"" if anew and not source.compiled else kept_wheel(cache, pin.sha256)
        if source.compiled:
            data = data or again(source, pin)
        elif not data:
            say(f"building {pin.name} {pin.version} from its source")
            data = _rebuilt(source, pin, indexes or Indexes(), say)
            keep_wheel(cache / "built" / f"{pin.sha256}.whl", data)
        (target / pin.file).write_bytes(data)


def archive_of(source: Source, indexes: Indexes) -> tuple[IndexFile, bytes]:
    """The source archive of a lock; raises Undecided where the index does not have it any more."""
    pages, listed = files_of(source.name, indexes.places(INSTALL_S))
    fix = "lock again: envkit lock --upgrade-package " + source.name
    file = next((each for each in listed if each.name == source.file), None)
    if file is None:
        raise Undecided(f"the package index does not have {source.file} any more, from which a wheel is built", fix)
    archive = fetch(pages, file)
    if hashlib.sha256(archive).hexdigest() != source.sha256:
        raise Undecided(f"{source.file} on the package index is not the one that the lock pins", fix)
    return file, archive


def _rebuilt(source: Source, pin: Pin, indexes: Indexes, say: Say) -> bytes:
    fix = "lock again: envkit lock --upgrade-package " + pin.name
    _, archive = archive_of(source, indexes)

    def unasked(python: Python, lines: Sequence[str]) -> tuple[Pin, ...]:
        raise AssertionError("the lock says what it is built with")

    try:
        python = Python(source.python)
        _, name, data = make(pin.name, pin.version, source.file, archive, python, source, unasked, say, indexes)
    except Failed as error:
        raise Undecided(f"{pin.name} {pin.version} cannot be built again here: {error.why}", fix) from error
    if name != pin.file or hashlib.sha256(data).hexdigest() != pin.sha256:
        raise Undecided(f"{source.file} makes another wheel here than the one that the lock pins", fix)
    return data
