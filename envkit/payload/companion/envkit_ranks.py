"""What one rank of a job does: its collectives in order, its gradients under DDP, and where it stands when it stops.

It waits for the program's own import of torch and wraps functions of torch.distributed then; it never imports torch.
Each process that is a rank writes two files into the folder of ``envkit debug``: ``ranks-HOST-PID.jsonl``, a line for
each collective that it enters and leaves, flushed as it is written and begun again after a megabyte (the one before
stays as ``.old``); and ``still-HOST-PID.json``, written again whenever nothing has happened for a while: the stacks of
its threads and the parameters that have no gradient.  A thread of this process writes that one, so that ranks on other
machines are heard of through a shared folder too.

Three things differ for the program: parameters under DDP have one hook more, one daemon thread more is there, and
NCCL's flight recorder is on.
Collectives that torch issues in C++ (DDP's buckets, functional collectives of compiled code) pass by; NCCL's flight
recorder has those, and its file is written beside (``flight-RANK.pkl``).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import inspect
import json
import os
import socket
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, ModuleType

    Stack = Callable[[FrameType | None], list[list[Any]]]

_COLLECTIVES = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "_all_gather_base",
    "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "new_group", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "_reduce_scatter_base", "scatter", "scatter_object_list",
)  # fmt: skip
_BETWEEN_TWO = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
_LIFE = ("init_process_group", "destroy_process_group")
_DATA = ("tensor", "input_tensor", "input", "input_tensor_list", "input_list", "tensors")  # parameters that are sent
_PEERS = ("src", "dst", "group_src", "group_dst")
_MOST_BYTES = 1 << 20
_LOOK_S = 0.5
_STILL_S = 1.5  # without a collective or a gradient, before it is written down
_AGAIN_S = 5.0
_BEAT_S = 1.0
_MOST_NAMES = 64  # of parameters without a gradient
_MOST_FAILURES = 8  # of this watcher itself, before it lets the program alone


class _Here:
    """What this process has done so far."""

    folder = ""
    stack: Stack | None = None
    pid = 0  # who opened the file; a forked child opens its own when it becomes a rank
    file: int | None = None
    written = 0
    name = ""
    calls = 0
    gradients = 0
    failures = 0
    rank: int | None = None
    world: int | None = None
    c10d: Any = None
    nccl = False
    torch = ""  # the folder of torch
    counts: ClassVar[dict[str, int]] = {}  # collectives by group
    told: ClassVar[dict[str, Any]] = {}  # groups that were described
    modules: ClassVar[list[_Module]] = []
    lock = threading.Lock()
    inside = threading.local()


class _Module:
    """One model under DDP: which of its parameters got a gradient in the backward that runs or ran last."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = weakref.ref(wrapped)
        self.kind = type(wrapped.module).__name__
        ignored = set(getattr(wrapped, "parameters_to_ignore", ()) or ())
        named = wrapped.module.named_parameters()
        watched = [(name, each) for name, each in named if each.requires_grad and name not in ignored]
        self.names = [name for name, _ in watched]
        self.seen = bytearray(len(watched))
        self.left = len(watched)  # parameters whose gradient is still to come
        self.backwards = 0
        self.written = (0, 0)
        self.number = len(_Here.modules)
        for index, (_, each) in enumerate(watched):
            self.hook(each, index)

    def row(self) -> dict[str, Any]:
        """The line that describes it."""
        find = getattr(self.wrapped(), "find_unused_parameters", None)
        told = {"e": "model", "m": self.number, "kind": self.kind, "parameters": len(self.names)}
        return {**told, "find_unused": find}

    def hook(self, parameter: Any, index: int) -> None:
        """Has the parameter tell when its gradient is there; one that tells again begins another backward."""

        def gave(*_: Any) -> None:
            if self.seen[index] or not self.backwards:
                self.backwards += 1
                self.seen = bytearray(len(self.seen))
                self.left = len(self.seen)
            self.seen[index] = 1
            self.left -= 1
            _Here.gradients += 1
            if not self.left:
                _guarded(self.tell)

        register = getattr(parameter, "register_post_accumulate_grad_hook", None)
        if register is not None:
            register(gave)
        else:  # an older torch: the node that accumulates, which DDP keeps alive
            parameter.expand_as(parameter).grad_fn.next_functions[0][0].register_hook(gave)

    def tell(self) -> None:
        """Writes down its gradients, if they are others than those that it wrote down last: a crash may be next."""
        if self.written == (self.backwards, self.left):
            return
        self.written = (self.backwards, self.left)
        said: dict[str, Any] = {"e": "gradients", "m": self.number, "backwards": self.backwards, "missing_count": 0}
        said.update(self.said() if self.left else {})
        with _Here.lock:
            _write(said)

    def said(self) -> dict[str, Any]:
        """Its state as it is now."""
        wrapped = self.wrapped()
        missing = [name for at, name in enumerate(self.names) if not self.seen[at]]
        now: dict[str, Any] = {}
        if wrapped is not None:
            now = {name: bool(each.requires_grad) for name, each in wrapped.module.named_parameters()}
        return {
            "kind": self.kind,
            "parameters": len(self.names),
            "backwards": self.backwards,
            "missing": [[name, now.get(name)] for name in missing[:_MOST_NAMES]],
            "missing_count": len(missing),
            "frozen": [name for name in self.names if now.get(name) is False][:_MOST_NAMES],
            "find_unused": getattr(wrapped, "find_unused_parameters", None),
            "static_graph": getattr(wrapped, "static_graph", None),
            "syncs": getattr(wrapped, "require_backward_grad_sync", None),
        }


