"""What compiles at run time needs besides Python: a compiler that is found, and Python's headers."""

from __future__ import annotations

import os
import shutil
import sysconfig


def _header() -> str:
    return os.path.join(sysconfig.get_paths()["include"], "Python.h")


def lacking_c(what: str) -> str:
    """Why ``what`` cannot be built in C here; empty where nothing is missing."""
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "")
    if not compiler:
        return f"{what} with a C compiler and none is in PATH"
    return "" if os.path.exists(_header()) else f"{what} against {_header()}, which is absent"


def lacking_cpp(what: str) -> str:
    """Why ``what`` cannot be built in C++ here; empty where nothing is missing.

    The compiler is the one that inductor takes: CXX, else g++ (torch/_inductor/config.py, ``cpp.cxx``).  A CXX that
    does not work is a fault of the image and no lack, so it is left to the build to tell.
    """
    if not os.environ.get("CXX") and not shutil.which("g++"):
        return f"{what} with g++, which is not in PATH"
    return "" if os.path.exists(_header()) else f"{what} against {_header()}, which is absent"
