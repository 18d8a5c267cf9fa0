"""Waits for each copy between GPU and CPU that a program lets run on by itself, and tells where it asks for them.

A buffer of the CPU that is read before a copy into it is done, or filled again before a copy out of it is, holds other
numbers in each run.  If all is well once each copy is waited for, such a copy is the cause.  Calls of the main thread
are seen.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

envkit_places: Any = importlib.import_module("envkit_places")  # beside this file, wherever the command runs
envkit_steps: Any = importlib.import_module("envkit_steps")
_COPIES = ("to", "copy_", "cuda", "cpu")
_MOST = 64  # different lines that are told


class _Seen:
    """What has been met so far in this process."""

    tell: Callable[[str, dict[str, Any]], None] | None = None
    lines: ClassVar[set[tuple[str, int]]] = set()


def watch(tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Begins at torch's import; tells the event "copy" of each line that asks for such a copy."""
    _Seen.tell = tell
    envkit_steps.around_torch(_begin, lambda error, trace: None)


def _begin(torch: ModuleType) -> None:
    overrides = importlib.import_module("torch.overrides")

    class Mode(overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            made = function(*args, **named)
            asked = named.get("non_blocking") is True or any(each is True for each in args)
            if asked and getattr(function, "__name__", "") in _COPIES:
                envkit_steps.guarded_call(_wait, torch, made, args)
            return made

    Mode().__enter__()


def _wait(torch: Any, made: Any, given: Any) -> None:
    """Waits for a copy between GPU and CPU on the stream that it is on."""
    there = [each.device for each in envkit_places._tensors(torch, (made, given))]
    gpu = next((device for device in there if device.type == "cuda"), None)
    if gpu is None or all(device.type == "cuda" for device in there) or torch.cuda.is_current_stream_capturing():
        return
    torch.cuda.current_stream(gpu).synchronize()
    own = envkit_steps.own_frames(sys._getframe(3))
    frames = [[each.f_code.co_filename, each.f_lineno, each.f_code.co_name] for each in own[::-1]]
    place = tuple(frames[-1][:2]) if frames else ("", 0)
    if frames and place not in _Seen.lines and len(_Seen.lines) < _MOST and _Seen.tell is not None:
        _Seen.lines.add(place)
        back = any(device.type == "cuda" for device in there[1:]) and there[0].type == "cpu"
        _Seen.tell("copy", {"how": "back" if back else "there", "frames": frames})
