"""A spec against the facts: the newest combination that they allow, or the facts that forbid it.

Pure: reads the rows, touches nothing, and gives the same answer on any machine.

A refusal is minimal: each obstacle names the keys of the spec that it is in the way of, and the smallest set of keys
that no candidate meets is what cannot hold together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from itertools import combinations

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import Coverage, DriverFloor, Facts, GpuRow, ImageTag, NgcRow, OsRow, TorchRow
from envkit.facts.rows import DerivedRow
from envkit.plan.flavors import Extras, extras
from envkit.plan.inputs import admits_python
from envkit.plan.spec import ANY_PYTHON, Base, Flavor, Platform, Spec, TorchWish
from envkit.versions import Cuda, Driver, Glibc, Python, Sm, Torch

_MOST_LINES = 6  # of evidence in a refusal: what fills a screen is not read
_MOST_OF_A_KIND = 3
_MOST_NAMES = 16  # in one sentence
_MOST_CHANGES = 4
_CHANGE = "change the spec"
_CHOOSE = f"choose one of the nearest, or {_CHANGE}"


# What Inductor's C++ builder and Triton's launcher import in every release, and torch's METADATA does not ask for
# on every Python (tried in wheels of three releases).
_NEEDED = ("setuptools",)


@dataclass(frozen=True, slots=True)
class Target:
    """One declared GPU and what of the build serves it: "sm_XY" for machine code, "PTX of compute_XY" otherwise."""

    name: str
    sm: Sm
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the facts allow for a request; the fields are those of envkit.lock.Lock where they share a name.

    ``requirements`` is what must be solved to wheels for the runtime, ``base_requirements`` the part that the base
    image already holds, ``extras`` what each flavor needs besides; ``row`` is None for a base with a build of torch
    that the facts do not describe (NGC).  ``os`` is empty where the base's own system was not read; ``glibc`` is then
    the oldest of all systems known, so that any wheel chosen fits.  ``notes`` are sentences with their source: what is
    granted and may still disappoint.
    """

    row: TorchRow | None = None
    torch: Version
    cuda: Cuda
    cudnn: str
    nccl: str
    triton: str = ""
    os: str
    glibc: Glibc
    image: str
    suite: str = ""
    backend: str = ""
    preinstalled: bool
    driver: Driver | None
    targets: tuple[Target, ...] = ()
    extras: Extras
    requirements: tuple[str, ...]
    base_requirements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _Weight(IntEnum):
    """What an obstacle is about; of those in the way of one candidate the greatest explains a refusal best."""

    REQUEST = 0  # the candidate is another one than the request names
    PUBLISHED = 1
    PYTHON = 2
    OS = 3
    BASE = 4
    DRIVER = 5
    GPU = 6


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """One fact in the way and where it was read.

    It stands while all of ``keys`` are kept in the request: with none, nothing in the request moves it.
    """

    weight: _Weight
    keys: frozenset[str]
    text: str
    source: str
    seen: str

    def __str__(self) -> str:
        return f"{self.text} [{self.source}; seen {self.seen}]"


_ALWAYS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Kind:
    """The declared GPUs of one capability: what has code for one of them has it for all."""

    gpu: GpuRow
    names: tuple[str, ...]
    key: str

    def __str__(self) -> str:
        return f"{self.gpu.sm} ({_listed(list(self.names))})"


