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
        "rust-lld: error: unable to find library -lzstd\n",
        "docker.errors.APIError: 500 Server Error for http+docker://localhost/v1.47/containers/a1/start: no space\n",
    ],
)
def test_what_only_looks_like_it_is_not_the_gpus(text: str) -> None:
    assert told(text).category in ("not-gpu-env", OPEN)


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
