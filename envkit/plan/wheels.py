"""The wheels that requirements come to on a target, as uv solves them: each with its hash, its layer and its files for
other platforms."""

from __future__ import annotations

import functools
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from envkit.errors import Undecided, Unsatisfiable, UsageError
from envkit.plan import given
from envkit.plan import lockfile as locks
from envkit.plan.indexes import Indexes
from envkit.plan.lockfile import Pin
from envkit.plan.sources import Sources
from envkit.plan.spec import Platform
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
MANYLINUX = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)


# A line of a pylock, as uv writes it, that is one wheel of several: the one Python that it is for, if there is one (a
# "cp311-cp311" in its name), and the platforms at the name's end.
_WHEEL_LINE = re.compile(
    r'^ +\{ url = "[^"\n]*?(?:-cp(?P<python>[0-9]+)-cp(?P=python))?-(?P<platforms>[^"/\n-]*)\.whl", .*\},\n',
    re.MULTILINE,
)


def uv_version() -> str:
    """The version of that uv."""
    said = proc.run([proc.uv_path(), "--no-config", "--version"], timeout_s=30)
    match = re.search(r"uv (\S+)", said.stdout)
    if said.exit != 0 or not match:
        raise Undecided(f"uv does not report its version: {said.stderr.strip()[-200:]}", "install uv again")
    return match[1]


def platform_tag(machine: str, glibc: Glibc) -> str:
    """uv's name for Linux on ``machine`` with ``glibc``: the newest manylinux it knows that is not newer."""
    fitting = [minor for minor in MANYLINUX if (2, minor) <= (glibc.major, glibc.minor)]
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
    guess: Callable[[], Guess | None] = lambda: None,
) -> tuple[tuple[Pin, ...], int]:
    """Every wheel that the requirements of all layers need together, and the newest upload time among them.

    ``wanted`` are requirements by flavor; a wheel is of the first flavor that needs it.  A release of ``kept`` is taken
    again where it still fits, and ``bounds`` hold for all that is taken; without ``built`` only what has a wheel on the
    index is.  ``solved`` is uv's answer to the same question where it was asked before, and ``guess`` what was found
    for a likely one.  The pins are in a lock's order; the time is in seconds since 1970, 0 if the index gives none.
    Raises Unsatisfiable when no set of wheels meets the spec and Undecided when the index could not be asked.
    """
    every = upto(wanted, locks.FLAVORS[-1])
    if not every:
        return (), 0
    say(f"solving {len(every)} requirements for Python {place.python} on {place.machine}")
    with files.scratch("lock") as folder:
        uv = Uv(folder, place, built)
        target = (*for_target(place), *of_any_age(wanted, place))
        packages = solved or uv.compile("all", every, *target, kept=kept, constraints=bounds)
        likely = guess()
        if likely and (likely.wanted, likely.place, likely.packages) == (wanted, place, packages):
            return likely.layered(), likely.newest
        pins, newest = pins_of(packages, place)
        return layered(uv, wanted, pins), newest


@dataclass(frozen=True, slots=True)
class Guess:
    """What uv's cache answers for ``wanted`` at ``place``: in a tenth of the time that the index takes, and nearly
    always the same.  ``layered`` waits for the pins that follow from it, ``newest`` is their newest upload time."""

    wanted: Mapping[str, tuple[str, ...]]
    place: TargetPlatform
    packages: Sequence[Package]
    newest: int
    layered: Callable[[], tuple[Pin, ...]]


def pins_of(packages: Iterable[Package], place: TargetPlatform) -> tuple[tuple[Pin, ...], int]:
    """The pins of uv's packages, and the newest upload time among them."""
    ranks, newest, pins = ranks_of(place.python, place.machine, place.glibc), 0, []
    for package in packages:
        pin, uploaded = wheel_of(package, ranks)
        pins.append(pin)
        newest = max(newest, uploaded)
    return tuple(pins), newest


