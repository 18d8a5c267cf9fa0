"""`envkit debug` under people and programs that do it no favour: odd words, odd places, and commands that meddle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import forked
import jsonschema
import pytest
from clocks import comes, costs_less
from processes import named

from envkit import debug, facts
from envkit.debug import job, render, repro
from envkit.debug.records import DebugReport, Verdict
from envkit.errors import Undecided, UsageError
from envkit.payload.companion import envkit_supervisor

SCHEMA = json.loads(Path(debug.__file__).with_name("debug-1.schema.json").read_text())
Run = Callable[..., DebugReport]


def quiet(line: str) -> None:
    """Hears no progress."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Debugs a command into a new folder."""
    number = 0

    def debugged(argv: Sequence[str], stage_s: float = 300.0, **more: Any) -> DebugReport:
        nonlocal number
        number += 1
        request = debug.DebugRequest(
            tuple(argv), stage_s=stage_s, quiet_s=0.0, folder=tmp_path / f"out-{number}", **more
        )
        made = debug.run(request, job.LocalMachine(), facts.load(), quiet)
        jsonschema.validate(json.loads(Path(made.folder, "report.json").read_text()), SCHEMA)
        return made

    return debugged


def verb(*words: str, cwd: Path, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command line itself."""
    return forked.envkit("debug", *words, cwd=cwd, env=environ)


# -- words and codes


@pytest.mark.parametrize("code", [1, 2, 77, 126, 127, 255])
def test_the_command_s_own_code_is_in_the_report(run: Run, code: int) -> None:
    made = run(["sh", "-c", f"exit {code}"])
    assert (made.exit, made.verdict) == (code, Verdict.UNDECIDED) and f"exited with status {code}" in made.cause


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_told_by_its_name(run: Run, number: signal.Signals) -> None:
    made = run(["sh", "-c", f"kill -{int(number)} $$"])
    assert (made.exit, made.verdict) == (-number, Verdict.UNDECIDED) and f"died of {number.name}" in made.cause
    assert ("OOM killer" in made.fix) is (number is signal.SIGKILL)


def test_words_of_any_bytes_come_through_and_can_be_run_again(run: Run) -> None:
    words = ["a b", "new\nline", "qu'ote", "ü", "$HOME", "*", "\udcff\udcfe", ""]
    made = run(["printf", "%s|", *words])
    wanted = os.fsencode("".join(f"{word}|" for word in words))
    assert Path(made.folder, "as-is", "output.txt").read_bytes() == wanted
    again = subprocess.run(["sh", str(Path(made.folder, "repro.sh"))], capture_output=True, check=True, timeout=600)
    assert again.stdout == wanted


def test_what_is_written_down_is_the_callers_alone(tmp_path: Path) -> None:
    """What a command prints may hold a secret; a folder in /tmp is open to everybody otherwise."""
    assert verb("--out", "kept", "--", "sh", "-c", "echo word; exit 3", cwd=tmp_path).returncode == 3
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    modes = {
        name: (tmp_path / "kept" / name).stat().st_mode & 0o777 for name in ("report.json", "report.html", "repro.sh")
    }
    assert modes == {"report.json": 0o600, "report.html": 0o600, "repro.sh": 0o700}


def test_the_reproducer_fails_as_the_command_did(run: Run) -> None:
    made = run([sys.executable, "-c", "import sys; sys.exit('broken') if __debug__ else None"])
    again = subprocess.run(
        ["sh", str(Path(made.folder, "repro.sh"))], capture_output=True, text=True, check=False, timeout=600, cwd="/"
    )
    assert (again.returncode, again.stderr) == (made.exit, "broken\n")


def test_a_folder_whose_name_is_no_text_is_no_trouble(tmp_path: Path) -> None:
    place = tmp_path / "d\udcff"
    place.mkdir()
    assert verb("--", "sh", "-c", "exit 3", cwd=place).returncode == 3
    script = place / "envkit-debug-1" / "repro.sh"
    assert subprocess.run(["sh", str(script)], check=False, timeout=600).returncode == 3


def test_a_little_budget_still_looks_at_the_command_once(run: Run) -> None:
    quick = run(["true"], budget_s=0.5)  # on a loaded machine even this may take longer
    assert [step.ended for step in quick.steps if step.ran] in (["exited"], ["timed-out"])
    late = run(["sleep", "30"], budget_s=0.5)
    assert late.steps[0].ended == "timed-out" and late.verdict is Verdict.UNDECIDED


def test_a_question_to_an_empty_stdin_is_not_blamed_on_the_program(run: Run) -> None:
    made = run([sys.executable, "-c", "input()"])
    assert made.verdict is Verdict.UNDECIDED and "its stdin is empty" in made.cause and "<" in made.fix


def test_a_program_that_is_called_like_python_is_not_asked_for_its_versions(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "python_train.sh"
    program.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/runs\n")
    program.chmod(0o755)
    assert run([str(program)]).verdict is Verdict.CLEAN
    assert (tmp_path / "runs").read_text() == "ran\n"


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (["python", "x.py"], "the command `python` must follow --", "envkit debug -- python x.py"),
        (
            ["--volume", "/a:/b", "--", "true"],
            "--volume, --network, --gpus, --env, --user and --workdir only work with --image",
            "name the image",
        ),
        (["--hang-timeout", "5", "--", "true"], "--hang-timeout 5 has no effect", "--ranks"),
        (["--budget", "nan", "--", "true"], "--budget nan is no time", "above 0"),
        (["--skip", "as-is", "--", "true"], "`as-is` cannot be skipped", "skip others"),
        (["--", "/etc/passwd"], "there is no program `/etc/passwd`", "executable"),
        (["--out", "/proc/x", "--", "true"], "the folder /proc/x cannot be made", "--out"),
        (["--out", "/dev/null", "--", "true"], "/dev/null is there already and is no folder", "new folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_its_fix(words: list[str], said: str, fix: str, tmp_path: Path) -> None:
    done = verb(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    sentence, how = done.stderr.splitlines()
    assert said in sentence and how.startswith("  fix: ") and fix in how
    assert list(tmp_path.iterdir()) == []


# -- places


def test_an_empty_folder_that_was_there_stays_where_there_is_no_program(tmp_path: Path) -> None:
    request = debug.DebugRequest(("no-such-program",), folder=tmp_path)
    with pytest.raises(UsageError, match="there is no program"):
        debug.run(request, job.LocalMachine(), facts.load(), quiet)
    assert tmp_path.is_dir()


def test_a_link_to_a_folder_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    debug.run(debug.DebugRequest(("true",), folder=tmp_path / "link"), job.LocalMachine(), facts.load(), quiet)
    assert (tmp_path / "real" / "report.json").is_file() and (tmp_path / "link").is_symlink()


@pytest.mark.slow  # several envkit, each with all it imports
def test_several_at_once_take_folders_of_their_own(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "envkit", "debug", "--", "sh", "-c", "exit 5"]
    environ = {**os.environ, "PYTHONPATH": str(Path(debug.__file__).parents[2])}
    null = subprocess.DEVNULL
    begun = [subprocess.Popen(argv, cwd=tmp_path, env=environ, stdout=null, stderr=null) for _ in range(3)]
    assert [each.wait(60) for each in begun] == [3] * 3
    for number in range(1, 4):
        said = json.loads((tmp_path / f"envkit-debug-{number}" / "report.json").read_text())
        assert said["exit"] == 5


def test_without_a_home_it_runs(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "HOME"}
    assert verb("--", "false", cwd=tmp_path, environ=environ).returncode == 3


# -- processes


def test_a_crash_under_a_shell_that_leaves_with_0_is_found(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "crash.py"
    program.write_text("import ctypes\nctypes.string_at(8)\n")
    made = run(["sh", "-c", f"{sys.executable} {program}; true"])
    assert (made.verdict, made.exit) == (Verdict.FOUND, 0)
    assert "SIGSEGV (-11) at" in made.cause and "crash.py:2" in made.cause


def test_its_clean_twin_under_a_shell_is_clean(run: Run) -> None:
    made = run(["sh", "-c", f"{sys.executable} -c pass; true"])
    assert (made.verdict, made.children) == (Verdict.CLEAN, ())


def test_what_the_keeper_itself_ends_is_no_finding_and_is_said(tmp_path: Path) -> None:
    heard: list[str] = []
    request = debug.DebugRequest(("sh", "-c", "setsid sleep 100 & exit 0"), folder=tmp_path / "out")
    made = debug.run(request, job.LocalMachine(), facts.load(), heard.append)
    assert (made.verdict, made.children) == (Verdict.CLEAN, ()) and "left behind was ended (1)" in heard[-1]


@pytest.mark.slow  # starts a dozen Pythons
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing_of_every_kind_is_followed(run: Run, tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, os, sys\n"
        "def work(number):\n"
        "    if number == 1:\n"
        "        os.abort()\n"
        "if __name__ == '__main__':\n"
        f"    kind = multiprocessing.get_context('{method}')\n"
        "    children = [kind.Process(target=work, args=(number,)) for number in range(2)]\n"
        "    for each in children:\n"
        "        each.start()\n"
        "    for each in children:\n"
        "        each.join()\n"
    )
    made = run([sys.executable, str(program)])
    assert made.verdict is Verdict.FOUND and "SIGABRT (-6)" in made.cause and "program.py:4 in work" in made.cause


@pytest.mark.parametrize("number", ["TERM", "QUIT", "HUP"])
def test_a_command_that_ends_its_keeper_ends_with_it(run: Run, number: str) -> None:
    mark = f"66{os.getpid()}{len(number)}"
    made = run(["sh", "-c", f"kill -{number} $PPID; setsid sleep {mark} & sleep {mark}"])
    assert made.verdict is Verdict.UNDECIDED and "had its supervisor ended" in made.cause
    assert subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False, stdout=subprocess.DEVNULL).returncode == 1


def test_a_stop_that_falls_into_a_callback_of_the_keepers_fork_is_not_lost(tmp_path: Path) -> None:
    """Python drops what is raised there: the command went on to the end of its budget."""
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"argv": ["sleep", "600"], "folder": str(tmp_path), "budget_s": 600}))
    script = (
        "import os, signal, sys, time\n"
        "from envkit.payload.companion import envkit_supervisor\n"
        "os.register_at_fork(after_in_parent=lambda: (os.kill(os.getpid(), signal.SIGHUP), time.sleep(0)))\n"
        "sys.exit(envkit_supervisor.main(sys.argv[1:]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, job], capture_output=True, text=True, timeout=600, check=True)
    assert json.loads(done.stdout) == {"ended": "stopped"}, done.stderr


def test_what_a_command_leaves_may_end_itself_first(run: Run, tmp_path: Path) -> None:
    """SIGTERM comes before SIGKILL: what is left may write down what it holds."""
    left = f"trap 'echo saved > {tmp_path}/saved; exit' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done"
    run(["sh", "-c", f"sh -c '{left.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}' & "
         f"while [ ! -e {tmp_path}/ready ]; do sleep 0.05; done; exit 3"])  # fmt: skip
    assert (tmp_path / "saved").read_text() == "saved\n"


@pytest.mark.slow  # what ignores SIGTERM is waited for
def test_what_looks_as_if_it_would_tidy_up_and_does_not_end_goes_too(run: Run) -> None:
    mark = f"envkit_test_{os.getpid()}"
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('stays', flush=True); signal.pause()"
    program = f'{sys.executable} -c "{code}" multiprocessing.resource_tracker {mark}'
    run(["sh", "-c", f"{{ {program} & }} | read stays; exit 3"])
    assert named(mark) == []


@pytest.mark.slow  # what ignores SIGTERM is waited for
def test_shared_memory_of_what_ignores_sigterm_goes(run: Run, tmp_path: Path) -> None:
    name = f"envkit_test_{os.getpid()}"
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, time\n"
        "from multiprocessing import shared_memory\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"held = shared_memory.SharedMemory(create=True, size=1000, name='{name}')\n"
        "print('holds', flush=True)\n"
        "time.sleep(600)\n"
    )
    made = run([sys.executable, str(program)], stage_s=3.0)
    assert Path(made.folder, "as-is", "output.txt").read_text().startswith("holds")
    assert not Path("/dev/shm", name).exists()


@pytest.mark.slow  # starts 2500 processes
def test_a_command_that_starts_children_without_end_fills_no_disk(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nfor _ in range(2500):\n    os.waitpid(os.posix_spawn('/bin/false', ['false'], {}), 0)\n"
        "os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'kill -SEGV $$'], {}), 0)\n"
    )
    made = run([sys.executable, str(program)])
    assert made.verdict is Verdict.FOUND and "SIGSEGV (-11)" in made.cause
    assert len(made.children) == 200 and made.children[0].exit == -11
    assert len(Path(made.folder, "as-is", "events.jsonl").read_text().splitlines()) == 2002
    assert "  and 192 more\n" in render.text(made)


SECOND_STAGE = """
import mmap, os, pathlib, subprocess, sys, time
from multiprocessing import shared_memory
file = open(pathlib.Path(__file__).with_name("libcuda.so.1"), "w+b")
file.truncate(4096)
driver = mmap.mmap(file.fileno(), 4096)
time.sleep(0.6)
if os.path.basename(os.environ["ENVKIT_DEBUG_FOLDER"]) == "blocking":
    held = shared_memory.SharedMemory(create=True, size=1000, name=sys.argv[1])
    subprocess.Popen(["setsid", "sleep", sys.argv[2]])
    print("ready", flush=True)
    time.sleep(600)
raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""


@pytest.mark.slow  # two stages and a real signal in the second; in the first they are in test_debug
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_envkit_in_a_later_stage_nothing_stays(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "program.py").write_text(SECOND_STAGE)
    mark, name = f"33{os.getpid()}{int(number)}", f"envkit_stage_{os.getpid()}_{int(number)}"
    argv = [sys.executable, "-m", "envkit", "debug", "--out", "out", "--", sys.executable, "program.py", name, mark]
    environ = {**os.environ, "PYTHONPATH": str(Path(debug.__file__).parents[2])}
    null = subprocess.DEVNULL
    begun = subprocess.Popen(argv, cwd=tmp_path, env=environ, stdin=null, stdout=null, stderr=null)
    output = tmp_path / "out" / "blocking" / "output.txt"
    assert comes(lambda: output.exists() and output.read_text() == "ready\n")
    assert Path("/dev/shm", name).exists()
    begun.send_signal(number)
    assert begun.wait(120) == (130 if number is signal.SIGINT else -number)
    assert comes(lambda: not named(mark) and not Path("/dev/shm", name).exists(), 0.1)


# -- commands that meddle with the folder

EVENTS = [
    "[" * 100000,
    '{"event": "child"}',
    '{"event": "child", "child": "x", "exit": []}',
    '{"event": "child", "child": 7, "exit": 1e999}',
    '{"event": "exception", "frames": [1]}',
    '{"event": "exception", "frames": 5, "kind": {}}',
    '{"event": "start", "pid": "q"}',
    '{"event": "launch", "frames": [["a", "b", "c"]]}',
    '{"event": 5}',
    '"text"',
    "no json",
    '{"event": "child", "child": 7, "ex',
]


def test_events_of_no_sense_are_left_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "events").write_text("\n".join(EVENTS) + "\n")
    made = run(["sh", "-c", f'cat {tmp_path}/events >> "$ENVKIT_DEBUG_FOLDER/events.jsonl"; exit 4'])
    assert (made.exit, made.children, made.python) == (4, (), ())


