"""Seventeen programs that fail as users' do, labelled before `envkit debug` ran on any, as two H200 judged them.

`tests/debug/common_on_gpu.py` ran `tests/debug/common_programs.py`; "runs" is what was told at first sight, "mended"
what was told of those that ran again, on one H200, after the rules were mended.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_debug
from test_debug_evidence import marked
from test_debug_learned import decided, state_of, why

from envkit import facts
from envkit.debug import cores, job, numbers, packages, stages, told
from envkit.debug.job import LocalMachine
from envkit.debug.stages import SkippedStage, StagePlan

HERE = Path(__file__).parent
RECORD = json.loads((HERE / "data" / "gpu" / "h200x2-torch-2.11-cu130-debug-common.json").read_text())
SOURCE = HERE / "debug" / "common_programs.py"
PROGRAM = "/src/tests/debug/common_programs.py"
LABELS: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = next(
    ast.literal_eval(each.value)
    for each in ast.parse(SOURCE.read_text()).body
    if isinstance(each, ast.AnnAssign) and each.value and ast.unparse(each.target) == "LABELS"
)
# At first sight: by the marked line, by another of the same fault; the others were undecided.
BY_LINE = {"pooled", "tiled", "attended", "threaded", "uneven", "hosted", "handed", "refed", "narrow"}
BESIDE = {"early", "inplaced", "blanked", "fused", "leading", "arched"}
UNDECIDED = {"overwritten", "spinning"}
WORDLESS = {"hosted", "handed", "refed", "narrow", "leading", "arched", "spinning"}  # words of the label
TIME_UP = {"fused", "handed", "overwritten", "refed", "narrow"}
MENDED = {"inplaced", "blanked", "hosted", "overwritten", "handed", "narrow", "refed"}  # told with the marked line


def cause(name: str, part: str = "runs") -> str:
    """What a run was told by."""
    said: str = RECORD[part][name]["report"]["cause"]
    return said


def named(name: str, part: str) -> bool:
    """Whether a cause has the marked line, and that of the kernel where the label has one."""
    said = cause(f"{name}/fault", part)
    mark = LABELS[name][1]
    kernel = marked(SOURCE.with_name("common_kernel.py"), f"# {mark}") if mark else set()
    own = any(re.search(rf"\bcommon_programs\.py:{line}\b", said) for line in RECORD["lines"][name])
    return own and all(f"/src/tests/debug/common_kernel.py:{line}" in said for line in kernel)


def lacking(name: str, part: str) -> list[tuple[str, ...]]:
    """The groups of a label's words of which a cause has none."""
    return [words for words in LABELS[name][0] if not any(word in cause(f"{name}/fault", part) for word in words)]


def test_the_record_says_where_and_when_it_ran() -> None:
    said = {"gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-30"}
    assert RECORD["recorded"] == {**said, "python": "3.12", "where": "the machine's own Python"} and RECORD["gpus"] == 2
    assert {line for lines in RECORD["lines"].values() for line in lines} == marked(SOURCE, "  # here")
    assert set(RECORD["runs"]) == {f"{name}/{kind}" for name in LABELS for kind in ("fault", "clean")}
    assert set(LABELS) == BY_LINE | BESIDE | UNDECIDED


@pytest.mark.parametrize("name", sorted(LABELS))
def test_each_fault_at_first_sight(name: str) -> None:
    verdict = RECORD["runs"][f"{name}/fault"]["report"]["verdict"]
    assert verdict == ("undecided" if name in UNDECIDED else "found")
    assert named(name, "runs") is (name in BY_LINE | {"overwritten"})
    assert bool(lacking(name, "runs")) is (name in WORDLESS)


@pytest.mark.parametrize("name", sorted(LABELS))
def test_no_twin_was_blamed(name: str) -> None:
    assert RECORD["runs"][f"{name}/clean"]["report"]["verdict"] == ("undecided" if name in TIME_UP else "clean")


@pytest.mark.parametrize("name", sorted(MENDED))
def test_what_was_mended_is_told_with_its_line(name: str) -> None:
    assert RECORD["mended"][f"{name}/fault"]["report"]["verdict"] == "found" and named(name, "mended")
    assert not lacking(name, "mended")


