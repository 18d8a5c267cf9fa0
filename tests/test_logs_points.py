"""What once was told wrongly of whole logs: each text stands among what a job prints before and after."""

from __future__ import annotations

import pytest
from gathered import gathered
from logs import told

BEFORE = (
    "=== job 4711 on node1, started 2026-11-20T10:00:00Z\n"
    "2026-11-20 10:00:02,113 INFO prepare: config: {'on_error': 'skip', 'fail_fast': False, 'gpus': 8}\n"
    + "".join(f"Tokenizing: {n:3d}%|{'#' * (n // 4):25}| {n}/100\n" for n in range(0, 100, 5))
    + "/opt/venv/lib/python3.11/site-packages/torch/amp.py:88: FutureWarning: use torch.amp in its place\n"
    "  warnings.warn(\n"
    + "".join(f"step {n} loss {9 / (n + 1):.4f} error_rate=0.0 grad_norm 1.{n}\n" for n in range(30))
)
AFTER = "srun: error: node1: task 0: Exited with exit code 1\n=== job 4711 ended with exit code 1\n"
FRAMES = (
    "Traceback (most recent call last):\n"
    '  File "/home/user/job/train.py", line 71, in <module>\n    main()\n'
    '  File "/home/user/job/train.py", line 40, in main\n    loss = model(batch).mean()\n'
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of 79.11 GiB "
    "of which "
)
ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1422: indexSelectLargeIndex: block: [{0},0,0], thread: [{1},0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed.\n"
)
HELD = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB "
    "of which 300.00 MiB is free. Including non-PyTorch memory, this process has 139.40 GiB memory in use. Of the "
    "allocated memory {own} is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
)
LDCONFIG = (
    "libcuda.so.1 (libc6,x86-64) => {first}/libcuda.so.1\n"
    "libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
)
E803 = FRAMES + "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination\n"
TWO_GPUS = "".join(f"GPU {n}: NVIDIA H200 (UUID: GPU-11111111-aaaa-bbbb-cccc-22222222222{n})\n" for n in range(2))
NO_GPUS = FRAMES + "RuntimeError: No CUDA GPUs are available\n"
ASSERTED = (
    "".join(ASSERTION.format(n // 32, n % 32) for n in range(128))
    + FRAMES
    + "RuntimeError: CUDA error: device-side assert triggered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call\n"
)
NCCL = "node1:812:901 [0] "
RAISED = (
    FRAMES
    + "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384, {what}, NCCL version 2.27.5\n"
)


def case(name: str, text: str, category: str, cause: str = "", said: str = "") -> object:
    """A log with its kind, its cause, and words of the answer; "" for any."""
    return pytest.param(f"{BEFORE}{text}{AFTER}", category, cause, said, id=name)


CASES = [
    # 1: assertions in their usual number, under any prefix
    *(
        case(
            f"assertion {prefix!r}",
            "".join(f"{prefix}{line}\n" for line in ASSERTED.splitlines()),
            "device-side-assert",
            "bad-index-or-label",
        )
        for prefix in ("", "# ", "// ", "### 5.4 ", "* ", "[rank0]: ", "  ")
    ),
    # 2: figures and context come before the most frequent cause
    case(
        "20 MiB of 2.4 GiB",
        FRAMES + OOM.format(tried="20.00 MiB") + "2.40 GiB is free. Including non-PyTorch memory, "
        "this process has 76.70 GiB memory in use. Of the allocated memory 60.10 GiB is allocated "
        "by PyTorch, and 15.90 "
        "GiB is reserved by PyTorch but unallocated.\n",
        "out-of-memory|fragmentation",
        "!gpu-memory-exhausted",
    ),
    case(
        "reserved and unused",
        FRAMES + OOM.format(tried="4.00 GiB") + "1.10 GiB is free. Including non-PyTorch memory, "
        "this process has 78.00 GiB memory in use. Of the allocated memory 50.10 GiB is allocated "
        "by PyTorch, and 26.90 "
        "GiB is reserved by PyTorch but unallocated.\n",
        "out-of-memory|fragmentation",
        "gpu-memory-fragmented",
    ),
    case(
        "other processes",
        FRAMES + OOM.format(tried="2.00 GiB") + "1.02 GiB is free. Process 4242 has 70.00 GiB memory in "
        "use. Including non-PyTorch memory, this process has 8.00 GiB memory in use. Of the "
        "allocated memory 7.10 GiB is "
        "allocated by PyTorch, and 100.90 MiB is reserved by PyTorch but unallocated.\n",
        "out-of-memory",
        "",
        "other processes hold",
    ),
    case(
        "compat's libcuda first",
        LDCONFIG.format(first="/usr/local/cuda/compat") + E803,
        "driver-library-mismatch",
        "library-path-clash",
        "/usr/local/cuda/compat",
    ),
    case(
        "the driver's libcuda first",
        LDCONFIG.format(first="/usr/lib") + E803,
        "driver-library-mismatch",
        "version-mismatch",
        "!compat",
    ),
    case(
        "a GPU that is not there is visible",
        "CUDA_VISIBLE_DEVICES=4\n" + TWO_GPUS + NO_GPUS,
        "cuda-visible-devices-misuse",
        "launch-config",
        "4",
    ),
    case("one that is there", "CUDA_VISIBLE_DEVICES=1\n" + TWO_GPUS + NO_GPUS, "cuda-init-no-device", "", "!beyond"),
    case(
        "fewer are visible than are asked for",
        "CUDA_VISIBLE_DEVICES=2,3\ntorch.cuda.device_count(): 2\n"
        + FRAMES
        + "RuntimeError: CUDA error: invalid device ordinal\n",
        "invalid-device-ordinal",
        "launch-config",
        "2,3",
    ),
    case(
        "JAX beside torch",
        "jax 0.6.0, XLA_PYTHON_CLIENT_PREALLOCATE is unset\n" + FRAMES + HELD.format(own="1.10 GiB"),
        "out-of-memory",
        "launch-config",
        "not torch's",
    ),
    case(
        "TensorFlow beside torch",
        "2026-11-20 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:2020] "
        "Created device GPU:0 with 137000 MB memory\n" + FRAMES + HELD.format(own="1.10 GiB"),
        "out-of-memory",
        "launch-config",
        "not torch's",
    ),
    case(
        "torch's own",
        "jax 0.6.0\n" + FRAMES + HELD.format(own="138.10 GiB"),
        "out-of-memory",
        "gpu-memory-exhausted",
        "!not torch's",
    ),
    case(
        "toolkit may not",
        "docker: Error response from daemon: failed to create task for container: OCI runtime create "
        "failed: error running prestart hook #0: exit status 1, stderr: nvidia-container-cli: "
        "initialization error: load "
        "library failed: libnvidia-ml.so.1: cannot open shared object file: permission denied: unknown\n",
        "nvidia-container-cli-init-error",
        "!no-gpu-or-driver",
    ),
    # 3: wordings of 2025 and 2026
    case(
        "tuple-style mismatch",
        FRAMES + "RuntimeError: Expected all tensors to be on the same device, but got mat1 is on "
        "cpu, different from other tensors on cuda:0 (when checking argument in method wrapper_CUDA_addmm)\n",
        "tensors-on-different-devices",
        "device-mixup",
    ),
    case(
        "ptxas sm_110a",
        "ptxas fatal   : Value 'sm_110a' is not defined for option 'gpu-name'\n",
        "nvcc-torch-cuda-mismatch|no-kernel-image",
    ),
    case(
        "ptxas .target sm_120a",
        "ptxas /tmp/tmp1.ptx, line 6; error   : Instruction 'mma with block scale' not supported on "
        ".target 'sm_120'\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n",
        "nvcc-torch-cuda-mismatch|no-kernel-image",
    ),
    case(
        "named symbol not found",
        FRAMES + "RuntimeError: CUDA error: named symbol not found\n",
        "no-kernel-image|"
        "gpu-hardware-unknown-error|invalid-argument-device-mismatch|undefined-symbol-abi-mismatch|"
        "missing-shared-library",
    ),
    case(
        "CDI",
        "docker: Error response from daemon: CDI device injection failed: unresolvable CDI devices "
        "nvidia.com/gpu=all\n",
        "docker-no-gpu-driver|nvidia-container-cli-init-error",
        "container-config",
    ),
    case(
        "HIP",
        FRAMES + "torch.AcceleratorError: HIP error: an illegal memory access was encountered\n"
        "HIP kernel errors might be asynchronously reported at some other API call\n",
        "illegal-memory-access",
        "",
        "AMD",
    ),
    *(
        case(name, FRAMES + f"{error}\n", "no-kernel-image", "arch-unsupported")
        for name, error in (
            (
                "FlashInfer's runner",
                "RuntimeError: Error in function 'Runner' at /e/fmhaRunner.cuh:30: Unsupported architecture",
            ),
            ("FlashInfer's least", "RuntimeError: FlashInfer requires sm75+"),
            ("FlashInfer's majors", "RuntimeError: No supported CUDA architectures found for major versions [10]."),
            ("DeepGEMM", "RuntimeError: Assertion error (/e/csrc/apis/gemm.hpp:376): Unsupported architecture"),
            ("DeepGEMM's recipe", "RuntimeError: Assertion error (/e/utils/layout.hpp:76): Unknown recipe"),
            (
                "only on these",
                "RuntimeError: Sparse Attention Kernel is only supported on SM90a and SM100f architectures.",
            ),
            (
                "CUTLASS",
                "ERROR : Arch conditional MMA instruction used without targeting appropriate compute capability.",
            ),
            ("CuTe", "Attempting to use wgmma.fence without CUTE_ARCH_MMA_SM90A_ENABLED"),
            ("CUTLASS's example", "This example must be compiled with `sm100a` and CUDA Toolkit 12.8 or later"),
        )
    ),
    case(
        "CUTLASS's assertion",
        '/e/sm90_gemm.hpp:366: void f(): block: [0,0,0], thread: [1,0,0] Assertion `0 && "ERROR : Arch conditional MMA '
        'instruction used without targeting appropriate compute capability. Aborting.\\n"` failed.\n'
        * 32
        + FRAMES
        + "RuntimeError: CUDA error: device-side assert triggered\n",
        "no-kernel-image",
        "arch-unsupported",
    ),
    case(
        "DeepGEMM's shapes",
        FRAMES + "RuntimeError: Failed: Assertion error /e/smxx_layout.hpp:136 'mn % 4 == 0 and num_groups == 1'\n",
        "not-gpu-env",
        "program-bug",
    ),
    case(
        "an instruction of another GPU",
        "ptxas /tmp/t.ptx, line 5; fatal   : Unsupported .target 'sm_120a'\n",
        "nvcc-torch-cuda-mismatch",
        "version-mismatch",
        "older than the architecture",
    ),
    *(
        case(f"peermem {name}", f"{line}\n", kind, cause)
        for name, line, kind, cause in (
            (
                "of other modules",
                "[  12.1] nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client",
                "nccl-ib-transport-error",
                "version-mismatch",
            ),
            (
                "does not know",
                "[  12.2] nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)",
                "nccl-ib-transport-error",
                "version-mismatch",
            ),
            (
                "without which NCCL goes on",
                "node1:9:9 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
                "insufficient-evidence",
                "unknown|unknown-cut-log",
            ),
        )
    ),
    case(
        "CDI without a driver",
        "ERRO failed to generate CDI spec: failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND\n",
        "docker-no-gpu-driver",
        "no-gpu-or-driver",
    ),
    case(
        "fault by GPU node",
        "Memory access fault by GPU node-2 (Agent handle: 0x5581) on address 0x7f1200000000. Reason: "
        "Page not present or supervisor privilege.\nAborted (core dumped)\n",
        "illegal-memory-access",
        "",
        "AMD",
    ),
    # 4: nothing is made up
    case(
        "a folder's name is no GPU",
        FRAMES + "RuntimeError: CUDA error: an illegal memory access was encountered\n"
        "saved to /data/gpu7/run-cuda:3/logs\n",
        "illegal-memory-access",
        "",
        "!cuda:3",
    ),
    case(
        "no display",
        FRAMES + "RuntimeError: CUDA error: the launch timed out and was terminated\n",
        "watchdog-timeout",
        "",
        "!has a display",
    ),
    # 10: what programs made to fail printed
    case(
        "SIGTERM after the watchdog",
        "[rank0]:[E1120 10:41:07.113 ProcessGroupNCCL.cpp:633] [Rank 0] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=412, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
        "Timeout(ms)=600000) ran for 600071 milliseconds before timing out.\nslurmstepd: error: *** JOB 4711 ON node1 "
        "CANCELLED AT 2026-11-20T10:41:30 ***\nW1120 10:41:31.000000 700 "
        "torch/distributed/elastic/agent/server/api.py:704] "
        "Received Signals.SIGTERM death signal, shutting down workers\n",
        "nccl-timeout-hang",
    ),
    case(
        "torch's shm",
        FRAMES + "RuntimeError: unable to allocate shared memory(shm) for file </torch_812_2290631184_0>: "
        "Success (0)\n",
        "dataloader-shm-bus-error",
        "container-config",
    ),
    case(
        "cuBLAS in a capture",
        FRAMES.replace("loss = model(batch).mean()", "with torch.cuda.graph(g): y = model(x)")
        + "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n"
        "RuntimeError: CUDA error: operation failed due to a previous error during capture\n",
        "cublas-not-initialized|invalid-argument-device-mismatch|not-gpu-env|gpu-hardware-unknown-error",
        "!gpu-memory-exhausted",
    ),
    case(
        "NCCL's interface",
        f"{NCCL}NCCL INFO NCCL_SOCKET_IFNAME set by environment to ib7\n"
        f"{NCCL}bootstrap.cc:48 NCCL WARN Bootstrap : no socket interface found\n"
        + RAISED.format(what="internal error"),
        "nccl-unhandled-system-error|not-gpu-env|nccl-remote-error",
        "launch-config|network-fabric|container-config",
    ),
]


@gathered(CASES)
def test_a_whole_log_is_told_by_what_stands_in_it(text: str, category: str, cause: str, said: str) -> None:
    answer = told(text)
    assert answer.category in category.split("|"), answer.because
    if cause.startswith("!"):
        assert answer.cause != cause[1:], answer.because
    elif cause:
        assert answer.cause in cause.split("|"), answer.because
    words = f"{answer.because} {answer.fix}"
    assert (said[1:] not in words) if said.startswith("!") else (said in words), words
    assert "display" not in answer.because


@gathered([pytest.param(each.values[0], id=each.id) for each in CASES])  # type: ignore[attr-defined]
def test_what_is_only_usual_is_at_most_0_6_and_has_a_runner_up(text: str) -> None:
    answer = told(text)
    assert answer.confidence >= 0.65 or (answer.confidence <= 0.6 and answer.runner_up and answer.decide_by)
