"""Version types that refuse to be compared with one another.

The commonest confusion of this field is one number taken for another: the CUDA version in nvidia-smi's corner
is the driver's, not the toolkit's; cuDNN's integer is not CUDA's.  Each kind is a type of its own here, and a
comparison across kinds, equality included, raises TypeError.
"""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Any, Self

_DOTTED = re.compile(r"[0-9]+(\.[0-9]+)*\Z")


class _Fixed:
    """A value that never changes; no dataclass, for msgspec takes those apart and versions travel as text."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} version does not change")


@total_ordering
class _Dotted(_Fixed):
    """Numbers between dots; missing trailing numbers count as zero when two are compared.

    ``parts`` are the numbers, most significant first; they are read once, for a refusal compares some ten thousand.
    """

    __slots__ = ("parts", "text")
    text: str
    parts: tuple[int, ...]

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not _DOTTED.match(text):
            raise ValueError(f"`{text}` is not a {type(self).__name__} version: expected numbers between dots")
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "parts", tuple(int(part) for part in text.split(".")))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    @property
    def major(self) -> int:
        """The first number."""
        return self.parts[0]

    @property
    def minor(self) -> int:
        """The second number, 0 if absent."""
        return self._padded(2)[1]

    def upto(self, count: int) -> Self:
        """This version cut to its first ``count`` numbers."""
        return type(self)(".".join(self.text.split(".")[:count]))

    def _padded(self, length: int) -> tuple[int, ...]:
        return (self.parts + (0,) * length)[: max(length, len(self.parts))]

    def _pair(self, other: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if type(other) is not type(self):
            raise TypeError(f"a {type(self).__name__} version cannot be compared with {type(other).__name__}")
        assert isinstance(other, _Dotted)
        if len(self.parts) == len(other.parts):
            return self.parts, other.parts
        length = max(len(self.parts), len(other.parts))
        return self._padded(length), other._padded(length)

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        mine, theirs = self._pair(other)
        return mine == theirs

    def __lt__(self, other: object) -> bool:
        mine, theirs = self._pair(other)
        return mine < theirs

    def __hash__(self) -> int:
        parts = list(self.parts)
        while len(parts) > 1 and parts[-1] == 0:
            parts.pop()
        return hash((type(self).__name__, tuple(parts)))

    def __str__(self) -> str:
        return self.text


class Driver(_Dotted):
    """A driver release, as /proc/driver/nvidia/version and the left cell of nvidia-smi name it."""

    __slots__ = ()


class Cuda(_Dotted):
    """A CUDA toolkit or runtime version, as torch.version.cuda and nvcc name it."""

    __slots__ = ()

    @classmethod
    def from_int(cls, number: int) -> Cuda:
        """From cudaRuntimeGetVersion's integer: 1000 * major + 10 * minor (CUDA Runtime API, version management)."""
        return cls(f"{number // 1000}.{number % 1000 // 10}")


class Cudnn(_Dotted):
    """A cuDNN version, three or four numbers."""

    __slots__ = ()

    @classmethod
    def from_int(cls, number: int) -> Cudnn:
        """From cudnnGetVersion's integer.

        major * 10000 + minor * 100 + patch from major 9 on, major * 1000 + minor * 100 + patch before
        (CUDNN_VERSION in cudnn_version.h of both lines).
        """
        unit = 10000 if number >= 90000 else 1000
        return cls(f"{number // unit}.{number % unit // 100}.{number % 100}")


class Nccl(_Dotted):
    """An NCCL version."""

    __slots__ = ()

    @classmethod
    def from_int(cls, number: int) -> Nccl:
        """From ncclGetVersion's integer.

        major * 10000 + minor * 100 + patch; releases before minor 9 of major 2 used 1000 for the major
        (NCCL_VERSION in nccl.h).
        """
        unit = 10000 if number >= 10000 else 1000
        return cls(f"{number // unit}.{number % unit // 100}.{number % 100}")


class Torch(_Dotted):
    """A torch release without its local part ("+cu...")."""

    __slots__ = ()


class Glibc(_Dotted):
    """A glibc version, as manylinux tags and ldd name it."""

    __slots__ = ()


class ContainerToolkit(_Dotted):
    """A version of the NVIDIA Container Toolkit."""

    __slots__ = ()


class Python(_Dotted):
    """A CPython version."""

    __slots__ = ()


_SM = re.compile(r"(?:sm_|compute_)?([0-9]{2,3})([af]?)\Z")


@total_ordering
class Sm(_Fixed):
    """A compute capability: major, minor and the suffix of architecture-specific code ("a", "f" or none)."""

    __slots__ = ("major", "minor", "suffix")
    major: int
    minor: int
    suffix: str

    def __init__(self, major: int, minor: int, suffix: str = "") -> None:
        object.__setattr__(self, "major", major)
        object.__setattr__(self, "minor", minor)
        object.__setattr__(self, "suffix", suffix)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.major, self.minor, self.suffix)

    def __repr__(self) -> str:
        return f"Sm({self.major}, {self.minor}, {self.suffix!r})"

    @classmethod
    def parse(cls, text: str) -> Sm:
        """From "sm_86", "compute_86", "86", "sm_90a", or with a dot between major and minor.

        Raises ValueError on anything else.
        """
        dotted = re.fullmatch(r"([0-9]{1,2})\.([0-9])([af]?)", text)
        if dotted:
            return cls(int(dotted[1]), int(dotted[2]), dotted[3])
        found = _SM.match(text)
        if not found:
            raise ValueError(f"`{text}` is not a compute capability: expected a form like sm_86")
        return cls(int(found[1][:-1]), int(found[1][-1]), found[2])

    def _key(self, other: object) -> tuple[tuple[int, int, str], tuple[int, int, str]]:
        if not isinstance(other, Sm):
            raise TypeError(f"a compute capability cannot be compared with {type(other).__name__}")
        return (self.major, self.minor, self.suffix), (other.major, other.minor, other.suffix)

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        mine, theirs = self._key(other)
        return mine == theirs

    def __lt__(self, other: object) -> bool:
        mine, theirs = self._key(other)
        return mine < theirs

    def __hash__(self) -> int:
        return hash((self.major, self.minor, self.suffix))

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{self.suffix}"

    def runs(self, cubin: Sm, tegra: bool = False) -> bool:
        """Whether a GPU of this capability runs machine code built for ``cubin``.

        Same major and a minor at least as high; between desktop parts only, so that a Tegra GPU runs just its
        own; architecture-specific code ("a") runs on exactly its capability (CUDA C++ Programming Guide, binary
        compatibility).  Family code ("f") is treated as strictly as "a": nothing is promised beyond it.
        """
        if tegra or cubin.suffix:
            return (self.major, self.minor) == (cubin.major, cubin.minor)
        return self.major == cubin.major and self.minor >= cubin.minor

    def compiles(self, ptx: Sm) -> bool:
        """Whether a driver can compile PTX made for ``ptx`` on a GPU of this capability.

        PTX goes to equal or higher capabilities; architecture-specific PTX to exactly its own (same guide,
        PTX compatibility).
        """
        if ptx.suffix:
            return (self.major, self.minor) == (ptx.major, ptx.minor)
        return (self.major, self.minor) >= (ptx.major, ptx.minor)
