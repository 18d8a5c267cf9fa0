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
    from envkit.payload.probe.frameworks import Imports

# Importing torch from a cold network disk has been seen to take minutes.  It is less than the whole run is given, so
# that a process which hangs still leaves a document.
BUDGET_S = 240.0
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
    """One observed process and what it has told so far.

    It has BUDGET_S in all, and ``step_s`` for each step that is announced with one of ``steps``; ``env`` is its
    environment, None for this process's own.
    """

    def __init__(
        self,
        words: list[str],
        step_s: float,
        steps: tuple[str, ...] = (inner.LATE,),
        env: dict[str, str] | None = None,
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
        self._step_s, self._steps = min(BUDGET_S, step_s), steps
        self._ends_at = self.deadline = time.monotonic() + BUDGET_S
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
            self.deadline = min(self._ends_at, time.monotonic() + self._step_s) if short else self._ends_at

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
                short = self.doing.startswith(self._steps)
                self.how = f"did not end within {self._step_s if short else BUDGET_S:g} s"
            self.failed = f"the observed process {self.how} while {self.doing}"


class Abreast:
    """Children that run side by side, each of which is ended at its deadline."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.running: list[Child] = []

    def start(self, child: Child) -> Child:
        """Takes ``child`` among those that are heard; returns it."""
        self._selector.register(child.pipe, selectors.EVENT_READ, child)
        self.running.append(child)
        return child

    def wait(self) -> list[Child]:
        """Waits until one of them tells something or is late; those that ended by that."""
        until = min(child.deadline for child in self.running)
        ready = [key.data for key, _ in self._selector.select(max(0.0, until - time.monotonic()))]
        ended = [child for child in ready if not child.hear()]
        now = time.monotonic()
        late = [child for child in self.running if child not in ended and now >= child.deadline]
        for child in ended + late:
            self.stop(child, child in late)
        return ended + late

    def stop(self, child: Child, kill: bool) -> None:
        """Hears ``child`` no more and waits for its end, which ``kill`` brings about."""
        self._selector.unregister(child.pipe)
        self.running.remove(child)
        child.close(kill)


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
    late, abreast = _LateLoads(), Abreast()
    torch = None if only_static else abreast.start(Child([], late_s))
    static = abreast.start(Child(["--static"], late_s))
    imports: Imports | None = None
    try:
        while abreast.running:
            for child in abreast.wait():
                words = late.again(child) if child is torch else []
                if words:
                    torch = abreast.start(Child(words, late_s))
            if torch is None:
                continue
            if imports is None and "wheels" in static.found:  # told long before torch is imported
                from envkit.payload.probe import frameworks

                imports = frameworks.Imports(static.found["wheels"]["value"], abreast)
            if imports is not None:
                imports.give_up() if _broken(torch) else imports.go_on()
    finally:
        if imports is not None:
            imports.close()
    found = _together(static, torch, late.failed)
    found["frameworks"] = _frameworks(found, imports)
    return found


def _broken(torch: Child) -> bool:
    """Whether it is known already that torch cannot be imported; one that is not installed is not broken."""
    if "torch_import" in torch.found:
        return torch.found["torch_import"]["value"] not in ("done", "absent")
    return bool(torch.failed)


def _frameworks(found: dict[str, Any], imports: Imports | None) -> dict[str, Any]:
    """The field ``frameworks``, from the other ones and from the imports, None where there was to be none."""
    if imports is None:
        return inner.lost(found["wheels"]["missing"] or STATIC)
    ended = found["torch_import"]["value"] or found["torch_import"]["missing"]
    if imports.wanted and ended not in ("done", "absent"):
        return inner.lost(f"import torch {ended}")
    return inner.observed(imports.told(), "import in a child after torch")
