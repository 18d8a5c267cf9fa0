"""Podman as root and as an ordinary user, for real: the same conversation with both, and what is left after a kill."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import podman_scenario
import pytest
import small_image
from clocks import PATIENCE_S, comes
from registries import registry

from envkit.engine import Ability, BaseRequest, BuildRequest
from envkit.engine.choice import connect
from envkit.engine.docker import DockerEngine
from envkit.engine.held import RUN_LABEL
from envkit.engine.podman import PodmanEngine
from envkit.errors import Undecided, UsageError
from envkit.image.tree import open_tree
from envkit.system.files import cache_dir

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[1]
SCENARIO = "podman_scenario.py"
USER = "envkit-rootless"  # made by scripts/engine


def missing(reason: str) -> None:
    if os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
        pytest.fail(f"ENVKIT_REQUIRE_ENGINE=1 and {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved image with a shell and a Python."""
    return small_image.write(tmp_path_factory.mktemp("podman"))


class Way(NamedTuple):
    """A user of podman: the command line before a program of that user's, a folder that is his, and where he finds the
    saved image and the scenario."""

    prefix: tuple[str, ...]
    folder: Path
    rootless: bool
    saved: Path
    script: Path

    def python(self, *words: str) -> list[str]:
        """This repository's code under a Python that this user may start."""
        if not self.rootless:
            return [sys.executable, *words]
        return [*self.prefix, "/usr/bin/python3", *words]

    def containers(self, envkit: int, status: str = "") -> list[str]:
        """Those of this user that the process ``envkit`` started."""
        line = [*self.prefix, "podman", "--log-level=error", "ps", "--all", "--format", "{{.ID}} {{.Labels}}"]
        line += ["--filter", f"status={status}"] if status else []
        told = subprocess.run(line, capture_output=True, text=True, check=True, cwd="/", timeout=PATIENCE_S).stdout
        return [row for row in told.splitlines() if re.search(rf"{RUN_LABEL}:[0-9a-f]+-{envkit}\b", row)]

    def envkits(self) -> list[int]:
        """The processes of Python that run the scenario, but for what only starts one."""
        found = {int(path.name): _words(path) for path in Path("/proc").glob("[0-9]*")}
        return [number for number, words in found.items() if words[1:2] == [str(self.script)]]


