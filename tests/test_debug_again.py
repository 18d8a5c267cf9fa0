"""`envkit debug` in containers of Docker Engine and of a rootless Podman with an H200, and reruns of what was mended.

`tests/debug/contained_on_gpu.py` ran the containers, `tests/debug/later_on_gpu.py`, `served_on_gpu.py` and
`unseen_on_gpu.py` the programs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data" / "gpu"
DOCKER, ROOTLESS, AGAIN = (
    json.loads((DATA / f"h200-torch-2.11-cu130-debug-{name}.json").read_text())
    for name in ("docker", "rootless", "again")
)
BOTH = {"docker": DOCKER, "rootless": ROOTLESS}
SAME = {"gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-29", "python": "3.12"}
each_engine = pytest.mark.parametrize("engine", BOTH)


def report(engine: str, name: str) -> dict[str, Any]:
    """The report of one rung."""
    found: dict[str, Any] = BOTH[engine]["rungs"][name]["report"]
    return found


def ran(engine: str, name: str) -> dict[str, str]:
    """The stages that ran, with what each found."""
    return {step["stage"]: step["found"] for step in report(engine, name)["steps"]}


def test_the_records_say_where_and_when_they_ran() -> None:
    docker, rootless = DOCKER["recorded"], ROOTLESS["recorded"]
    assert docker == {**SAME, "where": "a container of Docker Engine 26.1.5 with CDI, three at a time"}
    assert rootless == {**SAME, "where": "a container of rootless Podman 4.3.1 with CDI, one at a time"}
    assert AGAIN["recorded"] == {**SAME, "where": "the machine's own Python"}


@each_engine
def test_the_ladder_ends_at_the_kernel_and_the_lines_that_launched_it(engine: str) -> None:
    launched = "launched at /src/tests/debug/launching.py:53 in launch, called at /src/tests/debug/"
    for name, kernel, line in (
        ("ladder", "scale_rows", "oob.py:14 in scale"),
        ("core", "scale_rows", "oob.py:14 in scale"),
        ("shared", "reverse_block", "missing_barrier.py:13 in reverse"),
    ):
        found = report(engine, name)
        assert found["verdict"] == "found" and found["cause"].startswith(f"kernel `{kernel}` ")
        assert found["cause"].endswith(f"{launched}{line}")
    assert list(ran(engine, "ladder")) == ["as-is", "blocking", "memcheck"]
    assert list(ran(engine, "core")) == ["as-is", "core-dump", "launches"]


@each_engine
def test_the_clean_twin_passes_the_four_memory_tools(engine: str) -> None:
    assert BOTH[engine]["rungs"]["clean"]["code"] == 0 and report(engine, "clean")["verdict"] == "clean"
    tools = ("memcheck", "initcheck", "racecheck", "synccheck")
    assert [ran(engine, "clean")[tool] for tool in tools] == ["nothing"] * 4


@each_engine
def test_crashes_hangs_assertions_memory_and_time_are_told(engine: str) -> None:
    assert "it died in `ffi_call` of /lib/x86_64-linux-gnu/libffi.so.8" in report(engine, "crash")["cause"]
    assert "`t >= 0 && t < n_classes` failed" in report(engine, "assertion")["cause"]
    for name, wait in (("isolated", "Condition.wait"), ("hang", "wait")):
        (each,) = report(engine, name)["hang"]
        assert each["threads"][-1][-1]["function"] == wait
        assert engine == "rootless" or "PyThread_acquire_lock_timed" in each["native"]
    assert "`server.caches` in /src/tests/debug/served_programs.py:52 keeps " in report(engine, "memory")["cause"]
    assert "served_programs.py:251: `drawn = torch.randn" in report(engine, "slow")["cause"]


def test_under_docker_reads_of_unwritten_memory_misalignment_and_placement_are_told() -> None:
    assert "`add_into` reads 4 bytes that nobody wrote" in report("docker", "unwritten")["cause"]
    assert "`add_quads` uses memory at the misaligned address" in report("docker", "misaligned")["cause"]
    assert (
        "`at` [128] is on cpu, made at /src/tests/debug/served_programs.py:336"
        in report("docker", "placement")["cause"]
    )


@pytest.mark.parametrize("name", ["checked", "decoded"])
def test_what_looking_at_lines_adds_to_a_short_step_is_no_wait_of_the_gpu(name: str) -> None:
    """The twins that were blamed: a graph of the step takes as long as the step without envkit."""
    before, now = AGAIN["again"][f"before/{name}/clean"], AGAIN["runs"][f"{name}/clean"]
    assert "the GPU has nothing to do in " in before["report"]["cause"] and now["report"]["verdict"] == "clean"
    plain, graph = (min(AGAIN["graphs"][name][key]) for key in ("plain_ms", "graph_ms"))
    assert 1 - graph / plain < 0.06, "there is nothing that the GPU waits for"
    assert now["slow"]["alone"] < now["slow"]["steps"] < now["slow"]["traced"]


def test_their_faults_are_told_as_before() -> None:
    for name, line in (("checked", 100), ("decoded", 170)):
        found = AGAIN["runs"][f"{name}/fault"]["report"]
        assert found["verdict"] == "found" and f"later_programs.py:{line}" in found["cause"]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("callbacks/fault", "served_programs.py:73 and /src/tests/debug/served_programs.py:72"),
        ("records/fault", "served_programs.py:206"),
        ("boxes/fault", "served_programs.py:240"),
        ("evaluation/fault", "unseen_programs.py:97"),
        ("errors/fault", "unseen_programs.py:82"),
        ("optimizers/fault", "unseen_programs.py:109"),
        ("samples/fault", "unseen_programs.py:175"),
    ],
)
def test_what_had_been_told_beside_its_line_or_not_at_all_is_told_since(name: str, place: str) -> None:
    found = AGAIN["again"][name]
    assert found["report"]["verdict"] == "found" and place in found["report"]["cause"]


def test_their_twins_are_clean() -> None:
    assert [AGAIN["again"][name]["code"] for name in ("records/clean", "evaluation/clean")] == [0, 0]
