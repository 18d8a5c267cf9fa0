"""Seventeen programs that were labelled before they ran in any container, as `envkit debug` judged them in those of a
rootless Podman with an H200.

`tests/debug/boxed_on_gpu.py` ran `tests/debug/boxed_programs.py`, whose lines that are to be named bear a mark.
"known" are programs of earlier sets whose lines were not told then; "cores" is one core dump, opened in a container
that is shown the GPU and in one that is not.
"""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_debug
import test_debug_learned as learned
from test_debug_common import raising
from test_debug_evidence import marked
from test_debug_novel import again

from envkit import debug
from envkit.debug import corefile, job, kernels, numbers, stages, told
from envkit.debug.job import LocalMachine
from envkit.debug.records import CodeLocation, PythonFrame, Verdict
from envkit.debug.stages import StagePlan

HERE = Path(__file__).parent
RECORD = json.loads((HERE / "data" / "gpu" / "h200-torch-2.11-cu130-debug-boxed.json").read_text())
SOURCE = HERE / "debug" / "boxed_programs.py"
PROGRAM = "/src/tests/debug/boxed_programs.py"
LABELS: dict[str, tuple[tuple[str, ...], ...]] = next(
    ast.literal_eval(each.value)
    for each in ast.parse(SOURCE.read_text()).body
    if isinstance(each, ast.AnnAssign) and each.value and ast.unparse(each.target) == "LABELS"
)
PACKAGES = ("typed", "shaped", "strided", "hosted")  # one line calls them all


def report(name: str, part: str = "runs") -> dict[str, Any]:
    """The report of one run."""
    found: dict[str, Any] = RECORD[part][name]["report"]
    return found


def ran(name: str, part: str = "runs") -> list[str]:
    """The stages that ran."""
    return [step["stage"] for step in report(name, part)["steps"] if step["ran"]]


def test_the_record_says_where_and_when_it_ran() -> None:
    assert RECORD["recorded"] == {
        "gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0+cu130", "date": "2026-11-30", "python": "3.12",
        "where": "a container of rootless Podman 4.3.1 with CDI, five at a time",
    }  # fmt: skip
    assert {line for lines in RECORD["lines"].values() for line in lines} == marked(SOURCE, "  # here")
    assert all(each["report"]["image"] == "gpu-host/base:latest" for each in RECORD["runs"].values())


@pytest.mark.parametrize("name", sorted(LABELS))
def test_each_planted_line_is_named_with_the_words_of_its_label(name: str) -> None:
    (line,) = RECORD["lines"]["typed" if name in PACKAGES else name]
    found = report(f"{name}/fault")
    assert found["verdict"] == ("undecided" if name == "spinning" else "found")
    assert f"boxed_programs.py:{line}" in found["cause"]
    lacks = [words for words in LABELS[name] if not any(word in found["cause"] for word in words)]
    # the cause tells the same in other words: the build has no code for this GPU
    assert lacks == ([("no kernel image",)] if name == "refused" else [])


def test_the_stages_end_where_the_cause_is_known() -> None:
    assert ran("logged/fault") == ran("rooted/fault") == ran("replaced/fault") == ["as-is", "numbers"]
    assert [ran(f"{name}/fault") for name in PACKAGES] == [["as-is", "package-checks"]] * 4
    assert ran("bounded/fault") == ["as-is", "blocking", "memcheck"] and ran("mixed/fault") == ["as-is", "placement"]
    assert ran("refused/fault") == ["as-is", "blocking", "launches"] and ran("crashed/fault") == ["as-is", "native"]
    assert ran("spinning/fault") == ["as-is", "core-dump"]


def test_no_twin_was_blamed_but_one_that_hardly_computes() -> None:
    """Its sixty kernels are short beside its step of 1.7 ms."""
    blamed = [name for name in RECORD["runs"] if name.endswith("/clean") and report(name)["verdict"] != "clean"]
    assert blamed == ["fetching/clean"] and "the GPU has nothing to do in 61%" in report("fetching/clean")["cause"]


def test_gdb_and_py_spy_read_stacks_in_a_rootless_container_as_root_there_and_as_a_user() -> None:
    """py-spy names the class, faulthandler does not."""
    waits = {"waiting/fault": "_wait_for_tstate_lock", "isolated/fault": "Condition.wait"}
    for name, wait in {**waits, "isolated/user": "Condition.wait"}.items():
        (each,) = report(name)["hang"]
        assert each["threads"][-1][-1]["function"] == wait and each["cuda"]
        assert "[Inferior 1 (process 7) detached]" in each["native"]


