"""Where the memory of GPUs goes in this process: torch's allocator is asked to keep its history, and looked at.

From torch's own start of CUDA on (never before: whoever starts CUDA in a parent takes it from forked children) the
allocator keeps the Python stack of each allocation.  After the steps 2, 4, 8, 16 and so on, and where steps are long
each quarter of a minute, a snapshot goes to ``snapshot-PID-STEP.pickle`` as torch pickles it, and beside it what the
program's own variables hold.  When memory runs out, torch calls an observer, and the same is written as
``oom-PID-NUMBER.pickle``.  ``memory-PID.json`` has all else; it is written again at each look, whole or not at all.
A process that takes steps without a GPU is looked at as well: the CPU's memory grows by the same mistakes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import pickle
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType

envkit_steps: Any = importlib.import_module("envkit_steps")  # beside this file, wherever the command runs
envkit_holders: Any = importlib.import_module("envkit_holders")
_ENTRIES = 40_000  # of the allocator's history: of most programs some steps
_LOOK_S = 15.0
_UNMARKED_S = 8.0  # without a step, before a program is looked at by the clock
_MOST_LOOKS = 12
_MOST_SNAPSHOTS = 5
_MOST_SERIES = 1000
_CLOCK_S = 0.5
_MOST_OOMS = 3
_MOST_BYTES = 192 << 20  # of one snapshot


class _Here:
    """What this process has seen."""

    folder = ""
    stack: Callable[[FrameType | None], list[list[Any]]] | None = None
    torch: Any = None
    began = 0  # the process that is looked at
    clock_s = _CLOCK_S  # between notes of the clock
    gpu = False  # whether its allocator keeps its history
    looked = 0.0
    following = 2  # the step after which the next look is due
    every = 1
    ooms = 0
    known: ClassVar[dict[str, Any]] = {}
    lock = threading.RLock()  # a look of the thread and one of an allocation that fails write the same file


def watch(folder: str, stack: Callable[[FrameType | None], list[list[Any]]]) -> None:
    """Begins with the history when torch starts CUDA."""
    _Here.folder, _Here.stack = folder, stack
    _forget()
    os.register_at_fork(after_in_child=_forget)
    importlib.import_module("envkit_companion").AfterImport({"torch.cuda": _queued, "torch.cuda.memory": _fractions})
    envkit_steps.watch(_stepped, _trouble)


def _forget() -> None:
    """A forked child has a history of its own, if any."""
    _Here.lock = threading.RLock()
    _Here.began, _Here.looked, _Here.following, _Here.every, _Here.ooms = 0, 0.0, 2, 1, 0
    _Here.gpu, _Here.clock_s = False, _CLOCK_S
    _Here.known = {
        "pid": os.getpid(),
        "rank": envkit_steps.rank(),
        "series": [],
        "clock": [],
        "looks": [],
        "ooms": [],
        "trouble": [],
    }


def _trouble(said: str) -> None:
    if len(_Here.known["trouble"]) < 20:
        _Here.known["trouble"].append(said)


def _queued(module: ModuleType) -> None:
    """Lets torch call what follows at the end of its own start of CUDA."""
    module._lazy_call(lambda: envkit_steps.guarded_call(_begin))


def _fractions(module: ModuleType) -> None:
    original = getattr(module, "set_per_process_memory_fraction", None)
    if original is None:
        return

    def set_per_process_memory_fraction(fraction: float, *more: Any, **named: Any) -> None:
        original(fraction, *more, **named)
        frames = envkit_steps.own_frames(sys._getframe(1))
        place = [frames[0].f_code.co_filename, frames[0].f_lineno] if frames else None
        _Here.known["fraction"] = {"value": float(fraction), "place": place}

    module.set_per_process_memory_fraction = set_per_process_memory_fraction  # type: ignore[attr-defined]


def _begin() -> None:
    torch = _Here.torch = sys.modules["torch"]
    if _Here.gpu and _Here.began == os.getpid():
        return
    torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=_ENTRIES)
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is not None:
        attach(lambda *told: envkit_steps.guarded_call(_out_of_memory, *told))
    else:
        _trouble("this torch tells nobody when memory runs out")
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    _Here.known["devices"] = [{"name": each.name, "total": each.total_memory} for each in devices]
    _Here.known["settings"] = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or ""
    _Here.gpu = True
    _Here.known["series"], _Here.known["looks"], _Here.known["clock"] = [], [], []
    _start()


def _start() -> None:
    """Begins to look at this process, with a GPU or without."""
    if _Here.began != os.getpid():
        _Here.began = os.getpid()
        atexit.register(lambda: envkit_steps.guarded_call(_ended, os.getpid()))
        threading.Thread(target=_attend, args=(os.getpid(),), name="envkit-memory", daemon=True).start()
    _Here.torch = sys.modules["torch"]
    _Here.looked = time.monotonic()
    _Here.known["torch"] = str(_Here.torch.__version__)
    _Here.known["ram"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    _write()


def _attend(pid: int) -> None:
    """The thread: notes what is held by the clock, and looks now and then at a program whose steps nobody marks."""
    began = time.monotonic()
    second = began
    while os.getpid() == pid and _Here.began == pid:
        time.sleep(_Here.clock_s)
        envkit_steps.guarded_call(_noted, time.monotonic() - began)
        if time.monotonic() - second >= 1.0:
            second = time.monotonic()
            if _Here.gpu and not envkit_steps.kind() and second - began >= _UNMARKED_S:
                envkit_steps.guarded_call(_unmarked)


def _noted(seconds: float) -> None:
    """Notes the bytes of the allocator and of the CPU's memory; where there are too many notes, of each second one."""
    clock = _Here.known["clock"]
    clock.append([round(seconds, 2), _Here.torch.cuda.memory_allocated() if _Here.gpu else 0, _resident()])
    if len(clock) > _MOST_SERIES:
        _Here.clock_s *= 2
        del clock[::2]


