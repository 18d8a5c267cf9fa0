"""Wordings of many programs, each told as what it is, and beside it what only looks like it."""

from __future__ import annotations

import pytest

from tests.logs import told

ARCH_FLAGS = """\
  File "/e/lib/python3.10/site-packages/torch/utils/cpp_extension.py", line 1900, in _write_ninja_file
    flags = common + _get_cuda_arch_flags()
  File "/e/lib/python3.10/site-packages/torch/utils/cpp_extension.py", line 1700, in _get_cuda_arch_flags
    arch_list[-1] += '+PTX'
IndexError: list index out of range
"""
UNKNOWN_AT_START = (
    "/e/torch/cuda/__init__.py:83: UserWarning: CUDA initialization: CUDA unknown error - this may be due to an "
    "incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start.\n"
)
NOTHING = """\
Traceback (most recent call last):
  File "serve.py", line 8, in <module>
    context = engine.create_execution_context()
AttributeError: 'NoneType' object has no attribute 'create_execution_context'
"""
OPENMP = (
    "OMP: Error #15: Initializing liba.so, but found libb.so already initialized.\nOMP: Hint This means that two.\n"
)
SCHEDULER = "Rank 0 scheduler is dead. Please check if there are relevant logs.\nExit code: -9\n"
INSERTED = "FATAL: Error inserting nvidia (/lib/modules/5.4.0/nvidia.ko): No such device\n"
BUILD = """\
      Traceback (most recent call last):
        File "/e/torch/utils/cpp_extension.py", line 2100, in _run_ninja_build
          subprocess.run(
      subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.
      RuntimeError: Error compiling objects for extension
"""


@pytest.mark.parametrize(
    ("text", "category", "cause"),
    [
        (
            "Exception: Installed CUDA version 11.8 does not match the version torch was compiled with 12.1, unable to",
            "nvcc-torch-cuda-mismatch",
            "version-mismatch",
        ),
        (
            "Installed CUDA version 12.2 does not match the version torch was compiled with 12.1 but since the APIs "
            "are compatible, accepting this combination",
            "insufficient-evidence",
            "unknown",
        ),
        (
            "[TRT] [E] 6: The engine plan file is generated on an incompatible device, expecting compute 8.6 got "
            "compute 7.5, please rebuild.\n" + NOTHING,
            "no-kernel-image",
            "arch-unsupported",
        ),
        (
            "[TensorRT] ERROR: the parser met something that it does not know\n" + NOTHING,
            "insufficient-evidence",
            "unknown",
        ),
        (NOTHING, "not-gpu-env", "program-bug"),
        (
            "Version tag does not match. Note: Current Version: 213, Serialized Engine Version: 205)",
            "undefined-symbol-abi-mismatch",
            "version-mismatch",
        ),
        (ARCH_FLAGS, "nvcc-torch-cuda-mismatch", "container-config"),
        (UNKNOWN_AT_START + ARCH_FLAGS, "cuda-init-no-device", "no-gpu-or-driver"),
        (
            "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\n" + ARCH_FLAGS,
            "nvcc-torch-cuda-mismatch",
            "container-config",
        ),
        ("/bin/bash: line 1:  7293 Killed    cicc --c++17 x.cu\n" + BUILD, "not-gpu-env", "host-resource"),
        ("ggml_cuda_init: failed to initialize CUDA: unknown error", "cuda-init-no-device", "no-gpu-or-driver"),
        (
            "E1110 19:12:18.304984 4203 cuda_dnn.cc:502] There was an error before creating cudnn handle (35): "
            "cudaErrorInsufficientDriver : CUDA driver version is insufficient for CUDA runtime version\n"
            "XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed.",
            "driver-too-old",
            "version-mismatch",
        ),
        (
            "XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed.",
            "cudnn-not-initialized",
            "gpu-memory-exhausted",
        ),
        ("PhysX Internal CUDA error. Simulation ends! Error code 700!", "illegal-memory-access", "gpu-kernel-bug"),
        ("could not load NVML library.", "cuda-init-no-device", "no-gpu-or-driver"),
        (OPENMP, "not-gpu-env", "library-path-clash"),
        (SCHEDULER, "insufficient-evidence", "unknown-cut-log"),
        (
            "node1:1:2 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : local catastrophic error\n"
            "node1:1:2 [0] misc/ibvwrap.cc:220 NCCL WARN Call to ibv_get_async_event failed",
            "nccl-ib-transport-error",
            "hardware-fault",
        ),
        (
            "node1:1:2 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
            "nccl-ib-transport-error",
            "network-fabric",
        ),
        (
            "E tensorflow/core/ring_reducer.cc:369] Aborting RingReduce with Unavailable: OS Error",
            "insufficient-evidence",
            "unknown-cut-log",
        ),
        ("RuntimeError: CUDA error: unrecognized error code", "gpu-hardware-unknown-error", "version-mismatch"),
        (
            "RuntimeError: CUDA error: operation not supported",
            "invalid-argument-device-mismatch",
            "driver-firmware-fault",
        ),
        (
            "RuntimeError: CUDA error: peer access is not supported between these two devices",
            "invalid-argument-device-mismatch",
            "arch-unsupported",
        ),
        (
            "/e/torch/include/c10/util/C++17.h:13:2: error: #error \"You're trying to build PyTorch with a too old "
            "version of GCC. We need GCC 9 or later.\"\nRuntimeError: Error building extension 'x'",
            "unsupported-gnu-version",
            "version-mismatch",
        ),
        (
            "ImportError: /root/.cache/torch_extensions/py39/x/x.so: cannot open shared object file: No such file",
            "insufficient-evidence",
            "unknown-cut-log",
        ),
        (
            "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
            "not-gpu-env",
            "container-config",
        ),
        (
            "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
            "missing-shared-library",
            "wrong-build-installed",
        ),
        (
            "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`",
            "cublas-not-initialized",
            "gpu-memory-exhausted",
        ),
        ("RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR", "cublas-execution-failed", "arch-unsupported"),
        ("llama_model_load: error: unable to allocate CUDA0 buffer", "out-of-memory", "gpu-memory-exhausted"),
        (
            "mlx5_core 0000:3b:00.0: health_care:154:(pid 3): handling bad device here",
            "nccl-ib-transport-error",
            "hardware-fault",
        ),
        ("InvalidArgumentError: indices[0,5] = 5000 is not in [0, 4000)", "not-gpu-env", "bad-index-or-label"),
        (INSERTED, "cuda-init-no-device", "no-gpu-or-driver"),
    ],
)
def test_a_wording_is_told_as_what_it_is(text: str, category: str, cause: str) -> None:
    found = told(f"{text}\n")

    assert (found.category, found.cause) == (category, cause)
    assert found.evidence