def watch(folder: str, stack: Stack) -> None:
    """Writes down what this process does as a rank, from its import of torch.distributed on."""
    _Here.folder, _Here.stack = folder, stack
    calls = {"torch.distributed.distributed_c10d": _wrap_collectives, "torch.nn.parallel.distributed": _wrap_ddp}
    guarded = {name: functools.partial(_guarded, wrap) for name, wrap in calls.items()}
    importlib.import_module("envkit_companion").AfterImport(guarded)
    os.register_at_fork(after_in_child=_forked)
    rank = _number("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    world = _number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    if rank is not None and world is not None and world > 1:
        _Here.rank, _Here.world = rank, world
        _begin()


def _number(*names: str) -> int | None:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), None)


def _forked() -> None:
    """A forked child is a rank only if it makes itself one; what it inherited is its parent's."""
    if _Here.file is not None:
        with contextlib.suppress(OSError):
            os.close(_Here.file)
    _Here.file, _Here.pid, _Here.calls, _Here.gradients = None, 0, 0, 0
    _Here.lock = threading.Lock()
    _Here.counts.clear()
    _Here.told.clear()
    del _Here.modules[:]


def _guarded(what: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of this file returns; None where it fails, for the program goes on whatever becomes of it."""
    if _Here.failures >= _MOST_FAILURES:
        return None
    try:
        return what(*arguments)
    except Exception as error:  # of whatever kind: the program that is watched must not end by who watches it
        _Here.failures += 1
        with contextlib.suppress(Exception):
            _write({"e": "trouble", "in": what.__name__, "why": f"{type(error).__name__}: {error}"[:300]})
        return None


# -- what is written


def _begin() -> None:
    """Opens this process's file and starts the thread that notices when nothing happens."""
    if _Here.pid == os.getpid():
        return
    _Here.pid = os.getpid()
    _Here.name = f"{socket.gethostname()[:60]}-{_Here.pid}".replace("/", "_")
    _open()
    threading.Thread(target=_attend, name="envkit-ranks", daemon=True).start()
    atexit.register(_ended, _Here.pid)
    before = sys.excepthook

    def uncaught(kind: Any, error: Any, trace: Any) -> None:
        _guarded(_still, "raised", 0.0)
        before(kind, error, trace)

    sys.excepthook = uncaught


def _open() -> None:
    path = os.path.join(_Here.folder, f"ranks-{_Here.name}.jsonl")
    _Here.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    _Here.written = 0
    said = {
        "e": "rank",
        "rank": _Here.rank,
        "world": _Here.world,
        "pid": _Here.pid,
        "host": socket.gethostname(),
        "local_rank": _number("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
        "restart": _number("TORCHELASTIC_RESTART_COUNT"),
        "time": round(time.time(), 3),
    }
    for row in [said, *_Here.told.values(), *(each.row() for each in _Here.modules)]:
        _write(row)


def _write(said: dict[str, Any]) -> None:
    if _Here.file is None:
        return
    line = json.dumps(said).encode("utf-8", "replace") + b"\n"
    try:
        os.write(_Here.file, line)
    except OSError:
        _Here.file = None  # a full disk, or a program that closes what it does not know: it goes on unwatched
        return
    _Here.written += len(line)
    if _Here.written > _MOST_BYTES:
        path = os.path.join(_Here.folder, f"ranks-{_Here.name}.jsonl")
        os.close(_Here.file)
        os.replace(path, path[: -len(".jsonl")] + ".old.jsonl")
        _open()


def _ended(pid: int) -> None:
    if os.getpid() == pid:
        _guarded(_still, "ended", 0.0)
        _guarded(_write, {"e": "end", "time": round(time.time(), 3)})


def _still(reason: str, seconds: float) -> None:
    """Writes down where this process stands, whole or not at all."""
    mine = threading.get_ident()
    main = threading.main_thread().ident
    names = {each.ident: each.name for each in threading.enumerate()}
    threads: list[dict[str, Any]] = []
    for ident, frame in sys._current_frames().items():
        if _Here.stack is not None and ident != mine and len(threads) < 64:
            threads.append({"name": names.get(ident, ""), "main": ident == main, "frames": _Here.stack(frame)})
    said = {
        "rank": _Here.rank,
        "pid": os.getpid(),
        "reason": reason,
        "still_s": round(seconds, 1),
        "calls": _Here.calls,
        "time": round(time.time(), 3),
        "threads": sorted(threads, key=lambda each: not each["main"]),
        "modules": [each.said() for each in _Here.modules],
    }
    path = os.path.join(_Here.folder, f"still-{_Here.name}.json")
    with open(path + "~", "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(said, file)
    os.replace(path + "~", path)


def _attend() -> None:
    """The thread: tells that gradients come, and writes down where the process stands when nothing does."""
    pid, done, since, beat, wrote, gradients = os.getpid(), -1, time.monotonic(), 0.0, 0.0, 0
    while os.getpid() == pid and _Here.file is not None and _Here.failures < _MOST_FAILURES:
        time.sleep(_LOOK_S)
        now = time.monotonic()
        if _Here.calls + _Here.gradients != done:
            done, since, wrote = _Here.calls + _Here.gradients, now, 0.0
            if _Here.gradients != gradients and now - beat >= _BEAT_S:
                gradients, beat = _Here.gradients, now
                with _Here.lock:
                    _guarded(_write, {"e": "beat", "gradients": gradients})
        elif now - since >= _STILL_S and now - wrote >= _AGAIN_S:
            wrote = now
            _guarded(_still, "still", now - since)
            if _Here.nccl:
                _guarded(_flight)


def _flight() -> None:
    """NCCL's flight recorder as this torch gives it out, where it is on."""
    native = sys.modules.get("torch._C._distributed_c10d")
    dump = getattr(native, "_dump_nccl_trace", getattr(native, "_dump_fr_trace", None))
    if dump is None or _Here.rank is None:
        return
    raw = dump()
    path = os.path.join(_Here.folder, f"flight-{_Here.rank}.pkl")
    if isinstance(raw, bytes) and len(raw) < 16 << 20:
        with open(path + "~", "wb") as file:
            file.write(raw)
        os.replace(path + "~", path)


# -- torch


def _wrap_ddp(module: ModuleType) -> None:
    kind = getattr(module, "DistributedDataParallel")  # noqa: B009 - a module that is not known here
    build = kind.__init__

    @functools.wraps(build)
    def built(self: Any, *arguments: Any, **named: Any) -> None:
        build(self, *arguments, **named)
        _guarded(_met, self)

    kind.__init__ = built


def _met(wrapped: Any) -> None:
    if len(_Here.modules) < 16:
        _Here.modules.append(_Module(wrapped))
        _write(_Here.modules[-1].row())


def _wrap_collectives(module: ModuleType) -> None:
    _Here.c10d = module
    _Here.torch = os.path.dirname(os.path.dirname(os.path.abspath(str(module.__file__)))) + os.sep
    native = sys.modules.get("torch._C._distributed_c10d")
    if hasattr(native, "_dump_nccl_trace") and not hasattr(native, "_dump_fr_trace"):
        # The recorder is off in some of the torches without the second; the others have it on, under a newer name.
        os.environ.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")
    for name in _COLLECTIVES + _BETWEEN_TWO + _LIFE:
        original = getattr(module, name, None)
        if inspect.isfunction(original):
            setattr(module, name, _watched(name, original))


def _watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a line before and a line after each call that no other watched call makes."""
    places = {each: at for at, each in enumerate(inspect.signature(original).parameters)}

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        if getattr(_Here.inside, "call", False):
            return original(*arguments, **named)
        _Here.inside.call = True
        number = None
        try:
            number = _guarded(_enter, name, places, arguments, named)
            answer = original(*arguments, **named)
        except BaseException as error:
            _guarded(_leave, name, number, type(error).__name__)
            raise
        finally:
            _Here.inside.call = False
        _guarded(_leave, name, number, "")
        return answer

    return call


def _enter(name: str, places: dict[str, int], arguments: Sequence[Any], named: dict[str, Any]) -> int | None:
    def given(what: str) -> Any:
        at = places.get(what, 1 << 30)
        return named.get(what, arguments[at] if at < len(arguments) else None)

    if name == "init_process_group":
        rank, world = given("rank"), given("world_size")
        _Here.rank = rank if isinstance(rank, int) and rank >= 0 else _Here.rank
        _Here.world = world if isinstance(world, int) and world > 0 else _Here.world
    _begin()
    for each in _Here.modules:
        if each.left and each.backwards:
            _guarded(each.tell)
    said: dict[str, Any] = {"e": "in", "n": 0, "op": name}
    if name not in _LIFE:
        members = _group(given("group") if name != "new_group" else None)
        if members is None:
            return None  # this rank is none of the group's: the call does nothing
        said["g"] = members
        data = next((found for name in _DATA if (found := given(name)) is not None), None)
        said.update(_shape(data) if data is not None else {})
        peers = {each: peer for each in _PEERS if isinstance(peer := given(each), int)}
        if peers:
            said["peers"] = peers
        reduction = given("op")
        if name in ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor") and reduction is not None:
            said["by"] = str(reduction).rpartition(".")[2][:20]
        if given("async_op"):
            said["async"] = True
    said["at"], said["own"] = _caller()
    with _Here.lock:
        _Here.calls += 1
        said["n"] = _Here.calls
        if name in _COLLECTIVES:
            _Here.counts[said["g"]] = said["s"] = _Here.counts.get(said["g"], 0) + 1
        _write(said)
        return _Here.calls


def _leave(name: str, number: int | None, error: str) -> None:
    if number is None:
        return
    said: dict[str, Any] = {"e": "out", "n": number}
    if error:
        said["error"] = error
    with _Here.lock:
        _Here.calls += 1
        _write(said)
        if name == "init_process_group" and not error:
            _Here.rank, _Here.world = int(_Here.c10d.get_rank()), int(_Here.c10d.get_world_size())
            _write({"e": "joined", "rank": _Here.rank, "world": _Here.world})
        if name == "destroy_process_group":
            _Here.counts.clear()
            _Here.told.clear()


def _group(given: Any) -> str | None:
    """The name of a group, which is the same on all its ranks; described when it is first met.  None: not a member."""
    c10d = _Here.c10d
    member = getattr(c10d, "GroupMember", None)
    if given is not None and given is getattr(member, "NON_GROUP_MEMBER", c10d):
        return None
    world = getattr(c10d, "_world", None)
    default = c10d._get_default_group()
    if given is None or given is getattr(member, "WORLD", None):
        given = default
    names = world.pg_names if world is not None else c10d._pg_names
    name = str(names.get(given, "?"))
    if name not in _Here.told:
        ranks = world.pg_group_ranks if world is not None else c10d._pg_group_ranks
        backend = str(c10d.get_backend(given))
        _Here.nccl = _Here.nccl or "nccl" in backend
        members = sorted(ranks.get(given) or range(c10d.get_world_size()))
        row = {"e": "group", "g": name, "ranks": members[:4096], "backend": backend, "default": given is default}
        _Here.told[name] = row
        _write(row)
    return name


def _shape(data: Any) -> dict[str, Any]:
    """The sizes of what is sent: at most four tensors, the number of all, their elements, type and device."""
    tensors = [each for each in (data if isinstance(data, (list, tuple)) else [data]) if hasattr(each, "numel")]
    if not tensors:
        return {}
    return {
        "shape": [list(each.shape)[:8] for each in tensors[:4]],
        "numel": sum(int(each.numel()) for each in tensors),
        "dtype": str(tensors[0].dtype).rpartition(".")[2],
        "device": str(tensors[0].device),
    }


def _caller() -> tuple[list[Any] | None, list[Any] | None]:
    """The innermost frame outside of torch and this file; and the innermost outside of all packages, if another."""
    frame: FrameType | None = sys._getframe(1)
    near: list[Any] | None = None
    for _ in range(60):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if file != __file__ and not file.startswith(_Here.torch) and not file.startswith("<frozen"):
            here = [file, frame.f_lineno, frame.f_code.co_name]
            near = near or here
            if "-packages" + os.sep not in file and os.sep + "lib" + os.sep + "python" not in file:
                return near, (here if here != near else None)
        frame = frame.f_back
    return near, None
