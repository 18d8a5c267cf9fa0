"""When a log may be called a failure of the GPU: what ended the process counts, not the words of CUDA around it."""

from __future__ import annotations

import pytest
from gathered import gathered
from logs import told

INNOCENT, OPEN = "not-gpu-env", "insufficient-evidence"
RAISED = (
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in <module>\n    main()\n'
    '  File "/home/user/train.py", line 8, in main\n    step(x)\n'
)
TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
OOM = (
    "CUDA out of memory. Tried to allocate 96.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 70.00 GiB is "
    "free."
)
TRIED = "program-bug|gpu-memory-exhausted"
PASSED_ON = RAISED.replace("/home/user/train.py", "/usr/lib/multiprocessing/reduction.py")
REGISTERED = (
    "2026-11-28 10:00:01.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register "
    "cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered\n"
    "E0000 00:00:1764324001.1 100 cuda_dnn.cc:8579] Unable to register cuDNN factory: Attempting to register factory "
    "for plugin cuDNN when one has already been registered\n"
)
MISSED_ATTRIBUTE = (
    'Traceback (most recent call last):\n  File "{caller}", line 20, in {function}\n    print(model.gpu_cache)\n'
    f'  File "{TORCH}/nn/modules/module.py", line 1931, in __getattr__\n    raise AttributeError(\n'
    "AttributeError: 'Model' object has no attribute 'gpu_cache'\n"
)
ENDED = (
    "E1128 10:00:02.000000 140 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) "
    "local_rank: 1 (pid: 143) of binary: /usr/bin/python\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
)
PEER = (
    "[rank0]: "
    + RAISED.replace("\n", "\n[rank0]: ")
    + "RuntimeError: {where} Connection closed by peer [10.0.0.2]:4455\n"
)
GLOO, NCCL = "[../gloo/transport/tcp/pair.cc:534]", "NCCL communicator was aborted on rank 0: [c10d]"


def case(name: str, text: str, cause: str, category: str = INNOCENT) -> object:
    """A log with its cause and kind; each is one of those that stand between bars."""
    return pytest.param(text, category, cause, id=name)


