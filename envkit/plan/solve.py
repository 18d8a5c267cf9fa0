"""A spec to a lock: the facts choose the versions, uv finds the closure of wheels and their hashes, and apt-get that of
Debian packages, side by side."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from envkit.errors import EnvkitError, Undecided, Unsatisfiable, UsageError, nearest
from envkit.facts import Facts
from envkit.facts.rows import DerivedRow
from envkit.plan import apt, cpu, flavors, given, indexes, together
from envkit.plan import lockfile as locks
from envkit.plan.apt import Base, NoBase
from envkit.plan.flavors import Extras
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Lock, Pin
from envkit.plan.resolve import Choice, feasible, settled
from envkit.plan.sources import Sources
from envkit.plan.spec import CPU, Platform, Spec
from envkit.plan.together import Release
from envkit.plan.uv_failure import REFUSED, failure
from envkit.records import dataclass
from envkit.system import files, proc
from envkit.system.no_room import NoRoom
from envkit.versions import Glibc, Python

Say = Callable[[str], None]
Got = TypeVar("Got")
Package = dict[str, object]  # of a pylock, as uv writes it

_BUDGET_S = 300.0  # a cold resolve of torch's closure takes about a second; the rest is for slow indexes

# Glibc minors for which uv has a --python-platform, besides the manylinux2014 baseline (its help text).
_MANYLINUX = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)


# A line of a pylock, as uv writes it, that is one wheel of several, and the platforms at the end of its name.
_WHEEL_LINE = re.compile(r'^ +\{ url = "[^"\n]*-([^"/\n-]*)\.whl", .*\},\n', re.MULTILINE)


def uv_version() -> str:
    """The version of that uv."""
    said = proc.run([proc.uv_path(), "--no-config", "--version"], timeout_s=30)
    match = re.search(r"uv (\S+)", said.stdout)
    if said.exit != 0 or not match:
        raise Undecided(f"uv does not report its version: {said.stderr.strip()[-200:]}", "install uv again")
    return match[1]


def platform_tag(machine: str, glibc: Glibc) -> str:
    """uv's name for Linux on ``machine`` with ``glibc``: the newest manylinux it knows that is not newer."""
    fitting = [minor for minor in _MANYLINUX if (2, minor) <= (glibc.major, glibc.minor)]
    if not fitting:
        raise UsageError(f"glibc {glibc} is older than any wheel of torch expects", "choose a newer `os`")
    return f"{machine}-manylinux_2_{fitting[-1]}"


@dataclass(frozen=True, slots=True)
class TargetPlatform:
    """What wheels are solved for; ``backend`` ("cuXYZ" or empty) takes torch and its kin from PyTorch's own index, the
    next three are as in Spec, ``indexes`` those that the spec names, and ``given`` the wheels by distribution that it
    names by file or address."""

    python: Python
    machine: str
    glibc: Glibc
    backend: str = ""
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    before: str = ""
    indexes: Indexes = field(default_factory=Indexes)
    given: Mapping[str, Path] = field(default_factory=dict)


def closure(
    wanted: Mapping[str, tuple[str, ...]],
    place: TargetPlatform,
    say: Say,
    *,
    kept: tuple[Pin, ...] = (),
    bounds: tuple[str, ...] = (),
    built: Sources | None = None,
    solved: Sequence[Package] = (),
) -> tuple[tuple[Pin, ...], int]:
    """Every wheel that the requirements of all layers need together, and the newest upload time among them.

    ``wanted`` are requirements by flavor; a wheel is of the first flavor that needs it.  A release of ``kept`` is taken
    again where it still fits, and ``bounds`` hold for all that is taken; without ``built`` only what has a wheel on the
    index is.  ``solved`` is uv's answer to the same question where it was asked before.  The pins are in a lock's
    order; the time is in seconds since 1970, 0 if the index gives none.  Raises Unsatisfiable when no set of wheels
    meets the spec and Undecided when the index could not be asked.
    """
    every = _upto(wanted, locks.FLAVORS[-1])
    if not every:
        return (), 0
    say(f"solving {len(every)} requirements for Python {place.python} on {place.machine}")
    with files.scratch("lock") as folder:
        target = (*_target(place), *_of_any_age(wanted, place))
        uv = _Uv(folder, place, built)
        packages = solved or uv.compile("all", every, *target, kept=kept, constraints=bounds)
        ranks, newest, pins = _ranks(place.python, place.machine, place.glibc), 0, []
        for package in packages:
            pin, uploaded = _wheel(package, ranks)
            pins.append(pin)
            newest = max(newest, uploaded)
        exact = tuple(f"{pin.name}=={pin.version}" for pin in pins)
        # The index was asked a moment ago, so that uv's cache holds every answer to what follows.
        below = {
            flavor: proc.beside(partial(uv.again, flavor, _upto(wanted, flavor), *target, constraints=exact))
            for flavor in locks.FLAVORS[:-1]
            if _upto(wanted, flavor) and len(_upto(wanted, flavor)) < len(every)
        }
        elsewhere = proc.beside(partial(_elsewhere, uv, pins, exact))
        names = {flavor: {canonicalize_name(str(one.get("name"))) for one in rows()} for flavor, rows in below.items()}
        others = elsewhere()

    def layer(pin: Pin) -> str:
        for flavor in locks.FLAVORS:
            if pin.name in names.get(flavor, ()) or len(_upto(wanted, flavor)) == len(every):
                return flavor
        raise AssertionError("the last flavor holds all")

    return locks.in_order(replace(pin, layer=layer(pin), others=others.get(pin.name, ())) for pin in pins), newest


