"""A wish against the facts: the newest combination that they allow, or the facts that forbid it.

Pure: reads the rows, touches nothing, and gives the same answer on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import Facts, GpuRow, NgcRow, OsRow, ToolRow, TorchRow
from envkit.spec import Base, Flavor, Platform, Spec
from envkit.versions import Cuda, Driver, Glibc, Sm

# What a flavor needs of the distribution.  The runtime holds a C compiler and Python's headers because Triton builds a
# launcher at run time: without them torch.compile dies in the image (pytorch issues 116696 and 170235).
_RUNTIME = ("ca-certificates", "gcc", "libc6-dev", "libpython3-dev", "python3")
_DEVEL = ("g++", "git", "make", "ninja-build")
_DEBUG = ("gdb", "procps", "strace")

# The debugging tools that come as wheels, besides what the distribution has.
_WHEEL_TOOLS = ("compute-sanitizer", "cuobjdump", "nvdisasm", "py-spy")


@dataclass(frozen=True, slots=True)
class Target:
    """One declared GPU and what of the build serves it: "sm_XY" for machine code, "PTX of compute_XY" otherwise."""

    name: str
    sm: Sm
    by: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What the facts allow for a wish; the fields are those of envkit.lock.Lock where they share a name.

    ``requirements`` is what must be solved to wheels, ``base_requirements`` the part that the base image already holds;
    ``row`` is None for a base with a build of torch that the facts do not describe (NGC).  ``os`` is empty where the
    base's own system was not read; ``glibc`` is then the oldest of all systems known, so that any wheel chosen fits.
    """

    row: TorchRow | None
    torch: str
    cuda: str
    cudnn: str
    nccl: str
    triton: str
    os: str
    glibc: Glibc
    image: str
    suite: str
    backend: str
    preinstalled: bool
    driver: str
    targets: tuple[Target, ...]
    apt: tuple[str, ...]
    tools: tuple[ToolRow, ...]
    requirements: tuple[str, ...]
    base_requirements: tuple[str, ...]


class _Weight(IntEnum):
    """How hard an obstacle is to move: the softest one left explains a refusal best."""

    CUDA = 1
    PUBLISHED = 2
    PYTHON = 3
    OS = 4
    BASE = 5
    DRIVER = 6
    GPU = 7


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """One fact in the way, and the row that says so."""

    weight: _Weight
    text: str
    row: TorchRow | OsRow

    def __str__(self) -> str:
        return f"{self.text} [{self.row.source}; seen {self.row.seen}]"


def resolve(spec: Spec, facts: Facts) -> Choice:
    """The newest torch build that meets every part of ``spec``; PyPI's own build wins over others of its release.

    Raises Unsatisfiable with the chain of facts when there is none, and UsageError for a name the facts do not hold or
    requirements that contradict the spec.
    """
    oses = _oses(spec, facts)
    if spec.base is Base.NGC:
        return _ngc(spec, facts, oses)
    if spec.base is Base.PYTORCH and spec.os != "auto":
        raise UsageError("the system inside the images of base `pytorch` was not read", "drop `os`")
    gpus = tuple((name, facts.gpu(name)) for name in spec.gpus)
    wished = [row for row in facts.torch(spec.torch) if _cuda_fits(spec, row)]
    for row in sorted(wished, key=lambda row: (row.torch, row.default, row.cuda), reverse=True):
        for os in oses:
            if not any(_obstacles(spec, facts, row, os, gpus)):
                return _choice(spec, facts, row, os, gpus)
    raise _explain(spec, facts, oses, gpus)


def _oses(spec: Spec, facts: Facts) -> tuple[OsRow, ...]:
    """The systems to try: the one asked for, or all whose own Python is the wanted one, Debian first."""
    if spec.os != "auto":
        return (facts.os(spec.os),)
    fitting = [row for row in facts.oses if row.python == spec.python]
    if not fitting:
        known = ", ".join(f"{row.python} ({row.name})" for row in facts.oses)
        raise UsageError(f"no operating system known here ships Python {spec.python}", f"known: {known}")
    return tuple(fitting)


def _cuda_fits(spec: Spec, row: TorchRow) -> bool:
    return spec.cuda is None or row.cuda.upto(2) == spec.cuda.upto(2)


