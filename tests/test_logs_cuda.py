"""What CUDA's, cuBLAS's and cuDNN's words are taken for, and what tells the causes of one word apart."""

from __future__ import annotations

from collections import Counter

import pytest
from gathered import gathered
from logs import story, told

from envkit.logs.knowledge import failures, signatures

MIB = 1 << 20


def trace(*frames: str, error: str) -> str:
    """A traceback of ``frames`` ("file:function: code") that ends with ``error``."""
    lines = ["Traceback (most recent call last):"]
    for number, frame in enumerate(frames, 10):
        place, _, code = frame.partition(": ")
        file, _, function = place.rpartition(":")
        lines += [f'  File "{file}", line {number}, in {function}', f"    {code}"]
    return "\n".join([*lines, error]) + "\n"


# One wording of each kind of program that prints it: what it is, and what stands behind it without more words.
WORDINGS = (
    ("RuntimeError: cuda runtime error (77) : an illegal memory access was encountered at a.cu:2",
     "illegal-memory-access", "gpu-kernel-bug"),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
     "illegal-memory-access", "gpu-kernel-bug"),
    ('CUDA error at a.cu:12 code=700(cudaErrorIllegalAddress) "cudaDeviceSynchronize()"',
     "illegal-memory-access", "gpu-kernel-bug"),
    ("numba.cuda.cudadrv.driver.CudaAPIError: [700] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR",
     "illegal-memory-access", "gpu-kernel-bug"),
    ('Thread 1 "app" received signal CUDA_EXCEPTION_14, Warp Illegal Address.',
     "illegal-memory-access", "gpu-kernel-bug"),
    ("RuntimeError: Triton Error [CUDA]: misaligned address", "misaligned-address", "gpu-kernel-bug"),
    ("RuntimeError: CUDA error: device-side assert triggered", "device-side-assert", "bad-index-or-label"),
    ("a/aten/src/ATen/native/cuda/Loss.cu:240: nll_loss: block: [0,0,0], thread: [3,0,0] Assertion "
     "`t >= 0 && t < n_classes` failed.", "device-side-assert", "bad-index-or-label"),
    ("a/aten/src/ATen/native/cuda/Loss.cu:94: operator(): block: [0,0,0], thread: [3,0,0] Assertion "
     "`input_val >= zero && input_val <= one` failed.", "device-side-assert", "bad-index-or-label"),
    ("a/aten/src/ATen/native/cuda/Loss.cu:95: operator(): block: [0,0,0], thread: [3,0,0] Assertion "
     "`target_val >= zero && target_val <= one` failed.", "device-side-assert", "bad-index-or-label"),
    ("a/aten/src/ATen/native/cuda/MultinomialKernel.cu:112: block: [0,0,0], thread: [3,0,0] Assertion "
     "`val >= zero` failed.", "device-side-assert", "precision"),
    ("RuntimeError: CUDA error: invalid resource handle", "invalid-argument-device-mismatch", "device-mixup"),
    ("RuntimeError: CUDA error: invalid configuration argument",
     "invalid-argument-device-mismatch", "gpu-kernel-bug"),
    ("RuntimeError: Expected all tensors to be on the same device, but got mat2 is on cuda:0, different from other "
     "tensors on cpu", "tensors-on-different-devices", "device-mixup"),
    ("RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
     "tensors-on-different-devices", "device-mixup"),
    ("TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.",
     "tensors-on-different-devices", "device-mixup"),
    ("RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same",
     "not-gpu-env", "program-bug"),
    ("THCudaCheck FAIL file=a/Module.cpp line=32 error=101 : invalid device ordinal",
     "invalid-device-ordinal", "launch-config"),
    ("RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1. Please use",
     "invalid-device-ordinal", "device-mixup"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device",
     "no-kernel-image", "arch-unsupported"),
    ("nvrtc: error: invalid value for --gpu-architecture (-arch)", "no-kernel-image", "arch-unsupported"),
    ("ptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'", "nvcc-torch-cuda-mismatch",
     "version-mismatch"),
    ("ptxas application ptx input, line 9; fatal   : Unsupported .version 8.7; current version is '8.4'",
     "ptx-unsupported-toolchain", "version-mismatch"),
    ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
     "ptx-unsupported-toolchain", "version-mismatch"),
    ("RuntimeError: CUDA error: out of memory", "out-of-memory", "gpu-memory-exhausted"),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7203.17 MiB on device 0: cudaMalloc failed: out of memory",
     "out-of-memory", "gpu-memory-exhausted"),
    ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 "
     "bytes.", "out-of-memory", "gpu-memory-exhausted"),
    ("host-1:17:99 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'",
     "out-of-memory", "gpu-memory-exhausted"),
    ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. "
     "Reducing block sizes may help.", "out-of-memory", "gpu-kernel-bug"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     "cublas-not-initialized", "gpu-memory-exhausted"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx( handle, opa, opb)`",
     "cublas-execution-failed", "library-path-clash"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmStridedBatchedEx(handle, a, "
     "CUDA_R_16BF, lda)`", "cublas-execution-failed", "arch-unsupported"),
    ("RuntimeError: cublas runtime error : the GPU program failed to execute at a/THC/THCBlas.cu:249",
     "cublas-execution-failed", "arch-unsupported"),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "cudnn-not-initialized", "gpu-memory-exhausted"),
    ("RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found runtime version "
     "(8, 9, 2).", "cudnn-version-mismatch", "library-path-clash"),
    ("E tensorflow/stream_executor/cuda/cuda_dnn.cc:319] Loaded runtime CuDNN library: 7.0.5 but source was compiled "
     "with: 7.4.1.", "cudnn-version-mismatch", "version-mismatch"),
    ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
     "cudnn-execution-failed", "gpu-memory-exhausted"),
    ("RuntimeError: CUDA error: unspecified launch failure", "gpu-hardware-unknown-error", "gpu-kernel-bug"),
    ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
     "gpu-hardware-unknown-error", "launch-config"),
    ("RuntimeError: CUDA error: unknown error", "gpu-hardware-unknown-error", "driver-firmware-fault"),
    ("CUDA error: the launch timed out and was terminated", "watchdog-timeout", "launch-config"),
    ("RuntimeError: CUDA error: an illegal instruction was encountered", "illegal-instruction", "gpu-kernel-bug"),
    ("Illegal instruction (core dumped)", "illegal-instruction", "cpu-arch-unsupported"),
    ("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
     "nan-or-inf-mixed-precision", "precision"),
    ("RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
     "nan-or-inf-mixed-precision", "precision"),
    ("RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.",
     "nan-or-inf-mixed-precision", "program-bug"),
    ("RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
     "'spawn' start method", "fork-reinit-cuda", "program-bug"),
)  # fmt: skip


