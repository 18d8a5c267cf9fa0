"""What is asked of Docker on this machine: that it answers, runs as its file says, and has a way to the GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._containers import api, canonical, docker_itself, gpus_by_cdi, is_rootless
from envkit.judging.checks._host import AGAIN, need_docker_installed, need_gpu, nvidia_devices, wsl
from envkit.judging.checks._outcomes import error, note, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import DaemonConfig, Docker

_UNANSWERED = {
    "no socket": "start it with `systemctl start docker`",
    "refused": "start it with `systemctl start docker`",
    "hung": "restart it with `systemctl restart docker` and read `journalctl -u docker`",
    "unsupported": "point DOCKER_HOST at a Unix socket",
}
_OTHERS = ("containerd", "crio", "podman", "enroot")
_API_GPUS = (1, 40)  # DeviceRequests, which --gpus becomes (Docker Engine API version history)
_API_CDI = (1, 44)  # CDISpecDirs; the engine that speaks it is the first with CDI
_API_CDI_GPUS = (1, 52)  # the engine that speaks it hands --gpus on to CDI (moby, daemon/devices_nvidia_linux.go)
# below the root that was looked at; an engine of one user listens in /run/user/<id> or below ~/.docker
_SYSTEM_SOCKET = re.compile(r"unix://(?!.*/\.docker/).*/run/docker\.sock")
_SLOW_STORAGE = {
    "vfs": "copies every layer whole",
    "devicemapper": "is gone from newer engines",
    "aufs": "is gone from newer engines",
    "overlay": "is gone from newer engines",
}


def host_docker_unreachable(host: Host) -> Iterator[Finding]:
    """The Docker Engine answers."""
    docker = host.docker.need("the Docker Engine")
    if docker.ended == "answered":
        return
    if docker.ended == "no socket" and not docker.installed:
        skip_if((host.container.value or "none") != "none", "Docker is not installed in this container")
        if others := [name for name in _OTHERS if getattr(getattr(host, name).value, "installed", False)]:
            raise Skip(f"Docker is not installed, and {', '.join(others)} is")
        yield warning(
            "Docker is not installed",
            docker.endpoint,
            {docker.detail: host.docker.via},
            f"install Docker Engine, or let envkit work with `--engine local`; {AGAIN}",
        )
        return
    if docker.ended == "permission denied":
        raise Unknown(
            f"{docker.endpoint}: {docker.detail or docker.ended}; only root and members of the group docker may "
            "open it, "
            "and that group is equivalent to root"
        )
    yield error(
        f"the Docker Engine does not answer at {docker.endpoint}: {docker.detail or docker.ended}",
        docker.endpoint,
        {docker.detail or docker.ended: host.docker.via},
        f"{_UNANSWERED.get(docker.ended, 'read `journalctl -u docker`')}; check it with `docker version`",
    )


def host_docker_config_invalid(host: Host) -> Iterator[Finding]:
    """Docker's daemon.json can be used."""
    need_docker_installed(host)
    config = host.daemon_config.need("Docker's configuration")
    if config.error:
        yield error(
            f"{config.path} cannot be used: {config.error}",
            config.path,
            {config.error: host.daemon_config.via},
            "fix the JSON: the engine will not start again with it; check it with `dockerd --validate`",
        )
    for program in config.missing:
        names = sorted(name for name, path in config.runtimes.items() if path == program)
        yield error(
            f"{config.path} names the runtime {', '.join(names)} and its program {program} does not exist",
            config.path,
            {program: host.daemon_config.via},
            "install nvidia-container-toolkit or take the runtime out of the file, and restart Docker; "
            f"check it with `ls -l {program}`",
        )
    default = config.default_runtime
    # runc is built in, and a name with a point or slash is that of a shim
    if default not in ("", "runc", *config.runtimes) and not re.search(r"[./]", default):
        yield error(
            f"{config.path} makes {default} the default runtime and defines no runtime of that name",
            config.path,
            {default: host.daemon_config.via},
            "the engine will not start again with it: define the runtime with `nvidia-ctk runtime configure "
            "--runtime=docker`, or take the line out; check it with `docker info | grep -i runtime`",
        )


def host_docker_config_not_applied(host: Host) -> Iterator[Finding]:
    """The engine runs with what its daemon.json says: it was restarted after the last change."""
    docker = docker_itself(host)
    config = host.daemon_config.need("Docker's configuration")
    if not _SYSTEM_SOCKET.fullmatch(docker.endpoint) or is_rootless(docker):
        raise Skip(f"the engine at {docker.endpoint} may read another file than {config.path}")
    skip_if(docker.root.startswith("/var/snap/"), "Docker comes from a snap and reads a file of its own")
    skip_if(not config.present or config.error != "", f"{config.path} says nothing that can be used")
    for said, runs in _not_in_force(config, docker):
        yield warning(
            f"{config.path} says {said} and the engine runs with {runs}",
            config.path,
            {said: host.daemon_config.via, runs: "/info"},
            "restart the engine with `systemctl restart docker`, which stops containers unless live-restore is on; "
            f"{AGAIN}",
        )


