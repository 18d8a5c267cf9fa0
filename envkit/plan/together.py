"""Torch and what was asked for beside it, chosen together: the facts give the torch releases, the solver the rest.

Torch is free among the releases that the facts allow, and what was asked for comes first: the solver tries the newest
of it, and takes the torch that this needs.  Three things the solver does not know are held to here: which torchvision
and torchaudio go with which torch where their METADATA does not say, that a pre-release is taken only where one was
asked for, and that nobody who asks for a package means a release from years before the torch beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envkit.errors import EnvkitError, Undecided, Unsatisfiable, UsageError
from envkit.facts import Facts
from envkit.facts.pairs import goes_with, lacks_cuda
from envkit.plan.resolve import Choice, feasible, python_said, torch_said
from envkit.plan.sources import Unbuilt
from envkit.plan.spec import Platform, Spec, TorchWish
from envkit.records import dataclass
from envkit.system import proc
from envkit.versions import Python, Torch

Say = Callable[[str], None]

_YEARS_S = 2 * 365 * 86400  # a release that is older than its torch by more was made for another torch
_TRIES = 12  # solves of one group; each answers in about a second
_MOST_REASONS = 3
_MOST_NEAREST = 4


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


Solver = Callable[[Choice, Spec], Ask]  # the solver for a choice of a spec, which may be a changed one
# The choices that one question to the solver can be about, in the order in which they are tried.
Groups = Callable[[Iterable[Choice]], list[tuple[Choice, ...]]]


_Say = Callable[["Chosen"], str]  # what is said of a solution


class Unmeant(Unsatisfiable):
    """The requirements have a solution, and nobody who wrote them meant it."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen: ``releases`` as the solver found them and ``bounds`` under which, both empty where nothing was
    asked for besides torch; ``over`` are the choices that it was chosen from."""

    choice: Choice
    releases: Mapping[str, Release] = field(default_factory=dict)
    bounds: tuple[str, ...] = ()
    over: tuple[Choice, ...] = ()


def grouped(choices: Iterable[Choice]) -> list[tuple[Choice, ...]]:
    """The choices that one question to the solver can be about, in the order of their newest."""
    groups: dict[tuple[object, ...], list[Choice]] = {}
    for choice in choices:
        groups.setdefault((choice.backend, choice.glibc, choice.preinstalled), []).append(choice)
    return [tuple(group) for group in groups.values()]


def choose(spec: Spec, facts: Facts, solver: Solver, say: Say, groups: Groups = grouped) -> Chosen:
    """The choice that lets what ``spec`` asks for be newest.

    Builds that only an index out of reach has are left out, and it is said; torch alone, if the default index has the
    newest build that fits, needs no question.  Raises what ``resolve`` raises; Unsatisfiable, with the nearest changes,
    where the requirements go with no torch that the facts allow; and Undecided where no index answers.
    """
    first = next(feasible(spec, facts))
    if first.row is None or not (_asked(spec) or first.backend):
        return Chosen(first)
    every = groups(feasible(spec, facts))
    choices = tuple(choice for group in every for choice in group)
    refused: EnvkitError | None = None
    closed = False
    for group in every:
        if closed and group[0].backend:
            continue
        try:
            return _among(spec, group, facts, solver(group[0], spec))
        except Unreached as error:
            if not group[0].backend:
                raise refused or error from None
            if all(choice.backend for choice in choices):
                raise _only_elsewhere(spec, choices, facts, error) from None
            closed = True
            if not spec.cpu:
                say(f"PyTorch's own index is not in reach, so its builds for {group[0].backend} are left out")
            refused = refused or error
        except Unsatisfiable as error:
            refused = refused if isinstance(refused, Unbuilt) else error
    assert refused is not None
    if isinstance(refused, Unsatisfiable):
        if not isinstance(refused, Unmeant):
            refused.chain = (*refused.chain, *_torch_wanted(spec, choices, facts, solver))
        refused.nearest = (*_nearest(_small(spec), facts, solver, groups), *refused.nearest)
        refused.nearest = refused.nearest or _nearest(_large(spec, facts), facts, solver, groups)
        if refused.nearest:
            refused.fix = "choose one of the nearest, or change the spec"
    raise refused


def likely(spec: Spec, facts: Facts, solver: Solver) -> Chosen:
    """What ``choose`` is likely to give: the first that fits of the choices that it tries first.

    Raises what the solver raises, and Unsatisfiable where none of these choices will do.
    """
    first = next(feasible(spec, facts))
    if first.row is None or not (_asked(spec) or first.backend):
        return Chosen(first)
    group = grouped(feasible(spec, facts))[0]
    return _among(spec, group, facts, solver(group[0], spec))


def _only_elsewhere(spec: Spec, choices: Sequence[Choice], facts: Facts, error: Unreached) -> Unreached:
    """The refusal of a spec that only builds on PyTorch's own index fit, which is out of reach: with the keys that keep
    the builds of the default index out."""
    if spec.cpu:
        return error
    cudas = " and ".join(dict.fromkeys(str(choice.cuda) for choice in choices))
    said = f"only builds for CUDA {cudas} fit the spec, which PyTorch's own index alone has: {error.message}"
    loose = {
        "cuda": replace(spec, cuda=None),
        "gpus": replace(spec, gpus=()),
        "driver": replace(spec, drivers=()),
        "torch": replace(spec, torch=TorchWish(">0")),
    }
    kept_out = [key for key, changed in loose.items() if changed != spec and not _elsewhere_alone(changed, facts)]
    fix = f", or change {' or '.join(f'`{key}`' for key in kept_out)}" if kept_out else ""
    return Unreached(said, f"{error.fix}{fix}")


def _elsewhere_alone(spec: Spec, facts: Facts) -> bool:
    """Whether no build of the default index fits ``spec``."""
    try:
        return all(choice.backend for choice in feasible(spec, facts))
    except UsageError:
        return True


def _torch_wanted(spec: Spec, choices: Sequence[Choice], facts: Facts, solver: Solver) -> tuple[str, ...]:
    """The torch that the rest of the spec goes with, and what is in its way: a line, or none where that is not the
    trouble."""
    choice = next((one for one in choices if not one.backend), choices[0])
    asked = [line for line in choice.requirements if canonicalize_name(Requirement(line).name) != "torch"]
    try:
        wanted = Version(solver(choice, spec)([*asked, "torch"])["torch"].version).public
    except EnvkitError:
        return ()
    if wanted in {str(one.torch) for one in choices}:
        return ()
    said = f"the rest of the spec goes with torch {wanted}"
    if not spec.torch.admits(Torch(wanted)):
        return (f"{said}, but `torch` is {spec.torch}",)
    try:
        next(feasible(replace(spec, torch=TorchWish(wanted)), facts))
    except UsageError as error:
        return (f"{said}, but {error.message}",)
    return ()


def _asked(spec: Spec) -> list[Requirement]:
    """What the spec asks for besides torch."""
    every = [Requirement(text) for text in spec.packages]
    return [one for one in every if canonicalize_name(one.name) != "torch"]


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
    bounds = [*group[0].others]
    late: Callable[[], Unmeant] | None = None  # it asks why, which takes seconds
    for _ in range(_TRIES):
        try:
            found = ask([*asked, _torch(left, facts)], bounds)
        except Unbuilt:
            raise
        except Unsatisfiable as error:
            raise (late() if late else error) from None
        torch = Version(found["torch"].version).public
        choice = by_torch.get(torch)
        if choice is None:  # a release that the facts do not know
            bounds.append(f"torch!={torch}")
            continue
        if _other_build(found["torch"], choice):
            bounds.append(f"torch!={found['torch'].version}")
            continue
        if odd := _mismatched(found, choice, facts):
            fitting = [one for one in left if _goes_with(odd, one, facts)]
            if fitting:
                left = fitting
            else:
                late = partial(_of_another, odd, choice, facts)
                bounds.append(f"{odd.name}!={odd.version}")
            continue
        if other := of_another_cuda(found, choice):
            fitting = [one for one in left if one.cuda and str(one.cuda.major) == other[1]]
            if fitting:  # else the lock is refused, with the name
                left = fitting
                continue
        held = _left_behind(spec, choice, found, ask)
        if held is None:
            return Chosen(choice, found, tuple(bounds), group)
        release, newest = held
        late = partial(_too_old, release, newest, choice, partial(_why, facts, ask, group), asked)
        early = Version(release.version)
        if early.is_prerelease:  # of which uv takes one where no release will do, also for want of a wheel
            bounds.append(f"{release.name}<{early.base_version}")  # no mark of a pre-release, which would allow them
        else:
            bounds.append(f"{release.name}>{release.version}")
    raise late() if late else Unsatisfiable("no set of wheels satisfies the spec", (), (), "pin what was asked for")


def _goes_with(release: Release, choice: Choice, facts: Facts) -> bool | None:
    """Whether the release is for the torch of ``choice``, None where the facts do not say."""
    version, cuda = Version(release.version).public, None if choice.backend else choice.cuda
    if (lacking := _lacks_cuda(release, choice, facts)) is not None:
        return not lacking
    return goes_with(release.name, version, Torch(str(choice.torch)), facts, cuda)


def _lacks_cuda(release: Release, choice: Choice, facts: Facts) -> bool | None:
    """Whether the release has no library for the CUDA of ``choice``; None where the facts do not say."""
    row = facts.cuda_build(release.name, Version(release.version).public)
    return None if row is None or choice.cuda is None else lacks_cuda(row, choice.cuda)


def _other_build(torch: Release, choice: Choice) -> bool:
    """Whether an index that has builds of torch for CPUs and others gave another one."""
    known = (choice.variant, None) if choice.plain else (choice.variant,)
    return choice.cuda is None and not choice.backend and Version(torch.version).local not in known


def _mismatched(found: Mapping[str, Release], choice: Choice, facts: Facts) -> Release | None:
    """A release that the facts say is for another torch."""
    return next((one for one in found.values() if _goes_with(one, choice, facts) is False), None)


def _of_another(odd: Release, choice: Choice, facts: Facts) -> Unmeant:
    """The refusal of a release that is for another torch than any that the facts allow."""
    said = f"{odd.name} {odd.version} is {_for_which(odd, choice, facts)}"
    return Unmeant(said, (), (), f"change {odd.name}, or torch")


def _for_which(odd: Release, choice: Choice, facts: Facts) -> str:
    """Which torch or which CUDA a release that is not for the torch of ``choice`` was made for."""
    version, torch = Version(odd.version).public, Torch(str(choice.torch))
    row = facts.cuda_build(odd.name, version)
    if row and _lacks_cuda(odd, choice, facts):
        return f"made for CUDA {', '.join(map(str, row.cudas))}, and torch {torch} for {choice.built_for}"
    goes = facts.torches_of(odd.name, version)
    if not goes_with(odd.name, version, torch, facts):
        return f"for torch {' and '.join(goes) or 'no known release'}, not for {torch}"
    cudas = dict.fromkeys(str(row.cuda) for row in facts.torches if row.default and str(row.torch) in goes)
    return f"built for CUDA {' and '.join(cudas)}, and torch {torch} for {choice.built_for}"


# Their wheels for two majors have a folder each (RECORD of both), and what needs them asks for both.
_APART = ("nvidia-cutlass-dsl-libs",)


def of_another_cuda(names: Iterable[str], choice: Choice) -> tuple[str, str] | None:
    """The first wheel "nvidia-*-cuNN" of another CUDA major than the choice's, and that major, where one of the same
    library for the choice's major is there too: the two own the same paths (read in their RECORD files), but for those
    of _APART.

    A library whose wheel for one major has no such ending has a folder for that major alone.
    """
    if choice.cuda is None:  # where none of them may be: cpu.py
        return None
    every, major = set(names), str(choice.cuda.major)
    for name in sorted(every):
        found = re.fullmatch(r"(nvidia-.+)-cu([0-9]+)", name)
        if found and found[2] != major and found[1] not in _APART and twin(name, major) in every:
            return name, found[2]
    return None


def twin(name: str, major: str) -> str:
    """The wheel of the same library for another CUDA major: nvidia-nccl-cu13 of nvidia-nccl-cu12."""
    return re.sub(r"[0-9]+$", major, name)


def _left_behind(
    spec: Spec, choice: Choice, found: Mapping[str, Release], ask: Ask
) -> tuple[Release, Release | None] | None:
    """A release of something asked for that nobody meant, and the newest that there is."""
    meant = _bounded(spec)
    for one in _asked(spec):
        release = found.get(canonicalize_name(one.name))
        if release is None or release.name in meant:
            continue
        early = Version(release.version).is_prerelease and not one.specifier.prereleases
        if not early and not _years_before(release, choice):
            continue
        newest = ask([str(one)], alone=True).get(release.name)
        if early:
            return release, newest
        if newest and Version(newest.version) > Version(release.version) and not _by_pins(spec, release, ask):
            return release, newest
    return None


def _by_pins(spec: Spec, release: Release, ask: Ask) -> bool:
    """Whether what the spec bounds leaves nothing newer than ``release``, whatever the torch: an old transformers that
    is pinned means its old tokenizers."""
    bounded = _bounded(spec)
    pins = [str(one) for one in _asked(spec) if canonicalize_name(one.name) in bounded]
    lines = [str(one) for one in _asked(spec) if canonicalize_name(one.name) == release.name]
    try:
        found = ask([*lines, *pins])[release.name] if pins else None
    except (Unsatisfiable, Undecided):
        return False
    return found is not None and Version(found.version) <= Version(release.version)


def _bounded(spec: Spec) -> set[str]:
    """The packages of which a line of the spec says that newer releases are not wanted; another may not say it."""
    every = [*_asked(spec), *map(Requirement, (*spec.constraints, *spec.overrides))]
    upper = ("==", "<", "<=", "~=")
    return {canonicalize_name(one.name) for one in every if any(each.operator in upper for each in one.specifier)}


def _years_before(release: Release, choice: Choice) -> bool:
    if choice.row is None or not release.uploaded:
        return False
    torch = datetime.fromisoformat(choice.row.released).replace(tzinfo=UTC).timestamp()
    return release.uploaded < torch - _YEARS_S


def _too_old(
    release: Release,
    newest: Release | None,
    choice: Choice,
    why: Callable[[Release, Sequence[str]], str],
    asked: Sequence[str],
) -> Unmeant:
    """The refusal of a release that nobody meant; ``why`` says what keeps the newest out."""
    year = datetime.fromtimestamp(release.uploaded, UTC).year if release.uploaded else "an unknown year"
    nearest, chain = (f"{release.name} {release.version}",), tuple[str, ...]()
    if Version(release.version).is_prerelease:
        said = f"no {release.name} but pre-release {release.version} goes with the rest of the spec"
    else:
        said = f"the newest {release.name} that goes with the rest of the spec is release {release.version} of {year}"
        if choice.row is not None:
            said += f"; torch {choice.torch} is of {choice.row.released[:4]}"
    if newest and newest.version != release.version:
        chain = (f"newest: {release.name} {newest.version}", why(newest, asked))
    return Unmeant(said, chain, nearest, "change what keeps it from being newer, or pin it")


def _why(facts: Facts, ask: Ask, over: Sequence[Choice], wanted: Release, asked: Sequence[str]) -> str:
    """What keeps ``wanted`` out beside the torches of ``over``: the facts, or the solver in its words."""
    if not wanted.wheel:
        return f"{wanted.name} {wanted.version} has no wheel, only its source, which is built if you pin it"
    if all(_goes_with(wanted, choice, facts) is False for choice in over):
        return f"it is {_for_which(wanted, over[0], facts)}"
    lines = [line for line in asked if canonicalize_name(Requirement(line).name) != wanted.name]
    try:
        ask([f"{wanted.name}=={wanted.version}", *lines, _torch(over, facts)])
    except Unsatisfiable as error:
        said = (line.removeprefix("error: ").removeprefix("cause: ") for line in error.chain)
        return " ".join(line for line in said if "No solution found" not in line) or error.message
    except Undecided as error:
        return f"the index could not be asked why: {error.message}"
    return f"with {wanted.name} {wanted.version} something else that was asked for would be older"


def _newest(spec: Spec, ask: Ask) -> Mapping[str, Release]:
    """The newest release of each that was asked for, whatever it needs."""
    asked = [str(one) for one in _asked(spec)]
    return ask(asked, alone=True) if asked else {}


def held_back(
    spec: Spec,
    chosen: Chosen,
    facts: Facts,
    ask: Ask,
    kept: Collection[str] = (),
) -> Iterator[str]:
    """What was asked for and is not the newest, a sentence each with what keeps it back; of torch the same.

    Nothing is said of ``kept``, what stays because the lock before held it.
    """
    if not chosen.releases:
        return
    newest = _newest(spec, ask)
    asked = [line for line in chosen.choice.requirements if canonicalize_name(Requirement(line).name) != "torch"]
    # What was built stays as it is, or the question why might build all that came before it.
    kept_lines = {
        name: f"{name}=={one.version}"
        for name, one in chosen.releases.items()
        if name in newest and not newest[name].wheel and newest[name].version == one.version
    }
    asked = [kept_lines.get(canonicalize_name(Requirement(line).name), line) for line in asked]
    older = [
        (taken, newest[taken.name])
        for taken in chosen.releases.values()
        if taken.name in newest
        and taken.name not in kept
        and Version(newest[taken.name].version) > Version(taken.version)
    ]
    told = [
        (taken, wanted, proc.beside(partial(_why, facts, ask, chosen.over, wanted, asked)))
        for taken, wanted in older[:_MOST_REASONS]
    ]
    for taken, wanted, why in told:
        yield f"{taken.name} {taken.version} is taken and not {wanted.version}: {why()}"
    if len(older) > _MOST_REASONS:
        yield f"not the newest either: {', '.join(one.name for one, _ in older[_MOST_REASONS:])}"
    best = chosen.over[0]
    if best.torch != chosen.choice.torch:
        exact = [f"{one.name}=={one.version}" for one in chosen.releases.values() if one.name in newest]
        odd = next((one for one in chosen.releases.values() if _lacks_cuda(one, best, facts)), None)
        if odd:
            reason = f"{odd.name} {odd.version} is {_for_which(odd, best, facts)}"
        else:
            reason = _why(facts, ask, chosen.over, Release("torch", str(best.torch)), [*asked, *exact])
        yield f"torch {chosen.choice.torch} for {chosen.choice.built_for} is taken and not {best.torch}: {reason}"


def _nearest(changes: Iterable[tuple[_Say, Spec]], facts: Facts, solver: Solver, groups: Groups) -> tuple[str, ...]:
    """What is said of those changes of a spec after which it has a solution."""
    tried = [proc.beside(partial(_tried, say, changed, facts, solver, groups)) for say, changed in changes]
    return tuple(dict.fromkeys(text for each in tried if (text := each())))[:_MOST_NEAREST]


def _tried(say: _Say, spec: Spec, facts: Facts, solver: Solver, groups: Groups) -> str:
    """What is said of the spec's solution, "" where it has none, or none on an index in reach."""
    try:
        every = groups(feasible(spec, facts))
        group = next((one for one in every if not one[0].backend), every[0])
        return say(_among(spec, group, facts, solver(group[0], spec)))
    except EnvkitError:
        return ""


