"""Finds the compiled extensions that call CUDA: whose they are, what GPUs they are built for, which runtime they use.

How a runtime within the file is told: the CUDA runtime names its shared memory with a text that begins with
"/cudart.shm.".  Every libcudart of three majors that was read holds it, and so does every file linked against
libcudart_static.a, with ``--gc-sections`` and stripped too; a library that merely lists CUDA's error names, such as
libtorch_cuda_linalg.so, does not.  The text is looked for only in files that import what the runtime imports.
"""

from __future__ import annotations

import os
import re

from envkit.payload import elf, fatbin
from envkit.payload.probe import libs, wheels

STATIC = "static"
_LIBRARY = re.compile(r"\.so(?:\.[0-9.]+)?\Z")
_CUDART = re.compile(r"libcudart(?:[-.][0-9a-f]{8})?\.so(?:\.|\Z)")  # auditwheel renames it with a hash
_TORCH = re.compile(r"lib(?:torch|c10)(?:_\w+)?\.so\Z")
# What libcudart_static.a imports and hardly anything else does.  Linkers may keep a name as the end of a longer one.
_IMPORTS = tuple(re.compile(name + rb"\0") for name in (b"dlvsym", b"nftw", b"shm_open"))
_TEXT = re.compile(rb"/cudart\.shm\.")


def _holds(data: memoryview, section: tuple[int, int], wanted: re.Pattern[bytes]) -> bool:
    start, size = section
    return wanted.search(data, start, start + size) is not None


def runtime(data: memoryview, file: elf.Elf) -> str:
    """The libcudart that a file needs, STATIC where it carries its own, "" where it calls none."""
    for soname in file.needed:
        if _CUDART.match(soname):
            return soname
    names, constants = file.sections.get(".dynstr", (0, 0)), file.sections.get(".rodata", (0, 0))
    if all(_holds(data, names, name) for name in _IMPORTS) and _holds(data, constants, _TEXT):
        return STATIC
    return ""


def describe(data: memoryview, file: elf.Elf) -> dict[str, object] | None:
    """What the file is built for, in the words of the subject; None if it has no device code and calls no runtime.

    Raises ValueError where its device code is damaged.
    """
    # Without a section table nothing says where device code is; such a file is judged by the runtime it needs.
    code = fatbin.read(data, file) if file.sections else None
    cudart = runtime(data, file)
    if not code and not cudart:
        return None
    return {
        "cudart": cudart,
        "built_with": code.built_with if code else "",
        "sass": list(code.sass) if code else [],
        "ptx": list(code.ptx) if code else [],
        "for_torch": any(_TORCH.match(soname) for soname in file.needed),
    }


def extensions(dists: list[wheels.Dist]) -> list[dict[str, object]]:
    """All extensions that a RECORD lists, but for torch's, Triton's and NVIDIA's own and copies of NVIDIA's libraries.

    Raises ValueError, with the file's name, where device code is damaged.  A file that is gone or is no ELF file of
    this kind is none: importing it fails, whatever the GPU.
    """
    found: list[dict[str, object]] = []
    seen: set[str] = set()
    for dist in dists:
        if wheels.is_cuda(dist.name) or ".so" not in dist.record:
            continue
        for entry in wheels.entries(dist, _LIBRARY.search):
            if libs.family(entry.path):
                continue
            real = os.path.realpath(entry.path)
            if real in seen:
                continue
            seen.add(real)
            try:
                data = elf.mapped(real)
                file = elf.read(data)
            except (OSError, ValueError):
                continue
            try:
                told = describe(data, file)
            except ValueError as error:
                raise ValueError(f"{real}: {error}") from error
            if told:
                found.append({"path": real, "owner": entry.owner, "owner_version": entry.version, **told})
    return found
