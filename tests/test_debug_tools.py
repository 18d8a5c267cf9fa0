"""What the tools of the stages print, as records: compute-sanitizer, cuda-gdb, faulthandler, py-spy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import debugged
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import debug, facts
from envkit.debug import cores, sanitizer, stacks, told
from envkit.debug.job import CommandRun, LocalMachine, Tools
from envkit.debug.records import Allocation, CodeLocation, PythonFrame, Step, Verdict
from envkit.debug.stages import STAGES, SkippedStage, State, base_name, how_to_get

FACTS = facts.load()

# A command that used CUDA and failed, where every tool is there.
FAILED = State(
    ("python", "train.py"),
    Tools("/bin/python", {"compute-sanitizer": "/cs", "cuda-gdb": "/gdb", "nsys": "/nsys"}, {}),
    runs={"as-is": CommandRun(Path("nowhere"), "exited", 1, 2.0, cuda=(7,))},
)


def skipped(state: State) -> dict[str, str]:
    """The stages that do not run, and why."""
    asked = {stage.name: stage.decide(state) for stage in STAGES}
    return {name: plan.why for name, plan in asked.items() if isinstance(plan, SkippedStage)}


def test_a_cause_that_the_output_tells_leaves_the_tools_of_a_gpu_out() -> None:
    output = debugged.crash().explanation
    assert output is not None
    why = skipped(replace(FAILED, explanation=output))
    assert why["memcheck"] == "its own output tells the cause (misaligned-address), and no kernel is part of it"
    assert set(skipped(replace(FAILED, explanation=replace(output, confidence=0.4)))) < set(why)


def test_a_tool_that_is_not_there_is_to_be_got_only_while_the_cause_is_open() -> None:
    def told_next(state: State) -> tuple[str, ...]:
        step = Step(
            "memcheck", False, "there is no compute-sanitizer", missing="compute-sanitizer", get="pip install it"
        )
        request = debug.DebugRequest(state.command)
        place = Path("nowhere")
        session = debug._Session(request, LocalMachine(), FACTS, place, place, print, state, 0.0, [step])
        return debug._next(session, Verdict.UNDECIDED, None, "")

    fault = next(found for each in debugged.recorded()["faults"].values() if (found := each["report"]["kernel"]))
    assert told_next(FAILED) == ("get compute-sanitizer: pip install it",)
    assert told_next(replace(FAILED, faults={"core-dump": (debugged.fault(fault),)})) == ()
    assert told_next(replace(FAILED, explanation=debugged.crash().explanation)) == ()


@pytest.mark.parametrize("tool", ["compute-sanitizer", "cuda-gdb", "nsys"])
def test_a_tool_of_nvidia_s_is_to_be_got_from_its_archive(tool: str) -> None:
    package = next(row.package for row in reversed(FACTS.tools) if (row.tool, row.how) == (tool, "apt-nvidia"))
    assert f"apt-get install {package} of NVIDIA's archive" in how_to_get(tool, FACTS)


@pytest.mark.parametrize(("stack", "runs"), [("in cudaStreamSynchronize", True), ("in futex_wait", False)])
def test_only_a_hang_behind_a_kernel_is_looked_at_for_barriers(stack: str, runs: bool) -> None:
    looks = ({"processes": {}}, {"processes": {"6": {"python": "", "native": ""}, "7": {"python": stack}}})
    hung = replace(FAILED, runs={"as-is": replace(FAILED.first, ended="hung", exit=None, samples=looks)})
    why = skipped(hung)
    assert ("synccheck" not in why) is runs
    assert why["memcheck"] == "the command hangs and its threads do not wait for a kernel"


MEMCHECK = """\
========= COMPUTE-SANITIZER
made 3 batches
========= Invalid __global__ write of size 4 bytes
=========     at store_at(float *, int)+0x80 in /w/scale.cu:12
=========     by thread (3,1,0) in block (7,0,2)
=========     {address} 0x7f2a40001000 is out of bounds
=========     and is 1,025 bytes after the nearest allocation at 0x7f2a40000000 of size {size} bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Device Frame: scale(float *, int)+0x40 in /w/scale.cu:30
=========         Host Frame: launch in train.py:51 [0x9544e]
=========         Host Frame: <module> in train.py:80 [0x9544e]
=========         Host Frame:  [0x2f26f0] in libcuda.so.1
=========
========= ERROR SUMMARY: 1 error
"""


@pytest.mark.parametrize("address", ["Address", "Access at", "Access to"])
@pytest.mark.parametrize("size", ["3,072", "3072"])
def test_a_write_out_of_bounds_is_read_with_all_its_values(address: str, size: str) -> None:
    (fault,) = sanitizer.faults(MEMCHECK.format(address=address, size=size), "memcheck")
    assert fault.problem == "out of bounds"
    assert (fault.kernel, fault.place) == (
        "scale(float *, int)",
        CodeLocation("store_at(float *, int)", "/w/scale.cu", 12),
    )
    assert (fault.access, fault.size, fault.address) == ("write", 4, 0x7F2A40001000)
    assert (fault.thread, fault.block) == ((3, 1, 0), (7, 0, 2))
    assert fault.near == Allocation(0x7F2A40000000, 3072, "after", 1025)
    assert [frame.place for frame in fault.python] == ["train.py:80", "train.py:51"]
    assert sanitizer.trouble(MEMCHECK) == ""
    said = told.sentence(fault, fault.python)
    assert "writes 4 bytes out of bounds at /w/scale.cu:12, 1,025 bytes after an allocation of 3,072 bytes" in said
    assert "thread (3,1,0) of block (7,0,2)" in said and "launched at train.py:51 in launch" in said
    assert told.category(fault) == "illegal-memory-access"


def test_an_older_release_s_place_and_a_misaligned_read() -> None:
    text = """\
