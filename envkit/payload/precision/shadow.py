"""What every tensor of a run would hold if its numbers were wide: a shadow beside each memory, kept in lock step.

A shadow belongs to a storage and not to a tensor, so that views, writes in place, ``detach`` and what autograd saves
need nothing of their own: the shadow of a tensor is its storage's, seen with the tensor's sizes, strides and offset.
It goes when its storage goes, so the memory is that of the live tensors times the width of the shadow's numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from envkit.payload.lazy import torch
from envkit.payload.placement.watch import op_name, tensors_in

_SWEEP = 64  # operations between two looks for storages that went
_FRESH = 1 << 26  # bytes of new shadows after which one looks sooner

# These leave memory as they find it: what lies there means nothing until it is written.
EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "resize_", "set_")
# Random numbers of torch releases whose operators carry no tag that says so.
RANDOM = (
    "bernoulli", "bernoulli_", "uniform_", "normal_", "normal", "rand", "rand_like", "randn", "randn_like", "randint",
    "randint_like", "random_", "randperm", "multinomial", "exponential_", "geometric_", "log_normal_", "cauchy_",
    "rrelu_with_noise", "rrelu_with_noise_", "poisson", "_fused_dropout",
)  # fmt: skip
_HALF_TO_FLOAT = ("_softmax", "_log_softmax")  # their third argument asks for a half that a shadow is not
# Operators that jump where an argument (its position) crosses a point, as the derivative of a ReLU does at zero.  Of n
# elements about n * eps lie within rounding of that point; were the twin to take another side there, each would be off
# by its whole size and the gradient by sqrt(eps) at every layer, though both sides are the exact gradient of inputs
# within rounding of one another.  So the side is the narrow step's, as it is of a comparison or of a pooling's indices.
JUMPS = {
    "threshold_backward": 1, "leaky_relu_backward": 1, "hardtanh_backward": 1, "hardswish_backward": 1,
    "hardsigmoid_backward": 1, "hardshrink_backward": 1, "softshrink_backward": 1, "_prelu_kernel_backward": 1,
    "rrelu_with_noise_backward": 1, "elu_backward": 5, "sgn": 0, "sign": 0,
}  # fmt: skip


class CannotShadow(Exception):
    """Raised where an operation cannot be repeated with wide numbers."""


class ShadowStorage:
    """The shadow of one storage, and what is known of how its error came about (see ``watch``)."""

    def __init__(self, storage: Any, flat: Any, low: Any) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self.ref = StorageWeakRef(storage)
        self.flat = flat
        self.low = low  # the dtype of the numbers in the storage
        self.origin: Any = None  # the event at which its error exploded
        self.steepest: Any = None  # the event at which its error grew most
        self.bad: Any = None  # the event that first yielded what is not finite
        self.cast_from: Any = None  # the dtype that a bare cast made it from


class Shadows:
    """The shadows of a run; ``dtype`` is the wide one."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self._held: dict[int, ShadowStorage] = {}
        self._calls = 0
        self._fresh = 0

    def held(self, tensor: Any) -> ShadowStorage | None:
        """What is kept for the storage of ``tensor``, None if nothing is or if it holds other numbers now."""
        held = self._held.get(_key(tensor))
        if held is None or held.ref.expired() or held.low != tensor.dtype or held.flat.device != tensor.device:
            return None
        return held if _end(tensor) <= held.flat.numel() else None

    def of(self, tensor: Any) -> Any:
        """The shadow of ``tensor``, made of its own numbers where it has none yet."""
        held = self.held(tensor) or self._seed(tensor)
        return held.flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def plant(self, tensor: Any, wide: Any) -> ShadowStorage:
        """``wide`` becomes the shadow of ``tensor``; what else lies in its storage is taken as it is."""
        held = self._held.get(_key(tensor))
        if held is None or self.held(tensor) is None:
            held = self._seed(tensor, bare=tensor.numel() == _length(tensor))
        view = held.flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        view.copy_(wide)
        return held

    def drop(self, tensor: Any) -> None:
        """Forgets the storage of ``tensor``: it was written in a way that was not seen."""
        self._held.pop(_key(tensor), None)

    def sweep(self) -> None:
        """Lets the shadows go whose storages went."""
        self._calls += 1
        if self._calls >= _SWEEP or self._fresh > _FRESH:
            self._calls = self._fresh = 0
            for key in [key for key, held in self._held.items() if held.ref.expired()]:
                del self._held[key]

    def _seed(self, tensor: Any, bare: bool = False) -> ShadowStorage:
        storage = tensor.untyped_storage()
        if bare:
            flat = torch.zeros(_length(tensor), dtype=self.dtype, device=tensor.device)
        else:
            own = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            own.set_(storage, 0, (_length(tensor),), (1,))
            flat = own.to(self.dtype, copy=True)
        self._fresh += int(flat.numel()) * int(flat.element_size())
        held = self._held[_key(tensor)] = ShadowStorage(storage, flat, tensor.dtype)
        return held


