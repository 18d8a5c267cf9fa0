"""Which torch an install gives: its version, and the CUDA it was built for, where text and facts settle it.

How pip chooses is PEP 440 and pip's own documentation: all indexes are equal, the highest version wins, and a version
with a local part ("A.B.C+cuXYZ") is higher than the same without.  uv asks its extra indexes first and stops at the
first that has the name (uv documentation, "Searching across multiple indexes").
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from envkit.dockerfile.requirements import allows, pin, torch_of
from envkit.facts import Facts, TorchNeedRow
from envkit.model import Observed, Reason
from envkit.patterns import pattern
from envkit.records import replace
from envkit.subjects.dockerfile import Base, Install, Torch

_VARIANT = pattern(r"cu(\d{2,3})(?:_full|\.with\..*)?")
# .../whl/cuNNN, .../whl/nightly/cuNNN, .../whl/test/cpu, also with a file below ("torch_stable.html"), and its mirrors
_INDEX = pattern(
    r"/(?:whl|pytorch-wheels)/(?:nightly/|test/|lts/[\d.]+/|preview/)?(cu\d{2,3}|cpu|rocm[\d.]+|xpu)(?:/|$|_)"
)
_MIRROR = pattern(r"torch.*/(cu\d{2,3}|cpu|rocm[\d.]+|xpu)/?$")
_NIGHTLY = pattern(r"/(?:nightly|test)(?:/|$)")


def variant_of(url: str) -> str:
    """The build variant that an index of torch wheels serves ("cuXYZ", "cpu", "rocmX.Y"), "" where it says none."""
    found = _INDEX.search(url) or _MIRROR.search(url)
    return found[1] if found else ""


def cuda_of(variant: str) -> str:
    """The CUDA of a variant or local version: "XY.Z" of "cuXYZ"; "cpu" and "rocm..." stay, others give ""."""
    found = _VARIANT.fullmatch(variant)
    if found:
        return f"{found[1][:-1]}.{found[1][-1]}"
    if variant == "cpu" or variant.startswith(("cpu.", "cpu_")):
        return "cpu"
    return variant if variant.startswith("rocm") else ""


def nightly(install: Install) -> bool:
    """Whether the install takes development builds, which no fact table knows."""
    urls = (install.index, *install.extra_indexes, *install.find_links)
    return "--pre" in install.options or any(_NIGHTLY.search(url) for url in urls)


def is_torch(install: Install) -> bool:
    """Whether it is torch itself."""
    return install.name == "torch" and not install.constraint


def of_install(install: Install, others: Iterable[Install], base: Base, facts: Facts, *, arm: bool = False) -> Torch:
    """The torch that ``install`` puts there.

    ``others`` are all installs of the same environment and of the same conda command, which may choose the CUDA
    (pytorch-cuda, cudatoolkit, cuda-version, cpuonly).  ``arm`` says that the build is for aarch64, where the default
    index's wheels were made without CUDA for long.
    """
    place = install.span.place
    version = (
        Observed.of(install.version, place)
        if install.version
        else Observed[str].lost(f"{place} names no exact version")
    )
    if install.manager == "conda":
        cuda, method = _conda(install, tuple(others)), "conda"
    elif install.manager == "source":
        cuda, method = base.cuda, "source"
    else:
        cuda = _pip(install, facts, arm)
        method = install.manager
    python = Observed(install.python or None, "", "" if install.python else "not known")
    return Torch(version, cuda, method, install.span, install, python, install.prefix)


_HELD = pattern(r"(?:^|,)\s*(?:<|~=|==)")
_ANEW = frozenset({"--upgrade", "--force-reinstall", "--reinstall", "--ignore-installed", "--target", "--pre"})


def kept(install: Install, there: Install | None, *, chosen: bool) -> bool:
    """Whether pip and uv leave the release of another package than torch that an earlier command put there, pinned or
    bound from above or ``chosen`` beside a pinned torch: they do where it is let in and they
    are not told to look for a newer one ("Requirement already satisfied")."""
    asks = install.version or install.url or install.constraint or install.locked or install.marker or install.extras
    if asks or install.manager not in ("pip", "uv") or _ANEW & install.options or install.name == "torch":
        return False
    if there is None or not (there.sure and (there.version or chosen or there.specifier)):
        return False
    if there.url or there.marker:
        return False
    return not install.specifier or (bool(there.version) and allows(install.specifier, there.version) is True)


def wanted_by(install: Install, facts: Facts) -> TorchNeedRow | None:
    """What a package asks of torch where its installer surely heeds that; None where that is not known.

    Of a name alone pip and uv take the newest release, whichever torch is there.  Source: Requires-Dist.
    """
    if install.manager not in ("pip", "uv") or not install.sure or install.constraint or install.marker:
        return None
    if install.url or install.locked or "--no-deps" in install.options or install.name == "torch":
        return None
    if install.version:
        return facts.torch_need(install.name, install.version)
    newest = facts.torch_needs_of.get(install.name, (None,))[-1]
    if newest is None or not install.specifier:
        return newest
    below = not _HELD.search(install.specifier)  # a bound from below alone lets the newest in
    return newest if below and allows(install.specifier, newest.until) is True else None


def brought(install: Install, there: Torch | None, base: Base, facts: Facts, *, arm: bool = False) -> Torch | None:
    """The torch that comes as what ``install`` asks for exactly, in the place of ``there``; None where none does.

    A package that is named without its release takes today's, so that the release of its torch is not determined.
    """
    if _takes_another(install, there):
        open_ = Observed[str].lost(f"{install.span.place} takes the torch of a release of torchvision")
        python = there.python if there is not None else Observed[str].lost("not known")
        return Torch(open_, open_, install.manager, install.span, install, python, install.prefix)
    if install.url:
        return _of_repository(install, there, base, facts, arm)
    row = wanted_by(install, facts)
    exact = _EXACT.fullmatch(row.torch or "") if row is not None else None
    known = there.version.value if there is not None else None
    if row is not None and row.torch and exact is None and there is not None and there.method == "base":
        earlier = known is not None and _EARLIER.search(known) and base.family == "ngc"
        if install.version and earlier and _replaces_nvidias(base, facts) and not _admits(row.torch, str(known)):
            open_ = Observed[str].lost(f"{install.span.place} takes the newest torch{row.torch}")
            return Torch(open_, open_, install.manager, install.span, install, there.python, install.prefix)
    if row is not None and row.torch and exact is None and _surely_excluded(there, row.torch, facts):
        open_ = Observed[str].lost(f"{install.span.place} takes the newest torch{row.torch}")
        python = there.python if there is not None else Observed[str].lost("not known")
        return Torch(open_, open_, install.manager, install.span, install, python, install.prefix)
    if row is None or exact is None:
        return None
    if not install.version and known is None and not _surely_older(there, exact[1], facts):
        return None
    if known is not None and _parts(known) == _parts(exact[1]) and not _EARLIER.search(known):
        return None
    if there is not None and there.method == "base" and base.family == "ngc" and not _replaces_nvidias(base, facts):
        return None  # its pip may hold NVIDIA's own build by a constraint
    asked = replace(install, name="torch", version=exact[1], specifier=row.torch or "", local="", extras=())
    found = of_install(asked, (), base, facts, arm=arm)
    if install.version:
        return replace(found, install=install)
    why = f"{install.span.place} names no release of {install.name}, which decides it"
    return replace(found, version=Observed[str].lost(why), cuda=Observed[str].lost(why), install=install)


def _of_repository(install: Install, there: Torch | None, base: Base, facts: Facts, arm: bool) -> Torch | None:
    """The torch that the newest state of a repository brings in the place of one that it is not content with."""
    wanted = torch_of(install.url)
    known = there.version.value if there is not None and not there.version.missing else None
    held = install.marker or install.constraint or install.locked or "--no-deps" in install.options or not install.sure
    if not wanted or held or there is None or known is None or install.manager not in ("pip", "uv"):
        return None
    nvidias = there.method == "base" and base.family == "ngc"  # whose pip may hold its own build by a constraint
    if _admits(wanted, known) or (nvidias and not _replaces_nvidias(base, facts)):
        return None
    asked = replace(install, name="torch", version="", specifier=wanted, url="", local="", extras=())
    bound = any(part.strip().startswith(("==", "~=")) for part in wanted.split(","))
    exact = (pin(wanted)[0] or newest_for(asked, variant_of(asked.index) or None, facts)) if bound else ""
    return replace(of_install(replace(asked, version=exact), (), base, facts, arm=arm), install=install)


def _takes_another(install: Install, there: Torch | None) -> bool:
    """Whether a torchvision of the index comes onto somebody's own build of torch, such as NVIDIA's for Jetson.

    Each release of torchvision asks for one release of torch exactly, which such a build is none of.
    """
    named = install.name == "torchvision" and install.manager in ("pip", "uv") and install.sure
    plain = not (install.url or install.constraint or install.marker or install.locked or install.local)
    default = not (install.index or install.extra_indexes or install.find_links or "--no-deps" in install.options)
    own = there is not None and there.method in ("pip", "uv") and _EARLIER.search(there.version.value or "")
    return bool(named and plain and default and own)


def _admits(specifier: str, version: str) -> bool:
    """Whether an installed version, one before a release too, is enough for a requirement."""
    from packaging.specifiers import SpecifierSet  # 6 ms, and most runs never come here

    return SpecifierSet(specifier).contains(version, prereleases=True)


def _replaces_nvidias(base: Base, facts: Facts) -> bool:
    """Whether pip of NVIDIA's PyTorch image puts a release in the place of NVIDIA's own build, an earlier version."""
    month = re.match(r"(\d{2}\.\d{2})-py3", base.tag)
    held = facts.milestone("ngc-keeps-torch").release  # of which nobody read what its constraints hold
    return base.repository.endswith("nvidia/pytorch") and month is not None and month[1] < held


def _surely_excluded(there: Torch | None, specifier: str, facts: Facts) -> bool:
    """Whether bounds exclude a torch that was installed without a release: the newest of its index, and what is newer.

    An index of builds for a CUDA that no newer torch was made for stays as it is.
    """
    one = there.install if there is not None else None
    if one is None or one.name != "torch" or not one.sure or one.manager not in ("pip", "uv"):
        return False
    variant = variant_of(one.index)
    elsewhere = (one.index and not (variant or _default(one.index))) or one.extra_indexes or one.find_links
    if elsewhere or one.version or one.specifier or one.url or one.locked or one.marker or nightly(one):
        return False
    newest = newest_for(one, variant or None, facts)
    ended = bool(variant) and _parts(newest) < _parts(newest_for(one, None, facts))
    later = not ended and allows(specifier, _TO_COME) is not False
    return bool(newest) and allows(specifier, newest) is False and not later


_TO_COME = "999.0"


def _surely_older(there: Torch | None, version: str, facts: Facts) -> bool:
    """Whether the torch that is there has a CUDA of which no release as new as ``version`` was built."""
    cuda = there.cuda.value if there is not None and there.method != "base" and not there.cuda.missing else None
    newest = facts.newest_torch(f"cu{cuda.replace('.', '')}") if cuda else ""
    return bool(newest) and _parts(newest) < _parts(version)


_EARLIER = pattern(r"\da\d")  # of NVIDIA's own builds, which are no release
_EXACT = pattern(r"==\s*([0-9]+(?:\.[0-9]+)+)")


# What decides which CUDA conda's torch is for, most wanted first.
_DECIDING = (
    ("pytorch-cuda",),
    ("cudatoolkit",),
    ("cuda-version",),
    ("cuda-toolkit", "cuda-runtime", "cuda", "cuda-libraries"),
)
# What chose the CUDA of old releases in the channel pytorch: a package for each of them.
_FEATURES = {f"cuda{digits}": f"{digits[:-1]}.{digits[-1]}" for digits in ("75", "80", "90", "91", "92", "100")}
DECIDING = frozenset({"cpuonly", "pytorch-cpu", *_FEATURES, *(name for names in _DECIDING for name in names)})


def _conda(install: Install, others: tuple[Install, ...]) -> Observed[str]:
    near = [other for other in others if other.manager == "conda" and other.prefix == install.prefix]
    if install.local == "cpu" or any(other.name in ("cpuonly", "pytorch-cpu") for other in near):
        return Observed.of("cpu", install.span.place)
    said = cuda_of(install.local)
    if said:
        return Observed.of(said, install.span.place)
    for other in near:
        if other.name in _FEATURES:
            return Observed.of(_FEATURES[other.name], other.span.place)
    for names in _DECIDING:
        for other in reversed(near):
            if other.name not in names:
                continue
            found = re.match(r"\d+\.\d+", other.version or other.specifier.lstrip("=~ "))
            if found:
                return Observed.of(found[0], other.span.place)
    for channel in install.channels:
        if found := re.search(r"label/cuda-(\d+\.\d+)", channel):
            return Observed.of(found[1], install.span.place)
    return Observed.lost("no package or build string in conda's command names a CUDA")


def _pip(install: Install, facts: Facts, arm: bool) -> Observed[str]:
    via = install.span.place
    if install.local:
        said = cuda_of(install.local)
        return (
            Observed.of(said, via) if said else Observed.lost(f"the local version {install.local} names no CUDA", via)
        )
    if install.url:
        variant = variant_of(install.url)  # before there were local versions the index's folder alone told the build
        if variant:
            return _named(variant, f"{via}, the folder {variant} of the wheel's address")
        return Observed.lost("the address of the wheel or source names no CUDA", via)
    unclear = [url for url in (install.index, *install.extra_indexes, *install.find_links) if re.search(r"[$`]", url)]
    if unclear:
        return Observed.lost(f"the index {unclear[0]} is not known before the build", via)
    if backend := next((o.split("=", 1)[1] for o in install.options if o.startswith("--torch-backend=")), ""):
        said = cuda_of(backend)
        return (
            Observed.of(said, via) if said else Observed.lost(f"torch-backend {backend} is decided while building", via)
        )
    if "--no-index" in install.options and not any(map(variant_of, install.find_links)):
        return Observed.lost("it comes out of a folder of wheels, which no index describes", via)
    variant = variant_of(install.index)
    if variant:
        return _named(variant, f"{via}, index {install.index}")
    if install.index and not _default(install.index):
        return Observed.lost(f"the index {install.index} is not known", via)
    extra = next((found for url in (*install.extra_indexes, *install.find_links) if (found := variant_of(url))), "")
    if extra:
        if wins(install, extra, facts):
            return _named(extra, f"{via}, extra index for {extra}")
        if not install.version:
            why = f"the default index has a newer torch than the extra index for {extra}"
            return Observed.lost(why, via, Reason.NEWER_ON_DEFAULT_INDEX)
    if not install.version:
        return Observed.lost("no exact version, so the CUDA is whatever the newest torch has", via)
    builds = facts.torch_builds(install.version)
    default = next((build for build in builds if build.default), None)
    if default is None:
        return Observed.lost(f"no fact knows the build of torch {install.version} on the default index", via)
    if arm and default.pypi_aarch64 != "cuda":
        return Observed.of("cpu", f"{default.source}: the aarch64 wheel has no CUDA")
    via = f"default build of torch {install.version} [{default.source}; seen {default.seen}]"
    return Observed.of(str(default.cuda), via)


def of_all_indexes(install: Install) -> bool:
    """Whether the installer takes the best release of all its indexes: uv does where it is told to."""
    return install.manager != "uv" or "--index-strategy=unsafe-best-match" in install.options


def wins(install: Install, variant: str, facts: Facts) -> bool:
    """Whether an extra index of ``variant`` gives the torch of ``install``, against the default index.

    With an exact version it does where that variant of the version exists; without one, where its newest torch is no
    older than the default index's.  uv takes it always, unless it is told to look for the best of all indexes.
    """
    if not of_all_indexes(install) or nightly(install) or variant == "cpu" or variant.startswith("rocm"):
        return True  # the indexes for cpu and ROCm have every release, with a local version
    if install.version:
        builds = facts.torch_builds(install.version)
        return not builds or any(build.variant == variant and build.published is not False for build in builds)
    newest, rival = newest_for(install, variant, facts), newest_for(install, None, facts)
    if not newest:
        return variant.startswith(("rocm", "xpu"))
    return _parts(newest) >= _parts(rival)


def newest_for(install: Install, variant: str | None, facts: Facts) -> str:
    """The newest torch of an index ("cuXYZ", None for the default one) that pip may give ``install``, "" for none.

    Its Python must have a wheel, and its specifier must allow it; one that cannot be read allows all.
    """
    if not install.python and not install.specifier:
        return facts.newest_torch(variant)
    tag = "cp" + install.python.replace(".", "")
    found = ""
    for row in facts.torches_all:
        if not row.default or (install.python and row.pythons and tag not in row.pythons):
            continue
        release = str(row.torch)
        builds = facts.torch_builds(release)
        there = variant in (None, "cpu") or any(build.variant == variant and build.published for build in builds)
        if there and _parts(release) > _parts(found) and allows(install.specifier, release) is not False:
            found = release
    return found


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _named(variant: str, via: str) -> Observed[str]:
    said = cuda_of(variant)
    if not said:
        return Observed.lost(f"the variant {variant} names no CUDA", via)
    return Observed.unsupported(via) if said.startswith("rocm") else Observed.of(said, via)


def _default(index: str) -> bool:
    """Whether an index is the default one or a whole mirror of it: by custom their address ends in "simple"."""
    return bool(re.search(r"/simple/?$", index))


def satisfied(install: Install, before: list[Torch], torch: Torch, facts: Facts) -> bool:
    """Whether the installer would leave the torch that is there: pip and uv do unless told to upgrade."""
    if install.manager not in ("pip", "uv") or install.url or not before:
        return False
    there = before[-1]
    if {"--force-reinstall", "--target"} & install.options:
        return False
    # To upgrade is to look for a newer one; the same release of the default index is older than any of its builds.
    pinned_again = install.version == there.version.value and not (install.index or install.extra_indexes)
    if "--upgrade" in install.options and not (install.manager == "pip" and pinned_again and not install.find_links):
        return False
    # What lies in a user's own folder is on top of the Python's packages, and the installer sees those.
    if there.prefix and torch.prefix and there.prefix != torch.prefix and not torch.prefix.endswith("/.local"):
        return False
    if install.local and f"{install.version}+{install.local}" == there.version.value:
        return True
    if install.local:
        return False if there.cuda.value != torch.cuda.value else install.version == there.version.value
    if install.version:
        return install.version == there.version.value
    if not install.specifier:
        return True
    if there.version.value is None:
        if there.install is None or there.method not in ("pip", "uv"):
            return there.method == "base"  # its version is not known, but a range rarely excludes it
        newest = newest_for(there.install, variant_of(there.install.index) or None, facts)
        return bool(newest) and allows(install.specifier, newest) is True
    return allows(install.specifier, there.version.value) is True