def _small(spec: Spec) -> Iterator[tuple[_Say, Spec]]:
    """The spec with another torch, or with one pin less."""

    def of_torch(chosen: Chosen) -> str:
        return torch_said(chosen.choice)

    def of_package(name: str, chosen: Chosen) -> str:
        release = chosen.releases.get(name)
        return f"{name} {release.version}" if release else ""

    yield of_torch, replace(spec, torch=TorchWish(">0"))
    if spec.cuda is not None:
        yield of_torch, replace(spec, torch=TorchWish(">0"), cuda=None)
    for one in [one for one in _asked(spec) if one.specifier][:_MOST_REASONS]:
        text, one.specifier = str(one), SpecifierSet()
        loose = tuple(str(one) if each == text else each for each in spec.packages)
        yield partial(of_package, canonicalize_name(one.name)), replace(spec, packages=loose)


def _large(spec: Spec, facts: Facts) -> Iterator[tuple[_Say, Spec]]:
    """The spec with a later day, one constraint or override less, another Python or platform, or one package less."""

    def day_after(chosen: Chosen) -> str:
        newest = max((one.uploaded for one in chosen.releases.values() if one.name in asked), default=0)
        return f'exclude-newer = "{datetime.fromtimestamp(newest + 86400, UTC).date()}"' if newest else ""

    def without(key: str, text: str, chosen: Chosen) -> str:
        return f'{key} without ["{text}"]'

    def less(key: str) -> Iterator[tuple[_Say, Spec]]:
        held: tuple[str, ...] = getattr(spec, key)
        for text in [text for text in held if canonicalize_name(Requirement(text).name) != "torch"][:_MOST_REASONS]:
            left: Any = {key: tuple(each for each in held if each != text)}
            yield partial(without, key, text), replace(spec, **left)

    def with_python(python: Python, chosen: Chosen) -> str:
        return python_said(python, chosen.choice)

    asked = {canonicalize_name(one.name) for one in _asked(spec)}
    if spec.before:
        yield day_after, replace(spec, before="")
    yield from less("constraints")
    yield from less("overrides")
    here = spec.python.minor
    for python in sorted({os.python for os in facts.oses} - {spec.python}, key=lambda one: abs(one.minor - here)):
        yield partial(with_python, python), replace(spec, python=python, os="auto")
    if spec.platform is not Platform.AMD64:
        yield lambda chosen: f'platform = "{Platform.AMD64}"', replace(spec, platform=Platform.AMD64)
    yield from less("packages")