def test_the_sentence_holds_what_was_seen() -> None:
    assert (
        "205"
        in told("Version tag does not match. Note: Current Version: 213, Serialized Engine Version: 205)\n").because
    )
    assert "cuSOLVER" in told("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED\n").because
    assert "libb.so" in told(OPENMP).because
    assert "x.so" in told("ImportError: /c/torch_extensions/py39/x/x.so: cannot open shared object file: No\n").because


def test_a_semaphore_that_meets_a_full_file_system_means_the_shared_memory() -> None:
    error = "OSError: [Errno 28] No space left on device\n"
    frame = '  File "/usr/lib/python3.10/multiprocessing/synchronize.py", line 57, in __init__\n'
    made = told(f"Traceback (most recent call last):\n{frame}    sl = _multiprocessing.SemLock(kind)\n{error}")

    assert made.cause == told(error).cause == "host-resource"
    assert "/dev/shm" in made.because and "--shm-size" in made.fix
    assert "/dev/shm" not in told(error).because


def test_a_heading_is_not_the_error() -> None:
    found = told("Test Error:\n Accuracy: 81.0%\nerror: the queue of frobs is empty\n")

    assert [mark.line.number for mark in found.evidence] == [3]


@pytest.mark.parametrize(
    "error",
    [
        "KeyError: 'cuda_config'",
        "NameError: name 'gpu_count' is not defined",
        "UnboundLocalError: local variable 'cuda_loss' referenced before assignment",
        "AttributeError: 'GPUTrainer' object has no attribute 'stepp'",
        "AssertionError: batch size must be divisible by the number of GPUs",
        "ModuleNotFoundError: No module named 'gpu_utils'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/cuda_set/labels.csv'",
        "ValueError: num_gpus must be positive",
    ],
)
def test_a_name_with_cuda_in_it_is_no_gpu_failure(error: str) -> None:
    text = (
        f'Using device: cuda:0\nTraceback (most recent call last):\n  File "t.py", line 3, in main\n    f()\n{error}\n'
    )

    assert told(text).category == "not-gpu-env"


