"""Ranks side by side: what their records tell, what the companion writes, and when a job is called hung."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from clocks import ends

from envkit import debug, facts
from envkit.debug import job, ranks, render
from envkit.debug.records import PythonFrame, Verdict
from envkit.logs import flight

COMPANION = job.COMPANION
AT = ["/w/train.py", 40, "step"]
TORCH = "/usr/lib/python3/dist-packages/torch/"
SPOT = [["/w/train.py", 9, "<module>"], ["/w/data.py", 12, "batch"]]


def written(folder: Path, rank: int, made: Sequence[Mapping[str, Any]], **still: Any) -> None:
    """The files of one rank of a job of two, as the companion writes them; ``still`` are fields of its last look."""
    folder.mkdir(exist_ok=True)
    backend, world = still.pop("backend", "nccl"), still.pop("world", 2)
    host, joined, ended = still.pop("host", "one"), still.pop("joined", True), still.pop("ended", False)
    rows: list[Mapping[str, Any]] = [{"e": "rank", "rank": rank, "world": world, "pid": 100 + rank, "host": host}]
    if joined:
        rows.append({"e": "group", "g": "0", "ranks": list(range(world)), "backend": backend, "default": True})
    number = seq = done = 0
    for call in made:
        number, call = done + 1, dict(call)
        left = call.pop("left", True)
        numbered = call["op"] not in ("recv", "send", "init_process_group", "destroy_process_group")
        seq += numbered
        rows.append({"e": "in", "n": number, "g": "0", "at": AT, **({"s": seq} if numbered else {}), **call})
        rows += [{"e": "out", "n": number}] if left else []
        done = number + left
    rows += [{"e": "end"}] if ended else []
    (folder / f"ranks-{host}-{100 + rank}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if still:
        frames = still.pop("main", SPOT)
        said = {"reason": "still", "calls": done, "modules": [], **still}
        said["threads"] = [{"name": "MainThread", "main": True, "frames": frames}]
        (folder / f"still-{host}-{100 + rank}.json").write_text(json.dumps(said))


def ran(folder: Path, ended: str = "hung", **more: Any) -> job.CommandRun:
    return job.CommandRun(folder, ended, None if ended == "hung" else 1, 20.0, **more)


def told(folder: Path, hung: bool = True, **more: Any) -> ranks.Diagnosis | None:
    run = ran(folder, "hung" if hung else "exited", **more)
    return ranks.told(ranks.read(run), ranks.dumps(folder), hung)


def cause(folder: Path, hung: bool = True, **more: Any) -> str:
    found = told(folder, hung, **more)
    assert found is not None
    return found.cause


def all_reduce(numel: int = 4, **more: Any) -> dict[str, Any]:
    return {"op": "all_reduce", "shape": [[numel]], "numel": numel, "dtype": "float32", "by": "SUM", **more}


def model(missing: Sequence[tuple[str, bool | None]] = (), backwards: int = 3, **more: Any) -> dict[str, Any]:
    return {
        "kind": "Net",
        "parameters": 4,
        "backwards": backwards,
        "missing": [list(each) for each in missing],
        "missing_count": len(missing),
        **more,
    }


# -- the first collective that differs


@pytest.mark.parametrize(
    ("other", "what", "word"),
    [
        ({"op": "broadcast", "peers": {"src": 0}}, "operations", "broadcast src 0 at /w/train.py:40 in step"),
        (all_reduce(8), "sizes", "all_reduce of [8] float32"),
        (all_reduce(dtype="float16"), "sizes", "all_reduce of [4] float16"),
        (all_reduce(by="MAX"), "reductions", "(MAX)"),
    ],
)
def test_the_first_collective_that_differs_is_named(
    tmp_path: Path, other: dict[str, Any], what: str, word: str
) -> None:
    written(tmp_path, 0, [all_reduce(), all_reduce(left=False)])
    written(tmp_path, 1, [all_reduce(), {**other, "left": False}])
    found = told(tmp_path)
    assert found is not None and found.cause_class == "rank-desync"
    assert f"collective 2 of the default group is not the same on all ranks, their {what} differ" in found.cause
    assert "rank 0 calls all_reduce of [4] float32" in found.cause and word in found.cause


def test_another_order_in_a_job_that_ended_well_is_told_and_what_may_differ_is_not(tmp_path: Path) -> None:
    """NCCL and gloo may carry out what does not fit together, and give wrong numbers without a word."""
    gathers = {"op": "all_gather", "shape": [[4]], "numel": 4, "dtype": "float32"}
    for name, other in (
        ("order", {"op": "broadcast", "peers": {"src": 0}}),
        ("sizes", all_reduce(8)),
        ("uneven", {**gathers, "numel": 5, "shape": [[5]]}),
        ("same", all_reduce()),
    ):
        for rank in (0, 1):
            first = gathers if name == "uneven" else all_reduce()
            written(tmp_path / name, rank, [all_reduce(), other if rank else first, all_reduce()])
    said = {name: ranks.corrupted(ranks.read(ran(tmp_path / name, "exited"))) for name in ("order", "sizes")}
    assert all(each and each.cause_class == "rank-desync" for each in said.values())
    assert said["order"] and "rank 1 calls broadcast src 0" in said["order"].cause
    for name in ("uneven", "same"):
        assert ranks.corrupted(ranks.read(ran(tmp_path / name, "exited"))) is None


def test_groups_that_share_a_name_alone_are_not_compared_once_a_job_ended_well(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path, rank, [])
        rows: list[Mapping[str, Any]] = [{"e": "group", "g": "5", "ranks": [rank], "backend": "gloo", "default": False}]
        call = all_reduce() if rank else {"op": "broadcast", "peers": {"src": 0}}
        rows += [{"e": "in", "n": 1, "g": "5", "s": 1, "at": AT, **call}, {"e": "out", "n": 1}]
        with open(tmp_path / f"ranks-one-{100 + rank}.jsonl", "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    assert ranks.corrupted(ranks.read(ran(tmp_path, "exited"))) is None


def test_other_roots_differ_and_other_shapes_of_as_many_elements_do_not(tmp_path: Path) -> None:
    for rank, root in ((0, 0), (1, 1)):
        written(tmp_path / "roots", rank, [{"op": "broadcast", "peers": {"src": root}, "left": False}])
        shape = [[2, 3]] if rank else [[6]]
        written(tmp_path / "shapes", rank, [all_reduce(6, shape=shape, left=False)], backend="gloo")
    assert "their roots differ: rank 0 calls broadcast src 0" in cause(tmp_path / "roots")
    assert "all 2 ranks wait in all_reduce" in cause(tmp_path / "shapes")


def test_sizes_that_need_not_be_equal_are_not_compared(tmp_path: Path) -> None:
    for rank in (0, 1):
        call = {"op": "all_to_all_single", "shape": [[rank + 4]], "numel": rank + 4, "dtype": "float32", "left": False}
        written(tmp_path, rank, [call])
    assert "not the same" not in cause(tmp_path)


def test_most_ranks_say_the_same_and_the_odd_one_is_told_beside_them(tmp_path: Path) -> None:
    for rank in range(6):
        call = {"op": "barrier", "left": False} if rank == 4 else all_reduce(left=False)
        written(tmp_path, rank, [call], world=6)
    said = cause(tmp_path)
    assert "ranks 0, 1, 2, 3, 5 call all_reduce" in said and "rank 4 calls barrier" in said


def test_what_a_rank_forgot_says_nothing(tmp_path: Path) -> None:
    """A rank's file begins again after a megabyte; only what both still have is compared."""
    written(tmp_path, 0, [{"op": "barrier"}, all_reduce(), all_reduce(left=False)])
    written(tmp_path, 1, [all_reduce(), all_reduce(), all_reduce(left=False)])
    path = tmp_path / "ranks-one-101.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row.get("s") != 1))
    assert "all 2 ranks wait in all_reduce" in cause(tmp_path)


