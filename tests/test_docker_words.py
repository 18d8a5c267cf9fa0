"""What a Docker Engine is asked, whole documents, and what comes of each of its answers; the engine is one that a test
plays on a socket, for the real SDK.

`test_engine_docker.py` has the same conversation with a real one.
"""

from __future__ import annotations

import errno
import io
import os
import re
import tarfile
import threading
import time
import uuid
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
from fake_docker import FakeDocker, Stream
from test_prove import layer

from envkit.engine import BaseRequest, Bind, CannotStart, DeclaredStart, JobRequest, docker_run, output, sdk
from envkit.engine import docker as engines
from envkit.engine.docker import DockerEngine
from envkit.engine.output import Output
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.system.proc import Completed

IMAGE = "job:1"
INFO = {
    "OSType": "linux", "Architecture": "x86_64", "MemTotal": 8 << 30, "DockerRootDir": "/nowhere", "DriverStatus": [],
    "Driver": "overlay2", "Name": "machine",
}  # fmt: skip
DIGEST = "sha256:" + "d" * 64


def quiet(line: str) -> None:
    """Takes a line of progress."""


def refused(kind: type[EnvkitError], work: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(kind) as caught:
        work()
    assert type(caught.value) is kind
    return caught.value.message, caught.value.fix


def made(docker: FakeDocker, tmp_path: Path, **more: Any) -> DockerEngine:
    docker.answers["GET /info"] = (200, {**INFO, **more})
    return DockerEngine(tmp_path)


@pytest.fixture
def engine(docker: FakeDocker, tmp_path: Path) -> DockerEngine:
    """With an image, and containers that end with 0 once they have written a line on each stream."""
    docker.holds(IMAGE, layer(a=b"a"), labels={"by": "me"})
    docker.writes = [(1, b"out\n"), (2, b"said\n")]
    docker.answers["POST /containers/c1/start"] = (204, b"")
    ends(docker, 0)
    return made(docker, tmp_path)


def ends(docker: FakeDocker, code: int) -> None:
    docker.answers["GET /events"] = (200, Stream([{"Actor": {"Attributes": {"exitCode": str(code)}}}]))


def own_volume(body: Any, container: str) -> dict[str, Any]:
    """The options of a run's own volume, which is marked with the container it is made for."""
    made = body["HostConfig"]["Mounts"][0]["VolumeOptions"]["Labels"]["io.envkit.container"]
    assert re.fullmatch(container, made)
    return {"Labels": {"io.envkit.run": "1", "io.envkit.container": made}}


def asked(docker: FakeDocker, method: str, path: str) -> list[Any]:
    return [body for one, at, body in docker.heard if (one, at) == (method, path)]


# -- what its errors mean


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            docker.errors.APIError("x", explanation="invalid reference format."),
            UsageError,
            "no image can have this name: invalid reference format",
        ),
        (
            docker.errors.APIError("x", explanation="bind source path does not exist: /a."),
            Undecided,
            "the docker engine does not see this machine's files: bind source path does not exist: /a",
        ),
        (docker.errors.APIError("x", explanation="odd. "), Undecided, "the docker engine refused: odd"),
        (docker.errors.APIError("plain"), Undecided, "the docker engine refused: plain"),
        (
            docker.errors.APIError("x", explanation="no space left on device"),
            Undecided,
            "the disk is full: no space left on device (the engine's store)",
        ),
        (OSError("Permission denied"), Undecided, "this user may not talk to the docker engine: Permission denied"),
        (OSError("gone"), Undecided, "no docker engine answers: gone"),
    ],
)
def test_an_error_of_the_sdk_is_sorted(error: Exception, kind: type[EnvkitError], message: str) -> None:
    found = sdk.engine_error(error)
    assert (type(found), found.message) == (kind, message)


def test_podman_in_dockers_place_is_known(docker: FakeDocker, engine: DockerEngine) -> None:
    for names, podman in ((None, False), (["Engine"], False), (["Engine", "Podman Engine"], True)):
        parts = None if names is None else [{"Name": name} for name in names]
        docker.answers["GET /version"] = (200, {"ApiVersion": "1.44", "Components": parts})
        assert engine.is_podman is podman


@pytest.mark.parametrize(("name", "elsewhere"), [("", False), (None, False), ("machine", True), ("own", False)])
def test_an_engine_of_another_machine_says_so(
    docker: FakeDocker, tmp_path: Path, name: str | None, elsewhere: bool
) -> None:
    said = os.uname().nodename if name == "own" else name
    assert made(docker, tmp_path, Name=said).elsewhere() is elsewhere


# -- bases


def pull(docker: FakeDocker, engine: DockerEngine, *events: dict[str, Any]) -> tuple[list[str], Any]:
    """What is said of a pull with these events, and the base or the error of it."""
    said: list[str] = []
    docker.answers["POST /images/create"] = (200, Stream(events))
    try:
        return said, engine.resolve_base(BaseRequest("base:1"), said.append)
    except EnvkitError as error:
        return said, error


