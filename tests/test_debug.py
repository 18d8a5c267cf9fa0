"""Its stages with real processes: commands that die, hang, fork, flood and ignore signals, and tools that stand in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import forked
import jsonschema
import pytest
from clocks import PATIENCE_S, comes
from processes import named

from envkit import debug, facts
from envkit.debug import container, job, render, repro, sanitizer, stages
from envkit.debug.records import DebugReport, Verdict
from envkit.errors import UsageError

SCHEMA = json.loads(Path(debug.__file__).with_name("debug-1.schema.json").read_text())
Run = Callable[..., DebugReport]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Debugs a command into a new folder; ``steps`` are checked against the schema each time."""
    number = 0

    def debugged(argv: Sequence[str], quiet_s: float = 0.0, stage_s: float = 300.0, **more: Any) -> DebugReport:
        nonlocal number
        number += 1
        request = debug.DebugRequest(tuple(argv), 600.0, stage_s, quiet_s, folder=tmp_path / f"debug-{number}", **more)
        made = debug.run(request, job.LocalMachine(), facts.load(), lambda line: None)
        jsonschema.validate(json.loads(render.document(made)), SCHEMA)
        assert (tmp_path / f"debug-{number}" / "report.json").read_text() == render.document(made)
        assert render.text(made).startswith(made.verdict.value.upper())
        return made

    return debugged


def python(tmp_path: Path, text: str) -> list[str]:
    """The command of a program with this text."""
    path = tmp_path / "program.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def step(made: DebugReport, stage: str) -> Any:
    return next(each for each in made.steps if each.stage == stage)


def gone(mark: str) -> bool:
    """Whether no process has this in its command line, after a while."""
    return comes(lambda: not named(mark), 0.1)


def test_a_command_that_succeeds_without_a_gpu_is_clean(run: Run) -> None:
    made = run(["true"])
    assert (made.verdict, made.code, made.exit, made.cause) == (Verdict.CLEAN, 0, 0, "")
    assert [each.stage for each in made.steps] == list(stages.NAMES)
    assert [each.stage for each in made.steps if each.ran] == ["as-is"]
    assert all(each.why for each in made.steps)


def test_a_python_error_is_told_and_no_tool_of_the_gpu_is_tried(run: Run, tmp_path: Path) -> None:
    made = run(python(tmp_path, "def find(table):\n    return table['lr']\nfind({})\n"))
    assert (made.verdict, made.exit, made.category) == (Verdict.FOUND, 1, "not-gpu-env")
    assert "KeyError" in made.cause and "program.py:2" in made.cause
    assert [each.stage for each in made.steps if each.ran] == ["as-is"]


def test_an_operation_on_two_devices_is_told_with_its_line_and_a_shape_that_does_not_fit_is_another(
    run: Run, tmp_path: Path
) -> None:
    said = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    text = "def forward(x):\n    raise RuntimeError(x)\n\nforward({!r})\n"
    mixed = run(python(tmp_path, text.format(said)))
    assert (mixed.category, mixed.cause_class) == ("tensors-on-different-devices", "device-mixup")
    assert mixed.cause.endswith(f"; the call that fails is at {tmp_path}/program.py:2 in forward")
    assert mixed.next[0].startswith("`envkit probe --placement MODULE:FACTORY` names each tensor")
    passed_on = (
        "import traceback\ntry:\n    exec(compile({!r}, 'worker.py', 'exec'))\n"
        "except RuntimeError:\n    said = traceback.format_exc()\nraise RuntimeError(said)\n"
    )
    worker = run(python(tmp_path, passed_on.format(text.format(said))))
    assert worker.cause.endswith("; the call that fails is at worker.py:2 in forward")
    other = run(python(tmp_path, text.format("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")))
    assert other.category != mixed.category and not any("--placement" in each for each in other.next)


def test_a_command_that_fails_without_a_word_is_undecided(run: Run) -> None:
    made = run(["false"])
    assert (made.verdict, made.code, made.exit) == (Verdict.UNDECIDED, 3, 1)


