"""What is asked of the driver: that it stays outside, that the container gets it, that it is new enough, and what GPUs
the torch inside has code for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.dockerfile.requirements import allows
from envkit.errors import UsageError
from envkit.facts import Facts, GpuRow, ImageRow
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import JETSON, need_stages, need_torch, unknown_if_unread
from envkit.judging.checks._image_cuda import equipped
from envkit.judging.checks._outcomes import error, found, note, or_unknown, skip_if, unknown_if, warning
from envkit.judging.checks._torch_fit import cited, driver_misfit, gpu_misfit, packages_not_covered
from envkit.judging.checks._would_run import base_for, torch_for
from envkit.judging.nvidia_require import disabled
from envkit.model import Finding, Severity, Skip, Span, Unknown
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Dockerfile, Install, Torch
from envkit.versions import Cuda, Driver

# ---------------------------------------------------------------- it stays outside

_VARIANT = r"(?:-\d+(?:-server|-open|-server-open)?)?"
_DRIVER = pattern(
    rf"nvidia-(?:driver|utils|compute-utils|headless|headless-no-dkms|dkms|kernel-(?:source|common|open|dkms|support)|open"
    rf"|firmware|modprobe|persistenced|smi|driver-(?:libs|cuda|cuda-libs|bin|NVML|NvFBCOpenGL|libs-nonglvnd))(?:-open)?{_VARIANT}(?:-[\d.]+)?"
    rf"|libnvidia-(?:compute|gl|cfg1|decode|encode|extra|fbc1|ifr1|common|ml1?|ptxjitcompiler1){_VARIANT}"
    r"|xserver-xorg-video-nvidia(?:-\d+)?(?:-server)?|libcuda1(?:-\d+)?|cuda-drivers(?:-\d+)?|kmod-nvidia\S*"
)
_META = pattern(r"cuda(?:-runtime|-demo-suite)?(?:-\d+(?:-\d+)?)?")


def driver_in_image(dockerfile: Dockerfile) -> Iterator[Finding]:
    """No driver, and no library of one, is installed into the image."""
    need_stages(dockerfile)
    told: set[tuple[str, int]] = set()
    jetson = JETSON.search(dockerfile.base.reference) is not None
    for install in dockerfile.installs:
        severity, what = _brings_driver(install, jetson)
        key = (install.span.path, install.span.line)
        if severity is None or key in told:
            continue
        told.add(key)
        yield found(
            f"{install.name} {what}", install.span, severity, _leaner(install), {install.name: install.span.place}
        )


def _brings_driver(install: Install, jetson: bool) -> tuple[Severity | None, str]:
    """How bad it is that a package brings a driver, and how it does; None where it brings none."""
    nothing: tuple[Severity | None, str] = (None, "")
    if not install.sure:
        return nothing
    if install.manager == "source":
        if install.name == "nvidia-driver":
            return Severity.ERROR, "puts a driver of its own into the image, beside the one the machine mounts"
        if install.name == "cuda-toolkit" and "--driver" in install.options:
            return Severity.ERROR, "installs the driver with its runfile, because it is not limited with --toolkit"
        return nothing
    if install.manager not in stack.SYSTEM or ("nvidia" not in install.name and "cuda" not in install.name):
        return nothing
    if _DRIVER.fullmatch(install.name):
        return Severity.ERROR, "puts libraries of a driver into the image, beside those the machine mounts"
    if _META.fullmatch(install.name) and not jetson:  # whose archive has no driver: that is part of the board's system
        return Severity.WARNING, "depends on the driver's packages, which do not belong into an image"
    lean = "--no-install-recommends" in install.options
    if install.name == "nvidia-cuda-toolkit" and install.manager == "apt" and not lean:
        return Severity.WARNING, "of the distribution also installs the driver's libcuda as a recommended package"
    return nothing


def _leaner(install: Install) -> str:
    numbered = re.search(r"-(\d+-\d+)$", install.name)
    if install.manager == "source":
        return (
            "run it with `--silent --toolkit`"
            if install.name == "cuda-toolkit"
            else "remove it: the container toolkit mounts the host's"
        )
    if _META.fullmatch(install.name):
        part = "libraries" if "runtime" in install.name else "toolkit"
        return f"take cuda-{part}{'-' + numbered[1] if numbered else '-A-B for the version you want'}"
    if install.name == "nvidia-cuda-toolkit":
        return "take a base of nvidia/cuda with the flavor devel, or NVIDIA's cuda-toolkit package"
    return "remove it: `--gpus` brings the machine's own, nvidia-smi included"


# ---------------------------------------------------------------- the container gets it

_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def missing_nvidia_env(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """An image that computes on GPUs says so to the container toolkit."""
    need_stages(dockerfile)
    skip_if(stack.rocm(dockerfile), "the image is not for NVIDIA GPUs")
    uses, base = stack.framework(dockerfile) or stack.index_for_cuda(dockerfile), dockerfile.base
    if uses is None and not stack.cuda_of_base(base):
        if dockerfile.torch is None:
            unknown_if_unread(dockerfile.unread)
        raise Skip("nothing that computes on NVIDIA GPUs is installed, as far as the text says")
    env = dockerfile.target.env
    wanted = env.get(_CAPABILITIES)
    span = _set_at(dockerfile, _CAPABILITIES)
    known = span is not None and wanted is not None and wanted.strip() and "$" not in wanted
    if known and span and wanted and not {"compute", "all"} & {word.strip() for word in wanted.split(",")}:
        yield warning(
            f"{_CAPABILITIES} is {wanted}, without compute, so that libcuda is not mounted",
            span,
            {wanted: span.place},
            f"write {_CAPABILITIES}=compute,{wanted}",
        )
        return
    if uses is None or _VISIBLE in env or _set_at(dockerfile, _VISIBLE) is not None or stack.cuda_of_base(base):
        return
    skip_if(not stack.without_cuda(base), f"whether {base.reference} sets {_VISIBLE} is not known")
    where = uses.span
    name = (
        uses.name
        if isinstance(uses, Install)
        else stack.shown(uses)
        if isinstance(uses, Torch)
        else "torch from an index for CUDA"
    )
    yield note(
        f"{name} computes on GPUs, and neither the base {base.reference} nor the file sets {_VISIBLE}",
        where,
        {name: where.place, base.reference: base.cuda.via or base.span.place},
        f"add `ENV {_VISIBLE}=all {_CAPABILITIES}=compute,utility`",
    )


def _set_at(dockerfile: Dockerfile, name: str) -> Span | None:
    """Where the image's last ENV of a name stands, None where the file has none."""
    settings = [one for step in dockerfile.steps for one in step.settings if one.kind == "ENV" and one.name == name]
    return settings[-1].span if settings else None


