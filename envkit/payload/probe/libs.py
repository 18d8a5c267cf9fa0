"""Names the library families and asks each mapped library for its version in the way that it offers."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from envkit.payload.probe import maps, origin
from envkit.payload.probe.ask import ask_all

_FAMILY = re.compile(
    r"lib(cudart|cublasLt|cublas|cudnn(?:_[a-z_]+)?|nccl|nvrtc-builtins|nvrtc|nvJitLink|cusparseLt|cusparse"
    r"|cusolverMg|cusolver|cufftw|cufft|curand|cupti|nvToolsExt|nvtx3interop|cufile|nvshmem_host|nvidia-ml|cuda"
    r"|caffe2_nvrtc|c10_cuda|c10|torch_cuda_linalg|torch_cuda|torch_cpu|torch_python|torch_nvshmem"
    r"|cutensor|gomp|iomp5|omp)"
    r"(?:[-.][0-9a-f]{8,})?\.so(?:\.|\Z)"  # wheels carry copies renamed with a hash, of 8 digits by auditwheel
)
_NAMES = {"nvJitLink": "nvjitlink", "nvToolsExt": "nvtx", "nvtx3interop": "nvtx", "nvidia-ml": "nvml"}


def family(path: str) -> str:
    """The family of the library file ``path`` ("cudnn_ops", "nvjitlink"), empty if it is none of CUDA or torch."""
    found = _FAMILY.match(os.path.basename(path))
    return _NAMES.get(found.group(1), found.group(1)) if found else ""


def is_torch(name: str) -> bool:
    """Whether the family ``name`` is a part of torch rather than of CUDA."""
    return name.startswith(("torch", "c10", "caffe2"))


def is_openmp(name: str) -> bool:
    """Whether the family ``name`` is an OpenMP runtime: GNU's, Intel's or LLVM's."""
    return name in ("gomp", "iomp5", "omp")


def is_cuda(name: str) -> bool:
    """Whether ``name`` is a family of CUDA's libraries."""
    return bool(name) and not is_torch(name) and not is_openmp(name)


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


_ASK_S = 10.0  # for one version function, which takes microseconds, CUPTI's a second; a hanging driver takes it all

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

# family: the function that says the CUDA runtime it was built with, as CUDART_VERSION (cudnn.h, cublas_api.h)
BUILT = {
    "cudnn": "cudnnGetCudartVersion",
    "cudnn_graph": "cudnnGetCudartVersion",
    "cublas": "cublasGetCudartVersion",
    "cublasLt": "cublasLtGetCudartVersion",
    "cutensor": "cutensorGetCudartVersion",
}
_NCCL_TAG = re.compile(rb"NCCL version [0-9.]+\+cuda([0-9]+\.[0-9]+)\0")  # what it prints at the start of a job
_NCCL_MOST = 64 << 20  # .rodata stands before the device code, within the first 3 MB of the releases looked at


class LibraryVersion(NamedTuple):
    """What one library says of itself; ``via`` and ``built_via`` say who said it or why nobody did."""

    version: str = ""
    via: str = ""
    built: str = ""
    built_via: str = ""


def _own_symbol(symbol: str, path: str) -> ctypes.CDLL | None:
    """The handle of ``path`` if it defines ``symbol`` itself; a dependency's answer would be another library's."""
    library = maps.handle(path)
    where = maps.resolves(symbol, library._handle)
    return library if where and os.path.realpath(where) == os.path.realpath(path) else None


def _constant(symbol: str, library: ctypes.CDLL) -> str:
    number = ctypes.c_uint32.from_address(maps.address(symbol, library._handle)).value
    return f"{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _cudart(function: Any) -> str:
    function.restype = ctypes.c_size_t
    number = int(function())
    return f"{number // 1000}.{number % 1000 // 10}"


class NoDriver(Exception):
    """The question is not put where there is no driver."""


