"""Run by a Python with torch: what the tests of the suite compare on the CPU, as JSON on stdout.

``compared.py FAULT NAME...`` runs each named test with its injected fault. Of each test it tells the measures; how
often each was noted or counted; of the tensors that an injected fault could change how many there were and how many
elements they had together, apart for those compared exactly and those compared closely; the measures of those
comparisons, with the end of the one that sees a single element; and what it asks of torch: each function, how often,
and a digest of the types, shapes, strides and options that it was called with.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import tempfile
from collections import Counter
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from envkit.payload.isolate import NotApplicable
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.bench import Bench, travelling


class Counting(Bench):
    """A bench that keeps count of what it is given."""

    def __init__(self, fault: str, scratch: str) -> None:
        super().__init__("cpu", fault, scratch=scratch, level="full")
        self.calls: Counter[str] = Counter()
        self.disturbed: set[str] = set()

    def note(self, name: str, value: float) -> None:
        self.calls[name] += 1
        super().note(name, value)

    def count(self, name: str, wrong: int) -> None:
        self.calls[name] += 1
        super().count(name, wrong)

    def disturb(self, got: Any, exact: bool) -> Any:
        kind = "exact" if exact else "close"
        self.calls[f"tensors, {kind}"] += 1
        self.calls[f"elements, {kind}"] += got.numel()
        return super().disturb(got, exact)

    def exact(self, name: str, got: Any, want: Any) -> None:
        self.disturbed.add(name)
        super().exact(name, got, want)

    def close(self, name: str, got: Any, want: Any) -> None:
        self.disturbed.add(name + ".worst")
        super().close(name, got, want)


def layout(value: Any) -> str:
    """An argument of a call as text: of a tensor how it lies in memory, without its numbers; any option as it is.

    A float of many digits was computed, and its last ones may differ between machines.
    """
    if isinstance(value, torch.Tensor):
        strided = value.layout == torch.strided
        place = f"{value.stride()}+{value.storage_offset()}" if strided else str(value.layout)
        return f"{value.dtype}{tuple(value.shape)}{place}{'g' * value.requires_grad}"
    if isinstance(value, (list, tuple)):
        return f"({','.join(map(layout, value))})"
    if isinstance(value, dict):
        return f"({','.join(f'{name}={layout(one)}' for name, one in value.items())})"
    if isinstance(value, float):
        return str(value) if len(str(value)) < 10 else "computed"
    known = isinstance(value, (bool, int, str, complex, torch.dtype, torch.device, slice, type(None), type(...)))
    return str(value) if known else type(value).__name__


class Asked(TorchFunctionMode):
    """Keeps what a test asks of torch: of each function how often it is called, and a digest of all it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[str] = Counter()
        self.given: dict[str, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", type(func).__name__)
        if name not in ("__get__", "__repr__", "__format__"):
            self.times[name] += 1
            self.given.setdefault(name, hashlib.sha256()).update(f"{layout(args)}{layout(kwargs or {})};".encode())
        return func(*args, **(kwargs or {}))

    def told(self) -> dict[str, str]:
        """By function, the number of calls and the beginning of the digest."""
        return {name: f"{times} {self.given[name].hexdigest()[:8]}" for name, times in sorted(self.times.items())}


def told(module: str, fault: str) -> dict[str, Any]:
    """What one test compares."""
    with tempfile.TemporaryDirectory() as scratch:
        bench, asked = Counting(fault, scratch), Asked()
        try:
            run = importlib.import_module(module).run
            with asked:
                run(bench)
        except NotApplicable as lacking:
            return {"not applicable": str(lacking)}
        measures = travelling(bench.measures)
        return {"measures": measures, "calls": bench.calls, "asked": asked.told(), "disturbed": sorted(bench.disturbed)}


def main(fault: str, names: list[str]) -> None:
    """A process for each test, for some change what the others would see."""
    torch.set_num_threads(1)
    tests = {}
    for case in TESTS:
        if case.name not in names:
            continue
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                with os.fdopen(writing, "w") as file:
                    json.dump(told(case.module, fault), file)
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(1)
        os.close(writing)
        with os.fdopen(reading) as file:
            said = file.read()
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{case.name} did not come to its end")
        tests[case.name] = json.loads(said)
    json.dump({"torch": torch.__version__.rpartition(".")[0], "tests": tests}, sys.stdout)


main(sys.argv[1], sys.argv[2:])