@gathered(WORDINGS)
def test_a_wording_alone(line: str, category: str, cause: str) -> None:
    """One line is enough for the category and its usual cause, and it is the line that is quoted."""
    found = told(f"step 12 done\n{line}\n")
    assert (found.category, found.cause) == (category, cause), found.because
    assert [mark.line.number for mark in found.evidence][:1] == [2]


@pytest.mark.parametrize(
    "line",
    [
        "If you see CUDA out of memory, take a smaller batch.",
        "CUDA kernel errors might be asynchronously reported at some other API call.",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/ for more information.",
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
        "UserWarning: Attempting to run cuBLAS, but there was no current CUDA context! Setting the primary one",
        "epoch 3 loss 0.31 lr 0.001",
    ],
)
def test_talk_is_no_failure(line: str) -> None:
    """Hints, harmless warnings and progress name no failure."""
    found = told(f"{line}\nstep 13 done\n")
    assert found.category == "insufficient-evidence"
    assert line not in [mark.line.text for mark in found.evidence]


def test_sanitizer_names_the_fault() -> None:
    """The report's own lines are the evidence, and "misaligned" is told from "out of bounds"."""
    report = (
        "========= Invalid __global__ {op} of size 16 bytes\n"
        "=========     at scale(float4 *, int)+0x70 in scale.cu:14\n"
        "=========     by thread (0,0,0) in block (1,0,0)\n"
        "=========     Address 0x7f0000000008 is {what}\n"
    )
    aligned = told(report.format(op="write", what="misaligned"))
    outside = told(report.format(op="read", what="out of bounds"))
    assert (aligned.category, aligned.cause) == ("misaligned-address", "gpu-kernel-bug")
    assert aligned.evidence[0].line.number == 4
    assert (outside.category, outside.cause) == ("illegal-memory-access", "gpu-kernel-bug")
    assert outside.evidence[0].line.number == 1
    assert outside.confidence > 0.9


def test_an_assertion_explains_what_comes_after() -> None:
    """cuBLAS fails behind the assertion; the assertion is the answer wherever it is printed."""
    where = "a/native/cuda/IndexKernel.cu:92: operator(): block: [1,0,0], thread: [2,0,0]"
    check = f"{where} Assertion `index out of bounds` failed."
    cublas = trace("net.py:forward: self.fc(x)", error="RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when "
                   "calling `cublasCreate(handle)`")  # fmt: skip
    for text in (f"{check}\n{cublas}", f"{cublas}\n{check}\n"):
        found = told(text)
        assert (found.category, found.cause) == ("device-side-assert", "bad-index-or-label")
        assert "Assertion" in found.evidence[0].line.text
    alone = told(cublas)
    assert (alone.category, alone.cause) == ("cublas-not-initialized", "gpu-memory-exhausted")


