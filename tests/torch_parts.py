"""Run by a Python with torch: parts of what follows precision and placement, each against torch itself.

Each function is one check and runs in a fork of this process.  The document on stdout has the trace of each by its
name, empty where it came to its end.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from inspect import CO_VARARGS
from types import FunctionType, SimpleNamespace
from typing import Any

import torch

from envkit.payload.placement import census, pretend
from envkit.payload.placement import watch as placing
from envkit.payload.placement.lines import Places, Site
from envkit.payload.precision import shadow, work
from envkit.payload.precision import watch as watching

aten = torch.ops.aten
DOUBLE, BRAIN, HALF = torch.float64, torch.bfloat16, torch.float16


def random(*shape: int, seed: int = 3, dtype: Any = DOUBLE) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def near(one: Any, other: Any) -> bool:
    return bool(torch.allclose(one, other, rtol=1e-9, atol=1e-12))


@contextlib.contextmanager
def raises(kind: type[BaseException], words: str) -> Iterator[None]:
    """The block raises an error of this kind with these words; this Python has no pytest."""
    try:
        yield
    except kind as error:
        if words not in str(error):
            raise
    else:
        raise AssertionError(f"no {kind.__name__}: {words}")


def checks_of(names: dict[str, Any]) -> list[Callable[[], None]]:
    """The functions of a program that take nothing, which are its checks."""
    own = [each for each in names.values() if isinstance(each, FunctionType) and each.__module__ == "__main__"]
    return [each for each in own if not each.__code__.co_argcount and not each.__code__.co_flags & CO_VARARGS]


def main(names: dict[str, Any]) -> None:
    """Runs each check of a program; a process for each, for some change torch."""
    torch.set_num_threads(1)
    said = {}
    for check in checks_of(names):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            try:
                check()
            except BaseException:
                os.write(writing, traceback.format_exc()[-3000:].encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, errors="replace") as file:
            trace = file.read()
        status = os.waitpid(child, 0)[1]
        said[check.__name__] = trace or (f"it ended with {status}" if status else "")
    json.dump(said, sys.stdout)


# What a tensor's numbers are worth


def measured() -> None:
    meant = torch.tensor([3.0, 4.0, 1e-9, math.inf, 7.0, math.inf, 0.0], dtype=DOUBLE)
    own = torch.tensor([3.0, 4.5, 0.0, math.inf, math.nan, math.nan, 0.0], dtype=HALF)
    seen = watching.Measured(own, meant)
    assert (seen.bad, seen.both_bad, seen.nans) == (1, 2, 2), vars(seen)
    assert math.isclose(seen.error, 0.1) and seen.largest == 7.0, vars(seen)
    assert 0.0 < seen.flushed < 1e-15, vars(seen)
    lost = watching.Measured(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 5.0], dtype=DOUBLE))
    assert math.isclose(lost.flushed, 9.0 / 25.0) and math.isclose(lost.error, 5.0 / math.sqrt(34.0))
    right = watching.Measured(meant, meant)
    assert (right.error, right.flushed, right.bad, right.both_bad) == (0.0, 0.0, 0, 2)


def measured_in_blocks() -> None:
    low, wide = random(1, 7, 3).to(BRAIN), random(1, 7, 3)
    whole = vars(watching.Measured(low, wide))
    watching._BLOCK = 4
    assert [tuple(one.shape) for one, _ in watching._blocks(low, wide)] == [(1, 3)] * 7
    apart = vars(watching.Measured(low, wide))
    assert all(math.isclose(apart[name], value) for name, value in whole.items()), (whole, apart)
    assert len(list(watching._blocks(torch.tensor(5.0), torch.tensor(5.0)))) == 1


def ratios() -> None:
    assert watching._ratio(0.0, 0.0) == 0.0 and watching._ratio(1.0, 4.0) == 0.25
    for error, size in ((1.0, 0.0), (math.inf, 1.0), (1.0, math.inf), (math.nan, 1.0), (1e200, 1e-200)):
        assert watching._ratio(error, size) == 1e30, (error, size)


def kinds_of_ends() -> None:
    def seen(**more: Any) -> Any:
        return SimpleNamespace(**{"bad": 0, "nans": 0, "largest": 1.0, "flushed": 0.0, "error": 1.0, **more})

    half = torch.zeros(1, dtype=HALF)
    assert watching._not_finite(seen(), half) == "everywhere"
    assert watching._not_finite(seen(bad=1, nans=1, largest=65505.0), half) == "overflow"
    assert watching._not_finite(seen(bad=1, nans=1, largest=65504.0), half) == "nan"
    assert watching._not_finite(seen(bad=1), half) == "infinity"
    assert watching._explosion(seen(flushed=0.6), 1.0) == "underflow"
    assert watching._explosion(seen(flushed=0.5), 0.5) == "rounding"
    assert watching._explosion(seen(), 0.4) == watching._explosion(seen(), None) == "cancellation"


def checksums() -> None:
    base = random(4, 6, dtype=torch.float32)
    every = [base, base.t(), base[1:, ::2], base.to(BRAIN), torch.view_as_complex(random(3, 2)), torch.arange(5)]
    for each in every:
        before = watching.checksum([each])
        assert before == watching.checksum([each.clone()]) and before != 0
        changed = each.clone(memory_format=torch.contiguous_format)
        changed.view(-1)[1] = 9
        assert watching.checksum([changed]) != before, each.dtype
    assert watching.checksum([torch.ones(3), torch.zeros(3)]) != watching.checksum([torch.zeros(3), torch.ones(3)])
    nothing = [torch.zeros(0), torch.ones(3, dtype=torch.uint8), torch.ones(3, device="meta"), base.to_sparse()]
    assert watching.checksum(nothing) == 0
    # what cannot be summed does not keep what follows it from being summed
    assert watching.checksum([*nothing, base]) == watching.checksum([base])


# Shadows


def shadows_belong_to_the_memory() -> None:
    shadows = shadow.Shadows(DOUBLE)
    low = torch.arange(12, dtype=BRAIN).reshape(3, 4)
    wide = random(3, 4)
    held = shadows.plant(low, wide)
    assert shadows.held(low) is held is shadows.held(low.t()) and near(shadows.of(low.t()), wide.t())
    assert near(shadows.of(low[1:, 2]), wide[1:, 2])
    shadows.of(low[0]).fill_(5.0)  # a view of the shadow, and no copy
    assert near(shadows.of(low)[0], torch.full((4,), 5.0, dtype=DOUBLE)) and near(shadows.of(low)[1:], wide[1:])
    part = shadows.plant(low[:, 1], torch.full((3,), 7.0, dtype=DOUBLE))
    assert part is held and near(shadows.of(low)[1:, 2:], wide[1:, 2:])
    assert shadows.held(low.view(torch.int16)) is None  # other numbers now
    shadows.drop(low)
    assert shadows.held(low) is None and near(shadows.of(low), low.double())  # of its own numbers again


def a_part_that_is_planted_leaves_the_rest_as_it_is() -> None:
    shadows = shadow.Shadows(DOUBLE)
    low = torch.arange(6, dtype=HALF)
    shadows.plant(low[2:4], torch.tensor([20.5, 30.5], dtype=DOUBLE))
    assert shadows.of(low).tolist() == [0.0, 1.0, 20.5, 30.5, 4.0, 5.0]


def shadows_go_with_their_memory() -> None:
    shadows = shadow.Shadows(DOUBLE)
    low, kept = torch.ones(4, dtype=BRAIN), torch.ones(4, dtype=BRAIN)
    for each in (low, kept):
        shadows.of(each)
    del low, each
    for _ in range(shadow._SWEEP - 1):
        shadows.sweep()
    assert len(shadows._held) == 2
    shadows.sweep()
    assert len(shadows._held) == 1 and shadows.held(kept) is not None
    shadow._FRESH = 100  # bytes
    large = torch.ones(40, dtype=BRAIN)
    shadows.of(large)
    del large
    shadows.sweep()
    assert len(shadows._held) == 1
    grown = torch.ones(2, dtype=BRAIN)
    shadows.of(grown)
    grown.resize_(50)
    assert shadows.held(grown) is None


def what_is_followed() -> None:
    every = {
        "half": torch.ones(2, dtype=HALF), "whole": torch.ones(2, dtype=torch.int32), "empty": torch.ones(0),
        "meta": torch.ones(2, device="meta"), "sparse": torch.ones(2, 2).to_sparse(), "single": torch.ones(1),
        "complex": torch.ones(2, dtype=torch.complex64),
    }  # fmt: skip
    assert [name for name, each in every.items() if shadow.followed(each)] == ["half", "single"]
    assert len(shadow.floats_in(([every["half"]], {"a": every["whole"], "b": every["single"]}))) == 2


def what_an_operator_writes() -> None:
    assert shadow.writes(aten.mm.default) == ((), False)
    assert shadow.writes(aten.add_.Tensor) == ((0,), False)
    assert shadow.writes(aten.add.out) == (("out",), False)
    assert shadow.writes(aten.transpose.int) == ((), True)
    assert shadow.is_random(aten.bernoulli_.float, "bernoulli_") and not shadow.is_random(aten.mm.default, "mm")
    assert shadow.is_random(aten.native_dropout.default, "native_dropout")  # by its tag
    named = shadow.bound(aten.addmm.default, (1, 2), {"beta": 3, "mat2": 4})
    assert named == {"self": 1, "mat1": 2, "mat2": 4, "beta": 3, "alpha": 1}, named


def twice(func: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator with narrow arguments, and its twin with wide ones that are these rounded."""
    low = func(*args, **kwargs)
    return shadow.wide_call(func, args, kwargs, lambda each: each.double(), DOUBLE, low)


