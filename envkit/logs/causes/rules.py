"""Causes that rows hold (``rules/*.jsonl``): which lines of a failure a row is of, and what such a line says."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase

from envkit.facts import Facts
from envkit.logs.causes._cuda import AFTERMATH, first, lines_of
from envkit.logs.knowledge import rules
from envkit.logs.records import Event, Hypothesis, Rule, RuleHypothesis, Strength
from envkit.logs.story import Story

_LONGEST = 160


def rule_of(event: Event, category: str = "") -> Rule | None:
    """The first rule of the event's failure, or of ``category``, that the event fits."""
    return next((rule for rule in rules(category or event.category) if _fits(rule, event)), None)


def by_rule(event: Event, *more: Event | None, category: str = "") -> Iterator[Hypothesis]:
    """What the rule of an event says, resting on its line and on those of ``more``; nothing where none fits."""
    rule = rule_of(event, category)
    if rule is None:
        return
    for says in rule.says:
        yield _hypothesis(rule, says, event, *more)


def _hypothesis(rule: Rule, says: RuleHypothesis, event: Event, *more: Event | None) -> Hypothesis:
    """One hypothesis of a rule, with the values of the event in its sentences."""
    values = defaultdict(str, {name: value.strip() for name, value in event.values.items()})
    values["text"] = event.line.text.strip()[:_LONGEST]
    strength, lines = Strength[says.strength.upper()], lines_of(event, *more)
    because, fix = says.because.format_map(values), says.fix.format_map(values)
    over = AFTERMATH if says.over == ("aftermath",) else says.over
    return Hypothesis(rule.category, says.cause, strength, lines, because, says.decide_by, fix, over=over)


def _fits(rule: Rule, event: Event) -> bool:
    """Whether an event is of the signatures and the status that a rule is of."""
    known = not rule.signatures or any(fnmatchcase(event.signature.id, each) for each in rule.signatures)
    return known and re.search(rule.status, event.values.get("code") or "") is not None


def stated_by_one_line(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """What the first line of each such rule says; the rows name their sources."""
    for rule in rules():
        if rule.alone and (event := _first_line(rule, story)) is not None:
            beside = first(story.of(*rule.beside))
            for says in rule.says:
                yield _hypothesis(rule, says, event, beside)


def _first_line(rule: Rule, story: Story) -> Event | None:
    events = story.roots if rule.alone == "root" else story.events
    mine = events if rule.signatures else [event for event in events if event.category == rule.category]
    return first(event for event in mine if _fits(rule, event))
