"""Programs that capture CUDA graphs, written and labelled before they met `envkit debug` on a GPU.

``python graph_programs.py NAME fault|clean``; the line that is to be named bears ``# here``, a kernel's ``# beyond`` in
``graph_kernel.py``.  ``LABELS`` holds the verdict of each run and words that its cause must hold.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

NAME, KIND = [*sys.argv[1:3], "", ""][:2]
FAULTY = KIND == "fault"
HERE = Path(__file__).resolve().parent
WIDE = 256

LABELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "model/clean": ("clean", ()),
    "step/clean": ("clean", ()),
    "compiled/clean": ("clean", ()),
    "bounds/fault": ("found", ("double_all", "writes 4 bytes out of bounds")),
    "bounds/clean": ("clean", ()),
    # the tensor that is written beyond lies in the graph's own memory: the tools cannot see it, and the report says so
    "inner/fault": ("clean", ()),
    "tokens/fault": ("found", ("index",)),
    "race/fault": ("found", ("`turn", "race for shared memory")),
    "race/clean": ("clean", ()),
    "broken/fault": ("found", ("cannot be captured",)),
}

TURN = """
extern "C" __global__ void turn(const float* x, float* out, int wait)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
    if (wait) __syncthreads();
    out[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}
"""


def warmed(call: Callable[[], object]) -> None:
    """Calls a function three times on another stream, as is asked before a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)


def net() -> nn.Module:
    """A small model."""
    return nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.LayerNorm(WIDE), nn.Linear(WIDE, 8)).cuda()


def model() -> None:
    """A model is captured and replayed with new inputs; what the warm-up gave is let go in the capture."""
    layers, batch = net(), torch.randn(32, WIDE, device="cuda")
    out = torch.empty(0)
    with torch.no_grad():
        for _ in range(3):
            out = layers(batch)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layers(batch)
        for step in range(3):
            batch.fill_(float(step))
            graph.replay()
            given = layers(batch)
            torch.testing.assert_close(out, given)
    print(float(out.sum()))


def step() -> None:
    """A training step through graphed callables."""
    layers, batch = net(), torch.randn(32, WIDE, device="cuda")
    graphed = torch.cuda.make_graphed_callables(layers, (batch,))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        graphed(torch.randn(32, WIDE, device="cuda")).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    print("stepped")


def compiled() -> None:
    """A compiled model whose graphs are torch's own."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    call = torch.compile(net().eval(), mode="reduce-overhead")
    batch = torch.randn(32, WIDE, device="cuda")
    with torch.no_grad():
        for _ in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            out = call(batch)
            print(float(out.sum()), flush=True)


def bounds() -> None:
    """A kernel writes beyond the end of the tensor that its graph was given."""
    from graph_kernel import double_all

    count = 4097 if FAULTY else 4096
    x, out = torch.ones(count, device="cuda"), torch.zeros(count, device="cuda")
    wide = torch.zeros(8192, device="cuda")
    warmed(lambda: double_all[(5,)](x, wide, count, BLOCK=1024))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        double_all[(5,)](x, out, count, BLOCK=1024)  # here
    graph.replay()
    torch.cuda.synchronize()
    print(float(out.sum()))


def inner() -> None:
    """The same, of a tensor that the graph makes."""
    from graph_kernel import double_all

    count = 4097
    x, wide = torch.ones(count, device="cuda"), torch.zeros(8192, device="cuda")
    warmed(lambda: double_all[(5,)](x, wide, count, BLOCK=1024))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.empty(count, device="cuda")
        double_all[(5,)](x, out, count, BLOCK=1024)
    graph.replay()
    torch.cuda.synchronize()
    print(float(out.sum()))


def tokens() -> None:
    """A graph is replayed with a token that its table does not have."""
    table, layer = nn.Embedding(1000, 64).cuda(), nn.Linear(64, 8).cuda()
    given = torch.arange(512, device="cuda")
    with torch.no_grad():
        warmed(lambda: layer(table(given)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(table(given)).sum()
        for turn in range(3):
            given.add_(400 * turn)
            graph.replay()  # here
            print(turn, float(out), flush=True)


def race() -> None:
    """A kernel that is captured lacks a barrier."""
    turn = torch.cuda._compile_kernel(TURN, "turn")
    x, out = torch.rand(64 * 256, device="cuda"), torch.zeros(64 * 256, device="cuda")
    turn(grid=(64, 1, 1), block=(256, 1, 1), args=(x, out, 1))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        turn(grid=(64, 1, 1), block=(256, 1, 1), args=(x, out, 0 if FAULTY else 1))  # here
    graph.replay()
    torch.cuda.synchronize()
    print(float(out.sum()))


def broken() -> None:
    """What is captured looks at a value."""
    layers, batch = net(), torch.randn(32, WIDE, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        warmed(lambda: layers(batch))
        with torch.cuda.graph(graph):
            out = layers(batch)
            scale = out.abs().max().item()  # here
            out = out / scale
        graph.replay()
    print(float(out.sum()))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    globals()[NAME]()
    print("done", flush=True)