@pytest.mark.parametrize("make", ["mkfifo", "mkdir", "ln -s /etc/passwd"])
def test_what_is_no_file_is_not_read(run: Run, make: str) -> None:
    script = f'cd "$ENVKIT_DEBUG_FOLDER"; for name in events.jsonl python-7.txt; do {make} $name; done; exit 4'
    made = run(["sh", "-c", script])
    assert made.exit == 4 and "root:" not in Path(made.folder, "report.json").read_text()


def test_a_link_in_the_place_of_the_output_is_not_followed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    made = run(["sh", "-c", f'ln -sf {tmp_path}/private "$ENVKIT_DEBUG_FOLDER/output.txt"; exit 4'])
    assert made.category != "illegal-memory-access"


def test_a_link_in_the_place_of_a_report_is_not_written_through(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    names = "repro.sh report.json report.html"
    script = f'cd "$ENVKIT_DEBUG_FOLDER/.."; for name in {names}; do ln -s {tmp_path}/mine $name; done; exit 4'
    made = run(["sh", "-c", script])
    assert (tmp_path / "mine").read_text() == "mine"
    assert json.loads(Path(made.folder, "report.json").read_text())["exit"] == 4


@pytest.mark.slow  # five whole runs
@pytest.mark.parametrize(
    "meddle",
    [
        'rm -rf "$ENVKIT_DEBUG_FOLDER"',
        'rm -rf "$(dirname "$ENVKIT_DEBUG_FOLDER")"',
        'mkdir "$ENVKIT_DEBUG_FOLDER/ending.json"',
        'rm -rf "$ENVKIT_DEBUG_FOLDER"; mkdir elsewhere; ln -s "$PWD/elsewhere" "$ENVKIT_DEBUG_FOLDER"',
    ],
)
def test_a_folder_that_the_command_takes_away_is_told_and_nothing_stays(run: Run, tmp_path: Path, meddle: str) -> None:
    mark = f"55{os.getpid()}"
    with pytest.raises(Undecided, match="what came of running sh was not kept") as raised:
        run(["sh", "-c", f"setsid sleep {mark} & cd {tmp_path}; {meddle}"])
    assert "--out" in raised.value.fix
    assert subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False, stdout=subprocess.DEVNULL).returncode == 1


