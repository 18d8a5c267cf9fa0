"""SGD with momentum and AdamW, in each implementation that torch has of them, against their formulas in fp64.

A run that is saved, loaded into a new optimizer and continued must be, bit for bit, the run that went on.
"""

from __future__ import annotations

import io
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench

_STEPS, _SAVED = 10, 5
_SHAPES = ((257, 33), (1,), (64, 128), (5,))
_RATE, _DECAY = 0.01, 0.1
_MOMENTUM = 0.9
_BETAS, _EPSILON = (0.9, 0.95), 1e-8
_WAYS = (("loop", {"foreach": False}), ("foreach", {"foreach": True}), ("fused", {"fused": True}))


def sgd(parameter: Any, grads: Any) -> Any:
    """SGD with Nesterov's momentum and weight decay, as torch.optim.SGD documents it."""
    moving: Any = None
    for grad in grads:
        full = grad + _DECAY * parameter
        moving = full if moving is None else _MOMENTUM * moving + full
        parameter = parameter - _RATE * (full + _MOMENTUM * moving)
    return parameter


def adamw(parameter: Any, grads: Any) -> Any:
    """AdamW as in I. Loshchilov and F. Hutter, "Decoupled weight decay regularization" (2019), algorithm 2."""
    first = second = 0.0 * parameter
    for step, grad in enumerate(grads, 1):
        first = _BETAS[0] * first + (1 - _BETAS[0]) * grad
        second = _BETAS[1] * second + (1 - _BETAS[1]) * grad * grad
        size = (second / (1 - _BETAS[1] ** step)) ** 0.5 + _EPSILON
        parameter = parameter - _RATE * (first / (1 - _BETAS[0] ** step) / size + _DECAY * parameter)
    return parameter


def _make(kind: str, parameters: Any, way: dict[str, bool]) -> Any:
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=_RATE, momentum=_MOMENTUM, weight_decay=_DECAY, nesterov=True, **way)
    return torch.optim.AdamW(parameters, lr=_RATE, betas=_BETAS, eps=_EPSILON, weight_decay=_DECAY, **way)


def _copies(start: Any, device: str) -> list[Any]:
    return [torch.nn.Parameter(one.detach().clone().to(device)) for one in start]


def _steps(optimizer: Any, parameters: Any, grads: Any) -> None:
    for step in grads:
        for place, grad in enumerate(step):
            parameters[place].grad = grad.to(parameters[place].device)
        optimizer.step()


def _measure(bench: Bench, kind: str, name: str, way: dict[str, bool], start: Any, grads: Any, moved: Any) -> None:
    parameters = _copies(start, bench.device)
    optimizer = _make(kind, parameters, way)
    _steps(optimizer, parameters, grads[:_SAVED])
    saved = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "parameters": [one.detach() for one in parameters]}, saved)
    _steps(optimizer, parameters, grads[_SAVED:])
    ends = torch.cat([one.detach().cpu().flatten() for one in parameters])
    before = torch.cat([one.flatten() for one in start]).double()
    bench.close(f"{name}.moved", ends.double() - before, moved)

    saved.seek(0)
    loaded = torch.load(saved, weights_only=True, map_location="cpu")  # as a checkpoint is read before it is placed
    again = _copies(loaded["parameters"], bench.device)
    optimizer = _make(kind, again, way)
    if bench.injected_fault != "order":
        optimizer.load_state_dict(loaded["optimizer"])
    _steps(optimizer, again, grads[_SAVED:])
    bench.exact(f"{name}.resumed.wrong", torch.cat([one.detach().cpu().flatten() for one in again]), ends)


def _offered(kind: str, way: dict[str, bool], device: str) -> bool:
    """Whether this torch has this implementation for the device; it refuses the others when they are made."""
    try:
        _make(kind, [torch.nn.Parameter(torch.ones(2, device=device))], way)
    except RuntimeError as error:
        if "fused" not in str(error):
            raise
        return False
    return True


def run(bench: Bench) -> None:
    """Measures for sgd and adamw and each of ``-loop``, ``-foreach`` and ``-fused``: ``.offered``, the distances
    ``.moved`` of what parameters moved by, and ``.resumed.wrong`` (elements)."""
    random = bench.random()
    start = [torch.randn(shape, generator=random) for shape in _SHAPES]
    grads = [[torch.randn(shape, generator=random) for shape in _SHAPES] for _ in range(_STEPS)]
    for kind, formula in (("sgd", sgd), ("adamw", adamw)):
        moves = [
            (formula(one.double(), [step[place].double() for step in grads]) - one.double()).flatten()
            for place, one in enumerate(start)
        ]
        for suffix, way in _WAYS:
            name = f"{kind}-{suffix}"
            offered = _offered(kind, way, bench.device)
            bench.note(name + ".offered", offered)
            if offered:
                _measure(bench, kind, name, way, start, grads, torch.cat(moves))
