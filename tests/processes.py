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


def state(pid: int) -> str:
    """The letter of a process's state (R runs, S sleeps, Z is dead and waits for its reaper); empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pid: int) -> bool:
    """Whether a process has ended; one that waits for its reaper has."""
    return state(pid) in ("", "Z", "X")


def named(mark: str) -> list[int]:
    """The processes that have this in their command line, whose words are parted by zero bytes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended since
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found
