"""What the pages do not show of the judgement of fabrics, RDMA devices and NCCL's variables."""

from __future__ import annotations

from itertools import product
from typing import Any

import answers
import machines
import pytest
from gathered import gathered

from envkit import facts
from envkit.judging import judge
from envkit.model import Outcome, Result, Severity
from envkit.subjects import Host
from envkit.subjects.codec import from_plain

CHECKS = judge.checks()
FACTS = facts.load()
MINE = [
    name
    for name, check in CHECKS.items()
    if check.judge.__module__.rsplit(".", 1)[-1]
    in ("host_fabric", "host_infiniband", "host_rdma", "host_nccl", "host_network")
]


def said(check: str, changes: dict[str, Any], machine: str = "h100") -> Result:
    return answers.judged(check, machines.host(machine, changes))


def ports(*numbers: int, **values: object) -> dict[str, Any]:
    return {f"infiniband.{number}.ports.0.{name}": value for number in numbers for name, value in values.items()}


DOWN = {"state": "DOWN", "physical": "Polling"}


@gathered(product(MINE, machines.NAMES))
def test_no_check_fires_or_doubts_on_a_healthy_machine(check: str, machine: str) -> None:
    result = said(check, {}, machine)
    assert result.outcome in (Outcome.PASS, Outcome.SKIP), result


IN_A_CONTAINER = {
    "fabric_daemons": {"running": [], "whole": False},
    "services": {},
    "infiniband.*.verbs": "no node",
    "infiniband.*.nets": [],
    "fabric_log.present": False,
    "gdrdrv": "absent",
}


@gathered(MINE)
def test_no_check_fires_or_doubts_in_a_container_of_a_healthy_machine(check: str) -> None:
    result = said(check, IN_A_CONTAINER)
    assert result.outcome in (Outcome.PASS, Outcome.SKIP), result


def test_an_ordinary_user_is_left_with_doubt_only_where_the_card_data_decide() -> None:
    changes = {"switch_managers": {"value": None, "via": "/sys", "missing": "permission denied"}}
    outcomes = {check: said(check, changes).outcome for check in MINE}
    doubted = {check for check, outcome in outcomes.items() if outcome is Outcome.UNKNOWN}
    assert doubted == {"host-nvlsm-not-running", "host-nvswitch-management-nic-not-ready"}
    assert Outcome.FAIL not in outcomes.values()
    # a fault may be that of a card that manages NVSwitches, whose ports are nobody else's business
    down = said("host-infiniband-port-down", {**changes, **ports(3, **DOWN)})
    assert down.outcome is Outcome.UNKNOWN and "permission denied" in down.reason


def test_without_a_fabric_no_card_manages_switches_whoever_asks() -> None:
    changes = {
        "switch_managers": None,
        "fabric_cards": [],
        "nvml.gpus.*.fabric": {"value": None, "via": "nvml", "missing": "not supported"},
    }
    assert said("host-nvlsm-not-running", changes).outcome is Outcome.SKIP
    assert said("host-infiniband-port-down", {**changes, **ports(3, **DOWN)}).outcome is Outcome.FAIL


def test_a_card_that_manages_switches_is_compared_with_nobody() -> None:
    changes = {
        "switch_managers": ["0000:5e:00.0"],
        "fabric_cards": [{"address": "0000:5e:00.0", "kind": "infiniband", "driver": "mlx5_core"}],
        **ports(3, **DOWN, rate=100.0),
    }
    for check in ("host-infiniband-port-down", "host-rdma-rates-differ"):
        assert said(check, changes).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("down", "severity"),
    [((3,), Severity.ERROR), ((1, 2, 3), Severity.ERROR), ((0, 1, 2, 3), Severity.WARNING), (range(8), Severity.NOTE)],
)
def test_how_many_whole_cards_make_a_missing_link_an_error(down: tuple[int, ...], severity: Severity) -> None:
    findings = said("host-infiniband-port-down", ports(*down, **DOWN)).findings
    assert {finding.severity for finding in findings} == {severity}
    assert len(findings) == (len(down) if len(down) < 8 else 1)


def test_two_functions_are_one_card_and_the_unused_port_of_each_is_no_fault() -> None:
    addresses = {f"infiniband.{number}.pci": f"0000:{0x18 + number // 2:02x}:00.{number % 2}" for number in range(8)}
    unused = ports(1, 3, 5, 7, **DOWN)
    assert said("host-infiniband-port-down", {**addresses, **unused}).outcome is Outcome.PASS
    (finding,) = said("host-infiniband-port-down", {**addresses, **unused, **ports(2, **DOWN)}).findings
    assert "mlx5_2 port 1 (0000:19:00.0) is DOWN (Polling)" in finding.message


