"""What is asked of the NVIDIA Container Toolkit: its programs, versions, configuration and known faults."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.judging.checks._containers import docker_itself, gpus_by_cdi, is_rootless, packages
from envkit.judging.checks._host import need_docker_installed, need_gpu, nvidia_devices
from envkit.judging.checks._outcomes import error, note, or_unknown, skip_if, warning
from envkit.model import Finding, Severity, Skip
from envkit.subjects import Host
from envkit.subjects.host import Toolkit, ToolkitConfig
from envkit.versions import ContainerToolkit

_HOOK = "nvidia-container-runtime-hook"
_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_MODES = ("auto", "cdi", "jit-cdi", "legacy", "csv")  # the toolkit's internal/info/auto.go


def _toolkit(host: Host) -> Toolkit:
    """The toolkit; skips where it is not installed, which is a finding of its own."""
    need_gpu(host)
    toolkit = host.toolkit.need("the container toolkit")
    skip_if(not toolkit.programs, "the NVIDIA Container Toolkit is not installed")
    return toolkit


def _config(host: Host) -> ToolkitConfig:
    """The toolkit's configuration; skips where that cannot be used, which is a finding of its own."""
    config = host.toolkit_config.need("the toolkit's configuration")
    skip_if(config.error, f"{config.path} cannot be used")
    return config


def host_toolkit_missing(host: Host) -> Iterator[Finding]:
    """The NVIDIA Container Toolkit is installed."""
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


def host_toolkit_incomplete(host: Host) -> Iterator[Finding]:
    """The toolkit's programs find the programs that they call."""
    programs = _toolkit(host).programs
    calls = [(_HOOK, ("nvidia-container-cli",)), ("nvidia-container-runtime", ("nvidia-cdi-hook", "nvidia-ctk"))]
    for caller, called in calls:
        if caller in programs and not any(name in programs for name in called):
            yield error(
                f"{programs[caller]} calls {' or '.join(called)}, which is not there",
                programs[caller],
                {", ".join(sorted(programs)): host.toolkit.via},
                "install the toolkit's packages together: nvidia-container-toolkit, nvidia-container-toolkit-base, "
                f"libnvidia-container-tools, libnvidia-container1; check it with `which {called[0]}`",
            )


def host_toolkit_packages_mixed_versions(host: Host) -> Iterator[Finding]:
    """The toolkit's four packages have one version."""
    need_gpu(host)
    installed = packages(host)
    versions = {name: installed[name] for name in _PACKAGES if name in installed}
    skip_if(len(versions) < 2, "fewer than two packages of the NVIDIA Container Toolkit are installed")
    if len(set(versions.values())) > 1:
        yield warning(
            "the toolkit's packages have different versions: "
            + ", ".join(f"{name} {version}" for name, version in versions.items()),
            evidence={version: f"{host.packages.via}: {name}" for name, version in versions.items()},
            fix="install all four at one version and restart the engine; check it with "
            f"`dpkg -l {' '.join(_PACKAGES)}`",
        )


def host_toolkit_vulnerable(host: Host, facts: Facts) -> Iterator[Finding]:
    """The toolkit's version has no vulnerability that NVIDIA published."""
    said = _toolkit(host).version.need("the toolkit's version")
    seen = or_unknown(re.match(r"[0-9]+(\.[0-9]+)+", said), f"the toolkit's version was not observed: `{said}` is none")
    version = ContainerToolkit(seen[0])
    early = "-rc" in said  # a release candidate comes before its release
    open_rows = [row for row in facts.toolkit_faults if version < row.fixed or (early and version == row.fixed)]
    if open_rows:
        worst = min(open_rows, key=lambda row: ("critical", "high", "medium", "low").index(row.severity))
        yield warning(
            f"the container toolkit {said} has {len(open_rows)} known vulnerabilities, {worst.cve} ({worst.severity}) "
            f"among them: {worst.effect}",
            evidence={
                f"{row.cve}, {row.severity}, until {row.fixed}" + ("" if row.by_cdi else ", not by CDI"): row.source
                for row in open_rows
            },
            fix=f"update the toolkit to {max(row.fixed for row in open_rows)} or newer and restart the engine; "
            "check it with `nvidia-ctk --version`",
        )


def host_toolkit_config_invalid(host: Host) -> Iterator[Finding]:
    """The toolkit's config.toml can be used, and what it names is there."""
    toolkit = _toolkit(host)
    config = host.toolkit_config.need("the toolkit's configuration")
    via, again = host.toolkit_config.via, "check it with `nvidia-ctk config`"
    if config.error:
        yield error(
            f"{config.path} cannot be used: {config.error}",
            config.path,
            {config.error: via},
            f"write it again with `nvidia-ctk config default --output={config.path}`; {again}",
        )
        return
    if config.mode not in _MODES:
        yield error(
            f"{config.path} sets the mode {config.mode}, which the toolkit does not know",
            config.path,
            {config.mode: via},
            f"set it with `nvidia-ctk config --set nvidia-container-runtime.mode=auto --in-place`; {again}",
        )
    if config.present and not config.ldconfig.startswith("@") and not config.ldconfig_inside:
        yield error(
            f"{config.path} sets ldconfig to {config.ldconfig}, a path inside containers, which the toolkit refuses",
            config.path,
            {config.ldconfig: via},
            "an @ before it makes it the host's: `nvidia-ctk config --set "
            f"nvidia-container-cli.ldconfig=@/sbin/ldconfig --in-place`; {again}",
        )
    for program in config.missing:
        yield error(
            f"{config.path} names {program}, which does not exist",
            config.path,
            {program: via},
            f"correct the path, or install what brings it; {again}",
        )
    if "nvidia-container-runtime" in toolkit.programs and not config.low_level_found:
        yield warning(
            f"none of the runtimes that nvidia-container-runtime calls is in the usual places: "
            f"{', '.join(config.low_level)}",
            config.path,
            {", ".join(config.low_level): via},
            f"install runc, or name yours in nvidia-container-runtime.runtimes; {again}",
        )


