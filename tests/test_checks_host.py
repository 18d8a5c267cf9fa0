"""The checks of a machine: against their pages, against lost sources, and on recorded machines."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import machines
import pytest
from gathered import gathered
from hosts import CHECKS, FACTS, recorded, said, without

from envkit.judging import judge, pages
from envkit.model import Observed, Outcome, Report, Severity, Subject
from envkit.subjects import Host
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.host import DeviceNode

SOURCES = [
    field.name for field in fields(Host) if field.name not in ("name", "wanted_cuda", "expected", "newer_fields")
]


def faults(check: str) -> list[Host]:
    """The faulty machines on a check's page."""
    shown = [one for one in pages.load(check).examples if (one.kind, one.outcome) == ("host", "fails")]
    found = []
    for one in shown:
        data = json.loads(one.text)
        found.append(machines.host(data.pop("on"), data) if "on" in data else from_plain(Host, data))
    return found


FAULTS = [
    pytest.param(check, host, id=f"{check}-{number}") for check in CHECKS for number, host in enumerate(faults(check))
]


@gathered(FAULTS)
def test_finding_speaks_in_the_house_style(check: str, host: Host) -> None:
    for finding in said(check, host).findings:
        assert not finding.message.endswith(".")
        assert "\n" not in finding.message
        assert finding.fix
        assert not finding.fix.endswith(".")
        assert finding.evidence or finding.where


@pytest.mark.slow  # judges every fault once for each source
@gathered(FAULTS)
def test_lost_source_never_turns_a_fault_into_a_pass(check: str, host: Host) -> None:
    for source in SOURCES:
        blind = without(host, source)
        assert said(check, blind).outcome is not Outcome.PASS, source


@pytest.mark.parametrize("name", machines.NAMES)
def test_a_machine_in_plain_json_survives_a_round_trip(name: str) -> None:
    host = machines.host(name)
    assert from_plain(Host, json.loads(json.dumps(to_plain(host)))) == host


@pytest.mark.parametrize(
    ("sources", "check"),
    [
        (("module", "nvml"), "host-driver-too-old-for-cuda"),
        (("module", "nvml"), "host-cdi-spec-stale"),
        (("module", "nvml"), "host-driver-library-version-mismatch"),
        (("module", "nvml", "modules"), "host-driver-not-loaded"),
        (("pci_gpus", "device_nodes", "nvml"), "host-no-gpu"),
    ],
)
def test_all_sources_of_a_value_gone_is_unknown(sources: tuple[str, ...], check: str) -> None:
    assert said(check, without(machines.host("h100"), *sources)).outcome is Outcome.UNKNOWN


def test_nothing_observed_passes_nothing_and_finds_nothing() -> None:
    results = judge.judge(Host("blank"), FACTS)
    assert {result.outcome for result in results} <= {Outcome.UNKNOWN, Outcome.SKIP}
    assert Report(Subject("host", "blank"), results).exit_code() == 3


def test_machine_without_gpu_is_one_error_and_no_doubt() -> None:
    results = judge.judge(machines.host("bare"), FACTS)
    errors = [
        result.check for result in results if any(finding.severity >= Severity.ERROR for finding in result.findings)
    ]
    assert errors == ["host-no-gpu"]
    assert [result for result in results if result.outcome in (Outcome.UNKNOWN, Outcome.CRASHED)] == []
    assert Report(Subject("host", "no-gpu"), results).exit_code() == 1
    drivers = {result.check: result for result in results if result.check.startswith("host-driver-")}
    assert {result.reason for result in drivers.values()} == {"no NVIDIA GPU on this machine"}


def test_a_recording_of_an_older_envkit_finds_nothing_and_is_undecided() -> None:
    """A real H100, saved before most sources were read: what was not looked at leaves it open, and nothing alarms."""
    results = judge.judge(recorded("h100-of-an-older-envkit.json"), FACTS)
    assert Report(Subject("host", "h100"), results).exit_code() == 3
    errors = [one.check for one in results if any(each.severity is Severity.ERROR for each in one.findings)]
    assert errors == []


def test_wsl_is_judged_without_the_kernel_driver_it_does_not_have() -> None:
    host = machines.host("h100")
    nodes: tuple[DeviceNode, ...] = (DeviceNode("/dev/dxg"),)
    wsl = replace(
        host,
        module=machines.host("bare").module,
        device_nodes=Observed.of(nodes, "open"),
        pci_gpus=Observed.of((), "/sys/bus/pci/devices"),
        modules=Observed.of((), "/sys/module"),
    )
    outcomes = {result.check: result.outcome for result in judge.judge(wsl, FACTS)}
    for check in (
        "host-gpu-counts-differ",
        "host-driver-library-version-mismatch",
        "host-gpu-not-bound-to-nvidia-driver",
    ):
        assert outcomes[check] is Outcome.SKIP
    for check in ("host-no-gpu", "host-driver-not-loaded", "host-device-nodes-not-accessible"):
        assert outcomes[check] is Outcome.PASS
    assert [check for check, outcome in outcomes.items() if outcome is Outcome.UNKNOWN] == []
