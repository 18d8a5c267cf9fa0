"""A spec to a lock: the facts choose the versions, uv finds the closure of wheels and their hashes, and apt-get that of
Debian packages, side by side."""

from __future__ import annotations

import functools
import platform
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag
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
from envkit.plan.wheels import (
    MANYLINUX,
    Guess,
    Package,
    Say,
    TargetPlatform,
    Uv,
    closure,
    fits,
    for_target,
    layered,
    of_any_age,
    pins_of,
    ranks_of,
    requirers,
    upto,
    uv_version,
    wheel_of,
)
from envkit.records import dataclass
from envkit.system import files, proc
from envkit.system.no_room import NoRoom
from envkit.versions import Glibc, Python

_LOOKED_EVERY_S = 0.2


def _guess(spec: Spec, facts: Facts, kept: tuple[Pin, ...]) -> Guess | None:
    """What a lock of ``spec`` is likely to take, by uv's cache alone; None where that does not hold all of it."""

    def solver(choice: Choice, spec: Spec) -> together.Ask:
        return partial(_ask, choice, spec, whole=True, kept=kept, flags=("--offline",))

    try:
        chosen = together.likely(spec, facts, solver)
        place, wanted = _place(spec, chosen.choice), _wanted(chosen.choice)
        answer = chosen.releases
        if not (isinstance(answer, _Answer) and _same(answer, wanted)):
            answer = solver(chosen.choice, spec)(chosen.choice.requirements, chosen.bounds)
        assert isinstance(answer, _Answer)
        pins, newest = pins_of(answer.packages, place)
    except (EnvkitError, OSError):
        return None

    def rest() -> tuple[Pin, ...]:
        with files.scratch("lock") as folder:
            return layered(Uv(folder, place), wanted, pins)

    return Guess(wanted, place, answer.packages, newest, proc.beside(rest))


def _wanted(choice: Choice) -> dict[str, tuple[str, ...]]:
    """The requirements of a choice by flavor."""
    return {"runtime": choice.requirements, **choice.extras.wheels}


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
    on_start: Callable[[], None] = lambda: None,
) -> Mapping[str, Release]:
    """``together.Ask`` by uv, for the place of ``choice``; a release of ``kept`` is taken again where it still fits.

    A ``whole`` question about the torch of ``choice`` alone is about the wheels of all flavors, so that the lock has no
    other to ask.
    """
    place, wanted = _place(spec, choice), {"runtime": tuple(requirements)}
    if whole and not alone and {*choice.requirements} == {*requirements}:
        wanted |= choice.extras.wheels
    every = upto(wanted, locks.FLAVORS[-1])
    target = (*for_target(place), *of_any_age(wanted, place), *flags)
    with files.scratch("lock") as folder:
        uv = Uv(folder, place, built, on_start)
        held = () if alone else kept
        packages = uv.compile("together", every, *target, kept=held, constraints=tuple(constraints), alone=alone)
    ranks, found = ranks_of(place.python, place.machine, place.glibc), []
    for package in packages:
        try:
            pin, uploaded = wheel_of(package, ranks)
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
        ranks = ranks_of(python, spec.platform.machine, glibc)
        held, named = old.sources if old else (), indexes.of(spec.index, spec.extra_index)
        resolve, kept = partial(build_tools, named), cache or files.cache_dir()
        return Sources(python, spec.before, partial(fits, ranks), resolve, kept, say, held, named)

    return at


def build_tools(named: Indexes, python: Python, lines: Sequence[str], before: str) -> tuple[Pin, ...]:
    """``sources.Resolve``: the wheels that a build on this machine needs."""
    machine, glibc = platform.machine(), Glibc(platform.libc_ver()[1] or f"2.{MANYLINUX[0]}")
    place = TargetPlatform(python, machine, glibc, before=before, indexes=named)
    with files.scratch("lock") as folder:
        packages = Uv(folder, place).compile("tools", tuple(lines), *for_target(place))
    ranks = ranks_of(python, machine, glibc)
    return tuple(wheel_of(package, ranks)[0] for package in packages)


def tools(spec: Spec, made: Lock, facts: Facts, lines: Sequence[str]) -> tuple[Pin, ...]:
    """The wheels that requirements come to beside the torch of ``made``, without those that ``made`` holds; of what the
    lock holds the same release is taken where it fits."""
    place = replace(place_of(spec, made, glibc_of(made, facts)), overrides=(), before=spec.before)
    with files.scratch("lock") as folder:
        bounds = (f"torch=={made.torch}",)
        packages = Uv(folder, place).compile(
            "tools", tuple(lines), *for_target(place), kept=made.wheels, constraints=bounds
        )
    ranks = ranks_of(place.python, place.machine, place.glibc)
    held = {(pin.name, pin.version) for pin in locks.torch_alone(made).wheels}
    pins = [wheel_of(package, ranks)[0] for package in packages]
    return tuple(pin for pin in pins if (pin.name, pin.version) not in held)


def glibc_of(made: Lock, facts: Facts) -> Glibc:
    """The glibc of a lock's system; the oldest that the facts know for one that they do not."""
    known = {row.name: row.glibc for row in facts.oses}
    return known.get(made.os) or min(known.values())


def takes(made: Lock, glibc: Glibc, tags: Iterable[Tag]) -> bool:
    """Whether an installer in an image of the lock would take a wheel with these tags."""
    ranks = ranks_of(made.python, Platform(made.platform).machine, glibc)
    return any(tag in ranks for tag in tags)


