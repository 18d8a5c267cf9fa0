"""What is known of torch, CUDA, GPUs, drivers and images: rows with their sources, and pure questions to them.

One JSON Lines file a table lies beside this module; a table is read when it is first asked for.  A new release or
product is a new row, never an edit to code.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol, TypeVar

from envkit.errors import UsageError, one_line
from envkit.facts.answers import Coverage as Coverage
from envkit.facts.answers import CudnnCode as CudnnCode
from envkit.facts.answers import DriverFloor as DriverFloor
from envkit.facts.answers import GpuDrivers as GpuDrivers
from envkit.facts.answers import ImageTag as ImageTag
from envkit.facts.rows import AptKeyRow as AptKeyRow
from envkit.facts.rows import ArchRow as ArchRow
from envkit.facts.rows import BaseImageRow as BaseImageRow
from envkit.facts.rows import CudaBuildRow as CudaBuildRow
from envkit.facts.rows import CudaErrorRow as CudaErrorRow
from envkit.facts.rows import CudaOldRow as CudaOldRow
from envkit.facts.rows import CudaRow as CudaRow
from envkit.facts.rows import CudnnRow as CudnnRow
from envkit.facts.rows import DependencyRow as DependencyRow
from envkit.facts.rows import DriverRow as DriverRow
from envkit.facts.rows import GlibcOnlyRow as GlibcOnlyRow
from envkit.facts.rows import GoodRow as GoodRow
from envkit.facts.rows import GpuPackageRow as GpuPackageRow
from envkit.facts.rows import GpuRow as GpuRow
from envkit.facts.rows import ImageEnvRow as ImageEnvRow
from envkit.facts.rows import ImageRow as ImageRow
from envkit.facts.rows import InstallerRow as InstallerRow
from envkit.facts.rows import KnownBadRow as KnownBadRow
from envkit.facts.rows import LastReleaseRow as LastReleaseRow
from envkit.facts.rows import LinkRow as LinkRow
from envkit.facts.rows import MetadataRefusedRow as MetadataRefusedRow
from envkit.facts.rows import MilestoneRow as MilestoneRow
from envkit.facts.rows import NcclRow as NcclRow
from envkit.facts.rows import NeedsPythonRow as NeedsPythonRow
from envkit.facts.rows import NgcRow as NgcRow
from envkit.facts.rows import NvidiaNeedRow as NvidiaNeedRow
from envkit.facts.rows import OsLifeRow as OsLifeRow
from envkit.facts.rows import OsRow as OsRow
from envkit.facts.rows import PackageArchRow as PackageArchRow
from envkit.facts.rows import PackageBuildRow as PackageBuildRow
from envkit.facts.rows import PeakRow as PeakRow
from envkit.facts.rows import PtxRow as PtxRow
from envkit.facts.rows import PythonLifeRow as PythonLifeRow
from envkit.facts.rows import PytorchImageRow as PytorchImageRow
from envkit.facts.rows import RefusedRow as RefusedRow
from envkit.facts.rows import RequireRow as RequireRow
from envkit.facts.rows import Row, read_table
from envkit.facts.rows import SdistRow as SdistRow
from envkit.facts.rows import SourceArchRow as SourceArchRow
from envkit.facts.rows import SourcePythonRow as SourcePythonRow
from envkit.facts.rows import ToolkitFaultRow as ToolkitFaultRow
from envkit.facts.rows import ToolkitRegressionRow as ToolkitRegressionRow
from envkit.facts.rows import ToolRow as ToolRow
from envkit.facts.rows import TorchAbiRow as TorchAbiRow
from envkit.facts.rows import TorchNeedRow as TorchNeedRow
from envkit.facts.rows import TorchOldRow as TorchOldRow
from envkit.facts.rows import TorchRow as TorchRow
from envkit.facts.rows import VariantRow as VariantRow
from envkit.facts.rows import WheelPageRow as WheelPageRow
from envkit.facts.rows import WheelPythonRow as WheelPythonRow
from envkit.facts.rows import WideNeedRow as WideNeedRow
from envkit.facts.rows import XidRow as XidRow
from envkit.facts.system_library import SystemLibraryRow as SystemLibraryRow
from envkit.facts.variable import VariablePairRow as VariablePairRow
from envkit.facts.variable import VariableRow as VariableRow
from envkit.facts.wide import ANY_TORCH as ANY_TORCH
from envkit.facts.wide import NO_TORCH as NO_TORCH
from envkit.facts.wide import Needs, Wide, by_package
from envkit.facts.xid import XidCategory
from envkit.patterns import pattern
from envkit.versions import Cuda, Cudnn, Driver, Sm, Torch

_PLAIN_VERSION = pattern(r"[0-9]+(\.[0-9]+)*\Z")
# Words of a device name that say how it is packaged, not what it is: "A100-SXM4-80GB", "RTX 3080 Laptop GPU".
_PACKAGING = pattern(r"(sxm[0-9]?|pcie|nvl|hbm[0-9]?e?|[0-9]+gb?|laptop|mobile|gpu|generation|nvgpu)\Z")
_DOCKERFILES = "NVIDIA container-images/cuda Dockerfiles"
_VENDOR_WORDS = ("nvidia", "geforce", "tesla")


class _Ranged(Protocol):
    """A row about the releases from ``since`` to ``until``, both included."""

    @property
    def since(self) -> str: ...
    @property
    def until(self) -> str: ...


_RangedRow = TypeVar("_RangedRow", bound=_Ranged)


_BOUND = pattern(r"([<>]=?)([0-9]+(?:\.[0-9]+)*)(?=,|\Z)")


def _within(rows: Sequence[_RangedRow], version: str) -> _RangedRow | None:
    """The row that a release is among, None where none is, or where it is no version."""
    if not rows:
        return None
    from packaging.version import InvalidVersion, Version  # 6 ms, and most runs never come here

    try:
        wanted = Version(version)
    except InvalidVersion:
        return None
    return next(
        (
            row
            for row in rows
            if (not row.since or Version(row.since) <= wanted) and (not row.until or wanted <= Version(row.until))
        ),
        None,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version.partition("+")[0]))


def _squeezed(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "", text.lower())


def _gpu_key(text: str) -> str:
    words = re.findall(r"[a-z0-9]+", text.lower())
    while words and words[0] in _VENDOR_WORDS:
        words.pop(0)
    kept = [word for number, word in enumerate(words) if number == 0 or not _PACKAGING.match(word)]
    return "".join(kept)


def _unknown(what: str, text: str, known: Iterable[str], cutoff: float = 0.5) -> UsageError:
    lowered = {name.lower(): name for name in known}
    near = [lowered[name] for name in difflib.get_close_matches(text.lower(), lowered, 3, cutoff)]
    fix = f"nearest known: {', '.join(near)}" if near else "list what is known with `envkit facts`"
    return UsageError(f"there are no facts about the {what} `{text}`", fix)


def _unknown_version(what: str, text: str, known: Iterable[str]) -> UsageError:
    """Names the nearest by number, where letters would take a far release with a like spelling for near."""
    found = re.search(r"[0-9]+(\.[0-9]+)*", text)
    wanted = [int(part) for part in found[0].split(".")] if found else []

    def distance(version: str) -> list[int]:
        return [abs(mine - int(part)) for mine, part in zip(wanted, version.split("."), strict=False)]

    near = sorted(dict.fromkeys(known), key=distance)[:3]
    label = "nearest known" if found else "newest known"
    return UsageError(f"there are no facts about the {what} `{text}`", f"{label}: {', '.join(near)}")


def _table(kind: type[Row], name: str) -> cached_property[tuple[Row, ...]]:
    """A table as an attribute of Facts, which is read when it is first asked for."""
    return cached_property(lambda facts: read_table(kind, facts.directory / f"{name}.jsonl"))


# The last releases whose package python is Python 2.
_WITH_PYTHON2 = ("ubuntu14.04", "ubuntu16.04", "ubuntu18.04", "ubuntu18.10", "ubuntu19.04", "debian9", "debian10")


class Facts:
    """All tables; each attribute is read from its file when first used.

    ``directory`` holds the files; the default is the one shipped with envkit.  Reading raises ValueError on a
    table that does not fit its row type.
    """

    def __init__(self, directory: Path = Path(__file__).parent) -> None:
        self.directory = directory

    torches = _table(TorchRow, "torch")  # Every torch build, oldest first

    def with_torches(self, rows: Iterable[TorchRow]) -> Facts:
        """These facts with more builds of torch, such as derived ones."""
        more = type(self)(self.directory)
        every = sorted((*self.torches, *rows), key=lambda row: (row.torch, row.cuda))
        vars(more)["torches"] = tuple(every)  # in place of the table, which is then never read
        return more

    @cached_property
    def torches_seen(self) -> str:
        """The day when the newest row of a torch build was read."""
        return max(row.seen for row in self.torches if row.default)

    cudas = _table(CudaRow, "cuda")  # Every CUDA toolkit, oldest first
    archs = _table(ArchRow, "arch")  # Every compute capability, lowest first
    gpus = _table(GpuRow, "gpu")  # Every GPU product, by compute capability and name
    drivers = _table(DriverRow, "driver")  # Every driver branch, lowest first
    cudnns = _table(CudnnRow, "cudnn")  # Every cuDNN release, oldest first
    nccls = _table(NcclRow, "nccl")  # Every NCCL release that came as a wheel, oldest first
    torch_needs = _table(TorchNeedRow, "torch_need")  # Who is built for which torch, by package and version
    wide_needs = _table(WideNeedRow, "wide_need")  # The same of the whole field, read from its own repositories
    torch_uses = _table(TorchNeedRow, "torch_use")  # Who takes which torch when it is imported, requiring none
    glibc_only = _table(GlibcOnlyRow, "glibc_only")  # What has no wheel for Alpine, and no source
    # What wheels load of the system and do not hold
    system_libraries = _table(SystemLibraryRow, "system_library")
    milestones = _table(MilestoneRow, "milestone")  # Since when something is otherwise
    source_pythons = _table(SourcePythonRow, "source_python")  # Which Python the newest source of a package asks for
    needs_pythons = _table(NeedsPythonRow, "needs_python")  # Which Pythons much used packages ask for
    requires = _table(RequireRow, "require")  # Which releases of others a package's own metadata asks for
    # Which releases of others a package does work with, where its metadata says less
    require_uses = _table(RequireRow, "require_use")
    nvidia_needs = _table(NvidiaNeedRow, "nvidia_need")  # Which of NVIDIA's wheels a package and its extras ask for
    wheel_pages = _table(WheelPageRow, "wheel_page")  # Up to which torch a page of wheels goes
    source_archs = _table(SourceArchRow, "source_arch")  # What sources are compiled for, whichever the toolkit
    package_archs = _table(PackageArchRow, "package_arch")  # Which GPUs a package's wheels have code for
    cuda_builds = _table(CudaBuildRow, "cuda_build")  # Who has a library for which CUDA, by package and version
    images = _table(ImageRow, "image")  # Public base images, by name, torch, CUDA and OS
    oses = _table(OsRow, "os")  # Every distribution release, by name
    ngcs = _table(NgcRow, "ngc")  # Images of NVIDIA's own PyTorch builds, by tag
    tools = _table(ToolRow, "tool")  # Where debugging tools come from, by tool
    toolkit_faults = _table(ToolkitFaultRow, "toolkit_fault")  # Vulnerabilities of the Container Toolkit, by CVE
    toolkit_regressions = _table(ToolkitRegressionRow, "toolkit_regression")  # What its releases broke, by id
    variants = _table(VariantRow, "variant")  # Distributions that share an import package, by its name
    dependencies = _table(DependencyRow, "dependency")  # What torch cannot do without a distribution that it requires
    known_bad = _table(KnownBadRow, "known_bad")  # Combinations that version order alone would let pass, by id
    cuda_errors = _table(CudaErrorRow, "cuda_error")  # The driver's and the runtime's error codes, lowest first
    xids = _table(XidRow, "xid")  # The driver's error codes in the kernel log, lowest first

    def xid(self, code: int) -> XidRow | None:
        """What is known of one Xid; None for a code that is not in the table."""
        return next((row for row in self.xids if row.code == code), None)

    def xid_category(self, code: int) -> XidCategory:
        """What an Xid is about; OTHER for a code that is not in the table."""
        row = self.xid(code)
        return row.category if row else XidCategory.OTHER

    ptx_isas = _table(PtxRow, "ptx")  # PTX ISA versions and the toolkits that brought them, oldest first
    peaks = _table(PeakRow, "peak")  # Datasheet peaks, by GPU
    goods = _table(GoodRow, "good")  # Speeds that healthy GPUs reached, by GPU, test and measure
    links = _table(LinkRow, "link")  # What ways between nodes carry, and what of it must be reached

    def peak(self, name: str) -> PeakRow | None:
        """The datasheet peaks of the GPU that cuDeviceGetName calls exactly ``name``; None if there is none."""
        return next((row for row in self.peaks if name in row.names), None)

    def good(self, name: str, test: str, measure: str) -> GoodRow | None:
        """What a healthy GPU that cuDeviceGetName calls ``name`` reached; None where nothing is recorded."""
        peak = self.peak(name)
        wanted = (peak.gpu, test, measure) if peak else None
        return next((row for row in self.goods if (row.gpu, row.test, row.measure) == wanted), None)

    # Builds of torch releases too old to be locked, oldest first: for reading, never for choosing
    torches_old = _table(TorchOldRow, "torch_old")
    # Old and odd tags of nvidia/cuda, for reading, never for choosing; oldest CUDA first
    images_old = _table(ImageRow, "image_old")
    # NVIDIA's own PyTorch images that ``ngcs`` has not or not as full: older ones, and values that the months before
    # and after it agree on. For reading, never for choosing
    ngcs_wide = _table(NgcRow, "ngc_wide")

    def ngc(self, tag: str) -> NgcRow | None:
        """What NVIDIA's PyTorch image ``tag`` holds, as fully as it is known; None for an unknown tag."""
        return next((row for row in reversed((*self.ngcs, *self.ngcs_wide)) if row.tag == tag), None)

    def ngc_cudnn(self, row: NgcRow) -> str:
        """The cuDNN of an image of ``ngc``; its major alone where only those of earlier and later months were read, and
        agree on that; "" where they do not."""
        if row.cudnn is not None:
            return str(row.cudnn)
        known = sorted((each.tag, each.cudnn.major) for each in (*self.ngcs, *self.ngcs_wide) if each.cudnn is not None)
        before = [major for tag, major in known if tag < row.tag]
        after = [major for tag, major in known if tag > row.tag]
        return str(before[-1]) if before and after and before[-1] == after[0] else ""

    image_envs = _table(ImageEnvRow, "image_env")  # LD_LIBRARY_PATH of base images, by image and CUDA
    # What pytorch/pytorch images hold beside torch, oldest first
    last_releases = _table(LastReleaseRow, "last_release")  # What an old Python gets for good
    wheel_pythons = _table(WheelPythonRow, "wheel_python")  # What has wheels for some Pythons, and no source
    refused_packages = _table(RefusedRow, "refused")  # Names on PyPI that only say that another one is meant
    torch_abis = _table(TorchAbiRow, "torch_abi")  # Packages whose newer releases an old torch was not built for
    metadata_refused = _table(MetadataRefusedRow, "metadata_refused")  # Releases that the newest pip does not read
    sdists = _table(SdistRow, "sdist")  # Sources that cannot be built apart from the installed packages
    apt_keys = _table(AptKeyRow, "apt_key")  # Images that know NVIDIA's archive by its old key
    installers = _table(InstallerRow, "installer")  # What the newest installers ask for
    base_images = _table(BaseImageRow, "base_image")  # Public images by release, those of tags alone first
    pytorch_images = _table(PytorchImageRow, "pytorch_image")
    # Distribution releases with their ends, by name; many more than the ones to choose from (``oses``)
    os_lives = _table(OsLifeRow, "os_life")
    variables = _table(VariableRow, "variable")  # What a job's variables may be, by name
    variable_pairs = _table(VariablePairRow, "variable_pair")  # Variables that contradict one another, by id
    python_lives = _table(PythonLifeRow, "python_life")  # The ends of CPython's minor versions, oldest first
    # What the assemblers of CUDA minors older than ``cudas`` can target, oldest first
    cudas_old = _table(CudaOldRow, "cuda_old")
    gpu_packages = _table(GpuPackageRow, "gpu_package")  # What Python packages want of CUDA, by name and version

    @cached_property
    def package_builds(self) -> Mapping[str, PackageBuildRow]:
        """What decides whether installing a package compiles CUDA code, by its canonical name."""
        return {row.name: row for row in read_table(PackageBuildRow, self.directory / "package_build.jsonl")}

    @cached_property
    def package_repositories(self) -> Mapping[str, str]:
        """The packages of ``package_builds`` by the names of their repositories, where those are others."""
        return {row.repository: row.name for row in self.package_builds.values() if row.repository}

    @cached_property
    def torches_all(self) -> list[TorchRow | TorchOldRow]:
        """All CUDA builds of torch of any age, oldest first: for reading what others wrote."""
        return [*self.torches_old, *self.torches]

    @cached_property
    def _builds_by_release(self) -> Mapping[str, tuple[TorchRow | TorchOldRow, ...]]:
        found: dict[str, list[TorchRow | TorchOldRow]] = {}
        for row in self.torches_all:
            found.setdefault(str(row.torch), []).append(row)
        return {release: tuple(rows) for release, rows in found.items()}

    def torch_builds(self, version: str) -> tuple[TorchRow | TorchOldRow, ...]:
        """All CUDA builds of the torch release ``version`` ("A.B.C", "A.B" for its .0, a local part aside), of any age;
        empty for a release that no row knows.

        CPU builds have no rows: every release has one on the cpu index.
        """
        release = version.strip().partition("+")[0]
        builds = self._builds_by_release
        return builds.get(release) or builds.get(f"{release}.0", ())

    def newest_torch(self, variant: str | None) -> str:
        """The newest torch release on the index of ``variant`` ("cuXYZ"), or on PyPI for None; "" if none is known.

        The cpu index has every release, so its newest is PyPI's.  Builds that were only planned or announced as
        removed do not count.
        """
        rows = self.torches_all
        if variant is None or variant == "cpu":
            found = [row.torch for row in rows if row.default]
        else:
            found = [row.torch for row in rows if row.variant == variant and row.published]
        return str(max(found)) if found else ""

    def torches_of(self, package: str, version: str) -> tuple[str, ...]:
        """The torch releases that ``version`` of "torchvision" or "torchaudio" was made for; empty if none is known."""
        release = version.strip().partition("+")[0]
        return self._pairs.get((package, release), ()) or self._pairs.get((package, f"{release}.0"), ())

    @cached_property
    def _pairs(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        found: dict[tuple[str, str], dict[str, None]] = {}
        for row in self.torches_all:
            for package, versions in (("torchvision", row.torchvision), ("torchaudio", row.torchaudio)):
                for version in versions or ():
                    found.setdefault((package, version), {})[str(row.torch)] = None
        return {key: tuple(releases) for key, releases in found.items()}

    def os_life(self, name: str) -> OsLifeRow | None:
        """The end of the distribution release ``name`` ("ubuntuXY.ZZ", "debianNN", a codename); None if unknown."""
        return self._lives_by_name.get(name)

    @cached_property
    def _lives_by_name(self) -> Mapping[str, OsLifeRow]:
        names = {row.codename: row for row in self.os_lives if row.codename}
        return {**names, **{row.name: row for row in self.os_lives}}

    def os_python2(self, name: str) -> str:
        """The Python 2 that a system's package python is ("A.B"); "" where that is none, or not known."""
        last = [str(row.python) for row in self.python_lives if str(row.python).startswith("2.")]
        return last[-1] if last and name in _WITH_PYTHON2 else ""

    def os_python(self, name: str) -> str:
        """The minor version of the python3 package of the distribution release ``name``, "" if unknown."""
        row = self.os_life(name)
        return str(row.python) if row is not None and row.python is not None else ""

    def python_life(self, version: str) -> PythonLifeRow | None:
        """The end of the CPython minor of ``version`` ("A.B" or "A.B.C"); None if unknown."""
        minor = ".".join(version.split(".")[:2])
        return next((row for row in self.python_lives if str(row.python) == minor), None)

    def nvcc_archs(self, cuda: str) -> tuple[Sm, ...] | None:
        """What nvcc of the CUDA ``cuda`` ("A.B" or "A.B.C") can target; None if that was not read.

        A minor without its update means the newest update of it.
        """
        parts = cuda.split(".")
        new = [row for row in self.cudas if str(row.version).split(".")[: len(parts)] == parts]
        if not new:
            new = [row for row in self.cudas if str(row.version).split(".")[:2] == parts[:2]]
        if new:
            return new[-1].archs
        old = next((row for row in self.cudas_old if str(row.version) == ".".join(parts[:2])), None)
        return old.archs if old is not None else None

    def toolkits(self, minor: Cuda) -> tuple[Cuda, ...] | None:
        """All toolkit releases of the CUDA ``minor``, empty for a minor that never was; None where they were not read.

        Minors below the oldest read and above the newest are not read.
        """
        found = tuple(row.version for row in self.cudas if row.version.upto(2) == minor)
        if found:
            return found
        for row in self.cudas_old:
            if row.version == minor:
                return row.releases
        read = [row.version for row in self.cudas_old if row.releases is not None]
        return () if read and read[0] < minor < self.cudas[-1].version else None

    def gpu_package(self, name: str, version: str = "") -> GpuPackageRow | None:
        """What the Python package ``name`` (canonical: lower case, dashes) wants of CUDA.

        Without a ``version`` the newest row is taken, as an unpinned install would; None for a package or version
        without a row.
        """
        rows = self._packages_by_name.get(name, ())
        if not version:
            return rows[-1] if rows and not rows[-1].until else None
        wanted = _numbers(version)
        for row in reversed(rows):
            until = _numbers(row.until)
            if _numbers(row.since) <= wanted and (not row.until or wanted[: len(until)] <= until):
                return row
        return None

    def gpu_package_among(self, name: str, specifier: str) -> GpuPackageRow | None:
        """The one row that all releases of a range are of (">=2.7,<2.10"); None where it is open at an end, or where
        several rows or none would do."""
        bounds = dict(_BOUND.findall(specifier.replace(" ", "")))
        least, most = bounds.get(">") or bounds.get(">="), bounds.get("<") or bounds.get("<=")
        if not least or not most or specifier.count(",") != 1:
            return None
        low, high, below = _numbers(least), _numbers(most), "<" in bounds
        fitting = [
            row
            for row in self._packages_by_name.get(name, ())
            if (_numbers(row.since) < high if below else _numbers(row.since) <= high)
            and (not row.until or low[: len(_numbers(row.until))] <= _numbers(row.until))
        ]
        return fitting[0] if len(fitting) == 1 else None

    def wheel_python(self, name: str, version: str) -> WheelPythonRow | None:
        """For which Pythons ``version`` of the package ``name`` (canonical) has wheels; None where it has a source too,
        and where that was not read."""
        return _within([row for row in self.wheel_pythons if row.package == name], version)

    def torch_need(self, name: str, version: str) -> TorchNeedRow | None:
        """What ``version`` of the package ``name`` (canonical) asks of torch; None where that was not read."""
        return _within(self.torch_needs_of.get(name, ()), version)

    def torch_use(self, name: str, version: str) -> TorchNeedRow | None:
        """Which torch ``version`` of a package that requires none takes when it is imported; None where not read."""
        return _within(self.torch_uses_of.get(name, ()), version)

    @cached_property
    def torch_uses_of(self) -> Mapping[str, tuple[TorchNeedRow, ...]]:
        """``torch_uses`` by package, oldest first."""
        return by_package(self.torch_uses)

    def require_rows(self, name: str, version: str) -> tuple[RequireRow, ...]:
        """What is known of which releases of others ``version`` of the package ``name`` (canonical) asks for, its own
        metadata first."""
        found = (_within(table.get(name, ()), version) for table in self._requires_of)
        return tuple(row for row in found if row is not None)

    @cached_property
    def _requires_of(self) -> tuple[Mapping[str, tuple[RequireRow, ...]], ...]:
        return by_package(self.requires), by_package(self.require_uses)

    def nvidia_need(self, name: str, version: str, extras: Iterable[str]) -> NvidiaNeedRow | None:
        """Which of NVIDIA's wheels ``version`` of a package (canonical) asks for with ``extras``; None where none."""
        wanted = {"", *(extra.replace("_", "-").lower() for extra in extras)}
        return _within([row for row in self.nvidia_needs if row.package == name and wanted & {*row.extras}], version)

    def milestone(self, name: str) -> MilestoneRow:
        """Since when something is otherwise; raises KeyError for a name that has no row."""
        return {row.name: row for row in self.milestones}[name]

    def source_arch(self, package: str, version: str) -> SourceArchRow | None:
        """The oldest GPU that the source of ``version`` is compiled for; None where it asks the toolkit, or unread."""
        return _within([row for row in self.source_archs if row.package == package], version)

    def package_arch(self, package: str, version: str) -> PackageArchRow | None:
        """Which GPUs the wheels of ``version`` of ``package`` have code for; None where that was not read."""
        return _within([row for row in self.package_archs if row.package == package], version)

    def cuda_build(self, package: str, version: str) -> CudaBuildRow | None:
        """For which CUDAs ``version`` of ``package`` has libraries; None where the facts do not say."""
        return _within([row for row in self.cuda_builds if row.package == package], version)

    @cached_property
    def torch_needs_of(self) -> Mapping[str, tuple[TorchNeedRow, ...]]:
        """``torch_needs`` by package, oldest first, and the rows of ``wide_needs`` for what is not among them."""
        return Needs(by_package(self.torch_needs), self.wide)

    @cached_property
    def wide(self) -> Wide:
        """The table of the whole field, of which single lines are read."""
        return Wide(self.directory / "wide_need.jsonl")

    def numpy_need(self, name: str, version: str) -> WideNeedRow | None:
        """The row of a package of which ``version``, or the newest release for "", takes no numpy 1; else None."""
        row = self.wide.row(name)
        if row is None or not row.numpy:
            return None
        return row if (_within(row.numpy_runs, version) if version else row.numpy_is_newest) else None

    @cached_property
    def _packages_by_name(self) -> Mapping[str, tuple[GpuPackageRow, ...]]:
        found: dict[str, list[GpuPackageRow]] = {}
        for row in self.gpu_packages:
            found.setdefault(row.name, []).append(row)
        return {name: tuple(rows) for name, rows in found.items()}

    def pytorch_image(self, torch: str) -> PytorchImageRow | None:
        """What pytorch/pytorch images of the release ``torch`` hold beside it; None if that was not read."""
        return next((row for row in self.pytorch_images if str(row.torch) == torch), None)

    def last_release(self, name: str, python: str) -> str:
        """The last release of ``name`` that has a wheel for a ``python`` which has ended, "" if unknown."""
        minor = ".".join(python.split(".")[:2])
        return next((row.release for row in self.last_releases if (row.name, row.python) == (name, minor)), "")

    def refused(self, name: str) -> RefusedRow | None:
        """Why a name on PyPI refuses to be installed; None where that is not known of it."""
        return next((row for row in self.refused_packages if row.name == name), None)

    def installer(self, name: str) -> InstallerRow:
        """What the newest release of an installer asks for; raises KeyError for one that has no row."""
        return {row.name: row for row in self.installers}[name]

    def base_image(self, image: str, tag: str) -> BaseImageRow | None:
        """What ``image`` holds under ``tag``, "" for the one that is taken where none is given; None if unread."""
        from envkit.facts.base_image import row_of

        return row_of(self.base_images, image, tag)

    def library_path(self, image: str, cuda: Cuda) -> str:
        """LD_LIBRARY_PATH that ``image`` sets at that CUDA, "" if unknown."""
        rows = [row for row in self.image_envs if row.image == image and row.since <= cuda]
        return rows[-1].library_path if rows else ""

    def old_image_tag(self, reference: str) -> ImageTag | None:
        """As ``image_tag``, of the tags that are too old or too odd to be chosen."""
        return self._old_images_by_reference.get(reference)

    @cached_property
    def _old_images_by_reference(self) -> Mapping[str, ImageTag]:
        return {tag.reference: tag for row in self.images_old for tag in _tags(row)}

    @cached_property
    def whole_lists(self) -> Mapping[Cuda, frozenset[str]]:
        """The tags of nvidia/cuda by CUDA version, of those versions whose list of tags is complete.

        NVIDIA's own Dockerfiles name every image of a version.  They were read up to a day, so the newest version of
        that day may have got images since; all older ones had been followed by a newer one and get none.
        """
        found: dict[Cuda, set[str]] = {}
        rest: set[Cuda] = set()
        for row in self.images:
            if row.image != "nvidia/cuda":
                continue
            found.setdefault(row.cuda, set()).update(row.tags)
            if row.source != _DOCKERFILES:
                rest.add(row.cuda)
        whole = {cuda: tags for cuda, tags in found.items() if cuda not in rest}
        whole.pop(max(whole), None)
        for row in self.images_old:
            if row.cuda in whole:
                whole[row.cuda].update(row.tags)
        return {cuda: frozenset(tags) for cuda, tags in whole.items()}

    def torch(self, text: str) -> tuple[TorchRow, ...]:
        """All builds of the torch releases that ``text`` means, newest release and CUDA first.

        ``text`` is a release or its beginning ("A.B"), a release with its variant ("A.B.C+cuXYZ") or a
        specifier (">=A.B,<A.D").  Builds that are planned or announced as removed are among them: see
        ``published``.  Raises UsageError, with the nearest known names, when nothing matches.
        """
        wanted, _, variant = text.strip().lower().removeprefix("torch").lstrip(" =").partition("+")
        if not wanted:
            raise self._no_torch(text)
        if _PLAIN_VERSION.match(wanted):
            parts = Torch(wanted).parts
            found = self.torches_of_wish(text, lambda release: release.parts[: len(parts)] == parts)
            found = tuple(row for row in found if not variant or row.variant == variant)
            if not found:
                raise self._no_torch(text)
            return found
        # imported here because it costs 6 ms and a plain release needs none of it
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            specifier = SpecifierSet(text.strip().lower().removeprefix("torch").strip())
        except InvalidSpecifier:
            raise self._no_torch(text) from None
        return self.torches_of_wish(text, lambda release: specifier.contains(str(release)))

    def torches_of_wish(self, text: str, admits: Callable[[Torch], bool]) -> tuple[TorchRow, ...]:
        """All builds of the releases that a wish written as ``text`` admits, newest release and CUDA first.

        Raises UsageError, with the nearest known names, when it admits none.
        """
        found = [row for row in self.torches if admits(row.torch)]
        if not found:
            raise self._no_torch(text)
        return tuple(sorted(found, key=lambda row: (row.torch, row.cuda), reverse=True))

    def _no_torch(self, text: str) -> UsageError:
        release = text.strip().lower().removeprefix("torch").lstrip(" =").partition("+")[0]
        builds = [row.variant for row in self.torches if str(row.torch) == release]
        if builds:
            return UsageError(f"torch {release} has no build `{text}`", f"its builds: {', '.join(builds)}")
        oldest = min(row.torch for row in self.torches)
        if _PLAIN_VERSION.fullmatch(release) and Torch(release) < oldest:
            said = f"torch {release} is older than {oldest}, the oldest release that envkit can lock"
            return UsageError(said, f"take {oldest} or a newer one")
        if any(sign in text for sign in "<>!~,"):
            known = sorted({row.torch for row in self.torches})
            said = f"no torch release that the facts know, {known[0]} to {known[-1]}, is `{one_line(text)}`"
            return UsageError(said, f"write a range with one of them, such as >={known[-1]}")
        return _unknown_version("torch release", text, [str(row.torch) for row in reversed(self.torches)])

    def gpu(self, text: str) -> GpuRow:
        """The product that ``text`` names, as people, nvidia-smi or nvcc write it; "sm_XY" and "X.Y" are taken too.

        Case, spaces, dashes, "NVIDIA GeForce" and words of packaging ("SXM4", "80GB", "Laptop GPU") do not matter. A
        bare capability gives a row whose ``datacenter`` is None.  Raises UsageError with the nearest known names.
        """
        if re.fullmatch(r"(sm_|compute_)[0-9]{2,3}|[0-9]{1,2}\.[0-9]", text.strip().lower()):
            sm = Sm.parse(text.strip().lower())
            arch = next((row for row in self.archs if row.sm == sm), None)
            if arch is None:
                raise _unknown("compute capability", text, [str(row.sm) for row in self.archs])
            return GpuRow(str(sm), sm, None, arch.tegra, (), note=arch.note, source=arch.source, seen=arch.seen)
        key = _gpu_key(text)
        if key in self._gpus_by_key:
            return self._gpus_by_key[key]
        series = [self._gpus_by_key[name] for name in (f"rtx{key}", f"gtx{key}") if name in self._gpus_by_key]
        if len(series) == 1:
            return series[0]
        words = " ".join(re.findall(r"[A-Za-z0-9]+", text))
        near = difflib.get_close_matches(key, self._gpus_by_key, 3, 0.6)
        raise _unknown("GPU", words or text, [self._gpus_by_key[name].name for name in near], 0.0)

    @cached_property
    def _gpus_by_key(self) -> Mapping[str, GpuRow]:
        return {_gpu_key(name): row for row in self.gpus for name in (row.name, *row.aliases)}

    def os(self, text: str) -> OsRow:
        """The distribution release by name ("ubuntu22.04", "Debian 12", "debian:12") or codename.

        Raises UsageError with the nearest known names.
        """
        key = _squeezed(text)
        for row in self.oses:
            if key in (_squeezed(row.name), row.codename):
                return row
        names = [name for row in self.oses for name in (row.name, row.codename)]
        raise _unknown("operating system", text, names)

    def cuda(self, text: str) -> CudaRow:
        """The toolkit release ``text`` exactly, or the newest one of a minor ("X.Y", "cuXYZ").

        Raises UsageError with the nearest known names.
        """
        wanted = _squeezed(text).removeprefix("cuda")
        short = re.fullmatch(r"cu([0-9]{2})([0-9])", wanted)
        wanted = f"{short[1]}.{short[2]}" if short else wanted
        if re.fullmatch(r"[0-9]+(\.[0-9]+){1,2}", wanted):
            parts = Cuda(wanted).parts
            found = [row for row in self.cudas if row.version.parts[: len(parts)] == parts]
            if found:
                return found[-1]
        raise _unknown_version("CUDA toolkit", text, [str(row.version) for row in reversed(self.cudas)])

    def cudnn(self, text: str) -> CudnnRow:
        """The cuDNN release that ``text`` names, the newest one if it is only the beginning of a version.

        Raises UsageError with the nearest known names.
        """
        if _PLAIN_VERSION.match(text):
            parts = Cudnn(text).parts
            found = [row for row in self.cudnns if row.version.parts[: len(parts)] == parts]
            if found:
                return found[-1]
        raise _unknown_version("cuDNN release", text, [str(row.version) for row in reversed(self.cudnns)])

    def driver_min(self, cuda: Cuda) -> DriverFloor:
        """The oldest drivers for ``cuda``; for a bare minor ``own`` is that of its first release.

        A CUDA without a row gets the floor of its major, which is the same for all its minors, and no
        ``own``.  Before there was compatibility of minors each had a driver of its own; one without a row gets neither.
        """
        minor = [row for row in self.cudas if row.version.parts[:2] == cuda.upto(2).parts]
        exact = [row for row in minor if len(cuda.parts) < 3 or row.version == cuda]
        major = [row for row in self.cudas if row.version.major == cuda.major]
        own = (exact[0].driver, exact[0].driver_source) if exact else (None, "")
        old = next((row for row in self.cudas_old if row.version == cuda.upto(2) and row.driver), None)
        if not major and old is not None:
            return DriverFloor(old.driver, old.driver_source, old.driver, old.driver_source)
        return DriverFloor(*own, *((major[0].floor, major[0].floor_source) if major else (None, "")))

    def gpu_drivers(self, sm: Sm) -> GpuDrivers | None:
        """The driver branches for GPUs of capability ``sm``; None for one that has no row, and for Jetsons, whose
        drivers are numbered otherwise.

        A driver and the toolkit that first targets an architecture are released together, and the kernel driver of an
        older branch does not know the chip; NVIDIA's matrix of toolkits, drivers and architectures names the first
        toolkit and the last branch.  Branches are compared, not releases: a GeForce driver of the branch may come
        before the toolkit's.
        """
        arch = next((row for row in self.archs if row.sm == sm and not row.tegra), None)
        if arch is None:
            return None
        own = self.driver_min(arch.first) if arch.first else None
        floor = own.own if own else None
        source = f"{arch.source}; driver of CUDA {arch.first}: {own.own_source}" if own else arch.source
        return GpuDrivers(floor.major if floor else None, arch.last_branch, floor, source, arch.seen)

    def forward_compat(self, cuda: Cuda) -> CudaRow | None:
        """The newest release of the minor of ``cuda`` of whose cuda-compat package the driver branches were read."""
        minor = [row for row in self.cudas if row.version.parts[:2] == cuda.upto(2).parts and row.compat is not None]
        return minor[-1] if minor else None

    def oldest_release(self, driver: Driver) -> Driver:
        """``driver``, or for a bare branch the oldest release of it, as far as one was read."""
        branch = self.branch(driver) if len(driver.parts) == 1 else None
        return branch.first if branch is not None and branch.first is not None else driver

    def branch(self, driver: Driver) -> DriverRow | None:
        """The row of the branch of ``driver``, None if there is none."""
        return next((row for row in self.drivers if row.branch == driver.major), None)

    def native_cuda(self, driver: Driver) -> Cuda | None:
        """The newest CUDA that the branch of ``driver`` speaks natively; None if that was not read."""
        branch = self.branch(driver)
        return branch.cuda if branch is not None else None

    def most_cuda(self, driver: Driver) -> Cuda | None:
        """A CUDA that ``driver`` speaks at most: that of its branch, or, where that was not read (branches for Windows
        have numbers of their own), that of the next branch above, for a newer driver speaks no older CUDA."""
        native = self.native_cuda(driver)
        above = [row for row in self.drivers if row.branch > driver.major and row.cuda is not None]
        return native or (min(above, key=lambda row: row.branch).cuda if above else None)

    def image_tags(
        self,
        image: str,
        *,
        cuda: Cuda | None = None,
        os: str | None = None,
        flavor: str | None = None,
        cudnn: bool | None = None,
        torch: Torch | None = None,
    ) -> tuple[ImageTag, ...]:
        """The known tags of ``image`` that fit everything given, newest first.

        ``cuda`` with two numbers fits all releases of that minor.  That a tag is known does not say that it
        still exists: see ``row.retired``.
        """
        found = []
        for row in self._images_of.get((image, cuda.upto(2)), ()) if cuda is not None else self.images:
            if row.image != image or (os is not None and row.os != os):
                continue
            if torch is not None and row.torch != torch:
                continue
            if cuda is not None and row.cuda.parts[: len(cuda.parts)] != cuda.parts:
                continue
            found += [tag for tag in _tags(row) if (flavor is None or tag.flavor == flavor)]
        fitting = [tag for tag in found if cudnn is None or tag.cudnn == cudnn]
        newest = sorted(fitting, key=lambda tag: (tag.row.torch or Torch("0"), tag.row.cuda), reverse=True)
        return tuple(newest)

    def image_list(self, image: str) -> ImageRow:
        """The newest row of ``image`` that names its publisher's own list, for where the list came from.

        Raises UsageError when there is none of that name.
        """
        if image not in self._image_lists:
            raise _unknown("image", image, self._image_lists)
        return self._image_lists[image]

    @cached_property
    def _image_lists(self) -> Mapping[str, ImageRow]:
        ranked = sorted(self.images, key=lambda row: (row.retired is not None, row.cuda))
        return {row.image: row for row in ranked}

    @cached_property
    def _images_of(self) -> Mapping[tuple[str, Cuda], tuple[ImageRow, ...]]:
        """The rows of each image and CUDA minor: a refusal asks for the tags of some hundred combinations."""
        found: dict[tuple[str, Cuda], list[ImageRow]] = {}
        for row in self.images:
            found.setdefault((row.image, row.cuda.upto(2)), []).append(row)
        return {key: tuple(rows) for key, rows in found.items()}

    def image_tag(self, reference: str) -> ImageTag | None:
        """The facts about an image reference ("name:tag", a registry host or digest aside); None if it has none."""
        name, _, tag = reference.strip().partition("@")[0].rpartition(":")
        wanted = f"{name.removeprefix('docker.io/')}:{tag}"
        return self._images_by_reference.get(wanted)

    @cached_property
    def _images_by_reference(self) -> Mapping[str, ImageTag]:
        return {tag.reference: tag for row in reversed(self.images) for tag in _tags(row)}

    def coverage(self, row: TorchRow, sm: Sm, tegra: bool = False, machine: str = "x86_64") -> Coverage:
        """Whether the build ``row`` has code for a GPU of capability ``sm`` on a ``machine`` ("x86_64", "aarch64").

        A build whose machine code was not read is "unknown", and so is one that has none for the GPU and whose PTX was
        not read.
        """
        if machine not in ("x86_64", "aarch64"):
            return Coverage("unknown")
        sass, ptx = (row.archs, row.ptx) if machine == "x86_64" else (row.archs_aarch64, row.ptx_aarch64)
        return served(sass, ptx, sm, tegra)

    def cudnn_code(self, version: Cudnn, cuda: Cuda, sm: Sm, tegra: bool = False, machine: str = "x86_64") -> CudnnCode:
        """Whether the cuDNN ``version`` for ``cuda`` has code for a GPU of capability ``sm``.

        Only libraries of the x86_64 wheels were read.  The matrix names a range; a capability above its end may run
        the code of a lower one, so only its beginning forbids.
        """
        row = next((row for row in reversed(self.cudnns) if row.version == version), None)
        if row is None:
            return CudnnCode("unknown")
        line = f"cu{cuda.major}"
        sass, ptx = (row.archs or {}).get(line), (row.ptx or {}).get(line)
        read = machine == "x86_64" and sass is not None
        if read and (any(sm.runs(arch, tegra) for arch in sass or ()) or any(sm.compiles(arch) for arch in ptx or ())):
            return CudnnCode("has", row)
        least = re.search(r"[0-9]{1,2}\.[0-9]", row.capability or "")
        if least and sm < Sm.parse(least[0]):
            return CudnnCode("none", row)
        return CudnnCode("unseen" if read and ptx is not None else "unknown", row)


def served(sass: Iterable[Sm] | None, ptx: Iterable[Sm] | None, sm: Sm, tegra: bool) -> Coverage:
    """How code serves a GPU of capability ``sm``: ``sass`` is machine code, ``ptx`` what a driver could compile, each
    None where it was not read."""
    if sass is None:
        return Coverage("unknown")
    running = [arch for arch in sass if sm.runs(arch, tegra)]
    if running:
        return Coverage("sass", max(running))
    if ptx is None:
        return Coverage("unknown")
    compiling = [arch for arch in ptx if sm.compiles(arch)]
    return Coverage("ptx", max(compiling)) if compiling else Coverage("none")


def _tags(row: ImageRow) -> list[ImageTag]:
    found = []
    for tag in row.tags:
        flavor = next((word for word in ("base", "runtime", "devel") if word in tag.split("-")), "")
        found.append(ImageTag(f"{row.image}:{tag}", flavor, "-cudnn" in tag, row.digests.get(tag), row))
    return found


@cache
def load() -> Facts:
    """The facts shipped with envkit, one object for the whole process."""
    return Facts()
