"""How tests bring the kernels in Triton to life."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import stages
from envkit.payload.smoke.compilers.lacking import lacking_c
from envkit.payload.smoke.sources import text_of


def kernels(bench: Bench, name: str) -> Any:
    """The kernels, with Triton's cache in a folder of this test's own: nothing comes out of an older one."""
    if importlib.util.find_spec("triton") is None:
        bench.not_applicable("triton is not installed")
    folder = stages.own_folder(bench, name)
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "cache")
    return module_of(folder, name)


def module_of(folder: str, name: str) -> Any:
    """The module of the kernels, written into ``folder``: triton reads a kernel's source from its file."""
    path = os.path.join(folder, "smoke_" + name.replace("-", "_") + ".py")
    with open(path, "w") as file:
        file.write(text_of("compilers/kernels.triton"))
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launched(bench: Bench, launch: Callable[[], Any]) -> None:
    """Launches for the first time, which compiles; without a C compiler that is no fault of Triton's."""
    try:
        launch()
    except Exception as error:  # which one says "no compiler" differs between releases
        lacking = lacking_c("triton builds its launcher")
        if lacking:
            bench.not_applicable(f"{lacking} ({type(error).__name__})")
        raise
