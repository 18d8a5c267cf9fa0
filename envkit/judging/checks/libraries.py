"""What is asked of the libraries that a process really binds: whose they are, whether they fit one another."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envkit.facts import Facts, KnownBadRow
from envkit.judging.checks import _torch
from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.model import Finding, Reason, Severity, Unknown
from envkit.subjects import Image
from envkit.subjects.image import Library
from envkit.subjects.imported import ImportState
from envkit.versions import Sm

# family: how the names of the wheels begin that bring it; "-cuNN" may follow
_WHEELS = {
    "cudart": "nvidia-cuda-runtime", "cublas": "nvidia-cublas", "cublasLt": "nvidia-cublas", "cudnn": "nvidia-cudnn",
    "cudnn_graph": "nvidia-cudnn", "cufft": "nvidia-cufft", "cufile": "nvidia-cufile", "cupti": "nvidia-cuda-cupti",
    "curand": "nvidia-curand", "cusolver": "nvidia-cusolver", "cusparse": "nvidia-cusparse",
    "cusparseLt": "nvidia-cusparselt", "nccl": "nvidia-nccl", "nvjitlink": "nvidia-nvjitlink",
    "nvrtc": "nvidia-cuda-nvrtc", "nvshmem_host": "nvidia-nvshmem",
}  # fmt: skip


def _name(wanted: Requirement) -> str:
    return re.sub(r"[-_.]+", "-", wanted.name).lower()


def _required(image: Image) -> dict[str, tuple[str, Requirement]]:
    """The requirement for each library family that torch's METADATA asks for, with who asks.

    Raises Skip where it asks for none of NVIDIA's wheels: torch was then built to take the system's libraries.
    """
    found: dict[str, tuple[str, Requirement]] = {}
    for by, wanted in _torch.requirements_of(image):
        for family, begins in _WHEELS.items():
            if re.fullmatch(re.escape(begins) + r"(?:-cu\d+)?", _name(wanted)):
                found[family] = (by, wanted)
    skip_if(not found, "torch's METADATA asks for none of NVIDIA's wheels: it takes the system's libraries")
    return found


def image_library_from_elsewhere(image: Image) -> Iterator[Finding]:
    """What torch binds of each CUDA library comes from the wheel that its METADATA asks for."""
    build = _torch.cuda_build(image)
    required = _required(image)
    mapped = image.libraries.need("the mapped libraries")
    image.bindings.need("what torch binds")
    judged = False
    for family, (by, wanted) in required.items():
        name = _name(wanted)
        wheel = _torch.wheel_of(image, name)
        if wheel is None or not any(lib.name == family for lib in mapped):
            continue  # a missing wheel is a finding of image-torch-requirement-not-met
        judged = True
        for copy in _torch.bound_copies(image, family):
            if copy.owner == name:
                continue
            callers = [one.caller for one in _torch.torchs_bindings(image, family) if one.path == copy.path]
            yield error(
                f"{by} requires {name}, of which {wheel.version} is installed, and "
                f"{callers[0] if callers else 'torch'} binds {family} from {copy.path}, {_whose(copy)}",
                copy.path,
                {**_torch.evidence_of([copy]), f"{name}{wanted.specifier}": f"Requires-Dist of {by}"},
                _torch.OWN_WHEEL,
            )
    unknown_if(not judged, f"torch {build.version} asks for wheels of NVIDIA's and none of their libraries is mapped")


def _whose(library: Library) -> str:
    return f"a file of {library.owner} {library.owner_version}" if library.owner else "which no installed wheel lists"


def _numbers(version: str) -> tuple[int, int]:
    parts = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return parts[0], parts[1] if len(parts) > 1 else 0


# by checks of their own, CUPTI by none; libcublas says the version of the libcublasLt that it binds
_JUDGED_APART = ("cudart", "cudnn", "cudnn_graph", "nccl", "cupti", "cublas")


def image_library_older_than_pinned(image: Image) -> Iterator[Finding]:
    """Each library that torch binds is of the major that torch's METADATA pins and of no older minor."""
    _torch.cuda_build(image)
    required = _required(image)
    image.libraries.need("the mapped libraries")
    judged = False
    for family, (by, wanted) in required.items():
        pins = [one.version.removesuffix(".*") for one in wanted.specifier if one.operator == "=="]
        if family in _JUDGED_APART or not pins:
            continue
        for copy in _torch.bound_copies(image, family):
            unknown_if(not copy.version, f"{copy.path} says no version: {copy.version_via}")
            judged = True
            has, least = _numbers(copy.version), _numbers(pins[0])
            if has[0] == least[0] and has >= least:
                continue
            yield warning(
                f"{by} requires {_name(wanted)} {pins[0]} and binds {family} {copy.version} from {copy.path}, "
                + ("another major" if has[0] != least[0] else "an older minor"),
                copy.path,
                {**_torch.evidence_of([copy]), f"{_name(wanted)}{wanted.specifier}": f"Requires-Dist of {by}"},
                _torch.OWN_WHEEL,
            )
    skip_if(not judged, "torch's METADATA pins no library that says its version and is mapped")


