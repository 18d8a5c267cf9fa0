"""Tells where the steps of a program are, and where its own lines of Python are, for the modules that measure it.

A step ends when an optimizer has stepped; before the first one has, when a batch of a DataLoader is asked for; in a
program with neither, when a backward pass ends; and where there is none of these, when the loop that the program is in
comes round.  The program is not changed: three functions of torch are wrapped after torch's own import.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import sysconfig
import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType, TracebackType

envkit_loops: Any = importlib.import_module("envkit_loops")  # beside this file, wherever the command runs
KINDS = ("loop", "backward", "batch", "optimizer")  # a later kind replaces an earlier one
_LIBRARY = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MOST_FAILURES = 8
_LEAST_OTHERS = 4  # steps of other optimizers, as of a discriminator, that say nothing of the first


class _Marks:
    """What has been seen so far in this process."""

    step: Callable[[int, Any], None] | None = None
    failed: Callable[[str], None] | None = None
    loaded: ClassVar[list[tuple[float, float]]] = []  # when each batch was asked for and when it came, by perf_counter
    kind = ""
    number = 0
    first: Any = None  # of the optimizers, the one whose steps count
    others: ClassVar[dict[int, int]] = {}  # steps of other optimizers since its last one
    most_others = 0  # the most of one of these between two of its steps
    loop: tuple[str, int] = ("", 0)  # that was watched until the end
    last = 0.0  # when a step ended, by perf_counter
    failures = 0


def watch(step: Callable[[int, Any], None], failed: Callable[[str], None]) -> None:
    """Calls ``step`` with the step's number (from 1) and the optimizer, or None, after each step; what goes wrong in it
    is told to ``failed`` and never to the program."""
    _Marks.step, _Marks.failed = step, failed
    calls = {
        "torch.optim.optimizer": _optimizers,
        "torch.utils.data.dataloader": _loaders,
        "torch.autograd": _backwards,
    }
    guarded = {name: functools.partial(guarded_call, wrap) for name, wrap in calls.items()}
    importlib.import_module("envkit_companion").AfterImport(guarded)
    os.register_at_fork(after_in_child=envkit_loops.stop)


def _loops() -> None:
    """Watches for the loop of a program that marks no steps, from torch's import on."""
    _Marks.last = time.perf_counter()
    failed = _Marks.failed or (lambda said: None)
    envkit_loops.watch(lambda: _mark("loop"), _silent, is_own, failed, os.getpid())


def _silent() -> float:
    """The seconds since the last step; none in a program that marks its steps."""
    return time.perf_counter() - _Marks.last if _Marks.kind in ("", "loop") else 0.0


def last() -> float:
    """When the last step ended, by perf_counter."""
    return _Marks.last


def loop() -> tuple[str, int]:
    """The file and the line of the loop whose rounds are the steps; an empty name where they are others."""
    file, line = envkit_loops.place() if _Marks.kind == "loop" else ("", 0)
    return (file, line) if file else _Marks.loop


def ended() -> None:
    """No more steps are wanted."""
    _Marks.loop = loop()
    envkit_loops.stop()


def kind() -> str:
    """Of what kind the steps are, one of ``KINDS``; empty before the first."""
    return _Marks.kind


def loaded() -> list[tuple[float, float]]:
    """When the batches of DataLoaders were asked for and when they came, by perf_counter, the latest 4,096."""
    return _Marks.loaded


def is_own(file: str) -> bool:
    """Whether a file is of the program itself: not installed, not of the standard library, not of this companion."""
    named = file.startswith("<")  # <frozen importlib>, <string>
    return not (named or file.startswith((_STANDARD, _HERE)) or any(part in file for part in _LIBRARY))


def own_frames(frame: FrameType | None) -> list[FrameType]:
    """The program's own frames from ``frame`` outwards, the innermost first."""
    found = []
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