# ---------------------------------------------------------------- it is new enough


def driver_too_old(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """With ``--driver``: the torch and the base run on that driver."""
    skip_if(not dockerfile.driver, "no driver was named with --driver")
    need_stages(dockerfile)
    dockerfile = equipped(dockerfile)
    doubts: list[str] = []
    asked = not stack.without_cuda(dockerfile.base)
    told = list(_collected(_of_base(dockerfile, facts), doubts)) if asked else []
    yield from told
    torch = dockerfile.torch
    if torch is not None and torch.cuda.value != "cpu" and not torch.cuda.is_unsupported:
        asked = True
        cuda = stack.said(torch.cuda)
        if not cuda:
            doubts.append(f"the CUDA of torch was not observed: {torch.cuda.missing}")
        elif torch.method != "base" and not told:
            served = _served(dockerfile.base, cuda, dockerfile.driver, facts)
            instead = torch_for(stack.said(torch.version), dockerfile.driver, dockerfile.gpus, facts)
            found_here = _of_cuda(cuda, stack.shown(torch), torch.span, dockerfile, served, facts, instead)
            yield from _collected(found_here, doubts)
    elif torch is None and dockerfile.unread:
        doubts.append(f"{dockerfile.unread[0].path} was not read ({dockerfile.unread[0].why})")
        asked = True
    if doubts:
        raise Unknown(doubts[0])
    skip_if(not asked, "nothing here needs a driver, as far as the text says")


def _collected(findings: Iterator[Finding], doubts: list[str]) -> Iterator[Finding]:
    """The findings; what was not known is put to the doubts, so that it hides no other."""
    try:
        yield from findings
    except Unknown as unknown:
        doubts.append(str(unknown))


def _release(given: str, facts: Facts) -> Driver:
    """The driver that was named, or the oldest of a branch."""
    try:
        return facts.oldest_release(Driver(given))
    except ValueError as error:
        raise Unknown(str(error)) from error


def _served(base: Base, cuda: str, given: str, facts: Facts) -> bool:
    """Whether the base holds a cuda-compat that runs ``cuda`` on the branch of that driver, on data-center GPUs.

    nvidia/cuda images and those made of them hold the one of their own CUDA.
    """
    if base.family not in ("nvidia", "ngc") and not (base.family == "pytorch" and base.flavor.value == "devel"):
        return False
    own = stack.cuda_of_base(base)
    row = facts.forward_compat(Cuda(own)) if own else None
    if row is None or row.compat is None or Cuda(own).upto(2) < Cuda(cuda).upto(2):
        return False
    return _release(given, facts).major in row.compat


def _of_cuda(
    cuda: str, what: str, span: Span, dockerfile: Dockerfile, served: bool, facts: Facts, instead: str
) -> Iterator[Finding]:
    """The finding on a driver below the floor of ``cuda``; ``served`` as the function of that name says it, ``instead``
    is what would run."""
    misfit = driver_misfit(cuda, dockerfile.driver, what, facts)
    if misfit is None:
        return
    fix = f"update the driver, or take {instead}" if instead else misfit.fix
    if not served:
        yield error(misfit.message, span, misfit.facts, fix)
        return
    gpus = [_gpu(name, facts) for name in dockerfile.gpus]
    if gpus and all(gpu.datacenter for gpu in gpus):
        return
    other = next((gpu.name for gpu in gpus if gpu.datacenter is False), "")
    yield found(
        f"{misfit.message}: the base's cuda-compat helps only on data-center GPUs"
        + (f", and {other} is none" if other else ""),
        span,
        Severity.ERROR if other else Severity.WARNING,
        fix,
        misfit.facts,
    )


def _gpu(name: str, facts: Facts) -> GpuRow:
    try:
        return facts.gpu(name)
    except UsageError as error:
        raise Unknown(error.message) from error


def _of_base(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """What the base asks of the driver: by its CUDA, by what it requires, by its release notes."""
    base, given = dockerfile.base, dockerfile.driver
    cuda = base.cuda.need(f"the CUDA of {base.reference}")
    driver = _release(given, facts)
    served = _served(base, cuda, given, facts)
    instead = base_for(base, given, facts)
    below = list(_of_cuda(cuda, f"the base {base.reference}", base.span, dockerfile, served, facts, instead))
    if below:
        yield from below
        return
    if base.family == "ngc":
        yield from _of_ngc(base, driver, facts)
        return
    if base.family not in ("nvidia", "pytorch") or disabled(dockerfile.target.env):
        return
    if base.family == "pytorch" and base.flavor.value != "devel":
        return  # not built on NVIDIA's image, so it requires nothing
    unread = f"the facts do not say which CUDA driver {given} supports"
    native, read = or_unknown(facts.most_cuda(driver), unread), facts.native_cuda(driver) is not None
    row = _requiring(base, cuda, facts)
    if native >= (row.require_cuda if row is not None and row.require_cuda is not None else Cuda(cuda).upto(2)):
        unknown_if(not read, unread)
        return
    if row is None or row.require_cuda is None or row.branches is None:
        raise Unknown(f"what {base.reference} requires of a driver was not read")
    if driver.major in row.branches:
        yield from _branded(dockerfile, row, native, facts)
        return
    yield error(
        f"{base.reference} requires a driver for CUDA {row.require_cuda}, and driver {given} supports "
        f"{'only' if read else 'at most'} CUDA {native}, so that the container does not start",
        base.span,
        {
            f"requires CUDA {row.require_cuda}": cited(row),
            f"driver {given}": f"CUDA {native}{'' if read else ' or older'}",
        },
        f"update the driver, or take {instead or f'a base of CUDA {native}'}",
    )


def _requiring(base: Base, cuda: str, facts: Facts) -> ImageRow | None:
    """The row of the image, or of one of nvidia/cuda with the same CUDA, that says what it requires."""
    known = facts.image_tag(f"nvidia/cuda:{base.tag}") or facts.old_image_tag(f"nvidia/cuda:{base.tag}")
    if known is not None and known.row.require_cuda is not None:
        return known.row
    same = [
        row
        for row in (*facts.images, *facts.images_old)
        if row.image == "nvidia/cuda" and str(row.cuda.upto(2)) == stack.minor(cuda) and row.require_cuda is not None
    ]
    return same[-1] if same else None


# Brands as NVML names them, by how a product's name begins (nvml.h, nvmlBrandType_t).
_BRANDS = {"GeForce": {"geforce", "geforcertx"}, "TITAN": {"titan", "titanrtx"}}


def _branded(dockerfile: Dockerfile, row: ImageRow, native: Cuda, facts: Facts) -> Iterator[Finding]:
    """On an older branch the image starts on the brands that it lists: the first images list data-center GPUs alone,
    the newest no GeForce and no TITAN."""
    if row.brands is None:
        return
    alone = set(row.brands) == {"tesla"}
    for gpu in (_gpu(name, facts) for name in dockerfile.gpus):
        own = _BRANDS.get(gpu.name.partition(" ")[0], set())
        if gpu.datacenter is not False or not (alone or (own and not own & set(row.brands))):
            continue
        base = dockerfile.base
        yield error(
            f"{base.reference} starts on driver {dockerfile.driver}, which speaks CUDA {native}, on "
            f"{'data-center GPUs' if alone else 'data-center and workstation GPUs'} alone, and {gpu.name} is none",
            base.span,
            {f"requires CUDA {row.require_cuda}": cited(row), gpu.name: gpu.source},
            f"update the driver, or take {base_for(base, dockerfile.driver, facts) or f'a base of CUDA {native}'}",
        )


def _of_ngc(base: Base, driver: Driver, facts: Facts) -> Iterator[Finding]:
    row = next((row for row in facts.ngcs if row.tag == base.tag and base.repository.endswith("pytorch")), None)
    if row is None or row.driver_min_branch is None or driver.major >= row.driver_min_branch:
        return
    yield warning(
        f"{base.reference} is made for drivers from branch {row.driver_min_branch} on, not for {driver}",
        base.span,
        {f"branch {row.driver_min_branch}": cited(row)},
        f"update the driver, or use an image that was released for driver {driver}",
    )


# ---------------------------------------------------------------- the GPU is one it has code for


def _bounded(torch: Torch, cuda: str, facts: Facts) -> tuple[str, ...]:
    """The releases that a specifier with an end leaves open, of those built for a CUDA; empty where it has no end."""
    specifier = torch.install.specifier if torch.install is not None and torch.version.missing else ""
    if torch.install is None or torch.install.name != "torch" or not re.search("<|~=|==", specifier):
        return ()
    return tuple(
        str(row.torch)
        for row in facts.torches_all
        if str(row.cuda) == cuda and row.published is not False and allows(specifier, str(row.torch)) is True
    )


def gpu_arch_not_covered(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """With ``--gpu``: the torch that stays has code for each GPU, its own or one that a driver compiles, and so have
    packages with kernels of their own."""
    skip_if(not dockerfile.gpus, "no GPU was named with --gpu")
    plain = (
        one
        for one in dockerfile.installs
        if one.sure and not (one.constraint or one.url or one.index or one.find_links or one.extra_indexes)
    )
    judged = False
    for finding in packages_not_covered(plain, dockerfile.gpus, facts):
        judged = True
        if finding is not None:
            yield finding
    try:
        yield from _torch_not_covered(dockerfile, facts)
    except Skip:
        if not judged:
            raise


def _torch_not_covered(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    torch = need_torch(dockerfile)
    skip_if(torch.cuda.is_unsupported, "the torch is no build for CUDA")
    unknown_if(torch.method == "source", "which architectures a torch built from source gets is not known")
    cuda = torch.cuda.need("the CUDA of torch")
    versions = _bounded(torch, cuda, facts) or (torch.version.need("the version of torch"),)
    doubt = ""
    for name in dockerfile.gpus:
        try:
            misfits = [gpu_misfit(version, cuda, name, facts) for version in versions]
            misfit = misfits[-1] if all(misfits) else None  # of what may come, none
            instead = torch_for(versions[-1], dockerfile.driver, dockerfile.gpus, facts)
        except Unknown as unknown:
            doubt = doubt or str(unknown)
            continue
        if misfit is not None:
            yield error(misfit.message, torch.span, misfit.facts, f"take {instead}" if instead else misfit.fix)
    unknown_if(doubt, doubt)
