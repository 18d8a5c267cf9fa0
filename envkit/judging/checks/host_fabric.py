"""What is asked of NVSwitches and of the daemons that make a fabric of them.

On some machines root alone can tell whether there are NVSwitches: so that is asked last, where something is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._fabric import bridges, need_nvswitches, own_cards
from envkit.judging.checks._host import AGAIN, loaded_driver, need_driver, nvml_answers
from envkit.judging.checks._outcomes import error, note, or_unknown, skip_if, warning
from envkit.model import Finding, Severity, Skip
from envkit.subjects import Host
from envkit.subjects.host import Service
from envkit.versions import Driver

_VERSION = re.compile(r"(?<![0-9.])[0-9]{3}\.[0-9]+(?:\.[0-9]+)?")  # a driver's version inside a package's
_MANAGER = "nvidia-fabricmanager"
_IMEX = "nvidia-imex"

# NVSwitches of a baseboard with eight GPUs (NVIDIA Fabric Manager User Guide, "GPU Baseboard Topologies"); on later
# boards they are not on the bus
_SWITCHES_OF_EIGHT = (
    (re.compile(r"A100[- ]SXM|A800[- ]SXM"), 6),
    (re.compile(r"H100 80GB HBM3|H100 SXM|H800$|H20$|H200$"), 4),
)

# a proposal: two restarts may be an update and a reset; systemd counts only those that it made itself
_RESTARTS_MOST = 2

# what the fabric manager says when it does not make a fabric, or a switch is broken: leptonai/gpud,
# components/accelerator/nvidia/fabric-manager
_FATAL = re.compile(
    r"detected NVSwitch fatal error|with any supported system topology|n't match with driver version|aborting fabric",
    re.IGNORECASE,
)


def _unit(host: Host, name: str) -> Service:
    """A unit of systemd; skips without systemd and where there is no such unit."""
    services = host.services.need("the services")
    skip_if(not services, "no systemd here")
    unit = services.get(name)
    if unit is None or unit.load != "loaded":
        raise Skip(f"no unit {name} on this machine")
    return unit


def _running(host: Host, program: str) -> bool:
    """Whether a daemon runs; skips in a container, which does not see the machine's processes."""
    daemons = host.fabric_daemons.need("the running daemons of the fabric")
    if program in daemons.running:
        return True
    skip_if(not daemons.whole, "the machine's own processes cannot be seen from here")
    return False


def host_fabric_manager_not_running(host: Host) -> Iterator[Finding]:
    """The fabric manager runs where NVSwitches need it."""
    need_driver(host)
    if _running(host, "nv-fabricmanager"):
        return
    need_nvswitches(host)
    unit = (host.services.value or {}).get(_MANAGER)
    words = (
        "no unit of that name is known"
        if unit is None or unit.load == "not-found"
        else f"its unit is {unit.load}, {unit.active}"
    )
    yield error(
        f"nv-fabricmanager does not run: {words}",
        _MANAGER,
        {"no process nv-fabricmanager": host.fabric_daemons.via, words: host.services.via or "systemd"},
        "install the package nvidia-fabricmanager in the driver's exact version and run `systemctl enable --now "
        "nvidia-fabricmanager`; until then CUDA ends with error 802; `journalctl -u nvidia-fabricmanager` says why it "
        f"stopped; {AGAIN}",
    )


def host_fabric_manager_not_enabled(host: Host) -> Iterator[Finding]:
    """The fabric manager comes back after a reboot."""
    need_driver(host)
    unit = _unit(host, _MANAGER)
    if unit.enabled == "disabled":
        need_nvswitches(host)
        yield warning(
            "nvidia-fabricmanager is disabled: after the next reboot the GPUs have no fabric",
            _MANAGER,
            {"disabled": host.services.via},
            "run `systemctl enable nvidia-fabricmanager`; check it with `systemctl is-enabled nvidia-fabricmanager`",
        )


def host_fabric_manager_restarting(host: Host) -> Iterator[Finding]:
    """The fabric manager does not keep restarting."""
    need_driver(host)
    unit = _unit(host, _MANAGER)
    if unit.restarts > _RESTARTS_MOST:
        need_nvswitches(host)
        yield warning(
            f"systemd restarted nvidia-fabricmanager {unit.restarts} times, more than {_RESTARTS_MOST}",
            _MANAGER,
            {f"{unit.restarts} restarts": host.services.via},
            "`journalctl -u nvidia-fabricmanager` says why it dies; drain the machine until it stays up; check it with "
            "`systemctl show -p NRestarts nvidia-fabricmanager`",
        )


