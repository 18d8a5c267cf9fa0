"""Programs that died inside the driver's or CUDA's libraries.

Sources: Linux kernel, show_signal_msg; CPython faulthandler; gdb, UCX and Open MPI stack listings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs import gdb
from envkit.logs.causes._worded import worded
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_KERNEL = ("kernel-segfault-gpu", "kernel-gpf-gpu")
_FRAMES = ("frame-libcuda", "frame-libnccl", "frame-libnvidia", "frame-libcudart", "frame-jvm")
_SIGNALS = ("caught-signal-11", "received-sigsegv", "mpi-signal-segv", "program-fault-python", "program-java-fatal")
_OF_OTHERS = re.compile(
    r"sysdeps|nptl|glibc|/usr/src|/usr/include/|\b(?:aten|c10|torch|cutlass)\b|\.cuh?:|Python/|Objects/"
)
_PLACE = re.compile(r":\d{1,9}$")
_TOP = 4  # above the frame that faulted stand the signal's handlers, three of them in glibc's and UCX's listings
_LONGEST = 200  # characters of a function, whose types may be long
_BEHIND = 40  # lines in which a stack stands behind the message of its signal


def segfault_inside_driver(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A segmentation fault whose place is in libcuda, libnccl or their kin.

    A program's own error before it is the cause, for libcuda's threads fault when a process ends under them.
    """
    for event in story.of(*_KERNEL)[:1]:
        yield _told(event, event.values["lib"], story)
        return
    for signal in story.of(*_SIGNALS):
        for frame in story.of(*_FRAMES):
            near = frame.line.file == signal.line.file and 0 < frame.line.number - signal.line.number <= _BEHIND
            depth = (
                0
                if frame.signature.id == "frame-jvm"
                else int(next((frame.values[name] for name in ("seq", "seq2", "seq3") if frame.values.get(name)), 99))
            )
            if near and depth <= _TOP:
                yield _told(signal, frame.values["lib"], story, frame)
                return


def crash_under_debugger(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """gdb shows the source line of the program's at which it crashed, or which called the C or C++ library there."""
    if any(event.has("cuda") or event.has("sticky") for event in story.roots) or story.of(*_FRAMES, *_KERNEL):
        return
    for event in story.of("received-sigsegv", "received-fault")[:1]:
        for line in [line for seen in story.files for line in (*seen.head, *seen.tail)]:
            near = line.file == event.line.file and 0 < line.number - event.line.number <= _BEHIND
            found = gdb.frame(line.body) if near else None
            if found is None or not found.own or _OF_OTHERS.search(found.where):
                continue
            if _PLACE.search(found.where):
                why = f"the program crashed in {found.function[:_LONGEST]} ({found.where})"
                over = ("insufficient-evidence",)
                yield Hypothesis("not-gpu-env", "program-bug", Strength.LIKELY, (event.line, line), why, over=over)
            return


def _told(event: Event, library: str, story: Story, frame: Event | None = None) -> Hypothesis:
    name = event.values.get("name")
    who = f"{name} ({event.values['pid']})" if name and event.values.get("pid") else "the program"
    earlier = [one for one in story.roots if one is not event and one.signature.id not in _KERNEL and one.has("cuda")]
    if earlier:
        return worded("segfault-after-own-error", event, frame, who=who, library=library, place=earlier[0].line.place)
    own = library.startswith(("libcuda.", "libnvidia", "libnvcuvid"))
    cause = "driver-firmware-fault" if own else "program-bug"
    return worded("segfault-in-library", event, frame, cause=cause, who=who, library=library)
