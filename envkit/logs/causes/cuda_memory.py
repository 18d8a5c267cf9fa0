"""Out of memory: what was asked for, of how much, and who held the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._cuda import code_of, lines_of, neighbours, shown, size
from envkit.logs.causes._readers import of_category
from envkit.logs.causes._setup import words_seen
from envkit.logs.causes._tracebacks import stumbled
from envkit.logs.causes._worded import worded
from envkit.logs.records import Event, Hypothesis, Line, Strength
from envkit.logs.story import Story
from envkit.records import dataclass

_GIB = float(1 << 30)
_LARGEST = 512 * _GIB  # proposal: no GPU of this decade has more, so a larger request is a slip of arithmetic
_ABSURD = 3.0  # proposal: a request of so many times the GPU's memory is a shape gone wrong, not a batch too large
_WORTH = 0.05  # proposal: pieces that sum up to less of the GPU than this are no fragmentation worth the name
_OTHERS = 0.5  # proposal: others that hold this share of the GPU are the reason, whatever this process holds
_FOREIGN = 0.3  # proposal: a context, cuBLAS, cuDNN and NCCL take a few GiB; this share is another allocator
_AMPLE = 2.0  # proposal: blocks are rounded up to twice what was asked for, at most (CUDACachingAllocator.cpp)
_LARGE_IDLE = float(1 << 30)  # proposal: so much that is reserved and idle is fragmentation, whatever the GPU has
_ALL = 1.02  # proposal: what processes hold sums up to what is not free; above this one of them is counted twice
_PINNED = re.compile(r"pin_memory|cudahostalloc|cudamallochost|_pin_memory_loop")
_AMOUNT = r"((?<![0-9.])[0-9.]{1,24} ?[KMGTP]?i?B)"


@dataclass(frozen=True, slots=True)
class _Figures:
    """Bytes that torch's message names; None where it does not.

    ``others`` is what other processes hold, ``foreign`` what this one holds and torch has not asked for.
    """

    wanted: float | None
    total: float | None
    free: float | None
    allocated: float | None
    unallocated: float | None
    others: float | None
    limit: float | None
    foreign: float | None


def _amount(pattern: str, text: str) -> float | None:
    found = re.search(pattern, text)
    return size(found[1]) if found else None


def _figures(event: Event) -> _Figures:
    """The figures of the two forms of torch's message (pytorch, CUDACachingAllocator.cpp), and of others' requests."""
    text = event.line.text
    total = _amount(rf"{_AMOUNT} total capacity", text) or _amount(rf"total capac?i?ty of {_AMOUNT}", text)
    free = _amount(rf"; {_AMOUNT} free", text)
    free = _amount(rf"of which {_AMOUNT} is free", text) if free is None else free
    allocated = _amount(rf"{_AMOUNT} already allocated", text) or _amount(rf"{_AMOUNT} is allocated by PyTorch", text)
    unallocated = _amount(rf"{_AMOUNT} is reserved by PyTorch but unallocated", text)
    cached = _amount(rf"{_AMOUNT} cached", text)  # of the oldest form: in the cache, beside what is allocated
    reserved = _amount(rf"{_AMOUNT} reserved in total", text)
    if unallocated is None and reserved is not None and allocated is not None:
        unallocated = max(0.0, reserved - allocated)
    if unallocated is None:
        unallocated = cached
    processes = [size(found) or 0.0 for found in re.findall(rf"Process [0-9]+ has {_AMOUNT} memory in use", text)]
    others: float | None = sum(processes) if processes else None
    own = (allocated or 0.0) + (unallocated or 0.0)
    if others is not None and None not in (total, free) and own + others > _ALL * ((total or 0.0) - (free or 0.0)):
        # in a container the driver names this process by another number
        others -= min((each for each in processes if each >= own), default=0.0)
    if others is None and None not in (total, free, allocated, unallocated) and reserved is not None:
        others = (total or 0.0) - (free or 0.0) - reserved
    mine = _amount(rf"this process has {_AMOUNT} memory in use", text)
    if mine is not None and total is not None and free is not None:
        # within a container the driver does not list the processes of others
        others = max(others or 0.0, total - free - mine)
    known = None not in (mine, allocated, unallocated)
    return _Figures(
        wanted=size(event.values.get("wanted")),
        total=total if total is not None else size(event.values.get("total")),
        free=free if free is not None else size(event.values.get("free")),
        allocated=allocated,
        unallocated=unallocated,
        others=others,
        limit=_amount(rf"{_AMOUNT} allowed", text),
        foreign=(mine or 0.0) - (allocated or 0.0) - (unallocated or 0.0) if known else None,
    )


@of_category("out-of-memory")
def out_of_memory(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """The GPU's memory did not suffice: by the figures of the message, which of the reasons it was."""
    kind = event.signature.id
    evidence = lines_of(event, *neighbours(story, event, ("nccl-oom-calloc",), 4))
    if stumbled(story) is not None:
        yield _exhausted(evidence, "CUDA reports out of memory, which the program had caught")
    elif kind == "tf-oom-cpu":
        yield worded("cpu-tensor-not-allocated", *evidence)
    elif kind.startswith(("triton-resources", "launch-resources")):
        yield from _resources(event)
    elif kind == "vllm-free-memory":
        free, total, wanted = (event.values[name] for name in ("free", "total", "wanted"))
        yield worded("server-asks-for-more-than-free", *evidence, free=free, total=total, wanted=wanted)
    elif kind in ("sglang-unbalanced", "vllm-memory-profiling"):
        yield worded("memory-changed-by-others", *evidence)
    elif kind == "cuda-oom-host" or _PINNED.search(code_of(story, event)[-600:]):
        yield worded("pinned-memory-not-allocated", *evidence)
        yield _exhausted(evidence, "CUDA reports out of memory")
    elif event.has("warning"):
        # TensorFlow asks for nearly all memory at its start and goes on with less
        yield worded("allocation-failed-and-went-on", *evidence, wanted=event.values.get("wanted", "device memory"))
    else:
        yield from _by_figures(_figures(event), evidence, _frameworks(story, event))


