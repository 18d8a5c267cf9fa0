"""Losses with their options, and what an optimizer does to lists of tensors, with gradients."""

# ruff: noqa: B905, B023 - Python 3.8 has no strict, and the lambdas are called in the loop

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.operators.along import softmax
from envkit.payload.smoke.operators.plain import Desk, Numbers, Row, dot, rows

_PAIRS: tuple[tuple[str, dict[str, Any], Callable[[float, float], float], Callable[[float, float], float]], ...] = (
    ("mse_loss", {}, lambda x, y: (x - y) ** 2, lambda x, y: 2 * (x - y)),
    ("l1_loss", {}, lambda x, y: abs(x - y), lambda x, y: float((x > y) - (x < y))),
    (
        "smooth_l1_loss",
        {"beta": 0.5},
        lambda x, y: (x - y) ** 2 if abs(x - y) < 0.5 else abs(x - y) - 0.25,
        lambda x, y: min(max(2 * (x - y), -1.0), 1.0),
    ),
    (
        "huber_loss",
        {"delta": 0.75},
        lambda x, y: (x - y) ** 2 / 2 if abs(x - y) < 0.75 else 0.75 * (abs(x - y) - 0.375),
        lambda x, y: min(max(x - y, -0.75), 0.75),
    ),
)


def _reduced(values: Numbers, how: str) -> list[float]:
    total = [math.fsum(values)]
    return list(values) if how == "none" else total if how == "sum" else [total[0] / len(values)]


def _distances(desk: Desk) -> None:
    count = 2053
    for dtype in desk.types("float32", full=("float32", "float64")):
        given, aim = desk.parts(count), desk.parts(count)
        target = desk.tensor(aim, (count,), dtype)
        for name, how, work, slope in _PAIRS:
            for reduction in ("none", "sum", "mean"):
                desk.at(f"{name}, {reduction}, {dtype}")
                leaf = desk.leaf(given, (count,), dtype)
                out = getattr(torch.nn.functional, name)(leaf, target, reduction=reduction, **how)
                desk.near(out, _reduced(list(map(work, given, aim)), reduction))
                out.sum().backward()
                by = count if reduction == "mean" else 1
                desk.near(leaf.grad, [value / by for value in map(slope, given, aim)])
        chances = [(value + 2.5) / 5 for value in given]
        share = [(value + 2) / 4 for value in aim]
        weight, strong = [abs(value) for value in desk.parts(count)], [value + 3 for value in desk.parts(count)]
        each = [-(y * math.log(x) + (1 - y) * math.log(1 - x)) * w for x, y, w in zip(chances, share, weight)]
        sown = desk.tensor(share, (count,), dtype)
        desk.at(f"binary_cross_entropy, {dtype}")
        got = torch.nn.functional.binary_cross_entropy(
            desk.tensor(chances, (count,), dtype), sown, desk.tensor(weight, (count,), dtype)
        )
        desk.near(got, [math.fsum(each) / count])
        desk.at(f"binary_cross_entropy_with_logits, {dtype}")
        leaf = desk.leaf(given, (count,), dtype)
        out = torch.nn.functional.binary_cross_entropy_with_logits(
            leaf, sown, pos_weight=desk.tensor(strong, (count,), dtype), reduction="none"
        )
        logged = [(math.log1p(math.exp(-x)), math.log1p(math.exp(x))) for x in given]
        desk.near(out, [p * y * low + (1 - y) * high for (low, high), y, p in zip(logged, share, strong)])
        out.sum().backward()
        odds = [1 / (1 + math.exp(-x)) for x in given]
        desk.near(leaf.grad, [(1 - y) * s - p * y * (1 - s) for s, y, p in zip(odds, share, strong)])
        desk.at(f"kl_div, {dtype}")
        got = torch.nn.functional.kl_div(desk.tensor(given, (count,), dtype), sown, reduction="sum")
        desk.near(got, [math.fsum(y * (math.log(y) - x) if y else 0.0 for x, y in zip(given, share))])
        desk.at(f"cosine_similarity, {dtype}")
        pairs = list(zip(rows(given[:2048], 16), rows(aim[:2048], 16)))
        want = [dot(a, b) / math.sqrt(dot(a, a) * dot(b, b)) for a, b in pairs]
        got = torch.nn.functional.cosine_similarity(
            desk.tensor(given[:2048], (128, 16), dtype), desk.tensor(aim[:2048], (128, 16), dtype)
        )
        desk.near(got, want)