def test_a_pull_says_what_came_and_each_thing_once(docker: FakeDocker, engine: DockerEngine) -> None:
    done, loading = {"status": "Pull complete", "id": "a"}, {"status": "Downloading", "id": "a"}
    said, error = pull(docker, engine, loading, done, done, {"status": "Download complete", "id": "b"})
    assert said == ["asking the registry for base:1", "Pull complete a", "Download complete b"]
    assert isinstance(error, Undecided) and error.message == "the engine pulled base:1 and does not hold it"
    assert "POST /images/create?tag=1&fromImage=base" in docker.lines


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "manifest unknown.",
            UsageError,
            "the base image base:1 does not exist or is private: manifest unknown",
        ),
        (
            "dial tcp: no such host.",
            Undecided,
            "the base image base:1 is not here and no registry serves it: dial tcp: no such host",
        ),
        ("odd.", Undecided, "pulling base:1 failed: odd"),
        (
            "no space left on device",
            Undecided,
            "the disk is full: no space left on device (the engine's store /nowhere)",
        ),
    ],
)  # fmt: skip
def test_why_a_pull_failed(
    docker: FakeDocker, engine: DockerEngine, text: str, kind: type[EnvkitError], message: str
) -> None:
    _, error = pull(docker, engine, {"error": text})
    assert (type(error), error.message) == (kind, message)
    docker.answers["POST /images/create"] = (500, {"message": text})
    assert refused(kind, lambda: engine.resolve_base(BaseRequest("base:1"), quiet))[0] == message


def test_a_registry_that_is_silent_is_given_up(
    docker: FakeDocker, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Stream):
        def __iter__(self) -> Any:
            time.sleep(0.4)
            return iter(())

    monkeypatch.setattr(engines, "_FIRST_WORD_S", 0.05)
    docker.answers["POST /images/create"] = (200, Slow())
    message, _ = refused(Undecided, lambda: engine.resolve_base(BaseRequest("base:1"), quiet))
    assert message.endswith("no registry serves it: the registry said nothing for 0 s")


def test_a_pulled_base_is_the_registrys(docker: FakeDocker, engine: DockerEngine) -> None:
    class Comes(Stream):
        def __iter__(self) -> Any:
            docker.holds(f"base:1@{DIGEST}", layer(b=b"b"), digest=DIGEST)
            return iter(())

    docker.answers["POST /images/create"] = (200, Comes())
    found = engine.resolve_base(BaseRequest("base:1", digest=DIGEST), quiet)
    assert (found.ref, found.how, found.sha256) == (f"base:1@{DIGEST}", "registry", DIGEST)
    assert engine.resolve_base(BaseRequest("base:1", digest=DIGEST), quiet).how == "local"


