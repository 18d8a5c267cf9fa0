"""torch.compile on the GPU: a small net, forward and backward, against itself in fp64 on the CPU.

It is compiled by default, as one graph for many batch sizes, and with CUDA graphs ("reduce-overhead"), on inputs that
change every time.  A fall back to eager computes right too, so what was compiled, loaded and recorded is counted.
"""

from __future__ import annotations

import copy
import gc
import importlib
import importlib.util
import os
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED, Bench
from envkit.payload.smoke.compilers import stages
from envkit.payload.smoke.compilers.lacking import lacking_c
from envkit.payload.smoke.compilers.torch_compile import compare, inductor_cache, inputs, layer

_BATCH = 16
_BATCHES = (16, 23, 9)
_REPLAYS = 4  # the first runs, the second records, those after it replay


def net() -> Any:
    """Convolutions and linear layers with smooth functions between them, so that no rounding flips a gradient."""
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.GELU(),
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1),
        torch.nn.GELU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 14 * 14, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 10),
    )


def step(model: Any, parameters: list[Any], images: Any, weights: Any) -> list[Any]:
    """The output and the gradient of every parameter for a loss that ``weights`` makes of the output.

    Copies, because CUDA graphs give their own memory, which the next replay overwrites.
    """
    out = model(images)
    gradients = torch.autograd.grad((out * weights).sum(), parameters)
    return [tensor.detach().clone() for tensor in (out, *gradients)]


def batch(size: int, random: Any) -> tuple[Any, Any]:
    """Random images and the weights of their loss."""
    return torch.randn(size, 1, 28, 28, generator=random), torch.randn(size, 10, generator=random)


class Pair:
    """The net on the device and its twin in fp64 on the CPU."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.exact = net().double()
        self.net = copy.deepcopy(self.exact).float().to(device)

    def compare(self, bench: Bench, name: str, compiled: Any, given: tuple[Any, Any]) -> None:
        """Measures the distances of the output and of the gradients after one step."""
        there = [tensor.to(self.device) for tensor in given]
        got = step(compiled, list(self.net.parameters()), there[0], there[1])
        want = step(self.exact, list(self.exact.parameters()), given[0].double(), given[1].double())
        bench.close(name + ".out", got[0], want[0])
        for at in range(1, len(want)):
            bench.close(name + ".grad", got[at], want[at])


def _fresh_counters() -> Any:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    return counters


def try_layer(bench: Bench) -> None:
    """Measures the layer of the CPU's test here, and the gradient of its whole numbers, which is exact as well."""
    counters = _fresh_counters()
    given = inputs(bench)
    whole, *rest = (tensor.to(bench.device) for tensor in given)
    whole.requires_grad_()
    got = torch.compile(layer, fullgraph=True, dynamic=False)(whole, *rest)
    compare(bench, got, given)
    up = torch.randint(-3, 4, given[0].shape, generator=bench.random()).float()
    (gradient,) = torch.autograd.grad(got[0], whole, up.to(bench.device))
    right = given[0].double().requires_grad_()
    (want,) = torch.autograd.grad(layer(right, *(tensor.double() for tensor in given[1:]))[0], right, up.double())
    bench.exact("exact.wrong", gradient.double(), want)
    bench.note("graphs.compiled", counters["stats"]["unique_graphs"])


def try_default(bench: Bench, pair: Pair) -> None:
    """Measures one step in the default mode."""
    counters = _fresh_counters()
    compiled = torch.compile(pair.net, fullgraph=True, dynamic=False)
    pair.compare(bench, "default", compiled, batch(_BATCH, bench.random()))
    bench.note("graphs.default", counters["stats"]["unique_graphs"])


def try_dynamic(bench: Bench, pair: Pair) -> None:
    """Measures steps with several batch sizes, for which one graph must do."""
    counters = _fresh_counters()
    compiled = torch.compile(pair.net, fullgraph=True)
    random = bench.random()

    def marked(images: Any) -> Any:
        torch._dynamo.mark_dynamic(images, 0)
        return compiled(images)

    for size in _BATCHES:
        pair.compare(bench, "dynamic", marked, batch(size, random))
    bench.note("graphs.dynamic", counters["stats"]["unique_graphs"])


def try_replayed(bench: Bench, pair: Pair) -> None:
    """Measures steps whose launches are recorded and replayed, each on inputs of its own."""
    counters = _fresh_counters()
    compiled = torch.compile(pair.net, fullgraph=True, dynamic=False, mode="reduce-overhead")
    random = bench.random()
    for _ in range(_REPLAYS):
        torch.compiler.cudagraph_mark_step_begin()
        pair.compare(bench, "replayed", compiled, batch(_BATCH, random))
    bench.note("graphs.replayed", counters["stats"]["unique_graphs"])
    bench.count("cudagraphs.skipped", counters["inductor"]["cudagraph_skips"])
    trees: Any = importlib.import_module("torch._inductor.cudagraph_trees")
    index = torch.device(bench.device).index or 0
    manager = trees.get_manager(index, create_if_none_exists=False)
    bench.note("cudagraphs.recorded", manager.new_graph_id().id if manager is not None else 0)  # they count from 0


def made_below(folder: str) -> int:
    """How many files of machine code for GPUs lie below ``folder``."""
    # not isinstance, which asks a weak proxy for the class of what it stood for
    return sum(name.endswith(".cubin") for _, _, names in os.walk(folder) for name in names)


def loaded_kernels() -> int:
    """How many of inductor's Triton kernels in this process hold code that they can launch."""
    kind: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics").CachingAutotuner
    # not isinstance, which asks a weak proxy for the class of what it stood for
    return sum(issubclass(type(each), kind) and bool(each.launchers) for each in gc.get_objects())


def run(bench: Bench) -> None:
    """Measures ``exact.wrong`` and ``fp32`` of a layer, ``.out`` and ``.grad`` of the net in each mode, how many
    ``graphs`` each took, ``cubins.made``, ``kernels.loaded``, and ``cudagraphs.recorded`` and ``.skipped``."""
    if importlib.util.find_spec("triton") is None:
        bench.not_applicable("triton, which compiles for GPUs, is not installed")
    bench.not_applicable_if(lacking_c("triton builds its launcher"))
    folder = stages.own_folder(bench, "compile-gpu")
    inductor_cache(folder)  # in this process, so that what was loaded can be counted
    torch.cuda.set_device(bench.device)
    bench.plain_math()
    pair = Pair(bench.device)
    try_layer(bench)
    try_default(bench, pair)
    bench.note("kernels.loaded", loaded_kernels())
    try_dynamic(bench, pair)
    try_replayed(bench, pair)
    bench.note("cubins.made", made_below(folder))
