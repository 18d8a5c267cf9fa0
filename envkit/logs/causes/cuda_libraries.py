"""cuBLAS and cuDNN: one status stands for exhausted memory, for another call's fault and for a mix of versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.errors import UsageError
from envkit.facts import Facts
from envkit.logs.causes._cuda import code_of, first, lines_of
from envkit.logs.causes._readers import of_category
from envkit.logs.causes._worded import worded
from envkit.logs.causes.rules import by_rule, rule_of
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story
from envkit.versions import Sm

# Models whose first matrix product follows an embedding: a token out of range is noticed there. Those that fill a GPU
# by themselves are not among them, for with them it is the memory.
_TEXT = re.compile(
    r"embed|bert|electra|xlnet|bart|gpt2|gpt_?neo|marian|pegasus|longformer|transformer|tokeniz|\blstm|\bgru|rnn\.py"
)
_INDEXING = re.compile(r"embedding|cross_entropy|nll_loss|scatter|\bgather|index_select|roi_|one_hot")
_LARGE = re.compile(r"llama|qwen|glm|vicuna|mistral|falcon|baichuan|internlm|bloom|mpt|opt/|diffus|unet")

# a graph of CUDA that is being recorded, in which nothing may be allocated or synchronized
_CAPTURE = re.compile(r"torch/cuda/graphs\.py|cuda\.graph\(|capture_begin|cudagraph|make_graphed|graph_capture")
_CAPTURING = ("capture-forbidden", "capture-refused", "capture-failed", "capture-stream")
_LATE = ("insufficient-evidence",)
_BLOCKING = "with CUDA_LAUNCH_BLOCKING=1 another operation fails if this one only noticed it"
_LIBRARIES = {"CUSOLVER": "cuSOLVER", "CUSPARSE": "cuSPARSE", "CURAND": "cuRAND", "CUFFT": "cuFFT"}


def _library(status: str) -> str:
    """The library that a status is of."""
    return _LIBRARIES.get(status.partition("_")[0], "cuBLAS")


def unserved(story: Story, facts: Facts) -> str:
    """Which CUDA of the log has no code for which GPU of the log, as a sentence; "" where nothing says so.

    Source: what the compilers of each CUDA can target (the facts).
    """
    arch, name = story.value("arch"), story.value("gpu")
    try:
        if arch:
            sm = Sm.parse(arch)
        elif name:
            sm = facts.gpu(name).sm
        else:
            return ""
    except (ValueError, UsageError):
        return ""
    cuda = story.value("runtime_cuda") or story.value("cuda")
    if not cuda:
        builds = facts.torch_builds(story.value("torch") or "")
        variant = (story.value("torch") or "").partition("+")[2]
        cuda = next((str(row.cuda) for row in builds if row.variant == variant), "")
    known = facts.nvcc_archs(cuda) if cuda else None
    if not known or any(sm.runs(each) for each in known) or sm < max(known):
        return ""
    return f"{name or sm} is {sm}, and CUDA {cuda} makes code up to {max(known)}"


def _too_new(story: Story, facts: Facts, event: Event, over: tuple[str, ...]) -> Hypothesis | None:
    """The GPU of the log is newer than the CUDA of the log; None where nothing says so."""
    why = unserved(story, facts)
    if not why:
        return None
    return Hypothesis(event.category, "arch-unsupported", Strength.LIKELY, lines_of(event), why, over=over)


@of_category("cublas-not-initialized")
def cublas_not_initialized(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """The handle could not be made: no memory, or an earlier kernel's fault that is noticed here."""
    if new := _too_new(story, facts, event, ("cublas-execution-failed", "insufficient-evidence")):
        yield new
    status = event.values.get("code") or ""
    code = code_of(story, event)
    if captured := first(story.of(*_CAPTURING)) or _CAPTURE.search(code):
        yield worded("handle-made-in-capture", event, captured if isinstance(captured, Event) else None)
        return
    text = _TEXT.search(code) if not _LARGE.search(code) else None
    index = _INDEXING.search(code)
    if "ALLOC_FAILED" in status or "allocation" in status:
        yield worded("library-could-not-allocate", event, status=_library(status))
        return
    hint = text or index
    library = _library(status)
    if hint:
        strength = Strength.POSSIBLE if text and not index else Strength.LIKELY
        yield worded("handle-behind-indices", event, strength=strength, status=library, hint=hint[0])
    strength = Strength.POSSIBLE if hint or "INTERNAL_ERROR" in status else Strength.LIKELY
    yield worded("handle-without-memory", event, strength=strength, status=library)