@dataclass(frozen=True, slots=True)
class _Request:
    """A spec with its names looked up, and answers that are asked for again for every candidate.

    ``asked`` are the releases that `torch` means, ``releases`` those of them that ``beside``, what the packages ask of
    torch, admits; ``oldest`` is the oldest driver of the fleet; ``tagged`` are the builds whose wheel tags were read.
    """

    spec: Spec
    facts: Facts
    gpus: tuple[tuple[str, GpuRow], ...]
    asked: frozenset[Torch]
    releases: frozenset[Torch]
    beside: SpecifierSet
    oldest: Driver | None
    kinds: tuple[_Kind, ...]
    tagged: Mapping[Torch, TorchRow]
    covered: dict[tuple[str, Sm, str], Coverage] = field(default_factory=dict)
    tags: dict[tuple[Cuda, str], tuple[ImageTag, ...]] = field(default_factory=dict)
    floors: dict[Cuda, DriverFloor] = field(default_factory=dict)

    def cover(self, row: TorchRow, gpu: GpuRow, machine: str) -> Coverage:
        """Facts.coverage, asked once."""
        key = (row.name, gpu.sm, machine)
        if key not in self.covered:
            self.covered[key] = self.facts.coverage(row, gpu.sm, gpu.tegra, machine)
        return self.covered[key]

    def floor(self, row: TorchRow) -> DriverFloor:
        """Facts.driver_min of the build's toolkit, asked once."""
        cuda = row.toolkit or row.cuda
        if cuda not in self.floors:
            self.floors[cuda] = self.facts.driver_min(cuda)
        return self.floors[cuda]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One combination and everything that keeps it from meeting the spec."""

    row: TorchRow
    os: OsRow
    platform: Platform
    found: tuple[_Obstacle, ...]

    @property
    def wished(self) -> bool:
        """Whether it is what the request names, whatever may be in its way."""
        return all(obstacle.weight is not _Weight.REQUEST for obstacle in self.found)


def resolve(spec: Spec, facts: Facts) -> Choice:
    """The newest torch build that meets every part of ``spec``; PyPI's own build wins over others of its release.

    Raises Unsatisfiable with the facts that forbid it when there is none, and UsageError for a name the facts do not
    hold or requirements that contradict the spec.
    """
    return next(feasible(spec, facts))


def feasible(spec: Spec, facts: Facts) -> Iterator[Choice]:
    """What ``resolve`` would choose, and after it one choice for each older release of torch that the facts allow too.

    Raises, before the first, what ``resolve`` raises.
    """
    if spec.any_python and spec.python == ANY_PYTHON:
        yield from feasible(settled(spec, facts)[0], facts)
        return
    try:
        yield from _feasible(spec, facts, _explain)
    except Unsatisfiable as error:
        if not error.nearest:
            error.nearest = tuple(_changes(spec, facts))
            error.fix = _fix(error.fix, error.nearest)
        raise


def _fix(fix: str, nearest: tuple[str, ...]) -> str:
    """``fix``, and that one of the nearest may be chosen where there are some."""
    if not nearest:
        return fix
    return _CHOOSE if fix is _CHANGE else f"{fix}, or choose one of the nearest"


def _feasible(spec: Spec, facts: Facts, refusal: Callable[[_Request], UsageError]) -> Iterator[Choice]:
    """``feasible``; ``refusal`` is what is raised where the facts allow no choice."""
    oses = _oses(spec, facts)
    if spec.base is Base.NGC:
        yield _ngc(spec, facts, oses)
        return
    if spec.base is Base.PYTORCH and spec.os != "auto":
        raise UsageError("the operating system in the images of base `pytorch` is not known", "drop `os`")
    request = _wish(spec, facts)
    held: set[Torch] = set()
    for row in _newest_first(row for row in facts.torches if row.torch in request.releases and _cuda_fits(spec, row)):
        if row.torch in held or any(_of_build(request, row, spec.platform)):
            continue
        for os in oses:
            if not any(_of_system(request, row, os, spec.platform)):
                held.add(row.torch)
                yield _choice(request, row, os)
                break
    if not held:
        raise refusal(request)


def settled(spec: Spec, facts: Facts, held: Python | None = None) -> tuple[Spec, ...]:
    """The spec with each Python that the facts allow where it leaves that open, the best first.

    First is the one that a lock ``held``, then those of distributions whose packages can be pinned, with the newest
    torch, the newest.  Raises what ``resolve`` raises where no Python will do.
    """
    if not spec.any_python or spec.python != ANY_PYTHON:
        return (spec,)
    if spec.base is Base.PYTORCH:
        raise UsageError("the Python in the images of base `pytorch` is not known", "write `python` out")
    rows = [row for row in facts.oses if spec.os in ("auto", row.name)]
    every = {row.python for row in rows}
    if spec.base is Base.NGC:
        every = {row.python for row in facts.ngcs if row.tag == spec.tag and row.python} or every
    fitting = [each for each in every if not spec.requires or admits_python(spec.requires, str(each))]
    if not fitting:
        known = ", ".join(str(each) for each in sorted(every))
        raise UsageError(f"no Python of a known distribution meets requires-python {spec.requires}", f"known: {known}")
    found: list[tuple[bool, bool, Version, Python]] = []
    refused: Unsatisfiable | None = None
    for python in sorted(fitting, reverse=True):
        try:
            choice = next(feasible(replace(spec, python=python), facts))
        except Unsatisfiable as error:
            refused = refused or error
            continue
        found.append((python == held, bool(choice.suite), choice.torch, python))
    if not found and refused:
        raise refused
    return tuple(replace(spec, python=python) for *_, python in sorted(found, reverse=True))


def _wish(spec: Spec, facts: Facts) -> _Request:
    """The names of the spec looked up; raises UsageError for one that the facts do not hold."""
    rows = facts.torches_of_wish(str(spec.torch), spec.torch.admits)
    asked = frozenset(row.torch for row in rows)
    beside = _torch_in_packages(spec)
    releases = frozenset(torch for torch in asked if beside.contains(str(torch)))
    if not releases:
        raise _contradiction(spec, asked)
    # The wheel tags of a build off the default index were not read; the same release is built for the same Pythons and
    # on the same system, so its default build stands in here, and the lock is the proof.
    tagged = {row.torch: row for row in facts.torches if row.pythons}
    gpus = tuple((name, facts.gpu(name)) for name in dict.fromkeys(spec.gpus))
    oldest = min((facts.oldest_release(driver) for driver in spec.drivers), default=None)
    names: dict[Sm, list[str]] = {}
    for name, gpu in gpus:
        names.setdefault(gpu.sm, []).append(name)
    one = {gpu.sm: gpu for _, gpu in gpus}
    kinds = tuple(_Kind(one[sm], tuple(found), f"gpus {sm}") for sm, found in names.items())
    return _Request(spec, facts, gpus, asked, releases, beside, oldest, kinds, tagged)


def _newest_first(rows: Iterable[TorchRow]) -> list[TorchRow]:
    return sorted(rows, key=lambda row: (row.torch, row.default, row.cuda), reverse=True)


def _oses(spec: Spec, facts: Facts) -> tuple[OsRow, ...]:
    """The systems to try: the one asked for, or all whose own Python is the wanted one, Debian first."""
    if spec.os != "auto":
        return (facts.os(spec.os),)
    fitting = [row for row in facts.oses if row.python == spec.python]
    if not fitting:
        known = ", ".join(f"{row.python} ({row.name})" for row in facts.oses)
        raise UsageError(f"no known operating system ships Python {spec.python}", f"known: {known}")
    return tuple(fitting)


def _cuda_fits(spec: Spec, row: TorchRow) -> bool:
    return spec.cuda is None or row.cuda.upto(2) == spec.cuda.upto(2)


def _keys(request: _Request) -> tuple[str, ...]:
    """The keys of the spec that a conflict can be between, each kind of GPU for itself.

    What nobody can choose comes first: of two conflicts of one size the earlier one is told.
    """
    spec = request.spec
    given = {
        "driver": bool(spec.drivers),
        "platform": spec.platform is not Platform.AMD64,
        "python": True,
        "os": spec.os != "auto",
        "packages": bool(str(request.beside)),
        "base": spec.base is not Base.WHEELS,
        "tag": bool(spec.tag),
        "cuda": spec.cuda is not None,
        "torch": True,
    }
    return (*(kind.key for kind in request.kinds), *(key for key, there in given.items() if there))


def _as_written(request: _Request, keys: frozenset[str]) -> str:
    """Some keys with their values, as the spec has them."""
    spec = request.spec
    names = [name for kind in request.kinds if kind.key in keys for name in kind.names]
    values = {
        "driver": _quoted([str(driver) for driver in spec.drivers]),
        "platform": f'"{spec.platform}"',
        "python": f'"{spec.python}"',
        "os": f'"{spec.os}"',
        "packages": f'["torch{request.beside}"]',
        "base": f'"{spec.base}" with flavor = "{spec.flavor}"',
        "tag": f'"{spec.tag}"',
        "cuda": f'"{spec.cuda}"',
        "torch": f'"{spec.torch}"',
    }
    shown = [f"gpus = {_quoted(names)}"] if names else []
    return _listed(shown + [f"{key} = {value}" for key, value in values.items() if key in keys])


def _quoted(names: list[str]) -> str:
    """A list as the spec has it, cut where it is long."""
    shown = [f'"{name}"' for name in names[:_MOST_NAMES]] + ["..."] * (len(names) > _MOST_NAMES)
    return f"[{', '.join(shown)}]"


def _of_build(request: _Request, row: TorchRow, platform: Platform) -> Iterator[_Obstacle]:
    """What keeps ``row`` on ``platform`` from meeting the spec, its system aside."""
    spec, machine = request.spec, platform.machine
    if row.published is None:
        text = f"no source confirms that torch {row.name} was published"
        yield _Obstacle(_Weight.PUBLISHED, _ALWAYS, text, row.source, row.seen)
    elif not row.published:
        text = f"it was announced that torch {row.name} would not be published"
        yield _Obstacle(_Weight.PUBLISHED, _ALWAYS, text, row.source, row.seen)
    built = _on_machine(row, machine)
    if not built:
        text = f"no source confirms that torch {row.name} has CUDA on {machine}"
        if row.default and row.pypi_aarch64 == "cpu":
            text = f"the {machine} wheel of torch {row.torch} on the default index is CPU-only"
        yield _Obstacle(_Weight.PUBLISHED, _ALWAYS, text, row.source, row.seen)
    tagged = request.tagged.get(row.torch, row)
    runs = tagged.runs_on_python(spec.python)
    if not runs:
        text = f"no source confirms that torch {row.torch} has a wheel for Python {spec.python}"
        if runs is False:
            tags = [tag for tag in tagged.pythons or () if not tag.endswith("t")]
            has = ", ".join(tags) or tagged.requires_python
            text = f"torch {row.torch} has no wheel for Python {spec.python}: it has {has}"
        yield _Obstacle(_Weight.PYTHON, frozenset({"python"}), text, tagged.source, tagged.seen)
    if built:
        for kind in request.kinds:
            yield from _of_gpu(request, row, kind, machine)
    yield from _of_driver(request, row, machine)


def _of_gpu(request: _Request, row: TorchRow, kind: _Kind, machine: str) -> Iterator[_Obstacle]:
    """What keeps ``row`` from serving the GPUs of ``kind``, their driver aside."""
    keys, covered = frozenset({kind.key}), request.cover(row, kind.gpu, machine)
    if covered.state == "none":
        yield _Obstacle(_Weight.GPU, keys, f"torch {row.name} has no kernels for {kind}", row.source, row.seen)
    elif covered.state == "unknown" and not isinstance(row, DerivedRow):  # of a derived row it is a note
        text = f"it is not known whether torch {row.name} has kernels for {kind} on {machine}"
        yield _Obstacle(_Weight.GPU, keys, text, row.source, row.seen)
    elif row.cudnn is not None:
        code = request.facts.cudnn_code(row.cudnn, row.cuda, kind.gpu.sm, kind.gpu.tegra, machine)
        if code.state == "none" and code.row is not None:
            text = f"cuDNN {row.cudnn} of torch {row.name} is for {code.row.capability}, not for {kind}"
            yield _Obstacle(_Weight.GPU, keys, text, code.row.source, code.row.seen)


def _of_driver(request: _Request, row: TorchRow, machine: str) -> Iterator[_Obstacle]:
    """Whether the oldest declared driver runs ``row``.

    Machine code runs from the floor of the CUDA major on; PTX must be compiled by the driver, which for that must be
    as new as the toolkit that made it (NVIDIA, CUDA compatibility).
    """
    floor = request.floor(row)
    if floor.compat is None:
        if isinstance(row, DerivedRow):
            return  # a note
        text = f"the oldest driver for CUDA {row.cuda} is not known"
        yield _Obstacle(_Weight.DRIVER, _ALWAYS, text, row.source, row.seen)
        return
    needs = f"torch {row.name} needs driver"
    if request.oldest is not None and request.oldest < floor.compat:
        text = f"{needs} {floor.compat} or newer, {_declared(request, floor.compat)}"
        yield _Obstacle(_Weight.DRIVER, frozenset({"driver"}), text, floor.compat_source, row.seen)
    for key in [kind.key for kind in request.kinds if request.cover(row, kind.gpu, machine).state == "ptx"]:
        if floor.own is None:
            text = f"the oldest driver that compiles the PTX of CUDA {row.toolkit or row.cuda} is not known"
            yield _Obstacle(_Weight.DRIVER, frozenset({key}), text, row.source, row.seen)
        elif request.oldest is not None and request.oldest < floor.own:
            text = f"{needs} {floor.own} or newer to compile its PTX, {_declared(request, floor.own)}"
            yield _Obstacle(_Weight.DRIVER, frozenset({key, "driver"}), text, floor.own_source, row.seen)


def _declared(request: _Request, floor: Driver) -> str:
    """ "but the spec declares A", or "A and B" for a fleet."""
    drivers = request.spec.drivers
    text = f"but the spec declares {_listed([str(driver) for driver in drivers])}"
    if request.oldest not in drivers and request.oldest is not None and request.oldest.major == floor.major:
        return f"{text}, and branch {request.oldest.major} begins with {request.oldest}"
    return text


def _of_system(request: _Request, row: TorchRow, os: OsRow, platform: Platform) -> Iterator[_Obstacle]:
    """What keeps ``row`` from standing on ``os``, or ``os`` from meeting the spec."""
    spec = request.spec
    if spec.base is not Base.PYTORCH and os.python != spec.python:
        text = f"{os.name} ships Python {os.python}, not {spec.python}{_has_python(spec, request.facts)}"
        weight = _Weight.REQUEST if spec.os == "auto" else _Weight.OS
        yield _Obstacle(weight, frozenset({"python"}), text, os.source, os.seen)
    tagged = request.tagged.get(row.torch, row)
    if tagged.glibc is None:
        text = f"no source says which glibc torch {row.name} needs"
        yield _Obstacle(_Weight.OS, _ALWAYS, text, row.source, row.seen)
    elif os.glibc < tagged.glibc:
        text = f"torch {row.name} needs glibc {tagged.glibc} ({tagged.platform}), {os.name} has {os.glibc}"
        yield _Obstacle(_Weight.OS, _ALWAYS, text, os.source, os.seen)
    yield from _of_base(request, row, os, platform)


def _of_base(request: _Request, row: TorchRow, os: OsRow, platform: Platform) -> Iterator[_Obstacle]:
    """Why there is no base image for this build, or why the tag asked for is none."""
    spec = request.spec
    if spec.base is Base.WHEELS:
        if spec.tag:
            text = f"`tag` is {spec.tag}, but base `wheels` takes no tag"
            yield _Obstacle(_Weight.BASE, frozenset({"tag"}), text, os.source, os.seen)
        return
    if platform is not Platform.AMD64:
        text = f"no source confirms that base `{spec.base}` has images for {platform}"
        yield _Obstacle(_Weight.BASE, frozenset({"base"}), text, row.source, row.seen)
        return
    image, wanted = _wanted(spec, row, os)
    tags = _tags(request, row, os)
    listing = request.facts.image_list(image)
    if not tags:
        text = f"{image} has no known tag for {wanted}"
        yield _Obstacle(_Weight.BASE, frozenset({"base"}), text, listing.source, listing.seen)
    reference = f"{image}:{spec.tag}"
    if not spec.tag or reference in [tag.reference for tag in tags]:
        return
    asked = request.facts.image_tag(reference)
    if asked is None:
        text = f"{reference} is not a known tag"
        yield _Obstacle(_Weight.BASE, frozenset({"tag"}), text, listing.source, listing.seen)
    else:
        text = f"{reference} does not fit the request for {wanted}"
        yield _Obstacle(_Weight.BASE, frozenset({"tag"}), text, asked.row.source, asked.row.seen)


def _wanted(spec: Spec, row: TorchRow, os: OsRow) -> tuple[str, str]:
    """The repository of base images and what is wanted of it, in words."""
    flavor = "runtime" if spec.flavor is Flavor.RUNTIME else "devel"
    if spec.base is Base.PYTORCH:
        return "pytorch/pytorch", f"a {flavor} image of torch {row.torch} with CUDA {row.cuda}"
    if spec.flavor is Flavor.RUNTIME:
        return "nvidia/cuda", f"a base image of CUDA {row.cuda} on {os.name}"
    return "nvidia/cuda", f"a devel image of CUDA {row.cuda} with cuDNN on {os.name}"


def _tags(request: _Request, row: TorchRow, os: OsRow) -> tuple[ImageTag, ...]:
    """The tags that serve as base, the newest first, and those that may be gone after all others."""
    spec = request.spec
    key = (row.cuda.upto(2), str(row.torch) if spec.base is Base.PYTORCH else os.name)
    if key not in request.tags:
        image, _ = _wanted(spec, row, os)
        flavor = "runtime" if spec.flavor is Flavor.RUNTIME else "devel"
        if spec.base is Base.PYTORCH:
            found = request.facts.image_tags(image, cuda=key[0], torch=row.torch, flavor=flavor)
        elif spec.flavor is Flavor.RUNTIME:
            # A runtime image under wheels would hold every CUDA library twice, so the smallest one is taken.
            found = request.facts.image_tags(image, cuda=key[0], os=os.name, flavor="base", cudnn=False)
        else:
            found = request.facts.image_tags(image, cuda=key[0], os=os.name, flavor="devel", cudnn=True)
        request.tags[key] = tuple(sorted(found, key=lambda tag: tag.row.retired is True))
    return request.tags[key]


def _on_machine(row: TorchRow, machine: str) -> bool:
    """Whether a CUDA build for ``machine`` was read of; every CUDA build exists for x86_64."""
    if machine == "x86_64":
        return True
    return row.pypi_aarch64 == "cuda" if row.default else row.archs_aarch64 is not None


def _has_python(spec: Spec, facts: Facts) -> str:
    names = [row.name for row in facts.oses if row.python == spec.python]
    return f" (as {' and '.join(names)} does)" if names else ""


def _choice(request: _Request, row: TorchRow, os: OsRow) -> Choice:
    spec, machine = request.spec, request.spec.platform.machine
    covers = [(name, gpu, request.cover(row, gpu, machine)) for name, gpu in request.gpus]
    targets = tuple(Target(name, gpu.sm, _served_by(covered)) for name, gpu, covered in covers)
    floor = request.floor(row)
    compiled = any(covered.state == "ptx" for _, _, covered in covers)
    preinstalled = spec.base is Base.PYTORCH
    image = os.image
    tag: ImageTag | None = None
    if spec.base is not Base.WHEELS:
        tags = _tags(request, row, os)
        tag = next((tag for tag in tags if tag.reference.endswith(f":{spec.tag}")), tags[0])
        image = tag.reference
    # On a base that holds torch it only keeps its companions in step, for which any build of the release will do.
    torch = f"torch=={row.torch}" if row.default or preinstalled else f"torch=={row.name}"
    return Choice(
        row=row,
        torch=Version(str(row.torch)),
        cuda=row.cuda,
        cudnn=str(row.cudnn or ""),
        nccl=str(row.nccl or ""),
        triton=row.triton or "",
        os="" if preinstalled else os.name,
        glibc=min(other.glibc for other in request.facts.oses) if preinstalled else os.glibc,
        image=image,
        suite=os.codename if spec.base is Base.WHEELS and os.name.startswith("debian") else "",
        backend="" if row.default or preinstalled else row.variant,
        preinstalled=preinstalled,
        driver=floor.own if compiled else floor.compat,
        targets=targets,
        extras=extras(spec, request.facts, os, row.cuda, preinstalled),
        requirements=(torch, *(() if preinstalled else _NEEDED), *_packages(spec, Version(str(row.torch)))),
        base_requirements=(torch,) if preinstalled else (),
        notes=tuple(_notes(request, row, tag)),
    )


def _served_by(covered: Coverage) -> str:
    """The words of Target.by."""
    if covered.by is None:
        return "not read"
    return f"{'machine code' if covered.state == 'sass' else 'PTX'} of {covered.by}"


def _of_derived(request: _Request, row: DerivedRow) -> Iterator[str]:
    """What nobody has verified of a build that the facts do not have."""
    known = [other for other in request.facts.torches if not isinstance(other, DerivedRow)]
    newest = max(other.torch for other in known)
    text = f"torch {row.torch} is derived, not verified: the facts, read up to {max(each.seen for each in known)}, "
    text += f"end with torch {newest}" if row.torch > newest else "do not have this release"
    yield f"{text} [{row.source}; seen {row.seen}]"
    if request.kinds:
        gpus = _listed([str(kind) for kind in request.kinds])
        yield f"whether torch {row.torch} has code for {gpus} is not known before it is built and probed"
    if request.floor(row).compat is None:
        yield f"which drivers run CUDA {row.cuda} is not known"


def _notes(request: _Request, row: TorchRow, tag: ImageTag | None) -> Iterator[str]:
    """What is granted and may still disappoint, each with where it was read."""
    spec = request.spec
    if isinstance(row, DerivedRow):
        yield from _of_derived(request, row)
    # A retired tag is no refusal: mirrors and local copies keep it, and nobody but the registry knows if it is gone.
    if tag is not None and tag.row.retired:
        text = f"{tag.reference} was moved to its publisher's end-of-life folder, so it may no longer exist"
        yield f"{text} [{tag.row.source}; seen {tag.row.seen}]"
    for kind in request.kinds:
        if row.cudnn is None:
            break
        code = request.facts.cudnn_code(row.cudnn, row.cuda, kind.gpu.sm, kind.gpu.tegra, spec.platform.machine)
        if code.state == "unseen" and code.row is not None:
            text = f"cuDNN {row.cudnn} has no code for {kind} in the library that was examined"
            yield f"{text}, so convolutions may fail there [{code.row.source}; seen {code.row.seen}]"
    branch = request.facts.branch(request.oldest) if request.oldest else None
    if branch is not None and branch.cuda is not None and branch.cuda < row.cuda:
        text = (
            f"driver {spec.driver} supports CUDA {branch.cuda} and runs {row.cuda} only by minor-version compatibility"
            f": PTX of {row.cuda} and features that need a newer driver do not work"
        )
        yield f"{text} [{branch.source}; seen {branch.seen}]"


def _torch_in_packages(spec: Spec) -> SpecifierSet:
    """What the spec's packages and constraints ask of torch besides its own key."""
    asked = [Requirement(text) for text in (*spec.packages, *spec.constraints)]
    return SpecifierSet(",".join(str(one.specifier) for one in asked if canonicalize_name(one.name) == "torch"))


