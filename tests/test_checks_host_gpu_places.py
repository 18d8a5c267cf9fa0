"""The checks of GPUs in places that are healthy and look otherwise, and where a faulty value cannot be seen."""

from __future__ import annotations

import json
from typing import Any

import answers
import machines
import pytest
from gathered import gathered
from hosts import CHECKS, FACTS

from envkit.judging import judge, pages
from envkit.model import Outcome, Result, Severity
from envkit.subjects import Host

MODULES = {
    f"envkit.judging.checks.{name}"
    for name in ("host_gpu", "host_gpu_memory", "host_gpu_clocks", "host_gpu_use", "host_gpu_link", "host_nvlink")
}
MINE = {name: check for name, check in CHECKS.items() if check.judge.__module__ in MODULES}
EVERY = "nvml.gpus.*."


def unsupported(via: str = "NVML") -> dict[str, Any]:
    return {"value": None, "via": via, "missing": "not supported"}


def results(host: Host) -> dict[str, Result]:
    return {name: answers.judged(name, host) for name in MINE}


def trouble(host: Host) -> dict[str, object]:
    """What is neither passed nor skipped, and why."""
    return {
        name: result.reason or [finding.message for finding in result.findings]
        for name, result in results(host).items()
        if result.outcome not in (Outcome.PASS, Outcome.SKIP)
    }


def gpus(name: str, count: int) -> list[Any]:
    """The first GPUs of a machine; their peers beyond are taken out."""
    found: list[Any] = machines.plain(name)["nvml"]["value"]["gpus"][:count]
    for gpu in found:
        gpu["p2p"]["value"] = {peer: why for peer, why in gpu["p2p"]["value"].items() if int(peer) < count}
    return found


def with_gpus(name: str, count: int, changes: dict[str, Any]) -> Host:
    """A machine with so many of its GPUs, on the bus and in /dev too."""
    plain = machines.plain(name)
    nodes = [
        node
        for node in plain["device_nodes"]["value"]
        if not node["path"].removeprefix("/dev/nvidia").isdigit()
        or int(node["path"].removeprefix("/dev/nvidia")) < count
    ]
    bus = plain["pci_gpus"]["value"][:count]
    return machines.host(name, {"nvml.gpus": gpus(name, count), "device_nodes": nodes, "pci_gpus": bus, **changes})


