"""Commands that capture CUDA graphs, which need torch's cache of memory, under the stages that do without it.

`tests/debug/graphs_on_gpu.py` ran `tests/debug/graph_programs.py`, labelled before, on an H200; "mended" holds all of
it again.  The rest is shown with tools and a torch that stand in.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_debug
from test_debug_evidence import marked

from envkit import debug, facts
from envkit.debug import job, sanitizer, stacks, stages, told
from envkit.debug.job import CommandRun, LocalMachine, Tools
from envkit.debug.records import DebugReport, Verdict
from envkit.debug.stages import SkippedStage, StagePlan, State

HERE = Path(__file__).parent
RECORD = json.loads((HERE / "data" / "gpu" / "h200-torch-2.11-cu130-debug-graphs.json").read_text())
SOURCE = HERE / "debug" / "graph_programs.py"
PROGRAM = "/src/tests/debug/graph_programs.py"
sys.path.insert(0, str(HERE / "debug"))
LABELS = __import__("graphs_on_gpu").labels()
sys.path.remove(str(HERE / "debug"))


def report(name: str, part: str = "mended") -> dict[str, Any]:
    """What was answered of a program."""
    answer: dict[str, Any] = RECORD[part][name]["report"]
    return answer


def events(name: str, file: str) -> tuple[Any, ...]:
    """What the companion wrote in a recorded run."""
    return tuple(json.loads(line) for line in RECORD["mended"][name]["files"][file].splitlines())


# -- on an H200


def test_the_record_says_where_and_when_it_ran() -> None:
    said = {"gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-30"}
    assert RECORD["recorded"] == {**said, "python": "3.12", "where": "the machine's own Python"}
    assert {line for lines in RECORD["lines"].values() for line in lines} == marked(SOURCE, "  # here")
    assert set(RECORD["runs"]) == set(RECORD["mended"]) == set(LABELS)


@pytest.mark.parametrize("part", ["runs", "mended"])
@pytest.mark.parametrize("name", sorted(LABELS))
def test_each_program_was_judged_as_its_label_says(name: str, part: str) -> None:
    """At first sight all but torch.compile's own graphs, whose check of its memory fails under compute-sanitizer."""
    verdict, words = LABELS[name]
    answer = report(name, part)
    first = part == "runs" and name == "compiled/clean"
    assert answer["verdict"] == ("undecided" if first else verdict)
    assert all(word in answer["cause"] for word in words)
    for line in RECORD["lines"].get(name.partition("/")[0], ()) if verdict == "found" else ():
        told_at = part == "mended" or name != "race/fault"  # whose kernel is launched at two lines
        assert (f"{PROGRAM}:{line}" in answer["cause"]) is told_at


@pytest.mark.parametrize("name", sorted(LABELS))
def test_whatever_ran_without_the_cache_says_what_it_did_not_see(name: str) -> None:
    tools = [step for step in report(name)["steps"] if step["stage"] in sanitizer.TOOLS]
    assert bool(report(name)["unseen"]) is bool(tools)
    assert all(step["exit"] == 0 for step in tools) or name == "bounds/fault"


def test_torchs_check_of_its_graphs_memory_failed_with_the_cache_too() -> None:
    steps = [step for step in report("compiled/clean", "runs")["steps"] if step["stage"] == "memcheck"]
    assert [step["exit"] for step in steps] == [1, 1]
    for file in ("memcheck/output.txt", "memcheck-cached/output.txt"):
        assert "in the cudagraph pool not tracked as outputs" in RECORD["runs"]["compiled/clean"]["files"][file]


