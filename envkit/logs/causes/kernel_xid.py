"""What the kernel log tells of GPUs: which of its errors was first, and what follows from it.

Sources: NVIDIA, XID Errors and its Xid catalogue (docs.nvidia.com/deploy/xid-errors); NVIDIA Fabric Manager user guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from envkit.facts import Facts, XidRow
from envkit.facts.xid import Xid, XidCategory, slot
from envkit.logs.causes._cuda import HARDWARE
from envkit.logs.causes._stated import shortened
from envkit.logs.records import Event, Hypothesis, Line, Strength
from envkit.logs.story import Story
from envkit.logs.xid import failure_of, nvlink5, nvlink_faults, nvlink_sympathetic, parsed, sxid_row
from envkit.records import dataclass

_GRAVE, _FAULT, _MINOR, _AFTER = range(4)

# lines without a code that say what a code says
_BOOT = ("gsp-boot", "gsp-wpr2", "gsp-gfw", "gsp-bootstrap", "gsp-firmware-file", "gsp-firmware-missing", "rm-init-gsp")
_LOST = ("nvrm-off-bus", "gpu-off-bus", "pci-power-lost")
_NVML_LOST = ("nvml-gpu-lost", "nvml-lost", "nvml-lost-name", "nvml-lost-class")
_SAME_AS = {
    **dict.fromkeys((*_LOST, *_NVML_LOST), 79),
    **dict.fromkeys(("gsp-timeout", "gsp-timeout-banner", "gsp-heartbeat", *_BOOT), 119),
    "rc-watchdog": 8,
}
_SWITCH = ("nvswitch-sxid-fatal", "nvswitch-sxid", "nvswitch-sxid-mild")
_TIERS = {
    **dict.fromkeys(HARDWARE, _GRAVE),
    **dict.fromkeys(("xid-8", "xid-13", "xid-31"), _FAULT),
    **dict.fromkeys(("xid-63/64", "xid-other"), _MINOR),
    **dict.fromkeys(("xid-154", "xid-45", "xid-43"), _AFTER),
}
_LINK_CATEGORIES = ("xid-74", "sxid-nvlink")
_BY_SEVERITY = (XidCategory.NVLINK, XidCategory.RETIREMENT)  # whose codes are grave or minor, as the facts say
_REFUSED = 137  # an access over NVLink that a program may not make (NVIDIA, XID Errors, XID_137_FLOW)
# the cause class of a category where the line does not tell more; others are told by the suspect that the facts name
_CAUSES = {
    XidCategory.VGPU: "version-mismatch",
    XidCategory.GPU_TIMEOUT: "driver-firmware-fault",
    XidCategory.GSP: "driver-firmware-fault",
    XidCategory.COMMANDS: "driver-firmware-fault",
    XidCategory.CHANNEL_TIMEOUT: "gpu-kernel-bug",
    XidCategory.EXCEPTION: "gpu-kernel-bug",
    XidCategory.COPY_ENGINE: "gpu-kernel-bug",
    XidCategory.MMU_FAULT: "gpu-kernel-bug",
    XidCategory.CHANNEL_RESET: "gpu-kernel-bug",
    XidCategory.CLEANUP: "gpu-kernel-bug",
}

# what a program and its peers see of a GPU that is lost or whose memory or link failed
_SEEN_OF_IT = (
    "gpu-hardware-unknown-error", "ecc-uncorrectable", "cuda-init-no-device", "cublas-execution-failed",
    "cublas-not-initialized", "cudnn-execution-failed", "cudnn-not-initialized", "nccl-timeout-hang",
    "nccl-remote-error", "nccl-unhandled-cuda-error", "nccl-unhandled-system-error", "watchdog-timeout",
    "segfault-in-driver", "insufficient-evidence",
)  # fmt: skip
# errors of a program's own kernels, which the kernel log only repeats
_OWN_FAULTS = (
    "illegal-memory-access", "misaligned-address", "device-side-assert", "illegal-instruction", "watchdog-timeout",
)  # fmt: skip
_PLACES = 3  # proposal: programs that must fault at one place, and nowhere else, before the place is suspected
_APART_S = 26 * 3600.0  # times without a zone may be half a day off either way; more than that is another day's error
_SAME_S = 2.0
_CLEANED = 45
# how shells, people, supervisors and the kernel's audit write that a program was ended from outside
_ENDED = re.compile(
    r"\bKilled\b|\bSIG(?:KILL|TERM|INT)\b|\bkill(?:all|ing)?\b|\bsig(?:nal)?[ =](?:9|15|2)\b|\bTerminated\b"
)


@dataclass(frozen=True, slots=True)
class _Fault:
    """One line of the kernel log, or of a tool that asked the driver, which says that something failed."""

    event: Event
    category: str
    code: int
    pci: str
    row: XidRow | None = None
    xid: Xid | None = None
    blamed: bool = False  # the driver names it as the cause of a clean-up

    @property
    def line(self) -> Line:
        return self.event.line

    @property
    def pid(self) -> int | None:
        return self.xid.pid if self.xid is not None else None

    @property
    def asked(self) -> bool:
        """Whether a tool found it when it asked the driver, which is later than what the driver wrote itself."""
        return self.event.signature.id.startswith("nvml-") or self.event.signature.id == "plugin-xid"

    @property
    def tier(self) -> int:
        if self.code == _REFUSED:
            return _FAULT
        if self.row is not None and self.row.category in _BY_SEVERITY and self.row.severity != "error":
            return _MINOR
        if self.event.has("warning") or (not self.blamed and self._harmless):
            return _MINOR
        if self.row is not None and self.row.category is XidCategory.COMMANDS:
            return _FAULT
        return _GRAVE if self.row is not None and self.row.category in _BY_SEVERITY else _TIERS[self.category]

    @property
    def _harmless(self) -> bool:
        """Whether the line itself says that it is not fatal, or that it only follows from a fault elsewhere."""
        if self.xid is None:
            return False
        if self.category == "xid-144-150-nvlink5":
            return self.xid.mild
        return self.xid.code == 74 and nvlink_sympathetic(self.xid)


def kernel_log_errors(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The first grave error of the kernel log, else the first fault of a program, else what only follows from others.

    NVLink errors that come with a lost GPU are its neighbours' view of it.  Faults of programs (13, 31 and their kin)
    are told only where no program's own log is there to tell of them better.
    """
    found = _faults(story, facts)
    if not found:
        return
    lost = any(fault.code == 79 for fault in found)
    # a program's fault can take a controller of its GPU down with it
    faulted = {fault.pci: index for index, fault in reversed(list(enumerate(found))) if fault.code in (13, 31)}

    def rank(fault: _Fault) -> tuple[int, bool, bool]:
        follows = fault.category == "xid-62" and faulted.get(fault.pci, len(found)) < found.index(fault)
        tier = max(fault.tier, _FAULT) if follows else fault.tier
        return (tier, lost and fault.category in _LINK_CATEGORIES, fault.asked)

    ordered = sorted(found, key=rank)  # stable: of equals the one that came first
    first = ordered[0]
    own = [event for event in story.in_category(*_OWN_FAULTS) if event.line.source != "kernel"]
    categories = dict.fromkeys(fault.category for fault in ordered)
    for category in categories:
        group = [fault for fault in ordered if fault.category == category]
        if category == first.category:
            group = [fault for fault in group if fault.tier == first.tier]
            if own and first.tier != _GRAVE:
                yield _beside(own[0], group, facts)
            else:
                yield _first(group, found, story, facts)
        elif not own or group[0].tier == _GRAVE:
            yield _told(group, found, story, facts, Strength.FALLBACK if group[0].tier == _AFTER else Strength.POSSIBLE)


