"""What is asked of the engines beside Docker: containerd, CRI-O and the kubelet, Podman, enroot with pyxis."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._containers import containerd_of, crio_of, gpus_by_cdi, node, podman_of
from envkit.judging.checks._host import AGAIN, need_gpu
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import CriEngine

_PODMAN_CDI = (4, 1)  # Podman's release notes: --device takes CDI names since then


def host_containerd_config_invalid(host: Host) -> Iterator[Finding]:
    """containerd's configuration can be used, and the programs of its runtimes exist."""
    yield from _config_valid(containerd_of(host), "containerd", host.containerd.via)


def host_crio_config_invalid(host: Host) -> Iterator[Finding]:
    """CRI-O's configuration can be used, and the programs of its runtimes exist."""
    yield from _config_valid(crio_of(host), "crio", host.crio.via)


def _config_valid(engine: CriEngine, service: str, via: str) -> Iterator[Finding]:
    if engine.error:
        yield error(
            f"the configuration of {service} cannot be used: {engine.error}",
            engine.files[0] if engine.files else "",
            {engine.error: via},
            f"fix the file: the engine will not start again with it; check it with `systemctl restart {service}`",
        )
    for program in engine.missing:
        names = sorted(name for name, path in engine.runtimes.items() if path == program)
        yield error(
            f"{service} has the runtime {', '.join(names)} whose program {program} does not exist",
            engine.files[0] if engine.files else "",
            {program: via},
            "install nvidia-container-toolkit or take the runtime out, and restart the engine; "
            f"check it with `ls -l {program}`",
        )


def host_containerd_without_gpu_support(host: Host) -> Iterator[Finding]:
    """containerd has a way to a GPU for Kubernetes: a runtime of the toolkit's, or CDI."""
    need_gpu(host)
    node(host)
    engine = containerd_of(host)
    skip_if(not engine.serves, "containerd does not serve Kubernetes here")
    if host.crio.need("CRI-O's configuration").installed:
        raise Skip("CRI-O is installed, and which of the two Kubernetes uses is not known")
    yield from _reaches_gpu(host, engine, "containerd", host.containerd.via)


def host_crio_without_gpu_support(host: Host) -> Iterator[Finding]:
    """CRI-O has a way to a GPU for Kubernetes: a runtime of the toolkit's, or CDI."""
    need_gpu(host)
    node(host)
    yield from _reaches_gpu(host, crio_of(host), "crio", host.crio.via)


def _reaches_gpu(host: Host, engine: CriEngine, service: str, via: str) -> Iterator[Finding]:
    unknown_if(engine.error, f"the configuration of {service} was not observed: {engine.error}")
    if any("nvidia-container-runtime" in program for program in engine.runtimes.values()):
        return
    found, doubt = gpus_by_cdi(host, engine.cdi_dirs)
    if found and engine.cdi.need(f"whether CDI is on in {service}"):
        return
    unknown_if(doubt, doubt)
    yield error(
        f"{service} cannot give a GPU to a pod: no runtime of the toolkit's, and "
        + ("CDI is off" if found else "no CDI device of a GPU"),
        engine.files[0] if engine.files else "",
        {f"runtimes {', '.join(engine.runtimes) or 'none'}": via, f"{len(found)} CDI devices": host.cdi.via},
        f"`nvidia-ctk runtime configure --runtime={service}` and restart it; check it with "
        "`crictl info | grep -i nvidia`",
    )


def host_containerd_cgroup_driver_mismatch(host: Host) -> Iterator[Finding]:
    """containerd's runtimes leave control groups to the same manager as the kubelet."""
    kubelet = node(host)
    engine = containerd_of(host)
    skip_if(not kubelet.cgroup_driver, "the kubelet's file names no cgroup driver: it may ask containerd")
    unknown_if(engine.error, f"containerd's configuration was not observed: {engine.error}")
    skip_if(not engine.cgroups, "containerd's file configures no runtime")
    for name, driver in engine.cgroups.items():
        if driver != kubelet.cgroup_driver:
            yield warning(
                f"containerd's runtime {name} uses {driver} for control groups and the kubelet {kubelet.cgroup_driver}",
                engine.files[0] if engine.files else "",
                {driver: host.containerd.via, kubelet.cgroup_driver: host.kubelet.via},
                f"set SystemdCgroup = {str(kubelet.cgroup_driver == 'systemd').lower()} in the options of {name} and "
                f"restart containerd; {AGAIN}",
            )


