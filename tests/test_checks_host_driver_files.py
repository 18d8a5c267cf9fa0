"""The checks of the driver's files, packages, options and devices where judgement is delicate."""

from __future__ import annotations

from typing import Any

import machines
import pytest
from hosts import said

from envkit.judging.checks.host_driver_packages import last_day
from envkit.model import Outcome, Severity
from envkit.versions import Driver

V = "580.159.04"
GONE: dict[str, Any] = {
    "module": None,
    "modules": [],
    "nvml": {"ended": "error", "code": 9, "detail": "nvmlInit returned NVML_ERROR_DRIVER_NOT_LOADED (9)"},
}
DXG: dict[str, Any] = {"path": "/dev/dxg", "error": "", "major": 10, "minor": 127}
# a container that was given one GPU: no modules, no firmware, no packages of the driver, no EFI, the node of one GPU
CONTAINER: dict[str, Any] = {
    "kernels": [],
    "firmware": {"root": "", "files": {}},
    "driver_packages": [],
    "packages": {},
    "modprobe": [],
    "module_signing": None,
    "services": {},
    "reboot": {"wanted": False},
}
OF_DRIVER = (
    "host-driver-not-built-for-kernel",
    "host-driver-not-built-for-next-kernel",
    "host-driver-flavor-wrong-for-gpu",
    "host-driver-installed-twice",
    "host-driver-ptx-compiler-missing",
    "host-driver-blacklisted",
    "host-driver-on-disk-differs-from-loaded",
    "host-driver-options-not-applied",
    "host-driver-options-discouraged",
    "host-driver-packages-half-configured",
    "host-driver-unattended-upgrades-on",
    "host-driver-packages-mixed-versions",
    "host-device-nodes-stale",
    "host-gpu-excluded-from-driver",
    "host-gsp-firmware-missing",
    "host-mig-device-files-missing",
    "host-persistenced-failing",
    "host-driver-unsigned-under-secure-boot",
)


@pytest.mark.parametrize("check", OF_DRIVER)
def test_container_with_gpus_is_a_healthy_place(check: str) -> None:
    result = said(check, machines.host("h100", CONTAINER))
    assert result.outcome in (Outcome.PASS, Outcome.SKIP), (result.reason, result.findings)


@pytest.mark.parametrize("check", [*OF_DRIVER, "host-driver-loses-gpu-memory-in-suspend", "host-gpu-profiling-blocked"])
def test_wsl_is_asked_nothing_of_a_linux_driver(check: str) -> None:
    if check == "host-driver-ptx-compiler-missing":
        return  # it is asked of Windows' libraries too
    changes = {"device_nodes": [DXG], "pci_gpus": [], "module": None, "modules": [], "driver_params": None}
    assert said(check, machines.host("desk", changes)).outcome is Outcome.SKIP


@pytest.mark.parametrize(
    ("flavor", "device", "outcome"),
    [
        ("proprietary", "0x28f8", Outcome.PASS),  # the last id of Ada's
        ("proprietary", "0x2901", Outcome.FAIL),  # B200
        ("proprietary", "0x2b85", Outcome.FAIL),  # GeForce RTX 5090
        ("proprietary", "0x2342", Outcome.FAIL),  # GH200
        ("proprietary", "0x2330", Outcome.PASS),  # H100
        ("open", "0x1e02", Outcome.PASS),  # TITAN RTX, the first of Turing's
        ("open", "0x1df6", Outcome.FAIL),  # GV100
        ("open", "0x15f8", Outcome.FAIL),  # P100
        ("open", "", Outcome.UNKNOWN),
    ],
)
def test_flavor_at_the_edges_of_generations(flavor: str, device: str, outcome: Outcome) -> None:
    host = machines.host("desk", {"module.flavor": flavor, "pci_gpus.0.device": device})
    assert said("host-driver-flavor-wrong-for-gpu", host).outcome is outcome


def test_gpu_set_aside_for_a_virtual_machine_needs_no_flavor() -> None:
    changes = {"pci_gpus.0.device": "0x1db5", "pci_gpus.0.driver": "vfio-pci"}
    assert said("host-driver-flavor-wrong-for-gpu", machines.host("h100", changes)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("release", "bootable", "outcome"),
    [
        ("6.8.0-100-generic", True, Outcome.FAIL),  # newer by number, not by letters
        ("6.8.0-100-generic", False, Outcome.PASS),  # nothing boots it
        ("6.8.0-9-generic", True, Outcome.PASS),
        ("6.8.0-100-lowlatency", True, Outcome.PASS),  # another flavor
    ],
)
def test_next_kernel_is_the_newer_one_of_its_flavor(release: str, bootable: bool, outcome: Outcome) -> None:
    kernel = {"release": release, "bootable": bootable}
    host = machines.host("h100", {"kernels.0.release": "6.8.0-85-generic", "kernels.+": kernel})
    assert said("host-driver-not-built-for-next-kernel", host).outcome is outcome


