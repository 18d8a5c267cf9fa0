"""What has nothing to do with the GPU, and what cannot be told: a fault and a near miss for each."""

import re
import string
import sys
from pathlib import Path

import pytest
from logs import story, told

from envkit import facts
from envkit.logs.causes import program_host
from envkit.logs.knowledge import failures, signatures, statements
from envkit.logs.records import CAUSES, Strength
from envkit.logs.verdict import weigh

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
import public_logs

TABLES = tuple(statements(name) for name in ("build", "data", "host", "network", "python", "services"))


def traceback(*frames: str, error: str) -> str:
    """A traceback whose frames are the given files."""
    lines = [f'  File "{path}", line {10 + index}, in step{index}\n    call()' for index, path in enumerate(frames)]
    return "\n".join(["Traceback (most recent call last):", *lines, error, ""])


MINE = "/home/someone/train.py"
LIBRARY = "/opt/lib/python3.11/site-packages/somelib/core.py"
WRAPPER = (
    "E0101 10:00:01.000000 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {exit}) "
    "local_rank: 1 (pid: 143) of binary: /usr/bin/python\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
)


@pytest.mark.parametrize(
    ("cause", "text", "quoted"),
    [
        ("program-bug", traceback(MINE, error="KeyError: 'los'"), "KeyError: 'los'"),
        (
            "program-bug",
            traceback(MINE, LIBRARY, error="ValueError: n must be positive"),
            "ValueError: n must be positive",
        ),
        (
            "version-mismatch",
            traceback(MINE, error="TypeError: f() got an unexpected keyword argument 'x'"),
            "TypeError",
        ),
        ("version-mismatch", traceback(MINE, error="AttributeError: module 'numpy' has no attribute 'bool'"), "'bool'"),
        ("version-mismatch", traceback(LIBRARY, error="ImportError: cannot import name 'a' from 'b' (b.py)"), "'a'"),
        ("container-config", traceback(MINE, error="ModuleNotFoundError: No module named 'einops'"), "einops"),
        (
            "program-bug",
            traceback(MINE, error="RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)"),
            "4x8 and 16x2",
        ),
        (
            "bad-index-or-label",
            traceback(MINE, error="IndexError: Target 12 is out of bounds."),
            "Target 12",
        ),
        (
            "container-config",
            traceback(MINE, error="PermissionError: [Errno 13] Permission denied: '/out/run1'"),
            "/out/run1",
        ),
        (
            "launch-config",
            traceback(MINE, error="FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'"),
            "a.csv",
        ),
        (
            "launch-config",
            traceback(MINE, error="omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct"),
            "Key 'lr'",
        ),
        ("host-resource", traceback(MINE, error="OSError: [Errno 28] No space left on device"), "Errno 28"),
        ("host-resource", traceback(MINE, error="OSError: [Errno 122] Disk quota exceeded: 'c.pt'"), "quota"),
        ("host-resource", traceback(MINE, error="OSError: [Errno 24] Too many open files: 'x.jpg'"), "open files"),
        ("host-resource", traceback(MINE, error="RuntimeError: can't start new thread"), "new thread"),
        (
            "host-resource",
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. \n",
            "pid 77",
        ),
        (
            "host-resource",
            "Memory cgroup out of memory: Killed process 77 (python) total-vm:1kB\n",
            "Killed process 77",
        ),
        ("host-resource", "slurmstepd: error: Detected 2 oom_kill events in StepId=7.0.\n", "Detected 2"),
        ("host-resource", "  Reason:       OOMKilled\n  Exit Code:    137\n", "OOMKilled"),
        (
            "host-resource",
            "loading shard 1\nloading shard 2\nrun.sh: line 3: 99 Killed    python big.py\n",
            "99 Killed",
        ),
        ("host-resource", "g++: fatal error: Killed signal terminated program cc1plus\n", "cc1plus"),
        (
            "program-bug",
            "[enforce fail at alloc_cpu.cpp:80] . DefaultCPUAllocator: can't allocate memory: you tried to allocate "
            "9007199254740992 bytes. Error code 12 (Cannot allocate memory)\n",
            "9007199254740992",
        ),
        (
            "corrupt-data",
            traceback(MINE, LIBRARY, error="_pickle.UnpicklingError: invalid load key, 'v'."),
            "invalid load key",
        ),
        (
            "corrupt-data",
            traceback(MINE, error="safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"),
            "HeaderTooLarge",
        ),
        (
            "infra",
            traceback(MINE, error="socket.gaierror: [Errno -3] Temporary failure in name resolution"),
            "gaierror",
        ),
        (
            "infra",
            "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://host.example/x\n",
            "403",
        ),
        (
            "launch-config",
            "slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***\n",
            "TIME",
        ),
        (
            "infra",
            '  Warning  Failed  1m  kubelet  Failed to pull image "registry.example/a:1": not found\n',
            "pull image",
        ),
        ("infra", "fatal: unable to access 'https://host.example/a.git/': Connection timed out\n", "unable to access"),
        ("launch-config", "usage: a.py [-h]\na.py: error: the following arguments are required: --data\n", "--data"),
        ("program-bug", "usage: a.py [-h]\na.py: error: unrecognized arguments: --local_rank=2\n", "--local_rank=2"),
        ("launch-config", "sbatch: error: Batch job submission failed: Invalid qos specification\n", "Invalid qos"),
        ("container-config", "src/x.c:1:10: fatal error: Python.h: No such file or directory\n", "Python.h"),
        ("program-bug", "Makefile:4: *** missing separator.  Stop.\n", "missing separator"),
        ("launch-config", "E: Unable to locate package cuda-toolkit-99-9\n", "cuda-toolkit"),
        ("program-bug", "error[E0382]: borrow of moved value: `cuda_stream`\n", "borrow of moved"),
        ("program-bug", "thread 'main' (71) panicked at src/cuda.rs:4:43:\nindex out of bounds\n", "panicked at"),
        ("infra", "  Error: connect ECONNREFUSED 127.0.0.1:9400 (gpu exporter)\n", "ECONNREFUSED"),
        ("program-bug", "AssertionError [ERR_ASSERTION]: gpu count differs\n", "ERR_ASSERTION"),
        ("launch-config", "fatal: repository '/srv/git/cuda-ops.git' does not exist\n", "cuda-ops.git"),
        ("infra", "fatal: unable to access 'https://git.example.org/cuda.git/': timed out\n", "unable to access"),
        (
            "launch-config",
            'ERROR: failed to solve: failed to compute cache key: failed to calculate checksum of ref 7:: "/gpu.txt": '
            "not found\n",
            "gpu.txt",
        ),
        ("version-mismatch", "ERROR: torch-9-cp39-x.whl is not a supported wheel on this platform.\n", "cp39"),
        (
            "launch-config",
            'CMake Error: The source "/a/CMakeLists.txt" does not match the source "/b"\n',
            "CMake Error",
        ),
        ("program-bug", "gpu.sh: line 5: syntax error: unexpected end of file\n", "syntax error"),
        ("launch-config", "gpu.sh: line 3: NODES_OF_GPUS: unbound variable\n", "unbound variable"),
        ("launch-config", "gpu.sh: 3: NODES_OF_GPUS: parameter not set\n", "parameter not set"),
        ("program-bug", "[2026-01-01 10:00:00 +0000] [7] [CRITICAL] WORKER TIMEOUT (pid:9)\n", "WORKER TIMEOUT"),
        (
            "host-resource",
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n",
            "heap",
        ),
        ("host-resource", 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n', "java.lang"),
        (
            "program-bug",
            "ptxas error   : Entry function '_Z4tilePf' uses too much shared data (0x40000 bytes, 0xc000 max)\n",
            "_Z4tilePf",
        ),
        ("program-bug", "ptxas fatal   : Unresolved extern function '_Z7squaredf'\n", "_Z7squaredf"),
        (
            "program-bug",
            traceback(LIBRARY, error="AttributeError: 'DistributedDataParallel' object has no attribute 'width'"),
            "width",
        ),
    ],
)
def test_what_is_not_the_gpus(cause: str, text: str, quoted: str) -> None:
    answer = told("cuda:0 is used\n" + text)

    assert (answer.category, answer.cause) == ("not-gpu-env", cause)
    assert any(quoted in mark.line.raw for mark in answer.evidence)


@pytest.mark.parametrize(
    "text",
    [
        "Saved the model, all 3 epochs done\n",
        "a.py:3: DeprecationWarning: old\ntraining done\n",
        traceback(MINE, error="")[:-1],
        "step 1\nSegmentation fault (core dumped)\n",
        WRAPPER.format(exit=1),
        WRAPPER.format(exit=2),
        WRAPPER.format(exit=-6),
        "(APIServer pid=9) RuntimeError: Engine core initialization failed. See root cause above.\n",
        "Killed\n",
        "",
    ],
)
def test_what_cannot_be_told(text: str) -> None:
    answer = told(text)

    assert answer.category == "insufficient-evidence"
    assert answer.cause in ("unknown", "unknown-cut-log")
    assert answer.next


def test_a_wrapper_is_not_the_cause_where_the_process_itself_speaks() -> None:
    answer = told(traceback(MINE, error="KeyError: 'label'") + WRAPPER.format(exit=1))

    assert (answer.category, answer.cause) == ("not-gpu-env", "program-bug")
    assert answer.evidence[0].line.text == "KeyError: 'label'"


def test_of_a_wrappers_report_the_first_failure_is_quoted() -> None:
    report = "Failures:\n[1]:\n  exitcode  : 1 (pid: 71)\n{}[0]:\n  exitcode  : 1 (pid: 70)\n"

    named = told(report.format("Root Cause (first observed failure):\n"))
    unnamed = told(report.format(""))

    assert "pid: 70" in named.evidence[0].line.text
    assert "pid: 71" in unnamed.evidence[0].line.text


def test_what_was_tried_is_not_what_failed() -> None:
    tried = traceback(MINE, error="KeyError: 'cached'")
    failed = traceback(MINE, error="ValueError: no such model")
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"

    assert "ValueError" in told(tried + between + failed).evidence[0].line.text


def test_the_cause_of_a_chain_is_its_first_exception() -> None:
    first = traceback(MINE, error="ValueError: bad rope scaling")
    last = traceback(MINE, error="RuntimeError: could not load the model")
    between = "\nThe above exception was the direct cause of the following exception:\n\n"

    assert "rope" in told(first + between + last).evidence[0].line.text


def test_what_fails_while_things_are_put_away_is_not_the_cause() -> None:
    failed = traceback(MINE, error="ValueError: no data")
    ended = failed.replace("step0", "__del__").replace("ValueError: no data", "AttributeError: 'A' has no 'x'")

    assert "no data" in told(failed + "Exception ignored in: <function A.__del__>\n" + ended).evidence[0].line.text
    assert "'A'" in told(ended).evidence[0].line.text


def test_a_compilers_error_is_more_than_its_makes() -> None:
    answer = told(
        "c++ -c a.cpp\na.cpp:3:1: error: unknown type name 'foo_t'\nninja: build stopped: subcommand failed.\n"
    )

    assert answer.category == "not-gpu-env"
    assert "foo_t" in answer.evidence[0].line.text


def test_the_rank_that_fails_first_is_quoted() -> None:
    one = "".join(f"[rank1]: {line}\n" for line in traceback(MINE, error="KeyError: 'label'").splitlines())
    other = "".join(f"[rank0]: {line}\n" for line in traceback(MINE, error="ConnectionResetError: peer").splitlines())

    assert "KeyError" in told(one + other).evidence[0].line.text


def test_an_exception_that_speaks_of_the_gpu_is_not_called_innocent() -> None:
    answer = told(traceback(MINE, error="RuntimeError: CUDA did a thing that nobody has named yet"))

    assert answer.category != "not-gpu-env"


def test_a_gpu_error_beats_a_python_exception_beside_it() -> None:
    text = traceback(MINE, error="RuntimeError: CUDA error: an illegal memory access was encountered")

    assert told(traceback(MINE, error="KeyError: 'seen'") + text).category == "illegal-memory-access"


def test_killed_in_the_middle_of_loading_is_memory() -> None:
    answer = told("Loading checkpoint shards:  33%|###3      | 1/3 [00:10<00:20, 10.1s/it]Killed\n")

    assert (answer.category, answer.cause) == ("not-gpu-env", "host-resource")


def test_the_kernels_word_beside_the_workers_is_quoted_too() -> None:
    worker = "RuntimeError: DataLoader worker (pid 611) is killed by signal: Killed.\n"
    kernel = "Memory cgroup out of memory: Killed process 611 (train) total-vm:1kB\n"

    assert len(told(worker + kernel).evidence) == 2


def test_a_name_that_no_compiler_of_cuda_lacks_is_left_to_the_setup() -> None:
    innocent = told("x.c:1:10: fatal error: ffi.h: No such file or directory\n")
    cuda = story("x.c:1:10: fatal error: cuda_runtime.h: No such file or directory\n")

    assert innocent.category == "not-gpu-env"
    assert not cuda.of("program-header-missing")


def test_every_sentence_can_be_filled() -> None:
    known = {row.id: row for row in signatures()}
    for table in TABLES:
        for name, says in table.items():
            asked = {field for _, field, _, _ in string.Formatter().parse(says.because) if field}
            assert asked <= {*re.compile(known[name].pattern).groupindex, "text"}, name
            assert says.cause in CAUSES


def test_every_row_is_used() -> None:
    folder = Path(program_host.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    mine = [row for row in signatures() if row.id.startswith("program-") and row.role == "root"]

    named = [row.id for row in mine if any(row.id in table for table in TABLES) or f'"{row.id}"' in code]

    assert sorted(row.id for row in mine) == sorted(named)


def test_every_cause_of_the_tables_has_its_sentence_and_fix() -> None:
    known = failures()["not-gpu-env"]
    for table in TABLES:
        assert {says.cause for says in table.values()} <= set(known.causes)
    assert set(known.fix) - {""} == set(known.causes)


def test_weak_beside_a_decisive_gpu_domain() -> None:
    text = traceback(MINE, error="KeyError: 'x'") + "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    found = [each for each in weigh(story(text), facts.load()) if each.category == "not-gpu-env"]

    assert found
    assert all(each.strength <= Strength.POSSIBLE for each in found)


def test_the_score_counts_what_an_expert_would() -> None:
    entry = public_logs.Expected("x", "not-gpu-env", "program-bug", ("KeyError:  'label'",), misleading=True, gpu=False)
    right, alarm = public_logs.Figures(), public_logs.Figures()

    assert public_logs.hold(entry, told(traceback(MINE, error="KeyError: 'label'")), right) == ""
    assert "FALSE ALARM" in public_logs.hold(entry, told("CUDA error: misaligned address\n"), alarm)
    assert right.right["evidence, as root"] == right.right["misleading"] == 1
    assert (right.right["false alarms"], alarm.right["false alarms"]) == (0, 1)


def test_a_line_counts_as_quoted_but_for_white_space() -> None:
    assert public_logs.quoted("a  b", ["x a b y"])
    assert public_logs.quoted("x a b y", ["a b"])
    assert not public_logs.quoted("a b", ["", "c"])


def test_a_bus_error_is_of_shared_memory_where_the_log_speaks_of_it() -> None:
    crash = "bash: line 1: 17 Bus error               python3 -u train.py\n"
    shared = told("batch 3 in /dev/shm/psm_c0d40cbe\n" + crash)
    assert (shared.category, shared.cause) == ("dataloader-shm-bus-error", "container-config")
    assert told("batch 3\n" + crash).category == "insufficient-evidence"


def test_what_a_test_suite_quotes_of_a_gpu_is_no_failure_of_it() -> None:
    """As pytest prints the name of a test with what it is given, and the locals of a frame."""
    text = (
        "=================================== FAILURES ===================================\n"
        "_ test_one_line_is_one_finding[NVRM: API mismatch: the client has the version 1, but this kernel module 2] _\n"
        "tests/test_it.py:28: in story\n    return tell(reading(text))\n"
        "_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _\n\n"
        "obj = Event(line=Line(file='log0', number=4, text='    Fix \"CUDA error: misaligned address\"'))\n"
        '>           raise TypeError("replace() should be called on dataclass instances")\n'
        "E           TypeError: replace() should be called on dataclass instances\n\n"
        "/opt/lib/python3.11/dataclasses.py:1472: TypeError\n"
        "FAILED tests/test_it.py::test_words[CUDA error: out of memory] - TypeError: replace() should be called\n"
        "4 failed, 95 passed in 16.60s\n"
    )
    assert told(text).category in ("not-gpu-env", "insufficient-evidence")


def test_a_function_of_ones_own_that_the_linker_lacks_is_no_mismatch_of_cuda() -> None:
    text = (
        "/usr/bin/ld: /tmp/ccY2nrxW.o: in function `main':\nl.cpp:(.text+0x5): undefined reference to `cuda_launch()'\n"
        "collect2: error: ld returned 1 exit status\n"
    )
    assert told(text).category == "not-gpu-env"
    assert told(text.replace("cuda_launch()", "cudaLaunchKernel")).category == "undefined-symbol-abi-mismatch"


STEPS = "".join(f"step {number} loss 0.{number}\n" for number in range(4))
NO_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB"
NO_DEVICE = "RuntimeError: CUDA error: invalid device ordinal"


@pytest.mark.parametrize(
    ("text", "alarm"),
    [
        (f"batch halved: {NO_MEMORY}\n{STEPS}", False),
        (f"{traceback(MINE, error='torch.OutOfMemoryError: ' + NO_MEMORY)}{STEPS}", False),
        (f"cuda:1 skipped: {NO_DEVICE}\n{STEPS}", False),
        (f"falling back to a smaller batch: {NO_MEMORY}\n", False),
        (f"{STEPS}{traceback(MINE, error='torch.OutOfMemoryError: ' + NO_MEMORY)}", True),
        (f"batch: {NO_MEMORY}\n{STEPS}{WRAPPER.format(exit=1)}", True),
        (f"{traceback(MINE, error='RuntimeError: CUDA error: an illegal memory access was encountered')}{STEPS}", True),
        ('   12 | printf("CUDA error: an illegal memory access was encountered");\n', False),
        ("12: CUDA error: an illegal memory access was encountered\n", True),
        ("watchdog timeouts: 0, illegal memory accesses: 0\n", False),
        ("CUDA error: an illegal memory access was encountered\n3 checks, 3 ok\n", False),
        ("CUDA error: an illegal memory access was encountered\n3 checks, 2 ok\n", True),
    ],
    ids=str,
)
def test_what_a_program_survived_or_only_quotes_is_no_failure(text: str, alarm: bool) -> None:
    assert (told(text).category not in ("insufficient-evidence", "not-gpu-env")) is alarm


def test_what_ended_a_program_that_survived_an_error_is_its_cause() -> None:
    text = f"batch halved: {NO_MEMORY}\n{STEPS}{traceback(MINE, error='ZeroDivisionError: division by zero')}"
    answer = told(text)
    assert (answer.category, answer.cause) == ("not-gpu-env", "program-bug")


@pytest.mark.parametrize(
    ("last", "well"),
    [
        ("=== job 7 ended with exit code 0", True),
        ("=== job 7 ended with exit code 10", False),
        ("OK (skipped=2)", True),
        ("training finished", True),
        ("done, loss 0.25", True),
    ],
)
def test_a_log_that_ends_well_has_no_failure(last: str, well: bool) -> None:
    answer = told(f"ERROR upload failed, trying again\n{last}\n")
    assert ("ends well" in answer.because) is well


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("model.bin: bad magic (found 0x04034b50, expected 0x57454947)", "corrupt-data"),
        ("ckpt_open: 'step_900.ck': magic mismatch: got 76657273, want 934e554d", "corrupt-data"),
        ("labels.idx: wrong header, found 2051, expected 2049", "corrupt-data"),
        ("part-7.rec has signature 'RIFF' instead of 'RIO2'", "corrupt-data"),
        ("vector::_M_range_check: __n (which is 12) >= this->size() (which is 12)", "program-bug"),
    ],
)
def test_a_file_that_begins_otherwise_is_damaged_and_no_fault_of_the_program(said: str, cause: str) -> None:
    thrown = f"loading\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  {said}\n"
    assert told(f"{thrown}bash: line 3:  9776 Aborted                 ./load\n").cause == cause


def test_a_header_of_http_is_no_files() -> None:
    assert told("requests.exceptions.InvalidHeader: invalid header value, expected a string\n").cause != "corrupt-data"
