"""What fits a torch build and what does not: the judgements that Dockerfiles, lists of packages and workloads share.

Functions of versions, names and facts alone; each gives None where it fits and raises Unknown where no fact tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import date
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from envkit.errors import UsageError
from envkit.facts import Facts, TorchNeedRow, TorchOldRow, TorchRow, served
from envkit.facts.pairs import goes_with
from envkit.facts.rows import Sourced
from envkit.judging.checks._outcomes import error, note, unknown_if
from envkit.model import Finding, Unknown
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.versions import Cuda, Driver, Torch

if TYPE_CHECKING:
    from envkit.subjects.dockerfile import Install
    from envkit.subjects.dockerfile import Torch as Installed

Build = TorchRow | TorchOldRow
# Lets patch releases vary alone; "~=" with two numbers holds the first one only (PEP 440).
_SERIES = pattern(r"(?:(?:=|==)\s*[0-9]+\.[0-9]+(?:\.[0-9]+)?(?:\.?\*)?|~=\s*[0-9]+\.[0-9]+\.[0-9]+)\Z")
# An upper and a lower bound, in this order.
_WITHIN = pattern(r"(<=?)\s*([0-9]+)\.([0-9]+)((?:\.[0-9]+)*),>=?\s*([0-9]+)\.([0-9]+)(?:\.[0-9]+)*\Z")


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why two things do not go together: ``message`` and ``fix`` as in Finding, ``facts`` the rows that say so."""

    message: str
    fix: str
    facts: Mapping[str, str] = field(default_factory=dict)


def cited(row: Sourced) -> str:
    """Where a row was read and when."""
    return f"{row.source}; seen {row.seen}"


def build_of(version: str, cuda: str, facts: Facts) -> Build | None:
    """The row of torch ``version`` for ``cuda`` ("A.B"), None where there is none."""
    return next((row for row in facts.torch_builds(version) if str(row.cuda) == cuda), None)


def default_build(version: str, facts: Facts) -> Build | None:
    """The row of what the default index serves as torch ``version``, None where none is known."""
    return next((row for row in facts.torch_builds(version) if row.default), None)


def settled(install: Install) -> bool:
    """Whether what asks for a package says which release it gets, patch releases aside."""
    return bool(install.version or install.url or install.locked or _one_minor(install.specifier))


def series(install: Install) -> bool:
    """Whether what asks for a package settles its release but for the patch."""
    refused = install.manager != "conda" and re.match(r"=[^=]", install.specifier)  # pip has no such operator
    return settled(install) and not (install.version or install.url or install.locked or refused)


def open_patch(install: Install, fix: str) -> Finding:
    """What is told of a torch of one minor whose patch release is open.  Source: pip, "Repeatable installs"."""
    wanted = f"torch{install.specifier}"
    message = f"{wanted} leaves the patch release open, so a later build may get another one"
    return note(message, install.span, {wanted: install.span.place}, fix)


def _one_minor(specifier: str) -> bool:
    """Whether a specifier lets patch releases of one minor in and no other, however it says so."""
    bounds = _WITHIN.match(",".join(sorted(clause.strip() for clause in specifier.split(","))))
    if bounds is None:
        return bool(_SERIES.match(specifier))
    high, low = (int(bounds[2]), int(bounds[3])), (int(bounds[5]), int(bounds[6]))
    patch = bounds[1] == "<=" or bool((bounds[4] or "").strip(".0"))
    return high == low if patch else high == (low[0], low[1] + 1)


def unreleased(version: str) -> bool:
    """Whether a version is of somebody's own build, such as NVIDIA's ("A.B.0a0"), which no index has."""
    return bool(re.search(r"[0-9]a[0-9]", version))


