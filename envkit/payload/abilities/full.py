"""What takes seconds to minutes: torch.compile, Triton, an extension's build, a data loader with processes.

The first three are the smoke suite's own tests, of which only whether they come to their end counts here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from envkit.payload import isolate, programs
from envkit.payload.abilities import Absent, Attempt, try_all
from envkit.payload.smoke.bench import Bench

BUDGET_S = 420.0
_LOADER_S = 90.0
_FLAGS_S = 30.0


def _test(name: str, bench: Bench) -> Bench:
    """Runs a test of the suite; raises Absent for what it needs and is not here, RuntimeError where it is wrong."""
    try:
        importlib.import_module(f"envkit.payload.smoke.compilers.{name}").run(bench)
    except isolate.NotApplicable as lacking:
        raise Absent(str(lacking)) from lacking
    wrong = [one for one, value in bench.measures.items() if one.endswith(".wrong") and value]
    if wrong:
        raise RuntimeError(bench.detail or f"{', '.join(wrong)} is not as it should be")
    return bench


def _compile(folder: str) -> None:
    made = _test("torch_compile", Bench("cpu", scratch=folder)).measures
    if not made["graphs.compiled"] or not made["objects.mapped"]:
        raise RuntimeError("torch.compile compiled nothing and fell back to eager")


def _triton(folder: str, target: str) -> None:
    bench = _test("triton_targets", Bench("cpu", scratch=folder, targets=(target,)))
    if not bench.measures["made"] or bench.detail:
        raise RuntimeError(bench.detail or f"no kernel was made for {target}")


def _build(folder: str) -> None:
    if importlib.util.find_spec("setuptools") is None:
        raise Absent("torch builds its extensions with setuptools, which is not installed")
    _test("cpp_extension", Bench("cpu", scratch=folder))


def load(how: str) -> None:
    """Takes all batches of a loader with two processes, started by ``how``; raises RuntimeError if one lacks."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(32))
    total = sum(int(batch[0].sum()) for batch in DataLoader(data, 4, num_workers=2, multiprocessing_context=how))
    if total != 496:
        raise RuntimeError(f"the batches add up to {total} and not to 496")


def _loader(how: str) -> None:
    code, said = programs.told(programs.interpreter(__name__, "load", (how,)), _LOADER_S)
    if code:
        lines = [line for line in said.splitlines() if "Error" in line] or said.splitlines() or ["it said nothing"]
        raise RuntimeError(lines[-1].strip())


def _attempts(folder: str, targets: Sequence[str]) -> Iterator[Attempt]:
    def own(name: str) -> str:
        path = os.path.join(folder, name)
        os.mkdir(path)
        return path

    yield Attempt("torch-compile", "cpu", partial(_compile, own("inductor")), budget_s=180.0)
    for target in targets:
        yield Attempt("triton-compile", target, partial(_triton, own(target), target), budget_s=90.0)
    yield Attempt("extension-build", "C++", partial(_build, own("extension")), budget_s=300.0)
    for how in ("fork", "spawn"):
        yield Attempt("data-loader", how, partial(_loader, how), budget_s=_LOADER_S)


def _targets(capabilities: Sequence[int]) -> list[str]:
    """The declared GPUs, else the newest that this torch has machine code for; none for a torch without CUDA."""
    ask = getattr(sys.modules["torch"]._C, "_cuda_getArchFlags", lambda: "")
    # In a child: a torch that was asked for anything of CUDA's takes every fork of its process for one that lost CUDA.
    flags = isolate.run_one(isolate.Task("architectures", "cpu", _FLAGS_S, lambda say: ask())).value
    own = [word for word in str(flags or "").split() if word[:3] == "sm_" and word[3:].isdigit()]
    if not own:
        return []
    return [f"sm_{one}" for one in capabilities] or sorted(own, key=lambda word: int(word[3:]))[-1:]


def tried(capabilities: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each thing; torch must be imported.  Two at a time, for each keeps a processor busy."""
    folder = tempfile.mkdtemp(prefix="envkit-abilities-")
    try:
        return try_all(list(_attempts(folder, _targets(capabilities))), BUDGET_S, lanes=2)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
