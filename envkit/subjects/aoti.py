"""An AOTInductor package and how it loads and runs in one place, as observed."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.image import Variable
from envkit.subjects.recorded import Recorded
from envkit.versions import Sm

Ended = Literal["done", "loaded", "raised", "killed", "hung", "not-applicable", "garbled"]


@dataclass(frozen=True, slots=True)
class Needs:
    """The symbol versions that a library wants from one provider ("libstdc++.so.6": "GLIBCXX_3.4.30")."""

    library: str
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelLibrary:
    """The compiled code of a model.

    ``machine`` is the one in its ELF header, ``needed`` its DT_NEEDED, ``search`` its RPATH and RUNPATH, ``kernels``
    the files of GPU machine code that it names.  ``guards`` says whether it can check its inputs: "variable" (where
    AOTI_RUNTIME_CHECK_INPUTS is set), "always", or "" for never.  ``carries`` names what it exports that only libstdc++
    itself defines, empty unless it was linked statically; ``std`` counts all that it exports of namespace std, to which
    headers give a few hundred.  ``error`` is why it is no library.
    """

    name: str
    size: int = 0
    machine: str = ""
    needed: tuple[str, ...] = ()
    needs: tuple[Needs, ...] = ()
    search: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    guards: str = ""
    carries: tuple[str, ...] = ()
    std: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One file of GPU machine code that is there; ``archs`` ("sm_90a") is empty where the file does not say."""

    name: str
    archs: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What the package says of one input; empty and None where it says nothing.

    ``shape``, ``stride`` and the bounds ``least`` and ``most`` hold None for what may vary or is not bounded.
    """

    name: str
    dtype: str = ""
    device: str = ""
    shape: tuple[int | None, ...] | None = None
    least: tuple[int | None, ...] | None = None
    most: tuple[int | None, ...] | None = None
    stride: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Package:
    """What the file says of itself; ``error`` is why it cannot be read, and then the rest says little.

    ``form`` is "pt2" (a zip) or "so" (a bare library).  ``device``, ``machine``, ``isa`` and ``capability`` are what
    torch wrote into the metadata (AOTI_DEVICE_KEY, AOTI_MACHINE, AOTI_CPU_ISA, AOTI_COMPUTE_CAPABILITY), empty where
    the release wrote none.
    """

    path: str
    size: int = 0
    form: str = ""
    model: str = ""
    models: tuple[str, ...] = ()
    device: str = ""
    machine: str = ""
    isa: str = ""
    capability: str = ""
    libraries: tuple[ModelLibrary, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder a package is unpacked into when it is loaded; ``free`` in bytes, ``runs`` False for noexec."""

    path: str
    free: int
    runs: bool


@dataclass(frozen=True, slots=True)
class Compiler:
    """One C++ compiler here.

    ``links`` says where a library that it links has libstdc++: "shared" (it needs libstdc++.so), "inside" (it exports
    its own copy), "" for neither (another C++ library, or its own copy hidden) or where it made none, which ``error``
    says.
    """

    path: str
    version: str = ""
    script: bool = False
    links: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class TorchSeen:
    """The torch that loads the package."""

    version: str
    cuda: str
    path: str
    cxx11_abi: bool


@dataclass(frozen=True, slots=True)
class MappedLibrary:
    """One library of the process; ``stage`` is during what it came in, ``defines`` the symbol versions it has.

    ``defines`` is read only of libraries that the package asks for versions.
    """

    path: str
    stage: str
    defines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkResult:
    """What dlopen with RTLD_NOW, in a process that has imported torch, says of the model's libraries.

    ``error`` is its own text, empty where all symbols were bound; ``died`` how the process ended where it did not live.
    """

    error: str = ""
    died: str = ""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor that went in or came out; ``stride`` is empty for a layout without strides."""

    name: str
    dtype: str
    device: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """How loading and running ended.

    ``ended`` is "done", "loaded" (loaded and not run, ``detail`` says why), "raised" (``detail`` is the error),
    "killed" (``signal``), "hung", "not-applicable" or "garbled"; ``stage`` is what was being done: "import torch",
    "make the inputs", "load", "run", "unload", "end".
    """

    ended: Ended
    stage: str
    detail: str = ""
    signal: str = ""
    seconds: float = 0.0
    outputs: tuple[Tensor, ...] = ()
    stderr_tail: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One place of code on the way to a death: the file, the offset in it, and the exported function that holds it."""

    path: str
    offset: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Trail:
    """What ptrace showed when the death was repeated, the newest first; ``signal`` is empty where it did not die."""

    signal: str
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class AotiRun(Recorded):
    """One package in one place.

    Known outside: ``runner`` is the runner class that the user means to use ("cpu", "cuda", "" for whichever fits),
    ``factory`` the function that made the inputs, empty where they are made from the package's own description,
    ``gpus_given`` the GPUs that the run was given, and ``engine`` the engine that ran it, empty without.  ``compilers``
    begins with the one that inductor would take and is empty where there is none.
    """

    name: str
    digest: str = ""
    runner: str = ""
    factory: str = ""
    gpus_given: tuple[str, ...] = ()
    package: Observed[Package] = field(default_factory=Observed)
    machine: Observed[str] = field(default_factory=Observed)
    flags: Observed[tuple[str, ...]] = field(default_factory=Observed)
    gpus: Observed[tuple[Sm, ...]] = field(default_factory=Observed)
    scratch: Observed[Scratch] = field(default_factory=Observed)
    compilers: Observed[tuple[Compiler, ...]] = field(default_factory=Observed)
    variables: Observed[tuple[Variable, ...]] = field(default_factory=Observed)
    torch: Observed[TorchSeen] = field(default_factory=Observed)
    mapped: Observed[tuple[MappedLibrary, ...]] = field(default_factory=Observed)
    link: Observed[LinkResult] = field(default_factory=Observed)
    inputs: Observed[tuple[Tensor, ...]] = field(default_factory=Observed)
    run: Observed[Run] = field(default_factory=Observed)
    trail: Observed[Trail] = field(default_factory=Observed)
    engine: str = ""
