"""What the docker client is told, and what the SDK is asked, over an engine that the test plays."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_docker import FakeDocker
from test_prove import content_id, layer, quiet

from envkit.engine import BaseRequest, BuildRequest
from envkit.engine.docker import DockerEngine
from envkit.errors import Undecided, UsageError

ONE = (layer(os=b"debian"), layer(a=b"1"))


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    return folder


def told(docker: FakeDocker, request: BuildRequest) -> list[str]:
    """The words of the client for a build, without those that no two builds share."""
    docker.will_make(ONE)
    DockerEngine(docker.folder).build(request, quiet)
    own = ("--tag=envkit-draft:", "--iidfile=")
    return [word for word in docker.builds()[-1]["argv"] if not word.startswith(own)]


def test_a_plain_build_asks_for_no_more_than_it_needs(docker: FakeDocker, context: Path) -> None:
    assert told(docker, BuildRequest(context, "mine:1", 60)) == [
        "buildx", "build", "--progress=plain", "--provenance=false", "--load", "--builder=default", str(context),
    ]  # fmt: skip


def test_target_contexts_arguments_and_no_network(docker: FakeDocker, context: Path, tmp_path: Path) -> None:
    for name in ("vendor", "uv"):
        (tmp_path / name).mkdir()
    secret = tmp_path / "ca.crt"
    words = told(
        docker,
        BuildRequest(
            context, "mine:1", 60, target="devel", args={"B": "2", "A": "1 x"}, labels={"io.envkit.flavor": "devel"},
            secrets={"ca": secret}, contexts={"vendor": tmp_path / "vendor", "installer": tmp_path / "uv"},
            offline=True, no_cache=True,
        ),
    )  # fmt: skip
    assert words[6:] == [
        "--no-cache", "--network=none", "--target=devel", "--build-arg=A=1 x", "--build-arg=B=2",
        f"--build-context=installer={tmp_path}/uv", f"--build-context=vendor={tmp_path}/vendor",
        "--label=io.envkit.flavor=devel", f"--secret=id=ca,src={secret}", str(context),
    ]  # fmt: skip


def test_an_image_is_named_when_all_of_it_is_there(docker: FakeDocker, context: Path) -> None:
    docker.will_make(ONE)
    engine = DockerEngine(docker.folder)
    built = engine.build(BuildRequest(context, "mine:1", 60, labels={"a": "b=c"}), quiet)
    assert (built.id, built.tag, docker.names()) == (content_id(ONE), "mine:1", ["mine:1"])
    assert engine.labels("mine:1") == {"a": "b=c"}
    docker.will_make()
    with pytest.raises(Undecided, match="exit code 1"):
        engine.build(BuildRequest(context, "mine:2", 60), quiet)
    assert docker.names() == ["mine:1"]


LOW, HIGH = "#5 [cuda 1/2] RUN a", "#6 [runtime 1/1] RUN b"


@pytest.mark.parametrize(
    ("progress", "begun"),
    [
        ([LOW, "#5 DONE 7.1s", HIGH, "#6 DONE 2.0s"], True),
        ([LOW, "#5 CACHED", HIGH, "#6 DONE 2.0s"], False),
        ([LOW, HIGH, "#6 DONE 2.0s"], False),
    ],
)
def test_the_engine_takes_a_stage_in_while_the_next_one_runs(
    docker: FakeDocker, context: Path, progress: list[str], begun: bool
) -> None:
    docker.will_make(ONE)
    docker.will_say(*progress)
    request = BuildRequest(context, "mine:1", 60, target="runtime", ahead="cuda", labels={"a": "b"}, no_cache=True)
    DockerEngine(docker.folder).build(request, quiet)
    assert docker.names() == ["mine:1"]
    whole, *ahead = docker.builds()
    (tag,) = [word for word in whole["argv"] if word.startswith("--tag=")]
    other = {tag: f"{tag}-ahead", "--target=runtime": "--target=cuda"}
    expected = [other.get(word, word) for word in whole["argv"] if not word.startswith("--iidfile=")]
    assert [[word for word in one["argv"] if not word.startswith("--iidfile=")] for one in ahead] == [expected] * begun


def test_no_stage_is_taken_in_ahead_where_an_image_may_hold_the_same_layers(docker: FakeDocker, context: Path) -> None:
    docker.will_make(ONE)
    docker.will_say(LOW, "#5 DONE 7.1s", HIGH, "#6 DONE 2.0s")
    docker.holds("other:1", *ONE, labels={"b": "elsewhere"})
    for number, builds in ((1, 2), (2, 3)):  # the second finds what the first made
        request = BuildRequest(context, f"mine:{number}", 60, ahead="cuda", labels={"a": "1", "b": "2"}, no_cache=True)
        DockerEngine(docker.folder).build(request, quiet)
        assert len(docker.builds()) == builds


def test_what_was_taken_in_ahead_goes_with_a_build_that_fails(docker: FakeDocker, context: Path) -> None:
    docker.will_say(LOW, "#5 DONE 7.1s")
    with pytest.raises(Undecided, match="exit code 1"):
        DockerEngine(docker.folder).build(BuildRequest(context, "mine:1", 60, ahead="cuda", labels={"a": "b"}), quiet)
    assert len(docker.builds()) == 2 and docker.names() == []


GONE = "failed to prepare sha256:0a as k1: open /var/lib/docker/overlay2/b2/.tmp-committed3: no such file or directory"


@pytest.mark.parametrize(("error", "builds"), [(GONE, 2), ("failed to compute cache key: not found", 1)])
def test_a_layer_that_the_engine_took_away_is_made_again_once(
    docker: FakeDocker, context: Path, error: str, builds: int
) -> None:
    docker.will_say(LOW, f"#5 ERROR: {error}")
    said: list[str] = []
    with pytest.raises(Undecided):
        DockerEngine(docker.folder).build(BuildRequest(context, "mine:1", 60), lambda text: said.append(str(text)))
    assert len(docker.builds()) == builds
    assert sum("took away a layer" in line for line in said) == builds - 1


def test_layers_and_files_of_an_image_are_read(docker: FakeDocker, tmp_path: Path) -> None:
    docker.holds("mine:1", *ONE)
    docker.files["/var/lib/dpkg/status"] = b"Package: a\n"
    engine = DockerEngine(docker.folder)
    assert len(engine.layers("mine:1")) == 2
    assert engine.file("mine:1", "/var/lib/dpkg/status") == b"Package: a\n"
    engine.save("mine:1", tmp_path / "saved.tar")
    assert (tmp_path / "saved.tar").stat().st_size > 1000
    with pytest.raises(UsageError, match="has no file /none"):
        engine.file("mine:1", "/none")
    for ask in (
        lambda: engine.layers("none:1"),
        lambda: engine.file("none:1", "/x"),
        lambda: engine.save("none:1", tmp_path / "none.tar"),
        lambda: engine.labels("none:1"),
    ):
        with pytest.raises(UsageError, match="has no image none:1"):
            ask()


def test_a_base_is_taken_as_it_is_named_and_pinned(docker: FakeDocker) -> None:
    digest = "sha256:" + "d" * 64
    docker.holds("debian:12-slim", ONE[0], digest=digest)
    engine = DockerEngine(docker.folder)
    for wanted in ("", digest):
        found = engine.resolve_base(BaseRequest("debian:12-slim", digest=wanted), quiet)
        assert (found.ref, found.how, found.sha256) == ("debian:12-slim", "local", digest)
    with pytest.raises(Undecided, match="is not here and no registry serves it"):
        engine.resolve_base(BaseRequest("debian:12-slim", digest="sha256:" + "e" * 64), quiet)


def test_a_saved_base_is_loaded(docker: FakeDocker, tmp_path: Path) -> None:
    (tmp_path / "base.tar").write_bytes(b"an image")
    found = DockerEngine(docker.folder).load(tmp_path / "base.tar", BaseRequest("debian:12", "bookworm", "sha256:1"))
    assert (found.ref, found.how, found.sha256) == ("loaded:base", "vendored", "sha256:1")
