"""Pairs of logs of one shape: one that fails by itself or not at all, and its twin in which the GPU really failed."""

from __future__ import annotations

from gathered import gathered
from logs import told

INNOCENT, OPEN = "not-gpu-env", "insufficient-evidence"
SITE = "/opt/venv/lib/python3.12/site-packages"
STEPS = "".join(f"step {n} loss 0.{97 - n} lr 3e-4 mem 61.2G\n" for n in range(40))
LOGGED = "".join(f"2026-05-02 11:04:{n:02d},120 INFO trainer: step {n} loss 0.{97 - n}\n" for n in range(30))
ILLEGAL = "CUDA error: an illegal memory access was encountered"
OOM = (
    "CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 139.81 GiB of which 1.21 GiB is "
    "free. Including non-PyTorch memory, this process has 138.59 GiB memory in use."
)
NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"
NO_DRIVER = (
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
    "driver from http://www.nvidia.com/Download/index.aspx"
)
NO_GPU = "RuntimeError: No CUDA GPUs are available"
ASSERT = "torch.AcceleratorError: CUDA error: device-side assert triggered"
CPU_BUILD = "AssertionError: Torch not compiled with CUDA enabled"
CUDART = "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"


def raised(words: str, *frames: str) -> str:
    """An uncaught exception of a program; ``frames`` are those of libraries, "file:function"."""
    inner = "".join(f'  File "{SITE}/{f.partition(":")[0]}", line 88, in {f.partition(":")[2]}\n' for f in frames)
    return (
        'Traceback (most recent call last):\n  File "/work/src/train.py", line 211, in <module>\n    main(parse())\n'
        f'  File "/work/src/train.py", line 164, in main\n    out = run(batch, device)\n{inner}{words}\n'
    )


def pytest(
    error: str, line: str, *, summary: str = "1 failed, 41 passed, 3 skipped", name: str = "test_gpu_pool"
) -> str:
    """A run of pytest with one test that fails."""
    return (
        "============================= test session starts ==============================\n"
        "platform linux -- Python 3.12.4, pytest-8.4.1, pluggy-1.6.0\nrootdir: /work\nplugins: cov-6.0.0, xdist-3.7.0\n"
        "collected 45 items\n\ntests/test_cuda_paths.py ..........s.s.s                             [ 35%]\n"
        "tests/test_pool.py .......................F.....                         [100%]\n\n"
        "=================================== FAILURES ===================================\n"
        f"________________________________ {name} _________________________________\n\n"
        f"    def {name}():\n        pool = Pool(devices=2)\n>       {line}\n{error}\n\ntests/test_pool.py:88: "
        f"{error.lstrip('E ').partition(':')[0]}\n"
        "=========================== short test summary info ============================\n"
        f"FAILED tests/test_pool.py::{name} - {error.lstrip('E ')[:60]}\n"
        f"=================== {summary} in 12.41s ===================\n"
    )


def build(*lines: str) -> str:
    """A build of an extension with ninja."""
    before = "".join(
        f"[{n}/9] /usr/local/cuda/bin/nvcc --generate-dependencies-with-compile --dependency-output csrc/k{n}.o.d "
        f"-I{SITE}/torch/include -c csrc/k{n}.cu -o csrc/k{n}.o -O3 -gencode=arch=compute_90,code=sm_90 -std=c++17\n"
        for n in range(1, 6)
    )
    return f"running build_ext\nbuilding 'fused._C' extension\n{before}" + "".join(f"{line}\n" for line in lines)


NINJA = ("ninja: build stopped: subcommand failed.", "error: command '/usr/bin/ninja' failed with exit code 1")
TORCHRUN_END = (
    "E0502 11:04:31.000000 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) "
    "local_rank: 0 "
    "(pid: 1431) of binary: /opt/venv/bin/python\n"
)
VLLM = "(EngineCore_0 pid=311) "
SERVED = "".join(f'INFO:     10.0.3.{n}:4{n}122 - "POST /v1/embed HTTP/1.1" 200 OK\n' for n in range(12))
DOWNLOADS = "".join(
    f"model-0000{n}-of-00009.safetensors: 100%|##########| 4.9G/4.9G [00:31<00:00]\n" for n in range(1, 6)
)

# name, text that fails by itself, its kind and causes, text in which the GPU failed, its kind
Pair = tuple[str, str, str, str, str, str]

