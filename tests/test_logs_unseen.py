"""Wordings of 2025 and 2026 in the frames that they are printed in, labelled before `explain` read them."""

from __future__ import annotations

from gathered import gathered
from logs import told
from test_logs_twins import INNOCENT, LOGGED, NINJA, OPEN, SITE, STEPS, TORCHRUN_END, VLLM, build, raised

MISSING, ABI, NVCC = "missing-shared-library", "undefined-symbol-abi-mismatch", "nvcc-torch-cuda-mismatch"
NO_DEVICE, NO_IMAGE, OOM = "cuda-init-no-device", "no-kernel-image", "out-of-memory"
INIT = "torch/cuda/__init__.py:_lazy_init"


def on_rank(rank: int, text: str) -> str:
    """What one rank prints."""
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def lost(rank: int, peer: str) -> str:
    """What a rank says whose peer is gone."""
    return on_rank(
        rank,
        raised(
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, "
            "remote process exited or there was a network error, NCCL version 2.27.3\nncclRemoteError: A call failed "
            f"possibly due to a network error or a remote process exiting prematurely.\nLast error:\nNET/Socket : peer "
            f"{peer}<41212> closed",
            "torch/distributed/distributed_c10d.py:all_reduce",
        ),
    )


# name, text, kinds and causes that are right
Case = tuple[str, str, str, str]

BUILDS: list[Case] = [
    (
        "no toolkit",
        build("FAILED: csrc/k6.o", "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found", *NINJA),
        f"{NVCC}|{INNOCENT}",
        "container-config|wrong-build-installed",
    ),
    (
        "the compiler of kernels is killed",
        build("FAILED: csrc/k6.o", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)", *NINJA),
        INNOCENT,
        "host-resource",
    ),
    (
        "a feature of a later GPU",
        build(
            "FAILED: csrc/k6.o",
            "ptxas /tmp/tmpxft_00000a1f_00000000-6_k6.ptx, line 31; error   : Feature '.bf16' requires .target sm_80 "
            "or "
            "higher",
            "ptxas fatal   : Ptx assembly aborted due to errors",
            *NINJA,
        ),
        f"{NVCC}|{NO_IMAGE}|{INNOCENT}",
        "arch-unsupported|launch-config|program-bug|gpu-kernel-bug",
    ),
    (
        "a device function that no object has",
        build("nvlink error   : Undefined reference to '_Z5scalePff' in 'csrc/k6.o' (target: sm_90)", *NINJA),
        INNOCENT,
        "program-bug",
    ),
    (
        "a C library newer than the toolkit",
        build(
            "FAILED: csrc/k6.o",
            "/usr/include/x86_64-linux-gnu/bits/mathcalls.h(79): error: exception specification is incompatible with "
            "that "
            'of previous function "cospi" (declared at line 2601 of /usr/local/cuda/include/crt/math_functions.h)',
            '1 error detected in the compilation of "csrc/k6.cu".',
            *NINJA,
        ),
        f"unsupported-gnu-version|{NVCC}",
        "version-mismatch",
    ),
    (
        "no headers of the runtime",
        build(
            "FAILED: csrc/bind.o", "csrc/bind.cpp:2:10: fatal error: cuda_runtime.h: No such file or directory", *NINJA
        ),
        NVCC,
        "container-config|wrong-build-installed",
    ),
    (
        "no headers of a library",
        build(
            "FAILED: csrc/bind.o",
            f"{SITE}/torch/include/ATen/cuda/CUDAContextLight.h:8:10: fatal error: cusparse.h: No such file or "
            f"directory",
            *NINJA,
        ),
        NVCC,
        "container-config|wrong-build-installed",
    ),
    (
        "no stub of the driver",
        build(
            "/usr/bin/ld: cannot find -lcuda: No such file or directory",
            "collect2: error: ld returned 1 exit status",
            *NINJA,
        ),
        f"{MISSING}|{NVCC}|triton-libcuda-not-found",
        "container-config|library-path-clash|no-gpu-or-driver",
    ),
    (
        "a toolkit too old for attention",
        "Building wheels for collected packages: flash-attn\n  error: subprocess-exited-with-error\n      "
        "RuntimeError: "
        "FlashAttention is only supported on CUDA 12.0 and above.  Note: make sure nvcc has a supported version by "
        "running "
        "nvcc -V.\n  ERROR: Failed building wheel for flash-attn\n",
        NVCC,
        "version-mismatch",
    ),
    (
        "cmake finds no nvcc",
        "-- The CXX compiler identification is GNU 13.3.0\nCMake Error at "
        "/usr/share/cmake/Modules/CMakeDetermineCUDACompiler"
        ".cmake:277 (message):\n  Failed to find nvcc.\n\n  Compiler requires the CUDA toolkit.  Please set the "
        "CUDAToolkit_ROOT variable.\n-- Configuring incomplete, errors occurred!\n",
        NVCC,
        "container-config|wrong-build-installed",
    ),
    (
        "a build that only warns",
        build(
            "nvcc warning : Support for offline compilation for architectures prior to '<compute/sm/lto>_75' will be "
            "removed in a future release (Use -Wno-deprecated-gpu-targets to suppress warning).",
            "[9/9] c++ csrc/k1.o csrc/k2.o -shared -L/usr/local/cuda/lib64 -lcudart -o fused/_C.so",
            "Successfully installed fused-0.1",
        ),
        OPEN,
        "unknown",
    ),
    (
        "no generator of builds",
        raised(
            "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)",
            "torch/utils/cpp_extension.py:verify_ninja_availability",
        ),
        INNOCENT,
        "container-config|launch-config",
    ),
    (
        "a header of Python within Triton",
        "/tmp/tmp3k/main.c:5:10: fatal error: Python.h: No such file or directory\n    5 | #include <Python.h>\n     "
        " |     "
        "     ^~~~~~~~~~\ncompilation terminated.\n"
        + raised(
            "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmp3k/main.c', "
            "'-O3', '-shared', '-fPIC', '-lcuda']' returned non-zero exit status 1.",
            "torch/_inductor/compile_fx.py:_compile_fx_inner",
        ),
        f"{INNOCENT}|triton-libcuda-not-found",
        "container-config",
    ),
]

