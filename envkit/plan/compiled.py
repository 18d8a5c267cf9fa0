"""Packages that are compiled from their source on the index, against the torch of the lock that is being made.

First the lock is solved with an empty wheel in the place of each, which requires what the source says that it does.
Then each is compiled in a container of that lock's own devel flavor, by PEP 517's hooks: with no network, no
capability, none of the user's variables, within a budget.  What the hooks install beside torch is fetched before, by
hash.  The wheel is packed anew and kept in envkit's cache, and the lock holds its hash.  Where its METADATA requires
something else than the source said, the lock is solved again for the same torch.

A wheel is compiled again only where what it is made of has changed: its source, torch, CUDA, Python, the compilers or
the GPUs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from envkit.engine import WORK, Engine, Say
from envkit.errors import Undecided, Unsatisfiable, UsageError, one_line
from envkit.facts import Facts, derived, load, served
from envkit.payload import elf, fatbin
from envkit.plan import indexes, solve, sources, wheels
from envkit.plan import lockfile as locks
from envkit.plan.given import GivenWheel
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Lock, Pin, Source
from envkit.plan.sources import Failed
from envkit.plan.spec import CPU, Platform, Spec, TorchWish
from envkit.records import dataclass
from envkit.system import files, proc
from envkit.system.index import IndexFile
from envkit.system.proc import Completed
from envkit.system.terminal import Live
from envkit.versions import Glibc, Sm

# Runs the program in a tar (hook, tools, source) in a container that is there already; its folder `out` comes back.
Run = Callable[[Path, Path, Say], Completed]
# Such containers of the devel flavor of a lock, for as long as the block lasts.
Workshop = Callable[[Lock, Engine, Indexes, Say], AbstractContextManager[Run]]
# A lock of a spec: with how much of another, what of it anew, and who is told.
Solved = Callable[[Spec, Lock | None, tuple[str, ...] | None, Say, Say | None], Lock]
# The wheels that requirements of a build come to beside the torch of a lock.
Resolve = Callable[[Sequence[str]], tuple[Pin, ...]]

BUDGET_S = 4 * 3600.0  # for each hook; the longest known packages take an hour on eight processors
ARGV = ("python3", f"{WORK}/compile.py")
_RECIPE = 1  # part of the key of what is kept: count up when the same input makes another wheel
_MOST_WHEEL = 8 << 30  # bytes, unpacked
_SHOWN = 12  # lines of a failed build
_SPOKEN = 100  # characters of a line of progress; a compiler's has thousands
# What setup.py files for torch import without saying so, for they are run where torch is installed.
_USUAL = ("ninja", "packaging", "psutil", "setuptools", "wheel")
_COMPILERS = re.compile(r"g\+\+|gcc|cpp|binutils|libc6-dev|libstdc\+\+|nvidia-cuda|cuda-nvcc")
# A compiler's or linker's error, a Python's, and what only passes on that something failed.
_ERROR = re.compile(r"(?:^|: )(?:fatal )?error(?: ?:| #)|nvcc fatal|undefined reference|Killed")
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b")
_LATE = re.compile(
    r"ninja: build stopped|Command .* returned non-zero|subprocess\.|Error compiling objects|error: command "
)


@dataclass(frozen=True, slots=True)
class Release:
    """A source release that is to be compiled: its archive on the index and what that says it requires."""

    name: str
    version: str
    file: IndexFile
    data: bytes
    needs: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """The hash of the archive."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Wheel:
    """What was compiled, and of what; ``size`` in bytes."""

    file: str
    version: str
    sha256: str
    size: int
    source: Source


class _Answer(msgspec.Struct):
    """What templates/steps/compile.py says of a hook; a package's own code may have written it."""

    exit: int
    result: Any
    lines: list[str]
    killed: int
    jobs: int
    memory: int


