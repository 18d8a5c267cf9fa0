"""What /proc, /sys, files and disks say of the machine, on recorded text and trees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envkit.host import disks, files, machine, nodes, remote
from envkit.host.root import HostRoot
from envkit.subjects.host import CudaDirectory, DaemonConfig, Limit

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max stack size            8388608              unlimited            bytes
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
Max processes             96363                96363                processes
Max address space         unlimited            unlimited            bytes
"""


def test_limits() -> None:
    assert machine.parse_limits(LIMITS) == {
        "stack": Limit(8388608, -1),
        "nofile": Limit(1024, 524288),
        "memlock": Limit(8388608, 8388608),
        "nproc": Limit(96363, 96363),
        "as": Limit(-1, -1),
    }
    with pytest.raises(ValueError, match="only 4 of 5"):
        machine.parse_limits(LIMITS.replace("Max open files", "Max other"))


def test_limits_without_proc_are_lost(tmp_path: Path) -> None:
    assert machine.limits(HostRoot(tmp_path, {})).value is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/limits").write_text("Max open files many few files\n")
    assert machine.limits(HostRoot(tmp_path, {})).value is None


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x7fELF\x02\x01\x01\x03" + bytes(8) + b"\x03\x00\x3e\x00", "x86_64"),
        (b"\x7fELF\x02\x01\x01\x00" + bytes(8) + b"\x02\x00\xb7\x00", "aarch64"),
        (b"\x7fELF\x02\x02\x01\x00" + bytes(8) + b"\x03\x00\x3e\x00", None),  # big-endian
        (b"\x7fELF\x02\x01\x01\x00" + bytes(8) + b"\x03\x00\x3f\x00", None),
        (b"#!/bin/sh\n", None),
    ],
)
def test_a_tree_s_own_programs_tell_its_processor(tmp_path: Path, head: bytes, expected: str | None) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/env").write_bytes(head)
    assert machine.architecture(HostRoot(tmp_path, {})).value == expected


def test_os_release() -> None:
    assert machine.parse_os_release('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n') == (
        "Debian GNU/Linux 12 (bookworm)"
    )
    with pytest.raises(ValueError, match="PRETTY_NAME"):
        machine.parse_os_release("ID=debian\n")


def test_links_of_a_tree_lead_into_the_tree(tmp_path: Path) -> None:
    for directory in ("etc", "usr/lib", "dev", "run/shm"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text('PRETTY_NAME="Recorded"\n')
    (tmp_path / "etc/os-release").symlink_to("/usr/lib/os-release")
    (tmp_path / "dev/shm").symlink_to("/run/shm")
    here = HostRoot(tmp_path, {})
    assert machine.os_name(here).value == "Recorded"
    assert disks.shm(here, lambda seen: seen.f_blocks).value is not None
    (tmp_path / "run/shm").rmdir()
    assert disks.shm(here, lambda seen: seen.f_blocks).value is None


@pytest.mark.parametrize(
    ("made", "version"),
    [
        (("cgroup.controllers",), "v2"),
        (("memory/x",), "v1"),
        (("memory/x", "unified/cgroup.controllers"), "hybrid"),
        (("other/x",), None),
    ],
)
def test_cgroup_version(tmp_path: Path, made: tuple[str, ...], version: str | None) -> None:
    for name in made:
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert machine.cgroup(HostRoot(tmp_path, {})).value == version


def test_glibc_of_a_recorded_tree_is_lost_and_of_this_machine_known(tmp_path: Path) -> None:
    assert machine.glibc(HostRoot(tmp_path, {})).value is None
    live = machine.glibc(HostRoot(Path("/"), {}))
    assert live.value or "glibc" in live.missing


def test_environment_keeps_the_variables_that_matter_and_no_secret() -> None:
    set_ = {
        "CUDA_VISIBLE_DEVICES": "",
        "AWS_SECRET": "x",
        "NVIDIA_API_KEY": "nvapi-1",
        "LD_PRELOAD": "a.so",
        "https_proxy": "http://ada:p@ss@proxy:3128",
        "HTTP_PROXY": "ada:pass@proxy:3128/",
        "all_proxy": "socks5://ada:p/a@s@proxy:1080",
        "TORCHINDUCTOR_REDIS_URL": "redis://:p/ss@cache:6379",
    }
    assert machine.environment(set_).value == {
        "CUDA_VISIBLE_DEVICES": "",
        "LD_PRELOAD": "a.so",
        "https_proxy": "http://proxy:3128",
        "HTTP_PROXY": "proxy:3128/",
        "all_proxy": "socks5://proxy:1080",
        "TORCHINDUCTOR_REDIS_URL": "redis://cache:6379",
    }


def test_disk_of_a_path_that_does_not_exist_yet_is_its_parents(tmp_path: Path) -> None:
    disk = disks.room("images", "/var/lib/docker", HostRoot(tmp_path, {}))
    assert disk.path == "/var/lib/docker"
    assert disk.total.value is not None
    assert disk.free.value is not None
    assert 0 <= disk.free.value <= disk.total.value
    assert (
        disks.shm(HostRoot(tmp_path, {}), lambda seen: seen.f_blocks).missing == "/dev/shm: no such file or directory"
    )


def test_room_for_images_is_not_guessed_where_docker_may_have_another_root(tmp_path: Path) -> None:
    here = HostRoot(tmp_path, {"TMPDIR": "/scratch"})
    assert [disk.path for disk in disks.disks(here).need("disks")] == ["/scratch", "/var/lib/docker"]
    config = tmp_path / "etc/docker/daemon.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"data-root": "/data"}')
    assert [disk.path for disk in disks.disks(here).need("disks")] == ["/scratch", "/data"]
    config.unlink()
    config.mkdir()
    assert [disk.path for disk in disks.disks(here).need("disks")] == ["/scratch"]


def test_device_nodes_are_named_and_must_be_devices(tmp_path: Path) -> None:
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "null"):
        (tmp_path / "dev" / name).touch()
    found = nodes.paths(HostRoot(tmp_path, {}))
    assert found == [f"/dev/{name}" for name in ("nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia12", "nvidiactl")]
    assert nodes.try_open(tmp_path / "dev/nvidia-uvm") == "it is not a character device"
    assert nodes.try_open(tmp_path / "dev/gone") == "no such file or directory"
    assert nodes.try_open(Path("/dev/null")) == ""


