"""Programs that serve, evaluate, sample and prepare data, as an H200 judged them.

`tests/debug/served_on_gpu.py` ran `tests/debug/served_programs.py`, whose programs were written before the rules that
judge them; the line that is to be named bears a mark there.  One of the twenty met another fault than its own (Triton
refused its annotations), which was named.  All other nineteen were named: sixteen first by their marked line, one by
another line that holds as much, one with its line second, and one by the wait before the work; the last has rules since
(`tests/test_debug_slow.py`, `tests/test_debug_memory.py`).  All eight twins were clean.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import debugged
import msgspec
import pytest
from test_debug_evidence import marked
from test_debug_learned import run_in, session_of, state_of, why

from envkit import debug
from envkit.debug import kernels, placed, told
from envkit.debug.job import CommandRun, Event
from envkit.debug.kernels import Source
from envkit.debug.records import CodeLocation, Fault, PythonFrame

RECORD = json.loads((Path(__file__).parent / "data" / "gpu" / "h200-torch-2.11-cu130-debug-served.json").read_text())
PROGRAMS = Path(__file__).parent / "debug" / "served_programs.py"
NAMED = (
    "labels", "written", "gather", "positions", "weights", "joined", "requests", "schedules", "recurrent", "function",
    "biases", "frames", "decode", "tokens", "noise", "predictions",
)  # fmt: skip
# Told, but by another line first: of two that hold as much, of a loop's, and the wait before the work.
BESIDE = {"callbacks": 73, "boxes": 238, "records": 212}


def test_the_record_says_where_and_when_it_ran() -> None:
    said = RECORD["recorded"]
    assert said == {"gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-29"}
    lines = {line for lines in RECORD["lines"].values() for line in lines}
    assert lines == {line for line in marked(PROGRAMS, "# here") if line > 20}
    assert len(RECORD["runs"]) == 28 and {*NAMED, *BESIDE, "masks"} == set(RECORD["lines"])


@pytest.mark.parametrize("name", NAMED)
def test_the_planted_line_was_named(name: str) -> None:
    (line,) = RECORD["lines"][name]
    answer = RECORD["runs"][f"{name}/fault"]["report"]
    assert answer["verdict"] == "found" and f"served_programs.py:{line}" in answer["cause"]


@pytest.mark.parametrize("name", BESIDE)
def test_three_were_told_by_a_line_beside_theirs(name: str) -> None:
    answer = RECORD["runs"][f"{name}/fault"]["report"]
    assert answer["verdict"] == "found" and f"served_programs.py:{BESIDE[name]}" in answer["cause"]
    assert (
        answer["findings"][0]["kind"]
        == {"callbacks": "leak-tensors", "boxes": "small-kernels", "records": "sync"}[name]
    )


def test_no_twin_was_blamed() -> None:
    twins = [run["report"]["verdict"] for name, run in RECORD["runs"].items() if name.endswith("/clean")]
    assert twins == ["clean"] * 8


@pytest.mark.parametrize(("name", "tensor", "made"), [("positions", "at", 336), ("weights", "loss.weight", 350)])
def test_the_tensor_that_was_left_on_the_cpu_is_named_with_the_line_that_made_it(
    name: str, tensor: str, made: int
) -> None:
    assert made in marked(PROGRAMS, "# made") or name == "weights", "1 / frequency is the line below the mark"
    events = [msgspec.convert(each, Event) for each in RECORD["runs"][f"{name}/fault"]["events"]]
    found = placed.read(events)
    assert found and found.apart.name == tensor and found.apart.device == "cpu" and found.other.device == "cuda:0"
    said = placed.sentence(found)
    assert f"`{tensor}` " in said and f" is on cpu, made at /src/tests/debug/served_programs.py:{made} in " in said
    assert f"make `{tensor}` at /src/tests/debug/served_programs.py:{made} on cuda:0" in found.fix


def test_tensors_that_lie_together_and_numbers_on_the_cpu_are_not_blamed() -> None:
    def event(*tensors: tuple[str, str, list[int]]) -> Event:
        rows: list[Any] = [{"name": a, "device": b, "shape": c, "made": None} for a, b, c in tensors]
        return {"event": "placed", "tensors": rows}

    assert placed.read([]) is None and placed.read([event(("x", "cuda:0", [2]), ("y", "cuda:0", [2]))]) is None
    assert placed.read([event(("x", "cuda:0", [2]), ("scale", "cpu", []))]) is None
    two = placed.read([event(("x", "cuda:0", [2]), ("y", "cuda:1", [2]), ("z", "cuda:0", [2]))])
    assert two and (two.apart.name, two.other.name) == ("y", "x")
    assert placed.sentence(two) == "`y` [2] is on cuda:1; `x` is on cuda:0"


def kept(name: str, folder: Path) -> tuple[Fault, tuple[PythonFrame, ...], tuple[Source, ...]]:
    """A recorded fault, its frames, and the sources that the companion kept, read as a run's folder holds them."""
    case = RECORD["runs"][f"{name}/fault"]
    for file, text in case["sources"].items():
        (folder / file).write_text(text)
    events = tuple(msgspec.convert(each, Event) for each in case["events"])
    ran = CommandRun(folder, "exited", 1, 1.0, events=events)
    answer = case["report"]
    return debugged.fault(answer["kernel"]), debugged.frames(answer["python"]), kernels.sources(ran)