def _obstacles(
    spec: Spec, facts: Facts, row: TorchRow, os: OsRow, gpus: tuple[tuple[str, GpuRow], ...]
) -> Iterator[_Obstacle]:
    """Everything that keeps ``row`` on ``os`` from meeting the spec, its torch and CUDA aside."""
    machine = spec.platform.machine
    if row.published is not True:
        text = f"nothing read so far proves that torch {row.name} was published"
        yield _Obstacle(_Weight.PUBLISHED, text, row)
    if not _on_machine(row, machine):
        yield _Obstacle(
            _Weight.PUBLISHED, f"nothing read so far proves that torch {row.name} has CUDA on {machine}", row
        )
    # The wheel tags of a build off the default index were not read; the same release is built for the same Pythons and
    # on the same system, so its default build stands in here, and the lock is the proof.
    tagged = (
        row if row.pythons is not None else next((twin for twin in facts.torch(str(row.torch)) if twin.pythons), row)
    )
    runs = tagged.runs_on_python(spec.python)
    if runs is False:
        tags = [tag for tag in tagged.pythons or () if not tag.endswith("t")]
        text = (
            f"torch {row.torch} has no wheel for Python {spec.python}: it has {', '.join(tags) or row.requires_python}"
        )
        yield _Obstacle(_Weight.PYTHON, text, tagged)
    elif runs is None:
        text = f"nothing read so far proves that torch {row.torch} has a wheel for Python {spec.python}"
        yield _Obstacle(_Weight.PYTHON, text, tagged)
    if spec.base is not Base.PYTORCH and os.python != spec.python:
        text = f"{os.name} ships Python {os.python}, not {spec.python}{_has_python(spec, facts)}"
        yield _Obstacle(_Weight.OS, text, os)
    if tagged.glibc is None:
        text = f"nothing read so far says which glibc torch {row.name} needs"
        yield _Obstacle(_Weight.OS, text, row)
    elif os.glibc < tagged.glibc:
        text = f"torch {row.name} needs glibc {tagged.glibc} ({tagged.platform}), {os.name} has {os.glibc}"
        yield _Obstacle(_Weight.OS, text, os)
    _, trouble = _tag(spec, facts, row, os)
    if trouble:
        yield _Obstacle(_Weight.BASE, trouble, row)
    for name, gpu in gpus:
        covered = facts.coverage(row, gpu.sm, gpu.tegra, machine)
        if covered.state == "none":
            yield _Obstacle(_Weight.GPU, f"torch {row.name} has no kernels for {gpu.sm} ({name})", row)
        elif covered.state == "unknown":
            text = f"whether torch {row.name} has kernels for {gpu.sm} ({name}) on {machine} is not known"
            yield _Obstacle(_Weight.GPU, text, row)
    floor, why = _floor(facts, row, gpus, machine)
    if floor is None:
        yield _Obstacle(_Weight.DRIVER, f"the oldest driver for CUDA {row.cuda} is not known", row)
    elif spec.driver is not None and spec.driver < floor:
        text = f"torch {row.name} needs driver {floor} or newer{why}, declared is {spec.driver}"
        yield _Obstacle(_Weight.DRIVER, text, row)


def _on_machine(row: TorchRow, machine: str) -> bool:
    """Whether a CUDA build for ``machine`` was read of; every CUDA build exists for x86_64."""
    if machine == "x86_64":
        return True
    return row.pypi_aarch64 == "cuda" if row.default else row.archs_aarch64 is not None


def _has_python(spec: Spec, facts: Facts) -> str:
    names = [row.name for row in facts.oses if row.python == spec.python]
    return f" (as {' and '.join(names)} does)" if names else ""


def _floor(
    facts: Facts, row: TorchRow, gpus: tuple[tuple[str, GpuRow], ...], machine: str
) -> tuple[Driver | None, str]:
    """The oldest driver that runs the build on these GPUs, and why.

    Machine code runs from the floor of the CUDA major on; PTX must be compiled by the driver, which for that must be
    as new as the toolkit that made it (NVIDIA, CUDA compatibility).
    """
    floor = facts.driver_min(row.toolkit or row.cuda)
    if any(facts.coverage(row, gpu.sm, gpu.tegra, machine).state == "ptx" for _, gpu in gpus):
        return floor.own, " to compile its PTX"
    return floor.compat, ""


