"""What is asked of the compilers in an image: nvcc, the host compiler it takes, and the assemblers of packages."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.errors import UsageError
from envkit.facts import Facts
from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.judging.checks._torch import cuda_build
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects.image import Image, NvccFoundBy, Toolkit
from envkit.versions import Cuda

# the places where torch's cpp_extension looks for nvcc, first to last; what wheels bring it does not take by itself
_GONE = "No such file or directory"
_NAMED = (NvccFoundBy.CUDA_HOME, NvccFoundBy.CUDA_PATH)
_ORDER = tuple(how for how in NvccFoundBy if how is not NvccFoundBy.PACKAGE)


def _toolkits(image: Image) -> list[Toolkit]:
    """The nvcc that an extension build takes, first, and those behind it; raises Skip where there is none.

    A runtime image may name a CUDA_HOME that holds no compiler.
    """
    ranked = [one for one in _ranked(image) if one.error != _GONE]
    skip_if(not ranked, "there is no nvcc where an extension build looks for it")
    return ranked


def _ranked(image: Image) -> list[Toolkit]:
    found = image.toolkits.need("the CUDA compilers")
    return sorted((one for one in found if one.found_by in _ORDER), key=lambda one: _ORDER.index(one.found_by))


def _said(one: Toolkit) -> Cuda:
    unknown_if(not one.version, f"{one.path} of {one.via} does not say its version: {one.error}")
    return Cuda(one.version)


def image_nvcc_of_other_cuda(image: Image) -> Iterator[Finding]:
    """The nvcc that an extension build takes is of the CUDA that torch was built with."""
    toolkits = _toolkits(image)
    for named in _ranked(image)[:1]:
        if named.error == _GONE:
            yield warning(
                f"{named.via} names no nvcc at {named.path}, and {toolkits[0].path} is not looked for",
                named.path,
                {named.error: f"{named.path} --version", toolkits[0].path: toolkits[0].via},
                f"point {named.via} at the toolkit that holds nvcc",
            )
    taken, has = toolkits[0], _said(toolkits[0]).upto(2)
    for other in toolkits[1:]:
        if other.found_by is NvccFoundBy.PATH and other.version and Cuda(other.version).upto(2) != has:
            yield warning(
                f"nvcc of {taken.via} is {taken.version} and the one on PATH is {other.version}: torch's build takes "
                "the first, a makefile the second",
                other.path,
                {taken.version: f"{taken.path} --version", other.version: f"{other.path} --version"},
                f"put {taken.path.rpartition('/')[0]} first on PATH, or set {taken.via} to the other toolkit",
            )
    build = _build_or_none(image)
    if build is None:
        return
    version, wanted = build
    if has == wanted:
        return
    major = has.major != wanted.major
    yield Finding(
        f"nvcc of {taken.via} is CUDA {has} and torch {version} is built for CUDA {wanted}"
        + (": torch refuses to build extensions with it" if major else ""),
        Severity.NOTE if not major else Severity.ERROR if taken.found_by in _NAMED else Severity.WARNING,
        taken.path,
        {taken.version: f"{taken.path} --version", str(wanted): "torch.version.cuda"},
        f"install nvcc {wanted} and point CUDA_HOME at it, or take a torch built for CUDA {has}"
        if major
        else f"no change is needed; an extension that must match exactly needs nvcc {wanted}",
    )


def _build_or_none(image: Image) -> tuple[str, Cuda] | None:
    """torch's version and CUDA; None where there is no torch with CUDA, which is no matter of nvcc's."""
    try:
        build = cuda_build(image)
    except Skip:
        return None
    return build.version, Cuda(build.cuda).upto(2)


def image_compiler_not_supported_by_nvcc(image: Image, facts: Facts) -> Iterator[Finding]:
    """The host compiler is one that nvcc accepts."""
    nvcc = _toolkits(image)[0]
    cuda = _said(nvcc).upto(2)
    kind, _, version = image.compiler.need("the host compiler").partition(" ")
    skip_if(not version, f"there is no host compiler ({image.compiler.via})")
    try:
        row = facts.cuda(str(cuda))
    except UsageError as lacking:
        raise Unknown(f"the facts do not hold the bounds of nvcc {cuda}: {lacking.message}") from lacking
    newest = row.gcc_max if kind == "gcc" else row.clang_max
    if newest is None:
        raise Unknown(f"the newest {kind} that nvcc {cuda} accepts was not read")
    if int(version.split(".")[0]) > int(newest.split(".")[0]):
        yield error(
            f"the host compiler is {kind} {version} and nvcc {cuda} accepts {kind} up to {newest}",
            nvcc.path,
            {f"{kind} {version}": image.compiler.via, newest: row.source, nvcc.version: f"{nvcc.path} --version"},
            f"install {kind} {newest} and set CXX, CC and NVCC_CCBIN to it, or take a newer nvcc of torch's CUDA",
        )


def image_assembler_newer_than_driver(image: Image) -> Iterator[Finding]:
    """The assemblers that packages bring are of no newer major than the driver's CUDA."""
    brought = image.assemblers.need("the assemblers of packages")
    skip_if(not brought, "no package brings an assembler")
    seen = image.driver.need("the driver")
    skip_if(not seen.library, f"there is no driver here ({seen.load_error})")
    unknown_if(not seen.cuda, f"the driver at {seen.library} does not say which CUDA it speaks")
    has = Cuda(seen.cuda)
    silent = next((one for one in brought if not one.version), None)
    newer = [one for one in brought if one.version and Cuda(one.version).major > has.major]
    if silent is not None and not newer:
        raise Unknown(f"{silent.path} does not say its version: {silent.error}")
    for one in newer:
        yield warning(
            f"{one.path.rpartition('/')[2]} of {one.owner or 'TRITON_PTXAS_PATH'} is of CUDA "
            f"{Cuda(one.version).upto(2)} and the driver speaks CUDA {has}: the driver refuses the code that "
            "this ptxas produces",
            one.path,
            {one.version: f"{one.path} --version", seen.cuda: f"cuDriverGetVersion of {seen.library}"},
            f"install a driver for CUDA {Cuda(one.version).major} or newer, take a torch and Triton for CUDA "
            f"{has.major}, or point TRITON_PTXAS_PATH at a ptxas of the driver's major",
        )
