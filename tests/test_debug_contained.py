"""The rungs of `envkit debug --image` in containers with an H200: `tests/debug/contained_on_gpu.py` ran them.

The engine was podman 4.3.1 as root, the image the machine's own system with py-spy and gdb, into which torch and the
CUDA toolkit were mounted; one container ran at a time, without a network.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_debug_evidence import marked

from envkit.debug import cores

RECORD = json.loads((Path(__file__).parent / "data" / "gpu" / "h200-torch-2.11-cu130-debug-contained.json").read_text())
PROGRAMS = Path(__file__).parent / "debug"


def report(name: str) -> dict[str, Any]:
    """The report of one rung."""
    found: dict[str, Any] = RECORD["rungs"][name]["report"]
    return found


def ran(name: str) -> dict[str, str]:
    """The stages that ran, with what each found."""
    return {step["stage"]: step["found"] for step in report(name)["steps"]}


def test_the_record_says_where_and_when_it_ran() -> None:
    assert RECORD["recorded"] == {
        "gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-29",
        "python": "3.12", "where": "a container of Podman 4.3.1 with CDI, one at a time",
    }  # fmt: skip
    assert all(report(name)["image"] == "gpu-host/base:latest" for name in RECORD["rungs"])


LADDERS = {
    "ladder": ("scale_rows", ["as-is", "blocking", "memcheck"]),
    "shared": ("reverse_block", ["as-is", "memcheck", "initcheck", "racecheck", "launches"]),
    "unwritten": ("add_into", ["as-is", "memcheck", "initcheck"]),
    "core": ("scale_rows", ["as-is", "core-dump", "launches"]),
    "misaligned": ("add_quads", ["as-is", "core-dump", "launches"]),
}


@pytest.mark.parametrize("name", LADDERS)
def test_the_ladder_in_containers_ends_at_the_kernel_and_the_line_that_launched_it(name: str) -> None:
    kernel, stages = LADDERS[name]
    assert list(ran(name)) == stages and report(name)["verdict"] == "found"
    assert f"kernel `{kernel}` " in report(name)["cause"]
    launched = marked(PROGRAMS / "launching.py", "cuLaunchKernel(")
    assert report(name)["cause"].endswith(f"launched at /src/tests/debug/launching.py:{launched.pop()} in launch")


def test_the_clean_twin_passes_the_four_memory_tools() -> None:
    assert RECORD["rungs"]["clean"]["code"] == 0 and report("clean")["verdict"] == "clean"
    assert [ran("clean")[tool] for tool in ("memcheck", "initcheck", "racecheck", "synccheck")] == ["nothing"] * 4


@pytest.mark.parametrize(
    ("name", "problem", "place", "thread"),
    [
        ("core", "other", "/src/tests/debug/kernels/oob.cu:6", (64, 0, 0)),
        ("misaligned", "misaligned", "/src/tests/debug/kernels/misaligned.cu:5", (0, 0, 0)),
    ],
)
def test_a_core_dump_of_the_gpu_is_opened_in_its_image(
    name: str, problem: str, place: str, thread: tuple[int, int, int]
) -> None:
    text = RECORD["rungs"][name]["files"]["core-dump/opened/output.txt"]
    assert text.startswith("Opening GPU coredump: /envkit-debug/core-dump/gpu-core-2")
    found = cores.read(text)
    assert found and (found.problem, found.place.where, found.thread) == (problem, place, thread)
    assert found.kernel == report(name)["kernel"]["name"]
    elsewhere = cores.read(text.replace("/src/tests/debug/kernels/", "/src/other-"))
    assert elsewhere and elsewhere.place.where == Path(place).name, "the frame is of another file"


def test_py_spy_has_the_stack_of_a_python_that_ignores_its_environment_and_gdb_those_below_it() -> None:
    isolated, plain = (report(name)["hang"][0] for name in ("isolated", "hang"))
    for each, wait in ((isolated, "Condition.wait"), (plain, "wait")):  # py-spy names the class, faulthandler does not
        assert each["threads"][-1][-1]["function"] == wait
        assert "PyThread_acquire_lock_timed" in each["native"] and "[Inferior 1 (process 2) detached]" in each["native"]


def test_crashes_devices_assertions_memory_and_time_are_told_as_without_a_container() -> None:
    assert report("crash")["cause"].startswith("the command died of SIGSEGV (-11) at ")
    assert "`t >= 0 && t < n_classes` failed" in report("assertion")["cause"]
    assert "`at` [128] is on cpu, made at /src/tests/debug/served_programs.py:336" in report("placement")["cause"]
    assert list(ran("placement")) == ["as-is", "placement"]
    assert "`server.caches` in /src/tests/debug/served_programs.py:52 keeps " in report("memory")["cause"]
    assert "served_programs.py:251: `drawn = torch.randn" in report("slow")["cause"]


def test_a_busy_command_without_nsys_is_undecided() -> None:
    assert RECORD["rungs"]["busy"]["code"] == 3 and report("busy")["verdict"] == "undecided"
    assert "used or waited for 1.01 processors" in report("busy")["cause"]