def test_a_found_mismatch_on_disk_outranks_nothing_that_is_open() -> None:
    other = {"path": "/x/nvidia.ko", "version": {"value": None, "via": "", "missing": "packed"}}
    changes = {"kernels.0.nvidia.+": other, "kernels.0.nvidia.0.version": "580.178.04"}
    assert said("host-driver-on-disk-differs-from-loaded", machines.host("h100", changes)).outcome is Outcome.UNKNOWN


def test_modules_of_the_running_kernel_that_were_purged() -> None:
    changes = {**GONE, "kernels": [{"release": "6.8.0-90-generic", "nvidia": [{"path": "/x/nvidia.ko"}]}]}
    (finding,) = said("host-driver-not-built-for-kernel", machines.host("h100", changes)).findings
    assert finding.message == "the running kernel's modules are gone, and 6.8.0-90-generic has one"


@pytest.mark.parametrize(
    ("enforced", "secure_boot", "outcome"),
    [
        (True, "on", Outcome.FAIL),
        (False, "on", Outcome.SKIP),  # mokutil --disable-validation
        (None, "on", Outcome.UNKNOWN),
        (True, "no EFI", Outcome.FAIL),  # module.sig_enforce on the command line
        (None, "off", Outcome.SKIP),
    ],
)
def test_signatures_matter_where_they_are_enforced(enforced: bool | None, secure_boot: str, outcome: Outcome) -> None:
    changes = {
        "kernels.0.nvidia.0.signed": False,
        "module_signing.enforced": enforced,
        "module_signing.secure_boot": secure_boot,
    }
    assert said("host-driver-unsigned-under-secure-boot", machines.host("desk", changes)).outcome is outcome


def test_firmware_is_not_asked_of_gpus_that_run_without() -> None:
    changes = {"firmware.files": {}, "module.flavor": "proprietary", "nvml.gpus.*.gsp": "off"}
    assert said("host-gsp-firmware-missing", machines.host("h100", changes)).outcome is Outcome.SKIP


@pytest.mark.parametrize(
    ("origins", "skipped", "held", "outcome"),
    [
        (["${distro_id}:${distro_codename}-security"], [], False, Outcome.FAIL),
        (["${distro_id}:${distro_codename}-security"], ["nvidia"], False, Outcome.FAIL),  # libnvidia is another name
        (["${distro_id}:${distro_codename}-security"], ["(lib)?nvidia"], False, Outcome.PASS),
        (["${distro_id}:${distro_codename}-security"], ["*["], False, Outcome.FAIL),  # no regular expression
        ([], [], True, Outcome.PASS),
    ],
)
def test_upgrades_of_the_distributions_packages(
    origins: list[str], skipped: list[str], held: bool, outcome: Outcome
) -> None:
    changes = {
        "unattended": {"enabled": True, "origins": origins, "skipped": skipped},
        "driver_packages.*.held": held,
    }
    assert said("host-driver-unattended-upgrades-on", machines.host("desk", changes)).outcome is outcome


@pytest.mark.parametrize(
    ("origin", "outcome"),
    [
        ("origin=*", Outcome.FAIL),
        ("NVIDIA:cuda", Outcome.FAIL),
        ("origin=Debian,codename=${distro_codename},label=Debian-Security", Outcome.PASS),
    ],
)
def test_nvidias_own_packages_are_upgraded_where_their_repository_is_allowed(origin: str, outcome: Outcome) -> None:
    changes = {"unattended": {"enabled": True, "origins": [origin]}}
    assert said("host-driver-unattended-upgrades-on", machines.host("h100", changes)).outcome is outcome


@pytest.mark.parametrize(
    ("option", "value", "outcome"),
    [
        ("NVreg_DeviceFileMode=0666", "438", Outcome.PASS),
        ("NVreg_DeviceFileMode=0660", "438", Outcome.FAIL),
        ("NVreg_EnableMSI=0x1", "1", Outcome.PASS),
        ("NVreg_Unheard=1", "1", Outcome.SKIP),
        ('NVreg_RegistryDwords="A=1;B=2"', "A=1;B=2", Outcome.PASS),
        ("modeset=1", "1", Outcome.SKIP),
    ],
)
def test_options_are_compared_as_the_kernel_reads_them(option: str, value: str, outcome: Outcome) -> None:
    name = option.partition("=")[0].removeprefix("NVreg_")
    line = {"path": "/etc/modprobe.d/x.conf", "command": "options", "module": "nvidia", "text": option}
    changes: dict[str, Any] = {"modprobe.+": line}
    if outcome is not Outcome.SKIP:
        changes[f"driver_params.{name}"] = value
    result = said("host-driver-options-not-applied", machines.host("h100", changes))
    if option.startswith("NVreg_Unheard"):
        assert result.outcome is Outcome.PASS  # the driver does not list it, so nothing contradicts
    else:
        assert result.outcome is outcome


