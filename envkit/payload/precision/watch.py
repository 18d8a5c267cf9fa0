"""Watches a step in numbers of one width, operation by operation, beside its shadow in wide numbers.

What is written down is measured and holds no opinion, but for one: when an error counts as *exploded*.  The figure is
the dtype's own.  With ``eps`` the gap between 1 and the next number, an operation explodes when its output has lost
half of the digits that the dtype has (relative error above sqrt(eps)) and the operation itself multiplied what came
in, errors and rounding, by more than that half is worth (1 / sqrt(eps)).  An operation that is well conditioned
multiplies by about 1 (Higham, Accuracy and Stability of Numerical Algorithms, chapters 1 and 3).  Where single
precision would have no digits either, its error being smaller by the ratio of the two eps, the numbers are no
evidence against the dtype: the exact answer is most often zero.  (Of single precision itself doubles are asked.)
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from envkit.payload.lazy import torch
from envkit.payload.placement.lines import Site, caller
from envkit.payload.placement.watch import op_name, storage_of, tensors_in
from envkit.payload.precision import shadow

if TYPE_CHECKING:
    from envkit.payload.placement.lines import Places

_MOST = 1e30  # what a ratio is cut to, for a document has no infinity
_REPLAYED = 32  # products whose own rounding is measured in a step of single precision
_HOLES = 50
_BLOCK = 1 << 22  # elements that are measured at once: some 200 MB in doubles
_ATTENTION = "_scaled_dot_product"
_CASTS = ("to", "float", "double", "half", "bfloat16", "type", "type_as", "")  # the functions by which a model casts
_TAKES = os.path.join("payload", "precision", "work.py")  # whose frame calls backward()
PRODUCTS = (
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "linear", "convolution", "mm_", "addmm_",
    "baddbmm_", "addbmm_", "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu",
)  # fmt: skip
# PyTorch, "Automatic Mixed Precision package", the CUDA operations that autocast to float32, as the dispatcher names
# them.  Written in place, or to ``out=``, they are passed by.
WIDENED = (
    "exp", "expm1", "log", "log10", "log1p", "log2", "pow", "reciprocal", "rsqrt", "sinh", "cosh", "tan", "acos",
    "asin", "softplus", "cumprod", "cumsum", "erfinv", "prod", "sum", "renorm", "_softmax", "_log_softmax",
    "native_layer_norm", "native_group_norm", "linalg_vector_norm", "norm", "mse_loss", "smooth_l1_loss",
    "nll_loss_forward", "binary_cross_entropy_with_logits",
)  # fmt: skip


class Measured:
    """How the numbers of a tensor stand to its shadow.

    ``bad`` counts those that are not finite where the shadow is, ``both_bad`` where neither is, ``nans`` all NaN.
    """

    def __init__(self, low: Any, wide: Any) -> None:
        sums = [0.0] * 6
        self.largest = 0.0
        for own, meant in _blocks(low, wide):
            own = own.to(meant.dtype)
            seen, there = torch.isfinite(own), torch.isfinite(meant)
            zero = torch.zeros((), dtype=meant.dtype, device=meant.device)
            off = torch.where(seen & there, own - meant, zero)
            base = torch.where(seen & there, meant, zero)
            figures = [
                (off * off).sum(),
                (base * base).sum(),
                torch.where(own == 0, off, zero).pow(2).sum(),
                (~seen & there).sum().to(meant.dtype),
                torch.isnan(own).sum().to(meant.dtype),
                (~seen & ~there).sum().to(meant.dtype),
                torch.where(there, meant, zero).abs().max(),
            ]
            *more, largest = torch.stack(figures).tolist()
            sums = [one + other for one, other in zip(sums, more)]  # noqa: B905 - Python 3.8 has no strict
            self.largest = max(self.largest, largest)
        off2, base2, flushed2, bad, nans, both_bad = sums
        self.bad, self.nans, self.both_bad = int(bad), int(nans), int(both_bad)
        self.off2, self.base2 = off2, base2
        self.flushed = flushed2 / off2 if off2 else 0.0  # the part of the error that numbers flushed to zero make
        self.error = _ratio(math.sqrt(off2), math.sqrt(base2))


def _blocks(low: Any, wide: Any) -> Iterator[tuple[Any, Any]]:
    """Two tensors of one shape in blocks of at most _BLOCK elements, so that measuring costs little memory."""
    if low.numel() <= _BLOCK or low.dim() == 0:
        yield low, wide
    elif low.size(0) == 1:
        yield from _blocks(low[0], wide[0])
    else:
        half = low.size(0) // 2
        yield from _blocks(low[:half], wide[:half])
        yield from _blocks(low[half:], wide[half:])


def _ratio(error: float, size: float) -> float:
    """A relative error; 0 where there is nothing to err against and nothing erred."""
    if not error:
        return 0.0
    return min(error / size, _MOST) if size and math.isfinite(error) and math.isfinite(size) else _MOST


def own_site(places: Places, sites: dict[int, Site]) -> Site:
    """The user's line and module of the operation that runs; in a backward pass those of its forward operation.

    A line inside a Function's own backward is told as it is.
    """
    frame = caller()
    site = places.here(frame)
    if not _called_by_user(places, frame):
        site = Site("", "", site.module)
    node = getattr(torch._C, "_current_autograd_node", lambda: None)()
    if node is not None:
        ahead = sites.get(node._sequence_nr(), Site()) if hasattr(node, "_sequence_nr") else Site()
        line = site if site.where else ahead
        return Site(line.where, line.source, site.module or ahead.module)
    number = getattr(getattr(torch._C, "_autograd", None), "_get_sequence_nr", lambda: None)()
    if number is not None and torch.is_grad_enabled():
        sites.setdefault(number - 1, site)  # the first operation after a node was made is its own
    return site


def _called_by_user(places: Places, frame: Any) -> bool:
    """Whether a frame of the user's is at work: what lies beyond our own call of the model, or of ``backward``, does
    not count.  A backward pass comes to one in a Function of theirs."""
    while frame is not None and not frame.f_code.co_filename.endswith(_TAKES):
        if places.is_users(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


class Step:
    """What one watched step has shown.

    ``dtype`` is the one asked for.  Without ``shadows`` nothing is compared, and only checksums are taken.
    """

    def __init__(
        self, places: Places, dtype: Any, shadows: shadow.Shadows | None, device: str = "cpu", autocast: bool = False
    ) -> None:
        info = torch.finfo(dtype)
        self.places = places
        self.dtype = dtype
        self.compares = shadows is not None
        self.shadows = shadows or shadow.Shadows(dtype)
        self.device = device
        self.autocast = autocast
        self.eps = float(info.eps)
        finer = torch.finfo(torch.float64 if dtype == torch.float32 else torch.float32)
        self.scale = float(finer.eps) / self.eps  # by which the errors of the next finer dtype are smaller
        self.sites: dict[int, Site] = {}
        self.stage = "forward"
        self.watching = False
        self.busy = False
        self.inside_autocast = False
        self.function = ""  # of torch's, that the model called and that is at work
        self.operations = 0
        self.casts = 0
        self.unfollowed: dict[str, str] = {}
        self.refusal: dict[str, Any] | None = None
        self.refused: BaseException | None = None
        self.holes: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.sums: list[tuple[str, Site, int, int]] = []
        self.products: list[dict[str, Any]] = []

    # One operation.

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operation, its shadow, and compares them."""
        self.operations += 1
        namespace, name = op_name(func)
        site = own_site(self.places, self.sites)
        tensors = list(tensors_in((args, kwargs)))
        known = namespace in ("aten", "prims", "prim")
        before = checksum(tensors) if not self.compares and name not in shadow.EMPTY else 0
        state = self._before(func, name, args, kwargs, known) if self.compares else None
        try:
            out = func(*args, **kwargs)
        except Exception as error:  # torch's refusal is an answer, and goes on to whom it was meant for
            self._refused(namespace, name, tensors, error, site)
            raise
        if not self.compares:
            if name not in shadow.EMPTY:
                told = out[:1] if name.startswith(_ATTENTION) else out  # the rest is padded with what lay there
                self.sums.append((name, site, before, checksum(list(tensors_in((told, tensors))))))
            return out
        if state is not None:
            self._after(func, name, args, kwargs, out, state, site, known)
        self.shadows.sweep()
        return out

    def _refused(self, space: str, name: str, tensors: list[Any], error: BaseException, site: Site) -> None:
        if "OutOfMemory" in type(error).__name__:
            return
        self.refused = error
        self.refusal = {
            "op": name if space == "aten" else f"{space}::{name}",
            "stage": self.stage,
            "dtypes": sorted({_plain(each.dtype) for each in tensors}),
            "devices": sorted({each.device.type for each in tensors}),
            "message": f"{type(error).__name__}: {' '.join(str(error).split())[:600]}",
            **site._asdict(),
        }

    def _before(self, func: Any, name: str, args: Any, kwargs: Any, known: bool) -> dict[str, Any] | None:
        """What must be known before the operation overwrites it: how wrong each input is, and whose fault that is."""
        asked = shadow.writes(func)
        if asked.views and not asked.written:
            return None
        floats = shadow.floats_in((args, kwargs))
        worst, error, bad, held_bad = None, 0.0, None, False
        for each in floats:
            wide = self.shadows.of(each)
            held = self.shadows.held(each)
            measured = Measured(each, wide)
            if held is None:
                continue
            if measured.error > error:
                worst, error = held, measured.error
            if measured.bad or measured.both_bad:
                better = bad is None or (bad["kind"] == "everywhere" and held.bad is not None)
                bad, held_bad = held.bad if better else bad, True
        copies = [(each, each.clone()) for each in floats] if not known else []
        return {
            "writes": asked,
            "keys": {storage_of(each) for each in floats},
            "error": error,
            "worst": worst,
            "bad": bad,
            "was_bad": held_bad,
            "copies": copies,
        }

    def _after(
        self, func: Any, name: str, args: Any, kwargs: Any, out: Any, state: dict[str, Any], site: Site, known: bool
    ) -> None:
        shadows = self.shadows
        written = [args[at] if isinstance(at, int) and at < len(args) else kwargs.get(at) for at in
                   state["writes"].written]  # fmt: skip
        targets = shadow.floats_in(written)
        special = name in shadow.SPECIAL
        if not known:
            if not state["copies"] and not shadow.floats_in(out):
                return  # such as the profiler's marks
            self.unfollowed.setdefault(name, "it is no operator of torch's own")
            for each, copy in state["copies"]:
                if not torch.equal(each, copy):  # NaN is unlike itself, and is forgotten too
                    shadows.drop(each)
            self._opaque(name, out, state, site)
            return
        if name in shadow.EMPTY or (shadow.is_random(func, name) and not special):
            for each in (*targets, *shadow.floats_in(out)):
                shadows.drop(each)
            return
        if not targets and not shadow.floats_in(out):
            return
        self._look(name, args, kwargs, state, site)
        try:
            wide = shadow.wide_call(func, args, kwargs, shadows.of, shadows.dtype, out)
        except shadow.CannotShadow as why:
            self.unfollowed.setdefault(name, str(why))
            for each in (*targets, *shadow.floats_in(out)):
                shadows.drop(each)
            self._opaque(name, out, state, site)
            return
        for each in targets:
            self._judge(func, name, args, kwargs, each, shadows.of(each), state, site, in_place=True)
        for low, twin in shadow.pairs(out, wide):
            if storage_of(low) in state["keys"]:
                continue  # a view that its schema does not call one, or what was written into
            held = shadows.plant(low, twin)
            if name == "_to_copy":
                self._cast(args[0], held, low, site)
            self._judge(func, name, args, kwargs, low, shadows.of(low), state, site, in_place=False)
        if self.dtype == torch.float32 and name in PRODUCTS and not targets and len(self.products) < _REPLAYED:
            own = self._own(func, args, kwargs, out)
            if own is not None:
                self.products.append({"op": name, "own_error": own, **site._asdict()})

    def _opaque(self, name: str, out: Any, state: dict[str, Any], site: Site) -> None:
        """Of an operation without a shadow only what is not finite can be told."""
        for each in shadow.floats_in((out, [copy[0] for copy in state["copies"]])):
            if state["was_bad"] or bool(torch.isfinite(each).all()):
                continue
            if all(bool(torch.isfinite(copy).all()) for _, copy in state["copies"]):
                self.shadows.of(each)
                held = self.shadows.held(each)
                if held is not None:
                    held.flat.nan_to_num_(0.0, 0.0, 0.0)  # so that its readers see that finite was meant
                    held.bad = held.bad or self._event(name, site, state, None, each, "nan")

    def _judge(
        self, func: Any, name: str, args: Any, kwargs: Any, low: Any, wide: Any, state: dict[str, Any], site: Site,
        *, in_place: bool,
    ) -> None:  # fmt: skip
        """Compares one output, and settles what its storage is to be blamed on."""
        held = self.shadows.held(low)
        if held is None:
            return
        measured = Measured(low, wide)
        whole = low.numel() == held.flat.numel()
        if whole:
            held.origin = held.steepest = held.bad = None
        if measured.bad or measured.both_bad:
            known = held.bad or state["bad"]
            fresh = known is None or (known["kind"] == "everywhere" and measured.bad and not measured.both_bad)
            kind = _not_finite(measured, low)
            held.bad = self._event(name, site, state, measured, low, kind) if fresh else known
        worst = state["worst"]
        growth = measured.error / (state["error"] + self.eps)
        exploded = measured.error > math.sqrt(self.eps) and growth > 1.0 / math.sqrt(self.eps)
        if exploded and measured.error * self.scale < math.sqrt(self.eps):
            own = None if in_place else self._own(func, args, kwargs, low)
            event = self._event(name, site, state, measured, low, _explosion(measured, own))
            left = state["bad"] if state["was_bad"] else None  # x / inf is 0, and the division is not to blame
            held.origin = (worst.origin if worst else None) or left or event
        elif held.origin is None and worst is not None:
            held.origin = worst.origin
        before = worst.steepest if worst else None
        told = growth > 1.0 and measured.error * self.scale < math.sqrt(self.eps)
        if told and (before is None or growth > before["growth"]):
            held.steepest = self._event(name, site, state, measured, low, "growth")
        elif held.steepest is None:
            held.steepest = before

    def _own(self, func: Any, args: Any, kwargs: Any, out: Any) -> float | None:
        """How far an operation is off with exactly its own inputs: its rounding, without what came in."""
        dtype = self.shadows.dtype
        try:
            wide = shadow.wide_call(func, args, kwargs, lambda each: each.to(dtype), dtype, out)
        except shadow.CannotShadow:
            return None
        both = shadow.pairs(out, wide) or [(out, wide[0] if isinstance(wide, (tuple, list)) else wide)]
        try:
            return max(Measured(*each).error for each in both)
        except (RuntimeError, AttributeError):
            return None

    def _event(
        self, name: str, site: Site, state: dict[str, Any], measured: Measured | None, low: Any, kind: str
    ) -> dict[str, Any]:
        return {
            "op": name,
            "stage": self.stage,
            "kind": kind,
            "dtype": _plain(low.dtype),
            "inputs_error": state["error"],
            "error": measured.error if measured else None,
            "growth": min(measured.error / (state["error"] + self.eps), _MOST) if measured else None,
            "largest": measured.largest if measured else None,
            "limit": _limit(low),
            "count": measured.bad + measured.both_bad if measured else 0,
            "inputs_finite": not state["was_bad"],
            **site._asdict(),
        }

    # What autocast passes by.

    def _look(self, name: str, args: Any, kwargs: Any, state: dict[str, Any], site: Site) -> None:
        if self.stage == "backward" or not self.autocast:
            return
        floats = shadow.floats_in((args, kwargs))
        kinds = {_plain(each.dtype) for each in floats}
        by_itself = self.inside_autocast and self.function not in (*PRODUCTS, "matmul", "__matmul__", "")
        if name in PRODUCTS and kinds == {"float32"} and not by_itself:  # autocast had its say when that was called
            self._hole("product", name, site, floats)
        low = kinds == {_plain(self.dtype)} and floats[0].device.type == "cuda"
        if name.rstrip("_") in WIDENED and low and self.inside_autocast:
            self._hole("narrow", name, site, floats)

    def _cast(self, source: Any, held: shadow.ShadowStorage, low: Any, site: Site) -> None:
        """Counts a bare cast, and knows one that only undoes the last."""
        if not shadow.followed(source) or source.dtype == low.dtype:
            return
        self.casts += 1
        before = self.shadows.held(source)
        whence = before.cast_from if before is not None else None
        asked = self.function in _CASTS and self.stage == "forward"
        if whence == low.dtype and low.element_size() > source.element_size() and asked:
            self._hole("round trip", "_to_copy", site, [source, low])
        held.cast_from = source.dtype

    def _hole(self, kind: str, name: str, site: Site, floats: list[Any]) -> None:
        key = (kind, name, f"{site.where} {site.module}")
        if key not in self.holes and len(self.holes) >= _HOLES:
            return
        entry = {"kind": kind, "op": name, "enabled": self.inside_autocast, "count": 0, "elements": 0, **site._asdict()}
        self.holes.setdefault(key, entry)
        self.holes[key]["count"] += 1
        self.holes[key]["elements"] += sum(int(each.numel()) for each in floats)


