"""`envkit run` and `shell`: what the command sees, the line to paste, whose exit code it is, what is said of a failure.

The environment without containers makes the whole way here; `docker run` itself is in test_run_engine.py.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from forked import envkit

from envkit.engine import Bind, JobRequest, docker_run
from envkit.engine.local import LocalEngine
from envkit.errors import UsageError
from envkit.launch import job
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock
from envkit.plan.spec import load
from envkit.runner import runner

STACK = Path(__file__).resolve().parents[1] / "images" / "torch-2.6-cu124"
LOCK = locks.parse((STACK / "envkit.lock").read_text(), "envkit.lock")
SECRET = "hf_thisistheonethatnobodymaysee"
ASKED = JobRequest("team/job:1", ("python", "train.py", "--lr", "1e-3"))
PLAIN: dict[str, object] = {"CDISpecDirs": ["/etc/cdi"]}


# What a run costs.


def test_a_run_imports_nothing_that_only_a_built_or_a_read_image_needs() -> None:
    rooms = ("build.up", "explain.explain", "image.audit", "image.tree", "payload.smoke", "plan.solve", "runner.runner")
    code = """
import sys, envkit.cli, envkit.launch.job, envkit.launch.preflight as flights
for kind in (flights.Host, flights.Launch):
    flights.judge.checks(kind)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"envkit.judging.judge", "envkit.judging.checks.host_gpu"} <= loaded
    assert loaded.isdisjoint({*(f"envkit.{room}" for room in rooms), "envkit.subjects.dockerfile", "docker"})


def test_without_preflight_no_record_of_a_machine_or_an_image_is_made() -> None:
    code = "import sys, envkit.cli.jobs, envkit.launch.job, envkit.launch.docker_options; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "envkit.subjects.declared" in loaded
    assert loaded.isdisjoint({f"envkit.subjects.{kind}" for kind in ("audit", "host", "image", "launch")})
    assert "envkit.host" not in loaded


# The line of `docker run`.


def line(request: JobRequest, info: Mapping[str, object] = PLAIN) -> str:
    return shlex.join(docker_run.line(request, docker_run.terms(info)).argv)


def test_a_bare_job_is_a_bare_line() -> None:
    assert line(ASKED) == "docker run --rm team/job:1 python train.py --lr 1e-3"
    assert line(replace(ASKED, stdin=True)).startswith("docker run --rm --interactive team")
    assert line(replace(ASKED, stdin=True, terminal=True)).startswith("docker run --rm --interactive --tty team")


@pytest.mark.parametrize(
    ("info", "gpus", "words"),
    [
        (PLAIN, (), ""),
        (PLAIN, ("all",), "--device nvidia.com/gpu=all"),
        (PLAIN, ("0", "2"), "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2"),
        ({"Runtimes": {"nvidia": {}}}, ("all",), "--gpus all"),
        ({"Runtimes": {"nvidia": {}}}, ("0", "2"), """--gpus '"device=0,2"'"""),
        ({"Runtimes": {"nvidia": {}}, "CDISpecDirs": ["/etc/cdi"]}, ("all",), "--device nvidia.com/gpu=all"),
        ({"Runtimes": {"runc": {}}}, ("all",), "--device nvidia.com/gpu=all"),  # whose refusal names what is missing
    ],
)
def test_gpus_enter_as_the_engine_can_give_them(info: Mapping[str, object], gpus: tuple[str, ...], words: str) -> None:
    assert line(replace(ASKED, gpus=gpus), info).split("--rm ")[1].split("team")[0].strip() == words


def test_the_user_is_the_one_that_owns_the_files_here() -> None:
    mine = replace(ASKED, user=(1000, 100))
    assert "--user 1000:100 team" in line(mine)
    assert "--user 0:0 team" in line(mine, {"SecurityOptions": ["name=seccomp", "name=rootless"]})
    assert "--user 1000:100 --userns host team" in line(mine, {"SecurityOptions": ["name=userns"]})


