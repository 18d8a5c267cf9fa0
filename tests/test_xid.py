"""One reader and one classification of Xids: `doctor` and `explain` say the same of every code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import machines
import pytest
from gathered import gathered
from logs import story

from envkit import facts as tables
from envkit.facts import Facts
from envkit.facts.xid import XidCategory, read_xid
from envkit.host import log
from envkit.judging.judge import checks, run
from envkit.logs.knowledge import failures
from envkit.logs.xid import failure_of, xid_signatures
from envkit.model import Observed, Outcome

FACTS = tables.load()
TABLE = Path(tables.__file__).parent / "xid.jsonl"
NEW = FACTS.xids[-1].code + 1
LINE = "NVRM: Xid (PCI:0000:1b:00): {}, pid=7, name=python3, what the driver says"
# The check of each category; "host-other-xid" has all others.
CHECKS = {
    XidCategory.BUS: "host-gpu-lost-from-bus",
    XidCategory.POWER: "host-gpu-auxiliary-power-missing",
    XidCategory.DOUBLE_BIT: "host-gpu-uncontained-memory-error",
    XidCategory.UNCORRECTABLE: "host-gpu-uncontained-memory-error",
    XidCategory.UNCONTAINED: "host-gpu-uncontained-memory-error",
    XidCategory.CONTAINED: "host-gpu-contained-memory-error",
    XidCategory.RETIREMENT: "host-gpu-retirement-event",
    XidCategory.NVLINK: "host-nvlink-errors-logged",
    XidCategory.NVLINK5: "host-nvlink-errors-logged",
    XidCategory.GSP: "host-gsp-not-responding",
    XidCategory.RECOVERY: "host-gpu-recovery-requested-in-log",
    XidCategory.EXCEPTION: "host-program-faulted-on-gpu",
    XidCategory.MMU_FAULT: "host-program-faulted-on-gpu",
    XidCategory.CHANNEL_TIMEOUT: "host-program-faulted-on-gpu",
    XidCategory.CHANNEL_RESET: "host-program-faulted-on-gpu",
    XidCategory.CLEANUP: "host-program-faulted-on-gpu",
    XidCategory.VGPU: "host-vgpu-start-failed",
}
OF_THE_LOG = [name for name, check in checks().items() if check.judge.__module__ == "envkit.judging.checks.host_log"]


def failing(code: int, facts: Facts = FACTS) -> list[str]:
    """The checks that find this code in the log of a healthy machine."""
    lines = Observed.of(log.parse_log([f"4,1,100000000,-;{LINE.format(code)}"]), "/dev/kmsg")
    host = replace(machines.host("h100"), log=lines)
    return [name for name in OF_THE_LOG if run(checks()[name], host, facts).outcome is Outcome.FAIL]


def with_row(folder: Path, **changes: object) -> Facts:
    """The facts of the house with one more row, that of a new Xid."""
    rows = TABLE.read_text("utf-8")
    row = json.loads(rows.splitlines()[-1]) | {"code": NEW} | changes
    (folder / "xid.jsonl").write_text(rows + json.dumps(row) + "\n", "utf-8")
    return Facts(folder)


@gathered([row.code for row in FACTS.xids] + [9999])
def test_doctor_and_explain_say_the_same_of_every_code(code: int) -> None:
    category = FACTS.xid_category(code)
    assert failing(code) == [CHECKS.get(category, "host-other-xid")]
    if code > 999:  # the driver has no such codes, and a log that holds one is not told as an Xid
        return
    (event,) = story(LINE.format(code) + "\n").events
    row = FACTS.xid(code)
    informs = row is not None and row.severity == "note" and failure_of(category) == "xid-other"
    assert event.category == ("" if informs else failure_of(category))
    assert informs or event.category in failures()


def test_every_category_is_in_use() -> None:
    assert {row.category for row in FACTS.xids} == set(XidCategory)


@pytest.mark.parametrize(
    ("category", "check", "failure"),
    [("nvlink", "host-nvlink-errors-logged", "xid-74"), ("bus", "host-gpu-lost-from-bus", "xid-79")],
)
def test_a_new_xid_is_one_row(tmp_path: Path, category: str, check: str, failure: str) -> None:
    facts = with_row(tmp_path, category=category)
    assert failing(NEW, facts) == [check]
    assert failing(NEW) == ["host-other-xid"]
    text = LINE.format(NEW)
    first = next(row for row in xid_signatures(facts) if re.search(row.pattern, text))
    assert first.category == failure


@pytest.mark.parametrize("category", ["nvlnk", "", "NVLINK"])
def test_a_row_with_an_unknown_category_is_refused(tmp_path: Path, category: str) -> None:
    facts = with_row(tmp_path, category=category)
    with pytest.raises(ValueError, match=rf"xid\.jsonl:{len(FACTS.xids) + 1}: .*'{category}' - at `\$\.category`"):
        assert facts.xids


@pytest.mark.parametrize(
    ("text", "code", "pci", "mig", "pid", "name", "rest"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=a b, lost.", 79, "0000:01:00", "", 1234, "a b", "lost."),
        ("NVRM: Xid (PCI:0000:3B:00.0): 79, pid='1234', name=a, x", 79, "0000:3b:00.0", "", 1234, "a", "x"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid='<unknown>'", 94, "0000:01:00", "05", None, "", ""),
        ("NVRM: Xid (PCI:0000:01:00): 62, pid=<n/a>, name=<n/a>, 1 2", 62, "0000:01:00", "", None, "", "1 2"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00", "", None, "", "Channel 00000001"),
        ("[XID] NVRM: Xid (PCI:0000:01:00) : 13 Graphics", 13, "0000:01:00", "", None, "", "Graphics"),
    ],
)
def test_every_form_of_the_line_is_read(
    text: str, code: int, pci: str, mig: str, pid: int | None, name: str, rest: str
) -> None:
    found = read_xid(text)
    assert found is not None
    assert (found.code, found.pci, found.mig, found.pid, found.name, found.text) == (code, pci, mig, pid, name, rest)
    assert found.slot == pci.split(".")[0]


@pytest.mark.parametrize("text", ["", "nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 12028, Fatal", "the Xid 79 of May"])
def test_another_line_has_no_xid(text: str) -> None:
    assert read_xid(text) is None


@pytest.mark.parametrize(
    "words", ["0x1 (GPU Reset Required) to 0x0 (None)", "0x2 (Node Reboot Required) to 0x0 (None)"]
)
def test_the_last_recovery_is_what_the_driver_asks_for(words: str) -> None:
    found = read_xid(f"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from {words}")
    assert found is not None and found.recovery == "None"