@pytest.mark.parametrize(
    ("name", "line", "text", "compiled"),
    [
        ("written", 5, "y[(long long)row * columns + at] = x[(long long)row * columns + at] + 1;  // read here", 288),
        ("joined", 4, "y[i] = x[i] * 0.5f;", 308),
        ("gather", 15, "y = table[at];", 324),
    ],
)
def test_a_source_that_was_put_together_is_shown_with_the_line_that_compiled_it(
    name: str, line: int, text: str, compiled: int, tmp_path: Path
) -> None:
    fault, python, sources = kept(name, tmp_path)
    said = told.sentence(fault, python, sources)
    where = f"compiled at /src/tests/debug/served_programs.py:{compiled} in {name}"
    assert f"at line {line} of its source, which was compiled at run time: `{text}`, {where}" in said
    assert said.endswith(f"; launched at /src/tests/debug/served_programs.py:{RECORD['lines'][name][0]} in {name}")
    assert f"line {line} of the source of `{fault.kernel}`, which is compiled at" in told.fix(fault, python, sources)


def test_a_kernel_without_lines_or_of_another_name_gets_none(tmp_path: Path) -> None:
    fault, python, sources = kept("joined", tmp_path)
    said = told.sentence(replace(fault, place=CodeLocation("halve")), python, sources)
    assert " in a source that was compiled at run time, without line numbers, compiled at " in said
    assert " at /src/halve.cu:4" in told.sentence(fault, python), "nothing was kept"
    other = Source("__global__ void halved(float* y) {}", ())
    assert kernels.made(fault, python, (other,)) is None and kernels.made(fault, python, sources)


def test_a_file_that_is_no_source_of_the_run_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "source-0a.cu").symlink_to(PROGRAMS)
    events: tuple[Event, ...] = tuple(
        {"event": "source", "file": file} for file in ("../x.cu", "source-0a.cu", "source-ff.cu", "/etc/passwd")
    )
    assert kernels.sources(CommandRun(tmp_path, "exited", 0, 1.0, events=events)) == ()


def test_the_placement_stage_ends_the_ladder_with_the_tensor_and_its_line(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/src/tests/debug/served_programs.py", line 337, in forward\n'
        "    return x + self.table(at)  # here\n"
        "RuntimeError: Expected all tensors to be on the same device, but got index is on cpu, different from other "
        "tensors on cuda:0 (when checking argument in method wrapper_CUDA__index_select)\n"
    )
    session = session_of(tmp_path, state_of(tmp_path, text))
    debug._learn(session, "as-is", session.state.first)
    assert why(session.state, "placement") == (
        True,
        "an operation was given tensors of two devices: to see which, and where each was made",
    )
    events = tuple(msgspec.convert(each, Event) for each in RECORD["runs"]["positions/fault"]["events"])
    learned = debug._learn(session, "placement", run_in(tmp_path / "placement", text, events=events))
    assert learned.startswith(
        "`at` [128] is on cpu, made at /src/tests/debug/served_programs.py:336 in forward; `x` is"
    )
    for stage in ("blocking", "memcheck", "core-dump"):
        assert why(session.state, stage) == (False, "the tensor that lies on another device is named")
    report = debug._report(session)
    assert report.cause.endswith(f"; {learned}") and report.category == "tensors-on-different-devices"
    assert report.fix.startswith("make `at` at /src/tests/debug/served_programs.py:336 on cuda:0")
    assert not any("--placement" in each for each in report.next)
    fine = state_of(tmp_path / "fine", "ValueError: x\n")
    assert why(fine, "placement") == (False, "no operation refused tensors for their devices")
