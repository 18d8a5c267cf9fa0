"""What the stages of `envkit debug` do and what each brings into its step and into the verdict, run by run; a run is
given as the supervisor would leave it.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import debugged
import pytest
from fake_podman import FakeProgram

from envkit import debug, facts
from envkit.debug import job, sanitizer, stages, told
from envkit.debug.job import CommandRun, LocalMachine, Tools
from envkit.debug.records import CodeLocation, Fault, PythonFrame, Verdict
from envkit.debug.stages import SkippedStage, StagePlan, State

FACTS = facts.load()
COMMAND = ("python", "train.py")
EVERY = {"compute-sanitizer": "/cs", "cuda-gdb": "/gdb", "nsys": "/nsys"}
LINE = PythonFrame("/srv/train.py", 7, "step")


def run_in(folder: Path, text: str = "", **more: Any) -> CommandRun:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "output.txt").write_text(text)
    made = CommandRun(folder, "exited", 1, 2.0, cuda=(7,))
    return replace(made, **more)


def state_of(tmp_path: Path, text: str = "", tools: dict[str, str] | None = None, **more: Any) -> State:
    first = run_in(tmp_path / "as-is", text, **more)
    stories = {"as-is": told.read({"as-is/output.txt": text.encode()})}
    return State(
        COMMAND, Tools("/bin/python", EVERY if tools is None else tools, {}), runs={"as-is": first}, stories=stories
    )


def session_of(tmp_path: Path, state: State, said: list[str] | None = None, **request: Any) -> debug._Session:
    asked = debug.DebugRequest(COMMAND, **request)
    say = (said if said is not None else []).append
    return debug._Session(asked, LocalMachine(), FACTS, tmp_path, tmp_path, say, state, time.monotonic())


DEVICE = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
NO_DSA = "RuntimeError: CUDA error: x\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"


def decided(state: State, name: str) -> StagePlan | SkippedStage:
    return next(stage for stage in stages.STAGES if stage.name == name).decide(state)


def why(state: State, name: str) -> tuple[bool, str]:
    plan = decided(state, name)
    return isinstance(plan, StagePlan), plan.why


def test_the_stages_and_their_order() -> None:
    assert stages.NAMES == (
        "as-is", "package-checks", "placement", "numbers", "native", "blocking", "device-assertions", "no-cache",
        "memcheck", "initcheck", "core-dump", "racecheck", "synccheck", "copies", "launches", "profile",
    )  # fmt: skip
    assert stages.TOOLS == ("compute-sanitizer", "cuda-gdb", "py-spy", "gdb", "nsys")


def test_nothing_runs_after_a_command_that_needs_no_gpu_or_forks(tmp_path: Path) -> None:
    forks = state_of(tmp_path, ended="forks")
    assert why(forks, "blocking") == (False, "the command forks without end")
    alone = state_of(tmp_path, cuda=())
    assert why(alone, "memcheck") == (False, "no process of the command loaded the CUDA driver")
    mixed = replace(state_of(tmp_path, DEVICE), mixed="unmatched device type")
    assert why(mixed, "blocking") == (False, "the package's own checks name the cause")


def test_a_blocking_run_is_for_an_error_of_cuda(tmp_path: Path) -> None:
    plan = decided(state_of(tmp_path, DEVICE), "blocking")
    assert isinstance(plan, StagePlan) and plan.environ == {"CUDA_LAUNCH_BLOCKING": "1"}
    assert why(state_of(tmp_path, "ValueError: x\n"), "blocking")[1].startswith("no CUDA error was reported")
    assert why(state_of(tmp_path, DEVICE, ended="hung", exit=None), "blocking")[1].startswith("the command hangs")


def test_device_assertions_are_asked_for_where_torch_has_them(tmp_path: Path) -> None:
    text = DEVICE + "Device-side assertion tracking was not enabled by user.\n"
    plan = decided(state_of(tmp_path, text), "device-assertions")
    assert isinstance(plan, StagePlan) and plan.environ["PYTORCH_USE_CUDA_DSA"] == "1"
    assert plan.environ["CUDA_LAUNCH_BLOCKING"] == "1"
    assert (
        "this torch was built without device-side assertions" in why(state_of(tmp_path, NO_DSA), "device-assertions")[1]
    )
    assert why(state_of(tmp_path, DEVICE), "device-assertions")[1].startswith("torch reported no error")


TRACKED = """torch.AcceleratorError: CUDA error: no error
1 CUDA device-side assertion failures were found on GPU #0!
Assertion failure 0
  GPU assertion failure message = starts[at] < length
  File containing assertion = /w/tracked.cu:11
  Device function containing assertion = plan
  Thread ID that failed assertion = [231,0,0]
  Block ID that failed assertion = [3,0,0]