def image_cublas_mismatch(image: Image) -> Iterator[Finding]:
    """libcublas and the libcublasLt that it binds are of one release and lie in one directory."""
    _torch.cuda_build(image)
    mains, every = _torch.bound_copies(image, "cublas"), image.mapped("cublasLt")
    skip_if(not mains or not every, "no cuBLAS is mapped: torch links it statically, or does not use it")
    for main in mains:
        caller = posixpath.basename(main.path)
        paths = {one.path for one in image.bindings.value or () if one.name == "cublasLt" and one.caller == caller}
        paths |= {one.path for one in _torch.torchs_bindings(image, "cublasLt")}
        for light in [copy for copy in every if copy.path in paths] or every:
            # libcublas says the version of the libcublasLt that it binds (reproduced), so that its wheel speaks for it.
            has, works_with = main.owner_version or main.version, light.version or light.owner_version
            unknown_if(not has or not works_with, f"{main.path} or {light.path} says no version and no wheel owns it")
            same_directory = posixpath.dirname(main.path) == posixpath.dirname(light.path)
            if same_directory and has.split(".")[:3] == works_with.split(".")[:3]:
                continue
            yield error(
                f"libcublas {has} from {main.path} uses libcublasLt {works_with} from {light.path}",
                light.path,
                _torch.evidence_of((main, light)),
                _torch.OWN_WHEEL,
            )


def image_nvrtc_builtins_mismatch(image: Image) -> Iterator[Finding]:
    """Beside the bound libnvrtc lies libnvrtc-builtins of its own version, and no other one is mapped."""
    _torch.cuda_build(image)
    copies = _torch.bound_copies(image, "nvrtc")
    skip_if(not copies, "no NVRTC is mapped")
    mapped = image.mapped("nvrtc-builtins")
    for copy in copies:
        unknown_if(not copy.version, f"{copy.path} says no version: {copy.version_via}")
        directory, wanted = posixpath.dirname(copy.path), f"libnvrtc-builtins.so.{copy.version}"
        for other in mapped:
            if posixpath.basename(other.path).startswith(wanted) and posixpath.dirname(other.path) == directory:
                continue
            yield error(
                f"libnvrtc {copy.version} from {copy.path} meets {other.path}, and asks for {wanted} beside it",
                other.path,
                _torch.evidence_of([copy, other]),
                _torch.OWN_WHEEL,
            )
        if mapped:
            continue
        unknown_if(not copy.owner, f"no libnvrtc-builtins is mapped, and no wheel lists what lies beside {copy.path}")
        beside = [
            lib
            for lib in image.unmapped.need("the libraries that were not mapped")
            if lib.name == "nvrtc-builtins" and posixpath.dirname(lib.path) == directory
        ]
        if not any(posixpath.basename(lib.path).startswith(wanted) for lib in beside):
            found = " and ".join(posixpath.basename(lib.path) for lib in beside) or "none"
            yield error(
                f"libnvrtc {copy.version} from {copy.path} needs {wanted}, and beside it is {found}",
                copy.path,
                _torch.evidence_of([copy, *beside]),
                "install the NVRTC wheel that torch requires again; " + _torch.REINSTALL,
            )


def image_cudnn_incomplete(image: Image) -> Iterator[Finding]:
    """The directory of the cuDNN in use holds every library that cuDNN's own libraries open by name."""
    sets = image.cudnn.need("what cuDNN's libraries refer to")
    mapped = image.mapped("cudnn") if not image.libraries.missing else ()
    skip_if(not mapped and not sets, "there is no cuDNN here")
    used = {posixpath.dirname(lib.path) for lib in mapped}
    if used - {one.directory for one in sets}:
        raise Unknown(f"the directory {min(used - {one.directory for one in sets})} of the mapped cuDNN was not read")
    for one in sets:
        if used and one.directory not in used:
            continue
        if not one.referenced:
            raise Unknown(
                f"the cuDNN in {one.directory} refers to no other library of its own, so its files could not be read"
            )
        if one.missing:
            brought = f"{one.owner} {one.owner_version}" if one.owner else f"the cuDNN in {one.directory}"
            yield error(
                f"{brought} opens {' and '.join(one.missing)} and does not bring it: any copy on the system is taken",
                one.directory,
                dict.fromkeys(one.missing, image.cudnn.via),
                "install a release of the cuDNN wheel that is complete, and keep other cuDNN out of the image",
            )


_KEYS = ("torch", "cudnn-build")


def _versions(image: Image, key: str) -> list[tuple[str, str]]:
    """The versions that ``key`` of a known-bad row means, each with where it was seen; empty if there is none."""
    if key in _KEYS:
        build = image.torch.need("torch's build")
        if key == "torch":
            return [(build.version.partition("+")[0], "torch.__version__")]
        unit = 10000 if build.cudnn >= 90000 else 1000
        text = f"{build.cudnn // unit}.{build.cudnn % unit // 100}.{build.cudnn % 100}"
        return [(text, "torch._C._cudnn.getCompileVersion")] if build.cudnn else []
    copies = _torch.bound_copies(image, key)
    if copies:
        return [(lib.version or lib.owner_version, lib.path) for lib in copies if lib.version or lib.owner_version]
    wheel = _torch.wheel_of(image, key)
    return [(wheel.version, wheel.name)] if wheel else []


