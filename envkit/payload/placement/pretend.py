"""A GPU that is not there, so that a model can be put on one and its operations be followed.

Two ways.  ``fake_gpu`` uses torch's fake tensors: no memory, no values, torch's own device rules.  ``traced_gpu`` works
with any torch: every tensor lies on the CPU with its values, and the device that it was put on is remembered with its
memory.  Both change torch for the whole process, which is a child made for this and ends with it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from envkit.payload.placement.lines import caller
from envkit.payload.placement.watch import PRODUCTS, Refused, storage_of, tensors_in

if TYPE_CHECKING:
    from envkit.payload.placement.watch import Watch

_PRUNE = 4096  # remembered memories between two looks for those that are gone


class Gpus:
    """What torch.cuda says of GPUs that are not there; ``current`` is the index of the current one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.current = 0

    def index(self, device: Any = None) -> int:
        """The index that ``device`` (None, 1, "cuda:1", torch.device) means."""
        import torch

        if device is None:
            return self.current
        if isinstance(device, int):
            return self.current if device < 0 else device
        found = torch.device(device).index
        return self.current if found is None else int(found)

    def install(self) -> None:
        """Puts these answers into torch.cuda."""
        import torch

        gpus = self

        def set_device(device: Any) -> None:
            gpus.current = gpus.index(device)

        def exchange(device: int) -> int:
            before, gpus.current = gpus.current, gpus.current if device < 0 else device
            return before

        properties = types.SimpleNamespace(
            name="a GPU that is not there", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132
        )
        stream = types.SimpleNamespace(
            cuda_stream=0,
            device=torch.device("cpu"),
            is_capturing=lambda: False,
            query=lambda: True,
            synchronize=lambda: None,
            wait_event=lambda event: None,
            wait_stream=lambda other: None,
        )
        answers: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(("current_stream", "default_stream"), lambda device=None: stream),
            "get_device_properties": lambda device=None: properties,
            "get_device_name": lambda device=None: properties.name,
            "get_device_capability": lambda device=None: (properties.major, properties.minor),
            "mem_get_info": lambda device=None: (properties.total_memory, properties.total_memory),
            "is_available": lambda: True,
            "device_count": lambda: gpus.count,
            "current_device": lambda: gpus.current,
            "set_device": set_device,
            **dict.fromkeys(("_exchange_device", "_maybe_exchange_device"), exchange),
            "is_current_stream_capturing": lambda: False,
            "is_bf16_supported": lambda including_emulation=True: True,
            **dict.fromkeys(("memory_allocated", "max_memory_allocated"), lambda device=None: 0),
            **dict.fromkeys(("_lazy_init", "init", "empty_cache"), lambda: None),
            **dict.fromkeys(("synchronize", "reset_peak_memory_stats"), lambda device=None: None),
            **dict.fromkeys(("manual_seed", "manual_seed_all"), lambda seed: None),
        }
        for name, answer in answers.items():
            setattr(torch.cuda, name, answer)
        torch.cuda.graphs.is_current_stream_capturing = answers["is_current_stream_capturing"]
        accelerator: dict[str, Callable[..., Any]] = {
            "is_available": lambda: True,
            "device_count": lambda: gpus.count,
            "current_accelerator": lambda check_available=False: torch.device("cuda"),
            **dict.fromkeys(("current_device_index", "current_device_idx"), lambda: gpus.current),
            "set_device_index": set_device,
            "current_stream": lambda device=None: stream,
            "synchronize": lambda device=None: None,
        }
        for name, answer in accelerator.items():
            if hasattr(getattr(torch, "accelerator", None), name):
                setattr(torch.accelerator, name, answer)


def can_fake() -> bool:
    """Whether this torch's fake tensors can be on a GPU that is not there; changes nothing."""
    import torch

    return hasattr(torch._C, "_ensureCUDADeviceGuardSet")


def fake_gpu(gpus: Gpus) -> Any:
    """The mode under which a model is built and run with fake tensors.  Raises what torch raises if it cannot."""
    import torch
    from torch._subclasses import fake_tensor

    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
    with mode:  # torch says for itself whether it can, before anything is changed
        torch.empty(1, device="cuda").add(1)
    # A module's tensors are replaced and not swapped, which fake ones cannot be; and the mode must go on knowing that
    # there is no GPU when torch.cuda tells the model that there is one.
    torch.nn.Module._apply = _replace
    fake_tensor.FakeTensorMode.avoid_device_init = property(lambda self: True)
    fake_tensor.init_gpu_context = lambda device: None
    gpus.install()
    return mode