def _resident() -> int:
    """The bytes of the CPU's memory that are this process's own: no files, nothing that it shares."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = file.read().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def _unmarked() -> None:
    second = len(_Here.known["series"]) + 1
    _series(second)
    if second >= _Here.following:
        _Here.following = max(second + 1, min(2 * _Here.following, second + 60))
        _look(second, sys._current_frames().get(threading.main_thread().ident or 0), None)


def _stepped(number: int, optimizer: Any) -> None:
    if _Here.began != os.getpid():
        _start()
    if number == 1:  # steps of another kind begin: what was counted before them is no part of their growth
        _Here.known["series"], _Here.every, _Here.following = [], 1, 2
        for look in _Here.known["looks"]:
            _drop(look)
        _Here.known["looks"] = []
    _series(number)
    if number >= _Here.following or time.monotonic() - _Here.looked >= _LOOK_S:
        while _Here.following <= number:
            _Here.following *= 2
        _look(number, sys._getframe(1), optimizer)


def _series(number: int) -> None:
    """Notes the bytes at the end of a step; where there are too many notes, only of each second, fourth, ... step."""
    if number % _Here.every:
        return
    cuda = _Here.torch.cuda
    series = _Here.known["series"]
    series.append([number, cuda.memory_allocated(), cuda.memory_reserved()] if _Here.gpu else [number, 0, 0])
    if len(series) > _MOST_SERIES:
        _Here.every *= 2
        del series[::2]


def _look(number: int, frame: FrameType | None, optimizer: Any) -> None:
    began = time.monotonic()
    name = f"snapshot-{os.getpid()}-{number}.pickle"
    look = {
        "step": number,
        "kind": envkit_steps.kind(),
        "snapshot": name if _Here.gpu and _snapshot(name) else "",
        "host": _resident(),
        **_usage(),
        **envkit_holders.holders(frame),
        "kept": _kept(optimizer),
    }
    looks = _Here.known["looks"]
    looks.append(look)
    if len(looks) > _MOST_LOOKS:  # the first and the last tell most
        _drop(looks.pop(1))
    with_snapshot = [each for each in looks if each["snapshot"]]
    if len(with_snapshot) > _MOST_SNAPSHOTS:
        _drop(with_snapshot[1])
    _Here.looked = time.monotonic()
    _Here.known["look_s"] = round(_Here.known.get("look_s", 0.0) + _Here.looked - began, 3)
    _write()


def _drop(look: dict[str, Any]) -> None:
    if look["snapshot"]:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(_Here.folder, look["snapshot"]))
        look["snapshot"] = ""


def _snapshot(name: str) -> bool:
    """Writes what the allocator holds; False where it is too much."""
    said = pickle.dumps(_Here.torch.cuda.memory._snapshot(), protocol=4)
    if len(said) > _MOST_BYTES:
        _trouble(f"a snapshot of {len(said)} bytes was not kept")
        return False
    path = os.path.join(_Here.folder, name)
    with open(path + "~", "wb") as file:
        file.write(said)
    os.replace(path + "~", path)
    return True


def _usage() -> dict[str, Any]:
    """The current device as torch and as the driver see it, and who else is on it; without a GPU nothing of it."""
    if not _Here.gpu:
        return {}
    cuda = _Here.torch.cuda
    device = cuda.current_device()
    free, total = cuda.mem_get_info(device)
    stats = cuda.memory_stats(device)
    names = {
        "allocated": "allocated_bytes.all.current",
        "allocated_peak": "allocated_bytes.all.peak",
        "reserved": "reserved_bytes.all.current",
        "reserved_peak": "reserved_bytes.all.peak",
        "retries": "num_alloc_retries",
        "ooms": "num_ooms",
    }
    told: dict[str, Any] = {name: int(stats.get(key, 0)) for name, key in names.items()}
    told.update(device=device, free=free, total=total, frameworks=envkit_steps.loaded_frameworks())
    told["processes"] = _processes(device)
    return told


def _kept(optimizer: Any) -> dict[str, int]:
    """The bytes on GPUs of an optimizer's parameters, their gradients and its state."""
    if optimizer is None:
        return {}
    tensor = _Here.torch.Tensor

    def size(values: Any) -> int:
        return sum(each.untyped_storage().nbytes() for each in values if isinstance(each, tensor) and each.is_cuda)

    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    state = [each for held in list(optimizer.state.values()) if isinstance(held, dict) for each in held.values()]
    gradients = size(each.grad for each in parameters)
    return {"parameters": size(parameters), "gradients": gradients, "optimizer": size(state)}


