"""Xids: what a line of the kernel log says of one, and the categories that the table ``xid.jsonl`` sorts codes into.

``envkit doctor`` and ``envkit explain`` both read lines with ``read_xid`` and both ask the table for the category, so
they cannot disagree.  The forms of the line are those of NVIDIA's XID Errors documentation
(docs.nvidia.com/deploy/xid-errors) and of the open kernel modules.
"""

from __future__ import annotations

import re
from enum import StrEnum

from envkit.patterns import pattern
from envkit.records import dataclass

_NEAR_NULL = 0x10000  # the first 64 KiB are never mapped (vm.mmap_min_addr), so an address there is null and an offset


class XidCategory(StrEnum):
    """What an Xid is about; a code that the table does not hold is OTHER."""

    BUS = "bus"  # the PCI Express link, or the GPU behind it, no longer answers
    POWER = "power"  # the board lacks its auxiliary power
    START = "start"  # the GPU could not be initialized
    DOUBLE_BIT = "double-bit"  # an error of two bits in memory
    UNCORRECTABLE = "uncorrectable"  # another memory error that ECC could not correct
    CONTAINED = "contained"  # an uncorrectable memory error that cost one program only
    UNCONTAINED = "uncontained"  # one that may have cost every program on the GPU
    RETIREMENT = "retirement"  # a row, page, channel or other part was taken out of use, or could not be
    NVLINK = "nvlink"  # NVLink, NVLink-C2C among it
    NVLINK5 = "nvlink5"  # the units of an NVLink of generation 5, whose lines share a form of their own
    GSP = "gsp"  # the GPU's system processor
    CONTROLLER = "controller"  # another microcontroller of the GPU
    EXCEPTION = "exception"  # an engine refused what a program asked of it
    COPY_ENGINE = "copy-engine"  # an engine that copies or encodes raised an exception: the program or the hardware
    COMMANDS = "commands"  # commands came broken to the GPU: of a program, the driver, or what they went through
    MMU_FAULT = "mmu-fault"  # an access to memory that is not mapped
    CHANNEL_TIMEOUT = "channel-timeout"  # one channel made no progress
    GPU_TIMEOUT = "gpu-timeout"  # the whole GPU, or its change between programs, made no progress
    CHANNEL_RESET = "channel-reset"  # a channel was taken down after a program's fault
    CLEANUP = "cleanup"  # channels were cleaned up early, after an error or when a program was killed
    RECOVERY = "recovery"  # the recovery that the driver asks for has changed
    VGPU = "vgpu"  # a virtual GPU could not be started
    SMOOTHING = "smoothing"  # the power smoothing circuit
    TEST = "test"  # a test message
    OTHER = "other"


def xid_pattern(codes: str = "[0-9]{1,6}") -> str:
    """The regular expression of a line's head for these codes ("8|46"), with the groups pci, mig and xid.

    "NVRM: Xid (PCI:0000:01:00): 79, pid=..., ..." and, on MIG, "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, ...".
    """
    return (
        r"\bXid \((?:PCI:)?(?P<pci>[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,2})?(?:\.[0-9A-Fa-f])?)"
        rf"(?: GPU-I:(?P<mig>[0-9]{{1,3}}))?\)\s{{0,2}}:\s{{0,2}}(?P<xid>{codes})\b"
    )


