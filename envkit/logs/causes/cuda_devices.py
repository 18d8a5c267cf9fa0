"""Which GPU: mixed devices, wrong indices, refused arguments, code for another architecture, forked children."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._cuda import AFTERMATH, code_of, first, innermost, lines_of
from envkit.logs.causes._worded import worded
from envkit.logs.causes.rules import by_rule, rule_of
from envkit.logs.records import Event, Hypothesis, Role, Strength
from envkit.logs.story import Story

_RANK_INDEX = re.compile(r"local_rank|localrank|set_device\(.{0,40}rank|\brank\b|gpu_id|gpu_ids|args\.gpu|device_ids")
_PINNED = re.compile(r"pin_memory|cudahostalloc|cudamallochost|cudahostregister|memory_pool_host|pinned")
_COPY = re.compile(r"memcpy|copy_\(|\.to\(|\.cpu\(|\.cuda\(|\.clone\(")
_EXTENSION = re.compile(
    r"(?:site-packages|dist-packages)/(?!torch/|torchvision/)([\w.-]+)/|([\w-]+)/ops/|([\w.-]+\.so)\b"
)
# errors that name the call that was refused, whatever made it
_NAMED_CALLS = ("operation-not-supported", "peer-access-unsupported", "host-pointer")
_WORKER = re.compile(r"_worker_loop|fetch\.py|dataloader|worker\.py|collate")
_SERVER = re.compile(r"vllm|enginecore|sglang|gunicorn|celery|uvicorn|ray/")


def tensors_on_different_devices(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """torch and its kin compare devices before they launch anything, so the message is the cause."""
    category = "tensors-on-different-devices"
    event = first(story.in_category(category))
    if event is None:
        return
    here, there = event.values.get("device", ""), event.values.get("other_device", "")
    pair = f" ({here} and {there})" if here and there else f" ({here})" if here else ""
    yield worded("operands-on-other-devices", event, pair=pair)


def mixed_types(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Operands of different number types: a slip of the program, whatever the machine."""
    event = first(each for each in story.in_category("not-gpu-env") if each.signature.id.startswith("dtype-"))
    if event is None:
        return
    types = " and ".join(event.values[name] for name in ("op", "wanted") if event.values.get(name))
    yield worded(
        "operands-of-other-types",
        event,
        why=f"an operation was given number types that do not go together ({types})"
        if types
        else "an operation was given number types that do not go together",
    )


