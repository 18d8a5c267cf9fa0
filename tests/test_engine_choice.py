"""Which engine is taken where nobody names one, and why that is said; which has an ability."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from fake_docker import FakeDocker

from envkit.cli.options import ENGINES as OFFERED
from envkit.cli.options import IMAGE_ENGINES, LOCK_ENGINES
from envkit.engine import Ability, choice, needs
from envkit.engine.choice import _MADE, ENGINES, connect, with_ability
from envkit.engine.local import LocalEngine
from envkit.engine.podman import PodmanEngine
from envkit.errors import Undecided, UsageError


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Docker and Podman."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_engine_is_offered() -> None:
    assert OFFERED.words == ENGINES and set(IMAGE_ENGINES.words) < set(ENGINES)
    assert set(LOCK_ENGINES.words) - {"none"} == set(IMAGE_ENGINES.words)


def test_auto_takes_docker_where_it_answers(docker: FakeDocker) -> None:
    said: list[str] = []
    assert connect("auto", said.append).name == "docker"
    assert re.fullmatch(r"using docker, which answers \(unix://.*\)", said[-1])


def test_auto_ends_at_a_virtual_environment_and_says_all_reasons(nothing: None) -> None:
    said: list[str] = []
    assert connect("auto", said.append).name == "local"
    (line,) = said
    assert re.search(r"no docker engine answers: .*; there is no podman on PATH; going on with a private .*local", line)


@pytest.mark.parametrize("name", ["docker", "podman", "charliecloud", "apptainer"])
def test_an_engine_that_is_asked_for_and_not_there_is_no_other_one(nothing: None, name: str) -> None:
    with pytest.raises(Undecided, match=name if name != "charliecloud" else "ch-run"):
        connect(name, lambda line: None)


def test_the_ability_that_none_has_is_told_with_the_first_reason(nothing: None) -> None:
    with pytest.raises(Undecided, match="no docker engine answers"):
        with_ability(Ability.DIGEST, lambda line: None)


def test_an_engine_that_lacks_an_ability_is_refused_before_any_work(tmp_path: Path) -> None:
    local = LocalEngine(tmp_path)
    needs(local, Ability.BUILD)
    with pytest.raises(UsageError, match="the local engine cannot run a command under `envkit debug`") as caught:
        needs(local, Ability.FOLLOW)
    assert caught.value.fix == "use --engine docker or --engine podman"
    for call in (lambda: local.digest("debian:12"), lambda: local.follow("a", [], mounts={}, timeout_s=1, say=print)):
        with pytest.raises(UsageError, match="the local engine cannot"):
            call()


@pytest.mark.engine
def test_auto_takes_podman_where_no_docker_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("podman") is None:
        if os.environ.get("ENVKIT_REQUIRE_ENGINE") == "1":
            pytest.fail("ENVKIT_REQUIRE_ENGINE=1 and there is no podman")
        pytest.skip("there is no podman")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    said: list[str] = []
    made = connect("auto", said.append)
    assert isinstance(made, PodmanEngine)
    assert re.fullmatch(r"no docker engine answers: .*; using podman \d.*", said[-1])
    assert with_ability(Ability.DIGEST, said.append).name == "podman"
    assert set(_MADE) == set(ENGINES) - {"auto"}


def test_an_ability_is_looked_for_past_engines_that_do_not_answer_or_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        where = "here"

        def __init__(self, name: str, *abilities: Ability) -> None:
            self.name, self.abilities = name, frozenset(abilities)

    def silent() -> Engine:
        raise Undecided("docker does not answer", "start it")

    able, said = Engine("third", Ability.PUSH), list[str]()
    monkeypatch.setattr(choice, "_MADE", {"first": silent, "second": lambda: Engine("second"), "third": lambda: able})
    assert with_ability(Ability.PUSH, said.append) is able
    assert said == ["docker does not answer; using third"]
    with pytest.raises(Undecided, match="docker does not answer"):
        with_ability(Ability.BUILD, said.append)
    monkeypatch.setattr(choice, "_MADE", {"second": lambda: Engine("second")})
    with pytest.raises(Undecided, match="no engine here can build an image"):
        with_ability(Ability.BUILD, said.append)