def _not_in_force(config: DaemonConfig, docker: Docker) -> Iterator[tuple[str, str]]:
    absent = sorted(set(config.runtimes) - set(docker.runtimes))
    if absent:
        yield f"runtimes {', '.join(absent)}", f"runtimes {', '.join(docker.runtimes) or 'none'}"
    if config.default_runtime in docker.runtimes and config.default_runtime != docker.default_runtime:
        yield f"default runtime {config.default_runtime}", f"default runtime {docker.default_runtime}"
    if config.data_root and canonical(config.data_root) != canonical(docker.root):
        yield f"data root {config.data_root}", f"data root {docker.root}"


def host_docker_too_old(host: Host) -> Iterator[Finding]:
    """Docker is new enough to hand out GPUs, by --gpus and by CDI."""
    need_gpu(host)
    docker = docker_itself(host)
    spoken = api(docker)
    if spoken >= _API_CDI:
        return
    lacks = "--gpus" if spoken < _API_GPUS else "CDI"
    yield Finding(
        f"Docker {docker.version} speaks API {docker.api} and does not know {lacks}",
        Severity.ERROR if spoken < _API_GPUS else Severity.WARNING,
        docker.endpoint,
        {docker.api: "/version ApiVersion"},
        "install a newer Docker Engine; check it with `docker version`",
    )


def host_docker_desktop_or_snap(host: Host) -> Iterator[Finding]:
    """Docker runs on this machine itself, where the GPUs and their driver are."""
    need_gpu(host)
    docker = docker_itself(host)
    unknown_if(not docker.system or not docker.root, "the engine told neither its operating system nor its directory")
    if docker.system == "Docker Desktop" and not wsl(host):
        yield error(
            "Docker is Docker Desktop, whose containers run in a virtual machine without this machine's GPUs",
            docker.endpoint,
            {docker.system: "/info OperatingSystem"},
            "install Docker Engine and switch to it with `docker context use default`; check it with `docker info`",
        )
    if docker.root.startswith("/var/snap/"):
        yield warning(
            f"Docker comes from a snap ({docker.root}): it does not see the toolkit and the files of this machine",
            docker.root,
            {docker.root: "/info DockerRootDir"},
            "take the snap out with `snap remove docker` and install Docker Engine; check it with `docker info`",
        )


def host_docker_engine_remote(host: Host) -> Iterator[Finding]:
    """The Docker Engine that answers is that of this machine."""
    docker = docker_itself(host)
    unknown_if(not docker.endpoint, "the endpoint of the engine was not observed")
    found = re.match(r"(?:tcp|http)://(\[[^]]*\]|[^:/]*)", docker.endpoint)
    if found and not re.fullmatch(r"localhost|127(\.[0-9]+){3}|\[::1\]", found[1]):
        yield warning(
            f"the Docker Engine runs on {found[1]}, but the GPUs examined here are this machine's",
            docker.endpoint,
            {docker.endpoint: "DOCKER_HOST, or Docker's context"},
            f"run this on that machine, or unset DOCKER_HOST; {AGAIN}",
        )


def host_docker_socket_world_writable(host: Host) -> Iterator[Finding]:
    """Docker's socket is not open to everybody."""
    docker = docker_itself(host)
    skip_if(docker.mode.is_unsupported, f"{docker.endpoint} is no file")
    mode = docker.mode.need("the mode of Docker's socket")
    if mode & 0o002:
        yield warning(
            f"every user of this machine may write to Docker's socket (mode {mode:o}), which is equivalent to "
            "root access",
            docker.endpoint,
            {f"{mode:o}": docker.mode.via},
            "restore the mode with `chmod 660 /var/run/docker.sock` and put users into the group docker; "
            "check it with `ls -l /var/run/docker.sock`",
        )


def host_docker_storage_driver_unsuitable(host: Host) -> Iterator[Finding]:
    """Docker keeps images with a storage driver that shares layers and has a future."""
    docker = docker_itself(host)
    unknown_if(not docker.storage, "Docker's storage driver was not observed")
    if docker.storage in _SLOW_STORAGE:
        yield warning(
            f"Docker keeps images with {docker.storage}, which {_SLOW_STORAGE[docker.storage]}",
            docker.root,
            {docker.storage: "/info Driver"},
            "let it use overlay2 (storage-driver in /etc/docker/daemon.json), restart it and load the images again; "
            "check it with `docker info | grep -i storage`",
        )