# -- gradients


@pytest.mark.parametrize("hung", [True, False])
def test_a_frozen_parameter_is_named_with_its_rank(tmp_path: Path, hung: bool) -> None:
    written(tmp_path, 0, [], modules=[model()])
    written(tmp_path, 1, [all_reduce(left=False)], modules=[model([("branch.weight", False), ("branch.bias", False)])])
    found = told(tmp_path, hung)
    assert found is not None and (found.category, found.cause_class) == ("nccl-timeout-hang", "rank-desync")
    assert found.cause.startswith(
        "rank 1 gave no gradient for branch.weight, branch.bias of Net in backward 3 "
        "(frozen there: requires_grad is False; rank 0 gave them)"
    )
    assert "freeze before" in found.fix


def test_an_unused_parameter_is_told_from_a_frozen_one(tmp_path: Path) -> None:
    written(tmp_path, 0, [], modules=[model([("branch.weight", True)])])
    written(tmp_path, 1, [all_reduce(left=False)], modules=[model()])
    found = told(tmp_path)
    assert found is not None and "rank 0 gave no gradient for branch.weight" in found.cause
    assert "not used there; rank 1 gave it" in found.cause and "same branch" in found.fix


def test_gradients_that_were_written_before_a_crash_count(tmp_path: Path) -> None:
    """Without a last look: the line that a rank writes before its next collective, and the one when all are there."""
    for rank, missing in ((0, []), (1, [["branch.weight", False]])):
        written(tmp_path, rank, [])
        with (tmp_path / f"ranks-one-{100 + rank}.jsonl").open("a") as file:
            file.write(json.dumps({"e": "model", "m": 0, "kind": "Net", "parameters": 4, "find_unused": False}) + "\n")
            row = {"e": "gradients", "m": 0, "backwards": 1, "missing": missing, "missing_count": len(missing)}
            file.write(json.dumps(row) + "\n")
            file.write('{"e": "gradients", "m": 0, "backw')  # it was killed here
    assert cause(tmp_path, hung=False).startswith("rank 1 gave no gradient for branch.weight of Net in backward 1")


