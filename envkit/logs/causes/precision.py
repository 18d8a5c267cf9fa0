"""Numbers that became nan or infinite."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._cuda import code_of, first
from envkit.logs.causes._worded import worded
from envkit.logs.causes.rules import by_rule, rule_of
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_CATEGORY = "nan-or-inf-mixed-precision"
_SCALE = ("scale-minimum", "scale-minimum-fairseq")
# Backward functions whose forward divides, takes a root or a logarithm: nan comes from their input, in any type.
_UNGUARDED = re.compile(
    r"(?:Sqrt|Rsqrt|Div|Log|Log2|Log10|Log1p|Pow|Acos|Asin|Atan2|Norm|LinalgNorm|Cdist|Std|Var)Backward"
)
_NARROW = re.compile(
    r"fp16|float16|\bhalf\b|\.half\(|autocast|\bamp\b|gradscaler|loss.?scal|mixed.?precision", re.IGNORECASE
)
_DECIDE = "does the failing batch run clean in float32, and are its inputs finite"
_OVER = ("insufficient-evidence", "not-gpu-env")
_SMALL_SCALE = 1.0  # a healthy scale settles far above it (apex, DeepSpeed: the least they go to)


def nan_or_inf(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """What stopped on nan or infinity, and whether the type, the model or the data is the likely reason."""
    event = first(story.in_category(_CATEGORY))
    overflows = story.of("scale-overflow", "scale-reduced")
    if event is None:
        yield from _scale_ran_out(overflows)
        return
    if event.signature.id in _SCALE:
        yield worded("loss-scale-ran-out", event, overflows[-1] if overflows else None)
    elif event.signature.id == "backward-nan":
        yield from _backward(story, event)
    elif rule_of(event) is not None:
        yield from by_rule(event)
    else:
        yield from _not_finite(story, event, bool(overflows))


def _backward(story: Story, event: Event) -> Iterator[Hypothesis]:
    """The function whose backward pass yields nan."""
    operation, cause, rival, guard = event.values.get("op", ""), "precision", "program-bug", ""
    if _UNGUARDED.match(operation):
        cause, rival, guard = rival, cause, " for an input that its forward should have been kept from"
    forward = first(story.of("anomaly-traceback"))
    yield worded("backward-not-finite", event, forward, cause=cause, operation=operation, guard=guard)
    yield worded("backward-yields-nan", event, cause=rival, operation=operation)


def _not_finite(story: Story, event: Event, overflows: bool) -> Iterator[Hypothesis]:
    """Numbers that are not finite; their type tells whether it or the training is the likely reason."""
    narrow = overflows or _NARROW.search(code_of(story, event))
    sampled = event.signature.id.startswith("probability")
    what = "the probabilities to sample from are nan, infinite or negative"
    what = what if sampled else "the numbers are nan or infinite"
    strength = Strength.POSSIBLE if event.has("warning") else Strength.LIKELY
    yield worded("values-not-finite", event, strength=strength, what=what, type=", in a narrow type" if narrow else "")
    if not narrow and not sampled:
        yield worded("training-diverged", event)


def _scale_ran_out(overflows: tuple[Event, ...]) -> Iterator[Hypothesis]:
    """Skipped steps are usual while the scale settles; a scale of one or less is not."""
    for event in [each for each in overflows if _scale(each) <= _SMALL_SCALE][-1:]:
        yield worded("loss-scale-fell", event, scale=f"{_scale(event):g}")


def _scale(event: Event) -> float:
    try:
        return float(event.values.get("wanted", ""))
    except ValueError:
        return math.inf
