"""What stands beside a failure, libraries that are not found, and failures that say so in few words."""

from __future__ import annotations

from gathered import gathered
from logs import told
from test_logs_twins import INNOCENT, LOGGED, NO_DRIVER, NO_GPU, OOM, OPEN, SITE, STEPS, raised

NO_DEVICE, NVCC, MISSING = "cuda-init-no-device", "nvcc-torch-cuda-mismatch", "missing-shared-library"
ABSENT = "no-gpu-or-driver|container-config"
INIT = "torch/cuda/__init__.py:_lazy_init"


def python(words: str, *places: str) -> str:
    """An uncaught exception; each place is "file|line|function|source"."""
    frames = ""
    for place in places:
        file, line, function, source = place.split("|")
        frames += f'  File "{file}", line {line}, in {function}\n    {source}\n'
    return f"Traceback (most recent call last):\n{frames}{words}\n"


def supervised(name: str, text: str) -> str:
    """What a supervisor prints of a program, each line behind its name."""
    return "".join(f"{name:<9}| {line}\n" for line in text.splitlines())


# name, text, kinds and causes that are right
Case = tuple[str, str, str, str]

NOTICE = "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\n"
FLAT = (
    "error: Multiple top-level packages discovered in a flat-layout: ['csrc', 'fused', 'bench'].\n\n"
    "To avoid accidental inclusion of unwanted files or directories,\nsetuptools will not proceed with this build.\n"
)
WHEEL = "Getting requirements to build wheel: finished with status 'error'\n"