def test_what_the_companion_wrote_in_containers_tells_the_same_again() -> None:
    for name in ("logged/fault", "rooted/fault", "replaced/fault"):
        lines = RECORD["runs"][name]["files"]["numbers/events.jsonl"].splitlines()
        made = numbers.read([json.loads(line) for line in lines if line])
        assert made and made.sure and report(name)["cause"].endswith(made.said)


def test_a_core_dump_of_a_process_with_cuda_is_opened_in_its_image_beside_the_drivers_libraries() -> None:
    shown, alone = RECORD["cores"]["gpus"], RECORD["cores"]["none"]
    assert shown["verdict"] == "found"
    assert shown["cause"] == "the program died of SIGSEGV in `scatter` at /made/boxed-scatter.cpp:2"
    assert alone["verdict"] == "undecided" and alone["cause"].endswith("libcuda.so.580.159.04 is not there")


# -- numbers that are others in each run: copies that nobody waits for


EARLY = [("runs", "early/fault", PROGRAM, 172), ("known", "early/fault", "common_programs.py", 115),
         ("known", "refilled/fault", "novel_programs.py", 48)]  # fmt: skip


@pytest.mark.parametrize(("part", "name", "file", "line"), EARLY)
def test_a_copy_that_is_read_or_filled_again_too_early_is_named(
    tmp_path: Path, part: str, name: str, file: str, line: int
) -> None:
    assert ran(name, part)[-1] == "copies" and len(ran(name, part)) == 6
    said = report(name, part)["cause"]
    assert (
        f"once the copy that it asks for with non_blocking is waited for, at {'' if '/' in file else '/'}" in said + "/"
    )
    assert f"{file}:{line} in {name.partition('/')[0]}" in said
    session, verdict = again(RECORD[part][name], tmp_path, {"compute-sanitizer": "/cs"})
    assert verdict == (Verdict.FOUND, said) and debug._verdict(session, None, (), ())[4] == told.WAITED


def test_where_waiting_helps_not_or_nothing_is_copied_no_copy_is_blamed(tmp_path: Path) -> None:
    session = learned.session_of(tmp_path, raising(tmp_path, "AssertionError", "5 differ"))
    copy: Any = {"event": "copy", "how": "back", "frames": [["/w/x.py", 3, "step"]]}
    fails = learned.run_in(tmp_path / "a", events=(copy,))
    assert debug._learn(session, "copies", fails) == "it fails as before where each copy is waited for"
    assert "asks for no copy" in debug._learn(session, "copies", replace(fails, exit=0, events=()))
    assert session.state.waited == ""
    other: Any = {**copy, "frames": [["/w/x.py", 9, "load"]]}
    debug._learn(session, "copies", replace(fails, exit=0, events=(copy, other)))
    assert "once each copy between GPU and CPU that it asks for" in session.state.waited
    assert session.state.waited.endswith("at /w/x.py:3 in step, /w/x.py:9 in load")


@pytest.mark.parametrize(
    ("messages", "runs"),
    [(("4 differ", "5 differ", "6 differ"), True), (("4 differ", "4 differ", "4 differ"), False),
     (("4 differ", "5 differ"), False), (("", "", ""), False)],
)  # fmt: skip
def test_copies_are_waited_for_where_numbers_are_others_in_each_run(
    tmp_path: Path, messages: tuple[str, ...], runs: bool
) -> None:
    state = raising(tmp_path, "AssertionError", messages[0])
    for number, message in enumerate(messages[1:]):
        event: Any = {"event": "exception", "kind": "AssertionError", "message": message}
        more = {**state.runs, str(number): replace(state.first, events=(event,))}
        state = replace(state, runs=more)
    assert learned.why(state, "copies")[0] is runs
    if runs:
        plan = learned.decided(state, "copies")
        assert isinstance(plan, StagePlan) and plan.environ == {"ENVKIT_DEBUG_COPIES": "1"}