def _contradiction(spec: Spec, asked: Iterable[Torch]) -> Unsatisfiable:
    """The refusal of packages and constraints that leave no release of torch that the key `torch` means."""
    lines = [
        (key, one)
        for key, texts in (("packages", spec.packages), ("constraints", spec.constraints))
        for one in map(Requirement, texts)
        if canonicalize_name(one.name) == "torch"
    ]
    for key, one in lines:
        if not any(one.specifier.contains(str(torch), prereleases=True) for torch in asked):
            chain = (f'cannot be satisfied together: {key} = ["{one}"] and torch = "{spec.torch}"',)
            return Unsatisfiable(f"`{key}` asks for {one}, but `torch` is {spec.torch}", chain, (), _CHANGE)
    named = _listed([f"{one} (`{key}`)" for key, one in lines])
    said = f"no release of torch that `torch` = {spec.torch} admits meets {named} together"
    return Unsatisfiable(said, (f"cannot be satisfied together: {named}",), (), _CHANGE)


def _packages(spec: Spec, torch: Version) -> tuple[str, ...]:
    """The spec's packages; raises UsageError for a torch among them that the spec's own torch is not."""
    kept = []
    for text in spec.packages:
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) == "torch":
            if not requirement.specifier.contains(torch, prereleases=True):
                said = f"`packages` asks for {text}, but `torch` is {spec.torch}"
                raise UsageError(said, "drop it from `packages`: only the key `torch` selects the torch version")
            continue
        kept.append(text)
    return tuple(kept)