def test_a_digest_is_the_registrys_word(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.answers["GET /distribution/base:1/json"] = (200, {"Descriptor": {"digest": DIGEST}})
    assert engine.digest("base:1") == DIGEST
    docker.answers["GET /distribution/base:1/json"] = (404, {"message": "manifest unknown."})
    message, fix = refused(UsageError, lambda: engine.digest("base:1"))
    assert message == "base:1 does not exist or is private: manifest unknown" and fix.endswith("docker login")
    docker.answers["GET /distribution/base:1/json"] = (500, {"message": "no such host."})
    assert refused(Undecided, lambda: engine.digest("base:1"))[0] == "no registry answers for base:1: no such host"


def test_a_saved_base_has_one_image_with_a_name(docker: FakeDocker, engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "base.tar").write_bytes(b"x")
    found = engine.load(tmp_path / "base.tar", BaseRequest("base:1", digest=DIGEST))
    assert (found.ref, found.how, found.sha256) == ("loaded:base", "vendored", DIGEST)
    docker.answers["POST /images/load"] = (200, Stream())
    message, fix = refused(UsageError, lambda: engine.load(tmp_path / "base.tar", BaseRequest("base:1")))
    assert message == f"{tmp_path}/base.tar holds 0 images, not one with a name" and "envkit vendor" in fix
    tree = layer(c=b"c")
    own = f"sha256:{sha256(tree).hexdigest()}"
    docker.holds("own:1", tree, labels={"io.envkit.base.sha256": own})
    docker.answers["POST /images/load"] = (200, {"stream": "Loaded image: own:1\n"})
    assert engine.load(tmp_path / "base.tar", BaseRequest("own:1", digest=own)).sha256 == own
    message, _ = refused(UsageError, lambda: engine.load(tmp_path / "base.tar", BaseRequest("own:1", digest=DIGEST)))
    assert message == f"{tmp_path}/base.tar holds another base than {DIGEST}"


# -- images


def test_what_an_image_says_of_itself(docker: FakeDocker, engine: DockerEngine) -> None:
    assert engine.labels(IMAGE) == {"by": "me"} and len(engine.layers(IMAGE)) == 1
    stored = engine.stored(IMAGE)
    assert (stored.size, stored.config, stored.roots) == (7, b"", ()) and stored.id.startswith("sha256:")
    config = {"Entrypoint": ["a"], "Cmd": None, "Env": ["X=1"], "User": "7", "WorkingDir": "/w", "Labels": None}
    docker.answers["GET /images/job:1/json"] = (200, {"Id": "sha256:i", "Config": config, "RootFS": {}, "Size": None})
    assert engine.declared(IMAGE) == DeclaredStart(("a",), (), {"X": "1"}, "7", "/w")
    assert (engine.labels(IMAGE), engine.layers(IMAGE), engine.stored(IMAGE).size) == ({}, (), 0)
    message, fix = refused(UsageError, lambda: engine.labels("gone:1"))
    assert message == "the docker engine has no image gone:1" and "docker image ls" in fix


def test_a_file_comes_from_a_container_that_never_starts(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.files["/etc/x"] = b"content"
    assert engine.file(IMAGE, "/etc/x") == b"content"
    (body,) = asked(docker, "POST", "/containers/create")
    assert body["Cmd"] == ["true"] and body["HostConfig"]["NetworkMode"] == "none"
    assert not asked(docker, "POST", "/containers/c1/start")
    message, fix = refused(UsageError, lambda: engine.file(IMAGE, "/etc/y"))
    assert message == f"the image {IMAGE} has no file /etc/y" and fix == "choose an image with it"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo("etc")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    docker.answers["GET /containers/c1/archive"] = (200, buffer.getvalue())
    assert engine.file(IMAGE, "/etc") == b""


def test_an_image_is_saved_or_the_reason_is_told(docker: FakeDocker, engine: DockerEngine, tmp_path: Path) -> None:
    engine.save(IMAGE, tmp_path / "image.tar")
    assert tarfile.is_tarfile(tmp_path / "image.tar")
    assert refused(UsageError, lambda: engine.save("gone:1", tmp_path / "image.tar"))[0].endswith("has no image gone:1")
    message, fix = refused(UsageError, lambda: engine.save(IMAGE, tmp_path / "no" / "image.tar"))
    assert message == f"{tmp_path}/no/image.tar cannot be written: No such file or directory"
    assert fix == "check the folder it is in"
    message, _ = refused(Undecided, lambda: engine.save(IMAGE, Path("/dev/full")))
    assert message == "the disk is full: the image was not saved"


def test_a_name_is_taken_away_by_force_and_one_that_is_gone_is_no_error(
    docker: FakeDocker, engine: DockerEngine
) -> None:
    docker.lines.clear()
    engine.remove(IMAGE)
    removals = [line for line in docker.lines if line.startswith("DELETE")]
    assert removals == [f"DELETE /images/{IMAGE}?force=True&noprune=False"] and docker.names() == []
    engine.remove(IMAGE)


# -- runs


HOST = {
    "Memory": 7 << 30, "MemorySwap": 7 << 30, "OomScoreAdj": 500, "ReadonlyRootfs": True, "NetworkMode": "none",
    "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "Ulimits": [{"Name": "core", "Soft": 1, "Hard": 1}],
    "LogConfig": {"Type": "none", "Config": {}}, "PidsLimit": 4096,
}  # fmt: skip
TMPFS = "rw,exec,nosuid,nodev,mode=1777,size="
CREATED = {"Tty": False, "NetworkDisabled": False, "Entrypoint": [], "Labels": {"io.envkit.run": "1"}, "Image": IMAGE}
HEARS = {"OpenStdin": True, "StdinOnce": True, "AttachStdin": True, "AttachStdout": True, "AttachStderr": True}
NO_HEALTH = {"Test": ["NONE"], "Interval": None, "Timeout": None, "Retries": None, "StartPeriod": None}
GPU = {"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=0"], "Capabilities": [], "Options": {}}


def test_a_run_is_asked_for_whole(docker: FakeDocker, engine: DockerEngine, tmp_path: Path) -> None:
    said: list[str] = []
    docker.holds(IMAGE, layer(a=b"a"), volumes=("/data", "/m"))
    docker.answers["GET /containers/c1/json"] = (200, {"HostConfig": {"DeviceRequests": [GPU]}})
    docker.lines.clear()
    done = engine.run(
        IMAGE, ["probe"], payload=b"zip", gpus=("0",), env={"A": "b"}, mounts={"/m": tmp_path}, timeout_s=60,
        say=said.append, placed=DeclaredStart(environment={"A": "z", "C": "d"}, user="7", workdir="/w"),
    )  # fmt: skip
    command = ["python3", "/envkit/envkit.pyz", "probe", "--watch-stdin"]
    assert done == Completed(tuple(command), 0, "out\n", "said\n", False) and said == ["said"]
    holder, run = asked(docker, "POST", "/containers/create")
    payload = {"Target": "/envkit", "Source": None, "Type": "volume", "ReadOnly": False}
    assert holder["HostConfig"] == {
        "NetworkMode": "none", "Tmpfs": {"/data": "", "/m": ""},
        "Mounts": [{**payload, "VolumeOptions": own_volume(holder, "envkit-[0-9a-f]+")}],
    }  # fmt: skip
    assert run == {
        **CREATED, **HEARS, "User": "7", "Env": ["A=b", "C=d"], "Cmd": command, "WorkingDir": "/w",
        "Healthcheck": NO_HEALTH,
        "HostConfig": {
            **HOST, "ShmSize": 1 << 30, "VolumesFrom": ["c1:ro"], "AutoRemove": True, "DeviceRequests": [GPU],
            "Tmpfs": {"/data": f"{TMPFS}{1 << 30}", "/tmp": f"{TMPFS}{4 << 30}"},
            "Mounts": [{"Target": "/m", "Source": str(tmp_path), "Type": "bind", "ReadOnly": True}],
        },
    }  # fmt: skip
    names = [line for line in docker.lines if line.startswith(("POST /containers/create", "DELETE"))]
    name = names[1].partition("name=")[2]
    assert name.startswith("envkit-") and len(name) == 23
    assert names == [
        f"POST /containers/create?name={name}-files", f"POST /containers/create?name={name}",
        "DELETE /containers/c1?v=False&link=False&force=True",
        f"DELETE /containers/{name}?v=1&force=1",
        f"DELETE /containers/{name}-files?v=1&force=1",
    ]  # fmt: skip
    (attached,) = [line for line in docker.lines if "/attach?" in line]
    assert sorted(attached.partition("?")[2].split("&"))[-4:] == ["stderr=1", "stdin=1", "stdout=1", "stream=1"]
    assert any('filters={"container": ["c1"], "event": ["die"]}' in line for line in docker.lines)


def test_a_rootless_engine_of_unknown_memory(docker: FakeDocker, engine: DockerEngine, tmp_path: Path) -> None:
    own = made(docker, tmp_path, MemTotal=None, SecurityOptions=["name=seccomp", "name=rootless"])
    own.run(IMAGE, [], payload=b"", start=lambda words: ["tini", *words], timeout_s=60, say=quiet)
    run = asked(docker, "POST", "/containers/create")[-1]
    assert run["Cmd"] == ["tini", "/envkit/envkit.pyz", "--watch-stdin"] and "WorkingDir" not in run
    host = run["HostConfig"]
    assert host["Ulimits"] == [{"Name": "core", "Soft": 0, "Hard": 0}] and "Memory" not in host
    assert host["Tmpfs"] == {"/tmp": f"{TMPFS}{1 << 30}"} and "DeviceRequests" not in host


@pytest.mark.parametrize(
    ("memory", "size"), [(0, 1 << 30), (1, 1 << 30), (6, 3), (16 << 30, 8 << 30), (64 << 30, 8 << 30)]
)
def test_a_run_writes_into_half_the_memory_at_most(memory: int, size: int) -> None:
    assert engines._tmp_size(memory) == size


@pytest.mark.parametrize(("code", "exit"), [(0, 0), (7, 7), (128, 128), (129, -1), (137, -9), (192, -64), (193, 193)])
def test_a_code_above_128_is_a_signal(docker: FakeDocker, engine: DockerEngine, code: int, exit: int) -> None:
    ends(docker, code)
    done = engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet)
    assert (done.exit, done.timed_out) == (exit, False)