def _faults(story: Story, facts: Facts) -> list[_Fault]:
    """What failed, in the story's order.

    A clean-up that names its cause stands for that cause where its own line is not in the log.
    """
    found: list[_Fault] = []
    blamed: dict[int, _Fault] = {}
    head = ""
    for event in story.events:
        xid, name = parsed(event), event.signature.id
        pci = slot(event.values.get("pci") or "")
        if name == "nvrm-off-bus-head":
            head = pci
        elif name in _SAME_AS:
            code = _SAME_AS[name]
            found.append(_fault(event, code, pci or (head if code == 79 else ""), facts))
        elif name in _SWITCH:
            found.append(_Fault(event, "sxid-nvlink", int(event.values["code"]), pci))
        elif xid is not None and (event.category or name == "plugin-xid"):
            if xid.previous is not None:
                blamed[len(found)] = _fault(event, xid.previous, xid.slot, facts, xid)
            found.append(_fault(event, xid.code, xid.slot, facts, xid))
    there = {fault.category for fault in found}
    causes = {fault.code for fault in blamed.values()}
    stand_ins = {index: fault for index, fault in blamed.items() if fault.category not in there}
    return [stand_ins.get(index, replace(fault, blamed=fault.code in causes)) for index, fault in enumerate(found)]


def _fault(event: Event, code: int, pci: str, facts: Facts, xid: Xid | None = None) -> _Fault:
    return _Fault(event, failure_of(facts.xid_category(code)), code, pci, facts.xid(code), xid)


