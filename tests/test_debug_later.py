"""Programs that were written before they met `envkit debug`, as an H200 judged them, and what was mended by that.

`tests/debug/later_on_gpu.py` ran `tests/debug/later_programs.py`; the line that is to be named bears a mark there.
``runs`` are the answers at first sight, ``again`` those of the mended rules on the same kind of machine.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import debugged
import pytest
from test_debug_evidence import marked
from test_debug_learned import run_in, session_of, state_of, why

from envkit import debug, facts
from envkit.debug import cores, kernels, native, packages, slow, stacks, told
from envkit.debug.job import CommandRun
from envkit.debug.records import CodeLocation, Fault, PythonFrame, Verdict
from envkit.debug.trace import Reduced

RECORD = json.loads((Path(__file__).parent / "data" / "gpu" / "h200-torch-2.11-cu130-debug-later.json").read_text())
PROGRAMS = Path(__file__).parent / "debug" / "later_programs.py"
AT_FIRST = (
    "tritoned", "compiled", "cupied", "halves", "pooled", "staged", "smoothed", "cached", "holes", "crowded",
    "beside_jax", "checked", "uploads", "averaged", "decoded",
)  # fmt: skip
# By the line of a helper at first, or by that of a library, and by its own now.
SINCE = (
    "forked", "unfrozen", "overflow", "beyond_and_race", "unset_and_race", "launched", "cropped", "numbaed",
)  # fmt: skip
CLEAN = (
    "forked", "unfrozen", "compiled", "tritoned", "streams", "overflow", "pooled", "beyond_and_race", "smoothed",
    "cached", "uploads",
)  # fmt: skip


def answer(name: str, part: str = "runs") -> dict[str, Any]:
    """What envkit answered."""
    found: dict[str, Any] = RECORD[part][name]["report"]
    return found


def names_its_line(name: str, part: str) -> bool:
    """Whether the cause holds a marked line of the program."""
    cause = answer(f"{name}/fault", part)["cause"]
    return any(re.search(rf"later_programs\.py:{line}\b", cause) for line in RECORD["lines"][name])


def test_the_record_says_where_and_when_it_ran() -> None:
    assert RECORD["recorded"] == {
        "gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-29", "python": "3.12",
        "where": "the machine's own Python",
    }  # fmt: skip
    lines = {line for lines in RECORD["lines"].values() for line in lines}
    assert lines == {line for line in marked(PROGRAMS, "# here") if line > 20} and len(RECORD["runs"]) == 45


@pytest.mark.parametrize("name", AT_FIRST)
def test_the_planted_line_was_named_at_first_sight(name: str) -> None:
    if name == "compiled":  # the line above the marked one, where the compiled function begins
        assert "`index out of bounds: 0 <= tmp4 < 1000` failed" in answer("compiled/fault")["cause"]
        return
    assert (
        answer(f"{name}/fault")["verdict"] == "found"
        and f"later_programs.py:{RECORD['lines'][name][0]}" in (answer(f"{name}/fault")["cause"])
    )


@pytest.mark.parametrize("name", SINCE)
def test_the_planted_line_is_named_since(name: str) -> None:
    assert names_its_line(name, "again")
    assert name == "numbaed" or not names_its_line(name, "runs")


@pytest.mark.parametrize("name", CLEAN)
def test_no_twin_was_blamed(name: str) -> None:
    assert answer(f"{name}/clean")["verdict"] == "clean"


def test_races_of_streams_and_of_pinned_memory_are_told_by_their_symptom_alone() -> None:
    assert answer("streams/fault")["cause"].endswith("39 sums are wrong")
    assert answer("pinned/fault")["cause"].endswith("10 batches are wrong")


@pytest.mark.parametrize(
    ("name", "function", "line"), [("pooled", "sum_rows", 20), ("staged", "staged", 33), ("refused", "check_width", 38)]
)
def test_code_of_the_cpu_that_died_beside_a_gpu_is_told_by_function_and_line(
    name: str, function: str, line: int
) -> None:
    report = answer(f"{name}/fault")
    assert f"it died in `{function}` at /src/tests/debug/kernels/pooled.cpp:{line}" in report["cause"]
    assert [each["stage"] for each in report["steps"] if each["ran"]] == ["as-is", "native"]
    signal = "SIGABRT" if name == "refused" else "SIGSEGV"
    frames = native.frames("Program received signal " + signal + "\n" + RECORD["runs"][f"{name}/fault"]["gdb"], signal)
    assert any(each.function == name for each in frames), "its caller"


def test_a_crash_of_the_cpu_leaves_nothing_to_the_tools_for_kernels(tmp_path: Path) -> None:
    state = state_of(tmp_path, "x", {"gdb": "/gdb", "compute-sanitizer": "/cs", "cuda-gdb": "/c"}, exit=-11)
    assert why(state, "memcheck")[0], "gdb has not told yet"
    state = replace(state, native="in `sum_rows` at pooled.cpp:20", inside=True)
    for stage in ("blocking", "memcheck", "initcheck", "racecheck", "synccheck", "core-dump"):
        assert why(state, stage) == (False, "the CPU's code died by itself, and no kernel's error was reported")
    alone = state_of(tmp_path / "alone", "x", {"cuda-gdb": "/c"}, exit=-11)
    assert why(alone, "native")[0], "cuda-gdb is gdb for what the CPU runs"


def test_a_thread_that_died_below_no_line_of_python_is_a_cause_and_a_signal_that_was_sent_is_none(
    tmp_path: Path,
) -> None:
    assert answer("flushed/fault")["verdict"] == "undecided" and answer("flushed/fault", "again")["verdict"] == "found"
    session = session_of(tmp_path, state_of(tmp_path, "", {"gdb": "/gdb"}, exit=-11))
    folder = tmp_path / "native"
    folder.mkdir()
    head = "Thread 9 received signal SIGSEGV, Segmentation fault.\n"
    for text, verdict in (
        ("#0  0x1 in flush (counters=0x0) at /w/pooled.cpp:50\n", Verdict.FOUND),
        ("#0  0x1 in kill () from /lib/x86_64-linux-gnu/libc.so.6\n", Verdict.UNDECIDED),
    ):
        (folder / "gdb.log").write_text(head + text)
        debug._learn(session, "native", CommandRun(folder, "exited", 0, 1.0))
        assert debug._report(session).verdict is verdict


def test_a_package_that_brings_a_runtime_of_its_own_is_told_by_where_it_died(tmp_path: Path) -> None:
    """As this machine's compiler made one: the program names no package in its command."""
    at = "std::codecvt<char16_t, char, __mbstate_t>::do_unshift(__mbstate_t&, char*, char*, char*&) const"
    assert f"it died in `{at}` of /tmp/" in answer("packaged/fault")["cause"]
    session = session_of(tmp_path, state_of(tmp_path, "", {"gdb": "/gdb"}, exit=-11))
    folder = tmp_path / "native"
    folder.mkdir()
    log = f"Program received signal SIGSEGV, Segmentation fault.\n#0  0x1 in {at} () from /w/model.wrapper.so\n"
    (folder / "gdb.log").write_text(log)
    debug._learn(session, "native", CommandRun(folder, "exited", 0, 1.0))
    report = debug._report(session)
    assert report.cause.startswith("/w/model.wrapper.so brings a C++ runtime of its own") and (
        report.fix == packages.SHARED
    )
    shared = log.replace("/w/model.wrapper.so", "/usr/lib/libstdc++.so.6")
    assert native.runtime_inside(native.frames(shared, "SIGSEGV")) == ""
    assert native.runtime_inside(native.frames(log.replace(at, "run(int)"), "SIGSEGV")) == ""


