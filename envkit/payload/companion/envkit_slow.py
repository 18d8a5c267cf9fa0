"""What the time of a step goes to in this process: the lines of Python, and torch's own profiler over a few steps.

After the first steps, which compile, load and allocate, steps are timed for ``_ALONE_S`` seconds with nothing beside
them; a thread notes every few milliseconds which of the program's own lines the main thread is at, for ``_LINES_S``
seconds, which makes short steps longer; then torch's profiler records steps for ``_TRACE_S`` seconds.
What was seen goes to ``slow-PID.json`` and ``trace-PID.json`` (as torch exports it); after that nothing is measured.
A program that ends before leaves what it has.  One profiler is started in a process and no second: what torch has begun
to record under the first would end under the second, which corrupts memory.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import linecache
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

envkit_steps: Any = importlib.import_module("envkit_steps")  # beside this file, wherever the command runs
_WARM_STEPS, _WARM_S = 3, 1.0  # before anything is measured: at least so many steps, and so long
_ALONE_S, _LINES_S, _TRACE_S = 0.6, 2.0, 0.7
_LEAST_STEPS, _MOST_STEPS = 2, 200
_RANKS = (4, 12, 24)  # of ranks, which must measure the same steps: the steps after which they begin, trace, and end
_EVERY_S = 0.004  # between looks at the main thread
_SWITCH_S = 0.0002  # that Python's own work goes on when the looking thread wants to look
_MOST_LINES = 400
_PARTS = (  # of a step, by where in torch a stack is
    ("torch/utils/data/dataloader.py", "__next__", "loader"),
    ("torch/autograd/graph.py", "_engine_run_backward", "backward"),
    ("torch/autograd/__init__.py", "backward", "backward"),
    ("torch/distributed/distributed_c10d.py", "", "collective"),
    ("torch/optim/optimizer.py", "wrapper", "optimizer"),
)


class _Here:
    """What this process has seen."""

    folder = ""
    state = "waits"  # then "alone", then "lines", then "traces", then "done"
    pid = 0
    profiler: Any = None
    since = 0.0  # when the state began, by perf_counter
    first = 0
    alone: ClassVar[list[float]] = []  # ends of the steps that nothing slows; none of ranks, which count their steps
    ends: ClassVar[list[float]] = []  # of the steps whose lines are noted, which no profiler slows
    traced: ClassVar[list[float]] = []  # of those that the profiler records
    steps = 0
    lines: ClassVar[dict[tuple[Any, ...], float]] = {}  # seconds by place
    looked = 0.0  # seconds in all
    queued = 0.0  # seconds in which the main thread could run and others had the processor
    trouble: ClassVar[list[str]] = []


def watch(folder: str, stack: Callable[[FrameType | None], list[list[Any]]]) -> None:
    """Begins to watch for steps from torch's import on."""
    _Here.folder = folder
    _forget()
    os.register_at_fork(after_in_child=_forget)
    envkit_steps.watch(_stepped, _Here.trouble.append)
    atexit.register(lambda: envkit_steps.guarded_call(_ended, os.getpid()))


def _forget() -> None:
    """A forked child, such as a worker of a DataLoader, is measured only where steps are its own."""
    _Here.state, _Here.pid, _Here.profiler, _Here.steps = "waits", 0, None, 0
    _Here.ends, _Here.traced, _Here.lines, _Here.looked, _Here.alone = [], [], {}, 0.0, []


def _stepped(number: int, optimizer: Any) -> None:
    now = time.perf_counter()
    if _Here.state == "done":
        return
    if _Here.pid != os.getpid() or (
        number == 1 and _Here.state in ("waits", "alone", "lines")
    ):  # of another kind, or loop
        _Here.pid, _Here.since, _Here.steps, _Here.state = os.getpid(), now, 0, "waits"
        _Here.lines, _Here.looked, _Here.ends, _Here.alone = {}, 0.0, [], []
    _Here.steps += 1
    ranks = envkit_steps.rank() != ""
    if _Here.state == "waits":
        if ranks and number >= _RANKS[0]:
            _lines(number)
        elif not ranks and _passed(now, _WARM_STEPS, _WARM_S):
            _Here.state, _Here.steps, _Here.since, _Here.alone = "alone", 0, now, [now]
    elif _Here.state == "alone":
        _Here.alone.append(now)
        if _passed(now, _LEAST_STEPS, _ALONE_S):
            _lines(number)
    elif _Here.state == "lines":
        _Here.ends.append(now)
        if number >= _RANKS[1] if ranks else _passed(now, _LEAST_STEPS, _LINES_S):
            _trace()
    else:
        _Here.traced.append(now)
        if number >= _RANKS[2] if ranks else _passed(now, _LEAST_STEPS, _TRACE_S):
            _finish()


def _passed(now: float, steps: int, seconds: float) -> bool:
    # a round of a loop may take microseconds, a step that is marked takes its time
    most = _Here.steps >= _MOST_STEPS and (envkit_steps.kind() != "loop" or _Here.state == "traces")
    return most or (_Here.steps >= steps and now - _Here.since >= seconds)


def _lines(number: int) -> None:
    """Starts the thread that looks at the main thread."""
    _Here.state, _Here.first, _Here.steps = "lines", number, 0
    main = threading.get_ident()
    _Here.queued = -_queued(threading.get_native_id())
    threading.Thread(target=_look, args=(os.getpid(), main), name="envkit-slow", daemon=True).start()
    _Here.since = time.perf_counter()
    _Here.ends = [_Here.since]


