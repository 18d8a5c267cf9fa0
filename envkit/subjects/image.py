"""An image, or the Python at hand, as its own process shows it."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.abilities import Abilities
from envkit.subjects.imported import ImportEnd, ImportState
from envkit.subjects.recorded import Recorded
from envkit.versions import Sm


@dataclass(frozen=True, slots=True)
class Library:
    """One mapped shared library.

    ``name`` is the family ("cudart", "cudnn_ops"), ``version`` what the library says of itself, empty if it was not
    asked or did not answer, ``version_via`` the function that said it or why none did; ``owner`` is the
    distribution ("nvidia-cudnn-cu12") and ``owner_version`` its version, both empty if no installed
    distribution lists the file; ``found_via`` says how it came into the process ("rpath of libtorch_cuda.so",
    "ld_library_path", "mapped before torch").  ``built_with`` is the CUDA that the library says it was built with,
    empty if it does not say, and ``built_with_via`` the function or string that says so.
    """

    name: str
    soname: str
    path: str
    version: str = ""
    version_via: str = ""
    owner: str = ""
    owner_version: str = ""
    found_via: str = ""
    built_with: str = ""
    built_with_via: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """The copy of a library that a caller really gets: the file that ``symbol`` leads to.

    ``caller`` is the file name of a mapped object, or "process" for the global scope.  ``via`` is "relocation" where
    the address was read out of the caller's own table, "dlsym" where the linker was asked again in its scope.
    """

    name: str
    symbol: str
    caller: str
    path: str
    via: str = "dlsym"


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """What torch says of its own build.

    ``cuda`` is empty for a CPU build; ``cudnn`` is the integer of cudnnGetVersion at compile time, 0 if not built in;
    ``nccl`` the compile-time constant; ``archs`` as torch lists them ("sm_80", "compute_90").
    """

    version: str
    cuda: str
    cudnn: int
    nccl: str
    archs: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """One installed distribution; ``name`` is normalised as PEP 503 says."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """One Requires-Dist line of an installed distribution: ``of`` and its version ask for ``text``."""

    of: str
    of_version: str
    text: str


@dataclass(frozen=True, slots=True)
class LateLoad:
    """One thing that torch loads only when it is first used and that the probe had it load.

    ``what`` is the file or cuDNN function that loads it; ``error`` is empty when that went well.
    """

    what: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A file that its wheel's RECORD lists and that is not the file the wheel brought.

    ``owners`` are all distributions ("name==version") whose RECORD lists ``path``; ``found`` says which of their
    hashes the file on disk has, or that it has none of them; it is NO_RECORD where the distribution lists no files.
    """

    path: str
    owners: tuple[str, ...]
    found: str


class ShadowedBy(StrEnum):
    """What a folder of the search path is to Python."""

    SCRIPT = "script folder"
    PYTHONPATH = "PYTHONPATH"
    PTH = ".pth file"  # its code put the folder before the standard library
    USER_SITE = "user site"
    STDLIB = "standard library"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class Content:
    """How much of the CUDA stack was compared by content: ``read`` shared libraries of ``read_bytes`` bytes.

    ``left`` are those that were compared by size and time alone, of wheels and of Debian packages; ``left_bytes`` are
    the bytes of the wheels' among them.
    """

    read: int
    read_bytes: int
    left: tuple[str, ...]
    left_bytes: int


@dataclass(frozen=True, slots=True)
class DebianFile:
    """A library of ``package`` that is not the one which the package brought."""

    path: str
    package: str


@dataclass(frozen=True, slots=True)
class Shadow:
    """A module that an import finds at ``path`` and that hides another one of its name, further on the search path.

    ``by`` and ``hidden_by`` say what the folder of each is to Python.  The versions are those of the distributions
    beside them, empty where there is none.  ``imported`` says that torch's files import it whatever happens.
    """

    module: str
    path: str
    by: ShadowedBy
    hidden: str
    hidden_by: ShadowedBy
    version: str = ""
    hidden_version: str = ""
    imported: bool = False


@dataclass(frozen=True, slots=True)
class NeededModule:
    """Where the module of a distribution lies that torch requires, or that one of these does; "" where it is gone."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class DanglingLink:
    """A link on PATH by the name of a Python that leads to ``target``, where nothing is."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class StartFile:
    """A file that Python runs before its program; ``owner`` is the package that brought it, empty if none did."""

    path: str
    owner: str


