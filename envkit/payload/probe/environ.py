"""The environment variables that steer the dynamic linker, CUDA and the frameworks; no other is ever read out."""

from __future__ import annotations

import os
from collections.abc import Mapping

_PREFIXES = (
    "LD_",
    "CUDA_",
    "NVIDIA_",
    "NVCC_",
    "NCCL_",
    "NVSHMEM_",
    "TORCH_",
    "PYTORCH_",
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "AOTI_",
    "AOT_INDUCTOR_",
    "TRITON_",
    "CUDNN_",
    "CUBLAS_",
    "CUBLASLT_",
    "CUTENSOR_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "XLA_",
    "JAX_",
    "TF_CUDNN_",
    "TF_FORCE_GPU_",
    "TF_GPU_",
    "TF_XLA_",
    "CUPY_",
    "NUMBA_",
    "UCX_",
    "GLOO_",
)
_NAMES = frozenset(
    (
        "CUDNN_PATH",
        "CUDAHOSTCXX",
        "DISABLE_PTXAS_OPT",
        "GLIBC_TUNABLES",
        "MALLOC_CONF",
        "PYTHONHOME",
        "PYTHONNOUSERSITE",
        "PYTHONPATH",
        "PYTHONSAFEPATH",
        "PYTHONUSERBASE",
    )
)
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


def steers(name: str) -> bool:
    """Whether the variable ``name`` steers the linker, CUDA or a framework and holds no secret by its name."""
    return (name in _NAMES or name.startswith(_PREFIXES)) and not any(word in name.upper() for word in _SECRET)


def variables(environment: Mapping[str, str]) -> list[dict[str, str]]:
    """The steering ones of ``environment``, by name; bytes that are no UTF-8 are written as escapes."""
    return [
        {"name": name, "value": os.fsencode(value).decode("utf-8", "backslashreplace")}
        for name, value in sorted(environment.items())
        if steers(name)
    ]
