"""What is around the job: networks, hubs and registries, schedulers and clusters, runners, package indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, shortened, stated, unquoted
from envkit.logs.causes._tracebacks import fatal, is_answer
from envkit.logs.records import Hypothesis, Line, Strength
from envkit.logs.story import Story

_LAYERS = 3
# systemd, of the end of a service's process, and of the service
_EXITED = re.compile(r"\.service: Main process exited, code=\w{4,8}, status=(?!0\b)")
_OF_UNIT = re.compile(r"\.service\b|^(?:Start|Stopp)(?:ed|ing) |^Failed to start ")
_NUMBERS = re.compile(r"\d+(?:\.\d+)?")
_OF_GPU = re.compile(r"(?i)cuda|nccl|cudnn|nvidia|\bgpus?\b|nvml|driver")
_AGAIN = 2


def around_the_job(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Services that failed, refused or ended the job, as their clients and agents word it.

    Sources: errno(3), urllib3 and huggingface_hub exceptions, OCI distribution error codes, Slurm job states,
    Kubernetes events.
    """
    yield from stated(story, "services")
    # one outage is told by every layer, the lowest one knows most
    answered = [trace.line for trace in story.tracebacks if is_answer(trace)]
    told = fatal(story)
    if told and not is_answer(told[-1]):  # the server's own exception is in the log
        network = [each for each in stated(story, "network") if not set(each.evidence) & set(answered)]
    else:
        network = list(stated(story, "network"))
    if network := sorted(network, key=lambda each: -each.strength):
        lines = tuple(dict.fromkeys(line for each in network for line in each.evidence))
        yield replace(network[0], evidence=lines[:_LAYERS])


def last_words_before_each_exit(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A service that systemd starts again and again, and whose process says the same before each of its ends."""
    if len(story.files) != 1 or story.roots or story.tracebacks:
        return
    seen = story.files[0]
    lines = sorted({line.number: line for line in (*seen.head, *seen.loud, *seen.tail)}.items())
    said: list[Line] = []
    before: Line | None = None
    for _, line in lines:
        if _EXITED.search(line.text):
            said += [before] if before is not None else []
            before = None
        elif not _OF_UNIT.search(line.text):
            before = line
    told = {_NUMBERS.sub("0", line.text) for line in said}
    if len(said) < _AGAIN or len(told) != 1 or _OF_GPU.search(unquoted(said[0].text)):
        return
    why = f"the service says the same before each of its {len(said)} ends: {shortened(said[0].text)}"
    decide = "the service's own log, if it has one beside the journal"
    yield Hypothesis(INNOCENT, "program-bug", Strength.POSSIBLE, (said[0],), why, decide)
