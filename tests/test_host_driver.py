"""The driver as /proc, /sys and the library directories show it, on recorded text and trees."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from envkit.host import driver, nodes
from envkit.host.root import HostRoot
from envkit.model import Observed
from envkit.subjects.host import (
    DeviceNode,
    DriverGpu,
    DriverInstall,
    DriverLibrary,
    KernelModule,
    MigCapability,
    PciGpu,
)

PROPRIETARY = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
"""
# recorded on an H100
OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)
GCC version:  gcc version 15.3.0 (GCC)
"""
AARCH64 = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86.10  Release Build  (root@host)  Thu\n"


@pytest.mark.parametrize(
    ("text", "version", "flavor"),
    [
        (PROPRIETARY, "550.54.15", "proprietary"),
        (OPEN, "580.159.04", "open"),
        (AARCH64, "570.86.10", "open"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82  x\n", "470.82", "proprietary"),
    ],
)
def test_module_version_of_both_flavors(text: str, version: str, flavor: str) -> None:
    assert driver.parse_module_version(text) == KernelModule(version, flavor)


@pytest.mark.parametrize("text", ["", "GCC version:  gcc version 11.4.0", "NVRM version: something else 12.3"])
def test_module_version_refuses_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="NVRM version"):
        driver.parse_module_version(text)


def test_module_falls_back_to_sysfs_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("550.54.15\n")
    seen = driver.module(place(tmp_path))
    assert (seen.value, seen.via) == (KernelModule("550.54.15"), "/sys/module/nvidia/version")


def test_module_without_sources_is_lost_with_both_reasons(tmp_path: Path) -> None:
    assert driver.module(place(tmp_path)).is_unsupported
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    seen = driver.module(place(tmp_path))
    assert seen.value is None
    assert "/proc/driver/nvidia/version" in seen.missing
    assert "/sys/module/nvidia/version" in seen.missing
    assert str(tmp_path) not in seen.missing


def test_modules_are_those_of_interest(tmp_path: Path) -> None:
    assert driver.modules(place(tmp_path)).value is None
    for name in ("nvidia", "nvidia_uvm", "ext4"):
        (tmp_path / "sys/module" / name).mkdir(parents=True)
    assert driver.modules(place(tmp_path)).value == ("nvidia", "nvidia_uvm")


def pci(root: Path, address: str, vendor: str, kind: str, bound: str = "") -> None:
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    (device / "device").write_text("0x2330\n")
    if bound:
        (root / "sys/bus/pci/drivers" / bound).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(f"../../drivers/{bound}")


def test_pci_gpus_are_nvidia_display_devices_alone(tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:02.0", "0x8086", "0x030000")
    pci(tmp_path, "0000:65:00.0", "0x10de", "0x030200", "nvidia")
    pci(tmp_path, "0000:65:00.1", "0x10de", "0x040300", "snd_hda_intel")
    pci(tmp_path, "0000:66:00.0", "0x10de", "0x030000")
    pci(tmp_path, "0000:07:00.0", "0x10de", "0x068000", "nvidia-nvswitch")
    assert driver.pci_gpus(place(tmp_path)).value == (
        PciGpu("0000:65:00.0", "0x2330", "nvidia"),
        PciGpu("0000:66:00.0", "0x2330", ""),
    )


def test_pci_without_sysfs_is_lost(tmp_path: Path) -> None:
    seen = driver.pci_gpus(place(tmp_path))
    assert seen.value is None
    assert seen.missing == "/sys/bus/pci/devices: no such file or directory"


def library(root: Path, directory: str, name: str, version: str, content: bytes = b"\x7fELF\2") -> None:
    folder = root / directory
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.so.{version}").write_bytes(content)
    (folder / f"{name}.so.1").symlink_to(f"{name}.so.{version}")


def test_libraries_by_name_version_and_fault(tmp_path: Path) -> None:
    library(tmp_path, "usr/lib/x86_64-linux-gnu", "libcuda", "550.54.15")
    library(tmp_path, "usr/lib64", "libnvidia-ml", "550.54.15", b"")
    library(tmp_path, "opt/extra", "libcuda", "535.161.08", b"text")
    (tmp_path / "usr/lib/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.999.1")
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d/x.conf").write_text("# mine\n/opt/extra\n/usr/lib64\n")
    assert driver.libraries(place(tmp_path)).value == (
        DriverLibrary("libcuda", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "550.54.15"),
        DriverLibrary("libnvidia-ml", "/usr/lib64/libnvidia-ml.so.1", "550.54.15", "it is empty"),
        DriverLibrary(
            "libnvidia-ml",
            "/usr/lib/libnvidia-ml.so.1",
            "999.1",
            "its link leads to libnvidia-ml.so.999.1, which does not exist",
        ),
        DriverLibrary("libcuda", "/opt/extra/libcuda.so.1", "535.161.08", "it is not an ELF file"),
    )


def test_libraries_of_a_tree_are_found_through_its_own_links(tmp_path: Path) -> None:
    library(tmp_path, "usr/lib", "libcuda", "550.54.15")
    (tmp_path / "usr/lib64").mkdir()
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to("/opt/driver/libnvidia-ml.so.550.54.15")
    library(tmp_path, "opt/driver", "libnvidia-ml", "550.54.15")
    (tmp_path / "usr/lib/libnvidia-ptxjitcompiler.so.1").symlink_to("/usr/lib/libnvidia-ptxjitcompiler.so.1")
    assert driver.libraries(place(tmp_path)).value == (
        DriverLibrary("libnvidia-ml", "/usr/lib64/libnvidia-ml.so.1", "550.54.15"),
        DriverLibrary("libcuda", "/usr/lib/libcuda.so.1", "550.54.15"),
        DriverLibrary(
            "libnvidia-ptxjitcompiler",
            "/usr/lib/libnvidia-ptxjitcompiler.so.1",
            "",
            "too many levels of symbolic links",
        ),
    )


def test_one_file_reached_by_two_directories_counts_once(tmp_path: Path) -> None:
    library(tmp_path, "usr/lib64", "libcuda", "550.54.15")
    (tmp_path / "usr/local/nvidia").mkdir(parents=True)
    (tmp_path / "usr/local/nvidia/lib64").symlink_to("/usr/lib64")
    assert len(driver.libraries(place(tmp_path)).need("libraries")) == 1


def put(root: Path, name: str, content: str | bytes = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def place(root: Path) -> HostRoot:
    return HostRoot(root, {})


def elf(size: int, table: int, count: int) -> bytes:
    """The head of a 64-bit little-endian library whose section table would end at ``table + 64 * count``."""
    head = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 3, 62, 1, 0, 64, table, 0, 64, 56, 0, 64, count, 0)
    return head + bytes(size - len(head))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (elf(1000, 360, 10), ""),
        (elf(999, 360, 10), "it is cut off after 999 of 1000 bytes"),
        (b"\x7fELF\x02\x01" + bytes(20), "it is cut off after 26 bytes"),
        (b"\x7fELF\x01\x01" + bytes(20), ""),  # 32 bits: the linker skips it, and its layout is another
        (b"", "it is empty"),
        (b"<html>", "it is not an ELF file"),
    ],
)
def test_a_library_that_was_cut_off_is_seen(tmp_path: Path, content: bytes, why: str) -> None:
    assert driver.loadable(put(tmp_path, "libcuda.so.1", content)) == why


PARAMS = """\
ResmanDebugLevel: 4294967295
EnableMSI: 1
NvLinkDisable: 0
RmProfilingAdminOnly: 1
RegistryDwords: "RMKey=1;Other=2"
ExcludedGpus: ""
"""


def test_params_with_numbers_and_texts(tmp_path: Path) -> None:
    put(tmp_path, "proc/driver/nvidia/params", PARAMS)
    seen = driver.params(place(tmp_path)).need("params")
    assert seen["EnableMSI"] == "1"
    assert seen["RegistryDwords"] == "RMKey=1;Other=2"
    assert seen["ExcludedGpus"] == ""
    assert len(seen) == 6


DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidia-modeset
195 nvidiactl
237 nvidia-caps
511 nvidia-uvm

Block devices:
  7 loop
259 nvidia-trap
"""


