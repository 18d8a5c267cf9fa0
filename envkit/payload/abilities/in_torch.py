"""What needs a process that has imported torch: each thing is tried in a fork of it."""

from __future__ import annotations

import ctypes
import getpass
import importlib
import importlib.machinery
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from envkit.payload import cuda_error, elf
from envkit.payload.abilities import DRIVER, DRIVER_CALL, Absent, Attempt, Untried, lacking, nvrtc, try_all
from envkit.payload.probe import libs, maps, wheels

BUDGET_S = 120.0
_TESTS = re.compile(r"lib\w*_test\.so|libbackend_with_compiler\.so|libaoti_custom_ops\.so")  # of torch's own tests
_TORCH_LIBRARY = re.compile(r"lib(?:torch|c10)(?:_\w+)?\.so\Z")
_OWN = ("torch", "triton", "nvidia", "functorch", "torchgen")
_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_PARSERS = ("_cuda_cudaCachingAllocator_set_allocator_settings", "_accelerator_setAllocatorSettings")
_DEEP, _MOST_ENTRIES = 4, 20_000  # of a folder that is no installation: how far, and how much, is looked at
_SKIPPED = ("__pycache__", "node_modules")


def _open(path: str) -> None:
    """Opens a library with all that it needs.

    Where the driver is what it lacks, or a function of a newer driver, all else that it needs is opened in its place.
    Raises OSError or Untried.
    """
    try:
        ctypes.CDLL(path)
        return
    except OSError as error:
        missing = lacking(str(error))
        if not DRIVER.fullmatch(missing["library"]) and not DRIVER_CALL.fullmatch(missing["symbol"]):
            raise
    file = elf.read(elf.mapped(path))
    driver = next(filter(DRIVER.fullmatch, (missing["library"], *file.needed)), "")
    if not driver:  # it takes the function from nowhere
        raise OSError(f"{path}: undefined symbol: {missing['symbol']}")
    folders = [*elf.expand((*file.rpath, *file.runpath), path), os.path.dirname(path)]
    for soname in file.needed:
        if not DRIVER.fullmatch(soname):
            there = (os.path.join(folder, soname) for folder in folders)
            ctypes.CDLL(next(filter(os.path.exists, there), soname))
    what = f"{missing['symbol']} of a newer {driver}" if missing["symbol"] else driver
    raise Untried(f"it needs {what}, which a driver brings", driver)


def _late(path: str) -> bool:
    """Whether torch opens the file only when it is used: by the name of its family, or as a part of torch."""
    name = libs.family(path)
    inside = os.path.basename(os.path.dirname(path)) == "lib" and "/torch/lib/" in f"/{path}" and ".so" in path
    opened = name.startswith("cudnn") or name in ("nvrtc", "nvrtc-builtins", "nvjitlink")
    return (opened or inside) and ".alt." not in path and not _TESTS.fullmatch(os.path.basename(path))


def _libraries(torch: str, dists: list[wheels.Dist], mapped: set[str]) -> Iterator[Attempt]:
    """What RECORD lists of what torch opens late, there or not, and what lies beside libtorch.so."""
    found: dict[str, str] = {}
    for dist in dists:
        if dist.name == "torch" or dist.name.startswith(("nvidia-cudnn", "nvidia-cuda-nvrtc", "nvidia-nvjitlink")):
            found.update((entry.path, dist.name) for entry in wheels.entries(dist, _late))
    folder = os.path.join(torch, "lib")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if _late(path) and re.search(r"\.so(?:\.[0-9.]+)?\Z", name):
            found.setdefault(path, "torch")
    for path, owner in found.items():
        if os.path.realpath(path) not in mapped:
            yield Attempt("library", path, partial(_open, path), owner)


def _program(path: str) -> None:
    if not os.path.isfile(path):
        raise Absent(f"there is no file {path}")
    if not os.access(path, os.X_OK):
        raise RuntimeError("it may not be executed by this user")


def _numpy() -> None:
    """A tensor out of an array and back, and an array out of a tensor."""
    try:
        numpy: Any = importlib.import_module("numpy")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "numpy":
            raise
        raise Absent("there is no module named numpy") from error
    torch: Any = importlib.import_module("torch")
    given = numpy.arange(6, dtype=numpy.float32)
    back = torch.from_numpy(given).numpy()
    if list(torch.ones(3).numpy()) != [1.0, 1.0, 1.0] or list(back) != list(given):
        raise RuntimeError("numbers changed on the way between NumPy and torch")


def _settings(variable: str, value: str) -> None:
    """Gives the allocator's settings to torch's own parser, which needs no GPU, as the first allocation does."""
    core: Any = importlib.import_module("torch._C")
    parser = next((getattr(core, name) for name in _PARSERS if hasattr(core, name)), None)
    if parser is None:
        raise Untried("this torch has no function that takes the settings of its allocator without a GPU")
    for name in _SETTINGS:  # the parser reads the variables as well, and another's fault is not this one's
        os.environ.pop(name, None)
    os.environ[variable] = value
    try:
        parser(value)
    except Exception as error:
        rest = ",".join(part for part in value.split(",") if not part.strip().startswith("backend:"))
        if rest == value or not cuda_error.code_of(error)[0]:
            raise
        os.environ[variable] = rest  # another backend needs a GPU to start
        parser(rest)


