"""Reads 64-bit little-endian ELF files out of a buffer: what they need, where they look for it, what they define.

Layouts are those of elf.h and of the gABI; search paths are expanded as ld.so(8) says.  Only the pages that hold what
was asked for are touched, so a library of a gigabyte that is mapped costs as much as a small one.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

# elf.h
_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
_SHT_NOBITS = 8
_SHN_XINDEX = 0xFFFF
_STB_LOCAL, _STB_WEAK = 0, 2
_DT_NULL, _DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 0, 1, 4, 5, 6, 10
_DT_SONAME, _DT_RPATH, _DT_RUNPATH = 14, 15, 29
_DT_GNU_HASH, _DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_VER_NDX_GLOBAL, _VERSYM_HIDDEN = 1, 0x8000
_MACHINES = {62: "x86_64", 183: "aarch64"}

# Bounds for hostile files.  The richest real ones have some hundred dynamic entries and a few dozen versions.
_MOST_ENTRIES = 1 << 16
_LONGEST_TEXT = 1 << 20
_MOST_TEXT = 1 << 24
_PIECE = 256


class Elf(NamedTuple):
    """A shared object or executable; search paths are not yet expanded.

    ``needs`` are (soname of the provider, names of its versions), ``defines`` the versions it has itself; ``sections``
    maps a name to file offset and size, the first of a name, and is empty where the file has no section table.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    needs: tuple[tuple[str, tuple[str, ...]], ...]
    defines: tuple[str, ...]
    sections: dict[str, tuple[int, int]]


class Symbol(NamedTuple):
    """One dynamic symbol; ``provider`` is the soname that an undefined one wants its version from, "" if any may."""

    name: str
    version: str
    defined: bool
    weak: bool
    provider: str


class _Head(NamedTuple):
    """The file header's fields that matter here."""

    machine: int
    phoff: int
    shoff: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int


class _Texts:
    """Strings of one table, read one by one; raises ValueError once their sum is more than any real file's."""

    def __init__(self, view: memoryview, start: int, size: int) -> None:
        self._table = _cut(view, start, size)
        self._left = _MOST_TEXT

    def at(self, offset: int) -> str:
        """The string at ``offset`` of the table; raises ValueError where it does not end within the table."""
        size = _PIECE
        while offset < len(self._table) and size <= _LONGEST_TEXT:
            piece = bytes(self._table[offset : offset + size])
            end = piece.find(b"\0")
            if end >= 0:
                self._left -= end + 1
                if self._left < 0:
                    break
                return piece[:end].decode("utf-8", "surrogateescape")
            if len(piece) < size:
                break
            size *= 16
        raise ValueError("a name in it does not end")


def _cut(view: memoryview, start: int, size: int) -> memoryview:
    """A part of the file; raises ValueError if the file has no such part."""
    if size > len(view) or start > len(view) - size:
        raise ValueError(f"the file ends at {len(view)} bytes and names {size} bytes at {start}")
    return view[start : start + size]


def mapped(path: str) -> memoryview:
    """The file at ``path`` as a buffer of which only touched pages are read; it is unmapped when its last view is gone.

    Raises OSError, and ValueError for an empty file.
    """
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Without this the kernel reads ahead at every touched page, a whole library for its headers.
    data.madvise(mmap.MADV_RANDOM)
    return memoryview(data)


def _ahead(view: memoryview, start: int, size: int) -> None:
    """Has the kernel read a table that will be read from end to end."""
    if isinstance(view.obj, mmap.mmap) and len(view.obj) == len(view):
        first = start - start % mmap.PAGESIZE
        view.obj.madvise(mmap.MADV_WILLNEED, first, start + size - first)


def _head(view: memoryview) -> _Head:
    if len(view) < 64 or bytes(view[:6]) != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    kind, machine = struct.unpack_from("<HH", view, 16)
    if kind not in (_ET_EXEC, _ET_DYN):
        raise ValueError(f"ELF type {kind} is no shared object or executable")
    phoff, shoff = struct.unpack_from("<QQ", view, 32)
    return _Head(machine, phoff, shoff, *struct.unpack_from("<HHHHH", view, 54))


class _Dynamic(NamedTuple):
    """The dynamic section, and where loaded addresses stand in the file."""

    single: dict[int, int]
    needed: list[int]
    loads: list[tuple[int, int, int]]

    def offset(self, tag: int) -> int:
        """Where in the file the table of ``tag`` stands; raises ValueError if it is in no loaded segment."""
        address = self.single[tag]
        for start, offset, size in self.loads:
            if 0 <= address - start < size:
                return offset + address - start
        raise ValueError(f"the table of dynamic tag {tag:#x} lies in no loaded segment")

    def texts(self, view: memoryview) -> _Texts:
        """The dynamic strings."""
        if _DT_STRTAB not in self.single or _DT_STRSZ not in self.single:
            return _Texts(view, 0, 0)
        return _Texts(view, self.offset(_DT_STRTAB), self.single[_DT_STRSZ])