def test_a_rank_that_went_on_a_step_does_not_hide_what_never_came(tmp_path: Path) -> None:
    written(tmp_path, 0, [], modules=[model(backwards=2)])
    written(tmp_path, 1, [], modules=[model([("branch.weight", False)], backwards=1)])
    assert "rank 1 gave no gradient for branch.weight of Net in backward 1 (frozen" in cause(tmp_path, hung=False)
    written(tmp_path, 1, [], modules=[model([("branch.weight", True)], backwards=1)])
    assert told(tmp_path, hung=False) is None  # it may come yet
    message = "Expected to have finished reduction in the prior iteration before starting a new one"
    raised = {"event": "exception", "pid": 101, "kind": "RuntimeError", "message": message}
    assert "branch.weight of Net in backward 1 (not used there" in cause(tmp_path, hung=False, events=(raised,))


@pytest.mark.parametrize(
    "allowed",
    [
        {"modules": [model([("branch.weight", True)], find_unused=True)]},
        {"modules": [model([("branch.weight", True)], syncs=False)]},
        {"modules": [model([("branch.weight", True)], backwards=2)]},
        {
            "modules": [model([("branch.weight", True)])],
            "main": [["/w/train.py", 9, "<module>"], [TORCH + "autograd/graph.py", 5, "_engine_run_backward"]],
        },
    ],
    ids=["find-unused", "no-sync", "another-step", "still-in-backward"],
)
def test_a_gradient_that_may_be_missing_is_no_cause(tmp_path: Path, allowed: dict[str, Any]) -> None:
    written(tmp_path, 0, [], modules=[model(find_unused=allowed["modules"][0].get("find_unused"))])
    written(tmp_path, 1, [], **allowed)
    found = told(tmp_path)
    assert found is None or "gave no gradient" not in found.cause


def test_a_parameter_that_no_rank_uses_is_named_where_torch_complains(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path, rank, [], modules=[model([("head.weight", True)])])
    message = "Expected to have finished reduction in the prior iteration"
    raised = {"event": "exception", "pid": 100, "kind": "RuntimeError", "message": message}
    assert "no rank gave a gradient for head.weight of Net" in cause(tmp_path, hung=False, events=(raised,))
    assert told(tmp_path, hung=False) is None


# -- who is not there


def test_a_rank_elsewhere_is_named_with_its_line(tmp_path: Path) -> None:
    written(tmp_path, 0, [all_reduce(), all_reduce(left=False)])
    written(tmp_path, 1, [all_reduce()], main=SPOT)
    found = told(tmp_path)
    assert found is not None and found.cause_class == "peer-failure"
    waits = "rank 0 waits in all_reduce of [4] float32, collective 2 of the default group at /w/train.py:40 in step"
    assert waits in found.cause
    assert found.cause.endswith("rank 1 has not come there: rank 1 is at /w/data.py:12 in batch")


def test_a_rank_that_is_a_backward_behind_is_named(tmp_path: Path) -> None:
    written(tmp_path, 0, [], modules=[model(backwards=5)])
    written(tmp_path, 1, [], modules=[model(backwards=4)])
    assert "in DDP's reduction of backward 5" in cause(tmp_path) and "rank 1 is at /w/data.py:12" in cause(tmp_path)


def test_a_rank_that_waits_in_torch_unseen_and_one_that_does_not_are_told_apart(tmp_path: Path) -> None:
    inner = [TORCH + "nn/parallel/distributed.py", 1, "_pre_forward"]
    written(tmp_path, 0, [], main=[["/w/train.py", 30, "main"], inner])
    written(tmp_path, 1, [], main=SPOT)
    assert "rank 0 waits in torch's _pre_forward at /w/train.py:30" in cause(tmp_path)


def test_the_exception_of_the_rank_that_went_is_the_cause(tmp_path: Path) -> None:
    written(tmp_path, 0, [all_reduce(left=False)], main=SPOT)
    written(tmp_path, 1, [])
    start = [{"event": "start", "pid": 100 + rank} for rank in (0, 1)]
    error = {"event": "exception", "pid": 101, "kind": "ValueError", "message": "bad row\nmore", "frames": SPOT}
    seen = ({"processes": {"100": {"python": ""}}},)
    found = told(tmp_path, events=(*start, error), samples=seen)
    assert found is not None and found.cause_class == "peer-failure"
    assert "rank 1 ended with ValueError: bad row at /w/data.py:12 in batch and the others wait" in found.cause
    quiet = cause(tmp_path, events=tuple(start), samples=seen)
    assert "rank 1 came to its end" in quiet


