"""A spec with its names looked up in the facts, and what of the facts is in the way of a build of torch.

Each obstacle names the keys of the spec that it is in the way of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import IntEnum

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import Coverage, DriverFloor, Facts, GpuRow, ImageTag, OsRow, TorchRow
from envkit.facts.rows import DerivedRow
from envkit.plan.spec import Base, Flavor, Platform, Spec
from envkit.records import dataclass
from envkit.versions import Cuda, Driver, Sm, Torch

_MOST_NAMES = 16  # in one sentence
CHANGE = "change the spec"


class Weight(IntEnum):
    """What an obstacle is about; of those in the way of one candidate the greatest explains a refusal best."""

    REQUEST = 0  # the candidate is another one than the request names
    PUBLISHED = 1
    PYTHON = 2
    OS = 3
    BASE = 4
    DRIVER = 5
    GPU = 6
    GPU_DRIVER = 7


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One fact in the way and where it was read.

    It stands while all of ``keys`` are kept in the request: with none, nothing in the request moves it.
    """

    weight: Weight
    keys: frozenset[str]
    text: str
    source: str
    seen: str

    def __str__(self) -> str:
        return f"{self.text} [{self.source}; seen {self.seen}]"


ALWAYS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Kind:
    """The declared GPUs of one capability: what has code for one of them has it for all."""

    gpu: GpuRow
    names: tuple[str, ...]
    key: str

    def __str__(self) -> str:
        return f"{self.gpu.sm} ({listed(list(self.names))})"


@dataclass(frozen=True, slots=True)
class Request:
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
    kinds: tuple[Kind, ...]
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


def looked_up(spec: Spec, facts: Facts) -> Request:
    """The names of the spec looked up; raises UsageError for one that the facts do not hold."""
    rows = facts.torches_of_wish(str(spec.torch), spec.torch.admits)
    asked = frozenset(row.torch for row in rows)
    beside = _torch_in_packages(spec)
    releases = frozenset(torch for torch in asked if beside.contains(str(torch)))
    if not releases:
        raise _contradiction(spec, asked, facts)
    # The wheel tags of a build off the default index were not read; the same release is built for the same Pythons and
    # on the same system, so its default build stands in here, and the lock is the proof.
    tagged = {row.torch: row for row in facts.torches if row.pythons}
    gpus = tuple((name, facts.gpu(name)) for name in dict.fromkeys(spec.gpus))
    oldest = min((facts.oldest_release(driver) for driver in spec.drivers), default=None)
    names: dict[Sm, list[str]] = {}
    for name, gpu in gpus:
        names.setdefault(gpu.sm, []).append(name)
    one = {gpu.sm: gpu for _, gpu in gpus}
    kinds = tuple(Kind(one[sm], tuple(found), f"gpus {sm}") for sm, found in names.items())
    return Request(spec, facts, gpus, asked, releases, beside, oldest, kinds, tagged)


def newest_first(rows: Iterable[TorchRow]) -> list[TorchRow]:
    """By release, the default build of each before its others, then by CUDA."""
    return sorted(rows, key=lambda row: (row.torch, row.default, row.cuda), reverse=True)


def oses_of(spec: Spec, facts: Facts) -> tuple[OsRow, ...]:
    """The systems to try: the one asked for, or all whose own Python is the wanted one, Debian first."""
    if spec.os != "auto":
        return (facts.os(spec.os),)
    fitting = [row for row in facts.oses if row.python == spec.python]
    if not fitting:
        known = ", ".join(f"{row.python} ({row.name})" for row in facts.oses)
        raise UsageError(f"no known operating system ships Python {spec.python}", f"known: {known}")
    return tuple(fitting)


def cuda_fits(spec: Spec, row: TorchRow) -> bool:
    """Whether the build is for the CUDA that the spec names, if it names one.

    A build without CUDA has no row of its own: the default build of its release stands in for it (Facts.torch_builds).
    """
    if spec.cpu:
        return row.default
    return spec.cuda is None or row.cuda.upto(2) == spec.cuda.upto(2)


