"""Finds the loop that a program is in, and tells each time it comes round: the step of a program that marks none.

From a while without any other step on, the functions that the main thread is in are watched for jumps back.  After
``_SETTLE_S`` seconds the outermost loop that came round ``_ROUNDS`` times is the one whose rounds are told; the others
are watched no more.  From Python 3.12 on sys.monitoring tells of jumps in these functions alone; before, the frames
that are there get a trace function, for which Python calls another at each call of the main thread while it lasts.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    _Loop = tuple[CodeType, int]  # its function, and where a round begins in it: an offset, or a line before 3.12

_SILENT_S = 2.0  # without a step of any kind, before a loop is looked for
_SETTLE_S = 4.0  # in which loops are counted before one is taken
_GIVE_UP_S = 60.0  # without any round, after which the stack is looked at anew
_ROUNDS = 4  # jumps back of a loop that counts: three whole rounds and more
_ENOUGH = 200  # rounds after which only one in each look is counted: to count costs what a short round costs
_GONE_S = 10.0  # without a round, after which a loop is looked for anew
_EVERY_S = 0.25
_MOST_CODES = 400
_TOOLS = (
    4,
    3,
)  # of sys.monitoring's numbers, those that mean no debugger, coverage or profiler


class _Here:
    """What is watched in this process."""

    again: Callable[[], None] | None = None
    silent: Callable[[], float] = staticmethod(lambda: 0.0)
    own: Callable[[str], bool] = staticmethod(lambda _: True)
    trouble: Callable[[str], None] = staticmethod(lambda _: None)
    pid = 0
    main = 0
    codes: ClassVar[list[CodeType]] = []  # of the stack, the outermost first
    rounds: ClassVar[dict[_Loop, tuple[int, float, float]]] = {}  # how many, and when the first and the last was
    taken: _Loop | None = None
    line = 0  # of the loop that was taken
    last = 0.0  # when it came round, by perf_counter
    usual = 0.0  # the seconds of a round
    tool = -1
    before: ClassVar[dict[FrameType, int]] = {}  # before 3.12: the frames that are traced, and where each was


def watch(
    again: Callable[[], None],
    silent: Callable[[], float],
    own: Callable[[str], bool],
    trouble: Callable[[str], None],
    pid: int,
) -> None:
    """Calls ``again`` in the main thread at each round of the loop, once ``silent`` has told of seconds without a step;
    ``own`` says of a file whether it is the program's.  A thread of its own looks on."""
    _Here.again, _Here.silent, _Here.own, _Here.trouble = again, silent, own, trouble
    _Here.pid, _Here.main = pid, threading.main_thread().ident or 0
    threading.Thread(target=_attend, args=(pid,), name="envkit-loops", daemon=True).start()


def place() -> tuple[str, int]:
    """The file and line of the loop whose rounds are told; an empty name where there is none."""
    return (_Here.taken[0].co_filename, _Here.line) if _Here.taken else ("", 0)


def stop() -> None:
    """Ends what watches; called in the main thread, or in another one after the last round."""
    _Here.pid = 0
    _release()


def _attend(pid: int) -> None:
    os = importlib.import_module("os")
    since = 0.0
    while True:
        time.sleep(_EVERY_S)
        if not _Here.pid == pid == os.getpid():
            return  # asked after the sleep: what was stopped meanwhile is not watched anew
        now = time.perf_counter()
        if _Here.taken:
            if now - _Here.last > max(_GONE_S, 3 * _Here.usual):
                _release()  # it ended, or what it does now takes far longer than a round
        elif not _Here.codes:
            if _Here.silent() >= _SILENT_S:
                since = now
                _begin()
        elif _Here.silent() < _SILENT_S or now - since >= _GIVE_UP_S:
            _release()
        elif now - since < _SETTLE_S or not _settled(now - since >= 3 * _SETTLE_S):
            _more()


def _stack() -> list[FrameType]:
    """The main thread's frames, the outermost first; none of Python's own start and of what ends it."""
    frame = sys._current_frames().get(_Here.main)
    found = []
    while frame is not None:
        if not frame.f_code.co_filename.startswith("<frozen"):
            found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _begin() -> None:
    """Watches the functions that the main thread is in."""
    _Here.rounds, _Here.taken = {}, None
    _Here.codes = list(dict.fromkeys(frame.f_code for frame in _stack()))
    if sys.version_info >= (3, 12):
        _monitored()
    else:
        _in_main(_traced)


def _more() -> None:
    """Watches the functions that the main thread has entered since as well: what it was in may have been an import."""
    if sys.version_info >= (3, 12):
        sys.monitoring.restart_events()  # of loops that were counted often enough
    new = [code for code in dict.fromkeys(frame.f_code for frame in _stack()) if code not in _Here.codes]
    if not new or len(_Here.codes) > _MOST_CODES:
        return
    _Here.codes = [*_Here.codes, *new]
    if sys.version_info >= (3, 12):
        for code in new:
            sys.monitoring.set_local_events(_Here.tool, code, sys.monitoring.events.JUMP)
    else:
        _in_main(_traced)


