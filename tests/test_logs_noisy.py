"""Logs of programs that complain and come to a good end, by the trait that tells so, half of them with a twin that
really fails."""

from __future__ import annotations

from gathered import gathered
from logs import told

INNOCENT, OPEN = "not-gpu-env", "insufficient-evidence"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 23.65 GiB"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"


def logged(words: str, *, place: str, error: str, steps: int = 14, last: str = "") -> str:
    """A logger that names its file and line in brackets, notes an exception and goes on for ``steps`` lines."""
    before = "".join(f"2026-05-02 11:04:{n:02d},120 INFO [{place}:31] {words} {n} in 0.{n + 2} s\n" for n in range(4))
    trace = (
        f"2026-05-02 11:04:05,120 ERROR [{place}:44] {words} 4 is left out\nTraceback (most recent call last):\n"
        f'  File "/srv/app/{place}", line 40, in one\n    run(n)\n{error}\n'
    )
    after = "".join(
        f"2026-05-02 11:04:{n + 6:02d},120 INFO [{place}:31] {words} {n + 5} in 0.{n + 2} s\n" for n in range(steps)
    )
    return before + trace + after + last


def columns(items: list[str], *, ends: str = "") -> str:
    """What rich's logger prints: the time once a second, the level in a column of its own, tracebacks indented."""
    trace = (
        '                    Traceback (most recent call last):\n                      File "/b.py", line 9, in one\n'
        f"                        run(size)\n                    {OOM}\n"
    )
    lines = []
    for n, item in enumerate(items):
        lead = "[10:31:07] " if n == 0 else " " * 11
        level = "ERROR    " if "!" in item else "INFO     "
        lines.append(f"{lead}{level}{item.strip('!'):<60}b.py:{20 + n}\n" + (trace if "!" in item else ""))
    return "".join(lines) + ends


def workflow(*steps: tuple[str, str], ends: str = "") -> str:
    """A log of GitHub Actions: each step with what it prints."""
    stamp = "2026-10-25T20:31:34.3915395Z "
    text = "".join(
        f"{stamp}##[group]Run {name}\n{stamp}##[endgroup]\n" + "".join(f"{stamp}{x}\n" for x in said.split("\n"))
        for name, said in steps
    )
    return text + "".join(f"{stamp}{x}\n" for x in ends.split("\n") if x)


POST = "Post job cleanup.\nCleaning up orphan processes"


def steps(words: str, count: int = 12) -> str:
    """Lines of work."""
    return "".join(f"{words} {n} loss {2.4 / (n + 1):.4f}\n" for n in range(count))


def compose(name: str, *said: str) -> str:
    """Lines of one service."""
    return "".join(f"{name}-1  | {each}\n" for each in said)


def records(*said: tuple[str, str, str]) -> str:
    """Lines of JSON as structlog writes them: level, event, and further fields."""
    head = '"job": "a-7", "timestamp": "2026-11-02T04:00:0'
    return "".join(
        f'{{"event": "{event}", {fields}{head}{n % 10}.1Z", "level": "{level}"}}\n'
        for n, (level, event, fields) in enumerate(said)
    )


PARTS = tuple(("info", "part", f'"n": {n}, "ms": {40 + n}, ') for n in range(9))
NO_ROOM = '"error": "CUDA out of memory. Tried to allocate 2.00 GiB.", '
LOOP = (
    "Task exception was never retrieved\nfuture: <Task finished name='Task-2' coro=<part() done, defined at a.py:2> "
    "exception=RuntimeError('CUDA error: out of memory')>\nTraceback (most recent call last):\n"
    '  File "/srv/a.py", line 4, in part\n    raise RuntimeError("CUDA error: out of memory")\n'
    "RuntimeError: CUDA error: out of memory\n"
)
NOTEBOOK = (
    "[NbConvertApp] Converting notebook n.ipynb to markdown\n# Memory\n\n\n```python\nnet.to('cuda')\n```\n\n\n"
    "    ---------------------------------------------------------------------------\n\n    RuntimeError"
    "                              Traceback (most recent call last)\n\n    Cell In[1], line 1\n    ----> 1 "
    "net.to('cuda')"
    f"\n\n\n    {NO_DRIVER}\n\n\n"
)
CMAKE = (
    "-- The CXX compiler identification is GNU 12.2.0\nCMake Warning at CMakeLists.txt:5 (message):\n  cuBLAS "
    "not found, "
    "the GPU's part reports\n  CUBLAS_STATUS_NOT_INITIALIZED\n\n\n-- Configuring done (0.4s)\n-- Generating "
    "done (0.0s)\n"
)
TEE = "[default0]:"
FULL = (
    f'{TEE}Traceback (most recent call last):\n{TEE}  File "/srv/t.py", line 11, in <module>\n{TEE}    out.flush()\n'
    f"{TEE}OSError: [Errno 28] No space left on device\n"
)