========= Invalid __global__ read of size 16 bytes
=========     at 0xda0 in /w/kernels/quad.cu:9:load_quads(float const*)
=========     by thread (96,0,0) in block (44,0,0)
=========     Address 0x763995f9f004 is misaligned
=========     and is inside the nearest allocation at 0x763995f9f000 of size 512 bytes
========= ERROR SUMMARY: 2 errors
"""
    (fault,) = sanitizer.faults(text, "memcheck")
    assert fault.problem == "misaligned" and fault.size == 16
    assert fault.place == CodeLocation("load_quads(float const*)", "/w/kernels/quad.cu", 9)
    assert fault.near is not None and fault.near.side == "inside"
    assert told.category(fault) == "misaligned-address" and "a multiple of 16" in told.fix(fault)


def test_a_kernel_without_line_numbers_is_still_named() -> None:
    text = "========= Invalid __shared__ write of size 4 bytes\n=========     at fill(int *)+0x60\n"
    (fault,) = sanitizer.faults(text, "memcheck")
    assert (fault.kernel, fault.place.file) == ("fill(int *)", "")
    assert "built without line numbers" in told.sentence(fault, ())


RACE = """\
========= {level}: Race reported between Write access at turn(int *)+0xe0 in /w/turn.cu:5
=========     and Read access at turn(int *)+0x1a0 in /w/turn.cu:7 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed ({errors} error, {warnings} warning)
"""


def test_a_race_has_two_places_and_a_barrier_for_its_fix() -> None:
    (fault,) = sanitizer.faults(RACE.format(level="Error", errors=1, warnings=0), "racecheck")
    assert fault.problem == "race" and fault.count == 508 and fault.sure
    assert (fault.place.where, fault.other.where if fault.other else "") == ("/w/turn.cu:5", "/w/turn.cu:7")
    assert "__syncthreads" in told.fix(fault)
    assert sanitizer.worst((fault,)) is fault


def test_a_race_of_a_statement_with_itself_wants_an_atomic() -> None:
    (fault,) = sanitizer.faults(RACE.format(level="Error", errors=1, warnings=0).replace("cu:7", "cu:5"), "racecheck")
    assert "atomic" in told.fix(fault)


def test_a_warning_of_racecheck_is_not_sure() -> None:
    (fault,) = sanitizer.faults(RACE.format(level="Warning", errors=0, warnings=1), "racecheck")
    assert not fault.sure and sanitizer.worst((fault,)) is None


def test_hazards_line_by_line() -> None:
    text = """\