# Tools and programs that fail by themselves, on things that are called after the GPU.
BY_THEMSELVES = [
    case("go", "# example.org/cudaprobe\n./main.go:9:2: undefined: nvml\n", "program-bug"),
    case("go unused", './main.go:4:2: "example.org/cuda" imported and not used\n', "program-bug"),
    case("go panics", "gpu exporter\npanic: runtime error: index out of range [3] with length 2\n", "program-bug"),
    case(
        "java",
        'INFO GpuScheduler - 8 gpus\nException in thread "main" java.lang.NullPointerException: Cannot invoke "s.f()"\n'
        "\tat org.example.GpuScheduler.main(GpuScheduler.java:12)\n",
        "program-bug",
    ),
    case("javac", "CudaBridge.java:9: error: cannot find symbol\n  symbol: variable Cuda\n1 error\n", "program-bug"),
    case("tsc", "src/gpu.ts(14,7): error TS2322: Type 'string' is not assignable.\n", "program-bug"),
    case(
        "ruby", "gpu.rb:3:in `fetch': key not found: \"cuda\" (KeyError)\n\tfrom gpu.rb:3:in `<main>'\n", "program-bug"
    ),
    case("r", 'Error in gpu.matrix(1:4) : could not find function "gpu.matrix"\nExecution halted\n', "program-bug"),
    case("julia", "ERROR: LoadError: UndefVarError: `CuArry` not defined\nStacktrace:\n", "program-bug"),
    case(
        "perl",
        "Can't locate GPU/Monitor.pm in @INC (you may need to install the GPU::Monitor module) at mon.pl line 2.\n",
        "container-config",
    ),
    case(
        "cmake's target",
        "-- Found CUDAToolkit: /usr/local/cuda/include\nCMake Error at src/CMakeLists.txt:14 (target_link_libraries):\n"
        '  Cannot specify link libraries for target "attn" which is not built by\n  this project.\n',
        "program-bug",
    ),
    case(
        "cmake's package",
        "CMake Error at CMakeLists.txt:5 (find_package):\n  Could not find a package configuration file provided by "
        '"GpuSolver" with\n  any of the following names:\n',
        "container-config",
    ),
    case("make", "make: *** No rule to make target 'csrc/attention.cu', needed by 'a.o'.  Stop.\n", "program-bug"),
    case("ninja", "ninja: error: 'attn.cu', needed by 'attn.o', missing and no known rule to make it\n", "program-bug"),
    case(
        "twice defined",
        "/usr/bin/ld: b.o: in function `device_count':\nb.c:(.text+0x0): multiple definition of `device_count'; a.o\n"
        "collect2: error: ld returned 1 exit status\n",
        "program-bug",
    ),
    case("duplicate symbol", "ld.lld: error: duplicate symbol: init_device()\n>>> defined at a.cpp:3\n", "program-bug"),
    case("hashes", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n", "corrupt-data"),
    case("checksums", "cuda.run: FAILED\nsha256sum: WARNING: 1 computed checksum did NOT match\n", "corrupt-data"),
    case("yaml", "error: yaml: line 7: did not find expected key\n", "launch-config"),
    case(
        "kubectl",
        'error: error validating "job.yaml": error validating data: ValidationError(Job.spec): unknown field "gpus"\n',
        "launch-config",
    ),
    case(
        "helm", "Error: INSTALLATION FAILED: template: gpu-operator/daemonset.yaml:14: nil pointer\n", "launch-config"
    ),
    case(
        "click",
        "Usage: train [OPTIONS]\n\nError: Invalid value for '--device': 'cuda9' is not one of\n",
        "launch-config",
    ),
    case("mypy", 'src/gpu.py:14: error: Argument 1 to "device" has type "None"  [arg-type]\n', "program-bug"),
    case("ruff", "F401 `torch.cuda` imported but unused\n --> src/gpu.py:1:8\nFound 1 error.\n", "program-bug"),
    case(
        "pre-commit", "ruff.....Failed\n- hook id: ruff\n- exit code: 1\n\nsrc/cuda_ops.py:3:1: E402 x\n", "program-bug"
    ),
    case("formatter", "would reformat cuda_ops.py\n\n1 file would be reformatted.\n", "program-bug"),
    case(
        "bazel",
        "ERROR: /home/user/gpu/BUILD:3:11: Compiling gpu/probe.cc failed: (Exit 1): gcc failed: error executing\n",
        "program-bug",
    ),
    case(
        "thrown in C++",
        "tokens for 8 gpus\nterminate called after throwing an instance of 'std::invalid_argument'\n  what():  stoi\n"
        "Aborted (core dumped)\n",
        "program-bug",
    ),
    case(
        "thrown in C++, with words",
        "8 gpus\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  line 3 of plan.txt\n"
        "Aborted (core dumped)\n",
        "program-bug",
    ),
    case("libc++", "libc++abi: terminating due to uncaught exception of type std::out_of_range: v\n", "program-bug"),
    case(
        "assert in C",
        "plan: plan.c:81: pick_gpu: Assertion `count > 0' failed.\nAborted (core dumped)\n",
        "program-bug",
    ),
    case("sanitizer", "==47==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x6020\n", "program-bug"),
    case("nginx", "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)\n", "launch-config"),
    case("port", RAISED + "OSError: [Errno 98] Address already in use\n", "launch-config"),
    case("sql", 'psql:gpu.sql:3: ERROR:  relation "gpu_jobs" does not exist\n', "program-bug"),
    case("sqlite", RAISED + "sqlite3.OperationalError: database is locked\n", "infra"),
    case("rsync", "rsync: [sender] write error: Broken pipe (32)\n", "infra"),
    case("registry", 'docker: Error response from daemon: Get "https://r/v2/": dial tcp: refused\n', "infra"),
    case("asked to end", "step 10 loss 0.3\nTerminated\n", "infra"),
    case(
        "pipe",
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    print(f"step {n} cuda 0")\n'
        "BrokenPipeError: [Errno 32] Broken pipe\n",
        "launch-config",
    ),
    case("rpc", RAISED + "grpc._channel._InactiveRpcError: <status = StatusCode.UNAVAILABLE>\n", "infra"),
    case("jax's service", "F1128 1 client.h:86] the JAX distributed service detected fatal errors.\n", "peer-failure"),
    case(
        "jax's plugin",
        "RuntimeWarning: JAX plugin jax_cuda12_plugin version 0.5.0 is installed, but it is not compatible with the "
        "installed jaxlib version 0.10.2, so it will not be used.\nbash: line 2: 241 Segmentation fault  python t.py\n",
        "version-mismatch",
    ),
    case(
        "a kernel's assembler",
        RAISED + "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n"
        "ptxas /tmp/t.ptx, line 20; error   : Not a name of any known instruction: 'mulx'\n",
        "gpu-kernel-bug",
    ),
    case("noise at import", REGISTERED + RAISED + "KeyError: 'label'\n", "program-bug"),
    case(
        "a refused argument", RAISED + "RuntimeError: cuDNN only supports sequences, got a length of 0\n", "program-bug"
    ),
    case(
        "a wanted release",
        RAISED + "ImportError: accelerate>=1.1.0 is required, but found 0.30.1.\n",
        "version-mismatch",
    ),
    case("another release", RAISED + "RuntimeError: this needs lightning>=2.4 but has 2.1.0\n", "version-mismatch"),
    case(
        "an attribute of the program's own",
        MISSED_ATTRIBUTE.format(caller="/home/user/train.py", function="<module>"),
        "program-bug",
    ),
    case(
        "a server's own exception",
        "ERROR:app:Exception on /embed [POST]\nTraceback (most recent call last):\n"
        "  File \"/home/user/server.py\", line 31, in embed\n    rows[device]\nKeyError: 'cuda:7'\n"
        + RAISED
        + "requests.exceptions.HTTPError: 500 Server Error: INTERNAL SERVER ERROR for url: http://a/embed\n",
        "program-bug",
    ),
]

# Their near kin, which is of the GPU, or of something else.
TWINS = [
    case("cmake's compiler", "CMake Error at CMakeLists.txt:2 (project):\n  No CMAKE_CUDA_COMPILER could be found.\n",
         "container-config|wrong-build-installed", "nvcc-torch-cuda-mismatch"),
    case("a fault in C++", "terminate called after throwing an instance of 'thrust::system::system_error'\n"
         "  what():  CUDA error: an illegal memory access was encountered\nAborted (core dumped)\n",
         "gpu-kernel-bug", "illegal-memory-access"),
    case("the GPU is too old", RAISED + "RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n",
         "arch-unsupported", "no-kernel-image"),
    case("an assembler that is too old", "ptxas /tmp/t.ptx, line 6; error   : Instruction 'mma' not supported on "
         ".target 'sm_120'\n", "gpu-kernel-bug", "no-kernel-image|nvcc-torch-cuda-mismatch"),
    case("no driver after the noise", REGISTERED + RAISED + "RuntimeError: Found no NVIDIA driver on your system.\n",
         "no-gpu-or-driver", "cuda-init-no-device"),
    case("a library's attribute", MISSED_ATTRIBUTE.format(caller=f"{TORCH}/../peft/a.py", function="load"),
         "version-mismatch"),
    case("a server that answers 500", RAISED + "requests.exceptions.HTTPError: 500 Server Error: for url: http://a/b\n",
         "infra"),
    case("unknown words of a library", RAISED + "RuntimeError: cuDNN frobnicated the plan\n", "unknown", OPEN),
]  # fmt: skip

# A process that went on, and the same where it did not.
WENT_ON = [
    case(
        "a table",
        f"shape 128: ok\nshape 1024: RuntimeError: {OOM}\nshape 256: ok\nshape 512: ok\nbest 512\n",
        "unknown",
        OPEN,
    ),
    case("the same that ends", f"shape 128: ok\n{RAISED}RuntimeError: {OOM}\n", TRIED, "out-of-memory"),
    case(
        "a trial of its own process",
        f"ok 1048576\n{RAISED}torch.OutOfMemoryError: {OOM}\nok 4194304\n"
        "size     result\n1048576  ok\n8796093  failed (1)\n",
        "unknown",
        OPEN,
    ),
    case(
        "a trial that ends the sweep",
        f"ok 1048576\n{RAISED}torch.OutOfMemoryError: {OOM}\n",
        "program-bug|gpu-memory-exhausted",
        "out-of-memory",
    ),
    case(
        "a tracker that is away",
        "".join(
            f"WARNING:tracker:could not send step {n}: <urlopen error [Errno 111] Connection refused>\n"
            f"INFO:tracker:step {n} loss 1.002\n"
            for n in range(12)
        ),
        "unknown",
        OPEN,
    ),
    case("a tracker that ends it", RAISED + "urllib.error.URLError: <urlopen error [Errno 111] refused>\n", "infra"),
    case(
        "a logged trial",
        f"2026-11-28 20:05:45,840 ERROR tuner: trial with 99 rows failed, pruned\n"
        f"{RAISED}torch.OutOfMemoryError: {OOM}\n"
        + "".join(f"2026-11-28 20:05:46,{n:03} INFO tuner: step {n} of 20, loss 0.3\n" for n in range(20)),
        "unknown",
        OPEN,
    ),
    case(
        "what NCCL tried",
        "n:1:1 [0] NCCL INFO dlvsym failed on mlx5dv_reg_dmabuf_mr - /lib/libmlx5.so: undefined symbol: "
        "mlx5dv_reg_dmabuf_mr, version MLX5_1.25\nepoch 0 loss 1.0\nepoch 1 loss 0.9\n",
        "unknown",
        OPEN,
    ),
    case(
        "what the loader says",
        RAISED + "ImportError: /e/flash_attn.so: undefined symbol: _ZN3c104cuda9SetDeviceEi\n",
        "version-mismatch",
        "undefined-symbol-abi-mismatch",
    ),
]  # fmt: skip

# What launchers and peers say of who ended first.
ENDS = [
    case("killed", ENDED.format(code=-9), "host-resource"),
    case("killed, and its peer", PEER.format(where=NCCL) + ENDED.format(code=-9), "host-resource"),
    case("its own exit code", ENDED.format(code=7), "program-bug"),
    case("an exception above", ENDED.format(code=1), "unknown-cut-log", OPEN),
    case("arguments above", ENDED.format(code=2), "unknown-cut-log", OPEN),
    case("a peer of gloo", PEER.format(where=GLOO), "peer-failure"),
    case(
        "a peer of NCCL",
        PEER.format(where=GLOO) + "[rank1]: ncclRemoteError: A call failed possibly due to a network error\n",
        "peer-failure|network-fabric",
        "nccl-remote-error",
    ),
]

# Shared memory, launches, devices and libraries.
LAUNCH = (
    'Traceback (most recent call last):\n  File "/home/user/k.py", line 9, in <module>\n    run((1,), (4096,), (x,))\n'
)
LIBRARY = "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory\n"
PLACES = [
    case(
        "a full /dev/shm",
        RAISED.replace("step(x)", "self._semlock = _multiprocessing.SemLock(")
        + "OSError: [Errno 28] No space left on device\n",
        "container-config",
        "dataloader-shm-bus-error",
    ),
    case("a full disk", RAISED + "OSError: [Errno 28] No space left on device\n", "host-resource"),
    case(
        "a small /dev/shm",
        "tmpfs           3.0M     0  3.0M   0% /dev/shm\n" + PASSED_ON
        + "ConnectionResetError: [Errno 104] Connection reset by peer\n",
        "container-config",
        "dataloader-shm-bus-error",
    ),
    case(
        "a large /dev/shm",
        "tmpfs            63G     0   63G   0% /dev/shm\n" + PASSED_ON
        + "ConnectionResetError: [Errno 104] Connection reset by peer\n",
        "unknown-cut-log|infra|program-bug",
        f"{OPEN}|{INNOCENT}",
    ),
    case(
        "a refused launch",
        LAUNCH + '  File "cupy/cuda/function.pyx", line 129, in cupy.cuda.function._launch\n'
        "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_INVALID_VALUE: invalid argument\n",
        "gpu-kernel-bug",
        "invalid-argument-device-mismatch",
    ),
    case(
        "a refused copy",
        LAUNCH.replace("run((1,), (4096,), (x,))", "x.copy_(y)") + "RuntimeError: CUDA error: invalid argument\n",
        "device-mixup",
        "invalid-argument-device-mismatch",
    ),
    case("pinned on the GPU", RAISED + "RuntimeError: cannot pin 'torch.cuda.LongTensor' only dense CPU tensors "
         "can be pinned\n",
         "device-mixup", "tensors-on-different-devices"),
    case("CuPy and NumPy", RAISED + "TypeError: Unsupported type <class 'numpy.ndarray'>\n",
         "device-mixup", "tensors-on-different-devices"),
    case("another type", RAISED + "TypeError: Unsupported type <class 'dict'>\n", "program-bug"),
    case("more GPUs than there are", RAISED + "MisconfigurationException: You requested gpu: [0, 1]\n But your "
         "machine only has: [0]\n",
         "launch-config", "invalid-device-ordinal"),
    case("a module that is not there", "modprobe: FATAL: Module nvidia-peermem not found in directory /lib/modules/6\n",
         "container-config", "nccl-ib-transport-error"),
    case("a wheel that is not there", RAISED.replace("/home/user/train.py", f"{TORCH}/__init__.py") + LIBRARY,
         "wrong-build-installed", "missing-shared-library"),
    case("a library to link", "/usr/bin/ld: cannot find -lcudnn: No such file or directory\n", "container-config",
         "missing-shared-library"),
]  # fmt: skip


@gathered([*BY_THEMSELVES, *TWINS, *WENT_ON, *ENDS, *PLACES])
def test_what_ended_the_process_is_what_is_told(text: str, category: str, cause: str) -> None:
    answer = told(text)
    assert answer.category in category.split("|"), answer.because
    assert answer.cause in cause.split("|"), answer.because


@gathered([pytest.param(each.values[0], id=each.id) for each in BY_THEMSELVES])  # type: ignore[attr-defined]
def test_lines_about_a_gpu_around_it_make_no_failure_of_it(text: str) -> None:
    """Warnings that healthy runs print, before and after."""
    around = "GPU 0: NVIDIA H200 (UUID: GPU-1)\nnode1:9:9 [0] NCCL INFO NET/IB : No device found.\n" + REGISTERED
    assert told(around + text).category in (INNOCENT, OPEN)
