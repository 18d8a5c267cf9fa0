"""The child that holds the user's code: takes the step in single precision, again, and in the wanted dtype."""

from __future__ import annotations

import contextlib
import math
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.placement.lines import Places
from envkit.payload.placement.watch import tensors_in
from envkit.payload.placement.work import FactoryResult, factory_of, given, summed, told_error, untouched
from envkit.payload.precision import shadow
from envkit.payload.precision.watch import Measured, Step, autocast_on, make_modes

DTYPES = ("bfloat16", "float16", "float32")
_NAMED = 12  # gradients that are told one by one, the worst first
_NOISY = 20
_COUNTS = ("elements", "significant", "lost", "not_finite", "not_finite_anywhere", "nans")  # of a result
_WIDE_BYTES = 40  # a parameter costs about this much where shadows hold doubles: itself, both shadows, gradients


class PrecisionRequest(NamedTuple):
    """``target`` is "module:factory", ``code`` a folder for sys.path, ``dtype`` one of DTYPES."""

    target: str
    code: str
    dtype: str
    autocast: bool


def _seeded() -> None:
    """The same random numbers for each step, whoever draws them."""
    torch.manual_seed(20)
    random.seed(20)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(20)


def _leaves(model: Any) -> list[tuple[str, Any]]:
    """The parameters and buffers with a point, by name."""
    found = []
    for kind in ("named_parameters", "named_buffers"):
        found += [(name, each) for name, each in getattr(model, kind, lambda: ())() if each.is_floating_point()]
    return found


def _recast(value: Any, dtype: Any) -> Any:
    """Nested inputs with their numbers cast; what is no tensor with a point is left."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point() or value.dtype == dtype:
            return value
        return value.detach().to(dtype).requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _recast(each, dtype) for key, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_recast(each, dtype) for each in value)
    return value


def cast(made: FactoryResult, dtype: Any, shadows: shadow.Shadows | None) -> FactoryResult:
    """The model, in place, and its inputs in ``dtype``; their shadows keep what they were."""
    before = {name: each.detach() for name, each in _leaves(made.model)}
    if hasattr(made.model, "to"):
        made.model.to(dtype)
    inputs = _recast((made.args, made.kwargs), dtype)
    if shadows is not None:
        pairs = [(each, before[name]) for name, each in _leaves(made.model) if name in before]
        pairs += zip(tensors_in(inputs), tensors_in((made.args, made.kwargs)))  # noqa: B905 - Python 3.8 has no strict
        for low, was in pairs:
            if shadow.followed(low) and low.dtype != was.dtype:
                shadows.plant(low.detach(), was)
    return made._replace(args=inputs[0], kwargs=inputs[1])


def objective(outputs: Any, loss: Callable[[Any], Any] | None) -> Any:
    """What is differentiated: the given loss, the outputs' own ``loss``, else half the sum of squares of all outputs,
    in single precision, so that each output's gradient is as large as itself.  None if nothing has a gradient."""
    if loss is not None:
        return loss(outputs)
    own = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", None)
    if isinstance(own, torch.Tensor) and own.dim() == 0:
        return own
    return summed(outputs, lambda each: (each.float() ** 2).sum() / 2)


@contextlib.contextmanager
def _autocast(step: Step) -> Iterator[None]:
    if not step.autocast:
        yield
        return
    with torch.autocast(step.device, dtype=step.dtype):
        if not autocast_on(step.device):
            raise RuntimeError(f"torch turns autocast to {step.dtype} off on {step.device}")
        yield


