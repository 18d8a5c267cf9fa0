"""Functions of each element, in every form and layout, with special numbers, and their gradients."""

# ruff: noqa: B905, B023 - Python 3.8 has no strict, and the lambdas are called in the loop

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.plain import HALVES, Desk, Row

_COUNT = 2311  # elements: more than one block of a GPU, and no multiple of a vector
_CORNERS = (0.0, 1.0, 3.0)  # where some activations have no derivative
_NAN, _INF = math.nan, math.inf
_ROOT, _CUBE = math.sqrt(2 / math.pi), 0.044715


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _plus(x: float) -> float:
    return math.log1p(math.exp(x))


def _mod(x: float, y: float) -> float:
    return x - y * math.floor(x / y)


# Each: its name in torch, the same in Python, and whether the result is exact.  Arguments are 64ths from -2 to 2.
ONE: tuple[tuple[str, Callable[[float], Any], bool], ...] = (
    ("neg", operator.neg, True),
    ("abs", abs, True),
    ("sign", lambda x: (x > 0) - (x < 0), True),
    ("floor", math.floor, True),
    ("ceil", math.ceil, True),
    ("trunc", math.trunc, True),
    ("round", round, True),
    ("frac", lambda x: math.fmod(x, 1.0), True),
    ("relu", lambda x: max(x, 0.0), True),
    ("square", lambda x: x * x, False),
    ("exp", math.exp, False),
    ("exp2", lambda x: 2.0**x, False),
    ("expm1", math.expm1, False),
    ("sin", math.sin, False),
    ("cos", math.cos, False),
    ("tan", math.tan, False),
    ("atan", math.atan, False),
    ("sinh", math.sinh, False),
    ("cosh", math.cosh, False),
    ("tanh", math.tanh, False),
    ("erf", math.erf, False),
    ("erfc", math.erfc, False),
    ("sigmoid", _sigmoid, False),
)
# Of arguments from 1/64 to 4.
ABOVE: tuple[tuple[str, Callable[[float], float], bool], ...] = (
    ("log", math.log, False),
    ("log2", math.log2, False),
    ("log10", math.log10, False),
    ("log1p", math.log1p, False),
    ("sqrt", math.sqrt, False),
    ("rsqrt", lambda x: 1 / math.sqrt(x), False),
    ("reciprocal", lambda x: 1 / x, False),
    ("lgamma", math.lgamma, False),
)
TWO: tuple[tuple[str, Callable[[float, float], Any], bool], ...] = (
    ("add", operator.add, False),
    ("sub", operator.sub, False),
    ("mul", operator.mul, False),
    ("maximum", max, True),
    ("minimum", min, True),
    ("copysign", math.copysign, True),
    ("hypot", math.hypot, False),
    ("atan2", math.atan2, False),
    ("eq", operator.eq, True),
    ("ne", operator.ne, True),
    ("lt", operator.lt, True),
    ("le", operator.le, True),
    ("gt", operator.gt, True),
    ("ge", operator.ge, True),
)
# The second argument is from 1/64 to 4.
DIVIDED: tuple[tuple[str, Callable[[float, float], Any], bool], ...] = (
    ("div", operator.truediv, False),
    ("fmod", math.fmod, True),
    ("remainder", _mod, True),
    ("floor_divide", operator.floordiv, True),
)
WHOLE: tuple[tuple[str, Callable[[int, int], int]], ...] = (
    ("add", operator.add),
    ("sub", operator.sub),
    ("mul", operator.mul),
    ("bitwise_and", operator.and_),
    ("bitwise_or", operator.or_),
    ("bitwise_xor", operator.xor),
    ("maximum", max),
    ("minimum", min),
    ("floor_divide", operator.floordiv),
    ("remainder", operator.mod),
    ("fmod", lambda x, y: int(math.fmod(x, y))),
    ("eq", operator.eq),
    ("lt", operator.lt),
    ("ge", operator.ge),
)
# Of torch.nn.functional: the function, the same in Python, and its derivative.
ACTIVATIONS: tuple[tuple[str, dict[str, Any], Callable[[float], float], Callable[[float], float]], ...] = (
    ("relu", {}, lambda x: max(x, 0.0), lambda x: float(x > 0)),
    ("relu6", {}, lambda x: min(max(x, 0.0), 6.0), lambda x: float(0 < x < 6)),
    ("leaky_relu", {"negative_slope": 0.25}, lambda x: x if x > 0 else x / 4, lambda x: 1.0 if x > 0 else 0.25),
    ("hardtanh", {}, lambda x: min(max(x, -1.0), 1.0), lambda x: float(-1 < x < 1)),
    ("elu", {}, lambda x: x if x > 0 else math.expm1(x), lambda x: 1.0 if x > 0 else math.exp(x)),
    ("softplus", {}, _plus, _sigmoid),
    ("silu", {}, lambda x: x * _sigmoid(x), lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x)))),
    (
        "gelu",
        {},
        lambda x: x / 2 * math.erfc(-x / math.sqrt(2)),
        lambda x: math.erfc(-x / math.sqrt(2)) / 2 + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    ),
    (
        "gelu",
        {"approximate": "tanh"},
        lambda x: x / 2 * (1 + math.tanh(_ROOT * (x + _CUBE * x**3))),
        lambda x: (
            (1 + math.tanh(_ROOT * (x + _CUBE * x**3))) / 2
            + x / 2 * (1 - math.tanh(_ROOT * (x + _CUBE * x**3)) ** 2) * _ROOT * (1 + 3 * _CUBE * x * x)
        ),
    ),
    (
        "mish",
        {},
        lambda x: x * math.tanh(_plus(x)),
        lambda x: math.tanh(_plus(x)) + x * (1 - math.tanh(_plus(x)) ** 2) * _sigmoid(x),
    ),
    (
        "hardswish",
        {},
        lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
        lambda x: 0.0 if x <= -3 else 1.0 if x >= 3 else (2 * x + 3) / 6,
    ),
    ("hardsigmoid", {}, lambda x: min(max(x + 3, 0.0), 6.0) / 6, lambda x: 1 / 6 if -3 < x < 3 else 0.0),
    ("logsigmoid", {}, lambda x: -_plus(-x), lambda x: _sigmoid(-x)),
    ("softsign", {}, lambda x: x / (1 + abs(x)), lambda x: 1 / (1 + abs(x)) ** 2),
    ("tanh", {}, math.tanh, lambda x: 1 - math.tanh(x) ** 2),
    ("sigmoid", {}, _sigmoid, lambda x: _sigmoid(x) * (1 - _sigmoid(x))),
)