def an_operation_is_repeated_with_wide_numbers() -> None:
    one, other = random(3, 4).to(BRAIN), random(4, 2).to(BRAIN)
    assert near(twice(aten.mm.default, one, other), one.double() @ other.double())
    assert twice(aten._to_copy.default, one, dtype=HALF).dtype == DOUBLE
    assert twice(aten._to_copy.default, one, dtype=torch.int32).dtype == torch.int32
    assert near(twice(aten.cat.default, [one, one], 1), torch.cat([one, one], 1).double())
    soft = shadow.wide_call(aten._softmax.default, (one, 1, True), {}, lambda each: each.double(), DOUBLE, None)
    assert near(soft, one.double().softmax(1))  # the half that it asked for is none here
    # the side on which an input lies is the narrow step's
    point = torch.tensor([0.0, 1.0], dtype=BRAIN)
    meant = {id(point): torch.tensor([1e-9, -1e-9], dtype=DOUBLE)}
    grad = torch.ones(2, dtype=BRAIN)
    back = shadow.wide_call(
        aten.threshold_backward.default, (grad, point, 0), {},
        lambda each: meant.get(id(each), each.double()), DOUBLE, None,
    )  # fmt: skip
    assert back.tolist() == [0.0, 1.0]


def what_cannot_be_repeated_says_why() -> None:
    library = torch.library.Library("envkit_parts", "DEF")
    library.define("single(Tensor x) -> Tensor")
    library.define("never(Tensor x) -> Tensor")
    library.define("never_(Tensor(a!) x) -> Tensor(a!)")
    library.define("some_backward(Tensor x, Tensor space) -> Tensor")

    def single(x: Any) -> Any:
        if x.dtype == DOUBLE:
            raise RuntimeError("no doubles\n  here")
        return x + 1

    def never(x: Any) -> Any:
        if x.dtype != BRAIN:
            raise RuntimeError("no doubles here" if x.dtype == DOUBLE else "no singles here")
        return x.clone()

    for name, run in (("single", single), ("never", never), ("never_", never)):
        library.impl(name, run, "CPU")
    library.impl("some_backward", lambda x, space: x.clone(), "CPU")
    ops, low = torch.ops.envkit_parts, torch.ones(2, dtype=BRAIN)
    made = twice(ops.single.default, low)
    assert made.dtype == torch.float32 and made.tolist() == [2.0, 2.0]
    for func, args, why in (
        (ops.never.default, (low,), "RuntimeError: no doubles here"),
        (ops.never_.default, (low,), "RuntimeError: no doubles here"),
        (ops.some_backward.default, (low, torch.ones(3, dtype=torch.uint8)), "workspace"),
    ):
        with raises(shadow.CannotShadow, why):
            shadow.wide_call(func, args, {}, lambda each: each.double(), DOUBLE, None)
    assert twice(ops.some_backward.default, low, low).dtype == DOUBLE