def of_build(request: Request, row: TorchRow, platform: Platform) -> Iterator[Obstacle]:
    """What keeps ``row`` on ``platform`` from meeting the spec, its system aside."""
    spec, machine = request.spec, platform.machine
    if row.published is None:
        text = f"no source confirms that torch {row.name} was published"
        yield Obstacle(Weight.PUBLISHED, ALWAYS, text, row.source, row.seen)
    elif not row.published:
        text = f"it was announced that torch {row.name} would not be published"
        yield Obstacle(Weight.PUBLISHED, ALWAYS, text, row.source, row.seen)
    built = spec.cpu or on_machine(row, machine)
    if not built:
        text = f"no source confirms that torch {row.name} has CUDA on {machine}"
        if row.default and row.pypi_aarch64 == "cpu":
            text = f"the {machine} wheel of torch {row.torch} on the default index is CPU-only"
        yield Obstacle(Weight.PUBLISHED, ALWAYS, text, row.source, row.seen)
    tagged = request.tagged.get(row.torch, row)
    runs = tagged.runs_on_python(spec.python)
    if not runs:
        text = f"no source confirms that torch {row.torch} has a wheel for Python {spec.python}"
        if runs is False:
            tags = [tag for tag in tagged.pythons or () if not tag.endswith("t")]
            has = ", ".join(tags) or tagged.requires_python
            text = f"torch {row.torch} has no wheel for Python {spec.python}: it has {has}"
        yield Obstacle(Weight.PYTHON, frozenset({"python"}), text, tagged.source, tagged.seen)
    for kind in request.kinds:
        yield from _of_kernel_driver(request, kind)
        if built:
            yield from _of_gpu(request, row, kind, machine)
    if not spec.cpu:
        yield from _of_driver(request, row, machine)


def _of_gpu(request: Request, row: TorchRow, kind: Kind, machine: str) -> Iterator[Obstacle]:
    """What keeps ``row`` from serving the GPUs of ``kind``, their driver aside."""
    keys, covered = frozenset({kind.key}), request.cover(row, kind.gpu, machine)
    if covered.state == "none":
        yield Obstacle(Weight.GPU, keys, f"torch {row.name} has no kernels for {kind}", row.source, row.seen)
    elif covered.state == "unknown" and not isinstance(row, DerivedRow):  # of a derived row it is a note
        text = f"it is not known whether torch {row.name} has kernels for {kind} on {machine}"
        yield Obstacle(Weight.GPU, keys, text, row.source, row.seen)
    elif row.cudnn is not None:
        code = request.facts.cudnn_code(row.cudnn, row.cuda, kind.gpu.sm, kind.gpu.tegra, machine)
        if code.state == "none" and code.row is not None:
            text = f"cuDNN {row.cudnn} of torch {row.name} is for {code.row.capability}, not for {kind}"
            yield Obstacle(Weight.GPU, keys, text, code.row.source, code.row.seen)


def _of_kernel_driver(request: Request, kind: Kind) -> Iterator[Obstacle]:
    """Whether any of the declared drivers knows the GPUs of ``kind``; of a fleet one is enough, for each machine has
    its own."""
    drivers, known = request.spec.drivers, request.facts.gpu_drivers(kind.gpu.sm)
    if known is None or any(known.known_to(driver) for driver in drivers):
        return
    declared = f"but the spec declares {listed([str(driver) for driver in drivers])}"
    text = f"no driver after branch {known.last} knows {kind}, {declared}"
    if any(driver.major < (known.first or 0) for driver in drivers):
        text = f"{kind} needs driver branch {known.first} or newer, {declared}"
    if drivers:
        yield Obstacle(Weight.GPU_DRIVER, frozenset({kind.key, "driver"}), text, known.source, known.seen)


