"""How a run of the suite is put together, without torch: what runs where, who waits for whom, how an end is told."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from envkit.payload import smoke
from envkit.payload.isolate import Ending, Task
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import GPUS, Case


def jobs(gpus: int | None, *words: str) -> dict[str, list[tuple[str, str]]]:
    """Where each test runs, and under which fault."""
    found: dict[str, list[tuple[str, str]]] = {}
    for job in smoke._jobs(smoke._arguments(list(words)), gpus):
        found.setdefault(job.case.name, []).append((job.device, job.injected_fault))
    return found


def test_every_test_of_a_level_runs_once_on_each_gpu_and_without_one_on_the_cpu() -> None:
    here, there = jobs(0, "--level", "full"), jobs(2, "--level", "full")
    assert set(here) == set(there) == {test.name for test in TESTS if test.level in ("quick", "full")}
    assert set(jobs(0)) == {test.name for test in TESTS if test.level == "quick"}
    assert here["fft"] == [("cpu", "")] and there["fft"] == [("cuda:0", ""), ("cuda:1", "")]
    assert here["speed-copy"] == [("cuda", "")]  # which ends as not applicable
    assert here["nccl-allreduce"] == there["nccl-allreduce"] == [(GPUS, "")]
    on_cpu = [test.name for test in TESTS if test.cpu and not test.gpu and not test.several and test.level != "stress"]
    assert on_cpu and all(there[name] == [("cpu", "")] for name in on_cpu)


def test_where_a_gpu_was_asked_for_or_cannot_be_asked_none_is_replaced_by_the_cpu() -> None:
    for gpus, words in ((0, ("--device", "cuda")), (None, ())):
        found = jobs(gpus, *words, "--only", "fft", "--only", "error-crash")
        assert found["fft"] == [(smoke._NO_CUDA, "")]
        assert found["error-crash"] == [("cpu", "")]  # which needs none


def test_faults_are_planted_where_a_test_promises_to_see_them() -> None:
    (test,) = [test for test in TESTS if test.name == "fft"]
    assert jobs(0, "--only", "fft", "--inject-fault", "all")["fft"] == [("cpu", kind) for kind in test.faults]
    assert jobs(0, "--only", "fft", "--inject-fault", test.faults[0])["fft"] == [("cpu", test.faults[0])]
    assert jobs(0, "--only", "fft", "--inject-fault", "order") == {}
    fit = {test.name for test in TESTS if "memcheck" in test.sanitize and test.level == "quick"}
    assert set(jobs(1, "--sanitize", "memcheck")) == fit != set()


def test_functions_of_a_file_are_tests_and_a_file_without_any_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def smoke_one(bench): pass\ndef helper(): pass\nclass smoke_two: pass\nraise SystemExit(1)\n")
    found = smoke.extras([str(path)])
    assert [(case.name, source) for case, source in found if source] == [(f"{smoke.EXTRA}smoke_one", str(path))]
    assert f"{smoke.EXTRA}smoke_one" in jobs(0, "--only", "fft", "--test-file", str(path))
    path.write_text("def helper(): pass\n")
    with pytest.raises(ValueError, match="no function whose name begins with smoke_"):
        smoke.extras([str(path)])


def lock(folder: Path, device: str, kind: int) -> bool:
    """Whether a device could be had in this way at this moment."""
    file = os.open(folder / f"lock-{device}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


@pytest.mark.parametrize(
    ("case", "device", "shared", "whole"),
    [
        (Case("x"), "cuda:0", True, False),
        (Case("x", alone=True), "cuda:0", False, False),
        (Case("x", several=2), GPUS, False, False),
        (Case("x", builds=True, alone=True), "cuda:0", True, True),
    ],
)
def test_a_test_has_its_device_alone_or_beside_others(
    tmp_path: Path, case: Case, device: str, shared: bool, whole: bool
) -> None:
    setting = smoke.Setting(1, (), str(tmp_path), 2, "quick")
    with smoke._turn(smoke.Job(case, device, "", ""), setting) as waited:
        assert waited >= 0.0
        assert (lock(tmp_path, "cuda-0", fcntl.LOCK_SH), lock(tmp_path, "cuda-0", fcntl.LOCK_EX)) == (shared, whole)
        assert lock(tmp_path, "cuda-1", fcntl.LOCK_EX) is (device != GPUS)
    assert lock(tmp_path, "cuda-0", fcntl.LOCK_EX)


def result(ending: Ending) -> dict[str, Any]:
    return smoke._as_result(Task("fft", "cuda:0", 10.0, label="ulp"), ending)


def test_an_end_is_told_with_its_cuda_error_and_without_the_time_that_it_waited() -> None:
    value = {"measures": {"a": 1.0}, "limits": {"a": 2.0}, "detail": "text", "waited": 1.5}
    ran = result(Ending("ran", value=value, seconds=4.0))
    assert (ran["ended"], ran["seconds"], ran["measures"], ran["limits"], ran["detail"]) == (
        "ran", 2.5, {"a": 1.0}, {"a": 2.0}, "text",
    )  # fmt: skip
    assert (ran["name"], ran["device"], ran["injected_fault"]) == ("fft", "cuda:0", "ulp")
    assert result(Ending("raised", "no memory", cuda="2 (cudaErrorMemoryAllocation)"))["ended"] == "memory"
    assert result(Ending("raised", "gone", cuda="200 (cudaErrorInvalidKernelImage)"))["ended"] == "cuda"
    assert result(Ending("raised", "gone"))["ended"] == "raised"


def test_what_the_sanitizer_found_stands_beside_the_measures(tmp_path: Path) -> None:
    setting = smoke.Setting(1, (), str(tmp_path), 1, "quick")
    one = {"name": "fft", "device": "cuda:0", "measures": {"a": 1.0}, "detail": "slow"}
    smoke._add_sanitized(one, setting)
    assert one["measures"] == {"a": 1.0} and str(one["detail"]).startswith("slow; compute-sanitizer left no log")
    Path(smoke._log("fft", "cuda:0", setting)).write_text("========= ERROR SUMMARY: 0 errors\n")
    clean = {"name": "fft", "device": "cuda:0", "measures": {"a": 1.0}, "detail": ""}
    smoke._add_sanitized(clean, setting)
    assert clean["measures"] == {"a": 1.0, "sanitizer.errors": 0.0} and clean["detail"] == ""


def test_a_folder_that_cannot_be_made_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(smoke.tempfile, "tempdir", str(tmp_path))
    made = Path(smoke._scratch())
    assert made.parent == tmp_path and made.is_dir()
    monkeypatch.setattr(smoke.tempfile, "tempdir", str(tmp_path / "none"))
    assert smoke._scratch() == ""