JOB = {"pid": 4711, "kind": "compute", "memory": 70 << 30, "name": "python3", "mine": True}
NO_LINKS = {EVERY + "links": unsupported(), EVERY + "fabric": unsupported()}
LOADED = {
    EVERY + "utilization": 100,
    EVERY + "power.draw": 698000,
    EVERY + "clocks.sm": 1455,
    EVERY + "throttle": ["sw power cap"],
    EVERY + "temperature.now": 74,
    EVERY + "memory_used": 70 << 30,
    EVERY + "processes": [JOB],
    "nvml.gpus.0.temperature.now": 61,
    "nvml.gpus.3.utilization": 35,  # waits in a collective
    "nvml.gpus.3.power.draw": 250000,
}
MIG = {
    EVERY + "mig": "on",
    EVERY + "mig_pending": "on",
    EVERY + "mig_instances": 7,
    EVERY + "utilization": unsupported(),
    EVERY + "processes": None,  # root alone is told
    EVERY + "links.*.active": False,
    EVERY + "memory_used": 40 << 30,
}
PLACES = {
    "a node at work": machines.host("h100", LOADED),
    "a node at work seen from a container": machines.host(
        "h100", {**LOADED, EVERY + "processes": [], "container": "docker"}
    ),
    "a node seen by an ordinary user": machines.host("h100", {EVERY + "sram": None}),
    "a node whose GPUs are cut into instances": machines.host("h100", MIG),
    "a virtual machine with one GPU of a board": with_gpus(
        "h100", 1, {EVERY + "links.*.active": False, EVERY + "fabric": unsupported(), EVERY + "virtual": "passthrough"}
    ),
    "a virtual machine with four cards": with_gpus(
        "h100",
        4,
        {
            **NO_LINKS,
            EVERY + "name": "NVIDIA L4",
            EVERY + "virtual": "passthrough",
            EVERY + "p2p": {"9": "chipset not supported"},
            EVERY + "mig": "unsupported",
            EVERY + "mig_pending": unsupported(),
        },
    ),
    "a small card at its power limit": with_gpus(
        "h100",
        1,
        {
            **NO_LINKS,
            EVERY + "name": "Tesla T4",
            EVERY + "utilization": 100,
            EVERY + "clocks": {"sm": 645, "most_sm": 1590, "application_sm": 0},
            EVERY + "throttle": ["sw power cap"],
            EVERY + "power": {"draw": 69500, "limit": 70000, "default": 70000, "least": 60000, "most": 70000},
            EVERY + "processes": [JOB],
            EVERY + "retired": {"single_bit": 1, "double_bit": 0},
        },
    ),
    "a virtual GPU": with_gpus(
        "desk",
        1,
        {
            EVERY + field: unsupported()
            for field in ("temperature", "power", "clocks", "throttle", "throttled_us", "pcie", "inforom", "display")
        }
        | {EVERY + "name": "GRID A100-20C", EVERY + "virtual": "vgpu", EVERY + "ecc": "unsupported"}
        | {EVERY + "processes": []},
    ),
    "a laptop on its battery": machines.host(
        "desk",
        {
            EVERY + "name": "NVIDIA GeForce RTX 4070 Laptop GPU",
            EVERY + "persistence": "off",
            EVERY + "power": {"draw": 800, "limit": 35000, "default": 80000, "least": 5000, "most": 140000},
            EVERY + "pcie": {"generation": 1, "width": 4, "most_generation": 4, "most_width": 8},
            EVERY + "throttled_us": {"hw thermal": 10**10, "hw power brake": 10**10},
        },
    ),
    "two bridged cards and two without": with_gpus(
        "h100",
        4,
        {
            EVERY + "name": "NVIDIA RTX A6000",
            EVERY + "fabric": unsupported(),
            EVERY + "links.*.remote": "gpu",
            EVERY + "links.*.speed": 14062,
            "nvml.gpus.2.links.*.active": False,
            "nvml.gpus.3.links.*.active": False,
            EVERY + "ecc": "off",
            EVERY + "ecc_pending": "off",
            EVERY + "p2p": {"2": "topology not supported"},
        },
    ),
    "a superchip whose memory the kernel uses": with_gpus(
        "h100", 1, {**NO_LINKS, EVERY + "name": "NVIDIA GH200 480GB", EVERY + "memory_used": 60 << 30}
    ),
    "a node with an MPS server at work": machines.host(
        "h100",
        {
            EVERY + "compute_mode": "exclusive process",
            EVERY + "processes": [
                {"pid": 900, "kind": "compute", "memory": 30 << 20, "name": "nvidia-cuda-mps", "mine": False},
                {"pid": 901, "kind": "mps", "memory": 2 << 30, "name": "python3", "mine": True},
            ],
        },
    ),
    "a node whose GPUs are partitioned alike": machines.host("h100", {EVERY + "fabric.clique": 7}),
}


def test_all_checks_of_gpus_are_looked_at() -> None:
    assert len(MINE) >= 45


@pytest.mark.parametrize("place", PLACES)
def test_a_healthy_place_raises_no_alarm(place: str) -> None:
    assert trouble(PLACES[place]) == {}


@pytest.mark.parametrize("whose", [{"mine": False}, {}], ids=["of another", "of nobody known"])
def test_a_shared_node_is_noted_and_no_more(whose: dict[str, bool]) -> None:
    job = {name: value for name, value in JOB.items() if name != "mine"}
    host = machines.host("h100", {**LOADED, EVERY + "processes": [{**job, **whose}]})
    assert set(trouble(host)) == {"host-gpu-used-by-other-user"}
    assert {finding.severity for finding in results(host)["host-gpu-used-by-other-user"].findings} == {Severity.NOTE}


