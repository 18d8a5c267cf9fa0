"""Stacks of Python as faulthandler and py-spy print them, and what the threads of a hanging command wait for."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envkit.debug.records import PythonFrame, Waiting

_THREAD = re.compile(r"^(?P<current>Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]\n]*\])? \(most recent call first\):")
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_RAISED = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>.*)$')
_TRACEBACK = "Traceback (most recent call last):"
_SPY_THREAD = re.compile(r"^Thread (?:0x[0-9A-Fa-f]+|\d+)\b")
_SPY_FRAME = re.compile(r"^    (?P<function>\S.*?) \((?P<file>[^()]*?):(?P<line>\d+)\)$")
_FATAL = re.compile(r"^Fatal Python error: (?P<what>.+)$", re.M)
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|<frozen |^<string>$|/envkit/payload/companion/|^/envkit-companion/"
    r"|^\w+/[\w/]*\.p(?:yx|xd|xi)$"  # of a package in Cython: its path where it was built
    r"|/torchinductor_[^/]+/|/c[a-z2-7]{50,52}\.py$"  # what torch.compile wrote
)
_GENERATED = re.compile(r"/torchinductor_[^/]+/|/c[a-z2-7]{50,52}\.py$")
_STANDARD = re.compile(r"/lib/python3(?:\.\d+)?/(?!(?:site|dist)-packages/)")
_OWN_STANDARD = sysconfig.get_paths()["stdlib"] + "/"


def _frame(found: re.Match[str]) -> PythonFrame:
    number = found["line"]
    return PythonFrame(found["file"], int(number) if number.isdigit() else 0, found["function"].strip())


def threads(text: str) -> tuple[tuple[PythonFrame, ...], ...]:
    """The stacks in a dump of faulthandler or py-spy, each with its innermost frame last, the main thread's last."""
    found: list[list[PythonFrame]] = []
    for line in text.splitlines():
        if _THREAD.match(line) or _SPY_THREAD.match(line):
            found.append([])
        frame = _FRAME.match(line) or _SPY_FRAME.match(line)
        if frame and found and len(found[-1]) < 200:
            found[-1].append(_frame(frame))
    stacks = [tuple(each[::-1]) for each in found if each]
    # The main thread is the one whose outermost frame is a module; faulthandler prints it last, py-spy first.
    return tuple(sorted(stacks, key=lambda each: each[0].function == "<module>"))


def died(text: str) -> tuple[str, tuple[PythonFrame, ...]]:
    """Of a dump that faulthandler wrote at a fatal signal: its words and the stack of the thread that died."""
    fatal = _FATAL.search(text)
    if not fatal:
        return "", ()
    lines = text[fatal.end() :].splitlines()
    at = next((number for number, line in enumerate(lines) if line.startswith("Current thread")), None)
    if at is None:
        return fatal["what"].strip(), ()
    frames: list[PythonFrame] = []
    for line in lines[at + 1 :]:
        frame = _FRAME.match(line)
        if not frame:
            break
        frames.append(_frame(frame))
    return fatal["what"].strip(), tuple(frames[::-1])


def is_own(frame: PythonFrame) -> bool:
    """Whether a frame is of the program itself: in no package that was installed, and not of Python's library."""
    library = _LIBRARY.search(frame.file) or _STANDARD.search(frame.file) or frame.file.startswith(_OWN_STANDARD)
    return not library


def is_generated(file: str) -> bool:
    """Whether torch.compile wrote a file."""
    return bool(_GENERATED.search(file))


def own_line(frames: Sequence[PythonFrame]) -> PythonFrame | None:
    """The innermost frame of the program itself; of a stack without one, the innermost of all."""
    return next((frame for frame in reversed(frames) if is_own(frame)), frames[-1] if frames else None)


def uncompiled(frames: Sequence[PythonFrame]) -> tuple[PythonFrame, ...]:
    """A stack without frames of code that torch.compile put in a function's place, which stand at its first line: those
    between two frames of its own."""
    inside = [frame.file.endswith("/torch/_dynamo/eval_frame.py") for frame in frames]
    return tuple(
        frame
        for at, frame in enumerate(frames)
        if inside[at] or not (at and inside[at - 1] and inside[at + 1 : at + 2] == [True])
    )


def replays(frames: Sequence[PythonFrame]) -> bool:
    """Whether a stack is that of the replay of a CUDA graph, whose kernels were launched at another line."""
    return any(each.function == "replay" and each.file.endswith("torch/cuda/graphs.py") for each in frames)


def caller(frames: Sequence[PythonFrame]) -> PythonFrame | None:
    """Of a stack whose own line lies in a helper's file, the innermost frame of the program outside of that file."""
    own = own_line(frames)
    outside = (
        [frame for frame in frames[: frames.index(own)] if is_own(frame) and frame.file != own.file] if own else []
    )
    return outside[-1] if outside else None


def waiting(samples: Sequence[Mapping[str, Any]]) -> tuple[Waiting, ...]:
    """The processes of the supervisor's last sample; the last one with native stacks, if any has them."""
    if not samples:
        return ()
    told = []
    for pid, each in samples[-1]["processes"].items():
        native = str(each.get("native", ""))
        stacks = threads(str(each.get("python", ""))) or threads(native)
        command, rank, state, waits_in = (str(each.get(key, "")) for key in ("command", "rank", "state", "waits_in"))
        told.append(Waiting(int(pid), command, rank, bool(each.get("cuda")), state, waits_in, stacks, native))
    return tuple(sorted(told, key=lambda each: (int(each.rank) if each.rank.isdigit() else 1 << 30, each.pid)))


def waits(process: Waiting) -> str:
    """One sentence of where a process is: its main thread's innermost frame and the program's own line above it."""
    if not process.threads:
        where = f" in {process.waits_in}" if process.waits_in and process.waits_in != "0" else ""
        return f"process {process.pid} ({process.command[:60]}) has no Python stack; the kernel has it{where}"
    main = process.threads[-1]
    inner, own = main[-1], own_line(main)
    name = f"rank {process.rank} (process {process.pid})" if process.rank else f"process {process.pid}"
    said = f"{name} is in {inner.function} at {inner.place}"
    return said + (f", called from {own.function} at {own.place}" if own and own != inner else "")


def moved(samples: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any Python's stack differs between the samples; False where there are fewer than two."""
    pictures = [{pid: each["python"] for pid, each in sample["processes"].items()} for sample in samples]
    return any(picture != pictures[0] for picture in pictures[1:])


def at(lead: str, frames: Sequence[PythonFrame]) -> str:
    """The program's own line of a stack behind ``lead``; "" for a stack without one."""
    own = own_line(frames)
    return f"{lead} {own.place} in {own.function}" if own else ""


def raised(text: str) -> tuple[PythonFrame, ...]:
    """The frames of the first traceback in the text of an exception, which another process or thread met: a spawned
    one, a worker of a pool or of a loader."""
    begin = text.find(_TRACEBACK)
    if begin < 0:
        return ()
    rest = text[begin + len(_TRACEBACK) :]
    end = rest.find(_TRACEBACK)
    lines = (rest if end < 0 else rest[:end]).splitlines()
    return tuple(_frame(found) for line in lines if (found := _RAISED.match(line)))


def frames(raw: Iterable[Sequence[Any]]) -> tuple[PythonFrame, ...]:
    """Frames as the companion writes them: file, line, function."""
    return tuple(PythonFrame(str(each[0]), int(each[1] or 0), str(each[2])) for each in raw)
