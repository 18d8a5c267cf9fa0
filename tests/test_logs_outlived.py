"""Errors that a log holds and that ended nothing: what was tried, noted, quoted, expected, or met by another."""

from __future__ import annotations

from gathered import gathered
from logs import told
from test_logs_blame import INNOCENT, OOM, OPEN, RAISED, TRIED, case

STEPS = "".join(f"step {n} loss 0.{9 - n}\n" for n in range(8))
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n"
ILLEGAL = "CUDA error: an illegal memory access was encountered"
PROVIDER = (
    "/e/onnxruntime_inference_collection.py:121: UserWarning: Specified provider 'CUDAExecutionProvider' is not in "
    "available provider names.Available providers: 'CPUExecutionProvider'\n  warnings.warn(\n"
)
FINALIZED = (
    "Exception ignored in: <function Pool.__del__ at 0x7f>\nTraceback (most recent call last):\n"
    '  File "/usr/lib/python3.11/multiprocessing/pool.py", line 271, in __del__\n{error}\n'
)
UNITTEST = f"test_oom (tests.T.test_oom) ... {OOM}\nok\n\n{'-' * 70}\nRan 2 tests in 1.204s\n\n"  #

ENDED_NOTHING = [
    case("a batch that did not fit", f"batch 64 ok\nbatch 256 failed: {OOM}\nlargest batch: 128\n", "unknown", OPEN),
    case(
        "a finder of batches",
        f"Batch size 2048 failed, trying batch size 1024\n{OOM}\nwill continue with full run using batch size 1024\n",
        "unknown",
        OPEN,
    ),
    case(
        "a server with two replicas",
        'INFO: 10.0.0.3 - "POST /generate HTTP/1.1" 200 OK\nWARNING: replica 2: CUDA out of memory, routed to 1\n'
        'INFO: 10.0.0.3 - "POST /generate HTTP/1.1" 200 OK\nINFO: Finished server process [1]\n',
        "unknown",
        OPEN,
    ),
    case(
        "a kernel that was passed over",
        "trying flash attention: FlashAttention only supports Ampere GPUs or newer.\nusing sdpa instead\n" + STEPS,
        "unknown",
        OPEN,
    ),
    case("a provider that is not there", PROVIDER + "score 0.93\nscore 0.91\nscore 0.94\nwritten\n", "unknown", OPEN),
    case(
        "JAX on the CPU",
        "WARNING:2026-11-28 10:00:00,000:jax._src.xla_bridge:794: An NVIDIA GPU may be present on this machine, but a "
        "CUDA-enabled jaxlib is not installed. Falling back to cpu.\n" + STEPS,
        "unknown",
        OPEN,
    ),
    case(
        "TensorFlow on the CPU",
        "2026-11-28 10:00:00.3: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2343] Cannot dlopen some GPU "
        "libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to "
        "use GPU.\nSkipping registering GPU devices...\n" + STEPS,
        "unknown",
        OPEN,
    ),
    case("unittest", UNITTEST + "OK (expected failures=1)\n", "unknown", OPEN),
    case("gtest", "[ RUN      ] Gpu.Oom\nCUDA error: out of memory\n[  PASSED  ] 1 test.\n", "unknown", OPEN),
    case(
        "a finalizer",
        STEPS + "done\n" + FINALIZED.format(error="OSError: [Errno 9] Bad file descriptor"),
        "unknown",
        OPEN,
    ),
    case(
        "a finalizer's CUDA",
        STEPS + FINALIZED.format(error="RuntimeError: CUDA error: driver shutting down"),
        "unknown",
        OPEN,
    ),
    case(
        "a logger",
        '--- Logging error ---\nTraceback (most recent call last):\n  File "/usr/lib/python3/logging/__init__.py", line'
        " 1110, in emit\n    msg = self.format(record)\nTypeError: not all arguments converted\n"
        "Call stack:\n  File \"t.py\", line 3, in <module>\n    log.info('gpu', 0)\nMessage: 'gpu'\n"
        + STEPS
        + "done\n",
        "unknown",
        OPEN,
    ),
    case("records", f'{{"id": 1, "text": "RuntimeError: {ILLEGAL}"}}\nread 1 row\naccuracy 0.98\n', "unknown", OPEN),
    case("a table of jobs", f"job   state   reason\n17    FAILED  {ILLEGAL}\n19    OK\n", "unknown", OPEN),
    case(
        "the same with commas", f"job,state,reason\n17,failed,{ILLEGAL}\n19,ok,\nwrote report.html\n", "unknown", OPEN
    ),
    case(
        "a change of sources",
        f'@@ -1,3 +1,4 @@\n-    raise RuntimeError("{ILLEGAL}")\n+    raise Gone\n',
        "unknown",
        OPEN,
    ),
    case("advice", f"If you see `RuntimeError: {ILLEGAL}`, run it with CUDA_LAUNCH_BLOCKING=1.\n", "unknown", OPEN),
    case(
        "an end with 0", "could not open /dev/gpu0\nfell back\n=== job 4711 ended with exit code 0\n", "unknown", OPEN
    ),
    case(
        "a program that reads logs, and fails",
        f"row 1: RuntimeError: {ILLEGAL} -> gpu\nrow 2: ok\n{RAISED}ZeroDivisionError: division by zero\n",
        "program-bug",
        INNOCENT,
    ),
    case(
        "a prompt, and a failure",
        f'sample 0: {{"prompt": "why do I get RuntimeError: {ILLEGAL}?"}}\n{RAISED}KeyError: \'answer\'\n',
        "program-bug",
        INNOCENT,
    ),
    case(
        "no nvidia-smi, and a failure",
        f"run.sh: line 2: nvidia-smi: command not found\nusing cpu\n{RAISED}ValueError: could not broadcast (3,)\n",
        "program-bug|corrupt-data",
        INNOCENT,
    ),
    case(
        "a provider that does not load, and a failure",
        "2026-11-28 10:00:00.1 [E:onnxruntime:Default, provider_bridge_ort.cc:1992 TryGetProviderInfo_CUDA] Failed to "
        "load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object file: "
        f"No such file or directory\n{RAISED}ValueError: too many values to unpack (expected 2)\n",
        "program-bug",
        INNOCENT,
    ),
    case("caught", f"caught: {OOM}\nretry with 1024\nok\n", "unknown", OPEN),
    case("waited for", f"met the expected error: {ILLEGAL}\nchild restarted\nall checks passed\n", "unknown", OPEN),
    case(
        "on the CPU instead", f"{RAISED}{NO_DRIVER}no GPU, going on with the CPU instead\nmean 0.5\n", "unknown", OPEN
    ),
    case(
        "logged with its traceback",
        f"ERROR:trainer:step failed, trying again\n{RAISED}torch.OutOfMemoryError: {OOM}\n" + STEPS,
        "unknown",
        OPEN,
    ),
    case(
        "logged, and more work",
        f"INFO:serve:request 1 served\nERROR:serve:request 2\n{RAISED}torch.OutOfMemoryError: {OOM}\n"
        "INFO:serve:request 3 served\nINFO:serve:request 4 served\n",
        "unknown",
        OPEN,
    ),
    case("no monitor", "nvidia-smi not found, GPU metrics are disabled\nserving on :9100\n", "unknown", OPEN),
    case("caught, then another", f"caught: {OOM}\nretry\n{RAISED}ValueError: batch is odd\n", "program-bug", INNOCENT),
]