def test_majors_are_those_of_character_devices(tmp_path: Path) -> None:
    put(tmp_path, "proc/devices", DEVICES)
    assert driver.majors(place(tmp_path)).value == {
        "nvidia": 195,
        "nvidia-modeset": 195,
        "nvidiactl": 195,
        "nvidia-caps": 237,
        "nvidia-uvm": 511,
    }


INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 145
GPU UUID: \t GPU-01111111-2222-3333-4444-555555555555
Video BIOS: \t 96.00.89.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t 0000:1b:00.0
Device Minor: \t 3
GPU Firmware: \t 580.159.04
GPU Excluded:\t Yes
"""


def test_gpus_of_the_driver(tmp_path: Path) -> None:
    assert driver.driver_gpus(place(tmp_path)).value == ()
    put(tmp_path, "proc/driver/nvidia/gpus/0000:1b:00.0/information", INFORMATION)
    uuid = "GPU-01111111-2222-3333-4444-555555555555"
    assert driver.driver_gpus(place(tmp_path)).value == (DriverGpu("0000:1b:00.0", 3, uuid, "580.159.04", True),)


def test_a_gpu_without_firmware_and_one_without_a_minor() -> None:
    plain = driver.parse_information(INFORMATION.replace("580.159.04", "N/A").replace("Yes", "No"))
    assert (plain.firmware, plain.excluded) == ("", False)
    with pytest.raises(ValueError, match="Device Minor"):
        driver.parse_information("Bus Location: \t 0000:1b:00.0\n")


def test_mig_capabilities_and_their_files(tmp_path: Path) -> None:
    assert driver.mig_capabilities(place(tmp_path)).value == ()
    base = "proc/driver/nvidia/capabilities"
    text = "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
    put(tmp_path, f"{base}/mig/config", text.format(1))
    put(tmp_path, f"{base}/gpu0/mig/gi1/access", text.format(12))
    put(tmp_path, f"{base}/gpu0/mig/gi1/ci0/access", text.format(13))
    put(tmp_path, "dev/nvidia-caps/nvidia-cap12")
    assert driver.mig_capabilities(place(tmp_path)).value == (
        MigCapability("gpu0/gi1/access", 12, "/dev/nvidia-caps/nvidia-cap12"),
        MigCapability("gpu0/gi1/ci0/access", 13, ""),
    )
    put(tmp_path, f"{base}/gpu0/mig/gi1/access", "nothing of the kind")
    with pytest.raises(ValueError, match="DeviceFileMinor"):
        driver.mig_capabilities(place(tmp_path))


def test_sleeps_are_counted_where_the_kernel_sleeps(tmp_path: Path) -> None:
    assert driver.suspends(place(tmp_path)).is_unsupported
    put(tmp_path, "sys/power/suspend_stats/success", "3\n")
    assert driver.suspends(place(tmp_path)).value == 3


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("000001ffffffffff", ("perfmon", "sys_admin")),
        ("0000000000200000", ("sys_admin",)),
        ("0000004000000000", ("perfmon",)),
        ("00000000a80425fb", ()),  # root in an ordinary container
    ],
)
def test_privileges_by_the_effective_set(mask: str, names: tuple[str, ...]) -> None:
    text = f"Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t{mask}\n"
    assert driver.parse_privileges(text) == names


def test_profilers_where_nvidia_puts_them(tmp_path: Path) -> None:
    assert driver.profilers(place(tmp_path)).value == ()
    put(tmp_path, "usr/local/cuda-12.8/bin/ncu")
    put(tmp_path, "opt/nvidia/nsight-compute/2025.1.0/ncu")
    (tmp_path / "usr/local/cuda").symlink_to("/usr/local/cuda-12.8")
    assert driver.profilers(place(tmp_path)).value == (
        "/usr/local/cuda/bin/ncu",
        "/usr/local/cuda-12.8/bin/ncu",
        "/opt/nvidia/nsight-compute/2025.1.0/ncu",
    )


def test_every_libcuda_and_the_uninstaller(tmp_path: Path) -> None:
    library(tmp_path, "usr/lib/x86_64-linux-gnu", "libcuda", "580.159.04")
    library(tmp_path, "usr/lib64", "libcuda", "570.211.01")
    put(tmp_path, "usr/lib64/libcuda.so.1.1")
    put(tmp_path, "usr/bin/nvidia-uninstall")
    assert driver.install(place(tmp_path)).value == DriverInstall(
        {
            "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04": "580.159.04",
            "/usr/lib64/libcuda.so.570.211.01": "570.211.01",
        },
        "/usr/bin/nvidia-uninstall",
    )


def test_one_directory_under_two_names_counts_once(tmp_path: Path) -> None:
    library(tmp_path, "usr/lib64", "libcuda", "580.159.04")
    (tmp_path / "usr/local/nvidia").mkdir(parents=True)
    (tmp_path / "usr/local/nvidia/lib64").symlink_to("/usr/lib64")
    assert len(driver.install(place(tmp_path)).need("traces").libraries) == 1


DENIED = (
    'type=AVC msg=audit({}.123:456): avc:  denied  {{ read write }} for  pid=4242 comm="python" path="{}" '
    'dev="devtmpfs" ino=512 scontext=system_u:system_r:container_t:s0:c1,c2 tclass=chr_file permissive=0\n'
)


def test_selinux_absent_permissive_and_enforcing(tmp_path: Path) -> None:
    assert driver.selinux(place(tmp_path)).need("SELinux").state == "absent"
    put(tmp_path, "sys/fs/selinux/enforce", "0")
    seen = driver.selinux(place(tmp_path)).need("SELinux")
    assert (seen.state, seen.booleans) == ("permissive", {})
    put(tmp_path, "sys/fs/selinux/enforce", "1")
    put(tmp_path, "sys/fs/selinux/booleans/container_use_devices", "0 1")
    put(tmp_path, "proc/stat", "cpu 1 2\nbtime 1763600000\n")
    seen = driver.selinux(place(tmp_path)).need("SELinux")
    assert (seen.state, seen.booleans) == ("enforcing", {"container_use_devices": False})
    assert seen.denials.is_unsupported


def test_denials_since_boot_of_our_devices_alone(tmp_path: Path) -> None:
    put(tmp_path, "sys/fs/selinux/enforce", "1")
    put(tmp_path, "proc/stat", "btime 1763600000\n")
    log = put(
        tmp_path,
        "var/log/audit/audit.log",
        DENIED.format(1763500000, "/dev/nvidia0")
        + DENIED.format(1763700000, "/dev/sda")
        + "x" * (2 << 20)
        + "\n"
        + DENIED.format(1763700001, "/dev/nvidia-uvm"),
    )
    (seen,) = driver.selinux(place(tmp_path)).need("SELinux").denials.need("denials")
    assert "/dev/nvidia-uvm" in seen
    log.unlink()
    log.mkdir()
    assert "directory" in driver.selinux(place(tmp_path)).need("SELinux").denials.missing


def test_nodes_have_their_numbers(tmp_path: Path) -> None:
    assert nodes.numbers(Path("/dev/null")) == (1, 3)
    assert nodes.numbers(put(tmp_path, "dev/nvidia0")) == (-1, -1)
    assert nodes.numbers(tmp_path / "dev/nvidia1") == (-1, -1)
    put(tmp_path, "dev/nvidia-uvm-tools")
    put(tmp_path, "dev/nvidia-caps/x")
    found = nodes.join({name: source(place(tmp_path)) for name, source in nodes.sources(place(tmp_path)).items()}, None)
    assert found["device_nodes"].value == (
        DeviceNode("/dev/nvidia-uvm-tools", "it is not a character device"),
        DeviceNode("/dev/nvidia0", "it is not a character device"),
    )


GARBAGE = (b"", b"\xff\0" * 500, b": \n" * 100, b"x" * (2 << 20))


@pytest.mark.parametrize("content", GARBAGE, ids=["empty", "bytes", "colons", "2 MiB"])
def test_no_source_makes_something_of_garbage(tmp_path: Path, content: bytes) -> None:
    for name in (
        "proc/driver/nvidia/version",
        "proc/driver/nvidia/params",
        "proc/devices",
        "proc/self/status",
        "proc/driver/nvidia/gpus/0000:1b:00.0/information",
        "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access",
        "sys/fs/selinux/enforce",
        "sys/power/suspend_stats/success",
    ):
        put(tmp_path, name, content)
    for name, source in {**driver.SOURCES, **driver.GPU_SOURCES}.items():
        if name in ("pci_gpus", "modules", "today", "dev_char", "driver_install", "profilers"):
            continue  # these read none of the files
        try:
            seen = source(place(tmp_path))
        except (OSError, ValueError, LookupError):
            continue  # what the group turns into "lost" with the reason
        assert isinstance(seen, Observed)
        assert seen.value is None, name


def test_no_source_takes_a_directory_for_a_file(tmp_path: Path) -> None:
    for name in ("proc/driver/nvidia/params", "proc/devices", "proc/self/status", "proc/driver/nvidia/version"):
        (tmp_path / name).mkdir(parents=True)
    for source in (driver.params, driver.majors, driver.privileges):
        assert "directory" in source(place(tmp_path)).missing


def test_links_by_number_to_our_devices_alone(tmp_path: Path) -> None:
    assert driver.dev_char(place(tmp_path)).value == ()
    (tmp_path / "dev/char").mkdir(parents=True)
    (tmp_path / "dev/char/195:0").symlink_to("../nvidia0")
    (tmp_path / "dev/char/1:3").symlink_to("../null")
    put(tmp_path, "dev/char/195:1")
    assert driver.dev_char(place(tmp_path)).value == ("195:0",)
