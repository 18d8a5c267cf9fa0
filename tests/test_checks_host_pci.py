"""Judgement of the PCI bus where it is easy to be wrong."""

from __future__ import annotations

from typing import Any

import answers
import machines
import pytest

from envkit import facts as tables
from envkit.judging.judge import checks
from envkit.model import Outcome, Result, Severity

FACTS = tables.load()
H100 = {device["address"]: index for index, device in enumerate(machines.plain("h100")["pci"]["value"])}
OF_THE_BUS = [name for name, check in checks().items() if check.judge.__module__ == "envkit.judging.checks.host_pci"]


def said(check: str, changes: dict[str, Any], on: str = "h100") -> Result:
    return answers.judged(check, machines.host(on, changes))


def at(address: str, field: str) -> str:
    return f"pci.{H100[address]}.{field}"


@pytest.mark.parametrize("check", OF_THE_BUS)
def test_a_bus_that_was_not_seen_is_unknown_to_every_check(check: str) -> None:
    assert said(check, {"pci": None}).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("check", OF_THE_BUS)
def test_a_machine_whose_gpus_were_handed_to_guests_is_not_judged_by_them(check: str) -> None:
    changes = {f"pci.{index}.driver": "vfio-pci" for index in H100.values()}
    assert said(check, changes).outcome is Outcome.SKIP


def test_a_fault_of_one_link_outranks_a_doubt_about_another() -> None:
    doubt, fault = at("0000:16:00.0", "link"), at("0000:3e:00.0", "link.width")
    assert said("host-pci-upstream-link-degraded", {doubt: None}).outcome is Outcome.UNKNOWN
    # less than an error must not hide the doubt
    assert said("host-pci-upstream-link-degraded", {doubt: None, fault: 8}).outcome is Outcome.UNKNOWN
    fatal = at("0000:3e:00.0", "aer.fatal")
    result = said("host-pci-uncorrected-errors", {at("0000:16:00.0", "aer"): None, fatal: 1})
    assert result.outcome is Outcome.FAIL
    assert result.reason


def test_a_sick_link_above_two_devices_is_told_once() -> None:
    result = said("host-pci-upstream-link-degraded", {at("0000:16:00.0", "link.width"): 8})
    assert len(result.findings) == 1
    assert "32 GT/s x16" in result.findings[0].message


def test_the_gpus_own_link_at_rest_is_no_fault_of_the_path() -> None:
    changes = {at("0000:1b:00.0", "link.speed"): 2.5, at("0000:17:01.0", "link.speed"): 2.5}
    assert said("host-pci-upstream-link-degraded", changes).outcome is Outcome.PASS


def test_a_bridge_that_is_not_listed_is_a_doubt() -> None:
    result = said("host-acs-redirect-on", {at("0000:1b:00.0", "above"): ["0000:aa:00.0"]})
    assert result.outcome is Outcome.UNKNOWN
    assert "0000:aa:00.0" in result.reason


def test_translation_on_another_processor_than_x86_is_not_judged() -> None:
    changes: dict[str, Any] = {f"pci.{index}.iommu": "DMA" for index in H100.values()}
    assert len(said("host-iommu-not-in-passthrough", changes).findings) == 16
    changes |= {f"pci.{index}.vendor": "0x10de" for address, index in H100.items() if address.endswith(":01.0")}
    assert said("host-iommu-not-in-passthrough", changes).outcome is Outcome.SKIP


def test_adapters_too_few_to_serve_all_nodes_are_no_fault() -> None:
    keep = at("0000:18:00.0", "driver")
    others = {at(f"0000:{bus}:00.0", "driver"): "vfio-pci" for bus in ("40", "4f", "5e", "9a", "c0", "ce", "dc")}
    assert said("host-gpu-numa-node-without-nic", {keep: "mlx5_core", **others}).outcome is Outcome.SKIP


@pytest.mark.parametrize(("state", "severities"), [("active", []), ("error", [Severity.ERROR]), ("unsupported", [])])
def test_power_states(state: str, severities: list[Severity]) -> None:
    result = said("host-gpu-suspended-or-failed-to-wake", {at("0000:1b:00.0", "power"): state})
    assert [finding.severity for finding in result.findings] == severities