def followed(value: Any) -> bool:
    """Whether a tensor has a shadow: real numbers with a point, in a plain storage."""
    return value.is_floating_point() and value.layout == torch.strided and value.numel() > 0 and not value.is_meta


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _length(tensor: Any) -> int:
    return int(tensor.untyped_storage().nbytes()) // int(tensor.element_size())


def _end(tensor: Any) -> int:
    """The first element of the storage that ``tensor`` does not reach."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride()))  # noqa: B905 - Python 3.8 has no strict
    return int(tensor.storage_offset()) + int(reach) + 1


def is_random(func: Any, name: str) -> bool:
    """Whether an operator draws random numbers."""
    tag = getattr(getattr(torch, "Tag", None), "nondeterministic_seeded", None)
    return name in RANDOM or (tag is not None and tag in getattr(func, "tags", ()))


class Writes(NamedTuple):
    """What an operator's schema says of its arguments: ``written`` by position or name; whether it only ``views``."""

    written: tuple[Any, ...]
    views: bool


def writes(func: Any) -> Writes:
    """What an operator writes into, and whether all it returns is a view of what it was given."""
    written: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append(argument.name if argument.kwarg_only else position)
    returned = [each.alias_info for each in func._schema.returns]
    views = bool(returned) and all(each is not None and not each.is_write for each in returned)
    return Writes(tuple(written), views)