def _compare(desk: Desk, got: Any, want: list[Any], exact: bool, shape: tuple[int, ...] | None = None) -> None:
    """Of exact results nothing may be lost; others are near.  Truth is told as a number."""
    if exact or not got.dtype.is_floating_point:
        desk.same(got, [float(value) if got.dtype.is_floating_point else int(value) for value in want], shape)
    else:
        desk.near(got, want, shape)


def _in_forms(desk: Desk, name: str, given: list[Any], want: list[Any], exact: bool, dtype: str) -> None:
    """``torch.name(...)``, with out=, and in place."""
    function = getattr(torch, name)
    desk.at(f"{name}, {dtype}")
    got = function(*given)
    _compare(desk, got, want, exact)
    desk.at(f"{name}, out=, {dtype}")
    out = torch.empty_like(got)
    out.fill_(1)
    if name != "relu":
        function(*given, out=out)
        _compare(desk, out, want, exact)
    own = getattr(given[0], name + "_", None)
    if own is not None and got.dtype == given[0].dtype:
        desk.at(f"{name}_, {dtype}")
        kept = given[0].clone()
        getattr(kept, name + "_")(*given[1:])
        _compare(desk, kept, want, exact)


def _forms(desk: Desk) -> None:
    for dtype in desk.types("float32", "bfloat16"):
        any_, above = desk.parts(_COUNT), [value + 2 + 1 / 64 for value in desk.parts(_COUNT)]
        other = desk.parts(_COUNT)
        if dtype in HALVES:  # sums and differences of 8 bits
            any_, above, other = any_[:600], above[:600], other[:600]
        if dtype == "bfloat16":
            above = [math.floor(value * 16) / 16 + 1 / 64 for value in above]
            above = [value if value * 64 < 128 else math.floor(value) for value in above]
        shape = (len(any_),)
        one, over, two = (desk.tensor(values, shape, dtype) for values in (any_, above, other))
        for name, work, exact in ONE:
            _in_forms(desk, name, [one], list(map(work, any_)), exact, dtype)
        for name, work, exact in ABOVE:
            _in_forms(desk, name, [over], list(map(work, above)), exact, dtype)
        for name, pair, exact in TWO:
            _in_forms(desk, name, [one, two], list(map(pair, any_, other)), exact, dtype)
        for name, pair, exact in DIVIDED:
            if dtype in HALVES and exact:  # a quotient that is rounded to an integer
                continue
            _in_forms(desk, name, [one, over], list(map(pair, any_, above)), exact, dtype)
        desk.at(f"pow, {dtype}")
        desk.near(over**two, [a**b for a, b in zip(above, other)])
        desk.near(torch.pow(one, 3), [a**3 for a in any_])
        desk.near(torch.pow(2.0, one), [2.0**a for a in any_])


