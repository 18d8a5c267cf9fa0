"""A job before its launch: the image that it starts from, the machine that it starts on, what somebody said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.audit import Audit
from envkit.subjects.declared import Job
from envkit.subjects.host import Host
from envkit.subjects.recorded import Recorded

FileKind = Literal["file", "directory", "other", "absent"]


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
