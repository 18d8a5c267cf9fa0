"""Judges a model's step in a narrow dtype: what it refuses, what leaves its range, what loses its digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from envkit.judging.checks._model import last_words, place
from envkit.judging.checks._outcomes import error, note, or_unknown, skip_if, unknown_if
from envkit.model import Finding, Severity, Unknown
from envkit.subjects.placement import End
from envkit.subjects.precision import Event, Figure, Limits, Precision, StepSeen

_MOST = 20  # findings of one kind
_WIDE_RANGE = 1e-30  # a dtype whose smallest number is below this has the range of single precision
# Between what TF32 rounds its operands by (2^-11 at most) and what a product in single precision of any length that
# fits a GPU rounds (2^-24 times the square root of the length): half of the first figure's mean, two powers up.
_FEWER_DIGITS = 2.0**-13
_HALF = 0.5  # of a gradient that is error: it may point 30 degrees (asin 1/2) elsewhere
_GRADIENTS = "all gradients as one"


def _died(end: End) -> str:
    """How the process ended before its steps did; empty if it did not."""
    if end.ended == "killed":
        return f"was killed by {end.signal}"
    if end.ended == "hung":
        return f"did not end: {end.detail}"
    return "" if end.ended == "ran" else f"failed: {end.detail}"


def _whole(model: Precision, which: str) -> StepSeen:
    """The step "single" or "wanted", seen to its end; raises Unknown for anything else."""
    end = model.end.need("the run of the model")
    name = "single precision" if which == "single" else model.dtype
    step = (model.single if which == "single" else model.wanted).value
    if step is None:
        died = _died(end) or (f"raised {end.stop.message}" if end.stop else "stopped")
        raise Unknown(f"there was no step in {name}: in the stage {end.stage} it {died}")
    if step.error is not None:
        raise Unknown(f"the step in {name} stopped in its {step.error.stage}: it raised {step.error.message}")
    return step


def precision_factory_failed(model: Precision) -> Iterator[Finding]:
    """The module is imported and its factory returns a model with inputs."""
    end = model.end.need("the run of the model")
    if end.stage not in ("start", "import torch", "import", "factory"):
        return
    how = f"raised {end.stop.message}" if end.stop else _died(end) or "stopped"
    what = "the factory" if end.stage == "factory" else "the module"
    yield error(
        f"{what} of {model.target} {how}",
        end.stop.where if end.stop else "",
        last_words(end),
        "call the factory by hand: it must return (model, inputs[, loss]) within the time given",
    )


def precision_step_failed(model: Precision) -> Iterator[Finding]:
    """One step runs in single precision and in the wanted dtype, but for operations that refuse the dtype."""
    end = model.end.need("the run of the model")
    if end.stage in ("start", "import torch", "import", "factory"):
        raise Unknown(f"no step was taken: it ended in the stage {end.stage}")
    died = _died(end)
    if died:
        unknown_if(end.ended == "hung", f"the stage {end.stage} {died}")
        yield error(
            f"the step in {end.stage} {died}",
            evidence=last_words(end),
            fix="run the step alone with `envkit debug -- python ...`, which finds the kernel",
        )
        return
    for step, name in ((model.single.value, "single precision"), (model.wanted.value, model.dtype)):
        if step is None or step.error is None or (name == model.dtype and step.refusal is not None):
            continue
        stop = step.error
        if "OutOfMemory" in stop.kind:
            raise Unknown(
                f"the step in {name} and its copy in a wider dtype do not fit into memory: take a smaller batch"
            )
        yield error(
            f"the {stop.stage} in {name} raised {stop.message}",
            place(stop.where, stop.module),
            {stop.source or stop.message: "the line"},
            "run one step with these inputs by hand",
        )
        return
    if model.single.value is None or model.wanted.value is None:
        raise Unknown(f"the steps were not seen: it ended in the stage {end.stage}")


def precision_op_refused(model: Precision) -> Iterator[Finding]:
    """Every operation of the step takes the wanted dtype."""
    step = model.wanted.value
    if step is None or step.refusal is None:
        _whole(model, "wanted")
        return
    refusal = step.refusal
    mixed = len([each for each in refusal.dtypes if "float" in each]) > 1
    does = "meets" if mixed else "fails with"
    yield error(
        f"{refusal.op} {does} {' and '.join(refusal.dtypes)} on {' and '.join(refusal.devices)} "
        f"in the {refusal.stage}: {refusal.message.rstrip('.')}",
        place(refusal.where, refusal.module),
        {refusal.source or refusal.op: "the line"},
        "cast its operands to one dtype, or let torch.autocast do it"
        if mixed
        else "compute this operation in single precision (`.float()` before it, back after it), and only this one",
    )


def _figures(step: StepSeen) -> tuple[list[Figure], list[Figure]]:
    """The results that are whole, and the gradients of single parameters."""
    single = [each for each in step.results if each.what.startswith("the gradient of ")]
    return [each for each in step.results if each not in single], single


def _names(figures: Iterable[Figure]) -> str:
    names = [each.what for each in figures]
    shown = [*names[:3], f"{len(names) - 3} more"] if len(names) > 3 else names
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _finite_story(event: Event) -> str:
    inputs = "finite numbers" if event.inputs_finite else "inputs that were not finite"
    if event.kind == "overflow":
        return (
            f"{event.op} in the {event.stage} yields {event.largest:.3g} in a wider dtype, "
            f"beyond the {event.limit:.6g} that {event.dtype} holds"
        )
    nowhere = "a value that is not finite in the wider dtype either"
    yields = {"nan": "NaN", "infinity": "infinity"}.get(event.kind, nowhere)
    return f"{event.op} in the {event.stage} makes {yields} of {inputs} in {event.dtype}"


def _not_finite(step: StepSeen) -> dict[Event | None, list[Figure]]:
    """Results that are not finite, by the operation to blame; an infinity that is meant to be in an output is none."""
    found: dict[Event | None, list[Figure]] = {}
    for each in step.results:
        nowhere = each.not_finite_anywhere if not each.what.startswith("output ") else each.nans
        if each.not_finite or nowhere:
            found.setdefault(each.bad, []).append(each)
    return found


def precision_not_finite(model: Precision) -> Iterator[Finding]:
    """Outputs, loss and gradients are finite; what heals on its way (the -inf of a mask) does not count."""
    single = model.single.value
    if single is not None and single.error is None:
        found = _not_finite(single)
        for event, figures in found.items():
            story = f": {_finite_story(event)}" if event else ""
            are = "is" if len(figures) == 1 else "are"
            yield error(
                f"{_names(figures)} {are} not finite in single precision already{story}",
                place(event.where, event.module) if event else "",
                {event.source: "the line"} if event and event.source else {},
                "the dtype is not the cause: fix the model, its inputs or its initial values first",
            )
        if found:
            return
    for event, figures in _not_finite(_whole(model, "wanted")).items():
        worst = figures[0]
        story = f": {_finite_story(event)}" if event else ""
        yield error(
            f"{_names(figures)} {'is' if len(figures) == 1 else 'are'} not finite in {model.dtype}{story}",
            place(event.where, event.module) if event else "",
            {
                **({event.source: "the line"} if event and event.source else {}),
                f"{worst.not_finite + worst.not_finite_anywhere} of {worst.elements}": f"elements of {worst.what}",
            },
            "compute this operation in single precision or scale before it"
            + ("; bfloat16 has the range of single precision" if event and event.kind == "overflow" else ""),
        )
    _whole(model, "single")


def _damage(step: StepSeen, limits: Limits) -> list[tuple[Figure, Severity]]:
    """The results that have lost half of the dtype's digits, and the gradients of which half is error.

    A gradient is a direction, which an error of half its size turns by 30 degrees at most; and where no operation
    explodes, an error is what the model's own depth and the size of its logits make of the dtype's rounding.
    """
    whole, gradients = _figures(step)
    found = []
    for each in whole:
        spread = each.origin is None
        limit = _HALF if spread and each.what == _GRADIENTS else math.sqrt(limits.eps)
        if each.error > limit:
            found.append((each, Severity.WARNING if spread and each.error < _HALF else Severity.ERROR))
    found += [(each, Severity.WARNING) for each in gradients if each.error >= _HALF]
    return [(each, severity) for each, severity in found if not each.noise and not each.not_finite]


_HOW = {
    "cancellation": "amplifies the error of its inputs",
    "rounding": "rounds what it computes",
    "underflow": "turns numbers to zero",
    "growth": "makes it grow",
}


def _exploded(event: Event) -> str:
    if event.kind in ("overflow", "infinity", "nan", "everywhere"):
        return f"{_finite_story(event)}, of which later finite numbers are made"
    error, growth = event.error or 0.0, event.growth or 0.0
    return (
        f"{event.op} in the {event.stage} {_HOW.get(event.kind, 'makes it grow')}: relative error "
        f"{event.inputs_error:.2g} before it, {error:.2g} after it, "
        f"{growth:.2g} times what came in and {event.dtype} allow"
    )


def precision_error_explodes(model: Precision) -> Iterator[Finding]:
    """Outputs, loss and gradients keep half of the dtype's digits: their relative error is below sqrt(eps)."""
    limits = model.limits.need("the limits of the dtype")
    step = _whole(model, "wanted")
    by_event: dict[Event | None, list[tuple[Figure, Severity]]] = {}
    for figure, severity in _damage(step, limits):
        if _underflowed(figure) and limits.smallest > _WIDE_RANGE:
            continue  # told by precision-gradient-lost
        by_event.setdefault(figure.origin, []).append((figure, severity))
    for event, damaged in list(by_event.items())[:_MOST]:
        figures = [figure for figure, _ in damaged]
        worst = max(figures, key=lambda figure: figure.error)
        are, their = ("is", "its") if len(figures) == 1 else ("are", "their")
        off = f"{_names(figures)} {are} off in {model.dtype} by up to {worst.error:.2g} times {their} size"
        blamed = event or worst.steepest
        spread = ", and no single operation causes it: the error grows step by step"
        story = f": {_exploded(event)}" if event else spread
        if event is None and blamed is not None:
            story += f", most at {blamed.op} in the {blamed.stage} ({blamed.growth or 0.0:.2g} times)"
        yield Finding(
            off + story,
            max(severity for _, severity in damaged),
            place(blamed.where, blamed.module) if blamed else "",
            {
                **({blamed.source: "the line"} if blamed and blamed.source else {}),
                f"{worst.error:.3g}": f"relative error of {worst.what}",
                f"{math.sqrt(limits.eps):.2g}": "half of the dtype's digits, sqrt(eps)",
            },
            "compute this operation, and what makes its inputs, in single precision"
            if blamed
            else "keep the parts that lose most in single precision, or use torch.autocast",
        )
    if step.unfollowed:
        first = step.unfollowed[0]
        more = f", nor can {len(step.unfollowed) - 1} more" if len(step.unfollowed) > 1 else ""
        raise Unknown(f"{first.op} cannot be run in a wider dtype{more}: {first.why}")


