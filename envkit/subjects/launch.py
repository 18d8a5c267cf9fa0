"""A job before its launch: the image that it starts from, the machine that it starts on, what somebody said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from envkit.model import Observed
from envkit.subjects.audit import Audit
from envkit.subjects.host import Host, Limit
from envkit.subjects.recorded import Recorded

UNDECLARED = "not declared"

FileKind = Literal["file", "directory", "other", "absent"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the machine that the job sees at ``target``.

    ``source`` is a path of the machine, or the name of a volume of the engine.  ``kind`` is "directory", "file",
    "other", "absent", or "volume" for what the engine keeps; ``owner`` and ``group`` are numbers, ``mode`` the
    permission bits and ``free`` the bytes that an ordinary process may still write there.
    """

    source: str
    target: str
    read_only: bool = False
    kind: Observed[str] = field(default_factory=Observed)
    owner: Observed[int] = field(default_factory=Observed)
    group: Observed[int] = field(default_factory=Observed)
    mode: Observed[int] = field(default_factory=Observed)
    free: Observed[int] = field(default_factory=Observed)


def _undeclared() -> Observed[Any]:
    return Observed.lost(UNDECLARED)


@dataclass(frozen=True, slots=True)
class Job:
    """What somebody declares of a run; each value is missing as UNDECLARED where nobody said it.

    ``gpus`` are the GPUs that the container gets: "all", or the index or UUID of each; empty for none.  ``way`` is how
    they enter: "cdi", "hook" (the toolkit's own hook or runtime), or "none".  ``environment`` is what the process will
    have, the image's variables under the job's, as far as they steer something and hold no secret; ``replaced`` holds
    the image's value of each that the job sets to another one.  ``shm`` (the size of /dev/shm), ``memory`` and
    ``checkpoint_bytes`` are in bytes; ``ipc``, ``network`` are the namespaces ("private", "host"; "bridge", "host",
    "none").  ``workers`` are data loader processes of one rank, ``ranks`` the processes on this machine, ``nodes`` the
    machines.  ``pids`` is the most processes and threads of the container, ``cpus`` how many processors it may keep
    busy.  ``user`` is "uid", "uid:gid" or a name.  ``tmpfs`` and ``devices`` are paths inside.
    """

    gpus: Observed[tuple[str, ...]] = field(default_factory=_undeclared)
    way: Observed[str] = field(default_factory=_undeclared)
    nodes: Observed[int] = field(default_factory=_undeclared)
    ranks: Observed[int] = field(default_factory=_undeclared)
    workers: Observed[int] = field(default_factory=_undeclared)
    environment: Observed[Mapping[str, str]] = field(default_factory=_undeclared)
    replaced: Observed[Mapping[str, str]] = field(default_factory=_undeclared)
    shm: Observed[int] = field(default_factory=_undeclared)
    memory: Observed[int] = field(default_factory=_undeclared)
    ipc: Observed[str] = field(default_factory=_undeclared)
    network: Observed[str] = field(default_factory=_undeclared)
    limits: Observed[Mapping[str, Limit]] = field(default_factory=_undeclared)
    user: Observed[str] = field(default_factory=_undeclared)
    mounts: Observed[tuple[Mount, ...]] = field(default_factory=_undeclared)
    tmpfs: Observed[tuple[str, ...]] = field(default_factory=_undeclared)
    devices: Observed[tuple[str, ...]] = field(default_factory=_undeclared)
    capabilities: Observed[tuple[str, ...]] = field(default_factory=_undeclared)
    privileged: Observed[bool] = field(default_factory=_undeclared)
    read_only: Observed[bool] = field(default_factory=_undeclared)
    checkpoint: Observed[str] = field(default_factory=_undeclared)
    checkpoint_bytes: Observed[int] = field(default_factory=_undeclared)
    command: Observed[tuple[str, ...]] = field(default_factory=_undeclared)
    pids: Observed[int] = field(default_factory=_undeclared)
    cpus: Observed[float] = field(default_factory=_undeclared)


@dataclass(frozen=True, slots=True)
class CompatLibrary:
    """The libcuda of a forward-compatibility package in the image.

    ``driver`` is the version in its file name.  What follows stands in its note .note.cuda.fwd_compatibility: the CUDA
    that it speaks, the driver branches that it runs on, and the brands of GPUs by NVML's numbers; all empty with
    ``noted`` False where the file has no note, as older ones have none.  ``offered`` says whether it lies where the
    container toolkit looks for one, in /usr/local/cuda/compat.
    """

    path: str
    driver: str
    offered: bool = False
    noted: bool = False
    cuda: str = ""
    branches: tuple[int, ...] = ()
    brands: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the image's /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str


@dataclass(frozen=True, slots=True)
class Inside:
    """What a path of the image leads to: "file", "directory", "other" or "absent", where that really lies, whose it is
    and its mode.
    """

    kind: FileKind
    real: str = ""
    uid: int = 0
    gid: int = 0
    mode: int = 0


@dataclass(frozen=True, slots=True)
class Launch(Recorded):
    """An image, a machine and a job; ``name`` is what the report calls it.

    ``compat`` are the forward-compatibility libraries of the image, ``accounts`` its users, ``paths`` what lies in the
    image at each path that the job or its variables name, ``program`` where the job's command is found there (empty if
    nowhere).
    """

    name: str
    host: Host
    image: Observed[Audit] = field(default_factory=Observed)
    compat: Observed[tuple[CompatLibrary, ...]] = field(default_factory=Observed)
    accounts: Observed[tuple[Account, ...]] = field(default_factory=Observed)
    paths: Observed[Mapping[str, Inside]] = field(default_factory=Observed)
    program: Observed[str] = field(default_factory=Observed)
    job: Job = field(default_factory=Job)
