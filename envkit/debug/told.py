"""What a run of the stages amounts to, in words: the cause in one sentence, its fix, and the explanation of the
logs."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence

from envkit.debug import kernels, stacks
from envkit.debug.job import Earlier, Event
from envkit.debug.kernels import Source
from envkit.debug.records import Child, Fault, PythonFrame, Waiting
from envkit.facts import Facts
from envkit.logs import reader, verdict
from envkit.logs import story as stories
from envkit.logs.records import Explanation
from envkit.logs.story import Story
from envkit.system import proc

_CATEGORIES = {
    "misaligned": "misaligned-address",
    "out of bounds": "illegal-memory-access",
    "other": "illegal-memory-access",
    "assert": "device-side-assert",
}


ORDERED = (
    "let a stream wait for another where it uses what that one writes (wait_stream, Event.synchronize, record_stream), "
    "and fill or free no buffer before a copy from it is done; where numbers are random by themselves, fix the seeds"
)
WAITED = (
    "wait for the copy before its numbers are read on the CPU, or its buffer is filled again: synchronize an event "
    "that is recorded behind it, or leave non_blocking out"
)
_LEAST = 3  # runs that tell of an order in time


def read(texts: Mapping[str, bytes]) -> Story:
    """The story of some logs, by their names."""
    return stories.tell([reader.read([reader.Input(name, io.BytesIO(text)) for name, text in texts.items()])])


def explained(texts: Mapping[str, bytes], facts: Facts) -> tuple[Story, Explanation]:
    """The story of some logs and what `envkit explain` makes of it."""
    story = read(texts)
    return story, verdict.explain(story, facts)


def category(fault: Fault) -> str:
    """The failure's id in the catalogue; empty for a fault that raises no error by itself (a race, a read of memory
    that nobody wrote), which the catalogue of error messages does not hold."""
    return _CATEGORIES.get(fault.problem, "")


def at(fault: Fault, python: Sequence[PythonFrame], sources: Sequence[Source]) -> str:
    """Behind a kernel's name, where in its source the fault is."""
    if fault.fused:
        return f" in what torch.compile made of {_fused(fault)}"
    if not kernels.compiled_on_the_way(fault, sources):
        return f" at {fault.place.where}" if fault.place.where else " (built without line numbers)"
    made = kernels.made(fault, python, sources)
    said = " in a source that was compiled at run time, without line numbers"
    if fault.place.file:
        said = f" at line {fault.place.line} of its source, which was compiled at run time"
    said += f": `{made.text}`" if made and made.text else ""
    said += f" ({made.place})" if made and made.place else ""
    return said + (f", compiled at {made.maker.place} in {made.maker.function}" if made and made.maker else "")


def _fused(fault: Fault) -> str:
    """The lines that a kernel was made of, those of one function together."""
    functions: dict[tuple[str, str], list[str]] = {}
    for frame in fault.fused:
        lines = functions.setdefault((frame.file, frame.function), [])
        if str(frame.line) not in lines:
            lines.append(str(frame.line))
    return " and of ".join(f"{file}:{', '.join(lines)} in {name}" for (file, name), lines in functions.items())


def _where(fault: Fault, python: Sequence[PythonFrame], sources: Sequence[Source]) -> str:
    if fault.fused:
        return fault.fused[0].place
    if not kernels.compiled_on_the_way(fault, sources):
        return fault.place.where or f"`{fault.kernel}`"
    made = kernels.made(fault, python, sources)
    if made and made.place:
        return made.place
    line = f"line {fault.place.line} of " if fault.place.file else ""
    compiled = f", which is compiled at {made.maker.place}," if made and made.maker else ""
    return f"{line}the source of `{fault.kernel}`{compiled}"


def _who(fault: Fault) -> str:
    if fault.thread is None:
        return ""
    thread = ",".join(map(str, fault.thread))
    return f", by thread ({thread})" + (f" of block ({','.join(map(str, fault.block))})" if fault.block else "")


def _near(fault: Fault) -> str:
    near = fault.near
    if near is None:
        return ""
    size = f"an allocation of {near.size:,} bytes" if near.size else "the nearest allocation"
    if near.side == "inside":
        return f", inside {size}"
    return f", {near.distance:,} bytes {near.side} {size}"


def sentence(fault: Fault, python: Sequence[PythonFrame], sources: Sequence[Source] = ()) -> str:
    """The fault in one sentence with the observed values; ``sources`` are what was compiled while the command ran."""
    name = f"kernel `{fault.kernel}`"
    address = f" 0x{fault.address:x}" if fault.address is not None else ""
    size = f"{fault.size} bytes" if fault.size else "memory"
    verb = {"read": "reads", "write": "writes", "atomic": "updates"}.get(fault.access, "uses")
    what = {
        "misaligned": f"{verb} {size} at the misaligned address{address}",
        "out of bounds": f"{verb} {size} out of bounds",
        "uninitialized": f"{verb} {size} that nobody wrote",
        "barrier": f"reports: {fault.kind[:1].lower()}{fault.kind[1:].rstrip('.')},",
        "assert": "fails an assertion",
    }.get(fault.problem, f"ends with: {fault.kind},")
    if fault.problem == "race":
        second = f" and at {fault.other.where}" if fault.other and fault.other.where else ""
        hazards = f", {fault.count} hazards" if fault.count > 1 else ""
        said = f"{name} has threads race for shared memory{at(fault, python, sources)}{second}{hazards}"
    else:
        said = f"{name} {what}{at(fault, python, sources)}{_near(fault)}{_who(fault)}"
    own = stacks.own_line(python)
    if own and (call := kernels.called(fault)):
        # A library's kernel does what it was asked for: sizes, strides and buffers are the caller's.
        return f"{call}, called at {own.place} in {own.function}, {what}{_near(fault)} in its kernel `{fault.kernel}`"
    replayed = stacks.own_line(fault.python) if stacks.replays(fault.python) else None
    if own and own != replayed:
        said += f"; launched at {own.place} in {own.function}"
        above = stacks.caller(python)
        said += f", called at {above.place} in {above.function}" if above else ""
    return said + (f"; the graph that holds it is replayed at {replayed.place}" if replayed else "")