def test_a_refused_launch_is_named_by_the_programs_line_and_no_tool_looks_for_its_kernel(tmp_path: Path) -> None:
    frames = debugged.frames(answer("launched/fault")["python"])
    own = stacks.own_line(frames)
    assert own and own.file.endswith("later_programs.py") and "driver.pyx" in answer("launched/fault")["cause"]
    flat = PythonFrame("ops.pyx", 3, "f")
    assert stacks.own_line((*frames, flat)) == flat, "a module in Cython of the program's own"
    text = "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_INVALID_VALUE: invalid argument\n"
    text = 'Traceback (most recent call last):\n  File "/w/a.py", line 546, in launched\n    kernel()\n' + text
    text = text.replace("    kernel()\n", '    kernel()\n  File "cupy/cuda/function.pyx", line 129, in _launch\n'
                        '  File "cupy_backends/cuda/api/driver.pyx", line 286, in launchKernel\n')  # fmt: skip
    session = session_of(tmp_path, state_of(tmp_path, text))
    debug._learn(session, "as-is", session.state.first)
    assert why(session.state, "memcheck")[0], "the line is not known yet"
    session.state = replace(session.state, python=frames)
    for stage in ("memcheck", "synccheck", "core-dump"):
        assert why(session.state, stage) == (
            False, "the launch itself was refused, and the line that asked for it is known",
        )  # fmt: skip
    other = session_of(tmp_path / "b", state_of(tmp_path / "b", "CUDA error: an illegal memory access was encountered"))
    debug._learn(other, "as-is", other.state.first)
    assert why(replace(other.state, python=frames), "memcheck")[0]
    assert run_in(tmp_path / "c").exit == 1