def _dynamic(view: memoryview, head: _Head) -> _Dynamic:
    found = _Dynamic({}, [], [])
    if not head.phnum:
        return found
    if head.phentsize != 56:
        raise ValueError(f"a program header of {head.phentsize} bytes")
    table = memoryview(b"")
    headers = _cut(view, head.phoff, 56 * head.phnum)
    for kind, _, offset, address, _, size, _, _ in struct.iter_unpack("<IIQQQQQQ", headers):
        if kind == _PT_LOAD:
            found.loads.append((address, offset, size))
        elif kind == _PT_DYNAMIC:
            table = _cut(view, offset, size)
    for count, (tag, value) in enumerate(struct.iter_unpack("<QQ", table[: len(table) // 16 * 16])):
        if tag == _DT_NULL:
            break
        if count == _MOST_ENTRIES:
            raise ValueError(f"more than {_MOST_ENTRIES} dynamic entries")
        if tag == _DT_NEEDED:
            found.needed.append(value)
        else:
            found.single[tag] = value
    return found


def _sections(view: memoryview, head: _Head) -> dict[str, tuple[int, int]]:
    if not head.shoff:
        return {}
    if head.shentsize != 64:
        raise ValueError(f"a section header of {head.shentsize} bytes")
    first = struct.unpack("<IIQQQQIIQQ", _cut(view, head.shoff, 64))
    # Counts that do not fit into the file header stand in the first section's (gABI, extended numbering).
    count = head.shnum or first[5]
    names = first[6] if head.shstrndx == _SHN_XINDEX else head.shstrndx
    if count > _MOST_ENTRIES or names >= count:
        raise ValueError(f"section {names} of {count} should hold their names")
    rows = list(struct.iter_unpack("<IIQQQQIIQQ", _cut(view, head.shoff, 64 * count)))
    texts = _Texts(view, rows[names][4], rows[names][5])
    found: dict[str, tuple[int, int]] = {}
    for name, kind, _, _, offset, size, _, _, _, _ in rows[1:]:
        if kind == _SHT_NOBITS:
            offset, size = 0, 0
        _cut(view, offset, size)
        found.setdefault(texts.at(name), (offset, size))
    return found


def _needs(view: memoryview, dynamic: _Dynamic, texts: _Texts) -> list[tuple[str, list[tuple[int, str]]]]:
    """DT_VERNEED: for each provider the versions, each with its index in DT_VERSYM."""
    found: list[tuple[str, list[tuple[int, str]]]] = []
    if _DT_VERNEED not in dynamic.single or not dynamic.single.get(_DT_VERNEEDNUM):
        return found
    left = _MOST_ENTRIES
    at = dynamic.offset(_DT_VERNEED)
    while left:
        _, count, file, aux, following = struct.unpack("<HHIII", _cut(view, at, 16))
        versions: list[tuple[int, str]] = []
        place = at + aux
        for _ in range(min(count, left)):
            _, _, index, name, step = struct.unpack("<IHHII", _cut(view, place, 16))
            versions.append((index, texts.at(name)))
            place += step
            if not step:
                break
        found.append((texts.at(file), versions))
        left -= min(count, left - 1) + 1
        if not following or len(found) >= dynamic.single[_DT_VERNEEDNUM]:
            return found
        at += following
    raise ValueError(f"more than {_MOST_ENTRIES} needed versions")


def _defines(view: memoryview, dynamic: _Dynamic, texts: _Texts) -> list[tuple[int, str]]:
    """DT_VERDEF: the versions that the file defines with their indices in DT_VERSYM; the first is its own name."""
    found: list[tuple[int, str]] = []
    if _DT_VERDEF not in dynamic.single or not dynamic.single.get(_DT_VERDEFNUM):
        return found
    at = dynamic.offset(_DT_VERDEF)
    while len(found) < _MOST_ENTRIES:
        _, _, index, count, _, aux, following = struct.unpack("<HHHHIII", _cut(view, at, 20))
        name = texts.at(struct.unpack("<I", _cut(view, at + aux, 4))[0]) if count else ""
        found.append((index, name))
        if not following or len(found) >= dynamic.single[_DT_VERDEFNUM]:
            return found
        at += following
    raise ValueError(f"more than {_MOST_ENTRIES} defined versions")


def read(data: bytes | memoryview | mmap.mmap) -> Elf:
    """What the file in ``data`` needs and defines.

    Raises ValueError if it is no 64-bit little-endian shared object or executable, or is damaged, a section that is cut
    off included; never another exception, and in a time bounded by constants.
    """
    view = memoryview(data)
    head = _head(view)
    dynamic = _dynamic(view, head)
    texts = dynamic.texts(view)
    single = dynamic.single

    def paths(tag: int) -> tuple[str, ...]:
        return tuple(part for part in texts.at(single[tag]).split(":") if part) if tag in single else ()

    return Elf(
        _MACHINES.get(head.machine, f"machine {head.machine}"),
        texts.at(single[_DT_SONAME]) if _DT_SONAME in single else "",
        tuple(texts.at(at) for at in dynamic.needed),
        paths(_DT_RPATH),
        paths(_DT_RUNPATH),
        tuple((file, tuple(name for _, name in names)) for file, names in _needs(view, dynamic, texts)),
        tuple(name for _, name in _defines(view, dynamic, texts)),
        _sections(view, head),
    )


def _symbol_count(view: memoryview, dynamic: _Dynamic, elf: Elf) -> int:
    """The number of dynamic symbols: from the section table, else from the hash table that the linker uses."""
    if ".dynsym" in elf.sections:
        return elf.sections[".dynsym"][1] // 24
    if _DT_HASH in dynamic.single:
        return int(struct.unpack("<II", _cut(view, dynamic.offset(_DT_HASH), 8))[1])
    if _DT_GNU_HASH not in dynamic.single:
        return 0
    at = dynamic.offset(_DT_GNU_HASH)
    buckets, first, bloom, _ = struct.unpack("<IIII", _cut(view, at, 16))
    at += 16 + 8 * bloom
    last = max((number for (number,) in struct.iter_unpack("<I", _cut(view, at, 4 * buckets))), default=0)
    if last < first:
        return int(first)
    at += 4 * buckets + 4 * (last - first)
    for (link,) in struct.iter_unpack("<I", view[at : len(view) - (len(view) - at) % 4]):
        last += 1
        if link & 1:  # the end of the last chain
            return int(last)
    raise ValueError("its hash table does not end")


def symbols(data: bytes | memoryview | mmap.mmap, elf: Elf) -> Iterator[Symbol]:
    """The dynamic symbols of the file in ``data``, which ``elf`` was read from; local and nameless ones left out.

    Raises ValueError where a table is damaged, possibly after some symbols.  A version that a library keeps for old
    callers only (the hidden bit of DT_VERSYM) counts as defined.
    """
    view = memoryview(data)
    dynamic = _dynamic(view, _head(view))
    if _DT_SYMTAB not in dynamic.single or _DT_STRTAB not in dynamic.single or _DT_STRSZ not in dynamic.single:
        return
    count = _symbol_count(view, dynamic, elf)
    place = dynamic.offset(_DT_SYMTAB)
    table = _cut(view, place, 24 * count)
    _ahead(view, place, 24 * count)
    texts = dynamic.texts(view)
    wanted: dict[int, tuple[str, str]] = {}
    for file, names in _needs(view, dynamic, texts):
        wanted.update((index & ~_VERSYM_HIDDEN, (name, file)) for index, name in names)
    for index, name in _defines(view, dynamic, texts):
        if index & ~_VERSYM_HIDDEN != _VER_NDX_GLOBAL:  # the first only names the file
            wanted.setdefault(index & ~_VERSYM_HIDDEN, (name, ""))
    indices: tuple[int, ...] = ()
    if _DT_VERSYM in dynamic.single:
        indices = struct.unpack(f"<{count}H", _cut(view, dynamic.offset(_DT_VERSYM), 2 * count))
    # One copy: bytes can be searched, a memoryview cannot.
    place, size = dynamic.offset(_DT_STRTAB), dynamic.single[_DT_STRSZ]
    strings = _cut(view, place, size)
    _ahead(view, place, size)
    names_at = bytes(strings)
    left = 4 * len(names_at) + _MOST_TEXT  # names may share their ends, yet not without measure
    none = ("", "")
    for at, (name, info, _, section, _, _) in enumerate(struct.iter_unpack("<IBBHQQ", table)):
        if not name or info >> 4 == _STB_LOCAL:
            continue
        end = names_at.find(b"\0", name)
        left -= end - name
        if end < 0 or left < 0:
            raise ValueError("a symbol's name does not end")
        version, provider = wanted.get(indices[at] & ~_VERSYM_HIDDEN, none) if indices else none
        text = names_at[name:end].decode("utf-8", "surrogateescape")
        yield Symbol(text, version, section != 0, info >> 4 == _STB_WEAK, provider)


# A name in braces or one that no letter, digit or underscore follows (ld.so(8), dynamic string tokens; glibc's is_dst).
_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")


def own_lib() -> str:
    """What $LIB stands for on this machine: where its glibc was built to keep libraries, below / or /usr.

    Debian's and Ubuntu's multiarch directory where there is one, else lib64 where that is a directory of its own.
    """
    multiarch = f"lib/{os.uname().machine}-linux-gnu"
    if os.path.isdir("/usr/" + multiarch):
        return multiarch
    return "lib64" if os.path.realpath("/usr/lib64") != os.path.realpath("/usr/lib") else "lib"


def expand(entries: tuple[str, ...], path: str, lib: str = "", platform: str = "") -> tuple[str, ...]:
    """Search directories with $ORIGIN, $LIB and $PLATFORM replaced as ld.so does for the object at ``path``.

    ``lib`` and ``platform`` are what the last two stand for, this machine's where they are empty.
    """
    if not any("$" in entry for entry in entries):
        return tuple(entry.rstrip("/") for entry in entries)
    values = {"ORIGIN": path.rpartition("/")[0], "LIB": lib, "PLATFORM": platform or os.uname().machine}
    if not lib and any("LIB" in entry for entry in entries):
        values["LIB"] = own_lib()
    return tuple(_TOKEN.sub(lambda found: values[found[1] or found[2]], entry).rstrip("/") for entry in entries)
