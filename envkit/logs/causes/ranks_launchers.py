"""What launchers say.  They never are the cause; but a signal that the launcher itself received is."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._ranks import family, quoted, stem
from envkit.logs.causes._tracebacks import fatal
from envkit.logs.causes._worded import worded
from envkit.logs.causes.program_insufficient import speaks
from envkit.logs.records import Hypothesis, Role, Strength
from envkit.logs.story import Story

_WRAPPERS = (
    *("mpi-abort", "mpi-exit", "mpi-primary-job", "mpi-exit-string", "srun-exit", "srun-exit-bare", "ray-actor-died"),
    *("deepspeed-exit", "lightning-child", "spawn-exited", "elastic-report-signal"),
)
_WHO = {
    signal.SIGHUP: "its terminal or session went away",
    signal.SIGINT: "somebody interrupted it",
    signal.SIGTERM: "a scheduler, a container's end or a person asked it to end",
}


def launcher_told_to_end(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """torchrun received a signal and ended its workers (torch/distributed/elastic/agent/server/api.py)."""
    for event in family(story, "elastic-received-signal")[:1]:
        number = int(event.values.get("signal") or 0)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        who = next((words for known, words in _WHO.items() if known == number), "another process sent it")
        # what failed, or waited in vain, before the signal is why somebody sent it
        earlier = any(other.role is Role.ROOT and other.category for other in story.before(event))
        strength = Strength.POSSIBLE if earlier else Strength.LIKELY
        fix = "run the job apart from the terminal (sbatch, systemd-run, tmux or nohup)"
        fix = fix if number == signal.SIGHUP else ""
        yield worded("launcher-told-to-end", *quoted([event]), strength=strength, name=name, who=who, fix=fix)


def nobody_else_speaks(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Launchers that name the rank that ended, where that rank itself says nothing (Open MPI, MPICH, Slurm, Ray)."""
    found = [event for event in story.events if stem(event) in _WRAPPERS and event.role is not Role.ADVICE]
    if not found or story.roots or fatal(story):
        return
    if any(speaks(line) for seen in story.files for line in seen.loud if line.number < found[0].line.number):
        return  # somebody does, in words that no rule knows
    told = [event for event in found if event.values.get("signal") or event.values.get("exit")] or found
    how = told[0].values.get("signal") or ""
    name = signal.Signals(int(how)).name if how.isdigit() and int(how) in set(signal.Signals) else how
    yield worded("only-the-launcher-speaks", *quoted(told), by=f" by {name}" if name else "")
