"""`envkit run` in real containers: whose exit code, which user, what is left after each end, and the line to paste."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from clocks import PATIENCE_S, comes

from envkit.engine import BuildRequest
from envkit.engine.docker import DockerEngine
from envkit.engine.held import RUN_LABEL
from envkit.plan import lockfile as locks
from envkit.plan.spec import load
from envkit.plan.update import suite_wish
from envkit.runner import runner

pytestmark = pytest.mark.engine
STACK = Path(__file__).resolve().parents[1] / "images" / "torch-2.6-cu124"


class Project(NamedTuple):
    """A folder with a spec, and the name of an image that is that of its lock by its labels, without torch."""

    folder: Path
    tag: str


@pytest.fixture(scope="module")
def project(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project")
    for name in ("envkit.toml", "envkit.lock"):
        (folder / name).write_bytes((STACK / name).read_bytes())
    lock = locks.load(load(folder))
    assert lock is not None
    base = engine.resolve_base(suite_wish("bookworm"), lambda line: None)
    context = tmp_path_factory.mktemp("context")
    (context / "Dockerfile").write_text(f"FROM {base.ref}\n")
    labels = {runner.LOCK_LABEL: locks.dump(lock), runner.FLAVOR_LABEL: lock.flavor}
    tag = f"envkit-test/run:{uuid.uuid4().hex[:12]}"
    engine.build(BuildRequest(context, tag, 300, labels=labels), lambda line: None)
    yield Project(folder, tag)
    engine.remove(tag)


def words(project: Project, *rest: str) -> list[str]:
    quick = ["--no-preflight", "--no-explain", "--gpus", "none"]
    return [sys.executable, "-m", "envkit", "run", str(project.folder), "--tag", project.tag, *quick, *rest]


def environment(project: Project) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(project.folder.parent / "cache"), "HOME": str(project.folder.parent)}


def run(project: Project, *rest: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(project, *rest), input=stdin, capture_output=True, text=True, cwd=project.folder,
        env=environment(project), timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def containers(project: Project) -> list[str]:
    """Those of the project's image, running or not."""
    words = ["docker", "ps", "--all", "--quiet", "--filter", f"ancestor={project.tag}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("code", [0, 1, 3, 125, 126, 127, 137])
def test_the_exit_code_is_the_commands(project: Project, code: int) -> None:
    done = run(project, "--", "sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert (done.returncode, done.stdout) == (code, "out\n")
    assert done.stderr == "err\n" + (
        f"envkit: exit code {code} is the command's own{' (SIGKILL)' * (code == 137)}\n" * bool(code)
    )
    assert containers(project) == []


@pytest.mark.parametrize(("command", "code"), [(("no-such-program",), 127), (("/etc/passwd",), 126)])
def test_a_command_that_cannot_start_is_told_apart(project: Project, command: tuple[str, ...], code: int) -> None:
    done = run(project, "--", *command)
    assert done.returncode == code
    why = "No such file or directory" if code == 127 else "Permission denied"
    assert f"envkit: the command was not started: {command[0]}: {why}\n" in done.stderr
    assert "command's own" not in done.stderr
    assert containers(project) == []


def test_the_command_is_its_user_in_the_projects_folder(project: Project) -> None:
    (project.folder / "src").mkdir(exist_ok=True)
    (project.folder / "hello.txt").write_text("hello\n")
    look = (
        "id -u; pwd; cat hello.txt; touch made; mkdir -p $HOME/.cache/one; test -w $HOME/.cache/torch && echo all; cat"
    )
    done = run(project, "--", "sh", "-c", look, stdin="given")
    assert done.stdout == f"{os.getuid()}\n/workspace\nhello\nall\ngiven"
    assert (project.folder / "made").stat().st_uid == os.getuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run as somebody else")
def test_another_user_has_a_home_of_its_own(project: Project) -> None:
    done = run(project, "--user", "4321:8765", "--", "sh", "-c", "id -u; id -g; touch $HOME/made && echo $USER")
    assert done.stdout == "4321\n8765\nuid4321\n"


def test_a_secret_is_in_no_command_line(project: Project) -> None:
    look = "echo $HF_TOKEN; cat /proc/1/cmdline"
    done = run(project, "--env", "HF_TOKEN=hf_thisistheonethatnobodymaysee", "--", "sh", "-c", look)
    assert done.stdout.startswith("hf_thisistheonethatnobodymaysee\n")
    printed = run(project, "--print", "--env", "HF_TOKEN=hf_thisistheonethatnobodymaysee", "--", "true")
    assert "hf_this" not in printed.stdout + printed.stderr and "--env HF_TOKEN " in printed.stdout


def test_the_printed_line_does_the_same(project: Project) -> None:
    printed = run(project, "--print", "--env", "EPOCHS=3", "--", "sh", "-c", 'echo "$EPOCHS $(pwd)"; exit 5')
    assert printed.returncode == 0 and printed.stdout.startswith("docker run --rm --init ")
    pasted = subprocess.run(printed.stdout, shell=True, capture_output=True, text=True, check=False)
    assert (pasted.returncode, pasted.stdout) == (5, "3 /workspace\n")
    assert containers(project) == []


def test_the_kernels_end_at_the_memory_limit_is_told(project: Project) -> None:
    take = "python3 -c 'x = bytearray(512 << 20); print(len(x))'"
    done = run(project, "--memory", "64m", "--", "sh", "-c", f"{take}; exit $?")
    if done.returncode == 0:
        pytest.skip("this engine cannot limit memory")
    assert done.returncode == 137
    assert "the kernel killed a process of the container at its memory limit; --memory raises it" in done.stderr


WAITS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(9))
open("ready", "w").close()
try:
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(8)
"""


def waiting(project: Project) -> subprocess.Popen[str]:
    """A run whose command waits for a signal."""
    (project.folder / "waits.py").write_text(WAITS)
    (project.folder / "ready").unlink(missing_ok=True)
    process = subprocess.Popen(
        words(project, "--", "python3", "waits.py"), cwd=project.folder, env=environment(project),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert comes(lambda: (project.folder / "ready").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 8), (signal.SIGTERM, 9)])
def test_a_signal_reaches_the_command_and_nothing_is_left(project: Project, number: signal.Signals, code: int) -> None:
    process = waiting(project)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert containers(project) == []


def test_nothing_is_left_of_a_run_that_is_killed(project: Project) -> None:
    process = waiting(project)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert comes(lambda: containers(project) == [])


def test_nothing_is_left_of_a_run_whose_docker_is_killed(project: Project) -> None:
    process = waiting(project)
    (client,) = [
        int(pid)
        for pid in subprocess.run(
            ["pgrep", "-f", f"docker run.*{project.tag}.*waits.py"], capture_output=True, text=True, check=True
        ).stdout.split()
        if Path("/proc", pid, "comm").read_text() == "docker\n"
    ]
    os.kill(client, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 137
    assert containers(project) == []


def test_on_a_terminal_the_command_has_one(project: Project) -> None:
    ask = "import os; print('terminals', *map(os.isatty, range(3))); print('got', input('name? '))"
    argv, env = words(project, "--", "python3", "-c", ask), environment(project)
    pid, side = pty.fork()
    if pid == 0:
        os.chdir(project.folder)
        os.execve(argv[0], argv, env)
    shown, typed, deadline = b"", False, time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if not select.select([side], [], [], 0.1)[0]:
            continue
        try:
            shown += os.read(side, 1 << 16)
        except OSError:
            break
        if b"name? " in shown and not typed:
            typed = bool(os.write(side, b"ada\n"))
    os.close(side)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert b"terminals True True True" in shown and b"got ada" in shown


def test_containers_of_a_run_bear_envkits_label(project: Project) -> None:
    process = waiting(project)
    (made,) = containers(project)
    label = subprocess.run(
        ["docker", "inspect", "--format", f'{{{{index .Config.Labels "{RUN_LABEL}"}}}}', made],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert label == "1\n"
    assert shlex.join(words(project)).count(project.tag) == 1