"""
LAUNCHED = "  File containing kernel launch = /w/tracked.cu:26\n"


@pytest.mark.parametrize("launched", ["", LAUNCHED])
def test_an_assertion_that_torch_tracked_is_the_cause(tmp_path: Path, launched: str) -> None:
    session = session_of(tmp_path, state_of(tmp_path, DEVICE))
    raised = ({"event": "exception", "frames": [["/srv/train.py", 7, "step"]], "kind": "AcceleratorError"},)
    ran = run_in(tmp_path / "device-assertions", TRACKED + launched, events=raised)
    said = debug._learn(session, "device-assertions", ran)
    assert said.startswith(
        "the assertion `starts[at] < length` failed on the device at /w/tracked.cu:11 in plan, thread "
    )
    assert said.endswith("thread (231, 0, 0) of block (3, 0, 0)" + launched.replace(LAUNCHED, LAUNCH))
    assert why(session.state, "memcheck") == (False, "the device's assertion that failed is named")
    verdict, cause, category, _, fix = debug._verdict(session, None, session.state.python, ())
    assert (verdict, category) == (Verdict.FOUND, "device-side-assert") and "before the call" in fix
    assert cause == f"{said}; called at /srv/train.py:7 in step"


LAUNCH = "; its kernel is launched at /w/tracked.cu:26"


def test_where_no_assertion_was_tracked_the_tools_go_on(tmp_path: Path) -> None:
    session = session_of(tmp_path, state_of(tmp_path, DEVICE))
    looked = "Looking for device-side assertion failure information...\n"
    assert debug._learn(session, "device-assertions", run_in(tmp_path / "device-assertions", DEVICE + looked)) == ""
    assert session.state.tracked == "" and why(session.state, "memcheck")[0]


def test_torchs_cache_is_left_out_where_no_sanitizer_is(tmp_path: Path) -> None:
    assert why(state_of(tmp_path, DEVICE), "no-cache")[1].startswith("compute-sanitizer is there")
    plan = decided(state_of(tmp_path, DEVICE, {}), "no-cache")
    assert isinstance(plan, StagePlan)
    assert plan.environ == {**stages.UNCACHED, **stages.BLOCKING}
    for more in ({"ended": "hung", "exit": None}, {"exit": 0}):
        text = "" if more.get("exit") == 0 else DEVICE
        assert why(state_of(tmp_path, text, {}, **more), "no-cache")[1].startswith("the command raises no error")


def test_a_sanitizers_line(tmp_path: Path) -> None:
    state = replace(state_of(tmp_path, DEVICE), kernels=("turn",))
    for tool in sanitizer.TOOLS:
        plan = decided(state, tool)
        assert isinstance(plan, StagePlan) and plan.around is not None
        assert plan.environ == {**stages.UNCACHED, "ENVKIT_DEBUG_LINES": "1"}
        argv = plan.around(COMMAND, "/f")
        assert list(argv) == list(sanitizer.command("/cs", tool, COMMAND, "/f/sanitizer.log", ("turn",)))
    missing = decided(state_of(tmp_path, DEVICE, {}), "memcheck")
    assert isinstance(missing, SkippedStage) and (missing.missing, missing.open) == ("compute-sanitizer", True)


def test_a_core_dump_is_for_a_kernels_error_and_lies_in_its_folder(tmp_path: Path) -> None:
    plan = decided(state_of(tmp_path, DEVICE), "core-dump")
    assert isinstance(plan, StagePlan) and plan.around is not None
    argv = plan.around(COMMAND, "/f")
    assert argv[0] == "env" and tuple(argv[-2:]) == COMMAND and any("=/f/gpu-core-" in word for word in argv)
    missing = decided(state_of(tmp_path, DEVICE, {}), "core-dump")
    assert isinstance(missing, SkippedStage) and (missing.missing, missing.open) == ("cuda-gdb", True)
    for state in (state_of(tmp_path, "x"), state_of(tmp_path, DEVICE, ended="timed-out", exit=None)):
        assert why(state, "core-dump")[1].startswith("no kernel's error was reported")


def test_a_profile_is_for_a_command_that_works_when_its_time_is_up(tmp_path: Path) -> None:
    slow = {"ended": "timed-out", "exit": None}
    plan = decided(state_of(tmp_path, busy=0.5, **slow), "profile")
    assert isinstance(plan, StagePlan) and plan.around is not None
    assert plan.around(COMMAND, "/f") == (
        "/nsys", "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--duration=60",
        "--force-overwrite=true", "--output", "/f/profile", *COMMAND,
    )  # fmt: skip
    brief = decided(replace(state_of(tmp_path, busy=0.5, **slow), stage_s=30.0), "profile")
    assert isinstance(brief, StagePlan) and brief.around is not None
    assert "--duration=15" in brief.around(COMMAND, "/f"), "nsys writes its report in the rest of the time"
    for more in ({"busy": 0.49, **slow}, {"busy": 1.0}, {"busy": 1.0, "cuda": (), **slow}):
        assert why(state_of(tmp_path, **more), "profile") == (False, "the command does not just take long")
    missing = decided(state_of(tmp_path, "", {}, busy=1.0, **slow), "profile")
    assert isinstance(missing, SkippedStage) and (missing.missing, missing.open) == ("nsys", False)


def fault(**more: Any) -> Fault:
    rows = (each["report"]["kernel"] for each in debugged.recorded()["faults"].values())
    return replace(debugged.fault(next(row for row in rows if row)), **more)


def test_a_launch_is_looked_for_by_the_name_of_the_kernel(tmp_path: Path) -> None:
    state = state_of(tmp_path, DEVICE)
    assert why(state, "launches") == (False, "no kernel is named whose launch could be looked for")
    named = replace(state, faults={"memcheck": (fault(kernel="void ns::turn<float>(int)", python=()),)})
    plan = decided(named, "launches")
    assert isinstance(plan, StagePlan) and plan.launches == ("turn",)
    seen = replace(state, faults={"memcheck": (fault(python=(LINE,)),)})
    assert why(seen, "launches")[1].startswith("compute-sanitizer told the line of Python")
    nameless = replace(state, faults={"memcheck": (fault(kernel="(" * 100, python=()),)})
    assert why(nameless, "launches")[1] == f"the kernel has no name that could be looked for: {'(' * 80}"


# -- what each brings


def launched(tmp_path: Path, *events: Any, failed: tuple[PythonFrame, ...] = ()) -> tuple[str, tuple[PythonFrame, ...]]:
    session = session_of(tmp_path, replace(state_of(tmp_path, DEVICE), python=failed))
    said = debug._learn(session, "launches", run_in(tmp_path / "launches", events=tuple(events)))
    return said, session.state.python


def launch(line: int) -> dict[str, Any]:
    return {"event": "launch", "frames": [["/srv/train.py", line, "step"]]}


def test_where_a_kernel_is_launched(tmp_path: Path) -> None:
    assert launched(tmp_path) == ("the kernel was not seen being launched", ())
    assert launched(tmp_path, {"event": "x", "trouble": "no CUPTI"})[0] == "no CUPTI"
    assert launched(tmp_path, launch(7)) == ("launched at /srv/train.py:7 in step", (LINE,))
    other = replace(LINE, line=9)
    said = "launched at /srv/train.py:{} in step, and 1 other places"
    assert launched(tmp_path, launch(7), launch(9)) == (said.format(7), (LINE,))
    assert launched(tmp_path, launch(7), launch(9), failed=(other,)) == (said.format(9), (other,))
    elsewhere = replace(LINE, line=11)
    assert launched(tmp_path, launch(7), launch(9), failed=(elsewhere,)) == (said.format(11), (elsewhere,))
    assert launched(tmp_path, launch(7), failed=(elsewhere,)) == ("launched at /srv/train.py:7 in step", (LINE,))
    nobody = {"event": "launch", "frames": []}
    assert launched(tmp_path, nobody)[0] == "it is launched by a thread without Python, such as autograd's"


def test_a_sanitizer_that_did_not_see_all_leaves_the_question_open(tmp_path: Path) -> None:
    session = session_of(tmp_path, state_of(tmp_path, DEVICE))
    ran = run_in(tmp_path / "memcheck", ended="timed-out", exit=None)
    (ran.folder / "sanitizer.log").write_text("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n")
    assert debug._learn(session, "memcheck", ran) == "it did not end within its budget (timed-out)"
    assert session.open == ["memcheck did not look at the whole command: it did not end within its budget (timed-out)"]
    clean = session_of(tmp_path, state_of(tmp_path, DEVICE))
    assert debug._learn(clean, "memcheck", replace(ran, ended="exited", exit=0)) == "nothing" and clean.open == []


def test_a_package_that_names_its_input(tmp_path: Path) -> None:
    session = session_of(tmp_path, state_of(tmp_path, DEVICE))
    assert debug._learn(session, "package-checks", run_in(tmp_path / "package-checks", "x\n")) == (
        "the package's checks name no input"
    )
    line = "input_handles[0]: unmatched device type, expected: 1(cuda), but got: 0(cpu)"
    said = debug._learn(session, "package-checks", run_in(tmp_path / "package-checks", f"x\n  {line}{'y' * 400}\n"))
    assert said == (line + "y" * 400)[:300] == session.state.mixed
    verdict, cause, category, kind, fix = debug._verdict(session, None, (), ())
    assert (verdict, category, kind) == (Verdict.FOUND, "invalid-argument-device-mismatch", "device-mixup")
    assert cause.endswith(session.state.mixed) and "x.to('cuda')" in fix
    other = session_of(tmp_path, state_of(tmp_path, DEVICE))
    debug._learn(other, "package-checks", run_in(tmp_path / "package-checks", "unmatched words\n"))
    assert other.state.mixed == ""


def test_a_core_dump_that_is_not_there_leaves_the_question_open(tmp_path: Path) -> None:
    session = session_of(tmp_path, state_of(tmp_path, DEVICE))
    assert debug._learn(session, "core-dump", run_in(tmp_path / "core-dump")) == "the driver wrote no core dump"
    assert session.open == ["the driver wrote no core dump of the GPU"]
    assert debug._learn(session, "profile", run_in(tmp_path / "profile")) == "nsys left no report"


def test_what_takes_the_time_is_the_first_row_of_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys = FakeProgram(tmp_path / "fake", "nsys", monkeypatch)
    session = session_of(tmp_path, state_of(tmp_path, DEVICE, {"nsys": str(nsys.path)}))
    nsys.on("'stats '*", f"Time (%),Name\n61.2,{'k' * 300}\n20,other\n")
    ran = run_in(tmp_path / "profile")
    (ran.folder / "profile.nsys-rep").write_text("")
    assert debug._learn(session, "profile", ran) == f"most of the GPU's time by nsys: 61.2% in `{'k' * 200}`"
    (line,) = nsys.lines()
    words = ["stats", "--force-export=true", "--report", "cuda_gpu_kern_sum,cuda_api_sum", "--format", "csv"]
    assert line == [*words, f"{tmp_path}/profile/profile.nsys-rep"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ended": "not-started", "error": "no such file"}, "was not started: no such file"),
        ({}, "exited with status 1 after 2.0 s"),
        ({"left": 3}, "exited with status 1 after 2.0 s; what it left behind was ended (3)"),
        ({"ended": "hung", "left": 3}, "hung and was ended after 2.0 s"),
        (
            {"ended": "timed-out", "undying": 2},
            "did not end in its time and was ended after 2.0 s; SIGKILL did not end all (2)",
        ),
        ({"ended": "forks"}, "forked without end and was ended after 2.0 s"),
        ({"ended": "stopped"}, "stopped and was ended after 2.0 s"),
    ],
)  # fmt: skip
def test_how_a_run_ended_in_words(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    assert debug._ending(run_in(tmp_path / "r", **more)) == said


def test_of_a_long_output_the_end_is_read_from_the_beginning_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"one\ntwo\nthree\n")
    monkeypatch.setattr(debug, "_TAIL_BYTES", 14)
    assert debug._tail(path) == b"one\ntwo\nthree\n"
    monkeypatch.setattr(debug, "_TAIL_BYTES", 13)
    assert debug._tail(path) == b"two\nthree\n" and debug._tail(tmp_path / "none") == b""


PLACE = CodeLocation("k.cu", 7)


@pytest.mark.parametrize(
    ("more", "fix"),
    [
        ({"problem": "misaligned", "size": 16}, "give the kernel a pointer that is a multiple of 16 (a slice"),
        ({"problem": "misaligned", "size": 0}, "give the kernel a pointer that is a multiple of the access's size (a"),
        ({"problem": "race", "other": None}, "use an atomic operation there ("),
        ({"problem": "uninitialized"}, "write the memory before "),
        ({"problem": "barrier"}, "let every thread of the block reach the barrier at "),
        ({"problem": "assert"}, "see what the assertion at "),
        ({"problem": "out of bounds"}, "see at "),
        ({"problem": "other", "kind": "a kind"}, "look at "),
    ],
)  # fmt: skip
def test_what_mends_a_fault(more: dict[str, Any], fix: str) -> None:
    assert told.fix(fault(**more)).startswith(fix)


def test_the_first_exception_of_a_python_is_its_place() -> None:
    events: list[Any] = [{"event": "x", "frames": [1]}, {"event": "exception", "frames": []}]
    assert told.main_frames(events) == ()


SPAWNED = """

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/opt/torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
  File "/app/train.py", line 75, in _embeds
    out = table(tokens)