def test_a_fault_in_a_graph_is_told_where_it_was_captured_and_where_it_is_replayed() -> None:
    log = (
        "========= Invalid __global__ write of size 4 bytes\n"
        "=========     at double_all+0x1a0 in /src/tests/debug/graph_kernel.py:12\n"
        + RECORD["mended"]["bounds/fault"]["files"]["memcheck/sanitizer.log"]
    )
    (fault,) = sanitizer.faults(log, "memcheck")
    assert stacks.replays(fault.python) and fault.python[-1].function == "replay"
    state = State(("x",), Tools("/x", {}, {}), faults={"memcheck": (fault,)})
    plan = next(stage for stage in stages.STAGES if stage.name == "launches").decide(state)
    assert isinstance(plan, StagePlan) and plan.launches == ("double_all",)
    eager = replace(fault, python=fault.python[:-1])
    plan = next(stage for stage in stages.STAGES if stage.name == "launches").decide(
        replace(state, faults={"memcheck": (eager,)})
    )
    assert isinstance(plan, SkippedStage) and "told the line of Python" in plan.why
    (captured,) = [each for each in events("bounds/fault", "launches/events.jsonl") if each.get("captured")]
    said = told.sentence(fault, stacks.frames(captured["frames"]))
    assert f"; launched at {PROGRAM}:116 in bounds; the graph that holds it is replayed at {PROGRAM}:117" in said
    assert "launched at" not in told.sentence(fault, fault.python)


def learned(name: str, folder: Path) -> debug._Session:
    """A session that met the recorded fault of racecheck, and then the launches of its kernel."""
    tools = Tools("/x", {"compute-sanitizer": "/cs"}, {})
    session = debug._Session(
        debug.DebugRequest(("x",)), LocalMachine(), facts.load(), folder, folder, print,
        State(("x",), tools, runs={"as-is": CommandRun(folder, "exited", 0, 1.0, cuda=(1,))}), time.monotonic(),
    )  # fmt: skip
    (folder / "sanitizer.log").write_text(RECORD["mended"][name]["files"]["racecheck/sanitizer.log"])
    debug._learn(session, "racecheck", CommandRun(folder, "exited", 0, 1.0))
    found = events(name, "launches/events.jsonl")
    debug._learn(session, "launches", CommandRun(folder, "exited", 0, 1.0, events=found))
    return session


def test_a_kernel_that_is_launched_at_two_lines_is_told_with_both(tmp_path: Path) -> None:
    session = learned("race/fault", tmp_path)
    said = debug._verdict(session, session.state.fault, session.state.python, ())[1]
    assert f"; launched at {PROGRAM}:157 in race; it is launched at {PROGRAM}:161, too" in said
    session.state = replace(session.state, elsewhere=())
    assert ":161" not in debug._verdict(session, session.state.fault, session.state.python, ())[1]


def test_a_broken_capture_leaves_the_tools_out_and_an_error_before_it_does_not(tmp_path: Path) -> None:
    output = RECORD["mended"]["broken/fault"]["files"]["as-is/output.txt"]
    first = CommandRun(tmp_path, "exited", 1, 1.0, cuda=(1,), events=events("broken/fault", "as-is/events.jsonl"))
    tools = Tools("/x", {"compute-sanitizer": "/cs"}, {})
    memcheck = next(stage for stage in stages.STAGES if stage.name == "memcheck")

    def decided(text: str) -> StagePlan | SkippedStage:
        story = told.read({"as-is/output.txt": text.encode()})
        python = told.main_frames(first.events)
        return memcheck.decide(State(("x",), tools, runs={"as-is": first}, stories={"as-is": story}, python=python))

    plan = decided(output)
    assert isinstance(plan, SkippedStage) and plan.why.startswith("the capture was refused") and not plan.open
    plan = decided("torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n" + output)
    assert isinstance(plan, StagePlan) and plan.environ["ENVKIT_DEBUG_CACHE"] == "captures"


# -- with tools that stand in

CAPTURE = """
if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1":
        raise RuntimeError("CUDA error: {error}")
    print("cache", os.environ.get("ENVKIT_DEBUG_CACHE"))
"""
FORBIDDEN = "operation not permitted when stream is capturing"
run = test_debug.run  # a fixture


def program(tmp_path: Path, error: str) -> list[str]:
    """A command that fails by an error where torch's cache is off, and uses CUDA."""
    return test_debug.python(tmp_path, test_debug.USES_CUDA.format(body=CAPTURE.format(error=error).strip()))


def ran(made: DebugReport) -> list[str]:
    """The stages that ran, each time."""
    return [step.stage for step in made.steps if step.ran]