def invalid_device_ordinal(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A GPU was asked for by an index that the process does not have."""
    category = "invalid-device-ordinal"
    event = first(story.in_category(category))
    if event is None:
        return
    wanted, there = event.values.get("device"), event.values.get("total")
    if event.signature.id == "deserialize-ordinal":
        yield worded("checkpoint-on-absent-gpu", event, wanted=wanted, there=there)
        return
    code = code_of(story, event)
    by_rank = _RANK_INDEX.search(code)
    fixed = re.search(r"cuda:[0-9]+|\.cuda\([0-9]+\)|set_device\([0-9]+\)", code)
    if by_rank:
        why, strength = (
            f"the index comes from the launch (`{by_rank[0]}`) and is not below the visible GPUs",
            Strength.LIKELY,
        )
    elif fixed:
        why, strength = (
            f"the index is fixed in the code (`{fixed[0]}`) and is not below the visible GPUs",
            Strength.LIKELY,
        )
    else:
        why, strength = "a GPU was asked for by an index that this process does not have", Strength.LIKELY
    yield worded("index-beyond-the-visible", event, strength=strength, why=why)


def invalid_argument(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """CUDA refused an argument; the call or the package around it tells which kind."""
    category = "invalid-argument-device-mismatch"
    event = first(story.in_category(category))
    package = first(story.of("aoti-create", "aoti-blob"))
    if event is None:
        if package is not None:
            yield worded("package-runner-failed", package)
        return
    rule = rule_of(event)
    if rule is not None and event.signature.id.startswith(_NAMED_CALLS):
        yield from by_rule(event)
    elif package is not None or re.search(r"aoti|model_container_runner|aot_load", code_of(story, event)):
        yield worded("package-for-another-device", event, package)
    elif rule is not None:
        yield from by_rule(event)
    else:
        yield from _refused_argument(story, event)


def _refused_argument(story: Story, event: Event) -> Iterator[Hypothesis]:
    """An argument of which the status tells no more: the call in the traceback does."""
    if _PINNED.search(code_of(story, event) + event.line.text.lower()):
        yield worded("pinning-refused", event)
        return
    copy = _COPY.search(innermost(story, event, 2))
    yield worded(
        "copy-refused",
        event,
        why=f"CUDA refused an argument of a copy (`{copy[0]}`)" if copy else "CUDA refused an argument",
    )
    yield worded("argument-wrong", event)


def no_kernel_image(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The binary has no code for the GPU."""
    category = "no-kernel-image"
    events = story.in_category(category)
    stated = next((event for event in events if event.has("states-arch")), None)
    failed = first(event for event in events if event is not stated)
    event = stated or failed
    if event is None:
        return
    over = (*AFTERMATH, "ptx-unsupported-toolchain")
    if stated is not None:
        # a warning alone may be of a GPU that the program never used
        alone = stated.has("warning") and failed is None and not _later_gpu_error(story)
        arch = stated.values.get("arch", "")
        what = f"the GPU's architecture ({arch}) is" if arch else "the GPU's architecture is"
        yield worded(
            "architecture-not-served",
            stated,
            failed,
            strength=Strength.POSSIBLE if alone else Strength.DECISIVE,
            over=() if alone else over,
            what=what,
        )
        return
    own = _EXTENSION.search(innermost(story, event, 1)) or _EXTENSION.search(event.line.text)
    name = next((group for group in own.groups() if group), "") if own else ""
    yield worded(
        "no-code-for-this-gpu",
        event,
        why=f"the library behind `{name}` has no code for this GPU" if name else "the build has no code for this GPU",
    )
    if name:
        yield worded("built-elsewhere", event, name=name)


def _later_gpu_error(story: Story) -> bool:
    return any(event.has("cuda") and event.role in (Role.ROOT, Role.CASCADE) for event in story.events)


def ptx_unsupported(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The driver's compiler is older than the toolkit that made the PTX."""
    category = "ptx-unsupported-toolchain"
    events = story.in_category(category)
    stated = next((event for event in events if event.signature.id == "ptx-version"), None)
    event = first(events)
    if event is None:
        return
    why = "the PTX was made by a toolkit that is newer than the driver"
    if stated is not None:
        why = f"the PTX is of version {stated.values['wanted']} and what must compile it knows {stated.values['total']}"
    yield worded("ptx-newer-than-driver", event, stated, why=why)


def fork_reinit(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """CUDA does not survive a fork (pytorch, notes on multiprocessing)."""
    category = "fork-reinit-cuda"
    event = first(story.in_category(category))
    if event is None:
        return
    stated = event.signature.id in ("fork-reinit", "numba-fork")
    code = code_of(story, event) + _process_names(event)
    forked = re.search(r"multiprocessing|popen_fork|_worker_loop|_bootstrap|forked", code)
    server = _SERVER.search(code)
    worker = _WORKER.search(code)
    strength = Strength.LIKELY if stated or forked else Strength.POSSIBLE
    over = ("insufficient-evidence", "cuda-init-no-device")
    if server and not (worker and "_worker_loop" in code):
        yield worded("server-forked-after-cuda", event, strength=strength, server=server[0])
        yield Hypothesis(category, "program-bug", Strength.POSSIBLE, lines_of(event), "the program uses CUDA and forks")
        return
    where = "a data loader's worker" if worker else "a forked child"
    sure = strength >= Strength.LIKELY
    yield worded(
        "child-uses-cuda-after-fork",
        event,
        strength=strength,
        over=over if sure else (),
        why=f"{where} uses CUDA after its parent has used it"
        if sure
        else "CUDA could not be initialized, as in a child that was forked after CUDA had been used",
    )


def _process_names(event: Event) -> str:
    return event.line.raw.lower()