def host_fabric_manager_driver_mismatch(host: Host) -> Iterator[Finding]:
    """The fabric manager's package has the loaded driver's version."""
    need_driver(host)
    findings = list(_versions(host, re.compile(r"nvidia-fabric-?manager(-[0-9]+)?"), "the fabric manager"))
    if findings:
        need_nvswitches(host)
    yield from findings


def host_imex_driver_mismatch(host: Host) -> Iterator[Finding]:
    """The package of nvidia-imex has the loaded driver's version."""
    need_driver(host)
    _imex_unit(host)
    yield from _versions(host, re.compile(r"nvidia-imex(-[0-9]+)?"), "nvidia-imex")


def _versions(host: Host, names: re.Pattern[str], what: str) -> Iterator[Finding]:
    packages = host.packages.need("the installed packages")
    found = {name: version for name, version in packages.items() if names.fullmatch(name)}
    skip_if(not found, f"no package of {what} is installed")
    driver, via = loaded_driver(host)
    for name, version in found.items():
        own = or_unknown(_VERSION.search(version), f"the version of {name} names no driver: {version}")
        if Driver(own[0]) != driver:
            yield error(
                f"{name} is {own[0]} and the loaded driver is {driver}",
                name,
                {version: host.packages.via, str(driver): via},
                f"install {name} in version {driver} and hold both packages, or reboot if the driver was updated "
                f"too; check it with `systemctl status {name.rstrip('-0123456789')}`",
            )


def host_fabric_manager_errors_logged(host: Host) -> Iterator[Finding]:
    """The fabric manager has logged no error since it started."""
    need_driver(host)
    log = host.fabric_log.need("the fabric manager's log")
    skip_if(not log.present, "the fabric manager has written no log here")
    if log.lines:
        need_nvswitches(host)  # on any other machine it has nothing to do and says so
    fatal = [line for line in log.lines if _FATAL.search(line) and "non-fatal" not in line]
    mild = [line for line in log.lines if line not in fatal]
    for lines, severity, words in (
        (fatal, Severity.ERROR, "does not make a whole fabric"),
        (mild, Severity.WARNING, "complains"),
    ):
        if lines:
            yield Finding(
                f"the fabric manager {words}: `{lines[-1]}`",
                severity,
                host.fabric_log.via,
                {lines[-1]: host.fabric_log.via, f"{log.count} such lines": host.fabric_log.via},
                "restart nvidia-fabricmanager between two jobs and reset all GPUs with `nvidia-smi -r`; if the line "
                f"returns, take `nvidia-bug-report.sh` to the vendor; check it with `tail {host.fabric_log.via}`",
            )


def host_nvlsm_not_running(host: Host) -> Iterator[Finding]:
    """The NVLink subnet manager runs where network cards manage the NVSwitches."""
    need_driver(host)
    if not _running(host, "nvlsm"):
        skip_if(not bridges(host), "no network card here manages NVSwitches")
        yield error(
            "nvlsm does not run, and the NVSwitches here are managed through it",
            "nvlsm",
            {
                "no process nvlsm": host.fabric_daemons.via,
                f"{len(bridges(host))} cards manage NVSwitches": host.switch_managers.via,
            },
            "install the package nvlsm and run `systemctl restart nvidia-fabricmanager`, whose start script starts "
            f"it; {AGAIN}",
        )


def host_nvswitch_management_nic_not_ready(host: Host) -> Iterator[Finding]:
    """Each network card that manages NVSwitches is an RDMA device and takes management datagrams."""
    need_driver(host)
    managing = bridges(host)
    skip_if(not managing, "no network card here manages NVSwitches")
    devices = {device.pci: device for device in host.infiniband.need("the RDMA devices")}
    for address in managing:
        device = devices.get(address)
        if device is None:
            problem, module = "is no RDMA device", "mlx5_ib"
        elif not any(port.umad.need("its umad") for port in device.ports.need(f"the ports of {device.name}")):
            problem, module = "takes no management datagrams", "ib_umad"
        else:
            continue
        yield error(
            f"the network card {address}, which manages NVSwitches, {problem}",
            address,
            {f"manages NVSwitches: {address}": host.switch_managers.via, problem: host.infiniband.via},
            f"load {module} at boot (/etc/modules-load.d) and restart nvidia-fabricmanager; check it with "
            "`ls /sys/class/infiniband_mad`",
        )