def _of_any_age(wanted: Mapping[str, tuple[str, ...]], place: TargetPlatform) -> tuple[str, ...]:
    """What tells uv that the day in ``place`` does not count for envkit's own tools, whose releases are facts."""
    if not place.before:
        return ()
    asked, *tools = ({Requirement(line).name for line in wanted.get(flavor, ())} for flavor in locks.FLAVORS)
    return tuple(
        word for name in sorted(set().union(*tools) - asked) for word in ("--exclude-newer-package", f"{name}=false")
    )


def _upto(wanted: Mapping[str, tuple[str, ...]], flavor: str) -> tuple[str, ...]:
    """The requirements of a flavor and of those below it."""
    held = locks.FLAVORS[: locks.FLAVORS.index(flavor) + 1]
    return tuple(line for each in held for line in wanted.get(each, ()))


def _target(place: TargetPlatform) -> tuple[str, str]:
    return "--python-platform", platform_tag(place.machine, place.glibc)


@dataclass(frozen=True, slots=True)
class _Uv:
    """uv's resolver for one place; its questions and answers are files in ``folder``."""

    folder: Path
    place: TargetPlatform
    built: Sources | None = None

    def compile(
        self,
        name: str,
        requirements: tuple[str, ...],
        *flags: str,
        kept: tuple[Pin, ...] = (),
        constraints: tuple[str, ...] = (),
        alone: bool = False,
    ) -> list[Package]:
        """The same as ``once``, also over the wheels that are built where the index has source alone."""
        while True:
            state = self.built.state if self.built else 0
            links = self.built.links(self.folder) if self.built and not alone else ()
            try:
                packages = self.once(
                    name, requirements, *flags, *links, kept=kept, constraints=constraints, alone=alone
                )
            except Unsatisfiable as error:
                asked = (*requirements, *constraints, *self.place.constraints, *self.place.overrides)
                if not self.built or alone or not (self.built.offer(error.chain, asked) or self.built.state != state):
                    raise
                continue
            if not self.built or alone or not self.built.build(packages):
                return packages

    def once(
        self,
        name: str,
        requirements: tuple[str, ...],
        *flags: str,
        kept: tuple[Pin, ...] = (),
        constraints: tuple[str, ...] = (),
        alone: bool = False,
    ) -> list[Package]:
        """The packages of the lock that uv writes for ``requirements``; raises what became of its failure.

        With ``alone`` nothing that they need, and also releases without a wheel: uv then reads no METADATA, which for a
        source archive would mean to run it.
        """
        answer = self.folder / f"pylock.{name}.toml"
        answer.unlink(missing_ok=True)
        if kept:  # uv prefers what the file that it is to write says already
            held = "".join(f'[[packages]]\nname = "{pin.name}"\nversion = "{pin.version}"\n' for pin in kept)
            answer.write_text(f'lock-version = "1.0"\ncreated-by = "envkit"\n{held}', encoding="utf-8")
        self._compile(name, requirements, answer, flags, constraints, alone)
        found = tomllib.loads(_WHEEL_LINE.sub(_for_linux, answer.read_text(encoding="utf-8"))).get("packages", [])
        return [package for package in found if isinstance(package, dict)]

    def requirers(self, requirements: tuple[str, ...], *flags: str) -> dict[str, tuple[str, ...]]:
        """Who requires each distribution that ``requirements`` come to, by name; from uv's cache where it can."""
        answer = self.folder / "requirers.txt"
        flags = (*flags, "--annotate", "--annotation-style", "line")
        _cache_first(lambda *offline: self._compile("requirers", requirements, answer, (*flags, *offline)))
        found: dict[str, tuple[str, ...]] = {}
        for line in answer.read_text(encoding="utf-8").splitlines():
            pin, _, via = line.partition("# via ")
            if not pin or pin.startswith("#"):
                continue
            names = tuple(sorted(name for name in via.split(", ") if name and not name.startswith("-")))
            found[canonicalize_name(Requirement(pin.strip()).name)] = names
        return found

    def _compile(
        self,
        name: str,
        requirements: tuple[str, ...],
        answer: Path,
        flags: tuple[str, ...],
        constraints: tuple[str, ...] = (),
        alone: bool = False,
    ) -> None:
        wish, bounds = (self.folder / file for file in (f"{name}.in", f"{name}.bounds"))
        lines = given.solved(requirements, self.place.given)
        wish.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        constraints += self.place.constraints
        bounds.write_text("".join(line + "\n" for line in constraints), encoding="utf-8")
        overrides = self.folder / f"{name}.overrides"
        overrides.write_text("".join(line + "\n" for line in self.place.overrides), encoding="utf-8")
        argv = [
            proc.uv_path(), "pip", "compile", "--quiet", "--no-config", "--no-header",
            *(["--no-deps"] if alone else ["--only-binary", ":all:"]),
            "--python", sys.executable,  # or uv starts every Python of this machine in search of that version
            "--python-version", str(self.place.python), *flags,
            *(["--constraints", str(bounds)] if constraints else []),
            *(["--overrides", str(overrides)] if self.place.overrides else []),
            # of a day alone uv takes what was uploaded on it too
            *(["--exclude-newer", f"{self.place.before}T00:00:00Z"] if self.place.before else []),
            *(["--torch-backend", self.place.backend] if self.place.backend else []),
            "--output-file", str(answer), str(wish),
        ]  # fmt: skip
        env = {**self.place.indexes.environment(), **proc.ONE_LINE}
        done = proc.run(argv, timeout_s=_BUDGET_S, env=env)
        if done.timed_out:
            raise Undecided(
                f"the package index did not answer within {_BUDGET_S:.0f} s", "check the network, try again"
            )
        if done.exit != 0:
            if REFUSED.search(done.stderr) and (error := self.place.indexes.refused(done.stderr)):
                raise error
            raise failure(done, (str(self.folder), os.environ.get("TMPDIR", ""), _uv_cache()))

    def again(
        self, name: str, requirements: tuple[str, ...], *flags: str, constraints: tuple[str, ...] = ()
    ) -> list[Package]:
        """The same of what was just asked: from the cache, and from the index if the cache may not be used."""
        return _cache_first(
            lambda *offline: self.compile(name, requirements, *flags, *offline, constraints=constraints)
        )


