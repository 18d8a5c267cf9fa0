"""Embeddings, their losses and their sampling, forward and backward: sums of integers exact, the rest against fp64."""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded
from envkit.payload.smoke.libraries._compare import all_close, gradients, stale

_WORDS, _WIDTH = 211, 96
_BAG, _BAGS = 8, 300  # a mean over eight integers is exact
_PADDING = 5
_IGNORED = -100


def _lookups(bench: Bench, random: Any) -> None:
    functional = torch.nn.functional
    table = torch.randint(-9, 10, (_WORDS, _WIDTH), generator=random) * _BAG
    chosen = torch.randint(0, 40, (_BAGS, _BAG), generator=random)  # few words, so that each is met many times
    seed = torch.randint(-9, 10, (_BAGS, _BAG, _WIDTH), generator=random)
    weight = torch.randint(-3, 4, (_BAGS, _BAG), generator=random)
    met = chosen.reshape(-1)

    def spread(gradient: Any) -> Any:
        return torch.zeros(_WORDS, _WIDTH, dtype=torch.int64).index_add(0, met, gradient.reshape(-1, _WIDTH))

    index = chosen.to(bench.device)

    def leaf() -> Any:
        return table.float().to(bench.device).requires_grad_()

    stale(bench)
    words = leaf()
    out = functional.embedding(index, words, padding_idx=_PADDING)
    out.backward(seed.float().to(bench.device))
    bench.exact("lookup.wrong", out, table[chosen].float())
    want = spread(seed)
    want[_PADDING] = 0
    bench.exact("lookup-grad.wrong", words.grad, want.float())

    each = seed[:, :1, :] * _BAG
    rows = table[chosen]
    plain = rows.sum(1), spread(each.expand(seed.shape))
    mean = rows.sum(1) // _BAG, spread((each // _BAG).expand(seed.shape))
    weighted = (rows * weight[..., None]).sum(1), spread(each * weight[..., None])
    for mode, factors, (value, gradient) in (("sum", None, plain), ("mean", None, mean), ("sum", weight, weighted)):
        words = leaf()
        given = factors.float().to(bench.device) if factors is not None else None
        out = functional.embedding_bag(index, words, mode=mode, per_sample_weights=given)
        out.backward(each[:, 0].float().to(bench.device))
        bench.exact("bag.wrong", out, value.float())
        bench.exact("bag-grad.wrong", words.grad, gradient.float())
    out = functional.embedding_bag(index, leaf().detach(), mode="max")
    bench.exact("bag.wrong", out, rows.max(1).values.float())


def _losses(bench: Bench, random: Any) -> None:
    target = torch.randint(0, 1009, (400,), generator=random)
    target[torch.rand(400, generator=random) < 0.2] = _IGNORED
    full = torch.randn(400, 1009, generator=random, dtype=torch.float64) * 2

    def one_pass(logits: Any, device: str, reduction: str, smoothing: float) -> list[Any]:
        leaf = logits.detach().to(device).requires_grad_()
        there = target.to(device)
        loss = torch.nn.functional.cross_entropy(
            leaf, there, ignore_index=_IGNORED, reduction=reduction, label_smoothing=smoothing
        )
        loss.backward(torch.ones_like(loss))
        return [loss, leaf.grad]

    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        logits = full.to(dtype)
        for reduction, smoothing in (("none", 0.0), ("mean", 0.0), ("mean", 0.1)):
            wanted = one_pass(logits.double(), "cpu", reduction, smoothing)
            stale(bench)
            results = one_pass(logits, bench.device, reduction, smoothing)
            all_close(bench, f"cross-entropy.{name}", results, wanted)
            unasked = results[1].cpu()[target == _IGNORED]
            bench.exact("ignored.wrong", unasked, torch.zeros_like(unasked))


def _samples(bench: Bench, random: Any) -> None:
    functional = torch.nn.functional
    image = torch.randn(2, 5, 23, 29, generator=random, dtype=torch.float64)
    # the places lie off the grid, where the weights have no kink
    grid = (torch.rand(2, 17, 13, 2, generator=random, dtype=torch.float64) * 2 - 1) * 1.1
    distinct = torch.randperm(image.numel(), generator=random).reshape(image.shape).double()

    def resize(mode: str, corners: bool | None, given: Any) -> Any:
        return functional.interpolate(given, (37, 20), mode=mode, align_corners=corners)

    works: tuple[tuple[str, Any, list[Any]], ...] = (
        ("interpolate", partial(resize, "bilinear", False), [image]),
        ("interpolate", partial(resize, "bilinear", True), [image]),
        ("interpolate", partial(resize, "bicubic", False), [image]),
        ("interpolate", partial(resize, "area", None), [image]),
        ("interpolate", partial(resize, "nearest", None), [image]),
        ("grid-sample", partial(functional.grid_sample, align_corners=False, padding_mode="zeros"), [image, grid]),
        ("grid-sample", partial(functional.grid_sample, align_corners=True, padding_mode="border"), [image, grid]),
        ("pool", lambda given: functional.avg_pool2d(given, 3, 2, 1), [image]),
        ("pool", lambda given: functional.adaptive_avg_pool2d(given, (7, 5)), [image]),
        ("pool", lambda given: functional.max_pool2d(given, 3, 2, 1), [distinct]),
        ("pool", lambda given: functional.adaptive_max_pool2d(given, (7, 5)), [distinct]),
    )

    for name, work, tensors in works:
        inputs = rounded(tensors, torch.float32)
        seed = torch.randn(work(*inputs).shape, generator=random)
        wanted = gradients(work, [tensor.double() for tensor in inputs], seed, "cpu")
        stale(bench)
        all_close(bench, name, gradients(work, inputs, seed, bench.device), wanted)


def run(bench: Bench) -> None:
    """Measures wrong elements of ``lookup``, ``bag``, their gradients and ``ignored``, and the distances of the rest.

    The distances are ``cross-entropy.<dtype>``, ``interpolate``, ``grid-sample`` and ``pool``.
    """
    random = bench.random()
    _lookups(bench, random)
    _losses(bench, random)
    _samples(bench, random)
