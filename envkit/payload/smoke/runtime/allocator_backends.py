"""The same churn and the same exact product under each of the allocators that torch can be told to use.

An allocator is chosen before torch is loaded, so each gets a process forked from one that has no torch.
"""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from envkit.payload import isolate
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.runtime.products import count_wrong

_SETTINGS = {"native": "backend:native", "async": "backend:cudaMallocAsync", "expandable": "expandable_segments:True"}
_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # the older name and the one that replaced it
_BUDGET_S = 120.0  # each of them imports torch
_ROUNDS, _LIVE = 300, 24
_MOST_ELEMENTS = 4 << 20  # of int32: the sizes run over all classes of block
_NOT_SUPPORTED = "801"  # cudaErrorNotSupported: a device without memory pools


def _in_force(name: str) -> bool:
    if name == "expandable":
        return any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    return str(torch.cuda.get_allocator_backend()) == ("cudaMallocAsync" if name == "async" else "native")


def _churn(bench: Bench, name: str) -> None:
    random = bench.random()
    powers = torch.rand(_ROUNDS, generator=random)
    live: Any = deque()
    wrong = torch.zeros((), dtype=torch.int64, device=bench.device)
    for number in range(_ROUNDS + _LIVE):
        if number < _ROUNDS:
            elements = max(1, int(_MOST_ELEMENTS ** float(powers[number])))
            live.append((number, torch.full((elements,), number, dtype=torch.int32, device=bench.device)))
        if len(live) > _LIVE or number >= _ROUNDS:
            held, block = live.popleft()
            wrong += (block != held).sum()
    bench.count(name + ".wrong", int(wrong))


def _under(bench: Bench, name: str) -> Callable[[Any], Any]:
    def work(_: Any) -> Any:
        for variable in _VARIABLES:
            os.environ[variable] = _SETTINGS[name]
        os.environ.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
        torch.cuda.set_device(bench.device)
        inner = Bench(bench.device, bench.injected_fault)
        inner.plain_math()
        _churn(inner, name)
        count_wrong(inner, name + ".wrong")
        inner.note(name + ".offered", _in_force(name))
        return inner.measures

    return work


def run(bench: Bench) -> None:
    """Measures ``<allocator>.wrong`` (elements) and ``<allocator>.offered`` for native, async and expandable.

    Raises RuntimeError for the first of them that came to no end.
    """
    if importlib.util.find_spec("torch") is None:
        bench.not_applicable("there is no torch in this Python")
    ends: dict[str, isolate.Ending] = {}
    lanes = [[isolate.Task(name, bench.device, _BUDGET_S, _under(bench, name))] for name in _SETTINGS]
    isolate.run(lanes, _BUDGET_S, lambda task, ending: ends.update({task.name: ending}))
    for name in _SETTINGS:
        end = ends[name]
        if end.ended == "raised" and end.cuda.startswith(_NOT_SUPPORTED):
            bench.note(name + ".offered", 0)
        elif end.ended != "ran":
            words = " ".join(filter(None, (name, end.ended, end.signal, end.detail)))
            raise RuntimeError(words + (f"; {end.stderr_tail[-1500:]}" if end.stderr_tail else ""))
        else:
            for measure, value in end.value.items():
                bench.note(measure, value)