PYTHON: list[Pair] = [
    (
        "a note of a fallback before a wrong key",
        "loader: cudaErrorNoDevice is expected on this node, decoding on the CPU\n"
        + STEPS
        + raised("KeyError: 'mask'"),
        INNOCENT,
        "program-bug|corrupt-data",
        STEPS + raised(NO_GPU, "torch/cuda/__init__.py:_lazy_init"),
        "cuda-init-no-device",
    ),
    (
        "a data set that speaks of CUDA",
        f"first row of the set: '{ILLEGAL}. What shall I do?'\nrows: 4410\n"
        + raised("ValueError: Sample larger than population or is negative"),
        INNOCENT,
        "program-bug|corrupt-data",
        f"rows: 4410\n{raised('torch.AcceleratorError: ' + ILLEGAL)}",
        "illegal-memory-access",
    ),
    (
        "a prompt with the words of an error, then a type",
        f"prompt 3 of 80: Explain '{OOM[:40]}' to a beginner\nanswer 3: a GPU has too little room\n"
        + raised("TypeError: unsupported operand type(s) for +: 'int' and 'str'"),
        INNOCENT,
        "program-bug",
        "prompt 3 of 80: write a poem\n" + raised(f"torch.OutOfMemoryError: {OOM}"),
        "out-of-memory",
    ),
    (
        "a wrong shape on the GPU",
        STEPS
        + raised(
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x768)",
            "torch/nn/modules/linear.py:forward",
        ),
        INNOCENT,
        "program-bug",
        STEPS
        + raised(
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle )`",
            "torch/nn/modules/linear.py:forward",
        ),
        "cublas-execution-failed",
    ),
    (
        "a wrong type on the GPU",
        STEPS + raised("RuntimeError: expected scalar type Half but found Float", "torch/nn/functional.py:linear"),
        INNOCENT,
        "program-bug",
        STEPS + raised(f"RuntimeError: {NO_IMAGE}", "torch/nn/functional.py:linear"),
        "no-kernel-image",
    ),
    (
        "a warning of NVML, then an index",
        f"{SITE}/torch/cuda/__init__.py:734: UserWarning: Can't initialize NVML\n  warnings.warn(\"Can't initialize "
        f'NVML")'
        "\nrunning on cpu\n" + raised("IndexError: list index out of range"),
        INNOCENT,
        "program-bug|corrupt-data",
        f"{SITE}/torch/cuda/__init__.py:734: UserWarning: Can't initialize NVML\n  warnings.warn(\"Can't initialize "
        f'NVML")'
        "\n" + raised(NO_DRIVER, "torch/cuda/__init__.py:_lazy_init"),
        "cuda-init-no-device",
    ),
    (
        "JAX looks for other backends, then a shape",
        "INFO:2026-05-02 11:04:33,285:jax._src.xla_bridge:849: Unable to initialize backend 'rocm': module 'jaxlib."
        "xla_extension' has no attribute 'GpuAllocatorConfig'\n"
        "INFO:2026-05-02 11:04:33,285:jax._src.xla_bridge:849: Unable to initialize backend 'tpu': INTERNAL: Failed to "
        "open libtpu.so: libtpu.so: cannot open shared object file: No such file or directory\n"
        + raised(
            "TypeError: add got incompatible shapes for broadcasting: (128, 64), (64, 128).",
            "jax/_src/numpy/ufunc_api.py:__call__",
        ),
        INNOCENT,
        "program-bug",
        "INFO:2026-05-02 11:04:33,285:jax._src.xla_bridge:849: Unable to initialize backend 'tpu': INTERNAL: Failed to "
        "open libtpu.so: libtpu.so: cannot open shared object file: No such file or directory\n"
        + raised(
            "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 "
            "bytes.",
            "jax/_src/interpreters/pxla.py:__call__",
        ),
        "out-of-memory",
    ),
    (
        "TensorFlow registers twice, then a name",
        "2026-05-02 11:04:31.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register "
        "cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered\n"
        "2026-05-02 11:04:31.4: E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] failed call to "
        "cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is "
        "detected\n"
        "Epoch 1/3\n 94/100 ━━━━━━━━━━ 1s 4ms/step - accuracy: 0.31\n"
        + raised("ValueError: No gradients provided for any variable.", "keras/src/optimizers/base_optimizer.py:apply"),
        INNOCENT,
        "program-bug",
        "2026-05-02 11:04:31.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register "
        "cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered\n"
        "Epoch 1/3\n"
        + raised(
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n\n"
            "OOM when allocating tensor with shape[8192,65536] and type float on /job:localhost/replica:0/task:0/"
            "device:GPU:0 by allocator GPU_0_bfc",
            "keras/src/utils/traceback_utils.py:error_handler",
        ),
        "out-of-memory",
    ),
    (
        "Ray's worker raises",
        "2026-05-02 11:04:36,1\tINFO worker.py:2038 -- Started a local Ray instance.\n"
        "(prepare pid=221) GPU 0: no CUDA-capable device is detected, using numpy\n"
        + raised(
            "ray.exceptions.RayTaskError(ZeroDivisionError): ray::prepare() (pid=221, ip=10.0.0.1)\n"
            '  File "/work/src/train.py", line 12, in prepare\n    return total / len(rows)\n'
            "ZeroDivisionError: division by zero",
            "ray/_private/worker.py:get",
        )
        + "(prepare pid=221) GPU 0: no CUDA-capable device is detected, using numpy\n",
        INNOCENT,
        "program-bug|corrupt-data",
        "2026-05-02 11:04:36,1\tINFO worker.py:2038 -- Started a local Ray instance.\n"
        + raised(
            "ray.exceptions.RayTaskError(RuntimeError): ray::prepare() (pid=221, ip=10.0.0.1)\n"
            '  File "/work/src/train.py", line 12, in prepare\n    return total.cuda()\n'
            f"{NO_GPU}",
            "ray/_private/worker.py:get",
        ),
        "cuda-init-no-device",
    ),
    (
        "one rank of four has a wrong file",
        "".join(f"[rank{n % 4}]: step {n} loss 0.{90 - n}\n" for n in range(40))
        + "".join(
            f"[rank2]: {line}\n"
            for line in raised(
                "FileNotFoundError: [Errno 2] No such file or directory: '/data/cuda/shard-17.tar'"
            ).splitlines()
        )
        + "[rank1]:[W502 11:04:31.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not "
        "called "
        "before program exit, which can leak resources.\n" + TORCHRUN_END,
        INNOCENT,
        "launch-config|program-bug|corrupt-data",
        "".join(f"[rank{n % 4}]: step {n} loss 0.{90 - n}\n" for n in range(40))
        + "".join(f"[rank2]: {line}\n" for line in raised(f"torch.OutOfMemoryError: {OOM}").splitlines())
        + "[rank1]:[W502 11:04:31.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not "
        "called "
        "before program exit, which can leak resources.\n" + TORCHRUN_END,
        "out-of-memory",
    ),
    (
        "an assertion of the program's own about GPUs",
        "launching on 8 GPUs\n" + raised("AssertionError: global batch 100 is not divisible by 8 GPUs"),
        INNOCENT,
        "program-bug|launch-config",
        "launching on 8 GPUs\n"
        + raised("RuntimeError: CUDA error: invalid device ordinal", "torch/cuda/__init__.py:set_device"),
        "invalid-device-ordinal",
    ),
    (
        "vLLM refuses an argument",
        "INFO 05-02 11:04:31 [__init__.py:241] Automatically detected platform cuda.\n"
        "WARNING 05-02 11:04:31 [cuda.py:103] Detected different devices in the system. Please make sure to set "
        "`CUDA_DEVICE_ORDER=PCI_BUS_ID` to avoid unexpected behavior.\n"
        + raised(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, User-"
            "specified max_model_len (262144) is greater than the derived max_model_len (max_position_embeddings="
            "32768).",
            "vllm/engine/arg_utils.py:create_model_config",
        ),
        INNOCENT,
        "program-bug|launch-config",
        "INFO 05-02 11:04:31 [__init__.py:241] Automatically detected platform cuda.\n"
        + "".join(
            f"{VLLM}{line}\n"
            for line in (
                "ERROR 05-02 11:05:31 [core.py:708] EngineCore failed to start.\n"
                + raised(
                    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
                    "when "
                    "initializing the engine.",
                    "vllm/v1/core/kv_cache_utils.py:check_enough_kv_cache_memory",
                )
            ).splitlines()
        ),
        "out-of-memory",
    ),
]

TESTS: list[Pair] = [
    (
        "a comparison that fails among tests of the GPU",
        pytest("E       assert 3 == 4", "assert pool.free() == 4"),
        INNOCENT,
        "program-bug",
        pytest(f"E       RuntimeError: {NO_IMAGE}", "assert pool.free() == 4"),
        "no-kernel-image",
    ),
    (
        "tolerances",
        pytest(
            "E       AssertionError: Tensor-likes are not close!\nE       \nE       Mismatched elements: 3 / 4096 "
            "(0.1%)\nE       Greatest absolute difference: 0.004 at index (3, 9) (up to 0.001 allowed)",
            "torch.testing.assert_close(y, want)",
        ),
        INNOCENT,
        "program-bug",
        pytest(f"E       torch.AcceleratorError: {ILLEGAL}", "torch.testing.assert_close(y, want)"),
        "illegal-memory-access",
    ),
    (
        "an error that was to be raised and was not",
        pytest(
            "E       Failed: DID NOT RAISE <class 'torch.OutOfMemoryError'>",
            'with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):',
        ),
        INNOCENT,
        "program-bug",
        pytest(f"E       torch.OutOfMemoryError: {OOM}", "pool.fill()"),
        "out-of-memory",
    ),
    (
        "a text that does not match",
        pytest(
            "E       AssertionError: assert 'CUDA error: out of memory' in 'pool closed'", "assert message in str(e)"
        ),
        INNOCENT,
        "program-bug",
        pytest(f"E       {NO_DRIVER}", "pool.open()"),
        "cuda-init-no-device",
    ),
    (
        "a module that the tests lack",
        "============================= test session starts ==============================\ncollected 0 items / 1 "
        "error\n\n"
        "==================================== ERRORS ====================================\n"
        "____________________ ERROR collecting tests/test_cuda_graphs.py ____________________\n"
        "ImportError while importing test module '/work/tests/test_cuda_graphs.py'.\nTraceback:\n"
        "tests/test_cuda_graphs.py:3: in <module>\n    import hypothesis\nE   ModuleNotFoundError: No module named "
        "'hypothesis'\n=========================== short test summary info ============================\n"
        "ERROR tests/test_cuda_graphs.py\n!!!!!!!!!!!!!!!!!!!! Interrupted: 1 error during collection "
        "!!!!!!!!!!!!!!!!!!!!\n"
        "=============================== 1 error in 0.41s ===============================\n",
        INNOCENT,
        "container-config|program-bug|launch-config",
        "============================= test session starts ==============================\ncollected 0 items / 1 "
        "error\n\n"
        "==================================== ERRORS ====================================\n"
        "____________________ ERROR collecting tests/test_cuda_graphs.py ____________________\n"
        "ImportError while importing test module '/work/tests/test_cuda_graphs.py'.\nTraceback:\n"
        f"tests/test_cuda_graphs.py:3: in <module>\n    import fused._C\nE   {CUDART}\n"
        "=========================== short test summary info ============================\n"
        "ERROR tests/test_cuda_graphs.py\n"
        "=============================== 1 error in 0.41s ===============================\n",
        "missing-shared-library",
    ),
    (
        "unittest",
        "test_oom_is_told (tests.test_gpu.T.test_oom_is_told) ... ok\ntest_sum (tests.test_gpu.T.test_sum) ... FAIL\n\n"
        "======================================================================\n"
        "FAIL: test_sum (tests.test_gpu.T.test_sum)\n"
        "----------------------------------------------------------------------\n"
        'Traceback (most recent call last):\n  File "/work/tests/test_gpu.py", line 31, in test_sum\n'
        "    self.assertEqual(total, 12)\nAssertionError: 11 != 12\n\n"
        "----------------------------------------------------------------------\nRan 2 tests in 0.311s\n\n"
        "FAILED (failures=1)\n",
        INNOCENT,
        "program-bug",
        "test_oom_is_told (tests.test_gpu.T.test_oom_is_told) ... ok\ntest_sum (tests.test_gpu.T.test_sum) ... "
        "ERROR\n\n"
        "======================================================================\n"
        "ERROR: test_sum (tests.test_gpu.T.test_sum)\n"
        "----------------------------------------------------------------------\n"
        'Traceback (most recent call last):\n  File "/work/tests/test_gpu.py", line 31, in test_sum\n'
        f"    total = x.cuda().sum()\nRuntimeError: {NO_IMAGE}\n\n"
        "----------------------------------------------------------------------\nRan 2 tests in 0.311s\n\n"
        "FAILED (errors=1)\n",
        "no-kernel-image",
    ),
    (
        "gtest",
        "[==========] Running 3 tests from 1 test suite.\n[ RUN      ] Arena.ReportsCudaErrorOutOfMemory\n"
        "[       OK ] Arena.ReportsCudaErrorOutOfMemory (3 ms)\n[ RUN      ] Arena.Counts\n"
        "/work/test/arena_test.cc:41: Failure\nExpected equality of these values:\n  arena.blocks()\n    Which is: "
        "3\n  4\n"
        "[  FAILED  ] Arena.Counts (0 ms)\n[==========] 3 tests from 1 test suite ran. (4 ms total)\n"
        "[  PASSED  ] 2 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Arena.Counts\n",
        INNOCENT,
        "program-bug",
        "[==========] Running 3 tests from 1 test suite.\n[ RUN      ] Arena.Counts\n"
        f"/work/test/arena_test.cc:41: Failure\narena.sync() failed: {ILLEGAL} (700)\n"
        "[  FAILED  ] Arena.Counts (0 ms)\n[==========] 3 tests from 1 test suite ran. (4 ms total)\n"
        "[  PASSED  ] 2 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Arena.Counts\n",
        "illegal-memory-access",
    ),
    (
        "ctest",
        "Test project /work/build\n    Start 1: cuda_error_names\n1/2 Test #1: cuda_error_names .................   "
        "Passed"
        "    0.02 sec\n    Start 2: parser\n2/2 Test #2: parser ...........................***Failed    0.01 sec\n"
        "parser: expected ';' at 3:14\n\n50% tests passed, 1 tests failed out of 2\n\nThe following tests FAILED:\n"
        "\t  2 - parser (Failed)\nErrors while running CTest\n",
        INNOCENT,
        "program-bug",
        "Test project /work/build\n    Start 1: saxpy\n1/2 Test #1: saxpy ............................***Failed    "
        "0.31 sec"
        f"\n{NO_IMAGE} at saxpy.cu:31\n\n50% tests passed, 1 tests failed out of 2\n\nThe following tests FAILED:\n"
        "\t  1 - saxpy (Failed)\nErrors while running CTest\n",
        "no-kernel-image",
    ),
]

BUILDS: list[Pair] = [
    (
        "a missing header",
        build(
            "FAILED: csrc/bind.o",
            "csrc/bind.cpp:3:10: fatal error: fmt/core.h: No such file or directory",
            "compilation terminated.",
            *NINJA,
        ),
        INNOCENT,
        "container-config|program-bug",
        build("FAILED: csrc/k6.o", "nvcc fatal   : Unsupported gpu architecture 'compute_120'", *NINJA),
        "nvcc-torch-cuda-mismatch",
    ),
    (
        "a mistake in a kernel",
        build(
            "FAILED: csrc/k6.o",
            'csrc/k6.cu(31): error: identifier "blokDim" is undefined',
            "",
            '1 error detected in the compilation of "csrc/k6.cu".',
            *NINJA,
        ),
        INNOCENT,
        "program-bug",
        build(
            "FAILED: csrc/k6.o",
            "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU "
            "version! gcc versions later than 13 are not supported!",
            *NINJA,
        ),
        "unsupported-gnu-version",
    ),
    (
        "warnings of ptxas before the linker",
        build(
            "ptxas warning : Registers are spilled to local memory in function 'k3', 48 bytes spill stores",
            "/usr/bin/ld: cannot find -lopenblas: No such file or directory",
            "collect2: error: ld returned 1 exit status",
            *NINJA,
        ),
        INNOCENT,
        "container-config|program-bug",
        build("ptxas fatal   : Unsupported .version 9.0; current version is '8.4'", *NINJA),
        "*",
    ),
    (
        "an undefined reference of the program's",
        build(
            "/usr/bin/ld: csrc/bind.o: in function `pybind11_init__C':",
            "bind.cpp:(.text+0x1f2): undefined reference to `launch_fused(float*, int)'",
            "collect2: error: ld returned 1 exit status",
            *NINJA,
        ),
        INNOCENT,
        "program-bug",
        build(
            "/usr/bin/ld: cannot find -lcudart: No such file or directory",
            "collect2: error: ld returned 1 exit status",
            *NINJA,
        ),
        "*",
    ),
    (
        "metadata of a package",
        "Collecting flash-attn==2.8.3\n  Downloading flash_attn-2.8.3.tar.gz (8.4 MB)\n  Preparing metadata "
        "(pyproject.toml): started\n  Preparing metadata (pyproject.toml): finished with status 'error'\n"
        "  error: subprocess-exited-with-error\n\n  \u00d7 Preparing metadata (pyproject.toml) did not run "
        "successfully.\n"
        "  │ exit code: 1\n  ╰─> [6 lines of output]\n      Traceback (most recent call last):\n"
        "        File \"<string>\", line 22, in <module>\n      ModuleNotFoundError: No module named 'torch'\n"
        "      [end of output]\n\n  note: This error originates from a subprocess, and is likely not a problem with "
        "pip.\n"
        "error: metadata-generation-failed\n",
        INNOCENT,
        "container-config|version-mismatch|program-bug|launch-config",
        "Collecting flash-attn==2.8.3\n  Preparing metadata (setup.py): started\n  Preparing metadata (setup.py): "
        "finished"
        " with status 'error'\n  error: subprocess-exited-with-error\n\n  \u00d7 python setup.py egg_info did not run "
        "successfully.\n  │ exit code: 1\n  ╰─> [8 lines of output]\n      Traceback (most recent call last):\n"
        '        File "<string>", line 34, in <module>\n      OSError: CUDA_HOME environment variable is not set. '
        "Please "
        "set it to your CUDA install root.\n      [end of output]\n\nerror: metadata-generation-failed\n",
        "*",
    ),
    (
        "rust within pip",
        "Building wheels for collected packages: tokenizers\n  Building wheel for tokenizers (pyproject.toml): "
        "finished "
        "with status 'error'\n  error: subprocess-exited-with-error\n      error[E0308]: mismatched types\n"
        "        --> src/gpu.rs:31:9\n      error: could not compile `cuda-probe` (lib) due to 1 previous error\n"
        "  ERROR: Failed building wheel for tokenizers\nERROR: Failed to build installable wheels for some "
        "pyproject.toml "
        "based projects (tokenizers)\n",
        INNOCENT,
        "program-bug|version-mismatch|container-config",
        "Building wheels for collected packages: fused\n  Building wheel for fused (setup.py): finished with status "
        "'error'\n  error: subprocess-exited-with-error\n      RuntimeError:\n      The detected CUDA version (12.4) "
        "mismatches the version that was used to compile\n      PyTorch (13.0). Please make sure to use the same CUDA "
        "versions.\n  ERROR: Failed building wheel for fused\n",
        "*",
    ),
    (
        "memory of the compiler",
        build(
            "FAILED: csrc/k6.o",
            "c++: fatal error: Killed signal terminated program cc1plus",
            "compilation terminated.",
            *NINJA,
        ),
        INNOCENT,
        "host-resource",
        build("FAILED: csrc/k6.o", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", *NINJA),
        "nvcc-torch-cuda-mismatch",
    ),
    (
        "cmake without a generator",
        "-- The CUDA compiler identification is NVIDIA 12.8.93\n-- Detecting CUDA compile features - done\n"
        "CMake Error at cmake/deps.cmake:12 (find_package):\n  Could not find a package configuration file provided by "
        '"Eigen3" (requested\n  version 3.4) with any of the following names:\n\n-- Configuring incomplete, errors '
        "occurred!\n",
        INNOCENT,
        "container-config|program-bug",
        "-- The CXX compiler identification is GNU 14.2.0\nCMake Error at CMakeLists.txt:4 (enable_language):\n  No "
        "CMAKE_CUDA_COMPILER could be found.\n\n-- Configuring incomplete, errors occurred!\n",
        "*",
    ),
]