def _cache_first(ask: Callable[..., Got]) -> Got:
    """What uv answers from its cache; what it answers with the index if that is not enough."""
    try:
        return ask("--offline")
    except NoRoom:
        raise
    except (Unsatisfiable, Undecided):
        return ask()


def _read_first(
    ask: Callable[..., Mapping[str, Release]],
    requirements: Sequence[str],
    constraints: Sequence[str] = (),
    *,
    alone: bool = False,
) -> Mapping[str, Release]:
    """``together.Ask`` over what uv has just read, and over the index where uv says that this is not enough."""
    try:
        return ask(requirements, constraints, alone=alone, flags=("--offline",))
    except Unsatisfiable as error:
        if not any("network was disabled" in line for line in error.chain):
            raise
    except NoRoom:
        raise
    except Undecided:
        pass
    return ask(requirements, constraints, alone=alone)


def requirers(requirements: Sequence[str], place: TargetPlatform) -> dict[str, tuple[str, ...]]:
    """Who requires each distribution that ``requirements`` come to, by name; raises what ``closure`` does."""
    with files.scratch("lock") as folder:
        return _Uv(folder, place).requirers(tuple(requirements), *_target(place))


def _uv_cache() -> str:
    """Where uv keeps what it downloads (its documentation: UV_CACHE_DIR, XDG_CACHE_HOME/uv, ~/.cache/uv)."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return os.environ.get("UV_CACHE_DIR") or str(Path(root, "uv"))


class _Answer(dict[str, Release]):
    """uv's answer to ``together``, with all that uv said; ``wanted`` are the requirements by flavor."""

    def __init__(
        self, found: Iterable[Release], packages: Sequence[Package], wanted: Mapping[str, tuple[str, ...]]
    ) -> None:
        super().__init__((release.name, release) for release in found)
        self.packages = packages
        self.wanted = wanted


def _ask(
    choice: Choice,
    spec: Spec,
    requirements: Sequence[str],
    constraints: Sequence[str] = (),
    *,
    alone: bool = False,
    whole: bool = False,
    kept: tuple[Pin, ...] = (),
    built: Sources | None = None,
    flags: tuple[str, ...] = (),
) -> Mapping[str, Release]:
    """``together.Ask`` by uv, for the place of ``choice``; a release of ``kept`` is taken again where it still fits.

    A ``whole`` question about the torch of ``choice`` alone is about the wheels of all flavors, so that the lock has no
    other to ask.
    """
    place, wanted = _place(spec, choice), {"runtime": tuple(requirements)}
    if whole and not alone and {*choice.requirements} == {*requirements}:
        wanted |= choice.extras.wheels
    every = _upto(wanted, locks.FLAVORS[-1])
    target = (*_target(place), *_of_any_age(wanted, place), *flags)
    with files.scratch("lock") as folder:
        uv = _Uv(folder, place, built)
        held = () if alone else kept
        packages = uv.compile("together", every, *target, kept=held, constraints=tuple(constraints), alone=alone)
    ranks, found = _ranks(place.python, place.machine, place.glibc), []
    for package in packages:
        try:
            pin, uploaded = _wheel(package, ranks)
            found.append(Release(pin.name, pin.version, uploaded))
        except UsageError:  # source alone
            name = canonicalize_name(str(package.get("name")))
            found.append(Release(name, str(package.get("version")), wheel=False))
    return _Answer(found, packages, wanted)


