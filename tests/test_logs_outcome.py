"""The last state of the whole of a log decides: twins of one shape, one that ends well and one that does not."""

from __future__ import annotations

import pytest
from logs import told

OPEN = "insufficient-evidence"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 23.69 GiB"
REFUSED = "requests.exceptions.ConnectionError: [Errno 111] Connection refused"


def raised(words: str) -> str:
    """An exception that nobody caught."""
    return f'Traceback (most recent call last):\n  File "/srv/embed.py", line 9, in <module>\n    main()\n{words}\n'


def queue(last: str, error: str = ECC) -> str:
    """What a queue prints that gave one piece of work to another worker."""
    return (
        f"[queue] embed-02 -> worker gpu1 (try 1)\n{raised(error)}[queue] embed-02 handed back, placed elsewhere\n"
        "[queue] embed-01 -> worker gpu0 (try 1)\nembed-01: 4096 rows\n[queue] embed-02 -> worker gpu0 (try 2)\n"
        f"job        tries  state\nembed-01   1      ok\nembed-02   2      {last}\n"
    )


def stages(end: str) -> str:
    """Stages of a run that a program counts."""
    return f"stage 1: 20 files\nstage 2: {OOM}\nstage 2 on the other card\n{end}\n"


def group(end: str) -> str:
    """A launcher's workers that all begin anew after one of them failed."""
    first = "".join(f"life 0 rank {rank} | step {step} of 3 loss 2.{rank}\n" for step in (1, 2) for rank in (0, 1))
    again = "".join(f"life 1 rank {rank} | step {step} of 3 loss 2.{rank}\n" for step in (1, 2, 3) for rank in (0, 1))
    fault = "RuntimeError: CUDA error: an illegal memory access was encountered"
    died = "".join(f"life 0 rank 1 | {line}\n" for line in raised(fault).splitlines())
    return f"launcher: starting 2 workers, life 0\n{first}{died}launcher: starting 2 workers, life 1\n{again}{end}"


def tally(failed: int) -> str:
    """The closing counts of a workflow manager."""
    return (
        f"[78/bb20c2] Submitted process > CALL (2)\n{OOM}\n[78/bb20c2] NOTE: Process `CALL (2)` terminated with an "
        "error exit status (1) -- Execution is retried (1)\n[01/cc30c2] Re-submitted process > CALL (2)\n"
        f"Completed at: 20-Nov-2026 11:14:02\nSucceeded   : 4\nFailed      : {failed}\nRetries     : 1\n"
    )


def items(done: int) -> str:
    """Items that are tried on one card after another."""
    return (
        "item 1 on gpu0: ok, 41 ms\nitem 2 on gpu0: CUDA error: unspecified launch failure\nitem 2: gpu0 refused, next"
        f"\nitem 2 on gpu1: ok, 44 ms\n{done} of 2 items through\n"
    )


# name, a text that ends well, its twin and the kind of that
TWINS = {
    "a queue's table": (queue("ok"), queue("dead"), "ecc-uncorrectable"),
    "a queue's table of what did not fit": (queue("ok", OOM), queue("lost", OOM), "out-of-memory"),
    "a count of all": (
        stages("finished, 3 of 3 stages written"),
        stages("finished, 2 of 3 stages written"),
        "out-of-memory",
    ),
    "a count of failures": (stages("40 files, 0 failed"), stages("40 files, 1 failed"), "out-of-memory"),
    "a step that is below it": (
        stages("40 files, 0 failed"),
        stages("40 files, 0 failed") + raised(OOM),
        "out-of-memory",
    ),
    "all of it": (
        f"{raised(REFUSED)}store ready\nall blocks embedded, leaving\n",
        f"{raised(REFUSED)}store not ready\nno blocks embedded, leaving\n",
        "not-gpu-env",
    ),
    "the state of the same object": (
        f"{OOM}\njob/embed  Pending\njob/embed  Failed\njob/embed  Completed\n",
        f"{OOM}\njob/embed  Pending\njob/embed  Completed\njob/train  Failed\njob/other  Completed\n",
        "out-of-memory",
    ),
    "a rank speaks for itself": (
        f"[rank1]: {OOM}\n[rank1]: with half of it\n[rank1]: training finished\n",
        f"[rank1]: {OOM}\n[rank0]: training finished\n",
        "out-of-memory",
    ),
    "all workers from the first step": (
        group("life 1 rank 0 | this rank is through\nlife 1 rank 1 | this rank is through\n"),
        group("life 1 rank 1 | RuntimeError: CUDA error: an illegal memory access was encountered\n"),
        "illegal-memory-access",
    ),
    "as much was tried again as failed": (tally(1), tally(2), "out-of-memory"),
    "as many as there were": (items(2), items(1), "gpu-hardware-unknown-error"),
    "a table of alerts": (
        "when       alert                       state\nMon 03:12  uncorrectable ECC error     resolved\n"
        "Tue 04:00  GPU has fallen off the bus  resolved\nopen alerts: 0\n",
        f"Mon 03:12 watching\n{raised(ECC)}open alerts: 2\n",
        "ecc-uncorrectable",
    ),
}


