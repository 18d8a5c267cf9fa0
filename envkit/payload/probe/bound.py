"""Which copy of a library each caller really gets: read out of the callers' own relocated tables, in memory.

Asking the linker again (dlsym) says what a caller would get; its own table says what it got, which differs when copies
came in between.  ld.so leaves the dynamic section's addresses relocated in memory (elf.h, ld.so's _dl_relocate_object).
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from typing import NamedTuple

from envkit.payload.probe import libs, maps

# elf.h
_DT_NEEDED, _DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_STRSZ, _DT_JMPREL = 1, 2, 5, 6, 7, 8, 10, 23
_DT_GNU_HASH = 0x6FFFFEF5
_SYMBOL, _RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
# R_*_JUMP_SLOT, R_*_GLOB_DAT and R_*_64 of x86-64 and of AArch64: those that write a symbol's address
_WRITES = (7, 6, 1, 1026, 1025, 257)
_MOST_STRINGS = 256 << 20  # bounds a damaged header; libtorch_cpu's names take 20 MB

# family: how the names of its functions begin
_NAMES = {
    "cuda": rb"cu(?!File)[A-Z]",
    "cudart": rb"(?:__)?cuda[A-Z]",
    "cublasLt": rb"cublasLt[A-Z]",
    "cublas": rb"cublas(?!Lt)[A-Z]",
    "cudnn": rb"cudnn[A-Z]",
    "cufft": rb"cufft[A-Z]",
    "cufile": rb"cuFile[A-Z]",
    "cupti": rb"cupti[A-Z]",
    "curand": rb"curand[A-Z]",
    "cusolver": rb"cusolver(?:Dn|Sp|Rf|Get)[A-Z]",
    "cusparseLt": rb"cusparseLt[A-Z]",
    "cusparse": rb"cusparse(?!Lt)[A-Z]",
    "nccl": rb"nccl[A-Z]",
    "nvjitlink": rb"(?:__)?nvJitLink[A-Z]",
    "nvrtc": rb"nvrtc[A-Z]",
    "nvshmem_host": rb"nvshmem",
}
_NAME = re.compile(b"|".join(b"(?P<%s>%s)" % (name.encode(), text) for name, text in _NAMES.items()))
# The symbol by which a copy of each family is recognised where nothing is known of the caller's own table.
BOUND = {name: symbol for name, (symbol, _) in libs.ASKED.items() if name not in ("cudnn_graph", "cupti")}


class _Object(NamedTuple):
    """One mapped object: where it lies and what its dynamic section says (addresses made absolute)."""

    path: str
    base: int
    tags: dict[int, int]
    needed: tuple[str, ...]


def _read(one: maps.Loaded) -> _Object | None:
    tags: dict[int, int] = {}
    needed: list[int] = []
    for tag, value in struct.iter_unpack("<QQ", ctypes.string_at(one.dynamic, one.dynamic_size // 16 * 16)):
        if tag == 0:
            break
        if tag == _DT_NEEDED:
            needed.append(value)
        elif tag in (_DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_JMPREL, _DT_GNU_HASH):
            tags[tag] = value if value >= one.base else value + one.base
        else:
            tags[tag] = value
    strings, size = tags.get(_DT_STRTAB, 0), tags.get(_DT_STRSZ, 0)
    if not strings or not 0 < size < _MOST_STRINGS:
        return None
    names = tuple(os.fsdecode(ctypes.string_at(strings + at)) for at in needed if at < size)
    return _Object(one.path, one.base, tags, names)


def _imports(one: _Object) -> dict[str, tuple[str, list[int]]]:
    """For each family one imported symbol's name, and the numbers of all that the object imports of it."""
    tags = one.tags
    if _DT_GNU_HASH not in tags or _DT_SYMTAB not in tags:
        return {}
    (count,) = struct.unpack_from("<I", ctypes.string_at(tags[_DT_GNU_HASH] + 4, 4))  # the first symbol it defines
    found: dict[str, tuple[str, list[int]]] = {}
    symbols = ctypes.string_at(tags[_DT_SYMTAB], count * _SYMBOL.size)
    strings = ctypes.string_at(tags[_DT_STRTAB], tags[_DT_STRSZ])
    for number, (at, _info, _other, section, _value, _size) in enumerate(_SYMBOL.iter_unpack(symbols)):
        match = _NAME.match(strings, at) if section == 0 else None
        if match:
            name = strings[at : strings.index(b"\0", at)].decode("ascii", "replace")
            found.setdefault(str(match.lastgroup), (name, []))[1].append(number)
    return found


