"""One step of models with a fault of precision and of their clean twins, with a real torch and without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torches
from nightly import at_night
from precision_steps import failed, judged, line, taken

from envkit.model import Outcome, Severity

PYTHON = Path(torches.PYTHON)

# Each takes seconds of a processor: by day one twin of each number type and one fault of each check.
TWINS = [
    ("pictures", "bfloat16"),
    ("in_range", "float16"),
    ("words", "float32"),
    *at_night(
        ("pictures", "float16"),
        ("keeps", "bfloat16"),
        ("stays_on_a_sphere", "float16"),
        ("heals", "float16"),
        ("scaled", "float16"),
        ("accepted", "bfloat16"),
        ("residual", "bfloat16"),
        ("residual", "float16"),
        ("recurrent", "bfloat16"),
        ("steps_inside", "bfloat16"),
    ),
]


@torches.needs_torch
@pytest.mark.parametrize(("factory", "dtype"), TWINS)
def test_a_clean_twin_passes(factory: str, dtype: str) -> None:
    model = taken(PYTHON, factory, dtype)
    assert failed(judged(model)) == set()
    assert model.wanted.need("the step").operations > 10


FAULTS = [
    ("cancels", "bfloat16", "error-explodes", "cancels", "sub in the forward amplifies the error of its inputs"),
    ("masks_a_row", "float16", "not-finite", "masks", "yields 1e+09 in a wider dtype"),
    ("fades", "float16", "gradient-lost", "fades", "wholly"),
    ("refused", "bfloat16", "op-refused", "inverts", "fails with bfloat16 on cpu in the forward"),
    ("shaken", "bfloat16", "not-repeatable", "custom", "shaken gives two results from the same inputs"),
    *at_night(
        ("cancels", "float32", "error-explodes", "cancels", "sub in the forward amplifies the error of its inputs"),
        ("positions", "bfloat16", "error-explodes", "turns", "in the forward amplifies the error of its inputs"),
        ("overflows", "float16", "error-explodes", "overflows", "beyond the 65504 that float16 holds"),
        ("exponent", "float16", "not-finite", "exponent", "beyond the 65504 that float16 holds"),
        ("exponent_in_single", "float16", "not-finite", "exponent", "beyond the 3.40282e+38 that float32 holds"),
        ("already_broken", "bfloat16", "not-finite", "logs", "in single precision already: log in the forward"),
        ("broken", "bfloat16", "not-finite", "custom", "broken in the forward makes NaN of finite numbers"),
    ),
]


@torches.needs_torch
@pytest.mark.parametrize(("factory", "dtype", "check", "marker", "words"), FAULTS)
def test_a_fault_is_named_with_its_line(factory: str, dtype: str, check: str, marker: str, words: str) -> None:
    results = judged(taken(PYTHON, factory, dtype))
    findings = results[check].findings
    assert [words in finding.message for finding in findings] == [True], findings
    assert findings[0].where.split(" ")[0] == line(marker)
    certain = {name for name in failed(results) if results[name].outcome is Outcome.FAIL}
    assert certain == {check}


@torches.needs_torch
def test_what_autocast_passes_by_is_named() -> None:
    findings = judged(taken(PYTHON, "holes", autocast=True))["autocast-holes"].findings
    assert {(finding.where.split(" ")[0], finding.severity) for finding in findings} == {
        (line("passes by"), Severity.WARNING),
        (line("off"), Severity.NOTE),
        (line("there and back"), Severity.NOTE),
    }


@torches.needs_torch
def test_what_torch_computes_in_single_precision_by_itself_is_no_hole() -> None:
    assert failed(judged(taken(PYTHON, "encoder", autocast=True))) == set()


@torches.needs_torch
def test_a_crash_of_the_wanted_dtype_is_told_as_that() -> None:
    results = judged(taken(PYTHON, "dies"))
    assert results["step-failed"].findings[0].message == "the step in bfloat16 was killed by SIGSEGV"
    assert results["error-explodes"].outcome is Outcome.UNKNOWN


@torches.needs_torch
@pytest.mark.parametrize(("target", "why"), [("gone:make", "ModuleNotFoundError"), ("precision_models:nil", "no attr")])
def test_a_factory_that_is_not_there_is_a_finding(target: str, why: str) -> None:
    (finding,) = judged(taken(PYTHON, target))["factory-failed"].findings
    assert why in finding.message


@torches.needs_torch
def test_an_exponential_recurrence_is_well_frozen_and_its_backward_breaks_unfrozen() -> None:
    assert failed(judged(taken(PYTHON, "precision_wkv:frozen"))) == set()
    model = taken(PYTHON, "precision_wkv:unfrozen")
    findings = judged(model)["error-explodes"].findings
    told = [finding for finding in findings if "the gradient of mix.decay" in finding.message]
    assert len(told) == 1
    assert "in the backward" in told[0].message
    assert told[0].where == line("two paths", "precision_wkv.py") + " in mix"
    step = model.wanted.need("the step")
    errors = {each.what: each.error for each in step.results}
    assert errors["output 0"] < 0.01 < 0.5 < errors["the gradient of mix.decay"]
    assert failed(judged(taken(PYTHON, "precision_wkv:unfrozen_in_single"))) == set()
