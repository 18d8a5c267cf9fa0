"""What is around the job: networks, hubs and registries, schedulers and clusters, runners, package indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._stated import stated
from envkit.logs.causes._tracebacks import fatal, is_answer
from envkit.logs.records import Hypothesis
from envkit.logs.story import Story

_LAYERS = 3


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
