"""Which libraries of cuDNN its own libraries open by name, and which of those are not there.

cuDNN's shim and graph library hold the names of the libraries that they open ("libcudnn_ops.so", to which they add the
number of their own soname) in .rodata; what a directory does not ship is taken from wherever else the linker finds
one, of any release (pytorch issue 188892), or fails at the first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from envkit.payload import elf

_FILE = re.compile(r"libcudnn(?:_[a-z0-9_]+)?\.so(?:\.|\Z)")
_NAME = re.compile(rb"libcudnn_[a-z0-9_]{1,60}\.so")
_MOST = 64 << 20  # bytes of .rodata looked at; the libraries that open others have up to 23 MB


def opened(name: str, data: memoryview, header: elf.Elf) -> tuple[str, ...]:
    """The names that the library of cuDNN in the file ``name`` opens, its own and those of DT_NEEDED left out.

    They are read in its strings, where it calls dlopen at all: the heuristics hold 74 MB of tables and open nothing.
    """
    start, size = header.sections.get(".dynstr", (0, 0))
    if not _FILE.match(name) or b"dlopen" not in bytes(data[start : start + size]):
        return ()
    start, size = header.sections.get(".rodata", (0, 0))
    number = (header.soname or name).partition(".so")[2]
    found = {text.decode("ascii") + number for text in _NAME.findall(data[start : start + min(size, _MOST)])}
    return tuple(sorted(found - {header.soname, name} - set(header.needed)))


def refers(header: elf.Elf, opened: Iterable[str]) -> set[str]:
    """The cuDNN libraries that one of them asks the linker for: those it needs, and the ``opened``."""
    return {name for name in (*header.needed, *opened) if name.startswith("libcudnn_")}


def closure(
    names: Iterable[str], asked_by: Callable[[str], Iterable[str]], is_there: Callable[[str], bool]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The libraries that the cuDNN files ``names`` of one directory ask for, and those of them that are not there.

    Both are as the linker is asked ("libcudnn_ops.so.9").  ``asked_by`` gives what a file ``refers`` to, ``is_there``
    says whether the directory has a file or a link of that name that leads to one; other libraries are passed over.
    """
    referenced = sorted({asked for name in names if _FILE.match(name) for asked in asked_by(name)})
    return tuple(referenced), tuple(name for name in referenced if not is_there(name))