def _variables() -> tuple[str, ...]:
    """The variables in which this torch reads the settings of its allocator; none where it is built without CUDA."""
    torch: Any = sys.modules["torch"]
    if not getattr(getattr(torch, "version", None), "cuda", None):
        return ()
    newer = hasattr(torch._C, _PARSERS[1])  # which came with the variable that is for every kind of GPU
    return _SETTINGS if newer else _SETTINGS[:1]


def _user() -> str:
    """The user's name as inductor asks for it, where no variable names its folder."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        if os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
            return ""
    for module in ("torch._inductor.runtime.cache_dir_utils", "torch._inductor.runtime.runtime_utils"):
        try:
            default = importlib.import_module(module).default_cache_dir
        except (ImportError, AttributeError):
            continue
        default()
        return ""
    return getpass.getuser()


def _roots(folder: str) -> Iterator[tuple[str, bool]]:
    """Where modules are looked for, and whether it is an installation's folder rather than somebody's own."""
    standard = {os.path.realpath(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib")}
    standard |= {os.path.join(one, "lib-dynload") for one in standard}
    seen: set[str] = set()
    for entry in [folder, *sys.path]:
        real = os.path.realpath(entry or ".")
        if real not in seen | standard | {"/"} and os.path.isdir(real):
            seen.add(real)
            yield real, os.path.basename(real) in ("site-packages", "dist-packages")


def _files(root: str, installed: bool) -> Iterator[str]:
    left = _MOST_ENTRIES
    for folder, below, files in os.walk(root):
        depth = folder[len(root) :].count(os.sep)
        names = [one for one in below if one not in _SKIPPED and not one.startswith(".")]
        if depth == 0 and installed:
            names = [one for one in names if one not in _OWN]
        inside = any(os.path.exists(os.path.join(folder, mark)) for mark in ("pyvenv.cfg", "conda-meta"))
        if not installed:  # what can be a part of a module's name
            names = [one for one in names if one.isidentifier() and one != "build"]
        stop = not installed and (depth >= _DEEP or inside or os.path.basename(folder).endswith("-packages"))
        below[:] = [] if stop else sorted(names)
        left -= len(files) if not installed else 0
        if left < 0:
            return
        for name in files:
            if name.endswith(".so") and (installed or not inside):
                yield os.path.join(folder, name)


def _module_of(name: str) -> str:
    """The module that a file name can be imported as here, empty if as none."""
    suffixes = sorted(importlib.machinery.EXTENSION_SUFFIXES, key=len, reverse=True)
    stem = next((name[: -len(one)] for one in suffixes if name.endswith(one)), "")
    return stem if stem.isidentifier() else ""


def _is_extension(path: str, everything: bool) -> bool:
    """Whether a file is a module that calls torch or CUDA, or has operators of torch; with ``everything``, any module.

    What neither is nor does is some package's own library, which it may choose among many.
    """
    module = _module_of(os.path.basename(path))
    if not module:
        return False
    try:
        data = elf.mapped(path)
        file = elf.read(data)
    except (OSError, ValueError):
        return False
    at, size = file.sections.get(".dynstr", (0, 0))
    is_module = f"\0PyInit_{module}\0".encode() in bytes(data[at : at + size])
    of_torch = any(map(_TORCH_LIBRARY.match, file.needed))
    of_cuda = any(libs.is_cuda(libs.family(one)) for one in file.needed)
    return of_torch or (is_module and (of_cuda or everything))


def _owner(path: str, dists: list[wheels.Dist]) -> str:
    for dist in dists:
        inside = os.path.relpath(path, dist.base)
        if not inside.startswith("..") and re.search(rf"^{re.escape(inside)},", dist.record, re.MULTILINE):
            return str(dist.name)
    return ""


def _extensions(folder: str, dists: list[wheels.Dist]) -> Iterator[Attempt]:
    seen: set[str] = set()
    for root, installed in _roots(folder):
        for path in _files(root, installed):
            real = os.path.realpath(path)
            if real not in seen and _is_extension(real, everything=not installed):
                seen.add(real)
                yield Attempt("extension", path, partial(_open, path), _owner(path, dists))


def tried(capabilities: Sequence[int], folder: str) -> list[dict[str, Any]]:
    """A row for each thing; ``capabilities`` as NVRTC counts them, ``folder`` is where the job's program lies."""
    torch = os.path.dirname(os.path.realpath(str(sys.modules["torch"].__file__)))
    dists, mapped = wheels.distributions(), maps.mapped()
    attempts = list(_libraries(torch, dists, {os.path.realpath(path) for path in mapped}))
    manager = os.path.join(torch, "bin", "torch_shm_manager")
    if os.path.lexists(manager):
        attempts.append(Attempt("program", manager, partial(_program, manager), "torch"))
    attempts += nvrtc.attempts(torch, mapped, capabilities)
    attempts.append(Attempt("numpy", "numpy", _numpy))
    for variable in _variables():
        value = os.environ.get(variable, "")
        if value:
            attempts.append(Attempt("allocator-settings", f"{variable}={value}", partial(_settings, variable, value)))
    attempts.append(Attempt("user-name", f"uid {os.getuid()}", _user))
    attempts += _extensions(folder, dists)
    return try_all(attempts, BUDGET_S - 10)
