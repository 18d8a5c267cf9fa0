"""Watches every operation of a run: which device and dtype meet in it, what crosses between host and GPU, what waits.

The rules told here are torch's own for eager mode.  An operation takes tensors of one device; a tensor without
dimensions on the CPU may join any of them, and some operations take more (``MIXING``).  A matrix product takes one
dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from envkit.payload.placement.lines import caller

if TYPE_CHECKING:
    from envkit.payload.placement.lines import Places, Site

_LINES = 200  # lines that are told of one run; a loop that syncs does so at one of them

# Operations whose purpose or contract is that devices differ: copies; a packed sequence's and CTC's lengths, which live
# on the CPU; lists of tensors, which fall back to one call each.
MIXING = (
    "_to_copy", "copy_", "copy", "set_", "_copy_from", "_copy_from_and_resize", "is_pinned", "_pin_memory",
    "pin_memory", "record_stream", "_pack_padded_sequence", "_pack_padded_sequence_backward", "_ctc_loss",
    "_ctc_loss_backward", "_cudnn_ctc_loss", "_local_scalar_dense", "is_same_size", "detach", "alias",
)  # fmt: skip
# An index may lie on the CPU, beside a tensor on any device; the other way round is refused.
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")
# ``y[index] = 1`` becomes one of these where index and tensor really lie together, as they do when the GPU is
# pretended; called by its own name it refuses an index that lies elsewhere.  Which it was cannot be told.
FILLING = ("index_fill", "index_fill_")
# No pointwise rule applies here: even a tensor without dimensions must lie where the others do.
STRICT = (
    "embedding", "index_select", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "cat", "mm", "addmm",
    "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "nll_loss_forward", "native_layer_norm", "native_batch_norm",
)  # fmt: skip
# The operands, by their position, that must be of one dtype.
PRODUCTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), (0, 1)),
    **dict.fromkeys(("linear", "addmm", "addmv", "baddbmm", "convolution"), (0, 1, 2)),
}
# What makes the host wait for the GPU because the answer's size or value is needed on the host.
WAITING = (
    "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "equal",
    "_unique", "is_nonzero",
)  # fmt: skip


class Refused(RuntimeError):
    """What torch would have raised on a GPU, raised where there is none."""


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors in nested tuples, lists, dicts and the attributes of a plain object's dict, first to last."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for each in value:
            yield from tensors_in(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name, None))


def op_name(func: Any) -> tuple[str, str]:
    """An operator's namespace and name: ("aten", "addmm")."""
    packet = getattr(func, "overloadpacket", func)
    namespace, _, name = str(getattr(packet, "_qualified_op_name", packet)).replace(".", "::").partition("::")
    return namespace, name


