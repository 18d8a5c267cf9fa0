"""The rows of the fact tables and how one line of a table becomes one.

Every row says where it was read (``source``) and when (``seen``, a day); ``note`` keeps what the sources
disagree on.  None is "not read" and never a default; an empty tuple is "read, and there are none".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from envkit.facts.xid import XidCategory
from envkit.records import dataclass
from envkit.versions import ContainerToolkit, Cuda, Cudnn, Driver, Glibc, Nccl, Python, Sm, Torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """The columns that every table ends with."""

    note: str
    source: str
    seen: str


Row = TypeVar("Row", bound=Hashable)
_LAST = tuple(field.name for field in fields(Sourced))


def columns(kind: type[Any]) -> tuple[str, ...]:
    """The names of a table's columns, in the order of its file."""
    return tuple(sorted((field.name for field in fields(kind)), key=lambda name: name in _LAST))


def own_index(variant: str) -> str:
    """The address of PyTorch's own wheel index for a build ("cuXYZ", "cpu")."""
    return f"https://download.pytorch.org/whl/{variant}"


@dataclass(frozen=True, slots=True)
class TorchRow(Sourced):
    """One torch release built for one CUDA.

    ``default`` marks the build that PyPI serves; all others come from ``index``.  ``published`` is None where only
    plans or CI matrices were read, False where the removal was announced.  ``toolkit`` is the exact CUDA toolkit that
    PyPI's wheel pins by the cuda-toolkit metapackage, None also where it pins single libraries instead; ``triton`` is
    the specifier it asks for.  ``pythons`` are wheel tags ("cp311", "cp313t"), ``platform`` is the x86_64 platform tag
    and ``glibc`` the oldest one that this tag promises to run on.  ``archs`` is the machine code in the x86_64 wheel,
    ``ptx`` what a driver could still compile.  ``pypi_aarch64`` says what PyPI's aarch64 wheel of the release is
    ("cuda" or "cpu"), which may differ from the aarch64 build on the index that ``archs_aarch64`` describes.
    """

    torch: Torch
    variant: str
    cuda: Cuda
    default: bool
    published: bool | None
    released: str
    cudnn: Cudnn | None
    nccl: Nccl | None
    toolkit: Cuda | None
    triton: str | None
    requires_python: str | None
    pythons: tuple[str, ...] | None
    platform: str | None
    glibc: Glibc | None
    archs: tuple[Sm, ...] | None
    ptx: tuple[Sm, ...] | None
    archs_aarch64: tuple[Sm, ...] | None
    ptx_aarch64: tuple[Sm, ...] | None
    pypi_aarch64: str | None
    torchvision: tuple[str, ...] | None
    torchaudio: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """The release with its local part, as pip spells it."""
        return f"{self.torch}+{self.variant}"

    @property
    def index(self) -> str:
        """The address of the wheel index that holds this build."""
        return own_index(self.variant)

    def runs_on_python(self, python: Python) -> bool | None:
        """Whether the release has a wheel for this CPython (not free-threaded); None where that was not read.

        The tags of a build that is not PyPI's were not read, but Requires-Python comes from the source
        release and is the same for all its builds, so it can still say no.
        """
        if self.pythons is not None:
            return f"cp{python.major}{python.minor}" in self.pythons
        if self.requires_python is not None:
            from packaging.specifiers import SpecifierSet  # 6 ms, and most runs never come here

            if not SpecifierSet(self.requires_python).contains(str(python)):
                return False
        return None


@dataclass(frozen=True, slots=True)
class DerivedRow(TorchRow):
    """A build of torch as its own METADATA describes it (derived.py), which nobody has verified."""


