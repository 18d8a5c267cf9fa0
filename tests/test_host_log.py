"""The driver's lines in the kernel log, in the forms that kernels and tools write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envkit.host import log
from envkit.subjects.host import LogLine

KMSG = """\
6,339,351485,-;nvidia: loading out-of-tree module taints kernel.
4,512,1025951,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
 SUBSYSTEM=pci
 DEVICE=+pci:0000:65:00.0
6,513,1025960,-;usb 1-1: new device
4,514,1025970,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
"""


def test_records_of_kmsg() -> None:
    assert log.parse_log(KMSG.splitlines()) == (
        LogLine("nvidia: loading out-of-tree module taints kernel."),
        LogLine(
            "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
            79,
            "0000:65:00",
        ),
    )


@pytest.mark.parametrize(
    ("line", "xid", "pci"),
    [
        ("NVRM: Xid (PCI:0018:01:00): 31, pid=9, name=a, Ch 00000008", 31, "0018:01:00"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid='<unknown>'", 94, "0000:01:00"),
        ("Aug 10 15:36:05 node kernel: NVRM: Xid (PCI:0000:3B:00): 48, DBE", 48, "0000:3b:00"),
        ("[Tue Aug 11 03:14:22 2026] NVRM: Xid (PCI:0000:01:00) : 13, Graphics", 13, "0000:01:00"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x55:2477)", 0, ""),
        ("nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 12028, Fatal, Link 28", 0, ""),
    ],
)
def test_forms_of_a_line(line: str, xid: int, pci: str) -> None:
    (seen,) = log.parse_log([line])
    assert (seen.xid, seen.pci, seen.text) == (xid, pci, line)


def test_log_of_a_recorded_tree(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(KMSG)
    seen = log.kernel_log(tmp_path)
    assert seen.value is not None
    assert [line.xid for line in seen.value] == [0, 79]


def test_log_that_is_absent_empty_or_forbidden_is_lost(tmp_path: Path) -> None:
    assert log.kernel_log(tmp_path).missing == "/dev/kmsg: no such file or directory"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("")
    assert log.kernel_log(tmp_path).missing == "/dev/kmsg is empty"
    (tmp_path / "dev/kmsg").unlink()
    (tmp_path / "dev/kmsg").mkdir()
    assert log.kernel_log(tmp_path).value is None


def test_fifo_in_place_of_the_log_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    assert log.kernel_log(tmp_path).value is None


def test_quiet_log_without_the_driver_is_observed_and_empty(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("6,1,0,-;Linux version\n")
    assert log.kernel_log(tmp_path).value == ()
