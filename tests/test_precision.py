"""What the precision checks say of steps built here, and how their document is read.

The steps themselves are taken with a real torch in tests/test_precision_models.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import answers
import forked
import pytest

from envkit import facts, payload
from envkit.errors import UsageError
from envkit.image.precision import read
from envkit.judging import judge
from envkit.model import Observed, Outcome, Result, Severity
from envkit.report import summary
from envkit.runner import runner
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.placement import End, Stop
from envkit.subjects.precision import (
    Event,
    Figure,
    Hole,
    Limits,
    NonDeterministicOperation,
    Precision,
    Product,
    Refused,
    Rounding,
    StepSeen,
    UncheckedOperation,
)

ROOT = Path(payload.__file__).parents[2]
FACTS = facts.load()
HALF = Limits(2.0**-10, 65504.0, 6.1e-5)
BRAIN = Limits(2.0**-7, 3.39e38, 1.2e-38)
FINE = (Figure("output 0", 0.004), Figure("the loss", 0.0001), Figure("all gradients as one", 0.006, significant=60))
STOP = Stop("forward", "RuntimeError: no", "train.py:3", "x.view(4)", "fc")


def step(dtype: str = "bfloat16", *results: Figure, **more: Any) -> Observed[StepSeen]:
    return Observed.of(StepSeen(dtype, "backward", backward="ran", results=results or FINE, **more), "the dispatcher")


CLEAN = Precision(
    "python3",
    target="train:make",
    dtype="bfloat16",
    python=Observed.of("3.11.2", "sys.version_info"),
    torch=Observed.of("2.11.0", "torch.__version__"),
    gpus=Observed.of((), "torch.cuda"),
    device=Observed.of("cpu", "its parameters"),
    wide=Observed.of("float64", "the twins"),
    limits=Observed.of(BRAIN, "torch.finfo"),
    rounding=Observed.of(Rounding(False, True, "highest"), "torch.backends"),
    end=Observed.of(End("ran", "end"), "its process"),
    single=step("float32", products=(Product("addmm", 2e-7),)),
    unsteady=Observed.of((), "two steps"),
    wanted=step(),
)
SMALL = replace(CLEAN, dtype="float16", limits=Observed.of(HALF, "torch.finfo"), wanted=step("float16"))


def said(check: str, model: Precision) -> Result:
    return answers.judged(f"precision-{check}", model)


def message(check: str, model: Precision) -> str:
    (finding,) = said(check, model).findings
    return finding.message


def test_a_clean_step_is_green() -> None:
    skipped = {"precision-autocast-holes", "precision-gradient-lost"}
    for model in (CLEAN, replace(SMALL, autocast=True)):
        results = {result.check: result for result in judge.judge(model, FACTS)}
        wrong = {name for name, result in results.items() if result.outcome is not Outcome.PASS}
        assert wrong == (skipped if model is CLEAN else set())
        assert len(results) == 9


def test_nothing_passes_on_what_was_taken_away() -> None:
    model = replace(SMALL, autocast=True)
    for name in ("end", "single", "wanted", "limits", "rounding", "wide", "unsteady"):
        gone: dict[str, Any] = {name: Observed.lost("it was taken away")}
        dark = replace(model, **gone)
        changed = {
            result.check for result in judge.judge(dark, FACTS) if result.outcome is Outcome.UNKNOWN and result.reason
        }
        assert changed, name
        assert all(result.outcome is not Outcome.CRASHED for result in judge.judge(dark, FACTS))
    dark = replace(model, end=Observed.lost("gone"))
    passed = {result.check for result in judge.judge(dark, FACTS) if result.outcome is Outcome.PASS}
    assert passed == {"precision-not-repeatable"}


def test_an_infinity_that_is_meant_is_no_fault_in_an_output_and_is_one_in_the_loss() -> None:
    masked = replace(SMALL, wanted=step("float16", Figure("output 0", 0.0, not_finite_anywhere=4)))
    assert said("not-finite", masked).outcome is Outcome.PASS
    nans = replace(SMALL, wanted=step("float16", Figure("output 0", 0.0, not_finite_anywhere=4, nans=1)))
    assert said("not-finite", nans).outcome is Outcome.FAIL
    loss = replace(SMALL, wanted=step("float16", Figure("the loss", 0.0, not_finite_anywhere=1)))
    assert "the loss is not finite in float16" in message("not-finite", loss)


def test_what_leaves_the_range_is_told_with_the_number_and_the_limit() -> None:
    event = Event("mul", "forward", "overflow", "float16", largest=3.3e6, limit=65504.0, where="a.py:9", module="norm")
    bad = replace(SMALL, wanted=step("float16", Figure("output 0", 0.0, not_finite=3, elements=8, bad=event)))
    result = said("not-finite", bad)
    assert "mul in the forward yields 3.3e+06 in a wider dtype, beyond the 65504 that float16 holds" in (
        result.findings[0].message
    )
    assert result.findings[0].where == "a.py:9 in norm"
    assert "bfloat16 has the range" in result.findings[0].fix


def test_what_single_precision_has_too_is_not_blamed_on_the_dtype() -> None:
    figure = Figure("the loss", 0.0, not_finite_anywhere=1, bad=Event("log", "forward", "everywhere", "float32"))
    both = replace(CLEAN, single=step("float32", figure), wanted=step("bfloat16", figure))
    assert "in single precision already" in message("not-finite", both)


EXPLODED = Event("sub", "forward", "cancellation", "bfloat16", 0.003, 20.0, 1900.0, where="train.py:7")


@pytest.mark.parametrize(
    ("figure", "severity"),
    [
        (Figure("output 0", 0.08), None),  # sqrt(eps) of bfloat16 is 0.088
        (Figure("output 0", 0.1), Severity.WARNING),  # no operation is to blame
        (Figure("output 0", 0.6), Severity.ERROR),
        (Figure("all gradients as one", 0.4), None),  # it turns by less than 30 degrees
        (Figure("all gradients as one", 0.4, origin=EXPLODED), Severity.ERROR),
        (Figure("all gradients as one", 0.6), Severity.ERROR),
        (Figure("output 0", 0.1, origin=EXPLODED), Severity.ERROR),
        (Figure("output 0", 0.01, origin=EXPLODED), None),  # it exploded, and what was made of it is well
        (Figure("all gradients as one", 1e12, noise=True), None),
        (Figure("the gradient of a", 0.4), None),
        (Figure("the gradient of a", 0.6), Severity.WARNING),
        (Figure("the gradient of a", 1e9, noise=True, origin=EXPLODED), None),
        (Figure("output 0", 3.0, not_finite=1), None),  # told by precision-not-finite
    ],
)
def test_a_result_is_off_when_half_of_its_digits_are_gone(figure: Figure, severity: Severity | None) -> None:
    result = said("error-explodes", replace(CLEAN, wanted=step("bfloat16", figure)))
    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])
    if severity and figure.origin:
        assert "sub in the forward amplifies the error of its inputs: relative error 0.003" in (
            result.findings[0].message
        )
        assert result.findings[0].where == "train.py:7"
    elif severity:
        assert "grows step by step" in result.findings[0].message


def test_an_operation_without_its_twin_leaves_the_error_unknown_and_an_error_that_was_found_stays() -> None:
    holes = (UncheckedOperation("wkv", "no operator of torch's own"), UncheckedOperation("other", "no"))
    blind = said("error-explodes", replace(CLEAN, wanted=step(unfollowed=holes)))
    assert blind.outcome is Outcome.UNKNOWN
    assert blind.reason == "wkv cannot be run in a wider dtype, nor can 1 more: no operator of torch's own"
    off = step("bfloat16", Figure("output 0", 9.0, origin=EXPLODED), unfollowed=holes)
    assert said("error-explodes", replace(CLEAN, wanted=off)).outcome is Outcome.FAIL


def test_gradients_are_lost_to_the_range_alone() -> None:
    event = Event("_to_copy", "backward", "underflow", "float16", 0.0004, 0.97, 600.0, 4.8e-8, where="train.py:5")

    def lost(number: int, origin: Event | None = event, **more: Any) -> Precision:
        total = Figure("all gradients as one", 0.5, lost=number, significant=1024, origin=origin)
        one = Figure("the gradient of a", 0.9, lost=number, significant=1024, origin=origin, **more)
        return replace(SMALL, wanted=step("float16", total, one))

    assert said("gradient-lost", lost(32)).outcome is Outcome.PASS  # one in 1 / sqrt(eps)
    assert said("gradient-lost", lost(33)).findings[0].severity is Severity.WARNING
    assert said("gradient-lost", lost(1024)).findings[0].severity is Severity.ERROR
    assert "_to_copy in the backward, whose largest is 4.8e-08" in message("gradient-lost", lost(1024))
    assert said("error-explodes", lost(1024)).outcome is Outcome.PASS  # told once
    assert said("gradient-lost", lost(1024, replace(event, kind="cancellation"))).outcome is Outcome.PASS
    assert said("gradient-lost", lost(1024, noise=True)).outcome is Outcome.PASS
    frozen = StepSeen("float16", "loss", results=FINE[:2])
    assert said("gradient-lost", replace(SMALL, wanted=Observed.of(frozen, "it"))).outcome is Outcome.SKIP


def test_a_refusal_names_operation_dtypes_and_line() -> None:
    refusal = Refused("inv", "forward", ("bfloat16",), ("cuda",), "RuntimeError: not for BFloat16.", "train.py:8")
    stopped = replace(CLEAN, wanted=Observed.of(StepSeen("bfloat16", "forward", STOP, refusal=refusal), "it"))
    assert message("op-refused", stopped) == (
        "inv fails with bfloat16 on cuda in the forward: RuntimeError: not for BFloat16"
    )
    assert said("step-failed", stopped).outcome is Outcome.PASS
    assert said("not-finite", stopped).outcome is Outcome.UNKNOWN


def test_a_step_that_ends_is_told_by_what_ended_it() -> None:
    gone = Observed[StepSeen].lost("it ended")
    killed = replace(CLEAN, wanted=gone, end=Observed.of(End("killed", "bfloat16", signal="SIGSEGV"), "it"))
    assert message("step-failed", killed) == "the step in bfloat16 was killed by SIGSEGV"
    assert said("op-refused", killed).outcome is Outcome.UNKNOWN
    hung = replace(CLEAN, wanted=gone, end=Observed.of(End("hung", "bfloat16", "no answer within 9 s"), "it"))
    assert said("step-failed", hung).outcome is Outcome.UNKNOWN
    raised = replace(CLEAN, single=Observed.of(StepSeen("float32", "forward", STOP), "it"), wanted=gone)
    assert message("step-failed", raised) == "the forward in single precision raised RuntimeError: no"
    full = replace(STOP, kind="OutOfMemoryError", message="OutOfMemoryError: CUDA out of memory")
    big = replace(CLEAN, wanted=Observed.of(StepSeen("bfloat16", "forward", full), "it"))
    assert "smaller batch" in said("step-failed", big).reason
    early = replace(CLEAN, single=gone, wanted=gone, end=Observed.of(End("ran", "factory", stop=STOP), "it"))
    assert message("factory-failed", early) == "the factory of train:make raised RuntimeError: no"


def test_holes_by_what_they_are() -> None:
    holes = (Hole("product", "mm", True, 2), Hole("product", "mm", False), Hole("narrow", "exp_", True))
    result = said("autocast-holes", replace(CLEAN, autocast=True, wanted=step(holes=holes)))
    assert [finding.severity.name for finding in result.findings] == ["WARNING", "NOTE", "WARNING"]
    assert result.findings[0].message == (
        "mm runs in single precision 2 times in one step: autocast is on and does not cover it"
    )
    there = said("autocast-holes", replace(CLEAN, wanted=step(holes=(Hole("round trip", "_to_copy", False),))))
    assert there.findings[0].severity is Severity.NOTE


def test_fewer_digits_are_found_by_their_size_and_blamed_on_a_switch_that_is_on() -> None:
    coarse = step("float32", products=(Product("addmm", 2e-7), Product("mm", 2.8e-4, "train.py:4")))
    on = replace(CLEAN, single=coarse, rounding=Observed.of(Rounding(True, True, "high"), "torch.backends"))
    assert said("tf32", on).findings[0].severity is Severity.NOTE
    assert said("tf32", replace(on, dtype="float32")).findings[0].severity is Severity.WARNING
    assert message("tf32", on).startswith("mm in single precision is off by 0.00028")
    off = replace(on, rounding=Observed.of(Rounding(False, False, "highest"), "torch.backends"))
    assert said("tf32", off).outcome is Outcome.PASS
    assert said("tf32", replace(on, wide=Observed.of("float32", "it"))).outcome is Outcome.UNKNOWN


def test_what_cannot_be_repeated_is_a_note() -> None:
    result = said(
        "not-repeatable",
        replace(CLEAN, unsteady=Observed.of((NonDeterministicOperation("index_add", "train.py:2"),), "it")),
    )
    assert result.findings[0].severity is Severity.NOTE


def test_a_subject_is_written_and_read_back() -> None:
    assert from_plain(Precision, json.loads(json.dumps(to_plain(CLEAN)))) == CLEAN


def test_the_table_names_each_result() -> None:
    (table,) = summary.precision(replace(CLEAN, wanted=step("bfloat16", Figure("output 0", 0.5, origin=EXPLODED))))
    assert table.rows == (("output 0", "0.5", "", "sub train.py:7"),)
    assert summary.precision(replace(CLEAN, wanted=Observed.lost("no")))[0].rows == ()


SEALED = {"schema": "envkit.payload/1", "kind": "precision", "target": "m:f", "dtype": "float16", "autocast": True}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "none of schema"),
        ({**SEALED, "kind": "placement"}, "none of schema"),
        ({**SEALED, "target": "other:f"}, "answers for"),
        ({**SEALED, "autocast": False}, "answers for"),
        ({**SEALED, "seconds": "x"}, "does not fit"),
    ],
)
def test_a_document_that_does_not_fit_is_not_observed(document: dict[str, Any], why: str) -> None:
    model = read(document, Precision("p", "d", "m:f", "float16", True, gpus_given=("all",)))
    assert why in model.end.missing
    assert (model.name, model.digest, model.gpus_given) == ("p", "d", ("all",))


def test_a_python_without_torch_leaves_everything_open(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch to be found here')")
    code = "import json, sys; from envkit.payload import precision; print(json.dumps(precision.main(sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", code, "m:f", "--seconds", "30", "--dtype", "float16", "--autocast"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    document = {**json.loads(done.stdout), **SEALED}
    model = read(document, Precision("p", target="m:f", dtype="float16", autocast=True))
    results = judge.judge(model, FACTS)
    assert {result.outcome for result in results} == {Outcome.UNKNOWN}
    assert any("no torch to be found here" in result.reason for result in results)


def test_a_wish_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    here = runner.LocalPython(Path(sys.executable))

    def quiet(line: str) -> None:
        """Tells nobody."""

    for target in ("train", "a b:c", "--code:x"):
        with pytest.raises(UsageError, match="is not of the form module:factory"):
            runner.precision(here, target, quiet)
    with pytest.raises(UsageError, match="no dtype"):
        runner.precision(here, "m:f", quiet, dtype="int8")
    with pytest.raises(UsageError, match="changes nothing"):
        runner.precision(here, "m:f", quiet, dtype="fp32", autocast=True)
    with pytest.raises(UsageError, match="no folder"):
        runner.precision(here, "m:f", quiet, code=tmp_path / "gone")
    with pytest.raises(UsageError, match="budget"):
        runner.precision(here, "m:f", quiet, timeout_s=0.0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--dtype", "float16"], "only work with --precision"),
        (["--autocast"], "only work with --precision"),
        (["--verbose", "--", "true"], "only work with --precision"),
        (["--precision", "m:f", "-q", "--verbose"], "--quiet and --verbose"),
        (["--precision", "m:f", "--", "true"], "cannot be used together"),
        (["--precision", "m:f", "--format", "sarif"], "no format"),
        (["--precision", "m"], "is not of the form module:factory"),
    ],
)
def test_the_command_line_refuses_what_does_not_go_together(words: list[str], why: str) -> None:
    done = forked.envkit("debug", *words, cwd=ROOT)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
