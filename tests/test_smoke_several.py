"""Tests of several GPUs, as far as they need none: the monitor, the sentences of cause, and what the limits say."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torches
from clocks import PATIENCE_S
from gathered import gathered

from envkit import payload
from envkit.judging import judge
from envkit.judging.checks._smoke import limits
from envkit.model import Observed, Severity, Unknown
from envkit.payload import isolate
from envkit.payload.smoke import ranks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.ranks import Diagnosis, Notes, Outcome, diagnose, watch
from envkit.payload.smoke.several_gpus import CASES, error_hang_ranks, nccl_collectives, rank_versions
from envkit.payload.smoke.several_gpus.ddp import unequal
from envkit.payload.smoke.several_gpus.transport_matrix import TRANSPORTS, cause
from envkit.subjects.smoke import SmokeRun, SmokeTest

ROOT = Path(payload.__file__).parents[2]


def enter(number: int, name: str = "all_reduce") -> dict[str, Any]:
    return {"enter": number, "name": name, "what": "8 fp32"}


def leave(number: int) -> dict[str, Any]:
    return {"leave": number}


def left(why: str = "") -> dict[str, Any]:
    return {"left": why}


BOTH = [enter(1), leave(1)]


@pytest.mark.parametrize(
    ("said", "kind", "blamed", "step"),
    [
        ([[*BOTH, left()], [*BOTH, left()]], "", (), 0),
        ([[*BOTH, enter(2)], BOTH], "late", (1,), 2),
        ([[*BOTH, enter(2)], [enter(1)]], "late", (1,), 2),
        ([[*BOTH, enter(2)], []], "late", (1,), 2),
        ([[*BOTH, enter(2)], [*BOTH, left()]], "late", (1,), 2),
        ([[*BOTH, enter(2)], [*BOTH, left("killed by SIGKILL")]], "late", (1,), 2),
        ([[*BOTH, enter(2), left("raised: closed by peer")], [*BOTH, left("killed by SIGKILL")]], "late", (1,), 2),
        ([[enter(1), left("raised: closed")], [enter(1), left("killed by SIGSEGV")]], "ended", (1,), 1),
        ([[enter(1), left("raised: one")], [enter(1)]], "ended", (0,), 1),
        ([[enter(1)], [enter(1, "broadcast")]], "disagree", (0, 1), 1),
        ([[enter(1)], [enter(1, "broadcast")], [enter(1)]], "disagree", (1,), 1),
        ([[*BOTH, enter(2)], [*BOTH, enter(2)]], "stuck", (), 2),
        ([[*BOTH, enter(2), leave(2)], [*BOTH, enter(2)]], "late", (1,), 2),
        ([BOTH, BOTH], "idle", (), 1),
        ([[], []], "idle", (), 0),
        ([[*BOTH, enter(2)], BOTH, BOTH, [*BOTH, enter(2)]], "late", (1, 2), 2),
    ],
)
def test_diagnosis(said: list[list[dict[str, Any]]], kind: str, blamed: tuple[int, ...], step: int) -> None:
    found = diagnose(said)
    assert (found.kind, found.ranks, found.step) == (kind, blamed, step), found.text
    assert bool(found.text) == bool(kind)


def test_a_diagnosis_says_who_waits_where_and_who_was_seen_last() -> None:
    found = diagnose([[*BOTH, enter(2)], [*BOTH, left("killed by SIGKILL")], [*BOTH, enter(2)]])
    assert found.text == (
        "ranks 0 and 2 wait in step 2 (all_reduce 8 fp32): "
        "rank 1 was last seen leaving step 1 (all_reduce 8 fp32) and ended: killed by SIGKILL"
    )


def test_watch_returns_when_all_have_left(tmp_path: Path) -> None:
    def job(rank: int) -> None:
        notes = Notes(str(tmp_path), rank)
        for _ in range(3):
            with notes.step("all_reduce", "8 fp32"):
                time.sleep(0.02)
        notes.left()

    threads = [threading.Thread(target=job, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    found = watch(str(tmp_path), 3, patience_s=60.0, seconds=120.0)
    for thread in threads:
        thread.join()
    assert found.kind == "" and found.seconds < 60.0


def test_watch_names_a_silent_rank_after_its_patience(tmp_path: Path) -> None:
    one, other = Notes(str(tmp_path), 0), Notes(str(tmp_path), 1)
    with one.step("all_reduce"), other.step("all_reduce"):
        pass
    with one.step("broadcast"):
        found = watch(str(tmp_path), 2, patience_s=0.3, seconds=600.0)
    assert (found.kind, found.ranks, found.step) == ("late", (1,), 2)
    assert 0.3 <= found.seconds < PATIENCE_S


def test_watch_gives_the_others_their_say_and_no_more(tmp_path: Path) -> None:
    Notes(str(tmp_path), 0).left("raised: RuntimeError")
    found = watch(str(tmp_path), 2, patience_s=600.0, seconds=600.0, grace_s=0.2)
    assert found.kind == "ended" and found.ranks == (0,) and 0.2 <= found.seconds < PATIENCE_S


def test_a_step_that_raised_is_not_left(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path), 0, settle=lambda: None)
    with pytest.raises(ZeroDivisionError), notes.step("train"):
        raise ZeroDivisionError
    assert [sorted(note) for note in ranks.read(str(tmp_path), 1)[0]] == [["at", "enter", "name", "what"]]


def test_a_half_written_note_is_not_read(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path), 0)
    notes.left("x")
    with open(notes.path, "ab") as file:
        file.write(b'{"enter": 1, "na')
    assert len(ranks.read(str(tmp_path), 1)[0]) == 1


def test_failure_names_the_blamed_rank_and_the_first_cuda_error() -> None:
    echo = isolate.Ending("raised", "RuntimeError: closed by peer")
    cause_ = isolate.Ending("raised", "RuntimeError: illegal", cuda="700 cudaErrorIllegalAddress")
    found = ranks.failure(Outcome((echo, cause_), Diagnosis("late", (1,), 2, "rank 0 waits")))
    assert found is not None
    assert str(found).startswith("rank 0 waits; rank 1 raised 700 cudaErrorIllegalAddress")
    assert (found.cuda_code, found.cuda_name) == (700, "cudaErrorIllegalAddress")
    assert ranks.failure(Outcome((isolate.Ending("ran"),), Diagnosis())) is None


def test_failure_of_ranks_that_only_hang_is_what_the_monitor_says() -> None:
    found = ranks.failure(Outcome((ranks.ENDED_WITH_OTHERS,) * 2, Diagnosis("stuck", (), 2, "both are inside")))
    assert str(found) == "both are inside"


def test_multicast_stays_off_unless_the_environment_says_otherwise() -> None:
    here = ranks.surroundings(loopback=True)
    for name, value in (("NCCL_NVLS_ENABLE", "0"), ("NCCL_SOCKET_IFNAME", "lo"), ("GLOO_SOCKET_IFNAME", "lo")):
        assert here.get(name, value) == value
        assert (name in here) == (name not in os.environ)
    assert "GLOO_SOCKET_IFNAME" not in ranks.surroundings(loopback=False)


PASSING = [dict(zip(TRANSPORTS, passed, strict=True)) for passed in itertools.product((True, False), repeat=5)]
PASSING += [
    dict(zip(list(TRANSPORTS)[:4], passed, strict=True)) for passed in itertools.product((True, False), repeat=4)
]


@gathered(PASSING)
def test_every_pattern_of_transports_has_one_cause(passed: dict[str, bool]) -> None:
    said = cause(passed)
    assert bool(said) == (not all(passed.values()))
    assert said.startswith("what NCCL chooses works") == (passed["default"] and not all(passed.values()))
    assert not said.endswith(".") and "\n" not in said
    if not passed["default"] and passed["p2p-off"] and not passed.get("nvls-off"):
        assert said.startswith("only with P2P on it fails") and "ACS" in said and "NCCL_P2P_DISABLE=1" in said
    if not passed["default"] and passed.get("nvls-off"):
        assert "NCCL_NVLS_ENABLE=0" in said
    for name in ("p2p-off", "shm-off", "socket"):
        if passed["default"] and not passed[name]:
            word = {"p2p-off": "shared memory (with", "shm-off": "P2P alone", "socket": "sockets fail"}[name]
            assert word in said


def test_the_recipe_of_a_hang_by_hand() -> None:
    works = {"default": False, "p2p-off": True, "shm-off": False, "socket": True}
    assert cause(works).startswith("only with P2P on it fails: peer access between the GPUs is broken")
    assert cause({**works, "p2p-off": False, "shm-off": True}).startswith("only with shared memory on it fails")
    assert cause({**works, "p2p-off": False}).startswith("only sockets work")
    assert cause(dict.fromkeys(works, False)).startswith("no transport works")


def test_planted_faults_are_told_apart() -> None:
    assert error_hang_ranks.named_right("away", 1, 2, Diagnosis("late", (1,), 5))
    assert not error_hang_ranks.named_right("away", 1, 2, Diagnosis("late", (0,), 5))
    assert not error_hang_ranks.named_right("away", 1, 2, Diagnosis("late", (1,), 4))
    assert not error_hang_ranks.named_right("away", 1, 2, Diagnosis("stuck", (), 5))
    assert error_hang_ranks.named_right("size", 1, 2, Diagnosis("disagree", (0, 1), 5))
    assert error_hang_ranks.named_right("size", 1, 4, Diagnosis("disagree", (1,), 5))
    assert not error_hang_ranks.named_right("size", 1, 4, Diagnosis("disagree", (0, 1, 2, 3), 5))
    assert not any(error_hang_ranks.named_right(fault, 0, 2, Diagnosis()) for fault in error_hang_ranks.FAULTS)


def test_processes_that_are_left_are_counted(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        time.sleep(30)
        os._exit(0)
    os.setpgid(pid, pid)
    try:
        (tmp_path / "0.pid").write_text(str(pid))
        assert error_hang_ranks._alive(str(tmp_path)) == 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert error_hang_ranks._alive(str(tmp_path)) == 0


def test_ranks_that_differ_are_named() -> None:
    told = [{"NCCL": "22809", "GPU": "A"}, {"NCCL": "22703", "GPU": "A"}, {"NCCL": "22809", "GPU": "A"}]
    assert rank_versions.differing(told) == {"NCCL": "22809 on ranks 0 and 2, 22703 on rank 1"}
    assert rank_versions.differing([told[0], told[2]]) == {}


def test_a_library_that_no_rank_has_mapped_is_absent() -> None:
    assert rank_versions.asked("libnone-of-this-name.so", "getVersion") == "absent"


def test_a_barrier_that_does_not_hold_is_counted() -> None:
    assert nccl_collectives.too_early([(0.0, 1.01), (1.0, 1.02)]) == 0
    assert nccl_collectives.too_early([(0.0, 0.5), (1.0, 1.02), (0.1, 0.9)]) == 2
    assert unequal([{"a": "1", "b": "2"}, {"a": "1", "b": "3"}]) == 1


def run_of(name: str, measures: dict[str, float], gpus: int = 2) -> SmokeRun:
    test = SmokeTest(name, "gpus", "ran", measures=measures)
    return SmokeRun("x", gpus=Observed.of(("G",) * gpus, "test"), tests=Observed.of((test,), "test"), level="full")


def measured(name: str, backend: str) -> dict[str, float]:
    """Every measure that the limits of a test ask for, at a healthy value."""
    found: dict[str, float] = {}
    for limit in limits()[name]:
        for measure in limit.measures:
            found[measure] = 2.0 * (limit.least or 0.0)
    return {**found, "nccl.offered": float(backend == "nccl"), "gloo.offered": float(backend == "gloo")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_every_bounded_measure_counts(case: Any, backend: str) -> None:
    check = judge.checks(SmokeRun)["smoke-" + case.name].judge
    good = measured(case.name, backend)
    assert list(check(run_of(case.name, good))) == []
    for limit in limits()[case.name]:
        if limit.when == "*.offered" and not limit.measures[0].startswith(backend + "."):
            continue
        for measure in limit.measures:
            if not limit.when or good.get(limit.when.replace("*", measure.partition(".")[0]), 1.0):
                bad = {**good, measure: float("nan")}
                assert [one.severity for one in check(run_of(case.name, bad))] == [Severity[limit.severity.upper()]]


@pytest.mark.parametrize("case", [case for case in CASES if case.cpu], ids=lambda case: case.name)
def test_no_backend_at_all_is_no_pass(case: Any) -> None:
    check = judge.checks(SmokeRun)["smoke-" + case.name].judge
    nothing = {"nccl.offered": 0.0, "gloo.offered": 0.0}
    assert any(one.severity is Severity.ERROR for one in check(run_of(case.name, nothing)))


def test_a_test_without_an_end_is_unknown() -> None:
    run = SmokeRun("x", gpus=Observed.of(("G", "G"), "test"), tests=Observed.of((), "test"), level="full")
    with pytest.raises(Unknown, match="did not finish on gpus"):
        list(judge.checks(SmokeRun)["smoke-ddp"].judge(run))


def test_each_case_has_a_way_to_go_red() -> None:
    assert all(case.faults and case.several == 2 and case.level == "full" for case in CASES)
    assert Bench("gpus").gpus == 0


@torches.needs_torch
@pytest.mark.parametrize("injected_fault", ["", "order"])
def test_real_ranks_meet_and_are_judged(injected_fault: str) -> None:
    words = [
        "--only",
        "nccl-collectives",
        "--device",
        "cpu",
        *(["--inject-fault", injected_fault] if injected_fault else []),
    ]
    done = subprocess.run(
        [torches.PYTHON, "-m", "envkit.payload.smoke", *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    test = next(one for one in json.loads(done.stdout)["tests"] if one["name"] == "nccl-collectives")
    assert test["ended"] == "ran", test
    found = list(
        judge.checks(SmokeRun)["smoke-nccl-collectives"].judge(run_of("nccl-collectives", test["measures"], gpus=0))
    )
    assert [one.message for one in found] == (
        ["nccl-collectives: gloo.barrier.wrong is 1, above its limit of 0"] if injected_fault else []
    )


def test_documents_of_ranks_travel() -> None:
    assert json.loads(json.dumps(list(Diagnosis("late", (1,), 2, "x", 0.1, 2.0)))) == ["late", [1], 2, "x", 0.1, 2.0]