def test_a_command_that_does_not_exist_is_a_mistake_and_leaves_no_folder(tmp_path: Path) -> None:
    request = debug.DebugRequest(("no-such-program",), folder=tmp_path / "new")
    with pytest.raises(UsageError, match="there is no program `no-such-program`"):
        debug.run(request, job.LocalMachine(), facts.load(), lambda line: None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (debug.DebugRequest(()), "no command"),
        (debug.DebugRequest(("true",), only=("memchek",)), "no stage `memchek`"),
        (debug.DebugRequest(("true",), budget_s=0), "--budget 0 is no time"),
        (debug.DebugRequest(("true",), stage_s=float("nan")), "--stage-timeout nan is no time"),
        (debug.DebugRequest(("true",), quiet_s=-1), "--stall-timeout -1 is no time"),
        (debug.DebugRequest(("true",), skip=("as-is",)), "`as-is` cannot be skipped"),
        (debug.DebugRequest(("true",), kernels=("",)), "name of a kernel is empty"),
    ],
)
def test_a_wrong_request_is_refused(wrong: debug.DebugRequest, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        debug.run(wrong, job.LocalMachine(), facts.load(), lambda line: None)


def test_a_folder_that_holds_something_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    with pytest.raises(UsageError, match="is not empty"):
        debug.run(debug.DebugRequest(("true",), folder=tmp_path), job.LocalMachine(), facts.load(), lambda line: None)


TUNER = """
import multiprocessing, os, sys
def candidate(number):
    if number:
        sys.stderr.write("terminate called after throwing an instance of 'c10::AcceleratorError'\\n"
                         "  what():  CUDA error: misaligned address\\n")
        sys.stderr.flush()
        {end}
fork = multiprocessing.get_context("fork")
for number in range(2):
    child = fork.Process(target=candidate, args=(number,))
    child.start()
    child.join()
print("best: 0")
"""


def test_a_forked_child_that_dies_is_found_though_its_parent_leaves_with_0(run: Run, tmp_path: Path) -> None:
    made = run(python(tmp_path, TUNER.format(end="os.abort()")))
    assert (made.verdict, made.exit, made.category) == (Verdict.FOUND, 0, "misaligned-address")
    (child,) = made.children
    assert child.exit == -6 and [frame.function for frame in child.stack][-1] == "candidate"
    assert any(frame.file.endswith("program.py") for frame in child.waiter)
    assert "SIGABRT (-6)" in made.cause and "its parent went on and exited with status 0" in made.cause


def test_its_clean_twin_is_clean(run: Run, tmp_path: Path) -> None:
    made = run(python(tmp_path, TUNER.format(end="pass").replace("if number:", "if number > 5:")))
    assert (made.verdict, made.children) == (Verdict.CLEAN, ())


def test_children_that_their_parent_ends_are_no_finding(run: Run, tmp_path: Path) -> None:
    text = "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\nchild.kill()\nchild.wait()\n"
    made = run(python(tmp_path, text))
    assert made.verdict is Verdict.CLEAN and [child.exit for child in made.children] == [-9]


def test_a_crash_in_c_names_the_line_of_python(run: Run, tmp_path: Path) -> None:
    made = run(python(tmp_path, "import ctypes\ndef read():\n    ctypes.string_at(8)\nread()\n"))
    assert made.exit == -signal.SIGSEGV and made.verdict is not Verdict.CLEAN
    assert "program.py:3 in read" in made.cause
    dumps = [name for name in made.files if name.startswith("as-is/python-")]
    assert len(dumps) == 1 and "program.py" in Path(made.folder, dumps[0]).read_text()


HANG = """
import threading, time, os, sys
lock = threading.Lock()
def hold():
    with lock:
        time.sleep(1000)
threading.Thread(target=hold, daemon=True).start()
time.sleep(0.2)
if os.fork() == 0:
    time.sleep(1000)
print("waits", flush=True)
lock.acquire()
"""


@pytest.mark.slow  # to be called hung takes seven seconds of looking
def test_a_hang_is_told_with_the_stacks_of_every_thread_of_every_process(run: Run, tmp_path: Path) -> None:
    made = run(python(tmp_path, HANG), quiet_s=1.0)
    assert (made.verdict, step(made, "as-is").ended, made.exit) == (Verdict.FOUND, "hung", None)
    assert made.elapsed_s < PATIENCE_S
    parent = next(each for each in made.hang if len(each.threads) == 2)
    assert len(made.hang) == 2
    assert parent.threads[-1][-1].line == 12 and "hold" in [frame.function for frame in parent.threads[0]]
    assert "program.py:12" in made.cause and "program.py:10" in made.cause


@pytest.mark.slow  # to be called hung takes seven seconds of looking, and what it looks at works all along
def test_a_silent_command_that_works_does_not_hang(run: Run, tmp_path: Path) -> None:
    work = "def f():\n    while time.time() < end:\n        sum(range(3000))\n        g()\n"
    text = f"import time\nend = time.time() + 12\ndef g():\n    sum(range(5000))\n{work}f()\n"
    made = run(python(tmp_path, text), quiet_s=0.5)
    assert (made.verdict, step(made, "as-is").ended) == (Verdict.CLEAN, "exited")


@pytest.mark.slow  # the time of each stage is waited for
def test_a_command_that_is_still_working_at_the_end_of_its_time_is_undecided(run: Run, tmp_path: Path) -> None:
    made = run(python(tmp_path, "while True:\n    sum(range(1000))\n"), stage_s=1.0)
    assert (made.verdict, step(made, "as-is").ended) == (Verdict.UNDECIDED, "timed-out")
    assert "had not ended after" in made.cause and "--stage-timeout" in made.fix


@pytest.mark.slow  # what ignores signals is waited for, several times over
def test_what_ignores_signals_and_leaves_its_session_does_not_stay(run: Run) -> None:
    mark = f"77{os.getpid()}"
    inner = f'trap "" TERM; sleep {mark}'
    script = f"trap '' TERM INT HUP; (setsid sleep {mark} & setsid sh -c '{inner}' &); sleep {mark}"
    made = run(["sh", "-c", script], stage_s=1.0)
    assert step(made, "as-is").ended == "timed-out" and gone(mark)


def test_what_a_command_leaves_behind_does_not_stay(run: Run) -> None:
    mark = f"88{os.getpid()}"
    made = run(["sh", "-c", f"setsid sleep {mark} & exit 0"])
    assert made.exit == 0 and gone(mark)


def test_a_flood_is_kept_by_its_head_and_its_tail(tmp_path: Path) -> None:
    script = "echo first; yes | head -c 30000000; echo last"
    ran = job.run(job.LocalMachine(), ["sh", "-c", script], tmp_path / "flood", budget_s=300, most_bytes=1 << 20)
    text = ran.text()
    assert ran.output_bytes == 30000011 and ran.output.stat().st_size < 1200000
    assert text.startswith("first\n") and text.endswith("last\n") and f"left out {ran.lost_bytes} bytes" in text


def test_stdin_is_closed_and_streams_are_in_order(tmp_path: Path) -> None:
    ran = job.run(job.LocalMachine(), ["sh", "-c", "cat; echo a; echo b >&2; echo c"], tmp_path / "in", budget_s=300)
    assert (ran.exit, ran.text()) == (0, "a\nb\nc\n")


def test_the_companion_hands_over_to_the_place_s_own_sitecustomize(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins\nbuiltins.own = 'own'\n")
    program = python(tmp_path, "import sys\nprint(own, sys.modules['sitecustomize'].__file__)\nprint(sys.path)\n")
    ran = job.run(job.LocalMachine(), program, tmp_path / "run", budget_s=300, environ={"PYTHONPATH": str(site)})
    assert ran.exit == 0 and ran.text().startswith(f"own {site}") and str(job.COMPANION) not in ran.text()
    assert [event["how"] for event in ran.events if event["event"] == "start"] == ["exec"]


def test_without_one_python_starts_without_a_word(tmp_path: Path) -> None:
    ran = job.run(job.LocalMachine(), python(tmp_path, "print('x')"), tmp_path / "run", budget_s=300)
    assert ran.text() == "x\n"


# Stands in for compute-sanitizer: the real one's words for a kernel, or none, around the command itself.
SANITIZER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    --tool) tool=$2; shift 2;;
    --log-file) log=$2; shift 2;;
    --kernel-name|--launch-timeout|--target-processes|--strip-paths|--print-limit|--require-cuda-init) shift 2;;
    --report-api-errors|--padding) shift 2;;
    *) break;;
  esac