BYSTANDERS: list[Case] = [
    (
        "a metrics service without nvidia-smi beside an import",
        supervised("metrics", "sampling every 15 s\n/bin/sh: 1: nvidia-smi: not found\n")
        + supervised(
            "api", python("ModuleNotFoundError: No module named 'orjson'", "/srv/api.py|3|<module>|import orjson")
        )
        + "supervisor: api exited with code 1\n",
        INNOCENT,
        "program-bug|version-mismatch|wrong-build-installed|launch-config|container-config",
    ),
    (
        "a service samples GPUs after another's import",
        supervised(
            "api", python("ModuleNotFoundError: No module named 'orjson'", "/srv/api.py|3|<module>|import orjson")
        )
        + supervised("metrics", "sh: 1: nvidia-smi: not found\nsh: 1: nvidia-smi: not found\n")
        + "api exited with code 1\n",
        INNOCENT,
        "program-bug|container-config",
    ),
    (
        "services by time and name",
        "".join(
            f"11:04:01 {line}\n"
            for line in (
                supervised("metrics.1", "/bin/sh: 1: nvidia-smi: not found\n")
                + supervised("web.1", python("ModuleNotFoundError: No module named 'orjson'", "/srv/a.py|3|<module>|x"))
                + supervised("system", "web.1 stopped (rc=1)\n")
            ).splitlines()
        ),
        INNOCENT,
        "program-bug|container-config",
    ),
    (
        "twin: the other service has no GPU",
        supervised("metrics", "sh: 1: nvidia-smi: not found\n")
        + supervised("api", raised(NO_GPU, INIT))
        + "api exited with code 1\n",
        NO_DEVICE,
        ABSENT,
    ),
    (
        "supervisord's programs, one samples GPUs",
        "2026-05-02 11:04:01,100 INFO supervisord started with pid 7\n"
        "2026-05-02 11:04:02,104 INFO spawned: 'gpustats' with pid 9\n"
        "2026-05-02 11:04:02,106 INFO spawned: 'web' with pid 10\n"
        "/opt/gpustats.sh: line 4: nvidia-smi: command not found\n"
        + python("ModuleNotFoundError: No module named 'uvloop'", "/srv/web.py|1|<module>|import uvloop")
        + "2026-05-02 11:04:03,300 WARN exited: web (exit status 1; not expected)\n"
        "2026-05-02 11:04:07,400 INFO gave up: web entered FATAL state, too many start retries too quickly\n",
        INNOCENT,
        "program-bug|version-mismatch|wrong-build-installed|launch-config|container-config",
    ),
    (
        "an entry script asks nvidia-smi, then a wrong key",
        "entrypoint: driver: sh: nvidia-smi: command not found\n" + STEPS + raised("KeyError: 'labels'"),
        INNOCENT,
        "program-bug|corrupt-data",
    ),
    (
        "twin: the program needs nvidia-smi",
        "entrypoint: starting\nbash: nvidia-smi: command not found\n" + raised(NO_DRIVER, INIT),
        NO_DEVICE,
        ABSENT,
    ),
    (
        "torch's notice before a flat layout",
        "Processing /work/fused\n  Preparing metadata (pyproject.toml): started\n" + NOTICE + FLAT + WHEEL,
        INNOCENT,
        "program-bug|launch-config",
    ),
    (
        "torch's notice before a syntax error",
        "running build_ext\n"
        + NOTICE
        + "building 'fused._C' extension\ncsrc/bind.cpp:14:3: error: expected ';' before '}' token\n"
        "error: command '/usr/bin/g++' failed with exit code 1\n",
        INNOCENT,
        "program-bug",
    ),
    (
        "torch's notice before a missing file",
        "running bdist_wheel\nrunning build\n"
        + NOTICE
        + python(
            "FileNotFoundError: [Errno 2] No such file or directory: 'VERSION'",
            "/work/fused/setup.py|12|<module>|version = open('VERSION').read()",
        ),
        INNOCENT,
        "program-bug|launch-config",
    ),
    (
        "twin: torch's notice and the architectures of no GPU",
        "running build_ext\n"
        + NOTICE
        + python(
            "IndexError: list index out of range",
            f"{SITE}/torch/utils/cpp_extension.py|2458|_get_cuda_arch_flags|arch_list[-1] += '+PTX'",
        ),
        f"{NVCC}|{NO_DEVICE}",
        "container-config|no-gpu-or-driver",
    ),
    (
        "a test's parameter names a message",
        "============================= test session starts ==============================\n"
        "platform linux -- Python 3.12.4, pytest-8.4.1, pluggy-1.6.0\nrootdir: /work\ncollected 6 items\n\n"
        "tests/test_words.py ....F.                                                [100%]\n\n"
        "=================================== FAILURES ===================================\n"
        "_______ test_retried[CUDA out of memory. Tried to allocate 2.00 GiB-True] _______\n\n"
        "message = 'CUDA out of memory. Tried to allocate 2.00 GiB', wanted = True\n\n"
        "    @pytest.mark.parametrize(('message', 'wanted'), ROWS)\n    def test_retried(message, wanted):\n"
        ">       assert retried(message) is wanted\nE       AssertionError: assert False is True\n"
        "E        +  where False = retried('CUDA out of memory. Tried to allocate 2.00 GiB')\n\n"
        "tests/test_words.py:31: AssertionError\n"
        "=========================== short test summary info ============================\n"
        "FAILED tests/test_words.py::test_retried[CUDA out of memory. Tried to allocate 2.00 GiB-True] - "
        "AssertionError\n"
        "========================= 1 failed, 5 passed in 0.31s ==========================\n",
        INNOCENT,
        "program-bug",
    ),
    (
        "unittest compares a quoted message",
        "..F.\n======================================================================\n"
        "FAIL: test_kind (tests.test_words.Words.test_kind) (text='CUDA out of memory. Tried to allocate 20.00 MiB')\n"
        "----------------------------------------------------------------------\n"
        + python(
            "AssertionError: 'other' != 'memory'\n- other\n+ memory\n",
            "/work/tests/test_words.py|18|test_kind|self.assertEqual(kind(text), 'memory')",
        )
        + "----------------------------------------------------------------------\nRan 4 tests in "
        "0.004s\n\nFAILED (failures=1)\n",
        INNOCENT,
        "program-bug",
    ),
    (
        "a ticket's subject is a message",
        LOGGED
        + "2026-05-02 11:05:01,120 INFO bot: ticket 4410 'torch.OutOfMemoryError: CUDA out of memory' assigned\n"
        + raised("KeyError: 'assignee'"),
        INNOCENT,
        "program-bug|corrupt-data",
    ),
    (
        "a warning tells of a former run",
        "2026-05-02 11:04:01,120 WARNING tuner: CUDA out of memory was seen in a former run, batch size lowered to 32\n"
        + LOGGED
        + raised("TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'"),
        INNOCENT,
        "program-bug",
    ),
    (
        "the last run's NCCL time-out is remembered",
        "WARNING resume: the last attempt ended with NCCL error: unhandled system error, starting from step 4000\n"
        + STEPS
        + raised("ValueError: Expected input batch_size (32) to match target batch_size (31)."),
        INNOCENT,
        "program-bug|corrupt-data",
    ),
    (
        "an earlier job's illegal access",
        "[warn] previous job failed: CUDA error: an illegal memory access was encountered; retry 1 of 3\n"
        + STEPS
        + raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/val.bin'"),
        INNOCENT,
        "launch-config|program-bug|corrupt-data",
    ),
    (
        "twin: it is out of memory again",
        "2026-05-02 11:04:01,120 WARNING tuner: CUDA out of memory was seen in a former run, batch size lowered to 32\n"
        + LOGGED
        + raised(f"torch.OutOfMemoryError: {OOM}"),
        "out-of-memory",
        "gpu-memory-exhausted",
    ),
]

