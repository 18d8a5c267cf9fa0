"""Weighs hypotheses: the strongest that no other explains away, the runner-up, and how sure one may be."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from inspect import getmembers, isgeneratorfunction
from itertools import pairwise
from typing import get_type_hints

from envkit.facts import Facts
from envkit.logs import causes, hang
from envkit.logs.causes._stated import shortened
from envkit.logs.ends import ends_ill
from envkit.logs.knowledge import failures
from envkit.logs.outcome import good_end
from envkit.logs.records import Event, Explanation, Failure, Hypothesis, Line, Mark, Role, Strength
from envkit.logs.story import Story
from envkit.logs.survived import is_tabled
from envkit.records import replace

Reader = Callable[[Story, Facts], Iterator[Hypothesis]]

_SURE = {
    Strength.DECISIVE: 0.95,
    Strength.LIKELY: 0.8,
    Strength.USUAL: 0.6,
    Strength.POSSIBLE: 0.55,
    Strength.FALLBACK: 0.35,
}
_RIVAL = 0.15  # what a rival as strong as the first takes from its confidence
_MOST_EVIDENCE = 8
_ENOUGH_EVIDENCE = 4  # lines of the same category are added up to so many
_LAST = 2
_INNOCENT = "not-gpu-env"
_OPEN = "insufficient-evidence"
_OF_RANKS = ("nccl-remote-error", "nccl-unhandled-system-error")
# what torch's own bookkeeping says of ranks that are not at the same call, whoever carries their messages
_OF_CALLS = re.compile(r"monitoredBarrier|Detected mismatch between collectives|\bwait timeout after \d")
_AMD = re.compile(r"\bHIP\b|\bhip[A-Z]\w{3}|\bROCm\b|rocBLAS|\bgfx\d{3,4}|\bfault by GPU node-|HSA_STATUS")
_AMD_SAYS = "; these are the words of ROCm, so it is an AMD GPU, for which commands of CUDA do not serve"
_AMD_NEXT = ("rocminfo", "rocm-smi", "AMD_SERIALIZE_KERNEL=3 AMD_LOG_LEVEL=3 CMD")


@cache
def readers() -> tuple[Reader, ...]:
    """Every public generator function of ``causes/`` that asks for a story, by module and name."""
    names = sorted(info.name for info in pkgutil.iter_modules(causes.__path__) if not info.name.startswith("_"))
    modules = [import_module(f"{causes.__name__}.{name}") for name in names]
    own = [
        value
        for module in modules
        for name, value in getmembers(module, isgeneratorfunction)
        if not name.startswith("_") and value.__module__ == module.__name__
    ]
    return tuple(value for value in own if Story in get_type_hints(value).values())


def weigh(story: Story, facts: Facts) -> tuple[Hypothesis, ...]:
    """Every hypothesis that any reader has, ordered."""
    found = [each for read in readers() for each in read(story, facts)]
    found += _after_all(found, story, facts)
    return ordered([_without_gpu(each) for each in found] if _among_cpus(story) else found, story)


def _after_all(found: Sequence[Hypothesis], story: Story, facts: Facts) -> list[Hypothesis]:
    """Where a run ended badly and nothing tells of why: the best that an error can mean which it seemed to survive."""
    told = any(each.category != _OPEN and each.strength > Strength.FALLBACK for each in found)
    told = told or any(each.category == _INNOCENT for each in found)
    if told or not story.survived or not any(map(ends_ill, story.files)):
        return []
    files = {seen.name: seen for seen in story.files}
    known = [
        event
        for event in story.survived
        if event.category not in ("", _INNOCENT, _OPEN) and not is_tabled(event, files[event.line.file])
    ]
    if not known:
        return []
    again = replace(story, events=(*story.events, *known[-1:]), survived=())
    best = ordered([each for read in readers() for each in read(again, facts)], again)
    why = "the run ended badly, nothing else tells of why, and this was met before: "
    return [
        replace(each, strength=min(each.strength, Strength.POSSIBLE), because=why + each.because, over=(_OPEN,))
        for each in best[:1]
        if (each.category == known[-1].category or known[-1].line in each.evidence)
        and each.strength > Strength.FALLBACK
    ]


def _among_cpus(story: Story) -> bool:
    """Whether the ranks talk by gloo and nothing in the logs names NCCL: no GPU has a part in their connections."""
    lines = [line.text for seen in story.files for line in seen.kept]
    text = "\n".join((*lines, *(event.line.text for event in story.events), *(t.message for t in story.tracebacks)))
    return "gloo" in text.lower() and "nccl" not in text.lower()


def _without_gpu(found: Hypothesis) -> Hypothesis:
    """The hypothesis, told as innocent where its kind is one of connections between GPUs."""
    calls = found.category == "nccl-timeout-hang" and any(_OF_CALLS.search(line.text) for line in found.evidence)
    if found.category not in _OF_RANKS and not calls:
        return found
    over = tuple(each for each in found.over if each != _INNOCENT)
    return replace(found, category=_INNOCENT, over=over, next=found.next or failures()[found.category].next)


def ordered(found: Sequence[Hypothesis], story: Story) -> tuple[Hypothesis, ...]:
    """The hypotheses, the best first.

    One that another, at least USUAL, declares to explain (``over``) goes behind all that nobody explains.  Then the
    stronger one is first, and of equals the one whose root comes first in the story.
    """
    explained = {category for each in found if each.strength >= Strength.USUAL for category in each.over}
    order = {(event.line.file, event.line.number): index for index, event in enumerate(story.events)}

    def key(each: Hypothesis) -> tuple[bool, int, int]:
        first = each.evidence[0] if each.evidence else None
        at = order.get((first.file, first.number), len(order)) if first else len(order)
        return (each.category in explained, -each.strength, at)

    return tuple(sorted(found, key=key))


def explain(story: Story, facts: Facts) -> Explanation:
    """The answer to a story; never empty: where nothing is known it is "insufficient-evidence"."""
    return answer(weigh(story, facts), story)


def answer(found: Sequence[Hypothesis], story: Story) -> Explanation:
    """The answer to a story whose hypotheses are ``found``, the best first."""
    if not found:
        found = (Hypothesis("insufficient-evidence", "unknown", Strength.FALLBACK, (), "no line tells of a failure"),)
    told = found[0].category in (_INNOCENT, _OPEN) or found[0].cause == "unknown-cut-log"
    if found[0].strength is Strength.FALLBACK and not told:
        # what only warned, or is doubtful for another reason, is no failure of the GPU yet; it stands beside the answer
        why = "no line tells of a failure, and what speaks of the GPU only warns or is doubtful"
        found = (Hypothesis(_OPEN, "unknown", Strength.FALLBACK, found[0].evidence, why), *found)
    best = found[0]
    rivals = (each for each in found[1:] if (each.category, each.cause) != (best.category, best.cause))
    rival = next(rivals, None)
    known = failures()[best.category]
    sure = _SURE[best.strength]
    if _is_contradicted(best, story):
        sure = min(sure, _SURE[Strength.LIKELY])
    if rival is not None and rival.strength >= best.strength and rival.category not in best.over:
        sure -= _RIVAL
    if rival is None and story.survived and best.category in (_INNOCENT, _OPEN):
        rival = _survived(story.survived[0])
    if rival is None and best.strength <= Strength.USUAL:
        rival = _next_cause(best, known)
    amd = any(_AMD.search(line.text) for line in best.evidence)
    return Explanation(
        category=best.category,
        cause=best.cause,
        confidence=round(sure, 2),
        title=best.title or known.title,
        because=best.because + (_AMD_SAYS if amd else ""),
        evidence=_evidence(best, story),
        timeline=_timeline(best, story),
        runner_up=rival,
        decide_by=best.decide_by or (rival.decide_by if rival else "") or "".join(known.decide[:1]),
        next=_AMD_NEXT if amd else best.next or known.next,
        fix=best.fix or known.fix.get(best.cause) or known.fix.get("", ""),
        ranks=hang.table(story),
        files=story.files,
    )


def _is_contradicted(best: Hypothesis, story: Story) -> bool:
    """Whether the log of a failure ends by a line that tells of a good end of the whole."""
    if best.category == _OPEN or not best.evidence:
        return False
    ends = [good_end(seen) for seen in story.files if seen.name == best.evidence[0].file]
    return any(end is not None and end.line.number > best.evidence[0].number for end in ends)


def _survived(event: Event) -> Hypothesis | None:
    """What an error would mean after which the log goes on, if it did not go on for the process that met it."""
    if event.category in ("", _INNOCENT, _OPEN):
        return None
    why = f"an error was reported, and the log goes on after it: {shortened(event.line.text)}"
    decide = "whether the process that reported it is the one that went on"
    cause = next(iter(failures()[event.category].causes))
    return Hypothesis(event.category, cause, Strength.FALLBACK, (event.line,), why, decide)


def _next_cause(best: Hypothesis, known: Failure) -> Hypothesis | None:
    """What the failure comes of where it is not what it usually comes of."""
    other = next(((cause, looks) for cause, looks in known.causes.items() if cause != best.cause), None)
    if other is None:
        return None
    return Hypothesis(best.category, other[0], Strength.FALLBACK, best.evidence[:1], other[1])


def _role(line: Line, first: bool, story: Story) -> Role:
    if first:
        return Role.ROOT
    for event in story.events:
        if event.line.file == line.file and event.line.number == line.number:
            return Role.DIAGNOSTIC if event.role is Role.ADVICE else event.role
    return Role.DIAGNOSTIC


def _evidence(best: Hypothesis, story: Story) -> tuple[Mark, ...]:
    """The lines of the hypothesis, then others of its category, for the first report is not always the one that a
    person looks for; where there are none, what follows from a cause that was not seen."""
    lines = {(line.file, line.number): line for line in best.evidence[:_MOST_EVIDENCE]}
    for trace in story.tracebacks:
        if trace.telling is not None and (trace.line.file, trace.line.number) in lines:
            lines.setdefault((trace.telling.file, trace.telling.number), trace.telling)
    for before, after in pairwise(story.tracebacks):
        if after.within and (before.line.file, before.line.number) in lines:  # its handler often says what was refused
            lines.setdefault((after.line.file, after.line.number), after.line)
    said = (Role.ROOT, Role.CASCADE)
    for event in story.events:
        if len(lines) >= _ENOUGH_EVIDENCE:
            break
        if event.role in said and event.category == best.category:
            lines.setdefault((event.line.file, event.line.number), event.line)
    if not lines:
        last = [event.line for event in story.events if event.role in said][-_LAST:]
        last = last or [line for seen in story.files for line in seen.loud][-_LAST:]
        return tuple(Mark(line, Role.CASCADE, "") for line in last)
    return tuple(Mark(line, _role(line, index == 0, story), "") for index, line in enumerate(lines.values()))


def _timeline(best: Hypothesis, story: Story) -> tuple[Mark, ...]:
    chosen = {(line.file, line.number) for line in best.evidence[:1]}
    marks = []
    for event in story.events:
        if event.role is Role.ADVICE:
            continue
        at = (event.line.file, event.line.number)
        role = Role.ROOT if at in chosen else Role.DIAGNOSTIC if event.role is Role.ROOT and chosen else event.role
        marks.append(Mark(event.line, role, event.category or event.signature.id))
    return tuple(marks)
