"""torch.compile on the CPU: a small model, compiled by inductor and the image's C++ compiler, against eager.

torch.compile can be switched off, or fall back to eager, and all is right; so it is counted which graphs were compiled,
and which shared objects made in this run are mapped into this process at the end.
"""

from __future__ import annotations

import os
from typing import Any

from envkit.payload import mapped
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers.lacking import lacking_cpp

_ROWS, _WIDTH = 37, 48  # no multiple of a vector's length


def inductor_cache(folder: str) -> str:
    """Makes inductor, and Triton, keep what they build below ``folder``, and gives inductor's place.

    Its default is a folder named by the user, who may have no name in a container; one that the image names may hold
    what was compiled elsewhere.  The tests of one run share it, so that what inductor asks the compiler about this
    processor is asked once.
    """
    place = os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # a pool of processes costs more than it saves on one kernel
    return place


def mapped_below(folder: str) -> int:
    """How many shared objects that lie below ``folder`` this process has mapped."""
    below = os.path.realpath(folder) + os.sep
    return sum(path.startswith(below) and ".so" in path for path in set(mapped.paths()))


def layer(whole: Any, weight: Any, real: Any, mix: Any) -> tuple[Any, Any]:
    """A layer in whole numbers, exact in fp32, and one with the usual functions, that fuse into one kernel."""
    import torch

    exact = torch.relu(whole @ weight) * 3 - whole
    hidden = real @ mix
    return exact, torch.tanh(torch.nn.functional.gelu(hidden) + real * torch.sigmoid(hidden))


def inputs(bench: Bench) -> tuple[Any, ...]:
    """The arguments of ``layer``: whole numbers small enough for every sum to be exact, and random ones."""
    random = bench.random()
    shapes = ((_ROWS, _WIDTH), (_WIDTH, _WIDTH))
    whole, weight = (torch.randint(-8, 9, shape, generator=random).float() for shape in shapes)
    real, mix = (torch.randn(*shape, generator=random) for shape in shapes)
    return whole, weight, real, mix


def compare(bench: Bench, got: Any, given: tuple[Any, ...]) -> None:
    """Measures ``exact.wrong`` and the distances ``fp32`` of what a compiled ``layer`` made of ``given``."""
    exact, smooth = layer(*(tensor.double() for tensor in given))
    bench.exact("exact.wrong", got[0].double(), exact)
    bench.close("fp32", got[1], smooth)


def run(bench: Bench) -> None:
    """Measures ``exact.wrong``, the distances ``fp32``, ``graphs.compiled`` and ``objects.mapped``."""
    bench.not_applicable_if(lacking_cpp("torch.compile builds its kernels"))
    given = inputs(bench)
    folder = inductor_cache(bench.folder())
    from torch._dynamo.utils import counters

    compare(bench, torch.compile(layer, fullgraph=True, dynamic=False)(*given), given)
    bench.note("graphs.compiled", counters["stats"]["unique_graphs"])
    bench.note("objects.mapped", mapped_below(folder))