def _tag(spec: Spec, facts: Facts, row: TorchRow, os: OsRow) -> tuple[str, str]:
    """The base image for this build, or why there is none."""
    flavor = "runtime" if spec.flavor is Flavor.RUNTIME else "devel"
    if spec.base is Base.WHEELS:
        return os.image, _refused_tag(spec)
    if spec.platform is not Platform.AMD64:
        return "", f"nothing read so far proves that base `{spec.base}` has images for {spec.platform}"
    image, wanted = "nvidia/cuda", f"a {flavor} image of CUDA {row.cuda} with cuDNN on {os.name}"
    if spec.base is Base.NVIDIA:
        # A runtime image under wheels would hold every CUDA library twice, so the smallest one is taken there.
        flavor, cudnn = ("base", False) if flavor == "runtime" else ("devel", True)
        tags = facts.image_tags(image, cuda=row.cuda.upto(2), os=os.name, flavor=flavor, cudnn=cudnn)
        if not cudnn:
            wanted = f"a base image of CUDA {row.cuda} on {os.name}"
    else:
        image, wanted = "pytorch/pytorch", f"a {flavor} image of torch {row.torch} with CUDA {row.cuda}"
        tags = facts.image_tags(image, cuda=row.cuda.upto(2), torch=row.torch, flavor=flavor)
    names = [tag.reference for tag in tags]
    if spec.tag:
        reference = f"{image}:{spec.tag}"
        if facts.image_tag(reference) is None:
            return (
                "",
                f"{reference} was never published as far as read; known for this wish: {', '.join(names) or 'none'}",
            )
        if reference not in names:
            return "", f"{reference} does not fit the wish for {wanted}; these do: {', '.join(names) or 'none'}"
        return reference, ""
    return (names[0], "") if names else ("", f"{wanted} was never published as far as read in {image}")


def _refused_tag(spec: Spec) -> str:
    return f"`tag` is {spec.tag}, and base `wheels` takes none" if spec.tag else ""


def _choice(spec: Spec, facts: Facts, row: TorchRow, os: OsRow, gpus: tuple[tuple[str, GpuRow], ...]) -> Choice:
    machine = spec.platform.machine
    targets = []
    for name, gpu in gpus:
        covered = facts.coverage(row, gpu.sm, gpu.tegra, machine)
        code = "machine code of" if covered.state == "sass" else "PTX of"
        targets.append(Target(name, gpu.sm, f"{code} {covered.by}"))
    floor, _ = _floor(facts, row, gpus, machine)
    image, _ = _tag(spec, facts, row, os)
    preinstalled = spec.base is Base.PYTORCH
    # On a base that holds torch it only keeps its companions in step, for which any build of the release will do.
    torch = f"torch=={row.torch}" if row.default or preinstalled else f"torch=={row.name}"
    packages = _packages(spec, Version(str(row.torch)))
    tools = _tools(spec, facts, row.cuda, os)
    wheels = tuple(f"{tool.package}=={tool.version}" for tool in tools if tool.version)
    return Choice(
        row=row,
        torch=str(row.torch),
        cuda=str(row.cuda),
        cudnn=str(row.cudnn or ""),
        nccl=str(row.nccl or ""),
        triton=row.triton or "",
        os="" if preinstalled else os.name,
        glibc=min(other.glibc for other in facts.oses) if preinstalled else os.glibc,
        image=image,
        suite=os.codename if spec.base is Base.WHEELS and os.name.startswith("debian") else "",
        backend="" if row.default or preinstalled else row.variant,
        preinstalled=preinstalled,
        driver=str(floor or ""),
        targets=tuple(targets),
        apt=_apt(spec, preinstalled),
        tools=tools,
        requirements=(torch, *packages, *wheels),
        base_requirements=(torch,) if preinstalled else (),
    )


def _apt(spec: Spec, preinstalled: bool) -> tuple[str, ...]:
    wanted = {*spec.apt}
    if not preinstalled:
        wanted |= {*_RUNTIME}
    if spec.flavor is not Flavor.RUNTIME:
        wanted |= {*_DEVEL}
    if spec.flavor is Flavor.DEBUG:
        wanted |= {*_DEBUG}
    return tuple(sorted(wanted))