def test_the_last_word_of_the_options_counts() -> None:
    line = {"path": "/etc/modprobe.d/a.conf", "command": "options", "module": "nvidia", "text": "NVreg_EnableMSI=0"}
    last = {"path": "/proc/cmdline", "command": "options", "module": "nvidia", "text": "NVreg_EnableMSI=1"}
    assert (
        said("host-driver-options-not-applied", machines.host("h100", {"modprobe": [line, last]})).outcome
        is Outcome.PASS
    )
    assert (
        said("host-driver-options-not-applied", machines.host("h100", {"modprobe": [last, line]})).outcome
        is Outcome.FAIL
    )


@pytest.mark.parametrize(
    ("eol", "today", "ended"),
    [("2028-06-30", "2028-06-30", False), ("June 2028", "2028-06-30", False), ("June 2028", "2028-07-01", True)],
)
def test_the_last_day_of_a_branch_is_a_good_one(eol: str, today: str, ended: bool) -> None:
    assert (today > last_day(eol)) is ended


@pytest.mark.parametrize("words", ["", "soon", "Junius 2028", "2028", "June 28"])
def test_other_words_are_no_end_of_life(words: str) -> None:
    assert last_day(words) == ""


def test_facts_that_are_younger_than_the_clock_count() -> None:
    host = machines.host("h100", {"module.version": "550.163.01", "today": "2020-01-01"})
    assert Driver("550.163.01").major == 550
    assert said("host-driver-branch-end-of-life", host).outcome is Outcome.FAIL


def test_old_saved_nodes_without_numbers_are_unknown_and_a_wrong_one_is_certain() -> None:
    one: dict[str, Any] = {"device_nodes.0.major": -1}
    assert said("host-device-nodes-stale", machines.host("h100", one)).outcome is Outcome.UNKNOWN
    both = {**one, "device_nodes.3.minor": 9}
    assert said("host-device-nodes-stale", machines.host("h100", both)).outcome is Outcome.FAIL


def test_numbers_of_older_drivers_stand_under_one_name() -> None:
    changes = {"driver_majors": {"nvidia-frontend": 195, "nvidia-uvm": 511}}
    assert said("host-device-nodes-stale", machines.host("h100", changes)).outcome is Outcome.PASS


def test_node_of_a_module_that_is_not_loaded_is_not_asked_about() -> None:
    changes = {"driver_majors": {"nvidia": 195, "nvidiactl": 195}, "device_nodes.1.major": 400}
    assert said("host-device-nodes-stale", machines.host("h100", changes)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("total", "severity"),
    [(85520809984 // 4, None), (85520809984 // 4 - 1, Severity.WARNING)],
)
def test_window_at_a_quarter_of_the_memory(total: int, severity: Severity | None) -> None:
    changes = {"nvml.gpus.1.bar1.total": total, "nvml.gpus.1.memory": 85520809984}
    findings = said("host-bar1-too-small", machines.host("h100", changes)).findings
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_window_of_a_vgpu_and_of_turing_is_not_asked_about() -> None:
    small = {"nvml.gpus.0.bar1.total": 268435456}
    for other in ({"nvml.gpus.0.virtual": "vgpu"}, {"nvml.gpus.0.sm": "sm_75"}):
        assert said("host-bar1-too-small", machines.host("desk", {**small, **other})).outcome is Outcome.SKIP


def test_missing_profiler_and_uvm_tools_are_mild() -> None:
    changes = {"device_nodes.2.error": "permission denied"}
    host = machines.host("desk", changes)
    assert (host.device_nodes.value or ())[2].path == "/dev/nvidia-uvm-tools"
    (finding,) = said("host-device-nodes-not-accessible", host).findings
    assert finding.severity is Severity.WARNING


def test_wsl_without_a_library_of_windows() -> None:
    changes = {
        "kernel": "5.15.153.1-microsoft-standard-WSL2",
        "device_nodes": [DXG],
        "driver_libraries": [{"name": "libcuda", "path": "/usr/lib/wsl/lib/libcuda.so.1"}],
    }
    (finding,) = said("host-wsl-driver-not-from-windows", machines.host("desk", changes)).findings
    assert finding.message == "libnvidia-ml.so.1 is not in /usr/lib/wsl/lib"