def _of_driver(request: Request, row: TorchRow, machine: str) -> Iterator[Obstacle]:
    """Whether the oldest declared driver runs ``row``.

    Machine code runs from the floor of the CUDA major on; PTX must be compiled by the driver, which for that must be
    as new as the toolkit that made it (NVIDIA, CUDA compatibility).
    """
    floor = request.floor(row)
    if floor.compat is None:
        if isinstance(row, DerivedRow):
            return  # a note
        text = f"the oldest driver for CUDA {row.cuda} is not known"
        yield Obstacle(Weight.DRIVER, ALWAYS, text, row.source, row.seen)
        return
    needs = f"torch {row.name} needs driver"
    if request.oldest is not None and request.oldest < floor.compat:
        text = f"{needs} {floor.compat} or newer, {_declared(request, floor.compat)}"
        yield Obstacle(Weight.DRIVER, frozenset({"driver"}), text, floor.compat_source, row.seen)
    for key in [kind.key for kind in request.kinds if request.cover(row, kind.gpu, machine).state == "ptx"]:
        if floor.own is None:
            text = f"the oldest driver that compiles the PTX of CUDA {row.toolkit or row.cuda} is not known"
            yield Obstacle(Weight.DRIVER, frozenset({key}), text, row.source, row.seen)
        elif request.oldest is not None and request.oldest < floor.own:
            text = f"{needs} {floor.own} or newer to compile its PTX, {_declared(request, floor.own)}"
            yield Obstacle(Weight.DRIVER, frozenset({key, "driver"}), text, floor.own_source, row.seen)


def _declared(request: Request, floor: Driver) -> str:
    """ "but the spec declares A", or "A and B" for a fleet."""
    drivers = request.spec.drivers
    text = f"but the spec declares {listed([str(driver) for driver in drivers])}"
    if request.oldest not in drivers and request.oldest is not None and request.oldest.major == floor.major:
        return f"{text}, and branch {request.oldest.major} begins with {request.oldest}"
    return text


def of_system(request: Request, row: TorchRow, os: OsRow, platform: Platform) -> Iterator[Obstacle]:
    """What keeps ``row`` from standing on ``os``, or ``os`` from meeting the spec."""
    spec = request.spec
    if spec.base is not Base.PYTORCH and os.python != spec.python:
        text = f"{os.name} ships Python {os.python}, not {spec.python}{_has_python(spec, request.facts)}"
        weight = Weight.REQUEST if spec.os == "auto" else Weight.OS
        yield Obstacle(weight, frozenset({"python"}), text, os.source, os.seen)
    tagged = request.tagged.get(row.torch, row)
    if tagged.glibc is None:
        text = f"no source says which glibc torch {row.name} needs"
        yield Obstacle(Weight.OS, ALWAYS, text, row.source, row.seen)
    elif os.glibc < tagged.glibc:
        text = f"torch {row.name} needs glibc {tagged.glibc} ({tagged.platform}), {os.name} has {os.glibc}"
        yield Obstacle(Weight.OS, ALWAYS, text, os.source, os.seen)
    yield from _of_base(request, row, os, platform)


def _of_base(request: Request, row: TorchRow, os: OsRow, platform: Platform) -> Iterator[Obstacle]:
    """Why there is no base image for this build, or why the tag asked for is none."""
    spec = request.spec
    if spec.base is Base.WHEELS:
        if spec.tag:
            text = f"`tag` is {spec.tag}, but base `wheels` takes no tag"
            yield Obstacle(Weight.BASE, frozenset({"tag"}), text, os.source, os.seen)
        return
    if platform is not Platform.AMD64:
        text = f"no source confirms that base `{spec.base}` has images for {platform}"
        yield Obstacle(Weight.BASE, frozenset({"base"}), text, row.source, row.seen)
        return
    image, wanted = _wanted(spec, row, os)
    tags = base_tags(request, row, os)
    listing = request.facts.image_list(image)
    if not tags:
        text = f"{image} has no known tag for {wanted}"
        yield Obstacle(Weight.BASE, frozenset({"base"}), text, listing.source, listing.seen)
    reference = f"{image}:{spec.tag}"
    if not spec.tag or reference in [tag.reference for tag in tags]:
        return
    asked = request.facts.image_tag(reference)
    if asked is None:
        text = f"{reference} is not a known tag"
        yield Obstacle(Weight.BASE, frozenset({"tag"}), text, listing.source, listing.seen)
    else:
        text = f"{reference} does not fit the request for {wanted}"
        yield Obstacle(Weight.BASE, frozenset({"tag"}), text, asked.row.source, asked.row.seen)