def lock(
    spec: Spec,
    facts: Facts,
    solved: Solved,
    connect: Callable[[], Engine | None],
    workshop: Workshop | None,
    say: Say,
    warn: Say | None,
    *,
    previous: Lock | None,
    upgrade: tuple[str, ...] | None,
    cache: Path,
) -> Lock:
    """The lock of a spec with `build`: ``solved`` makes those around it.

    Without a ``workshop`` nothing is compiled: what would have to be stands in the lock as ``previous`` has it, which
    shows what a lock would change and is none.  Raises what ``solved`` raises, Unsatisfiable where a package cannot be
    compiled, and Undecided without a container engine.
    """
    named = indexes.of(spec.index, spec.extra_index)
    releases = tuple(_release(text, spec, named) for text in spec.build)
    held = {pin.name: wheel for pin, wheel in _held(previous)} if previous else {}
    again = {*(upgrade or ())}
    needs = {
        one.name: held[one.name].source.needs
        if one.name in held and held[one.name].source.sha256 == one.sha256
        else one.needs
        for one in releases
    }
    with files.scratch("compile") as folder:
        first = solved(_with_stubs(spec, releases, needs, folder / "first"), previous, upgrade, say, warn)
        plain = _without(first, spec)
        archs = architectures(plain, facts)
        wheels: dict[str, Wheel] = {}
        for one in releases:
            old, key = held.get(one.name), _key(plain, one.sha256, archs)
            same = old and previous and _key(previous, old.source.sha256, old.source.compiled) == key
            found = old if old and same and one.name not in again else _kept(cache, key)
            found = found or (old if workshop is None else None)
            wheels |= {one.name: found} if found else {}
        if workshop is not None and (left := [one for one in releases if one.name not in wheels]):
            _can_be_compiled(plain, left)
            engine = _engine(connect, left)
            with workshop(plain, engine, named, say) as run:
                tools = partial(solve.tools, spec, plain, facts)
                shop = _Shop(plain, archs, solve.glibc_of(plain, facts), run, tools, named, cache, say)
                for one in left:
                    say(f"compiling {one.name} {one.version} from its source for {archs}")
                    wheels[one.name] = _made(one, shop)
        made = first
        if any(one.name in wheels and {*wheels[one.name].source.needs} != {*needs[one.name]} for one in releases):
            say("the packages that were compiled require something else than their sources said; solving again")
            settled = replace(spec, torch=TorchWish(f"=={first.torch}"), python=first.python, any_python=False)
            true = {name: wheel.source.needs for name, wheel in wheels.items()}
            twice = _with_stubs(settled, releases, true, folder / "second")
            made = solved(twice, plain, None, _silent, _silent)
            _same_torch(plain, made)
    return _filled(made, spec, wheels)


def _silent(line: str) -> None:
    """What was said once already."""


def _release(text: str, spec: Spec, named: Indexes) -> Release:
    """The source release that an entry of `build` names; raises Unsatisfiable where the index has none."""
    name, _, version = text.partition("==")
    pages, every = sources.files_of(name, named.places(sources.INSTALL_S))
    if not every:
        raise Unsatisfiable(f"the package index has no {name}, which `build` names", (), (), "correct its name")
    found: dict[Version, IndexFile] = {}
    for file in every:
        try:
            if file.name.endswith((".tar.gz", ".zip")) and not (spec.before and not "" < file.uploaded < spec.before):
                found.setdefault(parse_sdist_filename(file.name)[1], file)
        except (InvalidSdistFilename, InvalidVersion):
            continue
    file_of = found.get(Version(version))
    if file_of is None:
        newest = tuple(f"{name}=={one}" for one in sorted(found, reverse=True)[:4])
        why = f"the package index has no source of {name} {version}, which `build` names"
        raise Unsatisfiable(why, (), newest, "name a release that it has as source")
    data = sources.fetch(pages, file_of)
    return Release(name, version, file_of, data, _said(file_of, data))