COMPOSE_OK = (
    " Container app-db-1  Started\n Container app-client-1  Started\nAttaching to client-1, db-1\n"
    "client-1  | 11:04:01 connecting to db:5432\n"
    'client-1  | psycopg2.OperationalError: connection to server at "db" (172.18.0.2), port 5432 failed: '
    "Connection refused\n"
    "client-1  | 11:04:01 retry in 1 s\n"
    "db-1      | 2026-05-02 11:04:02.101 UTC [1] LOG:  database system is ready to accept connections\n"
    "client-1  | 11:04:02 connected\nclient-1  | 11:04:03 wrote 4410 rows\nclient-1 exited with code 0\n"
)
COMPOSE_BAD = (
    "Attaching to client-1, store-1\n"
    "store-1   | reading /etc/store.toml\n"
    + supervised("store-1", python("KeyError: 'bind'", "/srv/store.py|40|main|listen(config['bind'])"))
    + "store-1 exited with code 1\n"
    + supervised(
        "client-1",
        python(
            "ConnectionRefusedError: [Errno 111] Connection refused",
            "/usr/lib/python3.12/socket.py|836|create_connection|sock.connect(sa)",
            "/srv/client.py|9|main|sock = connect()",
        ),
    )
    + "client-1 exited with code 1\n"
)
RESTARTED = (
    "11:04:01 master: started workers 0 1 2\n"
    + "".join(f"11:04:{n:02d} worker 1: batch {n} done\n" for n in range(2, 9))
    + python("ConnectionResetError: [Errno 104] Connection reset by peer", "/srv/worker.py|31|loop|item = queue.get()")
    + "11:04:10 master: worker 1 exited with code 1, restarting it (1 of 5)\n11:04:11 master: started worker 1\n"
    + "".join(f"11:04:{n:02d} worker {n % 3}: batch {n} done\n" for n in range(12, 44))
)

HEALTHY: list[Case] = [
    ("compose: refused at first", COMPOSE_OK, OPEN, "unknown"),
    (
        "a client that waits for its server",
        "Attaching to server-1, bench-1\nbench-1   | waiting for http://server:8000\n"
        + "".join(
            "bench-1   | curl: (7) Failed to connect to server port 8000 after 0 ms: Connection refused\n"
            for _ in range(3)
        )
        + "server-1  | INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)\n"
        'server-1  | INFO:     172.18.0.3:41122 - "POST /v1/embed HTTP/1.1" 200 OK\n'
        "bench-1   | 200 requests, 0 failed\nbench-1 exited with code 0\n",
        OPEN,
        "unknown",
    ),
    (
        "a traceback of a refused connection, then all ends well",
        "Attaching to api-1, loader-1\n"
        + supervised(
            "loader-1",
            "attempt 1\n"
            + python(
                "ConnectionRefusedError: [Errno 111] Connection refused",
                "/srv/load.py|9|fetch|sock.connect(at)",
            ),
        )
        + "api-1     | listening on 0.0.0.0:9000\nloader-1  | attempt 2\nloader-1  | loaded 300 items\n"
        "loader-1 exited with code 0\n",
        OPEN,
        "unknown",
    ),
    ("a worker restarted once", RESTARTED, OPEN, "unknown"),
    (
        "gunicorn starts another worker",
        "[2026-05-02 11:04:01 +0000] [7] [INFO] Starting gunicorn 22.0.0\n"
        "[2026-05-02 11:04:01 +0000] [9] [INFO] Booting worker with pid: 9\n"
        "[2026-05-02 11:04:40 +0000] [7] [ERROR] Worker (pid:9) was sent SIGSEGV!\n"
        "[2026-05-02 11:04:40 +0000] [12] [INFO] Booting worker with pid: 12\n"
        + "".join(
            f'10.0.3.{n} - - [02/May/2026:11:05:{n:02d} +0000] "GET /v1/items HTTP/1.1" 200 412\n' for n in range(30)
        ),
        f"{OPEN}|{INNOCENT}",
        "unknown|program-bug",
    ),
    (
        "twin: a worker restarted until the master gives up",
        RESTARTED.split("11:04:11")[0] * 3 + "11:04:59 master: worker 1 failed 5 times, giving up\n",
        INNOCENT,
        "infra|peer-failure|network-fabric",
    ),
    (
        "compose: the service that cannot start is the root",
        COMPOSE_BAD,
        INNOCENT,
        "program-bug|launch-config|corrupt-data",
    ),
    (
        "compose: the client speaks first",
        "Attaching to client-1, store-1\n"
        + supervised(
            "client-1",
            python("ConnectionRefusedError: [Errno 111] Connection refused", "/srv/client.py|9|main|connect()"),
        )
        + supervised(
            "store-1",
            python("ModuleNotFoundError: No module named 'msgpack'", "/srv/store.py|2|<module>|import msgpack"),
        )
        + "store-1 exited with code 1\nclient-1 exited with code 1\n",
        INNOCENT,
        "version-mismatch|program-bug|wrong-build-installed|launch-config|container-config",
    ),
    (
        "compose: the server has no GPU",
        "Attaching to client-1, llm-1\n"
        + supervised("llm-1", raised(NO_GPU, INIT))
        + "llm-1 exited with code 1\n"
        + supervised(
            "client-1",
            python(
                "requests.exceptions.ConnectionError: HTTPConnectionPool(host='llm', port=8000): Max "
                "retries exceeded with url: /v1/models (Caused by NewConnectionError('Failed to establish a new "
                "connection: "
                "[Errno 111] Connection refused'))",
                "/srv/client.py|9|main|get()",
            ),
        )
        + "client-1 exited with code 1\n",
        NO_DEVICE,
        ABSENT,
    ),
]

