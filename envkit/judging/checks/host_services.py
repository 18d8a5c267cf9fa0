"""What is asked of the services that systemd runs on a GPU machine."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.model import Finding
from envkit.subjects import Host
from envkit.subjects.host import Service

# Those of GPUs, fabrics and engines are asked after by checks of their own.
_ENGINES = ("containerd", "crio", "podman", "nvidia-dcgm", "irqbalance")
_SCHEDULERS = ("kubelet", "slurmd", "munge")
_REST = ("ssh", "sshd", "systemd-resolved", "systemd-networkd", "NetworkManager", "rdma-ndd", "openibd")
_TIME = ("chrony", "chronyd", "ntp", "ntpd", "ntpsec", "systemd-timesyncd")
_ALIASES = {"sshd": "ssh", "chronyd": "chrony", "ntpd": "ntp", "opensmd": "opensm"}
_RESTARTS_MANY = 3  # since the unit was started by hand or at boot; a proposal: an update makes one or two


def _units(host: Host, *names: str) -> dict[str, Service]:
    """The units of these names that are installed, an alias and its unit once."""
    services = host.services.need("systemd's units")
    skip_if(not services, "systemd does not run here")
    found = {name: services[name] for name in names if name in services and services[name].load == "loaded"}
    return {name: unit for name, unit in found.items() if found.get(_ALIASES.get(name, "")) != unit}


def _agent_down(name: str, unit: Service) -> bool:
    return name in _SCHEDULERS and unit.enabled.startswith("enabled") and unit.active not in ("active", "reloading")


def host_service_failed_or_restarting(host: Host) -> Iterator[Finding]:
    """None of the services that jobs depend on has failed or starts again and again."""
    units = _units(host, *_ENGINES, *_SCHEDULERS, *_REST, *_TIME)
    for name, unit in units.items():
        if _agent_down(name, unit):
            continue  # of which host-scheduler-agent-not-running tells
        if unit.active == "failed" or unit.restarts >= _RESTARTS_MANY:
            what = "has failed" if unit.active == "failed" else f"is {unit.active}"
            yield warning(
                f"{name} {what} and was restarted {unit.restarts} times",
                f"{name}.service",
                {f"{unit.active}, {unit.restarts} restarts": host.services.via},
                f"read `journalctl -u {name} -e`, then `systemctl restart {name}`; check it with "
                f"`systemctl status {name}`",
            )


def host_scheduler_agent_not_running(host: Host) -> Iterator[Finding]:
    """The scheduler's agent that shall run on this machine runs; one that is not enabled is somebody's choice."""
    units = {name: unit for name, unit in _units(host, *_SCHEDULERS).items() if unit.enabled.startswith("enabled")}
    skip_if(not units, "no agent of a scheduler is enabled here")
    for name, unit in units.items():
        if _agent_down(name, unit):
            yield error(
                f"{name} is enabled and {unit.active}",
                f"{name}.service",
                {unit.active: host.services.via},
                f"no job will come here: read `journalctl -u {name} -e`, then `systemctl start {name}`; check it with "
                f"`systemctl is-active {name}`",
            )


def host_multiple_time_daemons(host: Host) -> Iterator[Finding]:
    """No two services set the clock at once."""
    running = [name for name, unit in _units(host, *_TIME).items() if unit.active == "active"]
    if len(running) > 1:
        yield warning(
            f"{' and '.join(running)} set the clock at the same time",
            "the clock",
            dict.fromkeys(running, host.services.via),
            f"`systemctl disable --now {running[-1]}`; check it with `timedatectl`",
        )
