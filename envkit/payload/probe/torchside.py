"""Imports torch, asks what it says of its build, and has it load what it loads late, in the way it does that itself."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from envkit.payload.probe import maps

_LATE = ("libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so")  # at::DynamicLibrary opens them beside libtorch_cuda.so
# The cuDNN shim opens one sub-library in the version check of each of its parts.
_MAJOR_8 = ("OpsInfer", "OpsTrain", "CnnInfer", "CnnTrain", "AdvInfer", "AdvTrain")
_CHECKS = tuple(f"cudnn{part}VersionCheck" for part in ("Graph", "Ops", "Cnn", "Adv", *_MAJOR_8))


def import_torch() -> tuple[str, dict[str, str]]:
    """How ``import torch`` ended, and who gave which path to ctypes meanwhile.

    The ending is "done", "absent" (no such module) or "raised" and the error's text.
    """
    opened: dict[str, str] = {}
    listening = [True]

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if listening[0] and event == "ctypes.dlopen" and isinstance(arguments[0], str):
            frame = sys._getframe(1)
            while frame.f_back is not None and os.path.basename(os.path.dirname(frame.f_code.co_filename)) == "ctypes":
                frame = frame.f_back
            opened[arguments[0]] = "ctypes in " + "/".join(frame.f_code.co_filename.split("/")[-2:])

    sys.addaudithook(note)
    try:
        importlib.import_module("torch")
    except BaseException as error:  # whatever a broken torch raises, SystemExit included, is the observation
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        return "absent" if absent else f"raised {type(error).__name__}: {error}", opened
    finally:
        listening[0] = False
    return "done", opened


def _cudnn_integer(parts: tuple[int, ...]) -> int:
    major, minor, patch = parts
    return major * (10000 if major >= 9 else 1000) + minor * 100 + patch


def build() -> dict[str, Any]:
    """What the imported torch says of its build; raises what its own functions raise.

    torch.cuda.nccl.version() is the constant it was compiled with, not the loaded library's version.
    """
    torch = importlib.import_module("torch")
    core = torch._C
    cuda = torch.version.cuda or ""
    cudnn = _cudnn_integer(core._cudnn.getCompileVersion()) if cuda and getattr(core, "_has_cudnn", False) else 0
    nccl = ""
    if cuda and hasattr(core, "_nccl_version"):
        said = importlib.import_module("torch.cuda.nccl").version()
        nccl = ".".join(str(part) for part in said[:3])
    flags = core._cuda_getArchFlags() if cuda else None
    return {
        "version": str(torch.__version__),
        "cuda": cuda,
        "cudnn": cudnn,
        "nccl": nccl,
        "archs": (flags or "").split(),
        "path": os.path.dirname(os.path.realpath(str(torch.__file__))),
    }


def _open(path: str) -> str:
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return str(error)
    return ""


def _call(library: ctypes.CDLL, name: str) -> str:
    code = getattr(library, name)()
    return f"returned {code}" if code else ""


def _engines(library: ctypes.CDLL) -> str:
    """Finalises an empty pointwise descriptor, upon which cuDNN opens its heuristics and engines; needs no GPU."""
    descriptor = ctypes.c_void_p()
    code = library.cudnnBackendCreateDescriptor(0, ctypes.byref(descriptor))  # CUDNN_BACKEND_POINTWISE_DESCRIPTOR
    if code:
        return f"cudnnBackendCreateDescriptor returned {code}"
    library.cudnnBackendFinalize(descriptor)  # what it says of an empty descriptor does not matter
    library.cudnnBackendDestroyDescriptor(descriptor)
    return ""


def late_steps(torch_cuda: str, opened: dict[str, str]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each thing that torch would load later, with what loads it now and returns "" or the error.

    ``torch_cuda`` is the path of the mapped libtorch_cuda.so; ``opened`` receives who opened which path.  A step may
    kill the process: nothing is rehearsed, because forking a process that holds torch takes longer than the loads.
    """
    for name in _LATE:
        path = os.path.join(os.path.dirname(torch_cuda), name)
        if os.path.exists(path):
            opened[path] = "opened beside libtorch_cuda.so, as torch does late"
            yield name, functools.partial(_open, path)
    shim = maps.resolves("cudnnGetVersion") or maps.resolves("cudnnGetVersion", maps.handle(torch_cuda)._handle)
    if shim:
        library = maps.handle(shim)
        for name in _CHECKS:
            if hasattr(library, name):
                yield name, functools.partial(_call, library, name)
        if hasattr(library, "cudnnBackendFinalize"):
            yield "cudnnBackendFinalize", functools.partial(_engines, library)