@dataclass(frozen=True, slots=True)
class CudaRow(Sourced):
    """One CUDA toolkit release.

    ``driver`` is the oldest Linux driver that NVIDIA names for exactly this release, ``bundled_driver`` the one in its
    installer, ``floor`` the oldest of minor-version compatibility within the major.  ``compat`` are the driver branches
    on which its forward-compatibility package (cuda-compat) is meant to work, on data-center GPUs alone.  ``archs`` is
    what its assembler can target; ``gcc_max`` and ``clang_max`` are the newest host compilers its header accepts.
    """

    version: Cuda
    driver: Driver | None
    driver_source: str
    bundled_driver: Driver | None
    floor: Driver
    floor_source: str
    compat: tuple[int, ...] | None
    compat_source: str
    archs: tuple[Sm, ...]
    gcc_max: str | None
    clang_max: str | None
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchRow(Sourced):
    """One compute capability.

    ``first`` is the first toolkit that can target it, ``last`` the last one; ``dropped_in`` names the toolkit
    that left it out, and is None, with ``last``, while the newest toolkit still has it.  ``exact`` lists its
    architecture- and family-specific targets.  ``last_branch`` is the last driver branch that knows such a GPU, None
    where support goes on and where it was not read.
    """

    sm: Sm
    name: str
    tegra: bool
    first: Cuda | None
    last: Cuda | None
    dropped_in: Cuda | None
    last_branch: int | None
    exact: tuple[Sm, ...]


@dataclass(frozen=True, slots=True)
class GpuRow(Sourced):
    """One product by the name a person uses; ``datacenter`` is NVIDIA's own sorting, None where it is not clear."""

    name: str
    sm: Sm
    datacenter: bool | None
    tegra: bool
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DriverRow(Sourced):
    """One driver branch.

    ``cuda`` is the newest CUDA it speaks natively, ``first`` and ``latest`` are releases of the branch, ``kind`` is
    NVIDIA's ("LTS", "PB" production, "NFB" new features), ``eol`` its end of life as NVIDIA words it or a day,
    ``max_cuda_major`` the highest CUDA major that NVIDIA's page lists for it without the compat package.
    """

    branch: int
    kind: str | None
    cuda: Cuda | None
    first: Driver | None
    latest: Driver | None
    latest_date: str | None
    eol: str | None
    max_cuda_major: int | None


@dataclass(frozen=True, slots=True)
class CudnnRow(Sourced):
    """One cuDNN release.

    ``wheels`` are the PyPI packages that carry it; ``archs`` and ``ptx`` are by CUDA line ("cu12") and come
    from one library of the x86_64 wheel, so an absent capability there is a hint and a present one a proof.
    ``cuda``, ``min_driver`` and ``capability`` are the words of NVIDIA's support matrix; ``images`` are the
    CUDA versions of nvidia/cuda images that hold it.
    """

    version: Cudnn
    wheels: tuple[str, ...]
    archs: Mapping[str, tuple[Sm, ...]] | None
    ptx: Mapping[str, tuple[Sm, ...]] | None
    cuda: tuple[str, ...] | None
    min_driver: str | None
    capability: str | None
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NcclRow(Sourced):
    """One NCCL release; ``wheels`` are the PyPI packages that carry it, ``released`` is the day of the first one."""

    version: Nccl
    wheels: tuple[str, ...]
    released: str


@dataclass(frozen=True, slots=True)
class TorchNeedRow(Sourced):
    """What the final releases of one package from ``since`` to ``until`` (both included) ask of torch.

    ``torch`` is the specifier of their own METADATA on x86_64 Linux without extras: "" for any torch or none (the note
    says which), None where it depends on the Python.  ``package`` is the canonical name.
    """

    package: str
    since: str
    until: str
    torch: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """The releases from ``since`` to ``until``, both included."""

    since: str
    until: str


@dataclass(frozen=True, slots=True)
class WideNeedRow(Sourced):
    """What the final releases of one package ask of torch and of numpy 2, in runs (first release, last, specifier).

    In ``torch`` "" stands for any, None for no torch, and "*NAME" for one that comes through the package NAME; between
    two runs nobody read.  ``numpy`` has the runs that no numpy 1 is enough for.  ``package`` is the canonical name.
    """

    package: str
    torch: tuple[tuple[str, str, str | None], ...]
    numpy: tuple[tuple[str, str, str], ...]

    @property
    def numpy_runs(self) -> tuple[Run, ...]:
        """The releases that no numpy 1 is enough for."""
        return tuple(Run(since, until) for since, until, _ in self.numpy)

    @property
    def numpy_is_newest(self) -> bool:
        """Whether the newest release that was read is among them."""
        return bool(self.numpy) and (not self.torch or self.torch[-1][1] == self.numpy[-1][1])