def test_a_full_disk_is_told_and_nothing_stays(tmp_path: Path) -> None:
    place = tmp_path / "full"
    place.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mounted, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user may mount nothing")
    mark = f"44{os.getpid()}"
    try:
        done = verb("--out", str(place / "out"), "--", "sh", "-c", f"setsid sleep {mark} & yes", cwd=tmp_path)
        assert done.returncode == 3 and "No space left on device" in done.stderr and "Traceback" not in done.stderr
        assert subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False, stdout=subprocess.DEVNULL).returncode == 1
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_escapes_of_a_program_do_not_reach_the_terminal(tmp_path: Path) -> None:
    program = r"raise ValueError('\x1b]0;taken\x07\x1b[31mred\u202e')"
    done = verb("--", sys.executable, "-c", program, cwd=tmp_path)
    assert done.returncode == 1 and "red" in done.stdout
    assert not any(mark in done.stdout + done.stderr for mark in ("\x1b", "\x07", "\u202e"))


def test_words_of_compute_sanitizer_on_stdout_are_no_report_of_it(run: Run) -> None:
    said = "========= Invalid __global__ write of size 4 bytes\n=========     at k(int)+0x1 in x.cu:1\n"
    made = run(["printf", "%s", said + "========= ERROR SUMMARY: 1 error\n"])
    assert made.fault is None and made.verdict is not Verdict.FOUND