_LINE = pattern(
    xid_pattern()
    + r"(?:, pid='?(?:(?P<pid>[0-9]{1,10})\b)?[^,]{0,32})?(?:, name=(?P<name>[^,]{0,64}))?"
    + r"(?:,\s?|\s)?(?P<text>.{0,2000})"
)
_PLACE = pattern(r"\(?GPC ([0-9]{1,3}), TPC ([0-9]{1,3})(?:, SM ([0-9]{1,3}))?")
_EXCEPTION = pattern(r"(?:Exception on \([^)]{1,60}\)|Exception Type|Exception): ([A-Z][A-Za-z /-]{3,60})")
_MMU = pattern(
    r"MMU Fault: ENGINE (?P<engine>[A-Z]+[0-9]{0,2}) (?:(?P<gpc>GPC[0-9]{1,2}) )?(?P<client>[A-Z0-9_]+) faulted @ "
    r"0x(?P<address>[0-9a-fA-F_]{1,24})\. Fault is of type (?P<kind>[A-Z_]+)(?: (?P<access>[A-Z_]+))?"
)
_CHANNEL = pattern(r"\b(?:Ch|ChID|Channel(?: ID)?|channel) (?:0x)?([0-9a-fA-F]{1,8})\b")
_PREVIOUS = pattern(r"caused by previous Xid ([0-9]{1,3})")
_RPC = pattern(
    r"Timeout after ([0-9]{1,6})s of waiting for RPC response from (GPU[0-9]{1,3}) GSP! Expected function "
    r"([0-9]{1,6}) \(([A-Z0-9_]{1,60})\)"
)
_RECOVERY = pattern(r"recovery action changed from .{1,60}? to 0x[0-9a-f]+ \(([^)]{1,40})\)", re.IGNORECASE)
_LINK = pattern(
    r"(?:fatal error detected on link|Link) (-1|[0-9]{1,3})\s?"
    r"\((0x[0-9a-fA-F]{1,8}(?:[, ]{1,2}0x[0-9a-fA-F]{1,8}){0,15})\)"
)
_UNIT = pattern(r"\b([A-Z][A-Z0-9_]{3,24}) (?:Fatal|Non-?fatal|Link Fatal)\b", re.IGNORECASE)
_CONTAINED = pattern(r"\b(?:Contained|Uncontained): ([^.]{1,60})\.")
_MILD = pattern(r"\bNon-?fatal\b", re.IGNORECASE)


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
    """One Xid: its ``code``, the GPU's PCI address as written, in small letters ("0000:01:00"), and the process.

    ``mig`` is the MIG instance, "" for none; ``pid`` None and ``name`` "" where the driver did not know the process;
    ``text`` is what the line says behind them.
    """

    code: int
    pci: str
    mig: str
    pid: int | None
    name: str
    text: str

    @property
    def slot(self) -> str:
        """The PCI address without the function."""
        return slot(self.pci)

    @property
    def gpu(self) -> str:
        """The GPU, in words."""
        return f"GPU {self.slot}" + (f" (MIG instance {self.mig})" if self.mig else "") if self.pci else "a GPU"

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
        return found[1] if found else ""

    @property
    def contained(self) -> str:
        """Where a memory error was met (Xid 94 and 95), such as "LTC TAG (0x2,0x0)"; "" where the line does not say."""
        found = _CONTAINED.search(self.text)
        return found[1] if found else ""

    @property
    def rpc(self) -> tuple[int, str, int, str] | None:
        """Of an Xid 119: seconds waited, the driver's name of the GPU, number and name of the function asked for."""
        found = _RPC.search(self.text)
        return (int(found[1]), found[2], int(found[3]), found[4]) if found else None

    @property
    def mmu_fault(self) -> MmuFault | None:
        """Of an Xid 31: the access that failed; None for the older short form."""
        found = _MMU.search(self.text)
        if found is None:
            return None
        address = int(found["address"].replace("_", "") or "0", 16)
        return MmuFault(found["engine"], found["client"], address, found["kind"], found["access"] or "")

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
    def unit(self) -> str:
        """The unit of the NVLink, in capitals; "" where the line names none."""
        found = _UNIT.search(self.text)
        return found[1].upper() if found else ""

    @property
    def mild(self) -> bool:
        """Whether the line itself says that the error is not fatal."""
        return _MILD.search(self.text) is not None


def read_xid(text: str) -> Xid | None:
    """The first Xid of a line, whatever loggers put before it; None for a line without one."""
    found = _LINE.search(text)
    if found is None:
        return None
    name = (found["name"] or "").strip()
    return Xid(
        int(found["xid"]),
        found["pci"].lower(),
        found["mig"] or "",
        int(found["pid"]) if found["pid"] else None,
        "" if name.startswith(("<", "'<")) else name.strip("'"),
        found["text"].strip(),
    )


def slot(pci: str) -> str:
    """A PCI address in small letters and without its function, as Xids give it."""
    return pci.lower().strip(":. ").split(".")[0]
