"""Loads and runs a package in processes that may die of it, and tells how far each came."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

from envkit.payload import isolate
from envkit.payload.aoti import crash
from envkit.payload.probe import maps

CHECKS = "AOTI_RUNTIME_CHECK_INPUTS"  # read once by the generated code, at the first call
_TAIL = 6000  # characters of a dead child's stderr that travel
_TENSORS = 1000


class LoadRequest(NamedTuple):
    """What is loaded and run.

    ``package`` is what ``package.read`` said; ``factory`` is "module:function", empty for inputs made from the
    package's own description; ``code`` is put before sys.path; ``runner`` is "cpu" or "cuda" for a bare library.
    """

    package: dict[str, Any]
    places: dict[str, tuple[int, int]]
    factory: str
    code: str
    runner: str


class NoInputs(Exception):
    """There is nothing to run the package with; the text says why."""


class _Stages:
    """Tells each stage before it begins, with what the process has mapped since the last."""

    def __init__(self, say: Callable[[Any], None]) -> None:
        self.say = say
        self.known: set[str] = set()

    def enter(self, stage: str) -> None:
        now = maps.mapped()
        self.say({"stage": stage, "mapped": [path for path in now if path not in self.known]})
        self.known.update(now)


def _torch(stages: _Stages, code: str) -> Any:
    """torch, imported; raises NotApplicable where there is none."""
    stages.enter("import torch")
    if code:
        sys.path.insert(0, code)
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise isolate.NotApplicable("there is no torch here") from None
        raise
    said = {
        "version": str(torch.__version__),
        "cuda": str(torch.version.cuda or ""),
        "path": os.path.dirname(str(torch.__file__)),
        "cxx11_abi": bool(torch.compiled_with_cxx11_abi()),
    }
    stages.say({"torch": said})
    return torch


def _tensor(tensor: Any, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": str(tensor.dtype).partition("torch.")[2],
        "device": str(tensor.device),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()) if "strided" in str(tensor.layout) else [],
    }


def _paths(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """The leaves of the arguments in the order in which torch flattens them, each with its name."""
    from torch.utils import _pytree

    try:
        leaves = _pytree.tree_flatten_with_path((args, kwargs))[0]
    except (AttributeError, TypeError, ValueError):  # an older release, or a container without names
        return [(f"leaf {at}", leaf) for at, leaf in enumerate(_pytree.tree_flatten((args, kwargs))[0])]
    named = []
    for path, leaf in leaves:
        first, rest = _pytree.keystr(path[:1]), _pytree.keystr(path[1:])
        named.append((("args" if first == "[0]" else "kwargs") + rest, leaf))
    return named


def _from_factory(factory: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that the user's function gives: a tuple of them, a dict by name, or both as a pair."""
    module, _, name = factory.partition(":")
    given = getattr(importlib.import_module(module), name)()
    if isinstance(given, dict):
        return (), given
    if not isinstance(given, (tuple, list)):
        return (given,), {}
    if len(given) == 2 and isinstance(given[0], (tuple, list)) and isinstance(given[1], dict):
        return tuple(given[0]), given[1]
    return tuple(given), {}


def _made(request: LoadRequest, torch: Any) -> list[Any]:
    """Tensors as the package describes its inputs, whole numbers 0 and others 1; raises NoInputs."""
    specs = request.package["inputs"]
    if not specs:
        raise NoInputs("the package does not say what inputs it takes")
    made = []
    for at, spec in enumerate(specs):
        if not spec["dtype"] or spec["shape"] is None:
            raise NoInputs(f"the package does not say what its input {at} must be")
        dtype = getattr(torch, spec["dtype"], None)
        shape = [spec["least"][at] if size is None else size for at, size in enumerate(spec["shape"])]
        if not isinstance(dtype, torch.dtype) or None in shape:
            raise NoInputs(f"the package describes its input {at} in part only")
        value = 1 if dtype.is_floating_point or dtype.is_complex else 0
        device = spec["device"] or request.package["device"] or "cpu"
        strides = spec["stride"]
        if None in strides or len(strides) != len(shape) or None in spec["shape"]:
            made.append(torch.full(shape, value, dtype=dtype, device=device))
        else:
            made.append(torch.empty_strided(shape, strides, dtype=dtype, device=device).fill_(value))
    return made


class _Inputs(NamedTuple):
    """What the package is called with: a flat list of tensors, or arguments as the user's code passes them."""

    flat: list[Any] | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _inputs(request: LoadRequest, torch: Any, stages: _Stages) -> _Inputs | None:
    """What the package is run with, told before it is used; None, with the reason told, where there is nothing."""
    stages.enter("make the inputs")
    try:
        if request.factory:
            args, kwargs = _from_factory(request.factory)
            found = _Inputs(None, args, kwargs)
            named = [(name, leaf) for name, leaf in _paths(args, kwargs) if isinstance(leaf, torch.Tensor)]
        else:
            found = _Inputs(_made(request, torch), (), {})
            named = [(request.package["inputs"][at]["name"], one) for at, one in enumerate(found.flat or ())]
    except NoInputs as why:
        stages.say({"inputs_missing": str(why)})
        return None
    except BaseException as error:  # the user's own code may end in any way
        who = f"{request.factory} raised" if request.factory else "making the inputs raised"
        stages.say({"inputs_missing": f"{who} {type(error).__name__}: {str(error)[:1000]}"})
        return None
    stages.say({"inputs": [_tensor(one, name) for name, one in named[:_TENSORS]]})
    return found


