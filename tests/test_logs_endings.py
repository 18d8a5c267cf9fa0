"""Errors on the way and the end of the whole: twins of searches, steps run again, services, tests and builds."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from logs import told

OPEN = "insufficient-evidence"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 23.69 GiB"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
FATAL = "RuntimeError: CUDA error: unspecified launch failure"


class Case(NamedTuple):
    """A log, and the kind that it is to be told as."""

    name: str
    text: str
    kind: str


def traced(words: str, where: str = "one") -> str:
    """A traceback that somebody caught and wrote."""
    return f'Traceback (most recent call last):\n  File "/srv/search.py", line 31, in {where}\n    step()\n{words}\n'


def search(last: str) -> str:
    """Single trials of a search fail, the others are told with their values."""
    failed = f"[W] Trial 3 failed with parameters: {{'width': 900}} because of the following error: ...\n{traced(OOM)}"
    before = "".join(f"[I] Trial {n} finished with value: 0.{50 + n}\n" for n in range(3))
    return f"{before}{failed}" + "".join(f"[I] Trial {n} finished with value: 0.{50 + n}\n" for n in range(4, 9)) + last


def again(second: str, end: str) -> str:
    """A script runs the step of a scheduler on one node and then on another."""
    banner = "weights big-3.bin, 4 shards\ntokenizer of 32000 pieces\ndevice 0: A100-SXM4-80GB\n"
    first = f"{banner}step 1 loss 2.31\nstep 2 loss 2.20\n{ECC}\nsrun: error: n07: task 0: Exited with exit code 1\n"
    return f"script 5512 begins\n{first}on n09 then\n{banner}{second}{end}\n"


def service(end: str) -> str:
    """A service whose optional libraries cannot be used, line by line behind the name of its pod."""
    text = "2026-11-30 09:00:00,100 INFO     boot embedder 4.1\n"
    for library, words in (
        ("tensorrt", "ImportError: libnvinfer.so.10: cannot open shared object file: No such file or directory"),
        ("flash_attn", "ModuleNotFoundError: No module named 'flash_attn'"),
    ):
        text += f"2026-11-30 09:00:01,100 ERROR    boot cannot use {library}\n{traced(words, '<module>')}"
    text += "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)\n"
    text += "".join(f'INFO:     10.2.0.{n}:5100 - "POST /embed HTTP/1.1" 200 OK\n' for n in range(6))
    return "".join(f"[pod/api-7f9c/server] {line}\n" for line in f"{text}{end}".splitlines())


def tap(count: int, failed: int = 0) -> str:
    """Tests of which some meet errors of CUDA's that they want."""
    text = "TAP version 13\n"
    for n in range(1, count + 1):
        text += f"CUDA error: invalid device ordinal\nok {n} - meets {n}\n" if n != failed else f"not ok {n} - sums\n"
    return f"{text}1..{count}\n# pass {count - bool(failed)}\n# fail {int(bool(failed))}\n"


def wheel(then: str) -> str:
    """pip does not build an extension where CUDA_HOME names a folder without nvcc."""
    words = (
        "FileNotFoundError: nvcc not found at '/opt/cuda-12.8/bin/nvcc'. Ensure CUDA path '/opt/cuda-12.8' is correct."
    )
    return (
        "Building wheels for collected packages: voxels\n  Building wheel for voxels (pyproject.toml): finished with "
        f"status 'error'\n  error: subprocess-exited-with-error\n      {words}\n      [end of output]\n"
        f"  ERROR: Failed building wheel for voxels\nFailed to build voxels\n{then}"
    )


def queue(last: str) -> str:
    """A worker's logger tells of a part and its try."""
    mixed = (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    )
    stamp = "2026-11-30 09:55:39,189 worker-0"
    return (
        f"{stamp} INFO part 1 attempt 1 norm 3.1\n{stamp} ERROR part 2 attempt 1\n{traced(mixed)}"
        f"{stamp} INFO part 3 attempt 1 norm 2.7\n{last.format(stamp=stamp)}4 parts, 1 attempts failed\n"
    )


