"""Puts shared objects with device code together byte by byte, so that no binary of anybody's is kept for the tests."""

from __future__ import annotations

import struct

PTX, CUBIN, LTO = 1, 2, 8
PLAIN, LZ4, ZSTD, EXACT, FAMILY = 0x11, 0x2011, 0x8011, 0x100011, 0x200011


def entry(
    kind: int, arch: int, code: bytes, flags: int = PLAIN, version: tuple[int, int] = (1, 7), more: int = 0
) -> bytes:
    """One entry with ``more`` bytes of header behind the fixed part."""
    padded = code + bytes(-len(code) % 8)
    packed = len(code) if flags & (0x2000 | 0x8000) else 0
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, 64 + more, len(padded), packed, 0, *version[::-1], arch, 0, 0, flags, 0, 0
    )
    return head + b"\xff" * more + padded


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(needed: tuple[str, ...] = (), **sections: bytes) -> bytes:
    """A shared object that needs ``needed`` and has these sections; in a name, "__dot__" stands for a dot."""
    names = b"\0" + b"".join(one.encode() + b"\0" for one in needed)
    dynamic, at = b"", 1
    for one in needed:
        dynamic += struct.pack("<QQ", 1, at)
        at += len(one) + 1
    names_at = 64 + 2 * 56
    dynamic += struct.pack("<QQQQQQ", 5, names_at, 10, len(names), 0, 0)
    data = names + bytes(-len(names) % 8) + dynamic
    dynamic_at = names_at + len(data) - len(dynamic)
    texts, rows = b"\0", [bytes(64)]
    for name, content in [*sections.items(), ("__dot__shstrtab", b"")]:
        place, texts = len(texts), texts + name.replace("__dot__", ".").encode() + b"\0"
        content = content or texts
        rows.append(struct.pack("<IIQQQQIIQQ", place, 1, 0, 0, names_at + len(data), len(content), 0, 0, 8, 0))
        data += content + bytes(-len(content) % 8)
    size = names_at + len(data)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, size, 0, 64, 56, 2, 64, len(rows), len(rows) - 1)
    loads = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
    loads += struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, dynamic_at, 0, len(dynamic), len(dynamic), 8)
    return head + loads + data + b"".join(rows)


def cubin(toolkit: int, size: int = 0) -> bytes:
    """The beginning of machine code of ABI 7, whose header names its toolkit."""
    return b"\x7fELF\x02\x01\x01\x33\x07".ljust(16, b"\0") + struct.pack("<HHI", 2, 190, toolkit) + bytes(44 + size)


def cubin8(toolkit: str, before: int = 200, owner: bytes = b"NVIDIA Corp\0") -> bytes:
    """Machine code of ABI 8, which names its toolkit in a note behind ``before`` bytes of names."""
    head = b"\x7fELF\x02\x01\x01\x41\x08".ljust(16, b"\0") + struct.pack("<HHI", 2, 190, 1)
    text = f"\0ptxas\0Cuda compilation tools, release {toolkit}, V{toolkit}.88\0".encode()
    note = struct.pack("<III", len(owner), 24 + len(text), 2000) + owner + struct.pack("<6I", 2, 0, 1, 7, 54, 96) + text
    return head + b"kernel name " * (before // 12) + note + bytes(64)
