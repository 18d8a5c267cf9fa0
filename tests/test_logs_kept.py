"""No error is lost by what stands around it: every wording of one in every form, in every place where logs have it."""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Callable, Iterator
from zlib import crc32

import pytest
from gathered import gathered
from logs import told

from envkit import facts
from envkit.logs.reader import Input, read
from envkit.logs.story import tell
from envkit.logs.verdict import explain

OPEN = "insufficient-evidence"

# How the words of an error are printed, and the kinds that may be said of it.
STICKY = {
    "RuntimeError: CUDA error: an illegal memory access was encountered": "illegal-memory-access",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered": "illegal-memory-access",
    "RuntimeError: CUDA error: device-side assert triggered": "device-side-assert",
    "torch.AcceleratorError: CUDA error: misaligned address": "misaligned-address",
    "RuntimeError: CUDA error: unspecified launch failure": "gpu-hardware-unknown-error",
    "RuntimeError: CUDA error: an illegal instruction was encountered": "illegal-instruction",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": "ecc-uncorrectable",
    "RuntimeError: CUDA error: the launch timed out and was terminated": "watchdog-timeout",
    "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was "
    "encountered": "illegal-memory-access",
    "numba.cuda.cudadrv.driver.CudaAPIError: [700] Call to cuMemcpyDtoH results in CUDA_ERROR_ILLEGAL_ADDRESS": (
        "illegal-memory-access"
    ),
    "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered": "illegal-memory-access",
}
ENDING = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 1.20 GiB is free.": "out-of-memory",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device": "no-kernel-image",
    "RuntimeError: No CUDA GPUs are available": "cuda-init-no-device",
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU": (
        "cuda-init-no-device"
    ),
    "AssertionError: Torch not compiled with CUDA enabled": "torch-not-compiled-with-cuda",
    "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle, opa)`": (
        "cublas-execution-failed"
    ),
    "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED": "cudnn-execution-failed",
    "RuntimeError: CUDA error: invalid device ordinal": "invalid-device-ordinal",
    "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory": "missing-shared-library",
    "KeyError: 'labels'": "not-gpu-env",
    "NameError: name 'cuda_batch' is not defined": "not-gpu-env",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/gpu/train.csv'": "not-gpu-env",
    "ModuleNotFoundError: No module named 'sentencepiece'": "not-gpu-env",
    "AssertionError: batch must be divisible by the number of GPUs": "not-gpu-env",
    "ZeroDivisionError: division by zero": "not-gpu-env",
    "ValueError: too many values to unpack (expected 2)": "not-gpu-env",
}
ASSERTED = (
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1478: indexSelectSmallIndex: block: [{n},0,0], thread: [0,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed."
)


def raised(words: str) -> str:
    """The words as Python ends a program with them."""
    return (
        'Traceback (most recent call last):\n  File "/app/train.py", line 31, in <module>\n    main()\n'
        f'  File "/app/train.py", line 12, in main\n    loss = step(batch)\n           ^^^^^^^^^^^\n{words}\n'
    )


def bare(words: str) -> str:
    """The traceback as loggers and launchers leave it, without the lines of code."""
    return f'Traceback (most recent call last):\n  File "/app/train.py", line 12, in <module>\n{words}\n'


def thrown(words: str) -> str:
    """The words as C++ ends a program with them."""
    return f"terminate called after throwing an instance of 'c10::Error'\n  what():  {words.partition(': ')[2]}\n"


def alone(words: str) -> str:
    """The words as a C program prints them."""
    return f"{words.partition(': ')[2]}\n"


def reported(words: str) -> str:
    """The words as a program's last line has them that catches everything."""
    return f"Training failed at step 12: {words}\n"


def logged(words: str) -> str:
    """The words as a logger's error, the last that the program writes."""
    return f"2026-03-01 00:00:31,417 ERROR trainer: step 12 failed: {words}\n"


def asserted(words: str) -> str:
    """The lines of a kernel's assertion before the exception, as a warp prints them."""
    return "".join(f"{ASSERTED.format(n=n)}\n" for n in range(35)) + raised(words)


METRICS = [
    f"2026-03-01 00:00:{n:02d},1 - trainer - INFO - step {n} loss 0.{n * 37 % 97:02d}35 lr {n + 1}.034e-01\n"
    for n in range(60)
]
STEPS = [f"step {n} loss 0.{97 - n}\n" for n in range(60)]
RANKED = [f"[rank{n % 4}]: {line}" for n, line in enumerate(STEPS)]
BARS = "".join(
    f"\repoch 1:  {n}%|{'#' * (n // 10):10}| {n}/100 [00:{n % 60:02d}<01:10,  1.4it/s, loss=0.{n:02d}]"
    for n in range(40)
)
WANDB = (
    "wandb: \nwandb: Run history:\nwandb: loss 1\nwandb: Synced 5 W&B file(s), 0 media file(s)\n"
    "wandb: Find logs at: ./wandb/run-20260301/logs\n"
)


def prefixed(before: str) -> Callable[[str], str]:
    """Puts the same before each line."""
    return lambda text: "".join(f"{before}{line}\n" for line in text.splitlines())


def as_json(text: str) -> str:
    """One record of a logger that writes JSON, among others of the same process."""
    lines = [json.dumps({"level": "info", "ts": 1700000000 + n, "msg": f"step {n} loss 0.{n}"}) for n in range(30)]
    error = {"level": "error", "ts": 1700000031, "msg": text.rstrip("\n")}
    return "\n".join([*lines, json.dumps(error), *lines[:1]]) + "\n"


def as_exception(text: str) -> str:
    """One record of a logger that writes JSON, with the traceback in a field of its own."""
    record = {"severity": "ERROR", "message": "training failed", "exc_info": text.rstrip("\n")}
    return json.dumps({"severity": "INFO", "message": "started"}) + "\n" + json.dumps(record) + "\n"


def as_event(text: str) -> str:
    """One record of structlog, which calls its message an event."""
    record = {"event": text.rstrip("\n"), "level": "critical", "timestamp": "2026-03-01T00:00:31Z"}
    return json.dumps({"event": "started", "level": "info"}) + "\n" + json.dumps(record) + "\n"


def as_loguru(text: str) -> str:
    """One record of loguru, which holds the whole line beside its parts."""
    record = {"text": f"00:00:31 | ERROR | t:main:3 - failed\n{text}", "record": {"level": {"name": "ERROR", "no": 40}}}
    return json.dumps(record) + "\n"


def as_telemetry(text: str) -> str:
    """One record of OpenTelemetry's collector."""
    return (
        json.dumps({"timeUnixNano": "1700000031000000000", "severityText": "ERROR", "body": text.rstrip("\n")}) + "\n"
    )


def wrapped(text: str) -> str:
    """As a terminal of 90 columns, or mail, breaks it."""
    return "".join(
        "".join(f"{part}\n" for part in textwrap.wrap(line, 90, drop_whitespace=False, break_on_hyphens=False) or [""])
        for line in text.splitlines()
    )


def kubernetes(text: str) -> str:
    """With the time that `kubectl logs --timestamps` puts before each line."""
    return "".join(f"2026-03-01T00:01:{n % 60:02d}.123456789Z {line}\n" for n, line in enumerate(text.splitlines()))


# What leaves open how the process went on, or is of others.
AROUND: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "metrics before": lambda text: "".join(METRICS[:30]) + text,
    "steps before": lambda text: "".join(STEPS[:30]) + text,
    "bars before": lambda text: BARS + "\n" + text,
    "bars around": lambda text: BARS + "\n" + text + BARS + "\n",
    "other ranks around": lambda text: "".join(RANKED) + prefixed("[rank6]: ")(text) + "".join(RANKED[:8]),
    "a rank among lines without one": lambda text: (
        "".join(METRICS[:30]) + prefixed("[rank6]: ")(text) + "".join(METRICS[39:41])
    ),
    "torchrun": lambda text: "".join(RANKED) + prefixed("[default3]:")(text),
    "srun --label": lambda text: prefixed("0: ")("".join(STEPS[:9])) + prefixed("3: ")(text) + "0: step 9 loss 0.3\n",
    "kubectl --timestamps": lambda text: kubernetes("".join(STEPS[:9]) + text),
    "kubectl --prefix": lambda text: prefixed("[pod/train-0/trainer] ")("".join(STEPS[:9]) + text),
    "compose": lambda text: prefixed("trainer-1  | ")("".join(STEPS[:9]) + text),
    "journald": lambda text: prefixed("Mar 01 00:00:37 node1 python3[4711]: ")("".join(STEPS[:9]) + text),
    "ends of Windows": lambda text: ("".join(STEPS[:9]) + text).replace("\n", "\r\n"),
    "colours": lambda text: "".join(STEPS[:9]) + prefixed("\x1b[31m")(text).replace("\n", "\x1b[0m\n"),
    "a quotation": prefixed("> "),
    "a comment": prefixed("# "),
    "a comment of C": prefixed("// "),
    "wrapped": lambda text: "".join(STEPS[:9]) + wrapped(text),
    "json": as_json,
    "json with a field": as_exception,
    "structlog": as_event,
    "loguru": as_loguru,
    "telemetry": as_telemetry,
    "wandb behind it": lambda text: "".join(STEPS[:9]) + text + WANDB,
    "tests that passed before": lambda text: "tests/test_a.py ...\n3 passed in 0.31s\npython train.py\n" + text,
    "a program before": lambda text: "import torch\nx = torch.ones(3)\nprint(x.sum())\nreturn x\n" + text,
    "ray": lambda text: prefixed("(RayTrainWorker pid=4711, ip=10.0.0.3) ")("".join(STEPS[:9]) + text),
    "vLLM": lambda text: prefixed("(EngineCore_DP0 pid=77) ")("".join(STEPS[:9]) + text),
    "mpirun": lambda text: prefixed("[1,3]<stderr>: ")("".join(STEPS[:9]) + text),
    "mpirun's": lambda text: prefixed("[1,3]<stderr>:")("".join(STEPS[:9]) + text),
    "pdsh": lambda text: prefixed("node17: ")("".join(STEPS[:9]) + text),
    "accelerate": lambda text: prefixed("[rank3]: ")("".join(STEPS[:9]) + text),
    "a time": lambda text: prefixed("[2026-03-01 00:00:31] ")("".join(STEPS[:9]) + text),
    "a time and level": lambda text: prefixed("2026-03-01 00:00:31.417 | ERROR    | trainer:step:12 - ")(
        "".join(STEPS[:9]) + text
    ),
    "logging": lambda text: prefixed("ERROR:trainer:")("".join(STEPS[:9]) + text),
    "glog": lambda text: prefixed("E0301 00:00:31.417123  4711 trainer.py:12] ")("".join(STEPS[:9]) + text),
    "syslog": lambda text: prefixed("Mar  1 00:00:31 node1 trainer[4711]: ")("".join(STEPS[:9]) + text),
    "stern": lambda text: prefixed("train-0 trainer ")("".join(STEPS[:9]) + text),
    "GitHub": lambda text: prefixed("2026-03-01T00:00:31.1234567Z ")("".join(STEPS[:9]) + text),
    "deepspeed": lambda text: prefixed("node1: [rank3]: ")("".join(STEPS[:9]) + text),
    "vLLM's": lambda text: prefixed("ERROR 03-01 00:00:31 [core.py:708] ")("".join(STEPS[:9]) + text),
    "nohup": lambda text: prefixed("nohup: ")("".join(STEPS[:9]) + text),
    "emoji": lambda text: prefixed("❌ ")("".join(STEPS[:9]) + text),
    "docker's json": lambda text: "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-03-01T00:00:31.1Z"}) + "\n"
        for line in text.splitlines()
    ),
    "tail of several": lambda text: f"==> rank0.log <==\n{STEPS[0]}\n==> rank1.log <==\n{text}",
    "another rank that ends well": lambda text: (
        prefixed("[rank1]: ")("".join(STEPS[:9]) + text) + "[rank0]: step 9 loss 0.3\n[rank0]: training finished\n"
    ),
}
# After which a process with a context that is lost can only seem to work.
GOES_ON: dict[str, Callable[[str], str]] = {
    "metrics around": lambda text: "".join(METRICS[:30]) + text + "".join(METRICS[30:33]),
    "steps around": lambda text: "".join(STEPS[:30]) + text + "".join(STEPS[30:40]),
    "a logger's, and more": lambda text: (
        "".join(METRICS[:30]) + "2026-03-01 00:00:31,1 - trainer - ERROR - step failed\n" + text + METRICS[31]
    ),
    "skipped": lambda text: "".join(STEPS[:9]) + text + "skipping this batch, continuing\n" + "".join(STEPS[9:20]),
    "saved": lambda text: "".join(STEPS[:9]) + text + "saved checkpoint to /out/last.pt\n",
    "done": lambda text: "".join(STEPS[:9]) + text + "training finished\n",
    "tests that pass behind it": lambda text: text + "python -m pytest -q\n....  [100%]\n4 passed in 0.21s\n",
    "a fallback": lambda text: text + "falling back to cpu\n" + "".join(STEPS[:9]),
    "retried": lambda text: "WARNING retrying, attempt 2 of 3\n" + text + "retrying, attempt 3 of 3\nstep 1 loss 0.3\n",
    "exit code 0": lambda text: text + "=== job 4711 ended with exit code 0\n",
    "a Slurm job that completed": lambda text: text + "JobID 4711 State COMPLETED ExitCode 0:0\n",
}