def test_assertions_differ() -> None:
    """The text of the assertion decides: an index, a probability, a kernel of one's own."""
    form = "{file}:9: k: block: [0,0,0], thread: [0,0,0] Assertion `{text}` failed.\n"
    index = told(form.format(file="a/aten/native/cuda/Indexing.cu", text="srcIndex < srcSelectDimSize"))
    chance = told(form.format(file="a/aten/native/cuda/MultinomialKernel.cu", text="cumdist[size - 1] > 0"))
    own = told(form.format(file="src/solver.cu", text="residual < limit"))
    assert [each.cause for each in (index, chance, own)] == ["bad-index-or-label", "precision", "gpu-kernel-bug"]


def test_sticky_errors_are_one() -> None:
    """After an illegal access the later errors of that process are its consequences."""
    seen = story(
        "RuntimeError: CUDA error: an illegal memory access was encountered\n"
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n"
        "RuntimeError: CUDA error: misaligned address\n"
    )
    assert [event.category for event in seen.roots] == ["illegal-memory-access"]


def test_illegal_access_on_another_gpu() -> None:
    """A program that names a second GPU has launched on the wrong one; on the first GPU it is the kernel."""
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    second = told(trace("run.py:main: model.to('cuda:1')", "site-packages/fastops/api.py:go: _C.go(x)", error=error))
    only = told(trace("run.py:main: model.to('cuda:0')", "site-packages/fastops/api.py:go: _C.go(x)", error=error))
    assert (second.cause, only.cause) == ("device-mixup", "gpu-kernel-bug")


OLD = "RuntimeError: CUDA out of memory. Tried to allocate {w} (GPU 0; 24.00 GiB total capacity; {a} already allocated; {f} free; {r} reserved in total by PyTorch)"  # noqa: E501
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {w}. GPU 0 has a total capacity of 24.00 GiB of "
    "which {f} is free. {others}Including non-PyTorch memory, this process has {m} memory in use. Of the "
    "allocated memory {a} is allocated by PyTorch, and {u} is reserved by PyTorch but unallocated. If reserved but "
    "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)


@pytest.mark.parametrize(
    ("line", "category", "cause"),
    [
        (OLD.format(w="2.00 GiB", a="22.00 GiB", f="0.50 GiB", r="22.80 GiB"), "out-of-memory", "gpu-memory-exhausted"),
        (OLD.format(w="2.00 GiB", a="16.00 GiB", f="1.00 GiB", r="22.00 GiB"), 
         "fragmentation", "gpu-memory-fragmented"),
        (OLD.format(w="190.00 GiB", a="1.00 GiB", f="20.00 GiB", r="2.00 GiB"), "out-of-memory", "program-bug"),
        (OLD.format(w="2.00 GiB", a="3.00 GiB", f="0.50 GiB", r="3.50 GiB"), "out-of-memory", "launch-config"),
        (NEW.format(w="2.00 GiB", a="21.00 GiB", f="1.00 GiB", u="900.00 MiB", m="23.00 GiB", others=""),
         "out-of-memory", "gpu-memory-exhausted"),
        (NEW.format(w="2.00 GiB", a="4.00 GiB", f="1.00 GiB", u="100.00 MiB", m="5.00 GiB",
                    others="Process 77 has 18.00 GiB memory in use. "), "out-of-memory", "launch-config"),
        (NEW.format(w="1.00 GiB", a="14.00 GiB", f="0.20 GiB", u="6.00 GiB", m="23.80 GiB", others=""),
         "fragmentation", "gpu-memory-fragmented"),
        (NEW.format(w="20.00 MiB", a="4.00 GiB", f="2.40 GiB", u="10.00 MiB", m="21.60 GiB", others=""),
     "out-of-memory", "launch-config"),  # another allocator in the same process
    (NEW.format(w="20.00 MiB", a="21.00 GiB", f="2.40 GiB", u="10.00 MiB", m="21.60 GiB", others=""),
     "out-of-memory", "launch-config"),  # free and refused
    (NEW.format(w="2.00 GiB", a="3.00 GiB", f="1.00 GiB", u="10.00 MiB", m="4.00 GiB", others=""),
     "out-of-memory", "launch-config"),  # held by processes that a container does not list
    ("RuntimeError: CUDA out of memory. Tried to allocate 17179869183.95 GiB (GPU 0; 8.00 GiB to",
         "out-of-memory", "program-bug"),
        ("RuntimeError: CUDA out of memory. Tried to allocate 600.00 GiB", "out-of-memory", "program-bug"),
        ("RuntimeError: CUDA out of memory. Tried to allocate 400.00 GiB", "out-of-memory", "gpu-memory-exhausted"),
    ],
)  # fmt: skip
def test_figures_of_memory(line: str, category: str, cause: str) -> None:
    """The message's own figures decide; the hint that torch prints with each of them does not."""
    found = told(line + "\n")
    assert (found.category, found.cause) == (category, cause), found.because


