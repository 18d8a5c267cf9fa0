"""What the kernel wrote that bears on GPUs, their links and the machine under them."""

from __future__ import annotations

from envkit.records import dataclass
from envkit.subjects.host.values import Count, ToldAmount


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the kernel log; lines of the same text are one.

    ``topic`` names what kind of line it is (the list is in envkit/host/log.py); ``xid`` is its Xid and ``sxid`` its
    SXid, 0 for another line; ``pci`` the device it speaks of, empty if it names none.  ``at`` is the time of the newest
    line of this text in seconds since boot, -1 if the log does not say; ``times`` how many there were.  ``left_out``
    counts older lines of the same kind that were not kept.
    """

    text: str
    xid: Count = 0
    pci: str = ""
    topic: str = "driver"
    at: ToldAmount = -1.0
    times: Count = 1
    sxid: Count = 0
    left_out: Count = 0
