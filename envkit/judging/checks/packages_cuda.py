"""What is asked of the CUDA that the packages of a list want: one major, and torch's own pins."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts, TorchOldRow, TorchRow
from envkit.judging.checks._outcomes import error, found, skip_if
from envkit.judging.checks._packages import need_release, need_torch, sure
from envkit.judging.checks._torch_fit import build_of, cited, default_build
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects.dockerfile import Install
from envkit.subjects.packages import Packages

# Wheels of NVIDIA's whose files have the same names for every CUDA major, so that the one installed last stays.
_SAME_FILES = ("nvidia-cudnn", "nvidia-nccl", "nvidia-nvshmem", "nvidia-cusparselt")
_SUFFIX = re.compile(r"(.+?)-cu(?:da)?([0-9]{2})(?:[0-9]|x)?\Z")
_EXTRA = re.compile(r"cuda([0-9]{2})(?:-|_|\Z)")
_CONDA = re.compile(r"cudatoolkit|cuda-toolkit|cuda-version|cuda-runtime|cuda")  # conda's CUDA, not that of torch
_PINNED = re.compile(r"triton|nvidia-(?:cudnn|nccl)-cu[0-9]{2}")  # by torch's own wheel
_FRAMEWORKS = ("onnxruntime-gpu", "tensorflow", "tensorflow-gpu", "ctranslate2", "paddlepaddle-gpu", "faster-whisper")


def _major(one: Install, facts: Facts) -> tuple[str, str]:
    """The CUDA major that a package is for and how that is known, ("", "") where nothing says so."""
    if one.manager == "conda":
        found_here = re.match(r"=*\s*([0-9]+)", one.specifier) if _CONDA.fullmatch(one.name) else None
        return (found_here[1], f"{one.name}{one.specifier}") if found_here else ("", "")
    named = _SUFFIX.fullmatch(one.name)
    if named:
        return named[2], f"the name {one.name}"
    if one.name == "jax":
        extra = next((match for extra in one.extras if (match := _EXTRA.match(extra))), None)
        return (extra[1], f"the extra {extra[0]}") if extra else ("", "")
    if one.name in _FRAMEWORKS and one.version and not (one.index or one.extra_indexes or one.find_links):
        row = facts.gpu_package(one.name, one.version)
        if row is not None and row.cuda:
            return row.cuda.split(".")[0], cited(row)
    return "", ""


def packages_cuda_mixed(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """No package is for another CUDA major than torch."""
    listed = [(one, *_major(one, facts)) for one in sure(packages) if not one.constraint]
    named = [(one, major, why) for one, major, why in listed if major]
    skip_if(not named, "no package but torch is for one CUDA major")
    torch = need_torch(packages)
    skip_if(not torch.cuda.missing and torch.cuda.value == "cpu", "the torch is a build for the CPU")
    cuda = torch.cuda.need("the CUDA of torch")
    wanted = cuda.split(".")[0]
    for one, major, why in named:
        if major == wanted:
            continue
        clash = _overwrites(one, torch.version.value or "", cuda, facts)
        yield found(
            f"{one.name} is for CUDA {major} and torch {torch.version.value or ''} for CUDA {cuda}".replace("  ", " ")
            + (", and its packages for both majors put files of the same names in one folder" if clash else ""),
            one.span,
            Severity.ERROR if clash else Severity.WARNING,
            f"remove it: torch brings its own for CUDA {wanted}"
            if one.name.startswith("nvidia-")
            else f"take its build for CUDA {wanted}, or a torch for CUDA {major}",
            {f"CUDA {major}": f"{one.span.place}, {why}", f"CUDA {cuda}": torch.cuda.via},
        )


def _overwrites(one: Install, version: str, cuda: str, facts: Facts) -> bool:
    """Whether the wheel has files of the same names as the one that torch's default wheel requires."""
    row = build_of(version, cuda, facts)
    if not isinstance(row, TorchRow) or not row.default or not one.name.startswith(_SAME_FILES):
        return False
    if one.name.startswith("nvidia-cudnn"):  # libcudnn.so carries the major
        return row.cudnn is not None and one.version.split(".")[0] == str(row.cudnn.major)
    return True


def packages_nvidia_pin_conflict(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """What is pinned of cuDNN, NCCL and triton is what torch's wheel pins itself; pip refuses two exact versions."""
    skip_if(packages.is_lock, "a lock was solved, so its pins agree")
    pinned = [one for one in sure(packages) if one.version and not one.url and _PINNED.fullmatch(one.name)]
    skip_if(not pinned, "no library that torch pins is pinned here")
    torch = need_torch(packages)
    version = need_release(torch, "the installer takes one that fits the pins")
    row = default_build(version, facts)
    skip_if(torch.method == "conda", "conda's torch takes its libraries from conda")
    if isinstance(row, TorchOldRow):
        raise Skip("the pins of releases that old are not recorded")
    if row is None:
        raise Unknown(f"the facts do not say what torch {version} pins")
    if torch.cuda.missing or torch.cuda.value != str(row.cuda):
        raise Unknown(f"what the build of torch {version} for CUDA {torch.cuda.value or '?'} pins was not read")
    for one in pinned:
        wanted = _pin_of(one.name, row)
        if not wanted or wanted == one.version:
            continue
        yield error(
            f"{one.name}=={one.version} is pinned, and torch {version} requires {one.name}=={wanted}, so that pip "
            "finds no solution",
            one.span,
            {f"torch {version} requires {one.name}=={wanted}": cited(row)},
            f"drop the line, for torch brings it, or pin {one.name}=={wanted}",
        )


def _pin_of(name: str, row: TorchRow) -> str:
    if name == "triton":
        return row.triton.removeprefix("==") if row.triton and row.triton.startswith("==") else ""
    if not name.endswith(f"cu{row.cuda.major}"):
        return ""  # another major: packages-cuda-mixed
    version = row.cudnn if name.startswith("nvidia-cudnn") else row.nccl
    return str(version) if version is not None else ""
