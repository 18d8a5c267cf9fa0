"""Which GPU: mixed devices, wrong indices, refused arguments, code for another architecture, forked children."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._cuda import AFTERMATH, code_of, first, innermost, lines_of
from envkit.logs.causes._readers import of_category
from envkit.logs.causes._tracebacks import fatal, short_kind, telling
from envkit.logs.causes._worded import worded
from envkit.logs.causes.rules import by_rule, rule_of
from envkit.logs.records import Event, Hypothesis, Role, Strength
from envkit.logs.story import Story

_RANK_INDEX = re.compile(r"local_rank|localrank|set_device\(.{0,40}rank|\brank\b|gpu_id|gpu_ids|args\.gpu|device_ids")
_LISTS = re.compile(r"numba[\\/]cuda[\\/]cudadrv[\\/]devices\.py")
_LISTED = re.compile(r"\bdevices\(['\"](?:gpu|cuda)['\"]\)\[|list_physical_devices\(['\"]GPU['\"]\)\[")
_PINNED = re.compile(r"pin_memory|cudahostalloc|cudamallochost|cudahostregister|memory_pool_host|pinned")
_LAUNCH = re.compile(r"<<<|\b[Ll]aunch|cu(?:da)?LaunchKernel")
# in small letters: who launches a kernel that was compiled at run time
_LAUNCHES = re.compile(r"launch_?kernel|\b_?launch\b|rawkernel|torch/cuda/_utils\.py __call__|kernel\[|<<<")
# a program in CUDA C++ that checks its own calls
_OWN_SOURCE = re.compile(r"(?<!/)\b(?!ATen|c10)[\w.-]{1,80}\.cuh?\b")
_COPY = re.compile(r"memcpy|copy_\(|\.to\(|\.cpu\(|\.cuda\(|\.clone\(")
_EXTENSION = re.compile(
    r"(?:site-packages|dist-packages)/(?!torch/|torchvision/)([\w.-]+)/|([\w-]+)/ops/|([\w.-]+\.so)\b"
)
# errors that name the call that was refused, whatever made it
_NAMED_CALLS = ("operation-not-supported", "peer-access-unsupported", "host-pointer")
_WORKER = re.compile(r"_worker_loop|fetch\.py|dataloader|worker\.py|collate")
# a handle or a code that is refused where what was compiled at run time could not be loaded
_OF_CODE = ("resource-handle", "ptx-refused", "kernel-image-invalid", "symbol-not-found")
_SHARED = re.compile(r"_new_shared_cuda|rebuild_cuda_tensor")  # torch, multiprocessing/reductions.py
_SERVER = re.compile(r"vllm|enginecore|sglang|gunicorn|celery|uvicorn|ray/")


@of_category("tensors-on-different-devices")
def tensors_on_different_devices(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """torch and its kin compare devices before they launch anything, so the message is the cause."""
    here, there = event.values.get("device", ""), event.values.get("other_device", "")
    pair = f" ({here} and {there})" if here and there else f" ({here})" if here else ""
    if event.signature.id == "triton-cpu-pointer":
        pair = f" (argument {event.values['op']} of a Triton kernel is a pointer to the CPU's memory)"
    yield worded("operands-on-other-devices", event, pair=pair)


def mixed_types(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Operands of different number types: a slip of the program, whatever the machine."""
    event = first(each for each in story.in_category("not-gpu-env") if each.signature.id.startswith("dtype-"))
    if event is None:
        return
    types = " and ".join(event.values[name] for name in ("op", "wanted") if event.values.get(name))
    yield worded("operands-of-other-types", event, types=types and f" ({types})")