def _hit(image: Image, row: KnownBadRow) -> dict[str, str] | None:
    """What of the image fits all the row's versions, with where it was seen; None if one does not fit."""
    found: dict[str, str] = {}
    for key, specifier in row.libraries.items():
        fitting = [
            (f"{key} {version}", where)
            for version, where in _versions(image, key)
            if SpecifierSet(specifier).contains(_version(version, key), prereleases=True)
        ]
        if not fitting:
            return None
        found.update(fitting)
    return found


def _version(text: str, key: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise Unknown(f"{key} says it is `{text}`, which is no version") from None


def _gpus(image: Image) -> tuple[Sm, ...]:
    """The GPUs declared and present; raises Unknown where neither is known."""
    declared = () if image.promise.reason is Reason.NO_PROMISE else image.promise.need("the image's promise").gpus
    here = image.devices.value or () if declared else image.devices.need("the devices at hand")
    return (*declared, *here)


def image_known_bad_combination(image: Image, facts: Facts) -> Iterator[Finding]:
    """The versions in use are no combination that is known to fail although each is new enough.

    A row for certain GPUs, or for several, asks for those that are declared or present.
    """
    ended = _torch.torch_ended(image)
    unknown_if(ended.state is not ImportState.DONE, f"import torch {ended}, so that what it binds was not seen")
    _torch.cuda_build(image)
    if not image.libraries.need("the mapped libraries"):
        raise Unknown("torch was imported and none of its libraries is mapped")
    open_rows: list[str] = []
    for row in facts.known_bad:
        found = _hit(image, row)
        if found is None:
            continue
        try:
            gpus = _gpus(image) if row.sms or row.gpus_min > 1 else ()
        except Unknown as unknown:
            open_rows.append(f"{row.id}: {unknown}")
            continue
        concerned = [gpu for gpu in gpus if gpu in row.sms]
        if (row.sms and not concerned) or (row.gpus_min > 1 and len(image.devices.value or ()) < row.gpus_min):
            continue
        on = f" on {' and '.join(map(str, sorted(set(concerned))))}" if concerned else ""
        yield Finding(
            f"{' with '.join(found)}{on}: {row.what}",
            Severity[row.severity.upper()],
            next(iter(found.values())),
            {**found, row.id: row.source},
            row.fix,
        )
    unknown_if(open_rows, "; ".join(open_rows))


def image_cupti_crashes(image: Image) -> Iterator[Finding]:
    """CUPTI, on which torch's profiler stands, answers where there is a driver."""
    _torch.cuda_build(image)
    copies = image.mapped("cupti")
    skip_if(not copies, "no CUPTI is mapped: torch links it statically, or does not use it")
    for copy in copies:
        skip_if("was not called" in copy.version_via, f"{copy.version_via}")
        if not copy.version and ("was killed" in copy.version_via or "did not end" in copy.version_via):
            yield warning(
                f"CUPTI from {copy.path} crashes when it is asked for its version: {copy.version_via}",
                copy.path,
                _torch.evidence_of([copy]),
                "install the CUPTI wheel that torch requires, or a driver that is new enough for it; without it "
                "torch.profiler dies in the same way",
            )
        elif not copy.version:
            raise Unknown(f"{copy.path} says no version: {copy.version_via}")


_OPENMP = {"gomp": "GNU's libgomp", "iomp5": "Intel's libiomp5", "omp": "LLVM's libomp"}


def image_openmp_twice(image: Image) -> Iterator[Finding]:
    """No process maps the OpenMP runtimes of two makers."""
    ended = _torch.torch_ended(image)
    mapped = image.libraries.need("the mapped libraries")
    unknown_if(ended.state is ImportState.DONE and not mapped, "torch was imported and none of its libraries is mapped")
    torchs = [lib for lib in mapped if lib.name in _OPENMP]
    told = list(_two_makers("import torch", torchs))
    yield from told
    for one in image.frameworks.need("the imported frameworks") if not told else ():
        more = [lib for lib in one.libraries if lib.name in _OPENMP]
        if more:
            yield from _two_makers(f"import torch, {one.name}", [*torchs, *more])
    unknown_if(ended.state is not ImportState.DONE, f"import torch {ended}, so that not all libraries were mapped")


def _two_makers(what: str, mapped: list[Library]) -> Iterator[Finding]:
    first = {lib.name: lib for lib in reversed(mapped)}
    if len(first) > 1:
        both = " and ".join(f"{_OPENMP[name]} from {lib.path}" for name, lib in sorted(first.items()))
        yield warning(
            f"{what} maps two OpenMP runtimes: {both}",
            mapped[-1].path,
            {lib.path: f"{lib.found_via}; {_torch.release_of(lib)}" for lib in mapped},
            "use packages with one runtime, and do not mix conda's and pip's; KMP_DUPLICATE_LIB_OK hides the message "
            "and leaves the fault",
        )
