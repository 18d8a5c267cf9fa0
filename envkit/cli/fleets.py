"""What `preflight --fleet` and `judge RUN` do beyond a single machine."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from typer import Exit

from envkit.cli import options
from envkit.cli.ending import say, warn
from envkit.errors import Undecided, UsageError

if TYPE_CHECKING:
    from envkit.explain.nodes import Ran
    from envkit.fleet.folder import Place, Terms
    from envkit.fleet.verdict import FleetVerdict, Rules

# Of `preflight`: options that are the node's own matter and not its examination's; True where a value follows.
_OWN = {
    "--fleet": True, "--hosts": True, "--count": True, "--node": True, "--spares": True, "--frames": False,
    "--termination-log": True, "--may-differ": True, "--contract": True, "--budget": True,
    "--links": True, "--trial-budget": True, "--link-floor": True,
    "--report": True, "--format": True, "-f": True, "--exit-style": True, "--quiet": False, "-q": False,
    "--verbose": False, "--observed": False, "--fail-on": True,
}  # fmt: skip


class Many(NamedTuple):
    """The options of `preflight` for one node of many, as their help says; empty or 0 where they were not given."""

    fleet: str
    hosts: str
    numbered: int
    node: str
    spares: int
    frames: bool
    termination: Path | None
    may_differ: tuple[str, ...]
    contract: Path | None
    links: str
    trial_s: float
    floor: float
    python: str


_MOST_S = 7 * 24 * 3600.0
TRIAL_S = 60.0  # torch's import, CUDA's start and a communicator of sixteen GPUs take up to half of it


def need_fleet(*given: tuple[str, object]) -> None:
    """Raises UsageError for an option of many nodes without --fleet."""
    for option, value in given:
        if value not in (None, False):
            raise UsageError(f"{option} is for one node of many", "add --fleet and the folder that the nodes share")


def named_once(hosts: str | None, count: int | None) -> None:
    """Raises UsageError where the nodes are named twice, or are none."""
    if hosts and count is not None:
        raise UsageError("--hosts and --count both say how many nodes there are", "leave out one of them")
    if count is not None and count < 1:
        raise UsageError(f"{count} is no number of nodes", "name how many there are, such as 8")


def words_of_examination(words: Sequence[str]) -> tuple[str, ...]:
    """The words of `preflight` without those that are the node's own."""
    left: list[str] = []
    skipping = False
    for word in words:
        if skipping:
            skipping = False
            continue
        name, equals, _ = word.partition("=")
        if name in _OWN and (equals or word == name):
            skipping = _OWN[name] and not equals
            continue
        left.append(word)
    return tuple(left)


def examine_node(
    many: Many, words: Sequence[str], level: str, budget: float, command: Sequence[str], fail_on: str
) -> tuple[int, Mapping[str, str]]:
    """This node's part of a run: its exit code, and the variables of the command where it shall start here.

    Raises UsageError where the nodes of the run are not known, or disagree.
    """
    from envkit.fleet import contracts, folder, launchers, node, rounds
    from envkit.fleet.documents import word
    from envkit.fleet.start import decision, environment
    from envkit.fleet.verdict import Rules

    budget_s = budget or node.BUDGETS_S[level]
    at = launchers.placement(os.environ, many.hosts, many.node, many.numbered)
    _consistent(many, at, command, budget_s)
    options.writable(many.termination)
    classes = contracts.load(many.contract) if many.contract else ()
    started = time.monotonic()
    if many.fleet == "-":
        nonce = os.environ.get("ENVKIT_NONCE") or _nonce(at.launch)
        who = node.identity(word(at.launch) or "stdout", nonce, at.node)
        carriers = node.Carriers(None, True, many.termination)
        place = None
    else:
        try:
            place = folder.join(Path(many.fleet), at, _terms(many, level, budget_s))
        except folder.Hangs as error:
            raise Undecided(f"{many.fleet} cannot be joined: {error}", "name a folder that answers") from error
        who = node.identity(place.run.run, place.run.nonce, at.node)
        carriers = node.Carriers(place, many.frames, many.termination)
    code = 0
    if at.local == 0:
        made, taken = node.answer(who, carriers, words_of_examination(words), budget_s, say)
        code = _code(made, fail_on)
        code = code if taken or code else 3
    rules = Rules(classes, many.may_differ, options.severity(fail_on))
    if place is not None and many.links and at.local == 0:
        rounds.take_part(place, who, rounds.Trying(many.python or sys.executable), started, rules, say)
        code = code or _linked_code(place, at.node, rules)
    if not command or place is None:
        return code, {}
    start = decision(place, at.node, started, rules)
    if at.node in start.nodes:
        if at.local == 0 and at.node == start.nodes[0]:
            say(f"{start.why}; starting {command[0]}")
        return 0, environment(start, place.run, at.node, at.local, at.here)
    if at.local == 0:
        why = "it is a spare" if start.nodes and at.node not in (*start.failed, *start.unknown) else start.why
        warn(f"{at.node}: {command[0]} does not start here: {why}")
    return start.exit_code, {}