def host_kubernetes_gpu_plugin_missing(host: Host) -> Iterator[Finding]:
    """The kubelet has a device plugin, or a driver for dynamic resources, that offers the GPUs."""
    need_gpu(host)
    kubelet = node(host)
    if any(name.startswith("nvidia") for name in kubelet.sockets) or "gpu.nvidia.com" in kubelet.drivers:
        return
    yield note(
        "this is a node of Kubernetes and no device plugin offers its GPUs",
        "/var/lib/kubelet/device-plugins",
        {", ".join(kubelet.sockets) or "no socket": host.kubelet.via},
        "deploy NVIDIA's device plugin or the GPU Operator; check it with `kubectl describe node | grep nvidia.com`",
    )


def host_podman_without_gpu_support(host: Host) -> Iterator[Finding]:
    """Podman has a way to a GPU: CDI, or the toolkit's OCI hook."""
    need_gpu(host)
    podman = podman_of(host)
    unknown_if(podman.error, f"Podman's configuration was not observed: {podman.error}")
    if podman.hooks:
        return
    found, doubt = gpus_by_cdi(host, podman.cdi_dirs)
    version = _numbers(podman.version.need("Podman's version"))
    if found and version >= _PODMAN_CDI:
        return
    unknown_if(doubt and version >= _PODMAN_CDI, doubt)
    docker = host.docker.value
    yield Finding(
        f"Podman {podman.version.value} cannot give a GPU to a container: "
        + (
            f"no CDI device in {', '.join(podman.cdi_dirs) or 'no directory'}" if not found else "it is too old for CDI"
        ),
        Severity.WARNING if docker is None or docker.installed else Severity.ERROR,
        "/etc/containers/containers.conf",
        {", ".join(podman.cdi_dirs): host.podman.via, f"{len(found)} CDI devices": host.cdi.via},
        "write a specification with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; check it with "
        "`podman run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi -L`",
    )


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"([0-9]+)\.([0-9]+)", version)
    if not found:
        raise Unknown(f"Podman's version was not observed: `{version}` is none")
    return int(found[1]), int(found[2])


def host_podman_injects_gpus_twice(host: Host) -> Iterator[Finding]:
    """Podman does not bring GPUs in twice, by CDI and by the toolkit's OCI hook."""
    need_gpu(host)
    podman = podman_of(host)
    unknown_if(podman.error, f"Podman's configuration was not observed: {podman.error}")
    for hook in podman.hooks:
        found, _ = gpus_by_cdi(host, podman.cdi_dirs)
        if found:
            yield warning(
                f"Podman runs the toolkit's hook {hook} in addition to {len(found)} CDI devices of GPUs",
                hook,
                {hook: host.podman.via, found[0]: host.cdi.via},
                f"take the hook away with `rm {hook}`; check it with `podman run --rm --device nvidia.com/gpu=all "
                "IMAGE nvidia-smi -L`",
            )


def host_enroot_gpu_hook_unusable(host: Host) -> Iterator[Finding]:
    """enroot has its hook for GPUs, and the hook what it calls."""
    need_gpu(host)
    enroot = host.enroot.need("enroot's configuration")
    skip_if(not enroot.installed, "enroot is not installed")
    programs = host.toolkit.need("the container toolkit").programs
    hook = enroot.hook or "/etc/enroot/hooks.d/98-nvidia.sh"
    faults = {
        f"{hook} does not exist": not enroot.hook,
        f"{hook} is not executable": bool(enroot.hook) and not enroot.hook_runs,
        "nvidia-container-cli, which its hook calls, does not exist": "nvidia-container-cli" not in programs,
    }
    for fault in (fault for fault, there in faults.items() if there):
        yield error(
            f"enroot containers get no GPU: {fault}",
            hook,
            {fault: host.enroot.via},
            "install enroot's hooks and libnvidia-container-tools, `chmod +x` the hook; check it with "
            "`NVIDIA_VISIBLE_DEVICES=all enroot start IMAGE nvidia-smi -L`",
        )


def host_pyxis_plugin_or_enroot_missing(host: Host) -> Iterator[Finding]:
    """Slurm's plugin pyxis is where the plugstack says, and enroot, which it calls, is there."""
    enroot = host.enroot.need("enroot's configuration")
    skip_if(not enroot.plugins, "Slurm's plugstack names no pyxis here")
    for plugin in enroot.missing:
        yield error(
            f"Slurm's plugstack names {plugin}, which does not exist",
            plugin,
            {plugin: host.enroot.via},
            "install pyxis or take the line out of plugstack.conf: Slurm starts no job while it is there; "
            "check it with `srun --help | grep container-image`",
        )
    if not enroot.installed:
        yield error(
            "Slurm's plugstack names pyxis and enroot is not installed",
            enroot.plugins[0],
            {enroot.plugins[0]: host.enroot.via},
            "install enroot on every node; check it with `enroot version`",
        )