def _integers(desk: Desk) -> None:
    count = 1031
    for dtype in ("int32", "int64", "uint8", "int16") if desk.full else ("int64", "int32"):
        low = 0 if dtype == "uint8" else -9
        one = [low + value for value in desk.below(count, 15 - low)]
        other = [low + value for value in desk.below(count, 15 - low)]
        over = [value + 1 for value in desk.below(count, 7)]
        for name, work in WHOLE:
            second = over if name in ("floor_divide", "remainder", "fmod") else other
            want = [int(value) for value in map(work, one, second)]
            if dtype == "uint8":
                want = [value & 255 for value in want]
            given = [desk.tensor(values, (count,), dtype) for values in (one, second)]
            _in_forms(desk, name, given, want, True, dtype)
        desk.at(f"shifts and not, {dtype}")
        positive = [abs(value) for value in one]
        given = desk.tensor(positive, (count,), dtype)
        desk.same(given << 2, [value << 2 for value in positive])
        desk.same(given >> 1, [value >> 1 for value in positive])
        if dtype != "uint8":
            desk.same(~given, [~value for value in positive])
        desk.at(f"more than 32 bits, {dtype}")
        if dtype == "int64":
            wide = [value * 3**29 for value in one]
            desk.same(desk.tensor(wide, (count,), dtype) + 2**40 + 1, [value + 2**40 + 1 for value in wide])
            desk.same(desk.tensor(wide, (count,), dtype) * 5, [value * 5 for value in wide])


def _layouts(desk: Desk) -> None:
    """Two operands of every pair of layouts, broadcasting, mixed types, numbers, no axis and nothing at all."""
    kinds = ("plain", "turned", "spaced", "shifted")
    shape = (33, 5, 13)
    for dtype in desk.types("float32"):
        one, other = desk.whole(2145, 5), desk.whole(2145, 5)
        ones = {kind: desk.tensor(one, shape, dtype, kind) for kind in kinds}
        others = {kind: desk.tensor(other, shape, dtype, kind) for kind in kinds}
        total, product = [a + b for a, b in zip(one, other)], [a * b for a, b in zip(one, other)]
        for left, right in itertools.product(kinds, kinds):
            desk.at(f"{dtype}, {left} with {right}")
            desk.same(ones[left] + others[right], total, shape)
            desk.same(ones[left] * others[right], product, shape)
            desk.same(ones[left] - others[right], [a - b for a, b in zip(one, other)], shape)
            desk.same(ones[left] > others[right], [int(a > b) for a, b in zip(one, other)], shape)
            desk.same(
                torch.where(ones[left] > 0, ones[left], others[right]), [a if a > 0 else b for a, b in zip(one, other)]
            )
            into = desk.tensor([0] * 2145, shape, dtype, right)
            desk.same(
                torch.add(ones[left], others["plain"], alpha=3, out=into), [a + 3 * b for a, b in zip(one, other)]
            )
            into.mul_(ones[left])
            desk.same(into, [(a + 3 * b) * a for a, b in zip(one, other)])
        for kind in kinds:
            desk.at(f"{dtype}, {kind}")
            desk.same(-ones[kind], [-a for a in one], shape)
            desk.same(ones[kind].relu(), [max(a, 0) for a in one], shape)
            desk.same(ones[kind].clamp(-4, 5), [min(max(a, -4), 5) for a in one], shape)
            desk.near(ones[kind].exp(), [math.exp(a) for a in one], shape)
        desk.at(f"{dtype}, broadcast")
        column, row = desk.whole(67, 9), desk.whole(71, 9)
        got = desk.tensor(column, (67, 1), dtype) * desk.tensor(row, (71,), dtype)
        desk.same(got, [a * b for a in column for b in row], (67, 71))
        got = desk.tensor(column, (67, 1), dtype) + desk.tensor(row, (71,), dtype)
        desk.same(got, [a + b for a in column for b in row], (67, 71))
        desk.at(f"{dtype}, of one number")
        desk.same(desk.tensor([5], (), dtype) * desk.tensor([-3], (), dtype), [-15], ())
        desk.same(ones["plain"] * 2 + 1, [2 * a + 1 for a in one], shape)
        desk.same(1 - ones["turned"], [1 - a for a in one], shape)
        desk.same(ones["plain"] / 2, [a / 2 for a in one], shape)
        desk.same(ones["plain"] + desk.tensor(other, shape, "int32"), total, shape)
        desk.at(f"{dtype}, of nothing")
        desk.same(desk.tensor([], (0, 3), dtype) + 1, [], (0, 3))


