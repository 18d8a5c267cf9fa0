"""AOTInductor on the CPU: a model exported, compiled into a package, loaded, and run with right and wrong inputs.

The package is told to check its inputs, so each wrong one must end in an error.  Loading can end the process, so
another one does it.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import packages, stages
from envkit.payload.smoke.compilers.torch_compile import compare, inputs


def wrong_inputs(given: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """Inputs that the package was not compiled for, by what is wrong with the first of them."""
    first, *rest = given
    layout = first.t().contiguous().t()
    return {"type": (first.double(), *rest), "shape": (first[:-3], *rest), "layout": (layout, *rest)}


def _use(bench: Bench, path: str, given: tuple[Any, ...]) -> dict[str, Any]:
    loaded = packages.load(bench, path)
    accepted = []
    with torch.no_grad():
        compare(bench, loaded(*given), given)
        for name, wrong in wrong_inputs(given).items():
            try:
                loaded(*wrong)
            except RuntimeError:
                continue
            accepted.append(name)
    bench.count("inputs.accepted", len(accepted))
    if accepted:
        bench.detail = f"a wrong {' and a wrong '.join(accepted)} of the input was accepted"
    return stages.told(bench)


def run(bench: Bench) -> None:
    """Measures ``exact.wrong``, the distances ``fp32``, ``objects.packed`` and ``inputs.accepted`` of wrong ones."""
    bench.not_applicable_if(packages.lacking())
    if packages.checks_of_old():
        bench.detail = "this release builds the checks of inputs only into packages that are not optimised"
    packages.build_and_use(bench, inputs(bench), "cpu", _use)