torch.AcceleratorError: CUDA error: device-side assert triggered
"""


def raised(message: str, line: int, before: Any = None) -> dict[str, Any]:
    """An exception as the companion tells it, at a line of a program's own."""
    event = {"event": "exception", "kind": "RuntimeError", "message": message, "frames": [["/app/train.py", line, "f"]]}
    return event if before is None else {**event, "before": before}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (raised("out of range", 9), 9),
        (raised(SPAWNED, 81), 75),  # of the process that met it, not of who waited for that
        (raised("no", 81, [raised(SPAWNED, 3)]), 75),  # of a pool's worker, as the cause
        # the capture fails by what was called within it
        (raised("CUDA error: failed due to a previous error", 66, [raised("CUDA error: not permitted", 68)]), 68),
        (raised("wrong shape", 66, [raised("CUDA error: not permitted", 68)]), 66),  # its own, raised while handling
        (raised("CUDA error: not permitted", 66, [raised("no such key", 68)]), 66),
        (raised("Traceback (most recent call last):", 81), 81),  # without a frame
    ],
)
def test_an_error_is_placed_where_it_was_met_first(event: dict[str, Any], line: int, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps({"event": "start"}) + "\n" + json.dumps(event) + "\n")
    assert told.main_frames(job._events(tmp_path / "events.jsonl"))[-1].line == line


