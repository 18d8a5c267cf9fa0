"""What the blocks of the pages do not hold: limits at both of their edges, doubts, questions that do not apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import machines
import pytest
from gathered import gathered
from hosts import CHECKS, FACTS, said
from nightly import at_night

from envkit.errors import UsageError
from envkit.judging import pages
from envkit.judging.judge import checks, run
from envkit.model import Outcome, is_observation
from envkit.report import exit_codes
from envkit.subjects import Host, saved
from envkit.subjects.codec import from_plain

LACKING = {"missing": "not supported", "value": None, "via": ""}
NO_TORCH = {"image.torch": {"missing": "there is no torch here", "value": None, "via": ""}}
ALL = checks()


def env(**variables: str) -> dict[str, Any]:
    """A machine whose environment holds these."""
    return {"environment": variables}


def job_env(**variables: str) -> dict[str, Any]:
    """A job with these variables besides its own."""
    return {f"job.environment.{name}": value for name, value in variables.items()}


def fault_at(pid: int, place: int) -> dict[str, Any]:
    """A line of the kernel log: a program's exception at a place of the first GPU."""
    text = (
        f"NVRM: Xid (PCI:0000:1b:00): 13, pid={pid}, name=python, "
        f"Graphics SM Warp Exception on (GPC {place}, TPC 1, SM 0): Out Of Range Address"
    )
    where = {"at": 100.0, "pci": "0000:1b:00", "topic": "xid"}
    return {**where, "text": text, "times": 1, "left_out": 0, "xid": 13, "sxid": 0}


