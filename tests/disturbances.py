"""Silent corruptions of torch's operators, each a plausible fault of one kernel, brought in by the dispatcher.

A ``Disturbance`` names operators of aten and a change, which gets the call and gives another result, or None where the
call lies outside the regime that is wrong.  ``Mode(name)`` is entered around what is to be disturbed.  Operators are
met below autograd, so gradients are disturbed by their own operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Call:
    """One call of an operator: its arguments by their names in the schema, and the operator itself."""

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func, self.schema = func, func._schema
        self.given = {one.name: one.default_value for one in self.schema.arguments if one.has_default_value()}
        self.given.update(zip((one.name for one in self.schema.arguments), args))  # noqa: B905
        self.given.update(kwargs)

    def __getattr__(self, name: str) -> Any:
        return self.given.get(name)

    def do(this, /, **changes: Any) -> Any:
        """What the operator gives, with some arguments changed."""
        given = {**this.given, **changes}
        told = [one for one in this.schema.arguments if one.name in given]
        plain = [given[one.name] for one in told if not one.kwarg_only]
        return this.func(*plain, **{one.name: given[one.name] for one in told if one.kwarg_only})


Change = Callable[[Call], Any]


class Disturbance(NamedTuple):
    """What is wrong, and of which operators ("mm", without "aten::")."""

    operators: tuple[str, ...]
    change: Change


ALL: dict[str, Disturbance] = {}


def of(name: str, *operators: str) -> Callable[[Change], Change]:
    """Enters a change into the table."""

    def kept(change: Change) -> Change:
        assert name not in ALL
        ALL[name] = Disturbance(operators, change)
        return change

    return kept


def edited(name: str, operators: str, edit: Callable[[Any], Any], when: Callable[[Call, Any], bool]) -> None:
    """A change of the first result, in place, where ``when`` holds of the call and that result."""

    def change(call: Call) -> Any:
        out = call.do()
        first = out[0] if isinstance(out, (tuple, list)) else out
        if not isinstance(first, torch.Tensor) or not first.numel() or not when(call, first):
            return out
        edit(first)
        return Done(out)

    ALL[name] = Disturbance(tuple(operators.split()), change)


class Done(NamedTuple):
    """A result that was changed."""

    out: Any


class Listening(TorchDispatchMode):
    """Which operators are called."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.add(func._schema.name.partition("::")[2])
        return func(*args, **(kwargs or {}))