LOADERS: list[Case] = [
    (
        "attention of another torch",
        raised(
            f"ImportError: {SITE}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: "
            f"_ZN3c104cuda29c10_"
            "cuda_check_implementationEiPKcS2_ib",
            "flash_attn/flash_attn_interface.py:<module>",
        ),
        ABI,
        "version-mismatch|wrong-build-installed",
    ),
    (
        "a C++ library too old",
        raised(
            f"ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by "
            f"{SITE}/"
            "vllm/_C.abi3.so)",
            "vllm/_custom_ops.py:<module>",
        ),
        f"{ABI}|{MISSING}|{INNOCENT}",
        "version-mismatch|library-path-clash",
    ),
    (
        "a C library too old",
        raised(f"ImportError: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by {SITE}/xformers/_C.so)"),
        f"{ABI}|{MISSING}|{INNOCENT}",
        "version-mismatch|wrong-build-installed",
    ),
    (
        "no cuDNN",
        raised("OSError: libcudnn.so.9: cannot open shared object file: No such file or directory"),
        MISSING,
        "wrong-build-installed|version-mismatch|library-path-clash|container-config",
    ),
    (
        "no NCCL",
        raised(
            "ImportError: libnccl.so.2: cannot open shared object file: No such file or directory",
            "torch/__init__.py:<module>",
        ),
        MISSING,
        "wrong-build-installed|version-mismatch|library-path-clash|container-config",
    ),
    (
        "two cuBLAS",
        raised(
            "ImportError: /usr/local/cuda/lib64/libcublas.so.12: symbol cublasLtGetEnvironmentMode, version "
            "libcublasLt.so."
            "12 not defined in file libcublasLt.so.12 with link time reference",
            "torch/__init__.py:<module>",
        ),
        ABI,
        "library-path-clash|version-mismatch",
    ),
    (
        "another NCCL",
        raised(
            f"ImportError: {SITE}/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister",
            "torch/__init__.py:<module>",
        ),
        f"{ABI}|nccl-version-mismatch",
        "library-path-clash|version-mismatch",
    ),
    (
        "no driver's library",
        raised(
            "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
            "vllm/_C.py:<module>",
        ),
        f"{NO_DEVICE}|{MISSING}|triton-libcuda-not-found",
        "no-gpu-or-driver|container-config|library-path-clash",
    ),
    (
        "no MPI",
        raised(
            "ImportError: libmpi.so.40: cannot open shared object file: No such file or directory",
            "mpi4py/__init__.py:<module>",
        ),
        INNOCENT,
        "container-config",
    ),
    (
        "no GL",
        raised(
            "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
            "cv2/__init__.py:bootstrap",
        ),
        INNOCENT,
        "container-config",
    ),
    (
        "no TensorRT",
        raised("ImportError: libnvinfer.so.10: cannot open shared object file: No such file or directory"),
        MISSING,
        "wrong-build-installed|version-mismatch|library-path-clash|container-config",
    ),
    (
        "no binary of bitsandbytes",
        "bitsandbytes library load error: Configured CUDA binary not found at "
        f"{SITE}/bitsandbytes/libbitsandbytes_cuda132.so\n"
        + raised(
            "RuntimeError: Configured CUDA binary not found at libbitsandbytes_cuda132.so",
            "bitsandbytes/cextension.py:throw_on_call",
        ),
        f"{MISSING}|{NO_IMAGE}",
        "wrong-build-installed|version-mismatch",
    ),
]

