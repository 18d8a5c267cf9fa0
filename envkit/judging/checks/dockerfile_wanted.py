"""Whether an installer can give the torch that a Dockerfile asks for, and whether other packages want that one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from envkit.dockerfile import options
from envkit.dockerfile.requirements import allows
from envkit.dockerfile.torches import cuda_of, nightly, variant_of
from envkit.facts import Facts, TorchNeedRow, TorchRow
from envkit.judging.checks import _by_index as by_index
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks import _torch_fit as fit
from envkit.judging.checks import _torch_wants as wants
from envkit.judging.checks._brought import brought_before, newest_of
from envkit.judging.checks._dockerfile import (
    Commands,
    apart,
    commands_of,
    need_stages,
    reached,
    reached_installs,
    together,
)
from envkit.judging.checks._outcomes import error, found, skip_if, unknown_if, warning
from envkit.judging.checks._pips import of_one_command
from envkit.model import Finding, Severity, Span, Unknown
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Base, Dockerfile, Install, Torch
from envkit.versions import Torch as TorchRelease

_DROPPED_AFTER = 6  # months
_FAMILY = ("torch", "torchvision", "torchaudio")
_FROM_INDEX = ("pip", "uv")


def _asked(dockerfile: Dockerfile, *names: str) -> Iterator[Install]:
    """Each install by pip or uv of a pinned release of these names, once, that surely happens."""
    seen: set[tuple[Span, str]] = set()
    for _, _, one in reached_installs(dockerfile):
        plain = one.sure and one.version and not (one.url or one.constraint or one.locked or one.marker)
        plain = plain and "$" not in one.local  # which build that is the build alone knows
        if one.name in names and one.manager in _FROM_INDEX and plain and (one.span, one.name) not in seen:
            seen.add((one.span, one.name))
            yield one


def _others(one: Install) -> bool:
    """Whether it may come from a place that the facts do not know: a mirror, a page of links, a folder."""
    pages = ("download.pytorch.org", "torch_stable")
    links = any(not any(page in url for page in pages) for url in one.find_links)
    return links or any(not variant_of(url) and not url.endswith("/whl") for url in one.extra_indexes)


def torch_build_missing(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The build of torch that is asked for was made: its local version, or its release on the only index given."""
    need_stages(dockerfile)
    asked, open_ = 0, ""
    for one in _asked(dockerfile, "torch"):
        variant = (one.local or ("" if one.extra_indexes else variant_of(one.index))).partition(".")[0]
        elsewhere = (one.index and not variant_of(one.index) and "/simple" not in one.index) or _others(one)
        if variant == "cpu" and one.local and not elsewhere and not nightly(one) and _on_arm(dockerfile):
            asked, since = asked + 1, facts.milestone("torch-cpu-aarch64")
            if allows(f"<{since.release}", one.version) is True and not _there(dockerfile, one):
                yield error(
                    f"torch {one.version}+cpu has wheels for x86_64 alone, and this image is for "
                    f"{dockerfile.base.platform}, so that the build ends here",
                    one.span,
                    {f"the first +cpu on aarch64 is of torch {since.release}": fit.cited(since)},
                    f"write torch=={one.version}, whose wheel for this processor is for the CPU",
                )
        if not variant.startswith("cu") or elsewhere or nightly(one):
            continue
        asked += 1
        try:
            misfit = fit.index_lacks(one.version, variant, facts)
        except Unknown as unknown:
            open_ = open_ or str(unknown)
            continue
        if misfit and not _there(dockerfile, one):
            yield error(f"{misfit.message}, so that the build ends here", one.span, misfit.facts, misfit.fix)
        elif not misfit and (first := _first_on_arm(dockerfile, one, facts)) and not _there(dockerfile, one):
            yield error(
                f"torch {one.version} for {variant} has wheels for x86_64 alone, and this image is for "
                f"{dockerfile.base.platform}, so that the build ends here",
                one.span,
                {f"the first one for CUDA on aarch64 is {first.name}": fit.cited(first)},
                "take a newer torch, or an image of NVIDIA's that holds one for this processor",
            )
    for one in _asked(dockerfile, *_FAMILY, "torchdata", "torchtext", "torchtune", "torchao"):
        gone = fit.nightly_gone(one, facts)
        asked += gone is not None
        if gone is not None and not _there(dockerfile, one):
            yield error(f"{gone.message}, so that the build ends here", one.span, gone.facts, gone.fix)
    for one in _newest_asked(dockerfile):
        variant = variant_of(one.index)
        asked += 1
        if not fit.never_built(variant, facts):
            continue
        yield error(
            f"no release of torch was built as {variant}, so that its index holds none and the build ends here",
            one.span,
            {f"no {variant} among the builds of torch": "facts: the builds of each release"},
            f"take an index that there is: {', '.join(fit.near_variants(variant, facts))}",
        )
    skip_if(not asked, "no build of torch is named")
    # A release that the facts do not list is most likely one that came after them, and the installer says what lacks.
    unknown_if(open_, open_, Severity.WARNING)


