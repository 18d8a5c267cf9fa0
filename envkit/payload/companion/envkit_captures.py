"""Tells that a process makes CUDA graphs, and leaves torch's cache of memory to their captures where that is asked.

A capture cannot hold cudaMalloc, which torch calls for each tensor without its cache.  With ENVKIT_DEBUG_CACHE=captures
the cache is off but for captures, so that what a graph is given stays an allocation of its own.  A capture is relaxed
then: what it lets go that lies outside of the cache is freed in it.  torch.compile's graphs want all of their memory in
the cache's pools, where it stays on from their first.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType

    Tell = Callable[[str, dict[str, Any]], None]
    Stack = Callable[[FrameType | None], list[list[Any]]]

CACHE = "ENVKIT_DEBUG_CACHE"  # under a tool, what torch's cache is on for: "captures" or "all"
LAUNCHES = "ENVKIT_DEBUG_LAUNCHES"
_CHECK = "slow_path_cudagraph_asserts"
_MODE = 2  # where capture_begin, called by position, is given its mode


class _Here:
    """What is known of the cache in this process."""

    tell: Tell | None = None
    stack: Stack | None = None
    enable: Callable[[bool], Any] | None = None  # torch's switch; None where it is not to be used, or not there
    open = False  # whether a graph is captured
    told: ClassVar[set[str]] = set()


def watching(tell: Tell, stack: Stack) -> dict[str, Callable[[ModuleType], None]]:
    """What is called with modules of torch, by name, once they are executed."""
    _Here.tell, _Here.stack = tell, stack
    return {"torch.cuda.graphs": _wrap, "torch._inductor.cudagraph_trees": _keep}


def _wrap(module: ModuleType) -> None:
    """Of a torch without such a class nothing is changed."""
    graph = getattr(module, "CUDAGraph", None)
    if graph is None:
        return
    made = graph.__new__

    def new(cls: type, *arguments: Any, **named: Any) -> Any:
        _say(sys._getframe(1))
        return made(cls, *arguments, **named)

    graph.__new__ = staticmethod(new)
    if os.environ.get(CACHE) == "captures" or os.environ.get(LAUNCHES):
        _switch(graph)
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        _wait(graph)


def _say(frame: FrameType | None) -> None:
    how = "captures" if _Here.enable else "all"
    if _Here.tell is not None and _Here.stack is not None and how not in _Here.told:
        _Here.told.add(how)
        _Here.tell("graph", {"how": how, "frames": _Here.stack(frame)})


def capturing() -> bool:
    """Whether a graph is captured now, in a process that is asked for launches or for its cache."""
    return _Here.open


def _switch(graph: Any) -> None:
    """Turns the cache off but for captures, where that is asked and this torch has a switch, and marks each capture."""
    enable = getattr(sys.modules.get("torch._C"), "_cuda_cudaCachingAllocator_enable", None)
    begin, end = graph.capture_begin, graph.capture_end

    def capture_begin(self: Any, *arguments: Any, **named: Any) -> Any:
        if _Here.enable and len(arguments) < _MODE:
            named["capture_error_mode"] = "relaxed"
        _set(True)
        try:
            return begin(self, *arguments, **named)
        except BaseException:
            _set(False)
            raise

    def capture_end(self: Any) -> Any:
        try:
            return end(self)
        finally:
            _set(False)

    if enable and os.environ.get(CACHE) == "captures":
        enable(False)
        _Here.enable = enable
    graph.capture_begin, graph.capture_end = capture_begin, capture_end


def _set(open_: bool) -> None:
    _Here.open = open_
    if _Here.enable:
        _Here.enable(open_)


def _keep(_: ModuleType) -> None:
    """Leaves the cache on, and a check of what is in its pools out: it fails under compute-sanitizer (seen with torch
    2.11), whatever envkit does."""
    if _Here.enable:
        _Here.enable(True)
        _Here.enable = None
    triton = getattr(sys.modules.get("torch._inductor.config"), "triton", None)
    if os.environ.get(CACHE) and hasattr(triton, _CHECK):
        setattr(triton, _CHECK, False)


def _wait(graph: Any) -> None:
    """Lets a replay end before the next line: CUDA's blocking launches are those of kernels."""
    replay = graph.replay

    def replayed(self: Any) -> Any:
        answer = replay(self)
        torch = sys.modules["torch"]
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()
        return answer

    graph.replay = replayed