def test_toolkit_version() -> None:
    text = "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n"
    assert files.parse_toolkit_version(text) == "1.17.8"
    with pytest.raises(ValueError, match="Container Toolkit"):
        files.parse_toolkit_version("nvidia-ctk: command not found")


def test_toolkit_programs_must_be_executable(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-ctk").touch(0o755)
    (tmp_path / "usr/bin/nvidia-cdi-hook").touch(0o644)
    assert files.toolkit(HostRoot(tmp_path, {})).need("toolkit").programs == {"nvidia-ctk": "/usr/bin/nvidia-ctk"}


def test_daemon_config(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-container-runtime").touch(0o755)
    runtimes = {"nvidia": {"path": "nvidia-container-runtime"}, "x": {"path": "/x"}}
    text = json.dumps({"features": {"cdi": True}, "runtimes": runtimes})
    config = files.parse_daemon_config(text, "/d", HostRoot(tmp_path, {}))
    assert config == DaemonConfig("/d", True, "", {"nvidia": "nvidia-container-runtime", "x": "/x"}, ("/x",), True)
    assert files.parse_daemon_config("", "/d", HostRoot(tmp_path, {})) == DaemonConfig("/d")


@pytest.mark.parametrize("text", ["{", "[]", '{"runtimes": []}', '{"features": 1}'])
def test_daemon_config_that_cannot_be_used(text: str, tmp_path: Path) -> None:
    assert files.parse_daemon_config(text, "/d", HostRoot(tmp_path, {})).error


def test_daemon_config_absent_and_unreadable(tmp_path: Path) -> None:
    absent = files.daemon_config(HostRoot(tmp_path, {}))
    assert absent.value == DaemonConfig("/etc/docker/daemon.json", present=False)
    (tmp_path / "etc/docker/daemon.json").mkdir(parents=True)
    assert files.daemon_config(HostRoot(tmp_path, {})).value is None


def test_libcuda_on_the_search_path(tmp_path: Path) -> None:
    stubs, real = tmp_path / "stubs", tmp_path / "real"
    for folder in (stubs, real, tmp_path / "none"):
        folder.mkdir()
    (stubs / "libcuda.so").touch()
    (real / "libcuda.so.550.54.15").touch()
    (real / "libcuda.so.1").symlink_to("libcuda.so.550.54.15")
    search = f"{tmp_path}/none:{stubs}::{real}:{stubs}:{tmp_path}/gone"
    assert remote.cuda_on_path(HostRoot(Path("/"), {"LD_LIBRARY_PATH": search})).value == (
        CudaDirectory(str(stubs), {"libcuda.so": str(stubs / "libcuda.so")}),
        CudaDirectory(str(real), {"libcuda.so.1": str(real / "libcuda.so.550.54.15")}),
    )
    assert remote.cuda_on_path(HostRoot(Path("/"), {})).value == ()