CONFIGS: list[Pair] = [
    (
        "hydra",
        "Could not override 'trainer.gpus'.\nTo append to your config use +trainer.gpus=8\nKey 'gpus' is not in "
        "struct\n"
        "    full_key: trainer.gpus\n    object_type=dict\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a "
        "complete "
        "stack trace.\n",
        INNOCENT,
        "launch-config|program-bug",
        "Error executing job with overrides: ['trainer.devices=8']\n"
        + raised(
            "lightning_fabric.utilities.exceptions.MisconfigurationException: You requested gpu: [0, 1, 2, 3, 4, 5, "
            "6, 7]\n"
            " But your machine only has: [0, 1]",
            "lightning_fabric/utilities/device_parser.py:_sanitize_gpu_ids",
        ),
        "*",
    ),
    (
        "argparse",
        "usage: train.py [-h] [--cuda-device N] [--nccl-timeout S]\ntrain.py: error: argument --cuda-device: invalid "
        "int "
        "value: 'all'\n",
        INNOCENT,
        "launch-config",
        "args: Namespace(cuda_device=4)\n" + raised("RuntimeError: CUDA error: invalid device ordinal"),
        "invalid-device-ordinal",
    ),
    (
        "yaml",
        raised(
            "yaml.scanner.ScannerError: while scanning for the next token\nfound character '\\t' that cannot start any "
            'token\n  in "configs/h200.yaml", line 14, column 1',
            "yaml/scanner.py:fetch_more_tokens",
        ),
        INNOCENT,
        "launch-config|program-bug|corrupt-data",
        "config: configs/h200.yaml\n" + raised(f"RuntimeError: {NO_IMAGE}"),
        "no-kernel-image",
    ),
    (
        "pydantic",
        raised(
            "pydantic_core._pydantic_core.ValidationError: 2 validation errors for Settings\ngpu.count\n  Input should "
            "be a valid integer, unable to parse string as an integer [type=int_parsing, input_value='all', "
            "input_type=str]\ncuda.allow_tf32\n  Input should be a valid boolean, unable to interpret input "
            "[type=bool_parsing, input_value='maybe', input_type=str]",
            "pydantic/main.py:__init__",
        ),
        INNOCENT,
        "program-bug|launch-config",
        "settings: gpu.count=8\n" + raised(NO_GPU, "torch/cuda/__init__.py:_lazy_init"),
        "cuda-init-no-device",
    ),
    (
        "deepspeed's JSON",
        "[2026-05-02 11:04:31,120] [INFO] [real_accelerator.py:260:get_accelerator] Setting ds_accelerator to cuda "
        "(auto "
        "detect)\n"
        + raised(
            "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 14 column 5 (char 301)",
            "deepspeed/runtime/config.py:__init__",
        ),
        INNOCENT,
        "program-bug|launch-config|corrupt-data",
        "[2026-05-02 11:04:31,120] [INFO] [real_accelerator.py:260:get_accelerator] Setting ds_accelerator to cuda "
        "(auto "
        "detect)\n"
        + raised(
            "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed "
            "CUDA version 12.4 does not match the version torch was compiled with 13.0, unable to compile "
            "cuda/cpp extensions without a matching cuda version.",
            "deepspeed/ops/op_builder/builder.py:assert_no_cuda_mismatch",
        ),
        "*",
    ),
    (
        "kubectl",
        "error: error parsing gpu-job.yaml: error converting YAML to JSON: yaml: line 31: mapping values are not "
        "allowed "
        "in this context\n",
        INNOCENT,
        "launch-config",
        "Warning  Failed  3s  kubelet  Error: failed to create containerd task: failed to create shim task: OCI "
        "runtime "
        "create failed: runc create failed: unable to start container process: error during container init: error "
        "running "
        "prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: "
        "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or "
        "directory\n",
        "*",
    ),
    (
        "docker's words",
        "docker: invalid argument \"1.5x\" for \"--shm-size\" flag: invalid size: '1.5x'\n\nRun 'docker run --help' "
        "for more "
        "information\n",
        INNOCENT,
        "launch-config",
        '[11:04:21] starting (try 3 of 3)\ndocker: Error response from daemon: could not select device driver "" with '
        "capabilities: [[gpu]]\n\nRun 'docker run --help' for more information\n[11:04:21] exit code 125\n",
        "docker-no-gpu-driver",
    ),
    (
        "a flag that XLA does not know",
        "F0502 11:04:46.731583    2156 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_gpu_graph_lvl=3\n",
        INNOCENT,
        "launch-config|version-mismatch",
        "F0502 11:04:46.731583    2156 gpu_executor.cc:71] CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was "
        "encountered\n",
        "illegal-memory-access",
    ),
    (
        "srun's options",
        "srun: error: Invalid generic resource (gres) specification\n",
        INNOCENT,
        "launch-config",
        "srun: job 4711 queued and waiting for resources\nsrun: job 4711 has been allocated resources\n"
        + "".join(f"3: {line}\n" for line in raised(NO_GPU).splitlines())
        + "srun: error: node7: task 3: Exited with exit code 1\n",
        "cuda-init-no-device",
    ),
    (
        "a stage that is not there",
        "Step 6/7 : COPY --from=0 /src/gpu.whl /\n ---> 434fd19c7c1f\nStep 7/7 : COPY --from=cuda/h:? /src/dist "
        "/wheels\n"
        "invalid from flag value cuda/h:?: invalid reference format\n",
        INNOCENT,
        "launch-config|program-bug",
        "Step 7/7 : RUN python -c 'import torch; torch.cuda.init()'\n ---> Running in 434fd19c7c1f\n"
        + raised(NO_DRIVER),
        "cuda-init-no-device",
    ),
    (
        "a stream that is asked for by another name",
        "overlapping copies and kernels\n"
        + raised("TypeError: stream() missing 1 required positional argument: 'stream'"),
        INNOCENT,
        "program-bug|version-mismatch",
        "overlapping copies and kernels\n" + raised("RuntimeError: torch.cuda.Stream requires CUDA support"),
        "torch-not-compiled-with-cuda",
    ),
]

