"""What is asked of the torch that an image gets beside the CUDA that its base has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from envkit.dockerfile.requirements import allows
from envkit.dockerfile.torches import newest_for, nightly, variant_of
from envkit.facts import Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._brought import brought_before
from envkit.judging.checks._compiles import CudaBuildStep, compiles, toolkit
from envkit.judging.checks._dockerfile import (
    apart,
    commands_of,
    need_stages,
    need_torch,
    own,
    reached,
    unknown_if_unread,
)
from envkit.judging.checks._image_cuda import equipped
from envkit.judging.checks._outcomes import found, skip_if, unknown_if, warning
from envkit.judging.checks._torch_fit import Build, cited, other_python, unreleased
from envkit.judging.checks._torch_ousted import against, torch_of_base
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import Base, Dockerfile, Install, Stage, Torch


@dataclass(frozen=True, slots=True)
class _Pair:
    """A torch and the base that it meets; ``build`` where the file leaves the release open and the facts settle it."""

    torch: Torch
    cuda: str
    base: Base
    base_cuda: str
    stage: Stage
    build: Build | None = None
    by: str = ""  # the package that brings torch along, where nothing asks for torch itself
    last: bool = False  # whether ``build`` stays the newest that fits, whatever comes


def _pair(dockerfile: Dockerfile, facts: Facts) -> _Pair:
    """The torch that stays and the base with CUDA that it meets: of the stage that installs it, or of the image.

    Raises Skip where no base has CUDA, no torch comes to it, or the torch has none; Unknown where one is not known.
    """
    need_stages(dockerfile)
    bases = [dockerfile.base, *(dockerfile.stages[index].base for index in dockerfile.brought)]
    skip_if(all(stack.without_cuda(base) for base in bases), "there is no CUDA in the base")
    along = stack.implied(dockerfile, facts)
    if dockerfile.torch is None and not any(stack.cuda_of_base(base) for base in bases):
        raise Skip("nothing here installs torch, as far as the text says")
    torch = need_torch(dockerfile) if along is None else along.torch
    skip_if(torch.method == "base", "the torch is the base's own")
    skip_if(torch.method == "source", "torch is built from source, against the CUDA that is there")
    skip_if(torch.cuda.is_unsupported, "the torch is no build for CUDA")
    placed = along.by if along is not None else torch.install
    stage = stack.stage_of(placed, dockerfile) if placed is not None else dockerfile.target
    met = [dockerfile.stages[index] for index in dict.fromkeys((stage.index, dockerfile.target.index))]
    here = [(one, one.base) for one in met if not stack.without_cuda(one.base)]
    skip_if(not here, "the base that torch is installed on has no CUDA")
    known = [(one, base, stack.cuda_of_base(base)) for one, base in here if stack.cuda_of_base(base)]
    if not known:
        skip_if(_chosen_by_another(torch), "another package brings the torch, and the base's CUDA is not known")
        here[0][1].cuda.need(f"the CUDA of {here[0][1].reference}")
    by = along.by if along is not None else None
    cuda, build, last = stack.said(torch.cuda), None, False
    if not cuda and by is None and (newest := _of_newest(torch, known[0][2], dockerfile, facts)) is not None:
        by, torch, cuda = torch.install, newest, stack.said(newest.cuda)
    skip_if(cuda == "cpu", "the torch is a build for the CPU")
    if not cuda:
        skip_if(_chosen_by_another(torch), "another package brings the torch, and no file determines which")
        build = stack.least_build(torch, dockerfile, facts)
        if build is None:
            raise Unknown(f"the CUDA of torch was not observed: {torch.cuda.missing}")
        cuda, last = str(build.cuda), stack.is_last(build, torch, facts)
    # The stage with another CUDA than torch's is the one to speak of.
    chosen = next((one for one in known if stack.minor(one[2]) != stack.minor(cuda)), known[0])
    return _Pair(torch, cuda, chosen[1], chosen[2], chosen[0], build, by.name if by is not None else "", last)


def _of_newest(torch: Torch, base_cuda: str, dockerfile: Dockerfile, facts: Facts) -> Torch | None:
    """The torch of the newest release of a package that is named without one, where it is for a later major of CUDA
    than the base's: those to come are for no earlier one."""
    one = torch.install
    if one is None or not _chosen_by_another(torch) or one.version or one.specifier or not one.sure:
        return None
    found = stack.along_with(one, dockerfile, facts)
    major = stack.major(stack.said(found.cuda)) if found is not None else ""
    return found if major.isdigit() and int(major) > int(stack.major(base_cuda)) else None