class Mode(TorchDispatchMode):
    """One disturbance at work; "" is none."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.one = ALL.get(name, Disturbance((), lambda call: None))
        self.applied = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name.partition("::")[2] in self.one.operators:
            out = self.one.change(Call(func, args, kwargs or {}))
            if isinstance(out, Done):
                self.applied += 1
                return out.out
            if out is not None:
                return out
        return func(*args, **(kwargs or {}))


def set_(place: Any, value: float) -> Callable[[Any], Any]:
    """Writes a number to a place."""

    def edit(out: Any) -> None:
        out[place] = value

    return edit


def flat(first: int, last: int | None = None, value: float = 0.0) -> Callable[[Any], Any]:
    """Writes a number to elements in the order of the indices."""

    def edit(out: Any) -> None:
        line = out.reshape(-1).clone()
        line[first:last] = value
        out.copy_(line.reshape(out.shape))

    return edit


def more(by: float) -> Callable[[Any], Any]:
    """Makes the last quarter of the first axis larger."""

    def edit(out: Any) -> None:
        part = out[-max(1, out.shape[0] // 4) :]
        part.mul_(by)

    return edit


def always(call: Call, out: Any) -> bool:
    return True


def real(call: Call, out: Any) -> bool:
    return bool(out.is_floating_point())


def strided(call: Call, out: Any) -> bool:
    given = call.self if isinstance(call.self, torch.Tensor) else call.input
    return isinstance(given, torch.Tensor) and given.dim() > 1 and not given.is_contiguous()


def holds_nan(call: Call, out: Any) -> bool:
    return bool(out.is_floating_point() and out.isnan().any())


def swallow(out: Any) -> None:
    out.copy_(out.nan_to_num(0.0, math.inf, -math.inf))


def not_(out: Any) -> None:
    out.copy_(~out if out.dtype is torch.bool else 1 - out)


def last_lost(out: Any) -> None:
    flat(out.numel() - 1, None, 0 if out.dtype is torch.bool else 3)(out)


# ---- products of matrices
@of("mm: a block of 64 is left out of sums over 2048", "mm", "addmm", "bmm")
def _(call: Call) -> Any:
    left = call.self if call.mat2 is not None and call.mat1 is None else call.mat1
    if left is None or left.shape[-1] <= 2048:
        return None
    short = left.clone()
    short[..., 2048:2112] = 0
    return Done(call.do(**{"self" if call.mat1 is None else "mat1": short}))


edited(
    "mm: rows from 65536 on are zero",
    "mm addmm",
    set_(slice(65536, None), 0),
    lambda c, o: o.dim() and o.shape[0] > 65536,
)
edited("mm: NaN is swallowed", "mm addmm bmm", swallow, holds_nan)
edited(
    "mm: the last column of a transposed operand is wrong",
    "mm",
    lambda o: o[:, -1].neg_().add_(1),
    lambda c, o: c.mat2 is not None and not c.mat2.is_contiguous() and o.shape[1] > 8,
)
edited("mm: out= is not written past 1024", "mm", flat(1024, None, 77), lambda c, o: c.out is not None)
edited("mm: a sum of nothing is not zero", "mm", set_(slice(None), 1), lambda c, o: c.self.shape[-1] == 0)
edited(
    "mm: the last column, of shapes that 8 does not divide",
    "mm",
    lambda o: o[:, -1].add_(1),
    lambda c, o: o.shape[1] % 8 == 1,
)
edited(
    "bmm: batches from 64 on repeat the first",
    "bmm baddbmm",
    lambda o: o[64:].copy_(o[:1]),
    lambda c, o: o.shape[0] > 64,
)
edited(
    "bmm: an expanded operand",
    "bmm",
    more(2),
    lambda c, o: 0 in (*c.self.stride(), *c.mat2.stride()) and o.shape[0] > 1,
)
edited(
    "addmm: the bias of the last column is lost", "addmm", lambda o: o[:, -1].sub_(1), lambda c, o: c.self.dim() == 1
)
edited("mv: the last rows", "mv addmv", set_(slice(-2, None), 0), lambda c, o: o.numel() > 65536)
edited("dot: beyond 4096", "dot", lambda o: o.add_(1), lambda c, o: c.self.numel() > 4096)


@of("addmm: beta is ignored", "addmm", "baddbmm", "addmv")
def _(call: Call) -> Any:
    return Done(call.do(beta=1)) if call.beta not in (1, 0, None) else None


@of("addmm: alpha is ignored", "addmm", "baddbmm", "addmv")
def _(call: Call) -> Any:
    return Done(call.do(alpha=1)) if call.alpha not in (1, None) else None


@of("addmm: NaN comes through beta 0", "addmm")
def _(call: Call) -> Any:
    return Done(call.do(beta=0).add_(call.self * 0)) if call.beta == 0 and call.self.isnan().any() else None


# ---- convolutions
def convolution(name: str, when: Callable[[Call], bool], work: Callable[[Call], Any]) -> None:
    """A convolution that is wrong where ``when`` holds."""
    ALL[name] = Disturbance(("convolution",), lambda call: Done(work(call)) if when(call) else None)


def _cut(call: Call, **changes: Any) -> Any:
    out, shape = call.do(**changes), call.do().shape
    return out[tuple(slice(0, size) for size in shape)].contiguous()


def _one_group(call: Call) -> Any:
    weight = call.weight.clone()
    each = weight.shape[0] // call.groups
    weight[-each:] = weight[:each]
    return call.do(weight=weight)


def _after(edit: Callable[[Any], Any]) -> Callable[[Call], Any]:
    def work(call: Call) -> Any:
        out = call.do()
        edit(out)
        return out

    return work


convolution(
    "conv: dilation is taken as 1",
    lambda c: not c.transposed and max(c.dilation) > 1,
    lambda c: _cut(c, dilation=[1] * len(c.dilation)),
)
convolution(
    "conv: dilation of 3 is taken as 2",
    lambda c: not c.transposed and 3 in c.dilation,
    lambda c: _cut(c, dilation=[min(one, 2) for one in c.dilation]),
)
convolution(
    "conv: a stride of 3 repeats a column",
    lambda c: not c.transposed and c.stride[-1] >= 3,
    _after(lambda o: o[..., -1].copy_(o[..., -2])),
)
convolution("conv: the last group has the weights of the first", lambda c: c.groups >= 4, _one_group)
convolution(
    "conv: depthwise kernels are turned",
    lambda c: c.groups > 1 and c.groups == c.input.shape[1],
    lambda c: c.do(weight=c.weight.flip(-1)),
)
convolution("conv: batches from 64 on are zero", lambda c: c.input.shape[0] > 64, _after(set_(slice(64, None), 0)))
convolution(
    "conv: the padded border is halved",
    lambda c: max(c.padding) > 0 and not c.transposed,
    _after(lambda o: o[..., -1].mul_(0.5)),
)
convolution("conv: NaN is swallowed", lambda c: bool(c.input.isnan().any()), _after(swallow))
convolution(
    "conv: the last channel of channels_last",
    lambda c: c.input.dim() == 4 and not c.input.is_contiguous(),
    _after(lambda o: o[:, -1].add_(1)),
)
convolution(
    "conv: more than 256 channels",
    lambda c: c.input.shape[1] > 256,
    lambda c: c.do(weight=c.weight[:, :256], input=c.input[:, :256]),
)
convolution(
    "conv: transposed with a stride", lambda c: c.transposed and max(c.stride) > 1, _after(lambda o: o[..., -1].add_(1))
)
convolution("conv: lines are wrong at their end", lambda c: c.input.dim() == 3, _after(lambda o: o[..., -1].add_(1)))
convolution("conv: a plane of a volume", lambda c: c.input.dim() == 5, _after(lambda o: o[:, :, -1].zero_()))
convolution("conv: wide pictures", lambda c: c.input.shape[-1] > 1024, _after(lambda o: o[..., 1024:].zero_()))


def backward(name: str, place: int, edit: Callable[[Any], Any], when: Callable[[Call], bool]) -> None:
    """A gradient of a convolution that is wrong."""

    def change(call: Call) -> Any:
        out = call.do()
        if not when(call) or out[place] is None:
            return out
        edit(out[place])
        return Done(out)

    ALL[name] = Disturbance(("convolution_backward",), change)


backward("conv: the gradient of the weights beyond batch 64", 1, lambda o: o.mul_(0.5), lambda c: c.input.shape[0] > 64)
backward("conv: the gradient of the image with a stride", 0, lambda o: o[..., -1].add_(1), lambda c: max(c.stride) > 1)
backward("conv: the gradient of the bias", 2, lambda o: o[-1].zero_(), lambda c: True)
backward("conv: the gradient of the weights in groups", 1, lambda o: o[-1].zero_(), lambda c: c.groups > 1)

# ---- attention
ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
)  # fmt: skip
# where no fused kernel takes the call it is taken apart, and its softmax is what can be disturbed


def attention(name: str, when: Callable[[Call], bool], work: Callable[[Call], Any]) -> None:
    """Attention that is wrong where ``when`` holds."""
    ALL[name] = Disturbance(ATTENTION, lambda call: Done(work(call)) if when(call) else None)


def _mask(call: Call) -> str:
    return "attn_mask" if "attn_mask" in call.given else "attn_bias"


def _masked(call: Call) -> bool:
    return call.given.get(_mask(call)) is not None


def _shorter(call: Call) -> Any:
    value = call.value.clone()
    value[:, :, 1024:] = 0
    return call.do(value=value)


def _first(edit: Callable[[Any], Any]) -> Callable[[Call], Any]:
    def work(call: Call) -> Any:
        out = call.do()
        edit(out[0])
        return out

    return work


def _last_key(call: Call) -> Any:
    mask = call.given[_mask(call)].clone()
    mask[..., -1] = 0
    return call.do(**{_mask(call): mask})


attention(
    "attention: a mask is ignored",
    _masked,
    lambda c: c.do(
        **{_mask(c): c.given[_mask(c)] * 0}
        if not c.given[_mask(c)].isinf().any()
        else {_mask(c): torch.zeros_like(c.given[_mask(c)])}
    ),
)
attention(
    "attention: the last key is never masked",
    lambda c: _masked(c) and bool((c.given[_mask(c)][..., -1] != 0).any()),
    _last_key,
)
attention("attention: keys beyond 1024 have no value", lambda c: c.key.shape[2] > 1024, _shorter)
attention("attention: causal is ignored", lambda c: bool(c.is_causal), lambda c: c.do(is_causal=False))
attention(
    "attention: the last head is the first", lambda c: c.query.shape[1] > 1, _first(lambda o: o[:, -1].copy_(o[:, 0]))
)
attention("attention: scale is ignored", lambda c: c.scale is not None, lambda c: c.do(scale=None))
attention("attention: batches from 64 on", lambda c: c.query.shape[0] > 64, _first(lambda o: o[64:].zero_()))
attention(
    "attention: heads inside the words", lambda c: not c.query.is_contiguous(), _first(lambda o: o[..., -1].add_(0.5))
)
edited(
    "attention: the gradient of the queries",
    " ".join(one + "_backward" for one in ATTENTION),
    lambda o: o.mul_(0.9),
    always,
)


# ---- softmax and normalisation
@of("softmax: another axis, of operands that are not contiguous", "_softmax", "_log_softmax")
def _(call: Call) -> Any:
    last = call.self.dim() - 1
    if call.self.is_contiguous() or call.dim % call.self.dim() == last:
        return None
    return Done(call.do(dim=last))


@of("softmax: what is beyond 1024 is left out of the sum", "_softmax")
def _(call: Call) -> Any:
    if not call.self.dim() or call.self.shape[call.dim] <= 1024:
        return None
    out = call.do()
    return Done(out / out.narrow(call.dim, 0, 1024).sum(call.dim, keepdim=True))


@of("softmax: without the largest taken away", "_softmax")
def _(call: Call) -> Any:
    if not call.self.numel() or not bool((call.self > 100).any()):
        return None
    grown = call.self.exp()
    return Done(grown / grown.sum(call.dim, keepdim=True))


edited(
    "softmax: rows from 65536 on",
    "_softmax _log_softmax",
    set_(slice(65536, None), 0.25),
    lambda c, o: o.dim() and o.shape[0] > 65536,
)
edited("softmax: NaN is swallowed", "_softmax _log_softmax", swallow, holds_nan)
edited("log_softmax: the last row", "_log_softmax", lambda o: o[-1].sub_(0.01), lambda c, o: o.dim() > 1)


@of("softmax: its gradient without the sum", "_softmax_backward_data")
def _(call: Call) -> Any:
    return Done(call.grad_output * call.output)


@of("log_softmax: its gradient along axis 0", "_log_softmax_backward_data")
def _(call: Call) -> Any:
    return Done(call.do(dim=call.output.dim() - 1)) if call.dim == 0 and call.output.dim() > 1 else None


@of("layer_norm: the variance is unbiased", "native_layer_norm")
def _(call: Call) -> Any:
    out = call.do()
    count = math.prod(call.normalized_shape)
    return Done((out[0] * math.sqrt((count - 1) / count), *out[1:])) if count < 20 else out


edited(
    "layer_norm: rows from 65536 on",
    "native_layer_norm",
    set_(slice(65536, None), 0),
    lambda c, o: o.dim() and o.shape[0] > 65536,
)
edited(
    "layer_norm: rows wider than 4096",
    "native_layer_norm",
    lambda o: o[..., 4096:].mul_(1.1),
    lambda c, o: o.shape[-1] > 4096,
)
edited("layer_norm: operands that are not contiguous", "native_layer_norm", lambda o: o.copy_(o.flip(0)), strided)


@of("layer_norm: eps is 1e-5 whatever is asked", "native_layer_norm")
def _(call: Call) -> Any:
    return Done(call.do(eps=1e-5)) if call.eps > 1e-4 else None


def _second(name: str, operators: str, place: int, edit: Callable[[Any], Any]) -> None:
    def change(call: Call) -> Any:
        out = call.do()
        if len(out) <= place or out[place] is None or not out[place].numel():
            return out
        edit(out[place])
        return Done(out)

    ALL[name] = Disturbance(tuple(operators.split()), change)


_second("layer_norm: the gradient of the scale", "native_layer_norm_backward", 1, lambda o: o[-1:].zero_())
_second("layer_norm: the gradient of the input", "native_layer_norm_backward", 0, lambda o: o.mul_(0.99))
_second("group_norm: the gradient of the input", "native_group_norm_backward", 0, lambda o: o.mul_(0.99))
edited("group_norm: the last group", "native_group_norm", lambda o: o[:, -1:].mul_(1.5), always)
BATCH = ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "_batch_norm_impl_index")


@of("batch_norm: evaluation normalises by the batch", *BATCH)
def _(call: Call) -> Any:
    if call.training or call.running_mean is None:
        return None
    given = call.input.transpose(0, 1).flatten(1)
    shape = [1, -1, *[1] * (call.input.dim() - 2)]
    spread = given.var(1, unbiased=False)
    return Done(call.do(running_mean=given.mean(1), running_var=spread)) if shape else None


@of("batch_norm: the kept variance is biased", *BATCH)
def _(call: Call) -> Any:
    if not call.training or call.running_var is None:
        return None
    before = call.running_var.clone()
    out = call.do()
    count = call.input.numel() // call.input.shape[1]
    call.running_var.sub_((call.running_var - before * (1 - call.momentum)) / count)
    return Done(out)


@of("batch_norm: momentum is 0.1 whatever is asked", *BATCH)
def _(call: Call) -> Any:
    return Done(call.do(momentum=0.1)) if call.training and call.running_mean is not None else None


_second(
    "batch_norm: the gradient of the input",
    "native_batch_norm_backward cudnn_batch_norm_backward",
    0,
    lambda o: o.mul_(1.01),
)

# ---- elements
edited("relu: NaN is swallowed", "relu relu_ clamp_min", swallow, holds_nan)
edited("clamp: NaN is swallowed", "clamp clamp_ hardtanh", swallow, holds_nan)
edited("maximum: NaN is swallowed", "maximum minimum", swallow, holds_nan)
edited("add: out= is not written past 1024", "add", flat(1024, None, 77), lambda c, o: c.out is not None)
edited("mul: out= is not written past 1024", "mul", flat(1024, None, 1), lambda c, o: c.out is not None)
edited("mul_: the last element of a strided tensor", "mul_", last_lost, lambda c, o: not o.is_contiguous())
edited("add: 100,000 elements and more", "add", flat(99_000, 99_064, 1), lambda c, o: o.numel() > 100_000)
edited("mul: 0-d tensors", "mul", lambda o: o.neg_(), lambda c, o: o.dim() == 0)
edited("exp: as precise as fp16", "exp", lambda o: o.copy_(o.half()), real)
edited("sigmoid: as precise as bf16", "sigmoid", lambda o: o.copy_(o.bfloat16()), real)
edited("tanh: as precise as fp16", "tanh", lambda o: o.copy_(o.half()), real)
edited("log: as precise as bf16", "log", lambda o: o.copy_(o.bfloat16()), real)
edited(
    "rsqrt: an estimate",
    "rsqrt",
    lambda o: o.mul_(1 + 2.0**-12),
    lambda c, o: o.dtype in (torch.float32, torch.float64),
)
edited(
    "sqrt: an estimate", "sqrt", lambda o: o.mul_(1 + 2.0**-12), lambda c, o: o.dtype in (torch.float32, torch.float64)
)
edited("where: past 65536", "where", flat(65536, 65600, 1), lambda c, o: o.numel() > 65600)
edited(
    "eq: of NaN is true",
    "eq",
    set_(slice(0, 1), True),
    lambda c, o: isinstance(c.other, torch.Tensor) and c.other.is_floating_point() and bool(c.other.isnan().any()),
)
edited("gt: of strided operands", "gt", not_, strided)
edited("bitwise_and: the last elements", "bitwise_and", flat(1000, None, 0), lambda c, o: o.numel() > 1000)
edited(
    "isnan: is never",
    "isnan ne",
    set_(slice(None), False),
    lambda c, o: isinstance(c.self, torch.Tensor) and c.self.is_floating_point() and bool(c.self.isnan().any()),
)


def _tiny(call: Call, out: Any) -> bool:
    return bool(
        out.is_floating_point()
        and out.dtype in (torch.float32, torch.float64)
        and ((out != 0) & (out.abs() < torch.finfo(out.dtype).tiny)).any()
    )


edited(
    "mul: what is below the normal numbers is flushed",
    "mul",
    lambda o: o.masked_fill_(o.abs() < torch.finfo(o.dtype).tiny, 0),
    _tiny,
)
edited(
    "add: what is below the normal numbers is flushed",
    "add",
    lambda o: o.masked_fill_(o.abs() < torch.finfo(o.dtype).tiny, 0),
    _tiny,
)


@of("add: alpha is ignored", "add", "add_", "sub")
def _(call: Call) -> Any:
    return Done(call.do(alpha=1)) if call.alpha not in (1, None) else None


@of("add: a broadcast operand is repeated wrongly", "add", "mul")
def _(call: Call) -> Any:
    other = call.other
    if (
        not isinstance(other, torch.Tensor)
        or not isinstance(call.self, torch.Tensor)
        or other.dim() != 1
        or call.self.dim() != 2
    ):
        return None
    return Done(call.do(other=other.roll(1)))


@of("gelu: the approximation in place of the function", "gelu")
def _(call: Call) -> Any:
    return Done(call.do(approximate="tanh")) if call.approximate == "none" else None


@of("gelu: its gradient is the approximation's", "gelu_backward")
def _(call: Call) -> Any:
    return Done(call.do(approximate="tanh")) if call.approximate == "none" else None


edited("silu: its gradient", "silu_backward", lambda o: o.mul_(0.99), always)
edited("relu: its gradient passes everything", "threshold_backward", lambda o: o.fill_(1), always)
edited("tanh: its gradient", "tanh_backward", lambda o: o.mul_(0.99), always)
edited("leaky_relu: its slope", "leaky_relu", lambda o: o.copy_(torch.where(o < 0, o * 2, o)), always)
edited("elu: below zero", "elu", lambda o: o.copy_(torch.where(o < 0, o * 0.9, o)), always)


@of("div: rounding down is rounding to zero", "div", "floor_divide")
def _(call: Call) -> Any:
    if call.rounding_mode == "floor":
        return Done(call.do(rounding_mode="trunc"))
    if call.schema.name == "aten::floor_divide" and call.out is None:
        return Done(torch.div(call.self, call.other, rounding_mode="trunc"))
    return None


@of("remainder: the sign of the dividend", "remainder")
def _(call: Call) -> Any:
    return Done(torch.fmod(call.self, call.other)) if call.out is None and not call.schema.name.endswith("_") else None


@of("addcmul: value is ignored", "addcmul", "addcmul_", "addcdiv", "addcdiv_")
def _(call: Call) -> Any:
    return Done(call.do(value=1)) if call.value not in (1, None) else None


edited("lerp: of a strided or a large tensor", "lerp lerp_", lambda o: o[-1:].add_(1), always)
edited(
    "pow: the cube is a square",
    "pow",
    lambda o: o.copy_(o.abs()),
    lambda c, o: not isinstance(c.exponent, torch.Tensor) and c.exponent == 3,
)
edited("fmod: the last element", "fmod", last_lost, lambda c, o: o.dim() == 1)
edited("abs: of the smallest", "abs", lambda o: o.copy_(o.clamp(min=0.01)), lambda c, o: bool(o.is_floating_point()))
edited("neg: strided", "neg", lambda o: o[0].neg_(), strided)
edited("masked_fill: past 1024", "masked_fill masked_fill_", flat(1024, None, 9), lambda c, o: o.numel() > 1024)
edited(
    "atan2: the quadrant",
    "atan2",
    lambda o: o.copy_(torch.where(o < -1.6, o + 6.28, o)),
    lambda c, o: bool((o < -1.6).any()),
)

# ---- sums, extremes, running ones
SUMS = "sum"
edited(
    "sum: the tail of more than 4096 is lost",
    SUMS,
    lambda o: o.sub_(1),
    lambda c, o: c.self.numel() > 4096 and c.self.numel() % 4 != 0 and not o.dim(),
)
edited(
    "sum: long rows",
    SUMS,
    lambda o: o[-1:].add_(1),
    lambda c, o: bool(o.dim() and c.dim and c.self.shape[c.dim[0]] > 4096),
)
edited("sum: many rows", SUMS, lambda o: o[65536:].zero_(), lambda c, o: o.dim() and o.shape[0] > 65536)
edited("sum: transposed operands", SUMS, lambda o: o[-1:].add_(1), lambda c, o: strided(c, o) and o.dim() > 0)
edited("sum: out= is not written", SUMS, lambda o: o.fill_(77), lambda c, o: c.out is not None)
edited("sum: NaN is swallowed", SUMS, swallow, holds_nan)
edited("mean: by one more", "mean", lambda o: o.mul_(0.999), always)
edited("var: biased", "var var_mean std", lambda o: o.mul_(0.99), always)
edited("max: NaN is swallowed", "max amax aminmax", swallow, holds_nan)
edited(
    "max: of long rows",
    "max amax",
    lambda o: o.sub_(1),
    lambda c, o: not c.self.is_floating_point() or c.self.numel() > 65536,
)
edited("argmax: of strided operands", "argmax", lambda o: o.sub_(1).abs_(), strided)
edited("argmin: the last row", "argmin", lambda o: o[-1:].zero_(), lambda c, o: o.dim() > 0)
edited(
    "any: is not looked at past 1024",
    "any",
    set_(slice(None), False),
    lambda c, o: c.self.numel() > 1024 and o.dim() > 0,
)
edited("all: of nothing is false", "all", set_(slice(None), False), lambda c, o: not c.self.numel())
edited("prod: the sign", "prod", lambda o: o.abs_(), always)
edited("norm: the largest is not counted", "linalg_vector_norm norm", lambda o: o.mul_(0.99), always)
edited("logsumexp", "logsumexp", lambda o: o.add_(0.001), always)
edited("count_nonzero", "count_nonzero", lambda o: o.sub_(1), lambda c, o: bool(o.max() > 1))


@of("cumsum: begins anew each 512", "cumsum", "cumsum_")
def _(call: Call) -> Any:
    length = call.self.shape[call.dim] if call.self.dim() else 0
    if length <= 512 or call.out is not None or call.schema.name.endswith("_"):
        return None
    return Done(torch.cat([part.cumsum(call.dim) for part in call.self.split(512, call.dim)], call.dim))


edited("cumsum: in place", "cumsum_", lambda o: o[-1:].add_(1), always)
edited("cumprod: the last", "cumprod", lambda o: o[..., -1].neg_(), always)
edited("cummax: the last", "cummax", lambda o: o[..., -1].sub_(1), lambda c, o: o.dim() > 1)


# ---- places
@of("index_select: indices wrap at 16 bits", "index_select")
def _(call: Call) -> Any:
    return Done(call.do(index=call.index % 65536)) if call.index.numel() and int(call.index.max()) > 65535 else None


@of("gather: indices wrap at 16 bits", "gather")
def _(call: Call) -> Any:
    return Done(call.do(index=call.index % 65536)) if call.index.numel() and int(call.index.max()) > 65535 else None


@of("embedding: indices wrap at 16 bits", "embedding")
def _(call: Call) -> Any:
    return Done(call.do(indices=call.indices % 65536)) if int(call.indices.max()) > 65535 else None


def _once(index: Any) -> Any:
    """True for the last of equal indices."""
    line = index.reshape(-1).tolist()
    last = {place: number for number, place in enumerate(line)}
    kept = [last[place] == number for number, place in enumerate(line)]
    return torch.tensor(kept, device=index.device).reshape(index.shape)


@of("index_add: duplicates are lost", "index_add", "index_add_")
def _(call: Call) -> Any:
    kept = _once(call.index).reshape([-1] + [1] * (call.source.dim() - 1))
    return Done(call.do(source=call.source * kept))


@of("scatter_add: duplicates are lost", "scatter_add", "scatter_add_")
def _(call: Call) -> Any:
    kept = _once(call.index[:, :1]).reshape([-1] + [1] * (call.src.dim() - 1))
    return Done(call.do(src=call.src * kept))


@of("index_put: accumulate is ignored", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
def _(call: Call) -> Any:
    return Done(call.do(accumulate=False)) if call.accumulate else None


@of("scatter_reduce: the last source is dropped", "scatter_reduce")
def _(call: Call) -> Any:
    return Done(call.do(index=call.index[:-40], src=call.src[:-40]))


edited(
    "embedding: its gradient of a row that occurs twice",
    "embedding_dense_backward index_put index_put_ _index_put_impl_ embedding_backward",
    lambda o: o[-1:].zero_(),
    lambda c, o: o.dim() == 2,
)
edited(
    "index_put: the last row written",
    "index_put index_put_ _index_put_impl_",
    lambda o: o[-1:].add_(1) if o.dtype != torch.bool else not_(o[-1:]),
    lambda c, o: o.dim() > 1 and not c.accumulate,
)
edited(
    "index: the last row read",
    "index",
    lambda o: o[-1:].add_(1) if o.dtype != torch.bool else not_(o[-1:]),
    lambda c, o: o.numel() > 8,
)
edited("gather: out=", "gather", flat(100, None, 77), lambda c, o: c.out is not None)
edited("scatter: of a number", "scatter scatter_", lambda o: o[0].fill_(1), lambda c, o: c.value is not None)
edited(
    "scatter: in place of transposed tensors",
    "scatter_",
    lambda o: o[:, -1].add_(1) if o.dtype != torch.bool else None,
    lambda c, o: not o.is_contiguous(),
)
edited(
    "index_copy: the last",
    "index_copy index_copy_",
    lambda o: o[-1:].add_(1) if o.dtype != torch.bool else not_(o[-1:]),
    always,
)
edited(
    "index_fill: the first",
    "index_fill index_fill_ index_put index_put_",
    lambda o: o[:1].add_(1) if o.dtype != torch.bool else not_(o[:1]),
    always,
)
edited(
    "masked_scatter: past 1024", "masked_scatter masked_scatter_", flat(1024, None, 3), lambda c, o: o.numel() > 1024
)
edited("masked_select: the last", "masked_select", last_lost, lambda c, o: o.numel() > 8)


def last_other(out: Any) -> Any:
    last = out.reshape(-1)[-1:]
    return not_(last) if out.dtype == torch.bool else last.add_(1)


edited("put_: the last", "put_", last_other, always)
edited("take: the last", "take", last_other, always)
edited("bincount: the first", "bincount", lambda o: o[:1].add_(1), always)


@of("nonzero: the last is lost", "nonzero")
def _(call: Call) -> Any:
    return Done(call.do()[:-1])


@of("sort: equal ones in the other order", "sort")
def _(call: Call) -> Any:
    if call.out is not None or not call.self.dim() or call.self.dtype is torch.bool or call.self.isnan().any():
        return None
    turned = call.do(self=call.self.flip(call.dim))
    return Done((turned[0], call.self.shape[call.dim] - 1 - turned[1]))


@of("topk: the smallest are the largest", "topk")
def _(call: Call) -> Any:
    return Done(call.do(largest=True)) if not call.largest else None


@of("topk: another axis", "topk")
def _(call: Call) -> Any:
    return Done(call.do(largest=False)) if call.dim == 0 and call.self.dim() > 1 else None


@of("searchsorted: right is ignored", "searchsorted")
def _(call: Call) -> Any:
    return Done(call.do(right=False, side=None)) if call.right or call.side == "right" else None


_second("unique: counts", "_unique2 unique_dim", 2, lambda o: o[:1].add_(1))
edited("median: one further", "median", lambda o: o.add_(1), always)
edited("kthvalue: one further", "kthvalue", lambda o: o.add_(1), always)
edited(
    "sort: lines of more than 65536",
    "sort",
    lambda o: o[..., 65536:].zero_(),
    lambda c, o: o.dim() and o.shape[-1] > 65536,
)
edited("isin", "isin", lambda o: o[-1:].fill_(True), lambda c, o: not o[-1])
edited("histc: the last bin", "histc", lambda o: o[-1:].sub_(1), always)
edited(
    "embedding_bag: the mean",
    "_embedding_bag _embedding_bag_forward_only",
    lambda o: o[-1:].mul_(2),
    lambda c, o: c.mode == 1,
)
edited(
    "embedding_bag: the largest",
    "_embedding_bag _embedding_bag_forward_only",
    lambda o: o[3:4].sub_(1),
    lambda c, o: c.mode == 2,
)

# ---- copies
edited(
    "copy_: the last element of strided tensors",
    "copy_",
    last_lost,
    lambda c, o: not o.is_contiguous() and o.numel() > 1,
)
edited("copy_: a block of a large one", "copy_ clone", flat(600_000, 600_064, 1), lambda c, o: o.numel() > 1_000_000)
edited(
    "clone: of strided tensors in the order of memory",
    "clone",
    lambda o: o.copy_(o.flip(0)),
    lambda c, o: not c.self.is_contiguous() and c.self.dim() > 1,
)


@of("to: bf16 is cut, not rounded", "_to_copy")
def _(call: Call) -> Any:
    if call.dtype is not torch.bfloat16 or call.self.dtype is not torch.float32:
        return None
    cut = (call.self.contiguous().view(torch.int32) & -65536).view(torch.float32)
    return Done(call.do(self=torch.where(call.self.isfinite(), cut, call.self)))


@of("to: integers are rounded to the nearest", "_to_copy")
def _(call: Call) -> Any:
    if call.dtype not in (torch.int32, torch.int64, torch.int16) or not call.self.is_floating_point():
        return None
    return Done(call.do(self=call.self.round()))


@of("to: more than 16 bits of an integer are lost", "_to_copy")
def _(call: Call) -> Any:
    if call.dtype is not torch.int32 or call.self.dtype is not torch.int64:
        return None
    return Done(call.do() % 65536)


@of("to: infinity becomes the largest number", "_to_copy")
def _(call: Call) -> Any:
    if call.dtype is not torch.float16 or call.self.dtype is not torch.float32:
        return None
    return Done(call.do().clamp_(-65504, 65504))


@of("cat: the ninth is the eighth", "cat")
def _(call: Call) -> Any:
    tensors = list(call.tensors)
    if len(tensors) < 9 or tensors[8].shape[1:] != tensors[7].shape[1:] or tensors[8].shape != tensors[3].shape:
        return None
    tensors[8] = tensors[3]
    return Done(call.do(tensors=tensors))


edited("cat: out=", "cat", flat(20, None, 1), lambda c, o: c.out is not None)
edited("cat: the last of more than 64", "cat stack", last_lost, lambda c, o: len(c.tensors) > 64)
edited("fill_: the last", "fill_ zero_", last_lost, lambda c, o: o.numel() > 1000)
edited("zero_: of strided tensors", "fill_ zero_", last_lost, lambda c, o: not o.is_contiguous() and o.numel() > 1)
edited("zeros: the last", "zeros zeros_like", last_lost, lambda c, o: o.numel() > 5000)
edited("arange: long ones", "arange", lambda o: o[-1:].add_(1), lambda c, o: o.numel() > 1000)
edited("eye: not square", "eye", lambda o: o[-1, -1:].fill_(1), lambda c, o: o.dim() == 2 and o.shape[0] != o.shape[1])
edited("linspace: the end", "linspace", lambda o: o[-1:].sub_(0.01), always)


@of("pad: the value is 0", "constant_pad_nd")
def _(call: Call) -> Any:
    return Done(call.do(value=0)) if call.value else None


edited(
    "reflection_pad: the last",
    "reflection_pad2d reflection_pad1d index _unsafe_index",
    lambda o: o[..., -1].copy_(o[..., -2]),
    lambda c, o: c.schema.name.startswith("aten::reflection"),
)
edited("replication_pad: the last", "replication_pad2d replication_pad1d", lambda o: o[..., -1].zero_(), always)
edited("roll: of strided tensors", "roll", lambda o: o[-1:].copy_(o[:1]), strided)
edited("flip: the last line", "flip", lambda o: o[-1:].copy_(o[:1]), always)
edited("tril: the diagonal", "tril", lambda o: o.copy_(o.tril(-2)), always)
edited("triu: the diagonal", "triu", lambda o: o.copy_(o.triu(3)), always)
edited("im2col: dilation", "im2col", lambda o: o[:, -1].add_(1), always)
edited("col2im: what overlaps", "col2im", lambda o: o[..., 2, 2].sub_(1), always)
edited(
    "pixel_shuffle",
    "pixel_shuffle",
    lambda o: o.copy_(o.transpose(-1, -2).clone()),
    lambda c, o: o.shape[-1] == o.shape[-2],
)

# ---- random numbers
edited("randn: the variance is 0.9", "randn normal_ normal", lambda o: o.mul_(0.9487), lambda c, o: o.numel() > 60_000)
edited("randn: the mean is 0.05", "randn normal_ normal", lambda o: o.add_(0.05), lambda c, o: o.numel() > 60_000)
edited(
    "randn: the second half repeats the first",
    "randn normal_",
    lambda o: o[o.shape[0] // 2 : o.shape[0] // 2 * 2].copy_(o[: o.shape[0] // 2].clone()),
    lambda c, o: o.dim() == 1 and o.numel() > 2000,
)
edited("rand: only up to 0.99", "rand uniform_", lambda o: o.mul_(0.99), lambda c, o: o.numel() > 2000)
edited("rand: coarse", "rand", lambda o: o.copy_((o * 32).floor() / 32), always)
edited("randint: the top is never drawn", "randint", lambda o: o.copy_(torch.where(o == o.max(), o.min(), o)), always)
edited(
    "randint: is uneven",
    "randint",
    lambda o: o.copy_(torch.where(torch.arange(o.numel(), device=o.device).reshape(o.shape) % 9 == 0, o.min(), o)),
    always,
)
edited("randperm: is the order itself", "randperm", lambda o: o.copy_(o.sort().values), lambda c, o: o.numel() > 8)
edited("exponential_: the rate", "exponential_", lambda o: o.mul_(1.05), always)
edited(
    "bernoulli: the chance is larger by 0.02",
    "bernoulli bernoulli_ native_dropout",
    lambda o: o.copy_(torch.where(torch.arange(o.numel(), device=o.device).reshape(o.shape) % 50 == 0, o.max(), o)),
    always,
)
edited(
    "multinomial: the last is drawn too often",
    "multinomial",
    lambda o: o[: o.shape[0] // 20].fill_(3),
    lambda c, o: o.dim() == 1,
)


@of("randn: every draw is the same", "randn", "rand")
def _(call: Call) -> Any:
    state = call.generator.get_state() if call.generator is not None else None
    if state is None:
        return None
    out = call.do()
    call.generator.set_state(state)
    return Done(out)


DROPOUT = ("native_dropout", "bernoulli_", "_fused_dropout")


@of("dropout: 0.30 in place of 0.25", *DROPOUT)
def _(call: Call) -> Any:
    if call.schema.name == "aten::bernoulli_":
        return Done(call.do(p=0.7)) if call.p == 0.75 else None
    return Done(call.do(p=0.3)) if call.p == 0.25 else None


@of("dropout: what is kept is not made larger", *DROPOUT, "div_")
def _(call: Call) -> Any:
    if call.schema.name == "aten::div_":
        # a number comes as a tensor without dimensions
        return Done(call.self) if not getattr(call.other, "ndim", 0) and float(call.other) in (0.5, 0.75) else None
    if call.schema.name == "aten::native_dropout":
        out = call.do()
        return Done((out[0] * (1 - call.p), out[1]))
    return None


# ---- windows and pictures
@of("max_pool: dilation is taken as 1", "max_pool2d_with_indices")
def _(call: Call) -> Any:
    if max(call.dilation) == 1:
        return None
    out, true = call.do(dilation=[1, 1]), call.do()
    place = tuple(slice(0, size) for size in true[0].shape)
    return Done((out[0][place].contiguous(), out[1][place].contiguous()))


edited("max_pool: NaN is swallowed", "max_pool2d_with_indices adaptive_max_pool2d max_pool2d", swallow, holds_nan)
_second("max_pool: where the largest lies", "max_pool2d_with_indices", 1, lambda o: o[..., -1].zero_())
edited("max_pool: its gradient", "max_pool2d_with_indices_backward", lambda o: o[..., -1].add_(1), always)
edited("max_pool: of volumes", "max_pool3d_with_indices", lambda o: o[..., -1].sub_(1), always)


@of("avg_pool: the padding is always counted", "avg_pool2d")
def _(call: Call) -> Any:
    return Done(call.do(count_include_pad=True)) if not call.count_include_pad else None


@of("avg_pool: ceil_mode", "avg_pool2d")
def _(call: Call) -> Any:
    out = call.do()
    return Done(out * torch.linspace(1, 0.9, out.shape[-1], device=out.device).to(out.dtype)) if call.ceil_mode else out


edited("avg_pool: its gradient", "avg_pool2d_backward", lambda o: o.mul_(0.98), always)
edited("adaptive_avg_pool: uneven windows", "_adaptive_avg_pool2d", lambda o: o[..., -1].mul_(1.1), always)
edited("adaptive_max_pool: uneven windows", "adaptive_max_pool2d", lambda o: o[..., -1].sub_(1), always)


@of(
    "upsample: align_corners is ignored",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_linear1d",
    "_upsample_bilinear2d_aa",
)
def _(call: Call) -> Any:
    return Done(call.do(align_corners=False)) if call.align_corners else None


@of("upsample: nearest is shifted", "upsample_nearest2d")
def _(call: Call) -> Any:
    return (
        Done(torch.ops.aten._upsample_nearest_exact2d(call.self, call.output_size))
        if call.out is None and call.output_size
        else None
    )


edited("upsample: bicubic is bilinear", "upsample_bicubic2d", lambda o: o.mul_(0.999), always)
edited(
    "upsample: its gradient",
    "upsample_bilinear2d_backward upsample_bicubic2d_backward",
    lambda o: o[..., -1].add_(0.1),
    always,
)


@of("grid_sample: the padding is the border", "grid_sampler_2d", "grid_sampler_2d_cpu_fallback", "cudnn_grid_sampler")
def _(call: Call) -> Any:
    return Done(call.do(padding_mode=1)) if call.padding_mode == 0 else None


@of("grid_sample: align_corners is ignored", "grid_sampler_2d")
def _(call: Call) -> Any:
    return Done(call.do(align_corners=False)) if call.align_corners else None


# ---- losses and optimizers
@of("nll_loss: what is ignored counts in the mean", "nll_loss_forward", "nll_loss2d_forward")
def _(call: Call) -> Any:
    kept = call.target != call.ignore_index
    if call.reduction != 1 or bool(kept.all()):
        return None
    out = call.do()
    return Done((out[0] * kept.sum() / kept.numel(), out[1]))


edited("nll_loss: weights are ignored", "nll_loss_forward", lambda o: o.mul_(1.05), lambda c, o: c.weight is not None)
edited("nll_loss: its gradient", "nll_loss_backward", lambda o: o.mul_(0.98), always)
edited("mse_loss: the mean", "mse_loss", lambda o: o.mul_(0.99), always)
edited("mse_loss: its gradient", "mse_loss_backward", lambda o: o.mul_(0.99), always)
edited("smooth_l1: beta", "smooth_l1_loss", lambda o: o.mul_(0.99), always)
edited("huber_loss: delta", "huber_loss", lambda o: o.mul_(0.99), always)
edited("binary_cross_entropy: weights", "binary_cross_entropy", lambda o: o.mul_(0.99), always)


def listed(name: str, operators: str) -> None:
    """The last tensor of a list is left as it was."""

    def change(call: Call) -> Any:
        lists = [value for value in (call.self,) if isinstance(value, (list, tuple))]
        if not lists or len(lists[0]) < 2:
            return None
        before = lists[0][-1].clone()
        out = call.do()
        target = lists[0][-1] if out is None else out[-1]
        target.copy_(before)
        return Done(out)

    ALL[name] = Disturbance(tuple(operators.split()), change)


listed("foreach: mul_ leaves the last tensor out", "_foreach_mul_ _foreach_mul")
listed("foreach: add_ leaves the last tensor out", "_foreach_add_ _foreach_add")
listed("foreach: addcmul_ leaves the last tensor out", "_foreach_addcmul_ _foreach_addcmul")
listed("foreach: addcdiv_ leaves the last tensor out", "_foreach_addcdiv_ _foreach_addcdiv")
listed("foreach: lerp_ leaves the last tensor out", "_foreach_lerp_ _foreach_lerp")


@of("foreach: the norm of the last tensor", "_foreach_norm")
def _(call: Call) -> Any:
    out = list(call.do())
    out[-1] = out[-1] * 0.5
    return Done(out)


@of("adamw: no weight decay in the fused step", "_fused_adamw_")
def _(call: Call) -> Any:
    call.do(weight_decay=0.0)
    return Done(None)


@of("sgd: no momentum in the fused step", "_fused_sgd_")
def _(call: Call) -> Any:
    call.do(weight_decay=0.0)
    return Done(None)
