"""AOTInductor packages whose library cannot be loaded: one that is no library, which must be an exception of Python's,
and one whose constructor ends the process, which must be told as the signal that it is."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from typing import Any

from envkit.payload import isolate, programs
from envkit.payload.smoke import provoke
from envkit.payload.smoke.bench import Bench

_DIES = """
#include <csignal>
__attribute__((constructor)) static void die() { std::raise(SIGSEGV); }
"""
_TORN = b"\x7fELF\x02\x01\x01" + bytes(9)  # the first bytes of a library, and no more
_ROOT = "provoke"
_BUILD_S = 60.0


def _built(folder: str) -> bytes:
    """A library that dies when it is loaded; empty where there is no compiler to make it.

    Raises RuntimeError with what the compiler says where it fails.
    """
    compiler = shutil.which(os.environ.get("CXX") or "g++") or shutil.which("c++")
    if not compiler:
        return b""
    source, target = os.path.join(folder, "error-dies.cpp"), os.path.join(folder, "error-dies.so")
    with open(source, "w", encoding="ascii") as file:
        file.write(_DIES)
    code, said = programs.told([compiler, "-shared", "-fPIC", source, "-o", target], _BUILD_S)
    if code:
        raise RuntimeError(f"{compiler} links no library: {said[:500]}")
    with open(target, "rb") as built:
        return built.read()


def package(path: str, library: bytes) -> None:
    """Writes an archive that torch takes for a package for the CPU and opens ``library`` out of.

    Releases differ in whether the entries lie below a folder, so they lie in both places (torch, pt2_archive).
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        head = {"archive_format": "pt2", "archive_version": "0", "byteorder": "little", "version": "3"}
        for name, text in head.items():
            archive.writestr(f"{_ROOT}/{name}", text)
        for folder in (f"{_ROOT}/data/aotinductor/model", "data/aotinductor/model"):
            archive.writestr(f"{folder}/provoke.wrapper.cpp", "")
            archive.writestr(f"{folder}/provoke.wrapper.so", library)
            archive.writestr(f"{folder}/provoke.wrapper_metadata.json", json.dumps({"AOTI_DEVICE_KEY": "cpu"}))


def _load(path: str, library: bytes) -> str:
    """Loads the library as a package, or by itself where the release has no packages."""
    import torch._inductor

    if hasattr(torch._inductor, "aoti_load_package"):
        package(path, library)
        loaded: Any = torch._inductor.aoti_load_package(path)
    else:
        from torch import _export

        path += ".so"
        with open(path, "wb") as file:
            file.write(library)
        loaded = _export.aot_load(path, "cpu")
    return type(loaded).__name__


def _told(name: str, ending: isolate.Ending) -> bool:
    if name == "dies":
        return ending.ended == "killed" and ending.signal == "SIGSEGV"
    return ending.ended == "raised" and ending.detail.startswith("RuntimeError") and "dlopen" in ending.detail


def run(bench: Bench) -> None:
    """Measures ``reported.wrong``, ``dies.offered`` (whether a compiler is here) and ``after.wrong``."""
    folder = bench.folder()
    libraries = {"torn": _TORN, "dies": _built(folder)}
    bench.note("dies.offered", int(bool(libraries["dies"])))
    paths = {name: os.path.join(folder, f"error-{name}.pt2") for name in libraries}
    works = {
        name: (lambda name=name, library=library: _load(paths[name], library) if provoke.planted(bench) else "")
        for name, library in libraries.items()
        if library
    }
    for name, ending in provoke.ends(works, 60.0, {"TMPDIR": folder}).items():
        provoke.tell(bench, "reported.wrong", _told(name, ending), f"{name}: {provoke.words(ending)}")
    provoke.after_torch(bench)