def cases() -> Iterator[tuple[str, str, str]]:
    """Each with its name, its text and its kind."""
    for words, kind in (STICKY | ENDING).items():
        forms = [raised, bare, reported, logged, *([thrown, alone] if words in STICKY else [])]
        forms += [asserted] if kind == "device-side-assert" else []
        for form in forms:
            for name, around in (AROUND | GOES_ON if words in STICKY else AROUND).items():
                if words in ENDING and form in (reported, logged) and name in ("json", "bars around"):
                    continue  # its process makes steps behind it
                if form in (thrown, alone) and name.startswith("a comment"):
                    continue  # a line of source code may look like it
                yield f"{name}: {form.__name__}: {words[:60]}", around(form(words)), kind


CASES = list(cases())


def kind_of(text: str) -> str:
    """The answer's, without storing it."""
    return explain(tell([read([Input("log", io.BytesIO(text.encode()))])]), facts.load()).category


@pytest.mark.nightly  # seven thousand logs
@pytest.mark.slow
@gathered(CASES)
def test_no_error_is_lost_in_any_place(name: str, text: str, kind: str) -> None:
    assert kind_of(text) == kind, name


@gathered(case for case in CASES if crc32(case[0].encode()) % 31 == 0)
def test_no_error_is_lost(name: str, text: str, kind: str) -> None:
    assert kind_of(text) == kind, name


def test_a_rank_whose_context_is_lost_is_found_among_the_metrics_of_others() -> None:
    text = AROUND["a rank among lines without one"](bare(next(iter(STICKY))))
    answer = told(text)
    assert answer.category == "illegal-memory-access"
    assert "CUDA error: an illegal memory access" in answer.evidence[0].line.text


def test_an_error_that_was_survived_stays_beside_the_answer() -> None:
    text = "".join(STEPS[:9]) + "ERROR batch 9: CUDA out of memory. Tried to allocate 2.00 GiB\n" + "".join(STEPS[9:20])
    answer = told(text)
    assert answer.category == OPEN
    assert answer.runner_up is not None and answer.runner_up.category == "out-of-memory"
    assert "the log goes on after it" in answer.runner_up.because
