"""The rows of wordings and kinds of failure: their patterns are linear, and every kind of failure is there."""

from __future__ import annotations

import re
from pathlib import Path
from time import process_time

import pytest

from envkit.logs import knowledge
from envkit.logs.knowledge import failures, signatures
from envkit.logs.records import Role, Signature

KINDS = {
    "illegal-memory-access",
    "misaligned-address",
    "device-side-assert",
    "invalid-argument-device-mismatch",
    "tensors-on-different-devices",
    "invalid-device-ordinal",
    "no-kernel-image",
    "ptx-unsupported-toolchain",
    "driver-too-old",
    "driver-library-mismatch",
    "forward-compat-unsupported",
    "cuda-init-error-802-fabricmanager",
    "cuda-init-no-device",
    "out-of-memory",
    "fragmentation",
    "cublas-not-initialized",
    "cublas-execution-failed",
    "cudnn-not-initialized",
    "cudnn-version-mismatch",
    "cudnn-execution-failed",
    "nccl-timeout-hang",
    "nccl-unhandled-system-error",
    "nccl-remote-error",
    "nccl-unhandled-cuda-error",
    "nccl-version-mismatch",
    "nccl-shm-too-small",
    "nccl-duplicate-gpu",
    "nccl-net-plugin-not-found",
    "ecc-uncorrectable",
    "gpu-hardware-unknown-error",
    "xid-8",
    "xid-13",
    "xid-31",
    "xid-43",
    "xid-45",
    "xid-48",
    "xid-54",
    "xid-63/64",
    "xid-62",
    "xid-74",
    "xid-79",
    "xid-94/95",
    "xid-143",
    "xid-144-150-nvlink5",
    "xid-154",
    "missing-shared-library",
    "undefined-symbol-abi-mismatch",
    "nvcc-torch-cuda-mismatch",
    "unsupported-gnu-version",
    "triton-libcuda-not-found",
    "dataloader-shm-bus-error",
    "fork-reinit-cuda",
    "docker-no-gpu-driver",
    "nvidia-container-cli-init-error",
    "nvidia-container-cli-requirement-error",
    "selinux-docker-wrapper",
    "cgroup-lost-gpu",
    "cuda-visible-devices-misuse",
    "nan-or-inf-mixed-precision",
    "torch-not-compiled-with-cuda",
    "segfault-in-driver",
    "watchdog-timeout",
    "illegal-instruction",
    "insufficient-evidence",
    "not-gpu-env",
    "sxid-nvlink",
    "nccl-ib-transport-error",
    "xid-other",
    "xid-119/120 GSP",
}

LITERAL = re.compile(r"[A-Za-z0-9_ :,'/\[\]().=-]{4,}")
SYNTAX = re.compile(r"\(\?P<\w+>|\(\?[:!=<i]*|\\[bswdS]|\{\d*,?\d*\}")
ROWS = Path(knowledge.__file__).parent / "signatures"


def of_domain(domain: str) -> list[Signature]:
    """The rows of one file."""
    ids = set(re.findall(r'^\{"id": "([^"]+)"', (ROWS / f"{domain}.jsonl").read_text("utf-8"), re.MULTILINE))
    return [row for row in signatures() if row.id in ids]


def pieces(row: Signature) -> list[str]:
    """Stretches that keep the row's pattern busy when they are repeated."""
    literals = LITERAL.findall(SYNTAX.sub("\0", row.pattern).replace("\\", ""))
    made = [row.anchor, f"{row.anchor} ", f"{row.anchor}1", "".join(literals), *literals[:3]]
    return list(dict.fromkeys(piece for piece in (*made, "a", "1", " ", "a1.", "/a", "1/1 ") if piece))


def took(pattern: re.Pattern[str], piece: str, length: int, end: str) -> float:
    """Seconds of one search of ``length`` characters that are all ``piece``."""
    text = (piece * (length // len(piece) + 1))[:length] + end
    begin = process_time()
    pattern.search(text)
    return process_time() - begin


def grows(pattern: re.Pattern[str], piece: str, end: str, short: int = 5_000) -> bool:
    """Whether four times the text takes more than the eightfold time, as often as it is tried."""
    if took(pattern, piece, short, end) < 0.001:
        return False
    return all(took(pattern, piece, 4 * short, end) > 8 * took(pattern, piece, short, end) for _ in range(3))


@pytest.mark.slow  # each of hundreds of patterns on lines of two lengths, of every piece of it
@pytest.mark.parametrize("domain", ["cuda", "kernel", "program", "ranks", "setup", "unspecific"])
def test_the_time_of_a_pattern_grows_with_the_line_and_no_faster(domain: str) -> None:
    slow = [
        (row.id, piece)
        for row in of_domain(domain)
        for piece in pieces(row)
        if grows(re.compile(row.pattern), piece, "" if row.anchor in piece else row.anchor)
    ]

    assert slow == []


def test_a_pattern_with_nested_repeats_would_be_found() -> None:
    assert grows(re.compile(r"\d+/\d+ nodes"), "1", "", short=2_000)
    assert not grows(re.compile(r"(?<!\d)\d{1,6}/\d{1,6} nodes"), "1", "")


def test_no_file_of_rows_is_left_out() -> None:
    assert sorted(path.stem for path in ROWS.glob("*.jsonl")) == [
        *("cuda", "kernel", "program", "ranks", "setup", "unspecific"),
    ]


def test_every_kind_of_failure_is_there_and_leads_somewhere() -> None:
    known = failures()

    assert set(known) == KINDS
    assert {row.category for row in signatures()} - {""} <= set(known)
    assert set(known) - {row.category for row in signatures()} <= {"fragmentation", "insufficient-evidence"}


def test_every_row_says_where_its_wording_is_from() -> None:
    for row in signatures():
        assert row.source and row.seen, row.id
        assert not (row.role is Role.ADVICE and row.category), row.id
        assert len(row.anchor) >= 4, row.id