def _said(file: IndexFile, data: bytes) -> tuple[str, ...]:
    """What the PKG-INFO of a source archive requires; nothing where it has none."""
    try:
        with files.scratch("source") as folder:
            inside = sources.unpack(file.name, data, folder / "source") / "PKG-INFO"
            text = inside.read_text("utf-8", "replace") if inside.is_file() else ""
    except Failed as error:
        raise Unsatisfiable(error.why, (), (), "choose another release") from error
    return _needs(text)


def _needs(metadata: str) -> tuple[str, ...]:
    """What METADATA requires without an extra, as a lock holds it."""
    every = (one for one in derived.requirements(metadata) if "extra" not in str(one.marker or ""))
    return tuple(sorted({str(one) for one in every if one.url is None}))


def _held(previous: Lock) -> Iterable[tuple[Pin, Wheel]]:
    """The compiled wheels of a lock."""
    by_name = {pin.name: pin for pin in previous.wheels}
    for row in previous.sources:
        if row.compiled:
            pin = by_name[row.name]
            yield pin, Wheel(pin.file, pin.version, pin.sha256, pin.size, row)


def _with_stubs(spec: Spec, releases: Iterable[Release], needs: Mapping[str, tuple[str, ...]], folder: Path) -> Spec:
    """The spec with an empty wheel in the place of each release, which requires ``needs``; they lie in ``folder``."""
    folder.mkdir()
    given = []
    for one in releases:
        file, data = sources.stub(one.name, one.version, one.file.requires, needs.get(one.name, one.needs))
        (folder / file).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        given.append(GivenWheel(one.name, f"{one.name}=={one.version}", file, str(folder / file), digest))
    return replace(spec, given=(*spec.given, *given))


def _names(spec: Spec) -> frozenset[str]:
    return frozenset(text.partition("==")[0] for text in spec.build)


def _without(made: Lock, spec: Spec) -> Lock:
    """The lock without the wheels that are to be compiled."""
    return replace(made, wheels=tuple(pin for pin in made.wheels if pin.name not in _names(spec)))


def _filled(made: Lock, spec: Spec, wheels: Mapping[str, Wheel]) -> Lock:
    """The lock with what was compiled in the place of the stubs."""

    def filled(pin: Pin) -> Pin:
        one = wheels.get(pin.name)
        if one is None:
            return pin
        return replace(pin, version=one.version, file=one.file, sha256=one.sha256, size=one.size, others=())

    pins = tuple(map(filled, made.wheels))
    rows = {row.name: row for row in (*made.sources, *(one.source for one in wheels.values()))}
    built = tuple(rows[pin.name] for pin in pins if pin.name in rows)
    return replace(made, wheels=pins, sources=built, wish=locks.spec_items(spec))


def _same_torch(first: Lock, second: Lock) -> None:
    """Raises Unsatisfiable where what the compiled packages require changes what they were compiled against."""
    keys = ("torch", "variant", "cuda", "python", "os", "image")
    if differs := [key for key in keys if getattr(first, key) != getattr(second, key)]:
        raise Unsatisfiable(
            f"what `build` made requires another {differs[0]} than the one that it was compiled against",
            (f"{getattr(first, differs[0])} -> {getattr(second, differs[0])}",), (), f"pin `{differs[0]}` in the spec",
        )  # fmt: skip


# Against what.


def architectures(made: Lock, facts: Facts) -> str:
    """The GPUs of a lock as torch's TORCH_CUDA_ARCH_LIST names them, CPU for a lock without CUDA.

    A GPU that the lock's CUDA does not know gets the PTX of the newest that it does.
    """
    if not made.cuda:
        return CPU
    rows = [row for row in facts.cudas if row.version.upto(2) == made.cuda.upto(2)]
    known = max(rows, key=lambda row: row.version).archs if rows else ()
    found: dict[Sm, str] = {}
    for _, text, _ in made.gpus:
        sm = Sm.parse(text)
        below = [one for one in known if one < sm and not one.suffix]
        if not known or sm in known or not below:
            found[sm] = f"{sm.major}.{sm.minor}{sm.suffix}"
        else:
            newest = max(below)
            found[newest] = f"{newest.major}.{newest.minor}+PTX"
    return ";".join(found[sm] for sm in sorted(found))