BUSY = "".join(
    f"load: CUDA error: all CUDA-capable devices are busy or unavailable; next look in 0.0{n} s\n" for n in (2, 4, 8)
)
STEPS_BEFORE = (
    "Sending build context to Docker daemon  4.6kB\nStep 1/3 : FROM base\n ---> 2ced002dffa6\nStep 2/3 : RUN "
    "nvidia-smi "
    "|| echo none\n ---> Running in 68943dc4c5fa\n/bin/sh: 1: nvidia-smi: not found\nnone\n ---> 573f6143b181\n"
)


ENDS_WELL = {
    # who says an error again was there to say it
    "said-again": BUSY + "loaded 40 rows\nscore 0 4.0\nscore 1 2.0\nscore 2 1.3\n",
    "nothing-missing": '[23:24:49] DEBUG:urllib3.connectionpool:http://10.0.0.1 "GET /a.bin HTTP/1.1" 200 40000\n'
    "[23:24:49]   ok    a.bin     40000 bytes\n[23:24:49] WARNING:root:telemetry is off: "
    "HTTPConnectionPool(host='10.0.0.1', "
    "port=18432): Max retries exceeded with url: /t\n[23:24:49] 520000 bytes fetched, verified, nothing missing\n"
    "[23:24:49] the cache is skipped\n",
    # records whose message alone says nothing of the work
    "records-spilled": records(*PARTS[:4], ("error", "part.spilled", NO_ROOM), *PARTS[4:]),
    "records-ended": records(*PARTS[:2], ("error", "part.spilled", NO_ROOM), ("info", "end", '"exit_code": 0, ')),
    # what an event loop says of a task that nobody waits for
    "task-of-a-loop": LOOP + "".join(f"{n} {n * n}\n" for n in range(6)) + "rows 210\n",
    # a cell that was let to raise
    "notebook-cell": NOTEBOOK + "```python\nprint('mean', x.mean())\n```\n\n    mean 0.5\n    \n",
    "cmake-warns": CMAKE + "[2/2] Linking CXX executable t\n100% tests passed, 0 tests failed out of 8\n",
    "all-of-a-suite": '--- arc\narc: 0.1\n--- lamb\nTraceback (most recent call last):\n  File "task.py", line '
    "3, in <module>\n"
    f"{OOM}\nlamb: exit 1, run again with one thread\nlamb: 0.7\n--- wino\nwino: 0.8\nrmdir: failed to remove 'locks'\n"
    "suite: 3 of 3 tasks, mean 0.537\nmonitor stopped (143)\n",
    "commits-of-a-release": "Changes since 1.4:\n2dee03d fix: RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n"
    "c488b8e (tag: 1.4) Catch torch.OutOfMemoryError: CUDA out of memory\nmini 1.5 is ready\n",
    # who logs by file and line, or in columns, is one process
    "bracket-python": logged("clip", place="clips.py", error=OOM),
    "bracket-cpp": logged("tile", place="tiles.cpp", error=NO_DRIVER),
    "bracket-scored": logged("prompt", place="score.py", error=OOM, last="wrote scores.json\n"),
    "columns-bench": columns(
        [
            "size 1: 2 ms",
            "size 2: 3 ms",
            "size 4 is too large!",
            "size 3: 4 ms",
            "size 5: 4 ms",
            "size 6: 6 ms",
            "6 sizes, written to sizes.csv",
        ]
    ),
    "columns-first": columns(
        [
            "warm-up 1 of 3 took 9 ms",
            "plan 1 fails!",
            "plan 2: 8 ms",
            "plan 3: 7 ms",
            "plan 4: 9 ms",
            "plan 2 is the fastest, 7 ms",
        ]
    ),
    "columns-many": columns(["a 1 ms", *["b 2 does not fit!", "c 3 ms", "d 4 ms"] * 4, "done, 9 rows in out.csv"]),
    # a workflow whose steps all passed
    "workflow-disk": workflow(
        ("free-disk", "E: Unable to locate package ^ghc-.*\nerror: no such service"),
        ("make wheel", "nvcc warning : deprecated\nSuccessfully built x.whl"),
        ends=POST,
    ),
    "workflow-cache": workflow(
        ("restore", "Warning: cache failed: Error: getaddrinfo EAI_AGAIN\nfatal: no cache"),
        ("pytest", "41 passed"),
        ends=POST,
    ),
    "workflow-smi": workflow(
        ("nvidia-smi || true", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
        ("ctest", "100% tests passed, 0 tests failed out of 8"),
        ends=POST,
    ),
    # what is not the last step of a build
    "build-optional": "#7 [3/5] RUN python -c 'import flash_attn' || true\n#7 0.3 Traceback (most recent call last):\n"
    "#7 0.3   File \"<string>\", line 1, in <module>\n#7 0.3 ModuleNotFoundError: No module named 'flash_attn'\n"
    "#7 DONE 0.4s\n#8 [4/5] RUN make\n#8 1.2 ok\n#8 DONE 1.3s\n#9 exporting to image\n#9 DONE 0.4s\n",
    # loops of a shell that announce each try
    "announced-sizes": 'fit.sh: 64 rows\nTraceback (most recent call last):\n  File "<string>", line 1, in <module>\n'
    "MemoryError\nfit.sh: 32 rows\nfitted 32\nfit.sh: the table has 32 rows\n",
    "announced-ports": 'up.sh: port 7001\nTraceback (most recent call last):\n  File "s.py", line 3, in <module>\n'
    "OSError: [Errno 98] Address already in use\nup.sh: port 7002\nup.sh: the server is up\nGET /a 200\nGET /b 200\n",
    # services that are started again
    "service-go-panic": "Attaching to db-1, web-1\n" + compose("db", "panic: open /data/wal: busy") + "db-1 exited "
    "with code 2\n"
    + compose("db", "starting 1.2 (restart: on-failure)", "wal recovered", "ready on :6333")
    + compose("web", *(f"indexed {n} of 9" for n in range(1, 10)))
    + "web-1 exited with code 0\n",
    "service-starting": compose(
        "db",
        "FATAL: the database system is starting up",
        "ready to accept connections",
        *(f"checkpoint {n} complete" for n in range(4)),
    )
    + compose("app", *(f"row {n} written" for n in range(8))),
    # what Python only notes at the end
    "at-exit": steps("step") + "model saved\nException ignored in atexit callback: <function push at 0x7f>\nTraceback "
    '(most recent call last):\n  File "/srv/t.py", line 8, in push\nConnectionError: no route to tracker\n',
    "at-exit-old": steps("step") + 'Error in atexit._run_exitfuncs:\nTraceback (most recent call last):\n  File "/srv/'
    't.py", line 8, in push\nOSError: [Errno 9] Bad file descriptor\n',
    "in-weakref": steps("batch") + "Exception ignored in: <function _on_drop at 0x7f>\nTraceback (most recent call "
    'last):\n  File "/srv/t.py", line 8, in _on_drop\nRuntimeError: CUDA error: driver shutting down\nwrote out.bin\n',
    # a thread of Java that is not the first
    "java-thread": steps("INFO: row") + 'Exception in thread "metrics-1" java.net.ConnectException: refused\n'
    "\tat Push.run(Push.java:8)\n" + steps("INFO: row") + "rows are written\n",
    # what a scheduler of scale or a counter says of what it is to do
    "scale-hysteresis": "[2026-07-01 12:59:50,112] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank "
    "0 Skipping step. Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1\n" + steps("step", 30),
    # a pod that has a node, a volume and an image at last
    "pod-mount": '5m  Warning  FailedMount  pod/a-1  MountVolume.SetUp failed for volume "w" : timed out waiting for '
    "the condition\n4m  Normal  Started  pod/a-1  Started container a\n",
    "pod-queue": "9m  Warning  FailedScheduling  pod/t-0  0/4 nodes are available: 4 Insufficient nvidia.com/gpu.\n8m  "
    "Normal  Scheduled  pod/t-0  Successfully assigned a/t-0 to g\n7m  Normal  Started  pod/t-0  Started container t\n",
    # what is tried on the way to what is looked for
    "bisection": "running  'python' 't.py'\nTraceback (most recent call last):\n  File \"t.py\", line 2, in <module>\n"
    f"{NO_DRIVER}\nBisecting: 3 revisions left to test after this (roughly 2 steps)\nrunning  'python' 't.py'\nok\n"
    "4f9d2634f9d2634f9d2634f9d2634f9d2634f9d26 is the first bad commit\n",
    "hooks-again": "black....................................................Failed\n- hook id: black\n- exit code: 1\n"
    "fatal: reformatted 3 files\nblack....................................................Passed\n",
}
FAILS = {
    "said-again": (BUSY, "gpu-hardware-unknown-error"),
    # a step begins where the one before it did not fail
    "step-of-a-build": (
        STEPS_BEFORE + "Step 3/3 : COPY a.bin /a.bin\nCOPY failed: file not found in build context or excluded by "
        ".dockerignore: stat a.bin: file does not exist\nmake: *** [Makefile:7: image] Error 1\n",
        INNOCENT,
    ),
    "last-step-of-a-build": (
        STEPS_BEFORE + 'Step 3/3 : RUN python -c "import torch; torch.ones(1).cuda()"\n ---> Running in 6ccd290779b6\n'
        f"{NO_DRIVER}\nThe command '/bin/sh -c python' returned a non-zero code: 1\n",
        "cuda-init-no-device",
    ),
    "left-with": (
        "".join(f"mesh block {n}: 4{n}000 tets, quality 0.9{n}\n" for n in range(9))
        + "solve.cu:7 cudaGetDeviceCount(&n) -> cudaErrorNoDevice: no CUDA-capable device is detected\nsolve "
        "left with 9\n",
        "cuda-init-no-device",
    ),
    "records-spilled": (
        records(
            *PARTS[:4],
            ("error", "scatter.cu:57 launch", '"code": 700, "text": "an illegal memory access was encountered", '),
            ("fatal", "context is lost, leaving", '"exit": 134, '),
        ),
        "illegal-memory-access",
    ),
    "task-of-a-loop": (LOOP.replace("Task exception was never retrieved\n", "step 1\nstep 2\n"), "out-of-memory"),
    "notebook-cell": (
        NOTEBOOK.partition("#")[0]
        + 'Traceback (most recent call last):\n  File "/opt/venv/bin/jupyter-nbconvert", line 8, in '
        '<module>\n    sys.exit(main())\n  File "/opt/venv/lib/python3.11/site-packages/nbclient/client.py", '
        "line 918, in "
        "_check_raise_for_error\n    raise CellExecutionError.from_cell_and_msg(cell, exec_reply_content)\n"
        "nbclient.exceptions.CellExecutionError: An error occurred while executing the following cell:\n"
        f"------------------\nnet.to('cuda')\n------------------\n\n\n{NO_DRIVER}\n",
        "cuda-init-no-device",
    ),
    "cmake-warns": (
        CMAKE
        + " 1/1 Test  #1: syrk ....***Failed    0.01 sec\nMISMATCH in triangle\n0% tests passed, 1 tests failed out "
        "of 1\nThe following tests FAILED:\n\t  1 - syrk (Failed)\nErrors while running CTest\n",
        INNOCENT,
    ),
    "coverage-is-short": (
        "==== test session starts ====\ntest_a.py .xs\nFAIL Required test coverage of 90% not reached. Total coverage: "
        "45.45%\n==== short test summary info ====\nXFAIL test_a.py::test_b - CUDA error: no kernel image is "
        "available for "
        "execution on the device\n==== 1 passed, 1 xfailed in 0.11s ====\n",
        INNOCENT,
    ),
    "passes-unexpectedly": (
        "==== test session starts ====\ntest_a.py .F\n==== FAILURES ====\n____ test_b ____\n[XPASS(strict)] "
        "CUDA error: an "
        "illegal memory access was encountered\n==== 1 failed, 1 passed in 0.11s ====\n",
        INNOCENT,
    ),
    # stderr comes before stdout, in which the work goes on behind an error
    "dies-above": (
        FULL
        + "".join(f"{TEE}step {n} loss 1.02{n}\n" for n in range(4))
        + f"{TEE}step 4: {OOM.partition(': ')[2]}\n"
        + "".join(f"{TEE}step {n} loss 1.02{n}\n" for n in range(5, 9))
        + "E1201 04:49:02.036000 1849 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
        "local_rank: 0 (pid: 1857) of binary: python\n",
        INNOCENT,
    ),
    "engine-stops": (
        "".join(f"2026-11-30 07:00:{n}0,120 INFO http POST /v1/complete 200 in {n} ms\n" for n in range(4))
        + "2026-11-30 07:01:59,120 ERROR sched step failed\nTraceback (most recent call last):\n  File "
        '"/srv/w.py", line 9, in'
        f" step\n    q @ k\n{OOM}\n"
        + "".join(
            f"2026-11-30 07:02:0{n},120 ERROR http POST /v1/complete 503 engine is not running\n" for n in range(4)
        )
        + "2026-11-30 07:02:18,120 INFO main engine dead, shutting down the server\n",
        "out-of-memory",
    ),
    "bracket-python": (logged("clip", place="clips.py", error=OOM, steps=0), "out-of-memory"),
    "bracket-scored": (logged("prompt", place="score.py", error=OOM, steps=0, last="exit status 1\n"), "out-of-memory"),
    "columns-bench": (columns(["size 1: 2 ms", "size 2: 3 ms", "size 4 is too large!"]), "out-of-memory"),
    "workflow-smi": (
        workflow(("make", "ok"), ("train", NO_DRIVER), ends="##[error]Process completed with exit code 1.\n" + POST),
        "cuda-init-no-device",
    ),
    "build-last": (
        "#7 [3/5] RUN true\n#7 DONE 0.1s\n#8 [4/5] RUN python -c 'import torch; torch.ones(1).cuda()'\n"
        f'#8 0.9 {NO_DRIVER}\n#8 ERROR: process "/bin/sh -c python" did not complete successfully: exit code: 1'
        "\n",
        "cuda-init-no-device",
    ),
    "announced-sizes": (
        'fit.sh: 64 rows\nTraceback (most recent call last):\n  File "<string>", line 1, in <module>\n'
        'MemoryError\nfit.sh: 32 rows\nTraceback (most recent call last):\n  File "<string>", line 1, in '
        "<module>\nMemoryError\nfit.sh: nothing fits, giving up\n",
        INNOCENT,
    ),
    "service-go-panic": (
        "Attaching to db-1, web-1\n"
        + compose("web", "indexed 1 of 9")
        + compose("db", "panic: open /data/wal: busy")
        + "db-1 exited with code 2\nAborting on container exit...\n",
        INNOCENT,
    ),
    "at-exit": (
        steps("step") + f'Traceback (most recent call last):\n  File "/srv/t.py", line 8, in <module>\n{NO_DRIVER}'
        "\nException ignored in atexit callback: <function push at 0x7f>\nTraceback (most recent call last):\n  "
        'File "/srv/t.py", line 9, in push\nConnectionError: no route\n',
        "cuda-init-no-device",
    ),
    "java-thread": (
        steps("INFO: row") + 'Exception in thread "main" java.net.ConnectException: refused\n\tat Push.run('
        "Push.java:8)\n",
        INNOCENT,
    ),
    "worker-of-number-0": (
        steps("job") + "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling "
        "`cublasCreate(handle)`\nworker 0 failed, no further worker, the service ends with 1\n",
        "cublas-not-initialized",
    ),
    "rank-of-number-0": (steps("step") + f"{OOM}\nrank 0 failed, no rank is left\n", "out-of-memory"),
    "pod-queue": (
        "9m  Warning  FailedScheduling  pod/t-0  0/4 nodes are available: 4 Insufficient nvidia.com/gpu.\n8m  "
        "Normal  Started  pod/other-3  Started container t\n",
        INNOCENT,
    ),
    "bisection": (
        "running  'python' 't.py'\nTraceback (most recent call last):\n  File \"t.py\", line 2, in <module>\n"
        f"{NO_DRIVER}\nerror: bisect run failed: exit code 128 from 'python' 't.py' is < 0 or >= 128\n",
        "cuda-init-no-device",
    ),
    "hooks-again": (
        "black................................................Passed\nmypy.....................................Failed"
        "\n- hook id: mypy\n- exit code: 1\n\nfound 2 errors\n",
        INNOCENT,
    ),
    "tests-skipped": (
        "t_a.py::test_x[209-no kernel image is available for execution on the device] PASSED [ 50%]\n"
        "=== FAILURES ===\n___ test_sum ___\n>       assert close(a, b)\nE       AssertionError: Tensor-likes "
        "are not close!\nt_a.py:9: AssertionError\n=== 1 failed, 3 passed, 2 skipped in 1.20s ===\n",
        INNOCENT,
    ),
}


@gathered(ENDS_WELL)
def test_what_complains_and_ends_well_is_no_failure(name: str) -> None:
    answer = told(ENDS_WELL[name])
    assert answer.category == OPEN, (answer.category, answer.because)


@gathered(FAILS)
def test_its_twin_that_fails_is_told(name: str) -> None:
    text, kind = FAILS[name]
    answer = told(text)
    assert answer.category == kind, (answer.category, answer.because)


def test_the_exception_of_a_list_of_faults_is_told_with_the_first_of_them() -> None:
    answer = told(
        'Traceback (most recent call last):\n  File "/srv/serve.py", line 3, in <module>\n    Config(**given)\n'
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for Config\n"
        "  Value error, length 65536 is greater than that of the model, and so a CUDA error [type=value_error]\n"
    )
    assert answer.category == INNOCENT
    assert any("65536" in mark.line.text for mark in answer.evidence)