@dataclass(frozen=True, slots=True)
class CudaBuildRow(Sourced):
    """The CUDAs for which the wheels of one package from ``since`` to ``until`` (both included) hold a library.

    Of these it loads the one for torch's CUDA at import.  ``match`` is "exact" where none but that will do, and "major"
    where one of the same major does.
    """

    package: str
    since: str
    until: str
    cudas: tuple[Cuda, ...]
    match: str


@dataclass(frozen=True, slots=True)
class ImageRow(Sourced):
    """The tags of one public base image for one CUDA and one OS.

    ``os`` is NVIDIA's label and ``torch`` the release inside, each None where the tag names none.  ``cudnn`` is
    the version in the tags that say cudnn.  ``require_cuda``, ``branches`` and ``brands`` come from the image's
    NVIDIA_REQUIRE_CUDA.  ``retired`` is True when the publisher had moved it to its end-of-life folder on the
    day ``seen``, so that the tag may be gone, and False when it was on the list of supported tags; ``removed`` is
    True where the tag is known to be gone.  ``digests`` are by tag and were not checked against a registry.
    """

    image: str
    cuda: Cuda
    os: str | None
    torch: Torch | None
    tags: tuple[str, ...]
    cudnn: Cudnn | None
    require_cuda: Cuda | None
    branches: tuple[int, ...] | None
    brands: tuple[str, ...] | None
    retired: bool | None
    removed: bool | None
    digests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OsRow(Sourced):
    """One distribution release: ``image`` is its Docker reference, ``python`` the version of its python3 package."""

    name: str
    codename: str
    glibc: Glibc
    python: Python
    image: str


@dataclass(frozen=True, slots=True)
class NgcRow(Sourced):
    """One image of NVIDIA's own PyTorch builds.

    ``torch`` is their version ("X.Y.Za0+commit"), ``driver_min_branch`` the oldest driver branch named for it.
    """

    image: str
    tag: str
    torch: str | None
    cuda: Cuda | None
    cudnn: Cudnn | None
    nccl: Nccl | None
    python: Python | None
    os: str | None
    driver_min_branch: int | None


@dataclass(frozen=True, slots=True)
class ToolkitFaultRow(Sourced):
    """One published vulnerability of the NVIDIA Container Toolkit.

    ``fixed`` is the first version without it; ``by_cdi`` says whether use through CDI is affected too, False where the
    bulletin leaves it out; ``severity`` is the bulletin's word, ``effect`` what an image or a user can do.
    """

    cve: str
    severity: str
    fixed: ContainerToolkit
    by_cdi: bool
    effect: str


@dataclass(frozen=True, slots=True)
class ToolkitRegressionRow(Sourced):
    """What a release of the NVIDIA Container Toolkit broke for some machines.

    ``since`` is the first version with it, ``seen_in`` the newest one that it was reported for, ``fixed`` the first one
    without it, None where no source names one; ``effect`` and ``fix`` are sentences.
    """

    id: str
    since: ContainerToolkit
    seen_in: ContainerToolkit
    fixed: ContainerToolkit | None
    effect: str
    fix: str


@dataclass(frozen=True, slots=True)
class ToolRow(Sourced):
    """Where one debugging tool comes from.

    ``how`` is "wheel", "apt" (the distribution) or "apt-nvidia"; ``cuda_major`` None means any CUDA, ``os`` None any
    system.  ``path`` lies in site-packages for a wheel of NVIDIA, in the environment's bin for others; ``needs`` are
    packages that must come with it, of the same CUDA minor where they name no version; ``given`` is what a stand-in
    package must provide (entries of Debian's Provides) so that the package comes without a driver and without second
    copies of what the wheels bring; ``in_devel_image`` says whether nvidia/cuda devel images hold it.
    """

    tool: str
    how: str
    package: str
    version: str | None
    cuda_major: int | None
    os: str | None
    path: str | None
    needs: tuple[str, ...]
    given: tuple[str, ...]
    in_devel_image: bool | None


