"""The environment variables that steer the dynamic linker, CUDA and the frameworks; no other is ever read out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

_PREFIXES = (
    "LD_", "CUDA_", "NVIDIA_", "NVCC_", "NCCL_", "NVSHMEM_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_",
    "AOTI_", "AOT_INDUCTOR_", "TRITON_", "CUDNN_", "CUBLAS_", "CUBLASLT_", "CUTENSOR_", "OMP_", "GOMP_", "KMP_", "MKL_",
    "OPENBLAS_", "XLA_", "JAX_", "TF_CUDNN_", "TF_FORCE_GPU_", "TF_GPU_", "TF_XLA_", "CUPY_", "NUMBA_", "UCX_", "GLOO_",
)  # fmt: skip
_NAMES = (
    "CUDNN_PATH", "CUDAHOSTCXX", "DISABLE_PTXAS_OPT", "GLIBC_TUNABLES", "MALLOC_CONF", "PYTHONHOME", "PYTHONNOUSERSITE",
    "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUSERBASE",
)  # fmt: skip
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


def steers(name: str) -> bool:
    """Whether the variable ``name`` steers the linker, CUDA or a framework and holds no secret by its name."""
    return (name in _NAMES or name.startswith(_PREFIXES)) and not any(word in name.upper() for word in _SECRET)


def idle(value: str, names: Callable[[str], list[str]]) -> list[str]:
    """The entries of LD_LIBRARY_PATH that are called stubs and hold no library, as ``names`` lists a directory."""
    entries = [entry for entry in re.split("[:;]", value) if "stubs" in entry.split("/")]
    return [entry for entry in entries if not any(".so" in name for name in names(entry))]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError as error:
        # One that may not be read may hold libraries all the same.
        return [] if isinstance(error, (FileNotFoundError, NotADirectoryError)) else ["lib.so"]


def variables(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The steering ones of ``environment``, by name; bytes that are no UTF-8 are written as escapes."""
    found = []
    for name, value in sorted(environment.items()):
        if steers(name):
            one: dict[str, Any] = {"name": name, "value": os.fsencode(value).decode("utf-8", "backslashreplace")}
            empty = idle(one["value"], _names) if name == "LD_LIBRARY_PATH" else []
            found.append({**one, "idle": empty} if empty else one)
    return found
