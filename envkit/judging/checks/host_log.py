"""What the kernel log says of GPUs, their driver and NVSwitches since boot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.facts.xid import XidCategory, read_xid
from envkit.judging.checks import _log as log
from envkit.judging.checks._driver import need_own_gpu
from envkit.judging.checks._host import AGAIN
from envkit.judging.checks._outcomes import error, note, skip_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Severity
from envkit.subjects import Host
from envkit.subjects.host import LogLine

_WHOLE_S = 1.0  # proposal: the kernel's first lines bear a time of less than a second
_PLACES = 3  # proposal: programs that must fault at one place before the place is suspected
_REBOOT = "collect `nvidia-bug-report.sh`, drain the machine and reboot"


def host_kernel_log_incomplete(host: Host) -> Iterator[Finding]:
    """The kernel log can be read and reaches back to the boot."""
    log.log_lines(host)
    start = host.log_start.need("where the kernel log begins")
    if start > _WHOLE_S:
        yield note(
            f"the kernel log that could be read begins {start:.0f} s after boot: what came before is not judged",
            "/dev/kmsg",
            {f"{start:.0f} s": host.log_start.via},
            "keep the kernel's lines in the journal, or boot with a larger buffer (`log_buf_len=16M`); "
            "check it with `journalctl -k -b | head`",
        )


def host_gpu_lost_from_bus(host: Host, facts: Facts) -> Iterator[Finding]:
    """No GPU fell off the PCI bus since boot.

    Xid 79 and its kin, and the driver's sentence without a code, which some versions write alone.
    """
    need_own_gpu(host)
    coded = list(log.judge_xids(host, facts, XidCategory.BUS))
    yield from coded
    known = [line for lines in log.xid_lines(host, facts, XidCategory.BUS).values() for line in lines]
    for lines in log.by_device(log.log_lines(host, "off bus")).values():
        if not any(log.same_slot(line.pci, lines[-1].pci) for line in known):
            yield log.line_finding(
                host,
                lines,
                Severity.ERROR,
                f"the driver wrote that {log.device(lines[-1])} fell off the bus",
                f"reboot; if it comes back, look at power, slot and cooling, then replace the board; {AGAIN}",
                log.device(lines[-1]),
            )


def host_nvlink_errors_logged(host: Host, facts: Facts) -> Iterator[Finding]:
    """The kernel log shows no Xid of NVLink or NVLink-C2C (to a Grace CPU) since boot: Xid 74, 121 and their kin."""
    need_own_gpu(host)
    for (xid, _), lines in log.xid_lines(host, facts, XidCategory.NVLINK, XidCategory.NVLINK5).items():
        row = facts.xid(xid)
        mild = [line for line in lines if (said := read_xid(line.text)) and said.mild]
        grave = [line for line in lines if line not in mild]
        if grave:
            yield log.xid_finding(host, row, grave, log.xid_severity(row))
        else:
            yield log.xid_finding(host, row, mild, Severity.WARNING, "watch the link with `nvidia-smi nvlink -e`")


def host_gsp_not_responding(host: Host, facts: Facts) -> Iterator[Finding]:
    """The GPUs' system processors answered the driver since boot (Xid 119 and 120, and timeouts without a code)."""
    need_own_gpu(host)
    coded = list(log.judge_xids(host, facts, XidCategory.GSP))
    yield from coded
    lines = log.log_lines(host, "gsp")
    if lines and not coded:
        yield log.line_finding(
            host,
            lines,
            Severity.ERROR,
            "the driver timed out waiting for a GPU System Processor (GSP)",
            f"drain the machine, reset the GPU or reboot, and update the driver if it comes back; {AGAIN}",
            log.device(lines[-1]),
        )


