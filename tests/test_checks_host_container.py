"""The checks of the container engine where more than one way leads to a GPU."""

from __future__ import annotations

from dataclasses import replace

import machines
import pytest
from hosts import said

from envkit.model import Observed, Outcome, Severity
from envkit.subjects import Host
from envkit.subjects.host import CdiSpec, Toolkit

HEALTHY = machines.host("h100")
LOADED = HEALTHY.module.need("the module").version
DEVICES = ("nvidia.com/gpu=0", "nvidia.com/gpu=all")


def test_engine_that_reads_other_cdi_directories_is_not_accused() -> None:
    host = machines.host("h100")
    docker = replace(
        host.docker.need("Docker"),
        runtimes=("runc",),
        cdi_dirs=Observed.of(("/opt/cdi",), "/info CDISpecDirs"),
        cdi_devices=Observed.lost("too old"),
    )
    bare = replace(host, docker=Observed.of(docker, "socket"), toolkit=Observed.of(Toolkit(), "directories"))
    assert said("host-docker-without-gpu-support", bare).outcome is Outcome.UNKNOWN
    for directory, outcome in (
        ("/etc/cdi", Outcome.FAIL),
        ("/run/cdi/", Outcome.PASS),
    ):  # the spec's is /var/run
        usual = replace(docker, cdi_dirs=Observed.of((directory,), "/info CDISpecDirs"))
        known = replace(bare, docker=Observed.of(usual, "socket"))
        assert said("host-docker-without-gpu-support", known).outcome is outcome


@pytest.mark.parametrize(
    ("lower", "severities"),
    [
        (CdiSpec("/etc/cdi/nvidia.yaml", devices=DEVICES, versions=(LOADED,)), []),
        (CdiSpec("/etc/cdi/nvidia.yaml", devices=DEVICES, versions=("470.82.01",)), [Severity.WARNING]),
        (CdiSpec("/etc/cdi/nvidia.yaml", devices=DEVICES, files=1, missing=("/x",)), [Severity.WARNING]),
        (CdiSpec("/etc/cdi/a.yaml", devices=(*DEVICES, "nvidia.com/gpu=1"), versions=("470.82.01",)), [Severity.ERROR]),
        (CdiSpec("/etc/cdi/a.yaml", error="a tab indents a line"), [Severity.ERROR]),
    ],
)
def test_specification_of_this_boot_outranks_that_of_the_machine(lower: CdiSpec, severities: list[Severity]) -> None:
    both: tuple[CdiSpec, ...] = (lower, CdiSpec("/var/run/cdi/nvidia.yaml", devices=DEVICES, versions=(LOADED,)))
    result = said("host-cdi-spec-stale", replace(HEALTHY, cdi=Observed.of(both, "/etc/cdi, /var/run/cdi")))
    assert [finding.severity for finding in result.findings] == severities


def test_engine_with_a_runtime_of_its_own_needs_no_toolkit_here() -> None:
    none: tuple[CdiSpec, ...] = ()
    bare = replace(HEALTHY, toolkit=Observed.of(Toolkit(), "directories"), cdi=Observed.of(none, "/etc/cdi"))
    docker = HEALTHY.docker.need("Docker")
    for runtimes, severity in ((("nvidia", "runc"), Severity.WARNING), (("runc",), Severity.ERROR)):
        host = replace(bare, docker=Observed.of(replace(docker, runtimes=runtimes), "socket"))
        assert [finding.severity for finding in said("host-toolkit-missing", host).findings] == [severity]


def test_device_of_two_files_is_a_fault_in_one_directory_alone() -> None:
    above = CdiSpec("/var/run/cdi/nvidia.yaml", devices=DEVICES, versions=(LOADED,))
    for path, count in (("/run/cdi/other.yaml", 1), ("/etc/cdi/nvidia.yaml", 0), ("/var/run/cdi/other.yaml", 1)):
        both: tuple[CdiSpec, ...] = (CdiSpec(path, devices=DEVICES[:1], versions=(LOADED,)), above)
        result = said(
            "host-cdi-device-defined-twice", replace(HEALTHY, cdi=Observed.of(both, "/etc/cdi, /var/run/cdi"))
        )
        assert len(result.findings) == count


def machine(**changes: object) -> Host:
    """The desk with these of its observed fields replaced by path."""
    return machines.host("desk", {name.replace("__", "."): value for name, value in changes.items()})


@pytest.mark.parametrize(
    ("devices", "outcome"),
    [
        (["0", "all"], Outcome.PASS),
        (["gpu0", "all"], Outcome.PASS),
        (["all"], Outcome.SKIP),
        (["1", "all"], Outcome.FAIL),
        (["0", "GPU-11111111-2222-3333-4444-555555555555"], Outcome.FAIL),
        (["0", "somebodys-own-name", "all"], Outcome.PASS),
    ],
)
def test_cdi_devices_by_the_names_that_the_toolkit_gives(devices: list[str], outcome: Outcome) -> None:
    host = machine(cdi__0__devices=[f"nvidia.com/gpu={name}" for name in devices])
    assert said("host-cdi-devices-differ-from-gpus", host).outcome is outcome


def test_devices_of_gpus_that_are_kept_from_this_process_are_not_asked_for() -> None:
    two = ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all"]
    withheld = {"path": "/dev/nvidia1", "error": "operation not permitted"}
    host = machines.host("desk", {"cdi.0.devices": two, "device_nodes.+": withheld})
    assert said("host-cdi-devices-differ-from-gpus", host).outcome is Outcome.SKIP


