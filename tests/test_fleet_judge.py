"""A run's documents are judged together: each fault is named with its node, and its clean twin is not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import fleet
import msgspec
import pytest
from fleet import BEGAN, HOSTS, body, document, fault, healthy, judged, lay, node_of, prints

from envkit.errors import UsageError
from envkit.fleet import frames, gather
from envkit.fleet.documents import Document, Ended, Found, encoded
from envkit.fleet.verdict import Cause, ClassContract, FleetVerdict, Rules, State, by_cause, judge
from envkit.model import Severity


def only(given: FleetVerdict, name: str, state: State, cause: Cause, *words: str) -> None:
    """Of all nodes this one alone is not ok, for this cause, in a sentence with these words."""
    one = node_of(given, name)
    assert (one.state, one.cause) == (state, cause), one
    assert [each for each in words if each not in one.sentence] == [], one.sentence
    assert {each.node: each.sentence for each in given.nodes if each.state is not State.OK} == {name: one.sentence}
    assert given.exit_code == (1 if state is State.FAIL else 3)


def test_eight_equal_nodes_pass(tmp_path: Path) -> None:
    found = judged(lay(tmp_path, *healthy()))
    assert (found.exit_code, found.named(State.OK)) == (0, HOSTS)


def test_no_answer_at_all_is_eight_failures_by_name(tmp_path: Path) -> None:
    found = judged(lay(tmp_path))
    assert (found.exit_code, found.named(State.FAIL)) == (1, HOSTS)


def test_a_node_that_never_started(tmp_path: Path) -> None:
    only(judged(lay(tmp_path, *healthy(n5=None))), "n5", State.FAIL, Cause.NEVER_STARTED, "never started")


@pytest.mark.parametrize(("level", "words"), [("start", "its start"), ("probe", "level probe"), ("writing", "writing")])
def test_a_node_that_began_and_fell_silent(tmp_path: Path, level: str, words: str) -> None:
    place = lay(tmp_path, *healthy(n5=None), beats=(fleet.beat("n5", level),))
    only(judged(place), "n5", State.FAIL, Cause.SILENT, "fell silent", words, "5 s after it began")


def test_a_node_whose_budget_is_not_over_is_no_failure_yet(tmp_path: Path) -> None:
    place = lay(tmp_path, *healthy(n5=None), beats=(fleet.beat("n5"),))
    found = judged(place, now=BEGAN + fleet.BUDGET_S - 1)
    only(found, "n5", State.UNKNOWN, Cause.RUNNING, "still at the level probe")


@pytest.mark.parametrize(
    ("ended", "cause", "words"), [(Ended.HUNG, Cause.HUNG, "hangs at"), (Ended.DIED, Cause.DIED, "died at")]
)
def test_a_check_that_hangs_or_dies(tmp_path: Path, ended: Ended, cause: Cause, words: str) -> None:
    changed = document(
        "n2", body(passed=(), hardware=None, fingerprint={}), ended_as=ended, level="probe", detail="SIGKILL"
    )
    found = judged(lay(tmp_path, *healthy(n2=changed)))
    only(found, "n2", State.FAIL, cause, words, "level probe", "SIGKILL")


def test_a_fault_that_the_node_itself_found(tmp_path: Path) -> None:
    found = judged(lay(tmp_path, *healthy(n2=document("n2", body(found=(fault(),))))))
    only(found, "n2", State.FAIL, Cause.FOUND, "host-gpu-lost", "GPU 3 is gone")
    warned = healthy(n2=document("n2", body(found=(fault(severity="warning"),))))
    assert judged(lay(tmp_path, *warned)).exit_code == 0
    assert judged(tmp_path, Rules(fail_on=Severity.WARNING)).named(State.FAIL) == ("n2",)


def test_what_stayed_open_is_no_pass(tmp_path: Path) -> None:
    open_one = Found("host-no-gpu", "unknown", "NVML did not answer")
    found = judged(lay(tmp_path, *healthy(n2=document("n2", body(found=(open_one, fault(severity="warning")))))))
    only(found, "n2", State.UNKNOWN, Cause.OPEN, "NVML did not answer")
    nothing = judged(lay(tmp_path / "none", *healthy(n2=document("n2", body(passed=())))))
    only(nothing, "n2", State.UNKNOWN, Cause.OPEN, "nothing was judged")


def test_a_document_that_could_not_be_delivered(tmp_path: Path) -> None:
    late = document("n3", trouble="the disk is full: RUN/nodes was not written")
    place = lay(tmp_path, *healthy(n3=None))
    (tmp_path / "slurm.out").write_text("\n".join(["3: chatter", *(f"3: {line}" for line in frames.lines(late))]))
    found = judge(gather.gather(place, (tmp_path / "slurm.out",), ()), fleet.LATER)
    only(found, "n3", State.UNKNOWN, Cause.NOT_DELIVERED, "disk is full")


def test_two_processes_of_one_node(tmp_path: Path) -> None:
    twin = document("n4", attempt="f" * 16)
    only(judged(lay(tmp_path, *healthy(), twin)), "n4", State.UNKNOWN, Cause.TWICE, "2 processes")
    bad = document("n4", body(found=(fault(),)), attempt="f" * 16)
    assert node_of(judged(lay(tmp_path / "bad", *healthy(), bad)), "n4").state is State.FAIL


def test_the_same_document_from_two_carriers_counts_once(tmp_path: Path) -> None:
    place = lay(tmp_path, *healthy())
    log = tmp_path / "slurm.out"
    log.write_text("\n".join(frames.lines(document("n4"))))
    assert judge(gather.gather(place, (log, log), ()), fleet.LATER).exit_code == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"nonce": "6" * 32}, "nonce"), ({"run": "slurm-16.0"}, "slurm-16.0")],
    ids=["a foreign nonce", "an older run"],
)
def test_a_document_of_another_run(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    found = judged(lay(tmp_path, *healthy(n6=document("n6", **changes))))
    only(found, "n6", State.FAIL, Cause.NEVER_STARTED, "no answer of this run", words)
    assert [one.node for one in found.rejected] == ["n6"]


def test_a_stranger_is_named_and_changes_nothing(tmp_path: Path) -> None:
    found = judged(lay(tmp_path, *healthy(), document("login1")))
    assert found.exit_code == 0
    assert [(one.node, one.why) for one in found.rejected] == [("login1", "no such node was expected")]


def test_a_clock_that_is_off(tmp_path: Path) -> None:
    found = judged(lay(tmp_path, *healthy(n7=document("n7", clock_ahead_s=3600.0))))
    only(found, "n7", State.FAIL, Cause.CLOCK, "3600 s ahead of")
    assert judged(lay(tmp_path / "near", *healthy(n7=document("n7", clock_ahead_s=-2.0)))).exit_code == 0


# -- drift

DRIFT = {
    "driver": ("driver", "570.00.01"),
    "a GPU is lost": ("gpus", "7"),
    "image": ("image", "sha256:" + "b" * 64),
    "NCCL": ("nccl", "0.1"),
    "kernel": ("kernel", "6.1.0"),
    "firmware": ("network firmware", "1.2"),
    "limit": ("limit memlock", "65536:65536"),
    "a variable": ("variable NCCL_DEBUG", "INFO"),
}


@pytest.mark.parametrize("key", DRIFT, ids=str)
def test_one_node_that_differs_from_its_class(tmp_path: Path, key: str) -> None:
    name, value = DRIFT[key]
    same = prints(body(), image="sha256:" + "a" * 64, nccl="0.2", **{"network firmware": "1.1"})
    others = {each: document(each, same) for each in HOSTS}
    found = judged(lay(tmp_path, *healthy(**{**others, "n8": document("n8", prints(same, **{name: value}))})))
    only(found, "n8", State.FAIL, Cause.DRIFT, name, "7 of 8 nodes")
    assert found.not_compared == ()
    assert judged(tmp_path, Rules(may_differ=(name,))).exit_code == 0
    assert judged(lay(tmp_path / "same", *healthy(**others))).exit_code == 0


def test_a_node_that_lost_a_gpu_stays_in_its_class(tmp_path: Path) -> None:
    seven = body({"nvml.gpus": fleet.machines.plain("h100")["nvml"]["value"]["gpus"][:7]})
    assert seven.hardware == body().hardware
    only(
        judged(lay(tmp_path, *healthy(n1=document("n1", seven)))), "n1", State.FAIL, Cause.DRIFT, "gpus is 7 here and 8"
    )


def test_a_tie_is_unknown_for_all(tmp_path: Path) -> None:
    other = prints(body(), driver="570.00.01")
    half = {name: document(name, other) for name in HOSTS[:4]}
    found = judged(lay(tmp_path, *healthy(**half)))
    assert (found.exit_code, found.named(State.UNKNOWN), found.not_compared) == (3, HOSTS, ())
    assert "no value has a majority" in found.nodes[0].sentence
    assert "570.00.01 on n1, n2, n3 and 1 more" in found.nodes[0].sentence


def test_what_failed_on_fewest_nodes_is_said_first_and_what_is_open_last(tmp_path: Path) -> None:
    few = {"n1": document("n1", prints(body(), driver="570.00.01"))}
    more = {name: document(name, body(found=(fault("host-a", "b"),))) for name in ("n2", "n3")}
    unread = {"n4": document("n4", prints(body(), kernel=None))}
    found = judged(lay(tmp_path, *healthy(**unread, **more, **few)))
    assert [(state, names) for state, _, names in by_cause(found)] == [
        (State.FAIL, ("n1",)),
        (State.FAIL, ("n2", "n3")),
        (State.UNKNOWN, ("n4",)),
    ]


def test_what_one_node_could_not_read_is_open_there(tmp_path: Path) -> None:
    found = judged(lay(tmp_path, *healthy(n2=document("n2", prints(body(), driver=None)))))
    only(found, "n2", State.UNKNOWN, Cause.OPEN, "driver was not observed here")
    nobody = {name: document(name, prints(body(), driver=None)) for name in HOSTS}
    found = judged(lay(tmp_path / "all", *healthy(**nobody)))
    assert (found.exit_code, found.not_compared) == (0, ("driver",))


def test_classes_are_judged_apart(tmp_path: Path) -> None:
    desk = {name: document(name, body(machine="desk")) for name in HOSTS[:4]}
    assert judged(lay(tmp_path, *healthy(**desk))).exit_code == 0
    alone = judged(lay(tmp_path / "alone", *healthy(n1=document("n1", body(machine="desk")))))
    only(alone, "n1", State.UNKNOWN, Cause.ALONE, "no other node")
    unread = judged(lay(tmp_path / "unread", *healthy(n1=document("n1", body(hardware=None)))))
    only(unread, "n1", State.UNKNOWN, Cause.OPEN, "hardware class is not known")


def test_a_contract_of_a_class(tmp_path: Path) -> None:
    place = lay(tmp_path, *healthy(n1=document("n1", body(machine="desk"))))
    h100 = ClassContract("h100", "*H100*", {"gpus": "8", "driver": "580.*"})
    desk = ClassContract("desk", "*", {})
    assert judged(place, Rules((h100, desk))).exit_code == 0
    only(judged(place, Rules((h100,))), "n1", State.FAIL, Cause.CONTRACT, "no class of the contract")
    nine = judged(place, Rules((replace(h100, values={"gpus": "9"}), desk)))
    assert nine.named(State.FAIL) == HOSTS[1:]
    assert "gpus is 8, and the contract of h100 asks for 9" in nine.nodes[1].sentence
    unseen = judged(place, Rules((replace(h100, values={"wheels": "9"}), desk)))
    assert (unseen.exit_code, unseen.named(State.UNKNOWN)) == (3, HOSTS[1:])


# -- hostile and damaged files


def written(place: Path, data: bytes, name: str = f"n5.{4:016x}.json") -> FleetVerdict:
    (place / "nodes" / name).write_bytes(data)
    return judged(place)


def _head(**changes: Any) -> bytes:
    good = msgspec.json.decode(encoded(document("n5")).split(b"\n")[0])
    return msgspec.json.encode({**good, **changes}) + b"\n" + encoded(document("n5")).split(b"\n")[1] + b"\n"


DAMAGED = {
    "empty": b"",
    "half a file": encoded(document("n5"))[:600],
    "no last line end": encoded(document("n5"))[:-1],
    "a changed word": encoded(document("n5")).replace(b"host-no-gpu", b"host-no-gpX"),
    "no JSON": b"\xff\xfe{{{{",
    "an array": b"[]\n{}\n",
    "deep": b"[" * 100_000 + b"\n",
    "a verdict in place of findings": _head(sha256="pass"),
    "a name of another place": _head(node="../../etc/passwd"),
    "no number": _head(started="NaN"),
    "an end before its begin": _head(ended=1.0),
    "a word that does not exist": _head(ended_as="passed"),
    "an endless time": _head(started=1e300),
    "a large one": b'{"schema": "envkit.node/1", "detail": "' + b"x" * (5 << 20),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_document_is_unknown_and_named(tmp_path: Path, data: bytes) -> None:
    place = lay(tmp_path, *healthy(n5=None))
    only(written(place, data), "n5", State.UNKNOWN, Cause.DAMAGED, "damaged")


def test_a_document_that_lies_under_another_name(tmp_path: Path) -> None:
    place = lay(tmp_path, *healthy(n5=None))
    found = written(place, encoded(document("n4")))
    assert node_of(found, "n5").cause is Cause.NEVER_STARTED
    assert node_of(found, "n4").state is State.OK


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_plain_file(tmp_path: Path, kind: str) -> None:
    place = lay(tmp_path, *healthy(n5=None))
    path = place / "nodes" / f"n5.{4:016x}.json"
    if kind == "link":
        (tmp_path / "good").write_bytes(encoded(document("n5")))
        path.symlink_to(tmp_path / "good")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert node_of(judged(place), "n5").state is not State.OK


def test_markup_and_escapes_of_a_document_stay_text(tmp_path: Path) -> None:
    from envkit.fleet import answers

    hostile = "</td><script>alert(1)</script>\x1b[31m\n@envkit"
    bad = document("n5", body(found=(fault(message=hostile),)), detail=hostile)
    found = judged(lay(tmp_path, *healthy(n5=bad)))
    for form in ("console", *answers.DOCUMENTS):
        text = answers.render(found, form)
        assert "\x1b" not in text
        assert form == "json" or "<script>" not in text or form in ("console", "nagios")


def test_a_flood_of_files_is_not_read_for_ever(tmp_path: Path) -> None:
    place = lay(tmp_path, *healthy())
    for number in range(1200):
        (place / "beats" / f"x{number}.{'a' * 16}.json").touch()
    found = judged(place)
    assert found.exit_code == 0
    assert any("were not read" in one.why for one in found.rejected)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which nodes shall answer is not known"):
        gather.gather(tmp_path, (), ())
    lay(tmp_path / "slurm-17.0")
    with pytest.raises(UsageError, match="holds 1 runs and is none: slurm-17"):
        gather.gather(tmp_path, (), ())
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="holds no run"):
        gather.gather(tmp_path, (), ())
    with pytest.raises(UsageError, match="expects 8 nodes and 1 others were named"):
        gather.gather(tmp_path / "slurm-17.0", (), ("n1",))


# -- carriers


def log_of(*documents: Document) -> str:
    """Their framed lines, written into one another as several tasks do, each with a launcher's prefix."""
    groups = [[f"[1,{at}]<stdout>:{line}" for line in frames.lines(one)] for at, one in enumerate(documents)]
    mixed = [group.pop(0) for _ in range(max(map(len, groups))) for group in groups if group]
    return "\n".join(["a line of a job", *mixed, ""])


