"""What is asked of the driver's options and modes: those in force, those that files ask for, and what they cost."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from envkit.judging.checks._driver import driver_params, need_own_driver, need_own_gpu
from envkit.judging.checks._gpus import of_each_gpu, told
from envkit.judging.checks._host import gpu_name, is_loaded, is_workstation, need_driver, nvml_answers, wsl
from envkit.judging.checks._outcomes import error, note, skip_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Observed, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import Gpu
from envkit.subjects.host.gpu import Bar1
from envkit.versions import Sm

_RESTARTS_MOST = 3  # a proposal: systemd itself gives up after five starts in ten seconds
_BAR1_PARTS = 4  # a proposal: GPUs from Ampere on have the whole memory in the window, or 256 MiB of it
_FIRST_AMPERE = Sm.parse("sm_80")
# name in /proc/driver/nvidia/params, where its parameter is called otherwise (kernel-open/nvidia/nv-reg.h)
_RENAMED = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
# what each costs, by kernel-open/nvidia/nv-reg.h: the value that is harmless, and in words what another one does
_COSTLY = {
    "NvLinkDisable": ("0", Severity.WARNING, "NVLink is off on every GPU"),
    "EnableMSI": ("1", Severity.WARNING, "GPUs use shared interrupt lines instead of message-signaled interrupts"),
    "InitializeSystemMemoryAllocations": ("1", Severity.WARNING, "programs get memory with other programs' data in it"),
    "RegisterPCIDriver": ("1", Severity.WARNING, "the driver does not take GPUs from the PCI bus"),
    "RegistryDwords": ("", Severity.NOTE, "keys of the driver that NVIDIA does not document are set"),
    "RegistryDwordsPerDevice": ("", Severity.NOTE, "keys of the driver that NVIDIA does not document are set"),
}
_FIRMWARE_MODE = 0x0F
_NOTHING = re.compile(r"(/usr)?(/bin/)?(true|false)|:")  # programs by which a file keeps a module from being loaded


def host_driver_options_discouraged(host: Host) -> Iterator[Finding]:
    """No option of the driver is in force that costs speed, safety or support."""
    need_own_driver(host)
    params = driver_params(host)
    via = host.driver_params.via
    for name, (harmless, severity, cost) in _COSTLY.items():
        if name in params and params[name] != harmless:
            yield _option(name, params[name], severity, cost, via)
    firmware = params.get("EnableGpuFirmware", "")
    if firmware.isdigit() and int(firmware) & _FIRMWARE_MODE == 0:
        yield _option("EnableGpuFirmware", firmware, Severity.NOTE, "GPUs run without their GSP firmware", via)


def _option(name: str, value: str, severity: Severity, cost: str, via: str) -> Finding:
    return Finding(
        f"the driver runs with {name}={value or '(empty)'}: {cost}",
        severity,
        "/proc/driver/nvidia/params",
        {f"{name}: {value}": via},
        f"take NVreg_{name} out of /etc/modprobe.d and the kernel's command line unless it is meant, rebuild the "
        f"initramfs and reboot; check it with `grep {name}: /proc/driver/nvidia/params`",
    )


def host_driver_options_not_applied(host: Host) -> Iterator[Finding]:
    """The options that files ask for are those that the loaded driver has."""
    need_own_driver(host)
    lines = [line for line in host.modprobe.need("modprobe's files") if line.command == "options"]
    wished: dict[str, tuple[str, str]] = {}
    for line in lines:
        if re.fullmatch("nvidia(_current.*)?", line.module):
            wished.update({name: (value, line.path) for name, value in _assigned(line.text).items()})
    skip_if(not wished, "no file asks for an option of the driver")
    params = driver_params(host)
    for name, (value, path) in sorted(wished.items()):
        if name in params and _number(params[name]) != _number(value):
            yield warning(
                f"{path} asks for NVreg_{name}={value} and the loaded driver has {params[name] or 'nothing'}",
                path,
                {f"{name}={value}": path, f"{name}: {params[name]}": host.driver_params.via},
                "the module was loaded before the file was written, or out of an initramfs that does not have it: run "
                f"`update-initramfs -u` (or `dracut -f`) and reboot; check it with `grep {name}: "
                "/proc/driver/nvidia/params`",
            )


def _assigned(text: str) -> Mapping[str, str]:
    """The driver's options in a line of modprobe.d, by their names in /proc/driver/nvidia/params."""
    found = {}
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name.startswith("NVreg_"):
            own = name.removeprefix("NVreg_")
            found[_RENAMED.get(own, own)] = value.strip("\"'")
    return found