def _variables(archs: str) -> dict[str, str]:
    """The variables of a build: the same bytes on any day and machine, and the GPUs in the words of torch, of CMake and
    of the packages that read neither."""
    made = {
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": str(sources.EPOCH),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PIP_NO_INDEX": "1",
        "CFLAGS": "-g0",  # Debian's Python adds -g, which makes a library of torch's headers ten times as large
        "CXXFLAGS": "-g0",
        "LDFLAGS": "-Wl,--strip-all",  # nvcc names symbols after its process number
    }
    if archs == CPU:
        return made
    every = [one.removesuffix("+PTX") for one in archs.split(";")]
    return made | {
        "TORCH_CUDA_ARCH_LIST": archs,
        "CUDAARCHS": ";".join(one.replace(".", "") for one in every),
        "FLASH_ATTN_CUDA_ARCHS": ";".join(dict.fromkeys(f"{one.partition('.')[0]}0" for one in every)),
        "FORCE_CUDA": "1",  # setup.py files that ask torch for a GPU of this machine, which has none
        "NVCC_THREADS": "1",  # MAX_JOBS counts the compilers
    }


def _no_download(source: Path) -> dict[str, str]:
    """The variables that keep a setup.py from looking for a wheel of its own maker's first, as those of flash-attn,
    mamba-ssm and causal-conv1d do; some of them end where there is no network."""
    try:
        text = (source / "setup.py").read_text("utf-8", "replace")
    except OSError:
        return {}
    return dict.fromkeys(re.findall(r"\b[A-Z][A-Z0-9_]{0,60}_FORCE_BUILD\b", text), "TRUE")


def _key(made: Lock, sha256: str, archs: str) -> str:
    """What a compiled wheel follows from, as far as it matters which it is: not the tools that only run compilers."""
    pins = [pin.sha256 for pin in made.wheels if pin.name == "torch" or pin.name.startswith("nvidia-")]
    compilers = [f"{deb.name}={deb.version}" for deb in made.debs if _COMPILERS.match(deb.name)]
    said = [_RECIPE, sha256, archs, str(made.python), made.os, made.platform, sorted(pins), sorted(compilers)]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]


def _can_be_compiled(plain: Lock, left: Sequence[Release]) -> None:
    """Raises UsageError where a lock for GPUs has no nvcc: a package that then leaves its kernels out says nothing."""
    why = dict(plain.missing).get("nvcc")
    if why and plain.gpus:
        said = f"{left[0].name} {left[0].version} is to be compiled for GPUs, and the devel flavor has no nvcc: {why}"
        raise UsageError(said, "choose an `os` or a `cuda` that has one")


def _engine(connect: Callable[[], Engine | None], left: Sequence[Release]) -> Engine:
    """The container engine to compile in; raises Undecided where there is none."""
    engine = connect()
    if engine is None or not engine.containers:
        what = " and ".join(f"{one.name} {one.version}" for one in left)
        raise Undecided(
            f"{what} must be compiled, which is done in a container, and there is no container engine",
            "lock on a machine with Docker, or leave it out of `build` and name a wheel of it in `packages`",
        )
    return engine


# The compiling.


@dataclass(frozen=True, slots=True)
class _Shop:
    """Where is compiled, and against what: the lock ``plain`` on a system with ``glibc``, for ``archs``."""

    plain: Lock
    archs: str
    glibc: Glibc
    run: Run
    resolve: Resolve
    named: Indexes
    cache: Path
    say: Say


