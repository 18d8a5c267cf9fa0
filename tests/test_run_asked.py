"""`envkit run`, `push` and `sbom` from the command line to the program that they start and back; the engine is a
program that a test plays, and the image is that of a locked stack by its labels.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from fake_podman import FakePodman
from forked import envkit

from envkit.build import bill
from envkit.cli import packages
from envkit.plan import lockfile as locks
from envkit.plan import pushed
from envkit.plan.lockfile import Lock, Pin
from envkit.plan.spec import load
from envkit.runner import runner

STACK = Path(__file__).resolve().parents[1] / "images" / "torch-2.6-cu124"
LOCK = locks.parse((STACK / "envkit.lock").read_text(), "envkit.lock")
DIGEST = "sha256:" + "d" * 64


class Job:
    """A project whose image podman has as job:1."""

    def __init__(self, folder: Path, podman: FakePodman, lock: Lock) -> None:
        self.folder, self.podman, self.lock = folder, podman, lock

    def envkit(self, verb: str, *words: str) -> CompletedProcess[str]:
        home = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return envkit(verb, *words, env={**os.environ, **home}, cwd=self.folder / "project")

    def run(self, *words: str) -> CompletedProcess[str]:
        return self.envkit(
            "run", "--engine", "podman", "--gpus", "none", "--tag", "job:1", "--no-preflight", *words
        )  # fmt: skip

    def ends(self, code: int, **state: object) -> None:
        self.podman.has_container(State={"Status": "exited", "ExitCode": code, **state})


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    podman = FakePodman(tmp_path / "fake", monkeypatch)
    for name in ("envkit.toml", "envkit.lock"):
        (tmp_path / "project").mkdir(exist_ok=True)
        shutil.copy(STACK / name, tmp_path / "project" / name)
    lock = locks.load(load(tmp_path / "project"))
    assert lock is not None
    labels = {runner.LOCK_LABEL: locks.dump(lock), runner.FLAVOR_LABEL: lock.flavor}
    podman.holds("job:1", Labels=labels)
    podman.on("'run '*", "trained\n")
    made = Job(tmp_path, podman, lock)
    made.ends(0)
    return made


def test_a_command_runs_and_its_output_is_its_own(job: Job) -> None:
    done = job.run("--", "python", "train.py")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    (line,) = job.podman.lines("run")
    assert line[-3:] == ["job:1", "python", "train.py"] and "--rm" not in line
    assert line[line.index("--workdir") + 1] == "/workspace" and f"{job.folder}/project:/workspace" in line


@pytest.mark.parametrize(
    ("code", "state", "said"),
    [
        (7, {}, ["envkit: exit code 7 is the command's own"]),
        (137, {}, ["envkit: exit code 137 is the command's own (SIGKILL)"]),
        (193, {}, ["envkit: exit code 193 is the command's own"]),
        (128, {}, ["envkit: exit code 128 is the command's own"]),
        (192, {}, ["envkit: exit code 192 is the command's own (SIGRTMAX)"]),
        (
            137,
            {"OOMKilled": True},
            [
                "envkit: the kernel killed a process of the container at its memory limit; --memory raises it",
                "envkit: exit code 137 is the command's own (SIGKILL)",
            ],
        ),
        (1, {"Status": "created"}, ["envkit: the command was not started: podman did not start it, as it says above"]),
    ],
)
def test_a_command_that_fails_ends_envkit_alike(job: Job, code: int, state: dict[str, object], said: list[str]) -> None:
    job.ends(code, **state)
    job.podman.on("'run '*", exit=code)
    done = job.run("--no-explain", "--", "false")
    lines = [line for line in done.stderr.splitlines() if line.startswith("envkit: ")]
    assert done.returncode == code and [line.split(" (signal")[0] for line in lines] == said, done.stderr


@pytest.mark.slow
def test_the_output_of_a_failure_is_explained_and_kept(job: Job) -> None:
    job.ends(1)
    job.podman.on("'run '*", "nothing that anybody knows\n", exit=1)
    done = job.run("--", "false")
    assert done.returncode == 1 and "its output does not show the cause" in done.stderr
    (kept,) = job.folder.rglob("output.log")
    assert kept.read_text() == "nothing that anybody knows\n" and kept.stat().st_mode & 0o777 == 0o600
    assert f"the output is in {kept}; to look closer: envkit debug " in done.stderr
    text = "Traceback (most recent call last):\n  File 'a.py', line 1, in <module>\n"
    text += "ModuleNotFoundError: No module named 'x'\n"
    job.podman.on("'run '*", err=text, exit=1)
    assert "its output does not show the cause" not in job.run("--", "false").stderr
    job.ends(130)
    job.podman.on("'run '*", exit=130)
    assert "the output is in" not in job.run("--", "false").stderr, "who interrupts it knows why it ended"


def test_a_line_to_paste_starts_nothing(job: Job) -> None:
    done = job.run("--print", "--env", "A=b c", "--env", "HF_TOKEN=hidden", "--", "train")
    assert done.returncode == 0 and done.stdout.startswith("podman run --rm "), done.stderr
    assert "'A=b c'" in done.stdout and "hidden" not in done.stdout + done.stderr
    assert "HF_TOKEN is not printed: it is a secret; export it before you paste the line" in done.stderr
    assert job.podman.lines("run") == []
    (job.folder / "project" / "envkit.lock").unlink()
    done = job.run("--print", "--", "train")
    assert done.returncode == 2 and "there is no lock for" in done.stderr and "envkit lock" in done.stderr


def test_a_push_prints_the_digest_and_notes_it(job: Job) -> None:
    job.podman.on("'push '*", does=f'echo {DIGEST} > "$(value --digestfile=)"')
    done = job.envkit("push", "h.io/team/job:1", "--engine", "podman", "--tag", "job:1")
    assert (done.returncode, done.stdout) == (0, f"h.io/team/job@{DIGEST}\n"), done.stderr
    assert "noted in " in done.stderr
    assert pushed.read(load(job.folder / "project"))
    done = job.envkit("push", "h.io/team/job:1", "--engine", "podman", "--tag", "other:1")
    assert done.returncode == 2 and "there is no image other:1 of this spec and its lock" in done.stderr
    done = job.envkit("push", "h.io/team/job:1", "--engine", "podman", "--tag", "job:1", "--index", "h.io/team/all:1")
    assert done.returncode == 2 and "the podman engine cannot" in done.stderr


def test_a_bill_of_materials_goes_where_it_is_asked_for(job: Job) -> None:
    done = job.envkit("sbom", "--no-licenses")
    assert (done.returncode, done.stdout) == (0, bill.cyclonedx(job.lock, job.lock.flavor, {})), done.stderr
    runtime = job.envkit("sbom", "--no-licenses", "--flavor", "runtime", "-o", "bill.json")
    assert runtime.returncode == 0 and runtime.stdout == "bill.json\n"
    written = (job.folder / "project" / "bill.json").read_text()
    assert written == bill.cyclonedx(job.lock, "runtime", {}) and json.loads(written)
    (job.folder / "project" / "envkit.lock").unlink()
    done = job.envkit("sbom", "--no-licenses")
    assert done.returncode == 2 and "there is no lock for" in done.stderr and done.stdout == ""


def test_what_a_new_lock_moves_is_listed() -> None:
    def of(**pins: str) -> Lock:
        return replace(LOCK, wheels=tuple(Pin(name, version, "", "") for name, version in pins.items()))

    assert list(packages._moved(of(b="1", c="1", d="1"), of(a="1", b="1", c="2"))) == ["+ a 1", "~ c 1 -> 2", "- d 1"]
