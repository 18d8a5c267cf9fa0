"""cuBLAS and cuDNN: one status stands for exhausted memory, for another call's fault and for a mix of versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.errors import UsageError
from envkit.facts import Facts
from envkit.logs.causes._cuda import code_of, first, lines_of
from envkit.logs.records import Hypothesis, Strength
from envkit.logs.story import Story
from envkit.versions import Sm

# Models whose first matrix product follows an embedding: a token out of range is noticed there. Those that fill a GPU
# by themselves are not among them, for with them it is the memory.
_TEXT = re.compile(
    r"embed|bert|electra|xlnet|bart|gpt2|gpt_?neo|marian|pegasus|longformer|transformer|tokeniz|\blstm|\bgru|rnn\.py"
)
_INDEXING = re.compile(r"embedding|cross_entropy|nll_loss|scatter|\bgather|index_select|roi_|one_hot")
_LARGE = re.compile(r"llama|qwen|glm|vicuna|mistral|falcon|baichuan|internlm|bloom|mpt|opt/|diffus|unet")


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


def cublas_not_initialized(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The handle could not be made: no memory, or an earlier kernel's fault that is noticed here."""
    category = "cublas-not-initialized"
    event = first(story.in_category(category))
    if event is None:
        return
    evidence = lines_of(event)
    late = ("cublas-execution-failed", "insufficient-evidence")
    if why := unserved(story, facts):
        yield Hypothesis(category, "arch-unsupported", Strength.LIKELY, evidence, why, over=late)
    status = event.values.get("code") or ""
    code = code_of(story, event)
    text = _TEXT.search(code) if not _LARGE.search(code) else None
    index = _INDEXING.search(code)
    decide = "an assertion further up, or the batch on the CPU, tells of an index; nvidia-smi of the memory"
    if "ALLOC_FAILED" in status or "allocation" in status:
        yield Hypothesis(
            category,
            "gpu-memory-exhausted",
            Strength.LIKELY,
            evidence,
            f"{_library(status)} could not allocate",
            decide,
            over=late,
        )
        return
    hint = text or index
    if hint:
        yield Hypothesis(
            category,
            "bad-index-or-label",
            Strength.POSSIBLE if text and not index else Strength.LIKELY,
            evidence,
            f"{_library(status)} failed behind `{hint[0]}`, which takes indices that nothing checks on the GPU",
            decide,
            over=late,
        )
    yield Hypothesis(
        category,
        "gpu-memory-exhausted",
        # an internal error is as often what an earlier kernel's fault, noticed here, leaves behind
        Strength.POSSIBLE if hint or "INTERNAL_ERROR" in status else Strength.LIKELY,
        evidence,
        f"{_library(status)} could not make its handle, and no earlier fault is in the log",
        decide,
        over=late,
    )


