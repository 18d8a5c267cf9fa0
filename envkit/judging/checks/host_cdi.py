"""What is asked of CDI specifications: that they are there, fit driver and GPUs, and that Docker takes them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks import _host
from envkit.judging.checks._containers import canonical, directory_of, docker_itself
from envkit.judging.checks._outcomes import error, or_skip, skip_if, unknown_if, warning
from envkit.model import Finding, Severity, Skip, Unknown
from envkit.subjects import Host
from envkit.subjects.host import CdiSpec, Gpu
from envkit.versions import Driver

_REFRESH = "nvidia-cdi-refresh"


def _gpu_specs(host: Host) -> tuple[CdiSpec, ...]:
    """The specifications, of which one defines a GPU; skips without."""
    specs = host.cdi.need("the CDI specifications")
    skip_if(not any(_host.nvidia_devices(spec) for spec in specs), "there is no CDI specification of a GPU")
    return specs


def host_cdi_spec_missing(host: Host) -> Iterator[Finding]:
    """There is a CDI specification of the GPUs."""
    _host.need_gpu(host)
    _host.need_docker_installed(host)
    specs = host.cdi.need("the CDI specifications")
    if any(_host.nvidia_devices(spec) for spec in specs):
        return
    if unread := [spec.path for spec in specs if spec.error]:
        raise Skip(f"{unread[0]} cannot be read, which is reported separately")
    if host.toolkit.value is not None and not host.toolkit.value.programs:
        raise Skip("the NVIDIA Container Toolkit, which writes one, is not installed")
    docker = host.docker.value
    other_way = docker is not None and "nvidia" in docker.runtimes
    yield Finding(
        "there is no CDI specification of this machine's GPUs",
        Severity.WARNING if other_way else Severity.ERROR,
        "/etc/cdi",
        {"no device nvidia.com/gpu": host.cdi.via},
        "envkit passes GPUs to containers through it: write one with `nvidia-ctk cdi generate "
        "--output=/etc/cdi/nvidia.yaml`; check it with `nvidia-ctk cdi list`",
    )


def host_cdi_disabled_in_docker(host: Host) -> Iterator[Finding]:
    """Docker reads the CDI specifications that are there."""
    _host.need_gpu(host)
    docker = docker_itself(host)
    _gpu_specs(host)
    if docker.cdi_dirs.need("whether the engine reads CDI specifications"):
        return
    config = host.daemon_config.value
    said = config is not None and config.cdi
    yield Finding(
        f"Docker {docker.version} does not read the CDI specifications that are there",
        Severity.WARNING if "nvidia" in docker.runtimes else Severity.ERROR,
        docker.endpoint,
        {"no CDI directory": docker.cdi_dirs.via},
        ("" if said else 'set {"features": {"cdi": true}} in /etc/docker/daemon.json and ')
        + "restart Docker with `systemctl restart docker`; "
        "check it with `docker info | grep -i cdi`",
    )


def host_cdi_device_missing_in_docker(host: Host) -> Iterator[Finding]:
    """Docker offers every GPU that the CDI specifications define, and has no complaint about them."""
    _host.need_gpu(host)
    docker = docker_itself(host)
    specs = _gpu_specs(host)
    offered = or_skip(docker.cdi_devices.value, f"Docker {docker.version} does not list its CDI devices")
    read = {canonical(path) for path in docker.cdi_dirs.need("whether the engine reads CDI specifications")}
    skip_if(not read, "CDI is off in Docker")
    defined = sorted({name for spec in specs if directory_of(spec) in read for name in _host.nvidia_devices(spec)})
    absent = [device for device in defined if device not in offered]
    complaints = [warning for warning in docker.warnings if warning.startswith("CDI")]
    fix = f"write the specification again with `nvidia-ctk cdi generate`, and delete others; {_host.AGAIN}"
    evidence = dict.fromkeys(complaints[:5], "/info Warnings")
    if absent:
        yield error(
            f"Docker offers {len(defined) - len(absent)} of {len(defined)} CDI devices of GPUs, without {absent[0]}",
            docker.endpoint,
            {**dict.fromkeys(absent[:5], docker.cdi_devices.via), **evidence},
            fix,
        )
    elif complaints:
        yield warning(f"Docker cannot use every CDI specification: {complaints[0]}", docker.endpoint, evidence, fix)


def host_cdi_spec_stale(host: Host) -> Iterator[Finding]:
    """The CDI specification fits the driver that is loaded."""
    _host.need_gpu(host)
    specs = host.cdi.need("the CDI specifications")
    skip_if(not specs, "there is no CDI specification")
    findings = [finding for spec in specs for finding in _unusable(spec, _worst(spec, specs))]
    unseen = [file for spec in specs for file in spec.unseen]
    versions = [(spec, version) for spec in specs for version in spec.versions]
    if versions and (not findings or host.module.value is not None):
        driver, via = _host.loaded_driver(host)
        findings += [
            _stale(spec, _worst(spec, specs), version, driver, via)
            for spec, version in versions
            if Driver(version) != driver
        ]
    if unseen and not findings:
        raise Unknown(f"whether {len(unseen)} files of the specifications exist is open, the first is {unseen[0]}")
    yield from findings


def host_cdi_device_defined_twice(host: Host) -> Iterator[Finding]:
    """Each CDI device is defined only once in a directory."""
    _host.need_gpu(host)
    specs = _gpu_specs(host)
    owners: dict[tuple[str, str], str] = {}
    twice: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        for device in spec.devices:
            owner = owners.setdefault((directory_of(spec), device), spec.path)
            if owner != spec.path:
                twice.setdefault((owner, spec.path), []).append(device)
    for (owner, path), devices in twice.items():
        yield error(
            f"{owner} and {path} both define {len(devices)} devices, {devices[0]} among them",
            path,
            dict.fromkeys(devices[:5], f"{owner}, {path}"),
            f"engines refuse a device that one directory defines twice: delete the older file; {_host.AGAIN}",
        )


def _worst(spec: CdiSpec, specs: tuple[CdiSpec, ...]) -> Severity:
    """How bad a fault of ``spec`` is: /run/cdi outranks /etc/cdi, device by device (CDI, Device Precedence)."""
    if directory_of(spec) != "/etc/cdi" or not spec.devices:
        return Severity.ERROR
    above = {device for other in specs if directory_of(other) == "/run/cdi" for device in other.devices}
    return Severity.WARNING if set(spec.devices) <= above else Severity.ERROR


def _write_anew(spec: CdiSpec) -> str:
    return f"write it again with `nvidia-ctk cdi generate --output={spec.path}`"


def _unusable(spec: CdiSpec, severity: Severity) -> Iterator[Finding]:
    fix = f"{_write_anew(spec)}; {_host.AGAIN}"
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


def _stale(spec: CdiSpec, severity: Severity, version: str, driver: Driver, via: str) -> Finding:
    return Finding(
        f"{spec.path} was written for driver {version} and {driver} is loaded",
        severity,
        spec.path,
        {version: f"library paths in {spec.path}", str(driver): via},
        f"{_write_anew(spec)}, and enable {_REFRESH} to have it done by itself; {_host.AGAIN}",
    )


def host_cdi_devices_differ_from_gpus(host: Host) -> Iterator[Finding]:
    """The CDI specifications define the GPUs that NVML lists, no fewer and no others."""
    _host.need_gpu(host)
    specs = _gpu_specs(host)
    names = {name.partition("=")[2] for spec in specs for name in _host.nvidia_devices(spec)}
    skip_if(names == {"all"}, "the specification names all GPUs together and none by itself")
    gpus = _host.nvml_answers(host).gpus
    findings: list[Finding] = []
    doubts: list[str] = []
    whole, split = _by_mode(gpus, doubts)
    where, fix = specs[0].path, f"{_write_anew(specs[0])}; check it with `nvidia-ctk cdi list`"
    for gpu in whole:
        if {str(gpu.index), f"gpu{gpu.index}", gpu.uuid.value} & names:
            continue
        if gpu.uuid.value is None:
            doubts.append(f"the UUID of {_host.gpu_name(gpu)} was not observed: {gpu.uuid.missing}")
            continue
        evidence = {gpu.uuid.value: gpu.uuid.via, "no device of that name": host.cdi.via}
        findings.append(error(f"no CDI device stands for {_host.gpu_name(gpu)}", where, evidence, fix))
    findings += _gone(host, gpus, names, where, fix, doubts)
    findings += _instances(host, split, names, where, fix, doubts)
    unknown_if(doubts and not findings, "; ".join(doubts))
    yield from findings


def _by_mode(gpus: tuple[Gpu, ...], doubts: list[str]) -> tuple[list[Gpu], list[Gpu]]:
    """The GPUs that are used whole and those in MIG mode."""
    whole, split = [], []
    for gpu in gpus:
        if gpu.mig.value == "on":
            split.append(gpu)
        elif gpu.mig.value is not None or gpu.mig.is_unsupported:
            whole.append(gpu)
        else:
            doubts.append(f"the MIG mode of {_host.gpu_name(gpu)} was not observed: {gpu.mig.missing}")
    return whole, split


def _gone(
    host: Host, gpus: tuple[Gpu, ...], names: set[str], where: str, fix: str, doubts: list[str]
) -> Iterator[Finding]:
    """Devices of the specifications that NVML does not list."""
    uuids = {gpu.uuid.value for gpu in gpus}
    stray = [name for name in sorted(names) if re.fullmatch(r"[0-9]+", name) and int(name) >= len(gpus)]
    stray += [name for name in sorted(names) if name.startswith("GPU-") and name not in uuids]
    skip_if(stray and _host.withheld_nodes(host), "this job was given only some of the machine's GPUs")
    if stray and (len(host.pci_gpus.value or ()) > len(gpus) or None in uuids):
        doubts.append(f"NVML may not list every GPU of this machine, and {stray[0]} is not among those it lists")
    elif stray:
        yield error(
            f"{len(stray)} CDI devices stand for GPUs that NVML does not list, nvidia.com/gpu={stray[0]} among them",
            where,
            {**dict.fromkeys(stray[:5], host.cdi.via), f"{len(gpus)} GPUs": "nvmlDeviceGetCount"},
            fix,
        )


def _instances(
    host: Host, split: list[Gpu], names: set[str], where: str, fix: str, doubts: list[str]
) -> Iterator[Finding]:
    """GPUs in MIG mode with more or fewer instances than the specifications define."""
    by_index = [name for name in names if re.fullmatch(r"(mig)?[0-9]+:[0-9]+", name)]
    if not by_index and any(name.startswith("MIG-") for name in names):
        doubts += ["MIG devices go by UUIDs here, which are not compared"] if split else []
        return
    for gpu in split:
        if gpu.mig_instances.value is None:
            doubts.append(f"the MIG instances of {_host.gpu_name(gpu)} were not observed: {gpu.mig_instances.missing}")
            continue
        defined = {name.removeprefix("mig") for name in by_index}
        own = [name for name in defined if name.startswith(f"{gpu.index}:")]
        if len(own) != gpu.mig_instances.value:
            yield error(
                f"{_host.gpu_name(gpu)} has {gpu.mig_instances.value} MIG instances and CDI defines {len(own)}",
                where,
                {str(gpu.mig_instances.value): gpu.mig_instances.via, str(len(own)): host.cdi.via},
                fix,
            )


def host_cdi_refresh_service_failed(host: Host) -> Iterator[Finding]:
    """The service that writes the CDI specification again at boot has not failed."""
    _host.need_gpu(host)
    service = host.services.need("systemd's services").get(_REFRESH)
    if service is None or service.load == "not-found":
        raise Skip(f"{_REFRESH} is not installed")
    if service.active == "failed" or service.load == "masked":
        state = "failed" if service.active == "failed" else "is masked"
        yield warning(
            f"{_REFRESH} {state}: the CDI specification may be from another boot or driver",
            f"{_REFRESH}.service",
            {state: host.services.via},
            f"read `journalctl -u {_REFRESH}`, then `systemctl restart {_REFRESH}`; check with `nvidia-ctk cdi list`",
        )