RUNTIME: list[Case] = [
    (
        "no memory in the newest torch",
        STEPS
        + raised(
            "torch.AcceleratorError: CUDA error: out of memory\nSearch for "
            "`cudaErrorMemoryAllocation' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
            "for more "
            "information."
        ),
        OOM,
        "gpu-memory-exhausted",
    ),
    (
        "a GPU newer than torch",
        f"{SITE}/torch/cuda/__init__.py:287: UserWarning: \nNVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not "
        "compatible with the current PyTorch installation.\nThe current PyTorch install supports CUDA capabilities "
        "sm_50 sm_60 "
        "sm_70 sm_75 sm_80 sm_86 sm_90.\n  warnings.warn(\n"
        + raised("RuntimeError: CUDA error: no kernel image is available for execution on the device"),
        NO_IMAGE,
        "wrong-build-installed|arch-unsupported|version-mismatch",
    ),
    (
        "PTX of a later toolkit",
        raised("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."),
        "ptx-unsupported-toolchain",
        "version-mismatch",
    ),
    (
        "an old driver",
        raised(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please update "
            "your GPU driver by downloading and installing a new version",
            INIT,
        ),
        "driver-too-old",
        "version-mismatch",
    ),
    (
        "the fabric is not ready",
        f"{SITE}/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: Unexpected error from "
        "cudaGetDeviceCount(). Error 802: system not yet initialized (Triggered internally at "
        "c10/cuda/CUDAFunctions.cpp:109.)\n" + raised("RuntimeError: No CUDA GPUs are available", INIT),
        "cuda-init-error-802-fabricmanager",
        "fabric-manager|hardware-fault",
    ),
    (
        "compat and driver",
        raised(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
            "before calling NumCudaDevices() that might have already set an error? Error 803: system has unsupported "
            "display driver / "
            "cuda driver combination",
            INIT,
        ),
        "driver-library-mismatch|forward-compat-unsupported",
        "version-mismatch|library-path-clash|container-config",
    ),
    (
        "compat on a desktop's GPU",
        raised(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward "
            "compatibility was attempted on non supported HW",
            INIT,
        ),
        "forward-compat-unsupported",
        "version-mismatch|library-path-clash|container-config",
    ),
    (
        "forked",
        raised(
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
            "use the 'spawn' start method",
            INIT,
        ),
        "fork-reinit-cuda",
        "program-bug|launch-config",
    ),
    (
        "an index elsewhere",
        STEPS
        + raised(
            "RuntimeError: Expected all tensors to be on the same device, but got index is on "
            "cpu, different from other tensors on cuda:0 (when checking argument in method wrapper_CUDA__index_select)"
        ),
        "tensors-on-different-devices",
        "device-mixup|program-bug",
    ),
    (
        "no C compiler",
        raised(
            "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via CC "
            "environment variable or set triton.knobs.build.impl.",
            "torch/_inductor/compile_fx.py:_compile_fx_inner",
        ),
        f"{INNOCENT}|triton-libcuda-not-found",
        "container-config",
    ),
    (
        "Triton links the driver",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 "
        "exit status\n"
        + raised(
            "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', "
            "'/tmp/tmpab/main.c', '-O3', '-shared', '-lcuda']' returned non-zero exit status 1.",
            "triton/runtime/build.py:_build",
        ),
        "triton-libcuda-not-found",
        "library-path-clash|container-config|no-gpu-or-driver",
    ),
    (
        "Triton's ptxas does not know the GPU",
        raised(
            "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen "
            "error\n`ptxas` stderr:\nptxas-blackwell fatal   : Value 'sm_121a' is not defined for option "
            "'gpu-name'\n\nRepro command: "
            "/opt/ptxas-blackwell -lineinfo -v --gpu-name=sm_121a /tmp/a.ptx -o /tmp/a.ptx.o",
            "triton/backends/nvidia/compiler.py:make_cubin",
        ),
        f"{NVCC}|{NO_IMAGE}",
        "version-mismatch|arch-unsupported",
    ),
    (
        "an image of another GPU",
        raised(
            "RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
            "triton/compiler/compiler.py:_init_handles",
        ),
        f"{NO_IMAGE}|ptx-unsupported-toolchain",
        "version-mismatch|arch-unsupported|wrong-build-installed",
    ),
    (
        "fp8 on an old GPU",
        raised(
            "triton.compiler.errors.CompilationError: at 31:20:\n    x = x.to(tl.float8e4nv)\n"
            '                    ^\nValueError("type fp8e4nv not supported in this architecture. The supported fp8 '
            "dtypes are "
            "('fp8e4b15', 'fp8e5')\")",
            "triton/compiler/compiler.py:make_ir",
        ),
        f"{NO_IMAGE}|{INNOCENT}",
        "arch-unsupported",
    ),
    (
        "JAX has no memory",
        LOGGED
        + raised(
            "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes.",
            "jax/_src/interpreters/pxla.py:__call__",
        ),
        OOM,
        "gpu-memory-exhausted",
    ),
    (
        "JAX sees no GPU",
        raised(
            "RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices. "
            "(you may need to uninstall the failing plugin package, or set JAX_PLATFORMS=cpu to skip this backend.)",
            "jax/_src/xla_bridge.py:backends",
        ),
        NO_DEVICE,
        "no-gpu-or-driver|launch-config|container-config",
    ),
    (
        "JAX with an older cuDNN",
        raised(
            "RuntimeError: Unable to load cuDNN. Found cuDNN version 90100, but JAX was built against "
            "version 90800, which is newer. The copy of cuDNN that is installed must be at least as new as the "
            "version against which "
            "JAX was built.",
            "jax_plugins/xla_cuda12/__init__.py:_version_check",
        ),
        "cudnn-version-mismatch",
        "version-mismatch|library-path-clash|wrong-build-installed",
    ),
    (
        "XLA with an older cuDNN",
        "E0502 11:04:31.731583 2156 cuda_dnn.cc:454] Loaded runtime CuDNN library: 9.1.0 but source was "
        "compiled with: 9.3.0.  CuDNN library needs to have matching major version and equal or higher minor version.\n"
        + raised(
            "jaxlib._jax.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors "
            "above for "
            "more details.",
            "jax/_src/compiler.py:backend_compile",
        ),
        "cudnn-version-mismatch",
        "version-mismatch|library-path-clash",
    ),
    (
        "a convolution in ONNX Runtime",
        raised(
            "onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1 : FAIL : "
            "Non-zero status code returned while running Conv node. Name:'/stem/Conv' Status Message: CUDNN failure "
            "5000: "
            "CUDNN_STATUS_EXECUTION_FAILED ; GPU=0 ; hostname=node7 ; file=cudnn_fe_call.cc ; line=33",
            "onnxruntime/capi/onnxruntime_inference_collection.py:run",
        ),
        "cudnn-execution-failed",
        "gpu-memory-exhausted|version-mismatch|library-path-clash|gpu-kernel-bug|arch-unsupported",
    ),
    (
        "no memory in ONNX Runtime",
        raised(
            "onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : "
            "RUNTIME_EXCEPTION : Non-zero status code returned while running MatMul node. bfc_arena.cc:376 void* "
            "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer "
            "of size "
            "8589934592"
        ),
        OOM,
        "gpu-memory-exhausted",
    ),
    (
        "a provider that does not load, and works",
        "2026-05-02 11:04:31.1 [E:onnxruntime:Default, provider_bridge_ort.cc:2167 "
        "TryGetProviderInfo_CUDA] Failed to load library libonnxruntime_providers_cuda.so with error: libcudnn.so.9: "
        "cannot open "
        "shared object file: No such file or directory\n*************** EP Error ***************\nEP Error when using "
        "['CUDAExecutionProvider']\nFalling back to ['CPUExecutionProvider'] and retrying.\n"
        "****************************************\nscore 0.91\nscore 0.92\nscore 0.95\ndone\n",
        OPEN,
        "unknown",
    ),
    (
        "vLLM has no memory",
        "".join(
            f"{VLLM}ERROR 05-02 11:04:31 [core.py:708] {line}\n"
            for line in raised(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total "
                "capacity of 79.11 GiB of "
                "which 301.00 MiB is free.",
                "vllm/v1/worker/gpu_worker.py:load_model",
            ).splitlines()
        )
        + "".join(
            f"(APIServer pid=1) {line}\n"
            for line in raised(
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
                "vllm/v1/engine/utils.py:wait_for_engine_startup",
            ).splitlines()
        ),
        OOM,
        "gpu-memory-exhausted|launch-config",
    ),
    (
        "vLLM beside another process",
        raised(
            "ValueError: Free memory on device (11.2/79.1 GiB) on startup is less than desired "
            "GPU memory utilization (0.9, 71.19 GiB). Decrease GPU memory utilization or reduce GPU memory used by "
            "other processes.",
            "vllm/v1/worker/gpu_worker.py:init_device",
        ),
        OOM,
        "gpu-memory-exhausted|launch-config",
    ),
    (
        "bfloat16 on a T4",
        raised(
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your "
            "Tesla T4 GPU has compute capability 7.5. You can use float16 instead by explicitly setting the `dtype` "
            "flag in CLI",
            "vllm/worker/worker.py:_check_if_gpu_supports_dtype",
        ),
        f"{NO_IMAGE}|{INNOCENT}",
        "arch-unsupported|launch-config",
    ),
    (
        "FlashInfer on an old GPU",
        raised("RuntimeError: FlashInfer requires GPUs with sm75 or higher", "flashinfer/jit/core.py:check_cuda_arch"),
        NO_IMAGE,
        "arch-unsupported",
    ),
    (
        "numba's PTX",
        raised(
            "numba.cuda.cudadrv.error.LinkerError: [222] Call to cuLinkAddData results in "
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION\nptxas application ptx input, line 9; fatal   : Unsupported .version "
            "8.7; current "
            "version is '8.4'",
            "numba_cuda/numba/cuda/cudadrv/driver.py:add_ptx",
        ),
        "ptx-unsupported-toolchain",
        "version-mismatch",
    ),
    (
        "fp8's product on an A100",
        raised(
            "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability "
            ">= 9.0 or 8.9, or ROCm MI300+"
        ),
        f"{NO_IMAGE}|{INNOCENT}",
        "arch-unsupported",
    ),
    (
        "no kernel of CUTLASS",
        raised(
            "NotImplementedError: No compiled cutlass_scaled_mm for a compute capability less than CUDA "
            "device capability: 75",
            "vllm/_custom_ops.py:cutlass_scaled_mm",
        ),
        NO_IMAGE,
        "arch-unsupported|wrong-build-installed",
    ),
    (
        "attention of xformers",
        raised(
            "NotImplementedError: No operator found for `memory_efficient_attention_forward` with "
            "inputs:\n     query       : shape=(1, 4096, 16, 64) (torch.bfloat16)\n`fa2F@2.7.4` is not supported "
            "because:\n    requires "
            "device with capability > (8, 0) but your GPU has capability (7, 5) (too old)",
            "xformers/ops/fmha/dispatch.py:_run_priority_list",
        ),
        f"{NO_IMAGE}|{INNOCENT}",
        "arch-unsupported|wrong-build-installed",
    ),
    (
        "a synchronization in a capture",
        raised(
            "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing",
            "torch/cuda/graphs.py:__exit__",
        ),
        f"{INNOCENT}|invalid-argument-device-mismatch",
        "program-bug",
    ),
    (
        "a loss without a number",
        STEPS + raised("ValueError: Loss is nan at step 40, stopping training"),
        "nan-or-inf-mixed-precision",
        "precision|program-bug|corrupt-data",
    ),
    (
        "a scale that cannot fall",
        LOGGED
        + raised(
            "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably "
            "exploding. Try lowering the learning rate",
            "fairseq/optim/dynamic_loss_scaler.py:check_overflow",
        ),
        "nan-or-inf-mixed-precision",
        "precision|program-bug",
    ),
    (
        "an AMD GPU's image",
        raised(
            "RuntimeError: HIP error: invalid device function\nHIP kernel errors might be asynchronously "
            "reported at some other API call"
        ),
        NO_IMAGE,
        "arch-unsupported|wrong-build-installed",
    ),
    (
        "an AMD GPU's page",
        STEPS + "Memory access fault by GPU node-1 (Agent handle: 0x55d0) on address 0x7f3a000000. Reason: Page "
        "not present or supervisor privilege.\nAborted (core dumped)\n",
        "illegal-memory-access",
        "gpu-kernel-bug|program-bug",
    ),
    (
        "an instruction of a later processor",
        "loading encoder\nIllegal instruction (core dumped)\n",
        "illegal-instruction",
        "cpu-arch-unsupported",
    ),
    (
        "NVML of another release",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86\n",
        "driver-library-mismatch",
        "version-mismatch|library-path-clash|container-config",
    ),
    (
        "a container that lost its GPU",
        STEPS + "Failed to initialize NVML: Unknown Error\n" + raised("RuntimeError: No CUDA GPUs are available", INIT),
        f"cgroup-lost-gpu|{NO_DEVICE}",
        "container-config|no-gpu-or-driver",
    ),
]

