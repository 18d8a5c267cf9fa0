"""An image, a saved image or a directory, as its files show it: nothing of it was executed."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.image import (
    ClosedFile,
    CudnnSet,
    ExpectedContents,
    Extension,
    NeededModule,
    Overwritten,
    Preload,
    Requirement,
    Search,
    Variable,
    Wheel,
)
from envkit.subjects.recorded import Recorded
from envkit.versions import Sm

NO_TORCH = "there is no torch here"
NO_LIBC = "the tree holds no C library: its programs run on that of another system"

OwnerKind = Literal["wheel", "deb", ""]
DriverKind = Literal["driver", "stub", "compat"]
EdgeKind = Literal["needed", "dlopen"]
UnmetKind = Literal["version", "symbol"]


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that ``python3`` names on the image's PATH.

    ``path`` is where PATH finds it, ``machine`` the ELF machine of its program, empty where the program lies outside
    the tree.  ``site`` are the directories it imports from, the first one wins; ``others`` are further directories
    with installed distributions, which it does not see.
    """

    path: str
    machine: str
    site: tuple[str, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TorchFiles:
    """What the files of the installed torch say of its build; ``cuda`` is empty for a CPU build."""

    version: str
    cuda: str
    path: str


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The device code in one library: architectures as the tools print them ("sm_90a", "compute_90")."""

    path: str
    sass: tuple[str, ...]
    ptx: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: bytes of its files and the command that made it, credentials taken out."""

    size: int
    command: str


@dataclass(frozen=True, slots=True)
class Package:
    """One installed package; ``kind`` is "wheel" or "deb", ``size`` the bytes of its files in the tree."""

    kind: str
    name: str
    version: str
    size: int
    files: int


@dataclass(frozen=True, slots=True)
class Edge:
    """One library that an object asks for by ``name`` and the file that ld.so would take.

    ``kind`` is "needed" (DT_NEEDED) or "dlopen" (a name that the object's own strings hold and that it opens itself).
    ``by`` is the step of the search that finds it ("RPATH of libtorch_cuda.so", "LD_LIBRARY_PATH", "ld.so.cache"),
    "the driver" for a library that comes with the host's driver and "outside" for one of the system that a directory
    without a C library will run on.  ``error`` is empty, or says why there is none.  ``family`` is as in Image
    ("cudart") for a library of CUDA or torch, and empty for others.
    """

    name: str
    path: str
    by: str
    kind: EdgeKind = "needed"
    error: str = ""
    family: str = ""


@dataclass(frozen=True, slots=True)
class SharedObject:
    """One shared object of CUDA or torch, one that links to those, or one that lacks something.

    ``family`` is as in Image ("cudart"), empty if it is none.  ``owner_kind`` is "wheel" or "deb", empty with ``owner``
    if no package lists the file.  ``reached`` is the extension module whose import loads it, or the Python that loads
    it when it starts, empty where none does; ``others_load`` says that this module's package does not import it in any
    case and has another one, which it does, or of which nothing is missing.
    """

    path: str
    soname: str
    family: str = ""
    owner: str = ""
    owner_version: str = ""
    owner_kind: OwnerKind = ""
    reached: str = ""
    edges: tuple[Edge, ...] = ()
    others_load: bool = False


@dataclass(frozen=True, slots=True)
class UnresolvedRequirement:
    """Something that ``path`` takes from ``provider`` and that the file found for it does not define.

    ``what`` are versions ("GLIBC_2.99") or symbols, at most ten of ``count``; ``kind`` is "version" or "symbol".
    ``newest`` is the newest version of that kind which the provider has, empty for symbols.  ``reached`` as in
    SharedObject.
    """

    path: str
    owner: str
    provider: str
    kind: UnmetKind
    what: tuple[str, ...]
    count: int
    newest: str
    reached: str


@dataclass(frozen=True, slots=True)
class Copy:
    """One file of a CUDA library; ``place`` is "wheel", the Debian package's name, or the directory it lies in."""

    family: str
    path: str
    size: int
    place: str


@dataclass(frozen=True, slots=True)
class DriverFile:
    """One driver library that is a part of the image.

    ``kind`` is "driver", "stub" (a toolkit's library to link against) or "compat" (a forward-compatibility package's).
    ``searched`` is what makes ld.so look into its directory ("LD_LIBRARY_PATH", "/etc/ld.so.conf.d/x.conf",
    "ld.so.cache", "default directory"), empty if nothing does; ``owner`` is the package that brought it, empty if none
    did.
    """

    path: str
    kind: DriverKind
    searched: str
    owner: str


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a credential lies and of what kind it is, never the credential.

    ``for_tests`` marks a private key in a directory of tests, where published programs keep keys that guard nothing.
    """

    where: str
    kind: str
    for_tests: bool = False


@dataclass(frozen=True, slots=True)
class Writable:
    """A file or directory that every user may write; ``mode`` is octal, ``why`` says what runs or loads from there."""

    path: str
    mode: str
    why: str


@dataclass(frozen=True, slots=True)
class CxxLibrary:
    """One C++ runtime (libstdc++.so.6) that a search of ld.so leads to, in the order of that search.

    ``newest`` is the newest version of its symbols ("GLIBCXX_3.4.30"); ``by`` as in Edge.
    """

    path: str
    newest: str
    by: str


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """The program that a container of the image starts, behind shells and the likes of tini.

    ``words`` are ENTRYPOINT and CMD, ``name`` the word of them that names it and ``path`` where that leads, empty if
    nowhere.  ``mode`` is octal, ``executable`` says whether the image's user may execute it; ``direct`` is False where
    a shell only reads it.  ``program`` says that it begins as a script with an interpreter or as an ELF file;
    ``interpreter`` is what its first line names, ``interpreter_found`` where that lies, empty if nowhere.
    ``carriage_returns`` says that its lines end as those of Windows do.
    """

    words: tuple[str, ...]
    name: str
    path: str = ""
    mode: str = ""
    executable: bool = False
    program: bool = False
    interpreter: str = ""
    interpreter_found: str = ""
    carriage_returns: bool = False
    direct: bool = True


@dataclass(frozen=True, slots=True)
class Audit(Recorded):
    """What the files of an image show; ``name`` is what the user called it, ``digest`` its content's name.

    ``platform`` is the machine of the image's configuration ("x86_64").  ``torch`` is missing with the reason NO_TORCH
    where there is none, ``libc`` with NO_LIBC where the tree is only a part of a system.  ``size`` is in bytes, as is
    ``hidden``: files of lower layers that a later one replaced or removed.  ``unread`` are the files and directories
    that could not be read, with the reason ("/root: Permission denied").  ``gpus_given`` are the GPUs that the user
    named, known outside the image, as are ``frameworks_asked`` (as in Image).  ``engine`` is the engine that holds the
    image, empty for files.
    """

    name: str
    digest: str = ""
    platform: Observed[str] = field(default_factory=Observed)
    python: Observed[str] = field(default_factory=Observed)
    interpreter: Observed[Interpreter] = field(default_factory=Observed)
    libc: Observed[str] = field(default_factory=Observed)
    wheels: Observed[tuple[Wheel, ...]] = field(default_factory=Observed)
    requires: Observed[tuple[Requirement, ...]] = field(default_factory=Observed)
    overwritten: Observed[tuple[Overwritten, ...]] = field(default_factory=Observed)
    promise: Observed[ExpectedContents] = field(default_factory=Observed)
    torch: Observed[TorchFiles] = field(default_factory=Observed)
    code: Observed[DeviceCode] = field(default_factory=Observed)
    extensions: Observed[tuple[Extension, ...]] = field(default_factory=Observed)
    variables: Observed[tuple[Variable, ...]] = field(default_factory=Observed)
    user: Observed[str] = field(default_factory=Observed)
    layers: Observed[tuple[Layer, ...]] = field(default_factory=Observed)
    size: Observed[int] = field(default_factory=Observed)
    hidden: Observed[int] = field(default_factory=Observed)
    packages: Observed[tuple[Package, ...]] = field(default_factory=Observed)
    objects: Observed[tuple[SharedObject, ...]] = field(default_factory=Observed)
    unmet: Observed[tuple[UnresolvedRequirement, ...]] = field(default_factory=Observed)
    cudnn: Observed[tuple[CudnnSet, ...]] = field(default_factory=Observed)
    copies: Observed[tuple[Copy, ...]] = field(default_factory=Observed)
    drivers: Observed[tuple[DriverFile, ...]] = field(default_factory=Observed)
    secrets: Observed[tuple[Secret, ...]] = field(default_factory=Observed)
    writable: Observed[tuple[Writable, ...]] = field(default_factory=Observed)
    unread: Observed[tuple[str, ...]] = field(default_factory=Observed)
    modules: Observed[tuple[NeededModule, ...]] = field(default_factory=Observed.unsupported)
    search: Observed[Search] = field(default_factory=Observed.unsupported)
    closed: Observed[tuple[ClosedFile, ...]] = field(default_factory=Observed.unsupported)
    preloads: Observed[tuple[Preload, ...]] = field(default_factory=Observed.unsupported)
    entrypoint: Observed[EntryPoint] = field(default_factory=Observed.unsupported)
    cxx: Observed[tuple[CxxLibrary, ...]] = field(default_factory=Observed.unsupported)
    gpus_given: tuple[Sm, ...] = ()
    frameworks_asked: tuple[str, ...] = ()
    engine: str = ""