# What is like them and did end a program.
ENDED_IT = [
    case(
        "what others write at its end",
        f"{STEPS}{RAISED}torch.OutOfMemoryError: {OOM}\nwandb: Run history: loss 1\nwandb: Synced 5 files\n",
        TRIED,
        "out-of-memory",
    ),
    case("tried again in vain", f"retrying\n{RAISED}torch.OutOfMemoryError: {OOM}\n", TRIED, "out-of-memory"),
    case("tried twice", f"attempt 1: {OOM}\nattempt 2: {OOM}\ngiving up\n", TRIED, "out-of-memory"),
    case("no driver, and no more", f"{RAISED}{NO_DRIVER}", "no-gpu-or-driver|container-config", "cuda-init-no-device"),
    case("a line, and no more", f"batch 64 ok\nbatch 256 failed: {OOM}\n", TRIED, "out-of-memory"),
    case(
        "a line before what was buffered",
        "GPUassert: out of memory solver.cu 11\n[solver] 4096 cells\n",
        TRIED,
        "out-of-memory",
    ),
    case("a bad end", f"batch 64 ok\nbatch 256 failed: {OOM}\ngiving up\n", TRIED, "out-of-memory"),
    case(
        "an exit code",
        f"batch 64 ok\n{OOM}\nlargest batch: 64\n=== job ended with exit code 1\n",
        TRIED,
        "out-of-memory",
    ),
    case(
        "a fault that stays", f"batch 64 ok\n{ILLEGAL}\nlargest batch: 64\n", "gpu-kernel-bug", "illegal-memory-access"
    ),
    case(
        "an exception that follows from it",
        f"batch 64 ok\n{OOM}\n{RAISED}TypeError: 'NoneType' object is not iterable\n",
        f"{TRIED}|unknown",
        f"out-of-memory|{OPEN}",
    ),
    case("unittest", UNITTEST.replace("ok\n", "ERROR\n") + "FAILED (errors=1)\n", TRIED, "out-of-memory"),
    case("a logger's message", f'level=error msg="{ILLEGAL}"\n', "gpu-kernel-bug", "illegal-memory-access"),
    case("a record of an error", f'{{"id": 1, "error": "{ILLEGAL}"}}\n', "gpu-kernel-bug", "illegal-memory-access"),
    case(
        "a provider that the program demands",
        PROVIDER + "CUDAExecutionProvider is not available\n",
        "wrong-build-installed",
        "torch-not-compiled-with-cuda",
    ),
]


@gathered([*ENDED_NOTHING, *ENDED_IT])
def test_an_error_counts_where_something_ended_by_it(text: str, category: str, cause: str) -> None:
    answer = told(text)
    assert answer.category in category.split("|"), answer.because
    assert answer.cause in cause.split("|"), answer.because