NO_NVML = "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found"
ORT = (
    "2026-05-02 11:04:01.1234 [E:onnxruntime:Default, provider_bridge_ort.cc:2167 TryGetProviderInfo_CUDA] "
    "/onnxruntime_src/"
    "onnxruntime/core/session/provider_bridge_ort.cc:1778 onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() "
    "[ONNXRuntimeError] : 1 : FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: "
    "libcublasLt.so.12: "
    "cannot open shared object file: No such file or directory\n"
)
ORT_SAYS = (
    "2026-05-02 11:04:01.1236 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:1055 "
    "CreateExecutionProviderInstance] Failed "
    "to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 12.*. Please install all dependencies as "
    "mentioned in the GPU "
    "requirements page "
    "(https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#requirements), make sure "
    "they're in the PATH, and that your GPU is supported.\n"
)
UNUSED = "RuntimeError: the session runs on CPUExecutionProvider, asked for CUDAExecutionProvider"
TORCHRUN = (
    "E0502 11:04:31.000000 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) "
    "local_rank: 0 (pid: "
    "1431) of binary: /opt/venv/bin/python\n"
    + python(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\ntrain.py FAILED\n"
        "------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n"
        "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-05-02_11:04:31\n  host      : node1\n  rank      : 0 (local_rank: 0)\n  exitcode  : "
        "1 (pid: 1431)\n"
        "  error_file: <N/A>\n  traceback : To enable traceback see: "
        "https://pytorch.org/docs/stable/elastic/errors.html\n"
        "============================================================",
        "/opt/venv/bin/torchrun|8|<module>|sys.exit(main())",
    )
)

ABSENT_DRIVER: list[Case] = [
    (
        "cuda-python finds no library",
        python(
            "cuda.pathfinder._dynamic_libs.load_dl_common.DynamicLibNotFoundError: Failure finding "
            '"libcudart.so": No such '
            "file: libcudart.so*, No such file: libcudart.so*\n  listdir('/usr/local/cuda/lib64'):",
            "/work/src/use.py|3|<module>|from cuda.bindings import runtime",
            f"{SITE}/cuda/pathfinder/_dynamic_libs/load_nvidia_dynamic_lib.py|58|load|raise "
            f"DynamicLibNotFoundError(text)",
        ),
        MISSING,
        "library-path-clash|wrong-build-installed|container-config",
    ),
    (
        "cuda-python finds no driver",
        LOGGED
        + python(
            'cuda.pathfinder._dynamic_libs.load_dl_common.DynamicLibNotFoundError: Failure finding "libcuda.so": No '
            "such file: libcuda.so*",
            "/work/src/use.py|9|main|err, = driver.cuInit(0)",
        ),
        f"{NO_DEVICE}|{MISSING}",
        ABSENT,
    ),
    (
        "cuda-python: RuntimeError of an older release",
        python(
            "RuntimeError: Failure finding \"libnvrtc.so\": No such file: libnvrtc.so*\n  listdir('/usr/lib'):",
            "/work/src/use.py|9|main|nvrtc.nvrtcVersion()",
        ),
        MISSING,
        "library-path-clash|wrong-build-installed|container-config",
    ),
    ("pynvml's own exception", raised(NO_NVML, "pynvml.py:nvmlInitWithFlags"), NO_DEVICE, ABSENT),
    (
        "gpustat's sentence",
        "Error on querying NVIDIA devices. Use --debug flag to see more details.\nNVML Shared Library Not Found\n",
        NO_DEVICE,
        ABSENT,
    ),
    (
        "a thread's traceback",
        STEPS
        + "Exception in thread Thread-3 (sample):\n"
        + python(
            NO_NVML,
            "/usr/lib/python3.12/threading.py|1075|_bootstrap_inner|self.run()",
            "/work/src/watch.py|12|sample|nvmlInit()",
        )
        + "watch: the sampler ended, stopping\n",
        NO_DEVICE,
        ABSENT,
    ),
    (
        "two exceptions of NVML in a thread, then exit 1",
        "Exception in thread gpu-watch:\n"
        + python(
            "OSError: libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
            f'{SITE}/pynvml.py|1734|_LoadNvmlLibrary|nvmlLib = CDLL("libnvidia-ml.so.1")',
        )
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + python(NO_NVML, f"{SITE}/pynvml.py|1742|_LoadNvmlLibrary|_nvmlCheckReturn(NVML_ERROR_LIBRARY_NOT_FOUND)")
        + "exit status 1\n",
        f"{NO_DEVICE}|{MISSING}",
        ABSENT,
    ),
    (
        "ONNX Runtime without cuBLAS",
        ORT + ORT_SAYS + raised(UNUSED),
        MISSING,
        "library-path-clash|wrong-build-installed|version-mismatch|container-config",
    ),
    (
        "ONNX Runtime says only what it requires",
        ORT_SAYS + raised(UNUSED),
        f"{MISSING}|{NO_DEVICE}|cudnn-version-mismatch",
        "library-path-clash|wrong-build-installed|version-mismatch|container-config|no-gpu-or-driver",
    ),
    (
        "ONNX Runtime's older sentence",
        ORT_SAYS.replace(
            "Require cuDNN 9.* and CUDA 12.*",
            "Please reference https://onnxruntime.ai/docs/execution-providers to ensure all dependencies are met",
        )
        + "serve: no CUDA provider, exit\n",
        f"{MISSING}|{NO_DEVICE}",
        "library-path-clash|wrong-build-installed|version-mismatch|container-config|no-gpu-or-driver",
    ),
    (
        "twin: ONNX Runtime falls back and the program has a bug",
        ORT_SAYS + STEPS + raised("KeyError: 'pixel_values'"),
        INNOCENT,
        "program-bug|corrupt-data",
    ),
    (
        "torchrun: Cuda is not available",
        "Cuda is not available\n" + TORCHRUN,
        NO_DEVICE,
        f"{ABSENT}|wrong-build-installed",
    ),
    (
        "torchrun: a rank's print",
        "[rank0] CUDA is not available, cannot train\n" + TORCHRUN,
        NO_DEVICE,
        f"{ABSENT}|wrong-build-installed",
    ),
    (
        "torchrun: the assertion of a script",
        python("AssertionError: Cuda is not available", "/work/train.py|20|main|assert ok()") + TORCHRUN,
        NO_DEVICE,
        f"{ABSENT}|wrong-build-installed",
    ),
    (
        "twin: it goes on on the CPU",
        "CUDA is not available, training on the CPU\n" + STEPS + raised("KeyError: 'mask'") + TORCHRUN,
        INNOCENT,
        "program-bug|corrupt-data",
    ),
]

