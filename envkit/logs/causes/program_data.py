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
        for first, real in (("v", "a pointer of Git LFS"), ("<", "a web page")):
            if f"invalid load key, '{first}'" in text:
                found = replace(found, because=f"{real} lies where the data should be: {shortened(text)}")
        trace = story.traceback_of(found.evidence[0])
        if trace is not None and trace.frames and trace.kind == "FileNotFoundError":
            last = trace.frames[-1].function
            if last == "_execute_child":
                why = f"a program that this one starts is not installed: {shortened(text)}"
                found = replace(found, cause="container-config", because=why)
            elif last in ("mkdir", "makedirs"):
                why = f"a folder cannot be made, for the one that it is to lie in is not there: {shortened(text)}"
                found = replace(found, cause="container-config", because=why)
        yield found


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
            return
        strength = Strength.POSSIBLE if gpu_roots(story) else Strength.LIKELY
        why = f"the program refuses its command line: {shortened(what)}"
        yield Hypothesis(INNOCENT, "launch-config", strength, (event.line,), why)
