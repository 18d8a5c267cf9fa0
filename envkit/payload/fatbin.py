"""Lists the device code in a shared object: which GPUs its machine code and PTX are for, and which toolkit made it.

The format is not published.  What stands here was found by building a file of two kernels with nvcc of two toolkits
(plain, "a" and "f" targets, PTX, relocatable, LTO, debug, and every ``-compress-mode``), by reading what ptxas of seven
toolkits of three majors writes, and by comparing 71 libraries of torch, cuDNN, cuBLAS and others of four releases with
what ``cuobjdump -all --list-elf --list-ptx`` says of them.

A section ``.nv_fatbin``, and ``__nv_relfatbin`` for code that the device linker may link again at load time, holds fat
binaries one after another, aligned to 8 bytes.  Each is a header (magic, u16 version 1, u16 its own size, u64 size of
what follows) and entries, each of them a header and its code:

====  ====  ==========================================================================================
 at   type  what
====  ====  ==========================================================================================
  0   u16   kind: 1 PTX, 2 machine code (an ELF file, "cubin"), 8 LTO intermediate code, which no driver takes
  4   u32   size of this header, 64 or more (file name, ptxas options and attributes follow)
  8   u64   size of the code with its padding
 16   u32   size of the compressed code without its padding, 0 where it is not compressed
 24   u16   minor and (26) major of the PTX ISA, or of the cubin's ABI
 28   u32   architecture: 90 for sm_90
 40   u64   flags: 0x2000 LZ4 block, 0x8000 zstd frame, 0x100000 "a" target, 0x200000 "f" target
 56   u64   size before compression
====  ====  ==========================================================================================

So architectures and PTX ISA need no decompression.  cuobjdump takes the letter of a cubin from the cubin's own flags,
which do not know "f" and have been seen to say "a" of GPUs that have no such target; here the entry's flag counts.
Some libraries keep kernels in a form of their own (cuFFT): those are not seen here, nor by cuobjdump.

The toolkit stands in the cubin: one of ABI 7 has 10 * major + minor of it in its ELF header's e_version; one of ABI 8
(GPUs since sm_100, and all GPUs since the next toolkit major) has 1 there, and a note of type 2000 and owner "NVIDIA
Corp" (``.note.nv.tkinfo``) whose text is that of ``ptxas --version``.  A package that ships one file for each of six
toolkits, and names them so, was read right wherever something was read.  Toolkits compress machine code only if told
to (torch does); LZ4 is decoded here as far as the number stands, zstd, for which the standard library has no decoder,
is not, and a file all of whose cubins are zstd frames does not name its toolkit.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from envkit.payload.elf import Elf

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_MAGIC = re.compile(re.escape(struct.pack("<I", 0xBA55ED50)))
_PTX, _CUBIN = 1, 2
_LZ4, _ZSTD, _EXACT, _FAMILY = 0x2000, 0x8000, 0x100000, 0x200000
_MOST_ENTRIES = 1 << 20  # the richest library read, cuBLASLt, has some ten thousand

_HEAD = 24  # of a cubin: up to e_version
_EI_ABIVERSION = 8
_TKINFO = re.compile(
    rb"\xd0\x07\0\0NVIDIA Corp\0.{1,64}?Cuda compilation tools, release ([0-9]{1,3})\.([0-9]{1,3})", re.DOTALL
)
_NOTES = 1 << 16  # the notes follow the names and symbols of the kernels
_TRIES = 8  # cubins whose notes are read, the smallest ones


class Code(NamedTuple):
    """The device code of one file.

    ``sass`` and ``ptx`` are architectures ("sm_90a", "compute_90"), ``isa`` the versions of the PTX language;
    ``built_with`` is the newest toolkit that its cubins name, major and minor, "" if none could be read.
    """

    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    isa: tuple[str, ...]
    built_with: str


class _Entry(NamedTuple):
    kind: int
    arch: int
    suffix: str
    version: str
    flags: int
    start: int
    size: int


def _entries(view: memoryview, start: int, end: int) -> Iterator[_Entry]:
    """The entries of all fat binaries between two offsets; raises ValueError where one goes beyond the end."""
    left = _MOST_ENTRIES
    while True:
        found = _MAGIC.search(view, start, end)  # nearly always right here: only zeros lie between
        if not found:
            return
        at = found.start()
        if end - at < 16:
            raise ValueError(f"a fat binary at {at} is cut off")
        version, header, size = struct.unpack_from("<HHQ", view, at + 4)
        start = at + header + size
        if version != 1 or header < 16 or start > end:
            raise ValueError(f"a fat binary at {at} of version {version} has {size} bytes and {end - at} are there")
        at += header
        while at < start:
            if not left or start - at < 64:
                raise ValueError(f"an entry at {at} is cut off" if left else f"more than {_MOST_ENTRIES} entries")
            left -= 1
            kind, _, header, size, packed, _, minor, major, arch = struct.unpack_from("<HHIQIIHHI", view, at)
            if kind in (_PTX, _CUBIN) and not 10 <= arch <= 999:  # sm_10 was the first
                raise ValueError(f"device code for an architecture {arch} that is none")
            (flags,) = struct.unpack_from("<Q", view, at + 40)
            if header < 64 or header + size > start - at:
                raise ValueError(f"an entry at {at} has {header} and {size} bytes, of which {start - at} are there")
            suffix = "a" if flags & _EXACT else "f" if flags & _FAMILY else ""
            yield _Entry(kind, arch, suffix, f"{major}.{minor}", flags, at + header, min(packed or size, size))
            at += header + size


def lz4(block: bytes, most: int) -> bytes:
    """The first ``most`` bytes of what an LZ4 block holds, or fewer; what is damaged ends it (LZ4 block format)."""
    out = bytearray()
    at = 0
    try:
        while len(out) < most and at < len(block):
            token = block[at]
            at += 1
            count = token >> 4
            if count == 15:
                while block[at] == 255:
                    count += 255
                    at += 1
                count += block[at]
                at += 1
            out += block[at : at + count]
            at += count
            back = block[at] | block[at + 1] << 8
            at += 2
            count = token & 15
            if count == 15:
                while block[at] == 255:
                    count += 255
                    at += 1
                count += block[at]
                at += 1
            count = min(count + 4, most)
            if not 0 < back <= len(out):
                break
            # A match may reach into what it makes itself.
            piece = bytes(out[-back:]) if back <= count else bytes(out[-back : len(out) - back + count])
            out += (piece * (count // len(piece) + 1))[:count]
    except IndexError:
        pass  # the last sequence has no match, and a prefix ends anywhere
    return bytes(out[:most])


def _start_of(view: memoryview, entry: _Entry, most: int) -> bytes:
    """The first bytes of an entry's code, empty where it is packed in a way that is not read here."""
    if entry.flags & _ZSTD:
        return b""
    # What an LZ4 block takes for its beginning is at most a little longer than the beginning.
    data = bytes(view[entry.start : entry.start + min(entry.size, most + most // 128 + 64)])
    return lz4(data, most) if entry.flags & _LZ4 else data[:most]


def _toolkit(view: memoryview, cubins: list[_Entry]) -> str:
    """The newest toolkit that the cubins name, empty if none does."""
    newest = (0, 0)
    with_notes: list[_Entry] = []
    for entry in cubins:
        head = _start_of(view, entry, _HEAD)
        if len(head) < _HEAD or head[:4] != b"\x7fELF":
            continue
        (version,) = struct.unpack_from("<I", head, 20)
        if version != 1:
            newest = max(newest, divmod(version, 10))
        elif head[_EI_ABIVERSION] >= 8:
            with_notes.append(entry)
    for entry in sorted(with_notes, key=lambda one: one.size)[:_TRIES]:
        for note in _TKINFO.finditer(_start_of(view, entry, _NOTES)):
            newest = max(newest, (int(note[1]), int(note[2])))
    return f"{newest[0]}.{newest[1]}" if newest[0] else ""


def _named(prefix: str, entries: list[_Entry]) -> tuple[str, ...]:
    return tuple(f"{prefix}_{arch}{suffix}" for arch, suffix in sorted({(one.arch, one.suffix) for one in entries}))


def read(data: bytes | memoryview | mmap.mmap, elf: Elf) -> Code | None:
    """The device code of the file in ``data``, which ``elf`` was read from; None if it has none.

    Only headers are read, and of cubins the beginning.  Raises ValueError where a fat binary is damaged, and where the
    file has no section table, without which nothing says where its device code is.
    """
    if not elf.sections:
        raise ValueError("it has no section table that would show its device code")
    with memoryview(data) as view:
        places = [elf.sections[name] for name in SECTIONS if name in elf.sections]
        entries = [entry for at, size in places for entry in _entries(view, at, at + size)]
        if not entries:
            if any(size for _, size in places):
                raise ValueError("its section for device code holds no fat binary")
            return None
        ptx = [one for one in entries if one.kind == _PTX]
        cubins = [one for one in entries if one.kind == _CUBIN]
        built_with = _toolkit(view, cubins)
    isa = sorted({one.version for one in ptx}, key=lambda text: [int(part) for part in text.split(".")])
    return Code(_named("sm", cubins), _named("compute", ptx), tuple(isa), built_with)
