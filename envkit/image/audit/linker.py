"""Which file ld.so would take for each library that an object asks for, worked out from files alone.

Order of search (ld.so(8); glibc's elf/dl-load.c): DT_RPATH of the asking object, of the one that loaded it and so on
up, and of the program, unless the asking object has a DT_RUNPATH; LD_LIBRARY_PATH; DT_RUNPATH of the asking object;
/etc/ld.so.cache; the default directories.  A name, or DT_SONAME, that the process has loaded already is not searched
for again.  Left out are the subdirectories for newer processors (glibc-hwcaps), LD_PRELOAD and LD_AUDIT.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field

from envkit.image.tree import Tree, Unreadable
from envkit.payload import elf
from envkit.payload.probe import libs
from envkit.records import dataclass
from envkit.subjects.audit import Edge, EdgeKind

CACHE = "/etc/ld.so.cache"
OUTSIDE = "outside"
DRIVER = "the driver"
DEFAULT = "default directory"
_CONF = "/etc/ld.so.conf"
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = struct.Struct("<20sIIB3xI12x"), struct.Struct("<iIIIQ")  # dl-cache.h, struct cache_file_new
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}  # ldconfig.h: FLAG_ELF_LIBC6 with the machine's FLAG_*_LIB64
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_INCLUDES = 8  # files that include one another, as deep as ldconfig's own users go
# What the host's driver brings into a container at run time, and no image needs to hold.
_DRIVER = re.compile(r"lib(?:cuda|cudadebugger|nvcuvid|nvoptix|nvidia-(?!container|egl)[a-z0-9-]+)\.so(?:\.[0-9.]+)?\Z")


def is_driver(name: str) -> bool:
    """Whether a library of the file name ``name`` belongs to the host's driver rather than to an image."""
    return _DRIVER.match(name) is not None


def family(name: str) -> str:
    """The family of a library of CUDA, its driver or torch ("cudart"), empty for any other file name."""
    found = libs.family(name)
    return found if libs.is_cuda(found) or libs.is_torch(found) else ""


def cache(data: bytes, machine: str) -> dict[str, str]:
    """The paths by library name that ld.so.cache holds for ``machine``, the first entry of a name winning.

    Raises ValueError if it is not of the format of glibc since 2000 ("glibc-ld.so.cache1.1") or damaged.
    """
    start = data.find(_MAGIC)
    if start < 0:
        raise ValueError("it is no ld.so.cache of a known format")
    found: dict[str, str] = {}
    try:
        _, count, *_ = _HEADER.unpack_from(data, start)
        if count * _ENTRY.size > len(data):
            raise ValueError("it ends within its entries")
        for index in range(count):
            flags, key, value, _, hwcap = _ENTRY.unpack_from(data, start + _HEADER.size + index * _ENTRY.size)
            if flags == _FLAGS.get(machine) and not hwcap:
                found.setdefault(_text(data, start + key), _text(data, start + value))
    except struct.error:
        raise ValueError("it ends within its entries") from None
    return found


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    if not 0 < at < len(data) or end < 0:
        raise ValueError("a name lies outside of it")
    return data[at:end].decode("utf-8", "surrogateescape")


def configured(tree: Tree) -> dict[str, str]:
    """The directories of ld.so.conf and what it includes, in order, each with the file that names it."""
    found: dict[str, str] = {}
    _read_conf(tree, _CONF, found, _INCLUDES)
    return found


def _read_conf(tree: Tree, path: str, found: dict[str, str], deeper: int) -> None:
    if not deeper or not is_file(tree, path):
        return
    for line in text(tree, path).splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["include"]:
            for pattern in words[1:]:
                for other in _glob(tree, posixpath.join(posixpath.dirname(path), pattern)):
                    _read_conf(tree, other, found, deeper - 1)
        elif words and words[0] != "hwcap":
            for directory in re.split(r"[\s:,]+", " ".join(words)):
                if directory.startswith("/"):
                    found.setdefault(posixpath.normpath(directory.partition("=")[0]), path)


def _glob(tree: Tree, pattern: str) -> list[str]:
    folder, _, name = pattern.rpartition("/")
    inside = f"{folder}/"
    names = (path for path in tree.entries if path.startswith(inside) and "/" not in path[len(inside) :])
    return sorted(path for path in names if fnmatch.fnmatchcase(path[len(inside) :], name))


