"""What `envkit debug --image` said in containers of Docker Engine with an H200: the programs of `boxed_programs.py`,
and six with a fault in a kernel that torch.compile fused or copied, labelled before any run.

"again" are runs after the rules were mended, "first runs" those on a machine whose torch had compiled nothing of
them, "packages", "twins" and "ranks" those of a later day: four packages of AOTInductor, the clean twins of the six
with time enough, and jobs of two ranks on one GPU; "runtime" are those where NVIDIA's runtime gave the GPU and the
engine read no CDI; "profile" is nsys in a container, "dumps" are core dumps of a GPU opened in another container.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_debug_evidence import marked

HERE = Path(__file__).parent
RECORD = json.loads((HERE / "data" / "gpu" / "h200-torch-2.11-cu130-debug-docker-boxed.json").read_text())
SOURCE = HERE / "debug" / "fused_programs.py"
LABELS: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = next(
    ast.literal_eval(each.value)
    for each in ast.parse(SOURCE.read_text()).body
    if isinstance(each, ast.AnnAssign) and each.value and ast.unparse(each.target) == "LABELS"
)
TWINS_IN_TIME = {"early", "bounded", "logged", "replaced", "refused"}


def report(name: str, part: str = "runs") -> dict[str, Any]:
    """The report of one run."""
    found: dict[str, Any] = RECORD[part][name]["report"]
    return found


def numbers(cause: str) -> set[int]:
    """The lines of the programs that a cause names."""
    told = re.findall(r"fused_programs\.py:(\d+(?:, \d+)*)", cause)
    return {int(line) for each in told for line in each.split(", ")}


def test_the_marks_are_those_of_the_record() -> None:
    lines = {line for name in LABELS for line in RECORD["lines"][name]}
    assert lines == marked(SOURCE, "  # here") and RECORD["recorded"]["driver"] == "580.159.04"


@pytest.mark.parametrize("name", ["sized", "promised"])
def test_a_triton_kernel_that_torch_compile_copied_is_told_at_the_programs_line(name: str) -> None:
    words, mark = LABELS[name]
    (line,) = marked(SOURCE.with_name("fused_kernel.py"), f"# {mark}")
    cause = report(f"{name}/fault")["cause"]
    assert f" at /src/tests/debug/fused_kernel.py:{line}, " in cause
    assert all(any(word in cause for word in each) for each in words)


def test_a_fused_kernel_is_told_with_its_fault_at_first_sight_and_with_lines_of_the_program_later() -> None:
    """At first sight a file of torch.compile's and the function's first line are named.  Of what comes from its cache
    the last line alone is known, which is the marked one of one program."""
    for name in ("unchecked", "declared"):
        (line,) = RECORD["lines"][name]
        first, later = report(f"{name}/fault")["cause"], report(f"{name}/fault", "again")["cause"]
        assert "torchinductor_root/" in first and line not in numbers(first)
        assert " in what torch.compile made of /src/tests/debug/fused_programs.py:" in later
        assert (line in numbers(later)) is (name == "declared")
    assert numbers(report("shrunk/fault", "again")["cause"]) == marked(SOURCE, "out = stepped(weight, grad)  # call")


def test_the_two_others_at_first_sight_have_their_symptom() -> None:
    """An assertion of the index, and a pointer that is none any more."""
    assert "`index out of bounds: 0 <= tmp9 < 1000` failed" in report("looked/fault")["cause"]
    assert "the launch of a kernel was refused" in report("shrunk/fault")["cause"]


def test_what_torch_had_not_compiled_before_is_told_by_its_marked_line_and_the_line_that_calls_it() -> None:
    """The index is told by the assertion, and the view by the launch that was refused: at their calls alone."""
    calls = marked(SOURCE, "# call")
    for name in ("unchecked", "declared"):
        cause = report(f"{name}/fault", "first runs")["cause"]
        (line,) = RECORD["lines"][name]
        (call,) = re.findall(r"launched at /src/tests/debug/fused_programs\.py:(\d+) ", cause)
        assert line in numbers(cause) and int(call) in calls
    for name in ("looked", "shrunk"):
        (call,) = numbers(report(f"{name}/fault", "first runs")["cause"])
        assert call in calls
    twins = [name for name in RECORD["first runs"] if name.endswith("/clean")]
    assert len(twins) == 3 and all(report(name, "first runs")["verdict"] == "clean" for name in twins)


def test_no_twin_was_blamed_but_one_that_hardly_computes_and_one_that_took_the_faulty_ones_code_from_a_cache() -> None:
    """With a cache of its own that one is not blamed."""
    twins = {name: report(name)["verdict"] for name in RECORD["runs"] if name.endswith("/clean")}
    assert {name for name, verdict in twins.items() if verdict == "found"} == {"fetching/clean", "declared/clean"}
    assert report("declared/clean", "again")["verdict"] == "undecided"
    assert {name.partition("/")[0] for name, verdict in twins.items() if verdict == "clean"} == TWINS_IN_TIME


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ladder", "kernel `scale_rows` writes 4 bytes out of bounds at /src/tests/debug/kernels/oob.cu:6"),
        ("crash", "the command died of SIGSEGV (-11)"),
        ("slow", "the GPU has nothing to do in 89% of a step"),
    ],
)
def test_rungs_where_nvidias_runtime_gives_the_gpu(name: str, says: str) -> None:
    assert report(name, "runtime")["cause"].startswith(says)
    assert report("clean", "runtime")["verdict"] == "clean"


def test_nsys_names_the_kernel_in_a_container() -> None:
    (_, profile) = report_steps = RECORD["profile"]["report"]["steps"]
    assert len(report_steps) == 2 and profile["found"].startswith("most of the GPU's time by nsys: 99.2% in `sm80_xmma")


def test_core_dumps_of_a_gpu_are_opened_in_another_container() -> None:
    for each in RECORD["dumps"].values():
        assert each["report"]["verdict"] == "found" and "/src/tests/debug/kernels/oob.cu:6" in each["report"]["cause"]


@pytest.mark.parametrize(
    ("name", "differs"),
    [("typed", "number type"), ("shaped", "shape"), ("strided", "strides"), ("hosted", "device")],
)
def test_a_package_with_an_input_that_it_was_not_made_for_is_told_with_what_differs_and_the_line(
    name: str, differs: str
) -> None:
    told = report(f"{name}/fault", "packages")
    assert told["verdict"] == "found" and re.search(rf"an input (?:of|on) (?:an)?other {differs} than", told["cause"])
    assert f"called at /src/tests/debug/boxed_programs.py:{RECORD['lines']['typed'][0]} in given" in told["cause"]
    assert report("typed/clean", "packages")["verdict"] == "clean"


def test_the_twins_of_the_six_are_clean_under_every_tool_where_they_have_the_time() -> None:
    assert {name.partition("/")[0] for name in RECORD["twins"]} == set(LABELS)
    for name in RECORD["twins"]:
        told = report(name, "twins")
        assert told["verdict"] == "clean"
        assert [each["stage"] for each in told["steps"]] == ["as-is", "memcheck", "initcheck", "racecheck", "synccheck"]


def test_ranks_in_a_container_without_a_network() -> None:
    """The one that froze what the other trains is told with both lines, and the clean job only lacks the sanitizer,
    which that image does not have.  Of a rank that left its collectives out gloo tells the others, who die of it."""
    lines = (HERE / "debug" / "hang_ranks.py").read_text().splitlines()
    (backward,) = (number for number, line in enumerate(lines, 1) if "loss.backward()" in line)
    frozen = report("frozen-apart", "ranks")
    assert frozen["cause"].startswith("rank 1 gave no gradient for branch.weight, branch.bias of Model in backward 1")
    assert f"rank 0 is at /src/tests/debug/hang_ranks.py:{backward} in main" in frozen["cause"]
    clean = report("clean", "ranks")
    assert clean["verdict"] == "undecided"
    assert clean["cause"] == "the command succeeded, but there is no compute-sanitizer"
    skips = report("skips", "ranks")
    assert "a peer closed its connection, so it ended before this rank" in skips["cause"]
    assert skips["cause"].endswith(f"the call that fails is at /src/tests/debug/hang_ranks.py:{backward} in main")
