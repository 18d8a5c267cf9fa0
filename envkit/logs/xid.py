"""What explanations make of the driver's error codes: the failure each Xid is told as, and NVIDIA's tables of NVLinks.

The line itself is read by ``envkit.facts.xid``.  Sources: NVIDIA, XID Errors (docs.nvidia.com/deploy/xid-errors);
NVIDIA Fabric Manager user guide, SXid errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from envkit.facts import Facts
from envkit.facts.rows import read_table_once
from envkit.facts.xid import Xid, XidCategory, read_xid, xid_pattern
from envkit.logs.records import Event, Role, Signature
from envkit.records import dataclass

_TABLES = Path(__file__).parent / "tables"
_SOURCE, _SEEN = "NVIDIA, XID Errors (docs.nvidia.com/deploy/xid-errors)", "2026-11-21"
_OTHER = "xid-other"

# the failure (an id of ``failures/*.jsonl``) that each category is told as; one without is told as _OTHER
_FAILURES: Mapping[XidCategory, str] = {
    XidCategory.CHANNEL_TIMEOUT: "xid-8",
    XidCategory.GPU_TIMEOUT: "xid-8",
    # exceptions of engines, which NVIDIA's catalogue lays first to the program
    XidCategory.EXCEPTION: "xid-13",
    XidCategory.COPY_ENGINE: "xid-13",
    XidCategory.MMU_FAULT: "xid-31",
    XidCategory.CHANNEL_RESET: "xid-43",
    XidCategory.CLEANUP: "xid-45",
    XidCategory.DOUBLE_BIT: "xid-48",
    XidCategory.POWER: "xid-54",
    XidCategory.UNCORRECTABLE: "ecc-uncorrectable",
    XidCategory.RETIREMENT: "xid-63/64",
    XidCategory.CONTROLLER: "xid-62",
    XidCategory.NVLINK: "xid-74",
    XidCategory.BUS: "xid-79",
    XidCategory.CONTAINED: "xid-94/95",
    XidCategory.UNCONTAINED: "xid-94/95",
    XidCategory.GSP: "xid-119/120 GSP",
    XidCategory.START: "xid-143",
    XidCategory.NVLINK5: "xid-144-150-nvlink5",
    XidCategory.RECOVERY: "xid-154",
}
_FOLLOWS = ("xid-43", "xid-45", "xid-154")  # what never comes first

_READINGS = {
    "hardware": "parity or ECC errors inside the link's logic",
    "seat": "errors that a badly seated board or bridge makes",
    "signal": "a marginal signal on the link",
    "watch": "errors that count where they come again",
    "threshold": "corrected ECC errors over their threshold",
    "peer": "only what follows from a fault elsewhere",
    "ignore": "nothing that counts",
}


@dataclass(frozen=True, slots=True)
class NvlinkBitsRow:
    """What bits of one register (1 is the first) of an Xid 74 line say; ``reading`` is a key of ``_READINGS``."""

    register: int
    bits: tuple[int, ...]
    reading: str
    source: str
    seen: str


@dataclass(frozen=True, slots=True)
class Nvlink5Row:
    """One rule of Xid 144 to 150.

    ``early`` and ``late`` are the 32 bits of the line's first word, highest first, as drivers of the two generations
    write it ("-" is any bit); ``status`` is its second word.  ``side`` is "HW", "SW", "FW" or several.
    """

    xid: int
    unit: str
    early: str
    late: str
    status: str
    action: str
    investigate: str
    severity: str
    side: str
    source: str
    seen: str


@dataclass(frozen=True, slots=True)
class SxidRow:
    """One SXid; ``fatal`` is "yes", "maybe", "always" (whatever the line says) or "no"."""

    code: int
    name: str
    fatal: str
    source: str
    seen: str


def failure_of(category: XidCategory) -> str:
    """The failure that the Xids of a category are told as; "xid-other" for one that is like none of the others."""
    return _FAILURES.get(category, _OTHER)


def xid_signatures(facts: Facts) -> tuple[Signature, ...]:
    """The wordings of Xids, one for each failure, made of the rows of ``xid.jsonl``; a code without a row is the last.

    Codes that are no more than a note and are like no failure (test messages, say) only inform.
    """
    codes: dict[str, list[str]] = {failure: [] for failure in dict.fromkeys(_FAILURES.values())}
    notes = []
    for row in facts.xids:
        failure = failure_of(row.category)
        if failure != _OTHER:
            codes[failure].append(str(row.code))
        elif row.severity == "note":
            notes.append(str(row.code))
    told = [
        _signature(failure, Role.CASCADE if failure in _FOLLOWS else Role.ROOT, "|".join(those))
        for failure, those in codes.items()
        if those
    ]
    silent = [_signature("", Role.DIAGNOSTIC, "|".join(notes))] if notes else []
    return (*told, *silent, _signature(_OTHER, Role.ROOT, "[0-9]{1,3}"))


def _signature(failure: str, role: Role, codes: str) -> Signature:
    id = "nvrm-" + (re.sub(r"[^a-z0-9]+", "-", failure.lower()) or "xid-note")
    return Signature(id, failure, role, xid_pattern(codes), "xid (", _SOURCE, _SEEN, ("prose",))


def parsed(event: Event) -> Xid | None:
    """The Xid of an event whose signature gives one; None for any other event."""
    code = event.values.get("xid")
    if not code or not (code.isascii() and code.isdigit()):
        return None
    found = read_xid(event.line.text)
    if found is not None and found.code == int(code):
        return found
    # a tool that asked the driver words it in its own way, and a damaged line may hold two codes
    return Xid(int(code), event.values.get("pci") or "", event.values.get("mig") or "", None, "", event.line.text)


def nvlink5(xid: Xid) -> tuple[Nvlink5Row, ...]:
    """The rules of NVIDIA's catalogue that an Xid of 144 to 150 matches, those of later drivers first.

    The unit that the line names must be the rule's too: the two generations' bits overlap.
    """
    if len(xid.words) < 2:
        return ()
    first, status = f"{xid.words[0]:032b}"[-32:], xid.words[1]
    known = read_table_once(Nvlink5Row, _TABLES / "nvlink5.jsonl")
    rows = [row for row in known if row.xid == xid.code and int(row.status, 16) == status]
    if xid.unit:
        rows = [row for row in rows if xid.unit in row.unit.split("/") or row.unit.startswith(xid.unit)]
    late = [row for row in rows if _fits(first, row.late)]
    return tuple(late or [row for row in rows if _fits(first, row.early)])


def nvlink_faults(xid: Xid) -> tuple[str, ...]:
    """What the registers of an Xid 74 say, each as a short phrase, the gravest first; empty where they say nothing.

    Source: NVIDIA's workflow for NVLink errors, which knows the bits of the first, third, fourth and fifth register.
    """
    seen = {
        row.reading
        for row in read_table_once(NvlinkBitsRow, _TABLES / "nvlink_bits.jsonl")
        if row.register <= len(xid.words) and any(xid.words[row.register - 1] >> bit & 1 for bit in row.bits)
    }
    return tuple(phrase for reading, phrase in _READINGS.items() if reading in seen)


def nvlink_sympathetic(xid: Xid) -> bool:
    """Whether all that the registers of an Xid 74 say is that something else had failed before."""
    found = set(nvlink_faults(xid))
    return bool(found) and found <= {_READINGS["peer"], _READINGS["ignore"]}


def sxid_row(code: int) -> SxidRow | None:
    """What is known of one SXid; None for a code that the table does not hold."""
    return next((row for row in read_table_once(SxidRow, _TABLES / "sxid.jsonl") if row.code == code), None)


def _fits(bits: str, pattern: str) -> bool:
    return len(bits) == len(pattern) and all(want in ("-", bit) for bit, want in zip(bits, pattern, strict=True))