_BuiltAt = Callable[[Python, Glibc], Sources]


def _built_at(spec: Spec, cache: Path | None, old: Lock | None, say: Say) -> _BuiltAt:
    """What is built from source for a lock of ``spec``, by the Python and the glibc that its wheels are for."""

    @functools.cache
    def at(python: Python, glibc: Glibc) -> Sources:
        ranks = _ranks(python, spec.platform.machine, glibc)
        held, named = old.sources if old else (), indexes.of(spec.index, spec.extra_index)
        resolve, kept = partial(build_tools, named), cache or files.cache_dir()
        return Sources(python, spec.before, partial(_fits, ranks), resolve, kept, say, held, named)

    return at


def _fits(ranks: Mapping[Tag, int], file: str) -> bool:
    """Whether a wheel of this name is one that an installer would take."""
    return any(tag in ranks for tag in parse_wheel_filename(file)[3])


def build_tools(named: Indexes, python: Python, lines: Sequence[str], before: str) -> tuple[Pin, ...]:
    """``sources.Resolve``: the wheels that a build on this machine needs."""
    machine, glibc = platform.machine(), Glibc(platform.libc_ver()[1] or f"2.{_MANYLINUX[0]}")
    place = TargetPlatform(python, machine, glibc, before=before, indexes=named)
    with files.scratch("lock") as folder:
        packages = _Uv(folder, place).compile("tools", tuple(lines), *_target(place))
    ranks = _ranks(python, machine, glibc)
    return tuple(_wheel(package, ranks)[0] for package in packages)


def tools(spec: Spec, made: Lock, facts: Facts, lines: Sequence[str]) -> tuple[Pin, ...]:
    """The wheels that requirements come to beside the torch of ``made``, without those that ``made`` holds; of what the
    lock holds the same release is taken where it fits."""
    place = replace(place_of(spec, made, glibc_of(made, facts)), overrides=(), before=spec.before)
    with files.scratch("lock") as folder:
        bounds = (f"torch=={made.torch}",)
        packages = _Uv(folder, place).compile(
            "tools", tuple(lines), *_target(place), kept=made.wheels, constraints=bounds
        )
    ranks = _ranks(place.python, place.machine, place.glibc)
    held = {(pin.name, pin.version) for pin in locks.torch_alone(made).wheels}
    pins = [_wheel(package, ranks)[0] for package in packages]
    return tuple(pin for pin in pins if (pin.name, pin.version) not in held)


def glibc_of(made: Lock, facts: Facts) -> Glibc:
    """The glibc of a lock's system; the oldest that the facts know for one that they do not."""
    known = {row.name: row.glibc for row in facts.oses}
    return known.get(made.os) or min(known.values())


def takes(made: Lock, glibc: Glibc, tags: Iterable[Tag]) -> bool:
    """Whether an installer in an image of the lock would take a wheel with these tags."""
    ranks = _ranks(made.python, Platform(made.platform).machine, glibc)
    return any(tag in ranks for tag in tags)


def _place(spec: Spec, choice: Choice) -> TargetPlatform:
    named = indexes.of(spec.index, spec.extra_index)
    ranks = _ranks(spec.python, spec.platform.machine, choice.glibc)
    for wheel in spec.given:
        if not any(tag in ranks for tag in parse_wheel_filename(wheel.file)[3]):
            said = f"{wheel.file} is not for Python {spec.python} on {spec.platform.machine} with glibc {choice.glibc}"
            raise Unsatisfiable(said, (), (), "name a wheel for that, or change what does not fit")
    asked = spec.constraints, spec.overrides, spec.before, named, given.here(spec.given)
    return TargetPlatform(spec.python, spec.platform.machine, choice.glibc, choice.backend, *asked)


def place_of(spec: Spec, made: Lock, glibc: Glibc) -> TargetPlatform:
    """The place that the wheels of the lock ``made`` beside ``spec`` are for; its bounds are no part of it, for its
    releases are known."""
    machine, overrides = Platform(made.platform).machine, made.wish.get("overrides", ())
    named = indexes.of(spec.index, spec.extra_index)
    return TargetPlatform(made.python, machine, glibc, made.backend, (), tuple(overrides), "", named)