def _wanted(spec: Spec, row: TorchRow, os: OsRow) -> tuple[str, str]:
    """The repository of base images and what is wanted of it, in words."""
    flavor = "runtime" if spec.flavor is Flavor.RUNTIME else "devel"
    if spec.base is Base.PYTORCH:
        return "pytorch/pytorch", f"a {flavor} image of torch {row.torch} with CUDA {row.cuda}"
    if spec.flavor is Flavor.RUNTIME:
        return "nvidia/cuda", f"a base image of CUDA {row.cuda} on {os.name}"
    return "nvidia/cuda", f"a devel image of CUDA {row.cuda} with cuDNN on {os.name}"


def base_tags(request: Request, row: TorchRow, os: OsRow) -> tuple[ImageTag, ...]:
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


def on_machine(row: TorchRow, machine: str) -> bool:
    """Whether a CUDA build for ``machine`` was read of; every CUDA build exists for x86_64."""
    if machine == "x86_64":
        return True
    return row.pypi_aarch64 == "cuda" if row.default else row.archs_aarch64 is not None


def _has_python(spec: Spec, facts: Facts) -> str:
    names = [row.name for row in facts.oses if row.python == spec.python]
    return f" (as {' and '.join(names)} does)" if names else ""


def _torch_in_packages(spec: Spec) -> SpecifierSet:
    """What the spec's packages and constraints ask of torch besides its own key."""
    asked = [Requirement(text) for text in (*spec.packages, *spec.constraints)]
    return SpecifierSet(",".join(str(one.specifier) for one in asked if canonicalize_name(one.name) == "torch"))


def _contradiction(spec: Spec, asked: Iterable[Torch], facts: Facts) -> Unsatisfiable:
    """The refusal of packages and constraints that leave no release of torch that the key `torch` means."""
    lines = [
        (key, one)
        for key, texts in (("packages", spec.packages), ("constraints", spec.constraints))
        for one in map(Requirement, texts)
        if canonicalize_name(one.name) == "torch"
    ]
    for key, one in lines:
        if not any(one.specifier.contains(str(torch), prereleases=True) for torch in asked):
            known = {row.torch for row in facts.torches}
            if not any(one.specifier.contains(str(torch), prereleases=True) for torch in known):
                said = f"`{key}` asks for {one}, and the releases that envkit can lock are {min(known)} to {max(known)}"
                return Unsatisfiable(said, (f'cannot be satisfied: {key} = ["{one}"]',), (), CHANGE)
            chain = (f'cannot be satisfied together: {key} = ["{one}"] and torch = "{spec.torch}"',)
            return Unsatisfiable(f"`{key}` asks for {one}, but `torch` is {spec.torch}", chain, (), CHANGE)
    named = listed([f"{one} (`{key}`)" for key, one in lines])
    said = f"no release of torch that `torch` = {spec.torch} admits meets {named} together"
    return Unsatisfiable(said, (f"cannot be satisfied together: {named}",), (), CHANGE)


def quoted(names: list[str]) -> str:
    """A list as the spec has it, cut where it is long."""
    shown = [f'"{name}"' for name in names[:_MOST_NAMES]] + ["..."] * (len(names) > _MOST_NAMES)
    return f"[{', '.join(shown)}]"


def listed(items: list[str]) -> str:
    """ "a, b and c", of many the first few."""
    if len(items) > _MOST_NAMES:
        items = [*items[: _MOST_NAMES - 1], f"{len(items) - _MOST_NAMES + 1} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"