def _tools(spec: Spec, facts: Facts, cuda: Cuda, os: OsRow) -> tuple[ToolRow, ...]:
    """The wheel of each debugging tool that fits ``cuda``; a devel base brings the CUDA tools itself.

    A tool's version begins with the CUDA it belongs to: the newest one not above the build's is taken, else the oldest
    above it, within the same major.
    """
    if spec.flavor is not Flavor.DEBUG:
        return ()
    found = []
    for name in _WHEEL_TOOLS:
        fitting = [
            row
            for row in facts.tools
            if (row.tool, row.how, row.os) in ((name, "wheel", None), (name, "wheel", os.name))
            and row.version is not None
            and (row.cuda_major is None or (spec.base is Base.WHEELS and row.cuda_major == cuda.major))
        ]
        below = [row for row in fitting if row.cuda_major is None or Cuda(row.version or "").upto(2) <= cuda.upto(2)]
        if below:
            found.append(max(below, key=lambda row: Version(row.version or "")))
        elif fitting:
            found.append(min(fitting, key=lambda row: Version(row.version or "")))
    return tuple(found)


def _torch_in_packages(spec: Spec) -> SpecifierSet:
    """What the spec's packages ask of torch besides its own key."""
    asked = [Requirement(text) for text in spec.packages]
    return SpecifierSet(",".join(str(one.specifier) for one in asked if canonicalize_name(one.name) == "torch"))


def _packages(spec: Spec, torch: Version) -> tuple[str, ...]:
    """The spec's packages; raises UsageError for a torch among them that the spec's own torch is not."""
    kept = []
    for text in spec.packages:
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) == "torch":
            if not requirement.specifier.contains(torch, prereleases=True):
                raise UsageError(
                    f"`packages` asks for {text}, and `torch` is {spec.torch}",
                    "drop it from `packages`: the key `torch` alone says which torch",
                )
            continue
        kept.append(text)
    return tuple(kept)


def _ngc_answers(spec: Spec, facts: Facts, row: NgcRow) -> Iterator[tuple[str, str, str, bool]]:
    """What an NGC image has of each thing that the spec names: (thing, asked, held, whether it fits)."""
    wish = SpecifierSet(f"=={spec.torch}.*" if spec.torch[0].isdigit() else spec.torch)
    fits = row.torch is not None and wish.contains(Version(row.torch).base_version)
    yield "holds torch", spec.torch, row.torch or "unknown", fits
    yield "holds Python", str(spec.python), str(row.python or "unknown"), row.python == spec.python
    same = row.cuda is not None and (spec.cuda is None or spec.cuda.upto(2) == row.cuda.upto(2))
    yield "holds CUDA", str(spec.cuda), str(row.cuda or "unknown"), same
    if spec.os != "auto":
        asked = facts.os(spec.os).name
        yield "stands on", asked, row.os or "an unknown system", row.os == asked
    if spec.driver is not None:
        floor = facts.driver_min(row.cuda).compat if row.cuda else None
        needed = f"{floor} or newer" if floor else "unknown"
        yield "needs driver", str(spec.driver), needed, floor is not None and spec.driver >= floor


def _ngc(spec: Spec, facts: Facts, oses: tuple[OsRow, ...]) -> Choice:
    """An image of NVIDIA's own build of torch; the facts know its tag and versions, not its kernels."""
    known = [row.tag for row in facts.ngcs]
    row = next((row for row in facts.ngcs if row.tag == spec.tag), None)
    if row is None:
        asked = f"nvcr.io/nvidia/pytorch:{spec.tag}" if spec.tag else "base `ngc` without `tag`"
        raise UsageError(
            f"{asked} is no image that was read of" if spec.tag else f"{asked} does not say which image",
            f"tags read of: {', '.join(known[-6:])}",
        )
    if row.torch is None or row.cuda is None or row.python is None:
        raise UsageError(f"what {row.image}:{row.tag} holds was not read in full", "choose another `tag`")
    if spec.gpus:
        raise UsageError(
            f"the kernels in {row.image}:{row.tag} were not read, so `gpus` cannot be answered", "drop `gpus`"
        )
    if spec.platform is not Platform.AMD64:
        raise UsageError(f"whether {row.image} has images for {spec.platform} was not read", "drop `platform`")
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
            raise Unsatisfiable(
                f"{row.image}:{row.tag} {what} {have}, asked for is {asked}",
                (f"{row.tag}: torch {row.torch}, CUDA {row.cuda}, Python {row.python} [{row.source}; {row.seen}]",),
                tuple(nearest[-3:]),
                "take one of the nearest, or change the wish" if nearest else "change the wish",
            )
    os = next((os for os in oses if os.name == row.os), oses[0])
    return Choice(
        row=None,
        torch=held.public,
        cuda=str(row.cuda.upto(2)),
        cudnn=str(row.cudnn or ""),
        nccl=str(row.nccl or ""),
        triton="",
        os=row.os or "",
        glibc=min(other.glibc for other in facts.oses),
        image=f"{row.image}:{row.tag}",
        suite="",
        backend="",
        preinstalled=True,
        driver=str(floor),
        targets=(),
        apt=_apt(spec, True),
        tools=_tools(spec, facts, row.cuda, os),
        requirements=_packages(spec, held),
        base_requirements=(),
    )