def _settled(any_code: bool) -> bool:
    """Takes the outermost loop that comes round often enough and still does: of the program's own functions, or of any
    where ``any_code`` allows it."""
    now = time.perf_counter()
    stack = [frame.f_code for frame in _stack()]
    loops = []
    for loop, (count, first, last) in list(_Here.rounds.items()):
        usual = (last - first) / max(count - 1, 1)
        goes_on = loop[0] in stack and now - last <= 2 * usual + 4 * _EVERY_S
        if (
            count >= _ROUNDS
            and last - first >= _SETTLE_S / 2
            and goes_on
            and (any_code or _Here.own(loop[0].co_filename))
        ):
            loops.append((not _Here.own(loop[0].co_filename), stack.index(loop[0]), loop[1], usual, loop))
    if not loops:
        return False
    *_, _Here.usual, loop = min(loops, key=lambda each: each[:3])
    _Here.line = _line(*loop)
    _Here.last = now
    _Here.taken = loop
    if sys.version_info >= (3, 12):
        for code in _Here.codes:
            if code is not loop[0]:
                sys.monitoring.set_local_events(_Here.tool, code, 0)
        sys.monitoring.restart_events()
    return True


def _line(code: CodeType, begins: int) -> int:
    """The line of a loop's beginning."""
    if sys.version_info < (3, 12):
        return begins
    lines = [line for first, last, line in code.co_lines() if first <= begins < last and line]
    return lines[0] if lines else code.co_firstlineno


def _round(loop: _Loop) -> None:
    """A loop came round."""
    if _Here.taken is None:
        now = time.perf_counter()
        count, first, _ = _Here.rounds.get(loop, (0, now, now))
        _Here.rounds[loop] = (count + 1, first, now)
    elif _Here.taken == loop and _Here.again is not None:
        _Here.last = time.perf_counter()
        _Here.again()


def _release() -> None:
    """Watches nothing."""
    codes, _Here.codes, _Here.rounds, _Here.taken = _Here.codes, [], {}, None
    if sys.version_info >= (3, 12):
        if _Here.tool >= 0:
            for code in codes:
                sys.monitoring.set_local_events(_Here.tool, code, 0)
            sys.monitoring.free_tool_id(_Here.tool)
            _Here.tool = -1
    elif threading.get_ident() == _Here.main:
        _untraced()
    else:
        _in_main(_untraced)


# -- Python 3.12 and later


def _monitored() -> None:
    if sys.version_info < (3, 12):
        return
    free = [number for number in _TOOLS if sys.monitoring.get_tool(number) is None]
    if not free:
        _Here.trouble("another tool monitors this Python: its loops are not seen")
        _Here.pid = 0
        return
    _Here.tool = free[0]
    sys.monitoring.use_tool_id(_Here.tool, "envkit")
    sys.monitoring.register_callback(_Here.tool, sys.monitoring.events.JUMP, _jumped)
    for code in _Here.codes:
        sys.monitoring.set_local_events(_Here.tool, code, sys.monitoring.events.JUMP)


def _jumped(code: CodeType, at: int, to: int) -> Any:
    """Of each jump in the watched functions; one that can tell nothing is not told again."""
    if sys.version_info < (3, 12):
        return None
    loop = (code, to)
    if to > at or (_Here.taken is not None and loop != _Here.taken):
        return sys.monitoring.DISABLE
    if threading.get_ident() == _Here.main:
        _round(loop)
        if _Here.taken is None and _Here.rounds.get(loop, (0,))[0] >= _ENOUGH:
            return sys.monitoring.DISABLE
    return None


# -- Python before 3.12


_PENDING = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_waiting: list[Any] = []  # what Python is to call, which must live until then


def _in_main(call: Callable[[], None]) -> None:
    """Lets the main thread call a function as soon as it runs Python."""

    def called(_: Any) -> int:
        if threading.get_ident() == _Here.main:
            call()
        return 0

    _waiting[:] = [*_waiting[-8:], _PENDING(called)]
    ctypes.pythonapi.Py_AddPendingCall(_waiting[-1], None)


def _traced() -> None:
    if sys.gettrace() not in (None, _no_call):
        _Here.trouble("another tool traces this Python: its loops are not seen")
        _Here.pid = 0
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _Here.codes and frame not in _Here.before:
            _Here.before[frame] = frame.f_lasti
            frame.f_trace = _local
        frame = frame.f_back
    sys.settrace(_no_call)


def _no_call(frame: FrameType, event: str, argument: Any) -> None:
    """Of each call: none but the frames that were there is traced."""


def _local(frame: FrameType, event: str, argument: Any) -> Any:
    if event == "return":
        _Here.before.pop(frame, None)
        return None
    before = _Here.before.get(frame)
    if event == "line" and before is not None:
        at = _Here.before[frame] = frame.f_lasti
        if at <= before:
            _round((frame.f_code, frame.f_lineno))
    return _local if frame in _Here.before else None


def _untraced() -> None:
    if sys.gettrace() is _no_call:
        sys.settrace(None)
    for frame in _Here.before:
        frame.f_trace = None
    _Here.before.clear()
