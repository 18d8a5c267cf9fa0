"""What can build an image and run envkit's payload in it: Docker, Podman, or a private virtual environment; and what
runs an image that one of the first two has saved: Charliecloud and Apptainer.

``docker`` is imported by ``envkit.engine.docker`` alone; ``envkit.engine.local`` needs nothing but uv, and the others
the program that they are named after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from envkit.errors import Undecided, UsageError
from envkit.records import dataclass
from envkit.system.proc import Completed

Start = Callable[[Sequence[str]], Sequence[str]]  # the container's whole command line for the payload's own words
Say = Callable[[str], None]  # one short line of progress; the caller sends it to stderr

WORK = "/work"  # of a container that compiles: always the same path, for compilers write paths into what they make


@dataclass(frozen=True, slots=True)
class BaseRequest:
    """The base an image starts from.

    ``ref`` is the image's name ("debian:bookworm-slim").  ``digest`` ("sha256:...") is what the lock holds of
    it, empty when nothing is pinned yet.  ``suite`` is the Debian suite with the same content, empty if there
    is none; with it the base can be made from the distribution's packages where no registry answers, with
    ``include`` installed on top of the minimum and no file younger than ``epoch`` (seconds since 1970).
    """

    ref: str
    suite: str = ""
    digest: str = ""
    include: tuple[str, ...] = ("ca-certificates",)
    epoch: int = 315532800  # 1980, the earliest time a zip archive can hold


@dataclass(frozen=True, slots=True)
class ResolvedBase:
    """A base that the engine holds now.

    ``ref`` is what FROM takes, ``id`` the engine's own name for the content, ``how`` is "local", "registry",
    "bootstrapped" or "vendored".  ``sha256`` ("sha256:...") is what a lock should pin: the registry's manifest digest,
    or for a bootstrapped base the hash of its file tree as one tar; empty if the image never had one.
    """

    ref: str
    id: str
    how: str
    sha256: str


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build: the Dockerfile in ``context``, its stage ``target`` (the last one if empty), named ``tag``.

    ``args`` and ``labels`` are texts by name, ``secrets`` files that steps may read and no layer holds.  ``contexts``
    are folders that take the place of the stages they are named after.  ``offline`` gives no step a network;
    ``no_cache`` runs every step again.  ``timeout_s`` is for the whole build, in seconds.  ``ahead`` is a stage that
    ``target`` is built on and whose layers are large: an engine may take them in while later steps run.  An image that
    is ``passing`` is for this process alone: the engine chooses its name, and takes it away once this process is gone.
    ``provenance``: it is attested how the image was built, where the engine can hold that.
    """

    context: Path
    tag: str
    timeout_s: float
    target: str = ""
    ahead: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)
    contexts: Mapping[str, Path] = field(default_factory=dict)
    offline: bool = False
    no_cache: bool = False
    passing: bool = False
    provenance: bool = False


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A finished image; ``size_bytes`` is what the engine says it holds, ``seconds`` the wall time of the build."""

    id: str
    tag: str
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DeclaredStart:
    """What an image says of its start: its ENTRYPOINT and CMD, the variables of its ENV, USER and WORKDIR."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""


