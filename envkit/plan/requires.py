"""Who requires whom in a lock, and who asked for it.

A lock holds releases and hashes alone, so uv is asked about exactly these releases; what a wheel's METADATA asks of
another (its bounds) comes from the package index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envkit.errors import Undecided, UsageError, nearest, one_line
from envkit.facts import Facts
from envkit.facts.derived import environment, requirements
from envkit.plan import given, solve, sources, wheels
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock, Pin
from envkit.plan.sources import Say
from envkit.plan.spec import Base, Platform, Spec
from envkit.records import dataclass
from envkit.system import files, proc

if TYPE_CHECKING:
    from envkit.system.index import Index

_MOST = 12  # requirers of one package whose METADATA is read


@dataclass(frozen=True, slots=True)
class Member:
    """A wheel of a lock: ``asked`` are the requirements of the spec that name it, torch's key as one of them, ``by``
    the names of those whose METADATA asks for it."""

    pin: Pin
    asked: tuple[str, ...]
    by: tuple[str, ...]


def members(lock: Lock, spec: Spec, facts: Facts, say: Say) -> dict[str, Member]:
    """The wheels of ``lock``, which lies beside ``spec``, by name, with who asks for them.

    Those that no index has are read as a build takes them.  Raises Undecided where uv's cache does not have the answer
    and the package index cannot be asked.
    """
    place = solve.place_of(spec, lock, solve.glibc_of(lock, facts))
    wished: dict[str, list[str]] = {"torch": [_of_torch(lock)]}
    for line in _texts(lock, "packages"):
        wished.setdefault(_name(line), []).append(line)
    del wished["torch"][1:]  # what else the spec's files ask of torch is a part of what was solved
    lines = [f"{pin.name}=={pin.version}" for pin in lock.wheels]
    lines += [line for name, asked in wished.items() if name != "torch" for line in asked]  # for their extras
    lines += [f"torch=={lock.torch}"] if lock.base == Base.PYTORCH else []
    try:
        with files.scratch("requires") as folder:
            given.gather(spec.given, folder)
            sources.gather(lock, folder, files.cache_dir(), say, place.indexes, again=sources.stand_in)
            here = {pin.name: folder / pin.file for pin in lock.wheels if (folder / pin.file).is_file()}
            found = wheels.requirers(lines, replace(place, given=here))
    except UsageError as error:
        raise Undecided(
            f"who requires whom is not known: {error.message}", "lock again, if the index has lost a release"
        ) from error
    return {pin.name: Member(pin, tuple(wished.get(pin.name, ())), found.get(pin.name, ())) for pin in lock.wheels}


def _texts(lock: Lock, key: str) -> tuple[str, ...]:
    found = lock.wish.get(key, ())
    return found if isinstance(found, tuple) else (found,)


def _of_torch(lock: Lock) -> str:
    return f"torch {lock.wish.get('torch', '')}"


def _name(line: str) -> str:
    return canonicalize_name(Requirement(line).name)


def asks(index: Index, pin: Pin, name: str, lock: Lock) -> str:
    """What the METADATA of ``pin`` asks of ``name``, as requirements without markers; those for extras only where there
    are no others.  Raises Undecided where the index has not got the wheel."""
    file = next((one for one in index.files(pin.name) if one.name == pin.file), None)
    if file is None:
        raise Undecided(f"{pin.file} is not on the package index that was asked", "")
    place = environment(Platform(lock.platform).machine, str(lock.python))
    plain, of_extras = [], []
    for one in requirements(index.metadata(file)):
        if canonicalize_name(one.name) != name:
            continue
        marker, one.marker = one.marker, None
        if marker is None or marker.evaluate(dict(place)):
            plain.append(str(one))
        elif "extra" in str(marker):
            of_extras.append(f"{one} for an extra")
    return ", ".join(dict.fromkeys(plain or of_extras))


def bounds(held: Mapping[str, Member], name: str, lock: Lock, index: Index) -> tuple[dict[str, str], str]:
    """What each requirer of ``name`` asks of it, and why that is not known of some, "" where it is known of all."""
    wanted = [held[each].pin for each in held[name].by if each in held][:_MOST]
    working = {pin.name: proc.beside(partial(asks, index, pin, name, lock)) for pin in wanted}
    found, why = {}, ""
    for each, done in working.items():
        try:
            found[each] = done()
        except (Undecided, OSError) as error:
            why = error.message if isinstance(error, Undecided) else str(error)
    return found, why


def paths(held: Mapping[str, Member], name: str) -> tuple[tuple[str, ...], ...]:
    """For each that requires ``name``, the shortest way from it to what nobody requires or somebody asked for."""
    return tuple(_way(held, each, name) for each in held[name].by if each in held)


def _way(held: Mapping[str, Member], start: str, but: str) -> tuple[str, ...]:
    ways: list[tuple[str, ...]] = [(start,)]
    seen = {start, but}
    for way in ways:  # grows as it is read: the nearest come first
        above = [each for each in held[way[-1]].by if each in held]
        if held[way[-1]].asked or not above:
            return way
        further = [each for each in above if each not in seen]
        seen.update(further)
        ways += [(*way, each) for each in further]
    return (start,)  # all ways from it lead back


def roots(held: Mapping[str, Member]) -> Iterator[tuple[str, tuple[Member, ...]]]:
    """Where a tree begins: what the spec asks for, then what each flavor brings besides; those of a circle that nobody
    else requires begin one too."""
    asked = [member for member in held.values() if member.asked]
    yield "", tuple(sorted(asked, key=lambda one: (one.pin.name != "torch", one.pin.name)))
    reached = _below(held, {one.pin.name for one in asked})
    for flavor in locks.FLAVORS:
        tops = []
        rest = [one for one in held.values() if one.pin.layer == flavor and not one.asked]
        for member in sorted(rest, key=lambda one: (any(by in held for by in one.by), one.pin.name)):
            if member.pin.name not in reached:
                tops.append(member)
                reached |= _below(held, {member.pin.name})
        if tops:
            yield flavor, tuple(tops)


def _below(held: Mapping[str, Member], names: Iterable[str]) -> set[str]:
    needs, found, ahead = needed(held), set(names), list(names)
    while ahead:
        new = set(needs.get(ahead.pop(), ())) - found
        found |= new
        ahead += sorted(new)
    return found


def needed(held: Mapping[str, Member]) -> dict[str, tuple[str, ...]]:
    """What each wheel requires of the others."""
    found: dict[str, list[str]] = {name: [] for name in held}
    for name, member in sorted(held.items()):
        for by in member.by:
            if by in held:
                found[by].append(name)
    return {name: tuple(each) for name, each in found.items()}


def tree(held: Mapping[str, Member], depth: int | None = None) -> Iterator[str]:
    """The lines of the tree, an indentation a step; what stands in full further up is marked ``(*)``.

    ``depth`` is how many steps below its roots are shown, None for all.
    """
    needs, shown = needed(held), set[str]()

    def below(name: str, steps: int) -> Iterator[str]:
        member = held[name]
        cut = name in shown or (depth is not None and steps >= depth)
        mark = " (*)" if cut and needs[name] else ""
        asked = [line for line in member.asked if line != name and not steps]
        said = f"  [{', '.join(asked)}]" if asked else ""
        yield f"{'  ' * steps}{name} {member.pin.version}{mark}{said}"
        if not cut:
            shown.add(name)
            for each in needs[name]:
                yield from below(each, steps + 1)

    for flavor, tops in roots(held):
        if flavor:
            yield f"besides, for {'every image' if flavor == 'runtime' else f'the flavor {flavor}'}:"
        for member in tops:
            yield from below(member.pin.name, 0)


def because(held: Mapping[str, Member], name: str, asked: Mapping[str, str]) -> Iterator[str]:
    """Why a wheel is in the lock, a clause each; ``asked`` is what its requirers ask of it, as far as it is known."""
    member = held[name]
    for line in member.asked:
        yield f"the spec asks for {line}"
    for way in paths(held, name):
        steps = [f"{way[0]} {held[way[0]].pin.version} needs {asked.get(way[0]) or name}"]
        steps += [f"{upper} needs {lower}" for lower, upper in pairwise(way)]
        top = held[way[-1]]
        if top.asked or not top.by:
            steps.append(f"and {f'the spec asks for {top.asked[0]}' if top.asked else _added(top.pin)}")
        yield ", ".join(steps)
    if not member.asked and not member.by:
        yield _added(member.pin)


def _added(pin: Pin) -> str:
    where = "every image" if pin.layer == "runtime" else f"images of flavor {pin.layer}"
    return f"envkit adds {pin.name} to {where}"


def because_of_deb(lock: Lock, name: str) -> str:
    """Why a Debian package is in the lock, a clause; apt-get does not say who brings one that nobody named."""
    deb = next(deb for deb in lock.debs if deb.name == name)
    layers = [layer for layer, asked in lock.apt.items() if name in {each.partition("=")[0] for each in asked}]
    own = {each.partition("=")[0] for each in _texts(lock, "apt")}
    if name in own:
        return f"the spec asks for {name} in `apt`"
    if layers:
        return f"envkit adds {name} to the layer {layers[0]}"
    listed = ", ".join(lock.apt.get(deb.layer, ())) or "what is below it"
    return f"apt-get takes it in the layer {deb.layer} for {listed}"


def in_lock(lock: Lock, written: str) -> str:
    """The canonical name of a wheel, or the name of a Debian package, of the lock.

    Raises UsageError with the nearest name for one that it does not contain.
    """
    wheels, debs = {pin.name for pin in lock.wheels}, {deb.name for deb in lock.debs}
    try:
        name = _name(written)
    except ValueError:  # of packaging: no requirement
        name = ""
    for known in (name if name in wheels else "", written if written in debs else ""):
        if known:
            return known
    if name == lock.installer.name:
        raise UsageError(
            f"{name} {lock.installer.version} only installs the other wheels: it is no part of the image",
            "name a package that the image contains",
        )
    if lock.preinstalled:
        brought = f"the base {lock.image} may bring it, and `envkit audit` lists what an image contains"
    else:
        brought = "`envkit tree` lists its wheels"
    raise UsageError(
        f"the lock contains no {one_line(written)}{nearest(name or written, sorted(wheels | debs))}", brought
    )
