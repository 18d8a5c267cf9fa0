"""An AOTInductor package in a C++ program: built against libtorch's headers, run without Python.

It is how a service loads a package.  The program reads the inputs from files and writes the results to files.
"""

from __future__ import annotations

import os
import re
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import packages, stages
from envkit.payload.smoke.compilers.nvcc_axpy import must, raw
from envkit.payload.smoke.compilers.torch_compile import compare, inputs
from envkit.payload.smoke.sources import text_of

SOURCE = text_of("compilers/aoti_runner.cpp")
_RUN_S, _BUILD_S = 120.0, 200.0


def standard(source: str) -> str:
    """The C++ standard that torch builds extensions with, by the text of torch/utils/cpp_extension.py."""
    found = re.search(r"common_cflags \+= \['-std=c\+\+(\d+)'", source)
    return found[1] if found else "17"


def _words(source: str, program: str) -> list[str]:
    from torch.utils import cpp_extension

    with open(cpp_extension.__file__, encoding="utf-8") as file:
        year = standard(file.read())
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    words = [os.environ.get("CXX") or "g++", f"-std=c++{year}", "-O0"]
    words += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    words += ["-I" + folder for folder in cpp_extension.include_paths()]
    # What torch's libraries need themselves they find by their own paths.
    words += [source, "-o", program, "-L" + libraries, "-Wl,-rpath," + libraries, "-Wl,--no-as-needed"]
    return [*words, "-Wl,--allow-shlib-undefined", "-ltorch", "-ltorch_cpu", "-lc10"]


def _read(path: str, like: Any) -> Any:
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.float32).reshape(like.shape)


def run(bench: Bench) -> None:
    """Measures ``exact.wrong`` and the distances ``fp32``."""
    bench.not_applicable_if(packages.lacking())
    header = "torch/csrc/inductor/aoti_package/model_package_loader.h"
    if not os.path.exists(os.path.join(os.path.dirname(torch.__file__), "include", header)):
        bench.not_applicable(f"this torch brings no header {header}")
    folder = stages.own_folder(bench, "aoti-runner-cpp")
    given = inputs(bench)
    path = packages.built(bench, given, "cpu")
    source, program = os.path.join(folder, "runner.cpp"), os.path.join(folder, "runner")
    with open(source, "w") as file:
        file.write(SOURCE)
    must("the C++ compiler", _words(source, program), _BUILD_S)
    shapes = []
    for at, tensor in enumerate(given):
        shapes += [str(length) for length in tensor.shape]
        with open(os.path.join(folder, f"in{at}"), "wb") as file:
            file.write(raw(tensor))
    try:
        must("the program", [program, path, folder, *shapes], _RUN_S)
    except stages.Ended as ended:
        why = packages.why_deadly(path)
        if not why:
            raise
        raise stages.Ended(f"{ended}, because {why}", ended.ending) from None
    compare(bench, [_read(os.path.join(folder, f"out{at}"), given[0]) for at in range(2)], given)
