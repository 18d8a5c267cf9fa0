"""Which call of torch makes the first nan or infinite number out of numbers that are none, and where tensors are
changed in place.

From torch's import on each call of its functions is handed over, and what it made is looked at, for which the CPU waits
for the GPU.  Calls of the main thread are seen, and none of a backward pass.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType, TracebackType

envkit_places: Any = importlib.import_module("envkit_places")  # beside this file, wherever the command runs
envkit_steps: Any = importlib.import_module("envkit_steps")
_UNWRITTEN = re.compile(r"empty|^resize|^set_|^__(?:get|set)__$")  # what these give was computed by nobody here
_CHANGED = re.compile(r"modified by an inplace operation: \[(torch\.[\w.]+) \[([\d, ]*)\]\]")  # torch, csrc/autograd
_MOST_EDITS = 10_000  # kinds of tensors whose changes are kept
_MOST_TOLD = 4


class _Seen:
    """What has been met so far in this process."""

    tell: Callable[[str, dict[str, Any]], None] | None = None
    told: ClassVar[set[str]] = set()  # of nan and inf
    edits: ClassVar[dict[tuple[str, str], dict[tuple[str, int], list[Any]]]] = {}  # by type and shape, the lines


def watch(tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Begins at torch's import; tells the events "unfinite" and, of an exception that autograd raises, "edited"."""
    _Seen.tell = tell
    envkit_steps.around_torch(_begin, _failed)


def _begin(torch: ModuleType) -> None:
    overrides = importlib.import_module("torch.overrides")

    class Mode(overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = envkit_steps.guarded_call(_versions, torch, (args, kwargs)) or []
            made = function(*args, **(kwargs or {}))
            envkit_steps.guarded_call(_look, torch, function, made, (args, kwargs), given)
            return made

    Mode().__enter__()


def _versions(torch: Any, given: Any) -> list[tuple[Any, int]]:
    return [(each, each._version) for each in envkit_places._tensors(torch, given) if not each.is_inference()]


def _look(torch: Any, function: Any, made: Any, given: Any, before: list[tuple[Any, int]]) -> None:
    """Notes what a call changed in place, and whether it made the first number of its kind."""
    name = str(getattr(function, "__name__", function))
    changed = [tensor for tensor, version in before if tensor._version != version]
    if not changed and ("nan" in _Seen.told or _UNWRITTEN.search(name)):
        return
    frames = _frames()
    for tensor in changed:
        kind = (tensor.type(), ", ".join(map(str, tensor.shape)))
        if frames and (kind in _Seen.edits or len(_Seen.edits) < _MOST_EDITS):
            places = _Seen.edits.setdefault(kind, {})
            places.pop((frames[-1][0], frames[-1][1]), None)  # the latest is the last
            places[(frames[-1][0], frames[-1][1])] = frames
    if "nan" in _Seen.told or _UNWRITTEN.search(name) or not frames:
        return
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return
    outs = list(_floating(torch, (made, changed)))
    kept = {id(tensor) for tensor in changed}
    came = [each for each in _floating(torch, given) if id(each) not in kept]
    for how, test in (("nan", torch.isnan), ("inf", torch.isinf)):
        if how in _Seen.told or not any(bool(test(each).any()) for each in outs):
            continue
        if how == "inf" and (any(_unbounded(given)) or any(bool(test(each).any()) for each in came)):
            continue  # a mask's, or what was so before
        _Seen.told.add(how)
        there = how == "nan" and any(bool(test(each).any()) for each in came)
        if _Seen.tell is not None:
            _Seen.tell("unfinite", {"how": how, "operation": name.strip("_"), "given": there, "frames": frames})


def _frames() -> list[list[Any]]:
    """The program's own lines, the innermost last."""
    own = envkit_steps.own_frames(sys._getframe(3))
    return [[each.f_code.co_filename, each.f_lineno, each.f_code.co_name] for each in own[::-1]]


def _floating(torch: Any, value: Any) -> Iterator[Any]:
    for each in envkit_places._tensors(torch, value):
        plain = each.layout is torch.strided and each.device.type in ("cpu", "cuda")
        if plain and (each.is_floating_point() or each.is_complex()):
            yield each.detach()


def _unbounded(value: Any) -> Iterator[bool]:
    """Of the numbers that a call was given, whether each is infinite."""
    if isinstance(value, float):
        yield math.isinf(value)
    elif isinstance(value, (list, tuple)):
        for each in value[:64]:
            yield from _unbounded(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _unbounded(each)


def _failed(error: BaseException, trace: TracebackType | None) -> None:
    if (told := _CHANGED.search(str(error))) and _Seen.tell is not None:
        for frames in list(_Seen.edits.get((told[1], told[2]), {}).values())[: -_MOST_TOLD - 1 : -1]:
            _Seen.tell("edited", {"frames": frames})