def other_cuda(mate: Install, torch: Installed, built: str = "") -> Incompatibility | None:
    """Whether torchvision or torchaudio is of another CUDA than its torch: by its local version, or as ``built``.

    Source: their own checks at import: torchvision's of the CUDA major, and torchaudio's (pytorch/audio at 15ea6216,
    _check_cuda_version) of the minor as well.
    """
    from envkit.dockerfile.torches import cuda_of  # of files alone, and this module judges machines and images too

    mine, theirs = cuda_of(mate.local) or built, "" if torch.cuda.missing else torch.cuda.value or ""
    minor = mate.name == "torchaudio" and _compares_minors(mate.version) and "." in mine and "." in theirs
    parts = 2 if minor else 1
    if not mine or not theirs or mine.split(".")[:parts] == theirs.split(".")[:parts]:
        return None
    names = ["the CPU" if cuda == "cpu" else f"CUDA {cuda}" for cuda in (mine, theirs)]
    return Incompatibility(
        f"{mate.name} {mate.version} is built for {names[0]} and torch {torch.version.value} for {names[1]}",
        "take both from one index",
        {names[0]: mate.span.place, names[1]: torch.cuda.via},
    )


def _compares_minors(version: str) -> bool:
    """Whether a release of torchaudio is one that compares, and whose builds are those of its torch."""
    release = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return (2, 0) <= release < (2, 9)


def python_misfit(version: str, pythons: Sequence[str], facts: Facts, *, conda: bool = False) -> Incompatibility | None:
    """Whether torch ``version`` has a wheel for one of ``pythons`` ("A.B"), any of which may be used; with ``conda``, a
    package on PyTorch's own channel, beyond whose Pythons those never go.

    Source: the tags of the release's wheels on the default index; all its builds are made for the same Pythons.
    """
    row = default_build(version, facts)
    if row is None or row.pythons is None:
        raise Unknown(f"the facts do not say for which Python versions torch {version} has wheels")
    tags = tuple(tag for tag in row.pythons if not tag.endswith("t"))
    if any(_tag(python) in tags for python in pythons):
        return None
    first, last = _dotted(tags[0]), _dotted(tags[-1])
    shown = f"Python {pythons[0]}" if len(pythons) == 1 else f"any Python from {pythons[0]} to {pythons[-1]}"
    newer = "" if conda else _newest_for(pythons, facts)  # the channel ended before the index's newest releases
    what = "package on PyTorch's channel" if conda else "wheel"
    return Incompatibility(
        f"torch {version} has no {what} for {shown}, only for {first} to {last}",
        f"take a Python from {first} to {last}" + (f", or torch {newer}, which has one" if newer else ""),
        {f"wheels of torch {version} are for Python {first} to {last}": cited(row)},
    )


def for_others(install: Install) -> bool:
    """Whether an installer is told to take wheels for another Python or system than its own."""
    return any(name.startswith(("--python-version", "--platform")) for name in install.options)


_WHEEL_TAGS = pattern(r"-(?P<pythons>[a-z0-9.]+)-(?P<abis>[a-z0-9.]+)-[^-/]+\.whl(?:$|[#?])")


def other_python(install: Install) -> str:
    """For which Python ("A.B") the wheel is made that an install names by its file, where it goes into another one,
    else "".

    Source: PEP 425; a wheel for the stable interface (abi3) is for each later Python too.
    """
    wheel = ".whl" in install.url and install.manager in ("pip", "uv") and bool(install.python)
    found = _WHEEL_TAGS.search(install.url) if wheel else None
    if found is None:
        return ""
    named = [tag for tag in found["pythons"].split(".") if re.fullmatch(r"cp\d{2,3}", tag)]
    if len(named) != found["pythons"].count(".") + 1 or "abi3" in found["abis"].split("."):
        return ""
    return "" if _tag(install.python) in named else _dotted(named[-1])


def _tag(python: str) -> str:
    return "cp" + "".join(python.split(".")[:2])


def _dotted(tag: str) -> str:
    digits = tag.removeprefix("cp")
    return f"{digits[0]}.{digits[1:]}"


