"""What kind of torch the Python of ENVKIT_TORCH_PYTHON has; a small one for the CPU serves most tests that need one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PYTHON = os.environ.get("ENVKIT_TORCH_PYTHON", "")
# By its file: to import torch takes seconds, and most runs have none.
IS_FOR_CUDA = PYTHON != "" and any(
    Path(PYTHON).parent.parent.glob("lib/python3.*/site-packages/torch/lib/libtorch_cuda.so")
)
needs_torch_for_cuda = pytest.mark.skipif(not IS_FOR_CUDA, reason="ENVKIT_TORCH_PYTHON names no torch that has CUDA")
