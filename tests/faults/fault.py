"""What a recipe is, and how one is run: the real command line on a stack that really has the fault."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from stacks import Bench, Stack, bench, envkit, pristine

from envkit.judging.checks import abilities

ABILITIES = frozenset(name.replace("_", "-") for name in vars(abilities) if name.startswith("image_"))
EVERY_ABILITY = "ENVKIT_EVERY_ABILITY" in os.environ


@dataclass(frozen=True)
class Case:
    """One run: the words of the command line after ``envkit``, and what the environment holds beside.

    ``traces`` are texts that the finding must name: the planted path, the code, the variable.  ``setup`` is a shell
    script that runs first, in a mount namespace of this run alone: it gives the run another /proc/driver or /dev/shm.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    traces: tuple[str, ...] = ()
    setup: str = ""


@dataclass(frozen=True)
class Fault:
    """A recipe that makes one probe of the catalogue fire, and its clean twin.

    ``words`` say what is planted and ``twin_words`` how the twin differs; ``severity`` is that of the worst finding.
    ``also`` are the other checks that rightly warn of the same plant, ``twin_also`` those that do of the twin, which
    is a near miss; notes are not counted.  ``twin_skips`` marks a check that does not apply to the twin at all, and
    ``of_machine`` one whose subject is the machine, of which other checks may say what they like.  ``nightly``
    marks one that compiles for minutes.
    """

    probe: str
    check: str
    words: str
    plant: Callable[[Bench], Case]
    twin_words: str
    twin: Callable[[Bench], Case]
    severity: str = "error"
    also: frozenset[str] = frozenset()
    twin_also: frozenset[str] = frozenset()
    twin_skips: bool = False
    of_machine: bool = False
    nightly: bool = False
    variant: str = ""

    @property
    def tries(self) -> bool:
        """Whether its run, or its twin's, is to try what the environment can do; the others are sooner over without."""
        return self.nightly or EVERY_ABILITY or bool({self.check, *self.also, *self.twin_also} & ABILITIES)

    @property
    def name(self) -> str:
        """What the recipe is known by."""
        return "-".join(filter(None, (self.probe, self.check, self.variant)))


def probing(
    stack: Stack, *traces: str, env: Mapping[str, str] | None = None, gpus: str = "none", setup: str = ""
) -> Case:
    """A probe of ``stack``, whose finding must name ``traces``."""
    return Case(("probe", "--python", str(stack.python), "--gpus", gpus), env or {}, traces, setup)


def auditing(root: Path, *traces: str, more: tuple[str, ...] = ()) -> Case:
    """An audit of the directory ``root``; its finding must name ``traces``."""
    return Case(("audit", str(root), *more), {}, traces)


@cache  # one function for all who ask for the same, so that its run is shared
def sound(stack: str) -> Callable[[Bench], Case]:
    """A probe of an unbroken stack."""
    return lambda bench: probing(pristine(stack))


@cache
def whole(stack: str) -> Callable[[Bench], Case]:
    """An audit of an unbroken stack."""
    return lambda bench: auditing(pristine(stack).root)


def report(case: Case, tries: bool = True) -> tuple[int, dict[str, Any]]:
    """The exit code and the results by check of a run; raises AssertionError where it left no report.

    Without ``tries`` a probe does not try what the environment can do.
    """
    without = ["--abilities", "none"] if case.words[0] == "probe" and not tries else []
    done = envkit([*case.words, *without, "--format", "json"], dict(case.environment), case.setup)
    assert done.stdout.startswith("{"), f"exit {done.returncode}, no report: {done.stderr[-3000:]}"
    document = json.loads(done.stdout)
    return done.returncode, {result["check"]: result for result in document["results"]}


@cache
def shared(scene: Callable[[Bench], Case], tries: bool = True) -> tuple[int, dict[str, Any]]:
    """The report of ``scene``, run once in this process: some faults have the same twin, and each judges it."""
    with bench() as made:
        return report(scene(made), tries)


def failed(results: Mapping[str, Any], least: str = "note") -> dict[str, list[str]]:
    """The messages of every check that has a finding of ``least`` severity or more."""
    order = ("note", "warning", "error")
    found = {
        name: [f["message"] for f in one["findings"] if order.index(f["severity"]) >= order.index(least)]
        for name, one in results.items()
    }
    return {name: messages for name, messages in found.items() if messages}


def worst(result: Mapping[str, Any]) -> str:
    """The highest severity among the findings of one result."""
    order = ("note", "warning", "error")
    said: list[str] = [finding["severity"] for finding in result["findings"]]
    return max(said, key=order.index)