def _newest_for(pythons: Sequence[str], facts: Facts) -> str:
    """The newest torch that has a wheel for one of the Pythons, "" for none."""
    rows: tuple[Build, ...] = (*facts.torches_old, *facts.torches)
    fitting = [
        row.torch
        for row in rows
        if row.default and row.pythons and any(_tag(python) in row.pythons for python in pythons)
    ]
    return str(max(fitting)) if fitting else ""


def newer_than_facts(version: str, facts: Facts) -> Incompatibility | None:
    """Whether torch ``version`` came after the newest release of the facts."""
    release = re.match(r"[0-9]+(\.[0-9]+)*", version)
    newest = max(facts.torches, key=lambda row: row.torch)
    if release is None or Torch(release[0]) <= newest.torch:
        return None
    return Incompatibility(
        f"torch {version} is newer than envkit's facts, which were read up to {facts.torches_seen} and end with torch "
        f"{newest.torch}",
        "update envkit; until then what depends on the release is not judged",
        {f"newest torch known: {newest.torch}": cited(newest)},
    )


def newer_than_read(package: str, version: str, facts: Facts) -> str:
    """Why it is not known which torch ``version`` asks for, where ``package`` asks for one torch exactly and the facts
    end with an older release; "" elsewhere."""
    rows = facts.torch_needs_of.get(package, ())
    if not rows or not (rows[-1].torch or "").startswith("=="):
        return ""
    try:
        if Version(version) <= Version(rows[-1].until):
            return ""
    except InvalidVersion:
        return ""
    return (
        f"{package} {version} is newer than envkit's facts, which were read up to {rows[-1].seen} and do not say which "
        "torch it asks for"
    )


def rejects(row: TorchNeedRow, version: str, torch: str, facts: Facts) -> Incompatibility | None:
    """Whether ``version`` of a package, of which ``row`` tells, asks for another torch than ``torch``.

    Source: Requires-Dist of its wheels.
    """
    wanted = SpecifierSet(row.torch or "")
    if wanted.contains(torch, prereleases=True):
        return None
    uses = row in facts.torch_uses_of.get(row.package, ())
    others = facts.torch_uses_of[row.package] if uses else facts.torch_needs_of[row.package]
    fitting = [other for other in others if other.torch]
    fitting = [other for other in fitting if SpecifierSet(other.torch or "").contains(torch, prereleases=True)]
    known = [other.torch for other in facts.torches_all if other.default and wanted.contains(str(other.torch))]
    ways = [f"{row.package}=={fitting[-1].until}"] if fitting else []
    ways += [f"torch=={max(known)}"] if known else []
    return Incompatibility(
        f"{row.package} {version} {'takes' if uses else 'asks for'} torch{row.torch}, and the file pins torch {torch}"
        + (f": {row.note}" if uses else ""),
        f"take {' or '.join(ways)}, and test the two together" if ways else "take releases that ask for one another",
        {f"{row.package} {version} {'takes' if uses else 'requires'} torch{row.torch}": cited(row)},
    )


def pair_misfit(
    package: str, version: str, torch: str, facts: Facts, pythons: Sequence[str] = ()
) -> Incompatibility | None:
    """Whether ``version`` of "torchvision" or "torchaudio" was made for torch ``torch``; the fix is for ``pythons``
    ("A.B"), any of which may be used, or for any Python.

    Source: Requires-Dist of their wheels, which name one torch exactly; of releases that ask for a range the rows'
    notes say so.
    """
    releases = facts.torches_of(package, version)
    unknown_if(not releases, f"the facts do not say for which torch {package} {version} was made")
    unknown_if(not facts.torch_builds(torch), f"there are no facts about torch {torch}")
    wanted = str(facts.torch_builds(torch)[0].torch)
    if goes_with(package, version, Torch(wanted), facts):
        return None
    made = " or ".join(releases)
    row = default_build(releases[0], facts)
    mate = _mate_of(package, wanted, facts)
    pairs = [(f"{package}=={mate}", wanted)] if mate else []
    pairs += [(f"torch=={releases[-1]}", releases[-1])]
    ways = [way for way, release in pairs if _has_wheel(release, pythons, facts)]
    newest = _newest_for(pythons, facts)
    if not ways and newest and (theirs := _mate_of(package, newest, facts)):
        ways = [f"torch=={newest} with {package}=={theirs}"]  # neither has a wheel for this Python
    return Incompatibility(
        f"{package} {version} was made for torch {made}, not for {wanted}",
        f"take {', or '.join(ways)}" if ways else f"take torch=={releases[-1]} and a Python that it has a wheel for",
        {f"{package} {version} requires torch {made}": cited(row)} if row else {},
    )