def test_memory_of_the_host_is_another() -> None:
    """A tensor of the CPU and a pinned buffer are the host's memory."""
    form = "ResourceExhaustedError: OOM when allocating tensor with shape[9,9] and type float on /job:x/device:{}:0"
    assert told(form.format("CPU") + "\n").category == "not-gpu-env"
    assert told(form.format("GPU") + "\n").category == "out-of-memory"
    error = "RuntimeError: CUDA error: out of memory"
    pinned = told(trace("torch/utils/data/_utils/pin_memory.py:_pin_memory_loop: data.pin_memory()", error=error))
    assert (pinned.category, pinned.cause) == ("out-of-memory", "host-resource")


def test_refused_arguments() -> None:
    """A compiled package, pinned memory and a plain copy are told apart."""
    error = "RuntimeError: CUDA error: invalid argument"
    package = told(
        "Error: CUDA error: invalid argument\n"
        "  what():  create_func_( &container_handle_, num_models) API call failed at a/runner.cpp, line 49\n"
    )
    pinned = told(trace("pool.py:init: torch.empty(n, pin_memory=True)", error=error))
    plain = told(trace("a.py:f: x.copy_(y)", error=error))
    assert (package.category, package.cause) == ("invalid-argument-device-mismatch", "device-mixup")
    assert pinned.cause == "host-resource"
    assert plain.confidence < package.confidence


def test_code_for_another_gpu_in_plain_words() -> None:
    """torch's warning is decisive with an error behind it, and little without one."""
    warning = "NVIDIA X with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    failed, alone = told(warning + error), told(warning)
    assert (failed.category, failed.cause) == ("no-kernel-image", "arch-unsupported")
    assert len(failed.evidence) == 2
    assert failed.confidence > alone.confidence


def test_cublas_behind_an_embedding() -> None:
    """A status of cuBLAS behind an operation that takes indices points to these."""
    error = "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb)`"
    behind = told(trace("m.py:forward: h = self.embedding(ids)", "m.py:forward: self.fc(h)", error=error))
    other = told(trace("m.py:forward: self.fc(h)", error=error))
    assert (behind.category, behind.cause) == ("cublas-execution-failed", "bad-index-or-label")
    assert other.cause != "bad-index-or-label"


def test_a_gpu_newer_than_its_cuda() -> None:
    """The facts know which CUDA makes code for which GPU."""
    card = "name: GeForce RTX 3090 computeCapability: {}\nSuccessfully opened dynamic library libcudart.so.10.1\n"
    error = "failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\n"
    newer = told(card.format("8.6") + "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n")
    served = told(card.format("7.5") + "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n")
    assert (newer.cause, served.cause) == ("arch-unsupported", "gpu-memory-exhausted")
    assert "sm_86" in newer.because
    assert told(card.format("8.6") + error).cause == "arch-unsupported"


def test_an_old_product_that_failed_without_a_word_of_why() -> None:
    """What only old releases print is most often of a GPU that came after them; of a new one's status nobody knows."""
    old = told("failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\n")
    call = "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb)`"
    new = told(call)
    behind = told(trace("m.py:forward: h = self.embedding(ids)", error="failed to run cuBLAS routine: " + call))
    assert (old.category, old.cause, new.cause) == ("cublas-execution-failed", "arch-unsupported", "arch-unsupported")
    assert old.confidence > new.confidence
    assert behind.cause == "bad-index-or-label"


def test_who_forked() -> None:
    """A data loader's worker is the program's; a server's workers are started by its options."""
    error = (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
        "the 'spawn' start method"
    )
    loader = told(trace("torch/utils/data/_utils/worker.py:_worker_loop: fetch(i)", "d.py:get: x.cuda()", error=error))
    server = told(trace("site-packages/vllm/worker/worker.py:init_device: torch.cuda.set_device(d)", error=error))
    assert (loader.cause, server.cause) == ("program-bug", "launch-config")


def test_scale_that_ran_out() -> None:
    """Skipped steps mean something when the scale is below one."""
    line = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}\n"
    assert told(line.format("0.0001220703125")).category == "nan-or-inf-mixed-precision"
    assert told(line.format("16384.0")).category == "insufficient-evidence"


def test_rows_stand() -> None:
    """Each row's anchor is long enough to be selective, and each category has causes, questions and commands."""
    rows = [row for row in signatures() if row.category in failures()]
    assert all(len(row.anchor) >= 5 for row in signatures())
    assert Counter(row.category for row in rows)["out-of-memory"] > 20
    for row in failures().values():
        assert row.causes and row.decide and row.next and row.fix, row.id