LAZY = (
    '    def _lazy_init():\n        if is_initialized() or hasattr(_tls, "is_initializing"):\n            return\n'
    "        with _initialization_lock:\n            if _is_in_bad_fork():\n                raise RuntimeError(\n"
    '                    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "\n'
    "                    \"multiprocessing, you must use the 'spawn' start method\"\n                )\n"
    '            if not hasattr(torch._C, "_cuda_getDeviceCount"):\n'
    '                raise AssertionError("Torch not compiled with CUDA enabled")\n'
    "            if _cudart is None:\n                raise AssertionError(\n"
    '                    "libcudart functions unavailable. It looks like you have a broken build?"\n                )\n'
)
HEAD = (
    "============================= test session starts ==============================\n"
    "platform linux -- Python 3.12.4, pytest-8.4.1, pluggy-1.6.0\nrootdir: /work\ncollected 1 item\n\n"
    "tests/test_model.py F                                                    [100%]\n\n"
    "=================================== FAILURES ===================================\n"
    "___________________________________ test_move ___________________________________\n\n"
)


def of_pytest(error: str) -> str:
    """pytest's long traceback through the library's source."""
    return (
        HEAD + "    def test_move():\n>       x = torch.ones(3).cuda()\n\ntests/test_model.py:9: \n"
        "_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _\n\n"
        + LAZY
        + f">           torch._C._cuda_init()\nE           {error}\n\n{SITE}/torch/cuda/__init__.py:412: RuntimeError\n"
        "=========================== short test summary info ============================\n"
        f"FAILED tests/test_model.py::test_move - {error[:50]}\n============================== 1 failed in "
        f"2.10s ===============================\n"
    )


def of_ipython(error: str) -> str:
    """IPython's traceback with the library's source."""
    kind, _, says = error.partition(": ")
    source = "".join(f"    {400 + n} {line}\n" for n, line in enumerate(LAZY.splitlines()))
    return (
        "---------------------------------------------------------------------------\n"
        f"{kind:<42}Traceback (most recent call last)\nCell In[3], line 1\n----> 1 x = torch.ones(3).cuda()\n\n"
        f"File {SITE}/torch/cuda/__init__.py:412, in _lazy_init()\n{source}--> 412 "
        f"torch._C._cuda_init()\n\n{kind}: {says}\n"
    )


def of_rich(error: str) -> str:
    """rich's traceback with the library's source."""
    source = "".join(f"│   {400 + n} │ {line:<85}│\n" for n, line in enumerate(LAZY.splitlines()))
    return (
        "╭─────────────────────────────── Traceback (most recent call last) ────────────────────────────────╮\n"
        "│ /work/src/train.py:12 in <module>                                                                │\n"
        "│ ❱ 12 x = torch.ones(3).cuda()                                                                    │\n"
        f"│ {SITE}/torch/cuda/__init__.py:412 in _lazy_init │\n{source}"
        "│ ❱ 412 │   torch._C._cuda_init()                                                                   │\n"
        "╰──────────────────────────────────────────────────────────────────────────────────────────────────╯\n"
        f"{error}\n"
    )


