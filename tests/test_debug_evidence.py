"""What `envkit debug` found on an H100, read again: the tools' logs still give the same kernels, and no twin is blamed.

`tests/debug/on_gpu.py` ran the programs; the lines that they should be blamed for bear a mark in their sources.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import debugged
import logs
import pytest

from envkit.debug import cores, render, sanitizer, stacks, told
from envkit.debug.records import Fault, Verdict

RECORD = debugged.recorded()
FAULTS = {
    "oob": ("scale_rows", "out of bounds"),
    "misaligned": ("add_quads", "misaligned"),
    "tuner": ("add_quads", "misaligned"),
    "missing_barrier": ("reverse_block", "race"),
    "uninitialized": ("add_into", "uninitialized"),
    "no_atomic": ("count_bins", "race"),
}
PROGRAMS = Path(__file__).parent / "debug"
LIMIT_S = 120.0


def marked(path: Path, mark: str) -> set[int]:
    """The numbers of the lines that bear a mark."""
    return {number for number, line in enumerate(path.read_text().splitlines(), 1) if mark in line}


def text(case: dict[str, Any], name: str) -> str:
    """A log of the record."""
    return "\n".join(case["logs"][name]) + "\n"


def parsed(case: dict[str, Any]) -> Fault:
    """The fault that the tool's log tells now."""
    tool = case["report"]["kernel"]["tool"]
    fault = sanitizer.worst(sanitizer.faults(text(case, f"{tool}/sanitizer.log"), tool))
    assert fault
    return fault


def test_every_program_was_run_with_its_fault_and_without() -> None:
    assert set(RECORD["faults"]) == set(RECORD["clean"]) == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_the_log_still_gives_kernel_line_thread_and_allocation(name: str) -> None:
    case = RECORD["faults"][name]
    now, then = parsed(case), debugged.fault(case["report"]["kernel"])
    assert (now.kernel, now.problem) == FAULTS[name]
    for field in ("kernel", "problem", "place", "thread", "block", "access", "size", "address", "near", "other"):
        assert getattr(now, field) == getattr(then, field), field
    report = debugged.report(case["report"])
    above = stacks.caller(report.python)  # which was not told yet when this was recorded
    assert above and told.sentence(now, report.python) == (
        f"{report.cause}, called at {above.place} in {above.function}"
    )
    assert told.fix(now) == report.fix


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_was_named_in_time_with_the_marked_lines(name: str) -> None:
    case = RECORD["faults"][name]
    report = debugged.report(case["report"])
    source = "misaligned.cu" if name == "tuner" else f"{name}.cu"
    assert report.verdict is Verdict.FOUND and case["seconds"] <= LIMIT_S
    assert report.fault and report.fault.place.file.endswith(f"/{source}")
    assert report.fault.place.line in marked(PROGRAMS / "kernels" / source, "// here")
    launched = marked(PROGRAMS / f"{name}.py", "# launched here")
    assert launched & {frame.line for frame in report.python if frame.file.endswith(f"/{name}.py")}


def test_faults_of_memory_have_a_thread_and_an_allocation() -> None:
    for name in ("oob", "misaligned", "tuner"):
        fault = parsed(RECORD["faults"][name])
        assert fault.thread and fault.block and fault.near and fault.near.size, name
    near = parsed(RECORD["faults"]["oob"]).near
    assert near and (near.side, near.size) == ("after", 144)


def test_a_silent_fault_is_found_by_the_tool_that_can_see_it() -> None:
    ran = {
        name: [step["stage"] for step in RECORD["faults"][name]["report"]["steps"] if step["ran"]]
        for name in ("uninitialized", "no_atomic", "missing_barrier")
    }
    assert ran["uninitialized"] == ["as-is", "memcheck", "initcheck"]
    assert ran["no_atomic"] == ran["missing_barrier"] == ["as-is", "memcheck", "initcheck", "racecheck", "launches"]


@pytest.mark.parametrize("name", FAULTS)
def test_no_clean_twin_is_blamed(name: str) -> None:
    case = RECORD["clean"][name]
    assert case["verdict"] == "clean" and set(case["stages"]) == {"as-is", *sanitizer.TOOLS}
    for tool in sanitizer.TOOLS:
        log = case["logs"][f"{tool}/sanitizer.log"]
        assert sanitizer.faults(log, tool) == () and sanitizer.trouble(log) == ""


