"""Configuration files of container engines, on small trees and on trees that somebody else left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from envkit.host import containers, files
from envkit.host.observe import Group, read_groups
from envkit.host.root import HostRoot
from envkit.model import Observed
from envkit.subjects.host import CriEngine, Enroot, Kubelet, Podman

GENERATED = """\
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
          SystemdCgroup = true
"""
DROP_IN = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
enable_cdi = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
TOOLKIT = """\
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
[nvidia-container-cli]
environment = []
#debug = "/var/log/nvidia-container-toolkit.log"
ldconfig = "@/sbin/ldconfig.real"
load-kmods = true
no-cgroups = true
[nvidia-container-runtime]
debug = "/var/log/nvidia-container-runtime.log"
mode = "cdi"
runtimes = ["docker-runc", "runc"]
[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
[nvidia-ctk]
path = "/opt/bin/nvidia-ctk"
"""


@pytest.fixture
def place(tmp_path: Path) -> HostRoot:
    return HostRoot(tmp_path, {"HOME": "/root"})


def write(place: HostRoot, name: str, text: str = "", mode: int = 0o644) -> None:
    file = place.root / name.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def test_containerd_with_a_part_that_the_toolkit_wrote(place: HostRoot) -> None:
    write(place, "/etc/containerd/config.toml", GENERATED)
    write(place, "/etc/containerd/conf.d/99-nvidia.toml", DROP_IN)
    engine = containers.containerd(place).need("containerd")
    assert (engine.installed, engine.serves, engine.error) == (True, True, "")
    assert engine.files == ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml")
    assert engine.runtimes == {"runc": "", "nvidia": "/usr/bin/nvidia-container-runtime"}
    assert engine.missing == ("/usr/bin/nvidia-container-runtime",)
    assert engine.cgroups == {"runc": "systemd", "nvidia": "cgroupfs"}
    assert (engine.cdi.value, engine.default_runtime) == (True, "runc")
    write(place, "/usr/bin/nvidia-container-runtime")
    assert containers.containerd(place).need("containerd").missing == ()


def test_containerd_may_start_pods_by_another_runtime_than_runc(place: HostRoot) -> None:
    named = '[plugins."io.containerd.cri.v1.runtime".containerd]\ndefault_runtime_name = "nvidia"\n'
    for text, name in (("version = 3\n" + named, "nvidia"), ("version = 3\n", "runc")):
        write(place, "/etc/containerd/config.toml", text)
        assert containers.containerd(place).need("containerd").default_runtime == name


def test_containerd_of_docker_serves_no_kubernetes(place: HostRoot) -> None:
    write(place, "/etc/containerd/config.toml", 'disabled_plugins = ["cri"]\n')
    assert not containers.containerd(place).need("containerd").serves


def test_cdi_of_containerd_depends_on_the_form_of_its_file(place: HostRoot) -> None:
    for text, value in (("version = 3\n", True), ("version = 2\n", None), ("", None)):
        write(place, "/etc/containerd/config.toml", text)
        assert containers.containerd(place).need("containerd").cdi.value is value
    off = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\ncdi_spec_dirs = ["/opt/cdi"]\n'
    write(place, "/etc/containerd/config.toml", off)
    engine = containers.containerd(place).need("containerd")
    assert (engine.cdi.value, engine.cdi_dirs) == (False, ("/opt/cdi",))


def test_containerd_that_kubernetes_brought(place: HostRoot) -> None:
    write(place, "/etc/containerd/config.toml", 'disabled_plugins = ["cri"]\n')
    write(place, "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", GENERATED)
    engine = containers.containerd(place).need("containerd")
    assert engine.files == ("/var/lib/rancher/k3s/agent/etc/containerd/config.toml",)
    assert engine.serves


@pytest.mark.parametrize(
    "text", ["[plugins", "plugins = 7", "[plugins.cri]\ncontainerd = []", "\x00", "a = " + "[" * 2000]
)
def test_containerd_with_a_file_that_it_cannot_use(place: HostRoot, text: str) -> None:
    write(place, "/etc/containerd/config.toml", text)
    engine = containers.containerd(place).need("containerd")
    assert engine.error
    assert engine.installed


def test_crio(place: HostRoot) -> None:
    assert containers.crio(place).value == CriEngine(False)
    write(place, "/usr/bin/crio")
    write(place, "/etc/crio/crio.conf", '[crio.runtime]\ndefault_runtime = "crun"\ncgroup_manager = "cgroupfs"\n')
    part = '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n'
    write(place, "/etc/crio/crio.conf.d/99-nvidia.toml", part)
    engine = containers.crio(place).need("CRI-O")
    assert engine.runtimes == {"nvidia": "/usr/bin/nvidia-container-runtime"}
    assert engine.missing == ("/usr/bin/nvidia-container-runtime",)
    assert (engine.default_runtime, engine.cgroups, engine.cdi.value) == ("crun", {"*": "cgroupfs"}, True)
    write(place, "/etc/crio/crio.conf.d/zz.conf", "crio = 7")
    assert containers.crio(place).need("CRI-O").error


def test_podman(place: HostRoot) -> None:
    assert containers.podman(place).value == Podman(False)
    write(place, "/usr/bin/podman")
    podman = containers.podman(place).need("Podman")
    assert (podman.cdi_dirs, podman.hooks, podman.error) == (("/etc/cdi", "/var/run/cdi"), (), "")
    assert podman.version.value is None
    hook = '{"version": "1.0.0", "hook": {"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["prestart"]}}'
    write(place, "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", hook)
    write(place, "/usr/share/containers/oci/hooks.d/other.json", '{"hook": {"path": "/usr/bin/other"}}')
    write(place, "/etc/containers/containers.conf", '[engine]\ncdi_spec_dirs = ["/opt/cdi"]\n')
    write(place, "/root/.config/containers/containers.conf", '[engine]\ncdi_spec_dirs = ["/home/cdi", {append=true}]\n')
    podman = containers.podman(place).need("Podman")
    assert podman.hooks == ("/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",)
    assert podman.cdi_dirs == ("/home/cdi",)


@pytest.mark.parametrize("sign", ["/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version", "pci"])
def test_podman_is_asked_for_its_version_where_there_may_be_a_gpu(place: HostRoot, sign: str) -> None:
    assert not containers._may_have_gpu(place)
    write(place, "/sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n")
    assert not containers._may_have_gpu(place)
    write(place, *(("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x10de\n") if sign == "pci" else (sign,)))
    assert containers._may_have_gpu(place)


def test_podman_version() -> None:
    assert containers.parse_podman_version("podman version 4.9.3\n") == "4.9.3"
    for text in ("", "docker version 4", "podman version"):
        with pytest.raises(ValueError, match="podman version"):
            containers.parse_podman_version(text)


def test_enroot_and_pyxis(place: HostRoot) -> None:
    assert containers.enroot(place).value == Enroot(False)
    write(place, "/usr/bin/enroot")
    write(place, "/etc/enroot/hooks.d/98-nvidia.sh", "#!/usr/bin/env bash\n")
    write(place, "/etc/slurm/plugstack.conf", "# ours\ninclude plugstack.conf.d/*.conf\noptional other.so  # x\n")
    write(place, "/etc/slurm/plugstack.conf.d/pyxis.conf", "required /usr/lib/slurm/spank_pyxis.so sbatch_support=1\n")
    write(place, "/etc/slurm/plugstack.conf.d/circle.conf", "include /etc/slurm/plugstack.conf\n")
    plugin = "/usr/lib/slurm/spank_pyxis.so"
    hook = "/etc/enroot/hooks.d/98-nvidia.sh"
    assert containers.enroot(place).value == Enroot(True, hook, False, (plugin,), (plugin,))
    write(place, plugin)
    write(place, hook, mode=0o755)
    assert containers.enroot(place).value == Enroot(True, hook, True, (plugin,), ())


def test_a_plugin_that_has_pyxis_as_its_argument_is_not_pyxis(place: HostRoot) -> None:
    write(place, "/etc/slurm/plugstack.conf", "optional wrap.so /opt/spank_pyxis.so\noptional spank_pyxis.so\n")
    seen = containers.enroot(place).need("enroot")
    assert seen.plugins == ("spank_pyxis.so",)


def test_kubelet(place: HostRoot) -> None:
    assert containers.kubelet(place).value == Kubelet(False)
    write(place, "/var/lib/kubelet/config.yaml", "apiVersion: v1\ncgroupDriver: systemd\n")
    write(place, "/var/lib/kubelet/device-plugins/nvidia-gpu.sock")
    write(place, "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    (place.root / "var/lib/kubelet/plugins/gpu.nvidia.com").mkdir(parents=True)
    assert containers.kubelet(place).value == Kubelet(True, ("nvidia-gpu.sock",), ("gpu.nvidia.com",), "systemd")


def test_toolkit_config(place: HostRoot) -> None:
    write(place, "/sbin/ldconfig")
    write(place, "/usr/bin/runc")
    config = files.parse_toolkit_config(TOOLKIT, "/c", place)
    assert (config.error, config.mode, config.no_cgroups, config.by_variable) == ("", "cdi", True, True)
    assert config.missing == ("/opt/bin/nvidia-ctk",)
    assert config.logs == ("/var/log/nvidia-container-runtime.log",)
    assert (config.low_level, config.low_level_found) == (("docker-runc", "runc"), ("runc",))
    (place.root / "sbin/ldconfig").unlink()
    assert "/sbin/ldconfig.real" in files.parse_toolkit_config(TOOLKIT, "/c", place).missing
    absent = files.toolkit_config(place).need("the configuration")
    assert (absent.present, absent.mode, absent.low_level_found) == (False, "auto", ("runc",))


@pytest.mark.parametrize("text", ["[", "nvidia-container-cli = 7", "features = []", "x = " + "[" * 2000])
def test_toolkit_config_that_cannot_be_used(place: HostRoot, text: str) -> None:
    assert files.parse_toolkit_config(text, "/c", place).error


def test_daemon_config_in_full(place: HostRoot) -> None:
    text = """{"runtimes": {"nvidia": {"path": "/opt/run"}, "kata": {"runtimeType": "io.containerd.kata.v2"}},
      "default-runtime": "nvidia", "data-root": "/srv/docker", "storage-driver": "overlay2",
      "cdi-spec-dirs": ["/opt/cdi"], "default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}}}"""
    config = files.parse_daemon_config(text, "/d", place)
    assert (config.error, config.missing) == ("", ("/opt/run",))
    assert config.runtimes == {"nvidia": "/opt/run", "kata": ""}
    assert (config.default_runtime, config.data_root, config.storage) == ("nvidia", "/srv/docker", "overlay2")
    assert (config.cdi_dirs, config.ulimits) == (("/opt/cdi",), {"memlock": -1})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"features": {"cdi": "yes"}}', "features.cdi is neither true nor false"),
        ('{"runtimes": {"runc": {"path": "runc"}}}', "reserved"),
        ('{"runtimes": {"nvidia": 7}}', "nvidia is no table"),
        ('{"default-runtime": 7}', "default-runtime is no text"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_daemon_config_that_dockerd_refuses(place: HostRoot, text: str, words: str) -> None:
    assert words in files.parse_daemon_config(text, "/d", place).error


READERS = {**containers.SOURCES, "toolkit_config": files.toolkit_config}
PLACES = (
    "etc/containerd/config.toml",
    "etc/crio/crio.conf",
    "etc/containers/containers.conf",
    "usr/share/containers/oci/hooks.d/a.json",
    "etc/slurm/plugstack.conf",
    "var/lib/kubelet/config.yaml",
    "etc/nvidia-container-runtime/config.toml",
    "etc/docker/daemon.json",
)


def garbage(file: Path) -> None:
    file.write_bytes(bytes(range(256)) * 16)


def large(file: Path) -> None:
    file.write_bytes(b"# \n" * (700 << 10))


def circle(file: Path) -> None:
    file.symlink_to(file.name)


@pytest.mark.parametrize("make", [garbage, large, circle, Path.mkdir, Path.touch])
def test_hostile_trees_end_in_lost_values_or_named_errors(place: HostRoot, make: Callable[[Path], None]) -> None:
    for program in ("crio", "podman", "enroot", "containerd"):
        write(place, f"/usr/bin/{program}")
    for name in PLACES:
        (place.root / name).parent.mkdir(parents=True, exist_ok=True)
        make(place.root / name)
    sources = {**READERS, "daemon_config": files.SOURCES["daemon_config"]}
    found = read_groups((Group("test", lambda _: sources),), place, 5.0)
    assert set(found) == set(sources)
    for name, seen in found.items():
        assert_told(name, seen, empty=make is Path.touch)


def assert_told(name: str, seen: Observed[object], *, empty: bool) -> None:
    """Either lost with the reason, or with the error in it; an empty file is no error for any of these engines."""
    if seen.value is None:
        assert seen.missing
        assert not empty, (name, seen.missing)
    elif not empty and name in ("containerd", "crio", "podman", "toolkit_config", "daemon_config"):
        assert getattr(seen.value, "error"), name  # noqa: B009 - the types differ and share this field


def test_nothing_there_is_an_observation(place: HostRoot) -> None:
    found = read_groups((Group("test", lambda _: READERS),), place, 5.0)
    assert [name for name, seen in found.items() if seen.value is None] == []


def test_what_may_not_be_read_is_lost(place: HostRoot) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    write(place, "/etc/containerd/config.toml", GENERATED, 0o000)
    assert read_groups((Group("test", lambda _: READERS),), place, 5.0)["containerd"].value is None
