"""What the causes of CUDA's failures share: whose code it was, what else was seen, and which sizes a line names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envkit.logs.records import Event, Line, Role
from envkit.logs.story import Story

AFTERMATH = (
    "cublas-not-initialized", "cublas-execution-failed", "cudnn-not-initialized", "cudnn-execution-failed",
    "nccl-unhandled-cuda-error", "nccl-remote-error", "nccl-timeout-hang", "insufficient-evidence",
)  # fmt: skip
"""Categories that a fault of a kernel or a lack of memory explains: what fails next, here and on the other ranks."""

HARDWARE = (
    "ecc-uncorrectable", "xid-48", "xid-54", "xid-63/64", "xid-62", "xid-74", "xid-79", "xid-94/95",
    "xid-119/120 GSP", "xid-143", "xid-144-150-nvlink5", "sxid-nvlink",
)  # fmt: skip
"""Categories of the kernel log that name the GPU, its memory or a link."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50, "e": 1 << 60}
_SIZE = re.compile(r"\s*([0-9][0-9,]*(?:\.[0-9]+)?)\s*([kmgtpe]?)i?b?(?:ytes?)?\s*\Z", re.IGNORECASE)
_SECOND_GPU = re.compile(r"\bcuda:[1-9]|\.cuda\([1-9]|set_device\([1-9]|device=[1-9]\b")


def size(text: str | None) -> float | None:
    """Bytes of "1.71 GiB", "512 KiB", "6291456" or "1,024 bytes"; None for what is no size.

    KB, MB and GB count as their binary kin: programs that print memory mean those.
    """
    found = _SIZE.match(text) if text else None
    if not found:
        return None
    return float(found[1].replace(",", "")) * _UNITS[found[2].lower()]


def shown(count: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count:.0f} bytes"


def first(events: Iterable[Event]) -> Event | None:
    """The first event that stopped something, else the first that only warned."""
    found = list(events)
    return next((event for event in found if not event.has("warning")), found[0] if found else None)


def code_of(story: Story, event: Event) -> str:
    """File, function and source of the frames that led to this event, in small letters, outermost first.

    The frames of its own traceback; where the log does not tie it to one, those of all tracebacks.
    """
    own = story.traceback_of(event.line)
    traces = (own,) if own else story.tracebacks
    return "\n".join(
        f"{_module(frame.file)} {frame.function} {frame.code}".lower() for trace in traces for frame in trace.frames
    )


def _module(file: str) -> str:
    """The file within its package; of a program's own only its name, for what its folders are called says nothing."""
    parts = re.split(r"(?:^|[\\/])((?:site|dist)-packages)[\\/]", file)
    return "/".join(parts[-2:]) if len(parts) > 1 else re.split(r"[\\/]", file)[-1]


def innermost(story: Story, event: Event, of: int = 3) -> str:
    """The last ``of`` frames of :func:`code_of`: where the call was made."""
    return "\n".join(code_of(story, event).splitlines()[-of:])


def lines_of(*events: Event | None) -> tuple[Line, ...]:
    """Their lines, each once."""
    return tuple(dict.fromkeys(event.line for event in events if event is not None))


def hardware(story: Story) -> Event | None:
    """The first line of the kernel log that names the GPU itself."""
    return next((event for event in story.in_category(*HARDWARE, roots=False) if event.role is not Role.ADVICE), None)


def second_gpu(story: Story, event: Event) -> str:
    """How the program names a GPU that is not the first one, in one process; "" where it does not.

    A kernel is launched on the current device, which is the first one until the program sets another.
    """
    if len(story.ranks) > 1:
        return ""
    for other in story.of("replica-device"):
        if other.values.get("device", "0") != "0":
            return f"replica on device {other.values['device']}"
    code = code_of(story, event)
    found = _SECOND_GPU.search(code)
    return found[0] if found else ""


def neighbours(story: Story, event: Event, ids: tuple[str, ...], within: int = 8) -> tuple[Event, ...]:
    """Events of these signatures in the same file at most ``within`` lines away."""
    return tuple(
        other
        for other in story.of(*ids)
        if other.line.file == event.line.file and abs(other.line.number - event.line.number) <= within
    )