def _made(one: Release, shop: _Shop, held: Source | None = None) -> Wheel:
    """A release compiled and kept in the cache; with the tools of ``held`` where that is given.

    Raises Unsatisfiable, with what is known of the cause, where it cannot be compiled.
    """
    try:
        file, data, source = _compiled(one, shop, held)
        _for_the_gpus(file, data, shop.plain, shop.say)
    except Failed as error:
        known = sources.explained(error.lines)
        raise Unsatisfiable(
            f"{one.name} {one.version} cannot be compiled against torch {shop.plain.torch} for {shop.archs}: "
            + error.why
            + (f" ({known})" if known else ""),
            _shown(error.lines),
            (),
            error.fix or "choose another release of it, or name a wheel of it in `packages`",
        ) from error
    wheel = Wheel(file, str(_version(file)), hashlib.sha256(data).hexdigest(), len(data), source)
    kept = files.folder(shop.cache / "built")
    sources.keep_wheel(kept / f"{wheel.sha256}.whl", data)
    answer = kept / f"{_key(shop.plain, one.sha256, shop.archs)}.compiled.json"
    files.write(answer, msgspec.json.encode(wheel).decode(), 0o600)
    return wheel


def _version(file: str) -> Version:
    return Version(file.split("-")[1])


def _kept(cache: Path, key: str) -> Wheel | None:
    """What was compiled before of the same, if it is whole."""
    try:
        wheel = msgspec.json.decode((cache / "built" / f"{key}.compiled.json").read_bytes(), type=Wheel)
    except (OSError, msgspec.DecodeError):
        return None
    return wheel if sources.kept_wheel(cache, wheel.sha256) else None


def _compiled(one: Release, shop: _Shop, held: Source | None) -> tuple[str, bytes, Source]:
    """The file name and the content of the wheel, and its row in a lock."""
    plain = shop.plain
    with proc.scratch_folder() as room:
        source = sources.unpack(one.file.name, one.data, room / "source")
        asks, backend, inside = sources.declared(source)
        asked = {
            "name": f"{one.name} {one.version}",
            "folder": str(source.relative_to(room)),
            "backend": backend,
            "path": inside,
            "environment": _variables(shop.archs) | _no_download(source),
            "jobs": int(jobs) if (jobs := os.environ.get("MAX_JOBS", "")).isdigit() else 0,
        }
        call = partial(_call, room, asked, shop)
        wanted = [*_USUAL, *_beside_torch(asks, plain)]
        pins = held.requires if held else sources.pinned_lines(_resolved(shop.resolve, wanted))
        _install(room, pins, shop)
        if held is None:
            more = call("get_requires_for_build_wheel")
            extra = _beside_torch([str(each) for each in more] if isinstance(more, list) else [], plain)
            if {*extra} - {*wanted}:
                pins = sources.pinned_lines(_resolved(shop.resolve, [*wanted, *extra]))
                shutil.rmtree(room / "tools")
                _install(room, pins, shop)
        call("build_wheel")
        wheels = sorted((room / "made").glob("*.whl"))
        if len(wheels) != 1:
            raise Failed(f"it makes {len(wheels)} wheels")
        tags = sources.tags_of(wheels[0], one.name, one.version)
        if not solve.takes(plain, shop.glibc, tags):
            raise Failed(f"it makes {wheels[0].name}, which is not for Python {plain.python} on {plain.platform}")
        content, info = sources.opened(wheels[0], _MOST_WHEEL)
        needs = _needs(content[f"{info}/METADATA"][0].decode("utf-8", "replace"))
        row = Source(
            one.name, one.file.name, one.sha256, len(one.data), str(plain.python), tuple(pins), shop.archs, needs
        )
        return wheels[0].name, sources.packed_wheel(content, info), row


def _resolved(resolve: Resolve, lines: Sequence[str]) -> tuple[Pin, ...]:
    try:
        return resolve(lines)
    except Unsatisfiable as error:
        raise Failed(f"what it needs to be compiled is not to be had: {error.message}", error.chain) from error