def test_an_assertion_that_names_a_fault_of_cuda_is_not_told_as_the_programs() -> None:
    frame = '  File "t.py", line 3, in main\n    f()\n'
    text = f"Traceback (most recent call last):\n{frame}AssertionError: bad cuDNN state 7\n"

    assert told(text).category == "insufficient-evidence"


SOURCE = '''\
"""A wrapper."""
from __future__ import annotations
import torch
from mylib.errors import Fault
TEXT = "RuntimeError: CUDA error: an illegal memory access was encountered"
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
def call(code: int) -> int:
    if code == 700:
        raise Fault(TEXT)
    return code
class Calls:
    names = ["cudaErrorIllegalAddress", "CUDA_ERROR_ECC_UNCORRECTABLE"]
    def first(self) -> str:
        return self.names[0]
'''
QUIET = {
    "source": SOURCE,
    "search": "src/a.cpp:12:  throw std::runtime_error(\n"
    'src/b.py:33:        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")\n'
    "docs/faq.rst:55:RuntimeError: CUDA error: device-side assert triggered\n"
    "src/c.cu:8:  // cudaErrorIllegalAddress: an illegal memory access was encountered\n",
    "one line of history each": "a1b2c3d fix CUDA error: an illegal memory access in attention\n"
    "d4e5f6a Fix CUDA out of memory when batch is large\n"
    "0a1b2c3 handle NCCL timeout\n",
    "history": f'commit {"0123456789" * 4}\nAuthor: A B <a@b.c>\n\n    Fix "CUDA error: misaligned address"\n\n'
    "    cudaErrorMisalignedAddress was the result.\n",
    "document": "# Project\n\n**Q: `Failed to initialize NVML: Driver/library version mismatch`?** Reboot.\n"
    "- `CUDA error: no kernel image is available` means another wheel.\n",
    "table": "| [a-check](a.md) | The driver's libraries, NVML_ERROR_LIB_RM_VERSION_MISMATCH | error |\n",
    "training": "Epoch 1: 100%|####| 100/100 loss=0.31 error_rate=0.02 nan_count=0 oom_retries=0\n"
    "[INFO] 0 errors; device cuda:0\n",
    "passed tests": "tests/test_cuda.py::test_illegal_memory_access_is_told PASSED\n"
    "tests/test_cuda.py::test_out_of_memory_raises PASSED\n",
    "compiler": 'csrc/k.cu(12): warning #177-D: variable "err" was declared but never referenced\n',
    "installation": "Collecting nvidia-cuda-runtime-cu12==12.1.105\nSuccessfully installed torch-2.4.0\n",
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_no_log_of_a_failure_tells_of_none(name: str) -> None:
    assert told(QUIET[name]).category in ("insufficient-evidence", "not-gpu-env")


def test_a_program_with_its_failure_below_is_a_log() -> None:
    found = told(SOURCE + "RuntimeError: CUDA error: misaligned address\n")

    assert found.category == "misaligned-address"


def test_a_compiler_that_names_many_files_is_no_search() -> None:
    lines = [
        f"src/a{index}.cu:{index}: error: unsupported GNU version! gcc versions later than 9 are not"
        for index in (1, 2, 3)
    ]

    assert told("\n".join(lines) + "\n").category == "unsupported-gnu-version"


@pytest.mark.parametrize(
    "line",
    [
        "/e/lib/torch/cuda/__init__.py:12{}: UserWarning: CUDA initialization: The NVIDIA driver on your system is too "
        "old (found version 11040).",
        "src/lib/run.py:3{}: ERROR the NVIDIA driver on your system is too old (found version 11040).",
        "137956{} the NVIDIA driver on your system is too old (found version 11040).",
    ],
)
def test_lines_that_begin_with_a_place_or_a_number_are_a_log(line: str) -> None:
    text = "".join(f"{line.format(index)}\n" for index in range(4))

    assert told(text).category == "driver-too-old"


def test_links_that_refused_accesses_stand_beside_a_contained_error() -> None:
    when = "[Mon Feb  2 22:52:45 2026] "
    links = (
        f"{when}nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 62 egress non-posted PRIV error\n"
        f"{when}NVRM: Xid (PCI:0000:4c:00): 137, TLC RX interrupt hit on link 4 on GPU0: PRIV Error\n"
    )
    contained = f"{when}NVRM: Xid (PCI:0000:4c:00): 94, pid=44, name=python, channel 0x0000000b\n"

    assert [mark.line.number for mark in told(links + contained).evidence] == [3, 1, 2]
    assert [mark.line.number for mark in told(contained).evidence] == [1]
