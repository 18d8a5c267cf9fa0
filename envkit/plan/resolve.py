"""A spec against the facts: the newest combination that they allow, or the facts that forbid it.

Pure: reads the rows, touches nothing, and gives the same answer on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envkit.errors import Unsatisfiable, UsageError
from envkit.facts import Coverage, Facts, ImageTag, NgcRow, OsRow, TorchRow
from envkit.facts.rows import DerivedRow
from envkit.plan.flavors import Extras, extras
from envkit.plan.inputs import admits_python
from envkit.plan.refusal import CHOOSE, compat_line, explain, or_nearest
from envkit.plan.request import (
    CHANGE,
    Request,
    base_tags,
    cuda_fits,
    listed,
    looked_up,
    newest_first,
    of_build,
    of_system,
    oses_of,
    quoted,
)
from envkit.plan.spec import ANY_PYTHON, CPU, Base, Platform, Spec, TorchWish
from envkit.records import dataclass
from envkit.versions import Cuda, Driver, Glibc, Python, Sm, Torch

_MOST_CHANGES = 4

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
    that the facts do not describe (NGC), and the row of its release's default build where ``cuda`` is None, which is a
    build without it.  Of such a one ``plain`` says that a wheel without "+cpu" is one too, and ``others`` are
    requirements that keep out what builds for CUDA an index has beside it.  ``os`` is empty where the base's own system
    was not read; ``glibc`` is then the oldest of all systems known, so that any wheel chosen fits.  ``notes`` are
    sentences with their source: what is granted and may still disappoint.
    """

    row: TorchRow | None = None
    torch: Version
    cuda: Cuda | None
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
    plain: bool = False
    others: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """The build of torch as the local part of its version names it: "cuXYZ" or "cpu"; "" where it is not known."""
        return CPU if self.cuda is None else self.row.variant if self.row else ""

    @property
    def built_for(self) -> str:
        """What it computes with, in words."""
        return "the CPU" if self.cuda is None else f"CUDA {self.cuda}"


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
        yield from _feasible(spec, facts, explain)
    except Unsatisfiable as error:
        if not error.nearest:
            error.nearest = tuple(_changes(spec, facts))
            error.fix = or_nearest(error.fix, error.nearest)
        raise


def _feasible(spec: Spec, facts: Facts, refusal: Callable[[Request], UsageError]) -> Iterator[Choice]:
    """``feasible``; ``refusal`` is what is raised where the facts allow no choice."""
    oses = oses_of(spec, facts)
    if spec.base is Base.NGC:
        yield _ngc(spec, facts, oses)
        return
    if spec.base is Base.PYTORCH and spec.os != "auto":
        raise UsageError("the operating system in the images of base `pytorch` is not known", "drop `os`")
    request = looked_up(spec, facts)
    held: set[Torch] = set()
    for row in newest_first(row for row in facts.torches if row.torch in request.releases and cuda_fits(spec, row)):
        if row.torch in held or any(of_build(request, row, spec.platform)):
            continue
        for os in oses:
            if not any(of_system(request, row, os, spec.platform)):
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


def _choice(request: Request, row: TorchRow, os: OsRow) -> Choice:
    spec, machine = request.spec, request.spec.platform.machine
    covers = [(name, gpu, request.cover(row, gpu, machine)) for name, gpu in request.gpus]
    targets = tuple(Target(name, gpu.sm, _served_by(covered)) for name, gpu, covered in covers)
    floor, cpu = request.floor(row), spec.cpu
    compiled = any(covered.state == "ptx" for _, _, covered in covers)
    preinstalled = spec.base is Base.PYTORCH
    image = os.image
    tag: ImageTag | None = None
    if spec.base is not Base.WHEELS:
        tags = base_tags(request, row, os)
        tag = next((tag for tag in tags if tag.reference.endswith(f":{spec.tag}")), tags[0])
        image = tag.reference
    # On a base that holds torch it only keeps its companions in step, for which any build of the release will do.
    torch = f"torch=={row.torch}" if row.default or preinstalled else f"torch=={row.name}"
    backend = "" if row.default or preinstalled else row.variant
    if cpu:
        torch, backend = f"torch=={row.torch}+{CPU}", CPU
    return Choice(
        row=row,
        torch=Version(str(row.torch)),
        cuda=None if cpu else row.cuda,
        cudnn="" if cpu else str(row.cudnn or ""),
        nccl="" if cpu else str(row.nccl or ""),
        triton="" if cpu else row.triton or "",
        os="" if preinstalled else os.name,
        glibc=min(other.glibc for other in request.facts.oses) if preinstalled else os.glibc,
        image=image,
        suite=os.codename if spec.base is Base.WHEELS and os.name.startswith("debian") else "",
        backend=backend,
        preinstalled=preinstalled,
        driver=None if cpu else floor.own if compiled else floor.compat,
        targets=targets,
        extras=extras(spec, request.facts, os, None if cpu else row.cuda, preinstalled),
        requirements=(torch, *(() if preinstalled else _NEEDED), *_packages(spec, Version(str(row.torch)))),
        base_requirements=(torch,) if preinstalled else (),
        notes=tuple(_notes(request, row, tag)),
        plain=cpu and spec.platform is Platform.ARM64 and row.pypi_aarch64 == CPU,
    )