@pytest.mark.slow
def test_a_run_past_its_time_or_stopped_is_killed(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.ends = False
    ends(docker, 137)
    docker.answers["POST /containers/c1/kill"] = (204, b"")

    for more in ({"timeout_s": 0.3}, {"timeout_s": 60, "stop": lambda: True}):
        docker.lines.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engines, "_GONE_S", 0.1)
            done = engine.run(IMAGE, [], payload=b"", say=quiet, **more)
        assert (done.timed_out, done.exit) == (True, -9)
        assert "POST /containers/c1/kill" in docker.lines


def test_more_than_a_run_may_write_is_an_error(
    docker: FakeDocker, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_STDOUT_LIMIT", 3 << 20)
    monkeypatch.setattr(engines, "_GONE_S", 0.1)
    docker.writes = [(1, b"x" * ((3 << 20) + 1))]
    docker.answers["POST /containers/c1/kill"] = (409, {"message": "it has ended"})
    message, fix = refused(Undecided, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))
    assert message == f"the run in the image {IMAGE} wrote more than 3 MiB to stdout and was stopped"
    assert "sitecustomize" in fix
    docker.writes = [(1, b"x" * (3 << 20))]
    assert len(engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).stdout) == 3 << 20


def test_an_engine_that_does_not_say_how_a_container_ended(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.answers["GET /events"] = (200, Stream())
    message, _ = refused(Undecided, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))
    assert message == "the docker engine did not say how the container ended"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ('exec: "python3": not found', CannotStart, f"the image {IMAGE} has no python3 to run the payload with"),
        ("could not select device driver.", Undecided,
         "the docker engine cannot give the container these GPUs: could not select device driver"),
        ("unresolvable CDI devices", Undecided,
         "the docker engine cannot give the container these GPUs: unresolvable CDI devices"),
        ("odd.", CannotStart, "the container could not be started: odd"),
        ("no space left on device", Undecided, "the disk is full: no space left on device (the engine's store)"),
    ],
)  # fmt: skip
def test_why_a_container_did_not_start(
    docker: FakeDocker, engine: DockerEngine, text: str, kind: type[EnvkitError], message: str
) -> None:
    docker.answers["POST /containers/c1/start"] = (500, {"message": text})
    assert refused(kind, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))[0] == message


def test_a_start_of_the_images_own_that_is_not_there(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.answers["POST /containers/c1/start"] = (400, {"message": 'runc: exec: "tini": no such file: '})
    start = lambda own: ["tini", *own]  # noqa: E731
    message, fix = refused(
        CannotStart, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet, start=start)
    )
    assert (message, fix) == (f"the image {IMAGE} cannot start tini: no such file", "correct ENTRYPOINT or CMD")