# -- secrets

SECRETS = ["--password", "sesame1", "--api-key=sesame2", "--secret", "sesame3", "https://me:sesame4@host/x"]


def test_a_secret_of_the_command_line_is_in_no_file_of_envkit_s(run: Run) -> None:
    made = run([sys.executable, "-c", "import time; time.sleep(0.3)", *SECRETS, "--max-tokens", "5"])
    held = [path for path in Path(made.folder).rglob("*") if path.is_file() and b"sesame" in path.read_bytes()]
    assert held == []
    script = Path(made.folder, "repro.sh").read_text()
    assert "--password '[hidden]'" in script and "# [hidden] stands for" in script and "--max-tokens 5" in script


def test_a_secret_of_the_environment_is_in_no_file(tmp_path: Path) -> None:
    secrets = {"CUDA_X_TOKEN": "sesame5", "NCCL_PROXY": "https://me:sesame6@host"}
    assert verb("--", "false", cwd=tmp_path, environ={**os.environ, **secrets}).returncode == 3
    held = [path for path in tmp_path.rglob("*") if path.is_file() and b"sesame" in path.read_bytes()]
    assert held == [] and "NCCL_PROXY is set and is left out" in (tmp_path / "envkit-debug-1" / "repro.sh").read_text()


def test_words_without_a_secret_stay_as_they_are() -> None:
    words = ["python", "train.py", "--token-file", "/run/t", "--max-tokens", "5", "--password", "--force", "-p", "9"]
    assert repro.redacted_words(words) == words