TORCH = {
    "torch/__init__.py": """
from types import SimpleNamespace
modes, waits = [], []
class Stream:
    def synchronize(self): waits.append(1)
class Device:
    def __init__(self, type): self.type = type
cuda = SimpleNamespace(current_stream=lambda device: Stream(), is_current_stream_capturing=lambda: False)
def handed(function):
    def call(*arguments, **named):
        mode = modes.pop()
        try:
            return mode.__torch_function__(function, (), arguments, named)
        finally:
            modes.append(mode)
    return call
class Tensor:
    def __init__(self, type): self.device = Device(type)
@handed
def to(self, type, non_blocking=False): return Tensor(type)
@handed
def add(self, other, non_blocking=False): return Tensor("cpu")
Tensor.to, Tensor.add = to, add
""",
    "torch/overrides.py": """
import torch
class TorchFunctionMode:
    def __enter__(self): torch.modes.append(self)
""",
}
COPIED = """
x = torch.Tensor("cuda")
x.to("cpu")
x.to("cuda", non_blocking=True)
x.add(1, True)
for _ in range(2):
    x.to("cpu", non_blocking=True)
torch.Tensor("cpu").to("cuda", True)
print(len(torch.waits))
"""


def installed(folder: Path, packages: dict[str, str]) -> str:
    """Writes packages where their lines are not the program's; what imports them."""
    for file, text in packages.items():
        place = folder / "site-packages" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return f"import sys; sys.path.insert(0, {str(folder / 'site-packages')!r}); import torch\n"


def test_the_companion_waits_for_copies_between_gpu_and_cpu_alone(tmp_path: Path) -> None:
    command = test_debug.python(tmp_path, installed(tmp_path, TORCH) + COPIED)
    done = job.run(LocalMachine(), command, tmp_path / "run", budget_s=300, environ={"ENVKIT_DEBUG_COPIES": "1"})
    assert done.text() == "3\n"
    met = [(event["how"], event["frames"][-1][1]) for event in done.events if event["event"] == "copy"]
    assert met == [("back", 8), ("there", 9)]


# -- launches that were refused, and told at a later call


def test_a_refused_launch_is_told_with_its_line_and_the_one_that_told_of_it(tmp_path: Path) -> None:
    said = report("refused/fault")["cause"]
    assert said == (
        "the build has no code for this GPU; it is the launch at "
        f"{PROGRAM}:141 in refused that was refused, whose answer nobody looked at; the next call that looks for "
        f"errors is at {PROGRAM}:142 in refused"
    )
    _, verdict = again(RECORD["runs"]["refused/fault"], tmp_path, {})
    assert verdict == (Verdict.FOUND, said)


def test_a_launch_of_the_line_that_failed_is_told_once(tmp_path: Path) -> None:
    run = json.loads(json.dumps(RECORD["runs"]["refused/fault"]))
    for name, text in run["files"].items():
        run["files"][name] = text.replace("142", "141")
    session, (verdict, said) = again(run, tmp_path, {})
    assert verdict is Verdict.FOUND and "nobody looked" not in said and session.state.launched == ""
    assert said.endswith(f"the call that fails is at {PROGRAM}:141 in refused")


def test_after_a_refused_launch_that_launch_is_looked_for_and_no_kernel_is(tmp_path: Path) -> None:
    session, _ = again(RECORD["runs"]["refused/fault"], tmp_path, {"compute-sanitizer": "/cs", "cuda-gdb": "/gdb"})
    plan = learned.decided(session.state, "launches")
    assert isinstance(plan, StagePlan) and plan.environ == {"ENVKIT_DEBUG_REFUSED": "1"} and not plan.launches
    assert [learned.why(session.state, tool)[0] for tool in ("memcheck", "core-dump", "racecheck")] == [False] * 3
    nobody: Any = {"event": "refused", "frames": []}
    other = learned.run_in(tmp_path / "other", events=(nobody,))
    assert debug._learn(session, "launches", other).startswith("no launch of this process's own Python")


# -- kernels of Triton that torch.compile copied


