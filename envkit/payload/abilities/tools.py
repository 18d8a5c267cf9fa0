"""What needs no torch: compilers, Triton's assembler, and the modules that torch.compile imports."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from envkit.payload import programs
from envkit.payload.abilities import Absent, Attempt, Untried, caches, try_all
from envkit.payload.probe import wheels

_BUDGET_S = 60.0
_TOOL_S = 30.0
_RELEASE = re.compile(r"release (\d+\.\d+), V")
_TRITON = ("triton", "pytorch-triton", "triton-nightly")
_PTXAS = {"TRITON_PTXAS_PATH": "ptxas", "TRITON_PTXAS_BLACKWELL_PATH": "ptxas-blackwell"}
_C = "#include <stdlib.h>\nint made(void) { return abs(-42); }\n"
_CPP = '#include <cstdlib>\nextern "C" int made() { return std::abs(-42); }\n'
_WITH_PYTHON = "#include <Python.h>\nint made(void) { return PY_MAJOR_VERSION == 3 ? 42 : 0; }\n"
# distribution that torch's METADATA asks for: the module that torch.compile imports of it, or that it imports itself
MODULES = {
    "sympy": "sympy", "networkx": "networkx", "jinja2": "jinja2", "fsspec": "fsspec", "filelock": "filelock",
    "typing-extensions": "typing_extensions",
}  # fmt: skip


def _compile(command: Sequence[str], source: str, suffix: str, more: Sequence[str] = ()) -> None:
    """Raises RuntimeError with the compiler's words where it makes no shared object of ``source``."""
    try:
        folder = tempfile.mkdtemp(prefix="envkit-abilities-")
    except OSError as error:
        raise Untried(f"there is no folder for temporary files: {error}") from error
    try:
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            raise Untried(f"nothing in {folder} may be executed")
        path, out = os.path.join(folder, "made" + suffix), os.path.join(folder, "made.so")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        try:
            code, said = programs.told([*command, "-O1", "-shared", "-fPIC", *more, path, "-o", out], _TOOL_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"{command[0]} does not run: {error}") from error
        if code:
            told = [line.strip() for line in said.splitlines() if "error" in line or "cannot" in line or "ld:" in line]
            first = (told or said.splitlines() or ["it said nothing"])[0]
            raise RuntimeError(f"{command[0]} ended with {code}: {first}")
        if ctypes.CDLL(out).made() != 42:
            raise RuntimeError(f"what {command[0]} makes computes wrong")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def c_compiler() -> tuple[list[str], str]:
    """The C compiler that Triton takes and who named it: CC, else gcc, else clang (triton/runtime/build.py)."""
    words = os.environ.get("CC", "").split()
    found = next(filter(None, map(shutil.which, ("gcc", "clang", "cc"))), "")
    return (words, "CC") if words else ([found] if found else [], "PATH")


def cpp_compiler() -> tuple[list[str], str]:
    """The C++ compiler that inductor takes and who named it: CXX, else g++ (torch/_inductor/config.py, cpp.cxx)."""
    words = os.environ.get("CXX", "").split()
    found = shutil.which("g++") or ""
    return (words, "CXX") if words else ([found] if found else [], "PATH")


def _compiler(command: list[str], source: str, suffix: str, names: str, more: Sequence[str] = ()) -> None:
    if not command:
        raise Absent(f"there is no {names} on PATH")
    _compile(command, source, suffix, more)


def _compilers(with_triton: bool) -> Iterator[Attempt]:
    c, by = c_compiler()
    yield Attempt("c-compiler", " ".join(c) or "gcc", partial(_compiler, c, _C, ".c", "gcc or clang"), by)
    cpp, by = cpp_compiler()
    yield Attempt("c++-compiler", " ".join(cpp) or "g++", partial(_compiler, cpp, _CPP, ".cpp", "g++"), by)
    if c and with_triton:
        include = sysconfig.get_paths()["include"]
        what = os.path.join(include, "Python.h")
        yield Attempt("python-headers", what, partial(_headers, what, c, include))


def _headers(header: str, command: list[str], include: str) -> None:
    if not os.path.exists(header):
        raise Absent(f"there is no {header}")
    _compile(command, _WITH_PYTHON, ".c", (f"-I{include}",))


def _ptxas(path: str) -> str:
    if not os.path.isfile(path):
        raise Absent(f"there is no file {path}")
    try:
        code, said = programs.told([path, "--version"], _TOOL_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"it does not run: {error}") from error
    found = _RELEASE.search(said)
    if code or not found:
        raise RuntimeError(f"it ended with {code} and names no release: {said[-200:]}")
    return str(found[1])


def _assemblers(dists: list[wheels.Dist]) -> Iterator[Attempt]:
    """Triton's own assemblers, as its RECORD lists them, and those that variables name."""
    listed: list[tuple[str, str]] = []
    for dist in dists:
        if dist.name in _TRITON:
            files = re.findall(r"^([^,\n]*/bin/ptxas[^/,\n]*),", dist.record, re.MULTILINE)
            listed += [(os.path.normpath(os.path.join(dist.base, file)), dist.name) for file in files]
    for path, owner in listed:
        yield Attempt("ptxas", path, partial(_ptxas, path), owner)
    if listed:
        for variable in _PTXAS:
            path = os.environ.get(variable, "")
            if path:
                yield Attempt("ptxas", path, partial(_ptxas, path), variable)


def _modules(dists: list[wheels.Dist]) -> Iterator[Attempt]:
    torch = next((dist for dist in dists if dist.name == "torch"), None)
    lines = [line for line in torch.requires if "extra ==" not in line] if torch is not None else []
    asked = {wheels.normalise(re.split(r"[\s;<>=!~(\[]", line)[0]) for line in lines}
    for name, module in MODULES.items():
        if name in asked:
            yield Attempt("module", module, partial(_import, module), name)


def _import(module: str) -> None:
    try:
        made = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise Absent(f"there is no module named {module}") from error
        raise
    if getattr(made, "__file__", None) is None:  # Python takes any folder of that name for a package
        raise Absent(f"the folder of {module} has no __init__.py")


def tried() -> dict[str, Any]:
    """What was tried, and the folders that are written to."""
    dists = wheels.distributions()
    has_triton = any(dist.name in _TRITON for dist in dists)
    attempts = [
        *_modules(dists),
        *_compilers(has_triton),
        *_assemblers(dists),
    ]
    return {"tried": try_all(attempts, _BUDGET_S), "caches": caches.seen(os.environ)}
