"""The judges of the smoke suite, over recorded runs of a real torch and over runs made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import answers
import pytest
from gathered import gathered

from envkit import facts
from envkit.image.smoke import read
from envkit.judging import judge
from envkit.judging.checks import _smoke as table
from envkit.judging.checks import smoke
from envkit.model import Finding, Observed, Outcome, Reason, Report, Severity, Skip, Subject, Unknown
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import FAULT_KINDS, GPUS, SUITE, Case
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.smoke import SmokeRun, SmokeTest

DATA = Path(__file__).parent / "data" / "smoke"
Judge = Callable[[SmokeRun], Iterator[Finding]]


def judge_of(name: str) -> Judge:
    check, known = judge.checks()["smoke-" + name], facts.load()
    return lambda run: check.judge(run, known) if check.wants_facts else check.judge(run)


JUDGES: dict[str, Judge] = {test.name: judge_of(test.name) for test in TESTS}
ONE = [test for test in TESTS if not test.several]
ON_CPU = [test.name for test in ONE if test.cpu]
ON_GPU = [test.name for test in ONE if test.gpu]
ON_BOTH = [name for name in ON_CPU if name in ON_GPU]
GPU_ONLY = [test.name for test in ONE if not test.cpu and test.level != "stress"]
STRESS = [test.name for test in ONE if test.level == "stress"]
UNFIT = ("gemm-fp8", "cpp-extension")  # torch 2.6 has no fp8 products on a CPU, and its image no ninja
DEVICES = {
    test.name: [GPUS] if test.several else ["cuda:0"] * test.gpu + ["cpu"] * (test.cpu and not test.gpu)
    for test in TESTS
}


def recorded(name: str) -> SmokeRun:
    return from_plain(SmokeRun, json.loads((DATA / f"{name}.json").read_text()))


def of(*tests: SmokeTest) -> SmokeRun:
    """A run of these tests, which saw as many GPUs as they name."""
    on = [test.device.partition(":")[2] for test in tests]
    gpus = tuple("a GPU" for _ in range(1 + max([-1, *(int(index) for index in on if index)])))
    level = "stress" if any(test.name in STRESS for test in tests) else "full"
    return SmokeRun("x", tests=Observed.of(tests, "by hand"), gpus=Observed.of(gpus, "by hand"), level=level)


def rows_of(name: str, device: str) -> list[tuple[table.Limit, str, str]]:
    """Each bounded measure with its row and the measure that says whether it counts, empty if it always does."""
    found = []
    for row in table.limits()[name]:
        if device.partition(":")[0] in row.devices:
            for measure in row.measures:
                when = measure.partition(".")[0] + row.when[1:] if row.when.startswith("*.") else row.when
                found.append((row, measure, when))
    return found


def healthy(name: str, device: str) -> SmokeTest:
    """A test whose measures lie just inside every limit."""
    rows = rows_of(name, device)
    measures: dict[str, float] = {}
    for row, measure, _ in rows:
        bound = row.most if row.most is not None else row.least or 0.0
        measures[measure] = min(measures.get(measure, bound), bound) if row.most is not None else bound
    return SmokeTest(name, device, "ran", measures={**measures, **{when: 1.0 for _, _, when in rows if when}})


@gathered(ON_CPU)
def test_a_recorded_sound_torch_passes(name: str) -> None:
    run = recorded("torch-2.6-cu124-cpu")
    (test,) = [test for test in run.tests.need("the tests") if test.name == name]
    if test.ended == "not-applicable":
        assert name in UNFIT
        return
    assert list(JUDGES[name](run)) == []


@gathered(ON_CPU)
def test_a_recorded_injected_fault_is_seen(name: str) -> None:
    run = recorded("torch-2.6-cu124-cpu-inject-fault-all")
    kinds = next(test.faults for test in TESTS if test.name == name)
    ends = [test for test in run.tests.need("the tests") if test.name == name]
    if all(test.ended == "not-applicable" for test in ends):
        return  # as the sound run says
    assert {test.injected_fault for test in ends} == set(kinds)
    assert any(finding.severity is Severity.ERROR for finding in JUDGES[name](run))


@gathered(GPU_ONLY)
def test_what_needs_a_gpu_is_skipped_without_one(name: str) -> None:
    with pytest.raises(Skip, match="there is no GPU"):
        list(JUDGES[name](recorded("torch-2.6-cu124-cpu")))


def test_the_document_reads_as_the_recorded_run() -> None:
    document = json.loads((DATA / "torch-2.6-cu124-cpu.document.json").read_text())
    run = recorded("torch-2.6-cu124-cpu")
    assert read(document, SmokeRun(run.name, level="full", suite=SUITE)) == run
    assert from_plain(SmokeRun, to_plain(run)) == run


@pytest.mark.parametrize(
    "change",
    [
        {"tests": "x"},
        {"tests": [{"name": 1}]},
        {"gpus": 3},
        {"seconds": "x"},
        {"tests": None},
        {"schema": "envkit.payload/2"},
        {"kind": "probe"},
        {"injected_fault": "ulp"},
        {"tests": [{"name": "fft", "device": "cpu", "ended": "ran", "measures": {"fp32.complex.worst": None}}]},
        {"tests": [{"name": "fft", "device": "cpu", "ended": "ran", "measures": {"fp32.complex.worst": [0]}}]},
    ],
)
def test_a_document_that_does_not_fit_is_not_observed(change: dict[str, object]) -> None:
    document = json.loads((DATA / "torch-2.6-cu124-cpu.document.json").read_text())
    run = read({**document, **change}, SmokeRun("x", level="full"))
    with pytest.raises(Unknown):
        list(JUDGES["fft"](run))


def test_an_unknown_ending_is_not_observed() -> None:
    document = json.loads((DATA / "torch-2.6-cu124-cpu.document.json").read_text())
    document["tests"][0]["ended"] = "passed"
    assert "'passed'" in read(document, SmokeRun("x")).tests.missing


@gathered(TESTS)
def test_every_limit_is_reached_by_going_just_beyond_it(test: Case) -> None:
    name, check = test.name, JUDGES[test.name]
    for device in DEVICES[name]:
        clean = healthy(name, device)
        rows = rows_of(name, device)
        assert rows
        assert [found for found in check(of(clean)) if found.severity is Severity.ERROR] == []
        for row, bounded, _ in rows:
            beyond = (row.most or 0.0) * 1.01 + 1e-30 if row.most is not None else (row.least or 0.0) - 0.5
            for bad in (beyond, "nan", "inf", "-inf", -1.0, -0.001, "", "zero", "1e999", None):
                measures = {measure: value for measure, value in clean.measures.items() if measure != bounded}
                if bad is not None:
                    measures[bounded] = bad
                hits = [found for found in check(of(replace(clean, measures=measures))) if bounded in found.message]
                assert [found.where for found in hits][:1] == [device], (row, bad)


def test_a_measure_that_is_not_offered_is_not_missed_but_an_unsaid_offer_is() -> None:
    clean = healthy("gemm-exact", "cpu")
    without = {name: value for name, value in clean.measures.items() if not name.startswith("bf16")}
    assert list(JUDGES["gemm-exact"](of(replace(clean, measures={**without, "bf16.offered": 0.0})))) == []
    (finding,) = JUDGES["gemm-exact"](of(replace(clean, measures=without)))
    assert finding.message == "gemm-exact did not measure bf16.wrong"


def test_ptx_that_the_driver_cannot_compile_is_a_warning() -> None:
    clean = healthy("vector-add-nvrtc", "cuda:0")
    (finding,) = JUDGES["vector-add-nvrtc"](of(replace(clean, measures={**clean.measures, "ptx.offered": 0.0})))
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ("killed", "was killed by SIGSEGV"),
        ("hung", "hung: no answer"),
        ("raised", "raised: no"),
        ("garbled", "garbled: no"),
    ],
)
def test_a_death_is_told_with_its_last_words(ended: str, words: str) -> None:
    signal = "SIGSEGV" if ended == "killed" else ""
    dead = SmokeTest("conv", "cuda:3", ended, "no answer", signal, stderr_tail="CUDNN_STATUS_EXECUTION_FAILED\n")
    sound = [healthy("conv", device) for device in ("cuda:0", "cuda:1", "cuda:2")]
    (finding,) = JUDGES["conv"](of(*sound, dead))
    assert words in finding.message
    assert (finding.severity, finding.where) == (Severity.ERROR, "cuda:3")
    assert "CUDNN_STATUS_EXECUTION_FAILED" in finding.evidence
    assert finding.fix


@pytest.mark.parametrize("ended", ["killed", "hung"])
def test_no_driver_is_looked_at_for_a_death_on_the_cpu(ended: str) -> None:
    fixes = []
    for device in ("cpu", "cuda:0"):
        (finding,) = JUDGES["conv"](of(SmokeTest("conv", device, ended)))
        fixes.append("Xid" in finding.fix)
    assert fixes == [False, True]


@gathered(JUDGES)
def test_a_device_that_offers_nothing_never_passes(name: str) -> None:
    for device in DEVICES[name]:
        waived = {when: 0.0 for _, _, when in rows_of(name, device) if when}
        found = list(JUDGES[name](of(SmokeTest(name, device, "ran", measures=waived))))
        assert any(one.severity is Severity.ERROR for one in found)


def test_what_was_not_asked_for_is_skipped_and_a_lost_run_is_unknown() -> None:
    with pytest.raises(Skip, match="not asked for"):
        list(JUDGES["fft"](replace(of(healthy("conv", "cpu")), only=("conv",))))
    with pytest.raises(Unknown, match="the runner died"):
        list(JUDGES["fft"](SmokeRun("x", tests=Observed.lost("the runner died"), level="full")))


def test_a_test_that_is_not_applicable_on_one_device_is_judged_on_the_others() -> None:
    lacking = SmokeTest("sparse", "cuda:1", "not-applicable", "no mkl")
    bad = replace(healthy("sparse", "cuda:0"), measures={})
    assert list(JUDGES["sparse"](of(lacking, healthy("sparse", "cuda:0")))) == []
    assert list(JUDGES["sparse"](of(lacking, bad)))


def test_a_device_without_limits_never_passes() -> None:
    assert list(JUDGES["fft"](of(replace(healthy("fft", "cpu"), device="tpu:0"))))


def test_importing_torch_must_leave_cuda_alone() -> None:
    check = smoke.smoke_import_leaves_cuda_alone
    assert list(check(recorded("torch-2.6-cu124-cpu"))) == []
    assert list(check(replace(of(), cuda_before_fork=Observed.of(True, "torch.cuda.is_initialized"))))
    with pytest.raises(Unknown):
        list(check(replace(of(), cuda_before_fork=Observed.lost("raised ImportError: x"))))


def test_every_row_belongs_to_a_test_and_bounds_something() -> None:
    bounded = []
    assert set(table.limits()) == set(JUDGES)
    for rows in table.limits().values():
        for row in rows:
            assert row.measures and row.devices
            assert set(row.devices) <= {"cpu", "cuda", GPUS}
            assert row.most is not None or row.least is not None
            assert row.why
            assert Severity[row.severity.upper()]
            side = "most" if row.most is not None else "least"
            bounded += [(row.test, measure, device, side) for measure in row.measures for device in row.devices]
    assert len(bounded) == len(set(bounded))


def test_every_test_has_injected_faults_and_earlier_tests_that_exist() -> None:
    for test in TESTS:
        assert test.faults, test.name
        assert set(test.faults) <= set(FAULT_KINDS), test.name
        assert set(test.needs) <= set(JUDGES) - {test.name}, test.name
    assert len({test.name for test in TESTS}) == len(TESTS) >= 60


def test_an_earlier_fault_on_the_same_device_explains_a_later_one() -> None:
    broken = SmokeTest("gemm-exact", "cuda:0", "cuda", "CUDA error: an illegal memory access", cuda="700 X")
    (finding,) = JUDGES["gemm-random"](of(broken, SmokeTest("gemm-random", "cuda:0", "raised", "CUBLAS_STATUS")))
    assert "(explained by gemm-exact)" in finding.message
    assert any("gemm-exact met a CUDA error 700 X" in said for said in finding.evidence)
    other = replace(broken, device="cuda:1")
    alone = of(other, healthy("gemm-random", "cuda:1"), SmokeTest("gemm-random", "cuda:0", "raised", "CUBLAS_STATUS"))
    (finding,) = JUDGES["gemm-random"](alone)
    assert "explained" not in finding.message


# What a run lacks, and what it was told outside the image.


@gathered(product(JUDGES, [(), "itself"]))
def test_a_test_that_was_asked_for_and_is_not_there_is_unknown(name: str, only: object) -> None:
    run = replace(of(), only=(name,) if only else (), level="stress" if name in STRESS else "full", suite=SUITE)
    with pytest.raises(Unknown, match=f"{name} did not finish on"):
        list(JUDGES[name](run))


def test_an_empty_run_is_no_pass() -> None:
    run = replace(recorded("torch-2.6-cu124-cpu"), tests=Observed.of((), "the smoke suite"))
    assert Report(Subject("smoke", "x"), judge.judge(run, facts.load())).exit_code() == 3


@gathered(ON_BOTH)
def test_a_gpu_that_was_seen_and_has_no_end_is_unknown_and_a_fault_elsewhere_still_told(name: str) -> None:
    run = replace(of(healthy(name, "cuda:0")), gpus=Observed.of(("a GPU", "another"), "by hand"))
    with pytest.raises(Unknown, match=f"{name} did not finish on cuda:1"):
        list(JUDGES[name](run))
    assert list(JUDGES[name](replace(run, tests=Observed.of((SmokeTest(name, "cpu", "hung"),), "by hand"))))
    with pytest.raises(Unknown, match="the GPUs that the run saw"):
        list(JUDGES[name](replace(run, gpus=Observed.lost("the driver hung"))))


@gathered(ON_CPU)
def test_a_injected_fault_that_changed_nothing_or_did_not_come_is_no_evidence(name: str) -> None:
    kinds = next(test.faults for test in TESTS if test.name == name)
    device = DEVICES[name][0]
    sound = [replace(healthy(name, device), injected_fault=kind) for kind in kinds]
    with pytest.raises(Unknown, match=f"{name} does not see the injected fault {kinds[0]} on {device}"):
        list(JUDGES[name](replace(of(*sound), injected_fault="all")))
    red = [replace(one, measures={}) for one in sound]
    assert list(JUDGES[name](replace(of(*red), injected_fault="all")))
    if len(kinds) > 1:
        with pytest.raises(Unknown, match=f"{kinds[-1]} on {device}, which did not run"):
            list(JUDGES[name](replace(of(*red[:-1]), injected_fault="all")))


@pytest.mark.parametrize("field", ["gpus", "tests"])
def test_a_field_of_a_sound_run_that_is_lost_leaves_no_kernel_test_green(field: str) -> None:
    gone: dict[str, Any] = {field: Observed.lost("gone")}
    results = judge.judge(replace(recorded("torch-2.6-cu124-cpu"), **gone), facts.load())
    alone = [name for name in ON_CPU if name not in ON_GPU and name not in UNFIT]
    needs_none = {f"smoke-{name}" for name in alone} if field == "gpus" else set()
    passed = {result.check for result in results if result.outcome is Outcome.PASS}
    assert passed == {"smoke-import-leaves-cuda-alone", *needs_none}


@gathered(ON_CPU)
def test_a_sound_run_without_one_test_or_one_measure_is_not_green_there(name: str) -> None:
    run = recorded("torch-2.6-cu124-cpu")
    tests = run.tests.need("the tests")
    without = replace(run, tests=Observed.of(tuple(test for test in tests if test.name != name), "by hand"))
    with pytest.raises(Unknown):
        list(JUDGES[name](without))
    (test,) = [test for test in tests if test.name == name]
    for _, measure, when in rows_of(name, "cpu") if test.ended == "ran" else ():
        if when and test.measures[when] == 0.0:
            continue
        rest = {key: value for key, value in test.measures.items() if key != measure}
        assert list(JUDGES[name](replace(of(replace(test, measures=rest)), gpus=run.gpus)))


def outcome(check: str, run: SmokeRun) -> Outcome:
    return answers.judged(check, run).outcome


@pytest.mark.parametrize(
    ("given", "seen", "expected"),
    [
        ((), (), Outcome.SKIP),
        (("all",), ("a",), Outcome.PASS),
        (("0", "2"), ("a", "b"), Outcome.PASS),
        (("all",), (), Outcome.FAIL),
        (("0", "2"), ("a",), Outcome.FAIL),
        (("all",), None, Outcome.UNKNOWN),
    ],
)
def test_gpus_that_were_given_must_be_seen(
    given: tuple[str, ...], seen: tuple[str, ...] | None, expected: Outcome
) -> None:
    gpus = Observed.lost("cuInit returned 803") if seen is None else Observed.of(seen, "cuDeviceGetName")
    run = replace(recorded("torch-2.6-cu124-cpu"), gpus=gpus, gpus_given=given)
    assert outcome("smoke-gpu-not-seen", run) is expected
    exits = {Outcome.FAIL: 1, Outcome.UNKNOWN: 3}
    if expected in exits:  # whatever the tests of the cpu say
        assert Report(Subject("smoke", "x"), judge.judge(run, facts.load())).exit_code() == exits[expected]


def test_a_promised_torch_that_is_absent_is_a_fault_and_no_skip() -> None:
    absent: Observed[Any] = Observed.lost("unfit there is no torch in this Python", reason=Reason.NO_TORCH)
    run = replace(of(healthy("vector-add-nvrtc", "cuda:0")), torch=absent, cuda_before_fork=absent)
    assert outcome("smoke-torch-not-promised", run) is Outcome.SKIP
    assert outcome("smoke-torch-not-promised", replace(run, torch_promised="2.6.0")) is Outcome.FAIL


# Triton's targets: what was promised is known outside the run.


def targets(*promised: str, detail: str = "", **offered: float) -> SmokeRun:
    """A run whose kernels ``sm_NN_kernel`` were made or not, in an image built for the ``promised`` architectures."""
    sound = healthy("triton-targets", "cpu")
    said = {f"{name.rpartition('_')[0]}.{name.rpartition('_')[2]}.offered": value for name, value in offered.items()}
    test = replace(sound, detail=detail, measures={**sound.measures, **said})
    return replace(of(test), gpus_promised=promised)


def test_a_promised_gpu_must_get_machine_code() -> None:
    line = "sm_120 add: RuntimeError: ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'"
    run = targets("sm_90", "sm_120", detail=line, sm_90_add=1.0, sm_90_dot=1.0, sm_120_add=0.0, sm_120_dot=0.0)
    (finding,) = JUDGES["triton-targets"](run)
    assert (finding.severity, finding.where) == (Severity.ERROR, "sm_120")
    assert finding.message.endswith("for sm_120: " + line.partition(": ")[2])
    assert outcome("smoke-triton-targets", replace(run, gpus_promised=("sm_90",))) is Outcome.PASS


@pytest.mark.parametrize("value", [None, 0.0, 0.5, 2.0, float("nan")])
def test_a_promised_gpu_that_was_not_tried_is_no_pass(value: float | None) -> None:
    run = targets("sm_90", sm_90_dot=1.0) if value is None else targets("sm_90", sm_90_add=value, sm_90_dot=1.0)
    (finding,) = JUDGES["triton-targets"](run)
    assert (finding.severity, finding.where) == (Severity.ERROR, "sm_90")


def test_a_promised_gpu_without_a_matrix_product_is_a_warning() -> None:
    (finding,) = JUDGES["triton-targets"](targets("sm_75", sm_75_add=1.0, sm_75_dot=0.0))
    assert (finding.severity, finding.where) == (Severity.WARNING, "sm_75")
    assert "a matrix product" in finding.message


def test_a_gpu_that_nobody_promised_is_a_note_at_most() -> None:
    (finding,) = JUDGES["triton-targets"](targets(sm_50_add=0.0, sm_50_dot=0.0, sm_90_add=1.0, sm_90_dot=0.0))
    assert (finding.severity, finding.where) == (Severity.NOTE, "sm_50")


def test_what_was_promised_is_not_taken_from_the_document() -> None:
    document = json.loads((DATA / "torch-2.6-cu124-cpu.document.json").read_text())
    run = read({**document, "gpus_promised": []}, SmokeRun("x", gpus_promised=("sm_120",)))
    assert run.gpus_promised == ("sm_120",)
    assert outcome("smoke-triton-targets", run) is Outcome.FAIL


def test_a_test_has_limits_where_it_runs_and_nowhere_else() -> None:
    for test in TESTS:
        own = [kind for kind, there in (("cpu", test.cpu), ("cuda", test.gpu)) if there]
        limited = {kind for row in table.limits()[test.name] for kind in row.devices}
        assert limited == ({GPUS} if test.several else set(own)), test.name


def test_few_tests_keep_others_from_their_device_and_none_of_these_runs_beside_one() -> None:
    """A run of many tests takes its time by what may run side by side."""
    alone = [test for test in TESTS if test.alone]
    assert 0 < len(alone) < len(TESTS) / 4
    assert not [test.name for test in alone if test.beside or test.builds or not test.gpu]
    assert all(test.alone for test in TESTS if test.group == "speed")
    assert len([test for test in TESTS if test.beside]) < len(TESTS) / 4