RECAP = (
    "PLAY RECAP ***\ngpu01 : ok=2 changed=0 unreachable=0 failed={}\ngpu02 : ok=3 changed=0 unreachable={} failed=0\n"
)
NO_MODULE = (
    'fatal: [gpu01]: FAILED! => {"changed": false, "msg": "modprobe: FATAL: Module nvidia not found in directory '
    '/lib/modules/6.8.0", "rc": 1}\n'
)
NO_ROUTE = (
    'fatal: [gpu02]: UNREACHABLE! => {"changed": false, "msg": "Failed to connect to the host via ssh: ssh: connect to '
    'host 10.0.0.2 port 22: No route to host", "unreachable": true}\n'
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (NO_MODULE + RECAP.format(1, 0), "cuda-init-no-device"),
        (NO_MODULE + RECAP.format(0, 0), OPEN),
        (NO_ROUTE + RECAP.format(0, 1), "not-gpu-env"),
        (NO_ROUTE + RECAP.format(0, 0), OPEN),
    ],
)
def test_the_recap_of_a_playbook_tells_each_host(text: str, kind: str) -> None:
    assert told(text).category == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("  = note: rust-lld: error: unable to find library -lcudart\n", "missing-shared-library"),
        ("CUDA error: Launch timed out in cuCtxSynchronize() (integrator_shade_surface)\n", "watchdog-timeout"),
        (
            'dgl._ffi.base.DGLError: Cannot assign node feature "h" on device cuda:0 to a graph on device cpu.\n',
            "tensors-on-different-devices",
        ),
        (
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.2.0 timeout, signaled seq=51204\n",
            "watchdog-timeout",
        ),
        (
            'Traceback (most recent call last):\n  File "fit.py", line 6, in <module>\n    f()\nMemoryError: \n'
            "Error Message Summary:\nResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 2.25GB "
            "memory on GPU 0, 39.1GB memory has been allocated and available memory is only 318.5MB.\n\nPlease check "
            "whether there is any other process using GPU 0.\n1. If yes, please stop them\n",
            "out-of-memory",
        ),
        ("flow_gpu: cannot connect to the license server system\nstopped before iteration 1\n", "not-gpu-env"),
        ("Error using gpuArray\nNo supported GPU device was found on this computer.\n", "cuda-init-no-device"),
        (
            "docker.errors.APIError: 500 Server Error for http+docker://localhost/v1.47/containers/a1/start: Internal "
            'Server Error ("could not select device driver "" with capabilities: [[gpu]]")\n',
            "docker-no-gpu-driver",
        ),
    ],
)
def test_the_same_failure_through_another_program(text: str, kind: str) -> None:
    assert told(text).category == kind