def _beside_torch(asks: Iterable[str], plain: Lock) -> list[str]:
    """The build requirements without torch, which is the lock's; raises Failed for one that asks for another torch, or
    for what no index has."""
    place = dict(derived.environment(Platform(plain.platform).machine, str(plain.python)))
    found = []
    for text in asks:
        try:
            one = Requirement(text)
        except InvalidRequirement as error:
            raise Failed(f"its build requires `{one_line(text)}`, which is no requirement") from error
        if one.url:
            raise Failed(f"its build requires {one_line(text)}, which is on no index")
        if canonicalize_name(one.name) != "torch":
            found.append(str(one))
        elif (one.marker is None or one.marker.evaluate(place)) and not one.specifier.contains(
            plain.torch, prereleases=True
        ):
            raise Failed(f"its build requires {one_line(text)}, and the lock has torch {plain.torch}")
    return found


def _install(room: Path, pins: Sequence[str], shop: _Shop) -> None:
    """Exactly the pins into the folder `tools`, for the Python and the platform of the lock."""
    wanted = room / "requires.txt"
    wanted.write_text("".join(f"{line}\n" for line in pins), encoding="utf-8")
    files.folder(room / "tools")
    if pins:
        sources.uv(
            shop.named, "pip", "install", "--quiet", "--no-config", "--require-hashes", "--no-deps",
            "--only-binary=:all:", "--python", sys.executable, "--python-version", str(shop.plain.python),
            "--python-platform", wheels.platform_tag(Platform(shop.plain.platform).machine, shop.glibc),
            "--target", str(room / "tools"), "-r", str(wanted),
        )  # fmt: skip


def _call(room: Path, asked: Mapping[str, object], shop: _Shop, hook: str) -> object:
    """The answer of one hook; raises Failed with the last lines it printed, and Undecided where its time was up."""
    (room / "asked.json").write_text(json.dumps({**asked, "hook": hook}))
    for step in ("hook.py", "compile.py"):
        (room / step).write_bytes((files.shipped("templates") / "steps" / step).read_bytes())
    given, made = room / "given.tar", room / "made.tar"
    _packed(room, ("hook.py", "compile.py", "asked.json", "tools", "source"), given)

    def progress(line: str) -> None:
        if line.strip():
            shop.say(Live(f"build: {one_line(line.strip())[:_SPOKEN]}"))

    done = shop.run(given, made, progress)
    if done.timed_out:
        raise Undecided(
            f"{asked['name']} was not compiled within {BUDGET_S / 3600:.0f} hours",
            "lock on a machine with more processors",
        )
    answer = _answer(made, room / "made")
    if answer is None:
        said = [one_line(line) for line in done.stderr.splitlines() if line.strip()]
        raise Failed("it ends without an answer" + (f": {said[-1]}" if said else ""), said)
    lines = [one_line(line.replace(f"{WORK}/{asked['folder']}/", "")) for line in answer.lines]
    if answer.exit == 0:
        return answer.result
    if answer.killed:
        more = f"{answer.jobs} compilers at once took more than {answer.memory >> 30} GB of memory"
        raise Failed(more, lines, fix="compile fewer files at once: MAX_JOBS=1 envkit lock")
    raise Failed(_first_error(lines) or "it ends without a word", lines)


def _first_error(lines: Sequence[str]) -> str:
    """The line that says what went wrong: a compiler's first error, else the last exception, else the last line."""
    meant = [line for line in lines if not _LATE.search(line)]
    named = [line for line in meant if _ERROR.search(line)][:1] or [line for line in meant if _RAISED.search(line)][-1:]
    return (named or [*lines[-1:], ""])[0].rstrip(".")