========= ERROR: Potential WAW hazard detected at __shared__ 0x0 in block (0,0,0) :
=========     Write Thread (0,0,0) at 0x00000088 in raceWAW.cu:18:both(void)
=========     Write Thread (1,0,0) at 0x00000088 in raceWAW.cu:19:both(void)
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
    (fault,) = sanitizer.faults(text, "racecheck")
    assert (fault.place.where, fault.thread) == ("raceWAW.cu:18", (0, 0, 0))
    assert fault.other is not None and fault.other.line == 19


UNSET = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at {kernel}+0x70 in /w/sum.cu:8
=========     by thread (65,0,0) in block (0,0,0)
=========     Address 0x7f615d40daf0
========= ERROR SUMMARY: 1 error
"""


def test_a_read_of_memory_that_nobody_wrote() -> None:
    (fault,) = sanitizer.faults(UNSET.format(kernel="add_into(float *)"), "initcheck")
    assert (fault.problem, fault.place.line, fault.access) == ("uninitialized", 8, "read")
    assert "torch.zeros" in told.fix(fault)


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::reduce_kernel<(int)512, float>(T1)",
        "void cub::CUB_200500_900::DeviceScanKernel<int>(T1)",
        "sm90_xmma_gemm_f32f32_tf32f32_f32",
    ],
)
def test_what_libraries_leave_unset_is_not_sure(kernel: str) -> None:
    (fault,) = sanitizer.faults(UNSET.format(kernel=kernel), "initcheck")
    assert not fault.sure


def test_a_barrier_that_not_all_threads_reach() -> None:
    text = """\
========= Barrier error detected. Divergent thread(s) in block
=========     at meet(int *)+0x120 in /w/meet.cu:14
=========     by thread (0,0,0) in block (3,0,0)
========= ERROR SUMMARY: 64 errors
"""
    (fault,) = sanitizer.faults(text, "synccheck")
    assert (fault.problem, fault.place.where) == ("barrier", "/w/meet.cu:14")


def test_the_same_place_is_told_once_and_the_one_with_a_line_counts() -> None:
    first = UNSET.format(kernel="first(int *)").replace(" in /w/sum.cu:8", "")
    found = sanitizer.faults(first + UNSET.format(kernel="k(int)") * 3, "initcheck")
    assert [(fault.kernel, fault.count) for fault in found] == [("first(int *)", 1), ("k(int)", 3)]
    worst = sanitizer.worst(found)
    assert worst is not None and worst.kernel == "k(int)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no summary"),
        ("========= COMPUTE-SANITIZER\n", "no summary"),
        ("========= Internal Sanitizer Error: Initialization failed\n", "Initialization failed"),
        ("========= Error: Device not supported\n========= ERROR SUMMARY: 0 errors\n", "Device not supported"),
        (
            "========= Error: Target application terminated before first instrumented API call\n",
            "before its first CUDA call",
        ),
    ],
)
def test_a_log_that_says_nothing_of_the_program_is_no_clean_bill(text: str, why: str) -> None:
    assert why in sanitizer.trouble(text)
    assert sanitizer.faults(text, "memcheck") == ()


def test_a_program_s_own_words_are_no_report() -> None:
    text = "Invalid __global__ write of size 4 bytes\n    at kernel(int)+0x1 in x.cu:1\n"
    text += "========= ERROR SUMMARY: 0 errors\n"
    assert sanitizer.faults(text, "memcheck") == () and sanitizer.trouble(text) == ""


@given(st.text(alphabet="= abAt0x+()[],:.\nInvalid__global__ of size in by thread Race", max_size=400))
def test_any_text_is_read_to_its_end(text: str) -> None:
    for tool in sanitizer.TOOLS:
        sanitizer.faults(text, tool)
    sanitizer.trouble(text)
    cores.read(text)
    stacks.threads(text)
    stacks.died(text)


def test_the_command_line_keeps_the_program_s_words() -> None:
    words = sanitizer.command("/t/compute-sanitizer", "memcheck", ["python", "-c", "x"], "/f/log", ["scale"])
    assert words[-3:] == ("python", "-c", "x") and words[words.index("--log-file") + 1] == "/f/log"
    assert words[words.index("--kernel-name") + 1] == "kernel_substring=scale"
    assert "--padding" in words and "--padding" not in sanitizer.command("c", "racecheck", ["x"], "l")


CORE = """\
Opening GPU coredump: /f/gpu-core-12