def host_docker_memlock_limited_for_rdma(host: Host) -> Iterator[Finding]:
    """Containers may lock memory for RDMA without being told so one by one."""
    docker = docker_itself(host)
    skip_if(not host.infiniband.need("the RDMA devices"), "no RDMA device on this machine")
    config = host.daemon_config.need("Docker's configuration")
    skip_if(config.error, f"{config.path} cannot be used")
    skip_if(is_rootless(docker), "rootless Docker cannot raise the limit")
    hard = config.ulimits.get("memlock")
    if hard != -1:
        yield note(
            f"Docker's default for locked memory is {'not set' if hard is None else f'{hard} bytes'}, and RDMA locks "
            "what it sends",
            config.path,
            {f"memlock {hard}": host.daemon_config.via},
            'give containers `--ulimit memlock=-1`, or set {"default-ulimits": {"memlock": {"Name": "memlock", '
            '"Hard": -1, "Soft": -1}}} in /etc/docker/daemon.json and restart Docker; check it with '
            "`docker run --rm IMAGE sh -c 'ulimit -l'`",
        )


def host_docker_without_gpu_support(host: Host) -> Iterator[Finding]:
    """Docker has a way to a GPU."""
    need_gpu(host)
    docker = docker_itself(host)
    if "nvidia" in docker.runtimes:
        return
    dirs = docker.cdi_dirs.need("whether the engine reads CDI specifications")
    by_cdi, doubt = _reaches_by_cdi(host, docker, dirs)
    hook = "nvidia-container-runtime-hook" in host.toolkit.need("the container toolkit").programs
    if by_cdi or hook:
        return
    unknown_if(doubt, doubt)
    specs = any(nvidia_devices(spec) for spec in host.cdi.need("the CDI specifications"))
    skip_if(specs and not dirs, "Docker does not read the CDI specifications, which is reported separately")
    if not specs and not host.toolkit.need("the container toolkit").programs:
        raise Skip("the NVIDIA Container Toolkit is not installed, which is reported separately")
    yield error(
        "Docker cannot give a GPU to a container: no nvidia runtime, no hook for --gpus and no CDI device",
        docker.endpoint,
        {
            f"runtimes {', '.join(docker.runtimes) or 'none'}": "/info Runtimes",
            f"CDI directories {', '.join(dirs) or 'none'}": docker.cdi_dirs.via,
            "no nvidia-container-runtime-hook": host.toolkit.via,
        },
        "install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker --cdi.enabled` and "
        "restart Docker; check it with `docker info | grep -i -A3 runtimes`",
    )


def _reaches_by_cdi(host: Host, docker: Docker, dirs: tuple[str, ...]) -> tuple[bool, str]:
    """Whether the engine has a CDI device of a GPU, and what stays open if it has none."""
    if docker.cdi_devices.value is not None:
        return any(device.startswith("nvidia.com/gpu=") for device in docker.cdi_devices.value), ""
    found, doubt = gpus_by_cdi(host, dirs) if dirs else ([], "")
    return bool(found), doubt


def host_docker_gpus_option_unsupported(host: Host) -> Iterator[Finding]:
    """`docker run --gpus` finds a device driver."""
    need_gpu(host)
    docker = docker_itself(host)
    programs = host.toolkit.need("the container toolkit").programs
    if "nvidia-container-runtime-hook" in programs:
        return
    skip_if(not programs, "the NVIDIA Container Toolkit is not installed")
    by_cdi, doubt = _reaches_by_cdi(host, docker, docker.cdi_dirs.need("whether the engine reads CDI specifications"))
    hands_on = "nvidia-cdi-hook" in programs and api(docker) >= _API_CDI_GPUS
    if by_cdi and hands_on:
        return
    unknown_if(doubt and (hands_on or "nvidia" not in docker.runtimes), doubt)
    if not by_cdi and "nvidia" not in docker.runtimes:
        raise Skip("Docker cannot give a GPU to a container at all, which is reported separately")
    yield warning(
        "`docker run --gpus` will end with `could not select device driver`: there is no nvidia-container-runtime-hook",
        "/usr/bin/nvidia-container-runtime-hook",
        {", ".join(sorted(programs)) or "no program of the toolkit": host.toolkit.via},
        "install nvidia-container-toolkit and restart Docker, or name devices by `--device nvidia.com/gpu=all`; "
        "check it with `which nvidia-container-runtime-hook`",
    )
