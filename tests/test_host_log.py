"""The kernel log, in the forms that kernels and tools write it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gathered import gathered

from envkit.host import log
from envkit.host.root import HostRoot
from envkit.model import Observed
from envkit.subjects.host import LogLine

KMSG = """\
6,339,351485,-;nvidia: loading out-of-tree module taints kernel.
4,512,1025951,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
 SUBSYSTEM=pci
 DEVICE=+pci:0000:65:00.0
6,513,1025960,-;usb 1-1: new device
4,514,1025970,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
"""

# what healthy kernels write at every boot, and what must not be taken for a fault
HEALTHY = """\
mce: CPU0: Thermal monitoring enabled (TM1)
mce: Using 32 MCE banks
MCE: In-kernel MCE decoding enabled.
EDAC MC: Ver: 3.0.0
EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0: DEV 0000:7e:0c.0 (INTERRUPT)
RAS: Correctable Errors collector initialized.
pcieport 0000:00:1c.0: AER: enabled with IRQ 122
pcieport 0000:00:1c.0: DPC: enabled with IRQ 122
pcieport 0000:00:1c.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 4
pciehp 0000:00:1c.0:pcie004: Slot #3 AttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug+ Surprise+
ata1: SATA link down (SStatus 0 SControl 300)
blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0
I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2
EXT4-fs (sda1): mounted filesystem 6f1c r/w with ordered data mode. Quota mode: none.
XFS (nvme0n1p2): Mounting V5 Filesystem 2c1d
nvme nvme0: Shutdown timeout set to 10 seconds
mlx5_core 0000:18:00.0: firmware version: 28.39.1002
mlx5_core 0000:18:00.0 ens1f0np0: Link up
rcu: Hierarchical RCU implementation.
rcu: RCU calculated value of scheduler-enlistment delay is 25 jiffies.
NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.
traps: python3[4711] general protection fault ip:7f0000000000 sp:7ffc00000000 error:0 in libfoo.so[7f0000000000+1000]
DMAR: Intel(R) Virtualization Technology for Directed I/O
pci 0000:00:1f.0: quirk_ich7_lpc: LPC I/O region
"""


@pytest.fixture
def tree(tmp_path: Path) -> HostRoot:
    (tmp_path / "dev").mkdir()
    return HostRoot(tmp_path, {})


def seen(place: HostRoot) -> Observed[tuple[LogLine, ...]]:
    return log.sources(place)["log"](place)


def test_records_of_kmsg() -> None:
    fallen = "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
    assert log.parse_log(KMSG.splitlines()) == (
        LogLine("nvidia: loading out-of-tree module taints kernel.", at=0.351485),
        LogLine(fallen, 79, "0000:65:00", "xid", 1.02597, 2),
    )


@pytest.mark.parametrize(
    ("line", "xid", "pci"),
    [
        ("NVRM: Xid (PCI:0018:01:00): 31, pid=9, name=a, Ch 00000008", 31, "0018:01:00"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid='<unknown>'", 94, "0000:01:00"),
        ("Aug 10 15:36:05 node kernel: NVRM: Xid (PCI:0000:3B:00): 48, DBE", 48, "0000:3b:00"),
        ("[Tue Aug 11 03:14:22 2026] NVRM: Xid (PCI:0000:01:00) : 13, Graphics", 13, "0000:01:00"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x55:2477)", 0, "0000:3b:00.0"),
        ("nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 12028, Fatal, Link 28", 0, "0000:0b:00.0"),
    ],
)
def test_forms_of_a_line(line: str, xid: int, pci: str) -> None:
    (found,) = log.parse_log([line])
    assert (found.xid, found.pci, found.text, found.at) == (xid, pci, line, -1.0)


@pytest.mark.parametrize(
    ("raw", "at", "text"),
    [
        ("4,512,1025951,-;NVRM: x", 1.025951, "NVRM: x"),
        ("4,512,1025951,c,caller=T1;NVRM: x", 1.025951, "NVRM: x"),
        ("[   12.345678] NVRM: x", 12.345678, "NVRM: x"),
        ("[   12.345678] node kernel: NVRM: x", 12.345678, "NVRM: x"),
        ("NVRM: x", -1.0, "NVRM: x"),
    ],
)
def test_times_of_a_line(raw: str, at: float, text: str) -> None:
    assert log.parse_record(raw) == (at, text)


@pytest.mark.parametrize("line", HEALTHY.splitlines())
def test_what_every_boot_writes_is_no_fault(line: str) -> None:
    assert log.parse_log([line]) == ()


@gathered(
    [
        ("sxid", "nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 12028, Fatal, Link 28"),
        ("off bus", "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."),
        ("start", "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x55:2477)"),
        ("start", "nvidia 0000:01:00.0: probe with driver nvidia failed with error -1"),
        ("start", "nvidia: probe of 0000:01:00.0 failed with error -1"),
        ("start", "NVRM: None of the NVIDIA devices were initialized."),
        ("mismatch", "NVRM: API mismatch: the client has the version 1, but this kernel module has 2"),
        ("gsp", "NVRM: _kgspRpcRecvPoll: GPU0: Timeout waiting for RPC from GSP!"),
        ("locked", "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7"),
        ("lockup", "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:123]"),
        ("lockup", "watchdog: Watchdog detected hard LOCKUP on cpu 4"),
        ("lockup", "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 31s!"),
        ("lockup", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
        ("oops", "BUG: unable to handle page fault for address: ffff8881"),
        ("oops", "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP"),
        ("place", "RIP: 0010:_nv012345rm+0x12/0x34 [nvidia]"),
        ("hung", "INFO: task nvidia-smi:4711 blocked for more than 120 seconds."),
        ("oom", "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB"),
        ("edac", "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0"),
        ("machine", "{1}[Hardware Error]: event severity: corrected"),
        ("machine", "Memory failure: 0x12345: recovery action for dirty LRU page: Recovered"),
        ("aer", "nvidia 0000:41:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)"),
        ("aer", "pcieport 0000:40:01.1: AER: Uncorrectable (Fatal) error message received from 0000:41:00.0"),
        ("link lost", "pcieport 0000:00:1c.0: pciehp: Slot(3): Link Down"),
        ("bar", "pci 0000:41:00.0: BAR 1 [mem size 0x1000000000 64bit pref]: can't assign; no space"),
        ("iommu", "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:41:00.0 domain=0x0001 address=0x1 flags=0x0]"),
        ("read-only", "EXT4-fs (sda1): Remounting filesystem read-only"),
        ("read-only", "XFS (sda1): Filesystem has been shut down due to log error (0x2)."),
        ("nvme", "nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting"),
        ("storage", "Buffer I/O error on dev sda1, logical block 0, async page read"),
        ("storage", "critical medium error, dev sda, sector 100 op 0x0:(READ)"),
        ("nic", "mlx5_core 0000:18:00.0: poll_health:839:(pid 0): Fatal error 3 detected"),
        ("link down", "mlx5_core 0000:18:00.0 ens1f0np0: Link down"),
        ("link down", "igc 0000:06:00.0 enp6s0: NIC Link is Down"),
        ("link down", "r8169 0000:03:00.0 enp3s0: Link is Down"),
        ("crash", "python3[1]: segfault at 8 ip 00007f sp 00007f error 4 in libnccl.so.2[7f+9]"),
        ("driver", "NVRM: loading NVIDIA UNIX Open Kernel Module"),
    ]
)
def test_topics(topic: str, line: str) -> None:
    (found,) = log.parse_log([line])
    assert found.topic == topic


def test_a_flood_of_one_kind_hides_no_line_of_another() -> None:
    def fault(pid: int) -> str:
        return f"4,9,9000000,-;NVRM: Xid (PCI:0000:65:00): 31, pid={pid}, name=python3, Ch 8"

    lines = [*KMSG.splitlines(), *(fault(pid) for pid in range(5000))]
    found = log.parse_log(lines)
    assert [line.xid for line in found[:3]] == [0, 79, 31]
    faults = [line for line in found if line.xid == 31]
    assert sum(line.times + line.left_out for line in faults) == 5000
    assert len(faults) < 100
    assert "pid=4999" in faults[-1].text


def test_log_of_a_recorded_tree(tree: HostRoot) -> None:
    tree.path("dev/kmsg").write_text(KMSG)
    found = seen(tree)
    assert found.value is not None
    assert [line.xid for line in found.value] == [0, 79]
    assert log.sources(tree)["log_start"](tree) == Observed.of(0.351485, "/dev/kmsg")


@pytest.mark.parametrize(
    ("lines", "start"),
    [
        (["5,0,0,-;Linux version"], 0.0),
        (["5,0,123,-;Linux version"], 0.0),
        (["6,977,86000500000,-;late"], 86000.5),
        (["Aug 10 15:36:05 node kernel: Linux version"], None),
        ([], None),
    ],
)
def test_where_a_log_begins(lines: list[str], start: float | None) -> None:
    assert log.beginning(lines) == start


def test_a_line_without_a_time_leaves_the_beginning_open(tree: HostRoot) -> None:
    tree.path("dev/kmsg").write_text("Linux version\n")
    assert log.sources(tree)["log_start"](tree).missing == "its first line has no time"


def test_log_that_is_absent_empty_or_forbidden_is_lost(tree: HostRoot) -> None:
    assert seen(tree).missing == "/dev/kmsg: no such file or directory"
    tree.path("dev/kmsg").write_text("\n\n")
    assert seen(tree).missing == "/dev/kmsg is empty"
    tree.path("dev/kmsg").unlink()
    tree.path("dev/kmsg").mkdir()
    assert seen(tree).value is None
    assert log.sources(tree)["log_start"](tree).value is None


def test_fifo_in_place_of_the_log_does_not_block(tree: HostRoot) -> None:
    os.mkfifo(tree.path("dev/kmsg"))
    assert seen(tree).value is None


def test_quiet_log_without_the_driver_is_observed_and_empty(tree: HostRoot) -> None:
    tree.path("dev/kmsg").write_text("6,1,0,-;Linux version\n")
    assert seen(tree).value == ()


def test_garbage_in_place_of_the_log_is_read_and_holds_nothing(tree: HostRoot) -> None:
    tree.path("dev/kmsg").write_bytes(bytes(range(256)) * 8192)
    assert seen(tree).value == ()


def test_the_journal_gives_what_the_buffer_lost_and_nothing_twice() -> None:
    kmsg = ["6,500,100000000,-;NVRM: two", "6,501,101000000,-;NVRM: three"]
    journal = ["[    5.000000] node kernel: NVRM: one", "[  100.200000] node kernel: NVRM: two"]
    assert log.joined(journal, kmsg, 100.0) == [journal[0], *kmsg]
    late = [*journal, "[  100.300000] node kernel: NVRM: came late"]
    assert log.joined(late, kmsg, 100.0) == [late[0], late[2], *kmsg]
