"""Wordings of many programs, each told as what it is, and beside it what only looks like it."""

from __future__ import annotations

import re

import pytest

from envkit import facts
from envkit.logs.knowledge import wordings
from envkit.logs.verdict import weigh
from tests.logs import story, told

FACTS = facts.load()

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
        (UNKNOWN_AT_START + ARCH_FLAGS, "gpu-hardware-unknown-error", "driver-firmware-fault"),
        (
            "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\n" + ARCH_FLAGS,
            "nvcc-torch-cuda-mismatch",
            "container-config",
        ),
        ("/bin/bash: line 1:  7293 Killed    cicc --c++17 x.cu\n" + BUILD, "not-gpu-env", "host-resource"),
        (
            "ggml_cuda_init: failed to initialize CUDA: unknown error",
            "gpu-hardware-unknown-error",
            "driver-firmware-fault",
        ),
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
        (SCHEDULER, "not-gpu-env", "host-resource"),
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


@pytest.mark.parametrize(
    ("row", "text", "category", "cause"),
    [
        (
            "package-runner-failed",
            "terminate called after throwing an instance of 'std::runtime_error'\n"
            "  what():  create_func_( &container_handle_, num_models, device_str.c_str(), "
            "cubin_dir.empty() ? nullptr : cubin_dir.c_str()) API call failed at "
            "/pytorch/torch/csrc/inductor/aoti_runner/model_container_runner.cpp, line 145\n",
            "invalid-argument-device-mismatch",
            "device-mixup",
        ),
        (
            "built-elsewhere",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in step\n'
            "    loss = model(batch)\n"
            '  File "/e/lib/python3.11/site-packages/flash_attn/flash_attn_interface.py", line 11, in '
            "_flash_attn_forward\n"
            "    out = flash_attn_cuda.fwd(q, k, v)\n"
            "RuntimeError: CUDA error: no kernel image is available for execution on the device\n",
            "no-kernel-image",
            "arch-unsupported",
        ),
        (
            "illegal-access-beside-hardware",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in step\n'
            "    loss.backward()\n"
            "RuntimeError: CUDA error: an illegal memory access was encountered\n"
            "[ 8412.113] NVRM: Xid (PCI:0000:3b:00): 63, pid=77, name=python3, Row Remapper: new row "
            "marked for remapping, reset gpu to activate.\n",
            "illegal-memory-access",
            "hardware-fault",
        ),
        (
            "illegal-access-behind-indices",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in step\n'
            "    out = torch.index_select(table, 0, rows)\n"
            "RuntimeError: CUDA error: an illegal memory access was encountered\n",
            "illegal-memory-access",
            "gpu-kernel-bug",
        ),
        (
            "assert-of-a-range",
            "/pytorch/aten/src/THCUNN/BCECriterion.cu:57: Acctype bce_functor<Dtype, "
            "Acctype>::operator()(Tuple) [with Tuple = thrust::tuple<float, float>, Dtype = float, "
            "Acctype = float]: block: [0,0,0], thread: [32,0,0] Assertion `*input >= 0. && *input <= 1.` "
            "failed.\n",
            "device-side-assert",
            "bad-index-or-label",
        ),
        (
            "unseen-assert-while-sampling",
            "Traceback (most recent call last):\n"
            '  File "generate.py", line 10, in sample\n'
            "    token = torch.multinomial(probs, num_samples=1)\n"
            "RuntimeError: CUDA error: device-side assert triggered\n",
            "device-side-assert",
            "bad-index-or-label",
        ),
        (
            "handle-behind-indices",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in step\n'
            "    x = self.embedding(tokens)\n"
            '  File "train.py", line 11, in forward\n'
            "    return F.linear(x, self.weight)\n"
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n",
            "cublas-not-initialized",
            "bad-index-or-label",
        ),
        (
            "cudnn-driver-too-old",
            "2024-03-11 10:12:13.504984: E tensorflow/stream_executor/cuda/cuda_dnn.cc:329] Could not "
            "create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n"
            "2024-03-11 10:12:13.505077: E tensorflow/stream_executor/cuda/cuda_dnn.cc:337] Possibly "
            "insufficient driver version: 384.130.0\n",
            "cudnn-not-initialized",
            "gpu-memory-exhausted",
        ),
        (
            "server-asks-for-more-than-free",
            "ValueError: Free memory on device cuda:0 (3.21/23.64 GiB) on startup is less than desired "
            "GPU memory utilization (0.9, 21.28 GiB). Decrease GPU memory utilization or reduce GPU "
            "memory used by other processes.\n",
            "out-of-memory",
            "launch-config",
        ),
        (
            "allocation-failed-and-went-on",
            "2020-05-01 10:12:13.504984: E tensorflow/stream_executor/cuda/cuda_driver.cc:806] failed to "
            "allocate 3.90G (4187593216 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n",
            "out-of-memory",
            "gpu-memory-exhausted",
        ),
        (
            "memory-limit-set",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
            "capacity of 23.64 GiB of which 12.50 GiB is free. 11.82 GiB allowed; Of the allocated "
            "memory 10.12 GiB is allocated by PyTorch, and 101.00 MiB is reserved by PyTorch but "
            "unallocated.\n",
            "out-of-memory",
            "launch-config",
        ),
        (
            "product-without-workspace",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in forward\n'
            "    return x @ w\n"
            "RuntimeError: CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm( handle, "
            "opa, opb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc)`\n",
            "cublas-execution-failed",
            "gpu-memory-exhausted",
        ),
        (
            "product-in-a-narrow-type",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in forward\n'
            "    return x @ w\n"
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( "
            "handle, opa, opb, m, n, k, &falpha, a, CUDA_R_16F, lda, b, CUDA_R_16F, ldb, &fbeta, c, "
            "CUDA_R_16F, ldc, CUDA_R_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP)`\n",
            "cublas-execution-failed",
            "gpu-kernel-bug",
        ),
        (
            "open-modules-refuse-gpu",
            "[   12.345678] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1b80) installed in this "
            "system is not supported by open nvidia.ko because it does not include the required GPU "
            "System Processor (GSP).\n",
            "cuda-init-no-device",
            "wrong-build-installed",
        ),
        (
            "release-refuses-gpu",
            "[   12.345678] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85) installed in this "
            "system is not supported by the NVIDIA 535.183.01 driver release.\n",
            "cuda-init-no-device",
            "version-mismatch",
        ),
        (
            "training-diverged",
            "Epoch: [3]  [ 120/5004]  eta: 0:21:07  lr: 0.100000  loss: 6.9078 (6.9101)\n"
            "Loss is nan, stopping training\n",
            "nan-or-inf-mixed-precision",
            "precision",
        ),
        (
            "bare-invalid-usage",
            "RuntimeError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:825, "
            "invalid usage, NCCL version 2.7.8\n"
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library (such as too many "
            "async ops, too many collectives at once, mixing streams in a group, etc).\n",
            "nccl-duplicate-gpu",
            "launch-config",
        ),
        (
            "bare-remote-error",
            "torch.distributed.DistBackendError: NCCL error in: "
            "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there "
            "was a network error, NCCL version 2.20.5\n"
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
            "prematurely.\n",
            "nccl-remote-error",
            "peer-failure",
        ),
        (
            "nccl-port-taken",
            "node1:100:140 [0] misc/socket.cc:480 NCCL WARN Call to bind failed : Address already in use\n",
            "nccl-unhandled-system-error",
            "launch-config",
        ),
        (
            "nccl-sockets-forbidden",
            "node1:100:140 [0] misc/socket.cc:480 NCCL WARN Call to connect to 10.0.0.2<41521> failed : "
            "Operation not permitted\n",
            "nccl-unhandled-system-error",
            "container-config",
        ),
        (
            "transport-stopped",
            "[1700000000.123456] [node1:4100 :0]           sock.c:325  UCX  ERROR connect(fd=45, "
            "dest_addr=10.0.0.7:41511) failed: Connection refused\n",
            "nccl-unhandled-system-error",
            "network-fabric",
        ),
        (
            "gloo-without-address",
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != "
            "nullptr. Unable to find address for: ib0\n",
            "not-gpu-env",
            "launch-config",
        ),
        (
            "watchdog-ended-the-process",
            "[rank3]:[E1110 19:12:18.304984 4203 ProcessGroupNCCL.cpp:616] [Rank 3] Some NCCL operations "
            "have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU "
            "operations might run on corrupted/incomplete data.\n"
            "[rank3]:[E1110 19:12:18.305012 4203 ProcessGroupNCCL.cpp:622] [Rank 3] To avoid data "
            "inconsistency, we are taking the entire process down.\n",
            "nccl-timeout-hang",
            "unknown-cut-log",
        ),
        (
            "gradient-ready-twice",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in step\n'
            "    loss.backward()\n"
            "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of "
            "the following reasons: 1) Use of a module parameter outside the `forward` function.\n"
            "Parameter at index 127 with name decoder.layers.3.weight has been marked as ready twice.\n",
            "not-gpu-env",
            "program-bug",
        ),
        (
            "rank-met-late",
            "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving "
            "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: "
            "Socket Timeout\n",
            "nccl-timeout-hang",
            "launch-config",
        ),
        (
            "shared-tensor-gone",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in main\n'
            "    for batch in loader:\n"
            '  File "/e/lib/python3.11/site-packages/torch/multiprocessing/reductions.py", line 11, in '
            "rebuild_storage_filename\n"
            "    storage = torch.UntypedStorage._new_shared_filename_cpu(manager, handle, size)\n"
            "RuntimeError: unable to open shared memory object </torch_991_4123_7> in read-write mode: "
            "No such file or directory (2)\n",
            "not-gpu-env",
            "peer-failure",
        ),
        (
            "container-sees-no-gpu",
            "root@3f9c1a2b4d5e:/workspace# python train.py\n"
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in main\n'
            "    model.cuda()\n"
            "RuntimeError: No CUDA GPUs are available\n",
            "cuda-init-no-device",
            "container-config",
        ),
        (
            "device-plugin-sees-no-driver",
            "E0312 08:11:02.104 1 factory.go:113] Incompatible strategy detected auto\n"
            "E0312 08:11:02.104 1 factory.go:114] If this is a GPU node, did you configure the NVIDIA "
            "Container Toolkit?\n",
            "cuda-init-no-device",
            "container-config",
        ),
        (
            "compat-folder-on-path",
            "LD_LIBRARY_PATH=/usr/local/cuda/compat:/usr/local/cuda/lib64\n"
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility "
            "was attempted on non supported HW\n",
            "forward-compat-unsupported",
            "library-path-clash",
        ),
        (
            "nccl-older-than-torch",
            "ImportError: /e/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: symbol "
            "ncclCommRegister, version NCCL_2 not defined in file libnccl.so.2 with link time reference\n",
            "nccl-version-mismatch",
            "version-mismatch",
        ),
        (
            "nccl-older-than-torch",
            "/usr/bin/ld: /e/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: undefined "
            "reference to `ncclCommRegister'\n"
            "collect2: error: ld returned 1 exit status\n",
            "nccl-version-mismatch",
            "version-mismatch",
        ),
        (
            "dll-missing-or-other",
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in <module>\n'
            "    import torch\n"
            "ImportError: DLL load failed while importing _C: The specified procedure could not be "
            "found.\n",
            "undefined-symbol-abi-mismatch",
            "version-mismatch",
        ),
        (
            "binary-of-another-library",
            "ImportError: /e/lib/python3.11/site-packages/zmq/backend/_zmq.so: undefined symbol: zmq_poller_fd\n",
            "undefined-symbol-abi-mismatch",
            "version-mismatch",
        ),
        (
            "driver-library-without-gpus",
            "$ docker run --rm my/trainer:1.2 python train.py\n"
            "Traceback (most recent call last):\n"
            '  File "train.py", line 10, in <module>\n'
            "    import pynvml\n"
            "OSError: libcuda.so.1: cannot open shared object file: No such file or directory\n",
            "missing-shared-library",
            "container-config",
        ),
        (
            "older-libstdcxx-first",
            "ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found "
            "(required by /e/lib/python3.11/site-packages/torch/lib/libtorch_python.so)\n",
            "undefined-symbol-abi-mismatch",
            "library-path-clash",
        ),
        (
            "cuda-cannot-start-in-container",
            "$ docker run --gpus all --rm my/trainer:1.2 python train.py\n"
            "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, "
            "e.g. changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available "
            "devices to be zero.\n",
            "cuda-init-no-device",
            "container-config",
        ),
        (
            "shared-tensor-without-memory",
            "RuntimeError: unable to mmap 67108864 bytes from file </torch_991_4123_7>: Cannot allocate memory (12)\n",
            "dataloader-shm-bus-error",
            "host-resource",
        ),
        (
            "shared-tensor-not-made",
            "RuntimeError: unable to open file </torch_991_4123_7> in read-write mode: Permission denied (13)\n",
            "dataloader-shm-bus-error",
            "container-config",
        ),
    ],
)
def test_a_log_leads_to_the_row_that_words_its_cause(row: str, text: str, category: str, cause: str) -> None:
    wording = wordings()[row]
    sentence = re.sub(r"\\{\w+\\}", ".*", re.escape(wording.because))
    weighed = weigh(story(text), FACTS)
    found = [each for each in weighed if re.fullmatch(sentence, each.because)]

    assert [
        each
        for each in found
        if wording.category in ("", each.category) and wording.cause in ("", each.cause) and each.evidence
    ], [each.because for each in weighed]
    answer = told(text)
    assert (answer.category, answer.cause) == (category, cause)


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

    assert (made.category, made.cause) == ("dataloader-shm-bus-error", "container-config")
    assert told(error).cause == "host-resource"
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