def test_a_secret_is_handed_over_and_no_word_of_the_line() -> None:
    made = docker_run.line(replace(ASKED, env={"HF_TOKEN": SECRET, "EPOCHS": "3"}), docker_run.terms(PLAIN))
    assert made.env == {"HF_TOKEN": SECRET}
    assert shlex.join(made.argv) == (
        "docker run --rm --env HF_TOKEN --env EPOCHS=3 team/job:1 python train.py --lr 1e-3"
    )


@pytest.mark.parametrize(
    ("bind", "words"),
    [
        (Bind("/data", "/data"), ["--volume", "/data:/data"]),
        (Bind("/data", "/data", writable=False), ["--volume", "/data:/data:ro"]),
        (Bind("named", "/data"), ["--volume", "named:/data"]),
        (Bind("/a b'c", "/data"), ["--volume", "/a b'c:/data"]),
        (Bind("/a:b", "/data"), ["--mount", "type=bind,source=/a:b,target=/data"]),
        (Bind("/a,b", "/data", writable=False), ["--mount", 'type=bind,"source=/a,b",target=/data,readonly']),
        (Bind('/a"b', "/data"), ["--mount", 'type=bind,"source=/a""b",target=/data']),
    ],
)
def test_a_mount_is_quoted_for_the_language_it_lands_in(bind: Bind, words: list[str]) -> None:
    made = docker_run.line(replace(ASKED, binds=(bind,)), docker_run.terms(PLAIN)).argv
    assert list(made[3:5]) == words


@pytest.mark.parametrize(
    ("code", "state", "said"),
    [
        (3, {"Status": "exited", "ExitCode": 3}, (3, "", False)),
        (137, {"Status": "exited", "ExitCode": 137, "OOMKilled": True}, (137, "", True)),
        (127, {"Status": "created", "ExitCode": 127, "Error": "no such program"}, (127, "no such program", False)),
        (125, {"Status": "created", "ExitCode": 0, "Error": ""}, (125, "the engine did not start it", False)),
        (127, {"Status": "exited", "ExitCode": 127, "Error": ""}, (127, "", False)),  # a shell's own
        (-15, {"Status": "running"}, (143, "", False)),
    ],
)
def test_whose_exit_code_it_is_is_the_engines_word(
    code: int, state: dict[str, object], said: tuple[int, str, bool]
) -> None:
    end = docker_run.end(code, state)
    assert (end.exit, end.not_started, end.out_of_memory) == said


# What a job sees.


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    for name in ("envkit.toml", "envkit.lock"):
        (made / name).write_bytes((STACK / name).read_bytes())
    return made


def asked(project: Path, here: Path, options: job.JobOptions | None = None, lock: Lock = LOCK) -> JobRequest:
    environ = {"HOME": str(project.parent / "home"), "HF_HOME": str(project.parent / "models")}
    return job.request(lock, "team/job:1", project, ("true",), options or job.JobOptions(), environ, here)


def test_a_job_starts_where_its_user_is(project: Path) -> None:
    assert asked(project, project).workdir == "/workspace"
    assert asked(project, project / "src").workdir == "/workspace/src"
    assert asked(project, project / "src", job.JobOptions(workdir="/tmp")).workdir == "/tmp"
    assert asked(project, project).user == (os.getuid(), os.getgid())
    assert asked(project, project, job.JobOptions(user=(7, 8))).user == (7, 8)


def test_the_project_is_the_folder_of_the_spec_or_the_one_its_user_is_in(project: Path, tmp_path: Path) -> None:
    spec = load(project)
    assert job.project_of(spec, project / "src") == project
    assert job.project_of(spec, tmp_path) == tmp_path


