"""The lines of the kernel log that bear on GPUs, their links and the machine under them.

Of each kind of line the newest ones are kept, so that a flood of one kind never hides a line of another.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import field
from functools import cache
from importlib import resources
from pathlib import Path

from envkit.facts.xid import read_xid
from envkit.host.root import HostRoot, Source, short
from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.host import LogLine
from envkit.system.proc import run

_JOURNAL_S = 2  # journalctl reads the current boot's kernel lines in well under a second on a healthy disk
_JOURNAL = ("journalctl", "-k", "-b", "-q", "-o", "short-monotonic", "--no-pager")
_MOST_LINES = 100_000  # the newest ones; where the log begins is observed with it
_MOST_BYTES = 32 << 20  # the largest buffer that the kernel's configuration allows (CONFIG_LOG_BUF_SHIFT 25)
_KEPT = 64  # lines of one kind, Xid and device; the counts tell how many there were
_OVERLAP_S = 1.0  # a journal that stamps on arrival is late by less
# "nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 12028, Fatal, Link 28 ..." (NVIDIA Fabric Manager user guide)
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)\)\s*: ([0-9]+)")
_ADDRESS = re.compile(r"\b([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b")
_SHORT_ADDRESS = re.compile(r"device \[([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\]")  # VT-d leaves domain 0 out
_KMSG = re.compile(r"[0-9]+,([0-9]+),([0-9]+),[^;]*;(.*)")
_STAMP = re.compile(r"\[ *([0-9]+\.[0-9]+)\](?: \S+ kernel:)? ?(.*)")  # dmesg, and journalctl -o short-monotonic

# A row of the table is a kind of line: its topic, words of which a line must hold one (in small letters), and what it
# must match.  The first kind that fits wins.  The texts are those of the kernel's sources and of NVIDIA's open kernel
# modules.
_TABLE = resources.files("envkit.host").joinpath("log_kinds.jsonl")


@cache
def _kinds() -> tuple[re.Pattern[str], tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...]]:
    """What finds any of the words, and the kinds."""
    kinds = tuple(
        (row["topic"], tuple(row["words"]), re.compile(row["pattern"]))
        for row in map(json.loads, _TABLE.read_text("utf-8").splitlines())
    )
    return re.compile("|".join(re.escape(word) for _, words, _ in kinds for word in words)), kinds


@dataclass(slots=True)
class _Kind:
    """The lines of one topic, Xid and device by their text, the newest last; how many older ones were dropped."""

    lines: dict[str, LogLine] = field(default_factory=dict)
    dropped: int = 0


def _line(text: str, at: float) -> LogLine | None:
    low, (any_word, kinds) = text.lower(), _kinds()
    if not any_word.search(low):  # of most lines
        return None
    topic = next(
        (name for name, words, fits in kinds if any(word in low for word in words) and fits.search(text)), None
    )
    if topic is None:
        return None
    if topic == "xid" and (xid := read_xid(text)):
        return LogLine(text, xid.code, xid.pci, topic, at)
    if topic == "sxid" and (sxid := _SXID.search(text)):
        return LogLine(text, 0, sxid[1].lower(), topic, at, 1, int(sxid[2]))
    if address := _ADDRESS.search(text):
        return LogLine(text, 0, address[1].lower(), topic, at)
    brief = _SHORT_ADDRESS.search(text)
    return LogLine(text, 0, f"0000:{brief[1].lower()}" if brief else "", topic, at)


def parse_record(raw: str) -> tuple[float, str]:
    """Seconds since boot (-1 if the line does not say) and the text of one line of a kernel log.

    It may be a record of /dev/kmsg (kernel documentation, ABI/testing/dev-kmsg), a line of dmesg or of the journal.
    """
    if record := _KMSG.match(raw):
        return int(record[2]) / 1e6, record[3].strip()
    if stamped := _STAMP.match(raw):
        return float(stamped[1]), stamped[2].strip()
    return -1.0, raw.strip()


def parse_log(lines: Iterable[str]) -> tuple[LogLine, ...]:
    """The lines of known kinds, each text once, ordered by the newest line of each.

    Continuation lines of a record (they begin with a space) are its dictionary and are left out.
    """
    kinds: dict[tuple[str, int, str], _Kind] = {}
    order: dict[str, int] = {}
    for number, raw in enumerate(lines):
        if raw.startswith(" "):
            continue
        at, text = parse_record(raw)
        line = _line(text, at)
        if line is None:
            continue
        kind = kinds.setdefault((line.topic, line.xid, line.pci), _Kind())
        before = kind.lines.pop(text, None)
        times = before.times + 1 if before else 1
        kind.lines[text] = LogLine(text, line.xid, line.pci, line.topic, at, times, line.sxid)
        order[text] = number
        if len(kind.lines) > _KEPT:
            kind.dropped += kind.lines.pop(next(iter(kind.lines))).times
    return tuple(sorted((line for kind in kinds.values() for line in _kept(kind)), key=lambda line: order[line.text]))


def _kept(kind: _Kind) -> Iterable[LogLine]:
    for number, line in enumerate(kind.lines.values()):
        dropped = 0 if number else kind.dropped
        yield LogLine(line.text, line.xid, line.pci, line.topic, line.at, line.times, line.sxid, dropped)


def read_kmsg(path: Path) -> str:
    """The records the kernel still holds, 32 MiB at most; raises OSError if they may not be read."""
    records: list[bytes] = []
    size = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while size < _MOST_BYTES:
            try:
                record = os.read(descriptor, 8192)  # the kernel's longest record; a smaller buffer is refused
            except BrokenPipeError:  # records were overwritten between two reads; go on with the oldest left
                continue
            except BlockingIOError:
                break
            if not record:
                break
            records.append(record)
            size += len(record)
    finally:
        os.close(descriptor)
    return b"".join(records).decode("utf-8", "replace")


def beginning(lines: Iterable[str]) -> float | None:
    """Where a log begins, in seconds since boot: 0 if its first record is the kernel's first, None if it is silent."""
    for raw in lines:
        record = _KMSG.match(raw)
        if record and record[1] == "0":
            return 0.0
        at, text = parse_record(raw)
        if text:
            return at if at >= 0 else None
    return None