def _many(desk: Desk) -> None:
    """More elements than a grid of blocks has threads, of a pattern whose results repeat with it."""
    period, times = 1009, 600 if desk.full else 130
    one, other = desk.whole(period, 9), desk.whole(period, 9)
    for dtype in desk.types("float32", full=("float32", "bfloat16", "int32")):
        left = desk.tensor(one, (1, period), dtype).expand(times, period).reshape(-1)
        right = desk.tensor(other, (1, period), dtype).expand(times, period).reshape(-1)
        for name, got, want in (
            ("add", left + right, [a + b for a, b in zip(one, other)]),
            ("mul", left * right, [a * b for a, b in zip(one, other)]),
            ("relu", left.relu(), [max(a, 0) for a in one]),
            ("where", torch.where(left > right, left, right), list(map(max, one, other))),
            ("add_", left.clone().add_(right, alpha=2), [a + 2 * b for a, b in zip(one, other)]),
            ("clamp", left.clamp(-3, 3), [min(max(a, -3), 3) for a in one]),
        ):
            desk.at(f"{name}, {dtype}, {period * times} elements")
            desk.same(got, want * times)


def _specials(desk: Desk) -> None:
    """NaN and infinity come through, and what lies below the normal numbers is kept."""
    given = [_NAN, _INF, -_INF, 0.0, -0.0, 1.0, -1.0, 3.5] * 5
    for dtype in desk.types("float32"):
        one = desk.tensor(given, (40,), dtype)
        turned = desk.tensor(given, (8, 5), dtype, "turned")
        tiny = {"float32": 2.0**-140, "float64": 2.0**-1050, "float16": 2.0**-22, "bfloat16": 2.0**-130}[dtype]

        def keep(work: Callable[[float], float]) -> list[float]:
            return [value if value != value else work(value) for value in given]

        functional = torch.nn.functional
        for name, call, want in (
            ("relu", torch.relu, keep(lambda x: max(x, 0.0))),
            ("relu_", lambda x: x.clone().relu_(), keep(lambda x: max(x, 0.0))),
            ("clamp", lambda x: x.clamp(-1, 2), keep(lambda x: min(max(x, -1.0), 2.0))),
            ("clamp of one bound", lambda x: x.clamp(min=0.5), keep(lambda x: max(x, 0.5))),
            ("clamp_max", lambda x: x.clamp_max(0.5), keep(lambda x: min(x, 0.5))),
            ("hardtanh", functional.hardtanh, keep(lambda x: min(max(x, -1.0), 1.0))),
            ("leaky_relu", lambda x: functional.leaky_relu(x, 0.5), keep(lambda x: x if x > 0 else x / 2)),
            ("add", lambda x: x + 1, keep(lambda x: x + 1)),
            ("mul", lambda x: x * 2, keep(lambda x: x * 2)),
            ("mul by zero", lambda x: x * 0, [_NAN if not math.isfinite(value) else 0.0 for value in given]),
            ("sub of itself", lambda x: x - x, [_NAN if not math.isfinite(value) else 0.0 for value in given]),
            ("maximum", lambda x: torch.maximum(x, one.new_zeros(()) + 0.5), keep(lambda x: max(x, 0.5))),
            ("minimum", lambda x: torch.minimum(x, one.new_zeros(()) + 0.5), keep(lambda x: min(x, 0.5))),
            ("where", lambda x: torch.where(x == x, x, 7.0), [7.0 if x != x else x for x in given]),
            ("sqrt", torch.sqrt, [_NAN if x != x or x < 0 else math.sqrt(x) for x in given]),
            ("isnan", torch.isnan, [int(x != x) for x in given]),
            ("isinf", torch.isinf, [int(math.isinf(x)) for x in given]),
            ("isfinite", torch.isfinite, [int(math.isfinite(x)) for x in given]),
            (
                "nan_to_num",
                lambda x: x.nan_to_num(5.0, 6.0, -6.0),
                [{_INF: 6.0, -_INF: -6.0}.get(x, 5.0 if x != x else x) for x in given],
            ),
            ("eq", lambda x: x == x, [int(x == x) for x in given]),
            ("ne", lambda x: x != x, [int(x != x) for x in given]),
            ("exp", torch.exp, None),
            ("tanh", torch.tanh, keep(lambda x: math.tanh(x))),
            ("sigmoid", torch.sigmoid, keep(lambda x: 0.0 if x == -_INF else _sigmoid(x))),
            ("gelu", functional.gelu, None),
            ("silu", functional.silu, None),
            ("erf", torch.erf, keep(math.erf)),
            ("abs", torch.abs, keep(abs)),
            (
                "atan2",
                lambda x: torch.atan2(x, x * 0 + 1),
                [_NAN if not math.isfinite(x) else math.atan(x) for x in given],
            ),
        ):
            desk.at(f"{name}, {dtype}")
            for tensor in (one, turned):
                got = call(tensor)
                if want is None:  # where it is NaN, it stays so
                    values = desk.values(got, None) or []
                    lost = sum(x != x and y == y for x, y in zip(given, values))
                    desk.count(lost + (len(values) != len(given)), len(given))
                elif name in ("tanh", "sigmoid", "erf", "atan2", "sqrt"):
                    desk.near(got, want)
                else:
                    desk.same(got, want)
        desk.at(f"numbers below the normal ones, {dtype}")
        low = desk.tensor([tiny, -tiny, 3 * tiny, tiny * 4], (4,), dtype)
        desk.same(low * 2, [2 * tiny, -2 * tiny, 6 * tiny, 8 * tiny])
        desk.same(low + low, [2 * tiny, -2 * tiny, 6 * tiny, 8 * tiny])
        desk.same(low / 2, [tiny / 2, -tiny / 2, 1.5 * tiny, 2 * tiny])
        desk.same(low.abs(), [tiny, tiny, 3 * tiny, 4 * tiny])
        desk.same(low.relu(), [tiny, 0, 3 * tiny, 4 * tiny])
        desk.same(low.clone(), [tiny, -tiny, 3 * tiny, 4 * tiny])
        desk.same(low.sum(), [7 * tiny])
        desk.at(f"beyond the largest, {dtype}")
        most = float(torch.finfo(one.dtype).max)
        desk.same(desk.tensor([most, -most], (2,), dtype) * 2, [_INF, -_INF])


