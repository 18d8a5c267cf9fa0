"""What collectors put before each line changes no answer, and who goes on shows it within their frames too.

The texts of ``data/printed`` that stand in no frame are put into those of container engines and their runtimes,
compose, kubectl, the journal and Docker's files of JSON; and errors that ended nothing, each beside one that did, are
told alike.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache

import pytest
from gathered import gathered
from logs import told
from test_printed import ASIDE, TEXTS, public_logs

from envkit import facts
from envkit.logs.prefix import strip
from envkit.logs.reader import Input, read
from envkit.logs.story import tell
from envkit.logs.verdict import explain

BEGAN = datetime(2026, 11, 30, 8, 1, 2, 123456)
PARTS = ("noisy", "outlived", "market", "endings", "anew", "abroad", "glance", "newest")
LARGEST = 400_000  # bytes
# compose within a frame, whose own end of a service is told by the frame's lines; records of JSON within the records
KNOWN = {
    "b37-provider-fails": ("json",), "d40-compose-fails": ("cri", "docker", "compose", "journald", "kubectl"),
    "d42-records-of-trials": ("journald", "json"), "m40-own-kernel-too-far": ("json",), "y35-playbook-fails": ("json",),
}  # fmt: skip


def when(number: int) -> datetime:
    """When a line was written."""
    return BEGAN + timedelta(seconds=0.21 * number)


FRAMES: dict[str, Callable[[int, str], str]] = {
    "cri": lambda n, line: f"{when(n).isoformat()}789Z stderr F {line}",
    "docker": lambda n, line: f"{when(n).isoformat()}789Z {line}",
    "compose": lambda n, line: f"trainer-1  | {line}",
    "journald": lambda n, line: f"{when(n):%b %d %H:%M:%S} node7 train[4242]: {line}",
    "kubectl": lambda n, line: f"[pod/train-0/main] {line}",
    "json": lambda n, line: json.dumps({"log": line + "\n", "stream": "stderr", "time": f"{when(n).isoformat()}789Z"}),
}  # fmt: skip


def framed(name: str, text: str) -> str:
    """The text as a collector keeps it."""
    lines = text.removesuffix("\n").split("\n")
    return "".join(FRAMES[name](number, line) + "\n" for number, line in enumerate(lines))


@cache
def bare() -> dict[str, str]:
    """By id, the open texts that stand in no frame."""
    listed = public_logs.expectations(TEXTS.parent / "printed.jsonl")
    found: dict[str, str] = {}
    for row in listed:
        if row.part not in PARTS or row.part in ASIDE or "." in row.id:
            continue
        for path in public_logs.texts_of(row, TEXTS)[:1]:
            raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            if len(raw) <= LARGEST:
                found[row.id] = raw.decode("utf-8", "replace")
    return found


def answer(text: str) -> tuple[str, str]:
    """Kind and cause."""
    said = explain(tell([read([Input("x.log", io.BytesIO(text.encode()))])]), facts.load())
    return said.category, said.cause


@pytest.mark.slow  # explains each of some 300 texts seven times
@gathered(sorted(bare()))
def test_a_collectors_words_change_no_answer(id: str) -> None:
    text, known = bare()[id], KNOWN.get(id, ())
    alone = answer(text)
    others = {name: answer(framed(name, text)) for name in FRAMES}
    # one that was mended is to be taken out of the list
    assert {name for name, each in others.items() if each != alone} == set(known), (alone, others)


REFUSED = (
    "2026-11-30 09:01:03,104 WARNING trainer: the fused optimizer refused, the plain one is used\n"
    'Traceback (most recent call last):\n  File "/srv/job/train.py", line 41, in build\n    import fused\n'
    "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\n"
)
BARS = "".join(f"\repoch 0: {n:3d}%|{'#' * (n // 10):<10}| {n}/100 [00:04<00:03, 41.22it/s]" for n in range(0, 101, 20))
HALF = BARS[: BARS.index("\repoch 0:  60%")]
ITEMS = "".join(
    f"item {n} cannot be decoded, taking {n + 1} in its place\n"
    'Traceback (most recent call last):\n  File "/srv/job/data.py", line 31, in get\n    return self.decode(raw)\n'
    "RuntimeError: nvjpeg error 6: bad jpeg\n"
    for n in (17, 203, 260)
)
CHECKED = (
    "[job] precheck of the nodes\n0: bash: line 1: dcgmi: command not found\n"
    "1: bash: line 1: dcgmi: command not found\n"
    "srun: error: gpu-1: task 0: Exited with exit code 127\nsrun: error: gpu-2: task 1: Exited with exit code 127\n"
    "[job] no dcgmi on the nodes, going on without the check\n"
)
STEPS = "".join(f"{rank}: step {n} loss {4 / (1 + n):.3f} failed=0\n" for n in range(0, 50, 10) for rank in (0, 1))
GOOD, BAD = True, False
ENDS = {
    "a bar drawn to its end": (REFUSED + BARS + "\nResult saved: /out/r7.json\n", GOOD),
    "a bar that stays where it was": (REFUSED + HALF + "\n", BAD),
    "items within the limit": ("reading 4 shards\n" + ITEMS + "replaced 3 of 512 items (0.6 %), below 15 %\n", GOOD),
    "a share and its limit": ("reading 4 shards\n" + ITEMS + "bad share 0.0059 is within the tolerance 0.15\n", GOOD),
    "items beyond the limit": (
        "reading 4 shards\n" + ITEMS + "replaced 301 of 512 items (58.8 %), above the limit of 15 %: giving up\n",
        BAD,
    ),
    "the last of the items": ("reading 4 shards\n" + ITEMS, BAD),
    "a check whose tool is missing": (CHECKED + STEPS + "[job] all ranks ended well\n", GOOD),
    "a check, and a rank that fails": (
        CHECKED
        + STEPS
        + "0: RuntimeError: CUDA error: an illegal memory access was encountered\n"
        + "srun: error: gpu-1: task 0: Exited with exit code 1\n",
        BAD,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_ended_nothing_and_its_twin_in_every_frame(name: str) -> None:
    text, good = ENDS[name]
    # ranks that srun labels are told as such in the frames alone that pass a program's stream on as it is
    frames = ("cri", "json") if text.startswith(CHECKED) else tuple(FRAMES)
    for each in (text, *(framed(frame, text) for frame in frames)):
        assert (told(each).category == "insufficient-evidence") is good, each


@pytest.mark.parametrize(
    ("line", "text", "frame"),
    [
        ('2026-11-30T08:01:02.493456789Z stderr F   File "x.py", line 3', '  File "x.py", line 3', 40),
        ("2026-11-30T08:01:02.4934567Z - item", "- item", 29),
        ("2026-11-30T08:01:02.493456+01:00 stdout P 40%|##", "40%|##", 42),
        ("trainer-1  | # a comment", "a comment", 13),
        ("Nov 30 08:01:02 node7 train[4242]: [W] x", "[W] x", 35),
        ("Nov 30 08:01:02 node7 kernel: NVRM: x", "NVRM: x", 0),
        ("[rank0]: Traceback", "Traceback", 9),
        ("3: sum 10", "sum 10", 3),
        ("2026-11-30T08:01:02.4934567Z 3: sum 10", "3: sum 10", 29),
        ("gpu-worker.service: Failed", "gpu-worker.service: Failed", 0),
    ],
)
def test_where_a_collectors_words_end(line: str, text: str, frame: int) -> None:
    said = strip(line)
    assert (said.text, said.frame) == (text, frame)


def test_parts_between_carriage_returns_are_of_the_process_that_the_line_begins_with() -> None:
    text = framed("journald", "first\rsecond: CUDA error: out of memory\rthird")
    (event,) = read([Input("x.log", io.BytesIO(text.encode()))]).events
    assert (event.line.pid, event.line.host, event.line.text) == (4242, "node7", "second: CUDA error: out of memory")