def _chosen_by_another(torch: Torch) -> bool:
    """Whether a package that asks for one torch exactly brought it."""
    return torch.install is not None and torch.install.name != "torch"


def _extensions(dockerfile: Dockerfile, pair: _Pair, facts: Facts) -> tuple[CudaBuildStep, ...]:
    """What is compiled against this torch: in stages that have it."""
    own = pair.stage.index
    return tuple(
        one
        for one in compiles(dockerfile, facts)
        if one.torch_extension and not one.asks and own in dockerfile.stages[one.stage].line
    )


def torch_cuda_vs_base_mismatch_major(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The torch that gets installed is built for the CUDA major of the base."""
    need_stages(dockerfile)
    dockerfile = equipped(dockerfile)
    other_maker = _on_rocm(dockerfile, facts)
    if other_maker is not None:
        yield other_maker
        return
    try:
        yield from _other_major(dockerfile, facts)
    except Unknown as doubt:
        # It is an error only where an extension is compiled; else the worst that an answer could be is a warning.
        made_here = any(one.torch_extension and one.sure for one in compiles(dockerfile, facts))
        worst = Severity.ERROR if made_here else Severity.WARNING
        raise Unknown(str(doubt), worst, doubt.about) from doubt


def _on_rocm(dockerfile: Dockerfile, facts: Facts) -> Finding | None:
    """A torch for CUDA that stays on a base of ROCm, on whose GPUs it does not run."""
    base, along = dockerfile.base, stack.implied(dockerfile, facts) if dockerfile.base.rocm else None
    torch = along.torch if along is not None else dockerfile.torch
    if not base.rocm or torch is None or torch.method not in ("pip", "uv", "conda"):
        return None
    if torch.install is None or apart(torch.prefix) or not torch.install.sure:
        return None
    build = stack.least_build(torch, dockerfile, facts) if not stack.said(torch.cuda) else None
    cuda = stack.said(torch.cuda) or (str(build.cuda) if build is not None else "")
    if not cuda or cuda == "cpu":
        return None
    pair = _Pair(torch, cuda, base, "", dockerfile.target, build, along.by.name if along is not None else "")
    return warning(
        f"{_what(pair)} is built for CUDA {cuda}, and the base {base.reference} has ROCm, on whose GPUs it does not "
        "run",
        torch.span,
        stack.evidence(torch, build) | {"ROCm in the base": base.span.place},
        "take torch from PyTorch's index for the base's ROCm, or keep the base's own torch by a constraint",
    )


def _other_major(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    pair = _pair(dockerfile, facts)
    if stack.major(pair.cuda) == stack.major(pair.base_cuda):
        open_ = pair.build is not None and not pair.last
        unknown_if(open_, f"the CUDA of torch was not observed: {pair.torch.cuda.missing}")
        return
    if pair.build is not None and not pair.last and int(stack.major(pair.cuda)) < int(stack.major(pair.base_cuda)):
        raise Unknown(f"the CUDA of torch was not observed: {pair.torch.cuda.missing}")
    made = [one for one in _extensions(dockerfile, pair, facts) if one.sure]
    broken = next((one for one in made if _refused(dockerfile, one, pair)), None)
    yield found(
        f"{_what(pair)} is built for CUDA {pair.cuda}, and the base {pair.base.reference} has CUDA {pair.base_cuda}"
        + (f", so that compiling {broken.what} against it is refused" if broken else ""),
        pair.torch.span,
        Severity.ERROR if broken else Severity.WARNING,
        _fix(pair, facts),
        _evidence(pair) | ({broken.what: broken.span.place} if broken else {}),
    )


def torch_cuda_vs_base_mismatch_minor(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The torch that gets installed is built for the CUDA minor of the base, where the majors agree."""
    dockerfile = equipped(dockerfile)
    try:
        pair = _pair(dockerfile, facts)
    except Unknown as doubt:
        raise Skip("the major is not known: torch-cuda-vs-base-mismatch-major") from doubt
    skip_if(pair.build is not None, "the major is not known: torch-cuda-vs-base-mismatch-major")
    skip_if(stack.major(pair.cuda) != stack.major(pair.base_cuda), "another major: torch-cuda-vs-base-mismatch-major")
    wanted = stack.minor(pair.base_cuda)
    unknown_if(not wanted, f"{pair.base.reference} names only the major version of its CUDA")
    if stack.minor(pair.cuda) == wanted:
        return
    # A package that may hold no CUDA code at all, for all that the file says, is not worth a warning.
    made = next((one for one in _extensions(dockerfile, pair, facts) if one.sure or one.needs_nvcc), None)
    yield found(
        f"{_what(pair)} is built for CUDA {pair.cuda}, and the base {pair.base.reference} has CUDA {pair.base_cuda}"
        + (f", against which {made.what} is compiled" if made else ""),
        pair.torch.span,
        Severity.WARNING if made else Severity.NOTE,
        _fix(pair, facts),
        _evidence(pair) | ({made.what: made.span.place} if made else {}),
    )


def _what(pair: _Pair) -> str:
    if pair.by:
        version = stack.said(pair.torch.version) or f"today torch {pair.build.torch if pair.build else ''}".rstrip()
        return f"{pair.by} brings torch, {version.removeprefix('torch ')}, which"
    if pair.build is None:
        return stack.shown(pair.torch)
    asked = pair.torch.install.specifier if pair.torch.install is not None else ""
    return f"torch{asked or ' without a version'} is today torch {pair.build.torch}, which"


def _evidence(pair: _Pair) -> dict[str, str]:
    has = f"CUDA {pair.base_cuda} in the base"
    return stack.evidence(pair.torch, pair.build) | {has: f"{pair.base.span.place}, {pair.base.cuda.via}"}


def _refused(dockerfile: Dockerfile, made: CudaBuildStep, pair: _Pair) -> bool:
    """Whether cpp_extension meets a toolkit of another major: one of torch's own CUDA may have been installed."""
    seen = toolkit(dockerfile, made.stage, made.span)
    cuda = stack.said(seen)
    if not cuda or stack.major(cuda) == stack.major(pair.cuda):
        return False
    return not any(stack.major(one.cuda) == stack.major(pair.cuda) for one in stack.toolkits(dockerfile.installs))


def _fix(pair: _Pair, facts: Facts) -> str:
    """The index of the base's CUDA where the same torch is made for it, else a base of torch's CUDA."""
    same = _published(pair.torch, pair.base_cuda, facts)
    install = pair.torch.install
    if same is not None and install is not None and install.manager in ("pip", "uv", "poetry"):
        return (
            f"take the build for the base's CUDA, torch=={same.torch} from the index "
            f"https://download.pytorch.org/whl/{same.variant}, or a base of CUDA {pair.cuda}"
        )
    return f"take a base of CUDA {pair.cuda}, or, where nothing is compiled, one without any: torch brings its own"


def _published(torch: Torch, cuda: str, facts: Facts) -> Build | None:
    """The same torch built for a CUDA, where it may have been published; None where it was not."""
    version = stack.said(torch.version)
    builds = facts.torch_builds(version) if version else ()
    return next((row for row in builds if str(row.cuda) == stack.minor(cuda) and row.published is not False), None)


# ---------------------------------------------------------------- twice


def torch_installed_twice(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """torch is not installed twice in different builds."""
    need_stages(dockerfile)
    torches = list(dockerfile.torches)
    if not torches and dockerfile.base.torch.is_unsupported and len(dockerfile.unread) < 2:
        raise Skip("no torch is installed, as far as the text says, and at most one file could do it")
    if not torches:
        need_torch(dockerfile)
    base = torch_of_base(dockerfile)
    if base is not None and torches[0].method != "base":
        torches.insert(0, base)
    told = list(_replaced(torches, dockerfile, facts)) or list(_ousted(torches, dockerfile, facts))
    yield from told
    if not told:
        unknown_if_unread(dockerfile.unread, ", so whether it replaces torch is not known")


def _replaced(torches: list[Torch], dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """A finding for each torch that surely takes another's place."""
    added = [torch for torch in torches if torch.method != "base"]
    if added and not torch_of_base(dockerfile) and (moved := _nameless(dockerfile, added[0], facts)) is not None:
        yield moved
    if added and (first := _along(dockerfile, torches[0], facts)) is not None:
        yield first
    for before, after in pairwise(torches):
        why = _differs(before, after, facts)
        refused = after.install is not None and other_python(after.install)
        by_release = _chosen_by_another(after) and after.install is not None and not after.install.url
        if not why or refused or (by_release and _release_of_index(before)):
            continue  # the last is for torch-rejected and torchvision-mismatch to say
        earlier = "the base brings" if before.method == "base" else f"{before.span.place} installs"
        old, new = _named(before), _named(after)
        beside = before.method == "base" and apart(after.prefix)
        one = after.install
        who = f"{one.name}{one.specifier} here" if one is not None and _chosen_by_another(after) else "this line"
        yield warning(
            f"{earlier} {old}, and {who} puts {new} " + (f"beside it, into {after.prefix}" if beside else _IN_PLACE),
            after.span,
            {old: before.span.place, new: why},
            "start from a base without torch, or install into the base's own Python"
            if beside
            else "start from a base without torch, or keep the base's torch by a constraint"
            if before.method == "base"
            else "install torch once, with the version and the index of the last line",
        )


_IN_PLACE = "in its place"


def _ousted(torches: list[Torch], dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """A torch in whose place the installer puts another, because a pin of the command excludes what that one requires
    and something else in it requires a torch."""
    for one in against(dockerfile, torches, facts):
        if one.by is None or (one.pin.name == "triton" and _by_conda(one.torch, dockerfile)):
            continue
        pin, by = f"{one.pin.name}{one.pin.specifier}", f"{one.by.name}{one.by.specifier}"
        base = one.torch.method == "base"
        earlier = "the base brings" if base else f"{one.torch.span.place} installs"
        yield warning(
            f"{earlier} torch {one.release}, which asks for {one.pin.name}{one.asked}, and {pin} here excludes that, "
            f"so that {one.pin.manager} puts another torch {_IN_PLACE}, for {by} requires one",
            one.pin.span,
            {f"torch {one.release} asks for {one.pin.name}{one.asked}": one.because, by: one.by.span.place},
            f"take {one.pin.name} out of the list, or the release that torch {one.release} asks for",
        )
        return


def _by_conda(torch: Torch, dockerfile: Dockerfile) -> bool:
    """Whether conda may have installed the torch of the base, whose METADATA names no triton."""
    return torch.method == "base" and dockerfile.base.family in ("pytorch", "conda")


def _along(dockerfile: Dockerfile, torch: Torch, facts: Facts) -> Finding | None:
    """A package of an earlier command brought today's torch along, and the first one that is named takes its place."""
    one, version, base = torch.install, stack.said(torch.version), dockerfile.base
    if one is None or not version or one.name != "torch" or one.manager not in ("pip", "uv"):
        return None
    if any(each.span.path != one.span.path or each.span.line <= one.span.line for each in own(dockerfile.unread)):
        return None  # it may have brought this very torch before
    if not (base.torch.is_unsupported or base.family in ("os", "nvidia", "python")):
        return None
    order, commands = list(dockerfile.installs), commands_of(dockerfile)
    at = next((n for n, each in enumerate(order) if each.name == "torch"), 0)
    for by, today in brought_before(dockerfile, one, order[:at], commands, facts):
        if _release(today) == _release(version) and not _other_cuda(today, torch, facts):
            continue
        row = next(iter(facts.torch_builds(today)), None)
        return warning(
            f"{by.span.place} installs {by.name}{by.specifier}, which brings torch {today} along, and this line puts "
            f"{_named(torch)} {_IN_PLACE}",
            torch.span,
            {
                f"{by.name} brings torch {today}": by.span.place if row is None else cited(row),
                version: torch.span.place,
            },
            "install torch before what requires it, with the version and the index of this line",
        )
    return None


def _release_of_index(torch: Torch) -> bool:
    """Whether a torch is a release that is known, from an index, a channel or an image."""
    named = torch.install is None or not (torch.install.url or torch.install.locked)
    return named and stack.said(torch.version).replace(".", "").isdigit()


def _named(torch: Torch) -> str:
    version, cuda = stack.said(torch.version), stack.said(torch.cuda)
    asked = torch.install.specifier if torch.install is not None and not _chosen_by_another(torch) else ""
    free = "another torch" if _chosen_by_another(torch) else "the newest torch"
    text = f"torch {version}" if version else f"torch{asked}" if asked else free
    return text if not cuda else f"{text} for the CPU" if cuda == "cpu" else f"{text} for CUDA {cuda}"


def _differs(before: Torch, after: Torch, facts: Facts) -> str:
    """Why the second torch is surely another than the first, "" where it may be the same or lies elsewhere."""
    if before.method != "base" and before.prefix != after.prefix and before.prefix and after.prefix:
        return ""
    old, new = (stack.said(one.version) for one in (before, after))
    if old and new and _release(old) != _release(new):
        return after.span.place
    install = after.install
    if install is None:
        return ""
    if _by_pip_then_conda(before, install) and before.prefix == after.prefix and after.prefix:
        return after.span.place  # conda does not look at what pip installed, and brings a build of its own
    if unreleased(old) and not new and _chosen_by_another(after):
        return after.span.place  # which comes only where NVIDIA's own build is not enough
    if old and not new and install.url and _chosen_by_another(after):
        return after.span.place  # of a repository, whose bounds exclude the one that is there
    if not (old or new) and before.method != "base" and _chosen_by_another(after):
        return after.span.place  # which comes only where it is another one
    if (old == new or not (old and new)) and _changes_cuda(before, after, install, new):
        return after.cuda.via or after.span.place
    if not old:
        return _newer_before(before, new, facts) if new else ""
    if new and before.method == "base" and unreleased(old):
        return after.span.place  # NVIDIA's own build of an unreleased version
    return "" if new else _upgraded(old, after, install, facts)


def _by_pip_then_conda(before: Torch, install: Install) -> bool:
    earlier = before.install
    return earlier is not None and earlier.manager in ("pip", "uv") and earlier.sure and install.manager == "conda"


def _newer_before(before: Torch, new: str, facts: Facts) -> str:
    """Why a torch without a version was surely newer than ``new``, "" where it may not have been."""
    one = before.install
    free = one is not None and one.manager in ("pip", "uv") and not (one.specifier or one.url or nightly(one))
    if one is None or not free or not one.python or _chosen_by_another(before) or not one.sure:
        return ""
    known = not one.index or variant_of(one.index) or re.search(r"/simple/?$", one.index)
    if not known or one.extra_indexes or one.find_links:
        return ""
    newest = newest_for(one, variant_of(one.index) or None, facts)
    row = next(iter(facts.torch_builds(newest)), None) if newest else None
    if row is None or _release(newest) <= _release(new):
        return ""
    return f"the newest there is {newest} [{cited(row)}]"


def _changes_cuda(before: Torch, after: Torch, install: Install, new: str) -> bool:
    """Whether an install surely brings a build for another CUDA, though the release may be the same."""
    one, other = (stack.said(torch.cuda) for torch in (before, after))
    if not one or not other or one == other:
        return False
    return bool(install.local or install.manager in ("conda", "poetry") or new or _renewing(install.options))


def _upgraded(old: str, after: Torch, install: Install, facts: Facts) -> str:
    """Why an install that names no release surely puts another one in the place of ``old``, "" where it may not."""
    if allows(install.specifier, old) is False:
        return f"{after.span.place}: {install.specifier} excludes {old}"
    if install.manager in ("pip", "uv") and _renewing(install.options):
        newest = facts.newest_torch(variant_of(install.index) or None)
        row = next((row for row in facts.torch_builds(newest)), None) if newest else None
        if row is not None and _release(newest) > _release(old):
            return f"the newest there is {newest} [{cited(row)}]"
    return ""


def _renewing(options: frozenset[str]) -> bool:
    return bool(options & {"--upgrade", "--force-reinstall", "--reinstall"})


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a release, its local part and zeros at its end aside."""
    numbers = [int(part) for part in re.findall(r"\d+", re.split(r"[+a-z]", version.lstrip("v"))[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _nameless(dockerfile: Dockerfile, torch: Torch, facts: Facts) -> Finding | None:
    """A base that is torch's by its name and moves, under a pinned older torch: it surely had a newer one."""
    base, version = dockerfile.base, stack.said(torch.version)
    if not version or base.tag not in ("", "latest") or base.digest:
        return None
    if not re.search(r"(?:^|[-_/])(?:py)?torch(?:$|[-_/])", base.repository):
        return None
    newest = facts.newest_torch(None)
    if not newest or _release(version)[:2] >= _release(newest)[:2]:
        return None
    return warning(
        f"{base.reference} already contains torch, and this line puts {_named(torch)} "
        + (f"beside it, into {torch.prefix}" if apart(torch.prefix) else _IN_PLACE),
        torch.span,
        {
            base.reference: f"{base.span.place}, whose name suggests torch",
            f"torch {newest}": "the newest release in the facts",
        },
        "start from a base without torch, or from a tag of the base with the torch that is wanted",
    )


def _other_cuda(release: str, torch: Torch, facts: Facts) -> bool:
    """Whether a torch is of another CUDA than the default build of its release."""
    default = next((row for row in facts.torch_builds(release) if row.default), None)
    return default is not None and bool(stack.said(torch.cuda)) and str(default.cuda) != stack.said(torch.cuda)


# ---------------------------------------------------------------- for the CPU


def cpu_torch_in_cuda_image(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """An image with CUDA in its base does not get a torch for the CPU."""
    need_stages(dockerfile)
    base = dockerfile.base
    skip_if(stack.without_cuda(base), "there is no CUDA in the base")
    if dockerfile.torch is None and not stack.cuda_of_base(base):
        raise Skip("nothing here installs torch, as far as the text says")
    torch = need_torch(dockerfile)
    if torch.method in ("base", "source"):
        return
    backend = torch.install is not None and "--torch-backend=auto" in torch.install.options
    unseen = _conda_sees_no_gpu(dockerfile, torch)
    cuda = stack.said(torch.cuda)
    if cuda != "cpu" and not backend and not unseen:
        left = torch.install is not None and not _chosen_by_another(torch)
        if not cuda and left and torch.install is not None and (torch.install.index or torch.install.url):
            raise Unknown(f"which build of torch gets installed was not observed: {torch.cuda.missing}")
        return
    base_cuda = base.cuda.need(f"the CUDA of {base.reference}")
    reason = "is a build for the CPU"
    if backend or unseen:
        who = "uv finds no driver" if backend else "conda finds no GPU"
        reason = f"is the build for the CPU, as {who} while it builds"
    fitting = _published(torch, base_cuda, facts)
    index = f"https://download.pytorch.org/whl/{fitting.variant}" if fitting else ""
    yield warning(
        f"the base has CUDA {base_cuda}, and {stack.shown(torch)} {reason}, so that it uses no GPU",
        torch.span,
        {
            f"CUDA {base_cuda} in the base": f"{base.span.place}, {base.cuda.via}",
            "cpu": torch.cuda.via or torch.span.place,
        },
        f'set CONDA_OVERRIDE_CUDA="{stack.minor(base_cuda)}" in the RUN, or ask for pytorch-gpu'
        if unseen
        else f"take torch from {index}"
        if index
        else f"take a build for CUDA {stack.minor(base_cuda)}, or a base without CUDA",
    )


_NAMES_CUDA = pattern(r"CONDA_OVERRIDE_CUDA|pytorch-gpu|\bcuda-|cudatoolkit|pytorch-cuda|=\*?cuda")


def _conda_sees_no_gpu(dockerfile: Dockerfile, torch: Torch) -> bool:
    """Whether conda chooses the build by the machine: conda-forge's builds for CUDA ask for a driver, which no build of
    an image has, unless the file names a CUDA or such a build."""
    one = torch.install
    asked = one is not None and one.manager == "conda" and one.sure and not one.local and not one.locked
    if one is None or not asked or set(one.channels) != {"conda-forge"} or dockerfile.unread:
        return False
    words = [each.value for _, each in reached(dockerfile) if each.name in ("RUN", "ENV", "ARG")]
    return not any(_NAMES_CUDA.search(text) for text in words) and not any(
        _NAMES_CUDA.search(f"{each.name}{each.specifier}") for each in dockerfile.installs if each.manager == "conda"
    )