CUDA Exception: Warp Misaligned Address
The exception was triggered at PC 0x7fffd8f9e3b0  add_quads(float const*)  (quad.cu:9)
[Current focus set to CUDA kernel 0, grid 5, block (2,0,0), thread (32,0,0), device 0, sm 0, warp 1, lane 0]
#0  0x00007fffd8f9e3d0 in add_quads<<<(8,1,1),(128,1,1)>>> (in=0x1, out=0x2) at /w/quad.cu:11
11\t    out[at] = four.x;
"""


def test_a_core_dump_of_the_gpu_names_the_line_of_the_exception() -> None:
    fault = cores.read(CORE)
    assert fault is not None
    assert (fault.kernel, fault.problem, fault.place.where) == ("add_quads", "misaligned", "/w/quad.cu:9")
    assert (fault.thread, fault.block) == ((32, 0, 0), (2, 0, 0))


def test_without_lines_the_kernel_is_named_and_without_a_kernel_nothing_is() -> None:
    bare = CORE.replace(" at /w/quad.cu:11", "").replace("  (quad.cu:9)", "")
    fault = cores.read(bare)
    assert fault is not None and (fault.kernel, fault.place.file) == ("add_quads", "")
    assert cores.read("Opening GPU coredump: x\nNo CUDA kernels.\n") is None
    assert cores.environ("/f/gpu-core-")["CUDA_COREDUMP_FILE"] == "/f/gpu-core-%p"


FATAL = """\
Fatal Python error: Aborted

Thread 0x00007f01 (most recent call first):
  File "/w/site-packages/tqdm/_monitor.py", line 60 in run

Current thread 0x00007f02 (most recent call first):
  File "/w/site-packages/torch/cuda/__init__.py", line 1083 in synchronize
  File "/w/tune.py", line 20 in candidate
  File "/w/tune.py", line 40 in <module>

Extension modules: torch._C (total: 1)
"""


def test_a_death_names_the_line_of_the_thread_that_died() -> None:
    words, frames = stacks.died(FATAL)
    assert words == "Aborted" and [frame.line for frame in frames] == [40, 20, 1083]
    assert stacks.own_line(frames) == PythonFrame("/w/tune.py", 20, "candidate")
    assert stacks.died("no such words") == ("", ())
    other = FATAL[FATAL.index("Thread") : FATAL.index("Current")]
    assert stacks.died(FATAL.replace(other, "").replace("\nExtension", f"\n{other}Extension")) == (words, frames)


def test_threads_of_faulthandler_and_of_py_spy_have_the_main_one_last() -> None:
    assert [each[0].function for each in stacks.threads(FATAL)] == ["run", "<module>"]
    spy = """\
Process 41: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 41 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2806)
    <module> (/w/train.py:12)
Thread 60 (idle): "Thread-1"
    wait (threading.py:324)
"""
    assert [each[-1].function for each in stacks.threads(spy)] == ["wait", "all_reduce"]


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("scale(float *, int)", "scale"),
        ("void at::native::unrolled_kernel<(int)4, at::native::Add<float>>(int, T2)", "unrolled_kernel"),
        ("void (anonymous namespace)::gather<int>(T1)", "gather"),
        ("triton_poi_fused_0", "triton_poi_fused_0"),
        ("", ""),
    ],
)
def test_the_name_that_a_mangled_one_holds(kernel: str, name: str) -> None:
    assert base_name(kernel) == name
