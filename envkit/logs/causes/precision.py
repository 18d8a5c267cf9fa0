"""Numbers that became nan or infinite."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._cuda import code_of, first, lines_of
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
_SMALL_SCALE = 1.0  # a healthy scale settles far above it (apex, DeepSpeed: the least they go to)


def nan_or_inf(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """What stopped on nan or infinity, and whether the type, the model or the data is the likely reason."""
    event = first(story.in_category(_CATEGORY))
    overflows = story.of("scale-overflow", "scale-reduced")
    if event is None:
        yield from _scale_ran_out(overflows)
        return
    kind = event.signature.id
    evidence = lines_of(event)
    decide = "does the failing batch run clean in float32, and are its inputs finite"
    over = ("insufficient-evidence", "not-gpu-env")
    if kind in _SCALE:
        last = overflows[-1] if overflows else None
        yield Hypothesis(
            _CATEGORY,
            "precision",
            Strength.DECISIVE,
            lines_of(event, last),
            "gradients overflow at every loss scale down to the smallest",
            decide,
            over=over,
        )
        return
    if kind == "unscale-fp16":
        yield Hypothesis(
            _CATEGORY,
            "precision",
            Strength.LIKELY,
            evidence,
            "the gradient scaler was given weights that are float16 themselves",
            "are the master weights float32",
            over=over,
        )
        return
    operation = event.values.get("op", "")
    anomaly = first(story.of("anomaly-traceback"))
    if kind == "backward-nan":
        unguarded = _UNGUARDED.match(operation)
        yield Hypothesis(
            _CATEGORY,
            "program-bug" if unguarded else "precision",
            Strength.LIKELY,
            lines_of(event, anomaly),
            f"{operation} yields nan for an input that its forward should have been kept from"
            if unguarded
            else f"{operation} yields nan",
            decide,
            over=over,
        )
        yield Hypothesis(
            _CATEGORY,
            "precision" if unguarded else "program-bug",
            Strength.POSSIBLE,
            evidence,
            f"{operation} yields nan",
        )
        return
    narrow = _NARROW.search(code_of(story, event)) or overflows
    sampled = kind.startswith("probability")
    why = (
        "the probabilities to sample from are nan, infinite or negative"
        if sampled
        else "the numbers are nan or infinite"
    )
    yield Hypothesis(
        _CATEGORY,
        "precision",
        Strength.POSSIBLE if event.has("warning") else Strength.LIKELY,
        evidence,
        f"{why}, in a narrow type" if narrow else why,
        decide,
        over=over,
    )
    if not narrow and not sampled:
        yield Hypothesis(
            _CATEGORY,
            "program-bug",
            Strength.POSSIBLE,
            evidence,
            "training diverged, as with a learning rate too high",
            decide,
        )


def _scale_ran_out(overflows: tuple[Event, ...]) -> Iterator[Hypothesis]:
    """Skipped steps are usual while the scale settles; a scale of one or less is not."""
    low = [event for event in overflows if _scale(event) <= _SMALL_SCALE]
    if low:
        yield Hypothesis(
            _CATEGORY,
            "precision",
            Strength.LIKELY,
            lines_of(low[-1]),
            f"gradients overflow with the loss scale at {_scale(low[-1]):g}",
            "does it run clean in bfloat16 or float32",
        )


def _scale(event: Event) -> float:
    try:
        return float(event.values.get("wanted", ""))
    except ValueError:
        return math.inf
