"""Which torch a Dockerfile gets, whether that is settled, and what has to fit it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from envkit.dockerfile import options
from envkit.dockerfile.requirements import allows
from envkit.dockerfile.torches import cuda_of, newest_for, nightly, of_all_indexes, of_install, variant_of, wins
from envkit.facts import NO_TORCH, Facts
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks import _torch_fit as fit
from envkit.judging.checks._by_index import answered
from envkit.judging.checks._dockerfile import (
    apart,
    commands_of,
    installs_of,
    need_stages,
    need_torch,
    own,
    reached,
    reached_installs,
    resolved_anew,
    together,
    unknown_if_unread,
    worth_on,
)
from envkit.judging.checks._outcomes import error, found, or_skip, skip_if, unknown_if, warning
from envkit.model import Edit, Finding, Severity, Skip, Span, Unknown
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Dockerfile, Install, Step, Torch

# In a specifier: what a shell or Docker would compute, and envkit does not.
_COMPUTED = pattern(r"\$\(|`|\$\{!?\w+[^\w}]|\{[^{}]*(?:,|\.\.)")
_PYTHON_MANAGERS = ("pip", "uv", "poetry")
_ON_INDEX = ("torch", "torchvision", "torchaudio")
_BRINGING = (*_ON_INDEX, "vllm", "sglang")  # each release of theirs asks for one torch
_HOLDS_TORCH = pattern(
    r"vllm|sglang|unsloth|comfyui|text-generation|stable-diffusion|axolotl|l4t-ml|ray-ml|kaggle|/nemo|monai|deepspeed"
    r"|ultralytics|yolov[0-9]|lmdeploy|transformers|physicsnemo|nvidia/modulus|megatron|whisper|mosaicml|[:-]pyt-"
)


def unpinned_torch(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """An exact version, an address, a lock or a constraint decides which torch gets installed."""
    need_stages(dockerfile)
    mate = _mate_without_torch(dockerfile)
    if mate is None and dockerfile.torch is not None and dockerfile.torch.version.missing:
        last = dockerfile.torch.install  # a package that asks for one torch, and is named without a release itself
        mate = last if last is not None and last.name != "torch" else None
    if mate is not None:
        message = f"{mate.name}{mate.specifier} brings torch along, and no exact version of either is given"
        fix = f"pin both, `torch==X.Y.Z` and the {mate.name} of that release"
        yield warning(message, mate.span, {f"{mate.name}{mate.specifier}": mate.span.place}, fix)
        return
    along = stack.implied(dockerfile, facts)
    if along is not None:
        if fit.settled(along.by) and not along.torch.version.missing:
            return
        lacks = "torch" if fit.settled(along.by) else "either"
        message = f"{along.by.name}{along.by.specifier} brings torch along, and no exact version of {lacks} is given"
        fix = f"pin torch beside it, `torch==X.Y.Z`, and {along.by.name} with the release that was tested"
        yield warning(message, along.by.span, {f"{along.by.name} requires torch": along.by.span.place}, fix)
        return
    torch = need_torch(dockerfile)
    install = or_skip(torch.install, "the base brings torch")
    skip_if(torch.method == "source", "torch is built from source")
    if not torch.version.missing or fit.settled(install):
        open_ = torch.version.missing and install.name == "torch" and fit.series(install)
        if open_ and not _constraints(dockerfile, install):
            yield fit.open_patch(install, _pin(install, facts))
        yield from _in_another_environment(dockerfile, torch, facts)
        return
    if _COMPUTED.search(install.specifier):
        raise Unknown(f"which version torch{install.specifier} names is not known before the build")
    unread = _constraints(dockerfile, install)
    unknown_if(unread, unread)
    base = _base_of(dockerfile, install)
    kept = (
        install.manager != "conda" and "--upgrade" not in install.options and not _removed_before(dockerfile, install)
    )
    beside_conda = install.manager == "conda" and stack.said(base.torch) and not _removed_before(dockerfile, install)
    if beside_conda and "--upgrade" not in install.options and not apart(install.prefix):
        raise Unknown(f"whether conda leaves the torch of {base.reference} as it is is not known")
    if kept and _may_hold_torch(base):
        raise Unknown(f"whether {base.reference} holds a torch already is not known")
    yield warning(
        f"torch{install.specifier} does not determine which torch is installed"
        if install.specifier
        else "no version of torch is given, so each build may get another one, for another CUDA",
        install.span,
        {f"torch{install.specifier}": install.span.place},
        _pin(install, facts),
    )


def _in_another_environment(dockerfile: Dockerfile, last: Torch, facts: Facts) -> Iterator[Finding]:
    """A torch without any version in an environment beside that of the one that is determined."""
    for torch in dockerfile.torches:
        one = torch.install
        if one is None or one.name != "torch" or one.specifier or not one.sure or fit.settled(one):
            continue
        beside = bool(torch.prefix) and bool(last.prefix) and torch.prefix != last.prefix
        held = one.manager != "conda" and (torch.prefix in ("/usr/local", "/usr") or _may_hold_torch(dockerfile.base))
        if beside and torch.version.missing and not held and not dockerfile.unread:
            yield warning(
                f"no version of torch is given for {torch.prefix}, so each build may get another one, for another CUDA",
                one.span,
                {"torch": one.span.place},
                _pin(one, facts),
            )
            return


def _mate_without_torch(dockerfile: Dockerfile) -> Install | None:
    """What asks for one torch and gets it as what it requires, where nothing else asks for torch."""
    if dockerfile.torch is not None or any(each.name == "torch" for each in dockerfile.installs):
        return None
    mates = [each for each in dockerfile.installs if each.name in _BRINGING and each.sure and not each.constraint]
    if any(fit.settled(each) for each in mates) or any("--no-deps" in each.options for each in mates):
        return None
    return next(
        (each for each in mates if "--upgrade" in each.options or not _may_hold_torch(_base_of(dockerfile, each))), None
    )


def _constraints(dockerfile: Dockerfile, install: Install) -> str:
    """Why the version may still be settled: a constraints file that was not read; "" where there is none."""
    for unread in dockerfile.unread:
        locks = re.search(r"constraint|pylock|\.lock$", unread.path) and not resolved_anew(dockerfile, unread)
        if locks and install.manager != "conda":
            return f"{unread.path}, which may pin torch, was not read ({unread.why})"
    return ""


def _removed_before(dockerfile: Dockerfile, install: Install) -> bool:
    """Whether an earlier line of the file surely removes the torch that the base may hold."""
    removals = [each for step in dockerfile.steps for each in step.removals if each.name == "torch" and each.sure]
    return any(each.span.path == install.span.path and each.span.line < install.span.line for each in removals)


def _may_hold_torch(base: Base) -> bool:
    """Whether a base that the facts do not know sounds as if it held torch."""
    if base.family not in ("unknown", "other", "ngc") or not base.torch.missing:
        return False
    return "torch" in base.reference.lower() or bool(_HOLDS_TORCH.search(base.reference.lower()))


def _base_of(dockerfile: Dockerfile, install: Install) -> Base:
    """The base of the stage that does an install, the target's where a file of the context does it."""
    for index in dockerfile.reachable:
        if any(each.span == install.span for step in dockerfile.stages[index].steps for each in step.installs):
            return dockerfile.stages[index].base
    return dockerfile.base


