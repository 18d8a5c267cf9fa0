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


ENDS_WELL = {
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