def outputs_are_paired_by_place() -> None:
    low, wide = torch.ones(2), torch.ones(2, dtype=DOUBLE)
    assert shadow.pairs(low, wide) == [(low, wide)]
    assert [one[0] is low for one in shadow.pairs((low, None, [low, torch.ones(2, dtype=torch.int32)]),
            (wide, wide, [wide, wide]))] == [True, True]  # fmt: skip
    assert shadow.pairs(low, wide[:1]) == shadow.pairs(low, None) == shadow.pairs(None, wide) == []


def dropout() -> None:
    x, mask = random(5), torch.tensor([True, False, True, True, False])
    kept = shadow._dropped({"input": x, "p": 0.75, "train": True}, (None, mask))
    assert near(kept[0], x * mask * 4) and kept[1] is None
    assert shadow._dropped({"input": x, "p": 0.75, "train": False}, (None, mask))[0] is x
    assert shadow._dropped({"input": x, "p": 1.0, "train": True}, (None, mask & False))[0].tolist() == [0.0] * 5


def batch_norm() -> None:
    x, weight, bias = (random(4, 3, 5, seed=1), random(3, seed=2), random(3, seed=3))
    for each in (x, weight, bias):
        each.requires_grad_()
    mean, var, grad = random(3, seed=4), random(3, seed=5).abs(), random(4, 3, 5, seed=6)
    for training in (True, False):
        want = torch.nn.functional.batch_norm(x, mean.clone(), var.clone(), weight, bias, training, 0.1, 1e-3)
        given = {
            "input": x.detach(), "weight": weight.detach(), "bias": bias.detach(), "running_mean": mean.clone(),
            "running_var": var.clone(), "training": training, "exponential_average_factor": 0.1, "epsilon": 1e-3,
        }  # fmt: skip
        out, saved_mean, saved_inverse = shadow._normed(given, None)
        assert near(out, want.detach()), training
        if training:
            given = {**given, "grad_output": grad, "save_mean": saved_mean, "save_var": saved_inverse}
            gradients = shadow._normed_back(given, None)
            for got, meant in zip(gradients, torch.autograd.grad(want, (x, weight, bias), grad), strict=True):
                assert got is not None and near(got, meant)


