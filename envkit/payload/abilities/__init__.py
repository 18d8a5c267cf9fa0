"""What the environment can do, each thing tried by a child of its own: open a library, compile, load an extension.

Nothing is judged here: a row says what was tried and how that ended.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from envkit.payload import cuda_error, isolate

FULL_S = 480.0  # for the process that tries what takes long
LEVELS = ("none", "quick", "full")
WORKS, FAILS, ABSENT, UNTRIED = "works", "fails", "absent", "untried"
_MOST = 800  # characters of a failure's text
_LANES = 4  # more than processors: a child waits for its disk, and its parent looks for its end every 20 ms
# What the driver brings and no image: where it is missing, no GPU was given to the run.
DRIVER = re.compile(r"lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler|nvcuvid|nvidia-encode)\.so(?:\.\d+)?")
DRIVER_CALL = re.compile(r"(?:cu[A-Z]|nvml[A-Z])\w*")  # and no call of cuBLAS, cudart or another library
_NO_LIBRARY = re.compile(r"(\S+): cannot open shared object file: No such file or directory")
_NO_SYMBOL = re.compile(r"undefined symbol: ([^\s,]+)|version `([^']+)' not found")


class Absent(Exception):
    """Raised by work that finds no such thing here; the text names it."""


class Untried(Exception):
    """Raised by work that cannot be done here, whatever the image is; the text says why."""

    def __init__(self, why: str, library: str = "") -> None:
        super().__init__(why)
        self.library = library


def row(kind: str, what: str, end: str, detail: str = "", owner: str = "", **more: Any) -> dict[str, Any]:
    """One row, in the words of the subject."""
    blank = {"library": "", "symbol": "", "cpu_s": 0.0}
    return {"kind": kind, "what": what, "end": end, "detail": detail[:_MOST], "owner": owner, **blank, **more}


def _cpu_s() -> float:
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(sum(one.ru_utime + one.ru_stime for one in both), 3)


def lacking(text: str) -> dict[str, str]:
    """The library and the symbol that the dynamic linker's message says are not there, each empty if it names none."""
    library, symbol = _NO_LIBRARY.search(text), _NO_SYMBOL.search(text)
    found = (symbol[1] or symbol[2]) if symbol else ""
    return {"library": os.path.basename(library[1]) if library else "", "symbol": found}


def _try(work: Callable[[], Any], _say: Callable[[Any], None]) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    more: dict[str, Any] = {}
    try:
        end, detail = WORKS, str(work() or "")
    except Absent as why:
        end, detail = ABSENT, str(why)
    except Untried as why:
        end, detail, more = UNTRIED, str(why), {"library": why.library}
    except BaseException as error:  # whatever a broken library raises, SystemExit included, is the observation
        detail = f"{type(error).__name__}: {error}"
        end = UNTRIED if cuda_error.code_of(error)[0] else FAILS  # CUDA itself was called, which needs a GPU
        more = lacking(detail)
    return {"end": end, "detail": " ".join(detail.split())[:_MOST], "cpu_s": _cpu_s(), **more}


class Attempt:
    """One thing to be tried: ``work`` returns a detail or None, or raises."""

    def __init__(self, kind: str, what: str, work: Callable[[], Any], owner: str = "", budget_s: float = 30.0) -> None:
        self.kind, self.what, self.work, self.owner, self.budget_s = kind, what, work, owner, budget_s


def _told(one: Attempt, ending: isolate.Ending) -> dict[str, Any]:
    make = partial(row, one.kind, one.what, owner=one.owner)
    if ending.ended == "ran":
        return {**make(WORKS), **ending.value}
    if ending.signal == "SIGKILL":
        return make(UNTRIED, "its process was killed by SIGKILL, which comes from the machine, mostly for its memory")
    last = (ending.stderr_tail.strip().splitlines() or [""])[-1] if ending.ended == "garbled" else ""
    how = f"was killed by {ending.signal}" if ending.signal else ending.detail or ending.ended
    return make(FAILS, f"{how}: {last}" if last else how)


def try_all(attempts: Sequence[Attempt], budget_s: float, lanes: int = _LANES) -> list[dict[str, Any]]:
    """A row for each attempt, in order; those that ``budget_s`` leaves no time for have failed by that."""
    rows: dict[str, dict[str, Any]] = {}
    tasks = [isolate.Task(str(i), "", one.budget_s, partial(_try, one.work)) for i, one in enumerate(attempts)]

    def done(task: isolate.Task, ending: isolate.Ending) -> None:
        rows[task.name] = _told(attempts[int(task.name)], ending)

    isolate.run([tasks[lane::lanes] for lane in range(lanes)], budget_s, done)
    return [rows[task.name] for task in tasks]