def guarded_call(what: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns; None where it fails, for the program goes on whatever becomes of who watches it."""
    if _Marks.failures >= _MOST_FAILURES:
        return None
    try:
        return what(*arguments)
    except Exception as error:
        _Marks.failures += 1
        if _Marks.failed is not None:
            _Marks.failed(f"{getattr(what, '__name__', 'a step')}: {type(error).__name__}: {error}"[:300])
        return None


def around_torch(
    begin: Callable[[ModuleType], None], failed: Callable[[BaseException, TracebackType | None], None]
) -> None:
    """Calls ``begin`` with torch after its import, and ``failed`` with the exception that ends the program."""
    importlib.import_module("envkit_companion").AfterImport({"torch": lambda module: guarded_call(begin, module)})
    before = sys.excepthook

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        guarded_call(failed, error, trace)
        before(kind, error, trace)

    sys.excepthook = uncaught


def _mark(of: str, optimizer: Any = None) -> None:
    if KINDS.index(of) < KINDS.index(_Marks.kind or of):
        return
    _Marks.last = time.perf_counter()
    anew = of == "loop" and _Marks.loop != envkit_loops.place()
    if _Marks.kind != of or anew:
        _Marks.kind, _Marks.number = of, 0
        _Marks.loop = envkit_loops.place() if of == "loop" else ("", 0)
    _Marks.number += 1
    if _Marks.step is not None:
        guarded_call(_Marks.step, _Marks.number, optimizer)


def _optimizers(module: ModuleType) -> None:
    """Marks a step where the function that torch puts around each optimizer's ``step`` has returned.

    Its hooks after a step are called inside a range that torch's profiler records, where none may be started.
    """
    optimizer = getattr(module, "Optimizer")  # noqa: B009 - a module that is not known here
    around = optimizer.profile_hook_step

    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        hooked = around(step)

        @functools.wraps(hooked)
        def marked(self: Any, *arguments: Any, **named: Any) -> Any:
            answer = hooked(self, *arguments, **named)
            if _counts(self):
                _mark("optimizer", self)
            return answer

        return marked

    optimizer.profile_hook_step = staticmethod(profile_hook_step)


def _counts(optimizer: Any) -> bool:
    """Whether an optimizer's step ends a step of the program: the first's do.  Where another steps twice as often as
    any ever did between two steps of it, it was replaced, and the other counts from now on."""
    if _Marks.first in (None, id(optimizer)):
        _Marks.first = id(optimizer)
        _Marks.most_others = max([_Marks.most_others, *_Marks.others.values()])
        _Marks.others.clear()
        return True
    count = _Marks.others[id(optimizer)] = _Marks.others.get(id(optimizer), 0) + 1
    if count <= max(_LEAST_OTHERS, 2 * _Marks.most_others):
        return False
    _Marks.number += count - 1
    _Marks.first, _Marks.most_others = id(optimizer), 0
    _Marks.others.clear()
    return True


def _loaders(module: ModuleType) -> None:
    iterator = getattr(module, "_BaseDataLoaderIter")  # noqa: B009 - a module that is not known here
    following = iterator.__next__

    @functools.wraps(following)
    def watched(self: Any) -> Any:
        if _Marks.kind != "optimizer":
            _mark("batch")
        asked = time.perf_counter()
        try:
            return following(self)
        finally:
            if len(_Marks.loaded) >= 4096:
                del _Marks.loaded[:2048]
            _Marks.loaded.append((asked, time.perf_counter()))

    iterator.__next__ = watched


def _backwards(module: ModuleType) -> None:
    original = getattr(module, "backward")  # noqa: B009 - a module that is not known here
    _loops()  # torch is as good as imported

    @functools.wraps(original)
    def backward(*arguments: Any, **named: Any) -> Any:
        answer = original(*arguments, **named)
        if _Marks.kind in ("", "loop", "backward"):
            _mark("backward")
        return answer

    setattr(module, "backward", backward)  # noqa: B010 - a module that is not known here


def rank() -> str:
    """The rank of this process in its job, as its launcher says; empty where it has none."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if os.environ.get(name, "").isdigit():
            return os.environ[name]
    return ""


def loaded_frameworks() -> list[str]:
    """Other libraries in this process that take memory of a GPU by themselves."""
    names = ("jax", "tensorflow", "cupy", "numba.cuda", "paddle", "onnxruntime")
    return [name for name in names if name in sys.modules]