def storage_of(tensor: Any) -> int:
    """A number for the memory that a tensor looks at, 0 where it has none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, AttributeError):
        return 0


def meet(name: str, tensors: list[Any], device_of: Callable[[Any], str], first: str = "") -> list[str]:
    """The devices that torch would refuse to see together in the operation ``name``, or nothing.

    ``first`` is the device of the tensor that an index reads from or writes to.
    """
    if name in MIXING or name.startswith(("_foreach", "_fused")):
        return []
    seen: list[str] = []
    for tensor in tensors:
        device = device_of(tensor)
        if device == "cpu" and tensor.dim() == 0 and name not in STRICT:
            continue
        if name in (*INDEXING, *FILLING) and device == "cpu" and device != first:
            continue
        if device not in seen:
            seen.append(device)
    return seen if len(seen) > 1 else []


class Watch:
    """What one run has shown so far.

    ``device_of`` tells a tensor's device as text.  ``rules`` says which of the rules above are needed beside torch's
    own kernels: "" on the devices themselves, "dtypes" with fake tensors, "all" where everything lies on the CPU.
    """

    def __init__(self, places: Places, device_of: Callable[[Any], str], rules: str) -> None:
        self.places = places
        self.device_of = device_of
        self.rules = rules
        self.watching = False  # the factory is not
        self.names: dict[int, str] = {}
        self.refusal: dict[str, Any] | None = None
        self.refused_with = ""  # the exception's text, by which it is known again where it ends the run
        self.lines: dict[tuple[str, str, str, str], dict[str, Any]] = {}
        self.operations = 0
        self.unjudged: dict[str, int] = {}
        self.gpu_used = False
        self.is_cast: Callable[[], bool] = lambda: False  # whether a GPU's autocast is on that the CPU does not know

    def name_tensors(self, what: str, value: Any) -> None:
        """Remembers the tensors of ``value`` as "``what`` 0", "``what`` 1"."""
        for number, tensor in enumerate(tensors_in(value)):
            key = storage_of(tensor)
            if key:
                self.names.setdefault(key, f"{what} {number}")

    def name_state(self, model: Any) -> None:
        """Remembers the parameters and buffers of ``model`` by their names."""
        for kind in ("named_parameters", "named_buffers"):
            for name, tensor in getattr(model, kind, lambda: ())():
                key = storage_of(tensor)
                if key:
                    self.names.setdefault(key, name)

    def operand(self, tensor: Any) -> dict[str, Any]:
        """A tensor as it is told."""
        return {
            "name": self.names.get(storage_of(tensor), ""),
            "device": self.device_of(tensor),
            "dtype": str(tensor.dtype).replace("torch.", ""),
            "shape": [int(size) for size in tensor.shape],
        }

    def _refuse(self, kind: str, name: str, tensors: list[Any], message: str, site: Site) -> None:
        self.refusal = {
            "kind": kind,
            "op": name,
            **site._asdict(),
            "message": message[:1000],
            "tensors": [self.operand(each) for each in tensors[:8]],
        }

    def judge(self, name: str, args: Any, tensors: list[Any], frame: Any) -> None:
        """Raises Refused where torch on a GPU would refuse these operands."""
        first = self.device_of(tensors[0]) if tensors else ""
        devices = meet(name, tensors, self.device_of, first) if self.rules == "all" else []
        if devices:
            text = f"Expected all tensors to be on the same device, but found at least two: {' and '.join(devices)}"
            self._refuse("devices", name, tensors, text, self.places.here(frame))
            raise Refused(text)
        # Autocast on a GPU would have cast them above; on the CPU nobody has.
        mixed = [] if self.is_cast() else self.mixed_product(name, args)
        if mixed:
            text = f"expected the operands of {name} to have the same dtype"
            self._refuse("dtypes", name, mixed, text, self.places.here(frame))
            raise Refused(text)

    def mixed_product(self, name: str, args: Any) -> list[Any]:
        """The operands of a matrix product if their dtypes differ."""
        import torch

        operands = [args[at] for at in PRODUCTS.get(name, ()) if at < len(args) and isinstance(args[at], torch.Tensor)]
        return operands if len({each.dtype for each in operands}) > 1 else []

    def refused_by_torch(self, name: str, args: Any, tensors: list[Any], error: BaseException, frame: Any) -> None:
        """Remembers an operation that torch itself refused, if devices or dtypes are what it refused."""
        text = str(error)
        self.refused_with = text
        if isinstance(error, Refused):
            return
        first = self.device_of(tensors[0]) if tensors else ""
        if meet(name, tensors, self.device_of, first) and "device" in text.lower():
            self._refuse("devices", name, tensors, text, self.places.here(frame))
        elif self.mixed_product(name, args):
            self._refuse("dtypes", name, self.mixed_product(name, args), text, self.places.here(frame))
        else:
            self.refusal = None

    def tell(self, kind: str, op: str, site: Site, size: int = 0) -> None:
        """Counts one crossing or waiting at its line."""
        key = (kind, op, site.where, site.module)
        if key not in self.lines:
            if len(self.lines) >= _LINES:
                key = (kind, "", "", "")
            entry = {"kind": kind, "op": key[1], "where": key[2], "source": site.source, "module": key[3]}
            self.lines.setdefault(key, {**entry, "count": 0, "bytes": 0})
        self.lines[key]["count"] += 1
        self.lines[key]["bytes"] += size

    def cross(self, op: str, source: str, target: str, tensor: Any, frame: Any) -> None:
        """Tells a copy if it crosses between the host and a GPU."""
        if (source == "cpu") != (target == "cpu") and "meta" not in (source, target):
            kind = "host to device" if source == "cpu" else "device to host"
            self.tell(kind, op, self.places.here(frame), int(tensor.numel()) * int(tensor.element_size()))

    def see(self, name: str, args: Any, kwargs: Any, tensors: list[Any], frame: Any) -> None:
        """Tells what an operation that is about to run copies or waits for."""
        self.operations += 1
        if any(self.device_of(each).startswith("cuda") for each in tensors):
            self.gpu_used = True
        if name == "_to_copy" and tensors:
            source = self.device_of(tensors[0])
            target = str(kwargs.get("device") or source)
            self.cross("to", source, "cuda:0" if target == "cuda" else target, tensors[0], frame)
        elif name == "copy_" and len(tensors) > 1:
            self.cross("copy_", self.device_of(tensors[1]), self.device_of(tensors[0]), tensors[0], frame)
        elif name in (*INDEXING, *FILLING) and len(tensors) > 1 and self.device_of(tensors[0]).startswith("cuda"):
            # The kernel carries an index over, below the dispatcher.
            for index in tensors_in(args[2] if name in FILLING else args[1]):
                self.cross(name, self.device_of(index), self.device_of(tensors[0]), index, frame)
        if self._waits(name, args, tensors):
            self.tell("wait", "item" if name == "_local_scalar_dense" else name, self.places.here(frame))

    def _waits(self, name: str, args: Any, tensors: list[Any]) -> bool:
        if not any(self.device_of(each).startswith("cuda") for each in tensors):
            return False
        if name in INDEXING and len(args) > 1:
            return any(str(each.dtype) in ("torch.bool", "torch.uint8") for each in tensors_in(args[1]))
        return name in WAITING


def make_mode(watch: Watch, call: Callable[..., Any] | None = None) -> Any:
    """A mode of torch's dispatcher that shows every operation to ``watch`` and runs it by ``call``."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        namespace, name = op_name(func)
        known = namespace in ("aten", "prims", "prim")
        if not watch.watching:
            return call(func, name, args, kwargs) if call else func(*args, **kwargs)
        frame = caller()
        tensors = list(tensors_in((args, kwargs)))
        try:
            if known:
                watch.see(name, args, kwargs, tensors, frame)
                if watch.rules:
                    if name in FILLING and len({watch.device_of(each) for each in tensors}) > 1:
                        watch.unjudged[f"{namespace}::{name}"] = 1
                    watch.judge(name, args, tensors, frame)
            else:
                watch.unjudged[f"{namespace}::{name}"] = watch.unjudged.get(f"{namespace}::{name}", 0) + 1
            return call(func, name, args, kwargs) if call else func(*args, **kwargs)
        except Exception as error:  # whatever torch raises is looked at and goes on
            watch.refused_by_torch(name, args, tensors, error, frame)
            raise

    return type("Watching", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})()
