"""The child that holds the user's code: imports it, calls the factory, runs the model, and tells what it saw."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from envkit.payload.placement import census, pretend, ranks
from envkit.payload.placement.lines import Places, caller
from envkit.payload.placement.watch import Watch, make_mode, tensors_in

HOW = ("run", "fake", "trace")
_DEVICE_WORDS = ("same device", "two devices", "different device", "on cpu", "is on cuda", "input_device")
_SYNC = "called a synchronizing CUDA operation"  # c10/cuda/CUDAFunctions.cpp, warn_or_error_on_sync


class PlacementRequest(NamedTuple):
    """``target`` is "module:factory", ``code`` a folder for sys.path, ``how`` one of HOW or "auto", ``gpus`` how many
    are pretended where none is; ``rank_folder`` is shared by a job's ranks, ``rank_s`` how long they wait."""

    target: str
    code: str
    how: str
    gpus: int = 1
    rank_folder: str = ""
    rank_s: float = 30.0


class BadFactoryResult(TypeError):
    """The factory's answer is not a model with inputs."""


class FactoryResult(NamedTuple):
    """What a factory returned."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    optimizer: Any = None
    loss: Any = None


def given(made: Any) -> FactoryResult:
    """A factory's answer: (model, inputs[, loss]), or a dict with model, inputs and, if wanted, optimizer and loss.

    Inputs are a tensor, a tuple or list of positional arguments, a dict of keyword arguments, or (args, kwargs).
    Raises BadFactoryResult for anything else.
    """
    optimizer = loss = None
    if isinstance(made, dict) and "model" in made:
        model, inputs = made["model"], made.get("inputs", ())
        optimizer, loss = made.get("optimizer"), made.get("loss")
    elif isinstance(made, (tuple, list)) and len(made) in (2, 3):
        model, inputs = made[:2]
        loss = made[2] if len(made) == 3 else None
    else:
        kind = type(made).__name__
        raise BadFactoryResult(f"the factory returned {kind}, not (model, inputs[, loss]) or a dict with both")
    if not callable(model):
        raise BadFactoryResult(f"the factory's model is a {type(model).__name__}, which cannot be called")
    if isinstance(inputs, dict):
        return FactoryResult(model, (), inputs, optimizer, loss)
    if isinstance(inputs, (tuple, list)):
        if len(inputs) == 2 and isinstance(inputs[0], (tuple, list)) and isinstance(inputs[1], dict):
            return FactoryResult(model, tuple(inputs[0]), inputs[1], optimizer, loss)
        return FactoryResult(model, tuple(inputs), {}, optimizer, loss)
    return FactoryResult(model, (inputs,), {}, optimizer, loss)


def factory_of(target: str) -> Any:
    """What "module:name" names; importing the module is all that is run.  Raises what the import raises."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def told_error(error: BaseException, places: Places, stage: str) -> dict[str, Any]:
    """An exception of the user's code or of torch as a document."""
    site = places.of_error(error)
    text = " ".join(str(error).split())[:1000]
    return {
        "stage": stage,
        "kind": type(error).__name__,
        "message": type(error).__name__ + (f": {text}" if text else ""),
        **site._asdict(),
        "by_user": isinstance(error, (BadFactoryResult, SystemExit)) or places.raised_by_user(error),
    }


def _refusal(error: BaseException, watch: Watch, places: Places) -> dict[str, Any] | None:
    """What two devices or dtypes met in, if that is what the exception is about."""
    text = str(error)
    walked: BaseException | None = error
    while watch.refusal is not None and walked is not None:  # one that the model's code caught did not end the run
        if str(walked) == watch.refused_with:
            return watch.refusal
        walked = walked.__cause__ or walked.__context__
    if any(word in text.lower() for word in _DEVICE_WORDS) and isinstance(error, RuntimeError):
        site = places.of_error(error)
        return {"kind": "devices", "op": "", **site._asdict(), "message": " ".join(text.split())[:1000], "tensors": []}
    return None


