"""What the causes of the setup domain share: how the job was started, what worked, and how sure one may be."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envkit.logs.records import Event, Hypothesis, Role, Strength, Traceback
from envkit.logs.story import Story

_GPU_OPTION = re.compile(r"--gpus|--runtime[= ]?nvidia|nvidia\.com/gpu|/dev/nvidia|--device[= ]nvidia|--nv(?:ccli)?\b")
_GPU_WORD = re.compile(
    r"(?i)cuda|gpu|nvidia|cudnn|nccl|driver|accelerator|bf16|bfloat16|fp16|mixed precision|triton|\.so\b|device|ptx"
    r"|executionprovider|memory_efficient_attention"
)
# what is said of an answer that was expected and did not come
_FOR_WANT = re.compile(r"expected (?:one|at least one) argument|invalid \w{1,20} value: ''|\bNone\b")
_GPU_CODE = re.compile(
    r"torch[\\/](?:cuda[\\/]|utils[\\/]cpp_extension)|[\\/](?:pynvml|cupy|pycuda|tensorrt|triton)\b|numba[\\/]cuda"
)
_INNERMOST = 2
_PROMPT_CONTAINER = ("setup-root-prompt", "setup-container-banner")
_RUN = ("setup-docker-run", "setup-singularity", "setup-apptainer")
_CONTAINER_WORD = re.compile(r"(?i)\bdocker|containerd|podman|kubelet|kubectl|/workspace/|/\.dockerenv|\bpod\b")


def hypothesis(
    event: Event,
    cause: str,
    strength: Strength,
    because: str,
    *,
    more: Iterable[Event] = (),
    over: tuple[str, ...] = (),
    fix: str = "",
) -> Hypothesis:
    """One that rests on ``event``; ``more`` are the other lines to be quoted."""
    lines = tuple(dict.fromkeys((event.line, *(other.line for other in more))))
    explained = tuple(each for each in over if each != event.category)
    return Hypothesis(event.category, cause, strength, lines, because, over=explained, fix=fix)


def roots_of(story: Story, category: str, *preferred: str) -> tuple[Event, ...]:
    """The roots of this category, those of the signatures in ``preferred`` first, the first of each kind only."""
    found: dict[str, Event] = {}
    for event in story.in_category(category):
        found.setdefault(event.signature.id, event)
    order = {name: place for place, name in enumerate(preferred)}
    return tuple(sorted(found.values(), key=lambda event: order.get(event.signature.id, len(order))))


def is_warning(event: Event) -> bool:
    """Whether the line is one after which the program went on."""
    text = event.line.text[:400]
    return event.has("warning") or "Warning:" in text or event.line.level.lower().startswith("warn")


def unless_only_warned(story: Story, event: Event, strength: Strength) -> Strength:
    """``strength``, less where the line is a warning and the program died of something that speaks of no GPU."""
    if not is_warning(event):
        return strength
    later = [trace for trace in story.tracebacks if trace.line.file == event.line.file]
    if not later and ended_otherwise(story, event):
        return min(strength, Strength.FALLBACK)
    of_gpu = any(_GPU_WORD.search(f"{trace.kind} {_asserted(trace)}") or _in_gpu_code(trace) for trace in later)
    return min(strength, Strength.LIKELY if of_gpu or not later else Strength.FALLBACK)


def ended_otherwise(story: Story, event: Event) -> bool:
    """Whether a line behind an event states a failure that has nothing to do with the GPU."""
    told = [
        each.line
        for each in story.events
        if each.category == "not-gpu-env" and each.signature.role is Role.ROOT and not _FOR_WANT.search(each.line.text)
    ]
    told += [line for seen in story.files for line in seen.loud if line.level in ("error", "fatal", "critical")]
    return any(
        line.file == event.line.file and line.number > event.line.number and not _GPU_WORD.search(line.text)
        for line in told
    )


def started_without_gpus(story: Story, event: Event) -> Event | None:
    """The command that started the container ``event`` comes from, if it is there in full and asks for no GPU.

    Without an option that asks for GPUs neither engine gives any (Docker run reference, Apptainer user guide).
    """
    runs = [run for run in story.of(*_RUN) if run.line.file != event.line.file or run.line.number < event.line.number]
    if not runs:
        return None
    run = runs[-1]
    words = run.line.text
    if words.rstrip().endswith(("\\", "`", "^")) or "nvidia-docker" in words or "..." in words:
        return None
    return None if _GPU_OPTION.search(words) else run


def container_sign(story: Story) -> Event | None:
    """A line that shows that it ran in a container."""
    return next(iter(story.of(*_PROMPT_CONTAINER, *_RUN)), None)


def in_container(story: Story) -> bool:
    """Whether a line shows that it ran in a container or below an engine that runs them."""
    if container_sign(story) is not None:
        return True
    heads = (line for seen in story.files for line in (*seen.head, *seen.tail))
    return any(line.source in ("docker", "kubernetes") or _CONTAINER_WORD.search(line.text) for line in heads)


def gpus_listed(story: Story) -> Event | None:
    """The line by which nvidia-smi shows, anywhere in the logs, that some machine of the story has a working driver."""
    return next(iter(story.of("setup-smi", "setup-smi-list")), None)


def words_seen(story: Story, *words: str) -> bool:
    """Whether any event, traceback, or line at an end of a file holds one of these words (small letters)."""
    texts = [event.line.text for event in story.events]
    texts += [f"{trace.kind} {trace.message}" for trace in story.tracebacks]
    texts += list(story.frames())
    for seen in story.files:
        texts += [line.text for line in (*seen.head, *seen.tail)]
    plain = "\n".join(texts).lower()
    return any(word in plain for word in words)


def _asserted(trace: Traceback) -> str:
    """The exception's message; of an assertion without one what it asserted."""
    return trace.message or (trace.frames[-1].code if trace.kind == "AssertionError" and trace.frames else "")


def _in_gpu_code(trace: Traceback) -> bool:
    """Whether the exception was raised where a library of the GPU stack asks for the GPU."""
    return any(_GPU_CODE.search(frame.file) for frame in trace.frames[-_INNERMOST:])
