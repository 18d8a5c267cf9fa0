"""What a node does while the links are tested: it reads the plan of each round, takes part in its trial, and answers.

There is no leader.  The first nodes look whether a round is over, plan the next by the same pure function, and the
first plan that is there counts for all.  A trial is a child of its own with a budget, whose whole group is ended; a
partner that hangs or dies costs one trial.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from envkit.errors import Undecided
from envkit.fleet import folder, gather, links
from envkit.fleet.evidence import Fleet, Tried
from envkit.fleet.folder import GRACE_S, Place
from envkit.fleet.gather import Gathered, plan_file, round_folder
from envkit.fleet.node import Identity, Say
from envkit.fleet.trials import Answer, Plan
from envkit.fleet.verdict import Rules, State, judge, tried
from envkit.payload import trial
from envkit.records import dataclass
from envkit.system import files, proc

SEEN_S = 10.0  # until the last node has seen a plan: NFS shows a new file that late
_LATE_S = 5.0  # after the end of a round, until a node that is not one of the first plans the next
_MOST_ROUNDS = 12  # of a whole test, in trials that reach their budget; what is open then stays unknown


@dataclass(frozen=True, slots=True)
class Trying:
    """How this node tries: its Python with torch, and bytes of the timed sum, 0 for the trial's own choice."""

    python: str
    size: int = 0


def longest_s(trial_s: float) -> float:
    """How long a whole test of links may take."""
    return _MOST_ROUNDS * (trial_s + SEEN_S)


def take_part(place: Place, who: Identity, trying: Trying, started: float, rules: Rules, say: Say) -> None:
    """This node's part, until the last plan; returns at once where it is in none.

    ``started`` is when its examination began (time.monotonic).  Raises Undecided where the shared folder hangs.
    """
    found = gather.Gathered(place.run)
    number, begun, first = 1, time.monotonic(), 0.0
    while True:
        plan = _next(place, who.node, number, found, started if number == 1 else begun, first, rules)
        begun = time.monotonic()
        first = first or begun
        if not plan.trials or (number == 1 and who.node not in plan.nodes):
            return
        for at, nodes in enumerate(plan.trials):
            if who.node in nodes:
                _answer(place, who, trying, (number, at), nodes, say)
        number += 1


def _next(place: Place, node: str, number: int, found: Gathered, began: float, first: float, rules: Rules) -> Plan:
    """The plan of a round, waited for or made.  ``began`` is when what comes before it began, ``first`` the first
    round."""
    run = place.run
    path = plan_file(place.folder, number)
    order = found.record.nodes or run.hosts
    eager = node in order[: folder.EAGER]
    limit = began + (run.budget_s + GRACE_S if number == 1 else run.trial_s + SEEN_S) + (0.0 if eager else _LATE_S)

    def attempt(over: bool) -> Plan | None:
        if folder.in_time(path.exists, folder.WRITING_S):
            folder.in_time(partial(gather.read_trials, found, place.folder), folder.WRITING_S)
            if number not in found.record.plans:
                raise Undecided(f"{path} is no plan of this run", "give each launch a folder of its own")
            return found.record.plans[number]
        if eager or over:
            spent = bool(first) and time.monotonic() > first + longest_s(run.trial_s)
            folder.in_time(partial(_plan, place, number, found, over, spent, rules), folder.WRITING_S)
        return None

    return folder.awaited(place.folder / "links", f"the plan of round {number}", eager, limit, attempt)


