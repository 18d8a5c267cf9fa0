"""The numbers of logs."""

from __future__ import annotations

import pytest

from envkit import facts
from envkit.logs import codes

FACTS = facts.load()


@pytest.mark.parametrize(
    ("number", "version"),
    [(12080, "12.8"), (11070, "11.7"), (9020, "9.2"), (13000, "13.0"), (12081, None), (12, None), (1208000, None)],
)
def test_cuda_version(number: int, version: str | None) -> None:
    assert codes.cuda_version(number) == version


@pytest.mark.parametrize(
    ("number", "version"), [(22705, "2.27.5"), (21805, "2.18.5"), (2708, "2.7.8"), (5, None), (1234567, None)]
)
def test_nccl_version(number: int, version: str | None) -> None:
    assert codes.nccl_version(number) == version


@pytest.mark.parametrize(
    ("number", "version"), [(90100, "9.1.0"), (91002, "9.10.2"), (8902, "8.9.2"), (7605, "7.6.5"), (53000, None)]
)
def test_cudnn_version(number: int, version: str | None) -> None:
    assert codes.cudnn_version(number) == version


@pytest.mark.parametrize("code", [700, "700", "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS"])
def test_cuda_error_by_number_and_name(code: int | str) -> None:
    row = codes.cuda_error(code, FACTS)
    assert row is not None and row.code == 700


@pytest.mark.parametrize(("old", "new"), [(77, 700), (59, 710), (48, 209), (30, 999), (10, 101), (2, 2), (4, 719)])
def test_cuda_error_by_an_old_number(old: int, new: int) -> None:
    row = codes.cuda_error(old, FACTS, old=True)
    assert row is not None and row.code == new


@pytest.mark.parametrize("code", [123456, "cudaErrorNone", "", "7_0", "\u0667"])
def test_cuda_error_that_nobody_knows(code: int | str) -> None:
    assert codes.cuda_error(code, FACTS) is None
    assert codes.cuda_error(31, FACTS, old=True) is None


@pytest.mark.parametrize(
    ("library", "code", "name"),
    [
        ("cublas", 13, "CUBLAS_STATUS_EXECUTION_FAILED"),
        ("cudnn", 8, "CUDNN_STATUS_EXECUTION_FAILED"),
        ("cudnn", "5000", "CUDNN_STATUS_EXECUTION_FAILED"),
        ("nccl", 6, "ncclRemoteError"),
        ("ib", "12", "IBV_WC_RETRY_EXC_ERR"),
        ("ib", 4, "IBV_WC_LOC_PROT_ERR"),
    ],
)
def test_status(library: codes.Library, code: int | str, name: str) -> None:
    row = codes.status(library, code)
    assert row is not None and row.name == name and row.means


def test_status_by_name_is_the_newest_and_strange_ones_are_none() -> None:
    row = codes.status("cudnn", "CUDNN_STATUS_EXECUTION_FAILED")
    assert row is not None and (row.code, row.line) == (5000, "9")
    assert codes.status("nccl", 99) is None
    assert codes.status("cublas", "ncclRemoteError") is None


@pytest.mark.parametrize(
    ("exit", "name"), [(-9, "SIGKILL"), (137, "SIGKILL"), (139, "SIGSEGV"), (134, "SIGABRT"), (143, "SIGTERM"), (1, "")]
)
def test_signal_of(exit: int, name: str) -> None:
    assert codes.signal_of(exit) == name


def test_signal_of_what_is_none() -> None:
    assert [codes.signal_of(code) for code in (0, 128, 255, 256, -300, 3221225477)] == [""] * 6


@pytest.mark.parametrize("text", ["1000000000000", "\u0663", "", "-"])
def test_a_number_that_is_none_is_not_looked_up(text: str) -> None:
    assert codes.cuda_error(text, facts.load()) is None
    assert codes.status("nccl", text) is None


def test_a_name_may_stand_among_blanks() -> None:
    row = codes.status("nccl", " ncclRemoteError ")
    assert row is not None and row.code == 6


def test_an_old_number_that_nobody_used_is_none() -> None:
    assert codes.cuda_error(700, facts.load(), old=True) is None


def test_versions_have_their_bounds() -> None:
    assert [codes.cuda_version(number) for number in (10, 100_000)] == [None, None]
    assert codes.cudnn_version(1_000_000) is None