def _elsewhere(uv: _Uv, pins: list[Pin], exact: tuple[str, ...]) -> dict[str, tuple[tuple[str, str], ...]]:
    """By distribution, the wheels of the same releases that this Python takes on the other platforms."""
    try:
        packages = uv.again("others", exact, "--universal", "--no-deps")
    except Unsatisfiable:
        return {}  # a lock is none the worse for this platform
    own = {pin.name: pin for pin in pins}
    place = uv.place
    machines = [each.machine for each in Platform if each.machine != place.machine]
    elsewhere = [_ranks(place.python, machine, place.glibc) for machine in machines]
    found: dict[str, dict[str, str]] = {}
    for package in packages:
        name = canonicalize_name(str(package.get("name")))
        for ranks in elsewhere:
            try:
                pin, _ = _wheel(package, ranks)
            except UsageError:
                continue  # it has none there
            if name in own and pin.version == own[name].version and pin.file != own[name].file:
                found.setdefault(name, {})[pin.file] = pin.sha256
    return {name: tuple(sorted(files.items())) for name, files in found.items()}


@functools.cache
def _ranks(python: Python, machine: str, glibc: Glibc) -> Mapping[Tag, int]:
    """The wheel tags that Python on that machine takes, the best one lowest, as every installer orders them.

    The newest manylinux comes first; the older names stand beside the version they mean (PEP 600).
    """
    legacy = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    platforms = []
    for minor in range(glibc.minor, 4, -1):
        platforms.append(f"manylinux_2_{minor}_{machine}")
        platforms += [f"{legacy[minor]}_{machine}"] if minor in legacy else []
    platforms.append(f"linux_{machine}")
    version = (python.major, python.minor)
    interpreter = f"cp{python.major}{python.minor}"
    ordered = [*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms)]
    return MappingProxyType({tag: rank for rank, tag in reversed(list(enumerate(ordered)))})


def _for_linux(line: re.Match[str]) -> str:
    """The line if an image could take its wheel: of another system there are more than of Linux, and reading them as
    TOML is half of what a large lock costs this process."""
    return line[0] if any(part.startswith(("any", "manylinux", "linux_")) for part in line[1].split(".")) else ""


def _wheel(package: Mapping[str, object], ranks: Mapping[Tag, int]) -> tuple[Pin, int]:
    """The pin of the wheel that an installer on the target would take, and when it was uploaded."""
    name, offered = str(package.get("name")), package.get("wheels")
    if isinstance(archive := package.get("archive"), dict):  # named by its file
        offered = [archive]
    fitting = []
    for wheel in offered if isinstance(offered, list) else []:
        file = str(wheel.get("name") or str(wheel.get("url", wheel.get("path", ""))).rsplit("/", 1)[-1])
        file = file.replace("%2B", "+")
        # The version is the file's: an index page may leave out the local part ("+cu...").
        _, version, _, tags = parse_wheel_filename(file)
        known = [ranks[tag] for tag in tags if tag in ranks]
        if known:
            fitting.append((min(known), file, str(version), wheel))
    if not fitting:
        raise UsageError(
            f"{name} is not available as a wheel from an index, so it cannot be pinned", f"name a release of {name}"
        )
    _, file, release, best = min(fitting, key=lambda one: one[:2])
    digest = best.get("hashes", {}).get("sha256", "")
    if not digest:
        raise UsageError(f"the index gives no sha256 for {file}", "use an index that does")
    uploaded = best.get("upload-time")
    seconds = int(uploaded.timestamp()) if isinstance(uploaded, datetime) else 0
    size = best.get("size")
    return Pin(canonicalize_name(name), release, file, digest, size if isinstance(size, int) else 0), seconds


