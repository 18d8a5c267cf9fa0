"""What somebody declares of a job, which is known before the machine or the image has been looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.limit import Limit

UNDECLARED = "not declared"


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