FORKED = (
    "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
    "use the 'spawn' "
    "start method"
)
EXCERPTS: list[Case] = [
    *(
        (f"{name}: no driver", form(NO_DRIVER), NO_DEVICE, ABSENT)
        for name, form in (("pytest", of_pytest), ("IPython", of_ipython), ("rich", of_rich))
    ),
    *(
        (
            f"{name}: a bug",
            form("TypeError: ones() got an unexpected keyword argument 'devices'"),
            INNOCENT,
            "program-bug|version-mismatch",
        )
        for name, form in (("pytest", of_pytest), ("IPython", of_ipython), ("rich", of_rich))
    ),
    *(
        (f"twin of {name}: forked", form(FORKED), "fork-reinit-cuda", "program-bug")
        for name, form in (("pytest", of_pytest), ("IPython", of_ipython), ("rich", of_rich))
    ),
]


def sdist(error: str, package: str, line: int) -> str:
    """pip's report of a source distribution whose metadata cannot be made."""
    inner = python(
        error,
        "<string>|2|<module>|",
        "<pip-setuptools-caller>|35|<module>|",
        f"/tmp/pip-install-x1/{package}/setup.py|{line}|<module>|",
    )
    return (
        f"Collecting {package}\n  Preparing metadata (setup.py): started\n  Preparing metadata (setup.py): "
        f"finished with status 'error'\n"
        "  error: subprocess-exited-with-error\n  x python setup.py egg_info did not run successfully.\n  │ "
        "exit code: 1\n"
        "  ╰─> [24 lines of output]\n"
        + "".join(f"      {each}\n" for each in inner.splitlines())
        + "      [end of output]\n  note: This error originates from a subprocess, and is likely not a problem "
        "with pip.\n"
        "error: metadata-generation-failed\n"
    )


BARE = "NameError: name 'bare_metal_version' is not defined"
CMAKE = (
    "-- The CXX compiler identification is GNU 13.3.0\n-- Check for working CXX compiler: /usr/bin/c++ - skipped\n"
    "-- Could NOT find CUDAToolkit (missing: CUDAToolkit_INCLUDE_DIR CUDA_CUDART CUDAToolkit_BIN_DIR) \n"
    "CMake Error at vendor/llama.cpp/ggml/src/ggml-cuda/CMakeLists.txt:183 (message):\n  CUDA Toolkit not found\n\n\n"
    "-- Configuring incomplete, errors occurred!\n\n*** CMake configuration failed\n"
)
TOOLKITS: list[Case] = [
    ("flash-attn without nvcc", sdist(BARE, "flash-attn", 178), NVCC, "container-config|wrong-build-installed"),
    (
        "mamba without nvcc",
        sdist(BARE, "mamba-ssm", 151).replace("Collecting", "fatal: not a git repository\nCollecting"),
        NVCC,
        "container-config|wrong-build-installed",
    ),
    (
        "causal-conv1d without nvcc, with its warning",
        sdist(BARE, "causal-conv1d", 108).replace(
            "      NameError",
            "      UserWarning: causal_conv1d was requested, but nvcc was not found.  Are you sure your "
            "environment has nvcc available?\n"
            "      NameError",
        ),
        NVCC,
        "container-config|wrong-build-installed",
    ),
    (
        "twin: another name is not defined",
        sdist("NameError: name 'version_of' is not defined", "flash-attn", 12),
        INNOCENT,
        "program-bug|version-mismatch",
    ),
    ("llama-cpp-python without a toolkit", CMAKE, NVCC, "container-config|wrong-build-installed"),
    (
        "CMake: the package alone",
        "-- The C compiler identification is GNU 13.3.0\nCMake Error at CMakeLists.txt:14 (message):\n"
        "  CUDA Toolkit not found\n\n-- Configuring incomplete, errors occurred!\n",
        NVCC,
        "container-config|wrong-build-installed",
    ),
    (
        "CMake: find_package says so",
        "CMake Error at /usr/share/cmake-3.28/Modules/FindPackageHandleStandardArgs.cmake:230 "
        "(message):\n  Could NOT find CUDAToolkit (missing: CUDAToolkit_INCLUDE_DIR CUDA_CUDART)\nCall Stack "
        "(most recent call "
        "first):\n-- Configuring incomplete, errors occurred!\n",
        NVCC,
        "container-config|wrong-build-installed",
    ),
    (
        "twin: CMake goes without CUDA and the compiler fails",
        CMAKE.splitlines()[2] + "\n-- Configuring done\n-- Generating done\n"
        "[ 50%] Building CXX object core.o\n/work/core.cpp:9:5: error: 'frob' was not declared in this scope\n"
        "make: *** [Makefile:136: all] Error 2\n",
        INNOCENT,
        "program-bug",
    ),
]