def _number(text: str) -> int | str:
    """A value as the kernel reads it: 0x begins a hexadecimal number, 0 an octal one."""
    if re.fullmatch("0[0-7]+", text):
        return int(text, 8)
    return int(text, 0) if re.fullmatch("0x[0-9a-fA-F]+|[0-9]+", text) else text


def host_driver_blacklisted(host: Host) -> Iterator[Finding]:
    """No file keeps the driver's modules from being loaded."""
    need_own_gpu(host)
    for line in host.modprobe.need("modprobe's files"):
        barred = line.command == "blacklist" or (line.command == "install" and _NOTHING.fullmatch(line.text.strip()))
        if barred and re.fullmatch("nvidia(_uvm|_current|_current_uvm)?", line.module):
            yield Finding(
                f"{line.path} keeps {line.module} from being loaded: {line.command} {line.text}".rstrip(": "),
                Severity.WARNING if is_loaded(host) else Severity.ERROR,
                line.path,
                {f"{line.command} {line.module}": line.path},
                f"take the line out of {line.path}, rebuild the initramfs and reboot (on a laptop with two GPUs it is "
                "`prime-select nvidia`); check it with `modprobe -c | grep nvidia`",
            )


def host_gpu_profiling_blocked(host: Host) -> Iterator[Finding]:
    """Nsight Compute, where it is installed, may read the GPUs' counters.

    The driver lets everybody, or who has CAP_SYS_ADMIN or CAP_PERFMON.
    """
    need_own_driver(host)
    profilers = host.profilers.need("the profilers on this machine")
    skip_if(not profilers, "Nsight Compute is not installed here")
    only = driver_params(host).get("RmProfilingAdminOnly", "")
    if host.privileges.need("this process's capabilities") or only == "0":
        return
    yield note(
        "only administrators may read the GPUs' counters, so ncu ends with ERR_NVGPUCTRPERM",
        "/proc/driver/nvidia/params",
        {
            f"RmProfilingAdminOnly: {only or 'not listed'}": host.driver_params.via,
            "no CAP_PERFMON": host.privileges.via,
        },
        "write `options nvidia NVreg_RestrictProfilingToAdminUsers=0` to a file of /etc/modprobe.d, rebuild the "
        "initramfs and reboot, or give a container `--cap-add PERFMON`; check it with "
        "`grep RmProfilingAdminOnly /proc/driver/nvidia/params`",
    )


def host_driver_loses_gpu_memory_in_suspend(host: Host) -> Iterator[Finding]:
    """A machine that slept kept its GPUs' memory, or never slept."""
    need_own_driver(host)
    skip_if(host.suspends.is_unsupported, "this kernel has no sleep")
    times = host.suspends.need("how often the machine slept")
    kept = driver_params(host).get("PreserveVideoMemoryAllocations", "")
    if times and kept == "0":
        yield note(
            f"the machine was suspended {times} times since boot, and the driver does not preserve the GPUs' memory",
            "/sys/power/suspend_stats/success",
            {str(times): host.suspends.via, "PreserveVideoMemoryAllocations: 0": host.driver_params.via},
            "where CUDA now says `unknown error` (999), run `modprobe -r nvidia_uvm && modprobe nvidia_uvm`; set "
            "NVreg_PreserveVideoMemoryAllocations=1 and enable nvidia-suspend and nvidia-resume; check it with "
            "`nvidia-smi` and a CUDA program after the next sleep",
        )


def host_persistenced_failing(host: Host) -> Iterator[Finding]:
    """The persistence daemon runs where it is enabled, and does not start again and again."""
    need_own_driver(host)
    service = host.services.need("systemd's units").get("nvidia-persistenced")
    if service is None or service.load != "loaded":
        raise Skip("nvidia-persistenced is not a unit here")
    dead = service.active == "failed" or (service.active == "inactive" and service.enabled == "enabled")
    skip_if(service.active == "inactive" and not dead, "nvidia-persistenced is not enabled")
    if dead or service.restarts >= _RESTARTS_MOST:
        yield warning(
            f"nvidia-persistenced is {service.active} and was restarted {service.restarts} times",
            "nvidia-persistenced.service",
            {service.active: host.services.via},
            "`journalctl -u nvidia-persistenced` says why; fix it and run `systemctl restart nvidia-persistenced`; "
            "check it with `systemctl is-active nvidia-persistenced`",
        )