def take(made: FactoryResult, step: Step) -> dict[str, Any]:
    """One step: forward, loss, backward; what the model raises is data."""
    leaves = [each for _, each in getattr(made.model, "named_parameters", lambda: ())()]
    for each in leaves:
        each.grad = None
    answer: dict[str, Any] = {"error": None, "backward": "not run"}
    outputs = total = None
    comparing, asking = make_modes(step)
    try:
        with untouched(made.model), torch.enable_grad():
            _seeded()
            try:
                with asking, comparing:
                    step.watching = True
                    with _autocast(step):
                        outputs = made.model(*made.args, **made.kwargs)
                        step.stage = "loss"
                        total = objective(outputs, made.loss)
                    if total is not None and getattr(total, "requires_grad", False):
                        step.stage = "backward"
                        total.backward()
                        answer["backward"] = "ran"
            finally:
                step.watching = False
        if step.device == "cuda":
            torch.cuda.synchronize()
    except (Exception, SystemExit) as error:
        answer["error"] = told_error(error, step.places, step.stage)
        walked: BaseException | None = error
        while walked is not None and walked is not step.refused:
            walked = walked.__cause__ or walked.__context__
        step.refusal = step.refusal if walked is not None else None
    else:
        step.refusal = None
    if step.compares:
        answer["results"] = _results(made, step, outputs, total) if answer["error"] is None else []
    return {
        **answer,
        "dtype": str(step.dtype).replace("torch.", ""),
        "stage": step.stage,
        "refusal": step.refusal,
        "operations": step.operations,
        "casts": step.casts,
        "unfollowed": [{"op": name, "why": why} for name, why in sorted(step.unfollowed.items())][:20],
        "holes": list(step.holes.values()),
        "products": step.products,
    }


def _result(step: Step, what: str, low: Any) -> dict[str, Any]:
    """How far one result is off, and on what that is blamed."""
    wide = step.shadows.of(low)
    held = step.shadows.held(low)
    measured = Measured(low, wide)
    largest = wide.abs().max()
    counts = (wide.abs() >= step.eps * largest) & (wide != 0) & torch.isfinite(wide)
    lost = counts & (low == 0)
    return {
        "what": what,
        "error": measured.error,
        "size": min(math.sqrt(measured.base2), 1e30),
        "not_finite": measured.bad,
        "not_finite_anywhere": measured.both_bad,
        "nans": measured.nans,
        "noise": measured.error * step.scale >= math.sqrt(step.eps),
        "elements": int(low.numel()),
        "significant": int(counts.sum()),
        "lost": int(lost.sum()),
        "bad": held.bad if held else None,
        "origin": held.origin if held else None,
        "steepest": held.steepest if held else None,
    }


def _results(made: FactoryResult, step: Step, outputs: Any, total: Any) -> list[dict[str, Any]]:
    """The outputs, the loss, all gradients as one, and the gradients that are furthest off."""
    told = []
    for number, each in enumerate(tensors_in(outputs)):
        if shadow.followed(each) and number < _NAMED:
            told.append(_result(step, f"output {number}", each.detach()))
    if total is not None and shadow.followed(total):
        told.append(_result(step, "the loss", total.detach()))
    off2 = base2 = 0.0
    gradients = []
    for name, each in getattr(made.model, "named_parameters", lambda: ())():
        if each.grad is None or not shadow.followed(each.grad):
            continue
        measured = Measured(each.grad, step.shadows.of(each.grad))
        off2, base2 = off2 + measured.off2, base2 + measured.base2
        gradients.append(_result(step, f"the gradient of {name}", each.grad))
    gradients.sort(key=lambda entry: (-entry["not_finite"], -entry["lost"], entry["noise"], -entry["error"]))
    if gradients:
        error = math.sqrt(off2 / base2) if base2 else 0.0
        heaviest = max(gradients, key=lambda entry: entry["error"] * entry["size"])
        whole = {
            **heaviest,
            "what": "all gradients as one",
            "error": error,
            "size": min(math.sqrt(base2), 1e30),
            **{key: sum(entry[key] for entry in gradients) for key in _COUNTS},
            "noise": error * step.scale >= math.sqrt(step.eps),
            "bad": next((entry["bad"] for entry in gradients if entry["bad"]), None),
        }
        told += [whole, *gradients[:_NAMED]]
    return told


