"""What an environment can do, as children of a probe tried it."""

from __future__ import annotations

from enum import StrEnum

from envkit.records import dataclass


class AbilityKind(StrEnum):
    """What was tried; ``what`` of the row says with which file, module, GPU or setting."""

    MODULE = "module"  # imported: what torch's METADATA asks for and torch.compile imports
    LIBRARY = "library"  # opened: what torch opens only when it is used
    PROGRAM = "program"  # may be executed: what torch starts
    EXTENSION = "extension"  # opened after torch
    NUMPY = "numpy"  # a tensor out of an array and back
    ALLOCATOR = "allocator-settings"  # given to torch's own parser
    USER = "user-name"  # asked for as inductor does
    NVRTC = "nvrtc"  # compiles a kernel for a GPU
    PTXAS = "ptxas"  # says its release
    C = "c-compiler"  # makes a shared object that computes right
    CPP = "c++-compiler"
    HEADERS = "python-headers"  # the same with Python.h
    COMPILE = "torch-compile"  # on the CPU; this and those below at the level "full" alone
    TRITON = "triton-compile"  # down to machine code for a GPU
    BUILD = "extension-build"
    LOADER = "data-loader"  # with two processes, by fork or by spawn


class AbilityEnd(StrEnum):
    """How it ended."""

    WORKS = "works"
    FAILS = "fails"
    ABSENT = "absent"  # there is no such thing here
    UNTRIED = "untried"  # it cannot be tried in this run, whatever the image is


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing that was tried.

    ``detail`` says how it failed, or what it said of itself.  ``owner`` is the distribution that brings it, the
    variable that names it, or the library that does it.  ``library`` and ``symbol`` are what the dynamic linker did not
    find.  ``cpu_s`` are the seconds of a processor that the attempt took.
    """

    kind: AbilityKind
    what: str
    end: AbilityEnd
    detail: str = ""
    owner: str = ""
    library: str = ""
    symbol: str = ""
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """A folder that libraries write into.

    ``variable`` names it, or would if it were set: ``named`` says which; ``by`` is the distribution that writes there,
    empty for many.  ``nearest`` is the first of it and its parents that is there, with its owner and its mode in octal;
    ``writable`` is whether these let the process's user make files there, whatever the file system is mounted as, which
    ``read_only`` says.  ``mount`` is the mount point.  ``filled`` says whether the folder holds something already.
    """

    variable: str
    path: str
    named: bool
    by: str
    exists: bool
    is_folder: bool
    filled: bool
    nearest: str
    owner_uid: int
    mode: str
    writable: bool
    read_only: bool
    mount: str


@dataclass(frozen=True, slots=True)
class Abilities:
    """All that was tried at the ``level`` "quick" or "full"."""

    level: str
    tried: tuple[Ability, ...]
    caches: tuple[CacheFolder, ...]

    def of(self, *kinds: AbilityKind) -> tuple[Ability, ...]:
        """The attempts of some kinds, in order."""
        return tuple(one for one in self.tried if one.kind in kinds)