def unit(end: str) -> str:
    """systemd starts a service again and again."""
    where = "Nov 30 09:20:04 dgx-3"
    died = (
        f"{where} ranker[21]: cudaGetDeviceCount: system not yet initialized (802)\n"
        f"{where} systemd[1]: ranker.service: Main process exited, code=exited, status=1/FAILURE\n"
    )
    return (
        died
        + end.format(where=where)
        + "".join(f"{where} balancer[88]: backend dgx-3:9000 asked, {n} requests to dgx-4\n" for n in range(9))
    )


def playbook(message: str) -> str:
    """A task that fails on one of the hosts, which is not the last that is told of."""
    hosts = ("gpu-01", "gpu-02", "gpu-04", "gpu-05", "gpu-06")
    changed = "".join(f"changed: [{host}]\n" for host in hosts)
    recap = "".join(f"{host} : ok=3 changed=3 unreachable=0 failed=0 skipped=0 rescued=0 ignored=0\n" for host in hosts)
    return (
        f"TASK [install the toolkit] ****\n{changed}fatal: [gpu-03]: FAILED! => {message}\n"
        f"TASK [restart] ****\n{changed}PLAY RECAP ****\n"
        f"gpu-03 : ok=1 changed=1 unreachable=0 failed=1 skipped=0 rescued=0 ignored=0\n{recap}"
    )


def ranks(after: str) -> str:
    """Two ranks under torchrun, of which one meets an error; their second start is not among what is kept."""
    agent = "1130 09:03:11.003000 4001 torch/distributed/elastic/multiprocessing/api.py"
    text = "".join(f"[rank {n % 2}] step {n // 2} loss {3 / (n + 1):.4f} failed_rows=0\n" for n in range(48))
    text += "".join(f"[rank1]: {line}\n" for line in traced(FATAL, "main").splitlines())
    text += f"W{agent}:897] Sending process 4010 closing signal SIGTERM\n"
    return f"{text}E{agent}:869] failed (exitcode: 1) local_rank: 1 (pid: 4011) of binary: /opt/bin/python\n{after}"


LIVED = "".join(f"[rank {n}] resumes at step 20\n" for n in range(2))
LIVED += "".join(f"[rank {n % 2}] step {n // 2} loss {3 / (n + 1):.4f} failed_rows=0\n" for n in range(40, 96))


def optional(noted: str, then: str) -> str:
    """A program that tries an extension which does not load; ``noted`` is what stands around the traceback."""
    words = "ImportError: /srv/fast.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
    return f"data: 4812 rows\n{noted.format(traced(words, '<module>'))}{then}"


def draws(end: str) -> str:
    """What a sampler writes, behind its settings, which speak of errors."""
    return (
        "2026-11-30 09:00:02,100 INFO sampler policy on errors: abort, missing rows are fatal\n"
        + "".join(f"2026-11-30 09:00:{n},100 INFO sampler draw {n} rejected=0 accept 0.{n}\n" for n in range(10, 50))
        + end
    )


