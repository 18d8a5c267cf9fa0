"""The frames of a native stack as gdb writes them ("Stack Frames", in the documentation of gdb)."""

from __future__ import annotations

import re

from envkit.records import dataclass

_FRAME = re.compile(
    r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<function>\S.{0,2000}?) \(.{0,4000}\)"
    r"(?: from (?P<library>\S{1,1000})| at (?P<file>\S{1,1000}):(?P<line>\d{1,9}))$"
)
# What others call: the C and C++ libraries by their files and by their sources, and Python itself.
_PLAIN = re.compile(
    r"/lib(?:c|pthread|m|stdc\+\+|gcc_s|ffi)[.-][^/]*$|/ld-linux[^/]*$|/(?:lib)?python3[^/]*$"
    r"|(?:^|/)(?:sysdeps|nptl|stdlib|signal|string|malloc|libio|elf)/[^ ]+\.[cSh]$"
)
_OF_PYTHON = re.compile(r"_*Py[A-Z_]|_*py(?:main|run)_|\?\?$")


@dataclass(frozen=True, slots=True)
class NativeFrame:
    """A frame of a native stack: its function, and its source line or its library."""

    function: str
    where: str

    @property
    def at(self) -> str:
        """Its place in a sentence."""
        return f"{'at' if re.search(r':[0-9]+$', self.where) else 'of'} {self.where[-300:]}"

    @property
    def own(self) -> bool:
        """Whether it is neither of the C and C++ libraries nor of Python itself."""
        return not (_PLAIN.search(self.where.rpartition(":")[0] or self.where) or _OF_PYTHON.match(self.function))


def frame(line: str) -> NativeFrame | None:
    """The frame that a line of a listing is; None for any other line."""
    found = _FRAME.match(line)
    return found and NativeFrame(found["function"], found["library"] or f"{found['file']}:{found['line']}")
