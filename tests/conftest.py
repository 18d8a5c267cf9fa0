"""Shared fixtures: a real Docker engine, a small base image with Python in it, and a package index."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from buildcache import drop_cache
from fake_docker import FakeDocker
from fuzzed import USUAL
from index import Index, Publish, asked_by_uv, publish

from envkit.engine import BaseRequest, ResolvedBase
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided

# A background job of a shell has it ignored, and so would everything that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's matter; tests of time say so themselves.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=USUAL)
hypothesis.settings.load_profile("untimed")


def cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envkit"


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    """A real engine; without one the test is skipped, or fails where ENVKIT_REQUIRE_ENGINE=1 says that one must be."""
    try:
        return DockerEngine(cache_home())
    except Undecided as error:
        if os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
            pytest.fail(f"ENVKIT_REQUIRE_ENGINE=1 and {error.message}")
        pytest.skip(error.message)


ROOM = 26  # GB: 22 were seen to go, for an image, the same once more, its wheels and the builds' cache; and some air


@pytest.fixture(scope="session")
def room(engine: DockerEngine) -> None:
    """Fails at once where the tests that build torch would fill the disk an hour later."""
    script = Path(__file__).parent.parent / "scripts" / "room"
    told = subprocess.run([script], capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    if told and int(told) < ROOM:
        pytest.fail(
            f"the engine tests that build torch need {ROOM} GB free: the engine's disk has {told}", pytrace=False
        )


@pytest.fixture(scope="module", autouse=True)
def no_cache_of_a_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module's images go before this does: only then is their cache nobody's."""
    yield
    if any(mark.name == "engine" for mark in request.node.iter_markers()):
        drop_cache()


@pytest.fixture(scope="session")
def python_base(engine: DockerEngine) -> Iterator[ResolvedBase]:
    """Debian with its own python3, made from packages once a day and then kept in envkit's cache."""
    wish = BaseRequest("envkit-test-base:none", "bookworm", "", ("ca-certificates", "python3"), 1700000000)
    said: list[str] = []
    base = engine.resolve_base(wish, said.append)
    fresh = any(line.startswith("loading ") for line in said)
    yield base
    if fresh:
        engine.remove(base.ref)


@pytest.fixture
def tag(engine: DockerEngine) -> Iterator[str]:
    """A name for an image, taken away again."""
    name = f"envkit-test:{uuid.uuid4().hex[:12]}"
    yield name
    engine.remove(name)


@pytest.fixture(scope="session")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What uv has learned of the Pythons here, for the caches of all tests: it starts each one to learn it."""
    return tmp_path_factory.mktemp("pythons")


@pytest.fixture
def index(tmp_path: Path, pythons: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An empty index that uv asks in place of any other."""
    shutil.copytree(pythons, tmp_path / "cache")
    made = Index()
    made.folder = tmp_path / "wheels"
    made.folder.mkdir()
    asked_by_uv(made, tmp_path / "cache", monkeypatch)
    yield made
    made.server.shutdown()
    made.server.server_close()
    for learned in (tmp_path / "cache").glob("interpreter-*"):
        if not (pythons / learned.name).exists():
            shutil.copytree(learned, pythons / learned.name)


@pytest.fixture
def published(index: Index) -> Publish:
    """``index.publish`` over this test's own index."""
    return partial(publish, index)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDocker]:
    """An engine that this test plays, in the place of any other."""
    made = FakeDocker(tmp_path / "docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{made.folder}/s")
    monkeypatch.setenv("PATH", f"{made.folder}/bin:{os.environ['PATH']}")
    yield made
    made.close()


@pytest.fixture
def no_mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apt-get that knows no Debian mirror, and caches of this test's own."""
    (tmp_path / "apt.conf").write_text('Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "/dev/null";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
