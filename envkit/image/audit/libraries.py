"""The shared objects of CUDA and torch, which files they would bind, and what these lack."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from envkit.image.audit import environment, imports, linker
from envkit.image.audit.linker import Linker, LoadedObject, Process, is_driver
from envkit.image.tree import Tree
from envkit.payload import cudnn, elf
from envkit.payload.probe import extensions, libs, wheels
from envkit.records import dataclass
from envkit.subjects import audit, codec
from envkit.subjects.image import CudnnSet, Extension

_SHARED = re.compile(r"\.so(?:\.|\Z)")
# Names in the namespaces of torch's own libraries: functions, tables and descriptions of types (Itanium C++ ABI).
_TORCH_SYMBOL = re.compile(r"_Z(?:T[VISTv]|GV|[nvh0-9_]+)*NK?(?:3c10|2at|5torch|6caffe2)")
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Owner:
    """The package that brought a file; ``kind`` is "wheel" or "deb"."""

    kind: audit.OwnerKind
    name: str
    version: str


NOBODY = Owner("", "", "")


def opens(tree: Tree, real: str, header: elf.Elf) -> tuple[str, ...]:
    """The cuDNN libraries that the library at ``real`` opens by name; none where it is no library of cuDNN."""
    return cudnn.opened(posixpath.basename(real), tree.data(real), header)


def shared(tree: Tree, site: tuple[str, ...]) -> list[str]:
    """The regular files that are named like shared objects and lie where Python imports from, or are CUDA's."""
    inside = tuple(f"{each.rstrip('/')}/" for each in site)
    return sorted(
        path
        for path, entry in tree.entries.items()
        if ".so" in path
        and entry.kind == "file"
        and _SHARED.search(posixpath.basename(path))
        and (path.startswith(inside) or libs.family(path) or is_driver(posixpath.basename(path)))
    )


def wheel_owners(tree: Tree, dists: list[environment.Dist]) -> dict[str, Owner]:
    """The wheel of each shared object by its real path; where two list it, one whose size it has goes first."""
    found: dict[str, tuple[bool, Owner]] = {}
    for dist in dists:
        for entry in environment.listed_by(dist, ".so"):
            real = tree.real(entry.path)
            if not real:
                continue
            fits = tree.entries[real].size == entry.size
            if real not in found or (fits and not found[real][0]):
                found[real] = (fits, Owner("wheel", dist.name, dist.version))
    return {real: owner for real, (_, owner) in found.items()}