STEPS = "".join(f"step {n} loss 2.{40 - n}\n" for n in range(1, 9))
ENDS_WELL = [
    Case("fewer failed than may", search("7 trials complete, 1 failed (up to 2 failed trials are allowed)\n"), OPEN),
    Case("fewer than may, by fields", search("complete=7 failed=1 allowed_failures=2\n"), OPEN),
    Case("a step on another node", again(STEPS, "script ends, code 0"), OPEN),
    Case("ranks that torchrun starts anew", ranks(LIVED), OPEN),
    Case("an exception that a logger wrote", optional("ERROR:fast:not usable\n{}", draws("wrote rows.nc\n")), OPEN),
    Case("a traceback and what is done", optional("{}WARNING going on with the slow way\n", draws("done\n")), OPEN),
    Case("optional libraries", service("INFO:     Shutting down\nINFO:     Finished server process [1]"), OPEN),
    Case("tests whose verdicts are not all kept", tap(60), OPEN),
    Case(
        "a build without CUDA",
        wheel("trying without\nSuccessfully built voxels\nSuccessfully installed voxels-0.3\n"),
        OPEN,
    ),
    Case("a part tried again", queue("{stamp} INFO part 2 attempt 2 norm 2.9\n"), OPEN),
]
ENDS_BADLY = [
    Case(
        "more failed than may",
        search("7 trials complete, 1 failed (up to 0 failed trials are allowed)\n"),
        "out-of-memory",
    ),
    Case("too many, said last", search("search stopped: 3 trials failed, only 2 are allowed to\n"), "out-of-memory"),
    Case(
        "neither node",
        again(f"{ECC}\nsrun: error: n09: task 0: Exited with exit code 1\n", "code 1"),
        "ecc-uncorrectable",
    ),
    Case(
        "an exception that a logger wrote at the end",
        optional("ERROR:fast:not usable\n{}", "2026-11-30 09:00:02,100 INFO sampler leaves\n"),
        "undefined-symbol-abi-mismatch",
    ),
    Case(
        "a traceback and what is not done",
        optional("{}WARNING 2 files were left behind\n", "tidying up\n"),
        "undefined-symbol-abi-mismatch",
    ),
    Case("ranks that are not started anew", ranks(""), "gpu-hardware-unknown-error"),
    Case(
        "ranks of another machine",
        "".join(f"n{7 + 2 * (n > 53)}: {line}\n" for n, line in enumerate(ranks(LIVED).splitlines())),
        "gpu-hardware-unknown-error",
    ),
    Case("who else writes", ranks("".join(f"pushed {n} metrics\n" for n in range(60))), "gpu-hardware-unknown-error"),
    Case(
        "a service that dies after it came up",
        service(f"2026-11-30 09:10:01,100 ERROR    model batch 31\n{traced(FATAL)}terminate called"),
        "gpu-hardware-unknown-error",
    ),
    Case("one of many tests", tap(60, 59), "not-gpu-env"),
    Case("a build that ends there", wheel("ERROR: Failed to build installable wheels\n"), "nvcc-torch-cuda-mismatch"),
    Case("a part not tried again", queue(""), "tensors-on-different-devices"),
    Case(
        "a unit that is given up",
        unit("{where} systemd[1]: ranker.service: Start request repeated too quickly.\n"),
        "cuda-init-error-802-fabricmanager",
    ),
]
LOCKS = (
    '{"changed": false, "msg": "Failed to lock apt for exclusive operation: Failed to lock directory /var/lib/apt"}',
    '{"changed": false, "msg": "yum lockfile is held by another process"}',
    '{"changed": false, "msg": "Failed to obtain the transaction lock (logged in as: root).", "results": []}',
)


@pytest.mark.parametrize(("name", "text", "kind"), [*ENDS_WELL, *ENDS_BADLY], ids=lambda value: str(value)[:40])
def test_the_end_of_the_whole_decides(name: str, text: str, kind: str) -> None:
    assert told(text).category == kind, name


@pytest.mark.parametrize("message", LOCKS)
def test_a_lock_that_another_process_holds_is_no_bug_of_the_program(message: str) -> None:
    found = told(playbook(message))
    assert (found.category, found.cause) == ("not-gpu-env", "infra")


def test_a_failed_test_tells_why_behind_the_mark_of_a_comment() -> None:
    why = "# OSError: libcuda.so.1: cannot open shared object file: No such file or directory\n"
    assert (
        told(f"1..3\nok 1 names a card\nnot ok 2 loads the driver\n{why}ok 3 counts\n").category
        == "missing-shared-library"
    )
    assert told(f"1..3\nok 1 names a card\n{why}ok 2 loads no driver\nok 3 counts\n").category == OPEN


def test_what_tests_are_to_meet_is_no_failure_in_pytests_report() -> None:
    wanted = f"{traced('RuntimeError: CUDA error: invalid device ordinal')}"
    report = f"=== XFAILURES ===\n{wanted}=== short test summary info ===\nXFAIL t.py::t - later\n"
    assert told(f"collected 2 items\n{report}=== 1 passed, 1 xfailed in 2.41s ===\n").category == OPEN


def test_a_failure_is_less_sure_where_the_log_ends_by_a_good_state() -> None:
    sure = told(f"{STEPS}{traced(FATAL, '<module>')}")
    less = told(
        f"{STEPS}{traced(ECC, '<module>')}table of 12 rows\nrows written to out.csv\nresult written to sweep.csv\n"
    )
    assert sure.category != OPEN and less.category == "ecc-uncorrectable"
    assert less.confidence <= 0.8