def _first(group: Sequence[_Fault], found: Sequence[_Fault], story: Story, facts: Facts) -> Hypothesis:
    tier = group[0].tier
    strength = {_GRAVE: Strength.DECISIVE, _FAULT: Strength.LIKELY}.get(tier, Strength.POSSIBLE)
    mine = {id(fault.event) for fault in found}
    if tier >= _MINOR and (story.tracebacks or any(id(event) not in mine for event in story.roots)):
        strength = Strength.FALLBACK  # something else failed, of which such a line is no cause
    if all(fault.asked for fault in group) or (group[0].xid is not None and group[0].xid.previous is not None):
        strength = min(strength, Strength.LIKELY)
    told = _told(group, found, story, facts, strength)
    if tier == _AFTER and group[0].code == _CLEANED and (by := _killed_by(group[0], story)) is not None:
        why = f"a program was ended from outside ({shortened(by.text)}), and the driver cleaned up: {told.because}"
        lines = (group[0].line, by)
        over = ("not-gpu-env", "insufficient-evidence")
        return Hypothesis("xid-45", "program-bug", Strength.USUAL, lines, why, "who ended the program", over=over)
    beside = _refusals(group[0], found)
    others = {fault.category for fault in found} - {told.category}
    if tier == _GRAVE and not _another_day(group[0].line, story):
        others |= set(_SEEN_OF_IT) - {told.category}
        if (pid := group[0].pid) is not None and any(event.line.pid == pid for event in story.roots):
            others |= set(_OWN_FAULTS)
    because = told.because + ("; links refused accesses at that time" if beside else "")
    return replace(told, evidence=(*told.evidence, *beside), because=because, over=tuple(sorted(others)))


def _killed_by(cleaned: _Fault, story: Story) -> Line | None:
    """The line by which somebody ended the program that a clean-up was for; None where the system did so for want of
    memory, or where no line tells of it."""
    if any(each.category == "not-gpu-env" and each.signature.id.startswith("program-oom") for each in story.events):
        return None
    kept = (line for seen in story.files for line in (*seen.head, *seen.loud, *seen.tail))
    of_it = re.compile(rf"\b{cleaned.pid}\b") if cleaned.pid is not None else None
    return next((line for line in kept if of_it and of_it.search(line.text) and _ENDED.search(line.text)), None)


