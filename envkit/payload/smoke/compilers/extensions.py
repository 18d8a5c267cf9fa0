"""What tests of torch's C++ extensions share: what they lack, where they build, why loading one ends a process."""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
from collections.abc import Callable
from typing import Any

from envkit.payload.isolate import Task
from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import packages, stages
from envkit.payload.smoke.compilers.lacking import lacking_headers

BUILD_S = 240.0


def lacking_extension(what: str) -> str:
    """Why ``what`` cannot be built here as an extension of torch; empty where nothing is missing.

    The compiler is CXX, else c++ (torch/utils/cpp_extension.py, ``get_cxx_compiler``), the builder ninja.
    """
    if not os.environ.get("CXX") and not shutil.which("c++"):
        return f"{what} with c++, which is not in PATH"
    if not shutil.which("ninja"):
        return f"{what} with ninja, which is not in PATH"
    header = os.path.join(os.path.dirname(torch.__file__), "include", "torch", "extension.h")
    if not os.path.exists(header):
        return f"{what} against {header}, which is absent"
    return lacking_headers(what)


def build_and_use(bench: Bench, name: str, use: Callable[[Bench], dict[str, Any]]) -> None:
    """Has a process of its own build and ``use`` an extension, in a folder of this test's."""
    folder = stages.own_folder(bench, name)
    os.environ["TORCH_EXTENSIONS_DIR"] = folder
    task = Task("building and calling the extension", bench.device, BUILD_S, lambda _: use(bench))
    stages.take(bench, stages.part(task, lambda: why_deadly(folder)))


def essence(said: str) -> str:
    """The first errors of a compiler, a linker or a loader among what a build printed, else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error[: ]|undefined |cannot find|not found", line)]
    return "; ".join(dict.fromkeys(errors[:3] or lines[-1:]))


def build(name: str, sources: list[str], cuda_sources: list[str], functions: list[str]) -> Any:
    """Builds and loads an extension.  Raises RuntimeError with the compiler's first errors; all is on stderr."""
    from torch.utils import cpp_extension

    try:
        return cpp_extension.load_inline(name, sources, cuda_sources or None, functions=functions)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        text = str(error)
        raise RuntimeError(essence(text) if text.startswith("Error building extension") else text) from None


def why_deadly(folder: str) -> str:
    """Why loading what was built below ``folder`` ended its process, if its files tell."""
    reasons = map(packages.why_deadly, glob.glob(os.path.join(folder, "*", "*.so")))
    return next(filter(None, reasons), "")
