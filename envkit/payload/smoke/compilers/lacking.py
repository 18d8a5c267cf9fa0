"""What compiles at run time needs besides Python: a compiler that is found, and Python's headers."""

from __future__ import annotations

import os
import shutil
import sysconfig

# the names that C, C++ and CUDA compilers and the assembler go by
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc", "as", "ld")


def lacking_headers(what: str) -> str:
    """Why ``what`` cannot be built against Python's headers; empty where they are there."""
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    return "" if os.path.exists(header) else f"{what} against {header}, which is absent"


def lacking_c(what: str) -> str:
    """Why ``what`` cannot be built in C here; empty where nothing is missing."""
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "")
    if not compiler:
        return f"{what} with a C compiler and none is in PATH"
    return lacking_headers(what)


def lacking_cpp(what: str) -> str:
    """Why ``what`` cannot be built in C++ here; empty where nothing is missing.

    The compiler is the one that inductor takes: CXX, else g++ (torch/_inductor/config.py, ``cpp.cxx``).  A CXX that
    does not work is a fault of the image and no lack, so it is left to the build to tell.
    """
    if not os.environ.get("CXX") and not shutil.which("g++"):
        return f"{what} with g++, which is not in PATH"
    return lacking_headers(what)


def nvcc() -> str:
    """The path of the CUDA compiler where torch looks for it, else empty.

    Source: torch/utils/cpp_extension.py, ``_find_cuda_home``.
    """
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if home and os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
            return os.path.join(home, "bin", "nvcc")
    found = shutil.which("nvcc")
    usual = "/usr/local/cuda/bin/nvcc"
    return found or (usual if os.access(usual, os.X_OK) else "")


def lacking_nvcc(what: str) -> str:
    """Why ``what`` cannot be built from CUDA C++ here; empty where nothing is missing.

    nvcc takes the g++ in PATH unless NVCC_CCBIN names another.
    """
    if not nvcc():
        return f"{what} with nvcc, which is neither in PATH nor below CUDA_HOME or /usr/local/cuda"
    if not os.environ.get("NVCC_CCBIN") and not shutil.which("g++"):
        return f"{what} with nvcc, which wants g++, and that is not in PATH"
    return ""