def _trace() -> None:
    """Starts torch's profiler."""
    _Here.queued += _queued(threading.get_native_id())
    torch = sys.modules["torch"]
    _Here.state, _Here.steps = "traces", 0
    try:
        kinds = torch.profiler.ProfilerActivity
        wanted = [kinds.CPU] + ([kinds.CUDA] if _uses_cuda(torch) else [])
        _Here.profiler = torch.profiler.profile(activities=wanted, record_shapes=True)
        _Here.profiler.start()
    except Exception as error:  # another profiler may be at work, or torch was built without
        _Here.profiler = None
        _Here.trouble.append(f"torch's profiler did not start: {type(error).__name__}: {error}"[:300])
    _Here.since = time.perf_counter()
    _Here.traced = [_Here.since]


def _queued(thread: int) -> float:
    """The seconds that a thread of this process has waited for a processor, as the kernel counts them."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _uses_cuda(torch: Any) -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def _look(pid: int, main: int) -> None:
    """The thread: notes the own line of the program that the main thread is at, and what it called there."""
    before, switches = time.perf_counter(), sys.getswitchinterval()
    # Else Python's own work of less than that is over before this thread may look, and counts for what follows.
    sys.setswitchinterval(min(switches, _SWITCH_S))
    try:
        while os.getpid() == pid and _Here.state == "lines":
            time.sleep(_EVERY_S)
            frame = sys._current_frames().get(main)
            if frame is None:
                return
            now = time.perf_counter()
            # A line that keeps the interpreter's lock keeps this thread waiting: it counts for as long.
            _sample(frame, now - before)
            before = now
            del frame
    finally:
        sys.setswitchinterval(switches)


def _sample(frame: FrameType, seconds: float) -> None:
    """Adds one look: the innermost own line, the own line that called it, and what of torch stands between."""
    own = envkit_steps.own_frames(frame)
    if own and len(_Here.lines) < _MOST_LINES:
        inner, outer = own[0], own[1] if len(own) > 1 else own[0]
        called = "" if inner is frame else frame.f_code.co_name
        key = (inner.f_code.co_filename, inner.f_lineno, inner.f_code.co_name, outer.f_code.co_filename, outer.f_lineno)
        place = (*key, called, _part(frame))
        _Here.lines[place] = _Here.lines.get(place, 0.0) + seconds
    _Here.looked += seconds


def _part(frame: FrameType | None) -> str:
    """The part of a step that a stack is in, by torch's own frames in it; empty for the program's own work."""
    while frame is not None:
        code = frame.f_code
        for end, function, part in _PARTS:
            if code.co_filename.endswith(end) and code.co_name.startswith(function):
                return part
        frame = frame.f_back
    return ""


def _finish() -> None:
    _Here.state = "done"
    envkit_steps.ended()
    profiler, _Here.profiler = _Here.profiler, None
    trace = ""
    if profiler is not None:
        try:
            profiler.stop()
            if len(_Here.traced) > 1:  # one whole step at least
                trace = f"trace-{os.getpid()}.json"
                profiler.export_chrome_trace(os.path.join(_Here.folder, trace))
        except Exception as error:
            trace = ""
            _Here.trouble.append(f"torch's profiler gave nothing: {type(error).__name__}: {error}"[:300])
    _write(trace)
    del profiler
    gc.collect()


def _ended(pid: int) -> None:
    if os.getpid() != pid or _Here.state == "done":
        return
    if _Here.state == "traces" and _Here.pid == pid:
        _finish()
    elif envkit_steps.kind() or "torch" in sys.modules:
        _Here.state = "done"
        _write("")


def _write(trace: str) -> None:
    torch = sys.modules.get("torch")
    devices = []
    if torch is not None and _uses_cuda(torch):
        devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    waited = [(a, b) for a, b in envkit_steps.loaded() if _Here.ends and _Here.ends[0] <= b <= _Here.ends[-1]]
    said = {
        "pid": os.getpid(),
        "rank": envkit_steps.rank(),
        "kind": envkit_steps.kind(),
        "loop": envkit_steps.loop(),
        "first": _Here.first,
        "state": _Here.state,
        "alone": _apart(_Here.alone),
        "steps": _apart(_Here.ends),
        "traced": _apart(_Here.traced),
        "loaded": [round(b - a, 6) for a, b in waited],
        "queued": round(max(_Here.queued, 0.0), 4),
        "looked": round(_Here.looked, 4),
        "lines": [
            [*place, round(seconds, 4), linecache.getline(place[0], place[1]).strip()[:160]]
            for place, seconds in sorted(_Here.lines.items(), key=lambda each: -each[1])[:80]
        ],
        "trace": trace,
        "devices": devices,
        "device": torch.cuda.current_device() if devices and torch is not None else None,
        "torch": str(getattr(torch, "__version__", "")),
        "threads": torch.get_num_threads() if torch is not None else 0,
        "tf32": bool(torch.backends.cuda.matmul.allow_tf32) if torch is not None and devices else None,
        "trouble": _Here.trouble[:20],
    }
    path = os.path.join(_Here.folder, f"slow-{os.getpid()}.json")
    with open(path + "~", "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(said, file)
    os.replace(path + "~", path)


def _apart(ends: list[float]) -> list[float]:
    """The seconds between ends of steps."""
    return [round(ends[at + 1] - ends[at], 6) for at in range(len(ends) - 1)]