def test_a_rank_that_ended_early_is_the_cause_of_the_other_ones_lost_connection(tmp_path: Path) -> None:
    written(tmp_path, 0, [all_reduce(), all_reduce()])
    written(tmp_path, 1, [all_reduce()])
    events: list[dict[str, Any]] = [{"event": "start", "pid": 100 + rank} for rank in (0, 1)]
    lost = {"event": "exception", "pid": 100, "kind": "RuntimeError", "message": "Connection closed by peer"}
    assert "rank 1 came to its end after all_reduce" in cause(tmp_path, hung=False, events=(*events, lost))
    written(tmp_path, 1, [all_reduce(), all_reduce()])  # the twin: it had done all that the other did
    assert told(tmp_path, hung=False, events=(*events, lost)) is None


DESTROY = {"op": "destroy_process_group"}


@pytest.mark.parametrize(
    ("backend", "others", "teardown"),
    [
        ("gloo", [all_reduce(), DESTROY], True),
        ("nccl", [all_reduce(), DESTROY], False),  # NCCL's waits for the other ranks
        ("gloo", [all_reduce(), all_reduce(), DESTROY], False),  # a rank that had more to do
        ("gloo", [all_reduce(), {**DESTROY, "left": False}], True),  # both
    ],
)
def test_a_job_over_gloo_that_is_done_and_hangs_where_torch_takes_it_down_is_no_desync(
    tmp_path: Path, backend: str, others: list[dict[str, Any]], teardown: bool
) -> None:
    left = others[-1].get("left", True)
    written(tmp_path, 0, others, backend=backend, ended=left)
    written(tmp_path, 1, [all_reduce(), {**DESTROY, "left": False}], backend=backend)
    found = told(tmp_path)
    assert found is not None and (found.cause_class == "program-bug") is teardown
    who = "rank 1 does" if left else "ranks 0, 1 do"
    said = f"{who} not come out of destroy_process_group at /w/train.py:40 in step: all ranks had done the same"
    assert found.cause.startswith(said) is teardown and ("os._exit(0)" in found.fix) is teardown


@pytest.mark.parametrize(("ended", "teardown"), [(True, True), (False, False)])
def test_a_rank_that_aborts_once_its_program_is_done_is_told_and_one_that_aborts_before_is_not(
    tmp_path: Path, ended: bool, teardown: bool
) -> None:
    written(tmp_path, 0, [all_reduce()], backend="gloo", ended=True)
    written(tmp_path, 1, [all_reduce()], backend="gloo", ended=ended)
    events = [{"event": "start", "pid": 100 + rank} for rank in (0, 1)]
    found = told(tmp_path, hung=False, events=(*events, {"event": "child", "child": 101, "exit": -6}))
    assert (found is not None) is teardown
    if found is not None:
        assert found.cause.startswith("rank 1 aborted after the program had come to its end: all ranks had done")


def test_ranks_that_never_joined(tmp_path: Path) -> None:
    start = {"op": "init_process_group", "left": False}
    written(tmp_path / "late", 0, [start], joined=False)
    written(tmp_path / "late", 1, [], joined=False, main=SPOT)
    assert "1 of 2 ranks wait in init_process_group" in cause(tmp_path / "late")
    assert "rank 1 is at /w/data.py:12 in batch" in cause(tmp_path / "late")
    written(tmp_path / "never", 0, [start], joined=False, world=3)
    never = told(tmp_path / "never")
    assert never is not None and never.cause_class == "launch-config" and "ranks 1, 2 did not start" in never.cause
    states = [row.state for row in ranks.rows(ranks.read(ran(tmp_path / "never")))]
    assert states == ["waits", "silent", "silent"]


def test_two_that_wait_for_each_others_messages(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path, rank, [{"op": "recv", "peers": {"src": 1 - rank}, "left": False}])
    assert "rank 0 waits in recv from rank 1" in cause(tmp_path)
    written(tmp_path / "beside", 0, [all_reduce()], world=4)
    for rank, peer in ((1, 4), (2, 3), (3, 2)):
        written(
            tmp_path / "beside", rank, [all_reduce(), {"op": "recv", "peers": {"src": peer}, "left": False}], world=4
        )
    assert "rank 2 waits in recv from rank 3" in cause(tmp_path / "beside"), "of rank 4 nothing is known"


def test_messages_that_nccl_takes_up_and_nobody_sends(tmp_path: Path) -> None:
    """As seen with NCCL: each recv returns at once, and both ranks hang when they take the group down."""
    end = {"op": "destroy_process_group", "left": False}
    for rank in (0, 1):
        asks, sends = ({"op": op, "peers": {end: 1 - rank}} for op, end in (("recv", "src"), ("send", "dst")))
        written(tmp_path / "fault", rank, [asks, end])
        written(tmp_path / "clean", rank, [sends, asks, end] if rank else [asks, sends, end])
        written(tmp_path / "batch", rank, [{"op": "batch_isend_irecv"}, asks, end])
    assert cause(tmp_path / "fault") == (
        "rank 0 asked for a message of rank 1 with recv at /w/train.py:40 in step, and that rank sent none and waits "
        "in destroy_process_group at /w/train.py:40 in step, after recv at /w/train.py:40 in step"
    )
    for twin in ("clean", "batch"):
        found = told(tmp_path / twin)
        assert found is None or "asked for a message" not in found.cause


