"""An observed process as its parent has it: started, heard line by line, and ended at its deadline."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from typing import Any

from envkit.payload import waits
from envkit.payload.probe.ask import how_it_died
from envkit.payload.probe.report import LATE

# Importing torch from a cold network disk has been seen to take minutes.  It is less than the whole run is given, so
# that a process which hangs still leaves a document.
BUDGET_S = 240.0
_LOOK_S = 0.25  # how often it is looked whether one is late
_END_S = 10  # from the last line to the end of the process


def command() -> list[str]:
    """A child's command line: this interpreter with the options and the environment that it was started with."""
    own = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]  # as multiprocessing does
    if sys.argv[0].endswith(".pyz"):
        return [*own, os.path.abspath(sys.argv[0])]
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    start = f"import sys; sys.path.insert(0, {tree!r}); from envkit.payload import main; main.main(sys.argv[1:])"
    return [*own, "-c", start]


class Child:
    """One observed process and what it has told so far.

    It has BUDGET_S in all, and ``step_s`` for each step that is announced with one of ``steps``, the time in which it
    waited for a processor aside; ``env`` is its environment, None for this process's own; ``budget_s`` in the place of
    BUDGET_S.
    """

    def __init__(
        self,
        words: list[str],
        step_s: float,
        steps: tuple[str, ...] = (LATE,),
        env: dict[str, str] | None = None,
        budget_s: float = BUDGET_S,
    ) -> None:
        self.pipe, writing = os.pipe()
        self.process = subprocess.Popen(
            [*command(), "probe", "--inner", str(writing), *words],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),  # whatever an import prints must not reach our document
            pass_fds=(writing,),
            env=env,
        )
        os.close(writing)
        self._step_s, self._steps, self._budget_s = min(budget_s, step_s), steps, budget_s
        self._ends_at = self._deadline = time.monotonic() + budget_s
        self._waited = 0.0  # in the step that it is in
        self._data = b""
        self._ended = False
        self.found: dict[str, Any] = {}
        self.doing = "starting"
        self.failed = ""  # how it failed, empty if it told all
        self.how = ""  # how it died
        self.hung = False

    def hear(self) -> bool:
        """Takes what waits in the pipe; False where it ended."""
        chunk = os.read(self.pipe, 1 << 16)
        *lines, self._data = (self._data + chunk).split(b"\n")
        for raw in lines:
            try:
                line = json.loads(raw.decode("utf-8", "replace"))
            except ValueError:
                continue  # something else wrote into the pipe; a field that this cost is missing below
            if isinstance(line, dict):
                self._take(line)
        return bool(chunk)

    def _take(self, line: dict[str, Any]) -> None:
        self._ended = self._ended or "end" in line
        if "field" in line:
            self.found[line["field"]] = line["observed"]
        if "doing" in line:
            self.doing = str(line["doing"])
            short = self.doing.startswith(self._steps)
            self._deadline = min(self._ends_at, time.monotonic() + self._step_s) if short else self._ends_at
            self._waited = 0.0

    def late(self, waited: float | None) -> bool:
        """Whether its time is up, after it ``waited`` so many seconds more for a processor; None: nobody looked."""
        now = time.monotonic()
        self._waited += waited or 0.0
        over = now - self._deadline
        if now >= self._ends_at or waited is None:
            return now >= self._ends_at
        return over >= min(self._waited, (waits.LONGEST - 1) * self._step_s)

    def close(self, hung: bool) -> None:
        """Waits for its end; one that ``hung`` is killed."""
        self.hung = hung
        if hung:
            self.process.kill()
        os.close(self.pipe)
        try:
            code = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:  # it hangs at its end, or in the kernel, where no signal reaches it
            self.process.kill()
            code, self.hung = 0, True
        if not self._ended:
            self.how = how_it_died(-code if code < 0 else code << 8)
            if self.hung:
                short = self.doing.startswith(self._steps)
                self.how = f"did not end within {self._step_s if short else self._budget_s:g} s"
            self.failed = f"the observed process {self.how} while {self.doing}"


class ParallelChildren:
    """Children that run side by side, each of which is ended at its deadline."""

    def __init__(self) -> None:
        self._clock = waits.Waits()
        self._selector = selectors.DefaultSelector()
        self.running: list[Child] = []

    def start(self, child: Child) -> Child:
        """Takes ``child`` among those that are heard; returns it."""
        self._selector.register(child.pipe, selectors.EVENT_READ, child)
        self.running.append(child)
        return child

    def wait(self) -> list[Child]:
        """Waits until one of them tells something or is late; those that ended by that."""
        ended: list[Child] = []
        late: list[Child] = []
        ready: list[Child] = []
        while not ready and not late:
            ready = [key.data for key, _ in self._selector.select(_LOOK_S)]
            ended = [child for child in ready if not child.hear()]
            looked = self._clock.since([child.process.pid for child in self.running])
            late = [child for child in self.running if child not in ended and child.late(looked.get(child.process.pid))]
        for child in ended + late:
            self.stop(child, child in late)
        return ended + late

    def stop(self, child: Child, kill: bool) -> None:
        """Hears ``child`` no more and waits for its end, which ``kill`` brings about."""
        self._selector.unregister(child.pipe)
        self.running.remove(child)
        child.close(kill)