def test_beside_a_lost_gpu_nothing_passes_for_all_of_them() -> None:
    dark = {f"nvml.gpus.3.{field}": None for field in gpus("h100", 1)[0] if field != "index"}
    said = results(machines.host("h100", {**dark, "nvml.gpus.3.state": "lost"}))
    passed = {name for name, result in said.items() if result.outcome is Outcome.PASS}
    assert passed == {"host-no-gpu", "host-gpu-counts-differ"}
    (finding,) = said["host-gpu-not-responding"].findings
    assert finding.where == "GPU 3"


def test_no_check_passes_where_nvml_lists_no_gpu() -> None:
    said = results(machines.host("h100", {"nvml.gpus": []}))
    assert {name for name, result in said.items() if result.outcome is Outcome.PASS} == {"host-no-gpu"}


FAULTS = [
    pytest.param(name, json.loads(block.text), id=f"{name}:{block.line}")
    for name in MINE
    for block in pages.load(name).examples
    if block.outcome == "fails"
]


@gathered(FAULTS)
def test_a_faulty_value_that_was_not_seen_never_passes(name: str, changes: dict[str, Any]) -> None:
    on = changes.pop("on")
    for path in changes:
        parts = path.split(".")
        if parts[:2] != ["nvml", "gpus"]:
            continue
        dark = machines.host(on, {**changes, ".".join(parts[:4]): None})
        assert judge.run(MINE[name], dark, FACTS).outcome is not Outcome.PASS, path


@pytest.mark.parametrize(
    ("busy", "reasons", "outcome"),
    [
        (89, [], Outcome.SKIP),
        (90, [], Outcome.FAIL),
        (90, ["sw power cap"], Outcome.SKIP),
        (90, ["hw slowdown"], Outcome.SKIP),  # of which another check tells
        (90, ["gpu idle"], Outcome.FAIL),
    ],
)
def test_a_low_clock_is_a_fault_only_of_a_gpu_at_work(busy: int, reasons: list[str], outcome: Outcome) -> None:
    changes = {"nvml.gpus.2.utilization": busy, "nvml.gpus.2.clocks.sm": 345, "nvml.gpus.2.throttle": reasons}
    assert results(machines.host("h100", changes))["host-busy-gpu-clock-low"].outcome is outcome


def test_a_mixed_machine_compares_like_with_like() -> None:
    old = {f"nvml.gpus.{index}.name": "NVIDIA A100-SXM4-80GB" for index in range(4)}
    other = {
        f"nvml.gpus.{index}.{field}": value for index in range(4) for field, value in (("vbios", "92.00.45.00.03"),)
    }
    slower = {f"nvml.gpus.{index}.links.*.speed": 25000 for index in range(4)}
    limits = {
        f"nvml.gpus.{index}.power.{which}": 400000 for index in range(4) for which in ("limit", "default", "most")
    }
    assert set(trouble(machines.host("h100", {**old, **other, **slower, **limits}))) == {"host-gpu-models-mixed"}


def test_a_gpu_is_compared_with_those_under_like_load_only() -> None:
    hot = {EVERY + "temperature.now": 30, "nvml.gpus.0.temperature.now": 60}
    assert "host-gpu-hotter-than-others" in trouble(machines.host("h100", hot))
    for index, draw in enumerate((600000, 590000, 610000)):  # two others work too: too few to compare with
        hot[f"nvml.gpus.{index}.power.draw"] = draw
    assert trouble(machines.host("h100", hot)) == {}


@gathered(MINE)
def test_a_finding_says_where_how_and_what_to_do(name: str) -> None:
    for block in pages.load(name).examples:
        if block.outcome != "fails":
            continue
        changes = json.loads(block.text)
        for finding in judge.run(MINE[name], machines.host(changes.pop("on"), changes), FACTS).findings:
            assert finding.where and finding.evidence and all(finding.evidence.values())
            assert "check it with" in finding.fix