def is_file(tree: Tree, path: str) -> bool:
    """Whether ``path`` leads to a regular file."""
    real = tree.real(path)
    return bool(real) and tree.entries[real].kind == "file"


def text(tree: Tree, path: str, most: int = 8 << 20) -> str:
    """The first ``most`` bytes of the regular file at ``path`` as text, bad bytes replaced."""
    return bytes(tree.data(path)[:most]).decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class LoadedObject:
    """One object of a process: ``path`` as the linker spells it, ``real`` where it lies, ``by`` how it was found."""

    path: str
    real: str
    elf: elf.Elf
    by: str
    loader: LoadedObject | None


@dataclass(slots=True)
class Linker:
    """The search of one tree; ``library_path`` is LD_LIBRARY_PATH, ``machine`` the ELF machine of its programs.

    ``names`` gives the libraries that an object opens itself, as far as its strings say so.  ``whole`` is False for a
    tree without a C library: what it lacks may lie in the system that it will run on, unless it is among ``listed``,
    the file names that an installed package says it brings.
    """

    tree: Tree
    machine: str
    library_path: tuple[str, ...]
    names: Callable[[str, elf.Elf], tuple[str, ...]]
    listed: frozenset[str] = frozenset()
    whole: bool = True
    conf: dict[str, str] = field(default_factory=dict)
    cached: dict[str, str] = field(default_factory=dict)
    cache_error: str = ""
    _elves: dict[str, elf.Elf | str] = field(default_factory=dict)
    _tried: dict[str, tuple[str, str]] = field(default_factory=dict)
    _opened: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.conf = configured(self.tree)
        self.whole = any(self.tree.real(f"{each}/libc.so.6") for each in (*self.defaults(), *self.conf))
        if not is_file(self.tree, CACHE):
            return
        try:
            self.cached = cache(bytes(self.tree.data(CACHE)), self.machine)
        except ValueError as error:
            self.cache_error = f"{CACHE}: {error}"

    def defaults(self) -> tuple[str, ...]:
        """The directories that ld.so searches without being told, of Debian's layout and of others."""
        name = _MULTIARCH.get(self.machine, "")
        multi = (f"/lib/{name}", f"/usr/lib/{name}") if name else ()
        return (*multi, "/lib64", "/usr/lib64", "/lib", "/usr/lib")

    def header(self, real: str) -> elf.Elf | None:
        """The header of the regular file at ``real``, None if it is no ELF file of 64 bits."""
        known = self._elves.get(real)
        if known is None:
            try:
                known = elf.read(self.tree.data(real))
            except ValueError as error:
                known = str(error)
            except Unreadable as error:
                known = error.why
            self._elves[real] = known
        return None if isinstance(known, str) else known

    def opens(self, real: str, header: elf.Elf) -> tuple[str, ...]:
        """The libraries that the object at ``real`` opens itself."""
        if real not in self._opened:
            self._opened[real] = self.names(real, header)
        return self._opened[real]

    def why_not(self, real: str) -> str:
        """Why ``header`` gave None for ``real``."""
        known = self._elves.get(real)
        return known if isinstance(known, str) else ""

    def searched(self) -> Iterator[tuple[str, str]]:
        """Every directory that any program's search goes through, with what makes it so."""
        for directory in self.library_path:
            yield directory, "LD_LIBRARY_PATH"
        yield from self.conf.items()
        for directory in dict.fromkeys(posixpath.dirname(path) for path in self.cached.values()):
            yield directory, "ld.so.cache"
        for directory in self.defaults():
            yield directory, DEFAULT

    def find(self, name: str, asking: LoadedObject, program: LoadedObject | None) -> tuple[str, str, str]:
        """Path, step of the search and error for ``name`` as ``asking`` asks for it; one of path and error is empty.

        An error with the step "" is plain absence.
        """
        for path, by in self._places(name, asking, program):
            real, broken = self._try(path)
            if real or broken:
                return ("", by, broken) if broken else (path, by, "")
        if is_driver(name):
            return "", DRIVER, ""
        return "", "", "not found"

    def _places(self, name: str, asking: LoadedObject, program: LoadedObject | None) -> Iterator[tuple[str, str]]:
        if "/" in name:
            yield name, "its own path"
            return
        if not asking.elf.runpath:
            one: LoadedObject | None = asking
            while one is not None:
                if not one.elf.runpath:
                    yield from self._listed(name, one, one.elf.rpath, "RPATH")
                one = one.loader
            if program is not None and not program.elf.runpath:
                yield from self._listed(name, program, program.elf.rpath, "RPATH")
        for directory in self.library_path:
            yield f"{directory}/{name}", "LD_LIBRARY_PATH"
        yield from self._listed(name, asking, asking.elf.runpath, "RUNPATH")
        if name in self.cached:
            yield self.cached[name], "ld.so.cache"
        for directory, source in self.conf.items():  # ldconfig, which the engine's GPU hook runs, makes cache of these
            yield f"{directory}/{name}", source
        for directory in self.defaults():
            yield f"{directory}/{name}", DEFAULT

    def _listed(self, name: str, one: LoadedObject, entries: tuple[str, ...], what: str) -> Iterator[tuple[str, str]]:
        for directory in elf.expand(entries, one.path):
            yield posixpath.normpath(f"{directory}/{name}"), f"{what} of {posixpath.basename(one.path)}"

    def _try(self, path: str) -> tuple[str, str]:
        """Where ``path`` leads if ld.so would take it, else why it would stop there; both empty if it goes on."""
        if path not in self._tried:
            real = self.tree.real(path)
            there = bool(real) and self.tree.entries[real].kind == "file"
            found = self.header(real) if there else None
            broken = f"{path} is damaged: {self.why_not(real)}" if there and found is None else ""
            self._tried[path] = real if found is not None and found.machine == self.machine else "", broken
        return self._tried[path]