def attention() -> None:
    shape = (2, 3, 4, 8)
    query, key, value, grad = (random(*shape, seed=seed) for seed in range(4))
    for each in (query, key, value):
        each.requires_grad_()
    seen = torch.ones(4, 4, dtype=torch.bool).tril(1)
    added = random(4, 4, seed=9)
    for given, asked in (
        ({}, {}),
        ({"scale": 0.3}, {"scale": 0.3}),
        ({"is_causal": True}, {"is_causal": True}),
        ({"attn_mask": seen}, {"attn_mask": seen}),
        ({"attn_mask": added}, {"attn_mask": added}),
        ({"attn_bias": added, "attn_mask": None, "dropout_p": 0.0}, {"attn_mask": added}),
    ):
        want = torch.nn.functional.scaled_dot_product_attention(query, key, value, **asked)
        told = {"query": query.detach(), "key": key.detach(), "value": value.detach(), **given}
        assert near(shadow._attended(told, None)[0], want.detach()), given
        for name in ("grad_out", "grad_out_"):
            gradients = shadow._attended_back({**told, name: grad}, None)
            meant = torch.autograd.grad(want, (query, key, value), grad, retain_graph=True)
            assert all(near(*each) for each in zip(gradients, meant, strict=True)), given
    for more, why in (({"dropout_p": 0.1}, "dropout"), ({"key": random(2, 1, 4, 8)}, "share keys")):
        with raises(ValueError, why):
            shadow._attended({"query": query, "key": key, "value": value, **more}, None)