def _words(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


@pytest.fixture(scope="module", params=["root", "rootless"])
def way(request: pytest.FixtureRequest, saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    if shutil.which("podman") is None:
        missing("there is no podman (scripts/engine installs it)")
    if os.geteuid() != 0:
        missing("only root may be root and another user")
    if request.param == "root":
        yield Way((), tmp_path_factory.mktemp("root"), False, saved, ROOT / "tests" / SCENARIO)
        return
    try:
        account = pwd.getpwnam(USER)
    except KeyError:
        missing(f"there is no user {USER} (scripts/engine makes him)")
    own, version = Path(account.pw_dir) / "envkit-test", f"{sys.version_info.major}.{sys.version_info.minor}"
    told = subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True, check=False).stdout
    if version not in told:
        missing(f"{USER} has no Python {version}: {told.strip() or 'none'}")
    shutil.rmtree(own, ignore_errors=True)
    # The code goes along: he may not enter the folders in which a person's clone lies.
    shutil.copytree(ROOT / "envkit", own / "code" / "envkit", ignore=shutil.ignore_patterns("__pycache__", "data"))
    shutil.copytree(ROOT / "templates", own / "code" / "templates")
    shutil.copy(ROOT / "tests" / SCENARIO, own / "code" / SCENARIO)
    shutil.copy(saved, own / "small.tar")
    (own / "run").mkdir(mode=0o700)
    (own / "work").mkdir()
    for path in [own, *own.rglob("*")]:
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    environment = [
        f"HOME={account.pw_dir}", f"USER={USER}", f"PATH={os.environ['PATH']}", f"XDG_RUNTIME_DIR={own}/run",
        f"PYTHONPATH={own}/code:{sysconfig.get_path('purelib')}", "PYTHONDONTWRITEBYTECODE=1",
    ]  # fmt: skip
    prefix = ("runuser", "-u", USER, "--", "env", "-i", f"--chdir={own}", *environment)
    yield Way(prefix, own / "work", True, own / "small.tar", own / "code" / SCENARIO)
    shutil.rmtree(own, ignore_errors=True)


@pytest.fixture(scope="module")
def told(way: Way) -> dict[str, Any]:
    """What came of the whole conversation."""
    line = way.python(str(way.script), str(way.saved), str(way.folder))
    done = subprocess.run(line, capture_output=True, text=True, timeout=900, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_it_says_who_it_is(way: Way, told: dict[str, Any]) -> None:
    assert told["rootless"] is way.rootless
    assert told["where"].startswith(f"podman {told['version']}") and ("rootless" in told["where"]) is way.rootless


def test_a_dockerfile_of_envkits_own_form_is_built(told: dict[str, Any]) -> None:
    assert told["made"] == "one\napart\ngiven\n"
    assert told["labels"].items() >= {"by": "test", "io.envkit.test": "built"}.items()
    assert told["entry"] == ["env"] and told["layers"] == 3


def test_a_step_is_kept_until_what_it_mounts_changes(told: dict[str, Any]) -> None:
    assert told["again"] is True
    assert told["changed"] == [True, "two\napart\n"]  # though each step of what it mounts came from the cache


def test_a_run_is_fenced_in(told: dict[str, Any], way: Way) -> None:
    run = told["run"]
    seen = run["seen"]
    assert (run["exit"], run["stderr"]) == (7, "said\n")
    assert seen["networks"] == ["lo"] and set(seen["capabilities"]) == {"0"} and seen["privileges"] == "1"
    assert seen["seccomp"] == "2" and seen["root"] == seen["payload"] == "Read-only file system"
    assert seen["tmp"] == 0 and seen["core"] == ("0" if way.rootless else "1")
    assert (seen["volume"], seen["held"]) == ("written", "held"), "a VOLUME is in memory, with what the image has there"
    assert (seen["uid"], seen["env"], seen["given"]) == (1234, "a b", [])
    limit = "4096" if "4096" in (seen["pids"], seen["pids2"]) else seen["nproc"]
    assert limit == "4096" and ("no limit of" in told["where"]) is (seen["nproc"] == "4096")
    placed = told["placed"]
    assert (placed["uid"], placed["env"], placed["folder"]) == (0, "other", "/tmp")


def test_each_end_is_told(told: dict[str, Any]) -> None:
    assert told["died"] == -11 and told["cut"] == [True, True]
    assert told["missing program"].startswith("CannotStart: ") and "no-such-program" in told["missing program"]
    assert told["missing image"].startswith("UsageError: podman has no image envkit-test-none:1 ")
    assert told["missing mount"].startswith("UsageError: there is no ")
    assert told["missing gpu"].startswith("Undecided: podman cannot give the container these GPUs: ")


def test_a_jobs_exit_code_is_its_own(told: dict[str, Any]) -> None:
    assert told["codes"] == {code: [int(code), "", ""] for code in ("0", "125", "126", "127", "137")}
    assert told["line"][:2] == ["podman", "run"] and told["pasted"] == 5
    assert len(told["network"]) == 2, "a job has a network"


def test_nothing_is_left(told: dict[str, Any]) -> None:
    assert (told["seen"], told["left"]) == (1, [])


def test_the_store_is_read_where_it_can_be(told: dict[str, Any], way: Way) -> None:
    """Root's overlay store is read in its place; that of a user, whose owners are sub-ids, is saved."""
    assert told["stored"] == [True, True, 0 if way.rootless else 3]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_container_outlives_envkit(told: dict[str, Any], way: Way, number: signal.Signals) -> None:
    assert told["left"] == []
    line = way.python(str(way.script), str(way.saved), str(way.folder), small_image.REF)
    with subprocess.Popen(line, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            assert comes(lambda: way.envkits())
            (envkit,) = way.envkits()
            assert comes(lambda: way.containers(envkit, "running"), 0.5)
            os.kill(envkit, number)
            assert comes(lambda: not way.containers(envkit), 0.5)
        finally:
            process.kill()


# -- as root alone


@pytest.fixture(scope="module")
def podman() -> PodmanEngine:
    try:
        return PodmanEngine(cache_dir())
    except Undecided as error:
        missing(error.message)
        raise


@pytest.fixture(scope="module")
def small(podman: PodmanEngine, saved: Path) -> str:
    """The small image in this user's store."""
    return podman.load(saved, BaseRequest(small_image.REF)).ref


@contextmanager
def devices(path: str) -> Iterator[None]:
    """A description of GPU 99 for CDI (CDI specification 0.5.0), whose device is no device."""
    folder = Path("/etc/cdi")
    if os.geteuid() != 0:
        missing("only root may describe a device")
    folder.mkdir(exist_ok=True)
    file = folder / "envkit-test.json"
    edits: dict[str, Any] = {"env": ["ENVKIT_TEST=1"]}
    if path:
        edits["deviceNodes"] = [{"path": path, "hostPath": "/dev/null"}]
    device = {"name": "99", "containerEdits": edits}
    file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]}))
    try:
        yield
    finally:
        file.unlink()