def _entropies(desk: Desk) -> None:
    """Cross entropy with weights, smoothing, places that are ignored, and more axes; and its gradient."""
    count, kinds = 133, 1031 if desk.full else 331
    for dtype in desk.types("float32", full=("float32", "float64")):
        given = desk.parts(count * kinds, 4)
        target = [place if draw else -100 for place, draw in zip(desk.below(count, kinds), desk.below(count, 5))]
        weight = [abs(value) + 0.5 for value in desk.parts(kinds)]
        logs = [softmax(row, True) for row in rows(given, kinds)]
        aim = desk.tensor(target, (count,), "int64")
        for weighted in (False, True):
            for smooth in (0.0, 0.25):
                for reduction in ("mean", "sum", "none"):
                    desk.at(f"weights {weighted}, smoothing {smooth}, {reduction}, {dtype}")
                    strong = weight if weighted else [1.0] * kinds
                    losses, scale = [], 0.0
                    for log, place in zip(logs, target):
                        if place < 0:
                            losses.append(0.0)
                            continue
                        scale += strong[place]
                        spread = -dot(log, strong) / kinds if smooth else 0.0
                        losses.append(-(1 - smooth) * log[place] * strong[place] + smooth * spread)
                    want = (
                        losses if reduction == "none" else [math.fsum(losses) / (scale if reduction == "mean" else 1)]
                    )
                    leaf = desk.leaf(given, (count, kinds), dtype)
                    out = torch.nn.functional.cross_entropy(
                        leaf, aim, desk.tensor(weight, (kinds,), dtype) if weighted else None,
                        reduction=reduction, label_smoothing=smooth,
                    )  # fmt: skip
                    desk.near(out, want)
                    if weighted or smooth or reduction != "mean":
                        continue
                    out.backward()
                    back = [
                        0.0 if place < 0 else (math.exp(value) - (at == place)) / scale
                        for log, place in zip(logs, target) for at, value in enumerate(log)
                    ]  # fmt: skip
                    desk.near(leaf.grad, back, (count, kinds))
        desk.at(f"of pictures, {dtype}")
        shape = (3, 5, 7, 4)
        picture, labels = desk.parts(math.prod(shape)), desk.below(84, 5)
        labels[11] = 255
        each = []
        for at, label in enumerate(labels):
            image, place = divmod(at, 28)
            line = [picture[(image * 5 + kind) * 28 + place] for kind in range(5)]
            each.append(0.0 if label == 255 else -softmax(line, True)[label])
        got = torch.nn.functional.cross_entropy(
            desk.tensor(picture, shape, dtype), desk.tensor(labels, (3, 7, 4), "int64"), ignore_index=255
        )
        desk.near(got, [math.fsum(each) / 83])


def _lists(desk: Desk) -> None:
    """What optimizers and the clipping of gradients call for a list of tensors at once, however many there are."""
    sizes = [(37,), (5, 7), (1,), (2053,), (0,), (3, 2, 4)] * (20 if desk.full else 12)
    for dtype in desk.types("float32", full=("float32", "float64", "bfloat16")):
        one, other = ([desk.whole(math.prod(size), 5) for size in sizes] for _ in range(2))

        def made(values: list[list[int]], dtype: str = dtype) -> list[Any]:
            return [desk.tensor(each, size, dtype) for each, size in zip(values, sizes)]

        left, right = made(one), made(other)
        halves = [each.new_full(each.shape, 2.0) for each in left]
        calls: tuple[tuple[str, Any, Callable[[int, int], float]], ...] = (
            ("add", torch._foreach_add(left, right), lambda a, b: a + b),
            ("add of alpha", torch._foreach_add(left, right, alpha=2), lambda a, b: a + 2 * b),
            ("sub", torch._foreach_sub(left, right), lambda a, b: a - b),
            ("mul", torch._foreach_mul(left, right), lambda a, b: a * b),
            ("mul by a number", torch._foreach_mul(left, 3.0), lambda a, b: 3 * a),
            ("div", torch._foreach_div(left, halves), lambda a, b: a / 2),
            ("neg", torch._foreach_neg(left), lambda a, b: -a),
            ("abs", torch._foreach_abs(left), lambda a, b: abs(a)),
            ("maximum", torch._foreach_maximum(left, right), max),
            ("addcmul", torch._foreach_addcmul(left, right, halves, 2.0), lambda a, b: a + 4 * b),
            ("addcdiv", torch._foreach_addcdiv(left, right, halves, 2.0), lambda a, b: a + b),
            ("lerp", torch._foreach_lerp(left, right, 0.5), lambda a, b: (a + b) / 2),
        )
        for name, got, want in calls:
            desk.at(f"{name}, {dtype}")
            desk.count(int(len(got) != len(sizes)))
            desk.same(
                torch.cat([each.reshape(-1) for each in got]), [want(*p) for x, y in zip(one, other) for p in zip(x, y)]
            )
        own: tuple[tuple[str, Callable[[list[Any]], Any], Callable[[int, int], float]], ...] = (
            ("add_", lambda t: torch._foreach_add_(t, right), lambda a, b: a + b),
            ("add_ of alpha", lambda t: torch._foreach_add_(t, right, alpha=-2), lambda a, b: a - 2 * b),
            ("mul_", lambda t: torch._foreach_mul_(t, 3.0), lambda a, b: 3 * a),
            ("mul_ of tensors", lambda t: torch._foreach_mul_(t, right), lambda a, b: a * b),
            ("div_", lambda t: torch._foreach_div_(t, 2.0), lambda a, b: a / 2),
            ("sub_", lambda t: torch._foreach_sub_(t, right), lambda a, b: a - b),
            ("addcmul_", lambda t: torch._foreach_addcmul_(t, right, halves, 1.5), lambda a, b: a + 3 * b),
            ("addcdiv_", lambda t: torch._foreach_addcdiv_(t, right, halves, -2.0), lambda a, b: a - b),
            ("lerp_", lambda t: torch._foreach_lerp_(t, right, 0.5), lambda a, b: (a + b) / 2),
            ("neg_", torch._foreach_neg_, lambda a, b: -a),
            ("zero_", torch._foreach_zero_, lambda a, b: 0),
            ("copy_", lambda t: torch._foreach_copy_(t, right), lambda a, b: b),
        )
        for name, work, want in own:
            desk.at(f"{name}, {dtype}")
            given = made(one)
            work(given)
            flat = torch.cat([each.reshape(-1) for each in given])
            desk.same(flat, [want(*p) for x, y in zip(one, other) for p in zip(x, y)])
        desk.at(f"sqrt and norm, {dtype}")
        squares = torch._foreach_mul(left, left)
        desk.near(
            torch.cat([each.reshape(-1) for each in torch._foreach_sqrt(squares)]), [abs(a) for x in one for a in x]
        )
        kept = [(each, values) for each, values in zip(left, one) if values]
        norms = torch._foreach_norm([each for each, _ in kept])
        desk.near(torch.stack(norms), [math.sqrt(dot(values, values)) for _, values in kept])