# -- together and yet still


def test_where_all_wait_in_the_same_collective_the_transport_is_tried(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path / "one", rank, [all_reduce(left=False)])
        written(tmp_path / "two", rank, [all_reduce(left=False)], host=f"host{rank}")
        written(tmp_path / "cpu", rank, [all_reduce(left=False)], backend="gloo")
    one, two, cpu = (told(tmp_path / name) for name in ("one", "two", "cpu"))
    assert one and two and cpu and {each.cause_class for each in (one, two, cpu)} == {"network-fabric"}
    near, far = ([line.split("=")[0].removeprefix("NCCL_") for line in each.next] for each in (one, two))
    assert near == ["P2P_DISABLE", "SHM_DISABLE", "DEBUG"]
    assert far == ["SOCKET_IFNAME", "IB_DISABLE", "P2P_DISABLE", "DEBUG"]
    assert "GLOO_SOCKET_IFNAME" in cpu.fix


def test_where_all_wait_for_their_gpus_after_the_same_collectives_the_transport_is_tried(tmp_path: Path) -> None:
    waits = [["/w/train.py", 9, "<module>"], [f"{TORCH}torch/cuda/__init__.py", 900, "synchronize"]]
    for rank in (0, 1):
        written(tmp_path / "all", rank, [all_reduce()], main=waits)
        written(tmp_path / "cpu", rank, [all_reduce()], main=waits, backend="gloo")
        written(tmp_path / "busy", rank, [all_reduce()], main=waits if rank else SPOT)
        written(tmp_path / "more", rank, [all_reduce()] * (1 + rank), main=waits)
    written(tmp_path / "one", 0, [all_reduce()], main=waits)
    found = told(tmp_path / "all")
    assert found is not None and found.cause_class == "network-fabric"
    assert found.cause.startswith("all 2 ranks wait for their GPUs after the same collectives: ")
    for name in ("cpu", "busy", "more", "one"):
        other = told(tmp_path / name)
        assert other is None or "wait for their GPUs" not in other.cause, name


def test_a_job_that_did_not_stand_still_has_no_transport_to_try(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path, rank, [all_reduce(left=False)])
    assert told(tmp_path, hung=False) is None
    assert ranks.told((), (), True) is None


def test_the_flight_recorder_tells_what_python_does_not_see(tmp_path: Path) -> None:
    def entry(operation: str) -> flight.Entry:
        return flight.Entry(0, "0", 1, operation, "[[4]]", "[[4]]", "started", False, "/w/a.py:3 in step")

    for rank in (0, 1):
        written(tmp_path, rank, [], main=SPOT)
    known = ranks.read(ran(tmp_path))

    def dumped(second: str) -> tuple[flight.Dump, ...]:
        names = ("all_reduce", second)
        return tuple(flight.Dump(f"flight-{at}.pkl", at, (entry(name),), {}, 1) for at, name in enumerate(names))

    found = ranks.told(known, dumped("broadcast"), True)
    assert found is not None and "flight recorder collective 1 of group 0 differs" in found.cause
    assert ranks.told(known, dumped("all_reduce"), True) is None


# -- reading


def test_of_a_rank_that_was_started_again_the_last_process_counts(tmp_path: Path) -> None:
    written(tmp_path, 0, [{"op": "barrier"}])
    first = tmp_path / "ranks-one-100.jsonl"
    again = first.read_text().replace('"pid": 100', '"pid": 300, "restart": 1').replace("barrier", "all_reduce")
    (tmp_path / "ranks-one-300.jsonl").write_text(again)
    (rank,) = ranks.read(ran(tmp_path))
    assert (rank.pid, rank.calls[0].op) == (300, "all_reduce")


def test_the_older_half_of_a_ranks_file_is_no_rank_and_hides_none(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path, rank, [{"op": "barrier"}, all_reduce()])
    whole = tmp_path / "ranks-one-100.jsonl"
    head, *rest = whole.read_text().splitlines(keepends=True)
    (tmp_path / "ranks-one-100.old.jsonl").write_text("".join([head, *rest[:3]]))
    whole.write_text("".join([head, *rest[3:]]))
    read = ranks.read(ran(tmp_path))
    assert [(rank.rank, [call.op for call in rank.calls]) for rank in read] == [
        (0, ["barrier", "all_reduce"]),
        (1, ["barrier", "all_reduce"]),
    ]