def lock(
    spec: Spec,
    facts: Facts,
    say: Say,
    *,
    base: Callable[[Choice], Base | None] = lambda choice: None,
    previous: Lock | None = None,
    upgrade: tuple[str, ...] | None = None,
    cache: Path | None = None,
    may_stay_open: Collection[str] = (),
    warn: Say | None = None,
) -> Lock:
    """The lock that answers ``spec`` today.

    ``base`` tells what the Debian packages of a choice are solved against; it is asked in a thread while uv solves, for
    a registry that is not in reach takes its time to say so.  What ``previous`` pins stays where it still fits:
    ``upgrade`` names wheels and Debian packages to solve again, all of them if it is empty.  Where none of the system
    is to be solved again and no base is at hand, or a less firm one, it stays as ``previous`` has it.  The Debian
    archive's lists are kept under ``cache``.

    A lock that leaves one of lock.PARTS open, or holds it less firmly than ``previous``, is refused unless
    ``may_stay_open`` names the part; ``warn``, by default ``say``, is told what it leaves open.  Raises Unsatisfiable
    or UsageError when nothing can answer or the spec forbids such a lock, Undecided when the package index, the base or
    the Debian archive could not be had.
    """
    if previous is not None and upgrade:
        _known(upgrade, previous)
    old = None if upgrade == () else previous
    again = {canonicalize_name(name) for name in upgrade or ()}
    kept = tuple(pin for pin in (old.wheels if old else ()) if pin.name not in again)
    beside = tuple(pin for pin in kept if pin.name != "torch")
    built_at = _built_at(spec, cache, old, say)

    def begin(spec: Spec, choice: Choice) -> _Begun:
        found = proc.beside(partial(base, choice))
        return _Begun(
            spec,
            choice,
            proc.beside(partial(_system, spec, choice, found, old, upgrade, cache, say)),
            proc.beside(partial(_installer, _place(spec, choice))),
        )

    of_lock = old.python if old else None
    likely = settled(spec, facts, of_lock)[0]
    guess = next(feasible(likely, facts))
    guess = replace(guess, backend="") if spec.cpu else guess  # nearly always the index in use has it
    proc.uv_path()  # fills sysconfig, which gives None to a thread that asks for a wheel's tags while another fills it
    choosing = proc.beside(partial(_chosen, spec, facts, beside, of_lock, built_at, say))
    # Nearly always they are those of the newest torch, and take as long as the wheels.
    begun = begin(likely, guess) if guess.suite or "os" in may_stay_open else None
    spec, chosen = choosing()
    choice = chosen.choice
    say(f"torch {choice.torch} for {choice.built_for} on {choice.image}")
    extras = choice.extras
    if not choice.suite and any(extras.apt.values()) and "os" not in may_stay_open:
        raise _open(_no_debian(choice), {"os"}, may_stay_open, previous)  # before any work
    place, built = _place(spec, choice), built_at(spec.python, choice.glibc)
    wanted = {"runtime": choice.requirements, **extras.wheels}
    stays = {pin.name for pin in kept}
    kept += tuple(Pin(one.name, one.version, "", "") for one in chosen.releases.values() if one.name not in stays)
    # what takes longest starts first
    before = chosen.releases.packages if isinstance(chosen.releases, _Answer) and _same(chosen.releases, wanted) else ()
    solved = proc.beside(
        partial(closure, wanted, place, say, kept=kept, bounds=chosen.bounds, built=built, solved=before)
    )
    if begun is None or not begun.serves(spec, choice):
        begun = begin(spec, choice)
    ask = partial(_read_first, partial(_ask, choice, spec, built=built))
    behind = proc.beside(lambda: tuple(together.held_back(spec, chosen, facts, ask, {*stays})))
    of_base = choice.base_requirements
    brought = proc.beside(partial(_distributions, of_base, place, say)) if of_base else None
    wheels, epoch = solved()
    if choice.preinstalled:
        # The base brings torch and what torch needs; of that only what was asked for by name goes on top.
        torch = tuple(f"torch=={pin.version}" for pin in wheels if pin.name == "torch")
        held = brought() if brought else _distributions(torch, place, say)
        asked = _named(spec, extras)
        wheels = tuple(pin for pin in wheels if pin.name in asked or pin.name not in held)
    if spec.cpu:
        cpu.refuse_cuda(wheels, spec.platform.machine, lambda: requirers(_upto(wanted, locks.FLAVORS[-1]), place))
        for line in cpu.doubtful(wheels, facts):
            (warn or say)(line)
    _one_line(choice, wheels)
    _said_held_back(behind, warn or say)
    at = begun.system()
    made = replace(_made(spec, choice, at, wheels, epoch, begun.installer()), sources=built.rows(wheels))
    left = {*locks.unpinned(made), *(locks.weaker(made, previous) if previous else ())}
    if left - {*may_stay_open}:
        raise _open(at.why or _made_here(made), left, may_stay_open, previous)
    for part, clause in locks.unpinned(made).items():
        (warn or say)(f"NOT PINNED ({part}): {clause}: {at.why.message if at.why else 'no digest of it is known'}")
    if clause := locks.unverified(made):
        (warn or say)(f"DERIVED, NOT VERIFIED: {clause}")
    return made


@dataclass(frozen=True, slots=True)
class _Begun:
    """What of a lock does not hang on its wheels, under way for a choice: the base and the Debian packages, and the
    installer."""

    spec: Spec
    choice: Choice
    system: Callable[[], _System]
    installer: Callable[[], Pin]

    def serves(self, spec: Spec, choice: Choice) -> bool:
        """Whether it would be the same for another choice."""

        def about(choice: Choice) -> tuple[object, ...]:
            extras = choice.extras
            return (
                choice.image,
                choice.suite,
                choice.cuda and choice.backend,
                choice.glibc,
                extras.apt,
                extras.components,
                extras.given,
            )

        return spec == self.spec and about(choice) == about(self.choice)


