"""Steps of the models of tests/debug with a real torch, and what the checks say of them."""

from __future__ import annotations

from pathlib import Path

from envkit import facts
from envkit.judging import judge
from envkit.model import Outcome, Result
from envkit.runner import runner
from envkit.subjects.precision import Precision

MODELS = Path(__file__).parent / "debug"


def quiet(line: str) -> None:
    """Tells nobody."""


def taken(python: Path, factory: str, dtype: str = "bfloat16", autocast: bool = False) -> Precision:
    """The steps of a model of tests/debug/precision_models.py, or of another module there."""
    target = factory if ":" in factory else f"precision_models:{factory}"
    here = runner.LocalPython(python)
    return runner.precision(here, target, quiet, dtype=dtype, autocast=autocast, code=MODELS, timeout_s=240)


def judged(model: Precision) -> dict[str, Result]:
    """The results of its checks by their names' second half."""
    return {result.check.removeprefix("precision-"): result for result in judge.judge(model, facts.load())}


def failed(results: dict[str, Result]) -> set[str]:
    return {name for name, result in results.items() if result.outcome not in (Outcome.PASS, Outcome.SKIP)}


def line(marker: str, file: str = "precision_models.py") -> str:
    """The place of a marked line."""
    lines = (MODELS / file).read_text("utf-8").splitlines()
    return next(f"{file}:{number}" for number, text in enumerate(lines, 1) if text.endswith(f"# here: {marker}"))