def test_a_card_of_another_kind_without_a_cable_is_no_fault() -> None:
    other = {"infiniband.3.board": "MT_0000000223", "infiniband.4.board": "MT_0000000224"}
    assert said("host-infiniband-port-down", {**other, **ports(3, **DOWN)}).outcome is Outcome.PASS


def test_a_virtual_function_beside_its_own_card_is_not_judged() -> None:
    changes = {**ports(3, **DOWN), "infiniband.3.virtual": True}
    assert said("host-infiniband-port-down", changes).outcome is Outcome.PASS


def test_a_fault_outranks_a_doubt() -> None:
    both = {**ports(3, **DOWN), **ports(4, state=None)}
    assert said("host-infiniband-port-down", both).outcome is Outcome.FAIL
    assert said("host-infiniband-no-subnet-manager", {**ports(3, state="INIT"), **ports(4, state=None)}).findings
    assert said("host-infiniband-port-down", ports(4, state=None)).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(("seconds", "count", "fails"), [(60.0, 121, True), (60.0, 120, False), (7200.0, 241, True)])
def test_the_first_hour_counts_whole(seconds: float, count: int, fails: bool) -> None:
    changes = {"infiniband.2.counting_s": seconds, "infiniband.2.ports.0.counters.symbol_error": count}
    assert bool(said("host-infiniband-link-errors", changes).findings) is fails


@pytest.mark.parametrize(
    ("value", "severities"),
    [
        ("mlx5", []),
        ("=mlx5_0", []),
        ("=mlx5_0:1,mlx5_7:1", []),
        ("^mlx5_3", []),
        ("^=mlx5_3", []),
        ("mlx5_9", ["error"]),
        ("^mlx", ["error"]),
        ("=mlx5", ["error"]),
        ("mlx5_0,ib0", ["warning"]),
    ],
)
def test_nccl_takes_devices_by_beginning_whole_name_or_exclusion(value: str, severities: list[str]) -> None:
    findings = said("host-nccl-hca-invalid", {"environment.NCCL_IB_HCA": value}).findings
    assert [finding.severity.name.lower() for finding in findings] == severities


def test_the_environment_wins_over_nccls_files() -> None:
    changes = {"nccl_conf": {"NCCL_DEBUG": "INFO"}}
    assert said("host-nccl-debug-left-on", changes).findings
    assert said("host-nccl-debug-left-on", {**changes, "environment.NCCL_DEBUG": "WARN"}).outcome is Outcome.PASS


def test_a_variable_without_rdma_devices_is_a_warning() -> None:
    (finding,) = said("host-nccl-hca-invalid", {"environment.NCCL_IB_HCA": "mlx5"}, "desk").findings
    assert finding.severity is Severity.WARNING


def test_one_gpu_has_no_peer_to_lose() -> None:
    machine = machines.changed(machines.plain("h100"), {"environment.NCCL_P2P_DISABLE": "1"})
    check = CHECKS["host-nccl-transport-disabled"]
    assert judge.run(check, from_plain(Host, machine), FACTS).findings
    machine["nvml"]["value"]["gpus"] = machine["nvml"]["value"]["gpus"][:1]
    assert judge.run(check, from_plain(Host, machine), FACTS).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("package", "outcome"),
    [
        ("580.159.04-1", Outcome.PASS),
        ("1:580.159.04-0ubuntu1", Outcome.PASS),
        ("580.159.03-1", Outcome.FAIL),
        ("2025.06.5-1", Outcome.UNKNOWN),
    ],
)
def test_a_driver_version_inside_a_package_version(package: str, outcome: Outcome) -> None:
    result = said("host-fabric-manager-driver-mismatch", {"packages.nvidia-fabricmanager": package})
    assert result.outcome is outcome


def test_a_stray_fabric_manager_on_a_machine_without_switches_is_no_fault() -> None:
    changes = {
        "packages.nvidia-fabricmanager": "570.1.2-1",
        "services.nvidia-fabricmanager": {"load": "loaded", "active": "failed", "enabled": "disabled", "restarts": 9},
        "fabric_log": {"present": True, "count": 1, "lines": ["[x] [ERROR] failed with error:WARNING Nothing to do"]},
    }
    for check in (name for name in MINE if name.startswith("host-fabric")):
        assert said(check, changes, "desk").outcome is Outcome.SKIP, check