@dataclass(slots=True)
class Process:
    """The objects that one process has loaded, by the names they are known by; ``edges`` is what each asked for."""

    linker: Linker
    program: LoadedObject | None = None
    names: dict[str, LoadedObject] = field(default_factory=dict)
    reals: dict[str, LoadedObject] = field(default_factory=dict)
    edges: dict[str, tuple[Edge, ...]] = field(default_factory=dict)

    def fork(self) -> Process:
        """A process that has loaded the same and goes its own way from here."""
        return Process(self.linker, self.program, dict(self.names), dict(self.reals), dict(self.edges))

    def load(self, path: str, by: str) -> None:
        """Loads the object at ``path`` with all that it needs, breadth first, then what these open themselves."""
        first = self._open(path, by, None)
        if first is None:
            return
        needed = deque([first])
        opening: deque[LoadedObject] = deque()
        while needed or opening:
            kind: EdgeKind = "needed" if needed else "dlopen"
            one = needed.popleft() if needed else opening.popleft()
            if kind == "needed" and one.real in self.edges:
                continue
            names = one.elf.needed if kind == "needed" else self.linker.opens(one.real, one.elf)
            made = []
            for name in names:
                edge, fresh = self._ask(name, one, kind)
                made.append(edge)
                if fresh is not None:
                    needed.append(fresh)
            self.edges[one.real] = (*self.edges.get(one.real, ()), *made)
            if kind == "needed":
                opening.append(one)

    def _ask(self, name: str, one: LoadedObject, kind: EdgeKind) -> tuple[Edge, LoadedObject | None]:
        known = self.names.get(name)
        if known is not None:
            return Edge(name, known.real, known.by, kind, "", family(name)), None
        path, by, error = self.linker.find(name, one, self.program)
        if error == "not found" and not self.linker.whole and name not in self.linker.listed:
            by, error = OUTSIDE, ""
        if not path:
            return Edge(name, "", by, kind, error, family(name)), None
        before = len(self.reals)
        loaded = self._open(path, by, one)
        if loaded is None:
            return Edge(name, "", by, kind, f"{path} is damaged", family(name)), None
        self.names[name] = loaded
        return Edge(name, loaded.real, loaded.by, kind, "", family(name)), loaded if len(self.reals) > before else None

    def _open(self, path: str, by: str, loader: LoadedObject | None) -> LoadedObject | None:
        real = self.linker.tree.real(path)
        if real in self.reals:
            return self.reals[real]
        header = self.linker.header(real) if real else None
        if header is None:
            return None
        loaded = LoadedObject(path, real, header, by, loader)
        self.reals[real] = loaded
        if header.soname:
            self.names.setdefault(header.soname, loaded)
        return loaded