def host_gpu_recovery_requested_in_log(host: Host, facts: Facts) -> Iterator[Finding]:
    """The driver's last word in the kernel log on the recovery of each GPU is that none is needed (Xid 154)."""
    need_own_gpu(host)
    asked: list[tuple[int, str, list[LogLine], str]] = []
    for (xid, pci), lines in log.xid_lines(host, facts, XidCategory.RECOVERY).items():
        said = read_xid(lines[-1].text)
        action = said.recovery if said else ""
        if action.lower() != "none":
            asked.append((xid, pci, lines, action))
    here = [one for one in asked if not _asks_now(host, one[1])]
    skip_if(asked and not here, "NVML itself asks for these recoveries, which is reported separately")
    for xid, pci, lines, action in here:
        wanted = action or "an action that its line does not name"
        yield Finding(
            f"the driver asks for a recovery of GPU {pci}: {wanted}{log.told(lines)}",
            Severity.ERROR if action else Severity.WARNING,
            f"GPU {pci}",
            {f"Xid {xid}": host.log.via},
            f"drain the machine and do it ({wanted}); the Xid before it names the cause; "
            "check it with `nvidia-smi -q | grep -i recovery`",
        )


def _asks_now(host: Host, pci: str) -> bool:
    """Whether NVML itself says that this GPU needs a recovery, of which host-gpu-recovery-action-pending tells."""
    gpus = host.nvml.value.gpus if host.nvml.value else ()
    asking = [gpu for gpu in gpus if gpu.recovery.value not in (None, "none", "unsupported")]
    return any(log.same_slot(gpu.pci.value or "", pci) for gpu in asking)


def host_xid_13_repeats_on_one_sm(host: Host) -> Iterator[Finding]:
    """Programs' exceptions (Xid 13) do not gather at one multiprocessor of one GPU."""
    need_own_gpu(host)
    places: dict[tuple[str, str], set[int]] = {}
    elsewhere: dict[tuple[str, int], set[str]] = {}
    for line in log.log_lines(host, "xid"):
        xid = read_xid(line.text)
        if xid and xid.code == 13 and xid.place and xid.pid is not None:
            places.setdefault((line.pci, xid.place), set()).add(xid.pid)
            elsewhere.setdefault((line.pci, xid.pid), set()).add(xid.place)
    for (pci, name), pids in sorted(places.items()):
        alone = [pid for pid in pids if len(elsewhere[pci, pid]) == 1]
        if len(alone) >= _PLACES:
            yield warning(
                f"{len(alone)} programs met exceptions at the same place of GPU {pci}, {name}, and nowhere else",
                f"GPU {pci}",
                {f"Xid 13 at {name}": host.log.via},
                f"run `dcgmi diag -r 3` on an idle GPU; if it fails, replace the board; {AGAIN}",
            )


def host_nvswitch_sxid_logged(host: Host) -> Iterator[Finding]:
    """The kernel log shows no SXid of an NVSwitch since boot."""
    need_own_gpu(host)
    found: dict[tuple[int, str], list[LogLine]] = {}
    for line in log.log_lines(host, "sxid"):
        found.setdefault((line.sxid, line.pci), []).append(line)
    for (sxid, pci), lines in sorted(found.items()):
        fatal = [line for line in lines if re.search(r"(?<!Non-)(?<!non-)\bfatal\b", line.text, re.IGNORECASE)]
        mild = any(re.search(r"\bNon-?fatal\b", line.text, re.IGNORECASE) for line in lines)
        severity = Severity.ERROR if fatal else Severity.NOTE if mild else Severity.WARNING
        yield Finding(
            f"NVSwitch {pci} reported SXid {sxid}{log.told(fatal or lines)}",
            severity,
            f"NVSwitch {pci}",
            {f"SXid {sxid}": host.log.via},
            "drain the machine and reset all GPUs and NVSwitches together with `nvidia-smi --gpu-reset`, or reboot; "
            f"{AGAIN}"
            if fatal
            else f"watch it: many of them mean a link that fails; {AGAIN}",
        )


def host_driver_kernel_oops(host: Host) -> Iterator[Finding]:
    """The kernel met no fault inside the NVIDIA driver since boot."""
    need_own_gpu(host)
    for line, place in log.faults(host):
        if place is not None:
            yield error(
                f"the kernel met a fault inside the NVIDIA driver: `{line.text}` at `{place.text}`",
                "kernel log",
                {line.text: host.log.via},
                f"{_REBOOT}; {AGAIN}",
            )


CHECKS = rows(__name__)