def _resources(event: Event) -> Iterator[Hypothesis]:
    wanted, limit = event.values.get("wanted"), event.values.get("total")
    what = "more than an SM has"
    if wanted:
        what = f"{event.values.get('op', 'memory')} of {wanted} where the GPU has {limit}"
    yield worded("kernel-asks-for-too-much", event.line, what=what)
    yield worded("kernel-tuned-for-another-gpu", event.line, what=what)


def _exhausted(evidence: tuple[Line, ...], why: str) -> Hypothesis:
    """What it may be in place of a rarer reason."""
    return Hypothesis("out-of-memory", "gpu-memory-exhausted", Strength.POSSIBLE, evidence, why)


def _frameworks(story: Story, event: Event) -> str:
    """Which library beside torch takes memory of the GPU by itself in this program, in words; "" where none is seen."""
    found = re.search(r"(?:site|dist)-packages/(jax|tensorflow)\b", code_of(story, event))
    told = next((name for name in ("jax", "tensorflow") if words_seen(story, name)), "")
    name = found[1] if found else told
    return f", as {name} takes most of the GPU at its start" if name else ""


def _by_figures(seen: _Figures, evidence: tuple[Line, ...], who: str) -> Iterator[Hypothesis]:
    wanted, total = seen.wanted, seen.total
    asked = f"{shown(wanted)} were asked for" if wanted is not None else "an allocation failed"
    of = f" of {shown(total)}" if total is not None else ""
    if wanted is not None and (wanted > _LARGEST or (total is not None and wanted > _ABSURD * total)):
        strength = Strength.DECISIVE if wanted > 2 * _LARGEST else Strength.LIKELY
        yield worded("absurd-request", *evidence, strength=strength, asked=asked, of=of)
        yield _exhausted(evidence, f"{asked}{of}")
        return
    idle = seen.unallocated
    if (
        wanted is not None
        and idle is not None
        and idle >= wanted
        and idle >= min(_LARGE_IDLE, _WORTH * (total or idle))
    ):
        yield worded("fragmented-memory", *evidence, asked=asked, idle=shown(idle))
        yield _exhausted(evidence, f"{asked}{of}")
        return
    free = f", {shown(seen.free)} are free" if seen.free is not None else ""
    if seen.limit is not None and total is not None and seen.limit < total:
        yield worded("memory-limit-set", *evidence, asked=asked, limit=shown(seen.limit), of=of)
    elif seen.others is not None and total is not None and seen.others >= _OTHERS * total:
        yield worded("others-hold-the-memory", *evidence, asked=asked, others=shown(seen.others), of=of)
        yield _exhausted(evidence, f"{asked}{of}")
    elif seen.foreign is not None and total is not None and seen.foreign >= _FOREIGN * total:
        yield worded("same-process-holds-it", *evidence, asked=asked, foreign=shown(seen.foreign), of=of, who=who)
        yield _exhausted(evidence, f"{asked}{of}")
    elif wanted is not None and seen.free is not None and seen.free > _AMPLE * wanted:
        yield worded("memory-free-and-refused", *evidence, asked=asked, free=shown(seen.free), of=of)
        yield _exhausted(evidence, f"{asked}{of}")
    else:
        # without figures it is only what such a message most often means
        strength = Strength.USUAL if seen.free is None and total is None else Strength.LIKELY
        yield worded("memory-exhausted", *evidence, strength=strength, asked=asked, of=of, free=free)
