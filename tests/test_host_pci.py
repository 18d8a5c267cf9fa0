"""The PCI bus out of small trees of /sys, whole and damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.host import pci
from envkit.host.root import HostRoot
from envkit.model import Observed, ValueState
from envkit.subjects.host import PciDevice, PciLink, PciPayload

ROOT, PORT, GPU = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"
AER = "RxErr 1\nTOTAL_ERR_{} {}\n"


def config(*, size: int = 4096, payload: int = 1, most: int = 2, read: int = 2, acs: int | None = None) -> bytes:
    """A configuration space with a power management and a PCI Express capability, AER and, if wanted, ACS."""
    space = bytearray(4096)
    space[0:4] = b"\xde\x10\x30\x23"
    space[0x34] = 0x60
    space[0x60:0x62] = bytes([0x01, 0x78])
    space[0x78:0x7A] = bytes([0x10, 0x00])
    struct.pack_into("<IH", space, 0x7C, most, payload << 5 | read << 12)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | (0x148 << 20 if acs is not None else 0))
    if acs is not None:
        struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x1F, acs)
    return bytes(space[:size])


def add(tree: Path, real: str, kind: str, space: bytes, vendor: str = "0x10de", power: str = "active") -> Path:
    """A device at ``real`` below /sys/devices and its link in the listing of the bus."""
    folder = tree / "sys/devices" / real
    (folder / "power").mkdir(parents=True)
    address = real.rsplit("/", 1)[-1]
    files = {
        "vendor": vendor,
        "class": kind,
        "device": "0x2330",
        "numa_node": "1",
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_width": "16",
        "aer_dev_fatal": AER.format("FATAL", 0),
        "aer_dev_nonfatal": AER.format("NONFATAL", 2),
        "aer_dev_correctable": AER.format("COR", 7),
        "power/runtime_status": power,
        "resource": "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n"
        "0x0000000000000000 0x0000000fffffffff 0x000000002014220c\n" * 3,
    }
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    (folder / "config").write_bytes(space)
    listing = tree / "sys/bus/pci/devices"
    listing.mkdir(parents=True, exist_ok=True)
    (listing / address).symlink_to(Path("../../../devices") / real)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    add(tmp_path, f"pci0000:00/{ROOT}", "0x060400", config(acs=0x1D), "0x8086")
    add(tmp_path, f"pci0000:00/{ROOT}/{PORT}", "0x060400", config(acs=0), "0x1000")
    gpu = add(tmp_path, f"pci0000:00/{ROOT}/{PORT}/{GPU}", "0x030200", config())
    (tmp_path / "sys/bus/pci/drivers/nvidia").mkdir(parents=True)
    (gpu / "driver").symlink_to(Path("../../../../../bus/pci/drivers/nvidia"))
    (tmp_path / "sys/kernel/iommu_groups/5").mkdir(parents=True)
    (tmp_path / "sys/kernel/iommu_groups/5/type").write_text("DMA-FQ\n")
    (gpu / "iommu_group").symlink_to(Path("../../../../../kernel/iommu_groups/5"))
    return tmp_path


def found(tree: Path) -> dict[str, PciDevice]:
    seen = pci.devices(HostRoot(tree, {}))
    assert seen.value is not None, seen.missing
    return {device.address: device for device in seen.value}


def test_a_gpu_and_the_bridges_above_it(tree: Path) -> None:
    devices = found(tree)
    assert set(devices) == {ROOT, PORT, GPU}
    gpu = devices[GPU]
    assert (gpu.kind, gpu.driver, gpu.above, gpu.numa.value) == ("gpu", "nvidia", (PORT, ROOT), 1)
    assert gpu.link.value == PciLink(32.0, 16, 32.0, 16)
    assert gpu.aer.value == {"fatal": 0, "nonfatal": 2, "correctable": 7}
    assert (gpu.power.value, gpu.iommu.value, gpu.answers.value) == ("active", "DMA-FQ", True)
    assert gpu.unassigned.value == (1, 3, 5)
    assert gpu.payload.value == PciPayload(256, 512, 512)
    assert gpu.redirects.is_unsupported
    assert devices[ROOT].redirects.value == ("request", "completion")
    assert devices[PORT].redirects.value == ()
    assert devices[ROOT].iommu.value == ""


def test_a_user_sees_64_bytes_which_tell_that_the_device_answers_and_no_more(tree: Path) -> None:
    for address in (f"{ROOT}", f"{ROOT}/{PORT}", f"{ROOT}/{PORT}/{GPU}"):
        path = tree / "sys/devices/pci0000:00" / address / "config"
        path.write_bytes(path.read_bytes()[:64])
    devices = found(tree)
    assert devices[GPU].answers.value is True
    assert devices[GPU].payload.missing == "64 bytes of 256 are shown; root may read all"
    assert devices[PORT].redirects.missing == "64 bytes of 4096 are shown; root may read all"


def test_a_device_that_is_gone_reads_as_ones(tree: Path) -> None:
    (tree / f"sys/devices/pci0000:00/{ROOT}/{PORT}/{GPU}/config").write_bytes(b"\xff" * 4096)
    assert found(tree)[GPU].answers.value is False


def test_a_sleeping_device_is_not_woken(tree: Path) -> None:
    (tree / f"sys/devices/pci0000:00/{ROOT}/{PORT}/{GPU}/power/runtime_status").write_text("suspended\n")
    gpu = found(tree)[GPU]
    assert gpu.power.value == "suspended"
    assert (gpu.answers.value, gpu.payload.value) == (None, None)
    assert gpu.answers.state is ValueState.MISSING


def test_a_device_without_a_link_or_aer_has_none(tree: Path) -> None:
    folder = tree / f"sys/devices/pci0000:00/{ROOT}/{PORT}/{GPU}"
    for name in ("current_link_speed", "aer_dev_fatal"):
        (folder / name).unlink()
    gpu = found(tree)[GPU]
    assert gpu.link.is_unsupported and gpu.aer.is_unsupported


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("current_link_speed", "Unknown", "link"),
        ("current_link_width", "0", "link"),
        ("max_link_width", "255", "link"),
        ("max_link_width", "x", "link"),
        ("numa_node", "", "numa"),
        ("aer_dev_fatal", "", "aer"),
        ("aer_dev_correctable", "TOTAL_ERR_COR many", "aer"),
        ("resource", "", "unassigned"),
        ("resource", "0x0 0x0", "unassigned"),
        ("resource", "\x00" * (2 << 20), "unassigned"),
        ("config", "", "answers"),
        ("config", "ab", "payload"),
    ],
)
def test_what_no_kernel_writes_is_lost(tree: Path, name: str, text: str, field: str) -> None:
    (tree / f"sys/devices/pci0000:00/{ROOT}/{PORT}/{GPU}/{name}").write_text(text)
    seen = getattr(found(tree)[GPU], field)
    assert seen.state is ValueState.MISSING
    assert seen != Observed()


@pytest.mark.parametrize("name", ["current_link_speed", "numa_node", "aer_dev_fatal", "resource", "config"])
def test_a_directory_in_place_of_a_file_is_lost(tree: Path, name: str) -> None:
    path = tree / f"sys/devices/pci0000:00/{ROOT}/{PORT}/{GPU}/{name}"
    path.unlink()
    path.mkdir()
    field = {"current_link_speed": "link", "numa_node": "numa", "aer_dev_fatal": "aer", "resource": "unassigned"}
    assert getattr(found(tree)[GPU], field.get(name, "answers")).missing == "is a directory"


def outcome(parse: Callable[[bytes], object], space: bytes) -> str:
    """The type of what was parsed, or of the error that says that there is nothing to parse."""
    try:
        return type(parse(space)).__name__
    except (LookupError, ValueError) as error:
        return type(error).__name__


@given(st.binary(min_size=1, max_size=64))
def test_a_damaged_capability_chain_ends(pattern: bytes) -> None:
    space = (pattern * 4096)[:4096]
    assert outcome(pci.parse_payload, space) in ("PciPayload", "LookupError", "ValueError")
    assert outcome(pci.parse_redirects, space) in ("tuple", "LookupError", "ValueError")


def test_capability_chains_that_run_in_circles_end() -> None:
    space = bytearray(config())
    space[0x79] = 0x60
    space[0x78] = 0x05
    with pytest.raises(LookupError):
        pci.parse_payload(bytes(space))
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x100 << 20)
    with pytest.raises(LookupError):
        pci.parse_redirects(bytes(space))


@pytest.mark.parametrize(
    ("vendor", "code", "kind"),
    [
        ("0x10de", "0x030000", "gpu"),
        ("0x10de", "0x030200", "gpu"),
        ("0x1002", "0x030000", None),
        ("0x10de", "0x068000", "nvswitch"),
        ("0x10de", "0x040300", None),
        ("0x15b3", "0x020700", "ib"),
        ("0x15b3", "0x020000", "nic"),
        ("0x8086", "0x028000", None),
        ("0x8086", "0x060400", "bridge"),
        ("0x8086", "0x060000", None),
    ],
)
def test_kinds(vendor: str, code: str, kind: str | None) -> None:
    assert pci.kind_of(vendor, code) == kind


def test_virtual_functions_of_an_adapter_are_left_out(tree: Path) -> None:
    nic = add(tree, "pci0000:00/0000:00:05.0", "0x020000", config(), "0x15b3")
    virtual = add(tree, "pci0000:00/0000:00:05.1", "0x020000", config(), "0x15b3")
    (virtual / "physfn").symlink_to(f"../{nic.name}")
    assert "0000:00:05.0" in found(tree)
    assert "0000:00:05.1" not in found(tree)


def test_a_machine_without_a_bus_has_no_devices_and_an_empty_tree_was_not_observed(tmp_path: Path) -> None:
    assert pci.devices(HostRoot(tmp_path, {})).value is None
    (tmp_path / "sys/bus").mkdir(parents=True)
    assert pci.devices(HostRoot(tmp_path, {})).value == ()