def _refusals(first: _Fault, found: Sequence[_Fault]) -> tuple[Line, ...]:
    """Of a contained error the accesses that links refused beside it, one line of each kind: they tell whose it was."""
    if first.category != "xid-94/95":
        return ()
    kinds: dict[str, Line] = {}
    for fault in found:
        near = first.line.time_s is None or fault.line.time_s is None
        near = near or abs((fault.line.time_s or 0.0) - (first.line.time_s or 0.0)) <= _SAME_S
        if near and fault.category in _LINK_CATEGORIES:
            kinds.setdefault(fault.category, fault.line)
    return tuple(kinds.values())


def _told(
    group: Sequence[_Fault], found: Sequence[_Fault], story: Story, facts: Facts, strength: Strength
) -> Hypothesis:
    best = _best(group)
    cause, because = _reading(best, group, facts)
    lines = [best.line]
    broken = best.row is not None and best.row.category is XidCategory.COMMANDS
    if best.code == 79 or broken:
        lines += _bus_errors(best, story, corrected=broken)
        if len(lines) > 1:
            because += "; errors of its PCIe port came before it"
            cause = "hardware-fault"
    cards = tuple(dict.fromkeys(fault.pci for fault in group if fault.pci))
    if len(cards) > 1:
        because += f"; {len(cards)} GPUs wrote it: {', '.join(cards[:8])}"
    times = sum(fault.line.times for fault in group)
    if times > len(cards) and times > 1:
        because += f"; {times} such lines in all"
    asked = _recovery(best, found)
    fix = f"drain the node and do what the driver itself asks for: {asked}" if asked else ""
    return Hypothesis(best.category, cause, strength, tuple(lines), because, fix=fix)


def _best(group: Sequence[_Fault]) -> _Fault:
    """The line to quote: one with a code before one without, and of an exception the one that names it."""
    coded = [fault for fault in group if fault.xid is not None] or list(group)
    named = [fault for fault in coded if fault.xid is not None and fault.xid.exception and fault.xid.place]
    return (named or coded)[0] if coded[0].category == "xid-13" else coded[0]


def _reading(fault: _Fault, group: Sequence[_Fault], facts: Facts) -> tuple[str, str]:
    """Cause class and sentence of one category's lines."""
    xid = fault.xid
    gpu = xid.gpu if xid is not None else f"GPU {fault.pci}" if fault.pci else "a GPU"
    who = f" while {xid.process} used it" if xid is not None and xid.process else ""
    if xid is not None and xid.previous == fault.code:
        row = facts.xid(fault.code)
        what = f" ({row.means})" if row else ""
        cause = _usual(fault.code, facts)
        return cause, f"channels of {gpu} were cleaned up because of Xid {fault.code}{what}, whose own line is not here"
    if fault.category == "sxid-nvlink":
        return "hardware-fault", _switch(fault)
    if xid is None:
        return _uncoded(fault, gpu)
    if fault.category == "xid-13":
        return _exception(fault, group, gpu, who, facts)
    if fault.category == "xid-31":
        return _page_fault(xid, gpu, who)
    if fault.category == "xid-144-150-nvlink5":
        return _nvlink5(xid, gpu)
    because = f"{gpu} wrote Xid {xid.code}{_means(xid.code, facts)}{who}"
    if xid.code == 119 and xid.rpc is not None:
        seconds, name, number, function = xid.rpc
        asker = f", asked by {xid.process}, which is not to blame" if xid.process else ""
        because = f"the system processor of {gpu} ({name}) did not answer {function} ({number}) in {seconds} s{asker}"
    elif xid.code in (94, 95) and xid.contained:
        reach = "contained to one program" if xid.code == 94 else "not contained"
        because = f"{gpu} met an uncorrectable memory error at {xid.contained}, {reach} (Xid {xid.code}){who}"
    elif xid.code == 74 and xid.link is not None:
        bits = ", ".join(nvlink_faults(xid))
        because = f"NVLink {xid.link} of {gpu} failed (Xid 74)" + (f": its registers show {bits}" if bits else "")
    elif xid.code == 154 and xid.recovery:
        asked = f"the driver asks for `{xid.recovery}` for {gpu} (Xid 154)"
        because = f"{asked}, and the error before it is not in this log"
    return _usual(xid.code, facts), because