def job(podman: PodmanEngine, image: str) -> tuple[str, str]:
    """What a job with GPU 99 sees of it, and the doubt about it."""
    seen: list[str] = []

    def attend(line: Any) -> int:
        done = subprocess.run(line.argv, capture_output=True, text=True, check=False)
        seen.append(done.stdout)
        return done.returncode

    request = podman_scenario.JobRequest(image, ("sh", "-c", "ls /dev"), ("99",))
    return seen[0] if (end := podman.attend(request, attend)) and seen else "", end.doubt


@pytest.mark.parametrize(("driver", "warned"), [("vfs", True), ("overlay", False)])
def test_a_store_that_copies_the_image_for_each_step_is_said(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, warned: bool
) -> None:
    settings = tmp_path / "storage.conf"
    settings.write_text(f'[storage]\ndriver = "{driver}"\ngraphroot = "{tmp_path}/g"\nrunroot = "{tmp_path}/r"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(settings))
    (context := tmp_path / "context").mkdir()
    (context / "Dockerfile").write_text(f"FROM {small_image.REF}\n")
    said: list[str] = []
    try:
        own = PodmanEngine(tmp_path)
        own.load(saved, BaseRequest(small_image.REF))
        own.build(BuildRequest(context, "envkit-test/copies:1", 60), said.append)
    except Undecided as error:
        missing(error.message)
        raise
    finally:
        subprocess.run(["podman", "rmi", "--all", "--force"], capture_output=True, check=False)  # of this store alone
        subprocess.run(["umount", f"{tmp_path}/g/{driver}"], capture_output=True, check=False)
    assert any("has the driver vfs, which copies the whole image" in line for line in said) == warned


def test_a_gpu_is_given_by_podmans_own_way_and_arrives(podman: PodmanEngine, small: str, tmp_path: Path) -> None:
    payload = podman_scenario.payload(tmp_path)
    with devices("/dev/nvidia99"):
        done = podman.run(small, [], payload=payload, gpus=("99",), timeout_s=60, say=podman_scenario.quiet)
        assert json.loads(done.stdout)["given"] == ["nvidia99"]
        listed, doubt = job(podman, small)
    assert "nvidia99" in listed and doubt == ""


def test_a_gpu_that_podman_gives_no_device_of_is_in_doubt(podman: PodmanEngine, small: str) -> None:
    with devices(""):
        listed, doubt = job(podman, small)
    assert "nvidia99" not in listed and doubt.startswith("podman lists no GPU among the devices")


def listens(path: Path) -> bool:
    """Whether somebody answers at this socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0


def test_a_docker_api_that_drops_the_request_for_gpus_is_found_out(
    podman: PodmanEngine, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tuple(map(int, podman.version.split(".")[:2])) >= (5, 4):
        pytest.skip(f"the Docker API of podman {podman.version} gives what it is asked for")
    address = f"unix://{tmp_path}/podman.sock"
    line = ["podman", "--log-level=error", "system", "service", "--time=0", address]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as service, devices("/dev/nvidia99"):
        try:
            assert comes(lambda: listens(tmp_path / "podman.sock"))
            monkeypatch.setenv("DOCKER_HOST", address)
            docker = DockerEngine(cache_dir())
            said: list[str] = []
            assert docker.is_podman and connect("auto", said.append).name == "podman"
            assert "is Podman; using podman" in said[-1]
            payload = podman_scenario.payload(tmp_path)
            for _ in range(20):
                with pytest.raises(Undecided) as caught:
                    docker.run(small, [], payload=payload, gpus=("99",), timeout_s=60, say=podman_scenario.quiet)
                if "bulk input" not in str(caught.value):  # podman's own copier may end before it has read all
                    break
            assert "took the request for GPUs and dropped it" in str(caught.value)
            assert "--engine podman" in caught.value.fix
        finally:
            service.terminate()


def test_an_image_is_audited_in_podmans_own_store(podman: PodmanEngine, small: str, saved: Path) -> None:
    if podman.rootless:
        missing("the store of an ordinary user is not read in its place")
    said: list[str] = []
    with (
        open_tree(small, lambda: podman, said.append) as here,
        open_tree(str(saved), lambda: podman, said.append) as file,
    ):
        assert not [line for line in said if "saving" in line]
        assert here.digest == file.digest and here.layers == file.layers
        assert {path: (one.kind, one.size, one.mode, one.link) for path, one in here.entries.items()} == {
            path: (one.kind, one.size, one.mode, one.link) for path, one in file.entries.items()
        }
        assert bytes(here.data("/usr/bin/python3"))[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            "RUN echo before; echo out; exit 3",
            r"the step \[2/2\] RUN echo before; .* ended with exit code 3\n```\n.*out",
        ),
        (
            "RUN echo 'x509: certificate signed by unknown authority' >&2; exit 1",
            "a server's certificate was not trusted",
        ),
        ("COPY nothing /", "nothing"),
    ],
)
def test_a_build_that_fails_says_why_and_names_no_image(
    podman: PodmanEngine, small: str, tmp_path: Path, lines: str, why: str
) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {small}\n{lines}\n")
    with pytest.raises(Undecided, match=f"(?s){why}"):
        podman.build(BuildRequest(tmp_path, "envkit-test-none:2", 300), podman_scenario.quiet)
    assert subprocess.run(["podman", "image", "exists", "envkit-test-none:2"], check=False).returncode == 1


def test_a_stage_is_replaced_by_a_folder_and_no_step_has_a_network(
    podman: PodmanEngine, small: str, tmp_path: Path
) -> None:
    context, folder = tmp_path / "context", tmp_path / "folder"
    context.mkdir()
    folder.mkdir()
    (folder / "words").write_text("from the folder")
    (context / "Dockerfile").write_text(
        f"FROM scratch AS given\nCOPY not-there /\nFROM {small}\n"
        "RUN --mount=type=bind,from=given,target=/given cat /given/words > /made && ls /sys/class/net >> /made\n"
    )
    name = "envkit-test-podman:replaced"
    try:
        podman.build(BuildRequest(context, name, 300, contexts={"given": folder}, offline=True), podman_scenario.quiet)
        assert podman.file(name, "/made").decode() == "from the folderlo\n"
    finally:
        podman.remove(name)


def test_what_is_compiled_is_fenced_in_and_comes_back(podman: PodmanEngine, small: str, tmp_path: Path) -> None:
    import tarfile

    (tmp_path / "source").write_text("source")
    with tarfile.open(tmp_path / "given.tar", "w") as archive:
        archive.add(tmp_path / "source", "source")
    command = ["sh", "-c", "mkdir out; cat source > out/made; ls /sys/class/net >> out/made; touch /no || exit 9"]
    done = podman.compile(
        small, command, tmp_path / "given.tar", tmp_path / "made.tar", timeout_s=60, say=podman_scenario.quiet
    )
    assert done.exit == 9
    with tarfile.open(tmp_path / "made.tar") as archive:
        made = archive.extractfile("out/made")
        assert made is not None and made.read() == b"sourcelo\n"


def test_an_image_is_pushed_and_one_that_may_not_be_is_refused(
    podman: PodmanEngine, small: str, tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "shut").mkdir()
    with registry(tmp_path / "open") as held:
        digest = podman.push(small, f"{held.host}/team/small:1", podman_scenario.quiet)
        assert digest.startswith("sha256:") and held.manifests() == ["1"]
        path = "docker/registry/v2/repositories/team/small/_manifests/revisions/sha256"
        assert (held.root / path / digest.removeprefix("sha256:")).is_dir()
    with (
        registry(tmp_path / "shut", auth=True) as held,
        pytest.raises(UsageError, match=r"does not take .* from this user") as caught,
    ):
        podman.push(small, f"{held.host}/team/small:1", podman_scenario.quiet)
    assert caught.value.fix == "podman login"


def test_a_job_under_debug_runs_in_podman(podman: PodmanEngine, small: str, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "envkit", "debug", "--engine", "podman", "--image", small, "--gpus", "none",
            "--out", str(tmp_path / "out"), "--format", "json", "--", "sh", "-c", "exit 41"]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "41" in done.stdout and done.returncode in (1, 3), done.stderr


@pytest.mark.nightly  # two builds without a cache
def test_two_builds_without_a_cache_have_the_same_layers(podman: PodmanEngine, small: str, tmp_path: Path) -> None:
    """Also the folders that podman mounts a step's own files in, whose time is else that of the build."""
    (tmp_path / "Dockerfile").write_text(podman_scenario.DOCKERFILE.replace("WORD", "same"))
    args = {"BASE": small, "SOURCE_DATE_EPOCH": "1700000000"}
    names = [f"envkit-test-podman:same-{number}-{os.getpid()}" for number in (1, 2)]
    try:
        for name in names:
            podman.build(BuildRequest(tmp_path, name, 300, args=args, no_cache=True), podman_scenario.quiet)
        first, second = (podman.layers(name) for name in names)
        assert first == second and len(first) > 2
        assert Ability.SAME_ID not in podman.abilities
        assert podman.declared(names[0]) == podman.declared(names[1])
    finally:
        for name in names:
            podman.remove(name)