def _fell(figure: Figure) -> bool:
    """Whether zeros are the dtype's lack of small numbers, and not what another fault made of them."""
    return not figure.not_finite and not figure.noise and (figure.origin is None or _underflowed(figure))


def _underflowed(figure: Figure) -> bool:
    event = figure.origin
    return event is not None and event.kind == "underflow" and event.stage == "backward"


def precision_gradient_lost(model: Precision) -> Iterator[Finding]:
    """Gradients do not become zero because the dtype has no number that small.

    Those that fall first are the smallest: of numbers spread as a normal distribution is, the smallest part q makes an
    error of about q^1.5 of the whole, which at sqrt(eps) is far below half of the digits.
    """
    limits = model.limits.need("the limits of the dtype")
    skip_if(limits.smallest < _WIDE_RANGE, f"{model.dtype} has the range of single precision")
    step = _whole(model, "wanted")
    skip_if(step.backward != "ran", "nothing of the model is trained, so that there is no backward pass")
    whole, gradients = _figures(step)
    total = or_unknown(next((each for each in whole if each.what == _GRADIENTS), None), "no gradient was seen")
    hit = [each for each in gradients if each.lost > each.significant * math.sqrt(limits.eps) and _fell(each)]
    if not hit:
        return
    gone = [each for each in hit if each.lost == each.significant]
    event = next((each.origin for each in hit if _underflowed(each)), None)
    first = f"; the first to become zero are those of {event.op} in the {event.stage}" if event else ""
    least = f", whose largest is {event.largest:.2g}" if event and event.largest is not None else ""
    yield Finding(
        f"{total.lost} of {total.significant} elements of gradients that count are zero in {model.dtype} and not in "
        f"wide numbers ({_names(gone or hit)}{' wholly' if gone else ''}){first}{least}",
        Severity.ERROR if gone else Severity.WARNING,
        place(event.where, event.module) if event else "",
        {
            **({event.source: "the line"} if event and event.source else {}),
            f"{limits.smallest:.2g}": f"the smallest number of {model.dtype} with all its digits",
        },
        "scale the loss (torch.amp.GradScaler), keep the parameters in single precision under torch.autocast, or use "
        "bfloat16",
    )