def test_twins_after_the_rules_were_mended() -> None:
    for name in ("blanked", "inplaced", "overwritten"):
        assert RECORD["mended"][f"{name}/clean"]["report"]["verdict"] == "clean"


def test_a_library_is_not_blamed_for_arguments_that_the_program_gave() -> None:
    assert "torch's own arguments" in cause("leading/fault") and "not torch's own" in cause("leading/fault", "mended")
    text = "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm{call}`\n"
    known = facts.load()
    for call, says in (("", "not torch's own"), ("( handle, opa, opb, m, n, k)", "torch's own arguments")):
        assert says in told.explained({"x": text.format(call=call).encode()}, known)[1].because


def test_what_a_tensor_of_another_process_and_tracked_assertions_are_told_by() -> None:
    known = facts.load()
    output = RECORD["runs"]["handed/fault"]["files"]["as-is/output.txt"]
    assert "another process that had ended" in told.explained({"x": output.encode()}, known)[1].because
    elsewhere = output.replace("_new_shared_cuda", "_event").replace("rebuild_cuda_tensor", "record")
    assert "another process" not in told.explained({"x": elsewhere.encode()}, known)[1].because
    tracked = "torch.AcceleratorError: CUDA error: no error\n  GPU assertion failure message = starts[at] < length\n"
    said = told.explained({"x": tracked.encode()}, known)[1]
    assert said.category == "device-side-assert" and "`starts[at] < length` failed" in said.because
    plain = tracked.replace("GPU assertion failure message", "message")
    assert told.explained({"x": plain.encode()}, known)[1].category != "device-side-assert"


# -- where numbers and changes began


def events(name: str) -> list[Any]:
    """What the companion wrote of a program's calls."""
    return [json.loads(line) for line in RECORD["mended"][name]["files"]["numbers/events.jsonl"].splitlines()]


def test_the_first_nan_is_told_with_what_made_it() -> None:
    made = numbers.read(events("blanked/fault"))
    assert made and made.sure and made.said in cause("blanked/fault", "mended")
    assert made.said.startswith(f"the first nan comes out of `softmax` at {PROGRAM}:{RECORD['lines']['blanked'][0]} ")
    made = numbers.read(events("halved/fault"))
    (line,) = marked(HERE / "debug" / "novel_programs.py", "norm = (out * out).sum(1, keepdim=True)  # here")
    assert made and f"an infinite number came out of `sum` at /src/tests/debug/novel_programs.py:{line} in" in made.said
    assert "65504" in made.fix


def unfinite(how: str, line: int = 3, given: bool = False) -> Any:
    return {"event": "unfinite", "how": how, "operation": "div", "given": given, "frames": [["/x.py", line, "f"]]}


def test_what_came_from_elsewhere_is_not_sure() -> None:
    made = numbers.read([unfinite("nan", given=True)])
    assert made and not made.sure and "made by no call of torch that was seen" in made.said
    made = numbers.read([unfinite("inf")])
    assert made and made.sure and made.said.startswith("the first infinite number comes out of `div` at /x.py:3 in f")
    made = numbers.read([unfinite("nan"), unfinite("inf", 9)])
    assert made and "infinite" not in made.said
    made = numbers.read([unfinite("inf"), unfinite("nan")])
    assert made and "came out of `div` there, out of finite ones" in made.said
    assert numbers.read([]) is None and numbers.read([{**unfinite("nan"), "frames": []}]) is None


def raising(tmp_path: Path, kind: str, message: str, **more: Any) -> stages.State:
    """A command that failed by an exception of Python."""
    state = state_of(tmp_path, f"{kind}: {message}\n")
    event: Any = {"event": "exception", "kind": kind, "message": message, "frames": []}
    return replace(state, runs={"as-is": replace(state.first, events=(event,), **more)})


@pytest.mark.parametrize(
    ("kind", "message", "runs"),
    [
        ("FloatingPointError", "the loss is nan", True),
        ("ValueError", "gradients are not finite", True),
        ("RuntimeError", "a variable has been modified by an inplace operation: [torch.FloatTensor [2]]", True),
        ("ValueError", "no information in the banana", False),
    ],
)
def test_calls_are_looked_at_where_an_exception_tells_of_such_numbers(
    tmp_path: Path, kind: str, message: str, runs: bool
) -> None:
    assert why(raising(tmp_path, kind, message), "numbers")[0] is runs
    assert not why(raising(tmp_path, kind, message, cuda=()), "numbers")[0]