def bounds_misfit(package: str, version: str, specifier: str, facts: Facts) -> Incompatibility | None:
    """Whether ``version`` of "torchvision" or "torchaudio" was made for no torch that ``specifier`` lets in; None too
    where no fact tells for which it was made.  Source: as of ``pair_misfit``."""
    releases = facts.torches_of(package, version)
    try:
        bounds = SpecifierSet(specifier)
    except InvalidSpecifier:
        return None
    let_in = {row.torch for row in facts.torches_all if str(row.torch) in bounds} if releases else set()
    if not releases or any(goes_with(package, version, torch, facts) for torch in let_in):
        return None
    row = default_build(releases[0], facts)
    newest = max(let_in, default=None)
    mate = _mate_of(package, str(newest), facts) if newest is not None else ""
    ways = [*([f"{package}=={mate} with torch=={newest}"] if mate else []), f"torch=={releases[-1]}"]
    return Incompatibility(
        f"{package} {version} was made for torch {' or '.join(releases)}, which torch{specifier} leaves out",
        f"take {', or '.join(ways)}",
        {f"{package} {version} requires torch {' or '.join(releases)}": cited(row)} if row else {},
    )


def _mate_of(package: str, torch: str, facts: Facts) -> str:
    """The last release of "torchvision" or "torchaudio" that was made for a torch, "" where the facts name none."""
    row = default_build(torch, facts)
    listed = () if row is None else (row.torchvision if package == "torchvision" else row.torchaudio) or ()
    return str(listed[-1]) if listed else ""


def _has_wheel(torch: str, pythons: Sequence[str], facts: Facts) -> bool:
    """Whether nothing speaks against a wheel of a torch for one of the Pythons."""
    try:
        return not pythons or python_misfit(torch, pythons, facts) is None
    except Unknown:
        return True


def gpu_misfit(version: str, cuda: str, gpu: str, facts: Facts) -> Incompatibility | None:
    """Whether the build of torch ``version`` for ``cuda`` has code for the GPU that a person calls ``gpu``.

    Source: the architectures read in the wheels (facts.coverage).
    """
    try:
        wanted = facts.gpu(gpu)
    except UsageError as error:
        raise Unknown(error.message) from error
    if cuda == "cpu":
        return Incompatibility(
            f"torch {version} is a build for the CPU and has no code for {wanted.name}", "take a build for CUDA"
        )
    row = build_of(version, cuda, facts)
    if not isinstance(row, TorchRow):
        known = facts.nvcc_archs(cuda)
        if known and not any(one.major == wanted.sm.major and one.minor <= wanted.sm.minor for one in known):
            return Incompatibility(
                f"torch {version} for CUDA {cuda} has no code for {wanted.name} ({wanted.sm}), which nvcc of CUDA "
                f"{cuda} cannot compile for",
                "take a torch that is built for a newer CUDA",
                {
                    f"the newest that nvcc of CUDA {cuda} knows is {max(known)}": "facts: cuda",
                    f"{wanted.name} is {wanted.sm}": wanted.source,
                },
            )
        raise Unknown(f"the facts do not say which GPUs torch {version} for CUDA {cuda} has code for")
    state = facts.coverage(row, wanted.sm, wanted.tegra).state
    unknown_if(state == "unknown", f"the architectures of torch {version} for CUDA {cuda} were not read")
    if state != "none":
        return None
    has = ", ".join(str(sm) for sm in row.archs or ())
    better = [
        one for one in facts.torches if one.published and facts.coverage(one, wanted.sm, wanted.tegra).state == "sass"
    ]
    near = next((one for one in better if one.torch == row.torch), better[-1] if better else None)
    return Incompatibility(
        f"torch {version} for CUDA {cuda} has no code for {wanted.name} ({wanted.sm}), only for {has}",
        f"take torch=={near.name} from {near.index}" if near else "no published build of torch has code for it",
        {f"architectures of torch {row.name}: {has}": cited(row), f"{wanted.name} is {wanted.sm}": wanted.source},
    )


