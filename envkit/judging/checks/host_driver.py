"""What is asked of a machine's NVIDIA driver: its module, its libraries, its device nodes, its words in the log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.judging.checks import _host
from envkit.judging.checks._driver import need_own_gpu
from envkit.judging.checks._log import log_lines
from envkit.judging.checks._outcomes import error, or_skip, skip_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import DeviceNode, DriverLibrary, Nvml
from envkit.versions import Cuda, Driver

# what the kernel (kernel/module/signing.c) and the driver write of a module that was not let in
_REFUSED = (
    (
        re.compile(r"requires use of the NVIDIA open kernel modules", re.IGNORECASE),
        "the GPU needs the open kernel modules and the proprietary ones are installed",
        "install the driver packages whose names say `open`, and reboot",
    ),
    (
        re.compile(
            r"nvidia.*(?:loading of .+ is rejected|Key was rejected by service|Required key not available)",
            re.IGNORECASE,
        ),
        "the kernel refused the signature of the driver's module",
        "enroll the module's key with `mokutil --import` and reboot, or install the signed packages",
    ),
)

_NVML_ENDED = {
    "no library": "install the driver's user-space package (libnvidia-ml.so.1) and run `ldconfig`",
    "hung": "a GPU does not answer: read `dmesg | grep -E 'NVRM|Xid'`, stop GPU programs, reboot; "
    "without persistence mode many GPUs start slowly, so turn that on and ask again",
    "killed": "the driver's libraries are damaged: install the driver's user-space package again",
}
_NVML_CODES = {
    4: "the device nodes may not be opened by this user: check the modes of /dev/nvidia*",
    9: "load the kernel module with `modprobe nvidia`",
    18: "library and kernel module have different versions: reboot, or reload the module",
}


def host_driver_not_loaded(host: Host) -> Iterator[Finding]:
    """The NVIDIA kernel module is loaded.

    Under WSL the module is that of Windows, and NVML's answer stands for it.
    """
    _host.need_gpu(host)
    if _host.is_loaded(host):
        return
    modules = host.modules.value or ()
    skip_if("nouveau" in modules, "nouveau is loaded in its place, which is reported separately")
    gpus = host.pci_gpus.value
    skip_if(gpus and all(gpu.driver in _host.SET_ASIDE for gpu in gpus), "every GPU is set aside for virtual machines")
    beside = f", and {', '.join(modules)} is" if modules else ""
    yield error(
        "the GPU driver of Windows does not answer in WSL"
        if _host.wsl(host)
        else f"the nvidia kernel module is not loaded{beside}",
        "/dev/dxg" if _host.wsl(host) else "/sys/module/nvidia",
        {
            f"modules: {', '.join(modules) or 'none of interest'}": host.modules.via,
            "no module version": host.module.via or host.module.missing,
        },
        "install NVIDIA's driver in Windows, none in WSL, and run `wsl --shutdown`; check it with `nvidia-smi`"
        if _host.wsl(host)
        else "install the driver and run `modprobe nvidia`; if that fails, `dkms status` and `dmesg | grep -i "
        "nvidia` say why; check it with `cat /proc/driver/nvidia/version`",
    )


def host_nouveau_loaded(host: Host) -> Iterator[Finding]:
    """The nouveau module is not loaded."""
    _host.need_gpu(host)
    if "nouveau" not in host.modules.need("the list of loaded kernel modules"):
        return
    bound = [gpu.address for gpu in host.pci_gpus.value or () if gpu.driver == "nouveau"]
    yield Finding(
        f"nouveau is loaded and drives {', '.join(bound)}" if bound else "nouveau is loaded beside the NVIDIA driver",
        Severity.ERROR if bound or not _host.is_loaded(host) else Severity.WARNING,
        "/sys/module/nouveau",
        {"nouveau is loaded": host.modules.via},
        "write `blacklist nouveau` and `options nouveau modeset=0` to /etc/modprobe.d/nouveau.conf, rebuild "
        "the initramfs and reboot; check it with `lsmod | grep nouveau`",
    )


def host_gpu_not_bound_to_nvidia_driver(host: Host) -> Iterator[Finding]:
    """Every GPU on the bus is bound to the NVIDIA driver."""
    _host.need_gpu(host)
    gpus = host.pci_gpus.need("the PCI bus")
    skip_if(not gpus, "the PCI bus shows no GPU; it reaches this machine another way")
    loaded = _host.is_loaded(host)
    others = [gpu for gpu in gpus if gpu.driver != "nvidia"]
    # of nouveau, and of a driver that is not loaded, another check tells
    here = [gpu for gpu in others if gpu.driver != "nouveau" and (gpu.driver or loaded)]
    if others and not here:
        raise Skip("nouveau holds the GPUs" if others[0].driver else "the NVIDIA driver is not loaded")
    for gpu in here:
        passed_on = gpu.driver in _host.SET_ASIDE
        yield Finding(
            f"GPU {gpu.address} is bound to {gpu.driver}" if gpu.driver else f"no driver is bound to GPU {gpu.address}",
            Severity.WARNING if passed_on else Severity.ERROR,
            f"/sys/bus/pci/devices/{gpu.address}",
            {f"driver: {gpu.driver or 'none'}": host.pci_gpus.via},
            "it is set aside for a virtual machine; give it back with `driverctl unset-override` if it is to run here"
            if passed_on
            else "load the driver with `modprobe nvidia`; `dmesg | grep NVRM` says why it left this GPU out; "
            f"check it with `lspci -k -s {gpu.address}`",
        )


def host_driver_libraries_incomplete(host: Host) -> Iterator[Finding]:
    """The driver's user-space libraries are installed and whole."""
    _host.need_gpu(host)
    libraries = host.driver_libraries.need("the driver's libraries")
    nvml = host.nvml.value
    answered = nvml is not None and nvml.ended == "answered"
    absent = [name for name in ("libcuda", "libnvidia-ml") if name not in {library.name for library in libraries}]
    findings = [_broken(copy, host.driver_libraries.via) for copy in libraries if copy.error]
    if not answered:
        findings += [_missing(name, host.driver_libraries.via) for name in absent]
    elif absent and not findings:
        raise Unknown(
            f"{absent[-1]}.so.1 is in none of the usual directories, and yet NVML answered: it lies elsewhere"
        )
    yield from findings