def test_a_group_that_is_level_hides_no_other_in_which_a_rank_is_behind(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path, rank, [all_reduce()], main=SPOT, calls=2 - rank)
        rows = [{"e": "group", "g": "7", "ranks": [0, 1], "backend": "nccl", "default": False}]
        if rank == 0:
            rows.append({"e": "in", "n": 2, "g": "7", "s": 1, "at": AT, **all_reduce(8)})
        with open(tmp_path / f"ranks-one-{100 + rank}.jsonl", "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    said = cause(tmp_path)
    assert "all_reduce of [8] float32" in said and "collective 1 of group 7 (ranks 0, 1)" in said
    assert "rank 1 has not come there" in said


def test_files_that_are_none_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "ranks-a-1.jsonl").write_bytes(b"\x00\xff{}\n[1]\n")
    (tmp_path / "ranks-a-2.jsonl").write_text("")
    (tmp_path / "flight-0.pkl").write_bytes(b"cos\nsystem\n.")
    assert ranks.read(ran(tmp_path)) == () and ranks.dumps(tmp_path) == ()


def test_a_look_from_before_the_last_collective_shows_no_place(tmp_path: Path) -> None:
    written(tmp_path, 0, [all_reduce()], main=SPOT, calls=0)
    written(tmp_path, 1, [all_reduce()], main=SPOT)
    stale, fresh = ranks.read(ran(tmp_path))
    assert stale.main == () and fresh.where == PythonFrame("/w/data.py", 12, "batch")


def test_the_rows_say_the_same_of_ranks_that_are_alike(tmp_path: Path) -> None:
    for rank in range(3):
        written(tmp_path, rank, [all_reduce(left=False)] if rank else [all_reduce()], world=4, main=SPOT)
    assert ranks.lines(ranks.rows(ranks.read(ran(tmp_path)))) == (
        "rank 0: elsewhere, last all_reduce of [4] float32 (1 of group 0) at /w/train.py:40 in step, "
        "stands at /w/data.py:12 in batch",
        "ranks 1, 2: waits, in all_reduce of [4] float32 (1 of group 0) at /w/train.py:40 in step",
        "rank 3: silent",
    )


# -- the companion, in a Python whose torch is a stand-in with the interface that it wraps

_C10D = """
import time
class Group:
    pass
class GroupMember:
    WORLD = None
    NON_GROUP_MEMBER = object()
class _World:
    pg_names, pg_group_ranks = {}, {}
_world = _World()
def init_process_group(backend=None, rank=-1, world_size=-1):
    GroupMember.WORLD = group = Group()
    _world.pg_names[group] = "0"
    _world.pg_group_ranks[group] = {0: 0, 1: 1}
    _world.own = rank
def get_rank(group=None): return _world.own
def get_world_size(group=None): return 2
def get_backend(group=None): return "gloo"
def _get_default_group(): return GroupMember.WORLD
def all_reduce(tensor, op=None, group=None, async_op=False):
    "Reduces."
    if getattr(tensor, "waits", False):
        time.sleep(600)
    return tensor
def all_gather_object(object_list, obj, group=None):
    all_reduce(obj, group=group)
    all_reduce(obj, group=group)
def barrier(group=None):
    raise RuntimeError("no barrier")
"""
_DDP = """
import weakref
class DistributedDataParallel:
    find_unused_parameters = False
    require_backward_grad_sync = True
    def __init__(self, module, device_ids=None):
        self.module = module
"""


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """A folder that holds the stand-in."""
    site = tmp_path / "site"
    texts = {
        "torch/__init__.py": "",
        "torch/distributed/__init__.py": "from .distributed_c10d import *",
        "torch/distributed/distributed_c10d.py": _C10D,
        "torch/nn/__init__.py": "",
        "torch/nn/parallel/__init__.py": "from .distributed import DistributedDataParallel",
        "torch/nn/parallel/distributed.py": _DDP,
    }
    for name, text in texts.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return site


TENSOR = """
class Tensor:
    shape, dtype, device, waits, requires_grad, hook = (2, 3), "torch.float32", "cpu", False, True, None
    def numel(self): return 6
    def register_post_accumulate_grad_hook(self, hook): self.hook = hook
"""


def companion(folder: Path, torch: Path, text: str) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Runs a program with the companion in it; how it ended, and the lines that its rank wrote."""
    folder.mkdir(exist_ok=True)
    program = folder / "program.py"
    program.write_text(TENSOR + text)
    path = os.pathsep.join((str(COMPANION), str(torch)))
    added = {"PYTHONPATH": path, "ENVKIT_DEBUG_FOLDER": str(folder), "ENVKIT_DEBUG_RANKS": "1"}
    done = subprocess.run(
        [sys.executable, str(program)], env={**os.environ, **added}, capture_output=True, text=True, timeout=120
    )
    files = sorted(folder.glob("ranks-*.jsonl"), key=lambda each: "old" not in each.name)
    return done, [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_the_companion_writes_down_each_collective(tmp_path: Path, torch: Path) -> None:
    done, rows = companion(
        tmp_path / "run",
        torch,
        """