@of_category("invalid-device-ordinal")
def invalid_device_ordinal(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A GPU was asked for by an index that the process does not have."""
    wanted, there = event.values.get("device"), event.values.get("total")
    if event.signature.id == "deserialize-ordinal":
        yield worded("checkpoint-on-absent-gpu", event, wanted=wanted, there=there)
        return
    code = code_of(story, event)
    why = "a GPU was asked for by an index that this process does not have"
    if by_rank := _RANK_INDEX.search(code):
        why = f"the index comes from the launch (`{by_rank[0]}`) and is not below the visible GPUs"
    elif fixed := re.search(r"cuda:[0-9]+|\.cuda\([0-9]+\)|set_device\([0-9]+\)", code):
        why = f"the index is fixed in the code (`{fixed[0]}`) and is not below the visible GPUs"
    if visible := story.value("visible"):
        why += f"; CUDA_VISIBLE_DEVICES is {visible}, and the GPUs that it names are counted from 0"
    yield worded("index-beyond-the-visible", event, why=why)


def index_of_a_list(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A library that keeps a list of the GPUs, or NVML, refused an index in words that name no GPU."""
    chain = fatal(story)
    trace = telling(chain) if chain else None
    if trace is None or not trace.frames:
        return
    last, kind = trace.frames[-1], short_kind(trace)
    listed = kind == "IndexError" and (_LISTS.search(last.file) or _LISTED.search(last.code))
    if listed or (kind == "NVMLError_InvalidArgument" and "HandleByIndex" in " ".join(f.code for f in trace.frames)):
        why = f"a GPU was asked for by an index that this process does not have (`{last.code.strip()}`)"
        yield Hypothesis(
            *("invalid-device-ordinal", "launch-config", Strength.LIKELY, (trace.line,), why), over=("not-gpu-env",)
        )


def invalid_argument(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """CUDA refused an argument; the call or the package around it tells which kind."""
    event = first(story.in_category("invalid-argument-device-mismatch"))
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
    elif event.signature.id.startswith("resource-handle") and _SHARED.search(innermost(story, event, 2)):
        yield worded("sender-gone", event)
    elif rule is not None:
        yield from by_rule(event)
    else:
        yield from _refused_argument(story, event)


def _refused_argument(story: Story, event: Event) -> Iterator[Hypothesis]:
    """An argument of which the status tells no more: the call in the traceback does."""
    if _PINNED.search(code_of(story, event) + event.line.text.lower()):
        yield worded("pinning-refused", event)
        return
    if _LAUNCH.search(event.line.text) or _LAUNCHES.search(innermost(story, event, 4)):
        yield worded("launch-refused", event)
    elif _OWN_SOURCE.search(event.line.text) and not story.tracebacks:
        yield worded("launch-refused", event, strength=Strength.POSSIBLE)
    copy = _COPY.search(innermost(story, event, 2))
    yield worded("copy-refused", event, copy=f" of a copy (`{copy[0]}`)" if copy else "")
    yield worded("argument-wrong", event)


def no_kernel_image(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The binary has no code for the GPU."""
    events = story.in_category("no-kernel-image")
    stated = next((event for event in events if event.has("states-arch")), None)
    failed = first(event for event in events if event is not stated)
    compiled = first(story.of("tf-jit"))
    refused = first(event for event in story.roots if event.signature.id.startswith(_OF_CODE))
    if stated is None and compiled is not None and refused is not None:
        what = f"the GPU's architecture ({compiled.values['arch']}) is"
        refusals = (*AFTERMATH, "invalid-argument-device-mismatch")
        yield worded("architecture-not-served", compiled, refused, strength=Strength.LIKELY, over=refusals, what=what)
    elif stated is not None:
        # a warning alone may be of a GPU that the program never used
        used = any(event.has("cuda") and event.role in (Role.ROOT, Role.CASCADE) for event in story.events)
        alone = stated.has("warning") and failed is None and not used
        arch = stated.values.get("arch", "")
        what = f"the GPU's architecture ({arch}) is" if arch else "the GPU's architecture is"
        strength = Strength.POSSIBLE if alone else Strength.DECISIVE
        over = () if alone else (*AFTERMATH, "ptx-unsupported-toolchain")
        yield worded("architecture-not-served", stated, failed, strength=strength, over=over, what=what)
    elif failed is not None and rule_of(failed) is not None:
        yield from by_rule(failed)
    elif failed is not None:
        own = _EXTENSION.search(innermost(story, failed, 1)) or _EXTENSION.search(failed.line.text)
        name = next((group for group in own.groups() if group), "") if own else ""
        yield worded("no-code-for-this-gpu", failed, what=f"the library behind `{name}`" if name else "the build")
        if name:
            yield worded("built-elsewhere", failed, name=name)


def ptx_unsupported(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The driver's compiler is older than the toolkit that made the PTX."""
    events = story.in_category("ptx-unsupported-toolchain")
    stated = next((event for event in events if event.signature.id == "ptx-version"), None)
    why = "the PTX was made by a toolkit that is newer than the driver"
    if stated is not None:
        why = f"the PTX is of version {stated.values['wanted']} and what must compile it knows {stated.values['total']}"
    if event := first(events):
        yield worded("ptx-newer-than-driver", event, stated, why=why)


@of_category("fork-reinit-cuda")
def fork_reinit(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """CUDA does not survive a fork (pytorch, notes on multiprocessing)."""
    stated = event.signature.id in ("fork-reinit", "numba-fork")
    code = code_of(story, event) + event.line.raw.lower()  # which may begin with the name of the process
    forked = re.search(r"multiprocessing|popen_fork|_worker_loop|_bootstrap|forked", code)
    server = _SERVER.search(code)
    worker = _WORKER.search(code)
    if server and not (worker and "_worker_loop" in code):
        strength = Strength.LIKELY if stated or forked else Strength.POSSIBLE
        yield worded("server-forked-after-cuda", event, strength=strength, server=server[0])
        why = "the program uses CUDA and forks"
        yield Hypothesis(event.category, "program-bug", Strength.POSSIBLE, lines_of(event), why)
    elif stated or forked:
        yield worded(
            "child-uses-cuda-after-fork", event, where="a data loader's worker" if worker else "a forked child"
        )
    else:
        yield worded("cuda-lost-as-by-a-fork", event)