@pytest.mark.parametrize(
    "text",
    [
        "[drm:i915_hang [i915]] *ERROR* ring rcs0 timeout, signaled seq=51204\n",
        "the licence of the server is MIT\nready\n",
        "rust-lld: error: unable to find library -lzstd\n",
        "docker.errors.APIError: 500 Server Error for http+docker://localhost/v1.47/containers/a1/start: no space\n",
    ],
)
def test_what_only_looks_like_it_is_not_the_gpus(text: str) -> None:
    assert told(text).category in ("not-gpu-env", OPEN)


HEADER = "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later"
MADE = f"{HEADER} than 12 are not supported!\ngmake[1]: *** [k.cu.o] Error 1\ngmake: *** [Makefile:136: all] Error 2\n"
SKIPPED = "".join(f"packaging: docs/{name}.md skipped\n" for name in "abcdefghijkl")
OF_RECORDS = "Nov 20, 2026 10:00:02 AM org.lab.Main main\n{}: {}\n"
UNLINKED = (
    "java.lang.UnsatisfiedLinkError: /opt/lib.so: libcudart.so.11.0: cannot open shared object file: No such file"
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (MADE + SKIPPED, "unsupported-gnu-version"),
        (
            "[ 10%] Building k.cu.o\n"
            + MADE
            + "gcc-12 taken\n[ 10%] Building k.cu.o\n[ 50%] Building k.cu.o\n[100%] Built target k\n"
            + SKIPPED,
            OPEN,
        ),
        (
            OF_RECORDS.format("INFO", "opened, errors 0")
            + f"{UNLINKED}\n\tat java.base/java.lang.Runtime.loadLibrary0(Runtime.java:860)\n"
            + OF_RECORDS.format("INFO", "0 frames"),
            "missing-shared-library",
        ),
        (
            'fatal: [gpu-3]: FAILED! => {"msg": "non-zero return code", "rc": 1, "stderr": "Traceback (most recent '
            'call last):\\n  File \\"<string>\\", line 1, in f\\nRuntimeError: The NVIDIA driver on your system is '
            'too old (found version 11040). Please update your GPU driver"}\n' + RECAP.format(1, 0),
            "driver-too-old",
        ),
    ],
)
def test_what_is_harmless_behind_an_error_does_not_take_it_away(text: str, kind: str) -> None:
    assert told(text).category == kind


def test_an_error_that_seemed_to_be_survived_is_told_where_the_run_ended_badly_all_the_same() -> None:
    steps = "".join(f"tile {number} of 9 drawn, 12.{number} s\n" for number in range(1, 9))
    well = told(f"tile 0 of 9 drawn, 12.0 s\n{OOM}\nretrying with half\n{steps}")
    assert well.category == OPEN
    badly = told(f"tile 0 of 9 drawn, 12.0 s\n{OOM}\nretrying with half\n{steps}renderer left with 3\n")
    assert (badly.category, badly.confidence) == ("out-of-memory", 0.55)
    assert badly.runner_up is not None and badly.evidence[0].line.text == OOM


@pytest.mark.parametrize("name", TWINS)
def test_a_good_last_state_of_the_whole_outweighs_what_was_met(name: str) -> None:
    assert told(TWINS[name][0]).category == OPEN


@pytest.mark.parametrize("name", TWINS)
def test_a_last_state_that_is_not_good_does_not(name: str) -> None:
    well, badly, kind = TWINS[name]
    assert well != badly
    assert told(badly).category == kind


def test_the_line_that_tells_the_good_end_is_quoted() -> None:
    answer = told(stages("40 files, 0 failed"))
    assert [mark.line.text for mark in answer.evidence] == ["40 files, 0 failed"]
    assert "ended well" in answer.because
    assert answer.confidence == 0.8


def test_a_fault_that_stays_with_its_process_is_not_outlived_by_a_state_alone() -> None:
    fault = "CUDA error: an illegal memory access was encountered"
    assert told(f"pitch 131072 ok\n{fault}\npitch 262144 ok\n").category == "illegal-memory-access"
    assert told(f"{fault}\nJobID 4711 State COMPLETED ExitCode 0:0\n").category == "illegal-memory-access"