def test_a_job_sees_project_home_and_caches(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.parent / "cache"))
    seen = {bind.target: bind.source for bind in asked(project, project).binds}
    stack = f"torch{LOCK.torch}-cuda{LOCK.cuda}-python{LOCK.python}"
    assert seen == {
        "/workspace": str(project),
        "/home/job": f"{project.parent}/cache/envkit/jobs/{LOCK.name}/{stack}",
        "/home/job/.cache/huggingface": f"{project.parent}/models",
        "/home/job/.cache/torch": f"{project.parent}/home/.cache/torch",
        "/home/job/.cache/pip": f"{project.parent}/home/.cache/pip",
    }
    job.ready(asked(project, project))
    assert all(Path(source).is_dir() for source in seen.values())
    assert (Path(seen["/home/job"]) / ".cache/huggingface").is_dir()  # or the engine makes it as root
    assert asked(project, project).env["HOME"] == "/home/job"


def test_the_line_for_an_image_is_that_of_run_where_its_label_holds_the_lock(project: Path) -> None:
    labels = {runner.LOCK_LABEL: (STACK / "envkit.lock").read_text(), runner.FLAVOR_LABEL: "runtime"}
    known = job.of_image("envkit/it:1", labels, ("all",), project, {"HOME": "/home/ada"})
    words, options = ("python", "train.py"), job.JobOptions(("all",))
    home = {"HOME": "/home/ada"}
    assert known == job.request(LOCK, "envkit/it:1", project, words, options, home, project, flavor="runtime")
    for text in ("", "no lock", (STACK / "envkit.lock").read_text() + "# edited\n"):
        other = job.of_image("theirs:1", {runner.LOCK_LABEL: text}, (), project, {})
        mine = f"--user {os.getuid()}:{os.getgid()}"
        assert line(other) == (
            f"docker run --rm --init {mine} --volume {project}:/workspace --workdir /workspace theirs:1 python train.py"
        )


def test_a_mount_of_nothing_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.parent / "cache"))
    options = job.JobOptions(binds=(Bind(str(project / "data"), "/data"),))
    with pytest.raises(UsageError, match="to mount at /data"):
        job.ready(asked(project, project, options))
    assert not (project / "data").exists()


def test_options_go_before_those_of_envkit_and_preflight_knows_them(project: Path) -> None:
    words = ("--shm-size", "1g", "--ulimit", "stack=67108864", "--ipc", "host", "--network", "none", "--memory", "4g")
    made = asked(project, project, job.JobOptions(gpus=("0", "1"), env={"A": "b"}, words=words, user=(7, 8)))
    sizes = [value for name, value in zip(made.options, made.options[1:], strict=False) if name == "--shm-size"]
    assert sizes == ["8g", "1g"]  # docker takes the last
    seen = job.declared(made)
    assert (seen.gpus.value, seen.memory.value, seen.network.value) == (("0", "1"), 4 << 30, "none")
    assert seen.user.value == "7:8" and seen.ipc.value == "host"
    assert set(seen.limits.need("limits")) == {"memlock", "stack"}
    assert (seen.environment.value or {})["A"] == "b"
    assert [mount.target for mount in seen.mounts.need("mounts")][:2] == ["/workspace", "/home/job"]
    assert seen.command.value == ("true",)
    assert job.declared(asked(project, project)).gpus.value == ()
    assert job.declared(asked(project, project, job.JobOptions(gpus=("all",)))).gpus.value == ("all",)


# The whole way, without containers.


