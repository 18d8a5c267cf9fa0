"""Healthy machines that look unusual: no check calls what is normal there a fault, and what stays open says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import machines
import pytest
from hosts import CHECKS, FACTS

from envkit.judging import judge
from envkit.model import Outcome, Severity
from envkit.subjects import Host

EVERY = "nvml.gpus.*."
PERMITS = ("root", "permission", "not permitted")


def lost(why: str, via: str = "") -> dict[str, Any]:
    return {"value": None, "via": via, "missing": why}


UNSUPPORTED = lost("not supported")
NO_LOG = lost("/dev/kmsg: operation not permitted; journalctl shows none", "/dev/kmsg")
SHORT = lost("64 bytes of 256 are shown; root may read all", "config")
NO_DOCKER = {
    "ended": "no socket",
    "detail": "the socket does not exist",
    "endpoint": "unix:///var/run/docker.sock",
    "installed": False,
}
NO_TOOLKIT = {"programs": {}, "version": lost("nvidia-ctk was not asked")}
# an ordinary user reads neither the kernel log nor the extended PCI configuration space
ORDINARY = {"log": NO_LOG, "log_start": NO_LOG, "pci.*.payload": SHORT, "privileges": []}
# a container shows the machine's /proc and /sys, and an image's files
CONTAINER = {
    "container": "kubernetes",
    "services": {},
    "kernels": [],
    "packages": {"libc6": "2.39-0ubuntu8"},
    "driver_packages": [],
    "modprobe": [],
    "docker": NO_DOCKER,
    "containerd.installed": False,
    "podman.installed": False,
    "enroot": {"installed": False},
    "toolkit": NO_TOOLKIT,
    "cdi": [],
    "dev_char": [],
    "mounts": [{"device": "overlay", "frozen": False, "kind": "overlay", "path": "/", "read_only": False}],
    "raids": [],
    "fabric_daemons": {"running": [], "whole": False},
    "profilers": [],
}


def some_gpus(name: str, *kept: int) -> dict[str, Any]:
    """NVML of a job that was given these GPUs; NVML numbers what it shows, and peers are what it shows."""
    gpus = machines.plain(name)["nvml"]["value"]["gpus"]
    found = [gpus[number] for number in kept]
    for index, gpu in enumerate(found):
        gpu["index"] = index
        gpu["p2p"]["value"] = {str(peer): "ok" for peer in range(len(found)) if peer != index}
    return {"nvml.gpus": found}


def nodes(name: str, *kept: int) -> list[Any]:
    """The device nodes with those of these GPUs alone."""
    found = machines.plain(name)["device_nodes"]["value"]
    digits = [node["path"].removeprefix("/dev/nvidia") for node in found]
    return [node for node, digit in zip(found, digits, strict=True) if not digit.isdigit() or int(digit) in kept]


@dataclass(frozen=True)
class Where:
    """A place: the machine, what is changed, what may be noted or warned of, and what stays open."""

    on: str
    changes: Mapping[str, Any]
    noted: Mapping[str, Severity] = field(default_factory=dict)
    open: frozenset[str] = frozenset()

    def host(self) -> Host:
        return machines.host(self.on, self.changes)


PLACES = {
    "a pod with one of eight GPUs": Where(
        "h100",
        {
            **ORDINARY,
            **CONTAINER,
            **some_gpus("h100", 3),
            "device_nodes": nodes("h100", 3),
            "shm": 64 << 30,
            "shm_free": 64 << 30,
            "control_group": {"memory": 256 << 30, "memory_used": 1 << 30, "processors": 24, "tasks": -1},
        },
        # a pool of 224 threads on 24 processors is slow in every container with a quota
        {"host-doctor-in-container": Severity.NOTE, "host-omp-threads-exceed-cpus": Severity.WARNING},
    ),
    "a job of Slurm with two of eight GPUs": Where(
        "h100",
        {
            **ORDINARY,
            **some_gpus("h100", 0, 1),
            **{f"device_nodes.{number}.error": "operation not permitted" for number in range(5, 11)},
            "environment": {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_ID": "17"},
            "docker": {**NO_DOCKER, "ended": "permission denied", "detail": "permission denied", "installed": True},
        },
        {"host-gpu-profiling-blocked": Severity.NOTE},
    ),
    "a virtual machine with one card": Where(
        "desk",
        {
            EVERY + "name": "NVIDIA L4",
            EVERY + "virtual": "passthrough",
            EVERY + "display": "off",
            EVERY + "processes": [],
            EVERY + "ecc": "on",
            EVERY + "ecc_pending": "on",
            "scaling": {"boost": "", "frequencies": []},
            "processors.hypervisor": True,
            "memory_errors": UNSUPPORTED,
            "pci.*.aer": UNSUPPORTED,
            "pci.*.link": UNSUPPORTED,
            "pci.*.iommu": UNSUPPORTED,
            "throttling": UNSUPPORTED,
            "pci_gpus.0.device": "0x27b8",
            "pci.2.device": "0x27b8",
        },
    ),
    "a laptop": Where(
        "desk",
        {
            EVERY + "name": "NVIDIA GeForce RTX 4070 Laptop GPU",
            EVERY + "persistence": "off",
            EVERY + "power": {"draw": 800, "limit": 35000, "default": 80000, "least": 5000, "most": 140000},
            EVERY + "pcie": {"generation": 1, "width": 8, "most_generation": 4, "most_width": 8},
        },
    ),
    "Linux in Windows": Where(
        "desk",
        {
            **ORDINARY,
            "kernel": "6.6.87.2-microsoft-standard-WSL2",
            "device_nodes": [{"path": "/dev/dxg", "error": "", "major": 10, "minor": 125}],
            "module": UNSUPPORTED,
            "modules": [],
            "pci_gpus": [],
            "pci": [],
            "driver_gpus": [],
            "driver_params": UNSUPPORTED,
            "driver_packages": [],
            "driver_majors": {},
            "dev_char": [],
            "kernels": [],
            "firmware": {"files": {}, "root": "/lib/firmware"},
            "driver_install": {"libraries": {}, "uninstaller": ""},
            "driver_libraries": [
                {"name": name, "path": f"/usr/lib/wsl/lib/{name}.so.1", "version": "", "error": ""}
                for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
            ],
            "processors.hypervisor": True,
            "cdi.0.versions": [],
        },
    ),
    "a node whose GPUs are cut": Where(
        "h100",
        {
            EVERY + "mig": "on",
            EVERY + "mig_pending": "on",
            EVERY + "mig_instances": 7,
            EVERY + "utilization": UNSUPPORTED,
            EVERY + "links.*.active": False,
            "cdi.0.devices": [f"nvidia.com/gpu={gpu}:{part}" for gpu in range(8) for part in range(7)],
            "docker.cdi_devices": [f"nvidia.com/gpu={gpu}:{part}" for gpu in range(8) for part in range(7)],
            "nccl_conf": {},
        },
    ),
    "a node with containerd and no Docker": Where(
        "h100",
        {
            "docker": NO_DOCKER,
            "daemon_config.present": False,
            "kubelet": {"present": True, "sockets": ["nvidia-gpu.sock"], "cgroup_driver": "systemd"},
            "enroot": {"installed": False},
        },
    ),
    "a workstation without a screen": Where(
        "desk", {EVERY + "display": "off", EVERY + "persistence": "off"}, {"host-persistence-mode-off": Severity.NOTE}
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_normal_in_a_place_is_no_fault_there(place: str) -> None:
    where = PLACES[place]
    host = where.host()
    said = {name: judge.run(check, host, FACTS) for name, check in CHECKS.items()}
    assert not [name for name, result in said.items() if result.outcome is Outcome.CRASHED]
    found = {name: [one.message for one in result.findings] for name, result in said.items() if result.findings}
    assert {name: max(one.severity for one in said[name].findings) for name in found} == where.noted, found
    unknown = {name: result.reason for name, result in said.items() if result.outcome is Outcome.UNKNOWN}
    silent = {name: reason for name, reason in unknown.items() if not any(word in reason for word in PERMITS)}
    assert set(silent) == where.open, silent
