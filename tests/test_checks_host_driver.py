"""The checks of the driver where a machine differs from the ordinary on purpose."""

from __future__ import annotations

from dataclasses import replace

import machines
import pytest
from hosts import CHECKS, said, without

from envkit.host.log import parse_log
from envkit.model import Observed, Outcome, Severity
from envkit.subjects.host import DeviceNode, DriverLibrary, LogLine

HEALTHY = machines.host("h100")
LOADED = HEALTHY.module.need("the module").version


@pytest.mark.parametrize(
    ("path", "version", "severities"),
    [
        ("/usr/local/cuda/compat/libcuda.so.1", "999.10.01", [Severity.WARNING]),
        ("/usr/local/cuda/compat/libcuda.so.1", "470.82.01", [Severity.ERROR]),
        ("/usr/lib/libcuda.so.1", "999.10.01", [Severity.ERROR]),
        ("/usr/lib/libcuda.so.1", LOADED, []),
    ],
)
def test_newer_libcuda_of_cuda_compat_is_no_broken_driver(path: str, version: str, severities: list[Severity]) -> None:
    both: tuple[DriverLibrary, ...] = (
        DriverLibrary("libcuda", "/usr/lib64/libcuda.so.1", LOADED),
        DriverLibrary("libcuda", path, version),
    )
    host = replace(HEALTHY, driver_libraries=Observed.of(both, "library directories"))
    result = said("host-driver-library-version-mismatch", host)
    assert [finding.severity for finding in result.findings] == severities


def test_cuda_compat_alone_does_not_tell_the_drivers_libraries() -> None:
    alone: tuple[DriverLibrary, ...] = (DriverLibrary("libcuda", "/usr/local/cuda/compat/libcuda.so.1", LOADED),)
    host = replace(HEALTHY, driver_libraries=Observed.of(alone, "library directories"))
    assert said("host-driver-library-version-mismatch", host).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("modules", "severity"),
    [
        (("nvidia",), Severity.WARNING),  # booted, and no CUDA program has run yet
        (("nvidia", "nvidia_uvm"), Severity.ERROR),  # a container that was not given the node
        (None, Severity.ERROR),
    ],
)
def test_missing_uvm_node_is_an_error_where_its_module_is_loaded(
    modules: tuple[str, ...] | None, severity: Severity
) -> None:
    nodes: tuple[DeviceNode, ...] = (DeviceNode("/dev/nvidia0"), DeviceNode("/dev/nvidiactl"))
    host = replace(without(HEALTHY, "modules"), device_nodes=Observed.of(nodes, "open"))
    if modules is not None:
        host = replace(host, modules=Observed.of(modules, "/sys/module"))
    assert [finding.severity for finding in said("host-device-nodes-not-accessible", host).findings] == [severity]


@pytest.mark.parametrize("loaded", [True, False])
def test_a_refused_module_is_an_error_where_no_other_was_let_in(loaded: bool) -> None:
    line = LogLine("nvidia: loading of module with unavailable key is rejected")
    host = replace(HEALTHY, log=Observed.of((line,), "/dev/kmsg"))
    if not loaded:
        host = replace(without(host, "module", "nvml"), modules=Observed.of((), "/sys/module"))
    (finding,) = said("host-driver-module-or-gpu-rejected", host).findings
    assert finding.severity is (Severity.WARNING if loaded else Severity.ERROR)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: API mismatch: the client has the version 1, but this kernel module has 2",
        "NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x26:0xffff:1290)",
    ],
)
def test_one_line_of_the_log_is_one_finding(text: str) -> None:
    host = replace(HEALTHY, log=Observed.of(parse_log([text]), "/dev/kmsg"))
    assert len([check for check in CHECKS if said(check, host).findings]) == 1


def test_unreadable_log_says_who_may_read_it() -> None:
    for check in ("host-driver-module-or-gpu-rejected", "host-other-xid"):
        result = said(check, without(HEALTHY, "log"))
        assert result.outcome is Outcome.UNKNOWN
        assert "systemd-journal" in result.reason
