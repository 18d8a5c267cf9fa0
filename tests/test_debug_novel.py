"""Ten programs that were labelled before `envkit debug` ran on any, and the rungs of a container that were left, as an
H200 judged them.

`tests/debug/novel_on_gpu.py` ran `tests/debug/novel_programs.py`, whose lines that are to be named bear a mark;
`tests/debug/contained_on_gpu.py` ran the rungs under Docker Engine.  What was told beside its line, or not at all, is
judged again here from what was recorded.
"""

from __future__ import annotations

import ast
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_debug_evidence import marked

from envkit import debug, facts
from envkit.debug import native, stages, told
from envkit.debug.job import CommandRun, LocalMachine, Tools
from envkit.debug.records import Verdict
from envkit.debug.stages import State

HERE = Path(__file__).parent
DEBUG = HERE / "debug"
NOVEL, RUNGS = (
    json.loads((HERE / "data" / "gpu" / f"h200-torch-2.11-cu130-debug-{name}.json").read_text())
    for name in ("novel", "rungs")
)
PROGRAM = "/src/tests/debug/novel_programs.py"
SOURCE = DEBUG / "novel_programs.py"
# What was asked of each cause before it was known: of each group of words one, and the mark of its kernel.
LABELS: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = next(
    ast.literal_eval(each.value)
    for each in ast.parse(SOURCE.read_text()).body
    if isinstance(each, ast.AnnAssign) and each.value and ast.unparse(each.target) == "LABELS"
)
# At first sight: by the marked line, by another of the same fault, by what it printed alone.
BY_LINE = {"wrapped", "thawed", "bounded", "custom", "dangling"}
BESIDE = {"compiled": "213 in forward", "refilled": "novel_programs.py:54", "workspace": "novel_programs.py:127"}
# Labels whose words the cause lacks: what of a launch was refused, a function without a name, who waits, how it began.
WORDLESS = {"bounded", "dangling", "refilled", "forked"}
TIME_UP = {"thawed", "workspace", "halved", "compiled"}
BEFORE = {"GPU": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-30"}


def cause(name: str) -> str:
    """What a run was told by."""
    said: str = NOVEL["runs"][name]["report"]["cause"]
    return said


def rung(name: str) -> dict[str, Any]:
    """The report of one rung."""
    found: dict[str, Any] = RUNGS["rungs"][name]["report"]
    return found


def again(run: dict[str, Any], folder: Path, tools: dict[str, str]) -> tuple[debug._Session, tuple[Verdict, str]]:
    """A recorded run judged by the rules of now, and where that ended."""
    session: debug._Session | None = None
    for step in run["report"]["steps"]:
        place = folder / step["stage"]
        place.mkdir()
        (place / "output.txt").write_text(run["files"].get(f"{step['stage']}/output.txt", ""))
        lines = run["files"].get(f"{step['stage']}/events.jsonl", "").splitlines()
        events = tuple(json.loads(line) for line in lines if line.startswith("{") and line.endswith("}"))
        ran = CommandRun(place, step["ended"], step["exit"], step["seconds"], cuda=(1,), events=events)
        if session is None:
            state = State(("x",), Tools("/bin/x", tools, {}), runs={"as-is": ran})
            request = debug.DebugRequest(("x",))
            started = time.monotonic()
            session = debug._Session(request, LocalMachine(), facts.load(), folder, folder, print, state, started)
        session.state = replace(session.state, runs={**session.state.runs, step["stage"]: ran})
        debug._learn(session, step["stage"], ran)
    assert session
    return session, debug._verdict(session, session.state.fault, session.state.python, ())[:2]


def test_the_records_say_where_and_when_they_ran() -> None:
    for record, where in (
        (NOVEL, "the machine's own Python"),
        (RUNGS, "a container of Docker Engine 26.1.5+dfsg1 with CDI, one at a time"),
    ):
        same = {key.replace("GPU", "gpu"): value for key, value in BEFORE.items()}
        assert record["recorded"] == {**same, "python": "3.12", "where": where}
    assert {line for lines in NOVEL["lines"].values() for line in lines} == marked(SOURCE, "  # here")
    assert set(NOVEL["lines"]) == set(LABELS) == BY_LINE | set(BESIDE) | {"halved", "forked"}


@pytest.mark.parametrize("name", sorted(BY_LINE))
def test_the_planted_line_was_named_at_first_sight(name: str) -> None:
    (line,) = NOVEL["lines"][name]
    assert NOVEL["runs"][f"{name}/fault"]["report"]["verdict"] == "found"
    assert f"{PROGRAM}:{line}" in cause(f"{name}/fault")
    mark = LABELS[name][1]
    (own,) = marked(DEBUG / "novel_kernel.py", f"# {mark}") if mark else (0,)
    assert not mark or f"/src/tests/debug/novel_kernel.py:{own}" in cause(f"{name}/fault")


@pytest.mark.parametrize("name", sorted(LABELS))
def test_the_words_of_the_labels_at_first_sight(name: str) -> None:
    said = cause(f"{name}/fault")
    lacks = [words for words in LABELS[name][0] if not any(word in said for word in words)]
    assert bool(lacks) is (name in WORDLESS)


def test_what_was_told_beside_its_line_or_without_one_at_first_sight() -> None:
    for name, place in BESIDE.items():
        assert place in cause(f"{name}/fault")
    for name in ("halved", "forked"):
        assert "novel_programs.py" not in cause(f"{name}/fault")


@pytest.mark.parametrize(
    ("name", "place"), [("forked", f"{PROGRAM}:193 in __getitem__"), ("halved", f"{PROGRAM}:140 in halved")]
)
def test_what_its_output_tells_is_told_with_the_line_that_raised_it(tmp_path: Path, name: str, place: str) -> None:
    _, (verdict, said) = again(NOVEL["runs"][f"{name}/fault"], tmp_path, {})
    assert verdict is Verdict.FOUND and said == f"{cause(f'{name}/fault')}; raised at {place}"


@pytest.mark.parametrize(("name", "runs"), [("refilled", 5), ("workspace", 3)])
def test_numbers_that_are_others_in_each_run_tell_of_an_order_in_time(tmp_path: Path, name: str, runs: int) -> None:
    session, (verdict, said) = again(NOVEL["runs"][f"{name}/fault"], tmp_path, {"compute-sanitizer": "/cs"})
    assert verdict is Verdict.FOUND and said.startswith(cause(f"{name}/fault"))
    assert f"in {runs} runs it told {runs} different numbers" in said and "a stream does not wait" in said
    assert debug._verdict(session, None, (), ())[4] == told.ORDERED


def test_a_command_that_fails_under_a_tool_alone_is_not_called_clean(tmp_path: Path) -> None:
    """The products were right as it is at the second time, and wrong under memcheck and initcheck."""
    run = NOVEL["mended"]["workspace/fault"]
    assert [step["exit"] for step in run["report"]["steps"]] == [0, 1, 1, None]
    session, (verdict, said) = again(run, tmp_path, {"compute-sanitizer": "/cs"})
    assert verdict is Verdict.UNDECIDED and said.startswith(
        "the command succeeded as it is, and failed in the stage memcheck: AssertionError: the products of stream "
    )
    assert said.endswith(f"; raised at {PROGRAM}:127 in workspace")
    assert debug._verdict(session, None, (), ())[4] == told.ORDERED
    whole = {name: replace(ran, exit=0, ended="exited") for name, ran in session.state.runs.items()}
    session.state, session.open = replace(session.state, runs=whole), []
    assert debug._verdict(session, None, (), ())[0] is Verdict.CLEAN


@pytest.mark.parametrize(
    "messages",
    [
        ["7 differ", "7 differ", "7 differ"],  # the same each time
        ["7 differ", "8 differ"],  # too few
        ["7 differ", "8 differ", "no file of this name"],  # another failure
        ["", "", ""],
    ],
)
def test_the_same_numbers_too_few_runs_or_another_failure_tell_nothing(messages: list[str]) -> None:
    assert told.varied(messages) == ""


@pytest.mark.parametrize("name", sorted(name for name in NOVEL["runs"] if name.endswith("/clean")))
def test_no_twin_was_blamed(name: str) -> None:
    report = NOVEL["runs"][name]["report"]
    assert report["verdict"] == ("undecided" if name.partition("/")[0] in TIME_UP else "clean")
    assert report["verdict"] == "clean" or "did not end within its budget" in report["cause"]


def test_a_broken_capture_is_named_at_the_call_that_breaks_it() -> None:
    (line,) = (number for number in marked(DEBUG / "fresh_programs.py", "  # here") if number in range(260, 272))
    assert "cannot be captured while it captures a CUDA graph; the call that fails is at " in cause("captured/fault")
    assert cause("captured/fault").endswith(f"/src/tests/debug/fresh_programs.py:{line} in captured")


def test_a_function_without_a_name_is_not_taken_for_its_caller() -> None:
    """The C library there has no names but those that others may call."""
    log = NOVEL["runs"]["dangling/fault"]["files"]["native/gdb.log"]
    assert cause("dangling/fault").endswith("; it died in `ffi_call` of /lib/x86_64-linux-gnu/libffi.so.8")
    said = native.sentence(native.frames(log, "SIGSEGV"))
    assert said.startswith("in a function of /lib/x86_64-linux-gnu/libc.so.6 without a name, called by `ffi_call` of ")


def test_run_again_the_mended_were_told_by_their_lines_there() -> None:
    """The workspace's fault did not show as it is then."""
    mended = {name: run["report"] for name, run in NOVEL["mended"].items()}
    assert mended["forked/fault"]["cause"].endswith(f"; raised at {PROGRAM}:193 in __getitem__")
    assert mended["halved/fault"]["cause"].endswith(f"; raised at {PROGRAM}:140 in halved")
    assert (
        "; in 5 runs it told 4 different numbers, so that they depend on the order" in mended["refilled/fault"]["cause"]
    )
    assert "in a function of /lib/x86_64-linux-gnu/libc.so.6 without a name" in mended["dangling/fault"]["cause"]
    assert [mended[f"{name}/clean"]["verdict"] for name in ("refilled", "thawed")] == ["clean"] * 2
    late = {name for name, report in mended.items() if report["verdict"] == "undecided"}
    assert late == {"workspace/fault", "workspace/clean", "halved/clean", "compiled/clean"}


# -- the rungs


def test_a_package_in_a_container_names_the_input_of_the_other_device() -> None:
    assert [step["stage"] for step in rung("package")["steps"]] == ["as-is", "package-checks"]
    (line,) = marked(DEBUG / "package.py", "out = loaded(")
    assert "unmatched device type, expected: 11(cuda), but got: 0" in rung("package")["cause"]
    assert rung("package")["cause"].endswith(f"; called at /src/tests/debug/package.py:{line} in main")


def test_an_assertion_that_torch_tracks_is_told_in_a_container() -> None:
    assert [step["stage"] for step in rung("tracked")["steps"]] == ["as-is", "blocking", "device-assertions"]
    (asserts,), (launches,) = (
        marked(DEBUG / "kernels" / "tracked.cu", mark) for mark in ("// tracked", "LAUNCH(plan,")
    )
    (called,) = marked(DEBUG / "tracked.py", "  # here")
    assert rung("tracked")["cause"] == (
        f"the assertion `starts[at] < length` failed on the device at /src/tests/debug/kernels/tracked.cu:{asserts} in "
        f"plan, thread (231, 0, 0) of block (3, 0, 0); its kernel is launched at /src/tests/debug/kernels/tracked.cu:"
        f"{launches}; called at /src/tests/debug/tracked.py:{called} in main"
    )
    first = RUNGS["rungs"]["tracked"]["files"]["as-is/output.txt"]
    assert "Device-side assertion tracking was not enabled by user." in first and "illegal memory access" in first


def test_what_torchs_cache_hides_is_the_cause(tmp_path: Path) -> None:
    """At first sight the rung met the kernel's error, and the answer was the assertion that follows from it."""
    assert rung("uncached")["cause"] == "AssertionError from main (uncached.py:31): the sum differs: 0.0"
    assert "; torch's cache of memory hid it; " in RUNGS["mended"]["uncached"]["report"]["cause"]
    session, (verdict, said) = again(RUNGS["mended"]["uncached"], tmp_path, {})
    (line,) = marked(DEBUG / "uncached.py", "  # here")
    assert verdict is Verdict.FOUND and "; torch's cache of memory hid it; the call that fails is at " in said
    assert "memory that it does not own" in said and said.endswith(f"/src/tests/debug/uncached.py:{line} in main")
    assert session.state.hidden
    core = next(stage for stage in stages.STAGES if stage.name == "core-dump")
    tools = Tools("/bin/x", {"cuda-gdb": "/gdb"}, {})
    for hidden, added in ((True, stages.UNCACHED), (False, {})):
        plan = core.decide(replace(session.state, tools=tools, hidden=hidden))
        assert isinstance(plan, stages.StagePlan) and plan.environ == {"ENVKIT_DEBUG_LINES": "1", **added}


def test_the_rungs_twins_are_not_blamed() -> None:
    """Without compute-sanitizer nothing may be called clean."""
    verdicts = {name: rung(name)["verdict"] for name in RUNGS["rungs"] if name.endswith("-clean")}
    assert verdicts == {"package-clean": "clean", "tracked-clean": "clean", "uncached-clean": "undecided"}
    assert rung("uncached-clean")["cause"] == "the command succeeded, but there is no compute-sanitizer"
