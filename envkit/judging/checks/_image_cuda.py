"""The CUDA and cuDNN that an image has by its base or by what its steps install: apt, dnf, conda, NVIDIA's run-file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import once
from envkit.model import Observed
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Dockerfile, Install, Stage

_CUDNN = pattern(r"(?:lib)?cudnn(\d)?(?:-cuda-\d+)?(?:-dev(?:el)?)?")
_CONDA = pattern(r"cudatoolkit|cuda-runtime|cuda-libraries")
_NVCC = pattern(r"cuda(?:-(?:toolkit|compiler|nvcc|minimal-build))?(?:-\d+-\d+)?")


@once
def equipped(dockerfile: Dockerfile) -> Dockerfile:
    """The Dockerfile with the CUDA and the cuDNN that its steps install counted to the bases, where those surely hold
    none; such a base is called after the package too, so that messages say whose CUDA it is."""
    if not dockerfile.stages:
        return dockerfile
    stages = tuple(_equipped(stage, dockerfile) for stage in dockerfile.stages)
    return dockerfile if stages == dockerfile.stages else replace(dockerfile, stages=stages)


def _equipped(stage: Stage, dockerfile: Dockerfile) -> Stage:
    base = stage.base
    installs = tuple(one for step in dockerfile.steps_of(stage.index) for one in step.installs if one.sure)
    base = _with_cuda(base, installs) if stack.without_cuda(base) and not base.rocm else base
    if base.cudnn.is_unsupported and stack.cuda_of_base(base):
        base = _with_cudnn(base, installs)
    return stage if base is stage.base else replace(stage, base=base)


def _with_cuda(base: Base, installs: tuple[Install, ...]) -> Base:
    """The base with the one CUDA that is installed; as it is where none is, or two."""
    added = {one.cuda: one.install for one in stack.toolkits(installs) if one.whole}
    for one in installs:
        if one.manager == "conda" and _CONDA.fullmatch(one.name):
            added[_numbers(one)] = one
    if len({stack.major(cuda) for cuda in added}) != 1 or "" in added:
        return base
    cuda = max(added, key=lambda each: [int(part) for part in each.split(".")])
    install = added[cuda]
    via = f"{install.span.place} installs {install.name}"
    whole = install.manager == "source" or bool(_NVCC.fullmatch(install.name))
    nvcc = Observed.of(True, via) if whole else base.nvcc
    said = Observed.of(cuda, via)
    return replace(base, reference=_named(base, install), cuda=said, nvcc=nvcc)


def _with_cudnn(base: Base, installs: Iterable[Install]) -> Base:
    """The base with the one cuDNN that the system's packages or conda bring."""
    added: dict[str, Install] = {}
    for one in installs:
        named = _CUDNN.fullmatch(one.name) if one.manager in (*stack.SYSTEM, "conda") else None
        if named is not None:
            added[named[1] or stack.major(_numbers(one))] = one
    if len(added) != 1 or "" in added:
        return base
    ((version, install),) = added.items()
    via = f"{install.span.place} installs {install.name}"
    return replace(base, reference=_named(base, install), cudnn=Observed.of(version, via))


def _named(base: Base, install: Install) -> str:
    return f"{base.reference} {'and' if ' with ' in base.reference else 'with'} {install.name}"


def _numbers(install: Install) -> str:
    found = re.match(r"\d+(?:\.\d+){0,2}", install.version or install.specifier.lstrip("=~ "))
    return found[0] if found else ""