import torch.distributed as dist
from torch.distributed import all_reduce
dist.init_process_group("gloo", rank=1, world_size=2)
assert all_reduce.__doc__ == "Reduces." and all_reduce.__name__ == "all_reduce"
assert isinstance(all_reduce(Tensor()), Tensor)
dist.all_gather_object([], Tensor())
all_reduce(Tensor(), group=dist.GroupMember.NON_GROUP_MEMBER)
try:
    dist.barrier()
except RuntimeError as error:
    print(error)
""",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "no barrier\n", "")
    calls = [row for row in rows if row["e"] == "in"]
    # What a collective calls itself is not counted, and neither is one of a group that this rank is not in.
    told = [(row["op"], row.get("s")) for row in calls[1:]]
    assert told == [("all_reduce", 1), ("all_gather_object", 2), ("barrier", 3)]
    assert (calls[1]["shape"], calls[1]["numel"], calls[1]["dtype"]) == ([[2, 3]], 6, "float32")
    assert calls[1]["at"][0].endswith("program.py") and calls[1]["at"][2] == "<module>"
    assert [row["error"] for row in rows if row["e"] == "out" and "error" in row] == ["RuntimeError"]
    (group,) = (row for row in rows if row["e"] == "group")
    assert (group["ranks"], group["backend"], group["default"]) == ([0, 1], "gloo", True)
    (rank,) = ranks.read(ran(tmp_path / "run", "exited"))
    assert (rank.rank, rank.world, len(rank.calls), rank.open) == (1, 2, 4, None)


def test_the_companion_writes_down_gradients(tmp_path: Path, torch: Path) -> None:
    done, _ = companion(
        tmp_path / "run",
        torch,
        """
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", rank=1, world_size=2)
class Net:
    def __init__(self): self.own = {name: Tensor() for name in ("a", "b", "c")}
    def named_parameters(self): return self.own.items()
net = Net()
ddp = DistributedDataParallel(net)
for step in range(2):
    for name in ("c", "b", "a"):
        net.own[name].hook(net.own[name])
net.own["b"].requires_grad = False
net.own["c"].hook(net.own["c"])
net.own["a"].hook(net.own["a"])
dist.all_reduce(Tensor())
os._exit(9)
""",
    )
    assert done.returncode == 9
    (rank,) = ranks.read(ran(tmp_path / "run", "exited"))
    assert [(each.kind, each.backwards, dict(each.missing)) for each in rank.models] == [("Net", 3, {"b": False})]


def test_the_companion_lets_the_program_be(tmp_path: Path, torch: Path) -> None:
    """It imports no torch, opens no file where there is no rank, and what it cannot read costs the program nothing."""
    text = "import sys; print('torch' in sys.modules, 'ranks' in sys.modules)"
    done, rows = companion(tmp_path / "none", torch, text)
    assert (done.stdout, rows) == ("False False\n", [])
    odd = """
import torch.distributed as dist
class Odd:
    shape = ()
    def numel(self): raise ValueError("odd")
dist.init_process_group("gloo", rank=0, world_size=2)
for _ in range(20):
    assert isinstance(dist.all_reduce(Odd()), Odd)
print("done")
"""
    done, rows = companion(tmp_path / "odd", torch, odd)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert rows[-1]["why"] == "ValueError: odd" and len([row for row in rows if row["e"] == "trouble"]) == 8


def test_the_companions_files_stay_small_and_a_fork_is_no_rank(tmp_path: Path, torch: Path) -> None:
    text = """
import os
import torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=2)
if not os.fork():
    os._exit(0)
os.wait()
for _ in range(9000):
    dist.all_reduce(Tensor())
"""
    done, _ = companion(tmp_path / "run", torch, text)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "run").glob("ranks-*"))
    assert len(files) == 2 and all(path.stat().st_size < 1 << 21 for path in files)
    (rank,) = ranks.read(ran(tmp_path / "run", "exited"))
    assert rank.calls[-1].seq == 9000 and rank.groups["0"].default and rank.rank == 0


# -- the whole way

LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, "RANK": str(n), "WORLD_SIZE": "2"})
         for n in range(2)]
sys.exit(max(abs(each.wait()) for each in ranks))
"""
JOB = """
import os, sys, time
import torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", rank=rank, world_size=2)
for step in range(3):
    tensor = Tensor()
    if step == 2 and sys.argv[1] not in ("clean", "order"):
        if rank == 1:
            if sys.argv[1] == "sleeps":
                time.sleep(4)  # and goes on
            elif sys.argv[1] == "slow":
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    sum(range(1000))
            else:
                time.sleep(600)  # stuck
        else:
            tensor.waits = sys.argv[1] == "stuck"
    if sys.argv[1] == "order" and (step, rank) == (1, 1):
        dist.all_gather_object([], tensor)
    dist.all_reduce(tensor)
sys.stdout.write(f"rank {rank} is done\\n")  # in one piece: the ranks share the output
"""