AWAY: list[Pair] = [
    (
        "the hub answers 401",
        "loading google/gemma-3-27b on cuda:0\n"
        + raised(
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-68)\n\nCannot access gated "
            "repo "
            "for url https://hub.example.org/google/gemma-3-27b/resolve/main/config.json.",
            "huggingface_hub/utils/_http.py:hf_raise_for_status",
        ),
        INNOCENT,
        "infra|launch-config|program-bug|container-config",
        DOWNLOADS + raised(f"torch.OutOfMemoryError: {OOM}", "transformers/modeling_utils.py:from_pretrained"),
        "out-of-memory",
    ),
    (
        "names do not resolve",
        DOWNLOADS
        + raised(
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='cdn.example.org', port=443): Max "
            'retries exceeded with url: /cuda/model.bin (Caused by NameResolutionError("Failed to resolve '
            "'cdn.example.org' ([Errno -2] Name or service not known)\"))",
            "requests/adapters.py:send",
        ),
        INNOCENT,
        "infra",
        DOWNLOADS + raised(f"RuntimeError: {NO_IMAGE}"),
        "no-kernel-image",
    ),
    (
        "the disk is full while a checkpoint is written",
        STEPS
        + raised(
            "RuntimeError: [enforce fail at inline_container.cc:860] . PytorchStreamWriter failed writing file "
            "data/311: file write failed",
            "torch/serialization.py:_save",
        ),
        INNOCENT,
        "host-resource",
        STEPS
        + "saving to /out/step40.pt\n"
        + raised(f"torch.AcceleratorError: {ILLEGAL}", "torch/serialization.py:_save"),
        "illegal-memory-access",
    ),
    (
        "rsync",
        "sending incremental file list\ncuda/libcudart.so.12\nrsync: [receiver] write failed on "
        '"/mnt/cuda/libcublas.so.12":'
        " No space left on device (28)\nrsync error: error in file IO (code 11) at receiver.c(380) [receiver=3.2.7]\n",
        INNOCENT,
        "host-resource",
        "sending incremental file list\ncuda/libcudart.so.12\nsent 31 bytes\n" + raised(CUDART.replace("12", "13")),
        "missing-shared-library",
    ),
    (
        "a stale mount",
        LOGGED + raised("OSError: [Errno 116] Stale file handle: '/nfs/data/gpu-shards/0031.bin'"),
        INNOCENT,
        "infra|host-resource",
        LOGGED + raised(f"torch.OutOfMemoryError: {OOM}"),
        "out-of-memory",
    ),
    (
        "git",
        "Cloning into 'cutlass'...\nfatal: unable to access 'https://git.example.org/nvidia/cutlass.git/': Could not "
        "resolve "
        "host: git.example.org\n",
        INNOCENT,
        "infra",
        "Cloning into 'cutlass'...\nReceiving objects: 100% (31/31), done.\n"
        + build("nvcc fatal   : Unsupported gpu architecture 'compute_110'"),
        "nvcc-torch-cuda-mismatch",
    ),
    (
        "apt",
        "Get:1 https://deb.example.org/debian bookworm InRelease [151 kB]\nErr:2 "
        "https://cuda.example.org/debian12/x86_64  "
        "cuda-toolkit-12-8\n  Could not connect to cuda.example.org:443 (10.0.0.9). - connect (111: Connection "
        "refused)\n"
        "E: Failed to fetch https://cuda.example.org/debian12/x86_64/cuda-toolkit-12-8.deb  Could not connect\n"
        "E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?\n",
        INNOCENT,
        "infra",
        "Get:1 https://deb.example.org/debian bookworm InRelease [151 kB]\nSetting up cuda-toolkit-12-8 ...\nRunning "
        "self test\n" + raised(NO_DRIVER),
        "cuda-init-no-device",
    ),
    (
        "the store of checkpoints is away while ranks wait",
        "".join(f"[rank{n % 2}]: step {n} loss 0.{90 - n}\n" for n in range(20))
        + "".join(
            f"[rank0]: {line}\n"
            for line in raised(
                "botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "
                '"https://s3.example.org/ckpt/40"',
                "botocore/httpsession.py:send",
            ).splitlines()
        )
        + "[rank1]:[E502 11:14:31.1 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds "
        "before timing out.\n",
        INNOCENT,
        "infra",
        "".join(f"[rank{n % 2}]: step {n} loss 0.{90 - n}\n" for n in range(20))
        + "".join(f"[rank0]: {line}\n" for line in raised(f"torch.AcceleratorError: {ILLEGAL}").splitlines())
        + "[rank1]:[E502 11:14:31.1 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds "
        "before timing out.\n",
        "illegal-memory-access",
    ),
    (
        "a database is locked",
        LOGGED
        + raised("sqlite3.OperationalError: database is locked", "optuna/storages/_rdb/storage.py:create_new_trial"),
        INNOCENT,
        "program-bug|infra|host-resource",
        LOGGED + raised(ASSERT),
        "device-side-assert",
    ),
]

