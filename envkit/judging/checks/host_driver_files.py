"""What is asked of the driver's files: that the modules on disk fit this kernel, these GPUs and what is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._driver import need_own_driver, need_own_gpu, nvidia_files, running_kernel, some
from envkit.judging.checks._host import AGAIN, SET_ASIDE, is_loaded, loaded_driver, need_driver, nvml_answers
from envkit.judging.checks._outcomes import error, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host.driver import release_key

# PCI device ids, by the table of supported GPUs in the README of NVIDIA/open-gpu-kernel-modules: it begins with Turing,
# and Blackwell and what came after it lie behind Ada.  Grace Hopper needs the open modules too and has two of its own.
_FIRST_TURING = 0x1E00
_FIRST_BLACKWELL = 0x2900
_GRACE_HOPPER = frozenset({0x2342, 0x2348})


def host_driver_ptx_compiler_missing(host: Host) -> Iterator[Finding]:
    """The driver's PTX compiler is installed beside its libcuda."""
    need_driver(host)
    names = {library.name for library in host.driver_libraries.need("the driver's libraries")}
    skip_if("libcuda" not in names, "libcuda is in none of the usual directories")
    if "libnvidia-ptxjitcompiler" not in names:
        yield warning(
            "libnvidia-ptxjitcompiler.so.1 is not installed, and libcuda is",
            evidence={"no libnvidia-ptxjitcompiler.so.1": host.driver_libraries.via},
            fix="install the driver's user-space package whole (or let the container have the capability `compute`) "
            "and run `ldconfig`; check it with `ldconfig -p | grep ptxjit`",
        )


def host_driver_on_disk_differs_from_loaded(host: Host) -> Iterator[Finding]:
    """The nvidia module on disk is of the version that is loaded."""
    need_own_driver(host)
    driver, via = loaded_driver(host)
    doubts = []
    for file in nvidia_files(host):
        if file.version.value is None:
            doubts.append(f"the version of {file.path} was not observed: {file.version.missing or 'no value'}")
        elif file.version.value != str(driver):
            if file.version.value in {library.version for library in host.driver_libraries.value or ()}:
                raise Skip(f"the whole driver on disk is {file.version.value}, which is reported separately")
            yield warning(
                f"the nvidia module on disk is {file.version.value} and {driver} is loaded",
                file.path,
                {file.version.value: file.version.via, str(driver): via},
                "the driver was updated and the machine not yet rebooted: reboot before a long job starts; "
                "check it with `modinfo -F version nvidia` and `cat /proc/driver/nvidia/version`",
            )
    unknown_if(doubts, "; ".join(doubts))


def host_driver_not_built_for_kernel(host: Host) -> Iterator[Finding]:
    """The running kernel has an nvidia module, or the driver is loaded already."""
    need_own_gpu(host)
    kernels = host.kernels.need("the kernels on this machine")
    running = next((kernel for kernel in kernels if kernel.running), None)
    if running is not None and running.nvidia:
        return
    skip_if(not kernels or is_loaded(host), "the driver's modules are not on this file system, as in a container")
    built = [kernel.release for kernel in kernels if kernel.nvidia]
    yield error(
        (f"kernel {running.release} has no nvidia module" if running else "the running kernel's modules are gone")
        + (f", and {some(built)} has one" if built else ""),
        f"/lib/modules/{running.release}" if running else "/lib/modules",
        {"no nvidia module for the running kernel": host.kernels.via},
        "install the headers of the running kernel and build the module with `dkms autoinstall` (`dkms status` says "
        "what failed), or boot a kernel that has one; check it with `modinfo nvidia`",
    )


def host_driver_not_built_for_next_kernel(host: Host) -> Iterator[Finding]:
    """A newer kernel that waits for the next boot has an nvidia module too."""
    need_own_driver(host)
    nvidia_files(host)
    running = running_kernel(host)
    for kernel in host.kernels.need("the kernels on this machine"):
        newer = release_key(kernel.release) > release_key(running.release)
        if newer and kernel.bootable and _flavor(kernel.release) == _flavor(running.release) and not kernel.nvidia:
            yield warning(
                f"kernel {kernel.release} will be started by the next boot and has no nvidia module",
                f"/lib/modules/{kernel.release}",
                {f"no nvidia module for {kernel.release}": host.kernels.via},
                f"build it with `dkms autoinstall -k {kernel.release}` (its headers must be there), or install the "
                f"driver's package for it; check it with `modinfo -k {kernel.release} nvidia`",
            )


def _flavor(release: str) -> str:
    found = re.search(r"[A-Za-z_-]+\Z", release)
    return found[0] if found else ""


