"""What the checks of the driver's files, options and packages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envkit.judging.checks._host import need_driver, need_gpu, wsl
from envkit.judging.checks._outcomes import skip_if
from envkit.model import Skip
from envkit.subjects import Host
from envkit.subjects.host import NO_DPKG, KernelModules, ModuleFile, Package


def need_own_gpu(host: Host) -> None:
    """Skips without a GPU, and under WSL, whose driver is that of Windows."""
    need_gpu(host)
    skip_if(wsl(host), "under WSL the driver is that of Windows")


def need_own_driver(host: Host) -> None:
    """Skips without a loaded driver of this machine's own."""
    need_driver(host)
    skip_if(wsl(host), "under WSL the driver is that of Windows")


def running_kernel(host: Host) -> KernelModules:
    """The modules of the kernel that runs; skips where they are not on this file system, as in a container."""
    for kernel in host.kernels.need("the kernels on this machine"):
        if kernel.running:
            return kernel
    raise Skip("the running kernel's modules are not on this file system, as in a container")


def nvidia_files(host: Host) -> tuple[ModuleFile, ...]:
    """The nvidia modules of the kernel that runs; skips where it has none, which is a finding of its own."""
    files = running_kernel(host).nvidia
    skip_if(not files, "the running kernel has no nvidia module on this file system: it was loaded from elsewhere")
    return files


def driver_params(host: Host) -> Mapping[str, str]:
    """The driver's options in force; skips where this place shows none."""
    skip_if(host.driver_params.is_unsupported, "nothing shows the driver's options here")
    return host.driver_params.need("the driver's options")


def driver_packages(host: Host) -> tuple[Package, ...]:
    """The driver's Debian packages; skips where there are none."""
    skip_if(host.driver_packages.is_unsupported, NO_DPKG)
    packages = host.driver_packages.need("the driver's packages")
    skip_if(not packages, "the driver was not installed from Debian packages")
    return packages


def some(names: Sequence[str], most: int = 4) -> str:
    """The first few names and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
