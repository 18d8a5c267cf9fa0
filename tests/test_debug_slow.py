"""`envkit debug --slow`: each planted reason for a slow step is told, by its line, and no healthy twin is blamed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torches

from envkit import facts
from envkit.debug import measured_text, slow, trace
from envkit.debug.measures import Judged, Measured
from envkit.debug.records import Verdict

PROGRAM = Path(__file__).parent / "debug" / "slow_programs.py"
TRAIN = "/w/train.py"
FACTS = facts.load()
H200 = "NVIDIA H200"


def event(kind: str, name: str, start: float, took: float, tid: Any = 7, **args: Any) -> dict[str, Any]:
    """An event of a trace; times in milliseconds."""
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "ts": start * 1000,
        "dur": took * 1000,
        "pid": 7,
        "tid": tid,
        "args": args,
    }


def kernel(start: float, took: float, name: str = "sgemm", **args: Any) -> dict[str, Any]:
    return event("kernel", name, start, took, tid=0, stream=7, **args)


def line(
    number: int, text: str, seconds: float, part: str = "", outer: int | None = None, called: str = ""
) -> list[Any]:
    return [TRAIN, number, "step", TRAIN, outer or number, called, part, seconds, text]


def process(events: Iterable[dict[str, Any]] | None, lines: Sequence[list[Any]] = (), **more: Any) -> slow.Process:
    """A process of ten steps of 0.1 s; the trace is of one."""
    raw: dict[str, Any] = {
        "pid": 7, "rank": "", "kind": "optimizer", "steps": [0.1] * 10, "traced": [0.1], "loaded": [0.0] * 10,
        "looked": 1.0, "lines": list(lines), "devices": [], "device": None, "threads": 1, "tf32": None,
        "queued": 0.0, "trouble": [],
    }  # fmt: skip
    return slow.process({**raw, **more}, None if events is None else {"traceEvents": list(events)})


def on_gpu(events: Iterable[dict[str, Any]], lines: Sequence[list[Any]] = (), **more: Any) -> slow.Process:
    whole = event("cpu_op", "aten::step", 0, 100)
    return process([whole, *events], lines, **{"devices": [H200], "device": 0, "tf32": False, **more})


def kinds(*processes: slow.Process) -> list[str]:
    return [each.kind for each in slow.judge(processes, FACTS).findings]


BUSY = [kernel(at, 9.995) for at in range(0, 100, 10)]


def test_a_gpu_that_is_busy_is_not_blamed_whatever_the_cpu_waits_for() -> None:
    waits = [event("cuda_runtime", "cudaStreamSynchronize", 0, 99)]
    lines = [line(40, "loss.item()", 0.9)]
    judged = slow.judge([on_gpu([*BUSY, *waits], lines, loaded=[0.08] * 10)], FACTS)
    assert judged.findings == () and judged.open == ""


def test_a_queue_that_runs_dry_at_an_item_is_told_with_its_line() -> None:
    events = []
    for at in range(0, 100, 10):
        events += [kernel(at, 5), event("cuda_runtime", "cudaStreamSynchronize", at + 1, 4.1)]
    (found,) = slow.judge([on_gpu(events, [line(40, "total += loss.item()", 0.6)])], FACTS).findings
    assert found.kind == "sync" and found.places[0].line == 40
    assert (
        "the GPU has nothing to do in 50% of a step of 100.0 ms because the CPU waits for it 10 times a step"
        in found.said
    )


def test_long_work_after_a_wait_is_the_work_of_its_line_and_short_work_is_of_the_wait() -> None:
    """As on an H200 in `records` of served_programs.py, where a batch is parsed while the GPU has nothing to do."""
    lines = [line(212, "torch.cuda.synchronize()", 0.7), line(206, "values = json.loads(text)", 0.2)]
    waited = [kernel(0, 30), event("cuda_runtime", "cudaDeviceSynchronize", 1, 29.1)]
    ends = [event("cuda_runtime", "cudaLaunchKernel", 99, 1), kernel(99.9, 0.1)]

    def told(*more: dict[str, Any]) -> list[tuple[str, int]]:
        named = process([*waited, *more, *ends], lines, devices=[H200], device=0, tf32=False)
        return [(each.kind, each.places[0].line) for each in slow.judge([named], FACTS).findings]

    assert told() == [("host", 206)]
    assert told(*(event("cpu_op", "aten::mul", 30 + at / 2, 0.1) for at in range(138))) == [("sync", 212)]
    assert told(*(event("cpu_op", "aten::mul", 31 + 2 * at, 0.1) for at in range(10))) == [("host", 206)]


def test_many_small_kernels_are_told_from_a_cpu_that_works() -> None:
    small = [kernel(at / 4, 0.005) for at in range(400)]
    lines = [line(12, "state = state * 0.9", 0.7)]
    assert kinds(on_gpu(small, lines)) == ["small-kernels"]
    assert kinds(on_gpu([kernel(0, 40)], lines)) == ["host"]


def test_copies_from_pageable_memory_are_told_and_those_that_overlap_are_not() -> None:
    copy = event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 60, 0, stream=7, bytes=256 << 20)
    lines = [line(20, "batch = source.to(device)", 0.6)]
    (found,) = slow.judge([on_gpu([copy, kernel(60, 40)], lines)], FACTS).findings
    assert found.kind == "pageable-copies" and found.places[0].line == 20 and "256 MiB a step at 4.5 GB/s" in found.said
    assert kinds(on_gpu([copy, *BUSY], lines)) == []
    pinned = {**copy, "name": "Memcpy HtoD (Pinned -> Device)"}
    assert kinds(on_gpu([pinned, kernel(60, 40)], lines)) == []


def test_copies_to_pageable_memory_are_told_and_a_number_that_is_fetched_is_none() -> None:
    back = event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 40, 60, 0, stream=7, bytes=256 << 20)
    lines = [line(20, "kept = out.detach().cpu()", 0.6)]
    (found,) = slow.judge([on_gpu([kernel(0, 40), back], lines)], FACTS).findings
    assert found.kind == "pageable-copies" and found.places[0].line == 20 and "keep it on the GPU" in found.fix
    assert found.said.startswith("copies to pageable memory take 60% of a step")
    number = {**back, "dur": 0.002, "args": {"stream": 7, "bytes": 4}}
    assert kinds(on_gpu([kernel(0, 98), number], lines)) == []


def test_a_loader_is_told_with_the_line_of_the_item_and_of_the_loop() -> None:
    waits = event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 60)
    lines = [line(46, "time.sleep(0.002)", 0.6, "loader", outer=70)]
    (found,) = slow.judge([on_gpu([waits, kernel(60, 40)], lines, loaded=[0.06] * 10)], FACTS).findings
    assert found.kind == "data-loader" and [each.line for each in found.places] == [46, 70]
    assert "waits 60.0 ms for its batch (60%)" in found.said and "num_workers" in found.fix
    assert kinds(process([event("cpu_op", "aten::mm", 0, 40)], lines, loaded=[0.06] * 10)) == ["data-loader"]
    assert kinds(process([event("cpu_op", "aten::mm", 0, 90)], lines, loaded=[0.01] * 10)) == []


def test_short_operations_and_items_on_a_cpu_are_told_apart_and_long_ones_are_not_blamed() -> None:
    short = [event("cpu_op", "aten::mul", at / 10, 0.02) for at in range(1000)]
    lines = [line(12, "state = state * 0.9", 0.7)]
    assert kinds(process(short, lines)) == ["small-operations"]
    fetched = [event("cpu_op", "aten::item", at / 10, 0.02) for at in range(1000)]
    fetched += [event("cpu_op", "aten::_local_scalar_dense", at / 10 + 0.001, 0.01) for at in range(1000)]
    assert kinds(process(fetched, [line(13, "total += x.item()", 0.7)])) == ["item"]
    assert kinds(process([event("cpu_op", "aten::mm", at, 0.9) for at in range(100)], lines)) == []


def rank(number: int, waits: Sequence[float], lines: Sequence[list[Any]] = (), **more: Any) -> slow.Process:
    joined = [event("user_annotation", "gloo:all_reduce", 10 * at, took, 9) for at, took in enumerate(waits)]
    ops = [event("cpu_op", "aten::mm", 0, 100)]
    return process([*ops, *joined], lines, rank=str(number), **more)


def test_the_rank_that_the_others_wait_for_is_named_with_its_own_line() -> None:
    mine, theirs = (
        [line(8, "time.sleep(0.1)", 0.6), line(9, "loss.backward()", 0.4, "backward")],
        [line(9, "loss.backward()", 0.9, "backward")],
    )
    (found,) = slow.judge([rank(0, [8] * 6, theirs), rank(1, [1] * 6, mine), rank(2, [8] * 6, theirs)], FACTS).findings
    assert found.kind == "rank-waits" and found.places[0].line == 8
    assert "ranks 0, 2 wait 42.0 ms in each step of 100.0 ms for rank 1; it is then at /w/train.py:8" in found.said


def test_ranks_that_are_late_in_turn_or_hardly_are_not_blamed() -> None:
    assert kinds(rank(0, [9, 1] * 3), rank(1, [1, 9] * 3)) == []
    assert kinds(rank(0, [1.5] * 6), rank(1, [1] * 6)) == []
    assert kinds(rank(0, [8] * 6), rank(1, [1] * 5)) == [], "their records are of other collectives"
    judged = slow.judge([rank(0, [8] * 6), rank(1, [1] * 6, queued=0.4)], FACTS)
    assert judged.findings == () and "rank 1: its main thread waited for a processor in 40%" in judged.notes[0]


def test_what_the_facts_say_of_matrix_products_is_a_note() -> None:
    op = event("cpu_op", "aten::mm", 1, 1, **{"External id": 5, "Input Dims": [[4096, 4096], [4096, 4096]],
                                              "Input type": ["float", "float"]})  # fmt: skip
    notes = slow.judge([on_gpu([op, kernel(0, 99.99, **{"External id": 5})])], FACTS).notes
    assert "matrix products of float: 0.14 TFLOP a step at 1 TFLOP/s, 2% of the 67" in notes[0]
    assert "allow_tf32 = True" in notes[1]
    assert slow.judge([on_gpu(BUSY, devices=["Voodoo 3"])], FACTS).notes == ("the facts have no peaks of Voodoo 3",)


def test_a_step_is_as_long_as_with_nothing_beside_it() -> None:
    assert process(None).step == process(None, alone=[]).step == pytest.approx(0.1)
    assert process(None, alone=[0.08, 0.06]).step == pytest.approx(0.07)
    assert process(None, alone=[0.5]).step == process(None).step, "what the first steps took longer is no wait either"
    busy = [kernel(10 * at, 7) for at in range(10)]
    assert kinds(on_gpu(busy)) != [] and kinds(on_gpu(busy, alone=[0.072] * 10)) == []


def test_without_steps_or_a_trace_nothing_is_called_clean() -> None:
    assert "no Python process" in slow.judge([], FACTS).open
    assert "no step was seen" in slow.judge([process(None, steps=[], kind="")], FACTS).open
    assert "before enough steps" in slow.judge([process(None, steps=[])], FACTS).open
    assert "ended too early" in slow.judge([process(None)], FACTS).open


@pytest.mark.parametrize(
    "plain", [{}, {"traceEvents": 3}, {"traceEvents": []}, {"traceEvents": [3, {"ph": "X", "cat": "kernel"}]}]
)
def test_a_trace_that_is_none_is_refused(plain: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match="trace"):
        trace.read(plain, 7)


def test_spans_of_time_are_joined_and_compared() -> None:
    assert trace.merged([(3, 4), (0, 2), (1, 3)]) == [(0, 4)]
    assert trace.overlap([(0, 4), (6, 9)], [(3, 7), (8, 8.5)]) == 2.5


def test_the_picture_of_a_step_is_drawn_and_bounded() -> None:
    judged = slow.judge([on_gpu([kernel(at / 100, 0.005) for at in range(9000)])], FACTS)
    report = Measured("slow", ("python", "a.py"), "", Verdict.FOUND, "", "", judged, 0, "exited", "/w/x", 1.0)
    page = measured_text.page(report)
    assert "GPU stream 7" in page and "thread 7" in page and len(page) < 1_000_000 and "<script" not in page
    empty = Measured("slow", ("python",), "", Verdict.CLEAN, "", "", Judged(), 0, "exited", "/w/x", 1.0)
    assert "<svg" not in measured_text.page(empty)


def ran(folder: Path, *words: str) -> dict[str, Any]:
    """The report of a real run of a planted program."""
    argv = [sys.executable, "-m", "envkit", "debug", "--slow", "--format", "json", "--out", str(folder / "out"), "--"]
    done = subprocess.run([*argv, *words], capture_output=True, text=True, timeout=300, cwd=folder)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {"found": 1, "clean": 0, "undecided": 3}[found["verdict"]]
    return found


def places(found: Mapping[str, Any]) -> set[int]:
    return {each["line"] for finding in found["findings"] for each in finding["places"]}


RANKS = (torches.PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(PROGRAM), "ranks")
WANTED = {"loader": "data-loader", "item": "item", "small": "small-operations"}
MARKED = {number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "# slow here" in text}


@torches.needs_torch
@pytest.mark.nightly  # a quarter of a minute each
@pytest.mark.parametrize("name", WANTED)
def test_a_planted_reason_is_told_on_a_cpu_and_its_twin_is_not_blamed(name: str, tmp_path: Path) -> None:
    (tmp_path / "clean").mkdir()
    found = ran(tmp_path, torches.PYTHON, str(PROGRAM), name, "fault")
    assert found["findings"][0]["kind"] == WANTED[name], found
    assert name == "loader" or places(found) & MARKED
    assert ran(tmp_path / "clean", torches.PYTHON, str(PROGRAM), name, "clean")["findings"] == []


@torches.needs_torch
@pytest.mark.nightly  # beside other work both ranks wait for a processor, and neither for the other
def test_a_rank_that_waits_is_told(tmp_path: Path) -> None:
    found = ran(tmp_path, *RANKS, "fault")
    assert found["findings"][0]["kind"] == "rank-waits" and "for rank 1" in found["cause"] and places(found) & MARKED


@torches.needs_torch
@pytest.mark.nightly  # beside other work one of two equal ranks really waits for the other, and that is told
def test_equal_ranks_are_not_blamed(tmp_path: Path) -> None:
    assert "rank-waits" not in [each["kind"] for each in ran(tmp_path, *RANKS, "clean")["findings"]]