def host_nvswitch_without_driver(host: Host) -> Iterator[Finding]:
    """Every NVSwitch on the bus has its driver."""
    need_driver(host)
    switches = own_cards(host, "nvswitch")
    skip_if(not switches, "no NVSwitch on the PCI bus")
    for switch in switches:
        if switch.driver != "nvidia-nvswitch":
            bound = f"bound to {switch.driver}" if switch.driver else "bound to no driver"
            yield error(
                f"the NVSwitch {switch.address} is {bound}",
                switch.address,
                {bound: host.fabric_cards.via},
                "`dmesg | grep nvidia-nvswitch` says why it was not taken; reboot, and replace the baseboard if it "
                f"returns; check it with `lspci -ks {switch.address}`",
            )


def host_nvswitch_missing(host: Host) -> Iterator[Finding]:
    """A baseboard of eight GPUs shows all its NVSwitches.

    Where none is on the bus, they are hidden by design or handed to another machine.
    """
    need_driver(host)
    switches = own_cards(host, "nvswitch")
    skip_if(not switches, "no NVSwitch on the PCI bus")
    names = [gpu.name.need(f"the name of GPU {gpu.index}") for gpu in nvml_answers(host).gpus]
    wanted = next((count for name, count in _SWITCHES_OF_EIGHT if all(name.search(gpu) for gpu in names)), 0)
    skip_if(len(names) != 8 or not wanted, f"how many NVSwitches belong to {len(names)} GPUs of this kind is not known")
    if len(switches) < wanted:
        yield error(
            f"{len(switches)} NVSwitches are on the bus, and a board of eight {names[0]} has {wanted}",
            "/sys/bus/pci/devices",
            {f"{len(switches)} NVSwitches": host.fabric_cards.via, names[0]: "nvmlDeviceGetName"},
            "power-cycle the machine; if the switch is still missing, return the baseboard to the vendor; check it "
            "with `lspci -d 10de: | grep -i bridge`",
        )


def _imex_unit(host: Host) -> Service:
    """nvidia-imex where somebody wants it: enabled, or started; else skips."""
    unit = _unit(host, _IMEX)
    if unit.active == "inactive" and not unit.enabled.startswith("enabled"):
        raise Skip("nvidia-imex is installed and nobody enabled it")
    return unit


def host_imex_down_or_without_nodes(host: Host) -> Iterator[Finding]:
    """nvidia-imex runs and knows its nodes where it is enabled."""
    need_driver(host)
    unit = _imex_unit(host)
    imex = host.imex.need("the list of nodes of nvidia-imex")
    if unit.active != "active":
        problem = f"nvidia-imex is enabled and {unit.active}"
    elif not imex.nodes:
        problem = f"nvidia-imex runs and {imex.path} names no node" + ("" if imex.listed else ": it does not exist")
    else:
        return
    yield error(
        problem,
        imex.path,
        {unit.active: host.services.via, f"{len(imex.nodes)} nodes": host.imex.via},
        "write the same list of all nodes on every one of them and run `systemctl restart nvidia-imex`; without it "
        "no memory is shared between machines over NVLink; check it with `nvidia-imex-ctl -N`",
    )


def host_imex_channel_missing(host: Host) -> Iterator[Finding]:
    """Where nvidia-imex runs there is a channel for programs to use."""
    need_driver(host)
    skip_if(_imex_unit(host).active != "active", "nvidia-imex does not run")
    imex = host.imex.need("the channels of nvidia-imex")
    if not imex.channels:
        yield note(
            "nvidia-imex runs and /dev/nvidia-caps-imex-channels has no channel",
            "/dev/nvidia-caps-imex-channels",
            {"no channel": host.imex.via},
            "unless the scheduler makes one for each job, load the driver with NVreg_CreateImexChannel0=1, or make the "
            "node with mknod; check it with `ls /dev/nvidia-caps-imex-channels`",
        )