def test_what_a_stage_needs_is_checked(tmp_path: Path) -> None:
    said: list[str] = []
    session = session_of(tmp_path, state_of(tmp_path, DEVICE), said, only=("memcheck",), skip=("profile",))
    for name in ("blocking", "profile"):
        debug._run_stage(session, next(stage for stage in stages.STAGES if stage.name == name))
    assert [(step.stage, step.ran, step.why) for step in session.steps] == [
        ("blocking", False, "it was not asked for"), ("profile", False, "it was not asked for")
    ]  # fmt: skip
    spent = session_of(tmp_path, state_of(tmp_path, DEVICE), said)
    spent.started -= debug.BUDGET_S
    for _ in range(2):
        debug._run_stage(spent, next(stage for stage in stages.STAGES if stage.name == "blocking"))
    assert spent.open == [f"the budget of {debug.BUDGET_S:g} s was spent"] and said == []
    assert [step.why for step in spent.steps] == spent.open * 2
    bare = session_of(tmp_path, state_of(tmp_path, DEVICE, {}), said)
    for name in ("memcheck", "racecheck"):
        debug._run_stage(bare, next(stage for stage in stages.STAGES if stage.name == name))
    assert bare.open == ["there is no compute-sanitizer"] and bare.steps[0].missing == "compute-sanitizer"
    assert bare.steps[0].get == stages.how_to_get("compute-sanitizer", FACTS)
