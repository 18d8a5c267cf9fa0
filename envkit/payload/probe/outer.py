"""What this Python's torch maps and binds, observed in children that are started as a user's process would be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from envkit.payload.abilities import FULL_S
from envkit.payload.probe import frameworks, inner, process
from envkit.payload.probe.child import Child, ParallelChildren
from envkit.payload.probe.report import LATE, lost, observed

_LATE_S = 30.0  # for one late load, which takes milliseconds, and seconds from a cold disk: a hanging driver ends it
_MOST_DEATHS = 3  # late loads that may kill the observed process before the rest of them is given up
STATIC = "torch was not imported: only what needs no import was asked for"


class _LateLoads:
    """Which late loads killed the observed process or hung; the process that is run again leaves them out.

    What the process has mapped it tells only after them.  One that hung, or the last of _MOST_DEATHS, ends the late
    loads: those behind it may hang as well.
    """

    def __init__(self) -> None:
        self.failed: list[dict[str, str]] = []
        self._given_up = False

    def again(self, child: Child) -> list[str]:
        """The words of the process to be run in the place of ``child``, none if it did all that it can."""
        if not child.failed or not child.doing.startswith(LATE) or self._given_up:
            return []
        self.failed.append({"what": child.doing[len(LATE) :], "error": child.how})
        self._given_up = child.hung or len(self.failed) == _MOST_DEATHS
        words = ["--without", ",".join(one["what"] for one in self.failed)]
        return [*words, "--until", self.failed[-1]["what"]] if self._given_up else words


def _together(static: Child, torch: Child | None, late: list[dict[str, str]]) -> dict[str, Any]:
    """All fields; ``late`` are the late loads that failed in processes before this one."""
    found = dict(static.found)
    owned = found.pop("owned", {"value": None})["value"]
    failed, reasons = static.failed, dict.fromkeys(inner.WITHOUT_TORCH, static.failed)
    if torch is not None:
        failed = torch.failed
        found.update(torch.found)
        if failed and torch.doing == "import torch" and not torch.hung and torch.how.startswith("was killed"):
            found["torch_import"] = observed(torch.how, "wait status")
        if late:
            done = found.get("late", {"value": []})["value"]
            found["late"] = observed([*done, *late], "dlopen")
        tell_owners(found, owned, static.failed)
    else:
        failed = STATIC
    reasons.update(dict.fromkeys(inner.WITH_TORCH, failed))
    for name in inner.FIELDS:
        found.setdefault(name, lost(reasons.get(name) or "it was not reported"))
    return found


def tell_owners(found: dict[str, Any], owned: dict[str, list[str]] | None, why: str) -> None:
    """Says of each mapped library whose it is, which the other process has read, and takes it out of ``unmapped``."""
    if "libraries" not in found:
        return
    if owned is None:
        found["libraries"] = lost(f"whose files the mapped libraries are: {why or 'it was not reported'}")
        return
    libraries = found["libraries"]["value"]
    paths = [library["path"].partition(" (deleted)")[0] for library in libraries]
    for index, path in enumerate(paths):
        libraries[index]["owner"], libraries[index]["owner_version"] = owned.get(path, ("", ""))
    if "unmapped" in found:
        rest = [library for library in found["unmapped"]["value"] if library["path"] not in set(paths)]
        found["unmapped"]["value"] = rest


def main(argv: list[str]) -> dict[str, Any]:
    """The document of a probe; with "--static" in ``argv`` torch is not imported.

    "--folder" and a folder is what the job's Python has first on its path, "--abilities" and a level what is tried,
    "--sm" and compute capabilities the declared GPUs.
    """
    started = time.monotonic()
    folder, gpus, level = (
        argv[argv.index(word) :][:2] if word in argv else [] for word in ("--folder", "--sm", "--abilities")
    )
    return {
        "image": observe("--static" in argv, folder=folder, gpus=gpus, level="".join(level[1:])),
        "elapsed_s": round(time.monotonic() - started, 3),
    }


def observe(
    only_static: bool,
    late_s: float = _LATE_S,
    folder: Sequence[str] = (),
    gpus: Sequence[str] = (),
    level: str = "",
) -> dict[str, Any]:
    """Every field of the image, observed or lost with the reason; ``late_s`` is what one late load may take.

    ``folder`` are the words that name the job's folder to the children that import something, ``gpus`` those that name
    the declared GPUs; ``level`` is what is tried of the abilities.
    """
    late, parallel = _LateLoads(), ParallelChildren()
    level = "none" if only_static or not level else level
    words = [*folder, *gpus, *(("--abilities", "forked") if level != "none" else ())]
    torch = None if only_static else parallel.start(Child(words, late_s))
    tools = None if level == "none" else parallel.start(Child([*folder, "--abilities", "tools"], late_s))
    static = parallel.start(Child(["--static", *folder], late_s))
    another = process.AnotherStart()
    imports: frameworks.Imports | None = None
    try:
        while parallel.running:
            for child in parallel.wait():
                again = late.again(child) if child is torch else []
                if again:
                    torch = parallel.start(Child([*words, *again], late_s))
            if torch is None:
                continue
            if imports is None and "wheels" in static.found:  # told long before torch is imported
                imports = frameworks.Imports(static.found["wheels"]["value"], parallel, folder)
            if imports is not None:
                imports.give_up() if _broken(torch) else imports.go_on()
    finally:
        if imports is not None:
            imports.close()
    found = _together(static, torch, late.failed)
    found["frameworks"] = _frameworks(found, imports)
    found["abilities"] = _abilities(level, found, torch, tools, (*folder, *gpus))
    try:
        found["process"] = observed(process.seen(another), "/proc/self/environ, getuid, site")
    except OSError as error:
        found["process"] = lost(f"the process did not see itself: {error}")
    return found


def _abilities(
    level: str, found: dict[str, Any], torch: Child | None, tools: Child | None, words: Sequence[str]
) -> dict[str, Any]:
    """The field ``abilities``, after those processes that may run beside one another; "full" runs alone."""
    with_torch = found.pop("in_torch", None)
    if torch is None or tools is None:
        return {**lost("not supported"), "via": "the run did not ask for it", "reason": "unsupported"}
    if "tools" not in tools.found:
        return lost(tools.failed or "it was not reported")
    done = found["torch_import"]["value"] == "done"
    if done and (with_torch is None or with_torch["value"] is None):
        return lost(with_torch["missing"] if with_torch is not None else torch.failed or "it was not reported")
    told = tools.found["tools"]["value"]
    rows = [*told["tried"], *(with_torch["value"] if done and with_torch is not None else [])]
    if level == "full":
        alone = ParallelChildren()
        child = alone.start(Child([*words, "--abilities", "full"], _LATE_S, budget_s=FULL_S))
        while alone.running:
            alone.wait()
        if "full" not in child.found:
            return lost(child.failed or "it was not reported")
        rows += child.found["full"]["value"]
    return observed({"level": level, "tried": rows, "caches": told["caches"]}, "children")


def _broken(torch: Child) -> bool:
    """Whether it is known already that torch cannot be imported; one that is not installed is not broken."""
    if "torch_import" in torch.found:
        return torch.found["torch_import"]["value"] not in ("done", "absent")
    return bool(torch.failed)


def _frameworks(found: dict[str, Any], imports: frameworks.Imports | None) -> dict[str, Any]:
    """The field ``frameworks``, from the other ones and from the imports, None where there was to be none."""
    if imports is None:
        return lost(found["wheels"]["missing"] or STATIC)
    ended = found["torch_import"]["value"] or found["torch_import"]["missing"]
    if imports.wanted and ended not in ("done", "absent"):
        return lost(f"import torch {ended}")
    return observed(imports.told(), "import in a child after torch")
