"""A Docker engine that dies while a command runs in it: one sentence, an exit code that is not the command's, and
nothing left once the engine is back.  With a dockerd of the test's own, which is really killed and started again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from clocks import PATIENCE_S, comes

from envkit.engine import BuildRequest
from envkit.engine.docker import DockerEngine
from envkit.plan import lockfile as locks
from envkit.plan.spec import load
from envkit.plan.update import suite_wish
from envkit.runner import runner

pytestmark = [pytest.mark.engine, pytest.mark.nightly]  # an image of 300 MB goes from one engine to the other
STACK = Path(__file__).resolve().parents[1] / "images" / "torch-2.6-cu124"
TAG = "envkit-test/dead:1"
WAITS = "import time\nopen('ready', 'w').close()\ntime.sleep(600)\n"


class Dockerd:
    """A dockerd in a network of its own, below ``root``, whose path is short, as a socket's must be."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"unix://{root}/s"

    def docker(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["docker", "--host", self.url, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def start(self) -> None:
        (self.root / "pid").unlink(missing_ok=True)
        (self.root / "c.json").write_text("{}")
        # In a network of its own: with --bridge none a dockerd deletes docker0, which is the other engine's.
        argv = ["unshare", "--net", "dockerd", "--data-root", f"{self.root}/d", "--exec-root", f"{self.root}/x",
                "--pidfile", f"{self.root}/pid", "--host", self.url, "--config-file", f"{self.root}/c.json",
                "--bridge", "none", "--iptables=false", "--ip6tables=false"]  # fmt: skip
        environ = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environ)
        up = comes(lambda: self.docker("version").returncode == 0 or self.process.poll() is not None)
        assert up and self.process.poll() is None, (self.root / "log").read_text()[-2000:]

    def die(self, number: signal.Signals) -> None:
        self.process.send_signal(number)  # unshare became dockerd
        self.process.wait(PATIENCE_S)

    def family(self) -> list[str]:
        """The command lines of this engine's processes, and of those that were told to ask it."""
        found = []
        for each in Path("/proc").iterdir():
            try:
                words = (each / "cmdline").read_bytes().decode().split("\0") if each.name.isdigit() else []
                inside = (each / "environ").read_bytes() if words[1:] else b""
            except OSError:  # it has ended
                continue
            if f"{self.root}/" in " ".join(words) or self.url.encode() in inside:
                found.append(" ".join(words))
        return found


@pytest.fixture
def dockerd(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Dockerd]:
    """An engine of this test's own with an image of Debian and Python, and a project of which that is the image."""
    lacks = (
        "dockerd is not installed" if not shutil.which("dockerd") else "a dockerd needs root" if os.geteuid() else ""
    )
    if lacks and os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
        pytest.fail(f"ENVKIT_REQUIRE_ENGINE=1 and {lacks}")
    if lacks:
        pytest.skip(lacks)
    base = engine.resolve_base(suite_wish("bookworm"), lambda line: None).ref
    made = Dockerd(Path(tempfile.mkdtemp(prefix="dk")))
    try:
        made.start()
        save = subprocess.Popen(["docker", "save", base], stdout=subprocess.PIPE)
        subprocess.run(["docker", "--host", made.url, "load"], stdin=save.stdout, check=True, capture_output=True)
        assert save.wait(PATIENCE_S) == 0
        for name in ("envkit.toml", "envkit.lock"):
            (tmp_path / name).write_bytes((STACK / name).read_bytes())
        (tmp_path / "waits.py").write_text(WAITS)
        lock = locks.load(load(tmp_path))
        assert lock is not None
        context = tmp_path / "context"
        context.mkdir()
        (context / "Dockerfile").write_text(f"FROM {base}\n")
        labels = {runner.LOCK_LABEL: locks.dump(lock), runner.FLAVOR_LABEL: lock.flavor}
        monkeypatch.setenv("DOCKER_HOST", made.url)
        DockerEngine(tmp_path / "cache").build(BuildRequest(context, TAG, 300, labels=labels), lambda line: None)
        yield made
    finally:
        monkeypatch.delenv("DOCKER_HOST", raising=False)
        if made.process.poll() is None:
            made.die(signal.SIGTERM)
        left = [] if comes(lambda: not made.family()) else made.family()
        for mounted in Path("/proc/mounts").read_text().splitlines():
            if (at := mounted.split()[1]).startswith(f"{made.root}/"):
                subprocess.run(["umount", at], check=False)
        shutil.rmtree(made.root, ignore_errors=True)
    assert not left
    assert not made.root.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_engine_that_dies_during_a_run(dockerd: Dockerd, tmp_path: Path, number: signal.Signals) -> None:
    words = ["run", str(tmp_path), "--tag", TAG, "--no-preflight", "--gpus", "none", "--network", "none"]
    environ = {**os.environ, "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home" / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", *words, "--", "python3", "waits.py"], cwd=tmp_path, env=environ, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert comes(lambda: (tmp_path / "ready").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    (name,) = dockerd.docker("ps", "--format", "{{.Names}}").stdout.split()
    dockerd.die(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, said
    assert "envkit: the docker engine went away while the command ran" in said
    assert "how the command ended is not known" in said and f"docker rm --force {name}" in said
    assert "is the command's own" not in said
    dockerd.start()
    assert comes(lambda: not dockerd.docker("ps", "--all", "--quiet").stdout)
    assert comes(lambda: not [line for line in dockerd.family() if "reaper.py" in line])


COMPILES = """
import sys
from pathlib import Path
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided
folder = Path(sys.argv[2])
engine = DockerEngine(folder / "cache")
words = ["python3", "-c", "import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(600)"]
try:
    engine.compile(
        sys.argv[1], words, folder / "given.tar", folder / "made", timeout_s=600,
        say=lambda line: print(line, flush=True),
    )
except Undecided as error:
    print("undecided:", error.message)
"""


def test_an_engine_that_dies_during_a_source_build(dockerd: Dockerd, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "given.tar", "w") as archive:
        archive.add(tmp_path / "waits.py", "waits.py")
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILES, TAG, str(tmp_path)], cwd=tmp_path, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "up\n", process.communicate()
    volumes = dockerd.docker("volume", "ls", "--quiet").stdout.split()
    assert volumes and dockerd.docker("ps", "--quiet").stdout
    dockerd.die(signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out.partition(":")[0]) == (0, "undecided"), (out, err)
    assert not (tmp_path / "made").exists()
    dockerd.start()
    assert comes(lambda: not dockerd.docker("ps", "--all", "--quiet").stdout)
    assert comes(lambda: not set(volumes) & set(dockerd.docker("volume", "ls", "--quiet").stdout.split()))
    assert comes(lambda: not [line for line in dockerd.family() if "reaper.py" in line])