def _ngc_answers(spec: Spec, facts: Facts, row: NgcRow) -> Iterator[tuple[str, str, str, bool]]:
    """What an NGC image has of each thing that the spec names: (thing, asked, held, whether it fits)."""
    fits = row.torch is not None and spec.torch.admits(Torch(Version(row.torch).base_version))
    yield "contains torch", str(spec.torch), row.torch or "unknown", fits
    yield "contains Python", str(spec.python), str(row.python or "unknown"), row.python == spec.python
    same = row.cuda is not None and (spec.cuda is None or spec.cuda.upto(2) == row.cuda.upto(2))
    yield "contains CUDA", str(spec.cuda), str(row.cuda or "unknown"), same
    if spec.os != "auto":
        asked = facts.os(spec.os).name
        yield "is based on", asked, row.os or "an unknown system", row.os == asked
    if spec.drivers:
        floor = facts.driver_min(row.cuda).compat if row.cuda else None
        needed = f"{floor} or newer" if floor else "unknown"
        fits = floor is not None and all(facts.oldest_release(driver) >= floor for driver in spec.drivers)
        yield "needs driver", _listed([str(driver) for driver in spec.drivers]), needed, fits


def _ngc(spec: Spec, facts: Facts, oses: tuple[OsRow, ...]) -> Choice:
    """An image of NVIDIA's own build of torch; the facts know its tag and versions, not its kernels."""
    row = next((row for row in facts.ngcs if row.tag == spec.tag), None)
    if row is None:
        said = f"nvcr.io/nvidia/pytorch:{spec.tag} is not a known image"
        said = said if spec.tag else "base `ngc` without `tag` does not say which image"
        raise UsageError(said, f"known tags: {', '.join(row.tag for row in facts.ngcs[-6:])}")
    if row.torch is None or row.cuda is None or row.python is None:
        raise UsageError(f"the contents of {row.image}:{row.tag} are not fully known", "choose another `tag`")
    if spec.gpus:
        raise UsageError(
            f"the kernels in {row.image}:{row.tag} are not known, so `gpus` cannot be checked", "drop `gpus`"
        )
    if spec.platform is not Platform.AMD64:
        raise UsageError(f"it is not known whether {row.image} has images for {spec.platform}", "drop `platform`")
    held = Version(row.torch)
    floor = facts.driver_min(row.cuda).compat
    if floor is None:
        raise UsageError(f"the oldest driver for CUDA {row.cuda} is not known", "choose another `tag`")
    for what, asked, have, fits in _ngc_answers(spec, facts, row):
        if not fits:
            nearest = [
                f"tag {other.tag} with torch {other.torch} and CUDA {other.cuda}"
                for other in facts.ngcs
                if all(fits for *_, fits in _ngc_answers(spec, facts, other))
            ]
            told = f"{row.tag}: torch {row.torch}, CUDA {row.cuda}, Python {row.python} [{row.source}; seen {row.seen}]"
            compat = (_forward(spec, facts, (), row.cuda, floor),) if what == "needs driver" else ()
            raise Unsatisfiable(
                f"{row.image}:{row.tag} {what} {have}, but the spec says {asked}",
                (told, *compat),
                tuple(nearest[-3:]),
                _CHOOSE if nearest else _CHANGE,
            )
    os = next((os for os in oses if os.name == row.os), oses[0])
    return Choice(
        torch=Version(held.public),
        cuda=row.cuda.upto(2),
        cudnn=str(row.cudnn or ""),
        nccl=str(row.nccl or ""),
        os=row.os or "",
        glibc=min(other.glibc for other in facts.oses),
        image=f"{row.image}:{row.tag}",
        preinstalled=True,
        driver=floor,
        extras=extras(spec, facts, os, row.cuda, True),
        requirements=_packages(spec, held),
    )


