"""A machine that shall run GPU containers, as it was found.

What is imported under its own name is a part of this module for others too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.host import fabric, system
from envkit.subjects.host.container import CdiSpec as CdiSpec
from envkit.subjects.host.container import CriEngine as CriEngine
from envkit.subjects.host.container import DaemonConfig as DaemonConfig
from envkit.subjects.host.container import Docker as Docker
from envkit.subjects.host.container import Enroot as Enroot
from envkit.subjects.host.container import Kubelet as Kubelet
from envkit.subjects.host.container import Podman as Podman
from envkit.subjects.host.container import Toolkit as Toolkit
from envkit.subjects.host.container import ToolkitConfig as ToolkitConfig
from envkit.subjects.host.driver import NO_DPKG as NO_DPKG
from envkit.subjects.host.driver import DeviceNode as DeviceNode
from envkit.subjects.host.driver import DriverGpu as DriverGpu
from envkit.subjects.host.driver import DriverInstall as DriverInstall
from envkit.subjects.host.driver import DriverLibrary as DriverLibrary
from envkit.subjects.host.driver import Firmware as Firmware
from envkit.subjects.host.driver import KernelModule as KernelModule
from envkit.subjects.host.driver import KernelModules as KernelModules
from envkit.subjects.host.driver import MigCapability as MigCapability
from envkit.subjects.host.driver import ModprobeLine as ModprobeLine
from envkit.subjects.host.driver import ModuleFile as ModuleFile
from envkit.subjects.host.driver import ModuleSigning as ModuleSigning
from envkit.subjects.host.driver import Package as Package
from envkit.subjects.host.driver import PciGpu as PciGpu
from envkit.subjects.host.driver import Reboot as Reboot
from envkit.subjects.host.driver import Selinux as Selinux
from envkit.subjects.host.driver import UnattendedUpgrades as UnattendedUpgrades
from envkit.subjects.host.expected import Expected
from envkit.subjects.host.gpu import Gpu as Gpu
from envkit.subjects.host.gpu import Nvml as Nvml
from envkit.subjects.host.gpu import RowRemap as RowRemap
from envkit.subjects.host.log import LogLine as LogLine
from envkit.subjects.host.pci import PciDevice as PciDevice
from envkit.subjects.host.pci import PciLink as PciLink
from envkit.subjects.host.pci import PciPayload as PciPayload
from envkit.subjects.host.values import Amount, Count
from envkit.subjects.limit import Limit as Limit
from envkit.subjects.recorded import Recorded


@dataclass(frozen=True, slots=True)
class Disk:
    """Room on the file system that holds ``path``, in bytes and inodes; ``use`` says what it is for ("images",
    "temporary").  ``flags`` are those of its mount that matter here: "read-only", "noexec".
    """

    use: str
    path: str
    free: Observed[Count] = field(default_factory=Observed)
    total: Observed[Count] = field(default_factory=Observed)
    inodes_free: Observed[Count] = field(default_factory=Observed)
    inodes: Observed[Count] = field(default_factory=Observed)
    flags: Observed[tuple[str, ...]] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class CudaDirectory:
    """A directory of LD_LIBRARY_PATH with libcuda; ``files`` maps its name there to the file it leads to."""

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
    restarts: Count = 0


@dataclass(frozen=True, slots=True)
class Host(Recorded):
    """One machine; ``name`` is what the report calls it, each other field what one source said."""

    name: str
    # what somebody declared of it: the CUDA that shall run here, the contract
    wanted_cuda: Observed[str] = field(default_factory=Observed)
    expected: Observed[Expected] = field(default_factory=Observed)
    # the driver: its module as loaded (modules: which of those that matter here are) and as it lies on disk for each
    # kernel, its options in force and as files ask for them, its libraries, its packages, what NVML answers
    module: Observed[KernelModule] = field(default_factory=Observed)
    modules: Observed[tuple[str, ...]] = field(default_factory=Observed)
    kernels: Observed[tuple[KernelModules, ...]] = field(default_factory=Observed)
    module_signing: Observed[ModuleSigning] = field(default_factory=Observed)
    driver_params: Observed[Mapping[str, str]] = field(default_factory=Observed)
    modprobe: Observed[tuple[ModprobeLine, ...]] = field(default_factory=Observed)
    firmware: Observed[Firmware] = field(default_factory=Observed)
    driver_libraries: Observed[tuple[DriverLibrary, ...]] = field(default_factory=Observed)
    driver_install: Observed[DriverInstall] = field(default_factory=Observed)
    driver_packages: Observed[tuple[Package, ...]] = field(default_factory=Observed)
    nvml: Observed[Nvml] = field(default_factory=Observed)
    # its devices: GPUs on the bus and in the driver's own list, nodes under /dev, device numbers, MIG's capabilities
    pci_gpus: Observed[tuple[PciGpu, ...]] = field(default_factory=Observed)
    driver_gpus: Observed[tuple[DriverGpu, ...]] = field(default_factory=Observed)
    device_nodes: Observed[tuple[DeviceNode, ...]] = field(default_factory=Observed)
    driver_majors: Observed[Mapping[str, Count]] = field(default_factory=Observed)
    dev_char: Observed[tuple[str, ...]] = field(default_factory=Observed)
    mig_capabilities: Observed[tuple[MigCapability, ...]] = field(default_factory=Observed)
    # the PCI bus: GPUs, NVSwitches, network adapters and the bridges above them
    pci: Observed[tuple[PciDevice, ...]] = field(default_factory=Observed)
    # the kernel log's telling lines, and the seconds after boot at which it begins
    log: Observed[tuple[LogLine, ...]] = field(default_factory=Observed)
    log_start: Observed[Amount] = field(default_factory=Observed)
    # fabric and network: NVSwitches and RDMA cards on the bus, the cards that manage NVSwitches (none where these are
    # on the bus themselves), the daemons, RDMA devices, loaded modules of RDMA and GPUDirect, GDRCopy's node
    # ("usable", "absent" or why it cannot be opened), what NCCL's files set
    fabric_cards: Observed[tuple[fabric.FabricCard, ...]] = field(default_factory=Observed)
    switch_managers: Observed[tuple[str, ...]] = field(default_factory=Observed)
    fabric_daemons: Observed[fabric.FabricDaemons] = field(default_factory=Observed)
    fabric_log: Observed[fabric.FabricLog] = field(default_factory=Observed)
    imex: Observed[fabric.Imex] = field(default_factory=Observed)
    infiniband: Observed[tuple[fabric.RdmaDevice, ...]] = field(default_factory=Observed)
    rdma_modules: Observed[tuple[str, ...]] = field(default_factory=Observed)
    gdrdrv: Observed[str] = field(default_factory=Observed)
    cufile: Observed[fabric.Cufile] = field(default_factory=Observed)
    network: Observed[tuple[fabric.NetInterface, ...]] = field(default_factory=Observed)
    nccl_conf: Observed[Mapping[str, str]] = field(default_factory=Observed)
    # container engines and what hands GPUs to them; container is the engine whose container this is, "none" outside
    container: Observed[str] = field(default_factory=Observed)
    docker: Observed[Docker] = field(default_factory=Observed)
    daemon_config: Observed[DaemonConfig] = field(default_factory=Observed)
    cdi: Observed[tuple[CdiSpec, ...]] = field(default_factory=Observed)
    toolkit: Observed[Toolkit] = field(default_factory=Observed)
    toolkit_config: Observed[ToolkitConfig] = field(default_factory=Observed)
    containerd: Observed[CriEngine] = field(default_factory=Observed)
    crio: Observed[CriEngine] = field(default_factory=Observed)
    podman: Observed[Podman] = field(default_factory=Observed)
    enroot: Observed[Enroot] = field(default_factory=Observed)
    kubelet: Observed[Kubelet] = field(default_factory=Observed)
    # the system: services are systemd's units by name without ".service", packages those that matter here, settings
    # switches of the kernel by name, uptime in seconds, suspends how often it slept since boot, today its own date
    kernel: Observed[str] = field(default_factory=Observed)
    architecture: Observed[str] = field(default_factory=Observed)
    os: Observed[str] = field(default_factory=Observed)
    glibc: Observed[str] = field(default_factory=Observed)
    services: Observed[Mapping[str, Service]] = field(default_factory=Observed)
    packages: Observed[Mapping[str, str]] = field(default_factory=Observed)
    unattended: Observed[UnattendedUpgrades] = field(default_factory=Observed)
    reboot: Observed[Reboot] = field(default_factory=Observed)
    selinux: Observed[Selinux] = field(default_factory=Observed)
    settings: Observed[Mapping[str, Observed[str]]] = field(default_factory=Observed)
    clock: Observed[system.Clock] = field(default_factory=Observed)
    synchronisation: Observed[system.Synchronisation] = field(default_factory=Observed)
    today: Observed[str] = field(default_factory=Observed)
    uptime: Observed[Count] = field(default_factory=Observed)
    suspends: Observed[Count] = field(default_factory=Observed)
    names: Observed[system.Names] = field(default_factory=Observed)
    # processors and memory: shm is the size of /dev/shm in bytes, oom_kills how often the kernel killed for want of
    # memory since boot, tasks and control_group what this process may have
    processors: Observed[system.Processors] = field(default_factory=Observed)
    scaling: Observed[system.Scaling] = field(default_factory=Observed)
    throttling: Observed[system.Throttling] = field(default_factory=Observed)
    numa: Observed[tuple[system.NumaNode, ...]] = field(default_factory=Observed)
    memory: Observed[system.Memory] = field(default_factory=Observed)
    memory_errors: Observed[tuple[system.MemoryController, ...]] = field(default_factory=Observed)
    oom_kills: Observed[Count] = field(default_factory=Observed)
    shm: Observed[Count] = field(default_factory=Observed)
    shm_free: Observed[Count] = field(default_factory=Observed)
    tasks: Observed[system.Tasks] = field(default_factory=Observed)
    cgroup: Observed[str] = field(default_factory=Observed)
    control_group: Observed[system.ControlGroup] = field(default_factory=Observed)
    # storage: mounts are those of file systems on this machine's drives, lustre is its word on its own health
    disks: Observed[tuple[Disk, ...]] = field(default_factory=Observed)
    mounts: Observed[tuple[system.Mount, ...]] = field(default_factory=Observed)
    file_system_errors: Observed[Mapping[str, Count]] = field(default_factory=Observed)
    raids: Observed[tuple[system.Raid, ...]] = field(default_factory=Observed)
    nvme_drives: Observed[tuple[system.NvmeDrive, ...]] = field(default_factory=Observed)
    lustre: Observed[str] = field(default_factory=Observed)
    remote_mounts: Observed[tuple[system.RemoteMount, ...]] = field(default_factory=Observed)
    # this process: its limits by name, its variables that steer CUDA and its kin, what lies where they point, the
    # capabilities that the driver asks for, Nsight's programs
    limits: Observed[Mapping[str, Limit]] = field(default_factory=Observed)
    environment: Observed[Mapping[str, str]] = field(default_factory=Observed)
    cuda_on_path: Observed[tuple[CudaDirectory, ...]] = field(default_factory=Observed)
    named_paths: Observed[tuple[system.NamedPath, ...]] = field(default_factory=Observed)
    privileges: Observed[tuple[str, ...]] = field(default_factory=Observed)
    profilers: Observed[tuple[str, ...]] = field(default_factory=Observed)