def _out_of_memory(device: int, asked: int, total: int, free: int) -> None:
    """Called by torch when an allocation fails, before it raises; a program may catch that and go on."""
    _Here.ooms += 1
    ooms = _Here.known["ooms"]
    name = f"oom-{os.getpid()}-{_Here.ooms}.pickle"
    mine = sys._getframe(1)
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    frame = mine if envkit_steps.own_frames(mine) else main
    stack = _Here.stack(frame) if _Here.stack is not None else []
    stack = [each for each in stack if not str(each[0]).startswith(os.path.dirname(os.path.abspath(__file__)))]
    said = {"device": int(device), "asked": int(asked), "total": int(total), "free": int(free), "frames": stack}
    said["backward"] = frame is not mine
    said["snapshot"] = name if _snapshot(name) else ""
    ooms.append({**said, "usage": _usage(), **envkit_holders.holders(frame)})
    if len(ooms) > _MOST_OOMS:
        old = ooms.pop(0)
        _drop(old)
    _write()


def _ended(pid: int) -> None:
    if os.getpid() == pid and _Here.began == pid:
        _Here.known["end"] = _usage()
        _write()
        _Here.began = 0


def _write() -> None:
    path = os.path.join(_Here.folder, f"memory-{os.getpid()}.json")
    with _Here.lock:
        _Here.known["steps"] = [envkit_steps.kind(), _Here.known["series"][-1][0] if _Here.known["series"] else 0]
        _Here.known["loop"] = envkit_steps.loop()
        with open(path + "~", "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(_Here.known, file)
        os.replace(path + "~", path)


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3 (nvml.h)."""

    _fields_ = [
        ("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint),
    ]  # fmt: skip


def _processes(device: int) -> list[dict[str, Any]] | None:
    """Who holds memory of a device as NVML tells, in the numbers of its own PID namespace; None where it does not."""
    uuid = getattr(_Here.torch.cuda.get_device_properties(device), "uuid", None)  # torch has had it since 2.5 or so
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return None
        handle = ctypes.c_void_p()
        if uuid is not None:
            code = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle))
        else:
            code = nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle))
        count = ctypes.c_uint(256)
        rows = (_Process * 256)()
        code = code or nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), rows)
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return None
    if code:
        return None
    unknown = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
    told = [(each.pid, 0 if each.bytes == unknown else each.bytes) for each in rows[: count.value]]
    return [{"pid": pid, "bytes": size, "name": _name(pid)} for pid, size in told]


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