def blamed(fault: Fault, python: Sequence[PythonFrame]) -> str:
    """The cause class of a fault: of a library's kernel it is the program that called it."""
    return "program-bug" if stacks.own_line(python) and kernels.called(fault) else "gpu-kernel-bug"


def fix(fault: Fault, python: Sequence[PythonFrame] = (), sources: Sequence[Source] = ()) -> str:
    """What to do about a fault."""
    if (call := kernels.called(fault)) and (own := stacks.own_line(python)):
        return (
            f"see at {own.place} that the sizes, strides and types given to {call} fit its buffers, and that none of "
            "them is freed or written while it runs"
        )
    at = _where(fault, python, sources)
    where = f"in {at}" if at.startswith("`") else f"at {at}"
    if fault.problem == "out of bounds":
        over = "the index is compared with the size before it is used, and the grid and the tensor belong together"
        return f"see {where} that {over}"
    if fault.problem == "misaligned":
        size = f"a multiple of {fault.size}" if fault.size else "a multiple of the access's size"
        return (
            f"give the kernel a pointer that is {size} (a slice or a storage offset makes it odd: clone the tensor), "
            f"or load smaller pieces {where}"
        )
    if fault.problem == "race":
        same = fault.other is None or fault.other.where == fault.place.where
        how = "use an atomic operation there" if same else "put __syncthreads() between the two"
        return f"{how} ({at})"
    if fault.problem == "uninitialized":
        return f"write the memory before {at} reads it (torch.zeros or a fill in place of torch.empty)"
    if fault.problem == "barrier":
        return f"let every thread of the block reach the barrier {where}: move it out of the condition or early return"
    if fault.problem == "assert":
        return f"see what the assertion {where} demands of the input, and check the input on the CPU"
    return f"look at {at}: {fault.kind}"


def varied(messages: Sequence[str]) -> str:
    """What it tells that runs of a command failed by one exception with other numbers in each; "" for runs that did
    not."""
    said = [message for message in messages if message]
    forms = {re.sub(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", "#", message) for message in said}
    if len(said) < _LEAST or len(forms) != 1 or len(set(said)) < _LEAST:
        return ""
    return (
        f"in {len(said)} runs it told {len(set(said))} different numbers, so that they depend on the order in time, as "
        "where a stream does not wait for another or a buffer is used again too early, or on random input"
    )


def deaths(children: Sequence[Child], exit_code: int | None) -> str:
    """Processes below the command that died of a signal, in one sentence."""
    first = children[0]
    name = proc.signal_name(-first.exit)
    own = stacks.own_line(first.stack) or stacks.own_line(first.waiter)
    where = ""
    if own:
        where = f" at {own.place} in {own.function}" if first.stack else f", waited for at {own.place}"
    more = f" and {len(children) - 1} more" if len(children) > 1 else ""
    went = ", while its parent went on and exited with status 0" if exit_code == 0 else ""
    return f"process {first.pid}{more} below the command died of {name} ({first.exit}){where}{went}"


def hanging(processes: Sequence[Waiting], seconds: float, ended: str) -> str:
    """Where the processes of a hanging command are, in one sentence; those with a rank or the GPU first."""
    telling = [each for each in processes if each.threads] or list(processes)
    telling.sort(key=lambda each: (not each.rank, not each.cuda))
    said = "; ".join(stacks.waits(each) for each in telling[:4])
    more = f"; and {len(telling) - 4} more" if len(telling) > 4 else ""
    how = "no stack of Python moved" if ended == "hung" else "its time was up"
    return f"the command hung ({how} after {seconds:.0f} s): {said}{more}"


def main_frames(events: Sequence[Event]) -> tuple[PythonFrame, ...]:
    """The frames of the first exception that ended a Python of the command: those of the process that it is passed on
    from, and of the first of several errors of CUDA, as each call of CUDA fails after one, or after one in a capture.
    """
    for event in events:
        if event["event"] != "exception" or not event.get("frames"):
            continue
        chain: list[Event | Earlier] = [event, *event.get("before", ())]
        for each in chain:
            if passed_on := stacks.raised(each.get("message", "")):
                return passed_on
        of_cuda = [each for each in chain if "CUDA error" in each.get("message", "")]
        first = of_cuda[-1] if of_cuda and of_cuda[0] is event else event
        return stacks.frames(first.get("frames") or event["frames"])
    return ()
