"""What is asked of compiled extensions: whether they have code for the GPUs and use the CUDA that torch uses.

A distribution may ship one file for each CUDA or kernels for one GPU only, and choose among them when it is imported.
So the files of one distribution are judged together: what one of them lacks another one may have.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from envkit.facts import Facts, served
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if
from envkit.model import Finding, Reason, Severity
from envkit.subjects.audit import NO_TORCH, Audit
from envkit.subjects.image import Extension, Image
from envkit.subjects.imported import ImportState
from envkit.versions import Cuda, Sm

_STATIC = "static"
_VIA = "fat binaries of the file"
_SONAME = re.compile(r"libcudart(?:[-.][0-9a-f]{8})?\.so\.([0-9]+)")


def _seen(subject: Image | Audit) -> tuple[Extension, ...]:
    """The extensions; raises Skip where there are none."""
    found = subject.extensions.need("the extensions")
    skip_if(not found, "no installed extension calls CUDA")
    return found


def _by_owner(extensions: Sequence[Extension]) -> list[list[Extension]]:
    """The files of each distribution, a file that none owns alone."""
    groups: dict[str, list[Extension]] = {}
    for one in extensions:
        groups.setdefault(one.owner or one.path, []).append(one)
    return list(groups.values())


def _called(one: Extension) -> str:
    """The distribution of a file, or the file's name where none owns it."""
    return f"{one.owner} {one.owner_version}".strip() if one.owner else posixpath.basename(one.path)


def _gpus(subject: Image | Audit) -> dict[Sm, str]:
    """The GPUs that were declared or are here, and who said so; raises Skip where there are none.

    Which are present may stay open where some were declared.
    """
    found: dict[Sm, str] = {}
    if subject.promise.reason is not Reason.NO_PROMISE:
        found.update(dict.fromkeys(subject.promise.need("the image's promise").gpus, subject.promise.via))
    if isinstance(subject, Audit):
        found.update(dict.fromkeys(subject.gpus_given, "given by the user"))
    elif found:
        found.update(dict.fromkeys(subject.devices.value or (), subject.devices.via))
    else:
        found.update(dict.fromkeys(subject.devices.need("the devices at hand"), subject.devices.via))
    skip_if(not found, "no GPU was declared and none is here")
    return found


def _archs(one: Extension) -> str:
    return " ".join((*one.sass, *one.ptx))


def _serves(one: Extension, gpu: Sm, tegra: bool) -> bool:
    sass, ptx = [Sm.parse(arch) for arch in one.sass], [Sm.parse(arch) for arch in one.ptx]
    return served(sass, ptx, gpu, tegra).state != "none"


def _may_be_family(one: Extension, gpu: Sm) -> bool:
    """Whether the file has code for a family of GPUs to which this later one of the same major may belong."""
    family = [arch for arch in map(Sm.parse, (*one.sass, *one.ptx)) if arch.suffix == "f"]
    return any(arch.major == gpu.major and arch.minor < gpu.minor for arch in family)


def image_extension_arch_not_covered(image: Image | Audit, facts: Facts) -> Iterator[Finding]:
    """Every distribution with device code has some for each declared or present GPU, or PTX its driver compiles."""
    with_code = [one for one in _seen(image) if one.sass or one.ptx]
    skip_if(not with_code, "no installed extension has device code")
    gpus = _gpus(image)
    tegra = {row.sm for row in facts.archs if row.tegra}
    doubts: list[str] = []
    for files in _by_owner(with_code):
        for gpu, via in sorted(gpus.items()):
            without = [one for one in files if not _serves(one, gpu, gpu in tegra)]
            if not without:
                continue
            first = without[0]
            evidence = {_archs(first): _VIA, str(gpu): via}
            if len(without) < len(files):
                yield note(
                    f"{len(without)} of {len(files)} files of {_called(first)} have no code for {gpu}, the first "
                    f"{posixpath.basename(first.path)}, which is built for {_archs(first)}",
                    first.path,
                    evidence,
                    "check that the package uses its other files on this GPU; an import does not prove it",
                )
            elif any(_may_be_family(one, gpu) for one in without):
                doubts.append(f"{_called(first)} has family code, {_archs(first)}, that {gpu} may or may not run")
            else:
                yield error(
                    f"{_called(first)} has no code for {gpu}: {posixpath.basename(first.path)} is built for "
                    f"{_archs(first)}",
                    first.path,
                    evidence,
                    f"take a release of {first.owner or 'it'} that is built for {gpu}, or build it with "
                    f"`TORCH_CUDA_ARCH_LIST={gpu.major}.{gpu.minor}`",
                )
    unknown_if(doubts, "; ".join(doubts))


_NAMED = re.compile(r"(?:-cu|-cuda)([0-9]{2})x?\Z")  # "cupy-cuda13x", "nvidia-x-cu12"


def _major(one: Extension) -> int | None:
    """The CUDA major of the runtime that a file calls, None where neither it nor its distribution's name says it."""
    soname = _SONAME.match(one.cudart)
    if soname:
        return int(soname[1])
    if one.built_with:
        return Cuda(one.built_with).major
    named = _NAMED.search(one.owner)
    return int(named[1]) if named else None


def _runtime(one: Extension) -> str:
    if one.cudart == _STATIC:
        release = f", of CUDA {one.built_with}" if one.built_with else " and does not say of which CUDA"
        return f"carries a CUDA runtime of its own{release}"
    return f"needs {one.cudart}"


def image_extension_other_cuda(image: Image | Audit) -> Iterator[Finding]:
    """Extensions call the CUDA runtime of torch's major."""
    calling = [one for one in _seen(image) if one.cudart]
    skip_if(not calling, "no installed extension calls the CUDA runtime")
    absent = (
        image.torch.reason is Reason.NO_TORCH if isinstance(image, Audit) else image.import_state is ImportState.ABSENT
    )
    skip_if(absent, NO_TORCH)
    torch = image.torch.need("torch's build")
    skip_if(not torch.cuda, f"torch {torch.version} is built without CUDA")
    major = Cuda(torch.cuda).major
    doubts: list[str] = []
    for files in _by_owner(calling):
        theirs = {one.path: _major(one) for one in files}
        for one in files:
            name = posixpath.basename(one.path)
            told = f"{name} of {_called(one)}" if one.owner else name
            evidence = {
                one.cudart: "DT_NEEDED" if one.cudart != _STATIC else "the runtime's text in .rodata",
                one.built_with or "no toolkit named": "cubins of the file",
                torch.cuda: image.torch.via,
            }
            if theirs[one.path] is None and (one.for_torch or one.sass):
                doubts.append(f"{told} {_runtime(one)}")
            elif theirs[one.path] not in (None, major) and major not in theirs.values():
                yield Finding(
                    f"{told} {_runtime(one)}, torch {torch.version} is built for CUDA {torch.cuda}",
                    Severity.ERROR if one.for_torch else Severity.WARNING,
                    one.path,
                    evidence,
                    f"take a build of {one.owner or name} for CUDA {major}, or build it with nvcc of that major",
                )
            elif theirs[one.path] in (None, major) and one.cudart == _STATIC:
                yield note(
                    f"{told} {_runtime(one)}, beside torch's",
                    one.path,
                    evidence,
                    "build it with `-cudart shared`, so that the process has only one runtime",
                )
    unknown_if(doubts, "; ".join(doubts))
