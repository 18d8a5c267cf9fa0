"""What kind of torch the Python of ENVKIT_TORCH_PYTHON has; a small one for the CPU serves most tests that need one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PYTHON = os.environ.get("ENVKIT_TORCH_PYTHON", "")
# By its file: to import torch takes seconds, and most runs have none.


def _has(path: str) -> bool:
    return PYTHON != "" and any(Path(PYTHON).parent.parent.glob(f"lib/python3.*/site-packages/{path}"))


IS_FOR_CUDA = _has("torch/lib/libtorch_cuda.so")
needs_torch_for_cuda = pytest.mark.skipif(not IS_FOR_CUDA, reason="ENVKIT_TORCH_PYTHON names no torch that has CUDA")
# Triton 3.2 imports setuptools and does not ask for it.
needs_triton = pytest.mark.skipif(
    not (_has("triton") and _has("setuptools")), reason="ENVKIT_TORCH_PYTHON names no triton beside setuptools"
)
