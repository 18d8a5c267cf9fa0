"""Containers as a compose file, a manifest, a workflow or a script starts them: what each gets of the GPUs, of memory,
of the host.  Every value knows where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from envkit.model import Span
from envkit.records import dataclass
from envkit.subjects.dockerfile import Base, Dockerfile, Unread


@dataclass(frozen=True, slots=True)
class FileValue:
    """One value as the file says it; ``sure`` is False where it holds a variable or a template that nobody decided."""

    value: str
    span: Span
    sure: bool = True


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """One way in which a container asks for GPUs.

    ``form``: devices (compose, deploy.resources), gpus (compose), limit and request (Kubernetes resources), claim
    (dynamic allocation), runtime, cdi, node (a device node handed in by hand), option (docker's --gpus), nv
    (Apptainer's --nv), pyxis, allotted (what a Slurm job asks for), host (devcontainer's hostRequirements).
    ``resource`` is what is asked for ("nvidia.com/gpu", "nvidia").  ``count`` is as written ("2", "all", "" where none
    is); ``ids`` and ``capabilities`` None where they are not given.
    """

    form: str
    span: Span
    resource: str = ""
    count: FileValue | None = None
    ids: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] | None = None
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Mount:
    """``kind``: bind, volume, tmpfs, memory (emptyDir in memory), empty (on disk), other.  ``size`` limits it."""

    kind: str
    source: str
    target: str
    span: Span
    size: FileValue | None = None


@dataclass(frozen=True, slots=True)
class StartLine:
    """A part of a container's command line: ``words`` as they are handed to the kernel, ``key`` is what says them
    (ENTRYPOINT, CMD, entrypoint, command, args).  ``shell`` marks the shell form of a Dockerfile, whose text is the
    last of the words.
    """

    words: tuple[FileValue, ...]
    key: str
    span: Span
    shell: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """One service, one container of a pod, or a devcontainer.

    ``base`` is what the image holds as far as its reference says, ``built`` the Dockerfile that it is built from; both
    None where neither is known.  ``image`` is None where it is built here.  ``ipc`` is "host", "shareable", ...;
    ``ulimits`` by name, soft limits; ``env`` values are None where they come from elsewhere.
    ``replicas`` counts copies, None where nobody knows.  ``initial`` marks one that ends before the others start.
    ``command`` are entry point and arguments.  ``env_files`` says whether some variables are in files.
    ``local`` says that the image is never pulled, so that it was made on the machine.  ``entrypoint`` stands in the
    place of the image's ENTRYPOINT, ``arguments`` of its CMD; None where the file leaves them to the image.
    ``folder`` is the build context of ``built``, below that of this file, ``build_args`` what the
    file gives its ARGs.  ``allotted`` are the GPUs of a batch job none of whose containers asks for any.
    """

    name: str
    span: Span
    image: FileValue | None = None
    base: Base | None = None
    built: Dockerfile | None = None
    gpus: tuple[GpuRequest, ...] = ()
    runtime: FileValue | None = None
    shm: FileValue | None = None
    ipc: FileValue | None = None
    privileged: FileValue | None = None
    ulimits: Mapping[str, FileValue] = field(default_factory=dict)
    env: Mapping[str, FileValue | None] = field(default_factory=dict)
    env_files: bool = False
    command: tuple[FileValue, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[FileValue, ...] = ()
    resources: Mapping[str, FileValue] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    replicas: int | None = 1
    initial: bool = False
    local: bool = False
    entrypoint: StartLine | None = None
    arguments: StartLine | None = None
    workdir: FileValue | None = None
    user: FileValue | None = None
    folder: str = "."
    allotted: FileValue | None = None
    build_args: Mapping[str, FileValue | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """All containers of one file.

    ``kind``: compose, kubernetes, devcontainer, workflow, slurm, makefile, helm.  ``overlays`` are files beside a
    compose file that by their names are laid over it to ask for GPUs.  ``gpus`` and ``driver`` are what the user says
    that it must run on.
    """

    path: str
    kind: str
    containers: tuple[Container, ...] = ()
    unread: tuple[Unread, ...] = ()
    overlays: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    driver: str = ""
