"""What is asked of the images that a workload starts: that they exist, stay the same, and fit GPU and driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.judging.checks._outcomes import error, found, skip_if, unknown_if, warning
from envkit.judging.checks._torch_fit import compat_serves, driver_misfit, gpu_misfit
from envkit.judging.checks._workload import evident, need_containers
from envkit.judging.checks._would_run import base_for, torch_for
from envkit.model import Finding, Observed, Severity, Span
from envkit.subjects.workload import Container, Workload

_LATEST = re.compile(r"(?:^|[-_.])latest(?:[-_.]|$)")  # alone, or with what kind it is the latest of ("latest-gpu")


def workload_image_unpinned(workload: Workload) -> Iterator[Finding]:
    """An image for GPUs has a tag that names a version, or a digest.  Source: Kubernetes, Images, "avoid :latest"."""
    asked = 0
    for one in need_containers(workload):
        if one.image is None or one.base is None or not one.image.sure or not one.base.sure:
            continue
        asks = any(not request.resource.startswith(("amd.com/", "gpu.intel.com/")) for request in one.gpus)
        if one.local or (not asks and not list(evident(one))):
            continue
        asked += 1
        if one.base.digest or (one.base.tag and not _LATEST.search(one.base.tag)):
            continue
        yield warning(
            f"`{one.name}` starts {one.image.value}"
            + (" without a tag" if not one.base.tag else "")
            + ", so that its CUDA changes whenever the image does",
            one.image.span,
            fix="name a version or a digest",
        )
    skip_if(not asked, "no container for GPUs names its image")


def workload_image_never_existed(workload: Workload) -> Iterator[Finding]:
    """The tag of an nvidia/cuda or pytorch/pytorch image was published, and is still there."""
    asked = 0
    for one in need_containers(workload):
        base = one.base
        if base is None or one.image is None or not base.sure:
            continue
        if base.exists.missing and base.retired.missing:
            continue
        asked += 1
        if base.exists.value is False:
            near = f"; nearest: {', '.join(base.near_tags)}" if base.near_tags else ""
            yield error(
                f"`{one.name}` starts {one.image.value}, a tag that was never published",
                one.image.span,
                {base.tag: base.exists.via + near},
                "take a tag of the publisher's list",
            )
        elif base.retired.value is True:
            yield warning(
                f"`{one.name}` starts {one.image.value}, a tag that its publisher has retired and may remove",
                one.image.span,
                {base.tag: base.retired.via},
                "take a newer tag, or a copy in your own registry",
            )
    skip_if(not asked, "no image has a published list of tags")


def _cuda(one: Container) -> tuple[Observed[str], str, Span] | None:
    """The CUDA that the container's programs need, what needs it, and its place; None where it needs none."""
    if one.built is not None:
        torch = one.built.torch
        if torch is not None and torch.cuda.value != "cpu":
            return torch.cuda, f"torch in {one.built.path}", one.span
        return (one.built.base_cuda, f"the base of {one.built.path}", one.span) if torch is None else None
    if one.base is None or one.image is None:
        return None
    cuda = one.base.torch_cuda if not one.base.torch_cuda.missing else one.base.cuda
    return (cuda, one.image.value, one.image.span) if not cuda.is_unsupported and cuda.value != "cpu" else None


def workload_driver_too_old(workload: Workload, facts: Facts) -> Iterator[Finding]:
    """Every image's CUDA runs on the driver that was named.  Source: NVIDIA, CUDA compatibility."""
    skip_if(not workload.driver, "no driver was named (--driver)")
    asked, open_ = 0, ""
    for one in need_containers(workload):
        held = _cuda(one)
        if held is None or not (one.gpus or list(evident(one))):
            continue
        asked += 1
        cuda, what, span = held
        if cuda.missing or not cuda.value:
            open_ = open_ or f"the CUDA of {what} was not observed: {cuda.missing}"
            continue
        misfit = driver_misfit(cuda.value, workload.driver, what, facts)
        if not misfit:
            continue
        # NVIDIA's own images bring a cuda-compat package, which the container toolkit takes up on data-center GPUs.
        base = one.base if one.built is None else one.built.base
        spared = base is not None and base.family in ("nvidia", "ngc")
        spared = spared and compat_serves(cuda.value, workload.driver, facts)
        exception = ", except on data-center GPUs, which the image's cuda-compat serves" if spared else ""
        severity = Severity.WARNING if spared else Severity.ERROR
        instead = base_for(base, workload.driver, facts) if base is not None else ""
        fix = f"update the driver, or take {instead}" if instead else misfit.fix
        yield found(misfit.message + exception, span, severity, fix, misfit.facts)
    unknown_if(open_, open_)
    skip_if(not asked, "no container is made for GPUs")


def workload_gpu_arch_not_covered(workload: Workload, facts: Facts) -> Iterator[Finding]:
    """Every torch has code for the GPUs that were named.  Source: the architectures read in the wheels."""
    skip_if(not workload.gpus, "no GPU was named (--gpu)")
    asked = 0
    for one in need_containers(workload):
        if one.built is not None:
            torch = one.built.torch
            version, cuda = (torch.version, torch.cuda) if torch is not None else (None, None)
            what, span = one.built.path, one.span
        elif one.base is not None and one.image is not None:
            version, cuda, what, span = one.base.torch, one.base.torch_cuda, one.image.value, one.image.span
        else:
            continue
        if version is None or cuda is None or not version.value or not cuda.value or cuda.value == "cpu":
            continue
        asked += 1
        for gpu in workload.gpus:
            misfit = gpu_misfit(version.value, cuda.value, gpu, facts)
            if misfit:
                instead = torch_for(version.value, workload.driver, workload.gpus, facts)
                fix = f"take an image with {instead}" if instead else misfit.fix
                yield error(f"{what}: {misfit.message}", span, misfit.facts, fix)
    skip_if(not asked, "no container has a torch that is known")