@pytest.mark.parametrize(
    "case",
    # slow is to work, and sleeps to sleep, for longer than a hang is given
    [
        "stuck",
        "order",
        pytest.param("slow", marks=pytest.mark.slow),
        pytest.param("sleeps", marks=pytest.mark.slow),
        "clean",
    ],
)
def test_a_job_of_two_ranks(tmp_path: Path, torch: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "job.py").write_text(TENSOR + JOB)
    monkeypatch.setenv("PYTHONPATH", str(torch))
    command = (sys.executable, str(tmp_path / "launcher.py"), str(tmp_path / "job.py"), case)
    request = debug.DebugRequest(
        command, 60.0, 40.0, 0.0, hang_after_s=1.5, hang_ends=case != "sleeps", folder=tmp_path / "out"
    )
    with ends():
        made = debug.run(request, job.LocalMachine(), facts.load(), lambda line: None)
    assert json.loads(render.document(made))["ranks"][0]["rank"] == 0
    if case == "stuck":
        assert made.verdict is Verdict.FOUND
        assert "rank 0 waits in all_reduce of [2, 3] float32, collective 3 of the default group" in made.cause
        assert "rank 1 sleeps at" in made.cause and "job.py" in made.cause
        assert [row.state for row in made.ranks] == ["waits", "elsewhere"]
        assert "ranks side by side" in render.text(made)
    elif case == "order":
        assert (made.verdict, made.exit) == (Verdict.FOUND, 0)
        assert "collective 2 of the default group is not the same on all ranks" in made.cause
        assert "rank 1 calls all_gather_object" in made.cause and "job.py" in made.cause
    else:
        assert (made.verdict, made.cause, made.exit) == (Verdict.CLEAN, "", 0)
        said = (tmp_path / "out" / "as-is" / "output.txt").read_text()
        assert sorted(said.splitlines()) == ["rank 0 is done", "rank 1 is done"]


# -- what two H200 with NCCL gave

RECORDED = json.loads(
    (Path(__file__).parent / "data" / "gpu" / "h200x2-torch-2.11-cu130-debug-ranks.json").read_text("utf-8")
)["cases"]


def test_two_gpus_named_every_planted_fault_and_blamed_no_clean_job() -> None:
    told_by = {case["case"]: case["cause"] for case in RECORDED}
    assert {case["code"] for case in RECORDED if case["case"] != "clean"} == {1}
    assert [case["code"] for case in RECORDED if case["case"] == "clean"] == [0] and told_by["clean"] == ""
    for case in ("frozen-apart", "frozen"):
        assert "rank 1 gave no gradient for branch.weight" in told_by[case]
        assert "requires_grad is False" in told_by[case]
    last = [case["seconds"][-1] for case in RECORDED if case["case"].startswith("frozen")]
    assert max(last) < 30.0  # from the command's start, of which torch's import and NCCL's start took ten or more


@pytest.mark.parametrize("case", [case for case in RECORDED if "records" in case], ids=lambda case: str(case["case"]))
def test_what_the_ranks_wrote_on_two_gpus_tells_the_same_again(tmp_path: Path, case: Mapping[str, Any]) -> None:
    for name, text in {**case["records"], **case["stacks"]}.items():
        (tmp_path / name).write_text(text)
    for name, text in case["flight"].items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    found = told(tmp_path)
    assert found is not None
    assert (found.cause_class, found.category) == (case["cause_class"], case["category"])
    assert found.cause.partition(" (")[0] == case["cause"].partition(" (")[0]


def test_nccls_own_dumps_name_the_rank_that_did_not_come(tmp_path: Path) -> None:
    (case,) = [case for case in RECORDED if case["case"] == "frozen-apart"]
    for name, text in case["flight"].items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    (difference,) = flight.compare(ranks.dumps(tmp_path))
    assert (difference.kind, difference.operation, difference.odd) == ("not-joined", "all_reduce", (1,))
    assert "hang_ranks.py" in difference.told and "envkit_ranks.py" not in difference.told


def test_what_lies_in_the_folder_beside_the_records_hangs_nobody(tmp_path: Path) -> None:
    """The command owns its folder: a pipe, a link and nonsense there are no records."""
    for rank in (0, 1):
        written(tmp_path, rank, [{"op": "recv", "peers": {"src": 1 - rank}, "left": False}])
    os.mkfifo(tmp_path / "ranks-one-102.jsonl")
    os.mkfifo(tmp_path / "flight-0.pkl")
    (tmp_path / "ranks-one-103.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "ranks-one-104.jsonl").write_text("[" * 100_000)
    assert "rank 0 waits in recv from rank 1" in cause(tmp_path)
