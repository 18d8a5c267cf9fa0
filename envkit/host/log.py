"""The driver's lines in the kernel log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from envkit.host.place import Source
from envkit.model import Observed
from envkit.proc import run
from envkit.subjects.host import LogLine

_JOURNAL_S = 2  # journalctl reads the current boot's kernel lines in well under a second on a healthy disk
_DRIVER = re.compile(r"NVRM|nvidia|nouveau", re.IGNORECASE)
# "NVRM: Xid (PCI:0000:01:00): 79, pid=..., ..." and, on MIG, "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, ..."
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-I:[0-9]+)?\)\s*: ([0-9]+)")
_KMSG = re.compile(r"[0-9]+,[0-9]+,[0-9]+,[^;]*;(.*)")


def parse_log(lines: Iterable[str]) -> tuple[LogLine, ...]:
    """The driver's lines, each text once, out of /dev/kmsg's records or a plain kernel log.

    Continuation lines of a record (they begin with a space) are its dictionary and are left out.
    """
    found: dict[str, LogLine] = {}
    for raw in lines:
        record = _KMSG.match(raw)
        text = (record[1] if record else raw).strip()
        if raw.startswith(" ") or not _DRIVER.search(text) or text in found:
            continue
        xid = _XID.search(text)
        found[text] = LogLine(text, int(xid[2]), xid[1].lower()) if xid else LogLine(text)
    return tuple(found.values())


def read_kmsg(path: Path) -> str:
    """All records the kernel still holds; raises OSError if they may not be read."""
    records: list[bytes] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(descriptor, 8192)  # the kernel's longest record; a smaller buffer is refused
            except BrokenPipeError:  # records were overwritten between two reads; go on with the oldest left
                continue
            except BlockingIOError:
                break
            if not record:
                break
            records.append(record)
    finally:
        os.close(descriptor)
    return b"".join(records).decode("utf-8", "replace")


def kernel_log(root: Path) -> Observed[tuple[LogLine, ...]]:
    """The driver's lines by /dev/kmsg or, on the running machine, by the journal; lost if neither may be
    read.

    A log without a single line was not read: every kernel writes some, and a journal that a user may not see
    looks empty to him.
    """
    why = []
    try:
        text = read_kmsg(root / "dev/kmsg")
        if text.strip():
            return Observed.of(parse_log(text.splitlines()), "/dev/kmsg")
        why.append("/dev/kmsg is empty")
    except OSError as error:
        why.append(f"/dev/kmsg: {(error.strerror or str(error)).lower()}")
    if root == Path("/"):
        try:
            journal = run(["journalctl", "-k", "-b", "-q", "-o", "cat", "--no-pager"], timeout_s=_JOURNAL_S)
        except FileNotFoundError:
            why.append("there is no journalctl")
        else:
            if journal.exit == 0 and not journal.timed_out and journal.stdout.strip():
                return Observed.of(parse_log(journal.stdout.splitlines()), "journalctl -k -b")
            why.append("journalctl -k -b showed nothing")
    return Observed.lost("; ".join(why), "/dev/kmsg")


SOURCES: dict[str, Source] = {"log": lambda place: kernel_log(place.root)}