# -- the companion


def companioned(tmp_path: Path, text: str, *options: str) -> job.CommandRun:
    """A Python with the companion that runs this text."""
    number = len(list(tmp_path.iterdir()))
    return job.run(job.LocalMachine(), [sys.executable, *options, "-c", text], tmp_path / f"run-{number}", budget_s=600)


def test_an_error_whose_words_fail_prints_as_without_the_companion(tmp_path: Path) -> None:
    text = "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Odd()\n"
    bare = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=600)
    ran = companioned(tmp_path, text)
    assert (ran.exit, ran.text()) == (1, bare.stderr)
    assert [event["kind"] for event in ran.events if event["event"] == "exception"] == ["Odd"]


def test_waits_take_what_python_s_own_take(tmp_path: Path) -> None:
    text = (
        "import os\n"
        "for wait in (lambda pid: os.wait3(options=0), lambda pid: os.wait4(pid=pid, options=0),\n"
        "             lambda pid: os.waitpid(pid, 0), lambda pid: os.wait()):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        os._exit(3)\n"
        "    assert os.WEXITSTATUS(wait(pid)[1]) == 3\n"
    )
    ran = companioned(tmp_path, text)
    assert (ran.exit, ran.text()) == (0, "")


def test_a_low_limit_of_descriptors_is_no_trouble(tmp_path: Path) -> None:
    argv = ["sh", "-c", f'ulimit -n 64; exec {sys.executable} -c "print(7)"']
    ran = job.run(job.LocalMachine(), argv, tmp_path / "run", budget_s=600)
    assert (ran.exit, ran.text()) == (0, "7\n") and [event["event"] for event in ran.events] == ["start"]