class CannotStart(Undecided):
    """A container was made and its first program could not be started."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """What an engine holds of an image.

    ``id`` is the engine's own name for the content, ``size`` the bytes that it says it takes.  ``roots`` are the
    folders of its layers, the lowest first, in the form of the kernel's overlay, and ``config`` is its OCI
    configuration; both are empty where this process cannot read them as the engine does, and ``save`` is the way.  An
    environment that is one folder has that for its only root, and no ``config``.
    """

    id: str
    size: int
    config: bytes = b""
    roots: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of this machine, or a named volume of the engine, at the path ``target`` of a container."""

    source: str
    target: str
    writable: bool = True


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A person's own command in an image, as its entry point starts it.

    ``gpus`` are "all", indexes or UUIDs.  ``env`` are variables, ``binds`` what it sees of this machine, ``workdir``
    where it starts.  ``user`` are uid and gid on this machine, the image's own without.  ``options`` are words of
    `docker run` that mean the same to every engine of containers.  ``terminal``: it is given one; ``stdin``: it reads
    what envkit does.  ``project`` is the folder of this machine that an environment without containers starts it in.
    """

    image: str
    argv: tuple[str, ...]
    gpus: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    workdir: str = ""
    user: tuple[int, int] | None = None
    options: tuple[str, ...] = ()
    terminal: bool = False
    stdin: bool = False
    project: Path = Path()


@dataclass(frozen=True, slots=True)
class JobLine:
    """The command line that starts a job: ``argv``, and the variables that it must have beside those of envkit."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended: its exit code, above 128 for a signal; ``not_started`` is why there was none, empty if there was
    one.  ``out_of_memory``: the kernel killed a process of it at its memory limit.  ``doubt`` is why it is not sure
    that it had the GPUs that it was to have, empty if it is."""

    exit: int
    not_started: str = ""
    out_of_memory: bool = False
    doubt: str = ""


# Runs a command line for the person who waits: its exit code, negative for a signal.
Attend = Callable[[JobLine], int]


def where_they_lie(argv: Sequence[str], mounts: Mapping[str, Path]) -> list[str]:
    """``argv`` for a run that is in no container: a word that is a mount's path, or lies below one, becomes the path of
    that file or folder on this machine."""

    def place(word: str) -> str:
        for inside, outside in mounts.items():
            if word == inside or word.startswith(inside + "/"):
                return str(outside.resolve()) + word[len(inside) :]
        return word

    return [place(word) for word in argv]


class Ability(StrEnum):
    """What not every engine can do; the words are those of a refusal."""

    BUILD = "build an image"
    LAYERS = "tell an image's layers"
    COMPILE = "compile a package"
    FOLLOW = "run a command under `envkit debug`"
    DIGEST = "ask a registry for a digest"
    LIMITS = "give a container limits and a network of its own"
    PUSH = "push an image"
    JOIN = "join images of several platforms under one name"
    ATTEST = "attest how an image was built"
    SAME_ID = "give one id to images that are the same"


CONTAINERS = frozenset(Ability)  # what an engine with images and layers of its own can do


class Engine(Protocol):
    """One way to make an environment and to look into it.

    Every method raises Undecided when the engine, the network or the disk does not serve, and UsageError when the
    image asked for does not exist.
    """

    name: str
    where: str  # what a report calls it, without credentials
    containers: bool  # False for one that has neither bases nor layers: a virtual environment on this machine
    abilities: frozenset[Ability]

    def resolve_base(self, request: BaseRequest, say: Say) -> ResolvedBase:
        """The base as pinned: what is here already, else the registry's, else one made from packages."""

    def build(self, request: BuildRequest, say: Say) -> BuiltImage:
        """Builds the image; a build that fails leaves its tag as it was."""

    def layers(self, image: str) -> tuple[str, ...]:
        """The hashes of the layers' content ("sha256:..."), the base's first."""

    def stored(self, image: str) -> StoredImage:
        """What is held of ``image``, and where."""

    def file(self, image: str, path: str) -> bytes:
        """The content of the file ``path`` in ``image``; UsageError if there is none."""

    def save(self, image: str, target: Path) -> None:
        """Writes ``image`` with all its layers into the file ``target``, as ``docker load`` reads it."""

    def push(self, image: str, ref: str, say: Say) -> str:
        """Brings ``image`` to a registry under the name ``ref``, and gives the digest ("sha256:...") that it has there;
        UsageError where the registry does not let this user."""
        ...

    def join(self, index: str, pinned: str, platform: str, say: Say) -> str:
        """Makes ``index`` the name of the pushed image ``pinned`` for this platform, beside those of others, and gives
        its digest; UsageError where it is the name of one image."""
        ...

    def elsewhere(self) -> bool:
        """Whether it runs on another machine than this process, whose GPUs are not this one's."""

    def labels(self, image: str) -> Mapping[str, str]:
        """The labels of ``image``."""

    def declared(self, image: str) -> DeclaredStart:
        """How ``image`` says that its containers start; of an environment without containers, nothing."""
        ...

    def run(
        self,
        image: str,
        argv: Sequence[str],
        *,
        payload: bytes,
        gpus: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        start: Start | None = None,
        placed: DeclaredStart | None = None,
        mounts: Mapping[str, Path] | None = None,
        timeout_s: float,
        say: Say,
        stop: Callable[[], bool] | None = None,
    ) -> Completed:
        """Runs the zipapp ``payload`` with the arguments ``argv`` under the image's own python3, past its entry point,
        or by the command line that ``start`` makes of the payload's path and arguments.

        ``placed`` holds the variables, the user and the working folder that count in the place of the image's.
        ``--watch-stdin`` is appended to the arguments: the payload must kill itself when its stdin ends, so that
        it never outlives envkit.  ``gpus`` are "all", indexes or UUIDs; with none the run sees no GPU.  ``mounts`` are
        files and folders of this machine by the path that the run sees each at, read-only; where there is no
        container, the words of ``argv`` name them where they lie (``where_they_lie``).  ``say`` gets each line of its
        stderr.  After ``timeout_s`` seconds everything in it is killed, and so it is once ``stop`` says True.
        """

    def compile(
        self, image: str, argv: Sequence[str], given: Path, made: Path, *, timeout_s: float, say: Say
    ) -> Completed:
        """Runs ``argv`` in a container of ``image`` that may write to /tmp and to the folder WORK alone, with no
        network, no GPU, no capability and no variable but the image's own.

        WORK, where it starts, holds what is in the tar ``given``; what lies in WORK/out at the end is written to the
        tar ``made``, unless ``timeout_s`` seconds have passed.  ``say`` gets each line of its stderr.
        """

    def job_line(self, request: JobRequest) -> JobLine:
        """The command line by which a person starts the job without envkit; what it leaves goes with it."""
        ...

    def attend(self, request: JobRequest, attend: Attend) -> JobEnd:
        """Starts the job by ``attend`` and tells how it ended; nothing of it is left when this returns or raises, or
        when envkit is killed."""

    def load(self, saved: Path, request: BaseRequest) -> ResolvedBase:
        """Takes in what ``save`` wrote of the base that ``request`` pins; UsageError if it is no image."""

    def remove(self, image: str) -> None:
        """Takes ``image`` away; one that does not exist is no error."""

    def follow(
        self,
        image: str,
        argv: Sequence[str],
        *,
        mounts: Mapping[str, tuple[Path, bool]],
        gpus: tuple[str, ...] = (),
        network: str = "",
        placed: DeclaredStart | None = None,
        timeout_s: float,
        say: Say,
    ) -> Completed:
        """Runs ``argv``, a person's own command, as a person would: writable, with the network ``network`` (the
        engine's own if empty), and with ``placed`` as in ``run``.

        It may trace its own processes, for that is what it is run for.  ``mounts`` are bound at their paths, each with
        whether it may be written to.  ``gpus`` enter as for ``run``, which says what is raised.
        """

    def digest(self, ref: str) -> str:
        """The digest ("sha256:...") that the registry has for ``ref`` now; nothing is pulled."""
        ...


def cannot(engine: Engine, ability: Ability) -> UsageError:
    """The error for an engine that lacks ``ability``."""
    return UsageError(f"the {engine.name} engine cannot {ability.value}", "use --engine docker or --engine podman")


def needs(engine: Engine, ability: Ability) -> None:
    """Raises UsageError, before any work, for an engine that lacks ``ability``."""
    if ability not in engine.abilities:
        raise cannot(engine, ability)
