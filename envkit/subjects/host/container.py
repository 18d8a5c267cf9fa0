"""Container engines, the toolkit that brings GPUs into containers, and the files that configure both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.host.values import Count, Told

DockerEnded = Literal["answered", "no socket", "permission denied", "refused", "hung", "error", "unsupported"]


@dataclass(frozen=True, slots=True)
class Docker:
    """How the conversation with the Docker Engine ended, and what it said of itself.

    ``ended`` is "answered", "no socket", "permission denied", "refused", "hung", "error" or "unsupported" (an
    endpoint that is neither a Unix socket nor TCP).  ``installed`` says whether a docker program or
    daemon was found. ``cdi_dirs`` are the directories the engine reads CDI specs from: empty when CDI is off,
    lost when the engine does not say; ``cdi_devices`` those it found, lost when the engine is too old to say.
    ``product`` is "docker", or "podman" where that answers in Docker's place; ``system`` the operating system by the
    engine's own words ("Docker Desktop" for an engine in a virtual machine of that name), ``storage`` its storage
    driver, ``cgroup_driver`` "systemd", "cgroupfs" or "none".  ``warnings`` are those of /info.  ``mode`` are the
    permission bits of a Unix socket.
    """

    ended: DockerEnded
    detail: str = ""
    endpoint: str = ""
    installed: bool = True
    version: str = ""
    api: str = ""
    root: str = ""
    cgroup: str = ""
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    security: tuple[str, ...] = ()
    cdi_dirs: Observed[tuple[str, ...]] = field(default_factory=Observed)
    cdi_devices: Observed[tuple[str, ...]] = field(default_factory=Observed)
    product: str = "docker"
    system: str = ""
    storage: str = ""
    cgroup_driver: str = ""
    warnings: tuple[str, ...] = ()
    mode: Observed[Count] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """Docker's daemon.json; ``error`` is empty if it is absent or parses.

    ``runtimes`` maps a runtime's name to its program, empty for one that is named by its type; ``missing`` are those
    programs that do not exist.  ``default_runtime``, ``data_root`` and ``storage`` are empty where the file does not
    say, ``cdi_dirs`` is None.  ``ulimits`` maps a limit of every container ("memlock") to its hard value, -1 for none.
    """

    path: str
    present: bool = True
    error: str = ""
    runtimes: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    cdi: bool | None = None
    default_runtime: str = ""
    data_root: str = ""
    storage: str = ""
    cdi_dirs: tuple[str, ...] | None = None
    ulimits: Mapping[str, Told] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """One CDI specification of NVIDIA's devices.

    ``devices`` are full names ("nvidia.com/gpu=0"), ``files`` how many host paths it names, ``missing`` those
    of them that do not exist, ``unseen`` those this user may not look at, ``versions`` the driver versions its library
    paths end in; ``error`` says why it could not be read.
    """

    path: str
    error: str = ""
    devices: tuple[str, ...] = ()
    files: Count = 0
    missing: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The NVIDIA Container Toolkit: where its programs are, by name, and its version."""

    programs: Mapping[str, str] = field(default_factory=dict)
    version: Observed[str] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class ToolkitConfig:
    """The toolkit's config.toml; what it does not say is as the toolkit's own defaults have it.

    ``mode`` is the runtime's ("auto", "cdi", "jit-cdi", "legacy", "csv").  ``no_cgroups`` leaves the device control
    group of a container alone.  ``ldconfig`` starts with "@" if it is the host's.  ``by_variable`` says whether a
    container without privileges may name GPUs in NVIDIA_VISIBLE_DEVICES, ``by_mount`` whether by mounts.
    ``ldconfig_inside`` allows an ldconfig of the container's.  ``logs`` are the debug logs that are written,
    ``missing`` the host programs it names that do not exist, ``low_level`` the runtimes it calls and
    ``low_level_found`` those of them that exist.
    """

    path: str
    present: bool = True
    error: str = ""
    mode: str = "auto"
    no_cgroups: bool = False
    ldconfig: str = ""
    ldconfig_inside: bool = False
    by_variable: bool = True
    by_mount: bool = False
    logs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    low_level: tuple[str, ...] = ()
    low_level_found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CriEngine:
    """An engine that Kubernetes speaks to (containerd or CRI-O), by its configuration files.

    ``serves`` says whether it serves Kubernetes at all: Docker's containerd has that part switched off.  ``files`` are
    the configuration files that were read, ``error`` the first that could not be used.  ``runtimes`` maps a name to the
    program it stands for, empty where the file names none; ``missing`` are those programs that do not exist.
    ``cgroups`` maps a runtime to "systemd" or "cgroupfs".  ``cdi`` says whether CDI is on, lost where that depends on
    the engine's version.
    """

    installed: bool
    serves: bool = False
    files: tuple[str, ...] = ()
    error: str = ""
    runtimes: Mapping[str, str] = field(default_factory=dict)
    default_runtime: str = ""
    missing: tuple[str, ...] = ()
    cgroups: Mapping[str, str] = field(default_factory=dict)
    cdi: Observed[bool] = field(default_factory=Observed)
    cdi_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Podman:
    """Podman: the directories it reads CDI specifications from, and the files of OCI hooks that name NVIDIA's."""

    installed: bool
    error: str = ""
    cdi_dirs: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    version: Observed[str] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class Enroot:
    """Enroot and pyxis, its plugin for Slurm.

    ``hook`` is the file that brings GPUs into an enroot container, empty if it is not there; ``hook_runs`` whether it
    may be executed.  ``plugins`` are the files of pyxis that Slurm's plugstack names, ``missing`` those of them that do
    not exist.
    """

    installed: bool
    hook: str = ""
    hook_runs: bool = False
    plugins: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kubelet:
    """Kubernetes on this machine: whether it is a node, the sockets of device plugins ("nvidia-gpu.sock"), the names
    of plugins for dynamic resources ("gpu.nvidia.com"), and the cgroup driver it was told, empty where its file does
    not say.
    """

    present: bool
    sockets: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    cgroup_driver: str = ""
