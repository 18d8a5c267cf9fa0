"""Ranks that waited in vain, and ranks that c10d, DDP or FSDP found to disagree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envkit.facts import Facts
from envkit.logs import hang
from envkit.logs.causes._ranks import ended_otherwise, family, independent, quoted, stem
from envkit.logs.causes._tracebacks import events_in, fatal
from envkit.logs.causes._worded import worded
from envkit.logs.hang import Wait
from envkit.logs.records import Event, Hypothesis, Line, Role, Strength
from envkit.logs.story import Story

_HANG = "nccl-timeout-hang"
_REPORTS = (
    *("c10d-watchdog-timeout", "c10d-watchdog-wrapped", "c10d-heartbeat", "c10d-collective-timeout-state"),
    *("gloo-timeout", "deepep-timeout", "c10d-monitored-barrier-other"),
)
_MEETING = ("c10d-unique-id-timeout", "c10d-store-wait")
_TEARDOWN = ("c10d-watchdog-state", "c10d-dump-signal", "c10d-watchdog-wrapper", "c10d-observed-dump")
_FIRST_WORK = 2  # a group's first or second collective: nothing has ever passed between its ranks
_NEAR = (0.9, 1.15)  # a phase that began when the waiting began is as old as the time-out when it strikes
_COLLECTIVE = re.compile(r"Dist\w*Error|NCCL|nccl|c10d|[Tt]imed? ?out|DDP expects same model")
_BAR = re.compile(r"\[(?:(\d{1,3}):)?(\d{1,2}):(\d{2})<")
_ONE_SIDED = ({"RECV"}, {"SEND"})
_DIFFERS = "ranks were in different collectives"


def told_apart(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """c10d compared the ranks itself: fingerprints (TORCH_DISTRIBUTED_DEBUG=DETAIL), desync report, flight recorder.

    Source: pytorch/pytorch ProcessGroupWrapper.cpp, TraceUtils.h and torch/distributed/flight_recorder.
    """
    prints = family(story, "c10d-fingerprint-mismatch", "c10d-fingerprint-short")
    if prints:
        values = prints[0].values
        one, other = _print(values, ""), _print(values, "other_")
        between = f"rank {values.get('rank')} is at {one}, rank {values.get('other_rank')} at {other}"
        yield worded("collectives-differ", *quoted(prints), why=between if values.get("rank") else _DIFFERS)
        return
    flight = family(story, "flight-difference", "flight-culprit", "flight-match-state", "flight-missing-ranks")
    report = family(story, "c10d-desync-report")
    for event in (*flight, *report)[:1]:
        beside = story.of("flight-collective-errors", "c10d-desync-joined")[:1]
        why = event.values.get("told") or _culprit(event)
        if event.values.get("kind") == "not-finished":
            yield worded("ranks-in-step-and-stuck", event, *beside, strength=Strength.LIKELY, why=why)
            return
        strength = Strength.DECISIVE if flight else Strength.LIKELY
        yield worded("ranks-told-apart", event, *beside, strength=strength, why=why)


def waited(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A time-out is a report of somebody else: the causes are looked for in what the other ranks did.

    In this order: a failure that began by itself (then that is the cause and this is only a rival), a rank that ended
    otherwise than by its watchdog, collectives that differ between ranks, a phase of one rank that is as old as the
    time-out, and then what equal or lonely reports are most often (torch ProcessGroupNCCL.cpp; stas00/ml-engineering).
    """
    if family(story, "c10d-fingerprint-mismatch", "c10d-fingerprint-short", "flight-difference", "flight-culprit"):
        return
    reports = [event for event in family(story, *_REPORTS, roots=False) if event.role is not Role.ADVICE]
    if not reports:
        return
    found = hang.first_waits(story)
    lines = _best_lines(found, reports)
    absent = hang.silent(story)
    named = f"; rank {', '.join(map(str, absent[:8]))} reported nothing" if 0 < len(absent) <= 64 else ""
    own = _own_failure(story)
    if own is not None:
        yield worded("waited-for-a-failed-rank", *lines[:1], own)
        return
    if ended := ended_otherwise(story):
        exit_line, how = ended
        yield worded("waited-for-an-ended-rank", *lines[:1], exit_line, how=how, named=named)
        return
    if differing := hang.differing(found)[:4]:
        events, which = (wait.event for wait in differing), ", ".join(map(_says, differing)) + named
        yield worded("waited-in-other-collectives", *events, which=which)
        return
    limit = next((wait.timeout_ms for wait in found if wait.timeout_ms), None)
    if limit and (slow := _phase_as_old(story, limit)):
        yield worded("waited-for-long-work", *lines[:1], slow, limit=limit // 1000, named=named)
        return
    yield _unexplained(story, found, lines, named)


def met_late(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A rank that waited at the store for another to come (torch/csrc/distributed/c10d/TCPStore.cpp)."""
    found = family(story, *_MEETING)
    if found and not family(story, *_REPORTS):
        values = found[0].values
        missing = f"rank {values['other_rank']}" if values.get("other_rank") else "another rank"
        strength = Strength.POSSIBLE if _own_failure(story) is None else Strength.FALLBACK
        yield worded("rank-met-late", *quoted(found), strength=strength, missing=missing)
    barrier = family(story, "c10d-monitored-barrier")
    if barrier:
        ranks = barrier[0].values.get("ranks") or barrier[0].values.get("other_rank")
        strength = Strength.LIKELY if _own_failure(story) is None else Strength.FALLBACK
        yield worded("rank-not-at-the-barrier", *quoted(barrier), strength=strength, ranks=ranks)


def teardown_only(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Only what the watchdog prints while it ends the process: that there was a time-out or error, and no more."""
    found = [event for event in story.events if stem(event) in _TEARDOWN and event.role is not Role.ADVICE]
    others = [event for event in story.events if event.category == _HANG and event not in found]
    if found and not others and not story.roots:
        yield worded("watchdog-ended-the-process", *quoted(found))


def reduction_unfinished(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """DDP wants one gradient for each parameter in each step (torch/csrc/distributed/c10d/reducer.cpp)."""
    names = family(story, "ddp-no-grad-names", "ddp-no-grad-indices", roots=False)
    for event in family(story, "ddp-unfinished-reduction")[:1]:
        told = [each for each in names if each.role is not Role.ADVICE]
        by_rank = {each.values.get("names") for each in told if stem(each) == "ddp-no-grad-names"}
        why = "some parameters got no gradient in a step"
        if which := told[0].values.get("names", "").strip() if told else "":
            why = f"these parameters got no gradient: {which[:200]}"
        cause = "rank-desync" if len(by_rank) > 1 else "program-bug"
        strength = Strength.DECISIVE if told else Strength.LIKELY
        yield worded("parameters-without-gradient", *told[:1], event, cause=cause, strength=strength, why=why)
    for event in family(story, "ddp-marked-twice")[:1]:
        beside = family(story, "ddp-parameter-name", roots=False)
        yield worded("gradient-ready-twice", event.line, *quoted(beside[:1]))


def _unexplained(story: Story, found: tuple[Wait, ...], lines: tuple[Line, ...], named: str) -> Hypothesis:
    ranks = {wait.rank for wait in found if wait.rank is not None}
    first = all(wait.seq is not None and wait.seq <= _FIRST_WORK for wait in found) and bool(found)
    alone = all(wait.numel_in == 1 for wait in found) and bool(found)
    size, count = hang.world(story), len(ranks)
    whole = ranks == set(range(size or count)) and bool(size or count % 2 == 0)
    where = _says(found[0]) if found else "a collective"
    cause, strength = "network-fabric", None
    if count > 1 and (ops := {wait.op for wait in found}) in _ONE_SIDED:
        cause, strength = "rank-desync", Strength.LIKELY
        doing, missing = ("receive", "send") if ops == {"RECV"} else ("send", "receive")
        why = f"{count} ranks waited to {doing} and none of them to {missing} ({where})"
    elif first and alone:
        # the barrier behind which one rank prepares what all need
        cause, why = "launch-config", f"the group's first barrier was not over in time ({where}){named}"
    elif first and count > 1:
        why = f"not even the group's first collective went through ({where}){named}"
    elif count > 1 and whole:
        why = f"all {count} ranks were in the same collective and it did not end ({where})"
    else:
        cause, why = "rank-desync", f"{where} did not end, and the ranks that did not join it do not say why{named}"
    return worded("waited-without-a-reason", *lines, cause=cause, strength=strength, why=why)


def _best_lines(found: tuple[Wait, ...], reports: list[Event]) -> tuple[Line, ...]:
    """The time-outs to quote: the first rank's and one more."""
    chosen = [wait.event.line for wait in found] or [event.line for event in reports]
    different = {line.rank if line.rank is not None else line.text: line for line in reversed(chosen)}
    wanted = set(map(id, different.values()))
    return tuple(line for line in chosen if id(line) in wanted)[:2]


def _own_failure(story: Story) -> Line | None:
    """A failure that no waiting explains: an event that began by itself, or an exception of no collective."""
    for event in independent(story):
        if event.category not in (_HANG, "insufficient-evidence"):
            return event.line
    chain = fatal(story)
    told = {event.category for trace in chain for event in events_in(story, trace)}
    if not chain or told & {_HANG, "nccl-remote-error"} or _COLLECTIVE.search(f"{chain[-1].kind} {chain[-1].message}"):
        return None
    return chain[-1].line


def _phase_as_old(story: Story, limit_ms: int) -> Line | None:
    """An unfinished progress bar that had run for as long as the time-out when the log ends."""
    for seen in story.files:
        for line in reversed((*seen.head, *seen.tail)):
            for bar in _BAR.finditer(line.text):
                hours, minutes, seconds = (int(part or 0) for part in bar.groups())
                age = (hours * 3600 + minutes * 60 + seconds) * 1000 / limit_ms
                if _NEAR[0] <= age <= _NEAR[1]:
                    return line
    return None


def _says(wait: Wait) -> str:
    who = f"rank {wait.rank} at " if wait.rank is not None else ""
    size = f" of {wait.numel_in} elements" if wait.numel_in is not None else ""
    number = f" {wait.seq}" if wait.seq is not None else ""
    return f"{who}{wait.op or 'collective'}{number}{size}"


def _print(found: Mapping[str, str], prefix: str) -> str:
    op = found.get(f"{prefix}op") or "a collective"
    seq = f" {found[f'{prefix}seq']}" if found.get(f"{prefix}seq") else ""
    shape = f" of [{found[f'{prefix}shape']}]" if found.get(f"{prefix}shape") else ""
    return f"{op}{seq}{shape}"


def _culprit(event: Event) -> str:
    rank = event.values.get("other_rank") or event.values.get("ranks")
    kind = (event.values.get("error") or "").replace("_", " ").lower()
    return f"rank {rank} is elsewhere{f' ({kind})' if kind else ''}" if rank else _DIFFERS