@dataclass(frozen=True, slots=True)
class VariantRow(Sourced):
    """One distribution that installs the import package ``root``; two of one root overwrite each other.

    ``gpu`` says whether it is a build that can use NVIDIA GPUs, None where that is not told by the name.
    """

    package: str
    root: str
    gpu: bool | None


@dataclass(frozen=True, slots=True)
class DependencyRow(Sourced):
    """A distribution that torch requires, and what does not work at all without it."""

    package: str
    needed_by: str


@dataclass(frozen=True, slots=True)
class KnownBadRow(Sourced):
    """One combination that version order alone would let pass.

    ``libraries`` maps families ("cublas", "cudnn") to the versions concerned, as specifiers (">=1.2,<1.4"): all must
    hold.  ``sms`` are the GPUs concerned, empty for all; ``gpus_min`` is the number of GPUs from which on it shows.
    ``severity`` is "error" or "warning"; ``what`` happens and ``fix`` are sentences.
    """

    id: str
    libraries: Mapping[str, str]
    sms: tuple[Sm, ...]
    gpus_min: int
    severity: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class XidRow(Sourced):
    """One Xid: the error code that the driver writes to the kernel log.

    ``name`` is the driver's word for it, ``suspect`` who is likely behind it.  ``category`` is what it is about,
    ``severity`` how much one matters ("note", "warning", "error").  ``action`` and ``investigate`` are what NVIDIA's
    catalogue says to do at once and to find the cause, None where it was not read.
    """

    code: int
    name: str
    means: str
    suspect: str
    category: XidCategory
    severity: str
    action: str | None
    investigate: str | None


@dataclass(frozen=True, slots=True)
class CudaErrorRow(Sourced):
    """One code of CUresult and cudaError_t: its names, what it means, what causes it, what fixes it."""

    code: int
    name: str
    runtime_name: str | None
    means: str
    cause: str
    fix: str


@dataclass(frozen=True, slots=True)
class PtxRow(Sourced):
    """One PTX ISA and the first CUDA toolkit that writes it, whose drivers and later ones can compile it."""

    isa: str
    cuda: Cuda


@dataclass(frozen=True, slots=True)
class PeakRow(Sourced):
    """What the datasheet of one GPU promises, each None where no source was read.

    ``names`` are cuDeviceGetName's, whole: a GPU of one chip in another package has another memory and another name.
    ``memory_gbs`` is in GB/s of bytes read and written together, ``pcie_gbs`` and ``nvlink_gbs`` in GB/s of one
    direction, the others in TFLOP/s (int8: Top/s) of dense products that accumulate in fp32 (int8: in int32); ``fp32``
    is without tensor cores, ``fp64`` with them where there are any.
    """

    gpu: str
    names: tuple[str, ...]
    memory_gbs: float | None
    bf16: float | None
    fp16: float | None
    tf32: float | None
    fp8: float | None
    fp32: float | None
    fp64: float | None
    int8: float | None
    pcie_gbs: float | None
    nvlink_gbs: float | None


@dataclass(frozen=True, slots=True)
class GoodRow(Sourced):
    """What a healthy ``gpu`` (of a peak row) reached in one ``measure`` of one smoke test, in the measure's unit."""

    gpu: str
    test: str
    measure: str
    value: float


@dataclass(frozen=True, slots=True)
class LinkRow(Sourced):
    """The least that an all-reduce between healthy nodes reaches, as a ``share`` of what one way between them carries.

    ``way`` is how NCCL's words for it begin.  Of a network it is one port, which the kernel says to have ``gbit`` Gb/s;
    ``gbs`` is the same in GB/s of one direction.  Both are None where the GPU's own peak says it.
    """

    way: str
    gbit: float | None
    gbs: float | None
    share: float


