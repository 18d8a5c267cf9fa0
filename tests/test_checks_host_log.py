"""Judgement of the kernel log where it is easy to be wrong."""

from __future__ import annotations

from dataclasses import replace

import answers
import machines
import pytest
from gathered import gathered

from envkit import facts as tables
from envkit.host import log
from envkit.judging.judge import checks
from envkit.model import Observed, Outcome, Result, Severity
from envkit.subjects import Host

FACTS = tables.load()
XID = "NVRM: Xid (PCI:0000:1b:00): {}, pid={}, name=python3, {}"
OF_THE_LOG = [
    name
    for name, check in checks().items()
    if check.judge.__module__ in ("envkit.judging.checks.host_log", "envkit.judging.checks.host_kernel")
]


def with_log(*lines: str, on: str = "h100") -> Host:
    """A healthy machine whose kernel log holds these lines, a second apart."""
    raw = [f"4,1,{second}000000,-;{line}" for second, line in enumerate(lines, 100)]
    return replace(machines.host(on), log=Observed.of(log.parse_log(raw), "/dev/kmsg"))


def said(check: str, host: Host) -> Result:
    return answers.judged(check, host)


def severities(check: str, *lines: str) -> list[Severity]:
    return [finding.severity for finding in said(check, with_log(*lines)).findings]


@pytest.mark.parametrize("check", OF_THE_LOG)
def test_a_log_that_was_not_read_is_unknown_to_every_check_and_says_who_may_read_it(check: str) -> None:
    host = replace(machines.host("h100"), log=Observed.lost("/dev/kmsg: operation not permitted", "/dev/kmsg"))
    result = said(check, host)
    assert result.outcome is Outcome.UNKNOWN
    assert "systemd-journal" in result.reason


@gathered([row.code for row in FACTS.xids] + [9999])
def test_every_xid_is_found_by_one_check_and_a_programs_fault_never_condemns_a_machine(code: int) -> None:
    host = with_log(XID.format(code, 7, "what the driver says"))
    found = {name: said(name, host) for name in OF_THE_LOG}
    failed = {name: result for name, result in found.items() if result.outcome is Outcome.FAIL}
    assert len(failed) == 1, failed
    (result,) = failed.values()
    row = FACTS.xid(code)
    wanted = Severity[row.severity.upper()] if row else Severity.WARNING
    assert [finding.severity for finding in result.findings] == [wanted]
    assert f"Xid {code}" in result.findings[0].message or code == 154
    if row and row.suspect == "application":
        assert result.findings[0].severity < Severity.ERROR


def test_an_error_is_settled_by_the_drivers_later_word_and_by_no_earlier_one_nor_that_of_another_gpu() -> None:
    error = XID.format(95, 1, "Uncontained")
    none = XID.format(154, 1, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    needed = XID.format(154, 1, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    check = "host-gpu-uncontained-memory-error"
    assert severities(check, error, needed, none) == [Severity.NOTE]
    assert severities(check, none, error) == [Severity.ERROR]
    assert severities(check, error, none, needed) == [Severity.ERROR]
    assert severities(check, error, none.replace("1b", "43")) == [Severity.ERROR]


def test_a_gpu_that_fell_off_is_told_once() -> None:
    coded = XID.format(79, 1, "GPU has fallen off the bus.")
    bare = "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus."
    assert severities("host-gpu-lost-from-bus", coded, bare) == [Severity.ERROR]
    other = bare.replace("1b", "43")
    assert severities("host-gpu-lost-from-bus", coded, other) == [Severity.ERROR, Severity.ERROR]


def test_a_fatal_error_of_a_link_outranks_later_ones_that_are_not() -> None:
    fatal, mild = XID.format(149, 1, "NETIR_LINK_EVT Fatal XC0"), XID.format(149, 1, "NETIR_LINK_EVT Nonfatal XC0")
    assert severities("host-nvlink-errors-logged", fatal, mild) == [Severity.ERROR]
    assert severities("host-nvlink-errors-logged", mild) == [Severity.WARNING]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", Severity.ERROR),
        ("20034, Non-fatal, Link 30 LTSSM Fault Up", Severity.NOTE),
        ("20034, Severity 1 Engine instance 30", Severity.WARNING),
    ],
)
def test_sxids_by_their_word(text: str, severity: Severity) -> None:
    assert severities("host-nvswitch-sxid-logged", f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {text}") == [severity]


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 9: bc000045000800c0", [Severity.ERROR]),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 9: 9c000045000800c0", []),
        ("{1}[Hardware Error]: event severity: fatal", [Severity.ERROR]),
        ("{1}[Hardware Error]: event severity: corrected", []),
        ("[Hardware Error]: Uncorrected, software restartable error.", [Severity.ERROR]),
        ("[Hardware Error]: Corrected error, no action required.", []),
        ("Memory failure: 0x1234: recovery action for dirty LRU page: Recovered", [Severity.ERROR]),
    ],
)
def test_hardware_errors_by_what_the_bank_says(text: str, given: list[Severity]) -> None:
    assert severities("host-machine-check-errors", text) == given


def test_a_fault_in_the_driver_is_one_and_one_elsewhere_is_none() -> None:
    bug, oops = "BUG: kernel NULL pointer dereference, address: 0000000000000020", "Oops: 0000 [#1] PREEMPT SMP NOPTI"
    inside, outside = "RIP: 0010:nvidia_ioctl+0x12/0x34 [nvidia]", "RIP: 0010:ext4_write+0x12/0x34 [ext4]"
    assert severities("host-driver-kernel-oops", bug, oops, inside) == [Severity.ERROR]
    assert severities("host-driver-kernel-oops", bug, oops, outside) == []
    assert severities("host-driver-kernel-oops", inside) == []
    assert severities("host-kernel-oops", bug, oops, outside) == [Severity.WARNING]


def test_a_link_of_no_gpu_or_adapter_is_nobodys_matter_but_the_bus_must_be_known() -> None:
    line = "pcieport 0000:f0:01.0: DPC: containment event, status:0x1f01 source:0x0000"
    host = with_log(line)
    assert said("host-pci-link-went-down", host).outcome is Outcome.PASS
    blind = replace(host, pci=Observed.lost("not read"))
    assert said("host-pci-link-went-down", blind).outcome is Outcome.UNKNOWN


def test_lines_that_were_not_kept_count() -> None:
    faults = [XID.format(31, pid, "MMU Fault") for pid in range(200)]
    (finding,) = said("host-program-faulted-on-gpu", with_log(*faults)).findings
    assert "200 times" in finding.message


def test_lines_without_a_time_are_judged_too() -> None:
    lines = log.parse_log([XID.format(79, 1, "GPU has fallen off the bus.")])
    host = replace(machines.host("desk"), log=Observed.of(lines, "dmesg"))
    (finding,) = said("host-gpu-lost-from-bus", host).findings
    assert "after boot" not in finding.message