GENERAL: list[Case] = [
    ("a file that is too large", LOGGED + raised("OSError: [Errno 27] File too large"), INNOCENT, "host-resource"),
    (
        "a shell's limit",
        "dumping step 400\ncp: error writing '/ckpt/s400.pt': File too large\nmake: *** [all] Error 1\n",
        INNOCENT,
        "host-resource",
    ),
    (
        "a signal of the limit",
        "writing shard 4\nFile size limit exceeded (core dumped)\n",
        f"{INNOCENT}",
        "host-resource",
    ),
    (
        "a limit below a checkpoint",
        STEPS
        + raised("RuntimeError: [enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0")
        .replace("    out = run", "    out = run")
        .replace(
            "Traceback",
            python("OSError: [Errno 27] File too large", f"{SITE}/torch/serialization.py|944|save|_save(obj)")
            + "\nDuring handling of the above exception, another exception "
            "occurred:\n\nTraceback",
            1,
        ),
        INNOCENT,
        "host-resource",
    ),
    (
        "a checkpoint that may not be written",
        STEPS + raised("RuntimeError: File /ckpt/s400.pt cannot be opened."),
        INNOCENT,
        "launch-config|container-config|infra|host-resource",
    ),
    (
        "a folder of checkpoints that is closed",
        STEPS
        + raised("PermissionError: [Errno 13] Permission denied: '/ckpt/s400.pt'", "torch/serialization.py:__init__"),
        INNOCENT,
        "launch-config|container-config|infra",
    ),
    (
        "a checkpoint of torch 2.9",
        STEPS
        + raised(
            "RuntimeError: open file failed with error Permission denied, fileName: /ckpt/s400.pt",
            "torch/serialization.py:_open_zipfile_writer",
        ),
        INNOCENT,
        "launch-config|container-config|infra",
    ),
    (
        "a file of safetensors that may not be written",
        STEPS
        + raised(
            "safetensors_rust.SafetensorError: Error while serializing: I/O error: Permission denied (os error 13)"
        ),
        INNOCENT,
        "container-config",
    ),
    (
        "queue.py in the folder",
        python(
            "AttributeError: module 'queue' has no attribute 'Queue'",
            "/work/train.py|2|<module>|import urllib3",
            f"{SITE}/urllib3/connectionpool.py|11|<module>|import queue",
            "/work/queue.py|4|<module>|import multiprocessing.pool",
        ),
        INNOCENT,
        "program-bug",
    ),
    (
        "random.py in the folder",
        python(
            "AttributeError: partially initialized module 'random' has no attribute 'Random' (most "
            "likely due to a circular import)",
            "/work/random.py|1|<module>|import numpy as np",
            "/usr/lib/python3.12/secrets.py|19|<module>|from random import SystemRandom",
        ),
        INNOCENT,
        "program-bug",
    ),
    (
        "types.py in the folder",
        python(
            "ImportError: cannot import name 'GenericAlias' from partially initialized module 'types' "
            "(most likely due to a circular import) (/work/types.py)",
            "/usr/lib/python3.12/functools.py|22|<module>|from types import GenericAlias",
            "/work/types.py|1|<module>|import enum",
        ),
        INNOCENT,
        "program-bug",
    ),
    (
        "Java: a class of a newer Java",
        "Error: LinkageError occurred while loading main class org.acme.Main\n"
        "\tjava.lang.UnsupportedClassVersionError: org/acme/Main has been compiled by a more recent version of "
        "the Java Runtime "
        "(class file version 65.0), this version of the Java Runtime only recognizes class file versions up to 61.0\n",
        INNOCENT,
        "version-mismatch",
    ),
    (
        "Java: in a thread",
        'Exception in thread "main" java.lang.UnsupportedClassVersionError: org/acme/Job has been compiled by a '
        "more recent version of the Java Runtime (class file version 61.0), this version of the Java Runtime "
        "only recognizes class "
        "file versions up to 55.0\n\tat java.base/java.lang.ClassLoader.defineClass1(Native Method)\n",
        INNOCENT,
        "version-mismatch",
    ),
    (
        "Spark: a class of a newer Java",
        "26/05/02 11:04:01 ERROR SparkSubmit: Failed to load class\n"
        "java.lang.LinkageError: loading constraint\nCaused by: java.lang.UnsupportedClassVersionError: "
        "org/acme/Udf has been compiled by a "
        "more recent version of the Java Runtime (class file version 61.0)\n",
        INNOCENT,
        "version-mismatch",
    ),
]

