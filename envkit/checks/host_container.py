"""What is asked of a machine's container engine: that it answers, and has a way to the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.checks._host import (
    AGAIN,
    docker_engine,
    loaded_driver,
    need_docker_installed,
    need_gpu,
    nvidia_devices,
)
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import CdiSpec, Docker
from envkit.versions import Driver

_UNANSWERED = {
    "no socket": "start it with `systemctl start docker`",
    "refused": "start it with `systemctl start docker`",
    "permission denied": "have this user added to the docker group, which is as much as root, and log in again; or "
    "use rootless Docker, or `--engine local`",
    "hung": "restart it with `systemctl restart docker` and read `journalctl -u docker`",
    "unsupported": "point DOCKER_HOST at a Unix socket",
}


def host_docker_reachable(host: Host) -> Iterator[Finding]:
    """The Docker Engine answers.

    A machine without any Docker is warned, for envkit can do without.
    """
    docker = host.docker.need("the Docker Engine")
    if docker.ended == "answered":
        return
    if docker.ended == "no socket" and not docker.installed:
        yield Finding(
            "Docker is not installed",
            Severity.WARNING,
            docker.endpoint,
            {docker.detail: host.docker.via},
            f"install Docker Engine, or let envkit work with `--engine local`; {AGAIN}",
        )
        return
    yield Finding(
        f"the Docker Engine does not answer at {docker.endpoint}: {docker.detail or docker.ended}",
        where=docker.endpoint,
        evidence={docker.detail or docker.ended: host.docker.via},
        fix=f"{_UNANSWERED.get(docker.ended, 'read `journalctl -u docker`')}; check it with `docker version`",
    )


def host_docker_config_valid(host: Host) -> Iterator[Finding]:
    """Docker's daemon.json can be used.

    Skipped without Docker.
    """
    need_docker_installed(host)
    config = host.daemon_config.need("Docker's configuration")
    if config.error:
        yield Finding(
            f"{config.path} cannot be used: {config.error}",
            where=config.path,
            evidence={config.error: host.daemon_config.via},
            fix="mend the JSON: the engine will not start again with it; check it with `dockerd --validate`",
        )
    for program in config.missing:
        names = sorted(name for name, path in config.runtimes.items() if path == program)
        yield Finding(
            f"{config.path} names the runtime {', '.join(names)} and its program {program} does not exist",
            where=config.path,
            evidence={program: host.daemon_config.via},
            fix="install nvidia-container-toolkit or take the runtime out of the file, and restart Docker; "
            f"check it with `ls -l {program}`",
        )


def host_toolkit_installed(host: Host) -> Iterator[Finding]:
    """The NVIDIA Container Toolkit is installed.

    A warning where a CDI specification is there without it, or an engine that brings its own (Docker Desktop).
    """
    need_gpu(host)
    need_docker_installed(host)
    if host.toolkit.need("the container toolkit").programs:
        return
    docker = host.docker.value
    other = ""
    if any(nvidia_devices(spec) for spec in host.cdi.need("the CDI specifications")):
        other = ": only the CDI specification that is there brings GPUs into containers"
    elif docker is not None and "nvidia" in docker.runtimes:
        other = ": only the engine's own nvidia runtime brings GPUs into containers"
    yield Finding(
        f"the NVIDIA Container Toolkit is not installed{other}",
        Severity.WARNING if other else Severity.ERROR,
        "/usr/bin/nvidia-ctk",
        {"none of its programs": host.toolkit.via},
        "install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker` and restart "
        "Docker; check it with `nvidia-ctk --version`",
    )


def host_docker_reaches_gpu(host: Host) -> Iterator[Finding]:
    """Docker has a way to a GPU.

    By the nvidia runtime, by the hook of --gpus, or by CDI; one of them is enough.
    """
    need_gpu(host)
    docker = docker_engine(host)
    if "nvidia" in docker.runtimes:
        return
    dirs = docker.cdi_dirs.need("whether the engine reads CDI specifications")
    by_cdi, doubt = _reaches_by_cdi(host, docker, dirs)
    hook = "nvidia-container-runtime-hook" in host.toolkit.need("the container toolkit").programs
    if by_cdi or hook:
        return
    if doubt:
        raise Unknown(doubt)
    yield Finding(
        "Docker has no way to a GPU: no nvidia runtime, no hook for --gpus and no CDI device",
        where=docker.endpoint,
        evidence={
            f"runtimes {', '.join(docker.runtimes) or 'none'}": "/info Runtimes",
            f"CDI directories {', '.join(dirs) or 'none'}": docker.cdi_dirs.via,
            "no nvidia-container-runtime-hook": host.toolkit.via,
        },
        fix="install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker --cdi.enabled` and "
        "restart Docker; check it with `docker info | grep -i -A3 runtimes`",
    )


def _reaches_by_cdi(host: Host, docker: Docker, dirs: tuple[str, ...]) -> tuple[bool, str]:
    """Whether the engine has a CDI device of a GPU, and what stays open if it has none."""
    if docker.cdi_devices.value is not None:
        return any(device.startswith("nvidia.com/gpu=") for device in docker.cdi_devices.value), ""
    specs = host.cdi.need("the CDI specifications") if dirs else ()
    read = {_canonical(directory) for directory in dirs}
    places = {_directory(spec) for spec in specs if nvidia_devices(spec)}
    others = [directory for directory in dirs if _canonical(directory) not in ("/etc/cdi", "/run/cdi")]
    doubt = f"the engine also reads CDI specifications in {', '.join(others)}" if others else ""
    return bool(places & read), doubt


def _canonical(directory: str) -> str:
    return directory.rstrip("/").removeprefix("/var")  # /var/run is /run


def _directory(spec: CdiSpec) -> str:
    return _canonical(spec.path.rpartition("/")[0])


def host_cdi_present(host: Host) -> Iterator[Finding]:
    """There is a CDI specification of the GPUs.

    A warning where the nvidia runtime is there.
    """
    need_gpu(host)
    need_docker_installed(host)
    specs = host.cdi.need("the CDI specifications")
    if any(nvidia_devices(spec) for spec in specs):
        return
    docker = host.docker.value
    other_way = docker is not None and "nvidia" in docker.runtimes
    yield Finding(
        "there is no CDI specification of this machine's GPUs",
        Severity.WARNING if other_way else Severity.ERROR,
        "/etc/cdi",
        {"no device nvidia.com/gpu": host.cdi.via},
        "envkit hands GPUs to containers by it: write one with `nvidia-ctk cdi generate "
        "--output=/etc/cdi/nvidia.yaml`; check it with `nvidia-ctk cdi list`",
    )


def host_cdi_enabled(host: Host) -> Iterator[Finding]:
    """Docker reads the CDI specifications that are there.

    Skipped if there is no specification to read.
    """
    need_gpu(host)
    docker = docker_engine(host)
    if not any(nvidia_devices(spec) for spec in host.cdi.need("the CDI specifications")):
        raise Skip("there is no CDI specification of a GPU")
    if docker.cdi_dirs.need("whether the engine reads CDI specifications"):
        return
    yield Finding(
        f"Docker {docker.version} does not read the CDI specifications that are there",
        Severity.WARNING if "nvidia" in docker.runtimes else Severity.ERROR,
        docker.endpoint,
        {"no CDI directory": docker.cdi_dirs.via},
        'set {"features": {"cdi": true}} in /etc/docker/daemon.json and restart Docker; '
        "check it with `docker info | grep -i cdi`",
    )


def host_cdi_fresh(host: Host) -> Iterator[Finding]:
    """The CDI specification fits the driver that is loaded.

    Its library names hold the driver's version, its files exist, each device has one definition in a directory.  A
    specification in /etc/cdi all of whose devices /run/cdi defines anew is not used, and no more than a warning.
    """
    need_gpu(host)
    specs = host.cdi.need("the CDI specifications")
    if not specs:
        raise Skip("there is no CDI specification")
    findings = [finding for spec in specs for finding in _unusable(spec, _worst(spec, specs))]
    findings += _defined_twice(specs)
    stale = [(spec, version) for spec in specs for version in spec.versions]
    if stale and (not findings or host.module.value is not None):
        driver, via = loaded_driver(host)
        findings += [
            _stale(spec, _worst(spec, specs), version, driver, via)
            for spec, version in stale
            if Driver(version) != driver
        ]
    yield from findings


def _worst(spec: CdiSpec, specs: tuple[CdiSpec, ...]) -> Severity:
    """How bad a fault of ``spec`` is: /run/cdi outranks /etc/cdi, device by device (CDI, Device Precedence)."""
    if _directory(spec) != "/etc/cdi" or not spec.devices:
        return Severity.ERROR
    above = {device for other in specs if _directory(other) == "/run/cdi" for device in other.devices}
    return Severity.WARNING if set(spec.devices) <= above else Severity.ERROR


def _write_anew(spec: CdiSpec) -> str:
    return f"write it anew with `nvidia-ctk cdi generate --output={spec.path}`"


def _unusable(spec: CdiSpec, severity: Severity) -> Iterator[Finding]:
    fix = f"{_write_anew(spec)}; {AGAIN}"
    if spec.error:
        yield Finding(f"{spec.path} cannot be read: {spec.error}", severity, spec.path, fix=fix)
    if spec.missing:
        yield Finding(
            f"{spec.path} names {len(spec.missing)} of {spec.files} files that do not exist, "
            f"the first is {spec.missing[0]}",
            severity,
            spec.path,
            dict.fromkeys(spec.missing[:5], "not on disk"),
            fix,
        )


def _defined_twice(specs: tuple[CdiSpec, ...]) -> Iterator[Finding]:
    owners: dict[tuple[str, str], str] = {}
    for spec in specs:
        for device in spec.devices:
            owner = owners.setdefault((_directory(spec), device), spec.path)
            if owner != spec.path:
                yield Finding(
                    f"{device} is defined by {owner} and by {spec.path}",
                    where=spec.path,
                    evidence={device: f"{owner}, {spec.path}"},
                    fix=f"engines refuse a device that one directory defines twice: delete the older file; {AGAIN}",
                )


def _stale(spec: CdiSpec, severity: Severity, version: str, driver: Driver, via: str) -> Finding:
    return Finding(
        f"{spec.path} was written for driver {version} and {driver} is loaded",
        severity,
        spec.path,
        {version: f"library paths in {spec.path}", str(driver): via},
        f"{_write_anew(spec)}, and enable nvidia-cdi-refresh to have it done by itself; {AGAIN}",
    )