def _first_on_arm(dockerfile: Dockerfile, one: Install, facts: Facts) -> TorchRow | None:
    """The first build for CUDA on aarch64, where the image is for that and a release is older.  Source: issues 374 of
    awslabs/graphstorm and 119 of NVIDIA-AI-IOT/CUDA-PointPillars: pip finds none of the older builds there."""
    first = next((row for row in facts.torches if row.archs_aarch64), None)
    older = first is not None and allows(f"<{first.torch}", one.version) is True
    return first if older and _on_arm(dockerfile) else None


def _on_arm(dockerfile: Dockerfile) -> bool:
    return re.search("arm64|aarch64", dockerfile.base.platform) is not None


def _newest_asked(dockerfile: Dockerfile) -> Iterator[Install]:
    """Each surely done install of torch without a version that has one index alone, and that one of builds for a
    CUDA."""
    seen: set[Span] = set()
    for _, _, one in reached_installs(dockerfile):
        free = one.sure and not (one.version or one.local or one.url or one.constraint or one.locked or one.marker)
        alone = variant_of(one.index).startswith("cu") and not (one.extra_indexes or one.find_links or nightly(one))
        if one.name == "torch" and one.manager in _FROM_INDEX and free and alone and one.span not in seen:
            seen.add(one.span)
            yield one