def _explain(request: _Request) -> Unsatisfiable:
    """The refusal: the fewest keys that no candidate meets, the facts that say so, and the nearest specs that would be
    granted."""
    spec, keys = request.spec, _keys(request)
    candidates = _candidates(request)
    asked = [one for one in candidates if one.wished]
    if not asked:
        kept = _conflict(candidates, tuple(key for key in keys if key in ("packages", "cuda", "torch")))
        message, chain = _unpublished(request)
    else:
        kept = _conflict(candidates, keys)
        # one that the request could move tells more than one that nothing does, and the fewer obstacles the nearer
        best = min(asked, key=lambda one: (not any(_ALWAYS < each.keys <= kept for each in one.found), len(one.found)))
        first = max((each for each in best.found if each.keys <= kept), key=_explaining)
        message, chain = first.text + _needs(request, best, first), _evidence(candidates, kept)
        if "driver" in kept:
            cuda = best.row.toolkit or best.row.cuda
            chain = (*chain, _forward(spec, request.facts, request.gpus, cuda, _floor_of(request, best)))
    if kept:
        alone = "cannot be satisfied, whatever else changes" if len(kept) == 1 else "cannot be satisfied together"
        chain = (f"{alone}: {_as_written(request, kept)}", *chain)
    nearest = _nearest(request, candidates)
    fix = _CHANGE
    if kept == {"python", "os"} and (having := [row for row in request.facts.oses if row.python == spec.python]):
        named = " or ".join(f'"{row.name}"' for row in having)
        fix = f'for Python {spec.python} set os = {named}, or let python = "auto" choose that of {spec.os}'
    return Unsatisfiable(message, chain, nearest, _fix(fix, nearest))