def _replace(module: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
    """torch.nn.Module._apply for fake tensors: each parameter and buffer becomes what ``fn`` makes of it; one that two
    modules share stays shared."""
    import torch

    parts = list(module.modules()) if recurse else [module]
    made: dict[int, Any] = {}
    for part in parts:
        for key, old in part._parameters.items():
            if old is not None:
                if id(old) not in made:
                    made[id(old)] = torch.nn.Parameter(fn(old), old.requires_grad)
                part._parameters[key] = made[id(old)]
        for key, old in part._buffers.items():
            if old is not None:
                part._buffers[key] = fn(old)
        if hasattr(part, "_flat_weights_names"):  # torch.nn.RNNBase keeps a second list
            part._flat_weights = [getattr(part, name, None) for name in part._flat_weights_names]
    return module


class Claims:
    """Which device each memory was put on; one that was never put anywhere is on the CPU."""

    def __init__(self, gpus: Gpus) -> None:
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef

        self._gpus = gpus
        self._weak = StorageWeakRef
        self._held: dict[int, tuple[Any, str]] = {}
        self._real_device = torch.Tensor.device
        self.casting: list[Any] = []  # the dtypes of the GPU's autocasts that are on, the innermost last

    def text(self, device: Any) -> str:
        """A device's name with its index: "cuda" is the current GPU."""
        import torch

        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return f"cuda:{self._gpus.index(found)}" if found.type == "cuda" else str(found.type)

    def device_of(self, tensor: Any) -> str:
        """The device that a tensor was put on."""
        key = storage_of(tensor)
        held = self._held.get(key)
        if held is not None and not held[0].expired():
            return held[1]
        return self.text(self._real_device.__get__(tensor))

    def put(self, tensor: Any, device: str) -> None:
        """Remembers that the memory of ``tensor`` is on ``device``.

        The weak reference keeps the number of the memory from being given to another while it is remembered.
        """
        key = storage_of(tensor)
        if not key:
            return
        self._held[key] = (self._weak(tensor.untyped_storage()), device)
        if len(self._held) % _PRUNE == 0:
            self._held = {each: held for each, held in self._held.items() if not held[0].expired()}

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Runs one operation on the CPU and puts what it made where a GPU's would be."""
        import torch

        inputs = list(tensors_in((args, kwargs)))
        known = {storage_of(each) for each in inputs}
        request = kwargs.get("device")
        if request is not None:
            target = self.text(request)
            kwargs = {**kwargs, "device": torch.device("cpu" if target.startswith("cuda") else target)}
        else:
            large = [each for each in inputs if each.dim() or self.device_of(each) != "cpu"]
            leader = args[:1] if name in ("copy_", "copy") else large or inputs
            target = self.device_of(leader[0]) if leader else "cpu"
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if target.startswith("cuda") and self.casting:
            args = self._cast(name, args)
        if name == "_to_copy" and target != self.device_of(args[0]) and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": args[0].dtype}
        made = func(*args, **kwargs)
        for each in tensors_in(made):
            if storage_of(each) not in known:
                self.put(each, target)
        return made

    def _cast(self, name: str, args: Any) -> Any:
        """The operands of a matrix product as autocast on a GPU would cast them."""
        import torch

        at_stake = PRODUCTS.get(name, ())
        return tuple(
            each.to(self.casting[-1])
            if at in at_stake and isinstance(each, torch.Tensor) and each.is_floating_point()
            else each
            for at, each in enumerate(args)
        )

    def install(self, watch: Watch) -> None:
        """Makes tensors tell the device they were put on, and ``to``, ``cuda`` and ``cpu`` put them there."""
        import torch

        claims = self
        real_to = torch.Tensor.to

        def move(tensor: Any, device: Any, dtype: Any, copy: bool, words: dict[str, Any]) -> Any:
            source = claims.device_of(tensor)
            target = source if device is None else claims.text(device)
            if target == source:
                return real_to(tensor, dtype or tensor.dtype, copy=copy, **words)
            if target.startswith(("cuda", "cpu")):
                if watch.watching:
                    watch.cross("to", source, target, tensor, caller(2))
                was, watch.watching = watch.watching, False
                try:
                    made = real_to(tensor, dtype or tensor.dtype, copy=True, **words)
                finally:
                    watch.watching = was
                claims.put(made, target)
                return made
            return real_to(tensor, torch.device(device), dtype or tensor.dtype, copy=copy, **words)

        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            copy, other = bool(kwargs.pop("copy", False)), kwargs.pop("other", None)
            kwargs.pop("non_blocking", None)
            words = {key: kwargs.pop(key) for key in ("memory_format",) if key in kwargs}
            words = {key: value for key, value in words.items() if value is not None}
            if args and isinstance(args[0], torch.Tensor):
                other, args = args[0], args[1:]
            if other is not None:
                return move(tensor, claims.device_of(other), other.dtype, copy or args[1:2] == (True,), words)
            device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
            rest = list(args)
            if rest and not isinstance(rest[0], torch.dtype) and not isinstance(rest[0], bool):
                device = rest.pop(0)
            if rest and isinstance(rest[0], torch.dtype):
                dtype = rest.pop(0)
            elif rest and rest[0] is None:
                rest.pop(0)
            return move(tensor, device, dtype, copy or rest[1:2] == [True], words)  # rest[0] is non_blocking

        def cuda(tensor: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
            words = {} if memory_format is None else {"memory_format": memory_format}
            return move(tensor, f"cuda:{claims._gpus.index(device)}", None, False, words)

        def cpu(tensor: Any, memory_format: Any = None) -> Any:
            return move(tensor, "cpu", None, False, {} if memory_format is None else {"memory_format": memory_format})

        def numpy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if claims.device_of(tensor) != "cpu":
                raise Refused(f"can't convert {claims.device_of(tensor)} device type tensor to numpy")
            return real_numpy(tensor, *args, **kwargs)

        def tensor(
            data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
        ) -> Any:
            made = real_tensor(data, dtype=dtype, device="cpu")
            target = claims.text(device) if device is not None else claims.device_of(torch.empty(0))
            if watch.watching:
                watch.cross("tensor", "cpu", target, made, caller())
            claims.put(made, target)
            return made.requires_grad_(requires_grad)

        def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
            if isinstance(data, torch.Tensor):
                return move(data, device, dtype, False, {})
            return tensor(data, dtype, device)

        def new_tensor(own: Any, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
            return tensor(data, dtype or own.dtype, device or claims.device_of(own), requires_grad)

        real_numpy, real_tensor = torch.Tensor.numpy, torch.tensor
        changed: dict[str, Any] = {
            "device": property(lambda tensor: torch.device(claims.device_of(tensor))),
            "is_cuda": property(lambda tensor: claims.device_of(tensor).startswith("cuda")),
            "is_cpu": property(lambda tensor: claims.device_of(tensor) == "cpu"),
            "get_device": lambda tensor: int(claims.device_of(tensor).partition(":")[2] or -1),
            "to": to,
            "cuda": cuda,
            "cpu": cpu,
            "numpy": numpy,
            "pin_memory": lambda tensor, device=None: tensor.clone(),
            "is_pinned": lambda tensor, device=None: False,
            "record_stream": lambda tensor, stream: None,
            "new_tensor": new_tensor,
        }
        torch.tensor, torch.as_tensor = tensor, as_tensor
        real_enter, real_exit = torch.autocast.__enter__, torch.autocast.__exit__

        def enter(context: Any) -> Any:
            if context.device == "cuda":
                outer = claims.casting
                claims.casting = [*outer, context.fast_dtype] if context._enabled else []
                context.envkit_outer = outer
            return real_enter(context)

        def leave(context: Any, *error: Any) -> Any:
            claims.casting = getattr(context, "envkit_outer", claims.casting)
            return real_exit(context, *error)

        torch.autocast.__enter__, torch.autocast.__exit__ = enter, leave
        for name, value in changed.items():
            setattr(torch.Tensor, name, value)
        torch.backends.cudnn.is_acceptable = lambda tensor: False  # its kernels cannot run where the tensors really are
        self._gpus.install()
        watch.is_cast = lambda: bool(claims.casting)
