"""The driver's error codes in a kernel log: Xids of GPUs and SXids of NVSwitches, with all that their lines say.

The forms are those of NVIDIA's XID Errors documentation (docs.nvidia.com/deploy/xid-errors), of the open kernel modules
and of the Fabric Manager user guide; the reader has taken off what loggers put before them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from envkit.facts.rows import read_table
from envkit.logs.records import Event, Line
from envkit.logs.story import Story

_TABLES = Path(__file__).parent / "tables"
_NEAR_NULL = 0x10000  # the first 64 KiB are never mapped (vm.mmap_min_addr), so an address there is null and an offset

# The codes of each failure; a code that is in none is told as "xid-other".
_CATEGORIES = {
    "xid-8": (8, 46, 109),
    # exceptions of engines, which NVIDIA's catalogue lays first to the program: 39 to 142 are those of copy engines,
    # of video, JPEG and optical flow units
    "xid-13": (
        *(11, 13, 25, 32, 37, 39, 40, 41, 44, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89),
        *range(96, 106),
        *range(126, 136),
        *(139, 141, 142),
    ),
    "xid-31": (31,),
    "xid-43": (43, 174),
    "xid-45": (45,),
    "xid-48": (48,),
    "ecc-uncorrectable": (140, 168, 171, 172, 175),
    "xid-63/64": (63, 64, 92, 156, 157, 160, 161),
    "xid-62": (38, 59, 60, 61, 62),
    "xid-74": (74, 121, 136, 137, 155, 159, 173),
    "xid-79": (54, 79, 167, 176),
    "xid-94/95": (94, 95),
    "xid-119/120 GSP": (119, 120, 143),
    "xid-144-150-nvlink5": tuple(range(144, 151)),
    "xid-154": (154,),
}
_CATEGORY_OF = {code: category for category, codes in _CATEGORIES.items() for code in codes}
OTHER = "xid-other"

_TEXT = re.compile(
    r"\bXid \([^)]{1,48}\)\s{0,2}:\s{0,2}[0-9]{1,3}(?:, pid=(?P<pid>[^,]{0,32}))?(?:, name=(?P<name>[^,]{0,64}))?"
    r"(?:,\s?|\s)?(?P<rest>.{0,2000})"
)
_PLACE = re.compile(r"\(?GPC ([0-9]{1,3}), TPC ([0-9]{1,3})(?:, SM ([0-9]{1,3}))?")
_EXCEPTION = re.compile(r"(?:Exception on \([^)]{1,60}\)|Exception Type|Exception): ([A-Z][A-Za-z /-]{3,60})")
_MMU = re.compile(
    r"MMU Fault: ENGINE (?P<engine>[A-Z]+[0-9]{0,2}) (?:(?P<gpc>GPC[0-9]{1,2}) )?(?P<client>[A-Z0-9_]+) faulted @ "
    r"0x(?P<address>[0-9a-fA-F_]{1,24})\. Fault is of type (?P<kind>[A-Z_]+)(?: (?P<access>[A-Z_]+))?"
)
_CHANNEL = re.compile(r"\b(?:Ch|ChID|Channel(?: ID)?|channel) (?:0x)?([0-9a-fA-F]{1,8})\b")
_PREVIOUS = re.compile(r"caused by previous Xid ([0-9]{1,3})")
_RPC = re.compile(
    r"Timeout after ([0-9]{1,6})s of waiting for RPC response from (GPU[0-9]{1,3}) GSP! Expected function "
    r"([0-9]{1,6}) \(([A-Z0-9_]{1,60})\)"
)
_RECOVERY = re.compile(
    r"recovery action changed from 0x[0-9a-fA-F]+ \(([^)]{1,40})\) to 0x[0-9a-fA-F]+ \(([^)]{1,40})\)"
)
_LINK = re.compile(
    r"(?:fatal error detected on link|Link) (-1|[0-9]{1,3})\s?"
    r"\((0x[0-9a-fA-F]{1,8}(?:[, ]{1,2}0x[0-9a-fA-F]{1,8}){0,15})\)"
)
_UNIT = re.compile(r"\b([A-Z][A-Z0-9_]{3,24}) (Fatal|Non-?fatal|Link Fatal)\b", re.IGNORECASE)
_CONTAINED = re.compile(r"\b(Contained|Uncontained): ([^.]{1,60})\.")

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


@dataclass(frozen=True, slots=True)
class MmuFault:
    """What an Xid 31 line says; ``access`` is "" where it does not say what was tried."""

    engine: str
    client: str
    address: int
    kind: str
    access: str

    @property
    def near_null(self) -> bool:
        """Whether the address is so low that it can only be a null pointer and an offset."""
        return self.address < _NEAR_NULL


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid: its ``line``, ``code``, the GPU's PCI address ("0000:01:00"), the process, and the line's own words.

    ``mig`` is the MIG instance, "" for none; ``pid`` None and ``name`` "" where the driver did not know the process.
    """

    line: Line
    code: int
    pci: str
    mig: str
    pid: int | None
    name: str
    text: str

    @property
    def category(self) -> str:
        """The failure this code is told as."""
        return category_of(self.code)

    @property
    def gpu(self) -> str:
        """The GPU, in words."""
        return f"GPU {self.pci}" + (f" (MIG instance {self.mig})" if self.mig else "") if self.pci else "a GPU"

    @property
    def process(self) -> str:
        """The process, in words; "" where the line does not name one."""
        if self.pid is None:
            return ""
        return f"process {self.pid}" + (f" ({self.name})" if self.name else "")

    @property
    def place(self) -> str:
        """The multiprocessor, such as "GPC 1, TPC 0, SM 1"; "" where the line names none."""
        found = _PLACE.search(self.text)
        if found is None:
            return ""
        return f"GPC {found[1]}, TPC {found[2]}" + (f", SM {found[3]}" if found[3] else "")

    @property
    def exception(self) -> str:
        """What a multiprocessor objected to, such as "Out Of Range Address"; "" where the line does not say."""
        found = _EXCEPTION.search(self.text)
        return found[1].strip() if found else ""

    @property
    def channel(self) -> str:
        """The channel's number, in hexadecimal digits; "" where the line names none."""
        found = _CHANNEL.search(self.text)
        return found[1] if found else ""

    @property
    def previous(self) -> int | None:
        """The Xid that the driver itself names as this one's cause."""
        found = _PREVIOUS.search(self.text)
        return int(found[1]) if found else None

    @property
    def recovery(self) -> str:
        """What the driver asks for (Xid 154), in its words; "" where the line does not say."""
        found = _RECOVERY.search(self.text)
        return found[2] if found else ""

    @property
    def contained(self) -> str:
        """Where a memory error was met (Xid 94 and 95), such as "LTC TAG (0x2,0x0)"; "" where the line does not say."""
        found = _CONTAINED.search(self.text)
        return found[2] if found else ""

    @property
    def rpc(self) -> tuple[int, str, int, str] | None:
        """Of an Xid 119: seconds waited, the driver's name of the GPU, number and name of the function asked for."""
        found = _RPC.search(self.text)
        return (int(found[1]), found[2], int(found[3]), found[4]) if found else None

    @property
    def link(self) -> int | None:
        """The number of the NVLink; None where the line names none, or all of them (-1)."""
        found = _LINK.search(self.text)
        return int(found[1]) if found and found[1] != "-1" else None

    @property
    def words(self) -> tuple[int, ...]:
        """The registers behind the link's number."""
        found = _LINK.search(self.text)
        return tuple(int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", found[2])) if found else ()

    @property
    def mild(self) -> bool:
        """Whether the line itself says that the error is not fatal."""
        return re.search(r"\bNon-?fatal\b", self.text, re.IGNORECASE) is not None


def category_of(code: int) -> str:
    """The failure that an Xid is told as; "xid-other" for one that is like none of the others."""
    return _CATEGORY_OF.get(code, OTHER)


def parsed(event: Event) -> Xid | None:
    """The Xid of an event whose signature gives one; None for any other event."""
    code = event.values.get("xid")
    if not code or not (code.isascii() and code.isdigit()):
        return None
    found = _TEXT.search(event.line.text)
    pid = event.values.get("pid") or ""
    name = (found["name"] or "").strip() if found else ""
    return Xid(
        event.line,
        int(code),
        slot(event.values.get("pci") or ""),
        event.values.get("mig") or "",
        int(pid) if pid.isascii() and pid.isdigit() else None,
        "" if name.startswith(("<", "'<")) else name.strip("'"),
        found["rest"].strip() if found else event.line.text,
    )


def xids(story: Story) -> tuple[Xid, ...]:
    """The Xids of all kernel logs, in the story's order."""
    return tuple(found for event in story.events if (found := parsed(event)) is not None)


def mmu_fault(xid: Xid) -> MmuFault | None:
    """What an Xid 31 says of the access that failed; None for the older short form."""
    found = _MMU.search(xid.text)
    if found is None:
        return None
    address = int(found["address"].replace("_", "") or "0", 16)
    return MmuFault(found["engine"], found["client"], address, found["kind"], found["access"] or "")


def nvlink5(xid: Xid) -> tuple[Nvlink5Row, ...]:
    """The rules of NVIDIA's catalogue that an Xid of 144 to 150 matches, those of later drivers first.

    The unit that the line names must be the rule's too: the two generations' bits overlap.
    """
    if len(xid.words) < 2:
        return ()
    first, status = f"{xid.words[0]:032b}"[-32:], xid.words[1]
    unit = _UNIT.search(xid.text)
    rows = [row for row in _nvlink5() if row.xid == xid.code and int(row.status, 16) == status]
    if unit:
        rows = [row for row in rows if unit[1].upper() in row.unit.split("/") or row.unit.startswith(unit[1].upper())]
    late = [row for row in rows if _fits(first, row.late)]
    return tuple(late or [row for row in rows if _fits(first, row.early)])


def nvlink_faults(xid: Xid) -> tuple[str, ...]:
    """What the registers of an Xid 74 say, each as a short phrase, the gravest first; empty where they say nothing.

    Source: NVIDIA's workflow for NVLink errors, which knows the bits of the first, third, fourth and fifth register.
    """
    seen = {
        row.reading
        for row in _nvlink_bits()
        if row.register <= len(xid.words) and any(xid.words[row.register - 1] >> bit & 1 for bit in row.bits)
    }
    return tuple(phrase for reading, phrase in _READINGS.items() if reading in seen)


def nvlink_sympathetic(xid: Xid) -> bool:
    """Whether all that the registers of an Xid 74 say is that something else had failed before."""
    found = set(nvlink_faults(xid))
    return bool(found) and found <= {_READINGS["peer"], _READINGS["ignore"]}


def sxid_row(code: int) -> SxidRow | None:
    """What is known of one SXid; None for a code that the table does not hold."""
    return next((row for row in _sxids() if row.code == code), None)


def slot(pci: str) -> str:
    """A PCI address in small letters and without its function, as Xids give it."""
    return pci.lower().strip(":. ").split(".")[0]


def _fits(bits: str, pattern: str) -> bool:
    return len(bits) == len(pattern) and all(want in ("-", bit) for bit, want in zip(bits, pattern, strict=True))


@cache
def _nvlink5() -> tuple[Nvlink5Row, ...]:
    return read_table(Nvlink5Row, _TABLES / "nvlink5.jsonl")


@cache
def _nvlink_bits() -> tuple[NvlinkBitsRow, ...]:
    return read_table(NvlinkBitsRow, _TABLES / "nvlink_bits.jsonl")


@cache
def _sxids() -> tuple[SxidRow, ...]:
    return read_table(SxidRow, _TABLES / "sxid.jsonl")