def _not_finite(measured: Measured, low: Any) -> str:
    """The kind of an event whose numbers are not finite; "everywhere" where they were not meant to be."""
    if not measured.bad:
        return "everywhere"
    if measured.largest > _limit(low):
        return "overflow"
    return "nan" if measured.nans else "infinity"


def _explosion(measured: Measured, own: float | None) -> str:
    """The kind of an explosion; ``own`` is the error that the operation makes of exact inputs, None if not known."""
    if measured.flushed > 0.5:
        return "underflow"
    return "rounding" if own is not None and own >= measured.error / 2 else "cancellation"


def _limit(tensor: Any) -> float:
    """The largest number of a tensor's dtype."""
    return float(torch.finfo(tensor.dtype).max)


def _plain(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


def checksum(tensors: list[Any]) -> int:
    """A number that differs, all but surely, where the numbers in the tensors do."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    total = 0
    for each in tensors:
        if each.layout != torch.strided or each.is_meta or not each.numel() or each.is_quantized:
            continue
        if each.dtype == torch.uint8:  # a library's workspace, of which only a part is ever written
            continue
        plain = torch.view_as_real(each.resolve_conj()) if each.is_complex() else each
        bits = plain.detach().contiguous().view(whole[plain.element_size()])
        total = (total * 1000003 + int(bits.sum(dtype=torch.int64))) % (1 << 61)
    return total


def make_modes(step: Step) -> tuple[Any, Any]:
    """The modes that show a step every operation, and every call of torch's functions with autocast as it is there."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    plain = torch.Tensor.__torch_dispatch__

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not step.watching or step.busy:
            return func(*args, **kwargs)
        if any(getattr(each, "__torch_dispatch__", plain) is not plain for each in types):
            return NotImplemented  # a tensor of another kind unpacks itself, and comes again
        step.busy = True
        try:
            return step.call(func, args, kwargs)
        finally:
            step.busy = False

    def function(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if step.busy:
            return func(*args, **(kwargs or {}))
        step.inside_autocast = step.autocast and autocast_on(step.device)
        step.function = getattr(func, "__name__", "")
        try:
            with _way(func, step.device):
                return func(*args, **(kwargs or {}))
        finally:
            step.function = ""

    made = type("Comparing", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})()
    return made, type("Asking", (TorchFunctionMode,), {"__torch_function__": function})()


def _way(func: Any, device: str) -> Any:
    """How a function of torch is to be computed: oneDNN's LSTM is one operator with a workspace, and has no twin."""
    lstm = device == "cpu" and getattr(func, "__name__", "") == "lstm"
    return torch.backends.mkldnn.flags(enabled=False) if lstm else contextlib.nullcontext()


def autocast_on(device: str) -> bool:
    """Whether autocast is on for a kind of device, asked at the level of Python."""
    if device == "cpu" and hasattr(torch, "is_autocast_cpu_enabled"):
        with warnings.catch_warnings():  # newer releases have one function for all devices, and say so
            warnings.simplefilter("ignore")
            return bool(torch.is_autocast_cpu_enabled())
    return bool(torch.is_autocast_enabled())
