"""`python3 envkit_builds.py FILE`: which of the files in FILE, a JSON object of paths and build ids (hexadecimal, or
empty where none is known), are not there or are other builds; a JSON object of what is wrong, by path, to stdout.

The build id is the note that the linker leaves (elf(5), NT_GNU_BUILD_ID).  It runs on the Python of any image.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

    Bytes = bytes | mmap.mmap


def build_id(data: bytes) -> str:
    """The build id in the bytes of an ELF file of 64 bits, from its beginning on; "" for none."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return ""
    headers = struct.unpack_from("<Q", data, 32)[0]
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        at = headers + number * size
        if at + 56 > len(data):
            return ""
        kind, _, offset, _, _, held = struct.unpack_from("<IIQQQQ", data, at)
        if kind != 4 or offset + held > len(data):
            continue
        for sort, name, begin, end in notes(data, offset, offset + held):
            if sort == 3 and data[name : name + 4] == b"GNU\0":
                return data[begin : min(end, offset + held)].hex()
    return ""


def notes(data: Bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Of each note between two places of an ELF file its type, where its name begins, and where its content begins and
    ends, which in a damaged file may be beyond ``end`` (elf(5), Nhdr)."""
    while at + 12 <= end:
        name, content, sort = struct.unpack_from("<III", data, at)
        begin = at + 12 + (name + 3) // 4 * 4
        yield sort, at + 12, begin, begin + content
        at = begin + (content + 3) // 4 * 4


def main(path: str) -> None:
    """Says what of the files named in ``path`` is wrong."""
    with open(path, encoding="utf-8") as file:
        wanted = json.load(file)
    wrong = {}
    for name, known in wanted.items():
        try:
            with open(os.fsencode(name), "rb") as file:
                data = file.read(1 << 16)
        except FileNotFoundError:
            wrong[name] = "is not there"
        except OSError as error:
            wrong[name] = f"cannot be read ({error.strerror})"
        else:
            found = build_id(data)
            if known and found != known:
                wrong[name] = "is another build"
    print("envkit-builds:" + json.dumps(wrong))


if __name__ == "__main__":
    main(sys.argv[1])