def _missing(name: str, via: str) -> Finding:
    return error(
        f"{name}.so.1 is not installed",
        evidence={f"no {name}.so.1": via},
        fix="install the driver's user-space package of the same version as the kernel module and run "
        f"`ldconfig`; check it with `ldconfig -p | grep {name}`",
    )


def _broken(copy: DriverLibrary, via: str) -> Finding:
    return error(
        f"{copy.path} cannot be loaded: {copy.error}",
        copy.path,
        {copy.error: via},
        f"install the driver's user-space package again; check it with `file -L {copy.path}`",
    )


def host_driver_library_version_mismatch(host: Host) -> Iterator[Finding]:
    """The driver's libraries on disk are of the loaded kernel module's version."""
    _host.need_driver(host)
    skip_if(_host.wsl(host), "under WSL the kernel driver is that of Windows")
    libraries = host.driver_libraries.need("the driver's libraries")
    driver, via = _host.loaded_driver(host)
    versioned = [library for library in libraries if library.version]
    if not any("compat" not in library.path.split("/") for library in versioned):
        raise Unknown("no driver library on disk has the driver's version in its name")
    for library in versioned:
        if Driver(library.version) == driver:
            continue
        compat = "compat" in library.path.split("/")
        yield Finding(
            f"{library.name} on disk is {library.version} and the loaded kernel module is {driver}",
            Severity.WARNING if compat and Driver(library.version) > driver else Severity.ERROR,
            library.path,
            {library.version: f"file name behind {library.path}", str(driver): via},
            "take the cuda-compat directory out of /etc/ld.so.conf.d and run `ldconfig`: such a libcuda works on "
            f"data-center GPUs alone, and only if it is newer than the module; {_host.AGAIN}"
            if compat
            else "the driver was updated under a running module: reboot, or stop all GPU programs and reload the "
            "module with `modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia`; hold the "
            "driver's packages; check it with `nvidia-smi`",
        )


def host_nvml_not_working(host: Host) -> Iterator[Finding]:
    """NVML answers."""
    _host.need_driver(host)
    nvml = host.nvml.need("NVML")
    if nvml.ended == "answered":
        yield from _nameless(nvml, host.nvml.via)
        return
    libraries = host.driver_libraries.value
    if nvml.ended == "no library" and libraries is not None and "libnvidia-ml" not in {one.name for one in libraries}:
        raise Skip("libnvidia-ml.so.1 is not installed, which is reported separately")
    words = nvml.detail or nvml.ended
    fix = _NVML_ENDED.get(nvml.ended) or _NVML_CODES.get(nvml.code) or "`dmesg | grep NVRM` has the driver's own words"
    yield error(
        f"NVML does not answer: {words}",
        "libnvidia-ml.so.1",
        {words: host.nvml.via},
        f"{fix}; check it with `nvidia-smi -L`",
    )