def _candidates(request: _Request) -> list[_Candidate]:
    """Every build on every system with all that is in its way, the newest first and the default before others."""
    spec = request.spec
    asked = {row.name for row in _oses(spec, request.facts)}
    found = []
    for row in _newest_first(request.facts.torches):
        wished = []
        if row.torch not in request.asked:
            wished.append(_other("torch", row))
        if not request.beside.contains(str(row.torch)):
            wished.append(_other("packages", row))
        if not _cuda_fits(spec, row):
            wished.append(_other("cuda", row))
        for platform in dict.fromkeys((spec.platform, Platform.AMD64)):
            builds = [*wished, *_of_build(request, row, platform)]
            if platform is not spec.platform:
                builds.append(_other("platform", row))
            for os in request.facts.oses:
                systems = [*_of_system(request, row, os, platform)]
                if spec.os != "auto" and os.name not in asked:
                    systems.append(_other("os", os))
                found.append(_Candidate(row, os, platform, (*builds, *systems)))
    return found


def _other(key: str, row: TorchRow | OsRow) -> _Obstacle:
    """That a candidate is another one than ``key`` of the request names."""
    return _Obstacle(_Weight.REQUEST, frozenset({key}), "", row.source, row.seen)


def _conflict(candidates: Iterable[_Candidate], keys: tuple[str, ...]) -> frozenset[str]:
    """The keys that no candidate meets together: the smallest set where two keys suffice, else one without a spare.

    Of several sets of one size the one of the earliest keys.
    """
    ways = {frozenset(obstacle.keys for obstacle in one.found) for one in candidates}

    def blocked(kept: frozenset[str]) -> bool:
        return all(any(needed <= kept for needed in way) for way in ways)

    for size in range(3):
        for some in combinations(keys, size):
            if blocked(frozenset(some)):
                return frozenset(some)
    kept = frozenset(keys)
    for key in reversed(keys):
        if blocked(kept - {key}):
            kept -= {key}
    return kept