def package_gpu_misfit(install: Install, gpu: str, facts: Facts) -> Incompatibility | None:
    """Whether the wheel of a package has kernels of its own for the GPU that a person calls ``gpu``.

    Source: the architectures read in the wheels.  Raises Unknown where nobody read them.
    """
    row = facts.package_arch(install.name, install.version)
    unknown_if(row is None, f"for which GPUs {install.name} {install.version} has code was not read")
    try:
        wanted = facts.gpu(gpu)
    except UsageError as error:
        raise Unknown(error.message) from error
    if row is None or served(row.archs, row.ptx, wanted.sm, wanted.tegra).state != "none":
        return None
    has = ", ".join(map(str, row.archs))
    return Incompatibility(
        f"{install.name} {install.version} has no code for {wanted.name} ({wanted.sm}), only for {has}",
        f"take a release of {install.name} that is compiled for it, or compile it for {wanted.sm}",
        {f"architectures of {install.name}: {has}": cited(row), f"{wanted.name} is {wanted.sm}": wanted.source},
    )


def driver_misfit(cuda: str, driver: str, what: str, facts: Facts) -> Incompatibility | None:
    """Whether a program built for ``cuda`` runs on ``driver`` (a release or a bare branch); ``what`` names the program.

    From the floor of minor-version compatibility on it does.  Source: NVIDIA, CUDA compatibility and release notes.
    """
    try:
        wanted, version = Driver(driver), Cuda(cuda)
    except ValueError as error:
        raise Unknown(str(error)) from error
    floor = facts.driver_min(version)
    if floor.compat is None:
        raise Unknown(f"the facts do not say which driver CUDA {cuda} needs")
    branch = len(wanted.parts) == 1
    if (wanted.major >= floor.compat.major) if branch else (wanted >= floor.compat):
        return None
    return Incompatibility(
        f"{what} is for CUDA {cuda}, which needs driver {floor.compat} or newer, not {driver}",
        f"update the driver, or take a build for a CUDA that driver {driver} runs"
        + (f" ({native})" if (native := facts.native_cuda(wanted)) else ""),
        {f"CUDA {cuda} needs driver {floor.compat}": floor.compat_source},
    )


def compat_serves(cuda: str, driver: str, facts: Facts) -> bool:
    """Whether a cuda-compat package of ``cuda`` makes it run on the branch of ``driver``, on data-center GPUs alone.

    Source: NVIDIA, CUDA compatibility, forward compatibility.
    """
    row = facts.forward_compat(Cuda(cuda))
    return row is not None and Driver(driver).major in (row.compat or ())


def index_lacks(version: str, variant: str, facts: Facts) -> Incompatibility | None:
    """Whether torch ``version`` was never made as ``variant`` ("cuXYZ"); "cpu" always is.

    Source: the list of builds of a release; a build that was only planned counts as one that may be there.
    """
    rows = facts.torch_builds(version)
    if variant == "cpu" or not variant.startswith("cu"):
        return None
    named = [row for row in rows if row.variant]
    unknown_if(not named, f"there are no facts about the builds of torch {version}")
    if any(row.variant == variant for row in named):
        return None
    # The lists of old releases are those of a page for users, which names not all that was built.
    made = [row.torch for row in facts.torches_old if row.variant == variant]
    between = made and min(made) < Torch(version) < max(made)
    unknown_if(between, f"whether torch {version} was built as {variant}, as releases before and after, is not known")
    builds = ", ".join(row.variant for row in named if row.published is not False)
    return Incompatibility(
        f"torch {version} has no build {variant}, only {builds}",
        f"take one of its builds, or a torch that was built as {variant}"
        + (f" (the newest is {newest})" if (newest := facts.newest_torch(variant)) else ""),
        {f"builds of torch {version}: {builds}": cited(named[-1])},
    )


