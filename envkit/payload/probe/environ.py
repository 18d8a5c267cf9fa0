"""The environment variables that steer the dynamic linker, CUDA and the frameworks; no other is ever read out."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from typing import Any

_PREFIXES = (
    "LD_", "CUDA_", "NVIDIA_", "NVCC_", "NCCL_", "NVSHMEM_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_",
    "AOTI_", "AOT_INDUCTOR_", "TRITON_", "CUDNN_", "CUBLAS_", "CUBLASLT_", "CUTENSOR_", "OMP_", "GOMP_", "KMP_", "MKL_",
    "OPENBLAS_", "XLA_", "JAX_", "TF_CUDNN_", "TF_FORCE_GPU_", "TF_GPU_", "TF_XLA_", "CUPY_", "NUMBA_", "UCX_", "GLOO_",
    "FI_", "HF_", "TORCHELASTIC_",
)  # fmt: skip
_NAMES = (
    "ATEN_CPU_CAPABILITY", "COMPUTE_PROFILE", "CUDAHOSTCXX", "DISABLE_PTXAS_OPT", "GLIBC_TUNABLES", "GROUP_RANK",
    "GROUP_WORLD_SIZE", "HUGGINGFACE_HUB_CACHE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MALLOC_CONF", "MASTER_ADDR",
    "MASTER_PORT", "MAX_JOBS", "MPLCONFIGDIR", "NCCL_IB_PKEY", "NODE_RANK", "NSIGHT_CUDA_DEBUGGER",
    "NUMEXPR_MAX_THREADS", "OPENCL_PROFILE", "PYTHONBREAKPOINT", "PYTHONDEVMODE", "PYTHONDONTWRITEBYTECODE",
    "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONINTMAXSTRDIGITS", "PYTHONIOENCODING", "PYTHONMALLOC",
    "PYTHONNOUSERSITE", "PYTHONOPTIMIZE", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONPROFILEIMPORTTIME",
    "PYTHONPYCACHEPREFIX", "PYTHONSAFEPATH", "PYTHONSTARTUP", "PYTHONTRACEMALLOC", "PYTHONUNBUFFERED",
    "PYTHONUSERBASE", "PYTHONUTF8", "PYTHONWARNINGS", "RANK", "TF_CPP_MIN_LOG_LEVEL", "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS", "TOKENIZERS_PARALLELISM", "TP_SOCKET_IFNAME", "TRANSFORMERS_CACHE",
    "TRANSFORMERS_OFFLINE", "TRANSFORMERS_VERBOSITY", "USE_LIBUV", "VLLM_CACHE_ROOT", "WANDB_DIR", "WORLD_SIZE",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


def steers(name: str) -> bool:
    """Whether the variable ``name`` steers the linker, CUDA or a framework and holds no secret by its name."""
    return name in _NAMES or (name.startswith(_PREFIXES) and not any(word in name.upper() for word in _SECRET))


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


def leads(value: str) -> str:
    """What lies at the path that a value is: "file", "program" (a file that this user may run), "directory", "other" or
    "absent"; empty where it is no path, or may not be looked at.
    """
    if not value.startswith("/") or ":" in value:
        return ""
    try:
        mode = os.stat(value).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except (OSError, ValueError):
        return ""
    if stat.S_ISREG(mode):
        return "program" if os.access(value, os.X_OK) else "file"
    return "directory" if stat.S_ISDIR(mode) else "other"


def variables(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The steering ones of ``environment``, by name; bytes that are no UTF-8 are written as escapes."""
    found = []
    for name, value in sorted(environment.items()):
        if steers(name):
            one: dict[str, Any] = {"name": name, "value": os.fsencode(value).decode("utf-8", "backslashreplace")}
            empty = idle(one["value"], _names) if name == "LD_LIBRARY_PATH" else []
            there = "" if name.startswith("LD_") else leads(value)
            found.append({**one, **({"idle": empty} if empty else {}), **({"leads": there} if there else {})})
    return found
