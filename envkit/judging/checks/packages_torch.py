"""What is asked of the torch that a list of packages names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.dockerfile.requirements import LONGEST, allows
from envkit.dockerfile.torches import nightly, variant_of, wins
from envkit.facts import Facts
from envkit.judging.checks import _abi as abi
from envkit.judging.checks import _torch_fit as fit
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.judging.checks._packages import need_release, need_torch, sure
from envkit.judging.checks._would_run import torch_for
from envkit.model import Finding, Skip, Span, Unknown
from envkit.subjects.dockerfile import Install
from envkit.subjects.packages import Packages
from envkit.versions import Cuda, Python

_BEHIND = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)[^#]*?\s(--(?:extra-)?index-url|--find-links)\b")
_PIP_KINDS = ("requirements", "conda", "pyproject")


def packages_torch_python_unsupported(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """torch has a wheel for the Python, or for one of the Pythons, that the file names.

    Source: the tags of the wheels, beyond whose Pythons the packages of PyTorch's own channel of conda never go.
    """
    skip_if(not packages.pythons and packages.python.missing, packages.python.missing)
    if not packages.torches and any(one.name == "torch" and one.marker for one in packages.installs):
        raise Skip("a marker chooses torch by something that the file does not fix")
    torch = need_torch(packages)
    ours = any(one.name == "pytorch-cuda" and one.sure for one in packages.installs)  # of PyTorch's own channel alone
    skip_if(torch.method == "conda" and not ours, "conda itself chooses the Pythons that it builds torch for")
    version = need_release(torch, "the installer takes one that has a wheel")
    misfit = fit.python_misfit(version, packages.pythons or (packages.python.need("the Python"),), facts, conda=ours)
    if misfit:
        yield error(misfit.message, torch.span, misfit.facts, misfit.fix)


def packages_torchvision_mismatch(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """torchvision and torchaudio were made for the torch beside them, and for the same CUDA."""
    mates = sure(packages, "torchvision", "torchaudio")
    skip_if(not mates, "the file names neither torchvision nor torchaudio")
    torch = need_torch(packages)
    pinned = [mate for mate in mates if mate.version and not mate.url and not mate.constraint]
    one = torch.install
    if one is not None and one.name == "torch" and one.specifier and not (one.version or one.marker or one.constraint):
        outside = [(each, fit.bounds_misfit(each.name, each.version, one.specifier, facts)) for each in pinned]
        for mate, misfit in outside:
            if misfit is not None and not mate.marker:
                yield error(misfit.message, mate.span, misfit.facts, misfit.fix)
        if any(misfit is not None for _, misfit in outside):
            return
    version = need_release(torch, "the installer takes the one that fits")
    open_: str = ""
    for mate in pinned:
        try:
            pythons = packages.pythons or (() if packages.python.missing else (packages.python.value or "",))
            misfit = fit.pair_misfit(mate.name, mate.version, version, facts, pythons)
        except Unknown as unknown:
            open_ = open_ or str(unknown)
            continue
        misfit = misfit or fit.other_cuda(mate, torch)
        if misfit:
            yield error(misfit.message, mate.span, misfit.facts, misfit.fix)
    unknown_if(open_, open_)


_PAIRED = ("torchvision", "torchaudio")  # another check asks these
_OF_PYPI = ("pip", "uv", "poetry")


def packages_torch_rejected(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """The pinned torch is one that the pinned packages beside it ask for, or take when they are imported.

    Source: Requires-Dist in their METADATA; their own code.
    """
    torch = need_torch(packages)
    version = need_release(torch, "the installer takes one that all packages beside it ask for")
    asked, open_ = 0, ""
    for one in sure(packages):
        if one.name == "torch" or one.name in _PAIRED or not one.version or one.url or one.manager not in _OF_PYPI:
            continue
        used = facts.torch_use(one.name, one.version)
        row = used or facts.torch_need(one.name, one.version)
        if row is None:
            open_ = open_ or fit.newer_than_read(one.name, one.version, facts)
            continue
        if row.torch is None:
            open_ = open_ or f"which torch {one.name} {one.version} asks for depends on the Python"
            continue
        asked += 1
        misfit = fit.rejects(row, one.version, version, facts)
        if misfit:
            # A solver does not write this into a lock unless somebody told it to override the requirement.
            told = warning if packages.is_lock or used else error
            yield told(misfit.message, one.span, misfit.facts, misfit.fix)
    unknown_if(open_, open_)
    skip_if(not asked, "the file pins no other package of which is known which torch it asks for")


def packages_numpy_too_new(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """torch was built for the NumPy that comes with it.  Source: pytorch/pytorch issue 107302; NumPy, "Migration guide"
    of its second release."""
    torch = need_torch(packages)
    version = need_release(torch, "the installer takes one that goes with NumPy")
    for row in facts.torch_abis:
        skip_if(allows(f"<{row.torch}", version) is not True, f"this torch takes every {row.package}")
        comes = [one.after.get(row.package, "") for one in packages.resolved or () if not one.unanswered]
        mine = [one for one in packages.installs if one.manager in _OF_PYPI and not one.url]
        named = [one for one in mine if one.name == row.package]
        own = [one for one in named if one.sure and not one.marker and not one.constraint]
        span = own[-1].span if own else torch.span
        pin = next((one.version for one in own if one.version), "") or next(iter(comes), "")
        if pin and allows(f">={row.since}", pin) is True:
            yield error(abi.misfit(f"=={pin} is", row, version), span, abi.takes(row), abi.older(row))
        elif own == named and own and not pin and not packages.is_lock and abi.unbounded(own[-1], mine, row):
            told = packages.pythons or (() if packages.python.missing else (packages.python.value or "",))
            if not told or any(Python(each) >= abi.SINCE for each in told):
                said = abi.misfit(" without a pin will be", row, version)
                yield warning(said, span, abi.takes(row), abi.older(row))


def packages_torch_newer_than_facts(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """The pinned torch is not newer than the facts.  Source: the table of torch builds and its day."""
    torch = need_torch(packages)
    version = need_release(torch, "there is none to look up")
    misfit = fit.newer_than_facts(version, facts)
    if misfit:
        yield note(misfit.message, torch.span, misfit.facts, misfit.fix)


def packages_torch_build_missing(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """The build of torch that the file pins was made: its local version, or its version on the only index given."""
    asked = 0
    for one in sure(packages, "torch"):
        variant = one.local if one.manager != "conda" else ""
        where = one.span
        if not variant and one.index and one.manager != "conda" and not one.extra_indexes:
            variant = variant_of(one.index)
        if not one.version or not variant or "$" in variant or one.url or nightly(one):
            continue
        asked += 1
        misfit = fit.index_lacks(one.version, variant.partition(".")[0], facts)
        if misfit:
            yield error(misfit.message, where, misfit.facts, misfit.fix)
    for one in sure(packages, "torch", *_PAIRED):
        gone = fit.nightly_gone(one, facts)
        asked += gone is not None
        if gone is not None and not one.locked:
            yield error(gone.message, one.span, gone.facts, gone.fix)
    for one, other, newest in _beyond_conda(packages, facts):
        asked += 1
        yield error(
            f"torch {one.version} was built for no CUDA newer than {newest}, and {other.name}"
            f"{other.specifier or '=' + other.version} asks for one, so that conda finds no environment, or one for "
            "the CPU",
            other.span,
            {f"the newest CUDA of torch {one.version} is {newest}": "facts, tables torch and torch_old"},
            f"take {other.name}={newest}, or a newer torch",
        )
    skip_if(not asked, "the file pins no build of torch")


def _beyond_conda(packages: Packages, facts: Facts) -> Iterator[tuple[Install, Install, str]]:
    """A torch of conda and the CUDA beside it that no build of it is for: conda-forge makes builds of its own."""
    for one in sure(packages, "torch"):
        if one.manager != "conda" or not one.version or any("forge" in channel for channel in one.channels):
            continue
        cudas = [build.cuda.upto(2) for build in facts.torch_builds(one.version)]
        for other in (*sure(packages, "cudatoolkit"), *sure(packages, "pytorch-cuda")):
            asked = re.match(r"[0-9]+\.[0-9]+", other.version or other.specifier.lstrip("= "))
            if other.manager == "conda" and cudas and asked and Cuda(asked[0]) > max(cudas):
                yield one, other, str(max(cudas))


def packages_unpinned_torch(packages: Packages) -> Iterator[Finding]:
    """An exact version, an address or a lock decides which torch gets installed.  Source: envkit."""
    if packages.kind == "pyproject":
        raise Skip("a pyproject.toml says what a project works with; a lock beside it says what gets installed")
    skip_if(packages.constraints, "constraints install nothing by themselves")
    # What stands under a marker is pinned or not whoever gets it; extras are alternatives.
    torches = [
        one for one in packages.installs if one.name == "torch" and not one.constraint and (one.sure or one.marker)
    ]
    if not torches:
        need_torch(packages)
        raise Skip("the file names no torch")
    skip_if(packages.path.endswith(".in"), "the file compiled from a requirements.in pins its versions")
    agreed = [one for one in torches if one.sure and _settled(one, packages)]
    if agreed:  # the others have to agree with it
        if all(fit.series(one) for one in agreed) and not _constrained(packages):
            yield fit.open_patch(agreed[0], _pin(agreed[0]))
        return
    for one in torches:
        if _settled(one, packages):
            continue
        yield warning(
            f"torch{one.specifier} leaves open which torch gets installed"
            if one.specifier
            else "no version of torch is given, so each install may get another one, for another CUDA",
            one.span,
            {f"torch{one.specifier}": one.span.place},
            _pin(one),
        )


def _pin(one: Install) -> str:
    return f"pin it, `{'pytorch=' if one.manager == 'conda' else 'torch=='}X.Y.Z`, with the release that was tested"


def _constrained(packages: Packages) -> bool:
    """Whether a constraint names the release of torch."""
    return any(other.name == "torch" and other.constraint and other.version for other in packages.installs)


def _settled(one: Install, packages: Packages) -> bool:
    return _constrained(packages) or fit.settled(one)


def packages_extra_index_shadowed(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """An extra index of torch builds gives the torch, not the default index beside it."""
    asked = 0
    for one in sure(packages, "torch"):
        if one.manager != "pip" or one.url or one.locked or one.constraint:
            continue
        variant = next((name for url in one.extra_indexes if (name := variant_of(url))), "")
        if not variant or variant_of(one.index):
            continue
        asked += 1
        if one.local or wins(one, variant, facts):
            continue
        rival, newest = facts.newest_torch(None), facts.newest_torch(variant)
        wanted = f"torch {one.version}" if one.version else f"torch {rival}, the newest,"
        row = fit.default_build(one.version or rival, facts)
        yield warning(
            f"{wanted} is not on the extra index for {variant}, so pip takes it from the default index"
            + (f", built for CUDA {row.cuda}" if row else ""),
            one.span,
            {f"newest torch for {variant}: {newest}": fit.cited(row)} if row else {},
            f"pin `torch=={newest}+{variant}`, the newest one of that index, or write --index-url in place of "
            "--extra-index-url"
            if newest
            else "write --index-url in place of --extra-index-url",
        )
    skip_if(not asked, "no extra index of torch builds is given")


def packages_torch_index_missing(packages: Packages) -> Iterator[Finding]:
    """A pinned local version of torch ("+cuNNN"), which the default index never holds, is on an index of the file."""
    skip_if(packages.kind not in _PIP_KINDS, "a lock names each artifact")
    pinned = [
        one
        for one in sure(packages, "torch", "torchvision", "torchaudio")
        if one.manager in ("pip", "uv", "poetry")
        and one.local
        and not (one.url or one.locked or one.constraint or "$" in one.local)
    ]
    skip_if(not pinned or packages.constraints, "the file pins no local version of torch")
    for one in pinned:
        if one.index or one.extra_indexes or one.find_links:
            continue
        yield warning(
            f"{one.name}=={one.version}+{one.local} is on no index that the file names; the default one holds no local "
            "versions",
            one.span,
            {f"+{one.local}": one.span.place},
            f"add the line `--extra-index-url https://download.pytorch.org/whl/{one.local.partition('.')[0]}`"
            if packages.kind == "requirements"
            else f"name the index https://download.pytorch.org/whl/{one.local.partition('.')[0]} for it",
        )


def packages_gpu_arch_not_covered(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """The torch build, and packages with kernels of their own, have code for every GPU that was named.

    Source: the architectures read in the wheels.
    """
    skip_if(not packages.gpus, "no GPU was named (--gpu)")
    plain = (
        one for one in sure(packages) if one.manager in _OF_PYPI and not (one.url or one.index or one.extra_indexes)
    )
    judged = False
    for finding in fit.packages_not_covered(plain, packages.gpus, facts):
        judged = True
        if finding is not None:
            yield finding
    try:
        yield from _torch_not_covered(packages, facts)
    except Skip:
        if not judged:
            raise


def _torch_not_covered(packages: Packages, facts: Facts) -> Iterator[Finding]:
    torch = need_torch(packages)
    cuda = torch.cuda.need("the CUDA of torch")
    version = torch.version.need("the version of torch")
    for gpu in packages.gpus:
        misfit = fit.gpu_misfit(version, cuda, gpu, facts)
        if misfit:
            instead = torch_for(version, packages.driver, packages.gpus, facts)
            yield error(misfit.message, torch.span, misfit.facts, f"take {instead}" if instead else misfit.fix)


def packages_driver_too_old(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """The torch build runs on the driver that was named.  Source: NVIDIA, CUDA compatibility."""
    skip_if(not packages.driver, "no driver was named (--driver)")
    torch = need_torch(packages)
    cuda = torch.cuda.need("the CUDA of torch")
    skip_if(cuda == "cpu", "the torch is a build for the CPU")
    misfit = fit.driver_misfit(cuda, packages.driver, f"torch {torch.version.value or ''}".strip(), facts)
    if misfit:
        instead = torch_for(torch.version.value or "", packages.driver, packages.gpus, facts)
        fix = f"update the driver, or take {instead}" if instead else misfit.fix
        yield error(misfit.message, torch.span, misfit.facts, fix)


def packages_index_ignored(packages: Packages) -> Iterator[Finding]:
    """An index stands on a line of its own: behind a requirement pip reads the option and takes no notice of it."""
    skip_if(packages.kind != "requirements", "only requirements files hold options")
    skip_if(not packages.installs, "the file names no package")
    for number, line in enumerate(packages.text.splitlines(), 1):
        match = _BEHIND.match(line) if len(line) <= LONGEST else None
        if not match:
            continue
        span = Span(packages.path, number, match.start(2) + 1, number, match.end(2) + 1)
        message = f"{match[2]} comes after {match[1]}, where pip ignores it"
        fix = "write it on its own line above; it applies to the whole file"
        yield warning(message, span, {match[2]: span.place}, fix)
