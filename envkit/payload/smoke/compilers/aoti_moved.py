"""An AOTInductor package away from home: a fresh interpreter loads a copy in another folder, after the folder that it
was made in is gone, with an empty PATH and cache, and where triton cannot be imported."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from envkit.payload import isolate, programs
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import packages, stages
from envkit.payload.smoke.compilers.lacking import COMPILERS
from envkit.payload.smoke.compilers.torch_compile import compare, inputs


def _use(path: str, injected_fault: str) -> dict[str, Any]:
    modules: dict[str, Any] = sys.modules  # whose own type does not know the word for "cannot be imported"
    modules["triton"] = None
    import torch
    import torch._inductor

    bench = Bench("cpu", injected_fault)
    given = inputs(bench)
    loaded = torch._inductor.aoti_load_package(path)
    with torch.no_grad():
        compare(bench, loaded(*given), given)
    found = [name for name in COMPILERS if shutil.which(name)]
    found += [name for name, module in sys.modules.items() if name.partition(".")[0] == "triton" and module]
    bench.count("compilers.found", len(found))
    bench.detail = f"within reach were {', '.join(found)}" if found else ""
    return stages.told(bench)


def away(path: str, injected_fault: str, budget: str, fd: str) -> None:
    """What the fresh interpreter does: its end is sent to the pipe ``fd``."""
    os.set_inheritable(int(fd), False)
    isolate.perform(lambda _: _use(path, injected_fault), int(fd), float(budget))


def _moved(bench: Bench, path: str) -> str:
    """A copy of the package in a folder of this test's, which becomes the whole world of the next process."""
    folder = stages.own_folder(bench, "aoti-moved")
    for name in ("bin", "tmp", "cache"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    for name in ("CC", "CXX", "CUDAHOSTCXX", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ.pop(name, None)
    os.environ["PATH"] = os.path.join(folder, "bin")
    os.environ["TMPDIR"] = os.path.join(folder, "tmp")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "cache")
    return shutil.copy(path, os.path.join(folder, "moved.pt2"))


def run(bench: Bench) -> None:
    """Measures ``exact.wrong``, the distances ``fp32`` and ``compilers.found``, which should have been out of reach."""
    bench.not_applicable_if(packages.lacking())
    path = packages.built(bench, inputs(bench), "cpu")
    home = dict(os.environ)
    moved = _moved(bench, path)

    def why() -> str:
        os.environ.update(home)  # the compiler that built the package is asked
        return packages.why_deadly(moved)

    argv = programs.interpreter(__name__, "away", (moved, bench.injected_fault, str(packages.LOAD_S)))
    name = "loading the package in a fresh interpreter"
    loading = isolate.Task(name, bench.device, packages.LOAD_S, argv=argv)
    stages.take(bench, stages.part(loading, why))
