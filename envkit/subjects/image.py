"""An image, or the Python at hand, as its own process shows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from envkit.model import Observed
from envkit.versions import Sm


@dataclass(frozen=True, slots=True)
class Library:
    """One mapped shared library.

    ``name`` is the family ("cudart", "cudnn_ops"), ``version`` what the library says of itself, empty if it was not
    asked or did not answer, ``version_via`` the function that said it or why none did; ``owner`` is the
    distribution ("nvidia-cudnn-cu12") and ``owner_version`` its version, both empty if no installed
    distribution lists the file; ``found_via`` says how it came into the process ("rpath of libtorch_cuda.so",
    "ld_library_path", "mapped before torch").
    """

    name: str
    soname: str
    path: str
    version: str = ""
    version_via: str = ""
    owner: str = ""
    owner_version: str = ""
    found_via: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """The copy of a library that a caller really gets: where ``symbol`` resolves (dlsym, then dladdr).

    ``caller`` is "libtorch_cuda.so" for its own scope or "process" for the global one.
    """

    name: str
    symbol: str
    caller: str
    path: str


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


NO_RECORD = "no RECORD"
NO_PROMISE = "the image carries no promise of what it holds"


@dataclass(frozen=True, slots=True)
class Promise:
    """What the image was built to hold, read from its label, and the GPUs and driver it was declared for.

    ``whole`` is False where the base image brought wheels of its own, so that ``wheels`` are only those put on top.
    """

    torch: str
    cuda: str
    wheels: tuple[Wheel, ...]
    gpus: tuple[Sm, ...] = ()
    lock_sha256: str = ""
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Image:
    """An image or environment; ``name`` is what the user called it, ``digest`` its content's name.

    ``torch_import`` is "done", "absent" (no such module), "raised" and the error's text, or how the process died.
    ``unmapped`` are the CUDA libraries that wheels brought and the process did not map.  ``devices`` is empty where
    there is no driver.  ``promise`` is missing with the reason NO_PROMISE where the image makes none.  ``gpus_given``
    are the GPUs that the run was given ("all" or one name each), known outside the image; empty where it got none.
    """

    name: str
    digest: str = ""
    python: Observed[str] = field(default_factory=Observed)
    platform: Observed[str] = field(default_factory=Observed)
    libc: Observed[str] = field(default_factory=Observed)
    torch_import: Observed[str] = field(default_factory=Observed)
    torch: Observed[TorchBuild] = field(default_factory=Observed)
    late: Observed[tuple[LateLoad, ...]] = field(default_factory=Observed)
    libraries: Observed[tuple[Library, ...]] = field(default_factory=Observed)
    bindings: Observed[tuple[Binding, ...]] = field(default_factory=Observed)
    unmapped: Observed[tuple[Library, ...]] = field(default_factory=Observed)
    wheels: Observed[tuple[Wheel, ...]] = field(default_factory=Observed)
    requires: Observed[tuple[Requirement, ...]] = field(default_factory=Observed)
    overwritten: Observed[tuple[Overwritten, ...]] = field(default_factory=Observed)
    promise: Observed[Promise] = field(default_factory=Observed)
    devices: Observed[tuple[Sm, ...]] = field(default_factory=Observed)
    gpus_given: tuple[str, ...] = ()

    def mapped(self, name: str) -> tuple[Library, ...]:
        """The mapped copies of the library family ``name``; raises Unknown if the process was not observed."""
        return tuple(lib for lib in self.libraries.need("the mapped libraries") if lib.name == name)
