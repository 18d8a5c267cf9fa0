"""The Python of ENVKIT_TORCH_PYTHON and its kind of torch; a small one for the CPU serves most tests that need one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

PYTHON = os.environ.get("ENVKIT_TORCH_PYTHON", "")
Test = TypeVar("Test", bound=Callable[..., Any])


# By its file: to import torch takes seconds, and most runs have none.
def _has(path: str) -> bool:
    return PYTHON != "" and any(Path(PYTHON).parent.parent.glob(f"lib/python3.*/site-packages/{path}"))


def _needs(there: bool, what: str) -> Callable[[Test], Test]:
    def marked(test: Test) -> Test:
        skipped: Test = pytest.mark.skipif(not there, reason=f"ENVKIT_TORCH_PYTHON names no {what}")(test)
        torch: Test = pytest.mark.torch(skipped)  # what `make torch` runs
        return torch

    return marked


IS_FOR_CUDA = _has("torch/lib/libtorch_cuda.so")
needs_torch = _needs(PYTHON != "", "Python with torch")
needs_torch_for_cuda = _needs(IS_FOR_CUDA, "torch that has CUDA")
# Triton 3.2 imports setuptools and does not ask for it.
needs_triton = _needs(_has("triton") and _has("setuptools"), "triton beside setuptools")
