"""What is asked of the packages beside torch that use CUDA: whether they come up, for which torch, and on what."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from envkit.facts import Facts
from envkit.judging.checks._outcomes import error, or_unknown, skip_if, unknown_if, warning
from envkit.judging.checks._torch import evidence_of, path_and_version, torch_ended
from envkit.model import Finding, Severity
from envkit.subjects import Image
from envkit.subjects.audit import Audit
from envkit.subjects.image import Framework, Library, TorchBuild
from envkit.subjects.imported import ImportState
from envkit.versions import Cuda

# built against torch's own headers, so that they share its CUDA; the others bring theirs
_ON_TORCH = ("torchvision", "torchaudio", "xformers", "flash-attn", "vllm", "deepspeed", "bitsandbytes")
_OPENMP = ("gomp", "iomp5", "omp")
# How an import ends where there is no GPU or no driver, in the words of who says it.
_NO_GPU = re.compile(
    r"\b0 active drivers"  # Triton, driver.py: _create_driver
    r"|Found no NVIDIA driver|No CUDA GPUs are available"  # torch, CUDAFunctions.cpp and torch/cuda/__init__.py
    r"|no CUDA-capable device is detected|CUDA driver version is insufficient for CUDA runtime version"  # CUDA Runtime
    r"|cudaError(?:NoDevice|InsufficientDriver)\b|CUDA_ERROR_NO_DEVICE\b"  # CuPy names the codes
    r"|lib(?:cuda|nvidia-ml|nvcuvid|nvidia-encode)\.so(?:\.1)?:? (?:cannot open shared object file|cannot found)"
    r"|NVML Shared Library Not Found|NVML_ERROR_LIBRARY_NOT_FOUND|NVMLError_(?:LibraryNotFound|DriverNotLoaded)"  # NVML
    r"|Failed to infer device type"  # vLLM, config.py
    r"|No GPU found\. A GPU is needed"  # bitsandbytes and transformers, quantization
    r"|(?:could not|cannot|unable to) find (?:any )?(?:CUDA|NVIDIA) (?:drivers?|devices?)\b",
    re.IGNORECASE,
)


def _frameworks(image: Image) -> tuple[Framework, ...]:
    found = image.frameworks.need("the imported frameworks")
    skip_if(not found, "no package beside torch that uses CUDA is installed")
    return found


def _called(one: Framework) -> str:
    return f"{one.name} {one.version}"


def _torch(image: Image) -> TorchBuild:
    """What torch says of its build; raises Skip where there is no torch at all."""
    skip_if(torch_ended(image).state is ImportState.ABSENT, "there is no torch here")
    return image.torch.need("torch's build")


def image_frameworks_twice(image: Image | Audit, facts: Facts) -> Iterator[Finding]:
    """No two installed distributions bring the same import package."""
    installed = {wheel.name: wheel.version for wheel in image.wheels.need("the installed distributions")}
    roots: dict[str, list[str]] = {}
    for row in facts.variants:
        if row.package in installed:
            roots.setdefault(row.root, []).append(row.package)
    skip_if(not roots, "no package of which there are several builds is installed")
    for root, packages in sorted(roots.items()):
        if len(packages) < 2:
            continue
        names = [f"{name} {installed[name]}" for name in sorted(packages)]
        yield error(
            f"{' and '.join(names)} are installed and both bring the package {root}: the one installed last wins",
            root,
            dict.fromkeys((name.replace(" ", "==") for name in names), image.wheels.via),
            f"remove all of them, then install the one you want: pip uninstall {' '.join(sorted(packages))}",
        )


def image_framework_broken(image: Image) -> Iterator[Finding]:
    """Each installed package that uses CUDA or torch can be imported after torch."""
    alone = not image.gpus_given and not image.devices.value
    waiting: list[str] = []
    for one in _frameworks(image):
        ended = " ".join(one.ended.split())
        if ended == "done":
            continue
        unknown_if(not ended, f"how import {one.name} ended was not observed")
        if alone and _NO_GPU.search(ended):
            waiting.append(f"import {one.name} {ended}")
            continue
        built = f", which says it is built for torch {one.built_torch}" if one.built_torch else ""
        yield error(
            f"import {one.name} {ended} ({_called(one)}{built})",
            one.name,
            {ended: image.frameworks.via},
            f"install a {one.name} that is built for the torch that is here, with all that it requires",
        )
    unknown_if(waiting, f"no GPU was given to this run, and {'; '.join(waiting)}: give it one with --gpus")


def _release(text: str) -> tuple[int, ...] | None:
    try:
        return Version(text.partition("+")[0]).release
    except InvalidVersion:
        return None


def image_framework_built_for_other_torch(image: Image) -> Iterator[Finding]:
    """What is built against torch is built for the release that is here and for its CUDA major."""
    frameworks = _frameworks(image)
    build = _torch(image)
    has = or_unknown(_release(build.version), f"torch says it is `{build.version}`, which is no version")
    judged = False
    for one in frameworks:
        if one.name not in _ON_TORCH:
            continue
        wanted = _release(one.built_torch) if one.built_torch else None
        judged = judged or wanted is not None or bool(one.built_cuda)
        evidence = {one.built_torch or one.built_cuda: one.built_via, build.version: "torch.__version__"}
        fix = f"install the {one.name} that is made for torch {build.version}"
        if wanted is not None and wanted != has[: len(wanted)]:
            yield Finding(
                f"{_called(one)} is built for torch {one.built_torch} and torch {build.version} is here",
                Severity.ERROR if wanted[:2] != has[:2] else Severity.WARNING,
                one.name,
                evidence,
                fix,
            )
        elif one.built_cuda and build.cuda and _major(one.built_cuda) != Cuda(build.cuda).major:
            yield error(
                f"{_called(one)} is built for CUDA {one.built_cuda} and torch {build.version} for CUDA {build.cuda}",
                one.name,
                {one.built_cuda: one.built_via, build.cuda: "torch.version.cuda"},
                fix,
            )
    skip_if(not judged, "no package that is built against torch says for which one")


def _major(cuda: str) -> int:
    return int(or_unknown(re.match(r"\d+", cuda), f"`{cuda}` is no CUDA version")[0])


def image_framework_without_gpu(image: Image) -> Iterator[Finding]:
    """In an image whose torch uses GPUs, no other package is a build for the CPU.

    Each falls back to the CPU without a message.
    """
    frameworks = _frameworks(image)
    build = _torch(image)
    skip_if(not build.cuda, f"torch {build.version} is built without CUDA")
    said = [one for one in frameworks if one.gpu]
    skip_if(not said, "no package beside torch says whether it can use GPUs")
    for one in said:
        if one.gpu == "no":
            yield warning(
                f"{_called(one)} is a build for the CPU, and torch {build.version} is built for CUDA {build.cuda}",
                one.name,
                {f"{one.name}: no GPU": one.built_via or image.frameworks.via, build.cuda: "torch.version.cuda"},
                f"install the build of {one.name} for NVIDIA GPUs, if this image means to run it on one",
            )


def _first(library: Library) -> str:
    return library.version.partition(".")[0]


def image_framework_library_clash(image: Image) -> Iterator[Finding]:
    """No package's import brings a second copy of a CUDA library that torch has mapped."""
    frameworks = _frameworks(image)
    _torch(image)
    torchs = image.libraries.need("the mapped libraries")
    judged = False
    for one in frameworks:
        judged = judged or one.ended == "done"
        for lib in one.libraries:
            mine = [other for other in torchs if other.name == lib.name and other.path != lib.path]
            if not mine or lib.name in _OPENMP:
                continue
            same = any(other.soname == lib.soname for other in mine)
            alike = any(_first(other) == _first(lib) != "" for other in mine)
            yield Finding(
                f"import {one.name} maps {lib.name} from {path_and_version(lib)} beside torch's "
                f"{path_and_version(mine[0])}",
                Severity.ERROR if same else Severity.NOTE if alike else Severity.WARNING,
                lib.path,
                evidence_of([lib, *mine]),
                f"install the {one.name} that is made for torch's CUDA, or run the two in processes of their own",
            )
    unknown_if(not judged, "no package beside torch could be imported, so that nothing is known of what they map")
