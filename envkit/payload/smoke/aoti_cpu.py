"""AOTInductor on the CPU: a model exported, compiled into a package, loaded, and run with right and wrong inputs.

A package's machine code trusts its inputs: unless it is told to check them, it reads a tensor of another type, shape
or layout as the one it was compiled for, and gives garbage or reads beyond the tensor's end.  Here it is told, and
each wrong input must end in an error.
"""

from __future__ import annotations

import inspect
import os
import zipfile
from typing import Any

from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import lacking_cpp
from envkit.payload.smoke.torch_compile import compare, inductor_cache, inputs, layer

_CHECKS = "AOTI_RUNTIME_CHECK_INPUTS"  # read by the code that inductor generates, where the release knows it


def _model() -> Any:
    """``layer`` as a module, since only modules are exported."""
    import torch

    def forward(_: Any, whole: Any, weight: Any, real: Any, mix: Any) -> Any:
        return layer(whole, weight, real, mix)

    return type("Layer", (torch.nn.Module,), {"forward": forward})()


def wrong_inputs(given: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """Inputs that the package was not compiled for, by what is wrong with the first of them."""
    first, *rest = given
    return {
        "type": (first.double(), *rest),
        "shape": (first[:-3], *rest),
        "layout": (first.t().contiguous().t(), *rest),
    }


def run(bench: Bench) -> None:
    """Measures ``exact.wrong``, the distances ``fp32``, ``objects.packed`` and ``inputs.accepted`` of wrong ones."""
    import torch
    import torch._inductor

    lacking = lacking_cpp("AOTInductor builds its packages")
    if lacking:
        bench.unfit(lacking)
    if not hasattr(torch._inductor, "aoti_load_package"):
        bench.unfit("this release of torch has no AOTInductor packages (torch._inductor.aoti_load_package)")
    inductor_cache(bench)
    os.environ[_CHECKS] = "1"
    from torch._inductor import config
    from torch._inductor.codegen import cpp_wrapper_cpu

    config.aot_inductor.debug_compile = _CHECKS not in inspect.getsource(cpp_wrapper_cpu)
    if config.aot_inductor.debug_compile:
        bench.detail = "this release builds the checks of inputs only into packages that are not optimised"
    given = inputs(bench)
    with torch.no_grad():
        exported = torch.export.export(_model(), given)
        package = os.path.join(bench.folder(), "smoke.pt2")
        torch._inductor.aoti_compile_and_package(exported, package_path=package)
        with zipfile.ZipFile(package) as content:
            bench.note("objects.packed", sum(name.endswith(".so") for name in content.namelist()))
        loaded = torch._inductor.aoti_load_package(package)
        compare(bench, loaded(*given), given)
        accepted = []
        for name, wrong in wrong_inputs(given).items():
            try:
                loaded(*wrong)
            except RuntimeError:
                continue
            accepted.append(name)
    bench.count("inputs.accepted", len(accepted))
    if accepted:
        bench.detail = f"a wrong {' and a wrong '.join(accepted)} of the input was accepted"
