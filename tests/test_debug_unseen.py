"""Programs that were written before anybody looked at the rules of `envkit debug`, as an H200 judged them.

`tests/debug/unseen_on_gpu.py` ran `tests/debug/unseen_programs.py`; the line that is to be named bears a mark there.
Of fifteen, two met other faults than theirs (Triton refused a kernel's annotations, and that machine's numba did not
load with its NumPy), which were named. Of the other thirteen, eight were named with their lines, one without, four not.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import debugged
import pytest
from test_debug_evidence import marked

from envkit.debug import kernels, told
from envkit.debug.records import CodeLocation, Fault, PythonFrame

RECORD = json.loads((Path(__file__).parent / "data" / "gpu" / "h200-torch-2.11-cu130-debug-unseen.json").read_text())
PROGRAMS = Path(__file__).parent / "debug" / "unseen_programs.py"
NAMED = ("features", "hooks", "collate", "emptied", "metrics", "saves", "raw", "blas")
# Without an optimizer's step or a loader's batch no step is seen; a phase's own optimizer was taken for the only one.
NOT_TOLD = {"evaluation": "undecided", "errors": "undecided", "samples": "undecided", "optimizers": "clean"}


def report(name: str) -> dict[str, Any]:
    """What envkit answered."""
    answer: dict[str, Any] = RECORD["runs"][name]["report"]
    return answer


def test_the_record_says_where_and_when_it_ran() -> None:
    assert RECORD["recorded"]["gpu"] == "NVIDIA H200" and RECORD["recorded"]["torch"] == "2.11.0+cu130"
    assert RECORD["recorded"]["date"] == "2026-11-29" and len(RECORD["runs"]) == 23
    lines = {line for lines in RECORD["lines"].values() for line in lines}
    assert lines == {line for line in marked(PROGRAMS, "# here") if line > 40}


@pytest.mark.parametrize("name", NAMED)
def test_the_planted_line_was_named(name: str) -> None:
    (line,) = RECORD["lines"][name]
    answer = report(f"{name}/fault")
    assert answer["verdict"] == "found" and f"unseen_programs.py:{line}" in answer["cause"]


@pytest.mark.parametrize("name", NOT_TOLD)
def test_what_was_not_told_was_at_least_not_told_wrongly(name: str) -> None:
    assert report(f"{name}/fault")["verdict"] == NOT_TOLD[name]


@pytest.mark.parametrize("name", ["features", "hooks", "collate", "metrics", "raw", "blas", "evaluation"])
def test_no_twin_was_blamed(name: str) -> None:
    assert report(f"{name}/clean")["verdict"] in ("clean", "undecided")


def fault(name: str) -> tuple[Fault, tuple[PythonFrame, ...]]:
    """The fault of a recorded report and the frames of Python that led to it."""
    answer = report(f"{name}/fault")
    return debugged.fault(answer["kernel"]), debugged.frames(answer["python"])


def test_a_kernel_of_cublas_is_not_blamed_but_the_line_that_called_it() -> None:
    met, python = fault("blas")
    met = replace(met, host=tuple(report("blas/fault")["kernel"]["host_frames"]))
    said = told.sentence(met, python)
    (line,) = RECORD["lines"]["blas"]
    assert said.startswith(
        f"`cublasSgemm_v2` of cuBLAS, called at /src/tests/debug/unseen_programs.py:{line} in blas, reads"
    )
    assert "after an allocation of 131,072 bytes in its kernel `sm80_xmma_gemm" in said
    assert told.blamed(met, python) == "program-bug" and f":{line} that the sizes" in told.fix(met, python)
    own = replace(met, kernel="my_gemm", place=CodeLocation("my_gemm", "/src/my.cu", 7))
    assert kernels.called(own) == "" and told.blamed(own, python) == "gpu-kernel-bug"
    assert kernels.called(replace(met, host=(), kernel="scale_rows")) == ""
    assert (
        kernels.called(replace(met, host=(), kernel="void at::native::index_kernel<4>(int)")) == "an operation of torch"
    )


def test_a_kernel_that_was_compiled_at_run_time_is_not_placed_in_a_file_that_is_gone() -> None:
    met, python = fault("raw")
    said = told.sentence(met, python)
    assert "/tmp/" not in said + told.fix(met, python)
    assert "at line 3 of its source, which was compiled at run time," in said and said.endswith(" in raw")
    assert told.fix(met, python).startswith("see at line 3 of the source of `shifted` that")


def test_its_line_is_shown_where_the_program_holds_its_source(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        'import cupy\n\nCODE = r"""\nextern "C" __global__ void other(float* y) { y[0] = 0; }\n"""\n'
        'SHIFTED = r"""extern "C" __global__\nvoid shifted(float* y) {\n    y[threadIdx.x] = 1.0f;\n}"""\n'
    )
    met, _ = fault("raw")
    python = (PythonFrame(str(program), 12, "main"),)
    assert f"at line 3 of its source, which was compiled at run time: `y[threadIdx.x] = 1.0f;` ({program}:8)" in (
        told.sentence(met, python)
    )
    assert f"see at {program}:8 that" in told.fix(met, python)
    there = tmp_path / "kernel.cu"
    there.write_text("\n\n")
    kept = replace(met, place=CodeLocation("shifted", str(there), 3))
    assert f" at {there}:3, " in told.sentence(kept, python)
    program.write_text("def broken(:")
    assert "run time," in told.sentence(met, python)