def host_driver_unsigned_under_secure_boot(host: Host) -> Iterator[Finding]:
    """The nvidia module carries a signature where the kernel takes no other."""
    need_own_gpu(host)
    files = nvidia_files(host)
    skip_if(host.module_signing.is_unsupported, "this place does not show the firmware's settings")
    signing = host.module_signing.need("Secure Boot")
    skip_if(signing.secure_boot != "on" and not signing.enforced.value, f"Secure Boot: {signing.secure_boot}")
    if not signing.enforced.need("whether the kernel insists on signatures"):
        raise Skip("Secure Boot is on, and the kernel takes unsigned modules all the same")
    for file in files:
        if not file.signed.need(f"the signature of {file.path}"):
            yield Finding(
                f"the nvidia module is not signed, and the kernel takes no unsigned one (Secure Boot: "
                f"{signing.secure_boot})",
                Severity.WARNING if is_loaded(host) else Severity.ERROR,
                file.path,
                {"no signature": file.signed.via, "signatures are enforced": signing.enforced.via},
                "install the distribution's signed modules, or sign it with a key that is enrolled with `mokutil "
                "--import`, and reboot; check it with `modinfo -F signer nvidia`",
            )


def host_driver_flavor_wrong_for_gpu(host: Host) -> Iterator[Finding]:
    """The kernel module's flavor, open or proprietary, drives every GPU here."""
    need_own_driver(host)
    flavor = host.module.need("the loaded module").flavor
    gpus = [gpu for gpu in host.pci_gpus.need("the PCI bus") if gpu.driver not in SET_ASIDE]
    skip_if(not gpus, "the PCI bus shows no GPU of this machine's own")
    unknown_if(not flavor, f"{host.module.via} does not say whether the module is the open one")
    for gpu in gpus:
        if not re.fullmatch("0x[0-9a-f]{4}", gpu.device):
            raise Unknown(f"the device id of GPU {gpu.address} is `{gpu.device}`")
        device = int(gpu.device, 16)
        wanted = "open" if device >= _FIRST_BLACKWELL or device in _GRACE_HOPPER else ""
        wanted = "proprietary" if device < _FIRST_TURING else wanted
        if wanted and wanted != flavor:
            yield error(
                f"the {flavor} kernel module is loaded, and GPU {gpu.address} (device {gpu.device}) needs the "
                f"{wanted} one",
                f"/sys/bus/pci/devices/{gpu.address}",
                {flavor: host.module.via, gpu.device: host.pci_gpus.via},
                f"install the driver's {wanted} kernel module packages and reboot; "
                "check it with `cat /proc/driver/nvidia/version`",
            )


def host_gsp_firmware_missing(host: Host) -> Iterator[Finding]:
    """The GSP firmware of the loaded driver lies on disk."""
    need_own_driver(host)
    files = nvidia_files(host)
    firmware = host.firmware.need("the firmware directories")
    driver, via = loaded_driver(host)
    words = [gpu.gsp.value or "" for gpu in nvml_answers(host).gpus]
    if host.module.need("the loaded module").flavor != "open" and all(word == "off" for word in words):
        raise Skip("the driver runs the GPUs without GSP")
    if firmware.files.get(str(driver)):
        return
    if all(file.version.value not in (None, str(driver)) for file in files):
        raise Skip("the driver on disk has another version, which is reported separately")
    others = f", and for {some(sorted(firmware.files))} there is" if firmware.files else ""
    works = bool(words) and all(word not in ("", "off") for word in words)
    yield Finding(
        f"no GSP firmware for driver {driver} lies in {firmware.root or '/lib/firmware'}/nvidia{others}",
        Severity.WARNING if works else Severity.ERROR,
        f"{firmware.root or '/lib/firmware'}/nvidia/{driver}",
        {"no gsp_*.bin": host.firmware.via, str(driver): via},
        "install the driver's firmware package of the same version as the module; "
        f"check it with `ls /lib/firmware/nvidia/{driver}`",
    )


def host_driver_installed_twice(host: Host) -> Iterator[Finding]:
    """One driver is installed: no libcuda of another version beside it, no .run installer over packages."""
    need_own_gpu(host)
    install = host.driver_install.need("the traces of the driver's installation")
    own = {path: version for path, version in install.libraries.items() if "compat" not in path.split("/")}
    skip_if(not own and not install.uninstaller, "no libcuda with a version in its name lies in the usual directories")
    if len(set(own.values())) > 1:
        yield warning(
            f"libcuda is installed in {len(set(own.values()))} versions: "
            + some([f"{version} ({path})" for path, version in sorted(own.items())]),
            sorted(own)[0],
            {version: path for path, version in own.items()},
            "remove the older driver whole (`nvidia-uninstall` or the package manager), then run `ldconfig`, which "
            f"takes the newest file it finds; {AGAIN}",
        )
    if install.uninstaller and not host.driver_packages.is_unsupported and _packages(host):
        packages = _packages(host)
        yield warning(
            f"the driver was installed both by the .run installer and from packages ({some(packages)})",
            install.uninstaller,
            {install.uninstaller: host.driver_install.via, some(packages): host.driver_packages.via},
            "keep one: run `nvidia-uninstall` and install the packages again, or purge the packages; "
            "check it with `dpkg -S $(ldconfig -p | sed -n 's/.*libcuda.so.1.*=> //p')`",
        )


def _packages(host: Host) -> list[str]:
    return [package.name for package in host.driver_packages.need("the driver's packages")]
