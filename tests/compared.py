"""Run by a Python with torch: what the tests of the suite compare on the CPU, as JSON on stdout.

``compared.py FAULT NAME...`` runs each named test with its injected fault. Of each test it tells the measures; how
often each was noted or counted; of the tensors that an injected fault could change how many there were and how many
elements they had together, apart for those compared exactly and those compared closely; and the measures of those
comparisons, with the end of the one that sees a single element.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections import Counter
from typing import Any

import torch

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


def told(module: str, fault: str) -> dict[str, Any]:
    """What one test compares."""
    with tempfile.TemporaryDirectory() as scratch:
        bench = Counting(fault, scratch)
        try:
            importlib.import_module(module).run(bench)
        except NotApplicable as lacking:
            return {"not applicable": str(lacking)}
        measures = travelling(bench.measures)
        return {"measures": measures, "calls": bench.calls, "disturbed": sorted(bench.disturbed)}


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
