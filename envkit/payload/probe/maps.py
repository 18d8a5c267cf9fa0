"""What the dynamic linker holds: the mapped objects in load order, and where a symbol resolves."""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

from envkit.payload import mapped as mapped_files

_LIBC = ctypes.CDLL(None)


class _PhdrInfo(ctypes.Structure):
    """struct dl_phdr_info of link.h."""

    _fields_ = [
        ("address", ctypes.c_void_p), ("name", ctypes.c_char_p), ("headers", ctypes.c_void_p),
        ("count", ctypes.c_uint16), ("adds", ctypes.c_ulonglong), ("subs", ctypes.c_ulonglong),
    ]  # fmt: skip


class _Phdr(ctypes.Structure):
    """Elf64_Phdr of elf.h."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("kind", "flags")),
        *((name, ctypes.c_uint64) for name in ("offset", "address", "physical", "in_file", "in_memory", "align")),
    ]


class Loaded(NamedTuple):
    """One mapped object: its name as the linker spelled it, its base address, and where its dynamic section lies."""

    path: str
    base: int
    dynamic: int
    dynamic_size: int


class _DlInfo(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = [
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p),
    ]  # fmt: skip


_LIBC.dlsym.restype = ctypes.c_void_p
_LIBC.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_LIBC.dladdr.restype = ctypes.c_int
_LIBC.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]


def mapped() -> list[str]:
    """The names of all mapped objects in load order, as the linker spelled them when it searched.

    The spelling matters: it still shows the search directory, "torch/lib/../../nvidia/cublas/lib".
    """
    return [one.path for one in loaded()]


def loaded() -> list[Loaded]:
    """All mapped objects in load order."""
    found: list[Loaded] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_PhdrInfo), ctypes.c_size_t, ctypes.c_void_p)

    def visit(info: object, size: int, data: object) -> int:
        one = info.contents  # type: ignore[attr-defined]  # ctypes types a callback's pointer as object
        if one.name and b"/" in one.name:
            base, dynamic, length = one.address or 0, 0, 0
            for header in (_Phdr * one.count).from_address(one.headers or 0) if one.headers else ():
                if header.kind == 2:  # PT_DYNAMIC
                    dynamic, length = base + header.address, header.in_memory
            found.append(Loaded(os.fsdecode(one.name), base, dynamic, length))
        return 0

    _LIBC.dl_iterate_phdr(kind(visit), None)
    return found


def deleted() -> set[str]:
    """The paths of mapped files that are no longer on disk under their name."""
    mark = " (deleted)"
    return {path[: -len(mark)] for path in mapped_files.paths() if path.startswith("/") and path.endswith(mark)}


def handle(path: str) -> ctypes.CDLL:
    """A handle on the already mapped object ``path``; raises OSError if it is not mapped."""
    return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)


def resolves(symbol: str, scope: int = 0) -> str:
    """The file in which ``symbol`` resolves, empty if nowhere.

    ``scope`` is a dlopen handle, or 0 for the process's global scope (RTLD_DEFAULT).
    """
    return file_at(int(_LIBC.dlsym(scope, symbol.encode()) or 0))


def file_at(address: int) -> str:
    """The mapped file in which ``address`` lies, empty if in none."""
    info = _DlInfo()
    if not address or not _LIBC.dladdr(address, ctypes.byref(info)) or not info.file:
        return ""
    return os.fsdecode(info.file)


def address(symbol: str, scope: int) -> int:
    """The address of ``symbol`` in a dlopen handle's scope, 0 if it is not there."""
    return int(_LIBC.dlsym(scope, symbol.encode()) or 0)
