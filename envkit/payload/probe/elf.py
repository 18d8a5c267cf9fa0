"""Reads the dynamic section of a 64-bit little-endian ELF file: what it needs and where it looks for it."""

from __future__ import annotations

import struct
from typing import BinaryIO, NamedTuple

# elf.h
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29


class Dynamic(NamedTuple):
    """The part of a dynamic section that decides which file is loaded; paths are not yet expanded."""

    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    data = file.read(size)
    if len(data) != size:
        raise ValueError(f"the file ends at {len(data)} bytes of {size} wanted")
    return data


def read(path: str) -> Dynamic:
    """The dynamic section of the file at ``path``; raises ValueError if it is not such an ELF file, or OSError."""
    with open(path, "rb") as file:
        head = _at(file, 0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        (start,) = struct.unpack_from("<Q", head, 32)
        entry, count = struct.unpack_from("<HH", head, 54)
        table = _at(file, start, entry * count)
        loads: list[tuple[int, int, int]] = []
        dynamic = b""
        for index in range(count):
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", table, index * entry)
            if kind == _PT_LOAD:
                loads.append((address, offset, size))
            elif kind == _PT_DYNAMIC:
                dynamic = _at(file, offset, size)
        single: dict[int, int] = {}
        needed: list[int] = []
        for tag, value in struct.iter_unpack("<QQ", dynamic[: len(dynamic) // 16 * 16]):
            if tag == _DT_NULL:
                break
            if tag == _DT_NEEDED:
                needed.append(value)
            else:
                single[tag] = value
        if _DT_STRTAB not in single or _DT_STRSZ not in single:
            return Dynamic("", (), (), ())
        places = [offset + single[_DT_STRTAB] - at for at, offset, size in loads if 0 <= single[_DT_STRTAB] - at < size]
        if not places:
            raise ValueError("its string table lies in no loaded segment")
        strings = _at(file, places[0], single[_DT_STRSZ])

    def text(at: int) -> str:
        return strings[at : strings.index(b"\0", at)].decode("utf-8", "surrogateescape")

    def paths(tag: int) -> tuple[str, ...]:
        return tuple(part for part in text(single[tag]).split(":") if part) if tag in single else ()

    return Dynamic(
        text(single[_DT_SONAME]) if _DT_SONAME in single else "",
        tuple(text(at) for at in needed),
        paths(_DT_RPATH),
        paths(_DT_RUNPATH),
    )


def expand(entries: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Search directories with $ORIGIN replaced by the directory of the object at ``path``, as ld.so does."""
    origin = path.rpartition("/")[0]
    return tuple(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin).rstrip("/") for entry in entries)
