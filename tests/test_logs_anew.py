"""What is begun again, far from both ends of a log, and its twins that end by the same error."""

from __future__ import annotations

import pytest
from logs import reading, told

from envkit.logs.reader import NEAR

OPEN, OTHER = "insufficient-evidence", "not-gpu-env"
ILLEGAL, BUSY = "illegal-memory-access", "gpu-hardware-unknown-error"
FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered"


def raised(words: str) -> str:
    """An exception that nobody caught."""
    return f'Traceback (most recent call last):\n  File "/srv/fit.py", line 9, in <module>\n    fit()\n{words}\n'


def epochs(count: int) -> str:
    """What each part of some work prints."""
    return "".join(f"epoch {epoch:3d}  dice {0.5 + epoch / 99:.4f}\n" for epoch in range(1, count + 1))


def folds(said: str, end: str) -> str:
    """A part that an error ended, what its script says of that, and the other parts."""
    return f"part 1\n{epochs(60)}part 2\n{epochs(9)}{raised(FAULT)}{said}\n{epochs(60)}part 3\n{epochs(60)}{end}\n"


def server(starts: int) -> str:
    """A server under Supervisor that an error ends so many times before it serves, and which is asked to stop."""
    error = raised("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable")
    died = "2026-11-30 13:13:14,228 INFO spawned: 'embed' with pid 303{}\nloading 24 shards\n" + error
    died += "2026-11-30 13:13:14,328 WARN exited: embed (exit status 1; not expected)\n"
    text = "".join(died.format(n) for n in range(starts))
    if starts < 3:
        text += "2026-11-30 13:13:15,228 INFO spawned: 'embed' with pid 3099\nloading 24 shards\n"
        text += "".join(f'127.0.0.1 - "POST /embed HTTP/1.1" 200 in {n} ms\n' for n in range(50))
    else:
        text += "2026-11-30 13:13:15,228 INFO gave up: embed entered FATAL state, too many start retries too quickly\n"
    stop = "2026-11-30 13:13:21,719 "
    text += f"{stop}WARN received SIGTERM indicating exit request\n{stop}INFO waiting for embed to die\n"
    return f"{text}{stop}WARN stopped: embed (terminated by SIGTERM)\n"


def counted(again: int) -> str:
    """The closing table of a queue in which a unit met an error."""
    units = "".join(f"unit {n:03d} card {n % 4}: {20 + n / 7:.1f} s\n" for n in range(60))
    table = f"succeeded   120\nfailed        1\ndone again    {again}\n"
    return f"{units}unit 060 card 0: CUDA error: unspecified launch failure\n{units}{table}"


TESTS = """\
=================================== FAILURES ===================================
E       AssertionError: the bias is gone
{}
________________________________ test_large[8] _________________________________
E           RuntimeError: CUDA error: an illegal memory access was encountered
=========================== short test summary info ============================
========================= 1 failed, 5 passed in 0.20s ==========================
"""
XFAILED, FAILED = "=" * 34 + " XFAILURES " + "=" * 34, "_" * 30 + " test_more " + "_" * 30


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (folds("part 2 once more, on the other card", "mean dice 0.87 over 3 parts"), OPEN),
        (folds("part 2 has no score", "mean dice 0.87 over 2 parts, giving up"), ILLEGAL),
        (server(1), OPEN),
        (server(3), BUSY),
        (counted(1), OPEN),
        (counted(0), BUSY),
        (TESTS.format(XFAILED), OTHER),
        (TESTS.format(FAILED), ILLEGAL),
        ("loader: 12 nodes\nloader: devices_per_node: invalid literal for int() with base 10: '8x'\n", OTHER),
        ("loader: 12 nodes\nloader: devices_per_node: 8\n", OPEN),
        ("train.precision is 'bf8', which is none of fp32, bf16\n", OTHER),
        ("train.precision is 'bf16', which is one of fp32, bf16\n", OPEN),
        ("E       Failed: checksum of part 7 is 0017\n1 failed in 0.2s\n", OTHER),
        ("test_parts.py .   [100%]\n1 passed in 0.2s\n", OPEN),
    ],
)
def test_what_is_said_beside_an_error_and_last_decides(text: str, kind: str) -> None:
    assert told(text).category == kind


def test_the_lines_beside_an_error_are_kept_within_a_bound() -> None:
    text = epochs(60) + "".join(f"{FAULT}\nsaid behind {n}\n{epochs(30)}" for n in range(100)) + epochs(60)
    near = [line.text for line in reading(text).files[0].near]
    assert len(near) == NEAR
    assert near[1] == "said behind 0" and "said behind 99" in near
