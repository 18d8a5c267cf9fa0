"""A job that a file describes for another tool: what `envkit run` starts here, without the paths of this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from envkit.build.flags import HOME, SHM, WORKSPACE
from envkit.build.render import guard_text
from envkit.credentials import names_secret
from envkit.errors import UsageError, one_line
from envkit.plan.lockfile import Lock
from envkit.records import dataclass
from envkit.subjects.declared import Mount

GUARD = "/usr/share/envkit/guard.py"  # in an image with a guard
BROUGHT_GUARD = "/envkit/guard.py"  # in a container whose file brings it
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHM_BYTES = int(SHM.removesuffix("g")) << 30  # of /dev/shm where nobody says
_UNITS = (("Gi", 30), ("Mi", 20), ("Ki", 10), ("", 0))


@dataclass(frozen=True, slots=True)
class Task:
    """A job as a person describes it.

    ``image`` is where the tool finds it; ``registry`` says that this is a registry's, and nothing is built.  ``argv``
    is the command, empty for the image's own.  ``project``: the job sees the project's folder at /workspace; it does
    not where the image holds a copy.  ``gpus`` is their number on each node, None for all that are there.
    ``env`` are variables; of those whose name says that they are secrets no value is written.  ``binds`` is what the
    job sees beside the project and its HOME, or in their place.  ``user`` are uid and gid.  ``shm`` and ``memory`` are
    bytes, None where nobody said.  ``preflight``: its GPUs and its shared memory are tried first.
    """

    image: str
    registry: bool = False
    argv: tuple[str, ...] = ()
    project: bool = True
    gpus: int | None = None
    nodes: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Mount, ...] = ()
    workdir: str = WORKSPACE
    user: tuple[int, int] = (1000, 1000)
    shm: int | None = None
    memory: int | None = None
    preflight: bool = True

    def __post_init__(self) -> None:
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                said = f"`{one_line(name)}` is no name of a variable that every tool takes"
                raise UsageError(said, "use letters, digits and underscores")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of variables whose values are in no file."""
        return tuple(name for name in self.env if names_secret(name))

    def needs(self, target: str) -> bool:
        """Whether a file is to give the job its usual folder at ``target``, the project's or HOME."""
        return (target != WORKSPACE or self.project) and not any(bind.target == target for bind in self.binds)


def environment(lock: Lock, task: Task, shm: int | None) -> dict[str, str]:
    """The variables of the job whose values a file may hold; what the guard reads is among them: ``shm``, in bytes, is
    the shared memory that it must find."""
    own = {
        "HOME": HOME,
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{HOME}/.cache/inductor",
    }
    if task.preflight:
        own |= {"ENVKIT_SHM": str(shm)} if shm else {}
        if not lock.cuda:
            own["ENVKIT_GPUS"] = "0"
        elif task.gpus is not None:
            own["ENVKIT_GPUS"] = str(task.gpus)
    elif lock.guard:
        own["ENVKIT_GUARD"] = "off"
    given = {name: value for name, value in task.env.items() if not names_secret(name)}
    return own | given


def brought_guard(lock: Lock, task: Task) -> str:
    """The guard's text, where the job is to have one and its image has none; empty otherwise."""
    return guard_text() if task.preflight and task.argv and not lock.guard else ""


def entry(lock: Lock, task: Task, guard: Sequence[str] = (BROUGHT_GUARD,)) -> tuple[str, ...]:
    """The words before the command in the place of the image's entry point: they try the GPUs, and go on with that
    entry point; empty where it does all that itself, or nothing is tried.

    ``guard`` is what Python is given to find the guard that the file brings.
    """
    return ("python3", "-I", "-S", *guard, "--", *lock.inside.entrypoint) if brought_guard(lock, task) else ()


def amount(size: int) -> str:
    """Bytes as Kubernetes writes them, in the largest unit that loses nothing."""
    unit, bits = next((unit, bits) for unit, bits in _UNITS if size % (1 << bits) == 0)
    return f"{size >> bits}{unit}"


def counted(task: Task, tool: str) -> int:
    """The number of GPUs of a node; UsageError where ``tool`` needs one and nobody gave it."""
    if task.gpus is None:
        raise UsageError(f"{tool} gives GPUs by their number, and `all` is none", "name it, as in --gpus 8")
    return task.gpus


def command(task: Task, tool: str) -> list[str]:
    """The command of a job for ``tool``; UsageError for one without."""
    if not task.argv:
        raise UsageError(f"{tool} runs a command, and none is given", "add it: `-- python train.py`")
    return list(task.argv)