def layered(uv: Uv, wanted: Mapping[str, tuple[str, ...]], pins: Sequence[Pin]) -> tuple[Pin, ...]:
    """The pins of all that is wanted, in a lock's order, each with its layer and its wheels for other platforms.

    The index was asked for these a moment ago, so that uv's cache holds every answer.
    """
    flags = (*for_target(uv.place), *of_any_age(wanted, uv.place))
    exact = tuple(f"{pin.name}=={pin.version}" for pin in pins)
    elsewhere = proc.beside(partial(_elsewhere, uv, pins))
    lines_of = {flavor: upto(wanted, flavor) for flavor in locks.FLAVORS}
    most = len(lines_of[locks.FLAVORS[-1]])
    asked = {lines: flavor for flavor, lines in lines_of.items() if lines and len(lines) < most}
    rows = {
        lines: proc.beside(partial(uv.again, flavor, lines, *flags, constraints=exact))
        for lines, flavor in asked.items()
    }
    below = {lines: {canonicalize_name(str(one.get("name"))) for one in each()} for lines, each in rows.items()}
    others = elsewhere()

    def layer(pin: Pin) -> str:
        for flavor, lines in lines_of.items():
            if pin.name in below.get(lines, ()) or len(lines) == most:
                return flavor
        raise AssertionError("the last flavor holds all")

    return locks.in_order(replace(pin, layer=layer(pin), others=others.get(pin.name, ())) for pin in pins)


def of_any_age(wanted: Mapping[str, tuple[str, ...]], place: TargetPlatform) -> tuple[str, ...]:
    """What tells uv that the day in ``place`` does not count for envkit's own tools, whose releases are facts."""
    if not place.before:
        return ()
    asked, *tools = ({Requirement(line).name for line in wanted.get(flavor, ())} for flavor in locks.FLAVORS)
    return tuple(
        word for name in sorted(set().union(*tools) - asked) for word in ("--exclude-newer-package", f"{name}=false")
    )


def upto(wanted: Mapping[str, tuple[str, ...]], flavor: str) -> tuple[str, ...]:
    """The requirements of a flavor and of those below it."""
    held = locks.FLAVORS[: locks.FLAVORS.index(flavor) + 1]
    return tuple(line for each in held for line in wanted.get(each, ()))


def for_target(place: TargetPlatform) -> tuple[str, str]:
    return "--python-platform", platform_tag(place.machine, place.glibc)


@dataclass(frozen=True, slots=True)
class Uv:
    """uv's resolver for one place; its questions and answers are files in ``folder``."""

    folder: Path
    place: TargetPlatform
    built: Sources | None = None
    on_start: Callable[[], None] = lambda: None
    budget_s: float = _BUDGET_S

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
        asked = (*requirements, *constraints, *self.place.constraints, *self.place.overrides)
        while True:
            state = self.built.state if self.built else 0
            links = self.built.links(self.folder) if self.built and not alone else ()
            try:
                packages = self.once(
                    name, requirements, *flags, *links, kept=kept, constraints=constraints, alone=alone
                )
            except Unsatisfiable as error:
                if not self.built or alone or not (self.built.offer(error.chain, asked) or self.built.state != state):
                    raise
                continue
            if not self.built or alone:
                return packages
            once = partial(self.once, name, requirements, *flags, *links, kept=kept)
            newer = self._none_passed_over(packages, lambda pin: once(constraints=(*constraints, pin)), asked)  # noqa: B023
            if newer is not None and not self.built.build(newer):
                return newer

    def _none_passed_over(
        self, packages: list[Package], ask: Callable[[str], list[Package]], asked: tuple[str, ...]
    ) -> list[Package] | None:
        """The answer, or one with newer releases of what was built; None where ``built`` has more to offer now."""
        assert self.built
        while pin := self.built.passed_over(packages):
            try:
                packages = ask(pin)
            except Unsatisfiable as error:
                if self.built.offer(error.chain, asked):
                    return None
                self.built.settle(pin, error)
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
        others = tuple(each.machine for each in Platform if each.machine != self.place.machine)
        machines = others if "--universal" in flags else (self.place.machine,)
        return _packages(answer.read_text(encoding="utf-8"), str(self.place.python).replace(".", ""), machines)

    def requirers(self, requirements: tuple[str, ...], *flags: str) -> dict[str, tuple[str, ...]]:
        """Who requires each distribution that ``requirements`` come to, by name; from uv's cache where it can."""
        answer = self.folder / "requirers.txt"
        flags = (*flags, "--annotate", "--annotation-style", "line")
        cache_first(lambda *offline: self._compile("requirers", requirements, answer, (*flags, *offline)))
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
        done = proc.run(argv, timeout_s=self.budget_s, env=env, on_start=self.on_start)
        if done.timed_out:
            raise Undecided(
                f"the package index did not answer within {self.budget_s:.0f} s", "check the network, try again"
            )
        if done.exit != 0:
            if REFUSED.search(done.stderr) and (error := self.place.indexes.refused(done.stderr)):
                raise error
            raise failure(done, (str(self.folder), os.environ.get("TMPDIR", ""), uv_cache()))

    def again(
        self, name: str, requirements: tuple[str, ...], *flags: str, constraints: tuple[str, ...] = ()
    ) -> list[Package]:
        """The same of what was just asked: from the cache, and from the index if the cache may not be used."""
        return cache_first(lambda *offline: self.compile(name, requirements, *flags, *offline, constraints=constraints))


