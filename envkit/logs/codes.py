"""What the numbers in logs mean: versions packed into one integer, statuses of libraries, exit codes."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from envkit.facts import CudaErrorRow, Facts
from envkit.facts.rows import read_table_once
from envkit.records import dataclass
from envkit.versions import Cuda, Cudnn, Nccl

Library = Literal["cublas", "cudnn", "nccl", "ib"]

_TABLES = Path(__file__).parent / "tables"
_CUDA_MOST, _NCCL_MOST, _CUDNN_MOST = 99_990, 99_999, 999_999  # two digits for the major number, as the headers pack it
_SHELL = 128  # POSIX, Shell Command Language: a signal's exit code is above this; shells add the signal's number


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One status of a library.

    ``library`` is "cublas", "cudnn", "nccl" or "ib" (a completion of InfiniBand verbs); ``line`` is the library's major
    release where its numbers changed with one, else "".
    """

    library: str
    line: str
    code: int
    name: str
    means: str
    source: str
    seen: str


@dataclass(frozen=True, slots=True)
class OldCodeRow:
    """One number that CUDA runtimes used while their numbers were not the driver's, and the ``code`` of today."""

    old: int
    name: str
    code: int
    source: str
    seen: str


@dataclass(frozen=True, slots=True)
class LibraryNumberRow:
    """What the numbers of a library's statuses are called; ``library`` is what its calls begin with."""

    library: str
    names: Mapping[str, str]
    source: str
    seen: str


@dataclass(frozen=True, slots=True)
class ExceptionRow:
    """An exception whose name alone tells the cause class; "" where it only passes on another process's failure."""

    exception: str
    cause: str
    source: str
    seen: str


@dataclass(frozen=True, slots=True)
class InnerRow:
    """What a CUDA failure inside NCCL is, by words of its sentence: the failure it is told as, and its cause.

    Those that NCCL alone meets stay NCCL's.
    """

    words: str
    category: str
    cause: str
    source: str
    seen: str


def cuda_version(number: int) -> str | None:
    """The CUDA release of cudaRuntimeGetVersion's integer, None where it is none (CUDA Runtime API, versions)."""
    if not 1000 <= number <= _CUDA_MOST or number % 10:
        return None
    return str(Cuda.from_int(number))


def nccl_version(number: int) -> str | None:
    """The NCCL release of ncclGetVersion's integer, None where it is none (NCCL_VERSION in nccl.h)."""
    if not 1000 <= number <= _NCCL_MOST:
        return None
    return str(Nccl.from_int(number))


def cudnn_version(number: int) -> str | None:
    """The cuDNN release of cudnnGetVersion's integer, None where it is none (CUDNN_VERSION in cudnn_version.h)."""
    if not 1000 <= number <= _CUDNN_MOST or 10_000 <= number < 90_000:
        return None
    return str(Cudnn.from_int(number))


def cuda_error(code: int | str, facts: Facts, *, old: bool = False) -> CudaErrorRow | None:
    """What a cudaError_t or CUresult is: by number, by either name, or by a number in digits.

    With ``old`` the number is one of the toolkits whose runtime numbered its errors by itself.  None for a code that
    the facts do not know.
    """
    number = _number(code)
    if number is None:
        name = str(code).strip()
        return next((row for row in facts.cuda_errors if name in (row.name, row.runtime_name)), None)
    if old:
        rows = read_table_once(OldCodeRow, _TABLES / "cuda_old_code.jsonl")
        found = next((row for row in rows if row.old == number), None)
        if found is None:
            return None
        number = found.code
    return next((row for row in facts.cuda_errors if row.code == number), None)


def status(library: Library, code: int | str) -> StatusRow | None:
    """What a library's status is, by number or name; None for one that the table does not know.

    cuDNN's numbers of one digit or two are those of its major release 8, larger ones those of 9; of a name that both
    have the newer row is given.
    """
    number = _number(code)
    rows = [row for row in read_table_once(StatusRow, _TABLES / "status.jsonl") if row.library == library]
    if number is None:
        return next((row for row in rows if row.name == str(code).strip()), None)
    return next((row for row in rows if row.code == number), None)


def signal_of(exit: int) -> str:
    """The name of the signal that ended a program, "" where its exit code tells of none.

    Negative as Python's subprocess gives it, or 128 and more as shells and containers do.
    """
    number = -exit if exit < 0 else exit - _SHELL if exit > _SHELL else 0
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def inner_failure(sentence: str) -> tuple[str, str] | None:
    """The category and the cause of a CUDA failure that NCCL quotes, None where no row has its words."""
    plain, rows = sentence.lower(), read_table_once(InnerRow, _TABLES / "nccl_inner.jsonl")
    return next(((row.category, row.cause) for row in rows if row.words.lower() in plain), None)


@cache
def exception_causes() -> Mapping[str, str]:
    """The cause classes of exceptions whose name alone tells them, by the name; "" for one that passes on another's."""
    return {row.exception: row.cause for row in read_table_once(ExceptionRow, _TABLES / "exceptions.jsonl")}


def _number(code: int | str) -> int | None:
    if isinstance(code, int):
        return code
    text = code.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