def _terms(many: Many, level: str, budget_s: float) -> Terms:
    from envkit.fleet.folder import Terms
    from envkit.fleet.links import GROUPS, PAIRS

    kind: Literal["", "pairs", "groups"] = GROUPS if many.links == GROUPS else PAIRS if many.links else ""
    return Terms(level, budget_s, many.spares, kind, (many.trial_s or TRIAL_S) if kind else 0.0, many.floor)


def _linked_code(place: Place, node: str, rules: Rules) -> int:
    """The exit code of a node by the trials that it was in: 1 where it or one of its links failed."""
    from envkit.fleet import gather
    from envkit.fleet.verdict import State, judge

    found = judge(gather.gather(place.folder, (), ()), time.time(), rules)
    states = {one.state for one in found.nodes if one.node == node}
    for one in found.links.crossings if found.links else ():
        if node in (*one.one, *one.two):
            states.add(State.FAIL if one.sure else State.UNKNOWN)
    return 1 if State.FAIL in states else 0 if states == {State.OK} else 3


def _consistent(many: Many, at: object, command: Sequence[str], budget_s: float) -> None:
    from envkit.fleet.launchers import Placement

    assert isinstance(at, Placement)
    if many.spares and not command:
        raise UsageError("--spares leaves nodes out of a job, and there is no command", "name the command after --")
    if not 0 <= many.spares < len(at.hosts):
        raise UsageError(
            f"{many.spares} spares of {len(at.hosts)} nodes leave no node for the job",
            "give fewer spares, or more nodes",
        )
    if command and many.fleet == "-":
        raise UsageError("without a shared folder no node knows whether the others passed", "name a folder as --fleet")
    if many.links and many.fleet == "-":
        raise UsageError(
            "the nodes of a trial meet in the shared folder, and there is none", "name a folder as --fleet"
        )
    if not (0 <= many.trial_s < 1e6 and 0 <= many.floor < 1e6):
        said = f"--trial-budget is {many.trial_s:g} and --link-floor {many.floor:g}"
        raise UsageError(said, "name seconds such as 60, and GB/s such as 40")
    if (many.trial_s or many.floor) and not many.links:
        raise UsageError("no links are tested", "add --links pairs, or leave out --trial-budget and --link-floor")
    if many.trial_s and many.trial_s < 5:
        raise UsageError(f"a trial of {many.trial_s:g} s is not enough to import torch", "name seconds, such as 60")
    if not 1 <= budget_s <= _MOST_S:
        why = "not enough to begin" if budget_s < 1 else "more than a node may take"
        raise UsageError(f"a budget of {budget_s:g} s is {why}", "name seconds, such as 60")


def _nonce(launch: str) -> str:
    """Where nothing but stdout is shared, the launch's own name in another form."""
    from hashlib import sha256

    return sha256(launch.encode()).hexdigest()[:32]


def _code(made: object, fail_on: str) -> int:
    """The exit code of a node's own document, judged as the only one."""
    from envkit.fleet.documents import Document, Run
    from envkit.fleet.gather import Gathered
    from envkit.fleet.verdict import Rules, judge

    assert isinstance(made, Document)
    head = made.head
    alone = Gathered(Run("envkit.run/1", head.run, head.nonce, (head.node,), 0.0, 0.0, head.level))
    alone.add(made, "itself")
    return judge(alone, 0.0, Rules(fail_on=options.severity(fail_on))).exit_code


class Judging(NamedTuple):
    """Which run is judged, and by which rules, as the options say."""

    place: Path
    hosts: str
    also: Sequence[Path]
    contract: Path | None
    may_differ: Sequence[str]
    fail_on: str


def _judged(asked: Judging) -> FleetVerdict:
    from envkit.fleet import contracts, gather, launchers
    from envkit.fleet.folder import run_in
    from envkit.fleet.verdict import Rules, judge

    contract = contracts.load(asked.contract) if asked.contract else ()
    rules = Rules(contract, tuple(asked.may_differ), options.severity(asked.fail_on))
    inside = os.path.isdir(asked.place) and run_in(asked.place) is not None
    named = launchers.expected(os.environ, asked.hosts) if asked.hosts or not inside else ()
    return judge(gather.gather(asked.place, asked.also, named), time.time(), rules)


