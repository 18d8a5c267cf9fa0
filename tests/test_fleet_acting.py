"""Which nodes of a run are drained and which return, whoever drained them and whatever runs there."""

from __future__ import annotations

from pathlib import Path

import fleet
import pytest
from fleet import body, document, fault, healthy, judged, lay
from inline import Envkit

from envkit.errors import Undecided, UsageError
from envkit.fleet import acting, folder
from envkit.fleet.acting import SlurmNode, Step
from envkit.fleet.documents import Found
from envkit.fleet.verdict import FleetVerdict

OURS = "envkit slurm-16.0: host-gpu-lost: GPU 3 is gone"


@pytest.fixture
def verdict(tmp_path: Path) -> FleetVerdict:
    """Of eight nodes n2 failed, n3 is unknown and the others are ok."""
    open_one = document("n3", body(found=(Found("host-no-gpu", "unknown", "no answer"),)))
    return judged(lay(tmp_path, *healthy(n2=document("n2", body(found=(fault(),))), n3=open_one)))


def known(**others: SlurmNode) -> dict[str, SlurmNode]:
    return {name: others.get(name, SlurmNode("idle")) for name in fleet.HOSTS}


def test_failed_nodes_are_drained_with_the_reason(verdict: FleetVerdict) -> None:
    reason = "Reason=envkit slurm-17.0: host-gpu-lost: GPU 3 is gone"
    command = ("scontrol", "update", "NodeName=n2", "State=DRAIN", reason)
    assert acting.to_drain(verdict, known()) == (Step("n2", command),)
    busy = acting.to_drain(verdict, known(n2=SlurmNode("mixed")))
    assert busy == (Step("n2", command, note="its running jobs end first"),)
    assert [step.node for step in acting.to_drain(verdict, known(), unknown_too=True)] == ["n2", "n3"]


@pytest.mark.parametrize("state", ["drained", "draining", "down", "down*", "drained*", "fail", "reboot", "maint"])
@pytest.mark.parametrize(
    ("reason", "whose"), [(OURS, "by envkit"), ("fan broken", "by somebody else"), ("", "no reason")]
)
def test_a_node_that_is_out_of_service_is_left_alone(
    verdict: FleetVerdict, state: str, reason: str, whose: str
) -> None:
    (step,) = acting.to_drain(verdict, known(n2=SlurmNode(state, reason)))
    assert step.command == ()
    assert state in step.why_not
    assert whose in step.why_not or "drain" not in state


def test_a_node_that_slurm_does_not_know(verdict: FleetVerdict) -> None:
    assert acting.to_drain(verdict, {}) == (Step("n2", why_not="Slurm does not know it"),)
    assert acting.to_undrain(verdict, {}) == ()


def test_only_a_node_that_is_ok_and_that_envkit_drained_returns(verdict: FleetVerdict) -> None:
    drained = known(
        n1=SlurmNode("drained", OURS),
        n2=SlurmNode("drained", OURS),
        n3=SlurmNode("draining", OURS),
        n4=SlurmNode("drained", "fan broken"),
        n5=SlurmNode("idle", OURS),
    )
    steps = acting.to_undrain(verdict, drained)
    assert [(step.node, bool(step.command)) for step in steps] == [("n1", True), ("n2", False), ("n3", False)]
    assert steps[0].command == ("scontrol", "update", "NodeName=n1", "State=UNDRAIN")


def test_a_reason_is_printable_and_short(tmp_path: Path) -> None:
    hostile = document("n2", body(found=(fault(message="x\n'\"\\$(reboot)\x1b[31m\u202eé " + "y" * 900),)))
    found = judged(lay(tmp_path, *healthy(n2=hostile)))
    (step,) = acting.to_drain(found, known())
    reason = step.command[-1].removeprefix("Reason=")
    assert len(reason) <= 200 and reason.isascii() and reason.isprintable()
    assert not set(reason) & set("'\"\\")


def test_nodes_that_have_numbers_for_names_are_none_of_slurms(tmp_path: Path) -> None:
    run = fleet.run(("0", "1"), launcher="torchrun")
    with pytest.raises(UsageError, match="are numbers of torchrun"):
        acting.named_by_slurm(judged(lay(tmp_path, run=run)))


PRINTS = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1" in
--noheader) printf 'n1\\tidle\\tnone\\nn2\\tidle\\tnone\\nn2\\tidle\\tnone\\n' ;;
esac
"""
FAILS = "#!/bin/sh\necho 'Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Programs in the place of Slurm's."""
    for name in ("sinfo", "scontrol"):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_what_sinfo_says_of_a_node_in_two_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, PRINTS)
    assert acting.slurm_nodes(["n1", "n2"]) == {"n1": SlurmNode("idle"), "n2": SlurmNode("idle")}
    assert acting.slurm_nodes([]) == {}


def test_a_command_that_slurm_takes_without_effect_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, PRINTS)
    said: list[str] = []
    step = Step("n2", ("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=envkit x: y"))
    left = Step("n1", why_not="Slurm does not know it")
    assert acting.apply([left, step], False, said.append) == 1
    assert said == ["n2: it is idle, and the command was accepted"]


def test_drain_ends_with_3_where_a_command_took_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = lay(tmp_path / "run", *healthy(n2=document("n2", body(found=(fault(),)))))
    put(tmp_path, monkeypatch, PRINTS)
    with Envkit(capsys) as run:
        done = run("drain", place, "--apply")
    assert done.code == 3 and "0 of 1 changes took effect" in done.err


def test_who_puts_a_file_first_is_told_so(tmp_path: Path) -> None:
    assert folder.create(tmp_path / "chosen", b"a") is True
    assert folder.create(tmp_path / "chosen", b"b") is False
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("chosen", b"a")]


def test_a_controller_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, FAILS)
    with pytest.raises(Undecided, match="Unable to contact slurm controller"):
        acting.slurm_nodes(["n1"])
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(Undecided, match="sinfo cannot be run"):
        acting.slurm_nodes(["n1"])


def test_nothing_is_done_without_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = lay(tmp_path / "run", *healthy(n2=document("n2", body(found=(fault(),)))))
    put(tmp_path, monkeypatch, PRINTS)
    with Envkit(capsys) as run:
        done = run("drain", place)
        wrong = run("drain", place, "--undo", "--unknown")
    assert (done.code, wrong.code) == (0, 2)
    assert "n2: scontrol update NodeName=n2 State=DRAIN 'Reason=envkit slurm-17.0: " in done.out
    assert "nothing was done" in done.err
    assert "update" not in (tmp_path / "asked").read_text()