def host_toolkit_mode_unsuitable(host: Host) -> Iterator[Finding]:
    """The toolkit's runtime is in a mode that fits this machine."""
    _toolkit(host)
    config = _config(host)
    auto = "set it with `nvidia-ctk config --set nvidia-container-runtime.mode=auto --in-place`; check it with "
    auto += "`nvidia-ctk config | grep mode`"
    if config.mode == "csv" and host.pci_gpus.need("the GPUs on the PCI bus"):
        yield error(
            "the toolkit's runtime is in mode csv, which is for Tegra: it brings no GPU of the PCI bus in",
            config.path,
            {config.mode: host.toolkit_config.via},
            auto,
        )
    if config.mode == "cdi" and not any(nvidia_devices(spec) for spec in host.cdi.need("the CDI specifications")):
        yield error(
            "the toolkit's runtime is in mode cdi, and there is no CDI specification",
            config.path,
            {config.mode: host.toolkit_config.via, "no device nvidia.com/gpu": host.cdi.via},
            "write one with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; check it with "
            "`nvidia-ctk cdi list`",
        )
    if config.mode == "legacy":
        yield note(
            "the toolkit's runtime is in mode legacy: running containers may lose their GPUs when systemd reloads",
            config.path,
            {config.mode: host.toolkit_config.via},
            auto,
        )


def host_toolkit_no_cgroups_wrong(host: Host) -> Iterator[Finding]:
    """The toolkit's no-cgroups fits the engine: on for rootless Docker, off for all others.

    Left on, a container gets the GPU's files and may not open them; left off, a rootless container does not start.
    """
    toolkit = _toolkit(host)
    docker = docker_itself(host)
    config = _config(host)
    skip_if(_HOOK not in toolkit.programs, f"there is no {_HOOK}, which alone reads no-cgroups")
    rootless = is_rootless(docker)
    if config.no_cgroups == rootless:
        return
    dirs = docker.cdi_dirs.value or ()
    by_cdi = bool(dirs and host.cdi.value and gpus_by_cdi(host, dirs)[0])
    effect = "a container gets GPUs that it may not open" if config.no_cgroups else "no container with GPUs starts"
    yield Finding(
        f"no-cgroups is {'on' if config.no_cgroups else 'off'} and Docker runs {'without' if rootless else 'with'} "
        f"root: {effect}",
        Severity.WARNING if by_cdi else Severity.ERROR,
        config.path,
        {f"no-cgroups {config.no_cgroups}": host.toolkit_config.via, f"rootless {rootless}": "/info SecurityOptions"},
        f"set it with `nvidia-ctk config --set nvidia-container-cli.no-cgroups={str(rootless).lower()} --in-place`; "
        "check it with `docker run --rm --gpus all IMAGE nvidia-smi -L`",
    )


def host_toolkit_debug_logs_on(host: Host) -> Iterator[Finding]:
    """The toolkit writes no debug logs."""
    _toolkit(host)
    config = _config(host)
    if config.logs:
        yield note(
            f"the toolkit writes debug logs for every container: {', '.join(config.logs)}",
            config.path,
            dict.fromkeys(config.logs, host.toolkit_config.via),
            f"comment the debug lines out in {config.path} once the fault is found; check it with "
            "`nvidia-ctk config | grep debug`",
        )


def host_toolkit_denies_unprivileged_gpus(host: Host) -> Iterator[Finding]:
    """The toolkit gives GPUs to containers without privileges."""
    _toolkit(host)
    config = _config(host)
    if config.by_variable or config.by_mount:
        return
    if host.kubelet.need("whether this is a node of Kubernetes").present:
        raise Skip("on this node of Kubernetes the device plugin names the GPUs")
    yield warning(
        "the toolkit refuses GPUs to containers without privileges: neither NVIDIA_VISIBLE_DEVICES nor mounts may "
        "name them",
        config.path,
        {"accept-nvidia-visible-devices-envvar-when-unprivileged false": host.toolkit_config.via},
        "set it with `nvidia-ctk config --set accept-nvidia-visible-devices-envvar-when-unprivileged=true --in-place`, "
        "or use CDI devices; check it with `docker run --rm --gpus all IMAGE nvidia-smi -L`",
    )


def host_obsolete_nvidia_docker(host: Host) -> Iterator[Finding]:
    """The old wrapper nvidia-docker is not installed beside the toolkit."""
    need_gpu(host)
    installed = packages(host)
    for name in ("nvidia-docker", "nvidia-docker2"):
        if name in installed:
            yield note(
                f"{name} {installed[name]} is installed, which the NVIDIA Container Toolkit has replaced",
                evidence={f"{name} {installed[name]}": host.packages.via},
                fix=f"`apt-get purge {name}`, then `nvidia-ctk runtime configure --runtime=docker` and restart Docker; "
                "check it with `docker info | grep -i runtimes`",
            )
