"""Sixteen programs whose faults were labelled before `envkit debug` ran on any, as an H200 judged them.

`tests/debug/fresh_on_gpu.py` ran `tests/debug/fresh_programs.py`; the line that is to be named bears a mark there.  At
first sight twelve were named with it, two at a line of the parent that waited, one without a line, and one was called
clean.  "mended" holds what was run again after that.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from test_debug_evidence import marked

from envkit.debug import told

HERE = Path(__file__).parent
RECORD = json.loads((HERE / "data" / "gpu" / "h200-torch-2.11-cu130-debug-fresh.json").read_text())
MENDED = RECORD["mended"]
PROGRAM = "/src/tests/debug/fresh_programs.py"
NOT_AT_FIRST = {"paged", "packed", "worker", "captured"}
SOURCE = HERE / "debug" / "fresh_programs.py"
# What was asked of each cause before it was known: of each group of words one, and the mark of its kernel.
LABELS: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = next(
    ast.literal_eval(each.value)
    for each in ast.parse(SOURCE.read_text()).body
    if isinstance(each, ast.AnnAssign) and each.value and ast.unparse(each.target) == "LABELS"
)
# What it says.
SAYS = {
    "misread": "`pack_pairs` reads 8 bytes at the misaligned address", "stale": "`gather_rows(",
    "thawed": "`weight_grad` writes 16 bytes out of bounds", "strided": "an operation of cuBLAS or cuDNN",
    "retained": "keeps the graph of 16 steps", "itemed": "the CPU waits for it 512 times a step",
    "mixed": "not on the device it needs (cuda:0 and cpu)", "bounds": "`blur_rows(", "race": "race for shared memory",
    "unset": "bytes that nobody wrote", "crossed": "their sizes differ", "grouped": "rank 1 has not come there",
    "worker": "index out of bounds", "captured": "a call that cannot be captured",
    "packed": "an AOTInductor package was given an input on another device",
    "paged": "copies to pageable memory take 81% of a step",
}  # fmt: skip
# A matrix product under initcheck takes minutes; a step that hardly computes really waits for the CPU.
TWINS = {"strided": "undecided", "itemed": "found"}


def report(name: str, runs: dict[str, Any]) -> dict[str, Any]:
    """What envkit answered."""
    answer: dict[str, Any] = runs[name]["report"]
    return answer


def test_the_record_says_where_and_when_it_ran() -> None:
    assert RECORD["recorded"]["gpu"] == "NVIDIA H200" and RECORD["recorded"]["torch"] == "2.11.0+cu130"
    assert RECORD["recorded"]["date"] == "2026-11-30" and MENDED["recorded"] == RECORD["recorded"]
    assert {line for lines in RECORD["lines"].values() for line in lines} == marked(SOURCE, "  # here")
    assert set(RECORD["lines"]) == set(SAYS) == set(LABELS)


@pytest.mark.parametrize("name", sorted(set(SAYS) - NOT_AT_FIRST))
def test_the_planted_line_was_named_at_first_sight(name: str) -> None:
    answer = report(f"{name}/fault", RECORD["runs"])
    (line,) = RECORD["lines"][name]
    assert answer["verdict"] == "found" and SAYS[name] in answer["cause"]
    # a pointer that is stale and a kernel are named themselves, and with the line that launched them
    assert f"{PROGRAM}:{line}" in answer["cause"]


@pytest.mark.parametrize("name", sorted(set(LABELS) - {"paged"}))
def test_what_the_labels_asked_for_was_said_at_first_sight(name: str) -> None:
    cause = report(f"{name}/fault", RECORD["runs"])["cause"]
    groups, mark = LABELS[name]
    assert [words for words in groups if not any(word in cause for word in words)] == []
    own = [
        f"{file}:{line}"
        for file, sign in (("kernels/fresh.cu", "//"), ("fresh_kernel.py", "#"))
        for line in marked(HERE / "debug" / file, f"{sign} {mark}")
    ]
    assert not mark or any(place in cause for place in own), (own, cause)


def test_what_was_not_named_at_first_sight() -> None:
    first = {name: report(f"{name}/fault", RECORD["runs"]) for name in NOT_AT_FIRST}
    assert first["paged"]["verdict"] == "clean"
    assert PROGRAM not in first["packed"]["cause"]
    assert f"{PROGRAM}:81 in worker" in first["worker"]["cause"]
    assert f"{PROGRAM}:266 in captured" in first["captured"]["cause"]


@pytest.mark.parametrize("name", ["paged", "packed", "worker"])
def test_it_is_named_now(name: str) -> None:
    answer = report(f"{name}/fault", MENDED["runs"])
    (line,) = RECORD["lines"][name]
    assert answer["verdict"] == "found" and SAYS[name] in answer["cause"]
    assert f"{PROGRAM}:{line}" in answer["cause"]


def test_a_capture_is_placed_where_it_was_broken() -> None:
    (line,) = RECORD["lines"]["captured"]
    assert told.main_frames(MENDED["captured"])[-1].line == line


@pytest.mark.parametrize("name", sorted(name for name in RECORD["runs"] if name.endswith("/clean")))
def test_no_twin_was_blamed(name: str) -> None:
    answer = report(name, RECORD["runs"])
    assert answer["verdict"] == TWINS.get(name.partition("/")[0], "clean"), answer["cause"]


def test_the_twin_of_fetched_numbers_is_told_that_the_processor_is_slow_and_not_that_it_fetches() -> None:
    assert "because the CPU waits for it" not in report("itemed/clean", RECORD["runs"])["cause"]
    for name in ("paged/clean", "itemed/clean", "worker/clean"):
        assert report(name, MENDED["runs"])["verdict"] == "clean"