def torch_index_missing(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """A local version of torch ("+cuNNN"), which the default index never holds, is on an index that is named, and a
    page of wheels goes as far as the torch in its address."""
    need_stages(dockerfile)
    pinned = [one for one in _asked(dockerfile, *_FAMILY) if one.local and not nightly(one)]
    pages = list(_pages(dockerfile, facts))
    yield from pages
    skip_if(not pinned and not pages, "no local version of torch is named")
    told: set[tuple[str, int]] = set()
    for one in pinned:
        named = one.index or one.extra_indexes or one.find_links or "--no-index" in one.options
        build = one.local.partition(".")[0]
        served = _served(one) if named else ""
        here = (one.span.path, one.span.line)
        if (named and (not served or build in served.split())) or _there(dockerfile, one) or here in told:
            continue
        told.add(here)
        yield error(
            f"{one.name}=={one.version}+{one.local} is on no index that this command names, "
            + (f"only builds for {served}" if served else "and the default one holds no local versions")
            + ", so that the build ends here",
            one.span,
            {f"+{one.local}": one.span.place},
            f"take `--index-url https://download.pytorch.org/whl/{build}`"
            if served
            else f"add `--extra-index-url https://download.pytorch.org/whl/{build}`",
        )


def _served(one: Install) -> str:
    """The builds that the indexes of a command hold, where each of PyTorch's own says one and no other is named.

    An index for one build holds that alone; the page of all wheels and mirrors say none.
    """
    urls = [url for url in (one.index, *one.extra_indexes, *one.find_links) if url and "pypi" not in url]
    own = [variant_of(url) for url in urls if "download.pytorch.org/whl/" in url]
    plain = "--no-index" not in one.options and len(own) == len(urls) and all(own)
    return " ".join(dict.fromkeys(own)) if plain else ""


def _pages(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """Each package that a page of wheels is given for which ends with an older torch, where no index has it."""
    told: set[Span] = set()
    for _, _, one in reached_installs(dockerfile):
        for row in (row for row in facts.wheel_pages if row.package == one.name and one.sure and one.span not in told):
            for page in one.find_links:
                named = re.search(rf"{re.escape(row.before)}(\d+\.\d+)", page) if page.startswith(row.page) else None
                if named is None or TorchRelease(named[1]) <= row.torch:
                    continue
                told.add(one.span)
                yield error(
                    f"{page} has no wheel of {one.name}: there is none for a torch newer than {row.torch}, so that "
                    + ("its source is compiled here" if row.on_index else "the build ends here"),
                    one.span,
                    {f"{one.name} has wheels up to torch {row.torch}": fit.cited(row)},
                    f"build {one.name} from its repository, with --no-build-isolation and in a devel image",
                )


def _there(dockerfile: Dockerfile, one: Install) -> bool:
    """Whether the very release may be there already, so that the installer looks for none.

    Of a base that the facts do not know nobody knows which torch it holds, nor which index its pip is set to.
    """
    if {"--upgrade", "--force-reinstall", "--reinstall", "--target"} & one.options:
        return False
    order = list(dockerfile.installs)
    before = order[: order.index(one)] if one in order else ()
    mine = [each for each in before if each.name == one.name and each.span != one.span]
    if any(each.version == one.version for each in mine):
        return True
    # Without a version it is the release that goes with the torch of its command, of the build of that index.
    if any(not each.version and variant_of(each.index) in ("", one.local) for each in mine):
        return True
    base = dockerfile.base
    if one.name != "torch" and base.family == "pytorch":  # its images hold those that go with their torch
        return not one.local or cuda_of(one.local) in ("", stack.said(base.torch_cuda))
    return not base.torch.is_unsupported and stack.said(base.torch) in ("", one.version, f"{one.version}+{one.local}")


# ---------------------------------------------------------------- who asks for which torch


@dataclass(frozen=True, slots=True)
class _There:
    """A torch: ``at`` is its place among the installs, -1 for the base's, which no command did; ``version`` is "" for
    one whose release is not known or that no index has, which still takes the place of those before it; ``cuda`` is
    its CUDA ("X.Y") or "cpu", "" where not known."""

    version: str
    cuda: str
    span: Span
    at: int
    prefix: str
    commands: Commands


def torch_rejected(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """The torch that is there is one that the pinned packages ask for.  Source: Requires-Dist in their METADATA."""
    need_stages(dockerfile)
    order = list(dockerfile.installs)
    commands = commands_of(dockerfile)
    torches = [known for each in dockerfile.torches if (known := _known(each, order, commands)) is not None]
    asked_of = by_index.answered(dockerfile)
    refused = [*_excluding(dockerfile, order, commands, facts), *_over_nvidias(dockerfile, order, facts)]
    refused = [one for one in refused if one.span not in asked_of]  # of which the index has said what comes of it
    refused += _other_abis(dockerfile, order, facts)
    refused += _before_todays(dockerfile, order, commands, torches, facts)
    refused += by_index.refusals(dockerfile, facts, torch=True)
    refused += [*by_index.replaced(dockerfile), *by_index.left_behind(dockerfile)]
    yield from refused
    unsaid = not refused and not asked_of
    skip_if(unsaid and not any(each.version for each in torches), "no exact version of torch is known")
    asked, open_ = len(refused) + len(asked_of), ""
    # The files with a line that asks for torch, but for those that the base's is enough for.
    kept = all(each.method == "base" for each in dockerfile.torches)
    of_torch = {each.span.path for each in order if each.name == "torch" and not (kept and each.sure)}
    before: set[str] = set()
    for at, one in enumerate(order):
        first = one.name not in before
        before.add(one.name)
        made = _MADE_FOR.search(one.url) if ".whl" in one.url and one.sure and one.name not in _FAMILY else None
        if made is not None:
            asked += 1
            for_torch, cuda = f"{made[1]}.{made[2]}", _WHEEL_CUDA.search(made[0])
            told = list(_made_for(one, for_torch, _cuda_named(cuda[1]) if cuda else "", "the wheel's name", torches))
            yield from told or _of_newer_abi(one, made[0], dockerfile, torches, facts)
            continue
        page = _page_of(one, facts)
        if page is not None:
            asked += 1
            yield from _made_for(one, *page, "the page's address", torches)
            continue
        bounded = wants.want_of(one, facts) if one.specifier and not one.version and one.name != "torch" else None
        if bounded is not None and one.span not in asked_of:
            asked += 1
            excluded = list(_bounded(dockerfile, bounded, at, torches, commands, facts))
            yield from excluded
            if excluded:
                continue
        # Where a line beside it asks for a torch, that one is what counts.
        alone = first and one.span.path not in of_torch
        named = not one.version and not one.marker and (not one.specifier or (alone and _newest_let_in(one, facts)))
        # A list that nobody read may hold the package at a release that a bound from below is content with.
        named = named and not (one.specifier and one.name in facts.torch_uses_of and dockerfile.unread)
        last = facts.last_release(one.name, one.python) if named else ""
        free = named and (bool(last) or _lives(one, facts))
        asks = one.sure and (one.version or free) and one.manager in _FROM_INDEX
        if not asks or one.name in _FAMILY or one.url or one.constraint or one.locked:
            continue
        # pip and uv take the newest of a name alone, whichever torch is there.
        newest = facts.torch_needs_of.get(one.name, (None,))[-1] if free and not last else None
        used = facts.torch_use(one.name, one.version) if one.version else _newest_use(one, order, facts)
        newest = newest if newest is not None and (newest.torch or used is None) else used if free else None
        version = one.version or last or (newest.until if newest is not None else "")
        row = newest or used or facts.torch_need(one.name, version)
        if row is None or row.torch is None:
            unread = version and one.span not in asked_of
            open_ = open_ or (fit.newer_than_read(one.name, version, facts) if unread else "")
            continue
        asked += 1
        if one.span in asked_of and not used:
            continue
        mine = commands.get(one.span, {})
        for met in _met(mine, at, one, torches) if not used else _near(one, torches)[-1:]:
            misfit = fit.rejects(row, version, met.version, facts) if met.version else None
            joined = together(mine, met.commands)
            if misfit is None or (free and not used and (met.at > at or joined)):
                continue
            severity, so = (
                (Severity.WARNING, "") if used else _effect(dockerfile, at, one, met, joined, row.torch, facts)
            )
            message = misfit.message.replace("the file pins", "here is")
            there = {f"torch {met.version}": met.span.place}
            yield found(f"{message}{so}", one.span, severity, misfit.fix, {**misfit.facts, **there})
            break
    for finding in _with_transformers(order, commands, torches, facts) if not dockerfile.unread else ():
        asked += 1
        yield finding
    unknown_if(open_, open_, Severity.WARNING)
    skip_if(not asked, "no other package is pinned of which is known which torch it asks for")


def _bounded(
    dockerfile: Dockerfile,
    want: wants.Want,
    at: int,
    torches: Sequence[_There],
    commands: Mapping[Span, Commands],
    facts: Facts,
) -> Iterator[Finding]:
    """What comes of bounds of which each release asks for another torch than the one that is there."""
    one = want.install
    mine = commands.get(one.span, {})
    for met in _met(mine, at, one, torches):
        if not met.version or want.admits(met.version):
            continue
        severity, so = _effect(dockerfile, at, one, met, together(mine, met.commands), "", facts)
        yield found(
            f"each release of {one.name} that {one.specifier} lets in asks for another torch ({want.asked}), and here "
            f"is torch {met.version}{so}",
            one.span,
            severity,
            f"take the {one.name} of torch {met.version}, or {want.asked} with it",
            {f"{want.named} asks for {want.asked}": want.because, f"torch {met.version}": met.span.place},
        )
        return


# The torch that the local version of a wheel names, with or without dots and a separator.
_MADE_FOR = pattern(r"(?:\+|%2[bB])[^-/]*?(?:torch|pt)([12])\.?(\d{1,2})(?:\.\d+)?(?=[^\d.]|\.?$)[^/]*\.whl")


def _made_for(one: Install, made: str, cuda: str, by: str, torches: Sequence[_There]) -> Iterator[Finding]:
    """What comes of a wheel that is said to be compiled against another torch, or another major of CUDA, than the torch
    that stays.  Source: pytorch_geometric's and mmcv's installation pages, "undefined symbol" and libcudart."""
    for met in _near(one, torches)[-1:]:
        if met.version and made and TorchRelease(met.version).upto(2) != TorchRelease(made):
            yield warning(
                f"the wheel of {one.name} is compiled against torch {made}, and here is torch {met.version}, whose "
                "symbols may be others",
                one.span,
                {f"compiled against torch {made}": by, f"torch {met.version}": met.span.place},
                f"take the wheel for torch {met.version}, or torch {made}",
            )
        elif cuda and met.cuda and cuda.partition(".")[0] != met.cuda.partition(".")[0]:
            build = "the CPU" if met.cuda == "cpu" else f"CUDA {met.cuda}"
            yield warning(
                f"the wheel of {one.name} is compiled for CUDA {cuda}, and here is a torch for {build}, which brings "
                f"no libcudart of CUDA {cuda.partition('.')[0]}",
                one.span,
                {f"compiled for CUDA {cuda}": by, f"a torch for {build}": met.span.place},
                f"take the page for the CUDA of that torch, or a torch for CUDA {cuda}",
            )


_WHEEL_CUDA = pattern(r"(?i)(?:\+|%2B)(?:[^-/]*?[^a-z])?cu(?:da)?(\d{2,3}|\d{2}\.\d)(?![\d.])")


def _cuda_named(digits: str) -> str:
    """The CUDA of a wheel's name, "X.Y" of cuXXY and of cudaX.Y, the major alone of cuXX."""
    return digits if "." in digits or len(digits) < 3 else f"{digits[:-1]}.{digits[-1]}"


def _of_newer_abi(
    one: Install, name: str, dockerfile: Dockerfile, torches: Sequence[_There], facts: Facts
) -> Iterator[Finding]:
    """A wheel that is compiled for the newer C++ ABI beside a wheel of PyTorch's own of before that: its symbols are
    not there.  A name that denies the newer one says nothing, for the torch that compiled it decides then.

    Source: FLASH_ATTENTION_FORCE_CXX11_ABI in setup.py of flash-attn; PyTorch, release notes of 2.6.
    """
    since = TorchRelease(facts.milestone("torch-cxx11-abi").release)
    met = next(iter(_near(one, torches)[-1:]), None)
    last = dockerfile.torch
    own = last is not None and (last.method in ("pip", "uv") or dockerfile.base.family == "pytorch")
    if "cxx11abiTRUE" not in name or met is None or not met.version or not own or TorchRelease(met.version) >= since:
        return
    yield warning(
        f"the wheel of {one.name} is compiled for the newer C++ ABI, and torch {met.version} is of the older one, so "
        "that its symbols are not found",
        one.span,
        {"cxx11abiTRUE": "the wheel's name", f"torch {met.version}": met.span.place},
        "take the wheel with cxx11abiFALSE in its name",
    )


def _before_todays(
    dockerfile: Dockerfile,
    order: Sequence[Install],
    commands: Mapping[Span, Commands],
    torches: Sequence[_There],
    facts: Facts,
) -> Iterator[Finding]:
    """Wheels for an older torch than the newest, which is there where nothing names a release."""
    base, last = dockerfile.base, dockerfile.torch
    if dockerfile.unread or not (base.torch.is_unsupported or base.family in ("os", "nvidia", "python")):
        return
    for at, one in enumerate(order):
        made = _MADE_FOR.search(one.url) if "torch" in one.url and one.sure and one.name not in _FAMILY else None
        if made is None or any(each.version for each in _near(one, torches)[-1:]):
            continue
        before = order[:at]
        by, today = next(iter(brought_before(dockerfile, one, before, commands, facts)), (None, ""))
        if last is not None:
            by = last.install if last.install in before else None
            held = any(wants.want_of(each, facts) is not None or each.constraint for each in before if each is not by)
            known = by is not None and by.prefix == one.prefix and not (held or by.marker)
            today = newest_of(by, facts) if by is not None and known else ""
        if by is not None and today and TorchRelease(today).upto(2) > TorchRelease(f"{made[1]}.{made[2]}"):
            yield warning(
                f"the wheel of {one.name} is compiled against torch {made[1]}.{made[2]}, and {by.name} without a "
                f"version brings the newest, today torch {today}, whose symbols may be others",
                one.span,
                {f"compiled against torch {made[1]}.{made[2]}": "the wheel's name", f"torch {today}": by.span.place},
                f"pin torch {made[1]}.{made[2]} before it, or take the wheel for torch {today}",
            )


# Further extensions of torch whose own pages hold a wheel for each torch and CUDA: what compiles them is not asked.
_OF_PAGES = frozenset({"dgl", "kaolin", "pyg-lib", "torch-spline-conv"})
# Those whose wheels for each torch and CUDA are on an index of their project's: https://flashinfer.ai/whl/cuXYZ/torchA.B.
_OF_INDEXES = frozenset({"flashinfer", "flashinfer-python"})
_PAGE_CUDA = pattern(r"(?<![a-zA-Z])(cu\d{2,3})(?![0-9])")


def _page_of(one: Install, facts: Facts) -> tuple[str, str] | None:
    """The torch ("X.Y") and the CUDA of the one page of wheels that an extension is taken from, each "" where its
    address names none."""
    row = facts.package_builds.get(one.name)
    compiled = row.torch if row is not None else one.name in _OF_PAGES
    pages = one.find_links
    if one.name in _OF_INDEXES:
        compiled, pages = True, tuple(url for url in (one.index, *one.extra_indexes, *pages) if "flashinfer.ai/" in url)
    if not compiled or not one.sure or one.url or one.constraint or len(pages) != 1:
        return None
    address = pages[0].replace("%2B", "+").replace("%2b", "+")
    if "$" in address:
        return None
    torch = _PAGE_FOR.search(address)
    cuda = _PAGE_CUDA.search(address) if one.name != "dgl" else None  # of which framework-libraries-missing asks that
    return (torch[1] if torch else "", cuda_of(cuda[1]) if cuda else "") if torch or cuda else None


# The torch that a page of wheels is for, by its address.
_PAGE_FOR = pattern(r"/torch-?([12]\.\d+)(?:\.\d+|\.x)?(?=[+/.]|\.html|$)")


def _other_abis(dockerfile: Dockerfile, order: Sequence[Install], facts: Facts) -> Iterator[Finding]:
    """Wheels that are compiled against PyTorch's own wheels of the older C++ ABI, beside NVIDIA's build of torch, which
    is of the newer one, as are all that its images hold.

    Source: Dao-AILab/flash-attention issues 709 and 836 (undefined symbol) and 734 (the flags of a build there).
    """
    if dockerfile.base.family == "ngc" and not any(one.name == "torch" for one in order):
        since = TorchRelease(facts.milestone("torch-cxx11-abi").release)
        yield from (finding for one in order if (finding := _other_abi(dockerfile.base, one, since)) is not None)


def _other_abi(base: Base, one: Install, since: TorchRelease) -> Finding | None:
    if not one.sure or one.name in _FAMILY or apart(one.prefix):
        return None
    page = next((found for each in one.find_links if (found := _PAGE_FOR.search(each))), None)
    by_page = page is not None and TorchRelease(page[1]) < since
    if not by_page and "cxx11abiFALSE" not in one.url:
        return None
    return warning(
        f"the wheel of {one.name} is compiled against PyTorch's own torch, and {base.reference} holds NVIDIA's "
        "build, whose symbols are of another C++ ABI",
        one.span,
        {
            "compiled against PyTorch's own": "the page's address" if by_page else "the wheel's name",
            "NVIDIA's build": f"{base.span.place}, {base.reference}",
        },
        f"compile {one.name} in the image: --no-build-isolation --no-binary {one.name}",
    )


def _over_nvidias(dockerfile: Dockerfile, order: Sequence[Install], facts: Facts) -> Iterator[Finding]:
    """The first pinned package that asks for another torch than NVIDIA's own build in the base, where nothing says yet
    that it is replaced: of later images nobody read what their constraints hold, or it is known that they hold torch.

    Source: NVIDIA's notes of 25.12: since 25.03 /etc/pip/constraint.txt holds all packages of the image.
    """
    base, old = dockerfile.base, stack.said(dockerfile.base.torch)
    month = _MONTH.match(base.tag) if base.family == "ngc" and base.repository.endswith("nvidia/pytorch") else None
    replaced = any(each.method != "base" for each in dockerfile.torches) or any(each.name == "torch" for each in order)
    if month is None or replaced or not base.sure or not fit.unreleased(old):
        return
    since, until = (facts.milestone(name).release for name in ("ngc-holds-torch", "ngc-constraints-empty"))
    texts = (step.value for _, step in reached(dockerfile) if step.name in ("RUN", "ENV", "ARG", "COPY"))
    held = since <= month[1] < until and not any("constraint" in text.lower() for text in texts)
    for one in order:
        kept = {"--no-deps", "--target", "--prefix"} & one.options or apart(one.prefix)
        plain = one.sure and not (one.url or one.constraint or one.locked or one.marker or one.local)
        free = not (one.specifier or one.index or held)
        version = one.version or (_newest_beside(one, facts) if free else "")
        if kept or not plain or not version or one.manager not in _FROM_INDEX:
            continue
        row = facts.torch_need(one.name, version)
        made = () if row is not None else facts.torches_of(one.name, version)
        wanted = row.torch or "" if row is not None else f"=={made[0]}" if len(made) == 1 else ""
        if not wanted or allows(wanted, old) is not False:
            continue
        because = fit.cited(row) if row is not None else f"facts: the pairs of torch and {one.name}"
        if held and one.manager == "pip":
            severity, so = (
                Severity.ERROR,
                ", which its constraints hold, so that pip refuses and the build ends here",
            )
        else:
            severity, so = Severity.WARNING, f", so {one.manager} puts another in its place"
            so += ", or refuses where the image's constraints hold that one" if one.manager == "pip" else ""
        yield found(
            f"{one.name} {version} asks for torch{wanted}, and {base.reference} holds NVIDIA's torch {old}{so}",
            one.span,
            severity,
            f"leave {one.name} to the image, install it with --no-deps if it fits, or start from a base without torch",
            {
                f"{one.name} {version} asks for torch{wanted}": because,
                f"torch {old}": f"{base.span.place}, {base.torch.via}",
            },
        )
        return


_MONTH = pattern(r"(\d{2}\.\d{2})-py3")
# What NVIDIA's images hold builds of, so that only who renews it gets another.  Source: NVIDIA, PyTorch release notes.
_IN_NVIDIAS = options.names(
    "torchvision torchaudio torchtext torchdata flash-attn transformer-engine triton apex lightning"
)


def _newest_beside(one: Install, facts: Facts) -> str:
    """The release that pip takes of a name alone, "" where it keeps the image's, or where none is known."""
    if one.name in _IN_NVIDIAS and not {"--upgrade", "--force-reinstall"} & one.options:
        return ""
    if last := facts.last_release(one.name, one.python):
        return last
    if not _lives(one, facts):
        return ""
    needs = facts.torch_needs_of.get(one.name, ())
    return needs[-1].until if needs else ""


def _excluding(
    dockerfile: Dockerfile, order: Sequence[Install], commands: Mapping[Span, Commands], facts: Facts
) -> Iterator[Finding]:
    """Two packages of one command that no torch serves both of, where torch itself is not pinned there."""
    groups: dict[tuple[int, int], list[wants.Want]] = {}
    for one in order:
        want = wants.want_of(one, facts)
        places = commands.get(one.span, {}).items() if want is not None else ()
        for step, place in places:
            if want is not None and place is not None:
                groups.setdefault((step, place), []).append(want)
    told: set[Span] = set()
    brings = {each.install.span for each in dockerfile.torches if each.install is not None}
    for beside in groups.values():
        if any(each.install.name == "torch" and each.install.version for each in beside):
            continue
        pair = wants.excluding(beside, facts)
        if pair is None or pair[1].install.span in told:
            continue
        told.add(pair[1].install.span)
        if all(each.install.name in wants.MATES or each.install.span in brings for each in pair):
            continue  # torchvision-mismatch says it
        first, second = pair
        severity, so = of_one_command(dockerfile, second.install, facts)
        yield found(
            f"{second.named} asks for {second.asked}, and {first.named} of the same command for {first.asked}{so}",
            second.install.span,
            severity,
            "take releases of the two that ask for one torch",
            {f"{each.named} asks for {each.asked}": f"{each.install.span.place}, {each.because}" for each in pair},
        )


def _newest_let_in(one: Install, facts: Facts) -> bool:
    """Whether bounds are open above and let in the newest release, which the installer then takes."""
    rows = facts.torch_needs_of.get(one.name, ()) or facts.torch_uses_of.get(one.name, ())
    return bool(rows) and wants.open_above(one.specifier) and allows(one.specifier, rows[-1].until) is True


# Their newest releases ask for transformers and let its newest in, all but peft by way of sentence-transformers.
# Source: METADATA of sentence-transformers 6.2.0, peft 0.21.2, setfit 1.2.0, bertopic 0.17.4, keybert 0.9.0 and
# FlagEmbedding 1.4.2.
_BRING_TRANSFORMERS = options.names("bertopic flagembedding keybert peft sentence-transformers setfit")


def _with_transformers(
    order: Sequence[Install], commands: Mapping[Span, Commands], torches: Sequence[_There], facts: Facts
) -> Iterator[Finding]:
    """The first package that brings the newest transformers onto a torch that this one takes for none."""
    for at, one in enumerate(order):
        if one.name == "transformers":
            return  # which is judged for itself
        free = one.name in _BRING_TRANSFORMERS and one.manager in _FROM_INDEX and one.sure and not one.url
        if not free or one.version or one.specifier or one.marker or one.constraint or one.locked:
            continue
        row = _newest_use(replace(one, name="transformers"), order, facts)
        if row is None or any(each.name == "transformers" for each in order):
            return
        for met in _met(commands.get(one.span, {}), at, one, torches):
            misfit = fit.rejects(row, row.until, met.version, facts) if met.version else None
            if misfit is None or met.at > at or together(commands.get(one.span, {}), met.commands):
                continue
            own = facts.torch_needs_of.get("peft" if one.name == "peft" else "sentence-transformers", (None,))[-1]
            if own is not None and fit.rejects(own, own.until, met.version, facts) is not None:
                continue  # it brings another torch itself
            yield warning(
                f"{one.name} brings the newest transformers: {misfit.message.replace('the file pins', 'here is')}",
                one.span,
                {**misfit.facts, f"torch {met.version}": met.span.place},
                misfit.fix,
            )
            return


def _newest_use(one: Install, order: Sequence[Install], facts: Facts) -> TorchNeedRow | None:
    """Which torch the newest release of a package takes that requires none, where nothing holds the installer back.

    The newest for a Python that new releases have left behind is known of some packages.
    """
    rows = facts.torch_uses_of.get(one.name, ())
    last = facts.last_release(one.name, one.python) if rows else ""
    life = facts.python_life(one.python) if rows and one.python else None
    lives = last or (life is not None and life.eol > life.seen)
    others = [each for each in order if each.manager in _FROM_INDEX and each.name not in _FAMILY]
    held = stack.held_back(one) or one.index or any(stack.held_back(each) or each.constraint for each in others)
    if not lives or held:
        return None
    read = facts.torch_needs_of.get(one.name, ())
    if not last and read and allows(f">{rows[-1].until}", read[-1].until) is True:
        return None  # what the newest release takes was not read
    return facts.torch_use(one.name, last) if last else rows[-1]


def _lives(one: Install, facts: Facts) -> bool:
    """Whether new releases are made for the Python of an install: for an older one pip takes an older release.

    Packages drop a Python about when it ends, most of them some months later.
    """
    life = facts.python_life(one.python) if one.python else None
    if life is None:
        return False
    years, months = int(life.seen[:4]) - int(life.eol[:4]), int(life.seen[5:7]) - int(life.eol[5:7])
    return 12 * years + months <= _DROPPED_AFTER


def _known(torch: Torch, order: Sequence[Install], commands: Mapping[Span, Commands]) -> _There | None:
    """A torch with its release where that is known and an index has it; None where its place is not known."""
    version = stack.said(torch.version)
    one = torch.install
    if not version.replace(".", "").isdigit() or torch.method not in ("base", "pip", "uv", "conda"):
        version = ""
    if one is None:
        return _There(version, stack.said(torch.cuda), torch.span, -1, torch.prefix, {})
    if one.url or one.locked:
        version = ""
    span = one.span
    at = next((n for n, one in enumerate(order) if one.name == "torch" and one.span == span), None)
    if at is None:
        return None
    return _There(version, stack.said(torch.cuda), torch.span, at, torch.prefix, commands.get(span, {}))


def _met(mine: Commands, at: int, one: Install, torches: Sequence[_There]) -> Iterator[_There]:
    """The torches that a package meets: of its own command, the last one before it, then the one that stays."""
    near = _near(one, torches)
    joined = [each for each in near if together(mine, each.commands)]
    before = [each for each in near if each.at < at]
    yield from joined or [*before[-1:], *near[-1:]]


def _near(one: Install, torches: Sequence[_There]) -> list[_There]:
    """The torches of the environment of an install, or the base's."""
    near = [each for each in torches if not each.prefix or not one.prefix or each.prefix == one.prefix]
    return near if near or apart(one.prefix) else [each for each in torches if each.at < 0]


def _effect(
    dockerfile: Dockerfile, at: int, one: Install, met: _There, joined: bool, wanted: str, facts: Facts
) -> tuple[Severity, str]:
    """What comes of it, and how bad that is."""
    if joined and "--no-deps" not in one.options:
        return of_one_command(dockerfile, one, facts)
    if met.at > at and not joined:
        return Severity.WARNING, ", which is installed over the one that it was made for"
    if "--no-deps" in one.options:
        return Severity.WARNING, ", and --no-deps leaves that one in place"
    if any(each.name == "torch" and each.constraint and each.version for each in dockerfile.installs):
        return Severity.WARNING, ", and a constraint holds that one"
    by = f" by torch{wanted}" if wanted.startswith("==") else ""
    return Severity.WARNING, f", so {one.manager} replaces it{by}"
