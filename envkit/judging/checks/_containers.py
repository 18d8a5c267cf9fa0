"""What the checks of container engines share: which engine there is to ask, and whether CDI brings it a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from envkit.judging.checks._host import docker_engine, nvidia_devices
from envkit.judging.checks._outcomes import skip_if
from envkit.model import Observed, Unknown
from envkit.subjects import Host
from envkit.subjects.host import NO_DPKG, CdiSpec, CriEngine, Docker, Kubelet, Podman

DEFAULT_DIRS = ("/etc/cdi", "/run/cdi")


def docker_itself(host: Host) -> Docker:
    """The Docker Engine's answers; skips if there is none, or Podman answers in its place."""
    docker = docker_engine(host)
    skip_if(docker.product != "docker", f"{docker.product} answers instead of Docker")
    return docker


def api(docker: Docker) -> tuple[int, ...]:
    """The engine's API as numbers; raises Unknown if it is none."""
    parts = docker.api.split(".")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise Unknown(f"Docker's API was not observed: `{docker.api}` is not a version")
    return tuple(int(part) for part in parts)


def is_rootless(docker: Docker) -> bool:
    """Whether the engine runs without root (its SecurityOptions say so)."""
    return any(option.startswith("name=rootless") for option in docker.security)


def canonical(directory: str) -> str:
    """A directory by the name that has no link in it: /var/run is /run."""
    return directory.rstrip("/").removeprefix("/var") if directory.startswith("/var/run") else directory.rstrip("/")


def directory_of(spec: CdiSpec) -> str:
    """The directory that a specification lies in, without a link in its name."""
    return canonical(spec.path.rpartition("/")[0])


def gpus_by_cdi(host: Host, directories: tuple[str, ...]) -> tuple[list[str], str]:
    """The CDI devices of GPUs in these directories, and what stays open if there is none.

    Raises Unknown if the specifications were not observed.
    """
    specs = host.cdi.need("the CDI specifications")
    read = {canonical(directory) for directory in directories}
    found = [device for spec in specs if directory_of(spec) in read for device in nvidia_devices(spec)]
    others = sorted(read - set(DEFAULT_DIRS))
    return found, "" if found or not others else f"CDI specifications are also read in {', '.join(others)}"


def node(host: Host) -> Kubelet:
    """The kubelet's directory; skips where this machine is not a Kubernetes node."""
    kubelet = host.kubelet.need("whether this is a node of Kubernetes")
    skip_if(not kubelet.present, "this machine is not a Kubernetes node")
    return kubelet


def containerd_of(host: Host) -> CriEngine:
    """containerd's configuration; skips without containerd."""
    return _installed(host.containerd, "containerd")


def crio_of(host: Host) -> CriEngine:
    """CRI-O's configuration; skips without CRI-O."""
    return _installed(host.crio, "CRI-O")


def _installed(seen: Observed[CriEngine], name: str) -> CriEngine:
    engine = seen.need(f"{name}'s configuration")
    skip_if(not engine.installed, f"{name} is not installed")
    return engine


def podman_of(host: Host) -> Podman:
    """Podman's configuration; skips without Podman."""
    podman = host.podman.need("Podman's configuration")
    skip_if(not podman.installed, "Podman is not installed")
    return podman


def packages(host: Host) -> Mapping[str, str]:
    """The installed packages; skips where no dpkg keeps them."""
    skip_if(host.packages.is_unsupported, NO_DPKG)
    return host.packages.need("the installed packages")