@functools.lru_cache(maxsize=4)
def _packages(pylock: str, python: str, machines: tuple[str, ...]) -> list[Package]:
    """The packages of a pylock, without wheels that ``python`` ("311") takes on none of the ``machines``; the index and
    the cache nearly always answer the same."""
    found = tomllib.loads(_WHEEL_LINE.sub(partial(_may_fit, python, machines), pylock)).get("packages", [])
    return [package for package in found if isinstance(package, dict)]


def cache_first(ask: Callable[..., Got]) -> Got:
    """What uv answers from its cache; what it answers with the index if that is not enough."""
    try:
        return ask("--offline")
    except NoRoom:
        raise
    except (Unsatisfiable, Undecided):
        return ask()


def requirers(requirements: Sequence[str], place: TargetPlatform) -> dict[str, tuple[str, ...]]:
    """Who requires each distribution that ``requirements`` come to, by name; raises what ``closure`` does."""
    with files.scratch("lock") as folder:
        return Uv(folder, place).requirers(tuple(requirements), *for_target(place))


def uv_cache() -> str:
    """Where uv keeps what it downloads (its documentation: UV_CACHE_DIR, XDG_CACHE_HOME/uv, ~/.cache/uv)."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return os.environ.get("UV_CACHE_DIR") or str(Path(root, "uv"))


def _elsewhere(uv: Uv, pins: Iterable[Pin]) -> dict[str, tuple[tuple[str, str], ...]]:
    """By distribution, the wheels of the same releases that this Python takes on the other platforms; a wheel for any
    platform is taken there too, so that of its release no other is looked for."""
    exact = tuple(f"{pin.name}=={pin.version}" for pin in pins if not pin.file.endswith("-any.whl"))
    if not exact:
        return {}
    try:
        packages = uv.again("others", exact, "--universal", "--no-deps")
    except Unsatisfiable:
        return {}  # a lock is none the worse for this platform
    own = {pin.name: pin for pin in pins}
    place = uv.place
    machines = [each.machine for each in Platform if each.machine != place.machine]
    elsewhere = [ranks_of(place.python, machine, place.glibc) for machine in machines]
    found: dict[str, dict[str, str]] = {}
    for package in packages:
        name = canonicalize_name(str(package.get("name")))
        for ranks in elsewhere:
            try:
                pin, _ = wheel_of(package, ranks)
            except UsageError:
                continue  # it has none there
            if name in own and pin.version == own[name].version and pin.file != own[name].file:
                found.setdefault(name, {})[pin.file] = pin.sha256
    return {name: tuple(sorted(files.items())) for name, files in found.items()}


@functools.cache
def ranks_of(python: Python, machine: str, glibc: Glibc) -> Mapping[Tag, int]:
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


def _may_fit(python: str, machines: tuple[str, ...], line: re.Match[str]) -> str:
    """The line if an image could take its wheel: most are for another system, machine or Python, and reading them as
    TOML is half of what a large lock costs this process."""
    exact, platforms = line["python"], line["platforms"].split(".")
    if exact and exact != python:
        return ""
    fits = any(
        each == "any" or (each.startswith(("manylinux", "linux_")) and each.endswith(machines)) for each in platforms
    )
    return line[0] if fits else ""


def wheel_of(package: Mapping[str, object], ranks: Mapping[Tag, int]) -> tuple[Pin, int]:
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


def fits(ranks: Mapping[Tag, int], file: str) -> bool:
    """Whether a wheel of this name is one that an installer would take."""
    return any(tag in ranks for tag in parse_wheel_filename(file)[3])