def _uncoded(fault: _Fault, gpu: str) -> tuple[str, str]:
    name = fault.event.signature.id
    if name == "rc-watchdog":
        return "gpu-kernel-bug", f"the driver's watchdog found {gpu} locked"
    if name in _BOOT:
        return "driver-firmware-fault", f"the driver could not start the system processor (GSP) of {gpu}"
    if fault.code == 119:
        return "driver-firmware-fault", f"the system processor (GSP) of {gpu} did not answer the driver in time"
    if fault.asked:
        return "hardware-fault", f"the driver has no contact with {gpu} any more, as a tool that asked for it says"
    return "hardware-fault", f"{gpu} no longer answers on the PCI bus"


def _exception(fault: _Fault, group: Sequence[_Fault], gpu: str, who: str, facts: Facts) -> tuple[str, str]:
    xid = fault.xid
    assert xid is not None
    what = f": {xid.exception}" if xid.exception else ""
    at = f" at {xid.place}" if xid.place else ""
    if place := _suspect(group):
        who = f"programs of at least {_PLACES} processes"
        where = f"at the same place, {place}, and nowhere else (Xid {xid.code})"
        return "hardware-fault", f"{who} met exceptions of {gpu} {where}"
    places = {found.xid.place for found in group if found.xid is not None and found.xid.place}
    spread = f"; {len(places)} multiprocessors reported it, which points to the program" if len(places) > 1 else ""
    means = "" if what else _means(xid.code, facts)
    return _usual(xid.code, facts), f"{gpu} raised an exception (Xid {xid.code}){what}{means}{at}{who}{spread}"


def _suspect(group: Sequence[_Fault]) -> str:
    """The one place at which several processes faulted that faulted nowhere else; "" where there is none.

    NVIDIA's workflow for Xid 13 suspects the chip where the place repeats.
    """
    places: dict[tuple[str, int], set[str]] = {}
    for fault in group:
        if fault.xid is not None and fault.xid.pid is not None and fault.xid.place:
            places.setdefault((fault.pci, fault.xid.pid), set()).add(fault.xid.place)
    alone: dict[tuple[str, str], int] = {}
    for (pci, _), seen in places.items():
        if len(seen) == 1:
            key = (pci, next(iter(seen)))
            alone[key] = alone.get(key, 0) + 1
    return next((place for (_, place), count in alone.items() if count >= _PLACES), "")


def _page_fault(xid: Xid, gpu: str, who: str) -> tuple[str, str]:
    fault = xid.mmu_fault
    if fault is None:
        return "gpu-kernel-bug", f"the memory management unit of {gpu} refused an access (Xid 31){who}"
    null = ", which is a null pointer and an offset" if fault.near_null else ""
    tried = {"ACCESS_TYPE_VIRT_READ": "reading", "ACCESS_TYPE_VIRT_WRITE": "writing"}.get(fault.access, "accessing")
    engine = "a copy" if fault.engine.startswith("CE") else "a kernel" if fault.engine == "GRAPHICS" else fault.engine
    where = f"address {fault.address:#x}{null} ({fault.kind}, Xid 31){who}"
    return "gpu-kernel-bug", f"{engine} on {gpu} faulted {tried} {where}"


def _nvlink5(xid: Xid, gpu: str) -> tuple[str, str]:
    rows = nvlink5(xid)
    link = f"NVLink {xid.link}" if xid.link is not None else "an NVLink"
    if not rows:
        return "hardware-fault", f"{link} of {gpu} reported an error (Xid {xid.code})"
    row = rows[0]
    words = f"unit {row.unit.split('/')[0]}, {row.severity.rstrip('*?').lower()}, NVIDIA's advice: {row.action}"
    cause = "driver-firmware-fault" if row.side == "FW" or row.investigate.startswith("INVESTIGATE_SW") else ""
    return cause or "hardware-fault", f"{link} of {gpu} reported an error (Xid {xid.code}, {words}, {row.investigate})"


