"""The driver as /proc, /sys and the library directories show it, on recorded text and trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from envkit.host import driver
from envkit.subjects.host import DriverLibrary, KernelModule, PciGpu

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
    seen = driver.module(tmp_path)
    assert (seen.value, seen.via) == (KernelModule("550.54.15"), "/sys/module/nvidia/version")


def test_module_without_sources_is_lost_with_both_reasons(tmp_path: Path) -> None:
    seen = driver.module(tmp_path)
    assert seen.value is None
    assert "/proc/driver/nvidia/version" in seen.missing
    assert "/sys/module/nvidia/version" in seen.missing
    assert str(tmp_path) not in seen.missing


def test_modules_are_those_of_interest(tmp_path: Path) -> None:
    assert driver.modules(tmp_path).value is None
    for name in ("nvidia", "nvidia_uvm", "ext4"):
        (tmp_path / "sys/module" / name).mkdir(parents=True)
    assert driver.modules(tmp_path).value == ("nvidia", "nvidia_uvm")


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
    assert driver.pci_gpus(tmp_path).value == (
        PciGpu("0000:65:00.0", "0x2330", "nvidia"),
        PciGpu("0000:66:00.0", "0x2330", ""),
    )


def test_pci_without_sysfs_is_lost(tmp_path: Path) -> None:
    seen = driver.pci_gpus(tmp_path)
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
    assert driver.libraries(tmp_path) == (
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


def test_one_file_reached_by_two_directories_counts_once(tmp_path: Path) -> None:
    library(tmp_path, "usr/lib64", "libcuda", "550.54.15")
    (tmp_path / "usr/local/nvidia").mkdir(parents=True)
    (tmp_path / "usr/local/nvidia/lib64").symlink_to(tmp_path / "usr/lib64")
    assert len(driver.libraries(tmp_path)) == 1