RANKS: list[Case] = [
    (
        "one GPU twice",
        on_rank(
            1,
            raised(
                "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
                "NCCLUtils.hpp:268, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version "
                "2.27.3\nncclInvalidUsage: This usually "
                "reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 "
                "both on CUDA device 1b000"
            ),
        )
        + TORCHRUN_END,
        "nccl-duplicate-gpu",
        "launch-config|program-bug|container-config",
    ),
    (
        "no route",
        "node7:141:190 [0] misc/socket.cc:493 NCCL WARN socketStartConnect: Connect to 10.0.0.2<51234> failed : No "
        "route "
        "to host\n"
        + on_rank(
            0,
            raised(
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3422, unhandled "
                "system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3\nncclSystemError: System "
                "call (e.g. socket, malloc) "
                "or external library call failed or device error."
            ),
        ),
        "nccl-unhandled-system-error",
        "network-fabric|launch-config",
    ),
    (
        "a small /dev/shm",
        "node7:141:190 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 33030532 "
        "bytes, error: No space left on device (28)\n"
        + on_rank(
            0,
            raised(
                "torch.distributed.DistBackendError: NCCL error in: "
                "ProcessGroupNCCL.cpp:3422, unhandled system error, NCCL version 2.27.3\nncclSystemError: System "
                "call failed"
            ),
        ),
        "nccl-shm-too-small",
        "container-config|host-resource",
    ),
    (
        "a link of InfiniBand",
        "node7:141:190 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4711> "
        "with status=12 opcode=0 len=0 vendor err 129 (Send) localGid fe80::1 remoteGids fe80::2 hca mlx5_0\n"
        + lost(0, "10.0.0.2"),
        "nccl-ib-transport-error",
        "network-fabric|hardware-fault|peer-failure",
    ),
    (
        "one has no memory, others wait",
        on_rank(
            3,
            raised(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
                "GPU 3 has a total capacity of 79.11 GiB of which 1.20 GiB is free."
            ),
        )
        + "".join(
            f"[rank{n}]:[E502 11:14:31.1 ProcessGroupNCCL.cpp:685] [Rank {n}] Watchdog caught collective operation "
            f"timeout: "
            f"WorkNCCL(SeqNum=81, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 60002{n} milliseconds before timing "
            f"out.\n"
            for n in range(3)
        )
        + TORCHRUN_END,
        OOM,
        "gpu-memory-exhausted",
    ),
    (
        "one met a wrong address, others its end",
        lost(1, "10.0.0.2")
        + on_rank(0, raised("torch.AcceleratorError: CUDA error: an illegal memory access was encountered"))
        + lost(2, "10.0.0.2")
        + TORCHRUN_END,
        "illegal-memory-access",
        "gpu-kernel-bug|bad-index-or-label",
    ),
    (
        "one lacks a key, others its store",
        on_rank(0, raised("KeyError: 'warmup_steps'"))
        + on_rank(
            1,
            raised(
                "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId "
                "from [0] via c10d "
                "key-value store by key '0', but store->get('0') got error: Connection reset by peer"
            ),
        )
        + TORCHRUN_END,
        INNOCENT,
        "program-bug|launch-config",
    ),
    (
        "nobody at the meeting",
        raised(
            "torch.distributed.DistNetworkError: The client socket has timed out after 300000ms while "
            "trying to connect to (10.0.0.1, 29500).",
            "torch/distributed/rendezvous.py:_create_c10d_store",
        ),
        f"{INNOCENT}|nccl-unhandled-system-error|nccl-timeout-hang",
        "network-fabric|infra|launch-config|peer-failure",
    ),
    (
        "a port in use",
        raised(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
            "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
        INNOCENT,
        "launch-config",
    ),
    (
        "Xid 79",
        "[ 8121.118293] NVRM: GPU at PCI:0000:65:00: GPU-1f\n[ 8121.118301] NVRM: Xid (PCI:0000:65:00): 79, pid=4711, "
        "name=python, GPU has fallen off the bus.\n",
        "xid-79",
        "hardware-fault",
    ),
    (
        "Xid 94",
        "[ 8121.118301] NVRM: Xid (PCI:0000:65:00): 94, pid=4711, name=python, Contained: SM (0x1). RST: No, D-RST: "
        "No\n",
        "xid-94/95",
        "hardware-fault",
    ),
    (
        "Xid 145",
        "[ 8121.118301] NVRM: Xid (PCI:0000:65:00): 145, RLW_CTRL Nonfatal XC1 i0 Link 05 (0x00000004 0x80000000)\n",
        "xid-144-150-nvlink5",
        "hardware-fault|driver-firmware-fault|gpu-kernel-bug",
    ),
    (
        "an image that needs a later driver",
        "docker: Error response from daemon: failed to create task for container: failed to "
        "create shim task: OCI runtime create failed: runc create failed: unable to start container process: error "
        "during container "
        "init: error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as "
        "'legacy'\nnvidia-container-cli: "
        "requirement error: unsatisfied condition: cuda>=13.0, please update your driver to a newer version, or use "
        "an earlier cuda "
        "container: unknown\n",
        "nvidia-container-cli-requirement-error",
        "version-mismatch",
    ),
]

INNOCENTS: list[Case] = [
    (
        "a progress bar, then a wrong path",
        "".join(f"\repoch 1: {n}%|##| {n}/100 [00:01<00:10, gpu_mem=61.2G]" for n in range(60))
        + "\n"
        + raised("NotADirectoryError: [Errno 20] Not a directory: '/data/cuda/list.txt/0'"),
        INNOCENT,
        "launch-config|program-bug|corrupt-data",
    ),
    (
        "Lightning's wrong argument",
        "GPU available: True (cuda), used: True\nTPU available: False, using: 0 TPU cores\n"
        "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]\n"
        + raised(
            "TypeError: Trainer.__init__() got an unexpected keyword argument 'gpus'",
            "lightning/pytorch/utilities/argparse.py:insert_env_defaults",
        ),
        INNOCENT,
        "version-mismatch|program-bug",
    ),
    (
        "Lightning's missing method",
        "GPU available: True (cuda), used: True\n"
        + raised(
            "lightning.fabric.utilities.exceptions."
            "MisconfigurationException: No `training_step()` method defined. Lightning `Trainer` expects as minimum a "
            "`training_step()`",
            "lightning/pytorch/trainer/configuration_validator.py:__verify_train_val_loop_configuration",
        ),
        INNOCENT,
        "program-bug|launch-config",
    ),
    (
        "a checkpoint of another shape",
        "loading /ckpt/h200/last.pt to cuda:0\n"
        + raised(
            "RuntimeError: Error(s) in loading "
            "state_dict for Net:\n\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 512]) "
            "from checkpoint, the "
            "shape in current model is torch.Size([100, 512]).",
            "torch/nn/modules/module.py:load_state_dict",
        ),
        INNOCENT,
        "program-bug|version-mismatch|launch-config",
    ),
    (
        "weights only",
        raised(
            "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have "
            "two options, do those steps only if you trust the source of the checkpoint.\n\t(1) In PyTorch 2.6, we "
            "changed the default "
            "value of the `weights_only` argument in `torch.load` from `False` to `True`.",
            "torch/serialization.py:load",
        ),
        INNOCENT,
        "version-mismatch|program-bug",
    ),
    (
        "a broken header of weights",
        raised(
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
            "safetensors/torch.py:load_file",
        ),
        INNOCENT,
        "corrupt-data",
    ),
    (
        "gradients twice",
        STEPS
        + raised(
            "RuntimeError: Trying to backward through the graph a second time (or directly access saved "
            "tensors after they have already been freed).",
            "torch/autograd/graph.py:_engine_run_backward",
        ),
        INNOCENT,
        "program-bug",
    ),
    (
        "written in place",
        STEPS
        + raised(
            "RuntimeError: one of the variables needed for gradient computation has been modified by an "
            "inplace operation: [torch.cuda.FloatTensor [64, 10]], which is output 0 of ReluBackward0, is at version "
            "1; expected version 0 "
            "instead.",
            "torch/autograd/graph.py:_engine_run_backward",
        ),
        INNOCENT,
        "program-bug",
    ),
    (
        "half on the processor",
        raised(
            "RuntimeError: \"slow_conv2d_cpu\" not implemented for 'Half'", "torch/nn/modules/conv.py:_conv_forward"
        ),
        INNOCENT,
        "program-bug|version-mismatch",
    ),
    (
        "a tokenizer without a class",
        raised(
            "ValueError: Unrecognized configuration class <class 'transformers.models.qwen3.config'> "
            "to build an AutoTokenizer.",
            "transformers/models/auto/tokenization_auto.py:from_pretrained",
        ),
        INNOCENT,
        "version-mismatch|program-bug|launch-config",
    ),
    (
        "an older numpy",
        raised("AttributeError: module 'numpy' has no attribute 'float'", "deepspeed/utils/timer.py:<module>"),
        INNOCENT,
        "version-mismatch",
    ),
    (
        "a name that a package lost",
        raised(
            "ImportError: cannot import name 'AdamW' from 'transformers' (/opt/venv/lib/python3.12/"
            "site-packages/transformers/__init__.py)"
        ),
        INNOCENT,
        "version-mismatch",
    ),
    (
        "no memory of the processor",
        LOGGED
        + raised(
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 512. GiB for an "
            "array with shape (262144, 262144) and data type float64"
        ),
        INNOCENT,
        "host-resource|program-bug",
    ),
    (
        "no memory of the processor in torch",
        LOGGED
        + raised(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. "
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 549755813888 bytes. Error code 12 "
            "(Cannot allocate memory)"
        ),
        INNOCENT,
        "host-resource|program-bug",
    ),
    (
        "too many files",
        LOGGED + raised("OSError: [Errno 24] Too many open files: '/data/gpu/000311.jpg'"),
        INNOCENT,
        "host-resource|program-bug",
    ),
    (
        "a pickled lambda",
        raised(
            "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'", "multiprocessing/reduction.py:dump"
        ),
        INNOCENT,
        "program-bug",
    ),
    (
        "interrupted",
        STEPS + "^C" + raised("KeyboardInterrupt", "torch/autograd/graph.py:_engine_run_backward"),
        INNOCENT,
        "launch-config|program-bug|infra|peer-failure",
    ),
    (
        "evicted",
        LOGGED + "Reason: Evicted\nMessage: The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, "
        "available: 8Gi. Container trainer was using 80Gi, request is 0.\n",
        INNOCENT,
        "host-resource",
    ),
    (
        "no such image",
        'Events:\n  Warning  Failed  3s  kubelet  Failed to pull image "reg.example.org/cuda-train:13": rpc error: '
        "code = NotFound desc = failed to pull and unpack image: not found\n  Warning  Failed  3s  kubelet  Error: "
        "ErrImagePull\n  "
        "Normal   BackOff  2s  kubelet  Back-off pulling image\n  Warning  Failed  2s  kubelet  Error: "
        "ImagePullBackOff\n",
        INNOCENT,
        "launch-config|infra",
    ),
    (
        "not enough GPUs in the cluster",
        "Events:\n  Warning  FailedScheduling  3s  default-scheduler  0/6 nodes are available: 2 "
        "Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint. preemption: 0/6 nodes are available\n",
        f"{INNOCENT}|{NO_DEVICE}",
        "host-resource|launch-config|infra",
    ),
    (
        "pip's conflict",
        "ERROR: Cannot install -r requirements.txt (line 3) and numpy==2.3.0 because these package versions have "
        "conflicting dependencies.\n\nThe conflict is caused by:\n    The user requested numpy==2.3.0\n    numba "
        "0.61.2 depends on "
        "numpy<2.3 and >=1.24\n\nERROR: ResolutionImpossible: for help visit pip's documentation\n",
        INNOCENT,
        "version-mismatch",
    ),
    (
        "pip's timeout",
        "Collecting nvidia-cublas-cu12==12.8.4.1\nWARNING: Retrying (Retry(total=0)) after connection broken by "
        "'ReadTimeoutError(\"Read timed out.\")': /simple/nvidia-cublas-cu12/\nERROR: Could not install packages due "
        "to an OSError: "
        "HTTPSConnectionPool(host='files.example.org', port=443): Read timed out.\n",
        INNOCENT,
        "infra",
    ),
    (
        "pip's disk",
        "Installing collected packages: nvidia-cudnn-cu12, torch\nERROR: Could not install packages due to an OSError: "
        "[Errno 28] No space left on device\n",
        INNOCENT,
        "host-resource",
    ),
    (
        "uv finds nothing",
        "  \u00d7 No solution found when resolving dependencies:\n  \u2570\u2500\u25b6 Because there is no version of "
        "einops==9.9 and your project depends on einops==9.9, we can conclude that your project's requirements are "
        "unsatisfiable.\n",
        INNOCENT,
        "version-mismatch|launch-config",
    ),
    (
        "a wrong key of a service",
        raised(
            "wandb.errors.errors.AuthenticationError: API key verification failed. Make sure your API key is valid.",
            "wandb/sdk/wandb_login.py:_verify_login",
        ),
        INNOCENT,
        "infra|launch-config|program-bug",
    ),
    (
        "a service's limit",
        raised(
            "openai.RateLimitError: Error code: 429 - {'error': {'message': 'Rate limit reached for gpu-large'}}",
            "openai/_base_client.py:request",
        ),
        INNOCENT,
        "infra",
    ),
    (
        "the bus of messages",
        raised("kafka.errors.NoBrokersAvailable: NoBrokersAvailable", "kafka/client_async.py:check_version"),
        INNOCENT,
        "infra|launch-config",
    ),
    (
        "a query",
        raised(
            'psycopg2.errors.UndefinedTable: relation "gpu_jobs" does not exist\nLINE 1: select * from gpu_jobs\n',
            "sqlalchemy/engine/default.py:do_execute",
        ),
        INNOCENT,
        "program-bug|launch-config",
    ),
    (
        "a table of data",
        raised(
            "pandas.errors.ParserError: Error tokenizing data. C error: Expected 12 fields in line 3011, saw 14",
            "pandas/io/parsers/readers.py:read_csv",
        ),
        INNOCENT,
        "corrupt-data",
    ),
    (
        "a picture",
        LOGGED
        + raised("PIL.UnidentifiedImageError: cannot identify image file '/data/cuda/311.jpg'", "PIL/Image.py:open"),
        INNOCENT,
        "corrupt-data",
    ),
    (
        "node's heap",
        "<--- Last few GCs --->\n\nFATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of "
        "memory\n 1: "
        "0xb9c1f0 node::Abort() [node]\nAborted (core dumped)\n",
        INNOCENT,
        "host-resource",
    ),
    (
        "java's heap",
        "26/05/02 11:04:31 INFO GpuScheduler: 8 gpus\njava.lang.OutOfMemoryError: Java heap space\n\tat "
        "java.base/java.util.Arrays.copyOf(Arrays.java:3537)\n",
        INNOCENT,
        "host-resource",
    ),
    (
        "a healthy server",
        "INFO 05-02 11:04:31 [gpu_worker.py:298] Available KV cache memory: 51.20 GiB\nWARNING 05-02 11:04:32 "
        "[fused_moe.py:886] Using default MoE config. Performance might be sub-optimal! Config file not found at "
        "E=64,N=1408.json\n"
        + "".join(
            f"INFO 05-02 11:05:{n} [loggers.py:123] Engine 000: Avg generation throughput: {n}.1 tokens/s, GPU KV "
            f"cache usage: "
            f"{n}.0%\n"
            for n in range(10, 40)
        ),
        OPEN,
        "unknown",
    ),
    (
        "a healthy run that tells of memory",
        LOGGED + "2026-05-02 11:05:31,120 WARNING trainer: 14 pytorch allocator cache flushes since "
        "last step. this happens when there is high memory pressure\n"
        + LOGGED
        + "2026-05-02 11:09:31,120 INFO trainer: done\n",
        OPEN,
        "unknown",
    ),
    (
        "a healthy run after a resume",
        "WARNING: previous run ended with 'CUDA error: unspecified launch failure', resuming from step "
        "400\n" + STEPS + "saved /out/final.pt\n",
        OPEN,
        "unknown",
    ),
    (
        "checks of a cluster that pass",
        "".join(f"node{n}: xid errors in the last day: 0, ECC uncorrectable: 0, NVLink errors: 0\n" for n in range(12))
        + "12 of 12 nodes healthy\n",
        OPEN,
        "unknown",
    ),
    (
        "tests that wait for errors",
        "tests/test_errors.py::test_oom PASSED\ntests/test_errors.py::test_illegal_access[CUDA error: an "
        "illegal memory access was encountered] PASSED\n\n============ 2 passed in 1.31s ============\n",
        OPEN,
        "unknown",
    ),
    (
        "a changelog",
        "v2.4.1\n- fixed: CUDA error: invalid device ordinal with MIG\n- fixed: NCCL timeout after 600000 ms on "
        "resume\n"
        "v2.4.0\n- new: fp8\n",
        OPEN,
        "unknown",
    ),
    (
        "autotuning",
        "AUTOTUNE mm(4096x4096, 4096x4096)\n  triton_mm_3 0.31 ms 100.0%\n  mm 0.33 ms 94.1%\nSingleProcess AUTOTUNE "
        "benchmarking takes 2.1 seconds\nskipping triton_mm_9: out of resource: shared memory, Required: 262144, "
        "Hardware limit: 232448\n" + STEPS + "finished\n",
        OPEN,
        "unknown",
    ),
]

CASES = [*BUILDS, *LOADERS, *RUNTIME, *RANKS, *INNOCENTS]


@gathered(CASES)
def test_the_kind_and_the_cause_are_told(name: str, text: str, kinds: str, causes: str) -> None:
    answer = told(text)
    assert answer.category in kinds.split("|"), (answer.category, answer.because)
    assert answer.cause in causes.split("|"), (answer.cause, answer.because)
