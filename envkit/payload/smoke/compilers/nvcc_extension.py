"""A CUDA extension of torch, built by nvcc for this GPU and called on torch's streams.

Its input is written on a stream of its own behind a long wait: a launch on the default stream reads what was before.
"""

from __future__ import annotations

import os
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import extensions, stages
from envkit.payload.smoke.compilers.lacking import lacking_nvcc
from envkit.payload.smoke.sources import text_of

DECLARATION = "void apply(torch::Tensor given, torch::Tensor out, bool current);"
SOURCE = text_of("compilers/nvcc_extension.cu")
_SIZE = (1 << 20) + 13
_CYCLES = 200_000_000  # about a tenth of a second


def _on_stream(bench: Bench, made: Any, fresh: Any) -> Any:
    """What the extension makes of an input that is written on the current stream long after the call returned."""
    source = fresh.to(bench.device)
    given, out = (torch.full_like(source, float("nan")) for _ in range(2))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream(bench.device)):
        torch.cuda._sleep(_CYCLES)
        given.copy_(source)
        made.apply(given, out, bench.injected_fault != "order")
    torch.cuda.synchronize()
    return out


def _use(bench: Bench) -> dict[str, Any]:
    torch.cuda.set_device(bench.device)
    major, minor = torch.cuda.get_device_capability(bench.device)
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"
    made = extensions.build("smoke_nvcc_extension", [DECLARATION], [SOURCE], ["apply"])
    random = bench.random()
    fresh = [torch.randint(-(2**20), 2**20, (_SIZE,), generator=random).float() for _ in range(3)]
    out = torch.full((_SIZE,), float("nan"), device=bench.device)
    made.apply(fresh[0].to(bench.device), out, True)
    torch.cuda.synchronize()
    bench.exact("default.wrong", out, fresh[0] * 2 + 1)
    bench.exact("stream.wrong", _on_stream(bench, made, fresh[1]), fresh[1] * 2 + 1)
    index, seen = torch.device(bench.device).index or 0, torch.cuda.device_count()
    bench.note("guard.offered", seen > 1)
    if seen > 1:
        given = fresh[2].to(bench.device)
        out = torch.full_like(given, float("nan"))
        with torch.cuda.device((index + 1) % seen):
            made.apply(given, out, True)
        torch.cuda.synchronize(bench.device)
        bench.exact("guard.wrong", out, fresh[2] * 2 + 1)
    return stages.told(bench)


def run(bench: Bench) -> None:
    """Measures ``default.wrong`` and ``stream.wrong`` of two streams, ``guard.wrong`` with another device current."""
    what = "torch builds CUDA extensions"
    bench.not_applicable_if(lacking_nvcc(what) or extensions.lacking_extension(what))
    extensions.build_and_use(bench, "nvcc-extension", _use)
