"""Whether frameworks that bring no CUDA libraries of their own find those that they load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envkit.dockerfile import system
from envkit.facts import Facts
from envkit.facts.rows import GpuPackageRow
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import need_stages, reached_commands
from envkit.judging.checks._image_cuda import equipped
from envkit.judging.checks._outcomes import error, skip_if
from envkit.judging.checks._torch_fit import cited
from envkit.model import Finding
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Dockerfile, Install, Word

_ARCHIVE = pattern(r"onnxruntime-linux-x64-gpu(?:[-_]cuda([0-9]+))?-([0-9]+\.[0-9]+(?:\.[0-9]+)?)(?=\.t)")
_WHEEL = pattern(r"nvidia-(?:cublas|cudnn|cuda-runtime)(?:-cu(\d+))?")


def framework_libraries_missing(dockerfile: Dockerfile, facts: Facts) -> Iterator[Finding]:
    """A framework that loads the system's CUDA and cuDNN finds that major of CUDA, and a cuDNN."""
    need_stages(dockerfile)
    dockerfile = equipped(dockerfile)
    base, majors = dockerfile.base, _majors(dockerfile)
    skip_if(stack.rocm(dockerfile), "the image is not for NVIDIA GPUs")
    skip_if(not stack.cuda_of_base(base), "the base has no CUDA, as far as is known")
    asked = 0
    for one in dockerfile.installs:
        row = _row(one, dockerfile, facts)
        if row is None or row.cuda is None:
            continue
        asked += 1
        wanted, release = stack.major(row.cuda), f" {one.version}" if one.version else ""
        mine = stack.major(stack.cuda_of_base(base))
        there = {f"CUDA {stack.cuda_of_base(base)} in the base": f"{base.span.place}, {base.cuda.via}"}
        if "" in majors:
            continue
        if wanted not in majors:
            yield error(
                f"{one.name}{release} loads the libraries of CUDA {wanted}, and the base {base.reference} has those of "
                f"CUDA {stack.cuda_of_base(base)}",
                one.span,
                {f"{one.name}{release} is built for CUDA {row.cuda}": cited(row), **there},
                f"take a base of CUDA {wanted}, or the {one.name} that is built for CUDA {mine}",
            )
        elif row.cudnn and base.cudnn.is_unsupported and not _brings_cudnn(dockerfile):
            yield error(
                f"{one.name}{release} loads cuDNN {row.cudnn}, and neither {base.reference} nor the file brings one",
                one.span,
                {f"{one.name}{release} loads cuDNN {row.cudnn}": cited(row), "no cuDNN in the base": base.cudnn.via},
                f"take the tag of this base with cudnn in its name, of cuDNN {row.cudnn}",
            )
    for archive, needs, word in _archives(dockerfile, facts):
        asked += 1
        wanted, mine = stack.major(needs.cuda or ""), stack.cuda_of_base(base)
        if "" in majors or wanted in majors:
            continue
        yield error(
            f"{archive} loads the libraries of CUDA {wanted}, and the base {base.reference} has those of CUDA {mine}",
            word.span,
            {
                f"{archive} is built for CUDA {needs.cuda}": cited(needs),
                f"CUDA {mine} in the base": f"{base.span.place}, {base.cuda.via}",
            },
            f"take a base of CUDA {wanted}, or the release's archive that is built for CUDA {stack.major(mine)}",
        )
    skip_if(not asked, "nothing here loads the system's CUDA libraries, as far as is known")


def _archives(dockerfile: Dockerfile, facts: Facts) -> Iterator[tuple[str, GpuPackageRow, Word]]:
    """The archives of ONNX Runtime for GPUs that the build downloads, each with what its release loads.

    An archive with a CUDA in its name is for that one; the others are of the CUDA of the release's wheel.
    """
    for _, _, command in reached_commands(dockerfile):
        for fetched in system.downloads(command) if command.sure else ():
            found = _ARCHIVE.search(fetched.url)
            row = facts.gpu_package("onnxruntime-gpu", found[2]) if found else None
            if found is None or row is None or row.cuda is None:
                continue
            yield found[0], replace(row, cuda=found[1]) if found[1] else row, fetched.word


def _row(one: Install, dockerfile: Dockerfile, facts: Facts) -> GpuPackageRow | None:
    """What a package that surely takes the system's libraries loads; None for others.

    Another index may have a build for another CUDA, and extras may bring the libraries.
    """
    plain = one.sure and not (
        one.constraint or one.url or one.marker or one.index or one.extra_indexes or one.find_links
    )
    if not plain or one.manager not in ("pip", "uv", "poetry") or any(each.startswith("cu") for each in one.extras):
        return None
    if not one.version and not _newest(one, facts):
        return None
    if one.name == "faster-whisper" and any(each.name == "ctranslate2" for each in dockerfile.installs):
        return None  # that one decides
    row = facts.gpu_package(one.name, one.version)
    return row if row is not None and row.own is False and row.build == "wheel" else None


def _newest(one: Install, facts: Facts) -> bool:
    """Whether pip takes the newest release of a name: its Python is one that new releases are made for."""
    life = facts.python_life(one.python) if one.python else None
    return not one.specifier and not one.name.startswith("tensorflow") and life is not None and life.eol > life.seen


def _majors(dockerfile: Dockerfile) -> set[str]:
    """The majors of every CUDA in the image, "" among them where one is not known."""
    torch = dockerfile.torch
    found = {stack.major(stack.cuda_of_base(dockerfile.base))}
    found |= {stack.major(each.cuda) for each in stack.toolkits(dockerfile.installs)}
    for each in dockerfile.installs:
        wheel = _WHEEL.fullmatch(each.name)
        if wheel is not None:
            found.add(wheel[1] or "")
    if torch is not None and stack.said(torch.cuda) != "cpu":
        found.add(stack.major(stack.said(torch.cuda)))
    return found


def _brings_cudnn(dockerfile: Dockerfile) -> bool:
    """Whether anything may bring a cuDNN: torch, a package, a file that was not read, files of another image."""
    if dockerfile.torch is not None or any(not each.system for each in dockerfile.unread) or dockerfile.brought:
        return True
    if any(
        step.copy is not None and (step.copy.image or step.copy.source_stage is not None) for step in dockerfile.steps
    ):
        return True
    return any("cudnn" in each.name or each.name in ("tensorflow", "jax") for each in dockerfile.installs)
