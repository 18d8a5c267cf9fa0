"""What two H200 gave `envkit debug --memory` and `--slow` on planted programs (tests/debug/costs_on_gpu.py), again.

Kept are the records of the processes; of the traces what is read of them.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from envkit import facts
from envkit.debug import memory, slow, snapshot
from envkit.debug.measures import Judged

PATH = Path(__file__).parent / "data" / "gpu" / "h200x2-torch-2.11-cu130-debug-costs.json"
RECORD: dict[str, Any] = json.loads(PATH.read_text())


def unpacked(part: str, name: str) -> tuple[int, dict[str, bytes]]:
    """How the program ended, and its records by the names of their files."""
    case = RECORD[part][name]
    return case["exit"], {file: gzip.decompress(base64.b64decode(raw)) for file, raw in case["raw"].items()}


def remembered(name: str) -> Judged:
    ended, files = unpacked("memory", name)
    shots = {file: snapshot.unpickled(raw) for file, raw in files.items() if file.endswith(".pickle")}
    told = [memory.process(json.loads(raw), shots) for file, raw in files.items() if file.endswith(".json")]
    return memory.judge(told, failed=ended != 0)


def timed(name: str) -> Judged:
    _, files = unpacked("slow", name)
    told = [json.loads(raw) for file, raw in files.items() if file.startswith("slow-")]
    traces = {file: json.loads(raw) for file, raw in files.items() if file.startswith("trace-")}
    return slow.judge([slow.process(each, traces.get(each["trace"])) for each in told], facts.load())


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("large", "tensor-too-large", "in large asks for 280 GiB in one piece, and the GPU has 140 GiB in all"),
        ("oom", "step-too-large", "in oom asks for 5.8 GiB where 5.2 GiB of 140 GiB are free; most is of "),
        ("jax", "other-frameworks", "105 GiB are held in this process outside torch (jax)"),
        (
            "others",
            "other-processes",
            "where 26.9 GiB are free: other processes hold 112 GiB of the GPU (3467 (python3)",
        ),
        (
            "fragments",
            "fragmentation",
            "asks for 512 MiB; torch has 1.4 GiB reserved and unused, but in 95 pieces of at most",
        ),
    ],
)
def test_an_out_of_memory_of_a_real_gpu_is_told_with_its_cause_and_line(name: str, kind: str, said: str) -> None:
    (found,) = remembered(f"{name}-fault").findings
    assert found.kind == kind and said in found.said and "memory_programs.py" in found.said


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("graph", "leak-graph", ":43 keeps the graph of 63 steps: 1.0 GiB, allocated at "),
        ("total", "leak-graph", ":56 keeps the graph of 64 steps: 524 MiB, allocated at "),
        ("tensors", "leak-tensors", ":68 keeps 63 tensors: 256 MiB, allocated at "),
        ("drip", "leak-tensors", ":92 keeps 63 tensors: 15.8 MiB, allocated at "),
    ],
)
def test_a_leak_of_a_real_gpu_ends_in_its_variable_and_line(name: str, kind: str, said: str) -> None:
    (found,) = remembered(f"{name}-fault").findings
    assert found.kind == kind and said in found.said
    clean = remembered(f"{name}-clean")
    assert clean.findings == () and clean.open == ""


def test_batches_of_other_lengths_and_a_cache_that_fills_are_no_leak() -> None:
    judged = remembered("lengths-clean")
    assert (judged.findings, judged.notes, judged.open) == ((), (), "")


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("loader", "data-loader", "a step of 71.0 ms waits 68.2 ms for its batch (82%), at "),
        (
            "copies",
            "pageable-copies",
            "copies from pageable memory take 50% of a step of 62.0 ms: 256 MiB a step at 8.6 GB/s",
        ),
    ],
)
def test_what_a_real_gpu_waited_for_is_told(name: str, kind: str, said: str) -> None:
    (found,) = timed(f"{name}-fault").findings
    assert found.kind == kind and said in found.said and "slow_programs.py" in found.said
    assert timed("item-clean").findings == ()


@pytest.mark.parametrize("name", ["oom", "jax", "others", "fragments"])
def test_no_twin_that_had_room_is_blamed(name: str) -> None:
    judged = remembered(f"{name}-clean")
    assert judged.findings == () and "no step was seen" in judged.open


def test_the_rank_that_another_waits_for_over_nccl_is_named_with_its_line() -> None:
    found = timed("ranks-fault").findings[0]
    assert found.kind == "rank-waits" and "rank 0 waits 135.4 ms in each step of 145.7 ms for rank 1" in found.said
    assert "time.sleep(0.15)" in found.said


def test_ranks_of_equal_work_are_not_blamed_and_their_products_are_held_to_the_datasheet() -> None:
    judged = timed("ranks-clean")
    assert judged.findings == () and judged.open == ""
    assert "at 52 TFLOP/s, 77% of the 67 that the datasheet of H200 SXM names" in judged.notes[0]