def test_a_kernel_of_cublas_that_a_core_dump_names_is_not_blamed() -> None:
    report = answer("halves/fault")
    fault, python = debugged.fault(report["kernel"]), debugged.frames(report["python"])
    line = RECORD["lines"]["halves"][0]
    said = told.sentence(fault, python)
    assert said.startswith(f"an operation of cuBLAS or cuDNN, called at /src/tests/debug/later_programs.py:{line} in ")
    assert told.blamed(fault, python) == "program-bug" and "sizes, strides" in told.fix(fault, python)
    assert kernels.called(replace(fault, kernel="my_nvjet_copy")) == ""
    assert told.fix(replace(fault, kernel="my_copy", place=CodeLocation("my_copy")), ()).startswith("see in `my_copy` ")


def test_a_launch_by_a_helper_is_told_with_the_line_that_called_the_helper() -> None:
    report = answer("unfrozen/fault")
    fault, python = debugged.fault(report["kernel"]), debugged.frames(report["python"])
    line = RECORD["lines"]["unfrozen"][0]
    assert told.sentence(fault, python).endswith(
        f"launching.py:53 in launch, called at /src/tests/debug/later_programs.py:{line} in backward"
    )
    alone = (PythonFrame("/w/a.py", 3, "main"), PythonFrame("/w/a.py", 9, "launch"))
    assert stacks.caller(alone) is None and stacks.caller(()) is None
    assert told.sentence(Fault("memcheck", "x", "other", "k", CodeLocation("k")), alone).endswith("a.py:9 in launch")


def test_core_files_that_were_there_before_are_opened() -> None:
    fault = cores.read(RECORD["cores"]["gpu"]["text"])
    assert fault and fault.kernel == "rotate" and fault.kind == "Warp Invalid Address Space"
    assert fault.place.where == "/src/tests/debug/later_kernel.py:11" and fault.block == (8, 0, 0)
    for gdb in ("gdb pooled", "cuda-gdb pooled"):
        text = RECORD["cores"][gdb]["text"]
        assert "#0  0x" in text and " in sum_rows (rows=" in text and "/src/tests/debug/kernels/pooled.cpp:20" in text


def timed(name: str, part: str = "runs") -> slow.Process:
    """A recorded process, with what its report's table tells of the trace."""
    case = RECORD[part][name]
    rows = {row[0]: row[1] for row in case["report"]["tables"][0]["rows"]}
    raw = case["slow"]
    steps = [raw["mean"]] * 10

    def seconds(words: str) -> float:
        number, unit = rows[words].split()
        return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit] * raw["count"]

    gaps = {"loader": seconds("GPU waits for a batch"), "sync": seconds("GPU ran dry while the CPU waited for it"),
            "host": seconds("GPU waits for the CPU")}  # fmt: skip
    busy = seconds("GPU at work")
    reduced = Reduced(
        busy + sum(gaps.values()), True, busy, gaps, 0, 0.0, 0, 0, 0.0, 0, 0, {"operations": 1, "kernels": 1}, (), (),
        (), 0.0, (), (),
    )  # fmt: skip
    plain = {**raw, "steps": steps, "loaded": [0.0] * 10, "traced": [0.0] * raw["count"]}
    return replace(slow.process(plain, None), reduced=reduced)


def test_what_the_profiler_adds_to_the_cpus_time_is_no_wait_of_the_gpu() -> None:
    """The twin's step takes 3.1 ms, 6.4 under the profiler; 2.6 of them the GPU is at work."""
    assert "59% of a step of 3.1 ms" in answer("checked/clean")["cause"]
    assert slow.judge([timed("checked/clean")], facts.load()).findings == ()
    (found,) = slow.judge([timed("decoded/clean")], facts.load()).findings
    assert "has nothing to do in 22% of a step of 2.1 ms" in found.said, "46% before; its step is short for the CPU"
    (kept,) = slow.judge([timed("averaged/fault")], facts.load()).findings
    assert kept.kind == "host" and kept.weight > 0.7


@pytest.mark.parametrize("name", ["cropped", "uploads", "averaged", "decoded"])
def test_the_share_that_is_told_is_that_which_was_planted(name: str) -> None:
    case = RECORD["again"][f"{name}/fault"]
    assert abs(case["report"]["findings"][0]["weight"] - case["planted"]) < 0.16