def _load(request: LoadRequest, torch: Any) -> Any:
    if request.package["form"] == "so":
        from torch import _export

        return _export.aot_load(request.package["path"], request.runner or "cpu")
    from torch._inductor import package

    return package.load_package(request.package["path"], request.package["model"])


def _flat(result: Any, torch: Any) -> list[Any]:
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]


def _work(request: LoadRequest, say: Callable[[Any], None]) -> dict[str, Any]:
    """Imports torch, makes the inputs, loads the package, runs it and lets go of it."""
    stages = _Stages(say)
    torch = _torch(stages, request.code)
    given = _inputs(request, torch, stages)
    stages.enter("load")
    loaded = _load(request, torch)
    outputs: list[dict[str, Any]] = []
    if given is not None:
        stages.enter("run")
        with torch.no_grad():
            result = loaded.loader.run(given.flat) if given.flat is not None else loaded(*given.args, **given.kwargs)
            found = _flat(result, torch)
            if any(one.is_cuda for one in found) or request.package["device"] == "cuda":
                torch.cuda.synchronize()
        outputs = [_tensor(one, f"output {at}") for at, one in enumerate(found[:_TENSORS])]
        del result, found
    stages.enter("unload")
    del loaded
    stages.enter("end")
    return {"outputs": outputs, "ran": given is not None}


def _link(request: LoadRequest, files: list[str], say: Callable[[Any], None]) -> dict[str, Any]:
    """Has the dynamic linker bind every symbol of the model's libraries now, in the order they come in."""
    stages = _Stages(say)
    _torch(stages, request.code)
    stages.enter("link")
    said = ""
    for file in files:
        try:
            ctypes.CDLL(file, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as raised:
            said = said or str(raised)
    stages.enter("end")
    return {"error": said}


def _one(task: isolate.Task) -> tuple[isolate.Ending, dict[str, Any]]:
    """How a task ended, and all that it said on the way."""
    heard: dict[str, Any] = {"stage": "start", "mapped": []}

    def hear(said: Any) -> None:
        if not isinstance(said, dict):
            return
        if "stage" in said:
            before = heard["stage"]
            heard["mapped"] += [{"path": str(path), "stage": before} for path in said.get("mapped", ())]
        heard.update({key: value for key, value in said.items() if key != "mapped"})

    return isolate.run_one(task._replace(heard=hear)), heard


def run(request: LoadRequest, budget_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """How loading and running the package ended, and what was heard on the way: stage, torch, inputs, mapped."""
    os.environ[CHECKS] = "1"
    task = isolate.Task("run", "", budget_s, work=lambda say: _work(request, say))
    ending, heard = _one(task)
    value = ending.value if isinstance(ending.value, dict) else {}
    ended = ending.ended
    detail = ending.detail
    if ended == "ran":
        ended = "done" if value.get("ran") else "loaded"
        detail = "" if value.get("ran") else str(heard.get("inputs_missing", ""))
    return {
        "ended": ended,
        "stage": heard["stage"],
        "detail": detail,
        "signal": ending.signal,
        "seconds": ending.seconds,
        "outputs": value.get("outputs", []),
        "stderr_tail": ending.stderr_tail[-_TAIL:],
    }, heard


def _extracted(request: LoadRequest, folder: str) -> list[str]:
    """The model's libraries as files; raises OSError where the folder has no room for them."""
    files = []
    for name, (start, size) in sorted(request.places.items()):
        target = os.path.join(folder, os.path.basename(name))
        with open(request.package["path"], "rb") as source, open(target, "wb") as copy:
            source.seek(start)
            left = size
            while left:
                piece = source.read(min(left, 1 << 22))
                if not piece:
                    raise OSError(f"{name} ends early")
                copy.write(piece)
                left -= len(piece)
        files.append(target)
    return files


def link(request: LoadRequest, budget_s: float) -> tuple[dict[str, Any] | None, list[dict[str, str]], str]:
    """What the dynamic linker says of the model's libraries, what is mapped then, and why nothing was learned."""
    if not request.places:
        return None, [], "the package holds no library that lies in it unpacked"
    try:
        with tempfile.TemporaryDirectory(prefix="envkit-aoti-") as folder:
            files = _extracted(request, folder)
            task = isolate.Task("link", "", budget_s, work=lambda say: _link(request, files, say))
            ending, heard = _one(task)
            names = {file: os.path.basename(file) for file in files}
            mapped = [{**one, "path": names.get(one["path"], one["path"])} for one in heard["mapped"]]
    except OSError as error:
        return None, [], f"its libraries could not be laid out as files: {error}"
    if heard["stage"] not in ("link", "end"):
        return None, mapped, f"{ending.ended} {ending.signal or ending.detail} while doing: {heard['stage']}"
    refused = str(ending.value.get("error", "")) if isinstance(ending.value, dict) else ""
    how = "" if ending.ended == "ran" else " ".join(filter(None, (ending.ended, ending.signal or ending.detail)))
    for file, name in names.items():
        refused = refused.replace(file, name)
    return {"error": refused, "died": how}, mapped, ""


def trail(request: LoadRequest, budget_s: float) -> tuple[dict[str, Any] | None, str]:
    """The machine's trail to the death that loading or running the package is, and why there is none."""
    os.environ[CHECKS] = "1"

    def work(_: Callable[[Any], None]) -> dict[str, Any]:
        return crash.trace(lambda: _work(request, lambda said: None))

    ending, _ = _one(isolate.Task("trail", "", budget_s, work=work))
    if ending.ended == "ran" and isinstance(ending.value, dict):
        return ending.value, ""
    return None, f"the repetition under ptrace {ending.ended}: {ending.detail or ending.signal}"