@pytest.mark.slow  # all stages
def test_a_capture_that_fails_under_a_tool_is_looked_at_again_with_the_cache(
    run: test_debug.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_debug.stand_in(tmp_path, "none", monkeypatch)
    made = run(program(tmp_path, FORBIDDEN))
    assert made.verdict is Verdict.CLEAN and ran(made) == ["as-is", "memcheck", *sanitizer.TOOLS]
    first = next(step for step in made.steps if step.stage == "memcheck")
    assert (first.exit, first.found) == (1, debug._UNCAPTURED)
    for name in ("memcheck-cached", "initcheck", "synccheck"):
        assert Path(made.folder, name, "output.txt").read_text() == "cache all\n"
    assert made.unseen.startswith(
        "a CUDA graph cannot be captured without torch's cache of memory, which was on for all"
    )


@pytest.mark.slow  # all stages
def test_a_command_that_fails_under_a_tool_by_anything_else_is_not_run_again(
    run: test_debug.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_debug.stand_in(tmp_path, "none", monkeypatch)
    made = run(program(tmp_path, "out of memory"))
    assert made.verdict is Verdict.UNDECIDED and ran(made) == ["as-is", *sanitizer.TOOLS]
    assert "failed in the stage memcheck: RuntimeError: CUDA error: out of memory" in made.cause and not made.unseen


@pytest.mark.slow  # all stages
def test_a_command_that_fails_with_the_cache_for_captures_alone_is_run_again_with_all_of_it(
    run: test_debug.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_debug.stand_in(tmp_path, "none", monkeypatch)
    torch(tmp_path, SWITCH)
    body = 'import torch\n    torch.cuda.CUDAGraph()\n    assert os.environ.get("ENVKIT_DEBUG_CACHE") != "captures"'
    made = run(test_debug.python(tmp_path, test_debug.USES_CUDA.format(body=body)))
    assert made.verdict is Verdict.CLEAN and ran(made) == ["as-is", "memcheck", *sanitizer.TOOLS]
    assert next(step for step in made.steps if step.stage == "memcheck").found == debug._PARTLY
    assert "which was on for all tensors" in made.unseen
    made = run(test_debug.python(tmp_path, test_debug.USES_CUDA.format(body=body.replace("captures", "none"))))
    assert made.verdict is Verdict.CLEAN and ran(made) == ["as-is", *sanitizer.TOOLS]
    assert "which was on for the tensors that a capture makes" in made.unseen


def test_what_a_tool_saw_before_a_capture_failed_stays_found(
    run: test_debug.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_debug.stand_in(tmp_path, "memcheck", monkeypatch)
    made = run(program(tmp_path, FORBIDDEN), skip=("launches",))
    assert made.verdict is Verdict.FOUND and ran(made) == ["as-is", "memcheck"]
    assert "/w/scale.cu:12" in made.cause and not made.unseen


def test_the_rung_without_the_cache_makes_no_fault_of_a_capture(
    run: test_debug.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without compute-sanitizer
    command = program(tmp_path, FORBIDDEN)
    Path(command[1]).write_text(Path(command[1]).read_text() + '\nraise AssertionError("the sum differs: 0.0")\n')
    made = run(command)
    assert "no-cache" in ran(made) and made.category != "illegal-memory-access"
    assert "the sum differs" in made.cause and "captur" not in made.cause and "hid it" not in made.cause
    assert test_debug.step(made, "no-cache").found == debug._UNCAPTURED


def test_where_a_capture_was_seen_the_rung_without_the_cache_does_not_run_and_the_tools_leave_it_to_captures() -> None:
    graph = CommandRun(Path("/x"), "exited", 1, 1.0, cuda=(1,), events=({"event": "graph", "how": "all"},))
    story = told.read({"as-is/output.txt": b"AssertionError: the sum differs: 0.0\n"})
    state = State(("x",), Tools("/x", {}, {}), runs={"as-is": graph}, stories={"as-is": story})
    uncached = next(stage for stage in stages.STAGES if stage.name == "no-cache")
    plan = uncached.decide(state)
    assert isinstance(plan, SkippedStage) and "captures CUDA graphs" in plan.why
    assert isinstance(uncached.decide(replace(state, runs={"as-is": replace(graph, events=())})), StagePlan)
    for captures, cached, added in (
        (False, False, stages.UNCACHED), (True, False, stages.BUT_CAPTURES), (True, True, stages.CACHED),
    ):  # fmt: skip
        first = replace(graph, events=graph.events if captures else ())
        assert stages._memory(replace(state, runs={"as-is": first}, cached=cached)) == added


# -- the companion, in a torch that is made up here

TORCH = {
    "torch/__init__.py": "import torch._C\nimport torch.cuda\n",
    "torch/_C.py": """
class _CUDAGraph:
    def capture_begin(self, pool=None, capture_error_mode="global"):
        print("begin", capture_error_mode, flush=True)
        if pool == "bad":
            raise RuntimeError("no capture")
    def capture_end(self):
        print("end", flush=True)
    def replay(self):
        print("replay", flush=True)
SWITCH
""",
    "torch/cuda/__init__.py": """
from types import SimpleNamespace
from torch.cuda.graphs import CUDAGraph
def current_stream():
    return SimpleNamespace(synchronize=lambda: print("waited", flush=True))
def is_current_stream_capturing():
    return False
""",
    "torch/cuda/graphs.py": """
import torch._C
class CUDAGraph(torch._C._CUDAGraph):
    def __new__(cls):
        return super().__new__(cls)
    def capture_begin(self, pool=None, capture_error_mode="global"):
        super().capture_begin(pool, capture_error_mode)
    def capture_end(self):
        super().capture_end()
    def replay(self):
        super().replay()
""",
    "torch/_inductor/__init__.py": "",
    "torch/_inductor/config.py": "class triton:\n    slow_path_cudagraph_asserts = True\n",
    "torch/_inductor/cudagraph_trees.py": "from torch._inductor import config\n",
}
SWITCH = "def _cuda_cudaCachingAllocator_enable(value):\n    print('cache', value, flush=True)\n"
CAPTURES = """
import torch
graph = torch.cuda.CUDAGraph()
graph.capture_begin()
graph.capture_end()
try:
    graph.capture_begin("bad")
except RuntimeError:
    pass
graph.replay()
from torch._inductor import config, cudagraph_trees
torch.cuda.CUDAGraph().capture_begin()
print(config.triton.slow_path_cudagraph_asserts)
"""
PLAIN = ["begin global", "end", "begin global", "replay", "begin global", "True"]
SWITCHED = [
    "cache False", "cache True", "begin relaxed", "end", "cache False", "cache True", "begin relaxed", "cache False",
    "replay", "cache True", "begin global", "False",
]  # fmt: skip


def torch(folder: Path, switch: str) -> None:
    """Writes the torch into a folder, with or without a switch for its cache."""
    for name, text in TORCH.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("SWITCH", switch))


@pytest.mark.parametrize(
    ("environ", "switch", "printed", "how"),
    [
        ({}, SWITCH, PLAIN, ["all"]),
        ({"ENVKIT_DEBUG_CACHE": "captures"}, SWITCH, SWITCHED, ["captures", "all"]),
        ({"ENVKIT_DEBUG_CACHE": "captures"}, "", [*PLAIN[:-1], "False"], ["all"]),
        ({"ENVKIT_DEBUG_CACHE": "all"}, SWITCH, [*PLAIN[:-1], "False"], ["all"]),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, SWITCH, [*PLAIN[:4], "waited", *PLAIN[4:]], ["all"]),
    ],
    ids=["as it is", "captures", "without a switch", "all", "blocking"],
)
def test_torchs_cache_is_left_to_captures_where_that_is_asked(
    tmp_path: Path, environ: dict[str, str | None], switch: str, printed: list[str], how: list[str]
) -> None:
    torch(tmp_path, switch)
    command = test_debug.python(tmp_path, CAPTURES)
    done = job.run(LocalMachine(), command, tmp_path / "run", budget_s=300, environ=environ)
    assert (done.text().splitlines(), done.exit) == (printed, 0)
    graphs = [event for event in done.events if event["event"] == "graph"]
    assert [event["how"] for event in graphs] == how
    assert [list(frame) for frame in graphs[0]["frames"]] == [[str(tmp_path / "program.py"), 3, "<module>"]]


def test_a_torch_without_graphs_is_left_alone() -> None:
    sys.path.insert(0, str(job.COMPANION))
    try:
        captures: Any = __import__("envkit_captures")
    finally:
        sys.path.remove(str(job.COMPANION))
    module = SimpleNamespace(__name__="torch.cuda.graphs")
    captures._wrap(module)
    assert vars(module) == {"__name__": "torch.cuda.graphs"} and os.environ.get(captures.CACHE) is None
