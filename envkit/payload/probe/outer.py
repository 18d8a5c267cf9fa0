"""What this Python's torch maps and binds, observed in children that are started as a user's process would be."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from envkit.payload.probe import inner

if TYPE_CHECKING:
    from collections.abc import Callable

# Importing torch from a cold network disk has been seen to take minutes.  It is less than the whole run is given, so
# that a process which hangs still leaves a document.
_BUDGET_S = 240.0
_LATE_S = 30.0  # for one late load, which takes milliseconds, and seconds from a cold disk: a hanging driver ends it
_END_S = 10  # from the last line to the end of the process
_MOST_DEATHS = 3  # late loads that may kill the observed process before the rest of them is given up
STATIC = "torch was not imported: only what needs no import was asked for"


def command() -> list[str]:
    """A child's command line: this interpreter with the image's own environment, neither -I nor -E."""
    if sys.argv[0].endswith(".pyz"):
        return [sys.executable, os.path.abspath(sys.argv[0])]
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    start = f"import sys; sys.path.insert(0, {tree!r}); from envkit.payload import main; main.main(sys.argv[1:])"
    return [sys.executable, "-c", start]


class Child:
    """One observed process and what it has told so far; it has ``budget_s`` in all, ``late_s`` for each late load."""

    def __init__(self, words: list[str], budget_s: float, late_s: float) -> None:
        self.pipe, writing = os.pipe()
        self.process = subprocess.Popen(
            [*command(), "probe", "--inner", str(writing), *words],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),  # whatever an import prints must not reach our document
            pass_fds=(writing,),
        )
        os.close(writing)
        self._budget_s, self._late_s = budget_s, min(budget_s, late_s)
        self._ends_at = self.deadline = time.monotonic() + budget_s
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
            late = self.doing.startswith(inner.LATE)
            self.deadline = min(self._ends_at, time.monotonic() + self._late_s) if late else self._ends_at

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
            from envkit.payload.probe.ask import how_it_died

            self.how = how_it_died(-code if code < 0 else code << 8)
            if self.hung:
                late = self.doing.startswith(inner.LATE)
                self.how = f"did not end within {self._late_s if late else self._budget_s:g} s"
            self.failed = f"the observed process {self.how} while {self.doing}"


def run_all(
    commands: list[list[str]],
    budget_s: float,
    again: Callable[[Child], list[str]] = lambda child: [],
    late_s: float = _LATE_S,
) -> list[Child]:
    """Runs the inner processes side by side and ends each at its deadline; the last one run for each command.

    ``again`` gives the words of a process to be run in the place of one that ended, none if there is to be none.
    """
    children = [Child(words, budget_s, late_s) for words in commands]
    with selectors.DefaultSelector() as selector:
        for index, child in enumerate(children):
            selector.register(child.pipe, selectors.EVENT_READ, index)
        while selector.get_map():
            now = time.monotonic()
            waiting = [key.data for key in selector.get_map().values()]
            ready = selector.select(max(0.0, min(children[index].deadline for index in waiting) - now))
            ended = {key.data for key, _ in ready if not children[key.data].hear()}
            for index in ended | {index for index in waiting if time.monotonic() >= children[index].deadline}:
                selector.unregister(children[index].pipe)
                children[index].close(index not in ended)
                words = again(children[index])
                if words:
                    children[index] = Child(words, budget_s, late_s)
                    selector.register(children[index].pipe, selectors.EVENT_READ, index)
    return children


class _LateLoads:
    """Which late loads killed the observed process or hung; the process that is run anew leaves them out.

    What the process has mapped it tells only after them.  One that hung, or the last of _MOST_DEATHS, ends the late
    loads: those behind it may hang as well.
    """

    def __init__(self) -> None:
        self.failed: list[dict[str, str]] = []
        self._given_up = False

    def again(self, child: Child) -> list[str]:
        """The words of the process to be run in the place of ``child``, none if it did all that it can."""
        if not child.failed or not child.doing.startswith(inner.LATE) or self._given_up:
            return []
        self.failed.append({"what": child.doing[len(inner.LATE) :], "error": child.how})
        self._given_up = child.hung or len(self.failed) == _MOST_DEATHS
        words = ["--without", ",".join(one["what"] for one in self.failed)]
        return [*words, "--until", self.failed[-1]["what"]] if self._given_up else words


def _together(static: Child, torch: Child | None, late: list[dict[str, str]]) -> dict[str, Any]:
    """All fields; ``late`` are the late loads that failed in processes before this one."""
    found = dict(static.found)
    owned = found.pop("owned", {"value": None})["value"]
    failed, reasons = static.failed, dict.fromkeys(inner.without_torch(), static.failed)
    if torch is not None:
        failed = torch.failed
        found.update(torch.found)
        if failed and torch.doing == "import torch" and not torch.hung and torch.how.startswith("was killed"):
            found["torch_import"] = inner.observed(torch.how, "wait status")
        if late:
            done = found.get("late", {"value": []})["value"]
            found["late"] = inner.observed([*done, *late], "dlopen")
        tell_owners(found, owned, static.failed)
    else:
        failed = STATIC
    reasons.update(dict.fromkeys(inner.with_torch(), failed))
    for name in inner.fields():
        found.setdefault(name, inner.lost(reasons.get(name) or "it was not reported"))
    return found


def tell_owners(found: dict[str, Any], owned: dict[str, list[str]] | None, why: str) -> None:
    """Says of each mapped library whose it is, which the other process has read, and takes it out of ``unmapped``."""
    if "libraries" not in found:
        return
    if owned is None:
        found["libraries"] = inner.lost(f"whose files the mapped libraries are: {why or 'it was not reported'}")
        return
    libraries = found["libraries"]["value"]
    paths = [library["path"].partition(" (deleted)")[0] for library in libraries]
    for index, path in enumerate(paths):
        libraries[index]["owner"], libraries[index]["owner_version"] = owned.get(path, ("", ""))
    if "unmapped" in found:
        rest = [library for library in found["unmapped"]["value"] if library["path"] not in set(paths)]
        found["unmapped"]["value"] = rest


def main(argv: list[str]) -> dict[str, Any]:
    """The document of a probe; with "--static" in ``argv`` torch is not imported."""
    started = time.monotonic()
    return {"image": observe("--static" in argv), "elapsed_s": round(time.monotonic() - started, 3)}


def observe(only_static: bool, late_s: float = _LATE_S) -> dict[str, Any]:
    """Every field of the image, observed or lost with the reason; ``late_s`` is what one late load may take."""
    late = _LateLoads()
    children = run_all([["--static"]] if only_static else [[], ["--static"]], _BUDGET_S, late.again, late_s)
    found = _together(children[-1], None if only_static else children[0], late.failed)
    found["frameworks"] = inner.lost(STATIC) if only_static else _frameworks(found)
    return found


def _frameworks(found: dict[str, Any]) -> dict[str, Any]:
    """The field ``frameworks``; where none is installed, this costs nothing."""
    if found["wheels"]["missing"]:
        return inner.lost(found["wheels"]["missing"])
    from envkit.payload.probe import frameworks

    ended = found["torch_import"]["value"] or found["torch_import"]["missing"]
    wanted = [wheel for wheel in found["wheels"]["value"] if wheel["name"] in frameworks.FRAMEWORKS]
    if wanted and ended not in ("done", "absent"):
        return inner.lost(f"import torch {ended}")
    return frameworks.observe(wanted)
