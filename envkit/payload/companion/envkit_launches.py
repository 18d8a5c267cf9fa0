"""Finds the lines of Python that launch a kernel: CUPTI calls back at each launch, in the thread that launches.

CUPTI comes with every CUDA build of torch.  It is asked when the program is about to use CUDA, not before: whoever
initialises CUDA in a parent takes it from its forked children.  NVIDIA, CUPTI documentation, Callback API;
cupti_callbacks.h for the structure, cupti_driver_cbid.h for the numbers.

A launch that CUDA refuses is told by its answer alone, and if nobody looks at that, by the next call of CUDA that does:
so of the runtime's calls, after each, the answer is looked at.
"""

from __future__ import annotations

import ctypes
import glob
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, ModuleType

    Tell = Callable[[str, dict[str, Any]], None]
    Stack = Callable[[FrameType | None], list[list[Any]]]

_DRIVER, _RUNTIME = 1, 2  # CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API
_LAUNCHES = (307, 442, 477, 478, 652, 653)  # cuLaunchKernel, cuLaunchCooperativeKernel, cuLaunchKernelEx, each twice
_ENTER = 0  # CUPTI_API_ENTER
_MOST = 64  # different places that are written down


class _Data(ctypes.Structure):
    """CUpti_CallbackData."""

    _fields_ = [
        ("site", ctypes.c_int), ("function", ctypes.c_char_p), ("parameters", ctypes.c_void_p),
        ("result", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("context", ctypes.c_void_p),
        ("context_uid", ctypes.c_uint32), ("correlation_data", ctypes.c_void_p), ("correlation", ctypes.c_uint32),
    ]  # fmt: skip


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_Data))


class _Watch:
    """The one subscription of this process, which must outlive every launch."""

    wanted: Sequence[str] = ()
    refused = False
    tell: Tell | None = None
    stack: Stack | None = None
    begun = 0  # the process that subscribed
    kept: ClassVar[list[Any]] = []
    seen: ClassVar[dict[str, int]] = {}


def watch(wanted: Sequence[str], tell: Tell, stack: Stack, refused: bool) -> None:
    """Writes down, from the first use of CUDA on, where kernels whose names hold one of ``wanted`` are launched; with
    ``refused`` where a launch is that the runtime refuses."""
    _Watch.wanted, _Watch.tell, _Watch.stack, _Watch.refused = wanted, tell, stack, refused
    importlib.import_module("envkit_companion").AfterImport({"torch.cuda": _wrap_start})

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "ctypes.dlopen" and "libcuda.so" in str(arguments[0]):
            _subscribe()

    sys.addaudithook(heard)


def _wrap_start(_: ModuleType) -> None:
    """Wraps the function with which torch starts CUDA."""
    start = getattr(sys.modules.get("torch._C"), "_cuda_init", None)
    if start is None:
        return

    def begin() -> Any:
        _subscribe()
        return start()

    setattr(sys.modules["torch._C"], "_cuda_init", begin)  # noqa: B010 - a module of C has no such attribute


def _library() -> str:
    """The CUPTI that this process has, else the one beside its wheels, else the toolkit's; empty if there is none."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if "/libcupti.so" in "/" + path:
                return "/" + path
    folders = []
    for entry in sys.path:
        folders += sorted(glob.glob(os.path.join(glob.escape(entry or "."), "nvidia", "*", "lib")), reverse=True)
    for root in [os.environ.get("CUDA_HOME", ""), *sorted(glob.glob("/usr/local/cuda*"), reverse=True)]:
        folders += [os.path.join(root, "extras", "CUPTI", "lib64"), os.path.join(root, "lib64")] if root else []
    for folder in folders:
        found = sorted(glob.glob(os.path.join(glob.escape(folder), "libcupti.so*")))
        if found:
            return found[0]
    return ""


def _subscribe() -> None:
    """Subscribes once in a process.  What goes wrong is an event, not an error: the program is to run."""
    tell = _Watch.tell
    if tell is None or _Watch.begun == os.getpid():
        return
    _Watch.begun = os.getpid()
    path = _library()
    if not path:
        tell("launches", {"trouble": "there is no libcupti"})
        return
    try:
        cupti = ctypes.CDLL(path)
        callback = _Callback(_launched)
        subscriber = ctypes.c_void_p()
        code = cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None)
        for number in _LAUNCHES if _Watch.wanted else ():
            code = code or cupti.cuptiEnableCallback(1, subscriber, _DRIVER, number)
        if _Watch.refused:
            code = code or cupti.cuptiEnableDomain(1, subscriber, _RUNTIME)
    except (OSError, AttributeError) as error:
        tell("launches", {"trouble": f"{path}: {error}"})
        return
    _Watch.kept += [cupti, callback, subscriber]
    tell("launches", {"trouble": f"CUPTI answered {code}" if code else "", "library": path})


def _launched(_: Any, domain: int, number: int, data: Any) -> None:
    """Called by CUPTI before and after each call of the driver, in the thread that calls."""
    said = data.contents
    if domain == _RUNTIME:
        _answered(said)
        return
    if said.site != _ENTER or not said.symbol:
        return
    kernel = said.symbol.decode("utf-8", "replace")
    if not any(name in kernel for name in _Watch.wanted) or _Watch.tell is None or _Watch.stack is None:
        return
    frames = _Watch.stack(sys._getframe().f_back)  # none in a thread without Python, as autograd has them
    captured = importlib.import_module("envkit_captures").capturing()
    place = f"{kernel} {captured} {frames}"
    _Watch.seen[place] = _Watch.seen.get(place, 0) + 1
    if _Watch.seen[place] == 1 and len(_Watch.seen) <= _MOST:
        _Watch.tell("launch", {"kernel": kernel, "frames": frames, **({"captured": True} if captured else {})})


def _answered(said: Any) -> None:
    """After a call of the runtime: whether it was a launch that was refused."""
    if said.site == _ENTER or not said.function or not said.result or b"Launch" not in said.function:
        return
    code = ctypes.cast(said.result, ctypes.POINTER(ctypes.c_int)).contents.value
    if not code or _Watch.tell is None or _Watch.stack is None or len(_Watch.seen) >= _MOST:
        return
    frames = _Watch.stack(sys._getframe(1).f_back)
    place = f"{code} {frames}"
    if place not in _Watch.seen:
        _Watch.seen[place] = 1
        _Watch.tell("refused", {"how": str(code), "frames": frames})
