"""The judges of the smoke suite, over recorded runs of a real torch and over runs made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envkit.checks import smoke
from envkit.image.smoke import read
from envkit.model import Finding, Observed, Severity, Skip, Unknown
from envkit.payload.smoke import TESTS, Case
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.smoke import SmokeRun, SmokeTest

DATA = Path(__file__).parent / "data" / "smoke"
Judge = Callable[[SmokeRun], Iterator[Finding]]
JUDGES: dict[str, Judge] = {test.name: getattr(smoke, "smoke_" + test.name.replace("-", "_")) for test in TESTS}
ON_CPU = [test.name for test in TESTS if test.cpu]
GPU_ONLY = [test.name for test in TESTS if not test.cpu]


def recorded(name: str) -> SmokeRun:
    return from_plain(SmokeRun, json.loads((DATA / f"{name}.json").read_text()))


def of(*tests: SmokeTest) -> SmokeRun:
    return SmokeRun("x", tests=Observed.of(tests, "by hand"))


def healthy(name: str, device: str) -> SmokeTest:
    """A test whose measures lie just inside every limit."""
    rows = [row for row in smoke.limits() if row.test == name and row.device == device.partition(":")[0]]
    inside = {row.measure: row.most if row.most is not None else row.least or 0.0 for row in rows}
    return SmokeTest(name, device, "ran", measures={**inside, **{row.when: 1.0 for row in rows if row.when}})


@pytest.mark.parametrize("name", ON_CPU)
def test_a_recorded_sound_torch_passes(name: str) -> None:
    assert list(JUDGES[name](recorded("torch-2.6-cu124-cpu"))) == []


@pytest.mark.parametrize("mode", ["ulp", "nan"])
@pytest.mark.parametrize("name", ON_CPU)
def test_a_recorded_saboteur_is_seen(name: str, mode: str) -> None:
    run = recorded(f"torch-2.6-cu124-cpu-sabotage-{mode}")
    assert run.sabotage == mode
    findings = list(JUDGES[name](run))
    assert findings
    assert all(finding.severity is Severity.ERROR and finding.where == "cpu" for finding in findings)


@pytest.mark.parametrize("name", GPU_ONLY)
def test_what_needs_a_gpu_is_skipped_without_one(name: str) -> None:
    with pytest.raises(Skip, match=r"no libcuda\.so\.1"):
        list(JUDGES[name](recorded("torch-2.6-cu124-cpu")))


def test_the_document_reads_as_the_recorded_run() -> None:
    document = json.loads((DATA / "torch-2.6-cu124-cpu.document.json").read_text())
    run = recorded("torch-2.6-cu124-cpu")
    assert read(document, run.name) == run
    assert from_plain(SmokeRun, to_plain(run)) == run


@pytest.mark.parametrize(
    "change", [{"tests": "x"}, {"tests": [{"name": 1}]}, {"gpus": 3}, {"seconds": "x"}, {"tests": None}]
)
def test_a_document_that_does_not_fit_is_not_observed(change: dict[str, object]) -> None:
    document = json.loads((DATA / "torch-2.6-cu124-cpu.document.json").read_text())
    run = read({**document, **change}, "x")
    with pytest.raises(Unknown):
        list(smoke.smoke_fft(run))


def test_an_unknown_ending_is_not_observed() -> None:
    document = json.loads((DATA / "torch-2.6-cu124-cpu.document.json").read_text())
    document["tests"][0]["ended"] = "passed"
    assert "'passed'" in read(document, "x").tests.missing


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_every_limit_is_reached_by_going_just_beyond_it(test: Case) -> None:
    name, judge = test.name, JUDGES[test.name]
    devices = ["cuda:1"] + (["cpu"] if name in ON_CPU else [])
    for device in devices:
        clean = healthy(name, device)
        rows = [row for row in smoke.limits() if row.test == name and row.device == device.partition(":")[0]]
        assert rows
        assert list(judge(of(clean))) == []
        for row in rows:
            beyond = (row.most or 0.0) * 1.01 + 1e-30 if row.most is not None else (row.least or 0.0) - 0.5
            for bad in (beyond, "nan", "inf" if row.most is not None else "-inf", None):
                measures = {measure: value for measure, value in clean.measures.items() if measure != row.measure}
                if bad is not None:
                    measures[row.measure] = bad
                run = of(replace(clean, measures=measures))
                hits = [found for found in judge(run) if row.measure in found.message]
                assert [found.where for found in hits][:1] == [device], (row, bad)


def test_a_measure_that_is_not_offered_is_not_missed_but_an_unsaid_offer_is() -> None:
    clean = healthy("gemm-exact", "cpu")
    without = {name: value for name, value in clean.measures.items() if not name.startswith("bf16")}
    assert list(smoke.smoke_gemm_exact(of(replace(clean, measures={**without, "bf16.offered": 0.0})))) == []
    (finding,) = smoke.smoke_gemm_exact(of(replace(clean, measures=without)))
    assert finding.message == "gemm-exact did not measure bf16.wrong"


def test_ptx_that_the_driver_cannot_compile_is_a_warning() -> None:
    clean = healthy("vector-add-nvrtc", "cuda:0")
    (finding,) = smoke.smoke_vector_add_nvrtc(of(replace(clean, measures={**clean.measures, "ptx.offered": 0.0})))
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
    (finding,) = smoke.smoke_conv(of(healthy("conv", "cpu"), dead))
    assert words in finding.message
    assert (finding.severity, finding.where) == (Severity.ERROR, "cuda:3")
    assert "CUDNN_STATUS_EXECUTION_FAILED" in finding.evidence
    assert finding.fix


def test_what_was_not_run_is_skipped_and_a_lost_run_is_unknown() -> None:
    with pytest.raises(Skip, match="not run"):
        list(smoke.smoke_fft(of(healthy("conv", "cpu"))))
    with pytest.raises(Unknown, match="the runner died"):
        list(smoke.smoke_fft(SmokeRun("x", tests=Observed.lost("the runner died"))))


def test_a_test_that_is_unfit_on_one_device_is_judged_on_the_others() -> None:
    lacking = SmokeTest("sparse", "cpu", "unfit", "no mkl")
    bad = replace(healthy("sparse", "cuda:0"), measures={})
    assert list(smoke.smoke_sparse(of(lacking, healthy("sparse", "cuda:0")))) == []
    assert list(smoke.smoke_sparse(of(lacking, bad)))


def test_a_device_without_limits_never_passes() -> None:
    assert list(smoke.smoke_fft(of(replace(healthy("fft", "cpu"), device="tpu:0"))))


def test_importing_torch_must_leave_cuda_alone() -> None:
    judge = smoke.smoke_import_leaves_cuda_alone
    assert list(judge(recorded("torch-2.6-cu124-cpu"))) == []
    assert list(judge(replace(of(), cuda_before_fork=Observed.of(True, "torch.cuda.is_initialized"))))
    with pytest.raises(Unknown):
        list(judge(replace(of(), cuda_before_fork=Observed.lost("raised ImportError: x"))))


def test_every_row_belongs_to_a_test_and_bounds_something() -> None:
    for row in smoke.limits():
        assert row.test in JUDGES
        assert row.device in ("cpu", "cuda")
        assert (row.most is None) != (row.least is None)
        assert row.why
        assert Severity[row.severity.upper()]
    keys = [(row.test, row.measure, row.device) for row in smoke.limits()]
    assert len(keys) == len(set(keys))