def _plan(place: Place, number: int, found: Gathered, over: bool, spent: bool, rules: Rules) -> None:
    """Writes the plan of a round once what comes before it is over: all have answered, or their time has come."""
    gather.again(found, place.folder)
    run = place.run
    nodes: tuple[str, ...] = ()
    so_far: tuple[Tried, ...] = ()
    if number == 1:
        if not over and len(found.documents) < len(run.hosts):
            return
        nodes = judge(found, float("inf") if over else time.time(), rules, alone=True).named(State.OK)
        files.folder(place.folder / "links", "name a folder that may be written to")
        labels = {name: held[0].body.labels for name, held in found.documents.items() if held[0].body.labels}
        fleet = Fleet(nodes, labels)
    elif not over and not found.record.answered(number - 1):
        return
    else:
        fleet, so_far, _ = tried(found)
    wanted = () if spent else links.plan(fleet, so_far, run.links)
    if wanted:
        files.folder(round_folder(place.folder, number), "name a folder that may be written to")
    made = Plan("envkit.links/1", run.run, run.nonce, number, wanted, nodes)
    folder.create(plan_file(place.folder, number), msgspec.json.encode(made))


def _answer(
    place: Place, who: Identity, trying: Trying, which: tuple[int, int], nodes: Sequence[str], say: Say
) -> None:
    run = place.run
    number, at = which
    inside = round_folder(place.folder, number)
    others = [name for name in nodes if name != who.node]
    say(f"round {number}: the links to {others[0] if len(others) == 1 else f'{len(others)} nodes'}")
    asked = trial.Asked(
        run.nonce,
        nodes.index(who.node),
        len(nodes),
        str(inside / f"{at}.meet"),
        run.trial_s,
        (who.node,),
        size=trying.size,
    )
    said = run_trial(trying.python, asked, nodes)
    made = answer_of(said, run.run, run.nonce, which, who)
    path = inside / f"{at}.{who.node}.json"
    folder.in_time(lambda: folder.replace_with(path, msgspec.json.encode(made)), folder.WRITING_S)
    if made.outcome != "passed":
        say(f"round {number}: {made.outcome} at the stage {made.stage}: {made.detail}")


def run_trial(python: str, asked: trial.Asked, nodes: Sequence[str]) -> dict[str, Any]:
    """What the trial says on this node, run by ``python`` in a child that is ended when its time is over.

    The child finds the names of all nodes of the trial in ENVKIT_TRIAL_NODES.
    """
    limit = time.monotonic() + asked.limit_s + GRACE_S  # it ends by itself, unless its machine hangs
    argv = [python, str(Path(trial.__file__)), json.dumps(asked._asdict())]
    environ = {**os.environ, "ENVKIT_TRIAL_NODES": ",".join(nodes)}
    try:
        done = proc.run(
            argv, timeout_s=asked.limit_s + GRACE_S, env=environ, grace_s=1.0, stop=lambda: time.monotonic() > limit
        )
    except OSError as error:
        return {"outcome": "unable", "detail": f"{python} cannot be run: {files.why(error)}"}
    with suppress(ValueError, IndexError):
        told = json.loads(done.stdout.strip().splitlines()[-1])
        if isinstance(told, dict) and told.get("nonce") == asked.nonce:
            return told
    if done.timed_out:
        return {"outcome": "failed", "detail": f"it did not end within {asked.limit_s:g} s and was killed"}
    how = proc.signal_name(-done.exit) if done.exit < 0 else f"exit code {done.exit}"
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return {"outcome": "failed", "detail": f"its process ended ({how}): {last}"[:600]}


_KEPT = (
    "outcome", "stage", "detail", "backend", "wrong", "elements", "gbps", "seconds", "across", "inside", "network",
    "nccl",
)  # fmt: skip


def answer_of(said: dict[str, Any], run: str, nonce: str, which: tuple[int, int], who: Identity) -> Answer:
    """What the trial said, as this node's answer."""
    kept = {key: said[key] for key in _KEPT if key in said}
    made = {"schema": "envkit.trial/1", "run": run, "nonce": nonce, "round": which[0], "trial": which[1]}
    try:
        return msgspec.convert({**made, "node": who.node, "attempt": who.attempt, **kept}, Answer)
    except msgspec.ValidationError as error:
        failed = {"outcome": "failed", "detail": f"its answer cannot be read: {error}"[:600]}
        return msgspec.convert({**made, "node": who.node, "attempt": who.attempt, **failed}, Answer)
