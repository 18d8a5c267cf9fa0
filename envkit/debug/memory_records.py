"""The nouns of `envkit debug --memory`: what ``payload/companion/envkit_memory.py`` wrote of a process, read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envkit.debug import snapshot, stacks
from envkit.debug.records import PythonFrame
from envkit.debug.snapshot import Snapshot
from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """A variable of the program that keeps tensors: how many entries, tensors, bytes on GPUs, tensors with a graph,
    nodes of their graphs; the lines in which it gets more, as number and text; and its bytes in the CPU's memory."""

    path: str
    file: str
    length: int
    tensors: int
    size: int
    graphs: int
    nodes: int
    lines: tuple[tuple[int, str], ...] = ()
    host: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """A device at one moment, in bytes; ``processes`` are (pid, bytes, name) as NVML tells, None where it does not."""

    device: int = 0
    allocated: int = 0
    reserved: int = 0
    allocated_peak: int = 0
    reserved_peak: int = 0
    retries: int = 0
    free: int = 0
    total: int = 0
    frameworks: tuple[str, ...] = ()
    processes: tuple[tuple[int, int, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen after a step: the device, the allocator's blocks (if kept) and the program's holders.

    ``kept`` are bytes of the optimizer's parameters, their gradients and its state, ``host`` those of the CPU's memory
    that are the process's own."""

    step: int
    usage: Usage
    shot: Snapshot | None
    holders: tuple[Holder, ...]
    kept: Mapping[str, int]
    host: int = 0


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """An allocation that failed: bytes asked for, bytes free on the device, and where Python was."""

    asked: int
    free: int
    total: int
    frames: tuple[PythonFrame, ...]
    backward: bool
    usage: Usage
    shot: Snapshot | None
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """One process that took steps, or used a GPU through torch; ``series`` are (step, allocated, reserved) at the ends
    of steps, ``clock`` are (second, allocated, resident in the CPU's memory), ``ram`` is the machine's memory."""

    pid: int
    rank: str
    gpus: tuple[str, ...]
    torch: str
    settings: str
    kind: str
    series: tuple[tuple[int, int, int], ...]
    looks: tuple[Look, ...]
    ooms: tuple[OutOfMemory, ...]
    end: Usage | None
    fraction: float = 0.0
    fraction_at: str = ""
    trouble: tuple[str, ...] = ()
    clock: tuple[tuple[float, int, int], ...] = ()
    ram: int = 0
    loop: tuple[str, int] = ("", 0)

    @property
    def on_gpu(self) -> bool:
        """Whether it used a GPU through torch."""
        return bool(self.gpus or self.ooms or not self.looks or any(look.usage.total for look in self.looks))


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory that grows from step to step: by how many bytes a step, which lines allocated it, and who keeps it."""

    a_step: float
    steps: int
    size: int
    lines: tuple[tuple[PythonFrame, int, int], ...]
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class HostGrowth:
    """The CPU's memory that grows from step to step: by how many bytes a step, its bytes now, and who keeps them;
    ``graph`` says that it keeps them by the graphs of its tensors."""

    a_step: float
    steps: int
    size: int
    holder: Holder
    graph: bool = False


def process(raw: Mapping[str, Any], shots: Mapping[str, Mapping[str, Any]]) -> Process:
    """What one process wrote; ``shots`` are its snapshots by their names.  Raises ValueError where it is not that."""
    try:
        return _process(raw, shots)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"it is no record of a process's memory: {type(error).__name__}: {error}") from error


def _process(raw: Mapping[str, Any], shots: Mapping[str, Mapping[str, Any]]) -> Process:
    fraction = raw.get("fraction") or {}
    place = fraction.get("place")
    return Process(
        pid=int(raw["pid"]),
        rank=str(raw["rank"]),
        gpus=tuple(str(each["name"]) for each in raw.get("devices", ())),
        torch=str(raw.get("torch", "")),
        settings=str(raw.get("settings", "")),
        kind=str(raw.get("steps", [""])[0]),
        series=tuple((int(step), int(allocated), int(reserved)) for step, allocated, reserved in raw["series"]),
        looks=tuple(_look(each, shots) for each in raw["looks"]),
        ooms=tuple(_oom(each, shots) for each in raw["ooms"]),
        end=_usage(raw["end"]) if raw.get("end") else None,
        fraction=float(fraction.get("value", 0.0)),
        fraction_at=f"{place[0]}:{place[1]}" if place else "",
        trouble=tuple(map(str, raw.get("trouble", ()))),
        clock=tuple((float(second), int(used), int(resident)) for second, used, resident in raw.get("clock", ())),
        ram=int(raw.get("ram", 0)),
        loop=(str(raw.get("loop", [""])[0]), int(raw.get("loop", ["", 0])[1])),
    )


def _look(raw: Mapping[str, Any], shots: Mapping[str, Mapping[str, Any]]) -> Look:
    usage = _usage(raw) if "total" in raw else Usage()
    kept, host = dict(raw.get("kept") or {}), int(raw.get("host", 0))
    return Look(int(raw["step"]), usage, _shot(raw, usage, shots), _holders(raw), kept, host)


def _oom(raw: Mapping[str, Any], shots: Mapping[str, Mapping[str, Any]]) -> OutOfMemory:
    usage = _usage(raw["usage"])
    shot = shots.get(str(raw["snapshot"]))
    return OutOfMemory(
        int(raw["asked"]),
        int(raw["free"]),
        max(int(raw["total"]), usage.total),  # torch tells of the limit that a process has set itself, if it has
        stacks.frames(raw["frames"]),
        bool(raw["backward"]),
        usage,
        snapshot.read(shot, int(raw["device"])) if shot else None,
        _holders(raw),
    )


def _shot(raw: Mapping[str, Any], usage: Usage, shots: Mapping[str, Mapping[str, Any]]) -> Snapshot | None:
    found = shots.get(str(raw["snapshot"]))
    return snapshot.read(found, usage.device) if found else None


def _usage(raw: Mapping[str, Any]) -> Usage:
    names = ("device", "allocated", "reserved", "allocated_peak", "reserved_peak", "retries", "free", "total")
    told = raw.get("processes")
    rows = None if told is None else tuple((int(each["pid"]), int(each["bytes"]), str(each["name"])) for each in told)
    frameworks = tuple(map(str, raw.get("frameworks", ())))
    return Usage(**{name: int(raw[name]) for name in names}, frameworks=frameworks, processes=rows)


def _holders(raw: Mapping[str, Any]) -> tuple[Holder, ...]:
    return tuple(
        Holder(
            str(each["path"]),
            str(each["file"]),
            int(each["length"]),
            int(each["tensors"]),
            int(each["bytes"]),
            int(each["graphs"]),
            int(each["nodes"]),
            tuple((int(number), str(text)) for number, text in each.get("lines", ())),
            int(each.get("host", 0)),
        )
        for each in raw["holders"]
    )