def _explaining(obstacle: _Obstacle) -> tuple[bool, _Weight]:
    """Orders obstacles of one candidate: what the request could move explains more than what it could not."""
    return bool(obstacle.keys), obstacle.weight


def _evidence(candidates: Iterable[_Candidate], kept: frozenset[str]) -> tuple[str, ...]:
    """Facts against ``kept``, at most three of a kind, the newest build first.

    Where there are more, those about builds that the request names go before others.  A build that was only planned is
    told of where the request names it, and then that it is no more than a plan.
    """
    lines: dict[str, tuple[bool, bool, int, _Obstacle]] = {}
    for one in candidates:
        against, planned = [each for each in one.found if each.keys <= kept], one.row.published is not True
        if all(each.weight is not _Weight.REQUEST for each in against) and (one.wished or not planned):
            worst = against[0] if planned else max(against, key=_explaining)
            lines.setdefault(str(worst), (not one.wished, planned, len(lines), worst))
    kinds: dict[tuple[frozenset[str], _Weight], int] = {}
    ranked = []
    for line, (other, planned, place, worst) in sorted(lines.items(), key=lambda item: item[1][:3]):
        nth = kinds[worst.keys, worst.weight] = kinds.get((worst.keys, worst.weight), 0) + 1
        if nth <= _MOST_OF_A_KIND:
            ranked.append((nth, other, planned, place, line))
    return tuple(line for _, line in sorted((place, line) for *_, place, line in sorted(ranked)[:_MOST_LINES]))


def _unpublished(request: _Request) -> tuple[str, tuple[str, ...]]:
    """The message and chain for a CUDA that no wished release was built for."""
    spec, facts = request.spec, request.facts
    releases = _newest_first(row for row in facts.torches if row.torch in request.releases)
    built = sorted({row.cuda for row in releases if row.published})
    which = f"torch {releases[0].torch} was not" if len(request.releases) == 1 else f"no torch {spec.torch} was"
    message = f"{which} published for CUDA {spec.cuda}; it was for {_listed([str(cuda) for cuda in built])}"
    rows = [row for row in releases if row.published][:_MOST_LINES]
    chain = [f"torch {row.name}: CUDA {row.cuda} [{row.source}; seen {row.seen}]" for row in rows]
    others = sorted({row.torch for row in facts.torches if row.published and _cuda_fits(spec, row)})
    if others:
        chain.append(f"CUDA {spec.cuda} is available with torch {_listed([str(torch) for torch in others])}")
    return message, tuple(chain)


def _needs(request: _Request, best: _Candidate, first: _Obstacle) -> str:
    """What would serve instead, as the end of a message about kernels, a machine or a tag; empty for another one."""
    row, machine = best.row, best.platform.machine
    if first.keys == {"tag"} and request.spec.base is not Base.WHEELS:
        return f"; these fit the spec: {_listed([tag.reference for tag in _tags(request, row, best.os)])}"
    published = [other for other in request.facts.torches if other.published and _on_machine(other, machine)]
    if first.weight is _Weight.PUBLISHED and not _on_machine(row, machine):
        newer = [other.torch for other in published if other.torch > row.torch]
        return f": CUDA is included from torch {min(newer)} on" if newer else ""
    if first.weight is not _Weight.GPU:
        return ""
    serving = [
        other
        for other in published
        if all(request.cover(other, kind.gpu, machine).state in ("sass", "ptx") for kind in request.kinds)
    ]
    if not serving:
        return f": no known build has {'them' if len(request.kinds) == 1 else 'kernels for all of the GPUs'}"
    oldest, newest = min(other.torch for other in serving), _newest_first(serving)[0]
    if row.torch < oldest:
        cuda = min(other.cuda for other in serving if other.torch == oldest)
        return f": needs torch >= {oldest} with CUDA >= {cuda}"
    same = sorted({other.cuda for other in serving if other.torch == row.torch})
    if same:
        return f": torch {row.torch} has them for CUDA {_listed([str(cuda) for cuda in same])}"
    return f": the {'last' if row.torch > newest.torch else 'newest'} torch with them is {newest.name}"


def _floor_of(request: _Request, best: _Candidate) -> Driver | None:
    """The oldest driver that runs the candidate on the declared GPUs."""
    floor = request.floor(best.row)
    states = [request.cover(best.row, kind.gpu, best.platform.machine).state for kind in request.kinds]
    return floor.own if "ptx" in states else floor.compat


def _forward(spec: Spec, facts: Facts, gpus: tuple[tuple[str, GpuRow], ...], cuda: Cuda, floor: Driver | None) -> str:
    """Whether NVIDIA's forward-compatibility package would help drivers that are too old for ``cuda``, as one line.

    It works on data-center GPUs and on the driver branches that it names (NVIDIA, CUDA compatibility, forward
    compatibility).  That it would serve grants nothing: a lock cannot hold it.
    """
    package = f"cuda-compat-{cuda.major}-{cuda.minor}"
    row = facts.forward_compat(cuda)
    if row is None:
        known = next((one for one in facts.cudas if one.version.upto(2) == cuda.upto(2)), facts.cudas[-1])
        return f"it is not known which drivers NVIDIA's {package} supports [{known.source}; seen {known.seen}]"
    origin = f"[NVIDIA CUDA compatibility, forward compatibility; {row.compat_source}; seen {row.seen}]"
    old = [driver for driver in spec.drivers if floor is None or facts.oldest_release(driver) < floor]
    shown = _listed([str(driver) for driver in old])
    not_datacenter = [name for name, gpu in gpus if gpu.datacenter is not True]
    left = [driver for driver in old if driver.major not in (row.compat or ())]
    if not_datacenter:
        known_not = all(gpu.datacenter is False and not gpu.tegra for name, gpu in gpus if name in not_datacenter)
        one = len(not_datacenter) == 1
        are = ("is not" if one else "are not") + ("" if known_not else " known to be") + (" one" if one else "")
        return f"{package} does not help: it is for data-center GPUs, and {_listed(not_datacenter)} {are} {origin}"
    if left:
        names = _listed([str(branch) for branch in row.compat or ()])
        return f"{package} does not help driver {_listed([str(one) for one in left])}: it supports {names} {origin}"
    where = "on the declared GPUs" if gpus else "on data-center GPUs only, and `gpus` names none"
    return f"{package} would support driver {shown} {where}; {_COMPAT_IN[spec.base]} {origin}"