@pytest.fixture
def home(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of the project's lock as envkit would have made it, but for what is in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.parent / "cache"))
    cache = project.parent / "cache" / "envkit"
    engine = LocalEngine(cache)
    venv = cache / "venvs" / "made"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python3").symlink_to(sys.executable)
    (venv / "bin" / "only-here").write_text("#!/bin/sh\necho only here\n")
    (venv / "bin" / "only-here").chmod(0o755)
    (venv / "envkit-complete.json").write_text(json.dumps({"size_bytes": 1, "python": "3.11"}))
    spec = load(project)
    lock = locks.load(spec)
    assert lock is not None
    labels = {runner.LOCK_LABEL: locks.dump(lock), runner.FLAVOR_LABEL: lock.flavor}
    engine._name(job.tag_of(spec), "made", labels)
    return venv


def run(project: Path, *words: str, stdin: bytes = b"", verb: str = "run") -> CompletedProcess[str]:
    quick = ("--no-preflight",) if verb == "run" else ()
    return envkit(
        verb, str(project), "--engine", "local", *quick, *words, cwd=project, env=dict(os.environ), stdin=stdin
    )


@pytest.mark.parametrize("code", [0, 1, 2, 3, 70, 126, 127, 130, 137, 255])
def test_the_exit_code_is_the_commands(project: Path, home: Path, code: int) -> None:
    done = run(project, "--no-explain", "--", "sh", "-c", f"echo said; exit {code}")
    assert (done.returncode, done.stdout) == (code, "said\n")
    assert ("is the command's own" in done.stderr) == (code != 0)


def test_a_signal_is_told_by_name(project: Path, home: Path) -> None:
    done = run(project, "--no-explain", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    assert "envkit: exit code 137 is the command's own (SIGKILL)\n" in done.stderr


def test_it_runs_in_the_environment_where_its_user_is(project: Path, home: Path) -> None:
    done = run(
        project, "--env", "EPOCHS=3", "--", "sh", "-c", 'only-here; pwd; echo "$EPOCHS $VIRTUAL_ENV"; cat', stdin=b"in"
    )
    assert done.stdout == f"only here\n{project}\n3 {home}\nin"


def test_the_line_is_printed_and_does_the_same(project: Path, home: Path) -> None:
    done = run(
        project, "--print", "--env", "EPOCHS=3", "--env", f"HF_TOKEN={SECRET}", "--", "sh", "-c", 'echo "$EPOCHS"'
    )
    assert done.returncode == 0 and SECRET not in done.stdout + done.stderr
    assert "HF_TOKEN is not printed" in done.stderr
    assert os.popen(done.stdout).read() == "3\n"


FAILS = """
import sys
print("epoch 1")
raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""


def test_a_failure_is_explained_below_its_output(project: Path, home: Path) -> None:
    (project / "train.py").write_text(FAILS)
    done = run(project, "--", "python3", "train.py")
    assert (done.returncode, done.stdout) == (1, "epoch 1\n")
    output, _, explained = done.stderr.partition("envkit: exit code 1 is the command's own\n")
    assert output.endswith("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    assert "illegal memory access" in explained
    kept = project.parent / "cache/envkit/jobs/project/output.log"
    assert kept.read_text().startswith("epoch 1\nTraceback") and kept.stat().st_mode & 0o777 == 0o600
    assert f"the output is in {kept}; to look closer: envkit debug -- env --chdir={project} " in explained
    assert "python3 train.py" in explained


def test_nothing_is_explained_of_a_success_or_unasked(project: Path, home: Path) -> None:
    assert "explain" not in run(project, "--", "true").stderr
    (project / "train.py").write_text(FAILS)
    done = run(project, "--no-explain", "--", "python3", "train.py")
    assert done.stderr.endswith("envkit: exit code 1 is the command's own\n")


def test_a_command_without_dashes_is_told_how(project: Path, home: Path) -> None:
    done = run(project, "python", "train.py")
    assert done.returncode == 2
    assert "the command `python` must follow --" in done.stderr and "envkit run -- python train.py" in done.stderr
    assert run(project).returncode == 2


def test_a_shell_wants_a_terminal(project: Path, home: Path) -> None:
    done = run(project, verb="shell")
    assert done.returncode == 2 and "a shell needs a terminal" in done.stderr


def test_options_of_containers_are_refused_without_one(project: Path, home: Path) -> None:
    done = run(project, "--shm-size", "1g", "--", "true")
    assert done.returncode == 2 and "--shm-size is about a container, and --engine local has none" in done.stderr


def test_a_mount_of_nothing_is_refused_before_anything_is_built(project: Path) -> None:
    done = run(project, "--volume", "./data:/data", "--", "true")
    assert done.returncode == 2 and f"there is no {project / 'data'} to mount at /data" in done.stderr
    assert "build" not in done.stderr and not (project / "data").exists()


def test_a_program_that_is_not_there_is_told_apart(project: Path, home: Path) -> None:
    done = run(project, "--no-explain", "--", "no-such-program")
    assert done.returncode == 127