def _cupti(library: ctypes.CDLL) -> str:
    """CUPTI 13 looks for the driver for a second and then crashes where there is none (reproduced): it is not asked."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoDriver("was not called: without a driver it crashes") from None
    return _single(library.cuptiGetVersion)


def nccl_tag(path: str) -> str:
    """The CUDA that the NCCL in the file ``path`` names in its version text, empty if it names none."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            found = _NCCL_TAG.search(data, 0, min(len(data), _NCCL_MOST))
            return found.group(1).decode() if found else ""
    except (OSError, ValueError):
        return ""


def _say(name: str, symbol: str, library: ctypes.CDLL) -> str:
    if name == "cupti":
        return _cupti(library)
    if name in ASKED:
        return ASKED[name][1](getattr(library, symbol))
    return _constant(symbol, library)


class _Question(NamedTuple):
    """One call into a mapped library: the place of the library in the list, and whether it asks for its build."""

    place: int
    is_built: bool
    symbol: str
    call: Callable[[], str]


def _questions(index: int, name: str, path: str) -> Iterator[_Question | LibraryVersion]:
    """The calls that a library is asked with, or why it cannot be."""
    symbol = ASKED[name][0] if name in ASKED else CONSTANTS.get(name, "")
    try:
        library = _own_symbol(symbol, path) if symbol else None
        built = _own_symbol(BUILT[name], path) if name in BUILT else None
    except OSError as error:
        yield LibraryVersion(via=str(error))
        return
    if symbol and library is None:
        yield LibraryVersion(via=f"it does not define {symbol}")
    if symbol and library is not None:
        yield _Question(index, False, symbol, partial(_say, name, symbol, library))
    if built is not None:
        yield _Question(index, True, BUILT[name], partial(_cudart, getattr(built, BUILT[name])))


def versions(asked: list[tuple[str, str]]) -> list[LibraryVersion]:
    """What each mapped library, given by family and path, says of itself; one child answers for all that survive it."""
    said = [LibraryVersion(via="it offers no version function") for _ in asked]
    questions: list[_Question] = []
    for index, (name, path) in enumerate(asked):
        for one in _questions(index, name, path):
            if isinstance(one, _Question):
                questions.append(one)
            else:
                said[index] = one
        if name == "nccl":
            tag = nccl_tag(path)
            said[index] = said[index]._replace(built=tag, built_via="its version text" if tag else "")
    answers = ask_all([question.call for question in questions], _ASK_S)
    for number, question in enumerate(questions):
        answer, why = answers[number]
        via = f"{question.symbol} {why.replace('Refused: ', '').replace('NoDriver: ', '')}" if why else question.symbol
        value = "" if why else str(answer)
        fields = {"built": value, "built_via": via} if question.is_built else {"version": value, "via": via}
        said[question.place] = said[question.place]._replace(**fields)
    return said


def libraries(
    before: list[str], opened: dict[str, str], owner_of: Callable[[str], tuple[str, str]] = lambda path: ("", "")
) -> list[dict[str, str]]:
    """The mapped libraries of CUDA, torch and OpenMP in load order, as fields of a Library.

    ``before`` are the objects mapped before torch, ``opened`` says who opened which path by its full name,
    ``owner_of`` names the distribution and version that brought the file at a real path.
    """
    spelled, entries, gone = maps.mapped(), origin.library_path(), maps.deleted()
    asked = [(family(path), path) for path in spelled if is_cuda(family(path))]
    said = {asked[index][1]: one for index, one in enumerate(versions(asked))}
    early = set(before)
    earlier: list[origin.Searches] = []
    told: list[dict[str, str]] = []
    for path in spelled:
        name = family(path)
        how = origin.derive(path, earlier, early, opened, entries) if name else ""
        lists = origin.searches(path)
        if lists:
            earlier.append(lists)
        if not name:
            continue
        real = os.path.realpath(path)
        one = said.get(path, LibraryVersion())
        owner, owner_version = owner_of(real)
        row = {
            "name": name,
            "soname": os.path.basename(path),
            "path": real + (" (deleted)" if real in gone or path in gone else ""),
            "version": one.version,
            "version_via": one.via,
            "owner": owner,
            "owner_version": owner_version,
            "found_via": how,
            "built_with": one.built,
            "built_with_via": one.built_via,
        }
        told.append(row)
    return told