def cublas_execution_failed(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A matrix product failed: the status, the type and what came before it tell the reason."""
    category = "cublas-execution-failed"
    event = first(story.in_category(category))
    if event is None:
        return
    evidence = lines_of(event)
    late = ("insufficient-evidence",)
    status = event.values.get("code") or ""
    text = event.line.text
    code = code_of(story, event)
    if why := unserved(story, facts):
        yield Hypothesis(category, "arch-unsupported", Strength.LIKELY, evidence, why, over=late)
        return
    decide = "with CUDA_LAUNCH_BLOCKING=1 another operation fails if this one only noticed it"
    hint = _INDEXING.search(code) or (_TEXT.search(code) if not _LARGE.search(code) else None)
    kind = event.signature.id
    if kind in ("cublas-launch", "cublas-no-support"):
        # TensorFlow's words where the handle could not be made: another process, or itself, holds the memory
        yield Hypothesis(
            category,
            "gpu-memory-exhausted",
            Strength.LIKELY,
            evidence,
            "TensorFlow has no cuBLAS to run the product with, as when the memory was gone at its start",
            "does it work with TF_FORCE_GPU_ALLOW_GROWTH=true and no other process",
            over=late,
        )
        return
    if status.endswith("ARCH_MISMATCH"):
        yield Hypothesis(
            category, "arch-unsupported", Strength.DECISIVE, evidence, "the GPU lacks what the call needs", over=late
        )
        return
    if status.endswith("NOT_SUPPORTED"):
        narrow = re.search(r"CUDA_R_(?:16BF|8F\w*|8I)|bfloat16|\bfp8\b", text)
        why = f"cuBLAS does not do this with {narrow[0]} on this GPU" if narrow else "cuBLAS does not do this call here"
        yield Hypothesis(category, "arch-unsupported", Strength.LIKELY, evidence, why, decide, over=late)
        return
    if status.endswith("INVALID_VALUE"):
        yield Hypothesis(
            category,
            "library-path-clash",
            Strength.LIKELY,
            evidence,
            "cuBLAS refused torch's own arguments, as it does where libcublas and libcublasLt are of two CUDAs",
            "LD_DEBUG=libs shows from where each was loaded",
            over=late,
        )
        yield Hypothesis(category, "program-bug", Strength.POSSIBLE, evidence, "the shapes do not go together")
        return
    if status == "CUFFT_INTERNAL_ERROR":
        yield Hypothesis(
            category,
            "arch-unsupported",
            Strength.LIKELY,
            evidence,
            "cuFFT failed inside, as that of a CUDA older than the GPU does",
            "does it work with a build for a newer CUDA",
            over=late,
        )
        return
    if status.endswith("INTERNAL_ERROR"):
        yield Hypothesis(
            category,
            "gpu-memory-exhausted",
            Strength.POSSIBLE,
            evidence,
            f"{_library(status)} failed inside, as it does without memory for its workspace",
            decide,
        )
    if hint:
        yield Hypothesis(
            category,
            "bad-index-or-label",
            Strength.LIKELY,
            evidence,
            f"the product comes behind `{hint[0]}`, which takes indices that nothing checks on the GPU",
            decide,
            over=late,
        )
    half = re.search(r"CUDA_R_16\w*|GemmEx|HgemmStrided|cublasLt", text)
    if half:
        yield Hypothesis(
            category,
            "gpu-kernel-bug",
            Strength.POSSIBLE,
            evidence,
            f"the product failed in a narrow type ({half[0]}), by the library or by a kernel before it",
            decide,
        )
    else:
        old = kind == "cublas-runtime" or "failed to run" in text
        yield Hypothesis(
            category,
            "arch-unsupported",
            Strength.LIKELY if old and not hint else Strength.POSSIBLE,
            evidence,
            "the product failed, as it does where the GPU is newer than the build's CUDA",
            "compare the GPU's capability with torch.cuda.get_arch_list()",
            over=late if old and not hint else (),
        )
    yield Hypothesis(
        category, "gpu-memory-exhausted", Strength.FALLBACK, evidence, "it fails without memory too", decide
    )


def cudnn_version_mismatch(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The cuDNN that was loaded is not the one that was built against, by the program's own words."""
    category = "cudnn-version-mismatch"
    event = first(story.in_category(category))
    if event is None:
        return
    built, found = event.values.get("cudnn", ""), event.values.get("found", "")
    pair = f"built against {built} and loaded {found}" if built and found else "the cuDNN libraries are of two versions"
    over = ("cudnn-not-initialized", "cudnn-execution-failed", "missing-shared-library", "insufficient-evidence")
    torch = event.signature.id in ("cudnn-compiled-against", "cudnn-incompatibility", "cudnn-status-version")
    yield Hypothesis(
        category,
        "library-path-clash" if torch else "version-mismatch",
        Strength.DECISIVE,
        lines_of(event, first(story.of("cudnn-ld-path")) if torch else None),
        pair,
        "LD_DEBUG=libs shows from where it was loaded",
        over=over,
    )
    if not torch:
        yield Hypothesis(category, "library-path-clash", Strength.POSSIBLE, lines_of(event), pair)


def cudnn_not_initialized(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """cuDNN could not start: mostly no memory is left, and the lines around it tell the rest."""
    category = "cudnn-not-initialized"
    event = first(story.in_category(category))
    if event is None:
        return
    evidence = lines_of(event)
    late = ("cudnn-execution-failed", "cublas-not-initialized", "insufficient-evidence")
    status = event.values.get("code") or ""
    if why := unserved(story, facts):
        yield Hypothesis(category, "arch-unsupported", Strength.LIKELY, evidence, why, over=late)
        return
    if "SUBLIBRARY" in status:
        yield Hypothesis(
            category,
            "library-path-clash",
            Strength.LIKELY,
            evidence,
            "a part of cuDNN could not be loaded beside the others",
            "LD_DEBUG=libs shows where it was looked for",
            over=late,
        )
        return
    yield Hypothesis(
        category,
        "gpu-memory-exhausted",
        Strength.LIKELY,
        evidence,
        "cuDNN could not start, as it does when the memory is gone before its first call",
        "does a small convolution work before the model is loaded",
        over=late,
    )
    # TensorFlow prints this with every such failure, so it is a hint only
    if driver := first(story.of("cudnn-driver-hint")):
        yield Hypothesis(
            category,
            "version-mismatch",
            Strength.POSSIBLE,
            lines_of(event, driver),
            f"TensorFlow asks whether the driver {driver.values.get('driver', '')} is too old",
            "compare the driver with the least one of the build's CUDA",
        )
    yield Hypothesis(
        category,
        "library-path-clash",
        Strength.FALLBACK,
        evidence,
        "another cuDNN may be found first",
        "ldconfig -p and pip list show every cuDNN",
    )


def cudnn_execution_failed(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A cuDNN operation failed; the status tells whether memory, the GPU or the call is the likely reason."""
    category = "cudnn-execution-failed"
    event = first(story.in_category(category))
    if event is None:
        return
    evidence = lines_of(event)
    late = ("insufficient-evidence",)
    status = event.values.get("code") or ""
    kind = event.signature.id
    if why := unserved(story, facts):
        yield Hypothesis(category, "arch-unsupported", Strength.LIKELY, evidence, why, over=late)
        return
    if kind == "cudnn-success" or "ARCH_MISMATCH" in status:
        yield Hypothesis(
            category,
            "arch-unsupported",
            Strength.LIKELY,
            evidence,
            "cuDNN fails without a status where the GPU is newer than the build",
            over=late,
        )
    elif "INCOMPATIBLE" in status or "RUNTIME_PREREQUISITE" in status:
        yield Hypothesis(
            category, "version-mismatch", Strength.LIKELY, evidence, f"the status says so ({status})", over=late
        )
    elif "NOT_SUPPORTED" in status or "BAD_PARAM" in status or kind == "cudnn-plans":
        yield Hypothesis(
            category,
            "gpu-kernel-bug",
            Strength.LIKELY,
            evidence,
            "cuDNN has no algorithm for this shape, type or layout",
            "does it work with cuDNN off",
            over=late,
        )
        yield Hypothesis(category, "gpu-memory-exhausted", Strength.POSSIBLE, evidence, "no workspace may be left")
    elif "MAPPING_ERROR" in status:
        yield Hypothesis(
            category,
            "gpu-kernel-bug",
            Strength.LIKELY,
            evidence,
            "cuDNN could not use its input, as after a fault of an earlier kernel",
            "CUDA_LAUNCH_BLOCKING=1 names it",
            over=late,
        )
        yield Hypothesis(category, "gpu-memory-exhausted", Strength.POSSIBLE, evidence, "no memory may be left")
    else:
        yield Hypothesis(
            category,
            "gpu-memory-exhausted",
            Strength.LIKELY,
            evidence,
            "cuDNN found no way to run the operation, as it does without memory for its workspace",
            "does a smaller batch work",
            over=late,
        )
        yield Hypothesis(
            category,
            "gpu-kernel-bug",
            Strength.POSSIBLE,
            evidence,
            "cuDNN or an earlier kernel failed",
            "does it work with cuDNN off",
        )