# A step


def followed_step(model: Any, *inputs: Any, dtype: Any = BRAIN, autocast: bool = False) -> tuple[Any, dict[str, Any]]:
    """One watched step of a model of this file, and what is told of it."""
    shadows = shadow.Shadows(DOUBLE)
    made = work.given((model, inputs))
    made = made if autocast else work.cast(made, dtype, shadows)
    step = watching.Step(Places(os.path.dirname(__file__)), dtype, shadows, "cpu", autocast)
    return step, work.take(made, step)


class Rounds(torch.nn.Module):
    """Casts there and back, and once more to where the digits stay."""

    def forward(self, x: Any) -> Any:
        wide = x.float()
        lost = wide.to(torch.bfloat16).float()
        return (lost + wide.double().float()).sum()


def casts_are_counted_and_round_trips_told() -> None:
    _, said = followed_step(Rounds(), torch.ones(6, 2))
    assert said["error"] is None and said["casts"] == 5, said
    (hole,) = said["holes"]
    assert (hole["kind"], hole["op"], hole["count"], hole["elements"]) == ("round trip", "_to_copy", 1, 24), hole
    assert hole["where"].startswith("torch_parts.py:") and "torch.bfloat16" in hole["source"]


class Layers(torch.nn.Module):
    """A linear layer whose one parameter is frozen, and a dictionary of outputs with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 2)
        self.register_buffer("shift", torch.ones(4))
        self.first.bias.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        out = self.second(torch.relu(self.first(x + self.shift)))
        return {"out": out, "loss": out.float().pow(2).mean()}


def results_are_told_of_outputs_loss_and_gradients() -> None:
    torch.manual_seed(3)
    for dtype in (BRAIN, torch.float32):
        model = Layers()
        step, said = followed_step(model, random(5, 4, dtype=torch.float32), dtype=dtype)
        assert (said["error"], said["backward"], said["stage"]) == (None, "ran", "backward"), said
        told = {each["what"]: each for each in said["results"]}
        named = [name for name, each in model.named_parameters() if each.requires_grad]
        assert set(told) == {
            "output 0", "output 1", "the loss", "all gradients as one", *(f"the gradient of {name}" for name in named),
        }  # fmt: skip
        assert all(0.0 <= each["error"] < 8 * step.eps for each in said["results"]), told
        whole = told["all gradients as one"]
        apart = [told[f"the gradient of {name}"] for name in named]
        for key in ("elements", "significant", "lost", "not_finite", "nans"):
            assert whole[key] == sum(each[key] for each in apart), key
        assert whole["elements"] == 4 * 4 + 4 * 2 + 2 and not whole["noise"] and whole["not_finite"] == 0
        assert math.isclose(whole["size"] ** 2, sum(each["size"] ** 2 for each in apart))
        assert [each["op"] for each in said["products"]] == ([] if dtype == BRAIN else ["addmm"] * 2 + ["mm"] * 3)
        assert all(0.0 < each["own_error"] < 1e-6 for each in said["products"])
        assert model.first.weight.dtype == dtype and said["dtype"] == str(dtype)[6:]


class Far(torch.nn.Module):
    """Leaves the range of float16."""

    def forward(self, x: Any) -> Any:
        large = x * 60000
        return (large + large).sum()


def what_leaves_the_range_is_blamed_on_the_operation_that_did() -> None:
    _, said = followed_step(Far(), torch.ones(3), dtype=HALF)
    (result,) = said["results"]
    bad = result["bad"]
    assert (bad["op"], bad["kind"], bad["stage"], bad["count"]) == ("add", "overflow", "forward", 3), bad
    assert bad["inputs_finite"] and bad["largest"] == 120000.0 > bad["limit"] == 65504.0 and bad["dtype"] == "float16"
    assert result["not_finite"] == 1 and result["nans"] == 0


class Refusing(torch.nn.Module):
    """Asks torch for what it refuses; ``caught`` goes on."""

    def __init__(self, caught: bool) -> None:
        super().__init__()
        self.caught = caught

    def forward(self, x: Any) -> Any:
        try:
            torch.linalg.inv(x)
        except RuntimeError:
            if not self.caught:
                raise
        return x.sum()


def a_refusal_counts_where_it_ended_the_step() -> None:
    _, said = followed_step(Refusing(False), torch.eye(2))
    assert said["refusal"]["op"].startswith("linalg_inv") and said["refusal"]["dtypes"] == ["bfloat16"], said["refusal"]
    assert said["error"] is not None and said["backward"] == "not run" and said["results"] == []
    _, said = followed_step(Refusing(True), torch.eye(2))
    assert said["refusal"] is None and said["error"] is None, said


def steps_that_differ_from_the_same_input_are_told() -> None:
    def sums(*rows: tuple[str, int, int]) -> Any:
        return SimpleNamespace(sums=[(name, Site("a.py:1", "x", "m"), took, gave) for name, took, gave in rows])

    one = sums(("mm", 1, 2), ("add", 2, 3), ("sum", 3, 4), ("mm", 1, 2))
    assert work.noisy(one, one) == []
    other = sums(("mm", 1, 2), ("add", 2, 9), ("sum", 9, 10), ("mm", 1, 7))
    assert [each["op"] for each in work.noisy(one, other)] == ["add", "mm"]  # what took other numbers is not to blame
    way = sums(("mm", 1, 2), ("sub", 2, 9), ("sum", 3, 11))
    assert work.noisy(one, way) == []


def what_is_cast_and_what_stays() -> None:
    inputs = {"a": torch.ones(2, requires_grad=True), "b": [torch.ones(2, dtype=torch.int32), "text"], "c": (None, 1)}
    got = work._recast(inputs, HALF)
    assert got["a"].dtype == HALF and got["a"].requires_grad and got["a"].is_leaf
    assert got["b"][0] is inputs["b"][0] and got["b"][1] == "text" and got["c"] == (None, 1)
    same = torch.ones(2, dtype=HALF)
    assert work._recast(same, HALF) is same


def the_objective_is_the_given_loss_the_models_own_or_all_outputs() -> None:
    x = torch.ones(3, requires_grad=True) * 2
    own = x.sum()
    assert work.objective({"out": x, "loss": own}, None) is own
    assert work.objective(SimpleNamespace(loss=own), None) is own
    assert work.objective({"loss": own}, lambda given: given["loss"] * 2).item() == 12.0
    assert work.objective((x, {"loss": x}), None).item() == 2 * 6.0  # a loss of several numbers is an output
    assert work.objective({"loss": x}, None).item() == 6.0


# A GPU that is not there


def devices_that_meet() -> None:
    where = {}

    def at(device: str, *shape: int) -> Any:
        each = torch.ones(shape)
        where[id(each)] = device
        return each

    def meets(name: str, *tensors: Any, first: str = "") -> list[str]:
        return placing.meet(name, list(tensors), lambda each: where[id(each)], first)

    gpu, other, host, scalar = at("cuda:0", 2), at("cuda:1", 2), at("cpu", 2), at("cpu")
    assert meets("add", gpu, gpu) == [] and meets("add", gpu, host) == ["cuda:0", "cpu"]
    assert meets("add", gpu, other, gpu) == ["cuda:0", "cuda:1"]
    assert meets("add", scalar, gpu) == [] and meets("mm", gpu, scalar) == ["cuda:0", "cpu"]
    assert meets("copy_", gpu, host) == meets("_foreach_add", gpu, host) == meets("_fused_adam_", gpu, host) == []
    assert meets("index", gpu, host, first="cuda:0") == [] and meets("index", host, gpu, first="cpu") != []
    assert meets("index_fill_", gpu, host, first="cuda:0") == []


def crossings_and_waits_are_counted_at_their_lines() -> None:
    where: dict[int, str] = {}
    places = SimpleNamespace(here=lambda frame: Site(*frame))
    watch = placing.Watch(places, lambda each: where.get(id(each), "cpu"), "all")
    host, gpu, mask = torch.ones(4), torch.ones(4), torch.ones(4, dtype=torch.bool)
    where[id(gpu)] = where[id(mask)] = "cuda:0"
    line = ("a.py:3", "x.to(y)", "m")
    watch.see("_to_copy", (host,), {"device": "cuda"}, [host], line)
    watch.see("_to_copy", (gpu,), {"dtype": HALF}, [gpu], line)  # stays where it is
    watch.see("_to_copy", (host,), {"device": "meta"}, [host], line)
    watch.see("copy_", (host, gpu), {}, [host, gpu], line)
    watch.see("copy_", (gpu, gpu), {}, [gpu, gpu], line)
    watch.see("index", (gpu, [host]), {}, [gpu, host], line)
    watch.see("index_fill_", (gpu, 0, host, 1), {}, [gpu, host], line)
    watch.see("index", (gpu, [mask]), {}, [gpu, mask], line)
    watch.see("_local_scalar_dense", (gpu,), {}, [gpu], line)
    watch.see("_local_scalar_dense", (host,), {}, [host], line)
    watch.see("_to_copy", (host,), {"device": "cuda:0"}, [host], line)
    told = [(each["kind"], each["op"], each["count"], each["bytes"]) for each in watch.lines.values()]
    assert told == [
        ("host to device", "to", 2, 32), ("device to host", "copy_", 1, 16), ("host to device", "index", 1, 16),
        ("host to device", "index_fill_", 1, 16), ("wait", "index", 1, 0), ("wait", "item", 1, 0),
    ], told  # fmt: skip
    assert watch.operations == 11 and watch.gpu_used
    placing._LINES = 6
    for number in range(3):
        watch.tell("wait", "item", Site(f"b.py:{number}", "", ""), 1)
    assert watch.lines["wait", "", "", ""]["count"] == 3 and len(watch.lines) == 7


def refusals_name_the_operands() -> None:
    where: dict[int, str] = {}
    places = SimpleNamespace(here=lambda frame: Site("a.py:3", "x", "m"))
    watch = placing.Watch(places, lambda each: where.get(id(each), "cpu"), "all")
    host, gpu, half = torch.ones(4, 4), torch.ones(4, 4), torch.ones(4, 4, dtype=HALF)
    where[id(gpu)] = "cuda:0"
    watch.name_state(SimpleNamespace(named_parameters=lambda: [("weight", gpu)], named_buffers=lambda: [("b", host)]))
    watch.name_tensors("input", [host, half])
    assert watch.operand(gpu) == {"name": "weight", "device": "cuda:0", "dtype": "float32", "shape": [4, 4]}
    assert watch.operand(host)["name"] == "b" and watch.operand(half)["name"] == "input 1"
    for args, kind in (((gpu, host), "devices"), ((host, half), "dtypes")):
        with raises(placing.Refused, "same"):
            watch.judge("mm", args, list(args), None)
        assert watch.refusal is not None and watch.refusal["kind"] == kind
        watch.refused_by_torch("mm", args, list(args), placing.Refused("text"), None)
        assert watch.refusal["kind"] == kind and watch.refused_with == "text"
    watch.is_cast = lambda: True
    watch.judge("mm", (host, half), [host, half], None)  # which autocast casts
    watch.refused_by_torch("mm", (host, half), [host, half], RuntimeError("dtype"), None)
    assert watch.refusal["kind"] == "dtypes" and watch.refusal["op"] == "mm"
    watch.refused_by_torch("mm", (gpu, host), [gpu, host], RuntimeError("on one Device"), None)
    assert watch.refusal["kind"] == "devices" and watch.refusal["message"] == "on one Device"
    watch.refused_by_torch("mm", (host, host), [host, host], RuntimeError("no size"), None)
    assert watch.refusal is None and watch.refused_with == "no size"
    fake = placing.Watch(places, lambda each: where.get(id(each), "cpu"), "dtypes")
    fake.judge("mm", (gpu, host), [gpu, host], None)  # fake tensors refuse that by themselves


def what_lies_where_is_counted_by_device_dtype_and_training() -> None:
    model = torch.nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    model.register_buffer("steps", torch.tensor(3))
    model.register_buffer("mean", torch.ones(2))
    optimizer = torch.optim.Adam([model.weight], foreach=False)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    moved = {id(optimizer.state[model.weight]["exp_avg"])}
    groups = census.state(model, optimizer, lambda each: "cuda:0" if id(each) in moved else "cpu")
    told = [(each["what"], each["device"], each["trained"], each["tensors"], each["elements"], each["names"])
            for each in groups]  # fmt: skip
    assert told == [
        ("parameters", "cpu", True, 1, 6, ["weight"]), ("parameters", "cpu", False, 1, 2, ["bias"]),
        ("buffers", "cpu", False, 1, 2, ["mean"]), ("scalar buffers", "cpu", False, 1, 1, ["steps"]),
        ("optimizer state", "cuda:0", False, 1, 6, ["exp_avg"]),
        ("optimizer state", "cpu", False, 1, 6, ["exp_avg_sq"]),
    ], told  # fmt: skip
    (stray,) = census.astray(model, optimizer, lambda each: "cuda:0" if id(each) in moved else "cpu")
    assert stray == {"name": "weight", "key": "exp_avg", "device": "cuda:0", "of": "cpu"}
    many = census.group("parameters", [(str(at), torch.ones(1)) for at in range(9)], lambda each: "cpu")
    assert many[0]["names"] == ["0", "1", "2", "3"] and many[0]["tensors"] == 9
    assert census.astray(model, None, str) == [] and [name for name, _ in census.numbered([1, torch.ones(1)])] == ["0"]


def a_traced_gpu_answers_as_one_would() -> None:
    gpus = pretend.Gpus(2)
    assert [gpus.index(each) for each in (None, 1, -1, "cuda:1", "cuda", torch.device("cuda", 1))] == [0, 1, 0, 1, 0, 1]
    claims = pretend.Claims(gpus)
    watch = placing.Watch(SimpleNamespace(here=lambda frame: Site()), claims.device_of, "all")
    claims.install(watch)
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0
    with placing.make_mode(watch, claims.call):
        x = torch.ones(2, 3).to("cuda")
        assert (str(x.device), x.is_cuda, x.is_cpu, x.get_device()) == ("cuda:0", True, False, 0)
        torch.cuda.set_device(1)
        y = torch.tensor([1.0, 2.0]).cuda()
        assert str(y.device) == "cuda:1" and str(y[0:1].device) == "cuda:1" and y.cpu().is_cpu
        assert str(torch.ones(1).to(x).device) == "cuda:0" and str(x.to(torch.float64).device) == "cuda:0"
        assert x.to(torch.float64).dtype == torch.float64 and x.to("cpu", torch.int32).dtype == torch.int32
        assert x.to("cuda:0") is x and x.to("cuda:0", copy=True) is not x and x.to(x, False, True) is not x
        assert (
            str(torch.as_tensor(x).device) == "cuda:0" and str(torch.as_tensor([1], device="cuda").device) == "cuda:1"
        )
        assert str(x.new_tensor([1]).device) == "cuda:0" and x.new_tensor([1]).dtype == x.dtype
        assert torch.tensor([1.0], requires_grad=True).requires_grad and not x.is_pinned()
        with raises(placing.Refused, "to numpy"):
            x.numpy()
        assert x.cpu().numpy().shape == (2, 3)
        made = torch.ones(2, 2, device="cuda:0") + torch.tensor(1.0)
        assert str(made.device) == "cuda:0" and made.tolist() == [[2.0, 2.0]] * 2
        assert str((x * 2).device) == "cuda:0" and (x * 2).dtype == torch.float32
        with torch.autocast("cuda", dtype=BRAIN):
            assert claims.casting == [BRAIN] and (x @ x.t()).dtype == BRAIN
            with torch.autocast("cuda", enabled=False):
                assert claims.casting == [] and (x @ x.t()).dtype == torch.float32
        assert claims.casting == []


if __name__ == "__main__":
    main(globals())