def _nameless(nvml: Nvml, via: str) -> Iterator[Finding]:
    for gpu in nvml.gpus:
        if gpu.uuid.value is None:
            yield error(
                f"NVML lists GPU {gpu.index} and cannot say which it is: {gpu.uuid.missing}",
                f"GPU {gpu.index}",
                {gpu.uuid.missing: gpu.uuid.via or via},
                "read `dmesg | grep NVRM` for this GPU, then reset it or reboot; check it with `nvidia-smi -L`",
            )


def host_device_nodes_not_accessible(host: Host) -> Iterator[Finding]:
    """The driver's device nodes exist and can be opened."""
    _host.need_driver(host)
    nodes = {node.path: node for node in host.device_nodes.need("the device nodes")}
    if not _host.wsl(host):
        wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm", *([] if _host.gpu_nodes(host) else ["/dev/nvidia0"])]
        yield from (_absent_node(path, host) for path in wanted if path not in nodes)
    withheld = _host.withheld_nodes(host)
    others = withheld if len(withheld) < len(_host.gpu_nodes(host)) else []
    mild = {"/dev/nvidia-modeset", "/dev/nvidia-uvm-tools"}
    for node in nodes.values():
        if node.error and node.path not in others:
            yield _closed_node(node, Severity.WARNING if node.path in mild else Severity.ERROR, host.device_nodes.via)


def _absent_node(path: str, host: Host) -> Finding:
    # CUDA's first start loads nvidia_uvm and makes its node, where the setuid nvidia-modprobe is installed
    early = path == "/dev/nvidia-uvm" and host.modules.value is not None and "nvidia_uvm" not in host.modules.value
    return Finding(
        f"{path} does not exist" + (": nvidia_uvm is not loaded yet" if early else ""),
        Severity.WARNING if early else Severity.ERROR,
        path,
        {f"no {path}": host.device_nodes.via, **({"no nvidia_uvm": host.modules.via} if early else {})},
        "create it with `nvidia-modprobe -c 0 -u` (nvidia-uvm needs `modprobe nvidia_uvm`); "
        f"check it with `ls -l {path}`",
    )


def _closed_node(node: DeviceNode, severity: Severity, via: str) -> Finding:
    return Finding(
        f"{node.path} cannot be opened: {node.error}",
        severity,
        node.path,
        {node.error: via},
        "give this user access (the driver's default mode is 0666; NVreg_DeviceFileMode sets it); in a container or "
        f"a scheduler's job, have the device handed in; check it with `ls -l {node.path}`",
    )


def host_driver_too_old_for_cuda(host: Host, facts: Facts) -> Iterator[Finding]:
    """The driver is new enough for the CUDA that shall run here."""
    _host.need_driver(host)
    wanted = Cuda(or_skip(host.wanted_cuda.value, "no CUDA version was declared for this machine"))
    driver, via = _host.loaded_driver(host)
    floor = facts.driver_min(wanted)
    evidence = {str(driver): via, f"CUDA {wanted}": host.wanted_cuda.via}
    upgrade = f"install driver {floor.own or floor.compat} or newer, or use an image for an older CUDA; {_host.AGAIN}"
    if floor.own is not None and driver >= floor.own:
        return
    if floor.compat is not None and driver < floor.compat:
        yield error(
            f"driver {driver} is too old for CUDA {wanted}: it needs at least {floor.compat}",
            evidence={**evidence, str(floor.compat): floor.compat_source},
            fix=f"{upgrade}; on a data-center GPU the image's cuda-compat package may bridge the gap",
        )
    elif floor.own is None or floor.compat is None:
        raise Unknown(f"the facts name no driver that is surely new enough for CUDA {wanted}")
    else:
        yield warning(
            f"driver {driver} runs CUDA {wanted} by minor-version compatibility only: {floor.own} is its own",
            evidence={**evidence, str(floor.own): floor.own_source},
            fix=f"{upgrade}; until then code that the driver must compile from PTX fails",
        )


def host_driver_module_or_gpu_rejected(host: Host) -> Iterator[Finding]:
    """The kernel log does not say that the kernel refused the driver's module, or the module this machine's GPUs."""
    need_own_gpu(host)
    lines = log_lines(host, "driver")
    for pattern, meaning, fix in _REFUSED:
        found = [line.text for line in lines if pattern.search(line.text)]
        if found:
            yield Finding(
                f"{meaning}: `{found[-1]}`",
                Severity.WARNING if _host.is_loaded(host) else Severity.ERROR,
                "kernel log",
                {found[-1]: host.log.via},
                f"{fix}; check it with `dmesg | grep -i nvidia` after the reboot",
            )
