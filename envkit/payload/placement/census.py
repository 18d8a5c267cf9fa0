"""What lies where: parameters, buffers, inputs, outputs and an optimizer's state by device and dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from envkit.payload.placement.watch import tensors_in

_NAMES = 4  # of one group that are told
_LOST = 8  # tensors of an optimizer's state that are told one by one


def group(what: str, named: Iterable[tuple[str, Any]], device_of: Callable[[Any], str]) -> list[dict[str, Any]]:
    """The tensors by device, dtype and whether they are trained; each with how many, how large, and some names."""
    found: dict[tuple[str, str, bool], dict[str, Any]] = {}
    for name, tensor in named:
        device, dtype = device_of(tensor), str(tensor.dtype).replace("torch.", "")
        trained = what == "parameters" and bool(tensor.requires_grad)
        fresh = {"what": what, "device": device, "dtype": dtype, "trained": trained, "tensors": 0, "elements": 0}
        entry = found.setdefault((device, dtype, trained), {**fresh, "names": []})
        entry["tensors"] += 1
        entry["elements"] += int(tensor.numel())
        if len(entry["names"]) < _NAMES:
            entry["names"].append(name)
    return list(found.values())


def numbered(value: Any) -> list[tuple[str, Any]]:
    """The tensors of a nested value with their numbers as names."""
    return [(str(number), tensor) for number, tensor in enumerate(tensors_in(value))]


def state(model: Any, optimizer: Any, device_of: Callable[[Any], str]) -> list[dict[str, Any]]:
    """The groups of a model and, if there is one, of its optimizer's state."""
    groups = group("parameters", getattr(model, "named_parameters", lambda: ())(), device_of)
    buffers = list(getattr(model, "named_buffers", lambda: ())())
    # On the CPU one without dimensions may join any other tensor, so it has a kind of its own.
    groups += group("buffers", [each for each in buffers if each[1].dim()], device_of)
    groups += group("scalar buffers", [each for each in buffers if not each[1].dim()], device_of)
    if optimizer is not None:
        held = [
            (key, value)
            for entry in optimizer.state.values()
            for key, value in entry.items()
            if hasattr(value, "dtype") and value.dim()  # a step's number may lie on the CPU
        ]
        groups += group("optimizer state", held, device_of)
    return groups


def astray(model: Any, optimizer: Any, device_of: Callable[[Any], str]) -> list[dict[str, Any]]:
    """The tensors of an optimizer's state that do not lie where their parameter does."""
    if optimizer is None:
        return []
    names = {id(tensor): name for name, tensor in getattr(model, "named_parameters", lambda: ())()}
    lost = []
    for parameter, entry in optimizer.state.items():
        for key, value in entry.items():
            if not hasattr(value, "dtype") or not value.dim():
                continue
            if device_of(value) != device_of(parameter):
                name = names.get(id(parameter), "a parameter that is not the model's")
                lost.append({"name": name, "key": str(key), "device": device_of(value), "of": device_of(parameter)})
    return lost[:_LOST]