def _shown(lines: Sequence[str]) -> tuple[str, ...]:
    """What of a build's words is shown: what stands at the first error, and the end."""
    at = next((at for at, line in enumerate(lines) if line.rstrip(".") == _first_error(lines)), 0)
    first, last = range(at, min(at + _SHOWN // 2, len(lines))), range(max(0, len(lines) - _SHOWN // 2), len(lines))
    return tuple(lines[at] for at in sorted({*first, *last}))


def _packed(room: Path, names: Iterable[str], target: Path) -> None:
    """A tar of files that are root's and of the same age, whoever packs it."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = sources.EPOCH
        entry.mode |= 0o755 if entry.isdir() else 0o644
        return entry

    with tarfile.open(target, "w") as archive:
        for name in names:
            archive.add(room / name, name, filter=plain)


def _answer(made: Path, place: Path) -> _Answer | None:
    """What a hook said; the files beside that lie in ``place``.  A package's own code may have written any of it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    try:
        with tarfile.open(made) as archive:
            for one in archive:
                name = PurePosixPath(one.name).name
                wanted = name == "answer.json" or name.endswith(".whl")
                if not one.isfile() or not wanted or one.size > _MOST_WHEEL:
                    continue
                opened = archive.extractfile(one)
                if opened is not None:
                    with opened, (place / name).open("wb") as file:
                        shutil.copyfileobj(opened, file, 1 << 20)
        return msgspec.json.decode((place / "answer.json").read_bytes(), type=_Answer)
    except (tarfile.TarError, EOFError, FileNotFoundError, msgspec.DecodeError):
        return None


def _for_the_gpus(file: str, data: bytes, plain: Lock, say: Say) -> None:
    """Raises Failed where the libraries of a wheel have device code, and none that a GPU of the lock runs."""
    found = _device_code(data)
    if found is None:
        if plain.gpus:
            say(f"{file} holds no code for GPUs")
        return
    sass, ptx = found
    for name, text, _ in plain.gpus:
        if served(sass, ptx, Sm.parse(text), False).state == "none":
            has = ", ".join(str(one) for one in sorted(sass)) or "no GPU"
            raise Failed(f"what it makes holds code for {has} and none for {name} ({text})")


def _device_code(data: bytes) -> tuple[list[Sm], list[Sm]] | None:
    """The machine code and the PTX in a wheel's libraries; None where they hold neither."""
    sass: set[str] = set()
    ptx: set[str] = set()
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        for name in packed.namelist():
            if ".so" not in PurePosixPath(name).name:
                continue
            library = packed.read(name)
            try:
                code = fatbin.read(library, elf.read(library))
            except ValueError:  # no library, or one that nobody can read: what is unknown is left to `envkit audit`
                continue
            sass |= {*code.sass} if code else set()
            ptx |= {*code.ptx} if code else set()
    return ([Sm.parse(one) for one in sass], [Sm.parse(one) for one in ptx]) if sass or ptx else None


# The wheels of a lock that is there.


def compiled_again(
    made: Lock, engine: Engine, workshop: Workshop, named: Indexes, cache: Path, say: Say
) -> Callable[[Source, Pin], bytes]:
    """What gives a build the compiled wheels of a lock that this machine does not have: they are compiled again, and
    held to the lock's hashes.  A wheel with another hash is kept for the next `envkit lock`."""

    def again(source: Source, pin: Pin) -> bytes:
        if not engine.containers:
            return sources.not_here(source, pin)
        file, data = sources.archive_of(source, named)
        one = Release(source.name, pin.version, file, data, source.needs)
        say(f"compiling {pin.name} {pin.version} from its source for {source.compiled}: its wheel is not here")

        def unasked(lines: Sequence[str]) -> tuple[Pin, ...]:
            raise AssertionError("the lock says what it is compiled with")

        with workshop(made, engine, named, say) as run:
            shop = _Shop(made, source.compiled, solve.glibc_of(made, load()), run, unasked, named, cache, say)
            wheel = _made(one, shop, source)
        if (wheel.file, wheel.sha256) != (pin.file, pin.sha256):
            raise Undecided(
                f"{pin.name} {pin.version} was compiled again and became another wheel than the one that the lock pins",
                f"take this one into the lock: envkit lock --upgrade-package {pin.name}; or build from what `envkit "
                "vendor` saves where the lock was made",
            )
        return sources.kept_wheel(cache, wheel.sha256)

    return again
