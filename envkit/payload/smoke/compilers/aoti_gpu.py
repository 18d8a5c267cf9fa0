"""AOTInductor on a GPU: a model compiled into a package, loaded, and run with right and wrong inputs.

Each wrong input must be refused before any kernel sees it, and the right ones must compute right afterwards.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from envkit.payload import cuda_error
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import packages, stages
from envkit.payload.smoke.compilers.aoti_cpu import wrong_inputs
from envkit.payload.smoke.compilers.torch_compile import compare, inputs


def _try_wrong(bench: Bench, loaded: Any, there: tuple[Any, ...], given: tuple[Any, ...]) -> None:
    wrong = wrong_inputs(there)
    bench.note("device.offered", packages.checks_device())
    if packages.checks_device():
        wrong["device"] = (given[0], *there[1:])
    accepted, faulted = [], []
    for name, bad in wrong.items():
        try:
            loaded(*bad)
            torch.cuda.synchronize()
        except RuntimeError as error:
            if cuda_error.code_of(error)[0]:
                faulted.append(name)  # sticky, so nothing after it can be told apart from it
                break
            continue
        accepted.append(name)
    bench.count("inputs.accepted", len(accepted))
    bench.count("inputs.faulted", len(faulted))
    said = [f"a wrong {name} of the input was accepted" for name in accepted]
    said += [f"a wrong {name} of the input ended in a CUDA error" for name in faulted]
    bench.detail = "; ".join(said) or bench.detail


def _use(bench: Bench, path: str, given: tuple[Any, ...]) -> dict[str, Any]:
    torch.cuda.set_device(bench.device)
    bench.plain_math()
    loaded = packages.load(bench, path)
    there = tuple(tensor.to(bench.device) for tensor in given)
    right = (given[0], *there[1:]) if bench.injected_fault == "device" else there
    with torch.no_grad():
        compare(bench, loaded(*right), given)
        _try_wrong(bench, loaded, there, given)
        if not bench.measures["inputs.faulted"]:
            compare(bench, loaded(*there), given)
    return stages.told(bench)


def run(bench: Bench) -> None:
    """Measures ``exact.wrong``, the distances ``fp32``, ``objects.packed``, and of wrong inputs how many were
    ``inputs.accepted`` and how many ``inputs.faulted``; ``device.offered`` says whether a wrong device was tried."""
    if importlib.util.find_spec("triton") is None:
        bench.not_applicable("triton, which compiles for GPUs, is not installed")
    bench.not_applicable_if(packages.lacking())
    packages.build_and_use(bench, inputs(bench), bench.device, _use)