def _place(spec: Spec, choice: Choice) -> TargetPlatform:
    named = indexes.of(spec.index, spec.extra_index)
    ranks = ranks_of(spec.python, spec.platform.machine, choice.glibc)
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
    meanwhile: Callable[[], None] = lambda: None,
    afterwards: Callable[[Callable[[], None]], None] = lambda each: each(),
) -> Lock:
    """The lock that answers ``spec`` today.

    ``base`` tells what the Debian packages of a choice are solved against; it is asked in a thread while uv solves, for
    a registry that is not in reach takes its time to say so.  What ``previous`` pins stays where it still fits:
    ``upgrade`` names wheels and Debian packages to solve again, all of them if it is empty.  Where none of the system
    is to be solved again and no base is at hand, or a less firm one, it stays as ``previous`` has it.  The Debian
    archive's lists are kept under ``cache``.

    A lock that leaves one of lock.PARTS open, or holds it less firmly than ``previous``, is refused unless
    ``may_stay_open`` names the part; ``warn``, by default ``say``, is told what it leaves open.  ``meanwhile`` is
    called while uv solves; ``afterwards`` gets what says which wheels are not the newest, which uv still finds out, and
    calls it, by default at once.
    Raises Unsatisfiable or UsageError when nothing can answer or the spec forbids such a lock, Undecided when the
    package index, the base or the Debian archive could not be had.
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
    asked = threading.Event()  # what is done beside uv would keep it from starting

    def choose() -> tuple[Spec, together.Chosen]:
        try:
            return _chosen(spec, facts, partial(_asker, beside, built_at, asked.set), of_lock, say)
        finally:
            asked.set()

    choosing = proc.beside(choose)
    while not asked.wait(_LOOKED_EVERY_S):  # in steps, so that a signal is seen
        pass
    guessed = proc.beside(partial(_guess, likely, facts, beside))
    # Nearly always they are those of the newest torch, and take as long as the wheels.
    begun = begin(likely, guess) if guess.suite or "os" in may_stay_open else None
    meanwhile()
    spec, chosen = choosing()
    choice = chosen.choice
    say(f"torch {choice.torch} for {choice.built_for} on {choice.image}")
    extras = choice.extras
    if not choice.suite and any(extras.apt.values()) and "os" not in may_stay_open:
        raise _open(_no_debian(choice), {"os"}, may_stay_open, previous)  # before any work
    place, built = _place(spec, choice), built_at(spec.python, choice.glibc)
    wanted = _wanted(choice)
    stays = {pin.name for pin in kept}
    kept += tuple(Pin(one.name, one.version, "", "") for one in chosen.releases.values() if one.name not in stays)
    # what takes longest starts first
    before = chosen.releases.packages if isinstance(chosen.releases, _Answer) and _same(chosen.releases, wanted) else ()
    solved = proc.beside(
        partial(closure, wanted, place, say, kept=kept, bounds=chosen.bounds, built=built, solved=before, guess=guessed)
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
        named = _named(spec, extras)
        wheels = tuple(pin for pin in wheels if pin.name in named or pin.name not in held)
    if spec.cpu:
        cpu.refuse_cuda(wheels, spec.platform.machine, lambda: requirers(upto(wanted, locks.FLAVORS[-1]), place))
        for line in cpu.doubtful(wheels, facts):
            (warn or say)(line)
    _one_line(choice, wheels)
    afterwards(partial(_said_held_back, behind, warn or say))
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
    spec: Spec, facts: Facts, solver: together.Solver, held: Python | None, say: Say
) -> tuple[Spec, together.Chosen]:
    """What is chosen, and the spec with the Python for which: the first of `settled` that has wheels of all."""
    refused: Unsatisfiable | None = None
    files_of = functools.cache(partial(cpu.in_reach, indexes.of(spec.index, spec.extra_index)))
    for one in settled(spec, facts, held):
        try:
            choose = partial(cpu.choose, files=files_of, fits=partial(_takes, one)) if one.cpu else together.choose
            chosen = choose(one, facts, solver, say)
        except Unsatisfiable as error:
            if not spec.any_python:
                raise
            refused = refused or error
            say(f"Python {one.python} will not do: {error.message}")
            continue
        except together.Unreached as error:
            if refused is None:
                raise
            say(f"Python {one.python} will not do: {error.message}")
            continue
        if spec.any_python:
            say(f"Python {one.python} of {chosen.choice.os or chosen.choice.image}, as `python` is auto")
        return one, chosen
    assert refused is not None
    raise refused


def _takes(spec: Spec, choice: Choice, file: str) -> bool:
    return fits(ranks_of(spec.python, spec.platform.machine, choice.glibc), file)


def _asker(
    kept: tuple[Pin, ...], built_at: _BuiltAt, on_start: Callable[[], None], choice: Choice, spec: Spec
) -> together.Ask:
    built = built_at(spec.python, choice.glibc)
    return partial(_ask, choice, spec, whole=True, kept=kept, built=built, on_start=on_start)


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
        uv = Uv(folder, replace(place, backend="", constraints=(), overrides=(), before="", given={}))
        # the files of one release stay the same, so that a page of any age names them
        (package,) = uv.again("installer", (f"uv=={uv_version()}",), *for_target(place))
    pin, _ = wheel_of(package, ranks_of(place.python, place.machine, place.glibc))
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