@pytest.mark.parametrize(("instances", "outcome"), [(2, Outcome.PASS), (3, Outcome.FAIL), (0, Outcome.FAIL)])
def test_mig_devices_are_as_many_as_instances(instances: int, outcome: Outcome) -> None:
    names = [f"nvidia.com/gpu={name}" for name in ("0:0", "0:1", "all")]
    changes = {"cdi.0.devices": names, "nvml.gpus.0.mig": "on", "nvml.gpus.0.mig_instances": instances}
    assert said("host-cdi-devices-differ-from-gpus", machines.host("desk", changes)).outcome is outcome


def test_mig_devices_are_counted_unless_all_go_by_uuids() -> None:
    names = [f"nvidia.com/gpu={name}" for name in ("0", "MIG-11111111-2222-3333-4444-555555555555", "all")]
    changes = {"cdi.0.devices": names, "nvml.gpus.0.mig": "on", "nvml.gpus.0.mig_instances": 2}
    result = said("host-cdi-devices-differ-from-gpus", machines.host("desk", changes))
    assert result.outcome is Outcome.UNKNOWN and "MIG devices go by UUIDs" in result.reason
    both = {**changes, "cdi.0.devices": [*names, "nvidia.com/gpu=0:0", "nvidia.com/gpu=0:1"]}
    assert said("host-cdi-devices-differ-from-gpus", machines.host("desk", both)).outcome is Outcome.PASS
    neither = {**changes, "cdi.0.devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]}
    assert said("host-cdi-devices-differ-from-gpus", machines.host("desk", neither)).outcome is Outcome.FAIL
    assert (
        said("host-cdi-devices-differ-from-gpus", machines.host("desk", {"cdi.0.devices": names})).outcome
        is Outcome.PASS
    )


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.FAIL),
        ({"podman": {"installed": True}}, Outcome.SKIP),
        ({"container": "docker"}, Outcome.SKIP),
    ],
)
def test_a_machine_without_docker_is_warned_unless_another_engine_or_a_container_explains_it(
    changes: dict[str, object], outcome: Outcome
) -> None:
    none = {"containerd", "crio", "podman", "enroot"} - set(changes)
    absent: dict[str, object] = {name: {"installed": False} for name in none} | {"container": "none"}
    docker = {"ended": "no socket", "detail": "the socket does not exist", "installed": False}
    result = said("host-docker-unreachable", machines.host("h100", {"docker": docker, **absent, **changes}))
    assert result.outcome is outcome
    assert [finding.message for finding in result.findings] == ["Docker is not installed"] * (outcome is Outcome.FAIL)
    unseen = {name: {"missing": "it was not looked for"} for name in none}
    if not changes:  # what was not looked for is no other engine
        result = said("host-docker-unreachable", machines.host("h100", {"docker": docker, **absent, **unseen}))
        assert result.outcome is Outcome.FAIL


def test_podman_in_dockers_place_is_not_judged_as_docker() -> None:
    host = machine(docker__product="podman", docker__cdi_dirs=None)
    for check in (
        "host-docker-without-gpu-support",
        "host-docker-gpus-option-unsupported",
        "host-cdi-disabled-in-docker",
        "host-docker-too-old",
    ):
        result = said(check, host)
        assert result.outcome is Outcome.SKIP
        assert "podman" in result.reason


@pytest.mark.parametrize(
    ("endpoint", "outcome"),
    [
        ("unix:///run/docker.sock", Outcome.FAIL),
        ("unix:///mnt/tree/var/run/docker.sock", Outcome.FAIL),
        ("unix:///run/user/1000/docker.sock", Outcome.SKIP),
        ("unix:///home/me/.docker/run/docker.sock", Outcome.SKIP),
        ("tcp://127.0.0.1:2375", Outcome.SKIP),
    ],
)
def test_only_the_machines_own_engine_is_held_to_the_machines_file(endpoint: str, outcome: Outcome) -> None:
    host = machine(docker__endpoint=endpoint, docker__runtimes=["runc"])
    assert said("host-docker-config-not-applied", host).outcome is outcome


@pytest.mark.parametrize(
    ("version", "worst"),
    [
        ("1.16.1", "CVE-2024-0132"),
        ("1.17.4", "CVE-2025-23266"),
        ("1.17.8", "CVE-2026-24260"),
        ("1.19.1", ""),
        ("1.20.0", ""),
        ("1.20.0-rc.1", ""),
        ("1.19.1-rc.1", "CVE-2026-24260"),
    ],
)
def test_toolkit_is_held_against_the_bulletins(version: str, worst: str) -> None:
    findings = said("host-toolkit-vulnerable", machine(toolkit__version=version)).findings
    assert len(findings) == bool(worst)
    assert not findings or worst in findings[0].message
    assert not findings or "1.19.1" in findings[0].fix


def test_toolkit_version_that_is_none_is_unknown() -> None:
    assert said("host-toolkit-vulnerable", machine(toolkit__version="dev")).outcome is Outcome.UNKNOWN


def test_desktop_of_docker_has_the_gpu_under_wsl() -> None:
    desktop = machine(docker__system="Docker Desktop")
    assert said("host-docker-desktop-or-snap", desktop).outcome is Outcome.FAIL
    nodes = {"device_nodes": [{"path": "/dev/dxg"}], "docker.system": "Docker Desktop"}
    assert said("host-docker-desktop-or-snap", machines.host("desk", nodes)).outcome is Outcome.PASS


@pytest.mark.parametrize(("docker", "severity"), [(True, Severity.WARNING), (False, Severity.ERROR)])
def test_podman_without_cdi_weighs_less_beside_docker(docker: bool, severity: Severity) -> None:
    changes: dict[str, object] = {"cdi": []}
    if not docker:
        changes["docker"] = {"ended": "no socket", "detail": "the socket does not exist", "installed": False}
    (finding,) = said("host-podman-without-gpu-support", machines.host("desk", changes)).findings
    assert finding.severity is severity