def _slots(one: _Object, wanted: set[int]) -> dict[int, int]:
    """The first address that the linker wrote for each of the symbols ``wanted``, by its number."""
    found: dict[int, int] = {}
    for start, size in ((_DT_JMPREL, _DT_PLTRELSZ), (_DT_RELA, _DT_RELASZ)):
        if start not in one.tags or not one.tags.get(size):
            continue
        table = ctypes.string_at(one.tags[start], one.tags[size] // _RELOCATION.size * _RELOCATION.size)
        for number in wanted - set(found):
            for kind in _WRITES:
                at = table.find(struct.pack("<II", kind, number))
                while at >= 0 and at % _RELOCATION.size != 8:
                    at = table.find(struct.pack("<II", kind, number), at + 1)
                if at >= 0:
                    (offset,) = struct.unpack_from("<Q", table, at - 8)
                    (addend,) = struct.unpack_from("<q", table, at + 8)
                    value = ctypes.c_uint64.from_address(one.base + offset).value
                    found[number] = value - addend if kind in (1, 257) else value
                    break
    return found


def _own(one: _Object, families: set[str]) -> list[dict[str, str]]:
    """What the object's own table holds, one row a family; where its slot is not yet filled, what the linker says."""
    imports = {name: what for name, what in _imports(one).items() if name in families and name != libs.family(one.path)}
    slots = _slots(one, {numbers[0] for _, numbers in imports.values()})
    found: list[dict[str, str]] = []
    for name, (symbol, numbers) in imports.items():
        path, via = maps.file_at(slots.get(numbers[0], 0)), "relocation"
        if not path or path == one.path:  # a lazy slot leads back into the caller until the first call
            path, via = maps.resolves(symbol, maps.handle(one.path)._handle), "dlsym"
        if path and path != one.path:
            found.append(_row(libs.family(path) or name, symbol, os.path.basename(one.path), path, via))
    return found


def _row(name: str, symbol: str, caller: str, path: str, via: str) -> dict[str, str]:
    return {"name": name, "symbol": symbol, "caller": caller, "path": os.path.realpath(path), "via": via}


def bindings(families: list[str]) -> list[dict[str, str]]:
    """Where each caller's symbols of the mapped ``families`` lead: the process, libtorch_cuda.so, every other object.

    The callers are the objects that name a library of CUDA in DT_NEEDED, libtorch_cuda.so also where it does not.
    """
    found: list[dict[str, str]] = []
    for name in families:
        path = maps.resolves(BOUND[name]) if name in BOUND else ""
        if path:
            found.append(_row(name, BOUND[name], "process", path, "dlsym"))
    for loaded in maps.loaded():
        torch_cuda = libs.family(loaded.path) == "torch_cuda"
        one = _read(loaded)
        if one is None or not (torch_cuda or any(libs.is_cuda(libs.family(name)) for name in one.needed)):
            continue
        rows = _own(one, set(families))
        found += rows
        if torch_cuda:  # what it calls through other objects, or opens by name
            scope = maps.handle(loaded.path)._handle
            for name in sorted(set(families) & set(BOUND) - {row["name"] for row in rows}):
                path = maps.resolves(BOUND[name], scope)
                if path:
                    found.append(_row(name, BOUND[name], os.path.basename(loaded.path), path, "dlsym"))
    return found