@dataclass(frozen=True, slots=True)
class TorchOldRow(Sourced):
    """One build of a torch release that is too old to be locked, for reading what others wrote.

    The fields mean what they mean in TorchRow.  CPU builds are on the cpu index for every release and have no rows.
    """

    torch: Torch
    variant: str
    cuda: Cuda
    default: bool
    published: bool | None
    released: str
    requires_python: str | None
    pythons: tuple[str, ...] | None
    pypi_aarch64: str | None
    torchvision: tuple[str, ...] | None
    torchaudio: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class OsLifeRow(Sourced):
    """When one distribution release ends.

    ``eol`` is the last day of free security support for everybody (Debian: LTS, Ubuntu: standard support), None where
    no day was announced.  ``moved`` says that its packages left their usual servers, so that an install from a plain
    image fails.  ``python`` is the version of its python3 package, None where there is none or it was not read;
    ``pythons`` are all minor versions that its own archive has as packages, None where that was not read.
    """

    name: str
    codename: str
    python: Python | None
    pythons: tuple[str, ...] | None
    eol: str | None
    moved: bool


@dataclass(frozen=True, slots=True)
class PythonLifeRow(Sourced):
    """The last day of security fixes for one minor version of CPython."""

    python: Python
    eol: str


@dataclass(frozen=True, slots=True)
class ImageEnvRow(Sourced):
    """LD_LIBRARY_PATH of an image from the CUDA ``since`` on, up to the next row of the image."""

    image: str
    since: Cuda
    library_path: str


@dataclass(frozen=True, slots=True)
class PytorchImageRow(Sourced):
    """What a pytorch/pytorch image of one release holds beside torch; None is not read.

    ``gcc`` says whether the runtime images have a C compiler; the devel images always do.
    """

    torch: Torch
    python: Python | None
    os: str | None
    gcc: bool | None


@dataclass(frozen=True, slots=True)
class BaseImageRow(Sourced):
    """What a public image holds, None for what was not read.

    ``image`` is as people write it without a tag, and "OWNER/*" any of an owner's.  The row is of the releases
    ``since`` to ``until``, "" for no last one and both "" for none, and of the tags that are or begin with one of
    ``tags``; a tag that moves is in the row of what it means on the day ``seen``.  A row with a ``word`` is of the tags
    that have it, and goes before one without.  ``python`` is that of the command python where the tag names none, in
    tensorflow/tensorflow that of the tags for Python 3.
    """

    image: str
    since: str
    until: str
    tags: tuple[str, ...]
    word: str
    os: str | None
    python: Python | None
    cuda: Cuda | None
    torch: Torch | None
    compiler: bool | None


@dataclass(frozen=True, slots=True)
class RefusedRow(Sourced):
    """A name on PyPI whose ``newest`` release ends in an error on purpose; ``instead`` is what people mean by it.

    ``newest`` is "" where the name has no file at all; ``allowed_by`` is the variable that installs it all the same.
    """

    name: str
    newest: str
    why: str
    instead: str
    allowed_by: str


@dataclass(frozen=True, slots=True)
class LastReleaseRow(Sourced):
    """The last ``release`` of a package that has a wheel for a ``python`` which has ended ("A.B")."""

    name: str
    python: str
    release: str


@dataclass(frozen=True, slots=True)
class WheelPythonRow(Sourced):
    """The Pythons ("A.B") that the final releases of one package from ``since`` to ``until`` (both included) have
    wheels for on x86_64 Linux; none of these releases has a source that could be built in their stead."""

    package: str
    since: str
    until: str
    pythons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NeedsPythonRow(Sourced):
    """Which Pythons the files of one package's final releases from ``since`` to ``until`` (both included) ask for
    (Requires-Python)."""

    package: str
    since: str
    until: str
    requires: str


@dataclass(frozen=True, slots=True)
class RequireRow(Sourced):
    """Which releases of others the final releases of one package from ``since`` to ``until`` (both included) ask for:
    specifiers by canonical name, of x86_64 Linux without extras and as far as they are the same for each Python."""

    package: str
    since: str
    until: str
    requires: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NvidiaNeedRow(Sourced):
    """Which releases of NVIDIA's wheels (nvidia-cudnn-cu12, ...) the final releases of one package from ``since`` to
    ``until`` (both included) ask for with one of ``extras`` ("" for none), what these bring along included: specifiers
    by canonical name, of x86_64 Linux and as far as they are the same for each Python."""

    package: str
    since: str
    until: str
    extras: tuple[str, ...]
    requires: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InstallerRow(Sourced):
    """What the newest release of an installer ``needs`` ("python", "glibc", or "terms" to accept), and the ``least``
    version of it."""

    name: str
    needs: str
    least: str


