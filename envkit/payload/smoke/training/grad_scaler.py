"""GradScaler does exactly what it promises: a gradient that is not finite skips its step and lowers the scale.

All numbers are multiples of powers of two, so a step that is taken has one right result to the last bit.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_SCALE, _INTERVAL, _RATE = 1024.0, 3, 0.5
_SHAPES = ((65, 33), (7,), (128, 64))
# what each step's gradient holds: the scale afterwards is computed from this list, not from the scaler
_PLAN = ("good", "inf", "good", "good", "good", "nan", "good", "good", "good", "-inf", "good", "good")


def scales(plan: Any) -> list[float]:
    """The scale after each step of a plan: halved by a bad one, doubled by each third good one in a row."""
    scale, row, found = _SCALE, 0, []
    for what in plan:
        row = row + 1 if what == "good" else 0
        scale *= 1.0 if what == "good" else 0.5
        if row == _INTERVAL:
            scale, row = scale * 2, 0
        found.append(scale)
    return found


def run(bench: Bench) -> None:
    """Measures ``taken.wrong`` and ``skipped.wrong`` (elements after a step) and ``scale.wrong`` (steps after which the
    scale is another)."""
    random = bench.random()
    start = [torch.randint(-64, 65, shape, generator=random).double() / 8 for shape in _SHAPES]
    parameters = [torch.nn.Parameter(one.float().to(bench.device)) for one in start]
    optimizer = torch.optim.SGD(parameters, lr=_RATE, momentum=0.5)
    kind = "cuda" if bench.on_gpu else "cpu"
    scaler = torch.amp.GradScaler(kind, init_scale=_SCALE, growth_interval=_INTERVAL, backoff_factor=0.5)
    want, speed = [one.clone() for one in start], [torch.zeros_like(one) for one in start]
    bad, expected = 0, scales(_PLAN)
    for number, what in enumerate(_PLAN):
        # momentum halves at each of nine good steps: multiples of 2^-11 below 2^7, which fp32 holds
        grads = [torch.randint(-16, 17, shape, generator=random).double() / 4 for shape in _SHAPES]
        optimizer.zero_grad(set_to_none=True)
        products = [(one * grads[place].float().to(bench.device)).sum() for place, one in enumerate(parameters)]
        scaler.scale(torch.stack(products).sum()).backward()
        if what != "good" and bench.injected_fault != "fault":
            struck: Any = parameters[bad % len(parameters)].grad  # another tensor each time
            struck.view(-1)[struck.numel() // 2] = float(what)
            bad += 1
        scaler.step(optimizer)
        scaler.update()
        if what == "good":
            for place, grad in enumerate(grads):
                speed[place].mul_(0.5).add_(grad)
                want[place].sub_(_RATE * speed[place])
        got = torch.cat([one.detach().cpu().flatten() for one in parameters])
        name = "taken.wrong" if what == "good" else "skipped.wrong"
        bench.exact(name, got, torch.cat([one.flatten() for one in want]))
        bench.count("scale.wrong", int(scaler.get_scale() != expected[number]))
    held = [optimizer.state[one]["momentum_buffer"].cpu().flatten() for one in parameters]
    bench.exact("taken.wrong", torch.cat(held), torch.cat([one.flatten() for one in speed]))