done
"$@"
code=$?
if [ "$tool" = FAULTY ]; then cat REPORT > "$log"; else echo "========= ERROR SUMMARY: 0 errors" > "$log"; fi
exit $code
"""
REPORTS = {
    "memcheck": """\
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x80 in /w/scale.cu:12
=========     by thread (3,1,0) in block (7,0,2)
=========     Address 0x7f2a40001000 is out of bounds
========= ERROR SUMMARY: 1 error
""",
    "racecheck": """\
========= Error: Race reported between Write access at turn(int *)+0xe0 in /w/turn.cu:5
=========     and Read access at turn(int *)+0x1a0 in /w/turn.cu:7 [508 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
""",
    "none": "",
}
# Maps a file of the driver's name, as a process that uses CUDA does, and lives long enough to be looked at.
USES_CUDA = """
import mmap, os, sys, time
file = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libcuda.so.1"), "w+b")
file.truncate(4096)
held = mmap.mmap(file.fileno(), 4096)
time.sleep(0.6)
def step():
    {body}
step()
"""
ILLEGAL = 'raise RuntimeError("CUDA error: an illegal memory access was encountered")'


def stand_in(tmp_path: Path, faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the stand-in first on PATH; ``faulty`` is the tool that finds something."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "report").write_text(REPORTS[faulty])
    path = folder / "compute-sanitizer"
    path.write_text(SANITIZER.replace("FAULTY", faulty).replace("REPORT", str(folder / "report")))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.slow  # all stages; the tuner's is in test_stories
def test_an_illegal_access_is_followed_to_the_kernel(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "memcheck", monkeypatch)
    made = run(python(tmp_path, USES_CUDA.format(body=ILLEGAL)))
    assert [each.stage for each in made.steps if each.ran] == ["as-is", "blocking", "memcheck", "launches"]
    assert made.verdict is Verdict.FOUND and made.fault is not None
    assert (made.category, made.cause_class) == ("illegal-memory-access", "gpu-kernel-bug")
    assert "/w/scale.cu:12" in made.cause and "program.py:8 in step" in made.cause
    assert "without torch's cache" in step(made, "no-cache").why
    script = Path(made.folder, "repro.sh").read_text()
    assert script.startswith("#!/bin/sh") and "program.py" in script


PACKAGE = """
if os.environ.get("AOTI_RUNTIME_CHECK_INPUTS") == "1":
        raise RuntimeError("input_handles[0]: unmatched device type, expected: 1(cuda), but got: 0(cpu)")
    print("Failed to destroy CUDA event in AOTInductor model: an illegal memory access was encountered", flush=True)
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""


@pytest.mark.slow  # all stages
def test_a_package_that_computes_with_a_tensor_of_the_cpu_is_asked_for_its_own_checks(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it goes on a GPU, with torch 2.11: the package takes the pointer, and its kernel faults."""
    stand_in(tmp_path, "memcheck", monkeypatch)
    made = run(python(tmp_path, USES_CUDA.format(body=PACKAGE.strip())))
    assert [each.stage for each in made.steps if each.ran] == ["as-is", "package-checks"]
    assert (made.category, made.cause_class) == ("invalid-argument-device-mismatch", "device-mixup")
    assert "expected: 1(cuda), but got: 0(cpu)" in made.cause


@pytest.mark.slow  # all stages
def test_a_wrong_result_is_followed_to_the_race(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "racecheck", monkeypatch)
    made = run(python(tmp_path, USES_CUDA.format(body='raise AssertionError("mismatch in 12 elements")')))
    ran = [each.stage for each in made.steps if each.ran]
    assert ran == ["as-is", "memcheck", "initcheck", "racecheck", "launches"]
    assert "race for shared memory at /w/turn.cu:5 and at /w/turn.cu:7" in made.cause


@pytest.mark.slow  # all stages
def test_a_command_that_succeeds_is_looked_at_by_every_tool(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "none", monkeypatch)
    made = run(python(tmp_path, USES_CUDA.format(body="pass")))
    assert made.verdict is Verdict.CLEAN
    assert [each.stage for each in made.steps if each.ran] == ["as-is", *sanitizer.TOOLS]


@pytest.mark.slow  # all stages
def test_a_tool_that_looks_at_nothing_makes_nothing_clean(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "none", monkeypatch)
    path = tmp_path / "bin" / "compute-sanitizer"
    path.write_text(path.read_text().replace("ERROR SUMMARY: 0 errors", "Error: Device not supported"))
    made = run(python(tmp_path, USES_CUDA.format(body="pass")))
    assert made.verdict is Verdict.UNDECIDED and "Device not supported" in made.cause


def test_without_compute_sanitizer_success_is_not_clean_and_the_way_to_get_it_is_told(run: Run, tmp_path: Path) -> None:
    made = run(python(tmp_path, USES_CUDA.format(body="pass")))
    if job.tools(job.LocalMachine(), ["true"], ["compute-sanitizer"], tmp_path).paths["compute-sanitizer"]:
        pytest.skip("compute-sanitizer is installed here")
    assert (made.verdict, made.code) == (Verdict.UNDECIDED, 3)
    missing = step(made, "memcheck")
    assert missing.missing == "compute-sanitizer" and "pip install nvidia-cuda-sanitizer-api" in missing.get
    assert any("compute-sanitizer" in line for line in made.next)


def test_stages_that_were_not_asked_for_do_not_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "memcheck", monkeypatch)
    made = run(python(tmp_path, USES_CUDA.format(body=ILLEGAL)), skip=("blocking", "launches"))
    assert [each.stage for each in made.steps if each.ran] == ["as-is", "memcheck"]


def test_the_reproducer_holds_no_secret() -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyzabcdef",
        "NCCL_DEBUG": "IN FO",
        "EDITOR": "vi",
        "VLLM_API_KEY": "abc",
        "ENVKIT_DEBUG_FOLDER": "/x",
    }
    text = repro.script(
        ["python", "a b.py"], environ, {"CUDA_LAUNCH_BLOCKING": "1", "GONE": None},
        cwd="/w d", image="", versions={"torch": "x\ny"}, why="why",
    )  # fmt: skip
    assert "hf_abc" not in text and "VLLM_API_KEY=" not in text and "EDITOR" not in text and "ENVKIT" not in text
    assert "# HF_TOKEN is set and is left out" in text
    assert "export NCCL_DEBUG='IN FO'" in text and "export CUDA_LAUNCH_BLOCKING=1" in text
    assert "cd '/w d'" in text and text.endswith("exec python 'a b.py'\n") and "# torch x y" in text
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


@pytest.mark.slow  # a real signal to a real run, three times
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_envkit_nothing_of_the_command_stays(tmp_path: Path, number: signal.Signals) -> None:
    mark = f"99{os.getpid()}{int(number)}"
    script = f"trap '' TERM INT; setsid sleep {mark} & sleep {mark}; sleep {mark}"
    root = Path(debug.__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": str(root)}
    started = subprocess.Popen(
        [sys.executable, "-m", "envkit", "debug", "--out", str(tmp_path / "out"), "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ,
    )  # fmt: skip
    assert comes(lambda: len(named(f"sleep\0{mark}")) == 2), "the command did not come to its sleep"
    started.send_signal(number)
    _, said = started.communicate(timeout=120)
    assert gone(mark)
    if number is not signal.SIGKILL:
        assert started.returncode == 130 and f"stopped by {number.name}" in said


@pytest.mark.slow  # five commands under a supervisor each
def test_the_verb_gives_the_code_of_its_verdict(tmp_path: Path) -> None:
    def code(*words: str) -> tuple[int, str]:
        done = forked.envkit("debug", *words, cwd=tmp_path)
        return done.returncode, done.stdout

    assert code("--", "true")[0] == 0
    assert code("--", "false")[0] == 3
    assert code("--", "no-such-program")[0] == 2
    assert code()[0] == 2
    found, text = code("--format", "json", "--", sys.executable, "-c", "1/0")
    assert found == 1 and json.loads(text)["folder"].endswith("envkit-debug-3")


def test_quiet_leaves_out_the_progress_and_the_stages(tmp_path: Path) -> None:
    words = ("--only", "as-is", "--", sys.executable, "-c", "1/0")
    whole, short = (forked.envkit("debug", *quiet, *words, cwd=tmp_path) for quiet in ((), ("-q",)))
    assert whole.returncode == short.returncode == 1, short.stderr
    assert whole.stderr and not short.stderr
    assert "ZeroDivisionError" in short.stdout and len(short.stdout) < len(whole.stdout)


# Stands in for CUPTI: keeps the callback, and calls it as the driver's launches do, and the runtime's with an answer.
CUPTI = """
#include <stddef.h>
#include <stdint.h>
struct data { int site; const char *function; const void *parameters; void *result; const char *symbol;
              void *context; uint32_t uid; uint64_t *correlation_data; uint32_t correlation; };
static void (*callback)(void *, int, uint32_t, const struct data *);
static int enabled[1000], domains[9];
int cuptiSubscribe(void **subscriber, void *function, void *user)
{ *subscriber = &callback; callback = function; return 0; }
int cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t id) { enabled[id] = on; return 0; }
int cuptiEnableDomain(uint32_t on, void *subscriber, int domain) { domains[domain] = on; return 0; }
void answer(const char *call, int code)
{
    uint64_t correlation = 0;
    for (int site = 0; site < 2; site++) {
        struct data data = {site, call, NULL, &code, NULL, NULL, 1, &correlation, 1};
        if (callback && domains[2]) callback(NULL, 2, 211, &data);
    }
}
void launch(const char *name)
{
    uint64_t correlation = 0;
    for (int site = 0; site < 2; site++) {
        struct data data = {site, "cuLaunchKernel", NULL, NULL, name, NULL, 1, &correlation, 1};
        if (callback && enabled[307]) callback(NULL, 1, 307, &data);
    }
}
"""
LAUNCHES = """
import ctypes, os, sys
here = os.path.dirname(os.path.abspath(__file__))
driver = ctypes.CDLL(here + "/libcuda.so.1")
cupti = ctypes.CDLL(here + "/nvidia/cu13/lib/libcupti.so.13")
def scale():
    cupti.launch(b"_Z5scalePfi")
def other():
    cupti.launch(b"_Z5otherPfi")
scale()
for _ in range(3):
    other()
if os.fork() == 0:
    scale()
    os._exit(0)
os.wait()
"""


ANSWERS = """
import ctypes, os, sys
here = os.path.dirname(os.path.abspath(__file__))
driver = ctypes.CDLL(here + "/libcuda.so.1")
cupti = ctypes.CDLL(here + "/nvidia/cu13/lib/libcupti.so.13")
def well():
    cupti.answer(b"cudaLaunchKernel", 0)
    cupti.answer(b"cudaEventQuery", 600)
def refused():
    cupti.answer(b"cudaLaunchKernelExC", 209)
well()
for _ in range(3):
    refused()
"""


@pytest.fixture
def cupti(tmp_path: Path) -> None:
    """The stand-in beside the program."""
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    source = tmp_path / "cupti.c"
    source.write_text(CUPTI)
    for target in (folder / "libcupti.so.13", tmp_path / "libcuda.so.1"):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)


def test_the_line_of_a_launch_that_the_runtime_refuses_is_found_by_cupti(tmp_path: Path, cupti: None) -> None:
    argv, asked = python(tmp_path, ANSWERS), {"ENVKIT_DEBUG_REFUSED": "1"}
    for folder, environ, lines in (("run", asked, {10}), ("unasked", {}, set[int]())):
        ran = job.run(job.LocalMachine(), argv, tmp_path / folder, budget_s=300, environ=environ)
        assert (ran.exit, ran.text()) == (0, "")
        met = [event for event in ran.events if event["event"] == "refused"]
        assert {each["frames"][-1][1] for each in met} == lines and {each["how"] for each in met} <= {"209"}


def test_the_line_of_python_that_launches_a_kernel_is_found_by_cupti(tmp_path: Path, cupti: None) -> None:
    argv = python(tmp_path, LAUNCHES)
    ran = job.run(job.LocalMachine(), argv, tmp_path / "run", budget_s=300, launches=("scale",))
    assert (ran.exit, ran.text()) == (0, "")
    (subscribed,) = [event for event in ran.events if event["event"] == "launches"]
    assert subscribed["trouble"] == "" and subscribed["library"].endswith("libcupti.so.13")
    places = [(event["kernel"], list(event["frames"][-1][1:])) for event in ran.events if event["event"] == "launch"]
    assert places[0] == ("_Z5scalePfi", [7, "scale"]) and {kernel for kernel, _ in places} == {"_Z5scalePfi"}


def test_cupti_is_asked_when_torch_starts_cuda_and_not_before(tmp_path: Path) -> None:
    packages = {
        "torch/__init__.py": "import torch._C\nimport torch.cuda\n",
        "torch/_C.py": "def _cuda_init():\n    print('started')\n",
        "torch/cuda/__init__.py": "import torch._C\ndef init():\n    torch._C._cuda_init()\n",
    }
    for name, text in packages.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def told(text: str, folder: str) -> list[Any]:
        ran = job.run(job.LocalMachine(), python(tmp_path, text), tmp_path / folder, budget_s=300, launches=("scale",))
        assert ran.exit == 0, ran.text()
        return [event for event in ran.events if event["event"] == "launches"]

    assert told("import torch\n", "without") == []
    assert len(told("import torch\ntorch.cuda.init()\ntorch.cuda.init()\n", "with")) == 1


def test_a_volume_is_written_as_docker_takes_it() -> None:
    found = container.volumes(["/data:/in:ro", "/out:/out", "/a:/b:rw"])
    assert found == {"/in": (Path("/data"), False), "/out": (Path("/out"), True), "/b": (Path("/a"), True)}
    for word in ("data:/in", "/data:in", "/data", "/data:/in:rx", ""):
        with pytest.raises(UsageError, match="is no volume"):
            container.volumes([word])


HIDDEN = """
if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    raise AssertionError("the sum differs: 0.0")
"""


@pytest.mark.parametrize("hidden", [True, False])
def test_an_error_that_torchs_cache_hid_is_the_cause_of_the_wrong_result(
    run: Run, tmp_path: Path, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without compute-sanitizer
    body = HIDDEN if hidden else HIDDEN.replace("RuntimeError", "AssertionError").replace("CUDA error: an ill", "ill")
    # a process that met an error of CUDA often aborts at its end, and faulthandler then has no stack of Python
    aborts = "import atexit\natexit.register(os.abort) if os.environ.get('PYTORCH_NO_CUDA_MEMORY_CACHING') else None\n"
    text = USES_CUDA.format(body=body.strip()).replace("\nstep()", f"\n{aborts}step()")
    made = run(python(tmp_path, text))
    assert made.verdict is Verdict.FOUND and step(made, "no-cache").exit == -6
    assert ("; torch's cache of memory hid it; the call that fails is at " in made.cause) is hidden
    assert (made.category == "illegal-memory-access") is hidden
