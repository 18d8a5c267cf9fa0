"""Inside a Python of a command under `envkit debug`: dumps stacks when asked or dying, and writes down what ends.

It changes nothing that the program can see but two things: a real-time signal has a handler, and os.wait and its kin
are functions of Python's.  What it learns goes, one JSON document a line, to ``events.jsonl`` in the folder that
ENVKIT_DEBUG_FOLDER names; stacks go to ``python-PID.txt`` there, written by faulthandler, which needs neither the
interpreter's lock nor memory.
"""

from __future__ import annotations

import faulthandler
import fcntl
import importlib.util
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, ModuleType, TracebackType

FOLDER = "ENVKIT_DEBUG_FOLDER"
LAUNCHES = "ENVKIT_DEBUG_LAUNCHES"  # kernels whose launches are to be found, by name, with commas
RANKS = "ENVKIT_DEBUG_RANKS"  # 1: what this process does as one of several ranks is written down
PLACES = "ENVKIT_DEBUG_PLACES"  # 1: where tensors are made is kept, for an operation on two devices
REFUSED = "ENVKIT_DEBUG_REFUSED"  # 1: launches that CUDA refuses are to be found
COPIES = "ENVKIT_DEBUG_COPIES"  # 1: copies that nobody waits for are waited for
NUMBERS = "ENVKIT_DEBUG_NUMBERS"  # 1: the first call of torch that makes a number that is not finite is looked for
MEASURE = "ENVKIT_DEBUG_MEASURE"  # "memory" or "slow": what this process costs is written down
COMPILERS = ("cupy.cuda.compiler", "torch.cuda._utils")  # that compile kernels at run time
SIGNAL = int(signal.SIGRTMAX) - 3  # programs use SIGUSR1 and SIGUSR2, and the first real-time signals are libc's
_HIGH = 900  # where a program that closes or reuses low descriptors does not come
_MOST_FAILED = 2000  # children of one process that are told: a program may start failing ones without end
_FRAMES = 40  # of a stack, the innermost
_TEXT = 8000  # characters of a message, in which the traceback of another process may stand
_EARLIER = 5  # exceptions that one was raised out of


class _State:
    """This process's open files; a forked child gets its own."""

    folder = ""
    stacks: int | None = None
    events: int | None = None
    failed = 0


class AfterImport:
    """Finds modules as the others do; ``calls`` has what is called with a module, by its name, once it is executed."""

    def __init__(self, calls: dict[str, Callable[[ModuleType], Any]]) -> None:
        self.calls = calls
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        """The spec with one step after the module's execution; None for all other modules."""
        call = self.calls.pop(name, None)
        if call is None:
            return None
        if not self.calls:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader = getattr(spec, "loader", None)
        if loader is None:
            return spec
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            call(module)

        loader.exec_module = executed
        return spec


def enter() -> None:
    """Starts the companion where ENVKIT_DEBUG_FOLDER names a folder; does nothing elsewhere."""
    _State.folder = os.environ.get(FOLDER, "")
    if not _State.folder:
        return
    _open()
    tell("start", {"how": "exec"})
    os.register_at_fork(after_in_child=_forked)
    _watch_exceptions()
    _watch_waits()
    wanted = [name for name in os.environ.get(LAUNCHES, "").split(",") if name]
    refused = os.environ.get(REFUSED) == "1"
    if wanted or refused:
        importlib.import_module("envkit_launches").watch(wanted, tell, stack, refused)
    if os.environ.get(RANKS) == "1":
        importlib.import_module("envkit_ranks").watch(_State.folder, stack)
    if os.environ.get(PLACES) == "1":
        importlib.import_module("envkit_places").watch(tell)
    if os.environ.get(NUMBERS) == "1":
        importlib.import_module("envkit_numbers").watch(tell)
    if os.environ.get(COPIES) == "1":
        importlib.import_module("envkit_copies").watch(tell)
    sources = importlib.import_module("envkit_sources")
    keep_sources = sources.wrapping(_State.folder, tell, stack)
    graphs = importlib.import_module("envkit_captures").watching(tell, stack)
    packages = {"torch._inductor.package": lambda module: tell("package", {})}  # which loading one imports
    copies = {"torch._inductor.codecache": sources.wrap_copies}
    AfterImport({**dict.fromkeys(COMPILERS, keep_sources), **copies, **graphs, **packages})
    measure = os.environ.get(MEASURE, "")
    if measure in ("memory", "slow"):
        importlib.import_module(f"envkit_{measure}").watch(_State.folder, stack)