def noisy(first: Step, second: Step) -> list[dict[str, Any]]:
    """The operations that gave another result from the same input, in the order in which they ran first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    runs = zip(first.sums, second.sums)  # noqa: B905 - Python 3.8 has no strict
    for (name, site, took, gave), (again, _, took_again, gave_again) in runs:
        if name != again:
            break  # the two steps went different ways
        if took == took_again and gave != gave_again and len(found) < _NOISY:
            found.setdefault((name, f"{site.where} {site.module}"), {"op": name, **site._asdict()})
    return list(found.values())


def _rounding() -> dict[str, Any]:
    """The switches by which torch may compute single precision with fewer digits."""
    return {
        "matmul": bool(torch.backends.cuda.matmul.allow_tf32),
        "cudnn": bool(torch.backends.cudnn.allow_tf32),
        "precision": str(torch.get_float32_matmul_precision()),
    }


def _wide(model: Any, device: str) -> Any:
    """The dtype of the shadows: doubles, where the memory allows them."""
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        numbers = sum(int(each.numel()) for _, each in _leaves(model))
        return torch.float64 if free > _WIDE_BYTES * numbers else torch.float32
    return torch.float32 if device == "mps" else torch.float64


def _device(made: FactoryResult) -> str:
    tensors = [each for _, each in _leaves(made.model)] + list(tensors_in((made.args, made.kwargs)))
    kinds = [str(each.device.type) for each in tensors]
    return "cuda" if "cuda" in kinds else kinds[0] if kinds else "cpu"


def follow(request: PrecisionRequest, say: Callable[[Any], None]) -> dict[str, Any]:
    """Does all of it; what the user's code raises is data.  ``say`` gets each stage and what is known by then."""
    for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        os.environ[name] = "1"  # compiled code shows no operations
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as in the smoke suite: the same is computed
    say({"stage": "import torch"})
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    dtype = getattr(torch, request.dtype)
    info = torch.finfo(dtype)
    limits = {"eps": float(info.eps), "largest": float(info.max), "smallest": float(info.tiny)}
    gpus = [torch.cuda.get_device_name(index) for index in range(count)]
    say({"torch": str(torch.__version__), "gpus": gpus, "limits": limits, "rounding": _rounding()})
    sys.path.insert(0, os.path.realpath(request.code))
    sys.dont_write_bytecode = True  # the folder is the user's
    places = Places(request.code)
    stage = "import"
    try:
        say({"stage": stage})
        factory = factory_of(request.target)
        stage = "factory"
        say({"stage": stage})
        _seeded()
        made = given(factory())
        places.name_modules(made.model)
        device = _device(made)
        wide = _wide(made.model, device)
        was = sorted({str(each.dtype).replace("torch.", "") for _, each in _leaves(made.model)})
        made = cast(made, torch.float32, None)
    except (Exception, SystemExit) as error:
        return {"error": told_error(error, places, stage), "stage": stage}
    say({"stage": "single precision", "device": device, "wide": str(wide).replace("torch.", ""), "was": was})
    single = take(made, Step(places, torch.float32, shadow.Shadows(wide), device))
    say({"single": single})
    again: list[dict[str, Any]] = []
    if single["error"] is None:
        say({"stage": "single precision again", "rounding": _rounding()})
        steps = [Step(places, torch.float32, None, device) for _ in range(2)]
        for step in steps:
            take(made, step)
        again = noisy(*steps)
        say({"noisy": again})
        say({"stage": request.dtype})
        if request.dtype == "float32":
            wanted = single
        else:
            shadows = shadow.Shadows(wide)
            made = made if request.autocast else cast(made, dtype, shadows)
            wanted = take(made, Step(places, dtype, shadows, device, request.autocast))
        say({"wanted": wanted})
    return {"error": None, "stage": "end"}
