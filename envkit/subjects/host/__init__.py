"""A machine that shall run GPU containers, as it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envkit.model import Observed
from envkit.subjects.host.gpu import Gpu, Nvml, RowRemap

__all__ = ["Gpu", "Nvml", "RowRemap"]


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A PCI function of NVIDIA's with a display class.

    ``address`` is "0000:65:00.0", ``device`` the device id ("0x2330"), ``driver`` the kernel driver bound to
    it, empty if none is.
    """

    address: str
    device: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file of the driver; ``error`` is empty if it could be opened for reading and writing."""

    path: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class KernelModule:
    """The loaded kernel module; ``flavor`` is "open", "proprietary" or empty if its source does not say."""

    version: str
    flavor: str = ""


@dataclass(frozen=True, slots=True)
class DriverLibrary:
    """A user-space driver library on disk.

    ``name`` is its soname without the number ("libcuda"), ``version`` the one in its file's name, empty if
    there is none; ``error`` says why it cannot be loaded (empty file, dangling link, no ELF file), empty if
    nothing was seen.
    """

    name: str
    path: str
    version: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Docker:
    """How the conversation with the Docker Engine ended, and what it said of itself.

    ``ended`` is "answered", "no socket", "permission denied", "refused", "hung", "error" or "unsupported" (an
    endpoint that is neither a Unix socket nor plain TCP).  ``installed`` says whether a docker program or
    daemon was found. ``cdi_dirs`` are the directories the engine reads CDI specs from: empty when CDI is off,
    lost when the engine is too old to say; ``cdi_devices`` those it found, lost likewise.
    """

    ended: str
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


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """Docker's daemon.json; ``error`` is empty if it is absent or parses.

    ``runtimes`` maps a runtime's name to its program; ``missing`` are those programs that do not exist.
    """

    path: str
    present: bool = True
    error: str = ""
    runtimes: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    cdi: bool | None = None


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """One CDI specification of NVIDIA's devices.

    ``devices`` are full names ("nvidia.com/gpu=0"), ``files`` how many host paths it names, ``missing`` those
    of them that do not exist, ``versions`` the driver versions its library paths end in; ``error`` says why
    it could not be read.
    """

    path: str
    error: str = ""
    devices: tuple[str, ...] = ()
    files: int = 0
    missing: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The NVIDIA Container Toolkit: where its programs are, by name, and its version."""

    programs: Mapping[str, str] = field(default_factory=dict)
    version: Observed[str] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class Disk:
    """Room on the file system that holds ``path``, in bytes; ``use`` says what it is for ("images",
    "temporary").
    """

    use: str
    path: str
    free: Observed[int] = field(default_factory=Observed)
    total: Observed[int] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class Limit:
    """A resource limit, -1 for unlimited; bytes for memlock and stack, files for nofile."""

    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the kernel log that the driver wrote; ``xid`` is its Xid, 0 for another line, ``pci`` the GPU
    it names.
    """

    text: str
    xid: int = 0
    pci: str = ""


@dataclass(frozen=True, slots=True)
class CudaDirectory:
    """A directory of LD_LIBRARY_PATH that holds libcuda; ``files`` maps its name there to the file it leads
    to.
    """

    path: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Service:
    """A unit of systemd, in its own words: whether it is known ("loaded", "not-found", "masked"), ``active`` ("active",
    "inactive", "failed", ...), ``enabled`` (UnitFileState, empty if it has none) and how often it was restarted.
    """

    load: str
    active: str
    enabled: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Host:
    """One machine; ``name`` is what the report calls it.

    ``wanted_cuda`` is the toolkit version that somebody declared for this machine.  ``modules`` are the
    loaded kernel modules among those that matter here, ``infiniband`` the RDMA devices, ``limits`` maps
    "memlock", "nofile" and "stack" to this process's limits, ``environment`` holds the GPU variables that are
    set, ``log`` the driver's lines in the kernel log.  ``shm`` is the size of /dev/shm in bytes.  ``services`` are
    systemd's units by name, without ".service"; ``packages`` the installed packages that matter here and their
    versions.
    """

    name: str
    wanted_cuda: Observed[str] = field(default_factory=Observed)
    kernel: Observed[str] = field(default_factory=Observed)
    os: Observed[str] = field(default_factory=Observed)
    glibc: Observed[str] = field(default_factory=Observed)
    cgroup: Observed[str] = field(default_factory=Observed)
    pci_gpus: Observed[tuple[PciGpu, ...]] = field(default_factory=Observed)
    device_nodes: Observed[tuple[DeviceNode, ...]] = field(default_factory=Observed)
    modules: Observed[tuple[str, ...]] = field(default_factory=Observed)
    module: Observed[KernelModule] = field(default_factory=Observed)
    driver_libraries: Observed[tuple[DriverLibrary, ...]] = field(default_factory=Observed)
    nvml: Observed[Nvml] = field(default_factory=Observed)
    docker: Observed[Docker] = field(default_factory=Observed)
    daemon_config: Observed[DaemonConfig] = field(default_factory=Observed)
    cdi: Observed[tuple[CdiSpec, ...]] = field(default_factory=Observed)
    toolkit: Observed[Toolkit] = field(default_factory=Observed)
    shm: Observed[int] = field(default_factory=Observed)
    disks: Observed[tuple[Disk, ...]] = field(default_factory=Observed)
    limits: Observed[Mapping[str, Limit]] = field(default_factory=Observed)
    infiniband: Observed[tuple[str, ...]] = field(default_factory=Observed)
    log: Observed[tuple[LogLine, ...]] = field(default_factory=Observed)
    environment: Observed[Mapping[str, str]] = field(default_factory=Observed)
    cuda_on_path: Observed[tuple[CudaDirectory, ...]] = field(default_factory=Observed)
    services: Observed[Mapping[str, Service]] = field(default_factory=Observed)
    packages: Observed[Mapping[str, str]] = field(default_factory=Observed)