SIGNALS: list[Case] = [
    (
        "gdb in a batch",
        "[Thread debugging using libthread_db enabled]\nstep 1\n\nProgram received signal SIGSEGV, Segmentation "
        "fault.\n0x00005555555551a1 in fill (at=0x0, n=8) at src/fill.c:9\n9\t\tat[n] = 1;\n#0  "
        "0x00005555555551a1 in fill "
        "(at=0x0, n=8) at src/fill.c:9\n#1  0x00005555555551d4 in main () at src/fill.c:21\n",
        f"{INNOCENT}|{OPEN}",
        "program-bug|unknown",
    ),
    (
        "gdb: a thread",
        '[New Thread 0x7ffff6dff6c0 (LWP 4411)]\n\nThread 2 "worker" received signal SIGSEGV, Segmentation fault.\n'
        "[Switching to Thread 0x7ffff6dff6c0 (LWP 4411)]\n0x0000555555555280 in pop (q=0x0) at "
        "src/queue.cc:40\n40\tauto* at = q->head;\n"
        "#0  pop (q=0x0) at src/queue.cc:40\n",
        f"{INNOCENT}|{OPEN}",
        "program-bug|unknown",
    ),
    (
        "gdb: abort",
        "terminate called after throwing an instance of 'std::out_of_range'\n  what():  map::at\n\nProgram "
        "received signal "
        "SIGABRT, Aborted.\n__pthread_kill_implementation (no_tid=0, signo=6) at ./nptl/pthread_kill.c:44\n#0  "
        "main () at src/a.cc:9\n",
        INNOCENT,
        "program-bug",
    ),
    (
        "GNU parallel: one of many",
        "parallel: This job failed:\ngzip -dc shards/0007.gz > /tmp/7\ngzip: shards/0007.gz: unexpected end of file\n",
        INNOCENT,
        "corrupt-data",
    ),
    (
        "GNU parallel: another program",
        "unpacked 0001\nunpacked 0002\nxz: shards/0003.xz: Unexpected end of input\nparallel: This job failed:\n"
        "xz -dk shards/0003.xz\n",
        INNOCENT,
        "corrupt-data",
    ),
    (
        "zcat in a pipe",
        "12 shards\ngzip: shards/0011.gz: unexpected end of file\nmake: *** [Makefile:9: all] Error 1\n",
        INNOCENT,
        "corrupt-data",
    ),
    (
        "a mapped file shrank",
        "mapped /data/train.bin (4.1 GB)\n" + STEPS + "Fatal Python error: Bus error\n\nCurrent thread "
        '0x00007f2a (most recent call first):\n  File "/usr/lib/python3.12/mmap.py", line 4 in read\n  File '
        '"/work/read.py", line 20 '
        "in row\n\nBus error (core dumped)\n",
        f"{INNOCENT}|{OPEN}",
        "corrupt-data|infra|host-resource|unknown-cut-log",
    ),
    (
        "numpy's memmap",
        "rows: 44100 (memmap)\nrun.sh: line 4:  1431 Bus error               (core dumped) python read.py\n",
        f"{INNOCENT}|{OPEN}",
        "unknown-cut-log|corrupt-data|host-resource|infra",
    ),
    (
        "a pool that the program ended",
        STEPS
        + python(
            "ValueError: Pool not running",
            "/work/run.py|20|main|pool.map(f, rows)",
            "/usr/lib/python3.12/multiprocessing/pool.py|362|map|return self._map_async()",
        ),
        INNOCENT,
        "program-bug",
    ),
    *(
        (
            f"a manager that the program ended: {error}",
            STEPS
            + python(
                error,
                "/work/run.py|20|main|shared['n'] += 1",
                "/usr/lib/python3.12/multiprocessing/managers.py|818|_callmethod|self._connect()",
                "/usr/lib/python3.12/multiprocessing/connection.py|637|SocketClient|s.connect(address)",
            ),
            INNOCENT,
            "program-bug",
        )
        for error in (
            "FileNotFoundError: [Errno 2] No such file or directory",
            "ConnectionRefusedError: [Errno 111] Connection refused",
            "BrokenPipeError: [Errno 32] Broken pipe",
            "EOFError",
        )
    ),
    (
        "twin: the manager was killed for memory",
        "[ 4410.2] Out of memory: Killed process 1431 (python) total-vm:91244kB, anon-rss:88112kB\n"
        + python("EOFError", "/usr/lib/python3.12/multiprocessing/managers.py|820|_callmethod|conn.send(1)"),
        INNOCENT,
        "host-resource",
    ),
    (
        "gdb: a file that shrank",
        "Program received signal SIGBUS, Bus error.\n0x0000555555555210 in sum (at=0x7ffff7fb8000) at src/sum.c:12\n"
        "#0  0x0000555555555210 in sum (at=0x7ffff7fb8000, n=9) at src/sum.c:12\n",
        INNOCENT,
        "program-bug",
    ),
    (
        "an executor that was shut down",
        STEPS
        + python(
            "RuntimeError: cannot schedule new futures after shutdown",
            "/work/run.py|20|main|pool.submit(f)",
            "/usr/lib/python3.12/concurrent/futures/thread.py|171|submit|raise RuntimeError()",
        ),
        INNOCENT,
        "program-bug",
    ),
]

CASES = (*BYSTANDERS, *HEALTHY, *ABSENT_DRIVER, *EXCERPTS, *TOOLKITS, *GENERAL, *SIGNALS)


@gathered(CASES)
def test_the_kind_and_the_cause_are_told(name: str, text: str, kinds: str, causes: str) -> None:
    answer = told(text)
    assert answer.category in kinds.split("|"), (answer.category, answer.because)
    assert answer.cause in causes.split("|"), (answer.cause, answer.because)


def test_the_version_ends_where_the_sentence_does() -> None:
    for found, built in (("9.1.0", "9.3.0"), ("8.9.4", "9.1.1"), ("9.5.1", "9.8.0")):
        answer = told(
            f"E0502 11:04:31.000000 140 cuda_dnn.cc:522] Loaded runtime CuDNN library: {found} but source was "
            f"compiled with: "
            f"{built}.  CuDNN library needs to have matching major version and equal or higher minor version.\n"
        )
        assert answer.category == "cudnn-version-mismatch" and f"{built}." not in answer.because, answer.because