def test_a_program_that_the_kernel_does_not_take_is_named(docker: FakeDocker, engine: DockerEngine) -> None:
    words = b"exec /usr/bin/python3: exec format error\n"
    docker.writes = [(2, words)]
    for code in (1, 255):
        ends(docker, code)
        message, _ = refused(CannotStart, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))
        assert message == f"/usr/bin/python3 in the image {IMAGE} is no program for this machine's processor"
    ends(docker, 2)
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 2
    ends(docker, 1)
    docker.writes = [(1, b"a word"), (2, words)]
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 1, "what has spoken was started"


def test_a_request_for_gpus_that_was_dropped_is_found_out(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.answers["GET /containers/c1/json"] = (200, {"HostConfig": None})
    said = "the docker engine took the request for GPUs and dropped it: its record of the container names none"
    for ask in (
        lambda: engine.run(IMAGE, [], payload=b"", gpus=("0",), timeout_s=60, say=quiet),
        lambda: engine.follow(IMAGE, ["x"], mounts={}, gpus=("0",), timeout_s=60, say=quiet),
    ):
        message, fix = refused(Undecided, ask)
        assert message == said and "--engine podman" in fix
    docker.answers["GET /containers/c1/json"] = (200, {"HostConfig": {"Devices": [{}]}})
    assert engine.run(IMAGE, [], payload=b"", gpus=("0",), timeout_s=60, say=quiet).exit == 0


def test_an_image_of_another_platform_is_refused_before_a_container_is_made(
    docker: FakeDocker, engine: DockerEngine
) -> None:
    facts = {"Id": "i", "Config": {}, "RootFS": {}, "Os": "linux", "Architecture": "arm64"}
    docker.answers["GET /images/job:1/json"] = (200, facts)
    message, fix = refused(Undecided, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))
    assert message == f"the image {IMAGE} is for linux/arm64 and this engine runs linux/amd64"
    assert "--platform linux/amd64" in fix and not asked(docker, "POST", "/containers/create")
    docker.answers["GET /images/job:1/json"] = (200, {**facts, "Architecture": "amd64"})
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 0