KERNEL = '''\
import triton


@triton.jit
def add_bias(x, n, BLOCK):
    """Adds a \'\'\'bias\'\'\'."""
    at = tl.arange(0, BLOCK)

    y = tl.load(x + at)
    tl.store(x + at, y)
'''
WRITTEN = """\
async_compile = AsyncCompile()

# Original path: {file}:4
add_bias_0 = async_compile.triton('add_bias', '''
import triton
from x import y

@triton_heuristics.user_autotune(
    configs=[1],
)
@triton.jit
def add_bias(x, n, BLOCK):
    \"\"\"Adds a \\'\\'\\'bias\\'\\'\\'.\"\"\"
    at = tl.arange(0, BLOCK)

    y = tl.load(x + at)
    tl.store(x + at, y)
''', device_str='cuda')

triton_poi_fused_1 = async_compile.triton('triton_poi_fused_1', '''
def triton_poi_fused_1(x):
    pass
''', device_str='cuda')
"""
INDUCTOR = {
    "torch/__init__.py": "",
    "torch/_inductor/__init__.py": "",
    "torch/_inductor/codecache.py": """
class PyCodeCache:
    @classmethod
    def load_by_key_path(cls, key, path, linemap=None, attrs=None):
        return cls.__name__, key, attrs
""",
}
LOADS = """
from torch._inductor import codecache
for _ in range(2):
    print(codecache.PyCodeCache.load_by_key_path("k", {path!r}, attrs=3))
"""
COPY = "/tmp/torchinductor_root/pa/cpalmrpav2g3r75hqjieojxnuagjp7kyu7suxwap4q7s72islxsa.py"


def test_the_companion_tells_which_line_a_copied_kernel_is_from(tmp_path: Path) -> None:
    own, written = tmp_path / "own.py", tmp_path / "written.py"
    own.write_text(KERNEL)
    written.write_text(WRITTEN.format(file=own))
    command = test_debug.python(tmp_path, installed(tmp_path, INDUCTOR) + LOADS.format(path=str(written)))
    done = job.run(LocalMachine(), command, tmp_path / "run", budget_s=300)
    assert done.text() == "('PyCodeCache', 'k', 3)\n" * 2
    (event,) = (event for event in done.events if event["event"] == "copied")
    assert (event["kernel"], event["file"]) == ("add_bias", str(own))
    assert [tuple(pair) for pair in event["lines"]] == [(9, 5), (10, 6), (11, 7), (13, 9), (14, 10)]
    fault = replace(learned.fault(kernel="add_bias"), place=CodeLocation("add_bias", COPY, 13))
    assert kernels.original(fault, done.events).place == CodeLocation("add_bias", str(own), 9)


FUSED = """
async_compile = AsyncCompile()

# kernel path: /tmp/torchinductor_root/pa/x.py
# Topologically Sorted Source Nodes: [near, add], Original ATen: [aten.index, aten.add]
# Graph fragment:
#   %arg0_1 : Tensor "f32[8]" = PlaceHolder[target=arg0_1]
#   %index : [num_users=1] = call_function[target=torch.ops.aten.index.Tensor](args = (%arg0_1,))
#   %add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%index, 1))
#   return %add
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
def triton_poi_fused_add_0(x):
    pass
''', device_str='cuda')

def call(args):
    triton_poi_fused_add_0.run(args)
"""
VIRTUALIZED = """
from types import SimpleNamespace
def node(name, line):
    return SimpleNamespace(name=name, stack_trace=f'  File "/w/x.py", line {line}, in near\\n    code\\n')
V = SimpleNamespace(graph=SimpleNamespace(graph=SimpleNamespace(nodes=[node("index", 4), node("add", 5)])))
"""


@pytest.mark.parametrize(("compiles", "lines"), [(True, [4, 5]), (False, [5])])
def test_of_a_kernel_that_torch_compile_made_the_lines_are_told_that_it_made_it_of(
    tmp_path: Path, compiles: bool, lines: list[int]
) -> None:
    """From torch's cache there is the last alone."""
    written = tmp_path / "written.py"
    written.write_text(FUSED)
    packages = {**INDUCTOR, **({"torch/_inductor/virtualized.py": VIRTUALIZED} if compiles else {})}
    loads = "from torch._inductor import codecache\n" + "import torch._inductor.virtualized\n" * compiles
    loads += f"map = [(1, None), (17, {STACK!r}), (30, 'other')]\n"
    loads += f"codecache.PyCodeCache.load_by_key_path('k', {str(written)!r}, map)\n"
    command = test_debug.python(tmp_path, installed(tmp_path, packages) + loads)
    done = job.run(LocalMachine(), command, tmp_path / "run", budget_s=300)
    (event,) = (event for event in done.events if event["event"] == "fused")
    assert [frame[1] for frame in event["frames"]] == lines and event["kernel"] == "triton_poi_fused_add_0"
    fault = replace(learned.fault(kernel="triton_poi_fused_add_0"), place=CodeLocation("f", COPY, 13))
    said = told.sentence(kernels.original(fault, done.events), ())
    assert f" in what torch.compile made of /w/x.py:{', '.join(map(str, lines))} in near" in said
    assert f"see at /w/x.py:{lines[0]} that" in told.fix(kernels.original(fault, done.events))