def precision_autocast_holes(model: Precision) -> Iterator[Finding]:
    """Under autocast no product runs in single precision, no operation that needs it lacks it, no cast undoes one."""
    step = model.wanted.value
    skip_if(not model.autocast and step is not None and not step.holes, "autocast was not asked for")
    if step is None:
        step = _whole(model, "wanted")
    for hole in step.holes[:_MOST]:
        times = "once" if hole.count == 1 else f"{hole.count} times"
        if hole.kind == "product":
            why = "autocast is on and does not cover it" if hole.enabled else "autocast is turned off there"
            text = f"{hole.op} runs in single precision {times} in one step: {why}"
            fix = "call the plain function (no out=, nothing in place, no operator by its own name) under autocast"
        elif hole.kind == "narrow":
            text = (
                f"{hole.op} runs in {model.dtype} {times} in one step, while autocast runs the same function "
                "in single precision"
            )
            fix = "call the function that does not write in place"
        else:
            text = f"a tensor is cast to a narrow dtype and straight back {times} in one step"
            fix = "take one of the two casts away: digits are lost for nothing"
        yield Finding(
            text,
            Severity.WARNING if hole.enabled and hole.kind != "round trip" else Severity.NOTE,
            place(hole.where, hole.module),
            {hole.source or hole.op: "the line"},
            fix,
        )
    _whole(model, "wanted")