def packages_not_covered(installs: Iterable[Install], gpus: Sequence[str], facts: Facts) -> Iterator[Finding | None]:
    """What the wheels of packages with kernels of their own lack for each of ``gpus``; None once for each package that
    was judged, so that it is seen whether any was."""
    for one in installs:
        if not one.version or facts.package_arch(one.name, one.version) is None:
            continue
        yield None
        for gpu in gpus:
            misfit = package_gpu_misfit(one, gpu, facts)
            if misfit is not None:
                yield error(misfit.message, one.span, misfit.facts, misfit.fix)


_NIGHTLY = pattern(r"\d+(?:\.\d+)*\.?(?:a|b|rc|dev)?\d*\.?dev(\d{4})(\d{2})(\d{2})")


def nightly_gone(one: Install, facts: Facts) -> Incompatibility | None:
    """Whether a nightly build is older than those that PyTorch's index of them lists, where it comes from there."""
    day = _NIGHTLY.match(one.version)
    urls = (one.index, *one.extra_indexes, *one.find_links)
    if day is None or one.url or not any(re.search(r"download\.pytorch\.org/whl/nightly", url) for url in urls):
        return None
    row = facts.milestone("torch-nightly-kept")
    try:
        age = date.fromisoformat(facts.torches_seen) - date(*map(int, day.groups()))
    except ValueError:
        return None
    if age.days <= int(row.release):
        return None
    return Incompatibility(
        f"{one.name} {one.version} is a nightly build, of which PyTorch's index lists those of the last {row.release} "
        "days alone",
        f"take a release, or a nightly build of today; an old one is only to be had by its own address on {urls[0]}"
        if urls[0]
        else "take a release, or a nightly build of today",
        {f"{one.name} {one.version}": one.span.place, f"kept for {row.release} days": cited(row)},
    )


def never_built(variant: str, facts: Facts) -> bool:
    """Whether no torch was built as ``variant`` ("cuXYZ") though others were for later CUDAs, so that none will be."""
    known = {row.variant for row in facts.torches_all if row.variant.startswith("cu")}
    return variant not in known and any(_digits(other) > _digits(variant) for other in known)


def near_variants(variant: str, facts: Facts) -> list[str]:
    """The two builds whose CUDAs are nearest to that of ``variant``, the older one first."""
    known = {row.variant for row in facts.torches_all if row.variant.startswith("cu")}
    below = [each for each in known if _digits(each) < _digits(variant)]
    above = [each for each in known if _digits(each) > _digits(variant)]
    return [max(below, key=_digits)] * bool(below) + [min(above, key=_digits)] * bool(above)


def _digits(variant: str) -> tuple[int, ...]:
    """The CUDA of a variant: its last digit is the minor."""
    text = variant.removeprefix("cu")
    return (int(text[:-1]), int(text[-1])) if text.isdigit() and len(text) > 1 else ()


def ptx_isa(facts: Facts, cuda: Cuda) -> tuple[int, ...]:
    """The newest PTX that a toolkit of ``cuda`` writes and its driver compiles; raises Unknown beyond the table."""
    older = [row for row in facts.ptx_isas if row.cuda <= cuda.upto(2)]
    unknown_if(not older or cuda.upto(2) > facts.ptx_isas[-1].cuda, f"the facts hold no PTX ISA of CUDA {cuda}")
    return tuple(int(part) for part in older[-1].isa.split("."))