def test_a_log_alone_is_judged_against_the_nodes_that_are_named(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(log_of(*healthy()))
    assert judge(gather.gather(log, (), HOSTS), fleet.LATER).exit_code == 0
    found = judge(gather.gather(log, (), (*HOSTS, "n9")), fleet.LATER)
    only(found, "n9", State.FAIL, Cause.NEVER_STARTED, "never started")
    with pytest.raises(UsageError, match="which nodes shall answer is not known"):
        gather.gather(log, (), ())


def test_a_log_with_two_runs_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text(log_of(document("n1"), document("n2", run="slurm-16.0")))
    with pytest.raises(UsageError, match="documents of 2 runs"):
        gather.gather(log, (), HOSTS)


def test_a_line_that_is_missing_damages_one_node(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    text = log_of(*healthy()).splitlines()
    cut = [line for line in text if f" n3 {2:016x} 1/" not in line]
    assert len(cut) == len(text) - 1
    log.write_text("\n".join(cut))
    only(judge(gather.gather(log, (), HOSTS), fleet.LATER), "n3", State.UNKNOWN, Cause.DAMAGED, "lines of it are there")


def test_a_bomb_in_framed_lines_is_refused(tmp_path: Path) -> None:
    import base64
    import zlib

    packed = base64.b64encode(zlib.compress(b"\0" * (64 << 20), 9)).decode()
    parts = [packed[at : at + 400] for at in range(0, len(packed), 400)]
    lines = [f"@envkit {fleet.NONCE} n1 {0:016x} {at}/{len(parts)} {part}" for at, part in enumerate(parts, 1)]
    (made,) = frames.documents(line.encode() for line in lines)
    assert made.document is None and made.refused is not None and "4 MiB" in made.refused.why


def pod(index: int, message: str, **terminated: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message, **terminated}}
    return {
        "kind": "Pod",
        "metadata": {"name": f"check-{index}", "annotations": {"batch.kubernetes.io/job-completion-index": str(index)}},
        "status": {"phase": "Succeeded", "initContainerStatuses": [{"name": "preflight", "state": state}]},
    }


def test_the_termination_messages_of_pods(tmp_path: Path) -> None:
    from envkit.fleet.node import TERMINATION_BYTES, brief

    hosts = tuple(map(str, range(4)))
    messages = [brief(document(name)).decode() for name in hosts]
    assert max(map(len, messages)) <= TERMINATION_BYTES
    path = tmp_path / "pods.json"
    pods = [pod(at, message) for at, message in enumerate(messages)]
    path.write_bytes(msgspec.json.encode({"kind": "PodList", "items": pods}))
    assert judge(gather.gather(path, (), hosts), fleet.LATER).exit_code == 0
    pods[2] = pod(2, "", exitCode=137, reason="OOMKilled")
    path.write_bytes(msgspec.json.encode({"kind": "PodList", "items": pods}))
    found = judge(gather.gather(path, (), hosts), fleet.LATER)
    only(found, "2", State.FAIL, Cause.NEVER_STARTED, "OOMKilled", "137")


def test_a_termination_message_holds_the_first_faults_and_never_hides_that_it_is_short() -> None:
    from envkit.fleet.documents import decoded
    from envkit.fleet.node import TERMINATION_BYTES, brief

    many = tuple(fault(f"host-check-{at}", "x" * 900) for at in range(200))
    data = brief(document("n1", body(found=many, passed=tuple(f"c{at}" for at in range(300)))))
    read = decoded(data)
    assert len(data) <= TERMINATION_BYTES and read.body.shortened and read.body.found
    notes = tuple(fault(f"host-check-{at}", "x" * 900, "note") for at in range(200))
    short = decoded(brief(document("n1", body(found=notes))))
    assert short.body.shortened and not short.body.found


@pytest.mark.parametrize("text", ['{"items": 3}', "{", '{"kind": "List"}', '{"kind": "List", "items": 3}', "{}"])
def test_what_is_no_list_of_pods(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pods.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="no list of Pods"):
        gather.gather(path, (), HOSTS)