def bound(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by their names, defaults included."""
    named = {each.name: each.default_value for each in func._schema.arguments if each.has_default_value()}
    named.update(zip((each.name for each in func._schema.arguments), args))  # noqa: B905 - Python 3.8 has no strict
    named.update(kwargs)
    return named


def wide_call(func: Any, args: Any, kwargs: Any, wide: Callable[[Any], Any], dtype: Any, low_out: Any) -> Any:
    """Repeats a call with ``wide`` in place of each tensor with a point; raises CannotShadow where that cannot be."""
    _, name = op_name(func)
    fewer, jumps = SPECIAL.get(name), JUMPS.get(name)
    if fewer is None and "backward" in name and any(each.dtype == torch.uint8 for each in tensors_in((args, kwargs))):
        raise CannotShadow("a library's own workspace, made for the narrow numbers, goes into it")

    def change(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return wide(value) if followed(value) else value
        if isinstance(value, torch.dtype):
            return dtype if value.is_floating_point else value
        if isinstance(value, (list, tuple)):
            return type(value)([change(each) for each in value])
        return value

    def call() -> Any:
        changed = [each.to(dtype) if at == jumps else change(each) for at, each in enumerate(args)]
        named = {key: change(value) for key, value in kwargs.items()}
        if name in _HALF_TO_FLOAT and len(changed) > 2:
            changed[2] = False
        return fewer(bound(func, changed, named), low_out) if fewer is not None else func(*changed, **named)

    try:
        return call()
    except Exception as error:  # whatever it is, the wide numbers end here and the run goes on
        why = error
    if dtype == torch.float64 and not writes(func).written:  # there may be no kernel for doubles
        plain = wide
        wide, dtype = (lambda each: plain(each).float()), torch.float32
        with contextlib.suppress(Exception):  # the first reason is the one to tell
            return call()
    raise CannotShadow(f"{type(why).__name__}: {' '.join(str(why).split())[:200]}") from why


# Operators that have no kernel for wide numbers, or whose random part is already drawn.


def _dropped(given: dict[str, Any], low: Any) -> Any:
    if not given["train"]:
        return (given["input"], None)
    kept = 1.0 - given["p"]
    return (given["input"] * low[1] * (1.0 / kept if kept else 0.0), None)


def _normed(given: dict[str, Any], low: Any) -> Any:
    return torch.ops.aten.native_batch_norm(
        given["input"], given["weight"], given["bias"], given["running_mean"], given["running_var"],
        given["training"], given["exponential_average_factor"], given["epsilon"],
    )  # fmt: skip


def _normed_back(given: dict[str, Any], low: Any) -> Any:
    return torch.ops.aten.native_batch_norm_backward(
        given["grad_output"], given["input"], given["weight"], given["running_mean"], given["running_var"],
        given["save_mean"], given["save_var"], True, given["epsilon"], [True, True, True],
    )  # fmt: skip


def _weights(given: dict[str, Any]) -> tuple[Any, float]:
    """The softmax of an attention, and its scale."""
    query, key = given["query"], given["key"]
    if given.get("dropout_p"):
        raise ValueError("an attention with dropout draws its numbers inside its kernel")
    if query.size(1) != key.size(1):
        raise ValueError("an attention whose heads share keys")
    scale = given.get("scale")
    scale = query.size(-1) ** -0.5 if scale is None else float(scale)
    scores = query @ key.transpose(-2, -1) * scale
    mask = given.get("attn_mask") if given.get("attn_mask") is not None else given.get("attn_bias")
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    if given.get("is_causal"):
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1), scale


def _attended(given: dict[str, Any], low: Any) -> Any:
    return (_weights(given)[0] @ given["value"],)


def _attended_back(given: dict[str, Any], low: Any) -> Any:
    weights, scale = _weights(given)
    grad = given.get("grad_out", given.get("grad_out_"))
    to_value = weights.transpose(-2, -1) @ grad
    to_weights = grad @ given["value"].transpose(-2, -1)
    to_scores = weights * (to_weights - (to_weights * weights).sum(-1, keepdim=True))
    return (to_scores @ given["key"] * scale, to_scores.transpose(-2, -1) @ given["query"] * scale, to_value)


_ATTENTIONS = ("flash_attention", "efficient_attention", "cudnn_attention")
SPECIAL: dict[str, Any] = {
    "native_dropout": _dropped,
    "cudnn_batch_norm": _normed,
    "cudnn_batch_norm_backward": _normed_back,
    "_scaled_dot_product_flash_attention_for_cpu": _attended,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attended_back,
    **{f"_scaled_dot_product_{name}": _attended for name in _ATTENTIONS},
    **{f"_scaled_dot_product_{name}_backward": _attended_back for name in _ATTENTIONS},
}


def pairs(low: Any, wide: Any) -> list[tuple[Any, Any]]:
    """Each tensor with a point that a call returned, with what its wide twin returned at the same place."""
    if isinstance(low, torch.Tensor):
        fits = isinstance(wide, torch.Tensor) and wide.shape == low.shape
        return [(low, wide)] if fits and followed(low) else []
    if isinstance(low, (tuple, list)) and isinstance(wide, (tuple, list)):
        return [each for one, other in zip(low, wide) for each in pairs(one, other)]  # noqa: B905 - Python 3.8 has no strict
    return []


def floats_in(value: Any) -> list[Any]:
    """The tensors of a nested value that have shadows."""
    return [each for each in tensors_in(value) if followed(each)]