@of_category("cublas-execution-failed")
def cublas_execution_failed(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A matrix product failed: the status, the type and what came before it tell the reason."""
    status = event.values.get("code") or ""
    if new := _too_new(story, facts, event, _LATE):
        yield new
    elif rule_of(event) is not None:
        yield from by_rule(event)
    elif status.endswith("NOT_SUPPORTED"):
        narrow = re.search(r"CUDA_R_(?:16BF|8F\w*|8I)|bfloat16|\bfp8\b", event.line.text)
        why = f"cuBLAS does not do this with {narrow[0]} on this GPU" if narrow else "cuBLAS does not do this call here"
        yield worded("product-not-supported", event, why=why)
    else:
        yield from _product_failed(story, event, status)


def _product_failed(story: Story, event: Event, status: str) -> Iterator[Hypothesis]:
    """A product of which the status tells no more: what runs before it and the type of its numbers do."""
    text = event.line.text
    code = code_of(story, event)
    hint = _INDEXING.search(code) or (_TEXT.search(code) if not _LARGE.search(code) else None)
    if status.endswith("INTERNAL_ERROR"):
        yield worded("product-without-workspace", event, library=_library(status))
    if hint:
        yield worded("product-behind-indices", event, hint=hint[0])
    if half := re.search(r"CUDA_R_16\w*|GemmEx|HgemmStrided|cublasLt", text):
        yield worded("product-in-a-narrow-type", event, half=half[0])
    elif not hint and (event.signature.id == "cublas-runtime" or "failed to run" in text):
        yield worded("product-on-a-newer-gpu", event, strength=Strength.LIKELY, over=_LATE)
    else:
        yield worded("product-on-a-newer-gpu", event)
    yield worded("product-without-memory", event)


@of_category("cudnn-version-mismatch")
def cudnn_version_mismatch(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """The cuDNN that was loaded is not the one that was built against, by the program's own words."""
    built, found = event.values.get("cudnn", ""), event.values.get("found", "")
    pair = f"built against {built} and loaded {found}" if built and found else "the cuDNN libraries are of two versions"
    if event.signature.id in ("cudnn-compiled-against", "cudnn-incompatibility", "cudnn-status-version"):
        yield worded("two-cudnn", event, first(story.of("cudnn-ld-path")), cause="library-path-clash", why=pair)
    else:
        yield worded("two-cudnn", event, cause="version-mismatch", why=pair)
        yield Hypothesis(event.category, "library-path-clash", Strength.POSSIBLE, lines_of(event), pair)


@of_category("cudnn-not-initialized")
def cudnn_not_initialized(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """cuDNN could not start: mostly no memory is left, and the lines around it tell the rest."""
    if new := _too_new(story, facts, event, ("cudnn-execution-failed", "cublas-not-initialized", *_LATE)):
        yield new
        return
    yield from by_rule(event)
    # TensorFlow prints this with every such failure, so it is a hint only
    driver = first(story.of("cudnn-driver-hint"))
    if driver is not None and "SUBLIBRARY" not in (event.values.get("code") or ""):
        yield worded("cudnn-driver-too-old", event, driver, driver=driver.values.get("driver", ""))


@of_category("cudnn-execution-failed")
def cudnn_execution_failed(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A cuDNN operation failed; the status tells whether memory, the GPU or the call is the likely reason."""
    new = _too_new(story, facts, event, _LATE)
    yield from [new] if new else by_rule(event)