def test_a_folder_that_is_gone_is_no_trouble_for_the_companion(tmp_path: Path) -> None:
    argv = ["sh", "-c", f'mkdir {tmp_path}/w; cd {tmp_path}/w; rmdir {tmp_path}/w; exec {sys.executable} -c "print(7)"']
    ran = job.run(job.LocalMachine(), argv, tmp_path / "run", budget_s=600)
    assert (ran.exit, ran.text()) == (0, "7\n")


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_without_the_companion_runs_as_ever(tmp_path: Path, option: str) -> None:
    ran = companioned(tmp_path, "1/0", option)
    assert ran.exit == 1 and ran.events == () and "ZeroDivisionError" in ran.text()


@pytest.mark.parametrize(
    ("of_cuda", "ticks", "doing", "ends", "over"),
    [
        (False, 0, "waits for other ranks", False, True),
        (False, 10_000, "waits for other ranks", False, False),
        (True, 10_000, "waits for other ranks", False, True),
        (True, 0, "waits for its GPU", False, False),
        (False, 0, "sleeps", False, False),
        (False, 0, "", False, False),
        (False, 0, "sleeps", True, True),
        (False, 10_000, "sleeps", True, False),
    ],
)
@pytest.mark.parametrize("world", ["1", "2"])
def test_a_job_is_ended_only_where_nobody_can_go_on_or_by_the_time_that_was_given(
    tmp_path: Path, of_cuda: bool, ticks: int, doing: str, ends: bool, over: bool, world: str
) -> None:
    """Whoever waits for a GPU uses a processor all along; of a job of two ranks one is not known here."""
    rank = {"python": "", "doing": doing, "cuda": of_cuda, "rank": "0", "world": world, "parent": 1, "state": "S"}

    class Posed(envkit_supervisor.Supervisor):
        def sample(self, native: bool) -> None:
            looks = ((0.0, 0), (5.0, ticks))
            self.samples = [
                {"after_s": after, "processes": {"7": {**rank, "ticks": used, "waited": 0}}} for after, used in looks
            ]

    (tmp_path / "ranks-7.jsonl").write_text("{}\n")
    supervisor = Posed({"folder": str(tmp_path), "hang_ends": ends})
    supervisor.cuda = {7} if of_cuda else set()
    supervisor.listed -= 1
    assert not supervisor.stand_still(10.0)  # the file was not there when it looked last
    supervisor.listed -= 1
    supervisor.stepped = supervisor.output.spoke = time.monotonic() - 40
    assert supervisor.stand_still(10.0) is (over and (ends or world == "1"))
    supervisor.output.end()
    said = (tmp_path / "suspicions.txt").read_text() if (tmp_path / "suspicions.txt").exists() else ""
    assert ("no rank made a step" in said) is not (over and (ends or world == "1"))


def test_a_program_that_writes_byte_by_byte_costs_no_memory(tmp_path: Path) -> None:
    output = envkit_supervisor.Output(str(tmp_path / "output"), 200000)
    with costs_less(10):
        for number in range(400000):
            output.take(b"%c" % (97 + number % 26))
    assert len(output.tail) <= 4 and output.bytes == 400000
    output.end()
    kept = (tmp_path / "output").read_bytes()
    assert kept.startswith(b"abc") and kept.endswith(b"%c" % (97 + 399999 % 26)) and len(kept) < 280000
