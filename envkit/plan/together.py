"""Torch and what was asked for beside it, chosen together: the facts give the torch releases, the solver the rest.

Torch is free among the releases that the facts allow, and what was asked for comes first: the solver tries the newest
of it, and takes the torch that this needs.  Three things the solver does not know are held to here: which torchvision
and torchaudio go with which torch where their METADATA does not say, that a pre-release is taken only where one was
asked for, and that nobody who asks for a package means a release from years before the torch beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envkit.errors import EnvkitError, Undecided, Unsatisfiable
from envkit.facts import Facts
from envkit.facts.pairs import goes_with
from envkit.plan.resolve import Choice, feasible
from envkit.plan.spec import Spec, TorchWish
from envkit.versions import Torch

Say = Callable[[str], None]

_YEARS_S = 2 * 365 * 86400  # a release that is older than its torch by more was made for another torch
_TRIES = 12  # solves of one group; each answers in about a second
_MOST_REASONS = 3


class Unreached(Undecided):
    """An index that is asked does not answer."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release that the solver took; ``uploaded`` in seconds since 1970, 0 where the index does not say; ``wheel``:
    whether it has one for the target."""

    name: str
    version: str
    uploaded: int = 0
    wheel: bool = True


class Ask(Protocol):
    """The solver, for one place: the releases that requirements come to under constraints, by normalised name.

    With ``alone`` those of the requirements themselves, as if they needed nothing, and also as source.  Raises
    Unsatisfiable, Unreached and Undecided.
    """

    def __call__(
        self, requirements: Sequence[str], constraints: Sequence[str] = (), *, alone: bool = False
    ) -> Mapping[str, Release]: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen: ``releases`` as the solver found them and ``bounds`` under which, both empty where nothing was
    asked for besides torch; ``over`` are the choices that it was chosen from."""

    choice: Choice
    releases: Mapping[str, Release] = field(default_factory=dict)
    bounds: tuple[str, ...] = ()
    over: tuple[Choice, ...] = ()


def choose(spec: Spec, facts: Facts, solver: Callable[[Choice], Ask], say: Say) -> Chosen:
    """The choice that lets what ``spec`` asks for be newest.

    Builds that only an index out of reach has are left out, and it is said.  Raises what ``resolve`` raises;
    Unsatisfiable, with the nearest changes, where the requirements go with no torch that the facts allow; and Undecided
    where no index answers.
    """
    choices = tuple(feasible(spec, facts)) if _asked(spec) else (next(feasible(spec, facts)),)
    if not _asked(spec) or choices[0].row is None:
        return Chosen(choices[0])
    refused: EnvkitError | None = None
    closed = False
    for group in _groups(choices):
        if closed and group[0].backend:
            continue
        try:
            return _among(spec, group, facts, solver(group[0]))
        except Unreached as error:
            if not group[0].backend or len(choices) == len(group):
                raise refused or error from None
            closed = True
            say(f"PyTorch's own index is not in reach, so its builds for {group[0].backend} are left out")
            refused = refused or error
        except Unsatisfiable as error:
            refused = error
    assert refused is not None
    if isinstance(refused, Unsatisfiable) and not refused.nearest:
        refused.nearest = tuple(_nearest(spec, facts, solver))
        if refused.nearest:
            refused.fix = "choose one of the nearest, or change the spec"
    raise refused


def _asked(spec: Spec) -> list[Requirement]:
    """What the spec asks for besides torch."""
    every = [Requirement(text) for text in spec.packages]
    return [one for one in every if canonicalize_name(one.name) != "torch"]


def _groups(choices: Iterable[Choice]) -> list[tuple[Choice, ...]]:
    """The choices that one question to the solver can be about, in the order of their newest."""
    groups: dict[tuple[object, ...], list[Choice]] = {}
    for choice in choices:
        groups.setdefault((choice.backend, choice.glibc, choice.preinstalled), []).append(choice)
    return [tuple(group) for group in groups.values()]


def _torch(choices: Sequence[Choice], facts: Facts) -> str:
    """The requirement that admits the releases of ``choices`` and none between them that the facts know."""
    held = sorted(Torch(str(choice.torch)) for choice in choices)
    if len(held) == 1:
        return next(line for line in choices[0].requirements if Requirement(line).name == "torch")
    known = {row.torch for row in facts.torches_all}
    between = sorted(torch for torch in known if held[0] < torch < held[-1] and torch not in held)
    return ",".join([f"torch>={held[0]}", f"<={held[-1]}", *(f"!={torch}" for torch in between)])


def _among(spec: Spec, group: tuple[Choice, ...], facts: Facts, ask: Ask) -> Chosen:
    """The best of choices that differ in torch alone."""
    by_torch = {str(choice.torch): choice for choice in group}
    asked = [line for line in group[0].requirements if canonicalize_name(Requirement(line).name) != "torch"]
    left = list(group)
    bounds: list[str] = []
    late: Unsatisfiable | None = None
    for _ in range(_TRIES):
        try:
            found = ask([*asked, _torch(left, facts)], bounds)
        except Unsatisfiable as error:
            raise late or error from None
        torch = Version(found["torch"].version).public
        choice = by_torch.get(torch)
        if choice is None:  # a release that the facts do not know
            bounds.append(f"torch!={torch}")
            continue
        if odd := _mismatched(found, Torch(torch), facts):
            fitting = [one for one in left if goes_with(odd.name, odd.version, Torch(str(one.torch)), facts)]
            if fitting:
                left = fitting
            else:
                bounds.append(f"{odd.name}!={odd.version}")
            continue
        held = _left_behind(spec, choice, found, ask)
        if held is None:
            return Chosen(choice, found, tuple(bounds), group)
        release, newest = held
        late = late or _too_old(release, newest, choice, ask, asked, _torch(group, facts))
        bounds.append(f"{release.name}>{release.version}")
    raise late or Unsatisfiable("no set of wheels satisfies the spec", (), (), "pin what was asked for")