def _open() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    least = _HIGH if most > _HIGH + 10 or most == resource.RLIM_INFINITY else max(3, most // 2)

    def opened(name: str) -> int:
        low = os.open(os.path.join(_State.folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, least)
        os.close(low)
        return high

    for number in (_State.stacks, _State.events):
        if number is not None:
            os.close(number)
    _State.events = opened("events.jsonl")
    _State.stacks = opened(f"python-{os.getpid()}.txt")
    faulthandler.enable(file=_State.stacks)
    faulthandler.register(SIGNAL, file=_State.stacks, all_threads=True)


def tell(event: str, said: dict[str, Any]) -> None:
    """Writes down one event of this process."""
    if _State.events is None:
        return
    document = {"event": event, "pid": os.getpid(), "time": round(time.time(), 3)}
    document.update(said)
    try:
        os.write(_State.events, json.dumps(document).encode("utf-8", "replace") + b"\n")
    except OSError:
        _State.events = None  # a full disk, or a program that closes what it does not know: it goes on unwatched


def stack(frame: FrameType | None) -> list[list[Any]]:
    """The frames from ``frame`` outwards, as file, line and function, the innermost last."""
    found: list[list[Any]] = []
    inner: CodeType | None = None
    while frame is not None and len(found) < _FRAMES:
        if not _stands_in(frame.f_code, frame.f_lineno, inner):
            found.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name])
        inner, frame = frame.f_code, frame.f_back
    return found[::-1]


def _stands_in(code: CodeType, line: int, inner: CodeType | None) -> bool:
    """Whether a frame, which calls ``inner``, is of the code that torch.compile put in the place of a function: it
    stands at the function's first line whatever it does, so the line that calls it tells more."""
    ours = inner is not None and inner.co_filename.endswith("/torch/_dynamo/eval_frame.py")
    return ours and line == code.co_firstlineno and code.co_name != "<module>"


def _forked() -> None:
    try:
        _open()
    except OSError:
        _State.events = None
        return
    tell("start", {"how": "fork"})


def _watch_exceptions() -> None:
    before, before_thread = sys.excepthook, threading.excepthook

    def told(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> dict[str, Any]:
        frames: list[list[Any]] = []
        while trace is not None:
            code, inner = trace.tb_frame.f_code, trace.tb_next
            if not _stands_in(code, trace.tb_lineno, inner.tb_frame.f_code if inner else None):
                frames.append([code.co_filename, trace.tb_lineno, code.co_name])
            trace = inner
        try:
            message = str(error)[:_TEXT]
        except Exception as fault:  # the program's own words, which may fail as it does
            message = f"<no words: {type(fault).__name__}>"
        return {"kind": kind.__name__, "message": message, "frames": frames[-_FRAMES:]}

    def seen(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        said = told(kind, error, trace)
        before: list[dict[str, Any]] = []
        while error is not None and len(before) < _EARLIER:
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
            if error is not None:
                before.append(told(type(error), error, error.__traceback__))
        if before:
            said["before"] = before
        tell("exception", said)

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            seen(kind, error, trace)
        before(kind, error, trace)

    def uncaught_in_thread(said: threading.ExceptHookArgs) -> None:
        if said.exc_type is not SystemExit:
            seen(said.exc_type, said.exc_value, said.exc_traceback)
        before_thread(said)

    sys.excepthook = uncaught
    threading.excepthook = uncaught_in_thread


def _ended(pid: int, status: int) -> None:
    if pid > 0 and status and (os.WIFSIGNALED(status) or os.WIFEXITED(status)):
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        _State.failed += 1
        if code < 0 or _State.failed <= _MOST_FAILED:
            tell("child", {"child": pid, "exit": code, "waiter": stack(sys._getframe(2))})


def _watch_waits() -> None:
    """Lets every wait pass its answer on: subprocess, multiprocessing and asyncio call these two by their names.  They
    take no keywords."""

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*arguments: Any) -> Any:
            answer = original(*arguments)
            _ended(answer[0], answer[1])
            return answer

        wait.__name__ = original.__name__
        wait.__doc__ = original.__doc__
        return wait

    for name in ("wait", "waitpid"):
        setattr(os, name, watched(getattr(os, name)))