def _activations(desk: Desk) -> None:
    for dtype in desk.types("float32", "bfloat16"):
        values = desk.parts(_COUNT, 4)
        for name, how, work, slope in ACTIVATIONS:
            if name in ("hardsigmoid", "hardswish") and dtype == "float64":  # a sixth is kept in fp32
                continue
            desk.at(f"{name}, {dtype}")
            leaf = desk.leaf(values, (_COUNT,), dtype)
            out = getattr(torch.nn.functional, name)(leaf, **how)
            desk.near(out, list(map(work, values)), (_COUNT,))
            seed = desk.whole(_COUNT, 2)
            (out * desk.tensor(seed, (_COUNT,), dtype)).sum().backward()
            want = [0.0 if abs(value) in _CORNERS else slope(value) * by for value, by in zip(values, seed)]
            got = leaf.grad * desk.tensor([float(abs(value) not in _CORNERS) for value in values], (_COUNT,), dtype)
            desk.at(f"{name}, its gradient, {dtype}")
            desk.near(got, want, (_COUNT,))


def _combined(desk: Desk) -> None:
    count = 2053
    for dtype in desk.types("float32"):
        one, two, three = desk.whole(count, 5), desk.whole(count, 5), desk.whole(count, 5)
        a, b, c = (desk.tensor(values, (count,), dtype) for values in (one, two, three))
        chosen = [value > 0 for value in desk.whole(count)]
        mask = desk.tensor(chosen, (count,), "bool")
        into = desk.empty((count,), dtype)
        for name, got, want in (
            ("addcmul", torch.addcmul(a, b, c, value=2), [x + 2 * y * z for x, y, z in zip(one, two, three)]),
            ("addcmul_", a.clone().addcmul_(b, c, value=2), [x + 2 * y * z for x, y, z in zip(one, two, three)]),
            ("addcdiv", torch.addcdiv(a, b, c * 0 + 4), [x + y / 4 for x, y in zip(one, two)]),
            ("addcdiv_", a.clone().addcdiv_(b, c * 0 + 2, value=-1), [x - y / 2 for x, y in zip(one, two)]),
            ("lerp", torch.lerp(a, b, 0.5), [(x + y) / 2 for x, y in zip(one, two)]),
            ("lerp_", a.clone().lerp_(b, 0.25), [x + (y - x) / 4 for x, y in zip(one, two)]),
            ("where", torch.where(mask, a, b), [x if m else y for x, y, m in zip(one, two, chosen)]),
            ("where, out=", torch.where(mask, a, b, out=into), [x if m else y for x, y, m in zip(one, two, chosen)]),
            ("where of a number", torch.where(mask, a, 7.0), [x if m else 7 for x, m in zip(one, chosen)]),
            ("masked_fill", a.masked_fill(mask, -3), [-3 if m else x for x, m in zip(one, chosen)]),
            ("masked_fill_", a.clone().masked_fill_(mask, -3), [-3 if m else x for x, m in zip(one, chosen)]),
            ("add of alpha", torch.add(a, b, alpha=-3), [x - 3 * y for x, y in zip(one, two)]),
            ("add_ of alpha", a.clone().add_(b, alpha=-3), [x - 3 * y for x, y in zip(one, two)]),
            ("sub of alpha", torch.sub(a, b, alpha=2), [x - 2 * y for x, y in zip(one, two)]),
            (
                "clamp of tensors",
                torch.clamp(a, -abs(b), abs(c)),
                [min(max(x, -abs(y)), abs(z)) for x, y, z in zip(one, two, three)],
            ),
            ("clamp_", a.clone().clamp_(-2, 3), [min(max(x, -2), 3) for x in one]),
            ("logical_and", torch.logical_and(a, b), [int(bool(x) and bool(y)) for x, y in zip(one, two)]),
            ("logical_or", torch.logical_or(a, b), [int(bool(x) or bool(y)) for x, y in zip(one, two)]),
            ("logical_xor", torch.logical_xor(a, b), [int(bool(x) != bool(y)) for x, y in zip(one, two)]),
            ("logical_not", torch.logical_not(a), [int(not x) for x in one]),
            ("threshold", torch.nn.functional.threshold(a, 1.0, -2.0), [x if x > 1 else -2 for x in one]),
            ("div, floor", torch.div(a, c * 0 + 2, rounding_mode="floor"), [x // 2 for x in one]),
            ("div, trunc", torch.div(a, c * 0 + 2, rounding_mode="trunc"), [int(x / 2) for x in one]),
            ("glu", torch.nn.functional.glu(torch.stack([a, b * 0], 1)).squeeze(1), [x / 2 for x in one]),
            ("heaviside", torch.heaviside(a, b), [float(x > 0) if x else y for x, y in zip(one, two)]),
        ):
            desk.at(f"{name}, {dtype}")
            desk.same(got, want, (count,))


ROWS: dict[str, Row] = {
    "pointwise.forms": _forms,
    "pointwise.integers": _integers,
    "pointwise.layouts": _layouts,
    "pointwise.many": _many,
    "pointwise.specials": _specials,
    "pointwise.combined": _combined,
    "pointwise.activations": _activations,
}
