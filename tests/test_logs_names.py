"""An error that a program names by its enumerator or by its number alone is told, whatever it is printed in."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from envkit import facts
from envkit.logs import codes, names
from envkit.logs.knowledge import failures
from envkit.logs.reader import Input, read
from envkit.logs.story import tell
from envkit.logs.verdict import explain

FACTS = facts.load()
KINDS = [
    json.loads(line)
    for line in (Path(codes.__file__).parent / "tables" / "error_kind.jsonl").read_text("utf-8").splitlines()
]
UNTOLD = {0, 5, 6, 7, 8, 301, 402, 909, 916}  # nothing failed, or what failed is not said
QUIET = ("insufficient-evidence", "not-gpu-env")  # what says of no GPU that it failed

WRAPPED = {
    "alone": "{}",
    "after its call": "cuCtxSynchronize: {}",
    "in a sentence": "the solver gave up: {} at step 40",
    "in single quotes": "solver stopped with '{}'",
    "in double quotes": 'solver stopped with "{}"',
    "in backquotes": "solver stopped with `{}`",
    "in parentheses": "backend failed ({})",
    "in brackets": "backend failed [{}]",
    "in angle brackets": "backend failed <{}>",
    "in braces": "backend failed {{{}}}",
    "a value of YAML in double quotes": 'solver: "{}"',
    "a plain value of YAML": "  solver: {}",
    "a value of TOML": 'error = "{}"',
    "another value of TOML": 'device_status = "{}"',
    "key and value": "step=40 status={} device=0",
    "key and quoted value": 'step=40 status="{}" device=0',
    "logfmt": 'time=2026-03-04T05:06:07Z level=error msg="step failed" err="{}" device=0',
    "a record of JSON": '{{"level": "error", "msg": "step failed", "status": "{}"}}',
    "another record of JSON": '{{"event": "step_end", "device": 0, "code": "{}", "took": 1.5}}',
    "JSON over lines": '{{\n  "device": 0,\n  "status": "{}"\n}}',
    "JSON in a string": 'body: "{{\\"status\\": \\"{}\\"}}"',
    "XML": "<fault><code>{}</code></fault>",
    "Rust's Debug": 'Error: DriverError({}, "step failed")',
    "Rust's panic": "thread 'main' panicked at src/main.rs:14:10: called `Result::unwrap()` on an `Err` value: {}",
    "Rust's struct": 'Err(Fault {{ device: 0, status: "{}" }})',
    "Go's chain": "step 40: allocate workspace: device 0: {}",
    "Go's structured log": 'ERROR step failed device=0 error="allocate: {}"',
    "Java's exception": 'Exception in thread "main" org.example.GpuException: {}',
    "Java's cause": "Caused by: java.lang.IllegalStateException: native call: {}",
    "C++'s what": "terminate called after throwing an instance of 'std::runtime_error'\n  what():  {}",
    "Python's repr": "RuntimeError('{}')",
    "Python's repr in double quotes": 'GpuError("{} in step 40")',
    "Python's exception": "RuntimeError: {}",
    "Julia's exception": "ERROR: LoadError: GPU call threw: {} (step 40)",
    "Node's exception": "Uncaught Error: {}",
    "a logger": "2026-03-04 05:06:07,123 ERROR worker.py:88 step failed: {}",
    "glog": "E0304 05:06:07.123456 4711 step.cc:88] step failed: {}",
    "a pod": "[pod/train-0/main] step failed: {}",
    "a rank": "[rank3]: step failed: {}",
    "a row with tabs": "40\tdevice0\t12.5\t{}",
    "colours at the end": "step failed: \x1b[31m{}\x1b[0m",
    "a body of HTTP": 'HTTP 500 from worker-3: {{"detail": "{}"}}',
    "an escaped end of line": 'reply: "step failed\\n{}\\n"',
    "an arrow": "step 40 -> {}",
    "a macro with its place": "step.cu:88: check failed: {} (device 0)",
}
NUMBERED = (
    "CUDA error {}",
    "CUDA error: {}",
    "CUDA error code {}",
    "cuda error code: {}",
    "CUDA error = {}",
    "CUDA error #{}",
    "CUDA error ({}) in step 40",
    "CUDA error 0x{:x}",
    "step.cu:88 CUDA failure {}",
    "CUDA driver error {}",
    "CUDA runtime error: {}",
    "CUDA driver API error {}",
    "CUDA call failed with error code {}",
    "CUDA returned {}",
    "CUDA returned error code {} in step 40",
    "cuInit: {}",
    "cuInit(0) returned {}",
    "cuInit returned error {}",
    "cuInit failed, ret={}",
    "cuMemAlloc_v2 failed: {}",
    "cuLaunchKernel() = {}",
    "cudaMalloc failed with code {}",
    "cudaMalloc: error code: {}",
    "cudaDeviceSynchronize returned {}",
    "cudaDeviceSynchronize() returned error code 0x{:x}",
    "cudaGetDeviceCount -> {}",
    "cudaGetDeviceCount status={}",
    "cudaStreamSynchronize failed (error {})",
    "cudaError_t {} from the step",
    "cudaError({})",
    "CUresult {}",
    "CUresult = {} in step 40",
    '{{"api": "cudaMemcpyAsync", "code": {}}}',
    '{{"call": "cuInit", "error": {}}}',
    "level=error call=cudaMalloc ret={}",
    "worker 3: CUDA status {}",
    "[rank2]: CUDA error {} at step.cu:88",
    "Error: DriverError(CUresult({}))",
    "CudaError({})",
    '{{"level": "error", "cuda_status": {}}}',
    "the step failed (cudaStreamSynchronize: {})",
    "pool.cu:88: driver status {}",
    "E1130 09:00:01 step.cuh:88] launch error {}",
    "kernel error {} at ops/step.cu:88",
    "sync failed (status {}) at ops/step.cu:88",
    "libcuda init failure: {}",
    "cuda driver library init failure: {}",
    'msg="cuda driver init failed" code={}',
    "CUDA initialization failed: {}",
    "panic: cuda: {}",
)
NUMBERS = {
    2: "out-of-memory",
    35: "driver-too-old",
    100: "cuda-init-no-device",
    209: "no-kernel-image",
    700: "illegal-memory-access",
    719: "gpu-hardware-unknown-error",
    802: "cuda-init-error-802-fabricmanager",
    803: "driver-library-mismatch",
}
# of each library, behind what its calls begin with, in the spelling of its types, and in words
OF_LIBRARY = (
    "{call}Create failed: {number}",
    "{call}Create(&handle) failed with error {number}",
    "{call}Create: error code 0x{number:x}",
    "worker 3: {call}SetStream() returned error code {number}",
    "{call}Create() = {number}",
    "{low}Status_t({number})",
    "{name} error {number}",
    "{name} failure: {number} at step.cpp:88",
    "{name} call failed with status {number}",
    "the step failed ({call}SetStream: {number})",
    '{{"level": "error", "{low}_status": {number}}}',
)
SPELLED = {
    "hip": "HIP", "cufft": "cuFFT", "cusparse": "CUSPARSE", "cusolver": "cuSolver", "curand": "cuRAND",
    "nvrtc": "NVRTC", "nvml": "NVML", "nvjpeg": "nvJPEG", "optix": "OptiX", "cutensor": "cuTENSOR",
}  # fmt: skip
LIBRARIES = {
    row["library"]: {int(number): name for number, name in row["names"].items()}
    for row in map(
        json.loads,
        (Path(codes.__file__).parent / "tables" / "library_number.jsonl").read_text("utf-8").splitlines(),
    )
}
LIBRARY_COUNTS = (
    "{name} version {number}",
    "{name} calls: {number}",
    "{name} errors: {number}",
    "{low}GetVersion returned {number}",
    "{low}GetCount -> {number}",
    "{call}Create took {number} ms",
    "{name} returned {number} rows",
    "lib{low}.so.{number} loaded",
    "{name} {number} is loaded",
    "{name} status page {number}",
)
UNSAID = {  # forms in which a small or a round number may be a count
    "CUDA returned {}": (2, 100),
    "cudaGetDeviceCount -> {}": (2,),
    "cudaGetDeviceCount status={}": (2,),
    "worker 3: CUDA status {}": (2,),
    "pool.cu:88: driver status {}": (2,),
}

# The same names where nothing failed by them, and the same numbers of others.
OTHERS = (
    "if (status == {}) throw std::bad_alloc();",
    '    case {}: return "no memory";',
    "#define LAST_STATUS {}",
    "// {} is returned where the device has no memory",
    "# {} is returned where the device has no memory",
    "    except CudaError as error:  # {}",
    '    raise RuntimeError("{}")',
    '    assert str(error) == "{}"',
    'printf("{}\\n");',
    "logger.info('{}')",
    "{} is returned if the device has no memory left.",
    "The call may return {} when the device is busy.",
    "| `{}` | the device has no memory left |",
    "- `{}`: what a busy device answers",
    "IGNORE_STATUS={} ./step",
    "export ONLY_STATUS={}",
    "tests/test_status.py::test_told[{}] PASSED",
    "test_{}_is_told ... ok",
    "[ RUN      ] Status.{}",
    "[       OK ] Status.{} (0 ms)",
    "grep -r {} src",
    "$ grep {} log.txt",
    "src/status.h:12: {} = 2,",
    "fix: answer {} with a retry (#12)",
    "recovered from {}, going on with step 41",
    "expected {}, got it",
    "no {} in 400 steps",
    "0 x {} in 400 steps",
    '  - "{}"',
    'retry_on: ["{}", "timeout"]',
    '{{"ignore": "{}"}}',
    'last_status = "{}"',
    'static const char *status = "{}";',
)
OTHER_NUMBERS = (
    "cudaStreamSynchronize: {}",
    "compiling step.cu:{}",
    "step.cu:88: warning: loop of {} turns",
    "pool.cpp:88: status {}",
    "libcuda.so.1 loaded, {} symbols",
    "cuda: {}",
    "error: cuda: {} devices",
    "curl: ({}) SSL connect error",
    "curl error {}",
    "MySQL error {}",
    "ERROR {} (HY000): cannot connect to the server",
    "code {} of the lottery",
    "exit code: {}",
    "exited with code {}",
    "process returned {}",
    "error code: {}",
    "errno {}",
    "HTTP error {}",
    "status={}",
    "ret={}",
    "returned {} rows",
    "error {} of 900",
    "Error {}: the table is locked",
    "CUDA version {}",
    "CUDA errors: {}",
    "CUDA error rate {}",
    "cudaMalloc calls: {}",
    "cudaMalloc {} bytes",
    "cudaGetDeviceCount took {} us",
    "cudaMemcpyAsync 12.5% {} calls",
    "cuInit took {} ms",
    "CUDA tests: {} passed, 0 failed",
    "CUDA kernels launched: {}",
    "cuda code {} lines",
    "cudnn returned {}",
    "step {} on cuda:0 failed validation",
    "cuda:0 returned {} tokens",
    "CUDA device 0 returned {} samples",
    "pytest: {} failed in test_cuda.py",
    "HTTP {} from the cuda service",
    "GET /cuda 502 {}",
    "worker on cuda exited with code {}",
    "subprocess cuda_step returned {}",
    "cuda-memcheck exited with code {}",
    "cudaGetDeviceCount() returned {} devices",
    "cudaGetDeviceCount returned {} GPUs",
    "CUDA error after {} steps",
    "CUDA error {} times",
    "CUDA error = {}%",
    "CUDA error: {}.5e-7",
    "cudaMalloc failed {} times",
    "cudaMalloc failed: {} retries are left",
    "cudaMalloc(&p, {})",
    "cudaMalloc,{}",
    "cudaMemcpyAsync: {}",
    "cudaDeviceGetAttribute -> {}",
    "cudaDeviceGetAttribute returned {}",
    "cudaRuntimeGetVersion: {}",
    "CUDA result: {}",
    "cuda_step status={}",
    "custom error: {}",
    "cupy returned {}",
    "cuBLAS calls: {}",
    "current error: {}",
)


BESIDE = (
    "reading the configuration",
    "opening data/train.bin",
    "12 files",
    "{}",
    "the log is kept in out/",
    "see there",
)
"""Lines of nothing, and another line among them."""


def among(line: str) -> str:
    """The line in a log that says nothing else."""
    return "\n".join(BESIDE).replace("{}", line)


def category(text: str) -> str:
    """The kind of failure that a log of this text is told as."""
    return explain(tell([read([Input("log", io.BytesIO(f"{text}\n".encode()))])]), FACTS).category


@cache
def named() -> dict[str, str]:
    """Every name of the table with its kind of failure."""
    by_code = {row.code: row for row in FACTS.cuda_errors}
    found = {}
    for row in KINDS:
        known = [by_code[code] for code in row["codes"]]
        mine = {name for each in known for name in (each.name, each.runtime_name) if name} | set(row["names"])
        found |= dict.fromkeys(sorted(mine), row["category"])
    return found


EITHER = {"driver-too-old": {"driver-too-old", "cuda-init-no-device"}}  # CUDA says the same of no driver at all


def wrong(forms: Mapping[str, str], *, every: int) -> list[tuple[str, str, str]]:
    """Each form and name that is told otherwise, with what it is told as, of each ``every``-th name."""
    found = []
    for row, (called, form) in enumerate(forms.items()):
        for name, wanted in list(named().items())[row % every :: every]:
            if (told := category(form.format(name))) not in EITHER.get(wanted, {wanted}):
                found.append((called, name, told))
    return found


def test_every_number_and_name_of_the_table_is_one_of_an_enumeration_and_stands_there_once() -> None:
    known = {row.code for row in FACTS.cuda_errors}
    codes_, names_ = ([each for row in KINDS for each in row[field]] for field in ("codes", "names"))

    assert set(codes_) <= known and len(set(codes_)) == len(codes_)
    assert len(set(names_)) == len(names_) and not set(names_) & {row.name for row in FACTS.cuda_errors}
    assert {row["category"] for row in KINDS} <= set(failures())
    assert all(row["source"] and row["seen"] for row in KINDS)
    assert known - set(codes_) == UNTOLD


def test_every_name_is_found_by_an_anchor_and_in_its_kind() -> None:
    for name, wanted in named().items():
        signature, where = names.found(f"step 40: {name}") or (None, None)
        assert signature is not None and where is not None
        assert signature.category == wanted and where["name"] == name
        assert any(anchor in name.lower() for anchor in names.ANCHORS), name
        assert re.search(signature.pattern, name), name


def kind(text: str) -> str | None:
    """The kind of failure of the error that a line names alone."""
    found = names.found(text)
    return None if found is None else found[0].category


@pytest.mark.parametrize("form", NUMBERED)
def test_a_number_is_told_where_the_words_say_whose_it_is(form: str) -> None:
    for number, wanted in NUMBERS.items():
        line = form.format(number)
        assert kind(line) == (None if number in UNSAID.get(form, ()) else wanted), line
        if kind(line):
            assert any(anchor in line.lower() for anchor in names.ANCHORS), line
            assert names.outlines(re.sub(r"\d", "0", line.lower())), line
    assert category(form.format(700)) == NUMBERS[700]


def of_library(text: str) -> str | None:
    """What a line is told as for a number of a library that it holds, or its name where another row tells that."""
    found = names.of_library(text)
    return kind(text) or (None if found is None else category(found[0]))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_number_of_a_library_is_its_name(library: str) -> None:
    told, call = 0, {"hip": "hipMem"}.get(library, library)
    for number, name in LIBRARIES[library].items():
        wanted = kind(name) or category(name)
        for form in OF_LIBRARY:
            line = form.format(low=library, call=call, name=SPELLED[library], number=number)
            assert of_library(line) in (wanted, None if wanted in QUIET else wanted), line
            assert any(anchor in line.lower() for anchor in names.ANCHORS), line
            told += wanted not in QUIET
        if wanted not in QUIET:
            form = OF_LIBRARY[number % len(OF_LIBRARY)]
            line = form.format(low=library, call=call, name=SPELLED[library], number=number)
            assert category(line) in EITHER.get(wanted, {wanted}), line
        for form in LIBRARY_COUNTS:
            line = form.format(low=library, call=call, name=SPELLED[library], number=number)
            assert of_library(line) is None, line
    assert told >= len(OF_LIBRARY)


def test_what_hip_does_not_have_is_none_of_its_errors() -> None:
    assert [number for number in (802, 803, 804) if kind(f"hipMalloc returned {number}")] == []
    assert kind("CUDA error 802") == "cuda-init-error-802-fabricmanager"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("cublasCreate failed: 1", "cublas-not-initialized"),
        ("cuBLAS error 13", "cublas-execution-failed"),
        ("cudnnConvolutionForward returned status 8", "cudnn-execution-failed"),
        ("cuDNN error 4", "cudnn-not-initialized"),
        ("ncclCommInitRank failed: 2", "nccl-unhandled-system-error"),
        ("NCCL error 5", "nccl-duplicate-gpu"),
        ("cuvidCreateDecoder failed: 2", "out-of-memory"),
        ("the step failed with error CUDA_ERROR_OUT_OF_MEMORY", "out-of-memory"),
    ],
)
def test_numbers_of_other_libraries(line: str, wanted: str) -> None:
    assert category(line) == wanted


def test_numbers_of_old_runtimes_are_told_where_no_new_one_has_them() -> None:
    assert category("CUDA error 77") == category("CUDA error 700")
    assert category("CUDA error 48") == category("CUDA error 209")
    assert category("CUDA error 4") == category("CUDA_ERROR_DEINITIALIZED")


def test_a_name_is_told_in_any_wrapping() -> None:
    assert wrong(WRAPPED, every=83) == []


@pytest.mark.slow  # explains thousands of logs
def test_every_name_is_told_in_every_wrapping() -> None:
    assert wrong(WRAPPED, every=5) == []


@pytest.mark.parametrize("form", OTHERS)
def test_what_only_speaks_of_a_name_is_no_failure(form: str) -> None:
    for name in list(named())[len(form) % 80 :: 80]:
        assert category(among(form.format(name))) in QUIET, name


@pytest.mark.parametrize("form", OTHER_NUMBERS)
def test_numbers_of_others_are_no_failures(form: str) -> None:
    assert [number for number in NUMBERS if kind(form.format(number))] == []
    assert category(among(form.format(700))) in QUIET


def test_of_two_errors_in_a_line_the_fault_counts_and_a_wording_before_a_name() -> None:
    assert category("cudaMemcpy: cudaErrorInvalidValue after cudaErrorIllegalAddress") == "illegal-memory-access"
    assert category("RuntimeError: CUDA error: out of memory (hipErrorUnknown)") == "out-of-memory"