def test_no_tool_for_kernels_runs_after_a_call_of_torch_that_is_sure(tmp_path: Path) -> None:
    state = raising(tmp_path, "FloatingPointError", "the loss is nan")
    for sure in (True, False):
        plan = decided(replace(state, origin=numbers.Origin("x", "y", sure)), "memcheck")
        assert (isinstance(plan, SkippedStage) and "the call of torch" in plan.why) is sure


TORCH = {
    "torch/__init__.py": """
import math
from types import SimpleNamespace
strided, modes = "strided", []
cuda = SimpleNamespace(is_initialized=lambda: False)
class Tensor:
    layout, device = "strided", SimpleNamespace(type="cpu")
    def __init__(self, *values):
        self.values, self._version, self.shape = list(values), 0, (len(values),)
    def is_inference(self): return False
    def is_floating_point(self): return True
    def detach(self): return self
    def any(self): return any(self.values)
    def type(self): return "torch.FloatTensor"
    def untyped_storage(self): return SimpleNamespace(data_ptr=lambda: id(self))
def handed(function):
    def call(*arguments):
        if not modes:
            return function(*arguments)
        mode = modes.pop()
        try:
            return mode.__torch_function__(function, (), arguments)
        finally:
            modes.append(mode)
    return call
def isnan(x): return Tensor(*map(math.isnan, x.values))
def isinf(x): return Tensor(*map(math.isinf, x.values))
@handed
def mul(x, by): return Tensor(*(each * by for each in x.values))
@handed
def sub(x, y): return Tensor(*(a - b for a, b in zip(x.values, y.values)))
@handed
def empty(): return Tensor(math.nan)
@handed
def mul_(x, by):
    x.values, x._version = [each * by for each in x.values], x._version + 1
    return x
""",
    "torch/overrides.py": """
import torch
class TorchFunctionMode:
    def __enter__(self): torch.modes.append(self)
""",
}
CALLS = {
    "overflow": (
        "x = torch.mul(torch.Tensor(1e300), 1e300)\nprint(torch.sub(x, x).values)",
        ["inf mul 2", "nan sub 3"],
    ),
    "mask": ("x = torch.mul(torch.Tensor(1.0), float('inf'))\ntorch.sub(x, torch.Tensor(1.0))", []),
    "given": ("x = torch.Tensor(float('nan'))\ntorch.mul(x, 2.0)", ["nan mul 3 given"]),
    "unwritten": ("x = torch.empty()\nprint(x.values)", []),
    "finite": ("x = torch.mul(torch.Tensor(2.0), 3.0)\nprint(torch.mul_(x, 2.0).values)", []),
    "changed": (
        "x = torch.mul_(torch.Tensor(2.0), 3.0)\nraise RuntimeError('modified by an inplace operation: "
        "[torch.FloatTensor [1]], which is')",
        ["edited 2"],
    ),
    "of another shape": (
        "x = torch.mul_(torch.Tensor(2.0), 3.0)\nraise RuntimeError('modified by an inplace operation: "
        "[torch.FloatTensor [7]], which is')",
        [],
    ),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_companion_looks_at_what_each_call_of_torch_makes(tmp_path: Path, name: str) -> None:
    for file, text in TORCH.items():
        place = tmp_path / "site-packages" / file  # where its lines are not the program's
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    program, expected = CALLS[name]
    command = test_debug.python(
        tmp_path, f"import sys; sys.path.insert(0, {str(tmp_path / 'site-packages')!r}); import torch\n{program}\n"
    )
    done = job.run(LocalMachine(), command, tmp_path / "run", budget_s=300, environ={"ENVKIT_DEBUG_NUMBERS": "1"})
    met: list[Any] = [event for event in done.events if event["event"] in ("unfinite", "edited")]
    told_of = [
        f"{each.get('how', 'edited')} {each.get('operation', '')} {each['frames'][-1][1]}"
        + (" given" if each.get("given") else "")
        for each in met
    ]
    assert [each.replace("  ", " ") for each in told_of] == expected


# -- packages, dumps and kernels that do not end


def test_an_input_that_a_package_was_not_made_for_is_told_by_its_kind(tmp_path: Path) -> None:
    assert packages.unlike("input_handles[0]: unmatched dtype, expected: 6")[0] == "of another number type"
    assert packages.unlike("input_handles[0]: unmatched device type")[1] == "invalid-argument-device-mismatch"
    assert packages.unlike("input_handles[0]: unmatched dim value at 1")[0] == "of another shape"
    assert packages.unlike("a dtype")[0] == ""
    state = raising(tmp_path, "AssertionError", "not close")
    assert not why(state, "package-checks")[0]
    loaded: Any = {"event": "package"}
    used = replace(state, runs={"as-is": replace(state.first, events=(*state.first.events, loaded))})
    assert why(used, "package-checks")[0]
    passed = replace(used, runs={"as-is": replace(used.first, exit=0)})
    assert not why(passed, "package-checks")[0]


def standing(tmp_path: Path, **more: Any) -> stages.State:
    """A command whose time was up while it used a processor and its stack did not move."""
    look = {"processes": {"7": {"python": "File x", "cuda": True}}}
    state = state_of(tmp_path, "", **{"ended": "timed-out", "exit": None, **more})
    state = replace(state, runs={"as-is": replace(state.first, busy=1.0, samples=(look, look), seconds=40.0)})
    return replace(state, tools=replace(state.tools, paths={"cuda-gdb": "/cuda-gdb"}))


def test_the_gpu_is_looked_at_where_a_command_stands_at_a_line(tmp_path: Path) -> None:
    state = standing(tmp_path)
    plan = decided(state, "core-dump")
    assert isinstance(plan, StagePlan) and plan.around
    words = plan.around(("python", "x.py"), "/folder")
    assert "CUDA_COREDUMP_PIPE=/folder/gpu-pipe" in words and words[-3:] == ("30", "python", "x.py")
    moving = ({"processes": {"7": {"python": "a"}}}, {"processes": {"7": {"python": "b"}}})
    for change in ({"samples": moving}, {"busy": 0.1}, {"ended": "hung"}):
        other = replace(state, runs={"as-is": replace(state.first, **change)})
        assert isinstance(decided(other, "core-dump"), SkippedStage)


def test_the_look_is_asked_for_through_the_pipe_and_the_command_is_as_it_was(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    script = f"mkfifo {pipe}; read x < {pipe}; echo looked at, $1"
    done = job.run(
        LocalMachine(), cores.at_a_look(str(tmp_path / "core-"), str(pipe), 1, ("sh", "-c", script, "sh", "a b")),
        tmp_path / "run", budget_s=300,
    )  # fmt: skip
    assert (done.text().strip(), done.exit) == ("looked at, a b", 0)
    plain = cores.at_a_look("x", str(tmp_path / "none"), 0, ("true",))
    assert job.run(LocalMachine(), plain, tmp_path / "other", budget_s=300).exit == 0
    assert not (tmp_path / "none").exists()


def test_the_kernel_that_did_not_end_was_named() -> None:
    assert "the GPU was in kernel" not in cause("spinning/fault")
    said = cause("spinning/fault", "mended")
    assert f"is in spinning at {PROGRAM}:{RECORD['lines']['spinning'][0]} each time" in said
    assert "the GPU was in kernel `spin`" in said
    assert RECORD["mended"]["spinning/fault"]["report"]["verdict"] == "undecided"
    opened = RECORD["mended"]["spinning/fault"]["files"]["core-dump/opened/output.txt"]
    fault = cores.read(opened)
    assert fault and fault.kernel == "spin" and fault.place.line == 4


def test_a_kernel_of_a_library_that_a_graph_replays_is_found_by_its_dump() -> None:
    steps = [step["stage"] for step in RECORD["mended"]["refed/fault"]["report"]["steps"] if step["ran"]]
    assert steps == ["as-is", "blocking", "memcheck", "initcheck", "core-dump", "launches"]
    assert "an operation of cuBLAS or cuDNN, called at" in cause("refed/fault", "mended")
