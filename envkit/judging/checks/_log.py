"""What the checks of the kernel log share: its lines by topic, when they were written, and which Xids are settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envkit.facts import Facts, XidRow
from envkit.facts.xid import XidCategory, read_xid
from envkit.judging.checks._host import AGAIN
from envkit.model import Finding, Severity, Unknown
from envkit.subjects import Host
from envkit.subjects.host import LogLine

# NVIDIA's words for what is to be done at once, as advice
_ACTIONS: Mapping[str | None, str] = {
    "RESTART_APP": "start the program again; if it comes back, run the program under compute-sanitizer",
    "RESET_GPU": "drain the machine and reset the GPU with `nvidia-smi --gpu-reset`",
    "RESTART_BM": "drain the machine and reboot it; if it comes back, look at power, slot and cooling",
    "RESTART_VM": "restart the virtual machine",
    "CHECK_MECHANICALS": "look at the power cables and the seat of the board",
    "UPDATE_SWFW": "bring the drivers of host and guest to versions that NVIDIA names together",
    "CONTACT_SUPPORT": "collect `nvidia-bug-report.sh` and ask the vendor",
    "WORKFLOW_XID_48": "drain the machine and reset the GPU; run `dcgmi diag -r 3` before it is used again",
    "WORKFLOW_NVLINK_ERR": "drain the machine and reset its GPUs together; if it comes back, replace board or bridge",
    "WORKFLOW_NVLINK5_ERR": "drain the machine and reset the GPU; look at the other end of the link too",
    "IGNORE": "nothing is to be done at once; if it keeps coming, ask the vendor",
}
_OOPS_LINES, _OOPS_S = 3, 5.0  # the place of an oops stands right behind its first lines
_LOOK_UP = "look it up in NVIDIA's Xid catalogue"


def log_lines(host: Host, *topics: str) -> list[LogLine]:
    """The lines of these topics, oldest first; raises Unknown, with who may read it, if the log was not read."""
    if host.log.value is None:
        inside = "" if (host.container.value or "none") == "none" else ", on the machine itself and not in a container"
        raise Unknown(
            f"the kernel log was not observed: {host.log.missing or 'no value'}; "
            f"root may read it, and members of the group systemd-journal{inside}"
        )
    return [line for line in host.log.value if line.topic in topics]


def since_boot(at: float) -> str:
    """ ", 12 min after boot", or nothing where the log does not say."""
    if at < 0:
        return ""
    if at < 120:
        return f", {at:.0f} s after boot"
    return f", {at / 60:.0f} min after boot" if at < 7200 else f", {at / 3600:.0f} h after boot"


def count(lines: list[LogLine]) -> int:
    """How many lines there were, those that were not kept among them."""
    return sum(line.times + line.left_out for line in lines)


def told(lines: list[LogLine]) -> str:
    """How often, when, and the newest line itself."""
    last, times = lines[-1], count(lines)
    often = f" {times} times, last" if times > 1 else ""
    return f"{often}{since_boot(last.at)}: `{last.text}`"


def faults(host: Host) -> list[tuple[LogLine, LogLine | None]]:
    """The kernel's own faults by their first lines, each with the place of it where that is in the NVIDIA driver."""
    found: list[tuple[LogLine, LogLine | None]] = []
    lines = log_lines(host, "oops", "place")
    for number, line in enumerate(lines):
        if line.topic == "place":
            continue
        behind = lines[number + 1 : number + 1 + _OOPS_LINES]
        place = next((later for later in behind if later.topic == "place"), None)
        before = lines[number - 1] if number else None
        if before is not None and before.topic == "oops" and 0 <= line.at - before.at < _OOPS_S:
            continue  # `BUG:` and `Oops:` are two lines of one fault
        found.append((line, place if place is not None and place.at - line.at < _OOPS_S else None))
    return found


def line_finding(
    host: Host, lines: list[LogLine], severity: Severity, what: str, fix: str, where: str = "kernel log"
) -> Finding:
    """What the lines say, how often, when, and the newest one itself."""
    return Finding(f"{what}{told(lines)}", severity, where, {lines[-1].text: host.log.via}, fix)


def device(line: LogLine) -> str:
    """The PCI device a line speaks of, in words."""
    return line.pci or "a device without an address"


def same_slot(one: str, other: str) -> bool:
    """Whether two PCI addresses are of one slot, with or without function, whatever the width of the domain."""
    parts = [address.lower().split(".")[0].split(":") for address in (one, other)]
    if any(len(part) != 3 for part in parts):
        return False
    first, second = ((int(domain, 16), bus, slot) for domain, bus, slot in parts)
    return first == second


def by_device(lines: list[LogLine]) -> dict[str, list[LogLine]]:
    """The lines by the device they speak of."""
    found: dict[str, list[LogLine]] = {}
    for line in lines:
        found.setdefault(line.pci, []).append(line)
    return dict(sorted(found.items()))


def xid_lines(host: Host, facts: Facts, *categories: XidCategory) -> dict[tuple[int, str], list[LogLine]]:
    """The lines of Xids of these categories, by code and GPU; a code that the facts do not know is OTHER."""
    found: dict[tuple[int, str], list[LogLine]] = {}
    for line in log_lines(host, "xid"):
        if facts.xid_category(line.xid) in categories:
            found.setdefault((line.xid, line.pci), []).append(line)
    return dict(sorted(found.items()))


def settled(host: Host, line: LogLine) -> bool:
    """Whether the driver wrote after ``line`` that its GPU needs no recovery any more (Xid 154 to None)."""
    lines = log_lines(host, "xid")
    after = lines[lines.index(line) + 1 :]
    last = [later for later in after if later.xid == 154 and same_slot(later.pci, line.pci)]
    xid = read_xid(last[-1].text) if last else None
    return xid is not None and xid.recovery.lower() == "none"


def xid_severity(row: XidRow | None) -> Severity:
    """How much an Xid matters; a code that the facts do not know is a warning."""
    return Severity[row.severity.upper()] if row else Severity.WARNING


def xid_finding(host: Host, row: XidRow | None, lines: list[LogLine], severity: Severity, fix: str = "") -> Finding:
    """One Xid of one GPU; after the driver has written that no recovery is needed any more it is a note."""
    line = lines[-1]
    name = row.means if row else "a code that envkit does not know"
    over = severity is Severity.ERROR and settled(host, line)
    advice = fix or _ACTIONS.get(row.action if row else None, _LOOK_UP)
    return Finding(
        f"GPU {line.pci} reported Xid {line.xid} ({name}){told(lines)}"
        + (", and the driver no longer asks for a recovery" if over else ""),
        Severity.NOTE if over else severity,
        f"GPU {line.pci}",
        {f"Xid {line.xid}": host.log.via},
        f"{advice}; see `envkit facts xid {line.xid}`; {AGAIN} after the reset or reboot",
    )


def judge_xids(host: Host, facts: Facts, *categories: XidCategory, fix: str = "") -> Iterator[Finding]:
    """One finding for each code of each GPU, by the facts' severity."""
    for (xid, _), lines in xid_lines(host, facts, *categories).items():
        row = facts.xid(xid)
        yield xid_finding(host, row, lines, xid_severity(row), fix)
