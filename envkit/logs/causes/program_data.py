"""Files that are missing, cut short or made for something else, and settings that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, gpu_roots, shortened, stated
from envkit.logs.records import Hypothesis, Strength
from envkit.logs.story import Story


def unreadable_or_unfit(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Damaged files, missing files, wrong names and settings, as the reading library words them.

    An "invalid load key" `v` or `<` tells what the file really is: a Git LFS pointer or a web page.
    """
    for found in stated(story, "data"):
        text = found.evidence[0].text
        real = _what_it_is(text)
        if not real:
            yield found
            continue
        why = f"{real} lies where the data should be: {shortened(text)}"
        yield replace(found, because=why)


def _what_it_is(text: str) -> str:
    if "invalid load key, 'v'" in text:
        return "a pointer of Git LFS"
    if "invalid load key, '<'" in text:
        return "a web page"
    return ""


def refused_arguments(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """An argument parser that refuses what it was given; a launcher's own --local_rank is the program's to know.

    Source: torchrun's documentation, "Transitioning from torch.distributed.launch to torchrun".
    """
    for event in story.of("program-arguments")[:1]:
        what = event.values["what"]
        if "--local_rank" in what or "--local-rank" in what:
            why = f"the launcher passes --local_rank, and the program has no such option: {shortened(what)}"
            fix = "read LOCAL_RANK from the environment, or let the program take --local_rank and --local-rank"
            yield Hypothesis(INNOCENT, "program-bug", Strength.LIKELY, (event.line,), why, fix=fix)
            continue
        strength = Strength.POSSIBLE if gpu_roots(story) else Strength.LIKELY
        why = f"the program refuses its command line: {shortened(what)}"
        yield Hypothesis(INNOCENT, "launch-config", strength, (event.line,), why)
