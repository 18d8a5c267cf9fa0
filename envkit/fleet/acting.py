"""Takes failed nodes out of Slurm's service and puts healthy ones back, by Slurm's own commands.

A node is drained, never set down: its running jobs end as they would, and it gets no new one.  What somebody else
drained is left alone, and only a mark of envkit's own is taken away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from envkit.credentials import redacted_text
from envkit.errors import Undecided, UsageError, one_line
from envkit.fleet import hostlist
from envkit.fleet.verdict import FleetVerdict, NodeVerdict, State
from envkit.records import dataclass
from envkit.system import proc

MARK = "envkit "  # how each reason begins that envkit gives
_BUDGET_S = 30.0  # of one of Slurm's commands; a busy controller takes seconds
_LONGEST = 200  # characters of a reason; sinfo -R shows the first twenty
_OUT = re.compile("drain|drng|down|fail|reboot|planned down|maint")  # of the states that sinfo prints
_BUSY = re.compile("alloc|mix|comp|drng|draining")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as sinfo shows it: ``state`` in its words ("idle", "drained", "down*"), ``reason`` empty without one."""

    state: str
    reason: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether envkit drained it."""
        return self.reason.startswith(MARK) and "drain" in self.state


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with a node: ``command``, or nothing where ``why_not`` says why; ``note`` is for a person."""

    node: str
    command: tuple[str, ...] = ()
    why_not: str = ""
    note: str = ""


def slurm_nodes(names: Sequence[str]) -> dict[str, SlurmNode]:
    """The nodes as Slurm knows them now, those that it does not know left out.

    Raises Undecided where there is no Slurm here or its controller does not answer.
    """
    if not names:
        return {}
    words = ("sinfo", "--noheader", "--all", "--Node", "--nodes", hostlist.compressed(names), "--format", "%N\t%T\t%E")
    found: dict[str, SlurmNode] = {}
    for line in _asked(words).splitlines():
        name, state, reason = (*line.split("\t", 2), "", "")[:3]
        if name:
            found[name] = SlurmNode(state.strip(), "" if reason.strip() == "none" else reason.strip())
    return found


def _asked(words: Sequence[str]) -> str:
    fix = "run it where Slurm's commands work, and see `scontrol ping`"
    try:
        done = proc.run(words, timeout_s=_BUDGET_S)
    except OSError as error:
        raise Undecided(f"{words[0]} cannot be run: {error.strerror}", fix) from error
    if done.timed_out:
        raise Undecided(f"{words[0]} did not answer within {_BUDGET_S:g} s", fix)
    if done.exit:
        said = one_line((done.stderr.strip() or done.stdout.strip()).partition("\n")[0])
        raise Undecided(f"{words[0]} failed with exit code {done.exit}: {said}", fix)
    return done.stdout


def named_by_slurm(verdict: FleetVerdict) -> None:
    """Raises UsageError where the nodes of a run have other names than Slurm's."""
    if verdict.run.launcher != "slurm" and any(name.isdigit() for name in verdict.run.hosts):
        raise UsageError(
            f"the nodes of the run {verdict.run.run} are numbers of {verdict.run.launcher}, not names of Slurm's",
            "judge a run that srun started, or name its nodes with --hosts as Slurm does; for Pods, add "
            "--also kubernetes:NAMESPACE/job/NAME",
        )


def to_drain(verdict: FleetVerdict, known: Mapping[str, SlurmNode], unknown_too: bool = False) -> tuple[Step, ...]:
    """What takes each failed node out of service, with ``unknown_too`` also those of which nothing is known."""
    states = (State.FAIL, State.UNKNOWN) if unknown_too else (State.FAIL,)
    return tuple(_drained(one, verdict, known.get(one.node)) for one in verdict.nodes if one.state in states)


def _drained(one: NodeVerdict, verdict: FleetVerdict, known: SlurmNode | None) -> Step:
    if known is None:
        return Step(one.node, why_not="Slurm does not know it")
    if _OUT.search(known.state):
        whose = "by envkit" if known.is_ours else "by somebody else"
        return Step(
            one.node, why_not=f"it is {known.state} already, {whose}: {one_line(known.reason) or 'no reason given'}"
        )
    note = "its running jobs end first" if _BUSY.search(known.state) else ""
    reason = f"Reason={reason_for(one, verdict)}"
    return Step(one.node, ("scontrol", "update", f"NodeName={one.node}", "State=DRAIN", reason), note=note)


def reason_for(one: NodeVerdict, verdict: FleetVerdict) -> str:
    """The reason that Slurm shows for a node: envkit's mark, the run, and what is wrong in printable ASCII."""
    text = redacted_text(f"{MARK}{verdict.run.run}: {one.sentence}")
    return re.sub(r"[^ -~]|[\"'\\]", "?", text)[:_LONGEST]


def to_undrain(verdict: FleetVerdict, known: Mapping[str, SlurmNode]) -> tuple[Step, ...]:
    """What returns each node to service that is ok in this run and that envkit drained."""
    steps: list[Step] = []
    for one in verdict.nodes:
        held = known.get(one.node)
        if held is None or not held.is_ours:
            continue
        if one.state is not State.OK:
            steps.append(Step(one.node, why_not=f"it is {one.state.value} in this run: {one.sentence}"))
        else:
            steps.append(Step(one.node, ("scontrol", "update", f"NodeName={one.node}", "State=UNDRAIN")))
    return tuple(steps)


def apply(steps: Sequence[Step], undo: bool, say: Callable[[str], None]) -> int:
    """Does the steps and reads back what became of them; gives how many did not take.

    A node that somebody else has drained since it was looked at is left alone.
    """
    failed = 0
    for step in steps:
        if not step.command:
            continue
        now = slurm_nodes([step.node]).get(step.node)
        if now is None or (undo and not now.is_ours) or (not undo and _OUT.search(now.state)):
            say(f"{step.node}: left alone, for it is {now.state if now else 'unknown to Slurm'} by now")
            continue
        try:
            _asked(step.command)
        except Undecided as error:
            failed += 1
            say(f"{step.node}: {error.message}")
            continue
        after = slurm_nodes([step.node]).get(step.node)
        took = after is not None and (after.is_ours is not undo)
        failed += not took
        shown = after.state if after else "unknown to Slurm"
        say(f"{step.node}: {shown}" if took else f"{step.node}: it is {shown}, and the command was accepted")
    return failed