def _pin(install: Install, facts: Facts) -> str:
    if install.manager == "conda":
        return "pin it, `pytorch=X.Y.Z`, with the release that was tested"
    if nightly(install):
        return "pin the exact build that was tested, `torch==X.Y.Z.devYYYYMMDD`"
    variant = variant_of(install.index)
    newest = newest_for(install, variant or None, facts)
    if not newest:
        return "pin the release that was tested, `torch==X.Y.Z`"
    place = f"the newest on the index for {variant}" if variant else "the newest release that fits"
    return f"pin the release that was tested, such as `torch=={newest}` ({place})"


def extra_index_shadowed(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """An extra index of torch builds gives the torch, not the default index beside it."""
    need_stages(dockerfile)
    asked = 0
    for torch in dockerfile.torches:
        install = torch.install
        if install is None or install.manager not in ("pip", "uv") or not of_all_indexes(install):
            continue
        if install.url or install.locked or not install.sure:
            continue
        variant = next((name for url in install.extra_indexes if (name := variant_of(url))), "")
        if not variant or variant_of(install.index) or install.index.startswith("$"):
            continue
        asked += 1
        if install.local or nightly(install) or wins(install, variant, facts):
            continue
        yield _losing(dockerfile, install, variant, facts)
    skip_if(not asked, "pip gets torch from no extra index of torch builds")


def _losing(dockerfile: Dockerfile, install: Install, variant: str, facts: Facts) -> Finding:
    newest, rival = newest_for(install, variant, facts), newest_for(install, None, facts)
    row = fit.default_build(install.version or rival, facts)
    evidence = {f"extra index for {variant}": install.span.place}
    if install.version:
        message = f"torch {install.version} is not on the extra index for {variant}, "
        message += f"so {install.manager} takes the default index's"
    else:
        ends = f"ends at torch {newest}" if newest else "has no torch for it"
        message = f"the extra index for {variant} {ends} and the default index has {rival}, "
        message += f"so {install.manager} takes that"
        evidence[f"newest torch for {variant}: {newest or 'none'}"] = "facts: the builds of each release"
    if row is not None:
        message += f", built for CUDA {row.cuda}"
        evidence[f"default build of torch {row.torch}"] = fit.cited(row)
    fix = (
        f"pin `torch=={newest}+{variant}`, or write --index-url in place of --extra-index-url"
        if newest
        else "write --index-url in place of --extra-index-url"
    )
    return found(message, install.span, Severity.WARNING, fix, evidence, _own_index(dockerfile, install, variant))


def _own_index(dockerfile: Dockerfile, install: Install, variant: str) -> tuple[Edit, ...]:
    """--index-url in place of --extra-index-url, where all that the command installs is on that index."""
    if install.version or len(install.extra_indexes) != 1 or install.index:
        return ()
    base, cuda = stack.minor(stack.cuda_of_base(dockerfile.base)), cuda_of(variant)
    if base and re.fullmatch(r"[0-9]+\.[0-9]+", cuda) and base != cuda:
        return ()  # which of the two is meant, the base's CUDA or the index's, is not for an edit to say
    for step in (step for index in dockerfile.reachable for step in dockerfile.stages[index].steps):
        for command in step.commands if step.name == "RUN" else ():
            inside = [each for each in step.installs if _within(each.span, command.span)]
            if install.span not in [each.span for each in inside]:
                continue
            words = [word for word in command.words if word.raw.startswith("--extra-index-url")]
            if any(each.name not in _ON_INDEX or each.url for each in inside) or len(words) != 1:
                return ()
            if any(word.text in ("-r", "-e", "-c", "--requirement", "--editable") for word in command.words):
                return ()
            if any(word.text in (".", "./") or not word.sure for word in command.words):
                return ()
            word = words[0]
            end = Span(
                word.span.path, word.span.line, word.span.column, word.span.line,
                word.span.column + len("--extra-index-url"),
            )  # fmt: skip
            return (Edit(end, "--index-url"),) if variant_of(install.extra_indexes[0]) == variant else ()
    return ()


def _within(inner: Span, outer: Span) -> bool:
    begin, end = (inner.line, inner.column), (inner.end_line, inner.end_column)
    inside = (outer.line, outer.column) <= begin and end <= (outer.end_line, outer.end_column)
    return inside and inner.path == outer.path


def torch_python_unsupported(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """torch has a wheel for the Python that it gets installed into, or a package on PyTorch's own channel of conda."""
    need_stages(dockerfile)
    open_, seen, worst = "", set[Span](), Severity.WARNING
    asked = 0
    of_conda = list(_of_pytorchs_channel(dockerfile))
    for step, install in of_conda:
        misfit = fit.python_misfit(install.version, (install.python,), facts, conda=True)
        if misfit and install.span not in seen:
            seen.add(install.span)
            evidence = {**misfit.facts, f"Python {install.python}": step.span.place}
            yield error(f"{misfit.message}, so that the build ends here", install.span, evidence, misfit.fix)
    for index, step, install in reached_installs(dockerfile):
        if install.name != "torch" or install.constraint or not install.sure or install.manager not in _PYTHON_MANAGERS:
            continue
        made = fit.other_python(install) if install.span not in seen else ""
        if made and not fit.for_others(install):
            seen.add(install.span)
            asked += 1
            yield error(
                f"the wheel of torch is made for Python {made}, and is installed into Python {install.python}, so that "
                "the build ends here",
                install.span,
                {f"Python {made}": "the wheel's name", f"Python {install.python}": step.span.place},
                f"take the wheel for Python {install.python}, or a Python {made}",
            )
            continue
        if not install.version or install.url or nightly(install) or _elsewhere(install) or install.span in seen:
            continue
        if fit.unreleased(install.version):
            continue
        if fit.for_others(install):
            continue
        seen.add(install.span)
        asked += 1
        if not install.python:
            open_ = open_ or f"the Python that {install.span.place} installs torch into is not known"
            worst = max(worst, worth_on(dockerfile.stages[index].base))
            continue
        try:
            misfit = fit.python_misfit(install.version, (install.python,), facts)
        except Unknown as unknown:
            open_, worst = open_ or str(unknown), Severity.ERROR
            continue
        if misfit:
            via = f"`{install.target}` at {step.span.place}" if install.target else step.span.place
            evidence = {**misfit.facts, f"Python {install.python}": via}
            yield error(misfit.message, install.span, evidence, misfit.fix)
    skip_if(not asked and not of_conda, "no release of torch gets installed as a wheel")
    unknown_if(open_, open_, worst)


def _of_pytorchs_channel(dockerfile: Dockerfile) -> Iterator[tuple[Step, Install]]:
    """Each pinned torch that surely comes from PyTorch's own channel of conda, and the step: pytorch-cuda beside it is
    of that one alone, and conda-forge, which builds for Pythons of its own choice, is not asked."""
    cudas = [one for _, _, one in reached_installs(dockerfile) if one.manager == "conda" and one.name == "pytorch-cuda"]
    for _, step, one in reached_installs(dockerfile):
        mine = one.manager == "conda" and one.name == "torch" and one.sure and one.version and one.python
        forge = any("forge" in channel for channel in one.channels)
        if mine and not forge and one.channels and any(each.target == one.target for each in cudas):
            yield step, one


def _elsewhere(install: Install) -> bool:
    """Whether wheels come from a place that the facts do not know, which may hold others."""
    if install.index and not variant_of(install.index) and not re.search(r"/simple/?$|/pypi/?$", install.index):
        return True
    links = (*install.extra_indexes, *install.find_links)
    return any(not variant_of(url) and "download.pytorch.org" not in url and "torch_stable" not in url for url in links)


def torchvision_mismatch(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """torchvision and torchaudio were made for the torch beside them, and for the same CUDA."""
    try:
        torch = need_torch(dockerfile)
        if torch.install is not None and torch.install.name in ("torchvision", "torchaudio"):
            # It comes along, and a list that is installed later may name another.
            later = [one for one in dockerfile.unread if not _before(one.span, torch.span)]
            unknown_if_unread(later, ", so what it installs is not known")
    except Unknown as doubt:
        raise Unknown(str(doubt), _worst_of_pair(dockerfile), doubt.about) from doubt
    mates: dict[str, Install] = {}
    for install in dockerfile.installs:
        here = install.prefix == torch.prefix or not install.prefix or not torch.prefix
        counts = install.name in ("torchvision", "torchaudio") and install.sure and here and not install.constraint
        if counts and not _there_already(install, mates.get(install.name)):
            mates[install.name] = install
    fixed = [mate for mate in mates.values() if mate.version and not mate.url]
    alone = [mate for mate in mates.values() if _of_no_torch(dockerfile, mate, torch)]
    left = [*_left_behind(dockerfile, list(mates.values()), torch, facts), *_left_of_base(dockerfile, torch, facts)]
    skip_if(not fixed and not alone and not left, "no version of torchvision or torchaudio is pinned")
    if torch.install is not None and (torch.install.url or nightly(torch.install)) and not left:
        raise Skip("the torch is no release of the usual index")
    if torch.method == "base" and _base_of_torch(dockerfile).family == "ngc":
        raise Skip("NVIDIA builds the torch of its images from its own sources")
    yield from left
    if torch.version.missing or torch.version.value is None:
        outside = list(_outside(dockerfile, fixed, torch, facts))
        yield from outside
        if left or outside:
            return
        raise Skip("no exact version of torch is given, so the installer takes the one that fits")
    yield from _newest_alone(alone, torch, facts)
    open_ = ""
    for mate in fixed:
        # The index knows which torch a mate brought.
        there = torch if mate.span in answered(dockerfile) else _met_by(mate, dockerfile) or torch
        if there.version.value is None:
            continue
        try:
            pythons = (mate.python,) if mate.python else ()
            misfit = fit.pair_misfit(mate.name, mate.version, there.version.value, facts, pythons)
        except Unknown as unknown:
            open_ = open_ or str(unknown)
            continue
        if misfit:
            yield _unfit(dockerfile, misfit, mate, there)
        elif (odd := fit.other_cuda(mate, there, _built_for(dockerfile, mate, there, facts))) is not None:
            # Its METADATA asks for the release alone, so that the installer leaves both as they are.
            built = {f"torch {there.version.value}": there.version.via or there.span.place}
            yield error(odd.message, mate.span, {**odd.facts, **built}, odd.fix)
    unknown_if(open_, open_)


def _outside(dockerfile: Dockerfile, mates: list[Install], torch: Torch, facts: Facts) -> Iterator[Finding]:
    """A pinned mate that was made for no torch which the bounds of the command that installs torch let in."""
    one = torch.install
    plain = one is not None and one.name == "torch" and one.manager in ("pip", "uv") and one.sure and one.specifier
    if one is None or not plain or one.marker or one.constraint or one.locked:
        return
    for mate in mates:
        misfit = None if mate.marker else fit.bounds_misfit(mate.name, mate.version, one.specifier, facts)
        if misfit is None:
            continue
        evidence = {**misfit.facts, f"torch{one.specifier}": one.span.place}
        later = _step_of(dockerfile, mate.span) > _step_of(dockerfile, one.span)
        if later and "--no-deps" not in mate.options:
            said = f"{misfit.message}, so {mate.manager} replaces torch by another one"
            yield warning(said, mate.span, evidence, misfit.fix)
        else:
            yield error(misfit.message, mate.span, evidence, misfit.fix)


def _before(one: Span, other: Span) -> bool:
    """Whether one place of a file surely comes before another."""
    return one.path == other.path and (one.line, one.column) < (other.line, other.column)


def _of_no_torch(dockerfile: Dockerfile, mate: Install, torch: Torch) -> bool:
    """Whether pip takes the newest release of a mate, whichever torch is there: its command does not name torch, or it
    is told to mind no requirements."""
    held = mate.version or mate.specifier or mate.url or mate.locked or mate.marker
    if held or mate.manager not in ("pip", "uv"):
        return False
    if torch.method == "base" and dockerfile.base.family == "pytorch":  # whose own stays unless another is asked for
        renewed = bool({"--upgrade", "--force-reinstall", "--reinstall"} & mate.options)
        return renewed and mate.sure and mate.prefix in ("", "/opt/conda", torch.prefix)
    if torch.method not in ("pip", "uv") or torch.install is None:
        return False
    if "--no-deps" in mate.options:
        return True
    order = list(dockerfile.installs)
    later = order.index(mate) > next((n for n, one in enumerate(order) if one.span == torch.span), len(order))
    return later and not _of_one_command(dockerfile, mate, torch.install)


def _of_one_command(dockerfile: Dockerfile, one: Install, other: Install) -> bool:
    """Whether one command may install both, so that its resolver fits them."""
    if one.span.path == other.span.path != dockerfile.path:
        return True
    for _, step in reached(dockerfile):
        for _, named in installs_of(step):
            spans = {each.span for each in named}
            if one.span in spans and (other.span in spans or other.span.path != dockerfile.path):
                return True
    return False


def _left_behind(dockerfile: Dockerfile, mates: list[Install], torch: Torch, facts: Facts) -> Iterator[Finding]:
    """A torchvision or torchaudio that came with the torch of its command, in whose place a later one puts another:
    pip says that the two do not fit and leaves it there."""
    one, version, order = torch.install, torch.version.value or "", list(dockerfile.installs)
    if one is None or one.name != "torch" or one.manager not in ("pip", "uv") or one not in order or not version:
        return
    bare = dockerfile.base.torch.is_unsupported or dockerfile.base.family in ("os", "nvidia", "python")
    commands = commands_of(dockerfile)
    for mate in mates if bare and re.fullmatch(r"[\d.]+", version) else ():
        plain = not (mate.version or mate.specifier or mate.url or mate.locked or mate.marker)
        at = order.index(mate)
        later = [each for each in order[at + 1 :] if each.name == mate.name or each.name in _BRING_MATES]
        if not plain or mate.manager not in ("pip", "uv") or later or at > order.index(one):
            continue
        torches = [each for each in order[: order.index(one)] if each.name == "torch" and each.span != one.span]
        mine = commands.get(mate.span, {})
        beside = next((each for each in torches if together(mine, commands.get(each.span, {}))), None)
        known = beside is not None and beside.sure and not (beside.url or beside.locked or nightly(beside))
        if beside is None or not known or together(mine, commands.get(one.span, {})):
            continue
        first = beside.version or newest_for(beside, variant_of(beside.index) or None, facts)
        row = fit.default_build(first, facts) if first else None
        if row is None or _numbers(first)[:2] == _numbers(version)[:2]:
            continue
        yield error(
            f"{mate.name} came with torch {first}, for which it was made, and torch {version} is put in that one's "
            "place",
            mate.span,
            {f"torch {first}": beside.span.place, f"torch {version}": torch.version.via or torch.span.place},
            f"install {mate.name} in the command that installs torch {version}",
        )


# What requires a torchvision or torchaudio of its own.
_BRING_MATES = options.names("vllm sglang fastai")
# What requires a torchvision: of one command with a torch it takes the one that fits, of a later one the torch of the
# torchvision that is there.  Source: Requires-Dist of their newest releases on 2026-11-30; sixteen of them say so in an
# extra, in a setup.py, or by a package that they require.
_REQUIRE_TORCHVISION = options.names(
    "anomalib audiocraft autogluon basicsr clean-fid clip clip-anytorch clip-interrogator colpali-engine "
    "controlnet-aux docling docling-ibm-models easyocr effdet facenet-pytorch facexlib fastai gfpgan "
    "groundingdino image-reward invokeai k-diffusion kornia-moons lerobot llava lmdeploy lpips mineru monai "
    "nerfstudio open-clip-torch python-doctr pytorch-fid pytorchvideo realesrgan rfdetr robomimic sam-2 "
    "segmentation-models-pytorch sglang spandrel super-gradients timm torch-fidelity torchgeo torchxrayvision "
    "transparent-background ultralytics unsloth unsloth-zoo unstructured unstructured-inference vllm whisperx "
    "xtuner yolov5"
)


def _left_of_base(dockerfile: Dockerfile, torch: Torch, facts: Facts) -> Iterator[Finding]:
    """The torchvision of PyTorch's or NVIDIA's image, which stays where another torch takes the place of the image's.

    pip minds what is installed only so far as the command names it: it says that the two do not fit, and goes on.
    Source: the Dockerfile of PyTorch's images, and NVIDIA's release notes: each holds a torchvision for its torch.
    """
    base, one, old = dockerfile.base, torch.install, stack.said(dockerfile.base.torch)
    nvidia = base.family == "ngc" and base.repository.endswith("nvidia/pytorch")
    if one is None or not old or not base.sure or not (base.family == "pytorch" or nvidia):
        return
    elsewhere = one.prefix not in ("", "/opt/conda", *(("/usr", "/usr/local") if nvidia else ()))
    if (
        elsewhere
        or (one.url and one.name == "torch")
        or one.locked
        or nightly(one)
        or "--target" in one.options
        or dockerfile.unread
    ):
        return
    if not one.sure or one.manager not in ("pip", "uv"):
        return
    brought = _REQUIRE_TORCHVISION | {"torchvision"}
    others = [each for each in dockerfile.installs if each.manager != "apt" and each != one]
    if any(each.name in brought or re.match(r"git\+|\w+://", each.url) for each in others):
        return
    if any(each.name == "torchvision" for step in dockerfile.steps for each in step.removals) or one.name in brought:
        return
    new = torch.version.value or _renewed(one, old, facts)
    replaced = nvidia and one.name != "torch"  # which comes only where NVIDIA's own is not enough
    known = re.fullmatch(r"[\d.]+", new) is not None and (nvidia or _numbers(new)[:2] != _numbers(old)[:2])
    if not known and not replaced:
        return
    new = f"torch {new}" if known else f"another, which {one.name} asks for,"
    yield warning(
        f"{base.reference} holds the torchvision of its torch {old}, and {new} is put in that one's place, beside "
        "which it cannot be imported",
        torch.span,
        {f"torch {old}": base.span.place, new: torch.version.via or torch.span.place},
        "install the torchvision of the new torch in the same command, or keep the base's torch",
    )


def _renewed(one: Install, old: str, facts: Facts) -> str:
    """The release that an installer puts in the place of an older one that it is not content with, "" where it may be
    content."""
    renewing = {"--upgrade", "--force-reinstall", "--reinstall"} & one.options
    if one.name != "torch" or one.version or not (renewing or allows(one.specifier, old) is False):
        return ""
    if one.extra_indexes or one.find_links or (one.index and not variant_of(one.index)):
        return ""
    return newest_for(one, variant_of(one.index) or None, facts)


def _newest_alone(mates: list[Install], torch: Torch, facts: Facts) -> Iterator[Finding]:
    """The newest torchvision or torchaudio of an index beside an older torch, where both are to go together.

    pip puts the torch that it asks for in the older one's place, unless it asks for none.
    """
    version = torch.version.value or ""
    for mate in mates:
        if mate.index and not variant_of(mate.index) and not mate.index.endswith("/simple"):
            continue
        newest = newest_for(mate, variant_of(mate.index) or None, facts)
        need = facts.torch_needs_of.get(mate.name, (None,))[-1]
        free = need is not None and need.note == NO_TORCH
        if free and need is not None and (last := facts.torches_of(mate.name, need.until)):
            newest = min(newest, last[-1], key=_numbers)  # it has had no release for later ones
        row = fit.default_build(newest, facts) if newest else None
        if (
            row is None
            or _numbers(newest)[:2] == _numbers(version)[:2]
            or (free and _numbers(newest) < _numbers(version))
        ):
            continue
        alone = free or "--no-deps" in mate.options
        message = f"{mate.name} without a version is the newest there is, made for torch {newest}, and here is torch "
        message += version if alone else f"{version}, so {mate.manager} replaces it"
        yield found(
            message,
            mate.span,
            Severity.ERROR if alone else Severity.WARNING,
            f"pin the {mate.name} of torch {version}, in the command that installs torch",
            {f"the newest is for torch {newest}": fit.cited(row), f"torch {version}": torch.version.via},
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", version.partition("+")[0])))


def _met_by(mate: Install, dockerfile: Dockerfile) -> Torch | None:
    """The torch that was there when ``mate`` brought its own in its place; None where it brought none."""
    near = [one for one in dockerfile.torches if not one.prefix or not mate.prefix or one.prefix == mate.prefix]
    at = next((n for n, one in enumerate(near) if one.install == mate), 0)
    return near[at - 1] if at else None


def _there_already(install: Install, before: Install | None) -> bool:
    """Whether pip leaves the one that is there, of whichever build it is: its version is the one asked for."""
    same = before is not None and (before.version == install.version or not (install.version or install.specifier))
    kept = same and not install.local and not install.url
    return kept and not {"--upgrade", "--force-reinstall", "--reinstall", "--target"} & install.options


def _built_for(dockerfile: Dockerfile, mate: Install, torch: Torch, facts: Facts) -> str:
    """The CUDA of the build that an index gives of ``mate``, "" where that is not certain.

    The indexes have torchvision and torchaudio in the builds of the torch that they are made for.
    """
    one, order = torch.install, list(dockerfile.installs)
    if one is None or torch.method not in ("pip", "uv") or mate.manager not in ("pip", "uv") or mate.locked or mate.url:
        return ""
    if any(not variant_of(url) for url in (*mate.extra_indexes, *mate.find_links)) or "--no-index" in mate.options:
        return ""
    if "arm" in dockerfile.base.platform or "aarch64" in dockerfile.base.platform:
        return ""
    placed = next(
        (number for number, each in enumerate(order) if each.span == one.span and each.name == one.name), None
    )
    if placed is None or order.index(mate) < placed:
        return ""  # it brought its own torch, which a later install of the same release leaves there
    built = of_install(replace(mate, version=torch.version.value or ""), (), dockerfile.base, facts).cuda
    return "" if built.missing or built.is_unsupported else built.value or ""


def _worst_of_pair(dockerfile: Dockerfile) -> Severity:
    """What torch and torchvision can be to one another where files were not read: an error if they come apart.

    Where one command installs both, the installer itself refuses what torchvision's METADATA excludes, and ends the
    build; a build for another CUDA in the same file is a finding about that file.  A list of other people's that pins
    a torch of its own is one that pip names: "torchvision requires torch==..., which is incompatible".
    """
    mates = any(each.name in ("torchvision", "torchaudio") and each.sure for each in dockerfile.installs)
    return Severity.ERROR if mates and own(dockerfile.unread) else Severity.WARNING


def _unfit(dockerfile: Dockerfile, misfit: fit.Incompatibility, mate: Install, torch: Torch) -> Finding:
    """An error where both stay or nothing fits; a warning where a later pip replaces torch to satisfy its mate."""
    evidence = {**misfit.facts, f"torch {torch.version.value}": torch.version.via or torch.span.place}
    later = _step_of(dockerfile, mate.span) > _step_of(dockerfile, torch.span)
    if later and mate.manager in ("pip", "uv") and "--no-deps" not in mate.options:
        message = f"{misfit.message}, so {mate.manager} replaces torch by another one"
        return warning(message, mate.span, evidence, misfit.fix)
    return error(misfit.message, mate.span, evidence, misfit.fix)


def _step_of(dockerfile: Dockerfile, span: Span) -> int:
    """The place of the step that installs what stands at a span, -1 for a base's own or a file's of no known step."""
    for number, step in enumerate(dockerfile.steps):
        if any(each.span == span for each in step.installs):
            return number
    return -1


def _base_of_torch(dockerfile: Dockerfile) -> Base:
    torch = dockerfile.torch
    for stage in dockerfile.stages:
        if torch is not None and stage.base.span == torch.span:
            return stage.base
    return dockerfile.base
