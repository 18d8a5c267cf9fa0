"""The checks of a machine: against their pages, against lost sources, and on recorded machines."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hosts import CHECKS, FACTS, recorded, said, without

from envkit import judge
from envkit.model import Observed, Outcome, Report, Severity, Subject
from envkit.subjects import Host
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.host import DeviceNode

PAGES = Path(judge.__file__).parent / "kb"
OUTCOMES = {"fails": "fail", "passes": "pass", "skips": "skip", "unknown": "unknown"}
SOURCES = [field.name for field in fields(Host) if field.name not in ("name", "wanted_cuda")]


def blocks(check: str) -> list[tuple[str, Host]]:
    text = (PAGES / f"{check}.md").read_text()
    found = re.findall(r"^```json host (\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(kind, from_plain(Host, json.loads(body))) for kind, body in found]


CASES = [
    pytest.param(check, kind, host, id=f"{check}-{kind}-{number}")
    for check in CHECKS
    for number, (kind, host) in enumerate(blocks(check))
]
FAULTS = [case for case in CASES if case.values[1] == "fails"]


@pytest.mark.parametrize(("check", "kind", "host"), CASES)
def test_page_block_has_the_outcome_it_claims(check: str, kind: str, host: Host) -> None:
    result = said(check, host)
    assert result.outcome == OUTCOMES[kind], result


@pytest.mark.parametrize("check", CHECKS)
def test_page_proves_both_ways(check: str) -> None:
    kinds = {kind for kind, _ in blocks(check)}
    assert {"fails", "passes", "unknown"} <= kinds


@pytest.mark.parametrize(("check", "kind", "host"), FAULTS)
def test_finding_speaks_in_the_house_style(check: str, kind: str, host: Host) -> None:
    for finding in said(check, host).findings:
        assert not finding.message.endswith(".")
        assert "\n" not in finding.message
        assert finding.fix
        assert not finding.fix.endswith(".")
        assert finding.evidence or finding.where


@pytest.mark.parametrize(("check", "kind", "host"), FAULTS)
def test_lost_source_never_turns_a_fault_into_a_pass(check: str, kind: str, host: Host) -> None:
    for source in SOURCES:
        blind = without(host, source)
        assert said(check, blind).outcome is not Outcome.PASS, source


def test_block_in_plain_json_survives_a_round_trip() -> None:
    for name in ("no-gpu.json", "h100.json", "healthy-h100.json"):
        host = recorded(name)
        assert from_plain(Host, json.loads(json.dumps(to_plain(host)))) == host


# which checks must not pass any more when a source is gone; checks with a second source for the same value
# are proven in test_only_source_left below
NEEDS = {
    "glibc": ["host-glibc-runs-wheels"],
    "cgroup": ["host-cgroup-v2"],
    "pci_gpus": ["host-gpus-bound-to-nvidia", "host-gpu-counts-agree"],
    "device_nodes": ["host-device-nodes-open", "host-gpu-counts-agree"],
    "modules": ["host-nouveau-absent"],
    "module": [],
    "driver_libraries": ["host-driver-libraries-present", "host-driver-libraries-match-module"],
    "nvml": [
        "host-nvml-answers",
        "host-gpu-counts-agree",
        "host-persistence-on",
        "host-ecc-on",
        "host-ecc-no-uncorrected",
        "host-row-remap-healthy",
        "host-no-recovery-action",
    ],
    "docker": [
        "host-docker-reachable",
        "host-docker-config-valid",
        "host-docker-reaches-gpu",
        "host-cdi-present",
        "host-cdi-enabled",
    ],
    "daemon_config": ["host-docker-config-valid"],
    "cdi": ["host-cdi-present", "host-cdi-enabled", "host-cdi-fresh"],
    "toolkit": ["host-toolkit-installed"],
    "shm": ["host-shm-size"],
    "disks": ["host-disk-free"],
    "limits": ["host-limits"],
    "infiniband": ["host-limits"],
    "log": ["host-xid-free", "host-driver-log-clean"],
    "environment": ["host-visible-devices-valid"],
    "cuda_on_path": ["host-library-path-clean"],
}


def test_every_check_passes_on_the_healthy_machine() -> None:
    results = judge.judge(recorded("healthy-h100.json"), FACTS)
    outcomes = {result.check: (result.outcome.value, result.reason or result.findings) for result in results}
    assert {check: said for check, said in outcomes.items() if said[0] != "pass"} == {}
    assert len(outcomes) >= 31


@pytest.mark.parametrize("source", NEEDS)
def test_lost_source_costs_its_checks_their_pass(source: str) -> None:
    blind = without(recorded("healthy-h100.json"), source)
    passed = [check for check in NEEDS[source] if said(check, blind).outcome is Outcome.PASS]
    assert passed == []


@pytest.mark.parametrize(
    ("sources", "check"),
    [
        (("module", "nvml"), "host-driver-meets-cuda"),
        (("module", "nvml"), "host-cdi-fresh"),
        (("module", "nvml"), "host-driver-libraries-match-module"),
        (("module", "nvml", "modules"), "host-driver-loaded"),
        (("pci_gpus", "device_nodes", "nvml"), "host-gpu-present"),
    ],
)
def test_all_sources_of_a_value_gone_is_unknown(sources: tuple[str, ...], check: str) -> None:
    assert said(check, without(recorded("healthy-h100.json"), *sources)).outcome is Outcome.UNKNOWN


def test_every_source_is_either_needed_or_told_for_information() -> None:
    assert set(SOURCES) - set(NEEDS) == {"kernel", "os"}


def test_nothing_observed_passes_nothing_and_finds_nothing() -> None:
    results = judge.judge(Host("blank"), FACTS)
    assert {result.outcome for result in results} <= {Outcome.UNKNOWN, Outcome.SKIP}
    assert Report(Subject("host", "blank"), results).exit_code() == 3


def test_machine_without_gpu_is_one_error_and_no_doubt() -> None:
    results = judge.judge(recorded("no-gpu.json"), FACTS)
    errors = [
        result.check for result in results if any(finding.severity >= Severity.ERROR for finding in result.findings)
    ]
    assert errors == ["host-gpu-present"]
    assert [result for result in results if result.outcome in (Outcome.UNKNOWN, Outcome.BROKE)] == []
    assert Report(Subject("host", "no-gpu"), results).exit_code() == 1
    drivers = {result.check: result for result in results if result.check.startswith("host-driver-")}
    assert {result.reason for result in drivers.values()} == {"no NVIDIA GPU on this machine"}


def test_recorded_h100_is_clean_but_for_the_missing_engine() -> None:
    results = judge.judge(recorded("h100.json"), FACTS)
    assert Report(Subject("host", "h100"), results).exit_code() == 0
    found = [result.check for result in results if result.findings and result.check != "host-cgroup-v2"]
    assert found == ["host-docker-reachable"]


@pytest.mark.parametrize(
    ("check", "number", "severity"),
    [
        ("host-nouveau-absent", 0, Severity.ERROR),
        ("host-nouveau-absent", 1, Severity.WARNING),
        ("host-gpus-bound-to-nvidia", 0, Severity.ERROR),
        ("host-gpus-bound-to-nvidia", 1, Severity.WARNING),
        ("host-driver-meets-cuda", 0, Severity.ERROR),
        ("host-driver-meets-cuda", 1, Severity.WARNING),
        ("host-row-remap-healthy", 0, Severity.ERROR),
        ("host-row-remap-healthy", 1, Severity.WARNING),
        ("host-row-remap-healthy", 2, Severity.ERROR),
        ("host-xid-free", 0, Severity.ERROR),
        ("host-xid-free", 1, Severity.WARNING),
        ("host-docker-reachable", 0, Severity.ERROR),
        ("host-docker-reachable", 1, Severity.WARNING),
        ("host-shm-size", 0, Severity.ERROR),
        ("host-shm-size", 1, Severity.WARNING),
        ("host-disk-free", 0, Severity.ERROR),
        ("host-disk-free", 1, Severity.WARNING),
        ("host-library-path-clean", 1, Severity.ERROR),
        ("host-library-path-clean", 2, Severity.WARNING),
    ],
)
def test_severity_of_a_page_fault(check: str, number: int, severity: Severity) -> None:
    faults = [host for kind, host in blocks(check) if kind == "fails"]
    assert {finding.severity for finding in said(check, faults[number]).findings} == {severity}


def test_wsl_is_judged_without_the_kernel_driver_it_does_not_have() -> None:
    host = recorded("healthy-h100.json")
    nodes: tuple[DeviceNode, ...] = (DeviceNode("/dev/dxg"),)
    wsl = replace(
        without(host, "module"),
        device_nodes=Observed.of(nodes, "open"),
        pci_gpus=Observed.of((), "/sys/bus/pci/devices"),
        modules=Observed.of((), "/sys/module"),
    )
    outcomes = {result.check: result.outcome for result in judge.judge(wsl, FACTS)}
    for check in ("host-gpu-counts-agree", "host-driver-libraries-match-module", "host-gpus-bound-to-nvidia"):
        assert outcomes[check] is Outcome.SKIP
    for check in ("host-gpu-present", "host-driver-loaded", "host-device-nodes-open"):
        assert outcomes[check] is Outcome.PASS
    assert Outcome.UNKNOWN not in outcomes.values()