# What envkit can say of the package in its images; whether a container's libcuda is replaced by it is up to the host.
_COMPAT_IN = {
    Base.WHEELS: "no wheel contains it, and neither do envkit's images",
    Base.NVIDIA: "the base image contains it, but it is not known whether the host's container toolkit uses it",
    Base.PYTORCH: "no wheel contains it, and it is not known whether the base image does",
    Base.NGC: "it is not known whether the image contains it",
}


def _nearest(request: _Request, candidates: Iterable[_Candidate]) -> tuple[str, ...]:
    """At most three builds that meet all of the spec but torch and CUDA, the fewest and smallest changes first."""
    movable = frozenset({"torch", "cuda"})
    order = {torch: number for number, torch in enumerate(sorted({row.torch for row in request.facts.torches}))}
    ranked = set()
    for one in candidates:
        if all(each.weight is _Weight.REQUEST and each.keys <= movable for each in one.found):
            steps = min(abs(order[one.row.torch] - order[torch]) for torch in request.releases)
            changes = len({key for each in one.found for key in each.keys})
            ranked.add((changes, steps, not one.row.default, f"torch {one.row.torch} with CUDA {one.row.cuda}"))
    return tuple(text for *_, text in sorted(ranked)[:3])


def _changes(spec: Spec, facts: Facts) -> Iterator[str]:
    """At most _MOST_CHANGES changes after which the facts allow a choice, each tried: of torch, of one other key, and
    where none of these does, of one key and torch."""
    any_torch = replace(spec, torch=TorchWish(">0"), cuda=None)
    rounds = (("", [(torch_said, any_torch), *_changed(spec, facts)]), (" and ", _changed(any_torch, facts)))
    found = 0
    for beside, changes in rounds:
        for text, changed in changes:
            if found < _MOST_CHANGES and (choice := _granted(changed, facts)) is not None:
                found += 1
                yield text(choice) + (beside and beside + torch_said(choice))
        if found:
            return


def _changed(spec: Spec, facts: Facts) -> Iterator[tuple[Callable[[Choice], str], Spec]]:
    """The spec with another value of one key, and how that is said of the choice that it allows."""
    for key, texts in (("packages", spec.packages), ("constraints", spec.constraints)):
        of_torch = [text for text in texts if canonicalize_name(Requirement(text).name) == "torch"]
        if of_torch:
            left = tuple(text for text in texts if text not in of_torch)
            yield _said(f"{key} without {_quoted(of_torch)}"), replace(spec, **{key: left})  # type: ignore[arg-type]
    if spec.tag and spec.base is not Base.NGC:
        yield _said("no `tag`"), replace(spec, tag="")
    if spec.os != "auto":
        yield lambda choice: f'os = "{choice.os}"', replace(spec, os="auto")
    if spec.base is not Base.WHEELS:
        yield _said(f'base = "{Base.WHEELS}"'), replace(spec, base=Base.WHEELS, tag="")
    here = spec.python.minor
    for python in sorted({os.python for os in facts.oses}, key=lambda one: (abs(one.minor - here), -one.minor)):
        if python != spec.python:
            yield partial(python_said, python), replace(spec, python=python)
    kinds: dict[Sm, list[str]] = {}
    for name in spec.gpus:
        kinds.setdefault(facts.gpu(name).sm, []).append(name)
    for names in kinds.values():
        left = tuple(name for name in spec.gpus if name not in names)
        yield _said(f"gpus without {_quoted(names)}"), replace(spec, gpus=left)
    if spec.drivers:
        oldest = min(map(facts.oldest_release, spec.drivers))
        floors = [facts.driver_min(row.toolkit or row.cuda) for row in facts.torches]
        newer = {driver for floor in floors for driver in (floor.compat, floor.own) if driver and driver > oldest}
        for driver in sorted(newer):
            if _granted(replace(spec, drivers=(driver,)), facts) is not None:
                yield _said(f'driver = "{driver}" or newer'), replace(spec, drivers=(driver,))
                break
    if spec.platform is not Platform.AMD64:
        yield _said(f'platform = "{Platform.AMD64}"'), replace(spec, platform=Platform.AMD64)


def torch_said(choice: Choice) -> str:
    """The torch of a choice, as a change of a spec is named."""
    return f"torch {choice.torch.base_version} with CUDA {choice.cuda}"


def _said(text: str) -> Callable[[Choice], str]:
    return lambda choice: text


def python_said(python: Python, choice: Choice) -> str:
    """The Python of a choice, as a change of a spec is named, with the distribution that it comes with."""
    return f'python = "{python}"' + (f" with {choice.os}" if choice.os else "")


def _granted(spec: Spec, facts: Facts) -> Choice | None:
    """What the facts choose for ``spec``, None where they allow nothing."""
    try:
        return next(_feasible(spec, facts, lambda request: UsageError("")))
    except UsageError:
        return None


def _listed(items: list[str]) -> str:
    """ "a, b and c", of many the first few."""
    if len(items) > _MOST_NAMES:
        items = [*items[: _MOST_NAMES - 1], f"{len(items) - _MOST_NAMES + 1} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"