def _same(answer: _Answer, wanted: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether the answer is to this question."""
    return {flavor: {*lines} for flavor, lines in answer.wanted.items()} == {
        flavor: {*lines} for flavor, lines in wanted.items()
    }


def _chosen(
    spec: Spec, facts: Facts, beside: tuple[Pin, ...], held: Python | None, built_at: _BuiltAt, say: Say
) -> tuple[Spec, together.Chosen]:
    """What is chosen, and the spec with the Python for which: the first of `settled` that has wheels of all."""
    refused: Unsatisfiable | None = None
    files_of = functools.cache(partial(cpu.in_reach, indexes.of(spec.index, spec.extra_index)))
    for one in settled(spec, facts, held):
        try:
            choose = partial(cpu.choose, files=files_of, fits=partial(_takes, one)) if one.cpu else together.choose
            chosen = choose(one, facts, partial(_asker, beside, built_at), say)
        except Unsatisfiable as error:
            if not spec.any_python:
                raise
            refused = refused or error
            say(f"Python {one.python} will not do: {error.message}")
            continue
        if spec.any_python:
            say(f"Python {one.python} of {chosen.choice.os or chosen.choice.image}, as `python` is auto")
        return one, chosen
    assert refused is not None
    raise refused


def _takes(spec: Spec, choice: Choice, file: str) -> bool:
    return _fits(_ranks(spec.python, spec.platform.machine, choice.glibc), file)


def _asker(kept: tuple[Pin, ...], built_at: _BuiltAt, choice: Choice, spec: Spec) -> together.Ask:
    return partial(_ask, choice, spec, whole=True, kept=kept, built=built_at(spec.python, choice.glibc))


def _said_held_back(behind: Callable[[], tuple[str, ...]], say: Say) -> None:
    """Says what is not the newest; a lock is none the worse where the index does not tell."""
    try:
        for line in behind():
            say(line)
    except NoRoom:
        raise
    except (Unsatisfiable, Undecided) as error:
        say(f"whether newer releases are held back is not known: {error.message}")


def _distributions(requirements: tuple[str, ...], place: TargetPlatform, say: Say) -> frozenset[str]:
    """The names of all that the requirements come to."""
    pins, _ = closure({"runtime": requirements}, place, say)
    return frozenset(pin.name for pin in pins)


def _named(spec: Spec, extras: Extras) -> set[str]:
    """The distributions that were asked for by name, torch aside."""
    lines = (*spec.packages, *(line for lines in extras.wheels.values() for line in lines))
    return {str(canonicalize_name(Requirement(text).name)) for text in lines} - {"torch"}


# The fields that a lock has of a choice as they are.
_OF_CHOICE = ("torch", "cuda", "triton", "os", "image", "suite", "backend", "preinstalled", "driver")


def _made(spec: Spec, choice: Choice, at: _System, wheels: tuple[Pin, ...], epoch: int, installer: Pin) -> Lock:
    extras = choice.extras
    held = {pin.name: pin.version for pin in wheels}  # an override may put another than torch's own there
    line = f"cu{choice.cuda.major}" if choice.cuda else CPU
    return Lock(
        **{name: getattr(choice, name) for name in _OF_CHOICE},
        cudnn=held.get(f"nvidia-cudnn-{line}", choice.cudnn),
        nccl=held.get(f"nvidia-nccl-{line}", choice.nccl),
        **{name: getattr(extras, name) for name in ("components", "given", "programs", "missing")},
        **{name: getattr(at, name) for name in ("digest", "origin", "archive", "debs")},
        name=spec.name,
        wish=locks.spec_items(spec),
        variant=choice.variant,
        derived=isinstance(choice.row, DerivedRow),
        python=spec.python,
        platform=spec.platform.value,
        base=spec.base.value,
        flavor=spec.flavor.value,
        guard=spec.guard,
        inside=spec.image,
        epoch=epoch,
        gpus=tuple((target.name, str(target.sm), target.by) for target in choice.targets),
        apt={layer: extras.apt[layer] for layer in locks.LAYERS if extras.apt.get(layer)},
        installer=installer,
        wheels=wheels,
    )


def _open(why: EnvkitError, left: Iterable[str], allowed: Collection[str], previous: Lock | None) -> EnvkitError:
    """The refusal of a lock that would leave the parts ``left`` open; it has the kind of its cause ``why``."""
    parts = [part for part in locks.PARTS if part in left and part not in allowed]
    what = {"os": "the Debian packages", "base": "the base"}
    lost = f"{' and '.join(what[part] for part in parts)} would not be pinned"
    if previous is not None and all(locks.strength(previous)[part] for part in parts):
        lost += "; the existing lock pins them and was left unchanged"
    options = " ".join(f"--allow-unpinned {part}" for part in parts)
    fix = f"{why.fix}; or accept it: {options}" if why.fix else f"accept it: {options}"
    kind = UsageError if isinstance(why, UsageError) else Undecided
    return kind(f"{why.message}; {lost}", fix)


def _no_debian(choice: Choice) -> UsageError:
    said = f"{choice.image} is not plain Debian, the only system whose packages can be locked by version"
    return UsageError(said, "choose a `python` and an `os` of Debian with base `wheels`")


def _made_here(made: Lock) -> Undecided:
    """Why a lock on a registry's digest cannot be made again: no registry answers, and the base came from packages."""
    return Undecided(
        f"no registry currently gives a digest of {made.image}",
        "lock where a registry answers, or pull the image from one",
    )


def _known(names: tuple[str, ...], previous: Lock) -> None:
    """Refuses to upgrade what the lock does not hold."""
    held = sorted({pin.name for pin in previous.wheels} | {deb.name for deb in previous.debs})
    for name in names:
        if name not in held and canonicalize_name(name) not in held:
            raise UsageError(
                f"the lock contains no {name} to upgrade{nearest(name, held)}", "name a package that it contains"
            )


def _installer(place: TargetPlatform) -> Pin:
    """The wheel of this machine's uv, which installs all the others."""
    with files.scratch("lock") as folder:
        uv = _Uv(folder, replace(place, backend="", constraints=(), overrides=(), before="", given={}))
        # the files of one release stay the same, so that a page of any age names them
        (package,) = uv.again("installer", (f"uv=={uv_version()}",), *_target(place))
    pin, _ = _wheel(package, _ranks(place.python, place.machine, place.glibc))
    return replace(pin, layer=locks.TOOLS)


@dataclass(frozen=True, slots=True)
class _System:
    """The system of a lock: its base and its Debian packages, and ``why`` something of it is not pinned."""

    digest: str = ""
    origin: str = ""
    archive: str = ""
    debs: tuple[locks.Deb, ...] = ()
    why: EnvkitError | None = None


def _system(
    spec: Spec,
    choice: Choice,
    found: Callable[[], Base | None],
    old: Lock | None,
    upgrade: tuple[str, ...] | None,
    cache: Path | None,
    say: Say,
) -> _System:
    """The base and the Debian packages on top of it; raises NoRoom where a disk is full, whatever may stay open."""
    extras = choice.extras
    wanted = {layer: names for layer, names in extras.apt.items() if names}
    stays = old if old is not None and _may_stay(old, spec, choice, wanted, upgrade) else None
    base, why = _base(choice, found)
    if stays and stays.digest and _less_firm(base, stays) and (stays.archive or not wanted):
        said = why.message if why else f"no registry answers for {choice.image}"
        say(f"keeping the locked base and Debian packages: {said}")
        return _System(stays.digest, stays.origin, stays.archive, stays.debs)
    if base is None:
        return _System(why=why)
    if not wanted:
        return _System(base.digest, base.origin, why=why)
    if not choice.suite:
        return _System(base.digest, base.origin, why=_no_debian(choice))
    if stays and stays.archive and stays.digest == base.digest:
        return _System(base.digest, base.origin, stays.archive, stays.debs, why)
    with files.scratch("lists") as folder:
        try:
            archive, debs = apt.solve(
                (base.status.rstrip(b"\n") + b"\n\n").lstrip(b"\n") + flavors.stand_in(extras.given).encode(),
                choice.suite,
                extras.components,
                wanted,
                spec.platform.machine,
                cache or folder,
                say,
                fresh=upgrade is not None,
            )
        except apt.NoApt as error:
            return _System(base.digest, base.origin, why=error)
    return _System(base.digest, base.origin, archive, debs, why)


def _may_stay(
    old: Lock, spec: Spec, choice: Choice, wanted: Mapping[str, tuple[str, ...]], upgrade: tuple[str, ...] | None
) -> bool:
    """Whether the Debian packages of ``old`` were solved for the same, the base's content aside, and none of them is to
    be solved again."""
    extras = choice.extras
    asked = (choice.image, choice.suite, spec.platform.value, extras.components, extras.given, wanted)
    held = (old.image, old.suite, old.platform, old.components, old.given, dict(old.apt))
    return asked == held and not {deb.name for deb in old.debs} & {*(upgrade or ())}


def _base(choice: Choice, found: Callable[[], Base | None]) -> tuple[Base | None, EnvkitError | None]:
    """The base, if there is one, and why it or its digest is lacking; raises NoRoom where a disk is full."""
    try:
        base = found()
    except NoRoom:
        raise
    except (Undecided, NoBase) as error:
        return None, error
    if base is None:
        return None, Undecided(
            "no base was available to resolve the Debian packages for", "lock on a machine with a container engine"
        )
    if base.digest:
        return base, None
    why = f"the engine has {choice.image}, but without a digest from a registry"
    return base, Undecided(why, "pull it from a registry, then lock")


def _less_firm(base: Base | None, old: Lock) -> bool:
    """Whether a lock on ``base`` would hold it less firmly than ``old`` does."""
    return base is None or not base.digest or (old.origin == "registry" and base.origin != "registry")


def _one_line(choice: Choice, wheels: tuple[Pin, ...]) -> None:
    """Refuses wheels of another CUDA line than torch's that unpack into the folders of one of torch's line: the last
    one wins."""
    if odd := together.of_another_cuda((pin.name for pin in wheels), choice):
        name, other = odd
        assert choice.cuda is not None
        version = next(pin.version for pin in wheels if pin.name == name)
        twin = together.twin(name, str(choice.cuda.major))
        raise UsageError(
            f"{name} {version} belongs to CUDA {other}, torch {choice.torch} to CUDA {choice.cuda}: "
            f"its files have the same paths as those of {twin}",
            f"ask for {twin}, or drop what needs {name}",
        )