def _served_by(covered: Coverage) -> str:
    """The words of Target.by."""
    if covered.by is None:
        return "not read"
    return f"{'machine code' if covered.state == 'sass' else 'PTX'} of {covered.by}"


def _of_derived(request: Request, row: DerivedRow) -> Iterator[str]:
    """What nobody has verified of a build that the facts do not have."""
    known = [other for other in request.facts.torches if not isinstance(other, DerivedRow)]
    newest = max(other.torch for other in known)
    text = f"torch {row.torch} is derived, not verified: the facts, read up to {max(each.seen for each in known)}, "
    text += f"end with torch {newest}" if row.torch > newest else "do not have this release"
    yield f"{text} [{row.source}; seen {row.seen}]"
    if request.kinds:
        gpus = listed([str(kind) for kind in request.kinds])
        yield f"whether torch {row.torch} has code for {gpus} is not known before it is built and probed"
    if not request.spec.cpu and request.floor(row).compat is None:
        yield f"which drivers run CUDA {row.cuda} is not known"


def _notes(request: Request, row: TorchRow, tag: ImageTag | None) -> Iterator[str]:
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
        yield "needs driver", listed([str(driver) for driver in spec.drivers]), needed, fits


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
            compat = (compat_line(spec, facts, (), row.cuda, floor),) if what == "needs driver" else ()
            raise Unsatisfiable(
                f"{row.image}:{row.tag} {what} {have}, but the spec says {asked}",
                (told, *compat),
                tuple(nearest[-3:]),
                CHOOSE if nearest else CHANGE,
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


def _changes(spec: Spec, facts: Facts) -> Iterator[str]:
    """At most _MOST_CHANGES changes after which the facts allow a choice, each tried: of torch, of one other key, and
    where none of these does, of one key and torch."""
    any_torch = replace(spec, torch=TorchWish(">0"), cuda=None)  # with `cpu` it stays without CUDA
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
            yield _said(f"{key} without {quoted(of_torch)}"), replace(spec, **{key: left})  # type: ignore[arg-type]
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
        yield _said(f"gpus without {quoted(names)}"), replace(spec, gpus=left)
    yield from _other_drivers(spec, facts)
    if spec.platform is not Platform.AMD64:
        yield _said(f'platform = "{Platform.AMD64}"'), replace(spec, platform=Platform.AMD64)


def _other_drivers(spec: Spec, facts: Facts) -> Iterator[tuple[Callable[[Choice], str], Spec]]:
    """The spec with the oldest newer driver that the facts allow; where there is none, with the newest older branch."""
    if not spec.drivers:
        return
    oldest = min(map(facts.oldest_release, spec.drivers))
    floors = [facts.driver_min(row.toolkit or row.cuda) for row in facts.torches]
    of_gpus = [known for name in spec.gpus if (known := facts.gpu_drivers(facts.gpu(name).sm))]
    named = {driver for floor in floors for driver in (floor.compat, floor.own) if driver}
    for driver in sorted(named | {known.needs for known in of_gpus if known.needs}):
        if driver > oldest and _granted(replace(spec, drivers=(driver,)), facts) is not None:
            yield _said(f'driver = "{driver}" or newer'), replace(spec, drivers=(driver,))
            return
    for branch in sorted({known.last for known in of_gpus if known.last}, reverse=True):
        last = Driver(str(branch))
        if last < oldest and _granted(replace(spec, drivers=(last,)), facts) is not None:
            yield _said(f'driver = "{last}"'), replace(spec, drivers=(last,))
            return


def torch_said(choice: Choice) -> str:
    """The torch of a choice, as a change of a spec is named."""
    return f"torch {choice.torch.base_version} " + (f"with CUDA {choice.cuda}" if choice.cuda else "without CUDA")


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