EXITS: list[Pair] = [
    (
        "a script that finds no file",
        "+ nvidia-smi -L\nGPU 0: NVIDIA H200 (UUID: GPU-1f)\n+ source env.sh\n./run.sh: line 4: env.sh: No such file "
        "or "
        "directory\n",
        INNOCENT,
        "launch-config",
        "+ nvidia-smi -L\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
        "that the "
        "latest NVIDIA driver is installed and running.\n",
        "*",
    ),
    (
        "a step of make",
        "python -m checks.gpu_docs\n14 pages, 1 without a title: cuda-error-700.md\nmake: *** [Makefile:31: docs] "
        "Error 1\n",
        INNOCENT + "|" + OPEN,
        "program-bug|unknown|launch-config",
        f"./bench --n 4096\nbench.cu:31: {ILLEGAL}\nmake: *** [Makefile:31: bench] Error 1\n",
        "illegal-memory-access",
    ),
    (
        "Slurm's limit of time",
        LOGGED + "slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2026-05-02T12:04:31 DUE TO TIME LIMIT ***\n",
        INNOCENT,
        "launch-config|infra|host-resource",
        LOGGED + raised(f"torch.OutOfMemoryError: {OOM}") + "srun: error: node7: task 0: Exited with exit code 1\n",
        "out-of-memory",
    ),
    (
        "the kernel kills it",
        STEPS + "./run.sh: line 9: 31311 Killed                  python train.py --device cuda\n",
        INNOCENT,
        "host-resource",
        STEPS
        + f"terminate called after throwing an instance of 'c10::AcceleratorError'\n  what():  {ILLEGAL}\n./run.sh: "
        "line 9: 31311 Aborted                 (core dumped) python train.py --device cuda\n",
        "illegal-memory-access",
    ),
    (
        "ruff",
        "src/cuda/pool.py:14:5: F841 Local variable `cuda_error` is assigned to but never used\nFound 1 error.\nNo "
        "fixes "
        "available (1 hidden fix can be enabled with the `--unsafe-fixes` option).\n",
        INNOCENT,
        "program-bug",
        f"All checks passed!\n+ python -m pool.selftest\n{raised('RuntimeError: ' + NO_IMAGE)}",
        "no-kernel-image",
    ),
    (
        "terraform",
        "google_container_node_pool.gpu: Creating...\n╷\n│ Error: error creating NodePool: googleapi: Error 403: "
        "Insufficient "
        "regional quota to satisfy request: resource \"NVIDIA_H100_GPUS\": request requires '8.0'\n╵\n",
        INNOCENT + "|" + OPEN,
        "infra|host-resource|unknown|launch-config",
        "google_container_node_pool.gpu: Creation complete after 3m1s\n" + raised(NO_DRIVER),
        "cuda-init-no-device",
    ),
]