def ran(place: Path, hosts: str) -> Ran:
    """What a run knows of its nodes, for the explanation of why its job failed."""
    from envkit.explain.nodes import Ran, RanNode
    from envkit.fleet import gather, launchers, start
    from envkit.fleet.folder import run_in
    from envkit.fleet.verdict import judge

    inside = os.path.isdir(place) and run_in(place) is not None
    found = gather.gather(place, (), launchers.expected(os.environ, hosts) if hosts or not inside else ())
    decided = start.recorded(place, found.run) if inside else None
    nodes: dict[str, RanNode] = {}
    for one in judge(found, time.time()).nodes:
        made = found.documents.get(one.node, ())
        gpus = made[0].body.fingerprint.get("gpus") if made else None
        host = made[0].head.host if made else ""
        nodes[one.node] = RanNode(
            one.node, host, found.machines.get(one.node, ""), one.state.value, one.sentence,
            int(gpus) if gpus and gpus.isdigit() else None,
        )  # fmt: skip
    order = decided.nodes if decided else tuple(nodes)
    why = f"the command of this run started on no node: {decided.why}" if decided and not decided.nodes else ""
    others = tuple(node for name, node in nodes.items() if name not in order)
    step = tuple(nodes.values()) if found.run.launcher == "slurm" else ()
    return Ran(str(place), tuple(nodes[name] for name in order if name in nodes), others, why, step)


def act(asked: Judging, undo: bool, unknown_too: bool, applied: bool) -> NoReturn:
    """Prints what takes the failed nodes of a run out of service, or returns healthy ones, and does it if ``applied``:
    in Kubernetes where Pods made the run, else in Slurm."""
    from envkit.fleet import pods

    if undo and unknown_too:
        raise UsageError("--undo and --unknown cannot be used together", "only nodes that are ok return to service")
    verdict = _judged(asked)
    if verdict.machines or any(map(pods.is_asked, (asked.place, *asked.also))):
        changes, steps, failed = _acted_in_kubernetes(verdict, undo, unknown_too, applied)
    else:
        changes, steps, failed = _acted_in_slurm(verdict, undo, unknown_too, applied)
    if not applied:
        say(f"{changes} of {steps} nodes to change; nothing was done, for --apply was not given")
        raise Exit(0)
    say(f"{changes - failed} of {changes} changes took effect")
    raise Exit(3 if failed else 0)


def _acted_in_slurm(verdict: FleetVerdict, undo: bool, unknown_too: bool, applied: bool) -> tuple[int, int, int]:
    """How many changes there are, of how many nodes, and how many did not take."""
    from envkit.fleet import acting
    from envkit.report.text import visible

    acting.named_by_slurm(verdict)
    known = acting.slurm_nodes(verdict.run.hosts)
    steps = acting.to_undrain(verdict, known) if undo else acting.to_drain(verdict, known, unknown_too)
    for step in steps:
        told = shlex.join(step.command) if step.command else f"left alone: {step.why_not}"
        print(visible(f"{step.node}: {told}{f' ({step.note})' if step.note else ''}"))
    return sum(bool(step.command) for step in steps), len(steps), acting.apply(steps, undo, say) if applied else 0


def _acted_in_kubernetes(verdict: FleetVerdict, undo: bool, unknown_too: bool, applied: bool) -> tuple[int, int, int]:
    """The same by condition, taint and cordon."""
    from envkit.fleet import apiserver, marks
    from envkit.report.text import visible

    with apiserver.connected(os.environ) as api:
        steps = marks.to_unmark(api, verdict) if undo else marks.to_mark(api, verdict, unknown_too)
        for step in steps:
            print(visible(marks.shown(step, undo)))
        failed = marks.apply(api, steps, verdict, undo, say) if applied else 0
    return sum(bool(step.marks) for step in steps), len(steps), failed


def judge_run(asked: Judging, out: Path | None, segments: Path | None, format: str) -> NoReturn:
    """Judges the run in a folder, or in what a carrier wrote, prints it, and exits by it."""
    from envkit.fleet import answers
    from envkit.system.terminal import columns

    verdict = _judged(asked)
    if segments is not None:
        answers.segment_file(verdict, os.environ)  # a name that is not known is told before anything is written
    if out is not None:
        answers.write(verdict, out)
        say(f"wrote {out}")
    if segments is not None:
        say(f"wrote {answers.write_segment(verdict, segments, os.environ)}")
    sys.stdout.write(answers.render(verdict, format, columns(sys.stdout)))
    sys.stdout.flush()
    raise Exit(verdict.exit_code)