class Survey:
    """One look at all shared objects of a tree: what each asks for in the processes that would load it."""

    def __init__(
        self,
        tree: Tree,
        search: Linker,
        pythons: environment.Pythons | None,
        dists: list[environment.Dist],
        owners: Mapping[str, Owner],
    ) -> None:
        self.tree, self.linker, self._owners = tree, search, owners
        self._site = pythons.found.site if pythons else ()
        self._others = tuple(f"{each}/" for each in pythons.found.others) if pythons else ()
        self._abi = f"cpython-{''.join(pythons.version.split('.')[:2])}" if pythons and pythons.version else "cpython-"
        self.paths = shared(tree, self._site)
        self.reached: dict[str, str] = {}
        self.edges: dict[str, tuple[audit.Edge, ...]] = {}
        self._whole: dict[Owner, list[str]] = {}  # the modules that lack nothing, however far one follows
        self._modules: dict[Owner, list[str]] = {}
        self._always: dict[tuple[str, str], frozenset[str]] = {}
        self._own: dict[tuple[Owner, str], str] = {}  # by package and name, the libraries that it may open by path
        for path in self.paths:
            self._own.setdefault((self.owner(path), posixpath.basename(path)), path)
        self._torch_dist = next((dist for dist in dists if dist.name == "torch"), None)
        self._base = self._begin(pythons.found.path if pythons else "")
        self._torch = self._import_torch()
        self._import_modules()
        self._rest()

    def owner(self, path: str) -> Owner:
        """The package that lists the file at the real path ``path``."""
        return self._owners.get(path, NOBODY)

    def in_site(self, path: str) -> bool:
        """Whether Python imports from where ``path`` lies."""
        return path.startswith(tuple(f"{each.rstrip('/')}/" for each in self._site))

    def _begin(self, python: str) -> Process:
        process = Process(self.linker)
        real = self.tree.real(python) if python else ""
        header = self.linker.header(real) if real and self.tree.entries[real].kind == "file" else None
        if header is not None:
            process.program = LoadedObject(python, real, header, "", None)
            process.load(python, "")
            self._keep(process, python)
        return process

    def _import_torch(self) -> Process:
        """A process after ``import torch``: torch's global dependencies, what it opens by path, and its module."""
        process = self._base.fork()
        if self._torch_dist is None:
            return process
        base = f"{self._torch_dist.base}/torch"
        process.load(f"{base}/lib/libtorch_global_deps.so", "import torch")
        if any(libs.family(real) == "cudart" for real in process.reals):
            patterns, lenient = environment.preloads(self.tree, self._torch_dist.base)
            brought = [path for path in self.paths if "/nvidia/" in path and self.in_site(path)]
            for pattern in patterns:
                path = environment.matching(brought, pattern)
                if not path and not lenient:
                    break
                if path:
                    process.load(path, "preload by torch")
        for path in self.paths:
            if path.startswith(f"{base}/_C.") and self.is_module(path):
                process.load(path, "import torch")
                self._keep(process, path)
        return process

    def is_module(self, path: str) -> bool:
        """Whether this Python could import the file at ``path``: an extension module of its ABI (PEP 3149)."""
        stem, _, ending = posixpath.basename(path).partition(".")
        if not self.in_site(path) or not (ending == "so" or ending.endswith(".so")):
            return False
        if ending.startswith("cpython-"):
            # With "t" for a Python without the global lock, which one version may be too.
            return ending.startswith((f"{self._abi}-", f"{self._abi}t-")) or self._abi == "cpython-"
        header = self.linker.header(path)
        start, size = header.sections.get(".dynstr", (0, 0)) if header is not None else (0, 0)
        return bool(size) and f"PyInit_{stem}".encode() in bytes(self.tree.data(path)[start : start + size])

    def _keep(self, process: Process, module: str) -> None:
        for real, edges in process.edges.items():
            if real not in self.edges:
                self.edges[real] = edges
            if module:
                self.reached.setdefault(real, module)

    def _import_modules(self) -> None:
        for path in self.paths:
            if path in self.reached or not self.is_module(path):
                continue
            header = self.linker.header(path)
            if header is not None:
                self._modules.setdefault(self.owner(path), []).append(path)
                process = self._like(path, header)
                process.load(path, "import")
                self._keep(process, path)
                process = self._by_path_first(path, header, process)
                if not any(edge.error for edges in process.edges.values() for edge in edges):
                    self._whole.setdefault(self.owner(path), []).append(path)

    def _by_path_first(self, path: str, header: elf.Elf, process: Process) -> Process:
        """The process of a module whose package opens its own libraries by path before, as torchaudio does: those that
        it brings and that no search finds."""
        owner = self.owner(path)
        opened: list[str] = []
        while owner is not NOBODY:
            errors = {edge.name for edges in process.edges.values() for edge in edges if edge.error == "not found"}
            fresh = [own for name in sorted(errors) if (own := self._own.get((owner, name), "")) and own not in opened]
            if not fresh:
                break
            opened = [*fresh, *opened]  # what one of them lacks is opened before it
            process = self._like(path, header)
            for each in (*opened, path):
                process.load(each, "opened by name")
        self._keep(process, path)
        return process

    def _is_needed(self, module: str) -> bool:
        """Whether the import of the package imports this extension module whatever happens."""
        base = next((f"{each.rstrip('/')}/" for each in self._site if module.startswith(f"{each.rstrip('/')}/")), "")
        steps = module[len(base) :].split("/")
        if not base or len(steps) < 2:
            return False
        key = (base.rstrip("/"), steps[0])
        if key not in self._always:
            self._always[key] = imports.always(self.tree, *key)
        return ".".join([*steps[:-1], steps[-1].partition(".")[0]]) in self._always[key]

    def _like(self, path: str, header: elf.Elf) -> Process:
        """The process in which ``path`` is loaded: after torch where it is torch's or links to torch."""
        of_torch = self.owner(path).name == "torch" or any(libs.is_torch(libs.family(name)) for name in header.needed)
        return (self._torch if of_torch else self._base).fork()

    def _rest(self) -> None:
        """What no import loads by itself: each in a process of its own, after torch where Python imports from.

        What lies where another Python imports from is that one's, and is not followed.
        """
        for path in self.paths:
            header = self.linker.header(path) if path not in self.edges and not path.startswith(self._others) else None
            if header is not None and header.machine == self.linker.machine:
                process = self._torch.fork() if self.in_site(path) else self._base.fork()
                process.load(path, "opened by name")
                self._keep(process, "")

    def objects(self) -> Iterator[audit.SharedObject]:
        """The objects of CUDA and torch, those that ask for one, and those that lack something."""
        for real, edges in sorted(self.edges.items()):
            family = linker.family(real)
            owner = self.owner(real)
            cuda = family or wheels.is_cuda(owner.name) or any(edge.family for edge in edges)
            if not cuda and not any(edge.error for edge in edges):
                continue
            header, module = self.linker.header(real), self.reached.get(real, "")
            soname, brought = header.soname if header else "", (owner.name, owner.version, owner.kind)
            yield audit.SharedObject(real, soname, family, *brought, module, edges, self._others_load(module))

    def _others_load(self, module: str) -> bool:
        owner = self.owner(module)
        if owner is NOBODY or self._is_needed(module):
            return False
        whole = any(other != module for other in self._whole.get(owner, ()))
        return whole or any(map(self._is_needed, self._modules.get(owner, ())))

    def unmet(self) -> Iterator[audit.UnresolvedRequirement]:
        """Versions and symbols that an object asks of a library and that the file found for it lacks."""
        for real, edges in sorted(self.edges.items()):
            header = self.linker.header(real)
            if header is None:
                continue
            provided = {edge.name: edge.path for edge in edges if edge.path}
            for name, versions in header.needs:
                provider = self.linker.header(provided[name]) if name in provided else None
                # Without a table of versions ld.so only warns (dl-version.c).
                if provider is None or not provider.defines:
                    continue
                lacking = tuple(one for one in versions if one not in provider.defines)
                if lacking:
                    yield self._unmet(real, provided[name], "version", lacking, _newest(provider.defines, lacking[0]))
            for name, path in provided.items():
                if libs.family(name) == "nvjitlink":
                    symbols = self._undefined(real, "__nvJitLink")
                    lacking = tuple(sorted(symbols - self._defined(path, symbols)))
                    if lacking:
                        yield self._unmet(real, path, "symbol", lacking, "")
        yield from self._unmet_of_torch()

    def _unmet(
        self, real: str, provider: str, kind: audit.UnmetKind, lacking: tuple[str, ...], newest: str
    ) -> audit.UnresolvedRequirement:
        owner = self.owner(real).name
        return audit.UnresolvedRequirement(
            real, owner, provider, kind, lacking[:_SHOWN], len(lacking), newest, self.reached.get(real, "")
        )

    def _undefined(self, real: str, start: str) -> set[str]:
        header = self.linker.header(real)
        if header is None:
            return set()
        found = elf.symbols(self.tree.data(real), header)
        return {one.name for one in found if not one.defined and not one.weak and one.name.startswith(start)}

    def _defined(self, real: str, wanted: set[str]) -> set[str]:
        header = self.linker.header(real)
        if header is None or not wanted:
            return set()
        return {one.name for one in elf.symbols(self.tree.data(real), header) if one.defined and one.name in wanted}

    def _unmet_of_torch(self) -> Iterator[audit.UnresolvedRequirement]:
        """Symbols of torch's namespaces that an object outside torch asks for and neither torch nor its own have."""
        asking = {
            real: {name for name in self._undefined(real, "_Z") if _TORCH_SYMBOL.match(name)}
            for real, edges in self.edges.items()
            if self.owner(real).name != "torch" and any(libs.is_torch(libs.family(edge.name)) for edge in edges)
        }
        wanted = {name for names in asking.values() for name in names}
        if not wanted:
            return
        ours = [real for real in (*self._torch.reals, *asking) if self.owner(real).name == "torch" or real in asking]
        beside = {edge.path for real in asking for edge in self.edges[real] if edge.path}
        for real in dict.fromkeys((*ours, *sorted(beside))):
            wanted -= self._defined(real, wanted)
        torch = next((real for real in ours if libs.family(real) == "torch_cpu"), "torch")
        for real, names in sorted(asking.items()):
            if names & wanted:
                yield self._unmet(real, torch, "symbol", tuple(sorted(names & wanted)), "")

    def extensions(self) -> Iterator[Extension]:
        """The shared objects outside torch and NVIDIA's wheels, where Python imports from, that call CUDA.

        Raises ValueError where device code is damaged.
        """
        for path in self.paths:
            owner = self.owner(path)
            if not self.in_site(path) or wheels.is_cuda(owner.name) or libs.family(path):
                continue
            header = self.linker.header(path)
            told = extensions.describe(self.tree.data(path), header) if header else None
            if told is not None:
                whose = {"path": path, "owner": owner.name, "owner_version": owner.version}
                yield codec.from_plain(Extension, {**whose, **told})

    def _refers(self, folder: str, name: str) -> set[str]:
        path = f"{folder}/{name}"
        header = self.linker.header(path)
        return cudnn.refers(header, self.linker.opens(path, header)) if header else set()

    def _has(self, folder: str, name: str) -> bool:
        return bool(self.tree.real(f"{folder}/{name}"))

    def cudnn(self) -> Iterator[CudnnSet]:
        """Each directory with cuDNN libraries and the names that these refer to."""
        folders: dict[str, list[str]] = {}
        for path in self.paths:
            if libs.family(path).startswith("cudnn"):
                folders.setdefault(posixpath.dirname(path), []).append(path)
        for folder, paths in sorted(folders.items()):
            names = (posixpath.basename(path) for path in paths)
            referenced, missing = cudnn.closure(names, partial(self._refers, folder), partial(self._has, folder))
            owner = next((self.owner(path) for path in paths if self.owner(path) is not NOBODY), NOBODY)
            yield CudnnSet(folder, owner.name, owner.version, referenced, missing)

    def copies(self) -> Iterator[audit.Copy]:
        """Every file of a library that a CUDA toolkit, cuDNN or NCCL brings; stubs and the driver's left out."""
        for path in self.paths:
            family = libs.family(path)
            if not libs.is_cuda(family) or is_driver(posixpath.basename(path)) or "/stubs/" in path:
                continue
            owner = self.owner(path)
            place = owner.kind if owner.kind == "wheel" else owner.name or posixpath.dirname(path)
            yield audit.Copy(family, path, self.tree.entries[path].size, place)

    def drivers(self) -> Iterator[audit.DriverFile]:
        """The driver's libraries that are a part of the image, stubs and compatibility packages among them."""
        searched: dict[str, str] = {}
        for directory, by in self.linker.searched():
            searched.setdefault(self.tree.real(directory) or directory, by)
        for path in self.paths:
            if not is_driver(posixpath.basename(path)):
                continue
            folder, owner = posixpath.dirname(path), self.owner(path)
            parts = folder.split("/")
            compat = "compat" in parts or owner.name.startswith("cuda-compat")
            kind: audit.DriverKind = "stub" if "stubs" in parts else "compat" if compat else "driver"
            yield audit.DriverFile(path, kind, searched.get(folder, ""), owner.name)

    def cxx(self) -> Iterator[audit.CxxLibrary]:
        """The C++ runtimes that LD_LIBRARY_PATH, the cache and the default folders lead to, each file once."""
        seen: set[str] = set()
        for directory, by in self.linker.searched():
            real = self.tree.real(f"{directory}/libstdc++.so.6")
            header = self.linker.header(real) if real and self.tree.entries[real].kind == "file" else None
            if header is not None and header.machine == self.linker.machine and real not in seen:
                seen.add(real)
                yield audit.CxxLibrary(real, _newest(header.defines, "GLIBCXX_"), by)

    def libc(self) -> tuple[str, str]:
        """The newest version of glibc's symbols that the tree's C library defines, and its path; empty if none."""
        for directory in dict.fromkeys((*self.linker.defaults(), *self.linker.conf)):
            real = self.tree.real(f"{directory}/libc.so.6")
            header = self.linker.header(real) if real and self.tree.entries[real].kind == "file" else None
            if header is not None and header.machine == self.linker.machine:
                return _newest(header.defines, "GLIBC_").removeprefix("GLIBC_"), real
        return "", ""


def _newest(defines: Iterable[str], like: str) -> str:
    """The highest of the versions in ``defines`` that share the prefix of ``like`` ("GLIBCXX_")."""
    prefix = like.rpartition("_")[0] + "_"
    numbered = [
        (tuple(map(int, match[1].split("."))), name)
        for name in defines
        if (match := re.fullmatch(re.escape(prefix) + r"([0-9]+(?:\.[0-9]+)*)", name))
    ]
    return max(numbered)[1] if numbered else ""