def test_containers_that_were_never_started_go_with_the_next_run(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.answers["GET /containers/json"] = (200, [
        {"Id": "c1", "State": "created", "Created": 1000}, {"Id": "left", "State": "created", "Created": 939},
        {"Id": "gone", "State": "created", "Created": 1}, {"Id": "young", "State": "created", "Created": 940},
        {"Id": "runs", "State": "running", "Created": 1},
    ])  # fmt: skip
    docker.answers["DELETE /containers/left"] = (409, {"message": "another is at it"})
    docker.answers["DELETE /containers/gone"] = (204, b"")
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 0
    removed = [path for method, path, _ in docker.heard if method == "DELETE"]
    assert removed[1:3] == ["/containers/left", "/containers/gone"] and len(removed) == 5
    assert 'GET /containers/json?limit=-1&all=1&size=0&trunc_cmd=0&filters={"label": ["io.envkit.run"]}' in docker.lines


def test_a_container_whose_removal_is_under_way_is_asked_again(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.answers["DELETE /containers/a"] = (409, {"message": "removal is already in progress"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "_GONE_S", 0.2)
        assert engine._discard("a") is False
    assert len([line for line in docker.lines if line.startswith("DELETE /containers/a?")]) > 1
    docker.answers["DELETE /containers/a"] = (404, {"message": "no such container"})
    assert engine._discard("a") is True
    docker.close()
    assert engine._discard("a") is False


# -- volumes that hold files


def archive_of(*names: str, size: int = 0) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = size
            archive.addfile(entry, io.BytesIO(b"x" * size))
    return buffer.getvalue()


def test_what_a_volume_has_from_the_image_comes_along(docker: FakeDocker, engine: DockerEngine) -> None:
    docker.holds(IMAGE, layer(a=b"a"), volumes=("/full", "/empty"))
    usual = docker.answer

    def answer(method: str, path: str, words: dict[str, str], body: bytes) -> tuple[int, Any]:
        if method == "GET" and path == "/containers/c1/archive":
            return 200, archive_of("./", "./x") if words["path"] == "/full/." else archive_of("./")
        return usual(method, path, words, body)

    docker.answer = answer  # type: ignore[method-assign]
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 0
    first, second, run = asked(docker, "POST", "/containers/create")
    assert set(first["HostConfig"]["Tmpfs"]) == {"/full", "/empty"}
    assert set(second["HostConfig"]["Tmpfs"]) == {"/empty"}
    assert [mount["Target"] for mount in second["HostConfig"]["Mounts"]] == ["/envkit", "/full"]
    assert set(run["HostConfig"]["Tmpfs"]) == {"/empty", "/tmp"}


def test_more_volumes_with_files_than_an_engine_shall_copy_are_refused(
    docker: FakeDocker, engine: DockerEngine
) -> None:
    docker.answers["GET /containers/c1/archive"] = (200, archive_of("./", "./x"))
    docker.holds(IMAGE, layer(a=b"a"), volumes=tuple(f"/v{number}" for number in range(5)))
    message, _ = refused(Undecided, lambda: engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet))
    assert "declares 5 VOLUMEs that hold files, more than the 4 that a run has the engine copy" in message
    docker.holds(IMAGE, layer(a=b"a"), volumes=tuple(f"/v{number}" for number in range(4)))
    assert engine.run(IMAGE, [], payload=b"", timeout_s=60, say=quiet).exit == 0


@pytest.mark.parametrize(
    ("answer", "files"),
    [
        (archive_of("./"), False),
        (archive_of("./", "./x"), True),
        (archive_of("./", "./x", size=100_000), True),
        (archive_of("a" * 90_000), True),
    ],
)
def test_a_folder_is_looked_into_and_not_read(
    docker: FakeDocker, engine: DockerEngine, answer: bytes, files: bool
) -> None:
    docker.answers["GET /containers/c1/archive"] = (200, answer)
    assert engine._has_files("c1", "/d") is files
    docker.answers["GET /containers/c1/archive"] = (404, {"message": "none"})
    assert engine._has_files("c1", "/d") is False


# -- a person's own command, and what is compiled


@pytest.mark.parametrize(
    ("gpus", "which"),
    [(("all",), {"Count": -1, "DeviceIDs": []}), (("0", "2"), {"Count": 0, "DeviceIDs": ["0", "2"]})],
)
def test_an_engine_that_reads_no_cdi_gives_gpus_by_nvidias_runtime(
    docker: FakeDocker, engine: DockerEngine, tmp_path: Path, gpus: tuple[str, ...], which: dict[str, Any]
) -> None:
    own = made(docker, tmp_path, Runtimes={"nvidia": {}})
    asks = {"Driver": "", "Capabilities": [["gpu"]], "Options": {}, **which}
    docker.answers["GET /containers/c1/json"] = (200, {"HostConfig": {"DeviceRequests": [asks]}})
    own.follow(IMAGE, ["make"], mounts={}, gpus=gpus, timeout_s=60, say=quiet)
    own.run(IMAGE, [], payload=b"", gpus=gpus, timeout_s=60, say=quiet)
    for body in asked(docker, "POST", "/containers/create")[::2]:
        assert body["HostConfig"]["DeviceRequests"] == [asks] and body["HostConfig"]["Runtime"] == "nvidia"


def test_a_persons_own_command_may_trace_itself(docker: FakeDocker, engine: DockerEngine, tmp_path: Path) -> None:
    docker.answers["GET /containers/c1/json"] = (200, {"HostConfig": {"DeviceRequests": [GPU]}})
    mounts = {"/m": (tmp_path, True), "/r": (tmp_path, False)}
    placed = DeclaredStart(environment={"A": "b"}, user="7", workdir="/w")
    done = engine.follow(
        IMAGE, ["make"], mounts=mounts, gpus=("0",), network="host", placed=placed, timeout_s=60, say=quiet
    )
    assert done == Completed(("make",), 0, "out\n", "said\n", False)
    (body,) = asked(docker, "POST", "/containers/create")
    bind = {"Source": str(tmp_path), "Type": "bind"}
    host = {
        "ShmSize": 1 << 30, "CapAdd": ["SYS_PTRACE"], "LogConfig": {"Type": "none", "Config": {}}, "PidsLimit": 8192,
        "AutoRemove": True, "Init": False,
    }  # fmt: skip
    assert body == {
        **CREATED, **HEARS, "User": "7", "Env": ["A=b"], "Cmd": ["make"], "WorkingDir": "/w",
        "HostConfig": {
            **host, "NetworkMode": "host", "DeviceRequests": [GPU],
            "Mounts": [{**bind, "Target": "/m", "ReadOnly": False}, {**bind, "Target": "/r", "ReadOnly": True}],
        },
    }  # fmt: skip
    engine.follow(IMAGE, ["make"], mounts={}, timeout_s=60, say=quiet)
    body = asked(docker, "POST", "/containers/create")[1]
    assert body == {**CREATED, **HEARS, "Cmd": ["make"], "HostConfig": {**host, "NetworkMode": "bridge", "Mounts": []}}


def test_a_compile_is_asked_for_whole_and_brings_what_was_made(
    docker: FakeDocker, engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "given.tar").write_bytes(b"given")
    given, target = tmp_path / "given.tar", tmp_path / "made.tar"
    docker.files["/work/out"] = b"content"
    done = engine.compile(IMAGE, ["cc"], given, target, timeout_s=60, say=quiet)
    assert done == Completed(("cc",), 0, "out\n", "said\n", False) and docker.put == [b"given"]
    assert target.read_bytes() == layer(file=b"content")
    (body,) = asked(docker, "POST", "/containers/create")
    volume = {"Target": "/work", "Source": None, "Type": "volume", "ReadOnly": False}
    assert body == {
        **CREATED, **HEARS, "User": "0:0", "Cmd": ["cc"], "WorkingDir": "/work", "Healthcheck": NO_HEALTH,
        "HostConfig": {
            **HOST, "Tmpfs": {"/tmp": f"{TMPFS}{4 << 30}"},
            "Mounts": [{**volume, "VolumeOptions": own_volume(body, "envkit-[0-9a-f]+")}],
        },
    }  # fmt: skip
    size = len(layer(file=b"content"))
    monkeypatch.setattr(engines, "_MOST_MADE", size)
    engine.compile(IMAGE, ["cc"], given, target, timeout_s=60, say=quiet)
    monkeypatch.setattr(engines, "_MOST_MADE", size - 1)
    message, _ = refused(Undecided, lambda: engine.compile(IMAGE, ["cc"], given, target, timeout_s=60, say=quiet))
    assert message == "what the container left in /work/out has more than 0 GB"
    docker.files.clear()
    assert engine.compile(IMAGE, ["cc"], given, target, timeout_s=60, say=quiet).exit == 0
    assert target.read_bytes() == b""


# -- jobs


def attended(engine: DockerEngine, code: int, gpus: tuple[str, ...] = ()) -> tuple[Any, list[str]]:
    lines: list[str] = []

    def attend(line: Any) -> int:
        lines.extend(line.argv)
        return code

    return engine.attend(JobRequest(IMAGE, ("train",), gpus), attend), lines


def state(docker: FakeDocker, name: str, **more: Any) -> None:
    docker.answers[f"GET /containers/{name}/json"] = (200, {"State": more, "HostConfig": {}})


def test_a_job_that_is_waited_for_is_asked_how_it_ended(
    docker: FakeDocker, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uuid, "uuid4", lambda: SimpleNamespace(hex="0f" * 16))
    name = "envkit-" + "0f" * 8
    state(docker, name, Status="exited", ExitCode=3, OOMKilled=True)
    end, line = attended(engine, 125)
    assert (end.exit, end.not_started, end.out_of_memory, end.doubt) == (3, "", True, "")
    assert line == [
        "docker", "run", "--name", name, "--label", "io.envkit.run=1", "--pull", "never", IMAGE, "train"
    ]  # fmt: skip
    end, line = attended(engine, 0, ("0",))
    assert end.doubt.startswith("the docker engine took the request for GPUs and dropped it")
    assert line[8:10] == ["--device", "nvidia.com/gpu=0"]
    del docker.answers[f"GET /containers/{name}/json"]
    assert (
        refused(Undecided, lambda: attended(engine, 125))[0] == "the docker engine made no container, as it says above"
    )
    docker.answers[f"GET /containers/{name}/json"] = (500, {"message": "odd"})
    message, fix = refused(Undecided, lambda: attended(engine, 125))
    assert message == (
        "the docker engine went away while the command ran (the docker engine refused: odd): how the command ended is "
        "not known"
    )
    assert fix == (
        f"start the engine again: its container goes by itself for 10 minutes, later by `docker rm --force {name}`"
    )


def test_a_printed_line_goes_by_itself(engine: DockerEngine) -> None:
    assert engine.job_line(JobRequest(IMAGE, ("train",))).argv == ("docker", "run", "--rm", IMAGE, "train")


@pytest.mark.parametrize(
    ("code", "text", "end"),
    [
        (127, "[FATAL tini (7)] exec train failed: No such file\n", (127, "train: No such file")),
        (126, "x\n[FATAL tini (7)] exec train failed: Permission denied", (126, "train: Permission denied")),
        (125, "[FATAL tini (7)] exec train failed: x", (125, "")),
        (1, "[FATAL tini (7)] exec train failed: x", (1, "")),
        (1, "ERROR (catatonit:7): failed to exec pid1: No such file or directory", (127, "No such file or directory")),
        (1, "ERROR (catatonit:7): failed to exec pid1: Permission denied\n", (126, "Permission denied")),
        (2, "ERROR (catatonit:7): failed to exec pid1: Permission denied", (2, "")),
        (0, "", (0, "")),
        (127, "sh: train: not found", (127, "")),
    ],
)  # fmt: skip
def test_a_first_process_that_could_not_start_the_command_is_read(code: int, text: str, end: tuple[int, str]) -> None:
    assert docker_run.refused(code, text) == end


@pytest.mark.parametrize(
    ("code", "state", "end"),
    [
        (127, {"Status": "created"}, (127, "the engine did not start it", False)),
        (125, {"Status": "exited", "Error": " no such device "}, (125, "no such device", False)),
        (1, {"Status": "exited", "ExitCode": 3}, (3, "", False)),
        (1, {"Status": "dead", "ExitCode": 4}, (4, "", False)),
        (1, {"Status": "exited", "ExitCode": None, "OOMKilled": True}, (0, "", True)),
        (-2, {"Status": "running", "ExitCode": 0}, (130, "", False)),
        (5, {"Status": "running"}, (5, "", False)),
    ],
)
def test_how_a_job_ended(code: int, state: dict[str, Any], end: tuple[int, str, bool]) -> None:
    found = docker_run.end(code, state)
    assert (found.exit, found.not_started, found.out_of_memory) == end


@pytest.mark.parametrize(
    ("info", "terms"),
    [
        ({}, ("docker", "cdi", False, False)),
        ({"Runtimes": {"nvidia": {}}}, ("docker", "gpus", False, False)),
        ({"Runtimes": {"nvidia": {}}, "CDISpecDirs": ["/etc/cdi"]}, ("docker", "cdi", False, False)),
        ({"SecurityOptions": ["name=userns"]}, ("docker", "cdi", False, True)),
        ({"SecurityOptions": ["name=rootless"]}, ("docker", "cdi", True, False)),
    ],
)
def test_the_terms_of_an_engine(info: dict[str, Any], terms: tuple[str, str, bool, bool]) -> None:
    assert docker_run.terms(info) == docker_run.Terms(*terms)


def test_a_line_has_every_word_in_its_place() -> None:
    request = JobRequest(
        IMAGE, ("train", "x"), ("0", "1"), {"A": "b", "API_TOKEN": "s"}, (Bind("/a", "/b", False), Bind("/a,b", "/c")),
        "/w", (7, 8), ("--ipc", "host"), terminal=True,
    )  # fmt: skip
    line = docker_run.line(request, docker_run.Terms("podman", "gpus", remapped=True), ("--own",))
    assert line.argv == (
        "podman", "run", "--own", "--interactive", "--tty", "--gpus", '"device=0,1"', "--ipc", "host", "--user", "7:8",
        "--userns", "host", "--env", "A=b", "--env", "API_TOKEN", "--volume", "/a:/b:ro",
        "--mount", 'type=bind,"source=/a,b",target=/c', "--workdir", "/w", IMAGE, "train", "x",
    )  # fmt: skip
    assert line.env == {"API_TOKEN": "s"}
    everything = JobRequest(IMAGE, (), ("all",), stdin=True, user=(7, 8))
    assert docker_run.line(everything, docker_run.Terms(gpus="gpus", rootless=True)).argv == (
        "docker", "run", "--rm", "--interactive", "--gpus", "all", "--user", "0:0", IMAGE
    )  # fmt: skip
    assert docker_run.bound("/a,b", "/c", False) == ["--mount", 'type=bind,"source=/a,b",target=/c,readonly']
    assert docker_run.bound("/a", "/c:d", True)[0] == "--mount"


# -- what a container writes


def heard(frames: list[tuple[int, bytes]], say: Callable[[str], None] = quiet) -> Output:
    made = Output(iter(frames), say)
    made.start()
    assert made.ended(20)
    return made


def test_lines_are_passed_on_as_they_come_and_the_last_though_it_has_not_ended() -> None:
    said: list[str] = []
    found = heard([(2, b"one\ntw"), (1, b"out"), (2, b"o\n\xff"), (2, b"three")], said.append)
    assert said == ["one", "two", "\ufffdthree"]
    assert (found.stdout(), found.stderr(), found.overflow) == ("out", "one\ntwo\n\ufffdthree", "")


def test_a_line_without_an_end_is_passed_on_in_pieces() -> None:
    said: list[str] = []
    heard([(2, b"x" * (16 << 10))], said.append)
    assert [len(line) for line in said] == [16 << 10]
    said.clear()
    heard([(2, b"x" * (16 << 10)), (2, b"y"), (2, b"z")], said.append)
    assert [line[-1] for line in said] == ["y", "z"] and len(said[0]) == (16 << 10) + 1


def test_of_stderr_the_end_is_kept() -> None:
    found = heard([(2, b"a" * (64 << 10)), (2, b"b" * (64 << 10))])
    assert len(found._stderr) == 128 << 10 and found.stderr() == "b" * (64 << 10)
    found = heard([(2, b"a" * (64 << 10)), (2, b"b" * (64 << 10)), (2, b"c")])
    assert len(found._stderr) == 64 << 10 and found.stderr() == "b" * ((64 << 10) - 1) + "c"


@pytest.mark.parametrize(("stream", "limit", "name"), [(1, 32, "stdout"), (2, 64, "stderr")])
def test_too_much_is_not_kept(stream: int, limit: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit << 20 == getattr(output, f"_{name.upper()}_LIMIT")
    limit = stream
    monkeypatch.setattr(output, f"_{name.upper()}_LIMIT", limit << 20)
    said: list[str] = []
    chunk = b"x" * (limit << 19) + b"\n"
    found = heard([(stream, chunk[1:]), (stream, chunk[1:])], said.append)
    assert found.overflow == ""
    found = heard([(stream, chunk), (stream, chunk), (1, b"later"), (2, b"later\n")], said.append)
    assert found.overflow == f"{limit} MiB to {name}" and "later" not in said and "later" not in found.stdout()


def test_a_listener_that_has_gone_ends_nothing() -> None:
    calls: list[str] = []

    def say(line: str) -> None:
        calls.append(line)
        raise BrokenPipeError(errno.EPIPE, "gone")

    found = heard([(2, b"one\ntwo\n")], say)
    assert calls == ["one"] and found.stderr() == "one\ntwo\n"


def test_streams_that_have_not_ended_are_not_waited_for() -> None:
    go = threading.Event()

    def frames() -> Any:
        go.wait(20)
        yield 1, b"x"
        raise OSError("cut")

    made = Output(frames(), quiet)
    made.start()
    assert not made.ended(0) and not made.ended(-1)
    go.set()
    assert made.ended(20) and made.stdout() == "x"