def _journal() -> tuple[list[str], str]:
    """The journal's kernel lines of this boot, or none and why."""
    try:
        said = run([*_JOURNAL, f"--lines={_MOST_LINES}"], timeout_s=_JOURNAL_S)
    except FileNotFoundError:
        return [], "there is no journalctl"
    if said.exit == 0 and not said.timed_out and said.stdout.strip():
        return said.stdout.splitlines(), ""
    return [], "journalctl -k -b showed nothing"


def joined(journal: list[str], kmsg: list[str], start: float) -> list[str]:
    """What the journal holds from before ``start``, where the kernel's own records begin, and those records."""
    known = {parse_record(raw)[1] for raw in kmsg}
    older = []
    for raw in journal:
        at, text = parse_record(raw)
        if at < start or (at < start + _OVERLAP_S and text not in known):
            older.append(raw)
    return older + kmsg


def read_log(place: HostRoot) -> Observed[list[str]]:
    """The lines of the kernel log of this boot; lost, with every reason, if they may not be read.

    /dev/kmsg comes first; where it lost its beginning, and where it may not be read, the journal of the running
    machine serves.  A log without a single line was not read: every kernel writes some, and a journal that a user may
    not see looks empty to him.
    """
    why = []
    lines: list[str] = []
    try:
        lines = read_kmsg(place.path("dev/kmsg")).splitlines()
        if not any(line.strip() for line in lines):
            lines = []
            why.append("/dev/kmsg is empty")
    except OSError as error:
        why.append(f"/dev/kmsg: {short(error)}")
    start = beginning(lines)
    if lines and (not place.live or start == 0.0):
        return Observed.of(lines, "/dev/kmsg")
    if place.live:
        journal, silent = _journal()
        if journal and lines and start is not None:
            return Observed.of(joined(journal, lines, start), "/dev/kmsg, journalctl -k -b")
        if journal and not lines:
            return Observed.of(journal, "journalctl -k -b")
        why.append(silent)
    return Observed.of(lines, "/dev/kmsg") if lines else Observed.lost("; ".join(why), "/dev/kmsg")


def kernel_log(read: Observed[list[str]]) -> Observed[tuple[LogLine, ...]]:
    """The lines of known kinds."""
    return read.absence() if read.value is None else Observed.of(parse_log(read.value), read.via)


def log_start(read: Observed[list[str]]) -> Observed[float]:
    """Seconds after boot at which the oldest line was written that could be read."""
    if read.value is None:
        return read.absence()
    start = beginning(read.value)
    return Observed.lost("its first line has no time", read.via) if start is None else Observed.of(start, read.via)


def sources(place: HostRoot) -> dict[str, Source]:
    """Both fields, of one reading."""
    read = cache(lambda: read_log(place))
    return {"log": lambda place: kernel_log(read()), "log_start": lambda place: log_start(read())}
