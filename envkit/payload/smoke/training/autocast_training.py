"""Twenty steps of a small net under autocast, in fp16 with a GradScaler and in bf16 without, against fp64 on the CPU.

Compared are the losses, what the parameters moved by, and the type of every result that autocast makes a promise of.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import SEED, Bench

_STEPS, _BATCH, _RATE, _SCALE = 20, 16, 0.05, 1024.0
_GAIN = 2.5


def _model() -> Any:
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.GELU(),
        torch.nn.Conv2d(8, 8, 3, stride=2, padding=1),
        torch.nn.GELU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 6 * 6, 128),
        torch.nn.GELU(),
        torch.nn.Linear(128, 64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 10),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(_GAIN)  # so that it learns the batch within these steps
    return model


def _wide(model: Any, inputs: Any, targets: Any) -> tuple[Any, list[Any]]:
    """The same training in fp64: the losses, and what each parameter moved by."""
    model = copy.deepcopy(model).double()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    losses = []
    given, target = inputs.double(), targets.double()
    for _ in range(_STEPS):
        model.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(given), target)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= _RATE * parameter.grad
        losses.append(loss.detach())
    moved = [parameter.detach() - before[place] for place, parameter in enumerate(model.parameters())]
    return torch.stack(losses), moved


def _low(bench: Bench, name: str, model: Any, inputs: Any, targets: Any, wanted: tuple[Any, list[Any]]) -> None:
    kind = "cuda" if bench.on_gpu else "cpu"
    dtype = torch.float16 if name == "fp16" else torch.bfloat16
    model = copy.deepcopy(model).to(bench.device)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
    scaler = torch.amp.GradScaler(kind, init_scale=_SCALE, enabled=name == "fp16")
    losses, strange = [], 0
    infinite = torch.zeros((), dtype=torch.int64, device=bench.device)
    given, target = inputs.to(bench.device), targets.to(bench.device)
    for _ in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        results = [given]
        with torch.autocast(kind, dtype=dtype):
            for layer in model:
                results.append(layer(results[-1]))
            loss = torch.nn.functional.mse_loss(results[-1], target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        strange += sum(result.dtype is not dtype for result in results[1:]) + (loss.dtype is not torch.float32)
        for parameter in model.parameters():
            strange += parameter.grad.dtype is not torch.float32
            infinite += (~torch.isfinite(parameter.grad)).sum()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    bench.count(name + ".types.wrong", strange)
    bench.count(name + ".infinite", int(infinite))
    bench.count(name + ".scale.wrong", int(scaler.get_scale() != (_SCALE if name == "fp16" else 1.0)))
    bench.note(name + ".last", float(losses[-1]) / float(losses[0]))
    bench.close(name + ".loss", torch.stack(losses), wanted[0])
    sizes = [want.norm() / want.numel() ** 0.5 for want in wanted[1]]  # a small layer counts as much as a large one
    moved = [now.detach() - before[place] for place, now in enumerate(model.parameters())]
    got = torch.cat([(one.cpu().double() / sizes[place]).flatten() for place, one in enumerate(moved)])
    want = torch.cat([(one / sizes[place]).flatten() for place, one in enumerate(wanted[1])])
    bench.close(name + ".moved", got, want)


def run(bench: Bench) -> None:
    """Measures for ``fp16`` and ``bf16``: ``.offered``, the distances ``.loss`` and ``.moved``, ``.types.wrong``,
    ``.infinite`` (elements of gradients) and ``.scale.wrong`` (the scale did not stay)."""
    bench.plain_math()
    torch.set_num_threads(1)  # layers this small wait for a pool of threads longer than they compute
    random = bench.random()
    inputs = torch.randn(_BATCH, 3, 12, 12, generator=random)
    targets = torch.randn(_BATCH, 10, generator=random)
    model = _model()
    wanted = _wide(model, inputs, targets)
    for name in ("fp16", "bf16"):
        bench.attempt(name, partial(_low, bench, name, model, inputs, targets, wanted))
