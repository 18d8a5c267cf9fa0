"""The files that this process has mapped, as the kernel lists them."""

from __future__ import annotations


def paths() -> list[str]:
    """What lies behind each mapping that has a name, in order and repeated as it is; "[heap]" and its like among it.

    Raises OSError where the list cannot be read.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.rstrip("\n").split(None, 5) for line in file]  # address perms offset dev inode path
    return [fields[5] for fields in lines if len(fields) == 6]