@contextlib.contextmanager
def waits_told(watch: Watch, places: Places) -> Iterator[None]:
    """Tells each time that CUDA makes the host wait, by torch's own warnings, with the line."""
    import torch

    before = torch.cuda.get_sync_debug_mode()
    shown = warnings.showwarning

    def show(message: Any, *rest: Any, **words: Any) -> None:
        if _SYNC not in str(message):
            shown(message, *rest, **words)
        elif watch.watching:
            watch.tell("wait", "", places.here(caller()))

    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=f".*{_SYNC}.*")
        warnings.showwarning = show
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def _forks(watch: Watch, places: Places, initialised: Callable[[], bool]) -> list[dict[str, str]]:
    """A list that grows with each fork of this process after CUDA was initialised."""
    told: list[dict[str, str]] = []

    def before() -> None:
        if initialised() and len(told) < 20:
            frame, data = caller(), os.path.join("torch", "utils", "data", "")
            files = [each.f_code.co_filename for each, _ in traceback.walk_stack(frame)] if frame is not None else []
            loader = any(data in file for file in files)
            site = places.here(frame)
            told.append({"where": site.where, "source": site.source, "by": "a data loader" if loader else "the code"})

    os.register_at_fork(before=before)
    return told


def _facts(how: str) -> dict[str, Any]:
    """torch's version, the GPUs it sees, and the way to follow a model here."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if how == "auto":
        how = "run" if count else "fake" if pretend.can_fake() else "trace"
    gpus = [torch.cuda.get_device_name(index) for index in range(count)]
    return {"torch": str(torch.__version__), "gpus": gpus, "how": how}


def follow(request: PlacementRequest, say: Callable[[Any], None]) -> dict[str, Any]:
    """Does all of it; what the user's code raises is data.  ``say`` gets each stage as it begins."""
    say({"stage": "import torch"})
    import torch

    from envkit.payload.placement.watch import storage_of

    facts = _facts(request.how)
    how = facts["how"]
    say({"facts": facts})
    sys.path.insert(0, os.path.realpath(request.code))
    sys.dont_write_bytecode = True  # the folder is the user's
    places = Places(request.code)
    gpus = pretend.Gpus(request.gpus)
    outer: Any = contextlib.nullcontext()
    claims = None
    if how == "fake":
        outer = pretend.fake_gpu(gpus)
    if how == "trace":
        claims = pretend.Claims(gpus)

    def device_of(tensor: Any) -> str:
        return claims.device_of(tensor) if claims else str(tensor.device)

    watch = Watch(places, device_of, {"run": "", "fake": "dtypes", "trace": "all"}[how])
    if claims:
        claims.install(watch)
    answer: dict[str, Any] = {"how": how, "error": None, "refusal": None, "backward": "not run", "doubt": ""}
    answer["forks"] = _forks(watch, places, lambda: torch.cuda.is_initialized() if how == "run" else watch.gpu_used)
    real_cuda = how == "run" and torch.cuda.is_available()
    stage = "import"
    mode = make_mode(watch, claims.call if claims else None)
    assert storage_of(torch.zeros(1))
    try:
        with outer, mode:
            say({"stage": stage})
            factory = factory_of(request.target)
            stage = "factory"
            say({"stage": stage})
            made = given(factory())
            answer.update(_before(made, watch))
            if how == "fake" and made.optimizer is not None and made.optimizer.state:
                answer["doubt"] = "the state of an optimizer cannot be followed with fake tensors"
            if request.rank_folder:
                stage = "ranks"
                say({"stage": stage})
                answer["ranks"] = ranks.exchange(ranks.mine(answer["groups"]), request.rank_folder, request.rank_s)
            stage = "forward"
            say({"stage": stage})
            with waits_told(watch, places) if real_cuda else contextlib.nullcontext():
                watch.watching = True
                outputs = made.model(*made.args, **made.kwargs)
                answer["groups"] += census.group("outputs", census.numbered(outputs), device_of)
                stage = "loss"
                total = made.loss(outputs) if made.loss is not None else summed(outputs, lambda one: one.float().sum())
                if how == "run" and total is not None:
                    stage = "backward"
                    say({"stage": stage})
                    total.backward()
                    answer["backward"] = "ran"
                watch.watching = False
    except (Exception, SystemExit) as error:
        watch.watching = False
        answer["error"] = told_error(error, places, stage)
        if stage in ("forward", "loss", "backward"):
            answer["refusal"] = _refusal(error, watch, places)
    if how == "run" and real_cuda and answer["error"] is None:
        torch.cuda.synchronize()
    return {**answer, "stage": stage, **_after(watch)}