def precision_tf32(model: Precision) -> Iterator[Finding]:
    """Products in single precision have the digits of single precision."""
    rounding = model.rounding.need("torch's switches for single precision")
    wide = model.wide.need("the dtype of the comparison")
    step = _whole(model, "single")
    unknown_if(
        wide != "float64", f"the comparison runs in {wide}, because memory is short: take a smaller model or batch"
    )
    skip_if(not step.products, "the step has no product whose rounding could be measured")
    worst = max(step.products, key=lambda product: product.own_error)
    if worst.own_error <= _FEWER_DIGITS:
        return
    switches = {
        "torch.backends.cuda.matmul.allow_tf32": rounding.matmul,
        "torch.backends.cudnn.allow_tf32": rounding.cudnn,
        f"torch.get_float32_matmul_precision() is {rounding.precision}": rounding.precision != "highest",
    }
    on = [name for name, allowed in switches.items() if allowed]
    if not on:
        return
    yield Finding(
        f"{worst.op} in single precision is off by {worst.own_error:.2g}, as products with fewer digits (TF32) are",
        Severity.WARNING if model.dtype == "float32" else Severity.NOTE,
        place(worst.where, worst.module),
        dict.fromkeys(on, "torch.backends"),
        "where these digits matter, set torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32 to "
        'False and torch.set_float32_matmul_precision("highest")',
    )


def precision_not_repeatable(model: Precision) -> Iterator[Finding]:
    """Two steps in single precision with the same seeds and the same inputs give the same bits."""
    unsteady = model.unsteady.need("whether two steps agree")
    for each in unsteady[:_MOST]:
        yield note(
            f"{each.op} gives two results from the same inputs in single precision",
            place(each.where, each.module),
            {each.source or each.op: "the line"},
            "torch.use_deterministic_algorithms(True) names or replaces such operations",
        )