@dataclass(frozen=True, slots=True)
class Search:
    """What this Python finds when it imports something.

    ``python`` is the interpreter, ``dangling`` the links that PATH names before it, ``started`` are sitecustomize,
    usercustomize and the .pth files with code.
    """

    python: str
    shadows: tuple[Shadow, ...] = ()
    dangling: tuple[DanglingLink, ...] = ()
    started: tuple[StartFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """A file that the image's user may not read, or a folder that it may not enter; ``mode`` is octal ("0600")."""

    path: str
    mode: str
    uid: int
    gid: int
    folder: bool = False


@dataclass(frozen=True, slots=True)
class Preload:
    """One entry of LD_PRELOAD or of /etc/ld.so.preload, as ``by`` says.

    ``found`` is the file of that name, empty where there is none; ``machine`` that of its ELF header, empty for no ELF
    file.  ``loaded`` is what the examined process got for it, empty where ld.so ignored it; in an audit it is what
    ld.so would take.  ``family`` is that of a library of CUDA.
    """

    name: str
    by: str
    loaded: str
    found: str
    machine: str
    family: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable that steers the dynamic linker, CUDA, NCCL or a framework; no other is recorded.

    ``idle`` are the entries of LD_LIBRARY_PATH that are called stubs and do not exist, or hold no library.  ``leads``
    says what lies at the path that the value is: "file", "program", "directory", "other", "absent"; empty where it is
    no path, or nobody looked.
    """

    name: str
    value: str
    idle: tuple[str, ...] = ()
    leads: str = ""


class StartReached(StrEnum):
    """How far a container's own start came, with the payload in the place of the job's Python."""

    REACHED = "reached"  # the payload ran there
    FAILED = "failed"  # the container ended with an error before it
    HUNG = "hung"  # it did not come so far in time
    DROPPED = "dropped"  # it ended well, and never started what it was given


@dataclass(frozen=True, slots=True)
class Start:
    """How a container of the image starts its job, known outside of it.

    ``job`` is the whole command line: the image's ENTRYPOINT, then its CMD or what was named in its place.  ``python``
    is the word of it that names the Python, or the program whose Python it is.  ``how`` says how it ended where
    ``reached`` is not REACHED.  ``variables`` are those that the image sets and that steer something, ``path`` is its
    PATH, ``user`` and ``workdir`` as it says them.  ``through`` is what runs before the Python and may change what it
    meets ("/entry.sh", "the login shell bash"), in order.  ``named_by`` is the file that says the start in the place of
    the image, empty if none, and ``unset`` are its variables whose values it does not hold.
    """

    job: tuple[str, ...]
    python: str
    reached: StartReached
    how: str = ""
    variables: tuple[Variable, ...] = ()
    path: str = ""
    user: str = ""
    workdir: str = ""
    through: tuple[str, ...] = ()
    named_by: str = ""
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Process:
    """The process that was examined, as it was started: by the image's own start, or past it.

    ``folder`` is its working folder, ``user`` the name of ``uid``, empty where it has none.  ``variables`` are those
    that steer something, before Python's own start could change them; ``path`` is its PATH.  ``at_start`` are the files
    that Python ran before its program: sitecustomize, usercustomize, .pth files with code.  ``folder_closed`` says that
    the user may not read the working folder, None where that was not asked.  ``start_errors`` are what Python's start
    printed of its own failures (a sitecustomize that raises), None where that was not asked or did not end.
    """

    executable: str
    prefix: str
    folder: str
    uid: int
    gid: int
    user: str
    home: str
    path: str
    variables: tuple[Variable, ...]
    at_start: tuple[str, ...] = ()
    folder_closed: bool | None = None
    start_errors: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One device node of the driver; ``error`` is why it could not be opened, empty if it could."""

    path: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class DriverSeen:
    """The driver as a process in the image meets it.

    ``library`` is the real path of the libcuda.so.1 that dlopen gives, empty where there is none and ``load_error``
    says why.  ``init`` is cuInit's code, None if it was not called.  ``cuda`` is cuDriverGetVersion, ``file``
    the version in the library's file name, ``module`` that of the loaded kernel module, each empty if there is none.
    ``owner`` is the wheel or Debian package that brought the library into the image, empty where it came from outside.
    ``in_cache`` says whether ld.so.cache names it.  ``compat`` are the libcuda files of forward-compatibility packages
    in the image, ``stubs`` the stub libcuda files.  ``count`` is cuDeviceGetCount, ``nvml_count`` NVML's, None where
    they were not asked or did not answer; ``nvml`` is NVML's driver version or why it said none.
    """

    library: str = ""
    load_error: str = ""
    init: int | None = None
    cuda: str = ""
    file: str = ""
    module: str = ""
    owner: str = ""
    in_cache: bool | None = None
    compat: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    count: int | None = None
    nvml_count: int | None = None
    nvml: str = ""


class NvccFoundBy(StrEnum):
    """How a CUDA compiler is found, in the order in which torch's cpp_extension looks."""

    CUDA_HOME = "CUDA_HOME"
    CUDA_PATH = "CUDA_PATH"
    PATH = "PATH"
    DEFAULT = "/usr/local/cuda"
    PACKAGE = "package"

    @classmethod
    def _missing_(cls, value: object) -> NvccFoundBy:
        return cls.PACKAGE  # which the probe says by its name


@dataclass(frozen=True, slots=True)
class Toolkit:
    """One CUDA compiler that an extension build would take.

    ``via`` is how it is found ("CUDA_HOME", "PATH", "/usr/local/cuda", "nvidia-cuda-nvcc"), ``path`` the real path of
    nvcc, ``version`` what ``nvcc --version`` says, empty with ``error`` where it did not say.
    """

    via: str
    path: str
    version: str = ""
    error: str = ""

    @property
    def found_by(self) -> NvccFoundBy:
        """``via``, where every package is one."""
        return NvccFoundBy(self.via)


@dataclass(frozen=True, slots=True)
class Assembler:
    """One ptxas that a package brings for itself (Triton's); ``version`` as it says, ``owner`` the distribution."""

    path: str
    version: str
    owner: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Extension:
    """One shared object outside torch and NVIDIA's wheels that holds device code or calls the CUDA runtime.

    ``cudart`` is the libcudart that it needs ("libcudart.so.12"), "static" where it carries its own, "" where it calls
    none.  ``built_with`` is the newest toolkit that its machine code names, empty if none does.  ``sass`` and ``ptx``
    are architectures as the tools print them ("sm_90a", "compute_90"), both empty where it has no device code.
    ``for_torch`` says whether it needs a library of torch's.
    """

    path: str
    owner: str
    owner_version: str
    cudart: str
    built_with: str
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    for_torch: bool = False


@dataclass(frozen=True, slots=True)
class Framework:
    """One installed package that uses CUDA or torch, imported in a process of its own after torch.

    ``ended`` is "done", "raised" and the error's text, or how the process died.  ``built_torch`` and ``built_cuda``
    are what it says it was built for, empty where it does not say, ``built_via`` who said it.  ``gpu`` is "yes" where
    its build can use NVIDIA GPUs, "no" where it cannot, "" where it does not say.  ``libraries`` are the CUDA libraries
    and OpenMP runtimes that its import mapped on top of torch's.
    """

    name: str
    version: str
    ended: str
    built_torch: str = ""
    built_cuda: str = ""
    built_via: str = ""
    gpu: str = ""
    libraries: tuple[Library, ...] = ()


@dataclass(frozen=True, slots=True)
class CudnnSet:
    """One directory with cuDNN libraries: those that they ask the linker for, and those of them that are not there."""

    directory: str
    owner: str
    owner_version: str
    referenced: tuple[str, ...]
    missing: tuple[str, ...]


NO_RECORD = "no RECORD"
NO_PROMISE = "the image carries no promise of what it holds"


@dataclass(frozen=True, slots=True)
class ExpectedContents:
    """What the image was built to hold, read from its label, and the GPUs and driver it was declared for.

    ``whole`` is False where the base image brought wheels of its own, so that ``wheels`` are only those put on top.
    ``unpinned`` are clauses of what the lock leaves open; None where that was not recorded.  ``project`` is the name
    under which the project itself is installed, empty where it is not.
    """

    torch: str
    cuda: str
    wheels: tuple[Wheel, ...]
    gpus: tuple[Sm, ...] = ()
    lock_sha256: str = ""
    whole: bool = True
    unpinned: tuple[str, ...] | None = None
    project: str = ""


@dataclass(frozen=True, slots=True)
class Image(Recorded):
    """An image or environment; ``name`` is what the user called it, ``digest`` its content's name.

    ``torch_import`` is "done", "absent" (no such module), "raised" and the error's text, or how the process died.
    ``unmapped`` are the CUDA libraries that are there and that the process did not map: those of wheels, and those that
    the linker's cache, LD_LIBRARY_PATH or a toolkit's directory holds, with the version in the file's name and the
    Debian package that owns it; ``found_via`` says which ("on disk, in ld.so.cache").  ``devices`` is empty where there
    is no driver.  ``compiler`` is the version of the host compiler that nvcc would take.  ``promise`` is missing with
    the reason NO_PROMISE where the image makes none.  ``gpus_given`` are the GPUs that the run was given ("all" or one
    name each), known outside the image; empty where it got none.  ``frameworks_asked`` are the packages whose
    import the user wants proven (TORCH and other distributions), NO_FRAMEWORK alone where the image is declared to
    hold none; empty where nobody said, which means TORCH.  ``engine`` is the engine that ran it, empty without.
    ``content`` and the fields up to ``preloads`` are "unsupported" in documents of versions that did not look at that:
    ``modules`` is where the modules lie that torch requires, ``closed`` what the user of the process may not read.
    ``start`` is how a container of it starts its job, "unsupported" where it was examined past that, or has none;
    ``process`` is the process that was examined.  ``abilities`` is what it can do, "unsupported" where nobody asked.
    """

    name: str
    digest: str = ""
    python: Observed[str] = field(default_factory=Observed)
    platform: Observed[str] = field(default_factory=Observed)
    libc: Observed[str] = field(default_factory=Observed)
    torch_import: Observed[ImportEnd] = field(default_factory=Observed)
    torch: Observed[TorchBuild] = field(default_factory=Observed)
    late: Observed[tuple[LateLoad, ...]] = field(default_factory=Observed)
    libraries: Observed[tuple[Library, ...]] = field(default_factory=Observed)
    bindings: Observed[tuple[Binding, ...]] = field(default_factory=Observed)
    unmapped: Observed[tuple[Library, ...]] = field(default_factory=Observed)
    wheels: Observed[tuple[Wheel, ...]] = field(default_factory=Observed)
    requires: Observed[tuple[Requirement, ...]] = field(default_factory=Observed)
    overwritten: Observed[tuple[Overwritten, ...]] = field(default_factory=Observed)
    content: Observed[Content] = field(default_factory=Observed.unsupported)
    debian: Observed[tuple[DebianFile, ...]] = field(default_factory=Observed.unsupported)
    modules: Observed[tuple[NeededModule, ...]] = field(default_factory=Observed.unsupported)
    search: Observed[Search] = field(default_factory=Observed.unsupported)
    closed: Observed[tuple[ClosedFile, ...]] = field(default_factory=Observed.unsupported)
    preloads: Observed[tuple[Preload, ...]] = field(default_factory=Observed.unsupported)
    promise: Observed[ExpectedContents] = field(default_factory=Observed)
    devices: Observed[tuple[Sm, ...]] = field(default_factory=Observed)
    variables: Observed[tuple[Variable, ...]] = field(default_factory=Observed)
    driver: Observed[DriverSeen] = field(default_factory=Observed)
    toolkits: Observed[tuple[Toolkit, ...]] = field(default_factory=Observed)
    compiler: Observed[str] = field(default_factory=Observed)
    assemblers: Observed[tuple[Assembler, ...]] = field(default_factory=Observed)
    extensions: Observed[tuple[Extension, ...]] = field(default_factory=Observed)
    frameworks: Observed[tuple[Framework, ...]] = field(default_factory=Observed)
    cudnn: Observed[tuple[CudnnSet, ...]] = field(default_factory=Observed)
    process: Observed[Process] = field(default_factory=Observed.unsupported)
    start: Observed[Start] = field(default_factory=Observed.unsupported)
    abilities: Observed[Abilities] = field(default_factory=Observed.unsupported)
    gpus_given: tuple[str, ...] = ()
    frameworks_asked: tuple[str, ...] = ()
    engine: str = ""

    @property
    def import_state(self) -> ImportState | None:
        """How the import of torch ended, None where that was not observed."""
        return None if self.torch_import.value is None else self.torch_import.value.state

    def mapped(self, name: str) -> tuple[Library, ...]:
        """The mapped copies of the library family ``name``; raises Unknown if the process was not observed."""
        return tuple(lib for lib in self.libraries.need("the mapped libraries") if lib.name == name)
