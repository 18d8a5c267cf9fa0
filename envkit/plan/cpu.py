"""Torch without CUDA: which index has it, and that nothing comes beside it that needs CUDA.

Its wheels are "torch-X.Y.Z+cpu" on PyTorch's own index and on those that copy it.  PyPI has such builds for aarch64
alone, without the "+cpu" and only of the releases that the facts say so of; for x86_64 it has builds for CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from envkit.errors import Undecided, UsageError
from envkit.facts import Facts
from envkit.plan import together
from envkit.plan.indexes import Indexes
from envkit.plan.request import listed
from envkit.plan.resolve import Choice
from envkit.plan.spec import CPU, Spec
from envkit.plan.together import Chosen, Say, Solver, Unreached
from envkit.plan.uv_project import KIN

# What brings CUDA's libraries or is compiled against one major of them, by name: "nvidia-*", "cuda-*", "*-cuNN".
_FOR_CUDA = re.compile(r"(?:nvidia|cuda)-.+|.+-cu(?:da)?[0-9]{2,3}x?(?:-.+)?")
_PLAIN_PYTHON = ("nvidia-ml-py",)  # it looks for the driver's library when it is called

Files = Callable[[], Iterable[str]]  # the names of torch's files on the first index in reach that has any
Fits = Callable[[Choice, str], bool]  # whether a wheel of this name is for the place of a choice


class _Pin(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


def choose(spec: Spec, facts: Facts, solver: Solver, say: Say, *, files: Files, fits: Fits) -> Chosen:
    """``together.choose`` among builds without CUDA: those of the index in use, then those of PyTorch's own.

    Raises Undecided where no index in reach has one.
    """
    named = [(version, file) for file in files() if (version := _version(file))]
    others = tuple(
        f"torch!={each}" for each in sorted({version for version, _ in named if version.local}) if not _is_cpu(each)
    )

    def groups(choices: Iterable[Choice]) -> list[tuple[Choice, ...]]:
        every = tuple(choices)
        own = (each for choice in every if (each := _of_index(choice, named, fits, others)))
        return [*together.grouped(own), *together.grouped(every)]

    try:
        return together.choose(spec, facts, solver, say, groups)
    except Unreached as error:
        raise _not_in_reach(spec, [version for version, _ in named if _is_cpu(version)], error) from error


def in_reach(named: Indexes) -> tuple[str, ...]:
    """The names of torch's files on the first index of a spec that has any; raises Undecided where one is silent."""
    from envkit.system.index import BUDGET_S  # it costs 40 ms

    every = (each.files("torch") for each in named.places(BUDGET_S))
    return tuple(file.name for file in next((found for found in every if found), ()) if not file.yanked)


def _version(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1]
    except InvalidWheelFilename:
        return None


def _is_cpu(version: Version) -> bool:
    return version.local == CPU


def _of_index(
    choice: Choice, named: Iterable[tuple[Version, str]], fits: Fits, others: tuple[str, ...]
) -> Choice | None:
    """The choice with the wheel of the index in use, None where that has none."""
    builds = {version.local for version, file in named if version.public == str(choice.torch) and fits(choice, file)}
    if CPU in builds:
        return replace(choice, backend="", others=others)
    if None in builds and choice.plain:
        requirements = tuple(line.removesuffix(f"+{CPU}") for line in choice.requirements)
        return replace(choice, backend="", others=others, requirements=requirements)
    return None


def _not_in_reach(spec: Spec, there: list[Version], error: Unreached) -> Undecided:
    """The refusal where the index in use has none of the wanted builds and PyTorch's own does not answer."""
    has = listed([str(each) for each in sorted(set(there))])
    of_use = f"the index in use has {has} alone" if there else "PyPI has none for Linux on x86_64"
    return Undecided(
        f"no package index in reach has torch {spec.torch} for the CPU and Python {spec.python} ({of_use}), and "
        f"PyTorch's own does not answer: {error.message}",
        'name an index that has it as torch-VERSION+cpu, extra-index = ["https://HOST/..."], or drop `cuda`: a build '
        "for CUDA computes on a CPU as well",
    )


def refuse_cuda(pins: Iterable[_Pin], machine: str, required: Callable[[], Mapping[str, tuple[str, ...]]]) -> None:
    """Raises for what cannot stand beside a torch without CUDA: UsageError for what brings CUDA, with who needs it
    (``required``, by name), and Undecided for a build of torchvision or torchaudio that is for CUDA."""
    held = {pin.name: pin.version for pin in pins}
    found = [name for name in sorted(held) if _FOR_CUDA.fullmatch(name) and name not in _PLAIN_PYTHON]
    if found:
        name = found[0]
        by = listed(sorted(required().get(name, ()))) or "the spec"
        by = "the spec" if by == "none" else by
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise UsageError(
            f"`cuda` is `{CPU}`, but {by} asks for {name} {held[name]}, which belongs to CUDA{more}",
            f"take a build of {by} for CPUs, leave it out, or drop `cuda`" if by != "the spec" else "leave it out",
        )
    for name in KIN[1:]:
        if name in held and machine == "x86_64" and not _is_cpu(Version(held[name])):
            wanted = f"{name} {Version(held[name]).public}+{CPU}"
            raise Undecided(
                f"`cuda` is `{CPU}`, and of {name} the indexes in use have {held[name]}, which is built for CUDA and "
                "does not load beside a torch without it",
                f"name an index that has {wanted} in `extra-index`, or leave it out",
            )


def doubtful(pins: Iterable[_Pin], facts: Facts) -> Iterator[str]:
    """What the facts know as made for GPUs, a sentence each: which part of it works without is its own."""
    for pin in pins:
        row = facts.gpu_package(pin.name, pin.version)
        if row is not None:
            yield (
                f"{pin.name} {pin.version} is made for GPUs: what of it works beside a torch for the CPU is not known "
                f"[{row.source}; seen {row.seen}]"
            )
