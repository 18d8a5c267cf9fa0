"""The checks of a machine's GPUs where one GPU is not like the other, and where not all of them are ours."""

from __future__ import annotations

from dataclasses import replace

import machines
import pytest
from hosts import said, with_gpus, without

from envkit.model import Observed, Outcome, Severity
from envkit.subjects import Host
from envkit.subjects.host import DeviceNode, DriverLibrary, Gpu, Nvml, PciGpu


def gpu() -> Gpu:
    return machines.host("h100").nvml.need("NVML").gpus[0]


def test_fault_of_one_gpu_outranks_a_doubt_about_another() -> None:
    host = machines.host("h100")
    sick = replace(gpu(), ecc_uncorrected=Observed.of(3, "nvmlDeviceGetTotalEccErrors"))
    dark = replace(gpu(), index=1, ecc_uncorrected=Observed.lost("no answer"))
    assert said("host-ecc-uncorrected-errors", with_gpus(host, dark, sick)).outcome is Outcome.FAIL
    assert said("host-ecc-uncorrected-errors", with_gpus(host, dark, gpu())).outcome is Outcome.UNKNOWN


def test_doubt_about_one_gpu_outranks_a_warning_of_another_and_names_it() -> None:
    host = machines.host("h100")
    dark = replace(gpu(), ecc_pending=Observed.lost("no answer"))
    off = replace(gpu(), index=1, ecc=Observed.of("off", "x"), ecc_pending=Observed.of("off", "x"))
    for order in ((dark, off), (off, dark)):
        result = said("host-ecc-off", with_gpus(host, *order))
        assert result.outcome is Outcome.UNKNOWN
        assert "ECC of GPU 1" in result.reason and "GPU 0" in result.reason
    assert said("host-ecc-off", with_gpus(host, off)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("NVIDIA GeForce RTX 4090 Laptop GPU", Outcome.SKIP), ("NVIDIA H100", Outcome.FAIL)],
)
def test_modes_that_workstation_gpus_are_sold_with_are_no_fault(name: str, outcome: Outcome) -> None:
    off = Observed.of("off", "x")
    made = replace(gpu(), name=Observed.of(name, "x"), ecc=off, ecc_pending=off, persistence=off)
    host = with_gpus(machines.host("h100"), made)
    for check in ("host-ecc-off", "host-persistence-mode-off"):
        assert said(check, host).outcome is outcome


def eight(errors: list[str]) -> Host:
    """A machine with eight GPUs on the bus, a node for each of ``errors``, and one GPU in NVML."""
    nodes = tuple(DeviceNode(f"/dev/nvidia{number}", error) for number, error in enumerate(errors))
    ours: tuple[DeviceNode, ...] = (*nodes, DeviceNode("/dev/nvidiactl"), DeviceNode("/dev/nvidia-uvm"))
    bus = tuple(PciGpu(f"0000:{number:02x}:00.0", "0x2330", "nvidia") for number in range(8))
    host = machines.host("h100")
    host = with_gpus(host, host.nvml.need("NVML").gpus[0])
    return replace(host, device_nodes=Observed.of(ours, "open"), pci_gpus=Observed.of(bus, "/sys/bus/pci/devices"))


@pytest.mark.parametrize(
    ("errors", "severities"),
    [
        ([""], [Severity.WARNING]),  # nodes are missing, or this is a container that does not show
        ([*["operation not permitted"] * 7, ""], []),  # a scheduler's job with one of the GPUs
        ([""] * 8, [Severity.ERROR]),  # seven GPUs failed to start
        ([*["input/output error"] * 7, ""], [Severity.ERROR]),  # seven GPUs fell off the bus
    ],
)
def test_gpus_handed_to_others_are_told_from_gpus_that_failed(errors: list[str], severities: list[Severity]) -> None:
    assert [finding.severity for finding in said("host-gpu-counts-differ", eight(errors)).findings] == severities


def test_gpus_withheld_by_a_scheduler_are_no_errors_unless_all_are() -> None:
    some = said("host-device-nodes-not-accessible", eight([*["operation not permitted"] * 7, ""]))
    assert some.outcome is Outcome.PASS
    every = said("host-device-nodes-not-accessible", eight(["operation not permitted"] * 8))
    assert {finding.severity for finding in every.findings} == {Severity.ERROR}


def test_wsl_on_a_machine_with_another_makers_gpu_has_none() -> None:
    nodes: tuple[DeviceNode, ...] = (DeviceNode("/dev/dxg"),)
    gone: tuple[DriverLibrary, ...] = ()
    host = replace(
        without(machines.host("h100"), "module"),
        device_nodes=Observed.of(nodes, "open"),
        pci_gpus=Observed.of((), "/sys/bus/pci/devices"),
        nvml=Observed.of(Nvml("no library", "libnvidia-ml.so.1 is not there"), "NVML"),
        driver_libraries=Observed.of(gone, "library directories"),
        modules=Observed.of((), "/sys/module"),
    )
    assert said("host-no-gpu", host).outcome is Outcome.FAIL
    assert said("host-driver-not-loaded", host).outcome is Outcome.SKIP
    assert said("host-no-gpu", without(host, "driver_libraries")).outcome is Outcome.UNKNOWN
    ours: tuple[DriverLibrary, ...] = (DriverLibrary("libcuda", "/usr/lib/wsl/lib/libcuda.so.1"),)
    nvidia = replace(host, driver_libraries=Observed.of(ours, "library directories"))
    assert said("host-no-gpu", nvidia).outcome is Outcome.PASS
    (finding,) = said("host-driver-not-loaded", nvidia).findings
    assert "modprobe" not in finding.fix