def _explain(spec: Spec, facts: Facts, oses: tuple[OsRow, ...], gpus: tuple[tuple[str, GpuRow], ...]) -> Unsatisfiable:
    """The refusal: what forbids the wish, every fact of it, and the nearest wishes that would be granted."""
    releases = facts.torch(spec.torch)
    chain: list[str] = []
    best: list[_Obstacle] | None = None
    best_row = releases[0]
    for row in sorted(releases, key=lambda row: (row.torch, row.default, row.cuda), reverse=True):
        if not _cuda_fits(spec, row):
            continue
        for os in oses:
            found = list(_obstacles(spec, facts, row, os, gpus))
            chain += [str(obstacle) for obstacle in found]
            if best is None or len(found) < len(best):
                best, best_row = found, row
    if best is None:
        built = sorted({row.cuda for row in releases if row.published})
        newest = releases[0].torch
        which = f"torch {newest}" if len({row.torch for row in releases}) == 1 else f"no torch {spec.torch}"
        was = "was not" if which.startswith("torch") else "was"
        message = f"{which} {was} published for CUDA {spec.cuda}; it was for {_listed([str(cuda) for cuda in built])}"
        chain = [
            f"torch {row.name}: CUDA {row.cuda} [{row.source}; seen {row.seen}]" for row in releases if row.published
        ]
        others = sorted({row.torch for row in facts.torches if row.published and _cuda_fits(spec, row)})
        if others:
            chain.append(f"CUDA {spec.cuda} went with torch {_listed([str(torch) for torch in others])}")
    else:
        first = max(best, key=lambda obstacle: obstacle.weight)
        message = first.text + (_needs(facts, spec, best_row, gpus) if first.weight is _Weight.GPU else "")
    nearest = _nearest(spec, facts, oses, gpus)
    return Unsatisfiable(
        message,
        tuple(dict.fromkeys(chain)),
        nearest,
        "take one of the nearest, or change the wish" if nearest else "change the wish",
    )


def _needs(facts: Facts, spec: Spec, row: TorchRow, gpus: tuple[tuple[str, GpuRow], ...]) -> str:
    """ ": needs torch >= X with CUDA >= Y", from the builds that do have kernels for all of the GPUs."""
    serving = [
        other
        for other in facts.torches
        if other.published
        and all(
            facts.coverage(other, gpu.sm, gpu.tegra, spec.platform.machine).state in ("sass", "ptx") for _, gpu in gpus
        )
    ]
    if not serving:
        return ": no build that was read has them"
    oldest, newest = min(other.torch for other in serving), max(other.torch for other in serving)
    if row.torch < oldest:
        cuda = min(other.cuda for other in serving if other.torch == oldest)
        return f": needs torch >= {oldest} with CUDA >= {cuda}"
    same = sorted({other.cuda for other in serving if other.torch == row.torch})
    if same:
        return f": torch {row.torch} has them for CUDA {_listed([str(cuda) for cuda in same])}"
    return f": the last torch with them is {newest}" if row.torch > newest else f": torch {newest} has them"


def _nearest(
    spec: Spec, facts: Facts, oses: tuple[OsRow, ...], gpus: tuple[tuple[str, GpuRow], ...]
) -> tuple[str, ...]:
    """At most three builds that meet all the rest of the spec, the fewest and smallest changes first."""
    order = sorted({row.torch for row in facts.torches})
    wished = {row.torch for row in facts.torch(spec.torch)}
    ranked = []
    beside = _torch_in_packages(spec)
    for row in facts.torches:
        if beside.contains(str(row.torch)) and any(not any(_obstacles(spec, facts, row, os, gpus)) for os in oses):
            steps = min(abs(order.index(row.torch) - order.index(torch)) for torch in wished)
            changes = (row.torch not in wished) + (not _cuda_fits(spec, row))
            ranked.append((changes, steps, not row.default, f"torch {row.torch} with CUDA {row.cuda}"))
    return tuple(text for *_, text in sorted(ranked)[:3])


def _listed(items: list[str]) -> str:
    """ "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"
