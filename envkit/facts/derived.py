"""A row for a torch release that no table has, derived from the names and the METADATA of its wheels.

Pure: who calls it has asked the package index.  What METADATA does not say (the architectures, PTX, the builds on
PyTorch's own index) stays unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from email.parser import HeaderParser

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envkit.facts.rows import DerivedRow
from envkit.versions import Cuda, Cudnn, Glibc, Nccl, Torch

# The distributions that say which CUDA a wheel of torch is for; all but triton end in "-cuNN" for the wheels of a line.
_ROLES = {
    "nvidia-cuda-runtime": "runtime",
    "cuda-toolkit": "toolkit",
    "nvidia-cudnn": "cudnn",
    "nvidia-nccl": "nccl",
    "triton": "triton",
}
_LEGACY = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}  # minors of glibc 2 (PEP 600)


def releases(names: Iterable[str]) -> tuple[Torch, ...]:
    """The final releases of which a Linux wheel is among the file ``names``, oldest first."""
    found = set()
    for name in names:
        version, tags = _parsed(name)
        if version and not version.is_prerelease and not version.local and tags:
            found.add(Torch(version.public))
    return tuple(sorted(found))


def _parsed(name: str) -> tuple[Version | None, tuple[str, ...]]:
    """The version and the platforms of Linux with glibc in a wheel's name; nothing for another file."""
    try:
        _, version, _, tags = parse_wheel_filename(name)
        Torch(version.base_version)  # which an epoch is not part of
    except (InvalidWheelFilename, InvalidVersion, ValueError):
        return None, ()
    return version, tuple(sorted({tag.platform for tag in tags if tag.platform.startswith(("manylinux", "linux"))}))


def wheels(release: Torch, names: Iterable[str], machine: str) -> dict[str, str]:
    """The Linux wheels of ``release`` for ``machine`` by Python ("cp311", "cp313t"), the lowest Python first."""
    found = {}
    for name in names:
        version, platforms = _parsed(name)
        if version is None or version.local or version.is_prerelease or Torch(version.public) != release:
            continue
        if any(platform.endswith(machine) for platform in platforms):
            for tag in parse_wheel_filename(name)[3]:
                if re.fullmatch(r"cp[0-9]+", tag.interpreter):
                    found[tag.interpreter + ("t" if tag.abi.endswith("t") else "")] = name
    return dict(sorted(found.items(), key=lambda item: (int(item[0][2:].rstrip("t")), item[0])))


def row(
    release: Torch, names: Iterable[str], released: str, metadata: str, metadata_aarch64: str | None, seen: str
) -> DerivedRow:
    """What the wheels ``names`` of a release say of the build on the default index.

    ``released`` is the day of its upload; ``metadata`` is that of an x86_64 wheel, ``metadata_aarch64`` that of one for
    aarch64, None where there is none; ``seen`` is today.  Raises ValueError with a clause that says what is missing.
    """
    pythons = wheels(release, names, "x86_64")
    if not pythons:
        raise ValueError(f"torch {release} has no x86_64 Linux wheel")
    platforms = {_platform(name) for name in pythons.values()}
    if len(platforms) != 1:
        raise ValueError(f"the wheels of torch {release} have several platform tags: {', '.join(sorted(platforms))}")
    platform = platforms.pop()
    oldest = next(iter(pythons)).rstrip("t")
    pins = pinned(metadata, "x86_64", f"{oldest[2]}.{oldest[3:]}")
    toolkit = _exact(pins.get("toolkit"))
    runtime = toolkit or _exact(pins.get("runtime"))
    if runtime is None:
        raise ValueError(f"the METADATA of torch {release} pins no CUDA runtime")
    cuda = Cuda(runtime).upto(2)
    arm = None if metadata_aarch64 is None else pinned(metadata_aarch64, "aarch64", f"{oldest[2]}.{oldest[3:]}")
    requires = str(HeaderParser().parsestr(metadata)["Requires-Python"] or "")
    cudnn, nccl = _exact(pins.get("cudnn")), _exact(pins.get("nccl"))
    return DerivedRow(
        torch=release,
        variant=f"cu{cuda.major}{cuda.minor}",
        cuda=cuda,
        default=True,
        published=True,
        released=released,
        cudnn=Cudnn(cudnn) if cudnn else None,
        nccl=Nccl(nccl) if nccl else None,
        toolkit=Cuda(toolkit) if toolkit else None,
        triton=pins.get("triton"),
        requires_python=requires or None,
        pythons=tuple(pythons),
        platform=platform,
        glibc=_glibc(platform),
        archs=None,
        ptx=None,
        archs_aarch64=None,
        ptx_aarch64=None,
        pypi_aarch64=None if arm is None else "cuda" if {"runtime", "toolkit"} & arm.keys() else "cpu",
        torchvision=None,
        torchaudio=None,
        note="derived, not verified",
        source=f"METADATA of {next(iter(pythons.values()))} on the package index",
        seen=seen,
    )


def _platform(name: str) -> str:
    """The platform tag of a wheel that asks for the oldest glibc: what the others say is implied by it."""
    return min(_parsed(name)[1], key=lambda tag: (_glibc(tag) or Glibc("99"), tag))


def _glibc(platform: str) -> Glibc | None:
    """The oldest glibc that a platform tag promises to run on (PEP 600); None for plain "linux"."""
    words = platform.split("_")
    if words[0] == "manylinux" and len(words) > 2 and words[1].isdigit() and words[2].isdigit():
        return Glibc(f"{words[1]}.{words[2]}")
    return Glibc(f"2.{_LEGACY[words[0]]}") if words[0] in _LEGACY else None


def pinned(metadata: str, machine: str, python: str) -> dict[str, str]:
    """The specifiers of the CUDA side by role (runtime, toolkit, cudnn, nccl, triton) that METADATA asks for on Linux
    with ``machine`` and ``python`` ("A.B")."""
    place = environment(machine, python)
    found: dict[str, str] = {}
    for requirement in requirements(metadata):
        base, _, line = requirement.name.lower().replace("_", "-").rpartition("-cu")
        role = _ROLES.get(base if base and line.isdigit() else requirement.name.lower().replace("_", "-"))
        if role and (requirement.marker is None or requirement.marker.evaluate(place)):
            found[role] = str(requirement.specifier)
    return found


def requirements(metadata: str) -> tuple[Requirement, ...]:
    """The Requires-Dist lines of METADATA; one that is not written as PEP 508 says is left out."""
    found = []
    for text in HeaderParser().parsestr(metadata).get_all("Requires-Dist", []):
        try:
            found.append(Requirement(str(text)))
        except InvalidRequirement:
            continue
    return tuple(found)


def environment(machine: str, python: str) -> Mapping[str, str]:
    """PEP 508's variables of CPython ``python`` ("A.B") on Linux, without an extra."""
    return {
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_version": "",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "python_version": python,
        "python_full_version": f"{python}.0",
        "extra": "",
    }


def _exact(specifier: str | None) -> str | None:
    """The one version that a specifier lets in, None for a range."""
    try:
        parts = list(SpecifierSet(specifier or ""))
    except InvalidSpecifier:
        return None
    exact = len(parts) == 1 and parts[0].operator in ("==", "===") and not parts[0].version.endswith("*")
    version = Version(parts[0].version) if exact else None
    return version.base_version if version is not None and not version.epoch else None
