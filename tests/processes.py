"""What processes there are, as the kernel lists them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """The children of all threads of a process, the dead ones that nobody has waited for included."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended since
            found += [int(each) for each in (task / "children").read_text().split()]
    return found