def _before(made: FactoryResult, watch: Watch) -> dict[str, Any]:
    """What lies where before the run, and the names by which the run is told."""
    watch.places.name_modules(made.model)
    watch.name_state(made.model)
    watch.name_tensors("input", (made.args, made.kwargs))
    groups = census.state(made.model, made.optimizer, watch.device_of)
    groups += census.group("inputs", census.numbered((made.args, made.kwargs)), watch.device_of)
    watch.gpu_used = watch.gpu_used or any(entry["device"].startswith("cuda") for entry in groups)
    return {
        "groups": groups,
        "astray": census.astray(made.model, made.optimizer, watch.device_of),
        "declared_map": bool(getattr(made.model, "hf_device_map", None)),
    }


def _after(watch: Watch) -> dict[str, Any]:
    lines, unjudged = list(watch.lines.values()), sorted(watch.unjudged)[:20]
    return {"operations": watch.operations, "unjudged": unjudged, "lines": lines}


@contextlib.contextmanager
def untouched(model: Any) -> Iterator[None]:
    """Undoes what a run changes of torch's own: random numbers, and the model's buffers, modes and gradients.

    What a model's code keeps elsewhere (a cache in an attribute) stays as the run left it.
    """
    import random

    import torch

    modules = list(getattr(model, "modules", lambda: ())())
    held = [(part, key, value) for part in modules for key, value in part._buffers.items() if value is not None]
    saved = [(value, value.detach().clone()) for _, _, value in held]  # batch_norm tells no version of its own
    modes = [(part, part.training) for part in modules]
    state = random.getstate()
    parameters = getattr(model, "parameters", lambda: ())()
    used = sorted({each.device.index or 0 for each in parameters if each.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices=used), torch.no_grad():
            yield
    finally:
        random.setstate(state)
        with torch.no_grad():
            for value, copy in saved:
                value.copy_(copy)
        for part, key, value in held:
            part._buffers[key] = value
        for part, training in modes:
            part.training = training


def follow_here(model: Any, inputs: Any, optimizer: Any = None) -> dict[str, Any]:
    """Runs ``model`` once in this process, forward only, and undoes what it changed (``untouched``); the document.

    A wrapper that would speak to other ranks or compile (DistributedDataParallel, torch.compile) is taken off.
    """
    import torch

    for inside in ("_orig_mod", "module"):
        wrapper = "OptimizedModule" if inside == "_orig_mod" else "DistributedDataParallel"
        model = getattr(model, inside) if type(model).__name__ == wrapper else model
    places = Places(os.getcwd())
    watch = Watch(places, lambda tensor: str(tensor.device), "")
    facts = _facts("run")
    answer: dict[str, Any] = {"error": None, "refusal": None, "forks": None, "backward": "not run"}
    stage = "factory"
    try:
        made = given((model, inputs))._replace(optimizer=optimizer)
        if any(torch.nn.parameter.is_lazy(each) for each in getattr(model, "parameters", lambda: ())()):
            raise BadFactoryResult("the model has lazy parameters, which a run would make for good")
        answer.update(_before(made, watch))
        stage = "forward"
        real_cuda = torch.cuda.is_initialized()
        with untouched(model), make_mode(watch), waits_told(watch, places) if real_cuda else contextlib.nullcontext():
            watch.watching = True
            try:
                outputs = model(*made.args, **made.kwargs)
            finally:
                watch.watching = False
        answer["groups"] += census.group("outputs", census.numbered(outputs), watch.device_of)
    except Exception as error:  # whatever the model raises is the answer
        answer["error"] = told_error(error, places, stage)
        answer["refusal"] = _refusal(error, watch, places) if stage == "forward" else None
    return {
        "torch": facts["torch"],
        "gpus": facts["gpus"],
        "how": "run",
        "python": ".".join(map(str, sys.version_info[:3])),
        "ended": "ran",
        "stage": stage,
        "followed": {**answer, "stage": stage, **_after(watch)},
    }


def summed(outputs: Any, part: Callable[[Any], Any]) -> Any:
    """The sum of ``part`` of every floating output that has a gradient, on the first one's device; None for none."""
    parts = [part(each) for each in tensors_in(outputs) if each.requires_grad and each.is_floating_point()]
    return functools.reduce(lambda total, each: total + each.to(total.device), parts) if parts else None