@pytest.mark.parametrize("name", FAULTS)
def test_explain_gives_the_recorded_category_for_the_recorded_outputs(name: str) -> None:
    case = RECORD["faults"][name]
    names = [each for each in case["logs"] if not each.startswith("launches")]
    said = logs.told(*(text(case, each) for each in names), names=names)
    assert (said.category, said.cause) == (case["report"]["category"], case["report"]["cause_class"])
    telling = f"{case['report']['kernel']['tool']}/sanitizer.log"
    assert any(mark.line.file == telling for mark in said.evidence)


@pytest.mark.parametrize("name", ["misaligned", "tuner"])
def test_explain_needs_no_tool_for_the_kind_of_a_loud_fault(name: str) -> None:
    said = logs.told(text(RECORD["faults"][name], "as-is/output.txt"))
    assert (said.category, said.cause) == ("misaligned-address", "gpu-kernel-bug")
    assert "CUDA error: misaligned address" in said.evidence[0].line.text


def test_the_tuner_left_with_0_and_its_child_with_minus_6() -> None:
    report = debugged.report(RECORD["faults"]["tuner"]["report"])
    (child,) = report.children
    assert (report.exit, child.exit, child.stack[-1].function) == (0, -6, "candidate")
    assert "candidate 1: -6" in text(RECORD["faults"]["tuner"], "as-is/output.txt")
    assert "died of SIGABRT (-6)" in report.steps[0].found


def test_the_core_dump_alone_names_kernel_and_line() -> None:
    case = RECORD["core"]
    fault = cores.read(text(case, "core-dump/opened/output.txt"))
    assert fault and fault.kernel == "add_quads" and fault.problem == "misaligned"
    assert fault.place.line in marked(PROGRAMS / "kernels" / "misaligned.cu", "// here")
    where = "/src/tests/debug/kernels/misaligned.cu:5"  # the report of that day had the file's name alone
    assert told.sentence(fault, ()) == case["report"]["cause"].replace("misaligned.cu:5", where)
    assert case["seconds"] <= LIMIT_S


def test_a_package_that_dies_at_load_is_the_environment_s_fault_and_the_other_is_clean() -> None:
    dead = RECORD["packages"]["load as-made-here"]
    report = debugged.report(dead["report"])
    assert (report.verdict, report.exit) == (Verdict.FOUND, -11) and dead["seconds"] <= LIMIT_S
    assert report.cause_class == "wrong-build-installed" and "-static-libstdc++" in report.cause
    (launched,) = marked(PROGRAMS / "package.py", "aoti_load_package(path)")
    assert f"package.py:{launched} in main" in report.cause
    assert RECORD["packages"]["load plain-compiler"]["report"]["verdict"] == "clean"


def test_the_stack_of_python_that_compute_sanitizer_takes_is_read() -> None:
    fault = sanitizer.worst(sanitizer.faults("\n".join(RECORD["python frames"]) + "\n", "memcheck"))
    assert fault and [frame.function for frame in fault.python][-2:] == ["add", "launch"]


KERNEL_LOG = "\n".join(RECORD["kernel_log"]) + "\n"


def test_the_kernel_s_log_of_that_machine_tells_of_a_program_and_not_of_hardware() -> None:
    assert [number in KERNEL_LOG for number in ("): 13,", "): 31,", "): 43,")] == [True] * 3
    said = logs.told(KERNEL_LOG, names=["dmesg.txt"], kernel=[0])
    assert (said.category, said.cause) == ("xid-13", "gpu-kernel-bug")
    assert said.runner_up is None or said.runner_up.cause != "hardware-fault"


def test_beside_the_job_s_log_the_error_of_cuda_is_told_and_not_hardware() -> None:
    job = text(RECORD["faults"]["misaligned"], "as-is/output.txt")
    said = logs.told(job, KERNEL_LOG, names=["job.log", "dmesg.txt"], kernel=[1])
    assert (said.category, said.cause) == ("misaligned-address", "gpu-kernel-bug")
    assert any(mark.line.source == "kernel" and mark.what == "xid-13" for mark in said.timeline)


def test_a_recorded_report_reads_as_it_did() -> None:
    for case in (*RECORD["faults"].values(), RECORD["core"], *RECORD["packages"].values()):
        said = render.text(debugged.report(case["report"]))
        assert said.startswith(case["report"]["verdict"].upper()) and case["report"]["cause"] in said