@dataclass(frozen=True, slots=True)
class SdistRow(Sourced):
    """A package whose sources up to the release ``until`` ("" for all) cannot be built apart from the installed
    packages, because what they ``lacks`` is not among what such a build gets.

    ``on_index`` is False where the package index has another project of that name, or none; with ``wheels`` it has
    wheels too, which are taken unless a source is asked for.  ``apart`` says that they hold a pyproject.toml, so that
    each pip builds them so.  ``commits`` are those of addresses that lack it, ``beside`` what else they import.
    """

    name: str
    until: str
    lacks: str
    on_index: bool
    wheels: bool
    apart: bool
    commits: tuple[str, ...]
    beside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetadataRefusedRow(Sourced):
    """The releases of a package from ``since`` to ``until`` (both included) whose metadata the newest pip refuses."""

    name: str
    since: str
    until: str


@dataclass(frozen=True, slots=True)
class TorchAbiRow(Sourced):
    """The wheels of torch from ``torch`` on take releases of the package from ``since`` on; older ones do not."""

    package: str
    since: str
    torch: Torch


@dataclass(frozen=True, slots=True)
class MilestoneRow(Sourced):
    """The first ``release`` of something that is otherwise, or a number of days, by a name of ours."""

    name: str
    release: str


@dataclass(frozen=True, slots=True)
class GlibcOnlyRow(Sourced):
    """A package of which the index has no source, and no wheel for a system with musl, such as Alpine."""

    name: str


@dataclass(frozen=True, slots=True)
class SourcePythonRow(Sourced):
    """The oldest ``python`` that the newest source of a package asks for, and its ``repository`` ("owner/name")."""

    package: str
    repository: str
    python: Python


@dataclass(frozen=True, slots=True)
class WheelPageRow(Sourced):
    """A page of wheels, by the beginning of its address, that has none of ``package`` for a torch newer than
    ``torch``, whose release stands in the address behind ``before``; ``on_index`` says that an index has its source."""

    package: str
    page: str
    before: str
    torch: Torch
    on_index: bool


@dataclass(frozen=True, slots=True)
class SourceArchRow(Sourced):
    """The oldest architecture that the sources of a package from ``since`` to ``until`` (both included) are compiled
    for, whichever the toolkit."""

    package: str
    since: str
    until: str
    arch: Sm


@dataclass(frozen=True, slots=True)
class PackageArchRow(Sourced):
    """The architectures that the kernels in the wheels of a package from ``since`` to ``until`` (both included) were
    compiled for, and the ones whose PTX is in them."""

    package: str
    since: str
    until: str
    archs: tuple[Sm, ...]
    ptx: tuple[Sm, ...]


@dataclass(frozen=True, slots=True)
class AptKeyRow(Sourced):
    """An image whose tags with the word ``tag``, up to the release ``until``, know NVIDIA's archive by its old key.

    The releases ``later`` are older by their number alone: they were made when the key was another one.
    """

    image: str
    tag: str
    until: str
    later: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CudaOldRow(Sourced):
    """What the assembler of one old CUDA minor can target; ``releases`` are all toolkits of the minor, ``driver`` is
    the oldest Linux driver for its first one, each None where it was not read."""

    version: Cuda
    archs: tuple[Sm, ...]
    releases: tuple[Cuda, ...] | None
    driver: Driver | None
    driver_source: str