HEALTHY: list[Pair] = [
    (
        "providers of ONNX Runtime",
        f"{SITE}/onnxruntime/capi/onnxruntime_inference_collection.py:197: UserWarning: Specified provider "
        f"'CUDAExecution"
        "Provider' is not in available provider names.Available providers: 'CPUExecutionProvider'\n  warnings.warn(\n"
        "providers in use: ['CPUExecutionProvider']\nanswered 40 requests, 0 failures\n",
        OPEN,
        "unknown",
        f"{SITE}/onnxruntime/capi/onnxruntime_inference_collection.py:197: UserWarning: Specified provider "
        f"'CUDAExecution"
        "Provider' is not in available provider names.Available providers: 'CPUExecutionProvider'\n  warnings.warn(\n"
        + raised("RuntimeError: the model needs CUDAExecutionProvider, and it is not available"),
        "torch-not-compiled-with-cuda",
    ),
    (
        "trials that did not fit",
        "".join(
            f"[W 2026-05-02 11:04:{n},1] Trial {n} failed with parameters: {{'width': {n}}} because of the following "
            f"error: "
            f"OutOfMemoryError('{OOM[:60]}').\n"
            + raised(f"torch.OutOfMemoryError: {OOM}", "optuna/study/_optimize.py:_run")
            + f"[W 2026-05-02 11:04:{n},2] Trial {n} failed with value None.\n"
            f"[I 2026-05-02 11:04:{n},3] Trial {n + 1} finished with value: 0.{n} and parameters: {{'width': 3}}. "
            f"Best is "
            "trial 11 with value: 0.10.\n"
            for n in range(10, 30, 2)
        )
        + "best width: 3\n",
        OPEN,
        "unknown",
        "[I 2026-05-02 11:04:10,3] Trial 10 finished with value: 0.1 and parameters: {'width': 3}. Best is trial 10 "
        "with "
        "value: 0.10.\n[W 2026-05-02 11:04:12,1] Trial 11 failed with parameters: {'width': 8} because of the "
        "following "
        f"error: OutOfMemoryError('{OOM[:60]}').\n"
        + raised(f"torch.OutOfMemoryError: {OOM}", "optuna/study/_optimize.py:_run"),
        "out-of-memory",
    ),
    (
        "a request that failed among others",
        SERVED
        + "ERROR:    Exception in ASGI application\n"
        + raised(f"torch.OutOfMemoryError: {OOM}", "starlette/routing.py:app")
        + SERVED,
        OPEN,
        "unknown",
        SERVED
        + "ERROR:    Exception in ASGI application\n"
        + raised(f"torch.AcceleratorError: {ILLEGAL}", "starlette/routing.py:app")
        + SERVED.replace("200 OK", "500 Internal Server Error"),
        "illegal-memory-access",
    ),
    (
        "backends that a benchmark tries",
        "".join(
            f"backend {name} is unavailable:\n{raised(error)}"
            for name, error in (("torch", CPU_BUILD), ("jax", CUDART), ("cupy", NO_GPU))
        )
        + "numpy     47.0 ms\nnumba     12.1 ms\nbenchmark finished, 2 of 5 backends\n",
        OPEN,
        "unknown",
        "backend torch:\n" + raised(CPU_BUILD),
        "torch-not-compiled-with-cuda",
    ),
    (
        "a finished run with warnings of NCCL",
        "[W502 11:04:31.1 socket.cpp:764] [c10d] The client socket cannot be initialized to connect to [node7]:29500 "
        "(errno: "
        "97 - Address family not supported by protocol).\n"
        "node7:141:190 [0] NCCL WARN Failed to open libnccl-net-ofi.so: cannot open shared object file\n"
        + LOGGED
        + "2026-05-02 11:05:31,120 INFO trainer: training finished\n[W502 11:05:32.1 ProcessGroupNCCL.cpp:1538] "
        "Warning: "
        "WARNING: destroy_process_group() was not called before program exit, which can leak resources.\n",
        OPEN,
        "unknown",
        "[W502 11:04:31.1 socket.cpp:764] [c10d] The client socket cannot be initialized to connect to [node7]:29500 "
        "(errno: "
        "97 - Address family not supported by protocol).\n" + LOGGED + raised(f"torch.AcceleratorError: {ILLEGAL}"),
        "illegal-memory-access",
    ),
    (
        "folds that a search scores as nan",
        "[CV 1/3] END alpha=1;, score=0.81 total time=   0.0s\n[CV 2/3] END alpha=0;, score=nan total time=   0.0s\n"
        f"{SITE}/sklearn/model_selection/_validation.py:493: FitFailedWarning: \n3 fits failed out of a total of "
        f"9.\nThe score "
        "on these train-test partitions for these parameters will be set to nan.\n\nBelow are more details about the "
        "failures:\n--------------------------------------------------------------------------------\n3 fits failed "
        "with the "
        "following error:\n"
        + raised("ValueError: alpha must be positive", "sklearn/base.py:wrapper")
        + "\n  warnings.warn(some_fits_failed_message, FitFailedWarning)\nbest alpha: 1\n",
        OPEN,
        "unknown",
        "[CV 1/3] END alpha=1;, score=0.81 total time=   0.0s\n"
        + raised(
            "xgboost.core.XGBoostError: [11:04:31] "
            "/workspace/src/common/device_helpers.cu:431: Memory allocation error on worker 0: std::bad_alloc: "
            "cudaErrorMemoryAllocation: out of memory",
            "xgboost/core.py:_check_call",
        ),
        "out-of-memory",
    ),
    (
        "a kernel that does not compile here",
        raised(
            'cupy.cuda.compiler.CompileException: /tmp/t/9.cubin.cu(1): error: namespace "tma" has no member "load"',
            "cupy/cuda/compiler.py:compile",
        )
        + "   saxpy: 2.2 ms\n     tma: skipped\n    relu: 2.1 ms\nbenchmark done\n",
        OPEN,
        "unknown",
        "   saxpy: 2.2 ms\n"
        + raised(
            "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel "
            "image is available for execution on the device"
        ),
        "no-kernel-image",
    ),
    (
        "a downloader that tries again",
        "WARNING:urllib3.connectionpool:Retrying (Retry(total=4)) after connection broken by "
        "'NewConnectionError(\"Failed to "
        "establish a new connection: [Errno 111] Connection refused\")': /simple/torch-cuda/\n"
        * 3
        + LOGGED
        + "2026-05-02 11:05:31,120 INFO trainer: saved /out/model.pt\n",
        OPEN,
        "unknown",
        "WARNING:urllib3.connectionpool:Retrying (Retry(total=4)) after connection broken by "
        "'NewConnectionError(\"Failed to "
        "establish a new connection: [Errno 111] Connection refused\")': /simple/torch-cuda/\n" + raised(NO_GPU),
        "cuda-init-no-device",
    ),
    (
        "messages for the user in a help text",
        "usage: envprobe [-h] [--explain CODE]\n\nexit codes:\n  2   CUDA error: out of memory\n  3   no "
        "CUDA-capable device is "
        "detected\n  4   CUDA driver version is insufficient for CUDA runtime version\n\noptions:\n  -h, --help  "
        "show this\n",
        OPEN,
        "unknown",
        "envprobe 1.2\nCUDA driver version is insufficient for CUDA runtime version\n",
        "cuda-init-no-device",
    ),
    (
        "a report on other jobs",
        "job    state      last line\n4711   FAILED     "
        + ILLEGAL
        + "\n4712   COMPLETED  done\n4713   FAILED     Xid 79: GPU has"
        " fallen off the bus\n3 jobs, report written to /out/jobs.html\n",
        OPEN,
        "unknown",
        "job    state      last line\n4712   COMPLETED  done\n" + raised(f"torch.AcceleratorError: {ILLEGAL}"),
        "illegal-memory-access",
    ),
    (
        "a micro-batch that is halved",
        LOGGED
        + f"2026-05-02 11:05:01,1 WARNING trainer: {OOM} Halving the micro-batch to 4.\n"
        + LOGGED.replace("11:04", "11:06"),
        OPEN,
        "unknown",
        LOGGED
        + f"2026-05-02 11:05:01,1 WARNING trainer: {OOM} Halving the micro-batch to 0.\n"
        + raised(f"torch.OutOfMemoryError: {OOM}"),
        "out-of-memory",
    ),
    (
        "an archive of errors is counted",
        f"counting errors in 31 archives\n  612  {ILLEGAL}\n   31  {NO_IMAGE}\n    4  NCCL error: unhandled system "
        f"error\n"
        "total 647, written to errors.csv\n",
        OPEN,
        "unknown",
        f"counting errors on the GPU\n{raised('torch.AcceleratorError: ' + ILLEGAL)}",
        "illegal-memory-access",
    ),
    (
        "torch.compile falls back",
        "W0502 11:04:31.731583 2156 torch/_inductor/utils.py:1349] [0/0] Not enough SMs to use max_autotune_gemm mode\n"
        "E0502 11:04:32.731583 2156 torch/_inductor/select_algorithm.py:2115] [0/0] Runtime error during autotuning: \n"
        "E0502 11:04:32.731583 2156 torch/_inductor/select_algorithm.py:2115] [0/0] No valid triton configs. "
        "OutOfResources: "
        "out of resource: shared memory, Required: 262144, Hardware limit: 232448. Reducing block sizes or "
        "`num_stages` may "
        "help.. \nE0502 11:04:32.731583 2156 torch/_inductor/select_algorithm.py:2115] [0/0] Ignoring this choice.\n"
        + STEPS
        + "done\n",
        OPEN,
        "unknown",
        STEPS
        + raised(
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: "
            "101376. Reducing block sizes or `num_stages` may help.",
            "triton/compiler/compiler.py:_init_handles",
        ),
        "*",
    ),
]

PAIRS = [*PYTHON, *TESTS, *BUILDS, *CONFIGS, *AWAY, *EXITS, *HEALTHY]


@gathered([(name, text, kind, cause) for name, text, kind, cause, _, _ in PAIRS])
def test_what_fails_by_itself_is_no_failure_of_the_gpu(name: str, text: str, kind: str, cause: str) -> None:
    answer = told(text)
    assert answer.category in kind.split("|"), (answer.category, answer.because)
    assert answer.cause in cause.split("|"), answer.because


@gathered([(name, text, kind) for name, _, _, _, text, kind in PAIRS])
def test_its_twin_is_one(name: str, text: str, kind: str) -> None:
    answer = told(text)
    if kind == "*":
        assert answer.category not in (INNOCENT, OPEN), answer.because
    else:
        assert answer.category == kind, answer.because