def _switch(fault: _Fault) -> str:
    row = sxid_row(fault.code)
    link = fault.event.values.get("link")
    name = f" ({row.name})" if row else ""
    return f"NVSwitch {fault.pci} reported SXid {fault.code}{name}" + (f" on its link {link}" if link else "")


def _usual(code: int, facts: Facts) -> str:
    """The cause class of an Xid where its line does not tell more."""
    row = facts.xid(code)
    if code == _REFUSED:
        return "gpu-kernel-bug"
    if row is None:
        return "driver-firmware-fault"
    by_suspect = "driver-firmware-fault" if row.suspect.startswith("driver") else "hardware-fault"
    return _CAUSES.get(row.category, by_suspect)


def _means(code: int, facts: Facts) -> str:
    row = facts.xid(code)
    return f" ({row.means})" if row and not row.means.startswith("not used") else ""


def _beside(own: Event, group: Sequence[_Fault], facts: Facts) -> Hypothesis:
    """A program's own CUDA error with the kernel's line of it beside: the program's error stays what is told."""
    fault = _best(group)
    _, reading = _reading(fault, group, facts)
    ties = []
    if fault.pid is not None and own.line.pid == fault.pid:
        ties.append("for the same process")
    mine, other = own.line.time_s, fault.line.time_s
    if mine is not None and other is not None and own.line.clock == fault.line.clock and abs(mine - other) <= _SAME_S:
        ties.append("in the same second")
    tie = f" {' and '.join(ties)}" if ties else ""
    because = f"the program met an error of its own kernels, and the kernel log has it too{tie}: {reading}"
    cause = "bad-index-or-label" if own.category == "device-side-assert" else "gpu-kernel-bug"
    strength = Strength.LIKELY if ties else Strength.POSSIBLE
    told, lines = own.category, (own.line, fault.line)
    if ties and fault.category == "xid-31" and told == "illegal-memory-access":
        told, lines = "xid-31", (fault.line, own.line)  # the kernel names the access that the program only noticed
    over = tuple(sorted({own.category, *(one.category for one in group)} - {told}))
    return Hypothesis(told, cause, strength, lines, because, over=over)


def _bus_errors(lost: _Fault, story: Story, *, corrected: bool) -> list[Line]:
    """The first PCIe error before a GPU was lost, or got broken commands, of which a ``corrected`` one that names the
    GPU tells too; one is enough to quote."""
    names = ("aer-uncorrected", "aer-received", "pcie-link-down", "pcie-card-gone", "pcie-contained")
    return [
        event.line
        for event in story.before(lost.event)
        if event.signature.id in names
        or (corrected and event.signature.id == "aer-corrected" and lost.pci and lost.pci in event.line.text.lower())
    ][:1]


def _recovery(fault: _Fault, found: Sequence[_Fault]) -> str:
    """What the driver's last Xid 154 of this GPU asks for; "" for none."""
    mine = [other for other in found if other.code == 154 and (other.pci == fault.pci or not fault.pci)]
    asked = [other.xid.recovery for other in mine if other.xid is not None]
    return asked[-1] if asked and asked[-1].lower() != "none" else ""


def _another_day(line: Line, story: Story) -> bool:
    """Whether every root of the programs is known to be of another day than this line."""
    if line.clock != "wall" or line.time_s is None:
        return False
    others = [event.line for event in story.roots if event.line.source != "kernel" and event.line.clock == "wall"]
    times = [other.time_s for other in others]
    return bool(times) and all(time_s is not None and abs(time_s - line.time_s) > _APART_S for time_s in times)
