"""What the kernel log says of the machine under the GPUs: processors, memory, buses, disks and the network."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.judging.checks._host import AGAIN
from envkit.judging.checks._log import count, faults, line_finding, log_lines
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Severity
from envkit.subjects import Host
from envkit.subjects.host import LogLine

_CORRECTED_MOST = 10  # proposal, as SiCheck's limit for corrected machine checks
_FLAPS, _FLAPS_S = 4, 3600.0  # proposal: two reconfigurations and a changed cable give three
# "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 9: 8c000045000800c0"; MCi_STATUS has bit 63 VAL and bit 61 UC
# (Intel SDM volume 3, "IA32_MCi_STATUS MSRs"; AMD64 APM volume 2, "MCi_STATUS")
_STATUS = re.compile(r"Machine Check(?: Exception)?: [0-9a-f]+ Bank [0-9]+: ([0-9a-f]{16})")
# what the kernel writes of an uncorrected error: APEI's severities, AMD's decoder, and a page that was lost
_UNCORRECTED = re.compile(
    r"event severity: (?:fatal|recoverable)|error_severity: (?:fatal|recoverable)|\bUncorrected|Memory failure: 0x"
    r"|Uncorrected hardware memory error"
)
_CORRECTED = re.compile(r"event severity: corrected|\bCorrected error|Machine check events logged|Machine Check: ")
_INTERFACE = re.compile(r"(\S+): (?:NIC )?Link (?:is )?[Dd]own")


def host_machine_check_errors(host: Host) -> Iterator[Finding]:
    """The kernel log shows no uncorrected hardware error of processor or memory since boot, and few corrected ones."""
    lines = log_lines(host, "machine")
    grave = [line for line in lines if _is_uncorrected(line.text)]
    if grave:
        yield line_finding(
            host,
            grave,
            Severity.ERROR,
            "the kernel met an uncorrected hardware error",
            f"drain the machine and replace the part that `ras-mc-ctl --errors` or the BMC names; {AGAIN}",
        )
    mild = [line for line in lines if line not in grave and _CORRECTED.search(line.text)]
    if count(mild) > _CORRECTED_MOST:
        yield line_finding(
            host,
            mild,
            Severity.WARNING,
            f"the kernel met {count(mild)} corrected hardware errors, more than {_CORRECTED_MOST}",
            f"see which part they come from with `ras-mc-ctl --errors`, and have it replaced; {AGAIN}",
        )


def _is_uncorrected(text: str) -> bool:
    status = _STATUS.search(text)
    if status:
        return int(status[1], 16) >> 61 & 1 == 1
    return _UNCORRECTED.search(text) is not None


def host_kernel_oops(host: Host) -> Iterator[Finding]:
    """The kernel met no fault of its own since boot (`BUG`, `Oops`, general protection fault).

    Those inside the NVIDIA driver have a check of their own.
    """
    lines = [line for line, place in faults(host) if place is None]
    if lines:
        yield line_finding(
            host,
            lines,
            Severity.WARNING,
            "the kernel hit a fault in its own code",
            "reboot before the next job: the kernel goes on with broken state; report the trace behind the line; "
            f"{AGAIN}",
        )


def host_nic_link_flapping(host: Host) -> Iterator[Finding]:
    """No network link went down again and again since boot."""
    found: dict[str, list[LogLine]] = {}
    for line in log_lines(host, "link down"):
        interface = _INTERFACE.search(line.text)
        found.setdefault(interface[1] if interface else line.text, []).append(line)
    for name, lines in sorted(found.items()):
        times = [line.at for line in lines if line.at >= 0]
        most = max((sum(line.times for line in lines if end - _FLAPS_S < line.at <= end) for end in times), default=0)
        if most >= _FLAPS:
            yield line_finding(
                host,
                lines,
                Severity.WARNING,
                f"the link of {name} went down {most} times within an hour",
                f"clean or replace cable and transceiver, try another port; see `ethtool {name}`; {AGAIN}",
                name,
            )


CHECKS = rows(__name__)