def _window(gpu: Gpu) -> Observed[Bar1]:
    if gpu.sm.value is None:
        return Observed.lost(gpu.sm.missing or "no compute capability", gpu.sm.via)
    if Sm.parse(gpu.sm.value) < _FIRST_AMPERE or gpu.virtual.value == "vgpu":
        return Observed.unsupported(gpu.bar1.via)
    return gpu.bar1


@of_each_gpu
def host_bar1_too_small(gpu: Gpu) -> Iterator[Finding]:
    """The bus sees at least a quarter of each GPU's memory at once."""
    bar1 = told(_window(gpu), "a window for its memory (BAR1)")
    memory = gpu.memory.need("the memory's size")
    if bar1.total * _BAR1_PARTS < memory:
        yield Finding(
            f"the bus sees {bar1.total >> 20} MiB of the {memory >> 20} MiB of {gpu_name(gpu)} at once",
            Severity.NOTE if is_workstation(gpu) else Severity.WARNING,
            f"GPU {gpu.index}",
            {f"BAR1 {bar1.total}": gpu.bar1.via, f"memory {memory}": gpu.memory.via},
            "turn Above 4G Decoding and Resizable BAR on in the firmware (on GPUs with display connectors also compute "
            "mode, with NVIDIA's displaymodeselector); check it with `nvidia-smi -q -d MEMORY`",
        )


def host_confidential_computing_not_ready(host: Host) -> Iterator[Finding]:
    """GPUs in confidential computing mode take work."""
    need_driver(host)
    seen = nvml_answers(host).confidential
    skip_if(seen.is_unsupported, "this platform has no confidential computing")
    word = seen.need("the confidential computing mode")
    skip_if(word == "off", "confidential computing is off")
    if word == "not ready":
        yield error(
            "confidential computing is on and not ready: the GPUs take no work",
            evidence={word: seen.via},
            fix="attest the GPUs, then run `nvidia-smi conf-compute -srs 1`; check it with "
            "`nvidia-smi conf-compute -grs`",
        )
    elif word != "on":
        raise Unknown(f"NVML says of confidential computing: {word}")


def host_wsl_driver_not_from_windows(host: Host) -> Iterator[Finding]:
    """Under WSL the driver's libraries are those of Windows, and WSL is the second."""
    kernel = host.kernel.need("the kernel")
    skip_if("microsoft" not in kernel.lower(), "this is not WSL")
    if kernel.endswith("-Microsoft"):
        yield error(
            f"kernel {kernel} is that of WSL 1, which has no GPU",
            evidence={kernel: host.kernel.via},
            fix="convert the distribution in Windows with `wsl --set-version <name> 2`; check it with `wsl -l -v`",
        )
        return
    host.device_nodes.need("the device nodes")
    skip_if(not wsl(host), "Windows hands no GPU to this WSL")
    libraries = host.driver_libraries.need("the driver's libraries")
    from_windows = {library.name for library in libraries if library.path.startswith("/usr/lib/wsl/")}
    for name in ("libcuda", "libnvidia-ml"):
        if name not in from_windows:
            yield error(
                f"{name}.so.1 is not in /usr/lib/wsl/lib",
                evidence={f"no {name}.so.1 there": host.driver_libraries.via},
                fix="update NVIDIA's driver in Windows and run `wsl --update` and `wsl --shutdown`; "
                "check it with `ls /usr/lib/wsl/lib`",
            )
    for library in libraries:
        if not library.path.startswith("/usr/lib/wsl/") and "compat" not in library.path.split("/"):
            yield error(
                f"{library.path} belongs to a Linux driver, which does not work in WSL",
                library.path,
                {library.path: host.driver_libraries.via},
                "purge the driver's packages inside WSL (`apt purge 'nvidia-*' 'libnvidia-*'`) and run `ldconfig`; "
                "check it with `ldconfig -p | grep libcuda`",
            )


CHECKS = rows(__name__)