STACK = '  File "/w/x.py", line 5, in near\n    code\n'


def test_a_launch_out_of_what_torch_compile_made_is_told_at_the_line_that_calls_it() -> None:
    dynamo = PythonFrame("/opt/torch/_dynamo/eval_frame.py", 1024, "_fn")
    calls, made = PythonFrame("/w/x.py", 73, "calls"), PythonFrame("/w/x.py", 57, "near")
    fault = replace(learned.fault(kernel="k"), place=CodeLocation("k", COPY, 13))
    fault = replace(fault, python=(calls, dynamo, made, dynamo))
    assert kernels.original(fault, []).python == (calls, dynamo, dynamo)
    assert kernels.original(replace(fault, python=(calls, dynamo, made)), []).python[-1] == made


EVAL_FRAME = "def _fn(word):\n    return int(word)\n"
REPLACED = """
from torch._dynamo import eval_frame
own = lambda: eval_frame._fn("x")
def calls():
    own()
calls()
"""


def test_a_frame_that_torch_compile_put_in_a_functions_place_is_left_out(tmp_path: Path) -> None:
    """It stands at the function's first line, as a lambda does."""
    packages = {"torch/__init__.py": "", "torch/_dynamo/__init__.py": "", "torch/_dynamo/eval_frame.py": EVAL_FRAME}
    command = test_debug.python(tmp_path, installed(tmp_path, packages) + REPLACED)
    done = job.run(LocalMachine(), command, tmp_path / "run", budget_s=300)
    (event,) = (event for event in done.events if event["event"] == "exception")
    assert [frame[2] for frame in event["frames"]] == ["<module>", "calls", "_fn"]


def test_a_program_whose_copied_kernels_are_gone_is_left_alone(tmp_path: Path) -> None:
    written = tmp_path / "written.py"
    written.write_text(WRITTEN.format(file=tmp_path / "gone.py"))
    command = test_debug.python(tmp_path, installed(tmp_path, INDUCTOR) + LOADS.format(path=str(written)))
    done = job.run(LocalMachine(), command, tmp_path / "run", budget_s=300)
    assert done.exit == 0 and "a copied kernel was not looked at: FileNotFoundError" in done.text()


@pytest.mark.parametrize(
    ("kernel", "file", "line"), [("other", COPY, 13), ("add_bias", "/w/kernels.py", 13), ("add_bias", COPY, 2)]
)
def test_a_kernel_that_was_not_copied_stays_where_it_is(kernel: str, file: str, line: int) -> None:
    event: Any = {"event": "copied", "kernel": "add_bias", "file": "/w/own.py", "lines": [(13, 9)]}
    fault = replace(learned.fault(kernel=kernel), place=CodeLocation(kernel, file, line))
    assert kernels.original(fault, [event]) is fault


def test_a_package_whose_input_is_named_leaves_no_question_to_numbers(tmp_path: Path) -> None:
    state = raising(tmp_path, "AssertionError", "mismatch: nan")
    assert learned.why(state, "numbers")[0]
    assert learned.why(replace(state, mixed="unmatched dtype"), "numbers")[1] == (
        "the package's own checks name the cause"
    )
    assert stages.NAMES.index("package-checks") < stages.NAMES.index("numbers")


@pytest.mark.parametrize(
    ("missing", "fix"),
    [
        ("/usr/local/nvidia/lib64/libcuda.so.580.1 is not there", "--gpus all"),
        ("/x/librows.so is not there", "another image"),
    ],
)
def test_a_dump_whose_driver_is_missing_wants_the_gpus_and_no_other_image(missing: str, fix: str) -> None:
    core, ground = corefile.CoreFile(Path("core"), False), SimpleNamespace(image="my/train:1")
    never: Any = None  # what the debugger said is not looked at
    made: Any = corefile._told
    told_of = made(core, "/usr/bin/python3", ground, never, (missing,))
    assert told_of.verdict is Verdict.UNDECIDED and fix in told_of.fix
    both = made(core, "/usr/bin/python3", ground, never, (missing, "/x/librows.so is another build"))
    assert "another image" in both.fix