# check, healthy machine or launch, what is changed in it, and how the check ends with which severities
# fmt: off
EDGES: list[tuple[str, str, dict[str, Any], str]] = [
    ("host-acs-redirect-on", "h100", {"pci.*.above": []}, "skip"),
    ("host-address-space-limited", "h100", {"limits.as.soft": 0}, "fail warning"),
    ("host-address-space-limited", "h100", {"limits": {}}, "unknown"),
    ("host-variables-contradict", "h100", {"environment": {"PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}}, "fail warning"),
    ("host-bar1-too-small", "h100", {"nvml.gpus.*.sm": None}, "unknown"),
    ("host-bar1-too-small", "h100", {"nvml.gpus.0.sm": "sm_80", "nvml.gpus.0.bar1.total": 1048576}, "fail warning"),
    ("host-bar1-too-small", "h100", {"nvml.gpus": []}, "unknown"),
    ("host-bar1-too-small", "h100", {"nvml.gpus.0.memory": None}, "unknown"),
    ("host-bar1-too-small", "h100", {"nvml.gpus.*.sm": "sm_75", "nvml.gpus.*.bar1.total": 1048576}, "skip"),
    ("host-cache-directory-not-writable", "h100", {"named_paths.0.kind": "absent"}, "fail warning"),
    ("host-cache-directory-not-writable", "h100", {"named_paths.+": {"holds": [], "kind": "absent", "path":
        "/root/.triton", "variable": "TRITON_CACHE_DIR", "writable": True}}, "pass"),
    ("host-cache-directory-not-writable", "h100", {"named_paths.+": {"holds": [], "kind": "file", "path":
        "/root/.triton", "variable": "TRITON_CACHE_DIR", "writable": True}}, "fail warning"),
    ("host-cdi-device-missing-in-docker", "h100", {"docker.cdi_dirs": []}, "skip"),
    ("host-cdi-devices-differ-from-gpus", "h100", {"cdi.0.devices": [f"nvidia.com/gpu={i}" for i in range(7)]},
        "fail error"),
    ("host-cdi-devices-differ-from-gpus", "h100", {"cdi.0.devices": [f"nvidia.com/gpu={i}" for i in range(7)],
        "nvml.gpus.7.uuid": None}, "unknown"),
    ("host-cdi-devices-differ-from-gpus", "h100", {"nvml.gpus.7.mig": None}, "unknown"),
    ("host-cdi-devices-differ-from-gpus", "h100", {"nvml.gpus.7.mig": "on", "nvml.gpus.7.mig_instances": None,
        "cdi.0.devices":
        [f"nvidia.com/gpu={i}" for i in range(7)] + ["nvidia.com/gpu=7:0"]}, "unknown"),
    ("host-cdi-devices-differ-from-gpus", "h100", {"nvml.gpus.7.mig": "on", "nvml.gpus.7.mig_instances": 1,
        "cdi.0.devices":
        [f"nvidia.com/gpu={i}" for i in range(7)] + ["nvidia.com/gpu=MIG-1"]}, "unknown"),
    ("host-cdi-spec-missing", "h100", {"cdi": [], "docker.runtimes": []}, "fail error"),
    ("host-cdi-spec-missing", "h100", {"cdi": []}, "fail warning"),
    ("host-certificate-file-missing", "h100", {"named_paths.+": {"holds": [], "kind": "directory",
        "path": "/etc/ssl/certs",
        "variable": "REQUESTS_CA_BUNDLE", "writable": True}}, "pass"),
    ("host-confidential-computing-not-ready", "h100", {"nvml.confidential": "strange"}, "unknown"),
    ("host-confidential-computing-not-ready", "h100", {"nvml.confidential": None}, "unknown"),
    ("host-confidential-computing-not-ready", "h100", {"nvml.confidential": "not ready"}, "fail error"),
    ("host-containerd-cgroup-driver-mismatch", "h100", {"kubelet.present": True, "kubelet.cgroup_driver": "systemd",
        "containerd.error": "line 3"}, "unknown"),
    ("host-containerd-cgroup-driver-mismatch", "h100", {"kubelet.present": True, "kubelet.cgroup_driver": "systemd",
        "containerd.cgroups": {}}, "skip"),
    ("host-containerd-without-gpu-support", "h100", {"kubelet.present": True, "containerd.serves": False}, "skip"),
    ("host-containerd-without-gpu-support", "h100", {"kubelet.present": True, "containerd.serves": True,
        "crio.installed":
        True}, "skip"),
    ("host-containerd-without-gpu-support", "h100", {"kubelet.present": True, "containerd.serves": True,
        "containerd.error":
        "line 3"}, "unknown"),
    ("host-containerd-without-gpu-support", "h100", {"kubelet.present": False, "containerd.serves": True}, "skip"),
    ("host-containerd-without-gpu-support", "h100", {"kubelet.present": True, "containerd.serves": True, "crio": None},
        "unknown"),
    ("host-cpu-thermal-throttling", "h100", {"throttling.worst_ms": 12096000}, "pass"),
    ("host-cpu-thermal-throttling", "h100", {"throttling.worst_ms": 12096001}, "fail warning"),
    ("host-cpu-thermal-throttling", "h100", {"uptime": 0, "throttling.worst_ms": 11}, "fail warning"),
    ("host-cpu-governor-limits-clock", "h100", {"scaling.frequencies.0.governor": "schedutil",
        "nvml.gpus.0.name": None},
        "unknown"),
    ("host-cpu-governor-limits-clock", "bare", {"scaling": {"boost": "on", "frequencies": [{"driver": "acpi-cpufreq",
        "governor":
        "schedutil", "limit": 2000000, "most": 2000000, "preference": "", "processors": 4}]}}, "pass"),
    ("host-cpu-governor-limits-clock", "h100", {"scaling.frequencies.0.governor": "powersave",
        "scaling.frequencies.0.preference":
        "balance_performance", "nvml.gpus.*.name": "NVIDIA RTX A6000"}, "pass"),
    ("host-cpu-clock-limited", "h100", {"scaling.frequencies.0.limit": 3609999}, "fail warning"),
    ("host-cpus-offline", "h100", {"processors.online": 112, "processors.smt": "forceoff"}, "pass"),
    ("host-cpus-offline", "h100", {"processors.online": 112}, "fail warning"),
    ("host-cpus-offline", "h100", {"processors.online": 111, "processors.smt": "off"}, "fail warning"),
    ("host-crio-without-gpu-support", "h100", {"kubelet.present": False, "crio.installed": True}, "skip"),
    ("host-cuda-home-invalid", "h100", {"environment": {"CUDA_HOME": "/usr/local/cuda", "CUDA_PATH": "/opt/cuda"},
        "named_paths": [{"holds": ["bin/nvcc"], "kind": "directory", "path": p, "variable": v, "writable": True} for
        v, p in (("CUDA_HOME", "/usr/local/cuda"), ("CUDA_PATH", "/opt/cuda"))]}, "fail warning"),
    ("host-cuda-home-invalid", "h100", {"environment": {"CUDA_HOME": "/usr/local/cuda", "CUDA_PATH": "/usr/local/cuda"},
        "named_paths": [{"holds": ["bin/nvcc"], "kind": "directory", "path": "/usr/local/cuda", "variable": v,
        "writable": True} for v in ("CUDA_HOME", "CUDA_PATH")]}, "pass"),
    ("host-dev-char-links-missing", "h100", {"device_nodes.*.major": -1}, "unknown"),
    ("host-device-nodes-stale", "h100", {"driver_majors": {}}, "skip"),
    ("host-device-nodes-stale", "h100", {"device_nodes.3.major": 0}, "fail error"),
    ("host-device-nodes-stale", "h100", {"device_nodes.3.major": -1}, "unknown"),
    ("host-cuda-device-order-not-pci-bus-id", "h100", {"nvml.gpus.7.name": "NVIDIA A2",
        "environment": {"CUDA_DEVICE_ORDER":
        "FASTEST_FIRST"}}, "fail note"),
    ("host-cuda-device-order-not-pci-bus-id", "h100", {"nvml.gpus.7.name": "NVIDIA A2",
        "environment": {"CUDA_DEVICE_ORDER": ""}},
        "fail note"),
    ("host-cuda-device-order-not-pci-bus-id", "h100", {"environment": {"CUDA_DEVICE_ORDER": "fastest"}},
        "fail warning"),
    ("host-cuda-device-order-not-pci-bus-id", "h100", {"nvml.gpus.7.name": None}, "unknown"),
    ("host-cuda-device-order-not-pci-bus-id", "desk", {}, "skip"),
    ("host-cuda-device-order-not-pci-bus-id", "desk",
        {"nvml.gpus.+": machines.plain("h100")["nvml"]["value"]["gpus"][0]}, "fail note"),
    ("host-disk-space-low", "h100", {"disks": []}, "unknown"),
    ("host-docker-config-not-applied", "h100", {"docker.root": "/var/snap/docker/common"}, "skip"),
    ("host-docker-config-not-applied", "h100", {"daemon_config.data_root": "/data/docker"}, "fail warning"),
    ("host-docker-gpus-option-unsupported", "h100", {"toolkit.programs": {"nvidia-ctk": "/usr/bin/nvidia-ctk"},
        "docker.cdi_dirs":
        None}, "unknown"),
    ("host-docker-gpus-option-unsupported", "h100", {"toolkit.programs": {"nvidia-ctk": "/usr/bin/nvidia-ctk"},
        "docker.cdi_devices": None, "docker.runtimes": [], "cdi": None}, "unknown"),
    ("host-docker-gpus-option-unsupported", "h100",
        {"toolkit.programs": {"nvidia-cdi-hook": "/usr/bin/nvidia-cdi-hook"},
        "docker.cdi_devices": None, "docker.cdi_dirs": ["/opt/cdi"], "docker.runtimes": []}, "unknown"),
    ("host-docker-memlock-limited-for-rdma", "h100", {"docker.security.+": "name=rootless",
        "daemon_config.ulimits": {}},
        "skip"),
    ("host-docker-memlock-limited-for-rdma", "h100", {"infiniband": None}, "unknown"),
    ("host-docker-too-old", "h100", {"docker.api": "1.39"}, "fail error"),
    ("host-docker-too-old", "h100", {"docker.api": "1.40"}, "fail warning"),
    ("host-docker-unreachable", "h100", {"docker.ended": "no socket", "docker.installed": True}, "fail error"),
    ("host-docker-without-gpu-support", "h100", {"docker.runtimes": [], "toolkit": None}, "unknown"),
    ("host-docker-without-gpu-support", "h100", {"docker.runtimes": [], "docker.cdi_dirs": None}, "unknown"),
    ("host-driver-branch-end-of-life", "h100", {"today": None}, "unknown"),
    ("host-driver-not-built-for-kernel", "h100", {"kernels.0.running": False}, "skip"),
    ("host-driver-not-built-for-next-kernel", "h100", {"kernels.0.nvidia": []}, "skip"),
    ("host-driver-not-built-for-next-kernel", "h100", {"kernels.0.nvidia": [], "kernels.+": {"release":
        "6.8.0-90-generic", "running": False, "bootable": True, "nvidia": []}}, "skip"),
    ("host-driver-flavor-wrong-for-gpu", "h100", {"module.flavor": "proprietary", "pci_gpus.0.device": "0x28ff"},
        "pass"),
    ("host-driver-flavor-wrong-for-gpu", "h100", {"module.flavor": "proprietary", "pci_gpus.0.device": "0x2900"},
        "fail error"),
    ("host-driver-flavor-wrong-for-gpu", "h100", {"module.flavor": "proprietary", "pci_gpus.0.device": "0x2342"},
        "fail error"),
    ("host-driver-flavor-wrong-for-gpu", "h100", {"module.flavor": "proprietary", "pci_gpus.0.device": "0x2348"},
        "fail error"),
    ("host-driver-flavor-wrong-for-gpu", "h100", {"pci_gpus.0.device": "0x1dff"}, "fail error"),
    ("host-driver-flavor-wrong-for-gpu", "h100", {"pci_gpus.0.device": "0x1e00"}, "pass"),
    ("host-driver-flavor-wrong-for-gpu", "h100", {"pci_gpus.*.driver": "vfio-pci"}, "skip"),
    ("host-driver-flavor-wrong-for-gpu", "h100", {"pci_gpus.0.driver": "pci-stub", "pci_gpus.0.device": "0x1dff"},
        "pass"),
    ("host-driver-branch-unknown", "h100", {"module.version": "999.1", "nvml.driver": "999.1"}, "fail note"),
    ("host-driver-not-loaded", "h100", {"module": None, "modules": ["nouveau"], "nvml.ended": "error"}, "skip"),
    ("host-driver-too-old-for-cuda", "h100", {"wanted_cuda": "99.0"}, "unknown"),
    ("host-driver-too-old-for-cuda", "h100", {"module.version": "580.65.06", "nvml.driver": "580.65.06", "wanted_cuda":
        "13.0"}, "pass"),
    ("host-driver-too-old-for-cuda", "h100", {"module.version": "525.60.13", "nvml.driver": "525.60.13", "wanted_cuda":
        "12.8"}, "fail warning"),
    ("host-driver-too-old-for-cuda", "h100", {"module.version": "525.60.12", "nvml.driver": "525.60.12", "wanted_cuda":
        "12.8"}, "fail error"),
    ("host-driver-too-old-for-cuda", "h100", {"module.version": "570.26", "nvml.driver": "570.26",
        "wanted_cuda": "12.8"},
        "pass"),
    ("host-driver-options-discouraged", "h100", {"driver_params": LACKING}, "skip"),
    *[("host-driver-options-discouraged", "h100", {f"driver_params.{n}": v}, f"fail {s}") for n, v,
        s in (("NvLinkDisable",
        "1", "warning"), ("EnableMSI", "0", "warning"), ("InitializeSystemMemoryAllocations", "0", "warning"),
        ("RegisterPCIDriver", "0", "warning"), ("RegistryDwords", "RMx=1", "note"), ("RegistryDwordsPerDevice",
        "pci=1;RMx=1", "note"), ("EnableGpuFirmware", "16", "note"))],
    ("host-driver-unattended-upgrades-on", "h100", {"driver_packages": []}, "skip"),
    ("host-driver-packages-mixed-versions", "h100", {"driver_packages": [{"held": False, "name": "nvidia-settings",
        "state": "installed", "vendor": "nvidia", "version": "1"}]}, "skip"),
    ("host-contract-cuda-mismatch", "h100", {"expected": {"gpus": {"count": 8}}}, "skip"),
    ("host-contract-cuda-mismatch", "h100", {"expected": {"driver": {"cuda": ">=12"}}, "nvml.ended": "hung"},
        "fail error"),
    ("host-contract-driver-mismatch", "h100", {"expected": {"gpus": {"count": 8}}}, "skip"),
    ("host-contract-driver-mismatch", "h100", {"expected": {"driver": {"version": ">=550"}}, "module": None,
        "nvml": None},
        "unknown"),
    ("host-contract-driver-mismatch", "h100", {"expected": {"driver": {"version": ">=550"}}, "module": None,
        "nvml": None,
        "modules": None}, "unknown"),
    ("host-contract-driver-mismatch", "h100", {"expected": {"driver": {"version": ">=550"}}, "module": None,
        "nvml": None,
        "modules": []}, "fail error"),
    ("host-contract-gpu-memory-mismatch", "h100", {"expected": {"gpus": {"count": 8}}}, "skip"),
    ("host-contract-gpu-memory-mismatch", "h100", {"expected": {"gpus": {"memory_gib": 79}}, "nvml.gpus": []},
        "fail error"),
    ("host-contract-gpu-memory-mismatch", "h100", {"expected": {"gpus": {"memory_gib": 79}}, "nvml.gpus.0.memory":
        84825604096}, "pass"),
    ("host-contract-gpu-memory-mismatch", "h100", {"expected": {"gpus": {"memory_gib": 79}}, "nvml.gpus.0.memory":
        84825604095}, "fail error"),
    ("host-contract-gpu-modes-mismatch", "h100", {"expected": {"gpus": {"count": 8}}}, "skip"),
    ("host-contract-gpu-modes-mismatch", "h100", {"expected": {"gpus": {"mig": "off"}}, "nvml.gpus": []}, "fail error"),
    ("host-contract-gpu-modes-mismatch", "h100", {"expected": {"gpus": {"mig": "off"}}, "nvml.gpus.*.mig": LACKING},
        "pass"),
    ("host-contract-gpu-modes-mismatch", "h100", {"expected": {"gpus": {"ecc": "on"}}, "nvml.gpus.*.ecc": LACKING},
        "fail error"),
    ("host-contract-gpu-modes-mismatch", "h100", {"expected": {"gpus": {"ecc": "on"}}, "nvml.gpus.*.ecc": None},
        "unknown"),
    ("host-contract-gpu-modes-mismatch", "h100", {"expected": {"gpus": {"ecc": "on"}}, "nvml.gpus.*.persistence": None},
        "pass"),
    ("host-contract-gpus-mismatch", "h100", {"expected": {"driver": {"cuda": ">=12"}}}, "skip"),
    ("host-contract-gpus-mismatch", "h100", {"expected": {"gpus": {"name": "NVIDIA H100*"}}, "nvml.gpus.0.name": None},
        "unknown"),
    ("host-contract-gpus-mismatch", "bare", {"expected": {"gpus": {"count": 0, "name": "NVIDIA H100*"}}}, "pass"),
    ("host-contract-gpus-mismatch", "h100", {"expected": {"gpus": {"count": 0}}, "nvml.gpus": []}, "fail error"),
    ("host-contract-gpus-mismatch", "h100", {"expected": {"gpus": {"name": "NVIDIA H100*"}}, "nvml.gpus": []},
        "fail error"),
    ("host-contract-infiniband-mismatch", "h100", {"expected": {"gpus": {"count": 8}}}, "skip"),
    ("host-contract-infiniband-mismatch", "h100", {"expected": {"infiniband": {"ports": 0, "rate_gbps": 400}},
        "infiniband":
        []}, "pass"),
    ("host-contract-infiniband-mismatch", "h100", {"expected": {"infiniband": {"rate_gbps": 400}}, "infiniband": []},
        "fail error"),
    ("host-contract-infiniband-mismatch", "h100", {"expected": {"infiniband": {"rate_gbps": 400}}}, "pass"),
    ("host-contract-infiniband-mismatch", "h100", {"expected": {"infiniband": {"rate_gbps": 401}}}, "fail error"),
    *[("host-contract-infiniband-mismatch", "h100", {"expected": {"infiniband": {"rate_gbps": 400}},
        f"infiniband.0.{w}":
        None}, "unknown") for w in ("ports", "ports.0.layer", "ports.0.state", "ports.0.rate")],
    ("host-contract-nvlink-mismatch", "h100", {"expected": {"gpus": {"count": 8}}}, "skip"),
    ("host-contract-service-not-running", "h100", {"expected": {"gpus": {"count": 8}}}, "skip"),
    ("host-contract-service-not-running", "h100", {"expected": {"machine": {"services": ["gone"]}}}, "unknown"),
    ("host-contract-system-mismatch", "h100", {"expected": {"gpus": {"count": 8}}}, "skip"),
    ("host-fabric-manager-errors-logged", "h100", {"fabric_log": {"count": 1, "lines":
        ["[ERROR] detected NVSwitch non-fatal error 10003"], "present": True}}, "fail warning"),
    ("host-fabric-manager-errors-logged", "h100", {"fabric_log": {"count": 1, "lines":
        ["[ERROR] detected NVSwitch fatal error 10003"], "present": True}}, "fail error"),
    ("host-fabric-manager-not-enabled", "h100", {"services": {}}, "skip"),
    ("host-fabric-manager-not-running", "h100", {"fabric_daemons.running": [], "services": {}}, "fail error"),
    ("host-fabric-clique-mismatch", "desk", {}, "skip"),
    ("host-fabric-clique-mismatch", "h100", {f"nvml.gpus.{n}.fabric.state": "in progress" for n in range(7)}, "skip"),
    ("host-fabric-clique-mismatch", "h100", {**{f"nvml.gpus.{n}.fabric.state": "in progress" for n in range(6)},
        "nvml.gpus.7.fabric.clique": 1}, "fail warning"),
    ("host-file-system-errors", "h100", {"mounts.0.frozen": True, "container": None}, "unknown"),
    ("host-file-system-errors", "h100", {"mounts.0.frozen": True}, "fail error"),
    ("host-gdrcopy-unusable", "h100", env(NCCL_GDRCOPY_ENABLE="0"), "skip"),
    ("host-gdrcopy-unusable", "h100", env(NCCL_GDRCOPY_ENABLE=""), "skip"),
    ("host-gdrcopy-unusable", "h100", env(NCCL_GDRCOPY_ENABLE="1"), "fail warning"),
    ("host-gdrcopy-unusable", "h100", env(UCX_TLS="rc,gdr_copy"), "fail warning"),
    ("host-gdrcopy-unusable", "h100", env(UCX_TLS="^gdr_copy"), "skip"),
    ("host-gpudirect-storage-not-ready", "h100", {"cufile.present": True, "cufile.compatible": False, "environment":
        {"CUFILE_FORCE_COMPAT_MODE": "TRUE"}}, "skip"),
    ("host-gpudirect-storage-not-ready", "h100", {"cufile.present": True, "cufile.compatible": False}, "fail warning"),
    ("host-gpudirect-storage-not-ready", "h100", {"cufile.present": True, "cufile.compatible": False,
        "rdma_modules": None}, "unknown"),
    ("host-glibc-too-old-for-torch", "h100", {"glibc": "2.28"}, "pass"),
    ("host-glibc-too-old-for-torch", "h100", {"glibc": "2.27"}, "fail warning"),
    ("host-gpu-counts-differ", "h100", {"device_nodes": None}, "unknown"),
    ("host-gpu-without-nic-on-pcie-switch", "h100", {"processors.hypervisor": True}, "skip"),
    ("host-gpu-pcie-payload-too-small", "h100", {"pci.15.payload.payload": 128, "pci.15.payload.most_payload": 256},
        "fail note"),
    ("host-gpu-pcie-payload-too-small", "h100", {"pci.15.payload.payload": 128, "pci.13.payload": LACKING}, "pass"),
    ("host-gpu-pcie-payload-too-small", "h100", {"pci.13.payload": None}, "unknown"),
    ("host-gpu-hardware-slowdown-accumulated", "h100", {"nvml.gpus.*.throttled_us": {"missing": "not supported",
        "value": None, "via":
        ""}}, "skip"),
    ("host-gpu-slots-differ", "h100", {"processors.hypervisor": True}, "skip"),
    ("host-gpu-slot-too-narrow", "h100", {"processors.hypervisor": True}, "skip"),
    ("host-gpu-slot-too-narrow", "h100", {"pci.13.link": None}, "unknown"),
    ("host-gpudirect-rdma-unavailable", "h100", {"infiniband.*.driver": "efa"}, "skip"),
    ("host-gpudirect-rdma-unavailable", "h100", {"rdma_modules": [], "kernel": "linux"}, "unknown"),
    ("host-gpudirect-rdma-unavailable", "h100", {"rdma_modules": [], "kernel": "5.12.0"}, "pass"),
    ("host-gpudirect-rdma-unavailable", "h100", {"rdma_modules": [], "kernel": "5.11.0"}, "fail warning"),
    ("host-gpudirect-rdma-unavailable", "h100", {"rdma_modules": [], "module.flavor": "proprietary"}, "fail warning"),
    ("host-gpudirect-rdma-unavailable", "h100", {"rdma_modules": [], "module.flavor": ""}, "unknown"),
    ("host-gpudirect-rdma-unavailable", "h100", {"rdma_modules": [], "module.flavor": "proprietary", "switch_managers":
        [f"0000:{a}:00.0" for a in ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")]}, "skip"),
    ("host-gpudirect-rdma-unavailable", "h100", {"rdma_modules": [], "kernel": None}, "unknown"),
    ("host-gpudirect-rdma-unavailable", "h100", {"rdma_modules": [], "module": None}, "unknown"),
    ("host-gpu-models-mixed", "h100", {"nvml.gpus.0.name": "NVIDIA H100 PCIe"}, "fail warning"),
    ("host-gpu-not-responding", "h100", {"nvml.gpus": []}, "unknown"),
    ("host-gpu-not-bound-to-nvidia-driver", "h100", {"pci_gpus.0.driver": "pci-stub"}, "fail warning"),
    ("host-gpu-not-bound-to-nvidia-driver", "h100", {"pci_gpus.0.driver": ""}, "fail error"),
    ("host-gpu-hotter-than-others", "h100", {"nvml.gpus.*.temperature.now": 31, "nvml.gpus.0.temperature.now": 50},
        "pass"),
    ("host-gpu-hotter-than-others", "h100", {f"nvml.gpus.{n}.power.draw": 70000 * 2 ** n for n in range(8)}, "skip"),
    ("host-gpu-hotter-than-others", "h100", {"nvml.gpus.*.temperature.now": 31, "nvml.gpus.0.temperature.now": 60,
        "nvml.gpus.0.power.draw": 87500}, "fail warning"),
    ("host-gpu-hotter-than-others", "h100", {"nvml.gpus.*.temperature.now": 31, "nvml.gpus.0.temperature.now": 60,
        "nvml.gpus.0.power.draw": 100000}, "pass"),
    ("host-gpu-hotter-than-others", "h100", {"nvml.gpus.*.temperature.now": 31, "nvml.gpus.0.temperature.now": 51},
        "fail warning"),
    ("host-gpus-unbalanced-across-numa", "h100", {"processors.hypervisor": True}, "skip"),
    ("host-gpus-unbalanced-across-numa", "desk", {}, "skip"),
    ("host-gpus-unbalanced-across-numa", "h100", {"pci.15.numa": -1}, "skip"),
    ("host-gpus-unbalanced-across-numa", "h100", {"pci.15.numa": 1}, "fail note"),
    ("host-gpus-unbalanced-across-numa", "h100", {"pci.15.numa": None}, "unknown"),
    ("host-gpus-unbalanced-across-numa", "h100", {f"pci.{n}.kind": "nvswitch" for n in (15, 24, 30, 36)}, "pass"),
    ("host-gpus-unbalanced-across-numa", "h100", {f"pci.{n}.kind": "nvswitch" for n in (15, 24, 30, 36, 42)}, "skip"),
    ("host-gpus-unbalanced-across-numa", "h100", {"numa.1.processors": 0, "pci.15.numa": 1}, "skip"),
    ("host-gsp-firmware-missing", "h100", {"firmware.files": {}, "module.flavor": "proprietary", "nvml.gpus.*.gsp":
        "off"}, "skip"),
    ("host-gsp-firmware-missing", "h100", {"firmware.files": {}, "module.flavor": "open", "nvml.gpus.*.gsp": "off"},
        "fail error"),
    ("host-transparent-huge-pages-off", "h100", {"settings": {"transparent_hugepage": {"value": "sometimes", "via": "x",
        "missing": ""}}}, "unknown"),
    ("host-huge-pages-reserved-unused", "h100", {"memory.total": 1000, "memory.huge_free": 250}, "pass"),
    ("host-huge-pages-reserved-unused", "h100", {"memory.total": 1000, "memory.huge_free": 251}, "fail warning"),
    *[("host-ibgda-peer-mapping-off", "h100", env(NVSHMEM_IB_ENABLE_IBGDA=w), "fail warning") for w in ("1", "y", "yes",
        "true",
        "on", "ON")],
    ("host-ibgda-peer-mapping-off", "h100", env(NVSHMEM_IB_ENABLE_IBGDA="0"), "skip"),
    ("host-imex-driver-mismatch", "h100", {"services.nvidia-imex": {"load": "loaded", "active": "inactive", "enabled":
        "disabled", "restarts": 0}, "packages": {"nvidia-imex": "570.1-1"}}, "skip"),
    ("host-imex-driver-mismatch", "h100", {"services.nvidia-imex": {"load": "loaded", "active": "inactive", "enabled":
        "enabled", "restarts": 0}, "packages": {"nvidia-imex": "570.1-1"}}, "fail error"),
    ("host-imex-driver-mismatch", "h100", {"services.nvidia-imex": {"load": "loaded", "active": "failed", "enabled":
        "disabled", "restarts": 0}, "packages": {"nvidia-imex": "570.1-1"}}, "fail error"),
    *[("host-infiniband-link-errors" if n in ("symbol_error", "link_error_recovery", "port_rcv_errors") else
        "host-rdma-transport-errors", "h100", {"infiniband.0.counting_s": 36000.0,
        f"infiniband.0.ports.0.counters.{n}": v}, w) for n, most in (("symbol_error", 120), ("link_error_recovery",
        300), ("port_rcv_errors", 36000), ("local_ack_timeout_err", 3600), ("port_xmit_discards", 360000),
        ("roce_slow_restart", 36000)) if n != "roce_slow_restart" for v, w in ((most * 10, "pass"), (most * 10 + 1,
        "fail warning"))],
    ("host-infiniband-link-errors", "h100", {"infiniband.0.counting_s": 1800.0,
        "infiniband.0.ports.0.counters.symbol_error": 120}, "pass"),
    ("host-infiniband-link-errors", "h100", {"infiniband.*.ports.0.counters": {"missing": "not supported", "value":
        None, "via": ""}}, "skip"),
    ("host-infiniband-link-errors", "h100", {"infiniband.*.ports.0.counters": {}}, "skip"),
    ("host-infiniband-link-errors", "h100", {"infiniband.0.ports": None}, "unknown"),
    ("host-infiniband-port-down", "h100", {**{f"infiniband.{n}.ports.0.state": "DOWN" for n in range(3)},
        **{f"infiniband.{n}.ports.0.physical": "Polling" for n in range(3)}}, "fail error"),
    ("host-infiniband-port-down", "h100", {**{f"infiniband.{n}.ports.0.state": "DOWN" for n in range(4)},
        **{f"infiniband.{n}.ports.0.physical": "Polling" for n in range(4)}}, "fail warning"),
    ("host-infiniband-port-down", "h100", {"infiniband.*.board": None}, "unknown"),
    ("host-infiniband-port-down", "h100", {"infiniband.0.ports": None}, "unknown"),
    ("host-infiniband-port-down", "h100", {"infiniband.0.ports.0.physical": None}, "pass"),
    ("host-infiniband-port-down", "h100", {"infiniband.0.ports.0.state": "DOWN", "infiniband.0.ports.0.physical":
        None}, "unknown"),
    ("host-inodes-low", "h100", {"disks.0.inodes": None}, "unknown"),
    ("host-iommu-not-in-passthrough", "h100", {"pci.*.above": []}, "skip"),
    ("host-iommu-not-in-passthrough", "h100", {"pci.*.vendor": "0x1d0f"}, "skip"),
    ("host-kernel-log-incomplete", "h100", {"log_start": 1.0}, "pass"),
    ("host-kernel-log-incomplete", "h100", {"log_start": 1.001}, "fail note"),
    ("host-library-path-has-foreign-libcuda", "h100", {"cuda_on_path": [{"path": "/opt/stubs", "files": {"libcuda.so":
        "/opt/stubs/libcuda.so"}}]}, "fail warning"),
    ("host-library-path-has-foreign-libcuda", "h100", {"cuda_on_path": [{"path": "/opt/stubs", "files": {"libcuda.so.1":
        "/opt/elsewhere/libcuda.so"}}]}, "fail error"),
    ("host-library-path-has-foreign-libcuda", "h100", {"cuda_on_path": [{"path": "/opt/cuda", "files": {"libcuda.so.1":
        "/opt/cuda/lib/stubs/libcuda.so"}}]}, "fail error"),
    ("host-library-path-has-foreign-libcuda", "h100", {"cuda_on_path": [{"path": "/opt/compat",
        "files": {"libcuda.so.1":
        "/opt/compat/libcuda.so.590.10"}}]}, "fail warning"),
    ("host-library-path-has-foreign-libcuda", "h100", {"cuda_on_path": [{"path": "/opt/compat",
        "files": {"libcuda.so.1":
        "/opt/compat/libcuda.so.570.10"}}]}, "fail error"),
    ("host-resource-limits-too-low", "h100", {"limits": {}}, "unknown"),
    ("host-resource-limits-too-low", "h100", {"limits.nofile.soft": 4096}, "pass"),
    ("host-resource-limits-too-low", "h100", {"limits.nofile.soft": 4095}, "fail note"),
    ("host-resource-limits-too-low", "h100", {"limits.nofile.soft": 0, "limits.nofile.hard": -1}, "fail note"),
    ("host-resource-limits-too-low", "h100", {"limits.nofile.soft": 1024, "limits.nofile.hard": 4096}, "fail note"),
    ("host-resource-limits-too-low", "h100", {"limits.nofile.soft": 1024, "limits.nofile.hard": 4095}, "fail warning"),
    ("host-resource-limits-too-low", "h100", {"limits.nofile.soft": 1024, "limits.nofile.hard": 0}, "fail warning"),
    ("host-resource-limits-too-low", "h100", {"limits.stack.soft": 8388607}, "fail warning"),
    ("host-resource-limits-too-low", "h100", {"limits.stack.soft": 0}, "fail warning"),
    ("host-resource-limits-too-low", "h100", {"limits.memlock.soft": 34359738367}, "fail warning"),
    ("host-resource-limits-too-low", "h100", {"limits.memlock.soft": 34359738368}, "pass"),
    ("host-resource-limits-too-low", "h100", {"limits.memlock.soft": 0}, "fail warning"),
    ("host-localhost-not-loopback", "h100", {"names.localhost": []}, "fail error"),
    ("host-available-memory-low", "h100", {"memory.available": 536870912}, "fail warning"),
    ("host-available-memory-low", "h100", {"memory.available": 536870911}, "fail error"),
    ("host-available-memory-low", "h100", {"memory.available": 4294967296}, "pass"),
    ("host-available-memory-low", "h100", {"memory.available": 4294967295}, "fail warning"),
    ("host-available-memory-low", "h100", {"control_group.memory": 0, "control_group.memory_used": 0}, "fail error"),
    ("host-available-memory-low", "h100", {"control_group.memory": 8589934592, "control_group.memory_used": 4294967296},
        "pass"),
    ("host-available-memory-low", "h100", {"control_group.memory": 8589934592, "control_group.memory_used": 4294967297},
        "fail warning"),
    ("host-system-memory-errors", "h100", {"memory_errors.0.corrected": 10}, "fail warning"),
    ("host-system-memory-errors", "h100", {"memory_errors.0.corrected": 9}, "pass"),
    ("host-memory-smaller-than-gpu-memory", "h100", {"control_group.memory": 684166479872}, "pass"),
    ("host-memory-smaller-than-gpu-memory", "h100", {"control_group.memory": 684166479871}, "fail note"),
    ("host-memory-smaller-than-gpu-memory", "h100", {"control_group.memory": 0}, "fail note"),
    ("host-memory-map-limit-too-low", "h100", {"settings": {"vm.max_map_count": {"value": "65530", "via": "x",
        "missing":
        ""}}}, "pass"),
    ("host-memory-map-limit-too-low", "h100", {"settings": {"vm.max_map_count": {"value": "65529", "via": "x",
        "missing":
        ""}}}, "fail warning"),
    ("host-memory-map-limit-too-low", "h100", {"settings": {}}, "unknown"),
    ("host-numa-memory-unequal", "h100", {"numa.1.memory": 973132315091}, "pass"),
    ("host-numa-memory-unequal", "h100", {"numa.1.memory": 973000000000}, "fail warning"),
    ("host-numa-memory-unequal", "h100", {"numa": {"missing": "not supported", "value": None, "via": ""}}, "skip"),
    ("host-numa-memory-unequal", "h100", {"processors.hypervisor": True, "numa.1.memory": 1}, "skip"),
    ("host-numa-memory-unequal", "h100", {"numa.1.processors": 0, "numa.1.memory": 1}, "skip"),
    ("host-memory-fragmented", "h100", {"numa": {"missing": "not supported", "value": None, "via": ""}}, "skip"),
    ("host-memory-fragmented", "h100", {"numa.*.free": 1073741824, "numa.*.free_large": 10737418}, "fail note"),
    ("host-memory-fragmented", "h100", {"numa.*.free": 1073741824, "numa.*.free_large": 10737419}, "pass"),
    ("host-memory-fragmented", "h100", {"numa.*.free": 1073741823, "numa.*.free_large": 0}, "skip"),
    ("host-mig-change-pending", "h100", {"nvml.gpus.*.mig": {"missing": "not supported", "value": None, "via": ""}},
        "skip"),
    ("host-mps-pipe-directory-invalid", "h100", {"environment": {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"}, "named_paths":
        [{"holds": ["control"], "kind": "file", "path": "/tmp/mps", "variable": "CUDA_MPS_PIPE_DIRECTORY", "writable":
        True}]}, "fail warning"),
    ("host-mps-pipe-directory-invalid", "h100", {"environment": {"CUDA_MPS_PIPE_DIRECTORY": "mps"}}, "fail warning"),
    ("host-mps-pipe-directory-invalid", "h100", {"environment": None}, "unknown"),
    ("host-hostname-without-usable-address", "h100", {"names.addresses": []}, "fail warning"),
    ("host-hostname-without-usable-address", "h100", {"names.error": "name or service not known"}, "fail warning"),
    *[("host-nccl-debug-left-on", "h100", {"environment": {"NCCL_DEBUG": v}}, w) for v, w in (("info", "fail note"),
        ("TRACE", "fail note"), ("ABORT", "fail note"), ("WARN", "pass"))],
    ("host-nccl-gid-index-invalid", "h100", env(NCCL_IB_GID_INDEX="-1"), "skip"),
    ("host-nccl-gid-index-invalid", "h100", {**env(NCCL_IB_GID_INDEX="-1"), "infiniband.0.ports.0.layer": "Ethernet"},
        "skip"),
    ("host-nccl-gid-index-invalid", "h100", {**env(NCCL_IB_GID_INDEX="3"), "infiniband.0.ports.0.layer": "Ethernet",
        "infiniband.0.ports.0.gids": []}, "fail error"),
    ("host-nccl-gid-index-invalid", "h100", {**env(NCCL_IB_GID_INDEX="3"), "infiniband.0.ports.0.layer": None},
        "unknown"),
    ("host-nccl-hca-invalid", "h100", env(NCCL_IB_HCA="mlx4"), "fail error"),
    ("host-nccl-hca-invalid", "h100", {**env(NCCL_IB_HCA="mlx4"), "infiniband": []}, "fail warning"),
    ("host-nccl-hca-invalid", "h100", env(NCCL_IB_HCA="mlx5_0,mlx5_9"), "fail warning"),
    ("host-nccl-hca-invalid", "h100", {**env(NCCL_IB_HCA="mlx5_0"), "infiniband.0.ports.0.state": "DOWN"},
        "fail warning"),
    ("host-nccl-hca-invalid", "h100", {**env(NCCL_IB_HCA="mlx5_0"), "infiniband.0.ports.0.state": None}, "unknown"),
    ("host-nccl-hca-invalid", "h100", {**env(NCCL_IB_HCA="mlx5_0"), "infiniband.0.ports": None}, "unknown"),
    *[("host-nccl-transport-disabled", "h100", {"environment": {n: v}}, f"fail {s}") for n, v,
        s in (("NCCL_P2P_DISABLE",
        "1", "warning"), ("NCCL_P2P_LEVEL", "LOC", "warning"), ("NCCL_P2P_LEVEL", "0", "warning"),
        ("NCCL_SHM_DISABLE", "1", "warning"), ("NCCL_NVLS_ENABLE", "0", "note"), ("NCCL_IB_DISABLE", "1", "warning"),
        ("NCCL_NET", "Socket", "warning"), ("NCCL_NET_GDR_LEVEL", "LOC", "warning"), ("NCCL_IB_CUDA_SUPPORT", "0",
        "warning"))],
    ("host-nccl-transport-disabled", "h100", {"environment": {"NCCL_P2P_LEVEL": "SYS"}}, "pass"),
    ("host-nccl-transport-disabled", "h100", {"environment": {"NCCL_P2P_DISABLE": "1"}, "nvml.gpus": []}, "pass"),
    ("host-nic-pcie-link-degraded", "h100", {"pci.12.link": None}, "unknown"),
    ("host-nic-pcie-link-degraded", "h100", {"pci.17.link": {"most_speed": 7.9, "most_width": 8, "speed": 2.5,
        "width": 1}},
        "pass"),
    ("host-nic-pcie-link-degraded", "h100", {"pci.17.link": {"most_speed": 8.0, "most_width": 8, "speed": 2.5,
        "width": 1}},
        "fail warning"),
    ("host-nic-pcie-link-degraded", "h100", {"pci.14.link": None}, "unknown"),
    ("host-gpu-numa-node-without-nic", "h100", {"processors.hypervisor": True}, "skip"),
    ("host-gpu-numa-node-without-nic", "desk", {}, "skip"),
    ("host-gpu-numa-node-without-nic", "h100", {f"pci.{n}.kind": "nvswitch" for n in (23, 29, 35, 41, 47, 53, 59)},
        "skip"),
    ("host-gpu-numa-node-without-nic", "h100", {f"pci.{n}.kind": "nvswitch" for n in (23, 29, 35, 47, 53, 59)}, "pass"),
    ("host-gpu-numa-node-without-nic", "h100", {f"pci.{n}.kind": "nvswitch" for n in (29, 35, 41, 47, 53, 59)},
        "fail warning"),
    ("host-gpu-numa-node-without-nic", "h100", {"numa.1.processors": 0, **{f"pci.{n}.kind": "nvswitch" for n in (41, 47,
        53, 59)}},
        "skip"),
    ("host-nic-max-read-request-too-small", "h100", {"processors.hypervisor": True}, "skip"),
    ("host-nic-max-read-request-too-small", "h100", {"pci.*.kind": "bridge"}, "skip"),
    ("host-nic-max-read-request-too-small", "h100", {"pci.14.payload.read_request": 512}, "pass"),
    ("host-nic-max-read-request-too-small", "h100", {"pci.14.payload.read_request": 256}, "fail warning"),
    ("host-numa-balancing-on", "h100", {"numa": None, "settings": {"kernel.numa_balancing": {"value": "1", "via":
        "x", "missing": ""}}}, "unknown"),
    ("host-numa-balancing-on", "desk", {"settings": {"kernel.numa_balancing": {"value": "1", "via": "x", "missing":
        ""}}}, "skip"),
    ("host-obsolete-nvidia-docker", "h100", {"packages": LACKING}, "skip"),
    ("host-nvlinks-differ-between-gpus", "h100", {"nvml.gpus.*.links": []}, "skip"),
    ("host-nvswitch-management-nic-not-ready", "h100", {"switch_managers": ["0000:18:00.0"], "infiniband": None},
        "unknown"),
    ("host-nvswitch-management-nic-not-ready", "h100", {"switch_managers": ["0000:18:00.0"],
        "infiniband.0.ports": None},
        "unknown"),
    ("host-nvswitch-missing", "h100", {"fabric_cards": []}, "skip"),
    ("host-nvswitch-missing", "h100", {"nvml.gpus.0.name": None}, "unknown"),
    ("host-omp-threads-exceed-cpus", "h100", {"environment": {"OMP_NUM_THREADS": "1"}}, "pass"),
    ("host-omp-threads-exceed-cpus", "h100", {"environment": {"OMP_NUM_THREADS": "0"}}, "pass"),
    ("host-variable-invalid", "h100", {"environment": {"OMP_NUM_THREADS": "0"}}, "fail warning"),
    ("host-omp-threads-exceed-cpus", "h100", {"environment": {"OMP_NUM_THREADS": "1"}, "control_group.processors": 0.5},
        "pass"),
    ("host-omp-threads-exceed-cpus", "h100", {"environment": {"OMP_NUM_THREADS": "2"}, "control_group.processors": 1.5},
        "fail warning"),
    ("host-omp-threads-exceed-cpus", "h100", {"environment": {"OMP_NUM_THREADS": "8"}, "control_group.processors": 8},
        "pass"),
    ("host-pci-many-corrected-errors", "h100", {"pci.15.aer.correctable": 1000}, "pass"),
    ("host-pci-many-corrected-errors", "h100", {"pci.15.aer.correctable": 1001}, "fail warning"),
    ("host-pci-device-not-responding", "h100", {"pci.*.power": "suspended", "pci.*.answers": False}, "skip"),
    ("host-pci-device-not-responding", "h100", {"pci.15.answers": False}, "fail error"),
    ("host-pci-uncorrected-errors", "h100", {"pci.15.aer.nonfatal": 1}, "fail warning"),
    ("host-gpu-peer-access-unavailable", "h100", {"nvml.gpus.*.p2p": {}}, "skip"),
    ("host-gpu-peer-access-unavailable", "desk", {}, "skip"),
    ("host-persistence-mode-off", "h100", {"nvml.gpus.*.persistence": {"missing": "not supported", "value": None, "via":
        ""}}, "skip"),
    ("host-podman-injects-gpus-twice", "h100", {"podman.installed": True, "podman.error": "line 3"}, "unknown"),
    ("host-podman-without-gpu-support", "h100", {"podman.installed": True, "podman.error": "line 3"}, "unknown"),
    ("host-podman-without-gpu-support", "h100", {"podman.installed": True, "podman.version": {"value": "none", "via":
        "podman", "missing": ""}, "podman.cdi_dirs": ["/etc/cdi"]}, "unknown"),
    ("host-podman-without-gpu-support", "h100", {"podman.installed": True, "podman.version": {"value": "4.1.0", "via":
        "podman", "missing": ""}, "podman.cdi_dirs": ["/var/run/cdi"]}, "pass"),
    ("host-podman-without-gpu-support", "h100", {"podman.installed": True, "podman.version": {"value": "4.0.9", "via":
        "podman", "missing": ""}, "podman.cdi_dirs": ["/var/run/cdi"]}, "fail warning"),
    ("host-podman-without-gpu-support", "h100", {"podman.installed": True, "podman.version": {"value": "4.1.0", "via":
        "podman", "missing": ""}, "podman.cdi_dirs": ["/etc/cdi"], "cdi": None}, "unknown"),
    ("host-podman-without-gpu-support", "h100", {"podman.installed": True, "podman.version": {"value": "4.1.0", "via":
        "podman", "missing": ""}, "podman.cdi_dirs": ["/opt/cdi"]}, "unknown"),
    ("host-podman-without-gpu-support", "h100", {"podman.installed": True, "podman.version": {"value": "4.0.9", "via":
        "podman", "missing": ""}, "podman.cdi_dirs": ["/opt/cdi"]}, "fail warning"),
    ("host-process-limit-too-low", "h100", {"limits.nproc.soft": 4096}, "pass"),
    ("host-process-limit-too-low", "h100", {"limits.nproc.soft": 4095}, "fail warning"),
    ("host-process-limit-too-low", "h100", {"limits.nproc.soft": 0}, "fail warning"),
    ("host-process-limit-too-low", "h100", {"control_group.tasks": 2048}, "pass"),
    ("host-process-limit-too-low", "h100", {"control_group.tasks": 2047}, "fail warning"),
    ("host-process-limit-too-low", "h100", {"control_group.tasks": 10000, "control_group.tasks_used": 7999}, "pass"),
    ("host-process-limit-too-low", "h100", {"control_group.tasks": 10000, "control_group.tasks_used": 8000},
        "fail warning"),
    ("host-process-limit-too-low", "h100", {"control_group.tasks": 10000, "control_group.tasks_used": 9500},
        "fail error"),
    ("host-process-limit-too-low", "h100", {"control_group.tasks": 0}, "fail error"),
    ("host-process-limit-too-low", "h100", {"limits": {}}, "unknown"),
    ("host-cpu-profiling-blocked", "h100", {"settings": {}, "privileges": []}, "unknown"),
    ("host-cpu-profiling-blocked", "h100", {"settings": {"kernel.perf_event_paranoid": {"value": "few", "via": "x",
        "missing": ""}}, "privileges": []}, "unknown"),
    ("host-xid-13-repeats-on-one-sm", "h100", {"log": [fault_at(1, 0), fault_at(2, 0), fault_at(3, 0)]},
        "fail warning"),
    ("host-xid-13-repeats-on-one-sm", "h100", {"log": [fault_at(1, 0), fault_at(2, 0)]}, "pass"),
    ("host-xid-13-repeats-on-one-sm", "h100", {"log": [fault_at(1, 0), fault_at(2, 0), fault_at(2, 0)]}, "pass"),
    ("host-xid-13-repeats-on-one-sm", "h100", {"log": [fault_at(1, 0), fault_at(2, 0), fault_at(3, 0), fault_at(3,
        1)]}, "pass"),
    ("host-rdma-firmware-differs", "h100", {f"infiniband.{n}.board": f"B{n}" for n in range(8)}, "skip"),
    ("host-rdma-firmware-differs", "h100", {"infiniband.0.firmware": "28.1"}, "fail warning"),
    ("host-rdma-firmware-differs", "h100", {"infiniband.0.firmware": None}, "unknown"),
    ("host-rdma-link-layers-differ", "h100", {f"infiniband.{n}.board": f"B{n // 2}" for n in range(8)}, "skip"),
    ("host-rdma-link-layers-differ", "h100", {f"infiniband.{n}.ports.0.layer": "Ethernet" for n in range(4)}, "pass"),
    ("host-rdma-link-layers-differ", "h100", {f"infiniband.{n}.ports.0.layer": "Ethernet" for n in range(3)},
        "fail warning"),
    ("host-rdma-link-layers-differ", "h100", {**{f"infiniband.{n}.board": "B" for n in range(3)},
        "infiniband.0.ports.0.layer": "Ethernet"}, "fail warning"),
    ("host-rdma-link-layers-differ", "h100", {**{f"infiniband.{n}.board": "B" for n in range(2)},
        "infiniband.0.ports.0.layer": "Ethernet"}, "pass"),
    ("host-rdma-link-flapping", "h100", {"infiniband.*.ports.0.counters": {}}, "skip"),
    ("host-rdma-link-flapping", "h100", {"infiniband.0.counting_s": 259200.0,
        "infiniband.0.ports.0.counters.link_downed": 3}, "pass"),
    ("host-rdma-link-flapping", "h100", {"infiniband.0.counting_s": 259199.0,
        "infiniband.0.ports.0.counters.link_downed": 3}, "fail warning"),
    ("host-rdma-link-flapping", "h100", {"infiniband.0.counting_s": 60.0, "infiniband.0.ports.0.counters.link_downed":
        2}, "pass"),
    ("host-rdma-mtu-differs", "h100", {"network.*.state": "down"}, "skip"),
    ("host-rdma-mtu-differs", "h100", {**{f"infiniband.{n}.nets": [] for n in range(2, 8)}, "network.3.mtu": 9000},
        "fail warning"),
    ("host-rdma-rates-differ", "h100", {"infiniband.*.ports.0.state": "INIT"}, "skip"),
    ("host-rdma-rates-differ", "h100", {"infiniband.0.ports.0.layer": None}, "unknown"),
    ("host-rdma-rates-differ", "h100", {"infiniband.0.ports.0.state": None}, "unknown"),
    ("host-rdma-rates-differ", "h100", {"infiniband.0.board": None}, "unknown"),
    *[("host-rdma-transport-errors", "h100", {"infiniband.0.counting_s": 36000.0,
        "infiniband.0.ports.0.counters.roce_slow_restart": v}, w) for v, w in ((360000, "pass"), (360001,
        "fail warning"))],
    ("host-roce-port-down", "h100", {}, "skip"),
    ("host-roce-port-down", "h100", {"infiniband.0.ports.0.layer": "Ethernet"}, "skip"),
    ("host-roce-v2-gid-missing", "h100", {"infiniband.0.ports.0.layer": "Ethernet"}, "unknown"),
    ("host-roce-v2-gid-missing", "h100", {}, "skip"),
    ("host-row-remap-failed-or-pending", "h100", {"nvml.gpus.0.remap.failed": True}, "fail error"),
    ("host-row-remap-failed-or-pending", "h100", {"nvml.gpus.0.remap.uncorrectable": 511}, "pass"),
    ("host-row-remap-failed-or-pending", "h100", {"nvml.gpus.0.remap.uncorrectable": 512}, "fail error"),
    ("host-row-remap-failed-or-pending", "h100", {"nvml.gpus.0.remap.pending": True}, "fail warning"),
    ("host-row-remap-failed-or-pending", "h100", {"nvml.gpus": []}, "unknown"),
    ("host-scheduler-agent-not-running", "h100", {"services.slurmd": {"load": "loaded", "active": "reloading",
        "enabled":
        "enabled", "restarts": 0}}, "pass"),
    ("host-scheduler-agent-not-running", "h100", {"services.slurmd": {"load": "loaded", "active": "inactive",
        "enabled": "enabled",
        "restarts": 0}}, "fail error"),
    ("host-driver-unsigned-under-secure-boot", "h100", {"module_signing": LACKING}, "skip"),
    ("host-selinux-blocks-gpu-devices", "h100", {"selinux.state": "permissive", "docker.security.+": "name=selinux",
        "selinux.booleans": {"container_use_devices": False}}, "skip"),
    ("host-selinux-blocks-gpu-devices", "h100", {"selinux.state": "enforcing", "docker.security.+": "name=selinux",
        "selinux.booleans": {}}, "skip"),
    ("host-shm-too-small", "h100", {"shm": 8589934592}, "pass"),
    ("host-shm-too-small", "h100", {"shm": 8589934591}, "fail warning"),
    ("host-shm-too-small", "h100", {"shm": 536870912}, "fail warning"),
    ("host-shm-too-small", "h100", {"shm": 536870911}, "fail error"),
    ("host-storage-errors-logged", "h100", {"log": None}, "unknown"),
    ("host-swap-heavily-used", "h100", {"memory.total": 1000, "memory.swap_used": 100}, "pass"),
    ("host-swap-heavily-used", "h100", {"memory.total": 1000, "memory.swap_used": 101}, "fail note"),
    ("host-threads-near-limit", "h100", {"tasks.most_threads": 10000, "tasks.threads": 8000}, "fail warning"),
    ("host-threads-near-limit", "h100", {"tasks.most_threads": 10000, "tasks.threads": 7999}, "pass"),
    ("host-toolkit-denies-unprivileged-gpus", "h100", {"toolkit.programs": {}}, "skip"),
    ("host-toolkit-missing", "h100", {"docker.ended": "no socket", "docker.installed": True, "toolkit.programs":
        {}}, "fail warning"),
    ("host-toolkit-mode-unsuitable", "h100", {"toolkit.programs": {}}, "skip"),
    ("host-toolkit-packages-mixed-versions", "h100", {"packages": {"nvidia-container-toolkit": "1"}}, "skip"),
    ("host-toolkit-packages-mixed-versions", "h100", {"packages": {"nvidia-container-toolkit": "1",
        "libnvidia-container1":
        "2"}}, "fail warning"),
    ("host-ucx-device-missing", "h100", env(UCX_NET_DEVICES="all"), "pass"),
    ("host-ucx-device-missing", "h100", env(UCX_NET_DEVICES="^mlx9_0:1"), "pass"),
    ("host-ucx-device-missing", "h100", env(UCX_NET_DEVICES="mlx9_0:1"), "fail error"),
    ("host-ucx-device-missing", "h100", env(UCX_NET_DEVICES="mlx5_0:1,mlx9_0:1"), "fail warning"),
    ("host-vgpu-unlicensed", "h100", {"nvml.gpus.0.license": "unlicensed"}, "fail error"),
    ("host-wsl-driver-not-from-windows", "bare", {"kernel": "6.6.87-microsoft-standard-WSL2"}, "skip"),
    ("host-wsl-driver-not-from-windows", "bare", {}, "skip"),
    *[("host-other-xid", "bare", {name: value}, "unknown") for name, value in (("nvml.ended", "hung"), ("nvml.ended",
        "killed"), ("device_nodes", None), ("pci_gpus", None), ("nvml", None))],
    *[("launch-variable-invalid", "h100", job_env(PYTORCH_CUDA_ALLOC_CONF=v), w) for v, w in
        (("expandable_segments:True,", "pass"), ("expandable_segments", "fail error"), ("new_key:1", "fail error"),
        ("expandable_segments:1", "fail error"), ("backend:cuda", "fail error"), ("max_split_size_mb:19",
        "fail error"), ("max_split_size_mb:21", "pass"), ("garbage_collection_threshold:1.0", "fail error"),
        ("garbage_collection_threshold:0.9", "pass"))],
    ("launch-arch-list-misses-gpu", "h100", {"host.nvml.gpus.0.sm": None}, "unknown"),
    ("launch-arch-list-misses-gpu", "h100", job_env(TORCH_CUDA_ARCH_LIST="Hopper"), "unknown"),
    ("launch-no-space-for-checkpoint", "h100", {"job.checkpoint": "/elsewhere"}, "skip"),
    ("launch-no-space-for-checkpoint", "h100", {"job.mounts.1.kind": "volume"}, "skip"),
    ("launch-no-space-for-checkpoint", "h100", {"job.mounts.1.free": 300647710720}, "pass"),
    ("launch-no-space-for-checkpoint", "h100", {"job.mounts.1.free": 300647710719}, "fail warning"),
    ("launch-no-space-for-checkpoint", "h100", {"job.mounts.1.free": 150323855360}, "fail warning"),
    ("launch-no-space-for-checkpoint", "h100", {"job.mounts.1.free": 150323855359}, "fail error"),
    ("launch-arch-not-covered", "h100", {**NO_TORCH, "image.extensions": []}, "skip"),
    ("launch-command-not-found", "h100", {"job.command": []}, "skip"),
    ("launch-compat-library-unused", "h100", {}, "skip"),
    ("launch-compat-library-unused", "h100", {"host.nvml.cuda": "12.4", "compat": []}, "skip"),
    ("launch-cuda-visible-devices-invalid", "h100", job_env(CUDA_VISIBLE_DEVICES="0,GPU-01111111"), "fail error"),
    ("launch-cuda-visible-devices-invalid", "h100", job_env(CUDA_VISIBLE_DEVICES="MIG-1,MIG-2"), "fail error"),
    ("launch-cuda-visible-devices-invalid", "h100", job_env(CUDA_VISIBLE_DEVICES="MIG-1"), "unknown"),
    ("launch-cuda-visible-devices-invalid", "h100", job_env(CUDA_VISIBLE_DEVICES="8"), "fail error"),
    ("launch-cuda-visible-devices-invalid", "h100", job_env(CUDA_VISIBLE_DEVICES="7"), "fail warning"),
    ("launch-cuda-visible-devices-invalid", "h100", job_env(CUDA_VISIBLE_DEVICES="0,0"), "fail error"),
    ("launch-cuda-visible-devices-invalid", "h100", job_env(CUDA_VISIBLE_DEVICES="-1"), "fail error"),
    ("launch-cuda-visible-devices-invalid", "h100", job_env(CUDA_VISIBLE_DEVICES="GPU-0"), "fail warning"),
    ("launch-cuda-visible-devices-invalid", "h100", {**job_env(CUDA_VISIBLE_DEVICES="GPU-0"),
        "host.nvml.gpus.0.uuid": None},
        "unknown"),
    ("launch-driver-capabilities-incomplete", "h100", {**job_env(NVIDIA_DRIVER_CAPABILITIES="compute"),
        "job.way": "hook"},
        "fail warning"),
    ("launch-driver-capabilities-incomplete", "h100", {**job_env(NVIDIA_DRIVER_CAPABILITIES="utility"),
        "job.way": "hook"},
        "fail error"),
    ("launch-driver-capabilities-incomplete", "h100", {**job_env(NVIDIA_DRIVER_CAPABILITIES="utility"),
        "job.way": "cdi"},
        "fail warning"),
    ("launch-driver-capabilities-incomplete", "h100",
        {**job_env(NVIDIA_DRIVER_CAPABILITIES="compute,utility,all-of-it"),
        "job.way": "hook"}, "fail error"),
    ("launch-driver-too-old-for-cuda", "h100", {"host.nvml.cuda": ""}, "unknown"),
    ("launch-driver-too-old-for-cuda", "h100", {**NO_TORCH, "job.environment": {"HOME": "/root"}}, "skip"),
    ("launch-driver-too-old-for-cuda", "h100", {**NO_TORCH, "job.environment": {"CUDA_VERSION": "13.0.2"}}, "pass"),
    ("launch-gpu-in-use", "h100", {"host.nvml.gpus.0.memory_used": 8552080998}, "pass"),
    ("launch-gpu-in-use", "h100", {"host.nvml.gpus.0.memory_used": 8552081000}, "fail warning"),
    ("launch-gpu-in-use", "h100", {"host.nvml.gpus.0.compute_mode": "prohibited"}, "fail error"),
    ("launch-gpu-in-use", "h100", {"host.nvml.gpus.0.processes": [{"pid": 7, "kind": "compute", "name": "python",
        "mine": False, "memory": 0}]}, "fail warning"),
    ("launch-gpu-not-in-lock", "h100", {"image.promise.gpus": []}, "skip"),
    ("launch-gpu-unhealthy", "h100", {"host.nvml.gpus.0.remap.failed": True}, "fail error"),
    ("launch-gpu-unhealthy", "h100", {"host.nvml.gpus.0.remap.pending": True}, "fail warning"),
    *[(c, "h100", {"job.gpus": ["GPU-none"]}, "skip") for c in ("launch-gpu-unhealthy", "launch-gpu-in-use",
        "launch-arch-list-misses-gpu")],
    ("launch-home-not-writable", "h100", job_env(HOME="/data/home"), "fail warning"),
    ("launch-memlock-too-low-for-rdma", "h100", {"host.infiniband": []}, "skip"),
    ("launch-memlock-too-low-for-rdma", "h100", {"job.capabilities": [], "job.limits.memlock": {"soft": 67108863,
        "hard":
        67108863}}, "fail error"),
    ("launch-memlock-too-low-for-rdma", "h100", {"job.capabilities": [], "job.limits.memlock": {"soft": 67108864,
        "hard":
        67108864}}, "fail warning"),
    ("launch-memlock-too-low-for-rdma", "h100", {"job.capabilities": [], "job.limits.memlock": {"soft": 34359738367,
        "hard":
        34359738367}}, "fail warning"),
    ("launch-memlock-too-low-for-rdma", "h100", {"job.capabilities": [], "job.limits.memlock": {"soft": 34359738368,
        "hard":
        34359738368}}, "pass"),
    ("launch-preload-library-missing", "h100", job_env(LD_PRELOAD="libjemalloc.so.2"), "unknown"),
    ("launch-preload-library-missing", "h100", job_env(LD_PRELOAD="/data/libmine.so"), "unknown"),
    ("launch-ptx-newer-than-driver", "h100", {"host.nvml.gpus.*.sm": None}, "unknown"),
    ("launch-master-addr-is-localhost", "h100", {"job.environment": {"HOME": "/root"}}, "skip"),
    ("launch-image-requirement-not-met", "h100", {"job.environment": {"HOME": "/root"}}, "skip"),
    ("launch-image-requirement-not-met", "h100", {"host.nvml.cuda": ""}, "unknown"),
    ("launch-image-requirement-not-met", "h100", {"job.way": "hook", **job_env(NVIDIA_REQUIRE_CUDA="cuda>=99.0")},
        "fail error"),
    ("launch-image-requirement-not-met", "h100", {"job.way": "cdi", **job_env(NVIDIA_REQUIRE_CUDA="cuda>=99.0")},
        "fail warning"),
    ("launch-shm-too-small", "h100", {"job.shm": 8589934592}, "pass"),
    ("launch-shm-too-small", "h100", {"job.shm": 8589934591}, "fail warning"),
    ("launch-shm-too-small", "h100", {"job.shm": 1073741824}, "fail warning"),
    ("launch-shm-too-small", "h100", {"job.shm": 1073741823}, "fail error"),
    ("launch-shm-too-small", "h100", {"job.workers": 0, "job.shm": 1073741824}, "pass"),
    ("launch-shm-too-small", "desk", {"job.shm": 536870912}, "pass"),
    ("launch-shm-too-small", "desk", {"job.shm": 536870911}, "fail error"),
    ("launch-shm-too-small", "desk", {"job.workers": 0}, "skip"),
    ("launch-shm-too-small", "desk", {"job.workers": None}, "skip"),
    ("launch-torch-without-cuda", "h100", NO_TORCH, "skip"),
]
# fmt: on


@pytest.mark.slow  # judges a machine on both sides of each limit
@gathered(EDGES)
def test_a_limit_and_a_doubt_lie_where_they_are_said_to_lie(
    check: str, machine: str, changes: dict[str, Any], ends: str
) -> None:
    made = machines.host if check.startswith("host-") else machines.launch
    result = run(ALL[check], made(machine, changes), FACTS)
    severities = sorted({finding.severity.name.lower() for finding in result.findings})
    assert f"{result.outcome.value} {', '.join(severities)}".strip() == ends, (result.reason, result.findings)


# Of these no page shows that they are skipped for the GPU that lacks, or for the driver, and for no other reason.
ASK_FOR_A_GPU = [
    "host-selinux-denied-gpu-device",
    "host-cdi-device-missing-in-docker",
    "host-cdi-device-defined-twice",
    "host-cdi-devices-differ-from-gpus",
    "host-cdi-disabled-in-docker",
    "host-cdi-spec-stale",
    "host-cdi-refresh-service-failed",
    "host-containerd-without-gpu-support",
    "host-crio-without-gpu-support",
    "host-enroot-gpu-hook-unusable",
    "host-gpu-library-segfault",
    "host-gpu-auxiliary-power-missing",
    "host-gpu-probably-locked",
    "host-gpu-not-bound-to-nvidia-driver",
    "host-gpu-initialization-failed",
    "host-gpu-lost-from-bus",
    "host-gsp-not-responding",
    "host-kubernetes-gpu-plugin-missing",
    "host-gpu-contained-memory-error",
    "host-gpu-uncontained-memory-error",
    "host-gpu-retirement-event",
    "host-mps-pipe-directory-invalid",
    "host-gpu-recovery-requested-in-log",
    "host-nvlink-errors-logged",
    "host-nvswitch-sxid-logged",
    "host-peermem-errors-logged",
    "host-podman-injects-gpus-twice",
    "host-podman-without-gpu-support",
    "host-program-faulted-on-gpu",
    "host-xid-13-repeats-on-one-sm",
    "host-selinux-blocks-gpu-devices",
    "host-toolkit-config-invalid",
    "host-toolkit-packages-mixed-versions",
    "host-vgpu-start-failed",
    "host-other-xid",
]
ASK_FOR_A_DRIVER = [
    "host-device-nodes-stale",
    "host-fabric-manager-errors-logged",
    "host-fabric-manager-not-enabled",
    "host-fabric-manager-driver-mismatch",
    "host-fabric-manager-not-running",
    "host-fabric-manager-restarting",
    "host-gdrcopy-unusable",
    "host-gpudirect-storage-not-ready",
    "host-gpudirect-rdma-unavailable",
    "host-ibgda-peer-mapping-off",
    "host-imex-channel-missing",
    "host-imex-driver-mismatch",
    "host-imex-down-or-without-nodes",
    "host-mig-device-files-missing",
    "host-nvlsm-not-running",
    "host-nvswitch-management-nic-not-ready",
    "host-nvswitch-without-driver",
    "host-nvswitch-missing",
    "host-gpu-profiling-blocked",
]
ASK_FOR_BARE_METAL = [
    "host-gpu-without-nic-on-pcie-switch",
    "host-gpu-slots-differ",
    "host-gpu-slot-too-narrow",
    "host-gpus-unbalanced-across-numa",
    "host-gpu-numa-node-without-nic",
    "host-nic-max-read-request-too-small",
]


@gathered(ASK_FOR_A_GPU)
def test_without_a_gpu_nothing_is_asked_about_it(check: str) -> None:
    without = machines.host("h100", {"pci_gpus": [], "device_nodes": [], "nvml.gpus": []})
    assert said(check, without).reason == "no NVIDIA GPU on this machine"


@pytest.mark.parametrize("check", ASK_FOR_A_DRIVER)
def test_without_a_driver_nothing_is_asked_about_it(check: str) -> None:
    nvml = {"ended": "error", "detail": "DRIVER_NOT_LOADED", "code": 9}
    without = machines.host(
        "h100", {"module": None, "modules": [], "nvml": {"value": nvml, "via": "nvmlInit_v2", "missing": ""}}
    )
    assert said(check, without).reason == "the NVIDIA driver is not loaded"


@pytest.mark.parametrize("check", ASK_FOR_BARE_METAL)
def test_of_a_guests_bus_nothing_is_asked(check: str) -> None:
    guest = machines.host("h100", {"processors.hypervisor": True})
    assert said(check, guest).reason == "in a virtual machine the bus is the hypervisor's"


def test_of_a_dark_machine_every_question_stays_open() -> None:
    """A doubt about the GPU, the driver or an engine is no reason to skip; only a contract that nobody gave is."""
    ended = {name: said(name, Host("dark")).outcome for name in CHECKS}
    settled = {name for name, outcome in ended.items() if outcome is not Outcome.UNKNOWN}
    assert settled == {name for name in CHECKS if name.startswith("host-contract-")}


Path = tuple[str, ...]


def kinds(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all observed values in a machine's plain data; ``*`` stands for the items of a list."""
    if isinstance(value, dict):
        observed = is_observation(value)
        if observed:
            yield path
        for key, inner in value.items():
            yield from kinds(inner, path if observed else (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from kinds(inner, (*path, "*"))


def taken(value: Any, path: Path) -> None:
    """Takes the observed values at ``path`` away, wherever they are."""
    if is_observation(value):
        if path:
            taken(value["value"], path)
        else:
            value.update(value=None, missing=machines.TAKEN, reason=None)
    elif isinstance(value, list):
        for item in value:
            taken(item, path[1:])
    elif isinstance(value, dict) and path[0] in value:
        taken(value[path[0]], path[1:])


@pytest.mark.slow  # judges a machine once for each value
@pytest.mark.parametrize("machine", ["desk", *at_night(*((name,) for name in machines.NAMES if name != "desk"))])
def test_no_check_breaks_on_a_value_that_is_not_there(machine: str) -> None:
    for path in sorted(set(kinds(machines.plain(machine)))):
        plain = machines.plain(machine)
        taken(plain, path)
        host = from_plain(Host, plain)
        broken = [name for name, check in CHECKS.items() if run(check, host, FACTS).outcome is Outcome.CRASHED]
        assert broken == [], path


def test_wrong_input_has_the_code_of_each_style() -> None:
    assert [exit_codes.wrong_input(style) for style in exit_codes.STYLES] == [2, 3, 1, 2]


def test_a_page_for_a_person_ends_with_the_faults_that_prove_it() -> None:
    page = pages.load("host-available-memory-low")
    faults = [block.fault for block in page.examples if block.outcome == "fails"]
    assert faults
    assert all(faults)
    told = pages.told(page).splitlines()
    assert told[told.index("Proven by these faults:") + 1 :] == [f"  - {fault}" for fault in faults]


def test_a_saved_document_is_as_deep_as_an_observation_and_no_deeper(tmp_path: FilePath) -> None:
    path = tmp_path / "host.json"
    path.write_text(saved.text("host", json.loads("[" * 90 + "]" * 90)))
    assert saved.kind(path) == "host"
    path.write_text(saved.text("host", json.loads("[" * 110 + "]" * 110)))
    with pytest.raises(UsageError, match="nested deeper"):
        saved.document(path)
