"""The NVIDIA driver of a machine: its module, files, device nodes and options, and the packages it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.host.values import Count, PciAddress, PciId, Told

# why nothing is said of packages that are unsupported
NO_DPKG = "the packages of this machine are not dpkg's, and no other manager was asked"

SelinuxState = Literal["absent", "permissive", "enforcing"]


@dataclass(frozen=True, slots=True)
class PciGpu:
    """A PCI function of NVIDIA's with a display class.

    ``address`` is "0000:65:00.0", ``device`` the device id ("0x2330"), ``driver`` the kernel driver bound to
    it, empty if none is.
    """

    address: PciAddress
    device: PciId = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file of the driver; ``error`` is empty if it could be opened for reading and writing.

    ``major`` and ``minor`` are the numbers it stands for, -1 if it is no character device or could not be looked at.
    """

    path: str
    error: str = ""
    major: Told = -1
    minor: Told = -1


@dataclass(frozen=True, slots=True)
class KernelModule:
    """The loaded kernel module; ``flavor`` is "open", "proprietary" or empty if its source does not say."""

    version: str
    flavor: str = ""


@dataclass(frozen=True, slots=True)
class DriverLibrary:
    """A user-space driver library on disk.

    ``name`` is its soname without the number ("libcuda"), ``version`` the one in its file's name, empty if
    there is none; ``error`` says why it cannot be loaded (empty file, dangling link, no ELF file, cut off), empty if
    nothing was seen.
    """

    name: str
    path: str
    version: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """The nvidia module on disk for one kernel; ``signed`` says whether a signature is appended to it."""

    path: str
    version: Observed[str] = field(default_factory=Observed)
    signed: Observed[bool] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class KernelModules:
    """The modules of one installed kernel.

    ``release`` is the kernel's; ``running`` says whether it is the one that runs.  ``bootable`` says whether its image
    lies in /boot.  ``nvidia`` is empty where its list of modules has no nvidia module.
    """

    release: str
    running: bool = False
    bootable: bool = False
    nvidia: tuple[ModuleFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleSigning:
    """Whether the kernel takes unsigned modules.

    ``secure_boot`` is "on", "off" or "no EFI"; ``enforced`` says whether the kernel refuses a module without a valid
    signature (module.sig_enforce, or lockdown).
    """

    secure_boot: str
    enforced: Observed[bool] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class ModprobeLine:
    """A line of modprobe.d(5) about one of NVIDIA's modules: ``command`` is "options", "blacklist", "install", ..."""

    path: str
    command: str
    module: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class DriverGpu:
    """A GPU as /proc/driver/nvidia/gpus shows it; ``firmware`` is empty where the driver names none."""

    address: PciAddress
    minor: Count
    uuid: str = ""
    firmware: str = ""
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class MigCapability:
    """The right to use one MIG instance ("gpu0/gi1/access", "gpu0/gi1/ci0/access"): its minor number and its device
    file, empty if /dev/nvidia-caps has none.
    """

    name: str
    minor: Count
    node: str = ""


@dataclass(frozen=True, slots=True)
class Firmware:
    """The GSP's firmware on disk: ``root`` is the directory that firmware is loaded from, empty where this machine
    shows none; ``files`` maps a driver version to the gsp files that lie there for it.
    """

    root: str = ""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DriverInstall:
    """Traces of how the driver was installed: files of libcuda by full path with the version in their names,
    and the .run installer's uninstaller, empty if there is none.
    """

    libraries: Mapping[str, str] = field(default_factory=dict)
    uninstaller: str = ""


@dataclass(frozen=True, slots=True)
class Selinux:
    """SELinux: ``state`` is "absent", "permissive" or "enforcing"; ``booleans`` those that let containers use devices,
    each only where the policy has it.  ``denials`` are the audit log's refusals of NVIDIA's device files since boot,
    unsupported where nothing keeps such a log.
    """

    state: SelinuxState
    booleans: Mapping[str, bool] = field(default_factory=dict)
    denials: Observed[tuple[str, ...]] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package of the driver; ``state`` is dpkg's ("installed", "half-configured", ...), ``held`` whether
    somebody held it, ``vendor`` "nvidia" for NVIDIA's own repository, else "distribution".
    """

    name: str
    version: str
    state: str = "installed"
    held: bool = False
    vendor: str = "distribution"


@dataclass(frozen=True, slots=True)
class UnattendedUpgrades:
    """What apt's configuration says of unattended upgrades: ``origins`` are the patterns of repositories that they take
    packages from, ``skipped`` the patterns of packages that they leave alone.
    """

    enabled: bool
    origins: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reboot:
    """Whether the distribution asks for a reboot, and for the sake of which packages."""

    wanted: bool
    packages: tuple[str, ...] = ()


def release_key(release: str) -> list[int]:
    """What orders two kernels by their releases: the numbers in them."""
    return [int(part) for part in re.findall("[0-9]+", release)]