def _optimizers(desk: Desk) -> None:
    """Two steps of each optimizer in each of its implementations, over more tensors than one launch takes."""
    sizes = [7, 2053, 33, 1] * 40 if desk.full else [7, 2053, 33, 1] * 8
    start, slopes = [desk.parts(size) for size in sizes], [[desk.parts(size) for size in sizes] for _ in range(2)]
    rate, fade = 0.125, 0.0625
    ways: list[dict[str, Any]] = [{"foreach": False}, {"foreach": True}, {"fused": True}]
    kinds = {
        "SGD": ({"momentum": 0.5, "nesterov": True}, _sgd),
        "Adam": ({"eps": 0.25}, _adam),
        "AdamW": ({"eps": 0.25}, _adamw),
    }
    for name, (how, step) in kinds.items():
        wanted = [step(values, [each[at] for each in slopes], rate, fade) for at, values in enumerate(start)]
        for way in ways:
            desk.at(f"{name}, {next(iter(way))} {next(iter(way.values()))}")
            leaves = [desk.leaf(values, (size,)) for values, size in zip(start, sizes)]
            optimizer = getattr(torch.optim, name)(leaves, lr=rate, weight_decay=fade, **how, **way)
            for each in slopes:
                for leaf, slope in zip(leaves, each):
                    leaf.grad = desk.tensor(slope, tuple(leaf.shape))
                optimizer.step()
            desk.near(torch.cat([leaf.detach() for leaf in leaves]), [value for each in wanted for value in each])
    desk.at("clip_grad_norm_")
    for leaf, slope in zip(leaves, slopes[0]):
        leaf.grad = desk.tensor(slope, tuple(leaf.shape))
    norm = torch.nn.utils.clip_grad_norm_(leaves, 1.0)
    whole = math.sqrt(math.fsum(value * value for slope in slopes[0] for value in slope))
    desk.near(norm, [whole])
    want = [value / (whole + 1e-6) for slope in slopes[0] for value in slope]
    desk.near(torch.cat([leaf.grad for leaf in leaves]), want)


def _sgd(values: list[float], slopes: list[list[float]], rate: float, fade: float) -> list[float]:
    now, speed = list(values), [0.0] * len(values)
    for number, slope in enumerate(slopes):
        pull = [one + fade * value for one, value in zip(slope, now)]
        speed = [one if not number else 0.5 * old + one for old, one in zip(speed, pull)]
        now = [value - rate * (one + 0.5 * fast) for value, one, fast in zip(now, pull, speed)]
    return now


def _adam(values: list[float], slopes: list[list[float]], rate: float, fade: float, apart: bool = False) -> list[float]:
    now, mean, square = list(values), [0.0] * len(values), [0.0] * len(values)
    for number, slope in enumerate(slopes, 1):
        if apart:
            now = [value * (1 - rate * fade) for value in now]
        pull = slope if apart else [one + fade * value for one, value in zip(slope, now)]
        mean = [0.9 * old + 0.1 * one for old, one in zip(mean, pull)]
        square = [0.999 * old + 0.001 * one * one for old, one in zip(square, pull)]
        now = [
            value - rate * (m / (1 - 0.9**number)) / (math.sqrt(s / (1 - 0.999**number)) + 0.25)
            for value, m, s in zip(now, mean, square)
        ]
    return now


def _adamw(values: list[float], slopes: list[list[float]], rate: float, fade: float) -> list[float]:
    return _adam(values, slopes, rate, fade, apart=True)


ROWS: dict[str, Row] = {
    "loss.distances": _distances,
    "loss.entropies": _entropies,
    "step.lists": _lists,
    "step.optimizers": _optimizers,
}