@dataclass(frozen=True, slots=True)
class GpuPackageRow(Sourced):
    """What one Python package wants of CUDA, for its versions from ``since`` to ``until`` (each "" for open, both
    included; "A.B" as ``until`` includes every A.B.C).

    ``build`` is "wheel" (compiled files come with it), "source" (its installation compiles) or "jit" (it compiles while
    it runs).  ``nvcc`` and ``compiler`` say what that needs, ``cuda`` and ``cudnn`` are the versions or majors it was
    built for; ``own`` says whether it brings or requires CUDA libraries as wheels, so that the image needs none.
    """

    name: str
    since: str
    until: str
    build: str
    nvcc: bool
    compiler: bool
    cuda: str | None
    cudnn: str | None
    own: bool | None


@dataclass(frozen=True, slots=True)
class PackageBuildRow(Sourced):
    """What decides whether installing one Python package compiles CUDA code, whichever its version.

    ``repository`` is the name of its repository in small letters where that is another ("" else); with
    ``repository_only`` nothing is compiled but out of that.  ``torch`` says that it is compiled against torch's
    headers.  ``asked_by`` are options and environment variables (``*`` at the end for all that begin so) of which one
    turns CUDA on, empty where it is on; ``needs_gpu`` says that setup.py turns it on where torch finds a GPU, or under
    FORCE_CUDA.  ``ready_made`` says where compiled files may come from in its stead: "index", "release" (setup.py looks
    among those of its repository, unless ``forced_by`` is set), or "".  Under the variable ``skipped_by``, or where it
    has the value behind its "=", no CUDA code is compiled.  Without the variable ``arch_list`` it needs a GPU.
    """

    name: str
    repository: str
    repository_only: bool
    torch: bool
    asked_by: tuple[str, ...]
    needs_gpu: bool
    ready_made: str
    forced_by: str
    skipped_by: str
    arch_list: str


_VERSIONS = (ContainerToolkit, Cuda, Cudnn, Driver, Glibc, Nccl, Python, Torch)
_FROM_TEXT: dict[type, Callable[[str], object]] = {Sm: cache(Sm.parse), **{kind: cache(kind) for kind in _VERSIONS}}


def _version(kind: type, text: object) -> object:
    """A value of a type that msgspec does not know, which is a version."""
    if not isinstance(text, str):
        raise ValueError(f"`{text}` is not a str")
    return _FROM_TEXT[kind](text)


def read_table(kind: type[Row], path: Path) -> tuple[Row, ...]:
    """The rows of the JSON Lines file at ``path``, in its order.

    Raises ValueError, naming file and line, when a row lacks a field, has one too many or one of the wrong
    kind: a table that does not fit must stop the program, not turn into defaults.
    """
    text = path.read_bytes()
    with suppress(ValueError, msgspec.DecodeError):  # one that does not fit is read again, for the number of its line
        return _at_once(kind, text)
    rows = []
    for number, line in enumerate(text.decode("utf-8").splitlines(), 1):
        try:
            rows.append(read_line(kind, line))
        except (ValueError, msgspec.DecodeError) as error:
            raise ValueError(f"{path.name}:{number}: {error}") from error
    return tuple(rows)


_wanted = cache(columns)
_LINES = msgspec.json.Decoder(dict[str, Any])


def _at_once(kind: type[Row], text: bytes) -> tuple[Row, ...]:
    """All rows of a table, which takes two thirds of the time that they take one by one."""
    lines, wanted = _LINES.decode_lines(text), set(_wanted(kind))
    if any(line.keys() != wanted for line in lines) or len(lines) != text.count(b"\n"):
        raise ValueError("a row lacks a field, has one too many, or is none")
    return tuple(msgspec.convert(lines, list[kind], dec_hook=_version))  # type: ignore[valid-type]


def read_line(kind: type[Row], line: str) -> Row:
    """The row of one line; raises ValueError or msgspec.DecodeError where it does not fit the row's type."""
    data, wanted = msgspec.json.decode(line, type=dict[str, Any]), _wanted(kind)
    if data.keys() != set(wanted):
        raise ValueError(f"its fields are {', '.join(data)}, expected {', '.join(wanted)}")
    return msgspec.convert(data, kind, dec_hook=_version)


_once = cache(read_table)


def read_table_once(kind: type[Row], path: Path) -> tuple[Row, ...]:
    """``read_table`` of a file that comes with envkit, which is read at the first call alone."""
    return _once(kind, path)