def _mismatched(found: Mapping[str, Release], torch: Torch, facts: Facts) -> Release | None:
    """A release that the facts say is for another torch."""
    return next(
        (one for one in found.values() if goes_with(one.name, Version(one.version).public, torch, facts) is False), None
    )


def _left_behind(
    spec: Spec, choice: Choice, found: Mapping[str, Release], ask: Ask
) -> tuple[Release, Release | None] | None:
    """A release of something asked for that nobody meant, and the newest that there is."""
    for one in _asked(spec):
        release = found.get(canonicalize_name(one.name))
        if release is None or _bounded(one):
            continue
        early = Version(release.version).is_prerelease and not one.specifier.prereleases
        if not early and not _years_before(release, choice):
            continue
        newest = ask([str(one)], alone=True).get(release.name)
        if early or (newest is not None and Version(newest.version) > Version(release.version)):
            return release, newest
    return None


def _bounded(requirement: Requirement) -> bool:
    """Whether it says itself that newer releases are not wanted."""
    return any(bound.operator in ("==", "<", "<=", "~=") for bound in requirement.specifier)


def _years_before(release: Release, choice: Choice) -> bool:
    if choice.row is None or not release.uploaded:
        return False
    torch = datetime.fromisoformat(choice.row.released).replace(tzinfo=UTC).timestamp()
    return release.uploaded < torch - _YEARS_S


def _too_old(
    release: Release, newest: Release | None, choice: Choice, ask: Ask, asked: Sequence[str], torch: str
) -> Unsatisfiable:
    """The refusal of a release that nobody meant."""
    year = datetime.fromtimestamp(release.uploaded, UTC).year if release.uploaded else "an unknown year"
    kind = "pre-release" if Version(release.version).is_prerelease else "release"
    said = f"the newest {release.name} that goes with the rest of the spec is {kind} {release.version} of {year}"
    if choice.row is not None:
        said += f"; torch {choice.torch} is of {choice.row.released[:4]}"
    chain = (f"newest: {release.name} {newest.version}", _why(newest, ask, asked, torch)) if newest else ()
    fix = f"change what keeps it from being newer, or pin it: {release.name}=={release.version}"
    return Unsatisfiable(said, chain, (), fix)


def _why(wanted: Release, ask: Ask, asked: Sequence[str], torch: str) -> str:
    """What keeps ``wanted`` out, in the solver's words."""
    if not wanted.wheel:
        return f"{wanted.name} {wanted.version} has no wheel, only its source, which is built if you pin it"
    lines = [line for line in asked if canonicalize_name(Requirement(line).name) != wanted.name]
    try:
        ask([f"{wanted.name}=={wanted.version}", *lines, torch])
    except Unsatisfiable as error:
        said = (line.removeprefix("error: ").removeprefix("cause: ") for line in error.chain)
        return " ".join(line for line in said if "No solution found" not in line) or error.message
    except Undecided as error:
        return f"the index could not be asked why: {error.message}"
    return f"with {wanted.name} {wanted.version} something else that was asked for would be older"


def held_back(spec: Spec, chosen: Chosen, facts: Facts, ask: Ask, kept: frozenset[str] = frozenset()) -> Iterator[str]:
    """What was asked for and is not the newest, a sentence each with what keeps it back; of torch the same.

    Nothing is said of ``kept``, what stays because the lock before held it.
    """
    if not chosen.releases:
        return
    asked = [line for line in chosen.choice.requirements if canonicalize_name(Requirement(line).name) != "torch"]
    torch = _torch(chosen.over, facts)
    newest = ask([str(one) for one in _asked(spec)], alone=True)
    older = [
        (taken, newest[taken.name])
        for taken in chosen.releases.values()
        if taken.name in newest
        and taken.name not in kept
        and Version(newest[taken.name].version) > Version(taken.version)
    ]
    for taken, wanted in older[:_MOST_REASONS]:
        yield f"{taken.name} {taken.version} is taken and not {wanted.version}: {_why(wanted, ask, asked, torch)}"
    if len(older) > _MOST_REASONS:
        yield f"not the newest either: {', '.join(one.name for one, _ in older[_MOST_REASONS:])}"
    best = chosen.over[0]
    if best.torch != chosen.choice.torch:
        exact = [f"{one.name}=={one.version}" for one in chosen.releases.values() if one.name in newest]
        wanted = Release("torch", str(best.torch))
        yield (
            f"torch {chosen.choice.torch} for CUDA {chosen.choice.cuda} is taken and not {best.torch}: "
            f"{_why(wanted, ask, [*asked, *exact], torch)}"
        )


def _nearest(spec: Spec, facts: Facts, solver: Callable[[Choice], Ask]) -> Iterator[str]:
    """Changes of the spec after which it has a solution: another torch, or one pin less."""
    loose = tuple(
        (one.name, replace(spec, packages=tuple(one.name if text == str(one) else text for text in spec.packages)))
        for one in _asked(spec)
        if one.specifier and not one.extras
    )
    every = replace(spec, torch=TorchWish(">0"))
    for name, changed in (("torch", every), *loose[:_MOST_REASONS]):
        try:
            group = next(one for one in _groups(feasible(changed, facts)) if not one[0].backend)
            found = _among(changed, group, facts, solver(group[0]))
        except (EnvkitError, StopIteration):
            continue
        if name == "torch":
            yield f"torch {found.choice.torch} with CUDA {found.choice.cuda}"
        elif canonicalize_name(name) in found.releases:
            yield f"{name} {found.releases[canonicalize_name(name)].version}"
