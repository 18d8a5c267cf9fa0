"""Charliecloud, for real: a saved image runs as a child of envkit, and what it cannot do is refused with the reason."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import podman_scenario
import pytest
import small_image
from clocks import PATIENCE_S, comes

from envkit.engine import Ability, Bind, BuildRequest, CannotStart, JobRequest, needs
from envkit.engine.charliecloud import CharliecloudEngine
from envkit.errors import Undecided, UsageError
from envkit.plan import lockfile as locks
from envkit.plan.spec import load
from envkit.runner import runner

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[1]
STACK = ROOT / "images" / "torch-2.6-cu124"
USER = "envkit-rootless"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved image with a shell and a Python."""
    return small_image.write(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> CharliecloudEngine:
    try:
        return CharliecloudEngine(tmp_path_factory.mktemp("cache"))
    except Undecided as error:
        if os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
            pytest.fail(f"ENVKIT_REQUIRE_ENGINE=1 and {error.message}")
        pytest.skip(error.message)


def test_a_payload_runs_in_a_saved_image(cloud: CharliecloudEngine, saved: Path, tmp_path: Path) -> None:
    payload, said = podman_scenario.payload(tmp_path), list[str]()
    (tmp_path / "shown").write_text("shown")
    done = cloud.run(
        str(saved), ["a b"], payload=payload, env={"ENVKIT_TEST": "a $b"}, mounts={"/shown": tmp_path / "shown"},
        timeout_s=60, say=said.append,
    )  # fmt: skip
    seen = json.loads(done.stdout)
    assert done.exit == 7 and said[-1] == "said" and seen["env"] == "a $b"
    assert seen["root"] == "Read-only file system" and seen["tmp"] == 0 and seen["uid"] == os.getuid()
    assert len(seen["networks"]) >= 1 and "the machine's network" in cloud.where, "what it does not fence off is said"


def test_each_end_is_told(cloud: CharliecloudEngine, saved: Path, tmp_path: Path) -> None:
    payload, image = podman_scenario.payload(tmp_path), str(saved)

    def run(*argv: str, **more: Any) -> object:
        return cloud.run(image, argv, payload=payload, timeout_s=60, say=podman_scenario.quiet, **more)

    assert cloud.run(image, ["die"], payload=payload, timeout_s=60, say=podman_scenario.quiet).exit == -11
    assert cloud.run(image, ["wait"], payload=payload, timeout_s=2, say=podman_scenario.quiet).timed_out
    with pytest.raises(CannotStart, match="could not start no-such-program: no-such-program: No such file"):
        run(start=lambda own: ["no-such-program", *own])
    with pytest.raises(UsageError, match=r"there is no .*/gone"):
        run(mounts={"/m": tmp_path / "gone"})
    with pytest.raises(UsageError, match=r"there is no file or folder none\.tar"):
        cloud.run("none.tar", [], payload=payload, timeout_s=60, say=podman_scenario.quiet)


def test_gpus_are_for_an_image_that_has_the_drivers_libraries(
    cloud: CharliecloudEngine, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(Undecided, match="gives an image no driver's libraries") as caught:
        cloud.job_line(JobRequest(str(saved), ("true",), ("all",)))
    assert "ch-fromhost" in caught.value.fix
    prepared = cloud.job_line(JobRequest(str(tmp_path), ("true",), ("1",))).argv
    assert "--set-env=CUDA_VISIBLE_DEVICES=1" in prepared and str(tmp_path) in prepared


def test_what_it_cannot_do_is_refused(cloud: CharliecloudEngine, saved: Path, tmp_path: Path) -> None:
    for ability in Ability:
        if ability is Ability.LAYERS:
            needs(cloud, ability)
            continue
        with pytest.raises(UsageError, match=f"the charliecloud engine cannot {ability.value}"):
            needs(cloud, ability)
    with pytest.raises(UsageError, match="cannot build an image") as caught:
        cloud.build(BuildRequest(tmp_path, "a:1", 1), podman_scenario.quiet)
    assert "podman save" in caught.value.fix
    with pytest.raises(UsageError, match=r"cannot mount .* read-only"):
        cloud.job_line(JobRequest(str(saved), ("true",), binds=(Bind(str(tmp_path), "/data", writable=False),)))


def test_a_saved_image_is_known_by_what_it_says(cloud: CharliecloudEngine, saved: Path) -> None:
    assert cloud.labels(str(saved)) == {"io.envkit.test": "small"} and len(cloud.layers(str(saved))) == 1
    stored = cloud.stored(str(saved))
    assert stored.id.startswith("sha256:") and stored.size > 1 << 20
    assert cloud.file(str(saved), "/bin/sh")[:4] == b"\x7fELF"


def test_the_printed_line_is_an_ordinary_users(saved: Path) -> None:
    try:
        account = pwd.getpwnam(USER)
    except KeyError:
        if os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
            pytest.fail(f"ENVKIT_REQUIRE_ENGINE=1 and there is no user {USER} (scripts/engine makes him)")
        pytest.skip(f"there is no user {USER}")
    if os.geteuid() != 0 or shutil.which("ch-run") is None:
        pytest.skip("only root may be another user, with ch-run")
    own = Path(account.pw_dir) / "envkit-cloud"
    try:
        own.mkdir(exist_ok=True)
        (own / "work").mkdir(exist_ok=True)
        os.chown(own / "work", account.pw_uid, account.pw_gid)
        request = JobRequest(
            str(saved), ("sh", "-c", 'echo "$EPOCHS"; touch made; id -u; exit 5'), env={"EPOCHS": "3 $4"},
            binds=(Bind(str(own / "work"), "/workspace"),), workdir="/workspace",
        )  # fmt: skip
        line = shlex.join(CharliecloudEngine(own / "cache").job_line(request).argv)
        words = ["runuser", "-u", USER, "--", "env", f"USER={USER}", "sh", "-c", line]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
        assert (done.returncode, done.stdout) == (5, f"3 $4\n{account.pw_uid}\n"), done.stderr
        assert (own / "work" / "made").stat().st_uid == account.pw_uid
    finally:
        shutil.rmtree(own, ignore_errors=True)


class Project:
    """A folder with a spec, and a saved image that is that of its lock by its labels."""

    def __init__(self, folder: Path, saved: Path) -> None:
        self.folder, self.saved = folder, saved

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`envkit run` with Charliecloud there."""
        line = [sys.executable, "-m", "envkit", "run", str(self.folder), "--engine", "charliecloud", "--gpus", "none"]
        line += ["--tag", str(self.saved), "--no-preflight", "--no-explain", *words]
        home = {"XDG_CACHE_HOME": str(self.folder.parent / "cache"), "HOME": str(self.folder.parent)}
        return subprocess.run(
            line, capture_output=True, text=True, cwd=self.folder, env={**os.environ, **home}, timeout=PATIENCE_S,
            check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def project(cloud: CharliecloudEngine, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project") / "here"
    folder.mkdir()
    for name in ("envkit.toml", "envkit.lock"):
        shutil.copy(STACK / name, folder / name)
    lock = locks.load(load(folder))
    assert lock is not None
    labels = {runner.LOCK_LABEL: locks.dump(lock), runner.FLAVOR_LABEL: lock.flavor}
    return Project(folder, small_image.write(tmp_path_factory.mktemp("locked"), labels))


@pytest.mark.parametrize("code", [0, 1, 126, 127, 137])
def test_run_ends_as_its_command(project: Project, code: int) -> None:
    done = project.run("--", "sh", "-c", f"cat envkit.toml >/dev/null && pwd && touch $HOME/kept; exit {code}")
    assert (done.returncode, done.stdout) == (code, "/workspace\n"), done.stderr


def test_run_refuses_what_it_could_only_drop(project: Project, saved: Path) -> None:
    done = project.run("--memory", "1g", "--", "true")
    assert done.returncode == 2 and "--memory is about a container, and --engine charliecloud has none" in done.stderr
    other = Project(project.folder, saved).run("--", "true")
    assert other.returncode == 0 and "does not say which lock it is of" in other.stderr


def test_the_printed_line_does_the_same(project: Project) -> None:
    printed = project.run("--print", "--env", "EPOCHS=3", "--", "sh", "-c", 'echo "$EPOCHS"; exit 5')
    assert printed.returncode == 0 and printed.stdout.startswith("ch-run --private-tmp "), printed.stderr
    user = {**os.environ, "USER": "root"}  # as every login sets it
    pasted = subprocess.run(printed.stdout, shell=True, capture_output=True, text=True, env=user, check=False)
    assert (pasted.returncode, pasted.stdout) == (5, "3\n"), pasted.stderr


def test_no_process_outlives_envkit(cloud: CharliecloudEngine, saved: Path, tmp_path: Path) -> None:
    cloud.labels(str(saved))
    podman_scenario.payload(tmp_path)
    script = f"""
import sys; sys.path.insert(0, {str(ROOT / "tests")!r})
from pathlib import Path; from envkit.engine.charliecloud import CharliecloudEngine
engine = CharliecloudEngine(Path({str(tmp_path / "cache")!r}))
engine.run({str(saved)!r}, ["wait"], payload=Path({str(tmp_path / "look.pyz")!r}).read_bytes(), timeout_s=600,
           env={{"ENVKIT_TEST": "{tmp_path.name}"}}, say=print)
"""

    def payloads() -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"ENVKIT_TEST={tmp_path.name}" in (process / "environ").read_text(errors="replace"):
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as envkit:
        try:
            assert comes(payloads, 0.1)
            envkit.send_signal(signal.SIGKILL)
            assert comes(lambda: not payloads(), 0.1)
        finally:
            envkit.kill()
