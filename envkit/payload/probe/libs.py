"""Names the library families and asks each mapped library for its version in the way that it offers."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from typing import Any

from envkit.payload.probe import maps
from envkit.payload.probe.ask import ask

_FAMILY = re.compile(
    r"lib(cudart|cublasLt|cublas|cudnn(?:_[a-z_]+)?|nccl|nvrtc-builtins|nvrtc|nvJitLink|cusparseLt|cusparse"
    r"|cusolverMg|cusolver|cufftw|cufft|curand|cupti|nvToolsExt|nvtx3interop|cufile|nvshmem_host|nvidia-ml|cuda"
    r"|caffe2_nvrtc|c10_cuda|c10|torch_cuda_linalg|torch_cuda|torch_cpu|torch_python|torch_nvshmem)"
    r"(?:-[0-9a-f]{8})?\.so(?:\.|\Z)"  # older wheels carry copies renamed with a hash
)
_NAMES = {"nvJitLink": "nvjitlink", "nvToolsExt": "nvtx", "nvtx3interop": "nvtx", "nvidia-ml": "nvml"}


def family(path: str) -> str:
    """The family of the library file ``path`` ("cudnn_ops", "nvjitlink"), empty if it is none of CUDA or torch."""
    found = _FAMILY.match(os.path.basename(path))
    return _NAMES.get(found.group(1), found.group(1)) if found else ""


def is_torch(name: str) -> bool:
    """Whether the family ``name`` is a part of torch rather than of CUDA."""
    return name.startswith(("torch", "c10", "caffe2"))


class Refused(Exception):
    """A version function answered with an error code."""


def _out(function: Any, kinds: tuple[Any, ...], *before: Any) -> list[int]:
    cells = [kind() for kind in kinds]
    code = function(*(before + tuple(ctypes.byref(cell) for cell in cells)))
    if code:
        raise Refused(f"returned {code}")
    return [cell.value for cell in cells]


def _thousands(function: Any) -> str:
    """1000 * major + 10 * minor (cudaRuntimeGetVersion, cuDriverGetVersion, cuFileGetVersion)."""
    (number,) = _out(function, (ctypes.c_int,))
    return f"{number // 1000}.{number % 1000 // 10}"


def _properties(function: Any) -> str:
    """libraryPropertyType 0, 1, 2: major, minor, patch (library_types.h)."""
    return ".".join(str(_out(function, (ctypes.c_int,), part)[0]) for part in (0, 1, 2))


def _cudnn(function: Any) -> str:
    """CUDNN_VERSION of cudnn_version.h: the major's unit is 10000 from major 9 on and 1000 before."""
    function.restype = ctypes.c_size_t
    number = int(function())
    unit = 10000 if number >= 90000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def _nccl(function: Any) -> str:
    """NCCL_VERSION of nccl.h: the major's unit is 10000, and was 1000 before minor 9."""
    (number,) = _out(function, (ctypes.c_int,))
    unit = 10000 if number >= 10000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def _pair(function: Any) -> str:
    return ".".join(str(part) for part in _out(function, (ctypes.c_int, ctypes.c_int)))


def _triple(function: Any) -> str:
    cells = [ctypes.c_int() for _ in range(3)]
    function(*[ctypes.byref(cell) for cell in cells])
    return ".".join(str(cell.value) for cell in cells)


def _single(function: Any) -> str:
    return str(_out(function, (ctypes.c_uint32,))[0])


# family: the function that says the version, and how its answer is read
ASKED: dict[str, tuple[str, Callable[[Any], str]]] = {
    "cuda": ("cuDriverGetVersion", _thousands),
    "cudart": ("cudaRuntimeGetVersion", _thousands),
    "cublas": ("cublasGetProperty", _properties),
    "cublasLt": ("cublasLtGetProperty", _properties),
    "cudnn": ("cudnnGetVersion", _cudnn),
    "cudnn_graph": ("cudnnGetVersion", _cudnn),
    "cufft": ("cufftGetProperty", _properties),
    "cufile": ("cuFileGetVersion", _thousands),
    "cupti": ("cuptiGetVersion", _single),
    "curand": ("curandGetProperty", _properties),
    "cusolver": ("cusolverGetProperty", _properties),
    "cusparse": ("cusparseGetProperty", _properties),
    "cusparseLt": ("cusparseLtGetProperty", _properties),
    "nccl": ("ncclGetVersion", _nccl),
    "nvjitlink": ("nvJitLinkVersion", _pair),
    "nvrtc": ("nvrtcVersion", _pair),
    "nvshmem_host": ("nvshmemx_vendor_get_version_info", _triple),
}

# cuDNN's sub-libraries compare these 4-byte constants with one another: major << 16 | minor << 8 | patch
# (read in the .rodata of the first and of later releases of major 9, where it agrees with cudnnGetVersion).
CONSTANTS = {"cudnn_ops": "cudnn_ops_infer_version", "cudnn_adv": "cudnn_adv_infer_version"}


def _own_symbol(symbol: str, path: str) -> ctypes.CDLL | None:
    """The handle of ``path`` if it defines ``symbol`` itself; a dependency's answer would be another library's."""
    library = maps.handle(path)
    where = maps.resolves(symbol, library._handle)
    return library if where and os.path.realpath(where) == os.path.realpath(path) else None


def _constant(symbol: str, path: str) -> str:
    library = maps.handle(path)
    number = ctypes.c_uint32.from_address(maps.address(symbol, library._handle)).value
    return f"{number >> 16}.{number >> 8 & 255}.{number & 255}"


def version(name: str, path: str) -> tuple[str, str]:
    """The version that the mapped library ``path`` of family ``name`` says, and who said it or why nobody did."""
    symbol = ASKED[name][0] if name in ASKED else CONSTANTS.get(name, "")
    if not symbol:
        return "", "it offers no version function"
    try:
        library = _own_symbol(symbol, path)
    except OSError as error:
        return "", str(error)
    if library is None:
        return "", f"it does not define {symbol}"
    if name in ASKED:
        read = ASKED[name][1]
        said, why = ask(lambda: read(getattr(library, symbol)), 20.0)
    else:
        said, why = ask(lambda: _constant(symbol, path), 20.0)
    return (str(said), symbol) if not why else ("", "{} {}".format(symbol, why.replace("Refused: ", "")))


# the symbol by which a copy of each family is recognised when a caller binds it
BOUND = {name: symbol for name, (symbol, _) in ASKED.items() if name not in ("cudnn_graph", "cupti")}


def bindings(families: list[str], torch_cuda: str) -> list[dict[str, str]]:
    """Where each family's symbol resolves: in the global scope, and in the scope of libtorch_cuda.so if mapped."""
    scopes = [("process", 0)]
    if torch_cuda:
        scopes.append(("libtorch_cuda.so", maps.handle(torch_cuda)._handle))
    found: list[dict[str, str]] = []
    for name in families:
        if name not in BOUND:
            continue
        for caller, scope in scopes:
            path = maps.resolves(BOUND[name], scope)
            if path:
                found.append({"name": name, "symbol": BOUND[name], "caller": caller, "path": os.path.realpath(path)})
    return found
